"""Ops of detectors that learn on anchors or in two stages: they choose regions, and targets to learn for them.

A box is a row of left, top, right and bottom. ImInfo [N, 3] has the height of each image, its width, and the factor by which it
was scaled before. Coordinates lie in the scaled image, but ground truth lies in the original one. Where boxes hold whole pixels,
right and bottom ones included, their width is ``right - left + 1``.

Boxes of the images of a batch are sequences. All that is chosen depends on values, so nothing here has a gradient.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ..errors import InferenceError
from ..opdef.registry import NOT_DIFFERENTIABLE, Attr, define, least, required
from ..values.spec import Spec
from ..values.types import VarType
from .sequence import images_of, offsets_of
from .shapes import fits, in_order

_INT = VarType.INT32


def _rows(width: int, dtype: VarType, levels: int = 1) -> Spec:
    """Rows that form sequences, whose number depends on values."""
    return Spec((-1, width) if width else (-1,), dtype, lod=(None,) * levels)


# ------------------------------------------------------------------------------------------------------------ proposals
_PROPOSED: dict[str, Any] = {
    "pre_nms_topN": required("int"),
    "post_nms_topN": required("int"),
    "nms_thresh": required("float"),
    "min_size": required("float"),
    "eta": required("float"),
}
_SCORED = "Scores: float[N, A, H, W], BboxDeltas: float[N, D, H, W]"
_ANCHORED = "Anchors: float[H, W, A, 4], Variances: float[H, W, A, 4]"


def _proposals(Scores: Spec, BboxDeltas: Spec) -> tuple[Spec, Spec, Spec]:
    if Scores.shape[1] >= 0 and not fits(BboxDeltas.shape[1], 4 * Scores.shape[1]):
        raise InferenceError(f"BboxDeltas {BboxDeltas} should have four channels for each one of Scores {Scores}")
    return _rows(4, Scores.dtype), _rows(1, Scores.dtype), Spec((Scores.shape[0],), _INT)


def _plain_proposals(Scores: Spec, BboxDeltas: Spec) -> tuple[Spec, ...]:
    return tuple(spec.with_lod(()) for spec in _proposals(Scores, BboxDeltas))


@define(
    f"generate_proposals({_SCORED}, ImInfo: float[N, 3], {_ANCHORED}) -> RpnRois, RpnRoiProbs, RpnRoisNum?",
    infer=_proposals,
    grad=NOT_DIFFERENTIABLE,
    lod_aware=True,
    **_PROPOSED,
)
def generate_proposals() -> None:
    """The most promising regions of each image, RpnRois, and their scores, RpnRoiProbs [.., 1]: one sequence an image.

    For each image, take the `pre_nms_topN` places with the greatest Scores [N, A, H, W]. Move their Anchors [H, W, A, 4] by
    BboxDeltas [N, 4 A, H, W] (relative to their size, and the logarithm of the factor of their size) times Variances, and limit
    them to the image. Drop boxes less than `min_size` wide or high, in the original image, and boxes that overlap one of greater
    score by more than `nms_thresh`; where this is above 0.5 and `eta` below 1, it is multiplied by `eta` after each box that is
    kept. At most `post_nms_topN` of these remain; a box of zeros if there are none. RpnRoisNum [N] counts them.
    """


@define(
    f"generate_proposals_v2({_SCORED}, ImShape: float[N, 2], {_ANCHORED}) -> RpnRois, RpnRoiProbs, RpnRoisNum?",
    infer=_plain_proposals,
    grad=NOT_DIFFERENTIABLE,
    lod_aware=True,
    pixel_offset=True,
    **_PROPOSED,
)
def generate_proposals_v2() -> None:
    """`generate_proposals` of images with height and width in ImShape [N, 2], and whose scale does not matter.

    The outputs are no sequences: RpnRoisNum says how many rows belong to an image. Without `pixel_offset`, the width of a box is
    ``right - left``, and boxes may have their middle outside of the image.
    """


# --------------------------------------------------------------------------------------------------------------- levels
def _distributed(FpnRois: Spec, RoisNum: Spec | None, min_level: int, max_level: int) -> dict[str, Any]:
    in_order("min_level", min_level, "max_level", max_level)
    if max_level - min_level > 100:
        raise InferenceError(
            f"there are {max_level - min_level + 1} levels from {min_level} to {max_level}; at most 101 are possible"
        )
    images, levels = images_of(FpnRois, RoisNum, "FpnRois"), max_level - min_level + 1
    return {
        "MultiFpnRois": [_rows(4, FpnRois.dtype)] * levels,
        "RestoreIndex": Spec((FpnRois.shape[0], 1), _INT),
        "MultiLevelRoIsNum": [Spec((images,), _INT)] * levels,
    }


@define(
    "distribute_fpn_proposals(FpnRois: float[R, 4], RoisNum?: int[N]) -> MultiFpnRois*, RestoreIndex, MultiLevelRoIsNum*?",
    infer=_distributed,
    grad=NOT_DIFFERENTIABLE,
    lod_aware=True,
    min_level=required("int"),
    max_level=required("int"),
    refer_level=required("int"),
    refer_scale=Attr("int", required=True, least=1),
    pixel_offset=True,
)
def distribute_fpn_proposals() -> None:
    """Distribute regions of images by their size to the levels `min_level` to `max_level` of a pyramid, in order.

    A region with the area a belongs to level ``floor(refer_level + log2(sqrt(a) / refer_scale))``. The regions of an image are
    a sequence of FpnRois, or RoisNum says how many they are. RestoreIndex [R, 1] maps the regions, in the former order, to their
    positions in all levels one after the other. MultiLevelRoIsNum [N] counts the regions of each image. A region has the
    width ``right - left + 1``, without `pixel_offset` ``right - left``.
    """


def _collected(
    MultiLevelRois: Sequence[Spec], MultiLevelScores: Sequence[Spec], MultiLevelRoIsNum: Sequence[Spec] | None
) -> tuple[Spec, Spec]:
    if len(MultiLevelRois) != len(MultiLevelScores) or not MultiLevelRois:
        counts = f"{len(MultiLevelRois)} MultiLevelRois and {len(MultiLevelScores)} MultiLevelScores"
        raise InferenceError(f"there are {counts}; each level should have both")
    numbers: Sequence[Spec | None] = MultiLevelRoIsNum or [None] * len(MultiLevelRois)
    if len(numbers) != len(MultiLevelRois):
        raise InferenceError(f"there are {len(numbers)} MultiLevelRoIsNum, but {len(MultiLevelRois)} MultiLevelRois")
    images = -1
    for rois, scores, count in zip(MultiLevelRois, MultiLevelScores, numbers, strict=True):
        number = images_of(rois, count, "MultiLevelRois")
        if not fits(images, number) or not fits(rois.shape[0], scores.shape[0]):
            raise InferenceError(f"MultiLevelRois {rois} and MultiLevelScores {scores} should have rows for the same images")
        images = max(images, number)
    return _rows(4, MultiLevelRois[0].dtype), Spec((images,), _INT)


@define(
    "collect_fpn_proposals(MultiLevelRois*: float[..., 4], MultiLevelScores*: float[..., 1], MultiLevelRoIsNum*?: int[N])"
    " -> FpnRois, RoisNum?",
    infer=_collected,
    grad=NOT_DIFFERENTIABLE,
    lod_aware=True,
    post_nms_topN=Attr("int", required=True, least=1),
)
def collect_fpn_proposals() -> None:
    """The `post_nms_topN` regions with the greatest scores, of all levels and images together: one sequence for each image.

    The regions of an image are sequences of MultiLevelRois [.., 4], or MultiLevelRoIsNum says for each level how many they are.
    RoisNum [N] counts them afterwards.
    """


# -------------------------------------------------------------------------------------------------------------- targets
_TRUTH = "GtBoxes: float[G, 4]"
_ASSIGNED = "LocationIndex, ScoreIndex, TargetBBox, TargetLabel, BBoxInsideWeight"


def _same_images(ImInfo: Spec, **specs: Spec) -> int:
    """The number of images that sequences of all these belong to; -1 if it is not known yet."""
    images = ImInfo.shape[0]
    for name, spec in specs.items():
        number = images_of(spec, None, name)
        if not fits(images, number):
            raise InferenceError(f"{name} {spec} has sequences for {number} images, but ImInfo {ImInfo} or others for {images}")
        images = max(images, number)
    return images


def _same_rows(first: str, reference: Spec, **specs: Spec | None) -> None:
    """`InferenceError` unless all have one element for each row of `reference`."""
    for name, spec in specs.items():
        if spec is not None and not fits(spec.size, reference.shape[0]):
            raise InferenceError(f"{name} {spec} should have one element for each row of {first} {reference}")


def _assigned(Anchor: Spec, GtBoxes: Spec, IsCrowd: Spec, ImInfo: Spec, inputs: Mapping[str, Spec]) -> tuple[Spec, ...]:
    labels = {"GtLabels": inputs["GtLabels"]} if "GtLabels" in inputs else {}
    images = _same_images(ImInfo, GtBoxes=GtBoxes, IsCrowd=IsCrowd, **labels)
    _same_rows("GtBoxes", GtBoxes, IsCrowd=IsCrowd, **labels)
    boxes = _rows(4, Anchor.dtype)
    targets = _rows(0, _INT), _rows(0, _INT), boxes, _rows(1, _INT), boxes
    if not labels:
        return targets
    return *targets, Spec((images, 1), _INT, lod=(tuple(range(images + 1)) if images >= 0 else None,))


@define(
    f"rpn_target_assign(Anchor: float[A, 4], {_TRUTH}, IsCrowd: int, ImInfo: float[N, 3]) -> {_ASSIGNED}",
    infer=_assigned,
    grad=NOT_DIFFERENTIABLE,
    lod_aware=True,
    rpn_batch_size_per_im=least(1, 256),
    rpn_straddle_thresh=required("float"),
    rpn_positive_overlap=required("float"),
    rpn_negative_overlap=required("float"),
    rpn_fg_fraction=required("float"),
    use_random=required("bool"),
)
def rpn_target_assign() -> None:
    """Targets for a network that proposes regions: the anchors that hold an object, and where it lies.

    Anchor [A, 4] are the same for each image. An anchor that reaches over its edge by more than `rpn_straddle_thresh` (if this
    is not negative) does not count. Foreground anchors overlap a box of GtBoxes by `rpn_positive_overlap`, or overlap one most;
    at most `rpn_fg_fraction` of `rpn_batch_size_per_im`. Background anchors overlap every box by less than
    `rpn_negative_overlap`, and fill up the batch. With `use_random`, they are drawn, otherwise the first are taken. Boxes with
    IsCrowd are no ground truth.

    ScoreIndex says which anchors are learned, of the anchors of all images one after the other, and TargetLabel [.., 1] whether
    they hold an object. LocationIndex says which hold one: TargetBBox are their offsets to it. An anchor that is drawn as
    background too is that; then the first of the foreground is repeated with BBoxInsideWeight 0, which is otherwise 1.
    """


@define(
    f"retinanet_target_assign(Anchor: float[A, 4], {_TRUTH}, GtLabels: int, IsCrowd: int, ImInfo: float[N, 3])"
    f" -> {_ASSIGNED}, ForegroundNumber",
    infer=_assigned,
    grad=NOT_DIFFERENTIABLE,
    lod_aware=True,
    positive_overlap=0.5,
    negative_overlap=0.4,
)
def retinanet_target_assign() -> None:
    """`rpn_target_assign` with all anchors, and with classes: TargetLabel is the class in GtLabels, or 0 for none.

    ForegroundNumber [N, 1] is one more than the number of anchors that hold an object.
    """


def _sampled(
    RpnRois: Spec, GtClasses: Spec, IsCrowd: Spec, GtBoxes: Spec, ImInfo: Spec, MaxOverlap: Spec | None, class_nums: int
) -> tuple[Spec, ...]:
    _same_images(ImInfo, RpnRois=RpnRois, GtClasses=GtClasses, IsCrowd=IsCrowd, GtBoxes=GtBoxes)
    _same_rows("GtBoxes", GtBoxes, GtClasses=GtClasses, IsCrowd=IsCrowd)
    _same_rows("RpnRois", RpnRois, MaxOverlap=MaxOverlap)
    boxes, targets = _rows(4, RpnRois.dtype), _rows(4 * class_nums, RpnRois.dtype)
    return boxes, _rows(1, _INT), targets, targets, targets, _rows(0, RpnRois.dtype)


@define(
    f"generate_proposal_labels(RpnRois: float[R, 4], GtClasses: int, IsCrowd: int, {_TRUTH}, ImInfo: float[N, 3],"
    " MaxOverlap?: float)"
    " -> Rois, LabelsInt32, BboxTargets, BboxInsideWeights, BboxOutsideWeights, MaxOverlapWithGT?",
    infer=_sampled,
    grad=NOT_DIFFERENTIABLE,
    lod_aware=True,
    batch_size_per_im=Attr("int", required=True, least=1),
    fg_fraction=required("float"),
    fg_thresh=required("float"),
    bg_thresh_hi=required("float"),
    bg_thresh_lo=required("float"),
    bbox_reg_weights=Attr("floats", required=True, counts=(4,)),
    class_nums=Attr("int", required=True, least=2, most=1 << 16),
    use_random=True,
    is_cascade_rcnn=False,
    is_cls_agnostic=False,
)
def generate_proposal_labels() -> None:
    """The regions of each image that the second stage of a detector learns, and their targets: one sequence an image.

    Candidates are GtBoxes and RpnRois. Foreground regions overlap a box of GtBoxes by `fg_thresh`, at most `fg_fraction` of
    `batch_size_per_im`; background regions have a greatest overlap from `bg_thresh_lo` to below `bg_thresh_hi`, and fill up the
    batch. With `use_random`, they are drawn, otherwise the first are taken; with `is_cascade_rcnn`, all are. A GtBox with IsCrowd
    is none of them.

    LabelsInt32 [.., 1] are the GtClasses of the foreground, and 0. BboxTargets [.., 4 * `class_nums`] holds, in the columns of
    its class (of class 1 with `is_cls_agnostic`), the offsets from a region of the foreground to its box, divided by
    `bbox_reg_weights`; there both weights are 1, and 0 elsewhere. MaxOverlapWithGT is the greatest overlap of each region.

    With `is_cascade_rcnn`, RpnRois come from the stage before, so they begin with its GtBoxes, which are left out. Where
    MaxOverlap is given, the left-out regions are the ones where it is 1, and empty ones.
    """


# ----------------------------------------------------------------------------------------------------------- detections
def _detected(BBoxes: Sequence[Spec], Scores: Sequence[Spec], Anchors: Sequence[Spec], ImInfo: Spec) -> Spec:
    if not len(BBoxes) == len(Scores) == len(Anchors) or not BBoxes:
        raise InferenceError(
            f"there are {len(BBoxes)} BBoxes, {len(Scores)} Scores and {len(Anchors)} Anchors; each level should have all three"
        )
    for boxes, scores, anchors in zip(BBoxes, Scores, Anchors, strict=True):
        same = fits(boxes.shape[1], scores.shape[1]) and fits(boxes.shape[1], anchors.shape[0])
        if not same or not fits(boxes.shape[0], ImInfo.shape[0]) or not fits(scores.shape[0], ImInfo.shape[0]):
            raise InferenceError(
                f"BBoxes {boxes}, Scores {scores} and Anchors {anchors} should be of the same anchors, and of as many images as "
                f"ImInfo {ImInfo}"
            )
    return _rows(6, BBoxes[0].dtype)


@define(
    "retinanet_detection_output(BBoxes*: float[N, ..., 4], Scores*: float[N, ..., C], Anchors*: float[..., 4],"
    " ImInfo: float[N, 3]) -> Out",
    infer=_detected,
    grad=NOT_DIFFERENTIABLE,
    lod_aware=True,
    score_threshold=required("float"),
    nms_top_k=required("int"),
    nms_threshold=required("float"),
    nms_eta=required("float"),
    keep_top_k=required("int"),
)
def retinanet_detection_output() -> None:
    """The objects in each image: rows of class (from 1), score, left, top, right and bottom in the original image.

    Of each level, the `nms_top_k` greatest Scores [N, A, C] above `score_threshold` (above 0 on the last level) are taken, with
    Anchors [A, 4] that are moved by BBoxes [N, A, 4] and limited to the image. Within a class, boxes that overlap one of
    greater score by more than `nms_threshold` are dropped, where `nms_eta` is as in `generate_proposals`; of all others of an
    image, `keep_top_k` are left.
    """


# ---------------------------------------------------------------------------------------------------------------- masks
def _masks(
    ImInfo: Spec, GtClasses: Spec, IsCrowd: Spec, GtSegms: Spec, Rois: Spec, LabelsInt32: Spec, num_classes: int, resolution: int
) -> tuple[Spec, ...]:
    images = _same_images(ImInfo, GtClasses=GtClasses, IsCrowd=IsCrowd, Rois=Rois, LabelsInt32=LabelsInt32)
    _same_rows("GtClasses", GtClasses, IsCrowd=IsCrowd)
    _same_rows("Rois", Rois, LabelsInt32=LabelsInt32)
    offsets_of(GtSegms, "GtSegms")
    if len(GtSegms.lod) not in (0, 3):
        levels = "objects of images, polygons of objects, points of polygons"
        raise InferenceError(f"GtSegms {GtSegms} has {len(GtSegms.lod)} levels of sequences; it should have three: {levels}")
    objects = GtSegms.lod[0] if GtSegms.lod else None
    if objects is not None and not (fits(len(objects) - 1, images) and fits(objects[-1], GtClasses.size)):
        shapes = f"GtSegms {GtSegms} has shapes of {objects[-1]} objects in {len(objects) - 1} images"
        raise InferenceError(f"{shapes}, but GtClasses {GtClasses} has classes of {GtClasses.size} in {images}")
    return _rows(4, Rois.dtype), _rows(1, _INT), _rows(num_classes * resolution**2, _INT)


@define(
    "generate_mask_labels(ImInfo: float[N, 3], GtClasses: int, IsCrowd: int, GtSegms: float[P, 2], Rois: float[R, 4],"
    " LabelsInt32: int) -> MaskRois, RoiHasMaskInt32, MaskInt32",
    infer=_masks,
    grad=NOT_DIFFERENTIABLE,
    lod_aware=True,
    num_classes=Attr("int", required=True, least=1, most=1 << 16),
    resolution=Attr("int", required=True, least=1, most=1 << 12),
)
def generate_mask_labels() -> None:
    """Targets for a branch that predicts masks: the shapes of the objects in regions; one sequence an image.

    MaskRois are the Rois with a class in LabelsInt32 above 0, and RoiHasMaskInt32 [.., 1] their numbers among the Rois of the
    image. MaskInt32 [.., `num_classes` * `resolution` ** 2] has 1 and 0 in the columns of the region's class, for a grid laid
    over the region, and -1 elsewhere. The shape belongs to the object whose polygons have the box that overlaps the region most.
    GtSegms [P, 2] are x and y in the original image, as sequences of three levels: objects of images, polygons of objects,
    points of polygons. Objects with IsCrowd, or of class 0, do not count. If no region of an image has an object, its first
    region stands for it, with -1 everywhere.
    """
