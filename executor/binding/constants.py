"""Results of ops whose inputs are known before a program runs."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from fluid.errors import FluidError
from fluid.ir.program import Operator, Variable
from fluid.opdef.inference import infer_specs
from fluid.opdef.registry import EMPTY
from fluid.values.types import VarType, as_dtype

from ..kernels.table import kernel_of
from .arrays import specs_of
from .compiled import apply_op

LISTS = {"float32": "fp32_values", "int32": "int32_values", "int64": "int64_values", "bool": "bool_values"}
"""Name of an element type -> the attribute of `assign_value` that lists its elements."""


def make_constant(value: Any) -> tuple[str, dict[str, Any]]:
    """The type and the attributes of an op that makes an array; its element type is one of `LISTS`."""
    attrs: dict[str, Any] = {"shape": list(value.shape), "dtype": int(as_dtype(value.dtype))}
    first = value.reshape(-1)[0].item() if value.size else 0
    if value.size and np.isfinite(value).all() and (value == first).all() and abs(first) < 1 << 24:
        return "fill_constant", {**attrs, "value": float(first)}
    return "assign_value", {**attrs, LISTS[value.dtype.name]: value.reshape(-1).tolist()}


def is_computable(op: Operator) -> bool:
    """Whether an op computes tensors of its block from its inputs alone: it draws nothing, updates nothing, owns no block."""
    definition = op.definition
    kernel = kernel_of(op.type)
    if definition is None or op.sub_blocks or kernel is None or not op.output_arg_names:
        return False
    if kernel.reads_lods or any(key == "rng" for _, _, key in kernel.parameters):
        return False
    if any(slot.updated for slot in definition.outputs.values()):
        return False
    for name in op.output_arg_names:
        var = op.block.find_var(name)
        if var is None or var.persistable or var.is_data or var.type is not VarType.LOD_TENSOR or var.block is not op.block:
            return False
    return True


def computed_outputs(op: Operator, inputs: Mapping[str, list[Any]], most: int) -> dict[str, Any] | None:
    """Compute an op; None if it has to run each time (`is_computable`), fails, or makes more than `most` elements.

    Args:
        op: any op.
        inputs: slot -> the arrays of its variables.
        most: the most elements of an output.

    Returns:
        Name of an output -> its array.
    """
    definition = op.definition
    if definition is None or not is_computable(op):
        return None
    arrays = {slot: values if definition.inputs[slot].many else values[0] for slot, values in inputs.items() if values}
    wanted = {slot for slot, names in op.outputs.items() if slot in definition.outputs and any(n != EMPTY for n in names)}
    attrs = definition.defaults(op.attrs)
    try:
        if _elements(infer_specs(definition, specs_of(arrays), attrs)) > most:
            return None
        with np.errstate(all="ignore"):
            outputs = apply_op(op.type, arrays, attrs, wanted=wanted)
    except (FluidError, ArithmeticError, LookupError, TypeError, ValueError):
        return None  # running it will report the error
    results: dict[str, Any] = {}
    for slot, names in op.outputs.items():
        value = outputs.get(slot)
        for name, item in zip(names, value if isinstance(value, list) else [value], strict=False):
            if name != EMPTY and item is not None:
                results[name] = _as_declared(op.block.var(name), np.asarray(item))
    return results


def _elements(specs: Mapping[str, Any]) -> int:
    """The number of elements of the largest of these specs; dimensions that depend on values count as one."""
    listed = [item for spec in specs.values() for item in (spec if isinstance(spec, list) else [spec]) if item is not None]
    return max((math.prod(max(size, 1) for size in spec.shape) for spec in listed), default=0)


def _as_declared(var: Variable, value: Any) -> Any:
    scalars = ((), (1,))
    return value.reshape(var.shape) if var.shape in scalars and value.shape in scalars else value
