"""Write quantization."""

from __future__ import annotations

from typing import Any

import numpy as np

from fluid.ops.quantization import greatest, through_integers
from fluid.values.spec import Spec
from fluid.values.types import VarType

from .exporting import exports
from .graph import NotExported, OnnxGraph, OnnxTensor

_SMALLEST = 1e-30


def _along_axis(g: OnnxGraph, scale: OnnxTensor, ndim: int, axis: int) -> OnnxTensor:
    """A scale for each element of an axis; for axis -1, one number."""
    if axis < 0:
        return g.reshape(scale, [])
    return g.reshape(scale, [1] * axis + [-1] + [1] * (ndim - 1 - axis), (1,) * axis + (-1,) + (1,) * (ndim - 1 - axis))


def _magnitude(g: OnnxGraph, x: OnnxTensor, axis: int | None = None) -> OnnxTensor:
    """The greatest magnitude, of shape [1], or for each element of an axis."""
    axes = [place for place in range(x.ndim) if axis is None or place != axis % x.ndim]
    top = g.reduce("ReduceMax", g.unary("Abs", x), axes)
    return g.reshape(top, [1]) if axis is None else top


def _quantized(g: OnnxGraph, x: OnnxTensor, scale: OnnxTensor, attrs: dict[str, Any], dequantizes: bool = False) -> OnnxTensor:
    """Quantize x by a scale, and with `dequantizes` convert the integers back."""
    most = greatest(attrs["bit_length"])
    safe = g.binary("Max", scale, g.constant(_SMALLEST, scale.dtype))
    present = g.cast(g.binary("Greater", scale, g.number(0, scale)), x.dtype)
    factor = g.binary("Mul", g.binary("Div", g.number(most, x), g.cast(safe, x.dtype)), present)
    result = g.binary("Mul", x, factor)
    if attrs["round_type"] == 0:
        result = g.unary("Round", result)
        low = -most - 1
    else:
        half = np.nextafter(x.dtype.numpy.type(0.5), x.dtype.numpy.type(0))
        size = g.unary("Floor", g.binary("Add", g.unary("Abs", result), g.constant(half)))
        result = g.binary("Mul", g.unary("Sign", result), size)
        low = -most
    result = g.binary("Min", g.binary("Max", result, g.number(low, x)), g.number(most, x))
    if dequantizes:
        result = g.binary("Div", g.binary("Mul", result, scale), g.number(most, x))
    return result


def _quantize_by_maximum(dequantizes: bool) -> Any:
    """A function that writes quantization by the greatest magnitude of the input."""

    def quantize(g: OnnxGraph, X: OnnxTensor, attrs: dict[str, Any]) -> dict[str, OnnxTensor]:
        axis = attrs.get("quant_axis")
        scale = _magnitude(g, X, axis)
        axis_scale = _along_axis(g, scale, X.ndim, -1 if axis is None else axis % X.ndim)
        return {"Out": _quantized(g, X, axis_scale, attrs, dequantizes), "OutScale": scale}

    return quantize


exports("fake_quantize_abs_max", "fake_channel_wise_quantize_abs_max")(_quantize_by_maximum(False))
exports("fake_quantize_dequantize_abs_max", "fake_channel_wise_quantize_dequantize_abs_max")(_quantize_by_maximum(True))


def _moving(
    g: OnnxGraph, x: OnnxTensor, accum: OnnxTensor, state: OnnxTensor, rate: float
) -> tuple[OnnxTensor, OnnxTensor, OnnxTensor]:
    """Update the moving average of the greatest magnitude; returns the average, its sum and its count."""
    total = g.binary("Add", g.binary("Mul", g.reshape(accum, [1]), g.number(rate, accum)), _magnitude(g, x))
    count = g.binary("Add", g.binary("Mul", g.reshape(state, [1]), g.number(rate, state)), g.number(1, state))
    return g.binary("Div", total, count), total, count


def _quantize_by_average(dequantizes: bool) -> Any:
    """A function that writes quantization by a moving average of greatest magnitudes."""

    def quantize(g: OnnxGraph, X: OnnxTensor, inputs: dict[str, Any], attrs: dict[str, Any]) -> dict[str, Any]:
        scale, accum, state = (inputs.get(slot) for slot in ("InScale", "InAccum", "InState"))
        assert scale is not None
        if not attrs["is_test"]:
            assert accum is not None and state is not None
            scale, accum, state = _moving(g, X, accum, state, attrs["moving_rate"])
        out = _quantized(g, X, g.reshape(scale, []), attrs, dequantizes)
        return {"Out": out, "OutScale": g.identity(scale), "OutAccum": accum, "OutState": state}

    return quantize


