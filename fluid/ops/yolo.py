"""Ops of YOLO, which predicts boxes at each place of a feature map.

Feature maps X [N, A * (5 + C), H, W] hold 5 + C numbers for each of A anchors, sizes of boxes in pixels of an image that is
`downsample_ratio` times as large: x, y, width and height, the confidence that there is something, and a score for each of C
classes. The center lies ``sigmoid(x), sigmoid(y)`` from the corner of the place (stretched by `scale_x_y` around its middle),
the size is ``exp(width), exp(height)`` times the anchor's.
"""

from __future__ import annotations

from typing import Any

from ..errors import InferenceError
from ..opdef.registry import NOT_DIFFERENTIABLE, ZERO_GRADIENT, define, ints, least
from ..values.spec import Spec
from ..values.types import VarType
from .shapes import fits


def _check_anchors(anchors: list[int]) -> None:
    if not anchors or len(anchors) % 2 or min(anchors) <= 0:
        raise InferenceError(f"anchors {anchors} should be pairs of a width and a height above 0, at least one")


def _check_channels(X: Spec, anchors: int, numbers: int) -> None:
    if not fits(X.shape[1], anchors * numbers):
        raise InferenceError(f"X {X} should have {anchors * numbers} channels: {numbers} for each of {anchors} anchors")


def _yolo_box(X: Spec, anchors: list[int], class_num: int, iou_aware: bool) -> tuple[Spec, Spec]:
    _check_anchors(anchors)
    count = len(anchors) // 2
    _check_channels(X, count, 5 + iou_aware + class_num)
    boxes = -1 if -1 in X.shape[2:] else count * X.shape[2] * X.shape[3]
    return X.with_shape((X.shape[0], boxes, 4)), X.with_shape((X.shape[0], boxes, class_num))


@define(
    "yolo_box(X: float[N, C, H, W], ImgSize: int[N, 2]) -> Boxes, Scores",
    infer=_yolo_box,
    grad=NOT_DIFFERENTIABLE,
    anchors=ints(),
    class_num=least(1, 1),
    conf_thresh=0.01,
    downsample_ratio=least(1, 32),
    clip_bbox=True,
    scale_x_y=1.0,
    iou_aware=False,
    iou_aware_factor=0.5,
)
def yolo_box() -> None:
    """The boxes [N, A * H * W, 4] that X predicts, in pixels of images of the sizes ImgSize (height, width), and their scores
    [N, A * H * W, C]: ``sigmoid(confidence) * sigmoid(score)``.

    Where the first factor is below `conf_thresh`, both are 0. With `clip_bbox`, boxes are cut to the image. With `iou_aware`, A
    channels come first that predict the overlap with the true box; the first factor is then its power 1 - `iou_aware_factor`
    times the power `iou_aware_factor` of the sigmoid of the predicted overlap.
    """


_LOSS: dict[str, Any] = {
    "anchors": ints(),
    "anchor_mask": ints(),
    "class_num": least(1, 1),
    "ignore_thresh": 0.7,
    "downsample_ratio": least(1, 32),
    "use_label_smooth": True,
    "scale_x_y": 1.0,
}
_LABELLED = "X: float[N, C, H, W], GTBox: float[N, B, 4], GTLabel: int[N, B], GTScore?: float[N, B]"


def _check_loss(X: Spec, anchors: list[int], anchor_mask: list[int], class_num: int) -> None:
    _check_anchors(anchors)
    if not anchor_mask or min(anchor_mask) < 0 or max(anchor_mask) >= len(anchors) // 2:
        raise InferenceError(f"anchor_mask {anchor_mask} should name anchors, of which there are {len(anchors) // 2}")
    _check_channels(X, len(anchor_mask), 5 + class_num)
    if not fits(X.shape[2], X.shape[3]) or 0 in X.shape[2:]:
        raise InferenceError(f"X {X} should be as high as it is wide, and have at least one place")


def _loss(X: Spec, GTBox: Spec, anchors: list[int], anchor_mask: list[int], class_num: int) -> tuple[Spec, Spec, Spec]:
    _check_loss(X, anchors, anchor_mask, class_num)
    objectness = X.with_shape((X.shape[0], len(anchor_mask), *X.shape[2:]))
    return X.with_shape(X.shape[:1]), objectness, Spec(GTBox.shape[:2], VarType.INT32)


@define(
    f"yolov3_loss({_LABELLED}) -> Loss, ObjectnessMask~, GTMatchMask~",
    infer=_loss,
    wrt=("X",),
    constants=("GTBox", "GTScore"),
    **_LOSS,
)
def yolov3_loss(
    f: Any,
    X: Any,
    GTBox: Any,
    GTLabel: Any,
    GTScore: Any,
    ObjectnessMask: Any,
    GTMatchMask: Any,
    dLoss: Any,
    attrs: dict[str, Any],
) -> Any:
    """The loss [N] of predictions X for labelled boxes GTBox [N, B, 4]: center, width and height in parts of the image, zeros
    where there are fewer. X has the anchors that `anchor_mask` names of all `anchors`.

    A box is to be predicted by the anchor most like it, if X has that, at the place of its center. There the loss has cross
    entropies of x, y and the classes, absolute differences of width and height, these and x, y times ``2 - width * height``, all
    times GTScore (1 by default). To it come cross entropies of the confidence: GTScore times the cross entropy with 1 for boxes,
    the cross entropy with 0 elsewhere, but none where a predicted box overlaps a labelled one by more than `ignore_thresh`. With
    `use_label_smooth` the labels of classes are ``1 - s`` and s, where s is the least of 1 / 40 and 1 / C.
    """
    weight, target = f.yolo_terms(X, GTBox, GTLabel, GTScore, ObjectnessMask, GTMatchMask, **attrs)
    return {"X": f.elementwise_mul(weight * f.sigmoid(X) - target, dLoss, axis=0)}


def _terms(X: Spec, ObjectnessMask: Spec, anchors: list[int], anchor_mask: list[int], class_num: int) -> tuple[Spec, Spec]:
    _check_loss(X, anchors, anchor_mask, class_num)
    if not fits(ObjectnessMask.shape[1], len(anchor_mask)):
        raise InferenceError(f"ObjectnessMask {ObjectnessMask} should have a channel for each of {len(anchor_mask)} anchors")
    return X, X


@define(
    f"yolo_terms({_LABELLED}, ObjectnessMask: float[N, A, H, W], GTMatchMask: int[N, B]) -> Weight, Target",
    infer=_terms,
    grad=ZERO_GRADIENT,
    **_LOSS,
)
def yolo_terms() -> None:
    """The Weight and Target of a `yolov3_loss`, whose gradient is ``Weight * sigmoid(X) - Target``. For an element of X, Weight
    sums the weights of its terms; Target sums weights times targets or, for absolute differences, the opposite slopes."""
