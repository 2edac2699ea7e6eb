"""Optimizers: ops that update parameters by their gradients."""

from __future__ import annotations

import copy
import functools
import inspect
import operator
import re
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from numbers import Real
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, runtime_checkable

from . import unique_name
from .backward import append_backward
from .building.layer_helper import LayerHelper
from .clip import GradientClipBase, append_gradient_clip_ops, error_clip_callback
from .errors import BackwardError, FluidTypeError, MissingAttributeError, NameNotFoundError, ProgramError, did_you_mean, shown
from .initializer import Constant
from .ir.frames import is_run_again
from .ir.program import Block, Operator, OpRole, Parameter, Program, Variable, default_main_program, program_guard
from .layers.nn import scale
from .layers.ops import elementwise_add, elementwise_sub
from .layers.tensor import assign, create_global_var
from .not_here import names_here, names_not_here
from .ops.updates import NADAM_BASE
from .regularizer import WeightDecayRegularizer, append_regularization_ops
from .training.averaging import ExponentialMovingAverage, ModelAverage
from .training.periods import do_every
from .training.rates import is_tensor, learning_rate_of, set_learning_rate
from .training.states import ByProgram, GivenState, check_state, complete, current_parameters, renamed, start_of
from .values.types import VarType

__all__ = [
    "SGD",
    "Adadelta",
    "AdadeltaOptimizer",
    "Adagrad",
    "AdagradOptimizer",
    "Adam",
    "AdamOptimizer",
    "AdamW",
    "AdamWOptimizer",
    "Adamax",
    "AdamaxOptimizer",
    "DGCMomentumOptimizer",
    "DecayedAdagrad",
    "DecayedAdagradOptimizer",
    "Dpsgd",
    "DpsgdOptimizer",
    "ExponentialMovingAverage",
    "Ftrl",
    "FtrlOptimizer",
    "Lamb",
    "LambOptimizer",
    "LarsMomentum",
    "LarsMomentumOptimizer",
    "Lion",
    "LionOptimizer",
    "LookaheadOptimizer",
    "ModelAverage",
    "Momentum",
    "MomentumOptimizer",
    "NAdam",
    "NAdamOptimizer",
    "Optimizer",
    "PipelineOptimizer",
    "RAdam",
    "RAdamOptimizer",
    "RMSProp",
    "RMSPropOptimizer",
    "RecomputeOptimizer",
    "SGDOptimizer",
]

__dir__ = names_here(__name__)

if not TYPE_CHECKING:
    __getattr__ = names_not_here(__name__)

Pair = tuple[Parameter, Variable | None]
Named = Iterable[Variable | str]
Source = Named | Callable[..., Any]
Rate = float | Variable | Callable[[], float]


class _In(NamedTuple):
    """A hyperparameter: its domain, and the attribute of the update op that takes it ("" for the same name; None for none)."""

    domain: str
    attr: str | None = ""


_DOMAINS: dict[str, Callable[[float], bool]] = {
    "a number": lambda number: True,
    "above 0": lambda number: number > 0,
    "not below 0": lambda number: number >= 0,
    "not above 0": lambda number: number <= 0,
    "in [0, 1]": lambda number: 0 <= number <= 1,
    "in [0, 1)": lambda number: 0 <= number < 1,
}


_NOT_NEGATIVE = _In("not below 0")
_TRUTH = _In("")
"""A hyperparameter that is True or False."""


def _number(name: str, value: Any, allowed: str = "a number") -> float:
    """Check a setting of an optimizer and return it as a float; an error outside the domain `allowed`."""
    try:
        number = float(value)
    except (TypeError, ValueError):
        raise FluidTypeError(f"{name} should be a number, not {value!r}") from None
    if not _DOMAINS[allowed](number):
        raise ProgramError(f"{name} should be {allowed}, not {value!r}")
    return number


_FORMER_NAMES = {
    "_accumulators": "_accumulator_vars",
    "_kept": "_accumulator_vars",
    "_given": "_pending_state",
    "_calls": "_last_updates",
    "_asked": "_last_parameters",
    "_first": "_initial_accumulator_value",
}
"""Attributes in pickles of earlier versions -> their names now."""


def _check_rate(kind: str, rate: Any) -> None:
    """Raise an error unless `rate` can be a learning rate."""
    if isinstance(rate, (list, tuple, Parameter, Iterator)) or callable(getattr(rate, "parameters", None)):
        raise FluidTypeError(
            f"{kind}: the first argument is the learning rate, not parameters: {kind}(0.1, parameter_list=net.parameters())"
        )
    if not isinstance(rate, (Real, Variable)) and not callable(rate):
        raise FluidTypeError(f"learning_rate should be a number or a Variable, not {shown(rate)}")
    if isinstance(rate, Real) and not float(rate) >= 0:
        raise ProgramError(
            f"learning_rate should not be below 0, but is {rate}; to maximize, minimize the negated value: minimize(-x)"
        )


def _with_names_checked(init: Callable[..., None]) -> Callable[..., None]:
    """A constructor that raises a `FluidTypeError` for an argument that it lacks, and names the one that may be meant."""
    parameters = inspect.signature(init).parameters
    takes_any = any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values())

    @functools.wraps(init)
    def checked(self: Any, *args: Any, **kwargs: Any) -> None:
        for name in () if takes_any else kwargs.keys() - parameters.keys():
            meant = _NAMES_ELSEWHERE.get(name)
            hint = f"; did you mean {meant}?" if meant in parameters else did_you_mean(name, list(parameters)[1:])
            raise FluidTypeError(f"{type(self).__name__} has no argument {name!r}{hint}")
        init(self, *args, **kwargs)

    return checked


_NAMES_ELSEWHERE = {
    "lr": "learning_rate",
    "parameters": "parameter_list",
    "params": "parameter_list",
    "weight_decay": "regularization",
}
"""Arguments in other frameworks -> the names here."""
_METHODS_ELSEWHERE = {"zero_grad": "clear_grad"}


def _check_learns(loss: Variable, pairs: Sequence[Pair]) -> None:
    """Raise a `BackwardError` if the loss depends on parameters, and an op without a gradient lies between."""
    if any(grad is not None for _, grad in pairs):
        return
    program = loss.block.program
    for param in program.global_block().iter_parameters() if loss.block.idx == 0 else ():
        text = program.explain_gradient(loss, param) if param.trainable else ""
        if " cuts it: " in text or " has no gradient for " in text:
            raise BackwardError(
                f"nothing can be learned from {loss.name}; minimize a loss, such as a mean of layers.cross_entropy. {text}"
            )


