"""Kernels of `fluid.ops.quantization`."""

from __future__ import annotations

from typing import Any

from fluid.ops.quantization import greatest

from .manipulation import write_wanted
from .table import Slots, kernel

_SMALLEST = 1e-30
"""The divisor used in place of 0."""


def _round(xp: Any, values: Any, round_type: int, most: float) -> None:
    """Round `values` in place, and limit them to the integers up to `most`."""
    if round_type == 0:
        xp.rint(values, out=values)
        xp.clip(values, -most - 1, most, out=values)
        return
    # Add the largest number below one half: with one half itself, numbers slightly below .5 would be rounded up.
    values += xp.copysign(xp.nextafter(values.dtype.type(0.5), values.dtype.type(0)), values)
    xp.trunc(values, out=values)
    xp.clip(values, -most, most, out=values)


def _channels(scale: Any, ndim: int, axis: int) -> Any:
    """A scale for each element of an axis, shaped to be multiplied with; of axis -1, one number."""
    return scale.reshape((-1,) + (1,) * (ndim - 1 - axis)) if axis >= 0 else scale.reshape(())


def _quantize(xp: Any, X: Any, scale: Any, attrs: Slots, Out: Any, back: bool = False) -> None:
    """Quantize by a scale that broadcasts with X, and optionally dequantize. A scale of 0 gives zeros."""
    most = greatest(attrs["bit_length"])
    xp.multiply(X, X.dtype.type(most) / xp.maximum(scale, _SMALLEST).astype(X.dtype) * (scale > 0), out=Out)
    _round(xp, Out, attrs["round_type"], most)
    if back:
        Out *= scale
        Out /= most


def _greatest_magnitude(xp: Any, X: Any, axis: int | None = None) -> Any:
    """The greatest magnitude of X, as [1], or along an axis."""
    if not X.size:
        return xp.zeros(1 if axis is None else X.shape[axis], X.dtype)
    axes = None if axis is None else tuple(number for number in range(X.ndim) if number != axis % X.ndim)
    return xp.maximum(X.max(axes), -X.min(axes)).reshape(-1)


def _define_measured(op_type: str, back: bool) -> None:
    @kernel(op_type)
    def quantize(xp: Any, X: Any, attrs: Slots, Out: Any, OutScale: Any) -> None:
        axis = attrs.get("quant_axis")
        scale = _greatest_magnitude(xp, X, axis)
        write_wanted((OutScale, scale))
        if Out is not None:
            _quantize(xp, X, _channels(scale, X.ndim, -1 if axis is None else axis % X.ndim), attrs, Out, back)


_define_measured("fake_quantize_abs_max", back=False)
_define_measured("fake_quantize_dequantize_abs_max", back=True)
_define_measured("fake_channel_wise_quantize_abs_max", back=False)
_define_measured("fake_channel_wise_quantize_dequantize_abs_max", back=True)


@kernel("fake_quantize_range_abs_max", inplace={"OutScale": "InScale"})
def fake_quantize_range_abs_max(
    xp: Any, X: Any, InScale: Any, Iter: Any, attrs: Slots, Out: Any, OutScale: Any, OutScales: Any
) -> None:
    scale = InScale.reshape(-1).copy()
    if not attrs["is_test"]:
        measured = _greatest_magnitude(xp, X)
        window = xp.zeros(attrs["window_size"], X.dtype) if OutScales is None else OutScales
        scale = _greatest_in_window(xp, scale, measured, Iter.reshape(-1), window)
    write_wanted((OutScale, scale))
    if Out is not None:
        _quantize(xp, X, scale.reshape(()), attrs, Out)


def _greatest_in_window(xp: Any, former: Any, measured: Any, number: Any, window: Any) -> Any:
    """Store the scale `measured` of batch `number` in the window; returns the greatest scale of the window.

    `former` is the greatest scale so far.
    """
    before = xp.where(number == 0, xp.zeros_like(window), window)  # the first batch has no former scales
    place = xp.arange(len(window)) == number % len(window)
    removed = xp.where(place, before, 0).sum()
    xp.copyto(window, xp.where(place, measured, before))
    lost = (xp.abs(removed - former) < 1e-6) & (measured < former)
    return xp.where(lost, window.max(), xp.maximum(former, measured))


def _moving_average(xp: Any, X: Any, InAccum: Any, InState: Any, rate: float) -> tuple[Any, Any, Any]:
    """The scale, and the states of the average: accumulated scales, and how many they are."""
    accumulated = InAccum.reshape(-1) * InAccum.dtype.type(rate) + _greatest_magnitude(xp, X)
    count = InState.reshape(-1) * InState.dtype.type(rate) + 1
    return accumulated / count, accumulated, count


