"""Samples of `fluid.ops.detection`, stated box by box."""

from __future__ import annotations

from itertools import product
from math import exp, floor, log, sqrt
from typing import Any

import numpy as np

from .base import Data, Sample, add

data = Data("detection")


def boxes(*shape: int, size: float = 1.0) -> Any:
    """Boxes within `size`."""
    first, extent = data(*shape, 2, low=0.0, high=0.7), data(*shape, 2, low=0.05, high=0.5)
    return size * np.concatenate([first, first + extent], -1)


def around(x: float, y: float, width: float, height: float) -> list[float]:
    return [x - width / 2, y - height / 2, x + width / 2, y + height / 2]


def overlap(one: Any, other: Any, edge: float = 0.0) -> float:
    shared = max(min(one[2], other[2]) - max(one[0], other[0]) + edge, 0) * max(
        min(one[3], other[3]) - max(one[1], other[1]) + edge, 0
    )
    areas = [(box[2] - box[0] + edge) * (box[3] - box[1] + edge) for box in (one, other)]
    return shared / (sum(areas) - shared)


# ------------------------------------------------------------------------------------------------------ priors, anchors
VARIANCES = [0.1, 0.2, 0.3, 0.4]


def with_variances(boxes: Any, dtype: Any) -> dict[str, Any]:
    boxes = np.array(boxes, dtype)
    return {"Boxes": boxes, "Variances": np.broadcast_to(np.array(VARIANCES, dtype), boxes.shape)}


def prior(
    Input: Any,
    Image: Any,
    min_sizes: Any,
    aspect_ratios: Any = (),
    max_sizes: Any = (),
    flip: bool = True,
    clip: bool = True,
    step_w: float = 0.0,
    step_h: float = 0.0,
    offset: float = 0.5,
    min_max_aspect_ratios_order: bool = False,
    **_: Any,
) -> Any:
    (height, width), (high, wide) = Input.shape[2:], Image.shape[2:]
    others = [item for ratio in aspect_ratios if ratio != 1 for item in ([ratio, 1 / ratio] if flip else [ratio])]
    rows = []
    for i, j in product(range(height), range(width)):
        x, y = (j + offset) * (step_w or wide / width), (i + offset) * (step_h or high / height)
        for number, size in enumerate(min_sizes):
            square = [around(x, y, size, size)]
            mean = [around(x, y, sqrt(size * most), sqrt(size * most)) for most in max_sizes[number : number + 1]]
            rest = [around(x, y, size * sqrt(ratio), size / sqrt(ratio)) for ratio in others]
            rows += square + mean + rest if min_max_aspect_ratios_order else square + rest + mean
    priors = np.array(rows).reshape(height, width, -1, 4) / [wide, high, wide, high]
    return with_variances(np.clip(priors, 0, 1) if clip else priors, Input.dtype)


def dense(
    Input: Any,
    Image: Any,
    densities: Any,
    fixed_sizes: Any,
    fixed_ratios: Any,
    step_w: float = 0.0,
    step_h: float = 0.0,
    offset: float = 0.5,
    flatten_to_2d: bool = False,
    **_: Any,
) -> Any:
    (height, width), (high, wide) = Input.shape[2:], Image.shape[2:]
    across, down = step_w or wide / width, step_h or high / height
    average = int((across + down) / 2)
    rows = []
    for i, j in product(range(height), range(width)):
        for density, size in zip(densities, fixed_sizes, strict=True):
            shift = average // density
            for ratio, m, n in product(fixed_ratios, range(density), range(density)):
                x, y = (
                    (place + offset) * step - average / 2 + (k + 0.5) * shift for place, step, k in ((j, across, n), (i, down, m))
                )
                rows.append(around(x, y, size * sqrt(ratio), size / sqrt(ratio)))
    priors = np.clip(np.array(rows) / [wide, high, wide, high], 0, 1)
    return with_variances(priors if flatten_to_2d else priors.reshape(height, width, -1, 4), Input.dtype)


def anchors(Input: Any, anchor_sizes: Any, aspect_ratios: Any, stride: Any, offset: float = 0.5, **_: Any) -> Any:
    height, width = Input.shape[2:]
    rows = []
    for i, j, ratio, size in product(range(height), range(width), aspect_ratios, anchor_sizes):
        wide = floor(sqrt(stride[0] * stride[1] / ratio) + 0.5)
        high = floor(wide * ratio + 0.5)
        x, y = (place * step + offset * (step - 1) for place, step in ((j, stride[0]), (i, stride[1])))
        rows.append(around(x, y, size / stride[0] * wide - 1, size / stride[1] * high - 1))
    priors = with_variances(np.array(rows).reshape(height, width, -1, 4), Input.dtype)
    return {"Anchors": priors["Boxes"], "Variances": priors["Variances"]}


