"""Runs programs compiled by XLA: they take the feeds and the state on the device, and return the fetches and the new state."""

from __future__ import annotations

import contextlib
import functools
import gc
import threading
import time
import weakref
from collections.abc import Iterator, Mapping, Sequence
from math import prod
from typing import Any

import jax
import numpy as np

from fluid.distributed.communicator import Statement
from fluid.errors import ExecutionError
from fluid.ir.program import Operator, Program
from fluid.ir.versions import outer_names
from fluid.parallel.mesh import Mesh
from fluid.values.lod_array import array_of, lod_of, with_lod
from fluid.values.lod_tensor import LoDTensor, Remote
from fluid.values.place import XLAPlace
from fluid.values.selected_rows import SelectedRows
from fluid.values.spec import Spec
from fluid.values.types import VarType

from ..runtime.scope import Scope
from ..runtime.specs import spec_of
from ..runtime.timing import Watch
from ..stepwise.interpreter import Check
from ..stepwise.meeting import Meeting
from ..stepwise.needed import ops_to_run
from ..stepwise.unsupported import refuse_unsupported
from . import control, label_kernels, sequences, stacks  # noqa: F401  (they fill the tables)
from .arrays import for_jax, type_of_jax
from .caching import keep_compiled
from .callbacks import add_value_check, called_back, refuse_untraceable
from .equal_state import are_equal, groups_of_equal, share, take_apart
from .namespace import namespace_for
from .random import WordsOnDevice, words_of_run
from .sharding import MeshLayout, OnDevice, OneDevice, StateArrays
from .shared_runs import shared_runs
from .tracing import TracedBlock
from .workers import WorkersLayout, group_of_trace

__all__ = ["OnDevice", "XlaPlan", "XlaStep"]

_NO_WORDS = np.zeros(4, np.uint32)
_MOST_CORRECTIONS = 16
"""How often a run is repeated because it met numbers that differ from the assumptions."""


