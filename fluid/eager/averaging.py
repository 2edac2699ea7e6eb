"""Averages in place of the parameters, in eager mode."""

from __future__ import annotations

from typing import Any

from ..training.averaging import Exchange
from .program import version_of


@version_of(Exchange)
class _Exchange(Exchange):
    """Replaces parameters by averages in eager mode."""

    def is_applied(self, average: Any) -> bool:
        return average._saved_values is not None

    def begin(self, average: Any) -> None:
        """The user calls ``update()`` after each step."""

    def apply(self, average: Any, executor: Any) -> None:
        with average._updating() as block:
            average._check_averaged(average._count(block).numpy(), "call its update() after each step")
            averages = [average._average(block.namespace, *numbered, block) for numbered in enumerate(average._params)]
            if average._saved_values is None:
                average._saved_values = [block.namespace.assign(param) for param in average._params]
        for param, value in zip(average._params, averages, strict=True):
            param.set_value(value)

    def restore(self, average: Any, executor: Any) -> None:
        average._check_applied()
        for param, value in zip(average._params, average._saved_values, strict=True):
            param.set_value(value)
        average._saved_values = None
