"""Measures on the host and in programs, held against plain statements of them and Paddle's own numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import fluid
from fluid import layers, metrics
from fluid.errors import FluidTypeError, ProgramError


def test_chunk_evaluator() -> None:
    metric = metrics.ChunkEvaluator()
    assert metric.eval() == (0.0, 0.0, 0.0)
    metric.update(np.array([4]), np.array([5]), np.array([2]))
    metric.update(6, 3, 3)
    precision, recall = 5 / 10, 5 / 8
    assert metric.eval() == pytest.approx((precision, recall, 2 * precision * recall / (precision + recall)))
    with pytest.raises(ProgramError, match=r"num_label_chunks should be a count, not 1\.5"):
        metric.update(1, 1.5, 1)
    metric.reset()
    states = {"num_infer_chunks": 0, "num_label_chunks": 0, "num_correct_chunks": 0}
    assert metric.get_config() == {"name": "ChunkEvaluator", "states": states}


def test_edit_distance() -> None:
    metric = metrics.EditDistance("distance")
    assert str(metric) == "distance"
    with pytest.raises(ProgramError, match="no sequence has been counted yet; call update first"):
        metric.eval()
    metric.update(np.array([[0.0], [2.0], [1.0]]), 3)
    metric.update(np.array([[0.0]]), np.array([1]))
    assert metric.eval() == (0.75, 0.5)
    with pytest.raises(ProgramError, match="there are 2 distances but 3 sequences"):
        metric.update(np.zeros((2, 1)), 3)
    with pytest.raises(FluidTypeError, match="distances should be an array of numbers, not 'x'"):
        metric.update("x", 1)


def test_auc_is_the_share_of_pairs_in_order() -> None:
    rng = np.random.default_rng(1)
    preds, labels = rng.random((200, 1)), rng.integers(0, 2, (200, 1))
    metric = metrics.Auc("auc", num_thresholds=1 << 20)
    for part in (slice(0, 77), slice(77, None)):
        metric.update(np.concatenate([1 - preds[part], preds[part]], 1), labels[part])
    pairs = preds[labels == 1][:, None] - preds[labels == 0][None, :]
    assert metric.eval() == pytest.approx((pairs > 0).mean(), abs=1e-4)
    metric.reset()
    assert metric.eval() == 0.0


def test_auc_is_paddles() -> None:
    rng = np.random.default_rng(0)
    preds, labels = rng.random((50, 1)), rng.integers(0, 2, (50, 1))
    metric = metrics.Auc("auc")
    metric.update(np.concatenate([1 - preds, preds], 1), labels)
    assert metric.eval() == pytest.approx(0.6030595813204509, rel=1e-12)


def test_auc_with_ties_counts_them_half() -> None:
    metric = metrics.Auc("auc")
    metric.update(np.array([[0.5, 0.5]] * 4), np.array([0, 1, 1, 0]))
    assert metric.eval() == 0.5
    assert metric.trapezoid_area(3, 1, 2, 4) == 6


def test_errors_of_auc() -> None:
    with pytest.raises(ProgramError, match="the curve is 'ROC', not 'PR'"):
        metrics.Auc("auc", "PR")
    with pytest.raises(ProgramError, match="num_thresholds should be positive"):
        metrics.Auc("auc", num_thresholds=0)
    metric = metrics.Auc("auc")
    with pytest.raises(
        ProgramError, match=r"preds should be \[N, 2\], labels \[N, 1\], not \[3, 1\] and 3 labels|preds should be"
    ):
        metric.update(np.ones((3, 1)), np.ones(3))
    with pytest.raises(ProgramError, match="between 0 and 1"):
        metric.update(np.array([[0.0, 1.5]]), [1])


# ------------------------------------------------------------------------------------------------- sums in the program
class Counted(fluid.evaluator.Evaluator):
    """A metric that sums its inputs."""

    def __init__(self, value: fluid.Variable) -> None:
        super().__init__("counted")
        self.total = self._add("total", layers.reduce_sum(value), "int64")


def test_evaluators_sum_over_runs() -> None:
    x = fluid.data("x", [None], "int64")
    counted = Counted(x)
    executor = fluid.Executor()
    with pytest.raises(ProgramError, match=r"counted: counted_0.total_0 has no value; run the startup program, or reset\(\) it"):
        counted._sums()
    executor.run(fluid.default_startup_program())
    for values in ([1, 2], [3]):
        executor.run(feed={"x": np.array(values)}, fetch_list=[counted.total])
    assert counted._sums() == [6]
    counted.reset(executor)
    executor.run(feed={"x": np.array([5])})
    assert counted._sums() == [5]


def test_edit_distance_evaluator() -> None:
    if not hasattr(layers, "edit_distance"):
        pytest.skip("needs the layer edit_distance")
    said, true = fluid.data("said", [None, 1], "int64", lod_level=1), fluid.data("true", [None, 1], "int64", lod_level=1)
    evaluator = fluid.evaluator.EditDistance(said, true, normalized=False)
    executor = fluid.Executor()
    executor.run(fluid.default_startup_program())
    with pytest.raises(ProgramError, match="no sequence has been counted yet; run the program first"):
        evaluator.eval(executor)

    def feed(left: Any, right: Any) -> dict[str, Any]:
        return {
            name: fluid.create_lod_tensor(value, [[len(item) for item in value]], executor.place)
            for name, value in (("said", left), ("true", right))
        }

    executor.run(feed=feed([[1, 2, 3], [4]], [[1, 3], [4]]), fetch_list=evaluator.metrics)
    executor.run(feed=feed([[1, 1, 1]], [[2, 2, 2]]), fetch_list=evaluator.metrics)
    distance, wrong = evaluator.eval(executor)
    np.testing.assert_allclose(distance, [4 / 3], 1e-6)
    np.testing.assert_allclose(wrong, [2 / 3], 1e-6)


def test_chunk_evaluator_in_a_program() -> None:
    if not hasattr(layers, "chunk_eval"):
        pytest.skip("needs the layer chunk_eval")
    said, true = fluid.data("said", [None, 1], "int64", lod_level=1), fluid.data("true", [None, 1], "int64", lod_level=1)
    evaluator = fluid.evaluator.ChunkEvaluator(said, true, "IOB", 2)
    executor = fluid.Executor()
    executor.run(fluid.default_startup_program())
    place = executor.place
    for found, wanted in (([0, 1, 4, 2], [0, 1, 4, 0]), ([2, 3, 3], [2, 3, 3])):
        feed = {
            "said": fluid.create_lod_tensor([found], [[len(found)]], place),
            "true": fluid.create_lod_tensor([wanted], [[len(wanted)]], place),
        }
        executor.run(feed=feed, fetch_list=evaluator.metrics)
    np.testing.assert_allclose(evaluator.eval(executor), [2 / 3, 2 / 3, 2 / 3], 1e-6)