class XlaPlan:
    """A program compiled by XLA for certain feeds and fetches.

    Attributes:
        ops: the ops to run, in order.
        externals: name -> spec of the variables read from the scope when the program starts.
        absent: persistable names that the scope does not hold.
        stored_names: persistable names that the ops write.
        donated: names in `externals` that a run overwrites, and whose memory XLA may reuse for the new value.
        numbers: names in `externals` of single numbers that a run overwrites. They are not donated: XLA would copy each twice, to
            put the new one where the old one is still read.
        updated: the names in `donated` and `numbers`, in this order.
        equal: leader -> the names whose values follow its value (see `equal_state`); the program takes and returns the leaders.
        lent: names in `externals` that are neither updated nor follow another one.
        takes_feeds_as_they_are: whether jax takes the feeds without conversion.
    """

    def __init__(
        self,
        program: Program,
        feeds: Mapping[str, Spec],
        fetches: Sequence[str],
        scope: Scope,
        place: XLAPlace,
        check: Check | None = None,
        mesh: Mesh | None = None,
        equal: Mapping[str, list[str]] | None = None,
    ) -> None:
        self.program, self.feeds, self.fetches, self.place = program, dict(feeds), list(fetches), place
        self._mesh = mesh
        block = program.global_block()
        self.ops = ops_to_run(block, fetches)
        refuse_unsupported(program, self.ops)
        refuse_untraceable(self.ops, place)
        is_one_of_many = jax.process_count() > 1
        meeting = Meeting.of(program, self.ops) if mesh is None else Meeting(program) if is_one_of_many else None
        if mesh is not None:
            self.layout: OneDevice = MeshLayout(mesh, place, program)
        elif meeting is not None and is_one_of_many:
            self.layout = WorkersLayout(place)
            self._refuse_sequences()
        else:
            if meeting is not None:
                group_of_trace()  # an error where the workers speak by MPI
            self.layout = OneDevice(place)
        self._statement: Statement | None = None
        if meeting is not None and is_one_of_many:
            self._statement = meeting.statement(feeds, "compiled by XLA", self._agreement())
        reads, writes = _names_of(self.ops)
        unfed = {name for name in reads | writes | set(fetches) if name not in feeds}
        self.externals = {name: spec_of(value) for name in sorted(unfed) if (value := scope.held(name)) is not None}
        persistable = {name for name in unfed if (var := block.vars.get(name)) is not None and var.persistable}
        self.absent = frozenset(persistable - set(self.externals))
        if equal is None:
            equal = {} if is_one_of_many else groups_of_equal(block, self.ops, self.externals, scope)
        self.equal = equal
        following = {name for names in equal.values() for name in names}
        overwritten = writes & persistable - following
        is_number = {name: prod(spec.shape) <= 1 for name, spec in self.externals.items() if name in overwritten}
        self.numbers = [name for name in is_number if is_number[name]]
        self.donated = [name for name in is_number if not is_number[name]]
        self.updated = [*self.donated, *self.numbers]
        self.lent = sorted(self.externals.keys() - self.updated - following)
        stored = [*self.updated, *sorted(writes - following - set(self.updated))]  # in the order of the next run's arguments
        self.stored_names = [name for name in stored if (var := block.vars.get(name)) is not None and var.persistable]
        lods = {name: spec.lod for name, spec in feeds.items() if spec.lod}
        self.takes_feeds_as_they_are = not lods and all(spec.dtype is not VarType.BF16 for spec in feeds.values())
        before = add_value_check if place.check_values else None
        xp = namespace_for(place.device)
        self.block = TracedBlock(program, self.ops, fetches, lods, self.stored_names, before, check, xp)
        self._is_final = check is None and not place.check_values and not called_back(self.ops)
        """Whether no run fails halfway: no check and no callback can raise an error."""
        self._lock = threading.Lock()
        self._compiled: Any = None
        self._checked: dict[Check, XlaPlan] = {}

    @property
    def compiled(self) -> Any:
        """XLA's executable, compiled at the first access."""
        if (compiled := self._compiled) is not None:
            return compiled
        with self._lock:
            if self._compiled is None:
                keep_compiled()
                self._compiled = self.lowered().compile()
            return self._compiled

    @functools.cached_property
    def no_words(self) -> Any:
        """Random words for programs that draw nothing. They stay on the device, because copying them takes as long as a small
        run."""
        words = self.layout.words(_NO_WORDS)
        return self.layout.put(words, self.layout.full_sharding) if isinstance(words, np.ndarray) else words

    def _refuse_sequences(self) -> None:
        """Raise an error if the feeds could make workers compile different programs."""
        if uneven := [name for name, spec in self.feeds.items() if spec.lod]:
            raise ExecutionError(
                f"{', '.join(uneven)}: sequences differ from worker to worker, and at an XLAPlace each length of theirs is a "
                "program of its own, while workers have to run the same one; pad them, or train by MPI at a CPUPlace()"
            )

    def _agreement(self) -> Iterator[tuple[str, str]]:
        """(subject, text) pairs that processes must agree on, besides the program and the shapes, to communicate in a run."""
        yield from self.layout.described()
        if self._mesh is not None:  # workers fetch local values; on a mesh, a device may hold only a part
            yield "what is fetched", ", ".join(self.fetches)
        for name, spec in self.feeds.items():
            if spec.lod:
                yield f"the sequences of {name}", f"{name}: {spec.lod}"

    def meet(self) -> None:
        """Before a run, check that all its processes run the same program."""
        if self._statement is not None:
            shared_runs().meet(self._statement)

    def lowered(self) -> Any:
        """Trace and lower the program for XLA; ``lowered().as_text()`` shows it."""
        layout, block = self.layout, self.block

        def of_state(name: str) -> Any:
            spec = self.externals[name]
            shape = layout.global_shape(spec.shape)
            return jax.ShapeDtypeStruct(shape, type_of_jax(spec.dtype.array_dtype), sharding=layout.of_state(name, spec.shape))

        def of_feed(name: str, spec: Spec) -> Any:
            shape = layout.fed_shape(name, spec.shape)
            return jax.ShapeDtypeStruct(shape, type_of_jax(spec.dtype.array_dtype), sharding=layout.of_feed(name, shape))

        donated, numbers, lent = ([of_state(name) for name in names] for names in (self.donated, self.numbers, self.lent))
        feeds = {name: of_feed(name, spec) for name, spec in self.feeds.items()}
        words = jax.ShapeDtypeStruct(layout.global_shape(_NO_WORDS.shape), _NO_WORDS.dtype, sharding=layout.full_sharding)
        arguments = donated, numbers, lent, feeds, words
        # A new object each time: jax would not trace the same one again.
        function = layout.over_devices(functools.partial(self._compute))
        with jax.enable_x64(True), _no_garbage_collection():
            _, state, _ = jax.jit(function).trace(*arguments).out_info
            if isinstance(layout, WorkersLayout) and block.assumption_keys:
                raise ExecutionError(
                    "the trips of a loop, or the length of an array of tensors, depend on values, which differ from worker to "
                    "worker, and at an XLAPlace workers have to run the same program; train by MPI at a CPUPlace()"
                )
            outputs = [layout.of_state(name, output.shape) for name, output in zip(block.state_names, state, strict=True)]
            # After an error at the host or a wrong assumption, the run is repeated from the old state, so that must survive.
            donate_argnums = (0,) if self._is_final and not block.assumption_keys else ()
            shardings = layout.full_sharding, outputs, layout.full_sharding
            return jax.jit(function, donate_argnums=donate_argnums, out_shardings=shardings).lower(*arguments)

    def _compute(
        self, donated: Sequence[Any], numbers: Sequence[Any], lent: Sequence[Any], feeds: Mapping[str, Any], words: Any
    ) -> tuple[list[Any], list[Any], Any]:
        """Run the ops on the values of the names in `donated`, `numbers` and `lent`; see `TracedBlock`."""
        state = dict(zip((*self.updated, *self.lent), (*donated, *numbers, *lent), strict=True))
        state |= {name: state[leader] for leader, names in self.equal.items() for name in names}
        return self.block(state, feeds, words)

    def corrected(self, met: Any) -> bool:
        """Replace wrong assumptions by the numbers that a run met, and recompile; returns whether any was wrong."""
        if not self.block.corrected(*self.layout.fetch([met])):
            return False
        with self._lock:
            self._compiled = None
        return True

    def checked(self, scope: Scope, check: Check) -> XlaPlan:
        """This plan with `check` called for each op, output name and value."""
        if check not in self._checked:
            self._checked[check] = self._again(scope, check, self.equal)
        return self._checked[check]

    def fitting(self, scope: Scope) -> XlaPlan:
        """This plan, or another one if its equal numbers are not equal in a scope."""
        return self if are_equal(scope, self.equal) else self._again(scope)

    def _again(self, scope: Scope, check: Check | None = None, equal: Mapping[str, list[str]] | None = None) -> XlaPlan:
        return XlaPlan(self.program, self.feeds, self.fetches, scope, self.place, check, self._mesh, equal)

    def bind(self, scope: Scope) -> XlaStep:
        """Bind this plan to a scope."""
        return XlaStep(self, scope)

    def __str__(self) -> str:
        return self.to_string()

    def to_string(self, calls: bool = False) -> str:
        """Print the ops; with `calls`, also the code that jax passes to XLA."""
        lines = [f"compiled by XLA for {self.place.device} {self.place.index}"]
        if at_host := called_back(self.ops):
            lines.append(f"called back at the host: {', '.join(at_host)}")
        lines += [f"  {op}" for op in self.ops]
        return "\n".join([*lines, self.lowered().as_text()] if calls else lines)


