"""Move and number rows that form sequences: one level of sequences, described by a tensor of their lengths."""

from __future__ import annotations

import numpy as np

from fluid.values.spec import Spec
from fluid.values.types import VarType

from .exporting import exports
from .graph import NotExported, OnnxGraph, OnnxTensor, Size
from .making import as_vector, filled
from .shaping import add_rows as added_rows


def lengths_of_rows(x: OnnxTensor) -> OnnxTensor:
    if x.lengths is None:
        raise NotExported("rows whose sequences are not known")
    return x.lengths


def ends_of(g: OnnxGraph, lengths: OnnxTensor) -> OnnxTensor:
    return g.node("CumSum", [lengths, g.constant(np.int64(0))], lengths)


def starts_of(g: OnnxGraph, lengths: OnnxTensor) -> OnnxTensor:
    return g.binary("Sub", ends_of(g, lengths), lengths)


def _total(g: OnnxGraph, lengths: OnnxTensor) -> OnnxTensor:
    """The number of rows, of shape [1]."""
    return g.reduce("ReduceSum", lengths, [0], keep=True)


def ids_of(g: OnnxGraph, lengths: OnnxTensor, rows: Size) -> OnnxTensor:
    """For each row, the number of its sequence: the count of sequences that end before it."""
    passed = g.binary("GreaterOrEqual", g.unsqueeze(g.arange(rows), 1), g.unsqueeze(ends_of(g, lengths), 0))
    return g.reduce("ReduceSum", g.cast(passed, VarType.INT64), [1])


def within(g: OnnxGraph, lengths: OnnxTensor, rows: Size, ids: OnnxTensor) -> OnnxTensor:
    """For each row, its position in its sequence."""
    return g.binary("Sub", g.arange(rows), g.gather(starts_of(g, lengths), ids))


def like_rows(result: OnnxTensor, x: OnnxTensor) -> OnnxTensor:
    """Give a result with the rows of x its sequences."""
    if result.ndim and x.ndim:
        result.sizes = (x.sizes[0], *result.sizes[1:])
    result.lengths = x.lengths
    return result


# ------------------------------------------------------------------------------------------------------- moving rows
def taken_rows(g: OnnxGraph, x: OnnxTensor, index: OnnxTensor, missing: OnnxTensor | None = None) -> OnnxTensor:
    """Gather rows by number; `missing`, by default zeros, where the number is -1."""
    is_missing = g.binary("Less", index, g.constant(np.int64(0)))
    rows = g.gather(x, g.binary("Max", index, g.constant(np.int64(0))))
    mask = g.unsqueeze(is_missing, *range(is_missing.ndim, rows.ndim)) if rows.ndim > is_missing.ndim else is_missing
    return g.where(mask, g.number(0, x) if missing is None else missing, rows)


@exports("take_rows")
def take_rows(g: OnnxGraph, X: OnnxTensor, Index: OnnxTensor) -> OnnxTensor:
    result = taken_rows(g, X, g.cast(Index, VarType.INT64))
    result.lengths = Index.lengths
    return result


@exports("add_rows")
def add_rows(g: OnnxGraph, X: OnnxTensor, Index: OnnxTensor, Like: OnnxTensor) -> OnnxTensor:
    """Add rows at the positions of an index. Those with negative positions go to one more row, which is cut off."""
    count = g.size(Like, 0)
    index = g.reshape(g.cast(Index, VarType.INT64), [-1], (-1,))
    last = g.squeeze(g.as_size(count), 0)
    index = g.where(g.binary("Less", index, g.constant(np.int64(0))), last, index)
    inner = g.sizes_of(X)[Index.ndim :]
    rows = g.reshape(X, [g.size(index, 0) if any(not isinstance(n, int) for n in inner) else -1, *inner])
    padded_count: Size = count + 1 if isinstance(count, int) else g.binary("Add", count, g.ints(1))
    zeros = filled(g, g.joined_sizes([padded_count, *inner]), 0, Spec((-1, *Like.shape[1:]), X.dtype))
    summed = added_rows(g, zeros, index, rows)
    end = g.as_size(count)
    result = g.sized_node("Slice", [summed, g.ints(0), end, g.ints(0)], X.dtype, Like.sizes)
    result.lengths = Like.lengths
    return result


