"""A `PyLayer` with in-place changes, and differentiated more than once."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from checks import each

from fluid import dygraph
from fluid.dygraph import PyLayer, Tensor
from fluid.errors import BackwardError, ProgramError


def layer(forward: Any, backward: Any) -> type[PyLayer]:
    return type("Made", (PyLayer,), {"forward": staticmethod(forward), "backward": staticmethod(backward)})


def leaf(*values: float) -> Tensor:
    return Tensor(list(values), "float64", requires_grad=True)


@each("hands", [lambda x: x, lambda x: x.detach(), lambda x: Tensor(x, copy=False)], ids=["itself", "its memory", "not copied"])
def test_a_result_that_is_the_argument_is_a_copy(hands: Any) -> None:
    """So changing it in place changes neither the argument, with a graph of its own, nor a leaf."""
    thrice = layer(lambda ctx, x: hands(x), lambda ctx, dy: dy * 3.0)
    x = leaf(1.0, 2.0)
    z = x * 1.0
    y = thrice.apply(z)
    y.mul_(2.0)
    (z * z + y).sum().backward()
    assert z.tolist() == [1.0, 2.0] and y.tolist() == [2.0, 4.0] and x.grad.tolist() == [8.0, 10.0]
    thrice.apply(x).add_(1.0)
    with dygraph.no_grad():
        thrice.apply(x).add_(1.0)
    assert x.tolist() == [1.0, 2.0]


def test_one_result_twice() -> None:
    x = leaf(1.0)

    def twice(ctx: Any, x: Any) -> Any:
        y = x * 2.0
        return y, y

    y, z = layer(twice, lambda ctx, dy, dz: dy * 2.0 + dz * 2.0).apply(x)
    y.mul_(5.0)
    (y + z).backward()
    assert (y.tolist(), z.tolist(), x.grad.tolist()) == ([10.0], [2.0], [12.0])


def double(ctx: Any, x: Any) -> Any:
    ctx.mark_dirty(x)
    return x.mul_(2.0)


def test_an_argument_that_forward_modifies() -> None:
    made = layer(double, lambda ctx, dy: dy * 2.0)
    x = leaf(1.0, 2.0)
    z = x * 1.0
    old = z * z
    assert made.apply(z) is z and z.grad_fn is not None and z.grad_fn.name == "Made_backward"
    with pytest.raises(BackwardError, match="modified in place"):
        old.sum().backward()
    (z * z).sum().backward()
    assert x.grad.tolist() == [8.0, 16.0]  # of (2 x)^2
    constant = Tensor([1.0])
    assert made.apply(constant) is constant and constant.stop_gradient and constant.tolist() == [2.0]


def test_what_is_wrong_with_modified_arguments() -> None:
    quietly = layer(lambda ctx, x: x.mul_(2.0) * 1.0, lambda ctx, dy: dy * 2.0)
    with pytest.raises(BackwardError, match=r"Made.forward modified its argument 0 in place(.|\n)*ctx.mark_dirty"):
        quietly.apply(leaf(1.0) * 1.0)
    with dygraph.no_grad():
        assert quietly.apply(Tensor([1.0])).tolist() == [2.0]  # nothing is recorded that could be wrong
    with pytest.raises(BackwardError, match="is a leaf that requires a gradient"):
        layer(double, lambda ctx, dy: dy).apply(leaf(1.0))
    with pytest.raises(ProgramError, match="mark_dirty is for arguments of forward"):
        layer(lambda ctx, x: ctx.mark_dirty(x * 1.0) or x * 2.0, lambda ctx, dy: dy).apply(leaf(1.0))
    with pytest.raises(ProgramError, match="should be among the results"):
        layer(lambda ctx, x: double(ctx, x) * 1.0, lambda ctx, dy: dy).apply(leaf(1.0) * 1.0)


def test_results_that_are_no_tensors() -> None:
    """`backward` is given None for them."""
    seen: list[Any] = []

    def backward(ctx: Any, *grads: Any) -> Any:
        seen.append([grad if grad is None else grad.tolist() for grad in grads])
        return grads[1] * 2.0 + grads[3] * 3.0

    made = layer(lambda ctx, x: (None, x * 2.0, "text", x * 3.0), backward)
    x = leaf(1.0)
    none, y, text, z = made.apply(x)
    assert none is None and text == "text"
    z.backward(retain_graph=True)
    (y * z).backward()
    assert seen == [[None, [0.0], None, [1.0]], [None, [3.0], None, [2.0]]] and x.grad.tolist() == [15.0]
    assert layer(lambda ctx, x: 1.5, lambda ctx, dy: None).apply(x) == 1.5
    made.apply(x)[3].program()  # can be shown


def cube(ctx: Any, x: Any) -> Any:
    ctx.save_for_backward(x)
    return x * x * x


def by_numpy(ctx: Any, dy: Any) -> Any:
    (x,) = ctx.saved_tensor()
    return Tensor(dy.numpy() * 3.0 * x.numpy() ** 2)


def by_ops(ctx: Any, dy: Any) -> Any:
    (x,) = ctx.saved_tensor()
    return dy * x * x * 3.0


@each("backward", [by_numpy, dygraph.once_differentiable(by_ops)], ids=["numpy", "decorated"])
def test_a_backward_that_is_not_recorded_cannot_be_differentiated(backward: Any) -> None:
    made = layer(cube, backward)
    x = leaf(2.0)
    (first,) = dygraph.grad(made.apply(x), x, create_graph=True)
    assert first.tolist() == [12.0]
    for weight in (None, leaf(1.0)):
        (first,) = dygraph.grad(made.apply(x), x, weight, create_graph=True)
        with pytest.raises(BackwardError, match=r"Made_backward: gradient 0 (.|\n)*test_eager_pylayer"):
            dygraph.grad(first, x)
    with pytest.raises(BackwardError, match="Made_backward: gradient 0 "):
        dygraph.hvp(lambda x: made.apply(x).sum(), x)
    with pytest.raises(BackwardError, match="Made_backward: gradient 0 "):
        dygraph.jvp(made.apply, x)
    made.apply(x).backward()
    assert x.grad.tolist() == [12.0]


def test_a_backward_by_ops_can_be() -> None:
    x = leaf(2.0)
    (first,) = dygraph.grad(layer(cube, by_ops).apply(x), x, create_graph=True)
    (second,) = dygraph.grad(first, x, create_graph=True)
    (third,) = dygraph.grad(second, x)
    np.testing.assert_allclose([second.item(), third.item()], [12.0, 6.0])
    linear = layer(lambda ctx, x: x * 2.0, lambda ctx, dy: dy * 2.0)
    (slope,) = dygraph.grad((linear.apply(x) * x).sum(), x, create_graph=True)
    assert dygraph.grad(slope, x)[0].tolist() == [4.0]
    (slope,) = dygraph.grad(linear.apply(x), x, create_graph=True)
    assert dygraph.grad(slope * x, x)[0].tolist() == [2.0]
