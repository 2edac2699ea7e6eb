"""Numbers of 16 bits with the range of float32: kept as files have them, and turned into float32 to compute with.

numpy has no such type. Here an array of `BFLOAT16` has elements of one field, the two bytes: it can be copied, cut and
saved, but not added up. `to_float32` is exact; `to_bfloat16` rounds to nearest, ties to even.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from .framework import Program
from .types import BFLOAT16, VarType

__all__ = ["BFLOAT16", "as_bits", "to_bfloat16", "to_float32", "widen"]

_DTYPE_ATTRS = ("dtype", "in_dtype", "out_dtype", "data_type")


def to_float32(array: Any) -> Any:
    """An array of `BFLOAT16`, or of the same bits as uint16, as float32; the values are the same."""
    bits = np.ascontiguousarray(array).view("<u2").astype(np.uint32) << 16
    return bits.view(np.float32).reshape(np.shape(array))


def as_bits(array: Any) -> Any:
    """An array of `BFLOAT16` as uint16, which every format can hold; any other as it is."""
    return array.view("<u2") if array.dtype == BFLOAT16 else array


def to_bfloat16(array: Any) -> Any:
    """The nearest values of `BFLOAT16`; NaN stays NaN, what is too large becomes infinite."""
    values = np.ascontiguousarray(array, np.float32)
    bits = values.view(np.uint32)
    rounded = ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16).astype("<u2")
    return np.where(np.isnan(values), (bits >> 16 | 0x40).astype("<u2"), rounded).view(BFLOAT16).reshape(np.shape(array))


def widen(program: Program, scope: Any = None) -> list[str]:
    """Make a program of bfloat16 one of float32, which runs here, and its values in the scope (the current one) likewise.

    Returns:
        Names of the variables that have changed.
    """
    from .executor import global_scope

    scope = scope if scope is not None else global_scope()
    changed = []
    for block in program.blocks:
        for name, var in block.vars.items():
            if var.has_dtype and var.dtype is VarType.BF16:
                var.dtype = VarType.FP32
                changed.append(name)
                array = scope.array(name) if var.persistable else None
                if array is not None and array.dtype == BFLOAT16:
                    scope.put(name, to_float32(array))
        for op in block.ops:
            for attr in _DTYPE_ATTRS:
                if op.attrs.get(attr) == VarType.BF16:
                    op.attrs[attr] = int(VarType.FP32)
    program._changed()
    return changed
