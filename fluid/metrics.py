"""Metrics over many batches, computed on the host from fetched values."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from . import layers
from .building.layer_helper import LayerHelper
from .errors import FluidTypeError, ProgramError
from .executor import global_scope
from .initializer import Constant
from .ir.program import Program, Variable
from .not_here import names_here, names_not_here

__all__ = [
    "Accuracy",
    "Auc",
    "ChunkEvaluator",
    "CompositeMetric",
    "ConfusionMatrix",
    "DetectionMAP",
    "EditDistance",
    "F1Score",
    "MeanAbsoluteError",
    "MeanSquaredError",
    "MetricBase",
    "Precision",
    "R2Score",
    "Recall",
    "TopKAccuracy",
]

__dir__ = names_here(__name__)

if not TYPE_CHECKING:
    __getattr__ = names_not_here(__name__)


class MetricBase:
    """A metric: `update` counts a batch, `eval` returns the metric over all batches, `reset` starts anew.

    Args:
        name: the metric's name; the class's by default.
    """

    def __init__(self, name: str | None = None) -> None:
        self._name = name if name is not None else type(self).__name__
        self.reset()

    def __str__(self) -> str:
        return self._name

    def reset(self) -> None:
        """Forget all batches."""
        raise NotImplementedError

    def get_config(self) -> dict[str, Any]:
        """The metric's name, and its ``states``: the attributes that do not begin with an underscore."""
        states = {name: value for name, value in vars(self).items() if not name.startswith("_")}
        return {"name": self._name, "states": states}

    def update(self, preds: Any, labels: Any) -> None:
        """Count a batch of predictions `preds` and their `labels`."""
        raise NotImplementedError

    def eval(self) -> Any:
        """The metric over all batches so far."""
        raise NotImplementedError


def _number(value: Any, where: str) -> float:
    array = np.asarray(value)
    if array.size != 1 or not np.issubdtype(array.dtype, np.number):
        raise FluidTypeError(f"{where} should be one number, not {value!r}")
    return float(array.item())


class Accuracy(MetricBase):
    """The mean accuracy of batches, weighted by their sizes.

    Args:
        name: the metric's name; the class's by default.

    >>> metric = fluid.metrics.Accuracy()
    >>> metric.update(value=0.9, weight=100)
    >>> metric.update(value=0.6, weight=50)
    >>> round(metric.eval(), 4)
    0.8
    """

    def reset(self) -> None:
        self.value = 0.0
        self.weight = 0.0

    def update(self, value: Any, weight: Any) -> None:
        """Count a batch of `weight` samples with accuracy `value`."""
        number = _number(weight, "Accuracy.update: weight")
        if number < 0:
            raise ProgramError(f"Accuracy.update: weight should not be negative, but is {weight!r}")
        self.value += _number(value, "Accuracy.update: value") * number
        self.weight += number

    def eval(self) -> float:
        """The mean over all batches so far.

        Raises:
            ProgramError: no batch has been counted.
        """
        if self.weight == 0:
            raise ProgramError("Accuracy.eval: no batch has been counted yet; call update first")
        return self.value / self.weight


class _Binary(MetricBase):
    """Counts of a two-class problem; predictions are probabilities of class 1."""

    def reset(self) -> None:
        self.tp = self.fp = self.fn = 0  # true positives, false positives, false negatives

    def update(self, preds: Any, labels: Any) -> None:
        """Count predictions against labels.

        Args:
            preds: probabilities of class 1, ``[N, 1]``; those above 0.5 count as 1.
            labels: 0 or 1, ``[N, 1]``.

        Raises:
            ProgramError: the numbers of labels and predictions differ.
        """
        predicted = np.rint(np.asarray(preds)).astype(np.int64).ravel()
        true = np.asarray(labels).astype(np.int64).ravel()
        if predicted.shape != true.shape:
            raise ProgramError(f"{self}.update: there are {predicted.size} predictions but {true.size} labels")
        self.tp += int(np.sum((predicted == 1) & (true == 1)))
        self.fp += int(np.sum((predicted == 1) & (true != 1)))
        self.fn += int(np.sum((predicted != 1) & (true == 1)))


