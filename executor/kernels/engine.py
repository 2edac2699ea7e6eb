"""Engines: how ops are computed on the arrays of a namespace."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from fluid.distributed.communicator import Communicator
from fluid.distributed.nccl import nccl_communicator
from fluid.distributed.process import communicator
from fluid.values.place import add_namespace

from ..runtime.calls import Call
from .table import Kernel

Step = Callable[[], Any]
"""A step of a run: a call, or its replacement."""


def _unchanged(calls: list[Call]) -> Sequence[Step]:
    return calls


@dataclass(frozen=True, eq=False)
class KernelEngine:
    """The rules for computing ops on the arrays of one namespace.

    Attributes:
        xp: the namespace; its functions, types and arrays (`xp.ndarray`) have numpy's names and behaviour.
        kernels: op type -> kernel, preferred to the common table.
        sparse_kernels: op type -> kernel for ops with a `SelectedRows` among inputs or outputs.
        checks_values: whether ops check the values of their inputs (such as indices) and raise an error for wrong ones.
        writes_functions: whether calls become functions (`fluid.executor.binding.codegen`), which needs addresses of arrays.
        steps: returns the steps to run in place of an op's calls.
        widens_halves: whether kernels get half-precision floats as float32 (`fluid.executor.binding.halves`).
        communicator: returns the workers for the collective ops of the namespace.
        recurrent_loops: returns the `Loops` of recurrent layers (`fluid.executor.kernels.rnn`); None for the common ones.
    """

    xp: Any
    kernels: Mapping[str, Kernel] = field(default_factory=dict)
    sparse_kernels: Mapping[str, Kernel] = field(default_factory=dict)
    checks_values: bool = True
    writes_functions: bool = True
    steps: Callable[[list[Call]], Sequence[Step]] = _unchanged
    widens_halves: bool = False
    communicator: Callable[[], Communicator] = communicator
    recurrent_loops: Callable[[], Any] | None = None


_engines: dict[Any, KernelEngine] = {}


def engine_of(xp: Any) -> KernelEngine:
    """The engine of a namespace; a default one if none was added."""
    engine = _engines.get(xp)
    if engine is None:
        on_gpu = getattr(xp, "__name__", "") == "cupy"
        workers = partial(_nccl_communicator, xp) if on_gpu else communicator
        engine = _engines[xp] = KernelEngine(xp, widens_halves=xp is np, communicator=workers)
    return engine


def _nccl_communicator(xp: Any) -> Communicator:
    return nccl_communicator(xp, communicator())


def add_engine(engine: KernelEngine) -> None:
    """Use this engine for the arrays of its namespace."""
    _engines[engine.xp] = engine
    add_namespace(engine.xp)
