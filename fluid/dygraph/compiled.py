"""`compile`: a training step as one program, from the forward part to the update.

The first call runs the step eagerly and traces it by a `StepTracer`. An entry keeps the program, and the values that it depends
on: those from before the trace, so that a step that changes a value it reads is traced again, and those that were found in it.
"""

from __future__ import annotations

import operator
import random
import types
import warnings
import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from ..eager.mode import state
from ..eager.nested import refilled, tensors_in
from ..eager.program import Parameter, to_variable
from ..eager.tensor import Tensor, make, of_class_of
from ..errors import FluidTypeError, InferenceError, ProgramError
from ..executor.binding.array_types import CPU, place_of_programs
from ..values.types import VarType
from .layers import Layer
from .static_function import DeepSurroundings, Entries, Programs, TracedOnCall, is_plain, shared_memory, signature
from .step_tracing import LeafGradient, StepTracer
from .tracing import (
    TENSOR,
    TracedFunction,
    copied_inputs,
    fetched_variables,
    input_names,
    modified_inputs,
    name_of,
    without_tensors,
)

__all__ = ["CompiledStep", "compile"]

_MOST = 16
"""How many programs are kept for one signature of arguments."""
_MOST_SIGNATURES = 64
_MANY = 8
"""After how many traces for one signature a warning says why there are so many."""
_RESULTS = (int, float, bool, str, bytes, complex, type(None))
"""Types of results besides tensors, and lists, tuples and dicts of them."""


# ------------------------------------------------------------------------------------------------------ the state it depends on
class _Guards:
    """What a program of a step depends on besides its arguments and the values that its code names.

    These are: whether captured tensors require gradients, the settings of parameters and optimizers, which leaves have a `grad`,
    tensors whose values Python has read, and arrays that became constants.
    """

    __slots__ = ("_arrays", "_gradients", "_reads", "_settings", "_stops", "_tensors")

    def __init__(self, tracer: StepTracer, captured: Sequence[Tensor], arguments: Sequence[Tensor]) -> None:
        self._tensors = list(captured)
        self._stops = [tensor._stop for tensor in captured]
        self._reads = [(tensor, version) for tensor, version in tracer.reads]
        self._arrays = tracer.arrays
        ids = {id(tensor) for tensor in arguments}
        leaves = [entry for entry in tracer.leaves.values() if tracer.is_outside(entry.leaf)]
        entries = [entry for entry in leaves if entry.is_read and id(entry.leaf) not in ids]
        self._gradients = [(entry.leaf, entry.before is None) for entry in entries]
        self._settings: list[Entries] = []
        if tracer.optimizers:
            for optimizer in tracer.optimizers.values():
                self._add_settings(optimizer)
            for tensor in captured:
                if tensor.trainable:
                    names = ("optimize_attr", "regularizer", "gradient_clip_attr")
                    self._settings.append(Entries(tensor, {name: getattr(tensor, name) for name in names}))
                    self._settings.append(Entries(tensor.optimize_attr, dict(tensor.optimize_attr)))
                    self._add_settings(tensor.regularizer)
                    self._add_settings(tensor.gradient_clip_attr)

    def _add_settings(self, thing: Any) -> None:
        """Compare the plain attributes of an optimizer, clip or regularizer, and which clip and regularizer an optimizer has."""
        attributes = dict(getattr(thing, "__dict__", None) or {})
        parts = {name: attributes[name] for name in ("regularization", "_grad_clip") if attributes.get(name) is not None}
        plain = {name: value for name, value in attributes.items() if is_plain(value) and name != "_learning_rate"}
        if plain or parts:
            self._settings.append(Entries(weakref.ref(thing), {**plain, **parts}))
        for part in parts.values():
            self._add_settings(part)

    def hold(self) -> bool:
        """Whether all is as it was when the step was traced."""
        return (
            list(map(_stop_of, self._tensors)) == self._stops
            and all((leaf._grad is None) is was_none for leaf, was_none in self._gradients)
            and all(map(Entries.same, self._settings))
            and all(tensor._version[0] == version for tensor, version in self._reads)
            and all(np.array_equal(array, copy, equal_nan=array.dtype.kind in "fc") for array, copy in self._arrays)
        )