class Optimizer:
    """Base class of optimizers: in a program, ops that update the parameters by their gradients.

    In eager mode the same updates run at once: call ``loss.backward()``, then `minimize` or `step`, then `clear_grad`.

    Args:
        learning_rate: a number, or a variable of one element that the program computes; in eager mode also a schedule of
            `fluid.dygraph`.
        regularization: weight decay of the parameters that have none of their own.
        name: part of the names of the optimizer's variables.
        parameter_list: the parameters to train by default. In eager mode also a layer, or a function that returns parameters:
            each step asks it again, as layers may make their parameters in their first call. State of parameters that it returns
            no more is dropped.
        grad_clip: how to clip the gradients; a clip of a parameter's own comes first.

    Raises:
        FluidTypeError: an argument has the wrong type.
        ProgramError: a number is out of its range.
    """

    type = ""
    """The type of the op that updates a parameter."""
    accumulators: Mapping[str, str] = {}
    """Slots of that op -> names of the accumulators that it updates."""
    hyperparameters: Mapping[str, _In] = {}
    """Numbers and flags of the constructor that are attributes of that op, with their domains."""

    def __init__(
        self,
        learning_rate: Rate,
        regularization: WeightDecayRegularizer | None = None,
        name: str | None = None,
        *,
        parameter_list: Source | None = None,
        grad_clip: GradientClipBase | None = None,
    ) -> None:
        _check_rate(type(self).__name__.removesuffix("Optimizer"), learning_rate)
        if regularization is not None and not isinstance(regularization, WeightDecayRegularizer):
            raise FluidTypeError(f"regularization should be an L1Decay or L2Decay, not {regularization!r}")
        self._learning_rate: Rate = learning_rate
        self.regularization = regularization
        self._name = name
        self._parameter_list = complete(type(self).__name__, parameter_list)
        self._grad_clip = grad_clip
        self._rates: ByProgram[Variable] = ByProgram()
        self._accumulator_vars: ByProgram[dict[tuple[str, Any], Variable]] = ByProgram()
        """By name and parameter (in a program, the parameter's name)."""
        self._pending_state = GivenState()
        """Values from `set_dict` for variables still to be made."""
        self._last_updates: dict[int, _EagerUpdate] = {}
        """By id of the parameter: its last update in eager mode."""
        self._last_parameters: list[Any] = []
        """The last parameters from a `parameter_list` that is a layer or function."""

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            hint = ""
            if not name.startswith("_"):
                meant = _METHODS_ELSEWHERE.get(name)
                hint = f"; did you mean {meant}?" if meant else did_you_mean(name, [n for n in dir(type(self)) if n[0] != "_"])
            raise MissingAttributeError(f"{type(self).__name__!r} object has no attribute {name!r}{hint}")

    def __init_subclass__(cls, **kwargs: Any) -> None:
        """Let a class say the names of its accumulators as in Fluid 1.6: ``_velocity_acc_str``, ``_moment1_acc_str``, ..."""
        super().__init_subclass__(**kwargs)
        if "__init__" in cls.__dict__:
            cls.__init__ = _with_names_checked(cls.__init__)  # type: ignore[method-assign]
        for name in cls.accumulators.values():
            setattr(cls, f"_{name.strip('_').removesuffix('_acc')}_acc_str", name)

    def _set(self, **values: Any) -> None:
        """Check hyperparameters against their domains, and keep them."""
        for name, value in values.items():
            domain = self.hyperparameters[name].domain
            setattr(self, f"_{name}", _number(name, value, domain) if domain else bool(value))

    @property
    def _accumulators(self) -> dict[str, dict[Any, Variable]]:
        """The accumulators by name, then by parameter, as Fluid 1.6 keeps them."""
        by_name: dict[str, dict[Any, Variable]] = {}
        for variables in self._accumulator_vars.values():
            for (name, param), var in variables.items():
                by_name.setdefault(name, {})[param] = var
        return by_name

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_last_updates": {}, "_last_parameters": []}  # their keys are ids, which copies do not share

    def __setstate__(self, state: Mapping[str, Any]) -> None:
        self.__dict__.update(renamed(state, _FORMER_NAMES))

    # -- minimization
    def minimize(
        self,
        loss: Variable,
        startup_program: Program | None = None,
        parameter_list: Source | None = None,
        no_grad_set: Named | None = None,
        grad_clip: GradientClipBase | None = None,
    ) -> tuple[list[Operator], list[Pair]]:
        """Append the backward part and the updates of the parameters to the loss's program.

        In a branch (`layers.cond`, `layers.case`, `layers.Switch`) or a loop, the updates are part of it: parameters change only
        where it runs. The backward part is computed in each run, as the loss is.

        In eager mode, update the parameters by the gradients from ``loss.backward()``.

        Args:
            loss: a variable of one element; its program need not be the default one.
            startup_program: initializes the optimizer's variables; the default one if None.
            parameter_list: parameters to train, or their names; all trainable ones by default.
            no_grad_set: variables, or names, through which no gradient flows.
            grad_clip: how to clip the gradients.

        Returns:
            The ops of the updates, and (parameter, gradient) pairs.
        """
        params_grads = self.backward(loss, startup_program, parameter_list, no_grad_set)
        if grad_clip is not None:
            params_grads = grad_clip(params_grads)
        return self.apply_optimize(loss, startup_program, params_grads), params_grads

    def backward(
        self,
        loss: Variable,
        startup_program: Program | None = None,
        parameter_list: Source | None = None,
        no_grad_set: Named | None = None,
        callbacks: Sequence[Callable[..., Any]] | None = None,
        checkpoints: Named | None = None,
    ) -> list[Pair]:
        """Append only the backward part; see `minimize`.

        Args:
            loss, startup_program, parameter_list, no_grad_set: see `minimize`.
            callbacks: functions ``callback(block, context)`` that are called after each gradient op; see `append_backward`.
            checkpoints: where to recompute forward values instead of keeping them; see `append_backward`.

        Returns:
            (parameter, gradient) pairs.
        """
        if not isinstance(loss, Variable):
            raise FluidTypeError(f"the loss should be a Variable, not {type(loss).__name__}")
        if parameter_list is None:
            wanted = self._parameters()
        else:
            kind = type(self).__name__
            wanted = current_parameters(kind, complete(kind, parameter_list, is_stored=False))
        program = loss.block.program

        def append(loss: Variable, wanted: Any, no_grad_set: Any) -> list[Pair]:
            calls = [*callbacks] if callbacks is not None else []
            if any(var.error_clip is not None for var in program.list_vars()):
                calls.append(error_clip_callback)
            with program_guard(program, startup_program):
                cuts = list(checkpoints) if checkpoints is not None else None
                is_new = not any(op.role & OpRole.LOSS and loss.name in op.output_arg_names for op in loss.block.ops)
                pairs = append_backward(loss, wanted, no_grad_set, calls, cuts)
                _check_learns(loss, pairs)
                _warn_if_again(loss, () if is_new else [param.name for param, _ in pairs])
                return list(pairs)

        return program.gradients(loss, wanted, no_grad_set, append)

    def apply_optimize(self, loss: Variable, startup_program: Program | None, params_grads: Iterable[Pair]) -> list[Operator]:
        """Append the updates for these pairs to the loss's program: `apply_gradients` there.

        Args:
            loss: a variable of the program.
            startup_program: initializes the optimizer's variables; the default one if None.
            params_grads: (parameter, gradient) pairs, as from `backward`.

        Returns:
            The ops of the updates.
        """
        with program_guard(loss.block.program, startup_program):
            return self.apply_gradients(params_grads)

    def apply_gradients(self, params_grads: Iterable[Pair]) -> list[Operator]:
        """Append clips, weight decay and updates to the current block of the default main program.

        In a branch or a loop they are part of it, so that the parameters change only where it runs. What the optimizer keeps
        (moments, the learning rate) belongs to the program.

        Args:
            params_grads: (parameter, gradient) pairs, as from `backward`; pairs without a gradient are passed over.

        Returns:
            The ops of the updates.
        """
        pairs = sorted(params_grads, key=lambda pair: pair[0].name)
        if self._grad_clip is not None:
            pairs = self._grad_clip(pairs)
        pairs = append_regularization_ops(append_gradient_clip_ops(pairs), self.regularization)
        if all(grad is None for _, grad in pairs):
            warnings.warn(
                "there is nothing to optimize: the loss depends on no trainable parameter "
                "(program.explain_gradient(loss, parameter) says why)",
                stacklevel=4,
            )
            return []
        return self._append_updates([(param, grad) for param, grad in pairs if grad is not None])

    def get_opti_var_name_list(self) -> list[str]:
        """Names of the variables that the optimizer keeps for parameters of programs, such as moments."""
        return [var.name for variables in self._accumulator_vars.values() for var in variables.values()]

    # -- eager mode
    def step(self) -> None:
        """In eager mode, update the parameters of `parameter_list` by their gradients."""
        params = self._own_parameters("step")
        program = params[0].block.program
        with program_guard(program):
            self.apply_gradients(program.gradients(None, params, None, append_backward))

    def clear_grad(self) -> None:
        """In eager mode, clear the gradients of the parameters of `parameter_list`."""
        for param in self._own_parameters("clear_grad"):
            param.clear_gradient()

    clear_gradients = clear_grad

    def set_lr(self, value: Any) -> None:
        """Change the learning rate from the next step on, as in Fluid 1.8.

        Args:
            value: a number, or a tensor of one element.

        Raises:
            ProgramError: it is negative, or a schedule computes the rate.
        """
        set_learning_rate(self, value.numpy().item() if is_tensor(value) else value)

    def current_step_lr(self) -> float:
        """The learning rate of the last step, as in Fluid 1.8; before the first, the rate of the first one."""
        if not callable(self._learning_rate):
            return learning_rate_of(self)
        rate: Any = next((variable for variable in self._rates.values() if is_tensor(variable)), None)
        return float(copy.deepcopy(self._learning_rate)()) if rate is None else float(rate.numpy().item())

    def _parameters(self) -> Any:
        """The current parameters of `parameter_list`; drops state of parameters that a layer or function returns no more."""
        params = current_parameters(type(self).__name__, self._parameter_list)
        if params is None or params is self._parameter_list:
            return params
        if len(params) != len(self._last_parameters) or not all(map(operator.is_, params, self._last_parameters)):
            self._last_parameters = params
            ids = {id(param) for param in params}
            for variables in self._accumulator_vars.values():
                _forget(variables, params)
            self._last_updates = {key: call for key, call in self._last_updates.items() if key in ids}
        return params

    def _own_parameters(self, method: str) -> list[Any]:
        params: list[Any] = self._parameters() or []
        if not params or not all(isinstance(param, Variable) and param.block.program.eager for param in params):
            raise ProgramError(
                f"{method}() is for eager mode, and for the parameters that the optimizer was given: "
                "SGD(0.1, parameter_list=layer.parameters()); programs have minimize(loss)"
            )
        return params

    def state_dict(self) -> dict[str, Any]:
        """In eager mode, the state that the optimizer keeps between steps, by name: the tensors themselves.

        A schedule that keeps more than the number of the step, such as of the epoch, has a dict `LR_Scheduler` there.
        """
        tensors: dict[str, Any] = {}
        self._parameters()
        for program, variables in self._accumulator_vars.items():
            self._check_eager(program)
            tensors.update((var.name, var) for var in variables.values())
        if isinstance(self._learning_rate, Schedule):
            tensors["global_step"] = self._learning_rate.global_step()
            of_schedule: dict[str, Any] = getattr(self._learning_rate, "state_dict", dict)()
            if of_schedule.keys() - {"step_num"}:
                tensors["LR_Scheduler"] = of_schedule
        return tensors

    def set_dict(self, state_dict: Mapping[str, Any]) -> None:
        """In eager mode, continue from a `state_dict`, also before the first step.

        Args:
            state_dict: tensors and arrays, which are matched by the names of the parameters, the same as when the state was saved
                (names count from zero in each `fluid.dygraph.guard`), and of the accumulators. A warning lists unmatched ones.

        Raises:
            ProgramError: a value has another shape; nothing has changed then.
        """
        check_state(f"{type(self).__name__}.set_dict", state_dict)
        of_schedule = ("global_step", "LR_Scheduler")
        values = GivenState({name: value for name, value in state_dict.items() if name not in of_schedule})
        variables: list[tuple[str, Any]] = []
        for program, accumulators in self._accumulator_vars.items():
            self._check_eager(program)
            variables += ((self._start(name, param), var) for (name, param), var in accumulators.items())
        values.give(variables)
        if isinstance(self._learning_rate, Schedule):
            saved = state_dict.get("LR_Scheduler")  # as Fluid 1.8 has it
            if isinstance(saved, Mapping):
                self._learning_rate.set_dict(dict(saved))
            elif "global_step" in state_dict:
                self._learning_rate.set_dict({"step_num": state_dict["global_step"]})
        values.keep()
        self._pending_state = values
        self._tell_unused()

    def _check_eager(self, program: Program) -> None:
        if not program.eager:
            raise ProgramError(
                "what an optimizer keeps for a program is saved with it: fluid.save(program, path), and fluid.load"
            )

    def _tell_unused(self, trained: Sequence[Pair] | None = None) -> None:
        """Warn of values from `set_dict` without a match, once the parameters are known: from the list, or as `trained`."""
        listed = isinstance(self._parameter_list, list)
        if not listed and trained is None and not self._accumulator_vars:
            return
        seen = {id(param) for variables in self._accumulator_vars.values() for _, param in variables}
        seen |= {id(param) for param, _ in trained or ()}
        coming = [f"{param.name}_" for param in self._parameter_list if id(param) not in seen] if listed else []
        self._pending_state.tell_unused(type(self).__name__, coming)

    def _append_updates(self, pairs: Sequence[tuple[Parameter, Variable]]) -> list[Operator]:
        program = default_main_program()
        block = program.current_block()
        start = len(block.ops)
        program.note_optimizer(self)
        self._create_global_learning_rate(pairs[0][0].dtype)
        trained = [pair for pair in pairs if pair[0].trainable]
        self._create_accumulators(block, [param for param, _ in trained if id(param) not in self._last_updates])
        if self._pending_state:
            self._tell_unused(trained)
        updates = []
        for pair in trained:
            with program.updating(*pair) as block:
                updates.append(self._append_optimize_op(block, pair))
        if type(self)._finish_update is not Optimizer._finish_update:
            for pair in trained:
                with program.updating(*pair) as block:
                    self._finish_update(block, pair)
        return block.ops[start:] or updates

    # -- the learning rate
    def _create_global_learning_rate(self, dtype: VarType = VarType.FP32) -> None:
        program = default_main_program()
        rate = self._learning_rate
        scheduled = program.scheduled_rate(rate) if callable(rate) else None
        if program not in self._rates:
            if not isinstance(rate, Variable):
                name, first = unique_name.generate("learning_rate"), 0.0 if callable(rate) else float(rate)
                rate = create_global_var([1], first, dtype, persistable=True, name=name)
            elif rate.block.program is not program:
                raise ProgramError(f"the learning rate {rate.name} belongs to another program than the loss")
            self._rates[program] = rate
        if scheduled is not None:
            eager: Any = self._rates[program]
            eager.set_value(scheduled)

    def _global_learning_rate(self, program: Program | None = None) -> Variable | None:
        """The variable with the learning rate in a program; None before `minimize`."""
        return self._rates.get(program if program is not None else default_main_program())

    def _rate_of(self, param: Parameter) -> Variable:
        """The learning rate of a parameter, with its own factor."""
        rate = self._rates[default_main_program()]
        factor = param.optimize_attr.get("learning_rate", 1.0)
        if isinstance(factor, Variable):
            return factor
        return rate if factor == 1.0 else scale(rate, float(factor))

    # -- the optimizer's own variables
    def _create_accumulators(self, block: Block, parameters: Sequence[Parameter]) -> None:
        """Make the accumulators of these parameters."""
        for param in parameters:
            for name in self.accumulators.values():
                self._add_accumulator(name, param, *self._first_value(name))

    def _first_value(self, name: str) -> tuple[float, Sequence[int] | None]:
        """The initial value of an accumulator, and its shape (None: the parameter's)."""
        return 0.0, None

    def _add_accumulator(
        self, name: str, param: Parameter, fill_value: float = 0.0, shape: Sequence[int] | None = None
    ) -> Variable:
        """An accumulator of a parameter: a persistable variable, of the parameter's shape by default.

        A single number, such as a power or the number of steps, is never a half: 0.999 would be 1.
        """
        program = default_main_program()
        variables = self._accumulator_vars.setdefault(program, {})
        key = name, program.key_of(param)
        if key in variables:
            return variables[key]
        start = self._start(name, param)
        is_half = param.dtype is VarType.FP16 or param.dtype is VarType.BF16
        var = program.global_block().create_var(
            name=unique_name.generate(start),
            shape=param.shape if shape is None else shape,
            dtype=VarType.FP32 if shape is not None and is_half else param.dtype,
            persistable=True,
            stop_gradient=True,
        )
        LayerHelper(self.type, self._name or self.type).set_variable_initializer(var, Constant(fill_value))
        if self._pending_state and program.eager:
            self._pending_state.give([(start, var)])
        variables[key] = var
        return var

    def _start(self, name: str, param: Any) -> str:
        """The name of an accumulator of a parameter (or parameter name) without the generated number."""
        full_name = name if self._name is None else f"{self._name}_{name}"
        return f"{param if isinstance(param, str) else param.name}_{full_name}"

    def _get_accumulator(self, name: str, param: Parameter) -> Variable:
        program = default_main_program()
        return self._accumulator_vars[program][name, program.key_of(param)]

    def _attrs(self, param: Parameter) -> dict[str, Any]:
        """Attributes of the op that updates a parameter."""
        declared = self.hyperparameters.items()
        return {item.attr or name: getattr(self, f"_{name}") for name, item in declared if item.attr is not None}

    def _append_optimize_op(self, block: Block, param_and_grad: tuple[Parameter, Variable]) -> Operator:
        """Append the op that updates one parameter."""
        return self._update(block, param_and_grad)

    def _finish_update(self, block: Block, param_and_grad: tuple[Parameter, Variable]) -> None:
        """Append ops for one parameter after all updates."""

    def _update(self, block: Block, pair: tuple[Parameter, Variable], inputs: dict[str, Variable] | None = None) -> Operator:
        """Append the op of this optimizer's type; `inputs` are further ones, besides the parameter, gradient, rate and
        accumulators."""
        param, grad = pair
        rate, attrs = self._rate_of(param), self._attrs(param)
        last = self._last_updates.get(id(param))
        if last is not None and last.rate is rate and last.attrs == attrs:
            again: Operator = last.call.again(grad)
            return again
        state = {slot: self._get_accumulator(name, param) for slot, name in self.accumulators.items()}
        op = block.append_op(
            self.type,
            inputs={"Param": param, "Grad": grad, "LearningRate": rate, **state, **(inputs or {})},
            outputs={"ParamOut": param, **{slot.replace("Accumulator", "Accum") + "Out": var for slot, var in state.items()}},
            attrs=attrs,
        )
        if op is not None and op.again is not None:
            self._last_updates[id(param)] = _EagerUpdate(param, rate, attrs, op)
        return op


