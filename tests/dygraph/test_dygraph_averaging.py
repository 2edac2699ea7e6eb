"""Averages of parameters in eager mode, and every name of `fluid.optimizer`: it trains as in a program, or says what to use."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from checks import each

import fluid
from fluid import dygraph, layers
from fluid import optimizer as optimizers
from fluid.errors import FluidTypeError, ProgramError

pytestmark = pytest.mark.numpy_alone

STEPS = 5
RNG = np.random.default_rng(0)
X = RNG.standard_normal((8, 6)).astype("float32")
FIRST = {"w1": RNG.standard_normal((6, 5)).astype("float32"), "w2": RNG.standard_normal((5, 3)).astype("float32")}
Make = Callable[..., Any]


@pytest.fixture(autouse=True)
def _fresh() -> Iterator[None]:
    yield


def attr(name: str, **said: Any) -> fluid.ParamAttr:
    return fluid.ParamAttr(name=name, initializer=fluid.initializer.NumpyArrayInitializer(FIRST[name]), **said)


def loss_of(x: Any, w1: Any, w2: Any) -> Any:
    return layers.mean(layers.square(layers.mul(layers.tanh(layers.mul(x, w1)), w2)))


def built() -> Any:
    """The loss of a program."""
    x = fluid.data("x", list(X.shape))
    return loss_of(x, *(layers.create_parameter(list(FIRST[name].shape), "float32", attr=attr(name)) for name in FIRST))


class Net(dygraph.Layer):
    def __init__(self, **said: Any) -> None:
        super().__init__()
        self.w1 = self.create_parameter(attr("w1", **said), [6, 5])
        self.w2 = self.create_parameter(attr("w2"), [5, 3])

    def loss(self) -> Any:
        return loss_of(dygraph.to_variable(X), self.w1, self.w2)

    def values(self) -> list[Any]:
        return [self.w1.numpy(), self.w2.numpy()]


def step(net: Net, optimizer: Any) -> Any:
    loss = net.loss()
    loss.backward()
    optimizer.minimize(loss)
    net.clear_gradients()
    return loss


# ------------------------------------------------------------------------------------------------------------- averages
def counted() -> Any:
    """The number of the step, as a program counts it."""
    steps = layers.create_global_var([1], 0.0, "float32", persistable=True)
    layers.increment(steps)
    return steps


AVERAGES: dict[str, Make] = {
    "exponential": lambda steps, **k: optimizers.ExponentialMovingAverage(0.8, **k),
    "scheduled": lambda steps, **k: optimizers.ExponentialMovingAverage(0.3, thres_steps=steps(), name="late", **k),
    "mean": lambda steps, **k: optimizers.ModelAverage(0.5, min_average_window=2, max_average_window=3, **k),
    "mean of all": lambda steps, **k: optimizers.ModelAverage(0.15, **k),
}


def averaged_statically(make: Make) -> list[Any]:
    """The averages, and the parameters, after each step of a program."""
    optimizers.SGD(0.3).minimize(built())
    average = make(counted)
    if isinstance(average, optimizers.ExponentialMovingAverage):
        average.update()
    executor, scope = fluid.Executor(), fluid.global_scope()
    executor.run(fluid.default_startup_program())
    found = []
    for _ in range(STEPS):
        executor.run(feed={"x": X})
        with average.apply(executor):
            found.append([scope.array(name).copy() for name in FIRST])
        found.append([scope.array(name).copy() for name in FIRST])
    return found


@each("name", AVERAGES)
def test_averages_are_the_bits_of_the_program(name: str) -> None:
    expected = averaged_statically(AVERAGES[name])
    net, optimizer, steps = Net(), optimizers.SGD(0.3), dygraph.Tensor([0.0])
    average = AVERAGES[name](lambda: steps, parameter_list=net.parameters())
    found = []
    for _ in range(STEPS):
        step(net, optimizer)
        layers.increment(steps)
        average.update()
        with average.apply():
            found.append(net.values())
        found.append(net.values())
    for number, (mine, other) in enumerate(zip(found, expected, strict=True)):
        for one, two in zip(mine, other, strict=True):
            np.testing.assert_array_equal(one, two, f"{number}")
    assert not np.array_equal(found[-1][0], found[-2][0])
    assert all(tensor.is_leaf for tensor in average.state_dict().values())


@each("name", AVERAGES)
def test_averages_in_averages(name: str) -> None:
    """However often they are put in their place, the parameters themselves come back, and once."""
    optimizers.SGD(0.3).minimize(built())
    average = AVERAGES[name](counted)
    if isinstance(average, optimizers.ExponentialMovingAverage):
        average.update()
    executor, scope = fluid.Executor(), fluid.global_scope()
    executor.run(fluid.default_startup_program())
    executor.run(feed={"x": X})
    executor.run(feed={"x": X})
    own = scope.array("w1").copy()
    with average.apply(executor):
        found = scope.array("w1").copy()
        with average.apply(executor, need_restore=False), average.apply(executor):
            np.testing.assert_array_equal(scope.array("w1"), found)
        np.testing.assert_array_equal(scope.array("w1"), own)
    assert not np.array_equal(found, own)
    np.testing.assert_array_equal(scope.array("w1"), own)
    with pytest.raises(ProgramError, match=r"restore: the parameters are unchanged; apply has not put averages in their place"):
        average.restore(executor)
    other = fluid.Scope()
    with fluid.scope_guard(other):
        executor.run(fluid.default_startup_program())
        executor.run(feed={"x": X})
        first = other.array("w1").copy()
        with average.apply(executor), fluid.scope_guard(scope), average.apply(executor):
            np.testing.assert_array_equal(scope.array("w1"), found)
        np.testing.assert_array_equal(other.array("w1"), first)
    np.testing.assert_array_equal(scope.array("w1"), own)


@each("name", AVERAGES)
def test_the_parameters_come_back(name: str) -> None:
    """At the end of the ``with``, after an error, or when asked; an executor may be given as to a program's."""
    net = Net()
    average = AVERAGES[name](lambda: dygraph.Tensor([1.0]), parameter_list=net.parameters())
    for _ in range(2):
        step(net, optimizers.SGD(0.3))
        average.update()
    own = net.values()
    with average.apply(fluid.Executor()):
        averages = net.values()
    assert np.array_equal(net.values()[0], own[0]) and not np.array_equal(averages[0], own[0])
    with pytest.raises(ZeroDivisionError), average.apply(need_restore=True):
        raise ZeroDivisionError
    np.testing.assert_array_equal(net.values()[0], own[0])
    with average.apply(None, need_restore=False):
        pass
    np.testing.assert_array_equal(net.values()[0], averages[0])
    with average.apply(need_restore=False), average.apply(need_restore=False):  # what is kept are the parameters themselves
        pass
    average.restore()
    np.testing.assert_array_equal(net.values()[1], own[1])
    with average.apply():
        average.restore(fluid.Executor())
    np.testing.assert_array_equal(net.values()[1], own[1])
    with pytest.raises(
        ProgramError, match=r"Average.restore: the parameters are unchanged; apply has not put averages in their place"
    ):
        average.restore()