_stop_of = operator.attrgetter("_stop")


# ---------------------------------------------------------------------------------------------------------------- programs
class _StepProgram(TracedFunction):
    """A traced step: reads and sets the `grad` of leaves, asks schedules for rates, and ends runs of the random stream."""

    def __init__(
        self,
        tracer: StepTracer,
        examples: Any,
        inputs: Sequence[Tensor],
        feeds: Sequence[str],
        fetches: Sequence[str],
        result: Any,
        name: str,
        device: str,
    ) -> None:
        super().__init__(tracer, examples, feeds, fetches, result, name, device)
        self._schedules = tracer.schedules
        places = {id(tensor): place for place, tensor in enumerate(inputs)}
        leaves = [entry for entry in tracer.leaves.values() if tracer.is_outside(entry.leaf)]
        self._read_gradients = [(places.get(id(entry.leaf)), entry.leaf, entry.feed) for entry in leaves if entry.feed]
        self._set_gradients: list[tuple[int | None, Any, str | None, bool]] = []
        """(Index of an argument or None, leaf, variable of its new `grad` or None, whether that is written into the old one)."""
        for entry in leaves:
            new = self._new_gradient(tracer, entry)
            if new is not None:
                self._set_gradients.append((places.get(id(entry.leaf)), entry.leaf, *new))
        self._gradient_names = [name for _, _, name, _ in self._set_gradients if name is not None]
        self._modes = [
            (weakref.ref(layer), layer.training)
            for layer, training, _ in tracer.layers.values()
            if layer.training is not training
        ]

    @staticmethod
    def _new_gradient(tracer: StepTracer, entry: LeafGradient) -> tuple[str | None, bool] | None:
        """The variable with the new `grad` of a leaf, and whether it goes into the old one; None where nothing changes."""
        grad = entry.leaf._grad
        if grad is None:
            return None, False
        is_same = grad is entry.before
        if is_same and tracer.variable(grad).name == entry.feed:
            return None
        (name,) = fetched_variables(tracer, [grad])
        return name, is_same

    def _feed(self, arguments: Sequence[Any]) -> dict[str, Any]:
        feed = super()._feed(arguments)
        for place, leaf, name in self._read_gradients:
            owner: Any = leaf if place is None else arguments[place]
            feed[name] = owner._grad._array
        for name, schedule in self._schedules.items():
            feed[name] = np.array([float(schedule())], "float32")
        return feed

    def _fetched(self) -> list[str]:
        return [*super()._fetched(), *self._gradient_names]

    def _run(self, arguments: Sequence[Any]) -> list[Tensor]:
        results = super()._run(arguments)
        count = len(results) - len(self._gradient_names)
        new = iter(results[count:])
        for place, leaf, name, is_same in self._set_gradients:
            owner = leaf if place is None else arguments[place]
            if name is None:
                owner._grad = None
            elif is_same:
                owner._grad.set_value(next(new))
            else:
                owner._grad = next(new)
        for reference, training in self._modes:
            layer = reference()
            if layer is not None:
                layer.__dict__["training"] = training
        return results[:count]


