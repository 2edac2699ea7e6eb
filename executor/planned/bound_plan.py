"""Bound plans: memory is allocated, and each op's kernel is bound to its arrays, so that a run is one loop over calls."""

from __future__ import annotations

import weakref
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from itertools import accumulate, takewhile
from operator import length_hint
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from fluid.errors import ExecutionError, FluidError, OutOfMemoryError, gibibytes, locate, said_of, while_running
from fluid.ir.collector import collector_paused
from fluid.ir.program import Operator
from fluid.ir.versions import Value
from fluid.opdef.registry import by_slot, updated_input
from fluid.values.lod_array import array_of
from fluid.values.memory import address_of, aligned_bytes, empty_array
from fluid.values.place import Place, to_numpy
from fluid.values.unchanging import drop_pages, is_usable, never_changes, usable_copy

from ..binding.arrays import bind_op
from ..kernels.collective import group_of, make_progress
from ..kernels.engine import Step, engine_of
from ..kernels.table import is_check, kernel_of
from ..native.fallback import or_unavailable
from ..native.instructions import CLEARED, Check, NativeInstruction, failure_of, stand_in, within_branches
from ..native.native_checks import FAILED, checks_of
from ..runtime.calls import Call
from ..runtime.random import RandomStreams
from ..runtime.scope import Scope
from ..runtime.specs import spec_of
from ..runtime.threads import OnNumpy
from ..runtime.timing import Watch, counted, timed
from ..stepwise.indexed_arrays import IndexedArray
from ..stepwise.interpreter import Environment, Machine
from ..stepwise.meeting import Meeting, reductions_in_flight
from ..stepwise.program import not_made
from ..stepwise.repeated import Frames
from .array_loops import ArrayLoop
from .memory import Memory, Packed, Scratch
from .placement import padded
from .plan import AnyInstruction, ArenaPlan, Instruction
from .real_rows import OFFSETS, RealRows, RealRowsStep

if TYPE_CHECKING:
    from .native_loops import SavedRuns

__all__ = ["BoundArenaPlan"]

_NOTHING = nullcontext()
_PART_BYTES = 4 << 20
"""Packed weights are written in parts of about so many bytes; after each, the memory of the weights read for it is released."""


class _Origin(NamedTuple):
    """What native code computes a value from, if it reads variables of the scope alone.

    Attributes:
        key: the kernels, and the ids of the arrays that they read.
        arrays: these arrays, which have to stay alive as long as the key is used.
    """

    key: Hashable
    arrays: list[Any]


