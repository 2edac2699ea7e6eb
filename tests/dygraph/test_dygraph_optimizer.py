"""Optimizers in eager mode: the bits that programs compute; states, schedules, clips, weight decay, sparse gradients."""

from __future__ import annotations

import copy
import math
import pickle
import re
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from checks import assert_no_cycles, each

import fluid
from fluid import dygraph, dygraph_grad_clip, layers
from fluid import optimizer as optimizers
from fluid.clip import GradientClipByGlobalNorm, GradientClipByNorm, GradientClipByValue
from fluid.errors import BackwardError, FluidTypeError, ProgramError
from fluid.regularizer import L1Decay, L2Decay

pytestmark = pytest.mark.numpy_alone

STEPS = 5
RNG = np.random.default_rng(0)
X, Y = RNG.standard_normal((8, 6)).astype("float32"), RNG.standard_normal((8, 3)).astype("float32")
FIRST = {
    "w1": RNG.standard_normal((6, 5)).astype("float32"),
    "b1": RNG.standard_normal(5).astype("float32"),
    "w2": RNG.standard_normal((5, 3)).astype("float32"),
}
Make = Callable[..., Any]


@pytest.fixture(autouse=True)
def _fresh() -> Iterator[None]:
    yield


def attrs(name: str, **said: Any) -> fluid.ParamAttr:
    return fluid.ParamAttr(name=name, initializer=fluid.initializer.NumpyArrayInitializer(FIRST[name]), **said)


def statically(make: Make, said: dict[str, Any], minimize: dict[str, Any]) -> tuple[dict[str, Any], list[float]]:
    """Parameters after some steps of a program, and the losses."""
    with fluid.program_guard(fluid.Program(), fluid.Program()), fluid.scope_guard(fluid.Scope()):
        return _statically(make, said, minimize)


def _statically(make: Make, said: dict[str, Any], minimize: dict[str, Any]) -> tuple[dict[str, Any], list[float]]:
    x, y = fluid.data("x", [8, 6]), fluid.data("y", [8, 3])
    hidden = layers.fc(x, 5, act="tanh", param_attr=attrs("w1", **said), bias_attr=attrs("b1"))
    loss = layers.mean(layers.square_error_cost(layers.fc(hidden, 3, param_attr=attrs("w2"), bias_attr=False), y))
    make().minimize(loss, **minimize)
    exe = fluid.Executor()
    exe.run(fluid.default_startup_program())
    losses = [exe.run(feed={"x": X, "y": Y}, fetch_list=[loss])[0].item() for _ in range(STEPS)]
    return {name: fluid.global_scope().array(name).copy() for name in FIRST}, losses


class Net(dygraph.Layer):
    def __init__(self, **said: Any) -> None:
        super().__init__()
        self.w1 = self.create_parameter(attrs("w1", **said), [6, 5])
        self.b1 = self.create_parameter(attrs("b1"), [5], is_bias=True)
        self.w2 = self.create_parameter(attrs("w2"), [5, 3])

    def forward(self, x: Any) -> Any:
        ops = dygraph.ops
        return ops.mul(ops.tanh(ops.elementwise_add(ops.mul(x, self.w1), self.b1, axis=1)), self.w2)


def loss_of(net: Net) -> Any:
    return layers.mean(layers.square_error_cost(net(dygraph.to_variable(X)), dygraph.to_variable(Y)))


def eagerly(make: Make, said: dict[str, Any], minimize: dict[str, Any]) -> tuple[dict[str, Any], list[float]]:
    net, optimizer = Net(**said), make()
    losses = []
    for _ in range(STEPS):
        loss = loss_of(net)
        loss.backward()
        optimizer.minimize(loss, **minimize)
        net.clear_gradients()
        losses.append(loss.item())
    return {name: getattr(net, name).numpy() for name in FIRST}, losses


OPTIMIZERS: dict[str, Make] = {
    "SGD": lambda **k: optimizers.SGD(0.1, **k),
    "Momentum": lambda **k: optimizers.Momentum(0.1, 0.9, **k),
    "Nesterov": lambda **k: optimizers.Momentum(0.1, 0.9, use_nesterov=True, **k),
    "Adam": lambda **k: optimizers.Adam(0.1, **k),
    "AdamW": lambda **k: optimizers.AdamW(0.1, weight_decay=0.1, apply_decay_param_fun=lambda name: name != "b1", **k),
    "Lamb": lambda **k: optimizers.Lamb(0.1, exclude_from_weight_decay_fn=lambda p: p.name == "b1", **k),
    "Adamax": lambda **k: optimizers.Adamax(0.1, **k),
    "NAdam": lambda **k: optimizers.NAdam(0.1, **k),
    "RAdam": lambda **k: optimizers.RAdam(0.1, **k),
    "Lion": lambda **k: optimizers.Lion(0.1, **k),
    "Adagrad": lambda **k: optimizers.Adagrad(0.1, initial_accumulator_value=0.1, **k),
    "DecayedAdagrad": lambda **k: optimizers.DecayedAdagrad(0.1, **k),
    "Adadelta": lambda **k: optimizers.Adadelta(0.1, **k),
    "RMSProp": lambda **k: optimizers.RMSProp(0.1, momentum=0.5, centered=True, **k),
    "Ftrl": lambda **k: optimizers.Ftrl(0.1, l1=0.01, l2=0.02, **k),
    "LarsMomentum": lambda **k: optimizers.LarsMomentum(0.1, 0.9, exclude_from_weight_decay=["b1"], **k),
    "DGCMomentum": lambda **k: optimizers.DGCMomentumOptimizer(0.1, 0.9, 0, **k),
    "Dpsgd": lambda **k: optimizers.Dpsgd(0.1, clip=1.0, batch_size=8.0, sigma=0.0, **k),
}


