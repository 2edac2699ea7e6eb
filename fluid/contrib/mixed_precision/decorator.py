"""A type of optimizers for `decorate`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ... import layers
from ...errors import FluidTypeError, ProgramError
from ...ir.program import Block, Operator, OpRole, Parameter, Program, Variable, default_main_program, program_guard
from ...optimizer import Optimizer
from ...training.precision import AutoMixedPrecisionLists, half_type
from ...training.scaling import ScaleRule
from ...transform.mixed_precision import use_half_precision
from ...values.types import DTypeLike, VarType

__all__ = ["OptimizerWithMixedPrecison", "decorate"]

_Pairs = list[tuple[Parameter, Variable]]


class OptimizerWithMixedPrecison:
    """Trains a program in mixed precision by an optimizer; `decorate` makes it.

    Args:
        optimizer: does the updates.
        amp_lists: which ops are computed in half precision.
        rule: how the loss is scaled.
        half: `VarType.FP16` or `VarType.BF16`.
    """

    def __init__(self, optimizer: Optimizer, amp_lists: AutoMixedPrecisionLists, rule: ScaleRule, half: VarType) -> None:
        self._optimizer, self._lists, self._rule, self._half = optimizer, amp_lists, rule, half
        self._loss: Variable | None = None
        self._scale: Variable | None = None

    def get_loss_scaling(self) -> Variable | None:
        """The factor of the loss, a persistable variable of one float32; None before `minimize` or `backward`."""
        return self._scale

    def get_scaled_loss(self) -> Variable | None:
        """The scaled loss where backward starts; None before `minimize` or `backward`."""
        return self._loss

    def backward(
        self,
        loss: Variable,
        startup_program: Program | None = None,
        parameter_list: Iterable[Variable | str] | None = None,
        no_grad_set: Iterable[Variable | str] | None = None,
        callbacks: Any = None,
    ) -> tuple[_Pairs, Variable]:
        """Write casts into the program, and append the backward part.

        Args:
            loss, startup_program, parameter_list, no_grad_set: as of `Optimizer.minimize`.
            callbacks: as of `append_backward`.

        Returns:
            (parameter, gradient) pairs, the gradients multiplied by the factor of the loss (`apply_gradients` divides them by
            it), and the scaled loss.

        Raises:
            ProgramError: in eager mode, or if the program already has gradients of ops whose precision would change.
        """
        if not isinstance(loss, Variable):
            raise FluidTypeError(f"the loss should be a Variable, not {type(loss).__name__}")
        program = loss.block.program
        if program.eager:
            raise ProgramError(
                "mixed_precision.decorate is for programs; in eager mode call the layers in "
                "'with fluid.dygraph.amp_guard():', and scale the loss by a fluid.dygraph.AmpScaler"
            )
        use_half_precision(program, self._lists, self._half, (loss.name,))
        with program_guard(program, startup_program), program.block_guard(loss.block):
            self._scale = layers.create_global_var([1], self._rule.first, "float32", persistable=True, name=_name("loss_scaling"))
            self._loss = loss * self._scale if self._rule.scales else loss
        pairs: Any = self._optimizer.backward(self._loss, startup_program, parameter_list, no_grad_set, callbacks)
        return pairs, self._loss

    def apply_gradients(self, params_grads: Any) -> list[Operator]:
        """Append the ops after backward to the current block of the default main program.

        Gradients are divided by the factor of the loss, in place, and looked at; clips, weight decay and updates follow, in a
        block that does not run if a gradient is not finite; then the factor of the next step is found.

        Args:
            params_grads: pairs from `backward`.

        Returns:
            The ops of the updates.
        """
        if self._scale is None:
            raise ProgramError("apply_gradients: call backward first, which writes the factor of the loss into the program")
        pairs = [(param, grad) for param, grad in params_grads if grad is not None]
        if not self._rule.scales or not pairs:
            return self._optimizer.apply_gradients(params_grads)
        program = default_main_program()
        block = program.current_block()
        with program.role_guard(OpRole.OPTIMIZE):
            is_infinite, pairs = _check_and_unscale(block, pairs, self._scale)
            is_finite = layers.logical_not(is_infinite)
            with layers.control_flow.ConditionalBlock([is_finite], is_scalar_condition=True).block():
                updates = self._optimizer.apply_gradients(pairs)
            if self._rule.is_dynamic:
                self._rule.append(block, is_infinite, self._scale)
        return updates

    def apply_optimize(self, loss: Variable, startup_program: Program | None, params_grads: Any) -> list[Operator]:
        """`apply_gradients` in the loss's program.

        Args:
            loss, startup_program, params_grads: see `fluid.optimizer.Optimizer.apply_optimize`.
        """
        with program_guard(loss.block.program, startup_program):
            return self.apply_gradients(params_grads)

    def minimize(
        self,
        loss: Variable,
        startup_program: Program | None = None,
        parameter_list: Iterable[Variable | str] | None = None,
        no_grad_set: Iterable[Variable | str] | None = None,
    ) -> tuple[list[Operator], _Pairs]:
        """`backward` and `apply_gradients`.

        Args:
            loss: a variable of one element.
            startup_program: initializes the optimizer's variables and the factor of the loss; the default one if None.
            parameter_list, no_grad_set: as of `Optimizer.minimize`.

        Returns:
            The update ops, and (parameter, gradient) pairs.
        """
        pairs, _ = self.backward(loss, startup_program, parameter_list, no_grad_set)
        return self.apply_optimize(loss, startup_program, pairs), pairs


def _check_and_unscale(block: Block, pairs: _Pairs, scale: Variable) -> tuple[Variable, _Pairs]:
    """Append the op that divides gradients by the scale in place; return whether one is not finite, and the pairs.

    Of a sparse gradient it looks at the rows; those divided are a new gradient.
    """
    is_infinite = block.create_var(name=_name("is_infinite"), dtype="bool", shape=[1], stop_gradient=True)
    ops, reads, writes, unscaled = block.namespace, [], [], []
    for param, grad in pairs:
        if grad.type is VarType.SELECTED_ROWS:
            rows = ops.get_tensor_from_selected_rows(ops.merge_selected_rows(grad))
            reads.append(rows)
            writes.append(block.create_var(name=_name(f"{rows.name}.unscaled"), stop_gradient=True))
            unscaled.append((param, ops.elementwise_mul(grad, ops.reciprocal(scale))))
        else:
            reads.append(grad)
            writes.append(grad)
            unscaled.append((param, grad))
    outputs = {"Out": writes, "FoundInfinite": is_infinite}
    block.append_op("check_finite_and_unscale", inputs={"X": reads, "Scale": scale}, outputs=outputs)
    return is_infinite, unscaled


def _name(base: str) -> str:
    return default_main_program().fresh_name(base)


def decorate(
    optimizer: Optimizer,
    amp_lists: AutoMixedPrecisionLists | None = None,
    init_loss_scaling: float = 1.0,
    incr_every_n_steps: int = 1000,
    decr_every_n_nan_or_inf: int = 2,
    incr_ratio: float = 2.0,
    decr_ratio: float = 0.8,
    use_dynamic_loss_scaling: bool = False,
    dtype: DTypeLike = "float16",
) -> OptimizerWithMixedPrecison:
    """An optimizer that trains in mixed precision: products in half precision, weights, losses and updates in float32.

    Its `minimize` writes casts into the program, where they can be seen. Gradients that float16 would lose as too small are
    kept by multiplying the loss by a factor, and dividing the gradients of the parameters, which are float32, by it. Clips and
    weight decay act on the float32 gradients. If one of them is not finite, the step changes neither parameters nor the
    optimizer's state.

    Args:
        optimizer: does the updates.
        amp_lists: which ops are computed in half precision; Fluid 1.6's lists by default.
        init_loss_scaling: the factor of the loss at first. With 1, the default, and no dynamic scaling, nothing is scaled, and
            gradients are not looked at: right for bfloat16, which has the range of float32.
        incr_every_n_steps: the factor grows after this number of consecutive steps with finite gradients.
        decr_every_n_nan_or_inf: the factor shrinks after this number of consecutive steps without.
        incr_ratio: how much it grows, above 1.
        decr_ratio: how much it shrinks, between 0 and 1; to 1 at least.
        use_dynamic_loss_scaling: whether the factor changes.
        dtype: ``"float16"`` or ``"bfloat16"``.

    Raises:
        FluidTypeError: `optimizer` is none, or `dtype` another type.
        ProgramError: a number is out of its bounds.

    >>> hidden = layers.fc(fluid.data("x", [-1, 4]), 8, act="relu")
    >>> loss = layers.mean(layers.fc(hidden, 1))
    >>> optimizer = fluid.contrib.mixed_precision.decorate(
    ...     fluid.optimizer.SGD(0.1), init_loss_scaling=2.0**15, use_dynamic_loss_scaling=True)
    >>> updates, pairs = optimizer.minimize(loss)
    >>> exe = fluid.Executor()
    >>> _ = exe.run(fluid.default_startup_program())
    >>> values = exe.run(feed={"x": np.ones((2, 4), "float32")}, fetch_list=[hidden, optimizer.get_loss_scaling()])
    >>> values[0].dtype, float(values[1])
    (dtype('float16'), 32768.0)
    """
    if not isinstance(optimizer, Optimizer):
        raise FluidTypeError(f"decorate takes an optimizer, such as fluid.optimizer.SGD(0.1), not {optimizer!r}")
    if amp_lists is not None and not isinstance(amp_lists, AutoMixedPrecisionLists):
        raise FluidTypeError(f"decorate: amp_lists should be an AutoMixedPrecisionLists, not {amp_lists!r}")
    rule = ScaleRule(
        init_loss_scaling, incr_every_n_steps, decr_every_n_nan_or_inf, incr_ratio, decr_ratio, bool(use_dynamic_loss_scaling)
    )
    lists = amp_lists if amp_lists is not None else AutoMixedPrecisionLists()
    return OptimizerWithMixedPrecison(optimizer, lists, rule, half_type(dtype))
