"""Losses of object detectors in programs with padded rows."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from checks import each
from padded_runs import Run, assert_close

import fluid
from fluid import layers
from fluid.executor.planned.padded_plan import PaddedPlan
from fluid.ir.program import Variable

PRIORS, CLASSES = 37, 4


def detector(**options: Any) -> list[Variable]:
    """A loss of boxes and classes that layers predict from features, for labelled boxes."""
    features = fluid.data("features", [None, 6])
    boxes, labels = fluid.data("boxes", [None, 4], lod_level=1), fluid.data("labels", [None, 1], "int32", 1)
    priors, variances = fluid.data("priors", [PRIORS, 4]), fluid.data("variances", [PRIORS, 4])
    location = layers.reshape(layers.fc(features, PRIORS * 4), [-1, PRIORS, 4])
    confidence = layers.reshape(layers.fc(features, PRIORS * CLASSES), [-1, PRIORS, CLASSES])
    losses = layers.ssd_loss(location, confidence, boxes, labels, priors, variances, **options)
    loss = layers.mean(losses)
    fluid.optimizer.SGD(0.01).minimize(loss)
    return [loss, losses]


def corners(rng: np.random.Generator, count: int, least: float, most: float) -> Any:
    centers, extents = rng.uniform(0.2, 0.8, (count, 2)), rng.uniform(least, most, (count, 2))
    return np.concatenate([centers - extents, centers + extents], 1).astype("float32")


def batch(counts: list[int], seed: int) -> dict[str, Any]:
    rng, rows, offsets = np.random.default_rng(seed), sum(counts), [np.cumsum([0, *counts]).tolist()]
    return {
        "features": rng.standard_normal((len(counts), 6)).astype("float32"),
        "boxes": (corners(rng, rows, 0.05, 0.3), offsets),
        "labels": (rng.integers(1, CLASSES, (rows, 1)).astype("int32"), offsets),
        "priors": corners(np.random.default_rng(0), PRIORS, 0.1, 0.2),
        "variances": np.tile(np.float32([0.1, 0.1, 0.2, 0.2]), (PRIORS, 1)),
    }


OPTIONS: dict[str, dict[str, Any]] = {
    "defaults": {}, "bipartite": {"match_type": "bipartite"}, "background last": {"background_label": 3},
    "few negatives": {"neg_pos_ratio": 0.7, "neg_overlap": 0.3}, "all priors": {"overlap_threshold": 0.01},
    "sums": {"normalize": False},
}  # fmt: skip


@each("name", OPTIONS)
def test_losses_of_detectors(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """Images with many boxes, with one, and without any."""
    counts = [[2, 0, 3, 1], [1, 1, 1, 1], [5, 40, 0, 3], [0, 0, 0, 2], [4, 3, 2, 1]]
    results: list[list[Any]] = []
    for native in (False, True):
        run, found = Run(lambda: detector(**OPTIONS[name]), native, monkeypatch), list[Any]()
        for number, of_images in enumerate(counts):
            found += map(np.asarray, run.tensors(batch(of_images, number)))
        results.append(found + run.states())
    feeds = [batch(of_images, 9) for of_images in ([2, 0, 3, 1], [1, 2, 1, 2])]
    plan, same = (run.executor.plan(run.program, feed, run.fetches, scope=run.scope) for feed in feeds)
    assert isinstance(plan, PaddedPlan)
    assert plan is same
    assert_close(results[1], results[0])


def test_negatives_of_few_losses_come_first_where_losses_are_equal(monkeypatch: pytest.MonkeyPatch) -> None:
    """With scores of zeros, all losses of the background are equal."""

    def learned(native: str) -> Any:
        monkeypatch.setenv("FLUID_NATIVE", native)
        boxes, priors = fluid.data("boxes", [None, 4], lod_level=1), fluid.data("priors", [PRIORS, 4])
        matches, similar = layers.bipartite_match(layers.iou_similarity(boxes, priors), "per_prediction", 0.5)
        losses, block = layers.fill_constant_batch_size_like(matches, [-1, PRIORS], "float32", 1.0), matches.block
        names = [block.create_var(name=fluid.unique_name.generate(name), dtype="int32") for name in ("negatives", "kept")]
        inputs = {"ClsLoss": losses, "MatchIndices": matches, "MatchDist": similar}
        attrs = {"neg_pos_ratio": 2.0, "neg_dist_threshold": 0.5}
        block.append_op("mine_hard_examples", inputs, {"NegIndices": names[0], "UpdatedMatchIndices": names[1]}, attrs)
        targets, weights = layers.target_assign(layers.reshape(boxes, [-1, 1, 4]), names[1], names[0], mismatch_value=-1)
        feed = batch([2, 0, 3, 1], 0)
        return fluid.Executor().run(feed={name: feed[name] for name in ("boxes", "priors")}, fetch_list=[targets, weights])

    results = []
    for native in "01":
        with fluid.program_guard(fluid.Program(), fluid.Program()):
            results.append(learned(native))
    assert_close(results[1], results[0])
