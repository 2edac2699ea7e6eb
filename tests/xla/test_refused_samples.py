"""Samples that XLA cannot compile are refused. The facet `xla` of the conformance suite compares the others with numpy."""

from __future__ import annotations

import pytest
from checks import each

pytest.importorskip("jax")

from conformance.case import KEYS_OF, Case
from conformance.facet import first_dtype
from conformance.on_xla import NOT_COMPILED, run

from fluid.errors import ExecutionError
from fluid.executor.xla.callbacks import ON_HOST, REFUSED
from fluid.values.place import XLAPlace

pytestmark = [pytest.mark.numpy_alone, pytest.mark.usefixtures("quick_to_compile")]


def test_how_many_ops_are_compiled() -> None:
    assert 0 < len(REFUSED.keys() & KEYS_OF.keys()) / len(KEYS_OF) < 0.07
    assert len({*ON_HOST} & {*KEYS_OF}) <= 30


@each("op_type", sorted(REFUSED.keys() & KEYS_OF.keys()))
def test_refused_ops(op_type: str) -> None:
    key = KEYS_OF[op_type][0]
    with pytest.raises(ExecutionError, match="cannot run at an XLAPlace"):
        run(Case(key, first_dtype(key)), XLAPlace())


@each("key", NOT_COMPILED)
def test_shapes_that_values_decide_are_refused(key: str) -> None:
    with pytest.raises(ExecutionError, match=r"cannot run at an XLAPlace|asks for a value|a mask picks"):
        run(Case(key, first_dtype(key)), XLAPlace())
