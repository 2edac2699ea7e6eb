"""Linear algebra: the extension ``linalg`` of the array API standard. Matrices stand in the last two dimensions.

>>> import fluid.numpy as xp
>>> xp.linalg.solve(xp.asarray([[2.0, 0.0], [0.0, 4.0]]), xp.asarray([2.0, 2.0]))
NDArray([1. , 0.5], dtype=float32)
"""

from __future__ import annotations

from math import inf
from typing import Any, NamedTuple

from ..errors import ProgramError
from ..ops.formulas import root
from ..ops.shapes import broadcast
from ..values.types import DTypeLike, VarType, is_complex
from .creation import eye
from .dtypes import finfo
from .elementwise import abs as absolute
from .elementwise import log, multiply, not_equal, pow, square
from .elementwise import sign as direction
from .manipulation import broadcast_to
from .operands import axis_of, cast, expanded, operand, ops_of, pair, reshaped
from .products import matmul, matrix_transpose, tensordot, vecdot
from .statistics import max as largest
from .statistics import min as smallest
from .statistics import prod, sum

__all__ = [
    "cholesky", "cross", "det", "diagonal", "eigh", "eigvalsh", "inv", "matmul", "matrix_norm", "matrix_power", "matrix_rank",
    "matrix_transpose", "outer", "pinv", "qr", "slogdet", "solve", "svd", "svdvals", "tensordot", "trace", "vecdot",
    "vector_norm",
]  # fmt: skip


def __dir__() -> list[str]:
    return __all__


def _matrices(x: Any, square: bool = False) -> Any:
    """Matrices of floats."""
    x = operand(x)
    if x.ndim < 2 or (square and x.shape[-1] != x.shape[-2]):
        raise ProgramError(
            f"x of shape {tuple(x.shape)} holds no {'square ' if square else ''}matrices in its last two dimensions"
        )
    return cast(x, VarType.FP32) if x.dtype not in _FLOATS else x


_FLOATS = (VarType.FP32, VarType.FP64, VarType.COMPLEX64, VarType.COMPLEX128)


# --------------------------------------------------------------------------------------------------------------- decompositions
class EighResult(NamedTuple):
    """The result of `eigh`."""

    eigenvalues: Any
    eigenvectors: Any


class QRResult(NamedTuple):
    """The result of `qr`."""

    Q: Any
    R: Any


class SVDResult(NamedTuple):
    """The result of `svd`."""

    U: Any
    S: Any
    Vh: Any


class SlogdetResult(NamedTuple):
    """The result of `slogdet`."""

    sign: Any
    logabsdet: Any


def cholesky(x: Any, /, *, upper: bool = False) -> Any:
    """The triangles L of positive definite matrices ``L @ conj(L).mT``.

    Args:
        x: the matrices.
        upper: True for the upper triangles U of ``conj(U).mT @ U``.

    >>> import fluid.numpy as xp
    >>> xp.linalg.cholesky(xp.asarray([[4.0, 0.0], [0.0, 9.0]]))
    NDArray([[2., 0.],
             [0., 3.]], dtype=float32)
    """
    x = _matrices(x, square=True)
    return ops_of(x).cholesky(x, upper=upper)


def eigh(x: Any, /) -> EighResult:
    """The eigenvalues, smallest first, and eigenvectors of Hermitian or symmetric matrices; their lower triangles are read.

    Args:
        x: the matrices.

    >>> import fluid.numpy as xp
    >>> xp.linalg.eigh(xp.asarray([[2.0, 0.0], [0.0, 1.0]])).eigenvalues
    NDArray([1., 2.], dtype=float32)
    """
    x = _matrices(x, square=True)
    return EighResult(*ops_of(x).eigh(x, UPLO="L"))


def eigvalsh(x: Any, /) -> Any:
    """The eigenvalues of Hermitian or symmetric matrices, smallest first.

    Args:
        x: the matrices.

    >>> import fluid.numpy as xp
    >>> xp.linalg.eigvalsh(xp.asarray([[2.0, 0.0], [0.0, 1.0]]))
    NDArray([1., 2.], dtype=float32)
    """
    return eigh(x).eigenvalues


def qr(x: Any, /, *, mode: str = "reduced") -> QRResult:
    """Orthonormal columns Q and upper triangles R for which ``x = Q @ R``.

    Args:
        x: the matrices.
        mode: ``"reduced"`` or, for square matrices Q, ``"complete"``.

    >>> import fluid.numpy as xp
    >>> xp.linalg.qr(xp.ones((3, 2))).R.shape
    (2, 2)
    """
    x = _matrices(x)
    if mode not in ("reduced", "complete"):
        raise ProgramError(f"qr: mode should be 'reduced' or 'complete', not {mode!r}")
    return QRResult(*ops_of(x).qr(x, mode=mode))


