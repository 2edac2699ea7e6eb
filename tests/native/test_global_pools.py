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


@each("kind, levels", [("max", 0), ("max", 3), ("avg", 0)])
@each(
    "shape, window", [((2, 3, 34, 51), (17, 17)), ((1, 1, 2, 16), (1, 16)), ((3, 2, 9, 128), (3, 32)), ((1, 5, 66, 40), (33, 20))]
)
def test_wide_windows_side_by_side(shape: tuple[int, ...], window: tuple[int, int], kind: str, levels: int) -> None:
    """As pools with strides and as adaptive pools; some of the images hold a NaN."""
    out = [extent // size for extent, size in zip(shape[2:], window, strict=True)]

    def build() -> list[Any]:
        x = fluid.data("x", list(shape))
        x.stop_gradient = False
        pooled = [layers.pool2d(x, list(window), kind, list(window)), layers.adaptive_pool2d(x, out, kind)]
        weighted = [layers.square(one) for one in pooled]
        return [*pooled, *fluid.gradients([layers.reduce_sum(weighted[0] + weighted[1] * 3.0)], [x])]

    fed = images(shape, levels)
    assert_alike(build, {"x": fed})
    fed[0, 0, 0, 3] = np.nan
    assert_alike(build, {"x": fed})
