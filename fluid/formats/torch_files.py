"""Weights in files of PyTorch, ``.pt`` and ``.pth``: an archive with a pickle and the bytes of tensors. No code in it runs.

The pickle is read by the machine of `fluid.formats.pickles`, which here also knows the names with which torch writes tensors.
"""

from __future__ import annotations

import math
import os
import zipfile
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from ..errors import FluidError, FormatError
from ..ir.checked import checked
from ..values.bfloat16 import BFLOAT16
from .commits import open_saved
from .npz import is_archive
from .pickles import PickleMachine, PickleName, PickleRefusal, read_instructions
from .room import most_bytes

_STORAGES = {
    "torch.BFloat16Storage": BFLOAT16,
    "torch.BoolStorage": np.dtype("?"),
    "torch.ByteStorage": np.dtype("u1"),
    "torch.CharStorage": np.dtype("i1"),
    "torch.ComplexDoubleStorage": np.dtype("<c16"),
    "torch.ComplexFloatStorage": np.dtype("<c8"),
    "torch.DoubleStorage": np.dtype("<f8"),
    "torch.FloatStorage": np.dtype("<f4"),
    "torch.HalfStorage": np.dtype("<f2"),
    "torch.IntStorage": np.dtype("<i4"),
    "torch.LongStorage": np.dtype("<i8"),
    "torch.ShortStorage": np.dtype("<i2"),
}
"""Class of a storage -> the type of its elements."""


def is_torch_archive(path: str) -> bool:
    """Whether a file is an archive with a pickle in it, as torch writes since version 1.6."""
    try:
        with open_saved(path) as opened:
            if not is_archive(opened.read(4), 4):
                return False
            with zipfile.ZipFile(opened) as archive:
                return any(name.endswith("/data.pkl") for name in archive.namelist())
    except (OSError, ValueError, zipfile.BadZipFile):
        return False


@checked
def read_torch(path: str) -> dict[str, Any]:
    """The tensors by name in a file of ``torch.save(net.state_dict(), path)``; of a nested dict, names are joined by dots.

    Arrays are read-only views of the file's storages. Numbers and texts beside them, such as a step, are left out.

    Raises:
        FormatError: the file is damaged, in the format before torch 1.6, or holds objects of classes, such as a whole model.
    """
    try:
        with open_saved(path) as opened:
            size = os.fstat(opened.fileno()).st_size
            if not is_archive(opened.read(4), size):
                raise FormatError(
                    f"{path} is in the format of torch before 1.6, or no file of torch; load it there, and write it again: "
                    "torch.save(net.state_dict(), path)"
                )
            with zipfile.ZipFile(opened) as archive:
                return _tensors(path, archive, size)
    except FluidError:
        raise
    except Exception as error:  # from many modules: archives, compression
        raise FormatError(f"{path}: the archive cannot be read: {error}") from None


def _tensors(path: str, archive: zipfile.ZipFile, size: int) -> dict[str, Any]:
    total = sum(info.file_size for info in archive.infolist())
    if total > most_bytes(size):
        raise FormatError(f"{path}: its {size} bytes claim to unpack to {total}")
    names = [name for name in archive.namelist() if name.endswith("/data.pkl")]
    if len(names) != 1:
        raise FormatError(f"{path}: an archive of torch holds one data.pkl, and this one {len(names)}")
    root = names[0].removesuffix("data.pkl")
    if root + "byteorder" in archive.namelist() and archive.read(root + "byteorder").strip() != b"little":
        raise FormatError(f"{path}: it was written on a machine with the most significant byte first")
    storages: dict[str, bytes] = {}

    def storage(key: str, dtype: np.dtype[Any], count: int) -> Any:
        name = f"{root}data/{key}"
        if name not in storages:
            if name not in archive.namelist():
                raise PickleRefusal(f"it refers to the storage {key[:60]!r}, which is not in the archive")
            storages[name] = archive.read(name)
        data = storages[name]
        if count < 0 or count * dtype.itemsize > len(data):
            raise PickleRefusal(f"a storage should have {count} elements of {dtype}, and has {len(data)} bytes")
        return np.frombuffer(data, dtype, count)

    try:
        value = read_instructions(path, archive.read(names[0]), _TorchMachine(storage))
    except FormatError as error:
        if " refers to " in str(error):
            error.restate(f"{error}. Write weights alone, torch.save(net.state_dict(), path), or .safetensors")
        raise
    return dict(_named(value, ""))


def _named(value: Any, start: str) -> Any:
    """The arrays in nested dicts, with their names."""
    if isinstance(value, np.ndarray):
        yield start or "weight", value
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from _named(item, f"{start}.{key}" if start else str(key))


class _Storage:
    """A storage that a tensor refers to."""

    def __init__(self, elements: Any) -> None:
        self.elements = elements


def _rebuilt(storage: Any, offset: Any, size: Any, stride: Any, *_: Any) -> Any:
    """A tensor: a view of a storage."""
    if not isinstance(storage, _Storage):
        raise PickleRefusal("a tensor has no storage")
    numbers = (offset, *size, *stride) if isinstance(size, tuple) and isinstance(stride, tuple) else (None,)
    if not all(type(number) is int and 0 <= number < 1 << 62 for number in numbers) or len(size) != len(stride):
        raise PickleRefusal("a tensor's place, sizes and strides are not numbers")
    if len(size) > 32:
        raise PickleRefusal(f"a tensor has {len(size)} dimensions")
    elements = storage.elements
    last = offset + sum((count - 1) * step for count, step in zip(size, stride, strict=True))
    if math.prod(size) > len(elements) or (math.prod(size) and last >= len(elements)):
        raise PickleRefusal(f"a tensor {list(size)} reaches beyond its storage of {len(elements)} elements")
    if not math.prod(size):
        return np.empty(size, elements.dtype)
    steps = tuple(step * elements.itemsize for step in stride)
    return np.lib.stride_tricks.as_strided(elements[offset:], size, steps, writeable=False)


def _parameter(data: Any, *_: Any) -> Any:
    return data


class _TorchMachine(PickleMachine):
    """Runs the instructions of a pickle of torch; ``storage(key, dtype, count)`` returns the elements of a storage."""

    calls: Mapping[str, Callable[..., Any]] = {
        **PickleMachine.calls,
        "torch._utils._rebuild_parameter": _parameter,
        "torch._utils._rebuild_tensor_v2": _rebuilt,
    }
    names = PickleMachine.names | calls.keys() | _STORAGES.keys()

    def __init__(self, storage: Callable[[str, np.dtype[Any], int], Any]) -> None:
        super().__init__()
        self._storage = storage

    def persistent(self, reference: Any) -> Any:
        match reference:
            case ("storage", PickleName(text=kind), str() as key, str(), int() as count) if kind in _STORAGES:
                return _Storage(self._storage(key, _STORAGES[kind], count))
        raise PickleRefusal("it refers to a storage of a kind that is not known")

    def build(self, state: Any) -> None:
        if self.stack and type(self.stack[-1]) is dict and isinstance(state, dict):
            return  # versions of modules, ``_metadata`` of a state_dict
        super().build(state)
