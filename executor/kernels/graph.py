"""Kernels of `fluid.ops.graph`. Where an output's shape is known only now, the kernel makes and returns it."""

from __future__ import annotations

from typing import Any

import numpy as np

from fluid.errors import ExecutionError
from fluid.values.lod_array import repeated
from fluid.values.place import to_numpy

from .manipulation import check_ids
from .table import checked, kernel


def _reduced(xp: Any, messages: Any, ids: Any, rows: int, how: str) -> tuple[Any, Any]:
    """Reduce messages to the rows `ids`, 0 for rows without messages; also returns the number of messages per row."""
    counts = xp.zeros(rows, "int64")
    xp.add.at(counts, ids, 1)
    shape = (rows, *messages.shape[1:])
    if how in ("SUM", "MEAN"):
        out = xp.zeros(shape, messages.dtype)
        xp.add.at(out, ids, messages)
        if how == "MEAN":
            divisors = xp.maximum(counts, 1).reshape(-1, *(1,) * (messages.ndim - 1))
            out = out / divisors.astype(out.dtype) if out.dtype.kind == "f" else out // divisors
        return out, counts
    limits = xp.finfo(messages.dtype) if messages.dtype.kind == "f" else xp.iinfo(messages.dtype)
    out = xp.full(shape, limits.min if how == "MAX" else limits.max, messages.dtype)
    (xp.maximum if how == "MAX" else xp.minimum).at(out, ids, messages)
    empty = (counts == 0).reshape(-1, *(1,) * (messages.ndim - 1))
    return xp.where(empty, out.dtype.type(0), out), counts


# -------------------------------------------------------------------------------------------------------------- segments
@checked("segment_pool")
def check_segment_pool(xp: Any, SegmentIds: Any) -> None:
    if SegmentIds.size and (int(SegmentIds[0]) < 0 or not bool((SegmentIds[1:] >= SegmentIds[:-1]).all())):
        raise ExecutionError("segment_pool: SegmentIds should be sorted, and none of them below 0")
    if SegmentIds.size and int(SegmentIds[-1]) >= 1 << 30:
        raise ExecutionError(f"segment_pool: SegmentIds reach {int(SegmentIds[-1])}; they should be below {1 << 30}")


@kernel("segment_pool")
def segment_pool(xp: Any, X: Any, SegmentIds: Any, pooltype: str) -> Any:
    rows = int(SegmentIds[-1]) + 1 if SegmentIds.size else 0
    out, counts = _reduced(xp, X, SegmentIds, rows, pooltype)
    return out, xp.maximum(counts, 1).astype(X.dtype).reshape(-1, 1)


@kernel("segment_like")
def segment_like(xp: Any, X: Any, SegmentIds: Any, Out: Any) -> None:
    Out.fill(0)
    xp.add.at(Out, SegmentIds, X)
    xp.maximum(Out, Out.dtype.type(1), out=Out)


# -------------------------------------------------------------------------------------------------------------- messages
def _rows(Out_size: Any, out_size: list[int], X: Any) -> int:
    size = int(Out_size.reshape(-1)[0]) if Out_size is not None else out_size[0] if out_size else 0
    if size > 1 << 30:
        raise ExecutionError(f"Out_size is {size}; it should be below {1 << 30}")
    return size if size > 0 else len(X)


@checked("graph_send_recv", "graph_send_ue_recv")
def check_edges(X: Any, Src_index: Any, Dst_index: Any, Out_size: Any, out_size: list[int]) -> None:
    check_ids(Src_index, len(X), "Src_index")
    check_ids(Dst_index, _rows(Out_size, out_size, X), "Dst_index")


def _send(xp: Any, messages: Any, Dst_index: Any, rows: int, how: str, Out: Any, Dst_count: Any) -> Any:
    out, counts = _reduced(xp, messages, Dst_index, rows, how)
    counts = xp.maximum(counts, 1).astype("int32")
    if Out is None:
        return out, counts
    xp.copyto(Out, out)
    if Dst_count is not None:
        xp.copyto(Dst_count, counts)
    return None


