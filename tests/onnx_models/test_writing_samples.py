"""Conformance samples, forward and gradient, as ONNX models beside Fluid's own results."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
from checks import Checks, each
from numeric import flat

pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

from conformance.case import CASES, KEYS_OF, Case, OneOp
from conformance.facet import every_dtype
from onnx_running import run_program

from fluid.errors import BackwardError, InferenceError, ProgramError
from fluid.executor.executor import Executor
from fluid.executor.runtime.scope import Scope
from fluid.onnx.writing.refused import REFUSED

pytestmark = pytest.mark.numpy_alone

EXPORTED = {op_type: keys for op_type, keys in KEYS_OF.items() if op_type not in REFUSED}
BOUNDS = {"float32": (2e-5, 1e-5), "float64": (1e-6, 1e-7)}
"""By the type of floats, how far results may be from Fluid's, relative and absolute."""
TELLS = (
    "axis that is computed", "axes that are computed", "strides that are computed", "a size that is computed", "which is drawn",
    "levels of sequences", "one memory for several tensors", "margins in the mode", "of different sizes",
    "known only at run time", "elements of complex", "polygons", "boxes of each class", "a threshold that falls", "before opset",
)  # fmt: skip
"""Parts of the reasons for which some samples of ops are not written."""


class AnyBatch(OneOp):
    """A program with unknown first dimensions."""

    def _data(self, name: str, value: Any) -> Any:
        var = super()._data(name, value)
        if not isinstance(value, list) and "factor" not in name and var.shape:
            var._shape = (-1, *var.shape[1:])
        return var


def check(key: str, dtype: str, opset: int = 18, kind: type[OneOp] = OneOp) -> bool:
    """Compare a sample with its model; returns whether it is written."""
    case = Case(key, dtype)
    one = kind(case)
    fetch = [var for value in one.outputs.values() for var in flat(value)]
    if case.definition.decomposition is not None:  # others are internal
        assert case.rule is not None
        fetch = [var for slot in case.rule.cotangents for var in flat(one.outputs.get(slot) or [])]
    if case.wrt:
        fetch += [gradient for gradient in one.first_order()[0] if gradient is not None]
    fetch = list({var.name: var for var in fetch}.values())
    if not fetch:
        return True
    one.program.random_seed = 1
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        expected = Executor().run(one.program, one.fed, fetch, scope=Scope(), return_numpy=False)
        try:
            results = run_program(one.program, one.fed, [var.name for var in fetch], opset=opset)
        except ProgramError as error:
            if any(part in str(error) for part in TELLS):
                return False
            raise
    rtol, atol = (bound * max(1.0, case.sample.tolerance) for bound in BOUNDS[dtype])
    for var, value, result in zip(fetch, expected, results, strict=True):
        array = np.asarray(getattr(value, "array", value))
        assert result.shape == array.shape and result.dtype == array.dtype, var.name
        if not case.sample.random:
            np.testing.assert_allclose(result, array, rtol, atol, err_msg=var.name)
    return True


@each("op_type", EXPORTED)
def test_first_samples(op_type: str) -> None:
    key = EXPORTED[op_type][0]
    check(key, every_dtype(CASES[key][1])[0])


@pytest.mark.slow
@pytest.mark.parametrize("op_type", EXPORTED)
def test_all_samples(op_type: str) -> None:
    """Samples agree in each element type; at least one sample of an op is written."""
    count = 0
    with Checks() as checks:
        for key in EXPORTED[op_type]:
            for dtype in every_dtype(CASES[key][1]):
                if dtype == "float64" and CASES[key][1].attrs.get("groups", 1) > 1:
                    continue  # onnxruntime has no such convolutions, and the reference evaluator fails on groups
                with checks(f"{key}, {dtype}"):
                    count += check(key, dtype)
    assert count or op_type in ("coalesce_tensor", "concat_like", "gather_like", "strided_slice_like")


@pytest.mark.slow
@pytest.mark.parametrize("opset", [13, 15, 16, 17, 21, 23])
def test_samples_in_each_opset(opset: int) -> None:
    """Of each op the first sample; before opset 16 nothing adds by index along an axis, before 18 nothing compares bits."""
    with Checks() as checks:
        for op_type, keys in EXPORTED.items():
            with checks(op_type):
                try:
                    check(keys[0], every_dtype(CASES[keys[0]][1])[0], opset)
                except ProgramError as error:
                    assert opset < 18 and "before opset" in str(error)


UNKNOWN = {"squeeze", "squeeze2"}
"""Ops of which samples do not fit together where a size is not known."""


@pytest.mark.slow
@pytest.mark.parametrize("op_type", [op_type for op_type in EXPORTED if op_type not in UNKNOWN])
def test_samples_of_any_batch(op_type: str) -> None:
    """Programs with unknown first sizes of all inputs, if inference works without them."""
    with Checks() as checks:
        for key in EXPORTED[op_type]:
            with checks(key):
                try:
                    check(key, every_dtype(CASES[key][1])[0], kind=AnyBatch)
                except (BackwardError, InferenceError):
                    continue