def assert_same(make: Make, said: dict[str, Any] | None = None, minimize: dict[str, Any] | None = None) -> None:
    expected, expected_losses = statically(make, said or {}, minimize or {})
    found, losses = eagerly(make, said or {}, minimize or {})
    assert losses == expected_losses
    for name in FIRST:
        assert not np.array_equal(expected[name], FIRST[name])
        np.testing.assert_array_equal(found[name], expected[name])


@each("name", OPTIMIZERS)
def test_every_optimizer_gives_the_bits_of_the_program(name: str) -> None:
    assert_same(OPTIMIZERS[name])


def test_lookahead() -> None:
    assert_same(lambda: optimizers.LookaheadOptimizer(optimizers.SGD(0.1), alpha=0.3, k=2))


@each("decay", [L1Decay(0.1), L2Decay(0.1)])
def test_weight_decay(decay: Any) -> None:
    assert_same(lambda: OPTIMIZERS["Adam"](regularization=decay))


def test_what_parameters_say_of_themselves() -> None:
    said = {"learning_rate": 0.3, "regularizer": L2Decay(0.2), "gradient_clip": GradientClipByNorm(0.01)}
    assert_same(OPTIMIZERS["Momentum"], said)


@each("clip", [GradientClipByValue(0.01), GradientClipByNorm(0.1), GradientClipByGlobalNorm(0.1)], ids=lambda c: type(c).__name__)
def test_clips(clip: Any) -> None:
    assert_same(OPTIMIZERS["Adam"], {}, {"grad_clip": clip})
    assert_same(lambda: OPTIMIZERS["SGD"](grad_clip=clip))


def test_clips_by_the_names_of_eager_mode() -> None:
    by_value = dygraph_grad_clip.GradClipByValue(0.5)
    assert (by_value.min, by_value.max) == (-0.5, 0.5)
    by_value = dygraph_grad_clip.GradClipByValue(-0.1, 0.2)
    assert (by_value.min, by_value.max) == (-0.1, 0.2)
    assert_same(OPTIMIZERS["SGD"], {}, {"grad_clip": dygraph_grad_clip.GradClipByGlobalNorm(0.1)})
    assert_same(OPTIMIZERS["SGD"], {}, {"grad_clip": dygraph_grad_clip.GradClipByNorm(0.1)})


def test_a_frozen_parameter_stays() -> None:
    net = Net(trainable=False)
    loss = loss_of(net)
    loss.backward()
    optimizers.SGD(0.1).minimize(loss)
    np.testing.assert_array_equal(net.w1.numpy(), FIRST["w1"])
    assert not np.array_equal(net.w2.numpy(), FIRST["w2"])


def test_step_and_clear_grad_need_no_loss() -> None:
    one, other = Net(), Net()
    optimizer = optimizers.Adam(0.1, parameter_list=one.parameters())
    reference = optimizers.Adam(0.1)
    for _ in range(3):
        loss_of(one).backward()
        optimizer.step()
        optimizer.clear_grad()
        assert all(parameter.grad is None for parameter in one.parameters())
        loss = loss_of(other)
        loss.backward()
        reference.minimize(loss)
        other.clear_gradients()
    for name in FIRST:
        np.testing.assert_array_equal(getattr(one, name).numpy(), getattr(other, name).numpy())


def test_any_leaf_can_be_optimized() -> None:
    x = dygraph.Tensor([1.0, 2.0], stop_gradient=False)
    optimizer = optimizers.SGD(0.5, parameter_list=[x])
    (x * x).sum().backward()
    optimizer.step()
    assert x.tolist() == [0.0, 0.0]


def test_minimize_takes_only_what_the_loss_was_computed_from() -> None:
    one, other = Net(), Net()
    loss_of(other).backward()
    loss = loss_of(one)
    loss.backward()
    _, pairs = optimizers.SGD(0.1).minimize(loss)
    assert {id(param) for param, _ in pairs} == {id(param) for param in one.parameters()}
    np.testing.assert_array_equal(other.w1.numpy(), FIRST["w1"])


