"""Eager versions of layers for control flow, arrays of tensors, schedules and fed data."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NoReturn

import numpy as np

from ..building.layer_helper import apply, in_region
from ..building.nested import flatten, rebuild, structure
from ..errors import FluidTypeError, ProgramError
from ..executor.runtime.random import RANDOM
from ..ir.checked import check_variable
from ..ir.program import Variable, program_guard
from ..layers import control_flow, io, learning_rate_scheduler
from ..layers.rnn import decode, recur
from ..layers.tensor import assign, fill_constant
from .dispatch import namespace
from .mode import state
from .nested import refilled, tensors_in
from .program import EAGER, version_of
from .tensor import Tensor


# -------------------------------------------------------------------------------------------------- branches and loops
@version_of(control_flow.build_cond)
def _cond(pred: Tensor, true_fn: Any, false_fn: Any) -> Any:
    with in_region("a branch of cond"):
        if state.tracer is not None:
            return state.tracer.cond(pred, true_fn, false_fn)
        chosen = true_fn if bool(pred) else false_fn
        return None if chosen is None else chosen()


@version_of(control_flow.build_while_loop)
def _while_loop(cond: Any, body: Any, loop_vars: Sequence[Any], first: Sequence[Tensor], is_test: bool, name: str | None) -> Any:
    with in_region("a while_loop"):
        if state.tracer is not None:
            return state.tracer.while_loop(cond, body, loop_vars, is_test)
        return loop(cond, body, loop_vars)


def loop(cond: Any, body: Any, loop_vars: Sequence[Any]) -> list[Any]:
    """`fluid.layers.while_loop` on tensors."""
    start = list(loop_vars)
    # Copies, so that body may modify them in place without changing the caller's tensors, as in a program.
    now: list[Any] = refilled(start, iter([item.clone() if isinstance(item, Tensor) else item for item in tensors_in(start)]))
    goes_on, begin = bool(cond(*now)), RANDOM.loop()
    while goes_on:
        begin()
        value = body(*now)
        if not isinstance(value, (list, tuple)) or (len(now) == 1 and structure([value]) == structure(now)):
            value = [value]
        if structure(list(value)) != structure(now):
            raise ProgramError(
                f"while_loop: body takes {structure(now)} but returns {structure(value)}; both must have the same structure"
            )
        now = list(value)
        goes_on = bool(cond(*now))
    return now


@version_of(recur)
def _recur(step: Callable[..., Any], sequences: Any, states: Any, mask: Any, result: Callable[[Any], Any]) -> tuple[Any, Any]:
    """Run the steps of a recurrent network one after another."""
    inputs = flatten(sequences, "rnn: inputs")
    count = inputs[0].shape[0]
    with in_region("the steps of rnn"):
        if count < 1 or any(x.shape[0] != count for x in inputs):
            steps = " and ".join(str(x.shape[0]) for x in inputs)
            raise ProgramError(f"rnn: inputs should have the same number of time steps, at least one; they have {steps}")
        apart = [namespace.unstack(x, axis=0, num=count) for x in inputs]
        insides = [None] * count if mask is None else namespace.unstack(mask, axis=0, num=count)
        outputs: list[Any] = []
        begin = RANDOM.loop()
        for number in range(count):
            begin()
            slices = rebuild(sequences, iter([parts[number] for parts in apart]))
            output, states = step(slices, states, insides[number])
            outputs.append(output)
        stacked = _stacked(outputs)
    return result(stacked), states


@version_of(decode)
def _decode(goes_on: Callable[..., Any], body: Callable[..., Any], loop_vars: Sequence[Any]) -> tuple[Any, Sequence[Any]]:
    steps: list[Any] = []
    with in_region("the steps of dynamic_decode"):
        begin = RANDOM.loop()
        while bool(goes_on(*loop_vars)):
            begin()
            loop_vars = body(lambda outputs, time: steps.append(outputs), *loop_vars)
    if not steps:
        raise ProgramError("dynamic_decode: no step was made, so there is no result")
    return _stacked(steps), loop_vars


def _stacked(steps: Sequence[Any]) -> Any:
    """Stack the outputs of steps, all nested alike, to tensors ``[time, ...]`` nested in the same way."""
    columns = zip(*(flatten(step, "the values") for step in steps), strict=True)
    return rebuild(steps[0], iter([namespace.stack(list(column), axis=0) for column in columns]))


# -------------------------------------------------------------------------------------------- arrays, which are lists here
@version_of(control_flow.create_array)
def _create_array(dtype: Any) -> list[Any]:
    return []


def _check_list(array: Any, where: str) -> None:
    if not isinstance(array, list):
        check_variable(array, where)
        raise FluidTypeError(
            f"{where} should be a list: on tensors, arrays are Python's lists; {array.name} is {array.describe()}"
        )


def _place(i: Any, where: str) -> int:
    """An index into a list."""
    if isinstance(i, Variable) and not i.block.program.eager:
        raise FluidTypeError(f"{where} should be a tensor, or an int; {i.name} is a Variable of a program")
    place = int(i)
    if place < 0:
        raise ProgramError(f"{where} should not be below 0, but is {place}")
    return place


@version_of(control_flow.array_write)
def _array_write(x: Tensor, i: Any, array: Any = None) -> list[Any]:
    check_variable(x, "array_write: x")
    array, place = [] if array is None else array, _place(i, "array_write: i")
    _check_list(array, "array_write: array")
    array += [None] * (place + 1 - len(array))
    array[place] = assign(x)
    return array  # type: ignore[no-any-return]


@version_of(control_flow.array_read)
def _array_read(array: list[Any], i: Any) -> Tensor:
    _check_list(array, "array_read: array")
    place = _place(i, "array_read: i")
    if place >= len(array) or array[place] is None:
        raise ProgramError(f"array_read: nothing was written to position {place} of the array, of length {len(array)}")
    return assign(array[place])  # type: ignore[return-value]


@version_of(control_flow.array_length)
def _array_length(array: list[Any]) -> Tensor:
    _check_list(array, "array_length: array")
    with program_guard(EAGER, EAGER):
        return fill_constant([1], "int64", len(array))  # type: ignore[return-value]


@version_of(control_flow.tensor_array_to_tensor)
def _joined(input: list[Any], axis: int = 1, name: str | None = None, use_stack: bool = False) -> tuple[Tensor, Tensor]:
    _check_list(input, "tensor_array_to_tensor: input")
    if not input or any(item is None for item in input):
        raise ProgramError(f"tensor_array_to_tensor: input should hold tensors, at least one, not {input}")
    joined: Any = apply("stack" if use_stack else "concat", {"X": input}, {"axis": axis}, layer="tensor_array_to_tensor")
    sizes: Any = np.array([(*item.shape, 1)[axis % joined.ndim] for item in input], "int32")
    with program_guard(EAGER, EAGER):
        return joined, assign(sizes)  # type: ignore[return-value]


# ------------------------------------------------------------------------------------------------ layers of programs only
@version_of(learning_rate_scheduler.autoincreased_step_counter)
def _step_counter(counter_name: Any = None, begin: int = 1, step: int = 1) -> NoReturn:
    raise ProgramError(
        "autoincreased_step_counter counts the runs of a program; in eager mode count steps in Python, or give the optimizer "
        "a schedule of fluid.dygraph, which counts its own"
    )


@version_of(io.declare)
def _declare(name: str, *args: Any, **kwargs: Any) -> NoReturn:
    raise ProgramError(
        f"data: {name} would be a variable that a program is fed; in eager mode there are tensors of arrays instead: "
        "fluid.dygraph.to_variable(array)"
    )


@version_of(io.create_py_reader_by_data)
def _py_reader(*args: Any, **kwargs: Any) -> NoReturn:
    raise ProgramError(
        "create_py_reader_by_data feeds variables of programs; in eager mode iterate over a fluid.io.DataLoader or a reader, "
        "and make tensors of what it gives: fluid.dygraph.to_variable(array)"
    )
