"""Parts of eager mode that lower modules take from higher ones.

Operators of tensors are ops, and ops make tensors; a backward pass runs nodes, and a node may run a backward pass. To let modules
import in one direction only, a lower module finds the higher part here when it runs. The package `fluid.eager` loads all modules
and sets the parts; `fluid.dygraph.twins` sets the last one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ..ir.program import Block
    from ..opdef.inference import OpNamespace
    from .dispatch import TensorOp
    from .tensor import Tensor


@dataclass(frozen=True)
class TensorOps:
    """Ops as functions of tensors.

    Attributes:
        namespace: all ops.
        add, sub, mul, div, matmul, assign: the ops that tensors call most, without attributes.
        scaled: ``scaled(tensor, factor)``, the product of a tensor and a number.
        getitem: ``x[i]``, given ``(x, i)`` and no arguments with names.
        setitem: ``x[i] = v``.
        reshape: `fluid.layers.reshape`, whose sizes may be tensors.
        block: the block whose ops run on tensors when they are appended.
    """

    namespace: OpNamespace
    add: TensorOp
    sub: TensorOp
    mul: TensorOp
    div: TensorOp
    matmul: TensorOp
    assign: TensorOp
    scaled: Callable[[Tensor, float], Tensor]
    getitem: Callable[[tuple[Tensor, Any], dict[str, Any]], Tensor]
    setitem: Callable[[Tensor, Any, Any], None]
    reshape: Callable[[Tensor, Any], Any]
    block: Block


@dataclass(frozen=True)
class BackwardPasses:
    """Functions that differentiate recorded graphs.

    Attributes:
        backward, grad: run a backward pass.
        run_rule: computes gradients by an op's rule, recorded.
        program_of: makes a program of a recorded graph.
    """

    backward: Callable[..., None]
    grad: Callable[..., Any]
    run_rule: Callable[..., list[Any]]
    program_of: Callable[[Tensor], Any]


@dataclass(frozen=True)
class Twins:
    """The variables that stand for parameters in a program that a layer appends to.

    Attributes:
        twin_of: the variable that stands for a parameter; the tensor itself elsewhere.
        stand_ins: arguments of a layer with such variables; None elsewhere.
    """

    twin_of: Callable[[Tensor], Any]
    stand_ins: Callable[[Any, Any], tuple[Any, Any] | None]


class Parts:
    """The parts, each set once."""

    tensor: type[Tensor]
    ops: TensorOps
    passes: BackwardPasses
    twins: Twins = Twins(twin_of=lambda tensor: tensor, stand_ins=lambda args, kwargs: None)


parts = Parts()
