"""The facet on XLA: results of compiled programs beside numpy's."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
from checks import few_optimizations
from support.comparing import VECTORS, assert_same_up_to_factors

from fluid.executor.executor import Executor
from fluid.executor.runtime.scope import Scope
from fluid.initializer import value_attrs
from fluid.values.lod_array import lod_of
from fluid.values.place import XLAPlace

from .case import CASES, KEYS_OF, NUMBERS, Case, OneOp
from .facet import Engine, every_dtype, facet, first_dtype, number_of

__all__ = ["NOT_COMPILED", "Traced", "run"]

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


class Traced(OneOp):
    """The program of one op. Slots in `CONSTANTS` hold constants, because a compiled program needs their values."""

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
    fetch = one.results if case.sample.random else one.with_gradients()
    one.program.random_seed = 1
    return [var.name for var in fetch], Executor(place).run(one.program, one.fed, fetch, scope=Scope())


DRAWN = ("random_crop-1", *KEYS_OF["shuffle_batch"])
"""Samples that numpy's generator decides."""
NOT_COMPILED = {
    **{f"index_put-{number}": "a mask decides how many places there are" for number in (8, 9, 10, 11, 15)},
    **{f"picked_sum-{number}": "a mask decides how many places there are" for number in (5, 6, 7)},
    "where-4": "the number of rows depends on values",
    "bilinear_interp_v2-9": "a scale that is fed decides a shape",
    "nearest_interp_v2-12": "a scale that is fed decides a shape",
    **dict.fromkeys(("unpool-3", "unpool-4", "unpool3d-2", "unpool3d-3"), "sizes that are fed decide a shape"),
}
"""Samples of ops that are compiled otherwise."""
CROSS_SECTION = frozenset(list(KEYS_OF)[::24])
"""Ops of which the default run compiles the first sample."""


@cache
def refused() -> dict[str, str]:
    """Ops that XLA cannot compute, with the reasons; the import needs jax."""
    from fluid.executor.xla.callbacks import REFUSED

    return REFUSED


def is_compiled(case: Case) -> bool:
    return case.key not in NOT_COMPILED and case.type not in refused()


def is_in_cross_section(key: str, dtype: str) -> bool:
    return CASES[key][0] in CROSS_SECTION and number_of(key) == 0 and dtype == first_dtype(key)


@facet(every_dtype, is_compiled, Engine("XLA", "jax", few_optimizations), is_in_cross_section)
def xla(case: Case) -> None:
    """Results and gradients of the program that XLA compiles beside numpy's."""
    names, expected = run(case, None)
    _, results = run(Case(case.key, case.dtype), XLAPlace())  # a new case has the same random factors
    rtol, atol = (bound * case.sample.tolerance for bound in BOUNDS[case.dtype])
    vectors = VECTORS.get(case.type, {}) if XLAPlace().device != "cpu" else {}  # their signs differ between libraries
    for name, value, reference in zip(names, results, expected, strict=True):
        assert value.dtype == reference.dtype and value.shape == reference.shape, (name, value.shape, reference.shape)
        if name in vectors:
            assert_same_up_to_factors(value, reference, vectors[name], name)
        elif not case.sample.random and case.key not in DRAWN and not (vectors and name.endswith("@GRAD")):
            np.testing.assert_allclose(value, reference, rtol, atol, err_msg=name)
