"""A recurrence over sequences, as one `recurrent` op. Recurrent ops are decomposed into it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ..opdef.inference import OpNamespace
from ..values.types import VarType
from .inference import BuildNamespace
from .versions import outer_names

Step = Callable[[Any, list[Any], list[Any]], tuple[Sequence[Any], Sequence[Any]]]


def scan(step: Step, states: Sequence[Any], sequences: Sequence[Any], reverse: bool = False) -> list[Any]:
    """Append a `recurrent` op to the current block; for values that are computed at once, run its steps.

    Args:
        step: ``step(f, states, slices) -> (states, outputs)`` builds one step; `f` is the namespace of ops. It may read
            variables from outside. For variables, it is called once.
        states: the states before the first step.
        sequences: distinct variables ``[time, ...]``, at least one.
        reverse: go from the last slice to the first.

    Returns:
        The outputs of all steps, ``[time, ...]``.
    """
    ops = sequences[0]._ops()
    if not isinstance(ops, BuildNamespace):
        return _run(ops, step, states, sequences, reverse)
    program = sequences[0].block.program
    parent, body = program.current_block(), program.create_block()
    with program.block_guard(body):
        f = BuildNamespace(body)
        # In Paddle's files a slice has the name of its sequence, and a step's output the name of the stacked outputs.
        slices = [body.create_var(name=var.name, dtype=var.dtype, shape=var.shape[1:]) for var in sequences]
        before = [body.create_var(name=program.fresh_name("state"), dtype=var.dtype, shape=var.shape) for var in states]
        after, outputs = step(f, before, slices)
        computed = {name for op in body.ops for name in op.output_arg_names}
        after = [var if var.name in computed else f.assign(var) for var in after]
        outputs = [f.assign(var) for var in outputs]
    steps = sequences[0].shape[0]
    stacked = [parent.create_var(name=var.name, dtype=var.dtype, shape=(steps, *var.shape)) for var in outputs]
    parent.append_op(
        "recurrent",
        {"inputs": list(sequences), "initial_states": list(states), "parameters": outer_names(body)[0]},
        {"outputs": stacked, "step_scopes": parent.create_var(type=VarType.STEP_SCOPES)},
        {
            "has_states": bool(states),
            "ex_states": [var.name for var in before],
            "states": [var.name for var in after],
            "sub_block": body,
            "reverse": reverse,
        },
    )
    return stacked


def _run(f: OpNamespace, step: Step, states: Sequence[Any], sequences: Sequence[Any], reverse: bool) -> list[Any]:
    """Runs the steps one after the other."""
    steps = sequences[0].shape[0]
    slices = list(zip(*(f.unstack(sequence, axis=0, num=steps) for sequence in sequences), strict=True))
    rows = []
    for at_time in slices[::-1] if reverse else slices:
        states, outputs = step(f, list(states), list(at_time))
        rows.append(outputs)
    return [f.stack(list(column), axis=0) for column in zip(*(rows[::-1] if reverse else rows), strict=True)]
