"""Kernels of `fluid.ops.yolo`."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from .activation import sigmoid_of
from .boxes import corners, iou
from .manipulation import check_ids, ranges, write_wanted
from .portable import values_in_order
from .table import Slots, checked, kernel


def _by_anchor(X: Any, anchors: int) -> Any:
    """X as [N, A, 5 + C, H, W]."""
    return X.reshape(X.shape[0], anchors, X.shape[1] // anchors, *X.shape[2:])


def _boxes(xp: Any, X: Any, anchors: list[int], attrs: Slots) -> Any:
    """The predicted boxes [N, A, H, W, 4] in parts of the image; X is [N, A, 5 + C, H, W]."""
    number, (height, width) = X.dtype.type, X.shape[3:]
    scale = number(attrs["scale_x_y"])
    extents = xp.asarray([width, height], X.dtype)
    places = xp.stack(xp.meshgrid(xp.arange(width), xp.arange(height)), -1).astype(X.dtype)
    values = xp.moveaxis(X[:, :, :4], 2, -1)
    middle = (places + sigmoid_of(xp, values[..., :2]) * scale - number(0.5) * (scale - 1)) / extents
    size = xp.asarray(anchors, X.dtype).reshape(-1, 1, 1, 2) / (number(attrs["downsample_ratio"]) * extents)
    return corners(xp, middle, xp.exp(values[..., 2:]) * size)


@kernel("yolo_box")
def yolo_box(xp: Any, X: Any, ImgSize: Any, attrs: Slots, Boxes: Any, Scores: Any) -> None:
    count, number = len(attrs["anchors"]) // 2, X.dtype.type
    values = _by_anchor(X[:, count:] if attrs["iou_aware"] else X, count)
    confidence = sigmoid_of(xp, values[:, :, 4])
    if attrs["iou_aware"]:
        share = number(attrs["iou_aware_factor"])
        confidence = confidence ** (1 - share) * sigmoid_of(xp, X[:, :count]) ** share
    seen = confidence >= number(attrs["conf_thresh"])
    if Scores is not None:
        scores = sigmoid_of(xp, values[:, :, 5:]) * xp.where(seen, confidence, 0)[:, :, None]
        xp.copyto(Scores, xp.moveaxis(scores, 2, -1).reshape(Scores.shape))
    if Boxes is not None:
        image = ImgSize[:, ::-1].astype(X.dtype).reshape(-1, 1, 1, 1, 2)
        image = xp.concatenate([image, image], -1)
        boxes = _boxes(xp, values, attrs["anchors"], attrs) * image
        if attrs["clip_bbox"]:
            boxes[..., :2] = xp.maximum(boxes[..., :2], 0)
            boxes[..., 2:] = xp.minimum(boxes[..., 2:], image[..., 2:] - 1)
        xp.copyto(Boxes, xp.where(seen[..., None], boxes, 0).reshape(Boxes.shape))


# ------------------------------------------------------------------------------------------------------------------ loss
SMALLEST = 1e-6
"""Labelled boxes that are not larger are none."""


def _is_box(GTBox: Any) -> Any:
    return (GTBox[..., 2:] > GTBox.dtype.type(SMALLEST)).all(-1)


def _matches(xp: Any, GTBox: Any, side: int, anchors: list[int], anchor_mask: list[int]) -> Any:
    """For each labelled box [N, B] the place in `anchor_mask` of the anchor most like it; -1 if it is not there."""
    sizes = xp.asarray(anchors, GTBox.dtype).reshape(-1, 2) / GTBox.dtype.type(side)
    box_sizes = GTBox[..., None, 2:]
    shared = xp.minimum(box_sizes, sizes).prod(-1)
    best = (shared / xp.maximum(box_sizes.prod(-1) + sizes.prod(-1) - shared, 1e-20)).argmax(-1)
    positions = np.full(len(anchors) // 2, -1)
    for position, anchor in reversed([*enumerate(anchor_mask)]):
        positions[anchor] = position
    return xp.where(_is_box(GTBox), xp.asarray(positions)[best], -1)


class _Terms(NamedTuple):
    """The loss terms of N * B labelled boxes: the places of their elements in X [N, A, 5 + C, H, W], these elements, the weights
    of their cross entropies, the targets times these weights, and the weights of the absolute errors of width and height."""

    place: tuple[Any, ...]
    x: Any
    weight: Any
    target: Any
    differences: Any
    difference_weight: Any


def _terms(xp: Any, X: Any, GTBox: Any, GTLabel: Any, GTScore: Any, matches: Any, attrs: Slots) -> _Terms:
    """`X` is [N, A, 5 + C, H, W]; boxes that nothing matches have weights of 0."""
    number, classes, extent = X.dtype.type, X.shape[2] - 5, X.shape[3]
    images, count = matches.shape
    is_labelled, match = (matches >= 0).reshape(-1), xp.maximum(matches, 0).reshape(-1)
    box = GTBox.reshape(-1, 4)
    score = xp.where(is_labelled, number(1) if GTScore is None else GTScore.reshape(-1), 0)
    at = box[:, :2] * number(extent)
    cell = xp.clip(at.astype("int64"), 0, extent - 1)
    place = (xp.repeat(xp.arange(images), count), match, slice(None), cell[:, 1], cell[:, 0])
    x = X[place]
    anchors = xp.asarray(attrs["anchors"], X.dtype).reshape(-1, 2)[xp.asarray(attrs["anchor_mask"])][match]
    size = xp.where(is_labelled[:, None], box[:, 2:] * number(attrs["downsample_ratio"] * extent), anchors)
    location = (number(2) - box[:, 2:].prod(1)) * score
    smooth = number(min(1 / classes, 1 / 40) if attrs["use_label_smooth"] else 0)
    labels = xp.where(GTLabel.reshape(-1, 1) == xp.arange(classes), 1 - smooth, smooth)
    weight, wanted = xp.zeros_like(x), xp.zeros_like(x)
    weight[:, :2], weight[:, 5:] = location[:, None], score[:, None]
    wanted[:, :2], wanted[:, 5:] = at - cell, labels
    return _Terms(place, x, weight, weight * wanted, x[:, 2:4] - xp.log(size / anchors), location[:, None])


def _confidence(xp: Any, objectness: Any) -> tuple[Any, Any]:
    """The weights of the cross entropies of confidences, and the targets times these weights."""
    target = xp.maximum(objectness, 0)
    return xp.where(objectness == 0, 1, target).astype(objectness.dtype), target


def _objectness(xp: Any, X: Any, GTBox: Any, GTScore: Any, matches: Any, place: tuple[Any, ...], attrs: Slots) -> Any:
    """The score of the labelled box that is at a place [N, A, H, W], -1 where a prediction overlaps one enough to be ignored, 0
    elsewhere. `X` is [N, A, 5 + C, H, W]."""
    images, anchors, _, height, width = X.shape
    layer_anchors = [number for anchor in attrs["anchor_mask"] for number in attrs["anchors"][2 * anchor : 2 * anchor + 2]]
    predicted = _boxes(xp, X, layer_anchors, attrs).reshape(images, anchors * height * width, 1, 4)
    labelled, is_box = corners(xp, GTBox[..., :2], GTBox[..., 2:]), _is_box(GTBox)
    mask = xp.zeros((images, anchors * height * width + 1), X.dtype)  # the last element takes boxes without a place
    for part in ranges(xp, images, predicted.shape[1] * GTBox.shape[1]) if GTBox.size else ():
        of_part = slice(*part)
        overlap = xp.where(is_box[of_part, None], iou(xp, predicted[of_part], labelled[of_part, None]), 0).max(-1)
        mask[of_part, :-1] = xp.where(overlap > X.dtype.type(attrs["ignore_thresh"]), -1, 0)
    image, anchor, _, row, column = place
    flat = xp.where(matches.reshape(-1) >= 0, (anchor * height + row) * width + column, mask.shape[1] - 1)
    scores = xp.ones(1, X.dtype) if GTScore is None else GTScore.reshape(-1)
    mask[image, flat] = values_in_order(xp, mask, (image, flat), scores)
    return mask[:, :-1].reshape(images, anchors, height, width)


def _softplus(xp: Any, x: Any) -> Any:
    return xp.maximum(x, 0) + xp.log1p(xp.exp(-xp.abs(x)))


@checked("yolov3_loss")
def check_yolov3_loss(GTLabel: Any, class_num: int) -> None:
    check_ids(GTLabel, class_num, "yolov3_loss: GTLabel")


@kernel("yolov3_loss")
def yolov3_loss(
    xp: Any,
    X: Any,
    GTBox: Any,
    GTLabel: Any,
    GTScore: Any,
    attrs: Slots,
    Loss: Any,
    ObjectnessMask: Any,
    GTMatchMask: Any,
) -> None:
    values = _by_anchor(X, len(attrs["anchor_mask"]))
    side = attrs["downsample_ratio"] * X.shape[2]
    matches = _matches(xp, GTBox, side, attrs["anchors"], attrs["anchor_mask"])
    terms = _terms(xp, values, GTBox, GTLabel, GTScore, matches, attrs)
    objectness = _objectness(xp, values, GTBox, GTScore, matches, terms.place, attrs)
    write_wanted((ObjectnessMask, objectness), (GTMatchMask, matches))
    if Loss is None:
        return
    entropies = (terms.weight * _softplus(xp, terms.x) - terms.target * terms.x).sum(1)
    differences = (xp.abs(terms.differences) * terms.difference_weight).sum(1)
    weight, target = _confidence(xp, objectness)
    confidence = values[:, :, 4]
    seen = weight * _softplus(xp, confidence) - target * confidence
    xp.copyto(Loss, (entropies + differences).reshape(matches.shape).sum(1) + seen.sum((1, 2, 3)))


def _slopes(xp: Any, terms: _Terms) -> Any:
    """Slopes of the absolute differences."""
    return xp.where(terms.differences > 0, terms.difference_weight, -terms.difference_weight)


@kernel("yolov3_loss_grad")
def yolov3_loss_grad(
    xp: Any,
    X: Any,
    GTBox: Any,
    GTLabel: Any,
    GTScore: Any,
    ObjectnessMask: Any,
    GTMatchMask: Any,
    dLoss: Any,
    attrs: Slots,
    dX: Any,
) -> None:
    anchors = len(attrs["anchor_mask"])
    values, out = _by_anchor(X, anchors), _by_anchor(dX, anchors)
    terms = _terms(xp, values, GTBox, GTLabel, GTScore, GTMatchMask, attrs)
    out.fill(0)
    weight, target = _confidence(xp, ObjectnessMask)
    out[:, :, 4] = (weight * sigmoid_of(xp, values[:, :, 4]) - target) * dLoss.reshape(-1, 1, 1, 1)
    slope = terms.weight * sigmoid_of(xp, terms.x) - terms.target
    slope[:, 2:4] += _slopes(xp, terms)
    xp.add.at(out, terms.place, slope * dLoss[terms.place[0]][:, None])


@kernel("yolo_terms")
def yolo_terms(
    xp: Any,
    X: Any,
    GTBox: Any,
    GTLabel: Any,
    GTScore: Any,
    ObjectnessMask: Any,
    GTMatchMask: Any,
    attrs: Slots,
    Weight: Any,
    Target: Any,
) -> None:
    anchors = len(attrs["anchor_mask"])
    terms = _terms(xp, _by_anchor(X, anchors), GTBox, GTLabel, GTScore, GTMatchMask, attrs)
    terms.target[:, 2:4] -= _slopes(xp, terms)
    of_boxes, of_confidence = (terms.weight, terms.target), _confidence(xp, ObjectnessMask)
    for out, box_values, confidence in zip((Weight, Target), of_boxes, of_confidence, strict=True):
        if out is not None:
            out.fill(0)
            view = _by_anchor(out, anchors)
            view[:, :, 4] = confidence
            xp.add.at(view, terms.place, box_values)