# ----------------------------------------------------------------------------------------------------------- indices
@exports("sequence_ids")
def sequence_ids(g: OnnxGraph, X: OnnxTensor) -> OnnxTensor:
    return like_rows(ids_of(g, lengths_of_rows(X), g.size(X, 0)), X)


@exports("row_of_each")
def row_of_each(g: OnnxGraph, X: OnnxTensor, Like: OnnxTensor) -> OnnxTensor:
    return X if Like.lengths is None else g.gather(X, ids_of(g, Like.lengths, g.size(Like, 0)))


@exports("sequence_lengths")
def sequence_lengths(g: OnnxGraph, X: OnnxTensor) -> OnnxTensor:
    return g.identity(lengths_of_rows(X))


@exports("sequence_ends")
def sequence_ends(g: OnnxGraph, X: OnnxTensor, first: bool) -> OnnxTensor:
    lengths = lengths_of_rows(X)
    at = starts_of(g, lengths) if first else g.binary("Sub", ends_of(g, lengths), g.constant(np.int64(1)))
    return g.where(is_empty(g, lengths), g.constant(np.int64(-1)), at)


def is_empty(g: OnnxGraph, lengths: OnnxTensor) -> OnnxTensor:
    return g.binary("Equal", lengths, g.constant(np.int64(0)))


def _context(g: OnnxGraph, X: OnnxTensor, start: int, length: int) -> tuple[OnnxTensor, OnnxTensor, OnnxTensor]:
    """For each row, the rows around it; and the start and end of its sequence, as columns."""
    if X.lengths is None and X.ndim == 3:  # sequences of one length
        steps = g.as_size(g.size(X, 1))
        rows: Size = g.product_of(g.sizes_of(X)[:2])
        number = g.arange(rows)
        begin = g.binary("Sub", number, g.binary("Mod", number, steps))
        end = g.binary("Add", begin, steps)
    else:
        lengths = lengths_of_rows(X)
        number = g.arange(g.size(X, 0))
        ids = ids_of(g, lengths, g.size(X, 0))
        begin, end = g.gather(starts_of(g, lengths), ids), g.gather(ends_of(g, lengths), ids)
    around = g.binary("Add", g.unsqueeze(number, 1), g.constant(np.arange(start, start + length, dtype=np.int64)[None]))
    return around, g.unsqueeze(begin, 1), g.unsqueeze(end, 1)


@exports("sequence_context")
def sequence_context(g: OnnxGraph, X: OnnxTensor, start: int, length: int) -> OnnxTensor:
    around, begin, end = _context(g, X, start, length)
    is_inside = g.binary("And", g.binary("GreaterOrEqual", around, begin), g.binary("Less", around, end))
    result = g.where(is_inside, around, g.constant(np.int64(-1)))
    return like_rows(result, X) if X.lengths is not None else result


@exports("sequence_margins")
def sequence_margins(g: OnnxGraph, X: OnnxTensor, start: int, length: int) -> OnnxTensor:
    around, begin, end = _context(g, X, start, length)
    up = g.constant(np.int64(max(0, -start)))
    before = g.binary("Add", g.binary("Sub", around, begin), up)
    after = g.binary("Add", g.binary("Sub", around, end), up)
    result = g.where(g.binary("GreaterOrEqual", around, end), after, g.constant(np.int64(-1)))
    result = g.where(g.binary("Less", around, begin), before, result)
    return like_rows(result, X) if X.lengths is not None else result


@exports("sequence_reversed")
def sequence_reversed(g: OnnxGraph, X: OnnxTensor) -> OnnxTensor:
    lengths = lengths_of_rows(X)
    ids = ids_of(g, lengths, g.size(X, 0))
    ends = g.binary("Add", g.gather(starts_of(g, lengths), ids), g.gather(ends_of(g, lengths), ids))
    last = g.binary("Sub", ends, g.constant(np.int64(1)))
    return like_rows(g.binary("Sub", last, g.arange(g.size(X, 0))), X)


