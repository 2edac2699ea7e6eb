"""CIFAR-10 and CIFAR-100 from the files of its authors on your disk (the binary version); nothing is downloaded."""

from __future__ import annotations

import os
from typing import Any, Literal

import numpy as np

from ..errors import FormatError
from ..not_here import names_here

__all__ = ["arrays"]

__dir__ = names_here(__name__)

_FILES = {
    "train": (
        ("data_batch_1.bin", "data_batch_2.bin", "data_batch_3.bin", "data_batch_4.bin", "data_batch_5.bin"),
        ("train.bin",),
    ),
    "test": (("test_batch.bin",), ("test.bin",)),
}
"""Part -> the files of CIFAR-10, and of CIFAR-100, whose records have one label more."""
_PIXELS = 3 * 32 * 32


def arrays(folder: str | os.PathLike[str], part: Literal["train", "test"] = "train") -> tuple[Any, Any]:
    """``(images, labels)`` of a part: float32 ``[n, 3, 32, 32]`` from 0 to 1, and int64 ``[n, 1]`` (of CIFAR-100, the fine ones).

    Args:
        folder: the folder of the binary version: ``cifar-10-batches-bin`` or ``cifar-100-binary``.
        part: ``"train"`` or ``"test"``.

    Raises:
        FormatError: a file is missing or damaged.

    >>> with open("test_batch.bin", "wb") as file:
    ...     _ = file.write(bytes([7]) + bytes([255]) * 3072)
    >>> images, labels = fluid.dataset.cifar.arrays(".", "test")
    >>> images.shape, float(images.min()), labels
    ((1, 3, 32, 32), 1.0, array([[7]]))
    """
    if part not in _FILES:
        raise ValueError(f"a part of CIFAR is 'train' or 'test', not {part!r}")
    where = os.fspath(folder)
    for labels, names in enumerate(_FILES[part], 1):
        paths = [os.path.join(where, name) for name in names]
        if os.path.exists(paths[0]):
            records = np.concatenate([_records(path, labels) for path in paths])
            images = records[:, labels:].reshape(-1, 3, 32, 32).astype(np.float32) / np.float32(255)
            return images, records[:, labels - 1 : labels].astype(np.int64)
    if os.path.exists(os.path.join(where, "batches.meta")) or os.path.exists(os.path.join(where, "meta")):
        raise FormatError(f"{where} has the version for Python, which is pickled; take the binary version of the same page")
    first, second = (names[0] for names in _FILES[part])
    raise FormatError(f"{where} has neither {first}, of CIFAR-10, nor {second}, of CIFAR-100")


def _records(path: str, labels: int) -> Any:
    try:
        data = np.fromfile(path, np.uint8)
    except OSError as error:
        raise FormatError(f"{path} cannot be read: {error}") from None
    if not data.size or data.size % (labels + _PIXELS):
        raise FormatError(f"{path}: its {data.size} bytes are no records of {labels + _PIXELS} bytes")
    return data.reshape(-1, labels + _PIXELS)
