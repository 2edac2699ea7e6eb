"""Whatever vectors, registers and limits are, native code computes the same (see `random_targets`)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import test_convolution
import test_integer_product
import test_matmul
import test_pooling
import test_winograd
from attack import instructions_of
from checked_plans import checked_plans
from checks import Checks, each
from harness import set_target
from random_targets import OTHER_TARGETS, random_target
from random_updates import check_updates
from test_plans import check_random

from fluid.executor.native.emitter import FLOAT
from fluid.executor.native.target import Target


@pytest.fixture(autouse=True)
def no_kept_plans(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLUID_NATIVE_CACHE", "0")


def check_programs(seed: int, target: Target, monkeypatch: pytest.MonkeyPatch) -> None:
    """Random programs in native code for a processor, beside numpy."""
    with pytest.MonkeyPatch.context() as patches:
        set_target(patches, target)
        check_random(instructions_of(seed, thorough=True), seed, monkeypatch)
        check_updates(seed, monkeypatch)


@each("name", OTHER_TARGETS)
@pytest.mark.parametrize("seeds", [range(4), pytest.param(range(4, 24), marks=pytest.mark.slow)], ids=["some", "many"])
def test_random_programs(name: str, seeds: range, monkeypatch: pytest.MonkeyPatch) -> None:
    with Checks() as checks:
        for seed in seeds:
            with checks(f"program {seed}"):
                check_programs(seed, OTHER_TARGETS[name], monkeypatch)


@pytest.mark.parametrize("seeds", [range(6), pytest.param(range(6, 90), marks=pytest.mark.slow)], ids=["some", "many"])
def test_random_programs_with_random_limits(seeds: range, monkeypatch: pytest.MonkeyPatch) -> None:
    """All accesses of the kernels are within their operands, too."""
    with Checks() as checks:
        for seed in seeds:
            with checks(f"program {seed}"), checked_plans(monkeypatch):
                check_programs(seed, random_target(seed), monkeypatch)


KERNELS: dict[str, tuple[list[Any], Callable[[Any, Target], Any]]] = {
    "products": (test_matmul.CASES, lambda case, target: test_matmul.check_product(case, target, FLOAT, checked=True)),
    "products of bytes": (test_integer_product.CASES, test_integer_product.check),
    "convolutions": (
        test_convolution.CASES + test_convolution.MORE,
        lambda case, target: test_convolution.check_convolution(case, target),
    ),
    "Winograd's": (test_winograd.CASES, lambda case, target: test_winograd.check(case, target)),
    "Winograd's gradients": (test_winograd.CASES, lambda case, target: test_winograd.check_gradient(case, target)),
    "pools": (test_pooling.CASES + test_pooling.MORE, lambda case, target: test_pooling.check_pools(case, target)),
}


@each("kind", KERNELS)
@pytest.mark.parametrize("seeds", [range(2), pytest.param(range(2, 16), marks=pytest.mark.slow)], ids=["some", "many"])
def test_kernels_with_random_limits(kind: str, seeds: range) -> None:
    cases, check = KERNELS[kind]
    with Checks() as checks:
        for seed in seeds:
            case = cases[seed % len(cases)]
            with checks(f"{case}, seed {seed}"):
                check(case, random_target(seed))
