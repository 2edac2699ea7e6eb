"""`fluid.contrib.layers.basic_gru` and `basic_lstm` against the same networks written out in numpy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from checks import each

import fluid
from fluid import layers
from fluid.contrib.layers import BasicGRUUnit, BasicLSTMUnit, basic_gru, basic_lstm
from fluid.errors import ProgramError

RNG = np.random.default_rng(8)
BATCH, TIME, FEATURES, HIDDEN = 3, 4, 2, 5
X = RNG.standard_normal((BATCH, TIME, FEATURES)).astype("float32")
NAMED: dict[str, Any] = {"param_attr": fluid.ParamAttr("W"), "bias_attr": fluid.ParamAttr("B")}
LENGTHS = np.array([4, 2, 3], "int64")


def sigmoid(x: Any) -> Any:
    return 1 / (1 + np.exp(-x))


def weights(place: str, *parts: str) -> list[Any]:
    """Weight and bias of each part of a cell, as they were made."""
    names = [f"{kind}{place}{part}" for part in parts for kind in "WB"]
    return [np.array(fluid.global_scope().find_var(name).get_tensor(), "float64") for name in names]  # type: ignore[union-attr]


def gru_step(x: Any, state: Any, place: str) -> Any:
    (h,) = state
    gate_w, gate_b, candidate_w, candidate_b = weights(place, "_gate", "_candidate")
    r, u = np.split(sigmoid(np.concatenate([x, h], 1) @ gate_w + gate_b), 2, 1)
    c = np.tanh(np.concatenate([x, r * h], 1) @ candidate_w + candidate_b)
    return [u * h + (1 - u) * c]


def lstm_step(x: Any, state: Any, place: str) -> Any:
    h, c = state
    w, b = weights(place, "")
    i, j, f, o = np.split(np.concatenate([x, h], 1) @ w + b, 4, 1)
    c = sigmoid(f + 1) * c + sigmoid(i) * np.tanh(j)
    return [np.tanh(c) * sigmoid(o), c]


def expected(step: Any, begin: list[Any], num_layers: int, bidirectional: bool, lengths: Any) -> Any:
    """Outputs ``[batch, time, ...]`` and the last states, by part; `begin` are the first."""
    directions = ["fw", "bw"][: 1 + bidirectional]
    outputs, last = [], {}
    for side, direction in enumerate(directions):
        found = X.astype("float64")
        for number in range(num_layers):
            place = number * len(directions) + side
            state = [part[place] for part in begin]
            made = np.zeros((BATCH, TIME, HIDDEN))
            for t in range(TIME) if direction == "fw" else reversed(range(TIME)):
                new = step(found[:, t], state, f"_{direction}_{number}")
                inside = (t < lengths)[:, None]
                state = [np.where(inside, a, b) for a, b in zip(new, state, strict=True)]
                made[:, t] = state[0]
            found = made
            last[place] = state
        outputs.append(found)
    return np.concatenate(outputs, -1), [np.stack([last[p][part] for p in sorted(last)]) for part in range(len(begin))]


@each("bidirectional", [False, True])
@each("num_layers", [1, 2])
@each("batch_first", [True, False])
@each("given", [True, False])
@each("kind", ["basic_gru", "basic_lstm"])
def test_against_numpy(kind: str, given: bool, batch_first: bool, num_layers: int, bidirectional: bool) -> None:
    parts = 1 if kind == "basic_gru" else 2
    shape = (num_layers * (1 + bidirectional), BATCH, HIDDEN)
    begin = [RNG.standard_normal(shape).astype("float32") if given else np.zeros(shape, "float32") for _ in range(parts)]
    x = fluid.data("x", [None, None, FEATURES] if not given else list(X.shape) if batch_first else [TIME, BATCH, FEATURES])
    if not given:
        x.shape = (-1, TIME, FEATURES) if batch_first else (TIME, -1, FEATURES)
    lengths = fluid.data("lengths", [None], "int64") if given else None
    states = [layers.assign(part) if given else None for part in begin]
    function: Any = basic_gru if kind == "basic_gru" else basic_lstm
    out, *last = function(x, *states, HIDDEN, num_layers, lengths, bidirectional=bidirectional, batch_first=batch_first, **NAMED)
    executor = fluid.Executor()
    fluid.default_startup_program().random_seed = 2
    executor.run(fluid.default_startup_program())
    feed = {"x": X if batch_first else X.swapaxes(0, 1), **({"lengths": LENGTHS} if given else {})}
    found, *found_last = executor.run(feed=feed, fetch_list=[out, *last])
    found = found if batch_first else found.swapaxes(0, 1)
    step = gru_step if kind == "basic_gru" else lstm_step
    limits = LENGTHS if given else np.full(BATCH, TIME)
    wanted, wanted_last = expected(step, begin, num_layers, bidirectional, limits)
    np.testing.assert_allclose(found, wanted, 1e-4, 1e-5)
    for one, other in zip(found_last, wanted_last, strict=True):
        np.testing.assert_allclose(one, other, 1e-4, 1e-5)


def test_units_and_names() -> None:
    x, h, c = (fluid.data(name, [None, size]) for name, size in (("x", FEATURES), ("h", HIDDEN), ("c", HIDDEN)))
    gru = BasicGRUUnit("gru", HIDDEN, fluid.ParamAttr("W"), fluid.ParamAttr("B"))
    first = gru(x, h)
    assert gru.forward(x, first).shape == (-1, HIDDEN)
    lstm = BasicLSTMUnit("lstm", HIDDEN, fluid.ParamAttr("W2"), fluid.ParamAttr("B2"))
    hidden, cell = lstm(x, h, c)
    assert hidden.shape == cell.shape == (-1, HIDDEN)
    names = {parameter.name for parameter in fluid.default_main_program().all_parameters()}
    assert {"W_gate", "W_candidate", "B_gate", "B_candidate", "W2", "B2"} == names
    executor = fluid.Executor()
    executor.run(fluid.default_startup_program())
    feed = {
        name: RNG.standard_normal((2, size)).astype("float32") for name, size in (("x", FEATURES), ("h", HIDDEN), ("c", HIDDEN))
    }
    found = executor.run(feed=feed, fetch_list=[first, hidden, cell])
    np.testing.assert_allclose(found[0], gru_step(feed["x"], [feed["h"]], "")[0], 1e-4, 1e-5)
    for one, other in zip(found[1:], lstm_step(feed["x"], [feed["h"], feed["c"]], "2"), strict=True):
        np.testing.assert_allclose(one, other, 1e-4, 1e-5)


def test_parameters_are_named_as_in_files_of_that_time() -> None:
    x, h = fluid.data("x", [None, 3, FEATURES]), fluid.data("h", [None, HIDDEN])
    BasicGRUUnit("unit", HIDDEN)(layers.reduce_sum(x, dim=1), h)
    basic_gru(x, None, HIDDEN, num_layers=2)
    basic_lstm(x, None, None, HIDDEN, bidirectional=True, name="encoder")
    layers.rnn(layers.GRUCell(HIDDEN, name="gru"), x)
    layers.rnn(layers.LSTMCell(HIDDEN), x)
    layers.rnn(layers.LSTMCell(HIDDEN), x)
    names = {parameter.name for parameter in fluid.default_main_program().all_parameters()}
    gru = ["unit/BasicGRUUnit_0", "basic_gru_layers_0/BasicGRUUnit_0", "basic_gru_layers_1/BasicGRUUnit_0", "gru/BasicGRUUnit_0"]
    lstm = [
        "LSTMCell/BasicLSTMUnit_0",
        "LSTMCell/BasicLSTMUnit_1",
        "encoder_layers_0/BasicLSTMUnit_0",
        "encoder_reverse_layers_0/BasicLSTMUnit_0",
    ]
    assert names == {f"{name}.{kind}_{part}" for name in gru for kind in "wb" for part in (0, 1)} | {
        f"{name}.{kind}_0" for name in lstm for kind in "wb"
    }


def test_named_parameters_differ_by_layer_and_dropout_is_between_layers() -> None:
    x = fluid.data("x", list(X.shape))
    basic_gru(x, None, HIDDEN, 2, bidirectional=True, dropout_prob=0.5, param_attr=fluid.ParamAttr("w"), bias_attr=False)
    names = {parameter.name for parameter in fluid.default_main_program().all_parameters()}
    assert names == {f"w_{side}_{number}_{part}" for side in ("fw", "bw") for number in (0, 1) for part in ("gate", "candidate")}
    dropped = [op for block in fluid.default_main_program().blocks for op in block.ops if op.type == "dropout"]
    assert [op.attr("dropout_implementation") for op in dropped] == ["upscale_in_train"] * 4


def test_errors() -> None:
    x = fluid.data("x", list(X.shape))
    with pytest.raises(ProgramError, match="give both init_hidden and init_cell, or neither"):
        basic_lstm(x, layers.fill_constant([1, BATCH, HIDDEN], "float32", 0.0), None, HIDDEN)


@each("declared", [1, 6])
def test_data_of_other_lengths_than_declared(declared: int) -> None:
    x = layers.data("x", [-1, declared, FEATURES], append_batch_size=False)
    output, state = layers.rnn(layers.GRUCell(HIDDEN), x, sequence_length=fluid.data("lengths", [None], "int64"))
    exe = fluid.Executor()
    exe.run(fluid.default_startup_program())
    steps, last = exe.run(feed={"x": X, "lengths": LENGTHS}, fetch_list=[output, state])
    assert steps.shape == (BATCH, TIME, HIDDEN)
    np.testing.assert_allclose(last, steps[np.arange(BATCH), LENGTHS - 1], rtol=1e-5)
