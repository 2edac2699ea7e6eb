"""Converts users' values to arrays of numbers, or explains why a value is none."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import prod
from operator import index
from typing import Any

import numpy as np

from ..errors import FluidError, FluidTypeError, readable

NO_NUMBERS = "OSUMm"
"""Kinds of numpy's element types that are neither numbers nor bools."""
DEFAULT_INT = np.dtype(int)
"""The type that numpy gives Python's ints: int64, but int32 in a browser, where pointers have 32 bits."""


_PLAIN = frozenset({int, float, bool, complex, str, bytes, type(None), *np.sctypeDict.values()})
_AS_ARRAY = ("__array__", "__array_interface__", "__array_struct__")
_MOST_DIMENSIONS = 64
_MOST_ITEMS = 1 << 40


def numeric_array(value: Any, subject: str) -> np.ndarray[Any, Any]:
    """Convert `value` to an array of numbers or bools; such an array is returned as it is.

    Raises:
        FluidTypeError: numpy makes none of it; the message begins with `subject` and says why.
    """
    try:
        if type(value) is not np.ndarray and _count_of(value, subject, 0, {}) > _MOST_ITEMS:
            raise ValueError("its lists hold each other so often that they stand for more numbers than memory holds")
        array = np.asarray(value)
    except FluidError:
        raise
    except Exception as error:  # whatever a value's own __array__ raises
        raise FluidTypeError(f"{subject}: {_why_not(value, error)}") from None
    if array.dtype.kind in NO_NUMBERS:
        raise FluidTypeError(f"{subject}: {_why_not(value)}")
    if array.dtype == DEFAULT_INT != np.int64 and not hasattr(value, "dtype"):
        return array.astype(np.int64)
    return array


def _count_of(value: Any, subject: str, depth: int, counts: dict[int, int]) -> int:
    """Count the items of nested lists, in time that the lists themselves bound; check values that numpy would trust.

    Raises:
        FluidTypeError: an item is a masked array.
        ValueError: an item lies about its memory, or lists are nested deeper than arrays have dimensions, as those are that
            hold themselves.
    """
    if type(value) in _PLAIN:
        return 1
    if not isinstance(value, (list, tuple)):
        if isinstance(value, np.ndarray):
            _refuse_masked(value, subject)
            return 1
        if any(hasattr(value, name) for name in _AS_ARRAY):
            _check_memory(value)
            return 1
        if not isinstance(value, Sequence) or isinstance(value, (str, bytes, bytearray, memoryview, range)):
            return 1
    if depth == _MOST_DIMENSIONS:
        raise ValueError(f"its lists are nested more than {_MOST_DIMENSIONS} deep, or hold themselves")
    if id(value) not in counts:
        is_flat = _PLAIN.issuperset(map(type, value))
        counts[id(value)] = len(value) if is_flat else sum(_count_of(item, subject, depth + 1, counts) for item in value)
    return counts[id(value)]


def _refuse_masked(value: Any, subject: str) -> None:
    """Raise `FluidTypeError` for a masked array: numpy would read the masked elements as numbers."""
    if isinstance(value, np.ma.MaskedArray) and np.ma.is_masked(value):
        masked = f"{np.ma.count_masked(value)} of its {value.size} elements are masked"  # type: ignore[no-untyped-call]
        raise FluidTypeError(f"{subject}: {masked}, which leaves them without a value; give them one, as by .filled(0)")


