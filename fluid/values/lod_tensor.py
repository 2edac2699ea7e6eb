"""The tensors that a scope holds."""

from __future__ import annotations

import operator
import weakref
from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np

from ..errors import ExecutionError, FluidTypeError
from .lod_array import array_of, checked_levels, lod_of, refuse_other_counts, to_lengths
from .memory import contiguous_copy
from .numeric import has, numeric_array
from .one_element import convertible
from .place import CPUPlace, CUDAPlace, Place, no_place, to_numpy
from .types import DTypeLike, VarType, as_dtype


class Owner(Protocol):
    """The holder of a tensor, notified when the tensor gets another array."""

    def tensor_changed(self) -> None: ...


class Remote:
    """An array that lives on a device. A tensor that holds one fetches it when somebody looks."""

    __slots__ = ()

    @property
    def shape(self) -> tuple[int, ...]:
        raise NotImplementedError

    @property
    def dtype(self) -> np.dtype[Any]:
        raise NotImplementedError

    @property
    def device_array(self) -> Any:
        """The array of the device's library; None if it is not to be fed."""
        return None

    def fetch(self) -> np.ndarray[Any, Any]:
        """Copy it to the host."""
        raise NotImplementedError


class LoDTensor:
    """A tensor of a scope: an array on some place, and the lengths of its sequences if it has any.

    `set` gives it an array; ``numpy.asarray(tensor)`` is its value on the host.

    Args:
        array: the array that it holds, not copied; None for nothing yet.
        owner: an object, such as the scope, that is notified when the tensor holds another array.

    >>> tensor = fluid.LoDTensor()
    >>> tensor.set(np.ones([5, 1], "float32"), fluid.CPUPlace())
    >>> tensor.set_recursive_sequence_lengths([[3, 2]])
    >>> tensor.lod()
    [[0, 3, 5]]
    """

    __slots__ = ("_array", "_dims", "_lengths", "_owner")

    def __init__(self, array: Any = None, owner: Owner | None = None) -> None:
        self._array = array
        self._lengths: list[list[int]] = []
        self._dims: list[int] = []
        self._owner = weakref.ref(owner) if owner is not None else None  # a scope goes as soon as nothing uses it

    @classmethod
    def of(cls, value: Any) -> LoDTensor:
        """A tensor that holds an array, or a `LoDArray` with its sequences; None for one that holds nothing."""
        tensor = cls(array_of(value))
        tensor._lengths = to_lengths(lod_of(value))
        return tensor

    @property
    def held(self) -> Any:
        """The array, or the `Remote` that stands for it."""
        return self._array

    @property
    def array(self) -> Any:
        """The array itself, on its place; None until it is set. An array on a device is fetched to the host and stays
        there, because the caller may write to it."""
        if isinstance(self._array, Remote):
            self.array = self._array.fetch()
        return self._array

    @array.setter
    def array(self, array: Any) -> None:
        self._array = array
        owner = self._owner() if self._owner is not None else None
        if owner is not None:
            owner.tensor_changed()

    def _place(self) -> Place:
        """The place of the array."""
        device: Any = getattr(self.array, "device", None)
        return CUDAPlace(device.id) if hasattr(device, "id") else CPUPlace()

    def set(self, array: Any, place: Place | None = None) -> None:
        """Hold a copy of `array` on `place` (the CPU by default).

        Raises:
            FluidTypeError: `place` is no place, or `array` holds no numbers.
        """
        place = place if place is not None else CPUPlace()
        if not isinstance(place, Place):
            raise FluidTypeError(f"LoDTensor.set: place should be a place, {no_place(place)}")
        if has(array, "__cuda_array_interface__"):
            array = place.from_cuda(array)
        else:
            array = numeric_array(array, "LoDTensor.set takes an array")
        if isinstance(place, CPUPlace):
            self.array = contiguous_copy(np, array)
        else:
            self.array = place.xp.array(array, order="C")

    def shape(self) -> list[int]:
        """The dimensions; none before it is set."""
        return list(self.held.shape) if self.held is not None else []

    # -- as Fluid 1.6 fills and reads it piece by piece
    def _set_dims(self, dims: Sequence[int]) -> None:
        """Set the shape for `_alloc_float` and the like."""
        self._dims = [int(size) for size in dims]

    def _get_dims(self) -> list[int]:
        return self.shape()

    def _alloc_float(self, place: Place | None = None) -> None:
        self.set(np.zeros(self._dims, np.float32), place)

    def _alloc_double(self, place: Place | None = None) -> None:
        self.set(np.zeros(self._dims, np.float64), place)

    def _alloc_int(self, place: Place | None = None) -> None:
        self.set(np.zeros(self._dims, np.int32), place)

    def _mutable_data(self, place: Place, dtype: DTypeLike) -> int:
        """Memory for elements of this type in the shape of `_set_dims`; returns its address."""
        self.set(np.zeros(self._dims, as_dtype(dtype).numpy), place)
        data = self.array.data
        return int(self.array.ctypes.data if isinstance(data, memoryview) else data.ptr)

    def _get_float_element(self, index: int) -> float:
        return float(np.asarray(self).reshape(-1)[index])

    def _set_float_element(self, index: int, value: float) -> None:
        self.array.reshape(-1)[index] = value

    _get_double_element, _set_double_element = _get_float_element, _set_float_element

    def _dtype(self) -> VarType:
        return as_dtype(self.held.dtype)

    def _is_initialized(self) -> bool:
        return self.held is not None

    def _to_dlpack(self) -> Any:
        return self.__dlpack__()

    def __getitem__(self, item: Any) -> LoDTensor:
        """A part of it, as a tensor that shares its memory."""
        return LoDTensor(self.array[item])

    def has_valid_recursive_sequence_lengths(self) -> bool:
        """Whether the lengths of each level count the sequences of the next, and the last ones the rows."""
        levels = self._lengths
        counts = [len(level) for level in levels[1:]] + ([self.array.shape[0]] if self.array is not None else [])
        return all(sum(level) == count and min(level, default=0) >= 0 for level, count in zip(levels, counts, strict=False))

    def lod(self) -> list[list[int]]:
        """Offsets of the sequences, level by level."""
        return [[0, *np.cumsum(lengths).tolist()] for lengths in self._lengths]

    def set_lod(self, lod: Sequence[Sequence[int]]) -> None:
        """Set the sequences by their offsets, level by level: ``[[0, 3, 5]]`` for two of 3 and 2 rows."""
        self.set_recursive_sequence_lengths([np.diff(level).tolist() for level in checked_levels(lod)])

    def recursive_sequence_lengths(self) -> list[list[int]]:
        """Lengths of the sequences, level by level: ``[[3, 2]]`` for two of 3 and 2 rows."""
        return [list(level) for level in self._lengths]

    def set_recursive_sequence_lengths(self, lengths: Sequence[Sequence[int]]) -> None:
        """Set the sequences by their lengths, level by level.

        Raises:
            ExecutionError: a level does not count the sequences of the next one.
        """
        levels = checked_levels(lengths)
        refuse_other_counts(levels)
        self._lengths = levels

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray[Any, Any]:
        held = self.held
        if held is None:
            raise ExecutionError("this tensor holds nothing yet; run the startup program, or set() it")
        array = held.fetch() if isinstance(held, Remote) else to_numpy(held)
        if dtype is not None and array.dtype != dtype:
            return array.astype(dtype)
        return array.copy() if copy else array

    def __dlpack__(self, **kwargs: Any) -> Any:
        """Its memory for another library, which shares it: ``torch.from_dlpack(tensor)``."""
        return self._filled().__dlpack__(**kwargs)

    def __dlpack_device__(self) -> Any:
        """The kind and number of its device, as DLPack numbers them."""
        return self._filled().__dlpack_device__()

    def _filled(self) -> Any:
        if self.held is None:
            raise ExecutionError("this tensor holds nothing yet; run the startup program, or set() it")
        return self.array

    def __float__(self) -> float:
        return float(convertible(np.asarray(self)))

    def __int__(self) -> int:
        return int(convertible(np.asarray(self)))

    def __index__(self) -> int:
        return operator.index(convertible(np.asarray(self)))

    def __format__(self, spec: str) -> str:
        return format(convertible(np.asarray(self)), spec) if spec else str(self)

    def __repr__(self) -> str:
        return f"<LoDTensor {self.array!r}>"


class _CallableShape(tuple[int, ...]):
    """A shape that gives itself as a list when it is called."""

    __slots__ = ()

    def __call__(self) -> list[int]:
        return list(self)


class FedArray(np.ndarray[Any, Any]):
    """An array that is also read as a `LoDTensor` without sequences: by ``shape()``, ``lod()``."""

    @property  # type: ignore[misc]
    def shape(self) -> _CallableShape:
        """The shape, a tuple; called, a list."""
        return _CallableShape(super().shape)

    def lod(self) -> list[list[int]]:
        """No levels."""
        return []

    recursive_sequence_lengths = lod


class LoDTensorArray(list[LoDTensor]):
    """An array of tensors, such as a loop writes step by step: a list of `LoDTensor`.

    Args:
        iterable: its tensors at first.

    >>> array = fluid.LoDTensorArray()
    >>> array.append(np.ones([2, 3], "float32"))
    >>> array[0].shape()
    [2, 3]
    """

    def append(self, tensor: Any) -> None:
        """Add a tensor, or a tensor of a copy of an array, at the end."""
        if not isinstance(tensor, LoDTensor):
            array, tensor = tensor, LoDTensor()
            tensor.set(array)
        super().append(tensor)
