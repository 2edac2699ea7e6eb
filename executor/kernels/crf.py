"""Kernels of `fluid.ops.crf`. They step through time once for all sequences together; positions are on the host."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from fluid.errors import ExecutionError
from fluid.values.lod_array import ids_of, last_offsets, repeated, step_counts
from fluid.values.place import to_numpy
from fluid.values.spec import Lod

from .manipulation import check_ids, write_wanted
from .packed_rows import PackedRows, packed_rows
from .rnn import StepFormula, loops_of
from .sums import row_sum
from .table import checked, kernel


class Spans(NamedTuple):
    """The positions of sequences among all rows, on the host: first row and length of each."""

    starts: Any
    lengths: Any

    @property
    def longest(self) -> int:
        return int(self.lengths.max(initial=0))

    @property
    def offsets(self) -> Any:
        """The offsets of the sequences among the rows that belong to one."""
        return np.concatenate([[0], np.cumsum(self.lengths)])

    @property
    def ids(self) -> Any:
        """For each row that is in a sequence, in order, the number of its sequence."""
        return ids_of(self.offsets)

    @property
    def steps(self) -> Any:
        """For each row that is in a sequence, in order, its place there."""
        offsets = self.offsets
        return np.arange(offsets[-1]) - repeated(offsets[:-1], self.lengths)

    @property
    def rows(self) -> Any:
        """The rows that are in sequences, in order."""
        return repeated(self.starts, self.lengths) + self.steps

    @property
    def by_step(self) -> list[tuple[Any, Any]]:
        """For each step, the numbers of the sequences that have it, the longest first, and their rows."""
        order = np.argsort(-self.lengths, kind="stable")
        active = [order[:count] for count in step_counts(self.lengths).tolist()]
        return [(numbers, self.starts[numbers] + step) for step, numbers in enumerate(active)]

    @property
    def filled(self) -> Any:
        """The numbers of the sequences that are not empty."""
        return np.flatnonzero(self.lengths)


def spans(lod: Lod, length: Any, array: Any, label: str, axis: int = 1) -> Spans:
    """The sequences of a LoD; with `length`, the first ``length[b]`` entries of each ``array[b]``, whose steps lie on `axis`."""
    if length is None:
        offsets = last_offsets(lod, label, ", or give the lengths")
        return Spans(offsets[:-1], np.diff(offsets))
    lengths, width = to_numpy(length).reshape(-1).astype(np.int64), array.shape[axis]
    if len(lengths) and (lengths.min() < 0 or lengths.max() > width):
        raise ExecutionError(f"the lengths {lengths.tolist()} of {label} should be from 0 to {width}, its number of steps")
    return Spans(np.arange(len(lengths)) * width, lengths)


@checked("padded_positions")
def check_padded_positions(X: Any, Length: Any) -> None:
    spans((), Length, X, "X")


@kernel("padded_positions")
def padded_positions(xp: Any, X: Any, Length: Any, Out: Any) -> None:
    steps = xp.arange(X.shape[1])
    starts = X.shape[1] * xp.arange(len(X))[:, None]
    xp.copyto(Out, xp.where(steps < Length.reshape(-1, 1), starts + steps, -1))


@kernel("crf_counts")
def crf_counts(xp: Any, Label: Any, Rows: Any, Out: Any) -> None:
    Out.fill(0)
    if not Rows.size:
        return
    is_word = (Rows >= 0).astype(Out.dtype)  # the words of a sequence come first in its row
    labels, sequences = Label.reshape(-1)[xp.maximum(Rows, 0)], xp.arange(len(Rows))
    last = xp.maximum(is_word.sum(1) - 1, 0).astype("int64")
    xp.add.at(Out, (sequences, 0, labels[:, 0]), is_word[:, 0])
    xp.add.at(Out, (sequences, 1, labels[sequences, last]), is_word[:, 0])
    xp.add.at(Out, (sequences[:, None], 2 + labels[:, :-1], labels[:, 1:]), is_word[:, 1:])


class _TagChain:
    """The data for both directions of a chain of tags, on the device: the positions of its sequences, and their labels."""

    def __init__(self, xp: Any, lod: Lod, emission: Any, label: Any, length: Any) -> None:
        sequences = self.spans = spans(lod, length, emission, "Emission")
        filled = sequences.filled
        self.tags = emission.shape[-1]
        self.rows, self.ids, self.filled = xp.asarray(sequences.rows), xp.asarray(sequences.ids), xp.asarray(filled)
        self.first = xp.asarray(sequences.starts[filled])
        self.last = xp.asarray((sequences.starts + sequences.lengths - 1)[filled])
        self.later = xp.asarray(sequences.rows[sequences.steps > 0])
        self.later_ids = xp.asarray(sequences.ids[sequences.steps > 0])
        self.labels = xp.zeros(emission.size // max(self.tags, 1), np.int64)
        self.labels[self.rows] = label.reshape(-1)[self.rows]


@checked("linear_chain_crf", "linear_chain_crf_grad")
def check_linear_chain_crf(Emission: Any, Emission_lod: Lod, Label: Any, Length: Any) -> None:
    rows = spans(Emission_lod, Length, Emission, "Emission").rows
    check_ids(Label.reshape(-1)[rows], Emission.shape[-1], "Label")


@kernel("linear_chain_crf")
def linear_chain_crf(
    xp: Any,
    Emission: Any,
    Emission_lod: Lod,
    Transition: Any,
    Label: Any,
    Length: Any,
    Alpha: Any,
    EmissionExps: Any,
    TransitionExps: Any,
    LogLikelihood: Any,
) -> None:
    chain = _TagChain(xp, Emission_lod, Emission, Label, Length)
    sequences, labels = chain.spans, chain.labels
    scores = Emission.reshape(-1, chain.tags)
    top = scores.max(1, keepdims=True) if len(scores) else scores[:, :1]
    exps, moves = xp.exp(scores - top), xp.exp(Transition)
    write_wanted((EmissionExps, exps.reshape(Emission.shape)), (TransitionExps, moves))
    alpha = xp.zeros_like(scores)
    every = xp.zeros(len(LogLikelihood), scores.dtype)  # the log of the sum over all sequences of tags
    xp.add.at(every, chain.ids, top[chain.rows, 0])
    for step, (active, rows) in enumerate(sequences.by_step):
        rows = xp.asarray(rows)
        reached = alpha[rows - 1] @ moves[2:] if step else moves[0]
        reached = reached * exps[rows]
        total = reached.sum(1)
        alpha[rows] = reached / total[:, None]
        every[xp.asarray(active)] += xp.log(total)
    every[chain.filled] += xp.log(alpha[chain.last] @ moves[1])
    write_wanted((Alpha, alpha.reshape(Emission.shape)))
    if LogLikelihood is None:
        return
    every[chain.filled] -= Transition[0, labels[chain.first]] + Transition[1, labels[chain.last]]
    xp.add.at(every, chain.ids, -scores[chain.rows, labels[chain.rows]])
    xp.add.at(every, chain.later_ids, -Transition[2 + labels[chain.later - 1], labels[chain.later]])
    LogLikelihood[...] = every.reshape(LogLikelihood.shape)


@kernel("linear_chain_crf_grad")
def linear_chain_crf_grad(
    xp: Any,
    Emission: Any,
    Emission_lod: Lod,
    Label: Any,
    Length: Any,
    Alpha: Any,
    EmissionExps: Any,
    TransitionExps: Any,
    dLogLikelihood: Any,
    dEmission: Any,
    dTransition: Any,
) -> None:
    chain = _TagChain(xp, Emission_lod, Emission, Label, Length)
    sequences, labels, rows, later = chain.spans, chain.labels, chain.rows, chain.later
    alpha, exps = Alpha.reshape(-1, chain.tags), EmissionExps.reshape(-1, chain.tags)
    d_likelihood, moves = dLogLikelihood.reshape(-1), TransitionExps[2:]
    beta = xp.zeros_like(alpha)
    beta[chain.last] = TransitionExps[1] / TransitionExps[1].sum()
    for _, here in sequences.by_step[:0:-1]:
        here = xp.asarray(here)
        back = (exps[here] * beta[here]) @ moves.T
        beta[here - 1] = back / back.sum(1, keepdims=True)
    shares = alpha[rows] * beta[rows]
    shares /= shares.sum(1, keepdims=True)  # the probability of each tag at each row
    shares[xp.arange(len(rows)), labels[rows]] -= 1
    shares *= d_likelihood[chain.ids][:, None]
    if dEmission is not None:
        dEmission.fill(0)
        dEmission.reshape(-1, chain.tags)[rows] = shares
    if dTransition is None:
        return
    by_row = xp.zeros_like(alpha)
    by_row[rows] = shares
    dTransition[0] = row_sum(xp, by_row[chain.first])
    dTransition[1] = row_sum(xp, by_row[chain.last])
    left, right = alpha[later - 1], exps[later] * beta[later]
    weights = d_likelihood[chain.later_ids] / ((left @ moves) * right).sum(1)
    dTransition[2:] = moves * (left.T @ (right * weights[:, None]))
    xp.add.at(dTransition, (2 + labels[later - 1], labels[later]), -d_likelihood[chain.later_ids])


def _best_ways(f: Any, parameters: Any, states: Any, inputs: Any) -> tuple[list[Any], list[Any]]:
    """A step of the search for the best sequence of tags: the best score of a sequence that ends with each tag, and its last tag
    but one. The parameter has the score of a move to each tag from each tag."""
    ways = f.unsqueeze2(states[0], axes=[1]) + parameters[0]
    best = f.reduce_max(ways, dim=[-1]) + inputs[0]
    return [best], [f.arg_max(ways, axis=-1), best]


@kernel("crf_decoding")
def crf_decoding(xp: Any, Emission: Any, Emission_lod: Lod, Transition: Any, Label: Any, Length: Any, ViterbiPath: Any) -> None:
    sequences = spans(Emission_lod, Length, Emission, "Emission")
    tags = Emission.shape[-1]
    order = PackedRows(*sequences) if Length is not None else packed_rows(tuple(Emission_lod[-1] or ()))
    rows, ends, steps = xp.asarray(order.rows), xp.asarray(order.ends), order.steps
    scores, filled = Emission.reshape(-1, tags)[rows], len(ends)
    came = xp.zeros(scores.shape, np.int64)  # the best tag before each tag, later its place in this array
    best = xp.empty_like(scores)
    xp.add(Transition[0], scores[:filled], out=best[:filled])
    moves = xp.ascontiguousarray(Transition[2:].T)

    def step(states: Any, inputs: Any, outputs: Any) -> None:
        (before,), (now,), (came_from, after) = states, inputs, outputs
        ways = before[:, None] + moves
        came_from[...] = ways.argmax(2)
        xp.add(ways.max(2), now, out=after)
        xp.copyto(before, after)

    later = [(start - filled, count) for start, count in steps[1:]]
    formula = StepFormula("crf_decoding", [moves], [scores[filled:]], _best_ways)
    outputs = [came[filled:], best[filled:]]
    loops_of(xp).in_turn(later, [best[:filled].copy()], outputs, lambda: (step, formula.inputs), formula)
    came[filled:] += xp.asarray(order.before)[:, None] * tags
    came, places = came.reshape(-1), xp.empty(len(rows), np.int64)
    at = ends * tags + (best[ends] + Transition[1]).argmax(1)
    for start, count in reversed(steps):
        places[start : start + count] = at[:count]
        at[:count] = came[at[:count]]
    path = ViterbiPath.reshape(-1)
    path.fill(0)
    path[rows] = places - xp.arange(len(rows)) * tags
    if Label is not None:
        path[rows] = path[rows] == Label.reshape(-1)[rows]


@checked("viterbi_decode")
def check_viterbi_decode(xp: Any, Input: Any, Length: Any) -> None:
    if Length.size and not 0 <= int(Length.min()) <= int(Length.max()) <= Input.shape[1]:
        reach = f"from {int(Length.min())} to {int(Length.max())}"
        raise ExecutionError(f"viterbi_decode: Length is {reach}; the sequences in Input should have 0 to {Input.shape[1]} steps")


@kernel("viterbi_decode")
def viterbi_decode(xp: Any, Input: Any, Transition: Any, Length: Any, include_bos_eos_tag: bool, Scores: Any) -> Any:
    longest = int(Length.max()) if Length.size else 0
    lengths = Length.astype("int64")
    scores = Input[:, 0].copy()
    if include_bos_eos_tag:
        scores += Transition[-1] + xp.where((lengths == 1)[:, None], Transition[-2], 0)
    came_from = []
    for step in range(1, longest):
        ways = scores[:, :, None] + Transition
        came_from.append(ways.argmax(1))
        onward = ways.max(1) + Input[:, step]
        if include_bos_eos_tag:
            onward += xp.where((lengths == step + 1)[:, None], Transition[-2], 0)
        scores = xp.where((step < lengths)[:, None], onward, scores)
    tags = scores.argmax(1)
    if Scores is not None:
        xp.copyto(Scores, scores.max(1))
    path = xp.zeros((len(Input), longest), "int64")
    for step in range(longest - 1, -1, -1):
        path[:, step] = xp.where(step < lengths, tags, 0)
        if step:
            before = xp.take_along_axis(came_from[step - 1], tags[:, None], 1)[:, 0]
            tags = xp.where(step < lengths, before, tags)
    return path


# ------------------------------------------------------------------------------------------------------------- chunks
_NONE = -1
# The tag types that begin a chunk, are inside of one, end one, and are one alone.
_TAGS = {
    "IOB": {"begin": 0, "inside": 1},
    "IOE": {"inside": 0, "end": 1},
    "IOBES": {"begin": 0, "inside": 1, "end": 2, "single": 3},
    "plain": {"single": 0},
}


def _chunks(tags: Any, first: Any, scheme: str, types: int, excluded: list[int]) -> tuple[Any, Any]:
    """For each row: the type of the chunk that starts there (or -1), and the last row of the chunk that contains it.

    `first` marks the rows where a sequence begins.
    """
    kinds = _TAGS[scheme]
    kind, chunk = tags % len(kinds), tags // len(kinds)
    if len(tags) and (tags.min() < 0 or chunk.max() > types):
        raise ExecutionError(f"a tag is {tags.min()} or {tags.max()}; tags should be from 0 to {types * len(kinds)}")
    outside = chunk == types
    # A chunk goes on from a row to the next one, if both are of its type and neither tag says otherwise.
    goes_on = np.zeros(len(tags), bool)
    if len(tags):
        ends = [kinds[name] for name in ("end", "single") if name in kinds and scheme != "plain"]
        begins = [kinds[name] for name in ("begin", "single") if name in kinds and scheme != "plain"]
        goes_on[:-1] = (chunk[:-1] == chunk[1:]) & ~first[1:] & ~np.isin(kind[:-1], ends) & ~np.isin(kind[1:], begins)
    starts = np.concatenate([[True], ~goes_on[:-1]])[: len(tags)] & ~outside & ~np.isin(chunk, excluded)
    rows = np.arange(len(tags))
    last = np.minimum.accumulate(np.where(goes_on, len(tags), rows)[::-1])[::-1]
    return np.where(starts, chunk, _NONE), last


@kernel("chunk_eval")
def chunk_eval(
    Inference: Any,
    Label: Any,
    Label_lod: Lod,
    SeqLength: Any,
    num_chunk_types: int,
    chunk_scheme: str,
    excluded_chunk_types: list[int],
    Precision: Any,
    Recall: Any,
    F1_Score: Any,
    NumInferChunks: Any,
    NumLabelChunks: Any,
    NumCorrectChunks: Any,
) -> None:
    sequences = spans(Label_lod, SeqLength, Label, "Label")
    rows, first = sequences.rows, sequences.steps == 0
    (types, ends), (expected, expected_ends) = (
        _chunks(to_numpy(value).reshape(-1)[rows], first, chunk_scheme, num_chunk_types, excluded_chunk_types)
        for value in (Inference, Label)
    )
    inferred, labelled = int((types != _NONE).sum()), int((expected != _NONE).sum())
    correct = int(((types != _NONE) & (types == expected) & (ends == expected_ends)).sum())
    precision, recall = correct / inferred if inferred else 0.0, correct / labelled if labelled else 0.0
    f1 = 2 * precision * recall / (precision + recall) if correct else 0.0
    write_wanted((Precision, precision), (Recall, recall), (F1_Score, f1))
    write_wanted((NumInferChunks, inferred), (NumLabelChunks, labelled), (NumCorrectChunks, correct))
