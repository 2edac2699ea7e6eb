"""How far eager mode and programs with native code are apart: last bits, which training carries on. The bounds are those that
docs/how_to/same_results.md tells, with a margin for other processors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from checks import each

import fluid
from fluid import dygraph, layers
from fluid.eager.dispatch import namespace
from fluid.executor.planned import plan

pytest.importorskip("llvmlite")

EPSILON = float(np.finfo("float32").eps)
RNG = np.random.default_rng(0)


def ops(x: Any) -> Any:
    """Functions of tensors, or of variables of the default program."""
    return namespace if isinstance(x, dygraph.Tensor) else fluid.extend.ops()


OPS: dict[str, tuple[Callable[..., Any], list[tuple[int, ...]]]] = {
    "a product": (layers.matmul, [(64, 1024), (1024, 512)]),
    "a deep product": (layers.matmul, [(32, 4096), (4096, 64)]),
    "a small product": (layers.matmul, [(8, 100), (100, 12)]),
    "a convolution": (lambda x, w: ops(x).conv2d(x, w, paddings=[1, 1]), [(4, 32, 28, 28), (64, 32, 3, 3)]),
    "a convolution of few channels": (lambda x, w: ops(x).conv2d(x, w, strides=[2, 2]), [(4, 3, 64, 64), (16, 3, 5, 5)]),
    "a sum": (layers.reduce_sum, [(1000, 1000)]),
    "sums over rows": (lambda x: layers.reduce_sum(x, 0), [(5000, 100)]),
    "a mean": (layers.mean, [(1000, 1000)]),
    "softmax": (layers.softmax, [(64, 1000)]),
    "layer_norm": (lambda x: ops(x).layer_norm(x)[0], [(64, 1000)]),
    "a variance": (lambda x: layers.reduce_mean(layers.square(x - layers.reduce_mean(x, 0, True)), 0), [(5000, 50)]),
    "pooling": (lambda x: layers.pool2d(x, 3, "avg", 2), [(8, 16, 32, 32)]),
    **{name: (getattr(layers, name), [(300, 300)]) for name in ("exp", "tanh", "sigmoid", "gelu", "erf", "sin")},
}


@each("name", OPS)
def test_single_ops(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plan, "_FEWEST", 1)
    function, shapes = OPS[name]
    arrays = [RNG.standard_normal(shape).astype("float32") for shape in shapes]
    inputs = [fluid.data(f"x{number}", list(array.shape)) for number, array in enumerate(arrays)]
    for variable in inputs:
        variable.stop_gradient = False
    out = function(*inputs)
    weights = RNG.standard_normal(out.shape).astype("float32")
    gradients = fluid.gradients(layers.reduce_sum(out * layers.assign(weights)), inputs)
    feeds = {variable.name: array for variable, array in zip(inputs, arrays, strict=True)}
    expected = fluid.Executor().run(fluid.default_main_program(), feeds, [out, *gradients])
    with dygraph.guard():
        tensors = [dygraph.Tensor(array, stop_gradient=False) for array in arrays]
        result = function(*tensors)
        layers.reduce_sum(result * layers.assign(weights)).backward()
        found = [result.numpy(), *(tensor.gradient() for tensor in tensors)]
    largest = max(float(np.abs(array).max()) for array in [*arrays, weights])
    for value, other in zip(expected, found, strict=True):
        scale = max(largest, float(np.abs(value).max()))
        assert np.abs(value.astype("float64") - other.reshape(value.shape)).max() <= 16 * EPSILON * scale


# -------------------------------------------------------------------------------------------------------------------- nets
class Perceptron(dygraph.Layer):
    shape = 64, 784

    def __init__(self) -> None:
        super().__init__()
        self.parts = dygraph.LayerList([dygraph.Linear(784, 512, act="relu"), dygraph.Linear(512, 512, act="relu")])
        self.out = dygraph.Linear(512, 10)

    def forward(self, x: Any) -> Any:
        for part in self.parts:
            x = part(x)
        return self.out(x)


class LeNet(dygraph.Layer):
    shape = 32, 1, 28, 28

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = (
            dygraph.Conv2D("first", 6, 5, padding=2, act="relu"),
            dygraph.Conv2D("second", 16, 5, act="relu"),
        )
        self.norm, self.pool = dygraph.BatchNorm("norm", 6), dygraph.Pool2D("pool", 2, "max", 2)
        self.hidden, self.out = dygraph.FC("hidden", 120, act="relu"), dygraph.FC("out", 10)

    def forward(self, x: Any) -> Any:
        return self.out(self.hidden(self.pool(self.second(self.pool(self.norm(self.first(x)))))))


class Attention(dygraph.Layer):
    """A block of a transformer."""

    shape = 8, 16, 64

    def __init__(self) -> None:
        super().__init__()
        self.query, self.key, self.value, self.joined = (dygraph.Linear(64, 64) for _ in range(4))
        self.norms = dygraph.LayerList([dygraph.LayerNorm("norm", begin_norm_axis=2) for _ in range(2)])
        self.drop = dygraph.Dropout(0.1, dropout_implementation="upscale_in_train")
        self.wide, self.narrow, self.out = dygraph.Linear(64, 128, act="relu"), dygraph.Linear(128, 64), dygraph.Linear(64, 10)

    def forward(self, x: Any) -> Any:
        heads = [
            layers.transpose(layers.reshape(part(x), [8, 16, 4, 16]), [0, 2, 1, 3]) for part in (self.query, self.key, self.value)
        ]
        weights = layers.softmax(layers.matmul(heads[0], heads[1], transpose_y=True, alpha=0.25))
        seen = layers.reshape(layers.transpose(layers.matmul(weights, heads[2]), [0, 2, 1, 3]), [8, 16, 64])
        x = self.norms[0](x + self.drop(self.joined(seen)))
        x = self.norms[1](x + self.drop(self.narrow(self.wide(x))))
        return self.out(layers.reduce_mean(x, 1))

    def heads(self, x: Any) -> Any:
        return layers.transpose(layers.reshape(x, [8, 16, 4, 16]), [0, 2, 1, 3])


class Recurrence(dygraph.Layer):
    shape = 20, 12, 64

    def __init__(self) -> None:
        super().__init__()
        self.gates, self.unit, self.out = dygraph.FC("gates", 3 * 64), dygraph.GRUUnit("unit", 3 * 64), dygraph.Linear(64, 10)

    def forward(self, x: Any) -> Any:
        state = layers.fill_constant([20, 64], "float32", 0.0)
        for step in range(12):
            state = self.unit(self.gates(x[:, step]), state)[0]
        return self.out(state)


Result = tuple[list[float], dict[str, Any]]
"""The losses of some steps, and the weights afterwards."""
OPTIMIZERS: dict[str, Callable[..., Any]] = {
    "SGD": lambda **rest: fluid.optimizer.SGD(0.05, **rest),
    "Momentum": lambda **rest: fluid.optimizer.Momentum(0.02, 0.9, **rest),
    "Adam": lambda **rest: fluid.optimizer.Adam(0.001, **rest),
}
NETS: dict[str, Any] = {kind.__name__: kind for kind in (Perceptron, LeNet, Attention, Recurrence)}


def loss_of(net: Any, x: Any, y: Any) -> Any:
    return layers.mean(layers.softmax_with_cross_entropy(net(x), y))


def batches(shape: tuple[int, ...], steps: int) -> list[tuple[Any, Any]]:
    rng = np.random.default_rng(0)
    return [(rng.standard_normal(shape).astype("float32"), rng.integers(0, 10, (shape[0], 1))) for _ in range(steps)]


def as_program(kind: Any, optimizer: str, steps: int) -> Result:
    fluid.seed(1)
    main, startup = fluid.Program(), fluid.Program()
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        x, y = fluid.data("x", list(kind.shape)), fluid.data("y", [kind.shape[0], 1], "int64")
        loss = loss_of(kind(), x, y)
        OPTIMIZERS[optimizer]().minimize(loss)
    scope, executor = fluid.Scope(), fluid.Executor()
    executor.run(startup, scope=scope)
    losses = [executor.run(main, {"x": x, "y": y}, [loss], scope=scope)[0].item() for x, y in batches(kind.shape, steps)]
    return losses, {parameter.name: np.array(scope.array(parameter.name)) for parameter in main.all_parameters()}


def eagerly(kind: Any, optimizer: str, steps: int) -> Result:
    fluid.seed(1)
    losses = []
    with dygraph.guard():
        net, updates = kind(), None
        for x, y in batches(kind.shape, steps):
            loss = loss_of(net, dygraph.to_variable(x), dygraph.to_variable(y))
            losses.append(loss.numpy().item())
            loss.backward()
            updates = updates or OPTIMIZERS[optimizer](parameter_list=net.parameters())
            updates.minimize(loss)
            net.clear_gradients()
        return losses, {parameter.name: parameter.numpy().copy() for parameter in net.parameters()}


@each("optimizer", OPTIMIZERS)
@each("name", NETS)
def test_ten_steps_of_training(name: str, optimizer: str) -> None:
    losses, weights = as_program(NETS[name], optimizer, 10)
    others, other_weights = eagerly(NETS[name], optimizer, 10)
    np.testing.assert_allclose(losses, others, rtol=2e-6)
    assert weights.keys() == other_weights.keys()
    difference = np.concatenate([(weights[key] - other_weights[key]).reshape(-1) for key in weights]).astype("float64")
    largest = max(float(np.abs(value).max()) for value in weights.values())
    # Adam divides a gradient by its size, so that a weight whose gradient is nearly 0 may go the other way, by the rate.
    mean, single = (1e-4, 1e-2) if optimizer == "Adam" else (1e-6, 4e-6)
    assert np.sqrt(np.mean(difference**2)) <= mean * largest
    assert np.abs(difference).max() <= single * largest
