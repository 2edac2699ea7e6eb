"""Optimizers, weight decay and clipping: the ops they append, and their numbers against plain numpy."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from checks import each
from samples import OPS

import fluid
from fluid import clip, dygraph, layers, optimizer, regularizer
from fluid.errors import FluidError, FluidTypeError, InferenceError, ProgramError
from fluid.executor.binding.compiled import apply_op
from fluid.ir.program import OpRole, Parameter, Variable
from fluid.opdef import registry

Array = np.ndarray[Any, Any]
FIRST = np.array([[0.5], [-1.0], [2.0]])
ROWS = np.array([[1.0, 2.0, 3.0], [-1.0, 0.5, 2.0]])


@pytest.fixture(autouse=True)
def programs() -> Iterator[fluid.Program]:
    """Every test builds in programs of its own."""
    main = fluid.Program()
    with fluid.program_guard(main, fluid.Program()), fluid.unique_name.guard():
        yield main


def linear(attr: Any = None, dtype: str = "float64", name: str = "w") -> Variable:
    """``mean((x @ w) ** 2)``, whose gradient is ``gradient(w)``."""
    x = fluid.data("x", [None, 3], dtype)
    attr = attr if attr is not None else fluid.ParamAttr()
    attr.name, attr.initializer = name, fluid.initializer.NumpyArrayInitializer(FIRST)
    return layers.mean(layers.square(layers.mul(x, layers.create_parameter([3, 1], dtype, attr=attr))))


def gradient(w: Array) -> Array:
    return ROWS.T @ (2 * (ROWS @ w) / 2)


def train(steps: int, fetch: Any = "w", dtype: str = "float64") -> Array:
    executor, scope = fluid.Executor(fluid.CPUPlace()), fluid.Scope()
    executor.run(fluid.default_startup_program(), scope=scope)
    for _ in range(steps):
        executor.run(feed={"x": ROWS.astype(dtype)}, scope=scope)
    return np.array(scope.find_var(fetch).get_tensor())


def sgd(rate: float, grad: Callable[[Array], Array] = gradient) -> Callable[[int], Array]:
    def after(steps: int) -> Array:
        w = FIRST.copy()
        for _ in range(steps):
            w = w - rate * grad(w)
        return w

    return after


def momentum(rate: float, mu: float, nesterov: bool) -> Callable[[int], Array]:
    def after(steps: int) -> Array:
        w, v = FIRST.copy(), np.zeros_like(FIRST)
        for _ in range(steps):
            g = gradient(w)
            v = mu * v + g
            w = w - rate * (g + mu * v if nesterov else v)
        return w

    return after


def adam(
    rate: float,
    beta1: float = 0.9,
    beta2: float = 0.999,
    epsilon: float = 1e-8,
    start1: float | None = None,
    start2: float | None = None,
) -> Callable[[int], Array]:
    """`start1` and `start2`: the powers of the betas in the first step, the betas themselves by default."""

    def after(steps: int) -> Array:
        w, m, v = FIRST.copy(), np.zeros_like(FIRST), np.zeros_like(FIRST)
        for t in range(steps):
            g = gradient(w)
            m = beta1 * m + (1 - beta1) * g
            v = beta2 * v + (1 - beta2) * g * g
            root = np.sqrt(1 - (start2 or beta2) * beta2**t)
            w = w - rate * root / (1 - (start1 or beta1) * beta1**t) * m / (np.sqrt(v) + epsilon * root)
        return w

    return after


def beta(value: float) -> Variable:
    return layers.create_global_var([1], value, "float32", persistable=True)


def descent(state: dict[str, float], step: Callable[[Array, Array, int, dict[str, Array]], Array]) -> Callable[[int], Array]:
    """A parameter after some steps. `step` computes the new value from value, gradient, step number and state; it replaces the
    state's arrays, which are filled with the given numbers at first."""

    def after(steps: int) -> Array:
        w, arrays = FIRST.copy(), {name: np.full_like(FIRST, value) for name, value in state.items()}
        for t in range(1, steps + 1):
            w = step(w, gradient(w), t, arrays)
        return w

    return after


def adamw(rate: float, decay: float, ratio: float = 1.0) -> Callable[[int], Array]:
    def step(w: Array, g: Array, t: int, s: dict[str, Array]) -> Array:
        s["m"], s["v"] = 0.9 * s["m"] + 0.1 * g, 0.999 * s["v"] + 0.001 * g * g
        m, v = s["m"] / (1 - 0.9**t), s["v"] / (1 - 0.999**t)
        return w - rate * ratio * (decay * w + m / (np.sqrt(v) + 1e-8))

    return descent({"m": 0, "v": 0}, step)


def lamb(rate: float, decay: float, adapt: bool = True) -> Callable[[int], Array]:
    def step(w: Array, g: Array, t: int, s: dict[str, Array]) -> Array:
        s["m"], s["v"] = 0.9 * s["m"] + 0.1 * g, 0.999 * s["v"] + 0.001 * g * g
        r = s["m"] / (1 - 0.9**t) / (np.sqrt(s["v"] / (1 - 0.999**t)) + 1e-6) + decay * w
        return w - rate * r * (np.linalg.norm(w) / np.linalg.norm(r) if adapt else 1)

    return descent({"m": 0, "v": 0}, step)