exports("fake_quantize_moving_average_abs_max")(_quantize_by_average(False))
exports("fake_quantize_dequantize_moving_average_abs_max")(_quantize_by_average(True))


@exports("quantize_linear")
def quantize_linear(
    g: OnnxGraph, X: OnnxTensor, Scale: OnnxTensor, inputs: dict[str, Any], attrs: dict[str, Any]
) -> dict[str, Any]:
    axis, scale = attrs["quant_axis"], Scale
    accum, state = inputs.get("InAccum"), inputs.get("InState")
    if not attrs["is_test"]:
        if axis >= 0:
            scale = _magnitude(g, X, axis)
        else:
            assert accum is not None and state is not None
            scale, accum, state = _moving(g, X, accum, state, 0.9)
    y = g.identity(X) if attrs["only_observer"] else _quantized(g, X, _along_axis(g, scale, X.ndim, axis), attrs)
    return {"Y": y, "OutScale": g.identity(scale), "OutAccum": accum, "OutState": state}


@exports("dequantize_linear")
def dequantize_linear(
    g: OnnxGraph, X: OnnxTensor, Scale: OnnxTensor, inputs: dict[str, Any], attrs: dict[str, Any]
) -> dict[str, Any]:
    x = X if X.is_floating else g.cast(X, Scale.dtype)
    scaled = g.binary("Mul", x, _along_axis(g, Scale, X.ndim, attrs["quant_axis"]))
    y = g.identity(X) if attrs["only_observer"] else g.binary("Div", scaled, g.number(greatest(attrs["bit_length"]), x))
    return {"Y": y, "OutScale": g.identity(Scale), "OutAccum": inputs.get("InAccum"), "OutState": inputs.get("InState")}


@exports("moving_average_abs_max_scale")
def moving_average_abs_max_scale(g: OnnxGraph, X: OnnxTensor, inputs: dict[str, Any], attrs: dict[str, Any]) -> dict[str, Any]:
    accum, state = inputs.get("InAccum"), inputs.get("InState")
    if not attrs["is_test"]:
        assert accum is not None and state is not None
        scale, accum, state = _moving(g, X, accum, state, attrs["moving_rate"])
    elif accum is None or state is None:
        scale = g.constant([0], X.dtype)
    else:
        scale = g.binary("Div", accum, g.binary("Max", state, g.number(_SMALLEST, state)))
    zero = g.constant([0], X.dtype)
    states = {"OutAccum": zero if accum is None else accum, "OutState": zero if state is None else state}
    return {"Out": g.identity(X), "OutScale": scale, **states}


@exports("fake_quantize_range_abs_max")
def fake_quantize_range_abs_max(g: OnnxGraph, X: OnnxTensor, inputs: dict[str, Any], attrs: dict[str, Any]) -> dict[str, Any]:
    scale, number, window = inputs["InScale"], inputs.get("Iter"), inputs.get("OutScales")
    scale = g.reshape(scale, [1])
    if attrs["is_test"]:
        return {"Out": _quantized(g, X, g.reshape(scale, []), attrs), "OutScale": g.identity(scale), "OutScales": window}
    assert number is not None
    size = attrs["window_size"] if window is None else window.shape[0]
    former = g.constant(np.zeros(size), X.dtype) if window is None else window
    number = g.reshape(g.cast(number, VarType.INT64), [1])
    begins = g.binary("Equal", number, g.ints(0))
    before = g.where(begins, g.number(0, former), former)  # the first batch has none before it
    place = g.binary("Equal", g.constant(np.arange(size)), g.binary("Mod", number, g.ints(size)))
    measured = _magnitude(g, X)
    removed = g.reduce("ReduceSum", g.where(place, before, g.number(0, before)), [0], keep=True)
    after = g.where(place, measured, before)
    was_greatest = g.binary("Less", g.unary("Abs", g.binary("Sub", removed, scale)), g.number(1e-6, scale))
    lost = g.binary("And", was_greatest, g.binary("Less", measured, scale))
    greatest_left = g.reduce("ReduceMax", after, [0], keep=True)
    scale = g.where(lost, greatest_left, g.binary("Max", scale, measured))
    return {"Out": _quantized(g, X, g.reshape(scale, []), attrs), "OutScale": scale, "OutScales": after}


