"""Follow best paths back and compare paths: decoding of tags, beams, frame labels and trees."""

from __future__ import annotations

from typing import Any

import numpy as np

from fluid.executor.kernels.ctc import _FAR
from fluid.values.types import VarType

from .cumulative import running
from .exporting import exports
from .graph import NotExported, OnnxGraph, OnnxTensor
from .making import as_vector
from .sequence_rows import ids_of, starts_of
from .shaping import add_rows, gather_along, positions


def _argmax(g: OnnxGraph, x: OnnxTensor, axis: int) -> OnnxTensor:
    axis %= x.ndim
    return g.sized_node("ArgMax", [x], VarType.INT64, (*x.sizes[:axis], *x.sizes[axis + 1 :]), axis=axis, keepdims=0)


def _step(g: OnnxGraph, x: OnnxTensor, axis: int, place: int) -> OnnxTensor:
    return g.squeeze(g.slice(x, [axis], [place], [place + 1]), axis)


def _row(g: OnnxGraph, x: OnnxTensor, place: int) -> OnnxTensor:
    """A row of a matrix; `place` counts from its end."""
    return g.slice(x, [0], [place], [place + 1 or 2**31 - 1])


@exports("viterbi_decode")
def viterbi_decode(
    g: OnnxGraph, Input: OnnxTensor, Transition: OnnxTensor, Length: OnnxTensor, include_bos_eos_tag: bool
) -> dict[str, OnnxTensor]:
    steps = Input.shape[1]
    if steps < 0:
        raise NotExported("a number of steps that is known only at run time")
    lengths = g.unsqueeze(as_vector(g, Length), 1)
    zero = g.number(0, Input)

    def ending(after: int) -> OnnxTensor:
        """The score of the transition to the last tag, for paths of this length."""
        ends = g.binary("Equal", lengths, g.ints(after))
        return g.where(ends, _row(g, Transition, -2), zero)

    scores = _step(g, Input, 1, 0)
    if include_bos_eos_tag:
        scores = g.binary("Add", scores, g.binary("Add", _row(g, Transition, -1), ending(1)))
    came_from = []
    for step in range(1, steps):
        ways = g.binary("Add", g.unsqueeze(scores, 2), Transition)
        came_from.append(_argmax(g, ways, 1))
        onward = g.binary("Add", g.reduce("ReduceMax", ways, [1]), _step(g, Input, 1, step))
        if include_bos_eos_tag:
            onward = g.binary("Add", onward, ending(step + 1))
        scores = g.where(g.binary("Greater", lengths, g.ints(step)), onward, scores)
    tags = g.unsqueeze(_argmax(g, scores, 1), 1)
    path = []
    for step in range(steps - 1, -1, -1):
        is_active = g.binary("Greater", lengths, g.ints(step))
        path.append(g.where(is_active, tags, g.ints(0)))
        if step:
            tags = g.where(is_active, gather_along(g, came_from[step - 1], tags, 1), tags)
    longest = g.reduce("ReduceMax", g.concat([g.squeeze(lengths, 1), g.ints(0)], 0), [0], keep=True)
    full_path = g.concat(path[::-1], 1)
    shown = g.sized_node("Slice", [full_path, g.ints(0), longest, g.ints(1)], VarType.INT64, (full_path.sizes[0], -1))
    return {"Scores": g.reduce("ReduceMax", scores, [1]), "Path": shown}


@exports("gather_tree")
def gather_tree(g: OnnxGraph, Ids: OnnxTensor, Parents: OnnxTensor) -> OnnxTensor:
    steps = Ids.shape[0]
    if steps < 0:
        raise NotExported("a number of steps that is known only at run time")
    if not steps:
        return g.identity(Ids)
    last = _step(g, Ids, 0, steps - 1)
    beams = g.expand(positions(g, g.size(Ids, 2), 1, 2), g.dims(last), last.sizes)
    results = []
    for step in range(steps - 1, -1, -1):
        results.append(g.unsqueeze(gather_along(g, _step(g, Ids, 0, step), beams, 1), 0))
        beams = gather_along(g, g.cast(_step(g, Parents, 0, step), VarType.INT64), beams, 1)
    return g.concat(results[::-1], 0)


# ------------------------------------------------------------------------------------------------------ labels of frames
def _begins(g: OnnxGraph, x: OnnxTensor, first: OnnxTensor, axis: int) -> OnnxTensor:
    """Whether an element differs from the one before it along an axis, or is first."""
    before = g.concat([g.slice(x, [axis], [0], [1]), g.slice(x, [axis], [0], [-1])], axis)
    before.sizes = x.sizes
    return g.binary("Or", first, g.differ(x, before))


@exports("ctc_align")
def ctc_align(g: OnnxGraph, inputs: dict[str, Any], attrs: dict[str, Any], specs: Any) -> dict[str, Any]:
    ids, length_input = inputs["Input"], inputs.get("InputLength")
    blank = g.number(attrs["blank"], ids)
    if length_input is None:
        return {"Output": _aligned_rows(g, ids, blank, attrs["merge_repeated"])}
    steps = g.size(ids, 1)
    step = positions(g, steps, 1, 2)
    is_kept = g.differ(ids, blank)
    if attrs["merge_repeated"]:
        is_kept = g.binary("And", is_kept, _begins(g, ids, g.binary("Equal", step, g.ints(0)), 1))
    is_kept = g.binary("And", is_kept, g.binary("Less", step, g.unsqueeze(as_vector(g, length_input), 1)))
    number = g.cast(is_kept, VarType.INT64)
    place = g.binary("Sub", g.sized_node("CumSum", [number, g.constant(np.int64(1))], VarType.INT64, is_kept.sizes), g.ints(1))
    place = g.where(is_kept, place, g.as_size(steps))  # one more column takes the dropped ids
    margin = g.number(attrs["padding_value"], ids)
    room = g.where(is_kept, margin, margin)
    room = g.concat([room, g.slice(room, [1], [0], [1])], 1)
    compacted = g.node("ScatterElements", [room, place, ids], room, axis=1)
    results = {"Output": g.slice(compacted, [1], [0], [-1])}
    if specs.get("OutputLength") is not None:
        results["OutputLength"] = g.cast(g.reduce("ReduceSum", number, [1], keep=True), specs["OutputLength"].dtype)
    return results