def test_a_state_goes_on_where_it_was() -> None:
    for make in AVERAGES.values():
        found = []
        for resumed in (False, True):
            with dygraph.guard():
                net, steps = Net(), dygraph.Tensor([0.0])
                average = make(lambda steps=steps: steps, parameter_list=net.parameters())
            for number in range(4):
                if resumed and number == 2:
                    state = {name: tensor.numpy() for name, tensor in average.state_dict().items()}
                    with dygraph.guard():
                        average = make(lambda steps=steps: steps, parameter_list=net.parameters())
                    average.set_dict(state)
                step(net, optimizers.SGD(0.3))
                layers.increment(steps)
                average.update()
            with average.apply():
                found.append(net.values())
        np.testing.assert_array_equal(found[0][0], found[1][0])
        with pytest.raises(ProgramError, match=r"the state has no 'late_ema_decay_0'|the state has no '\w+' \("):
            average.set_dict({})
        name = list(average.state_dict())[-1]
        with pytest.raises(ProgramError, match=rf"{name} is .*; the state's has the shape \[7\]"):
            average.set_dict({**average.state_dict(), name: np.zeros(7)})


def test_parameters_that_are_left_out() -> None:
    net = Net(do_model_average=False)
    average = optimizers.ExponentialMovingAverage(0.5, parameter_list=net.parameters())
    step(net, optimizers.SGD(0.3))
    average.update()
    step(net, optimizers.SGD(0.3))
    before = net.values()
    with average.apply():
        np.testing.assert_array_equal(net.w1.numpy(), before[0])
        assert not np.array_equal(net.w2.numpy(), before[1])


