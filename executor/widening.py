"""Converts programs with bfloat16, which cupy lacks, to copies in float32."""

from __future__ import annotations

import weakref
from typing import Any

from fluid.ir.frames import warn_user
from fluid.ir.program import Program
from fluid.values.bfloat16 import to_float32
from fluid.values.types import BFLOAT16, VarType

from .binding.halves import DTYPE_ATTRS
from .runtime.scope import Scope


class WidenedPrograms:
    """Cached copies in float32 of programs with bfloat16."""

    def __init__(self) -> None:
        self._copies: weakref.WeakKeyDictionary[Program, tuple[int, Program | None]] = weakref.WeakKeyDictionary()
        """Program -> its version, and its copy in float32 if it has bfloat16."""

    def copy_of(self, program: Program, scope: Scope) -> Program:
        """The copy of a program, whose values in the scope are converted; the program itself if it has no bfloat16."""
        version, copy = self._copies.get(program, (-1, None))
        if version != program.version:
            copy = _widened_copy(program, scope) if holds_bfloat16(program) else None
            self._copies[program] = program.version, copy
        return program if copy is None else copy


def holds_bfloat16(program: Program) -> bool:
    """Whether a variable of the program has elements of bfloat16."""
    return any(var._dtype is VarType.BF16 for block in program.blocks for var in block.vars.values())


def _widened_copy(program: Program, scope: Scope) -> Program:
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
