"""Eager mode as a program that runs appended ops at once; parameters; `guard`."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np

from .. import unique_name
from ..errors import FluidTypeError, ProgramError
from ..executor.binding.array_types import array_of, default_xp, making_on
from ..executor.runtime.random import RANDOM, Draw
from ..ir import program as framework
from ..ir.program import Block, OpRole, Program, Variable, program_guard
from ..opdef import registry
from ..opdef.inference import OpNamespace
from ..opdef.registry import OpDef, Slot, updated_input
from ..values.memory import allocated, contiguous_copy
from ..values.types import DTypeLike, as_dtype
from .dispatch import UpdateOp, namespace, update_op
from .graph import AccumulateGrad, keep_gradient
from .mode import keeping_gradients, no_grad, state, tracing
from .parts import parts
from .tensor import Tensor

_Function = TypeVar("_Function", bound=Callable[..., Any])


class Parameter(Tensor):
    """A tensor that training changes.

    Args:
        data: anything like an array.
        dtype: element type; by default the type of `data`, and float32 for Python's floats.
        name: its name; generated if None.
        trainable: whether it requires a gradient, and optimizers change it.
        optimize_attr: ``{"learning_rate": factor}`` on the optimizer's learning rate.
        regularizer: its own weight decay, in place of the optimizer's.
        gradient_clip_attr: how its gradient is clipped.
        do_model_average: whether averages of parameters include it.

    >>> w = dygraph.Parameter([1.0, 2.0], optimize_attr={"learning_rate": 0.5})
    >>> w.trainable, w.shape
    (True, (2,))
    """

    __slots__ = ("do_model_average", "gradient_clip_attr", "optimize_attr", "regularizer")

    _persists = True

    def __init__(
        self,
        data: Any,
        dtype: DTypeLike | None = None,
        name: str | None = None,
        trainable: bool = True,
        optimize_attr: Mapping[str, Any] | None = None,
        regularizer: Any = None,
        gradient_clip_attr: Any = None,
        do_model_average: bool = True,
    ) -> None:
        name = name if name is not None else unique_name.generate("parameter")
        if isinstance(data, Tensor):
            data._read("Parameter(...)")
        with tracing(None):  # it outlives the trace
            super().__init__(data, dtype, not trainable, name, copy=False)
        self._array, self._version = contiguous_copy(self._kind.xp, self._array), [0]  # native code reads it faster
        if state.tracer is not None:
            state.tracer.note_parameter(self)
        self.optimize_attr = dict(optimize_attr) if optimize_attr is not None else {"learning_rate": 1.0}
        self.regularizer = regularizer
        self.gradient_clip_attr = gradient_clip_attr
        self.do_model_average = do_model_average

    def _settings(self) -> dict[str, Any]:
        return {
            "name": self._name,
            "trainable": self.trainable,
            "optimize_attr": self.optimize_attr,
            "regularizer": self.regularizer,
            "gradient_clip_attr": self.gradient_clip_attr,
            "do_model_average": self.do_model_average,
        }

    def __reduce__(self) -> Any:
        return _unpickled, (self.numpy(), self._settings())

    def __deepcopy__(self, memo: dict[int, Any]) -> Parameter:
        copy = memo[id(self)] = Parameter(self._array, **self._settings())
        if state.tracer is not None:
            state.tracer.bind_copy(copy, self, stop=True)
            return copy
        copy._grad = None if self._grad is None else self._grad.detach().clone()
        return copy

    def __repr__(self) -> str:
        return f"Parameter {self.name}: {super().__repr__()}"

    __str__ = __repr__


framework.Parameter.register(Parameter)


def _unpickled(array: Any, settings: dict[str, Any]) -> Parameter:
    return Parameter(array, **settings)


class Unset(Tensor):
    """A tensor without elements yet; the first op that writes to it makes it an ordinary tensor."""

    __slots__ = ()


class UpdateCall:
    """A call of an op that overwrites some of the tensors it reads; it can be repeated with another gradient."""

    __slots__ = ("_gradient", "_tensors", "op")

    def __init__(self, op: UpdateOp, inputs: Mapping[str, Tensor]) -> None:
        self.op = op
        self._tensors: list[Any] = list(inputs.values())
        self._gradient = list(inputs).index("Grad") if "Grad" in inputs else None
        if self._gradient is not None:
            self._tensors[self._gradient] = None  # so that it can be freed

    def again(self, grad: Tensor) -> UpdateCall:
        """Repeat the call with another gradient."""
        tensors = self._tensors.copy()
        if self._gradient is not None:
            tensors[self._gradient] = grad
        self.op(*tensors)
        return self


EFFECTS: dict[str, Callable[..., dict[str, Any]]] = {}
"""Op type with side effects -> the function that runs it on tensors, of its definition, inputs, attributes and outputs."""
VERSIONS: dict[Callable[..., Any], Callable[..., Any]] = {}
"""Layer or class (see `fluid.building.versions`) -> its eager version."""


def version_of(layer: Any) -> Callable[[_Function], _Function]:
    """A decorator that registers the eager version of a layer that is marked `builds`, or of a class."""

    def register(function: _Function) -> _Function:
        VERSIONS[getattr(layer, "__wrapped__", layer)] = function
        return function

    return register


class EagerBlock(Block):
    """A block whose ops run when they are appended. It keeps neither the ops nor their outputs."""

    __slots__ = ()

    @property
    def namespace(self) -> OpNamespace:
        return namespace

    def create_var(self, **kwargs: Any) -> Any:
        """A tensor of zeros; without a shape, an `Unset` one, which the first op that writes it fills."""
        shape, dtype = kwargs.get("shape"), kwargs.get("dtype")
        kind = Unset if shape is None else Tensor
        element = "float32" if dtype is None else as_dtype(dtype).array_dtype
        array = allocated(default_xp().zeros, (0,) if shape is None else tuple(shape), element)
        if not kwargs.get("persistable"):
            return kind(array, name=kwargs.get("name"), copy=False)
        with tracing(None):  # it outlives the trace
            return kind(contiguous_copy(default_xp(), array), name=kwargs.get("name"), copy=False)

    def create_parameter(self, **kwargs: Any) -> Any:
        """A parameter of zeros."""
        shape, dtype = tuple(kwargs.pop("shape")), as_dtype(kwargs.pop("dtype"))
        names = ("name", "trainable", "optimize_attr", "regularizer", "gradient_clip_attr", "do_model_average")
        zeros = allocated(default_xp().zeros, shape, dtype.array_dtype)
        return Parameter(zeros, **{name: kwargs[name] for name in names if name in kwargs})

    def own(self, var: Any) -> Any:
        return var

    def declare(self, var: Any, **settings: Any) -> Any:
        return var

    def initialize(self, var: Any, initializer: Callable[[Any, Block], Any]) -> Any:
        draws: list[Draw] = []
        with tracing(None), RANDOM.noting(draws), RANDOM.first_values(var.name):
            initializer(var, self)
        var._start = initializer, draws, var.version  # for programs that start from the same values
        return var

    def derive(self, parameter: Any) -> Any:
        return parameter

    def apply(
        self,
        definition: OpDef,
        inputs: Mapping[str, Any],
        attrs: Mapping[str, Any],
        outputs: Mapping[str, Any],
        temporary: Callable[[], Any] | None = None,
        count: int = 1,
        also: Sequence[str] = (),
    ) -> dict[str, Any]:
        """Run an op; its outputs by slot, with the intermediate ones in `also`. They are written to the tensors in `outputs`."""
        present = {slot: value for slot, value in inputs.items() if value is not None}
        effect = EFFECTS.get(definition.type)
        if effect is not None:
            return effect(definition, present, attrs, outputs)
        results = namespace.apply(definition, present, {name: value for name, value in attrs.items() if value is not None}, also)
        for slot, targets in outputs.items():
            source = updated_input(definition, slot)
            for target, value in zip(_listed(targets), _listed(results.get(slot)), strict=False):
                if target is not None and value is not None:
                    write(target, value, definition.type, source is not None and present.get(source) is target)
            if targets is not None and results.get(slot) is not None:
                results[slot] = targets
        slots = definition.outputs
        return {
            slot: value for slot, value in results.items() if value is not None and (slot in outputs or not slots[slot].optional)
        }

    def append_op(
        self, type: str, inputs: Any = None, outputs: Any = None, attrs: Mapping[str, Any] | None = None, frames: Any = None
    ) -> Any:
        """Run an op and write its results to `outputs`. If all of these are inputs too, it is not recorded; returns the call."""
        inputs = {slot: _single_item(value) for slot, value in (inputs or {}).items()}
        outputs = {slot: _single_item(value) for slot, value in (outputs or {}).items()}
        attrs = {name: value for name, value in (attrs or {}).items() if value is not None and not name.startswith(OpRole.NAME)}
        into = {}
        for slot, target in outputs.items():
            source = next((name for name, value in inputs.items() if value is target), None)
            if source is not None and isinstance(target, Tensor) and target._edge is None:
                into[slot] = source
        if into and len(into) == len(outputs):
            call = UpdateCall(update_op(type, inputs, attrs, into), inputs)
            call.op(*inputs.values())
            return call
        self.apply(registry.get(type), inputs, attrs, outputs)
        return None

    def insert_op(self, index: int, type: str, **kwargs: Any) -> Any:
        raise ProgramError(f"{type} cannot be inserted before other ops: in eager mode, ops run when they are appended")


def _single_item(value: Any) -> Any:
    """The item of a list of one; other values as they are."""
    return value[0] if isinstance(value, (list, tuple)) and len(value) == 1 else value


def _listed(value: Any) -> list[Any]:
    return list(value) if isinstance(value, (list, tuple)) else [value]


def _temporaries(slot: Slot, target: Any, layer: str, count: int) -> int:
    """The number of variables, named after a layer, that a program would have for an output of its op."""
    if target is not None:
        return sum(item.name.startswith(f"{layer}.tmp") for item in _listed(target))
    return count if slot.many else int(not slot.optional)


def write(target: Any, value: Tensor, op_type: str, updated: bool) -> None:
    if isinstance(target, Unset):
        target._array, target._kind, target._edge, target._stop = value._array, value._kind, value._edge, value._stop
        target._version = value._version
        keep_gradient(target)
        target.__class__ = Tensor  # type: ignore[assignment]
    elif updated or target._stop or isinstance(target, Parameter):
        target.set_value(value)
    else:
        target._check_modifiable(op_type)
        target._take_over(value, op_type)


class _Updating(no_grad):
    """Inside the ``with``, an optimizer runs ops, which are not recorded."""

    def __init__(self, block: Block) -> None:
        super().__init__()
        self._block = block

    def __new__(cls, block: Block) -> Any:
        return super().__new__(cls)

    def __enter__(self) -> Any:
        super().__enter__()
        return self._block


class EagerProgram(Program):
    """The program of eager mode: ops that are appended to it run at once."""

    __slots__ = ()

    eager = True

    def __init__(self) -> None:
        super().__init__()
        self.blocks = [EagerBlock(self, 0)]

    @property
    def startup(self) -> Program:
        return self

    @contextlib.contextmanager
    def apart(self) -> Iterator[None]:
        with tracing(None), RANDOM.apart():
            yield

    def drawing(
        self, layer: str, name: str | None, definition: OpDef, outputs: Mapping[str, Any], count: int
    ) -> contextlib.AbstractContextManager[None]:
        if name is None:
            if layer == definition.type or not definition.is_random:
                return contextlib.nullcontext()
            return RANDOM.call_of_kind(layer)
        temporaries = sum(_temporaries(slot, outputs.get(slot.name), name, count) for slot in definition.outputs.values())
        if definition.is_random:
            return RANDOM.call_of_layer(name, temporaries)
        RANDOM.pass_over(name, temporaries)
        return contextlib.nullcontext()

    def version_of(self, layer: Callable[..., Any]) -> Callable[..., Any]:
        return VERSIONS.get(layer, layer)

    def key_of(self, parameter: Any) -> Any:
        return parameter

    def gradients(
        self, loss: Any, parameters: Any, left_out: Any, append: Callable[[Any, Any, Any], list[Any]]
    ) -> list[tuple[Any, Any]]:
        chosen = list(parameters) if parameters is not None else parameters_of(loss)
        for item in chosen:
            if not isinstance(item, Tensor):
                raise FluidTypeError(f"parameter_list should hold tensors, such as layer.parameters(); {item!r} is not one")
        names = {item if isinstance(item, str) else item.name for item in left_out or ()}
        pairs = [(item, item.grad) for item in chosen if item.trainable and item.name not in names]
        if all(grad is None for _, grad in pairs):
            raise ProgramError(
                "there is nothing to optimize: no parameter has a gradient; call loss.backward() before minimize or step"
            )
        return pairs

    def standing_in(self, args: Any, kwargs: Any) -> tuple[Any, Any] | None:
        return parts.twins.stand_ins(args, kwargs)

    def loaded(self, array: Any) -> Tensor:
        return to_variable(array)

    def scheduled_rate(self, schedule: Callable[[], Any]) -> Any:
        return [float(schedule())] if state.tracer is None else state.tracer.scheduled_rate(schedule)

    def note_optimizer(self, optimizer: Any) -> None:
        if state.tracer is not None:
            state.tracer.note_optimizer(optimizer)

    def updating(self, param: Any, grad: Any) -> contextlib.AbstractContextManager[Block]:
        return _Updating(self.blocks[0])

    @property
    def random_seed(self) -> int:
        """Seed of the stream that random ops draw from; setting it restarts the stream."""
        return self._seed

    @random_seed.setter
    def random_seed(self, seed: int) -> None:
        self._seed = int(seed)
        RANDOM.seed(self._seed)

    def create_block(self, parent: Block | None = None, forward: Block | None = None) -> Block:
        raise ProgramError(
            "blocks are parts of programs; in eager mode, use Python's own if, for and while, or cond and while_loop"
        )

    @contextlib.contextmanager
    def role_guard(self, role: int) -> Iterator[None]:
        """Inside the ``with``, the ops of optimizers are not recorded."""
        with no_grad() if role & OpRole.OPTIMIZE else contextlib.nullcontext():
            yield


EAGER = EagerProgram()
"""The eager program of this process."""


@contextlib.contextmanager
def guard(place: Any = None) -> Iterator[None]:
    """Eager mode as in Fluid 1.6.

    Inside the ``with``, layers that take no tensor run at once too, layers take arrays for tensors, all tensors keep their
    gradients, and generated names count from zero.

    Args:
        place: the device of new tensors; the CPU by default.

    >>> with dygraph.guard():
    ...     print(layers.fill_constant([2], "float32", 1.0).numpy())
    [1. 1.]
    """
    device = making_on(place) if place is not None else contextlib.nullcontext()
    with device, unique_name.guard(), program_guard(EAGER, EAGER), keeping_gradients():
        yield


_enabled: list[contextlib.ExitStack] = []


def enable_dygraph(place: Any = None) -> None:
    """Eager mode, as inside a `guard`, until `disable_dygraph`; at `place`, where one is given.

    >>> dygraph.enable_dygraph()
    >>> layers.ones([2], "float32")
    Tensor([1., 1.], shape=[2], dtype=float32)
    >>> dygraph.disable_dygraph()
    """
    if not _enabled:
        stack = contextlib.ExitStack()
        if place is not None:
            stack.enter_context(making_on(place))
        stack.enter_context(program_guard(EAGER, EAGER))
        stack.enter_context(keeping_gradients())
        _enabled.append(stack)


def disable_dygraph() -> None:
    """Undo `enable_dygraph`.

    >>> dygraph.enable_dygraph()
    >>> dygraph.disable_dygraph()
    >>> dygraph.enabled()
    False
    """
    while _enabled:
        _enabled.pop().close()


def enabled() -> bool:
    """Whether eager mode is on: layers that take no tensor run at once.

    >>> with dygraph.guard():
    ...     dygraph.enabled()
    True
    """
    return framework.in_dygraph_mode()


def to_variable(value: Any, block: Any = None, name: str | None = None, zero_copy: bool | None = None) -> Tensor:
    """Copy an array to a tensor; return a tensor unchanged.

    Args:
        value: an array, or nested lists of numbers.
        block: accepted, as in Fluid 1.6; ignored. A text is the name, which is the second argument in Fluid 1.8.
        name: of the tensor.
        zero_copy: accepted, as in Fluid 1.8; the tensor never shares memory with the array.

    Raises:
        FluidTypeError: `value` is a variable of a program, or not like an array.

    >>> dygraph.to_variable(np.array([[1.0, 2.0]], "float32")).shape
    (1, 2)
    """
    if isinstance(value, Tensor):
        return value
    if isinstance(value, Variable):
        raise FluidTypeError(f"{value.name} is a Variable of a program, which has no value until it runs; give an array")
    xp = default_xp()
    name = block if name is None and isinstance(block, str) else name
    return Tensor(value if xp is np else xp.asarray(array_of(value)), name=name)


def parameters_of(loss: Tensor) -> list[Tensor]:
    """The leaves that a tensor was computed from and that require a gradient, in order of creation."""
    leaves: dict[int, Any] = {}
    seen = set()
    stack = [loss._edge[0]] if loss._edge is not None else []
    while stack:
        node = stack.pop()
        if node in seen:
            continue
        seen.add(node)
        if isinstance(node, AccumulateGrad):
            leaves[node.sequence_nr] = node.variable
        stack += [edge[0] for edge in node._edges if edge is not None]
    return [leaves[number] for number in sorted(leaves)]
