"""Side by side with torch: random graphs, and the examples of its tutorials."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from checks import MORE, each

import fluid
from fluid import dygraph
from fluid.dygraph import Tensor, ops


@pytest.fixture(scope="module", autouse=True)
def loaded_torch() -> None:
    """Load torch where the tests run, and not, which takes a second, wherever they are collected."""
    global torch
    torch = pytest.importorskip("torch")


class Ours:
    """Ops of Fluid."""

    double = "float64"

    def tensor(self, array: Any, wanted: bool) -> Any:
        return Tensor(array, "float64", requires_grad=wanted)

    def total(self, x: Any) -> Any:
        return x.sum()

    def softmax(self, x: Any) -> Any:
        return x.softmax(axis=-1)

    def join(self, x: Any, y: Any) -> Any:
        return ops.concat([x, y], axis=0)

    def parts(self, x: Any) -> Any:
        return ops.split(x, num=2, axis=0)

    def greater(self, x: Any, y: Any) -> Any:
        return ops.elementwise_max(x, y)

    def flipped(self, x: Any) -> Any:
        return x.transpose(1, 0)

    def grad(self, *args: Any, **kwargs: Any) -> Any:
        return dygraph.grad(*args, **kwargs)

    def array(self, x: Any) -> Any:
        return x.numpy()


class Theirs:
    """The same of torch."""

    def tensor(self, array: Any, wanted: bool) -> Any:
        return torch.tensor(array, dtype=torch.float64, requires_grad=wanted)

    def total(self, x: Any) -> Any:
        return x.sum()

    def softmax(self, x: Any) -> Any:
        return x.softmax(-1)

    def join(self, x: Any, y: Any) -> Any:
        return torch.cat([x, y], 0)

    def parts(self, x: Any) -> Any:
        return x.chunk(2, 0)

    def greater(self, x: Any, y: Any) -> Any:
        return torch.maximum(x, y)

    def flipped(self, x: Any) -> Any:
        return x.transpose(1, 0)

    def grad(self, *args: Any, no_grad_vars: Any = None, **kwargs: Any) -> Any:
        return torch.autograd.grad(*args, **kwargs)

    def array(self, x: Any) -> Any:
        return x.detach().numpy()


EXTENT = 4
_Op = Callable[[Any, Any, Any], Any]
# Each takes the namespace and two matrices of EXTENT by EXTENT, and gives one.
OPS: dict[str, _Op] = {
    "add": lambda f, x, y: x + y,
    "sub": lambda f, x, y: x - y * 0.5,
    "mul": lambda f, x, y: x * y,
    "div": lambda f, x, y: x / (y * y + 1.0),
    "matmul": lambda f, x, y: (x @ y) * 0.25,
    "tanh": lambda f, x, y: x.tanh(),
    "sigmoid": lambda f, x, y: x.sigmoid(),
    "exp": lambda f, x, y: (x * 0.1).exp(),
    "square": lambda f, x, y: (x * 0.3) ** 2,
    "softmax": lambda f, x, y: f.softmax(x),
    "row": lambda f, x, y: x + y.sum(0) * 0.1,
    "mean": lambda f, x, y: x * y.mean(),
    "flip": lambda f, x, y: f.flipped(x),
    "join": lambda f, x, y: f.parts(f.join(x, y))[1],
    "halves": lambda f, x, y: f.join(*f.parts(x)[::-1]),
    "greater": lambda f, x, y: f.greater(x, y),
    "detached": lambda f, x, y: x * y.detach(),
    "in_place": lambda f, x, y: (x * 1.0).mul_(y).add_(x),
    "in_place_tanh": lambda f, x, y: (x + y).tanh_(),
    "cut": lambda f, x, y: f.join(x[1:], y[:1]),
    "element": lambda f, x, y: x * y[1, 2],
    "set": lambda f, x, y: _with_row(x, y),
    "relu": lambda f, x, y: (x + 0.1).relu() * x,
    "log": lambda f, x, y: (x * x + 1.0).log(),
    "reshape": lambda f, x, y: x.reshape(2, -1).reshape(EXTENT, EXTENT) + y,
}


def _with_row(x: Any, y: Any) -> Any:
    made = x * 1.0
    made[1] = y[0]
    return made


def build(f: Any, seed: int, hooked: bool) -> tuple[list[Any], list[Any], list[Any]]:
    """Leaves, everything made of them, and what hooks saw: the same for both namespaces."""
    rng, choose = np.random.default_rng(seed), random.Random(seed)
    leaves = [f.tensor(rng.standard_normal((EXTENT, EXTENT)), choose.random() < 0.8 or number == 0) for number in range(4)]
    pool, seen = list(leaves), []
    for _ in range(choose.randint(5, 25)):
        op = OPS[choose.choice(list(OPS))]
        x, y = choose.choice(pool), choose.choice(pool[-4:])
        made = op(f, x, y)
        kind = choose.random()
        if hooked and made.requires_grad and kind < 0.2:
            made.register_hook(lambda g: seen.append(f.array(g).copy()))
        elif hooked and made.requires_grad and kind < 0.3:
            made.register_hook(lambda g: g * 0.5)
        elif kind < 0.4 and hooked and made.requires_grad:
            made.retain_grad() if f.__class__ is Theirs else made.retain_grads()
        pool.append(made)
    return leaves, pool[len(leaves) :], seen


def assert_close(found: Any, expected: Any) -> None:
    assert (found is None) == (expected is None)
    if found is not None:
        expected = np.asarray(expected.detach())
        np.testing.assert_allclose(found.numpy().reshape(expected.shape), expected, rtol=1e-9, atol=1e-11)


@each("seed", range(100))
def test_random_graphs_backward(seed: int) -> None:
    """`backward` from a sum, hooks, retained gradients, `inputs=`; a second pass adds to the first."""
    ours, theirs = Ours(), Theirs()
    our_leaves, our_pool, our_seen = build(ours, seed, True)
    their_leaves, their_pool, their_seen = build(theirs, seed, True)
    for found, expected in zip(our_pool, their_pool, strict=True):
        assert_close(found, expected)
        assert found.requires_grad == expected.requires_grad
    last = max((i for i, made in enumerate(their_pool) if made.requires_grad), default=None)
    if last is None:
        return
    our_loss, their_loss = our_pool[last].sum(), their_pool[last].sum()
    our_loss.backward(retain_graph=True)
    their_loss.backward(retain_graph=True)
    if seed % 2:
        chosen = [i for i, leaf in enumerate(their_leaves) if leaf.requires_grad][:1]
        our_loss.backward(retain_graph=True, inputs=[our_leaves[i] for i in chosen])
        their_loss.backward(retain_graph=True, inputs=[their_leaves[i] for i in chosen])
    assert len(our_seen) == len(their_seen)
    for one, other in zip(our_seen, their_seen, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-9, atol=1e-11)
    for found, expected in zip([*our_leaves, *our_pool], [*their_leaves, *their_pool], strict=True):
        if expected.is_leaf or expected.retains_grad:
            assert_close(found.grad, expected.grad)


@each("seed", range(100, 200))
def test_random_graphs_orders(seed: int) -> None:
    """Gradients of gradients of gradients, by leaves and by what lies between; some of it taken as constant."""
    ours, theirs = Ours(), Theirs()
    our_leaves, our_pool, _ = build(ours, seed, False)
    their_leaves, their_pool, _ = build(theirs, seed, False)
    wanted = [i for i, leaf in enumerate(their_leaves) if leaf.requires_grad]
    made = [i for i, value in enumerate(their_pool) if value.requires_grad]
    if not made:
        return
    middle = made[len(made) // 2]
    our_inputs = [our_leaves[i] for i in wanted] + [our_pool[middle]]
    their_inputs = [their_leaves[i] for i in wanted] + [their_pool[middle]]
    our_loss = our_pool[made[-1]].tanh().sum()
    their_loss = their_pool[made[-1]].tanh().sum()
    for order in (1, 2, 3):
        found = ours.grad(our_loss, our_inputs, create_graph=order < 3, allow_unused=True)
        expected = theirs.grad(their_loss, their_inputs, create_graph=order < 3, allow_unused=True)
        pairs = []
        for one, other in zip(found, expected, strict=True):
            # What is zero at every point one of the two may call unused.
            if one is not None and other is not None:
                assert_close(one, other)
                pairs.append((one, other))
            else:
                assert all(value is None or not np.asarray(value.detach()).any() for value in (one, other))
        pairs = [(one, other) for one, other in pairs if one.requires_grad and other.requires_grad]
        if not pairs:
            break
        our_loss = sum((one.tanh().sum() for one, _ in pairs[1:]), pairs[0][0].tanh().sum())
        their_loss = sum((other.tanh().sum() for _, other in pairs[1:]), pairs[0][1].tanh().sum())


@each("seed", range(200, 240))
def test_random_graphs_with_constants(seed: int) -> None:
    """`no_grad_vars` is what `detach` would have given."""
    ours = Ours()
    leaves, pool, _ = build(ours, seed, False)
    wanted = [leaf for leaf in leaves if leaf.requires_grad]
    if pool[-1].stop_gradient:
        return
    between = [made for made in pool[:-1] if made.requires_grad]
    if not between:
        return
    constant = between[len(between) // 2]
    found = dygraph.grad(pool[-1].sum(), wanted, allow_unused=True, retain_graph=True, no_grad_vars=[constant])
    everything = dygraph.grad(pool[-1].sum(), [*wanted, constant], allow_unused=True, retain_graph=True)
    through = (
        [None] * len(wanted)
        if everything[-1] is None
        else dygraph.grad(constant, wanted, everything[-1], allow_unused=True, retain_graph=True)
    )
    for part, whole, by_constant in zip(found, everything[:-1], through, strict=True):
        total = (0 if part is None else part.numpy()) + (0 if by_constant is None else by_constant.numpy())
        np.testing.assert_allclose(total, 0 if whole is None else whole.numpy(), rtol=1e-9, atol=1e-11)


@pytest.mark.filterwarnings("ignore::numpy.exceptions.ComplexWarning")
@pytest.mark.random
@each("seed", range(150 * MORE))
def test_random_programs(seed: int) -> None:
    """Writes in place, aliases, hooks, frozen leaves, functions of one's own; `benchmarks/attack_eager.py` runs more."""
    from random_eager import difference  # which imports torch

    assert difference(seed) == ""


