"""The examples in docstrings of optimizers and of eager mode run, and show what they say."""

from __future__ import annotations

import doctest
import importlib
import inspect
import pkgutil
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import fluid
from fluid import dygraph, eager, layers

NAMESPACE = {"fluid": fluid, "layers": layers, "dygraph": dygraph, "np": np}


def examples() -> Iterator[doctest.DocTest]:
    """The examples of each public function, class and method."""
    inner = (f"{package.__name__}.{info.name}" for package in (dygraph, eager) for info in pkgutil.iter_modules(package.__path__))
    for path in ("fluid.optimizer", "fluid.training.averaging", "fluid.dygraph", *inner):
        for name, value in vars(importlib.import_module(path)).items():
            if getattr(value, "__module__", None) == path and getattr(value, "__name__", None) == name:
                tests = doctest.DocTestFinder().find(inspect.unwrap(value), f"{path}.{name}", module=False, globs=NAMESPACE)
                yield from (test for test in tests if test.examples)


@pytest.mark.usefixtures("fresh")
@pytest.mark.parametrize("example", [*examples()], ids=lambda example: example.name)
def test_example(example: doctest.DocTest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    failures: list[str] = []
    doctest.DocTestRunner().run(example, out=failures.append)
    assert not failures, "".join(failures)
