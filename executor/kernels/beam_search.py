"""Kernels of `fluid.ops.beam_search`; on the host, since how many rows are selected is for values to say."""

from __future__ import annotations

from typing import Any

import numpy as np

from fluid.errors import ExecutionError
from fluid.values.lod_array import LoDArray, ids_of
from fluid.values.place import to_numpy
from fluid.values.spec import Lod

from .table import kernel


def _best(values: Any, candidates: Any, source_of_row: Any, count: int) -> tuple[Any, Any]:
    """Rows and columns of the best candidates of each source: the rows in order, in a row the best first."""
    rows, columns = np.nonzero(candidates)
    source = source_of_row[rows]
    order = np.lexsort((columns, -rows, -values[rows, columns], source))
    rank = np.arange(len(order)) - np.searchsorted(source[order], source[order])
    best = order[rank < count]
    best = best[np.argsort(rows[best], kind="stable")]
    return rows[best], columns[best]


@kernel("beam_search")
def beam_search(
    xp: Any,
    pre_ids: Any,
    pre_scores: Any,
    ids: Any,
    scores: Any,
    scores_lod: Lod,
    level: int,
    beam_size: int,
    end_id: int,
    is_accumulated: bool,
) -> tuple[LoDArray, LoDArray, Any]:
    if level >= len(scores_lod):
        raise ExecutionError(f"scores should have more than {level} levels of sequences; feed them, or use lod_reset")
    before, totals, values = to_numpy(pre_ids).reshape(-1), to_numpy(pre_scores).reshape(-1), to_numpy(scores)
    words = np.broadcast_to(np.arange(values.shape[1]), values.shape) if ids is None else to_numpy(ids)
    if not is_accumulated:
        values = totals[:, None] + np.log(values)
    # A row that has ended has one candidate: itself.
    ended = before == end_id
    candidates = np.ones(values.shape, bool)
    candidates[ended, 1:] = False
    values, words = values.copy(), words.copy()
    values[ended, :1], words[ended, :1] = totals[ended][:, None], end_id
    sources = np.asarray(scores_lod[level])
    for deeper in scores_lod[level + 1 :]:
        sources = np.asarray(deeper)[sources]
    source_of_row = ids_of(sources)
    rows, columns = _best(values, candidates, source_of_row, beam_size)
    goes_on = np.bincount(source_of_row[rows], ~ended[rows], len(sources) - 1) > 0
    is_chosen = goes_on[source_of_row[rows]]
    rows, columns = rows[is_chosen], columns[is_chosen]
    parts = np.searchsorted(rows, np.arange(len(values) + 1))
    lod = (tuple(sources.tolist()), tuple(parts.tolist()))
    results = (words[rows, columns].astype(np.int64), values[rows, columns].astype(totals.dtype))
    chosen, reached = (LoDArray(xp.asarray(value[:, None]), lod) for value in results)
    return chosen, reached, xp.asarray(rows.astype(np.int32))
