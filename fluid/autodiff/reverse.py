"""The reverse walk, which appends the gradient ops of one block to another.

The contributions of gradient rules to a value are collected, and summed when the walk reaches the op that writes the value.
No contribution means zero, which becomes an array only if a gradient op needs one. Ops that own blocks are differentiated by
walking their blocks (`fluid.autodiff.regions`, `fluid.autodiff.recurrence`).
"""

from __future__ import annotations

import warnings
from collections import ChainMap
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import cached_property
from itertools import chain
from typing import Any

from ..errors import BackwardError, FluidError, locate
from ..ir.copying import declare_like
from ..ir.dataflow import Facts, Forward
from ..ir.inference import BuildNamespace
from ..ir.nesting import outwards
from ..ir.program import Block, Operator, OpRole, Variable, crowded_slots
from ..ir.verify import reason_of
from ..ir.versions import BlockVersions, Value
from ..opdef.registry import EMPTY, NOT_DIFFERENTIABLE, REGION, ZERO_GRADIENT, OpDef, Rule, grad_slot
from ..opdef.tables import OpTable
from ..values.types import VarType, is_complex, is_floating

Callback = Callable[[Block, Mapping[str, Any]], None]

_WITH_GRADIENTS = (VarType.LOD_TENSOR, VarType.LOD_TENSOR_ARRAY, VarType.SELECTED_ROWS)

Place = tuple[Operator, str, int]
"""An op, one of its output slots, and a position there."""

Grads = Mapping[str, "list[str | None]"]
"""The names of the gradients of an op's outputs, by slot; None for zero."""

Wanted = dict[str, list[Value | None]]
"""The values of an op whose gradients are wanted, by slot; None at the positions of others."""


def nameable(ops: Sequence[Operator], results: Iterable[Variable | None]) -> dict[str, Place]:
    """The places of a rule's results that may be renamed: `ops` write them and do not read them, and they are returned once.

    A stacked output of a recurrence has the name of a variable in its block, and keeps it.
    """
    places = {
        name: (op, slot, position)
        for op in ops
        if not op.sub_blocks
        for slot, names in op.outputs.items()
        for position, name in enumerate(names)
    }
    for op in ops:
        for names in op.inputs.values():
            for name in names:
                places.pop(name, None)
    returned: set[str] = set()
    for result in results:
        if result is not None:
            if result.name in returned:
                places.pop(result.name, None)
            returned.add(result.name)
    return places


def unfit(op: Operator, error: Exception) -> BackwardError:
    """The error for an op whose gradient cannot be built, because of `error`."""
    return BackwardError(f"{op.type}: its gradient cannot be built: {reason_of(op, error)}\n{locate(op)}")


RegionGradient = Callable[["Differentiator", int, Operator, Mapping[str, "list[str | None]"]], None]
"""Appends the gradient op of an op that owns a block: walker, position, op, gradients of the op's outputs by slot."""

_REGION_GRADIENTS: OpTable[RegionGradient] = OpTable("function that differentiates it")


def differentiates(*op_types: str) -> Callable[[RegionGradient], RegionGradient]:
    """Registers a function that differentiates ops of these types, which own blocks."""
    return _REGION_GRADIENTS.register(*op_types)


class Contribution:
    """A place in an op's outputs that holds a part of a gradient; it gets its name when all parts are known.

    Attributes:
        is_sparse: whether it is a `SelectedRows`.
    """

    __slots__ = ("is_sparse", "op", "position", "slot")

    def __init__(self, op: Operator, slot: str, position: int, is_sparse: bool) -> None:
        self.op, self.slot, self.position, self.is_sparse = op, slot, position, is_sparse

    def rename(self, name: str) -> None:
        self.op.outputs[self.slot][self.position] = name


