"""Constant folding: computes results in advance that do not depend on the fed values."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

import numpy as np

from ..errors import ProgramError
from ..executor.binding.constants import LISTS, computed_outputs, make_constant
from ..executor.runtime.scope import Scope, global_scope
from ..ir.checked import checked
from ..ir.program import Block, Operator, OpRole, Program, Variable
from ..opdef.registry import EMPTY
from ..ops.norm import channel_axis, uses_global_stats
from ..values.types import VarType
from ..values.unchanging import unchanging
from .edit import Edit, EditReport

__all__ = ["fold_batch_norm", "fold_constants"]

_IN_PROGRAM = 1024
"""Constants with more elements go to the scope, not into attributes of the program."""
_LARGEST = 1 << 20
"""Results with more elements are not folded, unless their inputs are as large."""
_SOURCES = frozenset({"fill_constant", "assign_value"})


class Uses:
    """Counts of the writes and reads of each name in a program."""

    def __init__(self, program: Program) -> None:
        self.writes: Counter[str] = Counter()
        self.reads: Counter[str] = Counter()
        for block in program.blocks:
            for op in block.ops:
                self.writes.update(op.output_arg_names)
                self.reads.update(op.input_arg_names)


def _refuse_training(program: Program, label: str) -> None:
    for block in program.blocks:
        for op in block.ops:
            if op.role & (OpRole.BACKWARD | OpRole.OPTIMIZE):
                raise ProgramError(
                    f"{label}: the program is one for training, whose weights are not constant; fold its clone(for_test=True)\n"
                    f"  first such op: {op}"
                )


# ----------------------------------------------------------------------------------------------------------- constants
@checked
def fold_constants(program: Program, scope: Scope | None = None) -> EditReport:
    """Compute now what depends only on constants; see `Program.fold_constants`."""
    with Edit(program, "fold_constants", scope) as edit:
        if scope is not None:
            _refuse_training(program, edit.label)
        block = program.global_block()
        uses = Uses(program)
        constants: dict[str, Any] = {}
        computed: dict[str, bool] = {}
        """Name of a folded result -> whether it depends on a value of the scope."""
        if scope is not None:
            for name, var in block.vars.items():
                value = scope.array(name) if var.persistable and not uses.writes[name] else None
                if value is not None and var.type is VarType.LOD_TENSOR:
                    constants[name] = np.asarray(value)
        remaining: list[Operator] = []
        folded: list[Operator] = []
        room = 16 * _LARGEST  # for all results together: a file may have many
        for op in block.ops:
            results = _computed(op, constants, uses, min(room, _LARGEST))
            if results is None:
                remaining.append(op)
                continue
            constants |= results
            added = sum(value.size for value in results.values())
            room -= max(0, added - sum(constants[name].size for name in op.input_arg_names))
            too_large = any(value.size > _IN_PROGRAM or value.dtype.name not in LISTS for value in results.values())
            if op.type in _SOURCES or (scope is None and too_large):
                remaining.append(op)
                continue
            from_scope = any(computed.get(name, name not in uses.writes) for name in op.input_arg_names)
            computed |= dict.fromkeys(results, from_scope)
            folded.append(op)
        if folded:
            _keep_results(edit, block, remaining, folded, constants, computed)
    return edit.report


def _computed(op: Operator, constants: Mapping[str, Any], uses: Uses, room: int) -> dict[str, Any] | None:
    """The outputs of an op of constants; None if it has to run each time, or has outputs with more than `room` elements."""
    if any(uses.writes[name] != 1 for name in op.output_arg_names):
        return None
    if not op.output_arg_names or any(name == EMPTY or name not in constants for names in op.inputs.values() for name in names):
        return None
    inputs = {slot: [constants[name] for name in names] for slot, names in op.inputs.items()}
    most = max([room, *(constants[name].size for name in op.input_arg_names)])
    results = computed_outputs(op, inputs, most)
    if results is None:
        return None
    needed = {name for name in op.output_arg_names if uses.reads[name]}
    return results if needed <= results.keys() else None


def _keep_results(
    edit: Edit,
    block: Block,
    remaining: list[Operator],
    folded: list[Operator],
    constants: dict[str, Any],
    computed: dict[str, bool],
) -> None:
    """Replace folded ops by their results, as far as the rest of the program reads these or no op does."""
    inner = {name for op in folded for name in op.input_arg_names}
    outer = {name for op in remaining for name in op.input_arg_names}
    outer |= {name for home in edit.program.blocks if home is not block for op in home.ops for name in op.input_arg_names}
    gone = {id(op) for op in folded}
    ops, block.ops = block.ops, []
    for op in ops:
        if id(op) not in gone:
            block.ops.append(op)
            continue
        for name in op.output_arg_names:
            if name not in constants or (name in inner and name not in outer):
                block.vars.pop(name, None)
                continue
            slot = next(slot for slot, names in op.outputs.items() if name in names)
            if name not in outer and op.definition is not None and op.definition.outputs[slot].intermediate:
                block.vars.pop(name, None)
                continue
            _keep_value(edit, block, block.vars[name], constants[name], computed[name], op)
    names = {name for home in edit.program.blocks for op in home.ops for name in (*op.input_arg_names, *op.output_arg_names)}
    for op in folded:
        for name in op.input_arg_names:
            var = block.vars.get(name)
            if name not in names and var is not None and not var.is_data and not (var.persistable and edit.scope is None):
                del block.vars[name]
    _remove_unread(edit.program, block, constants, inner)


def _remove_unread(program: Program, block: Block, constants: Mapping[str, Any], candidates: set[str]) -> None:
    """Remove ops of constants that only folded ops have read, and their outputs."""
    read = Counter(name for home in program.blocks for op in home.ops for name in op.input_arg_names)
    remaining: list[Operator] = []
    for op in reversed(block.ops):
        outputs = op.output_arg_names
        if outputs and all(name in constants and name in candidates and not read[name] for name in outputs):
            read.subtract(op.input_arg_names)
            candidates |= set(op.input_arg_names)
            for name in outputs:
                block.vars.pop(name, None)
        else:
            remaining.append(op)
    block.ops = remaining[::-1]


def _keep_value(edit: Edit, block: Block, var: Variable, value: Any, from_scope: bool, op: Operator) -> None:
    """Store a folded value in the scope, or append an op that holds it."""
    var._shape = value.shape
    small = value.size <= _IN_PROGRAM and value.dtype.name in LISTS
    if edit.scope is not None and (from_scope or not small):
        var._persistable = True
        var._stop_gradient = True
        edit.values[var.name] = unchanging(np.array(value, order="C"))
        return
    op_type, attrs = make_constant(value)
    block.append_op(op_type, outputs={"Out": var}, attrs=attrs, frames=op.frames)


# ---------------------------------------------------------------------------------------------------------- batch_norm
_PRODUCTS = ("mul", "matmul", "matmul_v2")
_OUT_CHANNELS = {"conv2d": ("Filter", 0), "depthwise_conv2d": ("Filter", 0), **dict.fromkeys(_PRODUCTS, ("Y", 1))}
"""Ops into which a batch_norm folds -> the slot of their weights, and the weights' axis for the output channels."""


