"""Writes paddle_proposals.npz: ops that propose regions and assign targets to them, run by Paddle 2.6.2.

Runs in an environment of its own that has paddlepaddle==2.6.2 and numpy<2.
"""

import sys

import numpy as np
from paddle_ops import write

rng = np.random.RandomState(5)


def uniform(*shape, low=0.0, high=1.0):
    return rng.uniform(low, high, shape).astype("float32")


def boxes(count, size=60.0, least=2.0, most=40.0):
    corner = uniform(count, 2, high=size - least)
    return np.concatenate([corner, corner + uniform(count, 2, low=least, high=most)], 1)


CASES = []

# ------------------------------------------------------------------------------------------------------------ proposals
H, W, SIZES = 4, 5, (8, 16, 28)
centers = np.stack(np.meshgrid(np.arange(W), np.arange(H)), -1)[:, :, None].astype("float32") * 8
halves = np.array(SIZES, "float32")[:, None] / 2
ANCHORS = np.concatenate([centers - halves, centers + halves], -1)
inputs = {
    "Scores": uniform(2, 3, H, W),
    "BboxDeltas": uniform(2, 12, H, W, low=-1.0),
    "Anchors": ANCHORS,
    "Variances": np.broadcast_to(np.array([0.1, 0.1, 0.2, 0.2], "float32"), ANCHORS.shape).copy(),
}
PROPOSED = {"RpnRois": "float32", "RpnRoiProbs": "float32", "RpnRoisNum": "int32"}
for scale, most, threshold, least, eta in (
    (1.0, 12, 0.5, 0.1, 1.0),
    (2.5, 12, 0.7, 8.0, 1.0),
    (1.0, 40, 0.8, 6.0, 0.9),
    (1.0, 40, 0.5, 90.0, 1.0),
):
    attrs = {"pre_nms_topN": 30, "post_nms_topN": most, "nms_thresh": threshold, "min_size": least, "eta": eta}
    sizes = np.array([[30, 38, scale], [26, 35, scale]], "float32")
    CASES.append(("generate_proposals", {**inputs, "ImInfo": sizes}, attrs, PROPOSED, []))
    for offset in (True, False):
        attrs = {**attrs, "pixel_offset": offset}
        CASES.append(("generate_proposals_v2", {**inputs, "ImShape": sizes[:, :2].copy()}, attrs, PROPOSED, []))

# --------------------------------------------------------------------------------------------------------------- levels
ROIS = boxes(9, 150.0, 1.0, 120.0)
ROIS[3, 2] = ROIS[3, 0] - 3
LEVELS = {"min_level": 2, "max_level": 5, "refer_level": 4, "refer_scale": 64}
many = ["float32"] * 4
spread = {"MultiFpnRois": many, "RestoreIndex": "int32", "MultiLevelRoIsNum": ["int32"] * 4}
CASES.append(("distribute_fpn_proposals", {"FpnRois": (ROIS, [[0, 4, 9]])}, LEVELS, spread, []))
numbered = {"FpnRois": ROIS, "RoisNum": np.array([4, 5], "int32")}
CASES.append(("distribute_fpn_proposals", numbered, {**LEVELS, "pixel_offset": False}, spread, []))
lods = [[[0, 1, 4]], [[0, 3, 5]]]
rois, scores = np.split(ROIS, [4]), [uniform(4, 1), uniform(5, 1)]
scores[1][2] = scores[0][1]
collected = {"FpnRois": "float32", "RoisNum": "int32"}
for most in (6, 100):
    pairs = {"MultiLevelRois": list(zip(rois, lods, strict=True)), "MultiLevelScores": list(zip(scores, lods, strict=True))}
    CASES.append(("collect_fpn_proposals", pairs, {"post_nms_topN": most}, collected, []))
    counts = [np.array([1, 3], "int32"), np.array([3, 2], "int32")]
    given = {"MultiLevelRois": rois, "MultiLevelScores": scores, "MultiLevelRoIsNum": counts}
    CASES.append(("collect_fpn_proposals", given, {"post_nms_topN": most}, collected, []))

