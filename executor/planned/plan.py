"""Plans: the instructions of a program for one feed signature, and the storage of each value.

`compile_plan` prunes ops that neither a fetch nor a persistable variable needs, infers all shapes from the shapes of the feeds,
and assigns storage to each value: an array of the scope (persistable variables, overwritten in place), bytes of one arena
(values with disjoint live ranges share bytes), or a cell (arrays of tensors, and tensors whose shape depends on values).
`BoundArenaPlan` turns a plan into a straight line of calls.
"""

from __future__ import annotations

import html
from collections import Counter
from collections.abc import Callable, Container, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, TypeAlias

from fluid.errors import ExecutionError, FeedError, FluidError, locate, said_of
from fluid.ir.dataflow import Facts
from fluid.ir.program import Operator, Program, Variable
from fluid.ir.verify import reason_of
from fluid.ir.versions import BlockVersions, Value, outer_names, values_in
from fluid.opdef.inference import infer_specs
from fluid.opdef.registry import OpDef, by_slot
from fluid.values.spec import Spec
from fluid.values.types import VarType
from fluid.values.unchanging import never_changes

from ..kernels.table import kernel_of
from ..native.block_compiler import NativeBlocks
from ..native.fallback import NativeUnavailable, or_unavailable, warn_of
from ..native.instructions import CLEARED, NATIVE_PREFIX, BaseOp, Check, NativeInstruction
from ..native.native_checks import FAILED, checks_of, with_native_checks
from ..native.target import Target
from ..runtime.scope import Scope
from ..runtime.specs import spec_of
from ..stepwise.handlers import HANDLERS
from ..stepwise.interpreter import Captured, declared_scalars, step_captures
from ..stepwise.loop_body import LOOPS
from ..stepwise.needed import versions_to_run
from ..stepwise.region_specs import AbstractValue, SpecAnalysis
from ..stepwise.repeated import BlockCompiler
from ..stepwise.unsupported import refuse_unsupported
from .block_constants import with_constants
from .blocked_rows import has_blocked_rows, with_blocked_rows
from .counted_loops import count_entries, with_recurrences
from .gathering import gather_lookups
from .growing_states import has_room, with_room
from .nested_loops import loops_in_block
from .placement import Tenant, live_bytes, place, place_apart
from .real_rows import OFFSETS, RealRows
from .row_branches import with_all_rows
from .specialization import is_decided_by_values, specialized
from .unrolled_blocks import has_unrolled, with_unrolled_blocks

if TYPE_CHECKING:
    from ..backend import BoundPlan
    from ..native.cache import Kernels
    from ..native.tables import Tables
    from .unrolled_loops import LoopCode

__all__ = ["ArenaPlan", "Instruction", "compile_native_plan", "compile_plan"]


_FEWEST = 2
"""The least number of ops that native code must compute, unless a value is large: large feeds and results are not copied."""


# ------------------------------------------------------------------------------------------------------------ compile
@dataclass
class Instruction(BaseOp):
    """An op, with the values that it reads and writes by slot."""

    op: Operator
    definition: OpDef | None
    reads: dict[str, list[Value | None]]
    writes: dict[str, list[Value | None]]
    outer: dict[str, Value]
    """Name -> its value at this point, for all names that the op or its blocks may look up."""
    dynamic: bool = False
    shares: dict[Value, Value] = field(default_factory=dict)
    """Output -> dead input whose bytes it reuses."""
    stand_ins: dict[str, Spec] = field(default_factory=dict)
    """Slot -> spec, for inputs used only for their shape and type."""
    obstacle: str = ""
    """Why native code does not run a loop, if `use_native_loops` has tried to."""
    loop_code: LoopCode | None = None
    """Native code that runs in place of a loop with arrays of tensors, if the arrays fit into its memory."""
    draws: int | None = None
    """How often the op draws, if its output has an entry for each draw."""

    @property
    def has_native_code(self) -> bool:
        return self.loop_code is not None

    @property
    def written(self) -> list[Value]:
        results = self.results
        return results if self.loop_code is None else list(dict.fromkeys([*results, *self.loop_code.written]))

    @property
    def label(self) -> str:
        """A short name."""
        return self.op.type

    def describe(self) -> str:
        return self.op.type

    def line(self, outs: str, ins: str) -> str:
        """Print the instruction as a line of a plan; `outs` and `ins` are its outputs and inputs as text."""
        return f"{outs} = {self.op.type}({ins})" + self._how_it_runs

    @property
    def _how_it_runs(self) -> str:
        if self.draws is not None:
            return f"  ({self.draws} draws)"
        if self.loop_code is not None:
            return "  (native code)"
        return "  (step by step)" if self.dynamic else ""

    def drawing(self, slot: str, specs: Mapping[Value, Spec]) -> Instruction:
        """A copy of the op that only draws random numbers into one output, without reading its inputs."""
        stand_ins = {name: specs[values[0]] for name, values in self.reads.items() if values and values[0] is not None}
        writes = {slot: list(self.writes[slot])}
        return replace(self, reads={}, writes=writes, outer={}, shares={}, stand_ins=stand_ins)


