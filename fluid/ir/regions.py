"""Ops that own a block: how values pass into the block, from one run of it to the next, and out of it.

The definition of such an op says that once, by a function from an op to its `Region` (``define(..., region=...)``). Inference,
dead-code elimination, differentiation, renaming, explaining and running go by it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from ..errors import FluidError, ProgramError, locate
from ..opdef.registry import EMPTY, grad_slot
from .program import Block, Operator


@dataclass(frozen=True)
class State:
    """A value that each run of a block passes to the next.

    Attributes:
        before: the name that holds it when a run starts; `EMPTY` if the block does not read it.
        after: the name that holds it when a run ends; `EMPTY` if the block does not write it, which counts as zero.
        first: the variable outside that holds it for the first run.
        from_zero: the first run gets zeros shaped like `first` instead.
    """

    before: str
    after: str
    first: str
    from_zero: bool = False


@dataclass(frozen=True)
class Taken:
    """An output of an op, computed from values inside its block.

    Attributes:
        name: the variable outside.
        inner: the name inside.
        like: a variable outside that gives the output's shape if the block never ran.
    """

    name: str
    inner: str
    like: str


@dataclass(frozen=True)
class Region:
    """How values pass through the block that an op owns. The block sees the names of the blocks around it.

    Attributes:
        body: the block.
        repeats: it may run more than once; each run reads what the one before wrote to variables outside.
        may_skip: it may not run at all; then the variables that it writes keep their values.
        writes: variables outside that it overwrites, under their own names.
        slices: name inside -> outer variable; each run gets a slice of it along the first axis.
        states: values passed from run to run.
        stacked: outputs that stack the values of all runs along a new first axis.
        summed: outputs that sum the values of all runs.
        final: outputs that take the last value of a state; `inner` is the state's `after`.
        frames: of a gradient op, the `scopes` of its forward op: the block runs once for each of them, last first, and sees
            the values that they keep.
        reads_slot: the input slot that lists what the block reads from outside.
        scopes_slot: the output slot of `scopes`.
    """

    op: Operator
    body: Block
    repeats: bool = False
    may_skip: bool = False
    writes: tuple[str, ...] = ()
    slices: tuple[tuple[str, str], ...] = ()
    states: tuple[State, ...] = ()
    stacked: tuple[Taken, ...] = ()
    summed: tuple[Taken, ...] = ()
    final: tuple[Taken, ...] = ()
    frames: str | None = None
    reads_slot: str = ""
    scopes_slot: str = ""

    @property
    def scopes(self) -> str | None:
        """The variable that keeps, for each run, the values that gradient blocks read."""
        names = self.op.outputs.get(self.scopes_slot)
        return names[0] if names else None

    @property
    def carried(self) -> dict[str, str]:
        """Name read at the start of a run -> name that holds its value at the end of the run before."""
        names = {name: name for name in self.writes} if self.repeats else {}
        return names | {state.before: state.after for state in self.states if EMPTY not in (state.before, state.after)}

    @property
    def leaving(self) -> dict[str, str]:
        """Variable outside -> the name inside whose value it takes at the end of a run."""
        names = {name: name for name in self.writes}
        return names | {
            output.name: output.inner for output in (*self.stacked, *self.summed, *self.final) if output.inner != EMPTY
        }

    def entering(self, name: str) -> Iterator[str]:
        """The names inside that hold the outside variable `name`, or a part of it, when a run starts."""
        hidden = {inner for inner, _ in self.slices} | {state.before for state in self.states}
        if name not in hidden:
            yield name
        yield from (inner for inner, outer in self.slices if outer == name)
        yield from (state.before for state in self.states if state.first == name and state.before != EMPTY)

    @property
    def forward(self) -> Block | None:
        """For the block of a gradient op: the block of its forward op."""
        return (self.body.forward or self.body.parent) if self.frames is not None else None


def region_of(op: Operator) -> Region | None:
    """How values pass through the block that an op owns; None if it owns none or its type is not defined.

    Raises:
        ProgramError: the op's slots or attributes do not fit its definition.
    """
    definition = op.definition
    if definition is None or definition.region is None:
        return None
    try:
        region = definition.region(op)
    except FluidError:
        raise
    except Exception as error:  # files may hold anything
        raise ProgramError(f"{op.type}: its slots and attributes do not fit together: {error}\n{locate(op)}") from error
    assert isinstance(region, Region)
    body: Any = region.body  # of a file, which may not say which
    if not isinstance(body, Block):
        problem = f"its attribute 'sub_block' should be the block that it owns, not {body!r}"
        raise ProgramError(f"{op.type}: {problem}\n{locate(op)}")
    return region


def is_gradient_op(op: Operator) -> bool:
    """Whether the op stands for the gradient of another."""
    definition = op.definition
    return definition is not None and (definition.forward is not None or bool(definition.gradient_of))


# -------------------------------------------------------------------------------------------- gradients inside of blocks
def inner_gradients(op: Operator, slot: str) -> list[str]:
    """The name inside a gradient op's block of the gradient of each variable in an input slot.

    Gradient ops that Paddle wrote do not list them; there it is the variable's name with ``@GRAD``.
    """
    return op.attrs.get("input_grads") or [name + "@GRAD" for name in op.input(slot)]


def list_inner_gradients(op: Operator) -> None:
    """Write the result of `inner_gradients` into the attribute of a gradient op, so that the op's inputs can be renamed."""
    for slot in shape_slots(op):
        op.attrs["input_grads"] = inner_gradients(op, slot)


def shape_slots(op: Operator) -> list[str]:
    """The slots where a loop's or branch's gradient op repeats the forward op's inputs; it reads only their shapes."""
    definition = op.definition
    if definition is None or not definition.gradient_of:
        return []
    return [slot for slot in op.inputs if slot in definition.inputs and definition.inputs[slot].shape_only]


def gradient_region(reads_slot: str, scopes_slot: str) -> Callable[[Operator], Region]:
    """Make the function from the gradient op of a loop or branch to its `Region`, for the definition of the gradient op.

    Gradients of variables that the forward block overwrites are carried in variables outside (``Carried``, ``CarriedOut``).
    In Paddle's programs they are states: ``original_output_grad`` lists their names inside, which start from ``Out@GRAD``.

    Args:
        reads_slot: the forward op's slot that lists the variables its block reads; the gradient op repeats it.
        scopes_slot: the slot of the variable with the scopes of the forward op's runs.
    """

    def region(op: Operator) -> Region:
        incoming = op.attrs.get("original_output_grad") or ()
        states = [State(name, name, first) for name, first in zip(incoming, op.input(grad_slot("Out")), strict=False)]
        targets = op.output(grad_slot(reads_slot))
        reads = zip(op.input(reads_slot), inner_gradients(op, reads_slot), targets, strict=False)
        parts = [Taken(target, inner, name) for name, inner, target in reads if target != EMPTY]
        return Region(
            op,
            op.attr("sub_block"),
            repeats=True,
            may_skip=True,
            writes=tuple(op.output("CarriedOut")),
            states=tuple(states),
            summed=tuple(part for part in parts if part.inner not in incoming),
            final=tuple(part for part in parts if part.inner in incoming),
            frames=op.input(scopes_slot)[0],
        )

    return region