class Precision(_Binary):
    """The share of true labels among predictions of 1: ``tp / (tp + fp)``; 0 where there are none.

    Args:
        name: the metric's name; the class's by default.

    >>> metric = fluid.metrics.Precision()
    >>> metric.update(preds=np.array([[0.9], [0.8], [0.1]]), labels=np.array([[1], [0], [1]]))
    >>> metric.eval()
    0.5
    """

    def eval(self) -> float:
        """``tp / (tp + fp)`` over all batches so far."""
        return self.tp / (self.tp + self.fp) if self.tp + self.fp else 0.0


class Recall(_Binary):
    """The share of predictions of 1 among true labels: ``tp / (tp + fn)``; 0 where there are none.

    Args:
        name: the metric's name; the class's by default.

    >>> metric = fluid.metrics.Recall()
    >>> metric.update(preds=np.array([[0.9], [0.8], [0.1]]), labels=np.array([[1], [0], [1]]))
    >>> metric.eval()
    0.5
    """

    def eval(self) -> float:
        """``tp / (tp + fn)`` over all batches so far."""
        return self.tp / (self.tp + self.fn) if self.tp + self.fn else 0.0


def _counts(values: Any, where: str) -> int:
    """A count, given as a number or an array of one number."""
    number = _number(values, where)
    if number < 0 or not number.is_integer():
        raise ProgramError(f"{where} should be a count, not {values!r}")
    return int(number)


class ChunkEvaluator(MetricBase):
    """Precision, recall and F1 of chunks, from the counts of `layers.chunk_eval` for each batch.

    Args:
        name: the metric's name; the class's by default.

    >>> metric = fluid.metrics.ChunkEvaluator()
    >>> metric.update(num_infer_chunks=10, num_label_chunks=8, num_correct_chunks=4)
    >>> metric.eval()[:2]
    (0.4, 0.5)
    """

    def reset(self) -> None:
        self.num_infer_chunks = self.num_label_chunks = self.num_correct_chunks = 0

    def update(self, num_infer_chunks: Any, num_label_chunks: Any, num_correct_chunks: Any) -> None:  # type: ignore[override]
        """Count a batch.

        Args:
            num_infer_chunks: how many chunks were predicted.
            num_label_chunks: how many there are.
            num_correct_chunks: the number of correctly predicted chunks.
        """
        self.num_infer_chunks += _counts(num_infer_chunks, "ChunkEvaluator.update: num_infer_chunks")
        self.num_label_chunks += _counts(num_label_chunks, "ChunkEvaluator.update: num_label_chunks")
        self.num_correct_chunks += _counts(num_correct_chunks, "ChunkEvaluator.update: num_correct_chunks")

    def eval(self) -> tuple[float, float, float]:
        """(precision, recall, F1); 0 instead of a division by 0."""
        correct = self.num_correct_chunks
        precision = correct / self.num_infer_chunks if self.num_infer_chunks else 0.0
        recall = correct / self.num_label_chunks if self.num_label_chunks else 0.0
        return precision, recall, 2 * precision * recall / (precision + recall) if correct else 0.0


class EditDistance(MetricBase):
    """The mean edit distance of sequences, from the results of `layers.edit_distance` for each batch.

    Args:
        name: the metric's name; the class's by default.

    >>> metric = fluid.metrics.EditDistance()
    >>> metric.update(np.array([[0.0], [3.0]]), seq_num=2)
    >>> metric.eval()
    (1.5, 0.5)
    """

    def reset(self) -> None:
        self.total_distance = 0.0
        self.seq_num = 0
        self.instance_error = 0

    def update(self, distances: Any, seq_num: Any) -> None:
        """Count a batch of `seq_num` sequences with these `distances`, ``[seq_num, 1]``.

        Raises:
            ProgramError: the numbers of distances and sequences differ.
        """
        array = np.asarray(distances)
        if array.dtype.kind not in "fiu":
            raise FluidTypeError(f"EditDistance.update: distances should be an array of numbers, not {distances!r}")
        count = _counts(seq_num, "EditDistance.update: seq_num")
        if array.size != count:
            raise ProgramError(f"EditDistance.update: there are {array.size} distances but {count} sequences")
        self.total_distance += float(array.sum())
        self.seq_num += count
        self.instance_error += int(np.sum(array != 0))

    def eval(self) -> tuple[float, float]:
        """(mean distance, share of sequences with a distance above 0).

        Raises:
            ProgramError: no sequence has been counted.
        """
        if self.seq_num == 0:
            raise ProgramError("EditDistance.eval: no sequence has been counted yet; call update first")
        return self.total_distance / self.seq_num, self.instance_error / self.seq_num


