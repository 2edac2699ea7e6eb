"""Write ops with blocks: loops as `Loop`, branches as `If`, recurrences as `Scan`, and their gradients likewise.

A block becomes a graph inside a node. Outer values that it overwrites enter each run and leave it. Values that gradient blocks
read of each run (the frames) come out stacked; the gradient's node reads the stacks from the last run to the first.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from fluid.ir.program import Operator
from fluid.opdef.registry import EMPTY
from fluid.values.spec import Spec, agreed_sizes
from fluid.values.types import VarType

from .arrays import empty_array, insert, is_array, read
from .graph import GraphScope, NotExported, OnnxGraph, OnnxTensor, Size, Symbol, without_symbols
from .making import filled
from .program import Names, ProgramWriter, handles
from .runs import BlockFrames, Run, scalar
from .shaping import reverse

_MOST_ROUNDS = 8
"""The most times to write a block's graph again because shapes differ between runs."""


# ------------------------------------------------------------------------------------------------------------- branches
def _rescued(g: OnnxGraph, spec: Spec) -> OnnxTensor:
    """Zeros in place of a block's value, for the branch that does not run."""
    if spec.type is VarType.LOD_TENSOR_ARRAY:
        return empty_array(g, spec)
    shape = tuple(max(size, 0) for size in spec.shape)
    return filled(g, g.ints(*shape), 0, Spec(shape, spec.dtype))


def _write_branch(run: Run, condition: OnnxTensor, past: BlockFrames | None) -> None:
    g = run.graph
    if condition.value is not None:
        _write_known_branch(run, condition, past)
        return
    with g.inner_graph() as then_scope:
        ends, stacks, recorded = run.write(run.firsts, {}, past)
        parts = recorded.parts()
        then_scope.outputs = [g.identity(value) for value in (*ends, *parts)]
        if stacks:
            raise NotExported("stacked values of a branch")
    with g.inner_graph() as else_scope:
        placeholders = [*run.firsts, *(_rescued(g, part.spec) for part in parts)]
        else_scope.outputs = [g.identity(value) for value in placeholders]
    specs, sizes = [], []
    for yes_value, no_value in zip(then_scope.outputs, else_scope.outputs, strict=True):
        same = yes_value.ndim == no_value.ndim
        size = agreed_sizes(yes_value.sizes, no_value.sizes) if same else (-1,) * yes_value.ndim
        sizes.append(size)
        specs.append(replace(yes_value.spec, shape=without_symbols(size)))
    results = g.nodes("If", [condition], specs, then_branch=then_scope, else_branch=else_scope)
    for result, size in zip(results, sizes, strict=True):
        result.sizes = size
    for result, part in zip(results[len(ends) :], parts, strict=True):  # a gradient reads the values of the branch
        result.spec, result.sizes = part.spec, without_symbols(part.sizes)
    run.finish(results[: len(ends)], [])
    if run.region.scopes is not None:
        frames = recorded.of_parts(results[len(ends) :])
        frames.condition = condition
        run.names.frames[run.region.scopes] = frames


def _write_known_branch(run: Run, condition: OnnxTensor, past: BlockFrames | None) -> None:
    """Write a branch with a constant condition: its ops take its place."""
    frames = BlockFrames(None, condition)
    ends = list(run.firsts)
    if condition.value.all():
        ends, _, frames = run.write(run.firsts, {}, past)
        frames.condition = condition
    run.finish(ends, [])
    if run.region.scopes is not None:
        run.names.frames[run.region.scopes] = frames


@handles("conditional_block", "conditional_block_infer")
def conditional_block(writer: ProgramWriter, op: Operator, names: Names) -> None:
    g = writer.graph
    conditions = [names.need(name, op) for name in op.input("Cond")]
    if op.attr("is_scalar_condition"):
        assert conditions[0] is not None
        condition = scalar(g, g.cast(conditions[0], VarType.BOOL))
    else:
        flags = [
            g.binary("Greater", g.as_size(g.product_of(g.sizes_of(tensor))), g.ints(0))
            for tensor in conditions
            if tensor is not None
        ]
        condition = scalar(g, flags[0])
        for flag in flags[1:]:
            condition = g.binary("And", condition, scalar(g, flag))
    _write_branch(Run(writer, op, names), condition, None)


@handles("conditional_block_grad")
def conditional_block_grad(writer: ProgramWriter, op: Operator, names: Names) -> None:
    run = Run(writer, op, names)
    assert run.past is not None and run.past.condition is not None
    _write_branch(run, run.past.condition, run.past)