def nadam(rate: float, beta1: float = 0.9, beta2: float = 0.999, decay: float = 0.004) -> Callable[[int], Array]:
    """As torch computes it."""

    def step(w: Array, g: Array, t: int, s: dict[str, Array]) -> Array:
        mu, following = (beta1 * (1 - 0.5 * 0.96 ** (number * decay)) for number in (t, t + 1))
        s["m"], s["v"] = beta1 * s["m"] + (1 - beta1) * g, beta2 * s["v"] + (1 - beta2) * g * g
        s["product"] = s["product"] * mu
        root = np.sqrt(s["v"] / (1 - beta2**t)) + 1e-8
        w = w - rate * (1 - mu) / (1 - s["product"]) * g / root
        return w - rate * following / (1 - s["product"] * following) * s["m"] / root

    return descent({"m": 0, "v": 0, "product": 1}, step)


def radam(rate: float, beta1: float = 0.9, beta2: float = 0.999) -> Callable[[int], Array]:
    """As torch computes it."""

    def step(w: Array, g: Array, t: int, s: dict[str, Array]) -> Array:
        s["m"], s["v"] = beta1 * s["m"] + (1 - beta1) * g, beta2 * s["v"] + (1 - beta2) * g * g
        most = 2 / (1 - beta2) - 1
        length = most - 2 * t * beta2**t / (1 - beta2**t)
        corrected = s["m"] / (1 - beta1**t)
        if length <= 5:
            return w - rate * corrected
        rectified = np.sqrt((length - 4) * (length - 2) * most / ((most - 4) * (most - 2) * length))
        return w - rate * corrected * rectified * np.sqrt(1 - beta2**t) / (np.sqrt(s["v"]) + 1e-8)

    return descent({"m": 0, "v": 0}, step)


def lion(rate: float, beta1: float = 0.9, beta2: float = 0.99, decay: float = 0.0) -> Callable[[int], Array]:
    def step(w: Array, g: Array, t: int, s: dict[str, Array]) -> Array:
        direction = np.sign(beta1 * s["m"] + (1 - beta1) * g)
        s["m"] = beta2 * s["m"] + (1 - beta2) * g
        return w * (1 - rate * decay) - rate * direction

    return descent({"m": 0}, step)


def adamax(rate: float, beta1: float = 0.9, beta2: float = 0.999) -> Callable[[int], Array]:
    def step(w: Array, g: Array, t: int, s: dict[str, Array]) -> Array:
        s["m"], s["u"] = beta1 * s["m"] + (1 - beta1) * g, np.maximum(beta2 * s["u"] + 1e-8, np.abs(g))
        return w - rate / (1 - beta1**t) * s["m"] / s["u"]

    return descent({"m": 0, "u": 0}, step)


def adagrad(rate: float, first: float, keep: float = 1.0, add: float = 1.0, epsilon: float = 1e-6) -> Callable[[int], Array]:
    def step(w: Array, g: Array, t: int, s: dict[str, Array]) -> Array:
        s["m"] = keep * s["m"] + add * g * g
        return w - rate * g / (np.sqrt(s["m"]) + epsilon)

    return descent({"m": first}, step)


def adadelta(rate: float, epsilon: float, rho: float) -> Callable[[int], Array]:
    def step(w: Array, g: Array, t: int, s: dict[str, Array]) -> Array:
        s["g"] = rho * s["g"] + (1 - rho) * g * g
        update = g * np.sqrt((s["u"] + epsilon) / (s["g"] + epsilon))
        s["u"] = rho * s["u"] + (1 - rho) * update * update
        return w - rate * update

    return descent({"g": 0, "u": 0}, step)


def rmsprop(rate: float, rho: float, epsilon: float, mu: float, centered: bool) -> Callable[[int], Array]:
    def step(w: Array, g: Array, t: int, s: dict[str, Array]) -> Array:
        s["square"], s["mean"] = rho * s["square"] + (1 - rho) * g * g, rho * s["mean"] + (1 - rho) * g
        root = np.sqrt(s["square"] - (s["mean"] ** 2 if centered else 0) + epsilon)
        s["step"] = mu * s["step"] + rate * g / root
        return w - s["step"]

    return descent({"square": 0, "mean": 0, "step": 0}, step)


def ftrl(rate: float, l1: float, l2: float, power: float) -> Callable[[int], Array]:
    def step(w: Array, g: Array, t: int, s: dict[str, Array]) -> Array:
        old, s["n"] = s["n"], s["n"] + g * g
        s["z"] = s["z"] + g - (s["n"] ** -power - old**-power) / rate * w
        shrunk = np.sign(s["z"]) * np.maximum(np.abs(s["z"]) - l1, 0)
        return -shrunk / (s["n"] ** -power / rate + 2 * l2)

    return descent({"n": 0, "z": 0}, step)


def lars(rate: float, mu: float, coeff: float, decay: float) -> Callable[[int], Array]:
    def step(w: Array, g: Array, t: int, s: dict[str, Array]) -> Array:
        size = np.linalg.norm(w)
        local = rate * coeff * size / (np.linalg.norm(g) + decay * size) if decay else rate
        s["v"] = mu * s["v"] + local * (g + decay * w)
        return w - s["v"]

    return descent({"v": 0}, step)


