"""Layers of one op each. Do not edit: ``python -m fluid.layers.generate`` writes this file from the op definitions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..building.layer_helper import apply, apply_many
from ..ir.program import Variable
from ..values.types import DTypeLike, as_dtype
from .arguments import speaking_of

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
    "diag",
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
    "where",
]


def _reduce(op_type: str, input: Variable, dim: int | Sequence[int] | None, keep_dim: bool, name: str | None) -> Variable:
    attrs: dict[str, Any] = {"keep_dim": keep_dim}
    if dim is None or (not isinstance(dim, int) and len(dim) == 0):
        attrs["reduce_all"] = True
    else:
        attrs["dim"] = [dim] if isinstance(dim, int) else list(dim)
    return apply(op_type, {"X": input}, attrs, name=name)


def _compare(op_type: str, x: Variable, y: Variable, cond: Variable | None) -> Variable:
    found = apply(op_type, {"X": x, "Y": y}, outputs={"Out": cond})
    found.stop_gradient = True
    return found


def _given(attrs: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in attrs.items() if value is not None}


def _constant(found: Variable) -> Variable:
    found.stop_gradient = True
    return found


def abs(x: Variable, name: str | None = None) -> Variable:
    """Absolute value."""
    return apply("abs", {"X": x}, name=name)


def acos(x: Variable, name: str | None = None) -> Variable:
    """Inverse cosine."""
    return apply("acos", {"X": x}, name=name)


def acosh(x: Variable, name: str | None = None) -> Variable:
    """Inverse hyperbolic cosine."""
    return apply("acosh", {"X": x}, name=name)


def add_position_encoding(input: Variable, alpha: float, beta: float, name: str | None = None) -> Variable:
    """``alpha * X + beta * P`` of X [batch, length, width], with waves P[position, i] of lengths from 2 pi up to 20000 pi.

    X may be [rows, width] of sequences (of the last level): positions begin anew with each of them.
    With ``h = width / 2`` and ``a = position / 10000 ** (k / (h - 1))``, ``P[k] = sin(a)`` and ``P[h + k] = cos(a)``.
    """
    return apply("add_position_encoding", {"X": input}, {"alpha": alpha, "beta": beta}, name=name)


def argsort(input: Variable, axis: int = -1, name: str | None = None) -> tuple[Variable, Variable]:
    """X sorted along `axis`, and where in X each element was; equal elements stay in order."""
    out, indices = apply_many("argsort", {"X": input}, {"axis": axis}, name=name)
    return out, indices


def asin(x: Variable, name: str | None = None) -> Variable:
    """Inverse sine."""
    return apply("asin", {"X": x}, name=name)


def asinh(x: Variable, name: str | None = None) -> Variable:
    """Inverse hyperbolic sine."""
    return apply("asinh", {"X": x}, name=name)


def atan(x: Variable, name: str | None = None) -> Variable:
    """Inverse tangent."""
    return apply("atan", {"X": x}, name=name)


def atanh(x: Variable, name: str | None = None) -> Variable:
    """Inverse hyperbolic tangent."""
    return apply("atanh", {"X": x}, name=name)


def bpr_loss(input: Variable, label: Variable, name: str | None = None) -> Variable:
    """The mean over the other classes j of ``log(1 + exp(X[j] - X[label]))`` (Bayesian personalized ranking); Y is [..., 1]."""
    return apply("bpr_loss", {"X": input, "Label": label}, name=name)


def brelu(x: Variable, t_min: float = 0.0, t_max: float = 24.0, name: str | None = None) -> Variable:
    """X brought into ``[t_min, t_max]``."""
    return apply("brelu", {"X": x}, {"t_min": t_min, "t_max": t_max}, name=name)


def ceil(x: Variable, name: str | None = None) -> Variable:
    """The smallest whole number that is not below X."""
    return apply("ceil", {"X": x}, name=name)


def celu(x: Variable, alpha: float = 1.0, name: str | None = None) -> Variable:
    """X where it is positive, ``alpha * (exp(X / alpha) - 1)`` elsewhere."""
    return apply("celu", {"X": x}, {"alpha": alpha}, name=name)


def cos(x: Variable, name: str | None = None) -> Variable:
    """Cosine."""
    return apply("cos", {"X": x}, name=name)


def cos_sim(X: Variable, Y: Variable) -> Variable:
    """For each row, the cosine of the angle between X and Y, of shape [rows, 1]; Y may have one row for all."""
    return apply("cos_sim", {"X": X, "Y": Y})


def cosh(x: Variable, name: str | None = None) -> Variable:
    """Hyperbolic cosine."""
    return apply("cosh", {"X": x}, name=name)


def cumsum(x: Variable, axis: int | None = None, exclusive: bool | None = None, reverse: bool | None = None) -> Variable:
    """Running sums along `axis`, or of all elements with `flatten`; from the end with `reverse`, without the element itself
    with `exclusive`.
    """
    return apply("cumsum", {"X": x}, _given({"axis": axis, "exclusive": exclusive, "reverse": reverse}))


def diag(diagonal: Variable) -> Variable:
    """The square matrix with the vector Diagonal on its diagonal and zeros elsewhere."""
    return apply("diag", {"Diagonal": diagonal})


def elementwise_add(x: Variable, y: Variable, axis: int = -1, act: str | None = None, name: str | None = None) -> Variable:
    """``X + Y``; the smaller operand's first dimension stands at `axis` of the larger one, -1 aligns the last ones."""
    return apply("elementwise_add", {"X": x, "Y": y}, {"axis": axis}, name=name, act=act)


