"""Graphs and segments: messages along edges, reduced where they arrive, and neighbours.

An edge i goes from node ``Src_index[i]`` to node ``Dst_index[i]``. Graphs to sample from are given by columns: the neighbours of
node n are ``Row[Col_Ptr[n] : Col_Ptr[n + 1]]``.
"""

from __future__ import annotations

from typing import Any

from ..errors import InferenceError
from ..opdef.composition import composed
from ..opdef.registry import ZERO_GRADIENT, choice, define, ints, longs, required
from ..values.spec import Spec
from ..values.types import VarType
from .shapes import broadcast, check_types_agree, fits

_REDUCTIONS = choice("SUM", "MEAN", "MAX", "MIN")
_MESSAGES = choice("ADD", "MUL")


def _rows_of(f: Any, X: Any, ids: Any) -> Any:
    return f.gather(X, ids)


def _shares(f: Any, Out: Any, dOut: Any, count: Any, ids: Any, messages: Any, how: str) -> Any:
    """The gradient of each of `messages`, reduced to the rows `ids` of Out."""
    if how == "MEAN":
        ones = [1] * (dOut.ndim - 1)
        dOut = dOut / f.reshape2(count.astype(dOut.dtype), shape=[-1, *ones])
    shares = _rows_of(f, dOut, ids)
    if how in ("MAX", "MIN"):
        shares = shares * f.equal(messages, _rows_of(f, Out, ids)).astype(dOut.dtype)
    return shares


# -------------------------------------------------------------------------------------------------------------- segments
def _segment_pool(X: Spec, SegmentIds: Spec) -> dict[str, Spec]:
    if not X.ndim or SegmentIds.ndim != 1 or not fits(X.shape[0], SegmentIds.shape[0]):
        raise InferenceError(f"segment_pool: SegmentIds {SegmentIds} should be a vector, with a number for each row of X {X}")
    out = X.with_shape((-1, *X.shape[1:]))
    return {"Out": out, "SummedIds": X.with_shape((-1, 1))}


@define("segment_pool(X: real, SegmentIds: int) -> Out, SummedIds~", infer=_segment_pool, wrt=("X",), pooltype=_REDUCTIONS)
def segment_pool(f: Any, X: Any, SegmentIds: Any, Out: Any, SummedIds: Any, dOut: Any, pooltype: str) -> Any:
    """The rows of X reduced by segments: row s of Out is the sum, "MEAN", "MAX" or "MIN" of the rows whose number in SegmentIds,
    which are sorted, is s. A segment without rows is 0. SummedIds are the numbers of rows, 1 in place of 0."""
    count = f.segment_like(f.fill_any_like(SegmentIds, value=1.0), SegmentIds, Out) if pooltype == "MEAN" else None
    return {"X": _shares(f, Out, dOut, count, SegmentIds, X, pooltype)}


@define(
    "segment_like(X, SegmentIds: int, Like) -> Out",
    infer=lambda X, Like: X.with_shape(Like.shape[:1]),
    grad=ZERO_GRADIENT,
    shape_only=("Like",),
)
def segment_like() -> None:
    """The sums of the vector X by the numbers in SegmentIds, one for each row of Like, and 1 in place of 0."""


# -------------------------------------------------------------------------------------------------------------- messages
def _nodes(out_size: list[int], X: Spec, Out_size: Spec | None) -> int:
    if Out_size is not None:
        return -1
    size = out_size[0] if out_size else 0
    return size if size > 0 else X.shape[0]


def _edges(Src: Spec, Dst: Spec, names: str = "Src_index and Dst_index") -> None:
    if Src.ndim != 1 or Dst.ndim != 1 or not fits(Src.shape[0], Dst.shape[0]):
        raise InferenceError(f"{names} are {Src} and {Dst}; they should be vectors, with a number for each edge")


def _sent(X: Spec, Src_index: Spec, Dst_index: Spec, Out_size: Spec | None, out_size: list[int]) -> dict[str, Spec]:
    if not X.ndim:
        raise InferenceError(f"X is {X}; it should have a row for each node")
    _edges(Src_index, Dst_index)
    nodes = _nodes(out_size, X, Out_size)
    return {"Out": X.with_shape((nodes, *X.shape[1:])), "Dst_count": Spec((nodes,), VarType.INT32)}


@define(
    "graph_send_recv(X: int|real, Src_index: int, Dst_index: int, Out_size?: int[one]) -> Out, Dst_count~",
    infer=_sent,
    wrt=("X",),
    reduce_op=_REDUCTIONS,
    out_size=longs(0),
)
def graph_send_recv(f: Any, X: Any, Src_index: Any, Dst_index: Any, Out: Any, Dst_count: Any, dOut: Any, reduce_op: str) -> Any:
    """The rows of X sent along the edges and reduced where they arrive: a sum, "MEAN", "MAX" or "MIN"; 0 where none does.

    Out has X's number of rows, or `out_size` or Out_size. Dst_count says how many rows arrive, 1 in place of 0.
    """
    messages = _rows_of(f, X, Src_index) if reduce_op in ("MAX", "MIN") else None
    shares = _shares(f, Out, dOut, Dst_count, Dst_index, messages, reduce_op)
    return {"X": f.scatter_add_like(shares, Src_index, X)}


