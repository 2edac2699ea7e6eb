"""Specialize programs for known sizes: fold arithmetic on shapes and known values, and decide branches.

A chain such as shape, slice, concat and reshape computes a shape from a shape. If the sizes of the feeds are known, so is the
result: `specialized` computes it once, and states it in an attribute of the op that reads it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from fluid.errors import FluidError
from fluid.ir.inference import infer_shape
from fluid.ir.program import Block, Operator, Program, Variable
from fluid.ir.versions import outer_names
from fluid.opdef.registry import EMPTY
from fluid.ops.numbers import slots_of_numbers, state_numbers
from fluid.values.types import VarType, as_dtype

from ..binding.constants import computed_outputs, is_computable

__all__ = ["deciding_feeds", "is_decided_by_values", "specialized"]

_MOST = 4096
"""The most elements of a value that is computed in advance."""
_BRANCHES = frozenset({"conditional_block", "conditional_block_infer"})
_COUNTED = frozenset({"range", "linspace"})
"""Ops that make as many elements as the values of their inputs say."""
_LISTS = {"float32": "fp32_values", "int32": "int32_values", "int64": "int64_values", "bool": "bool_values"}


def is_decided_by_values(op: Operator) -> bool:
    """Whether the shapes that an op makes, or whether it runs, depend on values that may be computed in advance."""
    return op.type in _COUNTED or op.type in _BRANCHES or bool(slots_of_numbers(op))


# ------------------------------------------------------------------------------------------- which feeds decide
_deciding: WeakKeyDictionary[Program, tuple[int, tuple[str, ...]]] = WeakKeyDictionary()
"""Program -> its version, and the result of `deciding_feeds`."""


def deciding_feeds(program: Program) -> tuple[str, ...]:
    """Names of feeds whose values may decide shapes or branches of block 0, in order."""
    version, names = _deciding.get(program, (None, ()))
    if version != program.version:
        names = _find_deciding_feeds(program.global_block())
        _deciding[program] = program.version, names
    return names


def _find_deciding_feeds(block: Block) -> tuple[str, ...]:
    if not any(map(is_decided_by_values, block.ops)):
        return ()
    feeds_of: dict[str, frozenset[str] | None] = {}
    """Name -> the feeds from which its value is computed; None if it depends on the scope, on draws or on blocks."""
    deciding: set[str] = set()

    def union(names: list[str]) -> frozenset[str] | None:
        total: frozenset[str] = frozenset()
        for name in names:
            if name not in feeds_of:
                var = block.vars.get(name)
                feeds_of[name] = None if var is None or var.persistable else frozenset({name})
            feeds = feeds_of[name]
            if feeds is None:
                return None
            total |= feeds
        return total

    for op in block.ops:
        if op.type in ("feed", "fetch"):
            continue
        for name in _names_that_decide(op):
            deciding |= union([name]) or frozenset()
        if op.sub_blocks:
            outputs = [*op.output_arg_names, *(name for sub in op.sub_blocks for name in outer_names(sub)[1])]
            feeds_of |= dict.fromkeys(outputs)
            continue
        definition = op.definition
        read = [name for slot, names in op.inputs.items() for name in names if name != EMPTY and not _is_shape_only(op, slot)]
        feeds = union(read) if definition is not None and is_computable(op) else None
        feeds_of |= dict.fromkeys(op.output_arg_names, feeds)
    return tuple(sorted(deciding))


def _names_that_decide(op: Operator) -> list[str]:
    if op.type in _BRANCHES:
        return op.input("Cond")
    slots = op.inputs if op.type in _COUNTED else slots_of_numbers(op)
    return [name for slot in slots for name in op.inputs[slot] if name != EMPTY]


def _is_shape_only(op: Operator, slot: str) -> bool:
    definition = op.definition
    declared = definition.inputs.get(slot) if definition is not None else None
    return declared is not None and declared.shape_only


# --------------------------------------------------------------------------------------------------- specializing
def specialized(program: Program, shapes: Mapping[str, tuple[int, ...]], values: Mapping[str, Any]) -> Program | None:
    """A copy of a program in which ops state the numbers that are known, and known branches are decided; None if none are.

    Args:
        program: any program.
        shapes: name -> shape of feeds and persistable variables; -1 for sizes that are not known.
        values: feed -> its array, if it is known.
    """
    copy = program.clone()
    block = copy.global_block()
    for name, shape in shapes.items():
        if name in block.vars:
            block.vars[name]._shape = shape
    specializer = _Specializer(block, values)
    specializer.run()
    return copy if specializer.is_changed else None


class _Specializer:
    """Goes through the ops of block 0 in order.

    Attributes:
        is_changed: whether any op changed.
    """

    def __init__(self, block: Block, values: Mapping[str, Any]) -> None:
        self._block = block
        self._known: dict[str, Any] = dict(values)
        self._read_frames = {
            name
            for home in block.program.blocks
            for op in home.ops
            for slot in ("Scope", "StepScopes")
            for name in op.input(slot)
        }
        self._present = {name for name, var in block.vars.items() if var.persistable or var.is_data}
        """Names that certainly have a value."""
        self.is_changed = False

    def run(self) -> None:
        """Specialize all ops."""
        ops, self._block.ops = self._block.ops, []
        for op in ops:
            self._visit(op)

    def _visit(self, op: Operator) -> None:
        if op.type in _BRANCHES and self._decide(op):
            return
        self._block.ops.append(op)
        if op.type in ("feed", "fetch"):
            return
        if op.type == "select_input":
            self._choose(op)
        self.is_changed |= state_numbers(op, self._known.get)
        outputs = set(op.output_arg_names)
        for sub in op.sub_blocks:
            outputs |= set(outer_names(sub)[1])
        for name in outputs:
            _forget_sizes(self._block.vars.get(name))
        results = {} if op.sub_blocks else self._results(op)
        for name in outputs:
            self._known.pop(name, None)
        self._known |= results
        if op.type not in _BRANCHES:
            self._present |= outputs

    # -- branches
    def _decide(self, op: Operator) -> bool:
        """Put the ops of a branch that certainly runs in the place of `op`, or drop `op`; returns whether that is possible.

        A branch that does not run stays if what it writes has no value otherwise: who reads that gets an error.
        """
        names, (body,) = op.input("Cond"), op.sub_blocks
        condition = self._known.get(names[0]) if len(names) == 1 and op.attr("is_scalar_condition") else None
        is_read = not self._read_frames.isdisjoint(op.output("Scope"))
        if condition is None or condition.size != 1 or is_read or body.vars.keys() & self._block.vars.keys():
            return False
        if not condition.reshape(-1)[0]:
            is_dropped = self._present.issuperset(outer_names(body)[1])
            self.is_changed |= is_dropped
            return is_dropped
        self.is_changed = True
        for name, var in body.vars.items():
            var.block = self._block
            self._block.vars[name] = var
        for block in self._block.program.blocks:
            if block.parent is body:
                block.parent = self._block
        for inner in body.ops:
            inner.block = self._block
            self._visit(inner)
        body.vars, body.ops = {}, []
        return True

    def _choose(self, op: Operator) -> None:
        """Make a `select_input` whose position is known an `assign`."""
        mask = self._known.get(op.input("Mask")[0])
        if mask is None or mask.size != 1 or not 0 <= int(mask.reshape(-1)[0]) < len(op.input("X")):
            return
        op.type, op.inputs = "assign", {"X": [op.input("X")[int(mask.reshape(-1)[0])]]}
        self.is_changed = True

    # -- values
    def _results(self, op: Operator) -> dict[str, Any]:
        """Infer the shapes that an op makes, and compute its values if they are known and few."""
        try:
            infer_shape(op)
        except FluidError:
            return {}  # running it will report the error
        inputs: dict[str, list[Any]] = {}
        for slot, names in op.inputs.items():
            arrays = [self._array(name, _is_shape_only(op, slot)) for name in names]
            if any(array is None for array in arrays):
                return {}
            inputs[slot] = arrays
        outputs = [self._block.vars.get(name) for name in op.output_arg_names]
        is_known = all(var is None or not var.has_shape or -1 not in var.shape for var in outputs)
        if not is_known and not (op.type in _COUNTED and _count(op.type, inputs) <= _MOST):
            return {}
        results = computed_outputs(op, inputs, _MOST) or {}
        if not is_known and len(results) == 1:
            self._state_result(op, *results.values())
        return results

    def _array(self, name: str, is_shape_only: bool) -> Any:
        """The array of a variable, or, if only its shape counts, a stand-in; None if it is not known."""
        var = self._block.find_var(name) if name != EMPTY else None
        if not is_shape_only or var is None or name in self._known:
            return self._known.get(name)
        if not var.has_shape or not var.has_dtype or -1 in var.shape or var.type is not VarType.LOD_TENSOR or var.lod_level:
            return None
        return np.broadcast_to(np.zeros((), var.dtype.numpy), var.shape)

    def _state_result(self, op: Operator, result: Any) -> None:
        """Make an op one that states its result."""
        if result.dtype.name not in _LISTS or not result.size:
            return
        op.type, op.inputs = "assign_value", {}
        op.attrs = {
            "shape": list(result.shape),
            "dtype": int(as_dtype(result.dtype)),
            _LISTS[result.dtype.name]: result.reshape(-1).tolist(),
        }
        infer_shape(op)
        self.is_changed = True


def _forget_sizes(var: Variable | None) -> None:
    """Forget the declared sizes of a variable that is about to be written, except those of single numbers."""
    if var is not None and var.has_shape and not var.is_data and not var.persistable and var.shape not in ((), (1,)):
        var._shape = (-1,) * len(var.shape)


def _count(op_type: str, inputs: Mapping[str, list[Any]]) -> float:
    """How many elements an op of `_COUNTED` makes."""
    numbers = {slot: float(values[0].reshape(-1)[0]) for slot, values in inputs.items()}
    if op_type == "linspace":
        return numbers["Num"]
    return abs((numbers["End"] - numbers["Start"]) / numbers["Step"]) if numbers["Step"] else math.inf
