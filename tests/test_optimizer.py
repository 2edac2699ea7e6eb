"""Optimizers, weight decay and clipping: the ops they append, and their numbers against plain numpy."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import fluid
from fluid import clip, layers, optimizer, regularizer
from fluid.errors import FluidError, FluidTypeError, ProgramError
from fluid.framework import OpRole, Parameter, Variable

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


def adam(rate: float, beta1: float = 0.9, beta2: float = 0.999, epsilon: float = 1e-8) -> Callable[[int], Array]:
    def after(steps: int) -> Array:
        w, m, v = FIRST.copy(), np.zeros_like(FIRST), np.zeros_like(FIRST)
        for t in range(1, steps + 1):
            g = gradient(w)
            m = beta1 * m + (1 - beta1) * g
            v = beta2 * v + (1 - beta2) * g * g
            root = np.sqrt(1 - beta2**t)
            w = w - rate * root / (1 - beta1**t) * m / (np.sqrt(v) + epsilon * root)
        return w

    return after


NUMBERS: list[tuple[Callable[[], optimizer.Optimizer], Callable[[int], Array]]] = [
    (lambda: optimizer.SGD(0.05), sgd(0.05)),
    (lambda: optimizer.SGDOptimizer(learning_rate=0.05), sgd(0.05)),
    (lambda: optimizer.Momentum(0.02, 0.9), momentum(0.02, 0.9, False)),
    (lambda: optimizer.Momentum(0.02, 0.9, use_nesterov=True), momentum(0.02, 0.9, True)),
    (lambda: optimizer.Adam(0.1), adam(0.1)),
    (lambda: optimizer.Adam(0.1, beta1=0.5, beta2=0.8, epsilon=0.1), adam(0.1, 0.5, 0.8, 0.1)),
    (lambda: optimizer.SGD(0.05, regularizer.L2Decay(0.3)), sgd(0.05, lambda w: gradient(w) + 0.3 * w)),
    (lambda: optimizer.SGD(0.05, regularizer.L1Decay(0.3)), sgd(0.05, lambda w: gradient(w) + 0.3 * np.sign(w))),
    (lambda: optimizer.SGD(0.05, grad_clip=clip.GradientClipByValue(2.0)), sgd(0.05, lambda w: gradient(w).clip(-2, 2))),
]


@pytest.mark.parametrize(("make", "after"), NUMBERS, ids=range(len(NUMBERS)))
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


def test_parameters_that_do_not_train() -> None:
    loss = linear(fluid.ParamAttr(trainable=False))
    with pytest.raises(ProgramError, match=r"there is nothing to optimize.*explain_gradient"):
        optimizer.SGD(0.1).minimize(loss)


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


@pytest.mark.parametrize(
    ("way", "a", "b"),
    [
        (clip.GradientClipByValue(2.0), [2, 0], [0, 2]),
        (clip.GradientClipByValue(max=1.0, min=0.5), [1, 0.5], [0.5, 1]),
        (clip.GradientClipByNorm(3.5), [3, 0], [0, 3.5]),
        (clip.GradientClipByGlobalNorm(2.5), [1.5, 0], [0, 2]),
        (clip.GradientClipByGlobalNorm(10.0), [3, 0], [0, 4]),
    ],
)
@pytest.mark.parametrize("by", ["set_gradient_clip", "grad_clip", "minimize"])
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


def test_every_pair_keeps_its_place() -> None:
    """Clips give back the pairs in the order they came, those without gradient too."""
    loss, _ = two()
    pairs = optimizer.SGD(1.0).backward(loss)
    spare = layers.create_parameter([1], "float64", name="spare")
    assert isinstance(spare, Parameter)
    found = clip.GradientClipByNorm(1.0)([pairs[0], (spare, None), pairs[1]])
    assert [param.name for param, _ in found] == ["a", "spare", "b"]
    assert found[1][1] is None and found[0][1] is not None
