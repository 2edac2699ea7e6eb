"""One run of a block: what goes into it, what comes out, and what is kept of it for gradients."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from fluid.executor.stepwise.interpreter import Captured
from fluid.ir.program import Operator
from fluid.ir.regions import region_of
from fluid.ir.versions import outer_names
from fluid.opdef.registry import EMPTY
from fluid.values.spec import Spec
from fluid.values.types import VarType

from .arrays import added_arrays, empty_array, is_array
from .graph import Graph, NotExported, Tensor
from .making import filled, zeros_like
from .program import Names, Writer

__all__ = ["Frames", "Run", "scalar"]


def _with_lengths(value: Tensor, lengths: Tensor) -> None:
    """Tell that the rows of a value form sequences of these lengths."""
    value.lengths, value.spec = lengths, value.spec.with_lod((None,))
    value.sizes = (value.graph.rows_of(lengths), *value.sizes[1:])


@dataclass
class Frames:
    """What is kept of the runs of a block.

    Attributes:
        count: the number of runs, int64 of shape [1]; of a branch, None.
        taken: of a branch: whether it ran, a bool of shape [].
        values: name -> its values: stacked, those of a branch as they are.
        nested: name of the variable of step scopes -> what is kept of the runs of a block inside.
        lengths: name -> the lengths of its sequences, of values that have some.
        absent: names of what ops leave out.
    """

    count: Tensor | None
    taken: Tensor | None
    values: dict[str, Tensor] = field(default_factory=dict)
    nested: dict[str, Frames] = field(default_factory=dict)
    lengths: dict[str, Tensor] = field(default_factory=dict)
    absent: list[str] = field(default_factory=list)

    def keep(self, name: str, value: Tensor) -> None:
        """Keep a value, with the lengths of its sequences."""
        self.values[name] = value
        if value.lengths is not None:
            self.lengths[name] = value.lengths

    def parts(self) -> list[Tensor]:
        """All tensors, in an order that `of_parts` knows."""
        own = [each for each in (self.count, self.taken) if each is not None]
        return [
            *own,
            *self.values.values(),
            *self.lengths.values(),
            *(part for frames in self.nested.values() for part in frames.parts()),
        ]

    def of_parts(self, parts: Iterable[Tensor]) -> Frames:
        """Frames like these, of other tensors."""
        rest = iter(parts)
        count = next(rest) if self.count is not None else None
        taken = next(rest) if self.taken is not None else None
        values = {name: next(rest) for name in self.values}
        lengths = {name: next(rest) for name in self.lengths}
        nested = {name: frames.of_parts([next(rest) for _ in frames.parts()]) for name, frames in self.nested.items()}
        return Frames(count, taken, values, nested, lengths, self.absent)

    def tell(self, names: Names) -> None:
        """Let names stand for the values, and step scopes for what is kept inside."""
        names.frames.update(self.nested)
        names.values.update(dict.fromkeys(self.absent))
        for name, value in self.values.items():
            lengths = self.lengths.get(name)
            if lengths is not None:
                _with_lengths(value, lengths)
            names.values[name] = value


def scalar(g: Graph, x: Tensor) -> Tensor:
    """One number, of shape []."""
    return x if not x.ndim else g.reshape(x, [])


class Run:
    """The block of an op as a graph inside of a node.

    Attributes:
        carried: names outside that the block overwrites.
        firsts: what goes into the first run: the values of these, of the states, and zeros for what is summed.
    """

    def __init__(self, writer: Writer, op: Operator, names: Names) -> None:
        region = region_of(op)
        assert region is not None
        self.writer, self.op, self.names, self.region, self.graph = writer, op, names, region, writer.graph
        captures = writer.captures
        self.captured: Captured = captures.get(region.scopes, Captured()) if region.scopes is not None else Captured()
        self.past: Frames | None = writer.frames_of(region.frames, names) if region.frames is not None else None
        forward = region.forward.vars if region.forward is not None else {}
        states = {state.before for state in region.states} | {inner for inner, _ in region.slices}
        written = [name for name in outer_names(region.body)[1] if name not in forward and name not in states]
        inside = {taken.inner for taken in (*region.stacked, *region.summed, *region.final)} - set(region.writes)
        written += [name for name in region.writes if name not in written]
        self.carried = [name for name in dict.fromkeys(written) if name not in inside and self._is_value(name)]
        self.summed = [taken for taken in region.summed if EMPTY not in (taken.inner, taken.name)]
        self.stacked = [taken for taken in region.stacked if EMPTY not in (taken.inner, taken.name)]
        self.firsts = [self._first(name) for name in self.carried]
        self.firsts += [self._first_state(state.first, state.from_zero) for state in region.states]
        self.firsts += [self._zeros(taken.like) for taken in self.summed]

    def _is_value(self, name: str) -> bool:
        var = self.op.block.find_var(name)
        return var is not None and var.type in (VarType.LOD_TENSOR, VarType.LOD_TENSOR_ARRAY, VarType.SELECTED_ROWS)

    # -- first values
    def _first(self, name: str) -> Tensor:
        value = self.names.get(name)
        return self._nothing(name) if value is None else value

    def _nothing(self, name: str) -> Tensor:
        """What stands for a value that is not there before the block has run."""
        var = self.op.block.find_var(name)
        assert var is not None
        if var.type is VarType.LOD_TENSOR_ARRAY:
            return empty_array(self.graph, var.spec)
        shape = tuple(max(size, 0) for size in var.shape) if var.has_shape else ()
        return self.graph.identity(filled(self.graph, self.graph.ints(*shape), 0, Spec(shape, var.spec.dtype)))

    def _first_state(self, name: str, from_zero: bool) -> Tensor:
        return self._zeros(name) if from_zero else self._first(name)

    def _zeros(self, name: str) -> Tensor:
        value = self._first(name)
        if is_array(value):
            return empty_array(self.graph, value.spec)
        zeros = zeros_like(self.graph, value)
        if value.lengths is not None:
            _with_lengths(zeros, value.lengths)
        return zeros

    # -- the block
    def write(
        self, starts: Sequence[Tensor], slices: dict[str, Tensor], frames: Frames | None
    ) -> tuple[list[Tensor], list[Tensor], Frames]:
        """Write the block into the present scope.

        Args:
            starts: the values that correspond to `firsts`.
            slices: name inside -> this run's slice.
            frames: what was kept of this run of the forward block.

        Returns:
            What goes into the next run; what is stacked; and what is to be kept of this run.
        """
        region, writer, g = self.region, self.writer, self.graph
        outside = self.names
        if frames is not None and region.forward is not None:
            outside = Names(region.forward, self.names)
            frames.tell(outside)
        names = Names(region.body, outside)
        count = len(self.carried)
        names.values.update(zip(self.carried, starts, strict=False))
        for state, value in zip(region.states, starts[count:], strict=False):
            if state.before != EMPTY:
                names.values[state.before] = value
        names.values.update(slices)
        keeps = [name for name in self.captured.carried if names.has(name)]
        before = {name: self._kept(names, name) for name in keeps}
        writer.ops(region.body.ops, names)
        ends = [self._value(names, name, place) for place, name in enumerate(self.carried)]
        for place, state in enumerate(region.states):
            if state.after == EMPTY:
                ends.append(self._zeros(state.first))
            else:
                ends.append(self._value(names, state.after, count + place))
        totals = starts[count + len(region.states) :]
        for taken, total in zip(self.summed, totals, strict=True):
            part = self._needed(names, taken.inner)
            # As `Add`, onnxruntime would fuse it with a product before it, whose operands it then misses in a Scan.
            ends.append(added_arrays(g, total, part) if is_array(part) else g.binary("Sum", total, part))
        stacks = [self._needed(names, taken.inner) for taken in self.stacked]
        kept = Frames(None, None)
        for name, value in before.items():
            kept.keep(name, value)
        for name in sorted(self.captured.local):
            if name in names.frames:
                kept.nested[name] = names.frames[name]
            elif names.get(name) is not None:
                kept.keep(name, self._kept(names, name))
            elif names.has(name):
                kept.absent.append(name)
        return ends, stacks, kept

    def _kept(self, names: Names, name: str) -> Tensor:
        value = names.get(name)
        assert value is not None
        if is_array(value):
            raise NotExported(f"{name}, an array of tensors of which a gradient reads what it was in each run")
        return value

    def _needed(self, names: Names, name: str) -> Tensor:
        value = names.get(name)
        if value is None:
            raise NotExported(f"the block leaves no {name}")
        return value

    def _value(self, names: Names, name: str, place: int) -> Tensor:
        """A value at the end of a run, of the rank that the first one has."""
        value = self._needed(names, name)
        first = self.firsts[place]
        if not is_array(value) and value.ndim != first.ndim and value.spec.size == 1:
            value = self.graph.reshape(value, [1] * first.ndim)
        return value

    # -- results
    def finish(self, lasts: Sequence[Tensor], stacks: Sequence[Tensor]) -> None:
        """Bind what the node gives to the names outside."""
        region, names = self.region, self.names
        count = len(self.carried)
        sums = count + len(region.states)
        for place, (first, value) in enumerate(zip(self.firsts, lasts, strict=True)):  # also gradients of what has sequences
            if first.lengths is not None and (place >= sums or first.sizes[:1] == value.sizes[:1]):
                _with_lengths(value, first.lengths)
        for name, value in zip(self.carried, lasts, strict=False):
            names.set(name, value)
        finals = {state.after: value for state, value in zip(region.states, lasts[count:], strict=False)}
        for taken in region.final:
            if taken.name != EMPTY:
                names.set(taken.name, finals[taken.inner] if taken.inner in finals else self._zeros(taken.like))
        for taken, value in zip(self.summed, lasts[count + len(region.states) :], strict=True):
            names.set(taken.name, value)
        for taken in region.summed:
            if taken.inner == EMPTY and taken.name != EMPTY:
                names.set(taken.name, self._zeros(taken.like))
        for taken, value in zip(self.stacked, stacks, strict=True):
            names.set(taken.name, value)
        for taken in region.stacked:
            if taken.inner == EMPTY and taken.name != EMPTY:
                names.set(taken.name, self._zeros(taken.like))
