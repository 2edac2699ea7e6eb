"""How elementwise ops are written: arithmetic, comparisons, logic, activations."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from fluid.ops.activation import GELU_TANH
from fluid.ops.shapes import aligned
from fluid.values.types import VarType, as_dtype

from .exporting import exports
from .graph import FIRST_SYMBOL, Graph, NotExported, Tensor

__all__ = ["align", "log1p", "number_of", "softplus"]


# ------------------------------------------------------------------------------------------------------ two operands
def align(g: Graph, x: Tensor, ndim: int, axis: int) -> Tensor:
    """A tensor with dimensions of size 1 after it, so that it broadcasts at `axis` of `ndim` dimensions."""
    if x.ndim >= ndim or axis == -1 or axis + x.ndim == ndim:
        return x
    sizes = aligned(x.sizes, ndim, axis)
    dropped = x.ndim - (ndim - axis)
    if dropped > 0:  # trailing ones that do not fit
        x = g.squeeze(x, *range(x.ndim - dropped, x.ndim))
    trailing = ndim - axis - x.ndim
    assert len(sizes) == ndim
    return g.unsqueeze(x, *range(x.ndim, x.ndim + trailing))


def _pair(g: Graph, X: Tensor, Y: Tensor, axis: int) -> tuple[Tensor, Tensor]:
    ndim = max(X.ndim, Y.ndim)
    return align(g, X, ndim, axis), align(g, Y, ndim, axis)


def _binary(op: str) -> Callable[..., Tensor]:
    def of_two(g: Graph, X: Tensor, Y: Tensor, axis: int) -> Tensor:
        if X.dtype is VarType.BOOL and op in ("Add", "Mul", "Max", "Min"):
            return g.binary("Or" if op in ("Add", "Max") else "And", *_pair(g, X, Y, axis))
        return g.binary(op, *_pair(g, X, Y, axis))

    return of_two


for _type, _op in {
    "elementwise_add": "Add", "elementwise_sub": "Sub", "elementwise_mul": "Mul", "elementwise_div": "Div",
    "elementwise_max": "Max", "elementwise_min": "Min", "elementwise_pow": "Pow",
}.items():  # fmt: skip
    exports(_type)(_binary(_op))


def _compared(op: str, negated: bool = False) -> Callable[..., Tensor]:
    def of_two(g: Graph, X: Tensor, Y: Tensor, axis: int) -> Tensor:
        if X.dtype is VarType.BOOL and op != "Equal":
            X, Y = g.cast(X, VarType.INT32), g.cast(Y, VarType.INT32)
        result = g.binary(op, *_pair(g, X, Y, axis), dtype=VarType.BOOL)
        return g.unary("Not", result) if negated else result

    return of_two


exports("less_than")(_compared("Less"))
exports("less_equal")(_compared("LessOrEqual"))
exports("greater_than")(_compared("Greater"))
exports("greater_equal")(_compared("GreaterOrEqual"))
exports("equal")(_compared("Equal"))
exports("not_equal")(_compared("Equal", negated=True))


def _logical(op: str) -> Callable[..., Tensor]:
    def of_two(g: Graph, X: Tensor, Y: Tensor) -> Tensor:
        return g.binary(op, g.cast(X, VarType.BOOL), g.cast(Y, VarType.BOOL))

    return of_two


for _type, _op in {"logical_and": "And", "logical_or": "Or", "logical_xor": "Xor"}.items():
    exports(_type)(_logical(_op))


@exports("logical_not")
def logical_not(g: Graph, X: Tensor) -> Tensor:
    return g.unary("Not", g.cast(X, VarType.BOOL))


@exports("elementwise_mod")
def elementwise_mod(g: Graph, X: Tensor, Y: Tensor, axis: int) -> Tensor:
    x, y = _pair(g, X, Y, axis)
    if not X.is_floating:
        return g.binary("Mod", x, y)
    rest = g.binary("Sub", x, g.binary("Mul", g.unary("Floor", g.binary("Div", x, y)), y))
    return rest


@exports("elementwise_floordiv")
def elementwise_floordiv(g: Graph, X: Tensor, Y: Tensor, axis: int) -> Tensor:
    x, y = _pair(g, X, Y, axis)
    if X.is_floating:
        return g.unary("Floor", g.binary("Div", x, y))
    return g.binary("Div", g.binary("Sub", x, g.binary("Mod", x, y)), y)


@exports("minus")
def minus(g: Graph, X: Tensor, Y: Tensor) -> Tensor:
    return g.binary("Sub", X, Y)


@exports("sum")
def sum_(g: Graph, X: list[Tensor]) -> Tensor:
    terms = [each for each in X if each is not None]
    if terms[0].spec.type is VarType.LOD_TENSOR_ARRAY:
        raise NotExported("sums of arrays of tensors")
    result = terms[0]
    for each in terms[1:]:
        result = g.binary("Add", result, each)
    if len(terms) == 1:
        result = g.identity(result)
    result.lengths = terms[0].lengths
    return result


@exports("lerp")
def lerp(X: Tensor, Y: Tensor, Weight: Tensor) -> Any:
    return X + Weight * (Y - X)


@exports("elementwise_add_grad_grad")
def elementwise_add_grad_grad(f: Any, DOut: Tensor, DDX: Tensor | None, DDY: Tensor | None, axis: int) -> Any:
    if DDX is None and DDY is None:
        return f.fill_zeros_like(DOut)
    if DDX is None or DDY is None:
        only: Any = DDX if DDY is None else DDY
        return f.expand_to(only, DOut, axis=axis)
    return f.elementwise_add(DDX, DDY, axis=axis)


# ------------------------------------------------------------------------------------------------- one operand, numbers
def number_of(g: Graph, tensor: Tensor, ndim: int = 0) -> Tensor:
    """A tensor of one element, in as many dimensions as broadcast with everything."""
    return tensor if tensor.ndim <= ndim else g.reshape(tensor, [1] * ndim)


def _times(g: Graph, x: Tensor, factor: float) -> Tensor:
    return x if factor == 1 else g.unary("Neg", x) if factor == -1 else g.binary("Mul", x, g.number(factor, x))


def _plus(g: Graph, x: Tensor, term: float) -> Tensor:
    return x if term == 0 else g.binary("Add", x, g.number(term, x))


@exports("scale")
def scale(g: Graph, X: Tensor, ScaleTensor: Tensor | None, scale: float, bias: float, bias_after_scale: bool) -> Tensor:
    if X.dtype is VarType.BOOL:
        raise NotExported("truth values as numbers")
    x = X if bias_after_scale else _plus(g, X, bias)
    if ScaleTensor is None:
        x = _times(g, x, scale)
    else:
        x = g.binary("Mul", x, g.cast(number_of(g, ScaleTensor), x.dtype))
    x = _plus(g, x, bias) if bias_after_scale else x
    return g.identity(X) if x is X else x


@exports("increment")
def increment(g: Graph, X: Tensor, step: float) -> Tensor:
    return g.binary("Add", X, g.number(step, X))


@exports("cast")
def cast(g: Graph, X: Tensor, out_dtype: int) -> Tensor:
    return g.identity(X) if X.dtype is as_dtype(out_dtype) else g.cast(X, as_dtype(out_dtype))


@exports("clip")
def clip(g: Graph, X: Tensor, Min: Tensor | None, Max: Tensor | None, min: float, max: float) -> Tensor:
    low = g.number(min, X) if Min is None else number_of(g, Min)
    high = g.number(max, X) if Max is None else number_of(g, Max)
    return g.binary("Min", g.binary("Max", X, low), high)


@exports("pow")
def pow_(g: Graph, X: Tensor, FactorTensor: Tensor | None, factor: float) -> Tensor:
    if FactorTensor is not None:
        return g.binary("Pow", X, number_of(g, FactorTensor))
    if factor == 2.0:
        return g.binary("Mul", X, X)
    if factor == 0.5:
        return g.unary("Sqrt", X)
    return g.binary("Pow", X, g.number(factor, X))


@exports("where")
def where(g: Graph, f: Any, Condition: Tensor, X: Tensor | None, Y: Tensor | None) -> Any:
    if X is None or Y is None:
        return f.where_index(Condition)
    return g.where(Condition, X, Y)


# --------------------------------------------------------------------------------------------- broadcasting and its sums
@exports("sum_to")
def sum_to(g: Graph, X: Tensor, Like: Tensor, axis: int) -> Tensor:
    if X.sizes == Like.sizes and -1 not in X.sizes:
        return X
    ndim = X.ndim
    if ndim < Like.ndim:
        return g.reshape_as(X, Like)
    small = aligned(Like.sizes, ndim, axis)
    sure = [place for place, (a, b) in enumerate(zip(small, X.sizes, strict=True)) if a == 1 and b != 1]
    doubtful = any(a != b and a != 1 and not (0 <= a < FIRST_SYMBOL) for a, b in zip(small, X.sizes, strict=True))
    doubtful = doubtful or any(a == -1 for a in small)
    if X.dtype is VarType.BOOL:
        raise NotExported("sums of truth values")
    if not doubtful:
        reduced = g.reduce("ReduceSum", X, sure, keep=True) if sure else X
        return reduced if reduced.sizes == Like.sizes else g.reshape_as(reduced, Like)
    # Which dimensions were broadcast is known when the model runs: those that differ.
    like = g.dims(Like)
    start = ndim - Like.ndim if axis == -1 or Like.ndim == ndim else axis
    kept = min(Like.ndim, ndim - start)
    if kept < Like.ndim:
        like = g.slice(like, [0], [0], [kept])
    like = g.concat([each for each in (g.ints(*[1] * start), like, g.ints(*[1] * (ndim - start - kept))) if each.shape[0]], 0)
    differ = g.unary("Not", g.binary("Equal", g.dims(X), like, VarType.BOOL))
    axes = g.squeeze(g._sized("NonZero", [differ], VarType.INT64, (1, -1)), 0)
    summed = g._sized("ReduceSum", [X, axes], X.dtype, (-1,) * ndim, keepdims=1, noop_with_empty_axes=1)
    return g.reshape_as(summed, Like)


@exports("expand_to")
def expand_to(g: Graph, X: Tensor, Like: Tensor, axis: int) -> Tensor:
    return g.expand_as(align(g, X, Like.ndim, axis), Like)


# -------------------------------------------------------------------------------------------------------------- tests
def _is_finite(g: Graph, x: Tensor) -> Tensor:
    return g.unary("Not", g.binary("Or", _is_inf(g, x), _is_nan(g, x)))


def _floats(g: Graph, x: Tensor) -> Tensor:
    return x if x.is_floating else g.cast(x, VarType.FP32)


def _is_inf(g: Graph, x: Tensor) -> Tensor:
    x = _floats(g, x)
    return g.binary("Equal", g.unary("Abs", x), g.number(math.inf, x), VarType.BOOL)


def _is_nan(g: Graph, x: Tensor) -> Tensor:
    x = _floats(g, x)
    return g._sized("IsNaN", [x], VarType.BOOL, x.sizes)


def _any(g: Graph, flags: Tensor, every: bool = False) -> Tensor:
    """Whether any (or every) flag is set, as one bool of shape [1]."""
    numbers = g.reshape(g.cast(flags, VarType.INT32), [-1])
    if every:
        least = g.reduce("ReduceMin", g.concat([numbers, g.constant([1], VarType.INT32)], 0), [0], keep=True)
        return g.cast(least, VarType.BOOL)
    most = g.reduce("ReduceMax", g.concat([numbers, g.constant([0], VarType.INT32)], 0), [0], keep=True)
    return g.cast(most, VarType.BOOL)


@exports("isfinite_v2")
def isfinite_v2(g: Graph, X: Tensor) -> Tensor:
    return _is_finite(g, X)


@exports("isinf_v2")
def isinf_v2(g: Graph, X: Tensor) -> Tensor:
    return _is_inf(g, X)


@exports("isnan_v2")
def isnan_v2(g: Graph, X: Tensor) -> Tensor:
    return _is_nan(g, X)


@exports("isfinite")
def isfinite(g: Graph, X: Tensor) -> Tensor:
    return _any(g, _is_finite(g, X), every=True)


@exports("isinf")
def isinf(g: Graph, X: Tensor) -> Tensor:
    return _any(g, _is_inf(g, X))


@exports("isnan")
def isnan(g: Graph, X: Tensor) -> Tensor:
    return _any(g, _is_nan(g, X))


@exports("is_empty")
def is_empty(g: Graph, X: Tensor) -> Tensor:
    count = g.as_size(g.product_of(g.sizes_of(X)))
    return g.binary("Equal", count, g.ints(0), VarType.BOOL)


# -------------------------------------------------------------------------------------------------------- activations
def _unary(op: str, of_ints: str = "") -> Callable[..., Tensor]:
    def of_one(g: Graph, X: Tensor) -> Tensor:
        if not X.is_floating and of_ints:
            return g.unary(of_ints, X)
        return g.unary(op, X)

    return of_one


for _type, _op in {
    "tanh": "Tanh", "sigmoid": "Sigmoid", "exp": "Exp", "sqrt": "Sqrt", "abs": "Abs", "log": "Log", "sin": "Sin", "cos": "Cos",
    "tan": "Tan", "asin": "Asin", "acos": "Acos", "atan": "Atan", "sinh": "Sinh", "cosh": "Cosh", "asinh": "Asinh",
    "acosh": "Acosh", "atanh": "Atanh", "erf": "Erf", "sign": "Sign",
}.items():  # fmt: skip
    exports(_type)(_unary(_op))
exports("floor")(_unary("Floor", "Identity"))
exports("ceil")(_unary("Ceil", "Identity"))


@exports("relu")
def relu(g: Graph, X: Tensor) -> Tensor:
    return g.unary("Relu", X) if X.is_floating else g.binary("Max", X, g.number(0, X))


@exports("reciprocal")
def reciprocal(g: Graph, X: Tensor) -> Tensor:
    return g.unary("Reciprocal", X) if X.is_floating else g.binary("Div", g.number(1, X), X)


@exports("round")
def round_(g: Graph, X: Tensor) -> Tensor:
    """ONNX's own rounds halves to even numbers."""
    if not X.is_floating:
        return g.identity(X)
    return g.binary("Mul", g.unary("Sign", X), g.unary("Floor", _plus(g, g.unary("Abs", X), 0.5)))


