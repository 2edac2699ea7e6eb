"""Labels of sequences: linear-chain conditional random fields, and the evaluation of chunks of labels.

A sequence is a sequence of rows of Emission or, where Length is given, the first ``Length[b]`` entries of each
``Emission[b]``, ``[batch, steps, tags]``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..errors import InferenceError
from ..ir.scan import scan
from ..opdef.registry import NOT_DIFFERENTIABLE, ZERO_GRADIENT, define, ints, required
from ..values.spec import Spec
from ..values.types import VarType
from .sequence import offsets_of
from .shapes import check_types_agree, fits, one_a_row


def _padded_positions(X: Spec, Length: Spec) -> Spec:
    if X.ndim < 2 or not fits(Length.size, X.shape[0]):
        raise InferenceError(f"Length {Length} should have a number for each of the sequences of {X}, [batch, steps, ...]")
    return Spec(X.shape[:2], VarType.INT64)


@define("padded_positions(X, Length: int) -> Out", infer=_padded_positions, grad=ZERO_GRADIENT, shape_only=("X",))
def padded_positions() -> None:
    """``Out[b, t] = b * steps + t``, the row of entry t of sequence b in X ``[batch, steps, ...]`` flattened to rows; -1 for ``t
    >= Length[b]``."""


# ------------------------------------------------------------------------------------------- conditional random fields
def _sequences(Emission: Spec, Transition: Spec, Label: Spec | None, Length: Spec | None) -> int:
    """The number of sequences, or -1; `InferenceError` if the inputs do not fit together."""
    if Length is None:
        offsets = offsets_of(Emission, "Emission")
        count = -1 if offsets is None else len(offsets) - 1
        if Emission.ndim != 2:
            raise InferenceError(f"Emission {Emission} should be [rows, tags]; give Length for padded sequences")
    else:
        if Emission.ndim != 3:
            raise InferenceError(f"with Length, Emission {Emission} should have shape [batch, steps, tags]")
        count = Emission.shape[0]
        if not fits(Length.size, count):
            raise InferenceError(f"Length {Length} should have a number for each of the {count} sequences")
    tags = Emission.shape[-1]
    if Transition.ndim != 2 or not fits(Transition.shape[1], tags) or (tags >= 0 and not fits(Transition.shape[0], tags + 2)):
        raise InferenceError(f"Transition {Transition} should have shape [tags + 2, tags], Emission being {Emission}")
    lead = Emission.shape[:-1]
    if Label is not None and (
        Label.ndim < len(lead)
        or not all(map(fits, Label.shape, lead))
        or any(size not in (1, -1) for size in Label.shape[len(lead) :])
    ):
        raise InferenceError(f"Label {Label} should have a label for each entry of Emission {Emission}")
    return count


def _crf(Emission: Spec, Transition: Spec, Label: Spec, Length: Spec | None) -> tuple[Spec, Spec, Spec, Spec]:
    count = _sequences(Emission, Transition, Label, Length)
    return Emission, Emission, Transition, Spec((count, 1), Emission.dtype)


@define(
    "crf_counts(Label: int, Rows: int, Transition) -> Out",
    infer=lambda Label, Rows, Transition: Spec((Rows.shape[0], *Transition.shape), Transition.dtype),
    grad=ZERO_GRADIENT,
    shape_only=("Transition",),
    lod_aware=True,
)
def crf_counts() -> None:
    """How often the labels of each sequence ``Label[Rows[b]]`` begin with a tag (``Out[b, 0]``), end with one (``Out[b, 1]``)
    and go from tag i to j (``Out[b, 2 + i, j]``)."""


def _crf_decomposed(f: Any, values: Mapping[str, Any], attrs: Mapping[str, Any]) -> dict[str, Any]:
    emission, transition, label, length = (values.get(slot) for slot in ("Emission", "Transition", "Label", "Length"))
    assert emission is not None and transition is not None and label is not None
    tags = transition.shape[1]
    rows = f.sequence_positions(emission) if length is None else f.padded_positions(emission, length)
    flat, labels = f.reshape2(emission, shape=[-1, tags]), f.reshape2(label, shape=[-1, 1])
    by_time = f.transpose2(rows, axis=[1, 0])
    padded, mask = f.take_rows(flat, by_time), f.unsqueeze2((by_time >= 0).astype(emission.dtype), axes=[2])
    begin, end, between = (f.slice(transition, axes=[0], starts=[a], ends=[b]) for a, b in ((0, 1), (1, 2), (2, 2 + tags)))

    def step(f: Any, before: list[Any], slices: list[Any]) -> tuple[list[Any], list[Any]]:
        alpha, started = before
        scores, here = slices
        moved = f.logsumexp(f.unsqueeze2(alpha, axes=[2]) + between, axis=[1])
        new = scores + moved * started + begin * (1.0 - started)
        after = [new * here + alpha * (1.0 - here), started + here * (1.0 - started)]
        return after, after

    zeros = {"value": 0.0, "input_dim_idx": 1, "output_dim_idx": 0, "dtype": int(emission.dtype)}
    first = [f.fill_constant_batch_size_like(padded, shape=[-1, size], **zeros) for size in (tags, 1)]
    alpha, started = (last_step(f, states) for states in scan(step, first, [padded, mask]))
    every = f.logsumexp(alpha + end, axis=[1], keepdim=True)
    counts = f.reshape2(f.crf_counts(labels, rows, transition), shape=[-1, (tags + 2) * tags])
    emitted = f.reduce_sum(f.take_rows(f.pick(flat, labels), rows), dim=[1])
    return {"LogLikelihood": (every - emitted - counts @ f.reshape2(transition, shape=[-1, 1])) * started}


def last_step(f: Any, sequence: Any) -> Any:
    """The last entry of a sequence ``[time, ...]``."""
    return f.squeeze2(f.slice(sequence, axes=[0], starts=[-1], ends=[2**31 - 1]), axes=[0])


@define(
    "linear_chain_crf(Emission: float, Transition: float, Label: int, Length?: int)"
    " -> Alpha~, EmissionExps~, TransitionExps~, LogLikelihood",
    infer=_crf,
    wrt=("Emission", "Transition"),
    decomposition=_crf_decomposed,
    lod_aware=True,
)
def linear_chain_crf(  # type: ignore[no-untyped-def]
    f, Emission, Transition, Label, Length, Alpha, EmissionExps, TransitionExps, dLogLikelihood
):
    """Minus the log of the probability of the labels of each sequence, ``[sequences, 1]``; 0 for an empty one.

    The probability of a sequence of tags is proportional to the exponential of its score: ``Transition[0, first] + Transition[1,
    last]``, plus ``Transition[2 + i, j]`` for each step from tag i to j, plus the emissions of its tags.
    """


def _decoding(Emission: Spec, Transition: Spec, Label: Spec | None, Length: Spec | None) -> Spec:
    _sequences(Emission, Transition, Label, Length)
    if Length is not None:
        return Spec(Emission.shape[:2], VarType.INT64)
    return Spec((Emission.shape[0], 1), VarType.INT64, lod=Emission.lod)


@define(
    "crf_decoding(Emission: float, Transition: float, Label?: int, Length?: int) -> ViterbiPath",
    infer=_decoding,
    grad=NOT_DIFFERENTIABLE,
    lod_aware=True,
)
def crf_decoding() -> None:
    """The most probable tags of each sequence, as `linear_chain_crf` scores them; with Label, 1 where the tag is the label and 0
    where it is not. Padding is 0."""


def _viterbi(Input: Spec, Transition: Spec, Length: Spec, include_bos_eos_tag: bool) -> tuple[Spec, Spec]:
    tags = Input.shape[2]
    check_types_agree({"Input": Input, "Transition": Transition})
    if not fits(Transition.shape[1], tags) or (include_bos_eos_tag and -1 < tags < 2):
        raise InferenceError(f"Transition is {Transition}; it should be between the tags of Input {Input}, with two for the ends")
    if tags == 0 or Input.shape[1] == 0:
        raise InferenceError(f"Input is {Input}; it should have a step and a tag at least")
    return Input.with_shape(Input.shape[:1]), Spec((Input.shape[0], -1), VarType.INT64)


@define(
    "viterbi_decode(Input: real[B, L, T], Transition: real[T, T], Length: int[B]) -> Scores, Path",
    infer=_viterbi,
    grad=NOT_DIFFERENTIABLE,
    include_bos_eos_tag=True,
)
def viterbi_decode() -> None:
    """The best sequence of tags of each row of Input [batch, steps, tags], and its score: the sum of its elements of Input and of
    ``Transition[i, j]`` from each tag i to the next, j.

    Only the first Length steps count; Path has one column per step of the longest sequence, and is 0 after the end of a
    shorter one. With `include_bos_eos_tag`, a transition from the last tag comes first, and one from the last but one, by its
    row, comes last.
    """


# ------------------------------------------------------------------------------------------------------------- chunks
_SCHEMES = {"IOB": 2, "IOE": 2, "IOBES": 4, "plain": 1}


def _chunk_eval(
    Inference: Spec, Label: Spec, SeqLength: Spec | None, chunk_scheme: str, num_chunk_types: int
) -> tuple[Spec, Spec, Spec, Spec, Spec, Spec]:
    if chunk_scheme not in _SCHEMES:
        raise InferenceError(f"chunk_scheme is {chunk_scheme!r}; it should be one of {', '.join(_SCHEMES)}")
    if num_chunk_types < 1:
        raise InferenceError(f"num_chunk_types is {num_chunk_types}; there should be at least one")
    if not fits(Inference.size, Label.size):
        raise InferenceError(f"Inference {Inference} and Label {Label} should have as many tags")
    if SeqLength is None:
        offsets_of(Label, "Label")
        one_a_row("Label", Label)
    elif Label.ndim < 2 or not fits(Label.shape[0], SeqLength.size):
        raise InferenceError(f"SeqLength {SeqLength} should have a number for each sequence of Label {Label}")
    share, count = Spec((1,), VarType.FP32), Spec((1,), VarType.INT64)
    return share, share, share, count, count, count


@define(
    "chunk_eval(Inference: int, Label: int, SeqLength?: int)"
    " -> Precision, Recall, F1_Score, NumInferChunks, NumLabelChunks, NumCorrectChunks",
    infer=_chunk_eval,
    grad=NOT_DIFFERENTIABLE,
    lod_aware=True,
    num_chunk_types=required("int"),
    chunk_scheme=required("string"),
    excluded_chunk_types=ints(),
)
def chunk_eval() -> None:
    """Precision, recall and F1 of the chunks that Inference finds (float32, ``[1]``), and the numbers of chunks in Inference, in
    Label, and in both (int64).

    A tag is ``chunk type * tag types + tag type``, or ``num_chunk_types * tag types`` outside of chunks. The `chunk_scheme` sets
    the tag types: IOB has begin and inside; IOE inside and end; IOBES begin, inside, end and single; plain only one. Chunks of
    the types `excluded_chunk_types` do not count.
    """
