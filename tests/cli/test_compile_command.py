"""The command that compiles models to libraries for C."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fluid
from fluid import layers

pytest.importorskip("click")
pytest.importorskip("rich")
pytest.importorskip("llvmlite")

from click.testing import CliRunner

from fluid.cli.commands import cli


def call(*arguments: Any, status: int = 0) -> str:
    done = CliRunner().invoke(cli, list(map(str, arguments)), catch_exceptions=False)
    assert done.exit_code == status, done.output
    return done.stdout if status == 0 else done.stderr


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """A training program, its startup program, and its parameters, in files."""
    x, label = fluid.data("x", [None, 4]), fluid.data("label", [None, 1], "int64")
    logits = layers.fc(x, 3)
    loss = layers.mean(layers.softmax_with_cross_entropy(logits, label))
    fluid.optimizer.SGD(0.1).minimize(loss)
    fluid.Executor().run(fluid.default_startup_program())
    (tmp_path / "train.program").write_bytes(fluid.default_main_program().serialize_to_string())
    (tmp_path / "startup.program").write_bytes(fluid.default_startup_program().serialize_to_string())
    fluid.save_model(tmp_path / "predict.pdmodel", feeds=["x"], fetches=[logits])
    return tmp_path


def test_a_training_program_is_compiled(model: Path) -> None:
    arguments = ["compile", model / "train.program", "-o", model / "net", "--startup", model / "startup.program"]
    options = ["--fetch", "loss=mean_0.tmp_0", "--predict", "logits=fc_0.tmp_1", "--batch", "8,1", "--target", "aarch64"]
    lines = call(*arguments, *options).splitlines()
    assert [line.partition(":")[0] for line in lines[:3]] == [str(model / f"net{ending}") for ending in (".o", ".h", ".json")]
    assert lines[3].startswith("memory of the caller: state: ")
    functions = json.loads((model / "net.json").read_text())["functions"]
    assert list(functions) == ["step", "predict_8", "predict_1"] and list(functions["step"]["fetches"]) == ["loss"]
    assert "--force" in call(*arguments, *options, status=2)
    call(*arguments, *options, "--force")


def test_some_parameters_are_frozen_and_memory_is_reported(model: Path) -> None:
    arguments = ["compile", model / "train.program", "-o", model / "net", "--startup", model / "startup.program"]
    text = call(*arguments, "--fetch", "mean_0.tmp_0", "--batch", "8", "--freeze", "*.w_0", "--report")
    described = json.loads((model / "net.json").read_text())
    assert described["frozen"] == ["fc_0.w_0"] and "fc_0.w_0" not in described["state"]
    assert f"state: {described['state_bytes']} bytes" in text and "constants: 48 bytes" in text


def test_a_saved_model_predicts(model: Path) -> None:
    call("compile", model / "predict.pdmodel", "-o", model / "net", "--batch", "2")
    state = json.loads((model / "net.json").read_text())
    assert list(state["functions"]) == ["predict_2"]
    weights = fluid.load_model(model / "predict.pdmodel", scope=fluid.Scope()).values()
    assert np.array_equal(weights["fc_0.w_0"].shape, state["state"]["fc_0.w_0"]["shape"])


def test_errors_are_one_line(model: Path) -> None:
    path = model / "predict.pdmodel"
    assert "expected numbers of rows" in call("compile", path, "-o", model / "net", "--batch", "two", status=2)
    assert "there is no target 'z80'" in call("compile", path, "-o", model / "net", "--batch", "2", "--target", "z80", status=2)
    assert "give it with batch" in call("compile", path, "-o", model / "net", status=2)
    assert "with --fetch" in call("compile", path, "-o", model / "net", "--batch", "2", "--report", status=2)
    assert "updates no parameter" in call("compile", path, "-o", model / "net", "--batch", "2", "--freeze", "fc_*", status=2)
    assert not list(model.glob("net.*"))
