"""Write the label paths that conditional random fields and CTC sum over."""

from __future__ import annotations

from typing import Any

import numpy as np

from fluid.values.spec import Spec
from fluid.values.types import VarType

from .exporting import exports
from .graph import OnnxGraph, OnnxTensor
from .indexing import one_hot_of
from .making import as_vector, filled
from .sequence_rows import lengths_of_rows, longest_of, padded_rows, taken_rows
from .shaping import reverse


@exports("padded_positions")
def padded_positions(g: OnnxGraph, X: OnnxTensor, Length: OnnxTensor) -> OnnxTensor:
    t = g.unsqueeze(g.arange(g.size(X, 1)), 0)
    first = g.binary("Mul", g.arange(g.size(X, 0)), g.as_size(g.size(X, 1)))
    is_inside = g.binary("Less", t, g.unsqueeze(as_vector(g, Length), 1))
    return g.where(is_inside, g.binary("Add", g.unsqueeze(first, 1), t), g.constant(np.int64(-1)))


@exports("crf_counts")
def crf_counts(g: OnnxGraph, Label: OnnxTensor, Rows: OnnxTensor, Transition: OnnxTensor) -> OnnxTensor:
    """One-hot tags: the first, the last, and the neighbour pairs, summed over time."""
    tags = g.size(Transition, 1)
    labels = g.where(
        g.binary("Less", Rows, g.constant(np.int64(0))),
        g.constant(np.int64(-1)),
        taken_rows(g, as_vector(g, Label), Rows),
    )
    labels = g.sized_node("Pad", [labels, g.ints(0, 1, 0, 1), g.constant(np.int64(-1))], VarType.INT64, (labels.sizes[0], -1))
    hot = one_hot_of(g, labels, tags, Transition.dtype)
    before, after = g.slice(hot, [1], [0], [-1]), g.slice(hot, [1], [1], [2**31 - 1])
    is_padding = g.cast(g.binary("Less", labels, g.constant(np.int64(0))), Transition.dtype)
    is_padding = g.unsqueeze(is_padding, 2)
    begins = g.reduce("ReduceSum", g.binary("Mul", after, g.slice(is_padding, [1], [0], [-1])), [1], keep=True)
    ends = g.reduce("ReduceSum", g.binary("Mul", before, g.slice(is_padding, [1], [1], [2**31 - 1])), [1], keep=True)
    pairs = g.matmul(g.transpose(before, [0, 2, 1]), after)
    return g.concat([begins, ends, pairs], 1)


@exports("held")
def held(g: OnnxGraph, X: OnnxTensor) -> OnnxTensor:
    return g.identity(X)


_ABSENT = -1
"""In place of a row or a label behind the end of its sequence."""


def _padded_steps(g: OnnxGraph, logits: OnnxTensor, steps: OnnxTensor) -> OnnxTensor:
    """The row numbers [step, sequence] of logits [steps, batch, classes]; -1 behind the last step of each sequence."""
    batch = g.as_size(g.size(logits, 1))
    step = g.unsqueeze(g.arange(g.size(logits, 0)), 1)
    row = g.binary("Add", g.binary("Mul", step, batch), g.unsqueeze(g.arange(batch), 0))
    return g.where(g.binary("Less", step, g.unsqueeze(steps, 0)), row, g.constant(np.int64(_ABSENT)))


def _padded_labels(g: OnnxGraph, labels: OnnxTensor, counts: OnnxTensor) -> OnnxTensor:
    """Labels [batch, places], with -1 behind the last label of each sequence."""
    place = g.unsqueeze(g.arange(g.size(labels, 1)), 0)
    is_inside = g.binary("Less", place, g.unsqueeze(counts, 1))
    return g.where(is_inside, g.cast(labels, VarType.INT64), g.constant(np.int64(_ABSENT)))


def _has_path(g: OnnxGraph, steps: OnnxTensor, counts: OnnxTensor, labels: OnnxTensor, following: OnnxTensor) -> OnnxTensor:
    """Whether a sequence has a step for each label, and one more between equal neighbours."""
    zero = g.constant(np.int64(0))
    equal = g.binary("And", g.binary("Equal", labels, following), g.binary("GreaterOrEqual", labels, zero))
    needed = g.binary("Add", counts, g.reduce("ReduceSum", g.cast(equal, VarType.INT64), [1]))
    return g.binary("And", g.binary("GreaterOrEqual", steps, needed), g.binary("Greater", steps, zero))


