"""Converts rows of data to the arrays that a program is fed."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from .errors import FeedError, FluidTypeError
from .executor.scope import LoDTensor
from .ir.program import Program, Variable, default_main_program
from .values.lod_tensor import FedArray
from .values.numeric import numeric_array

__all__ = ["DataFeeder"]


class DataFeeder:
    """Stacks rows into one array for each fed variable; sequences are concatenated.

    Args:
        feed_list: the fed variables, or their names, in the order of a row's fields.
        place: where the program runs; arrays are made on the host, and the executor moves them.
        program: the program with the variables; the default main program if None.
    """

    def __init__(self, feed_list: Sequence[Variable | str], place: Any, program: Program | None = None) -> None:
        program = program if program is not None else default_main_program()
        if not isinstance(program, Program):
            raise FluidTypeError(f"DataFeeder: program should be a Program, not {program!r}")
        feed_list = [feed_list] if isinstance(feed_list, (str, Variable)) else feed_list
        if not isinstance(feed_list, Iterable):
            raise FluidTypeError(f"DataFeeder: feed_list should be a list of Variables or names, not {feed_list!r}")
        self.feed_vars = [program.global_block().var(item) if isinstance(item, str) else item for item in feed_list]
        for var in self.feed_vars:
            if not isinstance(var, Variable):
                raise FluidTypeError(f"DataFeeder: feed_list should hold Variables or names, not {type(var).__name__}")
        self.place = place

    def feed(self, iterable: Iterable[Sequence[Any]]) -> dict[str, Any]:
        """Arrays by name, one for each variable, of its dtype and shape, from rows ``(field, field, ...)``.

        A flat field is reshaped to the variable's shape. For a variable with ``lod_level=1``, a field is a list of any length,
        for ``lod_level=2`` a list of such lists, ...: these give a `LoDTensor` of all elements with the lists' lengths.
        What has no sequences is an array that is read as a `LoDTensor` too, by ``shape()`` and ``lod()``.
        `FeedError` if a row or field does not fit.
        """
        names = [var.name for var in self.feed_vars]
        columns: list[list[Any]] = [[] for _ in names]
        if not isinstance(iterable, Iterable):
            raise FeedError(self._no_rows(iterable))
        for number, row in enumerate(iterable):
            if not hasattr(row, "__len__") or isinstance(row, Mapping):
                raise FeedError(self._no_rows(f"row {number}, {row!r}"))
            if len(row) != len(columns):
                raise FeedError(f"row {number} has {len(row)} fields, but {len(columns)} variables are fed: {', '.join(names)}")
            for column, field in zip(columns, row, strict=True):
                column.append(field)
        if not columns or not columns[0]:
            raise FeedError(f"there are no rows to feed to {', '.join(names)}")
        return {
            var.name: _sequences(var, column) if var.lod_level else _stack(var, column).view(FedArray)
            for var, column in zip(self.feed_vars, columns, strict=True)
        }

    def _no_rows(self, instead: object) -> str:
        count = f"{len(self.feed_vars)} field{'s' * (len(self.feed_vars) != 1)}"
        names = ", ".join(var.name for var in self.feed_vars)
        return f"what is fed should be a list of rows, each a list of {count}, for {names}, not {instead}"

    def feed_parallel(self, iterable: Iterable[Any], num_places: int | None = None) -> Iterator[dict[str, Any]]:
        """`feed` for each batch of `iterable`."""
        for batch in iterable:
            yield self.feed(batch)

    def decorate_reader(
        self, reader: Callable[[], Iterable[Any]], multi_devices: bool, num_places: int | None = None, drop_last: bool = True
    ) -> Callable[[], Iterator[dict[str, Any]]]:
        """A reader of feeds, from a reader of batches."""
        if multi_devices:
            raise FeedError("decorate_reader: programs run on one device here; call it with multi_devices=False")

        def feeds() -> Iterator[dict[str, Any]]:
            for batch in reader():
                yield self.feed(batch)

        return feeds


def _sequences(var: Variable, fields: list[Any]) -> LoDTensor:
    """The concatenated elements of nested lists, with the lists' lengths level by level."""
    lengths: list[list[int]] = []
    items = fields
    for level in range(var.lod_level):
        for number, item in enumerate(items):
            if not isinstance(item, (list, tuple, np.ndarray)):
                raise FeedError(
                    f"{var.name} holds sequences (lod_level={var.lod_level}): sequence {number} of level {level} should be a "
                    f"list, not {item!r}"
                )
        lengths.append([len(item) for item in items])
        items = [inner for item in items for inner in item]
    shape = var.shape[1:]
    array = _stack(var, items) if items else np.empty((0, *(max(size, 0) for size in shape)), var.dtype.numpy)
    tensor = LoDTensor()
    tensor.set(array)
    tensor.set_recursive_sequence_lengths(lengths)
    return tensor


def _uneven(var: Variable, fields: list[Any]) -> str:
    """Which of the fields differ in shape, if that is why they cannot be stacked."""
    try:
        shapes = [list(np.shape(field)) for field in fields]
    except ValueError:  # one is no array by itself
        return ""
    number = next((number for number, shape in enumerate(shapes) if shape != shapes[0]), None)
    if number is None:
        return ""
    between = f"row 0 has the shape {shapes[0]}, row {number} {shapes[number]}"
    return f"fields of {var.name} ({var.describe()}) cannot be stacked: {between}"


def _stack(var: Variable, fields: list[Any]) -> np.ndarray[Any, Any]:
    try:
        array = numeric_array(fields, f"the rows of {var.name} ({var.describe()}) are not an array")
    except FluidTypeError as error:
        raise FeedError(_uneven(var, fields) or str(error)) from None
    want = var.dtype.numpy
    if not np.can_cast(array.dtype, want, "same_kind"):
        raise FeedError(f"{var.name} is {var.describe()}, but the rows hold {array.dtype.name}; convert them to {want.name}")
    shape = var.shape[1:]
    if array.shape[1:] != shape:
        if shape.count(-1) <= 1:
            with contextlib.suppress(ValueError):
                return array.astype(want).reshape((len(fields), *shape))
        elif len(shape) == array.ndim - 1 and all(a in (-1, b) for a, b in zip(shape, array.shape[1:], strict=True)):
            return array.astype(want)
        raise FeedError(
            f"{var.name} is {var.describe()}, but each row holds {list(array.shape[1:])}, which cannot be given that shape"
        )
    return array.astype(want)
