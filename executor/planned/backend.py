"""The backends that compile plans, with and without native code."""

from __future__ import annotations

from collections.abc import Hashable
from contextlib import suppress
from typing import Any
from weakref import WeakKeyDictionary, ref

import numpy as np

from fluid.errors import ExecutionError, FluidError
from fluid.ir.program import Program
from fluid.values.cache import OP_LIMIT, Cache
from fluid.values.place import CUDAPlace, Place, to_numpy

from ..backend import BoundPlan, Request
from ..native.block_compiler import NativeBlocks
from ..native.fallback import NativeUnavailable, is_enabled, warn_of
from ..native.target import Target
from ..runtime.scope import Scope
from ..stepwise.program import BoundSteps, StepwisePlan
from . import padded_matches  # noqa: F401  (it registers rewriting)
from .bound_plan import BoundArenaPlan
from .memory import Memory
from .nested_loops import loops_in_block
from .padded_loops import with_padded_loops
from .padded_ops import fed_lengths, padded_program
from .padded_plan import PaddedPlan
from .padded_steps import has_steps, is_skewed
from .plan import ArenaPlan, compile_plan
from .printing import calls_of
from .recorded_plan import RecordedPlan
from .sequence_batch import SequenceBatch, batch_of
from .specialization import deciding_names

__all__ = ["NativeBackend", "PlannedBackend"]


_MOST_FED, _MOST_HELD, _MOST_VALUES = 8, 64, 8
"""The most elements of a feed, and of a variable of the scope, whose values decide; the most values for which there are plans."""


_MOST_SHAPES = 128
"""A program becomes native code at once for this number of sets of feed shapes, and later for others. Compiling takes as long as
some thirty runs on numpy: 94 ms and 3 ms for a net of two layers on an EPYC with AVX-512."""
_MANY_RUNS = 4
"""The number of runs on numpy with another set of feed shapes, before native code is compiled for it."""


class PlannedBackend:
    """Compiles programs with plain array feeds to plans, which run op by op in memory that is placed once."""

    def __init__(self, place: Place) -> None:
        self._place = place
        self._memories: WeakKeyDictionary[Scope, ref[Memory]] = WeakKeyDictionary()
        """Bound plans keep the memory of their scope; it goes with the last of them."""
        self._values: WeakKeyDictionary[Program, Cache[Hashable, set[Hashable]]] = WeakKeyDictionary()
        """Program -> its version and the specs of feeds -> the values of deciding feeds for which there are plans."""
        self.takes_bfloat16 = place.xp is np

    def key(self, request: Request) -> Hashable | None:
        if request.has_sequences:
            return None
        values = self._deciding_values(request)
        return (*request.specs.items(), *((name, array.tobytes()) for name, array in values.items()))

    def _deciding_values(self, request: Request) -> dict[str, Any]:
        """The values that decide shapes or branches, for the first `_MOST_VALUES` of them; other values share one plan.

        A plan for each value of a counter would take longer than runs that compute shapes.
        """
        values = {}
        for name in deciding_names(request.program):
            is_fed = name in request.feeds
            array = request.feeds[name] if is_fed else request.scope.array(name)
            if array is not None and array.size <= (_MOST_FED if is_fed else _MOST_HELD):
                values[name] = to_numpy(array)
        if not values:
            return {}
        of_program = self._values.setdefault(request.program, Cache(OP_LIMIT))
        signature, data = (request.program.version, *request.specs.items()), tuple(array.tobytes() for array in values.values())
        planned = of_program.get(signature) or of_program.keep(signature, set())
        if len(planned) < _MOST_VALUES:
            planned.add(data)
        return values if data in planned else {}

    def compile(self, request: Request) -> ArenaPlan | PaddedPlan | StepwisePlan:
        return self._plan(request, None)

    def _plan(self, request: Request, target: Target | None) -> ArenaPlan:
        """A plan with native code for a processor, or without native code."""
        values = self._deciding_values(request)
        plan = compile_plan(request.program, request.specs, request.fetches, request.scope, target=target, values=values)
        plan.calls_of, plan.binder = calls_of, self._bound
        return plan

    def _bound(self, plan: ArenaPlan, scope: Scope) -> BoundPlan:
        if plan.step_by_step:
            return BoundSteps(plan, plan.program, plan.fetches, scope, self._place)
        reference = self._memories.get(scope)
        memory = reference() if reference is not None else None
        if memory is None:
            memory = Memory(self._place.xp)
            self._memories[scope] = ref(memory)
        bound = RecordedPlan if isinstance(self._place, CUDAPlace) and self._place.recorded else BoundArenaPlan
        return bound(plan, scope, self._place, memory)


