"""How ops that choose, sort, mask, count and quantize are written."""

from __future__ import annotations

from typing import Any

import numpy as np

from fluid.ops.quantization import axis_of_scales, greatest
from fluid.ops.selection import REDUCTIONS
from fluid.values.spec import Spec
from fluid.values.types import VarType, as_dtype

from .arithmetic import softplus
from .exporting import exports
from .graph import Graph, NotExported, Size, Tensor
from .making import filled, zeros_like
from .shaping import positions

__all__: list[str] = []


@exports("put_along_axis")
def put_along_axis(g: Graph, inputs: dict[str, Any], attrs: dict[str, Any]) -> Tensor:
    x, index, value = inputs["Input"], g.cast(inputs["Index"], VarType.INT64), inputs["Value"]
    axis, how = attrs["Axis"] % x.ndim, REDUCTIONS[attrs["Reduce"]]
    if how == "assign":
        return g.node("ScatterElements", [x, index, value], x, axis=axis)
    if g.opset < 16:
        raise NotExported("sums by index along an axis, before opset 16")
    if not attrs["Include_self"]:
        neutral = zeros_like(g, value, value=0.0 if how == "add" else 1.0)
        x = g.node("ScatterElements", [x, index, neutral], x, axis=axis)
    return g.node("ScatterElements", [x, index, value], x, axis=axis, reduction=how)


@exports("masked_select", "masked_pick")
def masked_select(g: Graph, X: Tensor, Mask: Tensor) -> Tensor:
    return g._sized("Compress", [X, g.reshape(Mask, [-1], (-1,))], X.dtype, (-1,))


@exports("masked_place")
def masked_place(g: Graph, X: Tensor, Mask: Tensor, Like: Tensor) -> Tensor:
    flat = g.reshape(Mask, [-1], (-1,))
    places = g.transpose(g._sized("NonZero", [flat], VarType.INT64, (1, -1)), [1, 0])
    zeros = filled(g, g.dims(flat), 0, Spec((-1,), X.dtype))
    return g.reshape_as(g.node("ScatterND", [zeros, places, X], zeros), Like)


@exports("argsort")
def argsort(g: Graph, X: Tensor, axis: int, descending: bool) -> dict[str, Tensor]:
    axis %= X.ndim
    count = g.as_size(g.size(X, axis))
    spec = Spec(X.shape, X.dtype)
    values, places = g.nodes(
        "TopK", [X, count], [spec, spec.with_dtype(VarType.INT64)], axis=axis, largest=int(descending), sorted=1
    )
    return {"Out": values, "Indices": places}


@exports("multiplex")
def multiplex(g: Graph, X: list[Tensor], Ids: Tensor) -> Tensor:
    result = X[-1]
    ids = g.cast(Ids, VarType.INT64)
    ids = g.unsqueeze(ids, *range(2, X[0].ndim)) if X[0].ndim > 2 else ids
    for place in range(len(X) - 2, -1, -1):
        result = g.where(g.binary("Equal", ids, g.constant(np.int64(place)), VarType.BOOL), X[place], result)
    return g.identity(result) if len(X) == 1 else result


