"""Facets: each states one thing that holds of the samples of all ops, on one engine."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

from checks import Checks
from conftest import Facts, merge
from numeric import flat
from samples import Sample

from fluid.executor.kernels.table import KERNELS
from fluid.opdef.registry import ZERO_GRADIENT, OpDef, Rule

from .case import CASES, Case, is_float

__all__ = [
    "FACETS", "NUMPY", "Engine", "Facet", "always", "check_facets", "every_dtype", "facet", "first_dtype", "float32", "float64",
    "has_gradient_kernel", "is_differentiated", "number_of", "widest_dtype",
]  # fmt: skip


@dataclass(frozen=True)
class Engine:
    """An engine that computes the samples of a facet.

    `package` has to be installed for it. `setting` is entered around each check.
    """

    name: str
    package: str = "numpy"
    setting: Callable[[], AbstractContextManager[Any]] = nullcontext

    @property
    def is_installed(self) -> bool:
        return find_spec(self.package) is not None


NUMPY = Engine("numpy")
FIRST = 2
"""How many samples of each op the default run checks on numpy."""


def number_of(key: str) -> int:
    """A sample's number in the list of its op."""
    return int(key.rpartition("-")[2])


def among_the_first(key: str, dtype: str) -> bool:
    return number_of(key) < FIRST


@dataclass(frozen=True)
class Facet:
    """One thing that holds of every sample that it applies to, in each of some dtypes.

    `is_quick` tells which samples, in which dtype, the default run checks. The slow tests check the others.
    """

    check: Callable[[Case], None]
    dtypes: Callable[[Sample], Sequence[str]]
    applies: Callable[[Case], bool]
    engine: Engine
    is_quick: Callable[[str, str], bool]

    @property
    def name(self) -> str:
        return self.check.__name__.replace("_", " ")


FACETS: list[Facet] = []


def every_dtype(sample: Sample) -> Sequence[str]:
    """All dtypes of a sample; a single one if no input is of floats."""
    floats = any(is_float(item) for value in sample.inputs.values() for item in flat(value))
    return sample.dtypes if floats else sample.dtypes[:1]


def first_dtype(key: str) -> str:
    return every_dtype(CASES[key][1])[0]


def widest_dtype(sample: Sample) -> Sequence[str]:
    return ["float64"] if "float64" in sample.dtypes else sample.dtypes[:1]


def float64(sample: Sample) -> Sequence[str]:
    return ["float64"]


def float32(sample: Sample) -> Sequence[str]:
    return ["float32"]


def always(case: Case) -> bool:
    return True


def is_differentiated(case: Case) -> bool:
    return bool(case.wrt)


def has_gradient_kernel(case: Case) -> bool:
    return bool(case.wrt) and case.definition.grad_type in KERNELS


def facet(
    dtypes: Callable[[Sample], Sequence[str]],
    applies: Callable[[Case], bool] = always,
    engine: Engine = NUMPY,
    is_quick: Callable[[str, str], bool] = among_the_first,
) -> Callable[[Callable[[Case], None]], Callable[[Case], None]]:
    """The function states a facet of the samples that `applies` says (told of them in float64)."""

    def add(check: Callable[[Case], None]) -> Callable[[Case], None]:
        if engine.is_installed:
            FACETS.append(Facet(check, dtypes, applies, engine, is_quick))
        return check

    return add


def check_facets(keys: Iterable[str], facts: Facts, is_chosen: Callable[[Facet, str, str], bool]) -> int:
    """Check the chosen facets of samples; the error tells of each that fails.

    Args:
        facts: what was checked is added to it.
        is_chosen: called with a facet, the key of a sample and a dtype.

    Returns the number of facets that were checked.
    """
    count = 0
    with Checks() as check:
        for key in keys:
            op_type, sample = CASES[key]
            chosen = [(item, dtype) for item in FACETS for dtype in item.dtypes(sample) if is_chosen(item, key, dtype)]
            probe = Case(key, "float64")
            computed: dict[str, dict[str, Any]] = {}
            for item, dtype in chosen:
                if not item.applies(probe):
                    continue
                case = Case(key, dtype, computed=computed.setdefault(dtype, {}))
                with check(f"{op_type}, sample {number_of(key)}, {item.name}, {dtype}"), item.engine.setting():
                    item.check(case)
                facets = f"{number_of(key)} {item.name} {dtype}"
                case.note(gradient=kind_of_gradient(case.definition), facets=facets, engines=item.engine.name)
                merge(facts, {op_type: case.facts})
                count += 1
    return count


def kind_of_gradient(definition: OpDef) -> str:
    """Who computes the gradient of an op."""
    if definition.rule is ZERO_GRADIENT:
        return "zero"
    if not isinstance(definition.rule, Rule):
        return "none"
    return "inline" if definition.inline_grad else "kernel" if definition.grad_type in KERNELS else "rule"
