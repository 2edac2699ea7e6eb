"""Recurrent networks: Paddle's numbers, derivatives of every order, layers, errors."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from checks import each
from make_paddle_rnn import LENGTHS, TARGET, cases
from make_paddle_rnn import Case as Golden

import fluid
from fluid import layers
from fluid.errors import FluidError
from fluid.executor import Executor, Scope
from fluid.ir.program import Program, Variable

GOLDEN = dict(np.load(TARGET))


# ------------------------------------------------------------------------------------------------------ Paddle's numbers
def built(case: Golden) -> tuple[Program, dict[str, Any], dict[str, Any], dict[str, Any]]:
    """A program of the op, what to feed, and the variables of its inputs and outputs by slot."""
    program = Program()
    block = program.global_block()
    feed: dict[str, Any] = {}
    inputs: dict[str, Any] = {}
    for slot, value in case.inputs.items():
        inputs[slot] = []
        for number, item in enumerate(value if isinstance(value, list) else [value]):
            array, lengths = item if isinstance(item, tuple) else (item, None)
            name = f"{slot}:{number}"
            shape = (-1, *array.shape[1:]) if lengths else array.shape
            inputs[slot].append(
                block.create_var(name=name, shape=shape, dtype=array.dtype, lod_level=1 if lengths else 0, is_data=True)
            )
            feed[name] = item if lengths is None else (array, [lengths])
    outputs = {slot: [block.create_var(name=f"{slot}:{n}") for n in range(count)] for slot, count in case.outputs.items()}
    definition = fluid.ops.registry.get(case.op_type)
    others = {slot: block.create_var(name=slot) for slot in definition.outputs if slot not in outputs}
    block.append_op(case.op_type, inputs, {**outputs, **others}, case.attrs)
    return program, feed, inputs, outputs


@each("number", range(len(cases())))
def test_numbers_are_paddles(number: int) -> None:
    case = cases()[number]
    program, feed, inputs, outputs = built(case)
    seen = [var for variables in outputs.values() for var in variables]
    targets = [var for slot in case.differentiated for var in outputs[slot]]
    wrt = [var for variables in inputs.values() for var in variables if var.dtype.text == "float32"] if targets else []
    factors = []
    for var in targets:
        weight = case.weight_of(GOLDEN[f"{number}/{var.name}"])
        sequences = case.op_type in ("lstm", "gru")
        shape = (-1, *weight.shape[1:]) if sequences else weight.shape
        factor = program.global_block().create_var(
            name=var.name + "@W", shape=shape, dtype="float32", lod_level=int(sequences), is_data=True
        )
        feed[factor.name] = (weight, [LENGTHS]) if sequences else weight
        factors.append(factor)
    grads = fluid.gradients(targets, wrt, factors) if targets else []
    names = [var.name for var in seen] + [var.name + "@GRAD" for var in wrt]
    values = Executor().run(program, feed, [*seen, *grads], scope=Scope())
    for name, value in zip(names, values, strict=True):
        expected = GOLDEN[f"{number}/{name}"]
        scale = max(1.0, np.abs(expected).max())
        np.testing.assert_allclose(np.array(value) / scale, expected.reshape(value.shape) / scale, 1e-5, 1e-6, err_msg=name)


# ------------------------------------------------------------------------------------------------ derivatives of any order
def run(fetch: Any, feed: dict[str, Any]) -> list[Any]:
    """Values of variables of the default programs, freshly started from one seed."""
    fluid.default_startup_program().random_seed = 7
    executor, scope = Executor(), Scope()
    executor.run(fluid.default_startup_program(), scope=scope)
    return [np.asarray(value) for value in executor.run(fluid.default_main_program(), feed, fetch, scope=scope)]


def rnn_op(x: Variable, mode: str) -> Variable:
    """One bidirectional layer of the op `rnn`, of 2 features, over ``[time, batch, 2]``; its outputs."""
    rng = np.random.default_rng(3)
    gates = {"LSTM": 4, "GRU": 3}.get(mode, 1)
    shapes = [(gates * 2, 2)] * 4 + [(gates * 2,)] * 4
    weights = [layers.assign(rng.uniform(-1, 1, shape)) for shape in shapes]
    zeros = layers.fill_constant_batch_size_like(x, [2, -1, 2], "float64", 0.1, input_dim_idx=1, output_dim_idx=1)
    helper = fluid.layer_helper.LayerHelper("rnn")
    attrs = {"mode": mode, "input_size": 2, "hidden_size": 2, "is_bidirec": True}
    states = [zeros, zeros] if mode == "LSTM" else [zeros]
    inputs = {"Input": x, "PreState": states, "WeightList": weights}
    out: Variable = helper.apply("rnn", inputs, attrs, count=len(states))["Out"]
    return out


@pytest.mark.slow
@each("mode", ["LSTM", "GRU"])
def test_three_orders_where_extents_are_unknown(mode: str) -> None:
    """Each gradient, of a sum weighted by a fixed array, against central differences of the one before."""
    x = fluid.data("x", [-1, -1, 2], "float64")
    x.stop_gradient = False
    rng = np.random.default_rng(1)
    feed = {"x": rng.uniform(-1, 1, (3, 2, 2)), "v": rng.uniform(-1, 1, (3, 2, 2))}
    weight = fluid.data("v", [-1, -1, 2], "float64")
    values = [layers.reduce_sum(layers.square(rnn_op(x, mode)))]
    for _ in range(3):
        (grad,) = fluid.gradients(values[-1], x)
        values.append(layers.reduce_sum(grad * weight))
    step = 1e-5
    here = run(values, feed)
    ahead = run(values, {**feed, "x": feed["x"] + step * feed["v"]})
    behind = run(values, {**feed, "x": feed["x"] - step * feed["v"]})
    for order in range(3):
        expected = (ahead[order] - behind[order]) / (2 * step)
        np.testing.assert_allclose(here[order + 1], expected, 1e-6, 1e-7, err_msg=f"order {order + 1}")


def test_two_orders_inside_a_loop() -> None:
    """The decomposition of an op is written out in the block of gradients that it stands in."""
    rng = np.random.default_rng(2)
    x = fluid.data("x", [3, 4, 6], "float64")
    x.stop_gradient = False
    weight, first = layers.assign(rng.uniform(-1, 1, (2, 6))), layers.assign(rng.uniform(-1, 1, (4, 2)))
    network = layers.StaticRNN()
    with network.step():
        now = network.step_input(x)
        before = network.memory(init=first)
        made = fluid.layer_helper.LayerHelper("gru_unit").apply(
            "gru_unit", {"Input": now, "HiddenPrev": before, "Weight": weight}, {}
        )
        network.update_memory(before, made["Hidden"])
        network.step_output(made["Hidden"])
    value = layers.reduce_sum(layers.square(network()))
    (grad,) = fluid.gradients(value, x)
    penalty = layers.reduce_sum(layers.square(grad))
    (second,) = fluid.gradients(penalty, x)
    feed, direction = {"x": rng.uniform(-1, 1, (3, 4, 6))}, rng.uniform(-1, 1, (3, 4, 6))
    found = (run([second], feed)[0] * direction).sum()
    ahead, behind = (run([penalty], {"x": feed["x"] + step * direction})[0] for step in (1e-5, -1e-5))
    np.testing.assert_allclose(found, ((ahead - behind) / 2e-5).item(), 1e-6)


def test_an_op_with_a_meaning_needs_a_kernel_for_its_gradient() -> None:
    rule = fluid.ops.registry.get("gru_unit").rule
    with pytest.raises(FluidError, match="gru_unit is decomposed and has no gradient rule, so its gradient needs a kernel"):
        rule(None, {}, {}, {"Input"})  # type: ignore[operator,misc,arg-type]


# --------------------------------------------------------------------------------------------------------------- layers
def sigmoid(x: Any) -> Any:
    return 1 / (1 + np.exp(-x))


def gru_cell(x: Any, states: list[Any], weights: list[Any]) -> list[Any]:
    w_gate, b_gate, w_candidate, b_candidate = weights
    (h,) = states
    r, u = np.split(sigmoid(np.concatenate([x, h]) @ w_gate + b_gate), 2)
    c = np.tanh(np.concatenate([x, r * h]) @ w_candidate + b_candidate)
    return [u * h + (1 - u) * c]


def lstm_cell(x: Any, states: list[Any], weights: list[Any]) -> list[Any]:
    h, c = states
    i, j, f, o = np.split(np.concatenate([x, h]) @ weights[0] + weights[1], 4)
    c = c * sigmoid(f + 1) + sigmoid(i) * np.tanh(j)
    return [np.tanh(c) * sigmoid(o), c]


CELLS = {"GRUCell": (gru_cell, 1), "LSTMCell": (lstm_cell, 2)}


@each("time_major", [False, True])
@each("is_reverse", [False, True])
@each("name", CELLS)
def test_rnn_runs_a_cell(name: str, is_reverse: bool, time_major: bool) -> None:
    """Against each sequence for itself; after its end its states stay."""
    cell, count = CELLS[name]
    x = fluid.data("x", [-1, 4, 3] if not time_major else [4, -1, 3], "float32")
    lengths = fluid.data("n", [-1], "int64")
    out, states = layers.rnn(getattr(layers, name)(2), x, sequence_length=lengths, is_reverse=is_reverse, time_major=time_major)
    states = states if isinstance(states, list) else [states]
    array = np.random.default_rng(0).uniform(-1, 1, (3, 4, 3)).astype("float32")
    feed = {"x": array.swapaxes(0, 1) if time_major else array, "n": np.array([4, 1, 2])}
    parameters = fluid.default_main_program().all_parameters()
    values = run([out, *states, *parameters], feed)
    found = values[0].swapaxes(0, 1) if time_major else values[0]
    for row, length in enumerate(feed["n"]):
        before = [np.zeros(2, "float32")] * count
        for step in range(length)[:: -1 if is_reverse else 1]:
            before = cell(array[row, step], before, values[1 + count :])
            np.testing.assert_allclose(found[row, step], before[0], 1e-5, 1e-6)
        for state, last in zip(values[1:], before, strict=False):
            np.testing.assert_allclose(state[row], last, 1e-5, 1e-6)


def test_rnn_takes_states_and_shares_parameters() -> None:
    x = fluid.data("x", [-1, -1, 3], "float32")
    cell = layers.GRUCell(2, param_attr=fluid.ParamAttr(name="w"), gate_activation=layers.sigmoid, activation="relu")
    first = cell.get_initial_states(x, init_value=0.5)
    outs = [layers.rnn(cell, x, initial_states=first)[0] for _ in range(2)]
    names = [parameter.name for parameter in fluid.default_main_program().all_parameters()]
    assert [name for name in names if name.startswith("w")] == ["w_gate", "w_candidate"] and len(names) == 4
    one, two = run(outs, {"x": np.ones((2, 3, 3), "float32")})
    assert one.shape == (2, 3, 2) and np.array_equal(one, two)


@each("batch_first", [True, False])
@each("kind", ["gru", "lstm"])
def test_stacks_of_cells_in_both_directions(kind: str, batch_first: bool) -> None:
    """The last states are the last layer's outputs at the ends; each layer has its own parameters."""
    x = fluid.data("x", [-1, 4, 3] if batch_first else [4, -1, 3], "float32")
    lengths = fluid.data("n", [-1], "int64")
    options = {"sequence_length": lengths, "bidirectional": True, "batch_first": batch_first, "num_layers": 2}
    attr = fluid.ParamAttr(name="w")
    contrib = fluid.contrib.layers
    if kind == "gru":
        made = contrib.basic_gru(x, None, 2, param_attr=attr, **options)
    else:
        made = contrib.basic_lstm(x, None, None, 2, param_attr=attr, **options)
    array = np.random.default_rng(0).uniform(-1, 1, (3, 4, 3)).astype("float32")
    feed = {"x": array if batch_first else array.swapaxes(0, 1), "n": np.array([4, 1, 2])}
    names = {parameter.name for parameter in fluid.default_main_program().all_parameters()}
    assert {
        f"w_{way}_{layer}{part}"
        for way in ("fw", "bw")
        for layer in (0, 1)
        for part in (("_gate", "_candidate") if kind == "gru" else ("",))
    } <= names
    out, hidden, *_ = run(list(made), feed)
    out = out if batch_first else out.swapaxes(0, 1)
    assert out.shape == (3, 4, 4) and all(run(list(made), feed)[n].shape == (4, 3, 2) for n in range(1, len(made)))
    for row, length in enumerate(feed["n"]):
        np.testing.assert_allclose(hidden[2, row], out[row, length - 1, :2], 1e-6)
        np.testing.assert_allclose(hidden[3, row], out[row, 0, 2:], 1e-6)


