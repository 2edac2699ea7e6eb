"""The sequences of the feeds of a run, and the indices that follow from their offsets."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from operator import sub
from typing import Any

import numpy as np

from fluid.errors import ExecutionError, locate, op_failure
from fluid.ir.program import Operator
from fluid.values.lod_array import capacity_of, ids_of, lengths_as_array, rows_in_ranges
from fluid.values.spec import Lod, Spec
from fluid.values.types import VarType

from ..backend import Request
from ..kernels.sequence import places_in_concatenation, sliced

__all__ = [
    "DerivedLod", "Extent", "Index", "SequenceBatch", "batch_of", "countdown_of", "divisors_of", "filled", "goes_on",
    "joined_offsets", "joined_rows", "lods_of", "number_of_rows", "padded_places", "places_at_steps", "places_in_slices",
    "places_of_part", "ranks_of", "row_numbers_of", "rows_at_steps", "rows_in", "sliced_offsets", "sliced_rows",
    "square_roots_of", "steps_of",
]  # fmt: skip


@dataclass(frozen=True)
class SequenceBatch:
    """The sequences of the feeds of a run.

    Attributes:
        groups: name of a feed whose rows form sequences -> the number of its LoD; equal LoDs are one.
        lengths: name of a feed that holds the lengths of sequences, for `sequence_unpad` -> the number of their LoD.
        sizes: for each LoD, the number of sequences of its last level, and the capacity. Nested sequences fill the capacity
            around them: the last ones are empty.
        parents: for each LoD, the number of the LoD without its last level; None for one level.
        steps: for each LoD, the number of steps that its longest sequence is padded to; empty for programs without loops over
            steps.
        specs: the specs of the feeds with their padding, without LoDs.
    """

    groups: Mapping[str, int]
    lengths: Mapping[str, int]
    sizes: tuple[tuple[int, int], ...]
    parents: tuple[int | None, ...]
    steps: tuple[int, ...]
    specs: Mapping[str, Spec]

    @property
    def key(self) -> Hashable:
        """What a plan for such batches depends on."""
        return (*self.division, *self.sizes, *self.steps, *self.specs.items())

    @property
    def division(self) -> tuple[Any, ...]:
        """The feeds of sequences and of lengths, grouped by equal LoDs."""
        return (*self.groups.items(), *self.lengths.items(), self.parents)

    def lods(self, feeds: Mapping[str, Any]) -> dict[int, Lod]:
        """The LoDs of feeds, and their outer levels, by number."""
        lods: dict[int, Lod] = {}
        for name, group in {**self.groups, **self.lengths}.items():
            lod = _lod_of(feeds[name]) if name in self.lengths else feeds[name].lod
            number: int | None = group
            while number is not None:
                lods[number], lod, number = lod, lod[:-1], self.parents[number]
        return {number: lods[number] for number in range(len(self.sizes))}


def batch_of(request: Request, lengths: Sequence[str] = (), has_steps: bool = False) -> SequenceBatch | None:
    """The sequences of a request; None if it has none, or feeds a list, or sequences without rows.

    Args:
        lengths: the feeds that hold lengths of sequences.
        has_steps: whether the program has loops over the steps of sequences.
    """
    if len(request.specs) < len(request.feeds):
        return None
    fed = dict(sorted(request.specs.items()))
    lod_of = {name: spec.lod for name, spec in fed.items() if spec.lod}
    lod_of |= {name: _lod_of(request.feeds[name]) for name in sorted(lengths) if name in fed}
    lods = list(dict.fromkeys(lod_of.values()))
    if not lods or any(not lod or any(len(level or ()) < 2 or not rows_in((level,)) for level in lod) for lod in lods):
        return None
    levels = list(dict.fromkeys(lod[:depth] for lod in lods for depth in range(1, len(lod) + 1)))
    parents = tuple(levels.index(lod[:-1]) if len(lod) > 1 else None for lod in levels)
    all_groups = {name: levels.index(lod) for name, lod in lod_of.items()}
    groups = {name: group for name, group in all_groups.items() if name not in lengths}
    group_of_lengths = {name: all_groups[name] for name in lengths if name in fed}
    sizes: list[tuple[int, int]] = []
    for lod, parent in zip(levels, parents, strict=True):
        count = len(lod[-1] or ()) - 1 if parent is None else sizes[parent][1]
        sizes.append((count, capacity_of(rows_in(lod), len(lods))))
    specs = {name: Spec((sizes[group][1], *fed[name].shape[1:]), fed[name].dtype) for name, group in groups.items()}
    last_levels = [lod[-1] or () for lod in levels] if has_steps else []
    steps = tuple(capacity_of(max(map(sub, offsets[1:], offsets)), len(lods)) for offsets in last_levels)
    return SequenceBatch(groups, group_of_lengths, tuple(sizes), parents, steps, {**fed, **specs})


def _lod_of(lengths: Any) -> Lod:
    """The LoD of sequences of these lengths; without levels if there are no such sequences."""
    numbers = np.asarray(lengths).reshape(-1)
    if numbers.dtype.kind not in "iu" or numbers.min(initial=0) < 0:
        return ()
    return ((0, *np.cumsum(numbers).tolist()),)


def lods_of(offsets: Iterable[Any], parents: Iterable[int | None]) -> list[Lod]:
    """The LoDs with these last levels. Empty sequences that fill a level up are left out.

    Args:
        parents: for each LoD, the number of the LoD without its last level, which comes before it; None for one level.
    """
    lods: list[Lod] = []
    for numbers, parent in zip(offsets, parents, strict=True):
        above = () if parent is None else lods[parent]
        lods.append((*above, tuple((numbers[: rows_in(above) + 1] if above else numbers).tolist())))
    return lods


def rows_in(lod: Lod) -> int:
    """The number of rows in the sequences of a LoD's last level."""
    assert lod[-1] is not None
    return lod[-1][-1]