def padded_rows(g: OnnxGraph, lengths: OnnxTensor, width: Size) -> OnnxTensor:
    """The row at step t of sequence s; -1 after its end."""
    t = g.unsqueeze(g.arange(width), 0)
    at = g.binary("Add", g.unsqueeze(starts_of(g, lengths), 1), t)
    is_inside = g.binary("Less", t, g.unsqueeze(lengths, 1))
    return g.where(is_inside, at, g.constant(np.int64(-1)))


def longest_of(g: OnnxGraph, lengths: OnnxTensor) -> OnnxTensor:
    return g.reduce("ReduceMax", g.concat([lengths, g.ints(0)], 0), [0], keep=True)


def width(g: OnnxGraph, lengths: OnnxTensor, padded_length: int) -> Size:
    return padded_length if padded_length != -1 else longest_of(g, lengths)


@exports("sequence_positions")
def sequence_positions(g: OnnxGraph, X: OnnxTensor, Like: OnnxTensor | None, padded_length: int) -> OnnxTensor:
    lengths = lengths_of_rows(X)
    return padded_rows(g, lengths, width(g, lengths, padded_length) if Like is None else g.size(Like, 1))


def repeated(g: OnnxGraph, X: OnnxTensor, times: OnnxTensor) -> tuple[OnnxTensor, OnnxTensor | None]:
    """The rows that `sequence_expand` copies, and the lengths of the new sequences."""
    total = _total(g, times)
    sequence_ids = ids_of(g, times, total)
    if X.lengths is None:
        return sequence_ids, None
    lengths = g.gather(X.lengths, sequence_ids)
    rows = _total(g, lengths)
    ids = ids_of(g, lengths, rows)
    source = g.gather(g.gather(starts_of(g, X.lengths), sequence_ids), ids)
    return g.binary("Add", source, within(g, lengths, rows, ids)), lengths


@exports("sequence_expanded")
def sequence_expanded(g: OnnxGraph, X: OnnxTensor, Y: OnnxTensor) -> OnnxTensor:
    index, lengths = repeated(g, X, lengths_of_rows(Y))
    index.lengths = lengths
    return index


def concatenated(g: OnnxGraph, X: list[OnnxTensor], number: int) -> OnnxTensor:
    """For each row of input `number`, its place among the rows of all inputs, joined sequence by sequence."""
    lengths = [lengths_of_rows(tensor) for tensor in X]
    total_lengths = lengths[0]
    for part_lengths in lengths[1:]:
        total_lengths = g.binary("Add", total_lengths, part_lengths)
    begin = starts_of(g, total_lengths)
    for part_lengths in lengths[:number]:
        begin = g.binary("Add", begin, part_lengths)
    rows = g.size(X[number], 0)
    ids = ids_of(g, lengths[number], rows)
    return g.binary("Add", g.gather(begin, ids), within(g, lengths[number], rows, ids))


@exports("sequence_concatenated")
def sequence_concatenated(g: OnnxGraph, X: list[OnnxTensor], which: int) -> OnnxTensor:
    return like_rows(concatenated(g, X, which), X[which])


def cut_rows(g: OnnxGraph, starts: OnnxTensor, lengths: OnnxTensor) -> OnnxTensor:
    """The rows of pieces with these starts and lengths."""
    rows = _total(g, lengths)
    ids = ids_of(g, lengths, rows)
    return g.binary("Add", g.gather(starts, ids), within(g, lengths, rows, ids))


@exports("sequence_sliced")
def sequence_sliced(g: OnnxGraph, X: OnnxTensor, Offset: OnnxTensor, Length: OnnxTensor, Like: OnnxTensor) -> OnnxTensor:
    starts = g.binary("Add", starts_of(g, lengths_of_rows(X)), as_vector(g, Offset))
    return like_rows(cut_rows(g, starts, as_vector(g, Length)), Like)


@exports("sequence_scattered")
def sequence_scattered(g: OnnxGraph, Ids: OnnxTensor) -> OnnxTensor:
    ids = ids_of(g, lengths_of_rows(Ids), g.size(Ids, 0))
    both = g.concat([g.unsqueeze(ids, 1), g.unsqueeze(as_vector(g, Ids), 1)], 1)
    return like_rows(both, Ids)
