"""Layers without parameters as objects, for `Sequential`: activations, pooling, losses; and batch norms by dimensions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from .. import layers
from ..eager.tensor import Tensor
from ..errors import ProgramError
from ..ir.program import Variable
from ..param_attr import AttrLike
from .layers import Layer
from .nn import BatchNorm

__all__ = [
    "ELU",
    "GELU",
    "AdaptiveAvgPool2D",
    "AdaptiveMaxPool2D",
    "AvgPool2D",
    "BCELoss",
    "BCEWithLogitsLoss",
    "BatchNorm1D",
    "BatchNorm2D",
    "BatchNorm3D",
    "CrossEntropyLoss",
    "Flatten",
    "Hardswish",
    "Identity",
    "KLDivLoss",
    "L1Loss",
    "LeakyReLU",
    "LogSoftmax",
    "MSELoss",
    "MaxPool2D",
    "NLLLoss",
    "ReLU",
    "SiLU",
    "Sigmoid",
    "SmoothL1Loss",
    "Softmax",
    "Tanh",
]

Size = int | Sequence[int]


class _PlainLayer(Layer):
    """A layer without settings."""

    def __init__(self) -> None:
        super().__init__()


class ReLU(_PlainLayer):
    """``max(x, 0)``.

    >>> dygraph.ReLU()(dygraph.Tensor([-1.0, 2.0])).numpy()
    array([0., 2.], dtype=float32)
    """

    def forward(self, x: Any) -> Any:
        return layers.relu(x)


class LeakyReLU(Layer):
    """``x`` above 0, and ``negative_slope * x`` below.

    Args:
        negative_slope: the slope below 0.

    >>> dygraph.LeakyReLU(0.5)(dygraph.Tensor([-1.0, 2.0])).numpy()
    array([-0.5,  2. ], dtype=float32)
    """

    def __init__(self, negative_slope: float = 0.01) -> None:
        super().__init__()
        self._slope = negative_slope

    def forward(self, x: Any) -> Any:
        return layers.leaky_relu(x, alpha=self._slope)


class GELU(Layer):
    """``x`` times the standard normal distribution function at ``x``.

    Args:
        approximate: by tanh, as in GPT-2.

    >>> dygraph.GELU()(dygraph.Tensor([0.0, 1.0])).numpy().round(4)
    array([0.    , 0.8413], dtype=float32)
    """

    def __init__(self, approximate: bool = False) -> None:
        super().__init__()
        self._approximate = bool(approximate)

    def forward(self, x: Any) -> Any:
        return layers.gelu(x, approximate=self._approximate)


class Sigmoid(_PlainLayer):
    """``1 / (1 + exp(-x))``.

    >>> dygraph.Sigmoid()(dygraph.Tensor([0.0])).numpy()
    array([0.5], dtype=float32)
    """

    def forward(self, x: Any) -> Any:
        return layers.sigmoid(x)


class Tanh(_PlainLayer):
    """The hyperbolic tangent.

    >>> dygraph.Tanh()(dygraph.Tensor([0.0])).numpy()
    array([0.], dtype=float32)
    """

    def forward(self, x: Any) -> Any:
        return layers.tanh(x)


class Softmax(Layer):
    """``exp(x) / sum(exp(x))`` along an axis.

    Args:
        axis: the axis.

    >>> dygraph.Softmax()(dygraph.Tensor([[0.0, 0.0]])).numpy()
    array([[0.5, 0.5]], dtype=float32)
    """

    def __init__(self, axis: int = -1) -> None:
        super().__init__()
        self._axis = axis

    def forward(self, x: Any) -> Any:
        return layers.softmax(x, axis=self._axis)


class LogSoftmax(Layer):
    """The logarithm of `Softmax`.

    Args:
        axis: the axis.

    >>> dygraph.LogSoftmax()(dygraph.Tensor([[0.0, 0.0]])).numpy().round(4)
    array([[-0.6931, -0.6931]], dtype=float32)
    """

    def __init__(self, axis: int = -1) -> None:
        super().__init__()
        self._axis = axis

    def forward(self, x: Any) -> Any:
        return x._ops().log_softmax(x, axis=self._axis)


class ELU(Layer):
    """``x`` above 0, and ``alpha * (exp(x) - 1)`` below.

    Args:
        alpha: the factor below 0.

    >>> dygraph.ELU()(dygraph.Tensor([-1.0, 2.0])).numpy().round(4)
    array([-0.6321,  2.    ], dtype=float32)
    """

    def __init__(self, alpha: float = 1.0) -> None:
        super().__init__()
        self._alpha = alpha

    def forward(self, x: Any) -> Any:
        return layers.elu(x, alpha=self._alpha)


class SiLU(_PlainLayer):
    """``x * sigmoid(x)``, also known as swish.

    >>> dygraph.SiLU()(dygraph.Tensor([0.0, 1.0])).numpy().round(4)
    array([0.    , 0.7311], dtype=float32)
    """

    def forward(self, x: Any) -> Any:
        return layers.swish(x)


class Hardswish(_PlainLayer):
    """``x * min(max(x + 3, 0), 6) / 6``.

    >>> dygraph.Hardswish()(dygraph.Tensor([-4.0, 0.0, 3.0])).numpy()
    array([-0.,  0.,  3.], dtype=float32)
    """

    def forward(self, x: Any) -> Any:
        return layers.hard_swish(x)


class Identity(_PlainLayer):
    """``x`` itself.

    >>> dygraph.Identity()(dygraph.Tensor([2.0])).numpy()
    array([2.], dtype=float32)
    """

    def forward(self, x: Any) -> Any:
        return x


class Flatten(Layer):
    """Several dimensions as one; by default each sample as a row.

    Args:
        start_axis, stop_axis: the first and the last of these dimensions.

    >>> dygraph.Flatten()(dygraph.Tensor(np.ones([2, 3, 4], "float32"))).shape
    (2, 12)
    """

    def __init__(self, start_axis: int = 1, stop_axis: int = -1) -> None:
        super().__init__()
        self._axes = start_axis, stop_axis

    def forward(self, x: Any) -> Any:
        start, stop = (axis % x.ndim for axis in self._axes)
        if start > stop:
            raise ProgramError(f"Flatten: {x.describe()} has no dimensions from {self._axes[0]} to {self._axes[1]}")
        return layers.reshape(x, [*[0] * start, -1, *x.shape[stop + 1 :]])


class _PoolLayer(Layer):
    """Pooling of windows of images ``[N, C, H, W]``."""

    _kind = ""

    def __init__(self, kernel_size: Size, stride: Size | None = None, padding: Size = 0, ceil_mode: bool = False) -> None:
        super().__init__()
        self._settings: dict[str, Any] = {
            "pool_size": kernel_size,
            "pool_stride": kernel_size if stride is None else stride,
            "pool_padding": padding,
            "ceil_mode": ceil_mode,
        }

    def forward(self, x: Any) -> Any:
        return layers.pool2d(x, pool_type=self._kind, **self._settings)


class MaxPool2D(_PoolLayer):
    """The greatest element of each window of images ``[N, C, H, W]``.

    Args:
        kernel_size: the height and width of windows, or one number.
        stride: the distance of windows; their size by default.
        padding: how many rows and columns are around the images; they are never the greatest.
        ceil_mode: whether a window may reach beyond the end.

    >>> dygraph.MaxPool2D(2)(dygraph.Tensor([[[[1.0, 2.0], [3.0, 4.0]]]])).numpy()
    array([[[[4.]]]], dtype=float32)
    """

    _kind = "max"


class AvgPool2D(_PoolLayer):
    """The mean of each window of images ``[N, C, H, W]``; padding does not count.

    Args:
        kernel_size, stride, padding, ceil_mode: see `MaxPool2D`.

    >>> dygraph.AvgPool2D(2)(dygraph.Tensor([[[[1.0, 2.0], [3.0, 4.0]]]])).numpy()
    array([[[[2.5]]]], dtype=float32)
    """

    _kind = "avg"


class _AdaptivePool(Layer):
    """Pooling of images ``[N, C, H, W]`` to one size."""

    _kind = ""

    def __init__(self, output_size: Size) -> None:
        super().__init__()
        self._size = output_size

    def forward(self, x: Any) -> Any:
        return layers.adaptive_pool2d(x, self._size, pool_type=self._kind)


class AdaptiveAvgPool2D(_AdaptivePool):
    """The means of windows of images ``[N, C, H, W]``, one for each pixel of the output.

    Args:
        output_size: the height and width of the output, or one number.

    >>> dygraph.AdaptiveAvgPool2D(1)(dygraph.Tensor([[[[1.0, 2.0], [3.0, 4.0]]]])).numpy()
    array([[[[2.5]]]], dtype=float32)
    """

    _kind = "avg"


class AdaptiveMaxPool2D(_AdaptivePool):
    """The greatest elements of windows of images ``[N, C, H, W]``, one for each pixel of the output.

    Args:
        output_size: the height and width of the output, or one number.

    >>> dygraph.AdaptiveMaxPool2D(1)(dygraph.Tensor([[[[1.0, 2.0], [3.0, 4.0]]]])).numpy()
    array([[[[4.]]]], dtype=float32)
    """

    _kind = "max"


class _BatchNormOf(BatchNorm):
    """Batch norm for inputs of certain numbers of dimensions."""

    _ndims: tuple[int, ...] = ()

    def __init__(
        self,
        num_features: int,
        momentum: float = 0.9,
        epsilon: float = 1e-5,
        weight_attr: AttrLike = None,
        bias_attr: AttrLike = None,
    ) -> None:
        super().__init__(
            name_scope=None,
            num_channels=num_features,
            momentum=momentum,
            epsilon=epsilon,
            param_attr=weight_attr,
            bias_attr=bias_attr,
        )

    def forward(self, input: Any) -> Any:
        if input.ndim not in self._ndims:
            wanted = " or ".join(map(str, self._ndims))
            raise ProgramError(f"{type(self).__name__} takes {wanted} dimensions, and the input is {input.describe()}")
        return super().forward(input)


class BatchNorm1D(_BatchNormOf):
    """`BatchNorm` of features ``[N, C]`` or sequences ``[N, C, L]``.

    Args:
        num_features: the number of channels, C.
        momentum: how much of the moving statistics remains in a step (torch's ``momentum`` is one minus this).
        epsilon: added to the variance.
        weight_attr, bias_attr: attributes of scale and bias.

    >>> dygraph.BatchNorm1D(1)(dygraph.Tensor([[1.0], [3.0]])).numpy().round(2)
    array([[-1.],
           [ 1.]], dtype=float32)
    """

    _ndims = (2, 3)


class BatchNorm2D(_BatchNormOf):
    """`BatchNorm` of images ``[N, C, H, W]``.

    Args:
        num_features, momentum, epsilon, weight_attr, bias_attr: see `BatchNorm1D`.

    >>> dygraph.BatchNorm2D(3)(dygraph.Tensor(np.ones([2, 3, 4, 4], "float32"))).shape
    (2, 3, 4, 4)
    """

    _ndims = (4,)


class BatchNorm3D(_BatchNormOf):
    """`BatchNorm` of volumes ``[N, C, D, H, W]``.

    Args:
        num_features, momentum, epsilon, weight_attr, bias_attr: see `BatchNorm1D`.

    >>> dygraph.BatchNorm3D(3)(dygraph.Tensor(np.ones([2, 3, 2, 4, 4], "float32"))).shape
    (2, 3, 2, 4, 4)
    """

    _ndims = (5,)


# ---------------------------------------------------------------------------------------------------------------- losses
class _Loss(Layer):
    """A loss for each element, and how they become one number."""

    def __init__(self, reduction: str = "mean") -> None:
        super().__init__()
        if reduction not in ("mean", "sum", "none"):
            raise ProgramError(f"{type(self).__name__}: reduction should be 'mean', 'sum' or 'none', not {reduction!r}")
        self._reduction = reduction

    @staticmethod
    def _weights_of(weight: Any) -> Any:
        """Weights as a tensor; None for none."""
        return weight if weight is None or isinstance(weight, Variable) else Tensor(np.asarray(weight, "float32"))

    def _reduced(self, losses: Any) -> Any:
        if self._reduction == "none":
            return losses
        return layers.mean(losses) if self._reduction == "mean" else layers.reduce_sum(losses)


class CrossEntropyLoss(_Loss):
    """The cross-entropy of scores ``[N, classes]``, before softmax, and labels, int64 ``[N, 1]`` or ``[N]``.

    Args:
        reduction: ``"mean"``, ``"sum"``, or ``"none"`` for the losses themselves.

    >>> loss = dygraph.CrossEntropyLoss()(dygraph.Tensor([[0.0, 0.0]]), dygraph.Tensor(np.array([1])))
    >>> round(loss.item(), 4)
    0.6931
    """

    def forward(self, input: Any, label: Any) -> Any:
        if label.ndim == input.ndim - 1:
            label = layers.unsqueeze(label, [-1])
        return self._reduced(layers.softmax_with_cross_entropy(input, label))


class MSELoss(_Loss):
    """``(input - label)^2``, averaged.

    Args:
        reduction: ``"mean"``, ``"sum"``, or ``"none"`` for the squares themselves.

    >>> dygraph.MSELoss()(dygraph.Tensor([1.0]), dygraph.Tensor([3.0])).item()
    4.0
    """

    def forward(self, input: Any, label: Any) -> Any:
        if self._reduction == "mean":
            return layers.mse_loss(input, label)
        return self._reduced(layers.square_error_cost(input, label))


class L1Loss(_Loss):
    """``|input - label|``, averaged.

    Args:
        reduction: ``"mean"``, ``"sum"``, or ``"none"`` for the differences themselves.

    >>> dygraph.L1Loss()(dygraph.Tensor([1.0]), dygraph.Tensor([3.0])).item()
    2.0
    """

    def forward(self, input: Any, label: Any) -> Any:
        return self._reduced(layers.abs(input - label))


class BCEWithLogitsLoss(_Loss):
    """The binary cross-entropy of scores, before a sigmoid, and labels from 0 to 1 of the same shape and element type, averaged.

    Args:
        reduction: ``"mean"``, ``"sum"``, or ``"none"`` for the losses themselves.

    >>> round(dygraph.BCEWithLogitsLoss()(dygraph.Tensor([0.0]), dygraph.Tensor([1.0])).item(), 4)
    0.6931
    """

    def forward(self, input: Any, label: Any) -> Any:
        return self._reduced(layers.sigmoid_cross_entropy_with_logits(input, label))


class NLLLoss(_Loss):
    """The negative log-probabilities ``[N, classes]`` at the labels, int64 ``[N, 1]`` or ``[N]``, averaged; see `LogSoftmax`.

    Args:
        weight: of each class, float ``[classes]``; the mean is weighted.
        reduction: ``"mean"``, ``"sum"``, or ``"none"`` for the losses ``[N]``.
        ignore_index: rows with this label do not count.

    >>> dygraph.NLLLoss()(dygraph.Tensor([[-0.5, -2.0]]), dygraph.Tensor(np.array([1]))).item()
    2.0
    """

    def __init__(self, weight: Any = None, reduction: str = "mean", ignore_index: int = -100) -> None:
        super().__init__(reduction)
        self._weight, self._ignored = self._weights_of(weight), ignore_index

    def forward(self, input: Any, label: Any) -> Any:
        labels = layers.reshape(label, [-1, 1])
        counts = layers.cast(layers.not_equal(labels, layers.full_like(labels, self._ignored)), input.dtype)
        classes = layers.elementwise_max(labels, layers.full_like(labels, 0))
        weights = layers.one_hot(classes, input.shape[-1]) * counts
        if self._weight is not None:
            weights = weights * self._weight
        losses = layers.reduce_sum(weights * input, dim=-1) * -1.0
        if self._reduction != "mean":
            return self._reduced(losses)
        return layers.reduce_sum(losses) / layers.reduce_sum(weights)


class BCELoss(_Loss):
    """The binary cross-entropy of probabilities and labels from 0 to 1, of the same shape and element type, averaged.

    `BCEWithLogitsLoss` of the scores is more accurate.

    Args:
        weight: a factor for each element, of a shape that broadcasts.
        reduction: ``"mean"``, ``"sum"``, or ``"none"`` for the losses themselves.

    >>> round(dygraph.BCELoss()(dygraph.Tensor([0.5]), dygraph.Tensor([1.0])).item(), 4)
    0.6931
    """

    def __init__(self, weight: Any = None, reduction: str = "mean") -> None:
        super().__init__(reduction)
        self._weight = self._weights_of(weight)

    def forward(self, input: Any, label: Any) -> Any:
        losses = input._ops().bce_loss(input, label)
        return self._reduced(losses if self._weight is None else losses * self._weight)


class SmoothL1Loss(Layer):
    """The mean of half the squared differences below `beta`, divided by it, and of ``|prediction - label| - beta / 2`` above.

    Args:
        beta: the difference at which the parabola becomes a line.

    >>> dygraph.SmoothL1Loss()(dygraph.Tensor([1.0, 1.0]), dygraph.Tensor([2.0, 4.0])).item()
    1.5
    """

    def __init__(self, beta: float = 1.0) -> None:
        super().__init__()
        self._beta = beta

    def forward(self, predictions: Any, labels: Any) -> Any:
        return layers.mean(layers.huber_loss(predictions, labels, self._beta)) * (1.0 / self._beta)


class KLDivLoss(Layer):
    """The Kullback-Leibler divergence of label probabilities from predicted ones: ``label * (log(label) - prediction)``.

    Args:
        reduction: ``"mean"``, ``"batchmean"`` (the sum for each row, averaged), ``"sum"`` or ``"none"``.

    >>> log_probabilities, labels = dygraph.Tensor([[0.0, -1.0]]), dygraph.Tensor([[1.0, 0.0]])
    >>> dygraph.KLDivLoss("batchmean")(log_probabilities, labels).item()
    0.0
    """

    def __init__(self, reduction: str = "mean") -> None:
        super().__init__()
        self._reduction = reduction

    def forward(self, log_probabilities: Any, labels: Any) -> Any:
        return layers.kldiv_loss(log_probabilities, labels, self._reduction)
