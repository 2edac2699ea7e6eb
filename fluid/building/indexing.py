"""``x[...]`` of a variable, as slicing ops."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..errors import FluidTypeError, IndexRangeError, ProgramError
from ..ir.program import Variable
from .layer_helper import apply

__all__ = ["getitem"]

_END = 2**31 - 1


def getitem(var: Variable, item: Any) -> Variable:
    """``var[item]`` for integers, slices, ``...`` and None, or tuples of them.

    An integer removes its dimension and None inserts one, as in numpy. Other indices are errors that name a layer to use.
    """
    items = list(item) if isinstance(item, tuple) else [item]
    named = sum(entry is not None and entry is not Ellipsis for entry in items)
    if named > var.ndim or sum(entry is Ellipsis for entry in items) > 1:
        raise IndexRangeError(f"{var.name} ({var.describe()}) cannot be indexed by {_text(items)}: too many indices")
    at = next((i for i, entry in enumerate(items) if entry is Ellipsis), None)
    if at is not None:
        items[at : at + 1] = [slice(None)] * (var.ndim - named)
    cuts: list[tuple[int, int, int]] = []  # axis, start, end
    gone: list[int] = []
    added: list[int] = []
    axis = 0
    for entry in items:
        if entry is None:
            added.append(axis - len(gone) + len(added))
            continue
        size = var.shape[axis]
        if isinstance(entry, slice):
            cut = _bounds(var, entry)
            if cut is not None:
                cuts.append((axis, *cut))
        elif isinstance(entry, (int, np.integer)) and not isinstance(entry, bool):
            index = int(entry)
            if size >= 0 and not -size <= index < size:
                raise IndexRangeError(f"index {index} is outside dimension {axis} of {var.name} ({var.describe()})")
            cuts.append((axis, index, index + 1 if index != -1 else _END))
            gone.append(axis)
        else:
            raise FluidTypeError(
                f"{var.name} cannot be indexed by {_text([entry])}; use integers, slices, ... and None, or layers.gather"
            )
        axis += 1
    result = var
    if cuts:
        axes, starts, ends = (list(column) for column in zip(*cuts, strict=True))
        attrs = {"axes": axes, "starts": starts, "ends": ends, "infer_flags": [1] * len(axes)}
        if gone:
            attrs["decrease_axis"] = gone
        if len(gone) == var.ndim and added:  # one element has the shape [1]
            raise ProgramError(f"{var.name}: None cannot be combined with taking one element; use layers.reshape")
        result = apply("slice", {"Input": result}, attrs)
    if added:
        result = apply("unsqueeze2", {"X": result}, {"axes": added})
    return result if result is not var else apply("assign", {"X": var})


def _bounds(var: Variable, cut: slice) -> tuple[int, int] | None:
    """Start and end; None for the whole dimension."""
    for part in (cut.start, cut.stop, cut.step):
        if part is not None and not isinstance(part, (int, np.integer)):
            raise FluidTypeError(f"{var.name}: the bounds of a slice should be integers, not {part!r}; use layers.slice")
    if cut.step == 0:
        raise ProgramError(f"{var.name}: the step of a slice should not be 0")
    if cut.step not in (None, 1):
        raise ProgramError(f"{var.name}: slices with a step, as {cut.step} here, are not supported; use layers.gather")
    if cut.start in (None, 0) and cut.stop is None:
        return None
    return int(cut.start or 0), _END if cut.stop is None else int(cut.stop)


def _text(items: list[Any]) -> str:
    return ", ".join(item.name if isinstance(item, Variable) else repr(item) for item in items)
