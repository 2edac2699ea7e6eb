"""Trips of a loop that native code repeats while a condition is true."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from fluid.ir.program import Operator
from fluid.ir.versions import Value

from ..native.instructions import Check, KernelCall, NativeInstruction, Writer


@dataclass(eq=False)
class LoopCode(NativeInstruction):
    """A loop, or a part of one, as kernel calls.

    Attributes:
        text: describes it.
    """

    ops: list[Operator]
    text: str
    calls: list[KernelCall]
    writers: dict[str, Writer]
    read: list[Value]
    written: list[Value]
    layouts: dict[Value, str] = field(default_factory=dict)
    shares: dict[Value, Value] = field(default_factory=dict)
    workspace_bytes: int = 0
    checks: dict[int, Check] = field(default_factory=dict)

    def describe(self) -> str:
        return self.text


@dataclass(eq=False)
class RepeatedTrips(LoopCode):
    """An even number of trips, to repeat while a condition is true. A record behind each trip ends the table if it is false.

    Each value that passes from trip to trip has two buffers. Odd trips read the first one and write the second, even trips the
    other way round.

    Attributes:
        to_first: copies the second buffers to the first.
        first, second: the condition in the buffer that even and that odd trips write, one byte.
    """

    to_first: LoopCode = field(kw_only=True)
    first: Value = field(kw_only=True)
    second: Value = field(kw_only=True)

    def step(self, tables: Any, array: Callable[[Value], Any], report: Callable[[], None] | None) -> Callable[[], None]:
        """A function that runs the loop; between its tables, Python can handle interrupts.

        Args:
            tables: the tables of the plan.
            array: the array of a value.
            report: raises the error of a check that has failed in native code; None without checks.
        """
        run, to_first = tables.add([self]), tables.add([self.to_first])
        first, second = (memoryview(array(value)).cast("B") for value in (self.first, self.second))

        def repeat() -> None:
            while first[0]:
                run()
                if report is not None:
                    report()
                if not second[0]:
                    to_first()

        return repeat