def elementwise_div(x: Variable, y: Variable, axis: int = -1, act: str | None = None, name: str | None = None) -> Variable:
    """``X / Y``, of integers cut towards zero; operands are aligned as in `elementwise_add`."""
    return apply("elementwise_div", {"X": x, "Y": y}, {"axis": axis}, name=name, act=act)


def elementwise_floordiv(x: Variable, y: Variable, axis: int = -1, act: str | None = None, name: str | None = None) -> Variable:
    """The largest whole number that is not above ``X / Y``; operands are aligned as in `elementwise_add`."""
    return apply("elementwise_floordiv", {"X": x, "Y": y}, {"axis": axis}, name=name, act=act)


def elementwise_max(x: Variable, y: Variable, axis: int = -1, act: str | None = None, name: str | None = None) -> Variable:
    """The larger of X and Y, aligned as in `elementwise_add`. Where they are equal, the gradient goes to Y."""
    return apply("elementwise_max", {"X": x, "Y": y}, {"axis": axis}, name=name, act=act)


def elementwise_min(x: Variable, y: Variable, axis: int = -1, act: str | None = None, name: str | None = None) -> Variable:
    """The smaller of X and Y, aligned as in `elementwise_add`. Where they are equal, the gradient goes to Y."""
    return apply("elementwise_min", {"X": x, "Y": y}, {"axis": axis}, name=name, act=act)


def elementwise_mod(x: Variable, y: Variable, axis: int = -1, act: str | None = None, name: str | None = None) -> Variable:
    """The remainder of ``X / Y``, with the sign of Y; operands are aligned as in `elementwise_add`.

    As in Paddle, no gradient flows through it, though that by X would be 1.
    """
    return apply("elementwise_mod", {"X": x, "Y": y}, {"axis": axis}, name=name, act=act)


def elementwise_mul(x: Variable, y: Variable, axis: int = -1, act: str | None = None, name: str | None = None) -> Variable:
    """``X * Y``; operands are aligned as in `elementwise_add`."""
    return apply("elementwise_mul", {"X": x, "Y": y}, {"axis": axis}, name=name, act=act)


def elementwise_pow(x: Variable, y: Variable, axis: int = -1, act: str | None = None, name: str | None = None) -> Variable:
    """``X ** Y``; operands are aligned as in `elementwise_add`. With respect to Y, the gradient at ``X = 0`` is 0."""
    return apply("elementwise_pow", {"X": x, "Y": y}, {"axis": axis}, name=name, act=act)


