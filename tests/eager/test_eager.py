"""Tensors, the recorded graph and the engine."""

from __future__ import annotations

import copy
import gc
import operator
import pickle
import re
import sys
import threading
import time
import warnings
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from checks import each

import fluid
from fluid import dygraph, layers
from fluid.dygraph import Tensor, backward, enable_grad, grad, no_grad, ops, set_grad_enabled
from fluid.eager import engine as engine_module
from fluid.eager.engine import GraphTask, InputBuffer, engine
from fluid.errors import BackwardError, ExecutionError, FluidError, FluidTypeError, InferenceError, ProgramError
from fluid.opdef import registry
from fluid.opdef.registry import NOT_DIFFERENTIABLE

HERE = __file__


def leaf(*shape: int, seed: int = 0) -> Tensor:
    return Tensor(np.random.default_rng(seed).standard_normal(shape), stop_gradient=False)


# ------------------------------------------------------------------------------------------------------------- tensors
def test_what_a_tensor_says_of_itself() -> None:
    x = Tensor([[1.0, 2.0, 3.0]])
    assert (x.shape, x.ndim, x.size, x.dtype.text, x.device, x.is_leaf, x.grad_fn, x.grad) == (
        (1, 3), 2, 3, "float32", "cpu", True, None, None,
    )  # fmt: skip
    assert x.stop_gradient and not x.requires_grad
    assert Tensor([1, 2]).dtype.text == "int64"
    assert Tensor([1, 2], dtype="float64").dtype.text == "float64"
    assert Tensor(np.ones(2)).dtype.text == "float64"
    assert len(x) == 1
    assert [row.tolist() for row in Tensor([[1, 2], [3, 4]])] == [[1, 2], [3, 4]]
    assert "stop_gradient" not in repr(x)


def test_repr_shows_value_and_grad_fn() -> None:
    x = Tensor([1.0, 2.0], stop_gradient=False)
    assert repr(x) == "Tensor([1., 2.], shape=[2], dtype=float32, stop_gradient=False)"
    assert repr(x.tanh() * 0.0) == "Tensor([0., 0.], shape=[2], dtype=float32, grad_fn=<scale_grad>)"


def test_numbers() -> None:
    assert Tensor([2.5]).item() == 2.5
    assert Tensor([[1.0, 2.0]]).item(0, 1) == 2.0
    assert float(Tensor(2.0)) == 2.0 and int(Tensor([3])) == 3 and bool(Tensor([1]))
    assert [10, 20, 30][Tensor(1)] == 20
    assert f"{Tensor([0.125]):.2f}" == "0.12"
    with pytest.raises(ProgramError, match=r"item\(\) of float32\[2\]: there are 2 elements"):
        Tensor([1.0, 2.0]).item()
    with pytest.raises(ProgramError, match=r"float32\[2\] cannot become float: it has 2 elements"):
        float(Tensor([1.0, 2.0]))
    with pytest.raises(FluidTypeError, match=r"float32.* cannot be an index"):
        [1, 2][Tensor(1.0)]
    with pytest.raises(FluidTypeError, match="no length"):
        len(Tensor(1.0))


def test_data_is_copied_unless_it_is_to_be_shared() -> None:
    array = np.zeros(3, np.float32)
    copied, shared = Tensor(array), Tensor(array, copy=False)
    array[0] = 7
    assert copied.tolist() == [0, 0, 0]
    assert shared.tolist() == [7, 0, 0]
    out = copied.numpy()
    out[0] = 5
    assert copied.tolist() == [0, 0, 0]


def test_as_numpy_array_it_cannot_be_written_to() -> None:
    x = Tensor([1.0, 2.0])
    array = np.asarray(x)
    assert np.shares_memory(array, x._array)
    with pytest.raises(ValueError, match="read-only"):
        array[0] = 3
    assert np.asarray(x, "float64").dtype == np.float64
    assert isinstance(np.ones(2, "float32") + x, Tensor)


def test_memory_that_may_only_be_read() -> None:
    array = np.ones(3, "float32")
    array.flags.writeable = False
    x = dygraph.from_dlpack(array)
    assert (x + x.tanh()).shape == (3,)
    changes: list[tuple[str, Callable[[], Any]]] = [
        ("elementwise_add_", lambda: x.add_(x)),
        ("setitem", lambda: x.__setitem__(0, 2.0)),
        ("set_value", lambda: x.set_value([1.0, 2.0, 3.0])),
        ("fill_any_like_", lambda: x.fill_(1.0)),
    ]
    for by, change in changes:
        with pytest.raises(ProgramError, match=rf"{by}: .* shares the memory of a read-only array .* its clone\(\)"):
            change()
    assert x.clone().add_(x).tolist() == [2.0, 2.0, 2.0]


def test_dlpack_shares_memory_with_numpy() -> None:
    x = Tensor([1.0, 2.0])
    array = np.from_dlpack(x)
    assert np.shares_memory(array, x._array)
    back = dygraph.from_dlpack(array)
    assert np.shares_memory(back._array, x._array)
    assert x.__dlpack_device__() == (1, 0)
    with pytest.raises(FluidTypeError, match="list has no __dlpack__"):
        dygraph.from_dlpack([1.0])


class Elsewhere:
    """An array on a device of some kind."""

    def __init__(self, kind: int) -> None:
        self.kind = kind

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.kind, 0


def test_dlpack_of_devices_that_are_not_here() -> None:
    with pytest.raises(FluidTypeError, match="Elsewhere lies on a device of DLPack's kind 8; move it to the CPU"):
        dygraph.from_dlpack(Elsewhere(8))
    with pytest.raises((ExecutionError, AttributeError), match=r"cupy, which is not installed|__dlpack__"):
        dygraph.from_dlpack(Elsewhere(2))


def test_dlpack_shares_the_memory_of_a_scope() -> None:
    tensor = fluid.LoDTensor()
    with pytest.raises(ExecutionError, match="holds nothing yet"):
        np.from_dlpack(tensor)
    tensor.set(np.ones(3, "float32"))
    assert np.shares_memory(np.from_dlpack(tensor), tensor.array)
    assert np.shares_memory(dygraph.from_dlpack(tensor)._array, tensor.array)


def test_pickle_and_deepcopy() -> None:
    x = leaf(2)
    x.name = "x"
    again = pickle.loads(pickle.dumps(x))
    assert again.name == "x" and not again.stop_gradient and np.array_equal(again.numpy(), x.numpy())
    other = copy.deepcopy(x)
    other.set_value([0.0, 0.0])
    assert not np.array_equal(other.numpy(), x.numpy())
    with pytest.raises(ProgramError, match=r"was computed by tanh_grad; only leaves can be deep-copied"):
        copy.deepcopy(x.tanh())


def test_operators() -> None:
    a, b = np.array([1.5, -2.0]), np.array([2.0, 3.0])
    x, y = Tensor(a), Tensor(b)
    for found, expected in [
        (x + y, a + b), (x - y, a - b), (x * y, a * b), (x / y, a / b), (x**2.0, a**2), (-x, -a), (abs(x), abs(a)),
        (1.0 - x, 1 - a), (2.0 / y, 2 / b), (x + 1, a + 1), (x * 0.5, a * 0.5), (b + x, a + b), (x < y, a < b), (x >= y, a >= b),
        (x @ y, a @ b), (x % y, a % b), ((x < y) & (y > 2.5), (a < b) & (b > 2.5)), (~(x < y), ~(a < b)),
    ]:  # fmt: skip
        np.testing.assert_allclose(found.numpy(), expected)
    assert x.T.shape == (2,)
    assert Tensor(np.zeros((2, 3))).transpose(1, 0).shape == (3, 2)


def test_methods() -> None:
    a = np.random.default_rng(0).uniform(0.5, 1.0, (2, 3))
    x = Tensor(a)
    for found, expected in [
        (x.sum(), a.sum()), (x.sum(0), a.sum(0)), (x.mean((0, 1), keepdim=True), a.mean(keepdims=True)), (x.max(1), a.max(1)),
        (x.min(), a.min()), (x.prod(0), a.prod(0)), (x.exp(), np.exp(a)), (x.reshape(3, -1), a.reshape(3, 2)),
        (x.reshape([6]), a.reshape(6)), (x.unsqueeze(0), a[None]), (x.sqrt(), np.sqrt(a)),
        (x.astype("float32"), a.astype("float32")),
        (x[:, :1].reshape(2), a[:, 0]),
    ]:  # fmt: skip
        np.testing.assert_allclose(found.numpy().reshape(np.shape(expected)), expected)
    with pytest.raises(ProgramError, match=r"float64\[2, 3\] cannot have the shape \[4, -1\]: it has 6 elements"):
        x.reshape(4, -1)
    assert Tensor([1.0]).reshape([]).shape == ()


A = np.random.default_rng(1).standard_normal((4, 6)).round(3)
POSITIVE = A > 0
METHODS: dict[str, tuple[Any, Any]] = {
    "add": (lambda x: x.add(1.0).sub(2.0).mul(3.0).div(4.0), (A - 1.0) * 3.0 / 4.0),
    "bmm": (lambda x: x.bmm(x.t()), A @ A.T),
    "chunk": (lambda x: x.chunk(4, dim=1)[2], A[:, 4:6]),
    "compare": (lambda x: x.gt(0.0).eq(x.le(0.0)).ne(x.ge(0.0)), POSITIVE),
    "contiguous": (lambda x: x.contiguous().copy(), A),
    "cumsum": (lambda x: x.cumsum(dim=0), A.cumsum(0)),
    "dot": (lambda x: x[0].dot(x[1]), A[0] @ A[1]),
    "flatten": (lambda x: x.flatten(start_dim=0, end_dim=1), A.ravel()),
    "flip": (lambda x: x.flip(0, 1), A[::-1, ::-1]),
    "index_select": (lambda x: x.index_select(1, Tensor(np.array([5, 0]))), A[:, [5, 0]]),
    "is": (lambda x: (x / x.relu()).isfinite(), POSITIVE),
    "isinf": (lambda x: (x / x.relu()).isinf(), ~POSITIVE),
    "isnan": (lambda x: x.isnan(), np.isnan(A)),
    "log_softmax": (lambda x: x.log_softmax(1).exp().sum(dim=1), np.ones(4)),
    "masked_fill": (lambda x: x.masked_fill(x[:1] > 0.0, 7.0), np.where(POSITIVE[:1], 7.0, A)),
    "masked_select": (lambda x: x.masked_select(x > 0.0), A[POSITIVE]),
    "mean": (lambda x: x.mean(dim=1, keepdims=True), A.mean(1, keepdims=True)),
    "norm": (lambda x: x.norm(), np.linalg.norm(A)),
    "norm of columns": (lambda x: x.norm(1, dim=0), np.abs(A).sum(0)),
    "pow": (lambda x: x.pow(2), A**2),
    "ravel": (lambda x: x.ravel(), A.ravel()),
    "softmax": (lambda x: x.softmax(dim=0).sum(0), np.ones(6)),
    "sort": (lambda x: x.sort(descending=True)[0], -np.sort(-A)),
    "swapaxes": (lambda x: x.swapaxes(-1, 0), A.T),
    "tile": (lambda x: x.tile(2, 1), np.tile(A, (2, 1))),
    "tril": (lambda x: x.tril() + x.triu(1), A),
    "type_as": (lambda x: x.int().type_as(x), np.trunc(A)),
    "unbind": (lambda x: x.unbind(1)[3], A[:, 3]),
    "var": (lambda x: x.var(dim=0), A.var(0, ddof=1)),
    "where": (lambda x: x.where(x > 0.0, 0.0), np.maximum(A, 0.0)),
}


