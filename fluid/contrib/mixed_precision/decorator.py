"""An optimizer as `decorate` gives it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ... import layers
from ...ir.program import Operator, Parameter, Program, Variable
from ...optimizer import Optimizer
from .fp16_lists import AutoMixedPrecisionLists

__all__ = ["OptimizerWithMixedPrecison", "decorate"]

_Pairs = list[tuple[Parameter, Variable]]


class OptimizerWithMixedPrecison:
    """Trains with an optimizer in float32, which needs no scaling of the loss: neither numpy nor its BLAS is faster in float16.

    The scaled loss is the loss, and the scale is 1.
    """

    def __init__(self, optimizer: Optimizer) -> None:
        self._optimizer = optimizer
        self._loss: Variable | None = None
        self._scale: Variable | None = None

    def get_loss_scaling(self) -> Variable | None:
        """The factor of the loss, a variable that holds 1; None before `minimize` or `backward`."""
        return self._scale

    def get_scaled_loss(self) -> Variable | None:
        """The loss; None before `minimize` or `backward`."""
        return self._loss

    def backward(
        self,
        loss: Variable,
        startup_program: Program | None = None,
        parameter_list: Iterable[Variable | str] | None = None,
        no_grad_set: Iterable[Variable | str] | None = None,
        callbacks: Any = None,
    ) -> tuple[_Pairs, Variable]:
        """Append the backward part; returns (parameter, gradient) pairs, and the loss."""
        self._loss = loss
        self._scale = layers.create_global_var([1], 1.0, "float32", persistable=True)
        pairs: Any = self._optimizer.backward(loss, startup_program, parameter_list, no_grad_set, callbacks)
        return pairs, loss

    def apply_gradients(self, params_grads: Any) -> list[Operator]:
        """Append the updates of the parameters."""
        return self._optimizer.apply_gradients(params_grads)

    def minimize(
        self,
        loss: Variable,
        startup_program: Program | None = None,
        parameter_list: Iterable[Variable | str] | None = None,
        no_grad_set: Iterable[Variable | str] | None = None,
    ) -> tuple[list[Operator], _Pairs]:
        """Append the backward part and the updates; returns the update ops, and (parameter, gradient) pairs."""
        pairs, _ = self.backward(loss, startup_program, parameter_list, no_grad_set)
        return self._optimizer.apply_optimize(loss, startup_program, pairs), pairs


def decorate(
    optimizer: Optimizer,
    amp_lists: AutoMixedPrecisionLists | None = None,
    init_loss_scaling: float = 1.0,
    incr_every_n_steps: int = 1000,
    decr_every_n_nan_or_inf: int = 2,
    incr_ratio: float = 2.0,
    decr_ratio: float = 0.8,
    use_dynamic_loss_scaling: bool = False,
) -> OptimizerWithMixedPrecison:
    """An optimizer with the interface of mixed precision, which trains in float32.

    Args:
        optimizer: does the updates.
        amp_lists, init_loss_scaling, incr_every_n_steps, decr_every_n_nan_or_inf, incr_ratio, decr_ratio,
            use_dynamic_loss_scaling: accepted as in Fluid, without effect: they keep float16 from losing small gradients.
    """
    return OptimizerWithMixedPrecison(optimizer)
