"""Kernels of `fluid.ops.linalg`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from math import prod
from typing import Any

import numpy as np

from fluid.errors import ExecutionError
from fluid.ops.linalg import is_vector

from ..runtime.blas import has_triangular_solver, solve_triangular
from .manipulation import write_wanted
from .table import NATIVE_CHECKS, checked, kernel


@contextmanager
def _explained(expected: str) -> Iterator[None]:
    """Convert numpy's errors, such as for a singular matrix, to errors that state the expected matrix.

    They do not name the op: callers do, and it may be a formula of this one.
    """
    try:
        yield
    except np.linalg.LinAlgError as error:
        raise ExecutionError(f"{expected} ({error})") from None


_POSITIVE = "the matrices in X should be positive definite"


def _adjoint(array: Any) -> Any:
    return array.swapaxes(-1, -2).conj()


# ------------------------------------------------------------------------------------------ inverses, determinants, powers
@kernel("inverse")
def inverse(xp: Any, Input: Any, Output: Any) -> None:
    with _explained("the matrices in Input should be invertible"):
        xp.copyto(Output, xp.linalg.inv(Input))


@kernel("determinant")
def determinant(xp: Any, Input: Any, Out: Any) -> None:
    xp.copyto(Out, xp.asarray(xp.linalg.det(Input)).reshape(Out.shape))


@kernel("slogdeterminant")
def slogdeterminant(xp: Any, Input: Any, Out: Any) -> None:
    Out[0], Out[1] = xp.linalg.slogdet(Input)


@kernel("matrix_power")
def matrix_power(xp: Any, X: Any, n: int, Out: Any) -> None:
    with _explained(f"the matrices in X should be invertible for n {n}"):
        xp.copyto(Out, xp.linalg.matrix_power(X, n))


# --------------------------------------------------------------------------------------------------------------- solving
def _solved(xp: Any, X: Any, Y: Any) -> Any:
    """The solutions for columns Y."""
    batch = np.broadcast_shapes(X.shape[:-2], Y.shape[:-2])
    with _explained("the matrices should be invertible"):
        return xp.linalg.solve(_of_batch(xp, X, batch), _of_batch(xp, Y, batch))


def _of_batch(xp: Any, matrices: Any, batch: tuple[int, ...]) -> Any:
    """Broadcast matrices to a batch; for small ones, this takes longer than their solution."""
    return matrices if matrices.shape[:-2] == batch else xp.broadcast_to(matrices, (*batch, *matrices.shape[-2:]))


# Native code solves equations with small matrices. These checks find the pivots of its elimination, with the same rounding.
@checked("solve", table=NATIVE_CHECKS)
def check_solve(X: Any) -> None:
    _require_invertible("the matrices should be invertible", X)


@checked("inverse", table=NATIVE_CHECKS)
def check_inverse(Input: Any) -> None:
    _require_invertible("the matrices in Input should be invertible", Input)


def _require_invertible(expected: str, matrices: Any) -> None:
    """Raise an error if Gauss's elimination with partial pivoting finds a pivot of 0."""
    size = matrices.shape[-1]
    work = matrices.reshape(prod(matrices.shape[:-2]), size, size).copy()
    every = np.arange(len(work))
    with np.errstate(all="ignore"):
        for step in range(size):
            sizes = np.abs(work[:, step:, step])
            sizes[np.isnan(sizes)] = -1
            sizes[np.isnan(work[:, step, step]), 0] = np.inf  # nothing is larger than NaN
            best = step + sizes.argmax(1)
            work[every, step], work[every, best] = work[every, best], work[every, step].copy()
            pivot = work[:, step, step]
            if not pivot.all():
                raise ExecutionError(f"{expected} (Singular matrix)")
            factors = work[:, step + 1 :, step] / pivot[:, None]
            work[:, step + 1 :, step:] -= factors[:, :, None] * work[:, step, None, step:]


@checked("triangular_solve", table=NATIVE_CHECKS)
def check_triangular_solve(X: Any, unitriangular: bool) -> None:
    if not unitriangular:
        _require_nonzero_diagonals(X)


@checked("cholesky_solve", table=NATIVE_CHECKS)
def check_cholesky_solve(Y: Any) -> None:
    _require_nonzero_diagonals(Y)


