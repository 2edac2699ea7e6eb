"""Runs programs op by op: if rows form sequences, whose lengths differ in every batch, and to check plans against."""

from __future__ import annotations

import operator
import weakref
from collections.abc import Container, Hashable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, ClassVar

from fluid.errors import FeedError
from fluid.ir.program import Block, Operator, Program
from fluid.ir.versions import outer_names
from fluid.values.lod_array import array_of, lod_of, with_lod
from fluid.values.place import Place
from fluid.values.selected_rows import SelectedRows
from fluid.values.spec import Spec
from fluid.values.types import VarType
from fluid.values.unchanging import is_usable, usable_copy

from ..backend import Plan, Request
from ..binding.compiled import updates_of
from ..kernels.collective import group_of
from ..runtime.random import RandomStreams
from ..runtime.scope import Scope
from ..runtime.threads import OnNumpy
from ..runtime.timing import Watch, timed
from .interpreter import Check, Environment, Machine, step_captures
from .meeting import Meeting
from .needed import ops_to_run
from .repeated import BlockCompiler
from .unsupported import refuse_unsupported

__all__ = ["BoundSteps", "StepwiseBackend", "StepwisePlan", "StepwiseProgram", "last_uses", "not_made"]


class StepwiseProgram:
    """Block 0 of a program, pruned to the ops for its fetches and persistable variables; one run at a time.

    `compiler` compiles the blocks of its loops, if they are to run as compiled code.
    """

    def __init__(self, program: Program, fetches: Sequence[str], place: Place, compiler: BlockCompiler | None = None) -> None:
        self.program, self.fetches, self.place = program, list(fetches), place
        self._ops = ops_to_run(program.global_block(), fetches)
        refuse_unsupported(program, self._ops)
        self._frees = last_uses(program.global_block(), self._ops, set(fetches))
        self._meeting = Meeting.of(program, self._ops)
        self._streams = RandomStreams(place.xp, program.random_seed)
        self._machine = Machine(place.xp, self._streams, step_captures(program), compiler=compiler)
        self._updated = set(_updated_in_place(self._ops))

    def run(self, feeds: Mapping[str, Any], scope: Scope, check: Check | None = None, timer: Watch | None = None) -> list[Any]:
        """Run once; returns the fetched values.

        `check` is called with each op, output name and value; `timer` gets the time of each op.
        """
        machine, place = self._machine, self.place
        with scope.lock:
            if self._meeting is not None:
                group_of(place.xp).state(self._meeting.statement(feeds, "op by op"))
            self._streams.begin(scope.runs)
            scope.runs += 1
            machine.check = check
            values = {name: _on(place, value) for name, value in feeds.items()}
            values |= {name: value.copy() for name, value in values.items() if name in self._updated}
            scope.separate(self._updated)
            env = _ScopeEnvironment(self.program, scope, place, values, self._updated)
            for op, names in zip(self._ops, self._frees, strict=True):
                with timed(timer, op, place):
                    machine.run_op(op, env)
                for name in names:
                    env.values.pop(name, None)
            env.keep_arrays()
            results = [env.get(name) for name in self.fetches]
            for name, value in zip(self.fetches, results, strict=True):
                if value is None:
                    raise not_made(name)
            return [value if isinstance(value, list) else value.copy() for value in results]


class StepwiseBackend:
    """Runs each program op by op."""

    takes_bfloat16 = True

    def __init__(self, place: Place) -> None:
        self._place = place

    def key(self, request: Request) -> Hashable | None:
        return ()  # one plan for all feeds

    def compile(self, request: Request) -> StepwisePlan:
        return StepwisePlan(request.program, request.fetches, self._place)


class StepwisePlan:
    """A program that runs op by op.

    Args:
        compiler: compiles the blocks of its loops.
        rewritten: a program that computes the same, and runs in its place.
    """

    externals: ClassVar[Mapping[str, Spec]] = {}
    absent: frozenset[str] = frozenset()

    def __init__(
        self,
        program: Program,
        fetches: Sequence[str],
        place: Place,
        compiler: BlockCompiler | None = None,
        rewritten: Program | None = None,
    ) -> None:
        self.program, self._fetches, self._place, self._compiler = program, list(fetches), place, compiler
        self._to_run = rewritten or program

    def bind(self, scope: Scope) -> BoundSteps:
        return BoundSteps(self, self._to_run, self._fetches, scope, self._place, self._compiler)

    def __str__(self) -> str:
        return self.to_string()

    def to_string(self, calls: bool = False) -> str:
        """The ops as text, with the fetches."""
        ops = ops_to_run(self._to_run.global_block(), self._fetches)
        return "\n".join(["the program runs step by step", *(f"  {op}" for op in ops), f"  fetch {', '.join(self._fetches)}"])