@kernel("graph_send_recv")
def graph_send_recv(
    xp: Any,
    X: Any,
    Src_index: Any,
    Dst_index: Any,
    Out_size: Any,
    reduce_op: str,
    out_size: list[int],
    Out: Any,
    Dst_count: Any,
) -> Any:
    rows = _rows(Out_size, out_size, X)
    return _send(xp, X[Src_index], Dst_index, rows, reduce_op, Out, Dst_count)


def _wide(x: Any, y: Any) -> Any:
    return x.reshape(len(x), *(1,) * max(y.ndim - x.ndim, 0), *x.shape[1:])


def _combined(x: Any, y: Any, how: str) -> Any:
    return _wide(x, y) + _wide(y, x) if how == "ADD" else _wide(x, y) * _wide(y, x)


@kernel("graph_send_ue_recv")
def graph_send_ue_recv(
    xp: Any,
    X: Any,
    Y: Any,
    Src_index: Any,
    Dst_index: Any,
    Out_size: Any,
    message_op: str,
    reduce_op: str,
    out_size: list[int],
    Out: Any,
    Dst_count: Any,
) -> Any:
    rows = _rows(Out_size, out_size, X)
    messages = _combined(X[Src_index], Y, message_op)
    return _send(xp, messages, Dst_index, rows, reduce_op, Out, Dst_count)


@checked("graph_send_uv")
def check_graph_send_uv(x: Any, y: Any, src_index: Any, dst_index: Any) -> None:
    check_ids(src_index, len(x), "graph_send_uv: src_index")
    check_ids(dst_index, len(y), "graph_send_uv: dst_index")


# ------------------------------------------------------------------------------------------------------------ neighbours
def _renumbered(nodes: Any, neighbors: Any) -> tuple[Any, Any]:
    """The distinct nodes, in order of coming, and the place of each of `neighbors` among them."""
    together = np.concatenate([nodes, neighbors])
    values, first, inverse = np.unique(together, return_index=True, return_inverse=True)
    order = first.argsort()
    rank = np.empty_like(order)
    rank[order] = np.arange(len(order))
    return values[order], rank[inverse.reshape(-1)][len(nodes) :]


@kernel("graph_reindex")
def graph_reindex(xp: Any, X: Any, Neighbors: Any, Count: Any, Reindex_Src: Any, Reindex_Dst: Any) -> Any:
    nodes, neighbors, counts = (to_numpy(array).reshape(-1) for array in (X, Neighbors, Count))
    if len(counts) != len(nodes) or (counts < 0).any() or counts.sum() != len(neighbors):
        raise ExecutionError(f"graph_reindex: Count should say how many of the {len(neighbors)} Neighbors each of X has")
    unique_nodes, sources = _renumbered(nodes, neighbors)
    if Reindex_Src is not None:
        xp.copyto(Reindex_Src, xp.asarray(sources.astype(nodes.dtype)))
    if Reindex_Dst is not None:
        xp.copyto(Reindex_Dst, xp.asarray(repeated(np.arange(len(nodes)), counts).astype(nodes.dtype)))
    return xp.asarray(unique_nodes.astype(nodes.dtype))