# ---------------------------------------------------------------------------------------------------------------- loops
def _sizes_of_runs(
    run: Run, write: Callable[[list[tuple[int, ...]]], tuple[GraphScope, Sequence[OnnxTensor]]]
) -> tuple[GraphScope, list[Any]]:
    """Write a block's graph until the shapes that one run passes to the next stop changing; return the graph and the shapes."""
    sizes = [tensor.sizes for tensor in run.firsts]
    for _ in range(_MOST_ROUNDS):
        scope, ends = write(sizes)
        merged = []
        for before, end in zip(sizes, ends, strict=True):
            if not is_array(end) and len(before) != len(end.sizes):
                raise NotExported("a value whose number of dimensions changes from one run of the block to the next")
            merged.append(before if is_array(end) else agreed_sizes(before, end.sizes))
        if merged == sizes:
            return scope, sizes
        sizes = merged
    raise NotExported("a block in which shapes do not settle")


def _inner_inputs(
    g: OnnxGraph, scope: GraphScope, firsts: Sequence[OnnxTensor], sizes: Sequence[tuple[int, ...]]
) -> list[OnnxTensor]:
    """Inputs of an inner graph for the values that one run passes to the next."""
    inputs = []
    for first, size in zip(firsts, sizes, strict=True):
        shape = without_symbols(size)
        tensor = OnnxTensor(g, g.unique("state"), replace(first.spec, shape=shape), size)
        tensor.lengths = first.lengths if first.sizes[:1] == size[:1] else None
        scope.inputs.append(tensor)
        inputs.append(tensor)
    return inputs


def _from_frames(g: OnnxGraph, past: BlockFrames | None, number: OnnxTensor) -> BlockFrames | None:
    """The frame of one run."""
    if past is None:
        return None
    parts = [read(g, part, number, None) if is_array(part) else g.gather(part, number, 0) for part in past.parts()[1:]]
    inner = replace(past, count=None)
    return inner.of_parts(parts)


def _varies(part: OnnxTensor, last: Symbol) -> bool:
    """Whether the values of several runs may differ in shape, so that they cannot be stacked.

    Args:
        last: the last symbol before the block was written.
    """
    return not is_array(part) and any(size == -1 or size > last for size in part.sizes)


def _stacked_frames(recorded: BlockFrames, stacks: Sequence[OnnxTensor], count: OnnxTensor) -> BlockFrames:
    frames = recorded.of_parts(stacks)
    frames.count = count
    return frames