class BoundSteps:
    """A program that runs op by op in one scope, for a plan."""

    def __init__(
        self,
        plan: Plan,
        program: Program,
        fetches: Sequence[str],
        scope: Scope,
        place: Place,
        compiler: BlockCompiler | None = None,
    ) -> None:
        self.plan = plan
        self._scope = weakref.ref(scope)
        self._steps = StepwiseProgram(program, fetches, place, compiler)

    def is_of(self, scope: Scope) -> bool:
        """Whether it runs in this scope; values are looked up in each run."""
        return self._scope() is scope

    def settings(self) -> AbstractContextManager[Any]:
        return OnNumpy()

    def run(self, feeds: Mapping[str, Any], check: Check | None = None, timer: Watch | None = None) -> list[Any]:
        scope = self._scope()
        assert scope is not None, "the caller of a plan holds its scope"
        return self._steps.run(feeds, scope, check, timer)


def _updated_in_place(ops: Sequence[Operator]) -> Iterator[str]:
    """The names of the variables that sparse gradients update: of their arrays, only some rows are written. Other ops make new
    arrays."""
    for op in ops:
        for block in op.sub_blocks:
            yield from _updated_in_place(block.ops)
        types = {var.type for name in op.input_arg_names if (var := op.block.find_var(name)) is not None}
        if op.definition is not None and VarType.SELECTED_ROWS in types:
            yield from (op.input(slot)[0] for slot in updates_of(op.definition).values() if op.input(slot))


def _on(place: Place, value: Any) -> Any:
    """Convert a fed value to a C-contiguous array at a place, as in plans: the order of additions depends on the layout."""
    if isinstance(value, list):
        return [_on(place, item) for item in value]
    if hasattr(value, "lod"):
        return type(value)(_on(place, value.array), value.lod)
    return place.xp.asarray(place.asarray(value), order="C")


def last_uses(block: Block, ops: Sequence[Operator], retained: set[str]) -> list[list[str]]:
    """For each op, its names that no later op looks up."""
    seen = {*retained, *(name for name, var in block.vars.items() if var.persistable)}
    frees = []
    for op in reversed(ops):
        names = {*op.input_arg_names, *op.output_arg_names}
        for sub in op.sub_blocks:
            names.update(*outer_names(sub))
        frees.append([name for name in names if name not in seen])
        seen |= names
    return frees[::-1]


def _moved(place: Place, value: Any, is_overwritten: bool) -> Any:
    """A value of a scope with usable arrays of a place; the value itself if it has no others."""
    xp = place.xp
    if isinstance(value, list):
        items = [_moved(place, item, is_overwritten) for item in value]
        return value if all(map(operator.is_, items, value)) else items
    if type(value) is SelectedRows:
        if not isinstance(value.value, xp.ndarray):
            value.become(place.asarray(value.index), place.asarray(value.value), value.height())
        return value
    array = array_of(value)
    if not hasattr(array, "dtype"):  # nothing, or a rank table
        return value
    if isinstance(array, xp.ndarray):
        return value if is_usable(array, is_overwritten) else with_lod(usable_copy(xp, array, is_overwritten), lod_of(value))
    return with_lod(place.asarray(array), lod_of(value))


class _ScopeEnvironment(Environment):
    """The values of block 0; persistable ones live in the scope, where usable arrays of this place replace others.

    Args:
        updated: the names whose arrays a run writes to.
    """

    __slots__ = ("_array_type", "_updated", "place", "scope")

    def __init__(self, program: Program, scope: Scope, place: Place, values: dict[str, Any], updated: Container[str]) -> None:
        super().__init__(program.global_block(), None, values)
        self.scope, self.place, self._array_type, self._updated = scope, place, place.xp.ndarray, updated

    def _look_up_outside(self, name: str) -> Any:
        value = self.scope.value(name)
        is_overwritten = name in self._updated
        if not isinstance(value, self._array_type) or not is_usable(value, is_overwritten):
            moved = _moved(self.place, value, is_overwritten)
            if moved is not value:
                self.scope.put(name, moved)
                value = moved
        if isinstance(value, list):
            self.values[name] = value  # the entries of an array of tensors are looked up once
        return value

    def _bind_outermost(self, name: str, value: Any) -> None:
        var = self.block.vars.get(name)
        if var is not None and var.persistable and not isinstance(value, list):
            self.values.pop(name, None)  # a fed value
            self.scope.put(name, value)
        else:
            self.values[name] = value

    def keep_arrays(self) -> None:
        """Store the persistable arrays of tensors in the scope."""
        for name, value in self.values.items():
            var = self.block.vars.get(name)
            if isinstance(value, list) and var is not None and var.persistable and var.type is not VarType.STEP_SCOPES:
                self.scope.put(name, value)


def not_made(name: str) -> FeedError:
    return FeedError(f"{name} is to be fetched, but the program gave it no value (a branch that was not taken?)")
