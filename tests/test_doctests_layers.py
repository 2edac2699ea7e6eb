"""Every example in a docstring of `fluid.layers` runs and prints what it says, and the most used layers have one."""

from __future__ import annotations

import doctest
import importlib
import inspect
import pkgutil
from types import ModuleType

import numpy as np
import pytest

import fluid
from fluid import layers


def docstrings(module: ModuleType) -> list[doctest.DocTest]:
    """The docstrings with examples of a module and of its public functions and classes, with what their examples need."""
    public = {name: inspect.unwrap(getattr(module, name)) for name in module.__all__ if callable(getattr(module, name))}
    names = {"fluid": fluid, "layers": layers, "np": np}
    found = doctest.DocTestFinder(recurse=False, exclude_empty=True).find(module, module.__name__, globs=names)
    for name, value in public.items():
        found += doctest.DocTestFinder(exclude_empty=True).find(value, name, module, globs=names)
    return [test for test in found if test.examples]


DOCSTRINGS = {
    info.name: docstrings(importlib.import_module(f"fluid.layers.{info.name}"))
    for info in pkgutil.iter_modules(layers.__path__)
    if info.name != "arguments"
}


def count(tests: list[doctest.DocTest]) -> str:
    return f"{sum(len(test.examples) for test in tests)} examples in {len(tests)} docstrings"


@pytest.mark.parametrize(
    "tests", [pytest.param(tests, id=f"{name}: {count(tests)}") for name, tests in DOCSTRINGS.items() if tests]
)
def test_examples_print_what_they_say(tests: list[doctest.DocTest]) -> None:
    """Each docstring has programs, names and a scope of its own; numbers are printed with four digits."""
    runner = doctest.DocTestRunner(verbose=False)
    report: list[str] = []
    for test in tests:
        with (
            np.printoptions(precision=4, suppress=True),
            fluid.program_guard(fluid.Program(), fluid.Program()),
            fluid.unique_name.guard(),
            fluid.scope_guard(fluid.Scope()),
        ):
            runner.run(test, out=report.append)
    assert not runner.failures, "".join(report)