def test_updates_are_not_recorded() -> None:
    net, optimizer = Net(), OPTIMIZERS["Adam"](regularization=L2Decay(0.1), grad_clip=GradientClipByGlobalNorm(0.1))
    loss = loss_of(net)
    loss.backward()
    optimizer.minimize(loss)
    assert all(parameter.is_leaf and not parameter.stop_gradient for parameter in net.parameters())
    assert all(tensor.grad_fn is None for tensor in optimizer.state_dict().values())


def test_what_is_said_between_steps_takes_effect() -> None:
    """A repeated update is not the one of before where the rate, an attribute, or the kind of gradient is another."""
    w = dygraph.Parameter([1.0, 2.0], name="w")
    rate = dygraph.Tensor([1.0], name="rate")
    optimizer = optimizers.Momentum(rate, momentum=0.0, parameter_list=[w])

    def step() -> list[float]:
        (w * 1.0).sum().backward()
        optimizer.step()
        optimizer.clear_grad()
        return w.tolist()  # type: ignore[no-any-return]

    assert step() == [0.0, 1.0]
    rate.set_value([2.0])
    assert step() == [-2.0, -1.0]
    optimizer._momentum = 0.5  # velocity 1.5
    assert step() == [-5.0, -4.0]
    w.optimize_attr = {"learning_rate": 2.0}  # velocity 1.75, rate 4
    assert step() == [-12.0, -11.0]
    rate.set_value([1.0])  # velocity 1.875, rate 2
    assert step() == [-15.75, -14.75]


@each("by", ["step", "minimize"])
def test_a_backward_after_the_update_names_the_line_of_the_update(by: str) -> None:
    w = dygraph.Parameter([1.0, 2.0])
    optimizer = optimizers.Adam(0.1, parameter_list=[w])
    loss = (w * w).sum()
    loss.backward(retain_graph=True)
    if by == "step":
        optimizer.step()  # the line of the update
    else:
        optimizer.minimize(loss)  # the line of the update
    with pytest.raises(BackwardError, match="by adam, version 1 instead of 0") as caught:
        loss.backward()
    number = int(re.search(rf"modified at: {re.escape(__file__)}:(\d+) in test_a_backward", str(caught.value))[1])  # type: ignore[index]
    with open(__file__) as file:
        assert "# the line of the update" in file.readlines()[number - 1]


def test_rates_of_numpy() -> None:
    for rate in (np.float32(0.5), np.float16(0.5), np.int64(1)):
        w = dygraph.Parameter([1.0])
        (w * 1.0).sum().backward()
        optimizers.SGD(rate, parameter_list=[w]).step()
        assert w.item() == 1.0 - float(rate)


def test_an_optimizer_holds_no_gradients() -> None:
    w = dygraph.Tensor([1.0, 2.0], stop_gradient=False)
    optimizer = optimizers.Adam(0.1, parameter_list=[w])
    for _ in range(2):
        (w * w).sum().backward()
        grad = weakref.ref(w.grad)
        optimizer.step()
        optimizer.clear_grad()
        assert grad() is None


def test_state_goes_on_where_it_was() -> None:
    def trained(net: Net, optimizer: Any, steps: int) -> None:
        for _ in range(steps):
            loss = loss_of(net)
            loss.backward()
            optimizer.minimize(loss)
            net.clear_gradients()

    def make() -> Any:
        return optimizers.Adam(dygraph.ExponentialDecay(0.1, 2, 0.5))

    with dygraph.guard():
        whole, optimizer = Net(), make()
        trained(whole, optimizer, 4)
    with dygraph.guard():
        net, first = Net(), make()
        trained(net, first, 2)
        state = {name: np.array(value) for name, value in first.state_dict().items()}
    with dygraph.guard():
        second = make()
        second.set_dict(state)  # before there are variables to put it into
        trained(net, second, 1)
    with dygraph.guard():
        third = make()
        third.set_dict(second.state_dict())
        third.set_dict({})
        third.set_dict(second.state_dict())
        trained(net, third, 1)
    for name in FIRST:
        np.testing.assert_array_equal(getattr(net, name).numpy(), getattr(whole, name).numpy())
    again = {name: np.array(value) * 0 for name, value in third.state_dict().items()}
    third.set_dict(again)  # where there are variables already
    assert not np.any(third.state_dict()["w1_moment1_0"].numpy())
    with pytest.raises(ProgramError, match=r"w1_moment1_0 is float32\[6, 5\]; the state's has the shape \[2\]"):
        third.set_dict({"w1_moment1_0": np.zeros(2)})


def trained_by(optimizer: Any, params: list[Any], steps: int) -> list[Any]:
    """The values of parameters after some steps towards 0."""
    for _ in range(steps):
        sum([(param * param).sum() for param in params]).backward()
        optimizer.step()
        optimizer.clear_grad()
    return [param.numpy() for param in params]


