"""Kernels of `fluid.ops.ctc`."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from fluid.errors import ExecutionError
from fluid.values.lod_array import LoDArray
from fluid.values.place import to_numpy
from fluid.values.spec import Lod

from .crf import Spans, spans
from .cumulative import running
from .manipulation import check_ids, write_wanted
from .table import checked, kernel


# ----------------------------------------------------------------------------------------------------------------- CTC
class _Paths(NamedTuple):
    """The states that the paths of each sequence go through, on the host; see `ctc_states`. `possible` is False elsewhere."""

    rows: Any
    lengths: Any
    states: Any
    skip: Any
    end: Any
    possible: Any


@checked("warpctc", "ctc_states")
def check_warpctc(
    Logits: Any, Logits_lod: Lod, Label: Any, Label_lod: Lod, LogitsLength: Any, LabelLength: Any, blank: int
) -> None:
    spans(Logits_lod, LogitsLength, Logits, "Logits", axis=0)
    labels = to_numpy(Label).reshape(-1)[spans(Label_lod, LabelLength, Label, "Label").rows]
    check_ids(labels, Logits.shape[-1], "Label")
    if (labels == blank).any():
        raise ExecutionError(f"Label holds the blank, {blank}, which is no label")


def _paths(logits: Any, logits_lod: Lod, label: Any, label_lod: Lod, logits_length: Any, label_length: Any, blank: int) -> _Paths:
    frames = spans(logits_lod, logits_length, logits, "Logits", axis=0)
    if logits_length is None:
        rows = frames.starts + np.arange(frames.longest)[:, None]
    else:
        rows = np.arange(logits.shape[0])[:, None] * logits.shape[1] + np.arange(logits.shape[1])
    rows = np.where(np.arange(len(rows))[:, None] < frames.lengths, rows, -1)
    words = spans(label_lod, label_length, label, "Label")
    wide = words.longest if label_length is None else label.shape[1]
    states = np.full((len(words.lengths), 2 * wide + 1), blank, np.int64)
    states[words.ids, 2 * words.steps + 1] = to_numpy(label).reshape(-1)[words.rows]
    place = np.arange(states.shape[1])
    skip = np.zeros(states.shape, bool)
    skip[:, 2:] = (states[:, 2:] != blank) & (states[:, 2:] != states[:, :-2])
    count = words.lengths[:, None]
    end = (place == 2 * count) | (place == 2 * count - 1)
    repeated = ((place % 2 == 1) & (place >= 3) & (place < 2 * count) & ~skip).sum(1)
    possible = (words.lengths + repeated <= frames.lengths) & (frames.lengths > 0)
    return _Paths(rows, frames.lengths, states, skip, end, possible)


@kernel("ctc_states")
def ctc_states(
    xp: Any,
    Logits: Any,
    Logits_lod: Lod,
    Label: Any,
    Label_lod: Lod,
    LogitsLength: Any,
    LabelLength: Any,
    blank: int,
    Rows: Any,
    States: Any,
    Start: Any,
    Skip: Any,
    End: Any,
    Weight: Any,
) -> None:
    paths = _paths(Logits, Logits_lod, Label, Label_lod, LogitsLength, LabelLength, blank)
    start = np.arange(paths.states.shape[1]) == 0
    pairs = (
        (Rows, paths.rows),
        (States, paths.states),
        *((out, np.where(may, 0, _FAR)) for out, may in ((Start, start), (Skip, paths.skip), (End, paths.end))),
        (Weight, paths.possible[:, None]),
    )
    write_wanted(*((out, xp.asarray(value)) for out, value in pairs))


@kernel("held")
def held(xp: Any, X: Any, Out: Any) -> None:
    xp.copyto(Out, X)


_FAR = -1e30
"""The log of no probability. Unlike that of 0, it can be subtracted from itself."""


def _steps(xp: Any, first: Any, scores: Any, skip: Any) -> Any:
    """For each step, the log of the sum over all paths to each state; `first` holds these logs for the first step.

    The loop has states first and sequences last, so that the states before each state are contiguous in memory.
    """
    steps, count, states = scores.shape
    logs = xp.full((steps, states + 2, count), _FAR, scores.dtype)  # with two states before the first
    scores, penalty = xp.ascontiguousarray(scores.swapaxes(1, 2)), xp.where(skip.T, 0, _FAR).astype(scores.dtype)
    over, top, part = (xp.empty((states, count), scores.dtype) for _ in range(3))
    if steps:
        logs[0, 2:] = first.T
    for t in range(1, steps):
        before, total = logs[t - 1], logs[t, 2:]
        stay, move = before[2:], before[1:-1]
        xp.add(before[:-2], penalty, over)
        xp.maximum(stay, move, out=top)
        xp.maximum(top, over, out=top)
        xp.exp(xp.subtract(stay, top, total), total)
        for term in (move, over):
            xp.exp(xp.subtract(term, top, part), part)
            xp.add(total, part, total)
        xp.log(total, total)
        xp.add(total, top, total)
        xp.add(total, scores[t], total)
    return logs[:, 2:].swapaxes(1, 2)


def _over_times(xp: Any, lengths: Any, steps: int) -> Any:
    """For each step and sequence, the step that mirrors it; itself behind the end."""
    at = np.arange(steps)[:, None]
    return xp.asarray(np.where(at < lengths, lengths - 1 - at, at))


def _both_ways(xp: Any, paths: _Paths, first: Any, scores: Any, ends: Any) -> tuple[Any, Any]:
    """The logs of the sums over all paths to each state at each step, and over all paths from there on.

    Both are computed at once: backwards, states go from the last to the first, and times from the end of each sequence.

    Args:
        first: the logs for the first step.
        scores: the scores of the states at each step.
        ends: the logs for the last step of each sequence, backwards.
    """
    steps, count, _ = scores.shape
    mirror, sequences = _over_times(xp, paths.lengths, steps), xp.arange(count)
    skip = np.zeros((2 * count, paths.skip.shape[1]), bool)
    skip[:count] = paths.skip
    skip[count:, 2:] = paths.skip[:, :1:-1]  # the skip from j - 2 to j becomes the skip from j to j - 2
    starts = xp.concatenate([first, ends[:, ::-1]])
    both = xp.concatenate([scores, scores[mirror, sequences][:, :, ::-1]], 1)
    logs = _steps(xp, starts, both, xp.asarray(skip))
    return logs[:, :count], logs[:, count:, ::-1][mirror, sequences]


@kernel("warpctc")
def warpctc(
    xp: Any,
    Logits: Any,
    Logits_lod: Lod,
    Label: Any,
    Label_lod: Lod,
    LogitsLength: Any,
    LabelLength: Any,
    blank: int,
    Loss: Any,
    WarpCTCGrad: Any,
) -> None:
    paths = _paths(Logits, Logits_lod, Label, Label_lod, LogitsLength, LabelLength, blank)
    steps, count = paths.rows.shape
    classes = Logits.shape[-1]
    rows = xp.asarray(np.maximum(paths.rows, 0))
    padded = Logits.reshape(-1, classes)[rows] if Logits.size else xp.zeros((steps, count, classes), Logits.dtype)
    padded -= padded.max(2, keepdims=True)
    shares = xp.exp(padded)
    total = shares.sum(2, keepdims=True)
    padded -= xp.log(total)  # log of the softmax
    states = xp.asarray(paths.states)
    scores = xp.take_along_axis(padded, xp.broadcast_to(states, (steps, *states.shape)), 2)
    first = xp.full(states.shape, _FAR, scores.dtype)
    if steps:
        first[:, :2] = scores[0, :, :2]
    last, sequences = xp.asarray(np.maximum(paths.lengths - 1, 0)), xp.arange(count)
    ends = xp.where(xp.asarray(paths.end), 0, _FAR).astype(scores.dtype)
    if WarpCTCGrad is None or not steps:
        forward = _steps(xp, first, scores, xp.asarray(paths.skip))
    else:
        forward, backward = _both_ways(xp, paths, first, scores, scores[last, sequences] + ends)
    reached = forward[last, sequences] + ends if steps else ends
    top = reached.max(1)
    logs = xp.where(xp.asarray(paths.possible), top + xp.log(xp.exp(reached - top[:, None]).sum(1)), 0)
    if Loss is not None:
        Loss[:, 0] = -logs
    if WarpCTCGrad is None or not steps:
        return
    logs = xp.where(logs > _FAR / 2, logs, np.nan)[:, None]  # no path is probable: its shares are not numbers
    through = xp.exp(forward + backward - scores - logs)  # probability of each state at each time
    through = xp.where(scores == -np.inf, 0 * logs, through)
    where = states[:, :, None] == xp.arange(classes)
    shares /= total
    shares -= xp.matmul(through.transpose(1, 0, 2), where.astype(through.dtype)).transpose(1, 0, 2)
    is_possible = xp.asarray((paths.rows >= 0) & paths.possible)
    WarpCTCGrad[...] = xp.where(is_possible[:, :, None], shares, 0)


@kernel("warpctc_grad")
def warpctc_grad(
    xp: Any, Logits: Any, Logits_lod: Lod, LogitsLength: Any, WarpCTCGrad: Any, dLoss: Any, norm_by_times: bool, dLogits: Any
) -> None:
    d_loss = dLoss.reshape(-1)
    if LogitsLength is None:
        sequences = spans(Logits_lod, None, Logits, "Logits")
        lengths = xp.asarray(sequences.lengths)
    else:
        lengths = LogitsLength.reshape(-1)
    if norm_by_times:
        d_loss = d_loss / xp.maximum(lengths, 1).astype(d_loss.dtype)
    if LogitsLength is not None:
        xp.multiply(WarpCTCGrad, d_loss[:, None], out=dLogits)
        return
    ids, steps = xp.asarray(sequences.ids), xp.asarray(sequences.steps)
    xp.multiply(WarpCTCGrad[steps, ids], d_loss[ids][:, None], out=dLogits)


# ---------------------------------------------------------------------------------------------------------- transducers
@checked("warprnnt", "rnnt_places")
def check_warprnnt(input: Any, label: Any, input_lengths: Any, label_lengths: Any) -> None:
    steps, places, classes = input.shape[1:]
    for name, lengths, least, most in (("input", input_lengths, 1, steps), ("label", label_lengths, 0, places - 1)):
        if lengths.size and not least <= int(lengths.min()) <= int(lengths.max()) <= most:
            reach = f"from {int(lengths.min())} to {int(lengths.max())}"
            raise ExecutionError(f"warprnnt: {name}_lengths are {reach}; they should be from {least} to {most}")
    check_ids(label[np.arange(label.shape[1]) < to_numpy(label_lengths)[:, None]], classes, "warprnnt: label")


def _labels(xp: Any, label: Any, label_lengths: Any) -> Any:
    """The labels of each sequence, 0 behind its last, and one more."""
    is_label = xp.arange(label.shape[1]) < label_lengths[:, None]
    return xp.concatenate([xp.where(is_label, label, 0), xp.zeros((len(label), 1), label.dtype)], 1).astype("int64")


@kernel("rnnt_places")
def rnnt_places(
    xp: Any, input: Any, label: Any, input_lengths: Any, label_lengths: Any, Labels: Any, Last: Any, Start: Any
) -> None:
    places = input.shape[2]
    last = (input_lengths.astype("int64") - 1) * places + label_lengths
    write_wanted(
        (Labels, _labels(xp, label, label_lengths)[:, None, :, None]),
        (Last, last[:, None]),
        (Start, xp.where(xp.arange(places) == 0, 0, _FAR)),
    )


@kernel("warprnnt")
def warprnnt(
    xp: Any,
    input: Any,
    label: Any,
    input_lengths: Any,
    label_lengths: Any,
    blank: int,
    fastemit_lambda: float,
    loss: Any,
    warprnntgrad: Any,
) -> None:
    scores = xp.ascontiguousarray(input.transpose(1, 2, 0, 3))  # [steps, places, batch, classes]
    steps, places, batch, _ = scores.shape
    labels = _labels(xp, label, label_lengths).T
    blanks = scores[..., blank]
    emitted = xp.take_along_axis(scores, xp.broadcast_to(labels[None, :, :, None], (steps, places, batch, 1)), 3)[..., 0]
    along = xp.cumsum(emitted, 1) - emitted
    number, place = xp.arange(steps)[:, None, None], xp.arange(places)[:, None]
    ends, many = number == input_lengths - 1, place == label_lengths
    forward, leaving, ahead = (xp.full(blanks.shape, -xp.inf, scores.dtype) for _ in range(3))
    arrived = xp.where(place == 0, 0, xp.full((places, batch), -xp.inf, scores.dtype))
    for t in range(steps):
        forward[t] = along[t] + running(xp, xp.logaddexp, arrived - along[t])
        arrived = forward[t] + blanks[t]
    after = xp.full((places, batch), -xp.inf, scores.dtype)
    for t in range(steps - 1, -1, -1):
        after = xp.where(ends[t] & many, 0, xp.where(ends[t] | (place > label_lengths), -xp.inf, after))
        leaving[t] = after + blanks[t]
        after = ahead[t] = running(xp, xp.logaddexp, (leaving[t] + along[t])[::-1])[::-1] - along[t]
    total = ahead[0, 0]
    if loss is not None:
        xp.copyto(loss, -total)
    if warprnntgrad is not None:
        gradient = xp.zeros_like(scores)
        following = xp.concatenate([ahead[:, 1:], xp.full((steps, 1, batch), -xp.inf, scores.dtype)], 1)
        shares = xp.where(place < label_lengths, -xp.exp(forward + emitted + following - total), 0) * (1 + fastemit_lambda)
        index = xp.broadcast_to(labels[None, :, :, None], (steps, places, batch, 1))
        xp.put_along_axis(gradient, index, shares[..., None].astype(scores.dtype), 3)
        gradient[..., blank] -= xp.exp(forward + leaving - total)
        xp.copyto(warprnntgrad, gradient.transpose(2, 0, 1, 3))


@kernel("warprnnt_grad")
def warprnnt_grad(xp: Any, warprnntgrad: Any, dloss: Any, dinput: Any) -> None:
    xp.multiply(warprnntgrad, dloss.reshape(-1, 1, 1, 1), dinput)


@kernel("ctc_align")
def ctc_align(
    xp: Any,
    Input: Any,
    Input_lod: Lod,
    InputLength: Any,
    blank: int,
    merge_repeated: bool,
    padding_value: int,
    Output: Any,
    OutputLength: Any,
) -> LoDArray | None:
    sequences = spans(Input_lod, InputLength, Input, "Input")
    values, steps, ids = to_numpy(Input).reshape(-1)[sequences.rows], sequences.steps, sequences.ids
    is_output = values != blank
    if merge_repeated:
        is_output[1:] &= (values[1:] != values[:-1]) | (steps[1:] == 0)
    left = Spans(sequences.starts, np.bincount(ids[is_output], minlength=len(sequences.lengths)))
    if InputLength is None:
        lod = (*Input_lod[:-1], (0, *np.cumsum(left.lengths).tolist()))
        out = values[is_output] if is_output.any() else np.full(1, -1, values.dtype)
        return LoDArray(xp.asarray(out.reshape(-1, *[1] * (Input.ndim - 1))), lod)
    if Output is not None:
        Output.fill(padding_value)
        Output.reshape(-1)[xp.asarray(left.rows)] = xp.asarray(values[is_output])
    if OutputLength is not None:
        OutputLength[:, 0] = xp.asarray(left.lengths)
    return None


# ------------------------------------------------------------------------------------------------------- edit distance
@kernel("edit_distance")
def edit_distance(
    xp: Any,
    Hyps: Any,
    Hyps_lod: Lod,
    Refs: Any,
    Refs_lod: Lod,
    HypsLength: Any,
    RefsLength: Any,
    normalized: bool,
    SequenceNum: Any,
    Out: Any,
) -> None:
    hyps, refs = spans(Hyps_lod, HypsLength, Hyps, "Hyps"), spans(Refs_lod, RefsLength, Refs, "Refs")
    count = len(refs.lengths)
    if SequenceNum is not None:
        SequenceNum.fill(count)
    if Out is None:
        return
    if normalized and count and not refs.lengths.all():
        empty = int(np.flatnonzero(refs.lengths == 0)[0])
        raise ExecutionError(f"sequence {empty} of Refs is empty, so nothing can be divided by its length")
    words, expected = to_numpy(Hyps).reshape(-1), np.zeros((count, refs.longest), np.int64)
    expected[refs.ids, refs.steps] = to_numpy(Refs).reshape(-1)[refs.rows]
    order = np.argsort(-hyps.lengths, kind="stable")  # as in `by_step`: the sequences that go on come first
    expected, costs = expected[order], np.zeros((count, refs.longest + 1), np.int32)
    for active, rows in hyps.by_step:  # edit distances from the words so far to each prefix of a reference, less its length
        after = costs[: len(active)]
        replaced = after[:, :-1] - (expected[: len(active)] == words[rows][:, None])
        after += 1
        np.minimum(after[:, 1:], replaced, out=after[:, 1:])
        np.minimum.accumulate(after, axis=1, out=after)  # insertions
    distances = np.empty(count, np.float32)
    distances[order] = costs[np.arange(count), refs.lengths[order]] + refs.lengths[order]
    Out[:, 0] = xp.asarray(distances / refs.lengths if normalized else distances)
