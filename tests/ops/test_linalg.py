"""Errors of linear algebra, and gradients that do not depend on the phase of eigenvectors."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from checks import each
from numeric import slope

from fluid import dygraph
from fluid.eager.dispatch import namespace as o
from fluid.errors import BackwardError, ExecutionError
from fluid.executor.binding.compiled import apply_op
from fluid.executor.kernels import linalg


def test_singular_matrices_are_told() -> None:
    zeros, ones = np.zeros((2, 2)), np.ones((2, 1))
    with pytest.raises(ExecutionError, match=r"^the matrices in Input should be invertible"):
        apply_op("inverse", {"Input": zeros})
    with pytest.raises(ExecutionError, match=r"^the matrices should be invertible"):
        apply_op("solve", {"X": zeros, "Y": ones})
    with pytest.raises(ExecutionError, match=r"^the matrices in X should be positive definite"):
        apply_op("cholesky", {"X": zeros})
    with pytest.raises(ExecutionError, match="for n -1"):
        apply_op("matrix_power", {"X": zeros}, {"n": -1})
    assert apply_op("lu", {"X": zeros})["Infos"].tolist() == [1]


def test_what_has_no_gradient_says_so() -> None:
    x = dygraph.Tensor(np.arange(6.0).reshape(3, 2), requires_grad=True)
    with pytest.raises(BackwardError, match="full_matrices=False"):
        o.svd(x, full_matrices=True)[0].sum().backward()
    with pytest.raises(BackwardError, match="mode 'complete'"):
        o.qr(x, mode="complete")[0].sum().backward()


@pytest.mark.parametrize("op_type", ["eigh", "eigvalsh", "eig"])
def test_gradients_that_do_not_depend_on_how_eigenvectors_are_turned(op_type: str) -> None:
    rng = np.random.default_rng(1)
    half = rng.normal(size=(3, 3)) + 1j * rng.normal(size=(3, 3))
    matrix = half + half.conj().T if op_type != "eig" else half

    def symmetric(direction: Any) -> Any:
        return direction + direction.conj().T if op_type != "eig" else direction

    weights, sizes = rng.normal(size=(3, 3)), rng.normal(size=3)

    def loss(x: Any) -> Any:
        values, vectors = getattr(o, op_type)(x)
        parts = o.square(o.abs(vectors)) * dygraph.Tensor(weights * (op_type != "eigvalsh"))
        return parts.sum() + (o.square(o.abs(values)) * dygraph.Tensor(sizes)).sum()

    point = dygraph.Tensor(matrix, requires_grad=True)
    (gradient,) = dygraph.grad(loss(point), [point])
    direction = symmetric(rng.normal(size=(3, 3)) + 1j * rng.normal(size=(3, 3)))
    expected = slope(lambda at: float(loss(dygraph.Tensor(at["x"]))), {"x": matrix}, "x", direction)
    assert np.vdot(gradient.numpy(), direction).real == pytest.approx(expected, rel=1e-6)


def triangular(op_type: str, attrs: dict[str, Any], dtype: str) -> Any:
    random = np.random.default_rng(0)
    matrix, columns = random.standard_normal((2, 1, 70, 70)) / 20 + 2 * np.eye(70), random.standard_normal((3, 70, 5))
    if dtype.startswith("c"):
        matrix, columns = matrix + 1j * matrix[::-1], columns * (1 + 2j)
    pair = (
        (matrix.astype(dtype), columns.astype(dtype))
        if op_type == "triangular_solve"
        else (columns.astype(dtype), matrix.astype(dtype))
    )
    return apply_op(op_type, dict(zip("XY", pair, strict=True)), attrs)["Out"]


@each("dtype", ["float32", "float64", "complex64", "complex128"])
@each("upper", [False, True])
def test_triangular_systems_without_the_solver_of_blas(upper: bool, dtype: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A numpy with another BLAS solves them as any others."""
    cases: list[tuple[str, dict[str, Any]]] = [
        ("triangular_solve", {"upper": upper, "transpose": transpose, "unitriangular": is_unit})
        for transpose in (False, True)
        for is_unit in (False, True)
    ]
    if dtype.startswith("f"):
        cases.append(("cholesky_solve", {"upper": upper}))
    by_blas = [triangular(op_type, attrs, dtype) for op_type, attrs in cases]
    monkeypatch.setattr(linalg, "has_triangular_solver", lambda dtype: False)
    for result, (op_type, attrs) in zip(by_blas, cases, strict=True):
        expected = triangular(op_type, attrs, dtype)
        tolerance = 1e-3 if expected.dtype.itemsize == (8 if dtype.startswith("c") else 4) else 1e-10
        np.testing.assert_allclose(result, expected, rtol=tolerance, atol=tolerance * np.abs(expected).max())


def test_triangular_matrices_with_a_zero_on_the_diagonal_are_told() -> None:
    matrix = np.eye(3, dtype="float32")
    matrix[1, 1] = 0
    with pytest.raises(ExecutionError, match="should be invertible"):
        apply_op("triangular_solve", {"X": matrix, "Y": np.ones((3, 1), "float32")}, {"upper": False})