class NativeBackend(PlannedBackend):
    """Compiles programs to plans whose ops mostly run as native code. Of a program that is fed sequences, the loops do.

    A program that is fed new shapes in each run would only compile: see `_FeedShapes`.
    """

    def __init__(self, place: Place) -> None:
        super().__init__(place)
        self._shapes: WeakKeyDictionary[Program, _FeedShapes] = WeakKeyDictionary()

    def key(self, request: Request) -> Hashable | None:
        if request.watches_ops or not is_enabled():
            return None
        shapes = self._shapes.get(request.program)
        if shapes is None or shapes.version != request.program.version:
            shapes = self._shapes[request.program] = _FeedShapes(request.program)
        batch = self._padded_batch(request, shapes) if request.has_sequences or shapes.lengths else None
        if batch is not None and shapes.count_run(batch.key):
            return batch.key
        return () if request.has_sequences else (shapes.count_run(tuple(request.specs.items())), super().key(request))

    def _padded_batch(self, request: Request, shapes: _FeedShapes) -> SequenceBatch | None:
        """The sequences of a request, if a program with padded rows computes the same."""
        batch = batch_of(request, shapes.lengths, shapes.has_steps)
        if batch is None or is_skewed(batch):
            return None
        form = (batch.division, *request.fetches)
        if form not in shapes.is_padded:
            shapes.is_padded[form] = padded_program(request.program, request.fetches, batch) is not None
        return batch if shapes.is_padded[form] else None

    def compile(self, request: Request) -> ArenaPlan | PaddedPlan | StepwisePlan:
        shapes, target = self._shapes[request.program], self._host(request.program)
        batch = self._padded_batch(request, shapes) if request.has_sequences or shapes.lengths else None
        if target is not None and batch is not None and shapes.are_common(batch.key):
            with suppress(FluidError):  # the run op by op reports it
                return self._padded_plan(request, batch, target)
        if request.has_sequences:
            if target is None:
                return StepwisePlan(request.program, request.fetches, self._place)
            blocks, rewritten = NativeBlocks(request.program, target, loops_in_block), with_padded_loops(request.program)
            return StepwisePlan(request.program, request.fetches, self._place, blocks, rewritten)
        if shapes.are_common(tuple(request.specs.items())):
            return self._plan(request, target)
        plan = self._plan(request, None)
        plan.is_provisional = True
        return plan

    def _padded_plan(self, request: Request, batch: SequenceBatch, target: Target) -> PaddedPlan:
        padded = padded_program(request.program, request.fetches, batch)
        if padded is None:
            raise ExecutionError("the program cannot be rewritten for these shapes")
        plan = compile_plan(padded.program, padded.specs, request.fetches, request.scope, target=target)
        plan.calls_of, plan.binder = calls_of, self._bound
        return PaddedPlan(request.program, padded, plan)

    def _host(self, program: Program) -> Target | None:
        """The processor that native code is made for; None, after a warning, without llvmlite."""
        from ..native import compiler

        try:
            return compiler.host()
        except NativeUnavailable as error:
            warn_of(error, program)
            return None


class _FeedShapes:
    """Counts the runs of a program by feed shapes. The first sets of shapes are common at once, others after some runs."""

    def __init__(self, program: Program) -> None:
        self.version = program.version
        """The version of the program; the counts are valid for it alone."""
        self.lengths = fed_lengths(program)
        """The feeds that hold lengths of padded sequences."""
        self.has_steps = has_steps(program)
        """Whether it has loops over the steps of sequences."""
        self.is_padded: dict[Hashable, bool] = {}
        """Which feeds hold sequences, and fetches -> whether the program can be rewritten for padded rows."""
        self._first: set[Hashable] = set()
        self._runs: Cache[Hashable, int] = Cache()

    def count_run(self, shapes: Hashable) -> bool:
        """Count a run, and return whether its shapes are common."""
        if len(self._first) < _MOST_SHAPES:
            self._first.add(shapes)
        elif shapes not in self._first:
            self._runs.keep(shapes, self._runs.get(shapes, 0) + 1)
        return self.are_common(shapes)

    def are_common(self, shapes: Hashable) -> bool:
        """Whether shapes of feeds are worth compiling for."""
        return shapes in self._first or self._runs.get(shapes, 0) > _MANY_RUNS