@each("name", ["exponential", "model"])
def test_averages_are_copied_and_pickled(name: str) -> None:
    net = Net()
    twice = [net.w1, net.w1, net.w2]
    average = (
        optimizers.ExponentialMovingAverage(0.5, parameter_list=twice)
        if name == "exponential"
        else optimizers.ModelAverage(0.5, 1, 3, parameter_list=twice)
    )
    assert len(average._params) == 2
    optimizer = optimizers.SGD(0.3)

    def averaged(net: Net, average: Any) -> list[Any]:
        step(net, optimizer)
        average.update()
        with average.apply():
            return net.values()

    averaged(net, average)
    copies = [copy.deepcopy((net, average)), pickle.loads(pickle.dumps((net, average)))]
    expected = averaged(net, average)
    for twin, other in copies:
        for one, two in zip(averaged(twin, other), expected, strict=True):
            np.testing.assert_array_equal(one, two)
        assert list(other.state_dict()) == list(average.state_dict())


def test_averages_of_what_is_not_made_yet() -> None:
    net = dygraph.Sequential(dygraph.FC("first", 3), dygraph.Linear(3, 2))
    for make in (optimizers.ExponentialMovingAverage, lambda **k: optimizers.ModelAverage(0.5, **k)):
        with pytest.raises(
            ProgramError,
            match=r"Average: parameter_list lacks the parameters of first/FC_0, which are made .*: call the network once before$",
        ):
            make(parameter_list=net)
    net(dygraph.to_variable(X))
    assert len(optimizers.ExponentialMovingAverage(parameter_list=net)._params) == 4


def test_averages_of_a_program_are_saved_with_it() -> None:
    optimizers.SGD(0.1).minimize(built())
    with pytest.raises(ProgramError, match=r"a ModelAverage of a program's parameters is not copied or pickled; fluid.save"):
        pickle.dumps(optimizers.ModelAverage(0.5))


def test_some_parameters_of_a_program() -> None:
    optimizers.SGD(0.3).minimize(built())
    (w2,) = (param for param in fluid.default_main_program().all_parameters() if param.name == "w2")
    optimizers.ModelAverage(0.5, parameter_list=[w2])
    ops = fluid.default_main_program().global_block().ops
    assert [op.inputs["param"] for op in ops if op.type == "average_accumulates"] == [["w2"]]


def test_errors_of_averages() -> None:
    net = Net()
    kinds: list[Make] = [optimizers.ExponentialMovingAverage, lambda *a, **k: optimizers.ModelAverage(0.5, *a, **k)]
    for make in kinds:
        with (
            dygraph.guard(),
            pytest.raises(ProgramError, match=r"Average does not know what to average in eager mode; say parameter"),
        ):
            make()
        with pytest.raises(
            ProgramError, match=r"no parameter to average; make it afterwards, or in eager mode say parameter_list="
        ):
            make()
        with pytest.raises(
            FluidTypeError, match=r"parameter_list should hold parameters, such as layer.parameters\(\), not 'w1'"
        ):
            make(parameter_list=["w1"])
        with pytest.raises(ProgramError, match=r"Average: parameter_list is empty; give the parameters, such as"):
            make(parameter_list=[])
        average = make(parameter_list=net.parameters())
        with pytest.raises(ProgramError, match=r"has averaged nothing yet; call its update\(\) after each step"), average.apply():
            pass
        np.testing.assert_array_equal(net.w1.numpy(), FIRST["w1"])
    steps = layers.create_global_var([1], 0.0, "float32", persistable=True)
    with pytest.raises(ProgramError, match=r"thres_steps, global_var.*, belongs to another program than the parameters"):
        optimizers.ExponentialMovingAverage(thres_steps=steps, parameter_list=net.parameters())
    optimizers.SGD(0.1).minimize(built())
    params = fluid.default_main_program().all_parameters()
    with pytest.raises(ProgramError, match="w1 and w2 belong to different programs; average each by itself"):
        optimizers.ExponentialMovingAverage(parameter_list=[params[0], net.w2])
    average = optimizers.ModelAverage(0.5)
    with pytest.raises(ProgramError, match=r"ModelAverage.update is for eager mode; the program sums up in each of its runs"):
        average.update()
    without = r"ModelAverage.apply of a program's parameters needs the executor that runs it: apply\(executor\)"
    with pytest.raises(ProgramError, match=without), average.apply():
        pass
    with pytest.raises(ProgramError, match=r"ModelAverage.restore of a program's parameters needs the executor"):
        average.restore()
    with pytest.raises(ProgramError, match=r"ModelAverage.state_dict is for eager mode; fluid.save\(program, path\) saves"):
        average.state_dict()
    with pytest.raises(ProgramError, match=r"ModelAverage.set_dict is for eager mode; fluid.load\(program, path\) restores"):
        average.set_dict({})


