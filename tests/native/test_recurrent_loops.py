"""Recurrent layers whose steps are compiled once: long networks, and ops over sequences of different lengths, beside numpy."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
from checks import each

pytest.importorskip("llvmlite")

import fluid
from fluid.executor.binding.compiled import apply_op
from fluid.executor.native import recurrent_loops, step_loops
from fluid.values.lod_array import LoDArray

TOLERANCES = {"float32": 2e-5, "float64": 1e-13}
LENGTHS = {
    "different": (12, 3, 0, 9, 1, 12),
    "one": (20,),
    "equal": (9,) * 7,
    "one longer": (9, *[1] * 64),
    "many": tuple(np.random.default_rng(0).integers(0, 30, 67).tolist()),
}

DTYPES = {"different": "float64", "one": "float32", "equal": "float32", "one longer": "float64", "many": "float32"}


class Numbers:
    """Random arrays of one element type."""

    def __init__(self, dtype: str) -> None:
        self._random, self._dtype = np.random.default_rng(1), dtype

    def __call__(self, *shape: int) -> Any:
        return (self._random.standard_normal(shape) * 0.3).astype(self._dtype)

    def rows(self, lengths: Sequence[int], columns: int) -> Any:
        """Sequences of rows."""
        return LoDArray(self(sum(lengths), columns), (tuple(np.cumsum([0, *lengths]).tolist()),))


def arrays_of(results: dict[str, Any]) -> dict[str, Any]:
    """Results by slot and place, as plain arrays."""
    listed = {slot: value if isinstance(value, list) else [value] for slot, value in results.items()}
    items = {(slot, place): item for slot, values in listed.items() for place, item in enumerate(values) if item is not None}
    return {key: getattr(item, "array", item) for key, item in items.items()}


def beside_numpy(op_type: str, inputs: dict[str, Any], attrs: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """The results of an op on numpy; native steps have to come to the same."""
    monkeypatch.setenv("FLUID_NATIVE", "0")
    expected = apply_op(op_type, inputs, attrs)
    monkeypatch.setenv("FLUID_NATIVE", "1")
    with patch.object(step_loops.StepLoop, "run", autospec=True, side_effect=step_loops.StepLoop.run) as run:
        results = apply_op(op_type, inputs, attrs)
    assert run.called
    native = arrays_of(results)
    for key, array in arrays_of(expected).items():
        tolerance = TOLERANCES.get(str(array.dtype), 0) * max(1.0, np.abs(array).max(initial=0))
        np.testing.assert_allclose(native[key], array, 0, tolerance, err_msg=f"{op_type}: {key}")
    return expected


def in_turns(kinds: Iterable[Any]) -> list[tuple[Any, str]]:
    """Each kind with three of LENGTHS, others than the next kind, and the first with all: what a step computes, and which rows it
    computes, are written apart."""
    lengths = list(LENGTHS)
    first, *others = kinds
    pairs = [(kind, lengths[(start + 2 * place) % len(lengths)]) for start, kind in enumerate(others) for place in range(3)]
    return [(first, name) for name in lengths] + pairs


LSTMS: dict[str, dict[str, Any]] = {
    "peepholes": {},
    "backwards": {"is_reverse": True, "use_peepholes": False},
    "relu": {"cell_activation": "relu", "candidate_activation": "relu"},
    "gates of relu": {"gate_activation": "relu", "candidate_activation": "sigmoid", "use_peepholes": False},
    "identity": {"cell_activation": "identity", "candidate_activation": "identity", "use_peepholes": False},
    "sigmoid": {"cell_activation": "sigmoid", "candidate_activation": "sigmoid", "gate_activation": "tanh"},
}


@each("kind, lengths", in_turns(LSTMS))
def test_lstm(kind: str, lengths: str, monkeypatch: pytest.MonkeyPatch) -> None:
    numbers, sizes, attrs, hidden = Numbers(DTYPES[lengths]), LENGTHS[lengths], LSTMS[kind], 13
    inputs = {
        "Input": numbers.rows(sizes, 4 * hidden),
        "Weight": numbers(hidden, 4 * hidden),
        "Bias": numbers(1, (7 if attrs.get("use_peepholes", True) else 4) * hidden),
    }
    results = beside_numpy("lstm", inputs, attrs, monkeypatch)
    grads = {f"{slot}@GRAD": numbers.rows(sizes, hidden) for slot in ("Hidden", "Cell")}
    beside_numpy("lstm_grad", {**inputs, **results, **grads}, attrs, monkeypatch)


LSTMPS: dict[str, dict[str, Any]] = {
    "plain": {},
    "clipped": {"cell_clip": 0.2, "proj_clip": 0.1},
    "backwards": {"is_reverse": True, "proj_activation": "relu", "use_peepholes": False},
    "identity": {"proj_activation": "identity", "proj_clip": 0.3},
}


@each("kind, lengths", in_turns(LSTMPS))
def test_lstmp(kind: str, lengths: str, monkeypatch: pytest.MonkeyPatch) -> None:
    numbers, sizes, attrs, hidden, width = Numbers("float32"), LENGTHS[lengths], LSTMPS[kind], 9, 5
    inputs = {
        "Input": numbers.rows(sizes, 4 * hidden),
        "H0": numbers(len(sizes), width),
        "C0": numbers(len(sizes), hidden),
        "Weight": numbers(width, 4 * hidden),
        "ProjWeight": numbers(hidden, width),
        "Bias": numbers(1, (7 if attrs.get("use_peepholes", True) else 4) * hidden),
    }
    results = beside_numpy("lstmp", inputs, attrs, monkeypatch)
    grads = {"Projection@GRAD": numbers.rows(sizes, width), "Cell@GRAD": numbers.rows(sizes, hidden)}
    beside_numpy("lstmp_grad", {**inputs, **results, **grads}, attrs, monkeypatch)


@each("kind, lengths", in_turns(itertools.product([True, False], ["tanh", "relu", "identity"])))
def test_gru(kind: tuple[bool, str], lengths: str, monkeypatch: pytest.MonkeyPatch) -> None:
    origin_mode, activation = kind
    numbers, sizes, hidden = Numbers(DTYPES[lengths]), LENGTHS[lengths], 17
    attrs = {"origin_mode": origin_mode, "activation": activation, "is_reverse": origin_mode}
    inputs = {"Input": numbers.rows(sizes, 3 * hidden), "Weight": numbers(hidden, 3 * hidden), "Bias": numbers(1, 3 * hidden)}
    if origin_mode:
        inputs["H0"] = numbers(len(sizes), hidden)
    results = beside_numpy("gru", inputs, attrs, monkeypatch)
    grads = {"Hidden@GRAD": numbers.rows(sizes, hidden)}
    beside_numpy("gru_grad", {**inputs, **results, **grads}, attrs, monkeypatch)


@each("dtype", ["float32", "float64"])
@each("lengths", LENGTHS)
def test_crf_decoding(lengths: str, dtype: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same tags as on numpy, also where ways are equally good: scores are sums of few small integers."""
    sizes, tags, random = LENGTHS[lengths], 7, np.random.default_rng(3)
    rows = (*np.cumsum([0, *sizes]).tolist(),)
    labels = LoDArray(random.integers(0, tags, (rows[-1], 1)), (rows,))
    for scores in (random.integers(0, 3, (rows[-1], tags)), random.standard_normal((rows[-1], tags))):
        moves = random.integers(0, 2, (tags + 2, tags)) if scores.dtype == np.int64 else random.standard_normal((tags + 2, tags))
        inputs = {"Emission": LoDArray(scores.astype(dtype), (rows,)), "Transition": moves.astype(dtype)}
        path = arrays_of(beside_numpy("crf_decoding", inputs, {}, monkeypatch))["ViterbiPath", 0]
        is_right = arrays_of(beside_numpy("crf_decoding", {**inputs, "Label": labels}, {}, monkeypatch))["ViterbiPath", 0]
        np.testing.assert_array_equal(is_right, path == labels.array)
        padded = np.zeros((len(sizes), max(sizes) + 2, tags), dtype)
        for row, (start, size) in enumerate(zip(rows, sizes, strict=False)):
            padded[row, :size] = scores[start : start + size]
        of_lengths = {"Emission": padded, "Transition": inputs["Transition"], "Length": np.array(sizes)}
        by_row = arrays_of(beside_numpy("crf_decoding", of_lengths, {}, monkeypatch))["ViterbiPath", 0]
        within = np.arange(max(sizes) + 2) < np.array(sizes)[:, None]
        np.testing.assert_array_equal(by_row[within], path[:, 0])
        assert not by_row[~within].any()


