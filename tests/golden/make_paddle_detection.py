"""Writes paddle_detection.npz: ops of object detection, run by Paddle 2.6.2, with gradients where it has them.

Runs in an environment of its own that has paddlepaddle==2.6.2 and numpy<2. Paddle 2.6 has no target_assign and no
sigmoid_focal_loss any more.
"""

import sys

import numpy as np
from paddle_ops import write

rng = np.random.RandomState(12)
INTS = {
    "ColToRowMatchIndices",
    "NegIndices",
    "UpdatedMatchIndices",
    "Index",
    "NmsRoisNum",
    "RoisNum",
    "GTMatchMask",
    "AccumPosCount",
}


def x(*shape, low=-1.0, high=1.0):
    return rng.uniform(low, high, shape).astype("float32")


def boxes(*shape, size=1.0):
    """Boxes within `size`."""
    first, extent = x(*shape, 2, low=0, high=0.7), x(*shape, 2, low=0.05, high=0.5)
    return (size * np.concatenate([first, first + extent], -1)).astype("float32")


def quads(*shape):
    """Quadrilaterals whose sides do not cross."""
    left, top, right, bottom = np.moveaxis(boxes(*shape, size=20.0), -1, 0)
    square = np.stack([left, top, right, top, right, bottom, left, bottom], -1)
    extent = np.tile(np.stack([right - left, bottom - top], -1), 4)
    return (square + extent * x(*square.shape, low=-0.3, high=0.3)).astype("float32")


def case(op_type, inputs, attrs, outputs, wrt=(), lods=None):
    """A case of `paddle_ops.write`, of names of outputs, and of the LoDs of the inputs that have one."""
    values = {slot: (array, lods[slot]) if lods and slot in lods else array for slot, array in inputs.items()}
    return op_type, values, attrs, {slot: "int32" if slot in INTS else "float32" for slot in outputs}, wrt


VARIANCES = [0.1, 0.1, 0.2, 0.2]
FEATURES = {"Input": x(2, 3, 3, 4), "Image": x(2, 3, 24, 40)}
PRIORS = {
    "min_sizes": [4.0, 9.0],
    "aspect_ratios": [2.0, 3.0],
    "variances": VARIANCES,
    "step_w": 0.0,
    "step_h": 0.0,
    "offset": 0.5,
}
DENSE = {"variances": VARIANCES, "densities": [3, 2], "fixed_sizes": [5.0, 12.0], "fixed_ratios": [1.0, 2.0], "offset": 0.5}
MATCHES = {"ColToRowMatchIndices", "ColToRowMatchDist"}
DISTANCES = np.round(x(9, 7, low=0, high=1), 2)
DISTANCES[:, 3] = 0
SHARED = {"BBoxes": boxes(2, 40), "Scores": x(2, 3, 40, low=0, high=1)}
OWN = {"BBoxes": boxes(50, 3, size=10.0), "Scores": x(50, 3, low=0, high=1)}
NMS = {"background_label": 0, "score_threshold": 0.3, "nms_top_k": 30, "nms_threshold": 0.3, "nms_eta": 1.0, "keep_top_k": 20}
NMS["normalized"] = True
MATRIX = {"background_label": 0, "score_threshold": 0.3, "nms_top_k": 30, "keep_top_k": 20, "post_threshold": 0.2}
MATRIX.update(use_gaussian=False, gaussian_sigma=2.0, normalized=True)
LODS = {"BBoxes": [[0, 20, 20, 50]], "Scores": [[0, 20, 20, 50]]}
ANCHORS = [10, 13, 16, 30, 33, 23, 30, 61]
YOLO = {"anchors": ANCHORS, "class_num": 3, "conf_thresh": 0.4, "downsample_ratio": 8, "clip_bbox": True, "scale_x_y": 1.0}
LOSS = {"anchors": ANCHORS, "anchor_mask": [3, 1, 0], "class_num": 3, "ignore_thresh": 0.3, "downsample_ratio": 8}
LOSS.update(use_label_smooth=True, scale_x_y=1.0)
MAP = {"class_num": 3, "background_label": 0, "overlap_threshold": 0.4, "evaluate_difficult": True, "ap_type": "integral"}
MINING = {"ClsLoss": x(2, 9, low=0, high=1), "MatchDist": x(2, 9, low=0, high=1)}
MINING["MatchIndices"] = np.array([[-1, 0, -1, -1, 1, -1, -1, -1, -1], [-1] * 6 + [2, -1, 0]], "int32")


def truth(*shape):
    places = np.concatenate([x(*shape, 2, low=0.05, high=0.95), x(*shape, 2, low=0.02, high=0.6)], -1)
    places[:, 1] = 0
    return places.astype("float32")