class _Entry:
    """A program of a step, for the sizes that it was traced for, and for others where these are no part of it.

    A size is no part of the program if traces for two values of it gave the same program, and the user's code did not read it.
    """

    def __init__(
        self,
        step: _StepProgram,
        sizes: Sequence[int],
        is_open: bool,
        before: DeepSurroundings,
        after: DeepSurroundings,
        guards: _Guards,
    ) -> None:
        self.step, self._before, self._after, self._guards = step, before, after, guards
        self._sizes: list[int | None] = list(sizes)
        """The first sizes of the tensors; None for one that may vary."""
        self._is_open = is_open
        self._text = step.program.serialize_to_string() if is_open else b""

    def holds(self) -> bool:
        """Whether the values that it depends on are the same."""
        return (
            self._before.same_values()
            and self._after.same_values()
            and self._before.same_parts()
            and self._after.same_parts()
            and self._guards.hold()
        )

    def serves(self, sizes: Sequence[int]) -> bool:
        """Whether the program is for these sizes too."""
        return all(mine is None or mine == size for mine, size in zip(self._sizes, sizes, strict=True))

    def widen(self, entry: _Entry) -> bool:
        """Serve the sizes of another entry too, if the program is the same; whether it is."""
        if not (self._is_open and entry._is_open and self._text == entry._text):
            return False
        if self.step.captured.keys() != entry.step.captured.keys() or any(
            tensor is not entry.step.captured[name] for name, tensor in self.step.captured.items()
        ):
            return False
        self._sizes = [mine if mine == size else None for mine, size in zip(self._sizes, entry._sizes, strict=True)]
        return True

    def difference(self) -> str:
        """The name of a value that has changed since, or ""."""
        return self._before.difference() or self._after.difference()


# ---------------------------------------------------------------------------------------------------------------- the function
class CompiledStep(TracedOnCall):
    """A function of tensors that runs as one program; `compile` makes it."""

    def call(self, function: Callable[..., Any], owner: Any, programs: Programs, inputs: Sequence[Any], named: Any) -> Any:
        if state.interceptor is not None:  # it is being traced, cast or recorded by another
            return function(*inputs, **named)
        sizes: list[int] = []
        key = (
            state.recording,
            repr(place_of_programs(CPU)),
            signature(inputs, lambda tensor: _open(tensor, sizes)),
            signature(named, lambda tensor: _open(tensor, sizes)) if named else (),
            shared_memory(inputs, named),
        )
        entries: list[Any] = programs.get(key, [])
        holding = []
        for entry in entries:
            if entry.holds():
                if entry.serves(sizes):
                    return entry.step(*inputs, **named)
                holding.append(entry)
        result, entry = _traced(function, owner, inputs, named, sizes)
        if not any(earlier.widen(entry) for earlier in holding):
            _warn_of_many(function, entries)
            programs[key] = [entry, *entries[: _MOST - 1]]
        while len(programs) > _MOST_SIGNATURES:
            del programs[next(iter(programs))]
        return result


def _open(tensor: Any, sizes: list[int]) -> Any:
    """The part of a tensor that any program for it depends on: all but its first size, which is added to `sizes`."""
    is_tensor = isinstance(tensor, Tensor)
    if is_tensor and (tensor._kind.lod or tensor.type is not VarType.LOD_TENSOR):
        content = "rows that form sequences (LoD)" if tensor._kind.lod else "a sparse gradient"
        raise FluidTypeError(
            f"dygraph.compile: {tensor.name} has {content}, and a compiled step takes dense tensors; pad the sequences, or run "
            "the step without compile"
        )
    if isinstance(tensor, Parameter):
        raise FluidTypeError(
            f"dygraph.compile: the argument {tensor.name} is a parameter; let the step take parameters from layers, or from "
            "outside"
        )
    shape = tensor._kind.shape if is_tensor else tensor.shape
    requires = (tensor._stop, tensor._stop or tensor._grad is None) if is_tensor else (True, True)
    dtype = (tensor._kind.dtype, tensor._kind.device) if is_tensor else (str(tensor.dtype), CPU)
    if not shape:
        return (), dtype, requires
    size = shape[0]
    place = sizes.index(size) if size in sizes else len(sizes)
    sizes.append(size)
    return (min(size, 2), place, *shape[1:]), dtype, requires


def _warn_of_many(function: Any, entries: Sequence[_Entry]) -> None:
    if len(entries) != _MANY:
        return
    changed = next((name for entry in entries if (name := entry.difference())), "")
    reason = (
        f"{changed} differs in each call: pass it as a tensor, or keep it in one"
        if changed
        else ("sizes that are part of the program, or values that it depends on, differ in each call")
    )
    warnings.warn(
        f"dygraph.compile: {name_of(function)} is traced for the {_MANY + 1}th time; {reason}", UserWarning, stacklevel=4
    )


