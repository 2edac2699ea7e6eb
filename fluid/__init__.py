"""Fluid builds a deep-learning program as data, differentiates it as data, and runs it with numpy or cupy::

    import fluid

    x = fluid.data("x", [None, 13])
    y = fluid.data("y", [None, 1])
    loss = fluid.layers.mean(fluid.layers.square_error_cost(fluid.layers.fc(x, 1), y))
    fluid.optimizer.SGD(0.01).minimize(loss)
    print(fluid.default_main_program())

Names and arguments are those of Paddle Fluid 1.6, so that its scripts run with only the import changed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from . import (
    average,
    backward,
    clip,
    compiler,
    core,
    data_feeder,
    errors,
    executor,
    framework,
    initializer,
    layers,
    metrics,
    nets,
    optimizer,
    param_attr,
    regularizer,
    unique_name,
)
from .backward import append_backward, gradients
from .compiler import BuildStrategy, CompiledProgram, ExecutionStrategy
from .core import CPUPlace, CUDAPinnedPlace, CUDAPlace, LoDTensor, Scope, is_compiled_with_cuda
from .data_feeder import DataFeeder
from .errors import FluidError
from .executor import Executor, global_scope, scope_guard
from .framework import (
    Parameter,
    Program,
    Variable,
    default_main_program,
    default_startup_program,
    in_dygraph_mode,
    name_scope,
    program_guard,
)
from .input import data, embedding, one_hot
from .param_attr import ParamAttr

if TYPE_CHECKING:
    from . import dataset, extend, graph, io, reader, text

__version__ = "0.1.0"

__all__ = [
    "BuildStrategy",
    "CPUPlace",
    "CUDAPinnedPlace",
    "CUDAPlace",
    "CompiledProgram",
    "DataFeeder",
    "ExecutionStrategy",
    "Executor",
    "FluidError",
    "LoDTensor",
    "ParamAttr",
    "Parameter",
    "Program",
    "Scope",
    "Variable",
    "append_backward",
    "average",
    "backward",
    "clip",
    "compiler",
    "core",
    "cpu_places",
    "cuda_pinned_places",
    "cuda_places",
    "data",
    "data_feeder",
    "dataset",
    "default_main_program",
    "default_startup_program",
    "embedding",
    "errors",
    "executor",
    "extend",
    "framework",
    "global_scope",
    "gradients",
    "graph",
    "in_dygraph_mode",
    "initializer",
    "io",
    "is_compiled_with_cuda",
    "layers",
    "metrics",
    "name_scope",
    "nets",
    "one_hot",
    "optimizer",
    "param_attr",
    "program_guard",
    "reader",
    "regularizer",
    "require_version",
    "scope_guard",
    "text",
    "unique_name",
]

# Loaded when used: they need more than numpy, or are not always needed.
_LAZY = ("dataset", "extend", "graph", "io", "reader", "text")


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        from importlib import import_module

        return import_module(f"{__name__}.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(set(globals()) | set(__all__))


def cpu_places(device_count: int | None = None) -> list[CPUPlace]:
    """So many times the processor (once, by default)."""
    return [CPUPlace()] * (1 if device_count is None else device_count)


def cuda_places(device_ids: list[int] | None = None) -> list[CUDAPlace]:
    """The CUDA devices of these numbers (all that are there, by default)."""
    numbers = range(core.get_cuda_device_count()) if device_ids is None else device_ids
    return [CUDAPlace(number) for number in numbers]


def cuda_pinned_places(device_count: int | None = None) -> list[CUDAPinnedPlace]:
    """So many times page-locked host memory (once, by default)."""
    return [CUDAPinnedPlace()] * (1 if device_count is None else device_count)


def require_version(min_version: str, max_version: str | None = None) -> None:
    """Accepts any version: scripts that ask for a version of Paddle get this package's own interface, that of 1.6.

    `FluidError` if an argument is not a version such as ``"1.6.0"``.
    """
    import re

    for version in (min_version, max_version):
        if version is not None and not (isinstance(version, str) and re.fullmatch(r"\d+(\.\d+){0,3}", version)):
            raise FluidError(f"{version!r} is not a version such as '1.6.0'")
