"""Tensors of ONNX files as numpy arrays: from the message, or from files beside it, which are mapped."""

from __future__ import annotations

import mmap
import os
from math import prod
from typing import Any

import numpy as np

from ..errors import FormatError
from ..formats.commits import is_saved, open_saved
from ..formats.room import Room
from ..formats.writing import reason
from ..values.bfloat16 import BFLOAT16
from .types import name_of, numpy_type

SELF = ""
"""The location of tensors whose bytes stay in the model's file."""

MOST_ELEMENTS = 1 << 40
"""The most elements that a tensor may have; more are a sign of a damaged file."""

_FIELDS = {
    "float_data": {1: "<f4", 14: "<c8"},
    "int32_data": {2: "u1", 3: "i1", 4: "i4", 5: "<i2", 6: "<i4", 9: "?", 10: "f16"},
    "int64_data": {7: "<i8"},
    "double_data": {11: "<f8", 15: "<c16"},
    "uint64_data": {12: "<i8", 13: "<u8"},
}
_RAW = {
    1: "<f4", 2: "u1", 3: "i1", 4: "<u2", 5: "<i2", 6: "<i4", 7: "<i8", 9: "?", 10: "<f2", 11: "<f8", 12: "<u4", 13: "<u8",
    14: "<c8", 15: "<c16", 16: "<u2",
}  # fmt: skip
_PACKED = {21: 2, 22: 2, 23: 2, 25: 4, 26: 4}
"""Types with several elements in a byte -> how many."""


def map_file(path: str, label: str) -> memoryview:
    """Map a file's bytes into memory; `FormatError` if it cannot be read."""
    try:
        with open_saved(path) as file:
            if not os.fstat(file.fileno()).st_size:
                return memoryview(b"")
            return memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
    except (OSError, ValueError) as error:
        raise FormatError(f"{path}: {label} cannot be read: {reason(error)}") from None


