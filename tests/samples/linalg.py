"""Samples of `fluid.ops.linalg`. Decompositions are checked by their definition: the factors multiply to the matrix."""

from __future__ import annotations

from functools import reduce
from typing import Any

import numpy as np

from .base import Data, Sample, add

data = Data("linalg")
BATCHES = ((), (2,), (2, 1))


def regular(*batch: int, n: int = 3) -> Any:
    """Invertible matrices, far from singular."""
    return data(*batch, n, n) + 2 * np.eye(n)


def definite(*batch: int, n: int = 3) -> Any:
    """Symmetric matrices with eigenvalues that are positive and apart."""
    q, _ = np.linalg.qr(data(*batch, n, n))
    return np.asarray(q * np.arange(1.0, n + 1) @ q.swapaxes(-1, -2))


def symmetric(direction: Any) -> Any:
    """The symmetric (Hermitian) part: directions in which these matrices may change."""
    return (direction + direction.conj().swapaxes(-1, -2)) / 2


def adjoint(x: Any) -> Any:
    return x.conj().swapaxes(-1, -2)


def close(dtype: Any, *pairs: tuple[Any, Any]) -> None:
    tolerance = 1e-4 if np.dtype(dtype).itemsize // (1 + (np.dtype(dtype).kind == "c")) == 4 else 1e-9
    for one, other in pairs:
        np.testing.assert_allclose(one, np.broadcast_to(other, one.shape), tolerance, tolerance)


for batch in BATCHES:
    for shift in (0, 0.5j):
        add("inverse", Sample({"Input": regular(*batch) + shift}, {}, lambda Input: np.linalg.inv(Input), tolerance=20))
        add("determinant", Sample({"Input": regular(*batch) + shift}, {}, lambda Input: np.linalg.det(Input), tolerance=20))
    for n in (-2, -1, 0, 1, 2, 3, 6):
        add(
            "matrix_power",
            Sample({"X": regular(*batch)}, {"n": n}, lambda X, n: np.linalg.matrix_power(X, n), tolerance=2000),
        )
    add(
        "slogdeterminant",
        Sample({"Input": regular(*batch)}, {}, lambda Input: np.stack(np.linalg.slogdet(Input)), tolerance=20),
    )
add("slogdeterminant", Sample({"Input": -regular(n=1)}, {}, lambda Input: np.stack(np.linalg.slogdet(Input))))
add("determinant", Sample({"Input": regular()}, {}, lambda Input: np.linalg.det(Input), tolerance=20, declared={"Out": (1,)}))
add("matrix_power", Sample({"X": regular(n=2) + 0.3j}, {"n": 5}, lambda X, n: np.linalg.matrix_power(X, n), tolerance=2000))
for shapes in (
    ((2, 3), (3, 4)),
    ((2, 3), (3, 4), (4, 1), (1, 2)),
    ((3,), (3, 2), (2, 4)),
    ((4, 3), (3, 2), (2,)),
    ((3,), (3, 2), (2,)),
):
    arrays = [data(*shape) for shape in shapes]
    add("multi_dot", Sample({"X": arrays}, {}, lambda X: reduce(np.matmul, X), tolerance=5))


def solved(X: Any, Y: Any) -> Any:
    vectors = Y.ndim == 1 or (Y.ndim == X.ndim - 1 and Y.shape == X.shape[:-1])
    out = np.linalg.inv(X) @ (Y[..., None] if vectors else Y)
    return out[..., 0] if vectors else out


for x, y in (((), (3, 2)), ((), (3,)), ((2,), (2, 3)), ((2,), (2, 3, 1)), ((2, 1), (4, 3, 2)), ((2,), (3, 2)), ((), (2, 3, 1))):
    known = ("X", "Y") if len(y) == len(x) + 1 else ()  # one column for each matrix, or many columns for all: as sizes tell
    add("solve", Sample({"X": regular(*x), "Y": data(*y)}, {}, solved, tolerance=50, known=known))
add("solve", Sample({"X": regular() + 0.4j, "Y": data.complex(3, 2)}, {}, solved, tolerance=50))