STATEFUL = {
    "Momentum": lambda **k: optimizers.Momentum(0.1, 0.9, name="mine", **k),
    "Adam": lambda **k: optimizers.Adam(0.1, **k),
    "Adamax": lambda **k: optimizers.Adamax(0.1, **k),
    "NAdam": lambda **k: optimizers.NAdam(0.1, **k),
    "RAdam": lambda **k: optimizers.RAdam(0.1, **k),
    "Lion": lambda **k: optimizers.Lion(0.1, **k),
    "Adadelta": lambda **k: optimizers.Adadelta(0.1, **k),
    "Lookahead": lambda **k: optimizers.LookaheadOptimizer(optimizers.Adam(0.1, **k), k=3),
}


@pytest.mark.parametrize("name", STATEFUL)
@pytest.mark.parametrize("before", [0, 2])
def test_a_state_is_found_by_parameter_and_kind(name: str, before: int, recwarn: Any) -> None:
    """In another optimizer of the same parameters, whose names have other numbers, before its first step and after."""
    params = [dygraph.Parameter(FIRST["w1"], name="w1"), dygraph.Parameter(FIRST["b1"], name="b1")]
    first, second = (STATEFUL[name](parameter_list=params) for _ in range(2))
    trained_by(second, params, before)
    trained_by(first, params, 4)
    state = {key: np.array(value) for key, value in first.state_dict().items()}
    kept = [param.numpy() for param in params]
    second.set_dict(first.state_dict())
    expected = trained_by(first, params, 5)
    for param, value in zip(params, kept, strict=True):
        param.set_value(value)
    for one, other in zip(trained_by(second, params, 5), expected, strict=True):
        np.testing.assert_array_equal(one, other)
    assert second.state_dict().keys().isdisjoint(state) and len(second.state_dict()) == len(state)
    assert not recwarn.list


def test_what_of_a_state_is_for_nothing() -> None:
    def make(*names: str) -> tuple[Any, list[Any]]:
        params = [dygraph.Parameter([1.0, 2.0], name=name) for name in names]
        return optimizers.Adam(0.1, parameter_list=params), params

    optimizer, two = make("one", "two")
    trained_by(optimizer, two, 1)
    del two[0]
    state = {name: value.numpy() for name, value in optimizer.state_dict().items()}
    other, params = make("one", "three")
    with pytest.warns(UserWarning, match="AdamOptimizer: nothing that it trains has had a use for .*: two_moment1_0"):
        other.set_dict(state)
    with pytest.warns(UserWarning, match="for these of the state: one_strange"):
        other.set_dict({"one_strange": np.ones(2), **{name: state[name] for name in state if name.startswith("one")}})
        trained_by(other, params, 1)
    assert other.state_dict()["one_beta1_pow_acc_1"].item() == pytest.approx(0.9**3)
    assert other.state_dict()["three_beta1_pow_acc_0"].item() == pytest.approx(0.9**2)
    with pytest.warns(UserWarning, match="for these of the state: nonsense"):
        other.set_dict({"nonsense": np.ones(3)})
    unlisted = optimizers.Adam(0.1)
    unlisted.set_dict(state)  # what it will train is not known yet
    loss = (params[0] * params[0]).sum()
    loss.backward()
    with pytest.warns(UserWarning, match="for these of the state: two_moment1_0"):
        unlisted.minimize(loss)
    loss = (two[0] * two[0]).sum()
    loss.backward()
    unlisted.minimize(loss)  # what was left is for what is trained later
    assert unlisted.state_dict()["two_beta1_pow_acc_1"].item() == pytest.approx(0.9**3)
    plain = optimizers.SGD(0.1, parameter_list=two)
    with pytest.warns(UserWarning, match="SGDOptimizer: nothing .*: one_moment1_0"):
        plain.set_dict(state)
    with pytest.warns(UserWarning, match="SGDOptimizer: nothing .*: two_moment1_0"):
        plain.step()
    with pytest.raises(FluidTypeError, match=r"AdamOptimizer.set_dict takes a dict .*, not None, which load_dygraph"):
        unlisted.set_dict(None)  # type: ignore[arg-type]
    looking = optimizers.LookaheadOptimizer(optimizers.SGD(0.1))
    with pytest.raises(FluidTypeError, match=r"LookaheadOptimizer.set_dict takes a dict"):
        looking.set_dict([1])  # type: ignore[arg-type]
    looking.set_dict({"four_slow_0": np.ones(2)})
    with pytest.warns(UserWarning, match="LookaheadOptimizer: nothing that it trains has had a use for these .*: four_slow_0"):
        looking.minimize(loss)


@each("name", STATEFUL)
def test_parameters_that_are_called_alike(name: str) -> None:
    params = [dygraph.Parameter(value, name="w") for value in ([3.0, 1.0], [[-2.0], [5.0]])]
    apart = [dygraph.Parameter(param.numpy(), name=f"w{number}") for number, param in enumerate(params)]
    optimizer = STATEFUL[name](parameter_list=params)
    expected = trained_by(STATEFUL[name](parameter_list=apart), apart, 4)
    for one, other in zip(trained_by(optimizer, params, 4), expected, strict=True):
        np.testing.assert_array_equal(one, other)
    state = optimizer.state_dict()
    trained_by(optimizer, params, 1)
    optimizer.set_dict({key: value for key, value in state.items() if key.endswith("_0")})  # there is one for two
    optimizer.set_dict(state)
    other = STATEFUL[name](parameter_list=params)
    other.set_dict(state)
    with pytest.raises(ProgramError, match=r"which of w_.*_0, w_.*_1 of the state is for w_.* cannot be told"):
        trained_by(other, params, 1)


