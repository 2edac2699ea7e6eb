"""Converts programs from bfloat16 to float32."""

from __future__ import annotations

from typing import Any

from ..executor.scope import global_scope
from ..formats.bfloat16 import to_float32
from ..ir.program import Program
from ..values.types import BFLOAT16, VarType

_DTYPE_ATTRS = ("dtype", "in_dtype", "out_dtype", "data_type")


def widen(program: Program, scope: Any = None) -> list[str]:
    """Convert a program, and its values in the scope (the current one if None), from bfloat16 to float32, which runs here.

    Returns:
        Names of the converted variables.
    """
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
