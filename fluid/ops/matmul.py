"""Products of matrices: `mul` flattens tensors to matrices, `matmul` multiplies the matrices in the last two dimensions.

The gradients of a product are products again.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from typing import Any

from ..errors import InferenceError
from ..opdef.composition import means
from ..opdef.registry import ShapeOnly, define
from ..values.spec import Spec
from .manipulation import product, transpose_of
from .shapes import aligned, broadcast, check_types_agree, fits, normalize_axis, scalar_shape

Shape = tuple[int, ...]


# ----------------------------------------------------------------------------------------------------------- inference
def _check(X: Spec, Y: Spec, inner_x: int, inner_y: int) -> None:
    check_types_agree({"X": X, "Y": Y})
    if inner_x != inner_y and -1 not in (inner_x, inner_y):
        raise InferenceError(f"X is {X} and Y is {Y}: {inner_x} columns of X against {inner_y} rows of Y")


def _mul(X: Spec, Y: Spec, x_num_col_dims: int, y_num_col_dims: int) -> Spec:
    for name, spec, dims in (("X", X, x_num_col_dims), ("Y", Y, y_num_col_dims)):
        if not 0 < dims < spec.ndim:
            attr_name = f"{name.lower()}_num_col_dims"
            raise InferenceError(f"{attr_name} is {dims}; with {name} {spec} it should be in [1, {spec.ndim - 1}]")
    _check(X, Y, product(X.shape[x_num_col_dims:]), product(Y.shape[:y_num_col_dims]))
    return X.with_shape(X.shape[:x_num_col_dims] + Y.shape[y_num_col_dims:])


def _transposed(shape: Shape, transposed: bool) -> Shape:
    return (*shape[:-2], shape[-1], shape[-2]) if transposed and len(shape) > 1 else shape


def _shape(X: Spec, Y: Spec, trans_x: bool, trans_y: bool) -> Shape:
    if not X.shape or not Y.shape:
        raise InferenceError(f"X is {X} and Y is {Y}: both need a dimension at least")
    x, y = _transposed(X.shape, trans_x), _transposed(Y.shape, trans_y)
    _check(X, Y, x[-1], y[-2] if len(y) > 1 else y[0])
    return broadcast(x[:-2], y[:-2]) + (x[-2:-1] if len(x) > 1 else ()) + (y[-1:] if len(y) > 1 else ())


def _matmul(X: Spec, Y: Spec, transpose_X: bool, transpose_Y: bool, declared: Mapping[str, Spec]) -> Spec:
    row, column = X.with_shape((1,) * (X.ndim == 1) + X.shape), Y.with_shape(Y.shape + (1,) * (Y.ndim == 1))
    *batch, rows, columns = _shape(row, column, transpose_X, transpose_Y)
    out = declared.get("Out")
    if out is not None and len(out.shape) == len(batch) + 2:  # sizes were unknown when the program was built
        return X.with_shape((*batch, rows, columns))
    matrix_shape = [rows] * (X.ndim > 1 or rows != 1) + [columns] * (Y.ndim > 1 or columns != 1)
    return X.with_shape((*batch, *matrix_shape) or (1,))


def _matmul_v2(X: Spec, Y: Spec, trans_x: bool, trans_y: bool, declared: Mapping[str, Spec]) -> Spec:
    shape = _shape(X, Y, trans_x, trans_y)
    out = declared.get("Out")
    return X.with_shape((1,) if shape == () and out is not None and out.shape == (1,) else shape)


# ----------------------------------------------------------------------------------------------------------------- rules
@define("mul(X, Y) -> Out", infer=_mul, x_num_col_dims=1, y_num_col_dims=1)
def mul(f: Any, X: Any, Y: Any, dOut: Any, x_num_col_dims: int, y_num_col_dims: int) -> Any:
    """The matrix product of X and Y, each flattened to a matrix: the first `x_num_col_dims` dimensions of X are its rows,
    the first `y_num_col_dims` of Y are its rows. Shape: X's rows, then Y's columns."""

    def transpose(value: Any, rows: int) -> Any:
        axes = range(value.ndim)
        return f.transpose2(value, axis=[*axes[rows:], *axes[:rows]])

    def by_x() -> Any:
        columns = Y.ndim - y_num_col_dims
        return f.mul(dOut, transpose(Y, y_num_col_dims), x_num_col_dims=x_num_col_dims, y_num_col_dims=columns)

    def by_y() -> Any:
        columns = X.ndim - x_num_col_dims
        return f.mul(transpose(X, x_num_col_dims), dOut, x_num_col_dims=columns, y_num_col_dims=x_num_col_dims)

    if X.ndim - x_num_col_dims == 1 == y_num_col_dims:
        return {"X": by_x, "Y": by_y}
    # The column dimensions of X and the row dimensions of Y may differ; only their products are equal.
    return {"X": lambda: f.reshape_like(by_x(), X), "Y": lambda: f.reshape_like(by_y(), Y)}


def _products(f: Any, X: Any, Y: Any, dOut: Any, trans_x: bool, trans_y: bool) -> Any:
    """The gradients of a product of matrices or of stacks of matrices."""

    def times(left: Any, right: Any, trans_left: bool, trans_right: bool) -> Any:
        return f.matmul_v2(left, right, trans_x=trans_left, trans_y=trans_right)

    def row(value: Any) -> Any:
        return f.unsqueeze2(value, axes=[0])

    def column(value: Any) -> Any:
        return f.unsqueeze2(value, axes=[value.ndim])

    # A vector is a matrix of one row on the left, of one column on the right; the result may lack that dimension.
    left, right, grad = X, Y, dOut
    if X.ndim == 1 and Y.ndim == 1:
        if dOut.ndim == 2:  # every product of two elements
            return {"X": lambda: times(dOut, Y, False, False), "Y": lambda: times(dOut, X, True, False)}
        return {"X": lambda: f.sum_to(f.elementwise_mul(dOut, Y), X), "Y": lambda: f.sum_to(f.elementwise_mul(dOut, X), Y)}
    rank = max(X.ndim, Y.ndim)
    if X.ndim == 1:
        left = row(X)
        grad = dOut if dOut.ndim == rank else f.unsqueeze2(dOut, axes=[dOut.ndim - 1])
    if Y.ndim == 1:
        right = column(Y)
        grad = dOut if dOut.ndim == rank else column(dOut)

    def shaped(gradient: Any, matrix: Any, value: Any) -> Any:
        if gradient.ndim > 2:
            gradient = f.sum_to(gradient, matrix)
        return f.reshape_like(gradient, value) if value.ndim == 1 else gradient

    def by_x() -> Any:
        return shaped(times(right, grad, trans_y, True) if trans_x else times(grad, right, False, not trans_y), left, X)

    def by_y() -> Any:
        return shaped(times(grad, left, True, trans_x) if trans_y else times(left, grad, not trans_x, False), right, Y)

    return {"X": by_x, "Y": by_y}


def gradients_of_product(f: Any, X: Any, Y: Any, dOut: Any) -> Any:
    """The gradients of the matrix product of X and Y, by "X" and "Y", as functions that compute them."""
    return _products(f, X, Y, dOut, False, False)


@define("matmul_v2(X, Y) -> Out", infer=_matmul_v2, trans_x=False, trans_y=False)
def matmul_v2(f: Any, X: Any, Y: Any, dOut: Any, trans_x: bool, trans_y: bool) -> Any:
    """The product of the matrices in the last two dimensions of X and Y, transposed with `trans_x` and `trans_y`.

    Leading dimensions broadcast. A vector counts as one row on the left, as one column on the right; it is not transposed, and
    the result lacks that dimension.
    """
    return _products(f, X, Y, dOut, trans_x and X.ndim > 1, trans_y and Y.ndim > 1)


@define(
    "matmul(X, Y) -> Out",
    infer=_matmul,
    transpose_X=False,
    transpose_Y=False,
    alpha=1.0,
    Scale_x=1.0,
    Scale_y=1.0,
    force_fp32_output=False,
    head_number=1,
)
def matmul(f: Any, X: Any, Y: Any, dOut: Any, transpose_X: bool, transpose_Y: bool, alpha: float) -> Any:
    """`alpha` times the product of X and Y as in `matmul_v2`, but vectors can be transposed, too.

    Two transposed vectors give the matrix of products of their elements, without dimensions of size 1; a number has shape
    ``[1]``. A size that is unknown when the program is built is assumed not to be 1.
    """
    return _products(f, X, Y, dOut if alpha == 1.0 else dOut * alpha, transpose_X, transpose_Y)


# --------------------------------------------------------------------------------------------- products of fixed ranks
def _check_rank(**ranks: tuple[Spec, int]) -> None:
    for name, (spec, rank) in ranks.items():
        if spec.ndim != rank:
            raise InferenceError(f"{name} is {spec}; it should have {rank} dimension{'s' * (rank > 1)}")


def _bmm(X: Spec, Y: Spec) -> Spec:
    _check_rank(X=(X, 3), Y=(Y, 3))
    _check(X, Y, X.shape[2], Y.shape[1])
    if not fits(X.shape[0], Y.shape[0]):
        raise InferenceError(f"X is {X} and Y is {Y}: they should hold the same number of matrices")
    return X.with_shape((max(X.shape[0], Y.shape[0]), X.shape[1], Y.shape[2]))


@define("bmm(X, Y) -> Out", infer=_bmm, composition=means(lambda f, X, Y: f.matmul_v2(X, Y)))
def bmm(f: Any, X: Any, Y: Any, dOut: Any) -> Any:
    """The products of the matrices of X and Y, both of shape [batch, rows, columns]."""
    return _products(f, X, Y, dOut, False, False)


def _mv(X: Spec, Vec: Spec) -> Spec:
    _check_rank(X=(X, 2), Vec=(Vec, 1))
    _check(X, Vec, X.shape[1], Vec.shape[0])
    return X.with_shape(X.shape[:1])


@define("mv(X, Vec) -> Out", infer=_mv, composition=means(lambda f, X, Vec: f.matmul_v2(X, Vec)))
def mv(f: Any, X: Any, Vec: Any, dOut: Any) -> Any:
    """The product of the matrix X and the vector Vec."""
    gradients = _products(f, X, Vec, dOut, False, False)
    return {"X": gradients["X"], "Vec": gradients["Y"]}


def _addmm(Input: Spec, X: Spec, Y: Spec) -> Spec:
    _check_rank(X=(X, 2), Y=(Y, 2))
    _check(X, Y, X.shape[1], Y.shape[0])
    shape = (X.shape[0], Y.shape[1])
    result = broadcast(Input.shape, shape)
    if Input.dtype is not X.dtype or len(result) != 2 or any(a != b != -1 for a, b in zip(result, shape, strict=True)):
        raise InferenceError(f"Input is {Input}; it should broadcast to {X.with_shape(shape)}, the product of X and Y")
    return X.with_shape(shape)


@define(
    "addmm(Input: float, X: float, Y: float) -> Out",
    infer=_addmm,
    Beta=1.0,
    Alpha=1.0,
    composition=means(lambda f, Input, X, Y, Beta, Alpha: f.elementwise_add(f.matmul_v2(X, Y) * Alpha, Input * Beta)),
)
def addmm(f: Any, Input: ShapeOnly, X: Any, Y: Any, dOut: Any, Beta: float, Alpha: float) -> Any:
    """``Beta * Input + Alpha * X @ Y`` of matrices; Input broadcasts."""
    return {"Input": lambda: f.sum_to(dOut * Beta, Input), **_products(f, X, Y, dOut * Alpha, False, False)}


def _dot(X: Spec, Y: Spec, declared: Mapping[str, Spec]) -> Spec:
    if X.ndim != Y.ndim or X.ndim not in (1, 2):
        raise InferenceError(f"X is {X} and Y is {Y}: both should be vectors, or both matrices")
    _check(X, Y, X.shape[-1], Y.shape[-1])
    return X.with_shape(broadcast(X.shape[:-1], Y.shape[:-1]) or scalar_shape(declared))


@define("dot(X: int|float, Y: int|float) -> Out", infer=_dot, meaning=means(lambda f, X, Y: f.reduce_sum(X * Y, dim=[-1])))
def dot(f: Any, X: Any, Y: Any, dOut: Any) -> Any:
    """The inner product of the vectors X and Y, or of each row of the matrix X and the same row of Y."""
    factor = f.unsqueeze2(dOut, axes=[1]) if X.ndim == 2 else dOut
    return {"X": lambda: f.sum_to(factor * Y, X), "Y": lambda: f.sum_to(factor * X, Y)}


def cross_axis(shape: Shape, dim: int) -> int:
    """The axis of the vectors: `dim`, or for 9 the first that may have a size of 3."""
    if dim != 9:
        return normalize_axis(dim, len(shape))
    axes = [axis for wanted in (3, -1) for axis, size in enumerate(shape) if size == wanted]
    if not axes:
        raise InferenceError(f"shape {list(shape)} has no size of 3")
    return axes[0]


def _cross(X: Spec, Y: Spec, dim: int) -> Spec:
    if (
        X.ndim != Y.ndim
        or X.dtype is not Y.dtype
        or any(a != b and -1 not in (a, b) for a, b in zip(X.shape, Y.shape, strict=True))
    ):
        raise InferenceError(f"X is {X} and Y is {Y}: they should be alike")
    merged = X.with_shape(tuple(max(pair) for pair in zip(X.shape, Y.shape, strict=True)))
    axis = cross_axis(merged.shape, dim)
    if merged.shape[axis] not in (3, -1):
        raise InferenceError(f"X is {X}; its axis {axis}, that of the vectors, should have a size of 3")
    return merged


def _cross_products(f: Any, X: Any, Y: Any, dim: int) -> Any:
    axis = cross_axis(X.shape, dim)
    x, y = (f.unstack(value, axis=axis, num=3) for value in (X, Y))
    parts = [x[(i + 1) % 3] * y[(i + 2) % 3] - x[(i + 2) % 3] * y[(i + 1) % 3] for i in range(3)]
    return f.stack(parts, axis=axis)


@define("cross(X: int|float, Y: int|float) -> Out", infer=_cross, dim=9, meaning=means(_cross_products))
def cross(f: Any, X: Any, Y: Any, dOut: Any, dim: int) -> Any:
    """The cross products of the vectors of three along axis `dim`; 9 stands for the first axis of size 3."""
    return {"X": lambda: f.cross(Y, dOut, dim=dim), "Y": lambda: f.cross(dOut, X, dim=dim)}


def _kron(X: Spec, Y: Spec) -> Spec:
    check_types_agree({"X": X, "Y": Y})
    ndim = max(X.ndim, Y.ndim)
    pairs = zip(aligned(X.shape, ndim, -1), aligned(Y.shape, ndim, -1), strict=True)
    return X.with_shape(tuple(-1 if -1 in pair else prod(pair) for pair in pairs))


def _by_second(f: Any, X: Any, Y: Any, dOut: Any) -> Any:
    """The gradient of Y for the Kronecker product of X and Y."""
    return f.untile(dOut * f.kron(X, f.fill_any_like(Y, value=1.0)), Y)


def _kronecker(f: Any, X: Any, Y: Any) -> Any:
    ndim = max(X.ndim, Y.ndim)
    blocks, block = aligned(X.shape, ndim, -1), aligned(Y.shape, ndim, -1)
    x = f.reshape2(X, shape=[size for extent in blocks for size in (extent, 1)])
    y = f.reshape2(Y, shape=[size for extent in block for size in (1, extent)])
    return f.reshape2(x * y, shape=[a * b for a, b in zip(blocks, block, strict=True)])


@define("kron(X, Y) -> Out", infer=_kron, meaning=means(_kronecker))
def kron(f: Any, X: Any, Y: Any, dOut: Any) -> Any:
    """The Kronecker product: Y, times each element of X, in its place. The one with fewer dimensions gets ones in front."""
    return {"X": lambda: f.unkron(dOut, Y, X), "Y": lambda: _by_second(f, X, Y, dOut)}


def _transposed_kronecker(f: Any, X: Any, Y: Any, Like: Any) -> Any:
    blocks, block = aligned(Like.shape, X.ndim, -1), aligned(Y.shape, X.ndim, -1)
    parts = f.reshape2(X, shape=[size for pair in zip(blocks, block, strict=True) for size in pair])
    y = f.reshape2(Y, shape=[size for extent in block for size in (1, extent)])
    return f.reshape_like(f.reduce_sum(parts * y, dim=list(range(1, 2 * X.ndim, 2))), Like)


@define(
    "unkron(X, Y, Like) -> Out",
    **{**transpose_of("kron"), "wrt": ("X", "Y")},
    meaning=means(_transposed_kronecker),
)
def unkron(f: Any, X: Any, Y: Any, dOut: Any) -> Any:
    """For each element of Like, the sum of Y times that part of X which is Y's in ``kron(Like, Y)``: transposes `kron`."""
    return {"X": lambda: f.kron(dOut, Y), "Y": lambda: _by_second(f, dOut, Y, X)}