@exports("square")
def square(g: Graph, X: Tensor) -> Tensor:
    return g.binary("Mul", X, X)


@exports("rsqrt")
def rsqrt(g: Graph, X: Tensor) -> Tensor:
    return g.unary("Reciprocal", g.unary("Sqrt", X))


@exports("expm1")
def expm1(g: Graph, X: Tensor) -> Tensor:
    """``tanh(x / 2) * (exp(x) + 1)``, which is exact near 0."""
    return g.binary("Mul", g.unary("Tanh", _times(g, X, 0.5)), _plus(g, g.unary("Exp", X), 1.0))


@exports("log1p")
def log1p(g: Graph, X: Tensor) -> Tensor:
    """``x * log(1 + x) / ((1 + x) - 1)``, which is exact near 0, where the rounding of 1 + x is made up for."""
    above = _plus(g, X, 1.0)
    step = _plus(g, above, -1.0)
    none = g.binary("Equal", step, g.number(0, X), VarType.BOOL)
    finite = g.binary("Less", above, g.number(math.inf, X), VarType.BOOL)
    ratio = g.binary("Div", X, g.where(none, g.number(1, X), step))
    ratio = g.where(g.binary("And", finite, g.binary("Greater", above, g.number(0, X), VarType.BOOL)), ratio, g.number(1, X))
    return g.where(none, X, g.binary("Mul", g.unary("Log", above), ratio))


