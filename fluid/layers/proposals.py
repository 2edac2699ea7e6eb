"""Detectors that learn on anchors or in two stages: proposals of regions, their training targets, and masks.

Boxes are rows of left, top, right and bottom; the boxes of each image are a sequence (``lod_level=1``). `im_info` [N, 3] has the
height and width of each image, and its scale factor; ground truth refers to the unscaled image.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..building.layer_helper import LayerHelper, apply
from ..errors import ProgramError
from ..ir.checked import Positive
from ..ir.program import Variable
from .nn import gather, reshape
from .tensor import constant, constants_of

__all__ = [
    "collect_fpn_proposals",
    "distribute_fpn_proposals",
    "generate_mask_labels",
    "generate_proposal_labels",
    "generate_proposals",
    "retinanet_detection_output",
    "retinanet_target_assign",
    "rpn_target_assign",
]


# -------------------------------------------------------------------------------------------------------------- targets
def _chosen(
    scores: Variable, width: int, boxes: Variable, location: Variable, score: Variable, *targets: Variable
) -> tuple[Variable, ...]:
    """Predicted scores and boxes of the chosen anchors, followed by their targets."""
    predicted = gather(reshape(scores, [-1, width]), score), gather(reshape(boxes, [-1, 4]), location)
    return (*predicted, *targets)


def rpn_target_assign(
    bbox_pred: Variable,
    cls_logits: Variable,
    anchor_box: Variable,
    anchor_var: Variable,
    gt_boxes: Variable,
    is_crowd: Variable,
    im_info: Variable,
    rpn_batch_size_per_im: Positive = 256,
    rpn_straddle_thresh: float = 0.0,
    rpn_fg_fraction: float = 0.5,
    rpn_positive_overlap: float = 0.7,
    rpn_negative_overlap: float = 0.3,
    use_random: bool = True,
) -> tuple[Variable, ...]:
    """Predictions and targets of a region proposal network for some anchors.

    Formula: Ren et al., Faster R-CNN, 2015.

    Args:
        bbox_pred: ``[N, A, 4]``, where an object lies relative to each of A anchors.
        cls_logits: ``[N, A, 1]``, whether there is one, before the sigmoid.
        anchor_box: the anchors, ``[A, 4]``.
        anchor_var: accepted and ignored.
        gt_boxes: sequences of boxes, ``[G, 4]``.
        is_crowd: sequences that say whether a box holds many objects, int32 ``[G, 1]``; then it is no ground truth.
        im_info: ``[N, 3]``, height and width of each image, and its scale factor.
        rpn_batch_size_per_im: how many anchors of an image are learned.
        rpn_straddle_thresh: anchors that reach over the edge of the image by more are not; negative for no limit.
        rpn_fg_fraction: the greatest part of them that hold an object.
        rpn_positive_overlap: anchors that overlap a box by this (or the most) hold an object.
        rpn_negative_overlap: anchors that overlap all boxes by less hold none.
        use_random: draw the anchors; otherwise the first ones are taken.

    Returns:
        Logits and boxes that were predicted, ``[S, 1]`` and ``[L, 4]``; int32 labels ``[S, 1]`` and boxes ``[L, 4]`` that should
        have been; factors for the difference of the boxes, ``[L, 4]``.

    >>> boxes, logits = fluid.data("boxes", [None, 600, 4]), fluid.data("logits", [None, 600, 1])
    >>> anchors, variances = fluid.data("anchors", [600, 4]), fluid.data("variances", [600, 4])
    >>> truth, crowd = fluid.data("truth", [None, 4], lod_level=1), fluid.data("crowd", [None, 1], "int32", lod_level=1)
    >>> info = fluid.data("info", [None, 3])
    >>> [var.shape for var in layers.rpn_target_assign(boxes, logits, anchors, variances, truth, crowd, info)]
    [(-1, 1), (-1, 4), (-1, 1), (-1, 4), (-1, 4)]
    """
    inputs = {"Anchor": anchor_box, "GtBoxes": gt_boxes, "IsCrowd": is_crowd, "ImInfo": im_info}
    attrs = {
        "rpn_batch_size_per_im": rpn_batch_size_per_im,
        "rpn_straddle_thresh": rpn_straddle_thresh,
        "rpn_positive_overlap": rpn_positive_overlap,
        "rpn_negative_overlap": rpn_negative_overlap,
        "rpn_fg_fraction": rpn_fg_fraction,
        "use_random": use_random,
    }
    location, score, target, label, weight = constants_of("rpn_target_assign", inputs, attrs)
    return _chosen(cls_logits, 1, bbox_pred, location, score, label, target, weight)


def retinanet_target_assign(
    bbox_pred: Variable,
    cls_logits: Variable,
    anchor_box: Variable,
    anchor_var: Variable,
    gt_boxes: Variable,
    gt_labels: Variable,
    is_crowd: Variable,
    im_info: Variable,
    num_classes: Positive = 1,
    positive_overlap: float = 0.5,
    negative_overlap: float = 0.4,
) -> tuple[Variable, ...]:
    """`rpn_target_assign` of all anchors, with classes.

    Formula: Lin et al., Focal Loss for Dense Object Detection, 2017.

    Args:
        bbox_pred, anchor_box, gt_boxes, is_crowd, im_info: as of `rpn_target_assign`.
        cls_logits: logits of the classes, ``[N, A, num_classes]``.
        anchor_var: accepted and ignored.
        gt_labels: classes of the boxes, int32 ``[G, 1]``, from 1 on, in the same sequences.
        num_classes: number of classes, without the background.
        positive_overlap: anchors that overlap a box by this (or the most) hold an object.
        negative_overlap: anchors that overlap all boxes by less hold none.

    Returns:
        What `rpn_target_assign` does, and one more than the number of anchors that hold an object, int32 ``[N, 1]``.

    >>> boxes, logits = fluid.data("boxes", [None, 600, 4]), fluid.data("logits", [None, 600, 20])
    >>> anchors, variances = fluid.data("anchors", [600, 4]), fluid.data("variances", [600, 4])
    >>> truth, info = fluid.data("truth", [None, 4], lod_level=1), fluid.data("info", [None, 3])
    >>> labels, crowd = (fluid.data(name, [None, 1], "int32", lod_level=1) for name in ("labels", "crowd"))
    >>> all_ = layers.retinanet_target_assign(boxes, logits, anchors, variances, truth, labels, crowd, info, num_classes=20)
    >>> [var.shape for var in all_]
    [(-1, 20), (-1, 4), (-1, 1), (-1, 4), (-1, 4), (-1, 1)]
    """
    inputs = {"Anchor": anchor_box, "GtBoxes": gt_boxes, "GtLabels": gt_labels, "IsCrowd": is_crowd, "ImInfo": im_info}
    attrs = {"positive_overlap": positive_overlap, "negative_overlap": negative_overlap}
    location, score, target, label, weight, count = constants_of("retinanet_target_assign", inputs, attrs)
    return _chosen(cls_logits, num_classes, bbox_pred, location, score, label, target, weight, count)


def generate_proposal_labels(
    rpn_rois: Variable,
    gt_classes: Variable,
    is_crowd: Variable,
    gt_boxes: Variable,
    im_info: Variable,
    batch_size_per_im: Positive = 256,
    fg_fraction: float = 0.25,
    fg_thresh: float = 0.25,
    bg_thresh_hi: float = 0.5,
    bg_thresh_lo: float = 0.0,
    bbox_reg_weights: Sequence[float] = [0.1, 0.1, 0.2, 0.2],
    class_nums: int | None = None,
    use_random: bool = True,
    is_cls_agnostic: bool = False,
    is_cascade_rcnn: bool = False,
) -> tuple[Variable, ...]:
    """Choose the regions that a detector's second stage learns, from proposals and ground truth, and their targets.

    Formula: Ren et al., Faster R-CNN, 2015.

    Args:
        rpn_rois: sequences of regions, ``[R, 4]``.
        gt_classes: sequences of classes, int32 ``[G, 1]``.
        is_crowd: sequences that say whether a box holds many objects, int32 ``[G, 1]``; then it is none of the regions.
        gt_boxes: sequences of boxes, ``[G, 4]``.
        im_info: ``[N, 3]``, height and width of each image, and its scale factor.
        batch_size_per_im: how many regions of an image are learned.
        fg_fraction: the greatest part of them that hold an object.
        fg_thresh: regions that overlap a box by this hold an object.
        bg_thresh_hi: other regions overlap each box by less than this.
        bg_thresh_lo: other regions overlap one box by this at least.
        bbox_reg_weights: what offsets are divided by.
        class_nums: the number of classes, 0 for no object included.
        use_random: draw the regions; otherwise the first ones are taken.
        is_cls_agnostic: offsets of all classes are learned as class 1.
        is_cascade_rcnn: the regions come from the stage before; all are learned.

    Returns:
        Regions ``[S, 4]``, their classes, int32 ``[S, 1]``, offsets to the boxes, ``[S, 4 * class_nums]``, and for these two
        factors, 1 at the box's class.

    Raises:
        ProgramError: without `class_nums`.

    >>> rois, info = fluid.data("rois", [None, 4], lod_level=1), fluid.data("info", [None, 3])
    >>> classes, crowd = (fluid.data(name, [None, 1], "int32", lod_level=1) for name in ("classes", "crowd"))
    >>> boxes = fluid.data("boxes", [None, 4], lod_level=1)
    >>> [var.shape for var in layers.generate_proposal_labels(rois, classes, crowd, boxes, info, class_nums=10)]
    [(-1, 4), (-1, 1), (-1, 40), (-1, 40), (-1, 40)]
    """
    if class_nums is None:
        raise ProgramError("generate_proposal_labels: give class_nums, the number of classes, 0 for no object included")
    inputs = {"RpnRois": rpn_rois, "GtClasses": gt_classes, "IsCrowd": is_crowd, "GtBoxes": gt_boxes, "ImInfo": im_info}
    attrs = {
        "batch_size_per_im": batch_size_per_im,
        "fg_fraction": fg_fraction,
        "fg_thresh": fg_thresh,
        "bg_thresh_hi": bg_thresh_hi,
        "bg_thresh_lo": bg_thresh_lo,
        "bbox_reg_weights": list(bbox_reg_weights),
        "class_nums": class_nums,
        "use_random": use_random,
        "is_cls_agnostic": is_cls_agnostic,
        "is_cascade_rcnn": is_cascade_rcnn,
    }
    return constants_of("generate_proposal_labels", inputs, attrs)  # type: ignore[no-any-return]


def generate_mask_labels(
    im_info: Variable,
    gt_classes: Variable,
    is_crowd: Variable,
    gt_segms: Variable,
    rois: Variable,
    labels_int32: Variable,
    num_classes: Positive,
    resolution: Positive,
) -> tuple[Variable, ...]:
    """Targets for a mask branch: the shapes of the objects in regions, on a grid of `resolution` by `resolution`.

    Formula: He et al., Mask R-CNN, 2017.

    Args:
        im_info: ``[N, 3]``, height and width of each image, and its scale factor.
        gt_classes, is_crowd: as of `generate_proposal_labels`.
        gt_segms: ``[P, 2]``, x and y of polygons (``lod_level=3``): objects of images, polygons of objects, points of polygons.
        rois: the regions that `generate_proposal_labels` returns.
        labels_int32: the classes that `generate_proposal_labels` returns.
        num_classes: number of classes, 0 for no object included.
        resolution: the side of the grid.

    Returns:
        The regions that hold an object, ``[M, 4]``; their indices among the image's regions, int32 ``[M, 1]``; int32
        ``[M, num_classes * resolution * resolution]`` with 1 and 0 for their class, and -1 for others.

    >>> info, rois = fluid.data("info", [None, 3]), fluid.data("rois", [None, 4], lod_level=1)
    >>> classes, crowd, labels = (fluid.data(name, [None, 1], "int32", lod_level=1) for name in ("classes", "crowd", "labels"))
    >>> polygons = fluid.data("polygons", [None, 2], lod_level=3)
    >>> [var.shape for var in layers.generate_mask_labels(info, classes, crowd, polygons, rois, labels, 10, 14)]
    [(-1, 4), (-1, 1), (-1, 1960)]
    """
    inputs = {
        "ImInfo": im_info,
        "GtClasses": gt_classes,
        "IsCrowd": is_crowd,
        "GtSegms": gt_segms,
        "Rois": rois,
        "LabelsInt32": labels_int32,
    }
    attrs = {"num_classes": num_classes, "resolution": resolution}
    return constants_of("generate_mask_labels", inputs, attrs)  # type: ignore[no-any-return]


# ------------------------------------------------------------------------------------------------------------ proposals
def generate_proposals(
    scores: Variable,
    bbox_deltas: Variable,
    im_info: Variable,
    anchors: Variable,
    variances: Variable,
    pre_nms_top_n: int = 6000,
    post_nms_top_n: int = 1000,
    nms_thresh: float = 0.5,
    min_size: float = 0.1,
    eta: float = 1.0,
    name: str | None = None,
) -> tuple[Variable, ...]:
    """The regions of images that most likely hold an object: sequences of boxes ``[R, 4]``, and their scores ``[R, 1]``.

    Formula: Ren et al., Faster R-CNN, 2015.

    Args:
        scores: ``[N, A, H, W]``, for A anchors at each place.
        bbox_deltas: ``[N, 4 * A, H, W]``, where the object lies relative to each anchor.
        im_info: ``[N, 3]``, height and width of each image, and its scale factor.
        anchors: boxes, ``[H, W, A, 4]``.
        variances: what `bbox_deltas` are multiplied with, ``[H, W, A, 4]``.
        pre_nms_top_n: how many places of an image are looked at.
        post_nms_top_n: how many regions of an image are left.
        nms_thresh: regions that overlap one with a greater score by more are dropped.
        min_size: regions that are less wide or high, in the image before it was scaled, are dropped.
        eta: what `nms_thresh` is multiplied with after each region, as long as it is above 0.5.

    >>> scores, deltas = fluid.data("scores", [None, 3, 8, 8]), fluid.data("deltas", [None, 12, 8, 8])
    >>> anchors, variances = fluid.data("anchors", [8, 8, 3, 4]), fluid.data("variances", [8, 8, 3, 4])
    >>> rois, probabilities = layers.generate_proposals(scores, deltas, fluid.data("info", [None, 3]), anchors, variances)
    >>> rois.shape, rois.lod_level, probabilities.shape
    ((-1, 4), 1, (-1, 1))
    """
    inputs = {"Scores": scores, "BboxDeltas": bbox_deltas, "ImInfo": im_info, "Anchors": anchors, "Variances": variances}
    attrs = {
        "pre_nms_topN": pre_nms_top_n,
        "post_nms_topN": post_nms_top_n,
        "nms_thresh": nms_thresh,
        "min_size": min_size,
        "eta": eta,
    }
    return constants_of("generate_proposals", inputs, attrs, name)  # type: ignore[no-any-return]


def distribute_fpn_proposals(
    fpn_rois: Variable,
    min_level: int,
    max_level: int,
    refer_level: int,
    refer_scale: Positive,
    name: str | None = None,
) -> tuple[list[Variable], Variable]:
    """Sequences of regions for each level of a pyramid, the larger the higher, and where each one has gone, int32 ``[R, 1]``.

    The second result are rows of all levels one after the other: `gather` with it restores the former order.

    Formula: Lin et al., Feature Pyramid Networks for Object Detection, 2017.

    Args:
        fpn_rois: sequences of regions, ``[R, 4]``.
        min_level: the lowest level; it also gets smaller regions.
        max_level: the highest level; it also gets larger regions.
        refer_level: the level of regions of about `refer_scale` by `refer_scale`; regions of half the size belong to the level
            below.
        refer_scale: their side.

    Raises:
        ProgramError: if `max_level` is below `min_level`.

    >>> rois = fluid.data("rois", [None, 4], lod_level=1)
    >>> by_level, restore = layers.distribute_fpn_proposals(rois, 2, 5, 4, 224)
    >>> len(by_level), by_level[0].shape, restore.shape
    (4, (-1, 4), (-1, 1))
    """
    attrs = {"min_level": min_level, "max_level": max_level, "refer_level": refer_level, "refer_scale": refer_scale}
    if max_level < min_level:
        raise ProgramError(f"distribute_fpn_proposals: max_level {max_level} should not be below min_level {min_level}")
    helper = LayerHelper("distribute_fpn_proposals", name)
    outputs = helper.apply("distribute_fpn_proposals", {"FpnRois": fpn_rois}, attrs, count=max_level - min_level + 1)
    return outputs["MultiFpnRois"], outputs["RestoreIndex"]


def collect_fpn_proposals(
    multi_rois: Sequence[Variable],
    multi_scores: Sequence[Variable],
    min_level: int,
    max_level: int,
    post_nms_top_n: Positive,
    name: str | None = None,
) -> Variable:
    """The `post_nms_top_n` regions with the greatest scores, of levels `min_level` to `max_level` and all images.

    Formula: Lin et al., Feature Pyramid Networks for Object Detection, 2017.

    Args:
        multi_rois: for each level, sequences of regions ``[R, 4]``.
        multi_scores: for each level, sequences of scores ``[R, 1]``.
        min_level: the lowest level.
        max_level: the highest level.
        post_nms_top_n: how many regions are left, of all images together.

    >>> rois = [fluid.data(f"rois_{level}", [None, 4], lod_level=1) for level in (2, 3)]
    >>> scores = [fluid.data(f"scores_{level}", [None, 1], lod_level=1) for level in (2, 3)]
    >>> layers.collect_fpn_proposals(rois, scores, 2, 3, post_nms_top_n=2000).shape
    (-1, 4)
    """
    levels = max_level - min_level + 1
    inputs = {"MultiLevelRois": list(multi_rois)[:levels], "MultiLevelScores": list(multi_scores)[:levels]}
    helper = LayerHelper("collect_fpn_proposals", name)
    collected: Variable = helper.apply("collect_fpn_proposals", inputs, {"post_nms_topN": post_nms_top_n})["FpnRois"]
    return collected


def retinanet_detection_output(
    bboxes: Sequence[Variable],
    scores: Sequence[Variable],
    anchors: Sequence[Variable],
    im_info: Variable,
    score_threshold: float = 0.05,
    nms_top_k: int = 1000,
    keep_top_k: int = 100,
    nms_threshold: float = 0.3,
    nms_eta: float = 1.0,
) -> Variable:
    """The objects in images, sequences of class (from 1), score, left, top, right and bottom in the original image: ``[D, 6]``.

    Formula: Lin et al., Focal Loss for Dense Object Detection, 2017.

    Args:
        bboxes: for each level ``[N, A, 4]``, where an object lies relative to each of A anchors.
        scores: for each level ``[N, A, C]``, probabilities of C classes.
        anchors: for each level ``[A, 4]``.
        im_info: ``[N, 3]``, height and width of each image, and its scale factor.
        score_threshold: lower scores do not count, except on the last level.
        nms_top_k: how many scores of each level are looked at.
        keep_top_k: how many objects of an image are left.
        nms_threshold: as `nms_thresh` of `generate_proposals`.
        nms_eta: as `eta` of `generate_proposals`.

    >>> boxes, scores = [fluid.data("boxes", [None, 90, 4])], [fluid.data("scores", [None, 90, 10])]
    >>> anchors = [fluid.data("anchors", [90, 4])]
    >>> layers.retinanet_detection_output(boxes, scores, anchors, fluid.data("info", [None, 3])).shape
    (-1, 6)
    """
    inputs: dict[str, Any] = {"BBoxes": list(bboxes), "Scores": list(scores), "Anchors": list(anchors), "ImInfo": im_info}
    attrs = {
        "score_threshold": score_threshold,
        "nms_top_k": nms_top_k,
        "nms_threshold": nms_threshold,
        "nms_eta": nms_eta,
        "keep_top_k": keep_top_k,
    }
    return constant(apply("retinanet_detection_output", inputs, attrs))
