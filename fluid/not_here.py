"""Names of Fluid 1.6 to 1.8 without a meaning here, and the reasons. Scripts may import them; using one raises an error with its
reason."""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec
from types import ModuleType
from typing import Any, NoReturn

from .errors import MissingAttributeError, ProgramError, did_you_mean

__all__ = ["NOT_HERE", "NotHere", "names_here", "names_not_here", "stand_in_modules"]

_NO_SERVERS = (
    "there are no parameter servers here; all processes are workers that sum their gradients: fluid.incubate.fleet.collective"
)
_DATASETS = "datasets are read in this process: fluid.DatasetFactory makes them, and their methods describe the files"
_COMPRESSION = "Paddle's compression of models is not here"
_SEARCH = "ops of search engines are not here"
_SERVERS = "it reads tables of parameter servers"

NOT_HERE: dict[str, str] = {
    "fluid.DataFeedDesc": _DATASETS,
    "fluid.DistributeTranspiler": _NO_SERVERS,
    "fluid.DistributeTranspilerConfig": _NO_SERVERS,
    "fluid.communicator": _NO_SERVERS,
    "fluid.contrib.Compressor": _COMPRESSION,
    "fluid.contrib.HDFSClient": "files of Hadoop are not read here",
    "fluid.contrib.QuantizeTranspiler": _COMPRESSION,
    "fluid.contrib.convert_dist_to_sparse_program": _NO_SERVERS,
    "fluid.contrib.ctr_metric_bundle": "its sums are layers.reduce_sum of differences and products of input and label",
    "fluid.contrib.fused_embedding_seq_pool": "layers.embedding and layers.sequence_pool, one after the other, compute the same",
    "fluid.contrib.layers.correlation": "an op of optical flow, which Paddle has for GPUs alone",
    "fluid.contrib.layers.fused_embedding_seq_pool": "layers.embedding, then layers.sequence_pool, computes the same",
    "fluid.contrib.layers.match_matrix_tensor": "its layer is not here, its op is, fluid.extend.ops().match_matrix_tensor",
    "fluid.contrib.layers.search_pyramid_hash": _SERVERS,
    "fluid.contrib.layers.sequence_topk_avg_pooling": _SEARCH,
    "fluid.contrib.layers.tdm_sampler": "its layer is not here, its op is: fluid.extend.ops().tdm_sampler",
    "fluid.contrib.layers.tree_conv": _SEARCH,
    "fluid.contrib.layers.var_conv_2d": "its layer is not here, its op is: fluid.extend.ops().var_conv_2d",
    "fluid.contrib.int8_inference": _COMPRESSION,
    "fluid.contrib.load_persistables_for_increment": _NO_SERVERS,
    "fluid.contrib.load_persistables_for_inference": _NO_SERVERS,
    "fluid.contrib.match_matrix_tensor": "its layer is not here, its op is: fluid.extend.ops().match_matrix_tensor",
    "fluid.contrib.multi_download": "files of Hadoop are not read here",
    "fluid.contrib.multi_upload": "files of Hadoop are not written here",
    "fluid.contrib.quantize": _COMPRESSION,
    "fluid.contrib.search_pyramid_hash": _SERVERS,
    "fluid.contrib.sparse_embedding": _SERVERS,
    "fluid.contrib.sequence_topk_avg_pooling": _SEARCH,
    "fluid.contrib.slim": _COMPRESSION,
    "fluid.contrib.tree_conv": _SEARCH,
    "fluid.contrib.utils": "files of Hadoop and tables of parameter servers are not read here",
    "fluid.contrib.var_conv_2d": "its layer is not here, its op is: fluid.extend.ops().var_conv_2d",
    "fluid.core.Graph": "programs are changed as programs here: program.replace, insert, prune, ...",
    "fluid.core.get_pass": "programs are changed as programs here: program.replace, insert, prune, ...",
    "fluid.core.get_fetch_variable": "fetch_list is an argument of Executor.run, which returns what is fetched",
    "fluid.core.set_feed_variable": "feed is an argument of Executor.run",
    "fluid.data_feed_desc": _DATASETS,
    "fluid.distribute_lookup_table": _NO_SERVERS,
    "fluid.dygraph.Tracer": "it records ops in C++; fluid.dygraph.trace gives a program of what ran",
    "fluid.dygraph.TreeConv": _SEARCH,
    "fluid.executor.FetchHandler": _DATASETS,
    "fluid.framework.IrGraph": "programs are changed as programs here: program.replace, insert, prune, ...",
    "fluid.framework.OpProtoHolder": "fluid.opdef.registry.find(op_type) has the definition of an op",
    "fluid.incubate.fleet.parameter_server": _NO_SERVERS,
    "fluid.incubate.fleet.utils": "files of Hadoop and tables of parameter servers are not read here",
    "fluid.layers.io.ListenAndServ": _NO_SERVERS,
    "fluid.layers.io.Recv": _NO_SERVERS,
    "fluid.layers.io.Send": _NO_SERVERS,
    "fluid.op": "an op runs as part of a program; fluid.extend.ops() has each as a function that appends it",
    "fluid.trainer_desc": _DATASETS,
    "fluid.trainer_factory": _DATASETS,
    "fluid.transpiler.DistributeTranspiler": _NO_SERVERS,
    "fluid.transpiler.DistributeTranspilerConfig": _NO_SERVERS,
    "fluid.transpiler.HashName": _NO_SERVERS,
    "fluid.transpiler.RoundRobin": _NO_SERVERS,
    "fluid.transpiler.distribute_transpiler": _NO_SERVERS,
}  # fmt: skip
"""Name -> the reason, and the replacement."""