def test_optimizers_are_copied() -> None:
    params = [dygraph.Parameter([3.0, 1.0], name="w")]
    optimizer = optimizers.Adam(0.1, parameter_list=params)
    trained_by(optimizer, params, 2)
    copies, other = copy.deepcopy((params, optimizer))
    np.testing.assert_array_equal(trained_by(other, copies, 2), trained_by(optimizer, params, 2))
    assert other.state_dict()["w_moment1_0"] is not optimizer.state_dict()["w_moment1_0"]


class Tied(dygraph.Layer):
    def __init__(self) -> None:
        super().__init__()
        self.enc = dygraph.Linear(6, 6, param_attr=fluid.ParamAttr(name="w"), bias_attr=False)
        self.dec = dygraph.Linear(6, 6, bias_attr=False)
        self.dec.weight = self.enc.weight

    def forward(self, x: Any) -> Any:
        return self.dec(layers.tanh(self.enc(x)))


@each(
    "make",
    [
        lambda p: optimizers.SGD(0.1, parameter_list=p),
        lambda p: optimizers.Adam(0.1, parameter_list=p),
        lambda p: optimizers.Momentum(0.1, 0.9, parameter_list=p),
        lambda p: optimizers.SGD(0.1, parameter_list=p, grad_clip=GradientClipByGlobalNorm(0.1)),
        lambda p: optimizers.LookaheadOptimizer(optimizers.SGD(0.1, parameter_list=p), 0.5, 2),
    ],
)
@each("source", ["list", "function", "minimize"])
def test_each_parameter_is_updated_once(make: Any, source: str) -> None:
    net = Tied()
    twin = copy.deepcopy(net)
    twice = twin.enc.parameters() + twin.dec.parameters()
    assert twice[0] is twice[1]
    one, other = make(net.parameters()), make(twice if source == "list" else lambda: twice)
    for _ in range(3):
        losses = [(part(dygraph.to_variable(X)) ** 2).mean() for part in (net, twin)]
        for loss in losses:
            loss.backward()
        one.step()
        if source == "minimize" and isinstance(other, optimizers.Optimizer):
            other.minimize(losses[1], parameter_list=twice)
        else:
            other.step()
        net.clear_gradients()
        twin.clear_gradients()
    np.testing.assert_array_equal(twin.enc.weight.numpy(), net.enc.weight.numpy())


@each(
    ("make", "said"),
    [
        (lambda net: net.weight, r"a list of parameters, such as layer.parameters\(\), not w_0, a single one; write \[w_0\]"),
        (lambda net: [{"params": net.parameters()}], r"hold parameters, .*not a dict of 'params'; groups have an optimizer each"),
        (
            lambda net: net.named_parameters(),
            r"hold parameters, .*not a tuple of str and Parameter; named_parameters\(\)",
        ),
        (lambda net: net.state_dict(), r"a list of .*not a dict of 'weight', 'bias'; layer.parameters\(\) gives a list"),
        (lambda net: type(net), r"a list of .*not the class Linear; make an object of it"),
        (lambda net: [net], r"hold parameters, .*not Linear\(.*\); a layer may be given itself, or by its parameters\(\)"),
        (lambda net: "w_0", r"a list of .*not 'w_0'"),
        (lambda net: 3, r"a list of .*not 3"),
        (lambda net: [net.weight, None], r"hold parameters, .*not None"),
    ],
)
def test_what_a_parameter_list_may_be(make: Any, said: str) -> None:
    net = dygraph.Linear(6, 3, param_attr=fluid.ParamAttr(name="w_0"))
    loss = net(dygraph.to_variable(X)).sum()
    loss.backward()
    for use in (
        lambda bad: optimizers.SGD(0.1, parameter_list=bad),
        lambda bad: optimizers.SGD(0.1).minimize(loss, parameter_list=bad),
        lambda bad: optimizers.ExponentialMovingAverage(parameter_list=bad),
    ):
        with pytest.raises(FluidTypeError, match=rf"(?s)\w+: parameter_list should (be )?{said}"):
            use(make(net))
    bad = make(net)
    if not callable(bad):
        optimizer = optimizers.SGD(0.1, parameter_list=lambda: bad)
        with pytest.raises(FluidTypeError, match=r"SGDOptimizer: the function that is parameter_list should give "):
            optimizer.step()


def test_a_parameter_list_that_is_empty() -> None:
    with pytest.raises(
        ProgramError, match=r"AdamOptimizer: parameter_list is empty; give the parameters, such as layer.parameters"
    ):
        optimizers.Adam(0.1, parameter_list=[])
    with pytest.raises(ProgramError, match=r"step\(\) is for eager mode, and for the parameters that the optimizer was given"):
        optimizers.Adam(0.1, parameter_list=dygraph.Layer()).step()


