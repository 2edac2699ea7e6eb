"""Divides tables and the state of optimizers among the workers of a training program, so that each holds a part of them."""

from __future__ import annotations

from collections.abc import Iterable
from math import prod
from typing import Any

from ..distributed.parts import Division, FlatDivision, RowDivision
from ..errors import ProgramError
from ..ir.copying import RANDOM_STREAM
from ..ir.nesting import walk
from ..ir.program import Block, Operator, OpRole, Program, Variable
from ..opdef import registry
from ..values.types import VarType
from .data_parallel import buckets

_LOOKUPS = {"lookup_table": True, "lookup_table_v2": False}
"""The types of ops that look up rows; whether the last dimension of the ids is 1 and left out."""
_ELEMENTWISE = frozenset(
    [
        "adadelta",
        "adagrad",
        "adam",
        "adamax",
        "adamw",
        "decayed_adagrad",
        "ftrl",
        "lion",
        "momentum",
        "nadam",
        "proximal_adagrad",
        "radam",
        "rmsprop",
    ]
)
"""Optimizers with a state that update each element by itself."""
_PARAMETER_SLOTS = ("Param", "Grad", "LearningRate")


# ---------------------------------------------------------------------------------------------------------------- tables
def divide_tables(program: Program, startup: Program, workers: int) -> list[Variable]:
    """Divide the tables of embeddings with `is_distributed` by rows, before backward is appended.

    The startup program still makes each table, with the same values as in one process, and keeps this worker's rows.

    Args:
        program: the training program.
        startup: makes the tables.
        workers: how many there are.

    Returns:
        The tables.

    Raises:
        ProgramError: something but an embedding uses a table.
    """
    block = program.global_block()
    lookups = [op for part in program.blocks for op in part.ops if op.type in _LOOKUPS and op.attr("is_distributed")]
    names = dict.fromkeys(op.input("W")[0] for op in lookups)
    for part in program.blocks:
        for op in part.ops:
            used = names.keys() & {*op.input_arg_names, *op.output_arg_names}
            if used and op not in lookups:
                raise ProgramError(
                    f"the table {min(used)} is divided among the workers (is_distributed=True), so only embeddings with "
                    f"is_distributed=True can use it, not {op.type}"
                )
    for op in lookups:
        rows = block.var(op.input("W")[0]).shape[0]
        attrs = {"padding_idx": op.attr("padding_idx"), "is_sparse": op.attr("is_sparse")}
        op.attrs = {**_common(op), **attrs, "rows": rows, "nranks": workers, "squeeze": _LOOKUPS[op.type]}
        op.type = "c_lookup_rows"
    tables = [block.var(name) for name in names]
    for table in tables:
        _divide(table, RowDivision(table.shape, workers))
        _keep_rows(startup.global_block(), table)
    program._changed()
    return tables


def _common(op: Operator) -> dict[str, Any]:
    """The attributes of an op that every op has."""
    return {name: value for name, value in op.attrs.items() if name not in registry.get(op.type).attrs}


def _keep_rows(block: Block, table: Variable) -> None:
    """Let a startup program make a table under another name, and keep this worker's rows of it."""
    division = table.division
    assert division is not None
    makers = [place for place, op in enumerate(block.ops) if table.name in op.output_arg_names]
    if not makers:
        return
    full = block.create_var(name=block.fresh_name(f"{table.name}@FULL"), shape=division.shape, dtype=table.dtype)
    for place in makers:
        op = block.ops[place]
        op.attrs.setdefault(RANDOM_STREAM, op.output_arg_names[0])  # draws the numbers of the table's name
        for names in (*op.inputs.values(), *op.outputs.values()):
            names[:] = [full.name if name == table.name else name for name in names]
    _divide(block.var(table.name), division)
    attrs = {"nranks": division.workers, "by": "rows"}
    block.insert_op(makers[-1] + 1, "c_take_part", inputs={"X": full.name}, outputs={"Out": table.name}, attrs=attrs)


def _divide(var: Variable, division: Division) -> None:
    var.division, var.shape = division, division.part_shape


def divide_state_of_tables(tables: Iterable[Variable], updates: Iterable[Operator]) -> None:
    """Note that what an optimizer keeps for each row of a divided table is divided in the same way."""
    divisions = {table.name: table.division for table in tables}
    for op in walk(updates):
        name = op.input("Param")[0] if "Param" in op.inputs else None
        if name in divisions:
            sums = [op.block.var(gradient) for gradient in op.input("Grad")]  # over several batches
            for state in (*_state_of(op, op.block.var(name).shape), *(total for total in sums if total.persistable)):
                state.division = divisions[name]