def test_units_are_the_cells() -> None:
    x, h, c = (fluid.data(name, [-1, size], "float32") for name, size in (("x", 3), ("h", 2), ("c", 2)))
    unit = fluid.contrib.layers.BasicGRUUnit("unit", 2, param_attr=fluid.ParamAttr(name="g"))
    cell = layers.GRUCell(2, param_attr=fluid.ParamAttr(name="g"))
    hidden, memory = fluid.contrib.layers.BasicLSTMUnit("unit", 2, param_attr=fluid.ParamAttr(name="l"), forget_bias=0.5)(x, h, c)
    other = layers.LSTMCell(2, param_attr=fluid.ParamAttr(name="l"), forget_bias=0.5)(x, [h, c])[1]
    feed = {
        name: np.random.default_rng(0).uniform(-1, 1, (2, size)).astype("float32")
        for name, size in (("x", 3), ("h", 2), ("c", 2))
    }
    one, two, *rest = run([unit(x, h), cell(x, h)[0], hidden, other[0], memory, other[1]], feed)
    assert np.array_equal(one, two) and np.array_equal(rest[0], rest[1]) and np.array_equal(rest[2], rest[3])


class Countdown(layers.Decoder):
    """Counts each sequence down to 0."""

    def initialize(self, inits: Any) -> tuple[Any, Any, Variable]:
        return inits, {"sum": inits * 0.0}, layers.less_equal(inits, inits * 0.0)

    def step(self, time: Variable, inputs: Any, states: Any) -> tuple[Any, Any, Any, Variable]:
        left = inputs - 1.0
        return [inputs, layers.cast(time, "float32") + inputs * 0.0], {"sum": states["sum"] + inputs}, left, left <= left * 0.0


