"""Write the ops of `DynamicRNN` and `IfElse`. A rank table is the lengths of its sequences; their order follows."""

from __future__ import annotations

import numpy as np

from fluid.ir.program import Operator
from fluid.opdef.registry import EMPTY
from fluid.values.spec import Spec
from fluid.values.types import VarType

from .arrays import empty_array, insert, read, repeat
from .exporting import exports
from .graph import NotExported, OnnxGraph, OnnxTensor
from .making import filled
from .program import Names, ProgramWriter, handles
from .sequence_rows import cut_rows, ends_of, ids_of, longest_of, starts_of
from .shaping import first_rows


def _needed(op: Operator, slot: str, names: Names) -> OnnxTensor:
    (name,) = op.input(slot)
    names.need(name, op)
    return names.value(name)


def _order(g: OnnxGraph, lengths: OnnxTensor) -> OnnxTensor:
    """The numbers of sequences, longest first; ties keep their order."""
    count = g.as_size(g.size(lengths, 0))
    _, order = g.nodes("TopK", [lengths, count], [lengths.spec, lengths.spec], axis=0, largest=1, sorted=1)
    return order


def _rank(g: OnnxGraph, lengths: OnnxTensor) -> OnnxTensor:
    """The position of each sequence in that order."""
    count = g.as_size(g.size(lengths, 0))
    _, rank = g.nodes("TopK", [_order(g, lengths), count], [lengths.spec, lengths.spec], axis=0, largest=0, sorted=1)
    return rank


def _active(g: OnnxGraph, lengths: OnnxTensor, step: OnnxTensor) -> OnnxTensor:
    """The number of sequences longer than a step (of shape []), of shape [1]."""
    longer = g.cast(g.binary("Greater", lengths, step), VarType.INT64)
    return g.reduce("ReduceSum", longer, [0], keep=True)


@handles("lod_rank_table")
def lod_rank_table(writer: ProgramWriter, op: Operator, names: Names) -> None:
    x = _needed(op, "X", names)
    if x.lengths is None or op.attr("level"):
        raise NotExported("rows whose sequences are not known by one vector of lengths")
    names.set(op.output("Out")[0], x.lengths)


@handles("max_sequence_len")
def max_sequence_len(writer: ProgramWriter, op: Operator, names: Names) -> None:
    names.set(op.output("Out")[0], longest_of(writer.graph, _needed(op, "RankTable", names)))


@handles("lod_tensor_to_array")
def lod_tensor_to_array(writer: ProgramWriter, op: Operator, names: Names) -> None:
    g, x, lengths = writer.graph, _needed(op, "X", names), _needed(op, "RankTable", names)
    starts = g.gather(starts_of(g, lengths), _order(g, lengths))

    def entry(so_far: OnnxTensor, step: OnnxTensor) -> OnnxTensor:
        rows = g.binary("Add", first_rows(g, starts, _active(g, lengths, step)), step)
        return insert(g, so_far, g.gather(x, rows))

    count = g.binary("Max", longest_of(g, lengths), g.ints(1))
    array = empty_array(g, Spec((-1, *x.shape[1:]), x.dtype))
    names.set(op.output("Out")[0], repeat(g, g.reshape(count, []), array, entry))


@handles("array_to_lod_tensor")
def array_to_lod_tensor(writer: ProgramWriter, op: Operator, names: Names) -> None:
    g, lengths = writer.graph, _needed(op, "RankTable", names)
    array, var = names.get(op.input("X")[0]), op.block.find_var(op.output("Out")[0])
    if array is None or not array.spec.shape:
        if var is None or not var.has_shape or -1 in var.shape[1:]:
            raise NotExported("an array whose entries have no known shape")
        array = array or empty_array(g, Spec((-1, *var.shape[1:]), var.spec.dtype))
    inner = array.shape[1:] if array.shape else var.shape[1:]  # type: ignore[union-attr]
    if -1 in inner:
        raise NotExported("entries with sizes, besides the number of rows, known only at run time")
    spec = Spec((-1, *inner), array.dtype)
    source = array

    def entry(so_far: OnnxTensor, step: OnnxTensor) -> OnnxTensor:
        dims = g.joined_sizes([_active(g, lengths, step), *inner])
        return insert(g, so_far, read(g, source, step, filled(g, dims, 0, spec)))

    steps = longest_of(g, lengths)
    padded_array = repeat(g, g.reshape(g.binary("Max", steps, g.ints(1)), []), empty_array(g, spec), entry)
    rows = g.node("ConcatFromSequence", [padded_array], spec, axis=0, new_axis=0)
    # Step t begins after the rows of all steps before.
    longer = g.binary("Greater", g.unsqueeze(lengths, 0), g.unsqueeze(g.arange(steps), 1))
    active = g.reduce("ReduceSum", g.cast(longer, VarType.INT64), [1])
    begin = starts_of(g, active)
    total = g.reduce("ReduceSum", lengths, [0], keep=True)
    ids = ids_of(g, lengths, total)
    step = g.binary("Sub", g.arange(total), g.gather(starts_of(g, lengths), ids))
    result = g.gather(rows, g.binary("Add", g.gather(begin, step), g.gather(_rank(g, lengths), ids)))
    result.lengths = lengths
    result.sizes = (g.rows_of(lengths), *result.sizes[1:])
    result.spec = result.spec.with_lod((None,))
    names.set(op.output("Out")[0], result)


