"""Fluid builds a deep-learning program as data, differentiates it as data, and runs it with numpy or cupy::

    import fluid

    x = fluid.data("x", [None, 13])
    y = fluid.data("y", [None, 1])
    loss = fluid.layers.mean(fluid.layers.square_error_cost(fluid.layers.fc(x, 1), y))
    fluid.optimizer.SGD(0.01).minimize(loss)
    print(fluid.default_main_program())

Names and arguments are Paddle Fluid 1.6's, so that its scripts run with only the import changed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from . import checkout  # noqa: F401 - before all others, which it makes importable

# isort: split
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
    layer_helper,
    layers,
    lod_tensor,
    metrics,
    nets,
    optimizer,
    param_attr,
    regularizer,
    training,
    unique_name,
)
from .backward import append_backward, gradients
from .compiler import BuildStrategy, CompiledProgram, ExecutionStrategy, ParallelExecutor
from .core import CPUPlace, CUDAPinnedPlace, CUDAPlace, LoDTensor, LoDTensorArray, Scope, XLAPlace
from .data_feeder import DataFeeder
from .errors import FluidError
from .executor import Executor, global_scope, scope_guard
from .executor.runtime.flags import get_flags, set_flags
from .executor.runtime.random import seed
from .executor.runtime.threads import get_num_threads, set_num_threads
from .framework import (
    Parameter,
    Program,
    Variable,
    cpu_places,
    cuda_pinned_places,
    cuda_places,
    default_main_program,
    default_startup_program,
    device_guard,
    in_dygraph_mode,
    is_compiled_with_cuda,
    load_op_library,
    name_scope,
    program_guard,
    require_version,
)
from .input import data, embedding, one_hot
from .ir.tracebacks import install as install_hooks
from .loading.slot_files import DatasetFactory
from .lod_tensor import create_lod_tensor, create_random_int_lodtensor
from .not_here import names_not_here, stand_in_modules
from .param_attr import ParamAttr, WeightNormParamAttr

if TYPE_CHECKING:
    from . import (
        ahead,
        contrib,
        dataset,
        distributed,
        dygraph,
        dygraph_grad_clip,
        evaluator,
        extend,
        incubate,
        install_check,
        io,
        parallel,
        plots,
        profiler,
        reader,
    )
    from .ahead import compile_program, load_compiled_state, save_compiled_state
    from .dygraph.summary import summary
    from .dygraph.weights import load_weights
    from .formats import text
    from .io import load, save
    from .saving.checkpoint import load_checkpoint, save_checkpoint
    from .saving.models import load_model, save_model
    from .transform import graph
    from .transform.compare import diff

__version__ = "0.1.0"

Tensor = LoDTensor

__all__ = [
    "BuildStrategy",
    "CPUPlace",
    "CUDAPinnedPlace",
    "CUDAPlace",
    "CompiledProgram",
    "DataFeeder",
    "DatasetFactory",
    "ExecutionStrategy",
    "Executor",
    "FluidError",
    "LoDTensor",
    "LoDTensorArray",
    "ParallelExecutor",
    "ParamAttr",
    "Parameter",
    "Program",
    "Scope",
    "Tensor",
    "Variable",
    "WeightNormParamAttr",
    "XLAPlace",
    "ahead",
    "append_backward",
    "average",
    "backward",
    "clip",
    "compile_program",
    "compiler",
    "contrib",
    "core",
    "cpu_places",
    "create_lod_tensor",
    "create_random_int_lodtensor",
    "cuda_pinned_places",
    "cuda_places",
    "data",
    "data_feeder",
    "dataset",
    "default_main_program",
    "default_startup_program",
    "device_guard",
    "diff",
    "distributed",
    "dygraph",
    "dygraph_grad_clip",
    "embedding",
    "errors",
    "evaluator",
    "executor",
    "extend",
    "framework",
    "get_flags",
    "get_num_threads",
    "global_scope",
    "gradients",
    "graph",
    "in_dygraph_mode",
    "incubate",
    "initializer",
    "install_check",
    "io",
    "is_compiled_with_cuda",
    "layer_helper",
    "layers",
    "load",
    "load_checkpoint",
    "load_compiled_state",
    "load_model",
    "load_op_library",
    "load_weights",
    "lod_tensor",
    "metrics",
    "name_scope",
    "nets",
    "numpy",
    "one_hot",
    "optimizer",
    "parallel",
    "param_attr",
    "plots",
    "profiler",
    "program_guard",
    "reader",
    "regularizer",
    "require_version",
    "save",
    "save_checkpoint",
    "save_compiled_state",
    "save_model",
    "scope_guard",
    "seed",
    "set_flags",
    "set_num_threads",
    "summary",
    "text",
    "training",
    "unique_name",
]

# Loaded when used: they need more than numpy, or are not always needed.
_LAZY = {
    "ahead": "ahead",
    "bfloat16": "bfloat16",
    "contrib": "contrib",
    "distributed": "distributed",
    "debugger": "debugger",
    "dataset": "dataset",
    "dygraph": "dygraph",
    "dygraph_grad_clip": "dygraph_grad_clip",
    "evaluator": "evaluator",
    "extend": "extend",
    "graph": "transform.graph",
    "incubate": "incubate",
    "install_check": "install_check",
    "io": "io",
    "model_io": "model_io",
    "numpy": "numpy",
    "parallel": "parallel",
    "plots": "plots",
    "profiler": "profiler",
    "reader": "reader",
    "transpiler": "transpiler",
    "text": "formats.text",
}
_OF_DYGRAPH = (
    "BatchNorm", "BilinearTensorProduct", "Conv2D", "Conv2DTranspose", "Conv3D", "Conv3DTranspose", "Embedding", "FC", "GRUUnit",
    "GroupNorm", "InstanceNorm", "Layer", "LayerNorm", "Linear", "NCE", "PRelu", "Pool2D", "RowConv", "SpectralNorm",
    "load_dygraph", "save_dygraph",
)  # fmt: skip
"""Names that are at the top in Fluid 1.6, too."""
_LAZY_FROM = {
    "compile_program": "ahead",
    "diff": "transform.compare",
    "disable_dygraph": "dygraph",
    "disable_imperative": "dygraph.base",
    "enable_dygraph": "dygraph",
    "enable_imperative": "dygraph.base",
    "load": "io",
    "load_checkpoint": "saving.checkpoint",
    "load_compiled_state": "ahead",
    "load_model": "saving.models",
    "load_program_state": "io",
    "load_weights": "dygraph.weights",
    "memory_optimize": "transpiler",
    "optimize_for_inference": "transform.inference",
    "quantize_model": "transform.quantization",
    "release_memory": "transpiler",
    "save": "io",
    "save_checkpoint": "saving.checkpoint",
    "save_compiled_state": "ahead",
    "save_model": "saving.models",
    "set_program_state": "io",
    "summary": "dygraph.summary",
}


_LAZY_FROM |= dict.fromkeys(_OF_DYGRAPH, "dygraph")
_not_here = names_not_here(__name__)
install_hooks()
stand_in_modules()


def __getattr__(name: str) -> Any:
    module = _LAZY.get(name) or _LAZY_FROM.get(name)
    if module is None:
        return _not_here(name)
    from importlib import import_module

    attribute = import_module(f"{__name__}.{module}")
    return attribute if name in _LAZY else getattr(attribute, name)


def __dir__() -> list[str]:
    return sorted({*__all__, *_LAZY, *_LAZY_FROM})