@each("name", METHODS)
def test_methods_that_torch_and_numpy_have(name: str) -> None:
    method, expected = METHODS[name]
    for kind in (Tensor, fluid.numpy.NDArray):
        result = method(kind(A))
        assert type(result) is kind
        np.testing.assert_allclose(result.numpy().reshape(np.shape(expected)), expected, rtol=1e-12, atol=1e-12)


def test_names_that_are_no_methods_say_what_to_write() -> None:
    x = Tensor([1.0, 2.0])
    for name, advice in [
        ("split", "x.chunk"),
        ("repeat", "x.tile"),
        ("nonzero", "layers.where"),
        ("sofmax", "did you mean softmax"),
    ]:
        with pytest.raises(AttributeError, match=f"'Tensor' has no attribute '{name}'.*{advice}"):
            getattr(x, name)
    assert not hasattr(x, "__array_interface__")
    with pytest.raises(TypeError, match=r"the shape of a tensor cannot be changed; change a copy, list\(x.shape\)"):
        x.shape[0] = 3  # type: ignore[index]


# ------------------------------------------------------------------------------------------------------------- indexing
INDICES = [
    0, -1, slice(1, 3), (slice(None), 2), (Ellipsis, 1), (None, 0), (1, 2), [0, 2], (slice(None, None, 2),),
    np.array([[0, 1], [2, 2]]), (np.array([0, 1]), np.array([1, 3])), np.arange(12).reshape(3, 4) > 5, (slice(2, 1),), Ellipsis,
]  # fmt: skip


@each("index", INDICES, ids=str)
def test_getitem(index: Any) -> None:
    x = leaf(3, 4)
    found, expected = x[index], x.numpy()[index]
    assert np.array_equal(found.numpy().reshape(expected.shape), expected)
    assert found.shape == (expected.shape or (1,))
    gradient = np.zeros((3, 4))
    np.add.at(gradient, index, 1.0)
    if found.size:
        assert np.array_equal(grad(found.sum(), x)[0].numpy(), gradient)


@each("index", INDICES, ids=str)
def test_setitem(index: Any) -> None:
    x, array = leaf(3, 4), leaf(3, 4).numpy()
    shape = array[index].shape
    value = leaf(*shape, seed=1)
    y = x * 1.0
    y[index] = value
    array[index] = value.numpy()
    assert np.array_equal(y.numpy(), array)
    changed = np.zeros((3, 4))
    changed[index] = 1.0
    by_x, by_value = grad((y * y).sum() * 0.5, [x, value], allow_unused=True)
    np.testing.assert_allclose(by_x.numpy(), np.where(changed, 0.0, x.numpy()))
    if by_value is not None and (not isinstance(index, np.ndarray) or index.dtype == bool):
        np.testing.assert_allclose(by_value.numpy(), value.numpy())
    plain = Tensor(x.numpy())
    plain[index] = value.numpy()
    assert np.array_equal(plain.numpy(), array)


def test_setitem_with_numbers_and_broadcasting() -> None:
    y = leaf(3, 4) * 1.0
    y[0] = 2.0
    y[:, 1] = leaf(1)
    assert y[0].tolist() == [2.0, leaf(1).item(), 2.0, 2.0]


def test_errors_of_indexing() -> None:
    x = Tensor(np.zeros((2, 3), "float32"))
    with pytest.raises(ProgramError, match=r"index 2 is outside dimension 0 of float32\[2, 3\]"):
        x[2]
    with pytest.raises(IndexError):
        x[0, 5]
    with pytest.raises(ProgramError, match=r"has 2 dimensions; these are too many indices: 0, 0, 0"):
        x[0, 0, 0]
    with pytest.raises(ProgramError, match=r"cannot be indexed in this way"):
        x[[0, 5], 0]
    with pytest.raises(IndexError, match=r"index 5 is outside dimension 0 of float32\[2, 3\]"):
        x[[0, 5]]
    with pytest.raises(FluidTypeError, match=r"float32\[2, 3\] cannot hold float64\[3\]; use astype"):
        x[0] = np.zeros(3)
    with pytest.raises(ProgramError, match=r"cannot be assigned to in this way"):
        x[0] = np.zeros(2, "float32")
    x.stop_gradient = False
    y = x * 1.0
    with pytest.raises(ProgramError, match=r"float32\[2\] does not fit into \[3\] elements of float32\[2, 3\]"):
        y[0] = np.zeros(2, "float32")


# ------------------------------------------------------------------------------------------------------------ the graph
def test_nodes_and_edges() -> None:
    x, w = leaf(2, 3), leaf(3, 4)
    h = x @ w
    y = h.tanh()
    node = y.grad_fn
    assert node is not None and node.name == "tanh_grad" and not y.is_leaf and not y.stop_gradient
    (edge,) = node.next_edges
    assert edge.node is h.grad_fn and edge.input_nr == 0
    assert h.grad_fn is not None
    first, second = h.grad_fn.next_edges
    assert isinstance(first.node, dygraph.AccumulateGrad) and first.node.variable is x
    assert second.node.variable is w
    assert node.sequence_nr > h.grad_fn.sequence_nr
    assert (node.topological_nr, h.grad_fn.topological_nr, first.node.topological_nr) == (2, 1, 0)
    assert node.input_metadata == (((2, 4), h.dtype, "cpu"),)
    assert f"{HERE}:" in node.where and "in test_nodes_and_edges" in node.where
    assert Tensor([1.0]).tanh().grad_fn is None


def test_a_node_can_be_called() -> None:
    x = leaf(3)
    y = x.tanh()
    assert y.grad_fn is not None
    with no_grad():
        found = y.grad_fn(Tensor(np.ones(3)))
    np.testing.assert_allclose(found.numpy(), 1 - np.tanh(x.numpy()) ** 2)
    assert found.stop_gradient
    recorded = y.grad_fn(Tensor(np.ones(3)))
    assert not recorded.stop_gradient
    parts = ops.split(x, num=3, axis=0)
    with no_grad():
        assert parts[0].grad_fn(Tensor([2.0], "float64"), None, None).tolist() == [2.0, 0.0, 0.0]
    with pytest.raises(BackwardError, match="_grad takes 3 gradients, not 1"):
        parts[0].grad_fn(Tensor([2.0], "float64"))


def test_leaves_hold_their_node_weakly() -> None:
    x = leaf(2)
    y = x * 2.0
    assert y.grad_fn is not None
    node = weakref.ref(y.grad_fn.next_edges[0].node)
    assert (x + x).grad_fn.next_edges[0].node is node()
    del y
    assert node() is None