def _neighbors(op_type: str, row: Any, ends: Any, nodes: Any, size: int, generator: Any, weights: Any = None) -> tuple[Any, Any]:
    """The places in `row` of the neighbours of each node, at most `size` drawn, and how many there are of each."""
    if len(nodes) and not 0 <= nodes.min() <= nodes.max() < len(ends) - 1:
        raise ExecutionError(f"{op_type}: nodes reach from {nodes.min()} to {nodes.max()}; they should be below {len(ends) - 1}")
    if len(ends) and not (0 <= ends.min() and ends.max() <= len(row) and (np.diff(ends) >= 0).all()):
        raise ExecutionError(f"{op_type}: the column pointers should grow, from 0 to the {len(row)} neighbours at most")
    parts = []
    for node in nodes:
        places = np.arange(ends[node], ends[node + 1])
        if 0 <= size < len(places):
            drawn = to_numpy(generator.random(len(places), dtype="float64"))
            if weights is not None:  # exponential race: the order of arrivals at these rates draws without replacement
                rates = np.maximum(weights[places].astype("float64"), 0)
                drawn = np.where(rates > 0, -np.log1p(-drawn) / np.where(rates > 0, rates, 1), np.inf)
            places = np.sort(places[drawn.argsort(kind="stable")[:size]])
        parts.append(places)
    counts = np.array([len(part) for part in parts], "int32")
    return (np.concatenate(parts) if parts else np.zeros(0, "int64")).astype("int64"), counts


def _sampled(xp: Any, places: Any, row: Any, eids: Any, counts: Any, target: Any, return_eids: bool) -> Any:
    if target is not None:
        xp.copyto(target, xp.asarray(counts))
    neighbors = xp.asarray(row[places])
    return (neighbors, xp.asarray(to_numpy(eids).reshape(-1)[places].astype(row.dtype))) if return_eids else neighbors


@kernel("graph_sample_neighbors")
def graph_sample_neighbors(
    xp: Any, rng: Any, Row: Any, Col_Ptr: Any, X: Any, Eids: Any, sample_size: int, return_eids: bool, Out_Count: Any
) -> Any:
    row, ends, nodes = (to_numpy(array).reshape(-1) for array in (Row, Col_Ptr, X))
    places, counts = _neighbors("graph_sample_neighbors", row, ends, nodes, sample_size, rng())
    return _sampled(xp, places, row, Eids, counts, Out_Count, return_eids)


@kernel("weighted_sample_neighbors")
def weighted_sample_neighbors(
    xp: Any,
    rng: Any,
    row: Any,
    colptr: Any,
    edge_weight: Any,
    input_nodes: Any,
    eids: Any,
    sample_size: int,
    return_eids: bool,
    out_count: Any,
) -> Any:
    rows, ends, nodes, weights = (to_numpy(array).reshape(-1) for array in (row, colptr, input_nodes, edge_weight))
    places, counts = _neighbors("weighted_sample_neighbors", rows, ends, nodes, sample_size, rng(), weights)
    return _sampled(xp, places, rows, eids, counts, out_count, return_eids)


@kernel("graph_khop_sampler")
def graph_khop_sampler(
    xp: Any, rng: Any, Row: Any, Eids: Any, Col_Ptr: Any, X: Any, sample_sizes: list[int], return_eids: bool, Reindex_X: Any
) -> Any:
    row, ends, start = (to_numpy(array).reshape(-1) for array in (Row, Col_Ptr, X))
    generator = rng()
    sources, targets, every = [], [], []
    nodes = start
    for size in sample_sizes:
        places, counts = _neighbors("graph_khop_sampler", row, ends, nodes, size, generator)
        sources.append(row[places])
        targets.append(repeated(nodes, counts))
        every.append(places)
        nodes = np.setdiff1d(row[places], np.concatenate([start, *targets]))
    edges = np.concatenate(sources)
    unique_nodes, renumbered = _renumbered(start, np.concatenate([edges, *targets, start]))
    if Reindex_X is not None:
        xp.copyto(Reindex_X, xp.asarray(renumbered[len(renumbered) - len(start) :]))
    pair = (renumbered[: len(edges)], renumbered[len(edges) : 2 * len(edges)])
    results = [xp.asarray(array.astype(row.dtype).reshape(-1, 1)) for array in pair]
    results.append(xp.asarray(unique_nodes.astype(row.dtype)))
    if return_eids:
        results.append(xp.asarray(to_numpy(Eids).reshape(-1)[np.concatenate(every)].astype(row.dtype)))
    return tuple(results)
