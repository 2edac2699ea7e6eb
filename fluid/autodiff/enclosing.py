"""Gradients of targets inside loops and branches.

The gradient ops go to the block of the target, and run with it. Where the target depends on variables that the block reads from
outside, the reverse walk goes on through the blocks around it, as far as they are built: all gradient ops are appended to the
target's block.

A loop runs its block several times, and a trip sees what earlier trips wrote. Gradients inside it cover the current trip alone.
When the loop is complete, it is refused if that is not the whole gradient (`_LoopCheck`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from ..errors import BackwardError, locate
from ..ir.nesting import outwards
from ..ir.program import Block, Operator, OpRole
from ..ir.regions import Region, region_of
from ..ir.renaming import redirect
from ..ir.versions import BlockVersions, Value
from .regions import live_values
from .reverse import Callback, Differentiator


def start_version(versions: BlockVersions, name: str, end: int) -> Value:
    """The version of `name` to differentiate by: the first one, as fed, or the last one that an optimizer wrote before `end`."""
    version = 0
    var = versions.block.find_var(name)
    if versions.last.get(name, 0) and var is not None and not (var.persistable or var.is_data):
        version = 0 if name in versions.read_first else 1
    for later in range(version + 1, versions.last.get(name, 0) + 1):
        writer = versions.writer[(name, later)]
        if writer < end and (versions.ops[writer].type == "feed" or versions.ops[writer].role & OpRole.OPTIMIZE):
            version = later
    return name, version


class EnclosingBlocks:
    """The walkers of a block and of the blocks around it, innermost first. All append to the innermost block.

    Args:
        block: the block of the targets.
        no_grad: names through which no gradient flows.
        callbacks: see `Differentiator`.

    Attributes:
        walkers: one for each block.
        inner: the walker of `block`.
    """

    def __init__(self, block: Block, no_grad: frozenset[str], callbacks: Sequence[Callback] = ()) -> None:
        self.walkers = [Differentiator(enclosing, block, no_grad, callbacks) for enclosing in outwards(block)]
        self.inner = self.walkers[0]
        self._starts: dict[str, tuple[int, Value]] = {}
        self._seeded: list[list[Value]] = [[] for _ in self.walkers]
        self._appended: list[list[Operator]] = [[] for _ in self.walkers]

    def mark_varied(self, names: Iterable[str], end: int) -> None:
        """Mark the values that depend on variables; the targets are complete before op number `end` of the innermost block."""
        self._starts = {name: self._find_start(name, end) for name in names}
        outer: Differentiator | None = None
        for number, walker in reversed([*enumerate(self.walkers)]):
            seeds = [start for home, start in self._starts.values() if home == number]
            if outer is not None:
                seeds += [(name, 0) for name in _varied_at_end(outer) if name not in walker.block.vars]
            walker.mark_varied((seed for seed in seeds if not walker.stops_gradient(seed[0])), None if number else end)
            outer = walker

    def _find_start(self, name: str, end: int) -> tuple[int, Value]:
        """Find the walker and the value to start from, in the innermost block that declares or writes the variable."""
        for number, walker in enumerate(self.walkers):
            value = walker.versions.current(name) if number else start_version(walker.versions, name, end)
            if value[1] or name in walker.block.vars:
                break
        return number, value

    def walk_outwards(self) -> None:
        """Append the gradient ops of the blocks around the innermost one, which has been walked."""
        ops = self.inner.out.ops
        for number, (walker, outer) in enumerate(pairwise(self.walkers), 1):
            for name, version in sorted(walker.varied):
                value = outer.versions.current(name)
                if not version and name not in walker.block.vars and value in outer.varied:
                    gradient = walker.gradient((name, 0))
                    if gradient is not None:
                        outer.seed(value, gradient)
                        self._seeded[number].append(value)
            first = len(ops)
            outer.walk()
            self._appended[number] = ops[first:]
            for op in self._appended[number]:
                self._read_saved(op, self.walkers[:number])

    @staticmethod
    def _read_saved(op: Operator, walkers: Sequence[Differentiator]) -> None:
        """Make a gradient op read copies of the outer variables that inner blocks have overwritten."""
        saved = {}
        for walker in walkers:
            for name in op.input_arg_names:
                if walker.versions.last.get(name) and name not in walker.block.vars:
                    saved[name] = walker.name_of((name, 0))  # the outermost block overwrites it first, and comes last
        redirect(op, saved)

    def gradient(self, name: str) -> str | None:
        """The variable with the gradient with respect to one of the names of `mark_varied`; None for zero."""
        number, start = self._starts[name]
        return self.walkers[number].gradient(start)

    def check_loops(self, targets: Sequence[Value]) -> None:
        """Let each loop around the targets, values of the innermost block, be checked when it is complete."""
        self._seeded[0] = [*targets]
        for number, walker in enumerate(self.walkers[:-1]):
            starts = [name for name, (home, _) in self._starts.items() if home > number]
            read = {name for ops in self._appended[number + 1 :] for op in ops for name in op.input_arg_names}
            fixed = frozenset({*read, *starts} if read else ())
            sources = _varied_at_end(self.walkers[number + 1])
            walker.block.checks.append(_LoopCheck(walker.no_grad, starts, self._seeded[number], fixed, sources))


def _varied_at_end(walker: Differentiator) -> list[str]:
    """The names whose last values in a block are varied, in order."""
    return sorted({name for name, _ in walker.varied if walker.versions.current(name) in walker.varied})


@dataclass(frozen=True)
class _LoopCheck:
    """Called with the op that owns a block with gradients; raises an error if a loop makes them incomplete.

    Attributes:
        no_grad: names through which no gradient flows.
        starts: the variables outside whose gradients are wanted.
        targets: the values of the block that it differentiates.
        fixed: variables outside that the gradient ops take to be the same in all trips.
        sources: variables outside that depend on `starts`.
    """

    no_grad: frozenset[str]
    starts: Sequence[str]
    targets: Sequence[Value]
    fixed: frozenset[str]
    sources: Sequence[str]

    def __call__(self, op: Operator) -> None:
        region = region_of(op)
        if region is None or not (region.repeats or region.states or region.slices):
            return
        overwritten = sorted(self.fixed.intersection(region.writes))
        if overwritten:
            raise BackwardError(
                f"a gradient inside {op.type} goes back to operators before the loop, which read {overwritten[0]}, but the loop "
                f"overwrites it; compute in the loop what the target depends on, or set stop_gradient on it\n{locate(op)}"
            )
        missed = sorted(self._missed(region))
        if missed:
            name = missed[0]
            raise BackwardError(
                f"a gradient inside {op.type} would have to go on through {name} to earlier trips, or to operators before the "
                f"loop; take the target out of the loop, or set stop_gradient on {name} to leave that part out\n{locate(op)}"
            )

    def _missed(self, region: Region) -> set[str]:
        """Names through which the targets depend on `starts` by way of earlier trips, slices or initial states."""
        walker = Differentiator(region.body, region.body, self.no_grad)
        carried = {before: after for before, after in region.carried.items() if before not in self.starts}
        varied = {(name, 0) for name in self.starts if name not in region.writes}
        hidden = {(inner, 0) for name in self.sources for inner in region.entering(name) if inner in region.body.vars}
        while True:
            walker.mark_varied(value for value in varied | hidden if not walker.stops_gradient(value[0]))
            more = {(before, 0) for before, after in carried.items() if walker.versions.current(after) in walker.varied} - hidden
            if not more:
                return {name for name, _ in hidden & live_values(walker, self.targets, {})}
            hidden |= more
