"""Plans: a program compiled for one feed signature into a straight line of calls on planned arrays.

`compile_plan` prunes what neither a fetch nor a persistable variable needs, infers every shape from those that are fed,
and gives each value a place: an array of the scope (persistable variables, overwritten in place), a buffer (shared by
values that are never alive together), or a cell (arrays of tensors, and tensors whose shape only running tells).
`BoundPlan` allocates the buffers and binds each op's kernel to the arrays that it reads and writes; running it is one
loop over calls without arguments.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from operator import length_hint
from typing import Any

from fluid.errors import ExecutionError, FeedError, FluidError, locate
from fluid.framework import Block, Operator, Program
from fluid.ops.registry import OpDef, Slot
from fluid.types import VarType
from fluid.values import Spec, infer_specs
from fluid.versions import BlockVersions, Value, outer_names

from .arrays import bind_op, spec_of
from .control import HANDLERS
from .interpreter import Environment, Machine, declared_scalars, step_captures, updated_input
from .kernels.table import KERNELS, Step
from .place import Place, to_numpy
from .random import RandomStreams
from .region_specs import Fact, Facts, infer_op
from .scope import Scope

__all__ = ["BoundPlan", "Plan", "compile_plan", "needed_ops"]

_ALIGN = 64


def needed_ops(block: Block, fetches: Sequence[str]) -> list[Operator]:
    """The ops of block 0 that a fetch, a persistable variable or the outside world needs, in order."""
    versions = BlockVersions(block)
    needed: set[Value] = {versions.current(name) for name in fetches}
    kept = []
    for index in range(len(versions.ops) - 1, -1, -1):
        op = versions.ops[index]
        if op.type in ("feed", "fetch"):
            continue
        wanted = False
        for _, _, value in versions.written_at(index):
            var = block.vars.get(value[0])
            if value in needed or (var is not None and var.persistable):
                wanted = True
        if not wanted and (op.outputs and any(op.outputs.values())):
            continue
        kept.append(op)
        needed.update(value for _, _, value in versions.read_at(index))
        definition = op.definition
        if definition is not None and op.sub_blocks:
            for sub in op.sub_blocks:
                reads, writes = outer_names(sub)
                needed.update((name, _version_before(versions, name, index)) for name in (*reads, *writes))
            # A loop or branch may leave what it writes as it was.
            needed.update((value[0], value[1] - 1) for _, _, value in versions.written_at(index))
    return kept[::-1]


def _version_before(versions: BlockVersions, name: str, index: int) -> int:
    version = versions.last.get(name, 0)
    while version and versions.writer[(name, version)] >= index:
        version -= 1
    return version


# ------------------------------------------------------------------------------------------------------------ compile
@dataclass
class _Instruction:
    """An op with the values that it reads and writes, by slot."""

    op: Operator
    definition: OpDef | None
    reads: dict[str, list[Value | None]]
    writes: dict[str, list[Value | None]]
    outer: dict[str, Value]
    """Every name that the op, or a block that it owns, may look up, with its value at this point."""
    dynamic: bool = False
    shares: dict[Value, Value] = field(default_factory=dict)
    """Written value -> the value, dead from here on, whose buffer it takes over."""

    @property
    def written(self) -> list[Value]:
        return [value for values in self.writes.values() for value in values if value is not None]

    @property
    def read(self) -> list[Value]:
        return [value for values in self.reads.values() for value in values if value is not None]


@dataclass
class Plan:
    """What a program computes for one feed signature, and where each value is kept.

    Attributes:
        instructions: the ops to run, in order.
        specs: what each value is; values without one are kept in cells.
        buffer_of: value -> number of the buffer that it lies in.
        buffer_bytes: size of each buffer.
        storage: names whose values live in the scope, where they are overwritten in place.
        externals: names that are read as the scope holds them when the program starts.
        absent: names that were looked for in the scope and not found.
        frees: for each instruction, the cells that are not needed after it.
    """

    program: Program
    feeds: dict[str, Spec]
    fetches: list[str]
    instructions: list[_Instruction]
    specs: dict[Value, Spec]
    buffer_of: dict[Value, int]
    buffer_bytes: list[int]
    storage: dict[str, Spec]
    externals: dict[str, Spec]
    frees: list[list[Value]]
    fetch_values: list[Value]
    absent: frozenset[str] = frozenset()
    temporaries_bytes: int = 0
    live_bytes: int = 0
    """Most bytes of temporaries that are alive at one time."""

    def __str__(self) -> str:
        lines = [
            f"plan: {len(self.instructions)} ops, {len(self.buffer_bytes)} buffers of {_size(sum(self.buffer_bytes))} for "
            f"{_size(self.temporaries_bytes)} of values, at most {_size(self.live_bytes)} alive at once"
        ]
        for name, spec in self.feeds.items():
            lines.append(f"  feed {name}: {spec} -> {self._place((name, 0))}")
        for number, instruction in enumerate(self.instructions):
            outs = ", ".join(map(self._value, instruction.written))
            ins = ", ".join(map(self._value, instruction.read))
            mark = "  (step by step)" if instruction.dynamic else ""
            lines.append(f"  {number:4d}  {outs} = {instruction.op.type}({ins}){mark}")
        lines.append(f"  fetch {', '.join(self._value(value) for value in self.fetch_values)}")
        return "\n".join(lines)

    def _place(self, value: Value) -> str:
        if value[0] in self.storage or (value[1] == 0 and value[0] in self.externals):
            return "scope"
        number = self.buffer_of.get(value)
        return "cell" if number is None else f"b{number}"

    def _value(self, value: Value) -> str:
        return f"{value[0]}@{self._place(value)}"


def _size(count: int) -> str:
    for unit in ("B", "KB", "MB"):
        if count < 10_000:
            return f"{count:.0f} {unit}"
        count //= 1024
    return f"{count} GB"


def compile_plan(program: Program, feeds: Mapping[str, Spec], fetches: Sequence[str], scope: Scope, reuse: bool = True) -> Plan:
    """Compile block 0 of `program` for feeds of these shapes and types, with what `scope` holds.

    `reuse` off gives each value a buffer of its own.

    Raises:
        FeedError: something that the program reads is neither fed nor in the scope, or a fetch is not computed.
    """
    block = program.global_block()
    ops = needed_ops(block, fetches)
    planner = _Planner(program, block, ops, dict(feeds), list(fetches), scope)
    planner.infer()
    planner.place(reuse)
    return planner.plan()


class _Planner:
    def __init__(
        self, program: Program, block: Block, ops: list[Operator], feeds: dict[str, Spec], fetches: list[str], scope: Scope
    ) -> None:
        self.program, self.block, self.feeds, self.fetches, self.scope = program, block, feeds, fetches, scope
        shadow = Block.__new__(Block)
        shadow.program, shadow.vars, shadow.ops = program, block.vars, ops
        self.versions = BlockVersions(shadow)
        self.loose: set[str] = set()
        """Persistable names that do not keep one shape: each value is an array of its own, put into the scope when made."""
        self._clear()
        self.buffer_of: dict[Value, int] = {}
        self.buffer_bytes: list[int] = []
        self.frees: list[list[Value]] = []
        self.live_bytes = 0
        self._memo: dict[Any, dict[str, Any]] = {}

    def _clear(self) -> None:
        self.specs: dict[Value, Spec] = {(name, 0): spec for name, spec in self.feeds.items()}
        self.facts: dict[Value, Fact] = {}
        self.storage: dict[str, Spec] = {}
        self.externals: dict[str, Spec] = {}
        self.absent: set[str] = set()
        self.current: dict[str, int] = {}
        self.instructions: list[_Instruction] = []

    # -- what every value is
    def infer(self) -> None:
        """Find the spec of every value that has one."""
        while True:
            known = len(self.loose)
            for index in range(len(self.versions.ops)):
                self._infer_instruction(index)
            if len(self.loose) == known:
                return
            self._clear()

    def _infer_instruction(self, index: int) -> None:
        op, versions = self.versions.ops[index], self.versions
        read = {value[0]: value for _, _, value in versions.read_at(index)}
        outer = dict(read)
        for sub in op.sub_blocks:
            reads, writes = outer_names(sub)
            for name in (*reads, *writes):
                if name in self.block.vars or self.scope.find_var(name) is not None:
                    outer.setdefault(name, (name, self.current.get(name, 0)))
        if op.sub_blocks:
            for name in op.output_arg_names:
                outer.setdefault(name, (name, self.current.get(name, 0)))
        instruction = _Instruction(op, op.definition, versions.reads[index], versions.writes[index], outer)
        for name, value in outer.items():
            if value[1] == 0:
                self._external(value, op, required=name in read)
        self._infer_op(instruction)
        for _, _, value in versions.written_at(index):
            self.current[value[0]] = value[1]
            var = self.block.vars.get(value[0])
            if var is not None and var.persistable:
                self._keep(value, instruction)
        self.instructions.append(instruction)

    def _keep(self, value: Value, instruction: _Instruction) -> None:
        """Let a value of a persistable variable lie in the scope."""
        name, spec = value[0], self.specs.get(value)
        known = self.storage.get(name) or self.externals.get(name)
        if name in self.loose or spec is None or known not in (None, spec):
            self.loose.add(name)
            if spec is not None:
                self.facts[value] = Fact(self.specs.pop(value))
            instruction.dynamic = True
        else:
            self._store(name, spec)

    def _external(self, value: Value, op: Operator, required: bool) -> None:
        """Learn what a name holds before the program runs: what is fed, or what the scope has."""
        if value in self.specs:
            return
        name = value[0]
        array = self.scope.array(name)
        if array is not None:
            spec = self.specs[value] = self.externals[name] = spec_of(array)
            var = self.block.vars.get(name)
            if var is not None and var.persistable and name not in self.loose:
                self._store(name, spec)
            return
        var = self.block.vars.get(name)
        self.absent.add(name)
        written_first = bool(op.sub_blocks) and not (var is not None and var.is_data)
        if not required or written_first or var is None or var.type is not VarType.LOD_TENSOR:
            return  # what a loop or branch writes first, and arrays that begin empty
        advice = "feed it" if not var.persistable else "run the startup program, or load it, first"
        raise FeedError(f"{name} ({var.describe()}) is read but has no value; {advice}\n{locate(op)}")

    def _store(self, name: str, spec: Spec) -> None:
        self.storage[name] = spec

    def _infer_op(self, instruction: _Instruction) -> None:
        op, definition = instruction.op, instruction.definition
        if definition is None:
            raise ExecutionError(f"the op {op.type} is not known here, so it cannot run\n{locate(op)}")
        inputs: dict[str, Any] = {}
        instruction.dynamic = op.type in HANDLERS
        for slot, values in instruction.reads.items():
            known = definition.inputs.get(slot)
            if known is None or not values:
                continue
            read = [None if value is None else self.specs.get(value) for value in values]
            if any(value is not None and spec is None for value, spec in zip(values, read, strict=True)):
                instruction.dynamic = True
            if known.many:
                inputs[slot] = read
            elif read[0] is not None:
                inputs[slot] = read[0]
        if instruction.dynamic:
            self._infer_dynamic(instruction)
            return
        try:
            specs = self._inferred(op, definition, inputs)
        except FluidError as error:
            raise ExecutionError(f"{op.type}: {error}\n{locate(op)}") from error
        written: dict[Value, Spec] = {}
        for slot, values in instruction.writes.items():
            found = specs.get(slot)
            for value, spec in zip(values, found if isinstance(found, list) else [found], strict=False):
                if value is None:
                    continue
                if spec is None or not spec.known:
                    instruction.dynamic = True
                    self._infer_dynamic(instruction)
                    return
                written[value] = spec
        self.specs.update(written)

    def _infer_dynamic(self, instruction: _Instruction) -> None:
        """What is known of the outputs of an op that runs step by step: those that surely are made can have buffers."""
        facts = Facts(lambda name: self._fact(instruction.outer.get(name)))
        infer_op(instruction.op, facts)
        for value in instruction.written:
            fact = facts.get(value[0])  # of what a block does not write after all, as it was before
            if fact is not None:
                self.facts[value] = fact
                if fact.made and fact.tensor is not None:
                    self.specs[value] = fact.tensor

    def _fact(self, value: Value | None) -> Fact | None:
        if value is None:
            return None
        return Fact(self.specs[value]) if value in self.specs else self.facts.get(value)

    def _inferred(self, op: Operator, definition: OpDef, inputs: dict[str, Any]) -> dict[str, Any]:
        declared = declared_scalars(op)
        if definition.forward is None:
            return infer_specs(definition, inputs, op.attrs, declared)
        # Rules run over specs for this; programs repeat the same few cases many times.
        key = (
            op.type,
            tuple((slot, tuple(value) if isinstance(value, list) else value) for slot, value in inputs.items()),
            repr([(name, value) for name, value in op.attrs.items() if name in definition.attrs]),
        )
        found = self._memo.get(key)
        if found is None:
            found = self._memo[key] = infer_specs(definition, inputs, op.attrs, declared)
        return found

    # -- where every value is
    def place(self, reuse: bool) -> None:
        """Give each value a buffer; a buffer goes to another value when the one in it has been used for the last time."""
        last_use: dict[Value, int] = {}
        for number, instruction in enumerate(self.instructions):
            for value in instruction.outer.values():
                if not self._only_shape_read(instruction, value):
                    last_use[value] = number
                else:
                    last_use.setdefault(value, number)  # what is fed needs an array to tell its shape
            for value in instruction.written:
                last_use.setdefault(value, number)
        end = len(self.instructions)
        self.fetch_values = [self.versions.current(name) for name in self.fetches]
        for name, value in zip(self.fetches, self.fetch_values, strict=True):
            last_use[value] = end
            if value[1] == 0 and value not in self.specs:
                self._fetch_external(name, value)
        dying: list[list[Value]] = [[] for _ in range(end + 1)]
        for value, number in last_use.items():
            dying[number].append(value)
        free: dict[int, list[int]] = {}
        self.temporaries_bytes = alive = 0
        for name in self.feeds:
            if (name, 0) in last_use and self._is_temporary((name, 0)):
                alive += self._take((name, 0), free, reuse)
        for number, instruction in enumerate(self.instructions):
            shared: set[Value] = set()
            if reuse and not instruction.dynamic:
                self._share(instruction, number, last_use, shared)
            for value in instruction.written:
                if self._is_temporary(value) and value not in self.buffer_of:
                    alive += self._take(value, free, reuse)
            self.live_bytes = max(self.live_bytes, alive)
            cells = []
            for value in dying[number]:
                if value in self.buffer_of and value not in shared:
                    buffer = self.buffer_of[value]
                    alive -= _bytes(self.specs[value])
                    if reuse:
                        free.setdefault(self.buffer_bytes[buffer], []).append(buffer)
                elif value not in self.specs:
                    cells.append(value)
            self.frees.append(cells)

    def _fetch_external(self, name: str, value: Value) -> None:
        array = self.scope.array(name)
        if array is None:
            raise FeedError(f"{name} is to be fetched, but no op of the program computes it and the scope does not hold it")
        self.specs[value] = self.externals[name] = spec_of(array)

    def _is_temporary(self, value: Value) -> bool:
        return value in self.specs and value[0] not in self.storage and not (value[1] == 0 and value[0] in self.externals)

    def _take(self, value: Value, free: dict[int, list[int]], reuse: bool) -> int:
        """Put a value into a free buffer of its size, or into a new one; its bytes."""
        size = _bytes(self.specs[value])
        self.temporaries_bytes += size
        padded = -(-max(size, 1) // _ALIGN) * _ALIGN
        fitting = free.get(padded) if reuse else None
        if not fitting and reuse:
            larger = [width for width, buffers in free.items() if buffers and padded < width <= 2 * padded]
            fitting = free[min(larger)] if larger else None
        if fitting:
            self.buffer_of[value] = fitting.pop()
        else:
            self.buffer_of[value] = len(self.buffer_bytes)
            self.buffer_bytes.append(padded)
        return size

    def _share(self, instruction: _Instruction, number: int, last_use: dict[Value, int], shared: set[Value]) -> None:
        """Let outputs take over the buffers of inputs that die here, where the kernel allows it."""
        found = KERNELS.get(instruction.op.type)
        if found is None:
            return
        for slot, source in found.inplace.items():
            outs, ins = instruction.writes.get(slot), instruction.reads.get(source)
            if not outs or not ins or outs[0] is None or ins[0] is None:
                continue
            out, value = outs[0], ins[0]
            uses = sum(v == value for vs in instruction.reads.values() for v in vs)
            if (
                uses == 1
                and value in self.buffer_of
                and last_use[value] == number
                and value not in shared
                and self._is_temporary(out)
                and out not in self.buffer_of
                and value[0] not in self.feeds
                and self.specs[out] == self.specs[value]
            ):
                self.buffer_of[out] = self.buffer_of[value]
                instruction.shares[out] = value
                self.temporaries_bytes += _bytes(self.specs[out])
                shared.add(value)

    @staticmethod
    def _only_shape_read(instruction: _Instruction, value: Value) -> bool:
        """Whether the op reads nothing of a value but its shape, which the plan knows."""
        definition = instruction.definition
        if definition is None or instruction.dynamic or instruction.op.sub_blocks:
            return False
        slots = [slot for slot, values in instruction.reads.items() if value in values]
        return bool(slots) and all(definition.inputs.get(slot, Slot(slot)).like for slot in slots)

    def plan(self) -> Plan:
        return Plan(
            self.program,
            self.feeds,
            self.fetches,
            self.instructions,
            self.specs,
            self.buffer_of,
            self.buffer_bytes,
            self.storage,
            self.externals,
            self.frees,
            self.fetch_values,
            frozenset(self.absent),
            self.temporaries_bytes,
            self.live_bytes,
        )


def _bytes(spec: Spec) -> int:
    return spec.size * spec.dtype.numpy.itemsize


# --------------------------------------------------------------------------------------------------------------- bind
class _Scratch:
    """Lends arrays for the time of one op; the next op gets the same memory again."""

    def __init__(self, xp: Any) -> None:
        self._xp = xp
        self._free: list[Any] = []
        self._lent: list[Any] = []

    def __call__(self, shape: tuple[int, ...], dtype: Any) -> Any:
        spec_dtype = self._xp.dtype(dtype)
        count = 1
        for extent in shape:
            count *= extent
        size = max(count * spec_dtype.itemsize, 1)
        fitting = min((raw for raw in self._free if raw.nbytes >= size), key=lambda raw: raw.nbytes, default=None)
        if fitting is None:
            fitting = self._xp.empty(-(-size // _ALIGN) * _ALIGN, "uint8")
        else:
            self._free = [raw for raw in self._free if raw is not fitting]
        self._lent.append(fitting)
        return fitting[: count * spec_dtype.itemsize].view(spec_dtype).reshape(shape)

    def reclaim(self) -> None:
        self._free += self._lent
        self._lent = []

    @property
    def nbytes(self) -> int:
        return sum(raw.nbytes for raw in self._free)


class BoundPlan:
    """A plan with its arrays, ready to run in one scope; one run at a time."""

    def __init__(self, plan: Plan, scope: Scope, place: Place) -> None:
        self.plan = plan
        self.scope = scope
        self.place = place
        self._machine = Machine(place.xp, RandomStreams(place.xp, plan.program.random_seed), step_captures(plan.program))
        self._cells: dict[Value, Any] = {}
        self._stored: dict[str, Any] = {}
        self.generation = -1
        self.steps: list[Step] = []
        self._starts: list[int] = []
        self._buffers = [place.xp.empty(size, "uint8") for size in plan.buffer_bytes]
        self._views: dict[Value, Any] = {}
        self._scratch = _Scratch(place.xp)
        for value, number in plan.buffer_of.items():
            self._views[value] = self._view(value, number)
        for instruction in plan.instructions:
            for out, value in instruction.shares.items():
                self._views[out] = self._views[value]

    def _view(self, value: Value, number: int) -> Any:
        spec = self.plan.specs[value]
        raw = self._buffers[number][: _bytes(spec)]
        return raw.view(spec.dtype.numpy).reshape(spec.shape)

    @property
    def buffer_bytes(self) -> int:
        """Bytes of the buffers and of what kernels borrow."""
        return sum(self.plan.buffer_bytes) + self._scratch.nbytes

    # -- binding
    def _fits_scope(self) -> bool:
        """Whether the scope still holds the arrays that the calls are bound to."""
        if self.generation == self.scope.generation:
            return True
        if self.generation < 0 or any(self.scope.array(name) is not array for name, array in self._stored.items()):
            return False
        self.generation = self.scope.generation
        return True

    def _bind(self) -> None:
        plan, xp = self.plan, self.place.xp
        self._stored = {}
        for name in {**plan.externals, **plan.storage}:
            spec = plan.storage.get(name) or plan.externals[name]
            array = self.scope.array(name)
            fits = array is not None and (array.shape, array.dtype) == (spec.shape, spec.dtype.numpy)
            found = self.place.asarray(array) if fits else xp.empty(spec.shape, spec.dtype.numpy)
            if name in plan.storage and not _can_be_overwritten(found):
                found = xp.array(found, order="C")
            if found is not array:
                (self.scope.find_var(name) or self.scope.var(name)).tensor.array = found
            self._stored[name] = found
        self.generation = self.scope.generation
        self.steps, self._starts = [], []
        for number, instruction in enumerate(plan.instructions):
            self._starts.append(len(self.steps))
            try:
                if instruction.dynamic:
                    self.steps.append(self._dynamic_step(instruction, plan.frees[number]))
                else:
                    self.steps += self._bind_op(instruction)
            except FluidError as error:
                raise ExecutionError(f"{instruction.op.type}: {error}\n{locate(instruction.op)}") from error
            except Exception as error:
                raise ExecutionError(f"{instruction.op.type} failed: {error}\n{locate(instruction.op)}") from error
            self._scratch.reclaim()

    def _array(self, value: Value | None) -> Any:
        """The array that a value with a spec lies in."""
        if value is None:
            return None
        name = value[0]
        if name in self.plan.storage or (value[1] == 0 and name in self.plan.externals):
            return self._stored[name]
        return self._views.get(value)

    def _bind_op(self, instruction: _Instruction) -> list[Step]:
        op, definition, xp = instruction.op, instruction.definition, self.place.xp
        assert definition is not None
        inputs: dict[str, Any] = {}
        for slot, values in instruction.reads.items():
            known = definition.inputs.get(slot)
            if known is not None and values:
                arrays = [self._array(value) if value is not None else None for value in values]
                inputs[slot] = arrays if known.many else arrays[0]
        outputs: dict[str, Any] = {}
        copies: list[Step] = []
        found = KERNELS.get(op.type)
        for slot, values in instruction.writes.items():
            known = definition.outputs.get(slot)
            if known is None or not values:
                continue
            arrays = [self._target(instruction, slot, value, found, copies) for value in values]
            outputs[slot] = arrays if known.many else arrays[0]
        attrs = definition.defaults(op.attrs)
        names = op.output_arg_names
        rng = self._machine.streams.source(names[0] if names else op.type, int(attrs.get("seed") or 0))
        context = {"xp": xp, "scratch": self._scratch, "rng": rng}
        return bind_op(definition, inputs, outputs, attrs, context, self._scratch) + copies

    def _target(self, instruction: _Instruction, slot: str, value: Value | None, found: Any, copies: list[Step]) -> Any:
        """Where an op writes a value: in place, unless it would overwrite what its kernel still reads."""
        array = self._array(value)
        if value is None or value[0] not in self.plan.storage:
            return array
        readers = {s for s, values in instruction.reads.items() if any(v is not None and v[0] == value[0] for v in values)}
        definition = instruction.definition
        assert definition is not None
        allowed = {updated_input(definition, slot)} | ({found.inplace.get(slot)} if found is not None else set())
        if readers <= allowed:
            return array
        temporary = self._scratch(array.shape, array.dtype)
        xp = self.place.xp
        copies.append(lambda: xp.copyto(array, temporary))
        return temporary

    def _dynamic_step(self, instruction: _Instruction, frees: list[Value]) -> Step:
        op, block, machine, cells = instruction.op, self.plan.program.global_block(), self._machine, self._cells
        fixed = {name: self._array(value) for name, value in instruction.outer.items() if value in self.plan.specs}
        fixed = {name: array for name, array in fixed.items() if array is not None}
        loose = [(name, value) for name, value in instruction.outer.items() if name not in fixed]
        outs = instruction.written
        targets = [(value, self._array(value) if value in self.plan.specs else None) for value in outs]
        xp, scope = self.place.xp, self.scope
        kept = {value[0] for value in outs if (var := block.vars.get(value[0])) is not None and var.persistable}
        planned = {id(array) for array in fixed.values()}

        def step() -> None:
            env = Environment(block, None, dict(fixed))
            for name, value in loose:
                found = cells.get(value)
                if found is not None:
                    env.values[name] = found
            machine.run_op(op, env)
            made = []
            for value, array in targets:
                result: Any = env.values.get(value[0])
                if id(result) in planned and result is not array:
                    result = result.copy()  # what it is part of will hold something else before this value is read
                made.append((value, array, result))
            for value, array, result in made:
                if array is None:
                    cells[value] = result
                    if value[0] in kept and hasattr(result, "shape"):
                        (scope.find_var(value[0]) or scope.var(value[0])).tensor.array = result
                elif result is not array:
                    _hand_over(xp, op, value[0], array, result)
            for value in frees:
                cells.pop(value, None)

        return step

    # -- running
    def run(self, feeds: Mapping[str, Any], check: Callable[[Operator, str, Any], None] | None = None) -> list[Any]:
        """Run once; the fetched values, as arrays of the place that are the caller's own.

        `check`, if given, is called with each op, output name and value as they are made.
        """
        with self.scope.lock:
            if not self._fits_scope():
                self._bind()
            self._machine.streams.begin(self.scope.runs)
            self.scope.runs += 1
            for name, value in feeds.items():
                target = self._views.get((name, 0))
                if target is not None:
                    upload(target, value)
                elif (name, 0) in self.plan.specs and name in self._stored:
                    upload(self._stored[name], value)
            self._machine.check = check
            try:
                if check is None:
                    self._run_all()
                else:
                    self._run_checked(check)
                return [self._fetch(name, value) for name, value in zip(self.plan.fetches, self.plan.fetch_values, strict=True)]
            finally:
                self._cells.clear()

    def _run_all(self) -> None:
        steps = iter(self.steps)
        try:
            for step in steps:
                step()
        except Exception as error:
            if isinstance(error, ExecutionError) and error.located:
                raise
            position = len(self.steps) - length_hint(steps) - 1
            raise self._failure(position, error) from error

    def _failure(self, position: int, error: Exception) -> ExecutionError:
        from bisect import bisect_right

        instruction = self.plan.instructions[bisect_right(self._starts, position) - 1]
        specs = self.plan.specs
        known = "; ".join(f"{value[0]} is {specs[value]}" for value in dict.fromkeys(instruction.read) if value in specs)
        op = instruction.op
        return ExecutionError(f"{op.type} failed: {error}\n{locate(op)}\n  at run time: {known or 'no inputs'}")

    def _run_checked(self, check: Callable[[Operator, str, Any], None]) -> None:
        ends = [*self._starts[1:], len(self.steps)]
        for instruction, start, end in zip(self.plan.instructions, self._starts, ends, strict=True):
            try:
                for step in self.steps[start:end]:
                    step()
            except Exception as error:
                if isinstance(error, ExecutionError) and error.located:
                    raise
                raise self._failure(start, error) from error
            for value in instruction.written:
                found = self._array(value) if value in self.plan.specs else self._cells.get(value)
                if hasattr(found, "dtype"):
                    check(instruction.op, value[0], found)

    def _fetch(self, name: str, value: Value) -> Any:
        found = self._array(value) if value in self.plan.specs else self._cells.get(value)
        if found is None:
            raise not_made(name)
        return list(found) if isinstance(found, list) else found.copy()


def not_made(name: str) -> FeedError:
    return FeedError(f"{name} is to be fetched, but the program gave it no value (a branch that was not taken?)")


def upload(target: Any, value: Any) -> None:
    """Copy a fed value into an array of the place."""
    if hasattr(target, "__cuda_array_interface__"):
        target.set(to_numpy(value)) if not hasattr(value, "__cuda_array_interface__") else target.__setitem__(..., value)
    else:
        target[...] = to_numpy(value)


def _can_be_overwritten(array: Any) -> bool:
    """Whether an array may be the place of a variable: numpy's may be read-only, and views of any order."""
    return bool(array.flags.c_contiguous) and bool(getattr(array.flags, "writeable", True))


def _hand_over(xp: Any, op: Operator, name: str, array: Any, result: Any) -> None:
    """Copy what an op that runs step by step made into the place that the plan has for it."""
    if result is None:
        raise ExecutionError(f"{op.type} left {name} without a value (a branch that was not taken?)\n{locate(op)}")
    if (result.shape, result.dtype) != (array.shape, array.dtype):
        found, expected = spec_of(result), spec_of(array)
        raise ExecutionError(f"{op.type} made {found} of {name}, which was inferred to be {expected}\n{locate(op)}")
    xp.copyto(array, result)