@each(("most", "steps"), [(None, 3), (1, 2)])
def test_dynamic_decode_runs_until_all_are_finished(most: int | None, steps: int) -> None:
    """As in Paddle, `max_step_num` is the number of the last step."""
    x = fluid.data("x", [-1], "float32")
    (outs, times), states = layers.dynamic_decode(Countdown(), x, max_step_num=most)
    (major, _), _ = layers.dynamic_decode(Countdown(), x, max_step_num=most, output_time_major=True)
    out, time, other, total = run([outs, times, major, states["sum"]], {"x": np.array([3, 1], "float32")})
    assert np.array_equal(out, np.array([[3, 2, 1], [1, 0, -1]])[:, :steps]) and np.array_equal(other, out.T)
    assert np.array_equal(time, [range(steps)] * 2) and np.array_equal(total, out.sum(1))


def test_beam_search_finds_what_paddle_finds() -> None:
    rng = np.random.default_rng(0)
    weight = (rng.standard_normal((8, 4)) * 2).astype("float32")
    table = rng.standard_normal((6, 4)).astype("float32") * 2
    projection = (rng.standard_normal((4, 6)) * 2).astype("float32")
    first = rng.standard_normal((3, 4)).astype("float32")

    class Cell(layers.RNNCell):
        def call(self, inputs: Any, states: Any, **kwargs: Any) -> tuple[Any, Any]:
            found = layers.tanh(layers.matmul(layers.concat([inputs, states], 1), layers.assign(weight)))
            return found, found

    decoder = layers.BeamSearchDecoder(
        Cell(),
        start_token=0,
        end_token=1,
        beam_size=3,
        embedding_fn=lambda ids: layers.reshape(layers.gather(layers.assign(table), layers.reshape(ids, [-1])), [-1, 3, 4]),
        output_fn=lambda out: layers.matmul(out, layers.assign(projection)),
    )
    ids, states = layers.dynamic_decode(decoder, fluid.data("x", [-1, 4], "float32"), max_step_num=5)
    found, scores, lengths = run([ids, states.log_probs, states.lengths], {"x": first})
    assert found.tolist() == [
        [[3, 5, 5], [1, 4, 4], [1, 0, 0], [1, 5, 5], [1, 5, 0], [1, 1, 1]],
        [[1, 2, 2], [1, 5, 5], [1, 4, 4], [1, 0, 0], [1, 5, 5], [1, 5, 0]],
        [[5, 5, 5], [5, 0, 4], [1, 1, 0], [1, 1, 5], [1, 1, 5], [1, 1, 1]],
    ]
    paddle = [[-0.11769632, -3.7407684, -4.4547796], [-0.5902165, -2.090068, -2.299339], [-0.8610161, -1.5654957, -2.862593]]
    np.testing.assert_allclose(scores, paddle, 1e-5)
    assert lengths.tolist() == [[2, 6, 6], [1, 6, 6], [3, 3, 6]]


