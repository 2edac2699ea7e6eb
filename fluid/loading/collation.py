"""Batches made of samples: fields are stacked, put one after the other as sequences, or padded."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..data_feeder import sequences_of, stack_of
from ..errors import FeedError, FluidTypeError, ProgramError
from ..executor.runtime.scope import LoDTensor
from ..ir.program import Variable
from ..values.types import VarType

Collate = Callable[[list[Any]], Any]


def collate(samples: Sequence[Any]) -> Any:
    """Make a batch of samples: stack each field to one array whose first dimension counts the samples. Loaders do this by
    default.

    Args:
        samples: tuples of fields, dicts of fields by name, or fields: arrays of one shape, numbers, texts (which stay a list).

    Returns:
        A tuple of arrays, a dict of arrays, or an array.

    Raises:
        FeedError: samples have different fields, or a field has different shapes.

    >>> fluid.io.collate([(np.zeros(2), 1), (np.ones(2), 3)])
    (array([[0., 0.],
           [1., 1.]]), array([1, 3]))
    """
    return _by_field(samples, lambda name, column: stacked(column, name))


def _by_field(samples: Sequence[Any], join: Callable[[Any, list[Any]], Any]) -> Any:
    """The fields of samples, each joined by a function of its name or position (None: the whole sample) and its values."""
    first = samples[0]
    if isinstance(first, Mapping):
        for number, sample in enumerate(samples):
            if not isinstance(sample, Mapping) or sample.keys() != first.keys():
                raise FeedError(f"sample {number} of a batch is {_described(sample)}, but sample 0 {_described(first)}")
        return {name: join(name, [sample[name] for sample in samples]) for name in first}
    if isinstance(first, (tuple, list)):
        for number, sample in enumerate(samples):
            if not isinstance(sample, (tuple, list)) or len(sample) != len(first):
                raise FeedError(f"sample {number} of a batch is {_described(sample)}, but sample 0 {_described(first)}")
        return tuple(join(place, list(column)) for place, column in enumerate(zip(*samples, strict=True)))
    return join(None, list(samples))


def _described(sample: Any) -> str:
    """Describe a sample for an error message."""
    if isinstance(sample, Mapping):
        return f"a dict of {', '.join(map(str, sample))}"
    return f"{len(sample)} fields" if isinstance(sample, (tuple, list)) else f"a {type(sample).__name__}"


def stacked(values: list[Any], name: Any = None) -> Any:
    """Values of one shape as one array; texts and bytes as a list."""
    if isinstance(values[0], (str, bytes)):
        return values
    if isinstance(values[0], (tuple, list, Mapping)):
        values = [np.asarray(value) for value in values] if not isinstance(values[0], Mapping) else values
    try:
        first = values[0]
        array = np.stack(values) if isinstance(first, np.ndarray) else np.array(values)
    except (ValueError, TypeError):
        array = None
    if array is None or array.dtype == object:
        raise FeedError(_unstackable(values, name))
    return array


def _unstackable(values: list[Any], name: Any) -> str:
    subject = f"field {name!r}" if name is not None else "the samples"
    shapes = [np.shape(value) if not isinstance(value, Mapping) else None for value in values]
    odd_sample = next((number for number, shape in enumerate(shapes) if shape != shapes[0]), None)
    if odd_sample is None:
        return f"{subject} of a batch cannot be stacked: sample 0 has a {type(values[0]).__name__}; give the loader a collate_fn"
    return (
        f"{subject} of a batch cannot be stacked: sample 0 has the shape {list(shapes[0] or ())}, sample {odd_sample} "
        f"{list(shapes[odd_sample] or ())}; collate_fn=fluid.io.collate_sequences(...) makes sequences of them, "
        "fluid.io.collate_padded(...) pads them"
    )


@dataclass(frozen=True)
class _Sequences:
    levels: Mapping[Any, int]

    def __call__(self, samples: Sequence[Any]) -> Any:
        return _by_field(samples, self._join)

    def _join(self, name: Any, column: list[Any]) -> Any:
        if name not in self.levels:
            return stacked(column, name)
        return sequence_tensor(column, self.levels[name], name)


def sequence_tensor(column: list[Any], levels: int, name: Any) -> LoDTensor:
    """Rows of nested lists one after the other, with the lists' lengths level by level."""
    lengths, items = [], column
    for level in range(levels):
        for number, item in enumerate(items):
            if not isinstance(item, (list, tuple)) and not (isinstance(item, np.ndarray) and item.ndim):
                raise FeedError(f"field {name!r} should hold sequences: item {number} of level {level} is {item!r}")
        lengths.append([len(item) for item in items])
        if level == levels - 1:
            parts = [np.asarray(item) for item in items if len(item)]
            rows = np.concatenate(parts) if parts else np.empty(0, np.asarray(items[0]).dtype if items else None)
        items = [inner for item in items for inner in item] if level < levels - 1 else items
    tensor = LoDTensor()
    tensor.set(rows.reshape(-1, 1) if rows.ndim == 1 else rows)
    tensor.set_recursive_sequence_lengths(lengths)
    return tensor


