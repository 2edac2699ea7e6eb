"""Recurrent cells as attributes of layers: their parameters are found, trained, saved and traced."""

from __future__ import annotations

import copy
import warnings
from typing import Any

import numpy as np
import pytest

import fluid
from fluid import dygraph, layers
from fluid.contrib.layers import BasicGRUUnit, BasicLSTMUnit

WIDTH = 4


class Stack(layers.RNNCell):
    """Two cells and a layer."""

    state_shape = [[[WIDTH], [WIDTH]], [WIDTH]]

    def __init__(self) -> None:
        self.cells = [layers.LSTMCell(WIDTH), layers.GRUCell(WIDTH, bias_attr=False)]
        self.last = dygraph.Linear(WIDTH, WIDTH)

    def call(self, inputs: Any, states: Any, **kwargs: Any) -> Any:
        after = []
        for cell, state in zip(self.cells, states, strict=True):
            inputs, state = cell(inputs, state)
            after.append(state)
        return self.last(inputs), after


class Net(dygraph.Layer):
    def __init__(self) -> None:
        super().__init__()
        self.stack = Stack()
        self.lstm = BasicLSTMUnit("lstm", WIDTH)
        self.gru = BasicGRUUnit("gru", WIDTH)

    def forward(self, x: Any) -> Any:
        outputs, _ = layers.rnn(self.stack, x)
        hidden, _ = self.lstm(outputs[:, 0], outputs[:, 1], outputs[:, 2])
        return self.gru(outputs[:, 1], hidden)


def batch() -> Any:
    return dygraph.to_variable(np.random.default_rng(0).uniform(-1, 1, (2, 3, 5)).astype("float32"))


NAMES = [
    "stack.cells.0._weight",
    "stack.cells.0._bias",
    "stack.cells.1._gate_weight",
    "stack.cells.1._candidate_weight",
    "stack.last.weight",
    "stack.last.bias",
    "lstm._weight",
    "lstm._bias",
    "gru._gate_weight",
    "gru._gate_bias",
    "gru._candidate_weight",
    "gru._candidate_bias",
]


def test_each_weight_is_found_and_trained() -> None:
    with dygraph.guard():
        net, x = Net(), batch()
        with pytest.warns(UserWarning, match="are made in the first call of each"):
            net.parameters()
        optimizer = fluid.optimizer.Adam(0.01, parameter_list=net)
        before = None
        for _ in range(3):
            loss = layers.mean(layers.square(net(x) - 1.0))
            loss.backward()
            if before is None:
                assert [name for name, _ in net.named_parameters()] == NAMES
                before = {name: value.numpy().copy() for name, value in net.named_parameters()}
            optimizer.minimize(loss)
            net.clear_gradients()
        for name, value in net.named_parameters():
            assert (value.numpy() != before[name]).any(), name


def test_states_copies_traces_and_programs_have_the_same_weights() -> None:
    with dygraph.guard():
        net, x = Net(), batch()
        expected = net(x).numpy()
        restored = Net()
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            restored.set_dict(net.state_dict())  # before its first call
            np.testing.assert_array_equal(restored(x).numpy(), expected)
        np.testing.assert_array_equal(copy.deepcopy(net)(x).numpy(), expected)
        np.testing.assert_allclose(dygraph.trace(net, x)(x).numpy(), expected, rtol=1e-5)
    program, startup = fluid.Program(), fluid.Program()
    with fluid.program_guard(program, startup):
        result = net(fluid.data("x", [None, 3, 5]))
    executor = fluid.Executor()
    executor.run(startup)
    (values,) = executor.run(program, {"x": x.numpy()}, [result])
    np.testing.assert_allclose(values, expected, rtol=1e-5)


def test_a_cell_of_two_layers_has_one_set_of_weights() -> None:
    with dygraph.guard():
        cell, first, second = layers.GRUCell(WIDTH), dygraph.Layer(), dygraph.Layer()
        state = dygraph.to_variable(np.zeros((2, WIDTH), "float32"))
        before, _ = cell(state, state)
        first.cell = second.cell = cell
        assert [id(parameter) for parameter in first.parameters()] == [id(parameter) for parameter in second.parameters()]
        assert len(first.parameters()) == 4
        np.testing.assert_array_equal(cell(state, state)[0].numpy(), before.numpy())
        assert first.cell is cell
        first.cell = None
        assert first.cell is None and first.parameters() == []
        del second.cell
        assert second.parameters() == []


@pytest.mark.parametrize(
    "hidden",
    [
        lambda: [dygraph.Linear(2, 2)],
        lambda: {"first": (dygraph.Linear(2, 2), 1)},
        lambda: [layers.LSTMCell(2)],
        lambda: [dygraph.Linear(2, 2).weight],
    ],
)
def test_layers_in_lists_get_a_warning(hidden: Any) -> None:
    with dygraph.guard():
        net = dygraph.Layer()
        net.parts = hidden()
        for read in (net.parameters, net.state_dict):
            with pytest.warns(UserWarning, match="parts of layer_0 is a (list|dict): .*neither trained nor saved.*LayerList"):
                read()


def test_a_dict_that_holds_itself_is_searched_once() -> None:
    with dygraph.guard():
        net, root = dygraph.Layer(), dict[str, Any]()
        root["children"] = [{"parent": root}]
        net.root = root
        assert net.parameters() == [] and not net.state_dict()


def test_a_list_of_layers_that_have_names_gets_no_warning() -> None:
    with dygraph.guard(), warnings.catch_warnings():
        warnings.simplefilter("error")
        net = dygraph.Layer()
        net.blocks = []
        net.blocks.append(net.add_sublayer("block", dygraph.Linear(2, 2)))
        net.tied = [net.blocks[0].weight]
        assert len(net.parameters()) == 2
