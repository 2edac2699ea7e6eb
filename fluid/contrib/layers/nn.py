"""Layers that combine several ops."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...building.layer_helper import apply
from ...errors import ProgramError
from ...ir.checked import check_variable
from ...ir.program import Variable
from ...layers import multiclass_nms2

__all__ = ["fused_elemwise_activation", "multiclass_nms2"]

_BINARY = ("elementwise_add", "elementwise_mul")
_UNARY = ("relu", "scale", "sigmoid", "tanh")


def fused_elemwise_activation(
    x: Variable,
    y: Variable,
    functor_list: Sequence[str] | str,
    axis: int = -1,
    scale: float = 0.0,
    save_intermediate_out: bool = True,
) -> Variable:
    """A binary op and an activation in either order, as two ops.

    Args:
        x, y: the operands; `y` broadcasts along `axis`.
        functor_list: the two ops, or a string ``"a,b"`` of them: ``["elementwise_add", "relu"]`` is ``x + relu(y)``, and
            ``["relu", "elementwise_add"]`` is ``relu(x + y)``. Binary: elementwise_add, elementwise_mul; unary: relu, scale,
            sigmoid, tanh.
        axis: the dimension of `x` that aligns with the first dimension of `y`; -1 aligns the last ones.
        scale: the factor of ``scale``.
        save_intermediate_out: accepted as in Fluid; of no effect.

    Raises:
        ProgramError: the ops are not one binary and one unary op of these.

    >>> x, y = dygraph.to_variable([1.0, -2.0]), dygraph.to_variable([-3.0, 1.0])
    >>> fluid.contrib.fused_elemwise_activation(x, y, ["relu", "elementwise_add"])
    Tensor([0., 0.], shape=[2], dtype=float32)
    """
    names = [name.strip() for name in functor_list.split(",")] if isinstance(functor_list, str) else list(functor_list)
    check_variable(x, "fused_elemwise_activation: x")
    check_variable(y, "fused_elemwise_activation: y")
    if len(names) != 2 or {names[0] in _BINARY, names[1] in _BINARY} != {True, False} or not set(names) <= {*_BINARY, *_UNARY}:
        raise ProgramError(
            f"fused_elemwise_activation: functor_list should be one of {', '.join(_BINARY)} and one of {', '.join(_UNARY)}, "
            f"in either order, not {names}"
        )

    def unary(op_type: str, value: Variable) -> Variable:
        attrs: dict[str, Any] = {"scale": float(scale)} if op_type == "scale" else {}
        return apply(op_type, {"X": value}, attrs)

    if names[0] in _BINARY:
        return apply(names[0], {"X": x, "Y": unary(names[1], y)}, {"axis": axis})
    return unary(names[0], apply(names[1], {"X": x, "Y": y}, {"axis": axis}))