@contextlib.contextmanager
def _no_garbage_collection() -> Iterator[None]:
    """Disable Python's garbage collector. Tracing keeps nearly all its objects to the end, so each collection would visit all of
    them, and all of jax, for nothing."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def _names_of(ops: Sequence[Operator]) -> tuple[set[str], set[str]]:
    """The names that ops read, and the names that they write, including the blocks that they own."""
    reads, writes = set(), set()
    for op in ops:
        reads.update(op.input_arg_names)
        writes.update(op.output_arg_names)
        for block in op.sub_blocks:
            inner_reads, inner_writes = outer_names(block)
            reads.update(inner_reads)
            writes.update(inner_writes)
    return reads, writes


class XlaStep:
    """A plan bound to one scope, with the scope's values on the device. It runs once at a time and holds the scope weakly."""

    def __init__(self, plan: XlaPlan, scope: Scope) -> None:
        self.plan = plan
        self._scope = weakref.ref(scope)
        self._lent: list[OnDevice] = []
        self._updated: dict[str, OnDevice] = {}
        self._state = StateArrays([])
        """The arrays of `_updated`."""
        self._has_run = False
        """Whether a program ran on the arrays of `_state` since they were bound."""
        self._replaced_by: Any = None
        """The patterns of a compiled program's state whose arrays replace those in `_state` one by one."""
        self._coming_words: WordsOnDevice | None = None
        self.generation = -1

    def is_of(self, scope: Scope) -> bool:
        """Whether its values on the device are the current values of a scope."""
        return self._scope() is scope and self.generation == scope.generation

    def settings(self) -> contextlib.AbstractContextManager[Any]:
        return contextlib.nullcontext()

    def _bind(self, scope: Scope) -> None:
        """Move the scope's values to the device."""
        plan = self.plan = self.plan.fitting(scope)
        layout, externals = plan.layout, plan.externals
        take_apart(scope, [name for name in plan.updated if name not in plan.equal])
        held = {
            name: _on_device(scope, name, layout, layout.of_state(name, externals[name].shape))
            for name in (*plan.updated, *plan.lent)
        }
        share(scope, plan.equal)
        held |= {name: scope.held(name) for name in plan.equal}
        self._updated = {name: held[name] for name in plan.updated}
        self._lent = [held[name] for name in plan.lent]
        self._state = StateArrays.of(list(self._updated.values()))
        self._replaced_by = None
        self._has_run = False
        self.generation = scope.generation

    def run(self, feeds: Mapping[str, Any], check: Check | None = None, timer: Watch | None = None) -> list[Any]:
        """Run once; returns the fetched values as numpy arrays. Without fetches, it need not wait for the run.

        `check` is called with each op, output name and value. `timer` gets one entry for the program: XLA fuses ops.
        """
        return self._run(feeds, check, timer, is_fetched=True)

    def start(self, feeds: Mapping[str, Any], check: Check | None = None, timer: Watch | None = None) -> list[Any]:
        """Like `run`, but the fetched values stay on the device, and the run need not be over."""
        return self._run(feeds, check, timer, is_fetched=False)

    def _run(self, feeds: Mapping[str, Any], check: Check | None, timer: Watch | None, is_fetched: bool) -> list[Any]:
        scope = self._scope()
        assert scope is not None, "the caller of a plan holds its scope"
        began = time.perf_counter()
        with scope.lock, jax.enable_x64(True):
            self.plan.meet()
            if self.generation != scope.generation:
                self._bind(scope)
            plan = self.plan if check is None else self.plan.checked(scope, check)
            layout, block = plan.layout, plan.block
            waits = (is_fetched and bool(plan.fetches)) or timer is not None or not layout.is_alone
            fetched, state = self._run_compiled(scope, plan, feeds, waits)
            if block.failure is not None:
                raise block.failure
            if block.host.count:
                layout.call_blocking(jax.block_until_ready, (fetched, state))
                block.host.raise_error()
            self._store_state(scope, plan, state)  # while the device still computes
            # Feeds may share the caller's memory: then the run must be over before this returns.
            if waits and not fetched:
                layout.call_blocking(jax.block_until_ready, state)
            is_fetched = is_fetched or not layout.is_alone
            arrays = iter(layout.call_blocking(layout.fetch, fetched) if is_fetched else map(layout.held, fetched))
            if timer is not None:
                layout.call_blocking(jax.block_until_ready, fetched)
                timer.add("a program compiled by XLA", began, time.perf_counter(), "xla")
            return [pattern(arrays) for pattern in block.fetched]

    def _run_compiled(self, scope: Scope, plan: XlaPlan, feeds: Mapping[str, Any], waits: bool) -> tuple[list[Any], list[Any]]:
        """Run the compiled program on the state and the feeds; returns the arrays of the fetches and of the new state.

        If nobody `waits` for the run, the feeds are copied before.
        """
        layout, compiled, block = plan.layout, plan.compiled, plan.block
        words = self._words(scope, plan) if block.draws else plan.no_words
        scope.runs += 1
        if not plan.takes_feeds_as_they_are:
            feeds = {name: for_jax(array_of(value)) for name, value in feeds.items()}
        if not self._state.is_current:
            self._state = StateArrays.of(list(self._updated.values()))
        count = len(plan.donated)
        donated, numbers, lent = self._state[:count], self._state[count:], [held.value for held in self._lent]
        if not self._has_run:  # later, a tensor of the scope gives a copy to feed (`OnDevice.device_array`)
            feeds = _apart_from(donated, feeds)
        arguments = donated, numbers, lent, layout.fed(feeds) if waits else layout.uploaded(feeds), words
        for _ in range(_MOST_CORRECTIONS):
            fetched, state, met = layout.call_blocking(compiled, *arguments)
            self._has_run = True
            if not (block.assumption_keys and plan.corrected(met)):
                return fetched, state
            block.host.forget_errors()
            compiled = plan.compiled
        raise ExecutionError(
            "each compilation changes the lengths of loops and of arrays of tensors in this program, "
            "because they depend on each other; run it on CPUPlace()"
        )

    def _words(self, scope: Scope, plan: XlaPlan) -> Any:
        """The random words of the next run, as an argument of the compiled program."""
        seed, layout = plan.program.random_seed, plan.layout
        if not layout.keeps_words:
            return layout.words(words_of_run(seed, scope.runs))
        if self._coming_words is None:
            self._coming_words = WordsOnDevice(layout.unstack)
        return self._coming_words.of_run(seed, scope.runs)

    def _store_state(self, scope: Scope, plan: XlaPlan, state: Sequence[Any]) -> None:
        """Store the new state in the scope, on the device. A variable that changes its shape is put there anew, so that the next
        run finds out."""
        patterns, updated = plan.block.state_patterns, self._updated
        if (
            self._replaced_by is not patterns
            and [*patterns] == [*updated]
            and set(patterns.values()) <= {next}
            and all(_are_alike(held, value) for held, value in zip(updated.values(), state, strict=True))
        ):
            self._replaced_by = patterns
        if self._replaced_by is patterns:  # the common case
            self._state[:] = state
            return
        arrays = iter(state)
        for name, pattern in patterns.items():
            value = pattern(arrays)
            if name in updated and _are_alike(updated[name], array_of(value)):
                updated[name].value = array_of(value)
            elif isinstance(value, SelectedRows):
                scope.put(name, value)
            else:
                scope.put(name, with_lod(plan.layout.held(array_of(value)), lod_of(value)))