def elementwise_sub(x: Variable, y: Variable, axis: int = -1, act: str | None = None, name: str | None = None) -> Variable:
    """``X - Y``; operands are aligned as in `elementwise_add`."""
    return apply("elementwise_sub", {"X": x, "Y": y}, {"axis": axis}, name=name, act=act)


def elu(x: Variable, alpha: float = 1.0, name: str | None = None) -> Variable:
    """X where it is positive, ``alpha * (exp(X) - 1)`` elsewhere."""
    return apply("elu", {"X": x}, {"alpha": alpha}, name=name)


def equal(x: Variable, y: Variable, cond: Variable | None = None) -> Variable:
    """``X == Y``, as bools; operands are aligned as in `elementwise_add`."""
    return _compare("equal", x, y, cond)


def erf(x: Variable, name: str | None = None) -> Variable:
    """The error function, ``2 / sqrt(pi)`` times the integral of ``exp(-t * t)`` from 0 to X."""
    return apply("erf", {"X": x}, name=name)


def exp(x: Variable, name: str | None = None) -> Variable:
    """``e ** X``."""
    return apply("exp", {"X": x}, name=name)


def expand_as(x: Variable, target_tensor: Variable, name: str | None = None) -> Variable:
    """X repeated along its axes until it is shaped as target_tensor."""
    return apply("expand_as", {"X": x, "target_tensor": target_tensor}, name=name)


def expm1(x: Variable, name: str | None = None) -> Variable:
    """``e ** X - 1``, exact near 0."""
    return apply("expm1", {"X": x}, name=name)


def floor(x: Variable, name: str | None = None) -> Variable:
    """The largest whole number that is not above X."""
    return apply("floor", {"X": x}, name=name)


def gather_nd(input: Variable, index: Variable, name: str | None = None) -> Variable:
    """``Out[i, ...] = X[Index[i, 0], Index[i, 1], ...]``: the last axis of Index says where in X's first axes."""
    return apply("gather_nd", {"X": input, "Index": index}, name=name)


def gather_tree(ids: Variable, parents: Variable) -> Variable:
    """The sequences that a beam search ends with: from the last step back, the ids along the chain of Parents.

    Ids and Parents have shape [steps, batch, beams].
    """
    return _constant(apply("gather_tree", {"Ids": ids, "Parents": parents}))


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
    """As `gaussian_random`, with extent `input_dim_idx` of `Input` as extent `output_dim_idx`."""
    attrs: dict[str, Any] = {
        "shape": shape,
        "input_dim_idx": input_dim_idx,
        "output_dim_idx": output_dim_idx,
        "mean": mean,
        "std": std,
        "seed": seed,
        "dtype": int(as_dtype(dtype)),
    }
    return _constant(apply("gaussian_random_batch_size_like", {"Input": input}, attrs))


def gelu(x: Variable, approximate: bool = False, name: str | None = None) -> Variable:
    """X times the probability that a normal variable is below X; by a formula with tanh if `approximate`."""
    return apply("gelu", {"X": x}, {"approximate": approximate}, name=name)


def greater_equal(x: Variable, y: Variable, cond: Variable | None = None) -> Variable:
    """``X >= Y``, as bools; operands are aligned as in `elementwise_add`."""
    return _compare("greater_equal", x, y, cond)


def greater_than(x: Variable, y: Variable, cond: Variable | None = None) -> Variable:
    """``X > Y``, as bools; operands are aligned as in `elementwise_add`."""
    return _compare("greater_than", x, y, cond)


def hard_shrink(x: Variable, threshold: float | None = None, name: str | None = None) -> Variable:
    """X where its absolute value is above `threshold`, 0 elsewhere."""
    return apply("hard_shrink", {"X": x}, _given({"threshold": threshold}), name=name)


