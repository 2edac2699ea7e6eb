"""Dataflow analyses over a block and the blocks that its ops own.

`Forward` carries a fact for each name forward through the ops of a block, and repeats a block that an op owns
(`fluid.ir.regions`) until the facts no longer change. `needed_ops` goes backward: the ops on which values depend.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Generic, TypeVar

from ..opdef.registry import EMPTY
from .program import Operator
from .regions import Region, State, region_of
from .versions import BlockVersions, Value, outer_names

F = TypeVar("F")


# ------------------------------------------------------------------------------------------------------------- forward
class Facts(Generic[F]):
    """The facts about the names of a block, while its ops are visited; names without one here are looked up outside."""

    def __init__(self, outside: Callable[[str], F | None], first: Mapping[str, F | None] | None = None) -> None:
        self.here: dict[str, F | None] = dict(first or {})
        self._outside = outside

    def get(self, name: str) -> F | None:
        """The fact about a name; None if the name has no value."""
        return self.here[name] if name in self.here else self._outside(name)

    def set(self, names: str | Iterable[str], fact: F | None) -> None:
        for name in [names] if isinstance(names, str) else names:
            if name != EMPTY:
                self.here[name] = fact


class Forward(Generic[F]):
    """A forward analysis. A subclass defines the transfer of ops, the join of facts, and how facts enter and leave a block."""

    most_rounds = 1 << 20
    """How many times a block is visited before it counts as not settling."""

    def __init__(self) -> None:
        self._settled: dict[Operator, tuple[dict[str, F | None], dict[str, F | None]]] = {}
        """Op that owns a block -> the outer facts that the fixpoint read, and the facts of the op's outputs."""

    # -- for subclasses
    def join(self, left: F | None, right: F | None) -> F | None:
        """The fact about a value that is one of two; None stands for a value that was never computed."""
        raise NotImplementedError

    def make(self, op: Operator, index: int, facts: Facts[F]) -> None:
        """Set the facts of the outputs of an op that owns no block."""
        raise NotImplementedError

    def nested(self, op: Operator, index: int) -> Forward[F]:
        """The analysis of the block that an op owns."""
        return self

    def unsettled(self, region: Region, facts: Facts[F]) -> None:
        """Set the facts of the outputs of an op whose block does not settle."""
        raise NotImplementedError

    def first(self, state: State, fact: F | None) -> F | None:
        """The fact about a state in the first run, from the fact about the variable outside."""
        return fact

    def sliced(self, fact: F | None) -> F | None:
        """The fact about a slice, from the fact about the variable."""
        return fact

    def stacked(self, fact: F | None, like: F | None, region: Region, facts: Facts[F]) -> F | None:
        """The fact about the stacked values of all runs; `like` is the fact of the variable that gives the shape if none ran."""
        return fact

    def summed(self, fact: F | None, like: F | None) -> F | None:
        """The fact about the sum of the values of all runs; `like` as for `stacked`."""
        return fact

    def frames(self, region: Region, facts: Facts[F]) -> Mapping[str, F] | None:
        """The facts that the runs of the forward block kept, for a gradient op; None if nothing is known."""
        return {}

    def keep(self, region: Region, before: Mapping[str, F | None], last: Facts[F], facts: Facts[F]) -> None:
        """Set the fact about the variable that keeps what gradient blocks read of each run."""

    # -- the walk
    def block(self, ops: Iterable[Operator], facts: Facts[F]) -> None:
        """Visit the ops of a block in order."""
        for index, op in enumerate(ops):
            self.visit(op, index, facts)

    def visit(self, op: Operator, index: int, facts: Facts[F]) -> None:
        """Visit one op."""
        region = region_of(op)
        if region is None:
            self.make(op, index, facts)
        else:
            self._through(op, index, region, facts)

    def _through(self, op: Operator, index: int, region: Region, facts: Facts[F]) -> None:
        settled = self._settled.get(op)
        if settled is None or any(facts.get(name) != fact for name, fact in settled[0].items()):
            settled = self._settled[op] = self._settle(op, index, region, facts)
        for name, fact in settled[1].items():
            facts.set(name, fact)

    def _settle(
        self, op: Operator, index: int, region: Region, facts: Facts[F]
    ) -> tuple[dict[str, F | None], dict[str, F | None]]:
        """Visit an op's block until the facts no longer change; return the facts that it read and the facts of its outputs."""
        entered: dict[str, F | None] = {}

        def look(name: str) -> F | None:
            if name not in entered:
                entered[name] = facts.get(name)
            return entered[name]

        outside, outputs = Facts(look), Facts(look)
        kept_frames = self.frames(region, outside)
        if kept_frames is None:
            self.unsettled(region, outputs)
            return entered, outputs.here
        frames: Mapping[str, F] = kept_frames
        slices = {inner: self.sliced(outside.get(outer)) for inner, outer in region.slices}
        states = [self.first(state, outside.get(state.first)) for state in region.states]
        carried: dict[str, F | None] = {name: outside.get(name) for name in region.writes} if region.repeats else {}
        analysis = self.nested(op, index)
        for _ in range(self.most_rounds):
            before, states_before = dict(carried), list(states)
            runs = zip(region.states, states, strict=True)
            first = {**{state.before: fact for state, fact in runs}, **slices}
            inner = Facts(self._seen_inside(region, {**frames, **carried}, outside), first)
            analysis.block(region.body.ops, inner)
            for name, fact in inner.here.items():
                if name not in region.body.vars:
                    both = region.may_skip or region.repeats
                    carried[name] = self.join(before.get(name, outside.get(name)), fact) if both else fact
            runs = zip(region.states, states, strict=True)
            states = [fact if state.after == EMPTY else self.join(fact, inner.get(state.after)) for state, fact in runs]
            if not region.repeats or (carried == before and states == states_before):
                break
        else:
            self.unsettled(region, outputs)
            return entered, outputs.here
        for name, fact in carried.items():
            outputs.set(name, fact)
        for output in region.stacked:
            outputs.set(output.name, self.stacked(inner.here.get(output.inner), outside.get(output.like), region, outside))
        for output in region.summed:
            outputs.set(output.name, self.summed(inner.here.get(output.inner), outside.get(output.like)))
        finals = {state.after: fact for state, fact in zip(region.states, states, strict=True) if state.after != EMPTY}
        for output in region.final:
            outputs.set(output.name, finals.get(output.inner, outside.get(output.like)))
        starts = carried if region.repeats else {name: outside.get(name) for name in carried}
        self.keep(region, starts, inner, outputs)
        return entered, outputs.here

    @staticmethod
    def _seen_inside(region: Region, around: Mapping[str, F | None], outside: Facts[F]) -> Callable[[str], F | None]:
        """Look up a name that a run has not written; a name that the block declares has no value yet."""

        def look(name: str) -> F | None:
            if name in region.body.vars:
                return None
            return around[name] if name in around else outside.get(name)

        return look