def losses(shape, scored, **attrs):
    """Boxes at places of their own: of two at one place, Paddle's loss has both, but its gradient the last one alone."""
    inputs = {
        "X": x(*shape, low=-2, high=2),
        "GTBox": truth(shape[0], 6),
        "GTLabel": rng.randint(0, 3, (shape[0], 6)).astype("int32"),
    }
    if scored:
        inputs["GTScore"] = x(shape[0], 6, low=0.1, high=1)
    return case("yolov3_loss", inputs, {**LOSS, **attrs}, ["Loss", "ObjectnessMask", "GTMatchMask"], ["X"])


def precision(difficult, **attrs):
    label, places = boxes(8), boxes(14)
    places[:6] = label[:6] + x(6, 4, low=-0.04, high=0.04)
    places[6] = places[0]
    kinds = np.array([1, 2, 1, 2, 1, 1, 2, 2], "float32")[:, None]
    hard = [np.array([0, 0, 1, 0, 0, 0, 1, 0], "float32")[:, None]] if difficult else []
    scores = x(14, 1, low=0, high=1)
    detected = np.concatenate([np.concatenate([kinds[:6], kinds[:1], rng.randint(0, 3, (7, 1))]), scores, places], 1)
    inputs = {"DetectRes": detected.astype("float32"), "Label": np.concatenate([kinds, *hard, label], 1)}
    lods = {"DetectRes": [[0, 5, 14]], "Label": [[0, 4, 8]]}
    outputs = ["AccumPosCount", "AccumTruePos", "AccumFalsePos", "MAP"]
    if attrs.pop("state", False):
        inputs["HasState"] = np.array([1], "int32")
        inputs["PosCount"] = np.array([[0], [3], [2]], "int32")
        inputs["TruePos"] = np.array([[0.9, 1], [0.4, 0], [0.7, 1]], "float32")
        inputs["FalsePos"] = np.array([[0.9, 0], [0.4, 1], [0.7, 0]], "float32")
        lods["TruePos"] = lods["FalsePos"] = [[0, 0, 2, 3]]
    return case("detection_map", inputs, {**MAP, **attrs}, outputs, lods=lods)