def hard_sigmoid(x: Variable, slope: float = 0.2, offset: float = 0.5, name: str | None = None) -> Variable:
    """``slope * X + offset``, brought into ``[0, 1]``."""
    return apply("hard_sigmoid", {"X": x}, {"slope": slope, "offset": offset}, name=name)


def hard_swish(x: Variable, threshold: float = 6.0, scale: float = 6.0, offset: float = 3.0, name: str | None = None) -> Variable:
    """``X / scale`` times ``X + offset`` brought into ``[0, threshold]``."""
    return apply("hard_swish", {"X": x}, {"threshold": threshold, "scale": scale, "offset": offset}, name=name)


def has_inf(x: Variable) -> Variable:
    """Whether any element of X is infinite: one bool."""
    return _constant(apply("isinf", {"X": x}))


def has_nan(x: Variable) -> Variable:
    """Whether any element of X is not a number: one bool."""
    return _constant(apply("isnan", {"X": x}))


def hash(input: Variable, hash_size: int, num_hash: int = 1, name: str | None = None) -> Variable:
    """`num_hash` numbers in [0, `mod_by`) for each row of X, by XXH64 of its bytes with the seeds 0, 1, and so on."""
    with speaking_of({"mod_by": "hash_size"}):
        return _constant(apply("hash", {"X": input}, {"mod_by": hash_size, "num_hash": num_hash}, name=name))


def isfinite(x: Variable) -> Variable:
    """Whether every element of X is finite: one bool."""
    return _constant(apply("isfinite", {"X": x}))


def kldiv_loss(x: Variable, target: Variable, reduction: str = "mean", name: str | None = None) -> Variable:
    """``Target * (log(Target) - X)`` of logarithms X of probabilities, 0 where Target is not above 0.

    The reduction is "none", "sum", "mean", or "batchmean", the sum divided by the number of rows.
    """
    return apply("kldiv_loss", {"X": x, "Target": target}, {"reduction": reduction}, name=name)


def label_smooth(
    label: Variable,
    prior_dist: Variable | None = None,
    epsilon: float = 0.1,
    dtype: DTypeLike = "float32",
    name: str | None = None,
) -> Variable:
    """``(1 - epsilon) * X + epsilon * PriorDist``; the distribution is even, 1 / classes, if none is given."""
    return apply("label_smooth", {"X": label, "PriorDist": prior_dist}, {"epsilon": epsilon}, name=name)


def leaky_relu(x: Variable, alpha: float = 0.02, name: str | None = None) -> Variable:
    """X where it is positive, ``alpha * X`` elsewhere."""
    return apply("leaky_relu", {"X": x}, {"alpha": alpha}, name=name)


def less_equal(x: Variable, y: Variable, cond: Variable | None = None) -> Variable:
    """``X <= Y``, as bools; operands are aligned as in `elementwise_add`."""
    return _compare("less_equal", x, y, cond)


def less_than(x: Variable, y: Variable, force_cpu: bool | None = None, cond: Variable | None = None) -> Variable:
    """``X < Y``, as bools; operands are aligned as in `elementwise_add`."""
    return _compare("less_than", x, y, cond)


def log(x: Variable, name: str | None = None) -> Variable:
    """Natural logarithm."""
    return apply("log", {"X": x}, name=name)


def log10(x: Variable, name: str | None = None) -> Variable:
    """Logarithm to base 10."""
    return apply("log10", {"X": x}, name=name)


def log1p(x: Variable, name: str | None = None) -> Variable:
    """``log(1 + X)``, exact near 0."""
    return apply("log1p", {"X": x}, name=name)


def log2(x: Variable, name: str | None = None) -> Variable:
    """Logarithm to base 2."""
    return apply("log2", {"X": x}, name=name)


def log_loss(input: Variable, label: Variable, epsilon: float = 0.0001, name: str | None = None) -> Variable:
    """``-Labels * log(Predicted + epsilon) - (1 - Labels) * log(1 - Predicted + epsilon)`` of probabilities."""
    return apply("log_loss", {"Predicted": input, "Labels": label}, {"epsilon": epsilon}, name=name)


