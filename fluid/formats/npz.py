"""Arrays by name in numpy's archives, ``.npz``, without unpickling."""

from __future__ import annotations

import math
import os
import zipfile
from collections.abc import Mapping
from typing import Any

import numpy as np

from ..errors import FluidError, FormatError
from ..values.bfloat16 import as_bits
from .commits import open_saved
from .pickles import check_numbers, not_numbers
from .room import most_bytes
from .writing import atomic_writer


def is_archive(head: bytes, size: int) -> bool:
    """Whether a file with this head is an archive."""
    return head.startswith((b"PK\x03\x04", b"PK\x05\x06"))


def read_npz(path: str) -> dict[str, Any]:
    """The arrays by name of an archive; `FormatError` if it is damaged or holds anything else."""
    arrays: dict[str, Any] = {}
    try:
        with open_saved(path) as opened, zipfile.ZipFile(opened) as archive:
            size = os.fstat(opened.fileno()).st_size
            infos = archive.infolist()
            total = sum(info.file_size for info in infos)
            if total > most_bytes(size):
                raise FormatError(
                    f"{path}: its {size} bytes claim to unpack to {total}; repack it without compression to load it"
                )
            for info in infos:
                name = info.filename.removesuffix(".npy")
                where = f"{path}, array {name!r}"
                if name == info.filename:
                    raise FormatError(f"{where}: it is not an .npy file")
                if name in arrays:
                    raise FormatError(f"{where}: it is there twice")
                with archive.open(info) as file:
                    arrays[name] = _read_npy(file, info.file_size, where)
    except FluidError:
        raise
    except Exception as error:  # from many modules: archives, compression, headers of arrays
        raise FormatError(f"{path}: the archive cannot be read: {error}") from None
    return arrays


def _read_npy(file: Any, size: int, where: str) -> Any:
    version = np.lib.format.read_magic(file)
    if version not in ((1, 0), (2, 0)):
        raise FormatError(f"{where}: its format {version} is unknown")
    read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    shape, by_columns, dtype = read(file)
    if dtype.hasobject:
        raise FormatError(f"{where}: it holds Python objects, which would have to be unpickled")
    if not_numbers(dtype):
        raise FormatError(f"{where}: its elements are {not_numbers(dtype)}, not numbers")
    needed = math.prod(shape) * dtype.itemsize
    data = file.read(needed) if needed <= size else b""
    if any(size < 0 for size in shape) or len(data) != needed or file.read(1):
        raise FormatError(f"{where}: {dtype}{list(shape)} takes {needed} bytes, which is not what the archive holds")
    array = np.frombuffer(bytearray(data), dtype)
    array = np.asarray(array.reshape(shape, order="F" if by_columns else "C"), order="C")
    return array.astype(dtype.newbyteorder("="), copy=False)


def write_npz(path: str, arrays: Mapping[str, Any]) -> None:
    """Write arrays by name, uncompressed; equal arrays give equal files."""
    check_numbers(path, arrays)
    with atomic_writer(path) as file, zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
        for name, array in arrays.items():
            if "\0" in name or any("\ud800" <= char <= "\udfff" for char in name):
                raise FluidError(f"{path}: the variable {name!r} has a name that archives cannot hold")
            info = zipfile.ZipInfo(f"{name}.npy")  # its date is fixed
            with archive.open(info, "w", force_zip64=True) as entry:
                np.lib.format.write_array(entry, as_bits(array), allow_pickle=False)