class _Stays(Exception):
    """Why a batch_norm is not folded."""


@checked
def fold_batch_norm(program: Program, scope: Scope | None = None) -> EditReport:
    """Fold batch_norms in test mode into the ops before them; see `Program.fold_batch_norm`."""
    if scope is None:
        scope = global_scope()
    with Edit(program, "fold_batch_norm", scope) as edit:
        _refuse_training(program, edit.label)
        for block in program.blocks:
            for op in [op for op in block.ops if op.type == "batch_norm"]:
                try:
                    _fold(edit, op, scope)
                except _Stays as reason:
                    edit.notes.append(f"batch_norm making {', '.join(op.output('Y'))} stays: {reason}")
    return edit.report


def only_name(op: Operator, slot: str, side: str = "inputs") -> str:
    """The name in a slot that holds one, otherwise ""."""
    names: list[str] = getattr(op, side).get(slot, [])
    return names[0] if len(names) == 1 else ""


def _fold(edit: Edit, norm: Operator, scope: Scope) -> None:
    if not uses_global_stats(norm.attr("is_test"), norm.attr("use_global_stats"), norm.attr("trainable_statistics")):
        raise _Stays("it normalizes by the statistics of each batch; clone(for_test=True) puts it into test mode")
    uses = Uses(edit.program)
    block = norm.block
    unwanted = [name for slot in ("SavedMean", "SavedVariance", "ReserveSpace") for name in norm.output(slot) if name != EMPTY]
    if any(uses.reads[name] for name in unwanted):
        raise _Stays("its statistics are read")
    source = only_name(norm, "X")
    before = _producer(uses, block, norm, source)
    add = None
    if before.type == "elementwise_add":
        add = before
        source = only_name(add, "X")
        before = _producer(uses, block, add, source)
    if before.type not in _OUT_CHANNELS:
        raise _Stays(f"{before.type} comes before it, not one of {', '.join(_OUT_CHANNELS)}")
    slot, axis = _OUT_CHANNELS[before.type]
    ndim = block.var(source).ndim
    channel = channel_axis(norm.attr("data_layout"), ndim)
    if channel != _channel_of(before, ndim):
        raise _Stays(f"its channels are on axis {channel}, those of {before.type} on another")
    if before.attrs.get("trans_y") or before.attrs.get("transpose_Y"):
        axis = 0
    weight_name = only_name(before, slot)
    value = {name: _value(edit, scope, name) for name in (weight_name, only_name(norm, "Mean"), only_name(norm, "Variance"))}
    weight, mean, variance = value.values()
    channels = mean.size
    scale = _value(edit, scope, only_name(norm, "Scale")) if only_name(norm, "Scale") else np.ones(channels)
    shift = _value(edit, scope, only_name(norm, "Bias")) if only_name(norm, "Bias") else np.zeros(channels)
    bias = np.zeros(channels) if add is None else _bias(edit, scope, add, channel, ndim, channels)
    if weight.ndim <= axis or weight.shape[axis] != channels or (before.type in _PRODUCTS and weight.ndim != 2):
        raise _Stays(f"the weights {weight_name} {list(weight.shape)} do not make {channels} channels on axis {axis}")

    factor = scale.astype(np.float64) / np.sqrt(variance.astype(np.float64) + norm.attr("epsilon"))
    around = [-1 if at == axis else 1 for at in range(weight.ndim)]
    new_weight = (weight * factor.reshape(around)).astype(weight.dtype)
    new_bias = ((bias - mean) * factor + shift).astype(weight.dtype)

    y = only_name(norm, "Y", "outputs")
    weight_var = _persistable_like(edit, f"{weight_name}.folded", new_weight)
    bias_var = _persistable_like(edit, f"{y}.bias", new_bias)
    before.inputs[slot] = [weight_var.name]
    position = norm.idx
    del block.ops[position]
    attrs = {"axis": channel, OpRole.NAME: norm.role} if norm.role else {"axis": channel}
    inputs = {"X": source, "Y": bias_var}
    block.insert_op(position, "elementwise_add", inputs=inputs, outputs={"Out": y}, attrs=attrs, frames=norm.frames)
    if add is not None:
        block.ops.remove(add)
    gone = [*norm.input_arg_names, *norm.output_arg_names, weight_name, *(add.input_arg_names if add is not None else ())]
    used = {name for scanned in edit.program.blocks for op in scanned.ops for name in (*op.input_arg_names, *op.output_arg_names)}
    for home in (block, edit.program.global_block()):
        for name in gone:
            if name not in used:
                home.vars.pop(name, None)


