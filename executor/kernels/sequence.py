"""Kernels of `fluid.ops.sequence`. Positions come from the LoD, on the host."""

from __future__ import annotations

from itertools import accumulate
from math import prod
from typing import Any

import numpy as np

from fluid.errors import ExecutionError, IndexRangeError
from fluid.ops.sequence import expanded_rows
from fluid.values.lod_array import LoDArray, ids_of, last_offsets, lengths_as_array, rows_in_ranges, to_lod
from fluid.values.place import to_numpy
from fluid.values.selected_rows import add_rows_at
from fluid.values.spec import Lod, Spec
from fluid.values.types import as_dtype

from .manipulation import check_ids, flattened, take
from .sums import ROWS, reduce_ranges
from .table import Slots, checked, kernel


# ------------------------------------------------------------------------------------------------------- moving rows
def _check_rows(Index: Any, rows: int) -> None:
    """An `IndexRangeError` if an index is too large; negative ones stand for zeros."""
    last = int(Index.max()) if Index.size else -1
    if last >= rows:
        raise IndexRangeError(f"Index: index {last} is outside of [0, {rows})")


@checked("take_rows", "take_at_most")
def check_rows_of_x(X: Any, Index: Any) -> None:
    _check_rows(Index, len(X))


@checked("add_rows", "max_rows", "place_at_most")
def check_rows_of_out(Index: Any, Out: Any) -> None:
    _check_rows(Index, len(Out))


@kernel("take_rows")
def take_rows(xp: Any, X: Any, Index: Any, Out: Any) -> None:
    if not len(X):
        Out.fill(0)
        return
    missing = Index < 0
    take(xp, X, xp.where(missing, 0, Index), 0, Out)
    Out[missing] = 0


@kernel("add_rows")
def add_rows(xp: Any, X: Any, Index: Any, Out: Any) -> None:
    Out.fill(0)
    if not len(Out):
        return
    is_row = Index >= 0  # elsewhere, zeros are added to the first row
    rows = xp.where(is_row.reshape(*is_row.shape, *[1] * (X.ndim - is_row.ndim)), X, X.dtype.type(0))
    add_rows_at(xp, rows, xp.where(is_row, Index, 0).reshape(-1), Out)


@kernel("max_rows")
def max_rows(xp: Any, X: Any, Index: Any, Out: Any) -> None:
    rows = xp.where(Index >= 0, Index, len(Out))  # rows of no sequence go to a row behind
    maxima = xp.full((len(Out) + 1, *Out.shape[1:]), -np.inf, Out.dtype)
    xp.maximum.at(maxima, rows, X)
    has_rows = xp.zeros(len(Out) + 1, bool)
    has_rows[rows] = True
    xp.copyto(Out, xp.where(has_rows[:-1].reshape(-1, *[1] * (Out.ndim - 1)), maxima[:-1], 0))


@kernel("take_at_most")
def take_at_most(xp: Any, X: Any, Index: Any, Out: Any) -> None:
    Out.fill(0)
    if Out.size and len(X):
        columns = xp.arange(Out[0].size)
        flat, index = flattened(Out, 1), flattened(Index, 1)
        values = flattened(X, 1)[xp.maximum(index, 0), columns]
        xp.copyto(flat, xp.where(index < 0, 0, values))


@kernel("place_at_most")
def place_at_most(xp: Any, X: Any, Index: Any, Out: Any) -> None:
    Out.fill(0)
    if X.size:
        index = flattened(Index, 1)
        rows, columns = xp.nonzero(index >= 0)
        flattened(Out, 1)[index[rows, columns], columns] = flattened(X, 1)[rows, columns]


# ----------------------------------------------------------------------------------------------------------- indices
def _put(xp: Any, out: Any, host: Any) -> None:
    out[...] = xp.asarray(np.asarray(host), dtype=out.dtype)


@kernel("sequence_ids")
def sequence_ids(xp: Any, X_lod: Lod, Out: Any) -> None:
    _put(xp, Out, ids_of(last_offsets(X_lod)))


@kernel("sequence_lengths")
def sequence_lengths(xp: Any, X_lod: Lod, Out: Any) -> None:
    _put(xp, Out, lengths_as_array(last_offsets(X_lod)))


def ends_of(offsets: Any, first: bool) -> Any:
    return np.where(lengths_as_array(offsets) > 0, offsets[:-1] if first else offsets[1:] - 1, -1)


@kernel("sequence_ends")
def sequence_ends(xp: Any, X_lod: Lod, first: bool, Out: Any) -> None:
    _put(xp, Out, ends_of(last_offsets(X_lod), first))


