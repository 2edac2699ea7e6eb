"""One run of a block: its inputs, its outputs, and the frame that it records for gradients."""

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
from .graph import NotExported, OnnxGraph, OnnxTensor
from .making import filled, zeros_like
from .program import Names, ProgramWriter


def _with_lengths(value: OnnxTensor, lengths: OnnxTensor) -> None:
    """Mark the rows of a value as sequences of these lengths."""
    value.lengths, value.spec = lengths, value.spec.with_lod((None,))
    value.sizes = (value.graph.rows_of(lengths), *value.sizes[1:])


@dataclass
class BlockFrames:
    """The values that a block's runs record for gradients.

    Attributes:
        count: the number of runs, int64 of shape [1]; of a branch, None.
        condition: of a branch: whether it ran, a bool of shape [].
        values: name -> its values, stacked; a branch's values are not stacked.
        nested: name of the variable of step scopes -> the frames of an inner block.
        lengths: name -> the lengths of its sequences, for values with sequences.
        absent: names of outputs that ops leave out.
    """

    count: OnnxTensor | None
    condition: OnnxTensor | None
    values: dict[str, OnnxTensor] = field(default_factory=dict)
    nested: dict[str, BlockFrames] = field(default_factory=dict)
    lengths: dict[str, OnnxTensor] = field(default_factory=dict)
    absent: list[str] = field(default_factory=list)

    def keep(self, name: str, value: OnnxTensor) -> None:
        """Record a value, with the lengths of its sequences."""
        self.values[name] = value
        if value.lengths is not None:
            self.lengths[name] = value.lengths

    def parts(self) -> list[OnnxTensor]:
        """All tensors, in an order that `of_parts` knows."""
        header = [tensor for tensor in (self.count, self.condition) if tensor is not None]
        return [
            *header,
            *self.values.values(),
            *self.lengths.values(),
            *(part for frames in self.nested.values() for part in frames.parts()),
        ]

    def of_parts(self, parts: Iterable[OnnxTensor]) -> BlockFrames:
        """Frames with the same structure and other tensors."""
        remaining = iter(parts)
        count = next(remaining) if self.count is not None else None
        condition = next(remaining) if self.condition is not None else None
        values = {name: next(remaining) for name in self.values}
        lengths = {name: next(remaining) for name in self.lengths}
        nested = {name: frames.of_parts([next(remaining) for _ in frames.parts()]) for name, frames in self.nested.items()}
        return BlockFrames(count, condition, values, nested, lengths, self.absent)

    def tell(self, names: Names) -> None:
        """Bind names to the values, and step scopes to the nested frames."""
        names.frames.update(self.nested)
        names.values.update(dict.fromkeys(self.absent))
        for name, value in self.values.items():
            lengths = self.lengths.get(name)
            if lengths is not None:
                _with_lengths(value, lengths)
            names.values[name] = value


def scalar(g: OnnxGraph, x: OnnxTensor) -> OnnxTensor:
    """Reshape one number to shape []."""
    return x if not x.ndim else g.reshape(x, [])