NUMBERS: list[tuple[Callable[[], optimizer.Optimizer], Callable[[int], Array]]] = [
    (lambda: optimizer.SGD(0.05), sgd(0.05)),
    (lambda: optimizer.SGDOptimizer(learning_rate=0.05), sgd(0.05)),
    (lambda: optimizer.Momentum(0.02, 0.9), momentum(0.02, 0.9, False)),
    (lambda: optimizer.Momentum(0.02, 0.9, use_nesterov=True), momentum(0.02, 0.9, True)),
    (lambda: optimizer.Adam(0.1), adam(0.1)),
    (lambda: optimizer.Adam(0.1, beta1=0.5, beta2=0.8, epsilon=0.1), adam(0.1, 0.5, 0.8, 0.1)),
    (lambda: optimizer.Adam(0.1, beta1=beta(0.5), beta2=0.8, epsilon=0.1), adam(0.1, 0.5, 0.8, 0.1, start1=0.9)),
    (lambda: optimizer.Adam(0.1, 0.5, beta(0.8), epsilon=0.1), adam(0.1, 0.5, 0.8, 0.1, start2=0.999)),
    (lambda: optimizer.SGD(0.05, regularizer.L2Decay(0.3)), sgd(0.05, lambda w: gradient(w) + 0.3 * w)),
    (lambda: optimizer.SGD(0.05, regularizer.L1Decay(0.3)), sgd(0.05, lambda w: gradient(w) + 0.3 * np.sign(w))),
    (lambda: optimizer.SGD(0.05, grad_clip=clip.GradientClipByValue(2.0)), sgd(0.05, lambda w: gradient(w).clip(-2, 2))),
    (lambda: optimizer.AdamW(0.1), adamw(0.1, 0.01)),
    (lambda: optimizer.AdamW(0.1, weight_decay=0.5, lr_ratio=lambda param: 0.3), adamw(0.1, 0.5, 0.3)),
    (lambda: optimizer.AdamW(0.1, weight_decay=0.5, apply_decay_param_fun=lambda name: name != "w"), adamw(0.1, 0.0)),
    (lambda: optimizer.Lamb(0.1), lamb(0.1, 0.01)),
    (lambda: optimizer.LambOptimizer(0.1, 0.5, exclude_from_weight_decay_fn=lambda param: False), lamb(0.1, 0.5)),
    (lambda: optimizer.Lamb(0.1, exclude_from_weight_decay_fn=lambda param: param.name == "w"), lamb(0.1, 0.0, adapt=False)),
    (lambda: optimizer.Lamb(0.1, exclude_from_weight_decay_fn=lambda param: True, always_adapt=True), lamb(0.1, 0.0)),
    (lambda: optimizer.NAdam(0.1), nadam(0.1)),
    (lambda: optimizer.NAdam(0.1, beta1=0.5, beta2=0.8, momentum_decay=0.5), nadam(0.1, 0.5, 0.8, 0.5)),
    (lambda: optimizer.RAdam(0.1), radam(0.1)),
    (lambda: optimizer.RAdam(0.1, beta1=0.5, beta2=0.9), radam(0.1, 0.5, 0.9)),
    (lambda: optimizer.Lion(0.1), lion(0.1)),
    (lambda: optimizer.Lion(0.1, beta1=0.5, beta2=0.8, weight_decay=0.3), lion(0.1, 0.5, 0.8, 0.3)),
    (lambda: optimizer.Adamax(0.1), adamax(0.1)),
    (lambda: optimizer.Adamax(0.1, beta1=0.5, beta2=0.75), adamax(0.1, 0.5, 0.75)),
    (lambda: optimizer.Adagrad(0.1), adagrad(0.1, 0.0)),
    (lambda: optimizer.Adagrad(0.1, epsilon=0.1, initial_accumulator_value=0.5), adagrad(0.1, 0.5, epsilon=0.1)),
    (lambda: optimizer.DecayedAdagrad(0.1), adagrad(0.1, 0.0, 0.95, 0.05)),
    (lambda: optimizer.DecayedAdagrad(0.1, decay=0.5, epsilon=0.1), adagrad(0.1, 0.0, 0.5, 0.5, 0.1)),
    (lambda: optimizer.Adadelta(0.1), adadelta(0.1, 1e-6, 0.95)),
    (lambda: optimizer.Adadelta(1.0, epsilon=0.1, rho=0.5), adadelta(1.0, 0.1, 0.5)),
    (lambda: optimizer.RMSProp(0.1), rmsprop(0.1, 0.95, 1e-6, 0.0, False)),
    (lambda: optimizer.RMSProp(0.1, 0.5, 0.1, 0.9), rmsprop(0.1, 0.5, 0.1, 0.9, False)),
    (lambda: optimizer.RMSProp(0.1, 0.5, 0.1, 0.9, centered=True), rmsprop(0.1, 0.5, 0.1, 0.9, True)),
    (lambda: optimizer.Ftrl(0.1), ftrl(0.1, 0.0, 0.0, -0.5)),
    (lambda: optimizer.Ftrl(0.1, l1=5.0, l2=0.5), ftrl(0.1, 5.0, 0.5, -0.5)),
    (lambda: optimizer.Ftrl(0.1, l1=0.5, lr_power=-0.75), ftrl(0.1, 0.5, 0.0, -0.75)),
    (lambda: optimizer.LarsMomentum(0.1, 0.9), lars(0.1, 0.9, 0.001, 0.0005)),
    (lambda: optimizer.LarsMomentum(0.1, 0.9, lars_coeff=0.5, lars_weight_decay=0.2), lars(0.1, 0.9, 0.5, 0.2)),
    (lambda: optimizer.LarsMomentum(0.02, 0.9, exclude_from_weight_decay=["w"]), lars(0.02, 0.9, 0.001, 0.0)),
]