@exports("ctc_states")
def ctc_states(
    g: OnnxGraph,
    Logits: OnnxTensor,
    Label: OnnxTensor,
    LogitsLength: OnnxTensor | None,
    LabelLength: OnnxTensor | None,
    blank: int,
    specs: Any,
) -> dict[str, OnnxTensor]:
    absent = g.constant(np.int64(_ABSENT))
    if LogitsLength is None or LabelLength is None:
        steps, counts = lengths_of_rows(Logits), lengths_of_rows(Label)
        rows = g.transpose(padded_rows(g, steps, longest_of(g, steps)), [1, 0])
        labels = taken_rows(g, as_vector(g, Label), padded_rows(g, counts, longest_of(g, counts)), absent)
    else:
        steps, counts = as_vector(g, LogitsLength), as_vector(g, LabelLength)
        rows, labels = _padded_steps(g, Logits, steps), _padded_labels(g, Label, counts)
    longest = g.as_size(g.size(labels, 1))
    wide = g.binary("Add", g.binary("Mul", longest, g.ints(2)), g.ints(1))
    number = g.unsqueeze(g.arange(wide), 0)
    odd = g.binary("Equal", g.binary("Mod", number, g.ints(2)), g.constant(np.int64(1)))
    count, half = g.unsqueeze(counts, 1), g.binary("Div", number, g.ints(2))
    padded = g.sized_node("Pad", [labels, g.ints(0, 0, 0, 1), absent], VarType.INT64, (labels.sizes[0], -1))
    shape = g.joined_sizes([g.size(labels, 0), wide])
    spread = g.sized_node(
        "GatherElements", [padded, g.expand(half, shape, (-1, -1))], VarType.INT64, (labels.sizes[0], -1), axis=1
    )
    is_label = g.binary("And", odd, g.binary("Less", half, count))
    states = g.where(is_label, spread, g.constant(np.int64(blank)))
    two_before = g.sized_node("Pad", [states, g.ints(0, 2, 0, 0), absent], VarType.INT64, (states.sizes[0], -1))
    two_before = g.sized_node("Slice", [two_before, g.ints(0), wide, g.ints(1)], VarType.INT64, (states.sizes[0], -1))
    last = g.binary("Mul", count, g.ints(2))
    differs = g.differ(states, two_before)
    skip = g.binary("And", is_label, g.binary("And", differs, g.binary("Greater", number, g.ints(1))))
    end = g.binary(
        "Or",
        g.binary("Equal", number, last),
        g.binary("Equal", number, g.binary("Sub", last, g.ints(1))),
    )
    begin = g.expand(g.binary("Less", number, g.ints(1)), shape, (-1, -1))
    dtype = Logits.dtype
    far = g.constant(-1e30, dtype)

    def penalty(may: OnnxTensor) -> OnnxTensor:
        return g.where(may, g.constant(0, dtype), far)

    possible = _has_path(g, steps, counts, labels, g.slice(padded, [1], [1], [2**31 - 1]))
    return {
        "Rows": rows,
        "States": states,
        "Start": penalty(begin),
        "Skip": penalty(skip),
        "End": penalty(end),
        "Weight": g.unsqueeze(g.cast(possible, dtype), 1),
    }


# ------------------------------------------------------------------------------------------------------------ decoding
def _scan(g: OnnxGraph, states: list[OnnxTensor], rows: list[OnnxTensor], step: Any, outs: list[Spec]) -> list[OnnxTensor]:
    """Append `Scan`: the last states, then the outputs of all steps; ``step(states, slices) -> (states, outputs)``."""
    with g.inner_graph() as scope:
        befores = [OnnxTensor(g, g.unique("state"), state.spec) for state in states]
        slices = [OnnxTensor(g, g.unique("row"), Spec(rows_part.shape[1:], rows_part.dtype)) for rows_part in rows]
        scope.inputs += [*befores, *slices]
        afters, outputs = step(befores, slices)
        scope.outputs = [g.identity(value) for value in (*afters, *outputs)]
    return g.nodes("Scan", [*states, *rows], [*(state.spec for state in states), *outs], body=scope, num_scan_inputs=len(rows))