class Differentiator:
    """Differentiates one block into another (or into itself, at its end).

    Args:
        block, out, no_grad, callbacks: see the attributes.
        runs_later: whether the gradient ops run after further runs of the block, which overwrite variables outside.

    Attributes:
        block: the block that is differentiated.
        out: the block that receives the gradient ops.
        versions: the values of `block`.
        varied: values that depend, through differentiable ops, on the variables whose gradients are wanted.
        saved: value that is copied before it is overwritten -> name of the copy.
        owned: gradients of arrays that may be updated in place, since nothing else reads them.
        constants: position of an op -> slots and names of varied values that the op treats as constants.
        outer_reads: name that gradient ops read from outside a differentiated sub-block -> whether they read its shape only.
    """

    def __init__(
        self, block: Block, out: Block, no_grad: frozenset[str], callbacks: Sequence[Callback] = (), runs_later: bool = False
    ) -> None:
        self.block = block
        self.out = out
        self.no_grad = no_grad
        self.callbacks = callbacks
        self.versions = BlockVersions(block)
        self.varied: set[Value] = set()
        self.inner: dict[int, Differentiator] = {}
        self.outer_reads: dict[str, bool] = {}
        self.grad_names: dict[str, Any] = {}
        self.owned: set[str] = set()
        self.constants: dict[int, list[tuple[str, str]]] = {}
        self._parts: dict[Value, list[Contribution | str]] = {}
        self._final: dict[Value, str | None] = {}
        self.saved: dict[Value, str] = {}
        self._inserts: dict[int, list[Operator]] = {}
        self._runs_later = runs_later
        self._cut: dict[str, bool] = {}

    # ------------------------------------------------------------------------------------------------- forward pass
    def stops_gradient(self, name: str) -> bool:
        """Whether no gradient flows through variables of this name: because of their type, `stop_gradient` or `no_grad`."""
        is_cut = self._cut.get(name)
        if is_cut is None:
            var = self.block.find_var(name)
            is_cut = self._cut[name] = (
                name in self.no_grad
                or var is None
                or var._stop_gradient
                or (var._dtype is not None and not is_floating(var._dtype))
                or var._type not in _WITH_GRADIENTS
            )
        return is_cut

    def mark_varied(self, seeds: Iterable[Value], end: int | None = None, start: int = 0) -> None:
        """Mark the values written by the ops from `start` to `end` that depend on `seeds`."""
        seeds = frozenset(seeds)
        first = Facts(lambda name: self.versions.before(name, start) in seeds)
        _VariedAnalysis(self, seeds).range(first, start, len(self.versions.ops) if end is None else end)

    def inner_of(self, index: int) -> Differentiator:
        """The differentiator of the block that op number `index` owns; set its `out` before it walks."""
        if index not in self.inner:
            body: Block = self.versions.ops[index].attr("sub_block")
            self.inner[index] = Differentiator(body, body, self.no_grad, self.callbacks, runs_later=True)
        return self.inner[index]

    def warn_of_constants(self, needed: Collection[int]) -> None:
        """Warn of the ops at these positions that treat a varied value as a constant."""
        for index in sorted(self.constants.keys() & set(needed)):
            op = self.versions.ops[index]
            for slot, name in self.constants.pop(index):
                warnings.warn(
                    f"no gradient flows to {name}, which {op.type} takes as a constant ({slot}); if that is meant, set its "
                    f"stop_gradient\n{locate(op)}",
                    stacklevel=2,
                )

    def gradients_of(self, sources: Collection[str], cotangents: Iterable[tuple[str, str]]) -> dict[str, str | None]:
        """Append the gradients of all ops of the block.

        Args:
            sources: names of variables that the block reads from outside.
            cotangents: results of the block, each with the variable that holds its gradient.

        Returns:
            Source -> the variable with its gradient, None for zero.
        """
        count = len(self.versions.ops)
        self.mark_varied((name, 0) for name in sources if not self.stops_gradient(name))
        for name, gradient in cotangents:
            self.seed(self.versions.current(name), gradient)
        self.walk(count)
        gradients = {name: self.gradient((name, 0)) for name in sources}
        self.apply_inserts()
        return gradients

    # ------------------------------------------------------------------------------------------------- reverse walk
    def seed(self, value: Value, name: str) -> None:
        """Add the variable `name` of `out` to the gradient of `value`."""
        self._parts.setdefault(value, []).append(name)

    def walk(self, end: int | None = None, start: int = 0) -> None:
        """Append the gradient ops of the ops from `start` to `end`, in reverse."""
        versions = self.versions
        is_untouched = self._parts.keys().isdisjoint
        for index in range((len(versions.ops) if end is None else end) - 1, start - 1, -1):
            if all(map(is_untouched, versions.writes[index].values())):
                continue  # no gradient has reached an output of this op
            try:
                self._differentiate(index, versions.ops[index])
            except FluidError:
                raise
            except Exception as error:  # files may hold ops that no layer makes
                if self.callbacks:
                    raise  # it may be theirs
                raise unfit(versions.ops[index], error) from error

    def _differentiate(self, index: int, op: Operator) -> None:
        versions = self.versions
        definition = versions.definitions[index]
        rule = definition.rule if definition is not None else None
        grads: dict[str, list[str | None]] = {}
        for slot, values in versions.writes[index].items():
            names = list(map(self.gradient, values))
            if any(names):
                grads[slot] = names
        if not grads:
            return
        # Of a crowded slot, a rule would take the first name, and lose the gradient of the others.
        if definition is not None and (faults := crowded_slots(op, definition)):
            raise BackwardError(f"{op.type}: {faults[0]}\n{locate(op)}")
        if index in self.constants:
            self.warn_of_constants((index,))
        if rule is REGION and op.type in _REGION_GRADIENTS:
            _REGION_GRADIENTS[op.type](self, index, op, grads)
            return
        wanted = self._wanted(index, rule)
        if not wanted or rule is ZERO_GRADIENT or op.role & OpRole.OPTIMIZE:
            return
        if definition is None or not isinstance(rule, Rule):
            raise self._no_rule(op, definition, grads)
        for slot in grads:
            if slot not in rule.cotangents:
                raise BackwardError(f"a gradient reaches the output {slot} of {op.type}, which has none\n{locate(op)}")
        if self._has_complex and not definition.complex_rule:
            self._refuse_complex(op, (*wanted, *grads))
        if definition.inline_grad:
            self._emit_inline(index, op, definition, rule, grads, wanted)
        else:
            self._emit_grad_op(index, op, definition, rule, grads, wanted)

    def _wanted(self, index: int, rule: Any) -> Wanted:
        """The varied values of op number `index`; for an op with a rule, only the values that the rule has gradients for."""
        reads, updates, varied = self.versions.reads[index], self.versions.updates[index], self.varied
        wanted: Wanted = {}
        for slot in rule.wrt if isinstance(rule, Rule) else (*reads, *updates):
            values = (updates[slot],) if slot in updates else reads.get(slot, ())
            if not varied.isdisjoint(values):
                wanted[slot] = [value if value in varied else None for value in values]
        return wanted

    def _no_rule(self, op: Operator, definition: OpDef | None, grads: Mapping[str, Any]) -> BackwardError:
        if definition is None:
            problem = f"the op {op.type} is unknown, so its gradient is too"
        elif definition.rule is NOT_DIFFERENTIABLE:
            problem = f"the op {op.type} is not differentiable"
        else:
            problem = f"the op {op.type} has no gradient rule"
        outs = ", ".join(name for slot in grads for name in op.output(slot))
        advice = f"set stop_gradient on {outs} to cut it there"
        return BackwardError(f"{problem}, and the gradient would flow through it; {advice}\n{locate(op)}")

    @cached_property
    def _has_complex(self) -> bool:
        """Whether a variable that is visible in the block is complex."""
        for block in outwards(self.block):
            around = [block, *([block.forward] if block.forward is not None else [])]
            if any(var.has_dtype and is_complex(var.dtype) for near in around for var in near.vars.values()):
                return True
        return False

    def _refuse_complex(self, op: Operator, slots: Iterable[str]) -> None:
        """Raise `BackwardError` if variables in these slots are complex: the op's rule covers real numbers only."""
        for name in [name for slot in slots for name in (*op.input(slot), *op.output(slot))]:
            var = self.block.find_var(name)
            if var is not None and var.has_dtype and is_complex(var.dtype):
                raise BackwardError(
                    f"{op.type} has no gradient for complex numbers, and computes with {name}: {var.describe()}; set its "
                    f"stop_gradient to cut the gradient there\n{locate(op)}"
                )

    def _read_by_rule(self, index: int, op: Operator, rule: Rule, grads: Grads) -> dict[str, list[str]]:
        """The names that a gradient rule reads, by slots of the gradient op; appends ops for the zeros that it needs."""
        versions = self.versions
        names: dict[str, list[str]] = {}
        for slot in rule.intermediate:
            if not op.outputs.get(slot):
                versions.add_output(index, slot)  # an inference model lacks it
        writes = versions.writes[index]
        for read, values in ((rule.inputs, versions.reads[index]), (rule.outputs, writes)):
            for slot, shape_only in read.items():
                if slot in values:
                    names[slot] = [EMPTY if value is None else self.name_of(value, shape_only) for value in values[slot]]
        for slot in rule.cotangents:
            if slot in writes and (slot in grads or slot not in rule.optional):
                written_values = writes[slot]
                names[grad_slot(slot)] = [
                    name or (EMPTY if value is None else self.zeros_like(value, op))
                    for name, value in zip(grads.get(slot) or [None] * len(written_values), written_values, strict=True)
                ]
        return names

    def _emit_grad_op(
        self,
        index: int,
        op: Operator,
        definition: OpDef,
        rule: Rule,
        grads: Grads,
        wanted: Wanted,
    ) -> None:
        inputs = self._read_by_rule(index, op, rule, grads)
        outputs: dict[str, list[str]] = {}
        attrs = {**op.attrs, OpRole.NAME: OpRole.BACKWARD}
        attrs.pop(OpRole.VARS, None)
        grad_op = Operator(self.out, definition.grad_type, inputs, outputs, attrs, op.frames)
        self.out.ops.append(grad_op)
        for slot, values in wanted.items():
            is_sparse = slot == definition.sparse_grad and bool(op.attrs.get("is_sparse"))
            target = grad_slot(slot)
            outputs[target] = [EMPTY] * len(values)
            for position, value in enumerate(values):
                if value is not None:
                    self.contribute(value, grad_op, target, position, is_sparse)

    def _emit_inline(
        self,
        index: int,
        op: Operator,
        definition: OpDef,
        rule: Rule,
        grads: Grads,
        wanted: Wanted,
    ) -> None:
        values: dict[str, Any] = {}
        read = self._read_by_rule(index, op, rule, grads)
        for slot in self.versions.updates[index]:
            if slot in wanted:  # the rule updates the gradient too
                read[grad_slot(slot)] = [self._owned(read[grad_slot(slot)][0], op)]
        for slot, names in read.items():
            variables = [None if name == EMPTY else self.out.var(name) for name in names]
            values[slot] = variables if slot in definition.many else variables[0] if variables else None
        first = len(self.out.ops)
        with self.out.program.derive_guard(self.out, OpRole.BACKWARD, op):
            by_slot = rule(BuildNamespace(self.out), values, definition.defaults(op.attrs), set(wanted))
        results = {slot: value if isinstance(value, list) else [value] for slot, value in by_slot.items()}
        places = nameable(self.out.ops[first:], chain.from_iterable(results.values()))
        used_ids: set[int] = set()
        for slot, wanted_values in wanted.items():
            for value, result in zip(wanted_values, results.get(slot, [None]), strict=True):
                if value is None or result is None:
                    continue
                if result.name in self.owned:
                    used_ids.update(id(writer) for writer in self.out.ops[first:] if result.name in writer.output_arg_names)
                    self.seed(value, result.name)
                    continue
                place = places.get(result.name)
                if place is None:
                    place = self.copy_gradient(result.name, EMPTY, op), "Out", 0
                else:
                    self.out.vars.pop(result.name, None)
                used_ids.add(id(place[0]))
                self.contribute(value, *place, result.type is VarType.SELECTED_ROWS)
        if len(used_ids) < len(self.out.ops) - first:
            self._drop_unused(first, used_ids)

    def _drop_unused(self, first: int, used_ids: set[int]) -> None:
        """Remove the ops from position `first` on that nothing uses: they compute gradients that are not wanted."""
        needed: set[str] = set()
        for position in range(len(self.out.ops) - 1, first - 1, -1):
            op = self.out.ops[position]
            if id(op) in used_ids or any(name in needed for name in op.output_arg_names):
                needed.update(op.input_arg_names)
            else:
                for name in op.output_arg_names:
                    self.out.vars.pop(name, None)
                del self.out.ops[position]

    # --------------------------------------------------------------------------------------------- values and names
    def contribute(self, value: Value, op: Operator, slot: str, position: int, is_sparse: bool = False) -> None:
        """Add the output of `op` at this place, a `SelectedRows` if `is_sparse`, to the gradient of `value`."""
        self._parts.setdefault(value, []).append(Contribution(op, slot, position, is_sparse))

    def gradient(self, value: Value | None) -> str | None:
        """The variable that holds the complete gradient of `value`, None for zero; no part may be added afterwards."""
        if value is None or value in self._final:
            return None if value is None else self._final[value]
        parts = self._parts.pop(value, None)
        if not parts:
            name = None
        elif len(parts) > 1:
            name = self._summed(value[0], parts)
        elif isinstance(parts[0], str):
            name = parts[0]
        else:
            name = self._completed(value[0], parts[0])
        self._final[value] = name
        return name

    def _completed(self, of: str, part: Contribution) -> str:
        """The variable of a gradient, of a variable called `of`, that has one part."""
        name = self.new_name(of + "@GRAD")
        part.rename(name)
        self.declare(name, self.block.var(of), part.is_sparse)
        self._report(name, of, part.op)
        return name

    def _summed(self, of: str, parts: list[Contribution | str]) -> str:
        """The variable of a gradient, of a variable called `of`, that is the sum of several parts."""
        var = self.block.var(of)
        updated = [part for part in parts if isinstance(part, str) and part in self.owned]
        if updated:
            parts.sort(key=lambda part: part not in updated)
        name = updated[0] if updated else self.new_name(of + "@GRAD")
        names = []
        # Paddle takes a name inside a gradient block for the same name outside, if there is one.
        place = f"block{self.out.idx}@" if self.out.idx else ""
        for number, part in enumerate(parts):
            if isinstance(part, str):
                names.append(part)
                continue
            renamed = self.out.fresh_name(f"{name}@RENAME@{place}{number}")
            part.rename(renamed)
            self.declare(renamed, var, part.is_sparse)
            names.append(renamed)
        frames_of = parts[-1].op if isinstance(parts[-1], Contribution) else None
        producer = self.append("sum", {"X": names}, {"Out": [name]}, frames_of)
        if not updated:
            self.declare(name, var, all(isinstance(part, Contribution) and part.is_sparse for part in parts))
        self._report(name, of, producer)
        return name

    def _report(self, name: str, of: str, producer: Operator) -> None:
        """Tell the callbacks that the gradient `name`, of a variable called `of`, is complete."""
        self.grad_names[name] = of
        for callback in self.callbacks:
            callback(self.out, ChainMap({"__current_op_desc__": producer}, self.grad_names))

    def _owned(self, name: str, op: Operator) -> str:
        """The gradient of this name, or a copy, as a variable without other readers, which may be updated in place."""
        assert name != EMPTY
        if not (name in self.owned or (self._runs_later and name in self.out.vars)):
            copied = self.new_name(name)
            self.copy_gradient(name, copied, op)
            self.declare(copied, self.out.var(name))
            name = copied
        self.owned.add(name)
        return name

    def new_name(self, base: str) -> str:
        """`base` if it is free in `out`, else a name that no block has, since Paddle may look names up in the wrong block."""
        return base if self.out.find_var(base) is None else self.out.program.fresh_name(base)

    def is_sparse(self, name: str) -> bool:
        """Whether a gradient in `out` is a `SelectedRows`."""
        return self.out.var(name).type is VarType.SELECTED_ROWS

    def declare(self, name: str, like: Variable, is_sparse: bool = False) -> Variable:
        """Declare in `out` a variable with the shape and element type of another."""
        var = self.out.vars.get(name)
        if var is None:
            kind = VarType.SELECTED_ROWS if is_sparse else like.type
            var = self.out.vars[name] = Variable(self.out, kind, name)
            var._shape, var._dtype, var.lod_level = like._shape, like._dtype, like.lod_level
        return var

    def append(
        self, op_type: str, inputs: dict[str, list[str]], outputs: dict[str, list[str]], source: Operator | None, **attrs: Any
    ) -> Operator:
        """Append an op of the backward part, with the user's frames of `source`."""
        attrs[OpRole.NAME] = OpRole.BACKWARD
        op = Operator(self.out, op_type, inputs, outputs, attrs, source.frames if source is not None else ())
        self.out.ops.append(op)
        return op

    def copy_gradient(self, name: str, to: str, source: Operator) -> Operator:
        """Append an op that copies a gradient."""
        var = self.out.find_var(name)
        # Paddle's assign fails on an array with empty entries, its sum does not.
        op_type = "sum" if var is not None and var.type is VarType.LOD_TENSOR_ARRAY else "assign"
        return self.append(op_type, {"X": [name]}, {"Out": [to]}, source)

    def zeros_like(self, value: Value, source: Operator) -> str:
        """A new variable of zeros shaped like `value`."""
        zeros = self.out.fresh_name(value[0] + "@GRAD")
        self.append("fill_zeros_like", {"X": [self.name_of(value, True)]}, {"Out": [zeros]}, source)
        self.declare(zeros, self.block.var(value[0]))
        return zeros

    def name_of(self, value: Value, shape_only: bool = False) -> str:
        """The name under which gradient ops read `value`: its own, or its copy's name if its own is overwritten."""
        name, version = value
        last = self.versions.last.get(name, 0)
        if version == last and (not self._runs_later or name in self.block.vars):
            return name
        if last == 0:
            self.outer_reads[name] = self.outer_reads.get(name, True) and shape_only
            return name
        if shape_only and self.versions.has_one_shape(name):
            return name
        saved = self.saved.get(value)
        if saved is None:
            saved = self.saved[value] = self.block.program.fresh_name(name + "@SAVED")
            declare_like(self.block, saved, self.block.var(name))
            overwriter = self.versions.writer.get((name, version + 1), len(self.versions.ops))
            source = self.versions.ops[min(overwriter, len(self.versions.ops) - 1)]
            op = Operator(self.block, "assign", {"X": [name]}, {"Out": [saved]}, {OpRole.NAME: OpRole.BACKWARD}, source.frames)
            self._inserts.setdefault(overwriter, []).append(op)
        return saved

    def apply_inserts(self) -> None:
        """Insert the ops that save values before they are overwritten."""
        if self._inserts:
            ops: list[Operator] = []
            for index, op in enumerate(self.block.ops):
                ops += self._inserts.pop(index, ())
                ops.append(op)
            for inserts in self._inserts.values():
                ops += inserts
            self.block.ops[:] = ops
            self._inserts = {}
        for inner in self.inner.values():
            inner.apply_inserts()