@each(("make", "after"), NUMBERS, ids=range(len(NUMBERS)))
def test_numbers(make: Callable[[], optimizer.Optimizer], after: Callable[[int], Array]) -> None:
    make().minimize(linear())
    for steps in (1, 5):
        np.testing.assert_allclose(train(steps), after(steps), rtol=1e-6)


def test_float32_follows_float64() -> None:
    optimizer.Adam(0.1).minimize(linear(dtype="float32"))
    np.testing.assert_allclose(train(5, dtype="float32"), adam(0.1)(5), rtol=1e-4)


def test_ops_and_roles(programs: fluid.Program) -> None:
    loss = linear()
    ops, pairs = optimizer.Momentum(0.1, 0.9, regularization=regularizer.L2Decay(0.1)).minimize(loss)
    assert [op.type for op in ops] == ["momentum"]
    assert [(param.name, grad.name) for param, grad in pairs] == [("w", "w@GRAD")]
    (op,) = ops
    assert op.input("Param") == op.output("ParamOut") == ["w"]
    assert op.input("Velocity") == op.output("VelocityOut") == ["w_velocity_0"]
    assert op.input("LearningRate") == ["learning_rate_0"]
    update = [op for op in programs.global_block().ops if op.role & OpRole.OPTIMIZE]
    assert [op.type for op in update] == ["scale", "sum", "momentum"]
    assert update[1].input("X")[0] == "w@GRAD" and op.input("Grad") == update[1].output("Out")
    assert all(op.attr(OpRole.VARS)[0] == "w" for op in update)
    assert op.user_frame is not None and op.user_frame[0] == __file__
    (made,) = [op for op in programs.global_block().ops if loss.name in op.output_arg_names]
    assert made.role & OpRole.LOSS
    programs.verify()
    fluid.default_startup_program().verify()
    for name in ("learning_rate_0", "w_velocity_0"):
        assert programs.global_block().var(name).persistable
        assert fluid.default_startup_program().global_block().has_var(name)


STATES: list[tuple[Callable[[], optimizer.Optimizer], dict[str, str]]] = [
    (lambda: optimizer.AdamW(0.1), {"Moment1": "moment1", "Moment2": "moment2", "Beta1Pow": "beta1_pow_acc"}),
    (lambda: optimizer.Lamb(0.1), {"Moment1": "moment1", "Moment2": "moment2", "Beta2Pow": "beta2_pow_acc"}),
    (lambda: optimizer.Adamax(0.1), {"Moment": "moment", "InfNorm": "inf_norm", "Beta1Pow": "beta1_pow_acc"}),
    (lambda: optimizer.Adagrad(0.1), {"Moment": "moment"}),
    (lambda: optimizer.DecayedAdagrad(0.1), {"Moment": "moment"}),
    (lambda: optimizer.Adadelta(0.1), {"AvgSquaredGrad": "_avg_squared_grad", "AvgSquaredUpdate": "_avg_squared_update"}),
    (lambda: optimizer.RMSProp(0.1), {"Moment": "momentum", "MeanSquare": "mean_square", "MeanGrad": "mean_grad"}),
    (lambda: optimizer.Ftrl(0.1), {"SquaredAccumulator": "squared", "LinearAccumulator": "linear"}),
    (lambda: optimizer.LarsMomentum(0.1, 0.9), {"Velocity": "velocity"}),
]


@each(("make", "state"), STATES, ids=range(len(STATES)))
def test_names_of_states(
    make: Callable[[], optimizer.Optimizer], state: dict[str, str], programs: fluid.Program, tmp_path: Any
) -> None:
    """State variables have the names of Fluid 1.6 and are initialized by the startup program; a training continues the same after
    a save."""
    ops, _ = make().minimize(linear())
    op, *_ = ops
    assert {slot: op.input(slot) for slot in state} == {slot: [f"w_{name}_0"] for slot, name in state.items()}
    for name in state.values():
        assert programs.global_block().var(f"w_{name}_0").persistable
        assert fluid.default_startup_program().global_block().has_var(f"w_{name}_0")
    assert all(op.role & OpRole.OPTIMIZE for op in programs.global_block().ops if "w" in op.output_arg_names)
    programs.verify()
    executor, scopes = fluid.Executor(), [fluid.Scope(), fluid.Scope()]
    executor.run(fluid.default_startup_program(), scope=scopes[0])
    executor.run(feed={"x": ROWS}, scope=scopes[0])
    with fluid.scope_guard(scopes[0]):
        fluid.io.save_persistables(executor, str(tmp_path))
    with fluid.scope_guard(scopes[1]):
        fluid.io.load_persistables(executor, str(tmp_path))
    for scope in scopes:
        executor.run(feed={"x": ROWS}, scope=scope)
    first, second = (np.array(scope.find_var("w").get_tensor()) for scope in scopes)
    assert np.array_equal(first, second)
    np.testing.assert_array_equal(first, train(2))


