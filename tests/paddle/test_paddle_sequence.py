"""Ops on sequences against Paddle's own numbers; golden/make_paddle_sequence.py made them."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
from checks import each
from paths import TESTS

from fluid.executor.binding.compiled import apply_op
from fluid.opdef import registry
from fluid.opdef.registry import grad_slot
from fluid.values.lod_array import array_of, lod_of, with_lod

GOLDEN = np.load(TESTS / "golden" / "paddle_sequence.npz")
RECORDS = json.loads(str(GOLDEN["records"]))


def as_lod(levels: list[list[int]]) -> Any:
    return tuple(tuple(level) for level in levels)


@each("number", range(len(RECORDS)), ids=[f"{n}-{record['type']}" for n, record in enumerate(RECORDS)])
def test_values_lod_and_gradients(number: int) -> None:
    record = RECORDS[number]
    inputs: dict[str, Any] = {}
    for slot, given in record["inputs"].items():
        values = [with_lod(GOLDEN[f"{number}.in.{slot}.{at}"], as_lod(lod)) for at, lod in enumerate(given["lods"])]
        inputs[slot] = values if given["many"] else values[0]
    outputs = apply_op(record["type"], inputs, record["attrs"])
    for slot, lod in record["outputs"].items():
        expected = GOLDEN[f"{number}.out.{slot}"]
        np.testing.assert_allclose(array_of(outputs[slot]), expected, rtol=1e-5, atol=1e-6)
        assert lod_of(outputs[slot]) == as_lod(lod)
    if f"{number}.seed" not in GOLDEN:
        return
    definition = registry.get(record["type"])
    slot = next(iter(record["outputs"]))
    seed = with_lod(GOLDEN[f"{number}.seed"], lod_of(outputs[slot]))
    if definition.inline_grad:  # that of sequence_reverse is sequence_reverse
        grads = {grad_slot("X"): apply_op(record["type"], {"X": seed})["Y"]}
    else:
        grad = registry.get(definition.grad_type)
        values = {name: value for name, value in {**inputs, **outputs}.items() if name in grad.inputs}
        grads = apply_op(grad.type, {**values, grad_slot(slot): seed}, record["attrs"])
    for slot, given in record["inputs"].items():
        for at, lod in enumerate(given["lods"]):
            key = f"{number}.grad.{slot}{at}"
            if key in GOLDEN:
                found = grads[grad_slot(slot)]
                found = found[at] if given["many"] else found
                np.testing.assert_allclose(array_of(found), GOLDEN[key], rtol=1e-5, atol=1e-6)
                assert lod_of(found) == as_lod(lod)
