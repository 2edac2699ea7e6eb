"""Averages of parameters, optimizers around optimizers, weight normalization, and Paddle's numbers of every update."""

from __future__ import annotations

import json
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from checks import each
from paths import TESTS

import fluid
from fluid import layers, optimizer
from fluid.errors import FluidError, FluidTypeError, ProgramError
from fluid.executor.binding.compiled import apply_op
from fluid.ir.program import OpRole, Variable
from fluid.opdef import registry
from fluid.param_attr import WeightNormParamAttr

Array = np.ndarray[Any, Any]
FIRST = np.array([[0.5, 1.0], [-1.0, 0.25], [2.0, -0.5]])
ROWS = np.array([[1.0, 2.0, 3.0], [-1.0, 0.5, 2.0]])
GOLDEN = TESTS / "golden" / "paddle_optimizers.npz"


# ------------------------------------------------------------------------------------------------------------- Paddle's
def golden_cases() -> list[Any]:
    with np.load(GOLDEN) as data:
        return json.loads(str(data["cases"]))  # type: ignore[no-any-return]


@each("case", golden_cases(), ids=lambda case: case["name"])
def test_updates_are_paddles(case: Any) -> None:
    """After one step and after five, in float32; updates of about 0.1 are rounded differently in their last bits."""
    with np.load(GOLDEN) as data:
        arrays = {key.split("/", 1)[1]: data[key] for key in data.files if key.startswith(case["name"] + "/")}
    known = registry.get(case["op"])
    state = {key.split("/")[1]: value for key, value in arrays.items() if key.startswith("start/")}
    for step, grad in enumerate(arrays["grads"]):
        fed = {"param": grad} if "param" in known.inputs else {"Grad": grad, "LearningRate": np.float32([0.1])}
        given = {slot: [value] if known.inputs[slot].many else value for slot, value in {**state, **fed}.items()}
        found = apply_op(case["op"], given, case["attrs"], set(case["outputs"]))
        for out, source in case["outputs"].items():
            state[source] = found[out][0] if known.outputs[out].many else found[out]
        if case["op"] == "adamax":
            state["Beta1Pow"] = state["Beta1Pow"] * np.float32(0.9)
        if step in (0, 4):
            for slot, value in state.items():
                expected = arrays[f"after{step + 1}/{slot}"]
                np.testing.assert_allclose(value, expected.reshape(value.shape), rtol=1e-5, atol=2e-6, err_msg=slot)


# ------------------------------------------------------------------------------------------------------------- averages
def build(opt: Any = None, attr: Any = None) -> Variable:
    """``mean((x @ w) ** 2)``, trained."""
    x = fluid.data("x", [None, 3], "float64")
    attr = attr if attr is not None else fluid.ParamAttr()
    attr.name, attr.initializer = "w", fluid.initializer.NumpyArrayInitializer(FIRST)
    loss = layers.mean(layers.square(layers.mul(x, layers.create_parameter([3, 2], "float64", attr=attr))))
    (opt if opt is not None else optimizer.SGD(0.05)).minimize(loss)
    return loss


def value(name: str = "w") -> Array:
    return np.array(fluid.global_scope().find_var(name).get_tensor())


class Training:
    """Runs the default programs in the test's scope; `seen` holds w before any step and after each."""

    def __init__(self) -> None:
        self.executor = fluid.Executor(fluid.CPUPlace())
        self.executor.run(fluid.default_startup_program())
        self.seen = [value()]

    def steps(self, count: int) -> list[Array]:
        for _ in range(count):
            self.executor.run(feed={"x": ROWS})
            self.seen.append(value())
        return self.seen


def descended(count: int, rate: float = 0.05) -> list[Array]:
    """Gradient descent in plain numpy."""
    found = [FIRST]
    for _ in range(count):
        w = found[-1]
        found.append(w - rate * ROWS.T @ (2 * (ROWS @ w) / 4))
    return found


