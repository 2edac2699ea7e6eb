"""Every conformance sample, forward and gradient, in native code beside numpy."""

from __future__ import annotations

from itertools import groupby
from typing import Any

import numpy as np
import pytest
from checks import Checks, each
from numeric import flat
from test_conformance import CASES, Case, OneOp, every_dtype

from fluid.executor.executor import Executor
from fluid.executor.planned import plan
from fluid.executor.runtime.scope import Scope
from fluid.values.lod_array import array_of

BOUNDS = {"float32": (5e-6, 5e-6), "float64": (1e-12, 1e-12)}
"""By the type of floats, how far native code may be from numpy's results, relative and absolute; for all ops."""
UNITS = 12
"""The same in units of the last place of the largest number that an op reads or writes. docs/how_to/same_results.md says 6: other
processors have other vectors, which sum in another order."""

KEYS = {
    op_type: [key for key, (_, sample) in keys if not sample.random]
    for op_type, keys in groupby(CASES.items(), lambda item: item[1][0])
}


@pytest.fixture(autouse=True)
def of_single_ops(monkeypatch: pytest.MonkeyPatch) -> None:
    """Native code is made of programs of one op, too, and a fault in it is an error."""
    monkeypatch.setattr(plan, "_FEWEST", 1)


def check(key: str, dtype: str, monkeypatch: pytest.MonkeyPatch) -> None:
    case = Case(key, dtype)
    one = OneOp(case)
    fetch = [var for value in one.outputs.values() for var in flat(value)]
    if case.wrt:
        fetch += [gradient for gradient in one.first_order()[0] if gradient is not None]
    one.program.random_seed = 1
    results = []
    for native in "01":
        monkeypatch.setenv("FLUID_NATIVE", native)
        results.append(Executor().run(one.program, one.fed, fetch, scope=Scope()))
    rtol, atol = BOUNDS[dtype]
    largest_input = max(map(largest, one.fed.values()), default=0.0)
    for var, expected, value in zip(fetch, *results, strict=True):
        assert value.dtype == expected.dtype and value.shape == expected.shape, var.name
        np.testing.assert_allclose(value, expected, rtol, atol, err_msg=var.name)
        if value.dtype.kind == "f":
            unit = np.finfo(value.dtype).eps * max(largest_input, largest(expected))
            np.testing.assert_allclose(value, expected, 0, UNITS * unit, err_msg=var.name)


def largest(value: Any) -> float:
    """The largest finite number of what is fed, or of an array."""
    if isinstance(value, list):
        return max(map(largest, value), default=0.0)
    array = np.asarray(array_of(value[0] if isinstance(value, tuple) else value))
    return float(np.abs(array[np.isfinite(array)]).max(initial=0)) if array.dtype.kind == "f" else 0.0


@each("op_type", [op_type for op_type, keys in KEYS.items() if keys])
def test_first_samples(op_type: str, monkeypatch: pytest.MonkeyPatch) -> None:
    check(KEYS[op_type][0], every_dtype(CASES[KEYS[op_type][0]][1])[0], monkeypatch)


@pytest.mark.slow
@pytest.mark.parametrize("op_type", KEYS)
def test_all_samples(op_type: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with Checks() as checks:
        for key in KEYS[op_type]:
            for dtype in every_dtype(CASES[key][1]):
                with checks(f"{key}, {dtype}"):
                    check(key, dtype, monkeypatch)
