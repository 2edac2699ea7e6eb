"""Printing, and calling Python functions: ops that are run for more than what they compute."""

from __future__ import annotations

import sys
from collections.abc import Mapping, MutableMapping, Sequence
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from fluid.errors import ExecutionError
from fluid.ir.program import Operator, Program, Variable
from fluid.ops.debug import function_of
from fluid.values.lod_array import array_of, lod_of
from fluid.values.place import to_numpy

from .handlers import runs
from .interpreter import Environment, Machine

__all__ = ["called", "check_count", "fitted", "gradients_of", "has_effect", "show"]

_EFFECTS = ("print", "py_func")


def has_effect(op: Operator) -> bool:
    """Whether an op is run even if nobody wants what it computes."""
    return op.type in _EFFECTS or any(has_effect(inner) for block in op.sub_blocks for inner in block.ops)


# ------------------------------------------------------------------------------------------------------------ printing
_printed: WeakKeyDictionary[Program, dict[tuple[int, str], int]] = WeakKeyDictionary()
"""How often the op that writes a name of a block has printed."""


def _is_due(said: Mapping[str, Any], counts: MutableMapping[Any, int], key: Any) -> bool:
    phase = str(said["print_phase"]).upper()
    if phase not in ("BOTH", "FORWARD" if said["is_forward"] else "BACKWARD"):
        return False
    counts[key] = counts.get(key, 0) + 1
    most: int = said["first_n"]
    return most < 0 or counts[key] <= most


def _described(said: Mapping[str, Any], name: str, value: Any) -> str:
    array = to_numpy(array_of(value))
    lines = []
    if said["print_tensor_name"]:
        lines.append(f"Variable: {name}")
    if said["message"]:
        lines.append(f"  - message: {said['message']}")
    if said["print_tensor_lod"]:
        lines.append(f"  - lod: {[list(level or ()) for level in lod_of(value)]}")
    if said["print_tensor_shape"]:
        lines.append(f"  - shape: {list(array.shape)}")
    if said["print_tensor_type"]:
        lines.append(f"  - dtype: {array.dtype}")
    flat, most = array.reshape(-1), said["summarize"]
    shown = " ".join(str(item) for item in (flat if most < 0 else flat[:most]).tolist())
    lines.append(f"  - data: [{shown}{' ...' if 0 <= most < flat.size else ''}]")
    return "\n".join(lines)


def show(said: Mapping[str, Any], name: str, value: Any, counts: MutableMapping[Any, int], key: Any) -> None:
    """Print a value if the attributes of the op say so; `counts` has how often `key` was to be printed."""
    if _is_due(said, counts, key):
        print(_described(said, name, value), file=sys.stdout, flush=True)


@runs("print")
def run_print(machine: Machine, op: Operator, env: Environment) -> None:
    name = op.input("In")[0]
    value = env.get(name)
    if value is None:
        raise ExecutionError(f"{name} has no value to print")
    if isinstance(value, list):
        raise ExecutionError(f"{name} is an array of tensors; print one that array_read gives")
    show(op.all_attrs(), name, value, _printed.setdefault(op.block.program, {}), (op.block.idx, op.output("Out")[0]))
    env.set(op.output("Out")[0], value.copy())


# --------------------------------------------------------------------------------------------------- Python functions
def called(number: int, values: Sequence[Any]) -> list[Any]:
    """What a function gives for these values, as a list."""
    found = function_of(number)(*[to_numpy(array_of(value)).copy() for value in values])
    return list(found) if isinstance(found, (list, tuple)) else [] if found is None else [found]


def check_count(found: Sequence[Any], targets: Sequence[Any]) -> None:
    if len(found) != len(targets):
        raise ExecutionError(f"the Python function gave {len(found)} values, and there are {len(targets)} variables for them")


def fitted(value: Any, var: Variable, shape: Sequence[int]) -> Any:
    """What a function gave for `var`, as an array of its element type and this shape."""
    array = np.asarray(value, var.dtype.numpy)
    if array.shape == () and tuple(shape) == (1,):  # a number
        array = array.reshape(1)
    if len(shape) != array.ndim or any(a not in (-1, b) for a, b in zip(shape, array.shape, strict=True)):
        raise ExecutionError(f"the Python function gave a value of shape {list(array.shape)} for {var.name} ({var.describe()})")
    return array


def gradients_of(found: Sequence[Any], likes: Sequence[Any], names: Sequence[str]) -> list[Any]:
    """What a backward function gave, as arrays like those of these names; zeros for None."""
    if len(found) != len(likes):
        raise ExecutionError(
            f"the backward function gave {len(found)} gradients; it should give one, or None, for each of {list(names)}"
        )
    gradients = []
    for value, like, name in zip(found, likes, names, strict=True):
        gradient = np.zeros(like.shape, like.dtype) if value is None else np.asarray(value, like.dtype)
        if gradient.shape != like.shape:
            raise ExecutionError(
                f"the backward function gave a gradient of shape {list(gradient.shape)} for {name}, of shape {list(like.shape)}"
            )
        gradients.append(gradient)
    return gradients


@runs("py_func")
def run_py_func(machine: Machine, op: Operator, env: Environment) -> None:
    targets = op.output("Out")
    found = called(op.attr("forward_callable_id"), [env.need(name) for name in op.input("X")])
    check_count(found, targets)
    for name, value in zip(targets, found, strict=True):
        var = op.block.var(name)
        env.set(name, machine.xp.asarray(fitted(value, var, var.shape)))


@runs("py_func_backward")
def run_py_func_backward(machine: Machine, op: Operator, env: Environment) -> None:
    sources = op.input("Like")
    found = called(op.attr("callable_id"), [env.need(name) for name in op.input("X")])
    likes = [array_of(env.get(name)) for name in sources]
    for name, gradient in zip(op.output("Out"), gradients_of(found, likes, sources), strict=True):
        env.set(name, machine.xp.asarray(gradient))
