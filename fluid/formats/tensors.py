"""Tensors in files, as Paddle's ``save`` and ``save_combine`` ops write them.

A record is: uint32 version 0; uint64 number of levels of sequence offsets, for each a uint64 size in bytes and that many
bytes of uint64; uint32 version 0; int32 size of a ``TensorDesc`` and its bytes; the elements, in C order. All numbers are
little endian. A combined file has one record per variable, sorted by the variables' names, which it does not contain.
SelectedRows have files of their own: uint32 version 0; uint64 number of rows, for each its int64 index; int64 height of the
whole tensor; then the rows as a tensor, from its version on.

A size in a file is checked against the size of the file before memory is allocated. Arrays of large files are read-only views of
the memory-mapped file: parts that are not read take no memory. (If another program truncates the file meanwhile, this process
crashes; files written here replace others instead, see `fluid.formats.writing`.)
"""

from __future__ import annotations

import contextlib
import math
import mmap
import os
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, BinaryIO, NoReturn

import numpy as np

from ..errors import ExecutionError, FluidTypeError, FormatError, LengthsError
from ..values.lod_array import check_offsets
from ..values.memory import empty_array
from ..values.types import BFLOAT16, VarType, as_dtype
from ..values.unchanging import unchanging
from .commits import open_saved
from .program import parse_tensor_desc, serialize_tensor_desc
from .writing import reason

if TYPE_CHECKING:
    from ..values.selected_rows import SelectedRows


Lod = list[list[int]]
_LARGE_FILE = 4 << 20
_LARGE_ARRAY = 1 << 16
"""Least size in bytes of an array that becomes a view of a large file."""


def write_tensor(file: BinaryIO, array: Any, lod: Sequence[Sequence[int]] = ()) -> None:
    """Append the record of an array, with the offsets of its sequences, level by level."""
    file.write((0).to_bytes(4, "little") + len(lod).to_bytes(8, "little"))
    for level in lod:
        offsets = np.asarray(level, "<u8")
        file.write(offsets.nbytes.to_bytes(8, "little") + offsets.tobytes())
    _write_array(file, array)


def write_rows(file: BinaryIO, rows: SelectedRows) -> None:
    """Append the record of SelectedRows."""
    index = np.asarray(rows.rows(), "<i8")
    file.write((0).to_bytes(4, "little") + len(index).to_bytes(8, "little") + index.tobytes())
    file.write(rows.height().to_bytes(8, "little"))
    _write_array(file, rows.get_tensor())


def _write_array(file: BinaryIO, array: Any) -> None:
    array = np.asarray(np.asarray(array), order="C")
    desc = serialize_tensor_desc(as_dtype(array.dtype), array.shape)
    file.write((0).to_bytes(4, "little") + len(desc).to_bytes(4, "little") + desc)
    array = array.astype(array.dtype.newbyteorder("<"), copy=False)
    file.write(_bytes_of(array))


def _bytes_of(array: Any) -> Any:
    """The elements of a contiguous array as a buffer of bytes; a memoryview could not cast complex numbers."""
    return array.reshape(-1).view(np.uint8).data