@exports("log2")
def log2(g: Graph, X: Tensor) -> Tensor:
    return _times(g, g.unary("Log", X), 1.0 / math.log(2.0))


@exports("log10")
def log10(g: Graph, X: Tensor) -> Tensor:
    return _times(g, g.unary("Log", X), 1.0 / math.log(10.0))


def softplus(g: Graph, x: Tensor) -> Tensor:
    """``log(1 + exp(x))`` without overflow."""
    small = g.unary("Exp", g.unary("Neg", g.unary("Abs", x)))
    return g.binary("Add", g.unary("Relu", x), g.unary("Log", _plus(g, small, 1.0)))


def _between(g: Graph, x: Tensor, low: float, high: float) -> Tensor:
    return g.binary("Min", g.binary("Max", x, g.number(low, x)), g.number(high, x))


@exports("relu6")
def relu6(g: Graph, X: Tensor, threshold: float) -> Tensor:
    return _between(g, X, 0, threshold)


@exports("brelu")
def brelu(g: Graph, X: Tensor, t_min: float, t_max: float) -> Tensor:
    return _between(g, X, t_min, t_max)


@exports("hard_sigmoid")
def hard_sigmoid(g: Graph, X: Tensor, slope: float, offset: float) -> Tensor:
    return _between(g, _plus(g, _times(g, X, slope), offset), 0, 1)


