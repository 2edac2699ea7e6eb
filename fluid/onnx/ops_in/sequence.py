"""Sequences and optionals.

A sequence with a known number of items is a list of values at build time; any other is an array of tensors.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from ...errors import FormatError
from ...layers.control_flow import While
from ...values.types import VarType
from ..builder import Builder
from ..node import OnnxNode
from ..table import imports
from ..types import element_type
from ..values import Absent, SequenceValue, TensorValue


def as_array(b: Builder, value: SequenceValue) -> Any:
    """Convert a sequence to an array of tensors."""
    if value.items is None:
        return value.array_variable
    dtype = value.items[0].dtype if value.items else VarType.FP32
    out = b.f.new_array(dtype=int(dtype))
    for place, item in enumerate(value.items):
        out = b.f.write_to_array(item, b.constant(np.array([place], np.int64)), Out=out)
    return out


@imports("SequenceConstruct")
def construct(b: Builder, node: OnnxNode) -> Any:
    return SequenceValue([node.tensor(n) for n in range(len(node))])


@imports("SequenceEmpty", trains=False)
def empty(b: Builder, node: OnnxNode) -> Any:
    element_type(node.int("dtype", 1), "its dtype")
    return SequenceValue([])


def _place(node: OnnxNode, index: int, count: int, default: int | None, beyond: int = 0) -> int | None:
    """A constant position in a sequence; None if it is known only at run time."""
    if node.value(index) is None:
        return default
    array = node.array(index)
    if array is None:
        return None
    place = int(np.reshape(array, ()))
    if not -count <= place < count + beyond:
        raise FormatError(f"its position {place} is none in a sequence of {count}")
    return place + count if place < 0 else place


def _given_place(b: Builder, position: Any, array: Any) -> Any:
    """Convert a position known only at run time to an index from the array's start."""
    place = b.cast(b.f.reshape2(position, shape=[1]), VarType.INT64)
    is_negative = b.cast(b.f.less_than(place, b.number(0, VarType.INT64)), VarType.INT64)
    return b.f.elementwise_add(place, b.f.elementwise_mul(is_negative, b.f.lod_array_length(array)))


def _copy(b: Builder, array: Any, out: Any, count: Any, places: Callable[[Any], tuple[Any, Any]]) -> None:
    """Copy `count` entries of an array to another array; `places` maps a number to source and target positions."""
    number = b.f.assign(b.constant(np.zeros(1, np.int64)))
    going = b.f.assign(b.f.less_than(number, count))
    with While(going).block():
        source, target = places(number)
        entry = b.f.read_from_array(array, source)
        b.append("write_to_array", {"X": entry, "I": target}, {"Out": out}, {})
        b.append("increment", {"X": number}, {"Out": number}, {"step": 1.0})
        b.append("assign", {"X": b.f.less_than(number, count)}, {"Out": going}, {})


def _moved(b: Builder, number: Any, place: Any) -> Any:
    """The number, or number + 1 from `place` on."""
    return b.f.elementwise_add(number, b.cast(b.f.greater_equal(number, place), VarType.INT64))


@imports("SequenceAt")
def at(b: Builder, node: OnnxNode) -> Any:
    sequence = node.sequence(0)
    if sequence.items is not None:
        place = _place(node, 1, len(sequence.items), None)
        if place is not None:
            return sequence.items[place]
    array = as_array(b, sequence)
    return b.f.read_from_array(array, _given_place(b, node[1], array))


@imports("SequenceLength", trains=False)
def length(b: Builder, node: OnnxNode) -> Any:
    sequence = node.sequence(0)
    if sequence.items is not None:
        return np.int64(len(sequence.items))
    return b.squeeze(b.f.lod_array_length(sequence.array_variable), [0])


@imports("SequenceInsert")
def insert(b: Builder, node: OnnxNode) -> Any:
    sequence = node.sequence(0)
    if sequence.items is not None:
        place = _place(node, 2, len(sequence.items), len(sequence.items), 1)
        if place is not None:
            return SequenceValue([*sequence.items[:place], node.tensor(1), *sequence.items[place:]])
    array = as_array(b, sequence)
    if node.value(2) is not None:
        position = _given_place(b, node[2], array)
        out = b.f.write_to_array(node[1], position, Out=b.f.new_array(dtype=int(node[1].dtype)))
        _copy(b, array, out, b.f.lod_array_length(array), lambda number: (number, _moved(b, number, position)))
        return SequenceValue(variable=out)
    if array.is_data:
        array = b.f.assign(array)
    b.append("write_to_array", {"X": node[1], "I": b.f.lod_array_length(array)}, {"Out": array}, {})
    return SequenceValue(variable=array)


@imports("SequenceErase")
def erase(b: Builder, node: OnnxNode) -> Any:
    sequence = node.sequence(0)
    if sequence.items is not None:
        place = _place(node, 1, len(sequence.items), len(sequence.items) - 1)
        if place is not None:
            return SequenceValue([*sequence.items[:place], *sequence.items[place + 1 :]])
    array = as_array(b, sequence)
    remaining_count = b.f.scale(b.f.lod_array_length(array), bias=-1.0)
    position = remaining_count if node.value(1) is None else _given_place(b, node[1], array)
    out = b.f.new_array(dtype=int(array.dtype))
    _copy(b, array, out, remaining_count, lambda number: (_moved(b, number, position), number))
    return SequenceValue(variable=out)


@imports("SplitToSequence")
def split(b: Builder, node: OnnxNode) -> Any:
    x = node[0]
    axis = node.int("axis", 0) % x.ndim
    sizes = node.constant_input(1, "its sizes")
    axis_size = x.shape[axis]
    if axis_size < 0:
        raise FormatError("the size of its input is known only in a run")
    keep = bool(node.int("keepdims", 1)) or sizes is not None
    parts: Iterable[int]
    if sizes is not None and sizes.ndim:
        parts = [int(size) for size in sizes]
    else:
        size = 1 if sizes is None else int(sizes)
        if size < 1:
            raise FormatError(f"it splits into parts of {size}")
        parts = (min(size, axis_size - start) for start in range(0, axis_size, size))
    items: list[Any] = []
    start = 0
    for size in parts:
        part = b.slice(x, axis, start, start + size)
        items.append(TensorValue(part if keep else b.squeeze(part, [axis])))
        start += size
    return SequenceValue(items)


@imports("ConcatFromSequence")
def concat(b: Builder, node: OnnxNode) -> Any:
    sequence = node.sequence(0)
    axis, stacks = node.int("axis"), bool(node.int("new_axis", 0))
    if sequence.items is not None:
        items = [b.variables(item) for item in sequence.items]
        return b.f.stack(items, axis=axis) if stacks else b.f.concat(items, axis=axis)
    return b.f.tensor_array_to_tensor(sequence.array_variable, axis=axis, use_stack=stacks)[0]


# ----------------------------------------------------------------------------------------------------------- optionals
@imports("Optional", trains=False)
def optional(b: Builder, node: OnnxNode) -> Any:
    return node.value(0) if len(node) else Absent()


@imports("OptionalHasElement", trains=False)
def has_element(b: Builder, node: OnnxNode) -> Any:
    return np.bool_(len(node) > 0 and not isinstance(node.value(0), Absent))


@imports("OptionalGetElement")
def get_element(b: Builder, node: OnnxNode) -> Any:
    return node.value(0)
