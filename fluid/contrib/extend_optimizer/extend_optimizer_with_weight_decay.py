"""Weight decay that is decoupled from the gradient: ``param -= coeff * param``, then the optimizer's own update."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ... import layers
from ...errors import FluidTypeError
from ...ir.program import Program, Variable, program_guard
from ...optimizer import Optimizer

__all__ = ["extend_with_decoupled_weight_decay"]


def extend_with_decoupled_weight_decay(base_optimizer: type[Optimizer]) -> type[Optimizer]:
    """A subclass of an optimizer with decoupled weight decay: before its update, ``param -= weight_decay * param``.

    Its arguments are the optimizer's, as keywords, preceded by ``weight_decay``, the factor, a number or a variable, and
    ``apply_decay_param_fun``, a function of a parameter's name that returns whether it decays; by default all do.
    Source: Loshchilov and Hutter, Decoupled weight decay regularization, 2019.

    Args:
        base_optimizer: a class of optimizers.

    >>> AdamW = fluid.contrib.extend_with_decoupled_weight_decay(fluid.optimizer.Adam)
    >>> loss = layers.mean(layers.fc(fluid.data("x", [-1, 4]), 1))
    >>> updates, pairs = AdamW(weight_decay=0.01, learning_rate=0.001).minimize(loss)
    """
    if not (isinstance(base_optimizer, type) and issubclass(base_optimizer, Optimizer)):
        raise FluidTypeError(f"extend_with_decoupled_weight_decay takes a class of optimizers, not {base_optimizer!r}")

    class OptimizerWithDecoupledWeightDecay(base_optimizer):  # type: ignore[misc, valid-type]
        def __init__(
            self, weight_decay: float | Variable, apply_decay_param_fun: Callable[[str], bool] | None = None, **kwargs: Any
        ) -> None:
            if not isinstance(weight_decay, (int, float, Variable)):
                raise FluidTypeError(f"weight_decay should be a number or a Variable, not {type(weight_decay).__name__}")
            super().__init__(**kwargs)
            self._weight_decay = weight_decay
            self._decays = apply_decay_param_fun

        def apply_optimize(self, loss: Variable, startup_program: Program | None, params_grads: Any) -> Any:
            pairs = list(params_grads)
            with program_guard(loss.block.program, startup_program):
                for param, grad in pairs:
                    if grad is None or (self._decays is not None and not self._decays(param.name)):
                        continue
                    if not isinstance(self._weight_decay, Variable) and self._weight_decay == 0.0:
                        continue
                    with param.block.program.updating(param, grad):
                        layers.assign(param - param * self._weight_decay, output=param)
            return super().apply_optimize(loss, startup_program, pairs)

    OptimizerWithDecoupledWeightDecay.__doc__ = f"`{base_optimizer.__name__}` with decoupled weight decay."
    return OptimizerWithDecoupledWeightDecay