def test_whole_numbers_and_comparisons_stop_gradients() -> None:
    x = leaf(3)
    assert (x < 0.0).stop_gradient
    assert x.astype("int64").stop_gradient
    assert (x // x).stop_gradient
    with pytest.raises(FluidTypeError, match=r"int64\[2\] cannot have a gradient"):
        Tensor([1, 2], stop_gradient=False)


def test_detach_and_clone() -> None:
    x = leaf(2)
    y = x * 2.0
    assert y.detach().is_leaf and y.detach().stop_gradient and np.shares_memory(y.detach()._array, y._array)
    copied = y.clone()
    assert not np.shares_memory(copied._array, y._array)
    (y.detach() * x + copied).sum().backward()
    np.testing.assert_allclose(x.grad.numpy(), 2 * x.numpy() + 2)


def test_stop_gradient_cuts() -> None:
    x = leaf(2)
    y = x * 2.0
    y.stop_gradient = True
    assert y.grad_fn is None
    (y + x).sum().backward()
    assert x.grad.tolist() == [1, 1]


def test_modes() -> None:
    x = leaf(2)
    with no_grad():
        assert (x * 2.0).stop_gradient
        with enable_grad():
            assert not (x * 2.0).stop_gradient
        assert not dygraph.is_grad_enabled()
    assert dygraph.is_grad_enabled()

    @no_grad
    def plain(value: Tensor) -> Tensor:
        """Doubles."""
        return value * 2.0

    @no_grad()
    def called(value: Tensor) -> Tensor:
        return value * 2.0

    @set_grad_enabled(False)
    def off(value: Tensor) -> Tensor:
        return value * 2.0

    assert all(function(x).stop_gradient for function in (plain, called, off))
    assert plain.__doc__ == "Doubles."
    assert dygraph.is_grad_enabled()
    with set_grad_enabled(False):
        assert (x * 2.0).stop_gradient
    assert dygraph.is_grad_enabled()
    set_grad_enabled(False)
    try:
        assert not dygraph.is_grad_enabled()
        seen = []
        thread = threading.Thread(target=lambda: seen.append(dygraph.is_grad_enabled()))
        thread.start()
        thread.join()
        assert seen == [True]  # each thread has its own
    finally:
        set_grad_enabled(True)


# ------------------------------------------------------------------------------------------------------------- backward
def test_gradients_add_up_in_leaves() -> None:
    x = leaf(3)
    (x * x).sum().backward()
    kept = x.grad
    np.testing.assert_allclose(x.grad.numpy(), 2 * x.numpy())
    (x * x).sum().backward()
    np.testing.assert_allclose(x.grad.numpy(), 4 * x.numpy())
    assert x.grad is kept
    np.testing.assert_allclose(x.gradient(), 4 * x.numpy())
    x.clear_gradient()
    assert x.grad is None and x.gradient().tolist() == [0.0] * 3  # as in Fluid 1.6


class Doubled(dygraph.PyLayer):
    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        return x * 2.0

    @staticmethod
    def backward(ctx: Any, dy: Any) -> Any:
        return dy * 2.0


def written(x: Any) -> Any:
    layer = dygraph.Layer("scale")
    out = layer.create_variable()
    layer._helper.append_op("scale", inputs={"X": [x]}, outputs={"Out": [out]}, attrs={"scale": 2.0})
    return out


def hooked(x: Any) -> Any:
    layer = dygraph.LayerOf(lambda y: y * 2.0)
    layer.register_backward_hook(lambda layer, inputs, outputs: None)
    return layer(x)


COMPUTED = {
    "an op": lambda x: x * 2.0,
    "one of several outputs": lambda x: ops.split(x * 2.0, num=2, axis=0)[0],
    "the output of a PyLayer": Doubled.apply,
    "the output of recompute": lambda x: dygraph.recompute(lambda y: y * 2.0, x),
    "modified in place": lambda x: (x + 0.0).scale_(2.0),
    "augmented": lambda x: operator.iadd(x + 0.0, x),
    "written by an op": written,
    "the output of a layer with backward hooks": hooked,
}


@each("what", COMPUTED)
def test_tensors_keep_their_gradients_inside_a_guard(what: str) -> None:
    """Scripts of Fluid 1.6 read the gradients of tensors that are no leaves."""
    with dygraph.guard():
        x = leaf(4)
        y = COMPUTED[what](x)
        assert y.gradient() is None  # without a warning, as backward has not run
        loss = (y * y).sum()
        loss.backward(retain_graph=True)
        np.testing.assert_allclose(y.gradient(), 2 * y.numpy(), rtol=1e-6)
        assert float(loss.gradient()) == 1.0 and not y.retains_grad
        before = y.gradient()
        dygraph.grad(loss, x, retain_graph=True)
        np.testing.assert_array_equal(y.gradient(), before)  # which gives gradients, and keeps none
        loss.backward()
        np.testing.assert_allclose(y.gradient(), 4 * y.numpy(), rtol=1e-6)
        y.clear_gradient()
        assert y.grad is None


def test_a_gradient_kept_inside_a_guard_costs_nothing_where_nobody_holds_the_tensor() -> None:
    x = leaf(3)
    with dygraph.guard():
        first = x * 2.0
        nodes = [first.grad_fn]
        asked = first.exp()
        asked.retain_grads()
        asked.register_hook(lambda grad: grad * 0.5)
        changed = x * 3.0
        changed += asked
        loss = changed.sum()
        del first
        loss.backward()
    np.testing.assert_allclose(asked.gradient(), 0.5)  # once, though both ways keep it, and after the hook
    assert changed.gradient().tolist() == [1.0, 1.0, 1.0]  # of the final elements
    assert [node._keepers() for node in nodes] == [None]
    outside = x * 2.0
    outside.sum().backward()
    assert outside.grad is None and outside.grad_fn._keepers is None


def test_a_gradient_that_was_not_kept_is_told() -> None:
    """Fluid 1.6 kept the gradients of all tensors, and so does a guard here."""
    x = leaf(3)
    asked, other = x * 2.0, x * 3.0
    asked.retain_grads()
    (asked * other).sum().backward()
    np.testing.assert_allclose(asked.gradient(), 3 * x.numpy())
    with pytest.warns(UserWarning, match=r"is computed by scale.* keeps its gradient .*retain_grads\(\) before backward"):
        assert other.gradient() is None
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert Tensor([1.0]).gradient() is None and leaf(2).gradient() is None


def test_backward_of_several_with_weights() -> None:
    x = leaf(3)
    weight = Tensor([1.0, 2.0, 3.0], "float64")
    y, z = x * 2.0, x * x
    backward([y, z], [weight, None])
    np.testing.assert_allclose(x.grad.numpy(), 2 * weight.numpy() + 2 * x.numpy())
    x.backward(weight)
    weight.zero_()
    np.testing.assert_allclose(x.grad.numpy(), 2 * np.array([1, 2, 3]) + 2 * x.numpy() + np.array([1, 2, 3]))
    other = leaf(2)
    weight = Tensor([5.0, 6.0], "float64")
    other.backward(weight)
    assert not np.shares_memory(other.grad._array, weight._array)


def test_backward_into_some_inputs() -> None:
    x, w = leaf(3), leaf(3, seed=1)
    h = x * w
    (h * h).sum().backward(inputs=[x, h])
    np.testing.assert_allclose(x.grad.numpy(), 2 * x.numpy() * w.numpy() ** 2)
    np.testing.assert_allclose(h.grad.numpy(), 2 * h.numpy())
    assert w.grad is None
    with pytest.raises(ProgramError, match="inputs is empty"):
        x.sum().backward(inputs=[])


def test_an_output_that_is_an_input_of_another() -> None:
    x = leaf(2)
    y = x * 2.0
    z = y * y
    found_y, found_x = grad([y, z], [y, x])
    np.testing.assert_allclose(found_y.numpy(), 1 + 2 * y.numpy())
    np.testing.assert_allclose(found_x.numpy(), 2 * (1 + 2 * y.numpy()))
    assert grad(x, x)[0].tolist() == [1, 1]


def test_grad_writes_nothing_and_runs_only_what_lies_between() -> None:
    x, w = leaf(2), leaf(2, seed=1)
    ran = []
    deep = w.tanh()
    deep.register_hook(lambda g: ran.append("deep"))
    h = x * deep
    (found,) = grad(h.sum(), x)
    np.testing.assert_allclose(found.numpy(), np.tanh(w.numpy()))
    assert x.grad is None and w.grad is None and ran == []


def test_no_grad_vars() -> None:
    x = leaf(2)
    h = x * 3.0
    y = h * x
    (found,) = grad(y.sum(), x, retain_graph=True, no_grad_vars=[h])
    np.testing.assert_allclose(found.numpy(), h.numpy())
    (found,) = grad(y.sum(), x, retain_graph=True)
    np.testing.assert_allclose(found.numpy(), 6 * x.numpy())
    w = leaf(2)
    assert grad((x * w).sum(), [x, w], allow_unused=True, no_grad_vars=[w])[1] is None
    assert grad(h.sum(), x, allow_unused=True, no_grad_vars=[h]) == [None]


def test_orders() -> None:
    x = Tensor([1.0, 2.0], "float64", stop_gradient=False)
    y = (x**4.0).sum()
    for order, expected in enumerate(([4, 32], [12, 48], [24, 48], [24, 24]), 1):
        (g,) = grad(y, x, create_graph=order < 4)
        np.testing.assert_allclose(g.numpy(), expected)
        y = g.sum()
    z = (x**3.0).sum()
    z.backward(create_graph=True)
    assert not x.grad.stop_gradient
    (second,) = grad(x.grad.sum(), x)
    np.testing.assert_allclose(second.numpy(), 6 * x.numpy())
    x.grad = None


def test_several_outputs_and_unused_ones() -> None:
    x = leaf(6)
    a, b, c = ops.split(x, num=3, axis=0)
    assert c.output_nr == 2
    (a * 2.0 + b).sum().backward()
    assert x.grad.tolist() == [2, 2, 1, 1, 0, 0]


def test_the_graph_can_be_kept() -> None:
    x = leaf(2)
    y = x.tanh().sum()
    y.backward(retain_graph=True)
    y.backward()
    with pytest.raises(
        BackwardError, match=r"tanh_grad has run before.*retain_graph=True(.|\n)*recorded at: .*in test_the_graph"
    ):
        y.backward()
    z = x.tanh().sum()
    grad(z, x)
    with pytest.raises(BackwardError, match="retain_graph=True"):
        grad(z, x)


def test_saved_values_are_given_free() -> None:
    x = leaf(1000)
    h = x * 2.0
    y = h.tanh()
    node = y.grad_fn
    y.sum().backward()
    assert node is not None and node._saved is None


def test_hooks_of_tensors() -> None:
    x = leaf(2)
    h = x * 3.0
    seen: list[Any] = []
    h.register_hook(lambda g: seen.append(g.tolist()))
    doubling = h.register_hook(lambda g: g * 2.0)
    with x.register_hook(lambda g: g + 1.0):
        h.sum().backward(retain_graph=True)
    assert seen == [[1, 1]]
    assert x.grad.tolist() == [7, 7]
    x.grad = None
    doubling.remove()
    doubling.remove()
    h.sum().backward()
    assert x.grad.tolist() == [3, 3]


def test_a_gradient_that_a_hook_keeps_does_not_change() -> None:
    x = leaf(2)
    kept: list[Any] = []
    x.register_hook(kept.append)
    x.sum().backward()
    x.sum().backward()
    assert kept[0].tolist() == [1, 1] and x.grad.tolist() == [2, 2]


def test_hooks_outlive_the_nodes_of_leaves() -> None:
    x = leaf(2)
    x.register_hook(lambda g: g * 10.0)
    for _ in range(2):
        (x * 1.0).sum().backward()
    assert x.grad.tolist() == [20, 20]
    assert grad((x * 1.0).sum(), x)[0].tolist() == [10, 10]


def test_hooks_of_nodes() -> None:
    x = leaf(2)
    h = x * 3.0
    node = h.grad_fn
    assert node is not None
    seen: list[Any] = []
    node.register_prehook(lambda grads: seen.append(("pre", grads[0].tolist())))
    node.register_prehook(lambda grads: (grads[0] * 2.0,))
    handle = node.register_hook(lambda found, given: seen.append(("post", found[0].tolist(), given[0].tolist())))
    h.sum().backward(retain_graph=True)
    assert seen == [("pre", [1, 1]), ("post", [6, 6], [2, 2])]
    handle.remove()
    node.register_hook(lambda found, given: (found[0] * 0.0,))
    x.grad = None
    h.sum().backward()
    assert x.grad.tolist() == [0, 0]


def test_retained_gradients() -> None:
    x = leaf(2)
    h = x * 3.0
    h.retain_grads()
    (h * h).sum().backward(retain_graph=True)
    np.testing.assert_allclose(h.grad.numpy(), 2 * h.numpy())
    x.retain_grads()  # a leaf has its gradient anyway
    y = x * 3.0
    y.retain_grads()
    z = y * 1.0
    del y
    z.sum().backward()


def test_what_hooks_may_not_do() -> None:
    x = leaf(2)
    y = x * 1.0
    y.register_hook(lambda g: 3.0)  # type: ignore[arg-type, return-value]
    with pytest.raises(FluidTypeError, match="a hook should give a Tensor or None, not float"):
        y.sum().backward()
    y = x * 1.0
    y.register_hook(lambda g: Tensor([1.0], "float64"))
    with pytest.raises(BackwardError, match=r"a hook gave a gradient of float64\[1\] in place of one of float64\[2\]"):
        y.sum().backward()
    y = x * 1.0
    y.grad_fn.register_prehook(lambda grads: ())
    with pytest.raises(BackwardError, match="a prehook gave 0 gradients in place of 1"):
        y.sum().backward()
    with pytest.raises(BackwardError, match="has stop_gradient set, so it will have no gradient to call a hook with"):
        Tensor([1.0]).register_hook(print)
    with pytest.raises(BackwardError, match="has stop_gradient set, so it will have no gradient to retain"):
        Tensor([1.0]).retain_grads()


# ------------------------------------------------------------------------------------------------------------- in place
def test_in_place() -> None:
    x = leaf(3)
    y = x * 2.0
    before = y._array
    assert y.add_(1.0) is y and y.mul_(x) is y and y._array is before
    y.tanh_()
    y.sum().backward()
    values = x.numpy()
    inner = (2 * values + 1) * values
    np.testing.assert_allclose(x.grad.numpy(), (1 - np.tanh(inner) ** 2) * (4 * values + 1))
    assert y.version == 3


def test_in_place_without_recording() -> None:
    x = leaf(3)
    with no_grad():
        x.sub_(1.0)
        x.zero_()
        x.fill_(2.0)
        x.copy_([1.0, 2.0, 3.0])
        x.scale_(2.0)
        x.div_(Tensor([1.0, 2.0, 3.0], "float64"))
    assert x.tolist() == [2, 2, 2] and x.is_leaf and not x.stop_gradient
    x.set_value([0.0, 1.0, 2.0])
    assert x.tolist() == [0, 1, 2]


def test_copying_in_place_lets_gradients_through() -> None:
    x = leaf(2)
    y = Tensor([0.0, 0.0], "float64")
    y.copy_(x * 3.0)
    y.sum().backward()
    assert x.grad.tolist() == [3, 3]


def test_a_saved_tensor_that_was_modified() -> None:
    x = leaf(3)
    y = x * 2.0
    z = y * y
    y.add_(1.0)
    with pytest.raises(BackwardError) as caught:
        z.sum().backward()
    text = str(caught.value)
    assert "elementwise_mul_grad needs a tensor that was modified in place after it was recorded: by elementwise_add_" in text
    assert "version 1 instead of 0" in text
    lines = [line for line in text.splitlines() if HERE in line]
    numbers = [int(line.split(HERE + ":")[1].split()[0]) for line in lines]
    assert len(numbers) == 2 and numbers[1] == numbers[0] + 1
    # It is no harm where nothing was saved.
    x.grad = None
    y = x * 2.0
    z = y + x
    y.zero_()
    z.sum().backward()
    assert x.grad.tolist() == [3, 3, 3]


@each("create_graph", [False, True])
def test_a_saved_result_that_was_modified(create_graph: bool) -> None:
    x = leaf(3)
    y = x.tanh()
    y.detach().zero_()  # shares memory and version
    with pytest.raises(BackwardError, match=r"tanh_grad needs a tensor that was modified in place.*by fill_any_like_"):
        y.sum().backward(create_graph=create_graph)


def test_what_cannot_be_done_in_place() -> None:
    x = leaf(2)
    with pytest.raises(BackwardError, match=r"elementwise_add_: .* is a leaf that requires a gradient"):
        x.add_(1.0)
    with pytest.raises(BackwardError, match=r"setitem: .* is a leaf that requires a gradient"):
        x[0] = 1.0
    with pytest.raises(ProgramError, match=r"elementwise_add_: the result is float64\[3, 2\], and .* cannot hold it"):
        (x * 1.0).add_(leaf(3, 2))
    with pytest.raises(ProgramError, match=r"it cannot be given a value of shape \[3\]"):
        x.set_value(np.zeros(3))


# --------------------------------------------------------------------------------------------------------------- shapes
def test_a_shape_compares_and_adds_as_tuple_and_as_list() -> None:
    shape = Tensor(np.zeros([2, 3])).shape
    assert isinstance(shape, tuple)
    assert shape == (2, 3) and shape == [2, 3] and [2, 3] == shape and (2, 3) == shape
    assert shape != [3, 2] and shape != (3, 2) and shape != 6
    assert shape + [1] == [2, 3, 1] and type(shape + [1]) is list
    assert [0] + shape == [0, 2, 3] and type([0] + shape) is list
    assert (shape + (1,), (0,) + shape) == ((2, 3, 1), (0, 2, 3))
    assert [0] + shape[1:] == [0, 3] and shape[0] == 2
    assert {shape: 1}[2, 3] == 1 and hash(shape) == hash((2, 3)) and repr(shape) == "(2, 3)"
    assert type(pickle.loads(pickle.dumps(shape))) is tuple
    for senseless in (lambda: shape + 1, lambda: 1 + shape):
        with pytest.raises(TypeError):
            senseless()
    x = Tensor(np.zeros([6, 1]))
    assert fluid.layers.reshape(x, shape).shape == fluid.layers.reshape(x, [1] + shape).shape[1:] == shape


def test_shapes_read_in_traces_compare_and_add_as_lists_too() -> None:
    x = Tensor(np.zeros([2, 3], "float32"))
    traced = dygraph.trace(lambda x: fluid.layers.reshape(x, [1] + x.shape[:1] + [3]), x)
    assert traced(np.zeros([5, 3], "float32")).shape == [1, 5, 3]
    step = dygraph.compile(lambda x: fluid.layers.reshape(x, [1] + x.shape))
    assert step(x).shape == [1, 2, 3]
    assert step(Tensor(np.zeros([5, 3], "float32"))).shape == [1, 5, 3]


# --------------------------------------------------------------------------------------------------------------- errors
def test_errors_of_backward() -> None:
    x = leaf(2)
    with pytest.raises(BackwardError, match=r"backward: tensor 0, .* \(float32\[1\]\), has no graph"):
        backward(Tensor([1.0]))
    with pytest.raises(FluidTypeError, match="backward: tensors should be a Tensor or a list of them, not float"):
        backward(1.0)
    y = x * 2.0
    with pytest.raises(ProgramError, match="backward: tensors 0 and 1 are the same tensor"):
        backward([y, y])
    with pytest.raises(ProgramError, match=r"the gradient of .* should have its shape \[2\], not \[3\]"):
        y.backward(Tensor(np.zeros(3)))
    with pytest.raises(FluidTypeError, match="should be of float64, not of float32"):
        y.backward(Tensor(np.zeros(2, "float32")))
    with pytest.raises(ProgramError, match="should hold one gradient for each of 1 tensors, not 2"):
        backward([y], [None, None])
    with pytest.raises(FluidTypeError, match="grad should be a Tensor or None, not list"):
        x.grad = [1.0]  # type: ignore[assignment]
    with pytest.raises(ProgramError, match=r"the grad of .* cannot be float64\[3\]"):
        x.grad = Tensor(np.zeros(3))


def test_backward_of_a_tensor_that_needs_no_gradient_warns_and_does_nothing() -> None:
    x = Tensor([1.0])
    with pytest.warns(UserWarning, match=r"backward does nothing: this tensor, float32\[1\], has no graph.*stop_gradient=False"):
        (x * 2.0).backward()
    assert x.grad is None


CARRIED = {
    "reshape": lambda x: layers.reshape(x, [1, 2])[0],
    "unsqueeze": lambda x: layers.squeeze(layers.unsqueeze(x, [0]), [0]),
    "tanh": layers.tanh,
    "softmax": layers.softmax,
    "gather": lambda x: layers.gather(x, Tensor([0, 1])),
    "sum": lambda x: layers.reduce_sum(x),
    "exp": lambda x: layers.exp(x * 0.1),
    "concat": lambda x: layers.concat([x, x])[:2],
    "split": lambda x: layers.concat(layers.split(x, 2, 0)),
}


@each("name", CARRIED)
def test_ops_of_one_input_end_at_what_an_earlier_backward_freed(name: str) -> None:
    """A carried state passes first through an op that has no other input, and so no gradient to compute."""
    with dygraph.guard(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        w, state = Tensor([2.0, 3.0], stop_gradient=False), Tensor([1.0, 0.5])
        for _ in range(3):
            before = CARRIED[name](Tensor(state.numpy()))
            state = CARRIED[name](state) * w
            layers.reduce_sum(state).backward()
            np.testing.assert_allclose(w.gradient(), np.broadcast_to(before.numpy(), [2]), rtol=1e-6)
            w.clear_gradient()


def test_inside_a_guard_backward_ends_at_what_an_earlier_one_freed() -> None:
    """As in Fluid 1.6: a state that is carried from batch to batch is a constant to the next batch."""
    with dygraph.guard():
        w = Tensor([2.0], stop_gradient=False)
        state = Tensor([1.0])
        gradients = []
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("default")
            for _ in range(3):
                state = state * w + w  # the sum saves nothing, and is freed too
                (state * 1.0).backward()
                gradients.append(w.gradient().item())
                w.clear_gradient()
        assert gradients == [2.0, 5.0, 11.0]  # 1 + the former state, which is 1, 4, 10
        (message,) = {str(warning.message) for warning in caught}
        assert re.match(r"an earlier backward freed elementwise_add_grad, recorded at .*test_eager.*retain_graph=True", message)
        assert len(_reached(state.grad_fn)) < 5  # earlier batches are not kept alive
        with pytest.raises(BackwardError, match="elementwise_add_grad has run before, and its saved values were freed"):
            state.backward()
        with pytest.raises(BackwardError, match="has run before"):
            dygraph.grad(state * 2.0, w)


def test_inside_a_guard_a_kept_graph_goes_on() -> None:
    with dygraph.guard():
        w = Tensor([2.0], stop_gradient=False)
        state = w * w
        (state * 1.0).backward(retain_graph=True)
        (state * 1.0).backward()
        assert w.gradient().item() == 8.0


def _reached(node: dygraph.Node) -> set[dygraph.Node]:
    """The nodes that gradients of a node flow to, and itself."""
    return {node}.union(*(_reached(edge.node) for edge in node.next_edges if edge.node is not None))


def test_errors_of_grad() -> None:
    x, w = leaf(2), leaf(2)
    y = x * 2.0
    with pytest.raises(BackwardError, match=r"grad: no output depends on input 1, .*allow_unused=True"):
        grad(y, [x, w])
    assert grad(x * 2.0, [x, w], allow_unused=True)[1] is None
    with pytest.raises(ProgramError, match="grad: inputs 0 and 1 are the same tensor"):
        grad(y, [x, x])
    with pytest.raises(ProgramError, match="grad: outputs 0 and 1 are the same tensor"):
        grad([y, y], x)
    with pytest.raises(BackwardError, match=r"grad: input 0, .* has stop_gradient set"):
        grad(y, Tensor([1.0]))
    with pytest.raises(BackwardError, match=r"grad: output 0, .* has no graph"):
        grad(Tensor([1.0]), x)
    with pytest.raises(ProgramError, match=r"grad_outputs: the gradient of .* should have its shape \[2\], not \[1\]"):
        grad(y, x, Tensor(np.zeros(1)))
    with pytest.raises(ProgramError, match="only_inputs=False is not supported"):
        grad(y, x, only_inputs=False)


def test_errors_of_ops_say_where() -> None:
    x = leaf(2, 3)
    with pytest.raises(
        InferenceError,
        match=r"matmul_v2: X is float64\[2, 3\] and Y is float64\[2, 3\](.|\n)*called at: .*test_eager.py:\d+ in test_errors",
    ):
        x @ x
    with pytest.raises(FluidError, match="no op 'tanhh' is defined; did you mean"):
        ops.tanhh(x)
    with pytest.raises(ProgramError, match="tanh has no slot or attribute 'alpha'"):
        ops.tanh(x, alpha=1.0)
    with pytest.raises(
        ExecutionError, match="while owns a block of a program; outside programs, use Python's own if, for and while"
    ):
        getattr(ops, "while")(X=[x], Condition=x)
    with pytest.raises(FluidError, match="use Python's lists"):
        ops.write_to_array(x, Tensor([0]))
    with pytest.raises(FluidError, match=r"gather: index 7 is outside of \[0, 2\)(.|\n)*called at: "):
        ops.gather(x, Tensor([7]))


def test_no_gradient_flows_through_what_has_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry.get("relu6"), "rule", NOT_DIFFERENTIABLE)
    x = leaf(2)
    y = ops.relu6(x, threshold=6.5)
    assert not y.stop_gradient
    with pytest.raises(BackwardError, match=r"the op relu6 is not differentiable(.|\n)*recorded at: .*in test_no_gradient"):
        (y * 1.0).sum().backward()


def test_an_error_in_a_hook_reaches_the_caller_with_the_line() -> None:
    x = leaf(2)
    y = x.tanh()

    def fails(g: Tensor) -> None:
        raise KeyError("mine")

    handle = y.register_hook(fails)
    with pytest.raises(KeyError) as caught:
        y.sum().backward()
    said = "".join(getattr(caught.value, "__notes__", [])) + str(caught.value.args)
    assert "in tanh_grad, recorded at: " in said and HERE in said
    handle.remove()
    assert fluid.eager.mode.state.task is None and fluid.eager.mode.state.depth == 0
    z = x.tanh().sum()
    z.backward()  # the engine goes on
    np.testing.assert_allclose(x.grad.numpy(), 1 - np.tanh(x.numpy()) ** 2)


def test_anomaly_mode_names_the_node() -> None:
    x = Tensor([0.0, 1.0], "float64", stop_gradient=False)
    y = x.sqrt() * 0.0
    with pytest.raises(BackwardError) as caught, dygraph.detect_anomaly():
        y.sum().backward()
    text = str(caught.value)
    assert "sqrt_grad gave a gradient that holds a NaN, for input 0 of its op, and was given none" in text
    assert "scale_grad, recorded at: " in text and text.count(HERE) >= 2
    x.sqrt().sum().backward()  # outside, nobody looks
    with dygraph.detect_anomaly():
        x.exp().sum().backward()
    dygraph.set_detect_anomaly(True)
    try:
        with pytest.raises(BackwardError, match="holds a NaN"):
            (x.sqrt() * 0.0).sum().backward()
    finally:
        dygraph.set_detect_anomaly(False)


# --------------------------------------------------------------------------------------------------------------- engine
def test_backward_inside_backward() -> None:
    x = leaf(2)
    y = x * x

    def inner(g: Tensor) -> Tensor:
        z = x.detach()
        z.stop_gradient = False
        with enable_grad():
            (z**3.0).sum().backward()
        return g * z.grad

    y.register_hook(inner)
    y.sum().backward()
    np.testing.assert_allclose(x.grad.numpy(), 2 * x.numpy() * 3 * x.numpy() ** 2)


def test_backward_inside_backward_a_hundred_deep() -> None:
    threads = set()
    deepest = 100

    class Deeper(dygraph.PyLayer):
        @staticmethod
        def forward(ctx: Any, x: Tensor, depth: int) -> Tensor:
            ctx.depth = depth
            return x * 1.0

        @staticmethod
        def backward(ctx: Any, dy: Tensor) -> Tensor:
            threads.add(threading.get_ident())
            if ctx.depth == deepest:
                return dy * 2.0
            x = Tensor([1.0], "float64", stop_gradient=False)
            with enable_grad():
                Deeper.apply(x, ctx.depth + 1).backward()
            return dy * x.grad

    x = Tensor([1.0], "float64", stop_gradient=False)
    Deeper.apply(x, 1).backward()
    assert x.grad.tolist() == [2]
    assert len(threads) > 1


def test_final_callbacks_run_once() -> None:
    x = leaf(2)
    y = x * 1.0
    called = []
    y.register_hook(lambda g: engine.queue_callback(lambda: called.append(x.grad.tolist())))
    y.sum().backward()
    assert called == [[1, 1]]
    with pytest.raises(BackwardError, match="no backward pass is running here"):
        engine.queue_callback(print)


def test_buffers_add_in_place_only_what_they_own() -> None:
    first, second, third = (np.full(2, float(i)) for i in (1, 2, 3))
    buffer = InputBuffer(1)
    buffer.add(0, first)
    assert buffer.take()[0] is first
    buffer.add(0, second)
    total = buffer.take()[0]
    assert total.tolist() == [3, 3] and total is not first
    buffer.add(0, third)
    assert buffer.take()[0] is total and total.tolist() == [6, 6]
    assert (first.tolist(), second.tolist(), third.tolist()) == ([1, 1], [2, 2], [3, 3])
    ordered = InputBuffer(1, ordered=True)
    for source, value in (((2, 0), 1e16), ((0, 0), -1e16), ((1, 0), 1.0)):
        ordered.add(0, np.array([value]), source)
    assert ordered.take()[0].tolist() == [(-1e16 + 1.0) + 1e16]


def test_100_threads_share_parameters() -> None:
    w, b = leaf(4, 4), leaf(4)
    inputs = [Tensor(np.random.default_rng(i).standard_normal((3, 4))) for i in range(100)]
    start = threading.Barrier(100)
    failed: list[BaseException] = []

    def work(x: Tensor) -> None:
        start.wait()
        try:
            for _ in range(3):
                (x @ w + b).sum().backward()
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=work, args=(x,)) for x in inputs]
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(before)
    assert not failed
    np.testing.assert_allclose(b.grad.numpy(), np.full(4, 900.0))
    expected = 3 * sum(np.tile(x.numpy().sum(0)[:, None], (1, 4)) for x in inputs)
    np.testing.assert_allclose(w.grad.numpy(), expected)