def context_of(offsets: Any, start: int, length: int) -> Any:
    ids = ids_of(offsets)
    rows = np.arange(offsets[-1])[:, None] + np.arange(start, start + length)
    in_sequence = (rows >= offsets[ids][:, None]) & (rows < offsets[ids + 1][:, None])
    return np.where(in_sequence, rows, -1)


def _offsets(X: Any, lod: Lod) -> Any:
    """The offsets of the sequences of X; in a batch ``[batch, steps, width]``, all have one length."""
    if X.ndim == 3 and not lod:
        return np.arange(len(X) + 1) * X.shape[1]
    return last_offsets(lod)


@kernel("sequence_context")
def sequence_context(xp: Any, X: Any, X_lod: Lod, start: int, length: int, Out: Any) -> None:
    _put(xp, Out, context_of(_offsets(X, X_lod), start, length))


def _margins(offsets: Any, start: int, length: int) -> Any:
    ids = ids_of(offsets)
    rows = np.arange(offsets[-1])[:, None] + np.arange(start, start + length)
    before, after = rows - offsets[ids][:, None], rows - offsets[ids + 1][:, None]
    margin = np.where(before < 0, before, after) + max(0, -start)
    return np.where((before < 0) | (after >= 0), margin, -1)


@kernel("sequence_margins")
def sequence_margins(xp: Any, X: Any, X_lod: Lod, start: int, length: int, Out: Any) -> None:
    _put(xp, Out, _margins(_offsets(X, X_lod), start, length))


def mirrored(offsets: Any) -> Any:
    ids = ids_of(offsets)
    return offsets[ids] + offsets[ids + 1] - 1 - np.arange(offsets[-1])


@kernel("sequence_reversed")
def sequence_reversed(xp: Any, X_lod: Lod, Out: Any) -> None:
    _put(xp, Out, mirrored(last_offsets(X_lod)))


@kernel("sequence_positions")
def sequence_positions(xp: Any, X_lod: Lod, Out: Any) -> None:
    offsets = last_offsets(X_lod)
    rows = offsets[:-1, None] + np.arange(Out.shape[1])
    _put(xp, Out, np.where(rows < offsets[1:, None], rows, -1))


def _spec(array: Any, lod: Lod) -> Spec:
    return Spec(array.shape, as_dtype(array.dtype), lod=lod)


@kernel("sequence_expanded")
def sequence_expanded(xp: Any, X: Any, X_lod: Lod, Y: Any, Y_lod: Lod, ref_level: int, Out: Any) -> None:
    _put(xp, Out, expanded_rows(_spec(X, X_lod), _spec(Y, Y_lod), ref_level))


def places_in_concatenation(offsets: list[Any], number: int) -> Any:
    """The places of the rows of input `number` in the concatenation of sequences with these offsets."""
    starts = sum(offset[:-1] for offset in offsets) + sum(lengths_as_array(offset) for offset in offsets[:number])
    return rows_in_ranges(starts, lengths_as_array(offsets[number]))


@kernel("sequence_concatenated")
def sequence_concatenated(xp: Any, X_lod: list[Lod], attrs: Slots, Out: Any) -> None:
    _put(xp, Out, places_in_concatenation(list(map(last_offsets, X_lod)), attrs["which"]))


def sliced(offsets: Any, Offset: Any, Length: Any) -> tuple[Any, Any]:
    """The rows that `sequence_slice` selects, and their offsets."""
    starts, lengths = (to_numpy(value).reshape(-1).astype(np.int64) for value in (Offset, Length))
    rows_of_sequences = lengths_as_array(offsets)
    is_wrong = (starts < 0) | (lengths < 0) | (starts + lengths > rows_of_sequences)
    if is_wrong.any():
        number = int(is_wrong.argmax())
        part = f"{lengths[number]} from {starts[number]} on"
        raise ExecutionError(f"sequence {number} has {rows_of_sequences[number]} rows, of which {part} are asked for")
    return rows_in_ranges(offsets[:-1] + starts, lengths), np.concatenate([[0], np.cumsum(lengths)])


@kernel("sequence_sliced")
def sequence_sliced(xp: Any, X_lod: Lod, Offset: Any, Length: Any, Out: Any) -> None:
    _put(xp, Out, sliced(last_offsets(X_lod), Offset, Length)[0])


