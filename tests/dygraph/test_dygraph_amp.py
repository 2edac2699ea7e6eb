"""Mixed precision in eager mode: `amp_guard` and `AmpScaler`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from checks import each

import fluid
from fluid import dygraph, layers
from fluid.dataset import digits
from fluid.dygraph import AmpScaler, amp_guard
from fluid.errors import FluidError

HALVES = ("float16", "bfloat16")
STEPS = {"float16": 2.0**-11, "bfloat16": 2.0**-8}


@pytest.fixture(autouse=True)
def _guarded() -> Iterator[None]:
    with dygraph.guard():
        dygraph.seed(3)
        yield


class Net(dygraph.Layer):
    def __init__(self, inputs: int = 8, outputs: int = 3) -> None:
        super().__init__()
        self.hidden = dygraph.Linear(inputs, 32, act="tanh")
        self.out = dygraph.Linear(32, outputs)

    def forward(self, x: Any) -> Any:
        return self.out(self.hidden(x))


def batch() -> tuple[Any, Any]:
    x = np.random.default_rng(0).standard_normal((32, 8)).astype("float32")
    return dygraph.to_variable(x), dygraph.to_variable((x[:, :1] > 0).astype("int64"))


def loss_of(net: Any) -> Any:
    x, y = batch()
    return layers.mean(layers.softmax_with_cross_entropy(net(x), y))


def gradients(net: Any, half: str | None, **arguments: Any) -> list[Any]:
    net.clear_gradients()
    if half is None:
        loss = loss_of(net)
    else:
        with amp_guard(dtype=half, **arguments):
            loss = loss_of(net)
    loss.backward()
    return [loss.numpy(), *(param.gradient() for param in net.parameters())]


@each("half", HALVES)
def test_gradients_are_float32_and_those_of_float32_within_rounding(half: str) -> None:
    net = Net()
    exact, mixed = gradients(net, None), gradients(net, half)
    for one, other in zip(exact, mixed, strict=True):
        assert other.dtype == np.float32 and not np.array_equal(one, other)
        np.testing.assert_allclose(other, one, atol=8 * STEPS[half] * abs(one).max())


@each("half", HALVES)
def test_eager_computes_what_the_program_of_decorate_does(half: str) -> None:
    net = Net()
    mixed = gradients(net, half)
    program, startup = fluid.Program(), fluid.Program()
    dygraph.disable_dygraph()
    scope = fluid.Scope()
    with fluid.program_guard(program, startup):
        x, y = fluid.data("x", [32, 8]), fluid.data("y", [32, 1], "int64")
        weights = [layers.create_parameter(param.shape, "float32", name=param.name) for param in net.parameters()]
        hidden = layers.tanh(layers.elementwise_add(layers.matmul(x, weights[0]), weights[1], axis=1))
        scores = layers.elementwise_add(layers.matmul(hidden, weights[2]), weights[3], axis=1)
        loss = layers.mean(layers.softmax_with_cross_entropy(scores, y))
        _, pairs = fluid.contrib.mixed_precision.decorate(fluid.optimizer.SGD(0.0), dtype=half).minimize(loss)
    exe = fluid.Executor()
    exe.run(startup, scope=scope)
    for param in net.parameters():
        scope.put(param.name, param.numpy())
    grads = {param.name: grad for param, grad in pairs}
    feed = {name: value.numpy() for name, value in zip("xy", batch(), strict=True)}
    found = exe.run(program, feed, [loss, *(grads[weight.name] for weight in weights)], scope=scope)
    for one, other in zip(mixed, found, strict=True):
        np.testing.assert_allclose(other, one, atol=STEPS[half] * abs(one).max())


def test_each_op_has_the_precision_that_the_lists_say() -> None:
    net, (x, _) = Net(), batch()

    def dtypes(**arguments: Any) -> list[str]:
        with amp_guard(**arguments):
            hidden = net.hidden(x)
            return [
                value.dtype.text
                for value in (
                    hidden,
                    layers.softmax(hidden),
                    hidden + layers.exp(hidden),
                    hidden * 2.0,
                    layers.matmul(hidden, hidden, transpose_y=True),
                )
            ]

    assert dtypes() == ["float16", "float32", "float32", "float16", "float16"]
    assert dtypes(custom_black_list=["tanh"]) == ["float32", "float32", "float32", "float32", "float16"]
    assert dtypes(custom_white_list=["exp"], dtype="bfloat16") == ["bfloat16", "float32", "bfloat16", "bfloat16", "bfloat16"]
    assert dtypes(enable=False) == ["float32"] * 5
    with amp_guard():
        with amp_guard(enable=False):
            assert net(x).dtype.text == "float32"
        assert net(x).dtype.text == "float16"
    assert net(x).dtype.text == "float32"
    for arguments, words in (({"dtype": "float64"}, "not of float64"), ({"custom_white_list": ["mulx"]}, "no op 'mulx'")):
        with pytest.raises(FluidError, match=words), amp_guard(**arguments):
            pass


def test_weights_are_cast_once_in_a_step() -> None:
    net, (x, _) = Net(), batch()
    casts: list[Any] = []

    class Counting:
        def call(self, op: Any, tensors: Any) -> Any:
            if op.definition.type == "cast":
                casts.append(tensors[0])
            with intercepting(None):
                return op(*tensors)

    from fluid.eager.mode import intercepting

    with intercepting(Counting()), amp_guard():
        net(x), net(x)
        assert [sum(item is param for item in casts) for param in net.parameters()] == [1] * 4
        net.hidden.weight.set_value(net.hidden.weight.numpy() * 2)
        y = net(x)
        assert [sum(item is param for item in casts) for param in net.parameters()] == [2, 1, 1, 1]
    with amp_guard():
        assert np.array_equal(net(x).numpy(), y.numpy())


def test_what_is_not_recorded_and_what_is_have_casts_of_their_own() -> None:
    net, (x, _) = Net(), batch()
    with amp_guard():
        with dygraph.no_grad():
            net(x)
        net(x).sum().backward()
    assert all(param.gradient() is not None for param in net.parameters())


@each("half", HALVES)
def test_recomputed_parts_have_the_same_gradients(half: str) -> None:
    net = Net()
    plain = gradients(net, half)
    hidden = net.hidden

    class Again(dygraph.Layer):
        def forward(self, x: Any) -> Any:
            return net.out(dygraph.recompute(hidden, x))

    net.clear_gradients()
    with amp_guard(dtype=half):
        hidden(batch()[0])  # its weights are cast already
        loss = loss_of(Again())
    loss.backward()
    for one, other in zip(plain[1:], net.parameters(), strict=True):
        np.testing.assert_allclose(other.gradient(), one, rtol=1e-6, atol=1e-8)


def test_a_traced_function_has_the_casts_in_its_program() -> None:
    net, (x, _) = Net(), batch()

    def forward(x: Any) -> Any:
        with amp_guard():
            return net(x)

    traced = dygraph.trace(forward, x)
    assert [op.type for op in traced.program.global_block().ops].count("cast") == 5
    np.testing.assert_allclose(traced(x).numpy(), forward(x).numpy(), atol=2.0**-11)  # native code adds in another order


def test_a_step_that_overflows_changes_nothing_but_the_scale() -> None:
    net = Net()
    optimizer = fluid.optimizer.Adam(0.01, parameter_list=net.parameters())
    scaler = AmpScaler(init_loss_scaling=1024.0, incr_every_n_steps=2, decr_every_n_nan_or_inf=2, incr_ratio=4.0)

    def step(factor: float = 1.0) -> tuple[bool, float]:
        with amp_guard():
            loss = loss_of(net) * factor
        scaled = scaler.scale(loss)
        scaled.backward()
        stepped = scaler.minimize(optimizer, scaled)
        net.clear_gradients()
        return stepped, scaler.get_loss_scaling()

    assert [step(), step(), step()] == [(True, 1024.0), (True, 4096.0), (True, 4096.0)]
    before = [value.numpy() for value in (*net.parameters(), *optimizer.state_dict().values())]
    assert [step(float("inf")), step(float("nan"))] == [(False, 4096.0), (False, 2048.0)]
    after = [value.numpy() for value in (*net.parameters(), *optimizer.state_dict().values())]
    assert all(one.tobytes() == other.tobytes() for one, other in zip(before, after, strict=True))
    again = AmpScaler()
    again.load_state_dict(scaler.state_dict())
    assert again.get_loss_scaling() == 2048.0 and step() == (True, 2048.0) and step() == (True, 8192.0)


def test_gradients_can_be_unscaled_before_the_step() -> None:
    net = Net()
    exact = gradients(net, "bfloat16")
    net.clear_gradients()
    optimizer = fluid.optimizer.SGD(0.1, parameter_list=net.parameters())
    scaler = AmpScaler(init_loss_scaling=256.0)
    with amp_guard(dtype="bfloat16"):
        loss = loss_of(net)
    scaler.scale(loss).backward()
    scaler.unscale_(optimizer)
    for one, param in zip(exact[1:], net.parameters(), strict=True):
        np.testing.assert_array_equal(param.gradient(), one)
    with pytest.raises(FluidError, match="divided already"):
        scaler.unscale_(optimizer)
    assert scaler.step(optimizer)
    scaler.update()
    ahead = fluid.optimizer.LookaheadOptimizer(fluid.optimizer.SGD(0.1, parameter_list=net.parameters()), k=2)
    assert scaler.step(ahead)
    with pytest.raises(FluidError, match=r"AmpScaler.unscale_\(\) is for eager mode, and for the parameters"):
        AmpScaler().unscale_(fluid.optimizer.SGD(0.1))
    off = AmpScaler(enable=False)
    assert off.scale(loss) is loss and off.step(optimizer) and off.get_loss_scaling() == 1.0
    with pytest.raises(FluidError, match="takes what state_dict"):
        scaler.load_state_dict({"scale": 1.0})
    with pytest.raises(FluidError, match="scale takes the loss, a tensor"):
        scaler.scale(1.0)


def test_digits_are_learned_as_well() -> None:
    (images, labels), (unseen, expected) = digits.arrays("train"), digits.arrays("test")
    right = {}
    for half in (None, *HALVES):
        dygraph.seed(1)
        net = Net(64, 10)
        optimizer = fluid.optimizer.Adam(0.005, parameter_list=net.parameters())
        scaler = AmpScaler()
        for _ in range(6):
            for start in range(0, len(images), 128):
                x = dygraph.to_variable(images[start : start + 128].reshape(-1, 64))
                y = dygraph.to_variable(labels[start : start + 128].reshape(-1, 1))
                with amp_guard(half is not None, dtype=half or "float16"):
                    loss = layers.mean(layers.softmax_with_cross_entropy(net(x), y))
                scaled = scaler.scale(loss)
                scaled.backward()
                scaler.minimize(optimizer, scaled)
                net.clear_gradients()
        scores = net(dygraph.to_variable(unseen.reshape(-1, 64))).numpy()
        right[half] = (scores.argmax(1) == expected.reshape(-1)).mean()
    assert min(right.values()) > 0.9 and max(right.values()) - min(right.values()) < 0.02, right
