"""Measures over many batches, computed on the host from what programs give."""

from __future__ import annotations

from typing import Any

import numpy as np

from .errors import FluidTypeError, ProgramError

__all__ = ["Accuracy", "CompositeMetric", "MetricBase", "Precision", "Recall"]


class MetricBase:
    """A measure that `update` feeds, `eval` gives and `reset` starts afresh."""

    def __init__(self, name: str | None = None) -> None:
        self._name = name if name is not None else type(self).__name__
        self.reset()

    def __str__(self) -> str:
        return self._name

    def reset(self) -> None:
        """Start afresh."""
        raise NotImplementedError

    def get_config(self) -> dict[str, Any]:
        """The measure's state: its attributes that do not begin with an underscore."""
        return {name: value for name, value in vars(self).items() if not name.startswith("_")}

    def update(self, preds: Any, labels: Any) -> None:
        """Count another batch."""
        raise NotImplementedError

    def eval(self) -> Any:
        """The measure over all batches so far."""
        raise NotImplementedError


def _number(value: Any, where: str) -> float:
    array = np.asarray(value)
    if array.size != 1 or not np.issubdtype(array.dtype, np.number):
        raise FluidTypeError(f"{where} should be one number, not {value!r}")
    return float(array.item())


class Accuracy(MetricBase):
    """The mean of batches' accuracies, weighted by the batches' sizes."""

    def reset(self) -> None:
        self.value = 0.0
        self.weight = 0.0

    def update(self, value: Any, weight: Any) -> None:
        """Count a batch of `weight` samples with the accuracy `value`."""
        number = _number(weight, "Accuracy.update: weight")
        if number < 0:
            raise ProgramError(f"Accuracy.update: weight should not be negative, as {weight!r} is")
        self.value += _number(value, "Accuracy.update: value") * number
        self.weight += number

    def eval(self) -> float:
        if self.weight == 0:
            raise ProgramError("Accuracy.eval: no batch has been counted yet; call update first")
        return self.value / self.weight


class _Binary(MetricBase):
    """Counts of a two-class problem; predictions are probabilities of class 1."""

    def reset(self) -> None:
        self.tp = 0  # right ones
        self.fp = 0  # wrong ones
        self.fn = 0  # missed ones

    def update(self, preds: Any, labels: Any) -> None:
        """Count predictions ``[N, 1]`` (1 where above 0.5) against labels ``[N, 1]`` of 0 and 1."""
        said = np.rint(np.asarray(preds)).astype(np.int64).ravel()
        true = np.asarray(labels).astype(np.int64).ravel()
        if said.shape != true.shape:
            raise ProgramError(f"{self}.update: there are {said.size} predictions but {true.size} labels")
        self.tp += int(np.sum((said == 1) & (true == 1)))
        self.fp += int(np.sum((said == 1) & (true != 1)))
        self.fn += int(np.sum((said != 1) & (true == 1)))


class Precision(_Binary):
    """Of those predicted 1, the share that is."""

    def eval(self) -> float:
        return self.tp / (self.tp + self.fp) if self.tp + self.fp else 0.0


class Recall(_Binary):
    """Of those that are 1, the share predicted so."""

    def eval(self) -> float:
        return self.tp / (self.tp + self.fn) if self.tp + self.fn else 0.0


class CompositeMetric(MetricBase):
    """Several measures of the same predictions."""

    def __init__(self, name: str | None = None) -> None:
        self._metrics: list[MetricBase] = []
        super().__init__(name)

    def add_metric(self, metric: MetricBase) -> None:
        if not isinstance(metric, MetricBase):
            raise FluidTypeError(f"add_metric takes a metric, not {metric!r}")
        self._metrics.append(metric)

    def reset(self) -> None:
        for metric in self._metrics:
            metric.reset()

    def update(self, preds: Any, labels: Any) -> None:
        for metric in self._metrics:
            metric.update(preds, labels)

    def eval(self) -> list[Any]:
        return [metric.eval() for metric in self._metrics]
