"""`dygraph.recompute`: gradients of every order as without it, with random ops and statistics; memory; errors."""

from __future__ import annotations

import gc
import threading
import tracemalloc
import weakref
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from typing import Any

import numpy as np
import pytest
from checks import assert_no_cycles, each

import fluid
from fluid import dygraph, layers, optimizer
from fluid.dygraph import Tensor, recompute
from fluid.errors import BackwardError, FluidTypeError, ProgramError

RNG = np.random.default_rng(0)
X = RNG.standard_normal((6, 4))
Call = Callable[..., Any]


@pytest.fixture(autouse=True)
def _fresh() -> Iterator[None]:
    dygraph.seed(5)
    yield
    dygraph.seed(0)


class Block(dygraph.Layer):
    """Random ops, statistics, and parameters."""

    def __init__(self) -> None:
        super().__init__(dtype="float64")
        self.linear = dygraph.Linear(4, 4, act="tanh", dtype="float64")
        self.dropout = dygraph.Dropout(0.4)
        self.norm = dygraph.BatchNorm("norm", 4, dtype="float64")
        self.register_buffer("calls", Tensor([0.0]))

    def forward(self, x: Any) -> Any:
        self.calls.set_value(self.calls.numpy() + 1)
        return self.norm(self.dropout(self.linear(x))) + x


def plainly(function: Call, *args: Any, **kwargs: Any) -> Any:
    return function(*args, **kwargs)


def in_it(function: Call, *args: Any) -> Any:
    """One in another, with something before and after."""
    return (
        recompute(lambda *given: recompute(function, *[item * 2.0 for item in given]) * 0.5, *[item * 0.5 for item in args]) * 2.0
    )


def around(function: Call, *args: Any) -> Any:
    return plainly(lambda *given: plainly(function, *[item * 2.0 for item in given]) * 0.5, *[item * 0.5 for item in args]) * 2.0


def trained(call: Call, order: int = 1) -> tuple[list[Any], list[Any]]:
    """The loss and gradients of three blocks, their state afterwards, and the next draws."""
    dygraph.seed(5)
    with dygraph.guard():
        net = dygraph.Sequential(Block(), Block(), Block())
        x = Tensor(X, stop_gradient=False)
        value = x
        for block in net:
            value = call(block, value)
        loss = (value * value * value).sum()
        for _ in range(order - 1):
            (first,) = dygraph.grad(loss, x, create_graph=True)
            loss = (first * first).mean()
        loss.backward()
        found = [loss, x.grad, *(param.grad for param in net.parameters() if not param.stop_gradient)]
        kept = [*net.buffers(), *(param for param in net.parameters() if param.stop_gradient)]
        return [item.numpy() for item in found], [item.numpy() for item in [*kept, layers.uniform_random([3])]]


@each("order", [1, 2, 3])
@each("call", [recompute, in_it], ids=["once", "nested"])
def test_it_changes_nothing(call: Call, order: int) -> None:
    """Outputs, gradients of every order, dropout, moving statistics, buffers, and the random stream after it."""
    expected, expected_kept = trained(plainly if call is recompute else around, order)
    found, kept = trained(call, order)
    assert len(found) == 2 + 3 * 4 and len(kept) == 3 * 3 + 1
    for mine, other in zip(found, expected, strict=True):
        if order == 1:
            np.testing.assert_array_equal(mine, other)
        np.testing.assert_allclose(mine, other, 1e-9, 1e-9 * np.abs(other).max())
    for mine, other in zip(kept, expected_kept, strict=True):
        np.testing.assert_array_equal(mine, other)


def test_only_the_arguments_are_kept() -> None:
    """The function runs twice. Its first results are freed in between, all results after the backward pass."""
    made: list[Any] = []

    def function(x: Any) -> Any:
        inner = x.tanh()
        made.append(weakref.ref(inner._array))
        return inner * inner

    x = Tensor(X, stop_gradient=False)
    y = recompute(function, x)
    assert len(made) == 1 and made[0]() is None
    y.sum().backward()
    assert len(made) == 2 and made[1]() is None
    np.testing.assert_allclose(x.grad.numpy(), 2 * np.tanh(X) * (1 - np.tanh(X) ** 2))


def test_memory_of_a_deep_network() -> None:
    def most(call: Call) -> int:
        x = Tensor(np.ones((64, 1024)), stop_gradient=False)  # half a megabyte
        gc.collect()
        tracemalloc.start()
        value = x
        for _ in range(6):
            value = call(deep, value)
        value.sum().backward()
        found = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return found

    def deep(x: Any) -> Any:
        for _ in range(6):
            x = x.tanh()
        return x

    most(recompute), most(plainly)  # what is found out once about ops
    assert most(recompute) < 0.5 * most(plainly)


