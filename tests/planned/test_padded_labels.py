"""CTC over sequences, and patches of images as sequences, in programs with padded rows."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from checks import each
from padded_runs import BATCHES, TAGS, Run, assert_as_on_numpy, assert_close, assert_runs_agree, fed, fed_x

import fluid
from fluid import layers
from fluid.errors import ExecutionError
from fluid.executor.planned.padded_plan import PaddedPlan
from fluid.ir.program import Variable

FEW = [[2, 0, 3, 1, 1], [1, 0, 0, 0, 0], [4, 4, 0, 0, 3], [3, 3, 3, 3, 4], [70, 0, 130, 4, 1], [4, 3, 3, 3, 4]]


def trained(loss: Variable, *fetches: Variable) -> list[Variable]:
    fluid.optimizer.SGD(0.1).minimize(loss)
    return [loss, *fetches]


@each("norm_by_times", [False, True])
@each("dtype", ["float32", "float64"])
def test_ctc_of_sequences(monkeypatch: pytest.MonkeyPatch, norm_by_times: bool, dtype: str) -> None:
    """Labels are as long as their sequences, so some alignments do not fit, and some sequences are empty."""

    def build() -> list[Variable]:
        x = fed_x(dtype)
        rows = layers.tanh(x + layers.create_parameter([4], dtype, is_bias=True))
        loss = layers.warpctc(layers.fc(rows, TAGS + 1), fed("tags"), TAGS, norm_by_times)
        return [*trained(layers.mean(loss), loss), x.block.var("x@GRAD")]

    run = assert_runs_agree(build, monkeypatch, BATCHES if dtype == "float32" else FEW, dtype)
    plan, same = (run.plan(lengths) for lengths in ([3, 3, 3, 3, 4], [4, 3, 3, 3, 3]))
    assert plan is same
    assert all(instruction.is_native for instruction in plan._plan.instructions)


def test_ctc_with_labels_of_other_lengths(monkeypatch: pytest.MonkeyPatch) -> None:
    def build() -> list[Variable]:
        tags = layers.cast(layers.clip(layers.abs(layers.reduce_sum(fed("beside"), 1, True)) * 2.0, 0.0, 3.0), "int32")
        loss = layers.warpctc(layers.fc(fed_x(), 5), tags, 4)
        return trained(layers.mean(loss), loss)

    assert_runs_agree(build, monkeypatch, FEW)


def test_the_gradient_of_warpctc_alone_is_not_fetched_with_padding(monkeypatch: pytest.MonkeyPatch) -> None:
    """WarpCTCGrad has the steps of the longest sequence, however many steps a plan pads to."""

    def build() -> list[Variable]:
        loss = layers.warpctc(layers.fc(fed_x(), TAGS + 1), fed("tags"), TAGS)
        return [loss, loss.block.var(loss.op.output("WarpCTCGrad")[0])]

    assert_as_on_numpy(build, monkeypatch, FEW)


def read_strips(kernel: list[int], stride: list[int], padding: int) -> tuple[Variable, Variable]:
    """A loss and the scores of a net that reads labels from images 4 high and 6 wide, with their number of channels."""
    images, label = fluid.data("images", [None, 1, 4, 6]), fluid.data("label", [None, 1], "int32", 1)
    columns = layers.im2sequence(layers.conv2d(images, 3, 3, padding=1, act="relu"), kernel, stride, padding)
    hidden = layers.fc(columns, 9)
    steps = layers.concat([layers.dynamic_gru(hidden, 3), layers.dynamic_gru(hidden, 3, is_reverse=True)], 1)
    scores = layers.fc(steps, 4)
    return layers.mean(layers.warpctc(scores, label, 3)), scores


def strips(lengths: list[int], images: int = 4) -> dict[str, Any]:
    rng = np.random.default_rng(sum(lengths))
    labels = rng.integers(0, 3, (sum(lengths), 1)).astype("int32")
    return {
        "images": rng.standard_normal((images, 1, 4, 6)).astype("float32"),
        "label": (labels, [np.cumsum([0, *lengths]).tolist()]),
    }


PATCHES = {
    "columns": ([4, 1], [1, 1], 0), "tiles": ([2, 3], [2, 3], 0), "overlapping": ([3, 2], [1, 1], 0),
    "padded": ([4, 2], [2, 2], 1), "gaps": ([1, 1], [2, 2], 0),
}  # fmt: skip


@each("name", PATCHES)
def test_labels_of_images(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    def build() -> list[Variable]:
        loss, scores = read_strips(*PATCHES[name])
        return trained(loss, scores)

    results: list[list[Any]] = []
    for native in (False, True):
        run, found = Run(build, native, monkeypatch), list[Any]()
        for lengths in ([1, 3, 0, 2], [2, 2, 2, 2], [5, 1, 1, 1], [0, 0, 0, 1], [2, 1, 2, 3]):
            feed = strips(lengths)
            found += [part for tensor in run.tensors(feed) for part in (np.asarray(tensor), tensor.lod())]
        results.append(found + run.states())
    assert isinstance(run.executor.plan(run.program, feed, run.fetches, scope=run.scope), PaddedPlan)
    assert_close(results[1], results[0])


def test_more_images_than_sequences_of_labels(monkeypatch: pytest.MonkeyPatch) -> None:
    """Images beside sequences that are not their labels, of other numbers."""
    monkeypatch.setenv("FLUID_NATIVE", "1")
    images, label = fluid.data("images", [None, 1, 4, 6]), fluid.data("label", [None, 1], "int32", 1)
    columns = layers.sequence_pool(layers.im2sequence(images, [4, 1], [1, 1]), "sum")
    counts = layers.sequence_pool(layers.cast(label, "float32"), "sum")
    executor = fluid.Executor()
    for number in (4, 3, 7):
        feed = strips([1, 3, 0, 2], number)
        pooled, counted = executor.run(feed=feed, fetch_list=[columns, counts])
        np.testing.assert_allclose(pooled, feed["images"].sum(3).reshape(number, 4), rtol=1e-5)
        assert counted.shape == (4, 1)


@each("merged", [True, False])
def test_distances_of_decoded_labels(monkeypatch: pytest.MonkeyPatch, merged: bool) -> None:
    """Sequences without steps, and of blanks alone, are decoded to nothing."""

    def build() -> list[Variable]:
        x, tags = fed_x(), fed("tags")
        best = layers.topk(layers.fc(x, TAGS + 1), 1)[1]
        words = x.block.create_var(name="words", dtype="int64")
        x.block.append_op("ctc_align", {"Input": best}, {"Output": words}, {"blank": 2, "merge_repeated": merged})
        distances, count = layers.edit_distance(words, tags, normalized=False)
        loss = layers.mean(layers.warpctc(layers.fc(x, TAGS + 1), tags, TAGS))
        return trained(loss, distances, count, layers.edit_distance(tags, tags, normalized=False)[0])

    assert_runs_agree(build, monkeypatch, BATCHES)


def test_decoded_labels_that_are_fetched_or_erased(monkeypatch: pytest.MonkeyPatch) -> None:
    """Their number depends on values, so the program runs op by op."""

    def build(erases: bool) -> list[Variable]:
        words = layers.ctc_greedy_decoder(layers.softmax(layers.scale(fed_x(), 2.0)), 0)
        return [layers.edit_distance(words, fed("tags"), False, [1, 2] if erases else None)[0], *([] if erases else [words])]

    for erases in (False, True):
        assert_as_on_numpy(lambda erases=erases: build(erases), monkeypatch, FEW)


def test_the_distance_to_nothing_cannot_be_normalized(monkeypatch: pytest.MonkeyPatch) -> None:
    messages = []
    for native in (False, True):
        run = Run(lambda: [layers.edit_distance(fed("ids"), fed("tags"))[0]], native, monkeypatch)
        with pytest.raises(ExecutionError, match="sequence 1 of Refs is empty") as error:
            run.step([2, 0, 3, 1, 1])
        messages.append(str(error.value).splitlines()[0])
    assert messages[0] == messages[1]