# ----------------------------------------------------------------------------------------- every name of fluid.optimizer
TRAINING: dict[str, Make] = {
    "SGD": lambda **k: optimizers.SGD(0.1, **k),
    "Momentum": lambda **k: optimizers.Momentum(0.1, 0.9, use_nesterov=True, **k),
    "Adam": lambda **k: optimizers.Adam(0.1, **k),
    "AdamW": lambda **k: optimizers.AdamW(0.1, weight_decay=0.1, **k),
    "Adamax": lambda **k: optimizers.Adamax(0.1, **k),
    "NAdam": lambda **k: optimizers.NAdam(0.1, **k),
    "RAdam": lambda **k: optimizers.RAdam(0.1, **k),
    "Lion": lambda **k: optimizers.Lion(0.01, **k),
    "Adagrad": lambda **k: optimizers.Adagrad(0.1, **k),
    "DecayedAdagrad": lambda **k: optimizers.DecayedAdagrad(0.1, **k),
    "Adadelta": lambda **k: optimizers.Adadelta(1.0, **k),
    "RMSProp": lambda **k: optimizers.RMSProp(0.1, **k),
    "Ftrl": lambda **k: optimizers.Ftrl(0.1, l1=0.01, **k),
    "Lamb": lambda **k: optimizers.Lamb(0.1, **k),
    "LarsMomentum": lambda **k: optimizers.LarsMomentum(0.1, 0.9, **k),
    "Dpsgd": lambda **k: optimizers.Dpsgd(0.1, clip=0.5, batch_size=8.0, sigma=0.0, **k),
    "DGCMomentumOptimizer": lambda **k: optimizers.DGCMomentumOptimizer(0.1, 0.9, 0, **k),
    "LookaheadOptimizer": lambda **k: optimizers.LookaheadOptimizer(optimizers.Adam(0.1, **k), alpha=0.3, k=2),
    "PipelineOptimizer": lambda **k: optimizers.PipelineOptimizer(optimizers.Adam(0.1, **k), cut_list=[], sync_steps=2),
}
REFUSED = {"RecomputeOptimizer": r"in eager mode call the parts of the network by y = fluid.dygraph.recompute\(part, x\)"}
ABOVE = {"ExponentialMovingAverage", "ModelAverage"}
BASE = {"Optimizer"}


def test_every_optimizer_is_here() -> None:
    named = {name for name in optimizers.__all__ if name.removesuffix("Optimizer") not in TRAINING}
    assert named == {name for name in TRAINING if name.endswith("Optimizer")} | REFUSED.keys() | ABOVE | BASE
    for name in TRAINING:
        assert getattr(optimizers, name) is getattr(optimizers, name.removesuffix("Optimizer") + "Optimizer")


@each("by", ["minimize", "step"])
@each("name", TRAINING)
def test_it_trains_as_in_a_program(name: str, by: str) -> None:
    loss = built()
    TRAINING[name]().minimize(loss)
    executor = fluid.Executor()
    executor.run(fluid.default_startup_program())
    expected = [executor.run(feed={"x": X}, fetch_list=[loss])[0].item() for _ in range(STEPS)]
    net = Net()
    optimizer, losses = TRAINING[name](parameter_list=net.parameters()), []
    for _ in range(STEPS):
        if by == "minimize":
            found = step(net, optimizer)
        else:
            found = net.loss()
            found.backward()
            optimizer.step()
            optimizer.clear_grad()
            assert net.w1.grad is None
        losses.append(found.item())
    assert losses == expected and len(set(losses)) == STEPS
    for name, value in zip(FIRST, net.values(), strict=True):
        np.testing.assert_array_equal(value, fluid.global_scope().array(name))


@pytest.mark.parametrize("name", REFUSED)
def test_it_says_what_to_use(name: str) -> None:
    net = Net()
    optimizer, loss = getattr(optimizers, name)(optimizers.SGD(0.1)), net.loss()
    loss.backward()
    with pytest.raises(ProgramError, match=REFUSED[name]):
        optimizer.minimize(loss)


def test_steps_of_optimizers_around_others_need_the_parameters() -> None:
    for make in (optimizers.LookaheadOptimizer, optimizers.PipelineOptimizer):
        for method in ("step", "clear_grad"):
            with pytest.raises(
                ProgramError, match=rf"{method}\(\) is for eager mode, and for the parameters that the optimizer was"
            ):
                getattr(make(optimizers.SGD(0.1)), method)()
