"""Samples of `fluid.ops.detection`, `fluid.ops.nms` and `fluid.ops.yolo`, stated box by box."""

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


def with_variances(found: Any, dtype: Any) -> dict[str, Any]:
    found = np.array(found, dtype)
    return {"Boxes": found, "Variances": np.broadcast_to(np.array(VARIANCES, dtype), found.shape)}


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
    found = np.array(rows).reshape(height, width, -1, 4) / [wide, high, wide, high]
    return with_variances(np.clip(found, 0, 1) if clip else found, Input.dtype)


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
    found = np.clip(np.array(rows) / [wide, high, wide, high], 0, 1)
    return with_variances(found if flatten_to_2d else found.reshape(height, width, -1, 4), Input.dtype)


def anchors(Input: Any, anchor_sizes: Any, aspect_ratios: Any, stride: Any, offset: float = 0.5, **_: Any) -> Any:
    height, width = Input.shape[2:]
    rows = []
    for i, j, ratio, size in product(range(height), range(width), aspect_ratios, anchor_sizes):
        wide = floor(sqrt(stride[0] * stride[1] / ratio) + 0.5)
        high = floor(wide * ratio + 0.5)
        x, y = (place * step + offset * (step - 1) for place, step in ((j, stride[0]), (i, stride[1])))
        rows.append(around(x, y, size / stride[0] * wide - 1, size / stride[1] * high - 1))
    found = with_variances(np.array(rows).reshape(height, width, -1, 4), Input.dtype)
    return {"Anchors": found["Boxes"], "Variances": found["Variances"]}


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
    for found, truth in ((slice(0, 3), slice(0, 2)), (slice(3, 9), slice(2, 5))):
        there, taken = list(Label[truth]), set()
        for row in there:
            counts[int(row[0])] += evaluate_difficult or not (len(row) == 6 and row[1])
        for row in sorted(DetectRes[found], key=lambda row: (row[0], -row[1])):
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
for label, more, given, lods in (
    (TRUTH, {}, {}, {}),
    (TRUTH, {"evaluate_difficult": False, "ap_type": "11point", "overlap_threshold": 0.3}, {}, {}),
    (TRUTH[:, [0, 2, 3, 4, 5]], {}, EARLIER, {"TruePos": ((0, 0, 2, 2),), "FalsePos": ((0, 0, 2, 2),)}),
):
    add("detection_map", Sample({"DetectRes": FOUND, "Label": label, **given}, {"class_num": 3, **more}, precision,
                                lods={**MAP_LODS, **lods}, shapes_by_value=True))  # fmt: skip


# ------------------------------------------------------------------------------------------------- non-maximum suppression
def sides(shape: Any) -> float:
    """The area of a polygon."""
    x, y = shape[::2], shape[1::2]
    return abs(sum(x[k - 1] * y[k] - x[k] * y[k - 1] for k in range(len(x)))) / 2


def shared(one: Any, other: Any) -> list[float]:
    """The convex polygon that two share: the first one, cut at each side of the second."""
    points = [tuple(point) for point in np.reshape(one, (-1, 2))]
    corners = [tuple(point) for point in np.reshape(other, (-1, 2))]
    for (x0, y0), (x1, y1) in zip(corners, corners[1:] + corners[:1], strict=True):
        inside = [(x1 - x0) * (y - y0) - (y1 - y0) * (x - x0) for x, y in points]
        kept = []
        for k, (x, y) in enumerate(points):
            (last_x, last_y), before = points[k - 1], inside[k - 1]
            if (before < 0) != (inside[k] < 0):
                share = before / (before - inside[k])
                kept.append((last_x + share * (x - last_x), last_y + share * (y - last_y)))
            if inside[k] >= 0:
                kept.append((x, y))
        points = kept
    return [number for point in points for number in point]


def alike(one: Any, other: Any, normalized: bool) -> float:
    if len(one) == 4:
        apart = one[2] < other[0] or other[2] < one[0] or one[3] < other[1] or other[3] < one[1]
        return 0.0 if apart else overlap(one, other, float(not normalized))
    both = sides(shared(one, other))
    return both / (sides(one) + sides(other) - both)


def best(scores: Any, threshold: float, most: int) -> list[int]:
    order = sorted((m for m in range(len(scores)) if scores[m] > threshold), key=lambda m: -scores[m])
    return order if most < 0 else order[:most]


