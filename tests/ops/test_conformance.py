"""Every op of the registry against its samples: see `samples` for what they are, and `conformance` for the facets.

`test_samples[tanh]` checks the samples of an op and reports every facet that fails, with its sample; `test_further_samples[tanh]`
checks the samples that take long. ``--case tanh-3`` chooses samples, ``--facet xla`` facets.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any
from unittest.mock import patch

import checks
import numpy as np
import pytest
from conformance.case import CASES, KEYS_OF, ORDINARY, Case
from conformance.facet import FACETS, NUMPY, Facet, check_facets
from conformance.on_numpy import THIRD_ORDER, forward
from conftest import Facts
from numeric import flat
from paths import TESTS
from samples import OPS, STRUCTURAL, Sample

from fluid.executor.kernels.table import KERNELS, kernel
from fluid.opdef import registry
from fluid.opdef.registry import Rule

pytestmark = pytest.mark.numpy_alone


@pytest.mark.parametrize("op_type", KEYS_OF)
def test_samples(op_type: str, conformance: Facts, pytestconfig: pytest.Config) -> None:
    check_chosen(op_type, conformance, pytestconfig, lambda facet, key, dtype: facet.is_quick(key, dtype))


@pytest.mark.slow
@pytest.mark.parametrize("op_type", KEYS_OF)
def test_further_samples(op_type: str, conformance: Facts, pytestconfig: pytest.Config) -> None:
    check_chosen(op_type, conformance, pytestconfig, lambda facet, key, dtype: not facet.is_quick(key, dtype))


def check_chosen(op_type: str, facts: Facts, config: pytest.Config, is_due: Callable[[Facet, str, str], bool]) -> None:
    """Check those facets that are due and that the command line names."""
    word, key_word = config.getoption("facet"), config.getoption("case")
    keys = [key for key in KEYS_OF[op_type] if key_word in key]
    if not check_facets(keys, facts, lambda facet, key, dtype: word in facet.name and is_due(facet, key, dtype)):
        pytest.skip("no facet of these samples is chosen")


def test_the_default_run_has_each_facet() -> None:
    for facet in FACETS:
        assert any(facet.is_quick(key, dtype) for key, (_, sample) in CASES.items() for dtype in facet.dtypes(sample)), facet.name


# ------------------------------------------------------------------------------------------------------ completeness
@cache
def text_of(test_file: str) -> str:
    (path,) = TESTS.rglob(test_file.rpartition("/")[2])
    return path.read_text(encoding="utf-8")


def faults_of(op_type: str) -> Iterator[str]:
    """What is missing from an op."""
    if op_type in OPS and op_type not in ORDINARY:
        yield f"there are samples of {op_type}, but no such op"
    if op_type in STRUCTURAL and op_type not in text_of(STRUCTURAL[op_type]):
        yield f"{STRUCTURAL[op_type]} should cover {op_type}"
    if op_type not in ORDINARY:
        return
    definition = ORDINARY[op_type]
    if not definition.doc:
        yield f"{op_type} has no docstring"
    if definition.rule is None:
        yield f"{op_type} has neither a gradient rule nor a word on why not"
    if op_type in STRUCTURAL:
        return
    if op_type not in OPS:
        yield f"{op_type} is defined but has no samples; add some to tests/samples"
    if definition.infer is None and definition.composition is None:
        yield f"{op_type} has no inference"
    if op_type in KERNELS and definition.composition is not None:
        yield f"{op_type} is made of other ops and has a kernel, which nothing calls"
    if op_type not in KERNELS and definition.formula is None:
        yield f"{op_type} should have a kernel, or a formula of other ops"


@checks.each("op_type", sorted({*ORDINARY, *OPS, *STRUCTURAL}))
def test_op(op_type: str) -> None:
    """An op is complete: what it is, a kernel or what it is made of, and samples or a file that covers it."""
    faults = list(faults_of(op_type))
    assert not faults, "\n".join(faults)


def test_no_derivative_goes_unchecked() -> None:
    """Every op with a gradient has a sample that is differentiated twice, and one with an extent that inference can miss."""
    checked = {op_type for key, (op_type, sample) in CASES.items() if sample.orders >= 2 and Case(key, "float64").wrt}
    with_rule = {op_type for op_type, definition in ORDINARY.items() if isinstance(definition.rule, Rule)}
    assert with_rule - checked - set(STRUCTURAL) == set()
    ranked = {op_type for op_type, sample in CASES.values() if any(np.ndim(i) for v in sample.inputs.values() for i in flat(v))}
    assert {op_type for op_type in with_rule - set(STRUCTURAL) if ORDINARY[op_type].inputs} <= ranked
    assert set(CASES) >= THIRD_ORDER


# -------------------------------------------------------------------------------------------------------- the report
def test_the_report_names_each_facet_that_fails() -> None:
    """An op whose kernel is wrong in float32, and its gradient everywhere, fails in the facets that see it and in no other."""
    with patch.dict(registry._ops), patch.dict(KERNELS), patch.dict(ORDINARY), patch.dict(CASES):

        @registry.define("report_probe(X) -> Out", infer=registry.like("X"))
        def report_probe(f: Any, dOut: Any) -> Any:
            """Twice X; its gradient is off by a little."""
            return {"X": 2.001 * dOut}

        @kernel("report_probe")
        def twice(xp: Any, X: Any, Out: Any) -> None:
            xp.multiply(X, 2.01 if X.dtype == "float32" else 2, out=Out)

        @kernel("report_probe_grad")
        def three_times(xp: Any, dOut: Any, dX: Any) -> None:
            xp.multiply(dOut, 3, out=dX)

        ORDINARY["report_probe"] = report_probe
        CASES["report_probe-4"] = "report_probe", Sample({"X": np.ones(3)}, reference=lambda X: 2 * X)
        facts: Facts = {}
        with pytest.raises(AssertionError) as caught:
            check_facets(["report_probe-4"], facts, lambda facet, key, dtype: facet.engine is NUMPY)
    report = str(caught.value)
    assert re.findall(r"^report_probe, sample 4, (.*?):", report, re.MULTILINE) == [
        "forward, float32",
        "gradient rule, float64",
        "gradient kernel, float32",
        "gradient kernel, float64",
        "second order, float64",
    ]
    assert "Mismatched elements: 3 / 3" in report and "dX along a direction" in report
    first_line = inspect.getsourcelines(forward)[1]
    assert (
        first_line
        < int(re.search(r"\(conformance/on_numpy.py:(\d+)\)", report)[1])
        < first_line + len(inspect.getsourcelines(forward)[0])
    )
    assert facts["report_probe"]["facets"] >= {
        "4 forward float32",
        "4 forward float64",
        "4 plan float32",
        "4 second order float64",
    }
