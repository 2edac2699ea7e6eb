"""Ops on regions of interest, and deformable convolutions, against Paddle's numbers; golden/make_paddle_roi.py made them."""

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

GOLDEN = np.load(TESTS / "golden" / "paddle_roi.npz")
RECORDS = json.loads(str(GOLDEN["records"]))


@each("number", range(len(RECORDS)), ids=[f"{n}-{record['type']}" for n, record in enumerate(RECORDS)])
def test_values_and_gradients(number: int) -> None:
    record = RECORDS[number]
    inputs: dict[str, Any] = {slot: GOLDEN[f"{number}.in.{slot}"] for slot in record["inputs"]}
    for slot, lod in record["lods"].items():
        inputs[slot] = with_lod(inputs[slot], tuple(map(tuple, lod)))
    outputs = apply_op(record["type"], inputs, record["attrs"])
    for slot, value in outputs.items():
        expected = GOLDEN[f"{number}.out.{slot}"]
        assert array_of(value).dtype == expected.dtype
        np.testing.assert_allclose(array_of(value), expected, 2e-5, 2e-6, err_msg=slot)
        assert lod_of(value) == tuple(map(tuple, record["output_lod"]))
    grad = registry.get(registry.get(record["type"]).grad_type)
    values = {name: value for name, value in {**inputs, **outputs}.items() if name in grad.inputs}
    grads = apply_op(grad.type, {**values, grad_slot(next(iter(outputs))): GOLDEN[f"{number}.seed"]}, record["attrs"])
    names = [key.rpartition(".")[2] for key in GOLDEN.files if key.startswith(f"{number}.grad.")]
    assert set(grads) == set(map(grad_slot, names))
    for name in names:
        np.testing.assert_allclose(array_of(grads[grad_slot(name)]), GOLDEN[f"{number}.grad.{name}"], 5e-5, 1e-5, err_msg=name)