AnyInstruction: TypeAlias = "Instruction | Check | NativeInstruction"
"""An entry of a plan: an op, native code in place of ops, or the value check of such an op."""


def _no_calls(plan: ArenaPlan) -> list[list[str]]:
    return [[] for _ in plan.instructions]


@dataclass
class ArenaPlan:
    """The instructions of a program for one feed signature, and the storage of each value.

    Attributes:
        ops: the ops to run, in order.
        instructions: the instructions that run them: one per op, or one region of native code for many.
        specs: the spec of each value; values without a spec live in cells.
        offset_of: value -> its offset in the arena; `print` shows it as ``name@offset``.
        arena_bytes: size of the arena.
        storage: names whose values live in the scope, where they are overwritten in place.
        externals: name -> spec of the variables read from the scope when the program starts.
        absent: names that the scope does not hold.
        frees: for each instruction, the cells that are dead after it.
    """

    program: Program
    feeds: dict[str, Spec]
    fetches: list[str]
    ops: list[Operator]
    instructions: list[AnyInstruction]
    specs: dict[Value, Spec]
    offset_of: dict[Value, int]
    arena_bytes: int
    storage: dict[str, Spec]
    externals: dict[str, Spec]
    frees: list[list[Value]]
    fetch_values: list[Value]
    absent: frozenset[str] = frozenset()
    temporaries_bytes: int = 0
    live_bytes: int = 0
    """The most bytes of temporaries that are alive at one time."""
    tenants: dict[Value, Tenant] = field(default_factory=dict, repr=False)
    """Temporary -> its bytes and live range; values that reuse the same bytes in turn share one tenant."""
    calls_of: Callable[[ArenaPlan], list[list[str]]] = field(default=_no_calls, repr=False)
    """Returns the calls of each op for `to_string`; set by the executor, which binds plans."""
    new_tables: Callable[[], Tables] | None = field(default=None, repr=False)
    """Makes the tables that bind regions of native code; None for a plan without native code."""
    kernels: Kernels | None = field(default=None, repr=False)
    """Keeps kernels loaded: a plan read from disk cannot compile them again."""
    binder: Callable[[ArenaPlan, Scope], BoundPlan] | None = field(default=None, repr=False)
    """Binds the plan to a scope; set by the backend that compiled it."""
    block_compiler: BlockCompiler | None = field(default=None, repr=False)
    """Compiles blocks of loops; None for a plan without native code."""
    captures: Mapping[str, Captured] = field(default_factory=dict, repr=False)
    """Variable of step scopes -> the names that its gradient op reads from each run, in the program that `instructions` run."""
    values: dict[str, bytes] = field(default_factory=dict)
    """Name -> bytes of the feeds and variables of the scope whose values may have decided shapes or branches."""
    recording: str = ""
    """How far the plan is recorded as CUDA graphs, or why it is not; empty at places that do not record."""
    is_provisional: bool = False
    """Whether a later run with the same feeds may have another plan."""
    unchanging: frozenset[str] = frozenset()
    """Names of variables that should never change: native code packs their matrices when the plan is bound."""
    step_by_step: bool = False
    """Whether its program runs op by op: it stores arrays of tensors or rank tables in the scope (then there are no
    instructions), or reads a `SelectedRows` there, whose number of rows may change."""

    def bind(self, scope: Scope) -> BoundPlan:
        """Bind the plan to the arrays of a scope."""
        assert self.binder is not None, "a backend compiles the plans that are bound"
        return self.binder(self, scope)

    def __str__(self) -> str:
        return self.to_string()

    def _repr_html_(self) -> str:
        """For notebooks."""
        return f"<pre>{html.escape(str(self))}</pre>"

    def to_string(self, calls: bool = False) -> str:
        """The plan as text.

        Args:
            calls: show the calls of each op (on numpy), such as ``add(x, bias) -> fc_0.tmp_1``, and the rows, columns and
                formulas of native code. A view is shown as ``x.view([8, 4], offset=32, strides=[1, 8])``, in elements;
                ``scratch0`` is memory for the intermediate results of an op; anything else is constant.
        """
        below = self.calls_of(self) if calls else [[] for _ in self.instructions]
        lines = [
            f"plan: {len(self.ops)} ops, an arena of {_size(self.arena_bytes)} for {_size(self.temporaries_bytes)} of "
            f"values, at most {_size(self.live_bytes)} alive at once"
            + ("; the program runs step by step" if self.step_by_step else "")
        ]
        if self.new_tables is not None:
            lines.append(self._native_summary())
        if self.recording:
            lines.append(f"  {self.recording}")
        lines += [f"  feed {name}: {spec} -> {self._storage_of((name, 0))}" for name, spec in self.feeds.items()]
        for number, instruction in enumerate(self.instructions):
            outs, ins = (", ".join(map(self._value_text, values)) for values in (instruction.written, instruction.read))
            lines.append(f"  {number:4d}  {instruction.line(outs, ins)}")
            if instruction.is_native:
                lines += [f"          {name}" for name in self._native_values(instruction)]
            lines += [f"          {call}" for call in below[number]]
        return "\n".join([*lines, f"  fetch {', '.join(map(self._value_text, self.fetch_values))}"])

    def _native_summary(self) -> str:
        regions = sum(instruction.is_native for instruction in self.instructions)
        on_numpy = Counter(instruction.op.type for instruction in self.instructions if instruction.is_op)
        left = ", ".join(f"{op_type} x {count}" if count > 1 else op_type for op_type, count in on_numpy.items())
        return f"  native code: {len(self.ops) - on_numpy.total()} ops, in {regions} [regions]; on numpy: {left or 'none'}"

    def _native_values(self, instruction: AnyInstruction) -> list[str]:
        """Lines with type, shape and layout of values that only native code uses, or stores in a special layout."""
        texts = []
        for value in instruction.written:
            layout = instruction.layouts.get(value)
            if layout is not None or value[0].startswith(NATIVE_PREFIX):
                texts.append(f"{value[0]}: {self.specs[value]}" + (f", {layout}" if layout is not None else ""))
        return texts

    def _storage_of(self, value: Value) -> str:
        if value[0] in self.storage or (value[1] == 0 and value[0] in self.externals):
            return "scope"
        if value[0].startswith(CLEARED):
            return "apart"
        offset = self.offset_of.get(value)
        return "cell" if offset is None else str(offset)

    def _value_text(self, value: Value) -> str:
        return f"{value[0]}@{self._storage_of(value)}"


