"""Training programs exchanged with PaddlePaddle 1.8.5: it trains ours to the same losses.

    FLUID_PADDLE_1_8_PYTHON=/path/to/python pytest -n 0 -m paddle tests/paddle/test_paddle_1_8.py

The Python is of an environment with Python 3.7 and ``pip install paddlepaddle==1.8.5 "protobuf<3.21"``.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from checks import each
from oracles import runner

import fluid
from fluid import layers
from fluid.ir.paddle_attrs import REQUIRED, SAME_INPUTS, attrs_of_paddle
from fluid.opdef.registry import all_ops
from fluid.proto import ProgramDesc

PRELUDE = """
import numpy as np
import paddle.fluid as fluid
executor = fluid.Executor(fluid.CPUPlace())
given = dict(np.load("given.npz"))
found = {}
"""
TRAIN = """
main, startup = (fluid.Program.parse_from_string(open(name, "rb").read()) for name in ("main", "startup"))
executor.run(startup)
for name in given["parameters"]:
    fluid.global_scope().find_var(name).get_tensor().set(given[name], fluid.CPUPlace())
feed = {name: given[name] for name in given["feeds"]}
found["losses"] = np.array([executor.run(main, feed, [str(given["loss"])])[0] for _ in range(3)])
"""


@pytest.fixture
def paddle_python() -> str:
    python = os.environ.get("FLUID_PADDLE_1_8_PYTHON")
    if not python:
        pytest.skip("FLUID_PADDLE_1_8_PYTHON does not name a Python with Paddle 1.8.5")
    return python


def images() -> fluid.Variable:
    x = layers.leaky_relu(layers.conv2d(fluid.data("x", [4, 6, 6, 6]), 4, 3), 0.2)
    x = layers.batch_norm(layers.conv2d_transpose(x, 4, filter_size=3), act="swish")
    return layers.pool2d(layers.prelu(layers.instance_norm(x), "channel"), 2, "avg", 2)


def indices() -> fluid.Variable:
    x = layers.fc(fluid.data("x", [4, 6]), 6, act="softmax")
    rows = layers.gather(x, layers.assign(np.array([0, 1, 1], "int32")))
    parts = [x[::2], layers.strided_slice(x, [1], [0], [6], [2]), rows, layers.topk(x, 2)[0], layers.transpose(x, [1, 0])]
    return layers.concat([layers.reshape(part, [-1]) for part in parts], 0)


def steps() -> fluid.Variable:
    x = fluid.data("x", [4, 6])
    rnn, rows = layers.StaticRNN(), layers.reshape(x, [4, 1, 6])
    with rnn.step():
        row = rnn.step_input(rows)
        state = rnn.memory(shape=[-1, 6], batch_ref=row, ref_batch_dim_idx=0)
        state_after = layers.tanh(layers.fc(state, 6) + row)
        rnn.update_memory(state, state_after)
        rnn.step_output(state_after)
    return rnn()


def loop() -> fluid.Variable:
    x, weight = fluid.data("x", [4, 6]), layers.create_parameter([6, 6], "float32")
    i, end = layers.fill_constant([1], "int64", 0), layers.fill_constant([1], "int64", 3)
    return layers.while_loop(lambda i, _: i < end, lambda i, h: [i + 1, layers.tanh(layers.matmul(h, weight))], [i, x])[1]


def words() -> fluid.Variable:
    ids = fluid.data("x", [4, 6], "int64")
    return layers.layer_norm(layers.dropout(layers.reduce_mean(fluid.embedding(ids, [9, 5]), 1), 0.0))


NETS: dict[str, tuple[Callable[[], fluid.Variable], Any]] = {
    "images, Momentum": (images, lambda: fluid.optimizer.Momentum(0.1, 0.9, regularization=fluid.regularizer.L2Decay(1e-3))),
    "indices, Adam": (indices, lambda: fluid.optimizer.Adam(0.1)),
    "steps, RMSProp": (steps, lambda: fluid.optimizer.RMSProp(layers.exponential_decay(0.1, 2, 0.5))),
    "loop, SGD": (loop, lambda: fluid.optimizer.SGD(0.1, grad_clip=fluid.clip.GradientClipByGlobalNorm(0.1))),
    "words, Adagrad": (words, lambda: fluid.optimizer.Adagrad(0.1)),
}


def trained(net: str) -> tuple[dict[str, Any], list[Any]]:
    """The first values of a training program, its feed and names as arrays, and its losses."""
    build, optimizer = NETS[net]
    loss = layers.mean(layers.square(build() - 0.5))
    optimizer().minimize(loss)
    main, startup = fluid.default_main_program(), fluid.default_startup_program()
    executor, scope, draw = fluid.Executor(), fluid.global_scope(), np.random.default_rng(0)
    executor.run(startup)
    x = main.global_block().var("x")
    feed = draw.integers(0, 9, x.shape) if x.dtype == "int64" else draw.uniform(-1, 1, x.shape).astype("float32")
    names = [var.name for var in main.list_vars() if var.persistable and scope.find_var(var.name) is not None]
    given = {name: np.array(scope.find_var(name).get_tensor()) for name in names}
    losses = [executor.run(main, {"x": feed}, [loss])[0] for _ in range(3)]
    return {**given, "parameters": np.array(names), "x": feed, "feeds": np.array(["x"]), "loss": np.array(loss.name)}, losses


@pytest.mark.paddle
@each("net", NETS)
def test_paddle_1_8_trains_our_programs(net: str, paddle_python: str, tmp_path: Path) -> None:
    given, losses = trained(net)
    (tmp_path / "main").write_bytes(fluid.default_main_program().serialize_to_string())
    (tmp_path / "startup").write_bytes(fluid.default_startup_program().serialize_to_string())
    found = runner(paddle_python, tmp_path, PRELUDE)(TRAIN, **given)
    np.testing.assert_allclose(found["losses"], losses, rtol=1e-4)


@each("net", NETS)
def test_gradient_ops_are_written_with_what_paddle_1_8_reads(net: str) -> None:
    trained(net)
    data = fluid.default_main_program().serialize_to_string()
    assert fluid.Program.parse_from_string(data).serialize_to_string() == data
    ops = [op for block in ProgramDesc.FromString(data).blocks for op in block.ops]
    for op in ops:
        attrs, inputs = {attr.name for attr in op.attrs}, {slot.parameter for slot in op.inputs}
        if b"_grad" in op.type:
            assert {name.encode() for name in attrs_of_paddle(op.type.decode())} <= attrs, op.type
            assert SAME_INPUTS.get(op.type.decode(), ("X",))[0].encode() in inputs or op.type.decode() not in SAME_INPUTS
        assert {name.encode() for name in REQUIRED.get(op.type.decode(), ())} <= attrs, op.type


def test_the_table_of_attributes_fits_the_ops() -> None:
    """It repeats no attribute of a gradient op of ours, and names attributes that ops have a default for."""
    for op_type, definition in all_ops().items():
        gradient = all_ops().get(f"{op_type}_grad")
        assert gradient is None or not set(attrs_of_paddle(op_type)) & set(gradient.attrs), op_type
        assert all(not definition.attrs[name].required for name in REQUIRED.get(op_type, ())), op_type
    assert set(REQUIRED) | set(SAME_INPUTS) <= set(all_ops())


def test_a_training_program_on_the_screen_shows_nothing_of_this() -> None:
    trained("images, Momentum")
    again = fluid.Program.parse_from_string(fluid.default_main_program().serialize_to_string())
    assert "mkldnn" not in str(again) and "data_format" not in str(again) and "fuse_" not in str(again)
