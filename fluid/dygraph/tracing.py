"""From eager mode to programs: functions and layers as they run, and recorded graphs, written down as a `Program`.

While a function is traced it runs on its examples, and each op is appended to a program too. Which variable a tensor is, is known
by its array. What the function takes from outside (parameters, say) becomes a persistable variable in the same memory: what
changes there shows in the program, and the other way round.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from .. import unique_name
from ..errors import FluidTypeError, ProgramError
from ..executor import CPUPlace, CUDAPlace, Executor, Scope, scope_guard
from ..executor.eager import CPU, Kind
from ..framework import Operator, Program, Variable, default_main_program, default_startup_program, program_guard
from ..initializer import VALUES, constant_attrs, value_attrs
from ..layers.control_flow import _flatten, _rebuild, _structure
from ..ops.registry import OpDef, updated_input
from .base import Parameter, to_variable
from .graph import AccumulateGrad, Node, OpNode, line_text, user_line
from .layers import Layer
from .mode import state, tracing
from .recipe import TensorOp
from .tensor import Tensor, make

_SMALL = 1024
"""Constants of so many elements are written into the program."""
__all__ = ["TracedFunction", "TracedLayer", "Tracer", "declarative", "program_of", "to_static", "trace"]


def append_call(
    program: Program,
    definition: OpDef,
    attrs: Mapping[str, Any],
    inputs: Mapping[str, Any],
    names: Callable[[str], str],
    made: Callable[[str], int],
) -> Operator:
    """Append an op that ran to the program's current block; ``made(slot)`` says how many values an output has."""
    block = program.current_block()
    prefix = names(definition.type)
    outputs: dict[str, Any] = {}
    for slot, place in definition.outputs.items():
        if place.many:
            outputs[slot] = [block.create_var(name=names(prefix + ".tmp")) for _ in range(made(slot))]
        elif not place.optional or made(slot):
            outputs[slot] = block.create_var(name=names(prefix + ".tmp"))
    said = {
        name: value for name, value in attrs.items() if name not in definition.attrs or value != definition.attrs[name].default
    }
    return block.append_op(definition.type, inputs, outputs, said)


