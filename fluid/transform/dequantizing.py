"""Replaces ops with weights of integers by ops with weights of floats, which train."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from .. import unique_name
from ..executor.binding.constants import computed_outputs
from ..executor.runtime.scope import Scope
from ..ir.inference import BuildNamespace
from ..ir.program import Operator, Program
from ..ops.quantization import lstm_by_range, product_of_floats_by_range
from ..values.types import as_dtype

_WEIGHTS = {"WeightX": ("ScaleX", "ZeroPointX"), "WeightH": ("ScaleH", "ZeroPointH")}
"""Slot of a weight of `dynamic_quantize_lstm` -> the slots of its scale and of its zero point."""


def dequantize_weights(program: Program, scope: Scope) -> tuple[dict[str, Any], set[str], list[str]]:
    """Give each `dynamic_quantize_lstm` weights of floats, which are rounded to the same integers in each run.

    Returns:
        The values of the new weights by name, the names of the weights of integers, and notes on the ops that stay as they are.
    """
    values: dict[str, Any] = {}
    replaced: set[str] = set()
    notes: list[str] = []
    for block in list(program.blocks):
        for op in [op for op in block.ops if op.type == "dynamic_quantize_lstm"]:
            missing = [name for slot in _WEIGHTS for name in _names(op, slot) if _value(op, name, scope) is None]
            if missing:
                notes.append(f"dynamic_quantize_lstm keeps its integers: {missing[0]} has no value in the scope")
            else:
                replaced.update(name for slot in _WEIGHTS for name in op.inputs[slot])
                values |= _replace(op, scope)
    return values, replaced, notes


def _names(op: Operator, slot: str) -> list[str]:
    """The names of a weight, of its scale, and of its zero point if it has one."""
    return [name for part in (slot, *_WEIGHTS[slot]) for name in op.inputs.get(part, ())]


def _value(op: Operator, name: str, scope: Scope) -> Any:
    """The value of an op's input: of the scope, or a constant that an op makes; None if it is neither."""
    var = op.block.find_var(name)
    if var is not None and var.persistable:
        return scope.array(name)
    makers = [maker for maker in op.block.ops if name in maker.output_arg_names]
    if len(makers) != 1 or makers[0].input_arg_names:
        return None
    results = computed_outputs(makers[0], {}, 1 << 16)
    return None if results is None else results.get(name)


def _replace(op: Operator, scope: Scope) -> dict[str, Any]:
    """Replace an op by the ops of its formula, and return the values of its weights of floats."""
    block, values = op.block, {}
    program = block.program
    number = block.ops.index(op)
    after = block.ops[number + 1 :]
    del block.ops[number:]
    with unique_name.guard(unique_name.unused_in(program)), program.block_guard(block), program.role_guard(op.role):
        f = BuildNamespace(block)
        assert op.definition is not None
        inputs: dict[str, Any] = dict.fromkeys(op.definition.inputs)
        inputs |= {slot: block.var(names[0]) for slot, names in op.inputs.items() if names}
        for slot, (scale, zero) in _WEIGHTS.items():
            integers, *parts = (_value(op, name, scope) for name in _names(op, slot))
            floats = integers.astype(np.float32) - (parts[1].astype(np.float32) if len(parts) > 1 else 0)
            name = program.fresh_name(f"{op.inputs[slot][0]}.floats")
            values[name] = floats * parts[0]
            root, bounds = program.global_block(), np.iinfo(integers.dtype)
            var = root.create_var(name=name, shape=floats.shape, dtype=as_dtype(floats.dtype), persistable=True)
            limits = {"quant_min": int(bounds.min), "quant_max": int(bounds.max)}
            inputs[slot] = f.fake_quantize_affine(var, inputs[scale], inputs[zero], **limits)
        results: Mapping[str, Any] = lstm_by_range(
            f, **inputs, is_reverse=op.attr("is_reverse"), product=product_of_floats_by_range
        )
        for slot, names in op.outputs.items():
            for name in names:
                block.append_op("assign", {"X": results[slot]}, {"Out": name})
    block.ops += after
    return values
