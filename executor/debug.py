"""Printing, and calling Python functions: ops that are run for more than what they compute."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from fluid.errors import ExecutionError
from fluid.framework import Operator, Program
from fluid.ops.debug import function_of

from .interpreter import HANDLERS, Environment, Machine
from .place import to_numpy
from .sequences import array_of, lod_of

__all__ = ["has_effect"]

_EFFECTS = ("print", "py_func")


def has_effect(op: Operator) -> bool:
    """Whether an op is run even if nobody wants what it computes."""
    return op.type in _EFFECTS or any(has_effect(inner) for block in op.sub_blocks for inner in block.ops)


# ------------------------------------------------------------------------------------------------------------ printing
_printed: WeakKeyDictionary[Program, dict[tuple[int, str], int]] = WeakKeyDictionary()
"""How often the op that writes a name of a block has printed."""


def _is_due(op: Operator) -> bool:
    phase = str(op.attr("print_phase")).upper()
    if phase not in ("BOTH", "FORWARD" if op.attr("is_forward") else "BACKWARD"):
        return False
    counts = _printed.setdefault(op.block.program, {})
    key = op.block.idx, op.output("Out")[0]
    counts[key] = counts.get(key, 0) + 1
    most: int = op.attr("first_n")
    return most < 0 or counts[key] <= most


def _described(op: Operator, value: Any) -> str:
    array = to_numpy(array_of(value))
    lines = []
    if op.attr("print_tensor_name"):
        lines.append(f"Variable: {op.input('In')[0]}")
    if op.attr("message"):
        lines.append(f"  - message: {op.attr('message')}")
    if op.attr("print_tensor_lod"):
        lines.append(f"  - lod: {[list(level or ()) for level in lod_of(value)]}")
    if op.attr("print_tensor_shape"):
        lines.append(f"  - shape: {list(array.shape)}")
    if op.attr("print_tensor_type"):
        lines.append(f"  - dtype: {array.dtype}")
    flat, most = array.reshape(-1), op.attr("summarize")
    shown = " ".join(str(item) for item in (flat if most < 0 else flat[:most]).tolist())
    lines.append(f"  - data: [{shown}{' ...' if 0 <= most < flat.size else ''}]")
    return "\n".join(lines)


def run_print(machine: Machine, op: Operator, env: Environment) -> None:
    name = op.input("In")[0]
    value = env.get(name)
    if value is None:
        raise ExecutionError(f"{name} has no value to print")
    if isinstance(value, list):
        raise ExecutionError(f"{name} is an array of tensors; print one that array_read gives")
    if _is_due(op):
        print(_described(op, value), file=sys.stdout, flush=True)
    env.set(op.output("Out")[0], value.copy())


# --------------------------------------------------------------------------------------------------- Python functions
def _called(number: int, names: Sequence[str], env: Environment) -> list[Any]:
    """What a function gives for the values of `names`, as a list."""
    found = function_of(number)(*[to_numpy(array_of(env.need(name))).copy() for name in names])
    return list(found) if isinstance(found, (list, tuple)) else [] if found is None else [found]


def run_py_func(machine: Machine, op: Operator, env: Environment) -> None:
    targets = op.output("Out")
    found = _called(op.attr("forward_callable_id"), op.input("X"), env)
    if len(found) != len(targets):
        raise ExecutionError(f"the Python function gave {len(found)} values, and there are {len(targets)} variables for them")
    for name, value in zip(targets, found, strict=True):
        var = op.block.var(name)
        array = np.asarray(value, var.dtype.numpy)
        if array.shape == () and var.shape == (1,):  # a number
            array = array.reshape(1)
        if len(var.shape) != array.ndim or any(a not in (-1, b) for a, b in zip(var.shape, array.shape, strict=True)):
            raise ExecutionError(f"the Python function gave a value of shape {list(array.shape)} for {name} ({var.describe()})")
        env.set(name, machine.xp.asarray(array))


def run_py_func_backward(machine: Machine, op: Operator, env: Environment) -> None:
    likes, targets = op.input("Like"), op.output("Out")
    found = _called(op.attr("callable_id"), op.input("X"), env)
    if len(found) != len(likes):
        raise ExecutionError(
            f"the backward function gave {len(found)} gradients; it should give one, or None, for each of {likes}"
        )
    for source, name, value in zip(likes, targets, found, strict=True):
        like = array_of(env.get(source))
        gradient = np.zeros(like.shape, like.dtype) if value is None else np.asarray(value, like.dtype)
        if gradient.shape != like.shape:
            raise ExecutionError(
                f"the backward function gave a gradient of shape {list(gradient.shape)} for {source}, of shape {list(like.shape)}"
            )
        env.set(name, machine.xp.asarray(gradient))


HANDLERS.update({"print": run_print, "py_func": run_py_func, "py_func_backward": run_py_func_backward})