def _define_averaged(op_type: str, back: bool) -> None:
    @kernel(op_type, inplace={"OutScale": "InScale", "OutState": "InState", "OutAccum": "InAccum"})
    def quantize(xp: Any, X: Any, InScale: Any, InAccum: Any, InState: Any, attrs: Slots,
                 Out: Any, OutScale: Any, OutState: Any, OutAccum: Any) -> None:  # fmt: skip
        if attrs["is_test"]:
            scale, accumulated, count = InScale.copy(), InAccum, InState
        else:
            scale, accumulated, count = _moving_average(xp, X, InAccum, InState, attrs["moving_rate"])
        write_wanted((OutScale, scale))
        _write_states(accumulated, count, OutAccum, OutState)
        if Out is not None:
            _quantize(xp, X, scale.reshape(()), attrs, Out, back)


def _write_states(accumulated: Any, count: Any, OutAccum: Any, OutState: Any) -> None:
    """Write the states of an average; zeros if there are none."""
    write_wanted((OutAccum, 0 if accumulated is None else accumulated), (OutState, 0 if count is None else count))


_define_averaged("fake_quantize_moving_average_abs_max", back=False)
_define_averaged("fake_quantize_dequantize_moving_average_abs_max", back=True)


@kernel("moving_average_abs_max_scale", inplace={"OutState": "InState", "OutAccum": "InAccum"})
def moving_average_abs_max_scale(
    xp: Any, X: Any, InAccum: Any, InState: Any, moving_rate: float, is_test: bool,
    Out: Any, OutScale: Any, OutState: Any, OutAccum: Any,
) -> None:  # fmt: skip
    if not is_test:
        scale, InAccum, InState = _moving_average(xp, X, InAccum, InState, moving_rate)
    else:
        scale = 0 if InAccum is None or InState is None else InAccum / xp.maximum(InState, _SMALLEST)
    write_wanted((OutScale, scale), (Out, X))
    _write_states(InAccum, InState, OutAccum, OutState)


# ---------------------------------------------------------------------------------------------------------- dequantize
@kernel("quantize_linear", inplace={"OutState": "InState", "OutAccum": "InAccum", "OutScale": "Scale"})
def quantize_linear(
    xp: Any, X: Any, Scale: Any, InAccum: Any, InState: Any, attrs: Slots, Y: Any, OutState: Any, OutAccum: Any, OutScale: Any
) -> None:
    axis, scale = attrs["quant_axis"], Scale
    if not attrs["is_test"]:
        if axis < 0:
            scale, InAccum, InState = _moving_average(xp, X, InAccum, InState, 0.9)
        else:
            scale = _greatest_magnitude(xp, X, axis)
    if Y is not None and attrs["only_observer"]:
        xp.copyto(Y, X)
    elif Y is not None:
        _quantize(xp, X, _channels(scale, X.ndim, axis), attrs, Y)
    write_wanted((OutScale, scale))
    _write_states(InAccum, InState, OutAccum, OutState)


@kernel("dequantize_linear", inplace={"OutState": "InState", "OutAccum": "InAccum", "OutScale": "Scale"})
def dequantize_linear(
    xp: Any, X: Any, Scale: Any, InAccum: Any, InState: Any, quant_axis: int, bit_length: int, only_observer: bool,
    Y: Any, OutState: Any, OutAccum: Any, OutScale: Any,
) -> None:  # fmt: skip
    if Y is not None and only_observer:
        xp.copyto(Y, X)
    elif Y is not None:
        xp.multiply(X, _channels(Scale, X.ndim, quant_axis), out=Y)
        Y /= greatest(bit_length)
    write_wanted((OutScale, Scale))
    _write_states(InAccum, InState, OutAccum, OutState)


# ------------------------------------------------------------------------------------------- integers, as files hold them
@kernel("quantize")
def quantize(xp: Any, Input: Any, Scale: float, Shift: float, Output: Any) -> None:
    bounds = xp.iinfo(Output.dtype)
    Output[...] = xp.clip(xp.rint(Input * Scale + Shift), bounds.min, bounds.max)


@kernel("dequantize_log")
def dequantize_log(xp: Any, X: Any, Dict: Any, Out: Any) -> None:
    xp.copyto(Out, xp.where(X < 0, -Dict[X.astype("int64") + 128 * (X < 0)], Dict[xp.maximum(X, 0)]))


@kernel("lookup_table_dequant")
def lookup_table_dequant(xp: Any, W: Any, Ids: Any, padding_idx: int, Out: Any) -> None:
    ids = Ids.reshape(Out.shape[:-1])
    rows = W[ids]
    numbers = xp.ascontiguousarray(rows[..., 2:].astype("float32")).view("uint8")
    least, greatest = rows[..., :1], rows[..., 1:2]
    Out[...] = least + numbers * ((greatest - least) / 256)
    if padding_idx >= 0:
        Out[ids == padding_idx] = 0