# ---------------------------------------------------------------------------------------------- the autograd tutorials
def test_blitz_tutorial() -> None:
    """Q = 3 a^3 - b^2."""
    a, b = Tensor([2.0, 3.0], requires_grad=True), Tensor([6.0, 4.0], requires_grad=True)
    q = a**3.0 * 3.0 - b**2.0
    q.backward(Tensor([1.0, 1.0]))
    assert a.grad.tolist() == [36, 81] and b.grad.tolist() == [-12, -8]


def test_beginner_tutorial() -> None:
    """Binary cross entropy of a linear layer, and a Jacobian product whose gradients add up."""
    rng = np.random.default_rng(0)
    arrays = rng.standard_normal((5, 3)), rng.standard_normal(3)
    w, b = (Tensor(array, requires_grad=True) for array in arrays)
    tw, tb = (torch.tensor(array, requires_grad=True) for array in arrays)
    z = Tensor(np.ones(5)) @ w + b
    loss = ops.sigmoid_cross_entropy_with_logits(z, Tensor(np.zeros(3))).mean()
    loss.backward()
    torch.nn.functional.binary_cross_entropy_with_logits(
        torch.ones(5, dtype=torch.float64) @ tw + tb, torch.zeros(3).double()
    ).backward()
    assert_close(w.grad, tw.grad)
    assert_close(b.grad, tb.grad)
    x = Tensor(np.eye(4, 5), requires_grad=True)
    out = ((x + 1) ** 2.0).transpose()
    tx = torch.eye(4, 5, dtype=torch.float64, requires_grad=True)
    t_out = (tx + 1).pow(2).t()
    for _ in range(2):
        out.backward(Tensor(np.ones((5, 4))), retain_graph=True)
        t_out.backward(torch.ones_like(t_out), retain_graph=True)
        assert_close(x.grad, tx.grad)


