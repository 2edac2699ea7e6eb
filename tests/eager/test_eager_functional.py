"""Functions with a backward of their own, products with Jacobian matrices, and checks of gradients."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from checks import each
from py_layers import Cube

from fluid import dygraph
from fluid.dygraph import PyLayer, Tensor, grad, gradcheck, gradgradcheck, hessian, hvp, jacobian, jvp, ops, vjp
from fluid.errors import BackwardError, FluidTypeError, ProgramError


def leaf(*shape: int, seed: int = 0) -> Tensor:
    return Tensor(np.random.default_rng(seed).standard_normal(shape), stop_gradient=False)


def layer(forward: Any, backward: Any) -> type[PyLayer]:
    return type("Made", (PyLayer,), {"forward": staticmethod(forward), "backward": staticmethod(backward)})


# -------------------------------------------------------------------------------------------------------------- PyLayer
def test_pylayer() -> None:
    x = leaf(3)
    y = Cube.apply(x)
    assert repr(y.grad_fn) == "<Cube_backward>"
    y.sum().backward()
    np.testing.assert_allclose(x.grad.numpy(), 3 * x.numpy() ** 2)
    (first,) = grad(Cube.apply(x).sum(), x, create_graph=True)
    np.testing.assert_allclose(grad(first.sum(), x)[0].numpy(), 6 * x.numpy())
    assert Cube.gradcheck(x) and gradgradcheck(Cube.apply, [x])
    assert Cube.apply(x.detach()).stop_gradient


def test_pylayer_of_several_tensors_and_more() -> None:
    seen: list[Any] = []

    def forward(ctx: Any, x: Tensor, factor: float, y: Tensor | None = None, *, z: Tensor) -> tuple[Tensor, Tensor]:
        seen.append(ctx.needs_input_grad)
        out = x * factor
        ctx.factor = factor
        ctx.save_for_backward(out, None, z)
        return out, x + z

    def backward(ctx: Any, d_out: Tensor, d_sum: Tensor) -> tuple[Tensor, Tensor]:
        out, none, z = ctx.saved_tensors
        assert none is None and out.shape == z.shape
        return d_out * ctx.factor + d_sum, d_sum

    made = layer(forward, backward)
    x, z = leaf(2), leaf(2, seed=1)
    out, total = made.apply(x, 3.0, z=z)
    assert seen == [(True, False)]
    (out * 2.0).sum().backward(retain_graph=True)
    assert x.grad.tolist() == [6, 6] and z.grad.tolist() == [0, 0]
    total.sum().backward()
    assert x.grad.tolist() == [7, 7] and z.grad.tolist() == [1, 1]


def test_pylayer_is_given_none_if_it_wants() -> None:
    def forward(ctx: Any, x: Tensor) -> tuple[Tensor, Tensor]:
        ctx.set_materialize_grads(False)
        count = x * 0.0
        ctx.mark_non_differentiable(count)
        return x * 2.0, count

    def backward(ctx: Any, dy: Any, d_count: Any) -> Any:
        assert d_count is None
        return dy * 2.0

    x = leaf(2)
    y, count = layer(forward, backward).apply(x)
    assert count.stop_gradient
    y.sum().backward()
    assert x.grad.tolist() == [2, 2]


def test_pylayer_that_hands_its_argument_through() -> None:
    made = layer(lambda ctx, x: x, lambda ctx, dy: dy * 5.0)
    x = leaf(2)
    y = made.apply(x)
    assert y is not x and x.is_leaf
    y.sum().backward()
    assert x.grad.tolist() == [5, 5]


def test_a_gradient_that_backward_keeps_is_not_added_to() -> None:
    kept = Tensor([1.0, 1.0], "float64")
    made = layer(lambda ctx, x: x * 1.0, lambda ctx, dy: kept)
    x = leaf(2)
    made.apply(x).sum().backward()
    made.apply(x).sum().backward()
    assert kept.tolist() == [1, 1] and x.grad.tolist() == [2, 2]


@each(
    ("gives", "error", "says"),
    [
        (lambda dy: (dy, dy), BackwardError, r"Made.backward gave 2 gradients, but forward took 1 tensors"),
        (lambda dy: 1.0, FluidTypeError, r"Made.backward: gradient 0 should be a Tensor or None, not a float"),
        (lambda dy: dy[:1], BackwardError, r"gradient 0 is float64\[1\], but the tensor it belongs to is float64\[2\]"),
        (
            lambda dy: dy.astype("float32"),
            BackwardError,
            r"gradient 0 is float32\[2\], but the tensor it belongs to is float64\[2\]",
        ),
    ],
)
def test_what_a_backward_may_not_give(gives: Any, error: Any, says: str) -> None:
    made = layer(lambda ctx, x: x * 1.0, lambda ctx, dy: gives(dy))
    x = leaf(2)
    with pytest.raises(error, match=says + r"(.|\n)*recorded at: .*test_eager_functional.py"):
        made.apply(x).sum().backward()


def test_errors_of_pylayer() -> None:
    x = leaf(2)
    with pytest.raises(FluidTypeError, match="save_for_backward takes tensors, not float"):
        layer(lambda ctx, x: ctx.save_for_backward(1.0), None).apply(x)
    with pytest.raises(NotImplementedError, match="a PyLayer needs a static method forward"):
        PyLayer.apply(x)
    y = Cube.apply(x).sum()
    y.backward()
    with pytest.raises(BackwardError, match=r"has run before"):
        y.backward()
    h = x * 1.0
    y = Cube.apply(h).sum()
    h.add_(1.0)
    with pytest.raises(BackwardError, match="Cube_backward needs a tensor that was modified in place"):
        y.backward()


def test_errors_of_the_users_backward_reach_the_caller() -> None:
    def fails(ctx: Any, dy: Tensor) -> Tensor:
        raise ZeroDivisionError("mine")

    x = leaf(2)
    with pytest.raises(ZeroDivisionError, match="mine") as caught:
        layer(lambda ctx, x: x * 1.0, fails).apply(x).sum().backward()
    said = "".join(getattr(caught.value, "__notes__", [])) + str(caught.value.args)
    assert "in Made_backward, recorded at: " in said


# ------------------------------------------------------------------------------------------------------------- products
def outer(a: Tensor) -> Tensor:
    return (a.reshape(3, 1) @ a.reshape(1, 3)).tanh()


def numeric_jacobian(function: Any, x: np.ndarray[Any, Any], step: float = 1e-6) -> Any:
    columns = []
    for number in range(x.size):
        ahead, behind = x.copy(), x.copy()
        ahead.reshape(-1)[number] += step
        behind.reshape(-1)[number] -= step
        columns.append((function(Tensor(ahead)).numpy() - function(Tensor(behind)).numpy()) / (2 * step))
    return np.stack(columns, -1)


def test_jacobian_and_products() -> None:
    x, v = leaf(3), leaf(3, seed=1).detach()
    matrix = jacobian(outer, x)
    np.testing.assert_allclose(matrix.numpy(), numeric_jacobian(outer, x.numpy()), atol=1e-8)
    assert matrix.stop_gradient
    value, moved = jvp(outer, x, v)
    np.testing.assert_allclose(value.numpy(), outer(x).numpy())
    np.testing.assert_allclose(moved.numpy(), matrix.numpy() @ v.numpy())
    weights = leaf(3, 3, seed=2).detach()
    value, found = vjp(outer, x, weights)
    np.testing.assert_allclose(found.numpy(), np.einsum("ij,ijk->k", weights.numpy(), matrix.numpy()))
    np.testing.assert_allclose(vjp(outer, x)[1].numpy(), matrix.numpy().sum((0, 1)))
    np.testing.assert_allclose(jvp(outer, x)[1].numpy(), matrix.numpy().sum(-1))
    assert x.grad is None


def test_jvp_inside_reverse_mode_and_itself() -> None:
    x, v = leaf(3), leaf(3, seed=1).detach()

    def directional(a: Tensor) -> Tensor:
        return jvp(lambda b: b.tanh() * b, a, v, create_graph=True)[1]

    assert gradcheck(directional, [x])
    second = jvp(directional, x, v)[1]
    step = 1e-5
    ahead, behind = (directional(Tensor(x.numpy() + by * v.numpy())).numpy() for by in (step, -step))
    np.testing.assert_allclose(second.numpy(), (ahead - behind) / (2 * step), rtol=1e-6)
    y = x * 2.0
    moved = jvp(lambda b: b * b, y, v, create_graph=True)[1]  # 2 y v
    np.testing.assert_allclose(grad(moved.sum(), x)[0].numpy(), 4 * v.numpy())


def test_of_several_inputs_and_outputs() -> None:
    a, b = leaf(2), leaf(3, seed=1)

    def function(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
        return a.sum() * b, a * 2.0

    rows = jacobian(function, [a, b])
    assert [[part.shape for part in row] for row in rows] == [[(3, 2), (3, 3)], [(2, 2), (2, 3)]]
    np.testing.assert_allclose(rows[0][1].numpy(), np.eye(3) * a.numpy().sum())
    assert not rows[1][1].numpy().any()
    (first, second), (by_a, by_b) = vjp(function, [a, b])
    assert (first.shape, second.shape, by_a.shape, by_b.shape) == ((3,), (2,), (2,), (3,))
    _, moved = jvp(function, [a, b])
    np.testing.assert_allclose(moved[0].numpy(), 2 * b.numpy() + a.numpy().sum())


def test_hessian_and_products() -> None:
    x, v = leaf(4), leaf(4, seed=1).detach()

    def energy(a: Tensor) -> Tensor:
        return (a.tanh() * a * a).sum()

    matrix = hessian(energy, x)
    slope = lambda a: grad(energy(b), b)[0] if not (b := Tensor(a, stop_gradient=False)).stop_gradient else None
    np.testing.assert_allclose(matrix.numpy(), numeric_jacobian(slope, x.numpy()), atol=1e-7)
    np.testing.assert_allclose(matrix.numpy(), matrix.numpy().T)
    value, product = hvp(energy, x, v)
    np.testing.assert_allclose(product.numpy(), matrix.numpy() @ v.numpy())
    assert value.item() == pytest.approx(energy(x).item())
    np.testing.assert_allclose(dygraph.vhp(energy, x, v)[1].numpy(), product.numpy())
    a, b = leaf(2), leaf(3)
    rows = hessian(lambda a, b: (a.sum() * b * b).sum(), [a, b])
    assert [[part.shape for part in row] for row in rows] == [[(2, 2), (2, 3)], [(3, 2), (3, 3)]]
    assert not hvp(energy, x, v, create_graph=True)[1].stop_gradient


def test_errors_of_products() -> None:
    x = leaf(3)
    with pytest.raises(ProgramError, match=r"jvp: v is float64\[2\], but should be float64\[3\]"):
        jvp(outer, x, leaf(2))
    with pytest.raises(ProgramError, match=r"vjp: v is float64\[2\], but should be float64\[3, 3\]"):
        vjp(outer, x, leaf(2))
    with pytest.raises(ProgramError, match=r"hvp: the function should give a tensor of one element, not float64\[3, 3\]"):
        hvp(outer, x)
    with pytest.raises(ProgramError, match=r"hessian: the function should give a tensor of one element, not float"):
        hessian(lambda a: 1.0, x)
    with pytest.raises(FluidTypeError, match="jacobian: inputs should be a Tensor or several, not float"):
        jacobian(outer, 1.0)


# --------------------------------------------------------------------------------------------------------------- checks
def test_checks_find_what_is_wrong() -> None:
    wrong = layer(lambda ctx, x: x * x, lambda ctx, dy: dy * 3.0)
    x = leaf(2)
    with pytest.raises(
        BackwardError, match=r"gradcheck: the derivative of element 0 of output 0 by element 0 of input 0 is 3, but"
    ):
        gradcheck(wrong.apply, x)
    assert not gradcheck(wrong.apply, x, raise_exception=False)

    def backward(ctx: Any, dy: Tensor) -> Tensor:
        return dy * 2.0 * ctx.x.detach()  # right, but it does not say how it depends on x

    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.x = x
        return x * x

    assert gradcheck(layer(forward, backward).apply, x)
    with pytest.raises(BackwardError, match="gradcheck: the derivative of element"):
        gradgradcheck(layer(forward, backward).apply, x)
    with pytest.raises(FluidTypeError, match=r"gradcheck: float32\[1\] is not precise enough"):
        gradcheck(lambda a: a, Tensor([1.0], stop_gradient=False))
    with pytest.raises(ProgramError, match="gradcheck: no input requires a gradient"):
        gradcheck(lambda a: a, Tensor([1.0], "float64"))


def test_checks_of_functions_of_more_than_tensors() -> None:
    x, w = leaf(2, 3), leaf(3, 2, seed=1)
    assert gradcheck(lambda a, b, c: ((a @ b) * c).softmax(), [x, w, 2.0])
    assert gradgradcheck(lambda a, b: ops.matmul_v2(a, b).tanh(), [x, w])
    assert gradgradcheck(lambda a: a * a, x, grad_outputs=leaf(2, 3, seed=3))


def test_derivatives_inside_derivatives_are_recorded() -> None:
    x = Tensor([2.0])

    def cube(a: Tensor) -> Tensor:
        return a * a * a

    first, second = (lambda a: jvp(cube, a)[1]), (lambda a: vjp(cube, a)[1])
    for inner in (first, second, lambda a: jacobian(cube, a).reshape(1)):
        for outer in (jvp, vjp):
            value, found = outer(inner, x)
            assert (value.tolist(), found.tolist()) == ([12.0], [12.0])
            assert value.stop_gradient and found.stop_gradient
        assert jacobian(inner, x).tolist() == [[12.0]] and hessian(inner, x).tolist() == [[6.0]]
    assert jvp(lambda a: jvp(first, a)[1], x)[1].tolist() == jvp(lambda a: hvp(cube, a)[1], x)[1].tolist() == [6.0]
    assert gradcheck(first, leaf(1)) and first(Tensor([2.0], stop_gradient=False)).stop_gradient


def test_forward_mode_refuses_what_leaves_the_graph() -> None:
    class ByNumpy(PyLayer):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            ctx.save_for_backward(x)
            return x * x

        @staticmethod
        def backward(ctx: Any, dy: Tensor) -> Tensor:
            (x,) = ctx.saved_tensor()
            return Tensor(dy.numpy() * 2.0 * x.numpy())

    x = Tensor([3.0])
    assert vjp(ByNumpy.apply, x)[1].tolist() == [6.0]
    for func in (ByNumpy.apply, lambda a: ByNumpy.apply(a.tanh()).tanh()):
        with pytest.raises(BackwardError, match=r"ByNumpy_backward: gradient 0 does not depend on the gradients .* numpy"):
            jvp(func, x)
    assert jvp(Cube.apply, x)[1].tolist() == [27.0]