@each("by_function", [False, True])
def test_what_is_kept_for_parameters_that_are_gone_is_forgotten(by_function: bool) -> None:
    net, x = dygraph.Sequential(dygraph.Linear(6, 6), dygraph.Linear(6, 2)), dygraph.to_variable(X)
    source: Any = net.parameters if by_function else net
    kept = optimizers.LookaheadOptimizer(optimizers.Adam(0.1, parameter_list=source))
    sizes, gone, moments = [], [], []
    for _ in range(4):
        (net(x) ** 2).sum().backward()
        kept.step()
        net.clear_gradients()
        sizes.append(len(kept.state_dict()))
        gone.append(weakref.ref(net[1].weight))
        moments.append(next(var for name, var in kept.state_dict().items() if name.startswith(f"{net[0].weight.name}_moment1")))
        net[1].weight = dygraph.Parameter(np.ones((6, 2), "float32"))
    assert sizes == [4 * 4 + 4 + 1] * 4
    assert len(kept.state_dict()) == 4 * 3 + 3 + 1  # of the new one nothing yet
    assert [ref() for ref in gone] == [None] * 4
    assert all(moment is moments[0] for moment in moments)


@each(
    "make",
    [
        lambda p: optimizers.SGD(0.1, parameter_list=p),
        lambda p: optimizers.Adam(0.1, parameter_list=p),
        lambda p: optimizers.Momentum(dygraph.NoamDecay(16, 3), 0.9, parameter_list=p, regularization=L2Decay(0.1)),
        lambda p: optimizers.Lamb(0.1, parameter_list=p, grad_clip=GradientClipByGlobalNorm(1.0)),
        lambda p: optimizers.LookaheadOptimizer(optimizers.Adam(0.1, parameter_list=p), 0.5, 2),
        lambda p: optimizers.PipelineOptimizer(optimizers.Adam(0.1, parameter_list=p)),
    ],
)
@each("steps", [0, 3])
@each("by_layer", [False, True])
def test_optimizers_are_pickled(make: Any, steps: int, by_layer: bool) -> None:
    net = dygraph.Linear(6, 3)
    optimizer = make(net if by_layer else net.parameters())

    def train(net: Any, optimizer: Any, steps: int) -> list[Any]:
        for _ in range(steps):
            (net(dygraph.to_variable(X)) ** 2).sum().backward()
            optimizer.step()
            optimizer.clear_grad()
        return [param.numpy() for param in net.parameters()]

    train(net, optimizer, steps)
    twin, other = pickle.loads(pickle.dumps((net, optimizer)))
    for expected, found in zip(train(net, optimizer, 3), train(twin, other, 3), strict=True):
        np.testing.assert_array_equal(found, expected)
    if steps and hasattr(optimizer, "state_dict"):
        assert list(other.state_dict()) == list(optimizer.state_dict())


def test_what_is_kept_for_a_program_is_not_pickled() -> None:
    optimizer = optimizers.Adam(0.1)
    pickle.dumps(optimizer)
    optimizer.minimize(layers.mean(layers.fc(fluid.data("x", [8, 6]), 3)))
    with pytest.raises(ProgramError, match=r"saved with the program, by fluid.save\(program, path\); in eager .* state_dict\(\)"):
        pickle.dumps(optimizer)


def test_layers_that_make_their_parameters_later() -> None:
    class Late(dygraph.Layer):
        def __init__(self) -> None:
            super().__init__()
            self.first = dygraph.FC("first", 4, param_attr=attrs("w1"), bias_attr=attrs("b1"))
            self.second = dygraph.Linear(5, 3, param_attr=attrs("w2"))

        def forward(self, x: Any) -> Any:
            return self.second(self.first(x))

    x = dygraph.to_variable(X)
    net = Late()
    net.first._arguments["size"] = 5
    with pytest.warns(UserWarning, match="the parameters of first/FC_0 are not among these"):
        incomplete = net.parameters()
    message = "parameter_list lacks the parameters of first/FC_0, which are made in the first call of each: call the network once"
    for make in (optimizers.SGD, optimizers.Adam):
        with pytest.raises(ProgramError, match=f"{make.__name__}: {message}"):
            make(0.1, parameter_list=incomplete)
    with pytest.raises(ProgramError, match=f"ExponentialMovingAverage: {message}"):
        optimizers.ExponentialMovingAverage(parameter_list=incomplete)
    for source in (net, lambda: [net.first.weight], net.parameters):
        optimizer = optimizers.SGD(0.1, parameter_list=source)
        before = net.first.weight.numpy() if net.first.weight is not None else FIRST["w1"]
        (net(x) ** 2).sum().backward()
        assert np.any(net.first.weight.gradient())
        optimizer.step()
        optimizer.clear_grad()
        assert net.first.weight.grad is None and not np.array_equal(net.first.weight.numpy(), before)
        net.clear_gradients()
        loss = (net(x) ** 2).sum()
        loss.backward()
        assert net.first.weight in [param for param, _ in optimizers.SGD(0.1).minimize(loss, parameter_list=source)[1]]
        net.clear_gradients()