def _bilinear(X: Spec, Y: Spec, Weight: Spec, Bias: Spec | None) -> Spec:
    _check_rank(X=(X, 2), Y=(Y, 2), Weight=(Weight, 3))
    _check(X, Weight, X.shape[1], Weight.shape[1])
    _check(Y, Weight, Y.shape[1], Weight.shape[2])
    result = X.with_shape((X.shape[0] if X.shape[0] >= 0 else Y.shape[0], Weight.shape[0]))
    if Bias is not None and (Bias.ndim != 2 or not all(map(fits, Bias.shape, (1, Weight.shape[0])))):
        raise InferenceError(f"Bias is {Bias}; it should have shape [1, {Weight.shape[0]}]")
    return result


def _bilinear_products(f: Any, X: Any, Y: Any, Weight: Any, Bias: Any) -> Any:
    product = f.einsum([X, Weight, Y], equation="bm,smn,bn->bs")
    return product if Bias is None else product + Bias


@define(
    "bilinear_tensor_product(X: int|float[N, A], Y: int|float[N, B], Weight: int|float, Bias?) -> Out",
    infer=_bilinear,
    meaning=means(_bilinear_products),
)
def bilinear_tensor_product(f: Any, X: Any, Y: Any, Weight: Any, dOut: Any) -> Any:
    """``Out[b, i] = X[b] @ Weight[i] @ Y[b] + Bias[0, i]``, with X [batch, m], Y [batch, n] and Weight [size, m, n]."""
    return {
        "X": lambda: f.einsum_like([dOut, Weight, Y], X, equation="bs,smn,bn->bm"),
        "Y": lambda: f.einsum_like([dOut, Weight, X], Y, equation="bs,smn,bm->bn"),
        "Weight": lambda: f.einsum_like([dOut, X, Y], Weight, equation="bs,bm,bn->smn"),
        "Bias": lambda: f.reduce_sum(dOut, dim=[0], keep_dim=True),
    }