def _size(count: int) -> str:
    for unit in ("B", "KB", "MB"):
        if count < 10_000:
            return f"{count:.0f} {unit}"
        count //= 1024
    return f"{count} GB"


def compile_plan(
    program: Program,
    feeds: Mapping[str, Spec],
    fetches: Sequence[str],
    scope: Scope,
    reuse: bool = True,
    target: Target | None = None,
    values: Mapping[str, Any] | None = None,
) -> ArenaPlan:
    """Compile block 0 of `program` for feeds of these shapes and types, and the variables of `scope`.

    With `reuse=False`, values do not share bytes; with a `target`, ops become native code for it if possible. The plan is for
    these `values` of feeds and variables alone, which may decide shapes and branches.

    Raises:
        FeedError: a variable that is read is neither fed nor in the scope, or a fetch is not computed.
    """
    values = values or {}
    planner = _planner_of(program, feeds, fetches, scope, values, may_adapt=target is not None)
    if planner is None:
        ops = versions_to_run(program.global_block(), fetches).ops
        return ArenaPlan(program, dict(feeds), list(fetches), ops, [], {}, {}, 0, {}, {}, [], [], step_by_step=True)
    if target is not None:
        planner.compile(target)
        if any(instruction.is_op and _is_adapted(instruction.op) for instruction in planner.instructions):
            # A rewritten loop runs op by op: plan the loops as they are in the program.
            planner = _planner_of(program, feeds, fetches, scope, values, may_adapt=False)
            assert planner is not None, "only loops have changed"
            planner.compile(target)
    planner.place(reuse)
    plan = planner.plan()
    plan.program = program
    plan.block_compiler = NativeBlocks(planner.program, target, loops_in_block) if target is not None else None
    plan.values = {name: array.tobytes() for name, array in values.items()}
    return plan


def compile_native_plan(
    program: Program, feeds: Mapping[str, Spec], fetches: Sequence[str], scope: Scope, target: Target
) -> ArenaPlan | None:
    """Compile block 0 of `program` to a plan with native code for any processor; None if it can only run op by op.

    The cache on disk is not used: the plan has the writers of all its kernels. See `compile_plan` for arguments and
    further errors.

    Raises:
        NativeUnavailable: native code cannot be made.
    """
    planner = _planner_of(program, feeds, fetches, scope, {}, may_adapt=True)
    if planner is None:
        return None
    with or_unavailable():
        planner.instructions, planner.specs = planner.lowered(target, fewest=1)
        planner.use_native_loops(target)
    planner.place(reuse=True)
    return planner.plan()