class Tracer:
    """Appends what runs in this thread to a program.

    Attributes:
        program: what has been traced so far.
        captured: variable -> the tensor from outside that it shares its memory with.
    """

    def __init__(self) -> None:
        self.program = Program()
        self.startup = Program()
        self.captured: dict[str, Tensor] = {}
        self._names = unique_name.UniqueNameGenerator()
        self._variables: dict[int, Variable] = {}
        self._arrays: list[Any] = []
        """All arrays that have a variable: none of them is to give its id to another."""
        self._born: set[int] = set()
        """Arrays of tensors that were made of data meanwhile."""
        self._fixed: set[int] = set()
        """In a branch, the arrays from outside, which must not be written to."""

    # -- which variable a tensor is
    def known(self, tensor: Tensor) -> bool:
        """Whether the tensor is a variable of the program."""
        return id(tensor._array) in self._variables

    def bind(self, tensor: Tensor, variable: Variable) -> None:
        """Let a tensor be this variable from now on."""
        self._variables[id(tensor._array)] = variable
        self._arrays.append(tensor._array)

    def feed(self, tensor: Tensor, name: str) -> Variable:
        """Declare a variable that stands for this tensor, to be fed."""
        if self.program.global_block().has_var(name):
            raise ProgramError(f"trace: two inputs are called {name!r}")
        variable = self.program.global_block().create_var(
            name=name,
            shape=(-1, *tensor.shape[1:]) if tensor.lod else tensor.shape,
            dtype=tensor.dtype,
            lod_level=len(tensor.lod),
            is_data=True,
            need_check_feed=True,
            stop_gradient=tensor.stop_gradient,
        )
        self.bind(tensor, variable)
        return variable

    def variable(self, tensor: Tensor) -> Variable:
        """The variable that a tensor is: a tensor from outside becomes one that persists."""
        found = self._variables.get(id(tensor._array))
        if found is not None:
            return found
        return self._made_here(tensor) if id(tensor._array) in self._born else self._capture(tensor)

    def created(self, tensor: Tensor) -> None:
        """A tensor has been made of data while this is traced: it is made in each run of the program."""
        self._born.add(id(tensor._array))
        self._arrays.append(tensor._array)

    def constant(self, tensor: Tensor, value: float) -> None:
        """A tensor whose every element is `value`."""
        self.bind(tensor, self._appended("fill_constant", {}, constant_attrs(tensor.shape, tensor.dtype, value)))

    def _made_here(self, tensor: Tensor) -> Variable:
        if tensor.size <= _SMALL and tensor.dtype in VALUES:
            found = self._appended("assign_value", {}, value_attrs(tensor._host(), tensor.dtype))
        else:
            kept = make(tensor._array.copy(), tensor._kind)  # the tensor itself may change
            found = self._appended("assign", {"X": self._capture(kept)}, {})
        self.bind(tensor, found)
        return found

    def _appended(self, op_type: str, inputs: Mapping[str, Any], attrs: Mapping[str, Any]) -> Variable:
        block = self.program.current_block()
        found = block.create_var(name=self._names(self._names(op_type) + ".tmp"))
        block.append_op(op_type, inputs, {"Out": found}, attrs)
        return found

    def _capture(self, tensor: Tensor) -> Variable:
        home = self.program.global_block()
        name = tensor.name
        while home.has_var(name):
            name = self._names(tensor.name)
        said: dict[str, Any] = {"name": name, "shape": tensor.shape, "dtype": tensor.dtype, "persistable": True}
        if isinstance(tensor, Parameter):
            said.update((key, getattr(tensor, key)) for key in ("optimize_attr", "regularizer", "gradient_clip_attr"))
            variable: Variable = home.create_parameter(
                trainable=tensor.trainable, do_model_average=tensor.do_model_average, stop_gradient=tensor.stop_gradient, **said
            )
        else:
            variable = home.create_var(stop_gradient=True, **said)
        self.bind(tensor, variable)
        self.captured[name] = tensor
        return variable

    # -- what happens to tensors
    def call(self, op: TensorOp, tensors: Sequence[Tensor]) -> Any:
        """Run an op, and append it."""
        inputs: dict[str, Any] = {}
        for (slot, number), tensor in zip(op.positions(), tensors, strict=True):
            variable = self.variable(tensor)
            if number is None:
                inputs[slot] = variable
            else:
                inputs.setdefault(slot, []).append(variable)
        with tracing(None):
            found = op(*tensors)
        by_slot = dict(zip(op.visible, [found] if len(op.visible) == 1 else found, strict=True))
        definition = op.definition

        def count(slot: str) -> int:
            value = by_slot.get(slot)
            return len(value) if isinstance(value, list) else int(value is not None)

        made = append_call(self.program, definition, op.attrs, inputs, self._names, count)
        block = self.program.current_block()
        for slot, value in by_slot.items():
            for name, item in zip(made.outputs.get(slot, ()), value if isinstance(value, list) else [value], strict=False):
                if item is not None:
                    self.bind(item, block.var(name))
        self._bind_saved(op, tensors, made, by_slot)
        return found

    def _bind_saved(self, op: TensorOp, tensors: Sequence[Tensor], made: Operator, by_slot: Mapping[str, Any]) -> None:
        """What the op's gradient will read of its other outputs is known by the arrays that were saved."""
        outputs = [item for value in by_slot.values() for item in (value if isinstance(value, list) else [value])]
        node = next((item._edge[0] for item in outputs if item is not None and item._edge is not None), None)
        if not isinstance(node, OpNode) or not node._saved:
            return
        recipe = node._recipe
        for number, (array, _, _) in zip(recipe._save_out, node._saved[len(recipe._save_in) :], strict=True):
            slot = recipe._slots[number]
            if id(array) not in self._variables and not op.definition.outputs[slot].many:
                self._variables[id(array)] = self.program.current_block().var(made.outputs[slot][0])
                self._arrays.append(array)

    def same(self, new: Tensor, old: Tensor) -> None:
        """`new` is a copy of `old`, made without an op."""
        self.bind(new, self._appended("assign", {"X": self.variable(old)}, {}))

    def wrote(self, target: Tensor, value: Any, by: str) -> None:
        """`target` has been given the elements of `value` in place."""
        source = value if isinstance(value, Tensor) else Tensor(value, target.dtype)
        if id(target._array) in self._fixed:
            raise ProgramError(
                f"{by}: {target.name} is from outside the branch or loop, and cannot be modified in it; return the new value\n"
                f"  called at: {line_text(user_line())}"
            )
        variable, new = self.variable(target), self.variable(source)
        if not variable.persistable:
            self.bind(target, self._appended("assign", {"X": new}, {}))
            return
        op = self.program.current_block().ops[-1] if self.program.current_block().ops else None
        if op is not None and op.definition is not None:
            for slot, names in op.outputs.items():
                place = updated_input(op.definition, slot)
                if place is not None and names == [new.name] and op.inputs.get(place) == [variable.name]:
                    op.rename_output(new.name, variable.name)  # as the op is meant: it updates this input
                    op.block.remove_var(new.name)
                    self.bind(source, variable)
                    return
        self.program.current_block().append_op("assign", {"X": new}, {"Out": variable})

    # -- what cannot be traced
    def refuse(self, tensor: Tensor, by: str) -> None:
        """An error, if a value is to be taken out of a tensor that is traced."""
        if self.known(tensor):
            raise ProgramError(
                f"{by} of {tensor.name} ({tensor.describe()}) while it is traced: Python would see the value that the example "
                "has, and the program would not depend on it. To decide by a tensor use fluid.layers.cond or "
                "fluid.layers.while_loop; to compute with it, ops on tensors\n"
                f"  called at: {line_text(user_line())}"
            )

    def refuse_call(self, what: str, instead: str) -> None:
        """An error: this cannot be part of a program."""
        raise ProgramError(f"{what} cannot be traced; {instead}\n  called at: {line_text(user_line())}")

    # -- branches and loops
    def _static(self, build: Callable[[Callable[..., Any]], Any]) -> Any:
        """Call ``build(as_user)`` with layers appending to this program; ``as_user(fn, *args)`` calls as before."""
        main, startup = default_main_program(), default_startup_program()
        generator = unique_name.switch(self._names)

        def as_user(function: Callable[..., Any], *args: Any) -> Any:
            mine = unique_name.switch(generator)
            try:
                with program_guard(main, startup):
                    return function(*args)
            finally:
                unique_name.switch(mine)

        try:
            with program_guard(self.program, self.startup):
                return build(as_user)
        finally:
            unique_name.switch(generator)

    def _inside(self, function: Callable[[], Any]) -> Any:
        """What a function gives as part of another block: what is made there is not known outside."""
        outside, fixed = dict(self._variables), self._fixed
        self._fixed = fixed | set(outside)
        try:
            return function()
        finally:
            kept = {key: variable for key, variable in self._variables.items() if variable.persistable}
            self._variables, self._fixed = {**kept, **outside}, fixed

    def _lifted(self, value: Any) -> Any:
        """Tensors, nested, as variables."""
        return _rebuild(value, iter([self.variable(item) for item in _tensors(value)]))

    def cond(self, pred: Tensor, true_fn: Any, false_fn: Any) -> Any:
        """`fluid.layers.cond` of a traced tensor: both functions are traced; the tensors are those of the one that is chosen."""
        from ..layers.control_flow import cond

        results: dict[bool, Any] = {False: None, True: None}

        def build(as_user: Callable[..., Any]) -> Any:
            def branch(which: bool, function: Any) -> Any:
                def run() -> Any:
                    results[which] = as_user(function)
                    return self._lifted(results[which])

                return None if function is None else lambda: self._inside(run)

            return cond(self.variable(pred), branch(True, true_fn), branch(False, false_fn))

        merged = self._static(build)
        chosen = results[bool(pred._array.item())]
        return self._bound(chosen, merged)

    def _bound(self, tensors: Any, variables: Any) -> Any:
        """Copies of nested tensors, which are these variables."""
        copies: list[Any] = []
        for tensor, variable in zip(_tensors(tensors), _flatten(variables, "a result"), strict=True):
            copy = make(tensor._array.copy(), tensor._kind, tensor._edge)
            copy._stop = tensor._stop
            self.bind(copy, variable)
            copies.append(copy)
        return _rebuild(tensors, iter(copies))

    def while_loop(self, cond: Any, body: Any, loop_vars: Sequence[Any], is_test: bool) -> Any:
        """`fluid.layers.while_loop` of traced tensors: the body is traced once, and the tensors are those after the last trip."""
        from ..layers.control_flow import while_loop

        before = list(loop_vars)

        def build(as_user: Callable[..., Any]) -> Any:
            def lifted(function: Any) -> Any:
                def run(*variables: Any) -> Any:
                    return self._inside(lambda: self._lifted(as_user(function, *self._bound(before, list(variables)))))

                return run

            return while_loop(lifted(cond), lifted(body), self._lifted(before), is_test)

        after = self._static(build)
        with tracing(None):
            last = loop(cond, body, before)
        return self._bound(last, after)


