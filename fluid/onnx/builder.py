"""Append ops to the program built from an ONNX graph: Fluid's ops as functions, and helpers that several ops of ONNX share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ..errors import FormatError
from ..formats.room import Room
from ..ir.inference import BuildNamespace
from ..ir.program import Block, Program, Variable
from ..opdef.inference import infer_specs
from ..opdef.registry import OpDef
from ..values.bfloat16 import computable, converted
from ..values.types import VarType, accumulated, as_dtype, is_floating
from ..values.unchanging import unchanging
from .values import Size, TensorValue

LARGEST_IN_OPS = 4096
"""The most numbers of a constant that an op holds; larger ones are persistable variables."""

_FILLED = {
    "bool": "bool_values",
    "float32": "fp32_values",
    "float64": "fp64_values",
    "int32": "int32_values",
    "int64": "int64_values",
}
_OP_SIZE, _NUMBER = 1600, 40
"""Bytes of memory of an op, rounded up, and of a number in an attribute."""


class _Ops(BuildNamespace):
    """Functions that append Fluid's ops to the builder's block; `shape` is declared for outputs: [] for single numbers."""

    def __init__(self, builder: Builder, shape: tuple[int, ...] | None = None) -> None:
        self._builder = builder
        self._shape = shape

    def apply(self, definition: OpDef, inputs: Mapping[str, Any], attrs: Mapping[str, Any]) -> dict[str, Any]:
        builder = self._builder
        block = builder.block
        inputs = {slot: builder.variables(value) for slot, value in inputs.items()}
        counts: dict[str, int] = {}
        if any(slot.many for slot in definition.outputs.values()):
            specs = {slot: [v.spec for v in value] if isinstance(value, list) else value.spec for slot, value in inputs.items()}
            inferred = infer_specs(definition, specs, definition.check_attrs(attrs))
            counts = {slot: len(value) for slot, value in inferred.items() if isinstance(value, list)}
        outputs: dict[str, Any] = {}
        for name, slot in definition.outputs.items():
            if slot.many:
                outputs[name] = [builder.temporary() for _ in range(counts.get(name, 1))]
            elif slot.updated and name in inputs:
                outputs[name] = inputs[name]
            elif not slot.optional:
                outputs[name] = builder.temporary(self._shape)
        builder.count()
        block.append_op(
            definition.type, {name: value for name, value in inputs.items() if name in definition.inputs}, outputs, attrs, ()
        )
        return {name: outputs.get(name) for name in definition.outputs}


class Builder:
    """Appends the ops that compute a graph's nodes to a program.

    Attributes:
        f: the ops as functions; inputs may be variables, `TensorValue`s and arrays.
        scalar: the same, but single numbers have shape [] where Fluid's ops give [1].
        values: the arrays of the persistable variables created so far.
    """

    def __init__(self, program: Program, names: set[str], room: Room, most_ops: int) -> None:
        self.program = program
        self.f: Any = _Ops(self)
        self.scalar: Any = _Ops(self, ())
        self.values: dict[str, Any] = {}
        self.base = "value"
        self._names = names
        self._numbers: dict[str, int] = {}
        self._ops_left = most_ops
        self.room = room

    # -- where ops are appended
    @property
    def block(self) -> Block:
        return self.program.current_block()

    def count(self) -> None:
        """Count an op; `FormatError` if there are more than the file's size allows."""
        self._ops_left -= 1
        if self._ops_left < 0:
            raise FormatError("it takes more ops than the size of the file allows for, with those of the nodes before it")
        self.room.take(_OP_SIZE)

    def reserve(self, *sizes: int, itemsize: int = 8) -> None:
        """`FormatError` if the file is too small for a table of these sizes; call it before you make the table.

        `constant` counts the table itself when it gets it.

        Args:
            sizes: how many elements the table has along each of its dimensions.
            itemsize: bytes of memory for each element, temporary arrays included.
        """
        self.room.check_array(*sizes, itemsize=itemsize)

    def fresh_name(self, base: str) -> str:
        """Return a name that no variable and no value of the model has."""
        while True:
            number = self._numbers.get(base, 0)
            self._numbers[base] = number + 1
            name = f"{base}.{number}"
            if name not in self._names:
                self._names.add(name)
                return name

    def temporary(self, shape: tuple[int, ...] | None = None) -> Variable:
        """A new variable, named after the value that is being computed."""
        self.room.variable()
        return self.block.create_var(name=self.fresh_name(self.base), shape=shape)

    # -- values as variables
    def variables(self, value: Any) -> Any:
        """Convert a slot's value to a variable, or to a list of variables."""
        if isinstance(value, (list, tuple)):
            return [self.variables(item) for item in value]
        if isinstance(value, TensorValue):
            return value.variable(self.block)
        if isinstance(value, (np.ndarray, np.generic)):
            return self.constant(np.asarray(value)).variable(self.block)
        return value

    def constant(self, array: Any, onnx_type: int | None = None) -> TensorValue:
        """A constant tensor; an op or a persistable variable is made for it where a variable is needed."""
        array = np.asarray(array)
        if array.flags.writeable:  # it was made here; arrays of the file's tensors are counted already, or are its bytes
            self.room.take_array(array.size, itemsize=array.itemsize)
        return TensorValue(array=array, make=self._make_constant, onnx_type=onnx_type)

    def number(self, value: float, dtype: VarType) -> Variable:
        """A single number as a variable of shape []."""
        variable: Variable = self.constant(converted(np.asarray(value), dtype.array_dtype)).variable(self.block)
        return variable

    def _make_constant(self, array: Any) -> Variable:
        """Append an op that makes the array; a large array becomes a persistable variable, which `make_trainable` would train."""
        dtype = as_dtype(array.dtype)
        is_complex = array.dtype.kind == "c"
        plain = computable(array)
        if array.size and not is_complex and (plain == plain.reshape(-1)[0]).all():
            value = plain.reshape(-1)[0].item()
            text = repr(float(value)) if is_floating(dtype) else str(int(value))
            filled: Variable = self.f.fill_constant(shape=list(array.shape), dtype=int(dtype), value=float(value), str_value=text)
            return filled
        slot = _FILLED.get(dtype.text)
        if accumulated(dtype) is not dtype and array.size <= LARGEST_IN_OPS:
            return self.cast(self._make_constant(plain.astype(np.float32)), dtype)  # type: ignore[no-any-return]
        if slot is not None and 0 < array.size <= LARGEST_IN_OPS:
            self.room.take(_NUMBER * array.size)
            assigned: Variable = self.f.assign_value(
                shape=list(array.shape), dtype=int(dtype), **{slot: array.reshape(-1).tolist()}
            )
            return assigned
        return self.persistable(self.fresh_name(f"{self.base}.constant"), array)

    def persistable(self, name: str, array: Any) -> Variable:
        """A variable of block 0 whose value is in the scope. The caller gives up the array: nothing may change it any more."""
        self.count()
        root = self.program.global_block()
        self.values[name] = unchanging(np.asarray(array, order="C"))
        return root.create_var(name=name, shape=array.shape, dtype=as_dtype(array.dtype), persistable=True)

    # -- what several ops need
    def cast(self, x: Any, dtype: VarType) -> Any:
        """Cast `x` to another element type; `x` itself if it has this type."""
        x = self.variables(x)
        return x if x.dtype is dtype else self.f.cast(x, in_dtype=int(x.dtype), out_dtype=int(dtype))

    def ones_like_axes(self, x: Variable, before: int, after: int) -> Variable:
        """Add dimensions of size 1 to `x`, before and after its own."""
        axes = [*range(before), *range(before + x.ndim, before + x.ndim + after)]
        out: Variable = self.f.unsqueeze2(x, axes=axes) if axes else x
        return out

    def reduce(self, op: str, x: Any, axes: Sequence[int] | None, keepdims: bool) -> Any:
        """Reduce over `axes` (all if None) in ONNX's shape: [] for all axes without `keepdims`."""
        x = self.variables(x)
        every = axes is None or len({axis % max(x.ndim, 1) for axis in axes}) >= x.ndim
        attrs: dict[str, Any] = {"dim": [0] if every else list(axes or ()), "keep_dim": keepdims, "reduce_all": every}
        if every and not keepdims:
            return getattr(self.scalar, op)(x, **attrs)
        return getattr(self.f, op)(x, **attrs)

    def transpose(self, x: Any, order: Sequence[int]) -> Any:
        """Permute the dimensions of `x`."""
        return x if list(order) == sorted(order) else self.f.transpose2(x, axis=list(order))

    def slice(self, x: Any, axis: int, start: int, end: int) -> Any:
        """Slice `x` along one axis."""
        return self.f.slice(x, axes=[axis], starts=[start], ends=[min(end, 2**31 - 1)])

    def squeeze(self, x: Any, axes: Sequence[int]) -> Any:
        """Drop dimensions that have size 1, now or at run time."""
        x = self.variables(x)
        dropped = {axis % x.ndim for axis in axes}
        if not dropped:
            return x
        out = self.temporary(tuple(size for axis, size in enumerate(x.shape) if axis not in dropped))
        self.count()
        xshape = self.temporary()
        self.block.append_op("squeeze2", {"X": x}, {"Out": out, "XShape": xshape}, {"axes": sorted(dropped)}, ())
        return out

    def unsqueeze(self, x: Any, axes: Sequence[int]) -> Any:
        """Add dimensions of size 1 to `x`, at these axes of the result."""
        x = self.variables(x)
        rank = x.ndim + len(axes)
        return self.f.unsqueeze2(x, axes=sorted(axis % rank for axis in axes)) if axes else x

    def reshape(self, x: Any, numbers: Sequence[Any]) -> Any:
        """Reshape `x` to these numbers, each an int (0 copies a size of `x`, one may be -1), a `Size` or an `Element`."""
        x = self.variables(x)
        shape: list[Any] = []
        for axis, number in enumerate(numbers):
            is_own = isinstance(number, Size) and number == self.size_of(x, axis)
            shape.append(0 if is_own else number)
        unknown = [axis for axis, number in enumerate(shape) if not isinstance(number, int)]
        if (
            len(unknown) == 1
            and -1 not in shape
            and (0 not in shape or all(x.shape[a] != 0 for a, n in enumerate(shape) if n == 0))
        ):
            shape[unknown[0]] = -1
            unknown = []
        if not unknown:
            return self.f.reshape2(x, shape=shape) if shape or x.ndim else x
        static_shape = [number if isinstance(number, int) else -1 for number in shape]
        return self.f.reshape2(x, ShapeTensor=[self.number_variable(n) for n in shape], shape=static_shape)

    def size_of(self, x: Variable, axis: int) -> Size | int:
        """The size of a dimension."""
        if axis >= x.ndim:
            return Size("", axis)
        return x.shape[axis] if x.shape[axis] >= 0 else Size(x.name, axis)

    def number_variable(self, number: Any) -> Any:
        """An integer, a `Size` or an `Element` as a variable of shape [1] of int32."""
        if isinstance(number, int):
            return self.constant(np.array([number], np.int32))
        if isinstance(number, Size):
            return self.slice(self.f.shape(self.block.var(number.name)), 0, number.axis, number.axis + 1)
        holder = self.block.var(number.name)
        flat = self.f.reshape2(holder, shape=[1]) if not holder.ndim else self.slice(holder, 0, number.index, number.index + 1)
        return self.cast(flat, VarType.INT32)

    def integer(self, number: Any) -> Any:
        """An integer, a `Size` or an `Element` as a variable of shape [1] of int64; a variable is returned unchanged."""
        if isinstance(number, Variable):
            return number
        if isinstance(number, int):
            return self.variables(self.constant(np.array([number], np.int64)))
        return self.cast(self.number_variable(number), VarType.INT64)

    def positions(self, start: Any, end: Any) -> Variable:
        """The integers from `start` to `end`, exclusive, as int64; both as of `integer`."""
        out: Variable = self.f.range(Start=self.integer(start), End=self.integer(end), Step=self.integer(1))
        return out

    def append(self, op_type: str, inputs: Mapping[str, Any], outputs: Mapping[str, Any], attrs: Mapping[str, Any]) -> None:
        """Append an op whose output variables exist already."""
        self.count()
        self.block.append_op(op_type, {slot: self.variables(value) for slot, value in inputs.items()}, outputs, attrs, ())

    def declare_shape(self, x: Variable, shape: Sequence[int]) -> Variable:
        """Declare the shape of `x` where inference cannot tell it."""
        x._shape = tuple(shape)
        return x