def _check_memory(value: Any) -> None:
    """`ValueError` if a value says that its elements lie outside of the memory that it names; numpy would read there."""
    interface = getattr(value, "__array_interface__", None)
    if not isinstance(interface, dict):
        return
    if np.dtype(interface["typestr"]).hasobject:
        raise ValueError("it says that its bytes are Python objects")
    memory, strides, start = (interface.get(name) for name in ("data", "strides", "offset"))
    if memory is None or isinstance(memory, tuple) or (strides is None and not start):
        return  # numpy checks sizes, and nobody can know what lies at an address
    shape, size = tuple(map(index, interface["shape"])), np.dtype(interface["typestr"]).itemsize
    if 0 in shape:
        return
    steps = [size * prod(shape[axis + 1 :]) for axis in range(len(shape))] if strides is None else list(map(index, strides))
    ends = [(extent - 1) * step for extent, step in zip(shape, steps, strict=True)]
    first, held = index(start or 0), memoryview(memory).nbytes
    if first + sum(min(end, 0) for end in ends) < 0 or first + sum(max(end, 0) for end in ends) + size > held:
        raise ValueError(f"its elements lie outside of the {held} bytes that it holds")


def _why_not(value: Any, error: Exception | None = None) -> str:
    """Explain why a value is no array of numbers: the fault found in it, else the error raised by numpy or by the value."""
    try:
        seen = _seen_in(value)
    except Exception:  # the value holds itself, or raises where it is looked at
        seen = ""
    return seen or f"numpy makes no array of it{'' if error is None else f' ({said_by(error)})'}"


def has(value: Any, name: str) -> bool:
    """Whether a value has an attribute; not if it raises an error where it is asked for it."""
    try:
        return hasattr(value, name)
    except Exception:
        return False


def said_by(error: BaseException) -> str:
    """The type and the text of an error, which may be of a kind that raises another one where it is asked for its text."""
    try:
        return readable(f"{type(error).__name__}: {error}")
    except Exception:
        return type(error).__name__


def _seen_in(value: Any) -> str:
    """Describe the item that is no number, or how the lists differ; "" if neither is found."""
    is_list = isinstance(value, (list, tuple)) or (isinstance(value, np.ndarray) and value.ndim > 0)
    verb = "it holds" if is_list else "it is"
    for item in _items(value):
        if isinstance(item, int) and not -(2**63) <= item < 2**64:
            return f"{verb} {item}, which 64 bits cannot hold"
        if isinstance(item, np.ndarray) or type(item) in _PLAIN:
            is_number = np.asarray(item).dtype.kind not in NO_NUMBERS
        else:
            is_number = any(hasattr(item, name) for name in _AS_ARRAY)  # or says so, and numpy might believe it
        if not is_number:
            return f"{verb} {_shown(item)}"
    return _uneven(value)


def _items(value: Any) -> Iterator[Any]:
    """Yield the items of nested lists and of arrays of objects."""
    if isinstance(value, np.ndarray):
        value = value.tolist() if value.dtype.kind in NO_NUMBERS else ()
    if isinstance(value, (list, tuple)):
        for item in value:
            yield from _items(item)
    else:
        yield value


def _shown(item: Any) -> str:
    """A value with its type, briefly."""
    if item is None:
        return "None"
    text = repr(item)
    return f"{text if len(text) <= 60 else text[:57] + '...'}, a {type(item).__name__}"


def _uneven(value: Any) -> str:
    """Describe where nested lists of numbers differ in depth or length; "" if they do not."""
    level = [value]
    while level:
        shapes = {tuple(getattr(item, "shape", ())) for item in level if not isinstance(item, (list, tuple))}
        lists = [item for item in level if isinstance(item, (list, tuple))]
        if lists and shapes:
            beside = next(item for item in level if not isinstance(item, (list, tuple)))
            text = _shown(beside) if getattr(beside, "shape", ()) else beside
            return f"its lists differ in depth: beside a list it holds {text}"
        if len({len(item) for item in lists}) > 1:
            uneven = next(item for item in lists if len(item) != len(lists[0]))
            return f"its lists differ in length, where they hold {len(lists[0])} and {len(uneven)} items"
        if len(shapes) > 1:
            return f"it holds arrays of the shapes {' and '.join(str(list(shape)) for shape in sorted(shapes)[:2])}"
        level = [item for part in lists for item in part]
    return ""
