"""`fit`: a training loop over a loader, to be called or copied, for programs and for eager layers."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from ..errors import FluidTypeError, FormatError, ProgramError, type_name
from ..executor import Executor, global_scope
from ..formats.npz import read_npz, write_npz
from ..ir.checked import checked
from ..ir.program import OpRole, Variable, default_startup_program
from ..metrics import MetricBase
from .progress import Progress

Numbers = dict[str, float]
_STATE = "@TRAINING@"


class Trainer(Protocol):
    """What `fit` needs to train: `ProgramTrainer`, `LayerTrainer`, or a class of your own with these methods."""

    def train(self, batch: Any) -> tuple[int, Numbers]:
        """Train on a batch: the number of its samples, and means over them, such as the loss."""

    def evaluate(self, batches: Iterable[Any]) -> Numbers:
        """The means and metrics over batches, without training."""

    def save(self, path: str, epoch: int, state: Mapping[str, Any]) -> None:
        """Write a checkpoint after this number of epochs, with the state of the loop."""

    def load(self, path: str) -> tuple[int, Mapping[str, Any]]:
        """Read a checkpoint: the number of epochs, and the state of the loop."""


@checked
def fit(
    trainer: Trainer,
    batches: Any,
    epochs: int,
    validation: Iterable[Any] | None = None,
    checkpoint: str | os.PathLike[str] | None = None,
    callbacks: Sequence[Callable[[int, Numbers], Any]] = (),
) -> list[Numbers]:
    """Train for some epochs: a bar or a line shows each, a checkpoint keeps it, and the next call goes on from there.

    The loop is short, for you to copy where you need another one::

        for epoch in range(first, epochs):
            means = Means()
            for batch in batches:
                means.add(*trainer.train(batch))
            numbers = means.eval() | trainer.evaluate(validation)
            history.append(numbers)
            trainer.save(checkpoint, epoch + 1, {"history": history})
            if True in [callback(epoch + 1, numbers) for callback in callbacks]:
                break

    Args:
        trainer: trains on a batch: a `ProgramTrainer` or `LayerTrainer`.
        batches: a `fluid.io.DataLoader`, or a list of batches; each iteration over it is an epoch.
        epochs: how many epochs there are in all, with the epochs before the checkpoint.
        validation: batches to evaluate after each epoch; its numbers are named ``validation_loss`` and so on.
        checkpoint: the file that is written after each epoch. If it exists, training resumes from it.
        callbacks: functions of the number of epochs done and the numbers, which are called after each epoch; one that returns
            True ends the training. So ``lambda epoch, numbers: stopping.is_over(numbers["validation_loss"])`` stops early, for a
            `fluid.training.EarlyStopping`, and ``lambda epoch, numbers: log.write(epoch, **numbers)`` writes a log.

    Returns:
        The numbers of each epoch, first to last, with those before the checkpoint.

    Raises:
        ProgramError: there are no batches, or `epochs` is below 1.
        FormatError: the checkpoint cannot be read, or belongs to something else.

    >>> x, y = fluid.data("x", [None, 1]), fluid.data("y", [None, 1])
    >>> loss = layers.mse_loss(layers.fc(x, 1), y)
    >>> _ = fluid.optimizer.SGD(0.5).minimize(loss)
    >>> data = np.linspace(-1, 1, 20, dtype="float32").reshape(20, 1)
    >>> batches = fluid.io.DataLoader(fluid.io.TensorDataset(data, 2 * data), 5, feed_list=[x, y])
    >>> history = fluid.training.fit(fluid.training.ProgramTrainer(loss), batches, epochs=20)  # doctest: +ELLIPSIS
    epoch   1/20  loss ...
    >>> history[-1]["loss"] < 0.01
    True
    """
    if not all(hasattr(trainer, name) for name in ("train", "evaluate", "save", "load")):
        raise FluidTypeError(
            "fit: trainer should be a ProgramTrainer(loss) or a LayerTrainer(net, loss_function, optimizer), not "
            f"{type(trainer).__name__}"
        )
    path = None if checkpoint is None else os.fspath(checkpoint)
    history: list[Numbers] = []
    first = 0
    if path is not None and os.path.exists(path):
        first, state = trainer.load(path)
        history = list(state.get("history", []))
        if "batches" in state and hasattr(batches, "load_state_dict"):
            batches.load_state_dict(state["batches"])
    if first >= epochs > 0:
        return history
    with Progress(epochs, _length(batches), first) as progress:
        for epoch in range(first, epochs):
            means = _Means()
            for batch in batches:
                count, numbers = trainer.train(batch)
                means.add(count, numbers)
                progress.step(count)
            again = "; what gives batches once should be a list, or a DataLoader" if epoch > first else ""
            numbers = means.eval(f"fit: there are no batches to train on{again}")
            if validation is not None:
                numbers |= {f"validation_{name}": value for name, value in trainer.evaluate(validation).items()}
            history.append(numbers)
            if path is not None:
                state = {"history": history}
                if hasattr(batches, "state_dict"):
                    state["batches"] = batches.state_dict()
                trainer.save(path, epoch + 1, state)
            progress.epoch(**numbers)
            answers = [callback(epoch + 1, numbers) for callback in callbacks]
            if True in answers:
                break
    return history


def _length(batches: Any) -> int | None:
    """The number of batches of an epoch; None if it is not known."""
    try:
        return len(batches) or None
    except TypeError:  # of a stream
        return None


class _Means:
    """Means over samples, from means over batches."""

    def __init__(self) -> None:
        self._count = 0
        self._sums: Numbers = {}

    def add(self, count: int, numbers: Numbers) -> None:
        """Count a batch of `count` samples with these means."""
        self._count += count
        for name, value in numbers.items():
            self._sums[name] = self._sums.get(name, 0.0) + count * value

    def eval(self, complaint: str) -> Numbers:
        """The means; a `ProgramError` if nothing has been counted."""
        if not self._count:
            raise ProgramError(complaint)
        return {name: value / self._count for name, value in self._sums.items()}


def _one_number(name: str, value: Any) -> float:
    array = np.asarray(value)
    if array.size != 1:
        raise ProgramError(f"{name} should be one number, such as a mean, and not {list(array.shape)}")
    return float(array.reshape(()))


def _evaluated(metrics: Mapping[str, MetricBase]) -> Numbers:
    return {name: float(metric.eval()) for name, metric in metrics.items()}


class ProgramTrainer:
    """Trains a program that has an optimizer, by an executor.

    Args:
        loss: the variable to minimize; `minimize` has been called already.
        measures: other variables of one number, by name, which are shown as means, such as ``{"accuracy": accuracy}``.
        predictions, labels: variables whose values `metrics` are given in an evaluation.
        metrics: metrics by name, such as ``{"f1": fluid.metrics.F1Score()}``.
        executor: runs the program; by default one on the CPU, and the startup program is run at once where a parameter has no
            value yet.

    The batches are feeds of `Executor.run`. An evaluation runs ``program.clone(for_test=True)``.

    Raises:
        FluidTypeError: `loss` is no variable of a program.
        ProgramError: the program has no optimizer, or metrics lack `predictions` or `labels`.

    >>> x, y = fluid.data("x", [None, 2]), fluid.data("y", [None, 1], "int64")
    >>> scores = layers.fc(x, 2, act="softmax")
    >>> loss = layers.mean(layers.cross_entropy(scores, y))
    >>> _ = fluid.optimizer.SGD(0.5).minimize(loss)
    >>> trainer = fluid.training.ProgramTrainer(
    ...     loss, predictions=scores, labels=y, metrics={"top1": fluid.metrics.TopKAccuracy(1)}
    ... )
    >>> batch = {"x": np.ones([4, 2], "float32"), "y": np.ones([4, 1], "int64")}
    >>> count, numbers = trainer.train(batch)
    >>> count, list(numbers), sorted(trainer.evaluate([batch]))
    (4, ['loss'], ['loss', 'top1'])
    """

    def __init__(
        self,
        loss: Variable,
        measures: Mapping[str, Variable] | None = None,
        predictions: Variable | None = None,
        labels: Variable | None = None,
        metrics: Mapping[str, MetricBase] | None = None,
        executor: Executor | None = None,
    ) -> None:
        if not isinstance(loss, Variable) or loss.block.program.eager:
            raise FluidTypeError(
                f"ProgramTrainer: loss should be a variable of a program, not {type(loss).__name__}; LayerTrainer trains layers"
            )
        if metrics and (predictions is None or labels is None):
            raise ProgramError("ProgramTrainer: metrics are given predictions and labels; name these variables, too")
        self.program = loss.block.program
        if not any(op.role & OpRole.OPTIMIZE for op in self.program.global_block().ops):
            raise ProgramError(f"ProgramTrainer: the program of {loss.name} has no optimizer; call minimize({loss.name}) first")
        self._measures = {"loss": loss, **(measures or {})}
        self._seen = [] if predictions is None or labels is None else [predictions, labels]
        self._metrics = dict(metrics or {})
        self._test = self.program.clone(for_test=True)
        self.executor = executor if executor is not None else Executor()
        scope = global_scope()
        if any(scope.array(param.name) is None for param in self.program.all_parameters()):
            self.executor.run(default_startup_program())

    def train(self, batch: Mapping[str, Any]) -> tuple[int, Numbers]:
        """Run the program on a feed: the number of samples, the loss and the measures."""
        return _rows(batch), self._numbers(self.executor.run(self.program, batch, list(self._measures.values())))

    def evaluate(self, batches: Iterable[Mapping[str, Any]]) -> Numbers:
        """The means of the loss and the measures over feeds, and the metrics."""
        means = _Means()
        for metric in self._metrics.values():
            metric.reset()
        for batch in batches:
            values = self.executor.run(self._test, batch, [*self._measures.values(), *self._seen])
            means.add(_rows(batch), self._numbers(values))
            for metric in self._metrics.values():
                metric.update(*values[len(self._measures) :])
        return means.eval("evaluate: there are no batches") | _evaluated(self._metrics)

    def _numbers(self, values: Sequence[Any]) -> Numbers:
        return {name: _one_number(name, value) for name, value in zip(self._measures, values, strict=False)}

    def save(self, path: str, epoch: int, state: Mapping[str, Any]) -> None:
        """Save a checkpoint of the program, by `fluid.save_checkpoint`.

        Args:
            path: the file.
            epoch: how many epochs are done.
            state: the state of the loop: numbers, texts, and lists and dicts of them.
        """
        from ..saving.checkpoint import save_checkpoint

        save_checkpoint(self.program, path, epoch, state={**state, "epoch": epoch})

    def load(self, path: str) -> tuple[int, Mapping[str, Any]]:
        """Load a checkpoint of the program: the number of epochs, and the state of the loop."""
        from ..saving.checkpoint import load_checkpoint

        checkpoint = load_checkpoint(self.program, path, self.executor)
        return checkpoint.step, checkpoint.state


def _rows(batch: Mapping[str, Any]) -> int:
    """The number of samples of a feed: the rows of its first value."""
    if not isinstance(batch, Mapping):
        raise FluidTypeError(
            f"ProgramTrainer: a batch should be a dict of arrays by the names of variables, not {type_name(batch)}; a DataLoader "
            "gives such batches with feed_list=[x, y]"
        )
    for value in batch.values():
        return len(value)
    raise ProgramError("a batch feeds nothing")


class LayerTrainer:
    """Trains a layer of eager mode.

    Args:
        net: the layer; it is called with all entries of a batch but the last, which are the labels.
        loss: a function of the net's output and the labels that gives one number, as a tensor.
        optimizer: updates the parameters of the net.
        metrics: metrics by name, which are given outputs and labels as arrays in an evaluation.

    The batches are lists of tensors, as a `fluid.io.DataLoader` makes them in eager mode. An evaluation puts the net into test
    mode. A checkpoint holds parameters, buffers and the state of the optimizer; not how many random numbers were drawn, so that
    dropout goes on with others after it.

    >>> with dygraph.guard():
    ...     net = dygraph.Linear(1, 1)
    ...     trainer = fluid.training.LayerTrainer(
    ...         net, layers.mse_loss, fluid.optimizer.SGD(0.5, parameter_list=net.parameters()),
    ...         metrics={"r2": fluid.metrics.R2Score()},
    ...     )
    ...     data = np.linspace(-1, 1, 20, dtype="float32").reshape(20, 1)
    ...     batches = fluid.io.DataLoader(fluid.io.TensorDataset(data, 2 * data), 5)
    ...     for epoch in range(20):
    ...         for batch in batches:
    ...             count, numbers = trainer.train(batch)
    ...     round(trainer.evaluate(batches)["r2"], 2)
    1.0
    """

    def __init__(
        self, net: Any, loss: Callable[[Any, Any], Any], optimizer: Any, metrics: Mapping[str, MetricBase] | None = None
    ) -> None:
        if not callable(getattr(net, "clear_gradients", None)):
            raise FluidTypeError(
                f"LayerTrainer: net should be a dygraph.Layer, not {type(net).__name__}; ProgramTrainer trains programs"
            )
        if not callable(loss):
            raise FluidTypeError(f"LayerTrainer: loss should be a function of outputs and labels, not {type_name(loss)}")
        if not callable(getattr(optimizer, "minimize", None)):
            raise FluidTypeError(f"LayerTrainer: optimizer should be one of fluid.optimizer, not {type_name(optimizer)}")
        self.net, self.optimizer = net, optimizer
        self._loss, self._metrics = loss, dict(metrics or {})

    def train(self, batch: Sequence[Any]) -> tuple[int, Numbers]:
        """A forward pass, a backward pass and an update; the number of samples, and the loss."""
        if not isinstance(batch, (list, tuple)) or len(batch) < 2:
            raise FluidTypeError(
                f"LayerTrainer: a batch should be a list of inputs and labels, as tensors, not {type_name(batch)}"
            )
        self.net.train()
        *inputs, labels = batch
        loss = self._loss(self.net(*inputs), labels)
        loss.backward()
        self.optimizer.minimize(loss)
        self.net.clear_gradients()
        return len(labels), {"loss": _one_number("loss", loss.numpy())}

    def evaluate(self, batches: Iterable[Sequence[Any]]) -> Numbers:
        """The mean loss over batches, and the metrics, in test mode."""
        means = _Means()
        for metric in self._metrics.values():
            metric.reset()
        was_training = self.net.training
        self.net.eval()
        try:
            for *inputs, labels in batches:
                outputs = self.net(*inputs)
                means.add(len(labels), {"loss": _one_number("loss", self._loss(outputs, labels).numpy())})
                for metric in self._metrics.values():
                    metric.update(outputs.numpy(), labels.numpy())
        finally:
            if was_training:
                self.net.train()
        return means.eval("evaluate: there are no batches") | _evaluated(self._metrics)

    def save(self, path: str, epoch: int, state: Mapping[str, Any]) -> None:
        """Write parameters, the optimizer's state and the loop's state to one archive.

        Args:
            path: the file.
            epoch: how many epochs are done.
            state: the state of the loop: numbers, texts, and lists and dicts of them.
        """
        arrays = {f"net/{name}": value.numpy() for name, value in self.net.state_dict().items()}
        of_optimizer = self.optimizer.state_dict()
        schedule = of_optimizer.pop("LR_Scheduler", None)
        arrays |= {f"optimizer/{name}": np.asarray(value) for name, value in of_optimizer.items()}
        text = json.dumps({"format": 1, "epoch": epoch, "state": dict(state), "schedule": schedule})
        arrays[_STATE] = np.frombuffer(text.encode(), np.uint8)
        write_npz(path, arrays)

    def load(self, path: str) -> tuple[int, Mapping[str, Any]]:
        """Read the archive of `save`: the number of epochs, and the state of the loop."""
        arrays = read_npz(path)
        epoch = epoch_of(path, arrays)
        if epoch is None:
            raise FormatError(f"{path}: it is no checkpoint of a LayerTrainer: it has no {_STATE}")
        state = json.loads(arrays.pop(_STATE).tobytes())
        more, schedule = dict(state["state"]), state.get("schedule")
        self.net.set_dict(_part(arrays, "net/"))
        of_schedule = {"LR_Scheduler": schedule} if schedule is not None else {}
        self.optimizer.set_dict({**_part(arrays, "optimizer/"), **of_schedule})
        return epoch, more


def epoch_of(path: str, arrays: Mapping[str, Any]) -> int | None:
    """How many epochs are done in a checkpoint of a `LayerTrainer`, given its arrays; None if they are of another file."""
    if _STATE not in arrays:
        return None
    try:
        state = json.loads(arrays[_STATE].tobytes())
        dict(state["state"])
        return int(state["epoch"])
    except (KeyError, TypeError, ValueError) as error:
        raise FormatError(f"{path}: it is no checkpoint of a LayerTrainer ({error!r})") from None


def _part(arrays: Mapping[str, Any], start: str) -> dict[str, Any]:
    return {name.removeprefix(start): array for name, array in arrays.items() if name.startswith(start)}
