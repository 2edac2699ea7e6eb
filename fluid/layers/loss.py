"""Losses made of several ops, or with parameters."""

from __future__ import annotations

from typing import Any

from ..building.layer_helper import LayerHelper, apply
from ..errors import ProgramError
from ..initializer import Constant
from ..ir.checked import Positive, check_variable
from ..ir.program import Variable
from ..param_attr import AttrLike
from .nn import matmul, one_hot, softmax_with_cross_entropy, transpose
from .ops import reduce_mean, reduce_sum, square
from .tensor import cast, constant

__all__ = ["center_loss", "dice_loss", "npair_loss"]


def center_loss(
    input: Variable,
    label: Variable,
    num_classes: Positive,
    alpha: float | Variable,
    param_attr: AttrLike,
    update_center: bool = True,
) -> Variable:
    """Half the squared distance of each row of `input` ``[N, D]`` from the center of its class, of shape ``[N, 1]``.

    Formula: Wen et al., A Discriminative Feature Learning Approach for Deep Face Recognition, 2016.

    Args:
        input: float ``[N, D]``; D is known.
        label: int64 ``[N, 1]``.
        num_classes: number of centers.
        alpha: rate at which centers move towards the rows of their classes, if `update_center`.
        param_attr: attributes of the centers, ``[num_classes, D]``, which get no gradient.
        update_center: whether each run moves the centers.

    >>> features, labels = fluid.data("features", [None, 64]), fluid.data("labels", [None, 1], "int64")
    >>> layers.center_loss(features, labels, num_classes=10, alpha=0.5, param_attr=None).shape
    (-1, 1)
    """
    check_variable(input, "center_loss: input")
    helper = LayerHelper("center_loss", param_attr=param_attr)
    centers = constant(helper.create_parameter(helper.param_attr, [num_classes, input.shape[1]], input.dtype))
    if isinstance(alpha, Variable):
        rate = alpha
    else:
        name = helper.name + ".alpha"
        rate = helper.create_global_variable(True, name=name, shape=[1], dtype=input.dtype, stop_gradient=True)
        helper.set_variable_initializer(rate, Constant(alpha))
    inputs = {"X": input, "Label": label, "Centers": centers, "CenterUpdateRate": rate}
    attrs = {"cluster_num": num_classes, "need_update": update_center}
    loss: Variable = helper.apply("center_loss", inputs, attrs, {"CentersOut": centers})["Loss"]
    return loss


def dice_loss(input: Variable, label: Variable, epsilon: float = 1e-05, name: str | None = None) -> Variable:
    """One minus the mean of the Dice coefficients ``2 * |A * B| / (|A| + |B|)`` of predictions and labels.

    Formula: Milletari, Navab and Ahmadi, V-Net, 2016.

    Args:
        input: probabilities ``[N, ..., classes]``, float; the sums are over all but N.
        label: int64 classes ``[N, ..., 1]``.
        epsilon: added to the divisor.

    Raises:
        ProgramError: if `input` has less than two dimensions, or an unknown number of classes.

    >>> probabilities = fluid.dygraph.to_variable([[0.1, 0.9], [0.8, 0.2]])
    >>> layers.dice_loss(probabilities, fluid.dygraph.to_variable([[1], [0]]))
    Tensor([0.15], shape=[1], dtype=float32)
    """
    check_variable(input, "dice_loss: input")
    if input.ndim < 2 or input.shape[-1] < 1:
        raise ProgramError(f"dice_loss: input should have shape [N, ..., classes]; {input.name} is {input.describe()}")
    labels = one_hot(label, input.shape[-1])
    if labels.dtype != input.dtype:
        labels = cast(labels, input.dtype)
    axes = list(range(1, input.ndim))
    intersection = reduce_sum(input * labels, axes)
    total = reduce_sum(input, axes) + reduce_sum(labels, axes)
    return reduce_mean(1.0 - intersection * 2.0 / (total + epsilon), name=name)


def npair_loss(anchor: Variable, positive: Variable, labels: Variable, l2_reg: float = 0.002) -> Variable:
    """Cross entropy of the similarities of each anchor to all positives, with positives of the same label as targets, and a
    penalty.

    Formula: Sohn, Improved Deep Metric Learning with Multi-class N-pair Loss Objective, 2016.

    Args:
        anchor: float ``[N, D]``.
        positive: for each row of `anchor` one of the same class, ``[N, D]``.
        labels: ``[N]``, of any type; equal ones are of one class.
        l2_reg: the penalty is ``l2_reg / 4`` times the mean squared norm of both.

    >>> anchor = fluid.dygraph.to_variable([[1.0, 0.0], [0.0, 1.0]])
    >>> layers.npair_loss(anchor, anchor, labels=fluid.dygraph.to_variable([0, 1]))
    Tensor([0.3143], shape=[1], dtype=float32)
    """
    check_variable(labels, "npair_loss: labels")
    column = apply("reshape2", {"X": labels}, {"shape": [-1, 1]}, layer="npair_loss")
    row = transpose(column, [1, 0])
    same = constant(cast(apply("equal", {"X": column, "Y": row}, layer="npair_loss"), anchor.dtype))
    target = same / reduce_sum(same, 1, keep_dim=True)
    penalty = (reduce_mean(reduce_sum(square(anchor), 1)) + reduce_mean(reduce_sum(square(positive), 1))) * (0.25 * l2_reg)
    entropies: Any = softmax_with_cross_entropy(matmul(anchor, positive, transpose_y=True), target, soft_label=True)
    loss: Variable = reduce_mean(reduce_sum(target * entropies, 0)) + penalty
    return loss
