"""Halves in native code: read as halves, computed as floats, rounded where an op ends."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
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

RANDOM = np.random.default_rng(0)


def halves(*shape: int) -> Any:
    return RANDOM.standard_normal(shape).astype("float16")


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


def net() -> list[Variable]:
    x = fluid.data("x", [2, 6, 8, 8], "float16")
    convolved = op("conv2d", {"Input": x, "Filter": fluid.data("w", [8, 6, 3, 3], "float16")}, "Output", paddings=[1, 1])
    pooled = layers.pool2d(layers.relu(convolved), 2, pool_stride=2)
    rows = layers.reshape(pooled, [2, -1])
    product = op("matmul_v2", {"X": rows, "Y": fluid.data("v", [128, 20], "float16")})
    normal = op("layer_norm", {"X": product, "Scale": fluid.data("g", [20], "float16")}, "Y", begin_norm_axis=1)
    softmax = layers.softmax(layers.transpose(normal * 2.0 + product, [1, 0]))
    return [softmax, layers.reduce_mean(softmax, 1), layers.tanh(layers.cast(normal, "float32")), convolved]


FEED = {"x": halves(2, 6, 8, 8), "w": halves(8, 6, 3, 3), "v": halves(128, 20), "g": halves(20)}


def test_a_net_of_halves_is_native_and_as_on_numpy() -> None:
    assert ops_on_numpy(net, FEED) == "none"
    native, plain = (results_of(net, FEED, native=native) for native in (True, False))
    for name, value in plain.items():
        assert native[name].dtype == value.dtype
        off = np.abs(native[name].astype("float32") - value.astype("float32"))
        assert off.max() <= 2.0**-9 * np.abs(value.astype("float32")).max(), name
        assert (off <= 1e-6).mean() > 0.7, name


def test_sums_of_halves_are_floats() -> None:
    """In halves, a sum of ones stops at 2048."""

    def build() -> list[Variable]:
        x = fluid.data("x", [3, 5000], "float16")
        return [op("matmul_v2", {"X": x, "Y": fluid.data("y", [5000, 2], "float16")}), layers.reduce_sum(x, 1)]

    results = results_of(build, {"x": np.ones((3, 5000), "f2"), "y": np.ones((5000, 2), "f2")}, native=True)
    assert all((value == 5000).all() for value in results.values())


def test_each_op_rounds() -> None:
    """2048 + 1 is 2048, also where both ops are in one kernel."""

    def build() -> list[Variable]:
        x = fluid.data("x", [40], "float16")
        return [(x + 1.0) + 1.0]

    assert (results_of(build, {"x": np.full(40, 2048, "f2")}, native=True)["fetch 0"] == 2048).all()


@pytest.mark.parametrize("is_sparse", [False, True])
def test_halves_train(is_sparse: bool) -> None:
    def build() -> list[Variable]:
        ids = fluid.data("ids", [6, 1], "int64")
        rows = layers.embedding(ids, [9, 4], is_sparse=is_sparse, dtype="float16")
        weight = layers.create_parameter([4, 3], "float16")
        loss = layers.reduce_mean(layers.square(op("matmul_v2", {"X": layers.reshape(rows, [6, 4]), "Y": weight})))
        fluid.optimizer.SGD(0.5).minimize(loss)
        return [loss]

    feed = {"ids": np.array([[1], [2], [1], [0], [8], [8]])}
    native, plain = (results_of(build, feed, native=native, runs=3) for native in (True, False))
    for name, value in plain.items():
        np.testing.assert_allclose(native[name].astype("f4"), value.astype("f4"), rtol=4e-3, atol=2e-3, err_msg=name)