@kernel("sequence_scattered")
def sequence_scattered(xp: Any, Ids: Any, Ids_lod: Lod, Out: Any) -> None:
    _put(xp, Out[:, 0], ids_of(last_offsets(Ids_lod, "Ids")))
    Out[:, 1] = Ids.reshape(-1)


# ----------------------------------------------------------------------------------------------------------- pooling
def _reduce(xp: Any, ufunc: Any, X: Any, offsets: Any, Out: Any) -> None:
    """`ufunc` over the rows of each sequence that has any."""
    filled = np.flatnonzero(lengths_as_array(offsets))
    if xp.__name__ != "numpy":  # cupy has reduceat for sums alone
        later = np.setdiff1d(np.arange(offsets[-1]), offsets[:-1])
        Out[xp.asarray(filled)] = X[xp.asarray(offsets[filled])]
        ufunc.at(Out, xp.asarray(ids_of(offsets)[later]), X[xp.asarray(later)])
        return
    rows, starts = X, np.asarray(offsets[filled], np.intp)
    if ufunc is np.add and lengths_as_array(offsets).max(initial=0) > ROWS:  # numpy adds row after row, and rounds each time
        firsts = np.union1d(starts, np.arange(0, len(X), ROWS // 4))
        rows, starts = np.empty((len(firsts), *X.shape[1:]), X.dtype), np.searchsorted(firsts, starts)
        reduce_ranges(ufunc, X, firsts, rows)
    if len(filled):
        results = Out if len(filled) == len(Out) else np.empty((len(filled), *Out.shape[1:]), Out.dtype)
        reduce_ranges(ufunc, rows, starts, results)
        if results is not Out:
            Out[filled] = results


def _argmax(xp: Any, X: Any, offsets: Any, top: Any) -> Any:
    """The first row, of each sequence that has any, where each element is `top`, or NaN."""
    ids = xp.asarray(ids_of(offsets))
    rows = xp.arange(len(X)).reshape(-1, *[1] * (X.ndim - 1))
    places = xp.where((xp.take(top, ids, axis=0) == X) | (X != X), rows, len(X))
    first = xp.full(top.shape, -1, places.dtype)
    _reduce(xp, xp.minimum, places, offsets, first)
    return first


@kernel("sequence_pool")
def sequence_pool(xp: Any, X: Any, X_lod: Lod, pooltype: str, pad_value: float, Out: Any, MaxIndex: Any) -> None:
    offsets, kind = last_offsets(X_lod), pooltype.upper()
    lengths = lengths_as_array(offsets)
    if kind in ("LAST", "FIRST"):
        take_rows(xp, X, xp.asarray(ends_of(offsets, kind == "FIRST")), Out)
    else:
        Out.fill(0)
        _reduce(xp, xp.maximum if kind == "MAX" else xp.add, X, offsets, Out)
    if kind in ("AVERAGE", "SQRT"):
        divisor = np.maximum(lengths, 1).astype(X.dtype)
        divisor = divisor if kind == "AVERAGE" else np.sqrt(divisor)
        Out /= xp.asarray(divisor).reshape(-1, *[1] * (X.ndim - 1))
    if not lengths.all():
        Out[xp.asarray(lengths == 0)] = pad_value
    if MaxIndex is not None:
        MaxIndex[...] = _argmax(xp, X, offsets, Out) if kind == "MAX" else 0


@kernel("sequence_softmax")
def sequence_softmax(xp: Any, X: Any, X_lod: Lod, Out: Any) -> None:
    offsets = last_offsets(X_lod)
    ids = xp.asarray(ids_of(offsets))
    totals = xp.zeros((len(offsets) - 1, *X.shape[1:]), X.dtype)
    _reduce(xp, xp.maximum, X, offsets, totals)
    xp.exp(X - totals[ids], out=Out)
    _reduce(xp, xp.add, Out, offsets, totals)
    Out /= totals[ids]


# --------------------------------------------------------------------------------------- expanding, cutting, joining
@kernel("sequence_expand")
def sequence_expand(xp: Any, X: Any, X_lod: Lod, Y: Any, Y_lod: Lod, ref_level: int, Out: Any) -> None:
    rows = expanded_rows(_spec(X, X_lod), _spec(Y, Y_lod), ref_level)
    take(xp, X, xp.asarray(rows, dtype="int64"), 0, Out)


@kernel("sequence_expand_as")
def sequence_expand_as(xp: Any, X: Any, Y_lod: Lod, Out: Any) -> None:
    take(xp, X, xp.asarray(ids_of(last_offsets(Y_lod, "Y"))), 0, Out)


@kernel("sequence_concat")
def sequence_concat(xp: Any, X: list[Any], X_lod: list[Lod], Out: Any) -> None:
    offsets = list(map(last_offsets, X_lod))
    for number, x in enumerate(X):
        Out[xp.asarray(places_in_concatenation(offsets, number))] = x


@kernel("sequence_slice")
def sequence_slice(xp: Any, X: Any, X_lod: Lod, Offset: Any, Length: Any) -> LoDArray:
    rows, offsets = sliced(last_offsets(X_lod), Offset, Length)
    return LoDArray(X[xp.asarray(rows)], (tuple(offsets.tolist()),))


@kernel("sequence_pad")
def sequence_pad(xp: Any, X: Any, X_lod: Lod, PadValue: Any, Out: Any, Length: Any) -> None:
    offsets = last_offsets(X_lod)
    if Length is not None:
        _put(xp, Length, lengths_as_array(offsets))
    if Out is not None:
        Out[...] = PadValue.reshape(X.shape[1:] if PadValue.size != 1 else ())
        ids = ids_of(offsets)
        Out[xp.asarray(ids), xp.asarray(np.arange(offsets[-1]) - offsets[ids])] = X


@kernel("sequence_unpad")
def sequence_unpad(xp: Any, X: Any, Length: Any) -> LoDArray:
    lengths = to_numpy(Length).reshape(-1).tolist()
    if any(not 0 <= length <= X.shape[1] for length in lengths):
        raise ExecutionError(f"Length {lengths} should hold numbers from 0 to the {X.shape[1]} steps of X")
    offsets = tuple(accumulate(lengths, initial=0))
    ids = ids_of(offsets)
    steps = np.arange(offsets[-1]) - np.asarray(offsets)[ids]
    rows = X[xp.asarray(ids), xp.asarray(steps)]
    return LoDArray(rows.reshape(-1, 1) if rows.ndim == 1 else rows, (offsets,))


@kernel("sequence_reshape")
def sequence_reshape(xp: Any, X: Any, Out: Any) -> None:
    xp.copyto(Out, X.reshape(Out.shape))


@kernel("sequence_reverse")
def sequence_reverse(xp: Any, X: Any, X_lod: Lod, Y: Any) -> None:
    take(xp, X, xp.asarray(mirrored(last_offsets(X_lod))), 0, Y)


@kernel("sequence_enumerate")
def sequence_enumerate(xp: Any, X: Any, X_lod: Lod, win_size: int, pad_value: int, Out: Any) -> None:
    index = xp.asarray(context_of(last_offsets(X_lod), 0, win_size))
    xp.copyto(Out, xp.where(index < 0, pad_value, X.reshape(-1)[index]) if len(X) else 0)


@kernel("sequence_erase")
def sequence_erase(xp: Any, X: Any, X_lod: Lod, tokens: list[int]) -> LoDArray:
    is_kept = ~np.isin(to_numpy(X).reshape(-1), tokens)
    before = np.concatenate([[0], np.cumsum(is_kept)])
    return LoDArray(X[xp.asarray(is_kept)], (*X_lod[:-1], tuple(before[last_offsets(X_lod)].tolist())))


@checked("sequence_scatter")
def check_sequence_scatter(X: Any, Ids: Any) -> None:
    check_ids(Ids, X.shape[1], "sequence_scatter")


@kernel("sequence_scatter")
def sequence_scatter(xp: Any, X: Any, Ids: Any, Ids_lod: Lod, Updates: Any, Out: Any) -> None:
    xp.copyto(Out, X)
    xp.add.at(Out, (xp.asarray(ids_of(last_offsets(Ids_lod, "Ids"))), Ids.reshape(-1)), Updates.reshape(-1))


# ------------------------------------------------------------------------------------------------------- convolution
@kernel("row_conv")
def row_conv(xp: Any, X: Any, X_lod: Lod, Filter: Any, Out: Any) -> None:
    offsets = _offsets(X, X_lod)
    Out.fill(0)
    X, Out = (array.reshape(offsets[-1], array.shape[-1]) for array in (X, Out))
    for step in range(len(Filter)):
        index = context_of(offsets, step, 1)[:, 0]
        rows = np.flatnonzero(index >= 0)
        Out[xp.asarray(rows)] += X[xp.asarray(index[rows])] * Filter[step]


# --------------------------------------------------------------------------------------------------------------- LoD
@kernel("lod_reset")
def lod_reset(xp: Any, X: Any, X_lod: Lod, Y: Any, append: bool, Out: Any) -> LoDArray | None:
    if Out is not None:
        xp.copyto(Out, X)
        return None
    lod = to_lod([to_numpy(Y).reshape(-1).tolist()], len(X))  # Y holds the offsets
    return LoDArray(X.copy(), (*X_lod, *lod) if append else lod)


def _patch_counts(shape: tuple[int, ...], Y: Any, attrs: Slots) -> list[list[int]]:
    """The rows and columns of patches of each image; see `im2sequence`."""
    sizes: list[Any] = [shape[2:]] * shape[0]
    if Y is not None and shape[0] != 1:
        sizes = [[-(-int(size) // by) for size, by in zip(row, attrs["out_stride"], strict=True)] for row in to_numpy(Y)]
    low, high = attrs["paddings"][:2], attrs["paddings"][2:]
    return [
        [max(0, (size[at] + low[at] + high[at] - attrs["kernels"][at]) // attrs["strides"][at] + 1) for at in (0, 1)]
        for size in sizes
    ]


def _patches_of(shape: tuple[int, ...], counts: list[int], attrs: Slots) -> Any:
    """For each element of the patches of an image, its index in the image; -1 in the padding."""
    channels, *extents = shape
    axes = []
    for extent, count, width, stride, low in zip(
        extents, counts, attrs["kernels"], attrs["strides"], attrs["paddings"][:2], strict=True
    ):
        at = np.arange(count)[:, None] * stride - low + np.arange(width)
        axes.append(np.where((at >= 0) & (at < extent), at, -1))
    rows, columns = axes[0][:, None, None, :, None], axes[1][None, :, None, None, :]
    planes = np.arange(channels)[:, None, None] * (extents[0] * extents[1])
    index = np.where((rows < 0) | (columns < 0), -1, planes + rows * extents[1] + columns)
    return index.reshape(counts[0] * counts[1], channels * prod(attrs["kernels"]))


def _patch_index(shape: tuple[int, ...], counts: list[list[int]], attrs: Slots) -> Any:
    patches = {tuple(count): _patches_of(shape[1:], count, attrs) for count in counts}
    size = shape[1] * shape[2] * shape[3]
    index = [np.where(patches[tuple(count)] < 0, -1, patches[tuple(count)] + image * size) for image, count in enumerate(counts)]
    return np.concatenate([np.empty((0, shape[1] * prod(attrs["kernels"])), np.int64), *index])


@kernel("patch_index")
def patch_index(xp: Any, X: Any, Y: Any, attrs: Slots, Out: Any) -> None:
    _put(xp, Out, _patch_index(X.shape, _patch_counts(X.shape, Y, attrs), attrs))


@kernel("im2sequence")
def im2sequence(xp: Any, X: Any, Y: Any, attrs: Slots, Out: Any) -> LoDArray | None:
    counts = _patch_counts(X.shape, Y, attrs)
    index = xp.asarray(_patch_index(X.shape, counts, attrs))
    if Out is not None:
        take_rows(xp, X.reshape(-1), index, Out)
        return None
    rows = xp.empty(index.shape, X.dtype)  # the values of Y decide the number of rows
    take_rows(xp, X.reshape(-1), index, rows)
    return LoDArray(rows, (tuple(accumulate((high * wide for high, wide in counts), initial=0)),))


@kernel("pad_sequences")
def pad_sequences(
    xp: Any, X: list[Any], X_lod: list[Lod], Out: list[Any], Ids: list[Any], Divisors: list[Any], Numbers: Any
) -> None:
    for x, lod, out, ids, divisors in zip(X, X_lod, Out, Ids, Divisors, strict=True):
        offsets, rows = last_offsets(lod), len(x)
        out[:rows], ids[rows:] = x, -1
        out[rows:] = x[0] if rows else 0
        _put(xp, ids[:rows], ids_of(offsets))
        _put(xp, divisors, np.maximum(lengths_as_array(offsets), 1)[:, None])
    _put(xp, Numbers, np.arange(len(Numbers))[:, None])


@kernel("active_ids")
def active_ids(xp: Any, Ids: Any, Numbers: Any, Out: Any) -> None:
    Out.fill(-1)
    if Numbers.size:
        numbers, is_row = Numbers.reshape(-1), (Ids >= 0) & (Ids < Numbers.size)
        is_active = is_row & (numbers[xp.where(is_row, Ids, 0)] == Ids)
        xp.copyto(Out, Ids, where=is_active)


@kernel("resize_rows")
def resize_rows(X: Any, Out: Any) -> None:
    count = min(len(X), len(Out))
    Out[:count] = X[:count]
    Out[count:] = 0
