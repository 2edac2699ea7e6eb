"""Layers of object detection: boxes over images, their matching with labelled ones, losses, and detections.

Boxes are rows of left, top, right and bottom. Labelled boxes, which an image has any number of, are sequences (``lod_level=1``).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from ..building.layer_helper import LayerHelper, apply, apply_many, listed
from ..errors import ProgramError
from ..ir.checked import Positive, check_variable
from ..ir.program import Variable
from .nms import multiclass_nms, multiclass_nms2
from .nn import conv2d, flatten, reshape, shape, slice, softmax, softmax_with_cross_entropy, transpose
from .ops import reduce_sum, smooth_l1
from .tensor import cast, concat, constant, constants_of

__all__ = [
    "anchor_generator",
    "bipartite_match",
    "box_clip",
    "box_coder",
    "box_decoder_and_assign",
    "density_prior_box",
    "detection_map",
    "detection_output",
    "iou_similarity",
    "multi_box_head",
    "polygon_box_transform",
    "prior_box",
    "sigmoid_focal_loss",
    "ssd_loss",
    "target_assign",
    "yolo_box",
    "yolov3_loss",
]

_VARIANCE = [0.1, 0.1, 0.2, 0.2]
Sizes = Sequence[float] | float


def _floats(values: Sizes | None) -> list[float]:
    return [float(value) for value in listed(values)] if values is not None else []


# ------------------------------------------------------------------------------------------------------ priors, anchors
def prior_box(
    input: Variable,
    image: Variable,
    min_sizes: Sizes,
    max_sizes: Sizes | None = None,
    aspect_ratios: Sizes = [1.0],  # noqa: B006  (as in Fluid)
    variance: Sequence[float] = _VARIANCE,
    flip: bool = False,
    clip: bool = False,
    steps: Sequence[float] = [0.0, 0.0],
    offset: float = 0.5,
    name: str | None = None,
    min_max_aspect_ratios_order: bool = False,
) -> tuple[Variable, Variable]:
    """Boxes ``[H, W, P, 4]`` around each place of a feature map, in parts of the image, and their variances, in that shape.

    Formula: Liu et al., SSD: Single Shot MultiBox Detector, 2016.

    Args:
        input: the feature map ``[N, C, H, W]``; only its size is read.
        image: the image, ``[N, C, H', W']``; only its size is read.
        min_sizes: sides of squares in pixels; for each of them there is a box of each aspect ratio.
        max_sizes: one for each of `min_sizes`; each pair gives a square of the geometric mean of min_size and max_size.
        aspect_ratios: width by height; 1 is always among them.
        variance: the variances of x, y, width and height.
        flip: whether there is a box of the reciprocal of each aspect ratio.
        clip: whether boxes are cut to the image.
        steps: how many pixels places are apart along x and y; 0 for such that they cover the image.
        offset: of the first place from the corner, in steps.
        min_max_aspect_ratios_order: whether the square of max_size comes right after the square of min_size, not last.

    >>> images = fluid.data("images", [None, 3, 64, 64])
    >>> features = layers.conv2d(images, num_filters=8, filter_size=3, stride=8, padding=1)
    >>> boxes, variances = layers.prior_box(features, images, [16.0], [32.0], aspect_ratios=[2.0], flip=True)
    >>> boxes.shape
    (8, 8, 4, 4)
    """
    largest = _floats(max_sizes)
    attrs = {
        "min_sizes": _floats(min_sizes),
        "max_sizes": largest if largest and largest[0] > 0 else [],
        "aspect_ratios": _floats(aspect_ratios),
        "variances": _floats(variance),
        "flip": flip,
        "clip": clip,
        "offset": offset,
        "min_max_aspect_ratios_order": min_max_aspect_ratios_order,
        **_steps("prior_box", steps),
    }
    boxes, variances = constants_of("prior_box", {"Input": input, "Image": image}, attrs, name)
    return boxes, variances


def _steps(layer: str, steps: Sequence[float]) -> dict[str, float]:
    if len(steps) != 2:
        raise ProgramError(f"{layer}: steps should be two numbers, along x and y, not {steps!r}")
    return {"step_w": float(steps[0]), "step_h": float(steps[1])}


def density_prior_box(
    input: Variable,
    image: Variable,
    densities: Sequence[int] | None = None,
    fixed_sizes: Sequence[float] | None = None,
    fixed_ratios: Sequence[float] | None = None,
    variance: Sequence[float] = _VARIANCE,
    clip: bool = False,
    steps: Sequence[float] = [0.0, 0.0],
    offset: float = 0.5,
    flatten_to_2d: bool = False,
    name: str | None = None,
) -> tuple[Variable, Variable]:
    """`prior_box` with several boxes of a size around each place: a grid of ``densities[i]`` a side of ``fixed_sizes[i]``.

    Formula: Zhang et al., FaceBoxes, 2017.

    Args:
        input, image, variance, steps, offset: as of `prior_box`.
        densities: for each of `fixed_sizes`, how many boxes a side the grid has.
        fixed_sizes: sides of squares in pixels.
        fixed_ratios: width by height; for each there are boxes of the same area.
        clip: accepted and ignored: boxes are always cut to the image.
        flatten_to_2d: whether the results are ``[H * W * P, 4]`` rather than ``[H, W, P, 4]``.

    >>> images, features = fluid.data("images", [None, 3, 64, 64]), fluid.data("features", [None, 8, 8, 8])
    >>> layers.density_prior_box(features, images, [2, 1], [16.0, 32.0], [1.0], flatten_to_2d=True)[0].shape
    (320, 4)
    """
    attrs = {
        "densities": list(densities or ()),
        "fixed_sizes": _floats(fixed_sizes),
        "fixed_ratios": _floats(fixed_ratios),
        "variances": _floats(variance),
        "clip": clip,
        "offset": offset,
        "flatten_to_2d": flatten_to_2d,
        **_steps("density_prior_box", steps),
    }
    boxes, variances = constants_of("density_prior_box", {"Input": input, "Image": image}, attrs, name)
    return boxes, variances


def anchor_generator(
    input: Variable,
    anchor_sizes: Sizes | None = None,
    aspect_ratios: Sizes | None = None,
    variance: Sequence[float] = _VARIANCE,
    stride: Sequence[float] | None = None,
    offset: float = 0.5,
    name: str | None = None,
) -> tuple[Variable, Variable]:
    """Boxes ``[H, W, P, 4]`` in pixels around each place of a feature map ``[N, C, H, W]``, and their variances, in that shape.

    Formula: Ren et al., Faster R-CNN, 2015.

    Args:
        input: the feature map; only its size is read.
        anchor_sizes: for each and each aspect ratio there is a box; it is the side of a square of the same area, in pixels.
        aspect_ratios: height by width.
        variance: the variances of x, y, width and height.
        stride: how many pixels places are apart along x and y.
        offset: of the first place from the corner, in strides.

    Raises:
        ProgramError: without `anchor_sizes`, `aspect_ratios` or `stride`.

    >>> features = fluid.data("features", [None, 8, 8, 8])
    >>> layers.anchor_generator(features, [64.0, 128.0], [0.5, 1.0, 2.0], stride=[16.0, 16.0])[0].shape
    (8, 8, 6, 4)
    """
    if anchor_sizes is None or aspect_ratios is None or stride is None:
        raise ProgramError("anchor_generator: give anchor_sizes, aspect_ratios and stride, which has two numbers")
    attrs = {
        "anchor_sizes": _floats(anchor_sizes),
        "aspect_ratios": _floats(aspect_ratios),
        "variances": _floats(variance),
        "stride": _floats(stride),
        "offset": offset,
    }
    anchors, variances = constants_of("anchor_generator", {"Input": input}, attrs, name)
    return anchors, variances


# ------------------------------------------------------------------------------------------------------ boxes as numbers
def box_coder(
    prior_box: Variable,
    prior_box_var: Variable | Sequence[float] | None,
    target_box: Variable,
    code_type: str = "encode_center_size",
    box_normalized: bool = True,
    name: str | None = None,
    axis: int = 0,
) -> Variable:
    """Boxes as numbers relative to priors, or back.

    The numbers are the distances of the centers by the sizes of the prior, and the logarithms of the ratios of the sizes, each
    divided by a variance.

    Args:
        prior_box: the priors, ``[M, 4]``.
        prior_box_var: variances of each prior, ``[M, 4]``, or four for all; None for 1.
        target_box: to encode, boxes ``[N, 4]``, which gives ``[N, M, 4]``; to decode, numbers ``[N, M, 4]``, or ``[M, N, 4]``
            with `axis` 1.
        code_type: ``"encode_center_size"`` or ``"decode_center_size"``.
        box_normalized: whether boxes end at right and bottom; otherwise these are pixels of it.
        axis: which dimension of `target_box` to decode does not go over the priors: 0 or 1.

    >>> prior = fluid.dygraph.to_variable([[0.0, 0.0, 1.0, 1.0]])
    >>> layers.box_coder(prior, [0.1, 0.1, 0.2, 0.2], fluid.dygraph.to_variable([[0.0, 0.0, 2.0, 1.0]]))
    Tensor([[[5.    , 0.    , 3.4657, 0.    ]]], shape=[1, 1, 4], dtype=float32)
    """
    inputs: dict[str, Any] = {"PriorBox": prior_box, "TargetBox": target_box}
    attrs: dict[str, Any] = {"code_type": code_type, "box_normalized": box_normalized, "axis": axis}
    if isinstance(prior_box_var, Variable):
        inputs["PriorBoxVar"] = prior_box_var
    elif prior_box_var is not None:
        attrs["variance"] = _floats(prior_box_var)
    return apply("box_coder", inputs, attrs, name=name)


def box_clip(input: Variable, im_info: Variable, name: str | None = None) -> Variable:
    """Boxes in pixels ``[.., 4]``, a sequence for each image, cut to the image.

    Args:
        input: a sequence of boxes ``[.., 4]`` for each image.
        im_info: ``[N, 3]``, height and width of each image, and its scale factor; boxes refer to the original image.

    >>> boxes = fluid.dygraph.to_variable([[-3.0, 2.0, 40.0, 9.0]]).with_lod([[0, 1]])
    >>> layers.box_clip(boxes, fluid.dygraph.to_variable([[20.0, 30.0, 1.0]]))
    Tensor([[ 0.,  2., 29.,  9.]], shape=[1, 4], dtype=float32)
    """
    return apply("box_clip", {"Input": input, "ImInfo": im_info}, name=name)


def iou_similarity(x: Variable, y: Variable, name: str | None = None, box_normalized: bool = True) -> Variable:
    """Intersection over union of each box of `x` ``[N, 4]`` with each of `y` ``[M, 4]``: ``[N, M]``.

    Args:
        x: boxes ``[N, 4]``, which may be sequences.
        y: boxes ``[M, 4]``.
        box_normalized: whether the ends of boxes are borders; otherwise they are the last pixels.

    >>> x = fluid.dygraph.to_variable([[0.0, 0.0, 2.0, 2.0]])
    >>> layers.iou_similarity(x, fluid.dygraph.to_variable([[0.0, 0.0, 2.0, 1.0], [1.0, 1.0, 3.0, 3.0]]))
    Tensor([[0.5   , 0.1429]], shape=[1, 2], dtype=float32)
    """
    return apply("iou_similarity", {"X": x, "Y": y}, {"box_normalized": box_normalized}, name=name)


def box_decoder_and_assign(
    prior_box: Variable,
    prior_box_var: Variable,
    target_box: Variable,
    box_score: Variable,
    box_clip: float,
    name: str | None = None,
) -> tuple[Variable, Variable]:
    """The boxes in pixels that numbers `target_box` ``[N, C * 4]`` mean, one for each class, and the boxes of the best class
    ``[N, 4]``.

    Args:
        prior_box: ``[N, 4]``.
        prior_box_var: the variances, ``[4]``.
        target_box: numbers as `box_coder` encodes boxes, ``[N, C * 4]``.
        box_score: of the classes, ``[N, C]``; class 0 is the background, and never the best.
        box_clip: the largest logarithm of a ratio of sizes.

    >>> prior, variances = fluid.dygraph.to_variable([[0.0, 0.0, 9.0, 9.0]]), fluid.dygraph.to_variable([0.1, 0.1, 0.2, 0.2])
    >>> numbers = fluid.dygraph.to_variable([[0.0] * 8])
    >>> layers.box_decoder_and_assign(prior, variances, numbers, fluid.dygraph.to_variable([[0.1, 0.9]]), box_clip=4.135)[1]
    Tensor([[0., 0., 9., 9.]], shape=[1, 4], dtype=float32)
    """
    inputs = {"PriorBox": prior_box, "PriorBoxVar": prior_box_var, "TargetBox": target_box, "BoxScore": box_score}
    decoded, assigned = apply_many("box_decoder_and_assign", inputs, {"box_clip": box_clip}, name=name)
    return decoded, assigned


def polygon_box_transform(input: Variable, name: str | None = None) -> Variable:
    """Places ``4 * place - input`` in an image that is 4 times as large as `input`, offsets ``[N, G, H, W]`` of x in even
    channels and of y in odd ones.

    Args:
        input: offsets ``[N, G, H, W]``, float.

    >>> offsets = fluid.dygraph.to_variable([[[[0.0, 1.0]], [[0.0, 1.0]]]])
    >>> layers.polygon_box_transform(offsets).numpy().reshape(2, 2)
    array([[ 0.,  3.],
           [ 0., -1.]], dtype=float32)
    """
    return apply("polygon_box_transform", {"Input": input}, name=name)


# -------------------------------------------------------------------------------------------------------------- matching
def bipartite_match(
    dist_matrix: Variable, match_type: str | None = None, dist_threshold: float | None = None, name: str | None = None
) -> tuple[Variable, Variable]:
    """For each column the row that matches it best, each row being taken once, and the similarity of both: ``[N, M]``.

    Where nothing matches stand -1 and 0.

    Args:
        dist_matrix: similarities ``[K, M]``; the rows of an image are a sequence, and counted in it.
        match_type: ``"bipartite"`` (by default), or ``"per_prediction"``: then columns that are left match the row most similar
            to them too, if by at least `dist_threshold`.
        dist_threshold: by default 0.5.

    >>> layers.bipartite_match(fluid.dygraph.to_variable([[0.1, 0.9, 0.6], [0.2, 0.8, 0.0]]), "per_prediction")[0]
    Tensor([[1, 0, 0]], shape=[1, 3], dtype=int32)
    """
    attrs = {"match_type": match_type, "dist_threshold": dist_threshold}
    indices, distances = constants_of(
        "bipartite_match", {"DistMat": dist_matrix}, {key: value for key, value in attrs.items() if value is not None}, name
    )
    return indices, distances


def target_assign(
    input: Variable,
    matched_indices: Variable,
    negative_indices: Variable | None = None,
    mismatch_value: int | None = None,
    name: str | None = None,
) -> tuple[Variable, Variable]:
    """The targets of the predictions for each prior, ``[N, M, D]``, and their weights, ``[N, M, 1]``.

    Args:
        input: ``[K, P, D]``, a sequence of labelled boxes for each image.
        matched_indices: ``[N, M]``: which of them a prior matches, or -1. It gets ``input[index, prior % P]`` and the weight 1.
        negative_indices: ``[.., 1]``, for each image a sequence of priors without a match that get the weight 1 all the same.
        mismatch_value: what the others get, with the weight 0 (0 by default).

    >>> boxes = fluid.dygraph.to_variable([[[1.0]], [[2.0]]]).with_lod([[0, 2]])
    >>> targets, weights = layers.target_assign(boxes, fluid.dygraph.to_variable(np.int32([[1, -1, 0]])), mismatch_value=9)
    >>> targets.numpy().ravel(), weights.numpy().ravel()
    (array([2., 9., 1.], dtype=float32), array([1., 0., 1.], dtype=float32))
    """
    inputs = {"X": input, "MatchIndices": matched_indices, "NegIndices": negative_indices}
    targets, weights = constants_of("target_assign", inputs, {"mismatch_value": mismatch_value or 0}, name)
    return targets, weights


# ------------------------------------------------------------------------------------------------------------------- SSD
def multi_box_head(
    inputs: Sequence[Variable],
    image: Variable,
    base_size: int,
    num_classes: Positive,
    aspect_ratios: Sequence[Sizes],
    min_ratio: int | None = None,
    max_ratio: int | None = None,
    min_sizes: Sequence[Sizes] | None = None,
    max_sizes: Sequence[Sizes] | None = None,
    steps: Sequence[float] | None = None,
    step_w: Sequence[float] | None = None,
    step_h: Sequence[float] | None = None,
    offset: float = 0.5,
    variance: Sequence[float] = _VARIANCE,
    flip: bool = True,
    clip: bool = False,
    kernel_size: Positive = 1,
    pad: int = 0,
    stride: Positive = 1,
    name: str | None = None,
    min_max_aspect_ratios_order: bool = False,
) -> tuple[Variable, Variable, Variable, Variable]:
    """The predictions of an SSD from several feature maps: locations ``[N, P, 4]`` and classes ``[N, P, num_classes]`` of P
    priors, which follow as ``[P, 4]``, and their variances ``[P, 4]``.

    Of each map, convolutions predict both; `prior_box` lays out the priors.

    Formula: Liu et al., SSD: Single Shot MultiBox Detector, 2016.

    Args:
        inputs: feature maps ``[N, C, H, W]``.
        image: the image; only its size is read.
        base_size: of the image; sizes without `min_sizes` are shares of it: 0.1 to 0.2 for the first map, the range from
            `min_ratio` to `max_ratio` percent in equal steps for the others.
        num_classes: number of classes, with the background.
        aspect_ratios, min_sizes, max_sizes: of the priors of each map.
        min_ratio: the smallest size in percent of `base_size`, for three maps or more.
        max_ratio: the largest size in percent of `base_size`, for three maps or more.
        steps: how many pixels places are apart on each map, along both axes.
        step_w: the same along x, without `steps`.
        step_h: the same along y, without `steps`.
        offset, variance, flip, clip, min_max_aspect_ratios_order: as of `prior_box`.
        kernel_size: size of the filters of the convolutions.
        pad: padding of the convolutions.
        stride: stride of the convolutions.

    Raises:
        ProgramError: if a list does not have an entry for each of `inputs`.

    >>> images, one = fluid.data("images", [None, 3, 64, 64]), fluid.data("one", [None, 8, 8, 8])
    >>> two = fluid.data("two", [None, 8, 4, 4])
    >>> parts = layers.multi_box_head([one, two], images, 64, 5, [[2.0], [2.0]], min_sizes=[16.0, 32.0], max_sizes=[32.0, 60.0])
    >>> [part.shape for part in parts]
    [(-1, 320, 4), (-1, 320, 5), (320, 4), (320, 4)]
    """
    maps = listed(inputs)
    if min_sizes is None or max_sizes is None:
        min_sizes, max_sizes = _prior_sizes(len(maps), base_size, min_ratio, max_ratio)
    across, down = steps or step_w or [0.0] * len(maps), steps or step_h or [0.0] * len(maps)
    per_map = {"aspect_ratios": aspect_ratios, "min_sizes": min_sizes, "max_sizes": max_sizes, "step_w": across, "step_h": down}
    for argument, values in per_map.items():
        if len(values) != len(maps):
            raise ProgramError(f"multi_box_head: {argument} {values!r} should have an entry for each of the {len(maps)} inputs")
    parts: list[tuple[Variable, ...]] = []
    for features, ratios, low, high, x, y in zip(maps, *per_map.values(), strict=True):
        boxes, variances = prior_box(
            features, image, low, high, ratios, variance, flip, clip, [x, y], offset, None, min_max_aspect_ratios_order
        )

        def predict(features: Variable, numbers: int, boxes: Variable) -> Variable:
            values = conv2d(features, boxes.shape[2] * numbers, kernel_size, stride, pad, name=name)
            return reshape(transpose(values, [0, 2, 3, 1]), [0, -1, numbers])

        predicted = predict(features, 4, boxes), predict(features, num_classes, boxes)
        parts.append((*predicted, flatten(boxes, 3), flatten(variances, 3)))
    joined = [
        part[0] if len(part) == 1 else concat(list(part), axis)
        for axis, part in zip((1, 1, 0, 0), zip(*parts, strict=True), strict=True)
    ]
    return joined[0], joined[1], constant(joined[2]), constant(joined[3])


def _prior_sizes(maps: int, base_size: int, min_ratio: int | None, max_ratio: int | None) -> tuple[list[float], list[float]]:
    """The smallest and largest sizes of the priors of each feature map; see `multi_box_head`."""
    if maps < 3 or min_ratio is None or max_ratio is None:
        raise ProgramError("multi_box_head: give min_sizes and max_sizes or, for three inputs or more, min_ratio and max_ratio")
    step = math.floor((max_ratio - min_ratio) / (maps - 2))
    if step < 1:
        raise ProgramError(f"multi_box_head: max_ratio {max_ratio} should be at least {maps - 2} above min_ratio {min_ratio}")
    ratios = range(min_ratio, max_ratio + 1, step)[: maps - 1]
    low, high = ([base_size * (ratio + more) / 100 for ratio in ratios] for more in (0, step))
    return [base_size * 0.1, *low], [base_size * 0.2, *high]


def ssd_loss(
    location: Variable,
    confidence: Variable,
    gt_box: Variable,
    gt_label: Variable,
    prior_box: Variable,
    prior_box_var: Variable | Sequence[float] | None = None,
    background_label: int = 0,
    overlap_threshold: float = 0.5,
    neg_pos_ratio: float = 3.0,
    neg_overlap: float = 0.5,
    loc_loss_weight: float = 1.0,
    conf_loss_weight: float = 1.0,
    match_type: str = "per_prediction",
    mining_type: str = "max_negative",
    normalize: bool = True,
    sample_size: int | None = None,
) -> Variable:
    """The loss ``[N, 1]`` of an SSD: cross entropy of the classes plus smooth L1 distance of the locations of matched priors.

    Labelled boxes are matched with priors (`bipartite_match`). Of the priors without a match, those with the largest loss are
    learned as background, `neg_pos_ratio` times the number of matches.

    Formula: Liu et al., SSD: Single Shot MultiBox Detector, 2016.

    Args:
        location: predicted numbers ``[N, P, 4]``, as `box_coder` encodes boxes.
        confidence: logits of the classes ``[N, P, C]``.
        gt_box: labelled boxes ``[G, 4]``, a sequence for each image.
        gt_label: their classes ``[G, 1]``, in the same sequences.
        prior_box: priors ``[P, 4]``.
        prior_box_var: their variances, ``[P, 4]`` or four for all.
        background_label: the class of the background.
        overlap_threshold: see `match_type` "per_prediction" of `bipartite_match`.
        neg_pos_ratio: how many priors are learned as background for each that matches.
        neg_overlap: priors that overlap a labelled box by this or more are not learned as background.
        loc_loss_weight: factor of the part of the locations.
        conf_loss_weight: factor of the part of the classes.
        match_type: as of `bipartite_match`.
        mining_type: "max_negative"; nothing else is possible here.
        normalize: whether the loss is divided by the number of matches in the batch.
        sample_size: accepted and ignored, as it belongs to another `mining_type`.

    Raises:
        ProgramError: for another `mining_type`.

    >>> location, confidence = fluid.data("location", [None, 320, 4]), fluid.data("confidence", [None, 320, 5])
    >>> boxes, labels = fluid.data("boxes", [None, 4], lod_level=1), fluid.data("labels", [None, 1], "int32", lod_level=1)
    >>> layers.ssd_loss(location, confidence, boxes, labels, fluid.data("priors", [320, 4])).shape
    (-1, 1)
    """
    if mining_type != "max_negative":
        raise ProgramError(f"ssd_loss: mining_type should be 'max_negative', not {mining_type!r}")
    for argument, value in (("location", location), ("confidence", confidence), ("gt_box", gt_box), ("gt_label", gt_label)):
        check_variable(value, f"ssd_loss: {argument}")
    matches, similar = bipartite_match(iou_similarity(gt_box, prior_box), match_type, overlap_threshold)
    labels = constant(reshape(gt_label, [0] * (gt_label.ndim - 1) + [-1, 1]))

    def entropy(matches: Variable, negatives: Variable | None) -> tuple[Variable, Variable]:
        """Cross entropies of the classes, and their weights, both ``[N, P, 1]``."""
        target, weight = target_assign(labels, matches, negatives, background_label)
        return softmax_with_cross_entropy(confidence, constant(cast(target, "int64"))), weight

    first = constant(reshape(entropy(matches, None)[0], [0, -1]))
    negatives, matches = constants_of(
        "mine_hard_examples",
        {"ClsLoss": first, "MatchIndices": matches, "MatchDist": similar},
        {
            "neg_pos_ratio": float(neg_pos_ratio),
            "neg_dist_threshold": float(neg_overlap),
            "mining_type": mining_type,
            "sample_size": sample_size or 0,
        },
        layer="ssd_loss",
    )
    encoded = constant(box_coder(prior_box, prior_box_var, gt_box))
    target, matched = target_assign(encoded, matches, mismatch_value=background_label)
    distance = smooth_l1(reshape(location, [-1, 4]), reshape(target, [-1, 4])) * reshape(matched, [-1, 1])
    classified, weight = entropy(matches, negatives)
    loss = reshape(classified * weight, [0, -1]) * conf_loss_weight + reshape(distance, _by_image(confidence)) * loc_loss_weight
    total = reduce_sum(loss, 1, keep_dim=True)
    return total / constant(reduce_sum(matched)) if normalize else total


def _by_image(confidence: Variable) -> list[int] | Variable:
    """The shape ``[N, P]`` of a number for each prior, where confidences are ``[N, P, C]``."""
    priors = confidence.shape[1]
    return [-1, priors] if priors >= 0 else slice(shape(confidence), [0], [0], [2])


def detection_output(
    loc: Variable,
    scores: Variable,
    prior_box: Variable,
    prior_box_var: Variable | Sequence[float] | None,
    background_label: int = 0,
    nms_threshold: float = 0.3,
    nms_top_k: int = 400,
    keep_top_k: int = 200,
    score_threshold: float = 0.01,
    nms_eta: float = 1.0,
    return_index: bool = False,
) -> Any:
    """The detections of an SSD: rows ``[D, 6]`` of class, score and box, one sequence per image.

    Args:
        loc: predicted numbers ``[N, P, 4]``, as `box_coder` encodes boxes.
        scores: logits of the classes, ``[N, P, C]``.
        prior_box: priors ``[P, 4]``.
        prior_box_var: their variances, ``[P, 4]`` or four for all.
        background_label, nms_threshold, nms_top_k, keep_top_k, score_threshold, nms_eta: as of `multiclass_nms`.
        return_index: whether to also return the indices of the boxes, as `multiclass_nms2` gives them.

    >>> loc, scores = fluid.data("loc", [None, 320, 4]), fluid.data("scores", [None, 320, 5])
    >>> priors, variances = fluid.data("priors", [320, 4]), fluid.data("variances", [320, 4])
    >>> layers.detection_output(loc, scores, priors, variances, return_index=True)[0].shape
    (-1, 6)
    """
    boxes = box_coder(prior_box, prior_box_var, loc, "decode_center_size")
    probabilities = constant(transpose(softmax(scores), [0, 2, 1]))
    choice: dict[str, Any] = {
        "score_threshold": score_threshold,
        "nms_top_k": nms_top_k,
        "keep_top_k": keep_top_k,
        "nms_threshold": nms_threshold,
        "nms_eta": nms_eta,
        "background_label": background_label,
    }
    if return_index:
        return multiclass_nms2(boxes, probabilities, **choice, return_index=True)
    return multiclass_nms(boxes, probabilities, **choice)


# --------------------------------------------------------------------------------------------------------- other losses
def sigmoid_focal_loss(x: Variable, label: Variable, fg_num: Variable, gamma: float = 2, alpha: float = 0.25) -> Variable:
    """The focal loss ``[N, C]`` of logits `x` ``[N, C]``: cross entropies with weights that are small where the prediction is
    good.

    The loss of the labelled class is ``-alpha * (1 - p) ** gamma * log(p)``, the loss of others ``-(1 - alpha) * p ** gamma *
    log(1 - p)``, where p is the sigmoid of x; all are divided by `fg_num`.

    Formula: Lin et al., Focal Loss for Dense Object Detection, 2017.

    Args:
        x: logits ``[N, C]``, float.
        label: int32 ``[N, 1]``: classes from 1 on, 0 for the background, -1 for rows without a loss.
        fg_num: int32 ``[1]``: how many rows have a class.
        gamma: how much less good predictions count.
        alpha: weight of the labelled class.

    >>> x, label = fluid.dygraph.to_variable([[0.0, 2.0]]), fluid.dygraph.to_variable(np.int32([[1]]))
    >>> layers.sigmoid_focal_loss(x, label, fg_num=fluid.dygraph.to_variable(np.int32([1])))
    Tensor([[0.0433, 1.2376]], shape=[1, 2], dtype=float32)
    """
    return apply("sigmoid_focal_loss", {"X": x, "Label": label, "FgNum": fg_num}, {"gamma": float(gamma), "alpha": float(alpha)})


def yolov3_loss(
    x: Variable,
    gt_box: Variable,
    gt_label: Variable,
    anchors: Sequence[int],
    anchor_mask: Sequence[int],
    class_num: int,
    ignore_thresh: float,
    downsample_ratio: int,
    gt_score: Variable | None = None,
    use_label_smooth: bool = True,
    name: str | None = None,
    scale_x_y: float = 1.0,
) -> Variable:
    """The loss ``[N]`` of one feature map of YOLOv3.

    Formula: Redmon and Farhadi, YOLOv3: An Incremental Improvement, 2018.

    Args:
        x: ``[N, len(anchor_mask) * (5 + class_num), H, H]``; the op `yolov3_loss` says what its channels mean.
        gt_box: ``[N, B, 4]``: center, width and height of the labelled boxes in parts of the image; zeros where there are fewer.
        gt_label: their classes, int32 ``[N, B]``.
        anchors: width and height in pixels of each anchor, all in one list.
        anchor_mask: indices of the anchors of this map.
        class_num: number of classes.
        ignore_thresh: where a predicted box overlaps a labelled one by more, it is not learned that there is nothing.
        downsample_ratio: how many times the image is as large as the map.
        gt_score: weights of the boxes ``[N, B]``.
        use_label_smooth: whether targets of classes are a little off 0 and 1.
        scale_x_y: factor of the centers' offsets within their cells, around the middle.

    >>> x, boxes = fluid.data("x", [None, 14, 13, 13]), fluid.data("boxes", [None, 6, 4])
    >>> labels = fluid.data("labels", [None, 6], "int32")
    >>> layers.yolov3_loss(x, boxes, labels, [10, 13, 16, 30, 33, 23], [0, 1], 2, 0.7, 32).shape
    (-1,)
    """
    attrs = {
        "anchors": list(anchors),
        "anchor_mask": list(anchor_mask),
        "class_num": class_num,
        "ignore_thresh": ignore_thresh,
        "downsample_ratio": downsample_ratio,
        "use_label_smooth": use_label_smooth,
        "scale_x_y": scale_x_y,
    }
    inputs = {"X": x, "GTBox": gt_box, "GTLabel": gt_label, "GTScore": gt_score}
    return apply("yolov3_loss", inputs, attrs, name=name)


def yolo_box(
    x: Variable,
    img_size: Variable,
    anchors: Sequence[int],
    class_num: int,
    conf_thresh: float,
    downsample_ratio: int,
    name: str | None = None,
    clip_bbox: bool = True,
    scale_x_y: float = 1.0,
) -> tuple[Variable, Variable]:
    """The boxes ``[N, P, 4]`` in pixels and scores ``[N, P, class_num]`` that a feature map of YOLOv3 predicts.

    Formula: Redmon and Farhadi, YOLOv3: An Incremental Improvement, 2018.

    Args:
        x: as of `yolov3_loss`, ``[N, len(anchors) / 2 * (5 + class_num), H, W]``.
        img_size: height and width of the images, int32 ``[N, 2]``.
        anchors: width and height in pixels of each anchor, all in one list.
        class_num: number of classes.
        conf_thresh: where the confidence is below, boxes and scores are 0.
        downsample_ratio: how many times the image is as large as the map.
        clip_bbox: whether boxes end where the image ends.
        scale_x_y: factor of the centers' offsets within their cells, around the middle.

    >>> x, sizes = fluid.data("x", [None, 14, 13, 13]), fluid.data("sizes", [None, 2], "int32")
    >>> [part.shape for part in layers.yolo_box(x, sizes, [10, 13, 16, 30], 2, 0.01, 32)]
    [(-1, 338, 4), (-1, 338, 2)]
    """
    attrs = {"anchors": list(anchors), "class_num": class_num, "conf_thresh": conf_thresh, "downsample_ratio": downsample_ratio}
    attrs |= {"clip_bbox": clip_bbox, "scale_x_y": scale_x_y}
    boxes, scores = apply_many("yolo_box", {"X": x, "ImgSize": img_size}, attrs, name=name)
    return boxes, scores


# -------------------------------------------------------------------------------------------------------------- measures
def detection_map(
    detect_res: Variable,
    label: Variable,
    class_num: int,
    background_label: int = 0,
    overlap_threshold: float = 0.3,
    evaluate_difficult: bool = True,
    has_state: Variable | None = None,
    input_states: Sequence[Variable] | None = None,
    out_states: Sequence[Variable] | None = None,
    ap_version: str = "integral",
) -> Variable:
    """The mean average precision ``[1]`` of detections; over many batches with states, as `fluid.metrics.DetectionMAP` has them.

    Args:
        detect_res: rows of class, score and box in parts of the image, ``[D, 6]``, a sequence for each image.
        label: rows of class, difficult and box ``[L, 6]``, or without difficult ``[L, 5]``, a sequence for each image.
        class_num: number of classes.
        background_label: the class that does not count.
        overlap_threshold: by how much a detection must overlap a labelled box of its class.
        evaluate_difficult: whether difficult boxes count.
        has_state: int32 ``[1]``: whether `input_states` are read.
        input_states: counts of boxes, and rows of right and of wrong detections, of the batches before.
        out_states: three variables that these are written to, with this batch added.
        ap_version: ``"integral"``, the area below the curve of precision by recall, or ``"11point"``, its mean at 11 recalls.

    >>> found = fluid.dygraph.to_variable([[1.0, 0.9, 0.0, 0.0, 0.5, 0.5], [1.0, 0.8, 0.6, 0.6, 0.9, 0.9]]).with_lod([[0, 2]])
    >>> truth = fluid.dygraph.to_variable([[1.0, 0.6, 0.6, 0.9, 0.9]]).with_lod([[0, 1]])
    >>> layers.detection_map(found, truth, class_num=2)
    Tensor([0.5], shape=[1], dtype=float32)
    """
    before = dict(zip(("PosCount", "TruePos", "FalsePos"), input_states or (), strict=False))
    after = dict(zip(("AccumPosCount", "AccumTruePos", "AccumFalsePos"), out_states or (), strict=False))
    inputs = {"DetectRes": detect_res, "Label": label, "HasState": has_state, **before}
    attrs = {
        "overlap_threshold": overlap_threshold,
        "evaluate_difficult": evaluate_difficult,
        "ap_type": ap_version,
        "class_num": class_num,
        "background_label": background_label,
    }
    return constant(LayerHelper("detection_map").apply("detection_map", inputs, attrs, after)["MAP"])
