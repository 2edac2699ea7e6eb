"""In-place updates by native code: old values are read before they are overwritten."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import fluid
from fluid import layers


def updated(native: str, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Persistable variables after two steps of Adam, whose outputs are written down powers first, as Paddle does."""
    monkeypatch.setenv("FLUID_NATIVE", native)
    main, startup, scope = fluid.Program(), fluid.Program(), fluid.Scope()
    startup.random_seed = 1
    with fluid.program_guard(main, startup), fluid.unique_name.guard(), fluid.scope_guard(scope):
        x = layers.data("x", [6])
        loss = layers.mean(layers.square(layers.fc(layers.fc(x, 8, act="tanh"), 4)))
        fluid.optimizer.Adam(0.01, beta1=0.8, beta2=0.95).minimize(loss)
        for op in main.global_block().ops:
            if op.type == "adam":
                op.outputs = dict(sorted(op.outputs.items()))
        executor = fluid.Executor()
        executor.run(startup)
        for _ in range(2):
            executor.run(main, {"x": np.linspace(-1, 1, 60, dtype="float32").reshape(10, 6)}, [])
        names = [var.name for var in main.global_block().vars.values() if var.persistable]
        return {name: np.array(scope.find_var(name).get_tensor()) for name in names}


def test_powers_are_raised_behind_the_parameters_that_read_them(monkeypatch: pytest.MonkeyPatch) -> None:
    expected = updated("0", monkeypatch)
    for name, value in updated("1", monkeypatch).items():
        np.testing.assert_allclose(value, expected[name], rtol=1e-4, atol=1e-6, err_msg=name)


def test_threads_that_are_added_later_find_room(monkeypatch: pytest.MonkeyPatch) -> None:
    """A plan that was bound for one thread gives the same bits when there are more."""
    monkeypatch.setenv("FLUID_NATIVE", "1")
    main, scope = fluid.Program(), fluid.Scope()
    with fluid.program_guard(main, fluid.Program()), fluid.unique_name.guard():
        a, b = (layers.data(name, [256, 256], append_batch_size=False) for name in "ab")
        product = layers.matmul(layers.tanh(a), b, transpose_y=True)
    random = np.random.default_rng(0)
    feed = {name: random.standard_normal((256, 256), np.float32) for name in "ab"}
    executor, count = fluid.Executor(), fluid.get_num_threads()
    try:
        results = []
        for threads in (1, 4, 2):
            fluid.set_num_threads(threads)
            results.append(executor.run(main, feed, [product], scope=scope)[0])
    finally:
        fluid.set_num_threads(count)
    assert results[0].tobytes() == results[1].tobytes() == results[2].tobytes()
    np.testing.assert_allclose(results[0], np.tanh(feed["a"]) @ feed["b"].T, rtol=1e-4, atol=1e-4)