def test_weights_in_any_layout(monkeypatch: pytest.MonkeyPatch) -> None:
    """A step reads weights at their addresses, so it needs contiguous ones."""
    numbers, sizes, hidden, width = Numbers("float32"), LENGTHS["different"], 9, 5
    inputs = {
        "Input": numbers.rows(sizes, 4 * hidden),
        "Weight": np.asfortranarray(numbers(width, 4 * hidden)),
        "ProjWeight": numbers(width, hidden).T,
        "Bias": numbers(1, 7 * hidden),
    }
    results = beside_numpy("lstmp", inputs, {}, monkeypatch)
    grads = {"Projection@GRAD": numbers.rows(sizes, width), "Cell@GRAD": numbers.rows(sizes, hidden)}
    beside_numpy("lstmp_grad", {**inputs, **results, **grads}, {}, monkeypatch)


MODES = {"LSTM": (4, 2), "GRU": (3, 1), "RNN_TANH": (1, 1), "RNN_RELU": (1, 1)}
"""Mode -> the number of its gates and of its states."""


@each("has_lengths", [False, True])
@each("directions", [1, 2])
@each("mode", MODES)
def test_rnn(mode: str, directions: int, has_lengths: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """What lies beyond the end of a sequence changes nothing, be it infinite."""
    (gates, states), numbers, (steps, batch, features, hidden, layers) = MODES[mode], Numbers("float32"), (20, 5, 7, 13, 2)
    attrs = {"mode": mode, "is_bidirec": directions == 2, "input_size": features, "hidden_size": hidden, "num_layers": layers}
    weights = [
        numbers(gates * hidden, columns)
        for layer in range(layers)
        for _ in range(directions)
        for columns in (directions * hidden if layer else features, hidden)
    ]
    biases = [numbers(gates * hidden) for _ in weights]
    inputs = {
        "Input": numbers(steps, batch, features),
        "PreState": [numbers(layers * directions, batch, hidden) for _ in range(states)],
        "WeightList": weights + biases,
    }
    if has_lengths:
        inputs["SequenceLength"] = np.array([20, 3, 0, 11, 7])
    results = beside_numpy("rnn", inputs, attrs, monkeypatch)
    state_grads = [numbers(layers * directions, batch, hidden) for _ in range(states)]
    grads = {"Out@GRAD": numbers(steps, batch, directions * hidden), "State@GRAD": state_grads}
    del results["State"]
    beside_numpy("rnn_grad", {**inputs, **results, **grads}, attrs, monkeypatch)
    if has_lengths:
        inputs["Input"] = inputs["Input"].copy()
        inputs["Input"][11:, 3:] = np.inf
        with np.errstate(invalid="ignore"):
            out = apply_op("rnn", inputs, attrs)["Out"]
        np.testing.assert_allclose(out, results["Out"], 1e-4, 1e-5)


def test_new_lengths_compile_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLUID_NATIVE", "1")
    numbers, random = Numbers("float32"), np.random.default_rng(2)
    parameters = {"Weight": numbers(11, 33), "Bias": numbers(1, 33)}
    moves = numbers(13, 11)
    with patch.object(step_loops, "_compiled", wraps=step_loops._compiled) as compiled:
        for number in range(12):
            sizes = [*random.integers(1, 30, 31).tolist(), 30]
            apply_op("gru", {"Input": numbers.rows(sizes, 33), **parameters})
            apply_op("crf_decoding", {"Emission": numbers.rows(sizes, 11), "Transition": moves})
            if not number:
                first = compiled.call_count
                assert first
    assert compiled.call_count == first


def test_padded_rows() -> None:
    """A few numbers of rows serve all; padding is less than half of them, but for very few rows."""
    numbers = {recurrent_loops.padded_rows(rows, 5000) for rows in range(1, 5000)}
    assert len(numbers) < 20
    for rows in range(5, 5000):
        assert rows <= recurrent_loops.padded_rows(rows, 5000) < 2 * rows
    assert recurrent_loops.padded_rows(1, 1) == 1


def test_a_long_network_trains_as_on_numpy(monkeypatch: pytest.MonkeyPatch) -> None:
    """One of more steps than a plan unrolls."""
    steps, batch, hidden = 300, 3, 8
    feed = {"x": np.random.default_rng(0).standard_normal((steps, batch, hidden)).astype("float32")}

    def losses() -> Any:
        main, startup = fluid.Program(), fluid.Program()
        startup.random_seed = 1
        with fluid.program_guard(main, startup), fluid.unique_name.guard():
            x = fluid.data("x", [steps, batch, hidden])
            zeros = fluid.layers.zeros([1, batch, hidden], "float32")
            out, _, _ = fluid.layers.lstm(x, zeros, zeros, steps, hidden, 1)
            loss = fluid.layers.mean(fluid.layers.square(out - 0.5))
            fluid.optimizer.SGD(0.5).minimize(loss)
        executor, scope = fluid.Executor(), fluid.Scope()
        executor.run(startup, scope=scope)
        return [executor.run(main, feed, [loss], scope=scope)[0] for _ in range(4)]

    monkeypatch.setenv("FLUID_NATIVE", "0")
    expected = losses()
    monkeypatch.setenv("FLUID_NATIVE", "1")
    with patch.object(step_loops.StepLoop, "run", autospec=True, side_effect=step_loops.StepLoop.run) as run:
        results = losses()
    assert run.call_count == 8
    np.testing.assert_allclose(results, expected, 1e-4)
    assert results[3] < results[0]
