"""The examples in the docstrings of `fluid.io` and `fluid.reader` run, and give what they show."""

from __future__ import annotations

import doctest
import os
from pathlib import Path

import numpy as np
import pytest

import fluid
from fluid import io, reader

EXAMPLES = {
    example.name: example
    for module in (io, reader)
    for example in doctest.DocTestFinder(exclude_empty=True).find(module, extraglobs={"fluid": fluid, "np": np, "os": os})
    if example.examples
}
SHOWN = (
    *("save", "load", "save_inference_model", "load_inference_model", "save_persistables", "load_persistables"),
    *("load_program_state", "set_program_state", "get_parameter_value"),
    *("batch", "shuffle", "map_readers", "chain", "compose", "buffered", "firstn", "cache", "xmap_readers"),
)
"""Functions of `fluid.io` that have an example."""


def test_every_function_has_one() -> None:
    assert {getattr(io, name).__module__ + f".{name}" for name in SHOWN} <= EXAMPLES.keys()


@pytest.mark.parametrize("name", EXAMPLES)
def test_example(name: str, fresh: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    said: list[str] = []
    results = doctest.DocTestRunner().run(EXAMPLES[name], out=said.append)
    assert results.attempted and not results.failed, "".join(said)