def _require_nonzero_diagonals(matrices: Any) -> None:
    if not np.diagonal(matrices, 0, -2, -1).all():
        raise ExecutionError("the matrices should be invertible (a diagonal has a 0)")


@checked("cholesky", table=NATIVE_CHECKS)
def check_cholesky(X: Any, upper: bool) -> None:
    """Raise an error if a pivot of the decomposition is 0 or less."""
    size = X.shape[-1]
    work = (X if upper else X.swapaxes(-1, -2)).reshape(prod(X.shape[:-2]), size, size).copy()
    with np.errstate(all="ignore"):
        for step in range(size):
            pivot = work[:, step, step].copy()
            if (pivot <= 0).any():
                raise ExecutionError(f"{_POSITIVE} (Matrix is not positive definite)")
            work[:, step] /= np.sqrt(pivot)[:, None]
            work[:, step + 1 :] -= work[:, step, step + 1 :, None] * work[:, step, None]


@kernel("solve")
def solve(xp: Any, X: Any, Y: Any, Out: Any) -> None:
    columns = Y[..., None] if is_vector(X.shape, Y.shape) else Y
    xp.copyto(Out, _solved(xp, X, columns).reshape(Out.shape))


@kernel("triangular_solve")
def triangular_solve(xp: Any, X: Any, Y: Any, upper: bool, transpose: bool, unitriangular: bool, Out: Any) -> None:
    xp.copyto(Out, _solved_triangular(xp, X, Y, upper, transpose, is_unit=unitriangular))


def _solved_triangular(xp: Any, X: Any, Y: Any, is_upper: bool, transpose: bool, is_unit: bool = False) -> Any:
    """The solutions for columns Y and triangles of X, which are transposed on demand."""
    if xp is not np or not has_triangular_solver(X.dtype):
        matrix = xp.triu(X, int(is_unit)) if is_upper else xp.tril(X, -int(is_unit))
        if is_unit:
            matrix = matrix + xp.eye(X.shape[-1], dtype=X.dtype)
        return _solved(xp, matrix.swapaxes(-1, -2) if transpose else matrix, Y)
    batch = np.broadcast_shapes(X.shape[:-2], Y.shape[:-2])
    if not is_unit:
        _require_nonzero_diagonals(X)
    solutions = np.array(_of_batch(np, Y, batch), order="C")
    solve_triangular(_of_batch(np, X, batch), solutions, is_upper, transpose, is_unit)
    return solutions


def _largest(values: Any) -> Any:
    """The largest of each row of numbers that are not below 0; 0 for rows without any."""
    return values.max(-1, keepdims=True) if values.shape[-1] else 0


@kernel("lstsq")
def lstsq(xp: Any, X: Any, Y: Any, rcond: float, Solution: Any, Rank: Any, SingularValues: Any) -> Any:
    rows, columns = X.shape[-2:]
    with _explained("the numbers should be finite"):
        u, s, vh = xp.linalg.svd(X, full_matrices=False)
    is_nonzero = s > rcond * _largest(s)
    parts = _adjoint(u) @ Y / xp.where(is_nonzero, s, 1)[..., None]
    solution = _adjoint(vh) @ xp.where(is_nonzero[..., None], parts, 0)
    ranks = is_nonzero.sum(-1)
    write_wanted((Solution, solution), (Rank, ranks.reshape(Rank.shape)))
    if SingularValues is not None and SingularValues.shape == s.shape:
        xp.copyto(SingularValues, s)
    if rows > columns and bool((ranks == columns).all()):
        return ((Y - X @ solution) ** 2).sum(-2)
    return xp.zeros((0,) * max(X.ndim - 1, 1), X.dtype)


@kernel("matrix_rank")
def matrix_rank(xp: Any, X: Any, TolTensor: Any, tol: float, hermitian: bool, use_default_tol: bool, Out: Any) -> None:
    with _explained("the numbers should be finite"):
        values = xp.abs(xp.linalg.eigvalsh(X)) if hermitian else xp.linalg.svd(X, compute_uv=False)
    least: Any = tol
    if TolTensor is not None:
        least = TolTensor[..., None]
    elif use_default_tol:
        least = _largest(values) * max(X.shape[-2:]) * xp.finfo(X.dtype).eps
    xp.copyto(Out, (values > least).sum(-1).reshape(Out.shape))