@each(
    ("eager", "static"),
    [
        (lambda: dygraph.NaturalExpDecay(0.1, 2, 0.5), lambda: layers.natural_exp_decay(0.1, 2, 0.5)),
        (lambda: dygraph.ExponentialDecay(0.1, 2, 0.5, True), lambda: layers.exponential_decay(0.1, 2, 0.5, True)),
        (lambda: dygraph.InverseTimeDecay(0.1, 2, 0.5, True), lambda: layers.inverse_time_decay(0.1, 2, 0.5, True)),
        (lambda: dygraph.PolynomialDecay(0.1, 3, 0.01, 2.0), lambda: layers.polynomial_decay(0.1, 3, 0.01, 2.0)),
        (lambda: dygraph.PolynomialDecay(0.1, 3, cycle=True), lambda: layers.polynomial_decay(0.1, 3, cycle=True)),
        (lambda: dygraph.PiecewiseDecay([2, 4], [1.0, 0.5, 0.1], 0), lambda: layers.piecewise_decay([2, 4], [1.0, 0.5, 0.1])),
        (lambda: dygraph.NoamDecay(16, 3), lambda: layers.noam_decay(16, 3)),
        (lambda: dygraph.NoamDecay(16, 3, learning_rate=2.0), lambda: layers.noam_decay(16, 3, 2.0)),
        (lambda: dygraph.CosineDecay(0.1, 2, 4), lambda: layers.cosine_decay(0.1, 2, 4)),
    ],
    ids=["natural_exp", "exponential", "inverse_time", "polynomial", "polynomial_cycle", "piecewise", "noam", "scaled", "cosine"],
)
def test_schedules(eager: Any, static: Any) -> None:
    rate = static()
    exe = fluid.Executor()
    exe.run(fluid.default_startup_program())
    schedule = eager()
    for _ in range(7):
        assert math.isclose(schedule(), exe.run(fetch_list=[rate])[0].item(), rel_tol=1e-6)


def test_a_schedule_drives_an_optimizer() -> None:
    x = dygraph.Tensor([0.0], stop_gradient=False)
    optimizer = optimizers.SGD(dygraph.PiecewiseDecay([1, 2], [4.0, 2.0, 1.0]), parameter_list=[x])
    seen = []
    for _ in range(3):
        x.sum().backward()
        optimizer.step()
        optimizer.clear_grad()
        seen.append(x.item())
    assert seen == [-4.0, -6.0, -7.0]
    assert optimizer.state_dict()["global_step"] == 3


def test_the_number_of_the_step_is_a_tensor_of_the_state(tmp_path: Path) -> None:
    """Scripts go through a state as through one of tensors; it is continued from tensors, from arrays and from files."""
    x = dygraph.Tensor([0.0], stop_gradient=False)
    optimizer = optimizers.SGD(dygraph.PiecewiseDecay([1, 2], [4.0, 2.0, 1.0]), parameter_list=[x])
    x.sum().backward()
    optimizer.step()
    state = optimizer.state_dict()
    assert {value.name: value.numpy().tolist() for value in state.values()} == {"global_step": [1]}
    assert state["global_step"].dtype is fluid.core.VarDesc.VarType.INT32
    dygraph.save_dygraph(state, str(tmp_path / "rates"))
    loaded = dygraph.load_dygraph(str(tmp_path / "rates"))[1]
    for other in (state, loaded, {"global_step": 1}):
        rate = dygraph.PiecewiseDecay([1, 2], [4.0, 2.0, 1.0])
        optimizers.SGD(rate).set_dict(other)
        assert (rate.step_num, rate()) == (1, 2.0)


def test_a_schedule_of_ones_own_may_compute_with_layers() -> None:
    class Halved(dygraph.LearningRateDecay):
        def step(self) -> Any:
            return layers.elementwise_min(self.create_lr_var(0.5**self.step_num), self.create_lr_var(0.5))

    with dygraph.guard():
        rate = Halved(dtype="float64").create_lr_var(0.25)
        assert (rate.shape, rate.dtype.text, rate.numpy().item()) == ((1,), "float64", 0.25)
    x = dygraph.Tensor([0.0], stop_gradient=False)
    optimizer, seen = optimizers.SGD(Halved(), parameter_list=[x]), []
    for _ in range(3):
        x.sum().backward()
        optimizer.step()
        optimizer.clear_grad()
        seen.append(x.item())
    assert seen == [-0.5, -1.0, -1.25]


def test_schedules_of_programs_are_objects_in_eager_mode() -> None:
    with dygraph.guard():
        assert isinstance(layers.exponential_decay(0.1, 2, 0.5), dygraph.ExponentialDecay)
        assert isinstance(layers.noam_decay(16, 3), dygraph.NoamDecay)
        assert layers.noam_decay(16, 1, 2.0)() == 2.0 * dygraph.NoamDecay(16, 1)()  # 2 is not the number of the first step
        assert isinstance(layers.linear_lr_warmup(0.1, 2, 0.0, 0.1), dygraph.LinearLrWarmup)


