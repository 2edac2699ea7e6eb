"""Halves in native code: read as halves, computed as floats, rounded where an op ends."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest
from beside_numpy import results_of
from harness import compiled
from test_complex_numbers import ops_on_numpy

import fluid
from fluid import layers
from fluid.executor.native import compiler
from fluid.executor.native.emitter import FLOAT, HALF, Function, Type, Value
from fluid.executor.native.kernel import Share
from fluid.ir.program import Variable
from fluid.values.bfloat16 import computable

RANDOM = np.random.default_rng(0)


HALVES = pytest.mark.parametrize("half", ["float16", "bfloat16"])


def halves(*shape: int) -> Any:
    return RANDOM.standard_normal(shape).astype("float16")


def fed(value: Any, half: str) -> Any:
    """Halves as they are fed: bfloat16, which numpy lacks, as float32."""
    return value.astype("float32") if half == "bfloat16" and value.dtype == np.float16 else value


def op(op_type: str, inputs: dict[str, Any], slot: str = "Out", **attrs: Any) -> Variable:
    block = fluid.default_main_program().current_block()
    out = block.create_var(name=fluid.unique_name.generate(op_type))
    block.append_op(op_type, inputs, {slot: out}, attrs)
    return out


def test_every_half_is_read_and_rounded_to_as_numpy_does() -> None:
    every = np.arange(1 << 16, dtype=np.uint16).view(np.float16)
    finite = every[np.isfinite(every)].astype("float32")
    edges = np.float32([65519, 65520, 1e9, -1e9])
    between = np.concatenate([finite, (finite[:-1] + finite[1:]) / 2, np.nextafter(finite, 1), edges])
    numbers = {"h": np.nan_to_num(every), "f": between, "i": np.arange(-70000, 70000, 7)}

    def build() -> list[Variable]:
        h, f, i = fluid.data("h", [1 << 16], "float16"), fluid.data("f", between.shape), fluid.data("i", [20000], "int64")
        return [layers.cast(h, "float32"), layers.cast(f, "float16"), layers.cast(i, "float16"), layers.cast(h, "float64")]

    with np.errstate(over="ignore"):
        native, plain = (results_of(build, numbers, native=native) for native in (True, False))
    for name, value in plain.items():
        assert native[name].dtype == value.dtype and native[name].tobytes() == value.tobytes(), name


def test_halves_without_an_instruction_for_them() -> None:
    every = np.arange(1 << 16, dtype=np.uint16).view(np.float16)
    finite = every[np.isfinite(every)].astype("float32")
    edges = np.float32([65519.996, 65520, 1e9, np.inf, np.nan, 2.0**-25, 2.0**-26])
    between = np.concatenate([finite, (finite[:-1] + finite[1:]) / 2, np.nextafter(finite, 1), edges, -edges])
    between = np.resize(between, -(-len(between) // 8) * 8)
    target = replace(compiler.host(), has_halves=False)

    def converted(array: Any, old: Type, new: Type, result: Any) -> Any:
        def body(f: Function, pointers: Sequence[Value], share: Share) -> None:
            def step(i: Value) -> None:
                f.store(f.convert(f.load(f.at(pointers[0], i, old), old.of(8)), new), f.at(pointers[1], i, new))

            f.loop(0, len(array), 8, [], step)

        return compiled(body, 2, target)([array, np.zeros(len(array), result)])[1]

    with np.errstate(over="ignore"):
        cases = [(every, converted(every, HALF, FLOAT, np.float32)), (between, converted(between, FLOAT, HALF, np.float16))]
        for array, result in cases:
            expected, is_nan = array.astype(result.dtype), np.isnan(array)
            assert result[~is_nan].tobytes() == expected[~is_nan].tobytes() and np.isnan(result[is_nan]).all()


def every_bfloat16() -> Any:
    with np.errstate(invalid="ignore"):
        return (np.arange(1 << 16, dtype=np.uint32) << 16).view(np.float32)


def test_every_bfloat16_is_read_and_rounded_to_as_numpy_does() -> None:
    """Denormals, infinities and NaN, too; numbers beyond the largest half become infinite."""
    every = every_bfloat16()
    ordered = np.sort(every[np.isfinite(every)])
    middle = ((ordered[:-1].astype("f8") + ordered[1:]) / 2).astype("f4")
    between = np.concatenate([middle, np.nextafter(middle, np.float32(1)), np.float32([3.4e38, -3.4e38, np.nan, np.inf, 1e-45])])
    numbers = {"h": every, "f": between, "i": np.arange(-70000, 70000, 7), "b": np.arange(40) % 3 == 0}

    def build() -> list[Variable]:
        h, f = fluid.data("h", [1 << 16], "bfloat16"), fluid.data("f", between.shape)
        i, b = fluid.data("i", [20000], "int64"), fluid.data("b", [40], "bool")
        rounded = [layers.cast(value, "bfloat16") for value in (f, i, b)]
        return [layers.cast(h, "float32"), layers.cast(h, "bool"), *[layers.cast(value, "float32") for value in rounded]]

    assert ops_on_numpy(build, numbers) == "none"
    native, plain = (results_of(build, numbers, native=native) for native in (True, False))
    for name, value in plain.items():
        np.testing.assert_array_equal(native[name], value, err_msg=name)
        assert native[name].dtype == value.dtype


def net(half: str) -> list[Variable]:
    x = fluid.data("x", [2, 6, 8, 8], half)
    convolved = op("conv2d", {"Input": x, "Filter": fluid.data("w", [8, 6, 3, 3], half)}, "Output", paddings=[1, 1])
    pooled = layers.pool2d(layers.relu(convolved), 2, pool_stride=2)
    rows = layers.reshape(pooled, [2, -1])
    product = op("matmul_v2", {"X": rows, "Y": fluid.data("v", [128, 20], half)})
    normal = op("layer_norm", {"X": product, "Scale": fluid.data("g", [20], half)}, "Y", begin_norm_axis=1)
    softmax = layers.softmax(layers.transpose(normal * 2.0 + product, [1, 0]))
    return [softmax, layers.reduce_mean(softmax, 1), layers.tanh(layers.cast(normal, "float32")), convolved]


STEP = {"float16": 2.0**-9, "bfloat16": 2.0**-6}
"""Twice the distance of neighbouring halves, as a part of them."""
FEED = {"x": halves(2, 6, 8, 8), "w": halves(8, 6, 3, 3), "v": halves(128, 20), "g": halves(20)}


@HALVES
def test_a_net_of_halves_is_native_and_as_on_numpy(half: str) -> None:
    feed = {name: fed(value, half) for name, value in FEED.items()}
    build = partial(net, half)
    assert ops_on_numpy(build, feed) == "none"
    native, plain = (results_of(build, feed, native=native) for native in (True, False))
    for name, value in plain.items():
        assert native[name].dtype == value.dtype
        off = np.abs(native[name].astype("float32") - value.astype("float32"))
        assert off.max() <= STEP[half] * np.abs(value.astype("float32")).max(), name
        assert (off <= 1e-6).mean() > 0.7, name


@HALVES
def test_sums_of_halves_are_floats(half: str) -> None:
    """In float16, a sum of ones stops at 2048, in bfloat16 at 256. 4096 is one of both."""

    def build() -> list[Variable]:
        x = fluid.data("x", [3, 4096], half)
        return [op("matmul_v2", {"X": x, "Y": fluid.data("y", [4096, 2], half)}), layers.reduce_sum(x, 1)]

    feed = {"x": fed(np.ones((3, 4096), "f2"), half), "y": fed(np.ones((4096, 2), "f2"), half)}
    results = results_of(build, feed, native=True)
    assert all((value == 4096).all() for value in results.values())


@HALVES
def test_each_op_rounds(half: str) -> None:
    """2048 + 1 is 2048 in float16, and 256 + 1 is 256 in bfloat16, also where both ops are in one kernel."""
    number = 2048 if half == "float16" else 256

    def build() -> list[Variable]:
        x = fluid.data("x", [40], half)
        return [(x + 1.0) + 1.0]

    results = results_of(build, {"x": fed(np.full(40, number, "f2"), half)}, native=True)
    assert (results["fetch 0"] == number).all()


@pytest.mark.parametrize(("half", "is_sparse"), [("float16", False), ("float16", True), ("bfloat16", False)])
def test_halves_train(half: str, is_sparse: bool) -> None:
    def build() -> list[Variable]:
        ids = fluid.data("ids", [6, 1], "int64")
        rows = layers.embedding(ids, [9, 4], is_sparse=is_sparse, dtype=half)
        weight = layers.create_parameter([4, 3], half)
        loss = layers.reduce_mean(layers.square(op("matmul_v2", {"X": layers.reshape(rows, [6, 4]), "Y": weight})))
        fluid.optimizer.SGD(0.5).minimize(loss)
        return [loss]

    feed = {"ids": np.array([[1], [2], [1], [0], [8], [8]])}
    native, plain = (results_of(build, feed, native=native, runs=3) for native in (True, False))
    for name, value in plain.items():
        of_native, of_numpy = (computable(array).astype("f4") for array in (native[name], value))
        np.testing.assert_allclose(of_native, of_numpy, rtol=2 * STEP[half], atol=STEP[half], err_msg=name)