# ------------------------------------------------------------------------------------------------------------ backward
def reads_of(versions: BlockVersions, index: int) -> dict[Value, bool]:
    """The values that an op, or a block that it owns, reads or may leave unchanged -> whether only their shape is read."""
    op = versions.ops[index]
    definition = op.definition
    only_shape: dict[Value, bool] = {}
    for slot, _, value in versions.read_at(index):
        described = definition.inputs.get(slot) if definition is not None else None
        only_shape[value] = only_shape.get(value, True) and described is not None and described.shape_only
    if definition is None or op.sub_blocks:
        names = {name: None for sub in op.sub_blocks for part in outer_names(sub) for name in part}
        only_shape.update((versions.before(name, index), False) for name in (*names, *op.output_arg_names) if name != EMPTY)
    return only_shape


def needed_ops(
    versions: BlockVersions,
    needed: set[Value],
    reads: Callable[[int], Iterable[Value]] | None = None,
    also: Callable[[Operator], bool] = lambda op: False,
    carried: Mapping[str, str] | None = None,
) -> list[int]:
    """The positions, in order, of the ops of a block on which the values `needed` depend; adds what these read to `needed`.

    Args:
        reads: the values that the op at a position needs; by default, `reads_of` it.
        also: whether an op is needed whatever it writes.
        carried: `Region.carried` of a block that runs repeatedly.
    """
    reads = reads or (lambda index: reads_of(versions, index))
    while True:
        positions = []
        for index in range(len(versions.ops) - 1, -1, -1):
            if any(value in needed for _, _, value in versions.written_at(index)) or also(versions.ops[index]):
                positions.append(index)
                needed.update(reads(index))
        more = {versions.current(after) for before, after in (carried or {}).items() if (before, 0) in needed} - needed
        if not more:
            return positions[::-1]
        needed |= more
