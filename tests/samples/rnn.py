"""Samples of recurrent networks: each sequence for itself, step by step."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np

from .base import Data, Sample, add

data = Data("rnn")


def sigmoid(x: Any) -> Any:
    return 1 / (1 + np.exp(-x))


def step(mode: str, x: Any, h: Any, states: list[Any]) -> list[Any]:
    """The states after a step, from the two products."""
    if mode == "LSTM":
        (x_i, x_f, x_g, x_o), (h_i, h_f, h_g, h_o) = np.split(x, 4), np.split(h, 4)
        cell = sigmoid(x_f + h_f) * states[1] + sigmoid(x_i + h_i) * np.tanh(x_g + h_g)
        return [sigmoid(x_o + h_o) * np.tanh(cell), cell]
    if mode == "GRU":
        (x_r, x_z, x_n), (h_r, h_z, h_n) = np.split(x, 3), np.split(h, 3)
        z = sigmoid(x_z + h_z)
        return [z * states[0] + (1 - z) * np.tanh(x_n + sigmoid(x_r + h_r) * h_n)]
    return [np.tanh(x + h) if mode == "RNN_TANH" else np.maximum(x + h, 0)]


def network(mode: str, Input: Any, first: list[Any], weights: list[Any], lengths: Any, layers: int, directions: int) -> Any:
    """The output and the last states."""
    steps, batch = Input.shape[:2]
    hidden = first[0].shape[2]
    last = [np.array(state) for state in first]
    passes = layers * directions
    x = Input
    for layer in range(layers):
        out = np.zeros((steps, batch, directions * hidden), Input.dtype)
        for direction in range(directions):
            n = layer * directions + direction
            w_x, w_h, b_x, b_h = weights[2 * n], weights[2 * n + 1], weights[2 * (passes + n)], weights[2 * (passes + n) + 1]
            for row in range(batch):
                length = steps if lengths is None else int(lengths[row])
                states = [state[n, row] for state in first]
                for t in range(length)[:: -1 if direction else 1]:
                    states = step(mode, w_x @ x[t, row] + b_x, w_h @ states[0] + b_h, states)
                    out[t, row, direction * hidden : (direction + 1) * hidden] = states[0]
                for target, state in zip(last, states, strict=True):
                    target[n, row] = state
        x = out
    return x, last


def rnn(Input: Any, PreState: Any, WeightList: Any, SequenceLength: Any = None, **attrs: Any) -> Any:
    directions, layers = 1 + attrs.get("is_bidirec", False), attrs.get("num_layers", 1)
    out, last = network(attrs["mode"], Input, PreState, WeightList, SequenceLength, layers, directions)
    return {"Out": out, "State": last, "DropoutState": nothing_dropped(out, layers)}


def nothing_dropped(out: Any, layers: int) -> Any:
    return np.ones((*out.shape[:2], (layers - 1) * out.shape[2]), "uint8")


GATES = {"LSTM": 4, "GRU": 3, "RNN_TANH": 1, "RNN_RELU": 1}


def weights_of(mode: str, features: int, hidden: int, layers: int, directions: int) -> list[Any]:
    rows = GATES[mode] * hidden
    found = []
    for layer in range(layers):
        for _ in range(directions):
            found += [data(rows, directions * hidden if layer else features), data(rows, hidden)]
    return found + [data(rows) for _ in range(2 * layers * directions)]


def inputs_of(mode: str, steps: int, batch: int, hidden: int, layers: int = 1, directions: int = 1) -> dict[str, Any]:
    return {
        "Input": data(steps, batch, 3),
        "PreState": [data(layers * directions, batch, hidden) for _ in range(2 if mode == "LSTM" else 1)],
        "WeightList": weights_of(mode, 3, hidden, layers, directions),
    }


LENGTHS = {"SequenceLength": np.array([4, 1, 3], "int32")}

for mode in GATES:
    attrs: dict[str, Any] = {"mode": mode, "input_size": 3, "hidden_size": 2}
    both = {**attrs, "num_layers": 2, "is_bidirec": True}
    add("rnn", Sample(inputs_of(mode, 4, 2, 2), attrs, rnn, tolerance=3))
    add("rnn", Sample({**inputs_of(mode, 4, 3, 2, 2, 2), **LENGTHS}, both, rnn, tolerance=3))
    add("rnn", Sample(inputs_of(mode, 3, 2, 2, 2, 2), both, rnn, tolerance=3))


def is_dropped(inputs: dict[str, Any], outputs: dict[str, Any]) -> None:
    """Dropout drops a part of the first layer's output; the remainder, scaled up, is the second layer's input."""
    dropped = outputs["DropoutState"]
    assert dropped.dtype == np.uint8 and dropped.shape == (5, 20, 2) and 0.4 < dropped.mean() < 0.8
    w_x, w_h, w_x2, w_h2, b_x, b_h, b_x2, b_h2 = inputs["WeightList"]
    (before,) = inputs["PreState"]
    first = np.tanh(inputs["Input"][0] @ w_x.T + b_x + before[0] @ w_h.T + b_h)
    second = np.tanh(first * dropped[0] / 0.6 @ w_x2.T + b_x2 + before[1] @ w_h2.T + b_h2)
    np.testing.assert_allclose(outputs["Out"][0], second, 1e-4, 1e-6)


attrs = {"mode": "RNN_TANH", "input_size": 3, "hidden_size": 2, "num_layers": 2, "dropout_prob": 0.4, "seed": 5}
add("rnn", Sample(inputs_of("RNN_TANH", 5, 20, 2, 2), attrs, check=is_dropped, random=True))
add("rnn", Sample(inputs_of("RNN_TANH", 2, 2, 2, 2), {**attrs, "is_test": True}, rnn))


# ----------------------------------------------------------------------------------------------------------- cudnn_lstm
def cudnn_lstm(Input: Any, InitH: Any, InitC: Any, **given: Any) -> Any:
    directions, layers = 1 + given.get("is_bidirec", False), given.get("num_layers", 1)
    weights = given.get("WeightList")
    if weights is None:
        weights, flat = [], given["W"].reshape(-1)
        for like in weights_of("LSTM", Input.shape[2], InitH.shape[2], layers, directions):
            part, flat = np.split(flat, [like.size])
            weights.append(part.reshape(like.shape))
        assert not flat.size
    out, (h, c) = network("LSTM", Input, [InitH, InitC], weights, given.get("SequenceLength"), layers, directions)
    return {"Out": out, "LastH": h, "LastC": c, "StateOut": nothing_dropped(out, layers)}


attrs = {"input_size": 3, "hidden_size": 2}
found = inputs_of("LSTM", 3, 2, 2)
h, c = found.pop("PreState")
add("cudnn_lstm", Sample({**found, "InitH": h, "InitC": c}, attrs, cudnn_lstm, tolerance=3))
found = inputs_of("LSTM", 4, 3, 2, 2, 2)
h, c = found.pop("PreState")
flat = np.concatenate([weight.reshape(-1) for weight in found.pop("WeightList")])
both = {**attrs, "num_layers": 2, "is_bidirec": True, "is_test": True}
add("cudnn_lstm", Sample({**found, **LENGTHS, "InitH": h, "InitC": c, "W": flat}, both, cudnn_lstm, tolerance=3))


# --------------------------------------------------------------------------------------------------------- single steps
def lstm_unit(X: Any, C_prev: Any, forget_bias: float = 0.0) -> Any:
    i, f, o, g = np.split(X, 4, axis=1)
    cell = sigmoid(f + forget_bias) * C_prev + sigmoid(i) * np.tanh(g)
    return {"C": cell, "H": sigmoid(o) * np.tanh(cell)}


for given in ({}, {"forget_bias": 1.0}):
    add("lstm_unit", Sample({"X": data(3, 8), "C_prev": data(3, 2)}, given, lstm_unit))

FUNCTIONS = (lambda x: x, sigmoid, np.tanh, lambda x: np.maximum(x, 0))


def gru_unit(
    Input: Any,
    HiddenPrev: Any,
    Weight: Any,
    Bias: Any = None,
    activation: int = 2,
    gate_activation: int = 1,
    origin_mode: bool = False,
) -> Any:
    size = HiddenPrev.shape[1]
    gates, candidate = np.split(Weight.reshape(-1), [2 * size * size])
    x_u, x_r, x_c = np.split(Input if Bias is None else Input + Bias.reshape(-1), 3, axis=1)
    h_u, h_r = np.split(HiddenPrev @ gates.reshape(size, 2 * size), 2, axis=1)
    u, r = (FUNCTIONS[gate_activation](x).astype(Input.dtype) for x in (x_u + h_u, x_r + h_r))
    c = FUNCTIONS[activation](x_c + (r * HiddenPrev) @ candidate.reshape(size, size))
    hidden = u * HiddenPrev + (1 - u) * c if origin_mode else u * c + (1 - u) * HiddenPrev
    return {"Gate": np.concatenate([u, r, c], axis=1), "ResetHiddenPrev": r * HiddenPrev, "Hidden": hidden}


for given in ({}, {"origin_mode": True}, {"activation": 3, "gate_activation": 2}, {"activation": 0, "gate_activation": 1}):
    arrays = {"Input": data(3, 6), "HiddenPrev": data(3, 2), "Weight": data(2, 6)}
    add("gru_unit", Sample(arrays, given, gru_unit), Sample({**arrays, "Bias": data(1, 6)}, given, gru_unit))


# ------------------------------------------------------------------------------------- over sequences of different lengths
NAMES = {"identity": FUNCTIONS[0], "sigmoid": sigmoid, "tanh": np.tanh, "relu": FUNCTIONS[3]}
OFFSETS = (0, 2, 2, 5, 6)


def each_row(lod: Any, reverse: bool) -> Any:
    """For each sequence, its number and its rows in the order of the steps."""
    for number, (start, end) in enumerate(pairwise(lod)):
        yield number, range(start, end)[:: -1 if reverse else 1]


def lstmp(
    Input: Any,
    Weight: Any,
    Bias: Any,
    H0: Any = None,
    C0: Any = None,
    ProjWeight: Any = None,
    use_peepholes: bool = True,
    is_reverse: bool = False,
    gate_activation: str = "sigmoid",
    cell_activation: str = "tanh",
    candidate_activation: str = "tanh",
    proj_activation: str = "tanh",
    cell_clip: float = 0.0,
    proj_clip: float = 0.0,
) -> Any:
    size, handed = Weight.shape[1] // 4, Weight.shape[0]
    cells, out = np.zeros((len(Input), size), Input.dtype), np.zeros((len(Input), handed), Input.dtype)
    gate, candidate, activate, project = (
        NAMES[name] for name in (gate_activation, candidate_activation, cell_activation, proj_activation)
    )
    peephole = Bias[0, 4 * size :].reshape(3, size) if use_peepholes else np.zeros((3, size), Input.dtype)
    for number, rows in each_row(OFFSETS, is_reverse):
        h = np.zeros(handed, Input.dtype) if H0 is None else H0[number]
        c = np.zeros(size, Input.dtype) if C0 is None else C0[number]
        for row in rows:
            g, i, f, o = np.split(Input[row] + h @ Weight + Bias[0, : 4 * size], 4)
            c = gate(f + peephole[1] * c) * c + gate(i + peephole[0] * c) * candidate(g)
            c = np.clip(c, -cell_clip, cell_clip) if cell_clip else c
            h = gate(o + peephole[2] * c) * activate(c)
            if ProjWeight is not None:
                h = project(h @ ProjWeight)
                h = np.clip(h, -proj_clip, proj_clip) if proj_clip else h
            out[row], cells[row] = h, c
    return {"Hidden" if ProjWeight is None else "Projection": out, "Cell": cells}


lods: dict[str, Any] = {"Input": (OFFSETS,)}
arrays = {"Input": data(6, 8), "Weight": data(2, 8), "Bias": data(1, 14)}
first = {"H0": data(4, 2), "C0": data(4, 2)}
plain = {**arrays, "Bias": data(1, 8)}
add("lstm", Sample(arrays, {}, lstmp, lods=lods), Sample({**arrays, **first}, {"is_reverse": True}, lstmp, lods=lods))
add("lstm", Sample({**plain, **first}, {"use_peepholes": False}, lstmp, lods=lods))
others = {"gate_activation": "tanh", "cell_activation": "identity", "candidate_activation": "sigmoid"}
add("lstm", Sample(arrays, {**others, "is_reverse": True}, lstmp, lods=lods))
handed = {**arrays, "Weight": data(3, 8), "ProjWeight": data(2, 3)}
add("lstmp", Sample(handed, {}, lstmp, lods=lods))
add("lstmp", Sample({**handed, "H0": data(4, 3), "C0": data(4, 2)}, {"is_reverse": True}, lstmp, lods=lods))
clips = {"cell_clip": 0.3, "proj_clip": 0.2, "proj_activation": "identity"}
add("lstmp", Sample({**handed, "Bias": plain["Bias"]}, {**clips, "use_peepholes": False}, lstmp, lods=lods))


def gru(
    Input: Any,
    Weight: Any,
    H0: Any = None,
    Bias: Any = None,
    activation: str = "tanh",
    gate_activation: str = "sigmoid",
    is_reverse: bool = False,
    origin_mode: bool = False,
) -> Any:
    size, numbers = Weight.shape[0], list(NAMES)
    names = {"activation": numbers.index(activation), "gate_activation": numbers.index(gate_activation)}
    out = np.zeros((len(Input), size), Input.dtype)
    for number, rows in each_row(OFFSETS, is_reverse):
        h = np.zeros((1, size), Input.dtype) if H0 is None else H0[number : number + 1]
        for row in rows:
            h = gru_unit(Input[row : row + 1], h, Weight, Bias, **names, origin_mode=origin_mode)["Hidden"]
            out[row] = h[0]
    return {"Hidden": out}


arrays = {"Input": data(6, 6), "Weight": data(2, 6)}
more = {"H0": data(4, 2), "Bias": data(1, 6)}
add("gru", Sample(arrays, {}, gru, lods=lods), Sample({**arrays, **more}, {"is_reverse": True}, gru, lods=lods))
add("gru", Sample({**arrays, **more}, {"origin_mode": True, "activation": "identity"}, gru, lods=lods))
