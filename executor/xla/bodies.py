"""The block that an op owns, as a function of jax values: what its runs are handed, what they hand on, and what is kept of them.

A `Region` says how values pass through a block; that alone decides what a loop carries, takes slices of, stacks and sums.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import jax

from fluid.errors import ExecutionError
from fluid.ir.program import Operator
from fluid.ir.versions import outer_names
from fluid.opdef.registry import EMPTY
from fluid.values.lod_array import array_of
from fluid.values.selected_rows import SelectedRows

from ..stepwise.control import add, no_gradient, zeros_like
from ..stepwise.interpreter import Environment
from .stacks import InFront, Stack, fit
from .stacks import add as add_stacks
from .trees import ShapesVary, flatten, form_of

__all__ = ["Body", "Carry", "Frames", "Kept", "leaves_like"]

Carry = dict[tuple[str, Any], Any]
"""What one run hands to the next: ("outer", name), ("state", number) or ("total", name) -> value."""


@jax.tree_util.register_pytree_node_class
class Frames:
    """What a forward op keeps for its gradient op: name -> the values of all runs, leaf by leaf along a new first axis.

    Attributes:
        values: the values, each with as many entries as there is room for.
        room: for how many runs there is room.
        count: the number of runs, as a traced int32; None if it is `room`.
    """

    __slots__ = ("count", "room", "values")

    def __init__(self, values: Mapping[str, Any], room: int, count: Any = None) -> None:
        self.values, self.room, self.count = values, room, count

    def tree_flatten(self) -> tuple[tuple[Any, Any], int]:
        return (self.values, self.count), self.room

    @classmethod
    def tree_unflatten(cls, room: int, parts: tuple[Any, Any]) -> Frames:
        return cls(parts[0], room, parts[1])

    def copy(self) -> Frames:
        return self


class Kept(NamedTuple):
    """What is kept of a run, and with a new first axis, of all runs.

    Attributes:
        stacked: name inside -> value, of the op's outputs that stack it.
        rows: name inside -> the part of a sparse gradient.
        frame: name -> value, of what gradient blocks read.
    """

    stacked: dict[str, Any]
    rows: dict[str, SelectedRows]
    frame: dict[str, Any]


class Body:
    """The block that an op owns, as a function of what its runs are given to what they leave."""

    def __init__(self, tracer: Any, op: Operator, env: Environment) -> None:
        region = tracer.region(op)
        assert region is not None, "only ops that own blocks have bodies"
        self.tracer, self.op, self.env, self.region = tracer, op, env, region
        self._captured = tracer.captures.get(region.scopes) if region.scopes is not None else None
        inner = region.forward.vars if region.forward is not None else ()
        self._overwritten = [name for name in outer_names(region.body)[1] if name not in inner]
        self.slices = {inner: array_of(env.get(outer)) for inner, outer in region.slices}
        carried = self._captured.carried if self._captured is not None else set()
        self._carried_frames = [name for name in self._overwritten if name in carried]
        self._parts = [taken.inner for taken in region.summed if taken.inner != EMPTY]
        self._stacked = [taken.inner for taken in region.stacked if taken.inner != EMPTY]

    @property
    def keeps_frames(self) -> bool:
        """Whether a gradient op reads values of each run."""
        return self._captured is not None

    def start(self) -> Carry:
        """What the first run is handed."""
        region, env = self.region, self.env
        carry: Carry = {("outer", name): env.get(name) for name in self._overwritten}
        for number, state in enumerate(region.states):
            first = env.get(state.first)
            carry["state", number] = zeros_like(self.tracer.xp, first) if state.from_zero else first
        return carry | {("total", name): None for name in self._parts}

    def run(self, carry: Carry, slices: Mapping[str, Any], frame: Mapping[str, Any]) -> tuple[Carry, Kept]:
        """Run the block once; returns what the next run is handed, and what is kept of this one."""
        region, tracer, captured = self.region, self.tracer, self._captured
        outside: Environment = InFront(self.env, {name: carry["outer", name] for name in self._overwritten})
        around = outside if region.forward is None else Environment(region.forward, outside, dict(frame))
        values = {state.before: carry["state", number] for number, state in enumerate(region.states)}
        values.pop(EMPTY, None)
        values.update(slices)
        before = {name: value.copy() for name in self._carried_frames if (value := outside.get(name)) is not None}
        tracer.run_block(region.body, Environment(region.body, around, values))

        after: Carry = {("outer", name): outside.get(name) for name in self._overwritten}
        for number, state in enumerate(region.states):
            after["state", number] = self._left(values, state.after, state.first)
        rows: dict[str, SelectedRows] = {}
        for name in self._parts:
            value, former = self._left(values, name), carry["total", name]
            if isinstance(value, SelectedRows):
                rows[name], after["total", name] = value, former
            else:
                after["total", name] = _sum(former, value)
        local = sorted(captured.local) if captured is not None else ()
        frame = {name: value for name in local if (value := values.get(name)) is not None}
        return after, Kept({name: array_of(self._left(values, name)) for name in self._stacked}, rows, {**frame, **before})

    def _left(self, values: Mapping[str, Any], name: str, like: str = "") -> Any:
        """What a run left under a name; zeros for a state that the block does not write."""
        if name == EMPTY:
            return zeros_like(self.tracer.xp, self.env.get(like))
        if name not in values:
            is_gradient = self.region.frames is not None
            what = ", which should be a part of a gradient" if is_gradient else ""
            raise ExecutionError(f"the {'gradient ' if is_gradient else ''}block leaves no {name}{what}")
        return values[name]

    # -- the results
    def finish(self, carry: Carry, kept: Kept, frames: Frames) -> None:
        """Set the op's outputs from what the last run handed on, and what is kept of all."""
        region, env, xp = self.region, self.env, self.tracer.xp
        for name in self._overwritten:
            env.set(name, carry["outer", name])
        finals = {state.after: carry["state", number] for number, state in enumerate(region.states) if state.after != EMPTY}
        for taken in (*region.stacked, *region.summed, *region.final):
            if taken.name == EMPTY:
                continue
            value = kept.stacked.get(taken.inner)
            if value is None:
                value = _sum(kept.rows.get(taken.inner), carry.get(("total", taken.inner), finals.get(taken.inner)))
            if value is None:
                value = no_gradient(xp, self.op, taken.name, env.get(taken.like))
            env.set(taken.name, value)
        if region.scopes is not None:
            env.set(region.scopes, frames)


def _sum(one: Any, other: Any) -> Any:
    """The sum of two values; None counts as zero."""
    stack = next((value for value in (one, other) if isinstance(value, Stack)), None)
    if stack is None or one is None or other is None:
        return add(one, other)
    return add_stacks(fit(one, stack), fit(other, stack))


def leaves_like(carry: Carry, handed: Carry) -> list[Any]:
    """The leaves of what a run hands on, in the form of what it was handed.

    Raises:
        ShapesVary: it has another form.
    """
    after = {key: fit(carry[key], value) for key, value in handed.items()}
    for key, value in handed.items():
        forms = form_of(value), form_of(after[key])
        if forms[0] != forms[1]:
            raise ShapesVary(f"{key[1]} is {forms[0]} before a run of the block and {forms[1]} after it")
    return flatten(after)[0]
