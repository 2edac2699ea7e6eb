"""The programs in examples/, tiny, against Paddle's numbers: golden/make_paddle_book.py had it run files that Fluid writes."""

from __future__ import annotations

import json
from typing import Any

import book
import numpy as np
from checks import each
from paths import TESTS

import fluid

GOLDEN = TESTS / "golden" / "book"


def assert_close(found: Any, expected: Any, name: str) -> None:
    """To 1e-5 of each number, or of the array's largest, or to 1e-6: small ones are what sums leave, and how BLAS rounds them."""
    found = np.asarray(found)
    assert found.dtype == expected.dtype, name
    if expected.dtype.kind == "f":
        largest = float(np.abs(expected).max(initial=0))
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=max(1e-5 * largest, 1e-6), err_msg=name)
    else:
        np.testing.assert_array_equal(found, expected, name)


@each("name", book.CASES)
def test_numbers_are_paddles(name: str) -> None:
    golden = np.load(GOLDEN / f"{name}.npz")
    record = json.loads(str(golden["record"]))
    case = book.CASES[name]()
    book.prepare(case)
    for key, value in case.feed.items():
        np.testing.assert_array_equal(np.asarray(value), golden[f"feed.{key}"], f"{key} is no longer what Paddle was fed")
    executor = fluid.Executor(book.PLACE)
    for step in range(case.steps):
        fetch = [var.name for var in case.fetch] + (case.grads if step == 0 else [])
        for key, value in zip(fetch, executor.run(case.main, case.feed, fetch, return_numpy=False), strict=True):
            if key not in case.grads:
                assert value.lod() == record["lods"][f"step{step}.{key}"], key
            assert_close(value, golden[f"step{step}.{key}"], f"{key} of step {step}")
    for key in record["parameters"] if case.steps > 1 else ():
        assert_close(fluid.global_scope().find_var(key).get_tensor(), golden[f"last.{key}"], f"{key} in the end")


@each("name", ["recognize_digits", "understand_sentiment_conv", "image_classification_resnet"])
def test_files_say_all_that_paddle_must_be_told(name: str) -> None:
    """Paddle completes the attributes of ordinary ops alone, and reads slots that Fluid's own gradients do without."""
    program = fluid.Program.parse_from_string(book.CASES[name]().main.serialize_to_string())
    ops = program.global_block().ops
    grads = [op for op in ops if op.definition.forward is not None]
    assert grads
    for op in grads:
        assert set(op.definition.attrs) <= set(op.attrs), op.type
    assert all(op.output("ReserveSpace") for op in ops if op.type == "batch_norm")
    assert all(op.input("MaxIndex") for op in ops if op.type == "sequence_pool_grad")