def logical_and(x: Variable, y: Variable, out: Variable | None = None, name: str | None = None) -> Variable:
    """``X and Y``, as bools; what is not zero counts as true."""
    return apply("logical_and", {"X": x, "Y": y}, name=name, outputs={"Out": out})


def logical_not(x: Variable, out: Variable | None = None, name: str | None = None) -> Variable:
    """``not X``, as bools; what is not zero counts as true."""
    return apply("logical_not", {"X": x}, name=name, outputs={"Out": out})


def logical_or(x: Variable, y: Variable, out: Variable | None = None, name: str | None = None) -> Variable:
    """``X or Y``, as bools; what is not zero counts as true."""
    return apply("logical_or", {"X": x, "Y": y}, name=name, outputs={"Out": out})


def logical_xor(x: Variable, y: Variable, out: Variable | None = None, name: str | None = None) -> Variable:
    """``X or Y, but not both``, as bools; what is not zero counts as true."""
    return apply("logical_xor", {"X": x, "Y": y}, name=name, outputs={"Out": out})


def logsigmoid(x: Variable, name: str | None = None) -> Variable:
    """The logarithm of `sigmoid`."""
    return apply("logsigmoid", {"X": x}, name=name)


def margin_rank_loss(label: Variable, left: Variable, right: Variable, margin: float = 0.1, name: str | None = None) -> Variable:
    """``max(0, margin - Label * (X1 - X2))``; a Label of 1 says that X1 is to rank higher, -1 that X2 is."""
    return apply("margin_rank_loss", {"Label": label, "X1": left, "X2": right}, {"margin": margin}, name=name)


def mean_iou(input: Variable, label: Variable, num_classes: int) -> tuple[Variable, Variable, Variable]:
    """The mean over the classes that occur of intersection over union of the sets predicted and labelled so, as float32.

    OutCorrect counts the right predictions of each class, OutWrong the wrong ones with it as prediction or as label; counts in
    InWrongs and InCorrects are added, and means in InMeanIou too.
    """
    attrs: dict[str, Any] = {"num_classes": num_classes}
    out_mean_iou, out_wrong, out_correct = apply_many("mean_iou", {"Predictions": input, "Labels": label}, attrs)
    _constant(out_mean_iou)
    _constant(out_wrong)
    _constant(out_correct)
    return out_mean_iou, out_wrong, out_correct


def mish(x: Variable, threshold: float = 20.0, name: str | None = None) -> Variable:
    """``X * tanh(softplus(X))``, with the threshold of `softplus`."""
    return apply("mish", {"X": x}, {"threshold": threshold}, name=name)


def multiplex(inputs: Sequence[Variable], index: Variable) -> Variable:
    """Row i of ``X[Ids[i]]`` as row i; Ids has shape [rows, 1]."""
    return apply("multiplex", {"X": inputs, "Ids": index})


def not_equal(x: Variable, y: Variable, cond: Variable | None = None) -> Variable:
    """``X != Y``, as bools; operands are aligned as in `elementwise_add`."""
    return _compare("not_equal", x, y, cond)


def pad(x: Variable, paddings: Sequence[int], pad_value: float = 0.0, name: str | None = None) -> Variable:
    """X with `pad_value` put around it: `paddings` holds, for each dimension, how many before and how many after."""
    return apply("pad", {"X": x}, {"paddings": paddings, "pad_value": pad_value}, name=name)


def rank_loss(label: Variable, left: Variable, right: Variable, name: str | None = None) -> Variable:
    """``log(1 + exp(Left - Right)) - Label * (Left - Right)``: the Label says how surely the left one is to rank higher."""
    return apply("rank_loss", {"Label": label, "Left": left, "Right": right}, name=name)


def reciprocal(x: Variable, name: str | None = None) -> Variable:
    """``1 / X``."""
    return apply("reciprocal", {"X": x}, name=name)


