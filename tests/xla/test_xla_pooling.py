"""Gradients of maxima of overlapping windows at an XLAPlace: XLA's own operations, beside numpy's kernel."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

pytest.importorskip("jax")

import fluid

pytestmark = pytest.mark.usefixtures("quick_to_compile")

WINDOWS: dict[str, tuple[tuple[int, ...], dict[str, Any]]] = {
    "3 by 3": ((2, 3, 8, 9), {"pool_size": 3, "pool_stride": 2, "pool_padding": 1}),
    "elements beyond the last window": ((2, 3, 10, 11), {"pool_size": 3, "pool_stride": 2}),
    "part of a window beyond the image": ((2, 3, 10, 8), {"pool_size": 3, "pool_stride": 2, "ceil_mode": True}),
    "each element": ((2, 3, 6, 5), {"pool_size": 3, "pool_stride": 1, "pool_padding": 1}),
    "apart": ((2, 3, 11, 10), {"pool_size": 2, "pool_stride": 3}),
    "uneven": ((2, 3, 9, 12), {"pool_size": [2, 5], "pool_stride": [1, 3], "pool_padding": [[0, 0], [0, 0], [1, 0], [2, 3]]}),
    "channels last": ((2, 8, 9, 3), {"pool_size": 3, "pool_stride": 2, "pool_padding": 1, "data_format": "NHWC"}),
    "volumes": ((2, 2, 6, 7, 8), {"pool_size": 3, "pool_stride": 2, "pool_padding": 1}),
}
SPECIAL = [np.nan, np.inf, -np.inf, 0.0, -0.0, np.finfo(np.float32).min]


@pytest.mark.parametrize("special", [False, True])
@pytest.mark.parametrize("name", WINDOWS)
def test_the_first_maximum_of_each_window_gets_its_gradient(name: str, special: bool) -> None:
    shape, settings = WINDOWS[name]
    rng = np.random.default_rng(0)
    images = rng.integers(-2, 3, shape).astype("float32")  # many are equal
    if special:
        images = np.where(rng.random(shape) < 0.5, rng.choice(SPECIAL, shape), images).astype("float32")
    x = fluid.data("x", list(shape))
    x.stop_gradient = False
    pool = fluid.layers.pool3d if len(shape) == 5 else fluid.layers.pool2d
    pooled = pool(x, pool_type="max", **settings)
    weights = fluid.layers.assign(rng.integers(1, 100, [abs(size) for size in pooled.shape]).astype("float32"))
    (gradient,) = fluid.gradients(pooled, [x], [weights])
    feed, fetches = {"x": images}, [pooled, gradient]
    expected = fluid.Executor(fluid.CPUPlace()).interpret(feed=feed, fetch_list=fetches)
    for value, other in zip(fluid.Executor(fluid.XLAPlace()).run(feed=feed, fetch_list=fetches), expected, strict=True):
        np.testing.assert_array_equal(value, other)


def test_extremes_of_many_elements_keep_nans() -> None:
    """XLA's own reductions lose them in vectors."""
    rng = np.random.default_rng(0)
    images = np.where(rng.random((8, 9, 16, 32)) < 0.05, np.nan, rng.standard_normal((8, 9, 16, 32))).astype("float32")
    images[:, 0] = 1.0
    x = fluid.data("x", [8, 9, 16, 32])
    extremes = [fluid.layers.reduce_max(x, dim=axis) for axis in (0, 3, [2, 3])] + [fluid.layers.reduce_min(x, dim=[2, 3])]
    pools = [fluid.layers.pool2d(x, global_pooling=True), fluid.layers.adaptive_pool2d(x, [3, 1], "max")]
    fetches = [*extremes, *pools, fluid.layers.softmax(x), fluid.layers.log_softmax(x)]
    expected = fluid.Executor(fluid.CPUPlace()).interpret(feed={"x": images}, fetch_list=fetches)
    for value, other in zip(fluid.Executor(fluid.XLAPlace()).run(feed={"x": images}, fetch_list=fetches), expected, strict=True):
        np.testing.assert_allclose(value, other, rtol=1e-5)
