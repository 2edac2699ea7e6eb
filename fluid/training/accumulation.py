"""Updates by the mean gradient of several batches, for batches that memory does not hold at once."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from .. import unique_name
from ..backward import append_backward
from ..errors import FluidTypeError, ProgramError
from ..ir.program import Operator, OpRole, Parameter, Program, Variable, default_main_program, program_guard
from ..layers.nn import scale
from ..layers.tensor import assign, create_global_var, sums, zeros_like
from ..optimizer import Optimizer
from .periods import do_every
from .states import ByProgram

Pair = tuple[Parameter, Variable | None]


class GradientAccumulation:
    """An optimizer that updates after every `steps` batches, by the mean of their gradients.

    With batches of equal size this equals an update by one large batch, if the loss is a mean over rows and no op depends on the
    batch as a whole, as batch normalization does. In a program the sums and the counter are variables, so that checkpoints hold
    them, and the program needs only to be run. In eager mode `minimize` or `step` is called for each batch, and gradients are
    cleared after it, as always.

    Several workers train by ``fleet.distributed_optimizer(GradientAccumulation(optimizer, steps))``: the gradients of each batch
    are summed over the workers while backward goes on, sparse ones by their rows.

    A schedule counts runs in a program, and updates in eager mode.

    Args:
        optimizer: makes the updates; clips and decays the mean gradients as it would the gradients.
        steps: of how many batches.

    Raises:
        FluidTypeError: `optimizer` is none of `fluid.optimizer`.
        ProgramError: `steps` is no such number.

    >>> w = dygraph.Parameter([1.0])
    >>> optimizer = fluid.training.GradientAccumulation(fluid.optimizer.SGD(0.5, parameter_list=[w]), steps=2)
    >>> for factor in (1.0, 3.0):
    ...     (w * factor).sum().backward()
    ...     optimizer.step()
    ...     optimizer.clear_grad()
    ...     print(w.numpy())
    [1.]
    [0.]
    """

    def __init__(self, optimizer: Optimizer, steps: int) -> None:
        if not isinstance(optimizer, Optimizer):
            raise FluidTypeError(
                f"GradientAccumulation takes an optimizer of fluid.optimizer, not {optimizer!r}; for several workers, give "
                "fleet.distributed_optimizer the GradientAccumulation"
            )
        if not isinstance(steps, int) or isinstance(steps, bool) or steps < 1:
            raise ProgramError(f"GradientAccumulation: steps should be a number of batches, at least 1, not {steps!r}")
        self.inner_optimizer, self.steps = optimizer, steps
        self._sums: ByProgram[dict[Any, Variable]] = ByProgram()
        """Sums of gradients, by the key of the parameter; under "" the counter."""

    def minimize(
        self,
        loss: Variable,
        startup_program: Program | None = None,
        parameter_list: Any = None,
        no_grad_set: Iterable[Variable | str] | None = None,
    ) -> tuple[list[Operator], list[Pair]]:
        """Like `Optimizer.minimize`, but with updates in every `steps`-th run only.

        Args:
            loss: a variable of one element.
            startup_program: initializes the optimizer's variables, the sums and the counter; the default one if None.
            parameter_list: parameters to train, or their names; all trainable ones by default.
            no_grad_set: variables, or names, through which no gradient flows.

        Returns:
            All ops that were appended after the backward part, and (parameter, gradient) pairs of each batch.
        """
        pairs = self.backward(loss, startup_program, parameter_list, no_grad_set)
        return self._train(loss.block.program, startup_program, pairs), pairs

    def backward(
        self,
        loss: Variable,
        startup_program: Program | None = None,
        parameter_list: Any = None,
        no_grad_set: Iterable[Variable | str] | None = None,
        callbacks: Any = None,
    ) -> list[Pair]:
        """Append only the backward part of each batch.

        Args:
            loss, startup_program, parameter_list, no_grad_set, callbacks: see `fluid.optimizer.Optimizer.backward`.

        Returns:
            (parameter, gradient) pairs, for `apply_gradients`.
        """
        return self.inner_optimizer.backward(loss, startup_program, parameter_list, no_grad_set, callbacks)

    def apply_gradients(self, params_grads: Iterable[Pair]) -> list[Operator]:
        """Append the sums, and the updates in every `steps`-th run, to the default main program.

        Args:
            params_grads: (parameter, gradient) pairs, as from `backward`; pairs without a gradient are passed over.

        Returns:
            All ops that were appended.
        """
        return self._train(default_main_program(), None, params_grads)

    def step(self) -> None:
        """In eager mode, take the gradients of the optimizer's parameters; update them in every `steps`-th call."""
        params = self.inner_optimizer._own_parameters("step")
        program = params[0].block.program
        self._train(program, None, program.gradients(None, params, None, append_backward))

    def clear_grad(self) -> None:
        """In eager mode, clear the gradients of the optimizer's parameters."""
        self.inner_optimizer.clear_grad()

    clear_gradients = clear_grad

    def state_dict(self) -> dict[str, Any]:
        """In eager mode, the state of the optimizer itself, which is complete after each update."""
        return self.inner_optimizer.state_dict()

    def set_dict(self, state_dict: Mapping[str, Any]) -> None:
        """In eager mode, continue from a `state_dict`; see `Optimizer.set_dict`."""
        self.inner_optimizer.set_dict(state_dict)

    def _train(self, program: Program, startup_program: Program | None, pairs: Iterable[Pair]) -> list[Operator]:
        block = program.current_block()
        start = len(block.ops)
        accumulated = self._sums.setdefault(program, {})
        trained = [(param, grad) for param, grad in pairs if grad is not None and param.trainable]
        with program_guard(program, startup_program), program.role_guard(OpRole.OPTIMIZE):
            totals = [(param, self._total(accumulated, program, param)) for param, _ in trained]
            for (_, grad), (_, total) in zip(trained, totals, strict=True):
                assign(sums([total, grad]), total)
            if "" not in accumulated:
                name = unique_name.generate("accumulated_batches")
                accumulated[""] = create_global_var([1], 0, "int64", persistable=True, name=name)

            def update() -> None:
                self.inner_optimizer.apply_gradients([(param, scale(total, 1.0 / self.steps)) for param, total in totals])
                for _, total in totals:
                    assign(zeros_like(total), total)

            do_every(accumulated[""], self.steps, update)
        return block.ops[start:]

    @staticmethod
    def _total(accumulated: dict[Any, Variable], program: Program, param: Parameter) -> Variable:
        """The variable with the sum of a parameter's gradients."""
        key = program.key_of(param)
        if key not in accumulated:
            name = unique_name.generate(f"{param.name}_accumulated")
            accumulated[key] = create_global_var(param.shape, 0.0, param.dtype, persistable=True, name=name)
        return accumulated[key]
