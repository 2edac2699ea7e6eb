"""Stores frozen weights in fewer bytes. They become numbers of float32 again where an op reads them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..errors import ProgramError, did_you_mean
from ..executor import Scope
from ..ir.program import Block, Operator, Program, Variable
from ..ir.roles import OpRole
from ..values.types import VarType

FROZEN_TYPES = ("float32", "float16", "int8")
"""How a library may store frozen weights."""
_TABLES = ("lookup_table", "lookup_table_v2")
"""Ops that read a few rows of a weight: they would make numbers of the whole table first."""
_GREATEST = 127


def compress_weights(program: Program, names: Sequence[str], dtype: str, scope: Scope) -> tuple[list[str], Scope]:
    """Let a program read some of its parameters from constants of 8 or 16 bits.

    Vectors, tables of rows, parameters of other types than float32, and parameters of loops and branches stay as they are.

    Args:
        program: the program to change.
        names: parameters that are not updated.
        dtype: one of `FROZEN_TYPES`.
        scope: holds the parameters.

    Returns:
        The names of the constants in place of `names`, and a scope that holds these, too.

    Raises:
        ProgramError: the type is none, nothing is frozen, or a weight is not finite or too large.
    """
    if dtype not in FROZEN_TYPES:
        raise ProgramError(f"frozen_as: weights are stored as {', '.join(FROZEN_TYPES)}{did_you_mean(dtype, FROZEN_TYPES)}")
    if dtype == "float32":
        return list(names), scope
    if not names:
        raise ProgramError(f"frozen_as: no parameter is frozen, so none can be stored as {dtype}; name some with freeze")
    inner = Scope(scope)
    inner.runs = scope.runs
    constants: list[str] = []
    for name in names:
        var, readers = program.global_block().var(name), _readers(program, name)
        if var.dtype is VarType.FP32 and len(var.shape) > 1 and readers is not None:
            constants += _compressed(var, readers, dtype, inner)
        else:
            constants.append(name)
    return constants, inner


def _readers(program: Program, name: str) -> list[Operator] | None:
    """The ops that read a parameter; None if they have blocks or lie in one, or read rows."""
    readers = [op for block in program.blocks for op in block.ops if name in op.input_arg_names]
    are_plain = all(op.block.idx == 0 and not op.sub_blocks and op.type not in _TABLES for op in readers)
    return readers if are_plain else None


def _compressed(weight: Variable, readers: Sequence[Operator], dtype: str, scope: Scope) -> list[str]:
    """Store a weight as constants, and let each reader read numbers made of them; returns the names of the constants."""
    array = np.asarray(scope.array(weight.name))
    axis = 0 if array.ndim > 2 else array.ndim - 1
    constants = _halves(weight.name, array) if dtype == "float16" else _bytes(weight.name, array, axis)
    block = weight.block
    stored = [_constant(block, f"{weight.name}.{suffix}", value, scope) for suffix, value in constants.items()]
    for op in readers:
        op.rename_input(weight.name, _read(block, op, stored, axis))
    return [constant.name for constant in stored]


def _halves(name: str, array: Any) -> dict[str, Any]:
    with np.errstate(over="ignore"):
        halves = array.astype(np.float16)
    if not np.isfinite(halves).all():
        raise ProgramError(f"frozen_as: {name} has numbers beyond float16; store it as int8 or float32")
    return {"float16": halves}


def _bytes(name: str, array: Any, axis: int) -> dict[str, Any]:
    """Signed bytes, and a scale for each output of the layer."""
    largest = np.abs(array).max(tuple(place for place in range(array.ndim) if place != axis), keepdims=True)
    if not np.isfinite(largest).all():
        raise ProgramError(f"frozen_as: {name} is not finite, so int8 cannot hold it")
    scales = np.where(largest > 0, largest / np.float32(_GREATEST), np.float32(1))
    levels = np.clip(np.rint(array / scales), -_GREATEST, _GREATEST).astype(np.int8)
    return {"int8": levels, "scales": scales.astype(np.float32).reshape(-1)}


def _constant(block: Block, name: str, value: Any, scope: Scope) -> Variable:
    scope.put(name, value)
    return block.create_var(name=name, shape=list(value.shape), dtype=value.dtype.name, persistable=True)


def _read(block: Block, op: Operator, stored: Sequence[Variable], axis: int) -> str:
    """Insert ops before a reader that make numbers of the constants; returns the name of these."""
    numbers, *scales = stored
    attrs = {"in_dtype": int(numbers.dtype), "out_dtype": int(VarType.FP32)}
    name = _insert(block, op, "cast", {"X": numbers.name}, attrs)
    for scale in scales:
        name = _insert(block, op, "elementwise_mul", {"X": name, "Y": scale.name}, {"axis": axis})
    return name


def _insert(block: Block, op: Operator, op_type: str, inputs: dict[str, str], attrs: dict[str, Any]) -> str:
    """Insert an op before another one, in its role; returns the name of its output."""
    out = block.create_var(name=block.fresh_name(f"{inputs['X']}.read"))
    role = {OpRole.NAME: op.role}
    block.insert_op(block.ops.index(op), type=op_type, inputs=inputs, outputs={"Out": out}, attrs={**attrs, **role})
    return out.name