def test_legendre_tutorial() -> None:
    """A function of one's own: P3(x) = (5 x^3 - 3 x) / 2, trained."""

    class Ours(dygraph.PyLayer):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            ctx.save_for_backward(x)
            return (x**3.0 * 5.0 - x * 3.0) * 0.5

        @staticmethod
        def backward(ctx: Any, dy: Any) -> Any:
            (x,) = ctx.saved_tensor()
            return dy * (x**2.0 * 5.0 - 1.0) * 1.5

    x = np.linspace(-np.pi, np.pi, 200)
    params = [Tensor([value], "float64", requires_grad=True) for value in (0.0, -1.0, 0.0, 0.3)]
    theirs = [torch.tensor([value], dtype=torch.float64, requires_grad=True) for value in (0.0, -1.0, 0.0, 0.3)]
    xs, ys, t_xs = Tensor(x), Tensor(np.sin(x)), torch.tensor(x)
    for _ in range(20):
        a, b, c, d = params
        loss = ((a + b * Ours.apply(c + d * xs) - ys) ** 2.0).sum()
        loss.backward()
        a, b, c, d = theirs
        inner = c + d * t_xs
        t_loss = ((a + b * 0.5 * (5 * inner**3 - 3 * inner) - torch.sin(t_xs)) ** 2).sum()
        t_loss.backward()
        with dygraph.no_grad(), torch.no_grad():
            for param, other in zip(params, theirs, strict=True):
                assert_close(param.grad, other.grad)
                param.sub_(param.grad * 5e-6)
                other -= 5e-6 * other.grad
                param.grad = other.grad = None