def _sent_with_edges(
    X: Spec, Y: Spec, Src_index: Spec, Dst_index: Spec, Out_size: Spec | None, out_size: list[int]
) -> dict[str, Spec]:
    specs = _sent(X, Src_index, Dst_index, Out_size, out_size)
    check_types_agree({"X": X, "Y": Y})
    if not Y.ndim or not fits(Y.shape[0], Src_index.shape[0]):
        raise InferenceError(f"Y is {Y}; it should have a row for each edge of Src_index {Src_index}")
    width = broadcast(X.shape[1:], Y.shape[1:])
    return {**specs, "Out": X.with_shape((specs["Out"].shape[0], *width))}


def _combined(f: Any, x: Any, y: Any, how: str) -> Any:
    return _wide(f, x, y) + _wide(f, y, x) if how == "ADD" else _wide(f, x, y) * _wide(f, y, x)


def _wide(f: Any, x: Any, y: Any) -> Any:
    """Insert dimensions of 1 after x's first, up to y's number of dimensions, so that x's rows stay its rows."""
    missing = max(y.ndim - x.ndim, 0)
    return f.unsqueeze2(x, axes=[1] * missing) if missing else x


def _by_operands(f: Any, shares: Any, x: Any, y: Any, how: str) -> tuple[Any, Any]:
    """The gradients of both operands of messages; `shares` are the gradients of the messages."""
    wide_x, wide_y = _wide(f, x, y), _wide(f, y, x)
    by_x = shares if how == "ADD" else shares * wide_y
    by_y = shares if how == "ADD" else shares * wide_x
    return f.reshape_like(f.sum_to(by_x, wide_x), x), f.reshape_like(f.sum_to(by_y, wide_y), y)


@define(
    "graph_send_ue_recv(X: int|real, Y: int|real, Src_index: int, Dst_index: int, Out_size?: int[one]) -> Out, Dst_count~",
    infer=_sent_with_edges,
    wrt=("X", "Y"),
    message_op=_MESSAGES,
    reduce_op=_REDUCTIONS,
    out_size=longs(0),
)
def graph_send_ue_recv(
    f: Any,
    X: Any,
    Y: Any,
    Src_index: Any,
    Dst_index: Any,
    Out: Any,
    Dst_count: Any,
    dOut: Any,
    message_op: str,
    reduce_op: str,
) -> Any:
    """As `graph_send_recv`, where row i of Y, the row of edge i, is added to the row sent along it, or multiplied ("MUL"); rows
    broadcast."""
    sent = _rows_of(f, X, Src_index)
    shares = _shares(f, Out, dOut, Dst_count, Dst_index, _combined(f, sent, Y, message_op), reduce_op)
    by_sent, by_y = _by_operands(f, shares, sent, Y, message_op)
    return {"X": lambda: f.scatter_add_like(by_sent, Src_index, X), "Y": by_y}


def _send_uv(x: Spec, y: Spec, src_index: Spec, dst_index: Spec) -> Spec:
    _edges(src_index, dst_index, "src_index and dst_index")
    check_types_agree({"x": x, "y": y})
    if not x.ndim or not y.ndim:
        raise InferenceError(f"x is {x} and y is {y}; they should have a row for each node")
    return x.with_shape((max(src_index.shape[0], dst_index.shape[0]), *broadcast(x.shape[1:], y.shape[1:])))


@composed(
    "graph_send_uv(x: int|real, y: int|real, src_index: int, dst_index: int) -> out",
    infer=_send_uv,
    wrt=("x", "y"),
    listed=(),
    message_op=_MESSAGES,
)
def graph_send_uv(f: Any, x: Any, y: Any, src_index: Any, dst_index: Any, message_op: str) -> Any:
    """For each edge, the row of x that it starts from and the row of y that it leads to, added or multiplied ("MUL"); rows
    broadcast."""
    return _combined(f, _rows_of(f, x, src_index), _rows_of(f, y, dst_index), message_op)


# ------------------------------------------------------------------------------------------------------------ neighbours
def _vectors(**specs: Spec | None) -> None:
    for name, spec in specs.items():
        if spec is not None and not (spec.ndim == 1 or (spec.ndim == 2 and spec.shape[1] in (1, -1))):
            raise InferenceError(f"{name} is {spec}; it should be a vector")


def _numbered(name: str, numbers: Spec | None, row_name: str, row: Spec, is_requested: bool) -> None:
    """`InferenceError` if the numbers of the edges are requested but missing, or if there are more or fewer than edges."""
    if is_requested and numbers is None:
        raise InferenceError(f"return_eids asks for the numbers of edges, which {name} should give")
    if numbers is not None and not fits(numbers.size, row.size):
        raise InferenceError(f"{name} is {numbers}; it should have a number for each of {row_name} {row}")


