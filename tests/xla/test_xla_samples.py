"""Every conformance sample, forward and gradient, compiled by XLA beside numpy."""

from __future__ import annotations

from itertools import groupby
from typing import Any

import numpy as np
import pytest
from checks import Checks, each
from numeric import flat
from support.comparing import VECTORS, assert_same_up_to_factors

pytest.importorskip("jax")

from test_conformance import CASES, Case, OneOp, every_dtype
from test_engines import NUMBERS

from fluid.errors import ExecutionError
from fluid.executor.executor import Executor
from fluid.executor.runtime.scope import Scope
from fluid.executor.xla.callbacks import ON_HOST, REFUSED
from fluid.initializer import value_attrs
from fluid.values.lod_array import lod_of
from fluid.values.place import XLAPlace

pytestmark = [pytest.mark.numpy_alone, pytest.mark.usefixtures("quick_to_compile")]

BOUNDS = {"float32": (1e-4, 1e-5), "float64": (1e-9, 1e-10)}
"""By the type of floats, how far XLA's results may be from numpy's, relative and absolute."""

CONSTANTS = [*NUMBERS, "Start", "End", "Stop", "Step", "Num", "Offset", "RoisNum"]
"""Slots with numbers that say what to compute, which a program has as constants."""
OF_OP = {
    **dict.fromkeys(("sequence_slice", "sequence_sliced", "sequence_unpad"), "Length"),
    **dict.fromkeys(("im2sequence", "lod_reset", "patch_index"), "Y"),
    "sequence_mask": "X",
}
"""Such a slot of an op."""

KEYS = {op_type: [key for key, _ in keys] for op_type, keys in groupby(CASES.items(), lambda item: item[1][0])}


class Traced(OneOp):
    """The program of one op, in which numbers that say what to compute are constants."""

    def _data(self, name: str, value: Any) -> Any:
        slot = name.rpartition("_")[0] if name.rpartition("_")[2].isdigit() else name
        is_constant = slot in CONSTANTS or slot == OF_OP.get(self.case.type)
        is_data = isinstance(value, list) or lod_of(value) or (slot == "Offset" and value.dtype.kind == "f")
        if not is_constant or is_data:
            return super()._data(name, value)
        block = self.program.global_block()
        var = block.create_var(name=name, shape=value.shape, dtype=value.dtype)
        if value.dtype == np.float64 and value.size > 1:  # sizes, which are whole numbers
            narrow = block.create_var(name=f"{name}_narrow", shape=value.shape, dtype="float32")
            block.append_op("assign_value", {}, {"Out": narrow}, value_attrs(value, narrow.dtype))
            block.append_op("cast", {"X": narrow}, {"Out": var}, {"in_dtype": narrow.dtype, "out_dtype": var.dtype})
        elif value.dtype == np.float64:
            attrs = {"shape": list(value.shape), "dtype": var.dtype, "value": value.item()}
            block.append_op("fill_constant", {}, {"Out": var}, attrs)
        else:
            block.append_op("assign_value", {}, {"Out": var}, value_attrs(value, var.dtype))
        return var


def run(case: Case, place: Any) -> tuple[list[str], list[Any]]:
    """Names and values of the outputs of a case, and of the gradients of its inputs."""
    one = Traced(case)
    fetch = [var for value in one.outputs.values() for var in flat(value)]
    if case.wrt and not case.sample.random:
        fetch += [gradient for gradient in one.first_order()[0] if gradient is not None]
    one.program.random_seed = 1
    return [var.name for var in fetch], Executor(place).run(one.program, one.fed, fetch, scope=Scope())


def check(key: str, dtype: str) -> None:
    sample = CASES[key][1]
    names, expected = run(Case(key, dtype), None)
    results = run(Case(key, dtype), XLAPlace())[1]
    rtol, atol = (bound * sample.tolerance for bound in BOUNDS[dtype])
    vectors = VECTORS.get(CASES[key][0], {}) if XLAPlace().device != "cpu" else {}  # whose signs are those of another library
    for name, value, other in zip(names, results, expected, strict=True):
        assert value.dtype == other.dtype and value.shape == other.shape, (name, value.shape, other.shape)
        if name in vectors:
            assert_same_up_to_factors(value, other, vectors[name], name)
        elif not sample.random and key not in DRAWN and not (vectors and name.endswith("@GRAD")):
            np.testing.assert_allclose(value, other, rtol, atol, err_msg=name)


DRAWN = ("random_crop-1", *KEYS["shuffle_batch"])
"""Samples that numpy's generator decides."""
NOT_COMPILED = {
    **{f"index_put-{number}": "a mask decides how many places there are" for number in (8, 9, 10, 11, 15)},
    **{f"picked_sum-{number}": "a mask decides how many places there are" for number in (5, 6, 7)},
    "where-4": "gives as many rows as it finds",
    "bilinear_interp_v2-9": "a scale that is fed decides a shape",
    "nearest_interp_v2-12": "a scale that is fed decides a shape",
}
"""Samples of ops that are compiled otherwise."""
COMPILED = [op_type for op_type in KEYS if op_type not in REFUSED]


def keys_of(op_type: str) -> list[str]:
    return [key for key in KEYS[op_type] if key not in NOT_COMPILED]


def test_how_many_ops_are_compiled() -> None:
    assert len(COMPILED) / len(KEYS) > 0.93 and len(KEYS) - len(COMPILED) == len(REFUSED.keys() & KEYS.keys())
    assert len({*ON_HOST} & {*KEYS}) <= 30


CROSS_SECTION = COMPILED[::24]
"""Ops of which the default run compiles the first sample."""


@each("op_type", CROSS_SECTION)
def test_first_samples(op_type: str) -> None:
    check(keys_of(op_type)[0], every_dtype(CASES[KEYS[op_type][0]][1])[0])


@pytest.mark.slow
@pytest.mark.parametrize("op_type", COMPILED)
def test_all_samples(op_type: str) -> None:
    with Checks() as checks:
        for key in keys_of(op_type):
            for dtype in every_dtype(CASES[key][1]):
                with checks(f"{key}, {dtype}"):
                    check(key, dtype)


@each("op_type", sorted(REFUSED.keys() & KEYS.keys()))
def test_the_others_are_refused(op_type: str) -> None:
    key = KEYS[op_type][0]
    with pytest.raises(ExecutionError, match="cannot run at an XLAPlace"):
        run(Case(key, every_dtype(CASES[key][1])[0]), XLAPlace())


@each("key", NOT_COMPILED)
def test_what_values_decide_is_an_error(key: str) -> None:
    with pytest.raises(ExecutionError, match=r"cannot run at an XLAPlace|asks for a value|a mask picks"):
        run(Case(key, every_dtype(CASES[key][1])[0]), XLAPlace())