def test_no_cycles_are_left() -> None:
    block = Block()

    def step() -> None:
        recompute(block, Tensor(X, stop_gradient=False)).sum().backward()
        block.clear_gradients()

    step()
    assert_no_cycles(step)


# ------------------------------------------------------------------------------------------------- arguments and results
def test_several_outputs_and_arguments_in_all_shapes() -> None:
    seen = []

    def function(pair: Any, scale: float, *, more: Any, name: str) -> Any:
        seen.append((scale, name, more["whole"].stop_gradient))
        a, b = pair
        return {"sum": a + b, "parts": (a * scale, more["c"].exp(), more["whole"] + 1), "said": name, "alone": b}

    def run(call: Call) -> list[Any]:
        a, b, c = (Tensor(value, stop_gradient=False) for value in (X, X * 2, X + 1))
        fixed, whole = Tensor(X), Tensor([1, 2])
        found = call(function, [a, b], 3.0, more={"c": c, "whole": whole, "fixed": fixed}, name="it")
        assert found["said"] == "it" and found["parts"][2].tolist() == [2, 3] and found["parts"][2].stop_gradient
        (found["sum"].sum() * 2.0 + (found["parts"][1] * found["alone"]).sum()).backward()  # one of them is not used
        return [a.grad.numpy(), b.grad.numpy(), c.grad.numpy()]

    for mine, other in zip(run(recompute), run(plainly), strict=True):
        np.testing.assert_array_equal(mine, other)
    assert seen == [(3.0, "it", True)] * 3


def test_inputs_that_need_no_gradient() -> None:
    """Parameters get gradients anyway; if no gradient is needed, the function is not called again."""
    layer = dygraph.Linear(4, 3, dtype="float64")
    y = recompute(layer, Tensor(X))
    y.sum().backward()
    np.testing.assert_allclose(layer.weight.grad.numpy(), np.repeat(X.sum(0)[:, None], 3, 1))
    x = Tensor(X, stop_gradient=False)
    found = dygraph.grad(recompute(layer, x).sum(), [x])  # of x alone
    np.testing.assert_allclose(found[0].numpy(), np.tile(layer.weight.numpy().sum(1), (6, 1)))
    calls = []

    def function(x: Any) -> Any:
        calls.append(dygraph.is_grad_enabled())
        return x * 2.0

    assert recompute(function, Tensor(X)).is_leaf
    with dygraph.no_grad():
        assert recompute(function, x).stop_gradient
    assert calls == [True, False]


def test_what_is_handed_through() -> None:
    """An argument, a parameter, one value twice: as in a plain call."""
    w = dygraph.Parameter(np.array([2.0]))

    def run(call: Call) -> Any:
        x = Tensor([3.0], dtype="float64", stop_gradient=False)
        w.clear_gradient()
        a, b, c, d = call(lambda x: ((y := x * w), x, w, y), x)
        (a * b * c * d).sum().backward()
        return x.grad.tolist(), w.grad.tolist()

    assert run(recompute) == run(plainly) == ([3 * 3.0**2 * 2**3], [3 * 3.0**3 * 2**2])
    x = Tensor([3.0], stop_gradient=False)
    same = recompute(lambda x: (x, x.tanh()), x)[0]
    weight = Tensor([5.0])
    for _ in range(2):
        same.backward(weight, retain_graph=True)
    assert x.grad.tolist() == [10.0] and same is not x
    assert weight.tolist() == [5.0]  # the gradients are added up in memory of their own


def test_a_tensor_used_inside_and_outside() -> None:
    """As an argument, in the computation of the argument, and by name: each use contributes once."""
    for order in (1, 2):
        found = []
        for call in (plainly, recompute):
            w = dygraph.Parameter(X[:4])
            x = Tensor(X, stop_gradient=False)
            hidden = (x @ w).tanh()
            loss = (call(lambda h, x, v, w=w: (h @ w) * x + v.sum(), hidden, x, w) * (x @ w)).sum()
            if order == 2:
                loss = (dygraph.grad(loss, w, create_graph=True)[0] ** 2.0).sum()
            loss.backward()
            found.append((x.grad.numpy(), w.grad.numpy()))
        for mine, other in zip(*found, strict=True):
            np.testing.assert_allclose(mine, other, 1e-10)


