"""Gradients of inference models: by their feeds, and without outputs that only gradients read, which an export lacks."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from checks import each

import fluid
from fluid import layers
from fluid.errors import BackwardError
from fluid.executor import Scope

X = np.random.default_rng(5).uniform(-1, 1, (2, 3, 4)).astype("float32")


def net() -> tuple[fluid.framework.Variable, fluid.framework.Variable]:
    """A feed and a loss, through ops with outputs for gradients, which exports lack."""
    x = fluid.data("x", [2, 3, 4])
    h = layers.reshape(layers.fc(x, 6, num_flatten_dims=2, act="tanh"), [2, 18])
    h = layers.transpose(layers.layer_norm(h), [1, 0])
    h = layers.squeeze(layers.unsqueeze(h, [0]), [0])
    return x, layers.reduce_mean(layers.square(layers.flatten(layers.batch_norm(h))))


def strip(program: fluid.Program) -> int:
    """Take off the outputs that only gradients read; how many."""
    count = 0
    for op in program.global_block().ops:
        for slot in [slot for slot in op.outputs if op.definition.outputs[slot].intermediate]:
            op.outputs = {other: names for other, names in op.outputs.items() if other != slot}
            count += 1
    return count


@each("name, target", [("net.pdmodel", "paddle-2.6"), ("net.json", None), ("folder", "paddle-1.6")])
def test_of_a_loaded_model_with_respect_to_what_is_fed(name: str, target: str | None, tmp_path: Path) -> None:
    x = fluid.data("x", [None, 3])
    total = layers.reduce_sum(layers.square(layers.tanh(x)))
    fluid.save_model(tmp_path / name, feeds=[x], fetches=[total], **({"target": target} if target else {}))
    model = fluid.load_model(tmp_path / name, scope=Scope())
    fed = model.program.global_block().var("x")
    assert fluid.gradients(model.fetches, [fed]) == [None]
    fed.stop_gradient = False
    (gradient,) = fluid.gradients(model.fetches, [fed])
    (value,) = fluid.Executor().run(model.program, {"x": X[0, :, :3]}, [gradient], scope=model.scope)
    np.testing.assert_allclose(value, 2 * np.tanh(X[0, :, :3]) / np.cosh(X[0, :, :3]) ** 2, rtol=1e-5)


def test_of_a_program_without_what_only_gradients_read() -> None:
    _, loss = net()
    executor = fluid.Executor()
    executor.run(fluid.default_startup_program())
    program = fluid.default_main_program()
    whole, stripped = program.clone(), program.clone()
    assert strip(stripped) >= 8
    values = []
    for each_program in (whole, stripped):
        block = each_program.global_block()
        block.var("x").stop_gradient = False
        gradients = fluid.gradients([block.var(loss.name)], [block.var("x"), block.var("fc_0.w_0")])
        values.append(executor.run(each_program, {"x": X}, gradients))
    for one, other in zip(*values, strict=True):
        np.testing.assert_array_equal(one, other)


def test_what_a_failed_gradient_added_is_taken_off_again() -> None:
    x = fluid.data("x", [2, 3])
    x.stop_gradient = False
    out = fluid.default_main_program().global_block().create_var(name="out")
    out.block.append_op("clip_by_norm", {"X": layers.reshape(x, [6])}, {"Out": out}, {"max_norm": 1.0})
    loss = layers.reduce_sum(layers.reshape(out, [3, 2]))
    assert strip(fluid.default_main_program()) == 2
    before = str(fluid.default_main_program())
    with pytest.raises(BackwardError, match="clip_by_norm is not differentiable"):
        fluid.gradients([loss], [x])
    assert str(fluid.default_main_program()) == before