def _planner_of(
    program: Program,
    feeds: Mapping[str, Spec],
    fetches: Sequence[str],
    scope: Scope,
    values: Mapping[str, Any],
    may_adapt: bool,
) -> _Planner | None:
    """A planner with the instructions of a program and all specs; None if the program can only run op by op.

    Args:
        may_adapt: whether to rewrite loops and branches for native code: branches compute all rows, inner loops are unrolled,
            states that grow get room.
    """
    block = program.global_block()
    versions = versions_to_run(block, fetches)
    refuse_unsupported(program, versions.ops)
    if any(_is_persistent_list(var, scope) for var in block.vars.values()):
        return None
    planner = _Planner(program, versions, dict(feeds), list(fetches), scope)
    planner.infer()
    planner = _specialized(planner, values)
    if may_adapt and (copy := with_all_rows(planner.program, fetches)) is not None:
        with suppress(FluidError):  # a mask may have another number of rows: the run reports that
            planner = _specialized(planner.of_copy(copy), values)
    if may_adapt and (copy := with_unrolled_blocks(planner.program)) is not None:
        planner = _specialized(planner.of_copy(copy), values)
    if may_adapt and (copy := with_room(planner.program, planner.instructions, planner.specs)) is not None:
        planner = _specialized(planner.of_copy(copy), values)
    if may_adapt:
        with suppress(FluidError):  # what the gradient of a product needs may be missing
            if (copy := with_blocked_rows(planner.program, planner.versions, planner.specs, fetches)) is not None:
                planner = planner.of_copy(copy)
    with suppress(FluidError):  # of entries of an array that do not have one shape
        while (copy := with_recurrences(planner.program, planner.instructions, planner.specs, fetches)) is not None:
            planner = _specialized(planner.of_copy(copy), values)
    planner.instructions = gather_lookups(planner.instructions, planner.specs, planner.storage)
    return planner


def _is_adapted(op: Operator) -> bool:
    """Whether an op is a loop that was rewritten for native code, and still runs on numpy."""
    return has_room(op) or has_unrolled(op) or has_blocked_rows(op)


def _specialized(planner: _Planner, values: Mapping[str, Any]) -> _Planner:
    """The planner of the program that is specialized for the sizes and values of its feeds; `planner` if nothing is known."""
    if any(instruction.dynamic and is_decided_by_values(instruction.op) for instruction in planner.instructions):
        specs = {**planner.externals, **planner.feeds}
        program = specialized(
            planner.program, {name: spec.shape for name, spec in specs.items()}, values, planner.results_of_blocks()
        )
        planner = planner if program is None else planner.of_copy(program)
    program = with_constants(planner.program, planner.instructions, planner.specs)
    return planner if program is None else planner.of_copy(program)


_NO_TENSORS = (VarType.LOD_TENSOR_ARRAY, VarType.LOD_RANK_TABLE)


def _is_persistent_list(var: Variable, scope: Scope) -> bool:
    """Whether a variable is an array of tensors or a rank table, and persistent."""
    return var.persistable and (var.type in _NO_TENSORS or isinstance(scope.value(var.name), list))