def _conv_shift(X: Spec, Y: Spec) -> Spec:
    size = Y.shape[1]
    if size == -1 or size % 2 == 0 or -1 < X.shape[1] < size:
        raise InferenceError(f"the width of Y {Y} should be odd, known, and not above that of X {X}")
    return X


def _shifts(Y: Any) -> range:
    return range(-(Y.shape[1] // 2), Y.shape[1] // 2 + 1)


def _weighted_shifts(f: Any, X: Any, Y: Any, sign: int) -> Any:
    """The sum of X, each row shifted by each place of Y and times Y there."""
    columns = f.split(Y, num=Y.shape[1], axis=1)
    return f.sum([f.roll(X, shifts=[sign * s], axis=[1]) * column for s, column in zip(_shifts(Y), columns, strict=True)])


@define(
    "conv_shift(X: float[B, M], Y: float[B, N]) -> Out",
    infer=_conv_shift,
    composition=means(lambda f, X, Y: _weighted_shifts(f, X, Y, -1)),
)
def conv_shift(f: Any, X: Any, Y: Any, dOut: Any) -> Any:
    """Circular convolution: ``Out[b, i] = sum over j of X[b, i + j] * Y[b, N // 2 + j]``, from ``-(N // 2)`` to ``N // 2``, with
    indices modulo M."""

    def by_y(shift: int) -> Any:
        return f.reduce_sum(dOut * f.roll(X, shifts=[-shift], axis=[1]), dim=[1], keep_dim=True)

    return {
        "X": lambda: _weighted_shifts(f, dOut, Y, 1),
        "Y": lambda: f.concat([by_y(shift) for shift in _shifts(Y)], axis=1),
    }
