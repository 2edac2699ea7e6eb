"""Native pools beside the numpy kernels, with red zones around every array."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
from checks import each
from harness import TARGETS, nth_target
from red_zones import Guarded, Kernels, check_halo, inner, laid_out

from fluid.executor.binding.compiled import apply_op
from fluid.executor.native.emitter import BYTE, DOUBLE, FLOAT, Type
from fluid.executor.native.images import Images
from fluid.executor.native.pooling import (
    PoolGeometry,
    write_average_pool,
    write_average_pool_gradient,
    write_max_pool,
    write_max_pool_gradient,
)
from fluid.executor.native.target import Target


@dataclass(frozen=True)
class Case:
    """A pool as users give it."""

    shape: tuple[int, int, int, int]
    kernel: tuple[int, int]
    strides: tuple[int, int]
    pads: tuple[int, int, int, int] = (0, 0, 0, 0)
    exclusive: bool = True
    element: Type = FLOAT
    levels: int = 0
    ceil_mode: bool = False

    @property
    def attrs(self) -> dict[str, Any]:
        return {
            "ksize": list(self.kernel),
            "strides": list(self.strides),
            "paddings": list(self.pads),
            "ceil_mode": self.ceil_mode,
            "exclusive": self.exclusive,
        }

    def values(self, random: Any) -> Any:
        """Input: of as many levels, so that maxima come several times, or any."""
        drawn = random.standard_normal(self.shape) if not self.levels else random.integers(0, self.levels, self.shape)
        return drawn.astype(np.float32 if self.element == FLOAT else np.float64)

    def pool(self, out: tuple[int, ...]) -> PoolGeometry:
        n, c, height, width = self.shape
        top, bottom, left, right = self.pads
        x, y = Images.dense(n, height, width, c), Images.dense(n, *out[2:], c)
        p = PoolGeometry(x, y, self.kernel, self.strides, ((top, bottom), (left, right)), self.element)
        return replace(p, x=Images.dense(n, height, width, c, p.x_halo), y=Images.dense(n, *out[2:], c, p.y_halo))


CASES = [
    Case((2, 70, 8, 6), (2, 2), (2, 2), levels=3),
    Case((2, 19, 9, 9), (3, 3), (2, 2), (1, 1, 1, 1), element=DOUBLE),
    Case((1, 5, 7, 8), (3, 2), (1, 2), (1, 1, 0, 1), exclusive=False),
    Case((2, 16, 5, 5), (5, 5), (1, 1)),
    Case((1, 5, 7, 8), (1, 2), (3, 3), (1, 1, 2, 2)),  # windows outside the image
]
MORE = [
    Case((2, 3, 7, 7), (2, 2), (2, 2), ceil_mode=True),
    Case((2, 3, 7, 7), (2, 2), (3, 3), levels=2),
    Case((1, 1, 1, 1), (1, 1), (1, 1)),
    Case((0, 4, 6, 6), (2, 2), (2, 2)),
    Case((2, 33, 13, 13), (13, 13), (1, 1), (6, 6, 6, 6)),
    Case((2, 8, 10, 10), (3, 3), (2, 2), (0, 1, 0, 1), exclusive=False),
    Case((1, 130, 14, 14), (3, 3), (1, 1), (1, 1, 1, 1), levels=2),
    Case((3, 64, 12, 12), (3, 3), (2, 2), ceil_mode=True),
]


@each("case, which", [(case, number % 2) for number, case in enumerate(CASES)])
def test_pools_are_those_of_numpy(case: Case, which: int) -> None:
    check_pools(case, nth_target(which))


@pytest.mark.slow
@each("case", CASES + MORE)
@each("element", [FLOAT, DOUBLE], ids=str)
@each("which", [0, 1])
def test_more_pools_are_those_of_numpy(case: Case, element: Type, which: int) -> None:
    check_pools(replace(case, element=element), nth_target(which))


def check_pools(case: Case, target: Target) -> None:
    """Both kinds of pool and their gradients with 1, 2 and 4 threads, for a processor whose code runs here."""
    random = np.random.default_rng(0)
    x = case.values(random)
    attrs = {kind: {**case.attrs, "pooling_type": kind} for kind in ("max", "avg")}
    expected = {kind: apply_op("pool2d", {"X": x}, attrs[kind])["Out"] for kind in attrs}
    dy = random.standard_normal(expected["max"].shape).astype(x.dtype)
    grads = {
        kind: apply_op("pool2d_grad", {"X": x, "Out": expected[kind], "Out@GRAD": dy}, attrs[kind])["X@GRAD"] for kind in attrs
    }
    pool = case.pool(dy.shape)
    kernels = Kernels(target)
    maxima = kernels.add(3, lambda f, p, share: write_max_pool(f, pool, p[0], p[1], share, target, p[2]))
    plain = kernels.add(2, lambda f, p, share: write_max_pool(f, pool, *p, share, target))
    back = kernels.add(3, lambda f, p, share: write_max_pool_gradient(f, pool, *p, share, target))
    averages = kernels.add(2, lambda f, p, share: write_average_pool(f, pool, *p, case.exclusive, share, target))
    spread = kernels.add(2, lambda f, p, share: write_average_pool_gradient(f, pool, *p, case.exclusive, share, target))
    for threads in (1, 2, 4):
        image, gradient = laid_out(pool.x, x), laid_out(pool.y, dy)
        positions = Guarded(pool.y.shape, np.int8 if pool.position == BYTE else np.int32)
        y, again, average = (laid_out(pool.y, np.full_like(dy, np.nan)) for _ in range(3))
        dx, d_average = (laid_out(pool.x, np.full_like(x, np.nan)) for _ in range(2))
        kernels.run(maxima, [image, y, positions], threads)
        kernels.run(plain, [image, again], threads)
        kernels.run(back, [positions, gradient, dx], threads)
        kernels.run(averages, [image, average], threads)
        kernels.run(spread, [gradient, d_average], threads)
        for images, array in ((pool.y, y), (pool.y, average), (pool.x, dx), (pool.x, d_average)):
            check_halo(images, array)
        assert np.array_equal(inner(pool.y, y.array), expected["max"])
        assert np.array_equal(again.array, y.array)
        assert np.array_equal(inner(pool.x, dx.array), grads["max"])
        close = 4 * np.finfo(x.dtype).eps
        np.testing.assert_allclose(inner(pool.y, average.array), expected["avg"], close, close * 100)
        np.testing.assert_allclose(inner(pool.x, d_average.array), grads["avg"], close, close * 100)


def test_nan_and_infinities_are_maxima() -> None:
    x = np.array([[np.nan, 1, -np.inf, -np.inf], [2, 3, -np.inf, -np.inf], [np.inf, 1, 1, np.nan], [2, 3, 4, 5]], np.float32)
    pool = Case((1, 1, 4, 4), (2, 2), (2, 2)).pool((1, 1, 2, 2))
    kernels, y = Kernels(TARGETS[0]), Guarded((1, 2, 2, 1))
    kernels.add(2, lambda f, p, share: write_max_pool(f, pool, *p, share, TARGETS[0]))
    kernels.run(0, [Guarded.of(x.reshape(1, 4, 4, 1)), y])
    assert np.array_equal(y.array.ravel(), [np.nan, -np.inf, np.inf, np.nan], equal_nan=True)
