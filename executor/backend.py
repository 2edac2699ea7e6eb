"""The interface between the executor and the engines: backends, plans and bound plans.

A place has backends, in order of preference. Each request goes to the first one that takes it, which compiles a plan; the plan
is bound to a scope, and the bound plan runs. If that turns out to be impossible (`Unavailable`), the next backend gets the
request. `add_backend` adds your own backend:

    class Logged:
        takes_bfloat16 = True

        def key(self, request):
            return ()  # the plan depends on the program, the feeds and the fetches only

        def compile(self, request):
            return ...  # a plan

    fluid.extend.add_backend(fluid.CPUPlace, lambda place: Logged())
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

from fluid.ir.program import Operator, Program
from fluid.parallel.mesh import Mesh
from fluid.values.cache import OP_LIMIT
from fluid.values.place import Place
from fluid.values.spec import Spec
from fluid.values.unchanging import never_changes

from .runtime.scope import Scope
from .runtime.specs import spec_of
from .runtime.timing import Watch

Feeds = Mapping[str, Any]
"""Name -> an array, an array with the offsets of its sequences, or a list of these."""
Check = Callable[[Operator, str, Any], None]
"""Called after each op, with the op and the name and value of each output."""


class Unavailable(Exception):
    """A backend cannot run a plan, and the run has not changed anything yet; the message says why."""

    def warn(self, program: Program) -> None:
        """Warn the user that another backend runs the program."""


@dataclass  # not frozen: each run makes one, which would take 0.9 us instead of 0.2
class Request:
    """The arguments of a run.

    Attributes:
        program: the program.
        feeds: the fed arrays by name.
        fetches: the names of the fetched variables.
        scope: holds the persistable variables.
        mesh: the devices to split the program over; None for one device.
        watches_ops: whether each op is checked or timed, so that ops must not be fused.
    """

    program: Program
    feeds: Feeds
    fetches: list[str]
    scope: Scope
    mesh: Mesh | None = None
    watches_ops: bool = False

    @cached_property
    def specs(self) -> dict[str, Spec]:
        """The spec of each feed that is an array."""
        return {name: spec_of(value) for name, value in self.feeds.items() if not isinstance(value, list)}

    @property
    def has_sequences(self) -> bool:
        """Whether rows form sequences, or a list of arrays is fed: their lengths differ from batch to batch."""
        return len(self.specs) < len(self.feeds) or any(spec.lod for spec in self.specs.values())


class BoundPlan(Protocol):
    """A plan with the values of one scope, ready to run, one run at a time. It does not keep the scope alive."""

    @property
    def plan(self) -> Plan:
        """The plan that was bound."""

    def is_of(self, scope: Scope) -> bool:
        """Whether it is bound to the current values of a scope."""

    def settings(self) -> AbstractContextManager[Any]:
        """A context for its runs."""

    def run(self, feeds: Feeds, check: Check | None = None, timer: Watch | None = None) -> list[Any]:
        """Run once; returns the fetched values, which belong to the caller. Raises `Unavailable` before anything has run.

        A bound plan may also have a method `start` of these arguments, for callers that want no arrays of numpy: it returns
        values on the device, and need not wait for them.
        """


class Plan(Protocol):
    """A program compiled for certain feeds and fetches.

    Attributes:
        externals: the specs of the variables that it reads from the scope; for a scope with other specs, it is compiled again.
        absent: names that the scope did not hold.

    A plan may also have `unchanging`, names of variables that nothing can change (see `never_changes`).
    """

    program: Program

    @property
    def externals(self) -> Mapping[str, Spec]: ...

    @property
    def absent(self) -> frozenset[str]: ...

    def bind(self, scope: Scope) -> BoundPlan:
        """Bind the plan to the values of a scope."""

    def to_string(self, calls: bool = False) -> str:
        """The plan as text."""


class Backend(Protocol):
    """Compiles programs.

    Attributes:
        takes_bfloat16: whether it supports bfloat16; if not, it gets a copy of the program in float32.
    """

    takes_bfloat16: bool

    def key(self, request: Request) -> Hashable | None:
        """The key of a request's plan, besides the program; None if the next backend should take the request."""

    def compile(self, request: Request) -> Plan:
        """Compile a request to a plan. Raises `Unavailable` if that is impossible."""


def is_fitting(plan: Plan, scope: Scope) -> bool:
    """Whether a scope's variables still have the specs for which the plan was compiled."""
    if any(scope.held(name) is not None for name in plan.absent):
        return False
    if not all(never_changes(scope.held(name)) for name in getattr(plan, "unchanging", ())):
        return False
    arrays = ((scope.held(name), spec) for name, spec in plan.externals.items())
    return all(array is not None and spec_of(array) == spec for array, spec in arrays)


Maker = Callable[[Any], Backend]
"""Makes a backend for a place."""
_MAKERS: dict[type[Place], list[Maker]] = {}
"""Class of places -> functions that make its backends, in order of preference."""


def add_backend(place: type[Place], make: Maker) -> None:
    """Let a backend run programs at places of a class, ahead of the present backends. Existing executors do not change.

    Args:
        place: the class of the places; its backends come before the backends of its base classes.
        make: returns a backend for a place; see `fluid.executor.backend`.
    """
    _MAKERS.setdefault(place, []).insert(0, make)


def backends_of(place: Place) -> list[Backend]:
    """The backends of a place, in order of preference."""
    return [make(place) for kind in type(place).__mro__ for make in _MAKERS.get(kind, ())]


def cache_plan(plans: OrderedDict[Any, Any], key: tuple[Any, ...], plan: Any) -> None:
    """Cache a plan by program, version and so on; drop plans of older versions, and the least recently used beyond the limit."""
    for old in [cached_key for cached_key in plans if cached_key[0] == key[0] and cached_key[1] != key[1]]:
        del plans[old]
    plans[key] = plan
    plans.move_to_end(key)
    while len(plans) > OP_LIMIT:
        plans.popitem(last=False)