class BoundArenaPlan:
    """A plan with its arrays, bound to one scope; one run at a time. It does not keep the scope alive.

    The values of the plan lie in an arena of `memory`; by default, in a private arena.
    """

    def __init__(self, plan: ArenaPlan, scope: Scope, place: Place, memory: Memory | None = None) -> None:
        self.plan = plan
        self.place = place
        self._engine = engine_of(place.xp)
        self._scope = weakref.ref(scope)
        self._streams = RandomStreams(place.xp, plan.program.random_seed)
        self._machine = Machine(place.xp, self._streams, plan.captures, compiler=plan.block_compiler)
        self._cells: dict[Value, Any] = {}
        outputs = {value[0] for instruction in plan.instructions for value in instruction.written}
        self._overwritten = (outputs | plan.feeds.keys()) & {*plan.externals, *plan.storage}
        """The variables of the scope that a run writes."""
        self._stored: dict[str, Any] = {}
        self._fresh: dict[str, Any] = {}
        """Arrays of new variables, which the scope gets after the first run."""
        self._inputs: dict[str, Any] = {}
        """Name of a feed -> the array that it is copied to; without unread feeds."""
        self._outputs: list[Any] = []
        """The array of each fetch; None for a value in a cell."""
        self._handed_over: dict[int, Value] = {}
        """Number of a fetch -> its value, for large values that native code writes to the array that the caller gets."""
        self._result_addresses: dict[int, int] = {}
        """Number of such a fetch -> where native code writes it now."""
        self.generation = -1
        self.steps: list[Step] = []
        self._readers: dict[str, Any] = {}
        """See `_readers_of`."""
        self._is_native = False
        """Whether native code computes everything."""
        self._starts: list[int] = []
        self._meeting = Meeting.of(plan.program, plan.ops)
        """Compares programs between workers; None if the plan does not communicate."""
        self._statement = self._meeting.statement(plan.feeds, "as a plan") if self._meeting is not None else None
        self._memory = memory if memory is not None else Memory(place.xp)
        self._arena_address: int | None = None
        """The address of the arena."""
        self._shared = {out: value for instruction in plan.instructions for out, value in instruction.shares.items()}
        images = [value for value in plan.specs if value[0].startswith(CLEARED) and value not in self._shared]
        ends = list(accumulate((padded(plan.specs[value].nbytes) for value in images), initial=0))
        zeros = aligned_bytes(place.xp.zeros, ends[-1])  # one large array: it gets large pages
        self._cleared = {value: self._array_at(zeros, start, value) for value, start in zip(images, ends, strict=False)}
        self._checking: dict[Hashable, list[Instruction]] = {}
        """Key of a check -> the instructions bound so far that make it."""
        self._lasting: dict[Value, Any] = {}
        """The arrays of values computed once, at binding."""
        self._packed: dict[Value, tuple[Hashable, Packed]] = {}
        """Value -> its key in `Memory.packed` and its array, for the arrays that all plans of the scope share."""
        self._tables: Any = None
        """Keeps native code alive."""
        self._frames: dict[Value, Frames] = {}
        """Step scopes of a loop with arrays -> the values of its runs, where native code leaves them."""
        self._views: dict[Value, Any] = {}
        """Cache of the arrays of temporaries."""
        self._scratch = Scratch(place.xp)
        self.arena: Any = self._lend_arena() if memory is None else None
        """None until the plan is bound: another plan may still run in a shared arena."""

    def _lend_arena(self) -> Any:
        """Memory for the plan's values; an error where there is no room names the largest of them."""
        try:
            return self._memory.lend(self.plan.arena_bytes, self)
        except OutOfMemoryError as error:
            if not self.plan.offset_of:
                raise
            largest = max(self.plan.offset_of, key=lambda value: self.plan.specs[value].nbytes)
            spec = self.plan.specs[largest]
            op = next((op for op in self.plan.ops if largest[0] in op.output_arg_names), None)
            place = f"\n{locate(op)}" if op is not None else ""
            error.restate(f"{error}; the largest value, {largest[0]}: {spec}, takes {gibibytes(spec.nbytes)}{place}")
            raise

    def lose_arena(self) -> None:
        """Drop the arena and everything bound to it; the next run binds the plan again."""
        self.generation, self.arena, self._arena_address = -1, None, None
        self.steps, self._tables, self._outputs = [], None, []
        self._views, self._inputs, self._readers, self._lasting = {}, {}, {}, {}

    def _view(self, value: Value) -> Any:
        """The array of a temporary: one object for all values that share its bytes."""
        value = self._first_sharer(value)
        view = self._views.get(value)
        if view is None:
            self._views[value] = view = self._array_at(self.arena, self.plan.offset_of[value], value)
        return view

    def _first_sharer(self, value: Value) -> Value:
        """The first of the values that share the bytes of `value`."""
        while value in self._shared:
            value = self._shared[value]
        return value

    def _array_at(self, memory: Any, offset: int, value: Value) -> Any:
        """The array of a value, at an offset in bytes of `memory`."""
        spec = self.plan.specs[value]
        return memory[offset : offset + spec.nbytes].view(spec.dtype.array_dtype).reshape(spec.shape)

    def is_of(self, scope: Scope) -> bool:
        """Whether the calls are bound to the current arrays of a scope."""
        return self._scope() is scope and self.generation == scope.generation

    @property
    def scope(self) -> Scope:
        scope = self._scope()
        assert scope is not None, "the caller of a plan holds its scope"
        return scope

    # -- binding
    def _fits_scope(self) -> bool:
        """Whether the scope still holds the arrays that the calls are bound to."""
        if self.generation == self.scope.generation:
            return True
        if self.generation < 0:
            return False
        self.scope.separate(self._overwritten)
        if any(self.scope.array(name) is not array for name, array in self._stored.items()):
            return False
        self.generation = self.scope.generation
        return True

    def _bind(self) -> None:
        plan, scope = self.plan, self.scope
        self.generation = -1  # invalid until the end: a partly bound plan must not run
        if self.arena is None:
            self.arena = self._lend_arena()
        self._lasting, self._checking = {}, {}
        scope.separate(self._overwritten)
        self._bind_storage()
        tables = plan.new_tables() if plan.new_tables is not None else None
        once = self._find_constant_code()
        self._copy_unaligned(once)
        packed_before = self._place_constants(once)
        self._bind_instructions(tables, once)
        self._tables = tables
        self._is_native = not any(instruction.is_op and id(instruction) not in once for instruction in plan.instructions)
        if tables is not None:
            self._compile(tables, [item for key, item in once.items() if key not in packed_before], once)
            self.steps = [tables.compiled(step) for step in self.steps]  # small programs pay for each call
        self._memory.packed.update(self._packed.values())
        self._inputs = {name: array for name in plan.feeds if (array := self._input(name)) is not None}
        self._readers = {} if tables is None or not self._is_native else self._readers_of(tables)
        self._outputs = [self.array(value) if value in plan.specs else None for value in plan.fetch_values]
        self._handed_over = {} if tables is None or not self._is_native else self._find_handed_over(tables)
        self._result_addresses = {}
        self.generation = scope.generation

    def _bind_storage(self) -> None:
        """Find or make the array of each variable of the scope; see `_copy_unaligned` for those at any byte of a file."""
        plan, xp, scope = self.plan, self.place.xp, self.scope
        self._stored, self._fresh = {}, {}
        for name in {**plan.externals, **plan.storage}:
            spec = plan.storage.get(name) or plan.externals[name]
            array = scope.array(name)
            fits = array is not None and (array.shape, array.dtype) == (spec.shape, spec.dtype.array_dtype)
            if not fits and name in plan.externals:
                raise ExecutionError(f"{name} was given another shape or type, perhaps by another thread, before its plan ran")
            stored = self.place.asarray(array) if fits else empty_array(xp, spec.shape, spec.dtype.array_dtype)
            if not is_usable(stored, name in self._overwritten) and not (stored is array and _is_in_file(array)):
                stored = usable_copy(xp, stored, name in self._overwritten)
            if fits and stored is not array:
                scope.put(name, stored)  # at once, since ops that own blocks write to the scope's array
            elif stored is not array:
                self._fresh[name] = stored
            self._stored[name] = stored

    def _copy_unaligned(self, once: Mapping[int, AnyInstruction]) -> None:
        """Copy the variables at any byte of a file that runs read. Native code that packs them once reads the file itself."""
        for name in self._read_by_runs(once) & self._stored.keys():
            array = self._stored[name]
            if not is_usable(array, False):
                self._stored[name] = usable_copy(self.place.xp, array, False)
                self.scope.put(name, self._stored[name])
                drop_pages(array)

    def _read_by_runs(self, once: Mapping[int, AnyInstruction]) -> set[str]:
        """The names of the values that runs read, and that instructions of numpy read at binding."""
        reading = (item for item in self.plan.instructions if id(item) not in once or not item.is_native)
        return {name for name, _ in {*self.plan.fetch_values}.union(*(item.outer.values() for item in reading))}

    def _bind_instructions(self, tables: Any, once: Mapping[int, AnyInstruction]) -> None:
        """Make the steps of a run. Instructions of `once` are constant: numpy runs its share of them now."""
        plan = self.plan
        self.steps, self._starts = [], []
        flights = reductions_in_flight(plan.instructions, plan.storage) if self._meeting is not None else {}
        waits: dict[int, list[Call]] = {}
        for number, instruction in enumerate(plan.instructions):
            self._starts.append(len(self.steps))
            self._wait_for_reductions(number, waits)
            if id(instruction) in once:
                for check in instruction.checks.values():
                    self._run_check(check)
            if instruction.is_native:
                if tables is not None and not (number and plan.instructions[number - 1].is_native):
                    repeated = [native for native in _native_from(plan.instructions, number) if id(native) not in once]
                    with or_unavailable():
                        self.steps += self._native_steps(repeated, tables)
                continue
            try:
                calls = self._calls(instruction, plan.frees[number], tables)
                if id(instruction) in once:
                    for call in calls:
                        call()
                    continue
                if number in flights:
                    waits.setdefault(flights[number], []).append(calls.pop())
                self.steps += self._engine.steps(calls) if instruction.is_op and not instruction.dynamic else calls
            except Exception as error:
                verb = "" if isinstance(error, FluidError) else " failed"
                raise while_running(error, f"{said_of(instruction.op.type, error, verb)}\n{locate(instruction.op)}") from error
            finally:
                self._scratch.reclaim()

    def _compile(self, tables: Any, constant: Sequence[AnyInstruction], once: Mapping[int, AnyInstruction]) -> None:
        """Compile the native code, and run its constant part, which releases the memory of weights that only it reads."""
        code = [item for item in constant if item.is_native and not item.is_check]
        unread = self._stored.keys() - self._read_by_runs(once)
        with or_unavailable():
            parts = [(tables.add(part), part) for part in self._cut(code)]
            tables.compile(self._address, lambda value: self.plan.specs[value].nbytes)
        for run, part in parts:
            run()
            for name in unread & {name for item in part for name, _ in item.outer.values()}:
                if never_changes(self._stored[name]):
                    drop_pages(self._stored[name])

    def _cut(self, code: Sequence[AnyInstruction]) -> list[list[AnyInstruction]]:
        """Cut native code that runs once into parts that write so many bytes, or one value."""
        parts: list[list[AnyInstruction]] = []
        size = _PART_BYTES
        for item in code:
            if size >= _PART_BYTES:
                parts.append([])
                size = 0
            parts[-1].append(item)
            size += sum(self.plan.specs[value].nbytes for value in item.written)
        return parts

    def _calls(self, instruction: AnyInstruction, frees: list[Value], tables: Any) -> list[Any]:
        """The calls of an instruction that is not native."""
        if isinstance(instruction, Instruction):
            real = RealRows.of(instruction.op)
            if real is not None:
                return self._bind_real_rows(instruction, real)
            if instruction.loop_code is not None:
                return [self._loop_step(instruction, frees, tables)]
            if instruction.draws is not None:
                return self._bind_draws(instruction)
            return [self._dynamic_step(instruction, frees)] if instruction.dynamic else self._bind_op(instruction)
        return [instruction.call(self.array)] if isinstance(instruction, Check) else []

    def _find_constant_code(self) -> dict[int, AnyInstruction]:
        """Find instructions that can run once, at binding: those with constants, and native code that reads only these, nothing,
        or weights that nothing can change.

        Its results, such as packed filters, get separate memory, because runs overwrite the arena.

        Returns:
            The instructions by their id.
        """
        instructions = self.plan.instructions
        checks = [instruction for instruction in instructions if instruction.is_check]
        checked = {value for check in checks for value in check.read}
        passed_on = {value for instruction in instructions for value in instruction.shares.values()}
        changing = {(name, 0) for name, array in self._stored.items() if name in self._overwritten or not never_changes(array)}
        changing |= {(name, 0) for name in self.plan.feeds}
        once: dict[int, AnyInstruction] = {}
        conditional = within_branches(instructions)
        for number, instruction in enumerate(instructions):
            is_constant = instruction.is_op and instruction.op.type == "assign_value"
            outputs = instruction.written
            has_memory = all(value in self.plan.offset_of and value not in passed_on for value in outputs)
            is_code = instruction.is_native and not instruction.checks
            is_early = is_constant or (is_code and checked.isdisjoint(outputs))  # at binding, checks come before native code
            if has_memory and is_early and not instruction.shares and number not in conditional:
                once[id(instruction)] = instruction
            else:
                changing.update(outputs)
        count = -1
        while count != len(once):  # a value may have several writers, and is constant if all of them are
            count = len(once)
            for instruction in list(once.values()):
                if not changing.isdisjoint((*instruction.read, *instruction.written)):
                    changing.update(instruction.written)
                    del once[id(instruction)]
        return once | {id(check): check for check in checks if changing.isdisjoint(check.read)}

    def _place_constants(self, once: Mapping[int, AnyInstruction]) -> set[int]:
        """Give memory to the values that are computed once, at binding: new arrays, or arrays that another plan has packed.

        Returns:
            The ids of the instructions whose values are packed already.
        """
        former, self._packed = self._packed, {}  # while the plan binds again, `former` holds its arrays in memory
        writers = Counter(value for instruction in once.values() for value in instruction.written)
        packed_before: set[int] = set()
        origins: dict[Value, _Origin] = {}
        for instruction_id, instruction in once.items():
            if instruction.is_check:
                continue
            has_one_writer = all(writers[value] == 1 for value in instruction.written)
            origin = self._origin_of(instruction, origins) if has_one_writer else None
            if origin is not None:
                origins.update(
                    (value, _Origin((origin.key, place), origin.arrays)) for place, value in enumerate(instruction.written)
                )
            if origin is None or len(instruction.written) != 1:
                for value in instruction.written:
                    if value not in self._lasting:
                        self._lasting[value] = self._new_array(value)
                continue
            (value,) = instruction.written
            packed = self._memory.packed.get(origin.key)
            if packed is None:
                packed = Packed(self._new_array(value), origin.arrays)
            else:
                packed_before.add(instruction_id)
            self._lasting[value], self._packed[value] = packed.array, (origin.key, packed)
        former.clear()
        return packed_before

    def _new_array(self, value: Value) -> Any:
        spec = self.plan.specs[value]
        return empty_array(self.place.xp, spec.shape, spec.dtype.array_dtype)

    def _origin_of(self, instruction: AnyInstruction, origins: Mapping[Value, _Origin]) -> _Origin | None:
        """What an instruction computes its results from; None if it reads anything but variables of the scope.

        Args:
            origins: the origins of values that constant code before it computes.
        """
        if not instruction.is_native:
            return None
        sources: dict[Value | None, Hashable] = {None: 0}  # None: the workspace
        arrays: list[Any] = []
        for value in instruction.read:
            if value in origins:
                sources[value] = origins[value].key
                arrays += origins[value].arrays
            elif value[0] in self._stored and not value[1]:
                arrays.append(self.scope.array(value[0]))
                sources[value] = id(arrays[-1])
            else:
                return None
        return _Origin(
            tuple(
                (call.kernel, *((sources.get(value, -1), offset) for value, offset in call.operands))
                for call in instruction.calls
            ),
            arrays,
        )

    def _wait_for_reductions(self, number: int, waits: dict[int, list[Call]]) -> None:
        """Add waits for the reductions whose results instruction `number` reads, and let the other reductions progress.

        Consecutive native instructions are one step, so the waits for all of them come before it.
        """
        instructions = self.plan.instructions
        if number and all(instruction.is_native for instruction in instructions[number - 1 : number + 1]):
            return
        end = number + max(len(_native_from(instructions, number)), 1)
        for reader in sorted(waits):
            if reader < end:
                self.steps += self._engine.steps(waits.pop(reader))
        if waits:
            self.steps.append(partial(make_progress, self.place.xp))

    def _readers_of(self, tables: Any) -> dict[str, Any]:
        """Name of a large feed -> a reader that lets native code read it in place, without a copy; only native code uses it."""
        plan = self.plan
        checked = self._checked_values()
        overwritten = [array for name, array in self._stored.items() if name in plan.storage]
        least = tables.target.limits.feed_bytes
        return {
            name: tables.reader((name, 0), array, overwritten)
            for name, array in self._inputs.items()
            if array.nbytes >= least and (name, 0) in plan.offset_of and (name, 0) not in {*checked, *plan.fetch_values}
        }

    def _checked_values(self) -> set[Value]:
        """The values that checks read."""
        instructions = self.plan.instructions
        return {value for one in instructions if one.is_check for value in one.read}

    def _find_handed_over(self, tables: Any) -> dict[int, Value]:
        """Find the large values that native code can write to the array that the caller gets: number of a fetch -> its value."""
        plan, numbers = self.plan, dict[Value, int]()
        if plan.program.num_blocks > 1:  # a branch or a loop may leave a value as it was
            return {}
        fixed = {*self._checked_values(), *self._lasting, *self._shared, *self._shared.values()}
        for number, value in enumerate(plan.fetch_values):
            is_computed = value in plan.offset_of and value[0] not in plan.feeds and value not in fixed
            if is_computed and plan.specs[value].nbytes >= tables.target.limits.feed_bytes:
                numbers.setdefault(value, number)
        return {number: value for value, number in numbers.items()}

    def _new_results(self) -> dict[int, Any]:
        """Number of a fetch -> a new array that native code writes in this run."""
        results = {}
        for number, value in self._handed_over.items():
            default = self._outputs[number]
            results[number], address = self._memory.results.array(default.shape, default.dtype, default.nbytes)
            if address != self._result_addresses.get(number):
                self._tables.set_address(value, address)
                self._result_addresses[number] = address
        return results

    def _result(self, number: int, array: Any, results: Mapping[int, Any]) -> Any:
        """A fetched value that belongs to the caller."""
        if number in results:
            return results[number]
        if array is None:
            return self._fetch(number)
        first = next((place for place, value in self._handed_over.items() if value == self.plan.fetch_values[number]), None)
        return (array if first is None else results[first]).copy()

    def _input(self, name: str) -> Any:
        """The array of a feed, in the arena or in the scope; None if nothing reads it."""
        value = name, 0
        if value in self.plan.offset_of:
            return self._view(value)
        return self._stored.get(name) if value in self.plan.specs else None

    def array(self, value: Value | None) -> Any:
        """The array of a value that has a spec; None for None."""
        if value is None:
            return None
        name = value[0]
        if name in self.plan.storage or (value[1] == 0 and name in self.plan.externals):
            return self._stored[name]
        if value in self._lasting:
            return self._lasting[value]
        if value in self.plan.offset_of:
            return self._view(value)
        array = self._cleared.get(self._first_sharer(value))
        if array is None and value in self.plan.specs and not self.plan.specs[value].size:
            return empty_array(self.place.xp, self.plan.specs[value].shape, self.plan.specs[value].dtype.array_dtype)
        return array

    def _address(self, value: Value) -> int:
        """The address of a value's array."""
        offset = self.plan.offset_of.get(value)
        if offset is None or value in self._lasting:
            return address_of(self.array(value))
        if self._arena_address is None:
            self._arena_address = address_of(self.arena)
        return self._arena_address + offset

    def calls(self) -> Iterator[tuple[AnyInstruction, list[Any]]]:
        """Each instruction with its calls; without calls if it runs step by step."""
        if not self._fits_scope():
            self._bind()
        ends = [*self._starts[1:], len(self.steps)]
        for instruction, start, end in zip(self.plan.instructions, self._starts, ends, strict=True):
            yield instruction, [] if instruction.dynamic else self.steps[start:end]

    @property
    def scratch_memory(self) -> list[Any]:
        """The memory of intermediate results, as arrays of bytes."""
        return self._scratch.memory

    def _operands(self, instruction: Instruction) -> tuple[dict[str, Any], dict[str, Any], list[Call], list[Call]]:
        """The arrays that an op reads and writes, by slot, and the calls that come before and after it."""
        definition, xp = instruction.definition, self.place.xp
        assert definition is not None
        inputs: dict[str, Any] = {slot: stand_in(spec) for slot, spec in instruction.stand_ins.items()}
        inputs |= by_slot(definition.inputs, instruction.reads, self.array)
        outputs: dict[str, Any] = {}
        former: list[Call] = []
        copies: list[Call] = []
        for slot, values in instruction.writes.items():
            declared = definition.outputs.get(slot)
            if declared is not None and values:
                arrays = [self._output_array(instruction, slot, value, copies) for value in values]
                outputs[slot] = arrays if declared.many else arrays[0]
                if declared.updated and values[0] is not None:
                    array = self.array(instruction.outer.get(values[0][0]))
                    former += [] if array is None or array is arrays[0] else [partial(xp.copyto, arrays[0], array)]
        return inputs, outputs, former, copies

    def _bind_draws(self, instruction: Instruction) -> list[Call]:
        """The calls that fill the entries of an output with random numbers, in order."""
        op, definition = instruction.op, instruction.definition
        assert definition is not None
        inputs = {slot: stand_in(spec) for slot, spec in instruction.stand_ins.items()}
        ((slot, (value,)),) = instruction.writes.items()
        attrs = definition.defaults(op.attrs)
        context = {"xp": self.place.xp, "scratch": self._scratch, "rng": self._machine.random_source(op, attrs)}
        bound = (bind_op(definition, inputs, {slot: entry}, attrs, context, self._scratch) for entry in self.array(value))
        return [call for calls in bound for call in calls]

    def _bind_op(self, instruction: Instruction) -> list[Call]:
        op, definition = instruction.op, instruction.definition
        assert definition is not None
        inputs, outputs, former, copies = self._operands(instruction)
        attrs = definition.defaults(op.attrs)
        context = {"xp": self.place.xp, "scratch": self._scratch, "rng": self._machine.random_source(op, attrs)}
        calls = bind_op(definition, inputs, outputs, attrs, context, self._scratch)
        if calls and is_check(calls[0], op.type) and self._is_checked_before(instruction, attrs):
            del calls[0]
        return former + calls + copies

    def _bind_real_rows(self, instruction: Instruction, real: RealRows) -> list[Any]:
        """The calls for an op that computes the real rows alone."""
        op, definition = instruction.op, instruction.definition
        assert definition is not None
        inputs, outputs, former, copies = self._operands(instruction)
        context = {"xp": self.place.xp, "rng": self._machine.random_source(op, definition.defaults(op.attrs))}
        offsets = [self.array(value) for value in instruction.reads[OFFSETS]]
        return [*former, RealRowsStep(op, definition, real, (inputs, outputs), context, offsets), *copies]

    def _is_checked_before(self, instruction: Instruction, attrs: Mapping[str, Any]) -> bool:
        """Whether an instruction is the gradient of an op that runs before it and checks the same values."""
        definition = instruction.definition
        assert definition is not None
        forward = definition.forward
        earlier = self._checking.setdefault(Check(instruction, self.plan.specs).key, [])
        if forward is None:
            earlier.append(instruction)
            return False
        shared_attrs = {name: attrs[name] for name in forward.attrs if name in attrs}
        shared_inputs = {slot: values for slot, values in instruction.reads.items() if slot in forward.inputs}
        return any(
            shared_inputs.items() <= op.reads.items()
            and shared_attrs.items() <= forward.defaults(op.op.attrs).items()
            and all(any(op.writes.get(slot, ())) for slot in forward.outputs)  # without an output, it may check less
            for op in earlier
        )

    def _output_array(self, instruction: Instruction, slot: str, value: Value | None, copies: list[Call]) -> Any:
        """The array for an output: the value's array, or a temporary (copied later) if the kernel still reads that array."""
        array = self.array(value)
        if value is None or value[0] not in self.plan.storage:
            return array
        readers = {s for s, values in instruction.reads.items() if any(v is not None and v[0] == value[0] for v in values)}
        definition, kernel = instruction.definition, kernel_of(instruction.op.type)
        assert definition is not None
        if readers <= {updated_input(definition, slot), kernel.inplace.get(slot) if kernel is not None else None}:
            return array
        temporary = self._scratch(array.shape, array.dtype)
        copies.append(partial(self.place.xp.copyto, array, temporary))
        return temporary

    def _dynamic_step(self, instruction: Instruction, frees: list[Value]) -> Step:
        op, block, machine, cells = instruction.op, instruction.op.block, self._machine, self._cells
        arrays = {name: self.array(value) for name, value in instruction.outer.items() if value in self.plan.specs}
        fixed = {name: array for name, array in arrays.items() if array is not None}
        from_cells = [(name, value) for name, value in instruction.outer.items() if name not in fixed]
        outs, xp = instruction.results, self.place.xp
        targets = [(value, self.array(value) if value in self.plan.specs else None) for value in outs]
        persistable = {value[0] for value in outs if (var := block.vars.get(value[0])) is not None and var.persistable}
        planned = {id(array) for array in fixed.values()}

        def step() -> None:
            env = Environment(block, None, dict(fixed))
            for name, value in from_cells:
                content = cells.get(value)
                if content is not None:
                    env.values[name] = content
            machine.run_op(op, env)
            results = []
            for value, array in targets:
                result: Any = env.values.get(value[0])
                if id(result) in planned and result is not array:
                    result = result.copy()  # its memory may be overwritten before this value is read
                results.append((value, array, result))
            for value, array, result in results:
                if array is None:
                    cells[value] = result
                    if value[0] in persistable and hasattr(result, "shape"):
                        self.scope.put(value[0], array_of(result))
                elif result is not array:
                    _store(xp, op, value[0], array, result)
            for value in frees:
                cells.pop(value, None)

        return step

    def _loop_step(self, instruction: Instruction, frees: list[Value], tables: Any) -> Step:
        """A step that runs a loop with arrays of tensors."""
        code = instruction.loop_code
        assert code is not None
        arrays = [(IndexedArray(array.room, self.array(array.memory)), array.before, array.after) for array in code.arrays]
        signals = [memoryview(self.array(value)).cast("B") for value in (code.fault, FAILED) if value in code.written]
        frames = self._frames_of(code.runs) if code.runs is not None else None
        past = (code.past.scopes, self._frames[code.past.scopes]) if code.past is not None else None
        run, otherwise = tables.add([code]), self._dynamic_step(instruction, frees)
        return ArrayLoop(arrays, signals, frames, past, run, otherwise, self._cells, frees)

    def _frames_of(self, runs: SavedRuns) -> tuple[Value, Frames]:
        """The step scopes of a loop, and the values of its runs in the memory of the plan."""
        stacks = {}
        for name, (place, spec) in runs.values.items():
            memory = self.array(place.value).reshape(-1).view("uint8")[place.offset :] if spec.size else np.empty(0, "uint8")
            stacks[name] = memory[: runs.trips * spec.nbytes].view(spec.dtype.array_dtype).reshape(runs.trips, *spec.shape)
        self._frames[runs.scopes] = frames = Frames(runs.trips, stacks, runs.branches, arrays=runs.unread)
        return runs.scopes, frames

    # -- running
    def settings(self) -> AbstractContextManager[Any]:
        """The context of a run."""
        return _NOTHING if self._is_native else OnNumpy()

    def run(
        self,
        feeds: Mapping[str, Any],
        check: Callable[[Operator, str, Any], None] | None = None,
        timer: Watch | None = None,
    ) -> list[Any]:
        """Run once; returns the fetched values, as arrays of the place that belong to the caller.

        `check` is called with each op, output name and value, and needs a plan without native code; `timer` gets the time of
        each op. Raises `NativeUnavailable`, before anything has run, if native code cannot be compiled.
        """
        scope = self.scope
        with scope.lock:
            if self.generation != scope.generation and not self._fits_scope():
                with collector_paused():
                    self._bind()
            if self._statement is not None:
                group_of(self.place.xp).state(self._statement)
            if not self._is_native:
                self._streams.begin(scope.runs)
                self._machine.check = check
            scope.runs += 1
            for name, target in self._inputs.items():
                value = feeds[name]
                if name in self._readers and self._readers[name].take(value):
                    continue
                if type(target) is type(value) is np.ndarray:
                    target[...] = value
                else:
                    upload(target, value)
            results = self._new_results() if self._handed_over else None
            try:
                if check is None and timer is None:
                    self._run_all()
                else:
                    self._run_checked(check, timer)
                if self._fresh:
                    for name, array in self._fresh.items():
                        scope.put(name, array)
                    self._fresh.clear()
                if results:
                    return [self._result(number, array, results) for number, array in enumerate(self._outputs)]
                return [self._fetch(number) if array is None else array.copy() for number, array in enumerate(self._outputs)]
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
            raise self._failure(len(self.steps) - length_hint(steps) - 1, error) from error

    def _native_steps(self, instructions: Sequence[NativeInstruction], tables: Any) -> list[Step]:
        """The steps that run native instructions: a table, and a report where they check ids."""
        if not instructions:
            return []
        report = [self._report_of_checks()] if any(item.checks for item in instructions) else []
        return [tables.add(instructions), *report]

    def _report_of_checks(self) -> Step:
        """A step behind a table: it raises the error of the check that has stopped the table."""
        failed = memoryview(self.array(FAILED))

        def report() -> None:
            if number := failed[0]:
                check = checks_of(self.plan.instructions)[number]
                self._run_check(check)
                raise AssertionError(f"{check.label} fails in native code alone")

        return report

    def _run_check(self, check: Check) -> None:
        try:
            check.call(self.array)()
        except Exception as error:
            raise self._failure_of(check, error) from error

    def _failure(self, position: int, error: Exception) -> ExecutionError:
        return self._failure_of(self._instruction_at(position), error)

    def _instruction_at(self, position: int) -> AnyInstruction:
        """The instruction that makes a step."""
        return self.plan.instructions[bisect_right(self._starts, position) - 1]

    def _failure_of(self, instruction: AnyInstruction, error: Exception) -> ExecutionError:
        return failure_of(instruction, error, self.plan.specs)

    def _run_checked(self, check: Callable[[Operator, str, Any], None] | None, timer: Watch | None) -> None:
        ends = [*self._starts[1:], len(self.steps)]
        for number, (instruction, start, end) in enumerate(zip(self.plan.instructions, self._starts, ends, strict=True)):
            if start == end and instruction.is_native:
                continue  # computed by the former step
            try:
                with self._timed(timer, number):
                    for step in self.steps[start:end]:
                        step()
            except Exception as error:
                if isinstance(error, ExecutionError) and error.located:
                    raise
                raise self._failure(start, error) from error
            for value in instruction.written if check is not None else ():
                content = self._content(value)
                if check is not None and hasattr(content, "dtype"):
                    check(instruction.op, value[0], content)

    def _timed(self, timer: Watch | None, number: int) -> AbstractContextManager[Any]:
        """Time the ``with`` block as an instruction; consecutive native instructions count as one step."""
        instructions = self.plan.instructions
        if timer is None or not instructions[number].is_native:
            return timed(timer, instructions[number].op, self.place)
        ops = list({id(op): op for native in _native_from(instructions, number) for op in native.ops}.values())
        return counted(timer, f"native code of {len(ops)} op{'s' * (len(ops) > 1)}", self.place, "native", ops)

    def _content(self, value: Value) -> Any:
        return self.array(value) if value in self.plan.specs else self._cells.get(value)

    def _fetch(self, number: int) -> Any:
        """Copy a fetched value from its cell."""
        content = self._content(self.plan.fetch_values[number])
        if content is None:
            raise not_made(self.plan.fetches[number])
        return list(content) if isinstance(content, list) else content.copy()