def svd(x: Any, /, *, full_matrices: bool = True) -> SVDResult:
    """The singular values S, largest first, and matrices for which ``x = U @ diag(S) @ Vh``.

    Args:
        x: the matrices.
        full_matrices: whether U and Vh are square; then they have no gradient.

    >>> import fluid.numpy as xp
    >>> xp.linalg.svd(xp.asarray([[3.0, 0.0], [0.0, 4.0]])).S
    NDArray([4., 3.], dtype=float32)
    """
    x = _matrices(x)
    return SVDResult(*ops_of(x).svd(x, full_matrices=full_matrices))


def svdvals(x: Any, /) -> Any:
    """The singular values, largest first.

    Args:
        x: the matrices.

    >>> import fluid.numpy as xp
    >>> xp.linalg.svdvals(xp.asarray([[3.0, 0.0], [0.0, 4.0]]))
    NDArray([4., 3.], dtype=float32)
    """
    return svd(x, full_matrices=False).S


# ------------------------------------------------------------------------------------------------------- inverses, determinants
def det(x: Any, /) -> Any:
    """The determinants of square matrices.

    Args:
        x: the matrices.

    >>> import fluid.numpy as xp
    >>> xp.linalg.det(xp.asarray([[2.0, 0.0], [0.0, 4.0]]))
    NDArray(8., dtype=float32)
    """
    x = _matrices(x, square=True)
    return reshaped(ops_of(x).determinant(x), x.shape[:-2])


def slogdet(x: Any, /) -> SlogdetResult:
    """The signs of determinants, and the logarithms of their absolute values.

    Args:
        x: the matrices.

    >>> import fluid.numpy as xp
    >>> sign, logarithm = xp.linalg.slogdet(xp.asarray([[1.0, 0.0], [0.0, -1.0]]))
    >>> float(sign), float(logarithm)
    (-1.0, 0.0)
    """
    x = _matrices(x, square=True)
    f = ops_of(x)
    if is_complex(x.dtype):
        values = f.eigvals(x)
        return SlogdetResult(prod(direction(values), axis=-1), sum(log(absolute(values)), axis=-1))
    sign, logarithm = f.unstack(f.slogdeterminant(x), axis=0, num=2)
    return SlogdetResult(sign, logarithm)


def inv(x: Any, /) -> Any:
    """The inverses of square matrices.

    Args:
        x: the matrices.

    >>> import fluid.numpy as xp
    >>> xp.linalg.inv(xp.asarray([[2.0, 0.0], [0.0, 4.0]]))
    NDArray([[0.5 , 0.  ],
             [0.  , 0.25]], dtype=float32)
    """
    x = _matrices(x, square=True)
    return ops_of(x).inverse(x)


def solve(x1: Any, x2: Any, /) -> Any:
    """The solutions z of ``x1 @ z = x2``.

    Args:
        x1: square matrices.
        x2: columns, [..., M, K], or one vector, [M].

    >>> import fluid.numpy as xp
    >>> xp.linalg.solve(xp.asarray([[2.0, 0.0], [0.0, 4.0]]), xp.asarray([2.0, 2.0]))
    NDArray([1. , 0.5], dtype=float32)
    """
    f, x1, x2 = pair(_matrices(x1, square=True), x2)
    vector = x2.ndim == 1
    columns = reshaped(x2, (*x2.shape, 1)) if vector else x2
    batch = broadcast(tuple(x1.shape[:-2]), tuple(columns.shape[:-2]))
    solution = f.solve(expanded(x1, (*batch, *x1.shape[-2:])), expanded(columns, (*batch, *columns.shape[-2:])))
    return reshaped(solution, solution.shape[:-1]) if vector else solution


def _tolerance(values: Any, x: Any, rtol: Any) -> Any:
    """The size of singular values that count as zero: by default the largest one by the larger side of the matrix and epsilon."""
    first = largest(values, axis=-1, keepdims=True)
    if rtol is None:
        rtol = max(x.shape[-2:]) * finfo(x.dtype).eps
    if hasattr(rtol, "shape"):
        rtol = reshaped(cast(operand(rtol), values.dtype), (*rtol.shape, 1))
    return multiply(first, rtol)