def _tensors(value: Any) -> list[Any]:
    """The tensors in nested lists, tuples and dicts; an error where there is anything else."""
    return list(_flatten(value, "what a branch or loop returns"))


# ------------------------------------------------------------------------------------------------------- eager control flow
def loop(cond: Any, body: Any, loop_vars: Sequence[Any]) -> list[Any]:
    """`fluid.layers.while_loop` on tensors."""
    now = list(loop_vars)
    while bool(cond(*now)):
        value = body(*now)
        if not isinstance(value, (list, tuple)) or (len(now) == 1 and _structure([value]) == _structure(now)):
            value = [value]
        if _structure(list(value)) != _structure(now):
            raise ProgramError(
                f"while_loop: body takes {_structure(now)} but returns {_structure(value)}; both must have the same structure"
            )
        now = list(value)
    return now


def eager_cond(pred: Tensor, true_fn: Any, false_fn: Any) -> Any:
    """`fluid.layers.cond` on a tensor."""
    if state.tracer is not None:
        return state.tracer.cond(pred, true_fn, false_fn)
    chosen = true_fn if bool(pred) else false_fn
    return None if chosen is None else chosen()


def eager_while_loop(cond: Any, body: Any, loop_vars: Sequence[Any], is_test: bool) -> Any:
    """`fluid.layers.while_loop` on tensors."""
    if state.tracer is not None:
        return state.tracer.while_loop(cond, body, loop_vars, is_test)
    return loop(cond, body, loop_vars)