def test_grad_inputs_hooks_and_retained_graphs() -> None:
    layer = dygraph.Linear(4, 3, bias_attr=False, dtype="float64")
    x = Tensor(X, stop_gradient=False)
    plain = dygraph.grad(layer(layer(x)[:, :1] * x).sum(), [layer.weight])[0].numpy()
    loss = recompute(lambda x: layer(layer(x)[:, :1] * x), x).sum()
    np.testing.assert_allclose(dygraph.grad(loss, [layer.weight], retain_graph=True)[0].numpy(), plain, 1e-12)
    loss.backward(inputs=[layer.weight], retain_graph=True)
    assert x.grad is None
    layer.clear_gradients()
    seen = []
    handles = [
        layer.weight.register_hook(lambda grad: seen.append(grad.numpy()) or grad * 0.5),
        x.register_hook(lambda grad: seen.append(grad.numpy()) or None),
    ]
    loss.backward(retain_graph=True)
    assert len(seen) == 2  # each once, with the whole gradient
    np.testing.assert_allclose(next(part for part in seen if part.shape == plain.shape), plain, 1e-12)
    np.testing.assert_allclose(layer.weight.grad.numpy(), plain * 0.5, 1e-12)
    for handle in handles:
        handle.remove()
    loss.backward()
    with pytest.raises(BackwardError, match=r"recompute_backward has run before.*pass retain_graph=True"):
        loss.backward()


def test_hooks_inside_see_the_gradient_once() -> None:
    seen = []

    def function(x: Any) -> Any:
        inner = x * 3.0
        inner.register_hook(lambda grad: seen.append(grad.tolist()))
        return inner * inner

    x = Tensor([2.0], stop_gradient=False)
    recompute(function, x).backward()
    assert seen == [[12.0]] and x.grad.tolist() == [36.0]


def test_it_is_differentiable() -> None:
    w = Tensor(X[:4] * 0.3, stop_gradient=False)
    x = Tensor(X[:2], stop_gradient=False)
    assert dygraph.gradcheck(lambda x, w: recompute(lambda x, w: (x @ w).tanh(), x, w), [x, w])
    assert dygraph.gradgradcheck(lambda x, w: recompute(lambda x, w: (x @ w).tanh(), x, w), [x, w])
    found = dygraph.jvp(lambda x: recompute(lambda x: (x @ w).tanh(), x), x)[1]
    np.testing.assert_allclose(found.numpy(), dygraph.jvp(lambda x: (x @ w).tanh(), x)[1].numpy())


def test_sparse_tables_and_sequences() -> None:
    table = dygraph.Embedding(None, [5, 4], is_sparse=True)
    ids = Tensor(np.array([[1], [3], [1]]))
    plainly(table, ids).tanh().sum().backward()
    expected = table.weight.grad.numpy()
    table.clear_gradients()
    recompute(lambda ids: table(ids).tanh(), ids).sum().backward()
    assert table.weight.grad.type == fluid.core.VarDesc.VarType.SELECTED_ROWS
    np.testing.assert_array_equal(table.weight.grad.numpy(), expected)
    rows = Tensor(X).with_lod(((0, 2, 6),))
    rows.stop_gradient = False
    pooled = recompute(lambda rows: layers.sequence_pool(rows, "sum"), rows)
    (pooled * Tensor([[1.0], [2.0]], dtype="float64")).sum().backward()
    np.testing.assert_array_equal(rows.grad.numpy(), np.repeat([1.0, 1, 2, 2, 2, 2], 4).reshape(6, 4))


# ---------------------------------------------------------------------------------------------- where and how it is called
def test_backward_outside_of_the_guard() -> None:
    """Ops without inputs run as in the first call: eagerly, and with the same random stream."""
    layer = dygraph.Linear(4, 4, dtype="float64")

    def function(x: Any) -> Any:
        return layers.elementwise_mul(layer(x), layers.uniform_random([6, 4], "float64"))

    found = []
    for call in (plainly, recompute):
        with dygraph.guard():
            fluid.default_main_program().random_seed = 9
            y = call(function, Tensor(X))
        y.sum().backward()
        found.append(layer.weight.grad.numpy())
        layer.clear_gradients()
    np.testing.assert_array_equal(*found)
    assert fluid.default_main_program().global_block().ops == []
    with dygraph.guard():
        recompute(lambda x: layers.softmax(x * 2.0), Tensor(X, stop_gradient=False)).sum().backward()
        assert fluid.unique_name.generate("softmax") == "softmax_1"  # counted as in a plain call


def test_context_variables_are_those_of_the_first_call() -> None:
    """Among them, on which device arrays are made."""
    where: ContextVar[str] = ContextVar("where", default="outside")
    seen = []

    def function(x: Any) -> Any:
        seen.append(where.get())
        return x * 2.0

    token = where.set("inside")
    y = recompute(function, Tensor(X, stop_gradient=False))
    where.reset(token)
    y.sum().backward()
    assert seen == ["inside", "inside"]


