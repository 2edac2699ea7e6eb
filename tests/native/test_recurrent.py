"""Recurrent networks of several layers and directions run natively, with their gradients, and give what numpy gives."""

from __future__ import annotations

import os
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
from checks import each, fresh_programs, some

import fluid
from fluid import layers
from fluid.ops.rnn import MODES, Geometry

SIZES = [(1, 1, 1, 1, 1), (5, 3, 17, 9, 2), (9, 1, 4, 33, 1), (3, 18, 5, 16, 3), (2, 2, 70, 130, 1)]
"""Steps, batch, features, hidden units, layers."""


def results(
    mode: str,
    sizes: tuple[int, ...],
    directions: int,
    feed: dict[str, Any],
    native: bool,
    ends: bool,
    lengths: Any = None,
) -> list[Any]:
    """The output and the last states of a network, and the gradients of their squares (or of the last states alone, `ends`)."""
    *_, features, hidden, count = sizes
    g = Geometry(mode, count, directions, features, hidden)
    with fresh_programs() as (main, _), patch.dict(os.environ, FLUID_NATIVE=str(int(native))):
        variables = [fluid.data(name, list(array.shape), "float64") for name, array in feed.items()]
        for var in variables:
            var.stop_gradient = False
        states = MODES[mode].states
        block = main.global_block()
        out, dropped, reserve = (block.create_var(name=name) for name in ("out", "dropped", "reserve"))
        lasts = [block.create_var(name=f"last{number}") for number in range(states)]
        inputs = {"Input": variables[0], "PreState": variables[1 : 1 + states], "WeightList": variables[1 + states :]}
        if lengths is not None:
            inputs["SequenceLength"] = [fluid.data("lengths", list(lengths.shape), "int64")]
            feed = {**feed, "lengths": lengths}
        outputs = {"Out": out, "State": lasts, "DropoutState": dropped, "Reserve": reserve}
        attrs = {"mode": mode, "input_size": features, "hidden_size": hidden, "num_layers": count, "is_bidirec": directions == 2}
        block.append_op("rnn", inputs, outputs, attrs)
        targets = lasts if ends else [out, *lasts]
        loss = layers.sums([layers.reduce_sum(layers.square(var)) for var in targets])
        fetches = [out, *lasts, *fluid.gradients(loss, variables)]
        executor = fluid.Executor()
        assert g.weight_shapes() == [var.shape for var in variables[1 + states :]]
        assert not native or "on numpy: none" in executor.plan(main, feed, fetches).to_string()
        return [np.asarray(array) for array in executor.run(main, feed, fetches)]


def feeds_of(mode: str, sizes: tuple[int, ...], directions: int) -> dict[str, Any]:
    """Random inputs, first states and weights of a network."""
    steps, batch, features, hidden, count = sizes
    g, random = Geometry(mode, count, directions, features, hidden), np.random.default_rng(0)
    shapes = [(steps, batch, features), *[(g.passes, batch, hidden)] * MODES[mode].states, *g.weight_shapes()]
    return {f"x{number}": random.uniform(-1, 1, shape) / max(shape[-1], 1) ** 0.5 for number, shape in enumerate(shapes)}


@each("directions", [1, 2])
@each("mode", MODES)
def test_sequences_of_different_lengths_beside_numpy(mode: str, directions: int) -> None:
    sizes = (5, 4, 7, 9, 2)
    feed, lengths = feeds_of(mode, sizes, directions), np.array([5, 1, 0, 3])
    native, on_numpy = (results(mode, sizes, directions, feed, is_native, False, lengths) for is_native in (True, False))
    for one, other in zip(native, on_numpy, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-9, atol=1e-11)


@pytest.mark.random
@each("ends", [False, True])
@each("directions", [1, 2])
@each("sizes", some(SIZES))
@each("mode", MODES)
def test_networks_beside_numpy(mode: str, sizes: tuple[int, ...], directions: int, ends: bool) -> None:
    feed = feeds_of(mode, sizes, directions)
    native, on_numpy = (results(mode, sizes, directions, feed, is_native, ends) for is_native in (True, False))
    for one, other in zip(native, on_numpy, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-9, atol=1e-11)
