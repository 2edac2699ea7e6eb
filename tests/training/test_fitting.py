"""`fit`: programs and layers, validation, metrics, checkpoints, callbacks; and the metrics, beside formulas by hand."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fluid
from fluid import dygraph, layers, metrics
from fluid.errors import FluidTypeError, FormatError, ProgramError
from fluid.training import EarlyStopping, LayerTrainer, ProgramTrainer, fit

RNG = np.random.default_rng(0)
FEATURES = RNG.uniform(-1, 1, (60, 4)).astype("float32")
LABELS = (FEATURES[:, :1] > 0).astype("int64")


def program_trainer(**more: Any) -> tuple[ProgramTrainer, Any]:
    """A trainer of a new program, and its batches."""
    with fluid.program_guard(fluid.Program(), fluid.Program()), fluid.unique_name.guard():
        x, y = fluid.data("x", [None, 4]), fluid.data("y", [None, 1], "int64")
        scores = layers.fc(layers.dropout(layers.fc(x, 8, act="relu"), 0.1), 2, act="softmax")
        loss = layers.mean(layers.cross_entropy(scores, y))
        accuracy = layers.accuracy(scores, y)
        fluid.optimizer.Adam(0.05).minimize(loss)
        fluid.default_startup_program().random_seed = fluid.default_main_program().random_seed = 3
        if more.pop("with_metrics", False):
            more |= {"predictions": scores, "labels": y}
        trainer = ProgramTrainer(loss, {"accuracy": accuracy}, **more)
        return trainer, fluid.io.DataLoader(fluid.io.TensorDataset(FEATURES, LABELS), 16, shuffle=True, seed=1, feed_list=[x, y])


def test_a_program(capsys: pytest.CaptureFixture[str]) -> None:
    trainer, batches = program_trainer(with_metrics=True, metrics={"f1": metrics.F1Score(2), "top1": metrics.TopKAccuracy()})
    history = fit(trainer, batches, 15, validation=batches)
    assert len(history) == 15 and history[-1]["loss"] < 0.3 < history[0]["loss"]
    assert history[-1].keys() == {
        "loss", "accuracy", "validation_loss", "validation_accuracy", "validation_f1", "validation_top1",
    }  # fmt: skip
    assert (
        history[-1]["validation_top1"] == pytest.approx(history[-1]["validation_accuracy"]) and history[-1]["validation_f1"] > 0.8
    )
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 15 and lines[0].startswith("epoch   1/15  loss 0.") and "validation_f1" in lines[-1]


def test_means_are_over_samples_not_batches() -> None:
    with fluid.program_guard(fluid.Program(), fluid.Program()):
        x = fluid.data("x", [None, 1])
        weight = layers.create_parameter([1, 1], "float32", default_initializer=fluid.initializer.Constant(1.0))
        loss = layers.mean(layers.matmul(x, weight))
        fluid.optimizer.SGD(0.0).minimize(loss)
        trainer = ProgramTrainer(loss)
    feeds = [{"x": np.full([3, 1], 1, "float32")}, {"x": np.full([1, 1], 5, "float32")}]
    assert fit(trainer, feeds, 1, validation=feeds) == [{"loss": 2.0, "validation_loss": 2.0}]


def layer_trainer() -> tuple[LayerTrainer, Any]:
    dygraph.seed(2)
    net = dygraph.Sequential(dygraph.Linear(4, 8, act="relu"), dygraph.BatchNorm(None, 8), dygraph.Linear(8, 2))

    def loss(scores: Any, labels: Any) -> Any:
        return layers.mean(layers.softmax_with_cross_entropy(scores, labels))

    optimizer = fluid.optimizer.Adam(0.05, parameter_list=net.parameters())
    batches = fluid.io.DataLoader(fluid.io.TensorDataset(FEATURES, LABELS), 16, shuffle=True, seed=1)
    return LayerTrainer(net, loss, optimizer, {"matrix_f1": metrics.F1Score(2)}), batches


def test_a_layer() -> None:
    with dygraph.guard():
        trainer, batches = layer_trainer()
        history = fit(trainer, batches, 10, validation=batches)
        assert history[-1]["loss"] < 0.3 < history[0]["loss"] and history[-1]["validation_matrix_f1"] > 0.8
        assert trainer.net.training


@pytest.mark.parametrize("kind", ["program", "layer"])
def test_training_resumes_with_the_same_bits(kind: str, tmp_path: Path) -> None:
    make: Callable[[], Any] = program_trainer if kind == "program" else layer_trainer

    def trained(epochs: int, path: Path | None) -> Any:
        def run() -> Any:
            trainer, batches = make()
            return fit(trainer, batches, epochs, checkpoint=path)

        with fluid.scope_guard(fluid.Scope()):
            if kind == "program":
                return run()
            with dygraph.guard():
                return run()

    whole = trained(6, None)
    assert len(trained(2, tmp_path / "x.ckpt")) == 2
    assert trained(6, tmp_path / "x.ckpt") == whole
    assert trained(6, tmp_path / "x.ckpt") == whole  # all done: nothing is trained
    assert [path.name for path in tmp_path.iterdir()] == ["x.ckpt"]


def test_a_checkpoint_of_something_else(tmp_path: Path) -> None:
    np.savez(tmp_path / "x.npz", a=np.ones(2))
    with dygraph.guard():
        trainer, batches = layer_trainer()
        with pytest.raises(FormatError, match=r"x\.npz: it is no checkpoint of a LayerTrainer"):
            fit(trainer, batches, 2, checkpoint=tmp_path / "x.npz")
    program, feeds = program_trainer()
    with pytest.raises(FormatError, match="not a checkpoint"):
        fit(program, feeds, 2, checkpoint=tmp_path / "x.npz")


def test_callbacks_see_each_epoch_and_stop() -> None:
    trainer, batches = program_trainer()
    stopping, seen = EarlyStopping(patience=2), []

    def note(epoch: int, numbers: dict[str, float]) -> None:
        seen.append((epoch, numbers["loss"]))

    history = fit(trainer, batches, 50, callbacks=[lambda epoch, _: stopping.is_over(0.5), note])
    assert [epoch for epoch, _ in seen] == [1, 2, 3] and [loss for _, loss in seen] == [numbers["loss"] for numbers in history]


def test_bad_arguments() -> None:
    with pytest.raises(
        FluidTypeError, match=r"fit: trainer should be a ProgramTrainer\(loss\) or a LayerTrainer\(.*, not Linear"
    ):
        fluid.training.fit(fluid.dygraph.Linear(4, 2), [], epochs=1)  # type: ignore[arg-type]
    trainer, _ = program_trainer()
    with pytest.raises(ProgramError, match="fit: there are no batches to train on"):
        fit(trainer, [], 1)
    with pytest.raises(ProgramError, match="one epoch or more"):
        fit(trainer, [{}], 0)
    with pytest.raises(FluidTypeError, match="LayerTrainer trains layers"):
        ProgramTrainer(3)  # type: ignore[arg-type]
    with pytest.raises(FluidTypeError, match="ProgramTrainer trains programs"):
        LayerTrainer(3, None, None)  # type: ignore[arg-type]
    loss = layers.mean(layers.fc(fluid.data("x", [None, 2]), 1))
    with pytest.raises(ProgramError, match=r"has no optimizer; call minimize\(mean_0"):
        ProgramTrainer(loss)
    fluid.optimizer.SGD(0.1).minimize(loss)
    with pytest.raises(ProgramError, match="metrics are given predictions and labels"):
        ProgramTrainer(loss, metrics={"f1": metrics.F1Score()})


# --------------------------------------------------------------------------------------------------------------- metrics
def test_metrics_of_classes_beside_counts_by_hand() -> None:
    scores, labels = RNG.uniform(size=(50, 3)), RNG.integers(0, 3, (50, 1))
    found = scores.argmax(axis=1)
    matrix = np.array([[np.sum((labels[:, 0] == row) & (found == column)) for column in range(3)] for row in range(3)])
    f1 = []
    for kind in range(3):
        precision, recall = matrix[kind, kind] / matrix[:, kind].sum(), matrix[kind, kind] / matrix[kind].sum()
        f1.append(2 * precision * recall / (precision + recall))
    of_class = matrix.sum(axis=1)
    expected = {
        metrics.ConfusionMatrix(3): matrix,
        metrics.F1Score(3): np.mean(f1),
        metrics.F1Score(3, "weighted"): np.sum(f1 * of_class) / 50,
        metrics.F1Score(3, "micro"): np.mean(found == labels[:, 0]),
        metrics.TopKAccuracy(1): np.mean(found == labels[:, 0]),
        metrics.TopKAccuracy(2): np.mean(
            [label in np.argsort(row)[-2:] for row, label in zip(scores, labels[:, 0], strict=True)]
        ),
        metrics.TopKAccuracy(3): 1.0,
    }
    for metric, value in expected.items():
        for part in (slice(0, 20), slice(20, 20), slice(20, None)):  # an empty batch counts nothing
            metric.update(scores[part], labels[part])
        np.testing.assert_allclose(metric.eval(), value)
        metric.reset()
        if not isinstance(metric, metrics.ConfusionMatrix) or isinstance(metric, metrics.F1Score):
            with pytest.raises(ProgramError, match="no batch has been counted yet"):
                metric.eval()


def test_metrics_of_regressions_beside_formulas() -> None:
    truth, guesses = RNG.normal(3, 2, (40, 1)), RNG.normal(3, 2, (40, 1))
    expected = {
        metrics.MeanAbsoluteError(): np.mean(np.abs(guesses - truth)),
        metrics.MeanSquaredError(): np.mean((guesses - truth) ** 2),
        metrics.R2Score(): 1 - np.sum((guesses - truth) ** 2) / np.sum((truth - truth.mean()) ** 2),
    }
    for metric, value in expected.items():
        for part in (slice(0, 7), slice(7, None)):
            metric.update(guesses[part], truth[part])
        assert metric.eval() == pytest.approx(value)
    constant = metrics.R2Score()
    constant.update(np.ones(3), np.ones(3))
    assert constant.eval() == 1.0
    constant.update(np.zeros(1), np.ones(1))
    assert constant.eval() == 0.0


def test_metrics_refuse_what_does_not_fit() -> None:
    with pytest.raises(ProgramError, match=r"predictions should be scores \[N, classes\] for 2 labels, not \[3, 2\]"):
        metrics.TopKAccuracy().update(np.ones([3, 2]), np.zeros([2, 1]))
    with pytest.raises(ProgramError, match="labels should lie in 0 to 1"):
        metrics.ConfusionMatrix(2).update(np.ones([1, 2]), np.full([1, 1], 5))
    with pytest.raises(ProgramError, match="predictions should have 3 columns, not 2"):
        metrics.F1Score(3).update(np.ones([1, 2]), np.zeros([1, 1]))
    with pytest.raises(ProgramError, match=r"predictions \[2\] and labels \[2, 1\] should have one shape"):
        metrics.R2Score().update(np.ones(2), np.ones([2, 1]))
    for wrong in (lambda: metrics.TopKAccuracy(0), lambda: metrics.ConfusionMatrix(1), lambda: metrics.F1Score(2, "mean")):
        with pytest.raises(ProgramError):
            wrong()