def by_triangle(X: Any, Y: Any, upper: bool = True, transpose: bool = False, unitriangular: bool = False) -> Any:
    matrix = np.triu(X) if upper else np.tril(X)
    if unitriangular:
        matrix = matrix * (1 - np.eye(X.shape[-1])) + np.eye(X.shape[-1])
    return (np.linalg.inv(matrix.swapaxes(-1, -2) if transpose else matrix) @ Y).astype(Y.dtype)


for x, y in (((), (3, 2)), ((2,), (2, 3, 1)), ((2,), (3, 2))):
    for upper in (True, False):
        for transpose in (True, False):
            for unitriangular in (True, False) if not x else (False,):
                attrs = {"upper": upper, "transpose": transpose, "unitriangular": unitriangular}
                add("triangular_solve", Sample({"X": regular(*x), "Y": data(*y)}, attrs, by_triangle, tolerance=50))


def by_cholesky(X: Any, Y: Any, upper: bool = False) -> Any:
    factor = np.triu(Y) if upper else np.tril(Y)
    matrix = factor.swapaxes(-1, -2) @ factor if upper else factor @ factor.swapaxes(-1, -2)
    return np.linalg.inv(matrix) @ X


for upper in (False, True):
    for x, y in (((3, 2), ()), ((2, 3, 1), (2,)), ((3, 2), (2,))):
        add("cholesky_solve", Sample({"X": data(*x), "Y": regular(*y)}, {"upper": upper}, by_cholesky, tolerance=50))


def check_lstsq(inputs: dict[str, Any], outputs: dict[str, Any], driver: str, rank: int) -> None:
    X, Y = inputs["X"], inputs["Y"]
    best = np.linalg.pinv(X, rcond=1e-5) @ Y
    close(X.dtype, (outputs["Solution"], best))
    assert (outputs["Rank"] == rank).all()
    if X.shape[-2] > X.shape[-1] == rank:
        close(X.dtype, (outputs["Residuals"], ((Y - X @ best) ** 2).sum(-2)))
    else:
        assert outputs["Residuals"].size == 0
    if driver in ("gelsd", "gelss"):
        close(X.dtype, (outputs["SingularValues"], np.linalg.svd(X, compute_uv=False)))


LOW = np.outer([1.0, 2, 3], [1.0, -1])
for driver in ("gels", "gelsy", "gelsd", "gelss"):
    for x, y in ((data(4, 2), data(4, 3)), (data(2, 5, 3), data(2, 5, 1)), (data(2, 3), data(2, 1)), (LOW, data(3, 1))):
        if x is LOW and driver == "gels":
            continue
        count = 1 if x is LOW else min(x.shape[-2:])
        add(
            "lstsq",
            Sample(
                {"X": x, "Y": y},
                {"driver": driver, "rcond": 1e-5},
                check=lambda i, o, driver=driver, count=count: check_lstsq(i, o, driver, count),
                shapes_by_value=True,
            ),
        )


def ranks(X: Any, hermitian: bool = False, TolTensor: Any = None, tol: float = 0.0, use_default_tol: bool = True) -> Any:
    values = np.abs(np.linalg.eigvalsh(X)) if hermitian else np.linalg.svd(X, compute_uv=False)
    default = values.max(-1, keepdims=True) * max(X.shape[-2:]) * np.finfo(X.dtype).eps
    least = TolTensor[..., None] if TolTensor is not None else default if use_default_tol else tol
    return np.asarray((values > least).sum(-1), "int32")


add("matrix_rank", Sample({"X": LOW}, {}, ranks), Sample({"X": data(2, 3, 4)}, {}, ranks))
add("matrix_rank", Sample({"X": definite()}, {"tol": 1.5, "use_default_tol": False}, ranks))
add("matrix_rank", Sample({"X": definite(2)}, {"hermitian": True, "tol": 2.5, "use_default_tol": False}, ranks))
add("matrix_rank", Sample({"X": definite(2), "TolTensor": np.array([0.5, 2.5])}, {"use_default_tol": False}, ranks))
add("matrix_rank", Sample({"X": LOW}, {}, ranks, declared={"Out": (1,)}))


