"""Single numbers of the state that are equal before a run and after it, such as the powers of the betas of all parameters.

Adam updates two numbers for each parameter in the same way, so that equal numbers stay equal. A compiled program takes, computes
and returns one of each group, the *leader*. In the scope, the variables of a group share the leader's array on the device.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from math import prod
from typing import Any

import jax
import numpy as np

from fluid.ir.nesting import walk
from fluid.ir.program import Block, Operator
from fluid.opdef.registry import EMPTY
from fluid.values.lod_tensor import Remote
from fluid.values.spec import Spec
from fluid.values.types import VarType

from ..runtime.scope import Scope
from .sharding import OnDevice

Groups = Mapping[str, Sequence[str]]
"""Leader -> the names that follow it."""

_NUMBERS_OF_ADAM = {"Beta1Pow": ("beta1", "Beta1Tensor"), "Beta2Pow": ("beta2", "Beta2Tensor")}
"""Slot of a number that Adam multiplies by a base -> the base's attribute, and the slot of a base that the program computes."""
_ADAMS = ("adam", "adamw", "lamb")


def groups_of_equal(block: Block, ops: Sequence[Operator], specs: Mapping[str, Spec], scope: Scope) -> dict[str, list[str]]:
    """Find the single numbers of a scope that are equal, and that the ops update in the same way.

    Args:
        block: the block of the ops.
        ops: the ops that run.
        specs: the specs of the variables that the ops read from the scope.
        scope: holds the variables.

    Returns:
        The names that follow each leader.
    """
    updates: dict[str, list[Hashable]] = {}
    for op in walk(ops):
        if op.sub_blocks:
            continue
        names = [name for name in op.output_arg_names if name != EMPTY]
        updated = dict(_updates(op))
        for name in names:
            updates.setdefault(name, []).append((op.block.idx, updated[name]) if name in updated else None)
    candidates: dict[Hashable, list[str]] = {}
    for name, keys in updates.items():
        var, spec = block.vars.get(name), specs.get(name)
        if keys[0] is None or len(keys) > 1 or var is None or var.sharding is not None or spec is None or prod(spec.shape) != 1:
            continue
        candidates.setdefault((keys[0], spec), []).append(name)
    groups = {}
    for names in candidates.values():
        for leader, *followers in _split_by_value(scope, names) if len(names) > 1 else ():
            if followers:
                groups[leader] = followers
    return groups


def _updates(op: Operator) -> Iterator[tuple[str, Hashable]]:
    """The single numbers that an op updates in place, each with all that decides how."""
    if op.type in _ADAMS and not _is_sparse(op, "Grad"):
        types = tuple(_type_of(op, name) for slot in ("Param", "MasterParam") for name in op.inputs.get(slot, ()))
        for slot, (attr, base) in _NUMBERS_OF_ADAM.items():
            is_in_place = op.inputs.get(slot) == op.outputs.get(slot + "Out")
            if is_in_place and not op.inputs.get(base) and not op.inputs.get("SkipUpdate"):
                yield op.inputs[slot][0], ("power", op.attrs.get(attr), op.attrs.get("use_global_beta_pow", False), types)
    elif op.type == "scale" and op.inputs["X"] == op.outputs["Out"] and not op.inputs.get("ScaleTensor"):
        yield op.inputs["X"][0], ("scale", *(op.attrs.get(name) for name in ("scale", "bias", "bias_after_scale")))


def _is_sparse(op: Operator, slot: str) -> bool:
    return any((var := op.block.find_var(name)) is None or var.type is VarType.SELECTED_ROWS for name in op.inputs[slot])


def _type_of(op: Operator, name: str) -> VarType | None:
    var = op.block.find_var(name)
    return None if var is None else var.dtype


def _split_by_value(scope: Scope, names: Sequence[str]) -> list[list[str]]:
    """Group the names of single numbers by their values in a scope."""
    groups: dict[bytes, list[str]] = {}
    for name, value in zip(names, _numbers(scope, names), strict=True):
        groups.setdefault(value.tobytes(), []).append(name)
    return list(groups.values())


def _numbers(scope: Scope, names: Sequence[str]) -> list[Any]:
    """Copy single numbers of a scope to the host, all at once."""
    held = [scope.held(name) for name in names]
    values = jax.device_get([value.value if isinstance(value, OnDevice) else None for value in held])
    return [
        np.asarray(value if value is not None else array.fetch() if isinstance(array, Remote) else array)
        for value, array in zip(values, held, strict=True)
    ]


def are_equal(scope: Scope, groups: Groups) -> bool:
    """Whether the numbers of each group are equal in a scope."""
    return all(_is_shared(scope, names) or len(_split_by_value(scope, names)) == 1 for names in _members(groups))


def _members(groups: Groups) -> Iterator[list[str]]:
    for leader, followers in groups.items():
        yield [leader, *followers]


def _is_shared(scope: Scope, names: Sequence[str]) -> bool:
    """Whether these variables, and no others, share one array on the device."""
    first = scope.held(names[0])
    return isinstance(first, OnDevice) and first.sharers == (*names,) and all(scope.held(name) is first for name in names)


def share(scope: Scope, groups: Groups) -> None:
    """Have the followers of each group share the array of its leader, which is on the device."""
    for names in _members(groups):
        if not _is_shared(scope, names):
            shared = type(scope.held(names[0]))(scope.held(names[0]).value)
            shared.sharers = (*names,)
            for name in names:
                _put(scope, name, shared)


def take_apart(scope: Scope, names: Sequence[str]) -> None:
    """Give each of these variables an array on the device of its own, if it shares one with others."""
    for name in names:
        held = scope.held(name)
        if isinstance(held, OnDevice) and held.sharers:
            _put(scope, name, type(held)(held.value))


def _put(scope: Scope, name: str, value: OnDevice) -> None:
    variable = scope.find_var(name)
    assert variable is not None, "a program reads it from the scope"
    variable.get_tensor().array = value
