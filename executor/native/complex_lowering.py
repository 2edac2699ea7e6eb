"""Lowers ops of complex numbers to ops of their parts."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import prod
from typing import Any

from fluid.opdef.registry import LINEAR, OpDef, all_ops
from fluid.ops.einsum import parsed
from fluid.ops.shapes import aligned as aligned_shape
from fluid.values.types import as_dtype, is_complex, is_floating, real_of

from . import ops, reduction_lowering, shape_lowering  # noqa: F401  (they register lowerings, which `_by_parts` uses)
from .complex_tensors import ComplexTensor, InPairs, InParts, added, in_shape, joined_along, padded, part_of
from .einsum_lowering import multiply_terms
from .emitter import BOOL
from .graph import GraphNode, broadcast_to, joined, mapped, plain, reshaped
from .lowering import NAMESPACE, GraphTensor, NotLowered, lower, lowers_complex, needs_parts, number_like
from .shape_lowering import slices_of

f = NAMESPACE


def complex_only(*tensors: Any) -> None:
    """Raise `NotLowered` unless all tensors are of complex numbers."""
    if not all(isinstance(tensor, ComplexTensor) for tensor in tensors):
        raise NotLowered("real numbers beside complex ones")


# ------------------------------------------------------------------------------------------- linear, with real coefficients
_NUMBERS = ("pad_value", "value")
"""Attributes of linear ops that are numbers beside the elements."""


def _by_parts(definition: OpDef) -> Callable[..., dict[str, Any]]:
    """A function that lowers an op of real parts and of imaginary parts: for ops that are linear with real coefficients."""

    def lower_parts(inputs: Mapping[str, Any], attrs: Mapping[str, Any], specs: Mapping[str, Any]) -> dict[str, Any]:
        flat = [item for value in inputs.values() for item in (value if isinstance(value, list) else [value])]
        if any(isinstance(item, GraphTensor) and is_floating(item.dtype) for item in flat):
            raise NotLowered("real numbers beside complex ones")
        if any(attrs.get(name) for name in _NUMBERS):
            raise NotLowered("numbers that are not zero")
        real_specs = {slot: _real_specs(value) for slot, value in specs.items()}
        reals, imags = (lower(definition, part_of(inputs, part), attrs, real_specs) for part in ("real", "imag"))
        return {slot: _in_parts(value, imags[slot]) for slot, value in reals.items()}

    return lower_parts


def _real_specs(value: Any) -> Any:
    if isinstance(value, list):
        return [_real_specs(item) for item in value]
    return value and value.with_dtype(real_of(value.dtype))


def _in_parts(real: Any, imag: Any) -> Any:
    if isinstance(real, list):
        return [_in_parts(*pair) for pair in zip(real, imag, strict=True)]
    return InParts(real, imag)


_MIXED = frozenset({"as_real", "as_complex", "double_inner"})
"""Linear ops whose lowering has real numbers on one side."""


def _register_linear() -> None:
    for definition in all_ops().values():
        rule = (definition.forward or definition).complex_rule
        if rule == LINEAR and definition.type not in _MIXED and needs_parts(definition.type):
            lowers_complex(definition.type)(_by_parts(definition))


# --------------------------------------------------------------------------------------------------------------- the parts
@lowers_complex("real")
def real(X: ComplexTensor) -> GraphTensor:
    return X.real_part()


@lowers_complex("imag")
def imag(X: ComplexTensor) -> GraphTensor:
    return X.imag


@lowers_complex("conj")
def conj(X: ComplexTensor) -> ComplexTensor:
    return InParts(X.real, -X.imag)


@lowers_complex("complex")
def complex_(X: GraphTensor, Y: GraphTensor, specs: dict[str, Any]) -> ComplexTensor:
    return InParts(*(GraphTensor(broadcast_to(part.node, specs["Out"].shape)) for part in (X, Y)))


@lowers_complex("as_real")
def as_real(X: ComplexTensor) -> GraphTensor:
    return GraphTensor(mapped("copy", X.pairs))


@lowers_complex("as_complex")
def as_complex(X: GraphTensor) -> ComplexTensor:
    return InPairs(plain(X.node))


@lowers_complex("cast")
def cast(X: GraphTensor | ComplexTensor, out_dtype: int) -> ComplexTensor:
    dtype = as_dtype(out_dtype)
    if not is_complex(dtype):
        raise NotLowered("a cast that drops the imaginary part")
    parts = (X.real, X.imag) if isinstance(X, ComplexTensor) else (X,)
    real, *imag = (part.astype(real_of(dtype)) for part in parts)
    return InParts(real, imag[0] if imag else f.fill_zeros_like(real))


@lowers_complex("fill_zeros_like", "fill_any_like")
def fill_any_like(X: Any, value: float, specs: dict[str, Any]) -> ComplexTensor:
    out = specs["Out"]
    if not is_complex(out.dtype):
        raise NotLowered("real numbers as complex ones are")
    if not isinstance(X, ComplexTensor):
        raise NotLowered("complex numbers as real ones are")
    zeros = f.fill_zeros_like(X.real)
    return InParts(zeros + value if value else zeros, zeros)


# ------------------------------------------------------------------------------------------------------------- elementwise
@lowers_complex("elementwise_mul")
def elementwise_mul(X: Any, Y: Any, axis: int) -> ComplexTensor:
    complex_only(X, Y)

    def product(x: GraphTensor, y: GraphTensor) -> GraphTensor:
        return f.elementwise_mul(x, y, axis=axis)

    return InParts(product(X.real, Y.real) - product(X.imag, Y.imag), product(X.real, Y.imag) + product(X.imag, Y.real))


@lowers_complex("elementwise_div")
def elementwise_div(X: Any, Y: Any, axis: int, specs: dict[str, Any]) -> ComplexTensor:
    """Smith, *Algorithm 116: Complex division* (1962): no overflow where the result has none."""
    complex_only(X, Y)
    shape = specs["Out"].shape
    a, b, c, d = (_spread(part, shape, axis) for tensor in (X, Y) for part in (tensor.real, tensor.imag))
    is_wide = f.abs(c) >= f.abs(d)
    large, small = f.where(is_wide, c, d), f.where(is_wide, d, c)
    ratio = small / large
    divisor = large + small * ratio

    def share(x: GraphTensor, y: GraphTensor) -> GraphTensor:
        """``(x * c + y * d) / (c * c + d * d)``."""
        return f.where(is_wide, x + y * ratio, x * ratio + y) / divisor

    return InParts(share(a, b), share(b, -a))


def _spread(tensor: GraphTensor, shape: tuple[int, ...], axis: int) -> GraphTensor:
    """An operand in the shape of the result."""
    return GraphTensor(broadcast_to(reshaped(tensor.node, aligned_shape(tensor.shape, len(shape), axis)), shape))


@lowers_complex("square")
def square(X: ComplexTensor) -> ComplexTensor:
    return InParts(X.real * X.real - X.imag * X.imag, X.real * X.imag * 2.0)


@lowers_complex("scale")
def scale(X: ComplexTensor, ScaleTensor: Any, scale: float, bias: float, bias_after_scale: bool) -> ComplexTensor:
    if ScaleTensor is not None:
        raise NotLowered("a factor in a tensor")
    real = f.scale(X.real, scale=scale, bias=bias, bias_after_scale=bias_after_scale)
    return InParts(real, f.scale(X.imag, scale=scale))


@lowers_complex("abs")
def abs_(X: ComplexTensor) -> GraphTensor:
    """``large * sqrt(1 + (small / large)^2)``: no overflow where the result has none."""
    x, y = f.abs(X.real), f.abs(X.imag)
    large, small = (GraphTensor(mapped(kind, x.node, y.node)) for kind in ("max", "min"))
    is_zero = GraphTensor(mapped("oeq", large.node, number_like(0.0, large.node), element=BOOL))
    ratio = f.where(f.equal(small, large), f.fill_any_like(large, value=1.0), small / large)
    return f.where(is_zero, large, large * f.sqrt(ratio * ratio + 1.0))


@lowers_complex("elementwise_add")
def elementwise_add(X: Any, Y: Any, axis: int) -> ComplexTensor:
    complex_only(X, Y)
    if X.shape == Y.shape:
        return added(X, Y)
    return InParts(f.elementwise_add(X.real, Y.real, axis=axis), f.elementwise_add(X.imag, Y.imag, axis=axis))


@lowers_complex("sum")
def sum_(X: list[Any]) -> ComplexTensor:
    tensors = [tensor for tensor in X if tensor is not None]
    complex_only(*tensors)
    total: ComplexTensor = tensors[0]
    for tensor in tensors[1:]:
        total = added(total, tensor)
    return total


# ------------------------------------------------------------------------------------------------------------ cut, joined
@lowers_complex("slice")
def slice_(Input: ComplexTensor, inputs: dict[str, Any], attrs: dict[str, Any], specs: dict[str, Any]) -> ComplexTensor:
    return in_shape(_sliced(Input, inputs, attrs), specs["Out"].shape)


@lowers_complex("slice_like")
def slice_like(X: ComplexTensor, Like: Any, inputs: dict[str, Any], attrs: dict[str, Any]) -> ComplexTensor:
    return in_shape(_sliced(X, inputs, attrs), Like.shape)


def _sliced(tensor: ComplexTensor, inputs: Mapping[str, Any], attrs: Mapping[str, Any]) -> ComplexTensor:
    for axis, places in slices_of(tensor.shape, inputs, attrs):
        if places.step < 0:
            raise NotLowered("elements in the other direction")
        if len(places) != tensor.shape[axis]:
            tensor = tensor.cut(axis, places)
    return tensor


@lowers_complex("unslice")
def unslice(X: ComplexTensor, Like: Any, inputs: dict[str, Any], attrs: dict[str, Any]) -> ComplexTensor:
    cuts, shape = slices_of(Like.shape, inputs, attrs), list(Like.shape)
    if any(places.step != 1 for _, places in cuts):
        raise NotLowered("elements that lie apart")
    for axis, places in cuts:
        shape[axis] = len(places)
    tensor = in_shape(X, tuple(shape))
    for axis, places in cuts:
        tensor = padded(tensor, axis, places.start, Like.shape[axis])
    return tensor


@lowers_complex("uncrop")
def uncrop(X: ComplexTensor, Like: Any, Offsets: Any, OffsetsTensor: Any, offsets: list[int]) -> ComplexTensor:
    if Offsets is not None or OffsetsTensor:
        raise NotLowered("offsets in tensors")
    tensor = X
    for axis, start in enumerate(offsets or [0] * X.ndim):
        tensor = padded(tensor, axis, start, Like.shape[axis])
    return tensor


@lowers_complex("pad")
def pad(X: ComplexTensor, paddings: list[int], pad_value: float) -> ComplexTensor:
    if pad_value:
        raise NotLowered("padding that is not zero")
    tensor = X
    for axis, (before, after) in enumerate(zip(paddings[::2], paddings[1::2], strict=True)):
        tensor = padded(tensor, axis, before, before + tensor.shape[axis] + after)
    return tensor


@lowers_complex("concat")
def concat(X: list[Any], AxisTensor: Any, axis: int) -> ComplexTensor:
    complex_only(*X)
    if AxisTensor is not None or len({tensor.dtype for tensor in X}) > 1:
        raise NotLowered("an axis in a tensor, or tensors of several element types")
    return joined_along(axis % X[0].ndim, X)


@lowers_complex("split_like")
def split_like(X: ComplexTensor, Like: list[Any], AxisTensor: Any, axis: int) -> dict[str, Any]:
    if AxisTensor is not None:
        raise NotLowered("an axis in a tensor")
    axis %= X.ndim
    parts, start = [], 0
    for like in Like:
        parts.append(X.cut(axis, range(start, start + like.shape[axis])))
        start += like.shape[axis]
    return {"Out": parts}


# ---------------------------------------------------------------------------------------------------------------- products
_LEFT, _RIGHT = "<", ">"
"""Labels of real and imaginary parts, of an operand and of the result."""


def _square(tensor: ComplexTensor) -> GraphNode:
    """Each number ``x + iy`` as the matrix ``[[x, y], [-y, x]]``, the right factor of a pair."""
    shape = (*tensor.shape, 1, 1)
    x, y = (broadcast_to(reshaped(part.node, shape), shape) for part in (tensor.real, tensor.imag))
    rows = (joined([x, y], tensor.ndim + 1), joined([mapped("neg", y), x], tensor.ndim + 1))
    return joined(rows, tensor.ndim)


def _multiplied(left: tuple[ComplexTensor, str], right: tuple[ComplexTensor, str], labels: str) -> ComplexTensor:
    """Multiply two terms as real tensors, with the parts as a further label to sum over."""
    if prod(left[0].shape) < prod(right[0].shape):
        left, right = right, left
    terms = (left[0].pairs, left[1] + _LEFT), (_square(right[0]), right[1] + _LEFT + _RIGHT)
    return InPairs(multiply_terms(terms, labels + _RIGHT))


def _sum_of_products(operands: Sequence[Any], terms: Sequence[str], result: str, shape: tuple[int, ...]) -> ComplexTensor:
    """The sum of products with the labels `result`."""
    complex_only(*operands)
    if len(operands) != 2:
        raise NotLowered("other than two operands of complex numbers")
    if any(len(set(term)) < len(term) for term in (*terms, result)) or not set(result) <= set("".join(terms)):
        raise NotLowered("a diagonal, or labels to repeat along")
    sizes: dict[str, set[int]] = {}
    for term, tensor in zip(terms, operands, strict=True):
        for letter, extent in zip(term, tensor.shape, strict=True):
            sizes.setdefault(letter, set()).add(extent)
    if any(len(extents) > 1 for extents in sizes.values()) or not all(prod(tensor.shape) for tensor in operands):
        raise NotLowered("operands to repeat, or nothing to sum")
    left, right = zip(operands, terms, strict=True)
    tensor = _multiplied(left, right, result)
    if prod(tensor.shape) != prod(shape):
        raise NotLowered("a result to repeat")
    return in_shape(tensor, shape)


@lowers_complex("einsum")
def einsum(Operands: list[Any], equation: str, specs: dict[str, Any]) -> dict[str, Any]:
    terms, result = parsed(equation, [tensor.ndim for tensor in Operands])
    return {"Out": _sum_of_products(Operands, terms, result, specs["Out"].shape), "InnerCache": Operands}


@lowers_complex("einsum_like")
def einsum_like(Operands: list[Any], Like: Any, equation: str) -> ComplexTensor:
    terms, _, result = equation.partition("->")
    return _sum_of_products(Operands, terms.split(","), result, Like.shape)


@lowers_complex("matmul", "matmul_v2")
def matmul(X: Any, Y: Any, attrs: dict[str, Any], specs: dict[str, Any]) -> ComplexTensor:
    complex_only(X, Y)
    turned = [any(attrs.get(name) for name in names) for names in (("trans_x", "transpose_X"), ("trans_y", "transpose_Y"))]
    product = _sum_of_products([X, Y], *_matrix_labels(X.ndim, Y.ndim, *turned), specs["Out"].shape)
    alpha = attrs.get("alpha", 1.0)
    return product if alpha == 1.0 else InPairs(mapped("mul", product.pairs, number_like(alpha, product.pairs)))


def _matrix_labels(left: int, right: int, turn_left: bool, turn_right: bool) -> tuple[list[str], str]:
    """The labels of two stacks of matrices with these dimensions, and of their product."""
    stacks = "abcdefgh"[: max(left, right) - 2]
    x, y = "k" if left == 1 else "rk", "k" if right == 1 else "ks"
    rows, columns = x[:-1], y[1:]
    terms = [x[::-1] if turn_left else x, y[::-1] if turn_right else y]
    terms = [stacks[len(stacks) - max(ndim - 2, 0) :] + term for ndim, term in zip((left, right), terms, strict=True)]
    return terms, stacks + rows + columns


_register_linear()