def test_tile_beam_merge_with_batch() -> None:
    x = fluid.data("x", [-1, 2], "float32")
    tiled = layers.BeamSearchDecoder.tile_beam_merge_with_batch(x, 3)
    (found,) = run([tiled], {"x": np.array([[1, 2], [3, 4]], "float32")})
    assert found.tolist() == [[1, 2]] * 3 + [[3, 4]] * 3


def test_layers_over_sequences_learn() -> None:
    """Each layer's loss falls, and each of its parameters moves."""
    x = fluid.data("x", [-1, 3], "float32", lod_level=1)
    hidden, _ = layers.dynamic_lstm(layers.fc(x, 8, bias_attr=False), 8)
    projected, _ = layers.dynamic_lstmp(layers.fc(hidden, 8), 8, 3, use_peepholes=False, is_reverse=True, cell_clip=5.0)
    found = layers.dynamic_gru(layers.fc(projected, 6), 2)
    loss = layers.mean(layers.square(found - 0.5))
    before = {p.name: p for p in fluid.default_main_program().all_parameters()}
    fluid.optimizer.Adam(0.05).minimize(loss)
    fluid.default_startup_program().random_seed = 1
    executor, scope = Executor(), Scope()
    executor.run(fluid.default_startup_program(), scope=scope)
    first = {name: np.array(scope.find_var(name).get_tensor()) for name in before}
    feed = {"x": (np.random.default_rng(0).uniform(-1, 1, (7, 3)).astype("float32"), [[4, 1, 2]])}
    losses = [np.asarray(executor.run(fluid.default_main_program(), feed, [loss], scope=scope)[0]).item() for _ in range(30)]
    assert losses[-1] < 0.3 * losses[0]
    shapes = {tuple(value.shape) for value in first.values()}
    assert {(2, 8), (1, 14), (3, 8), (2, 3), (1, 8), (2, 6), (1, 6)} <= shapes
    for name, value in first.items():
        assert not np.array_equal(value, np.array(scope.find_var(name).get_tensor())), f"{name} did not move"


