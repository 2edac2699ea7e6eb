"""Arrays by name in ``.safetensors`` files, through the optional library ``safetensors``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ..errors import FluidError, FormatError, how_to_install
from ..values.bfloat16 import BFLOAT16, to_float32
from .commits import current
from .pickles import check_numbers
from .tensors import read_file
from .writing import write_file

__all__ = ["is_safetensors", "read_safetensors", "write_safetensors"]


def is_safetensors(head: bytes, size: int) -> bool:
    """Whether a file with this head and size is one: it begins with the length of a header, which is JSON."""
    return head[8:9] == b"{" and int.from_bytes(head[:8], "little") <= size - 8


def _safetensors() -> Any:
    try:
        import safetensors.numpy
    except ImportError:
        raise FluidError(f"safetensors files need the package safetensors: {how_to_install('safetensors')}") from None
    return safetensors


def read_safetensors(path: str) -> dict[str, Any]:
    """The arrays by name of a file; `FormatError` if it is damaged, `FluidError` if the library is missing."""
    library = _safetensors()
    try:
        with library.safe_open(current(path), framework="numpy") as file:
            dtypes = {name: file.get_slice(name).get_dtype() for name in file.keys()}  # noqa: SIM118  # not a dict
            if all(dtype in _SAFE_TYPES for dtype in dtypes.values()):
                return {name: file.get_tensor(name) for name in dtypes}
        return {name: _from_safetensors(path, name, entry) for name, entry in library.deserialize(read_file(path))}
    except FluidError:
        raise
    except Exception as error:  # the library's own error is a plain Exception
        raise FormatError(f"{path}: the file cannot be read: {error}") from None


_SAFE_TYPES = {
    "F64": "<f8", "F32": "<f4", "F16": "<f2", "I64": "<i8", "I32": "<i4", "I16": "<i2", "I8": "i1", "U8": "u1", "BOOL": "?",
}  # fmt: skip


def _from_safetensors(path: str, name: str, entry: Mapping[str, Any]) -> Any:
    """An array from a tensor of the library; bfloat16, which numpy lacks, as float32."""
    if entry["dtype"] == "BF16":
        return to_float32(np.frombuffer(entry["data"], "<u2").reshape(entry["shape"]))
    if entry["dtype"] not in _SAFE_TYPES:
        raise FormatError(f"{path}: the tensor {name!r} is of {entry['dtype']}, which numpy cannot hold")
    return np.frombuffer(bytearray(entry["data"]), _SAFE_TYPES[entry["dtype"]]).reshape(entry["shape"])


def write_safetensors(path: str, arrays: Mapping[str, Any]) -> None:
    """Write arrays by name; bfloat16 as float32."""
    library = _safetensors()
    check_numbers(path, arrays)
    for name, array in arrays.items():
        if array.dtype.kind == "c" or array.dtype.itemsize > 8:
            raise FluidError(f"{path}: {name!r} is {array.dtype}, which safetensors cannot hold; write .npz")
    plain = {name: to_float32(array) if array.dtype == BFLOAT16 else array for name, array in arrays.items()}
    write_file(path, [library.numpy.save({name: np.asarray(array, order="C") for name, array in plain.items()})])
