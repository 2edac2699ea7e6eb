"""The facet on native code: results beside numpy's."""

from __future__ import annotations

import os
from contextlib import AbstractContextManager
from typing import Any
from unittest.mock import patch

import numpy as np

from fluid.executor.executor import Executor
from fluid.executor.planned import plan
from fluid.executor.runtime.scope import Scope
from fluid.values.lod_array import array_of

from .case import CASES, KEYS_OF, Case, OneOp
from .facet import Engine, every_dtype, facet, first_dtype

__all__: list[str] = []

BOUNDS = {"float32": (5e-6, 5e-6), "float64": (1e-12, 1e-12)}
"""By the type of floats, how far native code may be from numpy's results, relative and absolute; for all ops."""
UNITS = 12
"""The same in units of the last place of the largest number that an op reads or writes. docs/how_to/same_results.md says 6: other
processors have other vectors, which sum in another order."""


def for_single_ops() -> AbstractContextManager[Any]:
    """Native code is made of programs of one op, too."""
    return patch.object(plan, "_FEWEST", 1)


FIRST_OF = {op_type: next((key for key in keys if not CASES[key][1].random), "") for op_type, keys in KEYS_OF.items()}
"""The first sample of each op that does not draw."""


def is_the_first(key: str, dtype: str) -> bool:
    return FIRST_OF[CASES[key][0]] == key and dtype == first_dtype(key)


@facet(every_dtype, lambda case: not case.sample.random, Engine("native code", "llvmlite", for_single_ops), is_the_first)
def native_code(case: Case) -> None:
    """Results and gradients in native code beside numpy's."""
    one = OneOp(case)
    fetch = one.with_gradients()
    one.program.random_seed = 1
    results = []
    for native in "01":
        with patch.dict(os.environ, FLUID_NATIVE=native):
            results.append(Executor().run(one.program, one.fed, fetch, scope=Scope()))
    rtol, atol = BOUNDS[case.dtype]
    largest_input = max(map(largest, one.fed.values()), default=0.0)
    for var, expected, value in zip(fetch, *results, strict=True):
        assert value.dtype == expected.dtype and value.shape == expected.shape, var.name
        np.testing.assert_allclose(value, expected, rtol, atol, err_msg=var.name)
        if value.dtype.kind == "f":
            unit = np.finfo(value.dtype).eps * max(largest_input, largest(expected))
            np.testing.assert_allclose(value, expected, 0, UNITS * unit, err_msg=var.name)


def largest(value: Any) -> float:
    """The largest finite number in a feed or an array."""
    if isinstance(value, list):
        return max(map(largest, value), default=0.0)
    array = np.asarray(array_of(value[0] if isinstance(value, tuple) else value))
    return float(np.abs(array[np.isfinite(array)]).max(initial=0)) if array.dtype.kind == "f" else 0.0