FEATURES = {"Input": data(1, 2, 2, 3), "Image": data(1, 3, 20, 24)}
PRIOR = {"min_sizes": [4.0, 7.0], "aspect_ratios": [1.0, 2.0, 3.0], "variances": VARIANCES}
DENSE = {"densities": [2, 1], "fixed_sizes": [5.0, 9.0], "fixed_ratios": [1.0, 2.0], "variances": VARIANCES}
for more in ({"max_sizes": [6.0, 9.0]}, {"flip": False, "clip": False, "step_w": 7.0, "step_h": 9.0, "offset": 0.25},
             {"max_sizes": [6.0, 9.0], "min_max_aspect_ratios_order": True}):  # fmt: skip
    add("prior_box", Sample(FEATURES, {**PRIOR, **more}, prior))
add("density_prior_box", Sample(FEATURES, DENSE, dense))
add("density_prior_box", Sample(FEATURES, {**DENSE, "step_w": 7.0, "step_h": 8.0, "flatten_to_2d": True}, dense))
SIZES = {"anchor_sizes": [8.0, 15.0], "aspect_ratios": [0.5, 1.0], "stride": [4.0, 5.0], "variances": VARIANCES}
add("anchor_generator", Sample({"Input": FEATURES["Input"]}, SIZES, anchors))


# ------------------------------------------------------------------------------------------------------ boxes as numbers
def middle(box: Any, edge: float) -> tuple[float, float, float, float]:
    width, height = box[2] - box[0] + edge, box[3] - box[1] + edge
    return box[0] + width / 2, box[1] + height / 2, width, height


def decoded(deltas: Any, anchor: Any, edge: float) -> list[float]:
    x, y, width, height = middle(anchor, edge)
    left, top, right, bottom = around(
        x + deltas[0] * width, y + deltas[1] * height, exp(deltas[2]) * width, exp(deltas[3]) * height
    )
    return [left, top, right - edge, bottom - edge]


def coder(
    PriorBox: Any,
    TargetBox: Any,
    PriorBoxVar: Any = None,
    code_type: str = "encode_center_size",
    box_normalized: bool = True,
    axis: int = 0,
    variance: Any = (),
) -> Any:
    edge, factors = float(not box_normalized), np.ones_like(PriorBox) * (variance or 1.0) if PriorBoxVar is None else PriorBoxVar
    if code_type == "decode_center_size":
        out = np.zeros_like(TargetBox)
        for i, j in product(*map(range, out.shape[:2])):
            own = j if axis == 0 else i
            out[i, j] = decoded(TargetBox[i, j] * factors[own], PriorBox[own], edge)
        return out
    out = np.zeros((len(TargetBox), len(PriorBox), 4), TargetBox.dtype)
    for (i, box), (j, own) in product(enumerate(TargetBox), enumerate(PriorBox)):
        x, y, width, height = middle(own, edge)
        numbers = [((box[0] + box[2]) / 2 - x) / width, ((box[1] + box[3]) / 2 - y) / height,
                   log((box[2] - box[0] + edge) / width), log((box[3] - box[1] + edge) / height)]  # fmt: skip
        out[i, j] = np.array(numbers) / factors[j]
    return out


FACTORS = data(3, 4, low=0.1, high=1.0)
DECODE: dict[str, Any] = {"code_type": "decode_center_size"}
PIXELS = {"PriorBox": boxes(3, size=9), "TargetBox": data(3, 2, 4)}
for arrays, attrs, lods in (
    ({"PriorBox": boxes(3), "PriorBoxVar": FACTORS, "TargetBox": boxes(4)}, {}, {"TargetBox": ((0, 1, 4),)}),
    ({**PIXELS, "TargetBox": boxes(2, size=9)}, {"box_normalized": False, "variance": VARIANCES}, {}),
    ({"PriorBox": boxes(3), "PriorBoxVar": FACTORS, "TargetBox": data(2, 3, 4)}, DECODE, {}),
    (PIXELS, {**DECODE, "axis": 1, "box_normalized": False, "variance": VARIANCES}, {}),
    ({**PIXELS, "PriorBoxVar": FACTORS}, {**DECODE, "axis": 1}, {}),
):
    add("box_coder", Sample(arrays, attrs, coder, lods=lods))