CASES = [
    case("prior_box", FEATURES, {**PRIORS, "max_sizes": [9.0, 14.0], "flip": True, "clip": True}, ["Boxes", "Variances"]),
    case("prior_box", FEATURES, {**PRIORS, "max_sizes": [9.0, 14.0], "flip": False, "clip": False, "step_w": 7.0, "step_h": 9.0,
                                 "min_max_aspect_ratios_order": True}, ["Boxes", "Variances"]),
    case("density_prior_box", FEATURES, {**DENSE, "flatten_to_2d": True}, ["Boxes", "Variances"]),
    case("density_prior_box", FEATURES, {**DENSE, "step_w": 9.0, "step_h": 8.0, "clip": True}, ["Boxes", "Variances"]),
    case("anchor_generator", {"Input": FEATURES["Input"]}, {"anchor_sizes": [32.0, 100.0], "aspect_ratios": [0.5, 1.0, 3.0],
         "variances": VARIANCES, "stride": [16.0, 12.0], "offset": 0.25}, ["Anchors", "Variances"]),
    case("box_coder", {"PriorBox": boxes(5), "PriorBoxVar": x(5, 4, low=0.1), "TargetBox": boxes(7)}, {}, ["OutputBox"],
         lods={"TargetBox": [[0, 3, 7]]}),
    case("box_coder", {"PriorBox": boxes(5, size=9), "TargetBox": boxes(7, size=9)},
         {"box_normalized": False, "variance": VARIANCES}, ["OutputBox"]),
    case("box_coder", {"PriorBox": boxes(5), "PriorBoxVar": x(5, 4, low=0.1), "TargetBox": x(3, 5, 4)},
         {"code_type": "decode_center_size"}, ["OutputBox"]),
    case("box_coder", {"PriorBox": boxes(3, size=9), "PriorBoxVar": x(3, 4, low=0.1), "TargetBox": x(3, 5, 4)},
         {"code_type": "decode_center_size", "axis": 1, "box_normalized": False}, ["OutputBox"]),
    case("box_coder", {"PriorBox": boxes(5), "TargetBox": x(3, 5, 4)},
         {"code_type": "decode_center_size", "variance": VARIANCES}, ["OutputBox"]),
    case("box_coder", {"PriorBox": boxes(5), "TargetBox": x(3, 5, 4)}, {"code_type": "decode_center_size"}, ["OutputBox"]),
    case("box_clip", {"Input": x(6, 4, low=-5, high=20), "ImInfo": np.array([[16, 21, 2], [7.5, 11, 1]], "float32")}, {},
         ["Output"], lods={"Input": [[0, 4, 6]]}),
    case("iou_similarity", {"X": boxes(6, size=9), "Y": boxes(4, size=9)}, {"box_normalized": False}, ["Out"],
         lods={"X": [[0, 2, 6]]}),
    case("iou_similarity", {"X": np.concatenate([boxes(5), np.zeros((1, 4), "float32")]),
                            "Y": np.concatenate([boxes(3), np.zeros((1, 4), "float32")])}, {}, ["Out"]),
    case("bipartite_match", {"DistMat": DISTANCES}, {}, sorted(MATCHES), lods={"DistMat": [[0, 2, 9]]}),
    case("bipartite_match", {"DistMat": DISTANCES}, {"match_type": "per_prediction", "dist_threshold": 0.6}, sorted(MATCHES),
         lods={"DistMat": [[0, 2, 9]]}),
    case("bipartite_match", {"DistMat": DISTANCES[:3]}, {"match_type": "per_prediction"}, sorted(MATCHES)),
    case("mine_hard_examples", MINING, {"neg_pos_ratio": 1.5, "neg_dist_threshold": 0.7}, ["NegIndices", "UpdatedMatchIndices"]),
    case("mine_hard_examples", {**MINING, "LocLoss": x(2, 9, low=0, high=1)}, {"mining_type": "hard_example", "sample_size": 4},
         ["NegIndices", "UpdatedMatchIndices"]),
    case("multiclass_nms", SHARED, NMS, ["Out"]),
    case("multiclass_nms", SHARED, {**NMS, "score_threshold": 1.5}, ["Out"]),
    case("multiclass_nms", SHARED, {**NMS, "nms_eta": 0.8, "nms_threshold": 0.7, "keep_top_k": -1, "background_label": -1},
         ["Out"]),
    case("multiclass_nms", {"BBoxes": quads(2, 30), "Scores": x(2, 2, 30, low=0, high=1)}, {**NMS, "keep_top_k": -1}, ["Out"]),
    case("multiclass_nms", OWN, {**NMS, "normalized": False, "keep_top_k": 9}, ["Out"], lods=LODS),
    case("multiclass_nms2", SHARED, NMS, ["Out", "Index"]),
    case("multiclass_nms2", OWN, {**NMS, "normalized": False}, ["Out", "Index"], lods=LODS),
    case("multiclass_nms2", SHARED, {**NMS, "score_threshold": 1.5}, ["Out", "Index"]),
    case("multiclass_nms3", SHARED, {**NMS, "keep_top_k": 7}, ["Out", "Index", "NmsRoisNum"]),
    case("multiclass_nms3", {**OWN, "RoisNum": np.array([20, 0, 30], "int32")}, {**NMS, "keep_top_k": 7, "normalized": False},
         ["Out", "Index", "NmsRoisNum"]),
    case("multiclass_nms3", SHARED, {**NMS, "score_threshold": 1.5}, ["Out", "Index", "NmsRoisNum"]),
    case("matrix_nms", SHARED, MATRIX, ["Out", "Index", "RoisNum"]),
    case("matrix_nms", {**SHARED, "BBoxes": 9 * SHARED["BBoxes"]}, {**MATRIX, "use_gaussian": True, "normalized": False,
         "keep_top_k": -1, "nms_top_k": -1}, ["Out", "Index", "RoisNum"]),
    case("locality_aware_nms", {"BBoxes": np.repeat(boxes(1, 12), 3, 1) + x(1, 36, 4, low=-0.02, high=0.02),
                                "Scores": x(1, 1, 36, low=0, high=1)}, {**NMS, "background_label": -1}, ["Out"]),
    case("locality_aware_nms", {"BBoxes": np.repeat(quads(1, 12), 3, 1) + x(1, 36, 8, low=-0.05, high=0.05),
                                "Scores": x(1, 2, 36, low=0, high=1)},
         {**NMS, "background_label": -1, "keep_top_k": 8, "normalized": False}, ["Out"]),
    case("yolo_box", {"X": x(2, 32, 3, 4, low=-2, high=2), "ImgSize": np.array([[30, 47], [25, 33]], "int32")}, YOLO,
         ["Boxes", "Scores"]),
    case("yolo_box", {"X": x(2, 36, 3, 4, low=-2, high=2), "ImgSize": np.array([[30, 47], [25, 33]], "int32")},
         {**YOLO, "clip_bbox": False, "scale_x_y": 1.2, "iou_aware": True, "iou_aware_factor": 0.4}, ["Boxes", "Scores"]),
    losses((2, 24, 6, 6), True),
    losses((2, 24, 7, 7), False, use_label_smooth=False, scale_x_y=1.1),
    precision(True),
    precision(True, evaluate_difficult=False, ap_type="11point"),
    precision(False, state=True),
    case("box_decoder_and_assign", {"PriorBox": boxes(5, size=30), "PriorBoxVar": np.array(VARIANCES, "float32"),
         "TargetBox": x(5, 12, high=30), "BoxScore": x(5, 3, low=0, high=1)}, {"box_clip": 2.0},
         ["DecodeBox", "OutputAssignBox"]),
    case("polygon_box_transform", {"Input": x(2, 4, 3, 5)}, {}, ["Output"]),
]  # fmt: skip

write(sys.argv[1], CASES)