@exports("hard_swish")
def hard_swish(g: Graph, X: Tensor, threshold: float, scale: float, offset: float) -> Tensor:
    return _times(g, g.binary("Mul", X, _between(g, _plus(g, X, offset), 0, threshold)), 1.0 / scale)


def _choice(g: Graph, x: Tensor, above: float, yes: Tensor, no: Tensor) -> Tensor:
    """One where x is above a number, another elsewhere."""
    return g.where(g.binary("Greater", x, g.number(above, x), VarType.BOOL), yes, no)


def _negative(g: Graph, x: Tensor) -> Tensor:
    return g.binary("Min", x, g.number(0, x))


@exports("selu")
def selu(g: Graph, X: Tensor, scale: float, alpha: float) -> Tensor:
    return _times(g, _choice(g, X, 0, X, _times(g, expm1(g, _negative(g, X)), alpha)), scale)


@exports("elu")
def elu(g: Graph, X: Tensor, alpha: float) -> Tensor:
    return _choice(g, X, 0, X, _times(g, expm1(g, _negative(g, X)), alpha))


@exports("celu")
def celu(g: Graph, X: Tensor, alpha: float) -> Tensor:
    return _choice(g, X, 0, X, _times(g, expm1(g, _times(g, _negative(g, X), 1.0 / alpha)), alpha))