_ELSEWHERE = {
    "fluid.Session": "Executor",
    "fluid.constant": "layers.fill_constant",
    "fluid.cuda": "fluid.is_compiled_with_cuda() or fluid.CUDAPlace(0)",
    "fluid.dygraph.AvgPool2d": "AvgPool2D",
    "fluid.dygraph.Dense": "Linear",
    "fluid.dygraph.Module": "Layer",
    "fluid.dygraph.ModuleList": "LayerList",
    "fluid.from_numpy": "fluid.dygraph.to_variable",
    "fluid.keras": "fluid.layers, or fluid.dygraph for eager layers",
    "fluid.layers.Input": "fluid.data",
    "fluid.layers.Dense": "fc",
    "fluid.layers.avg_pool2d": "pool2d(..., pool_type='avg')",
    "fluid.layers.bce_loss": "log_loss",
    "fluid.layers.cat": "concat",
    "fluid.layers.conv": "conv2d",
    "fluid.layers.dense": "fc",
    "fluid.layers.linear": "fc",
    "fluid.layers.max_pool2d": "pool2d",
    "fluid.layers.permute": "transpose",
    "fluid.layers.view": "reshape",
    "fluid.manual_seed": "fluid.seed",
    "fluid.models": "fluid.dygraph.Layer, for a model of your own, or fluid.load_model",
    "fluid.nn": "fluid.dygraph for eager layers, fluid.layers for programs",
    "fluid.numpy.absolute": "abs",
    "fluid.numpy.amax": "max",
    "fluid.numpy.amin": "min",
    "fluid.numpy.arccos": "acos",
    "fluid.numpy.arcsin": "asin",
    "fluid.numpy.arctan": "atan",
    "fluid.numpy.arctan2": "atan2",
    "fluid.numpy.array": "asarray",
    "fluid.numpy.concatenate": "concat",
    "fluid.numpy.cumprod": "cumulative_prod",
    "fluid.numpy.cumsum": "cumulative_sum",
    "fluid.numpy.dot": "matmul, or x @ y",
    "fluid.numpy.hstack": "concat",
    "fluid.numpy.inner": "vecdot",
    "fluid.numpy.invert": "bitwise_invert",
    "fluid.numpy.norm": "linalg.vector_norm",
    "fluid.numpy.outer": "linalg.outer",
    "fluid.numpy.power": "pow",
    "fluid.numpy.swapaxes": "moveaxis",
    "fluid.numpy.trace": "linalg.trace",
    "fluid.numpy.transpose": "permute_dims, or x.T of a matrix",
    "fluid.numpy.true_divide": "divide",
    "fluid.numpy.unique": "unique_values",
    "fluid.numpy.vstack": "concat",
    "fluid.optim": "fluid.optimizer",
    "fluid.placeholder": "fluid.data",
    "fluid.tensor": "fluid.dygraph.to_variable",
}
"""Names of other frameworks -> the names here, which are not spelt alike."""