def choose(
    boxes: Any,
    scores: Any,
    own: bool,
    background_label: int = 0,
    score_threshold: float = 0.0,
    nms_top_k: int = -1,
    nms_threshold: float = 0.3,
    nms_eta: float = 1.0,
    keep_top_k: int = -1,
    normalized: bool = True,
) -> list[tuple[int, int]]:
    """(class, box) of what is detected in an image, of scores [C, M]."""
    found = []
    for label, row in enumerate(scores):
        kept: list[int] = []
        threshold = nms_threshold
        for m in best(row, score_threshold, nms_top_k) if label != background_label else ():
            mine = boxes[:, label] if own else boxes
            if all(alike(mine[m], mine[other], normalized) <= threshold for other in kept):
                kept.append(m)
                threshold *= nms_eta if threshold > 0.5 else 1
        found += [(label, m) for m in kept]
    if 0 <= keep_top_k:
        found = sorted(sorted(found, key=lambda pair: -scores[pair])[:keep_top_k], key=lambda pair: pair[0])
    return sorted(found) if own else found


def detected(op_type: str) -> Any:
    def reference(BBoxes: Any, Scores: Any, RoisNum: Any = None, **attrs: Any) -> Any:
        own = Scores.ndim == 2
        images = (
            [(BBoxes[s:e], Scores[s:e].T, s) for s, e in SPANS]
            if own
            else [(b, s, 0) for b, s in zip(BBoxes, Scores, strict=True)]
        )
        rows, places, counts = [], [], []
        for number, (mine, scores, before) in enumerate(images):
            chosen = choose(mine, scores, own, **attrs)
            counts.append(len(chosen))
            for label, m in chosen:
                rows.append([label, scores[label, m], *(mine[m, label] if own else mine[m])])
                places.append((before + m) * len(scores) + label if own else number * len(mine) + m)
        width = 2 + BBoxes.shape[2]
        out = (
            np.array(rows, BBoxes.dtype).reshape(-1, width) if rows or op_type[-1] in "23" else np.full((1, 1), -1, BBoxes.dtype)
        )
        index = {"Index": np.array(places, "int32").reshape(-1, 1)} if op_type[-1] in "23" else {}
        return {"Out": out, **index, **({"NmsRoisNum": np.array(counts, "int32")} if op_type[-1] == "3" else {})}

    return reference


def rotated(*shape: int) -> Any:
    """Quadrilaterals whose corners go round in one sense."""
    angle, size = data(*shape, low=0.0, high=1.5), data(*shape, low=1.0, high=3.0)
    turns = angle[..., None] + np.arange(4) * np.pi / 2
    corner = np.stack([np.cos(turns), np.sin(turns)], -1) * size[..., None, None] * [1.0, 1.5]
    return (data(*shape, 1, 2, low=0.0, high=4.0) + corner).reshape(*shape, 8)


CHOICE = {"score_threshold": 0.2, "nms_top_k": 8, "keep_top_k": 6}
SHARED = {"BBoxes": boxes(2, 12), "Scores": data.distinct(2, 3, 12, step=0.01) + 0.4}
OWN = {"BBoxes": boxes(5, 3, size=5), "Scores": data.distinct(5, 3, step=0.05) + 0.5}
OWN_LODS = {"BBoxes": LOD, "Scores": LOD}
NMS_CASES: tuple[tuple[dict[str, Any], dict[str, Any], dict[str, Any]], ...] = (
    (SHARED, CHOICE, {}),
    (SHARED, {**CHOICE, "nms_threshold": 0.7, "nms_eta": 0.7, "keep_top_k": -1, "nms_top_k": -1, "background_label": -1}, {}),
    ({**SHARED, "BBoxes": rotated(2, 12)}, {**CHOICE, "nms_threshold": 0.2}, {}),
    (OWN, {**CHOICE, "normalized": False, "keep_top_k": 2}, OWN_LODS),
    (SHARED, {**CHOICE, "score_threshold": 2.0}, {}),
)
for op_type in ("multiclass_nms", "multiclass_nms2", "multiclass_nms3"):
    for arrays, more, lods in NMS_CASES:
        add(op_type, Sample(arrays, more, detected(op_type), lods=lods, shapes_by_value=True))
COUNTED = {**OWN, "RoisNum": np.array([2, 0, 3], "int32")}
add("multiclass_nms3", Sample(COUNTED, CHOICE, detected("multiclass_nms3"), shapes_by_value=True))


