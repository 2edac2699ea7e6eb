"""Quantization-aware training: numbers rounded to the integers that few bits hold, while they stay floats.

A scale s is the magnitude that the greatest integer, ``b = 2 ** (bit_length - 1) - 1``, stands for. `quantize` ops give the
integers ``round(X * b / s)``; `dequantize` ops turn these back into ``X * s / b``; `quantize_dequantize` ops do both at once.
Elements greater than a scale that was not measured on X itself are cut off there.

Rounding has the derivative 0, which would stop training. So gradients go *straight through*: rounding and cutting off count as
the identity, and scales as constants.

`round_type` says how halves are rounded: 1 away from zero; 0 to the even number, and -b - 1 is then allowed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ..errors import InferenceError
from ..ir.scan import scan
from ..opdef.composition import Composition, composed, means
from ..opdef.registry import NOT_DIFFERENTIABLE, ZERO_GRADIENT, Attr, at_most, define, ints, least, long, required
from ..values.spec import Spec
from ..values.types import VarType
from .conv import conv_attrs, convolved
from .rnn import step_mask
from .shapes import broadcast, fits, may_equal, normalize_axis, one_number

STRAIGHT_THROUGH = "stright_throuth_estimator_grad"
"""The type of gradient op that ops from floats to floats share, spelled as Paddle spells it."""

_MOST_BITS = 64
"""The most bits of the integers that floats stand for; a power of a number from a file may have any length."""

_AWAY_FROM_ZERO: dict[str, Any] = {
    "bit_length": Attr("int", 8, least=2, most=_MOST_BITS),
    "round_type": Attr("int", 1, choices=(1, 0)),
}
_MOVING: dict[str, Any] = {"moving_rate": 0.9, "is_test": False}


def greatest(bits: int) -> float:
    """The greatest integer of so many bits, one of them for the sign."""
    return float(2 ** (bits - 1) - 1)


def _measured(X: Spec) -> tuple[Spec, Spec]:
    return X, Spec((1,), X.dtype)


def _measured_by_channel(X: Spec, quant_axis: int) -> tuple[Spec, Spec]:
    return X, Spec((X.shape[normalize_axis(quant_axis, X.ndim)],), X.dtype)


def _averaged(X: Spec, InScale: Spec, InAccum: Spec | None, InState: Spec | None, is_test: bool) -> tuple[Spec, ...]:
    _states(InAccum, InState, is_test)
    one_number("InScale", InScale)
    return X, *(Spec((1,), X.dtype),) * 3


def _states(InAccum: Spec | None, InState: Spec | None, is_test: bool) -> None:
    for name, spec in (("InAccum", InAccum), ("InState", InState)):
        one_number(name, spec)
        if spec is None and not is_test:
            raise InferenceError(f"{name} is missing: without is_test, the scale is a moving average")


# ------------------------------------------------------------------------------------------------------------ quantize
def _through(f: Any, dOut: Any, scale: Any, bits: int, axis: int = -1) -> Any:
    """The cotangent of a value quantized with this scale; a scale of 0 counts as a very small one."""
    return f.elementwise_div(dOut * greatest(bits), f.clip(scale, min=1e-30, max=3e38), axis=axis)


def _greatest_magnitude(f: Any, X: Any) -> Any:
    return f.reduce_max(f.abs(f.reshape2(X, shape=[-1])), dim=[0], keep_dim=True)


def _quantize(f: Any, X: Any, scale: Any, bit_length: int, round_type: int, axis: int = -1) -> Any:
    """The integers that stand for X with one scale, or with one for each element of an axis; a scale of 0 gives zeros."""
    most = greatest(bit_length)
    factor = most / f.clip(scale, min=1e-30, max=math.inf) * (scale > 0.0).astype(X.dtype)
    scaled = f.elementwise_mul(X, factor, axis=axis)
    rounded = f.round(scaled) if round_type else f.rint(scaled)
    return f.clip(rounded, min=-most - (round_type == 0), max=most)


def _dequantize(f: Any, integers: Any, scale: Any, bit_length: int, axis: int = -1) -> Any:
    """The numbers that such integers stand for."""
    return f.elementwise_mul(integers, scale, axis=axis) / greatest(bit_length)


def _measured_formula(dequantizes: bool) -> Composition:
    def formula(f: Any, X: Any, bit_length: int, round_type: int) -> dict[str, Any]:
        scale = _greatest_magnitude(f, X)
        out = _quantize(f, X, scale, bit_length, round_type)
        return {"Out": _dequantize(f, out, scale, bit_length) if dequantizes else out, "OutScale": scale}

    return means(formula)


def _by_channel_formula(dequantizes: bool) -> Composition:
    def formula(f: Any, X: Any, bit_length: int, round_type: int, quant_axis: int) -> dict[str, Any]:
        axis = quant_axis % X.ndim
        scale = f.reduce_max(f.abs(X), dim=[number for number in range(X.ndim) if number != axis])
        out = _quantize(f, X, scale, bit_length, round_type, axis)
        return {"Out": _dequantize(f, out, scale, bit_length, axis) if dequantizes else out, "OutScale": scale}

    return means(formula)


def _averaged_formula(dequantizes: bool) -> Composition:
    def formula(
        f: Any,
        X: Any,
        InScale: Any,
        InAccum: Any,
        InState: Any,
        bit_length: int,
        round_type: int,
        moving_rate: float,
        is_test: bool,
    ) -> dict[str, Any]:
        scale, states = InScale, {"OutAccum": InAccum, "OutState": InState}
        if not is_test:
            accumulated, count = InAccum * moving_rate + _greatest_magnitude(f, X), InState * moving_rate + 1.0
            scale, states = accumulated / count, {"OutAccum": accumulated, "OutState": count}
        out = _quantize(f, X, scale, bit_length, round_type)
        return {"Out": _dequantize(f, out, scale, bit_length) if dequantizes else out, "OutScale": scale, **states}

    return means(formula)


@define(
    "fake_quantize_abs_max(X: float[N, ...]) -> Out, OutScale",
    infer=_measured,
    inline_grad=True,
    meaning=_measured_formula(dequantizes=False),
    **_AWAY_FROM_ZERO,
)
def fake_quantize_abs_max(f: Any, OutScale: Any, dOut: Any, bit_length: int) -> Any:
    """``round(X * b / s)`` with ``b = 2 ** (bit_length - 1) - 1``, where OutScale [1] is s, the greatest magnitude in X.

    The gradient goes straight through: rounding counts as the identity, and the scale as a constant.
    """
    return {"X": _through(f, dOut, OutScale, bit_length)}


@define(
    "fake_channel_wise_quantize_abs_max(X: float[N, ...]) -> Out, OutScale",
    infer=_measured_by_channel,
    inline_grad=True,
    meaning=_by_channel_formula(dequantizes=False),
    quant_axis=0,
    is_test=False,
    **_AWAY_FROM_ZERO,
)
def fake_channel_wise_quantize_abs_max(f: Any, OutScale: Any, dOut: Any, bit_length: int, quant_axis: int) -> Any:
    """`fake_quantize_abs_max` with a scale for each element of the axis `quant_axis`: OutScale [channels]."""
    return {"X": _through(f, dOut, OutScale, bit_length, quant_axis)}


def _in_window(X: Spec, InScale: Spec, Iter: Spec | None, window_size: int, is_test: bool) -> tuple[Spec, Spec, Spec]:
    one_number("InScale", InScale)
    one_number("Iter", Iter)
    if Iter is None and not is_test:
        raise InferenceError("Iter is missing: without is_test, it tells the number of the batch")
    return X, Spec((1,), X.dtype), Spec((window_size,), X.dtype)


@define(
    "fake_quantize_range_abs_max(X: float[N, ...], InScale: float, Iter?: int) -> Out, OutScale, OutScales?&",
    infer=_in_window,
    wrt=("X",),
    constants=("InScale",),
    inline_grad=True,
    window_size=least(1, 10000),
    is_test=False,
    **_AWAY_FROM_ZERO,
)
def fake_quantize_range_abs_max(f: Any, OutScale: Any, dOut: Any, bit_length: int) -> Any:
    """`fake_quantize_abs_max` with the greatest scale of the last `window_size` batches, which OutScales [window_size] holds.

    Iter [1] is the number of the batch. With `is_test`, the scale is InScale [1].
    """
    return {"X": _through(f, dOut, OutScale, bit_length)}


@define(
    "fake_quantize_moving_average_abs_max(X: float[N, ...], InScale: float, InAccum?: float, InState?: float)"
    " -> Out, OutScale, OutState?, OutAccum?",
    infer=_averaged,
    meaning=_averaged_formula(dequantizes=False),
    wrt=("X",),
    constants=("InScale", "InAccum", "InState"),
    inline_grad=True,
    **_MOVING,
    **_AWAY_FROM_ZERO,
)
def fake_quantize_moving_average_abs_max(f: Any, OutScale: Any, dOut: Any, bit_length: int) -> Any:
    """`fake_quantize_abs_max` with a moving average of scales.

    With the greatest magnitude m in X, ``OutState = moving_rate * InState + 1``, ``OutAccum = moving_rate * InAccum + m``, and
    the scale is ``OutAccum / OutState``; all are [1]. With `is_test`, the scale is InScale, and the states stay.
    """
    return {"X": _through(f, dOut, OutScale, bit_length)}


# ----------------------------------------------------------------------------------------------- quantize and dequantize
def _identity(f: Any, dOut: Any) -> Any:
    return {"X": f.assign(dOut)}


def _define_straight(signature: str, doc: str, **how: Any) -> None:
    """Define an op whose gradient goes straight through from Out to X."""

    def rule(f: Any, dOut: Any) -> Any:
        return _identity(f, dOut)

    rule.__doc__ = doc
    define(signature, wrt=("X",), grad_type=STRAIGHT_THROUGH, **how)(rule)


_define_straight(
    "fake_quantize_dequantize_abs_max(X: float[N, ...]) -> Out, OutScale",
    "X as `fake_quantize_abs_max` and `fake_dequantize_max_abs` leave it. The gradient goes straight through.",
    infer=_measured,
    meaning=_measured_formula(dequantizes=True),
    **_AWAY_FROM_ZERO,
)
_define_straight(
    "fake_channel_wise_quantize_dequantize_abs_max(X: float[N, ...]) -> Out, OutScale",
    "`fake_quantize_dequantize_abs_max` with a scale for each element of the axis `quant_axis`: OutScale [channels].",
    infer=_measured_by_channel,
    meaning=_by_channel_formula(dequantizes=True),
    quant_axis=0,
    **_AWAY_FROM_ZERO,
)
_define_straight(
    "fake_quantize_dequantize_moving_average_abs_max(X: float[N, ...], InScale: float, InAccum?: float, InState?: float)"
    " -> Out, OutScale, OutState?, OutAccum?",
    "`fake_quantize_dequantize_abs_max` with the scale of `fake_quantize_moving_average_abs_max`.",
    infer=_averaged,
    meaning=_averaged_formula(dequantizes=True),
    constants=("InScale", "InAccum", "InState"),
    **_MOVING,
    **_AWAY_FROM_ZERO,
)


def _observed(X: Spec, InAccum: Spec | None, InState: Spec | None, is_test: bool) -> tuple[Spec, ...]:
    _states(InAccum, InState, is_test)
    return X, *(Spec((1,), X.dtype),) * 3


_define_straight(
    "moving_average_abs_max_scale(X: float[N, ...], InAccum?: float, InState?: float) -> Out?, OutScale, OutState?, OutAccum?",
    """X itself, and the scale that `fake_quantize_moving_average_abs_max` would use for it.