class NotHere(ModuleType):
    """A stand-in for a name, or a module of names, without a meaning here: using it raises an error with the reason."""

    def __init__(self, name: str, why: str) -> None:
        super().__init__(name)
        self.__dict__["_why"] = why
        self.__path__: list[str] = []

    def _refuse(self, member: str = "") -> NoReturn:
        raise ProgramError(f"{self.__name__}{member} of Paddle's Fluid is not here: {self._why}")

    def __call__(self, *args: Any, **kwargs: Any) -> NoReturn:
        self._refuse()

    def __mro_entries__(self, bases: Any) -> NoReturn:
        self._refuse()

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return NotHere(f"{self.__name__}.{name}", self._why)


def names_not_here(module: str, hint: str = "") -> Callable[[str], Any]:
    """A ``__getattr__`` for a module: stand-ins for its names in `NOT_HERE`, an `AttributeError`, with `hint`, for any other."""

    def get(name: str) -> Any:
        why = NOT_HERE.get(f"{module}.{name}")
        if why is None:
            text = f"module {module!r} has no attribute {name!r}{hint}"
            if not name.startswith("_"):
                elsewhere = _ELSEWHERE.get(f"{module}.{name}") or (None if _is_module(module, name) else _module_of(name))
                text += f"; did you mean {elsewhere}?" if elsewhere else did_you_mean(name, dir(sys.modules[module]))
            raise MissingAttributeError(text)
        return NotHere(f"{module}.{name}", why)

    return get


def _is_module(package: str, name: str) -> bool:
    """Whether a package has a module of this name: ``from package import name`` looks for an attribute first."""
    return name.isidentifier() and hasattr(sys.modules[package], "__path__") and find_spec(f"{package}.{name}") is not None


def _module_of(name: str) -> str | None:
    """The name with the module of Fluid that has it."""
    for module in _LIKELY:
        if name in getattr(import_module(module), "__all__", ()):  # none while it is being imported
            return f"{module}.{name}"
    return None


_LIKELY = (
    "fluid.layers",
    "fluid.dygraph",
    "fluid.optimizer",
    "fluid.io",
    "fluid.initializer",
    "fluid.metrics",
    "fluid.training",
    "fluid",
)
"""Where a name may be that was looked for in another module, the likeliest first."""


def names_here(module: str) -> Callable[[], list[str]]:
    """A ``__dir__`` for a module: only the names in its ``__all__``."""
    return lambda: sorted(sys.modules[module].__all__)


_MODULES = (
    "communicator", "contrib.int8_inference", "contrib.quantize",
    "contrib.quantize.quantize_transpiler", "contrib.slim", "contrib.slim.core", "contrib.slim.graph", "contrib.slim.prune",
    "contrib.slim.quantization", "contrib.utils", "contrib.utils.hdfs_utils", "contrib.utils.lookup_table_utils",
    "data_feed_desc", "distribute_lookup_table",
    "incubate.fleet.parameter_server", "incubate.fleet.parameter_server.distribute_transpiler",
    "incubate.fleet.parameter_server.pslib", "incubate.fleet.utils", "op", "trainer_desc",
    "trainer_factory", "transpiler.distribute_transpiler", "transpiler.ps_dispatcher",
)  # fmt: skip
"""Modules of Fluid 1.6 with such names only."""


def stand_in_modules() -> None:
    """Let scripts import modules that only have names without a meaning here."""
    for path in _MODULES:
        parts = ["fluid", *path.split(".")]
        starts = (".".join(parts[:count]) for count in range(len(parts), 1, -1))
        why = next((NOT_HERE[start] for start in starts if start in NOT_HERE), _NO_SERVERS)
        sys.modules.setdefault(f"fluid.{path}", NotHere(f"fluid.{path}", why))