# -------------------------------------------------------------------------------------------------------- what users call
class TracedFunction:
    """A function as a program; called with tensors like the examples, it gives what the program computes, without gradients.

    Attributes:
        program: the ops, which `append_backward` can differentiate, and an executor run in `scope`.
        feed_names, fetch_names: of what goes in and comes out, in order.
        scope: holds what the function took from outside, in the same memory.
    """

    def __init__(self, tracer: Tracer, feeds: Sequence[str], fetches: Sequence[str], result: Any, name: str, device: str) -> None:
        self.program, self.feed_names, self.fetch_names = tracer.program, list(feeds), list(fetches)
        self.name, self._result = name, result
        self.scope = Scope()
        self.captured = dict(tracer.captured)
        for key, tensor in self.captured.items():
            self.scope.var(key).tensor.array = tensor._array
        self.executor = Executor(CPUPlace() if device == CPU else CUDAPlace(int(device.partition(":")[2])))

    @property
    def feeds(self) -> list[Variable]:
        """The variables that are fed."""
        return [self.program.global_block().var(name) for name in self.feed_names]

    @property
    def fetches(self) -> list[Variable]:
        """The variables that are fetched."""
        return [self.program.global_block().var(name) for name in self.fetch_names]

    def __call__(self, *inputs: Any) -> Any:
        """What the program computes of tensors (or arrays), structured as what the function gave."""
        given = _tensors_in(inputs)
        if len(given) != len(self.feed_names):
            raise ProgramError(f"{self.name} was traced with {len(self.feed_names)} tensors, not {len(given)}")
        feed = {name: _to_feed(tensor) for name, tensor in zip(self.feed_names, given, strict=True)}
        found = self.executor.run(self.program, feed, self.fetch_names, scope=self.scope, return_numpy=False)
        return _refilled(self._result, iter([_from_fetched(value) for value in found]))

    def save_inference_model(
        self, dirname: str, feed: Sequence[int] | None = None, fetch: Sequence[int] | None = None
    ) -> list[str]:
        """Save the program as an inference model (see `fluid.io`), with the inputs and outputs of these numbers, or all."""
        from ..io import save_inference_model

        feeds = [self.feed_names[number] for number in (range(len(self.feed_names)) if feed is None else feed)]
        fetches = [self.fetches[number] for number in (range(len(self.fetch_names)) if fetch is None else fetch)]
        with scope_guard(self.scope):
            return save_inference_model(dirname, feeds, fetches, self.executor, self.program)

    def __repr__(self) -> str:
        return f"<traced {self.name}: {', '.join(self.feed_names)} -> {', '.join(self.fetch_names)}>"


