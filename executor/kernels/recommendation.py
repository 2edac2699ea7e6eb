"""Kernels of `fluid.ops.recommendation`."""

from __future__ import annotations

from itertools import accumulate, pairwise
from typing import Any

import numpy as np

from fluid.errors import ExecutionError
from fluid.values.lod_array import LoDArray, ids_of, last_offsets, repeated
from fluid.values.place import to_numpy
from fluid.values.spec import Lod

from .manipulation import write_wanted
from .table import Slots, checked, kernel


@kernel("cvm")
def cvm(xp: Any, X: Any, use_cvm: bool, Y: Any) -> None:
    if not use_cvm:
        xp.copyto(Y, X[:, 2:])
        return
    xp.copyto(Y, X)
    xp.log1p(X[:, :2], out=Y[:, :2])
    Y[:, 1] -= Y[:, 0]


@kernel("row_of_each")
def row_of_each(xp: Any, X: Any, Like_lod: Lod, Out: Any) -> None:
    xp.copyto(Out, X[xp.asarray(ids_of(last_offsets(Like_lod)))] if Like_lod else X)


def _offsets(lod: Lod, rows: int) -> Any:
    """The offsets of the instances: sequences, or single rows if there are none."""
    return last_offsets(lod) if lod else np.arange(rows + 1)


@kernel("filter_by_instag")
def filter_by_instag(
    xp: Any, Ins: Any, Ins_lod: Lod, Ins_tag: Any, Ins_tag_lod: Lod, Filter_tag: Any, is_lod: bool, out_val_if_empty: int
) -> tuple[LoDArray, LoDArray, LoDArray]:
    wanted = np.isin(to_numpy(Ins_tag).reshape(-1), to_numpy(Filter_tag))
    tags = _offsets(Ins_tag_lod, len(wanted))
    before = np.concatenate([[0], np.cumsum(wanted)])
    chosen = np.flatnonzero(before[tags[1:]] > before[tags[:-1]])
    offsets = _offsets(Ins_lod if is_lod else (), len(Ins))
    starts, lengths = offsets[chosen], np.diff(offsets)[chosen]
    ends = np.cumsum(lengths)
    rows = np.arange(ends[-1] if len(ends) else 0) + repeated(starts - ends + lengths, lengths)
    out, weights = Ins[xp.asarray(rows)], np.ones((len(chosen), 1), "float32")
    if not len(chosen):
        out, weights = xp.full((1, *Ins.shape[1:]), out_val_if_empty, Ins.dtype), np.zeros((1, 1), "float32")
        starts, lengths, ends = np.array([0]), np.array([1]), np.array([1])
    places = np.stack([ends - lengths, starts, lengths], 1).astype("int64")
    single = (tuple(range(len(places) + 1)),)
    return (
        LoDArray(out, (tuple(accumulate(lengths.tolist(), initial=0)),)),
        LoDArray(xp.asarray(weights), single),
        LoDArray(xp.asarray(places), single),
    )


@checked("rows_of_tagged")
def check_rows_of_tagged(IndexMap: Any, Like: Any) -> None:
    places, counts = to_numpy(IndexMap)[:, 0], to_numpy(IndexMap)[:, 2]
    ends = np.cumsum(counts)
    if (counts < 0).any() or (ends[-1] if len(ends) else 0) != len(Like) or (places != ends - counts).any():
        raise ExecutionError(
            f"rows_of_tagged: IndexMap should split the {len(Like)} rows of Like, by where each part begins (column 0) and "
            f"how many rows it has (column 2); they are {places.tolist()[:8]} and {counts.tolist()[:8]}"
        )


@kernel("rows_of_tagged")
def rows_of_tagged(xp: Any, IndexMap: Any, LossWeight: Any, Out: Any) -> None:
    places, weights = to_numpy(IndexMap), to_numpy(LossWeight).reshape(-1)
    ends, starts, lengths = places[:, 0] + places[:, 2], places[:, 1], places[:, 2]
    rows = np.arange(len(Out)) + repeated(starts - ends + lengths, lengths)
    Out[...] = xp.asarray(np.where(repeated(weights, lengths) > 0, rows, -1))