class _Planner:
    def __init__(
        self, program: Program, versions: BlockVersions, feeds: dict[str, Spec], fetches: list[str], scope: Scope
    ) -> None:
        self.program, self.versions, self.feeds, self.fetches, self.scope = program, versions, feeds, fetches, scope
        self.block = program.global_block()
        self.loose: set[str] = set()
        """Persistable names whose shape changes: each value is a new array, put into the scope."""
        self._clear()
        self.offset_of: dict[Value, int] = {}
        self.frees: list[list[Value]] = []
        self.tenants: dict[Value, Tenant] = {}
        self.new_tables: Callable[[], Tables] | None = None
        self.kernels: Kernels | None = None
        self.packed: frozenset[str] = frozenset()
        self._memo: dict[Any, dict[str, Any]] = {}
        self._analysis = SpecAnalysis()

    def _clear(self) -> None:
        self.specs: dict[Value, Spec] = {(name, 0): spec for name, spec in self.feeds.items()}
        self.facts: dict[Value, AbstractValue] = {}
        self.storage: dict[str, Spec] = {}
        self.externals: dict[str, Spec] = {}
        self.absent: set[str] = set()
        self.current: dict[str, int] = {}
        self.instructions: list[AnyInstruction] = []

    def of_copy(self, program: Program) -> _Planner:
        """A planner of a copy of the program, with all specs."""
        versions = versions_to_run(program.global_block(), self.fetches)
        new = _Planner(program, versions, self.feeds, self.fetches, self.scope)
        new.infer()
        return new

    def results_of_blocks(self) -> dict[str, tuple[int, ...]]:
        """Name -> shape of the results of ops that own blocks, as far as they are known and written once."""
        results = [value for item in self.instructions if item.op.sub_blocks for value in item.written if value in self.specs]
        return {value[0]: self.specs[value].shape for value in results if self.versions.last[value[0]] == 1}

    # -- specs
    def infer(self) -> None:
        """Infer the specs of all values."""
        while True:
            count = len(self.loose)
            for index in range(len(self.versions.ops)):
                self._infer_instruction(index)
            if len(self.loose) == count:
                return
            self._clear()

    def _infer_instruction(self, index: int) -> None:
        """Make an op's instruction, infer its results, and look up the variables that no earlier op reads in the scope."""
        op, versions = self.versions.ops[index], self.versions
        outer = {value[0]: value for value in values_in(versions.reads[index])}
        needed = set(outer)
        outer.update((value[0], value) for value in versions.updates[index].values())
        sub_blocks = op.sub_blocks
        for sub in sub_blocks:
            reads, writes = outer_names(sub)
            for name in (*reads, *writes):
                if name in self.block.vars or self.scope.array(name) is not None:
                    outer.setdefault(name, (name, self.current.get(name, 0)))
                else:
                    self.absent.add(name)
        if sub_blocks:
            for name in op.output_arg_names:
                outer.setdefault(name, (name, self.current.get(name, 0)))
        instruction = Instruction(op, op.definition, versions.reads[index], versions.writes[index], outer)
        for name, value in outer.items():
            if value[1] == 0:
                self._look_up_external(value, op, required=name in needed)
        self._infer_op(instruction)
        if op.type == "tensor_array_to_tensor":
            self._infer_joined(instruction)
        for _, _, value in versions.written_at(index):
            self.current[value[0]] = value[1]
            var = self.block.vars.get(value[0])
            if var is not None and var.persistable:
                self._store_in_scope(value, instruction)
        self.instructions.append(instruction)

    def _store_in_scope(self, value: Value, instruction: Instruction) -> None:
        """Store a value of a persistable variable in the scope."""
        name, spec = value[0], self.specs.get(value)
        former = self.storage.get(name) or self.externals.get(name)
        if name in self.loose or spec is None or former not in (None, spec):
            self.loose.add(name)
            if spec is not None:
                self.facts[value] = AbstractValue(self.specs.pop(value))
            instruction.dynamic = True
        else:
            self.storage[name] = spec

    def _look_up_external(self, value: Value, op: Operator, required: bool) -> None:
        """Look up the spec of an initial value in the feeds or the scope."""
        if value in self.specs:
            return
        name = value[0]
        array, var = self.scope.array(name), self.block.vars.get(name)
        if array is not None:
            spec = self.specs[value] = self.externals[name] = spec_of(array)
            if var is not None and var.persistable and name not in self.loose:
                self.storage[name] = spec
            return
        self.absent.add(name)
        written_first = bool(op.sub_blocks) and not (var is not None and var.is_data)
        if not required or written_first or var is None or var.type is not VarType.LOD_TENSOR:
            return  # a loop or branch writes it first, or it is an array without entries
        advice = "feed it" if not var.persistable else "run the startup program, or load it, first"
        if "@GRAD" in name:
            advice = (
                "clone(for_test=True) and pruning leave out gradients that train: clone before minimize, or run the program that "
                "computes it"
            )
        raise FeedError(f"{name} ({var.describe()}) is read but has no value; {advice}\n{locate(op)}")

    def _infer_op(self, instruction: Instruction) -> None:
        op, definition = instruction.op, instruction.definition
        if definition is None:
            raise ExecutionError(f"the op {op.type} is not known here, so it cannot run\n{locate(op)}")
        inputs: dict[str, Any] = {}
        real = RealRows.of(op)
        if real is not None:
            self._infer_real_rows(instruction, definition, real)
            return
        instruction.dynamic = op.type in HANDLERS
        for slot, values in instruction.reads.items():
            declared = definition.inputs.get(slot)
            if declared is None or not values:
                continue
            read = [None if value is None else self.specs.get(value) for value in values]
            if any(value is not None and spec is None for value, spec in zip(values, read, strict=True)):
                instruction.dynamic = True
            if declared.many:
                inputs[slot] = read
            elif read[0] is not None:
                inputs[slot] = read[0]
        if instruction.dynamic:
            self._infer_dynamic(instruction)
            return
        try:
            specs = self._inferred(op, definition, inputs)
        except FluidError as error:
            raise ExecutionError(f"{said_of(op.type, error)}\n{locate(op)}") from error
        outputs: dict[Value, Spec] = {}
        for slot, values in instruction.writes.items():
            of_slot = specs.get(slot)
            for value, spec in zip(values, of_slot if isinstance(of_slot, list) else [of_slot], strict=False):
                if value is not None and (spec is None or not spec.known):
                    instruction.dynamic = True
                    self._infer_dynamic(instruction)
                    return
                if value is not None:
                    outputs[value] = spec
        self.specs.update(outputs)

    def _infer_joined(self, instruction: Instruction) -> None:
        """Infer the tensor of all entries of an array, where it is known how many a loop has collected."""
        op, (array,) = instruction.op, instruction.reads["X"]
        if array is None:
            return
        fact, writer = self.facts.get(array), self.versions.writer.get(array)
        entry = replace(fact.spec, type=VarType.LOD_TENSOR) if fact is not None and fact.spec is not None else None
        loop = self.versions.ops[writer] if writer is not None else None
        if entry is None or loop is None or loop.type != "while" or not entry.known or entry.lod or not entry.shape:
            return
        count = count_entries(loop, array[0])
        if count is None:
            return
        shape, axis, stacks = list(entry.shape), op.attr("axis"), op.attr("use_stack")
        axis %= len(shape) + stacks
        shape[axis : axis + (not stacks)] = [count if stacks else count * shape[axis]]
        joined = {"Out": Spec(tuple(shape), entry.dtype), "OutIndex": Spec((count,), VarType.INT32)}
        for slot, values in instruction.writes.items():
            self.specs.update((value, joined[slot]) for value in values if value is not None)

    def _infer_real_rows(self, instruction: Instruction, definition: OpDef, real: RealRows) -> None:
        """Infer the outputs of an op that computes the real rows alone; they have buffers with padding rows."""
        op = instruction.op
        offsets = [self.specs[value] for value in instruction.reads[OFFSETS] if value is not None]
        inputs = by_slot(definition.inputs, instruction.reads, lambda value: self._spec_of_real(real, value, offsets))
        inferred = self._inferred(op, definition, inputs)
        for slot, values in instruction.writes.items():
            of_slot = inferred.get(slot)
            for value, spec in zip(values, of_slot if isinstance(of_slot, list) else [of_slot], strict=False):
                if value is not None:
                    if spec is None or not spec.with_lod(()).known:
                        raise ExecutionError(f"{op.type}: the shape of {value[0]} depends on values\n{locate(op)}")
                    self.specs[value] = spec.with_lod(())
        instruction.dynamic = True

    def _spec_of_real(self, real: RealRows, value: Value, offsets: Sequence[Spec]) -> Spec:
        if value not in self.specs:
            raise ExecutionError(f"the shape of {value[0]} depends on values")
        return real.spec(value[0], self.specs[value], offsets)

    def _infer_dynamic(self, instruction: Instruction) -> None:
        """Infer the outputs of an op that runs step by step: outputs that certainly exist get buffers."""
        facts = Facts(lambda name: self._fact(instruction.outer.get(name)))
        try:
            self._analysis.visit(instruction.op, 0, facts)
        except FluidError:
            raise
        except Exception as error:  # programs from files may hold unusual loops
            op = instruction.op
            raise ExecutionError(f"{op.type}: {reason_of(op, error)}\n{locate(op)}") from error
        for value in instruction.written:
            fact = facts.get(value[0])  # the former value's fact if no block writes the name
            if fact is not None:
                self.facts[value] = fact
                if fact.is_certain and fact.tensor is not None:
                    self.specs[value] = fact.tensor

    def _fact(self, value: Value | None) -> AbstractValue | None:
        if value is None:
            return None
        return AbstractValue(self.specs[value]) if value in self.specs else self.facts.get(value)

    def _inferred(self, op: Operator, definition: OpDef, inputs: dict[str, Any]) -> dict[str, Any]:
        declared = declared_scalars(op)
        if definition.forward is None:
            return infer_specs(definition, inputs, op.attrs, declared)
        # This runs gradient rules over specs, for a few cases that programs repeat many times.
        key = (
            op.type,
            tuple((slot, tuple(value) if isinstance(value, list) else value) for slot, value in inputs.items()),
            repr([(name, value) for name, value in op.attrs.items() if name in definition.attrs]),
        )
        if key not in self._memo:
            self._memo[key] = infer_specs(definition, inputs, op.attrs, declared)
        return self._memo[key]

    # -- native code
    def compile(self, target: Target) -> None:
        """Replace ops, loops and checks by native code, where that is possible."""
        self.use_native_code(target)
        self.unroll_loops(target)
        self.use_native_checks(target)

    def use_native_code(self, target: Target) -> None:
        """Replace ops by native code, read from disk or compiled; if neither is possible, warn and change nothing."""
        try:
            with or_unavailable():
                instructions, specs, kernels = self._native_code(target)
        except NativeUnavailable as error:
            warn_of(error, self.program)
            return
        if any(instruction.is_native for instruction in instructions):
            from ..native.tables import Tables

            self.instructions, self.specs, self.kernels = instructions, specs, kernels
            self.new_tables = partial(Tables, target)
            self.packed = self.unchanging

    def _native_code(self, target: Target) -> tuple[list[AnyInstruction], dict[Value, Spec], Kernels | None]:
        """The instructions including native code, the specs of all values, and the kernels if they came from disk."""
        from .records import read_native_code, record_path, write_native_code

        originals, fetched = self._originals, self._fetched
        path = record_path(self.program, self.specs, self.storage, self.unchanging, self.fetches, target)
        if path is not None and (code := read_native_code(path, originals, self.specs, self.storage, fetched, target)):
            return code.instructions, {**self.specs, **code.specs}, code.kernels
        has_large_values = any(spec.nbytes >= target.limits.feed_bytes for spec in self.specs.values())
        instructions, specs = self.lowered(target, 1 if has_large_values else _FEWEST, self.unchanging)
        if path is not None and any(instruction.is_native for instruction in instructions):
            write_native_code(path, originals, instructions, specs)
        return instructions, specs, None

    @property
    def _originals(self) -> list[Instruction]:
        """The ops, constants first: between a product and what may be fused with it, they would divide the two."""
        ops = [instruction for instruction in self.instructions if isinstance(instruction, Instruction)]
        return sorted(ops, key=lambda op: not (op.op.type == "assign_value" and all(map(self._is_temporary, op.written))))

    @cached_property
    def _captures(self) -> dict[str, Captured]:
        """See `ArenaPlan.captures`."""
        return step_captures(self.program)

    @property
    def _fetched(self) -> list[Value]:
        return [self.versions.current(name) for name in self.fetches]

    @cached_property
    def unchanging(self) -> frozenset[str]:
        """The variables of the scope that neither the plan overwrites nor anything else can change (see `never_changes`)."""
        overwritten = {value[0] for instruction in self.instructions for value in instruction.written}
        read = self.externals.keys() - overwritten - self.feeds.keys()
        return frozenset(name for name in read if never_changes(self.scope.array(name)))

    def lowered(
        self, target: Target, fewest: int, constants: Container[str] = ()
    ) -> tuple[list[AnyInstruction], dict[Value, Spec]]:
        """The instructions including native code, and the specs of all values; see `native_regions`."""
        from ..native.plans import with_native_code

        specs = dict(self.specs)
        instructions = with_native_code(self._originals, specs, self._fetched, self.storage, target, fewest, constants)
        return instructions, specs

    def use_native_loops(self, target: Target) -> None:
        """Replace loops that would run step by step."""
        from .native_loops import NativeLoops

        if any(instruction.op.type in LOOPS for instruction in self.instructions):
            loops = NativeLoops(self.specs, self._captures, target)
            self.instructions = [loops.expand(instruction) for instruction in self.instructions]

    def unroll_loops(self, target: Target) -> None:
        """Let loops of a known number of trips lie in the table of the plan, where native code computes their blocks."""
        if not any(instruction.is_op and instruction.op.type in LOOPS for instruction in self.instructions):
            return
        try:
            with or_unavailable():
                from ..native.tables import Tables
                from .unrolled_loops import with_unrolled_loops

                entries = self._specs_of_entries
                self.instructions = with_unrolled_loops(self.instructions, self.specs, self._captures, target, entries)
                if any(item.has_native_code for item in self.instructions):
                    self.new_tables = partial(Tables, target)
        except NativeUnavailable as error:
            warn_of(error, self.program)

    @property
    def _specs_of_entries(self) -> dict[Value, Spec]:
        """Array of tensors -> the spec of its entries, where it is known."""
        arrays = {value: fact.spec for value, fact in self.facts.items() if fact.is_array and fact.spec is not None}
        entries = {
            value: replace(spec, type=VarType.LOD_TENSOR) for value, spec in arrays.items() if spec.dtype is not VarType.RAW
        }
        return {value: spec for value, spec in entries.items() if spec.known and not spec.lod}

    def use_native_checks(self, target: Target) -> None:
        """Let native code check ids, where the plan has native code."""
        if self.new_tables is not None and any(instruction.is_check for instruction in self.instructions):
            last = max(checks_of(self.instructions), default=0)
            self.instructions = with_native_checks(self.instructions, self.specs, target, last + 1)

    # -- places
    def place(self, reuse: bool) -> None:
        """Place each value in the arena; with `reuse`, values with disjoint live ranges may share bytes."""
        end = len(self.instructions)
        last_use = self._last_uses(end)
        self.frees = [[] for _ in range(end + 1)]
        for value, number in last_use.items():
            if value not in self.specs:
                self.frees[number].append(value)
        if reuse:
            self._reuse_images(last_use)
        tenants: list[Tenant] = []
        tenant_of: dict[Value, Tenant] = {}

        def add_tenant(value: Value, start: int) -> None:
            if self._is_temporary(value) and value not in tenant_of:
                tenant_of[value] = tenant = Tenant(self.specs[value].nbytes, start, last_use[value])
                tenants.append(tenant)

        for name in self.feeds:
            if (name, 0) in last_use:
                add_tenant((name, 0), -1)
        for number, instruction in enumerate(self.instructions):
            if reuse and instruction.is_op and not instruction.dynamic:
                self._reuse_inputs(instruction, number, last_use, tenant_of)
            for value in instruction.written:
                add_tenant(value, number)
        self.arena_bytes = place(tenants) if reuse else place_apart(tenants)
        self.offset_of = {value: tenant.offset for value, tenant in tenant_of.items()}
        self.temporaries_bytes = sum(self.specs[value].nbytes for value in tenant_of)
        self.live_bytes = live_bytes(tenants)
        self.tenants = tenant_of

    def _last_uses(self, end: int) -> dict[Value, int]:
        """Value -> number of the last instruction that needs it; `end` for fetched values."""
        last_use: dict[Value, int] = {}
        for number, instruction in enumerate(self.instructions):
            shapes = self._shape_reads(instruction)
            for value in instruction.outer.values():
                if value not in shapes:
                    last_use[value] = number
                else:
                    last_use.setdefault(value, number)  # a feed needs an array even if only its shape is read
            for value in instruction.written:
                last_use.setdefault(value, number)
        if FAILED in last_use:
            last_use[FAILED] = end  # the executor reads it
        self.fetch_values = [self.versions.current(name) for name in self.fetches]
        for name, value in zip(self.fetches, self.fetch_values, strict=True):
            last_use[value] = end
            if value[1] == 0 and value not in self.specs:
                self._fetch_external(name, value)
        return last_use

    def _fetch_external(self, name: str, value: Value) -> None:
        array = self.scope.array(name)
        if array is None:
            raise FeedError(f"{name} is to be fetched, but no op of the program computes it and the scope does not hold it")
        self.specs[value] = self.externals[name] = spec_of(array)

    def _is_temporary(self, value: Value) -> bool:
        is_external = value[1] == 0 and value[0] in self.externals
        return value in self.specs and value[0] not in self.storage and not value[0].startswith(CLEARED) and not is_external

    def _reuse_inputs(
        self, instruction: AnyInstruction, number: int, last_use: dict[Value, int], tenant_of: dict[Value, Tenant]
    ) -> None:
        """Let outputs reuse the bytes of inputs that die here, if the kernel works in place."""
        kernel = kernel_of(instruction.op.type)
        shared: set[Value] = set()
        for slot, source in kernel.inplace.items() if kernel is not None else ():
            for out, value in zip(instruction.writes.get(slot, ()), instruction.reads.get(source, ()), strict=False):
                if out is None or value is None:
                    continue
                uses = sum(v == value for vs in instruction.reads.values() for v in vs)
                if (
                    uses == 1
                    and value in tenant_of
                    and last_use[value] == number
                    and value not in shared
                    and self._is_temporary(out)
                    and out not in tenant_of
                    and value[0] not in self.feeds
                    and self.specs[out] == self.specs[value]
                ):
                    tenant_of[out] = tenant_of[value]
                    tenant_of[out].end = last_use[out]
                    instruction.shares[out] = value
                    shared.add(value)

    def _reuse_images(self, last_use: dict[Value, int]) -> None:
        """Let images with a halo reuse the memory of dead images with the same spec and layout: its halo is already zero."""
        alike: dict[tuple[Spec, str], list[Value]] = {}
        placed: set[Value] = set()
        for number, instruction in enumerate(self.instructions):
            if not instruction.is_native:
                continue
            for value in instruction.written:
                if not value[0].startswith(CLEARED) or value in placed:
                    continue
                placed.add(value)
                candidates = alike.setdefault((self.specs[value], instruction.layouts[value]), [])
                former = next((candidate for candidate in candidates if last_use[candidate] < number), None)
                if former is not None:
                    candidates.remove(former)
                    instruction.shares[value] = former
                candidates.append(value)

    @staticmethod
    def _shape_reads(instruction: AnyInstruction) -> set[Value]:
        """The values that the op reads only for their shape, which the plan knows."""
        definition = instruction.definition
        if definition is None or instruction.dynamic or instruction.op.sub_blocks:
            return set()
        shape_only = {slot for slot, declared in definition.inputs.items() if declared.shape_only}
        shapes = {value for slot in shape_only for value in instruction.reads.get(slot, ()) if value is not None}
        return shapes - {value for slot, values in instruction.reads.items() if slot not in shape_only for value in values}

    def plan(self) -> ArenaPlan:
        return ArenaPlan(
            self.program,
            self.feeds,
            self.fetches,
            self.versions.ops,
            self.instructions,
            self.specs,
            self.offset_of,
            self.arena_bytes,
            self.storage,
            self.externals,
            self.frees,
            self.fetch_values,
            frozenset(self.absent),
            self.temporaries_bytes,
            self.live_bytes,
            self.tenants,
            captures=self._captures,
            step_by_step=any(spec.type is VarType.SELECTED_ROWS for spec in self.externals.values()),
            new_tables=self.new_tables,
            kernels=self.kernels,
            unchanging=self.packed,
        )