@exports("shard_index")
def shard_index(g: Graph, X: Tensor, index_num: int, nshards: int, shard_id: int, ignore_value: int) -> Tensor:
    size = g.number(-(-index_num // nshards), X)
    own = g.binary("Equal", g.binary("Div", X, size), g.number(shard_id, X), VarType.BOOL)
    return g.where(own, g.binary("Mod", X, size), g.number(ignore_value, X))


@exports("unique")
def unique(g: Graph, X: Tensor, attrs: dict[str, Any], specs: Any) -> dict[str, Any]:
    is_sorted, axis = attrs["is_sorted"], attrs["axis"]
    numbers = Spec((-1,), VarType.INT64)
    how = {"axis": axis[0] % X.ndim} if axis else {}
    out, first, inverse, counts = g.nodes(
        "Unique", [X], [specs["Out"].with_shape(tuple(-1 for _ in specs["Out"].shape)), numbers, numbers, numbers],
        sorted=int(is_sorted), **how,
    )  # fmt: skip
    if not is_sorted:
        return {"Out": out, "Index": inverse}
    return {
        "Out": out,
        "Indices": first if specs.get("Indices") else None,
        "Index": inverse if specs.get("Index") else None,
        "Counts": counts if specs.get("Counts") else None,
    }


@exports("unique_with_counts")
def unique_with_counts(g: Graph, X: Tensor, specs: Any) -> dict[str, Any]:
    numbers = Spec((-1,), VarType.INT64)
    out, _, inverse, counts = g.nodes("Unique", [X], [Spec((-1,), X.dtype), numbers, numbers, numbers], sorted=0)
    return {"Out": out, "Index": inverse, "Count": counts}


@exports("sequence_mask")
def sequence_mask(g: Graph, X: Tensor, MaxLenTensor: Tensor | None, maxlen: int, out_dtype: int) -> Tensor:
    count: Size
    lengths = g.cast(X, VarType.INT64)
    if MaxLenTensor is not None:
        count = g.reshape(g.cast(MaxLenTensor, VarType.INT64), [1])
    elif maxlen >= 0:
        count = maxlen
    else:
        flat = g.reshape(lengths, [-1], (-1,))
        count = g.reduce("ReduceMax", g.concat([flat, g.ints(0)], 0), [0], keep=True)
    inside = g.binary("Less", positions(g, count, X.ndim, X.ndim + 1), g.unsqueeze(lengths, X.ndim), VarType.BOOL)
    return g.cast(inside, as_dtype(out_dtype))


@exports("is_label")
def is_label(g: Graph, Label: Tensor, specs: Any) -> Tensor:
    spec = specs["Out"]
    if -1 in (spec.shape[1], Label.shape[1]):
        raise NotExported("numbers of labels that are known only at run time")
    row = np.zeros((1, spec.shape[1]), spec.dtype.numpy)
    row[:, : Label.shape[1]] = 1
    return g.expand(g.constant(row), g.joined_sizes([g.size(Label, 0), spec.shape[1]]), (Label.sizes[0], spec.shape[1]))


@exports("add_position_encoding")
def add_position_encoding(g: Graph, X: Tensor, alpha: float, beta: float) -> Tensor:
    if X.ndim != 3 or -1 in X.shape[1:]:
        raise NotExported("positions in sequences whose length is known only at run time")
    half = X.shape[-1] // 2
    powers = np.arange(half) / max(half - 1, 1)
    angles = np.arange(X.shape[1])[:, None] / (10000.0**powers if half > 1 else 10000.0)
    waves = (beta * np.concatenate([np.sin(angles), np.cos(angles)], 1)).astype(X.dtype.numpy)
    return g.binary("Add", g.binary("Mul", X, g.number(alpha, X)), g.constant(waves))


@exports("lstm_unit")
def lstm_unit(f: Any, X: Tensor, C_prev: Tensor, forget_bias: float) -> dict[str, Any]:
    i, forget, o, new = f.split(X, num=4, axis=1)
    cell = f.sigmoid(forget + forget_bias) * C_prev + f.sigmoid(i) * f.tanh(new)
    return {"C": cell, "H": f.sigmoid(o) * f.tanh(cell)}


# ---------------------------------------------------------------------------------------------------------- detection
def _sides(g: Graph, boxes: Tensor) -> list[Tensor]:
    """Left, top, right and bottom, each with a last dimension of 1."""
    return [g.slice(boxes, [boxes.ndim - 1], [place], [place + 1]) for place in range(4)]


@exports("iou_similarity")
def iou_similarity(g: Graph, f: Any, X: Tensor, Y: Tensor, box_normalized: bool) -> Any:
    edge = 0.0 if box_normalized else 1.0
    x = [g.squeeze(each, -1) for each in _sides(g, X)]
    y = [g.squeeze(each, -1) for each in _sides(g, Y)]
    x = [g.unsqueeze(each, x[0].ndim) for each in x]

    def area(box: list[Any]) -> Any:
        return (box[2] - box[0] + edge) * (box[3] - box[1] + edge)

    wide = f.relu(g.binary("Min", x[2], y[2]) - g.binary("Max", x[0], y[0]) + edge)
    high = f.relu(g.binary("Min", x[3], y[3]) - g.binary("Max", x[1], y[1]) + edge)
    common = wide * high
    whole = area(x) + area(y) - common
    some = g.binary("Greater", whole, g.number(0, whole), VarType.BOOL)
    return g.where(some, common / g.where(some, whole, g.number(1, whole)), g.number(0, whole))


def _halves(g: Graph, boxes: Tensor) -> tuple[Any, Any]:
    """The first two and the last two of four numbers."""
    axis = boxes.ndim - 1
    return g.slice(boxes, [axis], [0], [2]), g.slice(boxes, [axis], [2], [4])


@exports("box_coder")
def box_coder(g: Graph, f: Any, PriorBox: Tensor, PriorBoxVar: Tensor | None, TargetBox: Tensor, attrs: dict[str, Any]) -> Any:
    edge = 0.0 if attrs["box_normalized"] else 1.0
    first, last = _halves(g, PriorBox)
    size = last - first + edge
    middle = first + size * 0.5
    variance = PriorBoxVar if PriorBoxVar is not None else g.constant(attrs["variance"] or [1.0] * 4, PriorBox.dtype)
    by_place, by_size = _halves(g, variance)
    if attrs["code_type"] == "decode_center_size":
        if attrs["axis"] == 1:
            middle, size = g.unsqueeze(middle, 1), g.unsqueeze(size, 1)
            if variance.ndim == 2:
                by_place, by_size = g.unsqueeze(by_place, 1), g.unsqueeze(by_size, 1)
        moved, ratio = _halves(g, TargetBox)
        middle = g.binary("Add", g.binary("Mul", g.binary("Mul", moved, by_place), size), middle)
        half: Any = g.binary("Mul", g.binary("Mul", g.unary("Exp", g.binary("Mul", ratio, by_size)), size), g.number(0.5, size))
        return g.concat([g.binary("Sub", middle, half), g.binary("Add", middle, half) - edge], middle.ndim - 1)
    first, last = _halves(g, g.unsqueeze(TargetBox, 1))
    center = g.binary("Mul", g.binary("Add", first, last), g.number(0.5, first))
    shift = g.binary("Div", g.binary("Div", g.binary("Sub", center, middle), size), by_place)
    ratio = g.unary("Abs", g.binary("Div", g.binary("Sub", last, first) + edge, size))
    return g.concat([shift, g.binary("Div", g.unary("Log", ratio), by_size)], 2)


@exports("polygon_box_transform")
def polygon_box_transform(g: Graph, Input: Tensor) -> Tensor:
    wide = g.cast(positions(g, g.size(Input, 3), 3, 4), Input.dtype)
    high = g.cast(positions(g, g.size(Input, 2), 2, 4), Input.dtype)
    number = positions(g, g.size(Input, 1), 1, 4)
    even = g.binary("Equal", g.binary("Mod", number, g.constant(np.int64(2))), g.constant(np.int64(0)), VarType.BOOL)
    places = g.binary("Mul", g.where(even, wide, high), g.number(4, Input))
    return g.binary("Sub", places, Input)


def _focal(g: Graph, X: Tensor, Label: Tensor, FgNum: Tensor, alpha: float) -> tuple[Any, Any]:
    """The weights of the logarithms of probabilities of being in a class, and of not being in it."""
    classes = g.cast(positions(g, g.size(X, 1), 1, 2), Label.dtype)
    one = g.binary("Add", classes, g.number(1, classes))
    hit = g.binary("Equal", Label, one, VarType.BOOL)
    counts = g.binary("GreaterOrEqual", Label, g.number(0, Label), VarType.BOOL)
    foreground = g.cast(g.reshape(FgNum, []), X.dtype)
    foreground = g.binary("Max", foreground, g.number(1, X))
    right = g.where(hit, g.number(alpha, X), g.number(0, X))
    other = g.binary("And", counts, g.unary("Not", hit))
    wrong = g.where(other, g.number(1 - alpha, X), g.number(0, X))
    return g.binary("Div", right, foreground), g.binary("Div", wrong, foreground)


@exports("focal_weights")
def focal_weights(g: Graph, X: Tensor, Label: Tensor, FgNum: Tensor, alpha: float) -> dict[str, Tensor]:
    right, wrong = _focal(g, X, Label, FgNum, alpha)
    return {"Right": right, "Wrong": wrong}


@exports("sigmoid_focal_loss")
def sigmoid_focal_loss(g: Graph, f: Any, X: Tensor, Label: Tensor, FgNum: Tensor, gamma: float, alpha: float) -> Any:
    right, wrong = _focal(g, X, Label, FgNum, alpha)
    log_p: Any = g.unary("Neg", softplus(g, g.unary("Neg", X)))
    log_q: Any = g.unary("Neg", softplus(g, X))
    return -(right * f.exp(log_q * gamma) * log_p + wrong * f.exp(log_p * gamma) * log_q)


# ------------------------------------------------------------------------------------------------------ mixed precision
@exports("check_finite_and_unscale")
def check_finite_and_unscale(g: Graph, f: Any, X: list[Tensor], Scale: Tensor) -> dict[str, Any]:
    scale = g.reshape(Scale, [])
    finite = g.constant([True])
    for each in X:
        finite = g.binary("And", finite, f.isfinite(each))
    outs = [g.binary("Div", each, g.cast(scale, each.dtype)) for each in X]
    return {"Out": outs, "FoundInfinite": g.unary("Not", finite)}


@exports("update_loss_scaling")
def update_loss_scaling(g: Graph, X: list[Tensor], FoundInfinite: Tensor, inputs: dict[str, Any], attrs: dict[str, Any]) -> Any:
    infinite = g.reshape(FoundInfinite, [])
    before = [g.reshape(inputs[slot], []) for slot in ("PrevLossScaling", "InGoodSteps", "InBadSteps")]
    scale, good, bad = before

    def more(count: Tensor) -> Tensor:
        return g.binary("Add", count, g.number(1, count))

    good, bad = g.where(infinite, g.number(0, good), more(good)), g.where(infinite, more(bad), g.number(0, bad))
    shrinks = g.binary("Equal", bad, g.number(attrs["decr_every_n_nan_or_inf"], bad), VarType.BOOL)
    grows = g.binary("Equal", good, g.number(attrs["incr_every_n_steps"], good), VarType.BOOL)
    less = g.binary("Max", g.binary("Mul", scale, g.number(attrs["decr_ratio"], scale)), g.number(1, scale))
    scale = g.where(shrinks, less, scale)
    larger = g.binary("Mul", scale, g.number(attrs["incr_ratio"], scale))
    finite = g.binary("Less", larger, g.number(np.inf, scale), VarType.BOOL)
    scale = g.where(g.binary("And", grows, finite), larger, scale)
    after = [scale, g.where(grows, g.number(0, good), good), g.where(shrinks, g.number(0, bad), bad)]
    stop = inputs.get("StopUpdate")
    stops = g.constant(bool(attrs["stop_update"])) if stop is None else g.reshape(stop, [])
    results = [g.where(stops, old, new) for old, new in zip(before, after, strict=True)]
    outs = [g.where(infinite, g.number(0, each), each) for each in X]
    return {"Out": outs, **dict(zip(("LossScaling", "OutGoodSteps", "OutBadSteps"), results, strict=True))}


@exports("coalesce_tensor")
def coalesce_tensor(g: Graph, attrs: dict[str, Any]) -> Tensor:
    raise NotExported("one memory for several tensors")


# --------------------------------------------------------------------------------------------------------- quantization
_SMALLEST = 1e-30


def _along_axis(g: Graph, scale: Tensor, ndim: int, axis: int) -> Tensor:
    """A scale for each element of an axis; of axis -1, one number."""
    if axis < 0:
        return g.reshape(scale, [])
    return g.reshape(scale, [1] * axis + [-1] + [1] * (ndim - 1 - axis), (1,) * axis + (-1,) + (1,) * (ndim - 1 - axis))


def _magnitude(g: Graph, x: Tensor, axis: int | None = None) -> Tensor:
    """The greatest magnitude, of shape [1], or of each element of an axis."""
    axes = [place for place in range(x.ndim) if axis is None or place != axis % x.ndim]
    top = g.reduce("ReduceMax", g.unary("Abs", x), axes)
    return g.reshape(top, [1]) if axis is None else top


def _quantized(g: Graph, x: Tensor, scale: Tensor, attrs: dict[str, Any], back: bool = False) -> Tensor:
    most = greatest(attrs["bit_length"])
    safe = g.binary("Max", scale, g.constant(_SMALLEST, scale.dtype))
    present = g.cast(g.binary("Greater", scale, g.number(0, scale), VarType.BOOL), x.dtype)
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
    if back:
        result = g.binary("Div", g.binary("Mul", result, scale), g.number(most, x))
    return result


def _measured(back: bool) -> Any:
    def quantize(g: Graph, X: Tensor, attrs: dict[str, Any]) -> dict[str, Tensor]:
        axis = attrs.get("quant_axis")
        scale = _magnitude(g, X, axis)
        whole = _along_axis(g, scale, X.ndim, -1 if axis is None else axis % X.ndim)
        return {"Out": _quantized(g, X, whole, attrs, back), "OutScale": scale}

    return quantize


exports("fake_quantize_abs_max", "fake_channel_wise_quantize_abs_max")(_measured(False))
exports("fake_quantize_dequantize_abs_max", "fake_channel_wise_quantize_dequantize_abs_max")(_measured(True))


def _moving(g: Graph, x: Tensor, accum: Tensor, state: Tensor, rate: float) -> tuple[Tensor, Tensor, Tensor]:
    total = g.binary("Add", g.binary("Mul", g.reshape(accum, [1]), g.number(rate, accum)), _magnitude(g, x))
    count = g.binary("Add", g.binary("Mul", g.reshape(state, [1]), g.number(rate, state)), g.number(1, state))
    return g.binary("Div", total, count), total, count


def _averaged(back: bool) -> Any:
    def quantize(g: Graph, X: Tensor, inputs: dict[str, Any], attrs: dict[str, Any]) -> dict[str, Any]:
        scale, accum, state = (inputs.get(slot) for slot in ("InScale", "InAccum", "InState"))
        assert scale is not None
        if not attrs["is_test"]:
            assert accum is not None and state is not None
            scale, accum, state = _moving(g, X, accum, state, attrs["moving_rate"])
        out = _quantized(g, X, g.reshape(scale, []), attrs, back)
        return {"Out": out, "OutScale": g.identity(scale), "OutAccum": accum, "OutState": state}

    return quantize


exports("fake_quantize_moving_average_abs_max")(_averaged(False))
exports("fake_quantize_dequantize_moving_average_abs_max")(_averaged(True))


@exports("fake_dequantize_max_abs")
def fake_dequantize_max_abs(g: Graph, X: Tensor, Scale: Tensor, max_range: float) -> Tensor:
    x = X if X.is_floating else g.cast(X, Scale.dtype)
    return g.binary("Div", g.binary("Mul", x, g.reshape(Scale, [])), g.number(max_range, x))


@exports("fake_channel_wise_dequantize_max_abs")
def fake_channel_wise_dequantize_max_abs(
    g: Graph, X: Tensor, Scales: list[Tensor], quant_bits: list[int], quant_axis: int, x_num_col_dims: int
) -> Tensor:
    axis = axis_of_scales(len(Scales), quant_axis, x_num_col_dims) % X.ndim
    x = X if X.is_floating else g.cast(X, Scales[0].dtype)
    result = g.binary("Mul", x, _along_axis(g, Scales[0], X.ndim, axis))
    most = greatest(quant_bits[0])
    if len(Scales) == 2:
        result = g.binary("Mul", result, g.reshape(Scales[1], []))
        most *= greatest(quant_bits[1])
    return g.binary("Div", result, g.number(most, result))


@exports("quantize_linear")
def quantize_linear(g: Graph, X: Tensor, Scale: Tensor, inputs: dict[str, Any], attrs: dict[str, Any]) -> dict[str, Any]:
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
def dequantize_linear(g: Graph, X: Tensor, Scale: Tensor, inputs: dict[str, Any], attrs: dict[str, Any]) -> dict[str, Any]:
    x = X if X.is_floating else g.cast(X, Scale.dtype)
    scaled = g.binary("Mul", x, _along_axis(g, Scale, X.ndim, attrs["quant_axis"]))
    y = g.identity(X) if attrs["only_observer"] else g.binary("Div", scaled, g.number(greatest(attrs["bit_length"]), x))
    return {"Y": y, "OutScale": g.identity(Scale), "OutAccum": inputs.get("InAccum"), "OutState": inputs.get("InState")}