def clipped(Input: Any, ImInfo: Any) -> Any:
    out = Input.copy()
    for rows, (height, width, scale) in zip(([0], [1, 2]) if Input.ndim == 2 else ([0], [1]), ImInfo, strict=True):
        high, wide = floor(height / scale + 0.5) - 1, floor(width / scale + 0.5) - 1
        out[rows] = np.clip(Input[rows], 0, [wide, high, wide, high])
    return out


INFO = np.array([[16.0, 21.0, 2.0], [7.6, 11.0, 1.0]])
add("box_clip", Sample({"Input": data(3, 4, low=-5, high=20), "ImInfo": INFO}, {}, clipped, lods={"Input": ((0, 1, 3),)}))
add("box_clip", Sample({"Input": data(2, 3, 4, low=-5, high=20), "ImInfo": INFO}, {}, clipped))


def similar(X: Any, Y: Any, box_normalized: bool = True) -> Any:
    return np.array([[overlap(x, y, float(not box_normalized)) for y in Y] for x in X], X.dtype)


add("iou_similarity", Sample({"X": boxes(4), "Y": boxes(3)}, {}, similar, lods={"X": ((0, 1, 4),)}))
add("iou_similarity", Sample({"X": boxes(2, size=9), "Y": boxes(3, size=9)}, {"box_normalized": False}, similar))


def assigned(PriorBox: Any, TargetBox: Any, BoxScore: Any, PriorBoxVar: Any = 1.0, box_clip: float = 4.135) -> Any:
    numbers = TargetBox.reshape(len(TargetBox), -1, 4) * PriorBoxVar
    numbers[..., 2:] = np.minimum(numbers[..., 2:], box_clip)
    out = np.array(
        [[decoded(each, own, 1.0) for each in row] for row, own in zip(numbers, PriorBox, strict=True)], TargetBox.dtype
    )
    best = [row[1 + np.argmax(score[1:])] for row, score in zip(out, BoxScore, strict=True)]
    return {"DecodeBox": out.reshape(TargetBox.shape), "OutputAssignBox": np.array(best)}


SCORED = {"PriorBox": boxes(3, size=9), "TargetBox": data(3, 8, high=3.0), "BoxScore": data(3, 2)}
add("box_decoder_and_assign", Sample({**SCORED, "PriorBoxVar": np.array(VARIANCES)}, {"box_clip": 0.5}, assigned))
add("box_decoder_and_assign", Sample({**SCORED, "TargetBox": data(3, 12), "BoxScore": data(3, 3)}, {}, assigned))


def transformed(Input: Any) -> Any:
    down, across = np.mgrid[: Input.shape[2], : Input.shape[3]]
    return np.where((np.arange(Input.shape[1]) % 2)[:, None, None], 4 * down, 4 * across).astype(Input.dtype) - Input


add("polygon_box_transform", Sample({"Input": data(2, 4, 2, 3)}, {}, transformed))


# -------------------------------------------------------------------------------------------------------------- matching
SPANS = [(0, 2), (2, 2), (2, 5)]
LOD = ((0, 2, 2, 5),)


def matched(DistMat: Any, match_type: str = "bipartite", dist_threshold: float = 0.5) -> Any:
    spans = SPANS if len(DistMat) == 5 else [(0, len(DistMat))]
    index = np.full((len(spans), DistMat.shape[1]), -1, "int32")
    value = np.zeros(index.shape, DistMat.dtype)
    for image, (start, end) in enumerate(spans):
        rows = DistMat[start:end]
        pairs = sorted(((-rows[i, j], i, j) for i, j in np.ndindex(rows.shape) if rows[i, j] > 0), key=lambda pair: pair[0])
        for distance, i, j in pairs:
            if index[image, j] < 0 and i not in index[image]:
                index[image, j], value[image, j] = i, -distance
        for distance, i, j in pairs if match_type == "per_prediction" else ():
            if index[image, j] < 0 and -distance >= dist_threshold:
                index[image, j], value[image, j] = i, -distance
    return {"ColToRowMatchIndices": index, "ColToRowMatchDist": value}


