"""Write matrix products."""

from __future__ import annotations

from typing import Any

from fluid.ops.einsum import parsed
from fluid.values.types import VarType

from .exporting import exports
from .graph import NotExported, OnnxGraph, OnnxTensor, Size
from .shaping import positions, shape_of


def _matrix(g: OnnxGraph, x: OnnxTensor, rows: int) -> OnnxTensor:
    """Reshape a tensor to a matrix; its first `rows` dimensions become the rows."""
    if x.ndim == 2 and rows == 1:
        return x
    sizes = g.sizes_of(x)
    static_sizes = [_product(x.shape[:rows]), _product(x.shape[rows:])]
    if static_sizes.count(-1) == 1 and 0 not in static_sizes:
        return g.in_shape(x, tuple(static_sizes), list)
    return g.reshape(x, [g.product_of(sizes[:rows]), g.product_of(sizes[rows:])])


def _product(sizes: tuple[int, ...]) -> int:
    result = 1
    for size in sizes:
        if size < 0:
            return -1
        result *= size
    return result


@exports("mul")
def mul(g: OnnxGraph, X: OnnxTensor, Y: OnnxTensor, x_num_col_dims: int, y_num_col_dims: int, specs: Any) -> OnnxTensor:
    if not X.is_floating:
        raise_on_small(X)
    product = g.matmul(_matrix(g, X, x_num_col_dims), _matrix(g, Y, y_num_col_dims))
    if X.ndim == 2 and Y.ndim == 2:
        return product
    sizes: list[Size] = []

    def exact() -> list[Size]:
        sizes.extend(g.size(X, axis) for axis in range(x_num_col_dims))
        sizes.extend(g.size(Y, axis) for axis in range(y_num_col_dims, Y.ndim))
        return sizes

    return g.in_shape(product, specs["Out"].shape, exact)


def raise_on_small(x: OnnxTensor) -> None:
    """`NotExported` for element types that `MatMul` does not take."""
    if x.dtype not in (VarType.INT32, VarType.INT64, VarType.FP16, VarType.FP32, VarType.FP64, VarType.BF16):
        raise NotExported(f"products of matrices of {x.dtype.text}")


def _turned(g: OnnxGraph, x: OnnxTensor, turn: bool) -> OnnxTensor:
    return g.transpose(x, [*range(x.ndim - 2), x.ndim - 1, x.ndim - 2]) if turn else x


def _times(g: OnnxGraph, X: OnnxTensor, Y: OnnxTensor, trans_x: bool, trans_y: bool) -> OnnxTensor:
    """Multiply matrices; a vector's missing dimension is dropped from the product."""
    raise_on_small(X)
    left, right = X, Y
    if X.ndim == 1:
        left = g.unsqueeze(X, 0)
    if Y.ndim == 1:
        right = g.unsqueeze(Y, 1)
    result = g.matmul(_turned(g, left, trans_x and X.ndim > 1), _turned(g, right, trans_y and Y.ndim > 1))
    dropped = ([-2] if X.ndim == 1 else []) + ([-1] if Y.ndim == 1 else [])
    return g.squeeze(result, *(place % result.ndim for place in dropped))


@exports("matmul_v2")
def matmul_v2(g: OnnxGraph, X: OnnxTensor, Y: OnnxTensor, trans_x: bool, trans_y: bool) -> OnnxTensor:
    return _times(g, X, Y, trans_x, trans_y)


@exports("matmul")
def matmul(
    g: OnnxGraph, X: OnnxTensor, Y: OnnxTensor, transpose_X: bool, transpose_Y: bool, alpha: float, specs: Any
) -> OnnxTensor:
    """Vectors can be transposed, too: a transposed vector is a column on the left, a row on the right."""
    raise_on_small(X)
    row, column = (g.unsqueeze(X, 0) if X.ndim == 1 else X), (g.unsqueeze(Y, 1) if Y.ndim == 1 else Y)
    result = g.matmul(_turned(g, row, transpose_X), _turned(g, column, transpose_Y))
    spec = specs["Out"]
    if result.ndim != spec.ndim:
        dropped = []
        if X.ndim == 1 and not transpose_X:
            dropped.append(result.ndim - 2)
        if Y.ndim == 1 and not transpose_Y:
            dropped.append(result.ndim - 1)
        if result.ndim - len(dropped) == spec.ndim:
            result = g.squeeze(result, *dropped)
    return result if alpha == 1.0 else g.binary("Mul", result, g.number(alpha, result))


def _interleaved(g: OnnxGraph, x: OnnxTensor, ndim: int, first: bool) -> OnnxTensor:
    """Interleave a tensor's dimensions with ones: before them (`first`) or after them."""
    x = g.unsqueeze(x, *range(ndim - x.ndim))
    return g.unsqueeze(x, *(2 * axis + (1 if first else 0) for axis in range(ndim)))