def lowered(
    BBoxes: Any,
    Scores: Any,
    score_threshold: float,
    nms_top_k: int,
    keep_top_k: int,
    post_threshold: float,
    use_gaussian: bool = False,
    gaussian_sigma: float = 2.0,
    background_label: int = 0,
    normalized: bool = True,
) -> Any:
    rows, index, counts = [], [], []
    for number, (mine, scores) in enumerate(zip(BBoxes, Scores, strict=True)):
        found = []
        for label, row in enumerate(scores):
            order = best(row, score_threshold, nms_top_k) if label != background_label else []
            most: list[float] = []
            for place, m in enumerate(order):
                overlaps = [alike(mine[m], mine[other], normalized) for other in order[:place]]
                pairs = list(zip(overlaps, most, strict=True))
                factors = [exp(gaussian_sigma * (b * b - a * a)) if use_gaussian else (1 - a) / (1 - b) for a, b in pairs]
                most.append(max(overlaps, default=0.0))
                found.append((row[m] * min(factors, default=1.0), label, m))
        found = sorted((each for each in found if each[0] > post_threshold), key=lambda each: -each[0])
        found = found if keep_top_k < 0 else found[:keep_top_k]
        rows += [[label, score, *mine[m]] for score, label, m in found]
        index += [number * len(mine) + m for _, _, m in found]
        counts.append(len(found))
    return {"Out": np.array(rows, BBoxes.dtype).reshape(-1, 6), "Index": np.array(index, "int32").reshape(-1, 1),
            "RoisNum": np.array(counts, "int32")}  # fmt: skip


for more in ({}, {"use_gaussian": True, "keep_top_k": -1, "nms_top_k": -1}, {"score_threshold": 2.0}):
    add("matrix_nms", Sample(SHARED, {**CHOICE, "post_threshold": 0.1, **more}, lowered, shapes_by_value=True))


def merged(
    BBoxes: Any, Scores: Any, background_label: int = -1, nms_threshold: float = 0.3, normalized: bool = True, **attrs: Any
) -> Any:
    found, weights = BBoxes.copy(), Scores.copy()
    for image, label in np.ndindex(Scores.shape[:2]):
        last, mine, score = 0, found[image], weights[image, label]
        for m in range(1, len(mine)):
            if label != background_label and alike(mine[m], mine[last], normalized) > nms_threshold:
                mine[last] = (mine[m] * score[m] + mine[last] * score[last]) / (score[m] + score[last])
                score[last], score[m] = score[last] + score[m], -1
            else:
                last = m
    given = {"background_label": background_label, "nms_threshold": nms_threshold, "normalized": normalized, **attrs}
    return detected("multiclass_nms")(found, weights, **given)["Out"]


def near(places: Any, spread: float) -> Any:
    """Each box three times, moved a little."""
    tripled = np.repeat(places, 3, 1)
    return tripled + data(*tripled.shape, low=-spread, high=spread)


SCORES = data.distinct(2, 2, 12, step=0.02) + 0.5
add(
    "locality_aware_nms",
    Sample({"BBoxes": near(boxes(2, 4), 0.01), "Scores": SCORES}, {**CHOICE, "keep_top_k": -1}, merged, shapes_by_value=True),
    Sample(
        {"BBoxes": near(rotated(2, 4), 0.05), "Scores": SCORES}, {**CHOICE, "background_label": 0}, merged, shapes_by_value=True
    ),
)


# ------------------------------------------------------------------------------------------------------------------ YOLO
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
    found = np.zeros((images, len(pairs), height, width, 4))
    scores = np.zeros((images, len(pairs), height, width, class_num))
    for n, a, i, j in np.ndindex(found.shape[:4]):
        x, (high, wide) = values[n, a, :, i, j], ImgSize[n]
        confidence = sigmoid(x[4])
        if iou_aware:
            confidence = confidence ** (1 - iou_aware_factor) * sigmoid(X[n, a, i, j]) ** iou_aware_factor
        if confidence >= conf_thresh:
            box = np.array(predicted(x, i, j, pairs[a], (height, width), downsample_ratio, scale_x_y)) * [wide, high, wide, high]
            if clip_bbox:
                box = np.append(np.maximum(box[:2], 0), np.minimum(box[2:], [wide - 1, high - 1]))
            found[n, a, i, j], scores[n, a, i, j] = box, confidence * sigmoid(x[5:])
    return {
        "Boxes": found.reshape(images, -1, 4).astype(X.dtype),
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
    """Weight and target are what the loss is made of: its differences by X, at two places that have the same matches."""
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
for more, given in (({}, {}), ({"use_label_smooth": False, "scale_x_y": 1.2}, {"GTScore": WEIGHTS})):
    add("yolov3_loss", Sample({**LABELLED, **given}, {**LOSS, **more}, yolo_loss, tolerance=3))
    masks = yolo_loss(**LABELLED, **given, **{**LOSS, **more})
    del masks["Loss"]
    add("yolo_terms", Sample({**LABELLED, **given, **masks}, {**LOSS, **more}, terms_of))