def _native_from(instructions: Sequence[AnyInstruction], start: int) -> list[NativeInstruction]:
    """The consecutive native instructions from `start` on, which form one step."""
    native: Any = takewhile(lambda each: each.is_native, instructions[start:])
    return list(native)


def _is_in_file(array: Any) -> bool:
    """Whether an array without gaps never changes, such as one that a file holds at any byte."""
    return never_changes(array) and bool(array.flags.c_contiguous)


def upload(target: Any, value: Any) -> None:
    """Copy a fed value into an array of the place."""
    if not hasattr(target, "__cuda_array_interface__"):
        target[...] = to_numpy(value)
    elif hasattr(value, "__cuda_array_interface__"):
        target[...] = value
    else:
        target.set(to_numpy(value))


def _store(xp: Any, op: Operator, name: str, array: Any, result: Any) -> None:
    """Copy a result of an op that runs step by step to its planned array."""
    if result is None:
        raise ExecutionError(f"{op.type} left {name} without a value (a branch that was not taken?)\n{locate(op)}")
    if (result.shape, result.dtype) != (array.shape, array.dtype):
        actual, expected = spec_of(result), spec_of(array)
        raise ExecutionError(f"{op.type} made {name} {actual}, but it was inferred to be {expected}\n{locate(op)}")
    xp.copyto(array, array_of(result))
