"""How each array namespace computes: what an engine brings beside the namespace itself."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from fluid.values.place import add_namespace

from ..kernels.table import Kernel
from .calls import Call

__all__ = ["Engine", "Step", "add_engine", "engine_of"]

Step = Callable[[], Any]
"""What is run: a call, or whatever takes its place."""


def _as_they_are(calls: list[Call]) -> Sequence[Step]:
    return calls


@dataclass(frozen=True, eq=False)
class Engine:
    """How ops are computed on the arrays of one namespace.

    Attributes:
        xp: the namespace: functions and types named as numpy's, and arrays (`xp.ndarray`) that behave as numpy's.
        kernels: op type -> kernel, asked before the common table.
        sparse_kernels: the same where an input or output is a `SelectedRows`.
        checks_values: whether values are looked at before ops compute with them, so that wrong ones end in an error.
        writes_functions: whether calls are written down as functions (`fluid.executor.binding.codegen`), which asks arrays for
            their memory.
        steps: gives what is run in the place of an op's calls.
    """

    xp: Any
    kernels: Mapping[str, Kernel] = field(default_factory=dict)
    sparse_kernels: Mapping[str, Kernel] = field(default_factory=dict)
    checks_values: bool = True
    writes_functions: bool = True
    steps: Callable[[list[Call]], Sequence[Step]] = _as_they_are


_engines: dict[Any, Engine] = {}


def engine_of(xp: Any) -> Engine:
    """The engine of a namespace; one that brings nothing of its own, where none was added."""
    engine = _engines.get(xp)
    if engine is None:
        engine = _engines[xp] = Engine(xp)
    return engine


def add_engine(engine: Engine) -> None:
    """Compute on arrays of the engine's namespace as it says."""
    _engines[engine.xp] = engine
    add_namespace(engine.xp)
