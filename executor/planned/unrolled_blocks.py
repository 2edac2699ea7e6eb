"""Unroll loops in the blocks of loops, where gradients read what their trips leave.

A gradient reads the step scopes of the inner loop, of each trip of the outer one. Native code has no memory for these. So if the
number of its trips is known, the inner loop gives way to the ops of all trips, and its gradient, too. Their values are variables
of the outer loop's block then, which native code saves for gradients.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from fluid.ir.copying import copy_op, copy_to_rewrite, declare_like
from fluid.ir.nesting import declares_inside
from fluid.ir.program import Operator, Program, Variable
from fluid.ir.regions import Region, region_of
from fluid.opdef.registry import EMPTY
from fluid.values.types import VarType

from ..stepwise.interpreter import Captured, step_captures
from .trip_counts import count_trips

__all__ = ["has_unrolled", "with_unrolled_blocks"]

_PREFIX = "unrolled."
"""Prefix of the names of new variables."""
_MOST_OPS = 256
"""The most ops of an unrolled loop."""


def with_unrolled_blocks(program: Program) -> Program | None:
    """Copy a program with loops in blocks of loops unrolled, if gradients read their step scopes; None if there are none."""
    if not _inner_loops(program) or next(_pairs(program), None) is None:
        return None
    copy = copy_to_rewrite(program)
    while (pair := next(_pairs(copy), None)) is not None:
        forward, backward, trips = pair
        frames = _Unroller(forward, trips, {}).unroll()
        _Unroller(backward, trips, frames).unroll()
    return copy


def has_unrolled(op: Operator) -> bool:
    """Whether an op owns a block with an unrolled loop."""
    return declares_inside(op, _PREFIX)


def _inner_loops(program: Program) -> list[Operator]:
    """The loops in blocks of a program."""
    return [op for block in program.blocks[1:] for op in block.ops if op.type in ("while", "recurrent")]


def _pairs(program: Program) -> Iterator[tuple[Operator, Operator, int]]:
    """Each loop to unroll, its gradient, and the number of their trips."""
    captured = step_captures(program)
    return (pair for op in _inner_loops(program) if (pair := _pair(op, captured)) is not None)


def _pair(op: Operator, captured: Mapping[str, Captured]) -> tuple[Operator, Operator, int] | None:
    """A loop, its gradient, and the number of their trips; None if they stay loops."""
    region = region_of(op)
    assert region is not None, "a loop owns a block"
    steps = captured.get(region.scopes or "")
    if steps is None or steps.carried & {*region.writes} or not _is_plain(region):
        return None
    readers = [reader for block in op.block.program.blocks for reader in block.ops if region.scopes in reader.input_arg_names]
    backward = region_of(readers[0]) if len(readers) == 1 else None
    if backward is None or backward.frames != region.scopes or backward.scopes is not None or not _is_plain(backward):
        return None
    trips = _count_trips(op, region)
    if not trips or trips * max(len(region.body.ops), len(backward.body.ops)) > _MOST_OPS:
        return None
    return op, readers[0], trips


def _is_plain(region: Region) -> bool:
    """Whether a block computes tensors from tensors, by ops that own no blocks and draw no numbers."""
    for op in region.body.ops:
        definition = op.definition
        if definition is None or op.sub_blocks or definition.is_random:
            return False
    parts = (*region.stacked, *region.summed, *region.final)
    if any(part.inner == EMPTY for part in parts if part.name != EMPTY):
        return False
    names = {name for op in region.body.ops for name in (*op.input_arg_names, *op.output_arg_names)} - {EMPTY}
    variables = [region.body.find_var(name) for name in names]
    return all(var is not None and var.type is VarType.LOD_TENSOR and not var.lod_level for var in variables)


def _count_trips(op: Operator, region: Region) -> int | None:
    """Count the trips of a loop; None if values decide."""
    if op.type == "while":
        return count_trips(op, region, _MOST_OPS)
    sequences = [op.block.find_var(outer) for _, outer in region.slices]
    lengths = {var.shape[0] if var is not None and var.has_shape and var.shape else -1 for var in sequences}
    return lengths.pop() if len(lengths) == 1 and -1 not in lengths else None


@dataclass
class _Unroller:
    """Puts the ops of all trips in the place of a loop.

    Args:
        op: the loop, or the gradient of one.
        trips: their number.
        frames: for a gradient, number of a trip of the forward loop -> name in its block -> its variable.
    """

    op: Operator
    trips: int
    frames: Mapping[int, Mapping[str, str]]
    _ops: list[Operator] = field(default_factory=list)

    def unroll(self) -> dict[int, dict[str, str]]:
        """Unroll the loop; returns `frames` for its gradient."""
        region, block = region_of(self.op), self.op.block
        assert region is not None, "a loop owns a block"
        is_reversed = bool(self.op.attrs.get("reverse")) != (region.frames is not None)
        states = [self._zeros_like(state.first) if state.from_zero else state.first for state in region.states]
        frames = dict[int, dict[str, str]]()
        for number in reversed(range(self.trips)) if is_reversed else range(self.trips):
            frames[number] = self._locals(region, number, states)
            names = {**self.frames.get(number, {}), **frames[number]}
            self._ops += [copy_op(op, block, names) for op in region.body.ops]
            states = [
                self._zeros_like(state.first) if state.after == EMPTY else names.get(state.after, state.after)
                for state in region.states
            ]
        self._add_results(region, frames, states)
        place = block.ops.index(self.op)
        block.ops[place : place + 1] = self._ops
        return frames

    def _add_results(self, region: Region, frames: Mapping[int, Mapping[str, str]], states: Collection[str]) -> None:
        """Add the ops that give the results of the loop: stacks and sums of all trips, and last states."""
        for part in region.stacked:
            if part.name != EMPTY:
                parts = [frames[number][part.inner] for number in sorted(frames)]
                self._add("stack", {"X": parts}, {"Y": [part.name]}, {"axis": 0})
        for part in region.summed:
            if part.name != EMPTY:
                self._add("sum", {"X": [names[part.inner] for names in frames.values()]}, {"Out": [part.name]})
        last = {state.after: value for state, value in zip(region.states, states, strict=True)}
        for part in region.final:
            if part.name != EMPTY:
                self._add("assign", {"X": [last[part.inner]]}, {"Out": [part.name]})

    def _zeros_like(self, name: str) -> str:
        return self._computed("fill_zeros_like", "X", [name])

    def _locals(self, region: Region, number: int, states: Collection[str]) -> dict[str, str]:
        """Name in the block -> its variable in a trip; adds the ops that give the states and the parts of sequences."""
        names = {name: self._declared(name, var) for name, var in region.body.vars.items()}
        befores = [state.before for state in region.states]
        for name, value in zip(befores, states, strict=True):
            if name != EMPTY:
                names[name] = self._computed("assign", "X", [value])
        for name, sequence in region.slices:
            attrs = {"axes": [0], "starts": [number], "ends": [number + 1], "decrease_axis": [0]}
            part = self._computed("slice", "Input", [sequence], attrs)
            names[name] = self._computed("sum", "X", [names[name], part]) if name in befores else part
        return names

    def _declared(self, name: str, like: Variable) -> str:
        """Declare a variable in the block around the loop."""
        block = self.op.block
        return declare_like(block, block.program.fresh_name(f"{_PREFIX}{name}"), like).name

    def _computed(self, kind: str, slot: str, names: list[str], attrs: Mapping[str, Any] | None = None) -> str:
        """Add an op; returns the variable with its result."""
        source = self.op.block.find_var(names[0])
        assert source is not None, "inputs are declared"
        result = self._declared(names[0], source)
        self.op.block.vars[result]._shape = None
        self._add(kind, {slot: names}, {"Out": [result]}, attrs)
        return result

    def _add(
        self, kind: str, inputs: dict[str, list[str]], outputs: dict[str, list[str]], attrs: Mapping[str, Any] | None = None
    ) -> None:
        self._ops.append(Operator(self.op.block, kind, inputs, outputs, dict(attrs or {}), self.op.frames))
