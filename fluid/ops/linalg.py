"""Linear algebra: solving, determinants, and decompositions of matrices, which lie in the last two dimensions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from itertools import pairwise
from typing import Any

from ..errors import BackwardError, InferenceError
from ..opdef.composition import means
from ..opdef.registry import ANALYTIC, EXPLICIT, NOT_DIFFERENTIABLE, ZERO_GRADIENT, ShapeOnly, choice, define, like, required
from ..values.spec import Spec
from ..values.types import VarType, complex_of, is_complex, real_of
from .complex import real_part
from .matmul import gradients_of_product
from .shapes import broadcast, check_types_agree, fits, since_2

Shape = tuple[int, ...]


# -------------------------------------------------------------------------------------------------------------- formulas
def _turned(f: Any, X: Any) -> Any:
    """The transposed matrices."""
    axes = list(range(X.ndim))
    return f.transpose2(X, axis=[*axes[:-2], axes[-1], axes[-2]])


def _adjoint(f: Any, X: Any) -> Any:
    """The transposed matrices, conjugated."""
    return f.conj(_turned(f, X)) if is_complex(X.dtype) else _turned(f, X)


def _times(f: Any, *factors: Any) -> Any:
    """The product of matrices."""
    product = factors[0]
    for factor in factors[1:]:
        product = f.matmul_v2(product, factor)
    return product


def _on_diagonal(f: Any, values: Any, like: Any) -> Any:
    """Matrices shaped like `like` with these values on the diagonal."""
    return f.undiagonal(values, like, axis1=-2, axis2=-1)


def _diagonal(f: Any, X: Any) -> Any:
    return f.diagonal(X, axis1=-2, axis2=-1)


def _lower(f: Any, X: Any, diagonal: int = 0) -> Any:
    return f.tril_triu(X, diagonal=diagonal, lower=True)


def _upper(f: Any, X: Any) -> Any:
    return f.tril_triu(X, diagonal=0, lower=False)


def _differences(f: Any, values: Any) -> Any:
    """``values[j] - values[i]`` at row i and column j, with 1 on the diagonal."""
    rows, columns = f.unsqueeze2(values, axes=[values.ndim - 1]), f.unsqueeze2(values, axes=[values.ndim])
    apart = rows - columns
    return apart + _on_diagonal(f, f.fill_any_like(values, value=1.0), apart)


def _first_columns(f: Any, X: Any, count: int, after: bool = False) -> Any:
    """The first `count` columns of matrices; the columns after these if `after` is set."""
    start, end = (count, 2**31 - 1) if after else (0, count)
    return f.slice(X, axes=[X.ndim - 1], starts=[start], ends=[end])


def _first_rows(f: Any, X: Any, count: int, after: bool = False) -> Any:
    start, end = (count, 2**31 - 1) if after else (0, count)
    return f.slice(X, axes=[X.ndim - 2], starts=[start], ends=[end])


def _sizes(X: Any, op_type: str) -> tuple[int, int]:
    """Rows and columns, which a formula for matrices that are not square needs."""
    rows, columns = X.shape[-2:]
    if -1 in (rows, columns):
        raise BackwardError(f"{op_type}: the rows and columns of X {list(X.shape)} should be known for its gradient")
    return rows, columns


# ------------------------------------------------------------------------------------------------------------- inference
_SQUARE = "float[..., N, N]"


def _same_type(X: Spec, Y: Spec) -> None:
    check_types_agree({"X": X, "Y": Y})


def _of_matrix(X: Spec, declared: Mapping[str, Spec], slot: str = "Out") -> Spec:
    """One number for each matrix."""
    return X.with_shape(X.shape[:-2] or since_2(declared, slot))


# ------------------------------------------------------------------------------------------ inverses, determinants, powers
@define(f"inverse(Input: {_SQUARE}) -> Output", infer=like("Input"), complex_rule=ANALYTIC)
def inverse(f: Any, Output: Any, dOutput: Any) -> Any:
    """The inverses of square matrices."""
    turned = _turned(f, Output)
    return {"Input": -_times(f, turned, dOutput, turned)}


def _per_matrix(f: Any, value: Any, matrices: Any) -> Any:
    """A number for each matrix, shaped to be multiplied with it."""
    if matrices.ndim == 2:
        return f.reshape2(value, shape=[1, 1])
    return f.unsqueeze2(value, axes=[value.ndim, value.ndim + 1])


@define(
    f"determinant(Input: {_SQUARE}) -> Out",
    infer=lambda Input, declared: _of_matrix(Input, declared),
    complex_rule=ANALYTIC,
)
def determinant(f: Any, Input: Any, Out: Any, dOut: Any) -> Any:
    """The determinants of square matrices. The gradient needs their inverses."""
    return {"Input": _turned(f, f.inverse(Input)) * _per_matrix(f, dOut * Out, Input)}


def _slogdeterminant(Input: Spec) -> Spec:
    return Input.with_shape((2, *Input.shape[:-2]))


@define("slogdeterminant(Input: real[..., N, N]) -> Out", infer=_slogdeterminant)
def slogdeterminant(f: Any, Input: Any, Out: ShapeOnly, dOut: Any) -> Any:
    """The signs of the determinants of square matrices, and the logarithms of their absolute values: [2, ...]."""
    by_log = f.slice(dOut, axes=[0], starts=[1], ends=[2], decrease_axis=[0] if Input.ndim > 2 else [])
    return {"Input": _turned(f, f.inverse(Input)) * _per_matrix(f, by_log, Input)}


def _power_gradient(f: Any, turned: Any, dOut: Any, n: int) -> tuple[Any, Any]:
    """The sum of ``turned ** k @ dOut @ turned ** (n - 1 - k)`` for k below n, and ``turned ** n``."""
    if n == 1:
        return dOut, turned
    if n % 2:
        total, power = _power_gradient(f, turned, dOut, n - 1)
        return _times(f, turned, total) + _times(f, dOut, power), _times(f, turned, power)
    total, power = _power_gradient(f, turned, dOut, n // 2)
    return _times(f, power, total) + _times(f, total, power), _times(f, power, power)


@define(f"matrix_power(X: {_SQUARE}) -> Out", infer=like("X"), complex_rule=ANALYTIC, n=required("int"))
def matrix_power(f: Any, X: Any, Out: ShapeOnly, dOut: Any, n: int) -> Any:
    """Square matrices multiplied with themselves, ``X ** n``; below 0 their inverses."""
    if n == 0:
        return {"X": f.fill_zeros_like(dOut)}
    if n > 0:
        return {"X": _power_gradient(f, _turned(f, X), dOut, n)[0]}
    turned = _turned(f, f.inverse(X))
    return {"X": -_times(f, turned, _power_gradient(f, turned, dOut, -n)[0], turned)}


def _multi_dot(X: list[Spec]) -> Spec:
    if len(X) < 2 or any(spec.ndim != 2 for spec in X[1:-1]) or any(spec.ndim not in (1, 2) for spec in (X[0], X[-1])):
        raise InferenceError(
            f"multi_dot: X {', '.join(map(str, X))} should be two matrices at least; the outer ones may be vectors"
        )
    for left, right in pairwise(X):
        _same_type(left, right)
        if not fits(left.shape[-1], right.shape[0]):
            raise InferenceError(f"multi_dot: {left} and {right} in X: columns and rows should be as many")
    return X[0].with_shape(X[0].shape[:-1] + X[-1].shape[1:])


def _product_of_all(f: Any, X: Sequence[Any]) -> Any:
    """The product of matrices in the order with the fewest multiplications; unknown sizes count as 1."""
    ends = [X[0].shape[:-1] or (1,), *(matrix.shape[:1] for matrix in X[1:]), X[-1].shape[1:] or (1,)]
    sizes = [abs(size) for (size,) in ends]

    @cache
    def best(first: int, last: int) -> tuple[int, int]:
        """The multiplications for the factors `first` to `last`, and the last factor of the left part."""
        return (
            min(
                (best(first, cut)[0] + best(cut + 1, last)[0] + sizes[first] * sizes[cut + 1] * sizes[last + 1], cut)
                for cut in range(first, last)
            )
            if first < last
            else (0, first)
        )

    def product(first: int, last: int) -> Any:
        cut = best(first, last)[1]
        return X[first] if first == last else f.matmul_v2(product(first, cut), product(cut + 1, last))

    return product(0, len(X) - 1)


@define("multi_dot(X*: int|float) -> Out", infer=_multi_dot, complex_rule=ANALYTIC, composition=means(_product_of_all))
def multi_dot(f: Any, X: Any, dOut: Any) -> Any:
    """The product of matrices, in the order that is computed fastest; the first may be one row and the last one column, as
    vectors."""

    def gradients() -> list[Any]:
        grad, results, factors = dOut, [], list(X)
        while len(factors) > 1:
            right = f.multi_dot(factors[1:]) if len(factors) > 2 else factors[1]
            by = gradients_of_product(f, factors[0], right, grad)
            results.append(by["X"]())
            grad, factors = by["Y"](), factors[1:]
        return [*results, grad]

    return {"X": gradients}


# --------------------------------------------------------------------------------------------------------------- solving
def is_vector(X: Shape, Y: Shape) -> bool:
    """Whether the right side of ``X @ Out = Y`` is one column (for each matrix), without a dimension for columns."""
    return len(Y) == 1 or (len(Y) == len(X) - 1 and all(fits(a, b) for a, b in zip(X[:-1], Y, strict=True)))


def _solved(X: Spec, Y: Spec, rows: int) -> Spec:
    _same_type(X, Y)
    if Y.ndim < 2 or not fits(Y.shape[-2], rows):
        raise InferenceError(f"X is {X} and Y is {Y}: they should have as many rows")
    return X.with_shape((*broadcast(X.shape[:-2], Y.shape[:-2]), rows, Y.shape[-1]))


def _solve(X: Spec, Y: Spec) -> Spec:
    if not is_vector(X.shape, Y.shape):
        return _solved(X, Y, X.shape[-1])
    solution = _solved(X, Y.with_shape((*Y.shape, 1)), X.shape[-1])
    return solution.with_shape(solution.shape[:-1])


@define(f"solve(X: {_SQUARE}, Y: float) -> Out", infer=_solve, complex_rule=ANALYTIC)
def solve(f: Any, X: Any, Y: ShapeOnly, Out: Any, dOut: Any) -> Any:
    """The solutions of ``X @ Out = Y``. Y holds columns [..., N, K], or for each matrix one column, [..., N]."""
    vectors = is_vector(tuple(X.shape), tuple(Y.shape))  # type: ignore[attr-defined]

    def columns(value: Any) -> Any:
        return f.unsqueeze2(value, axes=[value.ndim]) if vectors else value

    by_y = f.solve(_turned(f, X), columns(dOut))
    shaped = f.squeeze2(by_y, axes=[by_y.ndim - 1]) if vectors else by_y
    return {
        "X": lambda: f.sum_to(-_times(f, by_y, _turned(f, columns(Out))), X),
        "Y": lambda: f.sum_to(shaped, Y),
    }


@define(
    f"triangular_solve(X: {_SQUARE}, Y: float) -> Out",
    infer=lambda X, Y: _solved(X, Y, X.shape[-1]),
    complex_rule=ANALYTIC,
    upper=True,
    transpose=False,
    unitriangular=False,
)
def triangular_solve(f: Any, X: Any, Y: ShapeOnly, Out: Any, dOut: Any, upper: bool, transpose: bool, unitriangular: bool) -> Any:
    """The solutions of ``X @ Out = Y``, or of ``X.T @ Out = Y`` with `transpose`.

    Of X only the triangle is read that `upper` says, without its diagonal, which counts as ones, if `unitriangular`."""
    by_y = f.triangular_solve(X, dOut, upper=upper, transpose=not transpose, unitriangular=unitriangular)

    def by_x() -> Any:
        product = _times(f, Out, _turned(f, by_y)) if transpose else _times(f, by_y, _turned(f, Out))
        shift = unitriangular * (1 if upper else -1)
        return f.sum_to(-f.tril_triu(product, diagonal=shift, lower=not upper), X)

    return {"X": by_x, "Y": lambda: f.sum_to(by_y, Y)}


def _solved_by_cholesky(f: Any, X: Any, Y: Any, upper: bool) -> Any:
    halfway = f.triangular_solve(Y, X, upper=upper, transpose=upper)
    return f.triangular_solve(Y, halfway, upper=upper, transpose=not upper)


@define(
    "cholesky_solve(X: real, Y: real[..., N, N]) -> Out",
    infer=lambda X, Y: _solved(Y, X, Y.shape[-1]),
    composition=means(_solved_by_cholesky),
    upper=False,
)
def cholesky_solve(f: Any, X: ShapeOnly, Y: Any, Out: Any, dOut: Any, upper: bool) -> Any:
    """The solutions of ``A @ Out = X`` for the matrices A whose `cholesky` decomposition is Y; one triangle of Y is read."""
    by_x = f.cholesky_solve(dOut, Y, upper=upper)

    def by_y() -> Any:
        product = _times(f, by_x, _turned(f, Out))
        both = product + _turned(f, product)
        gradient = _upper(f, _times(f, _upper(f, Y), both)) if upper else _lower(f, _times(f, both, _lower(f, Y)))
        return f.sum_to(-gradient, Y)

    return {"X": lambda: f.sum_to(by_x, X), "Y": by_y}


def _lstsq(X: Spec, Y: Spec, driver: str) -> dict[str, Spec]:
    _same_type(X, Y)
    rows, columns = X.shape[-2:]
    if X.ndim != Y.ndim or any(not fits(*pair) for pair in zip(X.shape[:-1], Y.shape[:-1], strict=True)):
        raise InferenceError(f"X is {X} and Y is {Y}: they should have as many rows, and the same dimensions before")
    least = -1 if -1 in (rows, columns) else min(rows, columns)
    batch = X.shape[:-2]
    singular = driver in ("gelsd", "gelss")
    return {
        "Solution": X.with_shape((*batch, columns, Y.shape[-1])),
        "Residuals": X.with_shape((-1,)) if X.ndim == 2 else X.with_shape((-1,) * (X.ndim - 1)),
        "Rank": Spec(batch, VarType.INT32),
        "SingularValues": X.with_shape((*batch, least) if singular else (0,)),
    }


@define(
    "lstsq(X: real[..., M, N], Y: real[..., M, K]) -> Solution, Residuals, Rank, SingularValues",
    infer=_lstsq,
    grad=NOT_DIFFERENTIABLE,
    rcond=0.0,
    driver=choice("gels", "gelsy", "gelsd", "gelss"),
)
def lstsq() -> None:
    """The Out for which ``X @ Out`` comes nearest to Y, the squared distances, and rank and singular values of X.

    There are distances where X has more rows than columns and is of full rank, and singular values under "gelsd" and
    "gelss". Singular values up to `rcond` times the largest count as 0.
    """


def _matrix_rank(X: Spec, TolTensor: Spec | None, hermitian: bool, declared: Mapping[str, Spec]) -> Spec:
    if hermitian and not fits(*X.shape[-2:]):
        raise InferenceError(f"matrix_rank: X is {X}; hermitian matrices should be square")
    shape = X.shape[:-2]
    if TolTensor is not None:
        shape = broadcast(shape, TolTensor.shape)
    return Spec(shape or since_2(declared), VarType.INT32)


@define(
    "matrix_rank(X: float[..., M, N], TolTensor?: real) -> Out",
    infer=_matrix_rank,
    grad=ZERO_GRADIENT,
    tol=0.0,
    hermitian=False,
    use_default_tol=True,
)
def matrix_rank() -> None:
    """How many singular values of each matrix are above `tol` or those in TolTensor; by default, above the largest one times the
    larger size times the spacing of floats at 1. For `hermitian` matrices, these are the absolute eigenvalues."""


# --------------------------------------------------------------------------------------------------------- decompositions
@define(f"cholesky(X: {_SQUARE}) -> Out", infer=like("X"), complex_rule=EXPLICIT, upper=False)
def cholesky(f: Any, Out: Any, dOut: Any, upper: bool) -> Any:
    """The triangular matrix with ``Out @ Out.T = X``, or ``Out.T @ Out = X`` with `upper`, conjugated where complex.

    X is symmetric (Hermitian) and positive definite: one triangle is read, and the gradient is symmetric.
    """
    lower, grad = (_adjoint(f, Out), _adjoint(f, dOut)) if upper else (Out, dOut)
    inner = _lower(f, _times(f, _adjoint(f, lower), grad))
    inner = inner - _on_diagonal(f, _diagonal(f, inner) * 0.5, inner)
    conjugated = f.conj(lower) if is_complex(lower.dtype) else lower
    half = f.triangular_solve(conjugated, inner, upper=False, transpose=True)
    full = f.triangular_solve(conjugated, _adjoint(f, half), upper=False, transpose=True)
    return {"X": (full + _adjoint(f, full)) * 0.5}


def _eigh(X: Spec) -> tuple[Spec, Spec]:
    return Spec(X.shape[:-1], real_of(X.dtype)), X


def _by_eigenvalues(f: Any, Eigenvalues: Any, Eigenvectors: Any, dEigenvalues: Any, dEigenvectors: Any) -> Any:
    turned = _adjoint(f, Eigenvectors)
    by_values = None if dEigenvalues is None else _on_diagonal(f, dEigenvalues.astype(turned.dtype), Eigenvectors)
    if dEigenvectors is None:
        return _times(f, Eigenvectors, by_values, turned)
    inner = _times(f, turned, dEigenvectors)
    inner = (inner - _on_diagonal(f, _diagonal(f, inner), inner)) / _differences(f, Eigenvalues).astype(inner.dtype)
    full = _times(f, Eigenvectors, inner if by_values is None else inner + by_values, turned)
    return (full + _adjoint(f, full)) * 0.5


@define(f"eigh(X: {_SQUARE}) -> Eigenvalues, Eigenvectors", infer=_eigh, complex_rule=EXPLICIT, UPLO=choice("L", "U"))
def eigh(f: Any, Eigenvalues: Any, Eigenvectors: Any, dEigenvalues: Any, dEigenvectors: Any) -> Any:
    """The eigenvalues, smallest first, and the eigenvectors, as columns, of symmetric (Hermitian) matrices.

    Of X the lower triangle is read, or with `UPLO` "U" the upper one; the gradient is symmetric.
    """
    return {"X": _by_eigenvalues(f, Eigenvalues, Eigenvectors, dEigenvalues, dEigenvectors)}


@define(
    f"eigvalsh(X: {_SQUARE}) -> Eigenvalues, Eigenvectors",
    infer=_eigh,
    complex_rule=EXPLICIT,
    UPLO=choice("L", "U"),
    is_test=False,
)
def eigvalsh(f: Any, Eigenvectors: Any, dEigenvalues: Any, UPLO: str, X: Any = None, dEigenvectors: Any = None) -> Any:
    """The eigenvalues of symmetric (Hermitian) matrices, as `eigh`; the eigenvectors are there for the gradient."""
    values = None if dEigenvectors is None else f.eigvalsh(X, UPLO=UPLO)[0]
    return {"X": _by_eigenvalues(f, values, Eigenvectors, dEigenvalues, dEigenvectors)}


def _eig(X: Spec) -> tuple[Spec, Spec]:
    vectors = X.with_dtype(complex_of(X.dtype))
    return vectors.with_shape(X.shape[:-1]), vectors


@define(f"eig(X: {_SQUARE}) -> Eigenvalues, Eigenvectors", infer=_eig, complex_rule=EXPLICIT)
def eig(
    f: Any,
    Eigenvalues: Any,
    Eigenvectors: Any,
    dEigenvalues: Any,
    dEigenvectors: Any,
    X: ShapeOnly = None,  # type: ignore[assignment]
) -> Any:
    """The eigenvalues and the eigenvectors, as columns of length 1, of square matrices: complex numbers.

    An eigenvector may be turned by any angle; a differentiated result should not depend on it.
    """
    turned = _adjoint(f, Eigenvectors)
    inner = _times(f, turned, dEigenvectors)
    lengths = f.real(_diagonal(f, inner)).astype(inner.dtype)
    inner = inner - _times(f, turned, Eigenvectors) * f.unsqueeze2(lengths, axes=[lengths.ndim - 1])
    inner = inner / f.conj(_differences(f, Eigenvalues))
    inner = inner - _on_diagonal(f, _diagonal(f, inner) - dEigenvalues, inner)
    full = f.solve(turned, _times(f, inner, turned))
    return {"X": full if X is None or is_complex(X.dtype) else f.real(full)}  # type: ignore[attr-defined]


@define(
    f"eigvals(X: {_SQUARE}) -> Out",
    infer=lambda X: Spec(X.shape[:-1], complex_of(X.dtype)),
    grad=NOT_DIFFERENTIABLE,
)
def eigvals() -> None:
    """The eigenvalues of square matrices: complex numbers."""


def _least(X: Spec) -> int:
    return -1 if -1 in X.shape[-2:] else min(X.shape[-2:])


def _svd(X: Spec, full_matrices: bool) -> tuple[Spec, Spec, Spec]:
    batch, (rows, columns), count = X.shape[:-2], X.shape[-2:], _least(X)
    u, vh = (rows, columns) if full_matrices else (count, count)
    return X.with_shape((*batch, rows, u)), real_part(X).with_shape((*batch, count)), X.with_shape((*batch, vh, columns))


def _skew(f: Any, X: Any) -> Any:
    return X - _turned(f, X)


@define("svd(X: float[..., M, N]) -> U, S, VH", infer=_svd, full_matrices=False)
def svd(f: Any, X: ShapeOnly, U: Any, S: Any, VH: Any, dU: Any, dS: Any, dVH: Any, full_matrices: bool) -> Any:
    """Singular values S, largest first, and the matrices for which ``X = U @ diag(S) @ VH``; U and VH are square with
    `full_matrices`, and then have no gradient."""
    if full_matrices:
        raise BackwardError("svd has a gradient with full_matrices=False only, where U and VH belong to singular values")
    V, dV, turned = _turned(f, VH), _turned(f, dVH), _turned(f, U)
    apart = _differences(f, S * S)
    s_columns = f.unsqueeze2(S, axes=[S.ndim - 1])
    s_rows = f.unsqueeze2(S, axes=[S.ndim])
    by_u, by_v = _times(f, turned, dU), _times(f, VH, dV)
    inner = _skew(f, by_u) / apart * s_columns + _skew(f, by_v) / apart * s_rows
    inner = inner + _on_diagonal(f, dS, inner)
    beside_u = (dU - _times(f, U, by_u)) / s_columns
    beside_v = _turned(f, (dV - _times(f, V, by_v)) / s_columns)
    return {"X": _times(f, U, inner, VH) + _times(f, beside_u, VH) + _times(f, U, beside_v)}


def _qr(X: Spec, mode: str) -> tuple[Spec, Spec]:
    batch, (rows, columns) = X.shape[:-2], X.shape[-2:]
    inner = rows if mode == "complete" else _least(X)
    return X.with_shape((0,) if mode == "r" else (*batch, rows, inner)), X.with_shape((*batch, inner, columns))


def _tall_qr(f: Any, Q: Any, R: Any, dQ: Any, dR: Any) -> Any:
    """The gradient of the QR decomposition where R is square."""
    inner = _times(f, R, _turned(f, dR)) - _times(f, _turned(f, dQ), Q)
    below = _lower(f, inner, -1)
    both = below + _turned(f, below) + _on_diagonal(f, _diagonal(f, inner), inner)
    right = _turned(f, dQ + _times(f, Q, both))
    return _turned(f, f.triangular_solve(R, right, upper=True))


@define("qr(X: float[..., M, N]) -> Q, R", infer=_qr, mode=choice("reduced", "complete", "r"))
def qr(f: Any, X: Any, Q: Any, R: Any, dQ: Any, dR: Any, mode: str) -> Any:
    """Orthogonal columns Q and upper triangles R for which ``X = Q @ R``; Q is square if "complete", and left out with "r".

    There is a gradient where the first columns of X, up to its number of rows, are independent, and Q is not "complete" for more
    rows than columns.
    """
    rows, columns = _sizes(X, "qr")
    if mode == "r" or (mode == "complete" and rows > columns):
        raise BackwardError(f"qr has no gradient with mode {mode!r} for {rows} rows and {columns} columns; use 'reduced'")
    if rows >= columns:
        return {"X": _tall_qr(f, Q, R, dQ, dR)}
    left, right = _first_columns(f, dR, rows), _first_columns(f, dR, rows, after=True)
    last_columns = _first_columns(f, X, rows, after=True)
    by_q = dQ + _times(f, last_columns, _turned(f, right))
    square = _tall_qr(f, Q, _first_columns(f, R, rows), by_q, left)
    return {"X": f.concat([square, _times(f, Q, right)], axis=X.ndim - 1)}


def _lu(X: Spec) -> tuple[Spec, Spec, Spec]:
    return X, Spec((*X.shape[:-2], _least(X)), VarType.INT32), Spec(X.shape[:-2] or (1,), VarType.INT32)


@define("lu(X: real[..., M, N]) -> Out, Pivots, Infos", infer=_lu, pivots=True)
def lu(f: Any, X: ShapeOnly, Out: Any, Pivots: Any, dOut: Any) -> Any:
    """Triangular matrices L, with ones on the diagonal, and U for which ``P @ L @ U = X``, in one: L below the diagonal of Out.

    Row i was exchanged with row ``Pivots[i]``, counted from 1. Infos is 0, or the number of the first pivot that is 0.
    """
    P, _, _ = f.lu_unpack(f.fill_zeros_like(Out), Pivots, unpack_ludata=False)  # a constant, whatever Out is
    _, L, U = f.lu_unpack(Out, Pivots, unpack_pivots=False)
    rows, columns = _sizes(X, "lu")
    least = min(rows, columns)
    grad_l, grad_u = _first_columns(f, _lower(f, dOut, -1), least), _first_rows(f, _upper(f, dOut), least)
    beside, below = None, None
    if columns > rows:  # U = [U, U2], where U2 solves L @ U2 = P.T @ X2
        second, grad = _first_columns(f, U, rows, after=True), _first_columns(f, grad_u, rows, after=True)
        U, grad_u = _first_columns(f, U, rows), _first_columns(f, grad_u, rows)
        beside = f.triangular_solve(L, grad, upper=False, transpose=True, unitriangular=True)
        grad_l = grad_l - _times(f, beside, _turned(f, second))
    if rows > columns:  # L = [L; L2], where L2 solves L2 @ U = P.T @ X2
        second, grad = _first_rows(f, L, columns, after=True), _first_rows(f, grad_l, columns, after=True)
        L, grad_l = _first_rows(f, L, columns), _first_rows(f, grad_l, columns)
        below = _turned(f, f.triangular_solve(U, _turned(f, grad), upper=True))
        grad_u = grad_u - _times(f, _turned(f, second), below)
    inner = _lower(f, _times(f, _turned(f, L), grad_l), -1) + _upper(f, _times(f, grad_u, _turned(f, U)))
    inner = f.triangular_solve(L, inner, upper=False, transpose=True, unitriangular=True)
    square = _turned(f, f.triangular_solve(U, _turned(f, inner), upper=True))
    if beside is not None:
        square = f.concat([square, beside], axis=square.ndim - 1)
    if below is not None:
        square = f.concat([square, below], axis=square.ndim - 2)
    return {"X": _times(f, P, square)}


def _lu_unpack(X: Spec, Pivots: Spec, unpack_ludata: bool, unpack_pivots: bool) -> tuple[Spec, Spec, Spec]:
    batch, (rows, columns), least = X.shape[:-2], X.shape[-2:], _least(X)
    if Pivots.ndim != X.ndim - 1 or not fits(Pivots.shape[-1], least):
        raise InferenceError(f"lu_unpack: Pivots is {Pivots}; it should have {least} numbers for each matrix of X {X}")
    nothing = X.with_shape((0,))
    P = X.with_shape((*batch, rows, rows)) if unpack_pivots else nothing
    L, U = X.with_shape((*batch, rows, least)), X.with_shape((*batch, least, columns))
    return (P, L, U) if unpack_ludata else (P, nothing, nothing)


@define(
    "lu_unpack(X: real[..., M, N], Pivots: int) -> Pmat, L, U",
    infer=_lu_unpack,
    wrt=("X",),
    unpack_ludata=True,
    unpack_pivots=True,
)
def lu_unpack(f: Any, X: ShapeOnly, Pivots: ShapeOnly, L: ShapeOnly, U: ShapeOnly, Pmat: ShapeOnly, dL: Any, dU: Any) -> Any:
    """Unpack P, L and U from the X and Pivots that `lu` made; outputs that are not requested are empty."""
    corner = [0] * X.ndim  # type: ignore[attr-defined]
    below, above = _lower(f, dL, -1), _upper(f, dU)
    return {"X": f.uncrop(below, X, offsets=corner) + f.uncrop(above, X, offsets=corner)}