def test_layers_over_padded_sequences() -> None:
    x = fluid.data("x", [5, -1, 3], "float32")
    zeros = layers.fill_constant_batch_size_like(x, [4, -1, 2], "float32", 0, input_dim_idx=1, output_dim_idx=1)
    out, h, c = layers.lstm(x, zeros, zeros, 5, 2, 2, is_bidirec=True, dropout_prob=0.5, is_test=True)
    (weight,) = fluid.default_main_program().all_parameters()
    assert weight.shape == (2 * 4 * 2 * (3 + 2 + 2) + 2 * 4 * 2 * (4 + 2 + 2),)
    found = run([out, h, c], {"x": np.ones((5, 2, 3), "float32")})
    assert [value.shape for value in found] == [(5, 2, 4), (4, 2, 2), (4, 2, 2)]
    np.testing.assert_allclose(found[0][-1, :, :2], found[1][2], 1e-6)  # the last step forward, and backward the first
    np.testing.assert_allclose(found[0][0, :, 2:], found[1][3], 1e-6)


def test_layers_of_one_step() -> None:
    x, h, c = (fluid.data(name, [-1, size], "float32") for name, size in (("x", 3), ("h", 2), ("c", 2)))
    hidden, cell = layers.lstm_unit(x, h, c, forget_bias=1.0)
    new, reset, gate = layers.gru_unit(layers.fc(x, 6), h, 6, origin_mode=True)
    rng = np.random.default_rng(0)
    feed = {name: rng.uniform(-1, 1, (4, size)).astype("float32") for name, size in (("x", 3), ("h", 2), ("c", 2))}
    parameters = fluid.default_main_program().all_parameters()
    values = run([hidden, cell, new, reset, gate, *parameters], feed)
    w, b = values[5:7]
    i, f, o, g = np.split(np.concatenate([feed["x"], feed["h"]], 1) @ w + b, 4, 1)
    expected = sigmoid(f + 1) * feed["c"] + sigmoid(i) * np.tanh(g)
    np.testing.assert_allclose(values[1], expected, 1e-5, 1e-6)
    np.testing.assert_allclose(values[0], sigmoid(o) * np.tanh(expected), 1e-5, 1e-6)
    u, r, candidate = np.split(values[4], 3, 1)
    np.testing.assert_allclose(values[3], r * feed["h"], 1e-5, 1e-6)
    np.testing.assert_allclose(values[2], u * feed["h"] + (1 - u) * candidate, 1e-5, 1e-6)


