"""Mixed precision at an XLAPlace: one compiled program, without a branch."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

pytest.importorskip("jax")

import fluid

pytestmark = pytest.mark.usefixtures("quick_to_compile")

X = np.random.default_rng(0).standard_normal((8, 5), np.float32)


def net(optimizer: Any, **settings: Any) -> tuple[Any, Any]:
    """The loss of a net that is trained in mixed precision, and its optimizer."""
    x = fluid.data("x", [None, 5])
    hidden = fluid.layers.fc(x, 16, act="relu", param_attr="w", bias_attr="b")
    loss = fluid.layers.mean(fluid.layers.square(fluid.layers.fc(hidden, 3, param_attr="v")))
    decorated = fluid.contrib.mixed_precision.decorate(optimizer, **settings)
    decorated.minimize(loss)
    return loss, decorated


def started(place: Any) -> tuple[fluid.Executor, fluid.Scope]:
    executor, scope = fluid.Executor(place), fluid.Scope()
    executor.run(fluid.default_startup_program(), scope=scope)
    return executor, scope


DYNAMIC = {"init_loss_scaling": 1024.0, "use_dynamic_loss_scaling": True, "decr_every_n_nan_or_inf": 1}
OPTIMIZERS = {
    "Adam": lambda: fluid.optimizer.Adam(0.01),
    "clipped": lambda: fluid.optimizer.Momentum(0.01, 0.9, grad_clip=fluid.clip.GradientClipByGlobalNorm(1.0)),
    "decayed": lambda: fluid.optimizer.SGD(0.01, regularization=fluid.regularizer.L2Decay(0.1)),
}


@pytest.mark.parametrize("settings", [{"dtype": "bfloat16"}, {"init_loss_scaling": 64.0}, DYNAMIC])
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_a_step_is_one_program_without_a_branch(optimizer: str, settings: dict[str, Any]) -> None:
    loss, _ = net(OPTIMIZERS[optimizer](), **settings)
    _, scope = started(fluid.CPUPlace())
    plan: Any = fluid.Executor(fluid.XLAPlace()).plan(feed={"x": X}, fetch_list=[loss], scope=scope)
    text = plan.lowered().as_text()
    assert "compiled by XLA" in str(plan) and "called back" not in str(plan)
    assert "stablehlo.case" not in text and "stablehlo.if" not in text and "stablehlo.while" not in text
    half = "bf16" if settings.get("dtype") == "bfloat16" else "f16"
    assert any("dot_general" in line and f"x{half}>" in line for line in text.splitlines())


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_steps_with_infinite_gradients_change_nothing_but_the_scale(optimizer: str) -> None:
    """The state after steps with one overflow is the same as on numpy."""
    loss, decorated = net(OPTIMIZERS[optimizer](), **DYNAMIC)
    (cpu, alone), (xla, scope) = started(fluid.CPUPlace()), started(fluid.XLAPlace())
    names = sorted(alone.local_var_names())
    for name in names:
        scope.find_var(name).get_tensor().set(alone.array(name))
    scale = decorated.get_loss_scaling().name
    for step, factor in enumerate((1.0, 1e4, 1.0)):
        before = {name: np.array(scope.find_var(name).get_tensor()) for name in names}
        for executor, each in ((cpu, alone), (xla, scope)):
            executor.run(feed={"x": X * np.float32(factor)}, fetch_list=[loss], scope=each)
        for name in names:
            value = np.array(scope.find_var(name).get_tensor())
            np.testing.assert_allclose(value, alone.array(name), rtol=2e-3, atol=1e-4, err_msg=f"{name}, step {step}")
            if factor > 1 and name != scale and "steps" not in name and "learning_rate" not in name:
                assert (value == before[name]).all(), name
        assert (np.array(scope.find_var(scale).get_tensor()) < before[scale]) == (factor > 1)


def test_other_branches_stay_branches() -> None:
    """A branch of a user, which may cost much, runs only if its condition holds."""
    x = fluid.data("x", [None, 5])
    total = fluid.layers.reduce_sum(x)
    zero = fluid.layers.fill_constant([1], "float32", 0.0)
    result = fluid.layers.cond(total > zero, lambda: fluid.layers.exp(x), lambda: x)
    plan: Any = fluid.Executor(fluid.XLAPlace()).plan(feed={"x": X}, fetch_list=[result])
    assert "stablehlo.case" in plan.lowered().as_text()
