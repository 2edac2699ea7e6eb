"""Arrays aligned to the lines of the processor's cache, and the error where there is no room for an array."""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping
from math import prod
from typing import Any

import numpy as np

from ..errors import OutOfMemoryError, gibibytes, no_room

ALIGNMENT = 64
"""The bytes of a line. Vectors that lie across two lines load slower: products of weights that do take a tenth longer."""


def address_of(array: Any) -> int:
    """The address of an array's first element, on the host or on a device."""
    interface = getattr(array, "__array_interface__", None) or array.__cuda_array_interface__
    return int(interface["data"][0])


def extent_of(array: Any) -> tuple[int, int]:
    """The addresses of the first byte of an array, which has elements, and of the one after its last."""
    start = address_of(array)
    if array.flags.c_contiguous or array.flags.f_contiguous:
        return start, start + array.nbytes
    steps = [(size - 1) * stride for size, stride in zip(array.shape, array.strides, strict=True)]
    return start + sum(step for step in steps if step < 0), start + sum(step for step in steps if step > 0) + array.itemsize


def names_in_shared_memory(arrays: Mapping[Any, Any], overwritten: Container[str]) -> set[str]:
    """The names in `overwritten` whose arrays lie in the memory of another one."""
    names, last, end = set(), "", 0
    extents = [(extent_of(array), key) for key, array in arrays.items() if array.size]
    for (start, stop), name in sorted(extents, key=lambda pair: pair[0]):
        overlaps = start < end
        if overlaps and name in overwritten:
            names.add(name)
        elif overlaps and last in overwritten:
            names.add(last)
            last, end = name, stop
        elif stop > end:
            last, end = name, stop
    return names


def allocated(make: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Call a function of numpy or cupy that makes an array.

    Raises:
        OutOfMemoryError: there is no room for it.
    """
    try:
        return make(*args, **kwargs)
    except (MemoryError, ValueError) as error:
        if (without_room := no_room(error)) is None:
            raise
        raise without_room from None


def aligned_bytes(make: Callable[..., Any], size: int) -> Any:
    """Allocate `size` bytes that start at a cache line.

    Args:
        make: what allocates them, such as ``numpy.empty`` or ``numpy.zeros``.
        size: how many.

    Raises:
        OutOfMemoryError: there is no room for them.
    """
    try:
        raw = make(size + ALIGNMENT, "uint8")
    except (ValueError, MemoryError):  # numpy raises ValueError for impossible sizes; cupy's error is a MemoryError
        raise OutOfMemoryError(f"there is no room in memory for {gibibytes(size)}") from None
    first = -raw.ctypes.data % ALIGNMENT if isinstance(raw, np.ndarray) else 0  # devices align by themselves
    return raw[first : first + size]


def empty_array(xp: Any, shape: tuple[int, ...], dtype: Any) -> Any:
    """An array without values, in memory as of `aligned_bytes`."""
    element = xp.dtype(dtype)
    try:
        memory = aligned_bytes(xp.empty, prod(shape) * element.itemsize)
    except OutOfMemoryError as error:
        error.restate(f"{error}, for {element}{list(shape)}")
        raise
    return memory.view(element).reshape(shape)


def contiguous_copy(xp: Any, array: Any) -> Any:
    """A copy of an array in memory as of `empty_array`."""
    copied = empty_array(xp, array.shape, array.dtype)
    copied[...] = array
    return copied