# --------------------------------------------------------------------------------------------------------------- errors
def inputs_of_rnn(**changed: Any) -> dict[str, Any]:
    shapes: dict[str, Any] = {
        "Input": [[4, 3, 3]],
        "PreState": [[1, 3, 2]],
        "WeightList": [[2, 3], [2, 2], [2], [2]],
        **changed,
    }
    block = fluid.default_main_program().global_block()
    return {
        slot: [block.create_var(name=f"{slot}{n}", shape=shape, dtype="float32", is_data=True) for n, shape in enumerate(found)]
        for slot, found in shapes.items()
    }


@each(
    ("changed", "attrs", "text"),
    [
        ({}, {"mode": "LSTMP"}, "mode should be one of LSTM, GRU, RNN_TANH, RNN_RELU, not 'LSTMP'"),
        ({"Input": [[4, 3]]}, {}, r"Input should be \[time, batch, features\], not float32\[4, 3\]"),
        ({}, {"input_size": 5}, "has 3 features, but input_size is 5"),
        ({"PreState": [[1, 3, 2]] * 2}, {}, "mode RNN_TANH has 1 states before the first step, not 2"),
        ({"PreState": [[2, 3, 2]]}, {}, r"here \[1, 3, 2\], not float32\[2, 3, 2\]"),
        ({"WeightList": [[2, 3]]}, {}, "1 passes over the input have 4 weights, not 1"),
        ({"WeightList": [[2, 3], [2, 3], [2], [2]]}, {}, r"weight 1 should be \[2, 2\], not float32\[2, 3\]"),
        ({"SequenceLength": [[4]]}, {}, r"SequenceLength is float32\[4\]; it should be int"),
    ],
)
def test_rnn_says_what_does_not_fit(changed: dict[str, Any], attrs: dict[str, Any], text: str) -> None:
    block = fluid.default_main_program().global_block()
    given = {"mode": "RNN_TANH", "input_size": 3, "hidden_size": 2, **attrs}
    with pytest.raises(FluidError, match=text):
        block.append_op("rnn", inputs_of_rnn(**changed), {"Out": block.create_var(name="out")}, given)


def variables(*shapes: list[int], lod_level: int = 0) -> list[Variable]:
    return [fluid.data(f"x{n}", shape, "float32", lod_level=lod_level) for n, shape in enumerate(shapes)]


def one_op(op_type: str, shapes: dict[str, list[int]], lod_level: int = 0, **attrs: Any) -> Any:
    def build() -> Any:
        made = dict(zip(shapes, variables(*shapes.values(), lod_level=lod_level), strict=True))
        return fluid.layer_helper.LayerHelper(op_type).apply(op_type, made, attrs)

    return build


