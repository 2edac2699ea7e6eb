"""float16 and bfloat16 at an XLAPlace: products of halves, element types of state and fetches, and losses as on numpy."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
from checks import each, fresh_programs
from test_mixed_precision import cond_loss, rnn_loss, while_loss

import fluid
from fluid import layers
from fluid.contrib.mixed_precision import decorate
from fluid.values.bfloat16 import BFLOAT16, to_bfloat16

pytest.importorskip("jax")
HALVES = {"float16": "f16", "bfloat16": "bf16"}


def net() -> Any:
    x, y = fluid.data("x", [4, 1, 8, 8]), fluid.data("y", [4, 1], "int64")
    hidden = layers.pool2d(layers.conv2d(x, 4, 3, act="relu"), 2, pool_stride=2)
    return layers.mean(layers.softmax_with_cross_entropy(layers.fc(hidden, 3), y))


def feed() -> dict[str, Any]:
    rng = np.random.default_rng(0)
    return {"x": rng.standard_normal((4, 1, 8, 8)).astype("float32"), "y": rng.integers(0, 3, (4, 1))}


@each("half", list(HALVES))
def test_products_multiply_halves_and_losses_are_those_of_numpy(half: str) -> None:
    losses = []
    for place in (fluid.CPUPlace(), fluid.XLAPlace("cpu")):
        with fresh_programs():
            main = fluid.default_main_program()
            main.random_seed = fluid.default_startup_program().random_seed = 5
            loss = net()
            decorate(
                fluid.optimizer.Momentum(0.1, 0.9), init_loss_scaling=64.0, use_dynamic_loss_scaling=True, dtype=half
            ).minimize(loss)
            fluid.Executor().run(fluid.default_startup_program())
            executor = fluid.Executor(place)
            losses.append([executor.run(feed=feed(), fetch_list=[loss])[0].item() for _ in range(4)])
            text = executor.plan(main, feed(), [loss]).to_string(calls=True)
            bad = feed()
            bad["x"][0] = np.inf
            before = {param.name: np.array(fluid.global_scope().array(param.name)) for param in main.all_parameters()}
            executor.run(feed=bad)
            for name, value in before.items():
                assert np.array_equal(np.array(fluid.global_scope().array(name)), value), name
    np.testing.assert_allclose(losses[0], losses[1], rtol=1e-3)
    products = re.findall(
        r"stablehlo\.(dot_general|convolution)\(?.*?: \(tensor<([^>]*)>, tensor<([^>]*)>\) -> tensor<([^>]*)>", text
    )
    assert [name for name, *_ in products].count("dot_general") == 3 and len(products) >= 5
    for name, one, other, result in products:
        assert one.endswith(f"x{HALVES[half]}") and other.endswith(f"x{HALVES[half]}")
        assert name == "convolution" or result.endswith("xf32")  # sums in float32


@pytest.mark.slow
@each("build", [cond_loss, rnn_loss, while_loss])
def test_blocks_of_halves_compute_what_they_do_on_numpy(build: Any) -> None:
    shape = [3, 4, 5] if build is rnn_loss else [4, 5]
    values = np.random.default_rng(1).standard_normal(shape).astype("float32")
    for half in HALVES:
        losses = []
        for place in (fluid.CPUPlace(), fluid.XLAPlace("cpu")):
            with fresh_programs():
                fluid.default_main_program().random_seed = fluid.default_startup_program().random_seed = 5
                loss = build(fluid.data("x", shape))
                decorate(fluid.optimizer.Adam(0.05), init_loss_scaling=64.0, use_dynamic_loss_scaling=True, dtype=half).minimize(
                    loss
                )
                fluid.Executor().run(fluid.default_startup_program())
                executor = fluid.Executor(place)
                losses.append([executor.run(feed={"x": values}, fetch_list=[loss])[0].item() for _ in range(4)])
        np.testing.assert_allclose(losses[0], losses[1], rtol=1e-3, atol=1e-5)


def test_bfloat16_is_kept_and_fetched() -> None:
    block = fluid.default_main_program().global_block()
    weight = block.create_var(name="w", shape=[2, 3], dtype="bfloat16", persistable=True)
    x = fluid.data("x", [2, 3], "bfloat16")
    block.append_op("elementwise_add", {"X": weight, "Y": x}, {"Out": weight}, {"axis": -1})
    total = layers.reduce_sum(layers.concat([weight, layers.transpose(layers.reshape(x, [3, 2]), [1, 0])], axis=0))
    scope, ones = fluid.global_scope(), np.ones((2, 3), "float32")
    found = []
    for place in (fluid.CPUPlace(), fluid.XLAPlace("cpu")):
        scope.put("w", to_bfloat16(ones * 1.5))
        executor = fluid.Executor(place)
        for _ in range(2):
            results = executor.run(feed={"x": ones / 256}, fetch_list=[weight, total])
        assert all(result.dtype == np.float32 for result in results)
        assert np.array(scope.array("w")).dtype == BFLOAT16
        found.append([result.tolist() for result in results])
    assert found[0] == found[1] and found[0][0] == [[1.5] * 3] * 2  # 1.5 + 1/256 rounds to 1.5


def test_a_startup_program_stores_variables_of_bfloat16() -> None:
    """A program at an XLAPlace makes a variable of bfloat16; others update it and fetch it as a tensor."""
    weight = layers.create_global_var([2, 3], 1.0, "bfloat16", persistable=True, name="w")
    layers.assign(layers.scale(weight, 2.0), weight)
    executor = fluid.Executor(fluid.XLAPlace("cpu"))
    executor.run(fluid.default_startup_program())
    assert executor.interpret(fetch_list=[weight])[0].tolist() == [[2.0] * 3] * 2
    (tensor,) = executor.run(fetch_list=[weight], return_numpy=False)
    assert (tensor.held.dtype, tensor.held.shape) == (BFLOAT16, (2, 3))
    assert executor.run(fetch_list=[weight])[0].tolist() == [[8.0] * 3] * 2
