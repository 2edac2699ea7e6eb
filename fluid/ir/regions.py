"""Ops that own a block: how values pass into the block, from one run of it to the next, and out of it.

The definition of such an op says that once, by a function from an op to its `Region` (``define(..., region=...)``). Inference,
dead-code elimination, differentiation, renaming, explaining and running go by it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from ..errors import FluidError, ProgramError, locate
from ..opdef.registry import EMPTY, grad_slot
from .program import Block, Operator

__all__ = [
    "Region",
    "State",
    "Taken",
    "gradient_region",
    "inner_gradients",
    "is_gradient_op",
    "list_inner_gradients",
    "region_of",
    "shape_slots",
]


@dataclass(frozen=True)
class State:
    """A value that each run of a block hands to the next.

    Attributes:
        before: the name under which a run finds it; `EMPTY` if it does not look.
        after: the name under which a run leaves it; `EMPTY` if it leaves nothing, which is zero.
        first: the variable outside with the value for the first run.
        from_zero: the first run finds zeros shaped like `first` instead.
    """

    before: str
    after: str
    first: str
    from_zero: bool = False


@dataclass(frozen=True)
class Taken:
    """An output of an op that is taken from the runs of its block.

    Attributes:
        name: the variable outside.
        inner: the name inside.
        like: a variable outside that has the output's shape where the block never ran.
    """

    name: str
    inner: str
    like: str


@dataclass(frozen=True)
class Region:
    """How values pass through the block that an op owns. Inside, the names of the blocks around it are visible.

    Attributes:
        body: the block.
        repeats: it may run more than once; what it writes outside, the next run reads.
        may_skip: it may not run at all, and then leaves what it would write as it was.
        writes: variables outside that it overwrites, under their own names.
        slices: name inside -> variable outside of which each run finds a slice along the first axis.
        states: values handed from run to run.
        stacked: outputs made of the values of all runs, stacked along a new first axis.
        summed: outputs that are the sum of the values of all runs.
        final: outputs that are what a state holds in the end; `inner` is the state's `after`.
        frames: of a gradient op, the `scopes` of the op that it belongs to: the block runs once for each of them, last
            first, and sees what they keep.
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
        """The variable that keeps, for each run, what gradient blocks read of it."""
        names = self.op.outputs.get(self.scopes_slot)
        return names[0] if names else None

    @property
    def carried(self) -> dict[str, str]:
        """Name that a run starts with -> name under which the run before has left it."""
        found = {name: name for name in self.writes} if self.repeats else {}
        return found | {state.before: state.after for state in self.states if EMPTY not in (state.before, state.after)}

    @property
    def leaving(self) -> dict[str, str]:
        """Variable outside -> the name inside whose value it takes at the end of a run."""
        found = {name: name for name in self.writes}
        return found | {taken.name: taken.inner for taken in (*self.stacked, *self.summed, *self.final) if taken.inner != EMPTY}

    def entering(self, name: str) -> Iterator[str]:
        """The names inside under which a run finds the variable `name` from outside, or a part of it."""
        hidden = {inner for inner, _ in self.slices} | {state.before for state in self.states}
        if name not in hidden:
            yield name
        yield from (inner for inner, outer in self.slices if outer == name)
        yield from (state.before for state in self.states if state.first == name and state.before != EMPTY)

    @property
    def forward(self) -> Block | None:
        """Of a gradient op's block: the block of the op that it belongs to."""
        return (self.body.forward or self.body.parent) if self.frames is not None else None


def region_of(op: Operator) -> Region | None:
    """How values pass through the block that an op owns; None for an op that owns none, or is not known.

    Raises:
        ProgramError: the op's slots or attributes are not as its definition has them.
    """
    definition = op.definition
    if definition is None or definition.region is None:
        return None
    try:
        found = definition.region(op)
    except FluidError:
        raise
    except Exception as error:  # files may hold anything
        raise ProgramError(f"{op.type}: its slots and attributes do not fit together: {error}\n{locate(op)}") from error
    assert isinstance(found, Region)
    return found


def is_gradient_op(op: Operator) -> bool:
    """Whether the op stands for the gradient of another."""
    definition = op.definition
    return definition is not None and (definition.forward is not None or bool(definition.gradient_of))


# -------------------------------------------------------------------------------------------- gradients inside of blocks
def inner_gradients(op: Operator, slot: str) -> list[str]:
    """For each name in the input slot of a gradient op that owns a block, what its gradient is called inside.

    Gradient ops that Paddle wrote do not say so; there it follows from the name.
    """
    return op.attrs.get("input_grads") or [name + "@GRAD" for name in op.input(slot)]


def list_inner_gradients(op: Operator) -> None:
    """Let the gradient op of a loop or branch say what gradients are called inside, so that its inputs may get other names."""
    for slot in shape_slots(op):
        op.attrs["input_grads"] = inner_gradients(op, slot)


def shape_slots(op: Operator) -> list[str]:
    """The slots in which the gradient op of a loop or branch repeats what the forward op reads: for its shapes only."""
    definition = op.definition
    if definition is None or not definition.gradient_of:
        return []
    return [slot for slot in op.inputs if slot in definition.inputs and definition.inputs[slot].shape_only]


def gradient_region(reads_slot: str, scopes_slot: str) -> Callable[[Operator], Region]:
    """For the definition of the gradient op of a loop or branch: the function from such an op to its `Region`.

    The gradients of what the forward block overwrites are carried in variables outside (``Carried``, ``CarriedOut``); in
    Paddle's programs, under names inside, ``original_output_grad``, from ``Out@GRAD`` to the gradients of those inputs.

    Args:
        reads_slot: the slot in which the forward op lists what its block reads, which the gradient op repeats.
        scopes_slot: the slot of what the forward op keeps of its runs.
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