def wide(x: Tensor, weights: list[Tensor]) -> Tensor:
    """Branches that do not depend on each other, with much to do."""
    total = None
    for weight in weights:
        h = ((x @ weight).tanh() @ weight).sigmoid()
        total = h if total is None else total + h
    assert total is not None
    return (total * x).sum()


@pytest.fixture
def threads() -> Iterator[None]:
    before = dygraph.get_num_threads()
    yield
    dygraph.set_num_threads(before)


@pytest.mark.usefixtures("threads")
@each("count", [2, 4])
def test_the_number_of_threads_changes_no_bit(count: int) -> None:
    rng = np.random.default_rng(0)
    arrays = [rng.standard_normal((160, 160)).astype("float32") for _ in range(7)]
    names = set()

    def run(threads: int) -> list[bytes]:
        dygraph.set_num_threads(threads)
        x, *weights = (Tensor(array, stop_gradient=False) for array in arrays)
        for weight in weights:
            weight.register_hook(lambda g: names.add(threading.current_thread().name))
        wide(x, weights).backward()
        return [tensor.grad.numpy().tobytes() for tensor in (x, *weights)]

    expected = run(1)
    assert names == {threading.current_thread().name}
    for _ in range(5):
        assert run(count) == expected
    for _ in range(1000):  # until a helper was quick enough to have a part in it
        if len(names) > 1:
            break
        run(count)
    assert len(names) > 1