@each(
    ("build", "text"),
    [
        (lambda: layers.RNNCell()(None, None), r"RNNCell should define call\(inputs, states\)"),
        (lambda: layers.RNNCell().get_initial_states(variables([2, 3])), "RNNCell should define state_shape"),
        (lambda: layers.Decoder().initialize(None), r"Decoder should define initialize\(inits\)"),
        (lambda: layers.Decoder().step(None, None, None), r"Decoder should define step\(time, inputs, states\)"),  # type: ignore[arg-type]
        (lambda: layers.Decoder().output_dtype, "Decoder should define output_dtype"),
        (lambda: layers.rnn(layers.GRUCell(2), *variables([3])), r"x0 \(float32\[3\]\) should have a batch and a time dimension"),
        (
            lambda: layers.rnn(layers.GRUCell(2), *variables([3, 4, -1])),
            r"GRUCell/BasicGRUUnit_0: the number of features of .* must be known",
        ),
        (
            lambda: fluid.contrib.layers.basic_lstm(*variables([3, 4, 2], [1, 3, 2]), None, 2),
            "give both init_hidden and init_cell, or neither",
        ),
        (lambda: layers.lstm_unit(*variables([3], [3, 2], [3, 2])), r"x_t should be \[batch, features\]; x0 is float32\[3\]"),
        (lambda: layers.gru_unit(*variables([3, 6], [3, 2]), 6, activation="elu"), "identity, sigmoid, tanh, relu, not 'elu'"),
        (lambda: layers.dynamic_lstm(*variables([-1, 8], lod_level=1), 8, bias_attr=False), "dynamic_lstm needs a bias"),
        (
            one_op("cudnn_lstm", {"Input": [4, 3, 10], "InitH": [1, 3, 100], "InitC": [1, 3, 100]}),
            "either all weights in one tensor, W",
        ),
        (one_op("lstm_unit", {"X": [3, 9], "C_prev": [3, 2]}), r"X should be \[batch, 4 \* size\]"),
        (one_op("lstm_unit", {"X": [3, 8], "C_prev": [4, 2]}), "differ in their first dimension"),
        (one_op("gru_unit", {"Input": [3, 6], "HiddenPrev": [3, 3], "Weight": [2, 6]}), r"Input should be \[3, 9\]"),
        (
            one_op("gru_unit", {"Input": [3, 6], "HiddenPrev": [3, 2], "Weight": [2, 6], "Bias": [1, 5]}),
            "Bias should have 6 elem",
        ),
        (one_op("gru_unit", {"Input": [3, 6], "HiddenPrev": [3, 2], "Weight": [2, 6]}, activation=4), "not 4"),
        (one_op("gru", {"Input": [3, 6], "Weight": [2, 6]}), "gru: Input .* should hold sequences"),
        (one_op("gru", {"Input": [-1, 6], "Weight": [2, 6]}, 1, activation="elu"), "activation should be one of identity"),
        (one_op("gru", {"Input": [-1, 6], "Weight": [3, 6]}, 1), r"Weight should be \[2, 6\], not float32\[3, 6\]"),
        (one_op("gru", {"Input": [-1, 7], "Weight": [2, 7]}, 1), "two gates and the candidate side by side"),
        (one_op("lstm", {"Input": [-1, 8], "Weight": [2, 8], "Bias": [1, 8]}, 1), r"Bias should be \[1, 14\]"),
        (one_op("lstm", {"Input": [-1, 7], "Weight": [2, 7], "Bias": [1, 8]}, 1), "the four gates side by side"),
        (
            one_op("lstm", {"Input": [-1, 8], "Weight": [2, 8], "Bias": [1, 14], "H0": [3, 2]}, 1),
            "give both H0 and C0, or neither",
        ),
    ],
)
def test_what_does_not_fit_is_told(build: Any, text: str) -> None:
    with pytest.raises(FluidError, match=text):
        build()


def test_beams_of_sizes_that_only_a_run_tells() -> None:
    x = fluid.data("x", [None, 2, None])
    tiled = layers.BeamSearchDecoder.tile_beam_merge_with_batch(x, 3)
    assert tiled.shape == (-1, 2, -1)
    value = np.arange(20, dtype="float32").reshape(2, 2, 5)
    (found,) = fluid.Executor().run(feed={"x": value}, fetch_list=[tiled])
    np.testing.assert_array_equal(found, np.repeat(value, 3, axis=0))


def _sigmoid(x: Any) -> Any:
    return 1 / (1 + np.exp(-x))


@each("native", ["0", "1"])
@each("dtype", ["float32", "float64"])
@each("size", [1, 2, 3, 8])
def test_gates_of_any_size_are_right(size: int, dtype: str, native: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """First steps of nine sequences, from states of 0. The gates of an LSTM with one unit are single columns: there numpy's
    `negative` is wrong."""
    monkeypatch.setenv("FLUID_NATIVE", native)
    x = fluid.data("x", [None, 4 * size], dtype, lod_level=1)
    hidden, cell = layers.dynamic_lstm(x, 4 * size, use_peepholes=False, dtype=dtype)
    projected, _ = layers.dynamic_lstmp(x, 4 * size, size, use_peepholes=False, proj_activation="identity", dtype=dtype)
    executor, scope = Executor(), Scope()
    executor.run(fluid.default_startup_program(), scope=scope)
    scope.put("lstmp_0.w_1", np.eye(size, dtype=dtype))
    values = np.random.default_rng(0).standard_normal((9, 4 * size)).astype(dtype)
    fed = {"x": (values, [[1] * 9])}
    found = executor.run(feed=fed, fetch_list=[hidden, cell, projected], scope=scope)
    g, i, _, o = np.split(values.astype("float64"), 4, 1)
    state = _sigmoid(i) * np.tanh(g)
    output = _sigmoid(o) * np.tanh(state)
    for value, expected in zip(found, (output, state, output), strict=True):
        np.testing.assert_allclose(value, expected, rtol=1e-5)
