"""Largest elements and accuracy."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..errors import InferenceError
from ..opdef.composition import means
from ..opdef.registry import NOT_DIFFERENTIABLE, ShapeOnly, at_most, choice, define, least, required
from ..values.spec import Spec
from ..values.types import VarType
from .formulas import at_least, choose
from .shapes import fits, normalize_axis, one_each, one_number, scalar_shape


def _top(X: Spec, K: Spec | None, k: int, axis: int) -> tuple[Spec, Spec]:
    axis = normalize_axis(axis, X.ndim)
    if K is None and not (k >= 1 and (X.shape[axis] == -1 or k <= X.shape[axis])):
        raise InferenceError(f"top_k: k {k} should be in [1, {X.shape[axis]}], the size of axis {axis} of X {X}")
    out = X.with_shape((*X.shape[:axis], k if K is None else -1, *X.shape[axis + 1 :]))
    return out, out.with_dtype(VarType.INT64)


@define("top_k(X, K?: int[one]) -> Out, Indices", infer=lambda X, K, k: _top(X, K, k, -1), wrt=("X",), k=1)
def top_k(f: Any, X: ShapeOnly, Indices: Any, dOut: Any) -> Any:
    """The k (or the number in K) largest elements of each row in descending order, and their indices in the row."""
    return {"X": f.place(dOut, Indices, X)}


@define("top_k_v2(X, K?: int[one]) -> Out, Indices", infer=_top, wrt=("X",), k=1, axis=-1, largest=True, sorted=True)
def top_k_v2(f: Any, X: ShapeOnly, K: ShapeOnly, Indices: Any, dOut: Any, axis: Any) -> Any:
    """The k largest (or smallest) elements along `axis`, in order, and their indices."""
    return {"X": f.place(dOut, Indices, X, axis=axis)}


def _accuracy(Out: Spec, Indices: Spec, Label: Spec, declared: Mapping[str, Any]) -> tuple[Spec, Spec, Spec]:
    one_each("Label", Label, Indices.shape[0])
    correct, total = (Spec(scalar_shape(declared, slot), VarType.INT32) for slot in ("Correct", "Total"))
    return Spec(scalar_shape(declared, "Accuracy"), VarType.FP32), correct, total


@define(
    "accuracy(Out, Indices: int[N, k], Label: int[N, ...]) -> Accuracy, Correct, Total",
    infer=_accuracy,
    grad=NOT_DIFFERENTIABLE,
    shape_only=("Out",),
)
def accuracy() -> None:
    """The share of rows whose Label [N, 1] is among Indices [N, k], as float32; the number of these rows, and of all rows."""


def _auc(
    Predict: Spec,
    Label: Spec,
    StatPos: Spec,
    StatNeg: Spec,
    InsTagWeight: Spec | None,
    num_thresholds: int,
    slide_steps: int,
    declared: Mapping[str, Any],
) -> tuple[Spec, Spec, Spec]:
    if Predict.shape[1] not in (1, 2, -1):
        raise InferenceError(f"auc: Predict {Predict} should have shape [rows, 2], of probabilities, or [rows, 1]")
    one_each("Label", Label, Predict.shape[0])
    one_each("InsTagWeight", InsTagWeight, Predict.shape[0])
    bins = num_thresholds + 1
    count = bins * (slide_steps + 1) + 1 if slide_steps else bins
    for slot, spec in (("StatPos", StatPos), ("StatNeg", StatNeg)):
        if spec.size not in (-1, count):
            raise InferenceError(
                f"auc: {slot} {spec} should have {count} elements, "
                f"with num_thresholds {num_thresholds} and slide_steps {slide_steps}"
            )
    return Spec(scalar_shape(declared, "AUC"), VarType.FP64), StatPos, StatNeg


@define(
    "auc(Predict: float[N, C], Label: int[N, ...], StatPos: int, StatNeg: int, InsTagWeight?: [N, ...])"
    " -> AUC, StatPosOut, StatNegOut",
    infer=_auc,
    grad=NOT_DIFFERENTIABLE,
    curve=choice("ROC"),
    num_thresholds=least(1, 2**13 - 1),
    slide_steps=least(0, 1),
)
def auc() -> None:
    """The area under the ROC curve of the predictions of this batch and of previous ones, as float64.

    StatPos and StatNeg count the rows with label 1 and 0 in ``num_thresholds + 1`` bins of predictions: over all batches or, with
    `slide_steps`, in each of the last `slide_steps` batches; then follow their sums and the number of batches. The prediction is
    the last column of Predict. Rows are weighted by InsTagWeight.
    """


def _mean_iou(
    Predictions: Spec,
    Labels: Spec,
    InWrongs: list[Spec] | None,
    InCorrects: list[Spec] | None,
    InMeanIou: list[Spec] | None,
    num_classes: int,
    declared: Mapping[str, Any],
) -> tuple[Spec, Spec, Spec]:
    if not fits(Predictions.size, Labels.size):
        raise InferenceError(f"mean_iou: Predictions {Predictions} and Labels {Labels} should have the same number of elements")
    for spec in InMeanIou or ():
        one_number("InMeanIou", spec)
    for spec in (*(InWrongs or ()), *(InCorrects or ())):
        if spec.shape[0] not in (-1, num_classes):
            raise InferenceError(
                f"mean_iou: InWrongs and InCorrects should have num_classes {num_classes} elements, not be {spec}"
            )
    counts = Spec((num_classes,), VarType.INT32)
    return Spec(scalar_shape(declared, "OutMeanIou"), VarType.FP32), counts, counts


def _overlaps(f: Any, values: Mapping[str, Any], num_classes: int) -> dict[str, Any]:
    predicted, labels = (f.reshape(values[slot], shape=[-1]).astype(VarType.INT64) for slot in ("Predictions", "Labels"))
    zeros = f.fill_constant(shape=[num_classes], dtype=int(VarType.INT64), value=0.0)
    missed = f.not_equal(predicted, labels).astype(VarType.INT64)

    def counted(places: Any, amounts: Any) -> Any:
        return f.scatter_nd_add(zeros, f.unsqueeze2(places, axes=[1]), amounts)

    def total(slot: str, *parts: Any) -> Any:
        return f.sum([*parts, *(part.astype(VarType.INT64) for part in values.get(slot) or ())])

    correct = total("InCorrects", counted(labels, f.equal(predicted, labels).astype(VarType.INT64)))
    wrong = total("InWrongs", counted(labels, missed), counted(predicted, missed))
    union = (correct + wrong).astype(VarType.FP64)
    occurring = at_least(f, f.reduce_sum((union > 0.0).astype(VarType.FP64), reduce_all=True), 1.0)
    mean = f.reduce_sum(correct.astype(VarType.FP64) / at_least(f, union, 1.0), reduce_all=True) / occurring
    for part in values.get("InMeanIou") or ():
        mean = mean + f.reshape(part, shape=[-1]).astype(VarType.FP64)
    return {
        "OutMeanIou": mean.astype(VarType.FP32),
        "OutWrong": wrong.astype(VarType.INT32),
        "OutCorrect": correct.astype(VarType.INT32),
    }


@define(
    "mean_iou(Predictions: int, Labels: int, InWrongs*?: int[C], InCorrects*?: int[C], InMeanIou*?)"
    " -> OutMeanIou, OutWrong, OutCorrect",
    infer=_mean_iou,
    grad=NOT_DIFFERENTIABLE,
    composition=means(_overlaps),
    num_classes=least(1, required("int")),
)
def mean_iou() -> None:
    """The mean, over the classes that occur, of intersection over union of predicted and labelled elements, as float32.

    OutCorrect counts the correct predictions of each class, OutWrong the wrong ones with the class as prediction or as label.

    Args:
        Predictions: classes, of any shape.
        Labels: classes, of the same shape.
        num_classes: classes are in ``[0, num_classes)``.
        InWrongs, InCorrects: counts to add to the counts of the result.
        InMeanIou: means to add to the mean of the result.
    """


def _precision_recall(
    MaxProbs: Spec, Indices: Spec, Labels: Spec, Weights: Spec | None, StatesInfo: Spec | None, class_number: int
) -> tuple[Spec, Spec, Spec]:
    for name, spec in (("Indices", Indices), ("Labels", Labels), ("Weights", Weights)):
        one_each(name, spec, MaxProbs.shape[0])
    if StatesInfo is not None and not all(map(fits, StatesInfo.shape, (class_number, 4))):
        raise InferenceError(f"StatesInfo {StatesInfo} should have shape [{class_number}, 4]")
    metrics = Spec((6,), VarType.FP64)
    return metrics, metrics, Spec((class_number, 4), VarType.FP32)


def _metrics_of(f: Any, states: Any) -> Any:
    """Precision, recall and F1, averaged over classes and of all rows, by counts of each class: see `precision_recall`."""

    def share(part: Any, total: Any, otherwise: float) -> Any:
        return choose(f, total > 0.0, part / choose(f, total > 0.0, total, 1.0), otherwise)

    hits, wrong, _, missed = f.unstack(states, axis=1, num=4)
    metrics = []
    for counts in ((hits, wrong, missed), [f.reduce_sum(count, reduce_all=True) for count in (hits, wrong, missed)]):
        right, false, lacking = counts
        precision, recall = (f.reduce_mean(share(right, right + more, 1.0), reduce_all=True) for more in (false, lacking))
        metrics += [precision, recall, share(precision * recall * 2.0, precision + recall, 0.0)]
    return f.concat(metrics, axis=0)


def _precision(f: Any, values: Mapping[str, Any], class_number: int) -> dict[str, Any]:
    predicted, labelled = (
        f.one_hot_v2(f.reshape(values[slot], shape=[-1]), depth=class_number, dtype=int(VarType.FP64))
        for slot in ("Indices", "Labels")
    )
    weights = values.get("Weights")
    weights = 1.0 if weights is None else f.reshape(weights, shape=[-1, 1]).astype(VarType.FP64)
    both, neither = predicted * labelled, (1.0 - predicted) * (1.0 - labelled)
    kinds = (both, predicted - both, neither, labelled - both)
    states = f.stack([f.reduce_sum(kind * weights, dim=[0]) for kind in kinds], axis=1)
    info = values.get("StatesInfo")
    total = states if info is None else states + info.astype(VarType.FP64)
    return {
        "BatchMetrics": _metrics_of(f, states),
        "AccumMetrics": _metrics_of(f, total),
        "AccumStatesInfo": total.astype(VarType.FP32),
    }


@define(
    "precision_recall(MaxProbs: [N, ...], Indices: int[N, ...], Labels: int[N, ...], Weights?: [N, ...], StatesInfo?: [C, S])"
    " -> BatchMetrics, AccumMetrics, AccumStatesInfo",
    infer=_precision_recall,
    grad=NOT_DIFFERENTIABLE,
    composition=means(_precision),
    shape_only=("MaxProbs",),
    class_number=at_most(1 << 16, least(1, required("int"))),
)
def precision_recall() -> None:
    """Precision, recall and F1 of the classes in Indices, compared with the classes in Labels: averaged over the classes, then of
    all rows together. The rows are weighted by Weights.

    BatchMetrics cover this batch. AccumStatesInfo has true positives, false positives, true negatives and false negatives of each
    class, of this batch and of the previous ones in StatesInfo; AccumMetrics cover all of them. The precision of a class that is
    never predicted is 1, and so is the recall of one that never occurs.
    """


def _pairs(Score: Spec, Label: Spec, QueryID: Spec, Weight: Spec | None, column: int) -> tuple[Spec, Spec, Spec]:
    for name, spec in (("Label", Label), ("QueryID", QueryID), ("Weight", Weight)):
        one_each(name, spec, Score.shape[0])
    normalize_axis(column, Score.shape[1] if Score.shape[1] >= 0 else abs(column) + 1)
    count = Score.with_shape((1,))
    return count, count, count


def _ordered(f: Any, values: Mapping[str, Any], column: int) -> dict[str, Any]:
    score = f.slice(values["Score"], axes=[1], starts=[column], ends=[column + 1 if column != -1 else 2**31 - 1])
    weight = values.get("Weight")

    def compared(op: str, x: Any) -> Any:
        column = f.reshape(x, shape=[-1, 1])
        return getattr(f, op)(column, f.transpose(column, axis=[1, 0]))

    pairs = f.logical_and(compared("equal", values["QueryID"]), compared("not_equal", values["Label"])).astype(VarType.FP64)
    pairs = f.tril_triu(pairs, diagonal=1, lower=False)
    if weight is not None:
        pairs = pairs * compared("elementwise_add", weight.astype(VarType.FP64)) * 0.5
    above = compared("greater_than", values["Label"])
    right = f.logical_or(
        f.logical_and(above, compared("greater_than", score)), f.logical_and(f.logical_not(above), compared("less_than", score))
    )
    kinds = {"Positive": right, "Negative": f.logical_not(right), "Neutral": compared("equal", score)}
    results = {}
    for name, kind in kinds.items():
        count = f.reduce_sum(pairs * kind.astype(VarType.FP64), reduce_all=True)
        so_far = values.get(f"Accumulate{name}Pair")
        count = count if so_far is None else count + f.reshape(so_far, shape=[-1]).astype(VarType.FP64)
        results[f"{name}Pair"] = count.astype(score.dtype)
    return results


@define(
    "positive_negative_pair(Score: float[N, C], Label: [N, ...], QueryID: int[N, ...], AccumulatePositivePair?: [one],"
    " AccumulateNegativePair?: [one], AccumulateNeutralPair?: [one], Weight?: [N, ...])"
    " -> PositivePair, NegativePair, NeutralPair?",
    infer=_pairs,
    grad=NOT_DIFFERENTIABLE,
    composition=means(_ordered),
    column=0,
)
def positive_negative_pair() -> None:
    """Count the pairs of rows of one query with different labels: PositivePair, if the scores (of `column`) order them as the
    labels do, otherwise NegativePair. Some of the latter have equal scores: NeutralPair.

    A pair counts as the mean weight of its rows. The numbers so far, in the inputs that begin with Accumulate, are added.
    """
