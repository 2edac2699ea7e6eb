"""The backends that compile plans, with and without native code."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any
from weakref import WeakKeyDictionary, ref

import numpy as np

from fluid.ir.program import Program
from fluid.values.cache import OP_LIMIT, Cache
from fluid.values.place import Place, to_numpy

from ..backend import BoundPlan, Request
from ..native.block_compiler import NativeBlocks
from ..native.fallback import NativeUnavailable, is_enabled, warn_of
from ..native.target import Target
from ..runtime.scope import Scope
from ..stepwise.program import BoundSteps, StepwisePlan
from .bound_plan import BoundArenaPlan
from .memory import Memory
from .plan import ArenaPlan, compile_plan
from .printing import calls_of
from .specialization import deciding_names

__all__ = ["NativeBackend", "PlannedBackend"]


_MOST_FED, _MOST_HELD, _MOST_VALUES = 8, 64, 8
"""The most elements of a feed, and of a variable of the scope, whose values decide; the most values for which there are plans."""


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

    def compile(self, request: Request) -> ArenaPlan | StepwisePlan:
        target, values = self._target(request.program), self._deciding_values(request)
        plan = compile_plan(request.program, request.specs, request.fetches, request.scope, target=target, values=values)
        plan.calls_of, plan.binder = calls_of, self._bound
        return plan

    def _target(self, program: Program) -> Target | None:
        """The processor that native code is made for; None for plans without native code."""
        return None

    def _bound(self, plan: ArenaPlan, scope: Scope) -> BoundPlan:
        if plan.step_by_step:
            return BoundSteps(plan, plan.fetches, scope, self._place)
        reference = self._memories.get(scope)
        memory = reference() if reference is not None else None
        if memory is None:
            memory = Memory(self._place.xp)
            self._memories[scope] = ref(memory)
        return BoundArenaPlan(plan, scope, self._place, memory)


class NativeBackend(PlannedBackend):
    """Compiles programs to plans whose ops mostly run as native code. Of a program that is fed sequences, the loops do."""

    def key(self, request: Request) -> Hashable | None:
        if request.watches_ops or not is_enabled():
            return None
        return () if request.has_sequences else super().key(request)

    def compile(self, request: Request) -> ArenaPlan | StepwisePlan:
        if not request.has_sequences:
            return super().compile(request)
        target = self._target(request.program)
        blocks = NativeBlocks(request.program, target) if target is not None else None
        return StepwisePlan(request.program, request.fetches, self._place, blocks)

    def _target(self, program: Program) -> Target | None:
        from ..native import compiler

        try:
            return compiler.host()
        except NativeUnavailable as error:
            warn_of(error, program)
            return None
