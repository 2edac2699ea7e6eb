"""Pools whose window is the whole image or volume are as on numpy, with few channels and many, at real sizes."""

from __future__ import annotations

from typing import Any

import numpy as np
from beside_numpy import assert_alike
from checks import each

import fluid
from fluid import layers

SHAPES = ((3, 2, 65, 33), (1, 1, 1, 1), (2, 70, 5, 7), (1, 3, 257, 129), (2, 3, 9, 6, 5), (5, 17, 3, 1))


def images(shape: tuple[int, ...], levels: int) -> Any:
    """Images; of a few levels, maxima come several times."""
    random = np.random.default_rng(0)
    drawn = random.integers(0, levels, shape) if levels else random.standard_normal(shape)
    return drawn.astype(np.float32)


@each("shape, kind, levels", [(shape, kind, levels) for shape in SHAPES for kind, levels in (("max", 0), ("max", 3), ("avg", 0))])
def test_global_pools_and_their_gradients(shape: tuple[int, ...], kind: str, levels: int) -> None:
    pool = layers.pool2d if len(shape) == 4 else layers.pool3d

    def build() -> list[Any]:
        x = fluid.data("x", list(shape))
        x.stop_gradient = False
        scaled = layers.scale(x, 2.0)
        pooled = pool(scaled, pool_type=kind, global_pooling=True)
        return [pooled, *fluid.gradients([layers.reduce_sum(layers.square(pooled))], [x])]

    assert_alike(build, {"x": images(shape, levels)})


def test_a_window_of_the_image_size_is_global() -> None:
    def build() -> list[Any]:
        x = fluid.data("x", [2, 3, 31, 17])
        x.stop_gradient = False
        pooled = layers.pool2d(x, [31, 17], "max") + layers.adaptive_pool2d(x, 1, "avg")
        return [pooled, *fluid.gradients([layers.reduce_sum(layers.square(pooled))], [x])]

    assert_alike(build, {"x": images((2, 3, 31, 17), 0)})