class Auc(MetricBase):
    """The area under the ROC curve of a two-class problem, from counts of predictions in `num_thresholds` + 1 bins.

    Args:
        name: the metric's name; the class's by default.
        curve: ``"ROC"``, the only curve.
        num_thresholds: the number of thresholds; the more, the more exact.

    >>> metric = fluid.metrics.Auc()
    >>> metric.update(np.array([[0.9, 0.1], [0.4, 0.6], [0.3, 0.7]]), np.array([[0], [0], [1]]))
    >>> metric.eval()
    1.0
    """

    def __init__(self, name: str | None = None, curve: str = "ROC", num_thresholds: int = 4095) -> None:
        if curve != "ROC":
            raise ProgramError(f"Auc: the curve is 'ROC', not {curve!r}")
        if num_thresholds < 1:
            raise ProgramError(f"Auc: num_thresholds should be positive, not {num_thresholds!r}")
        self._curve = curve
        self._num_thresholds = num_thresholds
        super().__init__(name)

    def reset(self) -> None:
        self._stat_pos = np.zeros(self._num_thresholds + 1, np.int64)
        self._stat_neg = np.zeros(self._num_thresholds + 1, np.int64)

    def update(self, preds: Any, labels: Any) -> None:
        """Count predictions against labels.

        Args:
            preds: probabilities of classes 0 and 1, ``[N, 2]``.
            labels: 0 or 1, ``[N, 1]``.

        Raises:
            ProgramError: the shapes do not fit, or a prediction is no probability.
        """
        predicted, true = np.asarray(preds), np.asarray(labels).ravel()
        if predicted.ndim != 2 or predicted.shape[1] != 2 or predicted.shape[0] != true.size:
            raise ProgramError(
                f"Auc.update: preds should be [N, 2] and labels [N, 1], not {list(predicted.shape)} and {true.size} labels"
            )
        if not ((predicted[:, 1] >= 0) & (predicted[:, 1] <= 1)).all():
            raise ProgramError("Auc.update: preds should be probabilities, between 0 and 1")
        bins = (predicted[:, 1] * self._num_thresholds).astype(np.int64)
        self._stat_pos += np.bincount(bins[true != 0], minlength=self._num_thresholds + 1)
        self._stat_neg += np.bincount(bins[true == 0], minlength=self._num_thresholds + 1)

    @staticmethod
    def trapezoid_area(x1: float, x2: float, y1: float, y2: float) -> float:
        """The area between `x1` and `x2` under the line from `y1` to `y2`.

        Args:
            x1, x2: where the area begins and ends.
            y1, y2: the heights there.
        """
        return abs(x1 - x2) * (y1 + y2) / 2.0

    def eval(self) -> float:
        """The area over all batches so far; 0 if a class has not occurred."""
        positive, negative = (np.concatenate([[0], np.cumsum(counts[::-1])]) for counts in (self._stat_pos, self._stat_neg))
        total = float(positive[-1]) * float(negative[-1])
        area = self.trapezoid_area(negative[:-1], negative[1:], positive[:-1], positive[1:])  # type: ignore[arg-type]
        return float(np.sum(area)) / total if total else 0.0