class Run:
    """The block of an op as a graph inside a node.

    Attributes:
        carried: outer names that the block overwrites.
        firsts: inputs of the first run: values of `carried`, values of the states, and zeros for sums.
    """

    def __init__(self, writer: ProgramWriter, op: Operator, names: Names) -> None:
        region = region_of(op)
        assert region is not None
        self.writer, self.op, self.names, self.region, self.graph = writer, op, names, region, writer.graph
        captures = writer.captures
        self.captured: Captured = captures.get(region.scopes, Captured()) if region.scopes is not None else Captured()
        self.past: BlockFrames | None = writer.frames_of(region.frames, names) if region.frames is not None else None
        forward = region.forward.vars if region.forward is not None else {}
        states = {state.before for state in region.states} | {inner for inner, _ in region.slices}
        overwritten = [name for name in outer_names(region.body)[1] if name not in forward and name not in states]
        inner_names = {binding.inner for binding in (*region.stacked, *region.summed, *region.final)} - set(region.writes)
        overwritten += [name for name in region.writes if name not in overwritten]
        self.carried = [name for name in dict.fromkeys(overwritten) if name not in inner_names and self._is_value(name)]
        self.summed = [binding for binding in region.summed if EMPTY not in (binding.inner, binding.name)]
        self.stacked = [binding for binding in region.stacked if EMPTY not in (binding.inner, binding.name)]
        self.firsts = [self._first(name) for name in self.carried]
        self.firsts += [self._first_state(state.first, state.from_zero) for state in region.states]
        self.firsts += [self._zeros(binding.like) for binding in self.summed]

    def _is_value(self, name: str) -> bool:
        var = self.op.block.find_var(name)
        return var is not None and var.type in (VarType.LOD_TENSOR, VarType.LOD_TENSOR_ARRAY, VarType.SELECTED_ROWS)

    # -- first values
    def _first(self, name: str) -> OnnxTensor:
        value = self.names.get(name)
        return self._nothing(name) if value is None else value

    def _nothing(self, name: str) -> OnnxTensor:
        """The placeholder of a value that does not exist before the block runs."""
        var = self.op.block.find_var(name)
        assert var is not None
        if var.type is VarType.LOD_TENSOR_ARRAY:
            return empty_array(self.graph, var.spec)
        shape = tuple(max(size, 0) for size in var.shape) if var.has_shape else ()
        return self.graph.identity(filled(self.graph, self.graph.ints(*shape), 0, Spec(shape, var.spec.dtype)))

    def _first_state(self, name: str, from_zero: bool) -> OnnxTensor:
        return self._zeros(name) if from_zero else self._first(name)

    def _zeros(self, name: str) -> OnnxTensor:
        value = self._first(name)
        if is_array(value):
            return empty_array(self.graph, value.spec)
        zeros = zeros_like(self.graph, value)
        if value.lengths is not None:
            _with_lengths(zeros, value.lengths)
        return zeros

    # -- the block
    def write(
        self, starts: Sequence[OnnxTensor], slices: dict[str, OnnxTensor], frames: BlockFrames | None
    ) -> tuple[list[OnnxTensor], list[OnnxTensor], BlockFrames]:
        """Write the block into the current scope.

        Args:
            starts: the values that correspond to `firsts`.
            slices: inner name -> this run's slice.
            frames: the frame of this run of the forward block.

        Returns:
            The inputs of the next run; the values to stack; and this run's frame.
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
        before = {name: self._recordable(names, name) for name in keeps}
        writer.ops(region.body.ops, names)
        ends = [self._value(names, name, place) for place, name in enumerate(self.carried)]
        for place, state in enumerate(region.states):
            if state.after == EMPTY:
                ends.append(self._zeros(state.first))
            else:
                ends.append(self._value(names, state.after, count + place))
        totals = starts[count + len(region.states) :]
        for binding, total in zip(self.summed, totals, strict=True):
            part = self._needed(names, binding.inner)
            # onnxruntime would fuse an `Add` with a product before it, and then miss the product's operands in a Scan.
            ends.append(added_arrays(g, total, part) if is_array(part) else g.binary("Sum", total, part))
        stacks = [self._needed(names, binding.inner) for binding in self.stacked]
        recorded = BlockFrames(None, None)
        for name, value in before.items():
            recorded.keep(name, value)
        for name in sorted(self.captured.local):
            if name in names.frames:
                recorded.nested[name] = names.frames[name]
            elif names.get(name) is not None:
                recorded.keep(name, self._recordable(names, name))
            elif names.has(name):
                recorded.absent.append(name)
        return ends, stacks, recorded

    def _recordable(self, names: Names, name: str) -> OnnxTensor:
        value = names.get(name)
        assert value is not None
        if is_array(value):
            raise NotExported(f"{name}, an array of tensors of which a gradient reads what it was in each run")
        return value

    def _needed(self, names: Names, name: str) -> OnnxTensor:
        value = names.get(name)
        if value is None:
            raise NotExported(f"the block leaves no {name}")
        return value

    def _value(self, names: Names, name: str, place: int) -> OnnxTensor:
        """A value at the end of a run, with the rank of its first value."""
        value = self._needed(names, name)
        first = self.firsts[place]
        if not is_array(value) and value.ndim != first.ndim and value.spec.size == 1:
            value = self.graph.reshape(value, [1] * first.ndim)
        return value

    # -- results
    def finish(self, lasts: Sequence[OnnxTensor], stacks: Sequence[OnnxTensor]) -> None:
        """Bind the node's results to the outer names."""
        region, names = self.region, self.names
        count = len(self.carried)
        sums = count + len(region.states)
        for place, (first, value) in enumerate(zip(self.firsts, lasts, strict=True)):  # gradients of sequences, too
            if first.lengths is not None and (place >= sums or first.sizes[:1] == value.sizes[:1]):
                _with_lengths(value, first.lengths)
        for name, value in zip(self.carried, lasts, strict=False):
            names.set(name, value)
        finals = {state.after: value for state, value in zip(region.states, lasts[count:], strict=False)}
        for binding in region.final:
            if binding.name != EMPTY:
                names.set(binding.name, finals[binding.inner] if binding.inner in finals else self._zeros(binding.like))
        for binding, value in zip(self.summed, lasts[count + len(region.states) :], strict=True):
            names.set(binding.name, value)
        for binding in region.summed:
            if binding.inner == EMPTY and binding.name != EMPTY:
                names.set(binding.name, self._zeros(binding.like))
        for binding, value in zip(self.stacked, stacks, strict=True):
            names.set(binding.name, value)
        for binding in region.stacked:
            if binding.inner == EMPTY and binding.name != EMPTY:
                names.set(binding.name, self._zeros(binding.like))
