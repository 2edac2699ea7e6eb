"""Updates whose outputs read what the others overwrite run natively, and as numpy computes them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from checks import each

import fluid
from fluid import layers

pytest.importorskip("llvmlite")

OPTIMIZERS: dict[str, Callable[[], Any]] = {
    "momentum": lambda: fluid.optimizer.Momentum(0.1, 0.9, use_nesterov=True),
    "ftrl": lambda: fluid.optimizer.Ftrl(0.1, l1=0.01, l2=0.02),
    "ftrl power": lambda: fluid.optimizer.Ftrl(0.1, l1=0.01, lr_power=-0.4),
    "lars": lambda: fluid.optimizer.LarsMomentum(0.1, 0.9),
}


@each("name", OPTIMIZERS)
@pytest.mark.parametrize("width", [3, 70, 1100])
def test_parameters_and_moments(name: str, width: int) -> None:
    main, startup = fluid.Program(), fluid.Program()
    main.random_seed = startup.random_seed = 5
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        x = fluid.data("x", [None, 5], "float64")
        loss = layers.mean(layers.square(layers.fc(layers.fc(x, width, act="tanh"), 1)))
        OPTIMIZERS[name]().minimize(loss)
        for op in main.global_block().ops:  # weight decay makes the velocity depend on the parameter
            if op.type == "momentum":
                op.attrs |= {"regularization_method": "l2_decay", "regularization_coeff": 0.01}
    executor, scopes = fluid.Executor(), [fluid.Scope(), fluid.Scope()]
    for scope in scopes:
        executor.run(startup, scope=scope)
    feed = {"x": np.random.default_rng(0).standard_normal([4, 5])}
    assert "on numpy: none" in str(executor.plan(main, feed, [loss], scope=scopes[0]))
    for _ in range(5):
        executor.run(main, feed, [loss], scope=scopes[0])
        executor.interpret(main, feed, [loss], scope=scopes[1])
    for variable in main.global_block().vars.values():
        if variable.persistable:
            fast, reference = (np.array(scope.array(variable.name)) for scope in scopes)
            np.testing.assert_allclose(fast, reference, rtol=1e-9, atol=1e-10, err_msg=variable.name)