class OnnxTensorReader:
    """Reads the tensors of a model file as arrays.

    Args:
        path: the model's file; files of external data lie in its folder, or below.
        data: the bytes of the model's file.
        room: the memory that the file may still take.
    """

    def __init__(self, path: str, data: memoryview, room: Room) -> None:
        self.path = path
        self.room = room
        self._folder = os.path.dirname(os.path.abspath(path))
        self.size = len(data)
        self._files = {SELF: data}

    def array(self, tensor: Any, where: str) -> Any:
        """The array of a `TensorProto`; read-only. Raises `FormatError` if its shape, type and bytes do not fit together."""
        where = f"{self.path}: {where}"
        shape = tuple(tensor.dims)
        count = check_shape(shape, where)
        number = tensor.data_type
        dtype = numpy_type(number, where)
        if tensor.HasField("segment"):
            raise FormatError(f"{where}: it is a segment of a tensor, which no file should hold")
        is_external = tensor.data_location == 1
        if not (is_external or tensor.HasField("raw_data")) or _RAW.get(number) not in (dtype.str, dtype.str[1:]):
            self.room.take_array(count, itemsize=dtype.itemsize)  # it is no view of the file's own bytes
        try:
            if is_external:
                array = self._of_bytes(self._external(tensor, where), number, count, where)
            elif tensor.HasField("raw_data"):
                array = self._of_bytes(memoryview(tensor.raw_data), number, count, where)
            else:
                array = self._of_numbers(tensor, number, count, where)
            array = np.asarray(array).astype(dtype, copy=False).reshape(shape)
        except FormatError:
            raise
        except (ValueError, TypeError, OverflowError) as error:
            raise FormatError(f"{where}: its shape {list(shape)} and its values do not fit together: {error}") from None
        array.flags.writeable = False
        return array

    def _of_bytes(self, data: memoryview, number: int, count: int, where: str) -> Any:
        if number in _PACKED:
            per_byte = _PACKED[number]
            self._check_size(len(data), -(-count // per_byte), where)
            return _narrow(_unpack(np.frombuffer(data, np.uint8), per_byte, count), number)
        if number not in _RAW:
            self._check_size(len(data), count, where)
            return _narrow(np.frombuffer(data, np.uint8), number)
        self._check_size(len(data), count * np.dtype(_RAW[number]).itemsize, where)
        if number == 9:
            return np.frombuffer(data, np.uint8) != 0  # bytes except 0 and 1 are no bools
        return np.frombuffer(data, BFLOAT16 if number == 16 else _RAW[number])

    def _of_numbers(self, tensor: Any, number: int, count: int, where: str) -> Any:
        """The array of a tensor that lists its elements in the field for its type."""
        field = next((field for field, types in _FIELDS.items() if number in types), "int32_data")
        listed = getattr(tensor, field)
        per_element = 2 if number in (14, 15) else 1
        per_number = _PACKED.get(number, 1)
        if len(listed) != -(-count * per_element // per_number):
            raise FormatError(
                f"{where}: {field} holds {len(listed)} numbers, and a tensor of {name_of(number)} of shape {list(tensor.dims)} "
                f"has {count} elements"
            )
        if number in (14, 15):
            return np.array(listed, "<f4" if number == 14 else "<f8").view(_FIELDS[field][number])
        if field != "int32_data":
            return np.array(listed, _FIELDS[field][number])
        numbers = np.array(listed, np.int64)
        if number == 10:
            return numbers.astype(np.uint16).view(np.float16)
        if number == 16:
            return numbers.astype(np.uint16).view(BFLOAT16)
        if number in _PACKED:
            return _narrow(_unpack(numbers.astype(np.uint8), per_number, count), number)
        return _narrow(numbers.astype(np.uint8), number) if number not in _RAW else numbers

    def _check_size(self, size: int, expected: int, where: str) -> None:
        if size != expected:
            raise FormatError(f"{where}: it has {size} bytes; its shape and element type need {expected}")

    def _external(self, tensor: Any, where: str) -> memoryview:
        """The bytes of a tensor with external data: in the model's file, or in one beside it."""
        entries = {entry.key: entry.value for entry in tensor.external_data}
        location = entries.get("location", SELF)
        data = self._file(location, where)
        try:
            start = int(entries.get("offset", "0"))
            length = int(entries["length"]) if "length" in entries else len(data) - start
        except ValueError:
            raise FormatError(f"{where}: the offset and the length in {location!r} should be numbers, not {entries}") from None
        if start < 0 or length < 0 or start + length > len(data):
            raise FormatError(
                f"{where}: its data should be {length} bytes from {start} on in {location or 'its own file'}, of {len(data)}"
            )
        return data[start : start + length]

    def _file(self, location: str, where: str) -> memoryview:
        if location not in self._files:
            data = self._files[location] = map_file(self._safe_path(location, where), f"external data of {self.path}")
            self.room.grow(len(data))
        return self._files[location]

    def _safe_path(self, location: str, where: str) -> str:
        """The path of a file of external data; `FormatError` unless it lies in the model's folder, and is a plain file."""
        parts = location.replace("\\", "/").split("/")
        if os.path.isabs(location) or parts[0].endswith(":") or not parts[0] or ".." in parts or "\0" in location:
            raise FormatError(f"{where}: its data are said to be in {location!r}; only files in the model's own folder are read")
        path = self._folder
        for part in parts:
            path = os.path.join(path, part)
            if os.path.islink(path):
                raise FormatError(f"{where}: its data are said to be in {location!r}, which is a link; only plain files are read")
        if not is_saved(path):
            raise FormatError(f"{where}: its data should be in {location!r}, beside the model; there is no such file")
        return path


def check_shape(shape: tuple[int, ...], where: str) -> int:
    """Count the elements of a shape in a file; `FormatError` if no array can have the shape."""
    if len(shape) > 32 or any(not 0 <= size <= MOST_ELEMENTS for size in shape) or prod(shape) > MOST_ELEMENTS:
        raise FormatError(f"{where}: {list(shape[:33])} is no shape of a tensor")
    return prod(shape)


def _unpack(data: Any, per_byte: int, count: int) -> Any:
    """The numbers of 8 / `per_byte` bits in bytes, the lowest bits first."""
    bits = 8 // per_byte
    shifts = np.arange(per_byte, dtype=np.uint8) * bits
    return ((data[:, None] >> shifts) & ((1 << bits) - 1)).reshape(-1)[:count]


def _narrow(codes: Any, number: int) -> Any:
    """Decode codes of 8 bits or fewer to numbers."""
    if number in (22, 26):
        half = 8 if number == 22 else 2
        return (codes.astype(np.int8) ^ half) - half
    if number in (21, 25):
        return codes
    import ml_dtypes  # comes with onnx

    kinds = {
        17: ml_dtypes.float8_e4m3fn,
        18: ml_dtypes.float8_e4m3fnuz,
        19: ml_dtypes.float8_e5m2,
        20: ml_dtypes.float8_e5m2fnuz,
        23: ml_dtypes.float4_e2m1fn,
        24: ml_dtypes.float8_e8m0fnu,
    }
    return codes.astype(np.uint8).view(kinds[number]).astype(np.float32)
