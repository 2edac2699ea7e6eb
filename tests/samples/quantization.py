"""Samples of `fluid.ops.quantization`: values. Its gradients are no derivatives, so test_quantization.py has those."""

from __future__ import annotations

from typing import Any

import numpy as np

from .base import Data, Sample, add, structural
from .conv import convolved

data = Data("quantization")

structural("test_quantization.py", "fake_quantize_abs_max", "fake_quantize_dequantize_abs_max", "moving_average_abs_max_scale")
structural("test_quantization.py", "fake_quantize_moving_average_abs_max", "fake_quantize_dequantize_moving_average_abs_max")
structural("test_quantization.py", "fake_channel_wise_quantize_abs_max", "fake_channel_wise_quantize_dequantize_abs_max")
structural("test_quantization.py", "fake_quantize_range_abs_max", "quantize_linear")


def rounded(x: Any, round_type: int) -> Any:
    return np.rint(x) if round_type == 0 else np.sign(x) * np.floor(np.abs(x) + 0.5)


def quantized(X: Any, scale: Any, bit_length: int = 8, round_type: int = 1, back: bool = False) -> Any:
    """The scale broadcasts with X."""
    most = 2 ** (bit_length - 1) - 1
    out = np.clip(rounded(X * most / np.maximum(scale, 1e-30) * (scale > 0), round_type), -most - (round_type == 0), most)
    return (out * scale / most if back else out).astype(X.dtype)


def measured(X: Any, axis: int | None = None) -> Any:
    axes = None if axis is None else tuple(other for other in range(X.ndim) if other != axis)
    return np.abs(X).max(axes, keepdims=True)


def whole(back: bool) -> Any:
    def reference(X: Any, **attrs: Any) -> Any:
        scale = measured(X)
        return {"Out": quantized(X, scale, back=back, **attrs), "OutScale": scale.reshape(1)}

    return reference


def by_channel(back: bool) -> Any:
    def reference(X: Any, quant_axis: int = 0, is_test: bool = False, **attrs: Any) -> Any:
        scale = measured(X, quant_axis)
        return {"Out": quantized(X, scale, back=back, **attrs), "OutScale": scale.reshape(-1)}

    return reference


X = data(3, 2, 4, low=-3.0, high=3.0)
HALVES = np.arange(-7, 8) / 2
for name, reference in (("fake_quantize_abs_max", whole(False)), ("fake_quantize_dequantize_abs_max", whole(True))):
    for attrs in ({}, {"bit_length": 4}, {"bit_length": 5, "round_type": 0}):
        add(name, Sample({"X": X}, attrs, reference, orders=0))
    add(name, Sample({"X": HALVES}, {"bit_length": 4}, reference, orders=0))
    add(name, Sample({"X": np.zeros((2, 3))}, {}, reference, orders=0))
for name, reference in (
    ("fake_channel_wise_quantize_abs_max", by_channel(False)),
    ("fake_channel_wise_quantize_dequantize_abs_max", by_channel(True)),
):
    for attrs in ({}, {"bit_length": 4, "quant_axis": 1}):
        add(name, Sample({"X": X}, attrs, reference, orders=0))


def averaged(back: bool) -> Any:
    def reference(X: Any, InScale: Any, InAccum: Any = 0.0, InState: Any = 0.0, moving_rate: float = 0.9,
                  is_test: bool = False, **attrs: Any) -> Any:  # fmt: skip
        accumulated, count = moving_rate * InAccum + np.abs(X).max(), moving_rate * InState + 1
        scale = InScale if is_test else accumulated / count
        states = (InAccum, InState) if is_test else (accumulated, count)
        return {"Out": quantized(X, scale, back=back, **attrs), "OutScale": scale, "OutAccum": states[0] + 0 * scale,
                "OutState": states[1] + 0 * scale}  # fmt: skip

    return reference


STATES = {"InAccum": np.array([1.5]), "InState": np.array([2.25])}
for name, reference in (
    ("fake_quantize_moving_average_abs_max", averaged(False)),
    ("fake_quantize_dequantize_moving_average_abs_max", averaged(True)),
):
    for attrs in ({}, {"moving_rate": 0.5, "bit_length": 6, "round_type": 0}, {"is_test": True}):
        add(name, Sample({"X": X, "InScale": np.array([1.75]), **STATES}, attrs, reference, orders=0))
    add(name, Sample({"X": X, "InScale": np.array([1.75])}, {"is_test": True}, reference, orders=0))


def observed(X: Any, InAccum: Any = 0.0, InState: Any = 1e-30, **attrs: Any) -> Any:
    if attrs.get("is_test"):
        accumulated, count = np.reshape(InAccum, 1), np.reshape(InState, 1)
    else:
        accumulated, count = 0.9 * InAccum + np.abs(X).max(), 0.9 * InState + 1
    scale = (accumulated / count).astype(X.dtype)
    return {
        "Out": X,
        "OutScale": scale,
        "OutState": (count * (count > 1e-20)).astype(X.dtype),
        "OutAccum": accumulated.astype(X.dtype),
    }