class CompositeMetric(MetricBase):
    """Several metrics of the same predictions.

    Args:
        name: the metric's name; the class's by default.

    >>> metric = fluid.metrics.CompositeMetric()
    >>> metric.add_metric(fluid.metrics.Precision())
    >>> metric.add_metric(fluid.metrics.Recall())
    >>> metric.update(np.array([[0.9], [0.8], [0.1]]), np.array([[1], [0], [0]]))
    >>> metric.eval()
    [0.5, 1.0]
    """

    def __init__(self, name: str | None = None) -> None:
        self._metrics: list[MetricBase] = []
        super().__init__(name)

    def add_metric(self, metric: MetricBase) -> None:
        """Add a metric."""
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
        """The results of all metrics, in the order of `add_metric` calls."""
        return [metric.eval() for metric in self._metrics]


class DetectionMAP:
    """The mean average precision of detections. The program itself accumulates it over batches, unlike the other metrics here.

    Args:
        input: rows of class, score and box ``[D, 6]``, as `layers.detection_output` gives them.
        gt_label, gt_box: classes ``[L, 1]`` and labelled boxes ``[L, 4]``; input and these are sequences, one for each image.
        gt_difficult: which of them are difficult, ``[L, 1]``; by default none.
        class_num: number of classes, the background included.
        background_label: the class of the background, which does not count; -1 for none.
        overlap_threshold: how much a box has to overlap a labelled one to be right, as intersection over union.
        evaluate_difficult: whether difficult boxes count.
        ap_version: ``"integral"`` or ``"11point"``: how the area under the curve of precision is computed.

    Raises:
        ProgramError: there is no `class_num`.

    >>> found = fluid.data("found", [None, 6], lod_level=1)
    >>> label, box = fluid.data("label", [None, 1], lod_level=1), fluid.data("box", [None, 4], lod_level=1)
    >>> now, so_far = fluid.metrics.DetectionMAP(found, label, box, class_num=21).get_map_var()
    """

    def __init__(
        self,
        input: Variable,
        gt_label: Variable,
        gt_box: Variable,
        gt_difficult: Variable | None = None,
        class_num: int | None = None,
        background_label: int = 0,
        overlap_threshold: float = 0.5,
        evaluate_difficult: bool = True,
        ap_version: str = "integral",
    ) -> None:
        if class_num is None:
            raise ProgramError("DetectionMAP: give class_num, the number of classes with the background")
        columns = [gt_label] if gt_difficult is None else [gt_label, gt_difficult]
        label = layers.concat([*(layers.cast(column, gt_box.dtype) for column in columns), gt_box], axis=1)
        self.helper = LayerHelper("map_eval")
        choice = class_num, background_label, overlap_threshold, evaluate_difficult
        shapes = {"accum_pos_count": [class_num, 1], "accum_true_pos": [1, 2], "accum_false_pos": [1, 2]}
        states = [self._state(name, "int32" if name == "accum_pos_count" else "float32", shape) for name, shape in shapes.items()]
        self.has_state = self._state("has_state", "int32", [1])
        self.cur_map = layers.detection_map(input, label, *choice, ap_version=ap_version)
        self.accum_map = layers.detection_map(input, label, *choice, self.has_state, states, states, ap_version)
        layers.fill_constant([1], "int32", 1, out=self.has_state)

    def _state(self, suffix: str, dtype: str, shape: list[int]) -> Variable:
        name = f"{self.helper.name}.{suffix}"
        state = self.helper.create_global_variable(True, name=name, dtype=dtype, shape=shape, stop_gradient=True)
        self.helper.set_variable_initializer(state, Constant(0))
        return state

    def get_map_var(self) -> tuple[Variable, Variable]:
        """Variables with the mean average precision of the current batch, and of all since the last `reset`."""
        return self.cur_map, self.accum_map

    def reset(self, executor: Any, reset_program: Program | None = None) -> None:
        """Forget all batches in the current scope, at the place of `executor`; `reset_program` has no effect."""
        global_scope().var(self.has_state.name).get_tensor().set(np.zeros([1], np.int32), executor.place)


