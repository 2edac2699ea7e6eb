"""Converts rows of data to the arrays that a program is fed."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from .errors import FeedError, FluidError, FluidTypeError, shown
from .executor.runtime.scope import LoDTensor
from .ir.program import Program, Variable, default_main_program
from .not_here import names_here
from .values.lod_tensor import FedArray
from .values.numeric import numeric_array
from .values.spec import may_equal
from .values.types import DTypeLike, VarType, as_dtype

__all__ = [
    "DataFeeder",
    "Fed",
    "check_dtype",
    "check_type",
    "check_variable_and_dtype",
    "convert_dtype",
    "sequences_of",
    "stack_of",
]


class Fed(Protocol):
    """Name, shape and type of a fed variable."""

    @property
    def name(self) -> str: ...

    @property
    def shape(self) -> tuple[int, ...]: ...

    @property
    def dtype(self) -> VarType: ...

    @property
    def lod_level(self) -> int: ...

    def describe(self) -> str:
        """The variable's type and shape, for messages."""


__dir__ = names_here(__name__)


class DataFeeder:
    """Stacks rows into one array for each fed variable; sequences are concatenated.

    Args:
        feed_list: the fed variables, or their names, in the order of a row's fields.
        place: where the program runs; arrays are made on the host, and the executor moves them.
        program: the program with the variables; the default main program if None.

    >>> x, y = fluid.data("x", [None, 2]), fluid.data("y", [None, 1], "int64")
    >>> feeder = fluid.DataFeeder([x, y], fluid.CPUPlace())
    >>> feed = feeder.feed([([0.1, 0.2], 1), ([0.3, 0.4], 0)])
    >>> feed["y"].tolist()
    [[1], [0]]
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
        """Arrays by name, one for each variable, of its dtype and shape.

        A flat field is reshaped to the variable's shape; fields that are batches themselves are joined, as ``[8, 10]`` for a
        variable of ``[-1, 10]``. For a variable with ``lod_level=1``, a field is a list of any length,
        for ``lod_level=2`` a list of such lists, ...: these give a `LoDTensor` of all elements with the lists' lengths.
        What has no sequences is an array that is read as a `LoDTensor` too, by ``shape()`` and ``lod()``.

        Args:
            iterable: rows ``(field, field, ...)``.

        Raises:
            FeedError: a row or field does not fit.
        """
        names = [var.name for var in self.feed_vars]
        columns: list[list[Any]] = [[] for _ in names]
        if not isinstance(iterable, Iterable):
            raise FeedError(self._no_rows(iterable))
        for number, row in enumerate(iterable):
            if not hasattr(row, "__len__") or isinstance(row, Mapping):
                raise FeedError(self._no_rows(f"row {number}, {shown(row)}"))
            if len(row) != len(columns):
                raise FeedError(f"row {number} has {len(row)} fields, but {len(columns)} variables are fed: {', '.join(names)}")
            for column, field in zip(columns, row, strict=True):
                column.append(field)
        if not columns or not columns[0]:
            raise FeedError(f"there are no rows to feed to {', '.join(names)}")
        return {
            var.name: sequences_of(var, column) if var.lod_level else stack_of(var, column).view(FedArray)
            for var, column in zip(self.feed_vars, columns, strict=True)
        }

    def _no_rows(self, instead: object) -> str:
        count = f"{len(self.feed_vars)} field{'s' * (len(self.feed_vars) != 1)}"
        names = ", ".join(var.name for var in self.feed_vars)
        return f"the feed should be a list of rows, each a list of {count}, for {names}, not {instead}"

    def feed_parallel(self, iterable: Iterable[Any], num_places: int | None = None) -> Iterator[dict[str, Any]]:
        """`feed` for each batch of `iterable`; `num_places` has no effect."""
        for batch in iterable:
            yield self.feed(batch)

    def decorate_reader(
        self, reader: Callable[[], Iterable[Any]], multi_devices: bool, num_places: int | None = None, drop_last: bool = True
    ) -> Callable[[], Iterator[dict[str, Any]]]:
        """A reader of feeds, from a reader of batches.

        Args:
            reader: a function that gives an iterator of batches, which are lists of rows.
            multi_devices: should be False, as programs run on one device.
            num_places, drop_last: accepted as in Fluid, without effect.

        Raises:
            FeedError: `multi_devices` is True.
        """
        if multi_devices:
            raise FeedError("decorate_reader: programs run on one device here; call it with multi_devices=False")

        def feeds() -> Iterator[dict[str, Any]]:
            for batch in reader():
                yield self.feed(batch)

        return feeds


# ---------------------------------------------------------------------------------- checks that layers of scripts make
def convert_dtype(dtype: DTypeLike) -> str:
    """The name of an element type.

    Args:
        dtype: an element type, of numpy or of Fluid, or its name.

    >>> fluid.data_feeder.convert_dtype(np.float32)
    'float32'
    """
    return as_dtype(dtype).text


def check_variable_and_dtype(
    input: Any, input_name: str, expected_dtype: str | Sequence[str], op_name: str, extra_message: str = ""
) -> None:
    """Raise a `FluidTypeError` unless this is a Variable with one of these element types.

    Args:
        input: the argument of a layer.
        input_name: its name.
        expected_dtype: the name of an element type, or several.
        op_name: the name of the layer.
        extra_message: the end of the message.

    >>> fluid.data_feeder.check_variable_and_dtype(fluid.data("x", [None, 2]), "x", ["float32", "float64"], "my_layer")
    """
    check_type(input, input_name, Variable, op_name, extra_message)
    check_dtype(input.dtype, input_name, expected_dtype, op_name, extra_message)


def check_type(
    input: Any, input_name: str, expected_type: type | tuple[type, ...], op_name: str, extra_message: str = ""
) -> None:
    """Raise a `FluidTypeError` unless this is of one of these classes.

    Args:
        input: the argument of a layer.
        input_name: its name.
        expected_type: a class, or several.
        op_name: the name of the layer.
        extra_message: the end of the message.

    >>> fluid.data_feeder.check_type([1, 2], "axes", (list, tuple), "my_layer")
    """
    if not isinstance(input, expected_type):
        classes = expected_type if isinstance(expected_type, tuple) else (expected_type,)
        names = " or ".join(each_class.__name__ for each_class in classes)
        raise FluidTypeError(f"{op_name}: {input_name} should be a {names}, not {shown(input)}. {extra_message}".rstrip(". "))


def check_dtype(
    input_dtype: DTypeLike, input_name: str, expected_dtype: str | Sequence[str], op_name: str, extra_message: str = ""
) -> None:
    """Raise a `FluidTypeError` unless this is one of these element types.

    Args:
        input_dtype: the element type of a layer's argument.
        input_name: the name of the argument.
        expected_dtype: the name of an element type, or several.
        op_name: the name of the layer.
        extra_message: the end of the message.

    >>> fluid.data_feeder.check_dtype("float32", "x", ["float32", "float64"], "my_layer")
    """
    expected = [expected_dtype] if isinstance(expected_dtype, str) else list(expected_dtype)
    dtype = convert_dtype(input_dtype)
    if dtype not in map(convert_dtype, expected):
        message = f"{op_name}: {input_name} should be of {' or '.join(map(str, expected))}, not of {dtype}. {extra_message}"
        raise FluidTypeError(message.rstrip(". "))


def sequences_of(var: Fed, fields: list[Any]) -> LoDTensor:
    """The concatenated elements of nested lists, with the lists' lengths level by level.

    Args:
        var: the variable's name, shape and type.
        fields: the lists, one for each row.
    """
    lengths: list[list[int]] = []
    items = fields
    for level in range(var.lod_level):
        for number, item in enumerate(items):
            if not isinstance(item, (list, tuple, np.ndarray)):
                raise FeedError(
                    f"{var.name} holds sequences (lod_level={var.lod_level}): sequence {number} of level {level} should be a "
                    f"list, not {shown(item)}"
                )
        lengths.append([len(item) for item in items])
        items = [inner for item in items for inner in item]
    shape = var.shape[1:]
    array = stack_of(var, items) if items else np.empty((0, *(max(size, 0) for size in shape)), var.dtype.numpy)
    tensor = LoDTensor()
    tensor.set(array)
    tensor.set_recursive_sequence_lengths(lengths)
    return tensor


def _uneven(var: Fed, fields: list[Any]) -> str:
    """Describe the fields whose shapes differ, if stacking fails for this reason."""
    try:
        shapes = [list(numeric_array(field, "").shape) for field in fields]
    except FluidError:  # one is no array by itself
        return ""
    number = next((number for number, shape in enumerate(shapes) if shape != shapes[0]), None)
    if number is None:
        return ""
    between = f"row 0 has the shape {shapes[0]}, row {number} {shapes[number]}"
    return f"fields of {var.name} ({var.describe()}) cannot be stacked: {between}"


def stack_of(var: Fed, fields: list[Any]) -> np.ndarray[Any, Any]:
    """The fields of a column of rows as one array, of the type and shape of `var`; `fields` has one for each row."""
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
                return array.astype(want, copy=False).reshape((len(fields), *shape))
        elif may_equal(shape, array.shape[1:]):
            return array.astype(want, copy=False)
        if var.shape[0] == -1 and not var.lod_level and may_equal(shape, array.shape[2:]):
            return array.astype(want, copy=False).reshape(-1, *array.shape[2:])
        raise FeedError(
            f"{var.name} is {var.describe()}, but each row holds {list(array.shape[1:])}, which cannot be given that shape"
        )
    return array.astype(want, copy=False)
