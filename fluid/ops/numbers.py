"""Input slots that hold numbers for an op, such as sizes or axes, and the attributes that say the same.

An op whose numbers are known takes them as attributes (`state_numbers`). Then inference knows its shapes, and native code and
files in other formats can hold it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..ir.program import Operator
from ..opdef.registry import EMPTY

_Slots = dict[str, tuple[str, ...]]
_SHAPE: _Slots = {"shape": ("ShapeTensorList", "ShapeTensor")}
_BOUNDS: _Slots = {"starts": ("StartsTensorList", "StartsTensor"), "ends": ("EndsTensorList", "EndsTensor")}
_STRIDED: _Slots = {**_BOUNDS, "strides": ("StridesTensorList", "StridesTensor")}
_RESHAPED: _Slots = {"shape": ("ShapeTensor", "Shape")}
_OFFSETS: _Slots = {"offsets": ("OffsetsTensor", "Offsets")}
_DEPTH: _Slots = {"depth": ("depth_tensor",)}
_REGION: _Slots = {"starts": ("StartsTensorList",), "ends": ("EndsTensorList",), "steps": ("StepsTensorList",)}
_TESTED: _Slots = {"dim": ("AxisTensorList", "AxisTensor")}
_UNPOOLED: _Slots = {"output_size": ("OutputSize",)}
_NUMBERS: dict[str, _Slots] = {
    "reshape": _RESHAPED,
    "reshape2": _RESHAPED,
    "expand_v2": {"shape": ("expand_shapes_tensor", "Shape")},
    "expand": {"expand_times": ("expand_times_tensor", "ExpandTimes")},
    "tile": {"repeat_times": ("repeat_times_tensor", "RepeatTimes")},
    "unsqueeze2": {"axes": ("AxesTensorList", "AxesTensor")},
    "slice": _BOUNDS,
    "strided_slice": _STRIDED,
    "set_value": _REGION,
    "concat": {"axis": ("AxisTensor",)},
    "split": {"axis": ("AxisTensor",), "sections": ("SectionsTensorList",)},
    "gather": {"axis": ("Axis",)},
    "roll": {"shifts": ("ShiftsTensor",)},
    "crop": {"offsets": ("Offsets",)},
    "crop_tensor": {"shape": ("ShapeTensor", "Shape"), **_OFFSETS},
    "uncrop": _OFFSETS,
    "crop_like": _OFFSETS,
    "one_hot": _DEPTH,
    "one_hot_v2": _DEPTH,
    "top_k": {"k": ("K",)},
    "top_k_v2": {"k": ("K",)},
    "sequence_mask": {"maxlen": ("MaxLenTensor",)},
    "affine_grid": {"output_shape": ("OutputShape",)},
    "unpool": _UNPOOLED,
    "unpool3d": _UNPOOLED,
    "pad2d": {"paddings": ("Paddings",)},
    **dict.fromkeys(("reduce_all", "reduce_any"), _TESTED),
    **dict.fromkeys(("fill_constant", "empty", "uniform_random", "gaussian_random", "randint"), _SHAPE),
}
"""Type of an op -> attribute -> the slots that replace it, the one that counts first."""

_RESIZED = tuple(f"{method}_interp" for method in ("linear", "bilinear", "trilinear", "nearest", "bicubic"))
_INTERPOLATIONS = {*_RESIZED, *(f"{op_type}_v2" for op_type in _RESIZED)}
_EXTENTS = ("SizeTensor", "OutSize")

COUNTED = frozenset({"range", "linspace"})
"""Ops whose number of results depends on the values of their inputs."""

ValuesOf = Callable[[str], Any]
"""Returns the array of a variable by name, or None if it is not known."""


def _type_of(op: Operator) -> str:
    """The type of an op; of a gradient op, the type of its forward op, whose slots and attributes it has."""
    definition = op.definition
    return op.type if definition is None or definition.forward is None else definition.forward.type


def slots_of_numbers(op: Operator) -> list[str]:
    """The slots of an op in use whose numbers could be attributes."""
    op_type = _type_of(op)
    if op_type in _INTERPOLATIONS:
        return [slot for slot in (*_EXTENTS, "Scale") if op.inputs.get(slot)]
    return [slot for slots in _NUMBERS.get(op_type, {}).values() for slot in slots if op.inputs.get(slot)]


def is_sized_by_values(op: Operator) -> bool:
    """Whether the shapes of an op's results depend on the values of inputs."""
    return op.type in COUNTED or bool(slots_of_numbers(op))


def state_numbers(op: Operator, value_of: ValuesOf) -> bool:
    """State in attributes what an op reads from known variables, and drop these inputs; returns whether anything changed.

    Args:
        op: any op.
        value_of: returns the array of a variable by name, or None if it is not known.
    """
    op_type = _type_of(op)
    if op_type in _INTERPOLATIONS:
        return _state_extents(op, op_type, value_of)
    changed = False
    for attribute, slots in _NUMBERS.get(op_type, {}).items():
        numbers = _numbers_in(op, slots, value_of)
        if numbers is None:
            continue
        default = op.attr(attribute)
        if op_type.startswith("reshape") and op.inputs.get("ShapeTensor") and len(default) == len(numbers):
            numbers = [stated if stated > 0 else number for stated, number in zip(default, numbers, strict=True)]
        op.attrs[attribute] = numbers if isinstance(default, list) else numbers[0]
        _drop(op, slots)
        changed = True
    return changed


def _numbers_in(op: Operator, slots: tuple[str, ...], value_of: ValuesOf, kind: Callable[[Any], Any] = int) -> list[Any] | None:
    """The numbers in the first of these slots that is in use; None if there is none, or they are not known."""
    slot = next((slot for slot in slots if op.inputs.get(slot)), None)
    if slot is None:
        return None
    arrays: list[Any] = [None if name == EMPTY else value_of(name) for name in op.inputs[slot]]
    if any(array is None for array in arrays):
        return None
    if len(arrays) > 1 and any(array.size != 1 for array in arrays):
        return None
    return [kind(number) for array in arrays for number in array.reshape(-1)]


def _drop(op: Operator, slots: tuple[str, ...]) -> None:
    op.inputs = {slot: names for slot, names in op.inputs.items() if slot not in slots}


def _state_extents(op: Operator, op_type: str, value_of: ValuesOf) -> bool:
    """`state_numbers` for an op that resizes images: sizes, or the ratio of sizes."""
    has_list = op_type.endswith("_v2")
    extents = _numbers_in(op, _EXTENTS, value_of)
    if extents is not None and (op.inputs.get("SizeTensor") or not (op.attr("scale") or op.inputs.get("Scale"))):
        op.attrs.update(zip(("out_d", "out_h", "out_w")[3 - len(extents) :], extents, strict=True))
        op.attrs["scale"] = [] if has_list else 0.0
        _drop(op, (*_EXTENTS, "Scale"))
        return True
    scale = _numbers_in(op, ("Scale",), value_of, float)
    if scale is not None and not any(op.inputs.get(slot) for slot in _EXTENTS) and (has_list or len(scale) == 1):
        op.attrs["scale"] = scale if has_list else scale[0]
        _drop(op, ("Scale",))
        return True
    return False