def _producer(uses: Uses, block: Block, reader: Operator, name: str) -> Operator:
    """The op that writes a name which only `reader` reads."""
    writers = [op for op in block.ops if name and name in op.output_arg_names]
    if len(writers) != 1 or uses.writes[name] != 1:
        raise _Stays(f"its input {name} is not made by one op of its block")
    if uses.reads[name] != 1:
        raise _Stays(f"{name} is read by other ops than {reader.type}, too")
    var = block.var(name)
    if var.persistable:
        raise _Stays(f"{name} is kept in the scope")
    return writers[0]


def _channel_of(op: Operator, ndim: int) -> int:
    if op.type in ("conv2d", "depthwise_conv2d"):
        return channel_axis(op.attr("data_format"), ndim)
    if op.type == "mul" and (op.attr("y_num_col_dims") != 1 or op.attr("x_num_col_dims") != ndim - 1):
        return -1
    if op.attrs.get("transpose_X") or op.attrs.get("trans_x"):
        return -1
    if op.attrs.get("alpha", 1.0) != 1.0:
        return -1
    return ndim - 1


def _value(edit: Edit, scope: Scope, name: str) -> Any:
    var = edit.program.global_block().vars.get(name)
    if name in edit.values:
        return edit.values[name]
    if var is None or not var.persistable:
        raise _Stays(f"{name or 'a weight'} is not persistable, so that its value is not known beforehand")
    writers = [op.type for block in edit.program.blocks for op in block.ops if name in op.output_arg_names]
    if any(op_type != "batch_norm" for op_type in writers):
        raise _Stays(f"{name} is written by {writers[0]}")
    value = scope.array(name)
    if value is None:
        raise ProgramError(f"fold_batch_norm: {name} ({var.describe()}) has no value in the scope; load it first")
    return np.asarray(value)


def _bias(edit: Edit, scope: Scope, add: Operator, channel: int, ndim: int, channels: int) -> Any:
    value = _value(edit, scope, only_name(add, "Y"))
    axis = add.attr("axis")
    start = ndim - value.ndim if axis == -1 else axis
    shape = (*[1] * start, *value.shape)
    shape = (*shape, *[1] * (ndim - len(shape)))
    if value.size not in (1, channels) or len(shape) != ndim or (value.size > 1 and shape[channel] != channels):
        raise _Stays(f"{only_name(add, 'Y')} {list(value.shape)} is added along other axes than that of the channels")
    return np.broadcast_to(value.reshape(-1), (channels,))


def _persistable_like(edit: Edit, base: str, value: Any) -> Variable:
    home = edit.program.global_block()
    name = edit.program.fresh_name(base)
    while edit.scope is not None and edit.scope.find_var(name) is not None:
        name = edit.program.fresh_name(name + "_")
    edit.values[name] = unchanging(np.array(value, order="C"))
    return home.create_parameter(name=name, shape=value.shape, dtype=value.dtype)