@pytest.mark.usefixtures("threads")
def test_threads_share_a_pass_where_that_saves_more_than_handing_over_its_nodes() -> None:
    """Nodes that wait for each other need one thread; so does a long chain with a few large nodes beside it."""
    dygraph.set_num_threads(2)
    x, *weights = (Tensor(np.eye(160, dtype="float32"), stop_gradient=False) for _ in range(6))
    chain = x
    for weight in weights:
        chain = (chain @ weight).tanh()
    recurrent = x[:1]
    for weight in weights:
        recurrent = recurrent + (x @ weight)[:1]
        for _ in range(10):
            recurrent = recurrent.tanh()
    for output, parallel in ((chain.sum(), False), (recurrent.sum(), False), (wide(x, weights), True)):
        task = GraphTask([output._edge], [np.ones(output.shape, "float32")], True, False)
        assert task.parallel is parallel


@pytest.mark.usefixtures("threads")
def test_errors_in_other_threads_reach_the_caller() -> None:
    x = Tensor(np.eye(160, dtype="float32"), stop_gradient=False)
    dygraph.set_num_threads(3)
    branches = [x @ x for _ in range(8)]

    def fails(g: Tensor) -> None:
        raise ValueError("mine")

    branches[3].register_hook(fails)
    with pytest.raises(ValueError, match="mine"):
        ops.sum(branches).sum().backward()
    ops.sum([x @ x for _ in range(8)]).sum().backward()
    assert x.grad[0, 0].item() == 16 * 1.0
    with pytest.raises(ProgramError, match="should be from 1 to 256, not 0"):
        dygraph.set_num_threads(0)


@pytest.mark.usefixtures("threads")
def test_the_number_of_threads_changes_no_bit_of_higher_orders() -> None:
    """A recorded pass numbers its nodes, and the next pass uses the order of the numbers."""
    rng = np.random.default_rng(0)
    arrays = [rng.standard_normal((160, 160)).astype("float32") for _ in range(5)]

    def run(threads: int) -> list[bytes]:
        dygraph.set_num_threads(threads)
        x, *weights = (Tensor(array, stop_gradient=False) for array in arrays)
        first = grad(wide(x, weights), weights, create_graph=True)
        ops.sum([(item * item).sum() for item in first]).backward()
        return [tensor.grad.numpy().tobytes() for tensor in (x, *weights)]

    expected = run(1)
    assert all(run(4) == expected for _ in range(5))
    x = Tensor(arrays[0], stop_gradient=False)
    output = wide(x, [x] * 6)
    tasks = [GraphTask([output._edge], [Tensor(1.0)], True, create_graph) for create_graph in (False, True)]
    assert [task.parallel for task in tasks] == [True, False]


@pytest.mark.usefixtures("threads")
@each("count", [1, 3])
def test_a_graph_whose_backward_failed_is_freed_without_the_collector(count: int) -> None:
    dygraph.set_num_threads(count)

    def fails(g: Tensor) -> None:
        raise ValueError("mine")

    def failed() -> list[weakref.ref[Any]]:
        x, *weights = (Tensor(np.eye(160, dtype="float32"), stop_gradient=False) for _ in range(4))
        loss = wide(x, weights)
        weights[1].register_hook(fails)
        with pytest.raises(ValueError, match="mine") as caught:
            loss.backward()
        del caught
        return [weakref.ref(item) for item in (loss, loss.grad_fn, x, *weights)]

    gc.collect()
    gc.disable()
    try:
        left = failed()
        for _ in range(1000):  # until the threads that helped have put it down
            if all(item() is None for item in left):
                break
            time.sleep(0.01)
        assert [item() for item in left] == [None] * len(left)
    finally:
        gc.enable()


