"""Pools of few channels, which native code computes along one axis after the other, and adaptive pools of uneven windows."""

from __future__ import annotations

from typing import Any

import numpy as np
from beside_numpy import assert_alike
from checks import Checks, each

import fluid
from fluid import layers

WINDOWS: tuple[dict[str, Any], ...] = (
    {"pool_size": 3, "pool_stride": 1, "pool_padding": 1},
    {"pool_size": [3, 5], "pool_stride": [2, 1], "pool_padding": [1, 2], "ceil_mode": True},
    {"pool_size": [4, 3], "pool_stride": [3, 2], "exclusive": False, "pool_padding": 1},
    {"pool_size": 9, "pool_stride": 1, "pool_padding": 4},
)
LEVELS = (0, 3)


def check(shape: tuple[int, ...], kind: str, levels: int, pool: Any) -> None:
    """Hold a pool and its gradient against numpy; of a few levels, maxima come several times."""
    random = np.random.default_rng(0)
    drawn = random.integers(0, levels, shape) if levels else random.standard_normal(shape)

    def build() -> list[Any]:
        x = fluid.data("x", list(shape))
        x.stop_gradient = False
        pooled = pool(x * 2.0)
        weights = layers.create_parameter(list(pooled.shape), "float32")
        return [pooled, *fluid.gradients([layers.reduce_sum(pooled * weights)], [x])]

    assert_alike(build, {"x": drawn.astype(np.float32)})


@each("kind", ["max", "avg"])
def test_pools_of_few_channels(kind: str) -> None:
    with Checks() as checks:
        for shape in ((2, 1, 33, 17), (1, 3, 8, 65), (3, 7, 9, 8), (1, 2, 7, 31), (1, 8, 9, 9)):
            for number, windows in enumerate(WINDOWS):
                if kind == "avg" or "exclusive" not in windows:
                    with checks(f"{shape} {windows}"):
                        check(shape, kind, LEVELS[number % 2], lambda x, how=windows: layers.pool2d(x, pool_type=kind, **how))


@each("kind", ["max", "avg"])
def test_uneven_windows(kind: str) -> None:
    """Also more windows than elements, and windows that are even along one axis."""
    with Checks() as checks:
        for number, (shape, out) in enumerate(
            (
                ((2, 9, 13, 29), [5, 7]),
                ((1, 3, 5, 7), [7, 9]),
                ((2, 17, 1, 9), [3, 3]),
                ((1, 64, 10, 11), [5, 4]),
                ((1, 2, 65, 64), [9, 5]),
            )
        ):
            for levels in LEVELS:
                with checks(f"{shape} to {out}, {number}"):
                    check(shape, kind, levels, lambda x, out=out: layers.adaptive_pool2d(x, out, kind))


def test_averages_of_uneven_windows_keep_infinities_to_themselves() -> None:
    x = np.ones((1, 9, 13, 13), np.float32)
    x[0, 4, 6, 3] = np.inf
    out = layers.adaptive_pool2d(fluid.data("x", [1, 9, 13, 13]) * 1.0, 5, "avg")
    (result,) = fluid.Executor().run(feed={"x": x}, fetch_list=[out])
    assert np.isinf(result[0, 4, 2, 1])
    assert np.isfinite(np.delete(result.reshape(-1), 4 * 25 + 2 * 5 + 1)).all()
