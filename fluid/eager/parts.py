"""Where the files of eager mode find what is built on them.

A tensor has operators, which are ops, and ops make tensors; a backward pass runs nodes, and a node may run a backward pass. So
that files import each other in one direction only, what one needs from above is an attribute here, which the file that defines
it sets as it is loaded. The package `fluid.eager` loads all of them.
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
    """What is used below the file that defines it.

    Attributes:
        tensor: the class of tensors.
        namespace: ops as functions of tensors.
        add, sub, mul, div, matmul, assign: ops without attributes that tensors call most.
        scaled: ``scaled(tensor, factor)``, their product.
        run_rule: computes gradients by an op's rule, which records them.
        backward, grad: run a backward pass.
        getitem, setitem: ``x[...]`` and the assignment to it.
        program_of: writes a recorded graph down as a program.
        block: runs ops on tensors as they are appended.
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
    getitem: Callable[[Tensor, Any], Tensor]
    setitem: Callable[[Tensor, Any, Any], None]
    program_of: Callable[[Tensor], Any]
    block: Block


parts = Parts()
