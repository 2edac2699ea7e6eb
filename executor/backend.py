"""The interface between the executor and what runs programs: backends, plans and bound plans.

A place has backends, in order of preference. Each request goes to the first one that takes it, which compiles a plan; the plan
is bound to a scope, and the bound plan runs. If that turns out to be impossible (`Unavailable`), the next backend gets the
request. A backend of your own is added by `add_backend`:

    class Logged:
        takes_bfloat16 = True

        def key(self, request):
            return ()  # nothing but the program, what is fed and what is fetched decides the plan

        def compile(self, request):
            return ...  # a plan

    fluid.extend.add_backend(fluid.CPUPlace, lambda place: Logged())
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

from fluid.ir.program import Operator, Program
from fluid.parallel.mesh import Mesh
from fluid.values.place import Place
from fluid.values.spec import Spec

from .runtime.scope import Scope
from .runtime.specs import spec_of
from .runtime.timing import Watch

__all__ = ["Backend", "BoundPlan", "Check", "Feeds", "Plan", "Request", "Unavailable", "add_backend", "backends_of", "is_fitting"]

Feeds = Mapping[str, Any]
"""Name -> an array, an array with the offsets of its sequences, or a list of these."""
Check = Callable[[Operator, str, Any], None]
"""Is called with each op, and the name and value of each of its outputs, as they are made."""


class Unavailable(Exception):
    """A backend finds, before a run has changed anything, that it cannot run a plan; the message says why."""

    def warn(self, program: Program) -> None:
        """Warn the user that another backend runs the program."""


@dataclass(frozen=True)
class Request:
    """A run that the executor is asked for.

    Attributes:
        program: the program.
        feeds: what is fed, as arrays.
        fetches: the names of what is fetched.
        scope: holds the variables that last.
        mesh: the devices that the program is to be divided over; None for one device.
        watches_ops: whether each op is checked or timed, so that ops may not be computed together.
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
        """Whether it is bound to what a scope holds now."""

    def settings(self) -> AbstractContextManager[Any]:
        """A context for its runs."""

    def run(self, feeds: Feeds, check: Check | None = None, timer: Watch | None = None) -> list[Any]:
        """Run once; returns the fetched values, which belong to the caller. `Unavailable` before anything has run."""


class Plan(Protocol):
    """A program compiled for certain feeds and fetches.

    Attributes:
        externals: the specs of the variables that it reads from the scope; bound to one with others, it is compiled again.
        absent: names that were not in the scope.
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
        takes_bfloat16: whether it computes in bfloat16; if not, it is given a copy of the program in float32.
    """

    takes_bfloat16: bool

    def key(self, request: Request) -> Hashable | None:
        """What decides the plan of a request, besides the program; None if the next backend should take the request."""

    def compile(self, request: Request) -> Plan:
        """The plan of a request. `Unavailable` if there cannot be one."""


def is_fitting(plan: Plan, scope: Scope) -> bool:
    """Whether the variables that a plan reads still have the shapes in a scope that it was compiled for."""
    if any(scope.held(name) is not None for name in plan.absent):
        return False
    arrays = ((scope.held(name), spec) for name, spec in plan.externals.items())
    return all(array is not None and spec_of(array) == spec for array, spec in arrays)


Maker = Callable[[Any], Backend]
"""Makes a backend for a place."""
_MAKERS: dict[type[Place], list[Maker]] = {}
"""Kind of place -> what makes its backends, in order of preference."""


def add_backend(place: type[Place], make: Maker) -> None:
    """Let a backend run programs at places of a kind, before those that ran them so far. Executors that exist keep theirs.

    Args:
        place: the class of the places; backends of its base classes come after its own.
        make: is given a place, and returns a backend; see `fluid.executor.backend`.
    """
    _MAKERS.setdefault(place, []).insert(0, make)


def backends_of(place: Place) -> list[Backend]:
    """The backends of a place, in order of preference."""
    return [make(place) for kind in type(place).__mro__ for make in _MAKERS.get(kind, ())]