def _to_feed(tensor: Any) -> Any:
    if not isinstance(tensor, Tensor):
        return tensor
    return (tensor._array, [list(level or ()) for level in tensor.lod]) if tensor.lod else tensor._array


def _from_fetched(value: Any) -> Tensor:
    made, lod = Tensor._of(value.array), value.lod()
    return made.with_lod(tuple(tuple(level) for level in lod)) if lod else made


def _tensors_in(value: Any) -> list[Any]:
    """Tensors and arrays in nested lists, tuples and dicts."""
    if isinstance(value, (Tensor, np.ndarray)):
        return [value]
    if isinstance(value, Mapping):
        return [item for key in sorted(value) for item in _tensors_in(value[key])]
    if isinstance(value, (list, tuple)):
        return [item for part in value for item in _tensors_in(part)]
    return []


def _refilled(value: Any, tensors: Iterator[Any]) -> Any:
    """Nested lists, tuples and dicts with other tensors in the places of theirs."""
    if isinstance(value, (Tensor, np.ndarray)):
        return next(tensors)
    if isinstance(value, Mapping):
        made = {key: _refilled(value[key], tensors) for key in sorted(value)}
        return {key: made[key] for key in value}
    if isinstance(value, (list, tuple)):
        parts = [_refilled(item, tensors) for item in value]
        return type(value)(*parts) if hasattr(value, "_fields") else type(value)(parts)
    return value


def _input_names(function: Any, examples: Sequence[Any], count: int) -> list[str]:
    """Names for so many inputs, after the function's parameters."""
    target = function.forward if isinstance(function, Layer) else function
    try:
        names = [name for name, p in inspect.signature(target).parameters.items() if p.kind is p.POSITIONAL_OR_KEYWORD]
    except (TypeError, ValueError):
        names = []
    found = []
    for position, example in enumerate(examples):
        base = names[position] if position < len(names) else f"input_{position}"
        inner = len(_tensors_in(example))
        found += [base] if inner == 1 else [f"{base}_{number}" for number in range(inner)]
    return found if len(set(found)) == count else [f"input_{number}" for number in range(count)]


def _traced(
    function: Callable[..., Any], examples: Sequence[Any], feed_names: Sequence[str] | None, fetch_names: Sequence[str] | None
) -> tuple[Any, TracedFunction]:
    """What a function gives for examples, and the function as a program."""
    if state.tracer is not None:
        raise ProgramError("trace: a function is being traced already; the ops of what it calls become part of it")
    given = [to_variable(item) for item in _tensors_in(list(examples))]
    names = list(feed_names) if feed_names is not None else _input_names(function, examples, len(given))
    if len(names) != len(given):
        raise ProgramError(f"trace: there are {len(given)} example tensors, but {len(names)} feed_names")
    tracer = Tracer()
    inputs = []
    for tensor, name in zip(given, names, strict=True):
        copy = make(tensor._array.copy(), tensor._kind)
        copy._stop = tensor._stop
        tracer.feed(copy, name)
        inputs.append(copy)
    called = getattr(function, "__name__", None) or (function.full_name() if isinstance(function, Layer) else "function")
    with tracing(tracer):
        result = function(*_refilled(list(examples), iter(inputs)))
        outputs = _tensors_in(result)
        if not outputs or any(not isinstance(item, Tensor) for item in outputs):
            raise FluidTypeError(f"trace: {called} should give tensors, in lists, tuples or dicts or alone, not {result!r}")
        fetches = []
        block = tracer.program.global_block()
        for number, item in enumerate(outputs):
            variable = tracer.variable(item)
            wanted = fetch_names[number] if fetch_names is not None and number < len(fetch_names) else None
            if variable.is_data or variable.persistable or variable.name in fetches or wanted is not None:
                out = block.create_var(name=wanted or tracer._names("out"))
                block.append_op("assign", {"X": variable}, {"Out": out})
                variable = out
            fetches.append(variable.name)
    device = outputs[0].device
    return result, TracedFunction(tracer, names, fetches, _emptied(result), called, device)


def _emptied(result: Any) -> Any:
    """The structure of a result, without its tensors."""
    return _refilled(result, iter([np.empty(0)] * len(_tensors_in(result))))