class RecordReader:
    """Reads records one after the other from an untrusted file."""

    def __init__(self, file: BinaryIO, path: str) -> None:
        self._file = file
        self._path = path
        self._at = 0
        self._size = os.fstat(file.fileno()).st_size
        self._name = ""
        self._map: Any = None
        if self._size >= _LARGE_FILE and os.name == "posix":  # on Windows, a mapped file cannot be replaced
            with contextlib.suppress(OSError, ValueError):
                self._map = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)

    @property
    def left(self) -> int:
        """Bytes not read yet."""
        return self._size - self._at

    def fail(self, message: str, at: int | None = None) -> NoReturn:
        variable = f", variable {self._name!r}" if self._name else ""
        raise FormatError(f"{self._path}{variable}, at byte {self._at if at is None else at}: {message}")

    def _check(self, count: int, part: str) -> None:
        if count > self.left:
            self.fail(f"{part} should take {count} bytes, but {self.left} are left in the file of {self._size}")

    def _take(self, count: int, part: str) -> bytes:
        self._check(count, part)
        data = self._file.read(count)
        if len(data) != count:
            self.fail(f"{part} should take {count} bytes, but {len(data)} could be read")
        self._at += count
        return data

    def _number(self, count: int, part: str) -> int:
        return int.from_bytes(self._take(count, part), "little")

    def _version(self, part: str) -> None:
        start = self._at
        version = self._number(4, f"the version of the {part}")
        if version != 0:
            self.fail(
                f"the version of the {part} is {version}, it should be 0; either this is not a file of parameters, "
                "or it was not written for this program, so that its records begin elsewhere",
                start,
            )

    def read(self, name: str) -> tuple[Any, Lod]:
        """Read the next record, expected to belong to the variable `name`: the array and its sequence offsets.

        Raises:
            FormatError: the record is damaged; names the file, the variable, the byte, and the expected content.
        """
        self._name = name
        self._version("record")
        start = self._at
        levels = self._number(8, "the number of levels of sequence offsets")
        if levels * 8 > self.left:
            self.fail(f"{levels} levels of sequence offsets cannot be in {self.left} bytes", start)
        lod = [self._level(index) for index in range(levels)]
        try:
            check_offsets(lod)
        except LengthsError as error:
            self.fail(str(error), start)
        return self._array(), lod

    def read_rows(self, name: str) -> SelectedRows:
        """Read the next record, expected to belong to the SelectedRows `name`; errors as of `read`."""
        from ..values.selected_rows import SelectedRows

        self._name = name
        self._version("record")
        start = self._at
        count = self._number(8, "the number of rows")
        index = np.frombuffer(self._take(8 * count, f"the numbers of {count} rows"), "<i8").astype(np.int64)
        height_at = self._at
        height = int.from_bytes(self._take(8, "the height"), "little", signed=True)
        if height < 0:
            self.fail(f"the height is {height}", height_at)
        if count and not (0 <= index.min() and index.max() < height):
            self.fail(f"the rows are numbered {index.min()} to {index.max()}, but the height is {height}", start)
        start = self._at
        value = self._array()
        if value.ndim < 1 or len(value) != count:
            self.fail(f"there are {count} numbers of rows, but the rows are {value.dtype}{list(value.shape)}", start)
        return SelectedRows(index, value, height)

    def _array(self) -> Any:
        self._version("tensor")
        start = self._at
        size = int.from_bytes(self._take(4, "the size of the tensor's description"), "little", signed=True)
        if size < 0:
            self.fail(f"the size of the tensor's description is {size}", start)
        start = self._at
        desc = self._take(size, "the tensor's description")
        try:
            dtype, shape = parse_tensor_desc(desc)
            element = BFLOAT16 if dtype is VarType.BF16 else dtype.numpy
        except (FormatError, FluidTypeError) as error:
            self.fail(str(error), start)
        if any(size < 0 for size in shape):
            self.fail(f"the tensor's shape is {list(shape)}, which has a negative dimension", start)
        count, stored = math.prod(shape), element.newbyteorder("<")
        self._check(count * element.itemsize, f"the elements of {dtype.text}{list(shape)}")
        mapped = self._map is not None and count * element.itemsize >= _LARGE_ARRAY
        try:
            array = np.frombuffer(self._map, stored, count, self._at).reshape(shape) if mapped else empty_array(np, shape, stored)
        except (ValueError, ExecutionError) as error:
            self.fail(f"no array of {len(shape)} dimensions, {dtype.text}{list(shape)[:8]}, can be made: {error}", start)
        if mapped:
            self._file.seek(array.nbytes, os.SEEK_CUR)
        elif array.size:
            read = self._file.readinto(_bytes_of(array))  # type: ignore[attr-defined]
            if read != array.nbytes:
                self.fail(f"{array.nbytes} bytes of elements should be here, but {read} could be read")
        self._at += array.nbytes
        array = array.astype(element, copy=False)
        return array if self._map is None else unchanging(array)  # views of the file are read-only, so copies are as well

    def _level(self, index: int) -> list[int]:
        start = self._at
        size = self._number(8, f"the size of level {index} of sequence offsets")
        if size % 8:
            self.fail(f"level {index} of sequence offsets takes {size} bytes, which is not a multiple of 8", start)
        offsets = np.frombuffer(self._take(size, f"level {index} of sequence offsets"), "<u8")
        if size and (offsets[0] != 0 or (offsets[1:] < offsets[:-1]).any()):
            self.fail(f"level {index} of sequence offsets does not ascend from 0", start)
        level: list[int] = offsets.tolist()
        return level

    def finish(self, expected: int) -> None:
        """Raise `FormatError` if the file continues after the `expected` records that have been read."""
        self._name = ""
        if self.left:
            self.fail(
                f"{self.left} bytes follow the {expected} variables of the program; the file was not written for this program"
            )


@contextlib.contextmanager
def open_tensors(path: str, part: str = "") -> Iterator[RecordReader]:
    """A reader of the records in a file; `FormatError` if it cannot be opened."""
    try:
        file = open_saved(path)
    except (OSError, ValueError) as error:
        raise FormatError(f"{path}{part}: the file cannot be read: {reason(error)}") from None
    with file:
        yield RecordReader(file, path)


def read_file(path: str) -> bytes:
    """The bytes of a file; `FormatError` if it cannot be read."""
    try:
        with open_saved(path) as file:
            return file.read()
    except (OSError, ValueError) as error:
        raise FormatError(f"{path}: the file cannot be read: {reason(error)}") from None