# ---------------------------------------------------------------------------------------------------------------- trees
@checked("tdm_child")
def check_tdm_child(X: Any, TreeInfo: Any) -> None:
    if X.size and not 0 <= int(X.min()) <= int(X.max()) < len(TreeInfo):
        raise ExecutionError(
            f"tdm_child: X has nodes from {int(X.min())} to {int(X.max())}; TreeInfo has those from 0 to {len(TreeInfo) - 1}"
        )
    children = TreeInfo[:, 3:]
    if children.size and not 0 <= int(children.min()) <= int(children.max()) < len(TreeInfo):
        raise ExecutionError(f"tdm_child: TreeInfo has children beyond its {len(TreeInfo)} nodes, or below 0")


@kernel("tdm_child")
def tdm_child(xp: Any, X: Any, TreeInfo: Any, Child: Any, LeafMask: Any) -> None:
    children = TreeInfo[X, 3:]
    some = (X[..., None] != 0) & (children[..., :1] != 0)
    children = xp.where(some, children, 0)
    write_wanted((Child, children), (LeafMask, some & (TreeInfo[children, 0] != 0)))


@checked("tdm_sampler")
def check_tdm_sampler(X: Any, Travel: Any, Layer: Any, layer_offset_lod: list[int]) -> None:
    if X.size and not 0 <= int(X.min()) <= int(X.max()) < len(Travel):
        bounds = f"from {int(X.min())} to {int(X.max())}"
        raise ExecutionError(f"tdm_sampler: X has items {bounds}; Travel has those from 0 to {len(Travel) - 1}")
    if layer_offset_lod[-1] > len(Layer):
        raise ExecutionError(f"tdm_sampler: layer_offset_lod ends at {layer_offset_lod[-1]}; Layer has {len(Layer)} nodes")


@kernel("tdm_sampler")
def tdm_sampler(xp: Any, rng: Any, X: Any, Travel: Any, Layer: Any, attrs: Slots, Out: Any, Labels: Any, Mask: Any) -> None:
    generator, ways, nodes = rng(), Travel[X.reshape(-1)], Layer.reshape(-1)
    nodes_out, labels, masks = [], [], []
    for layer, (count, (start, end)) in enumerate(
        zip(attrs["neg_samples_num_list"], pairwise(attrs["layer_offset_lod"]), strict=True)
    ):
        positives, negatives = ways[:, layer, None], nodes[start:end]
        drawn = xp.where(negatives == positives, 2.0, generator.random((len(positives), end - start), dtype="float64"))
        chosen = negatives[drawn.argsort(1)[:, :count]]
        parts = [positives, chosen] if attrs["output_positive"] else [chosen]
        is_node = xp.broadcast_to(positives != 0, (len(positives), sum(part.shape[1] for part in parts)))
        nodes_out.append(xp.where(is_node, xp.concatenate(parts, 1), 0))
        labels.append(is_node & (xp.arange(is_node.shape[1]) < attrs["output_positive"]))
        masks.append(is_node)
    write_wanted(*((out, xp.concatenate(parts, 1)) for out, parts in ((Out, nodes_out), (Labels, labels), (Mask, masks))))


# ------------------------------------------------------------------------------------------------- pairs of two sequences
def _grids(X_lod: Lod, Y_lod: Lod) -> list[tuple[tuple[int, int], tuple[int, int]]]:
    """The row ranges of the sequences of both inputs."""
    return list(zip(pairwise(last_offsets(X_lod).tolist()), pairwise(last_offsets(Y_lod).tolist()), strict=True))