def _forget(variables: dict[Any, Any], trained: Iterable[Any]) -> None:
    """Drop entries for parameters that are not trained any more; entries by name stay."""
    ids = {id(param) for param in trained}
    for key in list(variables):
        param = key[1] if isinstance(key, tuple) else key
        if not isinstance(param, str) and id(param) not in ids:
            del variables[key]


def _accumulator_names(kind: type[Optimizer] | None = None) -> Iterator[str]:
    """Names of the accumulators of all optimizer classes."""
    kind = kind if kind is not None else Optimizer
    yield from kind.accumulators.values()
    for inner in kind.__subclasses__():
        yield from _accumulator_names(inner)


def is_state(state: Mapping[str, Any]) -> bool:
    """Whether the names belong to an optimizer's state, not to a layer's."""
    starts = {"global_step", "LR_Scheduler", "master_weights", _STEP}
    ending = re.compile(rf".+_({'|'.join(end.lstrip('_') for end in (*_accumulator_names(), _SLOW))})_\d+")
    return all(start_of(name) in starts or ending.fullmatch(name) is not None for name in state)


class _EagerUpdate(NamedTuple):
    """The update of a parameter in eager mode, which is repeated while the rate and the attributes are the same."""

    param: Any  # kept alive, so that its id is not reused
    rate: Any
    attrs: dict[str, Any]
    call: Any


@runtime_checkable
class Schedule(Protocol):
    """A learning rate for eager mode: `fluid.dygraph.ExponentialDecay` and others."""

    def __call__(self) -> float:
        """The rate of the next step."""

    def global_step(self) -> Any:
        """The number of the next step, as a tensor to save."""

    def set_dict(self, state: dict[str, Any]) -> None:
        """Continue from a `state_dict`."""


Optimizer.__init__ = _with_names_checked(Optimizer.__init__)  # type: ignore[method-assign]


class SGDOptimizer(Optimizer):
    """Stochastic gradient descent: ``param -= learning_rate * grad``.

    Args:
        learning_rate, regularization, name, parameter_list, grad_clip: see `Optimizer`.

    >>> x = fluid.data("x", [-1, 4])
    >>> loss = layers.mean(layers.square(layers.fc(x, 1)))
    >>> updates, pairs = fluid.optimizer.SGD(0.1).minimize(loss)
    >>> [op.type for op in updates]
    ['sgd', 'sgd']
    """

    type = "sgd"


class MomentumOptimizer(Optimizer):
    """Gradient descent with momentum.

    ``velocity = momentum * velocity + grad``, then ``param -= learning_rate * velocity``, or with `use_nesterov`
    ``param -= learning_rate * (grad + momentum * velocity)``.

    Source: Polyak, Some methods of speeding up the convergence of iteration methods, 1964; with `use_nesterov` Sutskever et al.,
    On the importance of initialization and momentum in deep learning, 2013.

    Args:
        learning_rate, regularization, name, parameter_list, grad_clip: see `Optimizer`.
        momentum: how much of the velocity remains, in [0, 1].
        use_nesterov: whether the step looks ahead by one velocity.

    >>> w = dygraph.Parameter([1.0, 2.0])
    >>> optimizer = fluid.optimizer.Momentum(0.1, momentum=0.9, parameter_list=[w])
    >>> (w * w).sum().backward()
    >>> optimizer.step()
    >>> w.numpy().round(3)
    array([0.8, 1.6], dtype=float32)
    """

    type = "momentum"
    accumulators = {"Velocity": "velocity"}
    hyperparameters = {"momentum": _In("in [0, 1]", "mu"), "use_nesterov": _TRUTH}

    def __init__(
        self,
        learning_rate: Rate,
        momentum: float,
        use_nesterov: bool = False,
        regularization: WeightDecayRegularizer | None = None,
        name: str | None = None,
        *,
        parameter_list: Source | None = None,
        grad_clip: GradientClipBase | None = None,
    ) -> None:
        super().__init__(learning_rate, regularization, name, parameter_list=parameter_list, grad_clip=grad_clip)
        self._set(momentum=momentum, use_nesterov=use_nesterov)


