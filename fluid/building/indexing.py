"""``x[...]`` of a variable, as slicing ops."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..errors import FluidTypeError, ProgramError
from ..initializer import constant_attrs
from ..ir.program import Variable
from ..values.types import VarType
from .layer_helper import apply, product

__all__ = ["getitem"]

_END = 2**31 - 1
_Bound = int | Variable


def getitem(var: Variable, item: Any) -> Variable:
    """``var[item]`` for integers, slices, ``...`` and None, or tuples of them; integers and bounds may be variables of one.

    An integer removes its dimension and None inserts one, as in numpy. Other indices are errors that name a layer to use.
    """
    items = list(item) if isinstance(item, tuple) else [item]
    named = sum(entry is not None and entry is not Ellipsis for entry in items)
    if named > var.ndim or sum(entry is Ellipsis for entry in items) > 1:
        raise ProgramError(f"{var.name} ({var.describe()}) cannot be indexed by {_text(items)}: too many indices")
    at = next((i for i, entry in enumerate(items) if entry is Ellipsis), None)
    if at is not None:
        items[at : at + 1] = [slice(None)] * (var.ndim - named)
    cuts: list[tuple[int, _Bound, _Bound, _Bound]] = []  # axis, start, end, stride
    gone: list[int] = []
    added: list[int] = []
    axis = 0
    for entry in items:
        if entry is None:
            added.append(axis - len(gone) + len(added))
            continue
        if isinstance(entry, slice):
            cut = _bounds(var, axis, entry)
            if cut is not None:
                cuts.append((axis, *cut))
        elif _is_index(entry):
            cuts.append((axis, *_place(var, axis, entry)))
            gone.append(axis)
        else:
            raise FluidTypeError(
                f"{var.name} cannot be indexed by {_text([entry])}; use integers, slices, ... and None, or layers.gather"
            )
        axis += 1
    if len(gone) == var.ndim and added:  # one element has the shape [1]
        raise ProgramError(f"{var.name}: None cannot be combined with taking one element; use layers.reshape")
    result = _cut(var, cuts, gone) if cuts else var
    if added:
        result = apply("unsqueeze2", {"X": result}, {"axes": added})
    return result if result is not var else apply("assign", {"X": var})


def _is_index(entry: Any) -> bool:
    """Whether this is an integer, or a variable that can hold one."""
    if isinstance(entry, Variable):
        return entry.dtype in (VarType.INT32, VarType.INT64) and product(entry.shape) in (1, -1)
    return isinstance(entry, (int, np.integer)) and not isinstance(entry, bool)


def _place(var: Variable, axis: int, index: Any) -> tuple[_Bound, _Bound, _Bound]:
    """Start, end and stride of one element."""
    if isinstance(index, Variable):  # -1 is followed by 0, which stands for the end where the dimension is dropped
        return index, apply("scale", {"X": index}, {"scale": 1.0, "bias": 1.0}), 1
    size, index = var.shape[axis], int(index)
    if size >= 0 and not -size <= index < size:
        raise ProgramError(f"index {index} is outside dimension {axis} of {var.name} ({var.describe()})")
    return index, index + 1 if index != -1 else _END, 1


def _bounds(var: Variable, axis: int, cut: slice) -> tuple[_Bound, _Bound, _Bound] | None:
    """Start, end and stride; None for the whole dimension."""
    for part in (cut.start, cut.stop, cut.step):
        if part is not None and not _is_index(part):
            raise FluidTypeError(f"{var.name}: the bounds of a slice should be integers, not {part!r}; use layers.slice")
    start, stop, step = (
        part if part is None or isinstance(part, Variable) else int(part) for part in (cut.start, cut.stop, cut.step)
    )
    step = 1 if step is None else step
    if isinstance(step, Variable):
        if start is None or stop is None:
            raise ProgramError(f"{var.name}: a slice whose step is a variable should have a start and an end; use 0 or -1, say")
        return start, stop, step
    if step == 0:
        raise ProgramError(f"{var.name}: the step of a slice should not be 0")
    if step < 0 and stop is not None and not isinstance(stop, Variable) and stop < 0:
        size = var.shape[axis]
        if size < 0 and stop == -1:  # which the op takes for no end
            raise ProgramError(f"{var.name}: a slice to -1 by {step} needs dimension {axis} to be known ({var.describe()})")
        stop = stop if size < 0 else max(stop + size, -1)
    if step == 1 and stop is None and (start is None or (type(start) is int and start == 0)):
        return None
    first, last = (0, _END) if step > 0 else (_END, -1)
    return first if start is None else start, last if stop is None else stop, step


def _cut(var: Variable, cuts: list[tuple[int, _Bound, _Bound, _Bound]], gone: list[int]) -> Variable:
    """`var` with these slices of dimensions, without the dimensions `gone`."""
    axes, *columns = (list(column) for column in zip(*cuts, strict=True))
    bounds = dict(zip(("starts", "ends", "strides"), columns, strict=True))
    if all(type(stride) is int and stride == 1 for stride in bounds["strides"]):
        del bounds["strides"]
    inputs: dict[str, Any] = {"Input": var}
    attrs: dict[str, Any] = {"axes": axes}
    flags = [1] * len(axes)
    for name, items in bounds.items():
        attrs[name] = [-1 if isinstance(item, Variable) else item for item in items]
        if any(isinstance(item, Variable) for item in items):
            inputs[name.capitalize() + "TensorList"] = [_as_variable(item) for item in items]
            flags = [-1 if isinstance(item, Variable) else flag for item, flag in zip(items, flags, strict=True)]
    attrs["infer_flags"] = flags
    if gone:
        attrs["decrease_axis"] = gone
    return apply("strided_slice" if "strides" in bounds else "slice", inputs, attrs)


def _as_variable(item: _Bound) -> Variable:
    if isinstance(item, Variable):
        return item
    return apply("fill_constant", {}, constant_attrs([1], VarType.INT32, item))


def _text(items: list[Any]) -> str:
    return ", ".join(item.name if isinstance(item, Variable) else repr(item) for item in items)