@each("name", OPTIMIZERS)
def test_sparse_gradients(name: str) -> None:
    """A sparse table is trained as a dense one, also by rows that are looked up twice, or twice in a step."""
    dygraph.seed(1)
    ids = [dygraph.to_variable(np.array(part)) for part in ([[1], [3], [1], [0], [4], [2]], [[0], [3]], [[2], [2]])]
    tables = [dygraph.Embedding(None, [5, 4], is_sparse=sparse) for sparse in (False, True)]
    tables[1].set_dict({"weight": tables[0].weight.numpy()})
    optimizer = [OPTIMIZERS[name]() for _ in tables]
    for part in ids:
        for table, own in zip(tables, optimizer, strict=True):
            loss = (table(part) * table(part)).sum() + table(part[0:1]).sum()
            loss.backward()
            (table(part) * 0.1).sum().backward()
            own.minimize(loss)
        assert tables[1].weight.grad.type == fluid.core.VarDesc.VarType.SELECTED_ROWS
        np.testing.assert_allclose(tables[1].weight.grad.numpy(), tables[0].weight.grad.numpy(), 1e-5, 1e-6)
        for table in tables:
            table.clear_gradients()
    np.testing.assert_allclose(tables[1].weight.numpy(), tables[0].weight.numpy(), 1e-5, 1e-6)


def test_sparse_gradients_with_clips_and_decay() -> None:
    tables = [dygraph.Embedding(None, [5, 4], is_sparse=sparse) for sparse in (False, True)]
    tables[1].set_dict({"weight": tables[0].weight.numpy()})
    for table in tables:
        loss = (table(dygraph.to_variable(np.arange(5).reshape(5, 1))) * 3.0).sum()
        loss.backward()
        optimizers.SGD(0.1, regularization=L2Decay(0.1), grad_clip=GradientClipByGlobalNorm(0.5)).minimize(loss)
    np.testing.assert_allclose(tables[1].weight.numpy(), tables[0].weight.numpy(), 1e-5)


# -------------------------------------------------------------------------------------------------------------- errors
def test_errors() -> None:
    net = Net()
    with pytest.raises(ProgramError, match=r"nothing to optimize: no parameter has a gradient; call loss.backward\(\) before"):
        optimizers.SGD(0.1).minimize(loss_of(net))
    with pytest.raises(ProgramError, match=r"step\(\) is for eager mode, and for the parameters that the optimizer was given"):
        optimizers.SGD(0.1).step()
    with pytest.raises(FluidTypeError, match="parameter_list should hold tensors"):
        optimizers.SGD(0.1).minimize(loss_of(net), parameter_list=["w1"])
    with pytest.raises(FluidTypeError, match="learning_rate should be a number or a Variable"):
        optimizers.SGD("fast")
    with pytest.raises(ProgramError, match="RecomputeOptimizer is for programs"):
        optimizers.RecomputeOptimizer(optimizers.SGD(0.1)).minimize(loss_of(net))
    with pytest.raises(ProgramError, match="PiecewiseDecay: there should be one more of values than of boundaries, not 1 and 1"):
        dygraph.PiecewiseDecay([1], [1.0])
    with pytest.raises(ProgramError, match="PiecewiseDecay: boundaries should increase"):
        dygraph.PiecewiseDecay([2, 1], [1.0, 2.0, 3.0])
    with pytest.raises(ProgramError, match="CosineDecay: epochs should be greater than 0, not 0"):
        dygraph.CosineDecay(0.1, 1, 0)


def test_programs_and_tensors_are_not_mixed() -> None:
    x = fluid.data("x", [2, 3])
    loss = layers.mean(layers.fc(x, 1))
    with pytest.raises(ProgramError, match="ExponentialDecay is for eager mode; programs have"):
        optimizers.SGD(dygraph.ExponentialDecay(0.1, 1, 0.5)).minimize(loss)
    optimizer = optimizers.Adam(0.1)
    optimizer.minimize(loss)
    with pytest.raises(ProgramError, match="what an optimizer keeps for a program is saved with it"):
        optimizer.state_dict()
    net = Net()
    eager_loss = loss_of(net)
    eager_loss.backward()
    with pytest.raises(ProgramError, match="belongs to another program than the loss"):
        optimizers.SGD(layers.fill_constant([1], "float32", 0.1)).minimize(eager_loss)


def test_steps_leave_no_cycles_behind() -> None:
    net = Net()
    optimizer = OPTIMIZERS["Adam"](parameter_list=net.parameters(), regularization=L2Decay(0.1))

    def step() -> None:
        loss_of(net).backward()
        optimizer.step()
        optimizer.clear_grad()

    for _ in range(3):
        step()
    assert_no_cycles(step)
