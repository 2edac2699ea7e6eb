"""Gradients of max pools whose last windows lie in the padding: such a window passes its gradient to nobody."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest
from checks import each

import fluid
from fluid import layers
from fluid.executor.planned import plan

GEOMETRIES = [  # extents, sizes of windows, strides, padding
    ((1, 5), (1, 2), (1, 3), (0, 1)),
    ((5, 5), (2, 2), (3, 3), (1, 1)),
    ((4, 8), (2, 3), (3, 5), (1, 1)),
    ((3, 14), (1, 3), (1, 4), (0, 1)),
]


def expected_gradient(x: Any, d_out: Any, size: Any, stride: Any, pad: Any) -> Any:
    """The gradient of each window, added at its first maximum."""
    gradient = np.zeros_like(x)
    for window in product(*(range(count) for count in d_out.shape)):
        starts = [at * step - before for at, step, before in zip(window, (1, 1, *stride), (0, 0, *pad), strict=True)]
        spans = [
            slice(max(start, 0), min(start + length, extent))
            for start, length, extent in zip(starts, (1, 1, *size), x.shape, strict=True)
        ]
        values = x[tuple(spans)]
        if values.size:
            place = np.unravel_index(values.argmax(), values.shape)
            gradient[tuple(span.start + at for span, at in zip(spans, place, strict=True))] += d_out[window]
    return gradient


@each("native", ["0", "1"])
def test_a_window_in_the_padding_passes_its_gradient_to_nobody(native: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLUID_NATIVE", native)
    monkeypatch.setattr(plan, "_FEWEST", 1)
    draws = np.random.default_rng(0)
    for number, (extents, size, stride, pad) in enumerate(GEOMETRIES):
        x = fluid.data(f"x{number}", [2, 3, *extents])
        x.stop_gradient = False
        out = layers.pool2d(x, list(size), "max", list(stride), list(pad), ceil_mode=True)
        d_out = fluid.data(f"d{number}", out.shape)
        (d_x,) = fluid.gradients([out], [x], [d_out])
        arrays = [draws.standard_normal(shape, np.float32) for shape in (x.shape, out.shape)]
        feed = dict(zip((x.name, d_out.name), arrays, strict=True))
        (result,) = fluid.Executor().run(feed=feed, fetch_list=[d_x])
        np.testing.assert_allclose(result, expected_gradient(*arrays, size, stride, pad), 1e-6, 1e-6, err_msg=str(extents))


@each("native", ["0", "1"])
@each("axis", [1, 3])
def test_of_maxima_without_a_greatest_number_the_first_nan_or_element_gets_the_gradient(
    axis: int, native: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FLUID_NATIVE", native)
    monkeypatch.setattr(plan, "_FEWEST", 1)
    draws = np.random.default_rng(0)
    groups = draws.choice([np.nan, -np.inf, 1.0, 2.0], (2, 5, 4, 40, 3)).astype("float32")  # [N, groups, rows, columns, members]
    order, back = ((0, 1, 4, 2, 3), (0, 1, 3, 4, 2)) if axis == 1 else ((0, 2, 3, 1, 4), (0, 3, 1, 2, 4))
    images = groups.transpose(order)
    images = images.reshape((2, 15, 4, 40) if axis == 1 else (2, 4, 40, 15))
    x = fluid.data("x", list(images.shape))
    x.stop_gradient = False
    gradients = fluid.gradients([layers.reduce_sum(layers.maxout(x, 3, axis=axis))], [x])
    (found,) = fluid.Executor().run(feed={"x": images}, fetch_list=gradients)
    expected = np.arange(3) == groups.argmax(-1)[..., None]
    np.testing.assert_array_equal(found.reshape(groups.transpose(order).shape).transpose(back), expected)


OVERLAPPING = [  # extents, size of windows, stride, padding
    ((6, 8), 2, 2, 0),
    ((5, 7), 2, 2, 0),
    ((7, 8), 3, 2, 1),
    ((5, 6), 3, 1, 1),
    ((9, 9), 5, 2, 2),
    ((9, 9), 6, 6, 1),
]


@each("native", ["0", "1"])
@each("extents, size, stride, pad", OVERLAPPING)
@each("dtype", ["float32", "float64"])
def test_special_numbers_pass_max_pools(
    extents: tuple[int, int],
    size: int,
    stride: int,
    pad: int,
    dtype: str,
    native: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A NaN gets the gradient of its windows, an infinite gradient goes to one element alone, and windows may hold only -inf."""
    monkeypatch.setenv("FLUID_NATIVE", native)
    monkeypatch.setattr(plan, "_FEWEST", 1)
    x = fluid.data("x", [2, 3, *extents], dtype)
    x.stop_gradient = False
    out = layers.pool2d(x, size, "max", stride, pad)
    d_out = fluid.data("d", out.shape, dtype)
    fetches = [out, *fluid.gradients([out], [x], [d_out])]
    draws = np.random.default_rng(0)
    plain, infinite = (np.ones(out.shape, dtype), draws.choice([1.0, np.inf, np.nan], out.shape).astype(dtype))
    numbers = draws.choice([1.0, 2.0, 3.0], x.shape).astype(dtype)
    with_nan = draws.choice([np.nan, np.inf, 1.0, 2.0, 3.0], x.shape).astype(dtype)
    for values, gradient in ((with_nan, plain), (numbers, infinite), (np.full(x.shape, -np.inf, dtype), plain)):
        pooled, found = fluid.Executor().run(feed={"x": values, "d": gradient}, fetch_list=fetches)
        expected = expected_gradient(values, gradient, (size, size), (stride, stride), (pad, pad))
        np.testing.assert_array_equal(found, expected)
        if np.isneginf(values).all():
            assert np.isneginf(pooled).all()
