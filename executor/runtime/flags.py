"""Paddle's flags by name. Two have an effect here; the others keep the value that they are given."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from fluid.errors import FluidTypeError, ProgramError, did_you_mean

from .threads import checked_count, get_num_threads, set_num_threads

_START = "FLAGS_"
_THREADS, _CHECK = "paddle_num_threads", "check_nan_inf"
_VALUES: dict[str, bool | int | float | str] = {
    "allocator_strategy": "auto_growth",
    "benchmark": False,
    "check_nan_inf": False,
    "conv_workspace_size_limit": 512,
    "cpu_deterministic": False,
    "cudnn_batchnorm_spatial_persistent": False,
    "cudnn_deterministic": False,
    "cudnn_exhaustive_search": False,
    "cudnn_exhaustive_search_times": -1,
    "eager_delete_scope": True,
    "eager_delete_tensor_gb": 0.0,
    "enable_cublas_tensor_op_math": False,
    "enable_parallel_graph": False,
    "enable_rpc_profiler": False,
    "fast_eager_deletion_mode": True,
    "fraction_of_cpu_memory_to_use": 1.0,
    "fraction_of_cuda_pinned_memory_to_use": 0.5,
    "fraction_of_gpu_memory_to_use": 0.92,
    "free_idle_chunk": False,
    "fuse_parameter_groups_size": 1,
    "fuse_parameter_memory_size": -1.0,
    "init_allocated_mem": False,
    "initial_cpu_memory_in_mb": 500,
    "initial_gpu_memory_in_mb": 0,
    "inner_op_parallelism": 0,
    "max_inplace_grad_add": 0,
    "memory_fraction_of_eager_deletion": 1.0,
    "multiple_of_cupti_buffer_size": 1,
    "pe_profile_fname": "",
    "print_sub_graph_dir": "",
    "reader_queue_speed_test_mode": False,
    "reallocate_gpu_memory_in_mb": 0,
    "rpc_deadline": 180000,
    "rpc_retry_times": 3,
    "selected_gpus": "",
    "sync_nccl_allreduce": True,
    "use_mkldnn": False,
    "use_ngraph": False,
    "use_pinned_memory": True,
}


def checks_every_run() -> bool:
    """Whether every run of a program checks for NaN and infinities, by the flag."""
    return bool(_VALUES[_CHECK])


def set_flags(flags: Mapping[str, Any]) -> None:
    """Set flags of Paddle 1.8.

    ``FLAGS_paddle_num_threads`` is `fluid.set_num_threads`; with ``FLAGS_check_nan_inf``, each `Executor.run` is one with
    ``check_nan=True``. All others are kept for `get_flags`, and change nothing.

    Args:
        flags: name -> value; all are checked before any is set.

    Raises:
        FluidTypeError: `flags` is no dict, or a value is of another type than the flag.
        ProgramError: a name is unknown.

    >>> fluid.set_flags({"FLAGS_eager_delete_tensor_gb": 1.0})
    >>> fluid.get_flags("FLAGS_eager_delete_tensor_gb")
    {'FLAGS_eager_delete_tensor_gb': 1.0}
    """
    if not isinstance(flags, Mapping):
        raise FluidTypeError(f"set_flags takes a dict of names and values, not a {type(flags).__name__}")
    checked = {_short_name(name): _converted(name, value) for name, value in flags.items()}
    threads = checked.pop(_THREADS, None)
    _VALUES.update(checked)
    if threads is not None:
        set_num_threads(int(threads))


def get_flags(flags: str | Sequence[str]) -> dict[str, Any]:
    """The values of flags of Paddle 1.8, by name.

    Args:
        flags: a name, or a list of names.

    Raises:
        FluidTypeError: `flags` is neither.
        ProgramError: a name is unknown.

    >>> fluid.get_flags(["FLAGS_benchmark", "FLAGS_check_nan_inf"])
    {'FLAGS_benchmark': False, 'FLAGS_check_nan_inf': False}
    """
    if not isinstance(flags, (str, list, tuple)):
        raise FluidTypeError(f"get_flags takes a name or a list of names, not a {type(flags).__name__}")
    return {name: _current(_short_name(name)) for name in ([flags] if isinstance(flags, str) else flags)}


def _short_name(name: Any) -> str:
    """The name of a flag without ``FLAGS_``."""
    short = name[len(_START) :] if isinstance(name, str) and name.startswith(_START) else None
    if short is None or (short not in _VALUES and short != _THREADS):
        names = [_START + item for item in (*_VALUES, _THREADS)]
        raise ProgramError(f"there is no flag {name!r}{did_you_mean(str(name), names)}")
    return short


def _current(name: str) -> Any:
    """The value of a flag, by its short name."""
    return get_num_threads() if name == _THREADS else _VALUES[name]


def _converted(name: str, value: Any) -> Any:
    """The value in the type of its flag: an int serves for a float, and 0 and 1 for False and True."""
    kind = type(_current(_short_name(name)))
    if kind is bool:
        fits = value in (0, 1)
    else:
        fits = type(value) is kind or (kind is float and isinstance(value, (float, int)))
    if not fits:
        raise FluidTypeError(f"{name} should be of type {kind.__name__}, not {value!r}")
    return checked_count(value) if name == _START + _THREADS else kind(value)
