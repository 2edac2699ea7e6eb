"""Branches in native code: instructions that run only if a condition holds.

The block of a `conditional_block`, or of its gradient, becomes a `Branch`: instructions on values of the whole plan. A variable
that the block overwrites, and that lives outside of the scope, gets its former value in a second branch, which runs if the
condition is false. A gradient reads the values that the block has left in memory.

Values that a branch alone makes are read only by `select_input`, whose mask chooses among branches, and by gradients.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import Any, NamedTuple

from fluid.ir.program import Block, Operator
from fluid.ir.regions import Region, region_of
from fluid.ir.versions import BlockVersions, Value, outer_names
from fluid.opdef.registry import EMPTY, OpDef, get
from fluid.values.spec import Spec
from fluid.values.types import VarType, is_floating

from ..kernels.table import check_of
from ..stepwise.handlers import HANDLERS
from ..stepwise.inferred_specs import inferred_specs
from ..stepwise.loop_body import BRANCHES, CHOICES, IS_TAKEN, name_in_branch
from .array_values import ArrayValues, is_array
from .instructions import (
    END_BRANCH,
    IF_FALSE,
    IF_TRUE,
    KernelCall,
    NativeInstruction,
    Writer,
    is_persistable,
)  # fmt: skip
from .kernel import written_condition
from .lowering import NotLowered
from .op_instructions import Op, OpInstruction, assignment
from .target import Target


@dataclass(eq=False)
class BranchMark(NativeInstruction):
    """The start or the end of instructions that run under a condition.

    Attributes:
        kind: `IF_TRUE`, `IF_FALSE` or `END_BRANCH`.
        condition: one byte.
        target: the processor.
    """

    ops: list[Operator]
    kind: str
    condition: Value
    target: Target

    def __post_init__(self) -> None:
        self.read, self.written = [self.condition], []
        self.layouts, self.shares, self.workspace_bytes = {}, {}, 0
        self.calls = [KernelCall(self.kind, [(self.condition, 0)], is_serial=False)]
        self.writers: dict[str, Writer] = {self.kind: partial(written_condition, self.target)}

    def describe(self) -> str:
        return self.kind if self.kind == END_BRANCH else f"{self.kind}: {self.condition[0]}"

    def line(self, outs: str, ins: str) -> str:
        return self.kind if self.kind == END_BRANCH else f"{self.kind}({ins})"


@dataclass(eq=False)
class Branch(NativeInstruction):
    """Instructions that run under a condition, as one instruction.

    Attributes:
        kind: `IF_TRUE` or `IF_FALSE`.
        condition: the value of one truth.
        body: the instructions; `plans` replaces them by native code.
        live: the values of the body that are read after it.
        latest: name in the scope -> its value before the branch.
        number: the number of its op in the plan.
    """

    ops: list[Operator]
    kind: str
    condition: Value
    body: list[Any]
    live: list[Value]
    latest: dict[str, Value]
    number: int

    def __post_init__(self) -> None:
        computed = {value for instruction in self.body for value in instruction.written}
        reads = dict.fromkeys(value for instruction in self.body for value in instruction.read_within)
        self.read = [self.condition, *(value for value in reads if value not in computed and value != self.condition)]
        self.written, self.layouts, self.shares = list(self.live), {}, {}

    def describe(self) -> str:
        return f"{self.kind}: {self.condition[0]}"

    def marked(self, target: Target) -> list[NativeInstruction]:
        """The body between marks, for a processor."""
        start, end = (BranchMark(self.ops, kind, self.condition, target) for kind in (self.kind, END_BRANCH))
        return [start, *self.body, end] if self.body else []


@dataclass(frozen=True)
class _Frame:
    """The values of a branch's block that gradients read.

    Attributes:
        is_taken: whether the block has run.
        values: name in the block -> its last value.
        number: the number of the op in the plan.
    """

    is_taken: Value
    values: Mapping[str, Value]
    number: int


class Guard(NamedTuple):
    """When a value exists that only a branch makes.

    Attributes:
        condition: the condition.
        is_true: whether the condition is true then, or false.
        number: the number of the branch's op in the plan.
    """

    condition: Value
    is_true: bool
    number: int


class Branches:
    """Turns ops that own branches, and ops that choose among their results, into instructions for native code.

    Args:
        specs: the specs of values; the specs of values in branches are added.
        storage: names whose values live in the scope, where they are overwritten in place.
        unread: values that nothing reads.
        arrays: the arrays of tensors of a loop's block; None elsewhere.
        external: values whose memory differs from trip to trip; checks read copies of them.

    Attributes:
        number: the number of the op that is being expanded.
        only_if: value that only a branch makes -> when it exists.
        frames: variable of step scopes -> the values that gradients read.
    """

    def __init__(
        self,
        specs: dict[Value, Spec],
        storage: Container[str],
        unread: Container[Value] = (),
        arrays: ArrayValues | None = None,
        external: Container[Value] = (),
    ) -> None:
        self.specs, self._storage, self._unread, self._arrays, self._external = specs, storage, unread, arrays, external
        self.number = -1
        self.only_if: dict[Value, Guard] = {}
        self.frames: dict[str, _Frame] = {}
        self._read_within: set[Value] = set()
        """Values that blocks of branches read."""
        self._roots: dict[Value, tuple[Value, bool]] = {}
        """Truth -> its `root`."""
        self._tags: set[str] = set()

    def expand(self, instruction: Any) -> list[Any]:
        """Write branches for an op that owns one, and an op of formulas for a choice; other instructions stay.

        Raises:
            NotLowered: the op has to run step by step.
        """
        op_type = instruction.op.type
        if op_type in BRANCHES:
            return _Expansion(self, instruction).instructions()
        if self.uses_arrays(instruction.op) and self.is_in_loop:
            return list(self.arrays.expand(instruction, partial(self._under, instruction.op)))
        if op_type in CHOICES:
            return [self._choice(instruction)]
        self._note_copied_truth(instruction)
        return [instruction]

    @property
    def is_in_loop(self) -> bool:
        """Whether the instructions are a trip of a loop."""
        return self._arrays is not None

    @property
    def arrays(self) -> ArrayValues:
        if self._arrays is None:
            raise NotLowered("arrays of tensors outside of loops")
        return self._arrays

    def uses_arrays(self, op: Any) -> bool:
        """Whether an op without a block reads or writes arrays of tensors."""
        return isinstance(op, Operator) and any(is_array(op.block, name) for name in (*op.input_arg_names, *op.output_arg_names))

    def copied_ids(self, instruction: OpInstruction) -> Iterator[OpInstruction]:
        """Let an op read copies of external values that its check inspects; gives the instructions that copy them."""
        copies: dict[Value, Value] = {}
        for value in instruction.read:
            if value in self._external and value in self.specs and not is_floating(self.specs[value].dtype):
                copies[value] = copy = f"{value[0]}.copy", value[1]
                self.specs[copy] = self.specs[value]
        instruction.reads = {
            slot: [None if value is None else copies.get(value, value) for value in values]
            for slot, values in instruction.reads.items()
        }
        return (assignment(value, copy) for value, copy in copies.items())

    def end_trip(self, arrays: Mapping[str, Value], totals: Mapping[str, Value]) -> list[Any]:
        """See `ArrayValues.end_trip`."""
        return list(self.arrays.end_trip(arrays, totals, partial(self._under, Op("sum", {}))))

    def _under(self, op: Any, condition: Value, body: list[Any]) -> Branch:
        """Instructions of an op that run if a condition holds."""
        return Branch([op], IF_TRUE, condition, body, [], {}, self.number)

    def root(self, truth: Value) -> tuple[Value, bool]:
        """The truth that a truth was computed from, and whether the two are equal; otherwise they are opposite."""
        return self._roots.get(truth, (truth, True))

    def let_equal(self, truth: Value, source: Value, is_equal: bool = True) -> None:
        """Note that two truths are equal, or opposite."""
        root, same = self.root(source)
        self._roots[truth] = root, same == is_equal

    def _note_copied_truth(self, instruction: Any) -> None:
        """Note the root of a truth that an op copies or negates."""
        op_type = instruction.op.type
        if op_type in ("logical_not", "cast", "assign"):
            (source,), (result,) = instruction.reads.get("X") or [None], instruction.writes.get("Out") or [None]
            spec = self.specs.get(source)
            if result is not None and spec is not None and spec.dtype is VarType.BOOL and source[0] not in self._storage:
                self.let_equal(result, source, op_type != "logical_not")

    def _choice(self, instruction: Any) -> OpInstruction:
        """A `select_input` or `select_output` as an op of formulas."""
        reads, writes = instruction.reads, instruction.writes
        values, (mask,) = [value for value in reads["X"] if value is not None], reads["Mask"]
        specs = [self.specs.get(value) for value in values]
        if None in specs or self.specs.get(mask) is None or any(spec != specs[0] for spec in specs):
            raise NotLowered("a choice among values without one known shape")
        root, same = self.root(mask)
        for place, value in enumerate(values):
            guard, is_true = self.only_if.get(value), same == (place == 1)  # a true mask chooses the second value
            if guard is not None and (len(values) > 2 or guard[:2] != (root, is_true)):
                raise NotLowered("a choice among results of another condition")
        for value in writes["Out"]:
            if value is not None and self.specs.setdefault(value, specs[0]) != specs[0]:  # type: ignore[arg-type]
                raise NotLowered("a choice of another shape")
        return OpInstruction(instruction.op, instruction.definition, dict(reads), dict(writes))

    def reserve(self, tag: str) -> None:
        """Reserve a prefix of names for the values of one block."""
        if tag in self._tags:
            raise NotLowered("a block that two ops own")
        self._tags.add(tag)

    def note_read(self, value: Value) -> None:
        """Note that a block of a branch reads a value."""
        self._read_within.add(value)

    def is_unread(self, value: Value) -> bool:
        """Whether neither the plan nor a block of a branch reads a value."""
        return value in self._unread and value not in self._read_within

    def is_certain(self, value: Value | None) -> bool:
        return value in self.specs and value not in self.only_if

    def is_in_scope(self, value: Value) -> bool:
        return value[0] in self._storage

    def frame_of(self, region: Region) -> _Frame:
        """The frame that a gradient reads. If no branch of this plan has made it, the forward loop has stored its values."""
        scopes, forward = region.frames, region.forward
        assert scopes is not None and forward is not None, "gradients read frames"
        if scopes not in self.frames:
            values = {name: (name_in_branch(scopes, name), 0) for name in forward.vars}
            stored = {name: value for name, value in values.items() if value in self.specs}
            is_taken = name_in_branch(scopes, IS_TAKEN), 0
            if is_taken not in self.specs:
                raise NotLowered("the gradient of a branch that runs step by step")
            self.frames[scopes] = _Frame(is_taken, stored, self.number)
        return self.frames[scopes]


class _Expansion:
    """An op that owns a branch as instructions."""

    def __init__(self, branches: Branches, instruction: Any) -> None:
        region = region_of(instruction.op)
        assert region is not None, "the op owns a block"
        if region.states or region.final or region.slices or region.stacked:
            raise NotLowered("a gradient as Paddle writes it")
        self._branches, self._instruction, self._region, self._body = branches, instruction, region, region.body
        self._scopes = region.scopes or f"block {region.body.idx}"
        branches.reserve(self._scopes)
        self._versions = BlockVersions(region.body)
        self._frame = branches.frame_of(region) if region.frames is not None else None
        self._overwritten = set(outer_names(region.forward)[1]) if region.forward is not None else set()
        scopes_slot = region.scopes_slot
        self._outputs = {name: value for slot, name, value in named_writes(instruction) if slot != scopes_slot}
        """Name in the program -> the value that the op makes."""
        if any(is_persistable(instruction.op, name) and not branches.is_in_scope(v) for name, v in self._outputs.items()):
            raise NotLowered("a variable of the scope that gets a new array in each run")
        self._results = {self._last(name): self._outputs[name] for name in region.writes if name in self._versions.last}
        for part in region.summed:
            inner = self._last(part.inner)
            if not inner[1] or inner in self._results:
                raise NotLowered("a gradient that another one is, too")
            self._results[inner] = self._outputs[part.name]

    def _last(self, name: str) -> Value:
        return self._versions.current(name)

    def _value(self, value: Value) -> Value:
        """The value of the plan for a value of the block."""
        name, version = value
        if value in self._results:
            return self._results[value]
        if name in self._body.vars or version:
            if not version or (name not in self._body.vars and name not in self._region.writes):
                raise NotLowered("a value that the block does not make")
            return name_in_branch(self._scopes, name), 1 if value == self._last(name) else version + 1
        forward = self._region.forward
        if self._frame is not None and forward is not None and name in forward.vars:
            if name not in self._frame.values:
                raise NotLowered("a value that the branch does not keep")
            return self._frame.values[name]
        outer = self._instruction.outer.get(name)
        if outer is None or (name in self._overwritten and name not in self._region.writes):
            raise NotLowered("a value that is not there, or has been overwritten")
        return outer  # type: ignore[no-any-return]

    def _slots(self, slots: Mapping[str, list[Value | None]]) -> dict[str, list[Value | None]]:
        return {slot: [None if value is None else self._value(value) for value in values] for slot, values in slots.items()}

    def instructions(self) -> list[Any]:
        """The branch for a true condition and the branch for a false one; before them a copy of the condition, if needed."""
        branches, condition, first = self._branches, self._condition(), list[Any]()
        spec = branches.specs.get(condition)
        if spec is None or spec.dtype is not VarType.BOOL or spec.size != 1:
            raise NotLowered("a condition that is no single truth")
        captured = _captured_names(self._body) if self._frame is None else None
        if captured is not None or branches.is_in_scope(condition):  # the block may overwrite its condition
            is_taken = name_in_branch(self._scopes, IS_TAKEN), 1
            branches.specs[is_taken] = spec
            branches.let_equal(is_taken, condition)
            first.append(assignment(condition, is_taken))
            condition = is_taken
        body = list(self._steps())
        saved = {name: self._value(self._last(name)) for name in captured or () if name in self._versions.last}
        if captured is not None:
            branches.frames[self._scopes] = _Frame(condition, saved, branches.number)
        arrays = {value for name, value in self._outputs.items() if self._is_array(name)}
        results = [value for value in self._results.values() if not branches.is_unread(value) and value not in arrays]
        if any(value not in branches.specs or value in branches.only_if for value in results):
            raise NotLowered("a result that only a branch within makes")
        otherwise = [*self._copies(condition), *self._zeros()]
        saved_values = [value for value in saved.values() if value in branches.specs and branches.specs[value].size]
        written_in_body = {value for item in body for value in item.written}
        saved_values += [value for value in self._leave_with_arrays(condition) if value in written_in_body]
        return [
            *first,
            self._branch(IF_TRUE, condition, body, [*results, *saved_values]),
            self._branch(IF_FALSE, condition, otherwise, [value for item in otherwise for value in item.written]),
        ]

    def _is_array(self, name: str) -> bool:
        return is_array(self._instruction.op.block, name)

    def _leave_with_arrays(self, condition: Value) -> Iterator[Value]:
        """Give arrays of the branch to the block around it, with the values that this block may read from their entries."""
        for name in filter(self._is_array, self._region.writes):
            former = self._instruction.outer.get(name)
            if former is None:
                raise NotLowered("an array that only a branch makes")
            yield from self._branches.arrays.leave_branch(self._value(self._last(name)), self._outputs[name], former, condition)
        for part in self._region.summed:
            if part.name != EMPTY and self._is_array(part.name):
                yield from self._branches.arrays.leave_branch(self._outputs[part.name], self._outputs[part.name], None, condition)

    def _branch(self, kind: str, condition: Value, body: list[Any], live: list[Value]) -> Branch:
        op, latest = self._instruction.op, self._instruction.outer.values()
        in_scope = {value[0]: value for value in latest if self._branches.is_in_scope(value)}
        return Branch([op], kind, condition, body, list(dict.fromkeys(live)), in_scope, self._branches.number)

    def _condition(self) -> Value:
        if self._frame is not None:
            return self._frame.is_taken
        if not self._instruction.op.attr("is_scalar_condition"):
            raise NotLowered("a block that runs unless tensors are empty")
        (condition,) = self._instruction.reads["Cond"]
        return condition  # type: ignore[no-any-return]

    def _copies(self, condition: Value) -> Iterator[OpInstruction]:
        """Copy variables that the block overwrites, for a false condition."""
        branches = self._branches
        for name in self._region.writes:
            if self._is_array(name):
                continue
            new, former = self._outputs[name], self._instruction.outer.get(name)
            stays = former is not None and branches.is_in_scope(new) and former[0] == new[0]
            if stays or branches.is_unread(new):
                continue
            if branches.is_certain(former) and former != new:
                if branches.specs[former] != branches.specs[new]:
                    raise NotLowered("a variable that changes its shape")
                yield assignment(former, new)
            else:
                root, same = branches.root(condition)
                branches.only_if[new] = Guard(root, same, branches.number)

    def _zeros(self) -> Iterator[OpInstruction]:
        """Set gradients to zero, for a false condition."""
        for part in self._region.summed:
            new = self._outputs[part.name]
            if not self._branches.is_unread(new) and not self._is_array(part.name):
                spec = self._branches.specs[new]
                attrs = {"shape": list(spec.shape), "dtype": int(spec.dtype), "value": 0.0}
                yield OpInstruction(Op("fill_constant", attrs), get("fill_constant"), {}, {"Out": [new]})

    def _steps(self) -> Iterator[Any]:
        """The instructions of the block."""
        versions, branches = self._versions, self._branches
        for value in self._read_results():
            branches.note_read(value)
        for index, op in enumerate(versions.ops):
            definition = versions.definitions[index]
            is_branch = op.type in BRANCHES
            if branches.uses_arrays(op) and not is_branch:
                yield from self._on_arrays(index, op, definition)
                continue
            is_handled = op.type in HANDLERS or bool(op.sub_blocks)
            if definition is None or versions.updates[index] or (is_handled and not is_branch and op.type not in CHOICES):
                raise NotLowered(f"{op.type} within a branch")
            is_checked = check_of(op.type) is not None
            if is_checked and not branches.is_in_loop:
                raise NotLowered("values that are checked within a branch")
            writes = versions.writes[index]
            if is_branch:
                reads = {} if op.type == "conditional_block_grad" else {"Cond": versions.reads[index]["Cond"]}
                inner = OpInstruction(op, definition, self._slots(reads), self._slots(writes), outer=self._outer(op, index))
            else:
                inner = OpInstruction(op, definition, self._slots(versions.reads[index]), self._slots(writes))
                if is_checked:
                    yield from branches.copied_ids(inner)
                if op.type not in CHOICES:
                    self._infer(inner)
            yield from branches.expand(inner)
        for name in self._region.writes:
            if name not in versions.last and not self._is_array(name):
                yield assignment(self._value((name, 0)), self._outputs[name])

    def _on_arrays(self, index: int, op: Operator, definition: OpDef | None) -> list[Any]:
        """The instructions of an op on arrays."""
        versions = self._versions
        if definition is None or op.sub_blocks:
            raise NotLowered(f"{op.type} within a branch")
        slots = self._slots(versions.reads[index])
        for slot, value in versions.updates[index].items():
            if value[1] or value[0] not in self._body.vars:
                slots[slot] = [self._value(value)]
        return self._branches.expand(OpInstruction(op, definition, slots, self._slots(versions.writes[index])))

    def _read_results(self) -> Iterator[Value]:
        """The results that the block itself reads, in branches within, too."""
        versions = self._versions
        for index, op in enumerate(versions.ops):
            outer = (versions.before(name, index) for sub in op.sub_blocks for name in outer_names(sub)[0])
            for value in chain(outer, *versions.reads[index].values()):
                if value in self._results:
                    yield self._results[value]

    def _outer(self, op: Operator, index: int) -> dict[str, Value]:
        """The values of the names that the blocks of an op read or write."""
        outer: dict[str, Value] = {}
        for name in chain.from_iterable(names for sub in op.sub_blocks for names in outer_names(sub)):
            with suppress(NotLowered):  # a name of a forward block, or without a value
                outer[name] = self._value(self._versions.before(name, index))
        return outer

    def _infer(self, instruction: OpInstruction) -> None:
        specs = self._branches.specs
        if any(value in self._branches.only_if for value in instruction.read):
            raise NotLowered("a value that only a branch makes")
        results = inferred_specs(instruction.op, instruction.definition, instruction.reads, instruction.writes, specs)
        if results is None:
            raise NotLowered("a value without a known shape")
        for value, spec in results.items():
            if specs.setdefault(value, spec) != spec:
                raise NotLowered("a value that gets another shape in a branch")


def named_writes(instruction: Any) -> Iterator[tuple[str, str, Value]]:
    """(slot, name in the program, value) of everything that an op writes."""
    for slot, names in instruction.op.outputs.items():
        present = [name for name in names if name != EMPTY]
        values = [value for value in instruction.writes.get(slot, ()) if value is not None]
        for name, value in zip(present, values, strict=True):
            yield slot, name, value


def _captured_names(body: Block) -> set[str] | None:
    """The names of a block that its gradients read; None if it has no gradient."""
    gradients = [block for block in body.program.blocks if block.forward is body]
    names = {name for block in gradients for name in outer_names(block)[0] if name in body.vars}
    return {name for name in names if body.vars[name].type is VarType.LOD_TENSOR} if gradients else None
