"""Names that Fluid programs take from ``fluid.core``."""

from __future__ import annotations

from .errors import EOFException
from .executor.scope import LoDTensor, Scope
from .values.place import CPUPlace, CUDAPinnedPlace, CUDAPlace, is_compiled_with_cuda
from .values.types import VarType

__all__ = [
    "CPUPlace",
    "CUDAPinnedPlace",
    "CUDAPlace",
    "EOFException",
    "LoDTensor",
    "Scope",
    "VarDesc",
    "get_cuda_device_count",
    "is_compiled_with_cuda",
]


class VarDesc:
    """Holds `VarType`, as in ``core.VarDesc.VarType.FP32``."""

    VarType = VarType


def get_cuda_device_count() -> int:
    """How many CUDA devices cupy sees; 0 where it is not installed."""
    if not is_compiled_with_cuda():
        return 0
    import cupy

    return int(cupy.cuda.runtime.getDeviceCount())