def matrix_rank(x: Any, /, *, rtol: Any = None) -> Any:
    """The ranks of matrices: how many of their singular values are not zero.

    Args:
        x: the matrices.
        rtol: what counts as zero, relative to the largest; by default the larger side by the type's epsilon.

    >>> import fluid.numpy as xp
    >>> xp.linalg.matrix_rank(xp.ones((2, 3)))
    NDArray(1, dtype=int64)
    """
    x = _matrices(x)
    f, values = ops_of(x), svdvals(x)
    if not values.shape[-1]:
        return sum(cast(values, VarType.INT64), axis=-1)
    return sum(cast(f.greater_than(values, _tolerance(values, x, rtol)), VarType.INT64), axis=-1)


def pinv(x: Any, /, *, rtol: Any = None) -> Any:
    """The pseudo-inverses of matrices.

    Args:
        x: the matrices.
        rtol: which singular values count as zero, relative to the largest; by default the larger side by the type's epsilon.

    >>> import fluid.numpy as xp
    >>> xp.linalg.pinv(xp.asarray([[2.0], [0.0]]))
    NDArray([[0.5, 0. ]], dtype=float32)
    """
    x = _matrices(x)
    f = ops_of(x)
    U, S, Vh = svd(x, full_matrices=False)
    if not S.shape[-1]:
        return ops_of(x).conj(matrix_transpose(x)) if is_complex(x.dtype) else matrix_transpose(x)
    counts = f.greater_than(S, _tolerance(S, x, rtol))
    one = f.fill_any_like(S, value=1.0, dtype=-1)
    inverse = multiply(f.reciprocal(f.where(counts, S, one)), cast(counts, S.dtype))
    rows = cast(reshaped(inverse, (*S.shape[:-1], 1, S.shape[-1])), x.dtype)
    if is_complex(x.dtype):
        U, Vh = f.conj(U), f.conj(Vh)
    return matmul(multiply(matrix_transpose(Vh), rows), matrix_transpose(U))


def matrix_power(x: Any, n: int, /) -> Any:
    """The product of n equal matrices; of their inverses, for a negative n.

    Args:
        x: square matrices.
        n: how many.

    >>> import fluid.numpy as xp
    >>> xp.linalg.matrix_power(xp.asarray([[2.0, 0.0], [0.0, 1.0]]), 3)
    NDArray([[8., 0.],
             [0., 1.]], dtype=float32)
    """
    x = _matrices(x, square=True)
    if not n:
        unit = cast(eye(x.shape[-1], dtype=x.dtype), x.dtype)
        return broadcast_to(unit, tuple(x.shape))
    return ops_of(x).matrix_power(x, n=n)


# ------------------------------------------------------------------------------------------------------------ products, diagonals
def outer(x1: Any, x2: Any, /) -> Any:
    """The product of each element of a vector with each of another.

    Args:
        x1, x2: vectors.

    >>> import fluid.numpy as xp
    >>> xp.linalg.outer(xp.asarray([1, 2]), xp.asarray([3, 4]))
    NDArray([[3, 4],
             [6, 8]], dtype=int64)
    """
    f, x1, x2 = pair(x1, x2)
    if x1.ndim != 1 or x2.ndim != 1:
        raise ProgramError(f"outer: x1 and x2 should be vectors, not of {x1.ndim} and {x2.ndim} dimensions")
    return f.elementwise_mul(reshaped(x1, (*x1.shape, 1)), reshaped(x2, (1, *x2.shape)))


def cross(x1: Any, x2: Any, /, *, axis: int = -1) -> Any:
    """The cross products of vectors of three elements.

    Args:
        x1, x2: numbers, which broadcast.
        axis: the axis of the vectors.

    >>> import fluid.numpy as xp
    >>> xp.linalg.cross(xp.asarray([1, 0, 0]), xp.asarray([0, 1, 0]))
    NDArray([0, 0, 1], dtype=int64)
    """
    f, x1, x2 = pair(x1, x2)
    axis = axis_of(axis, min(x1.ndim, x2.ndim)) - min(x1.ndim, x2.ndim)
    if x1.shape[axis] != 3 or x2.shape[axis] != 3:
        raise ProgramError(f"cross: axis {axis} of {tuple(x1.shape)} and {tuple(x2.shape)} should have the size 3")
    shape = broadcast(tuple(x1.shape), tuple(x2.shape))
    return f.cross(expanded(x1, shape), expanded(x2, shape), dim=len(shape) + axis)