def reduce_all(
    input: Variable, dim: int | Sequence[int] | None = None, keep_dim: bool = False, name: str | None = None
) -> Variable:
    """Whether all bools of X hold over the dimensions `dim`, or over all dimensions."""
    return _reduce("reduce_all", input, dim, keep_dim, name)


def reduce_amax(
    input: Variable, dim: int | Sequence[int] | None = None, keep_dim: bool = False, name: str | None = None
) -> Variable:
    """As `reduce_max`, but elements that are equally large share the gradient in equal parts."""
    return _reduce("reduce_amax", input, dim, keep_dim, name)


def reduce_amin(
    input: Variable, dim: int | Sequence[int] | None = None, keep_dim: bool = False, name: str | None = None
) -> Variable:
    """As `reduce_min`, but elements that are equally small share the gradient in equal parts."""
    return _reduce("reduce_amin", input, dim, keep_dim, name)


def reduce_any(
    input: Variable, dim: int | Sequence[int] | None = None, keep_dim: bool = False, name: str | None = None
) -> Variable:
    """Whether any bool of X holds over the dimensions `dim`, or over all dimensions."""
    return _reduce("reduce_any", input, dim, keep_dim, name)


def reduce_max(
    input: Variable, dim: int | Sequence[int] | None = None, keep_dim: bool = False, name: str | None = None
) -> Variable:
    """The largest element of X over the dimensions `dim`, or over all. The gradient goes to every element that is largest."""
    return _reduce("reduce_max", input, dim, keep_dim, name)


def reduce_mean(
    input: Variable, dim: int | Sequence[int] | None = None, keep_dim: bool = False, name: str | None = None
) -> Variable:
    """The mean of X over the dimensions `dim`, or over all; `keep_dim` leaves ones in their places."""
    return _reduce("reduce_mean", input, dim, keep_dim, name)


def reduce_min(
    input: Variable, dim: int | Sequence[int] | None = None, keep_dim: bool = False, name: str | None = None
) -> Variable:
    """The smallest element of X over the dimensions `dim`, or over all. The gradient goes to every element that is smallest."""
    return _reduce("reduce_min", input, dim, keep_dim, name)


def reduce_prod(
    input: Variable, dim: int | Sequence[int] | None = None, keep_dim: bool = False, name: str | None = None
) -> Variable:
    """The product of X over the dimensions `dim`, or over all. The gradient of a factor is the product of the others."""
    return _reduce("reduce_prod", input, dim, keep_dim, name)


def reduce_sum(
    input: Variable, dim: int | Sequence[int] | None = None, keep_dim: bool = False, name: str | None = None
) -> Variable:
    """The sum of X over the dimensions `dim`, or over all; `keep_dim` leaves ones in their places."""
    return _reduce("reduce_sum", input, dim, keep_dim, name)


def relu(x: Variable, name: str | None = None) -> Variable:
    """``max(X, 0)``."""
    return apply("relu", {"X": x}, name=name)


def relu6(x: Variable, threshold: float = 6.0, name: str | None = None) -> Variable:
    """``min(max(X, 0), threshold)``."""
    return apply("relu6", {"X": x}, {"threshold": threshold}, name=name)


def round(x: Variable, name: str | None = None) -> Variable:
    """The whole number nearest to X; of two equally near ones, that away from 0."""
    return apply("round", {"X": x}, name=name)


def rsqrt(x: Variable, name: str | None = None) -> Variable:
    """``1 / sqrt(X)``."""
    return apply("rsqrt", {"X": x}, name=name)


def sampling_id(x: Variable, min: float = 0.0, max: float = 1.0, seed: int = 0, dtype: DTypeLike = "float32") -> Variable:
    """A class drawn for each row of X, which holds their probabilities.

    It is the first whose probability, added to those of the classes before it, exceeds a number drawn from ``[min, max)``.
    """
    return _constant(apply("sampling_id", {"X": x}, {"min": min, "max": max, "seed": seed}))