def _reindexed(X: Spec, Neighbors: Spec, Count: Spec) -> tuple[Spec, Spec, Spec]:
    _vectors(X=X, Neighbors=Neighbors, Count=Count)
    edges = X.with_shape((Neighbors.size,))
    return edges, edges, X.with_shape((-1,))


@define(
    "graph_reindex(X: int, Neighbors: int, Count: int, HashTable_Value?: int, HashTable_Index?: int)"
    " -> Reindex_Src, Reindex_Dst, Out_Nodes",
    infer=_reindexed,
    grad=ZERO_GRADIENT,
)
def graph_reindex() -> None:
    """A part of a graph with its nodes numbered anew: first the nodes X, then those among Neighbors, in order of coming.

    ``X[i]`` has `Count[i]` of the Neighbors. An edge goes from each neighbour to its node, by the new numbers;
    Out_Nodes are the old ones. The tables are buffers of Paddle's own, and not read.
    """


def _sampled(Row: Spec, Col_Ptr: Spec, X: Spec, Eids: Spec | None, return_eids: bool, **unread: Any) -> dict[str, Spec | None]:
    _vectors(Row=Row, Col_Ptr=Col_Ptr, X=X, Eids=Eids)
    _numbered("Eids", Eids, "Row", Row, return_eids)
    return {
        "Out": Row.with_shape((-1,)),
        "Out_Count": Spec((X.size,), VarType.INT32),
        "Out_Eids": Row.with_shape((-1,)) if return_eids else None,
    }


@define(
    "graph_sample_neighbors(Row: int, Col_Ptr: int, X: int, Eids?: int, Perm_Buffer?: int) -> Out, Out_Count, Out_Eids",
    infer=lambda Row, Col_Ptr, X, Eids, return_eids: _sampled(Row, Col_Ptr, X, Eids, return_eids),
    grad=ZERO_GRADIENT,
    sample_size=-1,
    return_eids=False,
    flag_perm_buffer=False,
    seed=0,
)
def graph_sample_neighbors() -> None:
    """The neighbours of the nodes X, one node after another, and how many each has: `sample_size` drawn without replacement where
    there are more (all if it is -1); with `return_eids`, the numbers of their edges in Eids too."""


def _weighted(
    row: Spec, colptr: Spec, edge_weight: Spec, input_nodes: Spec, eids: Spec | None, return_eids: bool
) -> dict[str, Spec | None]:
    _vectors(row=row, colptr=colptr, edge_weight=edge_weight, input_nodes=input_nodes, eids=eids)
    if not fits(row.size, edge_weight.size):
        raise InferenceError(f"edge_weight is {edge_weight}; it should have a weight for each of row {row}")
    _numbered("eids", eids, "row", row, return_eids)
    return {
        "out_neighbors": row.with_shape((-1,)),
        "out_count": Spec((input_nodes.size,), VarType.INT32),
        "out_eids": row.with_shape((-1,)) if return_eids else None,
    }


@define(
    "weighted_sample_neighbors(row: int, colptr: int, edge_weight: real, input_nodes: int, eids?: int)"
    " -> out_neighbors, out_count, out_eids",
    infer=_weighted,
    grad=ZERO_GRADIENT,
    sample_size=required("int"),
    return_eids=required("bool"),
    seed=0,
)
def weighted_sample_neighbors() -> None:
    """As `graph_sample_neighbors`, where edges are drawn, without replacement, with chances in proportion to `edge_weight`."""


def _khop(
    Row: Spec, Eids: Spec | None, Col_Ptr: Spec, X: Spec, sample_sizes: list[int], return_eids: bool
) -> dict[str, Spec | None]:
    _vectors(Row=Row, Col_Ptr=Col_Ptr, X=X, Eids=Eids)
    _numbered("Eids", Eids, "Row", Row, return_eids)
    if not sample_sizes:
        raise InferenceError("sample_sizes should have a number for each hop, one at least")
    edges = Row.with_shape((-1, 1))
    return {
        "Out_Src": edges,
        "Out_Dst": edges,
        "Sample_Index": Row.with_shape((-1,)),
        "Reindex_X": Row.with_shape((X.size,)),
        "Out_Eids": Row.with_shape((-1,)) if return_eids else None,
    }


@define(
    "graph_khop_sampler(Row: int, Eids?: int, Col_Ptr: int, X: int) -> Out_Src, Out_Dst, Sample_Index, Reindex_X, Out_Eids~",
    infer=_khop,
    grad=ZERO_GRADIENT,
    sample_sizes=ints(),
    return_eids=False,
    seed=0,
)
def graph_khop_sampler() -> None:
    """The neighbours of the nodes X, then their neighbours, and so on, `sample_sizes` a node in each hop, and the edges on the
    way by new numbers of the nodes: Sample_Index are their old ones, Reindex_X the new ones of X."""