class AdamOptimizer(Optimizer):
    """Adam: steps by the mean of the gradients over the root of the mean of their squares.

    ``moment1 = beta1 * moment1 + (1 - beta1) * grad``, ``moment2 = beta2 * moment2 + (1 - beta2) * grad ** 2``,
    ``rate = learning_rate * sqrt(1 - beta2 ** t) / (1 - beta1 ** t)`` at step ``t``, then
    ``param -= rate * moment1 / (sqrt(moment2) + epsilon * sqrt(1 - beta2 ** t))``.
    Source: Kingma and Ba, Adam: A method for stochastic optimization, 2015.

    Args:
        learning_rate, regularization, name, parameter_list, grad_clip: see `Optimizer`.
        beta1, beta2: how much of the moments remains in a step, in [0, 1); or variables ``[1]``, whose powers start from the
            defaults, as in Fluid 1.7.
        epsilon: added to the denominator, so that it is not 0.
        lazy_mode: of a sparse gradient, update the moments of the rows that it has, and no others.

    >>> w = dygraph.Parameter([1.0, 2.0])
    >>> optimizer = fluid.optimizer.Adam(0.1, parameter_list=[w])
    >>> (w * w).sum().backward()
    >>> optimizer.step()
    >>> w.numpy().round(3)
    array([0.9, 1.9], dtype=float32)
    """

    type = "adam"
    accumulators = {"Moment1": "moment1", "Moment2": "moment2", "Beta1Pow": "beta1_pow_acc", "Beta2Pow": "beta2_pow_acc"}
    _beta1: float
    _beta2: float
    _betas: Mapping[str, Variable] = {}
    """Slots of the update op -> betas that are variables."""
    hyperparameters = {"beta1": _In("in [0, 1)"), "beta2": _In("in [0, 1)"), "epsilon": _NOT_NEGATIVE, "lazy_mode": _TRUTH}

    def __init__(
        self,
        learning_rate: Rate = 0.001,
        beta1: float | Variable = 0.9,
        beta2: float | Variable = 0.999,
        epsilon: float = 1e-08,
        regularization: WeightDecayRegularizer | None = None,
        name: str | None = None,
        lazy_mode: bool = False,
        *,
        parameter_list: Source | None = None,
        grad_clip: GradientClipBase | None = None,
    ) -> None:
        super().__init__(learning_rate, regularization, name, parameter_list=parameter_list, grad_clip=grad_clip)
        betas = (("Beta1Tensor", beta1), ("Beta2Tensor", beta2))
        self._betas = {slot: beta for slot, beta in betas if isinstance(beta, Variable)}
        first, second = (0.9 if isinstance(beta1, Variable) else beta1), (0.999 if isinstance(beta2, Variable) else beta2)
        self._set(beta1=first, beta2=second, epsilon=epsilon, lazy_mode=lazy_mode)

    def _append_optimize_op(self, block: Block, param_and_grad: tuple[Parameter, Variable]) -> Operator:
        return self._update(block, param_and_grad, dict(self._betas))

    def _first_value(self, name: str) -> tuple[float, Sequence[int] | None]:
        powers = {"beta1_pow_acc": self._beta1, "beta2_pow_acc": self._beta2}
        return (powers[name], [1]) if name in powers else super()._first_value(name)


class AdamWOptimizer(AdamOptimizer):
    """Adam with decoupled weight decay: before the update of `AdamOptimizer`, ``param *= 1 - learning_rate * weight_decay``.

    Source: Loshchilov and Hutter, Decoupled weight decay regularization, 2019.

    Args:
        learning_rate, regularization, name, parameter_list, grad_clip: see `Optimizer`.
        beta1, beta2, epsilon, lazy_mode: see `AdamOptimizer`.
        weight_decay: the coefficient of the decay.
        apply_decay_param_fun: whether a parameter decays, by its name; all do by default.
        lr_ratio: the factor on the learning rate of a parameter.

    >>> w = dygraph.Parameter([1.0, 2.0])
    >>> optimizer = fluid.optimizer.AdamW(0.1, weight_decay=0.5, parameter_list=[w])
    >>> (w * w).sum().backward()
    >>> optimizer.step()
    >>> w.numpy().round(3)
    array([0.85, 1.8 ], dtype=float32)
    """

    type = "adamw"
    hyperparameters = {**AdamOptimizer.hyperparameters, "weight_decay": _In("a number", "coeff")}

    def __init__(
        self,
        learning_rate: Rate = 0.001,
        beta1: float | Variable = 0.9,
        beta2: float | Variable = 0.999,
        epsilon: float = 1e-08,
        weight_decay: float = 0.01,
        apply_decay_param_fun: Callable[[str], bool] | None = None,
        lr_ratio: Callable[[Parameter], float] | None = None,
        regularization: WeightDecayRegularizer | None = None,
        name: str | None = None,
        lazy_mode: bool = False,
        *,
        parameter_list: Source | None = None,
        grad_clip: GradientClipBase | None = None,
    ) -> None:
        super().__init__(
            learning_rate,
            beta1,
            beta2,
            epsilon,
            regularization,
            name,
            lazy_mode,
            parameter_list=parameter_list,
            grad_clip=grad_clip,
        )
        self._set(weight_decay=weight_decay)
        self._decays = apply_decay_param_fun
        self._lr_ratio = lr_ratio

    def _attrs(self, param: Parameter) -> dict[str, Any]:
        return {
            **super()._attrs(param),
            "with_decay": self._decays is None or bool(self._decays(param.name)),
            "lr_ratio": 1.0 if self._lr_ratio is None else float(self._lr_ratio(param)),
        }


class LambOptimizer(AdamOptimizer):
    """Adam with steps in proportion to the norm of each parameter.

    With the moments of `AdamOptimizer`, ``r = moment1 / (1 - beta1 ** t) / (sqrt(moment2 / (1 - beta2 ** t)) + epsilon)
    + lamb_weight_decay * param``, then ``param -= learning_rate * norm(param) / norm(r) * r``.
    Source: You et al., Large batch optimization for deep learning: Training BERT in 76 minutes, 2020.

    Args:
        learning_rate, regularization, name, parameter_list, grad_clip: see `Optimizer`.
        lamb_weight_decay: the coefficient of the decay.
        beta1, beta2, epsilon: see `AdamOptimizer`.
        exclude_from_weight_decay_fn: whether a parameter does not decay. Without decay the norms are not used, unless
            `always_adapt`.
        always_adapt: whether the norms are used without decay, too.

    >>> w = dygraph.Parameter([1.0, 2.0])
    >>> optimizer = fluid.optimizer.Lamb(0.1, parameter_list=[w])
    >>> (w * w).sum().backward()
    >>> optimizer.step()
    >>> w.numpy().round(3)
    array([0.843, 1.841], dtype=float32)
    """

    type = "lamb"
    hyperparameters = {
        "beta1": _In("in [0, 1)"),
        "beta2": _In("in [0, 1)"),
        "epsilon": _NOT_NEGATIVE,
        "lazy_mode": _TRUTH._replace(attr=None),
        "always_adapt": _TRUTH,
        "lamb_weight_decay": _In("a number", "weight_decay"),
    }

    def __init__(
        self,
        learning_rate: Rate = 0.001,
        lamb_weight_decay: float = 0.01,
        beta1: float = 0.9,
        beta2: float = 0.999,
        epsilon: float = 1e-06,
        regularization: WeightDecayRegularizer | None = None,
        exclude_from_weight_decay_fn: Callable[[Parameter], bool] | None = None,
        name: str | None = None,
        always_adapt: bool = False,
        *,
        parameter_list: Source | None = None,
        grad_clip: GradientClipBase | None = None,
    ) -> None:
        super().__init__(
            learning_rate, beta1, beta2, epsilon, regularization, name, parameter_list=parameter_list, grad_clip=grad_clip
        )
        self._set(lamb_weight_decay=lamb_weight_decay, always_adapt=always_adapt)
        self._excluded = exclude_from_weight_decay_fn

    def _attrs(self, param: Parameter) -> dict[str, Any]:
        excluded = self._excluded is not None and self._excluded(param)
        return super()._attrs(param) | ({"weight_decay": 0.0} if excluded else {})

    def __setstate__(self, state: Mapping[str, Any]) -> None:
        super().__setstate__(renamed(state, {"_weight_decay": "_lamb_weight_decay"}))


