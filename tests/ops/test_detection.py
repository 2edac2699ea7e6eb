"""Layers of object detection: joint results, training, errors."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from checks import each
from samples.detection import coder, decoded, matched, overlap
from samples.nms import best

import fluid
from fluid import layers
from fluid.errors import ExecutionError, FluidError, InferenceError, ProgramError
from fluid.ir.program import Variable

rng = np.random.RandomState(0)


def boxes(count: int) -> Any:
    first = rng.uniform(0, 0.6, (count, 2))
    return np.concatenate([first, first + rng.uniform(0.1, 0.4, (count, 2))], 1).astype("float32")


# ------------------------------------------------------------------------------------------------------------------- SSD
PRIORS, GT, LABELS = boxes(12), boxes(5), np.array([[1], [2], [1], [3], [2]], "int32")
SPANS = [(0, 2), (2, 5)]
VARIANCE = [0.1, 0.1, 0.2, 0.2]


def labelled() -> tuple[Variable, Variable]:
    return layers.data("gt_box", [4], lod_level=1), layers.data("gt_label", [1], dtype="int32", lod_level=1)


def ssd(location: Any, confidence: Any, ratio: float, threshold: float) -> Any:
    """The loss of each image, and the number of matches."""
    losses, matches = [], 0
    for (start, end), numbers, logits in zip(SPANS, location.astype("float64"), confidence.astype("float64"), strict=True):
        alike = np.array([[overlap(one, prior) for prior in PRIORS] for one in GT[start:end].astype("float64")])
        match = matched(alike, "per_prediction", threshold)
        index, similar = match["ColToRowMatchIndices"][0], match["ColToRowMatchDist"][0]
        targets = coder(PRIORS.astype("float64"), GT[start:end].astype("float64"), variance=VARIANCE)
        log_p = logits - np.log(np.exp(logits).sum(1, keepdims=True))
        positive = np.flatnonzero(index >= 0)
        candidates = [m for m in best(-log_p[:, 0], -1.0, -1) if index[m] < 0 and similar[m] < 0.5]
        negative = candidates[: int(len(positive) * ratio)]
        distance = np.abs(np.array([numbers[m] - targets[index[m], m] for m in positive]))
        near = np.where(distance < 1, distance**2 / 2, distance - 0.5).sum()
        labels = LABELS[start:end, 0]
        losses.append(near * 2 - sum(log_p[m, labels[index[m]]] for m in positive) - sum(log_p[m, 0] for m in negative))
        matches += len(positive)
    return np.array(losses)[:, None], matches


@each(("normalize", "priors"), [(True, 12), (False, 12), (True, -1)])
def test_the_loss_of_an_ssd(normalize: bool, priors: int) -> None:
    location, confidence = fluid.data("location", [None, priors, 4]), fluid.data("confidence", [None, priors, 4])
    prior, variances = fluid.data("prior", [priors, 4]), fluid.data("variances", [priors, 4])
    options: dict[str, Any] = {"overlap_threshold": 0.3, "neg_pos_ratio": 1.5, "loc_loss_weight": 2.0, "normalize": normalize}
    loss = layers.ssd_loss(location, confidence, *labelled(), prior, variances, **options)
    feed = {
        "location": rng.standard_normal((2, 12, 4)).astype("float32"),
        "confidence": rng.standard_normal((2, 12, 4)).astype("float32"),
        "prior": PRIORS,
        "variances": np.tile(np.float32(VARIANCE), (12, 1)),
        "gt_box": (GT, [[2, 3]]),
        "gt_label": (LABELS, [[2, 3]]),
    }
    (values,) = fluid.Executor().run(feed=feed, fetch_list=[loss])
    expected, matches = ssd(feed["location"], feed["confidence"], 1.5, 0.3)
    np.testing.assert_allclose(values, expected / matches if normalize else expected, rtol=1e-4)


def test_an_ssd_learns_boxes() -> None:
    """After training it finds the boxes: its mean average precision is 1."""
    image = fluid.data("image", [None, 3, 32, 32])
    one = layers.conv2d(image, 16, 3, stride=4, padding=1, act="relu")
    two = layers.conv2d(one, 16, 3, stride=2, padding=1, act="relu")
    *predicted, prior, variances = layers.multi_box_head(
        [one, two], image, 32, 4, [[2.0], [2.0]], min_sizes=[8.0, 16.0], max_sizes=[16.0, 28.0], kernel_size=3, pad=1
    )
    gt_box, gt_label = labelled()
    detections = layers.detection_output(*predicted, prior, variances, score_threshold=0.3)
    measure = fluid.metrics.DetectionMAP(detections, gt_label, gt_box, class_num=4)
    test_program = fluid.default_main_program().clone(for_test=True)
    loss = layers.reduce_sum(layers.ssd_loss(*predicted, gt_box, gt_label, prior, variances))
    fluid.optimizer.Adam(0.02).minimize(loss)
    executor = fluid.Executor()
    fluid.default_startup_program().random_seed = 1
    executor.run(fluid.default_startup_program())
    feed = {"image": rng.rand(2, 3, 32, 32).astype("float32"), "gt_box": (GT, [[2, 3]]), "gt_label": (LABELS, [[2, 3]])}
    losses = [executor.run(feed=feed, fetch_list=[loss])[0].item() for _ in range(60)]
    assert losses[-1] < losses[0] / 5
    rows, now = executor.run(test_program, feed, [detections, measure.cur_map], return_numpy=False)
    assert np.asarray(now).item() == 1 and np.asarray(rows).shape[1] == 6 and len(rows.recursive_sequence_lengths()[0]) == 2


def test_the_sizes_of_priors_follow_from_ratios() -> None:
    """From 20 to 90 percent over all maps but the first."""
    image = fluid.data("image", [None, 3, 100, 100])
    maps = [fluid.data(f"map{size}", [None, 4, size, size]) for size in (4, 2, 1)]
    layers.multi_box_head(maps, image, 100, 3, [[2.0]] * 3, 20, 90, steps=[25.0, 50.0, 100.0])
    priors_of_maps = [op.attrs for op in fluid.default_main_program().global_block().ops if op.type == "prior_box"]
    sizes = [(attrs["min_sizes"][0], attrs["max_sizes"][0], attrs["step_w"], attrs["step_h"]) for attrs in priors_of_maps]
    assert sizes == [(10.0, 20.0, 25.0, 25.0), (20.0, 90.0, 50.0, 50.0), (90.0, 160.0, 100.0, 100.0)]


def test_what_an_ssd_detects() -> None:
    loc, scores = rng.standard_normal((1, 12, 4)).astype("float32"), 2 * rng.standard_normal((1, 12, 3)).astype("float32")
    names = ("loc", "scores", "prior", "variances")
    arrays = (loc, scores, PRIORS, np.tile(np.float32(VARIANCE), (12, 1)))
    inputs = [fluid.data(name, list(array.shape)) for name, array in zip(names, arrays, strict=True)]
    rows, index = layers.detection_output(*inputs, nms_threshold=1.0, keep_top_k=5, return_index=True)
    detections, places = fluid.Executor().run(feed=dict(zip(names, arrays, strict=True)), fetch_list=[rows, index])
    odds = np.exp(scores[0])
    p = odds / odds.sum(1, keepdims=True)
    best_five = sorted(sorted((-p[m, c], c, m) for m in range(12) for c in (1, 2))[:5], key=lambda one: one[1])
    np.testing.assert_allclose(detections[:, 1], [-score for score, _, _ in best_five], rtol=1e-5)
    assert places.ravel().tolist() == [m for _, _, m in best_five] and detections[:, 0].tolist() == [c for _, c, _ in best_five]
    expected = [decoded(loc[0, m] * VARIANCE, PRIORS[m], 0.0) for _, _, m in best_five]
    np.testing.assert_allclose(detections[:, 2:], expected, rtol=1e-4, atol=1e-5)


def test_nothing_is_detected() -> None:
    """Without detections, the result is a row of one number, or has no rows."""
    inputs = fluid.data("boxes", [2, 12, 4]), fluid.data("scores", [2, 3, 12])
    choice = 0.5, -1, -1
    detections = [nms(*inputs, *choice) for nms in (layers.multiclass_nms, layers.locality_aware_nms, layers.multiclass_nms2)]
    assert [rows.shape for rows in detections] == [(-1, 6)] * 3
    feed = {"boxes": np.stack([PRIORS] * 2), "scores": np.zeros((2, 3, 12), "float32")}
    values = fluid.Executor().run(feed=feed, fetch_list=detections, return_numpy=False)
    assert [np.asarray(value).tolist() for value in values] == [[[-1]], [[-1]], []]
    assert [value.recursive_sequence_lengths() for value in values] == [[[1]], [[1]], [[0, 0]]]


def test_a_mean_average_precision_over_batches() -> None:
    """Two batches have the same precision as one joint batch; `reset` forgets them."""
    detections, (gt_box, gt_label) = fluid.data("detections", [None, 6], lod_level=1), labelled()
    measure = fluid.metrics.DetectionMAP(detections, gt_label, gt_box, class_num=4)
    assert fluid.evaluator.DetectionMAP is fluid.metrics.DetectionMAP
    executor = fluid.Executor()
    executor.run(fluid.default_startup_program())
    scores = np.float32([[0.9], [0.8], [0.7], [0.6], [0.5], [0.4]])
    rows = np.concatenate([np.float32([[1], [1], [2], [3], [1], [2]]), scores, GT[[0, 0, 1, 3, 2, 1]]], 1)

    def feed(rows: Any, lengths: list[int], start: int, end: int, counts: list[int]) -> dict[str, Any]:
        return {"detections": (rows, [lengths]), "gt_box": (GT[start:end], [counts]), "gt_label": (LABELS[start:end], [counts])}

    def run(fed: dict[str, Any]) -> list[float]:
        return [value.item() for value in executor.run(feed=fed, fetch_list=list(measure.get_map_var()))]

    parts = feed(rows[:3], [3], 0, 2, [2]), feed(rows[3:], [3], 2, 5, [3])
    first, both = run(parts[0]), run(parts[1])
    assert first[0] == first[1] != both[1] != both[0]
    measure.reset(executor)
    together = run(feed(rows, [3, 3], 0, 5, [2, 3]))
    assert together == [both[1]] * 2


def test_a_yolo_learns_boxes() -> None:
    anchors, mask = [6, 6, 12, 10, 20, 24], [1, 2]
    image, sizes = fluid.data("image", [None, 3, 32, 32]), fluid.data("sizes", [None, 2], "int32")
    truth, label = fluid.data("truth", [None, 2, 4]), fluid.data("label", [None, 2], "int32")
    features = layers.conv2d(layers.conv2d(image, 16, 3, stride=4, padding=1, act="relu"), 16, 3, stride=2, padding=1)
    loss = layers.mean(layers.yolov3_loss(features, truth, label, anchors, mask, 3, 0.7, 8, use_label_smooth=False))
    predicted, scores = layers.yolo_box(features, sizes, anchors[2:], 3, 0.01, 8)
    rows = layers.multiclass_nms(predicted, layers.transpose(scores, [0, 2, 1]), 0.5, -1, -1, background_label=-1)
    test_program = fluid.default_main_program().clone(for_test=True)
    fluid.optimizer.Adam(0.02).minimize(loss)
    executor = fluid.Executor()
    fluid.default_startup_program().random_seed = 1
    executor.run(fluid.default_startup_program())
    feed = {
        "image": rng.rand(1, 3, 32, 32).astype("float32"),
        "sizes": np.int32([[64, 64]]),
        "truth": np.float32([[[0.3, 0.4, 0.4, 0.3], [0.7, 0.6, 0.6, 0.7]]]),
        "label": np.int32([[2, 0]]),
    }
    losses = [executor.run(feed=feed, fetch_list=[loss])[0].item() for _ in range(300)]
    assert losses[-1] < losses[0] / 5
    (detected,) = executor.run(test_program, feed, [rows])
    np.testing.assert_allclose(detected[:, 0], [0, 2])
    np.testing.assert_allclose(detected[:, 2:] / 64, [[0.4, 0.25, 1.0, 0.95], [0.1, 0.25, 0.5, 0.55]], atol=0.03)


# --------------------------------------------------------------------------------------------------------------- refused
def features() -> Variable:
    return layers.data("x", [14, 3, 3])


def priors() -> Variable:
    return fluid.data("prior", [12, 4])


ERRORS: dict[str, tuple[Callable[[], Any], type[Exception], str]] = {
    "max_sizes": (
        lambda: layers.prior_box(features(), features(), [4.0, 8.0], [9.0, 7.0]),
        InferenceError,
        r"max_sizes \[9.0, 7.0\] should be as many as min_sizes \[4.0, 8.0\], each above its min_size",
    ),
    "steps": (lambda: layers.prior_box(features(), features(), 4.0, steps=[1.0]), ProgramError, "steps should be two numbers"),
    "densities": (
        lambda: layers.density_prior_box(features(), features(), [2], [4.0, 8.0], [1.0]),
        InferenceError,
        r"densities \[2\] should be as many as fixed_sizes \[4.0, 8.0\]",
    ),
    "no stride": (
        lambda: layers.anchor_generator(features(), [8.0], [1.0]),
        ProgramError,
        "give anchor_sizes, aspect_ratios and",
    ),
    "numbers of other priors": (
        lambda: layers.box_coder(priors(), None, fluid.data("t", [2, 11, 4]), "decode_center_size"),
        InferenceError,
        r"to decode, TargetBox float32\[2, 11, 4\] should be \[N, M, 4\], where PriorBox float32\[12, 4\] has M boxes",
    ),
    "few maps": (
        lambda: layers.multi_box_head([features()], features(), 24, 3, [2.0]),
        ProgramError,
        "give min_sizes and max_sizes",
    ),
    "sizes of other maps": (
        lambda: layers.multi_box_head([features()], features(), 24, 3, [2.0], min_sizes=[4.0, 5.0], max_sizes=[6.0]),
        ProgramError,
        r"min_sizes \[4.0, 5.0\] should have an entry for each of the 1 inputs",
    ),
    "mining_type": (
        lambda: layers.ssd_loss(features(), features(), *labelled(), priors(), mining_type="hard_example"),
        ProgramError,
        "mining_type should be 'max_negative', not 'hard_example'",
    ),
    "a gradient of boxes": (
        lambda: fluid.gradients(layers.iou_similarity(priors(), learned()), [learned()]),
        FluidError,
        "iou_similarity",
    ),
    "scores of other boxes": (
        lambda: layers.multiclass_nms(fluid.data("b", [2, 9, 4]), fluid.data("s", [2, 3, 8]), 0.1, -1, -1),
        InferenceError,
        r"Scores float32\[2, 3, 8\] should be \[N, C, M\], where BBoxes is float32\[2, 9, 4\], \[N, M, K\]",
    ),
    "channels": (
        lambda: layers.yolo_box(features(), fluid.data("size", [None, 2], "int32"), [4, 5, 6, 7], 3, 0.1, 8),
        InferenceError,
        "should have 16 channels: 8 for each of 2 anchors",
    ),
    "anchors": (
        lambda: layers.yolo_box(features(), fluid.data("size", [None, 2], "int32"), [4, 5, 6], 2, 0.1, 8),
        InferenceError,
        r"anchors \[4, 5, 6\] should be pairs of a width and a height",
    ),
    "anchor_mask": (
        lambda: layers.yolov3_loss(
            features(), fluid.data("b", [None, 4, 4]), fluid.data("l", [None, 4], "int32"), [4, 5, 6, 7], [0, 2], 2, 0.7, 8
        ),
        InferenceError,
        r"anchor_mask \[0, 2\] should name anchors, of which there are 2",
    ),
}


def learned() -> Variable:
    var = fluid.default_main_program().global_block().vars.get("learned")
    return layers.create_parameter([5, 4], "float32", name="learned") if var is None else var


@each("name", ERRORS)
def test_refused(name: str) -> None:
    make, kind, message = ERRORS[name]
    with pytest.raises(kind, match=message):
        make()


def run_assign(X: Any, matches: Any) -> None:
    out, _ = layers.target_assign(layers.data("x", [1, 2], lod_level=1), fluid.data("m", [2, 3], "int32"))
    fluid.Executor().run(feed={"x": (X, [[1, 2]]), "m": np.int32(matches)}, fetch_list=[out])


def run_precision(label: float) -> None:
    detections, truth = fluid.data("d", [None, 6], lod_level=1), fluid.data("t", [None, 5], lod_level=1)
    row = np.float32([[label, 0.5, 0.1, 0.1, 0.3, 0.3]])
    fluid.Executor().run(
        feed={"d": (row, [[1]]), "t": (np.delete(row, 1, 1), [[1]])}, fetch_list=[layers.detection_map(detections, truth, 3)]
    )


@pytest.mark.parametrize("name", ["loss.onnx", "loss.json"])
def test_focal_losses_of_any_number_of_classes_are_written(name: str, tmp_path: Path) -> None:
    if name.endswith("onnx"):
        pytest.importorskip("onnx")
    x, labels, count = fluid.data("x", [None, None]), fluid.data("l", [None, 1], "int32"), fluid.data("n", [1], "int32")
    loss = layers.sigmoid_focal_loss(x, labels, count)
    feed = {"x": np.float32([[0.5, -1.0, 2.0], [1.0, 0.0, 3.0]]), "l": np.int32([[3], [0]]), "n": np.int32([1])}
    (expected,) = fluid.Executor().run(feed=feed, fetch_list=[loss])
    fluid.save_model(tmp_path / name, feeds=[x, labels, count], fetches=[loss])
    model = fluid.load_model(tmp_path / name, scope=fluid.Scope())
    (value,) = fluid.Executor().run(model.program, feed, model.fetches, scope=model.scope)
    np.testing.assert_allclose(value, expected, rtol=1e-5)


def run_focal(label: int) -> None:
    x, labels, count = fluid.data("x", [2, 3]), fluid.data("l", [2, 1], "int32"), fluid.data("n", [1], "int32")
    out = layers.sigmoid_focal_loss(x, labels, count)
    feed = {"x": np.zeros((2, 3), "float32"), "l": np.int32([[0], [label]]), "n": np.int32([1])}
    fluid.Executor().run(feed=feed, fetch_list=[out])


@each(
    ("run", "message"),
    [
        (
            lambda: run_assign(np.zeros((3, 1, 2), "float32"), [[0, -1, -1], [2, 0, 1]]),
            "of image 1 should be below 2, its rows in X",
        ),
        (lambda: run_precision(3.0), r"the labels in DetectRes should be in \[0, 3\), class_num"),
        (lambda: run_focal(4), r"Label should be in \[-1, 3\]"),
    ],
    ids=["target_assign", "detection_map", "focal"],
)
def test_values_that_do_not_fit(run: Callable[[], None], message: str) -> None:
    with pytest.raises(ExecutionError, match=message):
        run()