def _traced(
    function: Callable[..., Any], owner: Any, inputs: Sequence[Any], named: Mapping[str, Any], sizes: Sequence[int]
) -> tuple[Any, _Entry]:
    """Call the function and trace it: its result, and the program; with fixed sizes where some op needs to know them."""
    try:
        return _trace(function, owner, inputs, named, sizes, is_fixed=False)
    except InferenceError:
        return _trace(function, owner, inputs, named, sizes, is_fixed=True)


def _trace(
    function: Callable[..., Any], owner: Any, args: Sequence[Any], kwargs: Mapping[str, Any], sizes: Sequence[int], is_fixed: bool
) -> tuple[Any, _Entry]:
    examples = [list(args), dict(kwargs)]
    originals = tensors_in(examples)
    arguments = [to_variable(item) for item in originals]
    names = input_names(function, args, kwargs, len(arguments))
    named_values = _values_named_by(function, owner)
    tracer = StepTracer(is_fixed, _streams_among(named_values))
    called = name_of(function)
    with tracer.undone_on_error():
        for layer in _layers_among(named_values):
            tracer.note_layer(layer)
        before = DeepSurroundings(tracer, function, owner)
        copies, same = copied_inputs(tracer, arguments, names, shared=True)
        for argument, copied in zip(arguments, copies, strict=True):
            copied._grad = argument._grad
        passed_args, passed_kwargs = refilled(examples, iter(copies))
        result = function(*passed_args, **passed_kwargs)
        tracer.check_streams()
        tracer.check_parameters()
        tracer.check()
        _check_result(result, called)
        outputs = tensors_in(result)
        fetches = fetched_variables(tracer, outputs)
        tracer.settle_buffers()
        updates = modified_inputs(tracer, copies, names, same)
        _check_arguments(tracer, arguments)
        shape = refilled(examples, iter([TENSOR] * len(arguments)))
        devices = [tensor.device for tensor in (*outputs, *arguments, *tracer.captured.values())]
        step = _StepProgram(tracer, shape, copies, names, fetches, without_tensors(result), called, (*devices, CPU)[0])
    step._updates, step._same = updates, same
    step._classes = [item._computed_as for item in outputs]
    for argument, copied in zip(arguments, copies, strict=True):
        argument._grad = copied._grad
    for number, _ in updates:
        if isinstance(originals[number], Tensor):
            originals[number].set_value(copies[number])
    guards = _Guards(tracer, list(step.captured.values()), copies)
    entry = _Entry(step, sizes, not (is_fixed or tracer.reads_size), before, DeepSurroundings(tracer, function, owner), guards)
    return refilled(result, iter([of_class_of(item, make(item._array.copy(), item._kind)) for item in outputs])), entry


def _check_arguments(tracer: StepTracer, arguments: Sequence[Tensor]) -> None:
    """Raise an error if the step also takes an argument from outside, so that two tensors would stand for it."""
    captured = {id(tensor._array) for tensor in tracer.captured.values()}
    for argument in arguments:
        if id(argument._array) in captured:
            tracer.refuse_call(f"{argument.name}, an argument that the step also takes from outside,", "let it do one of the two")


def _check_result(result: Any, called: str) -> None:
    """Raise an error unless a result consists of tensors, plain values, and lists, tuples and dicts of them."""
    if isinstance(result, Mapping):
        for item in result.values():
            _check_result(item, called)
    elif isinstance(result, (list, tuple)):
        for item in result:
            _check_result(item, called)
    elif not isinstance(result, (Tensor, *_RESULTS)):
        raise FluidTypeError(
            f"dygraph.compile: {called} returns a {type(result).__name__}; a step returns tensors, numbers, strings or None, "
            "alone or in lists, tuples or dicts"
        )