for inputs, attrs in (({"X": X, **STATES}, {}), ({"X": X, **STATES}, {"is_test": True}), ({"X": X}, {"is_test": True})):
    add("moving_average_abs_max_scale", Sample(inputs, attrs, observed, orders=0))


def in_first_window(X: Any, InScale: Any, Iter: Any = 0, window_size: int = 10000, is_test: bool = False, **attrs: Any) -> Any:
    """Of the batch after which the greatest scale is measured in it, or the former one."""
    scale = InScale if is_test else np.maximum(InScale, np.abs(X).max())
    found = {"Out": quantized(X, scale, **attrs), "OutScale": scale}
    return found if is_test else {**found, "OutScales": np.eye(1, window_size, dtype=X.dtype)[0] * np.abs(X).max()}


for scale in (0.5, 4.0):
    inputs = {"X": X, "InScale": np.array([scale]), "Iter": np.array([0])}
    add("fake_quantize_range_abs_max", Sample(inputs, {"window_size": 3}, in_first_window, orders=0))


# ---------------------------------------------------------------------------------------------------------- dequantize
def dequantized(X: Any, Scale: Any, max_range: float) -> Any:
    return X * Scale / max_range


add("fake_dequantize_max_abs", Sample({"X": X, "Scale": np.array([1.75])}, {"max_range": 127.0}, dequantized))


def dequantized_by_channel(X: Any, Scales: Any, quant_bits: Any = (8,), quant_axis: int = 0, x_num_col_dims: int = 1) -> Any:
    axis = quant_axis if len(Scales) == 1 else x_num_col_dims
    out = np.moveaxis(np.moveaxis(X, axis, -1) * Scales[0], -1, axis) / (2 ** (quant_bits[0] - 1) - 1)
    return out if len(Scales) == 1 else out * Scales[1] / (2 ** (quant_bits[1] - 1) - 1)


for scales, attrs in (
    ([data(3)], {}),
    ([data(2)], {"quant_axis": 1, "quant_bits": [5]}),
    ([data(2), data(1)], {"quant_bits": [8, 4]}),
    ([data(4), data(1)], {"quant_bits": [8, 8], "x_num_col_dims": 2}),
):
    add("fake_channel_wise_dequantize_max_abs", Sample({"X": X, "Scales": scales}, attrs, dequantized_by_channel))


# ------------------------------------------------------------------------------------------------------ of exported models
def spread(Scale: Any, X: Any, axis: int) -> Any:
    return Scale if axis < 0 else Scale.reshape([-1 if each == axis else 1 for each in range(X.ndim)])


def linear(X: Any, Scale: Any, ZeroPoint: Any, InAccum: Any = None, InState: Any = None, quant_axis: int = 0,
           is_test: bool = True, only_observer: bool = False, round_type: int = 0, bit_length: int = 8) -> Any:  # fmt: skip
    found = {}
    if not is_test and quant_axis < 0:
        found = {"OutAccum": 0.9 * InAccum + np.abs(X).max(), "OutState": 0.9 * InState + 1}
        Scale = found["OutAccum"] / found["OutState"]
    elif not is_test:
        Scale = measured(X, quant_axis).reshape(-1)
    y = X if only_observer else quantized(X, spread(Scale, X, quant_axis), bit_length, round_type)
    return {"Y": y, "OutScale": Scale, **found}


def linear_back(X: Any, Scale: Any, ZeroPoint: Any, quant_axis: int = 0, bit_length: int = 8, only_observer: bool = False) -> Any:
    y = X if only_observer else X * spread(Scale, X, quant_axis) / (2 ** (bit_length - 1) - 1)
    return y.astype(Scale.dtype)


ONE, EACH = {"Scale": np.array([1.5]), "ZeroPoint": np.zeros(1)}, {"Scale": np.array([1.5, 2.5]), "ZeroPoint": np.zeros(2)}
for inputs, attrs in (
    (ONE, {"quant_axis": -1}),
    (ONE, {"quant_axis": -1, "only_observer": True}),
    (EACH, {"quant_axis": 1, "bit_length": 4, "round_type": 1}),
    ({**ONE, **STATES}, {"quant_axis": -1, "is_test": False}),
    (EACH, {"quant_axis": 1, "is_test": False}),
):
    add("quantize_linear", Sample({"X": X, **inputs}, attrs, linear, orders=0))
for inputs, attrs in ((ONE, {"quant_axis": -1}), (EACH, {"quant_axis": 1}), (ONE, {"quant_axis": -1, "only_observer": True})):
    add("dequantize_linear", Sample({"X": X, **inputs}, attrs, linear_back))
