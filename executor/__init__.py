"""Run time: how a program is computed."""

from typing import TYPE_CHECKING

from fluid.not_here import names_here, names_not_here
from fluid.values.place import CPUPlace, CUDAPinnedPlace, CUDAPlace, is_compiled_with_cuda

from .executor import Executor
from .fetching import _fetch_var, as_numpy
from .runtime.scope import LoDTensor, Scope, global_scope, scope_guard
from .stepwise import beam_search, collective, debug, files, rank_table  # noqa: F401  (they fill the table of handlers)

__all__ = [
    "CPUPlace",
    "CUDAPinnedPlace",
    "CUDAPlace",
    "Executor",
    "LoDTensor",
    "Scope",
    "_fetch_var",
    "as_numpy",
    "global_scope",
    "is_compiled_with_cuda",
    "scope_guard",
]

__dir__ = names_here(__name__)

if not TYPE_CHECKING:
    __getattr__ = names_not_here(__name__)