# ---------------------------------------------------------------------------------------------------- of several classes
def _scores(preds: Any, labels: Any, where: str) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Scores ``[N, classes]`` and labels ``[N]``."""
    scores, true = np.asarray(preds), np.asarray(labels).astype(np.int64).ravel()
    if scores.ndim != 2 or len(scores) != true.size:
        raise ProgramError(f"{where}: predictions should be scores [N, classes] for {true.size} labels, not {list(scores.shape)}")
    if true.size and not 0 <= true.min() <= true.max() < scores.shape[1]:
        raise ProgramError(f"{where}: labels should lie in 0 to {scores.shape[1] - 1}, and one is {true.max()} or {true.min()}")
    return scores, true


class TopKAccuracy(MetricBase):
    """The share of samples whose label is among the `k` classes with the greatest scores.

    Args:
        k: how many classes count.
        name: the metric's name; the class's by default.

    >>> metric = fluid.metrics.TopKAccuracy(k=2)
    >>> metric.update(preds=np.array([[0.1, 0.3, 0.6], [0.8, 0.15, 0.05]]), labels=np.array([[1], [2]]))
    >>> metric.eval()
    0.5
    """

    def __init__(self, k: int = 1, name: str | None = None) -> None:
        if not isinstance(k, int) or k < 1:
            raise ProgramError(f"TopKAccuracy: k should be a number of classes, at least 1, not {k!r}")
        self.k = k
        super().__init__(name)

    def reset(self) -> None:
        self.right = self.count = 0

    def update(self, preds: Any, labels: Any) -> None:
        """Count scores against labels. Of equal scores, the first classes count first.

        Args:
            preds: scores of classes, ``[N, classes]``.
            labels: numbers of classes, ``[N, 1]``.
        """
        scores, true = _scores(preds, labels, f"{self}.update")
        best = np.argsort(-scores, axis=1, kind="stable")[:, : self.k]
        self.right += int((best == true[:, None]).any(axis=1).sum())
        self.count += true.size

    def eval(self) -> float:
        """The share over all batches so far; `ProgramError` if none has been counted."""
        return self.right / _counted(self.count, self)


def _counted(count: int, metric: MetricBase) -> int:
    if count == 0:
        raise ProgramError(f"{metric}.eval: no batch has been counted yet; call update first")
    return count


class ConfusionMatrix(MetricBase):
    """How often samples of each class, a row, are predicted as each class, a column.

    Args:
        classes: how many classes there are.
        name: the metric's name; the class's by default.

    >>> metric = fluid.metrics.ConfusionMatrix(classes=2)
    >>> metric.update(preds=np.array([[0.9, 0.1], [0.2, 0.8], [0.3, 0.7]]), labels=np.array([[0], [0], [1]]))
    >>> metric.eval()
    array([[1, 1],
           [0, 1]])
    """

    def __init__(self, classes: int, name: str | None = None) -> None:
        if not isinstance(classes, int) or classes < 2:
            raise ProgramError(f"{type(self).__name__}: classes should be a number of classes, at least 2, not {classes!r}")
        self.classes = classes
        super().__init__(name)

    def reset(self) -> None:
        self.matrix = np.zeros([self.classes, self.classes], np.int64)

    def update(self, preds: Any, labels: Any) -> None:
        """Count scores against labels.

        Args:
            preds: scores of classes, ``[N, classes]``.
            labels: numbers of classes, ``[N, 1]``.
        """
        scores, true = _scores(preds, labels, f"{self}.update")
        if scores.shape[1] != self.classes:
            raise ProgramError(f"{self}.update: predictions should have {self.classes} columns, not {scores.shape[1]}")
        np.add.at(self.matrix, (true, scores.argmax(axis=1)), 1)

    def eval(self) -> Any:
        """The matrix of counts."""
        return self.matrix.copy()


class F1Score(ConfusionMatrix):
    """The harmonic mean of precision and recall, ``2 tp / (2 tp + fp + fn)``, as a mean over classes.

    Args:
        classes: how many classes there are.
        average: ``"macro"``: the mean over classes; ``"weighted"``: weighted by their numbers of samples; ``"micro"``: over all
            samples, which is the accuracy.
        name: the metric's name; the class's by default.

    A class without samples and predictions counts 0, as in scikit-learn.

    >>> metric = fluid.metrics.F1Score(classes=2)
    >>> metric.update(preds=np.array([[0.9, 0.1], [0.2, 0.8], [0.3, 0.7]]), labels=np.array([[0], [0], [1]]))
    >>> round(metric.eval(), 4)
    0.6667
    """

    def __init__(self, classes: int = 2, average: str = "macro", name: str | None = None) -> None:
        if average not in ("macro", "weighted", "micro"):
            raise ProgramError(f"F1Score: average should be 'macro', 'weighted' or 'micro', not {average!r}")
        self.average = average
        super().__init__(classes, name)

    def eval(self) -> float:
        """The score over all batches so far; `ProgramError` if none has been counted."""
        count = _counted(int(self.matrix.sum()), self)
        right = np.diag(self.matrix)
        if self.average == "micro":
            return float(right.sum() / count)
        of_class = self.matrix.sum(axis=1)
        both = self.matrix.sum(axis=0) + of_class
        scores = np.divide(2 * right, both, out=np.zeros(self.classes), where=both > 0)
        return float(scores.mean() if self.average == "macro" else (scores * of_class).sum() / count)


# -------------------------------------------------------------------------------------------------------- of regressions
class _Differences(MetricBase):
    """Sums over differences of predictions and true values."""

    def reset(self) -> None:
        self.count = 0
        self.absolute = self.squared = self.total = self.total_squared = 0.0

    def update(self, preds: Any, labels: Any) -> None:
        """Count predictions against true values.

        Args:
            preds: predicted numbers.
            labels: the true numbers, of the same shape.
        """
        predicted, true = np.asarray(preds, np.float64), np.asarray(labels, np.float64)
        if predicted.shape != true.shape:
            shapes = f"predictions {list(predicted.shape)} and labels {list(true.shape)}"
            raise ProgramError(f"{self}.update: {shapes} should have one shape")
        self.count += true.size
        self.absolute += float(np.abs(predicted - true).sum())
        self.squared += float(((predicted - true) ** 2).sum())
        self.total += float(true.sum())
        self.total_squared += float((true**2).sum())


class MeanAbsoluteError(_Differences):
    """The mean of ``|prediction - label|``.

    Args:
        name: the metric's name; the class's by default.

    >>> metric = fluid.metrics.MeanAbsoluteError()
    >>> metric.update(preds=np.array([1.0, 3.0]), labels=np.array([1.5, 1.0]))
    >>> metric.eval()
    1.25
    """

    def eval(self) -> float:
        """The mean over all batches so far; `ProgramError` if none has been counted."""
        return self.absolute / _counted(self.count, self)


class MeanSquaredError(_Differences):
    """The mean of ``(prediction - label)^2``.

    Args:
        name: the metric's name; the class's by default.

    >>> metric = fluid.metrics.MeanSquaredError()
    >>> metric.update(preds=np.array([1.0, 3.0]), labels=np.array([1.5, 1.0]))
    >>> metric.eval()
    2.125
    """

    def eval(self) -> float:
        """The mean over all batches so far; `ProgramError` if none has been counted."""
        return self.squared / _counted(self.count, self)


class R2Score(_Differences):
    """The share of the labels' variance that predictions explain: ``1 - sum (prediction - label)^2 / sum (label - mean)^2``.

    1 is perfect, 0 as good as the mean of the labels. Where all labels are equal it is 1 for exact predictions, else 0, as in
    scikit-learn.

    Args:
        name: the metric's name; the class's by default.

    >>> metric = fluid.metrics.R2Score()
    >>> metric.update(preds=np.array([1.0, 2.0, 4.0]), labels=np.array([1.0, 2.0, 3.0]))
    >>> metric.eval()
    0.5
    """

    def eval(self) -> float:
        """The score over all batches so far; `ProgramError` if none has been counted."""
        count = _counted(self.count, self)
        variation = self.total_squared - self.total**2 / count
        if variation <= 1e-12 * self.total_squared:
            return float(self.squared == 0)
        return 1.0 - self.squared / variation