add("dequantize_linear", Sample({"X": data.ints(3, 2, low=-128, high=128, dtype="int8"), **EACH}, {"quant_axis": 1}, linear_back))


# --------------------------------------------------------------------------------------------- scales and zero points
structural("test_quantization.py", "fake_quantize_affine")


def through_integers(
    X: Any, Scale: Any, ZeroPoint: Any = 0, quant_axis: int = -1, quant_min: int = -128, quant_max: int = 127
) -> Any:
    scale, zero = (spread(np.asarray(part), X, quant_axis) for part in (Scale, ZeroPoint))
    return (((np.clip(np.rint(X / scale) + zero, quant_min, quant_max)) - zero) * scale).astype(X.dtype)


for inputs, attrs in (
    ({"Scale": np.array([0.1])}, {}),
    ({"Scale": np.array([0.02]), "ZeroPoint": np.array([130], "uint8")}, {"quant_min": 0, "quant_max": 255}),
    (
        {"Scale": np.array([0.5, 0.25]), "ZeroPoint": np.array([-3, 5], "int8")},
        {"quant_axis": 1, "quant_min": -8, "quant_max": 7},
    ),
):
    add("fake_quantize_affine", Sample({"X": X, **inputs}, attrs, through_integers, orders=0))


def by_range(X: Any) -> Any:
    low, high = min(X.min(), 0), max(X.max(), 0)
    scale = X.dtype.type((high - low) / 255 or 1)
    return through_integers(X, scale, np.rint(-low / scale), quant_min=0, quant_max=255)


structural("test_quantization.py", "fake_quantize_by_range")
for value in (X, np.abs(X), -np.abs(X), np.zeros((2, 3))):
    add("fake_quantize_by_range", Sample({"X": value}, {}, by_range, orders=0))


def product(X: Any, Y: Any, XZeroPoint: Any = 0, YZeroPoint: Any = 0) -> Any:
    return (X.astype("int32") - XZeroPoint) @ (Y.astype("int32") - YZeroPoint)


LEFT, RIGHT = data.ints(2, 3, 5, high=256, dtype="uint8"), data.ints(5, 4, low=-128, high=128, dtype="int8")
POINTS = {"XZeroPoint": data.ints(3, 1, high=256, dtype="uint8"), "YZeroPoint": data.ints(4, low=-128, high=128, dtype="int8")}
for inputs in ({}, POINTS, {"XZeroPoint": np.array(7, "uint8")}):
    add("matmul_integer", Sample({"X": LEFT, "Y": RIGHT, **inputs}, {}, product, orders=0))
add("matmul_integer", Sample({"X": np.full((1, 70), 255, "uint8"), "Y": np.full((70, 2), -128, "int8")}, {}, product, orders=0))


def product_by_range(x: Any, weight: Any, scale: Any, zero: Any) -> Any:
    low, high = min(x.min(), 0), max(x.max(), 0)
    step = x.dtype.type((high - low) / 255 or 1)
    zero_of_x = np.rint(-low / step)
    levels = np.clip(np.rint(x / step) + zero_of_x, 0, 255).astype("int32") - int(zero_of_x)
    return (levels @ (weight.astype("int32") - zero)).astype(x.dtype) * (step * scale)


def sigmoid(x: Any) -> Any:
    return 1 / (1 + np.exp(-x))


def quantized_lstm(
    Input: Any, InitH: Any, InitC: Any, WeightX: Any, WeightH: Any, ScaleX: Any, ScaleH: Any,
    ZeroPointX: Any = 0, ZeroPointH: Any = 0, Bias: Any = 0, SequenceLength: Any = None, is_reverse: bool = False,
) -> Any:  # fmt: skip
    steps, batch, _ = Input.shape
    lengths = np.full(batch, steps) if SequenceLength is None else SequenceLength
    read, h, c, out = InitH, InitH, InitC, np.zeros((steps, *InitH.shape), Input.dtype)
    coming = product_by_range(Input[: lengths.max()], WeightX, ScaleX, ZeroPointX) + Bias
    for step in range(len(coming))[:: -1 if is_reverse else 1]:
        i, o, forget, new = np.split(coming[step] + product_by_range(read, WeightH, ScaleH, ZeroPointH), 4, -1)
        cell = sigmoid(forget) * c + sigmoid(i) * np.tanh(new)
        within = step < lengths[:, None]
        read = out[step] = np.where(within, sigmoid(o) * np.tanh(cell), 0)
        h, c = np.where(within, read, h), np.where(within, cell, c)
    return {"Out": out, "LastH": h, "LastC": c}