def _apart_from(state: Sequence[Any], feeds: Mapping[str, Any]) -> Mapping[str, Any]:
    """The feeds, copied where they are arrays of the state whose memory XLA reuses: the user feeds a tensor of the scope."""
    ids = {id(value) for value in state}
    shared = {name: value.copy() for name, value in feeds.items() if id(value) in ids}
    return {**feeds, **shared} if shared else feeds


def _are_alike(held: OnDevice, value: Any) -> bool:
    """Whether a new value has the shape and the element type of the old one."""
    return bool(held.value.shape == value.shape and held.value.dtype == value.dtype)


def _on_device(scope: Scope, name: str, layout: OneDevice, sharding: Any) -> OnDevice:
    """Move a variable of the scope to the device that the program needs; the scope holds the moved value from then on."""
    variable = scope.find_var(name)
    assert variable is not None
    tensor: LoDTensor = variable.get_tensor()
    held = tensor.held
    if isinstance(held, OnDevice) and held.value.sharding == sharding:
        return held
    if not isinstance(held, (np.ndarray, np.generic, Remote)):
        raise ExecutionError(f"{name} holds {held!r}, which programs at an XLAPlace do not take from a scope")
    value = held.fetch() if isinstance(held, Remote) else np.array(held, order="C")
    remote = layout.held(layout.put(for_jax(value), sharding))
    tensor.array = remote
    return remote
