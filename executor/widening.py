"""Converts programs with bfloat16, which cupy lacks, to copies in float32."""

from __future__ import annotations

from typing import Any

from fluid.ir.frames import warn_user
from fluid.ir.program import Program
from fluid.values.bfloat16 import to_float32
from fluid.values.types import BFLOAT16, VarType

from .binding.halves import DTYPE_ATTRS
from .runtime.scope import Scope

__all__ = ["holds_bfloat16", "widen_in_place", "widened_copy"]


def holds_bfloat16(program: Program) -> bool:
    """Whether a variable of the program has elements of bfloat16."""
    return any(var._dtype is VarType.BF16 for block in program.blocks for var in block.vars.values())


def widened_copy(program: Program, scope: Scope) -> Program:
    """Copy a program with bfloat16 replaced by float32, also in its values in the scope; warns the user."""
    copy = program.clone()
    names = widen_in_place(copy, scope)
    listed = ", ".join(names[:3]) + (", ..." if len(names) > 3 else "")
    warn_user(
        f"the program has bfloat16 ({listed}), which cupy lacks: it runs as float32, which rounds less; "
        "fluid.bfloat16.widen(program) makes the program say so"
    )
    return copy


def widen_in_place(program: Program, scope: Scope) -> list[str]:
    """Convert a program, and its values in the scope, from bfloat16 to float32; returns the names of converted variables."""
    changed = []
    for block in program.blocks:
        for name, var in block.vars.items():
            if var.has_dtype and var.dtype is VarType.BF16:
                var.dtype = VarType.FP32
                changed.append(name)
                array: Any = scope.array(name) if var.persistable else None
                if array is not None and array.dtype == BFLOAT16:
                    scope.put(name, to_float32(array))
        for op in block.ops:
            for attr in DTYPE_ATTRS:
                if op.attrs.get(attr) == VarType.BF16:
                    op.attrs[attr] = int(VarType.FP32)
    program._changed()
    return changed