def test_memory_is_shared_with_torch() -> None:
    x = Tensor([1.0, 2.0])
    other = torch.from_dlpack(x)
    other[0] = 5
    assert x.tolist() == [5, 2]
    back = dygraph.from_dlpack(other)
    back.fill_(7.0)
    assert other.tolist() == [7, 7] and x.tolist() == [7, 7]
    assert dygraph.from_dlpack(torch.arange(6).reshape(2, 3).t()).tolist() == [[0, 3], [1, 4], [2, 5]]


@each("create_graph", [False, True])
def test_functional(create_graph: bool) -> None:
    rng = np.random.default_rng(0)
    array, direction = rng.standard_normal(4), rng.standard_normal(4)

    def ours(x: Any) -> Any:
        return (x.tanh() * x[0] + x.exp()).sum()

    x = Tensor(array, requires_grad=True)
    tx, tv = torch.tensor(array, requires_grad=True), torch.tensor(direction)
    functional = torch.autograd.functional
    assert_close(dygraph.hessian(ours, x, create_graph), functional.hessian(ours, tx))
    assert_close(dygraph.hvp(ours, x, Tensor(direction), create_graph)[1], functional.hvp(ours, tx, tv)[1])
    assert_close(
        dygraph.jvp(lambda x: x.tanh() * x[0], x, Tensor(direction), create_graph)[1],
        functional.jvp(lambda x: x.tanh() * x[0], tx, tv)[1],
    )
    assert_close(dygraph.jacobian(lambda x: x.tanh() * x[0], x, create_graph), functional.jacobian(lambda x: x.tanh() * x[0], tx))


@each("seed", range(20))
def test_random_augmented_operators(seed: int) -> None:
    """A chain of operators in place, with other names of the tensor, and gradients that are retained on the way."""

    def run(library: Any) -> list[Any]:
        rng, chosen = np.random.default_rng(seed), random.Random(seed)
        a, b = (library.tensor(rng.uniform(0.5, 1.5, (2, 3)), True) for _ in range(2))
        y = a * 1.0
        same = y
        retained = []
        for _ in range(8):
            other = chosen.choice([b, b * 0.5, 1.25, a])
            which = chosen.choice(["add", "subtract", "multiply", "divide", "retain", "use"])
            if which == "add":
                y += other
            elif which == "subtract":
                y -= other * 0.25
            elif which == "multiply":
                y *= other
            elif which == "divide":
                y /= other
            elif which == "retain":
                getattr(y, "retain_grads" if isinstance(library, Ours) else "retain_grad")()
                retained = [y]
            else:
                b = b + y.clone().tanh()
        assert same is y
        library.total(y * b.tanh()).backward()
        return [library.array(part) for part in (y.detach(), a.grad, *(t.grad for t in retained))]

    ours, theirs = run(Ours()), run(Theirs())
    for mine, other in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(mine, other, rtol=1e-10, atol=1e-12)


