"""Plans of programs with padded rows, which serve batches of sequences of many lengths."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import Any

from fluid.ir.program import Operator, Program
from fluid.values.spec import Spec

from ..backend import BoundPlan
from ..runtime.scope import Scope
from ..runtime.timing import Watch
from .padded_rows import PaddedProgram
from .plan import ArenaPlan

__all__ = ["PaddedPlan"]


class PaddedPlan:
    """The plan of a rewritten program, for feeds of the original program."""

    is_provisional = True
    """Feeds of the same shapes may need another plan, if one of them holds lengths."""

    def __init__(self, program: Program, padded: PaddedProgram, plan: ArenaPlan) -> None:
        self.program, self.padded, self._plan = program, padded, plan

    @property
    def externals(self) -> Mapping[str, Spec]:
        return self._plan.externals

    @property
    def absent(self) -> frozenset[str]:
        return self._plan.absent

    @property
    def unchanging(self) -> frozenset[str]:
        return self._plan.unchanging

    def bind(self, scope: Scope) -> BoundPlan:
        return _BoundPaddedPlan(self, self._plan.bind(scope))

    def __str__(self) -> str:
        return self.to_string()

    def to_string(self, calls: bool = False) -> str:
        """The plan of the rewritten program as text."""
        sizes = ", ".join(f"{count} sequences of {capacity} rows at most" for count, capacity in self.padded.batch.sizes)
        return f"rows are padded: {sizes}\n{self._plan.to_string(calls)}"


class _BoundPaddedPlan:
    """A bound plan that pads the rows of feeds, and leaves the padding out of fetched values."""

    def __init__(self, plan: PaddedPlan, bound: BoundPlan) -> None:
        self.plan, self._bound = plan, bound

    def is_of(self, scope: Scope) -> bool:
        return self._bound.is_of(scope)

    def settings(self) -> AbstractContextManager[Any]:
        return self._bound.settings()

    def run(
        self,
        feeds: Mapping[str, Any],
        check: Callable[[Operator, str, Any], None] | None = None,
        timer: Watch | None = None,
    ) -> list[Any]:
        padded = self.plan.padded
        return padded.without_padding(self._bound.run(padded.feeds(feeds), check, timer), feeds)
