"""Layers of one op each. Do not edit: ``python -m fluid.layers.generate`` writes this file from the op definitions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..building.layer_helper import apply, apply_many
from ..ir.program import Variable
from ..values.types import DTypeLike, as_dtype
from .arguments import speaking_of
from .tensor import constant

__all__ = [  # noqa: RUF022  (in the order of the functions)
    "abs",
    "acos",
    "acosh",
    "add_position_encoding",
    "argsort",
    "asin",
    "asinh",
    "atan",
    "atanh",
    "bpr_loss",
    "brelu",
    "ceil",
    "celu",
    "cos",
    "cos_sim",
    "cosh",
    "cumsum",
    "elementwise_add",
    "elementwise_div",
    "elementwise_floordiv",
    "elementwise_max",
    "elementwise_min",
    "elementwise_mod",
    "elementwise_mul",
    "elementwise_pow",
    "elementwise_sub",
    "elu",
    "equal",
    "erf",
    "exp",
    "expand_as",
    "expm1",
    "floor",
    "gather_nd",
    "gather_tree",
    "gaussian_random_batch_size_like",
    "gelu",
    "greater_equal",
    "greater_than",
    "hard_shrink",
    "hard_sigmoid",
    "hard_swish",
    "has_inf",
    "has_nan",
    "hash",
    "isfinite",
    "kldiv_loss",
    "label_smooth",
    "leaky_relu",
    "less_equal",
    "less_than",
    "log",
    "log10",
    "log1p",
    "log2",
    "log_loss",
    "logical_and",
    "logical_not",
    "logical_or",
    "logical_xor",
    "logsigmoid",
    "margin_rank_loss",
    "mean_iou",
    "mish",
    "multiplex",
    "not_equal",
    "pad",
    "rank_loss",
    "reciprocal",
    "reduce_all",
    "reduce_amax",
    "reduce_amin",
    "reduce_any",
    "reduce_max",
    "reduce_mean",
    "reduce_min",
    "reduce_prod",
    "reduce_sum",
    "relu",
    "relu6",
    "rint",
    "round",
    "rsqrt",
    "sampling_id",
    "scatter",
    "scatter_nd_add",
    "selu",
    "shard_index",
    "sigmoid",
    "sign",
    "silu",
    "sin",
    "sinh",
    "size",
    "smooth_l1",
    "soft_relu",
    "softplus",
    "softshrink",
    "softsign",
    "sqrt",
    "square",
    "stanh",
    "swish",
    "tan",
    "tanh",
    "tanh_shrink",
    "teacher_student_sigmoid_loss",
    "thresholded_relu",
    "uniform_random_batch_size_like",
    "unique",
    "unique_with_counts",
]


def _reduce(op_type: str, input: Variable, dim: int | Sequence[int] | None, keep_dim: bool, name: str | None) -> Variable:
    attrs: dict[str, Any] = {"keep_dim": keep_dim}
    if dim is None or (not isinstance(dim, int) and len(dim) == 0):
        attrs["reduce_all"] = True
    else:
        attrs["dim"] = [dim] if isinstance(dim, int) else list(dim)
    return apply(op_type, {"X": input}, attrs, name=name)


def _combine(op_type: str, x: Variable, y: Variable, axis: int, act: str | None, name: str | None) -> Variable:
    """An elementwise op; of a `y` as long as `x`, ones at the end give way to `axis`."""
    count = x.ndim - axis if isinstance(x, Variable) and isinstance(y, Variable) else 0
    if axis > 0 and count > 0 and y.ndim == x.ndim and {*y.shape[count:]} == {1}:
        y = apply("reshape2", {"X": y}, {"shape": [0] * count})
    return apply(op_type, {"X": x, "Y": y}, {"axis": axis}, name=name, act=act)


def _compare(op_type: str, x: Variable, y: Variable, cond: Variable | None) -> Variable:
    return constant(apply(op_type, {"X": x, "Y": y}, outputs={"Out": cond}))


def _without_none(attrs: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in attrs.items() if value is not None}


def abs(x: Variable, name: str | None = None) -> Variable:
    """Absolute value; it is real for complex numbers.

    Args:
        x: a tensor of any shape; int or float.

    >>> x = fluid.dygraph.to_variable([-1.5, 0.0, 2.0])
    >>> layers.abs(x)
    Tensor([1.5, 0. , 2. ], shape=[3], dtype=float32)
    """
    return apply("abs", {"X": x}, name=name)


def acos(x: Variable, name: str | None = None) -> Variable:
    """Inverse cosine.

    Args:
        x: a tensor of any shape; float.

    >>> x = fluid.dygraph.to_variable([-1.0, 0.0, 1.0])
    >>> layers.acos(x)
    Tensor([3.1416, 1.5708, 0.    ], shape=[3], dtype=float32)
    """
    return apply("acos", {"X": x}, name=name)


def acosh(x: Variable, name: str | None = None) -> Variable:
    """Inverse hyperbolic cosine.

    Args:
        x: a tensor of any shape; float.

    >>> x = fluid.dygraph.to_variable([1.0, 2.0])
    >>> layers.acosh(x)
    Tensor([0.   , 1.317], shape=[2], dtype=float32)
    """
    return apply("acosh", {"X": x}, name=name)


def add_position_encoding(input: Variable, alpha: float, beta: float, name: str | None = None) -> Variable:
    """``alpha * input + beta * P`` of `input` [batch, length, width], where P[position, i] are waves of lengths from 2 pi to
    20000 pi.

    With ``h = width / 2`` and ``a = position / 10000 ** (k / (h - 1))``, ``P[k] = sin(a)`` and ``P[h + k] = cos(a)``. `input`
    may also be the rows [rows, width] of sequences (of the last level). Each sequence begins at position 0.

    Formula: Vaswani et al., Attention Is All You Need, 2017.

    Args:
        input: ``[batch, length, width]``, or the rows ``[rows, width]`` of sequences; `width` is even.
        alpha: factor of `input`.
        beta: factor of the waves.

    >>> x = fluid.dygraph.to_variable([[[0.0, 0.0], [0.0, 0.0]]])
    >>> layers.add_position_encoding(x, alpha=1.0, beta=1.0)
    Tensor([[[0.    , 1.    ],
             [0.0001, 1.    ]]], shape=[1, 2, 2], dtype=float32)
    """
    return apply("add_position_encoding", {"X": input}, {"alpha": alpha, "beta": beta}, name=name)


def argsort(input: Variable, axis: int = -1, name: str | None = None, descending: bool = False) -> tuple[Variable, Variable]:
    """`input` sorted along `axis`, and the indices of its elements in `input`; the sort is stable.

    Args:
        input: a tensor.
        axis: the dimension to sort along; negative ones count from the end.
        descending: whether the largest element comes first.

    Returns:
        Out and Indices.

    >>> x = fluid.dygraph.to_variable([30, 10, 20])
    >>> layers.argsort(x)
    (Tensor([10, 20, 30], shape=[3], dtype=int64), Tensor([1, 2, 0], shape=[3], dtype=int64))
    """
    out, indices = apply_many("argsort", {"X": input}, {"axis": axis, "descending": descending}, name=name)
    return out, indices


def asin(x: Variable, name: str | None = None) -> Variable:
    """Inverse sine.

    Args:
        x: a tensor of any shape; float.

    >>> x = fluid.dygraph.to_variable([-1.0, 0.0, 1.0])
    >>> layers.asin(x)
    Tensor([-1.5708,  0.    ,  1.5708], shape=[3], dtype=float32)
    """
    return apply("asin", {"X": x}, name=name)


def asinh(x: Variable, name: str | None = None) -> Variable:
    """Inverse hyperbolic sine.

    Args:
        x: a tensor of any shape; float.

    >>> x = fluid.dygraph.to_variable([-1.0, 0.0, 2.0])
    >>> layers.asinh(x)
    Tensor([-0.8814,  0.    ,  1.4436], shape=[3], dtype=float32)
    """
    return apply("asinh", {"X": x}, name=name)


def atan(x: Variable, name: str | None = None) -> Variable:
    """Inverse tangent.

    Args:
        x: a tensor of any shape; float.

    >>> x = fluid.dygraph.to_variable([-1.0, 0.0, 2.0])
    >>> layers.atan(x)
    Tensor([-0.7854,  0.    ,  1.1071], shape=[3], dtype=float32)
    """
    return apply("atan", {"X": x}, name=name)


def atanh(x: Variable, name: str | None = None) -> Variable:
    """Inverse hyperbolic tangent.

    Args:
        x: a tensor of any shape; float.

    >>> x = fluid.dygraph.to_variable([-0.5, 0.0, 0.5])
    >>> layers.atanh(x)
    Tensor([-0.5493,  0.    ,  0.5493], shape=[3], dtype=float32)
    """
    return apply("atanh", {"X": x}, name=name)


def bpr_loss(input: Variable, label: Variable, name: str | None = None) -> Variable:
    """The mean over the other classes j of ``log(1 + exp(input[j] - input[label]))`` (Bayesian personalized ranking), ``[...,
    1]``.

    Formula: Hidasi et al., Session-based Recommendations with Recurrent Neural Networks, 2016.

    Args:
        input: scores ``[..., classes]``, with two classes at least.
        label: the right class of each row, ``[..., 1]``.

    >>> x = fluid.dygraph.to_variable([[1.0, 2.0]])
    >>> y = fluid.dygraph.to_variable([[1]])
    >>> layers.bpr_loss(x, y)
    Tensor([[0.3133]], shape=[1, 1], dtype=float32)
    """
    return apply("bpr_loss", {"X": input, "Label": label}, name=name)


def brelu(x: Variable, t_min: float = 0.0, t_max: float = 24.0, name: str | None = None) -> Variable:
    """`x` clipped to ``[t_min, t_max]``.

    Args:
        x: a tensor of any shape; int or float.
        t_min, t_max: the bounds; `t_min` is not above `t_max`.

    >>> x = fluid.dygraph.to_variable([-1.0, 5.0, 30.0])
    >>> layers.brelu(x, t_max=24.0)
    Tensor([ 0.,  5., 24.], shape=[3], dtype=float32)
    """
    return apply("brelu", {"X": x}, {"t_min": t_min, "t_max": t_max}, name=name)


def ceil(x: Variable, name: str | None = None) -> Variable:
    """The smallest integer that is not below `x`.

    Args:
        x: a tensor of any shape; int or real.

    >>> x = fluid.dygraph.to_variable([-1.5, 0.2, 2.0])
    >>> layers.ceil(x)
    Tensor([-1.,  1.,  2.], shape=[3], dtype=float32)
    """
    return apply("ceil", {"X": x}, name=name)


def celu(x: Variable, alpha: float = 1.0, name: str | None = None) -> Variable:
    """`x` where it is positive, ``alpha * (exp(x / alpha) - 1)`` elsewhere.

    Formula: Barron, Continuously Differentiable Exponential Linear Units, 2017.

    Args:
        x: a tensor of any shape; float.
        alpha: minus the limit for large negative `x`; not 0.

    >>> x = fluid.dygraph.to_variable([-1.0, 0.0, 2.0])
    >>> layers.celu(x)
    Tensor([-0.6321,  0.    ,  2.    ], shape=[3], dtype=float32)
    """
    return apply("celu", {"X": x}, {"alpha": alpha}, name=name)


def cos(x: Variable, name: str | None = None) -> Variable:
    """Cosine.

    Args:
        x: a tensor of any shape; float.

    >>> x = fluid.dygraph.to_variable([0.0, 1.0, 3.1416])
    >>> layers.cos(x)
    Tensor([ 1.    ,  0.5403, -1.    ], shape=[3], dtype=float32)
    """
    return apply("cos", {"X": x}, name=name)


def cos_sim(X: Variable, Y: Variable) -> Variable:
    """For each row, the cosine of the angle between X and Y, of shape [rows, 1]; Y may have one row for all.

    Vectors shorter than 1e-4 count as if they were so long; the cosine with zeros is 0.

    Args:
        X: ``[rows, ...]``; what follows the rows is one vector.
        Y: of the shape of X, or with one row.

    >>> x = fluid.dygraph.to_variable([[1.0, 0.0]])
    >>> y = fluid.dygraph.to_variable([[1.0, 1.0]])
    >>> layers.cos_sim(x, y)
    Tensor([[0.7071]], shape=[1, 1], dtype=float32)
    """
    return apply("cos_sim", {"X": X, "Y": Y})


def cosh(x: Variable, name: str | None = None) -> Variable:
    """Hyperbolic cosine.

    Args:
        x: a tensor of any shape; float.

    >>> x = fluid.dygraph.to_variable([-1.0, 0.0, 2.0])
    >>> layers.cosh(x)
    Tensor([1.5431, 1.    , 3.7622], shape=[3], dtype=float32)
    """
    return apply("cosh", {"X": x}, name=name)


def cumsum(x: Variable, axis: int | None = None, exclusive: bool | None = None, reverse: bool | None = None) -> Variable:
    """Cumulative sums along `axis`.

    Args:
        x: a tensor.
        axis: the dimension; negative ones count from the end.
        exclusive: whether sums leave the element itself out, and begin with 0.
        reverse: whether to sum from the end.

    >>> x = fluid.dygraph.to_variable([1, 2, 3, 4])
    >>> layers.cumsum(x)
    Tensor([ 1,  3,  6, 10], shape=[4], dtype=int64)
    """
    return apply("cumsum", {"X": x}, _without_none({"axis": axis, "exclusive": exclusive, "reverse": reverse}))


def elementwise_add(x: Variable, y: Variable, axis: int = -1, act: str | None = None, name: str | None = None) -> Variable:
    """``x + y``; the smaller operand's first dimension is aligned with `axis` of the larger one; -1 aligns the last ones.

    Args:
        x, y: tensors of one type; of the smaller one, dimensions that it lacks, or that have size 1, are repeated.
        axis: the dimension of the larger operand that the first one of the smaller is aligned with; -1 aligns the last ones.

    >>> x = fluid.dygraph.to_variable([1.0, 2.0])
    >>> y = fluid.dygraph.to_variable([10.0, 20.0])
    >>> layers.elementwise_add(x, y)
    Tensor([11., 22.], shape=[2], dtype=float32)
    """
    return _combine("elementwise_add", x, y, axis, act, name)


def elementwise_div(x: Variable, y: Variable, axis: int = -1, act: str | None = None, name: str | None = None) -> Variable:
    """``x / y``, for integers rounded towards zero; operands are aligned as in `elementwise_add`.

    Args:
        x, y: tensors of one type; of the smaller one, dimensions that it lacks, or that have size 1, are repeated.
        axis: the dimension of the larger operand that the first one of the smaller is aligned with; -1 aligns the last ones.

    >>> x = fluid.dygraph.to_variable([1.0, 9.0])
    >>> y = fluid.dygraph.to_variable([4.0, 3.0])
    >>> layers.elementwise_div(x, y)
    Tensor([0.25, 3.  ], shape=[2], dtype=float32)
    """
    return _combine("elementwise_div", x, y, axis, act, name)


def elementwise_floordiv(x: Variable, y: Variable, axis: int = -1, act: str | None = None, name: str | None = None) -> Variable:
    """The largest integer that is not above ``x / y``; operands are aligned as in `elementwise_add`.

    Args:
        x, y: tensors of one type; of the smaller one, dimensions that it lacks, or that have size 1, are repeated.
        axis: the dimension of the larger operand that the first one of the smaller is aligned with; -1 aligns the last ones.

    >>> x = fluid.dygraph.to_variable([7, -7])
    >>> y = fluid.dygraph.to_variable([2, 2])
    >>> layers.elementwise_floordiv(x, y)
    Tensor([ 3, -4], shape=[2], dtype=int64)
    """
    return _combine("elementwise_floordiv", x, y, axis, act, name)


def elementwise_max(x: Variable, y: Variable, axis: int = -1, act: str | None = None, name: str | None = None) -> Variable:
    """The larger of `x` and `y`, aligned as in `elementwise_add`. Where they are equal, the gradient goes to `y`.

    Args:
        x, y: tensors of one type; of the smaller one, dimensions that it lacks, or that have size 1, are repeated.
        axis: the dimension of the larger operand that the first one of the smaller is aligned with; -1 aligns the last ones.

    >>> x = fluid.dygraph.to_variable([1.0, 5.0])
    >>> y = fluid.dygraph.to_variable([3.0, 2.0])
    >>> layers.elementwise_max(x, y)
    Tensor([3., 5.], shape=[2], dtype=float32)
    """
    return _combine("elementwise_max", x, y, axis, act, name)


def elementwise_min(x: Variable, y: Variable, axis: int = -1, act: str | None = None, name: str | None = None) -> Variable:
    """The smaller of `x` and `y`, aligned as in `elementwise_add`. Where they are equal, the gradient goes to `y`.

    Args:
        x, y: tensors of one type; of the smaller one, dimensions that it lacks, or that have size 1, are repeated.
        axis: the dimension of the larger operand that the first one of the smaller is aligned with; -1 aligns the last ones.

    >>> x = fluid.dygraph.to_variable([1.0, 5.0])
    >>> y = fluid.dygraph.to_variable([3.0, 2.0])
    >>> layers.elementwise_min(x, y)
    Tensor([1., 2.], shape=[2], dtype=float32)
    """
    return _combine("elementwise_min", x, y, axis, act, name)


def elementwise_mod(x: Variable, y: Variable, axis: int = -1, act: str | None = None, name: str | None = None) -> Variable:
    """The remainder of ``x / y``, with the sign of `y`; operands are aligned as in `elementwise_add`.

    The gradient with respect to `x` is 1, and that with respect to `y` minus the rounded quotient, also where the remainder
    jumps.

    Args:
        x, y: tensors of one type; of the smaller one, dimensions that it lacks, or that have size 1, are repeated.
        axis: the dimension of the larger operand that the first one of the smaller is aligned with; -1 aligns the last ones.

    >>> x = fluid.dygraph.to_variable([7, -7])
    >>> y = fluid.dygraph.to_variable([3, 3])
    >>> layers.elementwise_mod(x, y)
    Tensor([1, 2], shape=[2], dtype=int64)
    """
    return _combine("elementwise_mod", x, y, axis, act, name)


def elementwise_mul(x: Variable, y: Variable, axis: int = -1, act: str | None = None, name: str | None = None) -> Variable:
    """``x * y``; operands are aligned as in `elementwise_add`.

    Args:
        x, y: tensors of one type; of the smaller one, dimensions that it lacks, or that have size 1, are repeated.
        axis: the dimension of the larger operand that the first one of the smaller is aligned with; -1 aligns the last ones.

    >>> x = fluid.dygraph.to_variable([1.0, 2.0])
    >>> y = fluid.dygraph.to_variable([10.0, 20.0])
    >>> layers.elementwise_mul(x, y)
    Tensor([10., 40.], shape=[2], dtype=float32)
    """
    return _combine("elementwise_mul", x, y, axis, act, name)


def elementwise_pow(x: Variable, y: Variable, axis: int = -1, act: str | None = None, name: str | None = None) -> Variable:
    """``x ** y``; operands are aligned as in `elementwise_add`. With respect to `y`, the gradient at ``x = 0`` is 0.

    Args:
        x, y: tensors of one type; of the smaller one, dimensions that it lacks, or that have size 1, are repeated.
        axis: the dimension of the larger operand that the first one of the smaller is aligned with; -1 aligns the last ones.

    >>> x = fluid.dygraph.to_variable([2.0, 3.0])
    >>> y = fluid.dygraph.to_variable([3.0, 2.0])
    >>> layers.elementwise_pow(x, y)
    Tensor([8., 9.], shape=[2], dtype=float32)
    """
    return _combine("elementwise_pow", x, y, axis, act, name)


def elementwise_sub(x: Variable, y: Variable, axis: int = -1, act: str | None = None, name: str | None = None) -> Variable:
    """``x - y``; operands are aligned as in `elementwise_add`.

    Args:
        x, y: tensors of one type; of the smaller one, dimensions that it lacks, or that have size 1, are repeated.
        axis: the dimension of the larger operand that the first one of the smaller is aligned with; -1 aligns the last ones.

    >>> x = fluid.dygraph.to_variable([10.0, 20.0])
    >>> y = fluid.dygraph.to_variable([1.0, 2.0])
    >>> layers.elementwise_sub(x, y)
    Tensor([ 9., 18.], shape=[2], dtype=float32)
    """
    return _combine("elementwise_sub", x, y, axis, act, name)


def elu(x: Variable, alpha: float = 1.0, name: str | None = None) -> Variable:
    """`x` where it is positive, ``alpha * (exp(x) - 1)`` elsewhere.

    Formula: Clevert, Unterthiner and Hochreiter, Fast and Accurate Deep Network Learning by Exponential Linear Units, 2016.

    Args:
        x: a tensor of any shape; float.
        alpha: minus the limit for large negative `x`.

    >>> x = fluid.dygraph.to_variable([-1.0, 0.0, 2.0])
    >>> layers.elu(x)
    Tensor([-0.6321,  0.    ,  2.    ], shape=[3], dtype=float32)
    """
    return apply("elu", {"X": x}, {"alpha": alpha}, name=name)


def equal(x: Variable, y: Variable, cond: Variable | None = None) -> Variable:
    """``x == y``, as bools; operands are aligned as in `elementwise_add`.

    Args:
        x, y: tensors of one type; of the smaller one, dimensions that it lacks, or that have size 1, are repeated.
        cond: a bool variable to write to; by default a new one.

    >>> x = fluid.dygraph.to_variable([1, 2, 3])
    >>> y = fluid.dygraph.to_variable([2, 2, 2])
    >>> layers.equal(x, y)
    Tensor([False,  True, False], shape=[3], dtype=bool)
    """
    return _compare("equal", x, y, cond)


def erf(x: Variable, name: str | None = None) -> Variable:
    """The error function, ``2 / sqrt(pi)`` times the integral of ``exp(-t * t)`` from 0 to `x`.

    Args:
        x: a tensor of any shape; float.

    >>> x = fluid.dygraph.to_variable([-1.0, 0.0, 2.0])
    >>> layers.erf(x)
    Tensor([-0.8427,  0.    ,  0.9953], shape=[3], dtype=float32)
    """
    return apply("erf", {"X": x}, name=name)


def exp(x: Variable, name: str | None = None) -> Variable:
    """``e ** x``.

    Args:
        x: a tensor of any shape; float.

    >>> x = fluid.dygraph.to_variable([-1.0, 0.0, 2.0])
    >>> layers.exp(x)
    Tensor([0.3679, 1.    , 7.3891], shape=[3], dtype=float32)
    """
    return apply("exp", {"X": x}, name=name)


def expand_as(x: Variable, target_tensor: Variable, name: str | None = None) -> Variable:
    """`x` repeated along its axes to the shape of target_tensor.

    Args:
        x: a tensor.
        target_tensor: a tensor of `x`'s rank whose sizes are multiples of `x`'s; only its shape is read.

    >>> x = fluid.dygraph.to_variable([[1, 2]])
    >>> y = fluid.dygraph.to_variable([[0, 0], [0, 0]])
    >>> layers.expand_as(x, y)
    Tensor([[1, 2],
            [1, 2]], shape=[2, 2], dtype=int64)
    """
    return apply("expand_as", {"X": x, "target_tensor": target_tensor}, name=name)


def expm1(x: Variable, name: str | None = None) -> Variable:
    """``e ** x - 1``, exact near 0.

    Args:
        x: a tensor of any shape; float.

    >>> x = fluid.dygraph.to_variable([-1.0, 0.0, 2.0])
    >>> layers.expm1(x)
    Tensor([-0.6321,  0.    ,  6.3891], shape=[3], dtype=float32)
    """
    return apply("expm1", {"X": x}, name=name)


def floor(x: Variable, name: str | None = None) -> Variable:
    """The largest integer that is not above `x`.

    Args:
        x: a tensor of any shape; int or real.

    >>> x = fluid.dygraph.to_variable([-1.5, 0.2, 2.0])
    >>> layers.floor(x)
    Tensor([-2.,  0.,  2.], shape=[3], dtype=float32)
    """
    return apply("floor", {"X": x}, name=name)


def gather_nd(input: Variable, index: Variable, name: str | None = None) -> Variable:
    """``Out[i, ...] = input[index[i, 0], index[i, 1], ...]``: the last axis of `index` holds indices of `input`'s first axes.

    Args:
        input: a tensor.
        index: ``[..., D]``, with D at most the number of dimensions of `input`; ``Out`` is ``[*index.shape[:-1],
            *input.shape[D:]]``.

    >>> x = fluid.dygraph.to_variable([[1, 2], [3, 4]])
    >>> y = fluid.dygraph.to_variable([[1, 0], [0, 1]])
    >>> layers.gather_nd(x, y)
    Tensor([3, 2], shape=[2], dtype=int64)
    """
    return apply("gather_nd", {"X": input, "Index": index}, name=name)


def gather_tree(ids: Variable, parents: Variable) -> Variable:
    """The sequences of a beam search: from the last step back, the ids along the chain of `parents`.

    Args:
        ids: the id that each beam appended in each step, ``[steps, batch, beams]``.
        parents: of the same shape, the beam of the step before that each beam continues.

    >>> x = fluid.dygraph.to_variable([[[5, 6]], [[7, 8]]])
    >>> y = fluid.dygraph.to_variable([[[0, 0]], [[1, 0]]])
    >>> layers.gather_tree(x, y).numpy().tolist()
    [[[6, 5]], [[7, 8]]]
    """
    return constant(apply("gather_tree", {"Ids": ids, "Parents": parents}))


def gaussian_random_batch_size_like(
    input: Variable,
    shape: Sequence[int],
    input_dim_idx: int = 0,
    output_dim_idx: int = 0,
    mean: float = 0.0,
    std: float = 1.0,
    seed: int = 0,
    dtype: DTypeLike = "float32",
) -> Variable:
    """As `gaussian_random`, with dimension `input_dim_idx` of `input` as dimension `output_dim_idx`.

    Args:
        input: a tensor; only its size is read.
        shape: the sizes; the one at `output_dim_idx` is replaced.
        input_dim_idx: the dimension of `input` that the size is taken from.
        output_dim_idx: the dimension of the result that gets it.
        mean: the mean.
        std: the standard deviation, at least 0.
        seed: of the random numbers, the same in every run; 0 draws new ones.
        dtype: a float type.

    >>> x = fluid.dygraph.to_variable([[1.0], [2.0]])
    >>> layers.gaussian_random_batch_size_like(x, shape=[-1, 3]).shape
    (2, 3)
    """
    attrs: dict[str, Any] = {
        "shape": shape,
        "input_dim_idx": input_dim_idx,
        "output_dim_idx": output_dim_idx,
        "mean": mean,
        "std": std,
        "seed": seed,
        "dtype": int(as_dtype(dtype)),
    }
    return constant(apply("gaussian_random_batch_size_like", {"Input": input}, attrs))


def gelu(x: Variable, approximate: bool = False, name: str | None = None) -> Variable:
    """`x` times the probability that a standard normal variable is below `x`; if `approximate`, by a formula with tanh.

    Formula: Hendrycks and Gimpel, Gaussian Error Linear Units, 2016.

    Args:
        x: a tensor of any shape; float.
        approximate: whether to compute ``0.5 * x * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 * x ** 3)))``.

    >>> x = fluid.dygraph.to_variable([-1.0, 0.0, 2.0])
    >>> layers.gelu(x)
    Tensor([-0.1587,  0.    ,  1.9545], shape=[3], dtype=float32)
    """
    return apply("gelu", {"X": x}, {"approximate": approximate}, name=name)


def greater_equal(x: Variable, y: Variable, cond: Variable | None = None) -> Variable:
    """``x >= y``, as bools; operands are aligned as in `elementwise_add`.

    Args:
        x, y: tensors of one type; of the smaller one, dimensions that it lacks, or that have size 1, are repeated.
        cond: a bool variable to write to; by default a new one.

    >>> x = fluid.dygraph.to_variable([1, 2, 3])
    >>> y = fluid.dygraph.to_variable([2, 2, 2])
    >>> layers.greater_equal(x, y)
    Tensor([False,  True,  True], shape=[3], dtype=bool)
    """
    return _compare("greater_equal", x, y, cond)


def greater_than(x: Variable, y: Variable, cond: Variable | None = None) -> Variable:
    """``x > y``, as bools; operands are aligned as in `elementwise_add`.

    Args:
        x, y: tensors of one type; of the smaller one, dimensions that it lacks, or that have size 1, are repeated.
        cond: a bool variable to write to; by default a new one.

    >>> x = fluid.dygraph.to_variable([1, 2, 3])
    >>> y = fluid.dygraph.to_variable([2, 2, 2])
    >>> layers.greater_than(x, y)
    Tensor([False, False,  True], shape=[3], dtype=bool)
    """
    return _compare("greater_than", x, y, cond)


def hard_shrink(x: Variable, threshold: float | None = None, name: str | None = None) -> Variable:
    """`x` where its absolute value is above `threshold`, 0 elsewhere.

    Args:
        x: a tensor of any shape; float.
        threshold: the largest absolute value that becomes 0.

    >>> x = fluid.dygraph.to_variable([-1.0, 0.2, 2.0])
    >>> layers.hard_shrink(x)
    Tensor([-1.,  0.,  2.], shape=[3], dtype=float32)
    """
    return apply("hard_shrink", {"X": x}, _without_none({"threshold": threshold}), name=name)


def hard_sigmoid(x: Variable, slope: float = 0.2, offset: float = 0.5, name: str | None = None) -> Variable:
    """``slope * x + offset``, clipped to ``[0, 1]``.

    Args:
        x: a tensor of any shape; float.
        slope: of the line.
        offset: its value at 0.

    >>> x = fluid.dygraph.to_variable([-4.0, 0.0, 1.0])
    >>> layers.hard_sigmoid(x)
    Tensor([0. , 0.5, 0.7], shape=[3], dtype=float32)
    """
    return apply("hard_sigmoid", {"X": x}, {"slope": slope, "offset": offset}, name=name)


def hard_swish(x: Variable, threshold: float = 6.0, scale: float = 6.0, offset: float = 3.0, name: str | None = None) -> Variable:
    """``x / scale`` times ``x + offset`` clipped to ``[0, threshold]``.

    Formula: Howard et al., Searching for MobileNetV3, 2019.

    Args:
        x: a tensor of any shape; float.
        threshold: the upper bound of ``x + offset``.
        scale: the divisor of the product.
        offset: the number added to `x`.

    >>> x = fluid.dygraph.to_variable([0.0, 1.0, 4.0])
    >>> layers.hard_swish(x)
    Tensor([0.    , 0.6667, 4.    ], shape=[3], dtype=float32)
    """
    return apply("hard_swish", {"X": x}, {"threshold": threshold, "scale": scale, "offset": offset}, name=name)


def has_inf(x: Variable) -> Variable:
    """Whether any element of `x` is infinite: one bool.

    Args:
        x: a tensor of any shape.

    >>> x = fluid.dygraph.to_variable([1.0, 2.0])
    >>> layers.has_inf(x)
    Tensor([False], shape=[1], dtype=bool)
    """
    return constant(apply("isinf", {"X": x}))


def has_nan(x: Variable) -> Variable:
    """Whether any element of `x` is not a number: one bool.

    Args:
        x: a tensor of any shape.

    >>> x = fluid.dygraph.to_variable([1.0, 2.0])
    >>> layers.has_nan(x)
    Tensor([False], shape=[1], dtype=bool)
    """
    return constant(apply("isnan", {"X": x}))


def hash(input: Variable, hash_size: int, num_hash: int = 1, name: str | None = None) -> Variable:
    """`num_hash` numbers in [0, `hash_size`) for each row of `input`, by XXH64 of its bytes with the seeds 0, 1, and so on.

    Args:
        input: int32 or int64 ``[..., width]``; the bytes of a row are hashed together.
        hash_size: what the hashes are taken modulo.
        num_hash: how many numbers per row.

    >>> x = fluid.dygraph.to_variable([[1, 2]])
    >>> layers.hash(x, hash_size=100)
    Tensor([[[24]]], shape=[1, 1, 1], dtype=int64)
    """
    with speaking_of({"mod_by": "hash_size"}):
        return constant(apply("hash", {"X": input}, {"mod_by": hash_size, "num_hash": num_hash}, name=name))


def isfinite(x: Variable) -> Variable:
    """Whether every element of `x` is finite: one bool.

    Args:
        x: a tensor of any shape.

    >>> x = fluid.dygraph.to_variable([1.0, 2.0])
    >>> layers.isfinite(x)
    Tensor([ True], shape=[1], dtype=bool)
    """
    return constant(apply("isfinite", {"X": x}))


def kldiv_loss(x: Variable, target: Variable, reduction: str = "mean", name: str | None = None) -> Variable:
    """``target * (log(target) - x)`` of logarithms `x` of probabilities, 0 where `target` is not above 0.

    Args:
        x: logarithms of probabilities, of any shape.
        target: probabilities, of the same shape.
        reduction: ``"none"``, ``"sum"``, ``"mean"``, or ``"batchmean"``, the sum divided by the number of rows.

    >>> x = fluid.dygraph.to_variable([-0.7, -0.7])
    >>> y = fluid.dygraph.to_variable([0.5, 0.5])
    >>> layers.kldiv_loss(x, y, reduction='sum')
    Tensor([0.0069], shape=[1], dtype=float32)
    """
    return apply("kldiv_loss", {"X": x, "Target": target}, {"reduction": reduction}, name=name)


def label_smooth(
    label: Variable,
    prior_dist: Variable | None = None,
    epsilon: float = 0.1,
    dtype: DTypeLike = "float32",
    name: str | None = None,
) -> Variable:
    """``(1 - epsilon) * label + epsilon * prior_dist``; the distribution is uniform, 1 / classes, by default.

    Formula: Szegedy et al., Rethinking the Inception Architecture for Computer Vision, 2016.

    Args:
        label: one-hot or other distributions, ``[..., classes]``.
        prior_dist: a distribution ``[1, classes]``, or one for each row.
        epsilon: the weight of `prior_dist`, from 0 to 1.
        dtype: accepted and ignored.

    >>> x = fluid.dygraph.to_variable([[0.0, 1.0]])
    >>> layers.label_smooth(x, epsilon=0.1)
    Tensor([[0.05, 0.95]], shape=[1, 2], dtype=float32)
    """
    return apply("label_smooth", {"X": label, "PriorDist": prior_dist}, {"epsilon": epsilon}, name=name)


def leaky_relu(x: Variable, alpha: float = 0.02, name: str | None = None) -> Variable:
    """`x` where it is positive, ``alpha * x`` elsewhere.

    Args:
        x: a tensor of any shape; float.
        alpha: the slope where `x` is negative.

    >>> x = fluid.dygraph.to_variable([-1.0, 0.0, 2.0])
    >>> layers.leaky_relu(x)
    Tensor([-0.02,  0.  ,  2.  ], shape=[3], dtype=float32)
    """
    return apply("leaky_relu", {"X": x}, {"alpha": alpha}, name=name)


def less_equal(x: Variable, y: Variable, cond: Variable | None = None) -> Variable:
    """``x <= y``, as bools; operands are aligned as in `elementwise_add`.

    Args:
        x, y: tensors of one type; of the smaller one, dimensions that it lacks, or that have size 1, are repeated.
        cond: a bool variable to write to; by default a new one.

    >>> x = fluid.dygraph.to_variable([1, 2, 3])
    >>> y = fluid.dygraph.to_variable([2, 2, 2])
    >>> layers.less_equal(x, y)
    Tensor([ True,  True, False], shape=[3], dtype=bool)
    """
    return _compare("less_equal", x, y, cond)


def less_than(x: Variable, y: Variable, force_cpu: bool | None = None, cond: Variable | None = None) -> Variable:
    """``x < y``, as bools; operands are aligned as in `elementwise_add`.

    Args:
        x, y: tensors of one type; of the smaller one, dimensions that it lacks, or that have size 1, are repeated.
        cond: a bool variable to write to; by default a new one.

    >>> x = fluid.dygraph.to_variable([1, 2, 3])
    >>> y = fluid.dygraph.to_variable([2, 2, 2])
    >>> layers.less_than(x, y)
    Tensor([ True, False, False], shape=[3], dtype=bool)
    """
    return _compare("less_than", x, y, cond)


def log(x: Variable, name: str | None = None) -> Variable:
    """Natural logarithm.

    Args:
        x: a tensor of any shape; float.

    >>> x = fluid.dygraph.to_variable([1.0, 2.0, 10.0])
    >>> layers.log(x)
    Tensor([0.    , 0.6931, 2.3026], shape=[3], dtype=float32)
    """
    return apply("log", {"X": x}, name=name)


def log10(x: Variable, name: str | None = None) -> Variable:
    """Logarithm to base 10.

    Args:
        x: a tensor of any shape; float.

    >>> x = fluid.dygraph.to_variable([1.0, 2.0, 10.0])
    >>> layers.log10(x)
    Tensor([0.   , 0.301, 1.   ], shape=[3], dtype=float32)
    """
    return apply("log10", {"X": x}, name=name)


def log1p(x: Variable, name: str | None = None) -> Variable:
    """``log(1 + x)``, exact near 0.

    Args:
        x: a tensor of any shape; float.

    >>> x = fluid.dygraph.to_variable([0.0, 1.0])
    >>> layers.log1p(x)
    Tensor([0.    , 0.6931], shape=[2], dtype=float32)
    """
    return apply("log1p", {"X": x}, name=name)


def log2(x: Variable, name: str | None = None) -> Variable:
    """Logarithm to base 2.

    Args:
        x: a tensor of any shape; float.

    >>> x = fluid.dygraph.to_variable([1.0, 2.0, 10.0])
    >>> layers.log2(x)
    Tensor([0.    , 1.    , 3.3219], shape=[3], dtype=float32)
    """
    return apply("log2", {"X": x}, name=name)


def log_loss(input: Variable, label: Variable, epsilon: float = 0.0001, name: str | None = None) -> Variable:
    """``-label * log(input + epsilon) - (1 - label) * log(1 - input + epsilon)`` of probabilities.

    Args:
        input: probabilities, of any shape.
        label: 0 or 1, or probabilities, of the same shape.
        epsilon: keeps the logarithms finite.

    >>> x = fluid.dygraph.to_variable([[0.9], [0.2]])
    >>> y = fluid.dygraph.to_variable([[1.0], [0.0]])
    >>> layers.log_loss(x, y)
    Tensor([[0.1052],
            [0.223 ]], shape=[2, 1], dtype=float32)
    """
    return apply("log_loss", {"Predicted": input, "Labels": label}, {"epsilon": epsilon}, name=name)


def logical_and(x: Variable, y: Variable, out: Variable | None = None, name: str | None = None) -> Variable:
    """``x and y``, as bools; what is not zero counts as true.

    Args:
        x, y: tensors of one type; of the smaller one, dimensions that it lacks, or that have size 1, are repeated.
        out: a bool variable to write to; by default a new one.

    >>> x = fluid.dygraph.to_variable([True, True, False])
    >>> y = fluid.dygraph.to_variable([True, False, False])
    >>> layers.logical_and(x, y)
    Tensor([ True, False, False], shape=[3], dtype=bool)
    """
    return apply("logical_and", {"X": x, "Y": y}, name=name, outputs={"Out": out})


def logical_not(x: Variable, out: Variable | None = None, name: str | None = None) -> Variable:
    """``not x``, as bools; what is not zero counts as true.

    Args:
        x: a tensor of any shape.
        out: a bool variable to write to; by default a new one.

    >>> x = fluid.dygraph.to_variable([True, False])
    >>> layers.logical_not(x)
    Tensor([False,  True], shape=[2], dtype=bool)
    """
    return apply("logical_not", {"X": x}, name=name, outputs={"Out": out})


def logical_or(x: Variable, y: Variable, out: Variable | None = None, name: str | None = None) -> Variable:
    """``x or y``, as bools; what is not zero counts as true.

    Args:
        x, y: tensors of one type; of the smaller one, dimensions that it lacks, or that have size 1, are repeated.
        out: a bool variable to write to; by default a new one.

    >>> x = fluid.dygraph.to_variable([True, True, False])
    >>> y = fluid.dygraph.to_variable([True, False, False])
    >>> layers.logical_or(x, y)
    Tensor([ True,  True, False], shape=[3], dtype=bool)
    """
    return apply("logical_or", {"X": x, "Y": y}, name=name, outputs={"Out": out})


def logical_xor(x: Variable, y: Variable, out: Variable | None = None, name: str | None = None) -> Variable:
    """``x or y, but not both``, as bools; what is not zero counts as true.

    Args:
        x, y: tensors of one type; of the smaller one, dimensions that it lacks, or that have size 1, are repeated.
        out: a bool variable to write to; by default a new one.

    >>> x = fluid.dygraph.to_variable([True, True, False])
    >>> y = fluid.dygraph.to_variable([True, False, False])
    >>> layers.logical_xor(x, y)
    Tensor([False,  True, False], shape=[3], dtype=bool)
    """
    return apply("logical_xor", {"X": x, "Y": y}, name=name, outputs={"Out": out})


def logsigmoid(x: Variable, name: str | None = None) -> Variable:
    """The logarithm of `sigmoid`.

    Args:
        x: a tensor of any shape; float.

    >>> x = fluid.dygraph.to_variable([-1.0, 0.0, 2.0])
    >>> layers.logsigmoid(x)
    Tensor([-1.3133, -0.6931, -0.1269], shape=[3], dtype=float32)
    """
    return apply("logsigmoid", {"X": x}, name=name)


def margin_rank_loss(label: Variable, left: Variable, right: Variable, margin: float = 0.1, name: str | None = None) -> Variable:
    """``max(0, margin - label * (left - right))``; `label` is 1 where `left` should rank higher, -1 where `right` should.

    Args:
        label: 1 or -1, in the shape of the scores.
        left, right: scores of two items, of one shape.
        margin: the difference of the scores above which the loss is 0.

    >>> x = fluid.dygraph.to_variable([[1.0]])
    >>> y = fluid.dygraph.to_variable([[0.5]])
    >>> z = fluid.dygraph.to_variable([[0.7]])
    >>> layers.margin_rank_loss(x, y, z)
    Tensor([[0.3]], shape=[1, 1], dtype=float32)
    """
    return apply("margin_rank_loss", {"Label": label, "X1": left, "X2": right}, {"margin": margin}, name=name)


def mean_iou(input: Variable, label: Variable, num_classes: int) -> tuple[Variable, Variable, Variable]:
    """The mean, over the classes that occur, of intersection over union of predicted and labelled elements, as float32.

    OutCorrect counts the correct predictions of each class, OutWrong the wrong ones with the class as prediction or as label.

    Args:
        input: classes, of any shape.
        label: classes, of the same shape.
        num_classes: classes are in ``[0, num_classes)``.

    Returns:
        OutMeanIou, OutWrong and OutCorrect.

    >>> x = fluid.dygraph.to_variable([0, 1, 1])
    >>> y = fluid.dygraph.to_variable([0, 1, 0])
    >>> layers.mean_iou(x, y, num_classes=2)
    (Tensor([0.5], shape=[1], dtype=float32), Tensor([1, 1], shape=[2], dtype=int32), Tensor([1, 1], shape=[2], dtype=int32))
    """
    attrs: dict[str, Any] = {"num_classes": num_classes}
    out_mean_iou, out_wrong, out_correct = apply_many("mean_iou", {"Predictions": input, "Labels": label}, attrs)
    constant(out_mean_iou)
    constant(out_wrong)
    constant(out_correct)
    return out_mean_iou, out_wrong, out_correct


def mish(x: Variable, threshold: float = 20.0, name: str | None = None) -> Variable:
    """``x * tanh(softplus(x))``, with the threshold of `softplus`.

    Formula: Misra, Mish: A Self Regularized Non-Monotonic Activation Function, 2019.

    Args:
        x: a tensor of any shape; float.
        threshold: where `softplus` becomes `x` itself.

    >>> x = fluid.dygraph.to_variable([-1.0, 0.0, 2.0])
    >>> layers.mish(x)
    Tensor([-0.3034,  0.    ,  1.944 ], shape=[3], dtype=float32)
    """
    return apply("mish", {"X": x}, {"threshold": threshold}, name=name)


def multiplex(inputs: Sequence[Variable], index: Variable) -> Variable:
    """Row i of ``inputs[index[i]]`` as row i; `index` has shape [rows, 1].

    Args:
        inputs: tensors of the same shape ``[rows, ...]``.
        index: for each row the number of the tensor that it is taken from, ``[rows, 1]``.

    >>> x = fluid.dygraph.to_variable([[1, 2], [3, 4]])
    >>> y = fluid.dygraph.to_variable([[5, 6], [7, 8]])
    >>> z = fluid.dygraph.to_variable([[1], [0]])
    >>> layers.multiplex((x, y), z)
    Tensor([[5, 6],
            [3, 4]], shape=[2, 2], dtype=int64)
    """
    return apply("multiplex", {"X": inputs, "Ids": index})


def not_equal(x: Variable, y: Variable, cond: Variable | None = None) -> Variable:
    """``x != y``, as bools; operands are aligned as in `elementwise_add`.

    Args:
        x, y: tensors of one type; of the smaller one, dimensions that it lacks, or that have size 1, are repeated.
        cond: a bool variable to write to; by default a new one.

    >>> x = fluid.dygraph.to_variable([1, 2, 3])
    >>> y = fluid.dygraph.to_variable([2, 2, 2])
    >>> layers.not_equal(x, y)
    Tensor([ True, False,  True], shape=[3], dtype=bool)
    """
    return _compare("not_equal", x, y, cond)


def pad(x: Variable, paddings: Sequence[int], pad_value: float = 0.0, name: str | None = None) -> Variable:
    """`x` padded with `pad_value`: `paddings` holds, for each dimension, the padding before and after.

    Args:
        x: a tensor.
        paddings: two numbers for each dimension, ``[before_0, after_0, before_1, ...]``.
        pad_value: a number.

    >>> x = fluid.dygraph.to_variable([1, 2])
    >>> layers.pad(x, paddings=[1, 2], pad_value=9.0)
    Tensor([9, 1, 2, 9, 9], shape=[5], dtype=int64)
    """
    return apply("pad", {"X": x}, {"paddings": paddings, "pad_value": pad_value}, name=name)


def rank_loss(label: Variable, left: Variable, right: Variable, name: str | None = None) -> Variable:
    """``log(1 + exp(left - right)) - label * (left - right)``; `label` is the probability that `left` should rank higher.

    Formula: Burges et al., Learning to Rank using Gradient Descent, 2005.

    Args:
        label: from 0 to 1, of any shape, which is the shape of Out.
        left, right: scores of two items, a pair for each label, as ``[N]`` or ``[N, 1]``.

    >>> x = fluid.dygraph.to_variable([[1.0]])
    >>> y = fluid.dygraph.to_variable([[0.7]])
    >>> z = fluid.dygraph.to_variable([[0.5]])
    >>> layers.rank_loss(x, y, z)
    Tensor([[0.5981]], shape=[1, 1], dtype=float32)
    """
    return apply("rank_loss", {"Label": label, "Left": left, "Right": right}, name=name)


def reciprocal(x: Variable, name: str | None = None) -> Variable:
    """``1 / x``.

    Args:
        x: a tensor of any shape; int or float.

    >>> x = fluid.dygraph.to_variable([1.0, 4.0])
    >>> layers.reciprocal(x)
    Tensor([1.  , 0.25], shape=[2], dtype=float32)
    """
    return apply("reciprocal", {"X": x}, name=name)


def reduce_all(
    input: Variable, dim: int | Sequence[int] | None = None, keep_dim: bool = False, name: str | None = None
) -> Variable:
    """Whether all elements of `input`, bools or integers, over the dimensions `dim`, or over all, are true, or not 0.

    Args:
        input: a tensor.
        dim: one dimension or several to reduce, negative ones counted from the end; None or an empty list for all.
        keep_dim: whether reduced dimensions stay, with size 1. If not, and none is left, the result has shape [1].

    >>> x = fluid.dygraph.to_variable([[True, False], [True, True]])
    >>> layers.reduce_all(x, dim=1)
    Tensor([False,  True], shape=[2], dtype=bool)
    """
    return _reduce("reduce_all", input, dim, keep_dim, name)


def reduce_amax(
    input: Variable, dim: int | Sequence[int] | None = None, keep_dim: bool = False, name: str | None = None
) -> Variable:
    """As `reduce_max`, but equal elements share the gradient evenly.

    Args:
        input: a tensor.
        dim: one dimension or several to reduce, negative ones counted from the end; None or an empty list for all.
        keep_dim: whether reduced dimensions stay, with size 1. If not, and none is left, the result has shape [1].

    >>> x = fluid.dygraph.to_variable([[1.0, 2.0], [3.0, 4.0]])
    >>> layers.reduce_amax(x, dim=1)
    Tensor([2., 4.], shape=[2], dtype=float32)
    """
    return _reduce("reduce_amax", input, dim, keep_dim, name)


def reduce_amin(
    input: Variable, dim: int | Sequence[int] | None = None, keep_dim: bool = False, name: str | None = None
) -> Variable:
    """As `reduce_min`, but equal elements share the gradient evenly.

    Args:
        input: a tensor.
        dim: one dimension or several to reduce, negative ones counted from the end; None or an empty list for all.
        keep_dim: whether reduced dimensions stay, with size 1. If not, and none is left, the result has shape [1].

    >>> x = fluid.dygraph.to_variable([[1.0, 2.0], [3.0, 4.0]])
    >>> layers.reduce_amin(x, dim=1)
    Tensor([1., 3.], shape=[2], dtype=float32)
    """
    return _reduce("reduce_amin", input, dim, keep_dim, name)


def reduce_any(
    input: Variable, dim: int | Sequence[int] | None = None, keep_dim: bool = False, name: str | None = None
) -> Variable:
    """Whether any element of `input`, bools or integers, over the dimensions `dim`, or over all, is true, or not 0.

    Args:
        input: a tensor.
        dim: one dimension or several to reduce, negative ones counted from the end; None or an empty list for all.
        keep_dim: whether reduced dimensions stay, with size 1. If not, and none is left, the result has shape [1].

    >>> x = fluid.dygraph.to_variable([[True, False], [False, False]])
    >>> layers.reduce_any(x, dim=1)
    Tensor([ True, False], shape=[2], dtype=bool)
    """
    return _reduce("reduce_any", input, dim, keep_dim, name)


def reduce_max(
    input: Variable, dim: int | Sequence[int] | None = None, keep_dim: bool = False, name: str | None = None
) -> Variable:
    """The largest element of `input` over the dimensions `dim`, or over all. Every element that equals it gets the whole
    gradient.

    Args:
        input: a tensor.
        dim: one dimension or several to reduce, negative ones counted from the end; None or an empty list for all.
        keep_dim: whether reduced dimensions stay, with size 1. If not, and none is left, the result has shape [1].

    >>> x = fluid.dygraph.to_variable([[1.0, 2.0], [3.0, 4.0]])
    >>> layers.reduce_max(x, dim=1)
    Tensor([2., 4.], shape=[2], dtype=float32)
    """
    return _reduce("reduce_max", input, dim, keep_dim, name)


def reduce_mean(
    input: Variable, dim: int | Sequence[int] | None = None, keep_dim: bool = False, name: str | None = None
) -> Variable:
    """The mean of `input` over the dimensions `dim`, or over all; `keep_dim` keeps them with size 1.

    Args:
        input: a tensor.
        dim: one dimension or several to reduce, negative ones counted from the end; None or an empty list for all.
        keep_dim: whether reduced dimensions stay, with size 1. If not, and none is left, the result has shape [1].

    >>> x = fluid.dygraph.to_variable([[1.0, 2.0], [3.0, 4.0]])
    >>> layers.reduce_mean(x, dim=1)
    Tensor([1.5, 3.5], shape=[2], dtype=float32)
    """
    return _reduce("reduce_mean", input, dim, keep_dim, name)


def reduce_min(
    input: Variable, dim: int | Sequence[int] | None = None, keep_dim: bool = False, name: str | None = None
) -> Variable:
    """The smallest element of `input` over the dimensions `dim`, or over all. Every element that equals it gets the whole
    gradient.

    Args:
        input: a tensor.
        dim: one dimension or several to reduce, negative ones counted from the end; None or an empty list for all.
        keep_dim: whether reduced dimensions stay, with size 1. If not, and none is left, the result has shape [1].

    >>> x = fluid.dygraph.to_variable([[1.0, 2.0], [3.0, 4.0]])
    >>> layers.reduce_min(x, dim=1)
    Tensor([1., 3.], shape=[2], dtype=float32)
    """
    return _reduce("reduce_min", input, dim, keep_dim, name)


def reduce_prod(
    input: Variable, dim: int | Sequence[int] | None = None, keep_dim: bool = False, name: str | None = None
) -> Variable:
    """The product of `input` over the dimensions `dim`, or over all. The gradient of a factor is the product of the others.

    Args:
        input: a tensor.
        dim: one dimension or several to reduce, negative ones counted from the end; None or an empty list for all.
        keep_dim: whether reduced dimensions stay, with size 1. If not, and none is left, the result has shape [1].

    >>> x = fluid.dygraph.to_variable([[1.0, 2.0], [3.0, 4.0]])
    >>> layers.reduce_prod(x, dim=1)
    Tensor([ 2., 12.], shape=[2], dtype=float32)
    """
    return _reduce("reduce_prod", input, dim, keep_dim, name)


def reduce_sum(
    input: Variable, dim: int | Sequence[int] | None = None, keep_dim: bool = False, name: str | None = None
) -> Variable:
    """The sum of `input` over the dimensions `dim`, or over all; `keep_dim` keeps them with size 1. Bools are counted, as int64.

    Args:
        input: a tensor.
        dim: one dimension or several to reduce, negative ones counted from the end; None or an empty list for all.
        keep_dim: whether reduced dimensions stay, with size 1. If not, and none is left, the result has shape [1].

    >>> x = fluid.dygraph.to_variable([[1.0, 2.0], [3.0, 4.0]])
    >>> layers.reduce_sum(x, dim=0)
    Tensor([4., 6.], shape=[2], dtype=float32)
    """
    return _reduce("reduce_sum", input, dim, keep_dim, name)


def relu(x: Variable, name: str | None = None) -> Variable:
    """``max(x, 0)``.

    Args:
        x: a tensor of any shape; int or float.

    >>> x = fluid.dygraph.to_variable([-1.0, 0.0, 2.0])
    >>> layers.relu(x)
    Tensor([0., 0., 2.], shape=[3], dtype=float32)
    """
    return apply("relu", {"X": x}, name=name)


def relu6(x: Variable, threshold: float = 6.0, name: str | None = None) -> Variable:
    """``min(max(x, 0), threshold)``.

    Args:
        x: a tensor of any shape; int or float.
        threshold: the upper bound.

    >>> x = fluid.dygraph.to_variable([-1.0, 2.0, 8.0])
    >>> layers.relu6(x)
    Tensor([0., 2., 6.], shape=[3], dtype=float32)
    """
    return apply("relu6", {"X": x}, {"threshold": threshold}, name=name)


def rint(x: Variable, name: str | None = None) -> Variable:
    """The integer nearest to `x`; halves are rounded to the even one.

    Args:
        x: a tensor of any shape; float.

    >>> x = fluid.dygraph.to_variable([-1.5, 0.5, 2.7])
    >>> layers.rint(x)
    Tensor([-2.,  0.,  3.], shape=[3], dtype=float32)
    """
    return apply("rint", {"X": x}, name=name)


def round(x: Variable, name: str | None = None) -> Variable:
    """The integer nearest to `x`; halves are rounded away from 0.

    Args:
        x: a tensor of any shape; int or float.

    >>> x = fluid.dygraph.to_variable([-1.5, 0.2, 2.7])
    >>> layers.round(x)
    Tensor([-2.,  0.,  3.], shape=[3], dtype=float32)
    """
    return apply("round", {"X": x}, name=name)


def rsqrt(x: Variable, name: str | None = None) -> Variable:
    """``1 / sqrt(x)``.

    Args:
        x: a tensor of any shape; float.

    >>> x = fluid.dygraph.to_variable([1.0, 4.0])
    >>> layers.rsqrt(x)
    Tensor([1. , 0.5], shape=[2], dtype=float32)
    """
    return apply("rsqrt", {"X": x}, name=name)


def sampling_id(x: Variable, min: float = 0.0, max: float = 1.0, seed: int = 0, dtype: DTypeLike = "float32") -> Variable:
    """For each row of `x`, which holds probabilities of classes, a class drawn from them.

    It is the first class whose cumulative probability exceeds a number drawn from ``[min, max)``.

    Args:
        x: ``[rows, classes]``, each row summing to 1.
        min, max: bounds of the number drawn.
        seed: of the random numbers, the same in every run; 0 draws new ones.
        dtype: accepted and ignored.

    >>> x = fluid.dygraph.to_variable([[0.0, 1.0], [1.0, 0.0]])
    >>> layers.sampling_id(x)
    Tensor([1, 0], shape=[2], dtype=int64)
    """
    return constant(apply("sampling_id", {"X": x}, {"min": min, "max": max, "seed": seed}))


def scatter(input: Variable, index: Variable, updates: Variable, name: str | None = None, overwrite: bool = True) -> Variable:
    """`input` with the rows `index` replaced by the rows of `updates`; without `overwrite`, by the sums of the rows with the same
    id.

    With `overwrite`, ids should not repeat: the last row would count, but each would get the gradient.

    Args:
        input: ``[N, ...]``.
        index: ``[M]`` or ``[M, 1]``, each below N.
        updates: ``[M, ...]``, with the other dimensions of `input`.
        overwrite: whether rows of `updates` replace the rows of `input`, rather than their sums.

    >>> x = fluid.dygraph.to_variable([1.0, 2.0, 3.0])
    >>> y = fluid.dygraph.to_variable([2, 0])
    >>> z = fluid.dygraph.to_variable([30.0, 10.0])
    >>> layers.scatter(x, y, z)
    Tensor([10.,  2., 30.], shape=[3], dtype=float32)
    """
    return apply("scatter", {"X": input, "Ids": index, "Updates": updates}, {"overwrite": overwrite}, name=name)


def scatter_nd_add(ref: Variable, index: Variable, updates: Variable, name: str | None = None) -> Variable:
    """`ref` with `updates` added at the indices in `index`, as in `gather_nd`.

    Args:
        ref: a tensor.
        index: ``[..., D]``, positions in the first D dimensions of `ref`.
        updates: ``[*index.shape[:-1], *ref.shape[D:]]``; those for the same position are added up.

    >>> x = fluid.dygraph.to_variable([1.0, 2.0, 3.0])
    >>> y = fluid.dygraph.to_variable([[2], [0]])
    >>> z = fluid.dygraph.to_variable([30.0, 10.0])
    >>> layers.scatter_nd_add(x, y, z)
    Tensor([11.,  2., 33.], shape=[3], dtype=float32)
    """
    return apply("scatter_nd_add", {"X": ref, "Index": index, "Updates": updates}, name=name)


def selu(x: Variable, scale: float | None = None, alpha: float | None = None, name: str | None = None) -> Variable:
    """``scale * x`` where `x` is positive, ``scale * alpha * (exp(x) - 1)`` elsewhere.

    Formula: Klambauer et al., Self-Normalizing Neural Networks, 2017.

    Args:
        x: a tensor of any shape; float.
        scale, alpha: by default such that mean 0 and variance 1 are kept from layer to layer.

    >>> x = fluid.dygraph.to_variable([-1.0, 0.0, 2.0])
    >>> layers.selu(x)
    Tensor([-1.1113,  0.    ,  2.1014], shape=[3], dtype=float32)
    """
    return apply("selu", {"X": x}, _without_none({"scale": scale, "alpha": alpha}), name=name)


def shard_index(input: Variable, index_num: int, nshards: int, shard_id: int, ignore_value: int = -1) -> Variable:
    """Ids in [0, `index_num`) as indices in shard `shard_id` of `nshards` equal ones; `ignore_value` for ids of other shards.

    Args:
        input: ids, of any shape.
        index_num: the number of ids.
        nshards: the number of shards, each of ``(index_num + nshards - 1) // nshards`` ids.
        shard_id: which shard, below `nshards`.
        ignore_value: stands for ids of other shards.

    >>> x = fluid.dygraph.to_variable([[1], [6]])
    >>> layers.shard_index(x, index_num=8, nshards=2, shard_id=0)
    Tensor([[ 1],
            [-1]], shape=[2, 1], dtype=int64)
    """
    attrs: dict[str, Any] = {"index_num": index_num, "nshards": nshards, "shard_id": shard_id, "ignore_value": ignore_value}
    return constant(apply("shard_index", {"X": input}, attrs))


def sigmoid(x: Variable, name: str | None = None) -> Variable:
    """``1 / (1 + exp(-x))``.

    Args:
        x: a tensor of any shape; float.

    >>> x = fluid.dygraph.to_variable([-1.0, 0.0, 2.0])
    >>> layers.sigmoid(x)
    Tensor([0.2689, 0.5   , 0.8808], shape=[3], dtype=float32)
    """
    return apply("sigmoid", {"X": x}, name=name)


def sign(x: Variable, name: str | None = None) -> Variable:
    """-1 where `x` is negative, 1 where it is positive, 0 where it is 0.

    Args:
        x: a tensor of any shape; int or real.

    >>> x = fluid.dygraph.to_variable([-1.5, 0.0, 2.0])
    >>> layers.sign(x)
    Tensor([-1.,  0.,  1.], shape=[3], dtype=float32)
    """
    return apply("sign", {"X": x}, name=name)


def silu(x: Variable, name: str | None = None) -> Variable:
    """``x * sigmoid(x)``.

    Args:
        x: a tensor of any shape; float.

    >>> x = fluid.dygraph.to_variable([-1.0, 0.0, 2.0])
    >>> layers.silu(x)
    Tensor([-0.2689,  0.    ,  1.7616], shape=[3], dtype=float32)
    """
    return apply("silu", {"X": x}, name=name)


def sin(x: Variable, name: str | None = None) -> Variable:
    """Sine.

    Args:
        x: a tensor of any shape; float.

    >>> x = fluid.dygraph.to_variable([0.0, 1.0, 2.0])
    >>> layers.sin(x)
    Tensor([0.    , 0.8415, 0.9093], shape=[3], dtype=float32)
    """
    return apply("sin", {"X": x}, name=name)


def sinh(x: Variable, name: str | None = None) -> Variable:
    """Hyperbolic sine.

    Args:
        x: a tensor of any shape; float.

    >>> x = fluid.dygraph.to_variable([-1.0, 0.0, 2.0])
    >>> layers.sinh(x)
    Tensor([-1.1752,  0.    ,  3.6269], shape=[3], dtype=float32)
    """
    return apply("sinh", {"X": x}, name=name)


def size(input: Variable) -> Variable:
    """The number of elements of `input`, as int64 of shape [1], or [] where Out is declared so.

    Args:
        input: a tensor of any shape.

    >>> x = fluid.dygraph.to_variable([[1, 2], [3, 4]])
    >>> layers.size(x)
    Tensor([4], shape=[1], dtype=int64)
    """
    return constant(apply("size", {"Input": input}))


def smooth_l1(
    x: Variable,
    y: Variable,
    inside_weight: Variable | None = None,
    outside_weight: Variable | None = None,
    sigma: float | None = None,
) -> Variable:
    """For each row, the sum of ``(sigma * d) ** 2 / 2`` where ``|d| < 1 / sigma ** 2`` and ``|d| - 0.5 / sigma ** 2`` elsewhere.

    Here d is ``inside_weight * (x - y)``, and the terms are multiplied by `outside_weight`; Out is [rows, 1].

    Formula: Girshick, Fast R-CNN, 2015.

    Args:
        x, y: predictions and targets, ``[rows, ...]``, of the same shape.
        inside_weight: factors of the differences, of the same shape; by default 1.
        outside_weight: factors of the losses, of the same shape; by default 1.
        sigma: where the quadratic part ends, at ``1 / sigma ** 2``.

    >>> x = fluid.dygraph.to_variable([[1.0, 5.0]])
    >>> y = fluid.dygraph.to_variable([[1.5, 2.0]])
    >>> layers.smooth_l1(x, y)
    Tensor([[2.625]], shape=[1, 1], dtype=float32)
    """
    attrs: dict[str, Any] = _without_none({"sigma": sigma})
    return apply("smooth_l1_loss", {"X": x, "Y": y, "InsideWeight": inside_weight, "OutsideWeight": outside_weight}, attrs)


def soft_relu(x: Variable, threshold: float = 40.0, name: str | None = None) -> Variable:
    """``log(1 + exp(x))``, with `x` first clipped to ``[-threshold, threshold]``.

    Args:
        x: a tensor of any shape; float.
        threshold: the bound of the absolute value of `x`.

    >>> x = fluid.dygraph.to_variable([-1.0, 0.0, 2.0])
    >>> layers.soft_relu(x)
    Tensor([0.3133, 0.6931, 2.1269], shape=[3], dtype=float32)
    """
    return apply("soft_relu", {"X": x}, {"threshold": threshold}, name=name)


def softplus(x: Variable, beta: float = 1.0, threshold: float = 20.0, name: str | None = None) -> Variable:
    """``log(1 + exp(beta * x)) / beta``, and `x` itself where ``beta * x`` is above `threshold`.

    Args:
        x: a tensor of any shape; float.
        beta: how sharp the bend at 0 is.
        threshold: from here on, ``beta * x`` is taken to be its own softplus.

    >>> x = fluid.dygraph.to_variable([-1.0, 0.0, 2.0])
    >>> layers.softplus(x)
    Tensor([0.3133, 0.6931, 2.1269], shape=[3], dtype=float32)
    """
    return apply("softplus", {"X": x}, {"beta": beta, "threshold": threshold}, name=name)


def softshrink(x: Variable, alpha: float | None = None, name: str | None = None) -> Variable:
    """`x` moved towards 0 by `alpha`; 0 where its absolute value is below that.

    Args:
        x: a tensor of any shape; float.
        alpha: what `x` is moved by, at least 0.

    >>> x = fluid.dygraph.to_variable([-1.0, 0.2, 2.0])
    >>> layers.softshrink(x)
    Tensor([-0.5,  0. ,  1.5], shape=[3], dtype=float32)
    """
    with speaking_of({"lambda": "alpha"}):
        return apply("softshrink", {"X": x}, _without_none({"lambda": alpha}), name=name)


def softsign(x: Variable, name: str | None = None) -> Variable:
    """``x / (1 + abs(x))``.

    Args:
        x: a tensor of any shape; float.

    >>> x = fluid.dygraph.to_variable([-1.0, 0.0, 3.0])
    >>> layers.softsign(x)
    Tensor([-0.5 ,  0.  ,  0.75], shape=[3], dtype=float32)
    """
    return apply("softsign", {"X": x}, name=name)


def sqrt(x: Variable, name: str | None = None) -> Variable:
    """Square root.

    Args:
        x: a tensor of any shape; float.

    >>> x = fluid.dygraph.to_variable([1.0, 4.0, 9.0])
    >>> layers.sqrt(x)
    Tensor([1., 2., 3.], shape=[3], dtype=float32)
    """
    return apply("sqrt", {"X": x}, name=name)


def square(x: Variable, name: str | None = None) -> Variable:
    """``x * x``.

    Args:
        x: a tensor of any shape; int or float.

    >>> x = fluid.dygraph.to_variable([-1.0, 2.0, 3.0])
    >>> layers.square(x)
    Tensor([1., 4., 9.], shape=[3], dtype=float32)
    """
    return apply("square", {"X": x}, name=name)


def stanh(x: Variable, scale_a: float = 0.67, scale_b: float = 1.7159, name: str | None = None) -> Variable:
    """``scale_b * tanh(scale_a * x)``.

    Args:
        x: a tensor of any shape; float.
        scale_a: factor of `x`.
        scale_b: factor of the result.

    >>> x = fluid.dygraph.to_variable([-1.0, 0.0, 2.0])
    >>> layers.stanh(x)
    Tensor([-1.0038,  0.    ,  1.4957], shape=[3], dtype=float32)
    """
    return apply("stanh", {"X": x}, {"scale_a": scale_a, "scale_b": scale_b}, name=name)


def swish(x: Variable, beta: float = 1.0, name: str | None = None) -> Variable:
    """``x * sigmoid(beta * x)``.

    Formula: Ramachandran, Zoph and Le, Searching for Activation Functions, 2017.

    Args:
        x: a tensor of any shape; float.
        beta: factor of `x` in the sigmoid.

    >>> x = fluid.dygraph.to_variable([-1.0, 0.0, 2.0])
    >>> layers.swish(x)
    Tensor([-0.2689,  0.    ,  1.7616], shape=[3], dtype=float32)
    """
    return apply("swish", {"X": x}, {"beta": beta}, name=name)


def tan(x: Variable, name: str | None = None) -> Variable:
    """Tangent.

    Args:
        x: a tensor of any shape; float.

    >>> x = fluid.dygraph.to_variable([-1.0, 0.0, 1.0])
    >>> layers.tan(x)
    Tensor([-1.5574,  0.    ,  1.5574], shape=[3], dtype=float32)
    """
    return apply("tan", {"X": x}, name=name)


def tanh(x: Variable, name: str | None = None) -> Variable:
    """Hyperbolic tangent.

    Args:
        x: a tensor of any shape; float.

    >>> x = fluid.dygraph.to_variable([-1.0, 0.0, 2.0])
    >>> layers.tanh(x)
    Tensor([-0.7616,  0.    ,  0.964 ], shape=[3], dtype=float32)
    """
    return apply("tanh", {"X": x}, name=name)


def tanh_shrink(x: Variable, name: str | None = None) -> Variable:
    """``x - tanh(x)``.

    Args:
        x: a tensor of any shape; float.

    >>> x = fluid.dygraph.to_variable([-1.0, 0.0, 2.0])
    >>> layers.tanh_shrink(x)
    Tensor([-0.2384,  0.    ,  1.036 ], shape=[3], dtype=float32)
    """
    return apply("tanh_shrink", {"X": x}, name=name)


def teacher_student_sigmoid_loss(
    input: Variable, label: Variable, soft_max_up_bound: float = 15.0, soft_max_lower_bound: float = -15.0
) -> Variable:
    """The cross entropy of sigmoid(`input`) and a click, 0 or 1, plus the cross entropy of a teacher's score z from 0 to 1, if
    any.

    `label` is -2 for no click and no score, -1 for a click without a score, z for no click with a score, 1 + z for a click
    with one. The gradient of `input` is 0 where `input` is outside of the bounds.

    Args:
        input: logits of clicks, of any shape.
        label: click and score in one number, of the same shape.
        soft_max_up_bound, soft_max_lower_bound: bounds of `input`; outside them it has no gradient.

    >>> x = fluid.dygraph.to_variable([[0.5]])
    >>> y = fluid.dygraph.to_variable([[1.3]])
    >>> layers.teacher_student_sigmoid_loss(x, y)
    Tensor([[1.2982]], shape=[1, 1], dtype=float32)
    """
    attrs: dict[str, Any] = {"soft_max_up_bound": soft_max_up_bound, "soft_max_lower_bound": soft_max_lower_bound}
    return apply("teacher_student_sigmoid_loss", {"X": input, "Label": label}, attrs)


def thresholded_relu(x: Variable, threshold: float | None = None, name: str | None = None) -> Variable:
    """`x` where it is above `threshold`, 0 elsewhere.

    Args:
        x: a tensor of any shape; float.
        threshold: `x` up to this becomes 0.

    >>> x = fluid.dygraph.to_variable([-1.0, 0.5, 2.0])
    >>> layers.thresholded_relu(x)
    Tensor([0., 0., 2.], shape=[3], dtype=float32)
    """
    return apply("thresholded_relu", {"X": x}, _without_none({"threshold": threshold}), name=name)


def uniform_random_batch_size_like(
    input: Variable,
    shape: Sequence[int],
    dtype: DTypeLike = "float32",
    input_dim_idx: int = 0,
    output_dim_idx: int = 0,
    min: float = -1.0,
    max: float = 1.0,
    seed: int = 0,
) -> Variable:
    """As `uniform_random`, with dimension `input_dim_idx` of `input` as dimension `output_dim_idx`.

    Args:
        input: a tensor; only its size is read.
        shape: the sizes; the one at `output_dim_idx` is replaced.
        dtype: a float type.
        input_dim_idx: the dimension of `input` that the size is taken from.
        output_dim_idx: the dimension of the result that gets it.
        min, max: the numbers lie in ``[min, max)``.
        seed: of the random numbers, the same in every run; 0 draws new ones.

    >>> x = fluid.dygraph.to_variable([[1.0], [2.0]])
    >>> layers.uniform_random_batch_size_like(x, shape=[-1, 3]).shape
    (2, 3)
    """
    attrs: dict[str, Any] = {
        "shape": shape,
        "dtype": int(as_dtype(dtype)),
        "input_dim_idx": input_dim_idx,
        "output_dim_idx": output_dim_idx,
        "min": min,
        "max": max,
        "seed": seed,
    }
    return constant(apply("uniform_random_batch_size_like", {"Input": input}, attrs))


def unique(x: Variable, dtype: DTypeLike = "int32") -> tuple[Variable, Variable]:
    """The distinct elements of the vector `x` in the order of their first occurrence, and for each element of `x` its index
    there.

    Args:
        x: a vector ``[N]``.
        dtype: element type of the indices.

    Returns:
        Out and Index.

    >>> x = fluid.dygraph.to_variable([7, 3, 7])
    >>> layers.unique(x)
    (Tensor([7, 3], shape=[2], dtype=int64), Tensor([0, 1, 0], shape=[3], dtype=int32))
    """
    out, index = apply_many("unique", {"X": x}, {"dtype": int(as_dtype(dtype))})
    constant(out)
    constant(index)
    return out, index


def unique_with_counts(x: Variable, dtype: DTypeLike = "int32") -> tuple[Variable, Variable, Variable]:
    """The distinct elements of the vector `x` in the order of their first occurrence, for each element of `x` its index there,
    and the numbers of occurrences.

    Args:
        x: a vector ``[N]``.
        dtype: element type of indices and counts.

    Returns:
        Out, Index and Count.

    >>> x = fluid.dygraph.to_variable([7, 3, 7])
    >>> layers.unique_with_counts(x)
    (Tensor([7, 3], shape=[2], dtype=int64), Tensor([0, 1, 0], shape=[3], dtype=int32), Tensor([2, 1], shape=[2], dtype=int32))
    """
    out, index, count = apply_many("unique_with_counts", {"X": x}, {"dtype": int(as_dtype(dtype))})
    constant(out)
    constant(index)
    constant(count)
    return out, index, count
