"""Ops that propose regions and assign targets to them: Paddle's numbers, a detector, and errors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from checks import each
from paddle_numbers import PaddleNumbers

import fluid
from fluid import layers
from fluid.errors import ExecutionError, InferenceError, ProgramError
from fluid.executor.binding.compiled import apply_op
from fluid.ir.program import Variable
from fluid.values.lod_array import array_of

PADDLE = PaddleNumbers("paddle_proposals.npz")


@each("number", range(len(PADDLE.records)), ids=PADDLE.names)
def test_numbers_of_paddle(number: int) -> None:
    PADDLE.check(number)


def fixed(name: str, *shape: int, dtype: str = "float32", sequences: int = 0) -> Variable:
    return layers.data(
        name, [-1 if sequences else shape[0], *shape[1:]], dtype=dtype, append_batch_size=False, lod_level=sequences
    )


H, W, SIZES = 6, 6, (12.0, 20.0)
CENTERS = np.stack(np.meshgrid(np.arange(W), np.arange(H)), -1)[:, :, None].astype("float32") * 8 + 4
HALVES = np.array(SIZES, "float32")[:, None] / 2
ANCHORS = np.concatenate([CENTERS - HALVES, CENTERS + HALVES], -1)
TRUTH = np.array([[5, 6, 17, 17], [21, 24, 40, 44]], "float32")
CLASSES, CROWD = np.array([[1], [2]], "int32"), np.zeros((2, 1), "int32")


def picture() -> Any:
    """Two images; in each, one of the boxes is bright."""
    image = np.zeros((2, 1, 48, 48), "float32")
    for number, (left, top, right, bottom) in enumerate(TRUTH.astype(int)):
        image[number, 0, top : bottom + 1, left : right + 1] = number + 1
    return image


@pytest.mark.slow
def test_a_detector_in_two_stages_learns() -> None:
    """It proposes regions, which go through the levels of a pyramid; both stages find the boxes, and the second the classes."""
    info, truth = fixed("info", 2, 3), fixed("truth", 2, 4, sequences=1)
    classes, crowd = (fixed(name, 2, 1, dtype="int32", sequences=1) for name in ("classes", "crowd"))
    anchors, variances = fixed("anchors", H, W, 2, 4), fixed("variances", H, W, 2, 4)
    features = layers.conv2d(fixed("image", 2, 1, 48, 48), 16, 9, stride=8, padding=4, act="relu")
    features = layers.conv2d(features, 16, 3, padding=1, act="relu")
    logits, deltas = layers.conv2d(features, 2, 1), layers.conv2d(features, 8, 1)
    rows = layers.reshape(layers.transpose(logits, [0, 2, 3, 1]), [2, -1, 1])
    moves = layers.reshape(layers.transpose(deltas, [0, 2, 3, 1]), [2, -1, 4])
    flat = layers.reshape(anchors, [-1, 4])
    score, box, label, target, weight = layers.rpn_target_assign(
        moves, rows, flat, flat, truth, crowd, info, 72, -1.0, 0.5, 0.5, 0.5, use_random=False
    )
    first = layers.mean(layers.sigmoid_cross_entropy_with_logits(score, layers.cast(label, "float32")))
    first = first + layers.reduce_sum(layers.smooth_l1(box, target, weight, weight))
    rois, _ = layers.generate_proposals(layers.sigmoid(logits), deltas, info, anchors, variances, 40, 8, 0.5, 4.0)
    by_level, restore = layers.distribute_fpn_proposals(rois, 2, 3, 2, 16)
    restored = layers.gather(layers.concat(by_level, 0), restore)
    sampled, kind, offsets, inside, outside = layers.generate_proposal_labels(
        rois, classes, crowd, truth, info, 16, 0.5, 0.5, class_nums=3, use_random=False
    )
    hidden = layers.fc(layers.roi_align(features, sampled, 3, 3, 1 / 8, 2), 32, act="relu")
    second = layers.mean(layers.softmax_with_cross_entropy(layers.fc(hidden, 3), layers.cast(kind, "int64")))
    second = second + layers.mean(layers.smooth_l1(layers.fc(hidden, 12), offsets, inside, outside))
    loss = first + second
    fluid.optimizer.Adam(0.01).minimize(loss)
    exe = fluid.Executor()
    fluid.default_startup_program().random_seed = 1
    exe.run(fluid.default_startup_program())
    lengths = [[1, 1]]
    feed = {
        "image": picture(),
        "info": np.array([[48, 48, 1], [48, 48, 1]], "float32"),
        "truth": (TRUTH, lengths),
        "classes": (CLASSES, lengths),
        "crowd": (CROWD, lengths),
        "anchors": ANCHORS,
        "variances": np.ones_like(ANCHORS),
    }
    losses = [exe.run(feed=feed, fetch_list=[loss])[0].item() for _ in range(60)]
    assert losses[-1] < losses[0] / 3
    found, back = exe.run(feed=feed, fetch_list=[rois, restored], return_numpy=False)
    for start, expected in zip(found.lod()[0], TRUTH, strict=False):
        best = np.array(found)[start : start + 2]  # two anchors are at the same place
        assert np.abs(best - expected).max(1).min() < 1, best
    np.testing.assert_array_equal(np.array(back), np.array(found))


def truth(name: str = "truth") -> Variable:
    return fixed(name, 2, 4, sequences=1)


def numbers(name: str) -> Variable:
    return fixed(name, 2, 1, dtype="int32", sequences=1)


ERRORS: dict[str, tuple[Callable[[], Any], type[Exception], str]] = {
    "deltas": (
        lambda: layers.generate_proposals(
            fixed("s", 2, 3, 4, 5), fixed("d", 2, 9, 4, 5), fixed("i", 2, 3), fixed("a", 4, 5, 3, 4), fixed("v", 4, 5, 3, 4)
        ),
        InferenceError,
        "BboxDeltas .* should have four channels for each one of Scores",
    ),
    "no sequences": (
        lambda: layers.distribute_fpn_proposals(fixed("rois", 5, 4), 2, 5, 4, 224),
        InferenceError,
        r"FpnRois float32\[5, 4\] should hold sequences; declare it with lod_level=1",
    ),
    "levels": (
        lambda: layers.distribute_fpn_proposals(truth(), 5, 2, 4, 224),
        ProgramError,
        "max_level 2 should not be below min_level 5",
    ),
    "scores": (
        lambda: layers.collect_fpn_proposals([truth(), truth("more")], [fixed("s", 2, 1, sequences=1)], 2, 3, 10),
        InferenceError,
        "there are 2 MultiLevelRois and 1 MultiLevelScores; each level should have both",
    ),
    "classes": (
        lambda: layers.generate_proposal_labels(truth(), numbers("c"), numbers("w"), truth("g"), fixed("i", 2, 3)),
        ProgramError,
        "give class_nums, the number of classes, 0 for no object included",
    ),
    "polygons": (
        lambda: layers.generate_mask_labels(
            fixed("i", 2, 3), numbers("c"), numbers("w"), fixed("p", 9, 2, sequences=1), truth(), numbers("l"), 3, 8
        ),
        InferenceError,
        "has 1 levels of sequences; it should have three: objects of images, polygons of objects",
    ),
}


@each("name", ERRORS)
def test_refused(name: str) -> None:
    make, kind, message = ERRORS[name]
    with pytest.raises(kind, match=message):
        make()


def test_a_class_that_there_is_not() -> None:
    rois = truth("rois")
    out = layers.generate_proposal_labels(rois, numbers("c"), numbers("w"), truth(), fixed("i", 2, 3), class_nums=2)
    feed = {name: (array, [[1, 1]]) for name, array in {"rois": TRUTH, "c": CLASSES, "w": CROWD, "truth": TRUTH}.items()}
    with pytest.raises(ExecutionError, match=r"GtClasses has \[2\]; class_nums allows 0 to 1"):
        fluid.Executor().run(feed={**feed, "i": np.ones((2, 3), "float32")}, fetch_list=[out[0]])


def test_boxes_that_end_before_they_begin_overlap_nothing() -> None:
    """Their area is 0. Dividing by it suppressed one of two such boxes."""
    deltas = np.zeros((1, 3, 4), "float32")
    anchors = np.array([[5, 5, 4.2, 9], [5, 5, 4.2, 9], [20, 20, 30, 30]], "float32")
    outputs = apply_op(
        "retinanet_detection_output",
        {
            "BBoxes": [deltas],
            "Scores": [np.array([[[0.9], [0.8], [0.7]]], "float32")],
            "Anchors": [anchors],
            "ImInfo": np.array([[100, 100, 1]], "float32"),
        },
        {"score_threshold": 0.1, "nms_top_k": 10, "keep_top_k": 10, "nms_threshold": 0.3, "nms_eta": 1.0},
    )
    np.testing.assert_allclose(array_of(outputs["Out"])[:, 1], np.array([0.9, 0.8, 0.7], "float32"))
