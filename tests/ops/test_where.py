"""`python -m fluid.ops.where` lists the places that know an op."""

from __future__ import annotations

import pytest
from paths import ROOT

from fluid.ops.where import main, places_of


def test_definition_kernel_layer_and_exports_are_listed() -> None:
    paths = {place.path for place in places_of("tanh")}
    assert {
        "fluid/ops/activation.py",
        "executor/kernels/activation.py",
        "executor/native/ops.py",
        "fluid/layers/ops.py",
        "fluid/onnx/writing/activations.py",
    } <= paths
    for place in places_of("tanh"):
        assert "tanh" in place.text or "tanh" in (ROOT / place.path).read_text().splitlines()[place.line - 1]


def test_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["spectral_norm"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert all(": " in line for line in lines[:-1]) and lines[-1].startswith(f"{len(lines) - 1} places in ")
    assert main(["tahn"]) == 1 and "tanh" in capsys.readouterr().err
    assert main([]) == 2