def test_branches_in_several_threads() -> None:
    """Large segments of one pass run at the same time, each with the numbers that it drew."""
    threads = dygraph.get_num_threads()
    found = []
    try:
        for count, call in ((1, plainly), (1, recompute), (4, recompute)):
            dygraph.set_num_threads(count)
            dygraph.seed(3)
            x = Tensor(np.ones((2048, 1100), "float32"), stop_gradient=False)
            parts = [call(lambda x: layers.dropout(x, 0.5) * x, x * float(scale)) for scale in (1, 2, 3)]
            (parts[0] + parts[1] + parts[2]).sum().backward()
            found.append(x.grad.numpy())
    finally:
        dygraph.set_num_threads(threads)
    np.testing.assert_array_equal(found[0], found[1])
    np.testing.assert_array_equal(found[1], found[2])


def test_parameters_that_changed_meanwhile() -> None:
    layer = dygraph.Linear(4, 4, dtype="float64")
    for change in (lambda: layer.bias.set_value(np.ones(4)), lambda: layer.weight.set_value(np.ones((4, 4)))):
        y = recompute(lambda x: layer(x) ** 2, Tensor(X, stop_gradient=False))
        change()
        with pytest.raises(BackwardError, match=r"recompute_backward needs a tensor that was modified in place .* set_value"):
            y.sum().backward()


def test_draws_of_other_threads_are_not_repeated() -> None:
    others = []

    def function(x: Any) -> Any:
        first = layers.dropout(x, 0.5)
        thread = threading.Thread(target=lambda: others.append(dygraph.ops.uniform_random(shape=[1]).item()))
        thread.start()
        thread.join()
        return first + layers.dropout(x, 0.5)

    x = Tensor(np.ones((40, 40)), stop_gradient=False)
    y = recompute(function, x)
    y.sum().backward()
    np.testing.assert_array_equal(y.numpy(), x.grad.numpy())
    assert len(set(others)) == 2


def test_passes_in_several_threads() -> None:
    layer = dygraph.Linear(4, 4, dtype="float64")

    def work() -> None:
        for _ in range(5):
            recompute(lambda x: layer(x).tanh(), Tensor(X)).sum().backward()

    work()
    once = layer.weight.grad.numpy()
    layer.clear_gradients()
    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    np.testing.assert_allclose(layer.weight.grad.numpy(), once * 8)


def test_deeply_nested() -> None:
    """Deeper than the engine goes in one thread."""

    def function(depth: int, x: Any) -> Any:
        return x * 1.5 if depth == 0 else recompute(function, depth - 1, x)

    x = Tensor([2.0], stop_gradient=False)
    function(40, x).backward()
    assert x.grad.tolist() == [1.5]


def test_traced_and_printed() -> None:
    layer = dygraph.Linear(4, 3, dtype="float64")
    x = Tensor(X)
    traced = dygraph.trace(lambda x: recompute(layer, x), x)
    assert [op.type for op in traced.program.global_block().ops] == ["mul", "elementwise_add"]
    assert "recompute(" in str(recompute(layer, x).program())
    assert repr(recompute(layer, x).grad_fn) == "<recompute_backward>"


def test_layers_made_in_the_first_call() -> None:
    """The second call skips the draws of new parameters, nested or not."""

    def run(call: Call, order: int) -> list[Any]:
        dygraph.seed(5)
        first, second = dygraph.FC("fc", 5), dygraph.FC("fc", 4, param_attr=fluid.WeightNormParamAttr())
        x = Tensor(X.astype("float32"), stop_gradient=False)
        value = call(lambda x: layers.dropout(call(second, layers.dropout(first(x), 0.5)), 0.5), x)
        if order == 2:
            value = dygraph.grad((value * value).sum(), x, create_graph=True)[0]
        (value * value).sum().backward()
        assert len(first.parameters() + second.parameters()) == 5
        return [
            x.grad.numpy(),
            *(param.grad.numpy() for param in first.parameters() + second.parameters() if param.grad is not None),
        ]

    for order in (1, 2):
        for mine, other in zip(run(recompute, order), run(plainly, order), strict=True):
            np.testing.assert_allclose(mine, other, 1e-4, 1e-4)


def test_training_a_network_of_segments() -> None:
    found = []
    for call in (plainly, recompute):
        with dygraph.guard():
            dygraph.seed(5)
            net = dygraph.Sequential(Block(), Block())
            adam = optimizer.Adam(0.1, parameter_list=net.parameters())
            for _ in range(4):
                value = Tensor(X)
                for block in net:
                    value = call(block, value)
                loss = (value * value).mean()
                loss.backward()
                adam.step()
                adam.clear_grad()
            found.append([loss.numpy(), *(value.numpy() for value in net.state_dict().values())])
    for mine, other in zip(*found, strict=True):
        np.testing.assert_array_equal(mine, other)


