"""Arrays whose rows form sequences."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import accumulate, pairwise
from operator import index
from typing import Any

import numpy as np

from ..errors import ExecutionError, LengthsError, shown
from .spec import Lod


class LoDArray:
    """An array whose rows form sequences, and its LoD: offsets level by level (see `fluid.values.spec.Lod`)."""

    __slots__ = ("array", "lod")

    def __init__(self, array: Any, lod: Lod) -> None:
        self.array = array
        self.lod = lod

    @property
    def shape(self) -> tuple[int, ...]:
        return self.array.shape  # type: ignore[no-any-return]

    @property
    def dtype(self) -> Any:
        return self.array.dtype

    @property
    def size(self) -> int:
        return self.array.size  # type: ignore[no-any-return]

    def copy(self) -> LoDArray:
        return LoDArray(self.array.copy(), self.lod)

    def __repr__(self) -> str:
        return f"<LoDArray {self.array!r} {self.lod}>"


def array_of(value: Any) -> Any:
    """The array of a `LoDArray`; any other value unchanged."""
    return value.array if type(value) is LoDArray else value


def lod_of(value: Any) -> Lod:
    """The LoD of a value; ``()`` if it has none."""
    return value.lod if type(value) is LoDArray else ()


def with_lod(array: Any, lod: Lod) -> Any:
    """A `LoDArray` of `array` and `lod`; the array itself if the LoD is empty."""
    return LoDArray(array, lod) if lod and array is not None else array


def lods_by_rows(inputs: Sequence[tuple[Sequence[int], Lod]], joins_rows: bool) -> dict[int, Lod]:
    """Number of rows -> the LoD that an op's output with so many rows has.

    The first input with a LoD and this number of rows gives it; with `joins_rows`, all inputs do, one after the other.

    Args:
        inputs: the shape and the LoD of each.
        joins_rows: see `OpDef.joins_rows`.
    """
    lods = {shape[0]: lod for shape, lod in reversed(inputs) if lod and shape}
    if joins_rows and lods and -1 not in lods and len({len(lod) for _, lod in inputs}) == 1:
        levels = zip(*(lod for _, lod in inputs), strict=True)
        lods = {sum(shape[0] for shape, _ in inputs): tuple(map(_joined_offsets, levels))}
    return lods


def _joined_offsets(levels: Sequence[Sequence[int] | None]) -> tuple[int, ...] | None:
    offsets = [0]
    for level in levels:
        if level is None:
            return None
        end = offsets[-1]
        offsets += [end + offset for offset in level[1:]]
    return tuple(offsets)


def lengths_of(offsets: Sequence[int]) -> list[int]:
    """Lengths of the sequences between these offsets."""
    return [end - start for start, end in pairwise(offsets)]


def lengths_as_array(offsets: Any) -> Any:
    """As `lengths_of`, as a numpy array. For a few offsets, `numpy.diff` takes three times as long."""
    offsets = np.asarray(offsets)
    return offsets[1:] - offsets[:-1]


def to_lengths(lod: Lod) -> list[list[int]]:
    """Lengths of the sequences, level by level; levels that are not known are left out."""
    return [lengths_of(level) for level in lod if level is not None]


def checked_lod(lod: Lod, subject: str, otherwise: str = "") -> Lod:
    """`lod`; `ExecutionError` if it is empty. `subject` names the value in the message, `otherwise` is further advice."""
    if not lod or lod[-1] is None:
        raise ExecutionError(f"{subject} holds no sequences; feed (array, lengths) or a LoDTensor{otherwise}")
    return lod


def last_offsets(lod: Lod, subject: str = "X", otherwise: str = "") -> Any:
    """Offsets of the last level, as a numpy array; errors as in `checked_lod`."""
    return np.asarray(checked_lod(lod, subject, otherwise)[-1], np.int64)


def repeated(array: Any, counts: Any) -> Any:
    """``numpy.repeat(array, counts)``, where numpy takes only counts as wide as a pointer: 32 bits in a browser."""
    return np.repeat(array, np.asarray(counts).astype(np.intp, copy=False))


def step_counts(lengths: Any) -> Any:
    """For each step, the number of sequences that have it, as a numpy array."""
    return len(lengths) - np.bincount(np.asarray(lengths, np.intp), minlength=1).cumsum()[:-1]


_PARTS = 4
"""The number of capacities from one power of two to the next: more of them mean fewer padding rows, and more compiled code.
Feeds with different sequences share them, since there is code for each combination of their capacities."""
_LEAST = 8
"""Capacities are multiples of this number."""


def capacity_of(rows: int, lods: int = 1) -> int:
    """Round a number of rows up, so that batches of similar lengths share compiled code.

    Args:
        lods: the number of different LoDs in the batch.
    """
    power_of_two = 1 << (rows - 1).bit_length()
    step = max(power_of_two // 2 // max(_PARTS // lods, 1), _LEAST)
    return -(-rows // step) * step


def rows_in_ranges(starts: Any, lengths: Any) -> Any:
    """The rows ``starts[i]``, ``starts[i] + 1``, ...: `lengths[i]` rows of each range, one range after the other."""
    return np.arange(lengths.sum()) + repeated(starts - (lengths.cumsum() - lengths), lengths)


def rows_of_copies(offsets: Any, times: Any) -> Any:
    """The rows of sequence i, `times[i]` times, then the rows of the next sequence."""
    copied = repeated(np.arange(len(times)), times)
    return rows_in_ranges(np.asarray(offsets, np.int64)[copied], lengths_as_array(offsets)[copied])


def ids_of(offsets: Any) -> Any:
    """For each row, the index of its sequence, as a numpy array."""
    return repeated(np.arange(len(offsets) - 1), lengths_as_array(offsets))


def checked_levels(levels: Any) -> list[list[int]]:
    """Lengths or offsets of sequences, level by level, as lists; `ExecutionError` if they are something else."""
    try:
        if isinstance(levels, Mapping):
            raise TypeError
        return [[index(item) for item in level] for level in levels]
    except Exception:  # no levels, or an error while reading them
        raise ExecutionError(
            "sequences are told of by lists of integers, level by level, as [[2, 3]] for two of 2 and 3 rows, not by "
            f"{shown(levels)}"
        ) from None


def refuse_other_counts(lengths: Sequence[Sequence[int]]) -> None:
    """`LengthsError` unless each level of lengths counts the sequences of the next."""
    for number, (outer, inner) in enumerate(pairwise(lengths)):
        if sum(outer) != len(inner):
            brief = _brief(list(outer))
            raise LengthsError(
                f"level {number} of the lengths, {brief}, counts {sum(outer)} sequences, but level {number + 1} has {len(inner)}"
            )


def check_offsets(lod: Sequence[Sequence[int]]) -> None:
    """`LengthsError` unless each level of offsets counts the sequences of the next."""
    refuse_other_counts([np.diff(level).tolist() for level in lod])


def to_lod(levels: Sequence[Sequence[int]], rows: int) -> Lod:
    """The LoD of an array of `rows` rows; each level is given as lengths or as offsets (from 0 to the end).

    Raises:
        ExecutionError: the levels do not fit each other, or the rows.
    """
    lod: list[tuple[int, ...]] = []
    levels, count = checked_levels(levels), rows
    for depth in range(len(levels) - 1, -1, -1):
        level = levels[depth]
        if level[:1] == [0] and level[-1] == count and level == sorted(level):
            offsets = level
        elif sum(level) == count and all(length >= 0 for length in level):
            offsets = list(accumulate(level, initial=0))
        else:
            unit = "rows" if depth == len(levels) - 1 else f"sequences in level {depth + 1}"
            raise ExecutionError(
                f"level {depth} of the LoD, {_brief(level)}, should be lengths that add up to {count} {unit}, "
                f"or offsets from 0 to {count}"
            )
        lod.append(tuple(offsets))
        count = len(offsets) - 1
    return tuple(reversed(lod))


def _brief(level: list[int]) -> str:
    return str(level) if len(level) <= 12 else f"[{', '.join(map(str, level[:10]))}, ... {len(level)} in all]"
