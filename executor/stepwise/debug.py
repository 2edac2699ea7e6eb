"""Ops with side effects: printing, and calling Python functions."""

from __future__ import annotations

import sys
from collections.abc import Mapping, MutableMapping, Sequence
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from fluid.errors import ExecutionError
from fluid.ir.nesting import walk
from fluid.ir.program import Operator, Program, Variable
from fluid.ops.collective import COLLECTIVE
from fluid.ops.debug import function_of
from fluid.values.bfloat16 import BFLOAT16, computable, converted
from fluid.values.lod_array import array_of, lod_of
from fluid.values.place import to_numpy
from fluid.values.types import as_dtype

from .handlers import runs
from .interpreter import Environment, Machine

__all__ = ["called", "check_count", "fitted", "gradients_of", "has_effect", "show"]

_EFFECTS = {"print", "py_func"} | COLLECTIVE


def has_effect(op: Operator) -> bool:
    """Whether an op runs even if its outputs are not needed."""
    return any(inner.type in _EFFECTS for inner in walk([op]))


# ------------------------------------------------------------------------------------------------------------ printing
_printed: WeakKeyDictionary[Program, dict[tuple[int, str], int]] = WeakKeyDictionary()
"""Program -> how often the op that writes a name of a block has printed."""


def _text(attrs: Mapping[str, Any], name: str, value: Any) -> str:
    held = to_numpy(array_of(value))
    array = computable(held)
    flat, most = array.reshape(-1), attrs["summarize"]
    data = " ".join(str(item) for item in (flat if most < 0 else flat[:most]).tolist())
    lines = {
        f"Variable: {name}": attrs["print_tensor_name"],
        f"  - message: {attrs['message']}": attrs["message"],
        f"  - lod: {[list(level or ()) for level in lod_of(value)]}": attrs["print_tensor_lod"],
        f"  - shape: {list(array.shape)}": attrs["print_tensor_shape"],
        f"  - dtype: {as_dtype(held.dtype).text}": attrs["print_tensor_type"],
        f"  - data: [{data}{' ...' if 0 <= most < flat.size else ''}]": True,
    }
    return "\n".join(line for line, is_shown in lines.items() if is_shown)


def show(attrs: Mapping[str, Any], name: str, value: Any, counts: MutableMapping[Any, int], key: Any) -> None:
    """Print a value by the `attrs` of a print op; `counts[key]` counts the calls, for `first_n`."""
    if str(attrs["print_phase"]).upper() in ("BOTH", "FORWARD" if attrs["is_forward"] else "BACKWARD"):
        counts[key] = counts.get(key, 0) + 1
        if attrs["first_n"] < 0 or counts[key] <= attrs["first_n"]:
            print(_text(attrs, name, value), file=sys.stdout, flush=True)


@runs("print")
def run_print(machine: Machine, op: Operator, env: Environment) -> None:
    name = op.input("In")[0]
    value = env.get(name)
    if value is None:
        raise ExecutionError(f"{name} has no value to print")
    if isinstance(value, list):
        raise ExecutionError(f"{name} is an array of tensors; print one that array_read returns")
    show(op.all_attrs(), name, value, _printed.setdefault(op.block.program, {}), (op.block.idx, op.output("Out")[0]))
    env.set(op.output("Out")[0], value.copy())


# --------------------------------------------------------------------------------------------------- Python functions
def called(number: int, values: Sequence[Any]) -> list[Any]:
    """Call the Python function of this number; returns its results as a list."""
    result = function_of(number)(*[computable(to_numpy(array_of(value)).copy()) for value in values])
    return list(result) if isinstance(result, (list, tuple)) else [] if result is None else [result]


def check_count(results: Sequence[Any], targets: Sequence[Any]) -> None:
    if len(results) != len(targets):
        raise ExecutionError(f"the Python function gave {len(results)} values, and there are {len(targets)} variables for them")


def _of_type(value: Any, dtype: Any) -> Any:
    """The result of a function as an array of this numpy dtype."""
    return converted(np.asarray(value), dtype) if dtype == BFLOAT16 else np.asarray(value, dtype)


def fitted(value: Any, var: Variable, shape: Sequence[int]) -> Any:
    """The result of a function for `var`, as an array of its element type and of `shape`."""
    array = _of_type(value, var.dtype.array_dtype)
    if array.shape == () and tuple(shape) == (1,):  # a number
        array = array.reshape(1)
    if len(shape) != array.ndim or any(a not in (-1, b) for a, b in zip(shape, array.shape, strict=True)):
        raise ExecutionError(f"the Python function gave a value of shape {list(array.shape)} for {var.name} ({var.describe()})")
    return array


def gradients_of(results: Sequence[Any], likes: Sequence[Any], names: Sequence[str]) -> list[Any]:
    """The results of a backward function as arrays like `likes`, which have these names; zeros for None."""
    if len(results) != len(likes):
        raise ExecutionError(
            f"the backward function gave {len(results)} gradients; it should give one, or None, for each of {list(names)}"
        )
    gradients = []
    for value, like, name in zip(results, likes, names, strict=True):
        gradient = np.zeros(like.shape, like.dtype) if value is None else _of_type(value, like.dtype)
        if gradient.shape != like.shape:
            raise ExecutionError(
                f"the backward function gave a gradient of shape {list(gradient.shape)} for {name}, of shape {list(like.shape)}"
            )
        gradients.append(gradient)
    return gradients


@runs("py_func")
def run_py_func(machine: Machine, op: Operator, env: Environment) -> None:
    targets = op.output("Out")
    results = called(op.attr("forward_callable_id"), [env.need(name) for name in op.input("X")])
    check_count(results, targets)
    for name, value in zip(targets, results, strict=True):
        var = op.block.var(name)
        env.set(name, machine.xp.asarray(fitted(value, var, var.shape)))


@runs("py_func_backward")
def run_py_func_backward(machine: Machine, op: Operator, env: Environment) -> None:
    sources = op.input("Like")
    results = called(op.attr("callable_id"), [env.need(name) for name in op.input("X")])
    likes = [array_of(env.get(name)) for name in sources]
    for name, gradient in zip(op.output("Out"), gradients_of(results, likes, sources), strict=True):
        env.set(name, machine.xp.asarray(gradient))


@runs("assert")
def run_assert(machine: Machine, op: Operator, env: Environment) -> None:
    if bool(to_numpy(array_of(env.need(op.input("Cond")[0]))).all()):
        return
    most = op.all_attrs()["summarize"]
    shown = []
    for name in op.input("Data"):
        flat = computable(to_numpy(array_of(env.need(name)))).reshape(-1)
        shown.append(f"  {name}: {(flat if most < 0 else flat[:most]).tolist()}")
    raise ExecutionError("\n".join([f"{op.input('Cond')[0]} should be true, as an assert op says, and is not", *shown]))