# -------------------------------------------------------------------------------------------------------------- targets
FLAT = ANCHORS.reshape(-1, 4).copy()
TRUTH, OF_IMAGES = boxes(5, 24.0, 6.0, 16.0), [[0, 2, 5]]
TRUTH[3] = FLAT[31] + 0.5
CROWD = np.array([[0], [0], [0], [0], [1]], "int32")
CLASSES = np.array([[1], [3], [2], [1], [2]], "int32")
INFO = np.array([[30, 38, 1.0], [26, 35, 1.25]], "float32")
assigned = {"Anchor": FLAT, "GtBoxes": (TRUTH, OF_IMAGES), "IsCrowd": (CROWD, OF_IMAGES), "ImInfo": INFO}
TARGETS = {"LocationIndex": "int32", "ScoreIndex": "int32", "TargetBBox": "float32", "TargetLabel": "int32"}
TARGETS["BBoxInsideWeight"] = "float32"
for count, straddle, positive, negative, fraction in (
    (256, 0.0, 0.7, 0.3, 0.5),
    (256, -1.0, 0.5, 0.4, 0.25),
    (8, 4.0, 0.3, 0.25, 0.5),
    (20, 4.0, 0.8, 0.9, 0.5),
):
    attrs = {"rpn_batch_size_per_im": count, "rpn_straddle_thresh": straddle, "rpn_positive_overlap": positive}
    attrs.update(rpn_negative_overlap=negative, rpn_fg_fraction=fraction, use_random=False)
    CASES.append(("rpn_target_assign", assigned, attrs, TARGETS, []))
for positive, negative in ((0.5, 0.4), (0.3, 0.3)):
    attrs = {"positive_overlap": positive, "negative_overlap": negative}
    labelled = {**assigned, "GtLabels": (CLASSES, OF_IMAGES)}
    CASES.append(("retinanet_target_assign", labelled, attrs, {**TARGETS, "ForegroundNumber": "int32"}, []))

PROPOSALS = np.concatenate([TRUTH[:2] + uniform(2, 4, low=-2, high=2), boxes(5, 24.0, 6.0, 16.0), TRUTH[2:] + 1, boxes(3, 20.0)])
sampled = {
    "RpnRois": (PROPOSALS, [[0, 6, 13]]),
    "GtClasses": (CLASSES, OF_IMAGES),
    "IsCrowd": (CROWD, OF_IMAGES),
    "GtBoxes": (TRUTH, OF_IMAGES),
    "ImInfo": INFO,
}
ROI_TARGETS = {"Rois": "float32", "LabelsInt32": "int32"}
ROI_TARGETS.update(dict.fromkeys(("BboxTargets", "BboxInsideWeights", "BboxOutsideWeights", "MaxOverlapWithGT"), "float32"))
for count, fraction, agnostic in ((64, 0.25, False), (7, 0.25, False), (5, 0.5, True)):
    attrs = {"batch_size_per_im": count, "fg_fraction": fraction, "fg_thresh": 0.5, "bg_thresh_hi": 0.5, "bg_thresh_lo": 0.0}
    attrs.update(bbox_reg_weights=[0.1, 0.1, 0.2, 0.2], class_nums=2 if agnostic else 4, use_random=False)
    attrs.update(is_cascade_rcnn=False, is_cls_agnostic=agnostic)
    CASES.append(("generate_proposal_labels", sampled, attrs, ROI_TARGETS, []))
overlap = np.array([1, 0.3, 0.4, 0.5, 1, 0.1, 1, 0.2, 0.7, 0.9, 1, 0.3, 0.2], "float32")
cascade = {**sampled, "MaxOverlap": (overlap, [[0, 6, 13]])}
CASES.append(("generate_proposal_labels", cascade, {**attrs, "is_cascade_rcnn": True}, ROI_TARGETS, []))


# ---------------------------------------------------------------------------------------------------------------- masks
def polygon(corners, left, top, size):
    angles = np.sort(rng.uniform(0, 2 * np.pi, corners))
    radii = rng.uniform(0.4, 1.0, corners) * size / 2
    middle = np.array([left, top]) + size / 2
    return (middle + radii[:, None] * np.stack([np.cos(angles), np.sin(angles)], 1)).astype("float32")


