"""Kinds of arrays (shape, element type, device, LoD), and the device of new arrays."""

from __future__ import annotations

import contextlib
import contextvars
import threading
from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np

from fluid.errors import ExecutionError, FluidTypeError
from fluid.values.bfloat16 import computable, converted
from fluid.values.cache import Cache
from fluid.values.numeric import NO_NUMBERS, numeric_array
from fluid.values.place import CPUPlace, CUDAPlace, Place, XLAPlace, namespace_on, no_place
from fluid.values.selected_rows import SelectedRows
from fluid.values.shape import Shape
from fluid.values.spec import Lod, Spec
from fluid.values.types import BFLOAT16, VarType, as_dtype, is_floating

CPU = "cpu"


class ArrayType:
    """Shape, element type, device and LoD of arrays; usable as a key: `array_type_of` returns one object for equal kinds."""

    __slots__ = ("device", "differentiable", "dtype", "lod", "numpy_dtype", "shape", "shape_for_users", "size", "spec", "xp")

    def __init__(
        self, shape: tuple[int, ...], numpy_dtype: Any, xp: Any, device: str, lod: Lod = (), type: VarType = VarType.LOD_TENSOR
    ) -> None:
        self.shape, self.numpy_dtype, self.xp, self.device, self.lod = shape, numpy_dtype, xp, device, lod
        self.dtype: VarType = as_dtype(numpy_dtype)
        self.spec = Spec(shape, self.dtype, type, lod)
        self.shape_for_users = Shape(shape)
        self.size = self.spec.size
        self.differentiable = is_floating(self.dtype)
        DEVICES.add(device)

    def __repr__(self) -> str:
        return str(self.spec) if self.device == CPU else f"{self.spec} on {self.device}"


DEVICES = {CPU}
"""The devices of all arrays seen so far."""

_array_types: Cache[Any, ArrayType] = Cache()


def device_of(array: Any) -> str:
    """``"cpu"``, or ``"cuda:0"`` for an array of cupy on device 0."""
    if type(array) is SelectedRows:
        array = array.value
    return CPU if isinstance(array, np.ndarray) else f"cuda:{array.device.id}"


def array_type_of(array: Any, lod: Lod = ()) -> ArrayType:
    """The kind of an array of numpy or cupy whose rows form the sequences of `lod`."""
    if type(array) is np.ndarray and not lod:
        return _array_types.get((array.shape, array.dtype)) or _array_type((array.shape, array.dtype), np, CPU)
    device = device_of(array)
    if type(array) is SelectedRows:
        key = (array.shape, array.dtype, device, (), VarType.SELECTED_ROWS)
        return _array_type(key, namespace_on(device), device)
    if device == CPU and not lod:
        return _array_type((array.shape, array.dtype), np, CPU)
    return _array_type((array.shape, array.dtype, device, lod), namespace_on(device), device)


def array_type_like(spec: Spec, xp: Any) -> ArrayType:
    """The kind of arrays that fit a spec of known shape, on the device on which `xp` makes new arrays."""
    device = CPU if xp is np else f"cuda:{xp.cuda.Device().id}"
    plain = device == CPU and not spec.lod
    key = spec.shape, spec.dtype.array_dtype
    return _array_type(key if plain else (*key, device, spec.lod), xp, device)


def ones_like(kind: ArrayType) -> Any:
    """An array of a kind that holds ones."""
    if kind.dtype is VarType.BF16:
        return converted(kind.xp.ones(kind.shape, "float32"), BFLOAT16)
    return kind.xp.ones(kind.shape, kind.numpy_dtype)


def _array_type(key: tuple[Any, ...], xp: Any, device: str) -> ArrayType:
    return _array_types.get(key) or _array_types.keep(key, ArrayType(tuple(key[0]), key[1], xp, device, *key[3:]))


_place: contextvars.ContextVar[Place | None] = contextvars.ContextVar("place", default=None)
_device: contextvars.ContextVar[str] = contextvars.ContextVar("device", default=CPU)


@contextlib.contextmanager
def making_on(place: Place) -> Iterator[None]:
    """In the ``with`` block, ops without inputs create their arrays at this place, and traced functions run there."""
    if not isinstance(place, Place):
        raise FluidTypeError(f"tensors are made at a place, {no_place(place)}")
    of_programs = _place.set(place)
    token = _device.set(CPU if place.xp is np else f"cuda:{getattr(place, 'device_id', 0)}")
    try:
        with place.active():
            yield
    finally:
        _device.reset(token)
        _place.reset(of_programs)


def place_of_programs(device: str) -> Place:
    """The place of the function being traced now, on tensors of a device."""
    place = _place.get()
    if isinstance(place, XLAPlace):
        return place
    return CPUPlace() if device == CPU else CUDAPlace(int(device.partition(":")[2]))


def default_device() -> str:
    """The device on which ops without inputs make their arrays, such as ``"cpu"``."""
    return _device.get()


def default_xp() -> Any:
    """The array namespace of ops without inputs."""
    return namespace_on(_device.get())


_MADE_OF = "a tensor is made of an array"


def array_of(value: Any, dtype: Any = None, copy: bool | None = None) -> Any:
    """Convert `value` to a C-contiguous array of numpy or cupy, without a copy if possible.

    Args:
        dtype: element type; by default the type of `value`, or float32 for Python's floats.
        copy: True to always copy, so that later changes of `value` do not show.
    """
    numpy_dtype = None if dtype is None else as_dtype(dtype).array_dtype
    if numpy_dtype == BFLOAT16:
        return converted(array_of(value, copy=copy), BFLOAT16)
    if numpy_dtype is not None and type(value) is np.ndarray:
        value = computable(value)
    if hasattr(value, "__cuda_array_interface__"):
        return namespace_on("cuda").array(value, dtype=numpy_dtype, copy=bool(copy), order="C")
    source = value
    if value.dtype.kind in NO_NUMBERS if type(value) is np.ndarray else type(value) not in (float, int, bool):
        source = numeric_array(value, _MADE_OF)
        copy = None if isinstance(value, (list, tuple)) else copy  # numpy has already created a new array
    if numpy_dtype is not None and numpy_dtype.kind != "c" == getattr(source, "dtype", numpy_dtype).kind:
        raise FluidTypeError(f"{source.dtype}{list(source.shape)} would lose its imaginary parts as {numpy_dtype}")
    try:
        array = (np.array if copy else np.asarray)(source, dtype=numpy_dtype, order="C")
    except MemoryError as error:  # such as for an object that claims 2**60 elements
        raise ExecutionError(f"there is no room in memory for what a tensor is made of: {error}") from None
    if array.dtype.kind in NO_NUMBERS:
        numeric_array(value, _MADE_OF)  # raises an error with the reason
    if type(array) is not np.ndarray:
        array = array.view(np.ndarray)
    if numpy_dtype is None and array.dtype == np.float64 and not hasattr(value, "dtype"):
        array = array.astype(np.float32)
    as_dtype(array.dtype)  # raises an error that lists the supported element types
    return array


class _Quiet(threading.local):
    """A context per thread that silences numpy's warnings of infinities and NaNs, at a tenth of the cost of ``np.errstate``."""

    def __init__(self) -> None:
        context = contextvars.copy_context()
        context.run(partial(np.seterr, all="ignore"))
        self.run = context.run


quietly = _Quiet()
"""``quietly.run(function, *args)`` calls a function without numpy's warnings; calls cannot be nested."""
