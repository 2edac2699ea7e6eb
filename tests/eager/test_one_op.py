"""Functions of tensors that are kept as one op: see `fluid.eager.one_op`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
from checks import each

import fluid
from fluid import dygraph, layers
from fluid.eager.one_op import one_op
from fluid.eager.tensor import Tensor
from fluid.layers import arguments


def tensor(*shape: int, seed: int = 0, **kwargs: Any) -> Tensor:
    return Tensor(np.random.default_rng(seed).uniform(0.2, 0.9, shape).astype("float32"), **kwargs)


class Counted:
    """A function, and how often it ran in full."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.count = 0

        def counting(*args: Any, **kwargs: Any) -> Any:
            self.count += 1
            return function(*args, **kwargs)

        self.call = one_op(counting)


LAYERS: dict[str, Callable[..., Any]] = {
    "tanh": layers.tanh,
    "softmax": layers.softmax,
    "concat": lambda x, y: layers.concat([x, y], axis=1),
    "reshape": lambda x, y: layers.reshape(y, [3, 2]),
    "transpose": lambda x, y: layers.transpose(x, perm=[1, 0]),
    "scale": lambda x, y: layers.scale(y, scale=0.5, bias=1.0),
    "add": lambda x, y: layers.elementwise_add(y, x),
    "sum": lambda x, y: layers.reduce_sum(x, dim=1, keep_dim=True),
    "row": lambda x, y: x[1],
    "column": lambda x, y: y[:, 1:],
    "rows": lambda x, y: x[[1, 0, 1]],
    "method": lambda x, y: y.reshape(-1),
}


@each("name", LAYERS)
def test_a_second_call_is_the_op_alone(name: str) -> None:
    """With other elements it gives other results, and gradients, without a look at the arguments' meaning."""
    layer = LAYERS[name] if name not in ("tanh", "softmax") else lambda x, y: LAYERS[name](x)

    def run(seed: int) -> list[Any]:
        x, y = (tensor(2, 3, seed=seed + part, stop_gradient=False) for part in (0, 1))
        out = layer(x, y)
        (out * out).sum().backward()
        return [out.numpy(), *(None if leaf.grad is None else leaf.grad.numpy() for leaf in (x, y))]

    run(0)
    with patch.object(arguments, "held", side_effect=AssertionError("in full")):
        short = run(7)
    with patch.object(arguments, "on_tensors", None):
        in_full = run(7)
    for one, other in zip(short, in_full, strict=True):
        np.testing.assert_array_equal(one, other)


def test_the_op_depends_on_types_and_on_arguments() -> None:
    run = Counted(lambda x, factor: layers.scale(x, scale=factor))
    x = tensor(2, 3)
    for factor in (2.0, 3.0, 2.0):
        np.testing.assert_allclose(run.call(x, factor).numpy(), x.numpy() * factor, rtol=1e-6)
    assert run.count == 2
    assert run.call(tensor(3), 2.0).shape == (3,) and run.count == 3
    part = Counted(lambda x, bounds: x[bounds])
    x = Tensor(np.arange(12, dtype="float32").reshape(4, 3))
    for index in (1, True, slice(1, 3), slice(0, 3), slice(None, 3), [1, 2], (1, 2), [True, False, True, False], 1, slice(1, 3)):
        np.testing.assert_array_equal(part.call(x, index).numpy(), np.array(x.numpy()[index], ndmin=1), str(index))
    assert [bool(np.signbit(layers.pow(tensor(1), factor=0.0).numpy() * zero)) for zero in (0.0, -0.0)] == [False, True]


