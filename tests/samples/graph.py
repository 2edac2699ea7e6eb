"""Samples of `fluid.ops.graph`."""

from __future__ import annotations

from typing import Any

import numpy as np

from .base import Data, Sample, add

data = Data("graph")


def reduced(messages: Any, ids: Any, rows: int, how: str) -> Any:
    out = np.zeros((rows, *messages.shape[1:]), messages.dtype)
    for row in range(rows):
        mine = messages[ids == row]
        if len(mine):
            out[row] = {"SUM": np.sum, "MEAN": np.mean, "MAX": np.max, "MIN": np.min}[how](mine, 0)
    return out


def arrivals(ids: Any, rows: int) -> Any:
    return np.maximum(np.bincount(ids, minlength=rows), 1).astype("int32")


def pooled(X: Any, SegmentIds: Any, pooltype: str = "SUM") -> dict[str, Any]:
    rows = int(SegmentIds[-1]) + 1 if len(SegmentIds) else 0
    counts = arrivals(SegmentIds, rows).astype(X.dtype).reshape(-1, 1)
    return {"Out": reduced(X, SegmentIds, rows, pooltype), "SummedIds": counts}


HOW = ("SUM", "MEAN", "MAX", "MIN")
for how in HOW:
    for shape, ids in (((5, 2), [0, 0, 1, 3, 3]), ((4,), [0, 1, 1, 1]), ((3, 2, 2), [1, 1, 1]), ((0, 2), [])):
        inputs = {"X": data.distinct(*shape), "SegmentIds": np.array(ids, "int64")}
        add("segment_pool", Sample(inputs, {"pooltype": how}, pooled, shapes_by_value=True))
for ids in ([0, 0, 2], [1]):
    rows = ids[-1] + 1
    counts = lambda X, SegmentIds, Like: np.maximum(np.bincount(SegmentIds, X, len(Like)), 1).astype(X.dtype)
    add("segment_like", Sample({"X": np.ones(len(ids)), "SegmentIds": np.array(ids), "Like": data(rows, 2)}, {}, counts))

SRC, DST = np.array([0, 1, 2, 0, 1]), np.array([1, 2, 1, 0, 1], "int64")


def sent(X: Any, Src_index: Any, Dst_index: Any, reduce_op: str = "SUM", out_size: Any = (0,), Out_size: Any = None) -> Any:
    rows = int(Out_size[0]) if Out_size is not None else out_size[0] or len(X)
    return {"Out": reduced(X[Src_index], Dst_index, rows, reduce_op), "Dst_count": arrivals(Dst_index, rows)}


def messages(x: Any, y: Any, how: str) -> Any:
    missing = x.ndim - y.ndim
    x = x.reshape(len(x), *(1,) * max(-missing, 0), *x.shape[1:])
    y = y.reshape(len(y), *(1,) * max(missing, 0), *y.shape[1:])
    return x + y if how == "ADD" else x * y


def sent_with_edges(
    X: Any, Y: Any, Src_index: Any, Dst_index: Any, message_op: str = "ADD", reduce_op: str = "SUM", out_size: Any = (0,)
) -> Any:
    rows = out_size[0] or len(X)
    found = reduced(messages(X[Src_index], Y, message_op), Dst_index, rows, reduce_op)
    return {"Out": found, "Dst_count": arrivals(Dst_index, rows)}


def between(x: Any, y: Any, src_index: Any, dst_index: Any, message_op: str = "ADD") -> Any:
    return messages(x[src_index], y[dst_index], message_op)


EDGES = {"Src_index": SRC, "Dst_index": DST}
for how in HOW:
    for shape, attrs in (((3, 2), {}), ((3,), {}), ((4, 2, 2), {"out_size": [3]}), ((3, 2), {"out_size": [5]})):
        # Where one node is sent twice to another, which of the equal rows is the largest does not matter.
        add("graph_send_recv", Sample({"X": data.distinct(*shape), **EDGES}, {"reduce_op": how, **attrs}, sent))
    sized = {"X": data.distinct(3, 2), **EDGES, "Out_size": np.array([4], "int32")}
    add("graph_send_recv", Sample(sized, {"reduce_op": how}, sent, shapes_by_value=True))
    for message in ("ADD", "MUL"):
        pairs = (((3, 2), (5, 2)), ((3, 2), (5, 1)), ((3,), (5,)), ((3, 2, 2), (5, 2)), ((3, 2), (5, 3, 1)))
        for x, y in pairs if how == "SUM" else pairs[1:2]:
            inputs = {"X": data.distinct(*x), "Y": data(*y), **EDGES}
            attrs = {"message_op": message, "reduce_op": how}
            add("graph_send_ue_recv", Sample(inputs, attrs, sent_with_edges, tolerance=5))
