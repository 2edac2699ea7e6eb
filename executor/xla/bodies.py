"""The block of an op as a function of jax values: each run takes a carry, and returns the next carry and its outputs.

The `Region` of the op says how values pass through the block. It alone decides what a loop carries, slices, stacks and sums.
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
from .stacks import OverlayEnvironment, Stack, fit
from .stacks import add as add_stacks
from .trees import ShapesVary, flatten, form_of

Carry = dict[tuple[str, Any], Any]
"""Values passed from one run to the next: ("outer", name), ("state", number) or ("total", name) -> value."""


@jax.tree_util.register_pytree_node_class
class RunFrames:
    """Values that a forward op saves for its gradient op: name -> the values of all runs, leaf by leaf along a new first axis.

    Attributes:
        values: the saved values; each leaf has `room` entries.
        room: the number of runs that fit.
        count: the number of runs, as a traced int32; None if it is `room`.
    """

    __slots__ = ("count", "room", "values")

    def __init__(self, values: Mapping[str, Any], room: int, count: Any = None) -> None:
        self.values, self.room, self.count = values, room, count

    def tree_flatten(self) -> tuple[tuple[Any, Any], int]:
        return (self.values, self.count), self.room

    @classmethod
    def tree_unflatten(cls, room: int, parts: tuple[Any, Any]) -> RunFrames:
        return cls(parts[0], room, parts[1])

    def copy(self) -> RunFrames:
        return self


class RunOutputs(NamedTuple):
    """The outputs of one run; with a new first axis, of all runs.

    Attributes:
        stacked: inner name -> value, for the op's stacked outputs.
        rows: inner name -> rows of a sparse gradient.
        frame: name -> value, for gradient blocks.
    """

    stacked: dict[str, Any]
    rows: dict[str, SelectedRows]
    frame: dict[str, Any]


class Body:
    """The block of an op, as a function from the inputs of a run to its outputs."""

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
        self._parts = [output.inner for output in region.summed if output.inner != EMPTY]
        self._stacked = [output.inner for output in region.stacked if output.inner != EMPTY]

    @property
    def keeps_frames(self) -> bool:
        """Whether a gradient op reads values of each run."""
        return self._captured is not None

    def start(self) -> Carry:
        """The carry of the first run."""
        region, env = self.region, self.env
        carry: Carry = {("outer", name): env.get(name) for name in self._overwritten}
        for number, state in enumerate(region.states):
            first = env.get(state.first)
            carry["state", number] = zeros_like(self.tracer.xp, first) if state.from_zero else first
        return carry | {("total", name): None for name in self._parts}

    def run(self, carry: Carry, slices: Mapping[str, Any], frame: Mapping[str, Any]) -> tuple[Carry, RunOutputs]:
        """Run the block once; returns the carry of the next run, and the outputs of this run."""
        region, tracer, captured = self.region, self.tracer, self._captured
        outside: Environment = OverlayEnvironment(self.env, {name: carry["outer", name] for name in self._overwritten})
        around = outside if region.forward is None else Environment(region.forward, outside, dict(frame))
        values = {state.before: carry["state", number] for number, state in enumerate(region.states)}
        values.pop(EMPTY, None)
        values.update(slices)
        before = {name: value.copy() for name in self._carried_frames if (value := outside.get(name)) is not None}
        tracer.run_block(region.body, Environment(region.body, around, values))

        after: Carry = {("outer", name): outside.get(name) for name in self._overwritten}
        for number, state in enumerate(region.states):
            after["state", number] = self._result(values, state.after, state.first)
        rows: dict[str, SelectedRows] = {}
        for name in self._parts:
            value, former = self._result(values, name), carry["total", name]
            if isinstance(value, SelectedRows):
                rows[name], after["total", name] = value, former
            else:
                after["total", name] = _sum(former, value)
        local = sorted(captured.local) if captured is not None else ()
        frame = {name: value for name in local if (value := values.get(name)) is not None}
        return after, RunOutputs(
            {name: array_of(self._result(values, name)) for name in self._stacked}, rows, {**frame, **before}
        )

    def _result(self, values: Mapping[str, Any], name: str, like: str = "") -> Any:
        """The value of a name after a run; zeros for a state that the block does not write."""
        if name == EMPTY:
            return zeros_like(self.tracer.xp, self.env.get(like))
        if name not in values:
            is_gradient = self.region.frames is not None
            detail = ", which should be a part of a gradient" if is_gradient else ""
            raise ExecutionError(f"the {'gradient ' if is_gradient else ''}block leaves no {name}{detail}")
        return values[name]

    # -- the results
    def finish(self, carry: Carry, outputs: RunOutputs, frames: RunFrames) -> None:
        """Set the op's outputs from the final carry and the outputs of all runs."""
        region, env, xp = self.region, self.env, self.tracer.xp
        for name in self._overwritten:
            env.set(name, carry["outer", name])
        finals = {state.after: carry["state", number] for number, state in enumerate(region.states) if state.after != EMPTY}
        for output in (*region.stacked, *region.summed, *region.final):
            if output.name == EMPTY:
                continue
            value = outputs.stacked.get(output.inner)
            if value is None:
                value = _sum(outputs.rows.get(output.inner), carry.get(("total", output.inner), finals.get(output.inner)))
            if value is None:
                value = no_gradient(xp, self.op, output.name, env.get(output.like))
            env.set(output.name, value)
        if region.scopes is not None:
            env.set(region.scopes, frames)


def _sum(left: Any, right: Any) -> Any:
    """The sum of two values; None counts as zero."""
    stack = next((value for value in (left, right) if isinstance(value, Stack)), None)
    if stack is None or left is None or right is None:
        return add(left, right)
    return add_stacks(fit(left, stack), fit(right, stack))


def leaves_like(carry: Carry, incoming: Carry) -> list[Any]:
    """The leaves of a run's outgoing carry, in the form of its incoming carry.

    Raises:
        ShapesVary: the forms differ.
    """
    outgoing = {key: fit(carry[key], value) for key, value in incoming.items()}
    for key, value in incoming.items():
        forms = form_of(value), form_of(outgoing[key])
        if forms[0] != forms[1]:
            raise ShapesVary(f"{key[1]} is {forms[0]} before a run of the block and {forms[1]} after it")
    return flatten(outgoing)[0]
