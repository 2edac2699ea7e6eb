"""Averages of parameters over the steps of training, to evaluate with: `ExponentialMovingAverage`, `ModelAverage`."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from . import unique_name
from .errors import FluidTypeError, ProgramError
from .framework import (
    Block,
    BuildNamespace,
    OpRole,
    Program,
    Variable,
    default_main_program,
    default_startup_program,
)
from .initializer import constant_attrs
from .regularizer import WeightDecayRegularizer
from .types import VarType
from .values import OpNamespace

__all__ = ["ExponentialMovingAverage", "ModelAverage"]


class _Average:
    """What averages share: the parameters, variables of their own, and programs that put averages in and take them out.

    The parameters are those that the default main program has when the average is made, but for those whose `ParamAttr` says
    ``do_model_average=False``.
    """

    def __init__(self, name: str | None) -> None:
        self._name = name
        self._program = default_main_program()
        self._startup = default_startup_program()
        self._params = [p for p in self._program.global_block().all_parameters() if p.do_model_average is not False]
        if not self._params:
            raise ProgramError(f"{type(self).__name__}: the default main program has no parameter to average; make it afterwards")
        self._restore_program: Program | None = None
        self._apply_program: Program | None = None

    def _state(self, name: str, shape: Any, dtype: VarType, value: float = 0.0) -> Variable:
        """A persistable variable of the main program, which the startup program fills with `value`."""
        said = unique_name.generate(name if self._name is None else f"{self._name}_{name}")
        known = {"name": said, "shape": shape, "dtype": dtype, "persistable": True, "stop_gradient": True}
        home = self._startup.global_block()
        home.append_op("fill_constant", outputs={"Out": home.create_var(**known)}, attrs=constant_attrs(shape, dtype, value))
        return self._program.global_block().create_var(**known)

    def _average(self, ops: OpNamespace, param: Variable, block: Block) -> Any:
        """The average of one parameter, computed by ops appended to `block`."""
        raise NotImplementedError

    def _count(self, block: Block) -> Variable:
        """What says how many values were averaged."""
        raise NotImplementedError

    def _build(self) -> tuple[Program, Program]:
        """The programs that put averages in place of the parameters, and the parameters back."""
        if self._apply_program is None or self._restore_program is None:
            self._apply_program, self._restore_program = Program(), Program()
            for param in self._params:
                kept = unique_name.generate(param.name + "_before_average")
                for program, read, write in ((self._apply_program, param.name, kept), (self._restore_program, kept, param.name)):
                    block = program.global_block()
                    for name in (param.name, kept):
                        block.create_var(name=name, shape=param.shape, dtype=param.dtype, persistable=True)
                    block.append_op("assign", {"X": read}, {"Out": write})
                block = self._apply_program.global_block()
                found = self._average(BuildNamespace(block), block.vars[param.name], block)
                block.append_op("assign", {"X": found}, {"Out": param.name})
        return self._apply_program, self._restore_program

    @contextlib.contextmanager
    def apply(self, executor: Any, need_restore: bool = True) -> Iterator[None]:
        """Inside the ``with``, the parameters of the global scope are the averages; `need_restore` off, afterwards too.

        Raises:
            ProgramError: nothing was averaged so far.
        """
        program, _ = self._build()
        (count,) = executor.run(program, fetch_list=[self._count(program.global_block())])
        if not count.any():
            self.restore(executor)
            raise ProgramError(f"{type(self).__name__} has averaged nothing yet; run the main program with its updates first")
        try:
            yield
        finally:
            if need_restore:
                self.restore(executor)

    def restore(self, executor: Any) -> None:
        """Put the parameters back as they were before `apply`."""
        executor.run(self._build()[1])


def _known(block: Block, var: Variable) -> Variable:
    """A persistable variable of another program, declared in `block` too."""
    return block.create_var(name=var.name, shape=var.shape, dtype=var.dtype, persistable=True)


class ExponentialMovingAverage(_Average):
    """Averages that forget old values: ``average = decay * average + (1 - decay) * param`` in each step, from 0.

    What `apply` puts in place of a parameter is ``average / (1 - decay ** t)`` after ``t`` steps, so that the start at 0
    does not show. With `thres_steps`, a variable that counts the steps of training, the decay of a step is
    ``min(decay, (1 + thres_steps) / (10 + thres_steps))``.

    Call ``update()`` once the optimizer's ``minimize`` has been called; the averages are then made as the program runs.
    """

    def __init__(self, decay: float = 0.999, thres_steps: Variable | None = None, name: str | None = None) -> None:
        if not isinstance(decay, (int, float)) or not 0.0 <= decay < 1.0:
            raise ProgramError(f"ExponentialMovingAverage: decay should be in [0, 1), not {decay!r}")
        if thres_steps is not None and not isinstance(thres_steps, Variable):
            raise FluidTypeError(f"ExponentialMovingAverage: thres_steps should be a Variable, not {thres_steps!r}")
        super().__init__(name)
        self._thres_steps = thres_steps
        self._first_decay = float(decay)
        self._decay = self._state("ema_decay", [1], VarType.FP32, decay)
        self._steps = self._state("ema_steps", [1], VarType.INT64)
        self._averages = {param.name: self._state(param.name + "_ema", param.shape, param.dtype) for param in self._params}

    def update(self) -> None:
        """Append to the main program the ops that bring the averages up."""
        program = self._program
        block = program.global_block()
        with program.block_guard(block), program.role_guard(OpRole.OPTIMIZE):
            ops = BuildNamespace(block)
            block.append_op("increment", {"X": self._steps}, {"Out": self._steps}, {"step": 1.0})
            if self._thres_steps is not None:
                steps = ops.cast(self._thres_steps, in_dtype=int(self._thres_steps.dtype), out_dtype=int(VarType.FP32))
                ratio = ops.reshape2((steps + 1.0) / (steps + 10.0), shape=[1])
                most = ops.fill_constant(**constant_attrs([1], VarType.FP32, self._first_decay))
                block.append_op("elementwise_min", {"X": ratio, "Y": most}, {"Out": self._decay})
            for param in self._params:
                average = self._averages[param.name]
                decay = _as(ops, self._decay, param.dtype)
                block.append_op("assign", {"X": average * decay + param * (1.0 - decay)}, {"Out": average})

    def _count(self, block: Block) -> Variable:
        return _known(block, self._steps)

    def _average(self, ops: OpNamespace, param: Variable, block: Block) -> Any:
        decay = _as(ops, _known(block, self._decay), param.dtype)
        steps = _as(ops, self._count(block), param.dtype)
        return _known(block, self._averages[param.name]) / (1.0 - ops.elementwise_pow(decay, steps))


def _as(ops: OpNamespace, var: Variable, dtype: VarType) -> Any:
    return var if var.dtype is dtype else ops.cast(var, in_dtype=int(var.dtype), out_dtype=int(dtype))


_SUMS = ("sum_1", "sum_2", "sum_3")
_COUNTS = ("num_accumulates", "old_num_accumulates", "num_updates")


class ModelAverage(_Average):
    """Means of the parameters over a window of the last steps.

    The window holds ``average_window_rate`` times the number of steps so far, but at least `min_average_window` and at most
    `max_average_window`; when it is full a new one begins, and until that is full the mean is over both. Made after
    ``minimize``, it appends to the main program the ops that sum up (`average_accumulates`). `regularization` changes nothing.
    """

    def __init__(
        self,
        average_window_rate: float,
        min_average_window: int = 10000,
        max_average_window: int = 10000,
        regularization: WeightDecayRegularizer | None = None,
        name: str | None = None,
    ) -> None:
        super().__init__(name)
        if average_window_rate < 0 or not 0 <= min_average_window <= max_average_window:
            raise ProgramError(
                "ModelAverage takes an average_window_rate of at least 0 and 0 <= min_average_window <= max_average_window, not "
                f"{average_window_rate!r}, {min_average_window!r} and {max_average_window!r}"
            )
        attrs = {
            "average_window": float(average_window_rate),
            "min_average_window": int(min_average_window),
            "max_average_window": int(max_average_window),
        }
        self._sums: dict[str, dict[str, Variable]] = {}
        block = self._program.global_block()
        for param in self._params:
            state = {key: self._state(f"{param.name}_{key}", param.shape, param.dtype) for key in _SUMS}
            state |= {key: self._state(f"{param.name}_{key}", [1], VarType.INT64) for key in _COUNTS}
            self._sums[param.name] = state
            inputs = {"in_" + key: var for key, var in state.items()}
            outputs = {"out_" + key: var for key, var in state.items()}
            with self._program.role_guard(OpRole.OPTIMIZE):
                block.append_op("average_accumulates", {"param": param, **inputs}, outputs, attrs)

    def _count(self, block: Block) -> Variable:
        return _known(block, self._sums[self._params[0].name]["num_updates"])

    def _average(self, ops: OpNamespace, param: Variable, block: Block) -> Any:
        state = {key: _known(block, var) for key, var in self._sums[param.name].items()}
        count = ops.sum([state["num_accumulates"], state["old_num_accumulates"]])
        return ops.sum([state[key] for key in _SUMS]) / _as(ops, count, param.dtype)
