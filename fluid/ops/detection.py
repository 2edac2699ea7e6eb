"""Ops of object detection: lay boxes out over images, match them with labelled boxes, and choose targets for learning.

Boxes are rows of left, top, right and bottom. With `box_normalized` (or `normalized`) these are places; without, they are
numbers of pixels. The right and bottom pixels belong to the box, so that it is ``right - left + 1`` wide.

Labelled boxes are sequences, one an image. Predictions are made for a fixed number of *priors* (boxes laid out over
the image), and a match is an index [N, priors] into the labelled boxes of the image; -1 for none.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ..errors import InferenceError
from ..opdef.composition import means
from ..opdef.registry import (
    NOT_DIFFERENTIABLE,
    ZERO_GRADIENT,
    at_most,
    choice,
    counted,
    define,
    floats,
    ints,
    least,
    required,
)
from ..values.spec import Spec
from ..values.types import VarType
from .formulas import at_least, choose, number_like
from .shapes import fits, one_each

# ------------------------------------------------------------------------------------------------------ priors, anchors
_VARIANCES = least(1e-12, counted(floats(0.1, 0.1, 0.2, 0.2)))
_STEPS: dict[str, Any] = {"step_w": least(0, 0.0), "step_h": least(0, 0.0), "offset": 0.5}


def _above_zero(name: str, values: list[float]) -> None:
    if not values or min(values) <= 0:
        raise InferenceError(f"{name} {values} should be numbers above 0, at least one")


def aspect_ratios_of(attrs: Mapping[str, Any]) -> list[float]:
    """The different aspect ratios of `prior_box`: 1, the attribute's ratios, and with `flip` their reciprocals."""
    ratios = [1.0]
    for ratio in attrs["aspect_ratios"]:
        if all(abs(ratio - earlier) >= 1e-6 for earlier in ratios):
            ratios += [ratio, 1 / ratio] if attrs["flip"] else [ratio]
    return ratios


def _each_place(Input: Spec, count: int) -> tuple[Spec, Spec]:
    boxes = Spec((*Input.shape[2:], count, 4), Input.dtype)
    return boxes, boxes


def _prior_box(Input: Spec, attrs: Mapping[str, Any]) -> tuple[Spec, Spec]:
    least_sizes, most = attrs["min_sizes"], attrs["max_sizes"]
    _above_zero("min_sizes", least_sizes)
    _above_zero("aspect_ratios", [1.0, *attrs["aspect_ratios"]])
    if most and (len(most) != len(least_sizes) or any(low >= high for low, high in zip(least_sizes, most, strict=True))):
        raise InferenceError(f"max_sizes {most} should be as many as min_sizes {least_sizes}, each above its min_size")
    return _each_place(Input, len(aspect_ratios_of(attrs)) * len(least_sizes) + len(most))


@define(
    "prior_box(Input: float[N, C, H, W], Image: float[n, c, h, w]) -> Boxes, Variances",
    infer=_prior_box,
    grad=ZERO_GRADIENT,
    shape_only=("Input", "Image"),
    min_sizes=required("floats"),
    max_sizes=floats(),
    aspect_ratios=floats(),
    variances=_VARIANCES,
    flip=True,
    clip=True,
    **_STEPS,
    min_max_aspect_ratios_order=False,
)
def prior_box() -> None:
    """Boxes [H, W, P, 4] around the places of a feature map [N, C, H, W], in parts of the image's width and height.

    Places are `step_w` and `step_h` pixels of Image [n, c, h, w] apart (0: such that they cover it), the first one is `offset`
    steps from the corner. Each has, for each of `min_sizes`, a box of that size with each aspect ratio (1, `aspect_ratios`, and
    their reciprocals with `flip`), and a square of the geometric mean of min_size and max_size, which is the last one, or, with
    `min_max_aspect_ratios_order`, the second. `clip` cuts them to the image. Variances repeats `variances` for each box.
    """