DISTANCES = data.distinct(5, 4, step=0.04) + 0.35
add("bipartite_match", Sample({"DistMat": DISTANCES}, {}, matched, lods={"DistMat": LOD}))
PER_PREDICTION = {"match_type": "per_prediction", "dist_threshold": 0.3}
add("bipartite_match", Sample({"DistMat": DISTANCES}, PER_PREDICTION, matched, lods={"DistMat": LOD}))
add("bipartite_match", Sample({"DistMat": DISTANCES[:3]}, {}, matched))


def targets(X: Any, MatchIndices: Any, NegIndices: Any = None, mismatch_value: int = 0) -> Any:
    images, priors = MatchIndices.shape
    out, weight = np.full((images, priors, X.shape[2]), mismatch_value, X.dtype), np.zeros((images, priors, 1), "float32")
    for image, prior in np.ndindex(MatchIndices.shape):
        if MatchIndices[image, prior] >= 0:
            out[image, prior] = X[SPANS[image][0] + MatchIndices[image, prior], prior % X.shape[1]]
            weight[image, prior] = 1
    for number, image in enumerate([0, 2, 2] if NegIndices is not None else []):
        weight[image, NegIndices[number, 0]] = 1
    return {"Out": out, "OutWeight": weight}


MATCHES = np.array([[0, -1, 1, -1], [-1, -1, -1, -1], [-1, 2, -1, 0]], "int32")
NEGATIVE = np.array([[1], [0], [2]], "int32")
add("target_assign", Sample({"X": data(5, 4, 2), "MatchIndices": MATCHES}, {}, targets, lods={"X": LOD}))
LABELS = data.ints(5, 1, 1, dtype="int32")
add("target_assign", Sample({"X": LABELS, "MatchIndices": MATCHES, "NegIndices": NEGATIVE}, {"mismatch_value": 3}, targets,
                            lods={"X": LOD, "NegIndices": ((0, 1, 1, 3),)}))  # fmt: skip


def mined(
    ClsLoss: Any,
    MatchIndices: Any,
    MatchDist: Any,
    LocLoss: Any = 0.0,
    neg_pos_ratio: float = 1.0,
    neg_dist_threshold: float = 0.5,
    sample_size: int = 0,
    mining_type: str = "max_negative",
) -> Any:
    negatives, updated = [], MatchIndices.copy()
    hard = mining_type == "hard_example"
    for image, matches in enumerate(MatchIndices):
        loss = (ClsLoss + LocLoss)[image]
        allowed = [m for m in range(len(matches)) if hard or (matches[m] < 0 and MatchDist[image, m] < neg_dist_threshold)]
        count = sample_size if hard else int((matches >= 0).sum() * neg_pos_ratio)
        chosen = sorted(sorted(allowed, key=lambda m: -loss[m])[:count])
        negatives += [m for m in chosen if matches[m] < 0]
        if hard:
            updated[image] = [match if m in chosen else -1 for m, match in enumerate(matches)]
    return {"NegIndices": np.array(negatives, "int32").reshape(-1, 1), "UpdatedMatchIndices": updated}


LOSSES = {"ClsLoss": data.distinct(3, 4), "MatchIndices": MATCHES, "MatchDist": data(3, 4, low=0.0)}
add("mine_hard_examples", Sample(LOSSES, {"neg_pos_ratio": 1.5, "neg_dist_threshold": 0.9}, mined, shapes_by_value=True))
add("mine_hard_examples", Sample({**LOSSES, "LocLoss": data(3, 4)}, {"mining_type": "hard_example", "sample_size": 2}, mined,
                                 shapes_by_value=True))  # fmt: skip


# ---------------------------------------------------------------------------------------------------------------- losses
def focal_parts(X: Any, Label: Any, FgNum: Any, alpha: float = 0.25) -> Any:
    right = Label.reshape(-1, 1) == np.arange(1, X.shape[1] + 1)
    count = max(int(FgNum.reshape(-1)[0]), 1)
    wrong = ~right & (Label.reshape(-1, 1) >= 0)
    return {"Right": (right * alpha / count).astype(X.dtype), "Wrong": (wrong * (1 - alpha) / count).astype(X.dtype)}


def focal(X: Any, Label: Any, FgNum: Any, gamma: float = 2.0, alpha: float = 0.25) -> Any:
    p, parts = 1 / (1 + np.exp(-X)), focal_parts(X, Label, FgNum, alpha)
    return -(parts["Right"] * (1 - p) ** gamma * np.log(p) + parts["Wrong"] * p**gamma * np.log(1 - p))