def test_exponential_moving_average() -> None:
    build()
    average = optimizer.ExponentialMovingAverage(0.8)
    average.update()
    training = Training()
    seen = training.steps(6)
    np.testing.assert_allclose(seen, descended(6))
    expected = np.zeros_like(FIRST)
    for w in seen[1:]:
        expected = 0.8 * expected + 0.2 * w
    with average.apply(training.executor):
        np.testing.assert_allclose(value(), expected / (1 - 0.8**6), rtol=1e-6)
    assert np.array_equal(value(), seen[-1])
    with average.apply(training.executor, need_restore=False):
        pass
    np.testing.assert_allclose(value(), expected / (1 - 0.8**6), rtol=1e-6)  # twice applied, once corrected
    average.restore(training.executor)
    assert np.array_equal(value(), seen[-1])


def test_exponential_moving_average_with_scheduled_decay() -> None:
    """The decay is (1 + steps) / (10 + steps) as long as that is less."""
    build()
    steps = layers.create_global_var([1], 0.0, "float32", persistable=True)
    layers.increment(steps)
    average = optimizer.ExponentialMovingAverage(0.25, thres_steps=steps)
    average.update()
    training = Training()
    seen = training.steps(4)
    expected = np.zeros_like(FIRST)
    for t, w in enumerate(seen[1:], 1):
        decay = min(0.25, (1 + t) / (10 + t))
        expected = decay * expected + (1 - decay) * w
    with average.apply(training.executor):
        np.testing.assert_allclose(value(), expected / (1 - decay**4), rtol=1e-6)


def test_model_average() -> None:
    """The windows of 2 to 3 steps, in plain numpy: both the last full one and what came after it count."""
    build()
    average = optimizer.ModelAverage(0.5, min_average_window=2, max_average_window=3)
    training = Training()
    window: list[Array] = []
    full: list[Array] = []
    for step in range(1, 9):
        window.append(training.steps(1)[-1])
        if len(window) >= 2 and len(window) >= min(3, int(0.5 * step)):
            window, full = [], window
        with average.apply(training.executor):
            np.testing.assert_allclose(value(), np.mean(window + full, axis=0))
        assert np.array_equal(value(), training.seen[-1])


def test_averages_leave_out_who_asks_for_it() -> None:
    build(attr=fluid.ParamAttr(do_model_average=False))
    for make in (optimizer.ExponentialMovingAverage, lambda: optimizer.ModelAverage(0.5)):
        with pytest.raises(ProgramError, match="has no parameter to average"):
            make()


def test_an_average_of_nothing() -> None:
    """Before the first step there is no average, and the parameters do not change."""
    build()
    averages = [optimizer.ExponentialMovingAverage(0.9), optimizer.ModelAverage(0.5)]
    executor = fluid.Executor(fluid.CPUPlace())
    executor.run(fluid.default_startup_program())
    for average in averages:
        with pytest.raises(ProgramError, match="has averaged nothing yet"), average.apply(executor):
            pass
        assert np.array_equal(value(), FIRST)


def test_averages_are_restored_after_an_error() -> None:
    build()
    average = optimizer.ModelAverage(0.5)
    training = Training()
    seen = training.steps(2)
    with pytest.raises(ZeroDivisionError), average.apply(training.executor):
        raise ZeroDivisionError
    assert np.array_equal(value(), seen[-1])


def test_averages_are_no_part_of_a_test_program() -> None:
    build()
    before = fluid.default_main_program().clone(for_test=True)
    optimizer.ExponentialMovingAverage(0.9).update()
    optimizer.ModelAverage(0.5)
    ops = fluid.default_main_program().global_block().ops
    assert sum(op.type == "average_accumulates" and bool(op.role & OpRole.OPTIMIZE) for op in ops) == 1
    after = fluid.default_main_program().clone(for_test=True)
    assert [op.type for op in after.global_block().ops] == [op.type for op in before.global_block().ops]


# ------------------------------------------------------------------------------------------- optimizers around optimizers
def test_lookahead() -> None:
    build(optimizer.LookaheadOptimizer(optimizer.SGD(0.05), alpha=0.3, k=3))
    seen = Training().steps(7)
    slow = fast = FIRST
    for step in range(1, 8):
        fast = fast - 0.05 * ROWS.T @ (2 * (ROWS @ fast) / 4)
        if step % 3 == 0:
            slow = fast = slow + 0.3 * (fast - slow)
        np.testing.assert_allclose(seen[step], fast, rtol=1e-6)