# --------------------------------------------------------------------------------------------------------- decompositions
def other_triangle(X: Any, upper: bool) -> Any:
    """The matrices with something else in the triangle that is not read."""
    return np.triu(X) + np.tril(X + 7, -1) if upper else np.tril(X) + np.triu(X + 7, 1)


def check_cholesky(upper: bool) -> Any:
    def check(inputs: dict[str, Any], outputs: dict[str, Any]) -> None:
        X, Out = inputs["X"], outputs["Out"]
        whole = np.triu(X) + adjoint(np.triu(X, 1)) if upper else np.tril(X) + adjoint(np.tril(X, -1))
        assert (Out == (np.triu(Out) if upper else np.tril(Out))).all()
        close(X.dtype, (adjoint(Out) @ Out if upper else Out @ adjoint(Out), whole))

    return check


TURN = np.exp(0.4j * np.arange(3))
for upper in (False, True):
    for X in (
        definite(),
        definite(2),
        definite(2, 1, n=2),
        other_triangle(definite(), upper),
        definite() * np.outer(TURN, TURN.conj()),
    ):
        add("cholesky", Sample({"X": X}, {"upper": upper}, check=check_cholesky(upper), within={"X": symmetric}, tolerance=20))


def check_eigh(upper: bool) -> Any:
    def check(inputs: dict[str, Any], outputs: dict[str, Any]) -> None:
        X, values, vectors = inputs["X"], outputs["Eigenvalues"], outputs["Eigenvectors"]
        whole = np.triu(X) + adjoint(np.triu(X, 1)) if upper else np.tril(X) + adjoint(np.tril(X, -1))
        close(X.dtype, (whole @ vectors, vectors * values[..., None, :]), (adjoint(vectors) @ vectors, np.eye(X.shape[-1])))
        assert (np.diff(values) >= 0).all()

    return check


for op_type in ("eigh", "eigvalsh"):
    for UPLO in ("L", "U"):
        for X in (definite(), definite(2), definite(2, 1, n=2), other_triangle(definite(), UPLO == "U")):
            sample = Sample({"X": X}, {"UPLO": UPLO}, check=check_eigh(UPLO == "U"), within={"X": symmetric}, tolerance=50)
            add(op_type, sample)
    hermitian = definite() * np.outer(TURN, TURN.conj())  # whose eigenvectors may be turned: see test_linalg.py
    add(op_type, Sample({"X": hermitian}, {}, check=check_eigh(False), orders=0))


def check_eig(inputs: dict[str, Any], outputs: dict[str, Any]) -> None:
    X, values, vectors = inputs["X"], outputs["Eigenvalues"], outputs["Eigenvectors"]
    close(X.dtype, (X @ vectors, vectors * values[..., None, :]), ((np.abs(vectors) ** 2).sum(-2), 1))


def check_eigvals(inputs: dict[str, Any], outputs: dict[str, Any]) -> None:
    for value, matrix in zip(outputs["Out"].reshape(-1), np.repeat(inputs["X"].reshape(-1, 3, 3), 3, 0), strict=True):
        close(matrix.dtype, (np.abs(np.linalg.det(matrix.astype("complex128") - value * np.eye(3))), 0))


TURNED = np.array([[0.0, -1, 0], [1, 0, 0], [0, 0, 2.0]])
for X in (regular(), regular(2), TURNED, TURNED + 0.2j):
    add("eig", Sample({"X": X}, {}, check=check_eig, orders=0))
    add("eigvals", Sample({"X": X}, {}, check=check_eigvals))
for X in (definite() + 0.1 * np.triu(np.ones((3, 3))), definite(2, n=2) + np.array([[0, 0.2], [0.1, 0]])):
    add("eig", Sample({"X": X}, {}, check=check_eig, tolerance=50))


