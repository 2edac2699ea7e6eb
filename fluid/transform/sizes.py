"""Programs for certain sizes: shapes are computed in advance, and branches decided."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ..errors import ElementTypeError, InferenceError, NameNotFoundError, ProgramError, did_you_mean
from ..executor.binding.constants import LISTS, make_constant
from ..executor.planned.specialization import deciding_names, specialize
from ..executor.runtime.scope import Scope
from ..executor.stepwise.debug import has_effect
from ..ir.dataflow import needed_ops
from ..ir.program import Block, Operator, Program, Variable
from ..ir.versions import BlockVersions
from ..values.types import as_dtype

_MOST = 4096
"""The most elements of a constant in a program."""


def with_sizes(
    program: Program,
    sizes: Mapping[str, Sequence[int | None]] | None = None,
    constants: Mapping[str, Any] | None = None,
    scope: Scope | None = None,
) -> Program:
    """A copy of a program for certain sizes and values of its feeds; see `Program.with_sizes`."""
    deciding = deciding_names(program)
    new = program.clone()
    block = new.global_block()
    shapes = {name: _shape_of(_fed(block, name), shape) for name, shape in (sizes or {}).items()}
    arrays = {name: scope.array(name) for name in deciding if scope is not None and name not in (constants or {})}
    held = {name: np.asarray(array) for name, array in arrays.items() if array is not None and array.size <= _MOST}
    for name, value in (constants or {}).items():
        _make_constant(block, _fed(block, name), np.asarray(value))
    read = {name for home in new.blocks for op in home.ops for name in op.input_arg_names}
    specialize(new, shapes, held)
    _drop_unread(new, read)
    return new


def _fed(block: Block, name: str) -> Variable:
    """A variable that is fed, by name."""
    var = block.vars.get(name)
    if var is None or not var.is_data:
        names = [var.name for var in block.vars.values() if var.is_data]
        raise NameNotFoundError(f"with_sizes: the program is fed no {name!r}{did_you_mean(name, names)}")
    return var


def _shape_of(var: Variable, shape: Sequence[int | None]) -> tuple[int, ...]:
    """The shape of a fed variable with sizes, None or -1 for sizes that stay open."""
    sizes = [-1 if size is None else int(size) for size in shape]
    fits = len(sizes) == var.ndim and all(
        size >= -1 and (-1 in (size, declared) or size == declared) for size, declared in zip(sizes, var.shape, strict=True)
    )
    if not fits:
        raise InferenceError(f"with_sizes: the sizes {list(shape)} of {var.name} do not fit {var.describe()}")
    return tuple(declared if size < 0 else size for size, declared in zip(sizes, var.shape, strict=True))


def _make_constant(block: Block, var: Variable, value: Any) -> None:
    """Make a fed variable one that an op makes."""
    if as_dtype(value.dtype) is not var.dtype:
        raise ElementTypeError(
            f"with_sizes: the constant for {var.name} is of {value.dtype}; {var.describe()} takes {var.dtype.text}"
        )
    fits = value.ndim == var.ndim and all(size in (-1, have) for size, have in zip(var.shape, value.shape, strict=True))
    if not fits:
        raise InferenceError(
            f"with_sizes: the constant for {var.name} has shape {list(value.shape)}, not that of {var.describe()}"
        )
    if value.size > _MOST or value.dtype.name not in LISTS:
        raise ProgramError(
            f"with_sizes: the constant for {var.name} is {value.size} numbers of {value.dtype}; a program holds up to {_MOST} of "
            f"{', '.join(LISTS)}"
        )
    var.is_data, var.need_check_feed, var._shape = False, False, value.shape
    block.ops = [op for op in block.ops if op.type != "feed" or var.name not in op.output_arg_names]
    op_type, attrs = make_constant(value)
    block.ops.insert(0, Operator(block, op_type, {}, {"Out": [var.name]}, attrs, ()))


def _drop_unread(program: Program, read_before: set[str]) -> None:
    """Remove ops of block 0 whose results were read before, and are not any more."""
    block = program.global_block()

    def stays(op: Operator) -> bool:
        names = op.output_arg_names
        return has_effect(op) or read_before.isdisjoint(names) or any(block.var(name).persistable for name in names)

    versions = BlockVersions(block)
    block.ops = [versions.ops[index] for index in needed_ops(versions, set(), also=stays)]
    remaining = {name for op in block.ops for name in op.output_arg_names}
    for name in {name for op in versions.ops for name in op.output_arg_names} - remaining:
        if not block.vars[name].is_data:
            del block.vars[name]