# --------------------------------------------------------------------------------------------------------- decompositions
@kernel("cholesky")
def cholesky(xp: Any, X: Any, upper: bool, Out: Any) -> None:
    with _explained(_POSITIVE):
        lower = xp.linalg.cholesky(_adjoint(X) if upper else X)  # reads the lower triangle alone
    xp.copyto(Out, _adjoint(lower) if upper else lower)


@kernel("eigh", "eigvalsh")
def eigh(xp: Any, X: Any, UPLO: str, Eigenvalues: Any, Eigenvectors: Any) -> None:
    with _explained("the numbers in X should be finite"):
        write_wanted(*zip((Eigenvalues, Eigenvectors), xp.linalg.eigh(X, UPLO), strict=True))


@kernel("eig")
def eig(xp: Any, X: Any, Eigenvalues: Any, Eigenvectors: Any) -> None:
    with _explained("the numbers in X should be finite"):
        write_wanted(*zip((Eigenvalues, Eigenvectors), xp.linalg.eig(X), strict=True))


@kernel("eigvals")
def eigvals(xp: Any, X: Any, Out: Any) -> None:
    with _explained("the numbers in X should be finite"):
        xp.copyto(Out, xp.linalg.eigvals(X))


@kernel("svd")
def svd(xp: Any, X: Any, full_matrices: bool, U: Any, S: Any, VH: Any) -> None:
    with _explained("the numbers in X should be finite"):
        write_wanted(*zip((U, S, VH), xp.linalg.svd(X, full_matrices), strict=True))


@kernel("qr")
def qr(xp: Any, X: Any, mode: str, Q: Any, R: Any) -> None:
    if mode == "r":
        write_wanted((R, xp.linalg.qr(X, "r")))
    else:
        write_wanted(*zip((Q, R), xp.linalg.qr(X, mode), strict=True))


@kernel("lu")
def lu(xp: Any, X: Any, pivots: bool, Out: Any, Pivots: Any, Infos: Any) -> None:
    rows, columns = X.shape[-2:]
    work = X.reshape(prod(X.shape[:-2]), rows, columns).copy()
    every = xp.arange(len(work))
    chosen = xp.empty((len(work), min(rows, columns)), "int32")
    infos = xp.zeros(len(work), "int32")
    for step in range(min(rows, columns)):
        best = step + xp.abs(work[:, step:, step]).argmax(1) if pivots else xp.full(len(work), step)
        chosen[:, step] = best + 1
        work[every, step], work[every, best] = work[every, best], work[every, step].copy()
        pivot = work[:, step, step]
        infos = xp.where((infos == 0) & (pivot == 0), step + 1, infos)
        work[:, step + 1 :, step] /= xp.where(pivot == 0, 1, pivot)[:, None]
        work[:, step + 1 :, step + 1 :] -= work[:, step + 1 :, step, None] * work[:, step, None, step + 1 :]
    pairs = ((Out, work), (Pivots, chosen), (Infos, infos))
    write_wanted(*((out, value.reshape(out.shape)) for out, value in pairs if out is not None))


def _permutation(xp: Any, Pivots: Any, rows: int) -> Any:
    """The matrices P that exchange rows as Pivots say, the last exchange first."""
    pivots = Pivots.reshape(prod(Pivots.shape[:-1]), Pivots.shape[-1]) - 1
    order = xp.broadcast_to(xp.arange(rows), (len(pivots), rows)).copy()
    every = xp.arange(len(pivots))
    for step in range(pivots.shape[1]):
        swapped = pivots[:, step]
        order[:, step], order[every, swapped] = order[every, swapped], order[:, step].copy()
    return (xp.arange(rows)[:, None] == order[:, None, :]).reshape(*Pivots.shape[:-1], rows, rows)


@kernel("lu_unpack")
def lu_unpack(xp: Any, X: Any, Pivots: Any, unpack_ludata: bool, unpack_pivots: bool, Pmat: Any, L: Any, U: Any) -> None:
    rows, columns = X.shape[-2:]
    least = min(rows, columns)
    if unpack_pivots:
        write_wanted((Pmat, _permutation(xp, Pivots, rows)))
    if unpack_ludata:
        lower = xp.tril(X[..., :least], -1) + xp.eye(rows, least, dtype=X.dtype)
        write_wanted((L, lower), (U, xp.triu(X[..., :least, :])))