class _LoopNode:
    """Writes `Loop`: `count` runs, or runs while the variable `condition` is true.

    Args:
        number_of: maps the number of the run, of shape [], to the number of its slice and frame.
    """

    _stacks: Sequence[OnnxTensor]
    """What the body writes: values to stack."""
    _parts: list[OnnxTensor]
    """The frame's values whose shape is the same in all runs: they are stacked, too."""
    _varying: list[OnnxTensor]
    """The other values of the frame: they become entries of arrays."""
    _recorded: BlockFrames

    def __init__(
        self, run: Run, count: OnnxTensor | None, condition: str | None, number_of: Callable[[OnnxTensor], OnnxTensor]
    ) -> None:
        self._run, self._graph, self._count, self._condition, self._number_of = run, run.graph, count, condition, number_of

    def write(self) -> None:
        """Write the node, and bind its outputs to names of the program."""
        run, g = self._run, self._graph
        scope, sizes = _sizes_of_runs(run, self._write_body)
        first = None if self._condition is None else self._as_truth(run.names.value(self._condition))
        limit = None if self._count is None else scalar(g, self._count)
        arrays = [empty_array(g, row.spec) for row in self._varying]
        firsts = [*run.firsts, *arrays]
        specs = [replace(tensor.spec, shape=without_symbols(size)) for tensor, size in zip(run.firsts, sizes, strict=True)]
        specs += [array.spec for array in arrays]
        is_counted = run.region.scopes is not None and self._condition is not None
        if is_counted:
            specs.append(Spec((1,), VarType.INT64))
            firsts.append(g.identity(g.ints(0)))
            self._count_runs(scope, len(firsts))
        stacked = [*self._stacks, *self._parts]
        rows = [Spec((-1, *part.shape), part.dtype) for part in stacked]
        results = g.nodes("Loop", [limit, first, *firsts], [*specs, *rows], body=scope)
        for result, size in zip(results, sizes, strict=False):
            result.sizes = size
        outputs = results[len(firsts) :]
        for result, part in zip(outputs, stacked, strict=True):
            result.sizes = (-1, *part.sizes)
        run.finish(results[: len(run.firsts)], outputs[: len(self._stacks)])
        if run.region.scopes is not None:
            count = results[len(firsts) - 1] if is_counted else self._count
            lists = results[len(run.firsts) :][: len(arrays)]
            run.names.frames[run.region.scopes] = self._frames([*lists, *outputs[len(self._stacks) :]], count)

    def _write_body(self, sizes: list[tuple[int, ...]]) -> tuple[GraphScope, Sequence[OnnxTensor]]:
        """Write the graph of a run for these shapes of the values that runs pass on; returns it, and the values at its end."""
        run, g, last = self._run, self._graph, Symbol()
        with g.inner_graph() as scope:
            number = OnnxTensor(g, g.unique("number"), Spec((), VarType.INT64))
            going = OnnxTensor(g, g.unique("going"), Spec((), VarType.BOOL))
            scope.inputs += [number, going]
            starts = _inner_inputs(g, scope, run.firsts, sizes)
            at = self._number_of(number) if run.region.slices or run.past is not None else number
            slices = {inner: g.gather(run.names.value(outer), at, 0) for inner, outer in run.region.slices}
            ends, self._stacks, self._recorded = run.write(starts, slices, _from_frames(g, run.past, at))
            self._varying = [part for part in self._recorded.parts() if _varies(part, last)]
            self._parts = [part for part in self._recorded.parts() if not _varies(part, last)]
            condition = self._condition
            go_on = going if condition is None else self._as_truth(ends[run.carried.index(condition)])
            scope.outputs = [g.identity(value) for value in (go_on, *ends, *self._stacks, *self._parts)]
            for place, row in enumerate(self._varying, 1 + len(ends)):
                so_far = OnnxTensor(g, g.unique("kept"), replace(row.spec, type=VarType.LOD_TENSOR_ARRAY))
                scope.inputs.append(so_far)
                scope.outputs.insert(place, insert(g, so_far, row))
        return scope, ends

    def _as_truth(self, condition: OnnxTensor) -> OnnxTensor:
        return scalar(self._graph, self._graph.cast(condition, VarType.BOOL))

    def _count_runs(self, scope: GraphScope, place: int) -> None:
        """Let the body add one to an input, and return it at a place among the outputs."""
        g = self._graph
        so_far = OnnxTensor(g, g.unique("count"), Spec((1,), VarType.INT64))
        g.scopes.append(scope)
        scope.inputs.append(so_far)
        next_count = g.identity(g.binary("Add", so_far, g.ints(1)))
        g.scopes.pop()
        scope.outputs.insert(place, next_count)

    def _frames(self, values: Sequence[OnnxTensor], count: OnnxTensor | None) -> BlockFrames:
        """The frames of all runs, from arrays of the values that vary and stacks of the others."""
        assert count is not None, "runs are counted, in advance or by the body"
        of_part = {id(part): value for part, value in zip([*self._varying, *self._parts], values, strict=True)}
        return _stacked_frames(self._recorded, [of_part[id(part)] for part in self._recorded.parts()], count)


@handles("while")
def while_(writer: ProgramWriter, op: Operator, names: Names) -> None:
    run = Run(writer, op, names)
    condition = op.input("Condition")[0]
    if condition not in run.carried:
        raise NotExported(f"its block does not change the condition {condition}")
    _LoopNode(run, None, condition, lambda number: number).write()


@handles("while_grad")
def while_grad(writer: ProgramWriter, op: Operator, names: Names) -> None:
    run = Run(writer, op, names)
    assert run.past is not None and run.past.count is not None
    g, count = writer.graph, run.past.count
    last = g.binary("Sub", scalar(g, count), g.constant(np.int64(1)))
    _LoopNode(run, count, None, lambda number: g.binary("Sub", last, number)).write()


