"""How much arithmetic programs are, against counts by hand."""

from __future__ import annotations

import fluid
from fluid import layers
from fluid.transform.flops import count_flops


def counted(unknown=1):
    return count_flops(fluid.default_main_program(), unknown)


def ops():
    return fluid.extend.ops()


def test_products():
    ops().matmul_v2(fluid.data("a", [2, 3, 4]), fluid.data("b", [5, 4]), trans_y=True)
    assert counted().by_type["matmul_v2"] == 2 * 2 * 3 * 4 * 5
    ops().matmul(fluid.data("c", [6, 4, 3]), fluid.data("d", [6, 4, 5]), transpose_X=True)
    assert counted().by_type["matmul"] == 2 * 6 * 3 * 4 * 5
    layers.mul(fluid.data("e", [2, 3, 4]), fluid.data("f", [4, 7]), x_num_col_dims=2)
    assert counted().by_type["mul"] == 2 * 2 * 3 * 4 * 7
    ops().matmul_v2(fluid.data("g", [4]), fluid.data("h", [4]))
    assert counted().by_type["matmul_v2"] == 2 * 2 * 3 * 4 * 5 + 2 * 4


def test_convolutions():
    x = fluid.data("x", [None, 8, 10, 10])
    layers.conv2d(x, 6, 3, groups=2, bias_attr=False)
    assert counted(4).by_type == {"conv2d": 2 * 4 * 6 * 8 * 8 * (8 // 2) * 9}
    layers.conv2d_transpose(x, 5, filter_size=3, bias_attr=False)
    assert counted(4).by_type["conv2d_transpose"] == 2 * 4 * 8 * 10 * 10 * 5 * 9


def test_gradients_of_products_are_a_product_each():
    x = fluid.data("x", [None, 8])
    hidden = layers.fc(x, 6, bias_attr=False)
    loss = layers.mean(layers.fc(hidden, 5, bias_attr=False))
    fluid.optimizer.SGD(0.1).minimize(loss)
    first, second = 2 * 3 * 8 * 6, 2 * 3 * 6 * 5
    found = counted(3)
    assert found.by_type["mul"] == first + second
    assert found.by_type["mul_grad"] == first + 2 * second  # no gradient of what is fed
    assert found.by_type["sgd"] == 2 * (8 * 6 + 6 * 5)


def test_recurrent_ops_multiply_each_row_by_their_weights():
    x = fluid.data("x", [7, 24], lod_level=1)
    hidden, _ = layers.dynamic_lstm(x, 24)
    layers.dynamic_gru(layers.fc(hidden, 18), 6)
    layers.dynamic_lstmp(x, 24, 5)
    layers.sequence_conv(x, 9, 3)
    found = counted().by_type
    assert (found["lstm"], found["gru"]) == (2 * 7 * 6 * 24, 2 * 7 * 6 * 18)
    assert (found["lstmp"], found["sequence_conv"]) == (2 * 7 * (5 * 24 + 6 * 5), 2 * 7 * 3 * 24 * 9)
    steps = fluid.data("steps", [5, 2, 4])  # [time, batch, size]
    state = layers.fill_constant([1, 2, 6], "float32", 0)
    weights = [fluid.data(f"w{number}", shape) for number, shape in enumerate([[24, 4], [24, 6], [24], [24]])]
    ops().rnn(steps, [state, state], weights, mode="LSTM", input_size=4, hidden_size=6, num_layers=1)
    assert counted().by_type["rnn"] == 2 * 5 * 2 * 24 * (4 + 6)


def test_ops_whose_weights_lie_otherwise():
    x, label = fluid.data("x", [7, 24]), fluid.data("label", [7, 1], "int64")
    layers.nce(x, label, 100, num_neg_samples=9)
    layers.hsigmoid(x, label, 16)
    layers.row_conv(fluid.data("rows", [7, 24], lod_level=1), 3)
    layers.bilinear_tensor_product(x, fluid.data("y", [7, 5]), 6)
    states = [layers.fill_constant([2, 2, 6], "float32", 0) for _ in range(2)]
    layers.lstm(fluid.data("steps", [5, 2, 4]), *states, 5, 6, 2)
    found = counted().by_type
    assert (found["nce"], found["hierarchical_sigmoid"]) == (2 * 7 * 10 * 24, 2 * 7 * 4 * 24)
    assert (found["row_conv"], found["bilinear_tensor_product"]) == (2 * 7 * 24 * 4, 2 * 7 * 24 * 5 * 6)
    assert found["cudnn_lstm"] == 2 * 5 * 2 * 24 * (4 + 6 + 6 + 6)


def test_gradients_of_recurrent_ops_are_two_products():
    hidden, _ = layers.dynamic_lstm(layers.fc(fluid.data("x", [7, 3], lod_level=1), 24), 24)
    fluid.append_backward(layers.mean(hidden))
    assert counted().by_type["lstm_grad"] == 2 * counted().by_type["lstm"]


def test_elements_and_moves():
    x = fluid.data("x", [None, 8])
    layers.softmax(layers.relu(layers.reshape(x, [-1, 4])))
    layers.reduce_sum(x)
    found = counted(2)
    assert found.by_type == {"reshape2": 0, "relu": 16, "softmax": 80, "reduce_sum": 16}
    assert found.total == 112 and not found.uncounted
    assert fluid.default_main_program().global_block().var("x").shape == (-1, 8)


def test_what_is_not_known_is_listed():
    x = fluid.data("x", [2])
    block = fluid.default_main_program().global_block()
    block.create_var(name="y", dtype="float32")
    block.append_op("odd", {"X": x}, {"Out": "y"})
    layers.scale(x, 2.0)
    found = counted()
    assert found.uncounted == {"odd": 1} and found.total == 4
    assert str(found).splitlines() == ["4 FLOP", "  scale: 4 FLOP", "  not counted: odd (1)"]
