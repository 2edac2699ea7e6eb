"""Quantization-aware ops: Paddle's numbers, gradients that go straight through, and training with them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from checks import each
from paddle_numbers import PaddleNumbers

import fluid
from fluid import layers
from fluid.backward import gradients
from fluid.errors import AttributeRuleError, InferenceError
from fluid.executor.runtime.scope import Scope
from fluid.ir.program import Variable

PADDLE = PaddleNumbers("paddle_quantization.npz")


@each("number", range(len(PADDLE.records)), ids=PADDLE.names)
def test_numbers_of_paddle(number: int) -> None:
    PADDLE.check(number)


def op(op_type: str, inputs: dict[str, Any], outputs: list[str], **attrs: Any) -> list[Variable]:
    block = fluid.default_main_program().current_block()
    made = {slot: block.create_var(name=fluid.unique_name.generate(slot)) for slot in outputs}
    block.append_op(op_type, inputs, made, attrs)
    return list(made.values())


def number(value: float, dtype: str = "float32") -> Variable:
    return layers.fill_constant([1], dtype, value)


STATES = {"InScale": 1.5, "InAccum": 2.0, "InState": 1.5}


def quantized(op_type: str, x: Variable) -> tuple[Variable, Variable | None]:
    """The output of an op, and the scale to dequantize it with, if it is not dequantized yet."""
    inputs: dict[str, Any] = {"X": x}
    if "moving_average" in op_type:
        inputs |= {slot: number(value) for slot, value in STATES.items() if slot != "InScale" or "scale" not in op_type}
    if "range" in op_type:
        inputs |= {"InScale": number(1.5), "Iter": number(0, "int64")}
    if "linear" in op_type:
        inputs |= {"Scale": number(1.5), "ZeroPoint": number(0.0)}
        return op(op_type, inputs, ["Y"], quant_axis=-1)[0], inputs["Scale"]
    out, scale = op(op_type, inputs, ["Out", "OutScale"])
    scale.stop_gradient = True
    return out, None if "dequantize" in op_type or "scale" in op_type else scale


BY_NAME = [
    *("fake_quantize_abs_max", "fake_quantize_range_abs_max", "fake_quantize_moving_average_abs_max"),
    *("fake_quantize_dequantize_abs_max", "fake_quantize_dequantize_moving_average_abs_max", "moving_average_abs_max_scale"),
    *("fake_channel_wise_quantize_abs_max", "fake_channel_wise_quantize_dequantize_abs_max", "quantize_linear"),
]


@each("op_type", BY_NAME)
def test_gradients_go_straight_through(op_type: str) -> None:
    """The gradient of quantizing and dequantizing, in one op or two, is the identity; the second derivative is zero."""
    x = layers.data("x", [3, 4], append_batch_size=False, stop_gradient=False)
    out, scale = quantized(op_type, x)
    if scale is not None and "channel" in op_type:
        (out,) = op("fake_channel_wise_dequantize_max_abs", {"X": out, "Scales": [scale]}, ["Out"])
    elif scale is not None:
        (out,) = op("fake_dequantize_max_abs", {"X": out, "Scale": scale}, ["Out"], max_range=127.0)
    weight = layers.data("weight", [3, 4], append_batch_size=False, stop_gradient=False)
    (grad,) = gradients([out], [x], [weight])
    (again,) = gradients([grad], [weight])
    feed = {"x": np.linspace(-3, 3, 12, dtype="float32").reshape(3, 4), "weight": np.arange(12, dtype="float32").reshape(3, 4)}
    values = fluid.Executor().run(feed=feed, fetch_list=[out, grad, again])
    np.testing.assert_allclose(values[0], np.clip(feed["x"], -3, 3) if scale is None else values[0], atol=1.6)
    np.testing.assert_allclose(values[1], feed["weight"], 1e-6)
    np.testing.assert_allclose(values[2], np.ones((3, 4)), 1e-6)


def test_a_quantized_network_trains() -> None:
    """Four bits for weights and activations, whose scale is a moving average that the program keeps."""
    x, y = layers.data("x", [6]), layers.data("y", [1])
    state = {name: layers.create_global_var([1], 1.0, "float32", persistable=True, name=name) for name in STATES}
    block = fluid.default_main_program().global_block()
    held = block.create_var(name="held")
    outputs = {"Out": held, **{slot.replace("In", "Out"): var for slot, var in state.items()}}
    name = "fake_quantize_dequantize_moving_average_abs_max"
    block.append_op(name, {"X": x, **state}, outputs, {"bit_length": 4})
    weight = layers.create_parameter([6, 1], "float32", name="weight")
    rounded, _ = op(
        "fake_channel_wise_quantize_dequantize_abs_max", {"X": weight}, ["Out", "OutScale"], bit_length=4, quant_axis=1
    )
    loss = layers.mean(layers.square_error_cost(layers.matmul(held, rounded), y))
    fluid.optimizer.SGD(0.05).minimize(loss)
    exe, rng = fluid.Executor(), np.random.default_rng(0)
    exe.run(fluid.default_startup_program())
    inputs = rng.uniform(-2, 2, (64, 6)).astype("float32")
    feed = {"x": inputs, "y": inputs @ np.linspace(-1, 1, 6, dtype="float32")[:, None]}
    losses = [exe.run(feed=feed, fetch_list=[loss])[0].item() for _ in range(60)]
    assert losses[-1] < losses[0] / 10
    accumulated = count = 1.0
    for _ in range(60):
        accumulated, count = 0.9 * accumulated + np.abs(inputs).max(), 0.9 * count + 1
    scope = fluid.global_scope()
    values = [np.array(scope.find_var(name).get_tensor()).item() for name in ("InAccum", "InState", "InScale")]
    np.testing.assert_allclose(values, [accumulated, count, accumulated / count], 1e-5)


@each("persistable, interpreted", [(True, False), (False, False), (True, True)])
def test_the_window_of_a_range(persistable: bool, interpreted: bool) -> None:
    """The scale is the greatest of the last three batches."""
    program = fluid.default_main_program()
    block = program.global_block()
    x, batch = layers.data("x", [4]), layers.data("batch", [1], dtype="int64", append_batch_size=False)
    scale = block.create_var(name="scale", shape=[1], dtype="float32", persistable=True)
    window = block.create_var(name="window", shape=[3], dtype="float32", persistable=True)
    inner = window
    if not persistable:
        inner = block.create_var(name="inner", shape=[3], dtype="float32")
        block.append_op("assign", {"X": window}, {"Out": inner})
    outputs = {"Out": block.create_var(name="out"), "OutScale": scale, "OutScales": inner}
    block.append_op("fake_quantize_range_abs_max", {"X": x, "InScale": scale, "Iter": batch}, outputs, {"window_size": 3})
    if not persistable:
        block.append_op("assign", {"X": inner}, {"Out": window})
    exe, scope = fluid.Executor(), Scope()
    scope.var("scale").get_tensor().set(np.zeros(1, "float32"))
    if not persistable:
        scope.var("window").get_tensor().set(np.full(3, 9, "float32"))
    magnitudes = [1.0, 5.0, 2.0, 3.0, 1.0, 1.0, 0.5, 7.0]
    for number, most in enumerate(magnitudes):
        feed = {"x": np.array([[0.1, -most, most / 2, 0]], "float32"), "batch": np.array([number])}
        run = exe.interpret if interpreted else exe.run
        out, found, window_now = run(program, feed, ["out", "scale", "window"], scope=scope)
        expected = max(magnitudes[max(number - 2, 0) : number + 1])
        assert found.item() == expected, (number, found)
        np.testing.assert_allclose(out[0, 1], -np.floor(127 * most / expected + 0.5))
        last = magnitudes[max(number - 2, 0) : number + 1]
        assert sorted(window_now) == sorted([0.0] * (3 - len(last)) + last)


@each(
    ("op_type", "inputs", "attrs", "message"),
    [
        (
            "fake_quantize_moving_average_abs_max",
            {"InScale": [1]},
            {},
            "InAccum is missing: without is_test, the scale is a moving",
        ),
        (
            "fake_quantize_range_abs_max",
            {"InScale": [1]},
            {},
            "Iter is missing: without is_test, it tells the number of the batch",
        ),
        ("fake_dequantize_max_abs", {"Scale": [3]}, {"max_range": 1.0}, "Scale is .* should be one number"),
        (
            "fake_channel_wise_dequantize_max_abs",
            {"Scales": [3]},
            {},
            "first of Scales, .* should have a number for each element of",
        ),
        (
            "quantize_linear",
            {"Scale": [3], "ZeroPoint": [3]},
            {},
            "Scale .* should have a number for each element of axis 0 of X",
        ),
    ],
)
def test_refused(op_type: str, inputs: dict[str, list[int]], attrs: dict[str, Any], message: str) -> None:
    given = {slot: layers.data(slot, shape, append_batch_size=False) for slot, shape in {"X": [2, 4], **inputs}.items()}
    with pytest.raises(InferenceError, match=message):
        op(op_type, given, ["Y" if "linear" in op_type else "Out"], **attrs)


@each("name", ["quantize_linear", "fake_quantize_abs_max", "fake_channel_wise_dequantize_max_abs"])
def test_bits_are_as_many_as_an_integer_has(name: str) -> None:
    """A power of a number from a damaged file took half a second and 58 MiB."""
    x, scale = fluid.data("x", [3, 4]), number(1.0)
    said = {"quant_bits": [8, 2**31 - 1], "quant_axis": 0} if "dequantize" in name else {"bit_length": 2**31 - 1}
    slots: dict[str, Any] = {"X": x, "Scales": [scale, scale]} if "dequantize" in name else {"X": x, "Scale": scale}
    with pytest.raises(AttributeRuleError, match=r"2147483647.* is above 64, the most that is allowed"):
        op(name, {slot: value for slot, value in slots.items() if slot != "Scale" or name == "quantize_linear"}, ["Out"], **said)


def test_the_gradient_of_a_range_goes_through_within_it() -> None:
    x = fluid.data("x", [4])
    x.stop_gradient = False
    zero = layers.fill_constant([1], "uint8", 128)
    (out,) = op("fake_quantize_affine", {"X": x, "Scale": number(0.5), "ZeroPoint": zero}, ["Out"], quant_min=0, quant_max=255)
    (gradient,) = gradients([layers.reduce_sum(out * out)], [x])
    values, slopes = fluid.Executor().run(feed={"x": np.array([0.3, 0.8, 70, -65], "float32")}, fetch_list=[out, gradient])
    np.testing.assert_array_equal(values, [0.5, 1, 63.5, -64])
    np.testing.assert_array_equal(slopes, [1, 2, 0, 0])


def test_the_gradient_goes_through_a_range_that_is_measured() -> None:
    x = fluid.data("x", [4])
    x.stop_gradient = False
    (out,) = op("fake_quantize_by_range", {"X": x}, ["Out"])
    (gradient,) = gradients([layers.reduce_sum(out * out)], [x])
    values, slopes = fluid.Executor().run(feed={"x": np.array([0.3, -1.0, 1.55, 0.0049], "float32")}, fetch_list=[out, gradient])
    np.testing.assert_allclose(values, [0.3, -1, 1.55, 0], atol=1e-6)
    np.testing.assert_allclose(slopes, 2 * values, atol=1e-6)
