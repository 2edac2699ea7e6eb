"""Specialize programs for known sizes: fold arithmetic on shapes and known values, and decide branches.

A chain such as shape, slice, concat and reshape computes a shape from a shape. If the sizes of the feeds are known, so is the
result: `specialized` computes it once, and states it in an attribute of the op that reads it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from fluid.errors import FluidError
from fluid.ir.copying import copy_to_rewrite
from fluid.ir.inference import infer_shape
from fluid.ir.program import Block, Operator, Program, Variable
from fluid.ir.verify import refuse_deep
from fluid.ir.versions import outer_names
from fluid.opdef.registry import EMPTY
from fluid.ops.numbers import COUNTED, is_sized_by_values, slots_of_numbers, state_numbers
from fluid.values.bfloat16 import computable
from fluid.values.types import VarType

from ..binding.constants import LISTS, computed_outputs, is_computable, make_constant

__all__ = ["deciding_names", "is_decided_by_values", "specialize", "specialized"]

_MOST = 4096
"""The most elements of a value that is computed in advance."""
_BRANCHES = frozenset({"conditional_block", "conditional_block_infer"})
_SOURCES = frozenset({"assign_value", "fill_constant"})


def is_decided_by_values(op: Operator) -> bool:
    """Whether the shapes that an op makes, or whether it runs, depend on values that may be computed in advance."""
    return op.type in _BRANCHES or is_sized_by_values(op)


# ------------------------------------------------------------------------------------------ which values decide
_deciding: WeakKeyDictionary[Program, tuple[int, tuple[str, ...]]] = WeakKeyDictionary()
"""Program -> its version, and the result of `deciding_names`."""


def deciding_names(program: Program) -> tuple[str, ...]:
    """Names of feeds, and of variables of the scope that no op writes, whose values may decide shapes or branches of block 0."""
    version, names = _deciding.get(program, (None, ()))
    if version != program.version:
        names = _find_deciding_names(program.global_block())
        _deciding[program] = program.version, names
    return names


def _find_deciding_names(block: Block) -> tuple[str, ...]:
    if not any(map(is_decided_by_values, block.ops)):
        return ()
    refuse_deep(block.program)
    sources: dict[str, frozenset[str] | None] = {}
    """Name -> the feeds and scope variables that its value is computed from; None if it depends on draws or blocks."""
    updated = {name for home in block.program.blocks for op in home.ops for name in op.output_arg_names}
    deciding: set[str] = set()

    def union(names: list[str]) -> frozenset[str] | None:
        total: frozenset[str] = frozenset()
        for name in names:
            if name not in sources:
                var = block.vars.get(name)
                sources[name] = None if var is None or (var.persistable and name in updated) else frozenset({name})
            names_before = sources[name]
            if names_before is None:
                return None
            total |= names_before
        return total

    for op in block.ops:
        if op.type in ("feed", "fetch"):
            continue
        for name in _names_that_decide(op):
            deciding |= union([name]) or frozenset()
        if op.sub_blocks:
            outputs = [*op.output_arg_names, *(name for sub in op.sub_blocks for name in outer_names(sub)[1])]
            sources |= dict.fromkeys(outputs)
            continue
        definition = op.definition
        read = [name for slot, names in op.inputs.items() for name in names if name != EMPTY and not _is_shape_only(op, slot)]
        sources |= dict.fromkeys(op.output_arg_names, union(read) if definition is not None and is_computable(op) else None)
    return tuple(sorted(deciding))


def _names_that_decide(op: Operator) -> list[str]:
    if op.type in _BRANCHES:
        return op.input("Cond")
    slots = op.inputs if op.type in COUNTED else slots_of_numbers(op)
    return [name for slot in slots for name in op.inputs[slot] if name != EMPTY]


def _is_shape_only(op: Operator, slot: str) -> bool:
    definition = op.definition
    declared = definition.inputs.get(slot) if definition is not None else None
    return declared is not None and declared.shape_only


# --------------------------------------------------------------------------------------------------- specializing
def specialized(
    program: Program,
    shapes: Mapping[str, tuple[int, ...]],
    values: Mapping[str, Any],
    results_of_blocks: Mapping[str, tuple[int, ...]],
) -> Program | None:
    """Copy a program; ops of the copy state known numbers, and known branches are decided; None if none are.

    Args:
        program: any program.
        shapes: name -> shape of feeds and persistable variables; -1 for sizes that are not known.
        values: feed or persistable variable -> its array, if it is known.
        results_of_blocks: name -> the shape that a loop or branch gives it.
    """
    copy = copy_to_rewrite(program)
    return copy if specialize(copy, shapes, values, results_of_blocks) else None


def specialize(
    program: Program,
    shapes: Mapping[str, tuple[int, ...]],
    values: Mapping[str, Any],
    results_of_blocks: Mapping[str, tuple[int, ...]] = MappingProxyType({}),
) -> bool:
    """As `specialized`, but changes the program itself; returns whether anything but shapes changed."""
    block = program.global_block()
    for name, shape in shapes.items():
        if name in block.vars:
            block.vars[name]._shape = shape
    specializer = _Specializer(block, values, results_of_blocks)
    specializer.run()
    return specializer.is_changed


class _Specializer:
    """Goes through the ops of block 0 in order.

    Attributes:
        is_changed: whether any op changed.
    """

    def __init__(self, block: Block, values: Mapping[str, Any], results_of_blocks: Mapping[str, tuple[int, ...]]) -> None:
        self._block, self._results_of_blocks = block, results_of_blocks
        self._known_values: dict[str, Any] = dict(values)
        ops = [op for home in block.program.blocks for op in home.ops]
        self._read = {name for op in ops for name in op.input_arg_names}
        self._read_frames = {name for op in ops for slot in ("Scope", "StepScopes") for name in op.input(slot)}
        self._present = {name for name, var in block.vars.items() if var.persistable or var.is_data}
        """Names that certainly have a value."""
        self.is_changed = False

    def run(self) -> None:
        """Specialize all ops."""
        ops, self._block.ops = self._block.ops, []
        for op in ops:
            self._visit(op)

    def _visit(self, op: Operator) -> None:
        """Copy an op with its known numbers as attributes, unless a known branch takes its place; note its known results."""
        if (op.type in _BRANCHES and self._decide(op)) or (op.type == "assert" and self._holds(op)):
            return
        self._block.ops.append(op)
        if op.type in ("feed", "fetch"):
            return
        if op.type == "select_input":
            self._choose(op)
        self.is_changed |= state_numbers(op, self._known_values.get)
        outputs = set(op.output_arg_names)
        for sub in op.sub_blocks:
            outputs |= set(outer_names(sub)[1])
        for name in outputs:
            _forget_sizes(self._block.vars.get(name))
            if op.sub_blocks and name in self._results_of_blocks:
                self._block.vars[name]._shape = self._results_of_blocks[name]
        results = {} if op.sub_blocks else self._results(op)
        for name in outputs:
            self._known_values.pop(name, None)
        self._known_values |= results
        if op.type not in _BRANCHES:
            self._present |= outputs

    def _holds(self, op: Operator) -> bool:
        """Whether the condition of an `assert` is known to hold, so that the op can be dropped."""
        condition = self._known_values.get(op.input("Cond")[0])
        holds = condition is not None and bool(condition.all())
        self.is_changed |= holds
        return holds

    # -- branches
    def _decide(self, op: Operator) -> bool:
        """Put the ops of a branch that certainly runs in the place of `op`, or drop `op`; returns whether that is possible.

        A branch that does not run stays if its results have no value otherwise: their reader gets an error.
        """
        names, (body,) = op.input("Cond"), op.sub_blocks
        condition = self._known_values.get(names[0]) if len(names) == 1 and op.attr("is_scalar_condition") else None
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
        mask = self._known_values.get(op.input("Mask")[0])
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
        if not is_known and not (op.type in COUNTED and _count(op.type, inputs) <= _MOST):
            return {}
        results = computed_outputs(op, inputs, _MOST) or {}
        if results and op.type not in _SOURCES:
            self.is_changed |= self._state_results(op, results) and not is_known
        return results

    def _array(self, name: str, is_shape_only: bool) -> Any:
        """The array of a variable, or, if only its shape counts, a stand-in; None if it is not known."""
        var = self._block.find_var(name) if name != EMPTY else None
        if not is_shape_only or var is None or name in self._known_values:
            return self._known_values.get(name)
        if not var.has_shape or not var.has_dtype or -1 in var.shape or var.type is not VarType.LOD_TENSOR or var.lod_level:
            return None
        if var.dtype is VarType.BF16:  # numpy has no such type
            return None
        return np.broadcast_to(np.zeros((), var.dtype.numpy), var.shape)

    def _state_results(self, op: Operator, results: Mapping[str, Any]) -> bool:
        """Make an op with one result that is read one that states it; returns whether that is possible."""
        read = [(slot, name) for slot, names in op.outputs.items() for name in names if name in self._read]
        if len(read) != 1 or (result := results.get(read[0][1])) is None or result.dtype.name not in LISTS or not result.size:
            return False
        op.type, op.attrs = make_constant(result)
        op.inputs, op.outputs = {}, {"Out": [read[0][1]]}
        infer_shape(op)
        return True


def _forget_sizes(var: Variable | None) -> None:
    """Forget the declared sizes of a variable that is about to be written, except single numbers."""
    if var is not None and var.has_shape and not var.is_data and not var.persistable and var.shape not in ((), (1,)):
        var._shape = (-1,) * len(var.shape)


def _count(op_type: str, inputs: Mapping[str, list[Any]]) -> float:
    """How many elements an op of `COUNTED` makes."""
    numbers = {slot: float(computable(values[0]).reshape(-1)[0]) for slot, values in inputs.items()}
    if op_type == "linspace":
        return numbers["Num"]
    return abs((numbers["End"] - numbers["Start"]) / numbers["Step"]) if numbers["Step"] else math.inf
