"""Ops that own a block."""

from __future__ import annotations

from dataclasses import dataclass

from .program import Operator


@dataclass(frozen=True)
class Region:
    """The slots of an op that owns a block."""

    inputs: str
    scopes: str
    loops: bool
    conditions: str


REGIONS = {
    "while": Region("X", "StepScopes", True, "Condition"),
    "conditional_block": Region("Input", "Scope", False, "Cond"),
}


_REGION_GRADS = {op_type + "_grad" for op_type in REGIONS}


_BLOCK_GRADS = {*_REGION_GRADS, "recurrent_grad"}


def is_gradient_op(op: Operator) -> bool:
    """Whether the op stands for the gradient of another."""
    definition = op.definition
    return op.type in _BLOCK_GRADS or (definition is not None and definition.forward is not None)