def _density(Input: Spec, attrs: Mapping[str, Any]) -> tuple[Spec, Spec]:
    for name in ("fixed_sizes", "fixed_ratios", "densities"):
        _above_zero(name, attrs[name])
    if len(attrs["densities"]) != len(attrs["fixed_sizes"]):
        raise InferenceError(f"densities {attrs['densities']} should be as many as fixed_sizes {attrs['fixed_sizes']}")
    boxes, _ = _each_place(Input, len(attrs["fixed_ratios"]) * sum(number**2 for number in attrs["densities"]))
    if attrs["flatten_to_2d"]:
        boxes = boxes.with_shape((-1 if boxes.size < 0 else boxes.size // 4, 4))
    return boxes, boxes


@define(
    "density_prior_box(Input: float[N, C, H, W], Image: float[n, c, h, w]) -> Boxes, Variances",
    infer=_density,
    grad=ZERO_GRADIENT,
    shape_only=("Input", "Image"),
    variances=_VARIANCES,
    clip=True,
    flatten_to_2d=False,
    **_STEPS,
    fixed_sizes=floats(),
    fixed_ratios=floats(),
    densities=ints(),
)
def density_prior_box() -> None:
    """As `prior_box`, with several boxes of each size and aspect ratio around a place: for each of `fixed_sizes`, in a square
    grid with a side of `densities` boxes. All are cut to the image. With `flatten_to_2d`, [H * W * P, 4]."""


def _anchors(Input: Spec, anchor_sizes: list[float], aspect_ratios: list[float], stride: list[float]) -> tuple[Spec, Spec]:
    for name, values in (("anchor_sizes", anchor_sizes), ("aspect_ratios", aspect_ratios), ("stride", stride)):
        _above_zero(name, values)
    return _each_place(Input, len(anchor_sizes) * len(aspect_ratios))


@define(
    "anchor_generator(Input: float[N, C, H, W]) -> Anchors, Variances",
    infer=_anchors,
    grad=ZERO_GRADIENT,
    shape_only=("Input",),
    anchor_sizes=required("floats"),
    aspect_ratios=required("floats"),
    variances=_VARIANCES,
    stride=counted(required("floats"), 2),
    offset=0.5,
)
def anchor_generator() -> None:
    """Boxes [H, W, P, 4] in pixels around the places of a feature map [N, C, H, W], which are `stride` (x, y) apart: one for each
    of `aspect_ratios` (height by width) and `anchor_sizes`, each of these a side of a square of the same area."""


# ------------------------------------------------------------------------------------------------------ boxes as numbers
def _halves(f: Any, boxes: Any) -> list[Any]:
    """The first two and the last two numbers of boxes."""
    return [f.slice(boxes, axes=[boxes.ndim - 1], starts=[start], ends=[start + 2]) for start in (0, 2)]


def _measures(f: Any, boxes: Any, edge: float) -> tuple[Any, Any]:
    """The centers and sizes (x, y) of boxes; `edge` is what a box is wider than its right minus its left."""
    first, last = _halves(f, boxes)
    size = last - first + edge
    return first + size * 0.5, size


def _boxes(f: Any, middle: Any, size: Any, edge: float) -> Any:
    """Boxes with these centers and sizes."""
    half = size * 0.5
    return f.concat([middle - half, middle + half - edge], axis=middle.ndim - 1)


def _relative(f: Any, PriorBox: Any, PriorBoxVar: Any, TargetBox: Any, attrs: Mapping[str, Any]) -> Any:
    edge = 0.0 if attrs["box_normalized"] else 1.0
    middle, size = _measures(f, PriorBox, edge)
    variance = PriorBoxVar
    if variance is None:
        variance = f.concat([number_like(f, PriorBox, number) for number in attrs["variance"] or [1.0] * 4], axis=0)
    if attrs["code_type"] == "decode_center_size":
        if attrs["axis"] == 1:
            middle, size = f.unsqueeze2(middle, axes=[1]), f.unsqueeze2(size, axes=[1])
            variance = f.unsqueeze2(variance, axes=[1]) if variance.ndim == 2 else variance
        moved, ratio = _halves(f, TargetBox * variance)
        return _boxes(f, moved * size + middle, f.exp(ratio) * size, edge)
    target = f.unsqueeze2(TargetBox, axes=[1])
    first, last = _halves(f, target)
    shift = ((first + last) * 0.5 - middle) / size
    return f.concat([shift, f.log(f.abs((last - first + edge) / size))], axis=2) / variance


def _coded(PriorBox: Spec, TargetBox: Spec, code_type: str, axis: int) -> Spec:
    if code_type == "encode_center_size":
        if TargetBox.ndim != 2 or not fits(TargetBox.shape[1], 4):
            raise InferenceError(f"box_coder: to encode, TargetBox {TargetBox} should be float[N, 4]")
        return TargetBox.with_shape((TargetBox.shape[0], PriorBox.shape[0], 4))
    if TargetBox.ndim != 3 or not fits(TargetBox.shape[2], 4) or not fits(TargetBox.shape[1 - axis], PriorBox.shape[0]):
        shape = "[N, M, 4]" if axis == 0 else "[M, N, 4]"
        raise InferenceError(
            f"box_coder: to decode, TargetBox {TargetBox} should be {shape}, where PriorBox {PriorBox} has M boxes"
        )
    return TargetBox


@define(
    "box_coder(PriorBox: float[M, 4], PriorBoxVar?: float[M, 4], TargetBox: float) -> OutputBox",
    infer=_coded,
    grad=NOT_DIFFERENTIABLE,
    composition=means(_relative),
    code_type=choice("encode_center_size", "decode_center_size"),
    box_normalized=True,
    axis=choice(0, 1),
    variance=counted(floats(), 0, 4),
)
def box_coder() -> None:
    """Boxes as numbers relative to priors, or back: the distance of the centers by the prior's size, the logarithm of the ratio
    of sizes, each divided by a variance (PriorBoxVar, `variance` or 1).

    Encoding gives numbers [N, M, 4], for each of TargetBox [N, 4] and each prior [M, 4]. Decoding turns numbers TargetBox
    [N, M, 4], whose axis 1 - `axis` goes over the priors, into boxes of the same shape.
    """


def _clipped(Input: Spec, ImInfo: Spec) -> Spec:
    offsets = Input.lod[-1] if Input.lod else None
    images = len(offsets) - 1 if offsets is not None else Input.shape[0] if Input.ndim == 3 else -1
    if Input.ndim not in (2, 3) or not fits(Input.shape[-1], 4) or not fits(images, ImInfo.shape[0]):
        raise InferenceError(
            f"box_clip: Input {Input} should be boxes [N, 4], as sequences, of the images of which ImInfo {ImInfo} tells"
        )
    return Input


@define("box_clip(Input: float, ImInfo: float[N, 3]) -> Output", infer=_clipped, grad=NOT_DIFFERENTIABLE)
def box_clip() -> None:
    """Boxes in pixels, a sequence [.., 4] for each image, cut to it: to [0, width - 1] and [0, height - 1].

    ImInfo holds the height and width of each image and the factor by which it was scaled; the boxes lie in the original image.
    """


def _similarity(f: Any, X: Any, Y: Any, box_normalized: bool) -> Any:
    edge = 0.0 if box_normalized else 1.0
    x, y = ([f.slice(boxes, axes=[1], starts=[side], ends=[side + 1]) for side in range(4)] for boxes in (X, Y))
    y = [f.transpose(side, axis=[1, 0]) for side in y]

    def area(box: Sequence[Any]) -> Any:
        return (box[2] - box[0] + edge) * (box[3] - box[1] + edge)

    across, down = (f.elementwise_min(x[end], y[end]) - f.elementwise_max(x[end - 2], y[end - 2]) + edge for end in (2, 3))
    shared = f.relu(across) * f.relu(down)
    union = area(x) + area(y) - shared
    return shared / choose(f, f.not_equal(union, f.fill_zeros_like(union)), union, 1.0)


@define(
    "iou_similarity(X: float[N, 4], Y: float[M, 4]) -> Out",
    infer=lambda X, Y: X.with_shape((X.shape[0], Y.shape[0])),
    grad=NOT_DIFFERENTIABLE,
    composition=means(_similarity),
    box_normalized=True,
)
def iou_similarity() -> None:
    """The area that each of X [N, 4] shares with each of Y [M, 4], by that which they cover together: [N, M]."""


def _assigned(TargetBox: Spec, BoxScore: Spec) -> tuple[Spec, Spec]:
    if -1 not in (TargetBox.shape[1], BoxScore.shape[1]) and TargetBox.shape[1] != 4 * BoxScore.shape[1]:
        raise InferenceError(
            f"TargetBox {TargetBox} should have 4 numbers for each class of which BoxScore {BoxScore} has a score"
        )
    return TargetBox, TargetBox.with_shape((TargetBox.shape[0], 4))


def _decoded(f: Any, PriorBox: Any, PriorBoxVar: Any, TargetBox: Any, BoxScore: Any, box_clip: float) -> dict[str, Any]:
    classes = BoxScore.shape[1]
    if classes < 0:
        raise InferenceError(f"the number of classes, columns of BoxScore {BoxScore}, should be known when the program is built")
    deltas = f.reshape(TargetBox, shape=[0, classes, 4])
    moved, ratio = _halves(f, deltas if PriorBoxVar is None else deltas * PriorBoxVar)
    middle, size = (f.unsqueeze2(value, axes=[1]) for value in _measures(f, PriorBox, 1.0))
    decoded = _boxes(f, moved * size + middle, f.exp(f.elementwise_min(ratio, number_like(f, ratio, box_clip))) * size, 1.0)
    if classes == 1:
        return {"DecodeBox": f.reshape_like(decoded, TargetBox), "OutputAssignBox": f.assign(PriorBox)}
    best = f.arg_max(f.slice(BoxScore, axes=[1], starts=[1], ends=[classes]), axis=1, keepdims=True)
    index = f.expand_v2(f.unsqueeze2(best, axes=[2]), shape=[-1, 1, 4])
    foreground = f.slice(decoded, axes=[1], starts=[1], ends=[classes])
    box = f.squeeze2(f.take_along_axis(foreground, index, Axis=1), axes=[1])
    return {"DecodeBox": f.reshape_like(decoded, TargetBox), "OutputAssignBox": box}


@define(
    "box_decoder_and_assign(PriorBox: float[N, 4], PriorBoxVar?: float[4], TargetBox: float[N, D], BoxScore: float[N, C])"
    " -> DecodeBox, OutputAssignBox",
    infer=_assigned,
    grad=NOT_DIFFERENTIABLE,
    composition=means(_decoded),
    box_clip=4.135,
)
def box_decoder_and_assign() -> None:
    """Boxes of pixels as `box_coder` decodes them, of each prior [N, 4] one for each class: TargetBox, DecodeBox [N, C * 4].

    The logarithms of ratios of sizes are at most `box_clip`. OutputAssignBox [N, 4] is the box of the class with the largest
    BoxScore [N, C], the background (class 0) left out.
    """


@define("polygon_box_transform(Input: float[N, G, H, W]) -> Output", infer=lambda Input: Input, grad=NOT_DIFFERENTIABLE)
def polygon_box_transform() -> None:
    """Offsets [N, G, H, W], of x in even and y in odd channels, to places in an image that is 4 times as large:
    ``4 * place - Input``."""


# -------------------------------------------------------------------------------------------------------------- matching
def _matched(DistMat: Spec) -> tuple[Spec, Spec]:
    offsets = DistMat.lod[-1] if DistMat.lod else None
    images = len(offsets) - 1 if offsets is not None else 1 if not DistMat.lod and DistMat.shape[0] >= 0 else -1
    distances = Spec((images, DistMat.shape[1]), DistMat.dtype)
    return distances.with_dtype(VarType.INT32), distances


@define(
    "bipartite_match(DistMat: float[K, M]) -> ColToRowMatchIndices, ColToRowMatchDist",
    infer=_matched,
    grad=NOT_DIFFERENTIABLE,
    lod_aware=True,
    match_type=choice("bipartite", "per_prediction"),
    dist_threshold=0.5,
)
def bipartite_match() -> None:
    """For each column of DistMat [K, M] the matching row, counted within its image, and their similarity: [N, M]; -1 and 0 if
    none.

    The rows of an image form a sequence; all are of one without. The largest number matches its row and column, and so
    on with the rows and columns that are left. With "per_prediction", columns that are left match the row of their
    largest number if that is at least `dist_threshold`.
    """


def _targets(X: Spec, MatchIndices: Spec, NegIndices: Spec | None) -> tuple[Spec, Spec]:
    for slot, spec in (("X", X), ("NegIndices", NegIndices)):
        offsets = spec.lod[-1] if spec is not None and spec.lod else None
        if offsets is not None and not fits(len(offsets) - 1, MatchIndices.shape[0]):
            raise InferenceError(
                f"target_assign: MatchIndices {MatchIndices} should have a row for each of {len(offsets) - 1} images of {slot}"
            )
    if NegIndices is not None and any(size not in (1, -1) for size in NegIndices.shape[1:]):
        raise InferenceError(f"target_assign: NegIndices {NegIndices} should be [Q, 1], with a prior in each row")
    images, priors = MatchIndices.shape
    if X.shape[1] == 0:
        raise InferenceError(f"target_assign: X {X} should be [K, P, D], where P is not 0")
    return Spec((images, priors, X.shape[2]), X.dtype), Spec((images, priors, 1), VarType.FP32)


@define(
    "target_assign(X: int|float[K, P, D], MatchIndices: int[N, M], NegIndices?: int) -> Out, OutWeight",
    infer=_targets,
    grad=NOT_DIFFERENTIABLE,
    lod_aware=True,
    mismatch_value=0,
)
def target_assign() -> None:
    """For each prior that matches row k of an image, ``X[k, prior % P]`` and the weight 1: [N, M, D] and [N, M, 1].

    Rows of X are sequences of an image; others get `mismatch_value` and the weight 0 or, where they are among the priors
    NegIndices of the image (a sequence, too), 1.
    """


def _mined(ClsLoss: Spec, MatchIndices: Spec) -> tuple[Spec, Spec]:
    return Spec((-1, 1), VarType.INT32, lod=(None,)), MatchIndices


@define(
    "mine_hard_examples(ClsLoss: float[N, M], LocLoss?: float[N, M], MatchIndices: int[N, M], MatchDist: float[N, M])"
    " -> NegIndices, UpdatedMatchIndices",
    infer=_mined,
    grad=NOT_DIFFERENTIABLE,
    lod_aware=True,
    neg_pos_ratio=least(0, 1.0),
    neg_dist_threshold=0.5,
    sample_size=least(0, 0),
    mining_type=choice("max_negative", "hard_example"),
)
def mine_hard_examples() -> None:
    """The priors to learn from as background: NegIndices, a sequence [.., 1] for each image, in order.

    "max_negative" selects priors without a match, with a similarity MatchDist below `neg_dist_threshold` and with the largest
    ClsLoss; their number is `neg_pos_ratio` times the number of matches. With "hard_example" the `sample_size` priors with the
    largest sum of losses are learned from: NegIndices are the ones without a match, and all other priors lose their match.
    """


# ---------------------------------------------------------------------------------------------------------------- losses
def _focal(X: Spec, Label: Spec) -> Spec:
    one_each("Label", Label, X.shape[0])
    return X


def _focal_losses(f: Any, X: Any, Label: Any, FgNum: Any, gamma: float, alpha: float) -> Any:
    right, wrong = f.focal_weights(X, Label, FgNum, alpha=alpha)
    log_p, log_q = f.logsigmoid(X), f.logsigmoid(-X)
    return -(right * f.exp(log_q * gamma) * log_p + wrong * f.exp(log_p * gamma) * log_q)


@define(
    "sigmoid_focal_loss(X: float[N, C], Label: int[N, ...], FgNum: int[one]) -> Out",
    infer=_focal,
    wrt=("X",),
    gamma=least(0, 2.0),
    alpha=0.25,
    meaning=means(_focal_losses),
)
def sigmoid_focal_loss(f: Any, X: Any, Label: Any, FgNum: Any, dOut: Any, gamma: float, alpha: float) -> Any:
    """The focal loss [N, C] of logits X [N, C]: with p their sigmoid, ``-alpha * (1 - p) ** gamma * log(p)`` of the labelled
    class, ``-(1 - alpha) * p ** gamma * log(1 - p)`` of others, divided by FgNum (at least 1).

    Labels [N, 1] count from 1; 0 is the background, and rows with -1 have no loss.
    """
    right, wrong = f.focal_weights(X, Label, FgNum, alpha=alpha)
    log_p, log_q = f.logsigmoid(X), f.logsigmoid(-X)
    p, q = f.exp(log_p), f.exp(log_q)
    slope = right * f.exp(log_q * gamma) * (p * log_p * gamma - q) + wrong * f.exp(log_p * gamma) * (p - q * log_q * gamma)
    return {"X": dOut * slope}


def _weights(f: Any, X: Any, Label: Any, FgNum: Any, alpha: float) -> dict[str, Any]:
    label = f.reshape(Label, shape=[-1, 1]).astype(X.dtype)
    classes = f.cumsum(f.fill_any_like(X, value=1.0), axis=1)  # 1, 2, ..., also for an unknown number of them
    hit = f.equal(classes, label).astype(X.dtype)
    is_counted = (label >= 0.0).astype(X.dtype)
    count = at_least(f, f.reshape(FgNum, shape=[-1]).astype(X.dtype), 1.0)
    return {"Right": hit * (alpha / count), "Wrong": (1.0 - hit) * is_counted * ((1.0 - alpha) / count)}


@define(
    "focal_weights(X: float[N, C], Label: int[N, ...], FgNum: int[one]) -> Right, Wrong",
    infer=lambda X, Label: (_focal(X, Label),) * 2,
    grad=ZERO_GRADIENT,
    composition=means(_weights),
    shape_only=("X",),
    alpha=0.25,
)
def focal_weights() -> None:
    """The factors of the terms of a `sigmoid_focal_loss`, of the labelled classes and of others: [N, C], zeros elsewhere."""


# -------------------------------------------------------------------------------------------------------------- measures
def _map(DetectRes: Spec, Label: Spec, inputs: Mapping[str, Any], class_num: int) -> tuple[Spec, Spec, Spec, Spec]:
    if Label.shape[1] not in (-1, 5, 6):
        raise InferenceError(
            f"detection_map: Label {Label} should have 6 columns: label, difficult and box, or 5 without difficult"
        )
    counts = inputs.get("PosCount")
    if counts is not None and counts.size not in (-1, class_num) and inputs.get("HasState") is not None:
        raise InferenceError(f"detection_map: PosCount {counts} should have a number for each of {class_num} classes")
    pairs = Spec((-1, 2), VarType.FP32, lod=(None,))
    return Spec((class_num, 1), VarType.INT32), pairs, pairs, Spec((1,), VarType.FP32)


@define(
    "detection_map(DetectRes: float[D, 6], Label: float[L, F], HasState?: int[one], PosCount?: int, TruePos?: float[T, 2],"
    " FalsePos?: float[U, 2]) -> AccumPosCount, AccumTruePos, AccumFalsePos, MAP",
    infer=_map,
    grad=NOT_DIFFERENTIABLE,
    lod_aware=True,
    class_num=at_most(1 << 16, least(1, required("int"))),
    background_label=0,
    overlap_threshold=0.5,
    evaluate_difficult=True,
    ap_type=choice("integral", "11point"),
)
def detection_map() -> None:
    """The mean average precision [1] of detections: rows of label, score and box, a sequence for each image.

    Label has rows of label, difficult (or not) and box. By descending score, a detection is right if the box with its label that
    it overlaps most is not taken yet, and the overlap is above `overlap_threshold`; difficult ones count only with
    `evaluate_difficult`. The average precision of a class is the area under its curve ("integral") or the mean of the largest
    precision at 11 recalls. The other outputs, which are the inputs of the next batch (read if HasState is not 0), are how many
    boxes each class has [class_num, 1], and its detections, a sequence for each class of scores with 1 or 0.
    """
