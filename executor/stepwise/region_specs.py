"""Infers the specs of the outputs of loops and branches from their blocks, before the program runs.

A loop is analyzed until the facts about its carried variables no longer change; a variable whose shape or element type changes
between trips is unknown. Each rule for an op that runs step by step mirrors a handler in `control`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any

from fluid.errors import FluidError
from fluid.ir.dataflow import Facts, Forward
from fluid.ir.program import Operator
from fluid.ir.regions import Region
from fluid.ir.versions import outer_names
from fluid.opdef.inference import infer_specs
from fluid.opdef.registry import EMPTY, grad_slot, updated_slot
from fluid.opdef.tables import OpTable
from fluid.values.spec import Spec
from fluid.values.types import VarType

from .handlers import ARRAY_HANDLERS, HANDLERS
from .interpreter import declared_scalars

__all__ = ["UNKNOWN", "AbstractValue", "SpecAnalysis"]


@dataclass(frozen=True)
class AbstractValue:
    """Facts about a value that hold for all branches of the program.

    Attributes:
        spec: shape and element type of a tensor, or of the entries of an array of tensors; None if unknown.
        is_certain: whether the value certainly exists; a value written by only one branch may not.
        frame: for step scopes, the facts of a trip by name.
    """

    spec: Spec | None
    is_certain: bool = True
    frame: Mapping[str, AbstractValue] | None = None

    @property
    def is_array(self) -> bool:
        return self.spec is not None and self.spec.type is VarType.LOD_TENSOR_ARRAY

    @property
    def tensor(self) -> Spec | None:
        """The spec of a tensor whose shape is fully known, or None."""
        return self.spec if self.spec is not None and self.spec.known else None

    @property
    def inferable(self) -> Spec | None:
        """The spec for inference: of a tensor or sparse rows with fully known shape; otherwise None."""
        return self.spec if self.spec is not None and (self.spec.known or self.spec.is_sparse) else None


UNKNOWN = AbstractValue(None, is_certain=False)
_NO_ENTRIES = Spec((), VarType.RAW, VarType.LOD_TENSOR_ARRAY)
"""The spec of an array without entries."""


def _join_facts(a: AbstractValue | None, b: AbstractValue | None) -> AbstractValue | None:
    """Join the facts about two alternatives of a value; None stands for a missing value."""
    if a is None or b is None:
        present = a if b is None else b
        return None if present is None else replace(present, is_certain=False)
    if a == b:
        return a
    spec = a.spec if a.spec == b.spec else None
    if a.is_array and b.is_array and _NO_ENTRIES in (a.spec, b.spec):
        spec = b.spec if a.spec == _NO_ENTRIES else a.spec
    frame = None
    if a.frame is not None and b.frame is not None:
        names = a.frame.keys() | b.frame.keys()
        frame = {name: fact for name in names if (fact := _join_facts(a.frame.get(name), b.frame.get(name))) is not None}
    return AbstractValue(spec, a.is_certain and b.is_certain, frame)


class SpecAnalysis(Forward[AbstractValue]):
    """Infers facts about the values of a program before it runs."""

    most_rounds = 20

    def join(self, left: AbstractValue | None, right: AbstractValue | None) -> AbstractValue | None:
        return _join_facts(left, right)

    def make(self, op: Operator, index: int, facts: Facts[AbstractValue]) -> None:
        rule = _RULES.get(op.type)
        if rule is not None:
            rule(op, facts)
        elif op.type in HANDLERS:
            facts.set(op.output_arg_names, UNKNOWN)
        else:
            _infer_ordinary(op, facts)

    def unsettled(self, region: Region, facts: Facts[AbstractValue]) -> None:
        facts.set([*region.op.output_arg_names, *outer_names(region.body)[1]], UNKNOWN)

    def sliced(self, fact: AbstractValue | None) -> AbstractValue | None:
        return _sliced(fact)

    def stacked(
        self, fact: AbstractValue | None, like: AbstractValue | None, region: Region, facts: Facts[AbstractValue]
    ) -> AbstractValue | None:
        sequence = facts.get(region.slices[0][1]) if region.slices else None
        length = sequence.tensor.shape[0] if sequence is not None and sequence.tensor is not None else -1
        spec = fact.tensor if fact is not None and fact.is_certain else None
        return AbstractValue(spec.with_shape((length, *spec.shape)) if spec is not None and length > 0 else None)

    def summed(self, fact: AbstractValue | None, like: AbstractValue | None) -> AbstractValue | None:
        zeros = AbstractValue(_NO_ENTRIES, like.is_certain) if like is not None and like.is_array else like
        total = zeros if fact is None else _join_facts(fact, zeros)
        return UNKNOWN if total is None else replace(total, is_certain=like is not None and like.is_certain)

    def frames(self, region: Region, facts: Facts[AbstractValue]) -> Mapping[str, AbstractValue] | None:
        if region.frames is None:
            return {}
        scopes = facts.get(region.frames)
        return None if scopes is None else scopes.frame

    def keep(
        self, region: Region, before: Mapping[str, AbstractValue | None], last: Facts[AbstractValue], facts: Facts[AbstractValue]
    ) -> None:
        if region.scopes is not None:
            after = {**before, **{name: fact for name, fact in last.here.items() if name in region.body.vars}}
            facts.set(region.scopes, AbstractValue(None, True, {name: fact for name, fact in after.items() if fact is not None}))


def _sliced(fact: AbstractValue | None) -> AbstractValue | None:
    spec = fact.tensor if fact is not None else None
    return AbstractValue(spec.with_shape(spec.shape[1:])) if spec is not None and spec.shape else AbstractValue(None)


def _infer_ordinary(op: Operator, facts: Facts[AbstractValue]) -> None:
    definition = op.definition
    read = {name: facts.get(name) for name in op.input_arg_names}  # before an output takes the name of an input
    if (
        op.type in ARRAY_HANDLERS
        and op.type not in _RULES
        and any(fact is None or not fact.is_certain or fact.is_array for fact in read.values())
    ):
        facts.set(op.output_arg_names, _pass_on(op, list(read.values())))
        return
    facts.set(op.output_arg_names, AbstractValue(None))  # certainly made: the op fails if an input is missing
    for slot, names in op.outputs.items():  # updates keep the spec
        source = updated_slot(definition, slot) if definition is not None else None
        for name, updated in zip(names, op.inputs.get(source, ()) if source is not None else (), strict=False):
            facts.set(name, read[updated])
    specs_read = {name: fact.inferable for name, fact in read.items() if fact is not None and fact.inferable is not None}
    if definition is None or len(specs_read) < len(read):
        return
    inputs: dict[str, Any] = {}
    for slot, names in op.inputs.items():
        declared = definition.inputs.get(slot)
        if declared is not None and declared.many:
            inputs[slot] = [specs_read.get(name) for name in names]
        elif declared is not None and names and names[0] != EMPTY:
            inputs[slot] = specs_read[names[0]]
    try:
        specs = infer_specs(definition, inputs, op.attrs, declared_scalars(op))
    except FluidError:
        return  # if the op is ever reached, it raises this error
    for slot, outputs in op.outputs.items():
        of_slot = specs.get(slot)
        for name, spec in zip(outputs, of_slot if isinstance(of_slot, list) else [of_slot], strict=False):
            facts.set(name, AbstractValue(spec if spec is not None and (spec.known or spec.is_sparse) else None))


def _pass_on(op: Operator, read: list[AbstractValue | None]) -> AbstractValue:
    """The facts about the output of an op that passes on arrays and missing values."""
    total = reduce(_join_facts, read)
    if total is None or None in read:
        return UNKNOWN
    return AbstractValue(_NO_ENTRIES, total.is_certain) if op.type == "fill_zeros_like" and total.is_array else total


_Rule = Callable[[Operator, Facts[AbstractValue]], None]
_RULES: OpTable[_Rule] = OpTable("rule of specs")


def _rule(*op_types: str) -> Callable[[_Rule], _Rule]:
    return _RULES.register(*op_types)


# ------------------------------------------------------------------------------------------------------------- arrays
@_rule("new_array")
def _infer_new_array(op: Operator, facts: Facts[AbstractValue]) -> None:
    facts.set(op.output("Out"), AbstractValue(_NO_ENTRIES))


@_rule("write_to_array")
def _infer_write(op: Operator, facts: Facts[AbstractValue]) -> None:
    array, value = facts.get(op.output("Out")[0]), facts.get(op.input("X")[0])
    if op.attr("clears"):
        facts.set(op.output("Out"), AbstractValue(_NO_ENTRIES if array is None else array.spec))
        return
    spec = value.tensor if value is not None else None
    entry = AbstractValue(None) if spec is None else AbstractValue(replace(spec, type=VarType.LOD_TENSOR_ARRAY))
    entries = entry if array is None else _join_facts(array, entry)
    facts.set(op.output("Out"), AbstractValue(entries.spec if entries is not None else None))


@_rule("read_from_array")
def _infer_read(op: Operator, facts: Facts[AbstractValue]) -> None:
    array = facts.get(op.input("X")[0])
    like = facts.get(op.input("X_W")[0]) if op.input("X_W") else None
    entry: AbstractValue | None = UNKNOWN
    if array is not None and array.is_array and array.spec is not None and array.spec != _NO_ENTRIES:
        entry = AbstractValue(replace(array.spec, type=VarType.LOD_TENSOR), is_certain=False)  # it may never have been written
        if like is not None and like.tensor is not None:
            entry = AbstractValue(entry.spec if entry.spec == like.tensor else None, like.is_certain)
    elif (array is None or array.spec == _NO_ENTRIES) and like is not None:
        entry = like
    facts.set(op.output("Out"), entry)


@_rule("unstack_array")
def _infer_unstack(op: Operator, facts: Facts[AbstractValue]) -> None:
    entry = _sliced(facts.get(op.input("X")[0]))
    spec = entry.spec if entry is not None else None
    facts.set(op.output("Out"), AbstractValue(None if spec is None else replace(spec, type=VarType.LOD_TENSOR_ARRAY)))


@_rule("stack_array_like")
def _infer_stack_like(op: Operator, facts: Facts[AbstractValue]) -> None:
    like = facts.get(op.input("Like")[0])
    facts.set(op.output("Out"), AbstractValue(like.tensor if like is not None else None))


@_rule("stack_array", "join_array", "tensor_array_to_tensor")
def _infer_joined(op: Operator, facts: Facts[AbstractValue]) -> None:
    facts.set(op.output_arg_names, AbstractValue(None))  # their size depends on the length of the array


@_rule("split_array", "tensor_array_to_tensor_grad")
def _infer_split(op: Operator, facts: Facts[AbstractValue]) -> None:
    is_split = op.type == "split_array"
    facts.set(op.output("Out" if is_split else grad_slot("X")), facts.get(op.input("Like" if is_split else "X")[0]))


@_rule("slice")
def _infer_slice(op: Operator, facts: Facts[AbstractValue]) -> None:
    array = facts.get(op.input("Input")[0])
    if array is None or not array.is_array:
        _infer_ordinary(op, facts)
    elif op.attr("decrease_axis") and array.spec is not None and array.spec != _NO_ENTRIES:
        facts.set(op.output("Out"), AbstractValue(replace(array.spec, type=VarType.LOD_TENSOR), is_certain=False))
    else:
        facts.set(op.output("Out"), UNKNOWN if op.attr("decrease_axis") else array)


@_rule("slice_grad")
def _infer_slice_grad(op: Operator, facts: Facts[AbstractValue]) -> None:
    array = facts.get(op.input("Input")[0])
    if array is None or not array.is_array:
        _infer_ordinary(op, facts)
    else:
        facts.set(op.output(grad_slot("Input")), array)


@_rule("fill_array_like")
def _infer_filled(op: Operator, facts: Facts[AbstractValue]) -> None:
    facts.set(op.output("Out"), facts.get(op.input("X")[0]))


@_rule("insert_into_array")
def _infer_inserted(op: Operator, facts: Facts[AbstractValue]) -> None:
    facts.set(op.output("Out"), AbstractValue(None))  # entries of X, Entry, or missing ones


@_rule("pop_from_array")
def _infer_pop(op: Operator, facts: Facts[AbstractValue]) -> None:
    _infer_read(op, facts)
    facts.set(op.output("Rest"), facts.get(op.input("X")[0]))


@_rule("lod_array_length")
def _infer_length(op: Operator, facts: Facts[AbstractValue]) -> None:
    facts.set(op.output("Out"), AbstractValue(Spec((1,), VarType.INT64)))


# ------------------------------------------------------------------------------------------------------------ choosing
@_rule("select_input")
def _infer_select_input(op: Operator, facts: Facts[AbstractValue]) -> None:
    branches: list[AbstractValue | None] = [fact for name in op.input("X") if (fact := facts.get(name)) is not None]
    total = reduce(_join_facts, branches) if branches else None
    facts.set(op.output("Out"), UNKNOWN if total is None else replace(total, is_certain=True))  # the chosen branch has run


@_rule("select_output")
def _infer_select_output(op: Operator, facts: Facts[AbstractValue]) -> None:
    facts.set(op.output("Out"), facts.get(op.input("X")[0]))


@_rule("print")
def _infer_print(op: Operator, facts: Facts[AbstractValue]) -> None:
    facts.set(op.output("Out"), facts.get(op.input("In")[0]))


@_rule("py_func")
def _infer_py_func(op: Operator, facts: Facts[AbstractValue]) -> None:
    for name in op.output("Out"):
        var = op.block.var(name)
        facts.set(name, AbstractValue(var.spec if var.has_shape and var.has_dtype and var.spec.known else None))


@_rule("py_func_backward")
def _infer_py_func_backward(op: Operator, facts: Facts[AbstractValue]) -> None:
    for name, source in zip(op.output("Out"), op.input("Like"), strict=True):
        fact = facts.get(source)
        facts.set(name, AbstractValue(fact.spec if fact is not None else None))
