"""Small matrices natively: equations, inverses and factors of odd sizes, batches that are broadcast, and matrices without a
solution, which both engines refuse."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from beside_numpy import assert_alike
from checked_plans import checked_plans
from checks import each, fresh_programs

import fluid
from fluid import layers
from fluid.errors import ExecutionError
from fluid.extend import ops

RANDOM = np.random.default_rng(0)
SIZES = [1, 2, 3, 5, 8, 13, 16]


def matrices(*shape: int, dtype: str = "float64") -> Any:
    return RANDOM.standard_normal(shape).astype(dtype)


def positive(*shape: int, dtype: str = "float64") -> Any:
    factors = RANDOM.standard_normal(shape)
    return (factors @ factors.swapaxes(-1, -2) + np.eye(shape[-1])).astype(dtype)


def checked(monkeypatch: pytest.MonkeyPatch, build: Callable[..., Any], feed: dict[str, Any]) -> Any:
    """The result of a program, which native code computes and which accesses its operands alone."""
    with fresh_programs(), checked_plans(monkeypatch) as plans:
        inputs = [fluid.data(name, array.shape, str(array.dtype)) for name, array in feed.items()]
        result = layers.scale(build(*inputs), 2.0)  # with one op alone, there is no native code
        (computed,) = fluid.Executor().run(feed=feed, fetch_list=[result])
        assert plans.calls
        return computed / 2


@each("dtype", ["float32", "float64"])
@each("size", SIZES)
def test_solutions_and_inverses(monkeypatch: pytest.MonkeyPatch, size: int, dtype: str) -> None:
    x, y = matrices(3, size, size, dtype=dtype), matrices(3, size, 5, dtype=dtype)
    x[0] = x[0][::-1]  # the first pivots are small
    x[1, 0, 0] = 0 if size > 1 else 1
    tolerance = 1e-9 if dtype == "float64" else 0.02
    solved = checked(monkeypatch, lambda x, y: ops().solve(x, y), {"x": x, "y": y})
    np.testing.assert_allclose(x.astype("float64") @ solved, y, atol=tolerance)
    inverse = checked(monkeypatch, lambda x: ops().inverse(x), {"x": x})
    np.testing.assert_allclose(x.astype("float64") @ inverse, np.broadcast_to(np.eye(size), x.shape), atol=tolerance)


@each("shapes", [((2, 1, 4, 4), (3, 4, 2)), ((4, 4), (5, 4, 3)), ((4, 4), (4,)), ((2, 4, 4), (2, 4))])
def test_batches_that_are_broadcast_and_vectors(monkeypatch: pytest.MonkeyPatch, shapes: Any) -> None:
    x, y = matrices(*shapes[0]), matrices(*shapes[1])
    solved = checked(monkeypatch, lambda x, y: ops().solve(x, y), {"x": x, "y": y})
    expected = np.linalg.solve(x, y[..., None])[..., 0] if y.ndim == x.ndim - 1 and y.ndim < 3 else np.linalg.solve(x, y)
    np.testing.assert_allclose(solved, expected, atol=1e-9)


@each("upper", [False, True])
@each("size", SIZES)
def test_factors(monkeypatch: pytest.MonkeyPatch, size: int, upper: bool) -> None:
    x = positive(2, 3, size, size)
    read = np.triu(x) if upper else np.tril(x)
    factor = checked(monkeypatch, lambda x: ops().cholesky(x, upper=upper), {"x": read})
    lower = np.linalg.cholesky(x)
    np.testing.assert_allclose(factor, lower.swapaxes(-1, -2) if upper else lower, atol=1e-9)
    y = matrices(2, 3, size, 4)
    solved = checked(monkeypatch, lambda y, x: ops().cholesky_solve(y, x, upper=upper), {"y": y, "x": factor})
    np.testing.assert_allclose(x @ solved, y, atol=1e-8)


@each("unitriangular", [False, True])
@each("transpose", [False, True])
@each("upper", [False, True])
@each("size", [1, 4, 11])
def test_triangles(monkeypatch: pytest.MonkeyPatch, size: int, upper: bool, transpose: bool, unitriangular: bool) -> None:
    x, y = matrices(2, size, size) * 0.3 + 2 * np.eye(size), matrices(2, size, 3)
    attrs = {"upper": upper, "transpose": transpose, "unitriangular": unitriangular}
    solved = checked(monkeypatch, lambda x, y: ops().triangular_solve(x, y, **attrs), {"x": x, "y": y})
    triangle = np.triu(x) if upper else np.tril(x)
    if unitriangular:
        triangle[:, range(size), range(size)] = 1
    np.testing.assert_allclose((triangle.swapaxes(-1, -2) if transpose else triangle) @ solved, y, atol=1e-8)


@each("size", [2, 7])
@each("op", ["solve", "inverse", "cholesky", "cholesky_solve", "triangular_solve"])
def test_gradients_are_those_of_numpy(op: str, size: int) -> None:
    x, y = positive(3, size, size), matrices(3, size, 2)

    def appended() -> list[Any]:
        a, b = (fluid.data(name, value.shape, "float64") for name, value in (("x", x), ("y", y)))
        a.stop_gradient = b.stop_gradient = False
        slots = {"solve": (a, b), "triangular_solve": (a, b), "cholesky_solve": (b, a)}.get(op, (a,))
        result = getattr(ops(), op)(*slots)
        return [result, *fluid.gradients(layers.reduce_sum(layers.square(result) * result), list(slots))]

    assert_alike(appended, {"x": x, "y": y}, tolerance=1e-6)


SINGULAR = {
    "zeros": np.zeros((4, 4)),
    "a row twice": np.array([[1.0, 2, 3, 4], [5, 6, 7, 9], [1, 2, 3, 4], [0, 1, 0, 2]]),
    "a column of zeros": np.array([[1.0, 0, 3, 4], [5, 0, 7, 9], [2, 0, 3, 4], [0, 0, 0, 2]]),
}


@each("op", ["solve", "inverse", "cholesky", "triangular_solve", "cholesky_solve"])
@each("kind", [*SINGULAR, "rounded away", "not a number"])
@each("place", [0, 4])
def test_matrices_without_a_solution_are_refused(monkeypatch: pytest.MonkeyPatch, op: str, kind: str, place: int) -> None:
    """Natively as by numpy, and the next run, with other matrices, computes."""
    good = positive(5, 4, 4)
    bad = good.copy()
    bad[place] = SINGULAR.get(kind, np.nan)
    if kind == "rounded away":
        bad[place] = np.outer([1, 1e-200, 1, 1], [1, 1e-200, 1, 1])
    for native in "01":
        monkeypatch.setenv("FLUID_NATIVE", native)
        with fresh_programs():
            x, y = fluid.data("x", good.shape, "float64"), fluid.data("y", [5, 4, 1], "float64")
            slots = {"solve": (x, y), "triangular_solve": (x, y), "cholesky_solve": (y, x)}.get(op, (x,))
            fetches = [layers.scale(getattr(ops(), op)(*slots), 2.0)]
            feed = {"x": bad, "y": np.ones((5, 4, 1))}
            executor = fluid.Executor()
            is_refused = kind != "not a number"
            if "triangular" in op or op == "cholesky_solve":
                is_refused = not np.diagonal(bad[place]).all()
            if is_refused:
                message = rf"{op} failed: the matrices.* (invertible|positive definite)"
                with pytest.raises(ExecutionError, match=message):
                    executor.run(feed=feed, fetch_list=fetches)
            else:
                executor.run(feed=feed, fetch_list=fetches)
            (result,) = executor.run(feed={**feed, "x": good}, fetch_list=fetches)
            assert np.isfinite(result).all()


@each("op", ["determinant", "slogdeterminant"])
@each("native", "01")
def test_gradients_that_need_an_inverse_refuse_singular_matrices(monkeypatch: pytest.MonkeyPatch, native: str, op: str) -> None:
    """Their rules invert a matrix that no check of the op has seen."""
    monkeypatch.setenv("FLUID_NATIVE", native)
    with fresh_programs():
        x = fluid.data("x", [2, 3, 3], "float64")
        x.stop_gradient = False
        gradient = layers.scale(fluid.gradients(layers.reduce_sum(getattr(ops(), op)(x) * 2.0), [x])[0], 1.5)
        with pytest.raises(ExecutionError, match=f"{op}_grad failed: the matrices.* should be invertible"):
            fluid.Executor().run(feed={"x": np.zeros((2, 3, 3))}, fetch_list=[gradient])


@each("trips", [0, 1, 30])
def test_equations_in_a_loop_with_their_gradient(trips: int) -> None:
    """Each trip solves an equation whose matrix changes from trip to trip."""
    a, x = positive(3, 3) / 3, matrices(3, 2)

    def appended() -> list[Any]:
        matrix, state = (fluid.data(name, value.shape, "float64") for name, value in (("a", a), ("x", x)))
        matrix.stop_gradient = state.stop_gradient = False
        index, end = layers.fill_constant([1], "int64", 0), layers.fill_constant([1], "int64", trips)

        def step(index: Any, state: Any) -> list[Any]:
            outer = layers.matmul(state, state, transpose_y=True)
            return [index + 1, layers.tanh(ops().solve(matrix + outer, state) + state * 0.5)]

        last = layers.while_loop(lambda index, state: layers.less_than(index, end), step, [index, state])[1]
        return [last, *fluid.gradients(layers.reduce_sum(layers.square(last)), [matrix, state])]

    assert_alike(appended, {"a": a, "x": x}, tolerance=1e-7)


@each("native", "01")
def test_a_trip_with_a_singular_matrix_is_refused(monkeypatch: pytest.MonkeyPatch, native: str) -> None:
    """The matrix of the fourth trip is singular."""
    monkeypatch.setenv("FLUID_NATIVE", native)
    with fresh_programs():
        x, start = fluid.data("x", [2, 1], "float64"), fluid.data("start", [1, 1], "float64")
        index, end = layers.fill_constant([1], "int64", 0), layers.fill_constant([1], "int64", 9)
        eye = layers.assign(np.eye(2))

        def step(index: Any, scale: Any, total: Any) -> list[Any]:
            return [index + 1, scale - 1.0, total + ops().solve(eye * scale, x)]

        states = [index, start, layers.fill_constant([2, 1], "float64", 0.0)]
        total = layers.while_loop(lambda index, scale, total: layers.less_than(index, end), step, states)[2]
        feed, executor = {"x": np.ones((2, 1))}, fluid.Executor()
        with pytest.raises(ExecutionError, match="solve failed: the matrices should be invertible"):
            executor.run(feed={**feed, "start": np.full((1, 1), 3.0)}, fetch_list=[total])
        (solved,) = executor.run(feed={**feed, "start": np.full((1, 1), 20.0)}, fetch_list=[total])
        np.testing.assert_allclose(solved, np.full((2, 1), sum(1 / scale for scale in range(12, 21))))