@handles("shrink_rnn_memory")
def shrink_rnn_memory(writer: ProgramWriter, op: Operator, names: Names) -> None:
    g, x, lengths = writer.graph, _needed(op, "X", names), _needed(op, "RankTable", names)
    step = g.reshape(g.cast(_needed(op, "I", names), VarType.INT64), [])
    count = _active(g, lengths, step)
    if x.lengths is None:
        names.set(op.output("Out")[0], first_rows(g, x, count))
        return
    lengths_left = first_rows(g, x.lengths, count)
    result = first_rows(g, x, g.reduce("ReduceSum", lengths_left, [0], keep=True))
    result.lengths, result.spec = lengths_left, result.spec.with_lod((None,))
    result.sizes = (g.rows_of(lengths_left), *result.sizes[1:])
    names.set(op.output("Out")[0], result)


@exports("resize_rows")
def resize_rows(g: OnnxGraph, X: OnnxTensor, Like: OnnxTensor) -> OnnxTensor:
    extended = g.concat([X, filled(g, g.dims(Like), 0, Spec(Like.shape, X.dtype))], 0)
    result = first_rows(g, extended, g.as_size(g.size(Like, 0)))
    result.lengths = Like.lengths
    return result


def _chosen(g: OnnxGraph, x: OnnxTensor, numbers: OnnxTensor) -> OnnxTensor:
    """Gather the sequences (or rows, if there are none) of these numbers."""
    if x.lengths is None:
        result = g.gather(x, numbers)
    else:
        lengths = g.gather(x.lengths, numbers)
        result = g.gather(x, cut_rows(g, g.gather(starts_of(g, x.lengths), numbers), lengths))
        result.lengths = lengths
        result.spec = result.spec.with_lod((None,))
    result.sizes = (-1 if result.lengths is None else g.rows_of(result.lengths), *result.sizes[1:])
    return result


@handles("reorder_lod_tensor_by_rank")
def reorder_lod_tensor_by_rank(writer: ProgramWriter, op: Operator, names: Names) -> None:
    g, lengths = writer.graph, _needed(op, "RankTable", names)
    names.set(op.output("Out")[0], _chosen(g, _needed(op, "X", names), _order(g, lengths)))


@handles("reorder_lod_tensor_by_rank_grad")
def reorder_lod_tensor_by_rank_grad(writer: ProgramWriter, op: Operator, names: Names) -> None:
    g, lengths = writer.graph, _needed(op, "RankTable", names)
    names.set(op.output("Out")[0], _chosen(g, _needed(op, "X", names), _rank(g, lengths)))


# ---------------------------------------------------------------------------------------------------------- two parts
def _mask(writer: ProgramWriter, op: Operator, names: Names) -> OnnxTensor:
    if op.attrs.get("level"):
        raise NotExported("more than one level of sequences")
    return writer.graph.reshape(writer.graph.cast(_needed(op, "Mask", names), VarType.BOOL), [-1], (-1,))


@handles("split_lod_tensor")
def split_lod_tensor(writer: ProgramWriter, op: Operator, names: Names) -> None:
    g, x, mask = writer.graph, _needed(op, "X", names), _mask(writer, op, names)
    for slot, flags in (("OutTrue", mask), ("OutFalse", g.unary("Not", mask))):
        for name in op.outputs.get(slot, ()):
            if name != EMPTY:
                numbers = g.squeeze(g.sized_node("NonZero", [flags], VarType.INT64, (1, -1)), 0)
                names.set(name, _chosen(g, x, numbers))


@handles("merge_lod_tensor", "merge_lod_tensor_infer")
def merge_lod_tensor(writer: ProgramWriter, op: Operator, names: Names) -> None:
    g, mask = writer.graph, _mask(writer, op, names)
    halves = [_needed(op, slot, names) for slot in ("InFalse", "InTrue")]
    joined = g.concat(halves, 0)
    if all(half.lengths is not None for half in halves):
        joined.lengths = g.concat([half.lengths for half in halves if half.lengths is not None], 0)

    def numbers(flags: OnnxTensor) -> OnnxTensor:
        return g.binary("Sub", ends_of(g, g.cast(flags, VarType.INT64)), g.constant(np.int64(1)))

    is_false = g.unary("Not", mask)
    count = g.reduce("ReduceSum", g.cast(is_false, VarType.INT64), [0], keep=True)
    order = g.where(mask, g.binary("Add", numbers(mask), count), numbers(is_false))
    names.set(op.output("Out")[0], _chosen(g, joined, order))
