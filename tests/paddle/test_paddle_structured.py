"""Structured prediction against Paddle's own numbers; golden/make_paddle_structured.py made them."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
from checks import each
from paths import TESTS

import fluid
from fluid.executor.binding.compiled import apply_op
from fluid.opdef import registry
from fluid.opdef.registry import grad_slot
from fluid.values.lod_array import array_of, lod_of, with_lod

GOLDEN = np.load(TESTS / "golden" / "paddle_structured.npz")
RECORDS = json.loads(str(GOLDEN["records"]))
SEARCHES = json.loads(str(GOLDEN["searches"]))


def as_lod(levels: list[list[int]]) -> Any:
    return tuple(tuple(level) for level in levels)


def ours(slot: str) -> str:
    return slot.replace("F1-Score", "F1_Score")


@each("number", range(len(RECORDS)), ids=[f"{n}-{record['type']}" for n, record in enumerate(RECORDS)])
def test_values_lod_and_gradients(number: int) -> None:
    record = RECORDS[number]
    inputs: dict[str, Any] = {
        slot: with_lod(GOLDEN[f"{number}.in.{slot}"], as_lod(lod)) for slot, lod in record["inputs"].items()
    }
    outputs = apply_op(record["type"], inputs, record["attrs"])
    if record["type"] == "nce":  # what Paddle drew, we do not: hence from here on
        outputs = drawn_by_paddle(number, inputs, record["attrs"])
    for slot, lod in record["outputs"].items():
        expected = GOLDEN[f"{number}.out.{slot}"]
        found = outputs[ours(slot)]
        if slot in ("Alpha", "EmissionExps") and "Length" in inputs:  # padding holds anything
            inside = np.arange(expected.shape[1]) < inputs["Length"].reshape(-1, 1)
            found, expected = found[inside], expected[inside]
        np.testing.assert_allclose(array_of(found), expected, rtol=2e-5, atol=1e-6)
        if slot not in ("Alpha", "EmissionExps"):
            assert lod_of(found) == as_lod(lod)
    if f"{number}.seed" not in GOLDEN:
        return
    grad = registry.get(registry.get(record["type"]).grad_type)
    values = {name: value for name, value in {**inputs, **outputs}.items() if name in grad.inputs}
    slot = ours(next(iter(record["outputs"])))
    grads = apply_op(grad.type, {**values, grad_slot(slot): GOLDEN[f"{number}.seed"]}, record["attrs"])
    for slot, lod in record["inputs"].items():
        key = f"{number}.grad.{slot}"
        if key in GOLDEN:
            np.testing.assert_allclose(array_of(grads[grad_slot(slot)]), GOLDEN[key], rtol=2e-5, atol=2e-6)
            assert lod_of(grads[grad_slot(slot)]) == as_lod(lod)


def drawn_by_paddle(number: int, inputs: dict[str, Any], attrs: dict[str, Any]) -> dict[str, Any]:
    """The cost of nce for the classes that Paddle drew, by plain numpy: compared with Paddle here, and with ours in the
    samples."""
    from samples.sampling import nce_cost

    labels = GOLDEN[f"{number}.out.SampleLabels"]
    cost, found = nce_cost(
        labels=labels, **inputs, **{key: attrs[key] for key in ("num_total_classes", "num_neg_samples", "sampler")}
    )
    return {"Cost": cost, "SampleLogits": found, "SampleLabels": labels}


@each("number", range(len(SEARCHES)))
def test_beam_search_decode(number: int) -> None:
    """Backtracking through the selected entries, over arrays of tensors."""
    from fluid import layers

    search = SEARCHES[number]
    main = fluid.Program()
    feed: dict[str, Any] = {}
    with fluid.program_guard(main):
        lists: dict[str, Any] = {}
        for step, lod in enumerate(search["steps"]):
            at = layers.fill_constant([1], "int64", step)
            for name, dtype in (("ids", "int64"), ("scores", "float32")):
                var = layers.data(f"{name}{step}", [1], dtype=dtype, lod_level=2)
                feed[var.name] = (GOLDEN[f"search{number}.{name}.{step}"], lod)
                lists[name] = layers.array_write(var, at, lists.get(name))
        found = layers.beam_search_decode(lists["ids"], lists["scores"], beam_size=2, end_id=0)
    ids, scores = fluid.Executor().run(main, feed=feed, fetch_list=list(found), return_numpy=False)
    np.testing.assert_array_equal(np.asarray(ids), GOLDEN[f"search{number}.out.SentenceIds"])
    np.testing.assert_array_equal(np.asarray(scores), GOLDEN[f"search{number}.out.SentenceScores"])
    assert ids.lod() == scores.lod() == search["lod"]
