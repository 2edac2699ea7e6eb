"""Write messages along the edges of graphs, and segments of rows."""

from __future__ import annotations

from typing import Any

import numpy as np

from fluid.values.spec import Spec
from fluid.values.types import VarType

from .exporting import exports
from .graph import NotExported, OnnxGraph, OnnxTensor, Size
from .making import as_vector, filled
from .sequence_rows import ids_of
from .shaping import add_rows

_REDUCTIONS = {"SUM": "add", "MEAN": "add", "MAX": "max", "MIN": "min"}


def _counts(g: OnnxGraph, ids: OnnxTensor, size: Size) -> OnnxTensor:
    """Count each number below `size` among the ids."""
    ones = g.cast(g.binary("Equal", ids, ids), VarType.INT64)
    return add_rows(
        g, filled(g, g.joined_sizes([size]), 0, Spec((size if isinstance(size, int) else -1,), VarType.INT64)), ids, ones
    )


def _reduced(g: OnnxGraph, rows: OnnxTensor, ids: OnnxTensor, size: Size, how: str) -> tuple[OnnxTensor, OnnxTensor]:
    """Reduce rows [n, ...] by their numbers; also return how many rows each result has, at least 1."""
    counts = _counts(g, ids, size)
    shape = (size if isinstance(size, int) else -1, *rows.shape[1:])
    dims = g.joined_sizes([size, *g.sizes_of(rows)[1:]])
    is_present = g.binary("Greater", counts, g.ints(0))
    at_least_one = g.binary("Max", counts, g.ints(1))
    wide = [1] * (rows.ndim - 1)
    if how in ("MAX", "MIN"):
        if g.opset < 18:
            raise NotExported("extrema by index, before opset 18")
        kind = np.finfo if rows.is_floating else np.iinfo
        bound = kind(rows.dtype.numpy)
        base = filled(g, dims, bound.min if how == "MAX" else bound.max, Spec(shape, rows.dtype))
        result = g.node("ScatterND", [base, g.unsqueeze(ids, 1), rows], base, reduction=_REDUCTIONS[how])
        flags = g.unsqueeze(is_present, *range(1, rows.ndim)) if wide else is_present
        return g.where(flags, result, g.number(0, result)), at_least_one
    result = add_rows(g, filled(g, dims, 0, Spec(shape, rows.dtype)), ids, rows)
    if how == "MEAN":
        divisor = g.cast(at_least_one, rows.dtype)
        result = g.binary("Div", result, g.unsqueeze(divisor, *range(1, rows.ndim)) if wide else divisor)
    return result, at_least_one


@exports("segment_pool")
def segment_pool(g: OnnxGraph, X: OnnxTensor, SegmentIds: OnnxTensor, pooltype: str) -> dict[str, OnnxTensor]:
    ids = as_vector(g, SegmentIds)
    last = g.reduce("ReduceMax", g.concat([ids, g.ints(-1)], 0), [0], keep=True)
    out, counts = _reduced(g, X, ids, g.binary("Add", last, g.ints(1)), pooltype)
    return {"Out": out, "SummedIds": g.cast(g.unsqueeze(counts, 1), X.dtype)}


@exports("segment_like")
def segment_like(g: OnnxGraph, X: OnnxTensor, SegmentIds: OnnxTensor, Like: OnnxTensor) -> OnnxTensor:
    size = g.size(Like, 0)
    zeros = filled(g, g.joined_sizes([size]), 0, Spec((size if isinstance(size, int) else -1,), X.dtype))
    return g.binary("Max", add_rows(g, zeros, as_vector(g, SegmentIds), X), g.number(1, X))


def _nodes(g: OnnxGraph, X: OnnxTensor, Out_size: OnnxTensor | None, out_size: list[int]) -> Size:
    if Out_size is not None:
        return g.reshape(g.cast(Out_size, VarType.INT64), [1])
    return out_size[0] if out_size and out_size[0] > 0 else g.size(X, 0)


@exports("graph_send_recv")
def graph_send_recv(g: OnnxGraph, X: OnnxTensor, inputs: dict[str, Any], attrs: dict[str, Any]) -> dict[str, OnnxTensor]:
    rows = g.gather(X, as_vector(g, inputs["Src_index"]))
    size = _nodes(g, X, inputs.get("Out_size"), attrs["out_size"])
    out, counts = _reduced(g, rows, as_vector(g, inputs["Dst_index"]), size, attrs["reduce_op"])
    return {"Out": out, "Dst_count": g.cast(counts, VarType.INT32)}


def _message(g: OnnxGraph, x: OnnxTensor, y: OnnxTensor, how: str) -> OnnxTensor:
    ndim = max(x.ndim, y.ndim)
    x, y = (g.unsqueeze(tensor, *range(1, 1 + ndim - tensor.ndim)) if tensor.ndim < ndim else tensor for tensor in (x, y))
    return g.binary("Add" if how == "ADD" else "Mul", x, y)


@exports("graph_send_ue_recv")
def graph_send_ue_recv(
    g: OnnxGraph, X: OnnxTensor, Y: OnnxTensor, inputs: dict[str, Any], attrs: dict[str, Any]
) -> dict[str, OnnxTensor]:
    rows = _message(g, g.gather(X, as_vector(g, inputs["Src_index"])), Y, attrs["message_op"])
    size = _nodes(g, X, inputs.get("Out_size"), attrs["out_size"])
    out, counts = _reduced(g, rows, as_vector(g, inputs["Dst_index"]), size, attrs["reduce_op"])
    return {"Out": out, "Dst_count": g.cast(counts, VarType.INT32)}


@exports("graph_reindex")
def graph_reindex(g: OnnxGraph, X: OnnxTensor, Neighbors: OnnxTensor, Count: OnnxTensor) -> dict[str, OnnxTensor]:
    nodes, neighbors, counts = (as_vector(g, tensor) for tensor in (X, Neighbors, Count))
    numbers = Spec((-1,), VarType.INT64)
    unique_nodes, _, inverse, _ = g.nodes("Unique", [g.concat([nodes, neighbors], 0)], [numbers] * 4, sorted=0)
    first = g.as_size(g.size(nodes, 0))
    source = g.sized_node("Slice", [inverse, first, g.ints(2**62), g.ints(0)], VarType.INT64, neighbors.sizes)
    target = ids_of(g, counts, g.size(neighbors, 0))
    results = {"Reindex_Src": source, "Reindex_Dst": target, "Out_Nodes": unique_nodes}
    return {slot: g.cast(tensor, X.dtype) for slot, tensor in results.items()}