for message in ("ADD", "MUL"):
    for x, y in (((3, 2), (3, 2)), ((3, 1), (4, 2)), ((3,), (3, 2)), ((3, 2, 2), (3, 2))):
        inputs = {"x": data(*x), "y": data(*y), "src_index": SRC, "dst_index": DST}
        add("graph_send_uv", Sample(inputs, {"message_op": message}, between))
add("graph_send_recv", Sample({"X": data.ints(3, 2), **EDGES}, {}, sent))


# ------------------------------------------------------------------------------------------------------------ neighbours
def check_reindexed(inputs: dict[str, Any], outputs: dict[str, Any]) -> None:
    nodes, sources, targets = outputs["Out_Nodes"], outputs["Reindex_Src"], outputs["Reindex_Dst"]
    assert nodes[: len(inputs["X"])].tolist() == inputs["X"].tolist() and len(set(nodes.tolist())) == len(nodes)
    assert nodes[sources].tolist() == inputs["Neighbors"].tolist()
    assert targets.tolist() == np.repeat(np.arange(len(inputs["X"])), inputs["Count"]).tolist()


for kind in ("int64", "int32"):
    inputs = {"X": np.array([0, 5, 2], kind), "Neighbors": np.array([8, 9, 0, 4, 7, 6, 7], kind), "Count": np.int32([2, 3, 2])}
    add("graph_reindex", Sample(inputs, {}, check=check_reindexed, shapes_by_value=True))

ROW, ENDS = np.array([3, 7, 0, 9, 1, 4, 2, 9, 3, 9, 1, 9, 7]), np.array([0, 2, 4, 5, 6, 7, 9, 11, 11, 13, 13])
WEIGHTS = np.linspace(0.1, 0.5, len(ROW))


def check_neighbors(size: int, names: tuple[str, str, str, str], nodes: str) -> Any:
    out, count, edges, _ = names

    def check(inputs: dict[str, Any], outputs: dict[str, Any]) -> None:
        counts = outputs[count]
        assert counts.dtype == "int32" and len(outputs[out]) == counts.sum()
        start = 0
        for node, number in zip(inputs[nodes], counts, strict=True):
            own = ROW[ENDS[node] : ENDS[node + 1]].tolist()
            drawn = outputs[out][start : start + number].tolist()
            assert number == (min(len(own), size) if size >= 0 else len(own)) and all(
                drawn.count(n) <= own.count(n) for n in drawn
            )
            if outputs.get(edges) is not None:
                places = outputs[edges][start : start + number] - 100
                assert ROW[places].tolist() == drawn and all(ENDS[node] <= p < ENDS[node + 1] for p in places)
            start += number

    return check


for size in (-1, 1, 2):
    for return_eids in (False, True):
        check = check_neighbors(size, ("Out", "Out_Count", "Out_Eids", "Eids"), "X")
        inputs = {"Row": ROW, "Col_Ptr": ENDS, "X": np.array([0, 8, 1, 7]), "Eids": np.arange(len(ROW)) + 100}
        attrs = {"sample_size": size, "return_eids": return_eids}
        add("graph_sample_neighbors", Sample(inputs, attrs, check=check, shapes_by_value=True, random=size == 1))
        names = ("out_neighbors", "out_count", "out_eids", "eids")
        inputs = {"row": ROW, "colptr": ENDS, "edge_weight": WEIGHTS, "input_nodes": inputs["X"], "eids": inputs["Eids"]}
        check = check_neighbors(size, names, "input_nodes")
        add("weighted_sample_neighbors", Sample(inputs, attrs, check=check, shapes_by_value=True, random=size == 1))


def check_hops(inputs: dict[str, Any], outputs: dict[str, Any]) -> None:
    nodes = outputs["Sample_Index"]
    sources, targets = nodes[outputs["Out_Src"][:, 0]], nodes[outputs["Out_Dst"][:, 0]]
    assert nodes[outputs["Reindex_X"]].tolist() == inputs["X"].tolist() and len(set(nodes.tolist())) == len(nodes)
    assert all(source in ROW[ENDS[target] : ENDS[target + 1]] for source, target in zip(sources, targets, strict=True))
    assert set(inputs["X"].tolist()) - {7, 9} <= set(targets.tolist())
    if outputs.get("Out_Eids") is not None:
        assert (ROW[outputs["Out_Eids"] - 100] == sources).all()


for sizes in ([2], [1, 2], [5, 5, 5]):
    for return_eids in (False, True):
        inputs = {"Row": ROW, "Eids": np.arange(len(ROW)) + 100, "Col_Ptr": ENDS, "X": np.array([0, 8])}
        attrs = {"sample_sizes": sizes, "return_eids": return_eids}
        add("graph_khop_sampler", Sample(inputs, attrs, check=check_hops, shapes_by_value=True, random=sizes[0] == 1))
