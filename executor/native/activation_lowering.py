"""Lowers activations, as formulas of other ops; their gradients are lowered in the same way."""

from __future__ import annotations

from typing import Any

from fluid.ops.norm import dropout_scale

from .emitter import BOOL
from .graph import Drawn, broadcast_to, constant, mapped
from .lowering import NAMESPACE, GraphTensor, NotLowered, lowers, number_like

f = NAMESPACE


def chosen(condition: GraphTensor, a: GraphTensor, b: GraphTensor | float) -> GraphTensor:
    """Select `a` where the condition holds, `b` elsewhere."""
    alternative = b.node if isinstance(b, GraphTensor) else number_like(b, a.node)
    return GraphTensor(mapped("select", condition.node, a.node, alternative, element=a.node.element))


# --------------------------------------------------------------------------------------------------------------- dropout
@lowers("dropout")
def dropout(
    X: GraphTensor, Seed: Any, dropout_prob: float, dropout_implementation: str, is_test: bool, specs: dict[str, Any]
) -> dict[str, GraphTensor]:
    keeps_all = is_test or not dropout_prob
    if not keeps_all and (Seed is not None or specs.get("Mask") is None):
        raise NotLowered("a mask that is not drawn from the op's own numbers, or that has no place")
    mask = GraphTensor(broadcast_to(constant(1, BOOL), X.shape) if keeps_all else Drawn(X.shape, BOOL))
    masked = f.assign(X) if keeps_all else X * mask.astype(X.dtype)
    scale = dropout_scale(dropout_prob, dropout_implementation, is_test)
    return {"Out": masked if scale == 1.0 else masked * scale, "Mask": mask}