def collate_sequences(*fields: Any, levels: int = 1) -> Collate:
    """A `collate_fn` that puts sequences of different lengths one after the other, as a `LoDTensor`; other fields are stacked.

    Args:
        fields: which fields are sequences: positions in tuples, or names in dicts.
        levels: 1 for lists of elements, 2 for lists of such lists, ...

    Returns:
        A function of a list of samples. Sequences of numbers give rows of one column, as layers of Fluid take ids of words.

    Raises:
        FeedError: when it is called, if a field holds no sequences.

    >>> words, label = fluid.io.collate_sequences(0)([([1, 2, 3], 0), ([4], 1)])
    >>> np.asarray(words).ravel(), words.recursive_sequence_lengths(), label
    (array([1, 2, 3, 4]), [[3, 1]], array([0, 1]))
    """
    if not fields or not isinstance(levels, int) or levels < 1:
        raise ProgramError(f"collate_sequences takes the fields that are sequences, and levels, at least 1, not {levels!r}")
    return _Sequences(dict.fromkeys(fields, levels))


@dataclass(frozen=True)
class _Padded:
    fields: Mapping[Any, Any]
    length: int | None

    def __call__(self, samples: Sequence[Any]) -> Any:
        return _by_field(samples, self._join)

    def _join(self, name: Any, column: list[Any]) -> Any:
        if name not in self.fields:
            return stacked(column, name)
        rows = [np.asarray(item) for item in column]
        longest = self.length if self.length is not None else max(len(row) for row in rows)
        sample_row = next((row for row in rows if len(row)), rows[0])
        batch = np.full((len(rows), longest, *sample_row.shape[1:]), self.fields[name], sample_row.dtype)
        for number, row in enumerate(rows):
            if row[:longest].shape[1:] != sample_row.shape[1:] and len(row):
                raise FeedError(_unstackable([sample_row[0], row[0]], name))
            batch[number, : len(row)] = row[:longest]
        return batch


def collate_padded(*fields: Any, value: float = 0, length: int | None = None) -> Collate:
    """A `collate_fn` that pads sequences of different lengths at their ends; other fields are stacked.

    Args:
        fields: which fields are sequences: positions in tuples, or names in dicts.
        value: the value of the padding.
        length: the length to pad to; longer sequences are cut. None: the longest length in the batch.

    Returns:
        A function of a list of samples.

    >>> fluid.io.collate_padded(0, value=-1)([([1, 2, 3], 0), ([4], 1)])
    (array([[ 1,  2,  3],
           [ 4, -1, -1]]), array([0, 1]))
    """
    if not fields or not (length is None or (isinstance(length, int) and length > 0)):
        raise ProgramError(f"collate_padded takes the fields that are sequences, and a length or None, not {length!r}")
    return _Padded(dict.fromkeys(fields, value), length)


# -------------------------------------------------------------------------------------------------------------- feeding
@dataclass(frozen=True)
class _Fed:
    """Name, shape and type of a fed variable, for a process without the program."""

    name: str
    shape: tuple[int, ...]
    dtype: VarType
    lod_level: int
    text: str

    def describe(self) -> str:
        return self.text


def _names_of(feed_list: Sequence[Variable | str]) -> list[str]:
    names = []
    for item in feed_list:
        if not isinstance(item, (str, Variable)):
            raise FluidTypeError(f"DataLoader: feed_list should hold Variables or names, not {type(item).__name__}")
        names.append(item if isinstance(item, str) else item.name)
    if len(set(names)) < len(names):
        raise ProgramError(f"DataLoader: feed_list names a variable twice: {', '.join(names)}")
    return names


class NamedCollate:
    """Names the fields of the batches that `function` makes, for feeds."""

    def __init__(self, feed_list: Sequence[Variable | str], function: Collate) -> None:
        self._names, self._function = _names_of(feed_list), function

    def __call__(self, samples: list[Any]) -> dict[str, Any]:
        return dict(zip(self._names, fields_of(self._function(samples), self._names), strict=True))


class FeedCollate:
    """Makes feeds for `Executor.run`: fields get the dtype and shape of variables, or become sequences, as by `DataFeeder`."""

    def __init__(self, feed_list: Sequence[Variable | str]) -> None:
        self._names = _names_of(feed_list)
        self._fed = [
            _Fed(var.name, tuple(var.shape), var.dtype, var.lod_level, var.describe()) if isinstance(var, Variable) else None
            for var in feed_list
        ]

    def __call__(self, samples: list[Any]) -> dict[str, Any]:
        columns: list[list[Any]] = [[] for _ in self._names]
        for sample in samples:
            for column, field in zip(columns, fields_of(sample, self._names), strict=True):
                column.append(field)
        return {
            name: stacked(column, name) if fed is None else (sequences_of if fed.lod_level else stack_of)(fed, column)
            for name, fed, column in zip(self._names, self._fed, columns, strict=True)
        }


def fields_of(sample: Any, names: list[str]) -> list[Any]:
    """The fields of a sample, or of a batch, in the order of these names."""
    if isinstance(sample, Mapping):
        if sample.keys() != set(names):
            raise FeedError(f"a sample has fields {', '.join(map(str, sample))}; it should have {', '.join(names)}")
        return [sample[name] for name in names]
    fields = list(sample) if isinstance(sample, (tuple, list)) and (len(names) > 1 or isinstance(sample, tuple)) else [sample]
    if len(fields) != len(names):
        raise FeedError(f"a sample has {len(fields)} fields, but {len(names)} variables are fed: {', '.join(names)}")
    return fields
