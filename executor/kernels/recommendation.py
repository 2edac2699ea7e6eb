"""Kernels of `fluid.ops.recommendation`."""

from __future__ import annotations

from itertools import accumulate
from typing import Any

import numpy as np

from fluid.values.lod_array import LoDArray, ids_of, last_offsets
from fluid.values.place import to_numpy
from fluid.values.spec import Lod

from .table import kernel


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
    """Where instances begin and end: sequences, or rows if these form none."""
    return last_offsets(lod) if lod else np.arange(rows + 1)


@kernel("filter_by_instag")
def filter_by_instag(
    xp: Any, Ins: Any, Ins_lod: Lod, Ins_tag: Any, Ins_tag_lod: Lod, Filter_tag: Any, is_lod: bool
) -> tuple[LoDArray, LoDArray, LoDArray]:
    wanted = np.isin(to_numpy(Ins_tag).reshape(-1), to_numpy(Filter_tag))
    tags = _offsets(Ins_tag_lod, len(wanted))
    before = np.concatenate([[0], np.cumsum(wanted)])
    chosen = np.flatnonzero(before[tags[1:]] > before[tags[:-1]])
    offsets = _offsets(Ins_lod if is_lod else (), len(Ins))
    starts, lengths = offsets[chosen], np.diff(offsets)[chosen]
    ends = np.cumsum(lengths)
    rows = np.arange(ends[-1] if len(ends) else 0) + np.repeat(starts - ends + lengths, lengths)
    out, weights = Ins[xp.asarray(rows)], np.ones((len(chosen), 1), "float32")
    if not len(chosen):
        out, weights = xp.zeros((1, *Ins.shape[1:]), Ins.dtype), np.zeros((1, 1), "float32")
        starts, lengths, ends = np.array([0]), np.array([1]), np.array([1])
    places = np.stack([ends - lengths, starts, lengths], 1).astype("int64")
    each = (tuple(range(len(places) + 1)),)
    return (
        LoDArray(out, (tuple(accumulate(lengths.tolist(), initial=0)),)),
        LoDArray(xp.asarray(weights), each),
        LoDArray(xp.asarray(places), each),
    )


@kernel("rows_of_tagged")
def rows_of_tagged(xp: Any, IndexMap: Any, LossWeight: Any, Out: Any) -> None:
    places, weights = to_numpy(IndexMap), to_numpy(LossWeight).reshape(-1)
    ends, starts, lengths = places[:, 0] + places[:, 2], places[:, 1], places[:, 2]
    rows = np.arange(len(Out)) + np.repeat(starts - ends + lengths, lengths)
    Out[...] = xp.asarray(np.where(np.repeat(weights, lengths) > 0, rows, -1))