def _state_of(op: Operator, shape: tuple[int, ...]) -> list[Variable]:
    """What an optimizer's op keeps of this shape."""
    names = dict.fromkeys(name for slot, names in op.inputs.items() if slot not in _PARAMETER_SLOTS for name in names)
    variables = [op.block.var(name) for name in names]
    return [var for var in variables if var.persistable and var.shape == shape]


# ------------------------------------------------------------------------------------------------------ state of optimizers
def divide_optimizer_state(startup: Program, updates: Iterable[Operator], workers: int, bucket_bytes: int) -> None:
    """Let each worker keep the state of the optimizer for its part of each parameter, and update that part (ZeRO, stage 1:
    https://arxiv.org/abs/1910.02054).

    Every element is updated as on one process. Parameters with sparse gradients, or that are divided themselves, stay as they
    are.

    Args:
        startup: makes the state.
        updates: the ops of the optimizer, in one block, after the reductions of the gradients.
        workers: how many there are.
        bucket_bytes: updated parameters travel together, so many bytes at once or more.

    Raises:
        ProgramError: an op updates a parameter by more than its elements, or the state does not start from one number.
    """
    by_name: dict[str, Operator] = {}
    for op in walk(updates):
        if "Param" in op.inputs and _can_be_divided(op):
            if op.type not in _ELEMENTWISE or op.inputs.get("MasterParam"):
                raise ProgramError(
                    f"shard_optimizer_state: {op.type} does not update each element by itself, or keeps parameters in float32 "
                    f"beside halves; leave it unset, or use one of {', '.join(sorted(_ELEMENTWISE))} in one element type"
                )
            by_name[op.input("Param")[0]] = op
    for names in buckets([op.block.var(name) for name, op in by_name.items()], bucket_bytes):
        _divide_bucket(startup, {name: by_name[name] for name in names}, workers)


def _can_be_divided(op: Operator) -> bool:
    """Whether an optimizer's op keeps a state for a parameter of several elements with a dense gradient."""
    param, gradient = (op.block.var(op.input(slot)[0]) for slot in ("Param", "Grad"))
    is_divided = param.division is not None or gradient.type is not VarType.LOD_TENSOR
    return prod(param.shape) > 1 and not is_divided and bool(_state_of(op, param.shape))


def _divide_bucket(startup: Program, updates: dict[str, Operator], workers: int) -> None:
    """Divide the state for some parameters, which are joined again after the last of their `updates`."""
    parts: list[str] = []
    for name, op in updates.items():
        block, shape = op.block, op.block.var(name).shape
        division = FlatDivision(shape, workers)
        for state in _state_of(op, shape):
            _divide(state, division)
            _shrink(startup.global_block(), state)
        inputs = [_take_part(op, slot, workers) for slot in ("Param", "Grad")]
        op.inputs["Param"], op.inputs["Grad"] = [inputs[0]], [inputs[1]]
        op.outputs["ParamOut"] = [inputs[0]]
        parts.append(inputs[0])
    last = max(updates.values(), key=block.ops.index)
    block.insert_op(
        block.ops.index(last) + 1,
        "c_join_parts",
        inputs={"X": parts, "Like": list(updates)},
        outputs={"Out": list(updates)},
        attrs={"nranks": workers, OpRole.NAME: int(OpRole.OPTIMIZE)},
        frames=last.frames,
    )


def _take_part(op: Operator, slot: str, workers: int) -> str:
    """Insert an op before `op` that takes this worker's part of an input; returns the part's name."""
    block, (name,) = op.block, op.input(slot)
    var = block.var(name)
    shape = FlatDivision(var.shape, workers).part_shape
    part = block.create_var(name=block.fresh_name(f"{name}@PART"), shape=shape, dtype=var.dtype, stop_gradient=True)
    attrs = {"nranks": workers, "by": "flat", OpRole.NAME: int(OpRole.OPTIMIZE)}
    place = block.ops.index(op)
    block.insert_op(place, "c_take_part", inputs={"X": name}, outputs={"Out": part.name}, attrs=attrs, frames=op.frames)
    return part.name


def _shrink(block: Block, state: Variable) -> None:
    """Let a startup program make only this worker's part of a state."""
    division = state.division
    assert division is not None
    for op in block.ops:
        if state.name in op.output_arg_names:
            if op.type != "fill_constant":
                raise ProgramError(f"shard_optimizer_state: {state.name} starts from {op.type}, and not from one number")
            op.attrs["shape"] = list(division.part_shape)
    if state.name in block.vars:
        _divide(block.var(state.name), division)
    block.program._changed()