@exports("soft_relu")
def soft_relu(g: Graph, X: Tensor, threshold: float) -> Tensor:
    return softplus(g, _between(g, X, -threshold, threshold))


@exports("leaky_relu")
def leaky_relu(g: Graph, X: Tensor, alpha: float) -> Tensor:
    return g.unary("LeakyRelu", X, alpha=float(alpha))


@exports("gelu")
def gelu(g: Graph, X: Tensor, approximate: bool) -> Tensor:
    if approximate:
        a, b = GELU_TANH
        bent = g.binary("Mul", X, _plus(g, _times(g, g.binary("Mul", X, X), b), 1.0))
        share = g.unary("Tanh", _times(g, bent, a))
    else:
        share = g.unary("Erf", _times(g, X, math.sqrt(0.5)))
    return _times(g, g.binary("Mul", X, _plus(g, share, 1.0)), 0.5)


@exports("softplus")
def softplus_(g: Graph, X: Tensor, beta: float, threshold: float) -> Tensor:
    bent = _times(g, X, beta)
    return _choice(g, bent, threshold, X, _times(g, softplus(g, bent), 1.0 / beta))


@exports("softsign")
def softsign(g: Graph, X: Tensor) -> Tensor:
    return g.binary("Div", X, _plus(g, g.unary("Abs", X), 1.0))


@exports("logsigmoid")
def logsigmoid(g: Graph, X: Tensor) -> Tensor:
    return g.unary("Neg", softplus(g, g.unary("Neg", X)))


@exports("swish")
def swish(g: Graph, X: Tensor, beta: float) -> Tensor:
    return g.binary("Mul", X, g.unary("Sigmoid", _times(g, X, beta)))


@exports("silu")
def silu(g: Graph, X: Tensor) -> Tensor:
    return g.binary("Mul", X, g.unary("Sigmoid", X))


@exports("mish")
def mish(g: Graph, X: Tensor, threshold: float) -> Tensor:
    return g.binary("Mul", X, g.unary("Tanh", _choice(g, X, threshold, X, softplus(g, X))))


@exports("tanh_shrink")
def tanh_shrink(g: Graph, X: Tensor) -> Tensor:
    return g.binary("Sub", X, g.unary("Tanh", X))


@exports("softshrink")
def softshrink(g: Graph, X: Tensor, lambda_: float) -> Tensor:
    shrunk = g.unary("Relu", _plus(g, g.unary("Abs", X), -lambda_))
    return g.binary("Mul", g.unary("Sign", X), shrunk)


@exports("hard_shrink")
def hard_shrink(g: Graph, X: Tensor, threshold: float) -> Tensor:
    return _choice(g, g.unary("Abs", X), threshold, X, g.number(0, X))


@exports("thresholded_relu")
def thresholded_relu(g: Graph, X: Tensor, threshold: float) -> Tensor:
    return _choice(g, X, threshold, X, g.number(0, X))


@exports("stanh")
def stanh(g: Graph, X: Tensor, scale_a: float, scale_b: float) -> Tensor:
    return _times(g, g.unary("Tanh", _times(g, X, scale_a)), scale_b)


@exports("tanh_grad_grad")
def tanh_grad_grad(inputs: dict[str, Any], Out: Tensor, grad_out: Tensor) -> dict[str, Any]:
    upper = inputs["grad_x@GRAD"]
    return {"grad_out@GRAD": upper * (1.0 - Out * Out), "Out@GRAD": Out * grad_out * upper * -2.0}