def check_svd(full_matrices: bool) -> Any:
    def check(inputs: dict[str, Any], outputs: dict[str, Any]) -> None:
        X, U, S, VH = inputs["X"], outputs["U"], outputs["S"], outputs["VH"]
        count = S.shape[-1]
        close(
            X.dtype,
            (U[..., :count] * S[..., None, :] @ VH[..., :count, :], X),
            (U.swapaxes(-1, -2) @ U, np.eye(U.shape[-1])),
            (VH @ VH.swapaxes(-1, -2), np.eye(VH.shape[-2])),
        )
        assert (np.diff(S) <= 0).all() and full_matrices == (U.shape[-2] == U.shape[-1] and VH.shape[-2] == VH.shape[-1])

    return check


for shape in ((3, 2), (2, 3), (2, 4, 2)):
    add("svd", Sample({"X": data(*shape)}, {}, check=check_svd(False), tolerance=200))
    add("svd", Sample({"X": data(*shape)}, {"full_matrices": True}, check=check_svd(True), orders=0))
add("svd", Sample({"X": definite()}, {}, check=check_svd(True), tolerance=50))


def check_qr(inputs: dict[str, Any], outputs: dict[str, Any]) -> None:
    X, Q, R = inputs["X"], outputs["Q"], outputs["R"]
    close(X.dtype, (np.triu(R), R))
    if Q.size:
        close(X.dtype, (Q @ R, X), (Q.swapaxes(-1, -2) @ Q, np.eye(Q.shape[-1])))
    else:
        close(X.dtype, (R.swapaxes(-1, -2) @ R, X.swapaxes(-1, -2) @ X))


for X in (regular(), data(4, 2), regular(2)[..., :2], np.concatenate([regular(2), data(2, 3, 2)], -1)):
    add("qr", Sample({"X": X}, {}, check=check_qr, tolerance=100, known=("X",)))
    add("qr", Sample({"X": X}, {"mode": "complete"}, check=check_qr, tolerance=100, orders=0))
    add("qr", Sample({"X": X}, {"mode": "r"}, check=check_qr, orders=0))


def unpacked(Out: Any, Pivots: Any) -> tuple[Any, Any, Any]:
    """P, L and U."""
    rows, columns = Out.shape[-2:]
    least = min(rows, columns)
    L, U = np.tril(Out[..., :least], -1) + np.eye(rows, least, dtype=Out.dtype), np.triu(Out[..., :least, :])
    P = np.empty((*Out.shape[:-2], rows, rows), Out.dtype)
    for place in np.ndindex(Out.shape[:-2]):
        matrix = np.eye(rows, dtype=Out.dtype)
        for step in reversed(range(least)):
            other = Pivots[place][step] - 1
            matrix[[step, other]] = matrix[[other, step]]
        P[place] = matrix
    return P, L, U


def check_lu(inputs: dict[str, Any], outputs: dict[str, Any]) -> None:
    P, L, U = unpacked(outputs["Out"], outputs["Pivots"])
    close(P.dtype, (P @ L @ U, inputs["X"]))
    assert (np.abs(L) <= 1 + 1e-6).all() and (outputs["Infos"] == 0).all()


def packed(*shape: int) -> dict[str, Any]:
    pivots = np.array([3, 2, 3])[: min(shape[-2:])] if shape[-2] > 2 else np.array([2, 2])
    return {"X": data(*shape), "Pivots": np.broadcast_to(pivots, (*shape[:-2], len(pivots))).astype("int32")}


for shape in ((3, 3), (3, 2), (2, 4), (2, 3, 3), (2, 4, 3)):
    add("lu", Sample({"X": data(*shape)}, {}, check=check_lu, tolerance=300, known=("X",)))
    for ludata, pivots in ((True, True), (False, True), (True, False)):
        nothing = np.zeros(0)

        def reference(X: Any, Pivots: Any, unpack_ludata: bool, unpack_pivots: bool) -> dict[str, Any]:
            P, L, U = unpacked(X, Pivots)
            empty = np.zeros(0, X.dtype)
            P = P if unpack_pivots else empty
            return {"Pmat": P, "L": L, "U": U} if unpack_ludata else {"Pmat": P, "L": empty, "U": empty}

        add(
            "lu_unpack",
            Sample(packed(*shape), {"unpack_ludata": ludata, "unpack_pivots": pivots}, reference, orders=2 * ludata),
        )
