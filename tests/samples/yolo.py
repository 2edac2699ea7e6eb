"""Samples of `fluid.ops.yolo`, stated box by box."""

from __future__ import annotations

from math import exp, log
from typing import Any

import numpy as np

from .base import Data, Sample, add
from .detection import around, overlap

data = Data("yolo")


def sigmoid(x: Any) -> Any:
    return 1 / (1 + np.exp(-x))


def predicted(x: Any, i: int, j: int, anchor: Any, shape: Any, ratio: int, stretch: float) -> list[float]:
    """The box of numbers `x` at row i and column j."""
    height, width = shape
    center = [(place + sigmoid(number) * stretch - (stretch - 1) / 2) / extent
              for place, number, extent in ((j, x[0], width), (i, x[1], height))]  # fmt: skip
    return around(*center, exp(x[2]) * anchor[0] / (ratio * width), exp(x[3]) * anchor[1] / (ratio * height))


def yolo_boxes(
    X: Any,
    ImgSize: Any,
    anchors: Any,
    class_num: int,
    conf_thresh: float = 0.01,
    downsample_ratio: int = 32,
    clip_bbox: bool = True,
    scale_x_y: float = 1.0,
    iou_aware: bool = False,
    iou_aware_factor: float = 0.5,
) -> Any:
    pairs = [anchors[k : k + 2] for k in range(0, len(anchors), 2)]
    images, _, height, width = X.shape
    values = X[:, len(pairs) * iou_aware :].reshape(images, len(pairs), 5 + class_num, height, width)
    boxes = np.zeros((images, len(pairs), height, width, 4))
    scores = np.zeros((images, len(pairs), height, width, class_num))
    for n, a, i, j in np.ndindex(boxes.shape[:4]):
        x, (high, wide) = values[n, a, :, i, j], ImgSize[n]
        confidence = sigmoid(x[4])
        if iou_aware:
            confidence = confidence ** (1 - iou_aware_factor) * sigmoid(X[n, a, i, j]) ** iou_aware_factor
        if confidence >= conf_thresh:
            box = np.array(predicted(x, i, j, pairs[a], (height, width), downsample_ratio, scale_x_y)) * [wide, high, wide, high]
            if clip_bbox:
                box = np.append(np.maximum(box[:2], 0), np.minimum(box[2:], [wide - 1, high - 1]))
            boxes[n, a, i, j], scores[n, a, i, j] = box, confidence * sigmoid(x[5:])
    return {
        "Boxes": boxes.reshape(images, -1, 4).astype(X.dtype),
        "Scores": scores.reshape(images, -1, class_num).astype(X.dtype),
    }


IMAGES = np.array([[20, 30], [25, 17]], "int32")
YOLO = {"anchors": [10, 13, 16, 30], "class_num": 2, "conf_thresh": 0.3, "downsample_ratio": 8}
add(
    "yolo_box",
    Sample({"X": data(2, 14, 2, 3, low=-2, high=2), "ImgSize": IMAGES}, YOLO, yolo_boxes),
    Sample({"X": data(2, 16, 2, 3, low=-2, high=2), "ImgSize": IMAGES},
           {**YOLO, "clip_bbox": False, "scale_x_y": 1.3, "iou_aware": True, "iou_aware_factor": 0.4}, yolo_boxes),
)  # fmt: skip


def entropy(x: Any, label: Any) -> Any:
    return -label * np.log(sigmoid(x)) - (1 - label) * np.log(1 - sigmoid(x))


