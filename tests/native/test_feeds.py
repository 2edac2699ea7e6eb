"""Feeds that native code reads where they are."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import fluid
from fluid import layers

SHAPE = (256, 128)


def _trained(feeds: list[Any], native: str, monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The loss of each step and the parameters after it; a feed of None stands for the array of one of them."""
    monkeypatch.setenv("FLUID_NATIVE", native)
    main, startup, scope = fluid.Program(), fluid.Program(), fluid.Scope()
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        x = fluid.data("x", SHAPE)
        initializer = fluid.initializer.Constant(0.5)
        w = layers.create_parameter(list(SHAPE), "float32", "w", default_initializer=initializer)
        v = layers.create_parameter([SHAPE[1]] * 2, "float32", "v", default_initializer=initializer)
        loss = layers.reduce_mean(layers.square(layers.elementwise_mul(layers.matmul(x, v), w)))  # x is read after w is updated
        fluid.optimizer.SGD(0.1).minimize(loss)
    executor = fluid.Executor(fluid.CPUPlace())
    executor.run(startup, scope=scope)
    results = []
    for feed in feeds:
        value = scope.array("w") if feed is None else feed.copy("K") if type(feed) is np.ndarray else feed
        results.append(executor.run(main, {"x": value}, [loss], scope=scope)[0])
        if type(value) is np.ndarray and feed is not None:
            assert np.array_equal(value, feed)
            value[...] = np.nan  # what was fed is the caller's again
        results += [scope.array(name).copy() for name in ("v", "w")]
    return results


def test_what_is_fed_is_read_in_any_layout_and_apart_from_what_is_overwritten(monkeypatch: pytest.MonkeyPatch) -> None:
    random = np.random.default_rng(0)
    plain = [random.standard_normal(SHAPE).astype(np.float32) for _ in range(3)]
    unaligned = np.frombuffer(b"\0" + plain[2].tobytes(), np.uint8)[1:].view(np.float32).reshape(SHAPE)
    feeds = [plain[0], plain[1], np.asfortranarray(plain[2]), plain[0].tolist(), None, plain[1], unaligned, plain[0][::-1], None]
    for actual, expected in zip(_trained(feeds, "1", monkeypatch), _trained(feeds, "0", monkeypatch), strict=True):
        np.testing.assert_allclose(actual, expected, rtol=2e-5, atol=1e-6)
