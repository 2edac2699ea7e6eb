"""Infers the specs of the outputs of single ops."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from fluid.errors import FluidError
from fluid.ir.program import Operator
from fluid.ir.versions import Value
from fluid.opdef.inference import infer_specs
from fluid.opdef.registry import OpDef, by_slot
from fluid.values.spec import Spec
from fluid.values.types import VarType

from .interpreter import declared_scalars


def inferred_specs(
    op: Any,
    definition: OpDef,
    reads: Mapping[str, Sequence[Value | None]],
    writes: Mapping[str, Sequence[Value | None]],
    specs: Mapping[Value, Spec],
) -> dict[Value, Spec] | None:
    """Infer the specs of an op's outputs; None if that is impossible, or they are no plain tensors."""
    read = [value for slot, values in reads.items() if slot in definition.inputs for value in values if value is not None]
    if not all(value in specs for value in read):
        return None
    inputs = by_slot(definition.inputs, reads, specs.__getitem__)
    try:
        results = infer_specs(definition, inputs, op.attrs, declared_scalars(op) if isinstance(op, Operator) else {})
    except FluidError:
        return None
    inferred: dict[Value, Spec] = {}
    for slot, values in writes.items():
        of_slot = results.get(slot)
        for value, spec in zip(values, of_slot if isinstance(of_slot, list) else [of_slot], strict=False):
            if value is not None:
                if spec is None or not spec.known or spec.lod or spec.type is not VarType.LOD_TENSOR:
                    return None
                inferred[value] = spec
    return inferred