class NAdamOptimizer(Optimizer):
    """Adam with Nesterov's momentum.

    ``mu = beta1 * (1 - 0.96 ** (t * momentum_decay) / 2)`` at step ``t``, with the moments of `AdamOptimizer`; the step is
    ``grad * (1 - mu) / (1 - product) + moment1 * next / (1 - product * next)``, where ``next`` is the mu of the next step and
    ``product`` the one of all mu so far; then ``param -= learning_rate * step / (sqrt(moment2 / (1 - beta2 ** t)) + epsilon)``.
    Source: Dozat, Incorporating Nesterov momentum into Adam, 2016.

    Args:
        learning_rate, regularization, name, parameter_list, grad_clip: see `Optimizer`.
        beta1, beta2, epsilon: see `AdamOptimizer`.
        momentum_decay: how fast mu comes near to beta1.

    >>> w = dygraph.Parameter([1.0, 2.0])
    >>> optimizer = fluid.optimizer.NAdam(0.1, parameter_list=[w])
    >>> (w * w).sum().backward()
    >>> optimizer.step()
    >>> w.numpy().round(3)
    array([0.894, 1.894], dtype=float32)
    """

    type = "nadam"
    accumulators = {
        "Moment1": "moment1",
        "Moment2": "moment2",
        "MomentumDecayPow": "momentum_decay_pow_acc",
        "Beta2Pow": "beta2_pow_acc",
        "MuProduct": "mu_product",
    }
    _beta2: float
    _momentum_decay: float
    hyperparameters = {
        "beta1": _In("in [0, 1)"), "beta2": _In("in [0, 1)"), "epsilon": _NOT_NEGATIVE, "momentum_decay": _NOT_NEGATIVE,
    }  # fmt: skip

    def __init__(
        self,
        learning_rate: Rate = 0.002,
        beta1: float = 0.9,
        beta2: float = 0.999,
        epsilon: float = 1e-08,
        momentum_decay: float = 0.004,
        regularization: WeightDecayRegularizer | None = None,
        name: str | None = None,
        *,
        parameter_list: Source | None = None,
        grad_clip: GradientClipBase | None = None,
    ) -> None:
        super().__init__(learning_rate, regularization, name, parameter_list=parameter_list, grad_clip=grad_clip)
        self._set(beta1=beta1, beta2=beta2, epsilon=epsilon, momentum_decay=momentum_decay)

    def _first_value(self, name: str) -> tuple[float, Sequence[int] | None]:
        decay = NADAM_BASE**self._momentum_decay
        numbers = {"momentum_decay_pow_acc": decay, "beta2_pow_acc": self._beta2, "mu_product": 1.0}
        return (numbers[name], [1]) if name in numbers else super()._first_value(name)


class RAdamOptimizer(Optimizer):
    """Adam, rectified: its first steps, whose second moment is of too few gradients, go without it.

    With ``most = 2 / (1 - beta2) - 1`` and ``length = most - 2 * t * beta2 ** t / (1 - beta2 ** t)`` at step ``t``,
    ``param -= learning_rate * moment1 / (1 - beta1 ** t)`` while ``length <= 5``. Later that step is multiplied by
    ``r * sqrt(1 - beta2 ** t) / (sqrt(moment2) + epsilon)``, with
    ``r = sqrt((length - 4) * (length - 2) * most / ((most - 4) * (most - 2) * length))``.
    Source: Liu et al., On the variance of the adaptive learning rate and beyond, 2020.

    Args:
        learning_rate, regularization, name, parameter_list, grad_clip: see `Optimizer`.
        beta1, beta2, epsilon: see `AdamOptimizer`.

    >>> w = dygraph.Parameter([1.0, 2.0])
    >>> optimizer = fluid.optimizer.RAdam(0.1, parameter_list=[w])
    >>> (w * w).sum().backward()
    >>> optimizer.step()
    >>> w.numpy().round(3)
    array([0.8, 1.6], dtype=float32)
    """

    type = "radam"
    accumulators = {**AdamOptimizer.accumulators, "Step": "step_acc"}
    _beta1: float
    _beta2: float
    hyperparameters = {"beta1": _In("in [0, 1)"), "beta2": _In("in [0, 1)"), "epsilon": _NOT_NEGATIVE}

    def __init__(
        self,
        learning_rate: Rate = 0.001,
        beta1: float = 0.9,
        beta2: float = 0.999,
        epsilon: float = 1e-08,
        regularization: WeightDecayRegularizer | None = None,
        name: str | None = None,
        *,
        parameter_list: Source | None = None,
        grad_clip: GradientClipBase | None = None,
    ) -> None:
        super().__init__(learning_rate, regularization, name, parameter_list=parameter_list, grad_clip=grad_clip)
        self._set(beta1=beta1, beta2=beta2, epsilon=epsilon)

    def _first_value(self, name: str) -> tuple[float, Sequence[int] | None]:
        numbers = {"beta1_pow_acc": self._beta1, "beta2_pow_acc": self._beta2, "step_acc": 1.0}
        return (numbers[name], [1]) if name in numbers else super()._first_value(name)


class LionOptimizer(Optimizer):
    """Steps of one size, by the sign of a mean of gradients: each element moves by the learning rate.

    ``param -= learning_rate * (sign(beta1 * moment + (1 - beta1) * grad) + weight_decay * param)``, then
    ``moment = beta2 * moment + (1 - beta2) * grad``. A rate of a third to a tenth of Adam's is usual.
    Source: Chen et al., Symbolic discovery of optimization algorithms, 2023.

    Args:
        learning_rate, regularization, name, parameter_list, grad_clip: see `Optimizer`.
        beta1, beta2: how much of the moment counts in a step, and remains after it, in [0, 1).
        weight_decay: the coefficient of the decay.

    >>> w = dygraph.Parameter([1.0, 2.0])
    >>> optimizer = fluid.optimizer.Lion(0.1, parameter_list=[w])
    >>> (w * w).sum().backward()
    >>> optimizer.step()
    >>> w.numpy().round(3)
    array([0.9, 1.9], dtype=float32)
    """

    type = "lion"
    accumulators = {"Moment": "moment"}
    hyperparameters = {"beta1": _In("in [0, 1)"), "beta2": _In("in [0, 1)"), "weight_decay": _In("a number", "coeff")}

    def __init__(
        self,
        learning_rate: Rate = 0.0001,
        beta1: float = 0.9,
        beta2: float = 0.99,
        weight_decay: float = 0.0,
        regularization: WeightDecayRegularizer | None = None,
        name: str | None = None,
        *,
        parameter_list: Source | None = None,
        grad_clip: GradientClipBase | None = None,
    ) -> None:
        super().__init__(learning_rate, regularization, name, parameter_list=parameter_list, grad_clip=grad_clip)
        self._set(beta1=beta1, beta2=beta2, weight_decay=weight_decay)


class AdamaxOptimizer(Optimizer):
    """Adam with the infinity norm of gradients instead of the second moment.

    ``moment = beta1 * moment + (1 - beta1) * grad``, ``inf_norm = max(beta2 * inf_norm + epsilon, abs(grad))``, then at
    step ``t`` ``param -= learning_rate / (1 - beta1 ** t) * moment / inf_norm``.
    Source: Kingma and Ba, Adam: A method for stochastic optimization, 2015, section 7.

    Args:
        learning_rate, regularization, name, parameter_list, grad_clip: see `Optimizer`.
        beta1, beta2: how much of the moment and of the norm remains in a step, in [0, 1).
        epsilon: added to the norm, so that it is not 0.

    >>> w = dygraph.Parameter([1.0, 2.0])
    >>> optimizer = fluid.optimizer.Adamax(0.1, parameter_list=[w])
    >>> (w * w).sum().backward()
    >>> optimizer.step()
    >>> w.numpy().round(3)
    array([0.9, 1.9], dtype=float32)
    """

    type = "adamax"
    accumulators = {"Moment": "moment", "InfNorm": "inf_norm"}
    _beta1: float
    hyperparameters = {"beta1": _In("in [0, 1)"), "beta2": _In("in [0, 1)"), "epsilon": _NOT_NEGATIVE}
    _beta1_pow_acc_str = "beta1_pow_acc"

    def __init__(
        self,
        learning_rate: Rate = 0.001,
        beta1: float = 0.9,
        beta2: float = 0.999,
        epsilon: float = 1e-08,
        regularization: WeightDecayRegularizer | None = None,
        name: str | None = None,
        *,
        parameter_list: Source | None = None,
        grad_clip: GradientClipBase | None = None,
    ) -> None:
        super().__init__(learning_rate, regularization, name, parameter_list=parameter_list, grad_clip=grad_clip)
        self._set(beta1=beta1, beta2=beta2, epsilon=epsilon)

    def _create_accumulators(self, block: Block, parameters: Sequence[Parameter]) -> None:
        for param in parameters:
            super()._create_accumulators(block, [param])
            self._add_accumulator(self._beta1_pow_acc_str, param, self._beta1, [1])

    def _append_optimize_op(self, block: Block, param_and_grad: tuple[Parameter, Variable]) -> Operator:
        return self._update(
            block, param_and_grad, {"Beta1Pow": self._get_accumulator(self._beta1_pow_acc_str, param_and_grad[0])}
        )

    def _finish_update(self, block: Block, param_and_grad: tuple[Parameter, Variable]) -> None:
        power = self._get_accumulator(self._beta1_pow_acc_str, param_and_grad[0])
        block.append_op("scale", {"X": power}, {"Out": power}, {"scale": self._beta1})


class AdagradOptimizer(Optimizer):
    """Steps that shrink with all gradients so far.

    ``moment += grad ** 2``, from `initial_accumulator_value`, then
    ``param -= learning_rate * grad / (sqrt(moment) + epsilon)``.
    Source: Duchi, Hazan and Singer, Adaptive subgradient methods for online learning and stochastic optimization, 2011.

    Args:
        learning_rate, regularization, name, parameter_list, grad_clip: see `Optimizer`.
        epsilon: added to the denominator, so that it is not 0.
        initial_accumulator_value: the initial sum of squares.

    >>> w = dygraph.Parameter([1.0, 2.0])
    >>> optimizer = fluid.optimizer.Adagrad(0.1, parameter_list=[w])
    >>> (w * w).sum().backward()
    >>> optimizer.step()
    >>> w.numpy().round(3)
    array([0.9, 1.9], dtype=float32)
    """

    type = "adagrad"
    accumulators = {"Moment": "moment"}
    _initial_accumulator_value: float
    hyperparameters = {"epsilon": _NOT_NEGATIVE, "initial_accumulator_value": _In("not below 0", None)}

    def __init__(
        self,
        learning_rate: Rate,
        epsilon: float = 1e-06,
        regularization: WeightDecayRegularizer | None = None,
        name: str | None = None,
        initial_accumulator_value: float = 0.0,
        *,
        parameter_list: Source | None = None,
        grad_clip: GradientClipBase | None = None,
    ) -> None:
        super().__init__(learning_rate, regularization, name, parameter_list=parameter_list, grad_clip=grad_clip)
        self._set(epsilon=epsilon, initial_accumulator_value=initial_accumulator_value)

    def _first_value(self, name: str) -> tuple[float, Sequence[int] | None]:
        return self._initial_accumulator_value, None