# ---------------------------------------------------------------------------------------------------------- recurrences
def _write_scan(run: Run, backwards: bool) -> None:
    """Write `Scan` over the slices of sequences and over frames, from first to last, or backwards."""
    g, region = run.graph, run.region
    sequences = [run.names.value(outer) for _, outer in region.slices]
    frames = [] if run.past is None else run.past.parts()[1:]
    scanned = [*sequences, *frames]
    if any(is_array(tensor) for tensor in run.firsts) or not scanned:
        count: Size | OnnxTensor = (
            run.past.count if run.past is not None and run.past.count is not None else g.size(sequences[0], 0)
        )
        count = g.as_size(count)
        last = g.binary("Sub", scalar(g, count), g.constant(np.int64(1)))
        if backwards and region.stacked:
            raise NotExported("a recurrence backwards that carries arrays of tensors")
        number_of = (lambda number: g.binary("Sub", last, number)) if backwards else (lambda number: number)
        _LoopNode(run, count, None, number_of).write()
        return
    last_write: dict[str, Any] = {}

    def write(sizes: list[tuple[int, ...]]) -> tuple[GraphScope, Sequence[OnnxTensor]]:
        with g.inner_graph() as scope:
            starts = _inner_inputs(g, scope, run.firsts, sizes)
            rows = []
            for sequence_part in scanned:
                row = OnnxTensor(g, g.unique("row"), Spec(sequence_part.shape[1:], sequence_part.dtype), sequence_part.sizes[1:])
                scope.inputs.append(row)
                rows.append(row)
            slices = {inner: row for (inner, _), row in zip(region.slices, rows, strict=False)}
            past = None if run.past is None else replace(run.past, count=None).of_parts(rows[len(sequences) :])
            ends, stacks, recorded = run.write(starts, slices, past)
            parts = recorded.parts()
            scope.outputs = [g.identity(value) for value in (*ends, *stacks, *parts)]
            last_write.update(stacks=stacks, recorded=recorded, parts=parts)
        return scope, ends

    scope, sizes = _sizes_of_runs(run, write)
    specs = [replace(tensor.spec, shape=without_symbols(size)) for tensor, size in zip(run.firsts, sizes, strict=True)]
    if backwards:  # reversed here, as onnx's reference evaluator knows no directions
        scanned = [reverse(g, tensor) for tensor in scanned]
    steps = scanned[0].sizes[0]
    outs = [*last_write["stacks"], *last_write["parts"]]
    rows = [Spec(without_symbols((steps, *tensor.shape)), tensor.dtype) for tensor in outs]
    results = g.nodes(
        "Scan",
        [*run.firsts, *scanned],
        [*specs, *rows],
        body=scope,
        num_scan_inputs=len(scanned),
    )
    count_of = len(run.firsts)
    for result, size in zip(results, sizes, strict=False):
        result.sizes = size
    for result, part in zip(results[count_of:], outs, strict=True):
        result.sizes = (steps, *part.sizes)
    stacked = [reverse(g, tensor) if backwards else tensor for tensor in results[count_of:]]
    stacks, parts = stacked[: len(last_write["stacks"])], stacked[len(last_write["stacks"]) :]
    run.finish(results[:count_of], stacks)
    if region.scopes is not None:
        run.names.frames[region.scopes] = _stacked_frames(last_write["recorded"], parts, g.as_size(g.size(scanned[0], 0)))


@handles("recurrent")
def recurrent(writer: ProgramWriter, op: Operator, names: Names) -> None:
    _write_scan(Run(writer, op, names), bool(op.attr("reverse")))


@handles("recurrent_grad")
def recurrent_grad(writer: ProgramWriter, op: Operator, names: Names) -> None:
    _write_scan(Run(writer, op, names), not op.attrs.get("reverse"))


# ------------------------------------------------------------------------------------------------------------- choosing
@handles("select_input")
def select_input(writer: ProgramWriter, op: Operator, names: Names) -> None:
    g = writer.graph
    values = [names.need(name, op) for name in op.input("X")]
    mask = names.need(op.input("Mask")[0], op)
    present = [value for value in values if value is not None]
    assert mask is not None and present
    chosen = values[-1] if values[-1] is not None else present[0]
    for place in range(len(values) - 2, -1, -1):
        candidate, otherwise = values[place], chosen
        if candidate is None or candidate is otherwise:
            continue
        hit = scalar(g, g.binary("Equal", g.cast(mask, VarType.INT64), g.constant(np.int64(place))))
        first = candidate

        def this(first: OnnxTensor = first) -> list[OnnxTensor]:
            return [first]

        def that(otherwise: OnnxTensor = otherwise) -> list[OnnxTensor]:
            return [otherwise]

        [chosen] = g.choose(hit, this, that)
        if is_array(first):
            chosen.spec = first.spec
        else:
            chosen.sizes = agreed_sizes(first.sizes, otherwise.sizes)
            chosen.spec = chosen.spec.with_shape(without_symbols(chosen.sizes))
    names.set(op.output("Out")[0], chosen)


@handles("select_output")
def select_output(writer: ProgramWriter, op: Operator, names: Names) -> None:
    g = writer.graph
    x, mask = names.need(op.input("X")[0], op), names.need(op.input("Mask")[0], op)
    assert x is not None and mask is not None
    for place, name in enumerate(op.output("Out")):
        if name == EMPTY:
            continue
        hit = scalar(g, g.binary("Equal", g.cast(mask, VarType.INT64), g.constant(np.int64(place))))
        if is_array(x):
            [value] = g.choose(hit, lambda: [x], lambda: [empty_array(g, x.spec)])
            value.spec = x.spec
        else:
            value = g.where(hit, x, g.number(0, x))
        names.set(name, value)
