"""``x[...]`` of a variable, as slicing ops."""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import numpy as np

from ..errors import FluidTypeError, IndexRangeError, ProgramError
from ..initializer import value_attrs
from ..ir.program import Variable
from ..values.numeric import numeric_array
from ..values.types import VarType
from .gathering import gather_items, is_array_like, naming, parts_of, scatter_items, with_whole_axes
from .layer_helper import apply

_END = 2**31 - 1
_INTEGERS = (VarType.INT32, VarType.INT64)


class _AxisPart(NamedTuple):
    """The part of an axis from `start` to before `end`, in steps; the bounds are integers or variables of one element."""

    axis: int
    start: Any
    end: Any
    stride: Any = 1

    @property
    def is_known(self) -> bool:
        return not any(isinstance(part, Variable) for part in (self.start, self.end, self.stride))


def getitem(var: Variable, item: Any) -> Variable:
    """``var[item]`` for integers, slices, ``...`` and None, or tuples of them; integers may be int32 or int64 variables.

    An integer removes its dimension and None inserts one, as in numpy. Lists, arrays and variables of several integers or of
    bools gather elements, as in numpy (see `gather_items`).
    """
    items = list(item) if isinstance(item, tuple) else [item]
    if any(map(_gathers, items)):
        return _gather(var, items)
    cuts, gone, added = _cuts(var, item)
    result = _cut(var, cuts, gone) if cuts else var
    if added and len(gone) == var.ndim:  # one element has the shape [1]
        result = apply("reshape2", {"X": result}, {"shape": [1] * len(added)})
    elif added:
        result = apply("unsqueeze2", {"X": result}, {"axes": added})
    return result if result is not var else apply("assign", {"X": var})


def _gather(var: Variable, items: list[Any]) -> Variable:
    """Gather elements; some of the indices are lists, arrays or variables."""
    with naming(partial(_subject, var, items)):
        part, _, entries = _sliced(var, items)
        return gather_items(var._ops(), part, entries, partial(_constant, var))  # type: ignore[no-any-return]


def _sliced(var: Variable, items: list[Any]) -> tuple[Variable, tuple[slice, ...], list[Any]]:
    """The part of a variable that the slices of an index leave, these slices, and the entries that choose among the part."""
    slices, entries = parts_of(var, items)
    cuts, _, _ = _cuts(var, tuple(slices))
    return _cut(var, cuts, []) if cuts else var, tuple(slices), entries


def _constant(var: Variable, array: Any) -> Any:
    return var._ops().assign_value(**value_attrs(array, VarType.INT64))


def _subject(var: Variable, items: list[Any]) -> str:
    """A variable and its index, for messages."""
    return f"{var.name}[{_text(items)}] ({var.describe()})"


def _gathers(entry: Any) -> bool:
    """Whether an index may choose several elements. A variable of the shape [-1] does, as in numpy."""
    return is_array_like(entry) and not (_is_integer(entry) and tuple(entry.shape) != (-1,))


def setitem(var: Variable, item: Any, value: Any) -> None:
    """``var[item] = value``, which writes a new version of the variable; indices as of `getitem`.

    Integers and slices become the op ``set_value``; lists, arrays and variables scatter elements (see `scatter_items`).
    Gradients flow to `value`, and to the elements that stay. `value` is a number or a variable, which broadcasts.

    Raises:
        ProgramError: the variable is a parameter, or the index inserts a dimension.
    """
    if var.persistable:
        raise ProgramError(
            f"{var.name}[...] = ...: {var.name} is persistable, and a program changes such a variable only by an optimizer or "
            "layers.assign(..., output=); to set it once, scope.find_var(name).get_tensor().set(array, place)"
        )
    if not isinstance(value, Variable):
        array = numeric_array(value, f"{var.name}[...] = ...: the value is not an array")
        value = var._ops().assign_value(**value_attrs(array.astype(var.dtype.array_dtype), var.dtype))
    elif value.dtype is not var.dtype:
        value = value.astype(var.dtype)
    items = list(item) if isinstance(item, tuple) else [item]
    if any(map(_gathers, items)):
        _scatter(var, items, value)
    else:
        _set_region(var, item, value)
    var.stop_gradient = var.stop_gradient and value.stop_gradient


def _scatter(var: Variable, items: list[Any], value: Variable) -> None:
    """Write elements; some of the indices are lists, arrays or variables."""
    with naming(partial(_subject, var, items)):
        part, slices, entries = _sliced(var, items)
        new = scatter_items(var._ops(), part, entries, value, partial(_constant, var))
    if part is var:
        var.block.program.current_block().append_op("assign", {"X": new}, {"Out": var})
    else:
        _set_region(var, slices, new)


def _set_region(var: Variable, item: Any, value: Variable) -> None:
    """Write the elements that integers and slices choose."""
    cuts, gone, added = _cuts(var, item)
    if added:
        raise ProgramError(f"{var.name}[{_text(list(item))}] = ...: None inserts a dimension, and nothing can be written there")
    inputs: dict[str, Any] = {"Input": var, "ValueTensor": value}
    attrs: dict[str, Any] = {"axes": [cut.axis for cut in cuts], "decrease_axes": gone, "dtype": int(var.dtype), "shape": []}
    for name, plural in (("start", "starts"), ("end", "ends"), ("stride", "steps")):
        bounds = [getattr(cut, name) for cut in cuts]
        attrs[plural] = [-1 if isinstance(bound, Variable) else bound for bound in bounds]
        if any(isinstance(bound, Variable) for bound in bounds):
            inputs[f"{plural.capitalize()}TensorList"] = [_as_variable(var, bound) for bound in bounds]
    block = var.block.program.current_block()
    block.append_op("set_value", inputs, {"Out": var}, attrs)


