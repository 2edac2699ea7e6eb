"""The backends that compile plans, with and without native code."""

from __future__ import annotations

from collections.abc import Hashable
from weakref import WeakKeyDictionary, ref

import numpy as np

from fluid.ir.program import Program
from fluid.values.place import Place

from ..backend import BoundPlan, Request
from ..native.fallback import NativeUnavailable, is_enabled, warn_of
from ..native.target import Target
from ..runtime.scope import Scope
from ..stepwise.program import BoundSteps
from .bound_plan import BoundArenaPlan
from .memory import Memory
from .plan import ArenaPlan, compile_plan
from .printing import calls_of

__all__ = ["NativeBackend", "PlannedBackend"]


class PlannedBackend:
    """Compiles programs with plain array feeds to plans, which run op by op in memory that is placed once."""

    def __init__(self, place: Place) -> None:
        self._place = place
        self._memories: WeakKeyDictionary[Scope, ref[Memory]] = WeakKeyDictionary()
        """Bound plans keep the memory of their scope; it goes with the last of them."""
        self.takes_bfloat16 = place.xp is np

    def key(self, request: Request) -> Hashable | None:
        return None if request.has_sequences else tuple(request.specs.items())

    def compile(self, request: Request) -> ArenaPlan:
        target = self._target(request.program)
        plan = compile_plan(request.program, request.specs, request.fetches, request.scope, target=target)
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
    """Compiles programs to plans whose ops mostly run as native code."""

    def key(self, request: Request) -> Hashable | None:
        return None if request.watches_ops or not is_enabled() else super().key(request)

    def _target(self, program: Program) -> Target | None:
        from ..native import compiler

        try:
            return compiler.host()
        except NativeUnavailable as error:
            warn_of(error, program)
            return None