# -------------------------------------------------------------------------------------------------------------- errors
def test_errors() -> None:
    x = Tensor(X, stop_gradient=False)
    with pytest.raises(FluidTypeError, match="recompute takes a function or a layer, and its arguments, not Tensor"):
        recompute(x, lambda x: x)
    hidden = x.tanh()
    with pytest.raises(ProgramError, match=r"uses what tanh_grad has computed before, recorded at: .*\n  give it as an argument"):
        recompute(lambda x: x * hidden, x)
    recompute(lambda x: x * hidden.detach(), x).sum().backward()
    y = recompute(lambda x: x * 2.0, hidden)
    hidden.scale_(2.0)
    with pytest.raises(
        BackwardError, match="recompute_backward needs a tensor that was modified in place after it was recorded: by sc"
    ):
        y.sum().backward()
    with pytest.raises(BackwardError, match="recompute_backward needs a tensor that was modified in place"):
        recompute(lambda x: x.scale_(2.0), x * 1.0).sum().backward()
    with pytest.raises(ZeroDivisionError):
        recompute(lambda x: 1 / 0, x)


def test_functions_that_do_something_else() -> None:
    x = Tensor(X, stop_gradient=False)
    turns = iter(range(100))
    layers_ = [dygraph.Linear(4, 4, dtype="float64") for _ in range(2)]

    def shape(x: Any) -> Any:
        return x[: next(turns) + 1]

    def other(x: Any) -> Any:
        return layers_[next(turns) % 2](x)

    def drawing(x: Any) -> Any:
        for _ in range(1 + next(turns) % 2):
            x = layers.dropout(x, 0.5)
        return x

    def failing(x: Any) -> Any:
        return x * (2.0 / (next(turns) % 2))

    with pytest.raises(
        BackwardError, match=r"recompute: shape gave float64\[1, 4\] at first, but float64\[2, 4\] when backward called"
    ):
        recompute(shape, x).sum().backward()
    message = "recompute: other used linear_0.b_0, linear_0.w_0 at first, but linear_1.b_0, linear_1.w_0 when backward called it"
    with pytest.raises(BackwardError, match=message):
        recompute(other, x).sum().backward()
    with pytest.raises(
        BackwardError, match="recompute: drawing took 1 numbers of the random stream at first, but 2 when backward"
    ):
        recompute(drawing, x).sum().backward()
    next(turns)
    y = recompute(failing, x)
    with pytest.raises(ZeroDivisionError) as caught:
        y.sum().backward()
    assert "in the backward pass, in recompute_backward, recorded at:" in "".join(
        [str(caught.value), *getattr(caught.value, "__notes__", ())]
    )
    x.tanh().sum().backward()  # the engine is as good as before
    np.testing.assert_allclose(x.grad.numpy(), 1 - np.tanh(X) ** 2)


def test_the_optimizer_of_that_name() -> None:
    layer = dygraph.Linear(4, 3, dtype="float64")
    loss = layer(Tensor(X)).sum()
    loss.backward()
    wrapped = optimizer.RecomputeOptimizer(optimizer.SGD(0.1, parameter_list=layer.parameters()))
    for train in (lambda: wrapped.minimize(loss), wrapped.step, wrapped.clear_grad):
        with pytest.raises(
            ProgramError, match=r"RecomputeOptimizer is for programs.*y = fluid.dygraph.recompute\(part, x\), and use the"
        ):
            train()


def test_a_constant_that_changes_before_backward_is_noticed() -> None:
    """Whether its value is saved or not, and whether or not a call in the call reads it."""
    for compute in (lambda x, c: x * c, lambda x, c: (x + c).tanh(), lambda x, c: recompute(lambda x: x + c, x).tanh()):
        constant, x = Tensor(X), Tensor(X, stop_gradient=False)
        y = recompute(lambda x, compute=compute, constant=constant: compute(x, constant), x)
        constant.mul_(2.0)
        with pytest.raises(BackwardError, match=r"modified in place(.|\n)*modified at: .*test_dygraph_recompute"):
            y.sum().backward()


def test_state_that_the_function_itself_changes_may_change_again() -> None:
    block = Block()
    block.train()
    x = Tensor(X, stop_gradient=False)
    y = recompute(block, x)
    block(x)  # changes the moving statistics and the counter
    y.sum().backward()
    assert x.grad is not None
