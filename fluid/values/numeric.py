"""Arrays of numbers from what users give, and why something is none."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from ..errors import FluidError, FluidTypeError

__all__ = ["DEFAULT_INT", "NO_NUMBERS", "numeric_array"]

NO_NUMBERS = "OSUMm"
"""Kinds of numpy's element types that are neither numbers nor bools."""
DEFAULT_INT = np.dtype(int)
"""What numpy makes of Python's ints: int64, but int32 in a browser, where pointers have 32 bits."""


def numeric_array(value: Any, what: str) -> np.ndarray[Any, Any]:
    """An array of numbers or bools: `value` itself, or what numpy makes of it.

    Raises:
        FluidTypeError: numpy makes none of it; the message begins with `what` and says why.
    """
    if type(value) is not np.ndarray:
        _refuse_masked(value, what)
    try:
        array = np.asarray(value)
    except FluidError:
        raise
    except Exception:  # whatever a value's own __array__ raises
        raise FluidTypeError(f"{what}: {_why_not(value)}") from None
    if array.dtype.kind in NO_NUMBERS:
        raise FluidTypeError(f"{what}: {_why_not(value)}")
    if array.dtype == DEFAULT_INT != np.int64 and not hasattr(value, "dtype"):
        return array.astype(np.int64)
    return array


def _refuse_masked(value: Any, what: str) -> None:
    """`FluidTypeError` if a value, or an item of a list, is a masked array: numpy would take what is masked for numbers."""
    for item in value if isinstance(value, (list, tuple)) else [value]:
        if isinstance(item, np.ma.MaskedArray) and np.ma.is_masked(item):
            masked = f"{np.ma.count_masked(item)} of its {item.size} elements are masked"  # type: ignore[no-untyped-call]
            raise FluidTypeError(f"{what}: {masked}, which leaves them without a value; give them one, as by .filled(0)")


def _why_not(value: Any) -> str:
    """Why a value is no array of numbers."""
    is_list = isinstance(value, (list, tuple)) or (isinstance(value, np.ndarray) and value.ndim > 0)
    verb = "it holds" if is_list else "it is"
    for item in _items(value):
        if isinstance(item, int) and not -(2**63) <= item < 2**64:
            return f"{verb} {item}, which 64 bits cannot hold"
        if np.asarray(item).dtype.kind in NO_NUMBERS:
            return f"{verb} {_shown(item)}"
    return _uneven(value)


def _items(value: Any) -> Iterator[Any]:
    """What nested lists, and arrays of objects, hold."""
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
    """Where nested lists of numbers are no array."""
    level = [value]
    while level:
        shapes = {np.shape(item) for item in level if not isinstance(item, (list, tuple))}
        lists = [item for item in level if isinstance(item, (list, tuple))]
        if lists and shapes:
            beside = next(item for item in level if not isinstance(item, (list, tuple)))
            return f"its lists differ in depth: beside a list it holds {_shown(beside) if np.ndim(beside) else beside}"
        if len({len(item) for item in lists}) > 1:
            other = next(item for item in lists if len(item) != len(lists[0]))
            return f"its lists differ in length, where they hold {len(lists[0])} and {len(other)} items"
        if len(shapes) > 1:
            return f"it holds arrays of the shapes {' and '.join(str(list(shape)) for shape in sorted(shapes)[:2])}"
        level = [item for part in lists for item in part]
    return "numpy makes no array of it"
