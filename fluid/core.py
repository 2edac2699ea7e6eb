"""The names that scripts use from ``fluid.core``."""

from __future__ import annotations

from .errors import EOFException
from .executor.scope import LoDTensor, Scope
from .values.place import CPUPlace, CUDAPinnedPlace, CUDAPlace, get_cuda_device_count, is_compiled_with_cuda
from .values.types import VarType

__all__ = [
    "CPUPlace", "CUDAPinnedPlace", "CUDAPlace", "EOFException", "LoDTensor", "Scope", "VarDesc", "get_cuda_device_count",
    "is_compiled_with_cuda",
]  # fmt: skip


class VarDesc:
    """Holds `VarType`, as in ``core.VarDesc.VarType.FP32``."""

    VarType = VarType