def _aligned_rows(g: OnnxGraph, ids: OnnxTensor, blank: OnnxTensor, merge: bool) -> OnnxTensor:
    """Compress rows that form sequences; a single row of -1 if none remains."""
    lengths = ids.lengths
    if lengths is None:
        raise NotExported("rows whose sequences are known only at run time")
    flat = g.reshape(ids, [-1], (ids.sizes[0],))
    is_kept = g.differ(flat, blank)
    number = ids_of(g, lengths, g.size(ids, 0))
    if merge:
        place = g.arange(g.size(ids, 0))
        first = g.binary("Equal", place, g.gather(starts_of(g, lengths), number))
        is_kept = g.binary("And", is_kept, _begins(g, flat, first, 0))
    rows = g.sized_node("Compress", [ids, is_kept], ids.dtype, (-1, *ids.sizes[1:]), axis=0)
    missing_count = g.binary("Sub", g.ints(1), g.binary("Min", g.slice(g.dims(rows), [0], [0], [1]), g.ints(1)))
    filler = g.constant(np.full((1, *ids.shape[1:]), -1), ids.dtype)
    filler = g.sized_node("Slice", [filler, g.ints(0), missing_count, g.ints(0)], ids.dtype, (-1, *ids.sizes[1:]))
    result = g.concat([rows, filler], 0)
    zeros = g.binary("Mul", lengths, g.ints(0))
    result.lengths = add_rows(g, zeros, number, g.cast(is_kept, VarType.INT64))
    return result


@exports("edit_distance")
def edit_distance(g: OnnxGraph, inputs: dict[str, Any], normalized: bool) -> dict[str, OnnxTensor]:
    hyps, refs = inputs["Hyps"], inputs["Refs"]
    if inputs.get("HypsLength") is None or inputs.get("RefsLength") is None or min(hyps.shape[1], refs.shape[1]) < 0:
        raise NotExported("sequences of which the longest is known only at run time")
    words, expected = (g.cast(tokens, VarType.INT64) for tokens in (hyps, refs))
    lengths, ends = (as_vector(g, inputs[slot]) for slot in ("HypsLength", "RefsLength"))
    width = refs.shape[1]
    columns = g.constant(np.arange(width + 1)[None])
    costs = g.binary("Add", g.binary("Mul", g.unsqueeze(lengths, 1), g.ints(0)), columns)
    for step in range(hyps.shape[1]):
        word = g.slice(words, [1], [step], [step + 1])
        substitution = g.cast(g.differ(expected, word), VarType.INT64)
        replaced = g.binary("Add", g.slice(costs, [1], [0], [width]), substitution)
        after = g.binary("Add", costs, g.ints(1))
        better = g.binary("Min", g.slice(after, [1], [1], [width + 1]), replaced)
        after = g.binary("Sub", g.concat([g.slice(after, [1], [0], [1]), better], 1), columns)
        after = g.binary("Add", running(g, lambda a, b: g.binary("Min", a, b), after, 1), columns)  # insertions
        active = g.binary("Greater", g.unsqueeze(lengths, 1), g.ints(step))
        costs = g.where(active, after, costs)
    distance = g.cast(gather_along(g, costs, g.unsqueeze(ends, 1), 1), VarType.FP32)
    if normalized:
        distance = g.binary("Div", distance, g.cast(g.unsqueeze(ends, 1), VarType.FP32))
    return {"SequenceNum": g.as_size(g.size(refs, 0)), "Out": distance}


@exports("rnnt_places")
def rnnt_places(g: OnnxGraph, inputs: dict[str, Any], specs: Any) -> dict[str, OnnxTensor]:
    label, places = inputs["label"], inputs["input"].shape[2]
    if places < 0:
        raise NotExported("a number of labels that is known only at run time")
    steps, counts = (as_vector(g, inputs[slot]) for slot in ("input_lengths", "label_lengths"))
    labels = g.cast(label, VarType.INT64)
    is_label = g.binary("Less", positions(g, g.size(label, 1), 1, 2), g.unsqueeze(counts, 1))
    labels = g.where(is_label, labels, g.ints(0))
    end = g.binary("Mul", g.unsqueeze(counts, 1), g.ints(0))
    labels = g.unsqueeze(g.concat([labels, end], 1), 1, 3)
    shape = specs["Labels"].shape
    if -1 in shape:
        raise NotExported("a number of sequences that is known only at run time")
    labels = g.expand(labels, g.ints(*shape), shape)
    last = g.binary("Add", g.binary("Mul", g.binary("Sub", steps, g.ints(1)), g.ints(places)), counts)
    spec = specs["Start"]
    start = np.where(np.arange(places) == 0, 0, _FAR).astype(spec.dtype.numpy)
    return {"Labels": labels, "Last": g.unsqueeze(last, 1), "Start": g.constant(np.broadcast_to(start, spec.shape).copy())}