class DecayedAdagradOptimizer(Optimizer):
    """Steps that shrink with the latest gradients.

    ``moment = decay * moment + (1 - decay) * grad ** 2``, then
    ``param -= learning_rate * grad / (sqrt(moment) + epsilon)``.

    Args:
        learning_rate, regularization, name, parameter_list, grad_clip: see `Optimizer`.
        decay: how much of the mean of squares remains in a step, in [0, 1].
        epsilon: added to the denominator, so that it is not 0.

    >>> w = dygraph.Parameter([1.0, 2.0])
    >>> optimizer = fluid.optimizer.DecayedAdagrad(0.1, parameter_list=[w])
    >>> (w * w).sum().backward()
    >>> optimizer.step()
    >>> w.numpy().round(3)
    array([0.553, 1.553], dtype=float32)
    """

    type = "decayed_adagrad"
    accumulators = {"Moment": "moment"}
    hyperparameters = {"decay": _In("in [0, 1]"), "epsilon": _NOT_NEGATIVE}

    def __init__(
        self,
        learning_rate: Rate,
        decay: float = 0.95,
        epsilon: float = 1e-06,
        regularization: WeightDecayRegularizer | None = None,
        name: str | None = None,
        *,
        parameter_list: Source | None = None,
        grad_clip: GradientClipBase | None = None,
    ) -> None:
        super().__init__(learning_rate, regularization, name, parameter_list=parameter_list, grad_clip=grad_clip)
        self._set(decay=decay, epsilon=epsilon)


class AdadeltaOptimizer(Optimizer):
    """Steps in the parameters' own units.

    ``grads = rho * grads + (1 - rho) * grad ** 2``, ``update = grad * sqrt((updates + epsilon) / (grads + epsilon))``,
    ``updates = rho * updates + (1 - rho) * update ** 2``, then ``param -= learning_rate * update``.
    Source: Zeiler, ADADELTA: An adaptive learning rate method, 2012.

    Args:
        learning_rate, regularization, name, parameter_list, grad_clip: see `Optimizer`.
        epsilon: added to both means of squares; it sets the size of the first steps.
        rho: how much of the means remains in a step, in [0, 1].

    >>> w = dygraph.Parameter([1.0, 2.0])
    >>> optimizer = fluid.optimizer.Adadelta(1.0, epsilon=0.01, parameter_list=[w])
    >>> (w * w).sum().backward()
    >>> optimizer.step()
    >>> w.numpy().round(3)
    array([0.564, 1.556], dtype=float32)
    """

    type = "adadelta"
    accumulators = {"AvgSquaredGrad": "_avg_squared_grad", "AvgSquaredUpdate": "_avg_squared_update"}
    hyperparameters = {"epsilon": _NOT_NEGATIVE, "rho": _In("in [0, 1]")}

    def __init__(
        self,
        learning_rate: Rate,
        epsilon: float = 1e-06,
        rho: float = 0.95,
        regularization: WeightDecayRegularizer | None = None,
        name: str | None = None,
        *,
        parameter_list: Source | None = None,
        grad_clip: GradientClipBase | None = None,
    ) -> None:
        super().__init__(learning_rate, regularization, name, parameter_list=parameter_list, grad_clip=grad_clip)
        self._set(epsilon=epsilon, rho=rho)


class RMSPropOptimizer(Optimizer):
    """Steps of the gradient over its root mean square.

    ``mean_square = rho * mean_square + (1 - rho) * grad ** 2``,
    ``step = momentum * step + learning_rate * grad / sqrt(mean_square + epsilon)``, then ``param -= step``. Where
    `centered`, ``mean_grad = rho * mean_grad + (1 - rho) * grad`` and its square is taken from the mean square.
    Source: Tieleman and Hinton, Lecture 6.5 of Neural networks for machine learning, 2012; `centered` and `momentum`: Graves,
    Generating sequences with recurrent neural networks, 2013.

    Args:
        learning_rate, regularization, name, parameter_list, grad_clip: see `Optimizer`.
        rho: how much of the means remains in a step, in [0, 1].
        epsilon: added under the root, so that it is not 0.
        momentum: how much of a step is taken again in the next one, in [0, 1].
        centered: whether to divide by the standard deviation instead.

    >>> w = dygraph.Parameter([1.0, 2.0])
    >>> optimizer = fluid.optimizer.RMSProp(0.1, parameter_list=[w])
    >>> (w * w).sum().backward()
    >>> optimizer.step()
    >>> w.numpy().round(3)
    array([0.553, 1.553], dtype=float32)
    """

    type = "rmsprop"
    accumulators = {"Moment": "momentum", "MeanSquare": "mean_square", "MeanGrad": "mean_grad"}
    hyperparameters = {
        "rho": _In("in [0, 1]", "decay"),
        "epsilon": _NOT_NEGATIVE,
        "momentum": _In("in [0, 1]"),
        "centered": _TRUTH,
    }

    def __init__(
        self,
        learning_rate: Rate,
        rho: float = 0.95,
        epsilon: float = 1e-06,
        momentum: float = 0.0,
        centered: bool = False,
        regularization: WeightDecayRegularizer | None = None,
        name: str | None = None,
        *,
        parameter_list: Source | None = None,
        grad_clip: GradientClipBase | None = None,
    ) -> None:
        super().__init__(learning_rate, regularization, name, parameter_list=parameter_list, grad_clip=grad_clip)
        self._set(rho=rho, epsilon=epsilon, momentum=momentum, centered=centered)


class FtrlOptimizer(Optimizer):
    """Follow the regularized leader: steps that keep parameters at 0 as long as the gradients are small.

    With ``new = squared + grad ** 2``,
    ``linear += grad - (new ** -lr_power - squared ** -lr_power) / learning_rate * param`` and ``squared = new``:
    ``param = (clip(linear, -l1, l1) - linear) / (squared ** -lr_power / learning_rate + 2 * l2)``.
    Source: McMahan et al., Ad click prediction: A view from the trenches, 2013.

    Args:
        learning_rate, regularization, name, parameter_list, grad_clip: see `Optimizer`.
        l1: coefficient of the L1 penalty, which makes parameters exactly 0.
        l2: coefficient of the L2 penalty.
        lr_power: the power in the formula, at most 0.

    >>> w = dygraph.Parameter([1.0, 2.0])
    >>> optimizer = fluid.optimizer.Ftrl(0.1, parameter_list=[w])
    >>> (w * w).sum().backward()
    >>> optimizer.step()
    >>> w.numpy().round(3)
    array([0.9, 1.9], dtype=float32)
    """

    type = "ftrl"
    accumulators = {"SquaredAccumulator": "squared", "LinearAccumulator": "linear"}
    hyperparameters = {"l1": _NOT_NEGATIVE, "l2": _NOT_NEGATIVE, "lr_power": _In("not above 0")}

    def __init__(
        self,
        learning_rate: Rate,
        l1: float = 0.0,
        l2: float = 0.0,
        lr_power: float = -0.5,
        regularization: WeightDecayRegularizer | None = None,
        name: str | None = None,
        *,
        parameter_list: Source | None = None,
        grad_clip: GradientClipBase | None = None,
    ) -> None:
        super().__init__(learning_rate, regularization, name, parameter_list=parameter_list, grad_clip=grad_clip)
        self._set(l1=l1, l2=l2, lr_power=lr_power)


class LarsMomentumOptimizer(Optimizer):
    """Momentum with a learning rate for each parameter.

    ``rate = learning_rate * lars_coeff * norm(param) / (norm(grad) + lars_weight_decay * norm(param) + epsilon)``,
    ``velocity = momentum * velocity + rate * (grad + lars_weight_decay * param)``, then ``param -= velocity``. The rate is
    the learning rate itself if a norm, or the decay, is 0.
    Source: You, Gitman and Ginsburg, Large batch training of convolutional networks, 2017.

    Args:
        learning_rate, regularization, name, parameter_list, grad_clip: see `Optimizer`.
        momentum: how much of the velocity remains, in [0, 1].
        lars_coeff: the ratio of a step to the norm of its parameter.
        lars_weight_decay: the coefficient of the decay.
        exclude_from_weight_decay: parts of names; the parameters that have one do not decay.
        epsilon: see above.
        rescale_grad: the gradient is multiplied by it first.

    >>> w = dygraph.Parameter([1.0, 2.0])
    >>> optimizer = fluid.optimizer.LarsMomentum(0.1, momentum=0.9, lars_coeff=0.5, parameter_list=[w])
    >>> (w * w).sum().backward()
    >>> optimizer.step()
    >>> w.numpy().round(3)
    array([0.95, 1.9 ], dtype=float32)
    """

    type = "lars_momentum"
    accumulators = {"Velocity": "velocity"}
    _lars_weight_decay: float
    hyperparameters = {
        "momentum": _In("in [0, 1]", "mu"),
        "lars_coeff": _NOT_NEGATIVE,
        "lars_weight_decay": _In("a number"),
        "epsilon": _NOT_NEGATIVE,
        "rescale_grad": _In("a number"),
    }

    def __init__(
        self,
        learning_rate: Rate,
        momentum: float,
        lars_coeff: float = 0.001,
        lars_weight_decay: float = 0.0005,
        regularization: WeightDecayRegularizer | None = None,
        name: str | None = None,
        exclude_from_weight_decay: Sequence[str] | None = None,
        epsilon: float = 0.0,
        rescale_grad: float = 1.0,
        *,
        parameter_list: Source | None = None,
        grad_clip: GradientClipBase | None = None,
    ) -> None:
        super().__init__(learning_rate, regularization, name, parameter_list=parameter_list, grad_clip=grad_clip)
        self._set(
            momentum=momentum,
            lars_coeff=lars_coeff,
            lars_weight_decay=lars_weight_decay,
            epsilon=epsilon,
            rescale_grad=rescale_grad,
        )
        self._excluded = [*exclude_from_weight_decay] if exclude_from_weight_decay is not None else []

    def _attrs(self, param: Parameter) -> dict[str, Any]:
        excluded = any(part in param.name for part in self._excluded)
        return super()._attrs(param) | {"lars_weight_decay": [0.0 if excluded else self._lars_weight_decay]}

    def __setstate__(self, state: Mapping[str, Any]) -> None:
        former = {f"_{name}": value for name, value in state.get("_numbers", {}).items()}  # of earlier versions
        super().__setstate__({**state, **renamed(former, {"_mu": "_momentum"})})


