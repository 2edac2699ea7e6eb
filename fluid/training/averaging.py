"""Averages of parameters over the steps of training, to evaluate with: `ExponentialMovingAverage`, `ModelAverage`."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Mapping
from typing import Any
from weakref import WeakSet

from .. import unique_name
from ..errors import FluidTypeError, ProgramError
from ..executor.runtime.scope import Scope, global_scope
from ..initializer import constant_attrs
from ..ir.program import Block, OpRole, Program, Variable, default_main_program
from ..opdef.inference import OpNamespace
from ..regularizer import WeightDecayRegularizer
from ..values.types import VarType
from .states import GivenState, check_state, complete, current_parameters, renamed, some, start_of, unmade_of


class _Average:
    """Base of averages: the parameters, the average's variables, and replacing parameters by averages.

    It averages the parameters in `parameter_list`, or else in the default main program when the average is made, except
    parameters with ``do_model_average=False`` in their `ParamAttr`. Eager mode needs the list; there updates run at once, and
    `apply` and `restore` need no executor.
    """

    def __init__(self, name: str | None, parameter_list: Iterable[Variable] | None) -> None:
        self._name = name
        self._params = self._chosen(parameter_list)
        self._program = self._params[0].block.program
        self._startup = self._program.startup
        self._states: dict[str, Any] = {}
        self._saved_values: list[Any] | None = None
        """In eager mode, copies of the parameters while averages are in their place."""
        self._exchange: Exchange = self._program.version_of(Exchange)()

    def _chosen(self, parameter_list: Iterable[Variable] | None) -> list[Any]:
        """The parameters to average; an error if there are none."""
        kind = type(self).__name__
        if parameter_list is None:
            program = default_main_program()
            if program.eager:
                raise ProgramError(f"{kind} does not know what to average in eager mode; say parameter_list=layer.parameters()")
            params: list[Any] = program.global_block().all_parameters()
            where = (
                "the default main program has no parameter to average; make it afterwards, or in eager mode say parameter_list="
            )
        else:
            self._check_made(parameter_list)
            params = current_parameters(kind, complete(kind, parameter_list))
            where = "parameter_list has no parameter to average"
            for item in params:
                if not isinstance(item, Variable):
                    raise FluidTypeError(
                        f"{kind}: parameter_list should hold parameters, such as layer.parameters(), not {item!r}"
                    )
        chosen = [param for param in params if getattr(param, "do_model_average", True) is not False]
        if not chosen:
            raise ProgramError(f"{kind}: {where}")
        strange = next((param for param in chosen if param.block.program is not chosen[0].block.program), None)
        if strange is not None:
            raise ProgramError(
                f"{kind}: {chosen[0].name} and {strange.name} belong to different programs; average each by itself"
            )
        return chosen

    def _check_made(self, parameter_list: Any) -> None:
        """Raise an error if parameters are still to be made: averages begin with their initial values."""
        unmade = getattr(parameter_list, "unmade", None)
        if hasattr(parameter_list, "_unmade") and not isinstance(parameter_list, type):
            layers = parameter_list._unmade()
            unmade = some(layer.full_name() for _, layer in layers) if layers else None
        if unmade is not None:
            raise unmade_of(type(self).__name__, unmade)

    def __getstate__(self) -> dict[str, Any]:
        if not self._program.eager:
            raise ProgramError(
                f"a {type(self).__name__} of a program's parameters is not copied or pickled; fluid.save(program, path) saves "
                "what it keeps"
            )
        return {**self.__dict__, "_program": None, "_startup": None, "_exchange": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(renamed(state, {"_kept": "_saved_values"}))
        self._program = self._startup = self._params[0].block.program
        self._exchange = self._program.version_of(Exchange)()

    def _state(self, name: str, shape: Any, dtype: VarType, value: float = 0.0) -> Any:
        """A persistable variable of the main program, initialized to `value` by the startup program."""
        full_name = unique_name.generate(name if self._name is None else f"{self._name}_{name}")
        home = self._startup.global_block()
        var = self._states[full_name] = self._program.global_block().create_var(
            name=full_name, shape=shape, dtype=dtype, persistable=True, stop_gradient=True
        )
        first = home.declare(var, stop_gradient=True)
        home.append_op("fill_constant", outputs={"Out": first}, attrs=constant_attrs(shape, dtype, value))
        return var

    def _average(self, ops: OpNamespace, number: int, param: Any, block: Block) -> Any:
        """Append ops to `block` that compute the average of the parameter with this index."""
        raise NotImplementedError

    def _count(self, block: Block) -> Any:
        """The variable with the number of averaged values."""
        raise NotImplementedError

    @contextlib.contextmanager
    def _updating(self) -> Iterator[Block]:
        """Inside the ``with``, ops are appended to the current block of the main program with the role of updates."""
        with self._program.role_guard(OpRole.OPTIMIZE):
            yield self._program.current_block()

    @contextlib.contextmanager
    def apply(self, executor: Any = None, need_restore: bool = True) -> Iterator[None]:
        """Inside the ``with``, the parameters have the values of the averages (for a program, in the global scope).

        A nested call updates these to the current averages; the parameters are restored once.

        Args:
            executor: runs the program that replaces the parameters; ignored in eager mode.
            need_restore: restore the parameters at the end; otherwise they are averages until `restore`.

        Raises:
            ProgramError: nothing was averaged so far.
        """
        self._exchange.apply(self, executor)
        try:
            yield
        finally:
            if need_restore and self._exchange.is_applied(self):
                self.restore(executor)

    def restore(self, executor: Any = None) -> None:
        """Restore the parameters to their values before `apply`."""
        self._exchange.restore(self, executor)

    def _check_averaged(self, count: Any, instead: str) -> None:
        if not count.any():
            raise ProgramError(f"{type(self).__name__} has averaged nothing yet; {instead}")

    def _check_applied(self) -> None:
        if not self._exchange.is_applied(self):
            raise ProgramError(
                f"{type(self).__name__}.restore: the parameters are unchanged; apply has not put averages in their place"
            )

    def _checked(self, executor: Any, method: str) -> Any:
        if executor is None:
            raise ProgramError(
                f"{type(self).__name__}.{method} of a program's parameters needs the executor that runs it: {method}(executor)"
            )
        return executor

    def state_dict(self) -> dict[str, Any]:
        """In eager mode, the state of the average by name: the tensors themselves."""
        self._check_eager("state_dict", "fluid.save(program, path) saves what it keeps")
        return dict(self._states)

    def set_dict(self, state_dict: Mapping[str, Any]) -> None:
        """In eager mode, continue from a `state_dict`: tensors or arrays by name.

        Raises:
            ProgramError: a value is missing, or has another shape.
        """
        self._check_eager("set_dict", "fluid.load(program, path) restores what it keeps")
        check_state(f"{type(self).__name__}.set_dict", state_dict)
        values = GivenState(state_dict)
        for name, var in self._states.items():
            if values.find(start_of(name), name) is None:
                raise ProgramError(f"{type(self).__name__}: the state has no {name!r} ({var.describe()})")
        values.give((start_of(name), var) for name, var in self._states.items())

    def _check_eager(self, method: str, instead: str) -> None:
        if not self._program.eager:
            raise ProgramError(f"{type(self).__name__}.{method} is for eager mode; {instead}")


class Exchange:
    """Replaces a program's parameters in the global scope by averages, and restores them.

    An executor runs separate programs for this. Eager mode has its own version, which needs no executor.
    """

    def __init__(self) -> None:
        self._programs: tuple[Program, Program, Program] | None = None
        self._applied: WeakSet[Scope] = WeakSet()
        """The scopes where averages are in place of the parameters."""

    def is_applied(self, average: _Average) -> bool:
        """Whether averages are in place of the parameters."""
        return global_scope() in self._applied

    def begin(self, average: ModelAverage) -> None:
        """Append the ops that add the parameters to the sums in each run; in eager mode the user calls ``update()``."""
        average._accumulate()

    def apply(self, average: _Average, executor: Any) -> None:
        """Replace the parameters by averages; a `ProgramError`, and no change, if nothing was averaged so far."""
        keep, put, _ = self._build(average)
        run = average._checked(executor, "apply").run
        averaged, first = False, not self.is_applied(average)
        if first:
            run(keep)
            self._applied.add(global_scope())
        try:
            (count,) = run(put, fetch_list=[average._count(put.global_block())])
            averaged = bool(count.any())
        finally:
            if first and not averaged:
                self.restore(average, executor)
        average._check_averaged(count, "run the main program with its updates first")

    def restore(self, average: _Average, executor: Any) -> None:
        """Restore the parameters; a `ProgramError` if they are not replaced."""
        average._checked(executor, "restore")
        average._check_applied()
        executor.run(self._build(average)[2])
        self._applied.remove(global_scope())

    def _build(self, average: _Average) -> tuple[Program, Program, Program]:
        """The programs that save the parameters, that replace them by averages, and that restore them."""
        if self._programs is None:
            keep, put, back = self._programs = Program(), Program(), Program()
            for number, param in enumerate(average._params):
                settings = {"shape": param.shape, "dtype": param.dtype, "persistable": True}
                saved_name = unique_name.generate(param.name + "_before_average")
                for program, read, write in ((keep, param.name, saved_name), (back, saved_name, param.name)):
                    block = program.global_block()
                    for name in (param.name, saved_name):
                        block.create_var(name=name, **settings)
                    block.append_op("assign", {"X": read}, {"Out": write})
                block = put.global_block()
                average_value = average._average(block.namespace, number, block.declare(param), block)
                block.append_op("assign", {"X": average_value}, {"Out": param.name})
        return self._programs


class ExponentialMovingAverage(_Average):
    """Exponential moving averages: ``average = decay * average + (1 - decay) * param`` in each step, from 0.

    `apply` replaces a parameter by ``average / (1 - decay ** t)`` after ``t`` steps, which corrects for the start at 0. With
    `thres_steps`, a variable that counts the steps of training, the decay of a step is
    ``min(decay, (1 + thres_steps) / (10 + thres_steps))``.

    Call ``update()`` once after the optimizer's ``minimize``; each run of the program then updates the averages. In eager mode,
    call it after each step::

        average = ExponentialMovingAverage(0.999, parameter_list=net.parameters())
        ...
        optimizer.minimize(loss)
        average.update()
        ...
        with average.apply():
            test(net)

    and `thres_steps` is a tensor that is changed in place (``fluid.layers.increment``).

    Args:
        decay: how much of the average remains in a step, in [0, 1).
        thres_steps: see above; the decay is the same in all steps by default.
        name: part of the names of the average's variables.
        parameter_list: the parameters; all trainable ones of the default main program by default.

    >>> w = dygraph.Parameter([1.0, 2.0])
    >>> average = fluid.optimizer.ExponentialMovingAverage(0.5, parameter_list=[w])
    >>> average.update()
    >>> w.set_value([4.0, 8.0])
    >>> average.update()
    >>> with average.apply():
    ...     print(w.numpy())
    [3. 6.]
    """

    def __init__(
        self,
        decay: float = 0.999,
        thres_steps: Variable | None = None,
        name: str | None = None,
        *,
        parameter_list: Iterable[Variable] | None = None,
    ) -> None:
        if not isinstance(decay, (int, float)) or not 0.0 <= decay < 1.0:
            raise ProgramError(f"ExponentialMovingAverage: decay should be in [0, 1), not {decay!r}")
        if thres_steps is not None and not isinstance(thres_steps, Variable):
            raise FluidTypeError(f"ExponentialMovingAverage: thres_steps should be a Variable, not {thres_steps!r}")
        super().__init__(name, parameter_list)
        if thres_steps is not None and thres_steps.block.program is not self._program:
            raise ProgramError(
                f"ExponentialMovingAverage: thres_steps, {thres_steps.name}, belongs to another program than the parameters"
            )
        self._thres_steps = thres_steps
        self._first_decay = float(decay)
        self._decay = self._state("ema_decay", [1], VarType.FP32, decay)
        self._steps = self._state("ema_steps", [1], VarType.INT64)
        self._averages = [self._state(param.name + "_ema", param.shape, param.dtype) for param in self._params]

    def update(self) -> None:
        """Update the averages: at once in eager mode; else append the ops that do it to the main program's current block."""
        with self._updating() as block:
            ops = block.namespace
            block.append_op("increment", {"X": self._steps}, {"Out": self._steps}, {"step": 1.0})
            if self._thres_steps is not None:
                steps = ops.cast(self._thres_steps, in_dtype=int(self._thres_steps.dtype), out_dtype=int(VarType.FP32))
                ratio = ops.reshape2((steps + 1.0) / (steps + 10.0), shape=[1])
                most = ops.fill_constant(**constant_attrs([1], VarType.FP32, self._first_decay))
                block.append_op("elementwise_min", {"X": ratio, "Y": most}, {"Out": self._decay})
            for param, average in zip(self._params, self._averages, strict=True):
                decay = _as(ops, self._decay, param.dtype)
                block.append_op("assign", {"X": average * decay + param * (1.0 - decay)}, {"Out": average})

    def _count(self, block: Block) -> Any:
        return block.declare(self._steps)

    def _average(self, ops: OpNamespace, number: int, param: Any, block: Block) -> Any:
        decay = _as(ops, block.declare(self._decay), param.dtype)
        steps = _as(ops, self._count(block), param.dtype)
        return block.declare(self._averages[number]) / (1.0 - ops.elementwise_pow(decay, steps))


