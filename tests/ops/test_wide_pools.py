"""Pools with windows as wide as their images: where maxima lie, and how many calls that takes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from checks import each, few_optimizations, fresh_programs

import fluid
from fluid import layers


def first_maxima(x: Any, size: int, stride: int, pad: int) -> tuple[Any, Any]:
    """The maximum of each window, and the place in its image of the first element that has it, row by row."""
    height, width = x.shape[2:]
    rows, columns = ((extent + 2 * pad - size) // stride + 1 for extent in (height, width))
    out, mask = np.empty((*x.shape[:2], rows, columns), x.dtype), np.empty((*x.shape[:2], rows, columns), np.int32)
    for row in range(rows):
        for column in range(columns):
            top, left = row * stride - pad, column * stride - pad
            bottom, right = min(top + size, height), min(left + size, width)
            top, left = max(top, 0), max(left, 0)
            window = x[:, :, top:bottom, left:right].reshape(*x.shape[:2], -1)
            first = window.argmax(2)
            out[:, :, row, column] = window.max(2)
            mask[:, :, row, column] = (top + first // (right - left)) * width + left + first % (right - left)
    return out, mask


def pooled(x: Any, size: int, stride: int, pad: int, place: Any = None) -> list[Any]:
    with fresh_programs():
        image = fluid.data("x", list(x.shape))
        image.stop_gradient = False
        block = fluid.default_main_program().global_block()
        out, mask = (block.create_var(name=name, dtype=dtype) for name, dtype in (("out", "float32"), ("mask", "int32")))
        attrs = {"ksize": [size, size], "strides": [stride, stride], "paddings": [pad, pad]}
        block.append_op("max_pool2d_with_index", {"X": [image]}, {"Out": [out], "Mask": [mask]}, attrs)
        (gradient,) = fluid.gradients([layers.reduce_sum(layers.square(out))], [image])
        return fluid.Executor(place).run(feed={"x": x}, fetch_list=[out, mask, gradient])


GEOMETRIES = [((2, 3, 7, 9), 2, 1, 0), ((2, 1, 12, 12), 12, 3, 5), ((1, 2, 9, 9), 5, 2, 2), ((3, 1, 30, 30), 28, 1, 13)]


@each("geometry", GEOMETRIES)
@each("has_ties", [False, True])
def test_first_maxima_of_each_window(geometry: tuple[Any, int, int, int], has_ties: bool) -> None:
    shape, *parameters = geometry
    x = np.random.default_rng(0).standard_normal(shape).astype("float32")
    x = np.round(x) if has_ties else x
    out, mask = first_maxima(x, *parameters)
    expected = np.zeros(x.size, "float32")
    places = np.arange(shape[0] * shape[1])[:, None] * (shape[2] * shape[3]) + mask.reshape(shape[0] * shape[1], -1)
    np.add.at(expected, places.reshape(-1), 2 * out.reshape(-1))
    for result, wanted in zip(pooled(x, *parameters), (out, mask, expected.reshape(shape)), strict=True):
        np.testing.assert_allclose(result, wanted, rtol=1e-5)


def test_xla_gets_a_program_that_grows_with_the_sides_of_a_window_and_not_with_its_area() -> None:
    """A window of 56 x 56 once took 3,136 slices of each kind, and gigabytes to compile."""
    pytest.importorskip("jax")
    lines, shape = {}, (2, 1, 30, 30)
    for size in (7, 28):
        with fresh_programs():
            image = fluid.data("x", shape)
            block = fluid.default_main_program().global_block()
            out, mask = (block.create_var(name=name, dtype=dtype) for name, dtype in (("out", "float32"), ("mask", "int32")))
            attrs = {"ksize": [size, size], "strides": [1, 1], "paddings": [size // 2 - 1] * 2}
            block.append_op("max_pool2d_with_index", {"X": [image]}, {"Out": [out], "Mask": [mask]}, attrs)
            feed = {"x": np.zeros(shape, "float32")}
            plan: Any = fluid.Executor(fluid.XLAPlace()).plan(feed=feed, fetch_list=[out, mask])
            lines[size] = plan.lowered().as_text().count("\n")
    assert lines[28] < 6 * lines[7]  # the area grows by 16
    x = np.random.default_rng(0).standard_normal(shape).astype("float32")
    with few_optimizations():
        results = pooled(x, 28, 1, 13, fluid.XLAPlace())
    for result, wanted in zip(results, first_maxima(x, 28, 1, 13), strict=False):
        np.testing.assert_allclose(result, wanted)