def trace(
    function: Callable[..., Any],
    *examples: Any,
    feed_names: Sequence[str] | None = None,
    fetch_names: Sequence[str] | None = None,
) -> TracedFunction:
    """A function of tensors, or a layer, as a program: it is called with the examples, and what it does is written down.

    The program is for tensors of the examples' shapes (``program.set_shape`` may free an extent), but for the number of rows
    where these form sequences. Python's own decisions are made once, while it is traced; those by the value of a tensor are
    refused there, and are to be `fluid.layers.cond` and `fluid.layers.while_loop`.

    Args:
        examples: tensors, or nested lists, tuples and dicts of them; other values are passed on, and become part of the program.
        feed_names, fetch_names: of the tensors that go in and come out; by default, as the parameters of the function, and as
            the ops that make them.

    Raises:
        ProgramError: the function takes a value out of a tensor, calls `backward`, or runs an optimizer.
    """
    return _traced(function, examples, feed_names, fetch_names)[1]


class TracedLayer:
    """A layer as a program, by the name that Fluid 1.6 has for it."""

    def __init__(self, traced: TracedFunction) -> None:
        self._traced = traced

    @staticmethod
    def trace(layer: Layer, inputs: Any) -> tuple[Any, TracedLayer]:
        """What the layer gives for these inputs, and the layer as a program."""
        if not isinstance(layer, Layer):
            raise FluidTypeError(
                f"TracedLayer.trace takes a Layer, not a {type(layer).__name__}; dygraph.trace takes any function"
            )
        result, traced = _traced(layer, inputs if isinstance(inputs, (list, tuple)) else [inputs], None, None)
        return result, TracedLayer(traced)

    @property
    def program(self) -> Program:
        """The layer's ops."""
        return self._traced.program

    def set_strategy(self, build_strategy: Any = None, exec_strategy: Any = None) -> None:
        """Accepted, as in Fluid 1.6; of no effect."""

    def __call__(self, inputs: Any) -> list[Any]:
        """What the program computes of these inputs, as a list."""
        return _tensors_in(self._traced(*(inputs if isinstance(inputs, (list, tuple)) else [inputs])))

    def save_inference_model(
        self, dirname: str, feed: Sequence[int] | None = None, fetch: Sequence[int] | None = None
    ) -> list[str]:
        """As `TracedFunction.save_inference_model`."""
        return self._traced.save_inference_model(dirname, feed, fetch)


class StaticFunction:
    """A function that is traced when it is called, once for tensors of each shape and element type."""

    def __init__(self, function: Callable[..., Any], owner: Any = None) -> None:
        self._function, self._owner = function, owner
        self._known: dict[Any, TracedFunction] = {}
        functools.update_wrapper(self, function)

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        if instance is None:
            return self
        key = "_static_" + self._function.__name__
        found = instance.__dict__.get(key)
        if found is None:
            found = instance.__dict__[key] = StaticFunction(functools.partial(self._function, instance), instance)
        return found

    def trace(self, *inputs: Any) -> TracedFunction:
        """The program for inputs like these."""
        key = self._key(inputs)
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = trace(self._function, *inputs)
        return found

    def _key(self, inputs: Any) -> Any:
        training = tuple(layer.training for layer in self._owner.sublayers(include_self=True)) if self._is_layer else ()
        return training, _signature(inputs)

    @property
    def _is_layer(self) -> bool:
        return isinstance(self._owner, Layer)

    def __call__(self, *inputs: Any) -> Any:
        """What the function gives: by its program; as it is, where that is being recorded for gradients, or traced."""
        if state.tracer is not None:
            return self._function(*inputs)
        if state.recording:
            wanted = [item for item in _tensors_in(inputs) if isinstance(item, Tensor) and not item.stop_gradient]
            if self._is_layer:
                wanted += [parameter for parameter in self._owner.parameters() if not parameter.stop_gradient]
            elif not wanted:
                wanted = [item for item in self.trace(*inputs).captured.values() if not item.stop_gradient]
            if wanted:
                return self._function(*inputs)
        return self.trace(*inputs)(*inputs)


def _signature(value: Any) -> Any:
    """What of the inputs a program depends on."""
    if isinstance(value, Tensor):
        return value._kind, value.stop_gradient
    if isinstance(value, np.ndarray):
        return value.shape, value.dtype
    if isinstance(value, Mapping):
        return tuple((key, _signature(value[key])) for key in sorted(value))
    if isinstance(value, (list, tuple)):
        return tuple(_signature(item) for item in value)
    try:
        hash(value)
    except TypeError:
        raise FluidTypeError(
            f"to_static: arguments should be tensors, or values that can be hashed, not a {type(value).__name__}"
        ) from None
    return type(value), value


