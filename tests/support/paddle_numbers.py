"""Ops against numbers of Paddle, which a script beside golden/paddle_ops.py wrote."""

from __future__ import annotations

import json
from collections.abc import Collection
from typing import Any

import numpy as np
from paths import TESTS

from fluid.executor.binding.compiled import apply_op
from fluid.opdef import registry
from fluid.opdef.registry import grad_slot
from fluid.values.lod_array import array_of, lod_of, with_lod


def lod_from(levels: list[list[int]]) -> tuple[tuple[int, ...], ...]:
    return tuple(map(tuple, levels))


class PaddleNumbers:
    """A file of cases: an op, its inputs, and what Paddle makes of them."""

    def __init__(self, name: str) -> None:
        self._arrays = np.load(TESTS / "golden" / name)
        self.records: list[dict[str, Any]] = json.loads(str(self._arrays["records"]))
        self.names = [f"{number}-{record['type']}" for number, record in enumerate(self.records)]

    def _slots(self, number: int, side: str, lods: dict[str, Any]) -> dict[str, Any]:
        record, slots = self.records[number], {}
        for slot, levels in lods.items():
            items = [
                with_lod(self._arrays[f"{number}.{side}.{slot}.{place}"], lod_from(each)) for place, each in enumerate(levels)
            ]
            slots[slot] = items if slot in record["many"] else items[0]
        return slots

    def check(
        self, number: int, rtol: float = 2e-5, atol: float = 2e-6, signed: bool = True, skipping: Collection[str] = ()
    ) -> None:
        """The outputs of a case, with types, shapes and sequences, and the gradients that it has.

        Unless `signed`, outputs may have other signs (as eigenvectors do), and gradients are those at Paddle's outputs.
        """
        record = self.records[number]
        inputs = self._slots(number, "in", record["inputs"])
        expected = self._slots(number, "out", record["outputs"])
        outputs = apply_op(record["type"], inputs, record["attrs"])
        for slot, values in ((slot, values) for slot, values in expected.items() if slot not in skipping):
            for value, other in zip(listed(outputs[slot]), listed(values), strict=True):
                assert array_of(value).dtype == array_of(other).dtype, slot
                pair = [each if signed else np.abs(each) for each in (array_of(value), array_of(other))]
                np.testing.assert_allclose(*pair, rtol, atol, err_msg=slot)
                assert lod_of(value) == lod_of(other), slot
        if not record["wrt"]:
            return
        grad = registry.get(registry.get(record["type"]).grad_type)
        values = {name: value for name, value in {**inputs, **(outputs if signed else expected)}.items() if name in grad.inputs}
        zeros = {grad_slot(name): np.zeros_like(value) for name, value in outputs.items() if not isinstance(value, list)}
        zeros = {slot: value for slot, value in zeros.items() if slot in grad.inputs and not grad.inputs[slot].optional}
        seed = {grad_slot(next(iter(expected))): self._arrays[f"{number}.seed"]}
        grads = apply_op(grad.type, {**values, **zeros, **seed}, record["attrs"], {grad_slot(slot) for slot in record["wrt"]})
        for slot in record["wrt"]:
            gradient = array_of(grads[grad_slot(slot)])
            np.testing.assert_allclose(gradient, self._arrays[f"{number}.grad.{slot}"], 5e-5, 1e-5, err_msg=f"by {slot}")


def listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]