def test_gradients_of_what_is_modified_in_place() -> None:
    """A retained gradient belongs to the new elements; an earlier hook sees the gradient of the old ones."""

    def run(x: Any, retain: str) -> list[Any]:
        seen: list[Any] = []
        y = x * 3.0
        getattr(y, retain)()
        y.register_hook(lambda grad: seen.append(("before", grad.tolist())))
        z = y * 2.0
        y.mul_(5.0)
        y.register_hook(lambda grad: seen.append(("after", grad.tolist())))
        (y * 7.0 + z).backward()
        return [*seen, y.grad.tolist(), x.grad.tolist()]

    mine = run(Tensor([2.0], stop_gradient=False), "retain_grads")
    assert mine == run(torch.tensor([2.0], requires_grad=True), "retain_grad")
    assert mine == [("after", [7.0]), ("before", [37.0]), [7.0], [111.0]]


def test_comparisons_and_numbers() -> None:
    array, other = np.array([1.0, 2.0, 3.0], np.float32), np.array([1.0, 0.0, 3.0], np.float32)
    x, y = Tensor(array), Tensor(other)
    t, u = torch.tensor(array), torch.tensor(other)
    for mine, theirs in ((x == y, t == u), (x != y, t != u), (x == 1, t == 1), (x / 0, t / 0), (+x, +t)):
        assert mine.tolist() == theirs.tolist()
    assert (x == None, x != None, x == "x") == (t == None, t != None, t == "x") == (False, True, False)  # noqa: E711
    assert (2.0 in x) == (2.0 in t) and (5.0 in x) == (5.0 in t)
    large = 2**53 + 1
    for compute in (
        lambda v: v + large, lambda v: large - v, lambda v: v * large, lambda v: v < large, lambda v: v == large,
        lambda v: v % large, lambda v: v.clone().fill_(large),
    ):  # fmt: skip
        assert compute(Tensor([1, -2])).tolist() == compute(torch.tensor([1, -2])).tolist()


# --------------------------------------------------------------------------------------------------------------- DLPack
@each("dtype", ["float16", "float32", "float64", "int8", "int16", "int32", "int64", "uint8", "bool", "complex64", "complex128"])
def test_memory_is_shared_both_ways(dtype: str) -> None:
    theirs = torch.ones([2, 3], dtype=getattr(torch, dtype))
    ours = dygraph.from_dlpack(theirs)
    assert (ours.shape, ours.dtype.text) == ((2, 3), dtype)
    back = torch.from_dlpack(ours)
    back[0, 1] = 0
    assert back.data_ptr() == theirs.data_ptr() and theirs[0, 1] == 0 and ours.numpy()[0, 1] == 0


def test_what_cannot_be_shared() -> None:
    copied = dygraph.from_dlpack(torch.arange(6.0).reshape(2, 3).t())  # columns lie apart
    assert copied.tolist() == [[0, 3], [1, 4], [2, 5]]
    with pytest.raises(fluid.errors.FluidTypeError, match=r"Unsupported dtype.*Cast it to an element type that numpy has"):
        dygraph.from_dlpack(torch.ones(2, dtype=torch.bfloat16))
    with pytest.raises(BufferError, match="require gradient"):
        dygraph.from_dlpack(torch.ones(2, requires_grad=True))


def test_a_scope_s_tensor_goes_to_torch_and_back() -> None:
    tensor = fluid.LoDTensor()
    tensor.set(torch.ones(3), fluid.CPUPlace())
    theirs = torch.from_dlpack(tensor)
    theirs[0] = 7.0
    assert np.asarray(tensor).tolist() == [7.0, 1.0, 1.0]