def to_static(function: Any) -> Any:
    """Let a function of tensors, or a method of a layer, run as a program; a decorator.

    It is traced when it is first called with tensors of a shape and element type. Where gradients are recorded it runs as it is.
    ``to_static(layer)`` gives the layer with such a `forward`.
    """
    if isinstance(function, Layer):
        layer = function
        layer.__dict__["forward"] = StaticFunction(layer.forward, layer)
        return layer
    return StaticFunction(function)


declarative = to_static


# ---------------------------------------------------------------------------------------------------- the recorded graph
def program_of(tensor: Tensor) -> Program:
    """The graph that a tensor was computed by, as a program: what was recorded, from leaves (and constants, as data) to it."""
    program = Program()
    block = program.global_block()
    names = unique_name.UniqueNameGenerator()
    if tensor._edge is None:
        block.create_var(name=tensor.name, shape=tensor.shape, dtype=tensor.dtype, is_data=True)
        return program
    outputs: dict[tuple[int, int], Variable] = {}
    arrays: dict[int, Variable] = {}

    def declared(kind: Kind, name: str, **said: Any) -> Variable:
        while block.has_var(name):
            name = names(name)
        return block.create_var(name=name, shape=kind.shape, dtype=kind.dtype, lod_level=len(kind.lod), **said)

    def constant(kind: Kind, saved: Any) -> Variable:
        found = arrays.get(id(saved)) if saved is not None else None
        if found is None:
            found = declared(kind, names("constant"), is_data=True, stop_gradient=True)
            if saved is not None:
                arrays[id(saved)] = found
        return found

    def leaf(node: AccumulateGrad) -> Variable:
        found = outputs.get((id(node), 0))
        if found is None:
            variable = node.variable
            if isinstance(variable, Parameter):
                found = block.create_parameter(name=variable.name, shape=variable.shape, dtype=variable.dtype)
            else:
                found = declared(variable._kind, variable.name, is_data=True)
            outputs[id(node), 0] = found
        return found

    for node in _in_order(tensor._edge[0]):
        if isinstance(node, AccumulateGrad):
            leaf(node)
        elif isinstance(node, OpNode):
            recipe, op = node._recipe, node._recipe.op
            saved = dict(zip(recipe._save_in, [entry[0] for entry in node._saved or ()], strict=False))
            inputs: dict[str, Any] = {}
            for number, ((slot, nth), kind, edge) in enumerate(zip(op.positions(), recipe.kinds, node._edges, strict=True)):
                if edge is None:
                    variable = constant(kind, saved.get(number))
                else:
                    variable = outputs[id(edge[0]), edge[1]]
                if nth is None:
                    inputs[slot] = variable
                else:
                    inputs.setdefault(slot, []).append(variable)
            count = recipe._slots.count
            made = append_call(program, op.definition, op.attrs, inputs, names, count)
            taken: dict[str, int] = {}
            for number, slot in enumerate(recipe._slots):
                outputs[id(node), number] = block.var(made.outputs[slot][taken.setdefault(slot, 0)])
                taken[slot] += 1
            for number, entry in zip(recipe._save_out, (node._saved or ())[len(recipe._save_in) :], strict=False):
                arrays[id(entry[0])] = outputs[id(node), number]
        else:
            found = [outputs[id(edge[0]), edge[1]].name for edge in node._edges if edge is not None]
            results = [declared(kind, names(node.name)) for kind in node.kinds if kind is not None]
            block.append_op(node.name.removesuffix("_backward"), {"X": found}, {"Out": results})
            outputs.update(((id(node), number), variable) for number, variable in enumerate(results))
    return program


def _in_order(root: Node) -> list[Node]:
    """The nodes that a node was computed from, and itself, each after those it was computed from."""
    seen = {root}
    stack = [root]
    while stack:
        for edge in stack.pop()._edges:
            if edge is not None and edge[0] not in seen:
                seen.add(edge[0])
                stack.append(edge[0])
    leaves = [node for node in seen if node.is_leaf]
    others = [node for node in seen if not node.is_leaf]
    return sorted(leaves, key=_number) + sorted(others, key=_number)


def _number(node: Node) -> int:
    return node.sequence_nr