With `is_test`, the scale is ``InAccum / InState``, or without these 0.""",
    infer=_observed,
    constants=("InAccum", "InState"),
    **_MOVING,
)


# ---------------------------------------------------------------------------------------------------------- dequantize
def _with_scale(X: Spec, Scale: Spec) -> Spec:
    one_number("Scale", Scale)
    return X


def _over(f: Any, X: Any, number: float) -> Any:
    """X divided by a number, not multiplied by its inverse, which is rounded."""
    return X / f.fill_constant(shape=[1], dtype=int(X.dtype), value=number)


@composed(
    "fake_dequantize_max_abs(X: float[N, ...], Scale: float) -> Out",
    infer=_with_scale,
    wrt=("X",),
    constants=("Scale",),
    max_range=Attr("float", required=True),
)
def fake_dequantize_max_abs(f: Any, X: Any, Scale: Any, max_range: float) -> Any:
    """``X * Scale / max_range``, with Scale [1]. Scale is treated as a constant."""
    return _over(f, f.elementwise_mul(X, f.reshape(Scale, shape=[1])), max_range)


def _axis_of_scales(count: int, quant_axis: int, x_num_col_dims: int) -> int:
    """The axis of the channels; the first of `count` scales has one number for each channel."""
    return quant_axis if count == 1 else x_num_col_dims


def _with_scales(X: Spec, Scales: Sequence[Spec], quant_bits: list[int], quant_axis: int, x_num_col_dims: int) -> Spec:
    if not 1 <= len(Scales) <= 2 or len(quant_bits) < len(Scales):
        raise InferenceError(
            f"there are {len(Scales)} Scales and {len(quant_bits)} quant_bits; there should be one of each, or two"
        )
    axis = normalize_axis(_axis_of_scales(len(Scales), quant_axis, x_num_col_dims), X.ndim)
    if not fits(Scales[0].size, X.shape[axis]):
        raise InferenceError(f"the first of Scales, {Scales[0]}, should have a number for each element of axis {axis} of X {X}")
    if len(Scales) == 2 and not fits(Scales[1].size, 1):
        raise InferenceError(f"the second of Scales, {Scales[1]}, should be one number")
    return X


@composed(
    "fake_channel_wise_dequantize_max_abs(X: float[N, ...], Scales*: float) -> Out",
    infer=_with_scales,
    wrt=("X",),
    constants=("Scales",),
    quant_bits=at_most(_MOST_BITS, least(2, ints(8))),
    quant_axis=0,
    x_num_col_dims=1,
)
def fake_channel_wise_dequantize_max_abs(f: Any, X: Any, Scales: Any, attrs: dict[str, Any]) -> Any:
    """``X * s / b`` with a scale s for each channel, and ``b = 2 ** (bits - 1) - 1``. Scales are treated as constants.

    With one of Scales, the channels are the elements of the axis `quant_axis`. With two, they are the elements of the axis
    `x_num_col_dims`, and the second one is a number [1]: so is a product dequantized whose factors were quantized.
    """
    axis = normalize_axis(_axis_of_scales(len(Scales), attrs["quant_axis"], attrs["x_num_col_dims"]), X.ndim)
    scaled, most = f.elementwise_mul(X, f.reshape(Scales[0], shape=[-1]), axis=axis), greatest(attrs["quant_bits"][0])
    if len(Scales) == 2:
        scaled, most = f.elementwise_mul(scaled, f.reshape(Scales[1], shape=[1])), most * greatest(attrs["quant_bits"][1])
    return _over(f, scaled, most)


# ------------------------------------------------------------------------------------------------------ of exported models
_LINEAR: dict[str, Any] = {
    "wrt": ("X",),
    "inline_grad": True,
    "quant_axis": 0,
    "bit_length": Attr("int", 8, least=2, most=_MOST_BITS),
    "round_type": Attr("int", 0, choices=(0, 1)),
    "is_test": True,
    "only_observer": False,
}


def _linear(
    X: Spec, Scale: Spec, InAccum: Spec | None, InState: Spec | None, quant_axis: int, is_test: bool
) -> tuple[Spec, Spec, Spec, Spec]:
    if quant_axis >= 0:
        channels = X.shape[normalize_axis(quant_axis, X.ndim)]
        if not fits(Scale.size, channels):
            raise InferenceError(f"Scale {Scale} should have a number for each element of axis {quant_axis} of X {X}")
    else:
        one_number("Scale", Scale)
        _states(InAccum, InState, is_test)
    one = Spec((1,), Scale.dtype)
    return X.with_dtype(Scale.dtype), one, one, Scale


@define(
    "quantize_linear(X: float[N, ...], Scale: float, ZeroPoint, InAccum?: float, InState?: float)"
    " -> Y, OutState?, OutAccum?, OutScale?",
    infer=_linear,
    constants=("Scale", "ZeroPoint", "InAccum", "InState"),
    **_LINEAR,
)
def quantize_linear(
    f: Any, Scale: Any, OutScale: Any, dY: Any, quant_axis: int, bit_length: int, is_test: bool, only_observer: bool
) -> Any:
    """``round(X * b / Scale)``, from -b - 1 to b, with ``b = 2 ** (bit_length - 1) - 1``.

    Scale is a number [1] if `quant_axis` is -1; otherwise it has a number for each element of the axis. Without `is_test`,
    Scale is first measured: by channel, the greatest magnitudes in X; otherwise their moving average, as in
    `fake_quantize_moving_average_abs_max` with the rate 0.9. With `only_observer`, Y is X. ZeroPoint is 0 and not read.
    """
    if only_observer:
        return {"X": f.assign(dY)}
    scale = Scale if is_test or OutScale is None else OutScale
    return {"X": _through(f, dY, scale, bit_length, max(quant_axis, -1))}


@define(
    "dequantize_linear(X: [N, ...], Scale: float, ZeroPoint, InAccum?: float, InState?: float)"
    " -> Y, OutState?, OutAccum?, OutScale?",
    infer=lambda X, Scale, quant_axis: _linear(X, Scale, None, None, quant_axis, True),
    constants=("Scale", "ZeroPoint", "InAccum", "InState"),
    **_LINEAR,
)
def dequantize_linear(f: Any, X: Any, Scale: Any, dY: Any, quant_axis: int, bit_length: int, only_observer: bool) -> Any:
    """``X * Scale / b`` with ``b = 2 ** (bit_length - 1) - 1``; the other way round than `quantize_linear`."""
    if only_observer:
        return {"X": f.assign(dY)}
    return {"X": f.elementwise_mul(dY, Scale, axis=max(quant_axis, -1)) * (1.0 / greatest(bit_length))}


# --------------------------------------------------------------------------------------------- scales and zero points
def _affine(X: Spec, Scale: Spec, ZeroPoint: Spec | None, quant_axis: int, quant_min: int, quant_max: int) -> Spec:
    if quant_min >= quant_max:
        raise InferenceError(f"quant_min {quant_min} should be below quant_max {quant_max}")
    for name, spec in (("Scale", Scale), ("ZeroPoint", ZeroPoint)):
        if spec is not None and spec.ndim == 1 and quant_axis >= 0:
            channels = X.shape[normalize_axis(quant_axis, X.ndim)]
            if not fits(spec.size, channels):
                raise InferenceError(f"{name} {spec} should have a number for each element of axis {quant_axis} of X {X}")
    return X


def _steps(f: Any, X: Any, Scale: Any, ZeroPoint: Any, axis: int) -> Any:
    """X in steps of the scale, rounded, counted from the zero point."""
    steps = f.rint(f.elementwise_div(X, Scale, axis=axis))
    return steps if ZeroPoint is None else f.elementwise_add(steps, ZeroPoint.astype(X.dtype), axis=axis)


def through_integers(f: Any, X: Any, Scale: Any, ZeroPoint: Any, quant_axis: int, quant_min: int, quant_max: int) -> Any:
    steps = f.clip(_steps(f, X, Scale, ZeroPoint, quant_axis), min=float(quant_min), max=float(quant_max))
    if ZeroPoint is not None:
        steps = f.elementwise_sub(steps, ZeroPoint.astype(X.dtype), axis=quant_axis)
    return f.elementwise_mul(steps, Scale, axis=quant_axis)


@define(
    "fake_quantize_affine(X: float, Scale: float, ZeroPoint?) -> Out",
    infer=_affine,
    wrt=("X",),
    constants=("Scale", "ZeroPoint"),
    inline_grad=True,
    composition=means(through_integers),
    quant_axis=-1,
    quant_min=-128,
    quant_max=127,
)
def fake_quantize_affine(
    f: Any, X: Any, Scale: Any, ZeroPoint: Any, dOut: Any, quant_axis: int, quant_min: int, quant_max: int
) -> Any:
    """X as integers from `quant_min` to `quant_max` hold it: ``(clip(rint(X / Scale) + ZeroPoint) - ZeroPoint) * Scale``.

    Scale and ZeroPoint broadcast with X or, with a `quant_axis`, have a number for each element of this axis. The gradient goes
    straight through where X lies within the range; scales and zero points count as constants.
    """
    steps = _steps(f, X, Scale, ZeroPoint, quant_axis)
    is_within = f.equal(steps, f.clip(steps, min=float(quant_min), max=float(quant_max)))
    return {"X": dOut * is_within.astype(dOut.dtype)}


def _parameters_of_range(f: Any, X: Any) -> tuple[Any, Any]:
    """The scale and the zero point, [1], that spread the integers from 0 to 255 over the range of X and 0."""
    zero = f.fill_constant(shape=[1], dtype=int(X.dtype), value=0.0)
    low = f.elementwise_min(f.reshape2(f.reduce_min(X, reduce_all=True), shape=[1]), zero)
    high = f.elementwise_max(f.reshape2(f.reduce_max(X, reduce_all=True), shape=[1]), zero)
    scale = (high - low) / 255.0
    scale = scale + f.equal(scale, zero).astype(X.dtype)  # of zeros, and of numbers that are too small for a scale: 1
    return scale, f.rint((zero - low) / scale)


@composed("fake_quantize_by_range(X: float[N, ...]) -> Out")
def fake_quantize_by_range(f: Any, X: Any) -> Any:
    """`fake_quantize_affine` with integers from 0 to 255, and the scale and zero point for the range of X and 0."""
    return f.fake_quantize_affine(X, *_parameters_of_range(f, X), quant_min=0, quant_max=255)


def _broadcasts(name: str, zero: Spec | None, side: Spec) -> None:
    """Check that the zero point of a factor broadcasts to it."""
    if zero is not None and not all(fits(a, b) for a, b in zip(broadcast(zero.shape, side.shape), side.shape, strict=False)):
        raise InferenceError(f"{name}ZeroPoint {zero} should broadcast to {name} {side}")


def _product_of_integers(X: Spec, Y: Spec, XZeroPoint: Spec | None, YZeroPoint: Spec | None) -> Spec:
    if X.ndim < 1 or Y.ndim < 1:
        raise InferenceError(f"X is {X} and Y is {Y}: both need a dimension at least")
    if not fits(X.shape[-1], Y.shape[max(Y.ndim - 2, 0)]):
        raise InferenceError(f"X is {X} and Y is {Y}: X should have a column for each row of Y")
    for name, spec, side in (("X", XZeroPoint, X), ("Y", YZeroPoint, Y)):
        _broadcasts(name, spec, side)
    batch = broadcast(X.shape[:-2], Y.shape[:-2])
    return Spec((*batch, *X.shape[-2:-1][: X.ndim - 1], *Y.shape[-1:][: Y.ndim - 1]), VarType.INT32)


def _less_zero(integers: Any, zero: Any) -> Any:
    """Integers minus their zero point, as float64, which holds their products exactly."""
    wide = integers.astype(VarType.FP64)
    return wide if zero is None else wide - zero.astype(VarType.FP64)


def _product_of_floats(f: Any, X: Any, Y: Any, XZeroPoint: Any, YZeroPoint: Any) -> Any:
    return f.matmul_v2(_less_zero(X, XZeroPoint), _less_zero(Y, YZeroPoint)).astype(VarType.INT32)


@define(
    "matmul_integer(X: int, Y: int, XZeroPoint?: int, YZeroPoint?: int) -> Out",
    infer=_product_of_integers,
    grad=NOT_DIFFERENTIABLE,
    composition=means(_product_of_floats),
)
def matmul_integer() -> None:
    """``(X - XZeroPoint) @ (Y - YZeroPoint)`` of 8-bit integers, as int32. Zero points broadcast with X and Y."""


# ------------------------------------------------------------------------------------------------ recurrent networks
def _infer_dynamic_quantize_lstm(
    Input: Spec,
    InitH: Spec,
    InitC: Spec,
    WeightX: Spec,
    WeightH: Spec,
    ScaleX: Spec,
    ScaleH: Spec,
    ZeroPointX: Spec | None,
    ZeroPointH: Spec | None,
    Bias: Spec | None,
    SequenceLength: Spec | None,
) -> tuple[Spec, Spec, Spec]:
    if Input.ndim != 3 or WeightH.ndim != 2:
        raise InferenceError(f"Input {Input} should be [time, batch, features], and WeightH {WeightH} a matrix")
    steps, batch, features = Input.shape
    hidden = WeightH.shape[0]
    columns = -1 if hidden < 0 else 4 * hidden
    batch = max(batch, InitH.shape[0] if InitH.ndim else -1)
    shapes = {
        "InitH": (InitH, (batch, hidden)),
        "InitC": (InitC, (batch, hidden)),
        "WeightX": (WeightX, (features, columns)),
        "WeightH": (WeightH, (hidden, columns)),
        "Bias": (Bias, (columns,)),
        "SequenceLength": (SequenceLength, (batch,)),
    }
    for name, (spec, shape) in shapes.items():
        if spec is not None and not may_equal(spec.shape, shape):
            raise InferenceError(f"{name} should be {list(shape)}, not {spec}")
    by_columns = {"ScaleX": ScaleX, "ScaleH": ScaleH, "ZeroPointX": ZeroPointX, "ZeroPointH": ZeroPointH}
    for name, part in by_columns.items():
        if part is not None and not (fits(part.size, 1) or may_equal(part.shape, (columns,))):
            raise InferenceError(f"{name} {part} should be one number, or one for each column of the weights")
    last = Input.with_shape((batch, hidden))
    return Input.with_shape((steps, batch, hidden)), last, last


def product_by_range(f: Any, X: Any, weight: Any, scale: Any, zero: Any) -> Any:
    """The product of floats, rounded to integers for their range, and a matrix of integers with a scale and a zero point."""
    of_x, zero_of_x = _parameters_of_range(f, X)
    levels = f.clip(f.rint(X / of_x) + zero_of_x, min=0.0, max=255.0).astype(VarType.UINT8)
    product = f.matmul_integer(levels, weight, zero_of_x.astype(VarType.UINT8), zero).astype(X.dtype)
    return product * (of_x * scale)


def lstm_by_range(
    f: Any,
    Input: Any,
    InitH: Any,
    InitC: Any,
    WeightX: Any,
    WeightH: Any,
    ScaleX: Any,
    ScaleH: Any,
    ZeroPointX: Any,
    ZeroPointH: Any,
    Bias: Any,
    SequenceLength: Any,
    is_reverse: bool,
    product: Callable[..., Any] = product_by_range,
) -> dict[str, Any]:
    """The formula of `dynamic_quantize_lstm`; `product` has the parameters of `product_by_range`."""
    has_lengths = SequenceLength is not None
    x = Input
    if has_lengths:  # onnxruntime does not look at steps that no sequence reaches
        x = Input * step_mask(f, Input, f.reduce_max(SequenceLength, dim=[0]))
    coming = product(f, x, WeightX, ScaleX, ZeroPointX)
    if Bias is not None:
        coming = coming + Bias

    def step(f: Any, before: list[Any], slices: list[Any]) -> tuple[list[Any], list[Any]]:
        read, *_, cell = before
        gates = slices[0] + product(f, read, WeightH, ScaleH, ZeroPointH)
        i, o, forget, candidate = f.split(gates, num=4, axis=-1)
        new_cell = f.sigmoid(forget) * cell + f.sigmoid(i) * f.tanh(candidate)
        new = f.sigmoid(o) * f.tanh(new_cell)
        if not has_lengths:
            return [new, new_cell], [new, new_cell]
        (_, hidden, _), is_within = before, slices[1]
        out = new * is_within
        after = [out, hidden + (new - hidden) * is_within, cell + (new_cell - cell) * is_within]
        return after, after

    first = [InitH, InitH, InitC] if has_lengths else [InitH, InitC]
    masks = [step_mask(f, Input, SequenceLength)] if has_lengths else []
    out, *sequences = scan(step, first, [coming, *masks], is_reverse)
    end = {"starts": [0 if is_reverse else -1], "ends": [1 if is_reverse else 2**31 - 1], "axes": [0], "decrease_axis": [0]}
    hidden, cell = (f.slice(sequence, **end) for sequence in (sequences if has_lengths else [out, *sequences]))
    return {"Out": out, "LastH": hidden, "LastC": cell}


def product_of_floats_by_range(f: Any, X: Any, weight: Any, _scale: Any, _zero: Any) -> Any:
    """`product_by_range` with a weight of floats, for training: gradients go straight through the rounding of X."""
    return f.matmul_v2(f.fake_quantize_by_range(X), weight)


@define(
    "dynamic_quantize_lstm(Input: float, InitH: float, InitC: float, WeightX: int, WeightH: int, ScaleX: float, ScaleH: float,"
    " ZeroPointX?: int, ZeroPointH?: int, Bias?: float, SequenceLength?: int) -> Out, LastH, LastC",
    infer=_infer_dynamic_quantize_lstm,
    grad=NOT_DIFFERENTIABLE,
    composition=means(lstm_by_range),
    is_reverse=False,
)
def dynamic_quantize_lstm() -> None:
    """An LSTM with weights of 8-bit integers over ``Input [time, batch, features]``, in one direction: Out [time, batch, hidden].

    WeightX is [features, 4 * hidden] and WeightH [hidden, 4 * hidden], with columns for the gates i, o, f and the candidate. Each
    has a scale, and may have a zero point, for the matrix or for each column. Input as a whole, and the hidden state of each step
    as a whole, are rounded to integers from 0 to 255 that span its range and 0. Past the end of a sequence, given by
    SequenceLength ([batch]), Out is 0 and the states do not change. InitH, InitC, LastH and LastC are [batch, hidden], and Bias
    is [4 * hidden].
    """


_CONVOLVED = convolved(2)


def _convolution_of_integers(
    Input: Spec, Filter: Spec, InputZeroPoint: Spec | None, FilterZeroPoint: Spec | None, attrs: Mapping[str, Any]
) -> Spec:
    one_number("InputZeroPoint", InputZeroPoint)
    _broadcasts("Filter", FilterZeroPoint, Filter)
    return _CONVOLVED(Input, Filter.with_dtype(Input.dtype), attrs).with_dtype(VarType.INT32)


def _convolution_of_floats(f: Any, Input: Any, Filter: Any, InputZeroPoint: Any, FilterZeroPoint: Any, attrs: Any) -> Any:
    factors = _less_zero(Input, InputZeroPoint), _less_zero(Filter, FilterZeroPoint)
    return f.conv2d(*factors, **attrs).astype(VarType.INT32)


@define(
    "conv2d_integer(Input: int, Filter: int, InputZeroPoint?: int, FilterZeroPoint?: int) -> Output",
    infer=_convolution_of_integers,
    grad=NOT_DIFFERENTIABLE,
    composition=means(_convolution_of_floats),
    **conv_attrs(2),
)
def conv2d_integer() -> None:
    """`conv2d` of ``Input - InputZeroPoint`` and ``Filter - FilterZeroPoint``, of 8-bit integers, as int32.

    InputZeroPoint is one number; FilterZeroPoint broadcasts with Filter."""


# ------------------------------------------------------------------------------------------- integers, as files hold them
def _to_bytes(Input: Spec, is_negative_input: bool, bfloat16: bool) -> Spec:
    if bfloat16:
        raise InferenceError("quantize to bfloat16, with which numpy cannot compute, is not here")
    return Input.with_dtype(VarType.INT8 if is_negative_input else VarType.UINT8)


@define(
    "quantize(Input: float) -> Output",
    infer=_to_bytes,
    grad=ZERO_GRADIENT,
    is_negative_input=False,
    Scale=1.0,
    Shift=0.0,
    output_format="NHWC",
    bfloat16=False,
)
def quantize() -> None:
    """``Input * Scale + Shift``, rounded and limited to 8-bit integers, with a sign if `is_negative_input`."""


@composed("dequantize(Input: int) -> Output", grad=ZERO_GRADIENT, Scale=1.0, Shift=0.0)
def dequantize(f: Any, Input: Any, Scale: float, Shift: float) -> Any:
    """``(Input - Shift) / Scale``, as float32."""
    return (Input.astype(VarType.FP32) - Shift) / Scale


@composed("dequantize_abs_max(X: int, Scale: float[one]) -> Out", max_range=required("float"))
def dequantize_abs_max(f: Any, X: Any, Scale: Any, max_range: float) -> Any:
    """``X * Scale / max_range``."""
    return f.elementwise_mul(X.astype(Scale.dtype), f.reshape2(Scale, shape=[1])) / max_range


@define(
    "dequantize_log(X: int, Dict: float[128]) -> Out", infer=lambda X, Dict: X.with_dtype(Dict.dtype), grad=NOT_DIFFERENTIABLE
)
def dequantize_log() -> None:
    """``Dict[X]`` for X from 0, ``-Dict[X + 128]`` below."""


def _unpacked(W: Spec, Ids: Spec) -> Spec:
    if Ids.shape[-1:] not in ((1,), (-1,)):
        raise InferenceError(f"lookup_table_dequant: the last dimension of Ids {Ids} should be 1")
    return W.with_shape((*Ids.shape[:-1], (W.shape[1] - 2) * 4 if W.shape[1] >= 2 else -1))


@define("lookup_table_dequant(W: float[N, D], Ids: int) -> Out", infer=_unpacked, grad=NOT_DIFFERENTIABLE, padding_idx=long(-1))
def lookup_table_dequant() -> None:
    """Rows of a table by number, `padding_idx` as zeros. A row holds its least and its greatest number, and then bytes, four in
    each float: ``least + byte * (greatest - least) / 256``."""