def yolo_loss(
    X: Any,
    GTBox: Any,
    GTLabel: Any,
    GTScore: Any = None,
    *,
    anchors: Any,
    anchor_mask: Any,
    class_num: int,
    ignore_thresh: float = 0.7,
    downsample_ratio: int = 32,
    use_label_smooth: bool = True,
    scale_x_y: float = 1.0,
) -> Any:
    pairs = [anchors[k : k + 2] for k in range(0, len(anchors), 2)]
    images, _, side, _ = X.shape
    values = X.reshape(images, len(anchor_mask), 5 + class_num, side, side)
    loss, objectness = np.zeros(images, X.dtype), np.zeros((images, len(anchor_mask), side, side), X.dtype)
    matches = np.full(GTLabel.shape, -1, "int32")
    scores = np.ones(GTLabel.shape) if GTScore is None else GTScore
    smooth = min(1 / class_num, 1 / 40) * use_label_smooth
    for n, a, i, j in np.ndindex(objectness.shape):
        box = predicted(values[n, a, :, i, j], i, j, pairs[anchor_mask[a]], (side, side), downsample_ratio, scale_x_y)
        if any(overlap(box, around(*other)) > ignore_thresh for other in GTBox[n] if min(other[2:]) > 0):
            objectness[n, a, i, j] = -1
    for n, b in np.ndindex(matches.shape):
        x, y, width, height = GTBox[n, b]
        alike = [
            overlap(around(0, 0, width, height), around(0, 0, *np.array(pair) / (downsample_ratio * side))) for pair in pairs
        ]
        chosen = int(np.argmax(alike))
        if min(width, height) <= 0 or chosen not in anchor_mask:
            continue
        matches[n, b] = a = anchor_mask.index(chosen)
        i, j = int(y * side), int(x * side)
        own, score = values[n, a, :, i, j], scores[n, b]
        objectness[n, a, i, j] = score
        factor = (2 - width * height) * score
        loss[n] += factor * (entropy(own[0], x * side - j) + entropy(own[1], y * side - i))
        for number, extent, size in ((own[2], width, pairs[chosen][0]), (own[3], height, pairs[chosen][1])):
            loss[n] += factor * abs(number - log(extent * downsample_ratio * side / size))
        label = np.where(np.arange(class_num) == GTLabel[n, b], 1 - smooth, smooth)
        loss[n] += score * entropy(own[5:], label).sum()
    seen = np.where(
        objectness > 0, objectness * entropy(values[:, :, 4], 1), np.where(objectness == 0, entropy(values[:, :, 4], 0), 0)
    )
    return {"Loss": loss + seen.sum((1, 2, 3)), "ObjectnessMask": objectness, "GTMatchMask": matches}


def terms_of(X: Any, ObjectnessMask: Any, GTMatchMask: Any, GTBox: Any, GTLabel: Any, GTScore: Any = None, **attrs: Any) -> Any:
    """Weight and target determine the loss: its differences by X, at two places with the same matches."""
    side, pairs = X.shape[2], [attrs["anchors"][k : k + 2] for k in range(0, len(attrs["anchors"]), 2)]
    shape = (len(X), len(attrs["anchor_mask"]), 5 + attrs["class_num"], side, side)
    values, weight, target = X.reshape(shape), np.zeros(shape, X.dtype), np.zeros(shape, X.dtype)
    weight[:, :, 4] = np.where(ObjectnessMask > 0, ObjectnessMask, ObjectnessMask == 0)
    target[:, :, 4] = np.maximum(ObjectnessMask, 0)
    smooth = min(1 / attrs["class_num"], 1 / 40) * attrs.get("use_label_smooth", True)
    for n, b in zip(*(GTMatchMask >= 0).nonzero(), strict=True):
        (x, y, width, height), score = GTBox[n, b], 1 if GTScore is None else GTScore[n, b]
        i, j, a = int(y * side), int(x * side), GTMatchMask[n, b]
        factor, pair = (2 - width * height) * score, pairs[attrs["anchor_mask"][a]]
        sizes = [
            log(extent * attrs["downsample_ratio"] * side / size) for extent, size in zip((width, height), pair, strict=True)
        ]
        label = np.where(np.arange(attrs["class_num"]) == GTLabel[n, b], 1 - smooth, smooth)
        weight[n, a, :, i, j] += [factor, factor, 0, 0, 0, *[score] * len(label)]
        slopes = -np.sign(values[n, a, 2:4, i, j] - sizes)
        target[n, a, :, i, j] += [factor * (x * side - j), factor * (y * side - i), *factor * slopes, 0, *score * label]
    return {"Weight": weight.reshape(X.shape), "Target": target.reshape(X.shape)}


TRUE = np.concatenate([data(2, 4, 2, low=0.05, high=0.95), data(2, 4, 2, low=0.1, high=0.7)], -1)
TRUE[:, 3] = TRUE[:, 2]  # two in one place
TRUE[0, 1] = 0
LABELLED = {"X": data(2, 14, 3, 3, low=-1.5, high=1.5), "GTBox": TRUE, "GTLabel": data.ints(2, 4, high=2, dtype="int32")}
WEIGHTS = data(2, 4, low=0.2, high=1.0)
LOSS = {"anchors": [4, 5, 9, 6, 14, 15], "anchor_mask": [1, 2], "class_num": 2, "ignore_thresh": 0.4, "downsample_ratio": 8}
for more, scored in (({}, {}), ({"use_label_smooth": False, "scale_x_y": 1.2}, {"GTScore": WEIGHTS})):
    add("yolov3_loss", Sample({**LABELLED, **scored}, {**LOSS, **more}, yolo_loss, tolerance=3))
    masks = yolo_loss(**LABELLED, **scored, **{**LOSS, **more})
    del masks["Loss"]
    add("yolo_terms", Sample({**LABELLED, **scored, **masks}, {**LOSS, **more}, terms_of))
