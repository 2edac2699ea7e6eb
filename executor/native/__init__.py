"""Native code: plans as tables of compiled kernels, made with llvmlite (the extra ``native``)."""

from __future__ import annotations

import os
from importlib.util import find_spec

from .regions import CLEARED, Check, Region
from .tables import Tables

__all__ = ["CLEARED", "Check", "Region", "Tables", "is_available", "native_regions"]


def is_available() -> bool:
    return os.environ.get("FLUID_NATIVE", "1") != "0" and find_spec("llvmlite") is not None


def native_regions(instructions, specs, kept, storage):
    from . import ops, recurrent  # noqa: F401
    from .compiler import host
    from .regions import native_regions as regions

    return regions(instructions, specs, kept, storage, host().vector_bytes // 4)
