"""Derivatives of functions of `fluid.numpy`, beside central differences and formulas."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest

import fluid.numpy as xp
from fluid import dygraph

X = np.random.default_rng(1).uniform(0.3, 0.9, (3, 3))

FUNCTIONS: dict[str, Callable[[Any], Any]] = {
    **{
        name: getattr(xp, name)
        for name in (  # noqa: SIM905
            "abs acos asin asinh atan atanh cos cosh exp expm1 flip log log10 log1p log2 max mean min negative prod reciprocal "
            "sin sinh sort sqrt square std tan tanh var"
        ).split()
    },
    "acosh": lambda x: xp.acosh(x + 1.0),
    "arithmetic": lambda x: 2.0 - x * x / (1.0 + x) + x**3 - 1.5**x,
    "powers": lambda x: x**x,
    "two": lambda x: xp.atan2(x, x[::-1]) + xp.hypot(x, x.mT) + xp.logaddexp(x, x[:, ::-1]) + xp.maximum(x, x.mT * 1.01),
    "logaddexp of equal elements": lambda x: xp.logaddexp(x, x),
    "signs": lambda x: xp.copysign(x, -1.0) + xp.clip(x, 0.4, 0.7) + xp.remainder(x, 0.25),
    "of rows": lambda x: xp.cumulative_sum(x, axis=1) + xp.cumulative_prod(x, axis=0),
    "moved": lambda x: xp.concat([xp.roll(x, 1, axis=0), xp.flip(x)]) * xp.repeat(x, 2, axis=0) + xp.tile(x, (2, 1)),
    "stacked": lambda x: xp.stack(xp.unstack(x), axis=1) + xp.expand_dims(x[0], axis=0) + xp.squeeze(x[:, :1], 1),
    "chosen": lambda x: xp.where(x > 0.5, x**2, xp.sin(x)) + xp.take(x, xp.asarray([2, 0, 0]), axis=1),
    "along": lambda x: xp.take_along_axis(x, xp.argsort(x, axis=1), axis=1) + xp.sort(x, axis=0, descending=True),
    "indices": lambda x: x[1:, None, ::2] * x[0, 1] + x[xp.asarray([0, 2]), xp.asarray([1, 1])][:, None, None] + x[x > 0.5][0],
    "differences": lambda x: xp.diff(x, n=2) + xp.var(x, axis=1, keepdims=True, correction=1),
    "triangles": lambda x: xp.tril(x) + xp.triu(x, k=1) ** 2,
    "grids": lambda x: xp.meshgrid(x[0], x[1])[1] * xp.broadcast_to(x[2], (3, 3)),
    "products": lambda x: x @ x.mT + xp.tensordot(x, x, axes=1) + xp.vecdot(x, x),
    "algebra": lambda x: xp.linalg.inv(x + xp.eye(3)) + xp.linalg.det(x + 2 * xp.eye(3)) + xp.linalg.solve(x + xp.eye(3), x),
    "decompositions": lambda x: xp.linalg.cholesky(x @ x.mT + xp.eye(3)) + xp.linalg.eigvalsh(x + x.mT) + xp.linalg.svdvals(x),
    "norms": lambda x: xp.linalg.vector_norm(x, axis=0, ord=3) + xp.linalg.matrix_norm(x) + xp.linalg.pinv(x),
    "outer": lambda x: xp.linalg.outer(x[0], x[1]) + xp.linalg.cross(x, x.mT) + xp.linalg.trace(x) + xp.linalg.slogdet(x)[1],
    "powers of matrices": lambda x: xp.linalg.matrix_power(x, 3) + xp.linalg.qr(x + xp.eye(3)).R,
    "transforms": lambda x: xp.abs(xp.fft.fft(x, n=4)) + xp.fft.irfft(xp.fft.rfft(x, axis=1), n=4),
    "complex": lambda x: xp.real(xp.exp(x * 1j) * (x + 2j)) + xp.imag(xp.conj(x + 1j) ** 2),
}  # fmt: skip


@pytest.mark.parametrize("name", FUNCTIONS)
def test_gradients(name: str) -> None:
    point = dygraph.Tensor(X, stop_gradient=False)
    assert dygraph.gradcheck(lambda x: FUNCTIONS[name](xp.asarray(x)), [point])


def test_orders_of_derivatives() -> None:
    function: Any = xp.tanh
    for expected in (0.41997434, -0.63970001, 0.62162668):
        function = xp.grad(function)
        assert float(function(1.0)) == pytest.approx(expected, rel=1e-5)


def test_slopes_where_a_rule_would_divide_by_zero() -> None:
    x = xp.asarray([0.0, 2.0])
    for exponent in (0, 0.0, xp.asarray(0.0), xp.asarray([0.0, 0.0])):
        assert xp.grad(lambda x, exponent=exponent: xp.sum(x**exponent))(x).tolist() == [0.0, 0.0]
    cube = xp.grad(xp.grad(xp.grad(lambda x: xp.sum(x**2))))
    assert float(cube(0.0)) == 0.0


@pytest.mark.parametrize("extreme", [xp.max, xp.min])
def test_equal_extremes_share_the_slope(extreme: Any) -> None:
    assert xp.grad(extreme)(xp.asarray([1.0, 1.0])).tolist() == [0.5, 0.5]
    assert xp.grad(lambda x: xp.sum(extreme(x, axis=0)))(xp.ones((4, 2))).tolist() == [[0.25, 0.25]] * 4


class Weights(NamedTuple):
    slope: Any
    bias: Any


def test_nested_arguments() -> None:
    def loss(weights: Any, scale: Any) -> Any:
        return xp.sum(scale * weights["a"].slope * weights["b"][0] + weights["a"].bias)

    weights = {"a": Weights(xp.asarray([1.0, 2.0]), 0.5), "b": [xp.asarray([3.0, 4.0])]}
    value, (slopes, by_scale) = xp.value_and_grad(loss, (0, 1))(weights, 2.0)
    assert float(value) == 23.0 and float(by_scale) == 11.0
    assert type(slopes["a"]) is Weights and float(slopes["a"].bias) == 2.0
    assert slopes["a"].slope.tolist() == [6.0, 8.0] and slopes["b"][0].tolist() == [2.0, 4.0]
    assert type(slopes["b"][0]) is xp.NDArray


def test_arguments_by_name_and_number() -> None:
    slope = xp.grad(lambda a, b, factor=1.0: factor * a**2 * b, 1)
    assert float(slope(3.0, 5.0)) == 9.0 and float(slope(3.0, 5.0, factor=2.0)) == 18.0


def test_products_with_vectors() -> None:
    def function(x: Any, y: Any) -> Any:
        return xp.sin(x) * y, xp.sum(x)

    x, y = xp.asarray(X[0]), xp.asarray(X[1])
    (first, _), pull = xp.vjp(function, x, y)
    np.testing.assert_allclose(np.asarray(first), np.sin(X[0]) * X[1])
    by_x, by_y = pull((xp.ones_like(x), 2.0))
    np.testing.assert_allclose(np.asarray(by_x), np.cos(X[0]) * X[1] + 2)
    np.testing.assert_allclose(np.asarray(by_y), np.sin(X[0]))
    np.testing.assert_allclose(np.asarray(pull((xp.ones_like(x), 0.0))[0]), np.cos(X[0]) * X[1])
    _, (moved, total) = xp.jvp(function, (x, y), (xp.ones_like(x), xp.zeros_like(y)))
    np.testing.assert_allclose(np.asarray(moved), np.cos(X[0]) * X[1])
    assert float(total) == pytest.approx(3.0) and type(total) is xp.NDArray


def test_matrices_of_derivatives() -> None:
    x = xp.asarray(X[0])
    np.testing.assert_allclose(
        np.asarray(xp.jacobian(lambda x: x**2 * xp.sum(x))(x)), 2 * np.diag(X[0]) * X[0].sum() + X[0][:, None] ** 2
    )
    matrix = xp.asarray(X)
    hessian = xp.hessian(lambda x: x @ matrix @ x)
    np.testing.assert_allclose(np.asarray(hessian(x)), X + X.T)
    np.testing.assert_allclose(np.asarray(xp.jacobian(xp.grad(lambda x: x @ matrix @ x))(x)), X + X.T)
    scaled = xp.grad(lambda scale: xp.sum(xp.jacobian(lambda x: scale * x**2)(x)))
    assert float(scaled(3.0)) == pytest.approx(2 * X[0].sum())


def test_nested_arguments_and_results_of_products_and_matrices() -> None:
    x = xp.asarray([1.0, 2.0])
    value, change = xp.jvp(lambda part: {"square": part["x"] ** 2, "one": 1.0}, [{"x": x}], [{"x": xp.asarray([1.0, 0.0])}])
    assert value["square"].tolist() == [1.0, 4.0] and change["square"].tolist() == [2.0, 0.0] and float(change["one"]) == 0.0
    same, squares = xp.jacobian(lambda x: (x, [x**2]))(x)
    assert same.tolist() == [[1.0, 0.0], [0.0, 1.0]] and squares[0].tolist() == [[2.0, 0.0], [0.0, 4.0]]
    assert xp.jacobian(lambda a, b: a * b, -1)(3.0, x).tolist() == [[3.0, 0.0], [0.0, 3.0]]
    (slope,) = xp.vjp(lambda x: 5.0, x)[1](1.0)
    assert slope.tolist() == [0.0, 0.0]


@pytest.mark.parametrize("error, said, call", [
    (IndexError, "argument 2 was not given by position: there are 1", lambda x: xp.grad(xp.sum, 2)(x)),
    (IndexError, "argument 0 was not given by position: there are 0", lambda x: xp.jacobian(lambda x: x)(x=x)),
    (ValueError, "gave 2 arrays, which 1 vectors cannot multiply", lambda x: xp.vjp(lambda x: (x, x), x)[1](x)),
    (TypeError, "primals should be a list of all arguments", lambda x: xp.jvp(xp.sin, x, x)),
    (ValueError, "2 arrays cannot move in 1 directions", lambda x: xp.jvp(xp.multiply, [x, x], [x])),
    (TypeError, "an argument is int64.*cast it", lambda x: xp.jvp(xp.sin, [3], [1])),
])  # fmt: skip
def test_senseless_arguments(error: Any, said: str, call: Any) -> None:
    with pytest.raises(error, match=said):
        call(xp.asarray([1.0, 2.0]))


def test_many_examples() -> None:
    rows, columns = xp.asarray(X), xp.asarray(X.T)
    np.testing.assert_allclose(np.asarray(xp.vmap(xp.vecdot, (0, 1))(rows, columns)), (X**2).sum(1))
    np.testing.assert_allclose(np.asarray(xp.vmap(lambda x, y: x * y, (0, None), out_axes=1)(rows, rows[0])), (X * X[0]).T)
    result = xp.vmap(lambda x: {"sum": xp.sum(x), "double": 2 * x})(rows)
    assert result["sum"].shape == (3,) and result["double"].shape == (3, 3)
    slopes = xp.grad(lambda x: xp.sum(xp.vmap(xp.prod)(x)))(rows)
    np.testing.assert_allclose(np.asarray(slopes), X.prod(1, keepdims=True) / X)
    with pytest.raises(ValueError, match=r"the arguments hold \[2, 3\] examples"):
        xp.vmap(lambda x, y: x)(rows, rows[:2])


def test_derivatives_in_traces() -> None:
    slope = xp.grad(lambda x: xp.sum(xp.tanh(x) ** 2))
    traced = dygraph.trace(slope, xp.asarray(X))
    np.testing.assert_allclose(np.asarray(traced(xp.asarray(X / 2))), np.asarray(slope(xp.asarray(X / 2))))


def test_points_stay_as_they_are() -> None:
    x = xp.asarray(X)
    xp.grad(xp.sum)(x)
    assert x.stop_gradient and x.grad is None
    weight = dygraph.Tensor(X, stop_gradient=False)
    slopes = xp.grad(lambda x: xp.sum(x * weight))(x)
    assert weight.grad is None and slopes.stop_gradient
    np.testing.assert_allclose(np.asarray(slopes), X)


def test_norms_and_deviations_have_the_gradient_zero_at_zero() -> None:
    """A subgradient, as torch has it; elsewhere the gradient of the formula."""
    zeros, vector = xp.asarray(np.zeros(3)), np.array([3.0, 0.0, 4.0])
    functions = {f"norm {ord}": lambda x, ord=ord: xp.linalg.vector_norm(x, ord=ord) for ord in (1, 2, 3)}
    functions |= {"std": xp.std, "matrix": lambda x: xp.linalg.matrix_norm(xp.reshape(x, (1, 3)))}
    for name, function in functions.items():
        assert np.asarray(xp.grad(function)(zeros)).tolist() == [0.0] * 3, name
    np.testing.assert_allclose(np.asarray(xp.grad(functions["norm 2"])(xp.asarray(vector))), vector / 5)
    third = vector**2 / (vector**3).sum() ** (2 / 3)
    np.testing.assert_allclose(np.asarray(xp.grad(functions["norm 3"])(xp.asarray(vector))), third)
    np.testing.assert_allclose(np.asarray(xp.grad(xp.std)(xp.asarray(vector))), (vector - vector.mean()) / vector.std() / 3)
    assert np.isnan(np.asarray(xp.std(xp.asarray([np.nan, 1.0]))))
    x = dygraph.Tensor(np.ones(3), stop_gradient=False)
    x.std().backward()
    assert x.gradient().tolist() == [0.0] * 3
