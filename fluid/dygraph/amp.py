"""Mixed precision in eager mode: `amp_guard` casts the inputs of ops, `AmpScaler` preserves small gradients of float16."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np

from ..eager.casting import Caster
from ..eager.dispatch import namespace as ops
from ..eager.mode import intercepting, no_grad, state
from ..eager.tensor import Tensor
from ..errors import FluidTypeError, ProgramError
from ..executor.binding.compiled import apply_op
from ..training.precision import AutoMixedPrecisionLists, half_type
from ..training.scaling import ScaleRule
from ..values.selected_rows import SelectedRows
from ..values.types import DTypeLike

__all__ = ["AmpScaler", "GradScaler", "amp_guard"]


@contextmanager
def amp_guard(
    enable: bool = True,
    custom_white_list: Iterable[str] | None = None,
    custom_black_list: Iterable[str] | None = None,
    dtype: DTypeLike = "float16",
) -> Iterator[None]:
    """Inside the ``with``, ops on tensors are computed in mixed precision.

    Products are computed in half precision, losses in float32, ops in between in the precision of their inputs: see
    `fluid.contrib.mixed_precision.AutoMixedPrecisionLists`. Parameters stay float32; each is cast once, until an optimizer
    changes it. Casts are recorded, so gradients of parameters are float32. Call ``backward()`` and the optimizer outside of
    the ``with``. A function that is traced, or runs as `to_static`, has the ``with`` inside of it.

    Args:
        enable: False for float32, also inside of another `amp_guard`.
        custom_white_list, custom_black_list: as of `AutoMixedPrecisionLists`.
        dtype: ``"float16"`` or ``"bfloat16"``.

    Raises:
        FluidTypeError: `dtype` is another type.
        ProgramError: an op is in both lists, or there is no such op.

    >>> net = dygraph.Linear(3, 2)
    >>> with dygraph.amp_guard(dtype="bfloat16"):
    ...     y = net(dygraph.Tensor([[1.0, 2.0, 3.0]]))
    ...     loss = layers.mean(y)
    >>> loss.backward()
    >>> y.dtype.text, loss.dtype.text, net.weight.grad.dtype.text
    ('bfloat16', 'float32', 'float32')
    """
    around = state.interceptor
    inner = around.around if isinstance(around, Caster) else around
    if enable:
        inner = Caster(AutoMixedPrecisionLists(custom_white_list, custom_black_list), half_type(dtype), inner)
    with intercepting(inner):
        yield


class AmpScaler:
    """Multiplies losses by a factor, so that gradients in float16 are not lost as too small, and divides gradients by it.

    A step with a gradient that is not finite changes no parameter and no state of the optimizer; then the factor shrinks. It
    grows after a number of good steps.

    Args:
        enable: False to do nothing: losses and gradients stay, and optimizers step.
        init_loss_scaling: the factor at first.
        incr_ratio: how much it grows, above 1.
        decr_ratio: how much it shrinks, between 0 and 1; to 1 at least.
        incr_every_n_steps: it grows after this number of consecutive steps with finite gradients.
        decr_every_n_nan_or_inf: it shrinks after this number of consecutive steps without.
        use_dynamic_loss_scaling: whether it changes.

    Raises:
        ProgramError: a number is out of its bounds.

    >>> net = dygraph.Linear(3, 2)
    >>> optimizer = fluid.optimizer.Adam(0.01, parameter_list=net.parameters())
    >>> scaler = dygraph.AmpScaler(init_loss_scaling=1024.0)
    >>> with dygraph.amp_guard():
    ...     loss = layers.mean(net(dygraph.Tensor([[1.0, 2.0, 3.0]])))
    >>> scaled = scaler.scale(loss)
    >>> scaled.backward()
    >>> scaler.minimize(optimizer, scaled)
    True
    """

    def __init__(
        self,
        enable: bool = True,
        init_loss_scaling: float = 2.0**15,
        incr_ratio: float = 2.0,
        decr_ratio: float = 0.5,
        incr_every_n_steps: int = 1000,
        decr_every_n_nan_or_inf: int = 1,
        use_dynamic_loss_scaling: bool = True,
    ) -> None:
        self._rule = ScaleRule(
            init_loss_scaling, incr_every_n_steps, decr_every_n_nan_or_inf, incr_ratio, decr_ratio, bool(use_dynamic_loss_scaling)
        )
        self._enabled = bool(enable)
        self._scale, self._good_steps, self._bad_steps = float(init_loss_scaling), 0, 0
        self._is_finite: bool | None = None
        """Whether the divided gradients of this step are finite; None before they are divided."""

    def is_enable(self) -> bool:
        """Whether scaling is enabled."""
        return self._enabled

    def get_loss_scaling(self) -> float:
        """The factor of the next loss."""
        return self._scale if self._enabled else 1.0

    def scale(self, var: Tensor) -> Tensor:
        """A loss times the factor."""
        if state.tracer is not None and self._enabled:
            state.tracer.refuse_call(
                "AmpScaler", "it decides by values whether a step is skipped; train in bfloat16 without it, or run it outside"
            )
        if not isinstance(var, Tensor):
            raise FluidTypeError(f"AmpScaler.scale takes the loss, a tensor, not {var!r}; programs have mixed_precision.decorate")
        return var * self._scale if self._enabled else var

    def unscale_(self, optimizer: Any) -> None:
        """Divide the gradients of an optimizer's parameters by the factor, in place, such as to clip them; `step` and
        `minimize` do that if it is not done yet.

        Args:
            optimizer: was given a `parameter_list`.

        Raises:
            ProgramError: it was not, or this step's gradients have been divided already.
        """
        if not self._enabled:
            return
        if state.tracer is not None:
            state.tracer.refuse_call("AmpScaler.unscale_", "call it outside the step")
        if self._is_finite is not None:
            raise ProgramError(
                "AmpScaler.unscale_: the gradients of this step have been divided already; call update() after step()"
            )
        owner = getattr(optimizer, "inner_optimizer", optimizer)  # of a LookaheadOptimizer
        params = [param for param in owner._own_parameters("AmpScaler.unscale_") if param._grad is not None]
        with no_grad(), intercepting(None):
            factor = Tensor(np.array([self._scale], "float32"))
            self._is_finite = True
            for param in params:
                grad = param._grad
                if isinstance(grad._array, SelectedRows):
                    rows, inverse = Tensor(np.asarray(grad._array.value)), ops.reciprocal(factor)
                    param.grad = ops.elementwise_mul(grad, inverse)
                    _, is_infinite = ops.check_finite_and_unscale([rows], factor)
                else:
                    (param.grad,), is_infinite = ops.check_finite_and_unscale([grad], factor)
                self._is_finite &= not bool(is_infinite)

    def step(self, optimizer: Any) -> bool:
        """Let the optimizer step if all gradients are finite; return whether it did. Call `update` afterwards."""
        if not self._enabled:
            optimizer.step()
            return True
        if self._is_finite is None:
            self.unscale_(optimizer)
        if self._is_finite:
            optimizer.step()
        return bool(self._is_finite)

    def update(self) -> None:
        """Compute the factor of the next step from the gradients of this one."""
        is_finite, self._is_finite = self._is_finite, None
        if not self._enabled or is_finite is None or not self._rule.is_dynamic:
            return
        inputs = {
            "FoundInfinite": np.array([not is_finite]),
            "PrevLossScaling": np.array([self._scale], "float32"),
            "InGoodSteps": np.array([self._good_steps], "int32"),
            "InBadSteps": np.array([self._bad_steps], "int32"),
        }
        result = apply_op("update_loss_scaling", inputs, self._rule.attrs)
        self._scale = result["LossScaling"].item()
        self._good_steps, self._bad_steps = result["OutGoodSteps"].item(), result["OutBadSteps"].item()

    def minimize(self, optimizer: Any, *args: Any, **kwargs: Any) -> bool:
        """`step` and `update`, after ``backward()`` of the scaled loss; whether the optimizer stepped.

        Args:
            optimizer: was given a `parameter_list`.
            args, kwargs: of ``optimizer.minimize``: the scaled loss and the other arguments.
        """
        if self._enabled and self._is_finite is None:
            self.unscale_(optimizer)
        stepped = not self._enabled or bool(self._is_finite)
        if stepped:
            optimizer.minimize(*args, **kwargs)
        self.update()
        return stepped

    def state_dict(self) -> dict[str, float]:
        """The factor, and the numbers of good and of bad steps in a row, to go on with later."""
        return {"scale": self._scale, "good_steps": self._good_steps, "bad_steps": self._bad_steps}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Continue from a `state_dict`; `ProgramError` if it is none."""
        if set(state_dict) != set(self.state_dict()):
            raise ProgramError(f"AmpScaler.load_state_dict takes what state_dict() gives, not one with {sorted(state_dict)}")
        self._scale = float(state_dict["scale"])
        self._good_steps, self._bad_steps = int(state_dict["good_steps"]), int(state_dict["bad_steps"])

    set_dict = load_state_dict


GradScaler = AmpScaler
"""The name of `AmpScaler` in Paddle 2."""