def test_no_gradient_leaves_ftrl_at_zero_not_nan() -> None:
    """Where gradients were always 0, Ftrl's quotient is 0 / 0."""
    w = layers.create_parameter([2], "float64", attr=fluid.ParamAttr("w", fluid.initializer.Constant(3.0)))
    optimizer.Ftrl(0.1).minimize(layers.reduce_sum(w * layers.assign(np.array([1.0, 0.0]))))
    executor, scope = fluid.Executor(), fluid.Scope()
    executor.run(fluid.default_startup_program(), scope=scope)
    executor.run(scope=scope)
    found = np.array(scope.find_var("w").get_tensor())
    assert found[1] == 0 and np.isfinite(found).all()


def test_lars_of_parameters_without_size() -> None:
    """A parameter of zeros takes the learning rate as it is."""
    w = layers.create_parameter([2], "float64", attr=fluid.ParamAttr("w", fluid.initializer.Constant(0.0)))
    optimizer.LarsMomentum(0.1, 0.9).minimize(layers.reduce_sum(w * layers.assign(np.array([1.0, 2.0]))))
    executor, scope = fluid.Executor(), fluid.Scope()
    executor.run(fluid.default_startup_program(), scope=scope)
    executor.run(scope=scope)
    np.testing.assert_allclose(np.array(scope.find_var("w").get_tensor()), [-0.1, -0.2], rtol=1e-6)


def test_a_test_clone_does_not_train(programs: fluid.Program) -> None:
    optimizer.SGD(0.1, grad_clip=clip.GradientClipByGlobalNorm(1.0)).minimize(linear())
    assert [op.type for op in programs.clone(for_test=True).global_block().ops] == ["mul", "square", "mean"]


def test_backward_and_apply_gradients_apart() -> None:
    loss = linear()
    sgd_optimizer = optimizer.SGD(0.05)
    pairs = sgd_optimizer.backward(loss)
    doubled = [(param, layers.scale(grad, 2.0)) for param, grad in pairs if grad is not None]
    sgd_optimizer.apply_gradients(doubled)
    np.testing.assert_allclose(train(3), sgd(0.1)(3), rtol=1e-6)


def test_programs_that_are_not_the_default(programs: fluid.Program) -> None:
    main, startup = fluid.Program(), fluid.Program()
    with fluid.program_guard(main, startup):
        loss = linear()
    optimizer.Adam(0.1).minimize(loss, startup_program=startup)
    assert not programs.global_block().ops and not fluid.default_startup_program().global_block().ops
    assert main.global_block().ops[-1].type == "adam"
    assert startup.global_block().has_var("w_moment1_0")


def test_one_optimizer_for_two_programs() -> None:
    shared = optimizer.Momentum(0.1, 0.9)
    for _ in range(2):
        main, startup = fluid.Program(), fluid.Program()
        with fluid.program_guard(main, startup), fluid.unique_name.guard():
            shared.minimize(linear())
        assert main.global_block().has_var("w_velocity_0") and startup.global_block().has_var("w_velocity_0")
        assert shared._global_learning_rate(main) is main.global_block().var("learning_rate_0")


def test_parameter_list_and_no_grad_set() -> None:
    a = linear(name="a")
    total = layers.elementwise_add(a, layers.mean(layers.create_parameter([2], "float64", name="b")))
    assert [param.name for param, _ in optimizer.SGD(0.1, parameter_list=["b"]).backward(total)] == ["b"]
    _, pairs = optimizer.SGD(0.1).minimize(total, parameter_list=["b"])
    assert [param.name for param, _ in pairs] == ["b"]
    _, pairs = optimizer.SGD(0.1).minimize(total, no_grad_set={"b"})
    assert [param.name for param, _ in pairs] == ["a"]


ALONE = [getattr(optimizer, name) for name in optimizer.__all__ if name.endswith("Optimizer")]
ALONE = [kind for kind in ALONE if issubclass(kind, optimizer.Optimizer) and kind.type]


@each("kind", ALONE)
def test_defaults_train(kind: type[optimizer.Optimizer]) -> None:
    """An optimizer with its default arguments is taken by its op, in a program and in eager mode."""
    needed = {"learning_rate": 0.1, "momentum": 0.9, "rampup_begin_step": 0}
    parameters = inspect.signature(kind).parameters.values()
    given = {p.name: needed[p.name] for p in parameters if p.default is p.empty and p.name in needed}
    kind(**given).minimize(linear(dtype="float32"))
    assert np.isfinite(train(2, dtype="float32")).all()
    with dygraph.guard(fluid.CPUPlace()):
        weight = dygraph.Parameter(FIRST.astype("float32"))
        layers.mean(layers.square(layers.matmul(dygraph.to_variable(ROWS.astype("float32")), weight))).backward()
        kind(parameter_list=[weight], **given).step()
        assert np.isfinite(weight.numpy()).all() and (weight.numpy() != FIRST).any()