def test_lookahead_of_a_program_takes_no_state() -> None:
    lookahead = optimizer.LookaheadOptimizer(optimizer.SGD(0.1))
    lookahead.set_dict({"w_slow_0": np.ones(2, "float32")})
    with pytest.raises(ProgramError, match=r"saved with it: fluid\.save"):
        lookahead.minimize(layers.mean(layers.fc(fluid.data("x", [2, 2]), 1)))


def test_lookahead_needs_the_startup_program() -> None:
    x = fluid.data("x", [None, 3], "float64")
    loss = layers.mean(layers.fc(x, 1))
    with pytest.raises(ProgramError, match=r"the startup program does not initialize fc_0.*; minimize takes the one that does"):
        optimizer.LookaheadOptimizer(optimizer.SGD(0.1)).minimize(loss, startup_program=fluid.Program())


def test_pipeline_on_one_device() -> None:
    build(optimizer.PipelineOptimizer(optimizer.SGD(0.05), cut_list=[], place_list=[], concurrency_list=[1], queue_size=2))
    np.testing.assert_allclose(Training().steps(4), descended(4))


def test_compressed_momentum_on_one_device() -> None:
    """Nothing is sent, so nothing is compressed."""
    build(optimizer.DGCMomentumOptimizer(0.05, 0.9, rampup_begin_step=0, local_grad_clip_norm=0.1, num_trainers=1))
    w, velocity = FIRST, np.zeros_like(FIRST)
    for seen in Training().steps(4)[1:]:
        velocity = 0.9 * velocity + ROWS.T @ (2 * (ROWS @ w) / 4)
        w = w - 0.05 * velocity
        np.testing.assert_allclose(seen, w)


def test_private_descent() -> None:
    """The gradient is shrunk to the norm `clip`; the noise is one number for a parameter, another in each step."""
    fluid.default_main_program().random_seed = 3
    build(optimizer.Dpsgd(0.05, clip=0.5, batch_size=4.0, sigma=2.0))
    seen = Training().steps(3)
    noises = []
    for before, after in pairwise(seen):
        grad = ROWS.T @ (2 * (ROWS @ before) / 4)
        noise = ((before - after) / 0.05 - grad * min(1, 0.5 / np.linalg.norm(grad))) * 4.0 / 2.0
        np.testing.assert_allclose(noise, noise.flat[0], rtol=1e-6)
        noises.append(noise.flat[0])
    assert len(set(np.round(noises, 6))) == 3 and max(map(abs, noises)) < 5


WRONG: list[tuple[Callable[[], Any], str]] = [
    (lambda: optimizer.RecomputeOptimizer(3), "RecomputeOptimizer takes an optimizer"),  # type: ignore[arg-type]
    (lambda: optimizer.LookaheadOptimizer(None), "LookaheadOptimizer takes an optimizer"),  # type: ignore[arg-type]
    (lambda: optimizer.PipelineOptimizer("sgd"), "PipelineOptimizer takes an optimizer"),  # type: ignore[arg-type]
    (lambda: optimizer.LookaheadOptimizer(optimizer.SGD(0.1), alpha=1.5), r"alpha should be in \[0, 1\], not 1.5"),
    (lambda: optimizer.LookaheadOptimizer(optimizer.SGD(0.1), k=0), "k should be a number of steps, at least 1, not 0"),
    (lambda: optimizer.DGCMomentumOptimizer(0.1, 0.9, -1), "rampup_begin_step of at least 0"),
    (lambda: optimizer.DGCMomentumOptimizer(0.1, 0.9, 0, sparsity=[1.5]), r"parts of gradients to leave out.*\[1.5\]"),
    (lambda: optimizer.DGCMomentumOptimizer(0.1, 0.9, 0, local_grad_clip_norm=1.0), "local_grad_clip_norm needs num_trainers"),
    (lambda: optimizer.ExponentialMovingAverage(1.0), r"decay should be in \[0, 1\), not 1.0"),
    (lambda: optimizer.ExponentialMovingAverage("0.9"), r"decay should be in \[0, 1\), not '0.9'"),  # type: ignore[arg-type]
    (lambda: optimizer.ExponentialMovingAverage(thres_steps=7), "thres_steps should be a Variable, not 7"),  # type: ignore[arg-type]
    (lambda: optimizer.ModelAverage(-0.5), "an average_window_rate of at least 0"),
    (lambda: optimizer.ModelAverage(0.5, 20, 10), "min_average_window <= max_average_window, not 0.5, 20 and 10"),
]