class DpsgdOptimizer(Optimizer):
    """Differentially private gradient descent: gradients of bounded norm, with noise.

    ``param -= learning_rate * (grad / max(1, norm(grad) / clip) + noise / batch_size)``, where ``noise`` is one number per
    parameter and step, drawn from the normal distribution with mean 0 and standard deviation `sigma`.
    Source: Abadi et al., Deep learning with differential privacy, 2016.

    Args:
        learning_rate, regularization, name, parameter_list, grad_clip: see `Optimizer`.
        clip: the greatest norm of a gradient, above 0.
        batch_size: how many examples a gradient is of, above 0.
        sigma: the standard deviation of the noise.

    >>> w = dygraph.Parameter([1.0, 2.0])
    >>> optimizer = fluid.optimizer.Dpsgd(0.1, clip=1.0, batch_size=1.0, sigma=0.0, parameter_list=[w])
    >>> (w * w).sum().backward()
    >>> optimizer.step()
    >>> w.numpy().round(3)
    array([0.955, 1.911], dtype=float32)
    """

    type = "dpsgd"
    hyperparameters = {"clip": _In("above 0"), "batch_size": _In("above 0"), "sigma": _NOT_NEGATIVE}

    def __init__(
        self,
        learning_rate: Rate = 0.001,
        clip: float = 0.9,
        batch_size: float = 0.999,
        sigma: float = 1e-08,
        *,
        regularization: WeightDecayRegularizer | None = None,
        name: str | None = None,
        parameter_list: Source | None = None,
        grad_clip: GradientClipBase | None = None,
    ) -> None:
        super().__init__(learning_rate, regularization, name, parameter_list=parameter_list, grad_clip=grad_clip)
        self._set(clip=clip, batch_size=batch_size, sigma=sigma)


class DGCMomentumOptimizer(MomentumOptimizer):
    """`MomentumOptimizer` with the arguments of deep gradient compression, which has no effect here.

    The compression reduces communication between trainers, and is checked here, but not done. Source: Lin et al., Deep gradient
    compression: Reducing the communication bandwidth for distributed training, 2018.

    Args:
        learning_rate, momentum, use_nesterov, regularization, name, parameter_list, grad_clip: see `MomentumOptimizer`.
        rampup_begin_step: the first step with compressed gradients, at least 0.
        rampup_step: over how many steps compression would increase, at least 1.
        sparsity: parts of the gradient to leave out, in [0, 1).
        local_grad_clip_norm: the norm to clip each trainer's gradients to; needs `num_trainers`.
        num_trainers: how many trainers there are.

    >>> w = dygraph.Parameter([1.0, 2.0])
    >>> optimizer = fluid.optimizer.DGCMomentumOptimizer(0.1, momentum=0.9, rampup_begin_step=0, parameter_list=[w])
    >>> (w * w).sum().backward()
    >>> optimizer.step()
    >>> w.numpy().round(3)
    array([0.8, 1.6], dtype=float32)
    """

    def __init__(
        self,
        learning_rate: Rate,
        momentum: float,
        rampup_begin_step: int,
        rampup_step: int = 1,
        sparsity: Sequence[float] = (0.999,),
        use_nesterov: bool = False,
        local_grad_clip_norm: float | None = None,
        num_trainers: int | None = None,
        regularization: WeightDecayRegularizer | None = None,
        name: str | None = None,
        *,
        parameter_list: Source | None = None,
        grad_clip: GradientClipBase | None = None,
    ) -> None:
        super().__init__(
            learning_rate, momentum, use_nesterov, regularization, name, parameter_list=parameter_list, grad_clip=grad_clip
        )
        if rampup_begin_step < 0 or rampup_step < 1:
            raise ProgramError(
                "DGCMomentumOptimizer takes a rampup_begin_step of at least 0 and a rampup_step of at least 1, "
                f"not {rampup_begin_step!r} and {rampup_step!r}"
            )
        if not all(0 <= part < 1 for part in sparsity):
            raise ProgramError(f"sparsity should hold the parts of gradients to leave out, in [0, 1), not {list(sparsity)!r}")
        if local_grad_clip_norm is not None and (not isinstance(num_trainers, int) or num_trainers < 1):
            raise ProgramError(f"local_grad_clip_norm needs num_trainers, how many trainers there are, not {num_trainers!r}")


def _check_optimizer(where: str, value: Any) -> Optimizer:
    if not isinstance(value, Optimizer):
        raise FluidTypeError(f"{where} takes an optimizer, such as fluid.optimizer.SGD(0.1), not {value!r}")
    return value


class RecomputeOptimizer(Optimizer):
    """An optimizer whose backward part recomputes forward values instead of keeping them.

    ``_set_checkpoints`` sets the values that are kept; see `append_backward`. `optimizer` makes the updates. In eager mode
    use `fluid.dygraph.recompute` instead. Source: Chen et al., Training deep nets with sublinear memory cost, 2016.

    Args:
        optimizer: makes the updates.

    Raises:
        ProgramError: by `minimize` and `backward`, where no checkpoints are set, or in eager mode.

    >>> hidden = layers.fc(fluid.data("x", [-1, 4]), 8, act="tanh")
    >>> optimizer = fluid.optimizer.RecomputeOptimizer(fluid.optimizer.SGD(0.1))
    >>> optimizer._set_checkpoints([hidden])
    >>> updates, pairs = optimizer.minimize(layers.mean(layers.fc(hidden, 1)))
    >>> len(updates)
    4
    """

    def __init__(self, optimizer: Optimizer) -> None:
        self._optimizer = _check_optimizer("RecomputeOptimizer", optimizer)
        super().__init__(optimizer._learning_rate)
        self._checkpoints: list[Variable | str] | None = None

    def _set_checkpoints(self, checkpoints: Sequence[Variable | str]) -> None:
        """Cut the forward part at these variables, or variables with these names."""
        fits = isinstance(checkpoints, (list, tuple)) and all(isinstance(item, (str, Variable)) for item in checkpoints)
        if not fits:
            raise FluidTypeError(f"_set_checkpoints takes a list of Variables and names, not {checkpoints!r}")
        self._checkpoints = list(checkpoints)

    def load(self, stat_dict: Any) -> None:
        """An error, as in Fluid 1.6: the state of an optimizer is saved and loaded with its program.

        Args:
            stat_dict: ignored.

        Raises:
            ProgramError: always.
        """
        raise ProgramError("RecomputeOptimizer cannot load a dictionary; fluid.load restores what its optimizer keeps")

    def backward(
        self,
        loss: Variable,
        startup_program: Program | None = None,
        parameter_list: Source | None = None,
        no_grad_set: Named | None = None,
        callbacks: Sequence[Callable[..., Any]] | None = None,
        checkpoints: Named | None = None,
    ) -> list[Pair]:
        """Append the backward part, with recomputation between the checkpoints.

        Args:
            loss, startup_program, parameter_list, no_grad_set, callbacks: see `Optimizer.backward`.
            checkpoints: the values that are kept; by default the values that `_set_checkpoints` set.

        Raises:
            ProgramError: there are no checkpoints, or the loss is a tensor of eager mode.
        """
        if isinstance(loss, Variable) and loss.block.program.eager:
            raise self._for_programs()
        cuts = checkpoints if checkpoints is not None else self._checkpoints
        if cuts is None:
            raise ProgramError("RecomputeOptimizer does not know where to cut; call its _set_checkpoints([...]) before minimize")
        return self._optimizer.backward(loss, startup_program, parameter_list, no_grad_set, callbacks, cuts)

    def _own_parameters(self, method: str) -> list[Any]:
        raise self._for_programs()

    @staticmethod
    def _for_programs() -> ProgramError:
        return ProgramError(
            "RecomputeOptimizer is for programs, which it cuts at its checkpoints; in eager mode call the parts of the network "
            "by y = fluid.dygraph.recompute(part, x), and use the optimizer itself"
        )

    def apply_gradients(self, params_grads: Iterable[Pair]) -> list[Operator]:
        return self._optimizer.apply_gradients(params_grads)

    def apply_optimize(self, loss: Variable, startup_program: Program | None, params_grads: Iterable[Pair]) -> list[Operator]:
        return self._optimizer.apply_optimize(loss, startup_program, params_grads)

    def _global_learning_rate(self, program: Program | None = None) -> Variable | None:
        return self._optimizer._global_learning_rate(program)


_STEP, _SLOW = "lookahead_step", "_slow"


