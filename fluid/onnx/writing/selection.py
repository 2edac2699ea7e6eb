"""Write ops that choose, sort, mask and count."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from fluid.ops.selection import REDUCTIONS
from fluid.values.spec import Spec
from fluid.values.types import VarType, as_dtype

from .exporting import exports
from .graph import NotExported, OnnxGraph, OnnxTensor, Size
from .making import filled, zeros_like
from .rounds import in_rounds
from .shaping import positions


@exports("put_along_axis")
def put_along_axis(g: OnnxGraph, inputs: dict[str, Any], attrs: dict[str, Any]) -> OnnxTensor:
    x, index, value = inputs["Input"], g.cast(inputs["Index"], VarType.INT64), inputs["Value"]
    axis, how = attrs["Axis"] % x.ndim, REDUCTIONS[attrs["Reduce"]]
    if how == "assign":
        return g.node("ScatterElements", [x, index, value], x, axis=axis)
    if g.opset < (18 if how in ("max", "min") else 16):
        raise NotExported("sums by index along an axis, before opset 16, and maxima, before 18")
    if not attrs["Include_self"]:
        neutral = value if how in ("max", "min") else zeros_like(g, value, value=0.0 if how == "add" else 1.0)
        x = g.node("ScatterElements", [x, index, neutral], x, axis=axis)
    return g.node("ScatterElements", [x, index, value], x, axis=axis, reduction=how)


@exports("masked_select", "masked_pick")
def masked_select(g: OnnxGraph, X: OnnxTensor, Mask: OnnxTensor) -> OnnxTensor:
    return g.sized_node("Compress", [X, g.reshape(Mask, [-1], (-1,))], X.dtype, (-1,))


@exports("masked_place")
def masked_place(g: OnnxGraph, X: OnnxTensor, Mask: OnnxTensor, Like: OnnxTensor) -> OnnxTensor:
    flat = g.reshape(Mask, [-1], (-1,))
    places = g.transpose(g.sized_node("NonZero", [flat], VarType.INT64, (1, -1)), [1, 0])
    zeros = filled(g, g.dims(flat), 0, Spec((-1,), X.dtype))
    return g.reshape_as(g.node("ScatterND", [zeros, places, X], zeros), Like)


@exports("argsort")
def argsort(g: OnnxGraph, X: OnnxTensor, axis: int, descending: bool) -> dict[str, OnnxTensor]:
    axis %= X.ndim
    count = g.as_size(g.size(X, axis))
    spec = Spec(X.shape, X.dtype)
    values, places = g.nodes(
        "TopK", [X, count], [spec, spec.with_dtype(VarType.INT64)], axis=axis, largest=int(descending), sorted=1
    )
    return {"Out": values, "Indices": places}


def _ranks(g: OnnxGraph, x: OnnxTensor) -> OnnxTensor:
    """The rank of each element in the descending order of its row [N, M]."""
    count = g.as_size(g.size(x, 1))
    spec = Spec(x.shape, VarType.INT64)
    order = g.nodes("TopK", [x, count], [Spec(x.shape, x.dtype), spec])[1]
    ranks = g.nodes("TopK", [order, count], [spec, spec], largest=0)[1]
    ranks.sizes = x.sizes
    return ranks


@exports("similarity_focus")
def similarity_focus(g: OnnxGraph, X: OnnxTensor, axis: int, indexes: list[int]) -> OnnxTensor:
    """Each round chooses the greatest element in the free rows and columns."""
    order = [0, axis, *(dimension for dimension in (1, 2, 3) if dimension != axis)]
    turned = g.transpose(X, order)
    images, _, *sides = g.sizes_of(turned)
    rounds = g.binary("Min", g.as_size(sides[0]), g.as_size(sides[1]))
    focus: OnnxTensor | None = None
    for index in indexes:
        matrix = g.squeeze(g.slice(turned, [1], [index], [index + 1]), 1)
        rank = g.reshape_as(_ranks(g, g.reshape(matrix, [images, g.product_of(sides)], (turned.sizes[0], -1))), matrix)
        all_free = zeros_like(g, matrix, VarType.BOOL)

        def body(number: OnnxTensor, states: Sequence[OnnxTensor], rank: OnnxTensor = rank) -> list[OnnxTensor]:
            is_used, chosen = states
            left = g.where(is_used, g.ints(2**62), rank)
            first = g.binary("Equal", left, g.reduce("ReduceMin", left, [1, 2], keep=True))
            hits = g.cast(first, VarType.INT32)
            for dimension in (1, 2):  # its row and its column
                side = g.cast(g.reduce("ReduceMax", hits, [dimension], keep=True), VarType.BOOL)
                is_used = g.binary("Or", is_used, side)
            return [is_used, g.binary("Or", chosen, first)]

        _, chosen = in_rounds(g, rounds, [all_free, all_free], body)
        focus = chosen if focus is None else g.binary("Or", focus, chosen)
    assert focus is not None
    ones = g.expand_as(g.cast(g.unsqueeze(focus, 1), X.dtype), turned)
    return g.transpose(ones, [order.index(dimension) for dimension in range(4)])


@exports("multiplex")
def multiplex(g: OnnxGraph, X: list[OnnxTensor], Ids: OnnxTensor) -> OnnxTensor:
    result = X[-1]
    ids = g.cast(Ids, VarType.INT64)
    ids = g.unsqueeze(ids, *range(2, X[0].ndim)) if X[0].ndim > 2 else ids
    for place in range(len(X) - 2, -1, -1):
        result = g.where(g.binary("Equal", ids, g.constant(np.int64(place))), X[place], result)
    return g.identity(result) if len(X) == 1 else result


@exports("unique")
def unique(g: OnnxGraph, X: OnnxTensor, attrs: dict[str, Any], specs: Any) -> dict[str, Any]:
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
def unique_with_counts(g: OnnxGraph, X: OnnxTensor, specs: Any) -> dict[str, Any]:
    numbers = Spec((-1,), VarType.INT64)
    out, _, inverse, counts = g.nodes("Unique", [X], [Spec((-1,), X.dtype), numbers, numbers, numbers], sorted=0)
    return {"Out": out, "Index": inverse, "Count": counts}


@exports("sequence_mask")
def sequence_mask(g: OnnxGraph, X: OnnxTensor, MaxLenTensor: OnnxTensor | None, maxlen: int, out_dtype: int) -> OnnxTensor:
    count: Size
    lengths = g.cast(X, VarType.INT64)
    if MaxLenTensor is not None:
        count = g.reshape(g.cast(MaxLenTensor, VarType.INT64), [1])
    elif maxlen >= 0:
        count = maxlen
    else:
        flat = g.reshape(lengths, [-1], (-1,))
        count = g.reduce("ReduceMax", g.concat([flat, g.ints(0)], 0), [0], keep=True)
    is_inside = g.binary("Less", positions(g, count, X.ndim, X.ndim + 1), g.unsqueeze(lengths, X.ndim))
    return g.cast(is_inside, as_dtype(out_dtype))


@exports("add_position_encoding")
def add_position_encoding(g: OnnxGraph, X: OnnxTensor, alpha: float, beta: float) -> OnnxTensor:
    if X.ndim != 3 or -1 in X.shape[1:]:
        raise NotExported("positions in sequences whose length is known only at run time")
    half = X.shape[-1] // 2
    powers = np.arange(half) / max(half - 1, 1)
    angles = np.arange(X.shape[1])[:, None] / (10000.0**powers if half > 1 else 10000.0)
    waves = (beta * np.concatenate([np.sin(angles), np.cos(angles)], 1)).astype(X.dtype.numpy)
    return g.binary("Add", g.binary("Mul", X, g.number(alpha, X)), g.constant(waves))


@exports("coalesce_tensor")
def coalesce_tensor(g: OnnxGraph, attrs: dict[str, Any]) -> OnnxTensor:
    raise NotExported("one memory for several tensors")