def test_whether_gradients_flow_is_asked_again() -> None:
    """A layer that cuts the gradient does so also if it had nothing to cut in its first call."""

    def cut(x: Tensor) -> Tensor:
        out = layers.tanh(x)
        out.stop_gradient = True
        return out

    run = one_op(cut)
    assert run(tensor(2)).stop_gradient and run(tensor(2, stop_gradient=False)).stop_gradient
    assert run(tensor(2)).stop_gradient and run(tensor(2, stop_gradient=False)).stop_gradient
    x = tensor(2, stop_gradient=False)
    with dygraph.no_grad():
        assert layers.tanh(x).stop_gradient
    assert not layers.tanh(x).stop_gradient


def test_what_intercepts_ops_sees_those_that_are_kept() -> None:
    x = tensor(2, 3, stop_gradient=False)
    seen: list[Any] = []
    for _ in range(2):
        with dygraph.saved_tensors_hooks(lambda value: seen.append(value) or value, lambda value: value):
            y = layers.softmax(x)
        y.sum().backward()
    assert len(seen) == 2


def test_a_tensor_in_two_places() -> None:
    run = Counted(lambda x, y: x - y)
    x, y = tensor(2), tensor(2, seed=1)
    assert not run.call(x, x).numpy().any()
    np.testing.assert_array_equal(run.call(x, y).numpy(), x.numpy() - y.numpy())
    np.testing.assert_array_equal(run.call(y, x).numpy(), y.numpy() - x.numpy())
    assert run.count == 2


def two_ops(x: Tensor) -> Tensor:
    return layers.tanh(layers.tanh(x))


def by_value(x: Tensor) -> Tensor:
    return layers.tanh(x) if float(x.numpy().sum()) > 0 else layers.scale(x, 3.0)


def with_data(x: Tensor) -> Tensor:
    return x + Tensor(np.array([1.0], "float32"))


def in_place(x: Tensor) -> Tensor:
    y = layers.scale(x, 2.0)
    x.set_value(y)
    return y


def of_another(x: Tensor) -> Tensor:
    return x * OUTSIDE


OUTSIDE = tensor(2, seed=3)


@each("function", [two_ops, by_value, with_data, in_place, of_another])
def test_more_than_one_op_runs_in_full(function: Callable[[Tensor], Tensor]) -> None:
    run = Counted(function)
    for sign in (1, -1, 1):
        x, twin = (Tensor(tensor(2).numpy() * sign) for _ in range(2))
        np.testing.assert_array_equal(run.call(x).numpy(), function(twin).numpy())
        np.testing.assert_array_equal(x.numpy(), twin.numpy())
    assert run.count >= 3


def test_random_numbers_are_drawn_as_without() -> None:
    """Also by a function that draws, and then turns out to be more than an op, so that it is called again."""

    def drawn(decorate: Callable[..., Any]) -> list[Any]:
        def noisy(x: Tensor) -> Tensor:
            y = layers.dropout(x, 0.5)
            return y if y.numpy().sum() < 1e9 else x

        fluid.dygraph.seed(5)
        run, x = decorate(noisy), tensor(50)
        return [run(x).numpy() for _ in range(3)] + [layers.dropout(x, 0.5).numpy() for _ in range(3)]

    kept, plain = drawn(one_op), drawn(lambda function: function)
    for one, other in zip(kept, plain, strict=True):
        np.testing.assert_array_equal(one, other)
    assert not np.array_equal(kept[3], kept[4])


def test_an_error_names_the_layer_each_time() -> None:
    for _ in range(3):
        with pytest.raises(fluid.errors.FluidError, match="concat"):
            layers.concat([tensor(2, 3), tensor(3, 2)], axis=0)
    with pytest.raises(fluid.errors.FluidTypeError, match="reshape: shape should be"):
        layers.reshape(tensor(2, 3), 3.5)


def test_a_layer_without_tensors_goes_by_the_mode() -> None:
    """Earlier tensors of eager mode do not make the layer create tensors in a program."""
    with dygraph.guard():
        for _ in range(3):
            assert isinstance(layers.fill_constant([1], "int64", 1), Tensor)
    assert not isinstance(layers.fill_constant([1], "int64", 1), Tensor)
