"""Late-bound parts of eager mode, which avoid circular imports.

Operators of tensors are ops, and ops make tensors; a backward pass runs nodes, and a node may run a backward pass. To let files
import in one direction only, parts of a higher file that a lower one needs are attributes here; the higher file sets them when it
is loaded. The package `fluid.eager` loads all of them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ..ir.program import Block
    from ..opdef.inference import OpNamespace
    from .dispatch import TensorOp
    from .tensor import Tensor

__all__ = ["parts"]


class Parts:
    """Functions and classes of higher modules that lower modules use.

    Attributes:
        tensor: the class of tensors.
        namespace: ops as functions of tensors.
        add, sub, mul, div, matmul, assign: the ops that tensors call most, without attributes.
        scaled: ``scaled(tensor, factor)``, the product of a tensor and a number.
        run_rule: computes gradients by an op's rule, recorded.
        backward, grad: run a backward pass.
        getitem: ``x[i]``, given ``(x, i)`` and no arguments with names.
        setitem: ``x[i] = v``.
        program_of: makes a program of a recorded graph.
        block: the block whose ops run on tensors when they are appended.
        twin_of: the variable that stands for a parameter in the program that a layer appends to; the tensor itself elsewhere.
        stand_ins: arguments of a layer with such variables; None elsewhere.
    """

    tensor: type[Tensor]
    namespace: OpNamespace
    add: TensorOp
    sub: TensorOp
    mul: TensorOp
    div: TensorOp
    matmul: TensorOp
    assign: TensorOp
    scaled: Callable[[Tensor, float], Tensor]
    run_rule: Callable[..., list[Any]]
    backward: Callable[..., None]
    grad: Callable[..., Any]
    getitem: Callable[[tuple[Tensor, Any], dict[str, Any]], Tensor]
    setitem: Callable[[Tensor, Any, Any], None]
    program_of: Callable[[Tensor], Any]
    block: Block
    stand_ins: Callable[[Any, Any], tuple[Any, Any] | None] = staticmethod(lambda args, kwargs: None)
    twin_of: Callable[[Tensor], Any] = staticmethod(lambda tensor: tensor)


parts = Parts()