def test_parameters_that_do_not_train() -> None:
    loss = linear(fluid.ParamAttr(trainable=False))
    with pytest.warns(UserWarning, match=r"there is nothing to optimize.*explain_gradient") as told:
        ops, _ = optimizer.Adam(0.1, grad_clip=fluid.clip.GradientClipByGlobalNorm(1.0)).minimize(loss)
    assert ops == [] and told[0].filename == __file__


# ------------------------------------------------------------------------------------------------------ learning rates
def test_learning_rate_of_a_parameter(programs: fluid.Program) -> None:
    optimizer.SGD(0.1).minimize(linear(fluid.ParamAttr(learning_rate=0.5)))
    assert [op.type for op in programs.global_block().ops if op.role & OpRole.OPTIMIZE] == ["scale", "sgd"]
    np.testing.assert_allclose(train(2), sgd(0.05)(2), rtol=1e-6)


def test_learning_rate_variable() -> None:
    loss = linear()
    rate = layers.create_global_var([1], 0.05, "float64", persistable=True, name="rate")
    ops, _ = optimizer.SGD(rate).minimize(loss)
    assert ops[0].input("LearningRate") == ["rate"]
    np.testing.assert_allclose(train(2), sgd(0.05)(2), rtol=1e-6)
    with (
        fluid.program_guard(fluid.Program(), fluid.Program()),
        pytest.raises(ProgramError, match="rate belongs to another program"),
    ):
        optimizer.SGD(rate).minimize(linear())


def test_wrong_arguments() -> None:
    with pytest.raises(FluidTypeError, match=r"learning_rate should be a number or a Variable, not '0\.1'"):
        optimizer.SGD("0.1")  # type: ignore[arg-type]
    with pytest.raises(FluidTypeError, match="momentum should be a number, not 'much'"):
        optimizer.Momentum(0.1, "much")  # type: ignore[arg-type]
    with pytest.raises(FluidTypeError, match="regularization should be an L1Decay or L2Decay"):
        optimizer.SGD(0.1, regularization=0.1)  # type: ignore[arg-type]
    with pytest.raises(FluidTypeError, match="the loss should be a Variable, not float"):
        optimizer.SGD(0.1).minimize(3.0)  # type: ignore[arg-type]
    with pytest.raises(FluidError, match="a loss has one element"):
        optimizer.SGD(0.1).minimize(layers.mul(fluid.data("x", [None, 3]), layers.create_parameter([3, 2], "float32")))


# ------------------------------------------------------------------------------------------------- decay and clipping
def test_a_parameters_own_decay_comes_first() -> None:
    optimizer.SGD(0.05, regularization=regularizer.L2Decay(9.0)).minimize(
        linear(fluid.ParamAttr(regularizer=regularizer.L1Decay(0.3)))
    )
    np.testing.assert_allclose(train(2), sgd(0.05, lambda w: gradient(w) + 0.3 * np.sign(w))(2), rtol=1e-6)


def two() -> tuple[Variable, Callable[[], list[Array]]]:
    """A loss with parameters a and b, whose gradients are [3, 0] and [0, 4]; and their values after a step of rate 1."""
    parts = []
    for name, weight in (("a", [3.0, 0.0]), ("b", [0.0, 4.0])):
        attr = fluid.ParamAttr(name, fluid.initializer.Constant(0.0))
        param = layers.create_parameter([2], "float64", attr=attr)
        parts.append(layers.reduce_sum(layers.elementwise_mul(param, layers.assign(np.array(weight)))))
    loss = layers.sum(parts)

    def after() -> list[Array]:
        executor, scope = fluid.Executor(fluid.CPUPlace()), fluid.Scope()
        executor.run(fluid.default_startup_program(), scope=scope)
        executor.run(scope=scope)
        return [-np.asarray(scope.find_var(name).get_tensor()) for name in "ab"]

    return loss, after


@each(
    ("way", "a", "b"),
    [
        (clip.GradientClipByValue(2.0), [2, 0], [0, 2]),
        (clip.GradientClipByValue(max=1.0, min=0.5), [1, 0.5], [0.5, 1]),
        (clip.GradientClipByNorm(3.5), [3, 0], [0, 3.5]),
        (clip.GradientClipByGlobalNorm(2.5), [1.5, 0], [0, 2]),
        (clip.GradientClipByGlobalNorm(10.0), [3, 0], [0, 4]),
    ],
)
@each("by", ["set_gradient_clip", "grad_clip", "minimize"])
def test_clips(way: Any, a: list[float], b: list[float], by: str) -> None:
    loss, after = two()
    if by == "set_gradient_clip":
        clip.set_gradient_clip(way)
    optimizer.SGD(1.0, grad_clip=way if by == "grad_clip" else None).minimize(loss, grad_clip=way if by == "minimize" else None)
    for got, want in zip(after(), (a, b), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-6)


def test_clips_of_some_parameters_and_decay_after_clipping() -> None:
    loss, after = two()
    clip.set_gradient_clip(clip.GradientClipByNorm(1.0), param_list=["a"])
    optimizer.SGD(1.0, regularization=regularizer.L2Decay(5.0)).minimize(loss)
    a, b = after()
    np.testing.assert_allclose(a, [1, 0], rtol=1e-6)
    np.testing.assert_allclose(b, [0, 4], rtol=1e-6)