@exports("kron")
def kron(g: OnnxGraph, X: OnnxTensor, Y: OnnxTensor, specs: Any) -> OnnxTensor:
    ndim = max(X.ndim, Y.ndim)
    parts = g.binary("Mul", _interleaved(g, X, ndim, True), _interleaved(g, Y, ndim, False))
    sizes = g.sizes_of(parts)
    return g.in_shape(parts, specs["Out"].shape, lambda: [g.product_of(sizes[2 * axis : 2 * axis + 2]) for axis in range(ndim)])


@exports("unkron")
def unkron(g: OnnxGraph, X: OnnxTensor, Y: OnnxTensor, Like: OnnxTensor) -> OnnxTensor:
    ndim = X.ndim
    large = [*([1] * (ndim - Like.ndim)), *g.sizes_of(Like)]
    small = [*([1] * (ndim - Y.ndim)), *g.sizes_of(Y)]
    parts = g.reshape(X, [size for pair in zip(large, small, strict=True) for size in pair])
    product = g.binary("Mul", parts, _interleaved(g, Y, ndim, False))
    return g.reshape_as(g.reduce("ReduceSum", product, [2 * axis + 1 for axis in range(ndim)]), Like)


def _einsum(g: OnnxGraph, operands: list[OnnxTensor], equation: str, sizes: tuple[int, ...]) -> OnnxTensor:
    return g.sized_node("Einsum", operands, operands[0].dtype, sizes, equation=equation)


def _contracted(g: OnnxGraph, operands: list[OnnxTensor], terms: list[str], result: str, wanted: dict[str, Size]) -> OnnxTensor:
    """Sum products by labels; `wanted` has the sizes of the result's labels.

    The result repeats along labels that no operand has, and is zero off the diagonal of a label that the result has twice.
    """
    most: dict[str, int] = {}
    for term, operand in zip(terms, operands, strict=True):
        for letter, size in zip(term, operand.shape, strict=True):
            most[letter] = size if most.get(letter, 1) == 1 else most[letter]
    reduced, labels = [], []
    for term, operand in zip(terms, operands, strict=True):  # drop broadcast ones
        ones = [axis for axis, (letter, size) in enumerate(zip(term, operand.shape, strict=True)) if size == 1 != most[letter]]
        reduced.append(g.squeeze(operand, *ones) if ones else operand)
        labels.append("".join(letter for axis, letter in enumerate(term) if axis not in ones))
    once = "".join(dict.fromkeys(result))
    present = "".join(x for x in once if any(x in term for term in labels) and not (wanted[x] == 1 != most[x]))
    product = _einsum(g, reduced, ",".join(labels) + "->" + present, tuple(most[x] for x in present))
    product = g.unsqueeze(product, *(place for place, letter in enumerate(once) if letter not in present))
    shape = [wanted[letter] for letter in once]
    product = g.expand(product, g.joined_sizes(shape), tuple(n if isinstance(n, int) else -1 for n in shape))
    for place, letter in enumerate(result):
        if letter in result[:place]:  # one more dimension, zero off the diagonal
            first = result.index(letter)
            product = g.unsqueeze(product, place)
            same = g.binary(
                "Equal",
                positions(g, wanted[letter], place, product.ndim),
                positions(g, wanted[letter], first, product.ndim),
            )
            product = g.where(same, product, g.number(0, product))
    return product


@exports("einsum")
def einsum(g: OnnxGraph, Operands: list[OnnxTensor], equation: str, specs: Any) -> dict[str, Any]:
    terms, result = parsed(equation, [operand.ndim for operand in Operands])
    out = specs["Out"]
    if -1 in (size for operand in Operands for size in operand.shape):
        product = _einsum(g, Operands, f"{','.join(terms)}->{result}", out.shape)
    else:
        product = _contracted(g, Operands, terms, result, dict(zip(result, out.shape, strict=True)))
    cache: list[Any] = [g.identity(operand) for operand in Operands]
    return {"Out": product, "InnerCache": cache, "XShape": [shape_of(operand) for operand in Operands]}


@exports("einsum_like")
def einsum_like(g: OnnxGraph, Operands: list[OnnxTensor], Like: OnnxTensor, equation: str) -> OnnxTensor:
    left, _, result = equation.partition("->")
    if -1 in Like.shape or any(-1 in operand.shape for operand in Operands):
        if len(set(result)) < len(result) or any(letter not in left for letter in result):
            raise NotExported("a sum of products that repeats, of sizes that are known only at run time")
        sizes: dict[str, set[int]] = {}
        for term, operand in zip((*left.split(","), result), (*Operands, Like), strict=True):
            for letter, size in zip(term, operand.sizes, strict=True):
                sizes.setdefault(letter, set()).add(size)
        if any(len(label_sizes) > 1 or -1 in label_sizes for label_sizes in sizes.values()):
            raise NotExported("the gradient of a sum of products in which sizes known only at run time may broadcast")
        return _einsum(g, Operands, equation, Like.sizes)
    return _contracted(g, Operands, left.split(","), result, dict(zip(result, g.sizes_of(Like), strict=True)))


@exports("determinant")
def determinant(g: OnnxGraph, Input: OnnxTensor) -> OnnxTensor:
    return g.sized_node("Det", [Input], Input.dtype, Input.sizes[:-2])
