"""MNIST, and sets in its format (Fashion-MNIST, KMNIST), from the files of its authors on your disk; nothing is downloaded."""

from __future__ import annotations

import gzip
import os
from typing import Any, Literal

import numpy as np

from ..errors import FormatError
from ..not_here import names_here

__all__ = ["arrays", "read_idx"]

__dir__ = names_here(__name__)

_STARTS = {"train": "train", "test": "t10k"}
_TYPES = {0x08: ">u1", 0x09: ">i1", 0x0B: ">i2", 0x0C: ">i4", 0x0D: ">f4", 0x0E: ">f8"}


def arrays(folder: str | os.PathLike[str], part: Literal["train", "test"] = "train") -> tuple[Any, Any]:
    """``(images, labels)`` of a part: float32 ``[n, 1, 28, 28]`` from 0 (paper) to 1 (ink), and int64 ``[n, 1]``.

    Args:
        folder: the folder with ``train-images-idx3-ubyte`` and its three companions, or with ``.gz`` after their names.
        part: ``"train"`` or ``"test"``.

    Raises:
        FormatError: a file is missing or damaged.

    >>> def write(name, array):
    ...     head = bytes([0, 0, 8, array.ndim]) + b"".join(size.to_bytes(4, "big") for size in array.shape)
    ...     with open(name, "wb") as file:
    ...         _ = file.write(head + array.tobytes())
    >>> write("t10k-images-idx3-ubyte", np.full([3, 28, 28], 255, "uint8"))
    >>> write("t10k-labels-idx1-ubyte", np.array([7, 2, 1], "uint8"))
    >>> images, labels = fluid.dataset.mnist.arrays(".", "test")
    >>> images.shape, float(images.max()), labels.ravel()
    ((3, 1, 28, 28), 1.0, array([7, 2, 1]))
    """
    if part not in _STARTS:
        raise ValueError(f"a part of MNIST is 'train' or 'test', not {part!r}")
    images = read_idx(_file(folder, f"{_STARTS[part]}-images-idx3-ubyte"))
    labels = read_idx(_file(folder, f"{_STARTS[part]}-labels-idx1-ubyte"))
    if images.ndim != 3 or labels.shape != images.shape[:1]:
        raise FormatError(f"{folder}: images {list(images.shape)} and labels {list(labels.shape)} do not fit each other")
    return images[:, None].astype(np.float32) / np.float32(255), labels.astype(np.int64)[:, None]


def _file(folder: str | os.PathLike[str], name: str) -> str:
    """The path of a file that may be compressed, and may have a dot in place of the last but one hyphen."""
    spellings = (name, name.replace("-idx", ".idx"))
    paths = [os.path.join(os.fspath(folder), spelling + ending) for spelling in spellings for ending in ("", ".gz")]
    for path in paths:
        if os.path.exists(path):
            return path
    raise FormatError(f"there is no {paths[0]}, nor {paths[1]}")


def read_idx(path: str | os.PathLike[str]) -> Any:
    """The array of a file in MNIST's format, IDX, perhaps compressed by gzip.

    Args:
        path: the file.

    Raises:
        FormatError: the file is damaged, or in another format.

    >>> with open("ids", "wb") as file:
    ...     _ = file.write(bytes([0, 0, 8, 1, 0, 0, 0, 2, 5, 6]))
    >>> fluid.dataset.mnist.read_idx("ids")
    array([5, 6], dtype=uint8)
    """
    where = os.fspath(path)
    try:
        with open(where, "rb") as file:
            is_compressed = file.read(2) == b"\x1f\x8b"
        with gzip.open(where) if is_compressed else open(where, "rb") as file:
            head = file.read(4)
            if len(head) < 4 or head[:2] != b"\0\0" or head[2] not in _TYPES:
                raise FormatError(f"{where} is no IDX file: it begins with {head!r}")
            sizes = [int.from_bytes(file.read(4), "big") for _ in range(head[3])]
            kind = np.dtype(_TYPES[head[2]])
            count = int(np.prod(sizes, dtype=object)) * kind.itemsize
            if not is_compressed and count != os.path.getsize(where) - 4 - 4 * head[3]:
                raise FormatError(f"{where}: an array {sizes} has {count} bytes, and the file has {os.path.getsize(where)}")
            data = _read(file, count)
    except (OSError, EOFError) as error:
        raise FormatError(f"{where} cannot be read: {error}") from None
    if len(data) != count:
        raise FormatError(f"{where} ends early: an array {sizes} has {count} bytes, and {len(data)} are there")
    return np.frombuffer(data, kind).reshape(sizes).astype(kind.newbyteorder("="), copy=False)


def _read(file: Any, count: int) -> bytes:
    """Up to `count` bytes, read in blocks: a file may claim any size."""
    blocks = []
    while count > 0:
        block = file.read(min(count, 1 << 24))
        if not block:
            break
        blocks.append(block)
        count -= len(block)
    return b"".join(blocks)