def test_groups_of_global_norms() -> None:
    loss, after = two()
    clip.set_gradient_clip(clip.GradientClipByGlobalNorm(1.5, "first"), param_list=["a"])
    clip.set_gradient_clip(clip.GradientClipByGlobalNorm(2.0, "second"), param_list=["b"])
    optimizer.SGD(1.0).minimize(loss)
    a, b = after()
    np.testing.assert_allclose([a[0], b[1]], [1.5, 2.0], rtol=1e-6)


def test_clip_errors(programs: fluid.Program) -> None:
    loss, _ = two()
    clip.set_gradient_clip(clip.GradientClipByGlobalNorm(1.0), param_list=["a"])
    clip.set_gradient_clip(clip.GradientClipByGlobalNorm(2.0), param_list=["b"])
    with pytest.raises(ProgramError, match=r"of a and b are clipped together but by different norms, 1\.0 and 2\.0"):
        optimizer.SGD(1.0).minimize(loss)
    with pytest.raises(FluidTypeError, match="takes one of the GradientClipBy"):
        clip.set_gradient_clip(2.0)  # type: ignore[arg-type]
    with pytest.raises(FluidTypeError, match="is not a parameter"):
        clip.set_gradient_clip(clip.GradientClipByNorm(1.0), param_list=[loss.name])


def test_error_clip(programs: fluid.Program) -> None:
    x = fluid.data("x", [None, 3], "float64")
    w = layers.create_parameter([3, 1], "float64", attr=fluid.ParamAttr("w", fluid.initializer.NumpyArrayInitializer(FIRST)))
    out = layers.mul(x, w)
    out.error_clip = clip.ErrorClipByValue(1.0)
    optimizer.SGD(0.05).minimize(layers.mean(layers.square(out)))
    want = FIRST - 0.05 * ROWS.T @ np.clip(ROWS @ FIRST, -1, 1)
    np.testing.assert_allclose(train(1), want, rtol=1e-6)
    (op,) = [op for op in programs.global_block().ops if op.type == "clip"]
    assert op.role == OpRole.BACKWARD


def error_clipped(w: Variable) -> Variable:
    """``100 * w``, whose gradient is 1 where it would be 100 times as much."""
    inner = w * 1.0
    inner.error_clip = clip.ErrorClipByValue(1.0)
    return inner * 100.0


def in_branch(w: Variable) -> Variable:
    return layers.cond(layers.reduce_sum(w) > 0.0, lambda: layers.reduce_sum(error_clipped(w)), lambda: layers.reduce_sum(w))


def in_loop(w: Variable) -> Variable:
    start = [layers.zeros([1], "int64"), layers.zeros([1], "float64")]
    _, total = layers.while_loop(lambda i, s: i < 1, lambda i, s: [i + 1, s + layers.reduce_sum(error_clipped(w))], start)
    return total


def in_step(w: Variable) -> Variable:
    sequence = layers.reshape(w, [1, 3, 1])
    rnn = layers.StaticRNN()
    with rnn.step():
        rnn.step_output(error_clipped(rnn.step_input(sequence)))
    return layers.reduce_sum(rnn())


@each("build", [in_branch, in_loop, in_step])
def test_error_clip_in_sub_block(build: Callable[[Variable], Variable]) -> None:
    w = layers.create_parameter([3, 1], "float64", attr=fluid.ParamAttr("w", fluid.initializer.NumpyArrayInitializer(FIRST)))
    _, ((_, grad),) = optimizer.SGD(0.0).minimize(layers.mean(build(w)))
    exe = fluid.Executor()
    with fluid.scope_guard(fluid.Scope()):
        exe.run(fluid.default_startup_program())
        (found,) = exe.run(fetch_list=[grad])
    np.testing.assert_array_equal(found, np.ones((3, 1)))


def test_every_pair_keeps_its_place() -> None:
    """Clips give back the pairs in the order they came, those without gradient too."""
    loss, _ = two()
    pairs = optimizer.SGD(1.0).backward(loss)
    spare = layers.create_parameter([1], "float64", name="spare")
    assert isinstance(spare, Parameter)
    found = clip.GradientClipByNorm(1.0)([pairs[0], (spare, None), pairs[1]])
    assert [param.name for param, _ in found] == ["a", "spare", "b"]
    assert found[1][1] is None and found[0][1] is not None


# ------------------------------------------------------------------------------------------------ what only ops can do
UPDATES = ["sgd", "momentum", "adam", "adamw", "lamb", "adagrad", "decayed_adagrad", "adadelta", "adamax", "rmsprop", "ftrl"]
UPDATES += ["lion", "nadam", "radam"]


