"""Gradient ops of Paddle 1.8 lack inputs that ours read: they come from the forward ops, and do not go back into files."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import fluid
from fluid import layers
from fluid.ir.program import Program
from fluid.proto import ProgramDesc
from fluid.transform.op_versions import convert

UNLISTED = {
    "leaky_relu_grad": {"X"},
    "elu_grad": {"Out"},
    "stack_grad": {"X"},
    "group_norm_grad": {"X", "Mean"},
    "batch_norm_grad": {"MeanOut", "VarianceOut"},
}
"""What Paddle 1.8 leaves out of its gradient ops."""


def as_paddle_writes(program: Program) -> bytes:
    """The program as bytes, with the gradient ops of Paddle 1.8."""
    message = ProgramDesc.FromString(program.serialize_to_string())
    for op in (op for block in message.blocks for op in block.ops):
        for slot in [slot for slot in op.inputs if slot.parameter.decode() in UNLISTED.get(op.type.decode(), ())]:
            op.inputs.remove(slot)
        if op.type == b"leaky_relu_grad":  # ours has X there, with the same signs
            slots = {slot.parameter: slot for slot in op.inputs}
            slots[b"Out"].arguments[0] = slots[b"Out@GRAD"].arguments[0].removesuffix(b"@GRAD")
    data: bytes = message.SerializeToString()
    return data


def images() -> fluid.Variable:
    x = layers.batch_norm(layers.conv2d(fluid.data("x", [2, 3, 5, 5]), 4, 3))
    x = layers.group_norm(layers.elu(x), 2)
    x = layers.stack([layers.leaky_relu(x, 0.1), x], 1)
    loss = layers.mean(layers.square(x - 0.3))
    fluid.optimizer.SGD(0.1).minimize(loss)
    return loss


def losses(program: Program, loss: str) -> Any:
    scope, executor = fluid.Scope(), fluid.Executor()
    executor.run(fluid.default_startup_program(), scope=scope)
    feed = {"x": np.random.default_rng(0).uniform(-1, 1, (2, 3, 5, 5)).astype("float32")}
    return np.array([executor.run(program, feed, [loss], scope=scope)[0] for _ in range(3)])


def test_a_training_of_paddle_1_8_goes_on() -> None:
    fluid.default_startup_program().random_seed = 3
    loss = images()
    data = as_paddle_writes(fluid.default_main_program())
    program = Program.parse_from_string(data)
    program.verify()
    assert program.serialize_to_string() == program.clone().serialize_to_string() == data
    assert np.array_equal(losses(program, loss.name), losses(fluid.default_main_program(), loss.name))


def test_later_versions_get_all_inputs() -> None:
    images()
    program = Program.parse_from_string(as_paddle_writes(fluid.default_main_program()))
    written = convert(program, "paddle-2.6").program.serialize_to_string()
    ops = [op for op in ProgramDesc.FromString(written).blocks[0].ops if op.type == b"leaky_relu_grad"]
    assert [any(slot.parameter == b"X" for slot in op.inputs) for op in ops] == [True]


def test_what_is_overwritten_is_not_read() -> None:
    """The gradient fails, rather than read another value than its op did."""
    x = fluid.data("x", [2, 3])
    x.stop_gradient = False
    hidden = layers.scale(x, 2.0)
    fluid.gradients([layers.mean(layers.leaky_relu(hidden, 0.1))], [x])
    block = fluid.default_main_program().global_block()
    position = next(i for i, op in enumerate(block.ops) if op.type == "leaky_relu_grad")
    block._insert_op(position, type="scale", inputs={"X": x}, outputs={"Out": hidden}, attrs={"scale": 3.0})
    program = Program.parse_from_string(as_paddle_writes(fluid.default_main_program()))
    (gradient,) = [op for op in program.global_block().ops if op.type == "leaky_relu_grad"]
    assert not gradient.input("X")
    with pytest.raises(fluid.errors.FluidError, match="the input slot 'X' is empty"):
        program.verify()