FOCAL = {"X": data(5, 3, low=-3, high=3), "Label": np.array([[2], [0], [-1], [3], [1]], "int32"), "FgNum": np.array([3], "int32")}
add("sigmoid_focal_loss", Sample(FOCAL, {}, focal, tolerance=3), Sample(FOCAL, {"gamma": 1.5, "alpha": 0.6}, focal, tolerance=3))
add("focal_weights", Sample(FOCAL, {"alpha": 0.4}, focal_parts))


# -------------------------------------------------------------------------------------------------------------- measures
def precision(
    DetectRes: Any,
    Label: Any,
    class_num: int,
    HasState: Any = None,
    PosCount: Any = None,
    TruePos: Any = None,
    FalsePos: Any = None,
    background_label: int = 0,
    overlap_threshold: float = 0.5,
    evaluate_difficult: bool = True,
    ap_type: str = "integral",
) -> Any:
    counts = np.zeros((class_num, 1), "int32") if HasState is None else PosCount.copy()
    judged: list[list[tuple[float, int]]] = [[] for _ in range(class_num)]
    if HasState is not None:
        judged[1] = [(float(score), int(right)) for score, right in TruePos]
    for rows_of_image, truth in ((slice(0, 3), slice(0, 2)), (slice(3, 9), slice(2, 5))):
        there, taken = list(Label[truth]), set()
        for row in there:
            counts[int(row[0])] += evaluate_difficult or not (len(row) == 6 and row[1])
        labels = {row[0] for row in there}  # detections of others stay in order
        for row in sorted(DetectRes[rows_of_image], key=lambda row: (row[0], -row[1] * (row[0] in labels))):
            own = [(overlap(np.clip(row[2:], 0, 1), other[-4:]), -k) for k, other in enumerate(there) if other[0] == row[0]]
            most, place = max(own, default=(0.0, 0))
            if most <= overlap_threshold:
                judged[int(row[0])].append((row[1], 0))
            elif evaluate_difficult or not (len(there[-place]) == 6 and there[-place][1]):
                judged[int(row[0])].append((row[1], int(place not in taken)))
                taken.add(place)
    means = []
    for label in range(class_num):
        if counts[label] and label != background_label:
            right = np.array([hit for _, hit in sorted(judged[label], key=lambda pair: -pair[0])])
            sharp, recall = right.cumsum() / np.arange(1, len(right) + 1), right.cumsum() / counts[label]
            if ap_type == "11point":
                means.append(sum(sharp[recall >= step / 10].max(initial=0) for step in range(11)) / 11)
            else:
                means.append(sum(value for value, hit in zip(sharp, right, strict=True) if hit) / int(counts[label, 0]))
    rows = np.array([pair for label in judged for pair in label], "float32").reshape(-1, 2)
    return {"AccumPosCount": counts, "AccumTruePos": rows, "AccumFalsePos": np.stack([rows[:, 0], 1 - rows[:, 1]], 1),
            "MAP": np.array([np.mean(means)], "float32")}  # fmt: skip


TRUTH = np.concatenate([[[1], [2], [1], [1], [2]], [[0], [0], [1], [0], [0]], boxes(5)], 1)
FOUND = np.concatenate([[[1], [1], [2], [1], [1], [1], [1], [2], [1]], data.distinct(9, 1, step=0.05) + 0.5,
                        TRUTH[[0, 0, 1, 2, 3, 3, 2, 4, 0], 2:]], 1)  # fmt: skip
FOUND[[1, 5, 8], 2:] += 0.01
MAP_LODS = {"DetectRes": ((0, 3, 9),), "Label": ((0, 2, 5),)}
EARLIER = {"HasState": np.array([1], "int32"), "PosCount": np.array([[0], [2], [1]], "int32"),
           "TruePos": np.array([[0.9, 1.0], [0.3, 0.0]]), "FalsePos": np.array([[0.9, 0.0], [0.3, 1.0]])}  # fmt: skip
for label, more, states, lods in (
    (TRUTH, {}, {}, {}),
    (TRUTH, {"evaluate_difficult": False, "ap_type": "11point", "overlap_threshold": 0.3}, {}, {}),
    (TRUTH[:, [0, 2, 3, 4, 5]], {}, EARLIER, {"TruePos": ((0, 0, 2, 2),), "FalsePos": ((0, 0, 2, 2),)}),
):
    add("detection_map", Sample({"DetectRes": FOUND, "Label": label, **states}, {"class_num": 3, **more}, precision,
                                lods={**MAP_LODS, **lods}, shapes_by_value=True))  # fmt: skip