@each("number", range(len(WRONG)))
def test_wrong_arguments(number: int) -> None:
    build()
    make, message = WRONG[number]
    with pytest.raises((ProgramError, FluidTypeError), match=message) as caught:
        make()
    assert isinstance(caught.value, FluidError)


# --------------------------------------------------------------------------------------------------- weight normalization
@each("dim", [None, 0, 1, -1])
def test_weight_normalization(dim: int | None) -> None:
    """g and v train by the chain rule through ``g * v / norm(v)``; at first the product is what v is."""
    x = fluid.data("x", [None, 3], "float64")
    attr = WeightNormParamAttr(dim=dim, name="w", initializer=fluid.initializer.NumpyArrayInitializer(FIRST), learning_rate=0.5)
    y = layers.fc(x, 2, param_attr=attr, bias_attr=False)
    optimizer.SGD(0.1).minimize(layers.mean(layers.square(y)))
    params = {param.name: param for param in fluid.default_main_program().all_parameters()}
    axis = None if dim is None else 1 - dim % 2
    g, v = np.sqrt((FIRST**2).sum(axis, keepdims=True)), FIRST
    assert list(params) == ["w_v", "w_g"] and params["w_g"].shape == g.shape and params["w_v"].shape == v.shape
    executor = fluid.Executor(fluid.CPUPlace())
    executor.run(fluid.default_startup_program())
    np.testing.assert_allclose(value("w_g"), g)
    for _ in range(3):
        (out,) = executor.run(feed={"x": ROWS}, fetch_list=[y])
        norm = np.sqrt((v**2).sum(axis, keepdims=True))
        np.testing.assert_allclose(out, ROWS @ (g * v / norm))
        dw = ROWS.T @ (2 * out / out.size)
        dg = (dw * v / norm).sum(axis, keepdims=True)
        dv = g / norm * dw - g * dg * v / norm**2
        g, v = g - 0.05 * dg, v - 0.05 * dv
        np.testing.assert_allclose(value("w_g"), g)
        np.testing.assert_allclose(value("w_v"), v)


def test_weight_normalization_of_a_filter_and_a_shared_one() -> None:
    image = fluid.data("image", [None, 3, 8, 8])
    layers.conv2d(image, 4, 3, param_attr=WeightNormParamAttr(dim=0))
    params = fluid.default_main_program().all_parameters()
    assert [(p.name, p.shape) for p in params[:2]] == [("conv2d_0.w_0_v", (4, 3, 3, 3)), ("conv2d_0.w_0_g", (4, 1, 1, 1))]
    x = fluid.data("x", [None, 3])
    for _ in range(2):
        layers.fc(x, 3, bias_attr=False, param_attr=WeightNormParamAttr(name="shared"))
    assert [p.name for p in fluid.default_main_program().all_parameters()].count("shared_v") == 1
    fluid.Executor().run(fluid.default_startup_program())
    assert value("shared_g").shape == (1, 1)


def test_weight_normalization_over_no_such_dimension() -> None:
    with pytest.raises(ProgramError, match=r"WeightNormParamAttr has dim=2, but the parameter has the shape \[3, 4\]"):
        layers.fc(fluid.data("x", [None, 3]), 4, param_attr=WeightNormParamAttr(dim=2))


def test_what_a_weight_normalization_says() -> None:
    assert repr(WeightNormParamAttr(dim=1, name="w")) == "WeightNormParamAttr(name='w', dim=1)"
    assert fluid.WeightNormParamAttr is WeightNormParamAttr
