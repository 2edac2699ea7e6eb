"""Slices with a stride: every sign of start, end and stride, over extents that are known and that are not, static and eager."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest
from checks import each, some

import fluid
from fluid import dygraph, layers
from fluid.extend import ops
from fluid.ir.program import Program

FAR = 2**31 - 1
BOUNDS = (-FAR - 1, -6, -4, -3, -1, 0, 1, 3, 4, 6, FAR)
STRIDES = (-3, -2, -1, 1, 2, 3)
EXTENTS = (4, 1)


def part(start: int, end: int, stride: int) -> slice:
    """As Python's, but that Paddle writes ``x[start::-1]`` as from `start` to -1 by -1."""
    return slice(start, None, stride) if stride < 0 and end == -1 else slice(start, end, stride)


def bounds(start: int, end: int, stride: int, strides: str = "strides") -> dict[str, list[int]]:
    return {"axes": [1], "starts": [start], "ends": [end], strides: [stride]}


@each("stride", STRIDES)
@each("extents", [*([extent] for extent in EXTENTS), EXTENTS], ids=[*map(str, EXTENTS), "unknown"])
def test_strided_slice(extents: list[int], stride: int) -> None:
    """Values, shapes told beforehand, and gradients, of one program with every pair of bounds."""
    program = Program()
    known = len(extents) == 1
    pairs = list(product(BOUNDS, BOUNDS))
    with fluid.program_guard(program, Program()):
        x = fluid.data("x", [2, extents[0] if known else -1], dtype="float64")
        x.stop_gradient = False
        outs = [layers.strided_slice(x, **bounds(start, end, stride)) for start, end in pairs]
        weights = [ops().fill_any_like(out, value=number + 1.0) for number, out in enumerate(outs)]
        (grad,) = fluid.gradients(outs, x, weights)
    for extent in extents:
        value = np.arange(2.0 * extent).reshape(2, extent)
        *found, gradient = fluid.Executor().run(program, {"x": value}, [*outs, grad], scope=fluid.Scope())
        expected = np.zeros_like(value)
        for number, (start, end) in enumerate(pairs):
            cut = part(start, end, stride)
            np.testing.assert_array_equal(found[number], value[:, cut], err_msg=f"{start}:{end}:{stride}")
            assert outs[number].shape in ((2, value[:, cut].shape[1]), *([] if known else [(2, -1)]))
            expected[:, cut] += number + 1
        np.testing.assert_array_equal(gradient, expected)


@pytest.mark.random
@each("stride", some(STRIDES))
def test_eager_strided_slice(stride: int) -> None:
    """Values, and the gradient through all slices at once, each with a weight of its own."""
    for extent in EXTENTS:
        value = np.arange(2.0 * extent).reshape(2, extent)
        x, expected, outs, weights = dygraph.to_tensor(value, stop_gradient=False), np.zeros_like(value), [], []
        for number, (start, end) in enumerate(product(BOUNDS, BOUNDS)):
            out, cut = layers.strided_slice(x, **bounds(start, end, stride)), part(start, end, stride)
            np.testing.assert_array_equal(out.numpy(), value[:, cut])
            outs.append(out)
            weights.append(dygraph.to_tensor(np.full(out.shape, number + 1.0)))
            expected[:, cut] += number + 1
        (gradient,) = dygraph.grad(outs, [x], weights)
        np.testing.assert_array_equal(gradient.numpy(), expected)


@pytest.mark.slow
@each("step", STRIDES)
@each("known", [True, False], ids=["known", "unknown"])
def test_set_value(known: bool, step: int) -> None:
    """The op that Paddle writes for ``x[start:end:step] = v``, and its gradients."""
    for extent, start, end in product(EXTENTS, BOUNDS, BOUNDS):
        program, cut = Program(), part(start, end, step)
        value = np.arange(2.0 * extent).reshape(2, extent)
        put = 10.0 + np.arange(value[:, cut].size).reshape(value[:, cut].shape)
        block = program.global_block()
        with fluid.program_guard(program, Program()):
            x = fluid.data("x", [2, extent if known else -1], dtype="float64")
            v = fluid.data("v", [2, put.shape[1] if known else -1], dtype="float64")
            x.stop_gradient = v.stop_gradient = False
            out = block.create_var(name="out")
            attrs = {**bounds(start, end, step, "steps"), "dtype": int(x.dtype)}
            block.append_op("set_value", {"Input": x, "ValueTensor": v}, {"Out": out}, attrs)
            grads = fluid.gradients(layers.reduce_sum(out * out), [x, v])
        found: list[Any] = fluid.Executor().run(program, {"x": value, "v": put}, [out, *grads], scope=fluid.Scope())
        expected, untouched = value.copy(), 2 * value
        expected[:, cut], untouched[:, cut] = put, 0
        for one, other in zip(found, (expected, untouched, 2 * put), strict=True):
            np.testing.assert_array_equal(one, other, err_msg=f"{start}:{end}:{step}")


def test_parts_along_an_axis_that_is_fed_fill_the_whole() -> None:
    """With the axis known in a run alone, parts that left a remainder were cut silently."""
    x, axis = fluid.data("whole", [2, 5]), fluid.data("axis", [1], "int32")
    likes = [fluid.data("first", [2, 3]), fluid.data("second", [2, 1])]
    block = fluid.default_main_program().global_block()
    outs = [block.create_var(name=f"part{number}", dtype="float32") for number in range(2)]
    block.append_op("split_like", {"X": [x], "Like": likes, "AxisTensor": [axis]}, {"Out": outs}, {})
    feed = {"whole": np.zeros((2, 5), "float32"), "first": np.zeros((2, 3), "float32"), "second": np.zeros((2, 1), "float32")}
    with pytest.raises(fluid.errors.FluidError, match=r"parts \[2, 3\], \[2, 1\], joined along axis 1, give \[2, 4\] instead of"):
        fluid.Executor().run(feed={**feed, "axis": np.int32([1])}, fetch_list=outs)