@exports("crf_decoding")
def crf_decoding(
    g: OnnxGraph, Emission: OnnxTensor, Transition: OnnxTensor, Label: OnnxTensor | None, Length: OnnxTensor | None, specs: Any
) -> OnnxTensor:
    """Compute the best score of each tag step by step, with the tag before it; then follow these back from the best last tag."""
    tags = g.size(Emission, -1)
    flat = g.reshape(Emission, [-1, tags], (-1, Emission.shape[-1]))
    if Length is None:
        lengths = lengths_of_rows(Emission)
        positions = padded_rows(g, lengths, g.binary("Max", longest_of(g, lengths), g.ints(1)))
    else:
        positions = padded_positions(g, Emission, Length)
    by_time = g.transpose(positions, [1, 0])
    begin, end = (g.slice(Transition, [0], [place], [place + 1]) for place in (0, 1))
    between = g.slice(Transition, [0], [2], [2**31 - 1])
    count = g.size(positions, 0)
    best = filled(g, g.joined_sizes([count, tags]), 0, Spec((-1, Emission.shape[-1]), Emission.dtype))
    started = filled(g, g.joined_sizes([count, 1]), 0, Spec((-1, 1), Emission.dtype))
    zero = g.constant(np.int64(0))

    def forward(states: list[OnnxTensor], slices: list[OnnxTensor]) -> tuple[list[OnnxTensor], list[OnnxTensor]]:
        (scores, before), (rows,) = states, slices
        here = g.unsqueeze(g.binary("GreaterOrEqual", rows, zero), 1)
        is_later = g.cast(before, VarType.BOOL)
        paths = g.binary("Add", g.unsqueeze(scores, 2), between)
        came = g.sized_node("ArgMax", [paths], VarType.INT64, (-1, -1), axis=1, keepdims=0)
        top = g.where(is_later, g.reduce("ReduceMax", paths, [1]), begin)
        new = g.where(here, g.binary("Add", top, taken_rows(g, flat, rows)), scores)
        return [new, g.where(here, g.number(1, before), before)], [came]

    def backward(states: list[OnnxTensor], slices: list[OnnxTensor]) -> tuple[list[OnnxTensor], list[OnnxTensor]]:
        (tag,), (came, rows) = states, slices
        here = g.binary("GreaterOrEqual", rows, zero)
        former = g.sized_node("GatherElements", [came, g.unsqueeze(tag, 1)], VarType.INT64, (-1, 1), axis=1)
        return [g.where(here, g.squeeze(former, 1), tag)], [tag]

    came_spec, tag_spec = Spec((-1, -1, -1), VarType.INT64), Spec((-1, -1), VarType.INT64)
    best, _, came = _scan(g, [g.identity(best), g.identity(started)], [by_time], forward, [came_spec])
    last = g.sized_node("ArgMax", [g.binary("Add", best, end)], VarType.INT64, (-1,), axis=1, keepdims=0)
    _, path = _scan(g, [last], [reverse(g, came), reverse(g, by_time)], backward, [tag_spec])
    path = g.transpose(reverse(g, path), [1, 0])
    is_inside = g.binary("GreaterOrEqual", positions, zero)
    if Length is None:
        rows = g.transpose(g.sized_node("NonZero", [is_inside], VarType.INT64, (2, -1)), [1, 0])
        result = g.sized_node("GatherND", [path, rows], VarType.INT64, (-1,))  # sequence by sequence, as the rows are
    else:
        result = g.where(is_inside, path, zero)
    if Label is not None:
        label = g.reshape_as(g.cast(Label, VarType.INT64), result)
        result = g.cast(g.binary("Equal", result, label), VarType.INT64)
        if Length is not None:
            result = g.where(is_inside, result, zero)
    out = g.reshape(result, [-1, *g.sizes_of(Emission)[1:-1], 1]) if specs["ViterbiPath"].ndim > result.ndim else result
    out.lengths = Emission.lengths
    return out
