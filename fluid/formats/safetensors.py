"""Arrays by name in ``.safetensors`` files: a header in JSON, then the bytes of all arrays."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from itertools import chain
from typing import Any, BinaryIO

import numpy as np

from ..errors import FluidError, FormatError
from ..values.bfloat16 import BFLOAT16, as_bits, to_float32
from .commits import open_saved
from .pickles import check_numbers
from .writing import reason, write_file

_TYPES = {
    "F64": "<f8", "F32": "<f4", "F16": "<f2", "BF16": "<u2", "I64": "<i8", "I32": "<i4", "I16": "<i2", "I8": "i1",
    "U64": "<u8", "U32": "<u4", "U16": "<u2", "U8": "u1", "BOOL": "?",
}  # fmt: skip
_NAMES = {np.dtype(code): name for name, code in _TYPES.items() if name != "BF16"}
_METADATA = "__metadata__"


def is_safetensors(head: bytes, size: int) -> bool:
    """Whether a file with this head and size is one: it begins with the length of a header, which is JSON."""
    return head[8:9] == b"{" and int.from_bytes(head[:8], "little") <= size - 8


@contextmanager
def _opened(path: str) -> Iterator[BinaryIO]:
    """A file to read; `FormatError` if it cannot be read."""
    try:
        with open_saved(path) as file:
            yield file
    except OSError as error:
        raise FormatError(f"{path}: the file cannot be read: {reason(error)}") from None


def _header(path: str, file: BinaryIO) -> tuple[dict[str, Any], int, int]:
    """The header of a file, where it ends, and where the file ends."""
    size = file.seek(0, os.SEEK_END)
    file.seek(0)
    length = int.from_bytes(file.read(8), "little")
    if size < 8 or length > size - 8:
        raise FormatError(f"{path}: the header claims {length} bytes, and the file has {size}")
    try:
        header = json.loads(file.read(length).decode("utf-8"))
        if not isinstance(header, dict):
            raise ValueError("it is no object")
    except (ValueError, RecursionError) as error:
        raise FormatError(f"{path}: the header is no JSON: {error}") from None
    return header, 8 + length, size


def read_metadata(path: str) -> Mapping[str, Any]:
    """The texts that describe a file, such as ``{"format": "pt"}`` for weights of torch."""
    with _opened(path) as file:
        metadata = _header(path, file)[0].get(_METADATA)
    return metadata if isinstance(metadata, dict) else {}


def read_safetensors(path: str) -> dict[str, Any]:
    """The arrays by name of a file; bfloat16, which numpy lacks, as float32. `FormatError` if it is damaged.

    Arrays are read one by one, so no more memory is taken than they have.
    """
    with _opened(path) as file:
        header, start, size = _header(path, file)
        header.pop(_METADATA, None)
        return {name: _array(path, name, entry, file, start, size) for name, entry in header.items()}


def _array(path: str, name: str, entry: Any, file: BinaryIO, start: int, size: int) -> Any:
    """One array of a file of so many bytes, whose header ends at `start`."""
    match entry:
        case {"dtype": str() as kind, "shape": [*shape], "data_offsets": [int() as first, int() as end]}:
            pass
        case _:
            raise FormatError(f"{path}: the tensor {name!r} should have dtype, shape and data_offsets")
    if kind not in _TYPES:
        raise FormatError(f"{path}: the tensor {name!r} is of {kind}, which numpy cannot hold")
    dtype = np.dtype(_TYPES[kind])
    if len(shape) > 32 or not all(type(extent) is int and 0 <= extent < 1 << 62 for extent in shape):
        raise FormatError(f"{path}: the tensor {name!r} has no shape of numbers")
    count = math.prod(shape)
    if not 0 <= first <= end <= size - start or count * dtype.itemsize != end - first:
        raise FormatError(
            f"{path}: the tensor {name!r}, {kind}{shape}, should have {count * dtype.itemsize} bytes inside the file, and has "
            f"the bytes from {first} to {end} of {size - start}"
        )
    array: Any = np.empty(count, dtype)
    file.seek(start + first)
    if file.readinto(array.view(np.uint8).data) != array.nbytes:  # type: ignore[attr-defined]
        raise FormatError(f"{path}: the file ends within the tensor {name!r}")
    return (to_float32(array) if kind == "BF16" else array).reshape(shape)


def write_safetensors(path: str, arrays: Mapping[str, Any]) -> None:
    """Write arrays by name, the widest elements first, one by one."""
    check_numbers(path, arrays)
    kinds: dict[str, str] = {}
    for name, array in arrays.items():
        dtype = array.dtype
        if dtype != BFLOAT16 and dtype.newbyteorder("<") not in _NAMES:
            raise FluidError(f"{path}: {name!r} is {dtype}, which safetensors cannot hold; write .npz")
        if name == _METADATA:
            raise FluidError(f"{path}: an array cannot have the name {name}")
        kinds[name] = "BF16" if dtype == BFLOAT16 else _NAMES[dtype.newbyteorder("<")]
    header: dict[str, Any] = {}
    at = 0
    for name in sorted(kinds, key=lambda name: (-arrays[name].dtype.itemsize, name)):
        array = arrays[name]
        header[name] = {"dtype": kinds[name], "shape": list(array.shape), "data_offsets": [at, at + array.nbytes]}
        at += array.nbytes
    text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode("utf-8", "surrogatepass")
    text += b" " * (-len(text) % 8)  # so that arrays are aligned
    write_file(path, chain([len(text).to_bytes(8, "little"), text], map(_bytes_of, (arrays[name] for name in header))))


def _bytes_of(array: Any) -> Any:
    """The bytes of an array in the order of a file; a view of them where they lie so."""
    bits = as_bits(np.asarray(array, order="C"))
    return bits.astype(bits.dtype.newbyteorder("<"), copy=False).reshape(-1).view(np.uint8).data
