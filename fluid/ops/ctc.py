"""Labels that are not aligned with their input: connectionist temporal classification (CTC), edit distance."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..errors import BackwardError, InferenceError
from ..ir.scan import scan
from ..opdef.registry import NOT_DIFFERENTIABLE, ZERO_GRADIENT, define, like
from ..values.lod_array import lengths_of
from ..values.spec import Spec
from ..values.types import VarType
from .crf import last_step
from .sequence import offsets_of
from .shapes import fits, one_a_row


def _count(slot: str, spec: Spec, length: Spec | None, time_major: bool = False) -> int:
    """The number of sequences, or -1, of a slot: by its LoD or, if given, by `length`."""
    if length is None:
        offsets = offsets_of(spec, slot)
        return -1 if offsets is None else len(offsets) - 1
    if spec.ndim < 2 or not fits(spec.shape[int(time_major)], length.size):
        lead = "steps, batch" if time_major else "batch, steps"
        raise InferenceError(f"{slot} {spec} should be [{lead}, ...], with as many sequences as lengths {length}")
    return spec.shape[int(time_major)]


def _count_of_labels(slot: str, spec: Spec, length: Spec | None) -> int:
    """As `_count`, of integers: `InferenceError` if rows of sequences have several."""
    if length is None:
        one_a_row(slot, spec)
    return _count(slot, spec, length)


def _longest(spec: Spec) -> int:
    offsets = spec.lod[-1] if spec.lod else None
    return -1 if offsets is None else max(lengths_of(offsets), default=0)


# ----------------------------------------------------------------------------------------------------------------- CTC
def _states(Logits: Spec, Label: Spec, LogitsLength: Spec | None, LabelLength: Spec | None, blank: int) -> tuple[Spec, ...]:
    if (LogitsLength is None) != (LabelLength is None):
        raise InferenceError("give both LogitsLength and LabelLength, or neither")
    padded = LogitsLength is not None
    if Logits.ndim != (3 if padded else 2):
        shape = "[steps, batch, classes]" if padded else "[rows, classes]"
        raise InferenceError(f"Logits {Logits} should have shape {shape}")
    if not 0 <= blank < (Logits.shape[-1] if Logits.shape[-1] >= 0 else blank + 1):
        raise InferenceError(f"blank is {blank}; it should be a class of Logits {Logits}")
    count = _count("Logits", Logits, LogitsLength, time_major=True)
    labels = _count_of_labels("Label", Label, LabelLength)
    if not fits(count, labels):
        raise InferenceError(f"Logits {Logits} has {count} sequences, but Label {Label} has {labels}")
    steps = Logits.shape[0] if padded else _longest(Logits)
    longest = Label.shape[1] if padded else _longest(Label)
    wide = -1 if longest < 0 else 2 * longest + 1
    count = max(count, labels)
    penalty = Spec((count, wide), Logits.dtype)
    rows, states = Spec((steps, count), VarType.INT64), Spec((count, wide), VarType.INT64)
    return rows, states, penalty, penalty, penalty, Spec((count, 1), Logits.dtype)


@define(
    "ctc_states(Logits: float, Label: int, LogitsLength?: int, LabelLength?: int) -> Rows, States, Start, Skip, End, Weight",
    infer=_states,
    grad=ZERO_GRADIENT,
    shape_only=("Logits",),
    lod_aware=True,
    blank=0,
)
def ctc_states() -> None:
    """The terms of `warpctc`. Rows: the row of the logits for step t of sequence b, or -1. States: the classes that a path of
    sequence b goes through: its labels with blanks before, between and after them. Start, Skip and End: 0 where a path may
    begin before a state, skip the state before it, and end; -1e30 elsewhere. Weight: 1, or 0 where no path is short enough."""


def _ctc_decomposed(f: Any, values: Mapping[str, Any], attrs: Mapping[str, Any]) -> dict[str, Any]:
    logits, label = values["Logits"], values.get("Label")
    if label is None:
        raise BackwardError(
            "warpctc_grad has no Label input (as in files of Paddle), so that it cannot be differentiated; build the gradient "
            "again with append_backward"
        )
    lengths = values.get("LogitsLength"), values.get("LabelLength")
    rows, states, begin, skip, end, weight = f.ctc_states(logits, label, *lengths, blank=attrs["blank"])
    far = -1e30
    if attrs["norm_by_times"]:  # scales the gradient alone
        times = f.clip(f.reduce_sum((rows >= 0).astype(logits.dtype), dim=[0]), min=1.0, max=3e38)
        share = f.reshape2(1.0 / times, shape=[-1, 1])
    flat = f.log_softmax(f.reshape2(logits, shape=[-1, logits.shape[-1]]), axis=-1)
    mask = f.unsqueeze2((rows >= 0).astype(logits.dtype), axes=[2])

    def shifted(f: Any, alpha: Any, by: int) -> Any:
        return f.slice(f.pad(alpha, paddings=[0, 0, by, 0], pad_value=far), axes=[1], starts=[0], ends=[-by])

    def step(f: Any, before: list[Any], slices: list[Any]) -> tuple[list[Any], list[Any]]:
        (alpha,), (scores, here) = before, slices
        ways = f.stack([alpha, shifted(f, alpha, 1), shifted(f, alpha, 2) + skip], axis=0)
        new = f.logsumexp(ways, axis=[0]) + f.index_sample(scores, states)
        alpha = new * here + alpha * (1.0 - here)
        return [alpha], [alpha]

    (alphas,) = scan(step, [begin], [f.take_rows(flat, rows), mask])
    loss = f.logsumexp(last_step(f, alphas) + end, axis=[1], keepdim=True) * weight * -1.0
    if attrs["norm_by_times"]:
        loss = loss * share + f.held(loss * (1.0 - share))
    return {"Loss": loss}


@define("held(X) -> Out", infer=like("X"), grad=ZERO_GRADIENT)
def held() -> None:
    """A copy of X, through which no gradient flows."""


def _warpctc(Logits: Spec, Label: Spec, LogitsLength: Spec | None, LabelLength: Spec | None, blank: int) -> tuple[Spec, Spec]:
    rows, *_, weight = _states(Logits, Label, LogitsLength, LabelLength, blank)
    return weight, Spec((*rows.shape, Logits.shape[-1]), Logits.dtype)


@define(
    "warpctc(Logits: float, Label: int, LogitsLength?: int, LabelLength?: int) -> Loss, WarpCTCGrad~",
    infer=_warpctc,
    wrt=("Logits",),
    decomposition=_ctc_decomposed,
    lod_aware=True,
    blank=0,
    norm_by_times=False,
)
def warpctc(  # type: ignore[no-untyped-def]
    f, Logits, LogitsLength, WarpCTCGrad, dLoss, Label=None, LabelLength=None
):
    """The CTC loss: minus the log of the probability of each sequence's labels, given its logits; ``[sequences, 1]``.

    A path has a class for each step, drawn by the softmax of the step's logits. Merging its repeated classes and dropping the
    class `blank` gives its labels. The loss is 0 where no path is short enough for the labels. With `norm_by_times`, gradients
    are divided by the number of steps. The sequences come from a LoD, or from ``Logits [steps, batch, classes]`` and ``Label
    [batch, labels]`` with LogitsLength and LabelLength.
    """


# ---------------------------------------------------------------------------------------------------------- transducers
def _transducer(input: Spec, label: Spec, input_lengths: Spec, label_lengths: Spec, blank: int) -> tuple[int, int, int]:
    """Batch, steps and labels with one more."""
    batch, steps, wide, classes = input.shape
    for name, spec in (("label", label), ("input_lengths", input_lengths), ("label_lengths", label_lengths)):
        if not fits(spec.shape[0], batch):
            raise InferenceError(f"{name} is {spec}; it should be of as many sequences as input {input}")
    if -1 not in (wide, label.shape[1]) and label.shape[1] != wide - 1:
        raise InferenceError(
            f"label is {label}; it should have one label fewer than input {input} has places, [B, T, labels + 1, C]"
        )
    if not 0 <= blank < (classes if classes >= 0 else blank + 1):
        raise InferenceError(f"blank is {blank}; it should be a class of input {input}")
    if steps == 0:
        raise InferenceError(f"input is {input}; it should have a step at least")
    return max(batch, label.shape[0]), steps, wide if wide >= 0 else -1 if label.shape[1] < 0 else label.shape[1] + 1


def _places(input: Spec, label: Spec, input_lengths: Spec, label_lengths: Spec) -> tuple[Spec, Spec, Spec]:
    batch, steps, wide = _transducer(input, label, input_lengths, label_lengths, 0)
    classes, last = Spec((batch, steps, wide, 1), VarType.INT64), Spec((batch, 1), VarType.INT64)
    return classes, last, input.with_shape((batch, wide))


_SEQUENCES = "input: real[B, T, U, C], label: int[B, L], input_lengths: int[B], label_lengths: int[B]"


@define(f"rnnt_places({_SEQUENCES}) -> Labels, Last, Start", infer=_places, grad=ZERO_GRADIENT, shape_only=("input",))
def rnnt_places() -> None:
    """The terms of `warprnnt`. Labels: the class of the label that comes at each place, 0 behind the last. Last: where each
    sequence ends, among its steps and places. Start: 0 at the first place, -1e30 elsewhere."""


def _rnnt_decomposed(f: Any, values: Mapping[str, Any], attrs: Mapping[str, Any]) -> dict[str, Any]:
    scores, label = values["input"], values.get("label")
    if label is None or values.get("label_lengths") is None:
        raise BackwardError(
            "warprnnt_grad has no label input (as in files of Paddle), so that it cannot be differentiated; build the gradient "
            "again with append_backward"
        )
    labels, last, start = f.rnnt_places(scores, label, values["input_lengths"], values["label_lengths"])
    blank, more = attrs["blank"], attrs["fastemit_lambda"]
    blanks = f.slice(scores, axes=[3], starts=[blank], ends=[blank + 1], decrease_axis=[3])
    emitted = f.squeeze2(f.pick(scores, labels, axis=3, ignore_index=-1), axes=[3])
    if more:  # scales the gradient alone
        emitted = emitted * (1.0 + more) - f.held(emitted * more)
    along = f.cumsum(emitted, axis=2, exclusive=True)

    def step(f: Any, before: list[Any], slices: list[Any]) -> tuple[list[Any], list[Any]]:
        (arrived,), (along, blanks) = before, slices
        left = along + f.logcumsumexp(arrived - along, axis=1) + blanks
        return [left], [left]

    (left,) = scan(step, [start], [f.transpose2(part, axis=[1, 0, 2]) for part in (along, blanks)])
    ends = f.index_sample(f.flatten(f.transpose2(left, axis=[1, 0, 2]), axis=1), last)
    return {"loss": f.reshape2(ends, shape=[-1]) * -1.0}


def _warprnnt(input: Spec, label: Spec, input_lengths: Spec, label_lengths: Spec, blank: int) -> tuple[Spec, Spec]:
    batch, steps, wide = _transducer(input, label, input_lengths, label_lengths, blank)
    return input.with_shape((batch,)), input.with_shape((batch, steps, wide, input.shape[3]))


@define(
    f"warprnnt({_SEQUENCES}) -> loss, warprnntgrad~",
    infer=_warprnnt,
    wrt=("input",),
    decomposition=_rnnt_decomposed,
    blank=0,
    fastemit_lambda=0.0,
)
def warprnnt(  # type: ignore[no-untyped-def]
    f, input, input_lengths, warprnntgrad, dloss, label=None, label_lengths=None
):
    """The loss of a transducer: minus the log of the probability of each sequence's labels, of the logarithms of probabilities
    `input` [batch, steps, labels + 1, classes].

    At each step, after so many labels, either the next label is emitted or, by the class `blank`, the next step is taken; the
    last step ends with one. Gradients of emitting are larger by `fastemit_lambda`. As in Paddle on the CPU, there is no softmax
    inside.
    """


def _align(Input: Spec, InputLength: Spec | None) -> tuple[Spec, Spec | None]:
    count = _count_of_labels("Input", Input, InputLength)
    if InputLength is None:
        return Spec((-1, *Input.shape[1:]), Input.dtype, lod=(None,) * max(len(Input.lod), 1)), None
    return Input, Spec((count, 1), InputLength.dtype)


@define(
    "ctc_align(Input: int, InputLength?: int) -> Output, OutputLength?",
    infer=_align,
    grad=NOT_DIFFERENTIABLE,
    lod_aware=True,
    blank=0,
    merge_repeated=True,
    padding_value=0,
)
def ctc_align() -> None:
    """The labels of paths, which are sequences of integer classes: without repetitions (with `merge_repeated`) and `blank`.

    With InputLength, Input and Output are ``[batch, steps]``, Output padded with `padding_value`; OutputLength is ``[batch, 1]``.
    With a LoD, Output is ``[[-1]]`` if nothing is left of all sequences.
    """


# ------------------------------------------------------------------------------------------------------- edit distance
def _distance(Hyps: Spec, Refs: Spec, HypsLength: Spec | None, RefsLength: Spec | None) -> tuple[Spec, Spec]:
    hyps = _count_of_labels("Hyps", Hyps, HypsLength)
    refs = _count_of_labels("Refs", Refs, RefsLength)
    if not fits(hyps, refs):
        raise InferenceError(f"Hyps {Hyps} has {hyps} sequences, but Refs {Refs} has {refs}")
    return Spec((1,), VarType.INT64), Spec((max(hyps, refs), 1), VarType.FP32)


@define(
    "edit_distance(Hyps: int, Refs: int, HypsLength?: int, RefsLength?: int) -> SequenceNum, Out",
    infer=_distance,
    grad=NOT_DIFFERENTIABLE,
    lod_aware=True,
    normalized=False,
)
def edit_distance() -> None:
    """The least number of insertions, deletions and replacements that turn a sequence of Hyps into its counterpart in Refs,
    float32 ``[sequences, 1]``; if `normalized`, divided by the length of the latter. SequenceNum, int64 ``[1]``, counts the
    sequences."""