@kernel("sequence_pairs")
def sequence_pairs(xp: Any, X_lod: Lod, Y_lod: Lod, times: int, First: Any, Second: Any) -> None:
    first, second = [np.empty(0, np.int64)], [np.empty(0, np.int64)]
    for (start, end), (begin, stop) in _grids(X_lod, Y_lod):
        time, row, column = np.ogrid[:times, start:end, begin:stop]
        shape = (times, end - start, stop - begin)
        first.append(np.broadcast_to(row * times + time, shape).reshape(-1))
        second.append(np.broadcast_to(column, shape).reshape(-1))
    write_wanted((First, xp.asarray(np.concatenate(first))), (Second, xp.asarray(np.concatenate(second))))


@kernel("match_matrix_tensor")
def match_matrix_tensor(xp: Any, X: Any, X_lod: Lod, Y: Any, Y_lod: Lod, W: Any, dim_t: int, Out: Any, Tmp: Any) -> None:
    half = (X @ W.reshape(len(W), dim_t * W.shape[2])).reshape(len(X), dim_t, W.shape[2])
    write_wanted((Tmp, half.reshape(-1, 1)))
    if Out is None:
        return
    done = 0
    for (start, end), (begin, stop) in _grids(X_lod, Y_lod):
        count = dim_t * (end - start) * (stop - begin)
        part = half[start:end].swapaxes(0, 1) @ Y[begin:stop].T
        Out[done : done + count] = part.reshape(-1, 1)
        done += count


# -------------------------------------------------------------------------------------------- images of different sizes
@kernel("patches_of_sequences")
def patches_of_sequences(
    xp: Any, X_lod: Lod, ROW_lod: Lod, COLUMN_lod: Lod, attrs: Slots, Patches: Any, Elements: Any, Order: Any
) -> None:
    (high, wide), channels = (attrs["KernelH"], attrs["KernelW"]), attrs["InputChannel"]
    width, filters = channels * high * wide, attrs["OutputChannel"]
    patches, elements, order = [np.empty((0, width), np.int64)], [np.empty(0, np.int64)], [np.empty(0, np.int64)]
    start = done = 0
    for (top, bottom), (left, right) in _grids(ROW_lod, COLUMN_lod):
        rows, columns = bottom - top, right - left
        steps = -(-rows // attrs["StrideH"]), -(-columns // attrs["StrideW"])
        i, j, channel, y, x = np.ogrid[: steps[0], : steps[1], :channels, :high, :wide]
        row, column = i * attrs["StrideH"] + y - high // 2, j * attrs["StrideW"] + x - wide // 2
        in_image = (row >= 0) & (row < rows) & (column >= 0) & (column < columns)
        elements_read = np.where(in_image, start + (channel * rows + row) * columns + column, -1).reshape(
            steps[0] * steps[1], width
        )
        patches.append(elements_read)
        elements.append(elements_read.T.reshape(-1))
        order.append(((done + np.arange(len(elements_read))) * filters + np.arange(filters)[:, None]).reshape(-1))
        start, done = start + channels * rows * columns, done + len(elements_read)
    results = (np.concatenate(parts) for parts in (patches, elements, order))
    write_wanted(*((out, xp.asarray(result)) for out, result in zip((Patches, Elements, Order), results, strict=True)))


# ----------------------------------------------------------------------------------------------------------------- ranks
@checked("rank_attention")
def check_rank_attention(X: Any, RankOffset: Any, MaxRank: int) -> None:
    ranks, rows = RankOffset[:, 1::2], RankOffset[:, 2::2]
    most = max((int(array.max()) for array in (RankOffset[:, :1], ranks) if array.size), default=0)
    if most > MaxRank:
        raise ExecutionError(f"rank_attention: RankOffset has the rank {most}; MaxRank allows those from 1 to {MaxRank}")
    used_rows = rows[(RankOffset[:, :1] > 0) & (ranks > 0)]
    if used_rows.size and not 0 <= int(used_rows.min()) <= int(used_rows.max()) < len(X):
        bounds = f"from {int(used_rows.min())} to {int(used_rows.max())}"
        raise ExecutionError(f"rank_attention: RankOffset has rows {bounds}; X has those from 0 to {len(X) - 1}")