def update_of(op_type: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Inputs and attributes of an update op, from its samples."""
    sample = OPS[op_type][0]
    return {slot: np.array(value) for slot, value in sample.inputs.items()}, dict(sample.attrs)


@each("op_type", [name for name in UPDATES if "MasterParam" in registry.get(name).inputs])
def test_master_parameters(op_type: str) -> None:
    """With `multi_precision` the more precise copy is updated, and the parameter is what that rounds to."""
    inputs, attrs = update_of(op_type)
    want = apply_op(op_type, inputs, attrs)["ParamOut"]
    inputs = {**inputs, "MasterParam": inputs["Param"].copy(), "Param": np.zeros_like(inputs["Param"], "float32")}
    found = apply_op(op_type, inputs, {**attrs, "multi_precision": True})
    np.testing.assert_allclose(found["MasterParamOut"], want, rtol=1e-14)
    assert found["ParamOut"].dtype == np.float32
    assert np.array_equal(found["ParamOut"], found["MasterParamOut"].astype("float32"))


@each("op_type", ["adam", "adamw", "lamb"])
def test_skipped_updates(op_type: str) -> None:
    """Where SkipUpdate holds True nothing changes, and with False everything does."""
    inputs, attrs = update_of(op_type)
    outputs = {slot: slot.removesuffix("Out") for slot in ("ParamOut", "Moment1Out", "Moment2Out", "Beta1PowOut", "Beta2PowOut")}
    for skip in (True, False):
        found = apply_op(op_type, {**inputs, "SkipUpdate": np.array([skip])}, attrs)
        assert all(np.array_equal(found[slot], inputs[source]) == skip for slot, source in outputs.items())


@each("op_type", ["adam", "adamw"])
def test_betas_given_as_tensors(op_type: str) -> None:
    inputs, attrs = update_of(op_type)
    numbers = {"beta1": 0.5, "beta2": 0.75, "epsilon": 0.01}
    tensors = {f"{name.capitalize()}Tensor": np.array([number]) for name, number in numbers.items()}
    want, found = apply_op(op_type, inputs, {**attrs, **numbers}), apply_op(op_type, {**inputs, **tensors}, attrs)
    assert all(np.array_equal(found[slot], want[slot]) for slot in want)


@each("op_type", UPDATES)
def test_shapes_that_do_not_fit(op_type: str) -> None:
    inputs, attrs = update_of(op_type)
    inputs["Grad"] = np.zeros((4, 3))
    with pytest.raises(InferenceError, match=rf"{op_type}: Grad .*\[4, 3\] should have the shape of Param .*\[3, 4\]"):
        apply_op(op_type, inputs, attrs)


def test_lars_arguments_that_do_not_fit() -> None:
    sample = OPS["lars_momentum"][0]
    inputs = {slot: [np.array(item) for item in value] for slot, value in sample.inputs.items()}
    with pytest.raises(InferenceError, match=r"lars_weight_decay should hold 1 number or 1, not \[0\.1, 0\.2, 0\.3\]"):
        apply_op("lars_momentum", inputs, {"mu": 0.9, "lars_weight_decay": [0.1, 0.2, 0.3]})
    with pytest.raises(InferenceError, match="there are 1 tensors in Param but 2 in Grad"):
        apply_op("lars_momentum", {**inputs, "Grad": inputs["Grad"] * 2}, {"mu": 0.9})
    with pytest.raises(InferenceError, match="should have the shape of Param"):
        apply_op("lars_momentum", {**inputs, "Grad": [np.zeros((4, 3))]}, {"mu": 0.9})


def test_rmsprop_without_the_mean_of_gradients() -> None:
    inputs, _ = update_of("rmsprop")
    assert "MeanGradOut" not in apply_op("rmsprop", inputs, {})
    with pytest.raises(InferenceError, match="a centered update needs MeanGrad"):
        apply_op("rmsprop", inputs, {"centered": True})


def test_optimizers_are_looked_into_as_then() -> None:
    """`minimize` returns all that updates, and what an optimizer keeps is found by its name and the parameter's."""
    kinds = {
        optimizer.SGD(0.1): ([], ["sgd"]),
        optimizer.Momentum(0.1, 0.9): (["velocity"], ["momentum"]),
        optimizer.Adagrad(0.1): (["moment"], ["adagrad"]),
        optimizer.Adam(0.1): (["moment1", "moment2", "beta1_pow", "beta2_pow"], ["adam"]),
        optimizer.Adamax(0.1): (["moment", "inf_norm", "beta1_pow"], ["adamax", "scale"]),
        optimizer.Adadelta(0.1): (["avg_squared_grad", "avg_squared_update"], ["adadelta"]),
        optimizer.RMSProp(0.1): (["momentum", "mean_square", "mean_grad"], ["rmsprop"]),
        optimizer.Ftrl(0.1): (["squared", "linear"], ["ftrl"]),
    }
    for kind, (names, types) in kinds.items():
        with fluid.program_guard(fluid.Program(), fluid.Program()):
            w = layers.create_parameter([3], "float32", attr=fluid.ParamAttr(name="w", learning_rate=0.5))
            assert kind._accumulators == {}
            ops, _ = kind.minimize(layers.mean(w))
            block = fluid.default_main_program().global_block()
            assert [op.type for op in ops] == ["scale", *types] and ops == block.ops[-len(ops) :]
        kept = kind._accumulators
        assert len(kept) == len(names)
        for name in names:
            accumulator = kept[getattr(kind, f"_{name}_acc_str")]["w"]
            assert block.vars[accumulator.name] is accumulator and list(kept[getattr(kind, f"_{name}_acc_str")]) == ["w"]
