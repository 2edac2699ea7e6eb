"""Tables of the layers of programs and of eager layers."""

from __future__ import annotations

import numpy as np
import pytest

import fluid
from fluid import dygraph, layers
from fluid.dygraph.summary import LayerRow
from fluid.errors import FeedError, FluidTypeError, InferenceError


def small_net() -> fluid.Variable:
    x, label = fluid.data("x", [None, 1, 8, 8]), fluid.data("label", [None, 1], "int64")
    h = layers.conv2d(x, 4, 3, padding=1, act="relu")
    return layers.mean(layers.softmax_with_cross_entropy(layers.fc(h, 10), label))


def test_layers_of_a_program() -> None:
    small_net()
    table = fluid.summary(input_shapes={"x": [5, 1, 8, 8]})
    convolution = 2 * (5 * 4 * 64) * 9 + 2 * 5 * 4 * 64
    assert table.rows[0] == LayerRow("conv2d_0", ["conv2d", "elementwise_add", "relu"], (5, 4, 8, 8), 40, convolution)
    assert [row.name for row in table.rows[1:]] == ["fc_0", "softmax_with_cross_entropy_0", "mean_0"]
    assert table.parameters == table.trainable == 40 + 256 * 10 + 10 and table.parameter_bytes == 4 * table.parameters
    assert table.flops == sum(row.flops for row in table.rows)
    lines = str(table).splitlines()
    assert lines[1].split() == [
        "conv2d_0",
        "conv2d",
        "+",
        "elementwise_add",
        "+",
        "relu",
        "[5,",
        "4,",
        "8,",
        "8]",
        "40",
        "25.6",
        "k",
    ]
    assert lines[-2] == "parameters: 2,610, of which 2,610 are trained; 10.4 kB"
    assert table._repr_html_().startswith("<pre>layer ")


def test_memory_is_that_of_a_whole_step() -> None:
    loss = small_net()
    forward = fluid.summary(input_shapes=[[64, 1, 8, 8], [64, 1]])
    fluid.optimizer.SGD(0.1).minimize(loss)
    training = fluid.summary(input_shapes=[[64, 1, 8, 8], [64, 1]])
    assert training.rows == forward.rows and training.flops == forward.flops
    assert training.temporary_bytes is not None and forward.temporary_bytes is not None
    assert training.temporary_bytes > forward.temporary_bytes >= 64 * 4 * 64 * 4
    executor = fluid.Executor()
    executor.run(fluid.default_startup_program())
    feed = {"x": np.zeros((64, 1, 8, 8), "float32"), "label": np.zeros((64, 1), "int64")}
    assert training.temporary_bytes <= executor.plan(feed=feed, fetch_list=[loss]).arena_bytes * 1.5


def test_a_parameter_that_layers_share_counts_once() -> None:
    h = fluid.data("x", [2, 4])
    for _ in range(2):
        h = layers.fc(h, 4, param_attr="shared.w", bias_attr=False)
        h = layers.tanh(h)
    assert [(row.name, row.parameters) for row in fluid.summary().rows if row.parameters] == [("shared", 16)]


def test_layers_of_an_eager_layer() -> None:
    with dygraph.guard():
        net = dygraph.Sequential("net", dygraph.Linear(6, 5, act="relu"), dygraph.Linear(5, 2))
        table = fluid.summary(net, [[3, 6]])
        assert [row.parameters for row in table.rows] == [35, 0, 12] and table.rows[-1].shape == (3, 2)
        with pytest.raises(FluidTypeError, match=r"give the shapes of its arguments, such as \[\[8, 784\]\]"):
            fluid.summary(net)


def test_shapes_that_do_not_fit() -> None:
    small_net()
    with pytest.raises(FeedError, match="1 shapes for 2 inputs: x, label"):
        fluid.summary(input_shapes=[[5, 1, 8, 8]])
    with pytest.raises(FeedError, match=r"\[5, 1, 9, 8\] does not fit float32\[-1, 1, 8, 8\], the data 'x'"):
        fluid.summary(input_shapes={"x": [5, 1, 9, 8]})
    with pytest.raises(FeedError, match="the program has no data 'y', but x, label"):
        fluid.summary(input_shapes={"y": [5]})
    z, y = fluid.data("z", [None, None]), fluid.data("y", [None, 3])
    layers.elementwise_add(z, y)
    with pytest.raises(InferenceError):
        fluid.summary(input_shapes={"z": [2, 4]})


def test_a_program_whose_shapes_only_a_run_tells_has_no_memory() -> None:
    x = fluid.data("x", [4])
    layers.unique(x, dtype="int32")
    table = fluid.summary()
    assert table.temporary_bytes is None and "at their peak" not in str(table)