def _as(ops: OpNamespace, var: Variable, dtype: VarType) -> Any:
    return var if var.dtype is dtype else ops.cast(var, in_dtype=int(var.dtype), out_dtype=int(dtype))


_SUMS = ("sum_1", "sum_2", "sum_3")
_COUNTS = ("num_accumulates", "old_num_accumulates", "num_updates")


class ModelAverage(_Average):
    """Means of the parameters over a window of the last steps.

    Make it after ``minimize``: it appends the ops that update the sums (`average_accumulates`) to the main program; in eager
    mode, call ``update()`` after each step.

    Args:
        average_window_rate: the window holds this many times the number of steps so far. When it is full a new one begins, and
            until that is full the mean is over both.
        min_average_window: the least number of steps in a window.
        max_average_window: the greatest.
        regularization: has no effect.
        name: part of the names of the average's variables.
        parameter_list: the parameters; all trainable ones of the default main program by default.

    >>> w = dygraph.Parameter([1.0, 2.0])
    >>> average = fluid.optimizer.ModelAverage(0.15, parameter_list=[w])
    >>> average.update()
    >>> w.set_value([3.0, 4.0])
    >>> average.update()
    >>> with average.apply():
    ...     print(w.numpy())
    [2. 3.]
    """

    def __init__(
        self,
        average_window_rate: float,
        min_average_window: int = 10000,
        max_average_window: int = 10000,
        regularization: WeightDecayRegularizer | None = None,
        name: str | None = None,
        *,
        parameter_list: Iterable[Variable] | None = None,
    ) -> None:
        super().__init__(name, parameter_list)
        if average_window_rate < 0 or not 0 <= min_average_window <= max_average_window:
            raise ProgramError(
                "ModelAverage takes an average_window_rate of at least 0 and 0 <= min_average_window <= max_average_window, not "
                f"{average_window_rate!r}, {min_average_window!r} and {max_average_window!r}"
            )
        self._attrs = {
            "average_window": float(average_window_rate),
            "min_average_window": int(min_average_window),
            "max_average_window": int(max_average_window),
        }
        self._sums: list[dict[str, Any]] = []
        for param in self._params:
            state = {key: self._state(f"{param.name}_{key}", param.shape, param.dtype) for key in _SUMS}
            state |= {key: self._state(f"{param.name}_{key}", [1], VarType.INT64) for key in _COUNTS}
            self._sums.append(state)
        self._exchange.begin(self)

    def update(self) -> None:
        """In eager mode, add the current parameters to the sums."""
        self._check_eager("update", "the program sums up in each of its runs")
        self._accumulate()

    def _accumulate(self) -> None:
        with self._updating() as block:
            for param, state in zip(self._params, self._sums, strict=True):
                inputs = {"in_" + key: var for key, var in state.items()}
                outputs = {"out_" + key: var for key, var in state.items()}
                block.append_op("average_accumulates", {"param": param, **inputs}, outputs, self._attrs)

    def _count(self, block: Block) -> Any:
        return block.declare(self._sums[0]["num_updates"])

    def _average(self, ops: OpNamespace, number: int, param: Any, block: Block) -> Any:
        state = {key: block.declare(var) for key, var in self._sums[number].items()}
        count = ops.sum([state["num_accumulates"], state["old_num_accumulates"]])
        return ops.sum([state[key] for key in _SUMS]) / _as(ops, count, param.dtype)