# ------------------------------------------------------------------------------------------------- values that code names
def _values_named_by(function: Any, owner: Any) -> list[Any]:
    """Values that a function's code names: globals, closure variables and their attributes; and its owner's attributes."""
    plain = getattr(function, "__func__", function)
    values: list[Any] = [owner]
    code = getattr(plain, "__code__", None)
    if isinstance(code, types.CodeType):
        values += [plain.__globals__[name] for name in code.co_names if name in plain.__globals__]
        for cell in plain.__closure__ or ():
            try:
                values.append(cell.cell_contents)
            except ValueError:  # nothing has been assigned yet
                continue
        for value in list(values):
            if not isinstance(value, (Layer, type, types.ModuleType)):
                attributes = getattr(value, "__dict__", None) or {}
                values += [attributes[name] for name in code.co_names if name in attributes]
    values += list((getattr(owner, "__dict__", None) or {}).values())
    return values


def _layers_among(values: Sequence[Any]) -> list[Layer]:
    """The layers among values and in lists of them, with their parts."""
    listed = [item for value in values for item in (value if isinstance(value, (list, tuple)) else [value])]
    return [layer for value in listed if isinstance(value, Layer) for layer in value.sublayers(include_self=True)]


def _streams_among(values: Sequence[Any]) -> list[Any]:
    """The random generators of Python and numpy that a step could draw from."""
    kinds = (np.random.Generator, np.random.RandomState, random.Random)
    return [np.random, random, *[value for value in values if isinstance(value, kinds)]]


def compile(function: Any) -> Any:
    """Let a training step, or any function of tensors, run as one program: forward, backward and update in one plan.

    The step may call `backward` (several times too), optimizers, and `clear_grad`, or none of these. Its first call runs it
    eagerly and writes down its ops; later calls run the program. Parameters, optimizer state, buffers and gradients stay in the
    memory of the eager tensors, so eager code sees and may change them between calls. Random ops draw as in eager mode. Results
    carry no gradients.

    The first size of each tensor may vary. The second size is traced too; where both give the same program, and the step does not
    read the size (``x.shape[0]``), it serves all sizes above 1. Other sizes have programs of their own.

    A program is used again only while all it was traced with is the same: arguments other than tensors; plain values, lists and
    dicts of globals, closure variables and attributes that the code names; attributes and modes of layers; settings of
    optimizers and parameters, and which parameters have a `grad`. Otherwise the step is traced again. Learning rates, also of
    schedules, are read in each call. Not noticed are deeper attributes of objects, values that functions of other modules read,
    and side effects such as files and logs, which happen only when the step is traced.

    `LookaheadOptimizer`, whose branch updates parameters, and `Dpsgd`, whose update draws random numbers, are refused.

    Args:
        function: the step; a method, or a function to decorate. It takes tensors, arrays and values that can be hashed, alone or
            in lists, tuples and dicts, and returns tensors and plain values in the same forms, or None.

    Raises:
        ProgramError: by a call, where the step cannot be traced: it reads or prints the value of a tensor, draws from random
            generators of Python or numpy, or differentiates through hooks or a `PyLayer`. Whatever error a first call raises,
            tensors, gradients and schedules are as before.
        FluidTypeError: by a call, where an argument has sequences (LoD), or a result is no tensor.

    >>> net = dygraph.Linear(2, 1)
    >>> optimizer = fluid.optimizer.SGD(0.1, parameter_list=net.parameters())
    >>> @dygraph.compile
    ... def step(x, y):
    ...     loss = layers.mean(layers.square(net(x) - y))
    ...     loss.backward()
    ...     optimizer.minimize(loss)
    ...     net.clear_gradients()
    ...     return loss
    ...
    >>> x, y = dygraph.Tensor(np.ones([8, 2], "float32")), dygraph.Tensor(np.ones([8, 1], "float32"))
    >>> losses = [step(x, y).item() for _ in range(20)]
    >>> losses[-1] < losses[0]
    True
    """
    if isinstance(function, Layer):
        raise ProgramError(
            f"dygraph.compile takes a function, not the layer {function.full_name()}; to_static(layer) runs a layer as a "
            "program, and compile a function that calls it, such as lambda x: layer(x)"
        )
    if isinstance(function, TracedOnCall):
        raise ProgramError("dygraph.compile takes a plain function; this one is compiled, or to_static, already")
    return CompiledStep(function, getattr(function, "__self__", None))
