"""Lowers the basic ops to the tensor graph."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import inf, prod
from typing import Any

from fluid.ops.norm import uses_global_stats
from fluid.ops.reduction import reduced_axes
from fluid.ops.shapes import aligned as aligned_shape
from fluid.ops.shapes import reduced as reduced_shape
from fluid.values.types import as_dtype

from .emitter import BOOL, DOUBLE, FLOAT, HALF, INT32, INT64, Type
from .graph import (
    ChannelsFirst,
    Constant,
    GraphNode,
    Map,
    Product,
    Reshaped,
    Rows,
    Scattered,
    Shape,
    View,
    broadcast_to,
    channels_first,
    channels_last,
    constant,
    contiguous,
    mapped,
    plain,
    product,
    reduced,
    reshaped,
    transposed,
)  # fmt: skip
from .integer_lowering import quantized_product
from .loss_lowering import is_label, labels_of, minus_log, picked
from .lowering import (
    ByRule,
    GraphTensor,
    NotLowered,
    Planes,
    element_of,
    lowers,
    number_like,
    only_floats,
    only_numbers,
    only_truths,
)
from .sparse_lowering import masked_ids


def _one(tensor: GraphTensor, ndim: int) -> GraphNode:
    """Reshape a tensor of one element to `ndim` dimensions."""
    return reshaped(tensor.node, (1,) * ndim)


# --------------------------------------------------------------------------------------------------------- elementwise
def _unary(formula: str) -> Callable[[GraphTensor], GraphTensor]:
    def of_one(X: GraphTensor) -> GraphTensor:
        only_floats(X)
        return GraphTensor(mapped(formula, X.node))

    return of_one


for _type, _formula in {
    "tanh": "tanh", "exp": "exp", "sqrt": "sqrt", "log": "log", "sigmoid": "sigmoid", "relu": "relu",
    "abs": "abs", "floor": "floor", "ceil": "ceil", "reciprocal": "reciprocal", "erf": "erf",
    "log1p": "log1p", "expm1": "expm1", "sin": "sin", "cos": "cos", "tan": "tan", "sign": "sign", "round": "round",
    "rint": "rint", "sinh": "sinh", "cosh": "cosh", "asin": "asin", "acos": "acos", "atan": "atan",
}.items():  # fmt: skip
    lowers(_type)(_unary(_formula))


def _aligned(tensor: GraphTensor, ndim: int, axis: int) -> GraphNode:
    return reshaped(tensor.node, aligned_shape(tensor.shape, ndim, axis))


def _pair(X: GraphTensor, Y: GraphTensor, axis: int) -> tuple[GraphNode, GraphNode]:
    if X.node.element != Y.node.element:
        raise NotLowered("operands of different element types")
    ndim = max(X.ndim, Y.ndim)
    return _aligned(X, ndim, axis), _aligned(Y, ndim, axis)


def _binary(formula: str) -> Callable[[GraphTensor, GraphTensor, int], GraphTensor]:
    of_integers = formula not in ("div", "pow")

    def of_two(X: GraphTensor, Y: GraphTensor, axis: int) -> GraphTensor:
        (only_numbers if of_integers else only_floats)(X, Y)
        return GraphTensor(mapped(formula, *_pair(X, Y, axis)))

    return of_two


def _quotients(formula: str) -> Callable[[GraphTensor, GraphTensor, int], GraphTensor]:
    def of_two(X: GraphTensor, Y: GraphTensor, axis: int) -> GraphTensor:
        if X.node.element not in (INT32, INT64, FLOAT):
            raise NotLowered("quotients and remainders of float64 or of truth values")
        return GraphTensor(mapped(formula, *_pair(X, Y, axis)))

    return of_two


def _comparison(relation: str) -> Callable[[GraphTensor, GraphTensor, int], GraphTensor]:
    def of_two(X: GraphTensor, Y: GraphTensor, axis: int) -> GraphTensor:
        if X.node.element == BOOL and relation not in ("oeq", "une"):
            raise NotLowered("an order of truth values")
        return GraphTensor(mapped(relation, *_pair(X, Y, axis), element=BOOL))

    return of_two


for _type in ("add", "sub", "mul", "max", "min", "div", "pow"):
    lowers(f"elementwise_{_type}")(_binary(_type))
for _type in ("mod", "floordiv"):
    lowers(f"elementwise_{_type}")(_quotients(_type))
for _type, _relation in {
    "less_than": "olt", "less_equal": "ole", "greater_than": "ogt", "greater_equal": "oge", "equal": "oeq", "not_equal": "une",
}.items():  # fmt: skip
    lowers(_type)(_comparison(_relation))


def _logical(formula: str) -> Callable[[GraphTensor, GraphTensor], GraphTensor]:
    def of_two(X: GraphTensor, Y: GraphTensor) -> GraphTensor:
        only_truths(X, Y)
        return GraphTensor(mapped(formula, *_pair(X, Y, -1)))

    return of_two


for _type in ("and", "or", "xor"):
    lowers(f"logical_{_type}")(_logical(_type))


@lowers("logical_not")
def logical_not(X: GraphTensor) -> GraphTensor:
    only_truths(X)
    return GraphTensor(mapped("not", X.node, element=BOOL))


@lowers("sum")
def sum_(X: list[GraphTensor]) -> GraphTensor:
    nodes = [tensor.node for tensor in X if tensor is not None]
    only_numbers(*X)
    total = nodes[0]
    for node in nodes[1:]:
        total = mapped("add", total, node)
    return GraphTensor(total if len(nodes) > 1 else mapped("copy", total))


@lowers("scale")
def scale(X: GraphTensor, ScaleTensor: GraphTensor | None, scale: float, bias: float, bias_after_scale: bool) -> GraphTensor:
    only_numbers(X)
    node = X.node
    factor = number_like(scale, node) if ScaleTensor is None else _one(ScaleTensor, node.ndim)
    if bias and not bias_after_scale:
        node = mapped("add", node, number_like(bias, node))
    if ScaleTensor is not None or scale != 1.0 or not bias:
        node = mapped("mul", node, factor)
    if bias and bias_after_scale:
        node = mapped("add", node, number_like(bias, node))
    return GraphTensor(node)


@lowers("clip")
def clip(X: GraphTensor, Min: GraphTensor | None, Max: GraphTensor | None, min: float, max: float) -> GraphTensor:
    only_floats(X, Min, Max)
    low = number_like(min, X.node) if Min is None else _one(Min, X.ndim)
    high = number_like(max, X.node) if Max is None else _one(Max, X.ndim)
    return GraphTensor(mapped("min", high, mapped("max", low, X.node)))


@lowers("cast", copies=True)
def cast(X: GraphTensor, specs: dict[str, Any]) -> GraphTensor:
    element = element_of(specs["Out"].dtype)
    if element == HALF and X.node.element == DOUBLE:
        raise NotLowered("a rounding by way of float32, which rounds twice")
    return GraphTensor(mapped("convert", X.node, element=element))


@lowers("fill_any_like")
def fill_any_like(X: GraphTensor, value: float, specs: dict[str, Any]) -> GraphTensor:
    return GraphTensor(broadcast_to(_constant(value, "", element_of(specs["Out"].dtype)), X.shape))


@lowers("assign", copies=True)
def assign(X: GraphTensor) -> GraphTensor:
    return GraphTensor(mapped("copy", X.node))


@lowers("pow")
def pow_(X: GraphTensor, FactorTensor: GraphTensor | None, factor: float) -> GraphTensor:
    only_floats(X)
    formula = {2.0: "square", 0.5: "sqrt", -1.0: "reciprocal", 1.0: "copy"}.get(factor)
    if FactorTensor is not None:
        only_floats(FactorTensor)
        return GraphTensor(mapped("pow", X.node, mapped("convert", _one(FactorTensor, X.ndim), element=X.node.element)))
    if factor == -0.5:
        return GraphTensor(_inverse_root(X.node))
    return GraphTensor(mapped("pow", X.node, number_like(factor, X.node)) if formula is None else mapped(formula, X.node))


def _inverse_root(x: GraphNode) -> GraphNode:
    """The power of -0.5; unlike the inverse of the root, it is infinity for -0.0 and 0 for -infinity."""
    infinity = number_like(inf, x)
    is_least = mapped("oeq", x, number_like(-inf, x), element=BOOL)
    return mapped("rsqrt", mapped("select", is_least, infinity, mapped("add", x, number_like(0.0, x)), element=x.element))


@lowers("fill_constant")
def fill_constant(
    ShapeTensor: Any, ShapeTensorList: Any, ValueTensor: Any, shape: list[int], dtype: int, value: float, str_value: str
) -> GraphTensor:
    if ShapeTensor is not None or ShapeTensorList or ValueTensor is not None:
        raise NotLowered("a constant that is not said")
    return GraphTensor(broadcast_to(_constant(value, str_value, element_of(as_dtype(dtype))), tuple(shape)))


@lowers("fill_constant_batch_size_like")
def fill_constant_batch_size_like(value: float, str_value: str, specs: dict[str, Any]) -> GraphTensor:
    out = specs["Out"]
    return GraphTensor(broadcast_to(_constant(value, str_value, element_of(out.dtype)), out.shape))


def _constant(value: float, text: str, element: Type) -> Constant:
    """A number; the text gives it more exactly, if it is not empty."""
    number = float(text) if text else value
    if not element.is_float and (not number.is_integer() or abs(number) >= _EXACT):
        raise NotLowered("a constant that is no integer, or a large one")
    return constant(number, element)


_EXACT = 1 << 53
"""Integers below this are exact as floats; larger ones may round to it."""


@lowers("where")
def where(Condition: GraphTensor, X: GraphTensor | None, Y: GraphTensor | None) -> GraphTensor:
    if X is None or Y is None:
        raise NotLowered("positions")
    return GraphTensor(mapped("select", Condition.node, X.node, Y.node, element=X.node.element))


def _is_chosen(mask: GraphTensor, place: int, ndim: int) -> GraphNode:
    """Whether a mask of one integer holds a place, for operands of `ndim` dimensions."""
    node = _one(mask, ndim)
    return mapped("oeq", node, number_like(place, node), element=BOOL)


@lowers("select_input")
def select_input(X: list[GraphTensor], Mask: GraphTensor) -> GraphTensor:
    chosen = X[-1].node
    for place in reversed(range(len(X) - 1)):
        node = X[place].node
        chosen = mapped("select", _is_chosen(Mask, place, node.ndim), node, chosen, element=node.element)
    return GraphTensor(chosen)


@lowers("select_output")
def select_output(X: GraphTensor, Mask: GraphTensor, specs: dict[str, Any]) -> dict[str, list[GraphTensor | None]]:
    zero = number_like(0, X.node)
    parts = [
        spec and GraphTensor(mapped("select", _is_chosen(Mask, place, X.ndim), X.node, zero, element=X.node.element))
        for place, spec in enumerate(specs["Out"])
    ]
    return {"Out": parts}


# ------------------------------------------------------------------------------------------------- shapes and positions
@lowers(
    "reshape2", "reshape", "squeeze2", "unsqueeze2", "flatten2", "flatten", "squeeze", "unsqueeze", "flatten_contiguous_range",
    copies=True,
)  # fmt: skip
def reshape(X: GraphTensor, specs: dict[str, Any]) -> GraphTensor:
    return GraphTensor(mapped("copy", reshaped(X.node, specs["Out"].shape)))


@lowers(
    "reshape2_grad", "reshape_grad", "squeeze2_grad", "unsqueeze2_grad", "flatten2_grad", "flatten_grad", "squeeze_grad",
    "unsqueeze_grad", "flatten_contiguous_range_grad",
)  # fmt: skip
def reshape_grad(dOut: GraphTensor, specs: dict[str, Any]) -> dict[str, GraphTensor]:
    return {"X@GRAD": GraphTensor(mapped("copy", reshaped(dOut.node, specs["X@GRAD"].shape)))}


@lowers("reshape_like")
def reshape_like(X: GraphTensor, Like: GraphTensor) -> GraphTensor:
    return GraphTensor(reshaped(X.node, Like.shape))


@lowers("transpose2", "transpose", copies=True)
def transpose(X: GraphTensor, axis: list[int]) -> GraphTensor:
    return GraphTensor(mapped("copy", transposed(X.node, [place % X.ndim for place in axis])))


@lowers("expand_to")
def expand_to(X: GraphTensor, Like: GraphTensor, axis: int) -> GraphTensor:
    return GraphTensor(broadcast_to(_aligned(X, Like.ndim, axis), Like.shape))


@lowers("sum_to")
def sum_to(X: GraphTensor, Like: GraphTensor, axis: int) -> GraphTensor:
    if X.node.size == prod(Like.shape):
        return GraphTensor(reshaped(X.node, Like.shape))
    only_floats(X)
    small = aligned_shape(Like.shape, X.ndim, axis)
    axes = [place for place, extent in enumerate(small) if extent != X.shape[place]]
    return GraphTensor(reshaped(reduced("sum", X.node, axes), Like.shape))


# ----------------------------------------------------------------------------------------------------------- reductions
def _mean(node: GraphNode, axes: Any) -> GraphNode:
    count = prod(node.shape[axis] for axis in axes)
    return mapped("mul", reduced("sum", node, axes), number_like(1.0 / count, node)) if count else node


def _of_reduced(X: GraphTensor, dim: list[int], reduce_all: bool) -> tuple[int, ...]:
    if not X.node.size:
        raise NotLowered("nothing to reduce")
    return tuple(reduced_axes(X.ndim, dim, reduce_all))


@lowers("reduce_sum")
def reduce_sum(X: GraphTensor, dim: list[int], reduce_all: bool, specs: dict[str, Any]) -> GraphTensor:
    only_numbers(X)
    if element_of(specs["Out"].dtype) != X.node.element:
        raise NotLowered("sums of another element type")
    return GraphTensor(reshaped(reduced("sum", X.node, _of_reduced(X, dim, reduce_all)), specs["Out"].shape))


@lowers("reduce_mean")
def reduce_mean(X: GraphTensor, dim: list[int], reduce_all: bool, specs: dict[str, Any]) -> GraphTensor:
    only_floats(X)
    return GraphTensor(reshaped(_mean(X.node, _of_reduced(X, dim, reduce_all)), specs["Out"].shape))


# ---------------------------------------------------------------------------------------------------------- products
def _turned(node: GraphNode, turn: bool) -> GraphNode:
    return transposed(node, [*range(node.ndim - 2), node.ndim - 1, node.ndim - 2]) if turn else node


def _scaled(node: GraphNode, alpha: float) -> GraphNode:
    return node if alpha == 1.0 else mapped("mul", node, number_like(alpha, node))


def _product(X: GraphTensor, Y: GraphTensor, turn_x: bool, turn_y: bool, alpha: float) -> GraphTensor:
    only_floats(X, Y)
    of_integers = None if turn_x else quantized_product(X.node, Y.node, turn_y)
    if of_integers is not None:
        return GraphTensor(_scaled(of_integers, alpha))
    left, right, shape = _as_matrices(X, Y, turn_x, turn_y)
    result = _of_stacks(_turned(left, turn_x), _turned(right, turn_y))
    return GraphTensor(_scaled(reshaped(result, shape(result.shape)), alpha))


def _as_matrices(
    X: GraphTensor, Y: GraphTensor, turn_x: bool, turn_y: bool
) -> tuple[GraphNode, GraphNode, Callable[[Shape], Shape]]:
    """The factors of a product as matrices: a vector becomes a row on the left, a column on the right. Also returns a function
    from the shape of the matrix product to the shape of the result."""
    if (X.ndim == 1 and turn_x) or (Y.ndim == 1 and turn_y):
        raise ByRule
    left = reshaped(X.node, (1, X.node.size)) if X.ndim == 1 else X.node
    right = reshaped(Y.node, (Y.node.size, 1)) if Y.ndim == 1 else Y.node
    dropped = [place for place, tensor in ((-2, X), (-1, Y)) if tensor.ndim == 1]
    return left, right, lambda whole: tuple(n for place, n in enumerate(whole) if place - len(whole) not in dropped) or (1,)


def _of_stacks(left: GraphNode, right: GraphNode) -> GraphNode:
    """Multiply stacks of matrices; if the right one is a single matrix, the left stack is joined to one tall matrix."""
    if right.ndim == 2 and left.ndim > 2 and not _is_view(left):
        rows = prod(left.shape[:-1])
        result = product(reshaped(left, (rows, left.shape[-1])), right)
        return reshaped(result, (*left.shape[:-1], right.shape[-1]))
    return product(left, right)


def _is_view(node: GraphNode) -> bool:
    return isinstance(node, View) and node.strides != contiguous(node.shape)


def _product_to(left: GraphNode, right: GraphNode, shape: tuple[int, ...]) -> GraphNode:
    """Multiply, and sum over the leading dimensions that `shape` lacks."""
    if len(shape) == 2 and left.ndim > 2 and left.shape[:-2] == right.shape[:-2]:
        # The sum of products over a stack is one product of the joined matrices.
        turned = _turned(left, True)
        if not _is_view(turned) and not _is_view(right):
            count = prod(turned.shape[:-1])
            return product(_turned(reshaped(turned, (count, turned.shape[-1])), True), reshaped(right, (count, right.shape[-1])))
    result = _of_stacks(left, right)
    if result.shape == shape:
        return result
    small = (1,) * (result.ndim - len(shape)) + shape
    return reshaped(reduced("sum", result, [axis for axis, extent in enumerate(small) if extent != result.shape[axis]]), shape)


def _product_grad(
    X: GraphTensor, Y: GraphTensor, dOut: GraphTensor, turn_x: bool, turn_y: bool, alpha: float, wanted: set[str]
) -> dict[str, GraphTensor]:
    only_floats(X, Y, dOut)
    left, right, _ = _as_matrices(X, Y, turn_x, turn_y)
    x, y = _turned(left, turn_x), _turned(right, turn_y)
    batch = max((left, right), key=lambda node: node.ndim).shape[:-2]
    gradient = reshaped(dOut.node, (*batch, x.shape[-2], y.shape[-1])) if 1 in (X.ndim, Y.ndim) else dOut.node
    results = {}
    if "X@GRAD" in wanted:
        pair = (y, _turned(gradient, True)) if turn_x else (gradient, _turned(y, True))
        results["X@GRAD"] = GraphTensor(_scaled(reshaped(_product_to(*pair, left.shape), X.shape), alpha))
    if "Y@GRAD" in wanted:
        pair = (_turned(gradient, True), x) if turn_y else (_turned(x, True), gradient)
        results["Y@GRAD"] = GraphTensor(_scaled(reshaped(_product_to(*pair, right.shape), Y.shape), alpha))
    return results


@lowers("matmul")
def matmul(X: GraphTensor, Y: GraphTensor, transpose_X: bool, transpose_Y: bool, alpha: float) -> GraphTensor:
    return _product(X, Y, transpose_X, transpose_Y, alpha)


@lowers("matmul_grad")
def matmul_grad(
    X: GraphTensor, Y: GraphTensor, dOut: GraphTensor, transpose_X: bool, transpose_Y: bool, alpha: float, wanted: set[str]
) -> dict[str, GraphTensor]:
    return _product_grad(X, Y, dOut, transpose_X, transpose_Y, alpha, wanted)


@lowers("matmul_v2")
def matmul_v2(X: GraphTensor, Y: GraphTensor, trans_x: bool, trans_y: bool) -> GraphTensor:
    return _product(X, Y, trans_x, trans_y, 1.0)


@lowers("matmul_v2_grad")
def matmul_v2_grad(
    X: GraphTensor, Y: GraphTensor, dOut: GraphTensor, trans_x: bool, trans_y: bool, wanted: set[str]
) -> dict[str, GraphTensor]:
    return _product_grad(X, Y, dOut, trans_x, trans_y, 1.0, wanted)


def _matrix(node: GraphNode, rows: int) -> GraphNode:
    return reshaped(node, (prod(node.shape[:rows]), prod(node.shape[rows:])))


@lowers("mul")
def mul(X: GraphTensor, Y: GraphTensor, x_num_col_dims: int, y_num_col_dims: int, specs: dict[str, Any]) -> GraphTensor:
    only_floats(X, Y)
    return GraphTensor(reshaped(product(_matrix(X.node, x_num_col_dims), _matrix(Y.node, y_num_col_dims)), specs["Out"].shape))


@lowers("mul_grad")
def mul_grad(
    X: GraphTensor, Y: GraphTensor, dOut: GraphTensor, x_num_col_dims: int, y_num_col_dims: int, wanted: set[str]
) -> dict[str, GraphTensor]:
    only_floats(X, Y, dOut)
    x, y, gradient = _matrix(X.node, x_num_col_dims), _matrix(Y.node, y_num_col_dims), _matrix(dOut.node, x_num_col_dims)
    results = {}
    if "X@GRAD" in wanted:
        results["X@GRAD"] = GraphTensor(reshaped(product(gradient, _turned(y, True)), X.shape))
    if "Y@GRAD" in wanted:
        results["Y@GRAD"] = GraphTensor(reshaped(product(_turned(x, True), gradient), Y.shape))
    return results


# ------------------------------------------------------------------------------------------------------ softmax and loss
_FEWEST_COLUMNS = 16
"""An axis is reduced in place if so many neighbouring elements follow it; with fewer, vectors would stay partly empty."""


def _axis_to_reduce(tensor: GraphTensor, axis: int) -> tuple[GraphNode, int, Callable[[GraphNode], GraphTensor]]:
    """Move an axis to the end if reducing it in place is slower; returns node, axis, and a function that moves it back."""
    only_floats(tensor)
    node, ndim = tensor.node, tensor.ndim
    if not node.size:
        raise NotLowered("nothing to reduce")
    last = max(ndim, 1) - 1
    axis %= last + 1
    if axis == last:
        return node, last, GraphTensor
    if prod(tensor.shape[axis + 1 :]) >= _FEWEST_COLUMNS and not isinstance(node, ChannelsFirst):
        return plain(node), axis, GraphTensor
    if ndim == 4 and axis == 1:
        return plain(channels_last(node)), last, lambda result: GraphTensor(channels_first(result))
    order = [*(place for place in range(ndim) if place != axis), axis]
    back = [order.index(place) for place in range(ndim)]
    return plain(transposed(node, order)), last, lambda result: GraphTensor(mapped("copy", transposed(result, back)))


def _softmax(node: GraphNode, axis: int) -> tuple[GraphNode, GraphNode, GraphNode]:
    """Softmax along an axis; also returns the maxima and the sums of exponentials."""
    top = reduced("max", node, [axis])
    exponentials = mapped("exp", mapped("sub", node, top))
    total = reduced("sum", exponentials, [axis])
    return mapped("div", exponentials, total), top, total


@lowers("softmax")
def softmax(X: GraphTensor, axis: int) -> GraphTensor:
    x, axis, back = _axis_to_reduce(X, axis)
    return back(_softmax(x, axis)[0])


@lowers("log_softmax")
def log_softmax(X: GraphTensor, axis: int) -> GraphTensor:
    x, axis, back = _axis_to_reduce(X, axis)
    _, top, total = _softmax(x, axis)
    return back(mapped("sub", mapped("sub", x, top), mapped("log", total)))


# ---------------------------------------------------------------------------------------------------------- cross entropy
@lowers("softmax_with_cross_entropy")
def softmax_with_cross_entropy(
    Logits: GraphTensor,
    Label: GraphTensor,
    soft_label: bool,
    use_softmax: bool,
    ignore_index: int,
    axis: int,
    specs: dict[str, Any],
) -> dict[str, GraphTensor]:
    x, along, back = _axis_to_reduce(Logits, axis)
    if use_softmax:
        softmax, top, total = _softmax(x, along)
    else:
        softmax = x
    if soft_label:
        label = _with_axis_as_in(x, along, Label, axis)
        logs = mapped("sub", mapped("sub", x, top), mapped("log", total)) if use_softmax else mapped("neg", minus_log(x))
        loss = mapped("neg", reduced("sum", mapped("mul", label, logs), [along]))
    else:
        ids, is_valid = _labels_beside(x, along, Label, axis, ignore_index)
        chosen = picked(x, ids, along)
        missed = mapped("sub", mapped("log", total), mapped("sub", chosen, top)) if use_softmax else minus_log(chosen)
        loss = mapped("select", is_valid, missed, number_like(0.0, x), element=x.element)
    losses = back(loss)
    return {
        "Softmax": back(softmax),
        "Loss": GraphTensor(reshaped(losses.node, specs["Loss"].shape)) if specs.get("Loss") else losses,
    }


def _with_axis_as_in(x: GraphNode, along: int, tensor: GraphTensor, axis: int) -> GraphNode:
    """Move an axis of a tensor to the end if `_axis_to_reduce` has moved the axis of `x`, which is now `along`."""
    if along < x.ndim - 1 or axis % tensor.ndim == tensor.ndim - 1:
        return plain(tensor.node)
    order = [place for place in range(tensor.ndim) if place != axis % tensor.ndim]
    return plain(transposed(tensor.node, [*order, axis % tensor.ndim]))


def _labels_beside(x: GraphNode, along: int, Label: GraphTensor, axis: int, ignore_index: int) -> tuple[GraphNode, GraphNode]:
    """Labels, to broadcast beside `x`, and a mask of the valid ones; see `_with_axis_as_in` and `labels_of`."""
    shape = reduced_shape(x.shape, [along], keep_dim=True)
    return labels_of(_with_axis_as_in(x, along, Label, axis), shape, ignore_index)


@lowers("softmax_with_cross_entropy_grad")
def softmax_with_cross_entropy_grad(
    Label: GraphTensor,
    Softmax: GraphTensor,
    dLoss: GraphTensor | None,
    dSoftmax: GraphTensor | None,
    soft_label: bool,
    use_softmax: bool,
    ignore_index: int,
    axis: int,
    wanted: set[str],
) -> dict[str, GraphTensor]:
    if soft_label or not use_softmax or dLoss is None or dSoftmax is not None or wanted != {"Logits@GRAD"}:
        raise ByRule
    softmax, along, back = _axis_to_reduce(Softmax, axis)
    gradient = _with_axis_as_in(softmax, along, dLoss, axis)
    ids, is_valid = _labels_beside(softmax, along, Label, axis, ignore_index)
    gradient = mapped("select", is_valid, gradient, number_like(0.0, gradient), element=gradient.element)
    hit = mapped("convert", is_label(softmax.shape, ids, along), element=softmax.element)
    return {"Logits@GRAD": back(mapped("mul", mapped("sub", softmax, hit), gradient))}


# ---------------------------------------------------------------------------------------------------------- batch norm
@dataclass(frozen=True)
class _NormLayout:
    """The layout of images while batch_norm scales and sums their channels.

    Attributes:
        images: the shape of the images, as the op has it.
        shape: their shape in this layout.
        axis: the axis of the channels.
        is_moved: whether the channels come last in this layout alone.
    """

    images: Shape
    shape: Shape
    axis: int
    is_moved: bool = False

    @classmethod
    def of(cls, planes: Planes, data_layout: str, *images: GraphTensor) -> _NormLayout:
        """Choose the layout: planes, or channels last."""
        only_floats(*images)
        shape = images[0].shape
        if len(shape) == 2 or data_layout == "NHWC":
            return cls(shape, shape, len(shape) - 1)
        count, channels, *extents = shape
        if planes.keep(*images):
            return cls(shape, (count, channels, prod(extents)), 1)
        extents = extents if len(extents) in (2, 3) else [prod(extents), 1]
        return cls(shape, (count, *extents, channels), len(extents) + 1, is_moved=True)

    def node(self, image: GraphTensor) -> GraphNode:
        """Images in this layout."""
        if not self.is_moved:
            return reshaped(image.node, self.shape)
        return channels_last(reshaped(image.node, (*self.images[:2], *self.shape[1:-1])))

    def vector(self, tensor: GraphTensor) -> GraphNode:
        """A vector with a number for each channel, which broadcasts with images."""
        return reshaped(tensor.node, tuple(extent if axis == self.axis else 1 for axis, extent in enumerate(self.shape)))

    def result(self, node: GraphNode) -> GraphTensor:
        """Bring images from this layout back to the layout of the op."""
        return GraphTensor(reshaped(channels_first(node) if self.is_moved else node, self.images))

    @property
    def axes(self) -> list[int]:
        """The axes over which a channel is summed."""
        return [axis for axis in range(len(self.shape)) if axis != self.axis]


def _is_convolved(node: GraphNode) -> bool:
    """Whether images come from a convolution, which scales its results itself if channels are last."""
    while isinstance(node, (Map, Reshaped)):
        node = node.source if isinstance(node, Reshaped) else node.operands[0]
    return isinstance(node, Product)


@lowers("batch_norm")
def batch_norm(
    X: GraphTensor, Scale: GraphTensor, Bias: GraphTensor, Mean: GraphTensor, Variance: GraphTensor,
    MomentumTensor: GraphTensor | None, is_test: bool,
    momentum: float, epsilon: float, data_layout: str, use_global_stats: bool, trainable_statistics: bool, planes: Planes,
) -> dict[str, GraphTensor]:  # fmt: skip
    if MomentumTensor is not None or Scale is None or Bias is None or Scale.node.element != X.node.element:
        raise NotLowered("a momentum that is a tensor")
    is_global = uses_global_stats(is_test, use_global_stats, trainable_statistics)
    planes = Planes(is_allowed=False) if is_global and _is_convolved(X.node) else planes
    layout = _NormLayout.of(planes, data_layout, X)
    x, axes = layout.node(X), layout.axes
    scale, bias, mean, variance = map(layout.vector, (Scale, Bias, Mean, Variance))
    results: dict[str, GraphTensor] = {}
    unchanged: dict[str, GraphTensor] = {}
    if is_global:
        unchanged = {"MeanOut": GraphTensor(mapped("copy", Mean.node)), "VarianceOut": GraphTensor(mapped("copy", Variance.node))}
        used, spread = mapped("copy", mean), variance
        centered = mapped("sub", x, mean)
    else:
        used = _mean(x, axes)
        centered = mapped("sub", x, used)
        spread = _mean(mapped("square", centered), axes)
        for slot, running, new in (("MeanOut", Mean, used), ("VarianceOut", Variance, spread)):
            moved = mapped("mul", reshaped(new, running.shape), number_like(1.0 - momentum, new))
            results[slot] = GraphTensor(mapped("add", mapped("mul", running.node, number_like(momentum, running.node)), moved))
    inverse = mapped("reciprocal", mapped("sqrt", mapped("add", spread, number_like(epsilon, spread))))
    y = mapped("add", mapped("mul", centered, mapped("mul", inverse, scale)), bias)
    results["Y"] = layout.result(y)
    results["SavedMean"], results["SavedVariance"] = (GraphTensor(reshaped(node, Mean.shape)) for node in (used, inverse))
    return results | unchanged


@lowers("batch_norm_grad")
def batch_norm_grad(
    X: GraphTensor, Scale: GraphTensor, SavedMean: GraphTensor, SavedVariance: GraphTensor, dY: GraphTensor,
    dSavedMean: GraphTensor | None,
    dSavedVariance: GraphTensor | None, is_test: bool, data_layout: str, use_global_stats: bool, trainable_statistics: bool,
    wanted: set[str], planes: Planes,
) -> dict[str, GraphTensor]:  # fmt: skip
    if dSavedMean is not None or dSavedVariance is not None or Scale is None or Scale.node.element != X.node.element:
        raise ByRule
    layout = _NormLayout.of(planes, data_layout, X, dY)
    x, d_y, axes = layout.node(X), layout.node(dY), layout.axes
    scale, mean, inverse = map(layout.vector, (Scale, SavedMean, SavedVariance))
    count = x.size // x.shape[layout.axis]
    d_bias = reduced("sum", d_y, axes)
    normal = mapped("mul", mapped("sub", x, mean), inverse)
    d_scale = reduced("sum", mapped("mul", d_y, normal), axes)
    factor = mapped("mul", scale, inverse)
    if uses_global_stats(is_test, use_global_stats, trainable_statistics):
        d_x = mapped("mul", d_y, factor)
    else:
        share = number_like(1.0 / count, x)
        shift = mapped("add", mapped("mul", normal, mapped("mul", d_scale, share)), mapped("mul", d_bias, share))
        d_x = mapped("mul", mapped("sub", d_y, shift), factor)
    results = {"X@GRAD": layout.result(d_x)}
    results["Scale@GRAD"], results["Bias@GRAD"] = (GraphTensor(reshaped(node, Scale.shape)) for node in (d_scale, d_bias))
    return {slot: tensor for slot, tensor in results.items() if slot in wanted}


# -------------------------------------------------------------------------------------------------------- layer norm
@lowers("layer_norm")
def layer_norm(
    X: GraphTensor,
    Scale: GraphTensor | None,
    Bias: GraphTensor | None,
    begin_norm_axis: int,
    epsilon: float,
    specs: dict[str, Any],
) -> dict[str, GraphTensor]:
    only_floats(X, Scale, Bias)
    rows, width = prod(X.shape[:begin_norm_axis]), prod(X.shape[begin_norm_axis:])
    if any(tensor is not None and tensor.node.element != X.node.element for tensor in (Scale, Bias)):
        raise NotLowered("statistics of another precision")
    x = reshaped(plain(X.node), (rows, width))
    mean = _mean(x, [1])
    centered = mapped("sub", x, mean)
    variance = _mean(mapped("square", centered), [1])
    inverse = mapped("reciprocal", mapped("sqrt", mapped("add", variance, number_like(epsilon, x))))
    y = mapped("mul", centered, inverse)
    if Scale is not None:
        y = mapped("mul", y, reshaped(Scale.node, (1, width)))
    if Bias is not None:
        y = mapped("add", y, reshaped(Bias.node, (1, width)))
    results = {"Y": GraphTensor(reshaped(y, X.shape))}
    for slot, node in (("Mean", mean), ("Variance", variance)):
        if specs.get(slot) is not None:
            results[slot] = GraphTensor(reshaped(node, specs[slot].shape))
    return results


@lowers("layer_norm_grad")
def layer_norm_grad(
    X: GraphTensor, Scale: GraphTensor | None, Mean: GraphTensor, Variance: GraphTensor, dY: GraphTensor,
    begin_norm_axis: int, epsilon: float,
    wanted: set[str], specs: dict[str, Any],
) -> dict[str, GraphTensor]:  # fmt: skip
    only_floats(X, Scale, dY)
    rows, width = prod(X.shape[:begin_norm_axis]), prod(X.shape[begin_norm_axis:])
    if Mean is None or Variance is None or (Scale is not None and Scale.node.element != X.node.element):
        raise NotLowered("statistics that are not there")
    x, d_y = reshaped(plain(X.node), (rows, width)), reshaped(plain(dY.node), (rows, width))
    mean, variance = (reshaped(tensor.node, (rows, 1)) for tensor in (Mean, Variance))
    inverse = mapped("reciprocal", mapped("sqrt", mapped("add", variance, number_like(epsilon, x))))
    normal = mapped("mul", mapped("sub", x, mean), inverse)
    scaled = d_y if Scale is None else mapped("mul", d_y, reshaped(Scale.node, (1, width)))
    results = {}
    if "X@GRAD" in wanted:
        first, second = _mean(scaled, [1]), _mean(mapped("mul", scaled, normal), [1])
        d_x = mapped("mul", mapped("sub", mapped("sub", scaled, first), mapped("mul", normal, second)), inverse)
        results["X@GRAD"] = GraphTensor(reshaped(d_x, X.shape))
    if "Scale@GRAD" in wanted:
        results["Scale@GRAD"] = GraphTensor(reshaped(reduced("sum", mapped("mul", d_y, normal), [0]), specs["Scale@GRAD"].shape))
    if "Bias@GRAD" in wanted:
        results["Bias@GRAD"] = GraphTensor(reshaped(reduced("sum", d_y, [0]), specs["Bias@GRAD"].shape))
    return results


# -------------------------------------------------------------------------------------------------------------- tables
@lowers("lookup_table", "lookup_table_v2")
def lookup_table(W: GraphTensor, Ids: GraphTensor, padding_idx: int, specs: dict[str, Any]) -> GraphTensor:
    only_floats(W)
    if W.ndim != 2:
        raise NotLowered("a table of other than two dimensions")
    _, ids, is_kept = masked_ids(Ids.node, padding_idx)
    rows: GraphNode = Rows((ids.size, W.shape[1]), W.node.element, W.node, ids)
    if is_kept is not None:
        rows = mapped("select", is_kept, rows, number_like(0.0, rows), element=rows.element)
    return GraphTensor(reshaped(rows, specs["Out"].shape))


@lowers("scatter_rows_like")
def scatter_rows_like(X: GraphTensor, Ids: GraphTensor, Like: GraphTensor, padding_idx: int) -> GraphTensor:
    only_floats(X)
    if Like.ndim != 2:
        raise NotLowered("a table of other than two dimensions")
    ids, _, _ = masked_ids(Ids.node, padding_idx)
    rows = reshaped(plain(X.node), (ids.size, Like.shape[1]))
    return GraphTensor(Scattered(Like.shape, X.node.element, rows, ids))