@pytest.mark.usefixtures("threads")
def test_other_devices_have_threads_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """Stood in for by nodes that say that they are elsewhere."""
    from fluid.eager.function import PyLayerNode

    dygraph.set_num_threads(1)  # or others may help the calling thread with what is here
    ran: dict[str, set[str]] = {}

    class Elsewhere(dygraph.PyLayer):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            return x * 2.0

        @staticmethod
        def backward(ctx: Any, dy: Tensor) -> Tensor:
            ran.setdefault("there", set()).add(threading.current_thread().name)
            x = Tensor(dy.numpy(), stop_gradient=False)
            with enable_grad():
                y = Elsewhere.apply(x) if dy.shape == (2,) else x * 2.0
                (y.sum() if dy.shape == (2,) else y).backward(None)
            return dy * 2.0

    monkeypatch.setattr(PyLayerNode, "device", property(lambda self: "fake:0"))
    monkeypatch.setattr(engine_module, "DEVICES", {"cpu", "fake:0"})
    x = leaf(3)
    y = Elsewhere.apply(x * 1.0) + x
    y.register_hook(lambda g: ran.setdefault("here", set()).add(threading.current_thread().name))
    y.sum().backward()
    assert x.grad.tolist() == [3, 3, 3]
    assert ran == {"there": {"fluid fake:0"}, "here": {threading.current_thread().name}}


def chain_of(length: int) -> tuple[Tensor, Tensor]:
    x = Tensor([1.0], "float64", stop_gradient=False)
    y = x
    for _ in range(length):
        y = y + x
    return x, y


@pytest.mark.slow
def test_a_graph_100000_nodes_deep() -> None:
    x, y = chain_of(100_000)
    y.backward()
    assert x.grad.tolist() == [100_001]
    x, y = chain_of(20_000)
    (found,) = grad(y, x, create_graph=True)
    assert found.tolist() == [20_001]
    del y, found  # is freed without recursion


def test_time_is_linear_in_depth() -> None:
    """Counted in calls of Python functions, not seconds."""
    counts = []
    for length in (1_000, 2_000):
        _, y = chain_of(length)
        calls = 0

        def count(frame: Any, event: str, arg: Any) -> None:
            nonlocal calls
            calls += event == "call"

        sys.setprofile(count)
        try:
            y.backward()
        finally:
            sys.setprofile(None)
        counts.append(calls)
    assert counts[1] < 2.1 * counts[0]


def test_nothing_is_left_behind_without_the_garbage_collector() -> None:
    """A step leaves no reference cycles: its objects are freed when it ends."""

    class Double(dygraph.PyLayer):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            y = x * 2.0
            ctx.save_for_backward(x, y)
            return y

        @staticmethod
        def backward(ctx: Any, dy: Tensor) -> Tensor:
            ctx.saved_tensor()
            return dy * 2.0

    x, w = leaf(4, 4), leaf(4, 4)

    def step() -> None:
        h = Double.apply((x @ w).tanh())
        h.register_hook(lambda g: g * 1.0)
        h.retain_grads()
        h = h.clone().add_(1.0)
        loss = (h * h).sum()
        (slope,) = grad(loss, w, create_graph=True)
        (slope * slope).sum().backward()
        with pytest.raises(BackwardError):
            grad(loss, w)
            grad(loss, w)
        x.grad = w.grad = None

    step()
    gc.collect()
    gc.disable()
    try:
        step()
        step()
        assert [item for item in gc.get_objects() if issubclass(type(item), dygraph.Node)] == []
    finally:
        gc.enable()


def test_random_ops_draw_from_one_stream() -> None:
    def draw() -> list[Any]:
        return [ops.uniform_random(shape=[3]).tolist() for _ in range(2)]

    dygraph.seed(7)
    first = draw()
    dygraph.seed(7)
    assert draw() == first and first[0] != first[1]
    dygraph.seed(8)
    assert draw() != first
    with fluid.program_guard(fluid.Program(), fluid.Program()):
        fluid.default_main_program().random_seed = 7
        dygraph.seed(0)
        assert draw() == first
    dygraph.seed(0)
    assert ops.uniform_random(shape=[3], seed=5).tolist() == ops.uniform_random(shape=[3], seed=5).tolist()


def test_what_was_drawn_is_what_backward_uses() -> None:
    dygraph.seed(3)
    x = Tensor(np.full((50, 4), 2.0), stop_gradient=False)
    attrs = {"dropout_prob": 0.4, "dropout_implementation": "upscale_in_train"}
    y = ops.dropout(x, **attrs)
    kept = y.numpy() != 0
    assert 0 < kept.sum() < kept.size
    y.sum().backward(retain_graph=True)
    np.testing.assert_allclose(x.grad.numpy(), kept / 0.6)
    (slope,) = grad((y * y).sum(), x, create_graph=True)
    np.testing.assert_allclose(grad(slope.sum(), x)[0].numpy(), kept * 2 / 0.36)
    assert not np.array_equal(ops.dropout(x, **attrs).numpy() != 0, kept)


def test_import_fluid_does_not_load_eager_mode() -> None:
    import subprocess

    code = "import sys, fluid; assert 'fluid.dygraph' not in sys.modules; fluid.dygraph.Tensor"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_no_warnings_of_numpy() -> None:
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        x = Tensor([0.0, -1.0], stop_gradient=False)
        x.log().sum().backward()
        assert x.grad.tolist() == [float("inf"), -1.0]


def test_zeros_of_either_sign_are_different_numbers() -> None:
    x = Tensor([1.0])
    assert [str((x * zero).item()) for zero in (0.0, -0.0, 0.0)] == ["0.0", "-0.0", "0.0"]
    assert [str(ops.scale(x, scale=zero).item()) for zero in (0.0, -0.0, 0.0)] == ["0.0", "-0.0", "0.0"]


def test_spare_memory_is_lent_to_one_at_a_time() -> None:
    from fluid.executor.runtime import spare

    first = spare.take(1 << 20)
    inner = spare.take(1 << 20)  # as by an op that runs inside another
    assert not np.may_share_memory(first, inner)
    spare.give_back(inner)
    spare.give_back(first)
    assert spare.take(1 << 10) is first
    elsewhere: list[Any] = []
    thread = threading.Thread(target=lambda: elsewhere.append(spare.take(1 << 10)))
    thread.start()
    thread.join()
    assert not np.may_share_memory(first, elsewhere[0])


def test_large_intermediate_results_share_memory_and_results_do_not() -> None:
    from fluid.executor.runtime import spare

    random = np.random.default_rng(0)
    x = Tensor(random.standard_normal((8, 4, 40, 40), np.float32), stop_gradient=False)
    weight = Tensor(random.standard_normal((8, 4, 3, 3), np.float32), stop_gradient=False)

    def step() -> tuple[Tensor, ...]:
        y = ops.pool2d(ops.conv2d(x, weight, paddings=[1, 1]), pooling_type="max", ksize=[2, 2], strides=[2, 2])
        return y, *dygraph.grad((y * y).sum(), [x, weight])

    found = step()
    copies = [tensor.numpy().copy() for tensor in found]
    memory = spare.take(1)
    assert memory.size > spare.LARGE
    assert not any(np.may_share_memory(memory, tensor.numpy()) for tensor in found)
    memory[:] = 255
    spare.give_back(memory)
    again = step()
    for before, now, as_it_was in zip(found, again, copies, strict=True):
        np.testing.assert_array_equal(before.numpy(), as_it_was)
        np.testing.assert_array_equal(now.numpy(), as_it_was)
    assert spare.take(1) is memory


# ---------------------------------------------------------------------------------------------- comparisons and numbers
def test_tensors_are_compared_element_by_element_and_hashed_by_what_they_are() -> None:
    x, y = Tensor([1, 2, 3]), Tensor([1, 0, 3])
    assert (x == y).tolist() == [True, False, True] and (x != y).tolist() == [False, True, False]
    assert (x == 1).tolist() == (1 == x).tolist() == [True, False, False]
    assert (np.array([1, 2, 2]) == x).tolist() == [True, True, False] and (x != np.int64(2)).tolist() == [True, False, True]
    assert (x == None) is False and (x != None) is True and (x == "x") is False and (None == x) is False  # noqa: E711
    assert {x: 1, y: 2}[y] == 2 and len({x, x, y}) == 2
    assert any(item is y for item in [x, y]) and 2 in x and 4 not in x
    assert Tensor([1]) in [Tensor([2]), Tensor([1])] and [x, y].index(x) == 0
    with pytest.raises(ProgramError, match=r"bool\[3\] cannot become bool: it has 3 elements, not one"):
        assert y in [x, y]
    with pytest.raises(InferenceError, match="cast one to the element type of the other"):
        x == Tensor([1.0, 2.0, 3.0])  # noqa: B015
    parameter = dygraph.Parameter([1.0, 2.0])
    assert (parameter == Tensor([1.0, 3.0])).tolist() == [True, False] and hash(parameter) == object.__hash__(parameter)