class _VariedAnalysis(Forward[bool]):
    """Finds the varied values of a block and of the blocks that its ops own."""

    def __init__(self, walker: Differentiator, seeds: frozenset[Value] = frozenset()) -> None:
        super().__init__()
        self._walker, self._seeds = walker, seeds
        self._nested: dict[int, _VariedAnalysis] = {}

    def join(self, left: bool | None, right: bool | None) -> bool:
        return bool(left or right)

    def summed(self, fact: bool | None, like: bool | None) -> bool:
        return bool(fact)

    def nested(self, op: Operator, index: int) -> Forward[bool]:
        if index not in self._nested:
            self._nested[index] = _VariedAnalysis(self._walker.inner_of(index))
        return self._nested[index]

    def block(self, ops: Iterable[Operator], facts: Facts[bool]) -> None:
        self.range(facts, 0, len(self._walker.versions.ops))

    def range(self, facts: Facts[bool], start: int, end: int) -> None:
        """Visit the ops from `start` to `end`."""
        walker = self._walker
        walker.varied = {*self._seeds, *((name, 0) for name in walker.versions.names() if facts.get(name))}
        for index in range(start, end):
            self.visit(walker.versions.ops[index], index, facts)

    def visit(self, op: Operator, index: int, facts: Facts[bool]) -> None:
        walker, here = self._walker, facts.here
        owns_block = op.type in _REGION_GRADIENTS
        if owns_block:
            super().visit(op, index, facts)
        is_active = not owns_block and self._is_active(op, index, facts)
        for values in walker.versions.writes[index].values():
            for value in values:
                if value is None:
                    continue
                name = value[0]
                is_reached = is_active or (owns_block and bool(facts.get(name)))
                here[name] = is_varied = (is_reached and not walker.stops_gradient(name)) or value in self._seeds
                if is_varied:
                    walker.varied.add(value)

    def _is_active(self, op: Operator, index: int, facts: Facts[bool]) -> bool:
        """Whether the outputs of an op that owns no block depend on varied values."""
        walker, definition = self._walker, self._walker.versions.definitions[index]
        rule = definition.rule if definition is not None else None
        if rule is ZERO_GRADIENT or op.role & OpRole.OPTIMIZE:  # an updated parameter does not depend on the old one
            return False
        if definition is not None and definition.constants:
            read = walker.versions.read_at(index)
            constants = [(slot, value[0]) for slot, _, value in read if slot in definition.constants and facts.get(value[0])]
            if constants:
                walker.constants[index] = constants
        if not isinstance(rule, Rule):
            return any(facts.get(value[0]) for _, _, value in walker.versions.read_at(index))
        reads, updates = walker.versions.reads[index], walker.versions.updates[index]
        for slot in rule.wrt:
            for value in (updates[slot],) if slot in updates else reads.get(slot, ()):
                if value is not None and facts.get(value[0]):
                    return True
        return False