# ------------------------------------------------------------------------------------------------------------ indices
class Extent(Enum):
    """What each number of an index stands for."""

    ROWS = "each row"
    SEQUENCES = "each sequence"
    OFFSETS = "each end of a sequence"
    STEPS = "each step"
    BATCH = "the batch"


@dataclass(frozen=True)
class DerivedLod:
    """The LoD of sequences that an op makes.

    Attributes:
        groups: the numbers of the LoDs that it follows from.
        compute: a function from their offsets to its own.
        feeds: the names of feeds whose arrays are arguments of `compute`, too.
        arguments: further arguments of `compute`.
    """

    groups: tuple[int, ...]
    compute: Callable[..., Any]
    feeds: tuple[str, ...] = ()
    arguments: tuple[Any, ...] = ()

    def offsets(self, offsets: Mapping[int, Any], feeds: Mapping[str, Any]) -> Any:
        """Its offsets, for the offsets of each LoD before it."""
        of_groups, arrays = (offsets[group] for group in self.groups), (feeds[name] for name in self.feeds)
        return self.compute(*of_groups, *arrays, *self.arguments)


@dataclass(frozen=True)
class Index:
    """Numbers that follow from the offsets of sequences; they are fed.

    Attributes:
        group: the number of the LoD.
        compute: a function from the offsets to the numbers.
        extent: what each number stands for.
        padding: the number in padding rows; None for the numbers of the first row.
        dtype: the element type.
        width: the count of numbers in a row; 0 for an array of one dimension.
        steps: the count of steps.
        beside: the numbers of further LoDs, whose offsets are arguments of `compute`, too.
        feeds: the names of feeds whose arrays are arguments, too.
        arguments: further arguments of `compute`.
    """

    group: int
    compute: Callable[..., Any]
    extent: Extent = Extent.ROWS
    padding: int | None = -1
    dtype: VarType = VarType.INT64
    width: int = 0
    steps: int = 0
    beside: tuple[int, ...] = ()
    feeds: tuple[str, ...] = ()
    arguments: tuple[Any, ...] = ()

    def spec(self, count: int, capacity: int) -> Spec:
        """The spec of the index for a number of sequences and a capacity."""
        lengths = {Extent.ROWS: capacity, Extent.SEQUENCES: count, Extent.OFFSETS: count + 1, Extent.BATCH: 1}
        lengths[Extent.STEPS] = self.steps
        return Spec((lengths[self.extent], *([self.width] if self.width else [])), self.dtype)

    def array(self, offsets: Mapping[int, Any], capacity: int, feeds: Mapping[str, Any]) -> Any:
        """The array to feed, for the offsets of each LoD and the program's feeds."""
        of_groups, arrays = (offsets[group] for group in (self.group, *self.beside)), (feeds[name] for name in self.feeds)
        numbers = np.asarray(self.compute(*of_groups, *arrays, *self.arguments), self.dtype.numpy)
        if self.extent is not Extent.ROWS:
            return numbers
        first = numbers[0] if len(numbers) else 0
        return filled(numbers, capacity, first if self.padding is None else self.padding)


def filled(array: Any, capacity: int, padding: Any) -> Any:
    """A copy of an array with padding rows, up to a capacity."""
    result = np.empty((capacity, *array.shape[1:]), array.dtype)
    result[: len(array)] = array
    result[len(array) :] = padding
    return result


def divisors_of(offsets: Any) -> Any:
    """The lengths of sequences, 1 for empty ones."""
    return np.maximum(lengths_as_array(offsets), 1)


def square_roots_of(offsets: Any) -> Any:
    """The square roots of the lengths of sequences, 1 for empty ones."""
    return np.sqrt(divisors_of(offsets))


def countdown_of(offsets: Any) -> Any:
    """For each row, the number of rows from it on."""
    return np.arange(offsets[-1], 0, -1)[:, None]


def row_numbers_of(offsets: Any) -> Any:
    """For each row, its number."""
    return np.arange(offsets[-1])


def joined_offsets(*offsets: Any) -> Any:
    """The offsets of sequences that are joined one by one."""
    return sum(offsets)


