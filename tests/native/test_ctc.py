"""CTC natively: numbers of labels around vectors, sequences of all lengths, alignments that do not fit."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from beside_numpy import assert_alike
from checked_plans import checked_plans
from checks import each, fresh_programs

import fluid
from fluid import layers


def batch(steps: int, sequences: int, classes: int, labels: int, dtype: str = "float32", blank: int = 0) -> dict[str, Any]:
    """Logits and labels of random lengths; labels behind the lengths are no classes."""
    rng = np.random.default_rng(steps + labels)
    label = rng.integers(0, max(classes - 1, 1), (sequences, labels))
    label += label >= blank
    letters = rng.integers(0, labels + 1, sequences)
    label[np.arange(labels) >= letters[:, None]] = -7
    frames = rng.integers(0, steps + 1, sequences)
    frames[0], frames[-1] = steps, steps // 2
    logits = rng.standard_normal((steps, sequences, classes)).astype(dtype)
    return {"logits": logits, "label": label.astype("int32"), "frames": frames, "letters": letters}


def losses(feed: dict[str, Any], blank: int = 0, norm_by_times: bool = False) -> list[Any]:
    """The losses, and the gradient of their squares by the logits."""
    logits, *indices = (fluid.data(name, array.shape, str(array.dtype)) for name, array in feed.items())
    logits.stop_gradient = False
    loss = layers.warpctc(layers.scale(logits, 1.5), indices[0], blank, norm_by_times, *indices[1:])
    return [loss, *fluid.gradients([layers.reduce_sum(loss * loss)], [logits])]


@each("dtype", ["float32", "float64"])
@each("steps", [1, 7, 40])
@each("labels", [1, 14, 15, 16, 17, 33])
def test_numbers_of_steps_and_labels(monkeypatch: pytest.MonkeyPatch, dtype: str, steps: int, labels: int) -> None:
    feed = batch(steps, 9, 17, labels, dtype)
    assert_alike(lambda: losses(feed), feed, tolerance=1e-4 if dtype == "float32" else 1e-11)
    with fresh_programs(), checked_plans(monkeypatch) as plans:
        fluid.Executor().run(feed=feed, fetch_list=losses(feed))
        assert plans.calls


@each("classes", [1, 2, 16, 33])
@each("blank", [0, -1])
@each("norm_by_times", [False, True])
def test_classes_and_blanks(classes: int, blank: int, norm_by_times: bool) -> None:
    blank %= classes
    feed = batch(20, 5, classes, 6, blank=blank)
    if classes == 1:
        feed["letters"][:] = 0  # the blank alone
    assert_alike(lambda: losses(feed, blank, norm_by_times), feed, tolerance=1e-4)


def test_the_plan_is_native() -> None:
    feed = batch(20, 5, 8, 6)
    plan: Any = fluid.Executor().plan(feed=feed, fetch_list=losses(feed))
    assert all(instruction.is_native for instruction in plan.instructions)


def test_alignments_that_do_not_fit_cost_nothing() -> None:
    """There are more labels than steps, or as many, and a repeated label needs a blank in between."""
    feed = batch(3, 4, 5, 4)
    feed["label"] = np.int32([[1, 2, 3, 4], [1, 1, 2, 0], [1, 2, 3, 0], [1, 1, 0, 0]])
    feed |= {"letters": np.int64([4, 3, 3, 2]), "frames": np.full(4, 3)}
    assert_alike(lambda: losses(feed), feed)
    with fresh_programs():
        values, gradient = fluid.Executor().run(feed=feed, fetch_list=losses(feed))
    assert values[:2].tolist() == [[0], [0]]
    assert (values[2:] > 0).all()
    assert not gradient[:, :2].any()


@each("scale", [100.0, 1e4])
def test_logits_far_apart(scale: float) -> None:
    """Some paths have no probability in float32, and the loss is finite."""
    feed = batch(30, 6, 9, 8, "float64")
    feed["logits"] *= scale
    assert_alike(lambda: losses(feed), feed, tolerance=1e-9)
    feed["logits"] = feed["logits"].astype("float32")  # logs as large have few digits behind the point
    if scale < 1e3:
        assert_alike(lambda: losses(feed), feed, tolerance=1e-3)
    with fresh_programs():
        assert np.isfinite(fluid.Executor().run(feed=feed, fetch_list=losses(feed))[0]).all()


@each("number", [np.nan, -np.inf, np.inf])
def test_logits_that_are_not_finite(number: float) -> None:
    feed = batch(12, 3, 5, 4)
    feed["letters"][:], feed["frames"][:] = 2, 12
    feed["label"][:] = 1, 2, -7, -7
    feed["logits"][3, 1, 4] = number  # of a class that is no label: masked, say
    assert_alike(lambda: losses(feed), feed)
    feed["logits"][3, 1, 2] = number
    assert_alike(lambda: losses(feed), feed)


@each("native", "01")
def test_gradients_of_labels_without_probability(monkeypatch: pytest.MonkeyPatch, native: str) -> None:
    """A label that is masked in one step goes through the others; one that is masked in all steps has no gradient."""
    monkeypatch.setenv("FLUID_NATIVE", native)
    feed = batch(12, 3, 5, 4)
    feed["letters"][:], feed["frames"][:] = 2, 12
    feed["label"][:] = 1, 2, -7, -7
    feed["logits"][3, 1, 2], feed["logits"][:, 2, 1] = -np.inf, -np.inf
    values, gradient = fluid.Executor().run(feed=feed, fetch_list=losses(feed))
    assert (values[:2] < 100).all()
    assert values[2] == np.float32(1e30)
    assert np.isfinite(gradient[:, :2]).all()
    np.testing.assert_allclose(gradient[:, :2].sum(2), 0, atol=1e-3)
    assert np.isnan(gradient[:, 2]).all()
