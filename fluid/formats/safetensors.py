"""Arrays by name in ``.safetensors`` files: a header in JSON, then the bytes of all arrays."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from ..errors import FluidError, FormatError
from ..values.bfloat16 import BFLOAT16, to_float32
from .pickles import check_numbers
from .tensors import read_file
from .writing import write_file

__all__ = ["is_safetensors", "read_metadata", "read_safetensors", "write_safetensors"]

_TYPES = {
    "F64": "<f8", "F32": "<f4", "F16": "<f2", "BF16": "<u2", "I64": "<i8", "I32": "<i4", "I16": "<i2", "I8": "i1",
    "U64": "<u8", "U32": "<u4", "U16": "<u2", "U8": "u1", "BOOL": "?",
}  # fmt: skip
_NAMES = {np.dtype(code): name for name, code in _TYPES.items() if name != "BF16"}
_METADATA = "__metadata__"


def is_safetensors(head: bytes, size: int) -> bool:
    """Whether a file with this head and size is one: it begins with the length of a header, which is JSON."""
    return head[8:9] == b"{" and int.from_bytes(head[:8], "little") <= size - 8


def _header(path: str, data: Any) -> tuple[dict[str, Any], int]:
    """The header of a file, and where it ends."""
    length = int.from_bytes(data[:8], "little")
    if len(data) < 8 or length > len(data) - 8:
        raise FormatError(f"{path}: the header claims {length} bytes, and the file has {len(data)}")
    try:
        header = json.loads(bytes(data[8 : 8 + length]).decode("utf-8"))
        if not isinstance(header, dict):
            raise ValueError("it is no object")
    except (ValueError, RecursionError) as error:
        raise FormatError(f"{path}: the header is no JSON: {error}") from None
    return header, 8 + length


def read_metadata(path: str) -> Mapping[str, Any]:
    """The texts that describe a file, such as ``{"format": "pt"}`` for weights of torch."""
    metadata = _header(path, read_file(path))[0].get(_METADATA)
    return metadata if isinstance(metadata, dict) else {}


def read_safetensors(path: str) -> dict[str, Any]:
    """The arrays by name of a file; bfloat16, which numpy lacks, as float32. `FormatError` if it is damaged."""
    data = bytearray(read_file(path))
    header, start = _header(path, data)
    header.pop(_METADATA, None)
    return {name: _array(path, name, entry, data, start) for name, entry in header.items()}


def _array(path: str, name: str, entry: Any, data: bytearray, start: int) -> Any:
    """One array: a view of the file's bytes, or a copy where these are not aligned."""
    match entry:
        case {"dtype": str() as kind, "shape": [*shape], "data_offsets": [int() as first, int() as end]}:
            pass
        case _:
            raise FormatError(f"{path}: the tensor {name!r} should have dtype, shape and data_offsets")
    if kind not in _TYPES:
        raise FormatError(f"{path}: the tensor {name!r} is of {kind}, which numpy cannot hold")
    dtype = np.dtype(_TYPES[kind])
    if len(shape) > 32 or not all(type(size) is int and 0 <= size < 1 << 62 for size in shape):
        raise FormatError(f"{path}: the tensor {name!r} has no shape of numbers")
    count = math.prod(shape)
    if not 0 <= first <= end <= len(data) - start or count * dtype.itemsize != end - first:
        raise FormatError(
            f"{path}: the tensor {name!r}, {kind}{shape}, should have {count * dtype.itemsize} bytes inside the file, and has "
            f"the bytes from {first} to {end} of {len(data) - start}"
        )
    array = np.frombuffer(data, dtype, count, start + first).reshape(shape)
    if kind == "BF16":
        return to_float32(array)
    return array if array.flags.aligned else array.copy()


def write_safetensors(path: str, arrays: Mapping[str, Any]) -> None:
    """Write arrays by name, the widest elements first; bfloat16 as float32."""
    check_numbers(path, arrays)
    plain: dict[str, Any] = {}
    for name, array in arrays.items():
        array = np.asarray(to_float32(array) if array.dtype == BFLOAT16 else array, order="C")
        if array.dtype.newbyteorder("<") not in _NAMES:
            raise FluidError(f"{path}: {name!r} is {array.dtype}, which safetensors cannot hold; write .npz")
        if name == _METADATA:
            raise FluidError(f"{path}: an array cannot have the name {name}")
        plain[name] = array.astype(array.dtype.newbyteorder("<"), copy=False)
    header: dict[str, Any] = {}
    parts = []
    at = 0
    for name in sorted(plain, key=lambda name: (-plain[name].itemsize, name)):
        array = plain[name]
        header[name] = {"dtype": _NAMES[array.dtype], "shape": list(array.shape), "data_offsets": [at, at + array.nbytes]}
        parts.append(array.tobytes())
        at += array.nbytes
    text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode("utf-8", "surrogatepass")
    text += b" " * (-len(text) % 8)  # so that arrays are aligned
    write_file(path, [len(text).to_bytes(8, "little"), text, *parts])