def lstm_inputs(dtype: str, **inputs: Any) -> dict[str, Any]:
    low, high = (-128, 128) if dtype == "int8" else (0, 256)
    sizes = {"WeightX": (5, 12), "WeightH": (3, 12)}
    weights = {slot: data.ints(*shape, low=low, high=high, dtype=dtype) for slot, shape in sizes.items()}
    states, scales = {"InitH": data(4, 3), "InitC": data(4, 3)}, {"ScaleX": np.array([0.01]), "ScaleH": np.array([0.02])}
    return {"Input": data(6, 4, 5, low=-2.0), **states, **weights, **scales, **inputs}


CENTER = np.array([128], "uint8")
for inputs, attrs in (
    (lstm_inputs("int8"), {}),
    (lstm_inputs("int8", Bias=data(12), ScaleX=data(12, low=0.005, high=0.02)), {"is_reverse": True}),
    (lstm_inputs("uint8", ZeroPointX=CENTER, ZeroPointH=CENTER), {}),
    (lstm_inputs("int8", SequenceLength=np.array([5, 1, 4, 2], "int32"), ZeroPointX=np.array([3], "int8")), {}),
    (lstm_inputs("int8", InitH=np.zeros((4, 3)), SequenceLength=np.array([6, 1, 4, 2], "int64")), {"is_reverse": True}),
):
    add("dynamic_quantize_lstm", Sample(inputs, attrs, quantized_lstm, orders=0))


# ------------------------------------------------------------------------------------------- integers, as files hold them
def bytes_of(Input: Any, is_negative_input: bool = False, Scale: float = 1.0, Shift: float = 0.0) -> Any:
    low, high, dtype = (-128, 127, np.int8) if is_negative_input else (0, 255, np.uint8)
    return np.clip(np.rint(Input * Scale + Shift), low, high).astype(dtype)


for attrs in ({"Scale": 40.0, "Shift": 100.0}, {"Scale": 50.0, "is_negative_input": True}):
    add("quantize", Sample({"Input": X}, attrs, bytes_of, orders=0))
BYTES = data.ints(3, 4, low=-128, high=128, dtype="int8")
add(
    "dequantize", Sample({"Input": BYTES}, {"Scale": 30.0, "Shift": 2.0}, lambda Input, **_: ((Input - 2) / 30).astype("float32"))
)
scaled = Sample(
    {"X": BYTES, "Scale": data(1)}, {"max_range": 127.0}, lambda X, Scale, max_range: (X * Scale / max_range).astype(Scale.dtype)
)
add("dequantize_abs_max", scaled)
logs = Sample(
    {"X": BYTES, "Dict": data(128)},
    {},
    lambda X, Dict: np.where(X < 0, -Dict[(X.astype(int) + 128) % 128], Dict[X.astype(int) % 128]),
    orders=0,
)
add("dequantize_log", logs)


def unpacked(W: Any, Ids: Any, padding_idx: int = -1) -> Any:
    out = np.zeros((len(Ids), 8), W.dtype)
    for row, number in enumerate(Ids.reshape(-1)):
        if number != padding_idx:
            least, greatest = W[number, :2]
            out[row] = least + np.frombuffer(W[number, 2:].tobytes(), np.uint8) * (greatest - least) / 256
    return out


packed = np.concatenate([data(5, 2), data.ints(5, 8, high=256, dtype="uint8").view(np.float32)], 1).astype(np.float32)
for attrs in ({}, {"padding_idx": 3}):
    sample = Sample({"W": packed, "Ids": np.array([[3], [0], [4]])}, attrs, unpacked, dtypes=["float32"], orders=0)
    add("lookup_table_dequant", sample)


# -------------------------------------------------------------------------------------------- convolutions of integers
def convolution(Input: Any, Filter: Any, InputZeroPoint: Any = 0, FilterZeroPoint: Any = 0, **attrs: Any) -> Any:
    return convolved(Input.astype("int32") - InputZeroPoint, Filter.astype("int32") - FilterZeroPoint, **attrs)


IMAGE, FILTER = data.ints(2, 4, 5, 6, high=256, dtype="uint8"), data.ints(6, 2, 3, 2, low=-128, high=128, dtype="int8")
ZEROS = {"InputZeroPoint": np.array([9], "uint8"), "FilterZeroPoint": data.ints(6, 1, 1, 1, low=-128, high=128, dtype="int8")}
for inputs, attrs in (
    ({}, {"groups": 2}),
    (ZEROS, {"groups": 2, "paddings": [1, 2], "strides": [2, 1]}),
    ({"InputZeroPoint": np.array(200, "uint8")}, {"groups": 2, "paddings": [0, 1, 2, 0], "dilations": [1, 2]}),
):
    add("conv2d_integer", Sample({"Input": IMAGE, "Filter": FILTER, **inputs}, attrs, convolution, orders=0))
