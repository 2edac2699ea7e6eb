"""Compute nodes with constant inputs while the program is built: arithmetic on shapes, and all other ops that need no weights.

Partly known integers, such as the shape of a batch of unknown size, are arrays that mix numbers with `Size`s and `Element`s. Ops
that only move numbers move these too.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

import numpy as np

from ..errors import FormatError
from ..opdef.tables import OpTable
from ..values.bfloat16 import BFLOAT16, computable, converted, to_bfloat16
from ..values.types import is_floating
from .node import OnnxNode
from .types import element_type, is_held_wider
from .values import Size, TensorValue

_MOST, _MOST_PARTLY = 4096, 256
"""The most numbers to fold, and the most to follow where they are partly known."""
_OBJECT = 48
"""Bytes of memory of a number in a partly known array."""
_FOLDS: OpTable[Callable[[OnnxNode, list[Any]], Any]] = OpTable("function that folds it")
_folds = _FOLDS.register


def folded(node: OnnxNode) -> Any:
    """The result of a node with constant inputs: a `TensorValue`, an array of partly known integers, or None."""
    fold = _FOLDS.get(node.proto.op_type)
    if fold is None or (not node.inputs and node.proto.op_type != "Constant"):
        return None
    if node.proto.op_type == "Shape":
        return _shape(node)
    arrays: list[Any] = []
    partly = False
    for value in node.inputs:
        if value is None:
            arrays.append(None)
        elif not isinstance(value, TensorValue):
            return None
        elif value.fixed is not None:
            arrays.append(value.fixed)
        elif value.elements is not None:
            arrays.append(value.elements)
            partly = True
        else:
            return None
        if arrays[-1] is not None and arrays[-1].size > _MOST:
            return None
    if partly and node.proto.op_type not in _MOVES:
        return None
    if _size_of_result(node, arrays) > (_MOST_PARTLY if partly else _MOST):
        return None
    of_bfloat16 = any(array is not None and array.dtype == BFLOAT16 for array in arrays)
    if of_bfloat16:
        arrays = [array if array is None else computable(array) for array in arrays]
    try:
        with np.errstate(all="ignore"):
            result = fold(node, arrays)
    except _Unknown:
        return None
    if result is None:
        return None
    result = np.asarray(result)
    if of_bfloat16 and result.dtype == np.float32 and node.proto.op_type != "Cast":
        result = to_bfloat16(result)
    if result.dtype == object:
        if all(isinstance(number, (int, np.integer)) for number in result.reshape(-1)):
            result = result.astype(node.tensor(0).dtype.numpy)
        else:
            node.reader.builder.room.take(_OBJECT * result.size)
            return result
    return node.reader.builder.constant(result)


def _size_of_result(node: OnnxNode, arrays: list[Any]) -> int:
    """An upper bound of the number of elements that a node makes of arrays."""
    present = [array for array in arrays if array is not None]
    if node.proto.op_type == "Concat":
        return sum(array.size for array in present)
    if node.proto.op_type == "Gather" and len(present) == 2 and present[0].ndim:
        data, index = present
        axis = node.int("axis", 0)
        return data.size // max(data.shape[axis], 1) * index.size if -data.ndim <= axis < data.ndim else 0
    if node.proto.op_type in _BROADCASTS:
        return prod(np.broadcast_shapes(*(array.shape for array in present)))
    return max((array.size for array in present), default=0)


class _Unknown(Exception):
    """A result is not known at build time."""


_MOVES = {
    "Gather",
    "Concat",
    "Slice",
    "Unsqueeze",
    "Squeeze",
    "Reshape",
    "Cast",
    "Identity",
    "Mul",
    "Add",
    "Sub",
    "Div",
    "Transpose",
}
"""Ops that take partly known numbers."""

_BROADCASTS = {
    "Add", "Sub", "Mul", "Div", "Mod", "Min", "Max", "Where", "Equal", "Less", "Greater", "LessOrEqual", "GreaterOrEqual", "And",
    "Or",
}  # fmt: skip


def _shape(node: OnnxNode) -> Any:
    value = node.tensor(0)
    shape = value.shape
    start, end = node.int("start", 0), node.int("end", len(shape))
    start, end, _ = slice(start, end).indices(len(shape))
    if -1 not in shape[start:end]:
        return node.reader.builder.constant(np.array(shape[start:end], np.int64))
    name = node[0].name
    sizes = [size if size >= 0 else Size(name, axis) for axis, size in enumerate(shape)]
    return _objects(sizes[start:end])


def _objects(items: list[Any]) -> Any:
    out = np.empty(len(items), object)
    for place, item in enumerate(items):
        out[place] = item
    return out


def _map(function: Callable[..., Any], *arrays: Any) -> Any:
    """Apply `function` to each element of object arrays that broadcast."""
    shape = np.broadcast_shapes(*(array.shape for array in arrays))
    columns = [np.broadcast_to(array, shape).reshape(-1) for array in arrays]
    return _objects([function(*items) for items in zip(*columns, strict=True)]).reshape(shape)


def _unknown_among(arrays: list[Any]) -> bool:
    return any(array is not None and array.dtype == object for array in arrays)


_folds("Shape")(lambda node, arrays: None)


@_folds("Identity")
def _identity(node: OnnxNode, arrays: list[Any]) -> Any:
    return arrays[0]


@_folds("Constant")
def _constant(node: OnnxNode, arrays: list[Any]) -> Any:
    reader = node.reader
    for name, kind, dtype in (("value_float", "float", np.float32), ("value_int", "int", np.int64)):
        if node.has(name):
            return np.asarray(getattr(node, kind)(name), dtype)
    for name, kind, dtype in (("value_floats", "floats", np.float32), ("value_ints", "ints", np.int64)):
        if node.has(name):
            return np.asarray(getattr(node, kind)(name), dtype)
    if node.has("sparse_value"):
        return reader.dense(node.proto_of("sparse_value"), "a sparse constant")
    if not node.has("value"):
        raise FormatError("its value should be a tensor, a number or numbers")
    tensor = node.proto_of("value")
    return reader.array_of(tensor, f"the constant {node.proto.output[0]!r}")


def _arithmetic(op_type: str, function: Callable[[Any, Any], Any], neutral: Any) -> None:
    def one(a: Any, b: Any) -> Any:
        if isinstance(a, (int, np.integer)) and isinstance(b, (int, np.integer)):
            return int(function(np.int64(a), np.int64(b)))
        if neutral is not None and isinstance(b, (int, np.integer)) and b == neutral:
            return a
        if op_type in ("Mul", "Add") and isinstance(a, (int, np.integer)) and a == neutral:
            return b
        raise _Unknown

    @_folds(op_type)
    def fold(node: OnnxNode, arrays: list[Any]) -> Any:
        if _unknown_among(arrays):
            return _map(one, *arrays)
        if arrays[0].dtype != arrays[1].dtype:
            return None
        return function(arrays[0], arrays[1])


def _divided(a: Any, b: Any) -> Any:
    if np.asarray(a).dtype.kind in "iu":
        if np.any(np.asarray(b) == 0):
            raise _Unknown
        return (np.sign(a) * np.sign(b) * (np.abs(a) // np.abs(b))).astype(np.asarray(a).dtype)
    return np.divide(a, b)


_arithmetic("Add", np.add, 0)
_arithmetic("Sub", np.subtract, 0)
_arithmetic("Mul", np.multiply, 1)
_arithmetic("Div", _divided, 1)


def _elementwise(op_type: str, function: Callable[..., Any]) -> None:
    @_folds(op_type)
    def fold(node: OnnxNode, arrays: list[Any]) -> Any:
        if len({array.dtype for array in arrays}) > 1:
            return None
        out = np.asarray(function(*arrays))
        return out.astype(arrays[0].dtype) if out.dtype.kind == "f" else out


for _name, _function in {
    "Neg": np.negative,
    "Abs": np.abs,
    "Sqrt": np.sqrt,
    "Floor": np.floor,
    "Ceil": np.ceil,
    "Equal": np.equal,
    "Less": np.less,
    "Greater": np.greater,
    "LessOrEqual": np.less_equal,
    "GreaterOrEqual": np.greater_equal,
    "Not": np.logical_not,
    "And": np.logical_and,
    "Or": np.logical_or,
    "Exp": np.exp,
    "Log": np.log,
    "Reciprocal": np.reciprocal,
}.items():
    _elementwise(_name, _function)


@_folds("Mod")
def _mod(node: OnnxNode, arrays: list[Any]) -> Any:
    if len({array.dtype for array in arrays}) > 1 or (arrays[1] == 0).any():
        return None
    return (np.fmod if node.int("fmod", 0) else np.mod)(*arrays)


@_folds("Tile")
def _tile(node: OnnxNode, arrays: list[Any]) -> Any:
    if len(arrays) > 2 or np.prod(arrays[1].astype(float)) * arrays[0].size > _MOST:
        return None
    return np.tile(arrays[0], arrays[1])


@_folds("Min", "Max")
def _extreme(node: OnnxNode, arrays: list[Any]) -> Any:
    if len({array.dtype for array in arrays}) > 1:
        return None
    out = arrays[0]
    for array in arrays[1:]:
        out = (np.minimum if node.proto.op_type == "Min" else np.maximum)(out, array)
    return out


@_folds("Where")
def _where(node: OnnxNode, arrays: list[Any]) -> Any:
    return np.where(*arrays) if arrays[1].dtype == arrays[2].dtype else None


@_folds("Cast")
def _cast(node: OnnxNode, arrays: list[Any]) -> Any:
    number = node.int("to", 1)
    if node.tensor(0).onnx_type is not None or is_held_wider(number):
        return None
    dtype = element_type(number, "the type that it casts to")
    if arrays[0].dtype == object:
        return None if is_floating(dtype) or dtype.text not in ("int32", "int64") else arrays[0]
    if arrays[0].dtype.kind == "c":
        return None
    return converted(arrays[0], dtype.array_dtype)


@_folds("Size")
def _size(node: OnnxNode, arrays: list[Any]) -> Any:
    return np.int64(arrays[0].size)


@_folds("Gather")
def _gather(node: OnnxNode, arrays: list[Any]) -> Any:
    data, index = arrays
    if index.dtype == object:
        return None
    axis = node.int("axis", 0)
    if not -data.ndim <= axis < data.ndim or np.any(index < -data.shape[axis]) or np.any(index >= data.shape[axis]):
        return None
    return np.take(data, index.astype(np.int64), axis)


@_folds("Concat")
def _concat(node: OnnxNode, arrays: list[Any]) -> Any:
    if _unknown_among(arrays):
        arrays = [array.astype(object) for array in arrays]
    return np.concatenate(arrays, node.int("axis", 0))


@_folds("Slice")
def _slice(node: OnnxNode, arrays: list[Any]) -> Any:
    data = arrays[0]
    if node.opset >= 10:
        if _unknown_among(arrays[1:]):
            return None
        bounds: list[Any] = [None if n >= len(arrays) or arrays[n] is None else arrays[n].tolist() for n in range(1, 5)]
    else:
        bounds = [node.ints("starts"), node.ints("ends"), node.ints("axes"), None]
    starts, ends = bounds[:2]
    axes = bounds[2] if bounds[2] is not None else list(range(len(starts)))
    steps = bounds[3] if bounds[3] is not None else [1] * len(starts)
    index = [slice(None)] * data.ndim
    for axis, start, end, step in zip(axes, starts, ends, steps, strict=True):
        if step == 0:
            return None
        index[axis] = slice(start, None if step < 0 and end <= -data.shape[axis] - 1 else end, step)
    return data[tuple(index)]


def _axes(node: OnnxNode, arrays: list[Any]) -> list[int] | None:
    if node.opset < 13:
        return node.ints("axes")  # type: ignore[no-any-return]
    if len(arrays) < 2 or arrays[1] is None:
        return None
    if arrays[1].dtype == object:
        raise _Unknown
    return [int(axis) for axis in arrays[1].reshape(-1)]


@_folds("Unsqueeze")
def _unsqueeze(node: OnnxNode, arrays: list[Any]) -> Any:
    axes = _axes(node, arrays)
    rank = arrays[0].ndim + len(axes or ())
    return arrays[0].reshape(_with_ones(arrays[0].shape, [axis % rank for axis in axes or ()])) if axes else arrays[0]


def _with_ones(shape: tuple[int, ...], axes: list[int]) -> list[int]:
    out = list(shape)
    for axis in sorted(axes):
        out.insert(axis, 1)
    return out


@_folds("Squeeze")
def _squeeze(node: OnnxNode, arrays: list[Any]) -> Any:
    axes = _axes(node, arrays)
    return np.squeeze(arrays[0], None if axes is None else tuple(axes))


@_folds("Reshape")
def _reshape(node: OnnxNode, arrays: list[Any]) -> Any:
    if len(arrays) < 2 or arrays[1].dtype == object or node.int("allowzero", 0):
        return None
    shape = [arrays[0].shape[axis] if size == 0 else int(size) for axis, size in enumerate(arrays[1].reshape(-1))]
    return arrays[0].reshape(shape)


@_folds("Transpose")
def _transpose(node: OnnxNode, arrays: list[Any]) -> Any:
    return np.transpose(arrays[0], node.ints("perm"))


@_folds("Expand")
def _expand(node: OnnxNode, arrays: list[Any]) -> Any:
    shape = np.broadcast_shapes(arrays[0].shape, tuple(int(size) for size in arrays[1]))
    return np.broadcast_to(arrays[0], shape).copy() if np.prod([float(size) for size in shape]) <= _MOST else None


@_folds("Range")
def _range(node: OnnxNode, arrays: list[Any]) -> Any:
    start, limit, delta = (array.reshape(()).item() for array in arrays)
    if delta == 0 or (limit - start) / delta > _MOST or len({array.dtype for array in arrays}) > 1:
        return None
    return np.arange(start, limit, delta).astype(arrays[0].dtype)


@_folds("ConstantOfShape")
def _constant_of_shape(node: OnnxNode, arrays: list[Any]) -> Any:
    shape = [int(size) for size in arrays[0].reshape(-1)]
    if any(size < 0 for size in shape) or np.prod([float(size) for size in shape]) > _MOST:
        return None
    tensor = node.proto_of("value")
    value = np.zeros(1, np.float32) if tensor is None else node.reader.array_of(tensor, "its value")
    return np.full(shape, value.reshape(-1)[0], value.dtype)


@_folds("ReduceProd", "ReduceSum")
def _reduced(node: OnnxNode, arrays: list[Any]) -> Any:
    if node.proto.op_type == "ReduceProd" and node.opset < 18:
        axes = node.ints("axes")
    else:
        axes = _axes(node, arrays) if node.opset >= 13 else node.ints("axes")
    if axes is None and node.int("noop_with_empty_axes", 0):
        return arrays[0]
    function = np.prod if node.proto.op_type == "ReduceProd" else np.sum
    out = function(arrays[0], axis=None if axes is None else tuple(axes), keepdims=bool(node.int("keepdims", 1)))
    return np.asarray(out).astype(arrays[0].dtype)