def _cuts(var: Variable, item: Any) -> tuple[list[_AxisPart], list[int], list[int]]:
    """The cuts that an index makes, the axes that it removes, and the places where it inserts one."""
    items = list(item) if isinstance(item, tuple) else [item]
    named = sum(entry is not None and entry is not Ellipsis for entry in items)
    if named > var.ndim or sum(entry is Ellipsis for entry in items) > 1:
        raise IndexRangeError(f"{var.name} ({var.describe()}) cannot be indexed by {_text(items)}: too many indices")
    cuts: list[_AxisPart] = []
    gone: list[int] = []
    added: list[int] = []
    axis = 0
    for entry in with_whole_axes(items, var.ndim - named):
        if entry is None:
            added.append(axis - len(gone) + len(added))
            continue
        if isinstance(entry, slice):
            cut = _range(var, axis, entry)
            cuts += [cut] if cut is not None else []
        else:
            cuts.append(_position(var, axis, entry))
            gone.append(axis)
        axis += 1
    return cuts, gone, added


def _cut(var: Variable, cuts: list[_AxisPart], gone: list[int]) -> Variable:
    """The part of a variable that is left by these cuts, without the axes `gone`."""
    inputs: dict[str, Any] = {"Input": var}
    attrs: dict[str, Any] = {"axes": [cut.axis for cut in cuts]}
    in_steps = any(isinstance(cut.stride, Variable) or cut.stride != 1 for cut in cuts)
    for name in ("start", "end", "stride") if in_steps else ("start", "end"):
        bounds = [getattr(cut, name) for cut in cuts]
        attrs[f"{name}s"] = [-1 if isinstance(bound, Variable) else bound for bound in bounds]
        if any(isinstance(bound, Variable) for bound in bounds):
            inputs[f"{name.capitalize()}sTensorList"] = [_as_variable(var, bound) for bound in bounds]
    attrs["infer_flags"] = [1 if cut.is_known else -1 for cut in cuts]
    if gone:
        attrs["decrease_axis"] = gone
    return apply("strided_slice" if in_steps else "slice", inputs, attrs)


def _as_variable(var: Variable, bound: Any) -> Any:
    if isinstance(bound, Variable):
        return bound
    return var._ops().fill_constant(shape=[1], dtype=int(VarType.INT32), value=float(bound), str_value=str(bound))


def _is_integer(value: Any) -> bool:
    if isinstance(value, Variable):
        return value.dtype in _INTEGERS and all(size in (1, -1) for size in value.shape)
    return isinstance(value, (int, np.integer)) and not isinstance(value, bool)


def _position(var: Variable, axis: int, entry: Any) -> _AxisPart:
    """The one element of an axis at an index."""
    if not _is_integer(entry):
        raise FluidTypeError(
            f"{var.name} cannot be indexed by {_text([entry])}; use integers, slices, ... and None, or layers.gather"
        )
    if isinstance(entry, Variable):
        index = entry.astype(VarType.INT32)
        is_last = (index == -1).astype(VarType.INT32)  # which ends at the end, not at 0
        return _AxisPart(axis, index, index + 1 + is_last * _END)
    index, size = int(entry), var.shape[axis]
    if size >= 0 and not -size <= index < size:
        raise IndexRangeError(f"index {index} is outside dimension {axis} of {var.name} ({var.describe()})")
    return _AxisPart(axis, index, index + 1 if index != -1 else _END)


def _range(var: Variable, axis: int, cut: slice) -> _AxisPart | None:
    """The elements of an axis that a slice takes; None for the whole axis."""
    for part in (cut.start, cut.stop):
        if part is not None and not _is_integer(part):
            raise FluidTypeError(f"{var.name}: the bounds of a slice should be integers, not {part!r}; use layers.slice")
    stride = 1 if cut.step is None else cut.step
    if not _is_integer(stride):
        raise FluidTypeError(f"{var.name}: the step of a slice should be an integer, not {cut.step!r}")
    if isinstance(stride, Variable):
        if cut.start is None or cut.stop is None:
            raise ProgramError(f"{var.name}: a slice whose step is a variable should have a start and an end; use 0 or -1, say")
        return _AxisPart(axis, cut.start, cut.stop, stride)
    if stride == 0:
        raise ProgramError(f"{var.name}: the step of a slice should not be 0")
    start, end = (part if part is None or isinstance(part, Variable) else int(part) for part in (cut.start, cut.stop))
    if stride == 1 and (start is None or (not isinstance(start, Variable) and start == 0)) and end is None:
        return None
    if stride > 0:
        return _AxisPart(axis, 0 if start is None else start, _END if end is None else end, int(stride))
    if not isinstance(end, Variable) and end == -1:  # which stands for no end beside a negative step, as Paddle writes it
        if var.shape[axis] < 0:
            raise ProgramError(
                f"{var.name}: the end -1 of a slice backwards along axis {axis}: its size is not known; use layers.reverse"
            )
        end = var.shape[axis] - 1
    return _AxisPart(axis, _END if start is None else start, -1 if end is None else end, int(stride))


def _text(items: list[Any]) -> str:
    return ", ".join(
        entry.name if isinstance(entry, Variable) else "..." if entry is Ellipsis else repr(entry) for entry in items
    )