@exports("quantize")
def quantize(g: OnnxGraph, Input: OnnxTensor, Scale: float, Shift: float, specs: Any) -> OnnxTensor:
    spec = specs["Output"]
    bounds = np.iinfo(spec.dtype.numpy)
    scaled = g.binary("Add", g.binary("Mul", Input, g.number(Scale, Input)), g.number(Shift, Input))
    rounded_values = g.unary("Round", scaled)
    return g.cast(
        g.binary(
            "Min", g.binary("Max", rounded_values, g.number(bounds.min, rounded_values)), g.number(bounds.max, rounded_values)
        ),
        spec.dtype,
    )


@exports("dequantize_log")
def dequantize_log(g: OnnxGraph, X: OnnxTensor, Dict: OnnxTensor) -> OnnxTensor:
    x = g.cast(X, VarType.INT64)
    below = g.binary("Less", x, g.ints(0))
    values = g.gather(Dict, g.where(below, g.binary("Add", x, g.ints(128)), x))
    return g.where(below, g.unary("Neg", values), values)


_BYTES = {(0, 255): VarType.UINT8, (-128, 127): VarType.INT8}


@exports("fake_quantize_affine")
def fake_quantize_affine(
    g: OnnxGraph,
    X: OnnxTensor,
    Scale: OnnxTensor,
    ZeroPoint: OnnxTensor | None,
    quant_axis: int,
    quant_min: int,
    quant_max: int,
) -> OnnxTensor:
    """A pair of QuantizeLinear and DequantizeLinear, or integers and DequantizeLinear; for other ranges the formula."""
    dtype = _BYTES.get((quant_min, quant_max))
    is_one = quant_axis < 0
    if dtype is None or X.dtype is not VarType.FP32 or (is_one and Scale.spec.size != 1):
        formula: OnnxTensor = through_integers(g.ops, X, Scale, ZeroPoint, quant_axis, quant_min, quant_max)
        return formula
    shape = () if is_one else (Scale.shape[0],)
    scale = g.reshape(Scale, list(shape), shape)
    zero = None if ZeroPoint is None else g.cast(g.reshape(ZeroPoint, list(shape), shape), dtype)
    if zero is None and dtype is VarType.INT8:  # without a zero point, the integers have no sign
        zero = g.constant(np.zeros(shape, np.int8))
    axis = {} if is_one else {"axis": quant_axis % X.ndim}
    weight = g.weights.get(X._name)
    if weight is not None and Scale.value is not None and (ZeroPoint is None or ZeroPoint.value is not None):
        spread = [1] * X.ndim
        if not is_one:
            spread[axis["axis"]] = -1
        steps = np.rint(weight / Scale.value.reshape(spread))
        steps = steps if ZeroPoint is None else steps + ZeroPoint.value.reshape(spread)
        integers = g.constant(np.clip(steps, quant_min, quant_max), dtype, name=f"{X.name}.integers")
    else:
        integers = g.sized_node("QuantizeLinear", [X, scale, zero], dtype, X.sizes, **axis)
    return g.sized_node("DequantizeLinear", [integers, scale, zero], X.dtype, X.sizes, **axis)


@exports("fake_quantize_by_range")
def fake_quantize_by_range(g: OnnxGraph, X: OnnxTensor) -> OnnxTensor:
    if X.dtype is not VarType.FP32:
        raise NotExported("ONNX measures the range of float32 alone")
    specs = [Spec(X.shape, VarType.UINT8), Spec((), X.dtype), Spec((), VarType.UINT8)]
    integers, scale, zero = g.nodes("DynamicQuantizeLinear", [X], specs)
    return g.sized_node("DequantizeLinear", [integers, scale, zero], X.dtype, X.sizes)


@exports("matmul_integer")
def matmul_integer(
    g: OnnxGraph, X: OnnxTensor, Y: OnnxTensor, XZeroPoint: OnnxTensor | None, YZeroPoint: OnnxTensor | None, specs: Any
) -> OnnxTensor:
    """The product of 32-bit integers: MatMulInteger takes zero points of few shapes only."""
    sides = []
    for side, zero in ((X, XZeroPoint), (Y, YZeroPoint)):
        wide = g.cast(side, VarType.INT32)
        sides.append(wide if zero is None else g.binary("Sub", wide, g.cast(zero, VarType.INT32)))
    return g.matmul(*sides)