@each("number", [2**24 + 1, 2**53 + 1, -(2**53) - 1, 2**62 + 1])
def test_whole_numbers_beside_whole_numbers_are_exact(number: int) -> None:
    x = Tensor([3, -2])
    assert (x + number).tolist() == (number + x).tolist() == [number + 3, number - 2]
    assert (x - number).tolist() == [3 - number, -2 - number] and (number - x).tolist() == [number - 3, number + 2]
    assert (Tensor([1]) * number).tolist() == (number * Tensor([1])).tolist() == [number]
    one = Tensor([number - 1])
    assert (one < number).item() and (one != number).item() and (one + 1 == number).item() and (number > one).item()
    assert (one % number).item() == (number - 1) % number and (Tensor([number]) // number).item() == 1
    assert x.clone().fill_(number).tolist() == [number, number]
    x += number
    assert x.tolist() == [number + 3, number - 2]
    x[0] = number
    assert x.tolist() == [number, number - 2]


def test_whole_numbers_that_do_not_fit() -> None:
    x = Tensor([1], "int32")
    for compute in (lambda: x + 2**31, lambda: x % 2**31, lambda: x.fill_(2**31)):
        with pytest.raises(InferenceError, match="holds integers from -2147483648 to 2147483647, and 2147483648 is none"):
            compute()
    with pytest.raises(ProgramError, match=r"setitem: int32\[1\] cannot hold 2147483648"):
        x[0] = 2**31
    assert (x + (2**31 - 2)).item() == 2**31 - 1
    with pytest.raises(InferenceError, match=r"the fraction of 2\.5 would be lost"):
        x.fill_(2.5)


def test_what_is_assigned_to_whole_numbers_is_whole() -> None:
    x = Tensor([1, 2])
    for value in (2.7, [2.0, 2.7], np.float64(2.7)):
        with pytest.raises(InferenceError, match=r"holds integers, and the fraction of 2\.7 would be lost: cast"):
            x[:] = value
    x[:] = [3.0, 4]
    assert x.tolist() == [3, 4]
    y = Tensor([1.0, 2.0])
    y[0] = np.float64(3)
    assert y.tolist() == [3.0, 2.0]
    with pytest.raises(FluidTypeError, match="setitem takes a tensor, a number, or an array or a list of numbers, not None"):
        y[0] = None
    with pytest.raises(FluidTypeError, match="not 'a'"):
        y[0] = "a"


def in_a_program(x: Tensor, compute: Callable[[Any], Any]) -> Any:
    """Compute on a variable with a tensor's elements."""
    program = fluid.Program()
    with fluid.program_guard(program, fluid.Program()):
        found = compute(fluid.data("x", [-1], x.dtype))
        assert found.shape == (-1,)
        return fluid.Executor(fluid.CPUPlace()).run(program, feed={"x": x.numpy()}, fetch_list=[found])[0].tolist()


COMPARISONS: dict[str, Callable[[Any, Any], Any]] = {
    "==": operator.eq, "!=": operator.ne, "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge,
}  # fmt: skip
NUMBERS: list[tuple[list[Any], str, list[Any]]] = [
    ([True, False], "bool", [0, 1, True, 2, -1, 2.0, 10**400, float("inf"), float("nan")]),
    ([0, 255], "uint8", [255, 300, -1, -1.0, 1e300, np.int64(300), float("-inf")]),
    ([-128, 127], "int8", [200, -129, 127]),
    ([1, -1], "int16", [65537, -(2**15)]),
    ([2**31 - 1, -(2**31)], "int32", [2**31, 3e9, -3e9, 2**31 - 1]),
    ([2**63 - 1, 0], "int64", [2**63, 1e19, 2**63 - 1, 10**400, -(10**400), float("inf"), float("nan")]),
    ([2**64 - 1, 2**63, 3], "uint64", [2**64 - 1, 2**64, 2**63, -1]),
    ([1.0, -2.0], "float32", [10**400, -(10**400), 1, float("nan"), np.float64(1.0)]),
]


@each(("elements", "dtype", "others"), NUMBERS, ids=[dtype for _, dtype, _ in NUMBERS])
def test_comparisons_with_any_number_are_right(elements: list[Any], dtype: str, others: list[Any]) -> None:
    x = Tensor(np.array(elements, dtype))
    for other in others:
        for sign, compare in COMPARISONS.items():
            right = [bool(compare(element, other)) for element in elements]
            assert compare(x, other).tolist() == right, f"{elements} {sign} {other}"
            assert in_a_program(x, lambda v, compare=compare, other=other: compare(v, other)) == right  # type: ignore[misc]
    assert (Tensor(x.numpy()[0]) == 10**400).shape == ()


def test_fractions_beside_whole_numbers_and_bools_are_refused_by_comparisons() -> None:
    with pytest.raises(InferenceError, match=r"the fraction of 2\.5 would be lost: cast to float32 first"):
        Tensor([1]) < 2.5  # noqa: B015
    with pytest.raises(InferenceError, match=r"the fraction of 0\.5 would be lost: cast to float32 first"):
        Tensor([True]) < 0.5  # noqa: B015
    with pytest.raises(InferenceError, match=r"float32\[1\] holds floats, and 1j is none of them"):
        Tensor([1.0]) == 1j  # noqa: B015
    with pytest.raises(InferenceError, match=r"int64\[1\] holds integers, and 1j is none of them"):
        Tensor([1]) == 1j  # noqa: B015


@each(
    ("dtype", "number"),
    [("int8", 200), ("uint8", 300), ("uint8", -1), ("int16", 65537), ("int32", 3e9), ("int32", np.int64(2**31)), ("int64", 1e19)],
)
def test_numbers_out_of_range_are_refused_alike(dtype: str, number: Any) -> None:
    x = Tensor([2], dtype)
    least, most = np.iinfo(dtype).min, np.iinfo(dtype).max
    computes: list[Callable[[Any], Any]] = [
        lambda x: x + number, lambda x: number + x, lambda x: x - number, lambda x: number - x, lambda x: x * number,
        lambda x: x // number, lambda x: x % number, lambda x: x**number, lambda x: number**x,
    ]  # fmt: skip
    if not isinstance(number, np.generic):  # in whose place numpy would compute
        for compute in computes:
            with pytest.raises(InferenceError, match=rf"x: {dtype}\[-1\] holds integers from {least} to {most}, and "):
                in_a_program(x, compute)
    in_place: list[Callable[[Any], Any]] = [
        lambda x: x.fill_(number), lambda x: x.add_(number), lambda x: x.scale_(number), lambda x: x.scale_(1.0, number),
    ]  # fmt: skip
    for compute in [*computes, *in_place]:
        with pytest.raises(InferenceError, match=rf"^{dtype}\[1\] holds integers from {least} to {most}, and .* is none of"):
            compute(x)
    with pytest.raises(ProgramError, match=rf"setitem: {dtype}\[1\] cannot hold"):
        x[0] = np.array(number).tolist()
    with pytest.raises(ProgramError, match=rf"setitem: {dtype}\[1\] cannot hold"):
        x[:] = [float(number)]
    assert x.tolist() == [2]


def test_whole_floats_beside_whole_numbers_are_exact() -> None:
    assert (Tensor([3]) * 3e9).tolist() == [9 * 10**9]
    assert (Tensor([3]) + float(2**53)).tolist() == [2**53 + 3]
    large = Tensor(np.array([2**64 - 1, 3], "uint64"))
    assert (large - (2**64 - 1)).tolist() == [0, 4] and large.clone().fill_(2**64 - 1).tolist() == [2**64 - 1] * 2


def test_numbers_that_no_float_is() -> None:
    x = Tensor([1.0])
    computes: list[Callable[[], Any]] = [
        lambda: x + 10**400, lambda: x - 10**5000, lambda: x * 10**400, lambda: x / 10**400, lambda: x**10**400,
        lambda: x.fill_(10**400), lambda: x.__setitem__(0, 10**400), lambda: 10**400 - x,
    ]  # fmt: skip
    for compute in computes:
        with pytest.raises(
            InferenceError, match=r"float32\[1\] holds floats, and a number of \d+ bits is larger than all of them"
        ):
            compute()
    with pytest.raises(InferenceError, match="and 1j is none of them"):
        x * 1j


def test_bools_are_not_calculated_with_numbers() -> None:
    b = Tensor([True, False])
    computes: list[Callable[[Any], Any]] = [
        lambda b: b + 1,
        lambda b: 1 - b,
        lambda b: b * 1.0,
        lambda b: b / 2,
        lambda b: b - True,
    ]
    for compute in computes:
        for call in (lambda compute=compute: compute(b), lambda compute=compute: in_a_program(b, compute)):  # type: ignore[misc]
            with pytest.raises(
                InferenceError, match=r"bool\[.*\] holds bools, with which numbers are not calculated: cast to int64"
            ):
                call()
    with pytest.raises(InferenceError, match="holds bools"):
        b += 1
    with pytest.raises(InferenceError, match="holds bools"):
        b.add_(1)
    changes: list[Callable[[], Any]] = [
        lambda: b.fill_(2), lambda: b.__setitem__(0, 2), lambda: b.__setitem__(slice(None), [True, 2]), lambda: b & 2,
    ]  # fmt: skip
    for change in changes:
        with pytest.raises(InferenceError, match=r"bool\[2\] holds True and False, and 2 is neither"):
            change()
    b[1] = 1
    assert b.tolist() == [True, True] and b.zero_().tolist() == [False, False] and b.fill_(True).tolist() == [True, True]
    assert (b & True).tolist() == [True, True] and (b == np.True_).tolist() == [True, True]


def test_numbers_of_numpy_for_dimensions() -> None:
    x = Tensor(np.ones((2, 3), "float32"))
    assert x.sum(np.array([0])).shape == (3,) and x.sum(np.int64(1)).shape == (2,) and x.max(range(1, 2)).shape == (2,)
    assert x.reshape(np.array([3, 2])).shape == x.transpose(range(1, -1, -1)).shape == (3, 2)


def test_sparse_gradients_say_how_to_get_all_rows() -> None:
    table = Tensor(np.ones((5, 2), "float32"), stop_gradient=False)
    ops.lookup_table_v2(table, Tensor([1, 3]), is_sparse=True).sum().backward()
    grad_of = table.grad
    assert grad_of is not None
    calls: list[tuple[str, Callable[[], Any]]] = [
        ("tolist", grad_of.tolist),
        ("item", lambda: grad_of.item(0)),
        ("set_value", lambda: grad_of.set_value(np.ones((5, 2)))),
        ("setitem", lambda: grad_of.__setitem__(0, 1.0)),
        ("__dlpack__", lambda: np.from_dlpack(grad_of)),
        ("__dlpack_device__", lambda: dygraph.from_dlpack(grad_of)),
    ]
    for by, call in calls:
        with pytest.raises(
            FluidTypeError, match=rf"{by}.*: .* is a sparse gradient of float32\[5, 2\], .* Tensor\(x\) and x\.numpy\(\) have all"
        ):
            call()
    assert Tensor(grad_of).tolist() == [[0, 0], [1, 1], [0, 0], [1, 1], [0, 0]]


@pytest.mark.filterwarnings("error")
def test_constants_that_only_float64_holds() -> None:
    program = fluid.Program()
    with fluid.program_guard(program, fluid.Program()):
        value = fluid.layers.fill_constant([1], "float64", 1e300)
        assert fluid.Executor(fluid.CPUPlace()).run(program, fetch_list=[value])[0].tolist() == [1e300]
        with pytest.raises(InferenceError, match=r"fill_constant: value 300\.0 should be a number of dtype 20 \(uint8\)\n"):
            fluid.layers.fill_constant([1], "uint8", 300)


def test_division_by_zero_is_as_of_arrays() -> None:
    x = Tensor([1.0, -1.0, 0.0], stop_gradient=False)
    y = x / 0
    assert str(y.tolist()) == str((x / 0.0).tolist()) == "[inf, -inf, nan]"
    assert (Tensor([1.0]) / -0.0).tolist() == [-np.inf]
    y.sum().backward()
    assert x.gradient().tolist() == [np.inf] * 3
    assert (Tensor([3, 0]) / 0).tolist() == (Tensor([3, 0]) / Tensor([0])).tolist()
    x = Tensor([1.0])
    x /= 0
    assert x.tolist() == [np.inf]


def test_the_rest_of_pythons_operators() -> None:
    x = Tensor([7.25, -2.5])
    assert (+x).tolist() == [7.25, -2.5]
    assert round(x).tolist() == x.round().tolist() and round(Tensor([1.2345, 2.0]), 2).tolist() == pytest.approx([1.23, 2.0])
    assert round(Tensor([3, 4])).tolist() == [3, 4]
    assert [part.tolist() for part in divmod(x, 2)] == [[3.0, -2.0], [1.25, 1.5]]
    assert [part.tolist() for part in divmod(7, Tensor([2, 4]))] == [[3, 1], [1, 3]]
    with pytest.raises(TypeError, match="unsupported operand"):
        divmod(x, "2")


def test_tensors_and_variables_of_a_program_are_not_mixed() -> None:
    with fluid.program_guard(fluid.Program(), fluid.Program()):
        v = fluid.data("v", [1], "float32")
        x = Tensor([1.0], name="x")
        for compute in (
            lambda: x + v, lambda: v + x, lambda: x * v, lambda: v - x, lambda: v / x, lambda: v @ x, lambda: x @ v,
            lambda: v == x, lambda: x < v, lambda: v**x, lambda: x.add_(v),
        ):  # fmt: skip
            with pytest.raises(FluidTypeError, match="x is a tensor, and v is a Variable of a program, which has no value until"):
                compute()


# -------------------------------------------------------------------------------------------------- operators in place
def test_augmented_operators_are_in_place() -> None:
    x = Tensor([7.0, 9.0])
    same, shared = x, x.detach()
    x += 1
    x -= Tensor([0.0, 1.0])
    x *= 2.0
    x /= 4.0
    assert same is x and shared.tolist() == x.tolist() == [4.0, 4.5] and x.version == shared.version == 4
    x **= 2
    x //= 3.0
    x %= 4.0
    x += np.ones(2, "float32")
    assert shared.tolist() == [2.0, 3.0] and same is x
    b = mask = Tensor([True, False])
    b &= Tensor([True, True])
    b |= Tensor([False, True])
    b ^= Tensor([True, False])
    assert mask.tolist() == [False, True]
    square = old = Tensor([[1.0, 2.0], [3.0, 4.0]])
    square @= square  # there is no product in place
    assert square.tolist() == [[7.0, 10.0], [15.0, 22.0]] and old.tolist() == [[1.0, 2.0], [3.0, 4.0]]


def test_augmented_operators_train_by_hand() -> None:
    linear = dygraph.Linear(2, 1)
    weight = linear.weight
    linear(Tensor([[1.0, 2.0]])).sum().backward()
    before = weight.numpy()
    with no_grad():
        for p in linear.parameters():
            p -= 0.5 * p.grad
        linear.weight -= 0.5 * linear.weight.grad
    assert linear.weight is weight and weight.is_leaf and not weight.stop_gradient
    np.testing.assert_allclose(weight.numpy(), before - [[1.0], [2.0]], rtol=1e-6)


def test_augmented_operators_say_what_they_cannot() -> None:
    x = Tensor([1.0], stop_gradient=False, name="x")
    with pytest.raises(
        BackwardError,
        match=r"\+=: x is a leaf that requires a gradient, .* do it inside no_grad\(\), or write x = x \+ y, which makes",
    ):
        x += 1.0
    with pytest.raises(BackwardError, match=r"\*\*=: x is a leaf .* or write x = x \*\* y"):
        x **= 2.0
    y = Tensor([1.0], name="y")
    with pytest.raises(ProgramError, match=r"\*=: the result is float32\[2\], and y \(float32\[1\]\) cannot .* x = x \* y"):
        y *= Tensor([1.0, 2.0])
    with pytest.raises(TypeError, match=r"unsupported operand type\(s\) for \+=: 'Tensor' and 'NoneType'"):
        y += None
    whole = Tensor([1, 2])
    with pytest.raises(InferenceError, match="cast"):
        whole /= Tensor([1.0, 2.0])
    with pytest.raises(InferenceError, match="fraction"):
        whole /= 2.5
    with pytest.raises(InferenceError, match="fraction"):
        whole += 0.5
    assert whole.tolist() == [1, 2] and y.tolist() == [1.0] and whole.version == y.version == 0
    saved = x.tanh()
    saved += 1.0
    with pytest.raises(BackwardError, match=r"tanh_grad needs a tensor that was modified in place .*: by \+=, version 1"):
        saved.backward()


def test_operators_in_place_with_the_tensor_itself() -> None:
    x = Tensor([2.0, 3.0], stop_gradient=False)
    for compute, expected in ((lambda y: y.div_(y), [0, 0]), (lambda y: y.mul_(y), [4, 6]), (lambda y: y.sub_(y), [0, 0])):
        (found,) = grad(compute(x * 1.0).sum(), x)
        np.testing.assert_allclose(found.numpy(), expected, atol=1e-6)
    y = x * 1.0
    y *= y
    y /= y
    y += y
    assert y.tolist() == [2.0, 2.0]
    y.sum().backward()
    np.testing.assert_allclose(x.gradient(), [0.0, 0.0], atol=1e-6)


def test_augmented_operators_on_sparse_gradients() -> None:
    embedding = dygraph.Embedding(None, [5, 2], is_sparse=True)
    embedding(Tensor([1, 3])).sum().backward()
    grad_ = embedding.weight.grad
    same = grad_.detach()
    grad_ *= 2.0
    assert grad_.type is fluid.core.VarDesc.VarType.SELECTED_ROWS
    assert same.numpy().tolist() == [[0, 0], [2, 2], [0, 0], [2, 2], [0, 0]]


def test_in_place_methods_take_lists_and_refuse_nothing() -> None:
    assert Tensor([1.0, 2.0]).add_([1, 2]).tolist() == [2.0, 4.0] and Tensor([1, 2]).mul_([3.0, 2.0]).tolist() == [3, 4]
    for wrong in (None, "1", [None], object()):
        with pytest.raises(FluidTypeError, match="elementwise_add_ takes a tensor, a number, or an array or a list of numbers"):
            Tensor([1.0]).add_(wrong)
    with pytest.raises(InferenceError, match=r"fraction of 0\.5"):
        Tensor([1, 2]).add_([0.5, 1])


def test_indexing_copies() -> None:
    x = Tensor([[1.0, 2.0], [3.0, 4.0]])
    x[0].add_(1.0)
    x[0][1] = 9.0
    assert x.tolist() == [[1.0, 2.0], [3.0, 4.0]]
    x[0] += 1.0
    x[1, 1] = 9.0
    assert x.tolist() == [[2.0, 3.0], [3.0, 9.0]]
    assert x[:: Tensor(1)].tolist() == x[::1].tolist() == x.tolist()
    with pytest.raises(ProgramError, match=r"int64\[2\] cannot become int"):
        x[:: Tensor([1, 2])]


def test_lod_is_pickled() -> None:
    x = Tensor(np.ones((3, 1))).with_lod(((0, 1, 3),))
    again = pickle.loads(pickle.dumps(x))
    assert again.lod == copy.deepcopy(x).lod == ((0, 1, 3),) and again.tolist() == x.tolist()


# ------------------------------------------------------------------------------------------ recording, hooks and nodes
def test_decorated_generators_and_coroutines() -> None:
    import asyncio

    seen: list[Any] = []

    @no_grad()
    def generator() -> Iterator[Any]:
        try:
            got = yield dygraph.is_grad_enabled()
            try:
                yield got, dygraph.is_grad_enabled()
            except KeyError:
                yield "caught", dygraph.is_grad_enabled()
        finally:
            seen.append(dygraph.is_grad_enabled())

    made = generator()
    assert next(made) is False and dygraph.is_grad_enabled()
    assert made.send(1) == (1, False) and dygraph.is_grad_enabled()
    assert made.throw(KeyError()) == ("caught", False) and dygraph.is_grad_enabled()
    made.close()
    assert seen == [False] and dygraph.is_grad_enabled()

    @no_grad
    def gives() -> Any:
        yield 1
        return 2

    def around() -> Iterator[Any]:
        yield (yield from gives())

    assert list(around()) == [1, 2]

    @no_grad()
    async def coroutine() -> Any:
        before = dygraph.is_grad_enabled()
        await asyncio.sleep(0)
        return before, dygraph.is_grad_enabled()

    async def beside() -> Any:
        await asyncio.sleep(0)
        return dygraph.is_grad_enabled()

    @set_grad_enabled(False)
    async def asynchronous() -> Any:
        try:
            yield dygraph.is_grad_enabled()
            await asyncio.sleep(0)
            yield dygraph.is_grad_enabled()
        finally:
            seen.append(dygraph.is_grad_enabled())

    async def main() -> Any:
        both = await asyncio.gather(coroutine(), beside(), coroutine())
        return both, [(value, dygraph.is_grad_enabled()) async for value in asynchronous()]

    assert asyncio.run(main()) == ([(False, False), True, (False, False)], [(False, True), (False, True)])
    assert seen == [False, False] and dygraph.is_grad_enabled()


def test_no_grad_vars_may_be_any_iterable() -> None:
    x = Tensor([2.0], stop_gradient=False)
    y = x * 3.0
    for given in (y, [y], {y}, {"y": y}.values(), iter([y])):
        (found,) = grad(y * x, x, retain_graph=True, no_grad_vars=given)
        assert found.tolist() == [6.0]
    for wrong in ("y", 3, [None]):
        with pytest.raises(FluidTypeError, match="no_grad_vars should be a Tensor or a list of them, not"):
            grad(y * x, x, no_grad_vars=wrong)


def test_nodes_check_what_they_are_called_with() -> None:
    x = Tensor([0.0, 0.0], stop_gradient=False)
    node = x.tanh().grad_fn
    for recorded in (True, False):
        with set_grad_enabled(recorded):
            for given in (Tensor([1.0, 2.0]), np.array([1, 2], "float32"), [1.0, 2.0], [1, 2]):
                assert node(given).tolist() == [1.0, 2.0]
            for wrong in (Tensor([1.0]), np.ones(2), Tensor([1, 2])):
                with pytest.raises(BackwardError, match=r"tanh_grad: gradient 0 should be float32\[2\], as the op.s output"):
                    node(wrong)


def test_anomaly_in_a_hook_of_a_leaf() -> None:
    w = Tensor([1.0], stop_gradient=False, name="w")
    w.register_hook(lambda grad: grad * float("nan"))
    y = w * 2.0
    said = r"the gradient that ends in w \(float32\[1\]\) holds a NaN, though no node gave one: a hook did"
    with dygraph.detect_anomaly():
        with pytest.raises(BackwardError, match=said):
            y.backward(retain_graph=True)
        with pytest.raises(BackwardError, match=said):
            grad(y, w)


def test_parts_of_positions() -> None:
    first, second = fluid.layers.unstack(fluid.layers.where(Tensor(np.ones((1, 3), "bool"))), axis=1)
    assert (first.tolist(), second.tolist()) == ([0, 0, 0], [0, 1, 2])


def test_setitem_with_infinities() -> None:
    x = Tensor([1.0, 2.0, 3.0])
    x[1:] = [float("inf"), float("nan")]
    assert str(x.tolist()) == "[1.0, inf, nan]"
    with pytest.raises(ProgramError, match=r"int64\[1\] holds integers, and the fraction of inf"):
        Tensor([1])[0] = float("inf")
