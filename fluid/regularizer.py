"""Weight decay, as ops appended to the gradients."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from .ir.checked import check_number
from .ir.program import Parameter, Variable
from .not_here import names_here, names_not_here
from .opdef.inference import OpNamespace

__all__ = ["L1Decay", "L1DecayRegularizer", "L2Decay", "L2DecayRegularizer", "append_regularization_ops"]

__dir__ = names_here(__name__)

if not TYPE_CHECKING:
    __getattr__ = names_not_here(__name__)


class WeightDecayRegularizer:
    """Base of weight decay: adds a function of the parameter to its gradient.

    Args:
        regularization_coeff: the coefficient.
    """

    def __init__(self, regularization_coeff: float = 0.0) -> None:
        check_number(regularization_coeff, f"{type(self).__name__.removesuffix('Regularizer')}: regularization_coeff")
        self._regularization_coeff = regularization_coeff

    def decay(self, ops: OpNamespace, param: Any) -> Any:
        """The gradient of the penalty: `ops` has the ops as functions, `param` is the parameter."""
        raise NotImplementedError

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._regularization_coeff})"


class L2DecayRegularizer(WeightDecayRegularizer):
    """``coeff / 2 * sum(param ** 2)`` added to the loss: ``coeff * param`` to the gradient.

    Args:
        regularization_coeff: the coefficient.

    >>> loss = layers.mean(layers.fc(fluid.data("x", [-1, 4]), 1))
    >>> optimizer = fluid.optimizer.SGD(0.1, regularization=fluid.regularizer.L2Decay(0.01))
    >>> updates, pairs = optimizer.minimize(loss)
    """

    def decay(self, ops: OpNamespace, param: Any) -> Any:
        return ops.scale(param, scale=self._regularization_coeff)


class L1DecayRegularizer(WeightDecayRegularizer):
    """``coeff * sum(|param|)`` added to the loss: ``coeff * sign(param)`` to the gradient.

    Args:
        regularization_coeff: the coefficient.

    >>> decay = fluid.ParamAttr(regularizer=fluid.regularizer.L1Decay(0.01))
    >>> hidden = layers.fc(fluid.data("x", [-1, 4]), 8, param_attr=decay)
    """

    def decay(self, ops: OpNamespace, param: Any) -> Any:
        return ops.scale(ops.sign(param), scale=self._regularization_coeff)


def append_regularization_ops(
    parameters_and_grads: Iterable[tuple[Parameter, Variable | None]], regularization: WeightDecayRegularizer | None = None
) -> list[tuple[Parameter, Variable | None]]:
    """The pairs with weight decay added to the gradients: by the parameter's regularizer, or else `regularization`.

    All elements of a parameter decay, as in Fluid 1.6; so a sparse gradient becomes a dense one.

    Args:
        parameters_and_grads: (parameter, gradient) pairs, as from `append_backward`.
        regularization: decay of the parameters that have none of their own; None for none.
    """
    pairs = []
    for param, grad in parameters_and_grads:
        regularizer = param.regularizer or regularization
        if grad is not None and regularizer is not None:
            with param.block.program.updating(param, grad) as block:
                ops = block.namespace
                grad = ops.sum([grad, regularizer.decay(ops, param)])
        pairs.append((param, grad))
    return pairs


L1Decay = L1DecayRegularizer
L2Decay = L2DecayRegularizer