def scatter(input: Variable, index: Variable, updates: Variable, name: str | None = None, overwrite: bool = True) -> Variable:
    """X with the rows that Ids name replaced by those of Updates; without `overwrite`, by the sums of them.

    With `overwrite`, ids should not come twice: the last row would count, and the gradient go to each.
    """
    return apply("scatter", {"X": input, "Ids": index, "Updates": updates}, {"overwrite": overwrite}, name=name)


def scatter_nd_add(ref: Variable, index: Variable, updates: Variable, name: str | None = None) -> Variable:
    """X with Updates added where Index says, as in `gather_nd`."""
    return apply("scatter_nd_add", {"X": ref, "Index": index, "Updates": updates}, name=name)


def selu(x: Variable, scale: float | None = None, alpha: float | None = None, name: str | None = None) -> Variable:
    """``scale * X`` where X is positive, ``scale * alpha * (exp(X) - 1)`` elsewhere."""
    return apply("selu", {"X": x}, _given({"scale": scale, "alpha": alpha}), name=name)


def shard_index(input: Variable, index_num: int, nshards: int, shard_id: int, ignore_value: int = -1) -> Variable:
    """Ids in [0, `index_num`) as positions in shard `shard_id` of `nshards` equal ones; `ignore_value` for those of others."""
    attrs: dict[str, Any] = {"index_num": index_num, "nshards": nshards, "shard_id": shard_id, "ignore_value": ignore_value}
    return _constant(apply("shard_index", {"X": input}, attrs))


def sigmoid(x: Variable, name: str | None = None) -> Variable:
    """``1 / (1 + exp(-X))``."""
    return apply("sigmoid", {"X": x}, name=name)


def sign(x: Variable, name: str | None = None) -> Variable:
    """-1 where X is negative, 1 where it is positive, 0 where it is 0."""
    return apply("sign", {"X": x}, name=name)


def silu(x: Variable, name: str | None = None) -> Variable:
    """``X * sigmoid(X)``."""
    return apply("silu", {"X": x}, name=name)


def sin(x: Variable, name: str | None = None) -> Variable:
    """Sine."""
    return apply("sin", {"X": x}, name=name)


def sinh(x: Variable, name: str | None = None) -> Variable:
    """Hyperbolic sine."""
    return apply("sinh", {"X": x}, name=name)


def size(input: Variable) -> Variable:
    """How many elements `Input` has, as int64."""
    return _constant(apply("size", {"Input": input}))


def smooth_l1(
    x: Variable,
    y: Variable,
    inside_weight: Variable | None = None,
    outside_weight: Variable | None = None,
    sigma: float | None = None,
) -> Variable:
    """For each row, the sum of ``(sigma * d) ** 2 / 2`` where ``|d| < 1 / sigma ** 2`` and ``|d| - 0.5 / sigma ** 2`` elsewhere.

    Here d is ``InsideWeight * (X - Y)``, and the terms are multiplied by OutsideWeight; Out is [rows, 1].
    """
    attrs: dict[str, Any] = _given({"sigma": sigma})
    return apply("smooth_l1_loss", {"X": x, "Y": y, "InsideWeight": inside_weight, "OutsideWeight": outside_weight}, attrs)


def soft_relu(x: Variable, threshold: float = 40.0, name: str | None = None) -> Variable:
    """``log(1 + exp(X))``, with X first brought into ``[-threshold, threshold]``."""
    return apply("soft_relu", {"X": x}, {"threshold": threshold}, name=name)


def softplus(x: Variable, beta: float = 1.0, threshold: float = 20.0, name: str | None = None) -> Variable:
    """``log(1 + exp(beta * X)) / beta``, and X itself where ``beta * X`` is above `threshold`."""
    return apply("softplus", {"X": x}, {"beta": beta, "threshold": threshold}, name=name)


def softshrink(x: Variable, alpha: float | None = None, name: str | None = None) -> Variable:
    """X brought towards 0 by `lambda`, and 0 where that would pass it."""
    with speaking_of({"lambda": "alpha"}):
        return apply("softshrink", {"X": x}, _given({"lambda": alpha}), name=name)