class LookaheadOptimizer:
    """Slow parameters that follow the fast ones.

    `inner_optimizer` updates the parameters, the fast ones, in each step. After every `k` steps
    ``slow += alpha * (fast - slow)`` and ``fast = slow``. The slow parameters start as copies of the fast ones.
    Source: Zhang et al., Lookahead optimizer: k steps forward, 1 step back, 2019.

    Args:
        inner_optimizer: updates the fast parameters.
        alpha: how far the slow parameters follow, in [0, 1].
        k: the number of steps between, at least 1.

    >>> w = dygraph.Parameter([1.0, 2.0])
    >>> optimizer = fluid.optimizer.LookaheadOptimizer(fluid.optimizer.SGD(0.1, parameter_list=[w]), alpha=0.5, k=1)
    >>> (w * w).sum().backward()
    >>> optimizer.step()
    >>> w.numpy().round(3)
    array([0.9, 1.8], dtype=float32)
    """

    def __init__(self, inner_optimizer: Optimizer, alpha: float = 0.5, k: int = 5) -> None:
        self.inner_optimizer = _check_optimizer("LookaheadOptimizer", inner_optimizer)
        if not 0.0 <= alpha <= 1.0:
            raise ProgramError(f"alpha should be in [0, 1], not {alpha!r}")
        if not isinstance(k, int) or k < 1:
            raise ProgramError(f"k should be a number of steps, at least 1, not {k!r}")
        self.alpha, self.k = float(alpha), k
        self.type = "lookahead"
        self._variables: ByProgram[dict[Any, Variable]] = ByProgram()
        """Slow parameters, by the key of `Optimizer._accumulator_vars`; under "" the step counter."""
        self._pending_state = GivenState()

    def __setstate__(self, state: Mapping[str, Any]) -> None:
        self.__dict__.update(renamed(state, _FORMER_NAMES))

    def minimize(self, loss: Variable, startup_program: Program | None = None) -> tuple[list[Operator], list[Pair]]:
        """Append the backward part, the inner optimizer's updates, and the updates of the slow parameters.

        Args:
            loss, startup_program: see `Optimizer.minimize`.

        Returns:
            The ops of the updates, and (parameter, gradient) pairs.
        """
        pairs = self.inner_optimizer.backward(loss, startup_program)
        return self._train(loss, startup_program, pairs), pairs

    def step(self) -> None:
        """In eager mode, update the parameters of the inner optimizer by their gradients."""
        params = self.inner_optimizer._own_parameters("step")
        self._train(params[0], None, params[0].block.program.gradients(None, params, None, append_backward))

    def clear_grad(self) -> None:
        """In eager mode, clear the gradients of the inner optimizer's parameters."""
        self.inner_optimizer.clear_grad()

    clear_gradients = clear_grad

    def state_dict(self) -> dict[str, Any]:
        """In eager mode, the state of this and the inner optimizer, by name: the tensors themselves."""
        tensors = self.inner_optimizer.state_dict()
        for program, variables in self._variables.items():
            self.inner_optimizer._check_eager(program)
            self._forget(variables)
            tensors.update((var.name, var) for var in variables.values())
        return tensors

    def set_dict(self, state_dict: Mapping[str, Any]) -> None:
        """In eager mode, continue from a `state_dict`; see `Optimizer.set_dict`."""
        check_state("LookaheadOptimizer.set_dict", state_dict)
        slow_state = {
            name: value for name, value in state_dict.items() if start_of(name) == _STEP or start_of(name).endswith(_SLOW)
        }
        self.inner_optimizer.set_dict({name: value for name, value in state_dict.items() if name not in slow_state})
        values = GivenState(slow_state)
        for program, variables in self._variables.items():
            self.inner_optimizer._check_eager(program)
            values.give([(_STEP if isinstance(param, str) else param.name + _SLOW, var) for param, var in variables.items()])
        values.keep()
        self._pending_state = values

    def _train(self, loss: Variable, startup_program: Program | None, pairs: Sequence[Pair]) -> list[Operator]:
        params = [param for param, grad in pairs if grad is not None and param.trainable]
        program = loss.block.program
        if self._pending_state:  # the values of a program's variables are in scopes
            self.inner_optimizer._check_eager(program)
        with program_guard(program, startup_program), program.role_guard(OpRole.OPTIMIZE):
            slow = self._variables.setdefault(program, {})
            self._forget(slow)
            for param in params:
                if program.key_of(param) not in slow:
                    slow[program.key_of(param)] = self._slow(param)
        ops = self.inner_optimizer.apply_optimize(loss, startup_program, pairs)
        with program_guard(program, startup_program), program.role_guard(OpRole.OPTIMIZE):
            self._follow(params, slow)
        if self._pending_state:
            self._pending_state.tell_unused("LookaheadOptimizer")
        return ops

    def _forget(self, slow: dict[Any, Variable]) -> None:
        """Drop slow parameters where the inner optimizer drops its state."""
        if callable(self.inner_optimizer._parameter_list):
            _forget(slow, self.inner_optimizer._last_parameters)

    def _follow(self, params: Sequence[Parameter], slow: dict[Any, Variable]) -> None:
        if "" not in slow:
            slow[""] = create_global_var([1], 0, "int64", persistable=True, name=unique_name.generate(_STEP))
            if self._pending_state:
                self._pending_state.give([(_STEP, slow[""])])

        def meet() -> None:
            for param in params:
                slow_param = slow[param.block.program.key_of(param)]
                moved = elementwise_add(slow_param, scale(elementwise_sub(param, slow_param), self.alpha))
                assign(moved, slow_param)
                assign(moved, param)

        do_every(slow[""], self.k, meet)

    def _slow(self, param: Parameter) -> Variable:
        """A new slow parameter, which the startup program copies from the fast one."""
        program = param.block.program
        home = program.startup.global_block()
        try:
            first = home.own(param)
        except NameNotFoundError:
            raise ProgramError(
                f"the startup program does not initialize {param.name}; minimize takes the one that does"
            ) from None
        name = unique_name.generate(param.name + _SLOW)
        slow = program.global_block().create_var(
            name=name, shape=param.shape, dtype=param.dtype, persistable=True, stop_gradient=True
        )
        home.append_op("assign", {"X": first}, {"Out": home.declare(slow, stop_gradient=True)})
        if self._pending_state:
            self._pending_state.give([(param.name + _SLOW, slow)])
        return slow


class PipelineOptimizer:
    """An optimizer for a model that is cut into sections for several devices.

    On one device the sections run one after another, so training is the same as with `optimizer` alone, and all other arguments
    have no effect.

    Args:
        optimizer: makes the updates.
        cut_list: variables at which Fluid 1.6 cuts the model.
        place_list: the devices of the sections.
        concurrency_list: how many batches a section works on at once.
        queue_size: how many batches may wait between sections.
        sync_steps: after how many steps the copies of a section are made equal.
        start_cpu_core_id: the first processor core that a section's threads are bound to.

    >>> loss = layers.mean(layers.fc(fluid.data("x", [-1, 4]), 1))
    >>> updates, pairs = fluid.optimizer.PipelineOptimizer(fluid.optimizer.SGD(0.1)).minimize(loss)
    >>> [op.type for op in updates]
    ['sgd', 'sgd']
    """

    def __init__(
        self,
        optimizer: Optimizer,
        cut_list: Sequence[Sequence[Variable]] | None = None,
        place_list: Sequence[Any] | None = None,
        concurrency_list: Sequence[int] | None = None,
        queue_size: int = 30,
        sync_steps: int = 1,
        start_cpu_core_id: int = 0,
    ) -> None:
        self._optimizer = _check_optimizer("PipelineOptimizer", optimizer)

    def minimize(
        self,
        loss: Variable,
        startup_program: Program | None = None,
        parameter_list: Named | None = None,
        no_grad_set: Named | None = None,
    ) -> tuple[list[Operator], list[Pair]]:
        """Call `minimize` of the inner optimizer.

        Args:
            loss, startup_program, parameter_list, no_grad_set: see `Optimizer.minimize`.
        """
        return self._optimizer.minimize(loss, startup_program, parameter_list, no_grad_set)

    def step(self) -> None:
        """The optimizer's `step`, in eager mode."""
        self._optimizer.step()

    def clear_grad(self) -> None:
        """The optimizer's `clear_grad`, in eager mode."""
        self._optimizer.clear_grad()

    clear_gradients = clear_grad


def _warn_if_again(loss: Variable, trained: Sequence[str]) -> None:
    """Warn if the program has updates made by an earlier run of the user's code, or updates of these parameters by this loss."""
    updates = [op for op in loss.block.ops if op.role & OpRole.OPTIMIZE and op.attrs.get(OpRole.VARS)]
    if first := next((op for op in updates if is_run_again(op.frames)), None):
        why = (
            f"the net of this loss, {loss.name}, is built again, beside the first, whose updates the program has: a run trains "
            "both. Build into a new program: with fluid.program_guard(fluid.Program(), fluid.Program())"
        )
    elif first := next((op for op in updates if op.attrs[OpRole.VARS][0] in trained), None):
        why = f"{loss.name} is minimized again: its program has the updates of the first call, and makes both, twice in each run"
    else:
        return
    place = "" if first.user_frame is None else f"; first at {first.user_frame[0]}:{first.user_frame[1]} in {first.user_frame[2]}"
    warnings.warn(why + place, stacklevel=6)


SGD = SGDOptimizer
Momentum = MomentumOptimizer
Adam = AdamOptimizer
AdamW = AdamWOptimizer
NAdam = NAdamOptimizer
RAdam = RAdamOptimizer
Lion = LionOptimizer
Lamb = LambOptimizer
Adamax = AdamaxOptimizer
Adagrad = AdagradOptimizer
DecayedAdagrad = DecayedAdagradOptimizer
Adadelta = AdadeltaOptimizer
RMSProp = RMSPropOptimizer
Ftrl = FtrlOptimizer
LarsMomentum = LarsMomentumOptimizer
Dpsgd = DpsgdOptimizer