def joined_rows(joined: Any, *arguments: Any) -> Any:
    """For each row of joined sequences, its row among the padded rows of all parts.

    Args:
        arguments: the offsets of each part; then, in one tuple, their numbers of rows with padding.
    """
    *parts, capacities = arguments
    rows, start = np.empty(joined[-1], np.int64), 0
    for number, (offsets, capacity) in enumerate(zip(parts, capacities, strict=True)):
        rows[places_in_concatenation(parts, number)] = np.arange(start, start + offsets[-1])
        start += capacity
    return rows


def places_of_part(part: Any, *arguments: Any) -> Any:
    """For each row of one part of joined sequences, its place there.

    Args:
        arguments: the offsets of each part; then the number of this part.
    """
    *parts, number = arguments
    return places_in_concatenation(parts, number)


def sliced_offsets(offsets: Any, starts: Any, lengths: Any, op: Operator) -> Any:
    """The offsets of slices of sequences. An error names the op."""
    try:
        return sliced(offsets, starts, lengths)[1]
    except ExecutionError as error:
        raise op_failure(op, error) from error


def sliced_rows(slices: Any, offsets: Any, starts: Any) -> Any:
    """For each row of slices of sequences, its row in the sequences."""
    return rows_in_ranges(offsets[:-1] + np.asarray(starts, np.int64).reshape(-1), lengths_as_array(slices))


def places_in_slices(offsets: Any, slices: Any, starts: Any) -> Any:
    """For each row of sequences, its place in their slices, -1 for none."""
    places = np.full(offsets[-1], -1)
    places[sliced_rows(slices, offsets, starts)] = np.arange(slices[-1])
    return places


def padded_places(offsets: Any, steps: int, op: Operator) -> Any:
    """For each sequence, the rows of its steps; -1 after its end. `ExecutionError` if a sequence is too long for `steps`."""
    lengths = lengths_as_array(offsets)
    if lengths.max() > steps:
        text = f"sequence_pad: padded_length is {steps}, but a sequence has {lengths.max()} rows; use -1 for the longest"
        raise ExecutionError(f"{text}\n{locate(op)}")
    places = np.arange(steps)
    return np.where(places < lengths[:, None], offsets[:-1, None] + places, -1)


def steps_of(offsets: Any) -> Any:
    """For each row, the number of its sequence and its place there."""
    ids = ids_of(offsets)
    return np.stack([ids, np.arange(offsets[-1]) - offsets[ids]], axis=1)


def _present(offsets: Any) -> Any:
    """For each sequence its number; for an empty one, the number of the first that is not empty."""
    lengths = lengths_as_array(offsets)
    return np.where(lengths > 0, np.arange(len(lengths)), (lengths > 0).argmax())


def rows_at_steps(offsets: Any, steps: int) -> Any:
    """``[steps, sequences]``: the row of each sequence at each step. A sequence that is over repeats its last row."""
    numbers = _present(offsets)
    return offsets[numbers] + np.minimum(np.arange(steps)[:, None], lengths_as_array(offsets)[numbers] - 1)


def goes_on(offsets: Any, steps: int) -> Any:
    """``[steps, sequences]``: whether each sequence has another step after this one."""
    return np.arange(1, steps + 1)[:, None] < lengths_as_array(offsets)[_present(offsets)]


def is_active_at_steps(offsets: Any, steps: int) -> Any:
    """``[steps, sequences]``: whether each sequence has this step."""
    return np.arange(steps)[:, None] < lengths_as_array(offsets)


def active_sequences_at_steps(offsets: Any, steps: int) -> Any:
    """``[steps, sequences]``: the number of each sequence; after its end, the number of the longest one."""
    lengths = lengths_as_array(offsets)
    return np.where(is_active_at_steps(offsets, steps), np.arange(len(lengths)), lengths.argmax())


def active_sequences_or_none_at_steps(offsets: Any, steps: int) -> Any:
    """``[steps, sequences]``: the number of each sequence; -1 after its end."""
    return np.where(is_active_at_steps(offsets, steps), np.arange(len(offsets) - 1), -1)


def shares_at_steps(offsets: Any, steps: int) -> Any:
    """``[steps, sequences]``: the weight of each sequence in the mean over the sequences that have this step."""
    is_active = is_active_at_steps(offsets, steps)
    return is_active / np.maximum(is_active.sum(axis=1, keepdims=True), 1)


def places_at_steps(offsets: Any) -> Any:
    """For each row, its place among the rows of all steps, ``[steps, sequences]``."""
    sequence, step = steps_of(offsets).T
    return step * (len(offsets) - 1) + sequence


def ranks_of(offsets: Any) -> Any:
    """For each sequence, its place if the longest come first; 0 for an empty one."""
    lengths = lengths_as_array(offsets)
    ranks = np.empty_like(lengths)
    ranks[np.argsort(-lengths, kind="stable")] = np.arange(len(lengths))
    return np.where(lengths > 0, ranks, 0)


def number_of_rows(offsets: Any, factor: int) -> Any:
    """The number of real rows times a factor."""
    return [offsets[-1] * factor]