def softsign(x: Variable, name: str | None = None) -> Variable:
    """``X / (1 + abs(X))``."""
    return apply("softsign", {"X": x}, name=name)


def sqrt(x: Variable, name: str | None = None) -> Variable:
    """Square root."""
    return apply("sqrt", {"X": x}, name=name)


def square(x: Variable, name: str | None = None) -> Variable:
    """``X * X``."""
    return apply("square", {"X": x}, name=name)


def stanh(x: Variable, scale_a: float = 0.67, scale_b: float = 1.7159, name: str | None = None) -> Variable:
    """``scale_b * tanh(scale_a * X)``."""
    return apply("stanh", {"X": x}, {"scale_a": scale_a, "scale_b": scale_b}, name=name)


def swish(x: Variable, beta: float = 1.0, name: str | None = None) -> Variable:
    """``X * sigmoid(beta * X)``."""
    return apply("swish", {"X": x}, {"beta": beta}, name=name)


def tan(x: Variable, name: str | None = None) -> Variable:
    """Tangent."""
    return apply("tan", {"X": x}, name=name)


def tanh(x: Variable, name: str | None = None) -> Variable:
    """Hyperbolic tangent."""
    return apply("tanh", {"X": x}, name=name)


def tanh_shrink(x: Variable, name: str | None = None) -> Variable:
    """``X - tanh(X)``."""
    return apply("tanh_shrink", {"X": x}, name=name)


def teacher_student_sigmoid_loss(
    input: Variable, label: Variable, soft_max_up_bound: float = 15.0, soft_max_lower_bound: float = -15.0
) -> Variable:
    """Cross entropies of sigmoid(X) with a click, 0 or 1, and with a teacher's score z from 0 to 1, where there is one.

    The Label is -2 for no click and no score, -1 for a click without a score, z for no click and 1 + z for a click. The
    gradient of X is 0 where X is outside of the bounds.
    """
    attrs: dict[str, Any] = {"soft_max_up_bound": soft_max_up_bound, "soft_max_lower_bound": soft_max_lower_bound}
    return apply("teacher_student_sigmoid_loss", {"X": input, "Label": label}, attrs)


def thresholded_relu(x: Variable, threshold: float | None = None, name: str | None = None) -> Variable:
    """X where it is above `threshold`, 0 elsewhere."""
    return apply("thresholded_relu", {"X": x}, _given({"threshold": threshold}), name=name)


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
    """As `uniform_random`, with extent `input_dim_idx` of `Input` as extent `output_dim_idx`."""
    attrs: dict[str, Any] = {
        "shape": shape,
        "dtype": int(as_dtype(dtype)),
        "input_dim_idx": input_dim_idx,
        "output_dim_idx": output_dim_idx,
        "min": min,
        "max": max,
        "seed": seed,
    }
    return _constant(apply("uniform_random_batch_size_like", {"Input": input}, attrs))


def unique(x: Variable, dtype: DTypeLike = "int32") -> tuple[Variable, Variable]:
    """The different elements of the vector X in the order in which they come, and for each of X's the index of its own there.

    With `is_sorted`, the different elements in order, or the different slices along `axis`; Indices then say where each is
    first, Index which of them each element of X is, and Counts how often each comes, where they are asked for.
    """
    out, index = apply_many("unique", {"X": x}, {"dtype": int(as_dtype(dtype))})
    _constant(out)
    _constant(index)
    return out, index


def unique_with_counts(x: Variable, dtype: DTypeLike = "int32") -> tuple[Variable, Variable, Variable]:
    """The different elements of the vector X in the order in which they come, for each of X's the index of its own there, and
    how often each comes.
    """
    out, index, count = apply_many("unique_with_counts", {"X": x}, {"dtype": int(as_dtype(dtype))})
    _constant(out)
    _constant(index)
    _constant(count)
    return out, index, count


def where(condition: Variable) -> Variable:
    """The indices, one row each, of the elements of `Condition` that are not zero."""
    return _constant(apply("where_index", {"Condition": condition}))