SHAPES = [polygon(5, 3, 2, 14), polygon(7, 10, 9, 8), polygon(4, 12, 10, 15), polygon(9, 1, 4, 20), polygon(3, 14, 2, 9)]
SHAPES.append(np.array([[2, 2], [20, 2], [20, 9.5], [2, 9.5]], "float32"))
SEGMENTS = np.concatenate(SHAPES), [[0, 2, 4], [0, 2, 3, 5, 6], np.cumsum([0, *map(len, SHAPES)]).tolist()]
regions = np.concatenate([boxes(4, 20.0, 5.0, 20.0), boxes(4, 24.0, 0.3, 16.0)])
for labels, crowd in (([1, 0, 3, 2, 0, 2, 2, 1], [0, 0, 0, 0]), ([1, 0, 2, 2, 0, 0, 0, 0], [0, 1, 0, 0])):
    masked = {
        "ImInfo": INFO,
        "GtClasses": (np.array([[1], [3], [2], [1]], "int32"), [[0, 2, 4]]),
        "IsCrowd": (np.array(crowd, "int32")[:, None], [[0, 2, 4]]),
        "GtSegms": SEGMENTS,
        "Rois": (regions, [[0, 4, 8]]),
        "LabelsInt32": (np.array(labels, "int32")[:, None], [[0, 4, 8]]),
    }
    made = {"MaskRois": "float32", "RoiHasMaskInt32": "int32", "MaskInt32": "int32"}
    CASES.append(("generate_mask_labels", masked, {"num_classes": 4, "resolution": 10}, made, []))

# ----------------------------------------------------------------------------------------------------------- detections
levels = [ANCHORS.reshape(-1, 4), np.array([[0, 0, 30, 30], [4, 2, 30, 20]], "float32")]
detected = {
    "BBoxes": [uniform(2, len(level), 4, low=-1.0) for level in levels],
    "Scores": [uniform(2, len(level), 3) for level in levels],
    "Anchors": levels,
    "ImInfo": np.array([[30, 38, 1.0], [26, 35, 1.25]], "float32"),
}
for threshold, first, last, nms, eta in (
    (0.05, 1000, 100, 0.3, 1.0),
    (0.5, 12, 5, 0.5, 1.0),
    (0.2, 40, 30, 0.7, 0.9),
    (2.0, 9, 9, 0.5, 1.0),
):
    attrs = {"score_threshold": threshold, "nms_top_k": first, "keep_top_k": last, "nms_threshold": nms, "nms_eta": eta}
    CASES.append(("retinanet_detection_output", detected, attrs, {"Out": "float32"}, []))

# -------------------------------------------------------------------------------------------------- deformable regions
PLACES = np.array(
    [[0, 0.3, 7.6, 6.2], [2.3, 1.6, 9.7, 11.2], [-3, -2.6, 4.4, 20], [5, 5, 4, 3], [8.6, 2.4, 30.4, 3.6]], "float32"
)
for no_trans, group, part, samples, classes in (
    (False, [1, 1], [3, 2], 4, 2),
    (False, [2, 1], [2, 2], 2, 1),
    (True, [3, 2], [3, 2], 3, 1),
):
    attrs = {"no_trans": no_trans, "spatial_scale": 0.5, "output_dim": 2, "group_size": group, "pooled_height": 3}
    attrs.update(pooled_width=2, part_size=part, sample_per_part=samples, trans_std=0.2)
    moved = {
        "Input": uniform(2, 2 * group[0] * group[1], 7, 6, low=-1.0),
        "ROIs": (PLACES, [[0, 2, 5]]),
        "Trans": uniform(5, 2 * classes, *part, low=-1.0),
    }
    made = {"Output": "float32", "TopCount": "float32"}
    CASES.append(("deformable_psroi_pooling", moved, attrs, made, ["Input"] if no_trans else ["Input", "Trans"]))

# ---------------------------------------------------------------------------------------------------------------- counts
for used in (True, False):
    counted = {"X": uniform(4, 5, low=0.1, high=9.0), "CVM": uniform(4, 2, high=9.0)}
    CASES.append(("cvm", counted, {"use_cvm": used}, {"Y": "float32"}, ["X"]))
counted = {"X": (uniform(4, 5, low=0.1, high=9.0), [[0, 1, 4]]), "CVM": uniform(2, 2, high=9.0)}
CASES.append(("cvm", counted, {"use_cvm": True}, {"Y": "float32"}, ["X"]))
write(sys.argv[1], CASES)
