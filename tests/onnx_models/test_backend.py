"""onnx's own test cases, which are in the package: all of domain ai.onnx without strings.

Each is loaded and run; what fails does so for a reason that `EXCLUDED` names, and nothing else fails.
"""

from __future__ import annotations

import fnmatch
import warnings
from pathlib import Path

import pytest

pytest.importorskip("onnx")

import cases

from fluid.errors import FluidError

EXCLUDED = {
    "test_bernoulli*": "random numbers are Fluid's own",
    "test_deform_conv_with_mask_bias": "its filter reads more channels than its image has: offset groups of other meaning",
    "test_dft_inverse*": "its expected values are float32 noise around 0, beyond the case's own tolerance",
    "test_if_opt": "an optional that only a run tells: what a program gives is a tensor or an array, never nothing",
    "test_image_decoder_*": "programs decode no images",
    "test_reshape_allowzero_reordered": "without elements, and of a shape that only a run tells",
    "test_training_dropout": "random numbers are Fluid's own",
    "test_training_dropout_default": "as above",
    "test_training_dropout_default_mask": "as above",
    "test_training_dropout_mask": "as above",
}
"""Patterns of names of cases that are not run, and why."""

SAMPLE = 2
"""Of how many cases in files the default run takes one."""


def excluded(name: str) -> str | None:
    return next((why for pattern, why in EXCLUDED.items() if fnmatch.fnmatchcase(name, pattern)), None)


def failures(names: list[str], folder: Path, kinds: tuple[str, ...] = cases.KINDS) -> dict[str, str]:
    """The failing cases, with their messages."""
    messages = {}
    for name in names:
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                cases.run(cases.all_cases(kinds)[name], folder / "model.onnx")
        except (FluidError, AssertionError) as error:
            messages[name] = f"{type(error).__name__}: {error}"
    return messages


@pytest.mark.numpy_alone
def test_a_sample(tmp_path: Path) -> None:
    names = [name for name in sorted(cases.all_cases(cases.IN_FILES)) if excluded(name) is None]
    assert failures(names[::SAMPLE], tmp_path, cases.IN_FILES) == {}


@pytest.mark.slow
@pytest.mark.numpy_alone
def test_all_but_the_excluded(tmp_path: Path) -> None:
    names = [name for name in cases.all_cases() if excluded(name) is None]
    assert failures(names, tmp_path) == {}
    assert len(names) >= 0.95 * len(cases.all_cases())


@pytest.mark.slow
@pytest.mark.numpy_alone
def test_the_excluded_fail(tmp_path: Path) -> None:
    """An exclusion that is needed no more is taken off the list."""
    names = [name for name in cases.all_cases() if excluded(name) is not None]
    drawn = [name for name in names if name.startswith(("test_bernoulli", "test_training_dropout"))]  # might come out right
    assert sorted(set(names) - failures(names, tmp_path).keys() - set(drawn)) == []


@pytest.mark.slow
@pytest.mark.parametrize("native", [pytest.param(True, id="native")])
def test_a_sample_by_native_code(native: bool, tmp_path: Path) -> None:
    pytest.importorskip("llvmlite")
    names = [name for name in sorted(cases.all_cases()) if excluded(name) is None]
    assert failures(names[7::10], tmp_path) == {}