def diagonal(x: Any, /, *, offset: int = 0) -> Any:
    """The diagonals of matrices.

    Args:
        x: the matrices.
        offset: how far above the main diagonal.

    >>> import fluid.numpy as xp
    >>> xp.linalg.diagonal(xp.asarray([[1, 2], [3, 4]]))
    NDArray([1, 4], dtype=int64)
    """
    x = operand(x)
    if x.ndim < 2:
        raise ProgramError(f"diagonal: an array of {x.ndim} dimensions holds no matrices")
    return ops_of(x).diagonal(x, offset=offset, axis1=x.ndim - 2, axis2=x.ndim - 1)


def trace(x: Any, /, *, offset: int = 0, dtype: DTypeLike | None = None) -> Any:
    """The sums of the diagonals of matrices.

    Args:
        x: the matrices.
        offset: how far above the main diagonal.
        dtype: the element type of the sums; as in `fluid.numpy.sum`.

    >>> import fluid.numpy as xp
    >>> xp.linalg.trace(xp.asarray([[1, 2], [3, 4]]))
    NDArray(5, dtype=int64)
    """
    return sum(diagonal(x, offset=offset), axis=-1, dtype=dtype)


# ------------------------------------------------------------------------------------------------------------------------ norms
def _root(squares: Any) -> Any:
    return root(ops_of(squares), squares)


def _largest(sizes: Any, axis: int | tuple[int, ...] | None = -1, keepdims: bool = False) -> Any:
    """The largest of absolute values; 0 of none."""
    return (sum if 0 in sizes.shape else largest)(sizes, axis=axis, keepdims=keepdims)


def matrix_norm(x: Any, /, *, keepdims: bool = False, ord: Any = "fro") -> Any:
    """The norms of matrices.

    Args:
        x: the matrices.
        keepdims: whether the last two dimensions stay, with size 1.
        ord: ``"fro"`` for the root of the sum of squares, ``"nuc"`` for the sum of the singular values, 2 and -2 for the
            largest and smallest of these, 1 and -1 of the sums of columns, infinity and its negative of the sums of rows.

    >>> import fluid.numpy as xp
    >>> xp.linalg.matrix_norm(xp.asarray([[3.0, 0.0], [0.0, 4.0]]))
    NDArray(5., dtype=float32)
    """
    x = _matrices(x)
    if ord is None or ord == "fro":
        result = _root(sum(square(absolute(x)), axis=(-2, -1)))
    elif ord in ("nuc", 2, -2):
        values = svdvals(x)
        result = sum(values, axis=-1) if ord == "nuc" else _largest(values) if ord == 2 else smallest(values, axis=-1)
    elif ord in (1, -1, inf, -inf):
        sums = sum(absolute(x), axis=-2 if ord in (1, -1) else -1)
        result = _largest(sums) if ord > 0 else smallest(sums, axis=-1)
    else:
        raise ProgramError(f"matrix_norm: ord should be 'fro', 'nuc', 1, -1, 2, -2, inf or -inf, not {ord!r}")
    return reshaped(result, (*result.shape, 1, 1)) if keepdims else result


def vector_norm(x: Any, /, *, axis: int | tuple[int, ...] | None = None, keepdims: bool = False, ord: float = 2) -> Any:
    """The norms of vectors. With an `ord` of 1 or more the gradient at a zero vector is 0, as in torch; jax has NaN there.

    Args:
        x: floats.
        axis: one axis or several, whose elements form the vectors; all by default.
        keepdims: whether the axes stay, with size 1.
        ord: the power p of the sum of powers, whose root is the norm; 0 for how many elements are not zero, infinity and its
            negative for the largest and smallest absolute value.

    >>> import fluid.numpy as xp
    >>> xp.linalg.vector_norm(xp.asarray([3.0, 4.0]))
    NDArray(5., dtype=float32)
    """
    x = operand(x)
    size = absolute(x if x.dtype in _FLOATS else cast(x, VarType.FP32))
    if ord == inf:
        return _largest(size, axis, keepdims)
    if ord == -inf:
        return smallest(size, axis=axis, keepdims=keepdims)
    if ord == 0:
        return sum(cast(not_equal(size, 0), size.dtype), axis=axis, keepdims=keepdims)
    if ord == 1:
        return sum(size, axis=axis, keepdims=keepdims)
    if ord == 2:
        return _root(sum(square(size), axis=axis, keepdims=keepdims))
    powers = sum(pow(size, float(ord)), axis=axis, keepdims=keepdims)
    return root(ops_of(powers), powers, 1.0 / ord) if ord > 1 else pow(powers, 1.0 / ord)
