"""The command line: what each command prints, its JSON, its status, and that errors are one line."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from checks import each
from click.testing import CliRunner
from paths import TESTS

import fluid
from fluid import layers
from fluid.cli.commands import cli
from fluid.executor import Scope
from fluid.saving import models as model_io
from fluid.transform import op_versions
from fluid.values.bfloat16 import to_bfloat16
from fluid.values.selected_rows import SelectedRows
from fluid.values.types import VarType

MAIN = "from fluid.cli import main; main()"
ZOO = TESTS / "golden" / "zoo"
LENET, LINREG = str(ZOO / "lenet" / "model"), str(ZOO / "linreg" / "model")


def call(*arguments, status=0):
    """A command's output; its errors if `status` is not 0."""
    done = CliRunner().invoke(cli, list(map(str, arguments)), catch_exceptions=False)
    assert done.exit_code == status, done.output
    return done.stdout if status != 2 else done.stderr


def load(path):
    return fluid.load_model(path, scope=Scope())


# ------------------------------------------------------------------------------------------------------------- looking
def test_inspect_sums_a_model_up():
    out = call("inspect", LENET)
    lines = out.splitlines()
    assert lines[0] == f"{LENET}: pdmodel" and "\x1b" not in out
    for part in (
        "img     float32[-1, 1, 28, 28]",
        "save_infer_model/scale_0.tmp_0  float32[-1, 10]",
        "parameters: 12 of 28,910 elements, 115.6 kB (10 trainable)",
        "for a batch of 1",
        "everything in it can run",
    ):
        assert part in out
    assert any(line.split() == ["conv2d", "2", "715", "kFLOP"] for line in lines)


def test_inspect_counts_arithmetic_of_a_batch():
    one, many = (json.loads(call("inspect", LENET, "--json", "--batch", batch)) for batch in (1, 8))
    # 28 * 28 * 6 outputs of 25 products, and 10 * 10 * 16 of 150
    assert one["flops"]["by_type"]["conv2d"] == 2 * (28 * 28 * 6 * 25 + 10 * 10 * 16 * 150)
    assert one["flops"]["by_type"]["mul"] == 2 * (400 * 64 + 64 * 10)
    assert one["flops"]["by_type"]["pool2d"] == 4 * (6 * 14 * 14 + 16 * 5 * 5) and one["flops"]["not_counted"] == {}
    assert many["flops"]["total"] == 8 * one["flops"]["total"]
    assert one["parameters"] == {"count": 12, "bytes": 115640, "elements": 28910, "trainable": 10, "missing": []}
    assert one["inputs"] == [{"name": "img", "type": "float32[-1, 1, 28, 28]"}] and one["unsupported"] == []
    assert one["ops"]["relu"] == 3


def test_sizes_that_stay_open(tmp_path):
    x = fluid.data("x", [None, None])
    fluid.save_model(tmp_path / "net.pdmodel", feeds=[x], fetches=[layers.reshape(x, layers.shape(x))])
    out = call("inspect", tmp_path / "net.pdmodel")
    assert "open sizes: x [?, ?]\n  shapes that are known in a run only: 2 of 3 values" in out
    assert "open sizes" not in call("inspect", tmp_path / "net.pdmodel", "--size", "x=2,3")
    facts = json.loads(call("inspect", tmp_path / "net.pdmodel", "--size", "x=2,?", "--json"))
    assert facts["open"] == {"x": [2, "?"]}
    call("convert", tmp_path / "net.pdmodel", tmp_path / "sized.pdmodel", "--size", "x=2,3")
    assert load(tmp_path / "sized.pdmodel").fetches[0].shape == (2, 3)
    assert "should be as x=1,3,?" in call("inspect", tmp_path / "net.pdmodel", "--size", "x", status=2)


def test_inspect_says_what_cannot_run(tmp_path):
    x = fluid.data("x", [2])
    block = fluid.default_main_program().global_block()
    for name in ("a", "b"):
        block.create_var(name=name, shape=[2], dtype="float32")
        block.append_op("odd", {"X": x}, {"Out": name})
    block.create_var(name="w", shape=[3], dtype="float32", persistable=True)
    (tmp_path / "odd.txt").write_text(fluid.default_main_program().to_string())
    out = call("inspect", tmp_path / "odd.txt")
    assert "cannot run: the op odd is not known here, so it cannot run; 2 times, first as op 0 of block 0" in out
    assert "without a value: 1: w" in out and "not counted: odd" in out
    (found,) = json.loads(call("inspect", tmp_path / "odd.txt", "--json"))["unsupported"]
    assert (found["type"], found["count"], found["position"]) == ("odd", 2, 0)
    np.savez(tmp_path / "feed.npz", x=np.ones(2, "float32"))
    error = call("run", tmp_path / "odd", "--feed", tmp_path / "feed.npz", "--fetch", "a", status=2)
    assert error.startswith("error: the op odd is not known here, so it cannot run; ")


def test_inspect_of_parameters_alone(tmp_path):
    model_io.save_arrays(tmp_path / "w.npz", {"w": np.ones((2, 3), "float32")})
    assert call("inspect", tmp_path / "w.npz").splitlines()[1] == "1 arrays, 24 B; no program"
    assert "holds parameters alone, no program" in call("dump", tmp_path / "w.npz", status=2)


def test_dump_in_every_form(tmp_path):
    text = call("dump", LINREG)
    assert fluid.text.parse_program_text(text).to_string() == text == load(LINREG).program.to_string()
    assert call("dump", LINREG, "--short") == str(load(LINREG).program) + "\n"
    found = json.loads(call("dump", LINREG, "--format", "json"))
    (block,) = found["blocks"]
    assert [op["type"] for op in block["ops"]] == ["feed", "mul", "elementwise_add", "scale", "fetch"]
    assert {"name": "x", "kind": "lod_tensor", "dtype": "float32", "shape": [-1, 13]}.items() <= block["vars"][-3].items()

    from google.protobuf import text_format

    from fluid.proto import ProgramDesc

    message = text_format.Parse(call("dump", LINREG, "--format", "pbtxt"), ProgramDesc())
    assert fluid.Program.parse_from_string(message.SerializeToString()).to_string() == text


def test_dump_of_sub_blocks_is_json():
    found = json.loads(call("dump", ZOO / "while_rnn" / "train.pb", "--format", "json"))
    loops = [op for op in found["blocks"][0]["ops"] if op["type"] == "while"]
    assert loops[0]["attrs"]["sub_block"] == {"block": 1} and len(found["blocks"]) > 2


def test_params(tmp_path):
    out = call("params", "list", LINREG)
    assert [line.split() for line in out.splitlines()[:2]] == [["name", "type", "size"], ["fc_0.b_0", "float32[1]", "4", "B"]]
    assert out.splitlines()[-1] == "2 values, 56 B"
    listed = json.loads(call("params", "list", LINREG, "--json"))
    assert listed[1] == {"name": "fc_0.w_0", "dtype": "float32", "shape": [13, 1], "bytes": 52}
    value = load(LINREG).value("fc_0.w_0")
    shown = call("params", "show", LINREG, "fc_0.w_0")
    assert shown.startswith("fc_0.w_0: float32[13, 1], 52 B\nmin ") and f"max {value.max():.6g}" in shown
    np.testing.assert_array_equal(
        np.array(json.loads(call("params", "show", LINREG, "fc_0.w_0", "--json"))["values"], "float32"), value
    )
    for ending in ("npz", "safetensors"):
        call("params", "export", LINREG, tmp_path / f"w.{ending}", "--only", "fc_0.w_0")
        assert list(model_io.read_arrays(tmp_path / f"w.{ending}")) == ["fc_0.w_0"]
        assert call("params", "list", tmp_path / f"w.{ending}").splitlines()[-1] == "1 values, 52 B"
    assert "there is no value of 'fc_0.w0'; did you mean fc_0.w_0" in call("params", "show", LINREG, "fc_0.w0", status=2)
    assert "missing.ckpt: there is no such model" in call("params", tmp_path / "missing.ckpt", status=2)
    assert "No such command 'lst'" in call("params", "lst", LINREG, status=2)


def test_values_of_types_that_numpy_lacks(tmp_path):
    program = fluid.Program()
    block = program.global_block()
    block.create_var(name="half", shape=[2], dtype="bfloat16", persistable=True)
    block.create_var(name="rows", shape=[10, 2], dtype="float32", persistable=True, type=VarType.SELECTED_ROWS)
    scope = Scope()
    scope.put("half", to_bfloat16(np.array([1.5, -2], "float32")))
    scope.put("rows", SelectedRows(np.array([1, 7]), np.ones((2, 2), "float32"), 10))
    fluid.save_model(tmp_path / "net", program, scope=scope)
    assert "parameters: 2 of 22 elements, 36 B" in call("inspect", tmp_path / "net")  # two rows, and their numbers
    assert "half  bfloat16[2]" in call("params", "list", tmp_path / "net")
    assert json.loads(call("params", "list", tmp_path / "net", "--json"))[0]["dtype"] == "bfloat16"
    assert call("params", "show", tmp_path / "net", "half").startswith("half: bfloat16[2], 4 B\nmin -2  mean -0.25  max 1.5")
    assert json.loads(call("params", "show", tmp_path / "net", "half", "--json"))["values"] == [1.5, -2]
    assert "[1. 1.]" in call("params", "show", tmp_path / "net", "rows")


@pytest.mark.filterwarnings("error")
def test_values_that_are_not_finite(tmp_path):
    model_io.save_arrays(
        tmp_path / "w.npz", {"w": np.array([np.nan, np.inf, -np.inf], "float32"), "text\x1b[31m": np.zeros(2, bool)}
    )
    assert "3 elements are not finite" in call("params", "show", tmp_path / "w.npz", "w")
    out = call("params", "list", tmp_path / "w.npz")
    assert "\x1b" not in out and r"text\x1b[31m" in out  # a file cannot steer the terminal


def strictly(text):
    """JSON as the standard has it, which knows no NaN and no Infinity."""

    def refuse(word):
        raise ValueError(word)

    return json.loads(text, parse_constant=refuse)


@pytest.mark.filterwarnings("error")
def test_json_is_json_whatever_the_numbers(tmp_path):
    odd = np.array([[np.nan, np.inf], [-np.inf, 1.5]], "float32")
    model_io.save_arrays(tmp_path / "w.npz", {"w": odd, "one": np.array(np.nan), "z": np.array([np.nan + 1j])})
    model_io.save_arrays(tmp_path / "v.npz", {"w": odd * 2, "one": np.array(1.0), "z": np.array([1j])})
    shown = strictly(call("params", "show", tmp_path / "w.npz", "w", "--json"))
    assert shown["values"] == [["NaN", "Infinity"], ["-Infinity", 1.5]]
    assert np.array_equal(np.array(shown["values"], "float32"), odd, equal_nan=True)
    assert strictly(call("params", "show", tmp_path / "w.npz", "one", "--json"))["values"] == "NaN"
    assert strictly(call("params", "show", tmp_path / "w.npz", "z", "--json"))["values"] == ["(nan+1j)"]
    assert set(strictly(call("diff", tmp_path / "w.npz", tmp_path / "v.npz", "--json", status=1))["values"]) == {"one", "w", "z"}
    assert len(strictly(call("params", "list", tmp_path / "w.npz", "--json"))) == 3
    (tmp_path / "net.txt").write_text("block 0 {\n  x: float32[1] = odd() {a=nan, b=[inf, -inf, 0.5]}\n}\n")
    (op,) = strictly(call("dump", tmp_path / "net.txt", "--format", "json"))["blocks"][0]["ops"]
    assert op["attrs"] == {"a": "NaN", "b": ["Infinity", "-Infinity", 0.5]}


# ------------------------------------------------------------------------------------------------------ diff and explain
def test_diff_aligns_ops_and_compares_values(tmp_path):
    assert call("diff", LINREG, LINREG).strip() == ""
    model = load(LINREG)
    weight = model.value("fc_0.w_0").copy()
    weight[0] += 0.5
    model.scope.put("fc_0.w_0", weight)
    model.program.replace("fc_0.tmp_1", lambda X, Y: layers.relu(layers.elementwise_add(X, Y, axis=1)))
    fluid.save_model(tmp_path / "other", model.program, scope=model.scope)
    out = call("diff", LINREG, tmp_path / "other", status=1)
    signs = [line for line in out.splitlines() if line[:1] in "+-~"]
    assert any(line.startswith("+ fc_0.tmp_1: float32[-1, 1] = relu(X=") for line in signs)
    assert any(line.startswith("~ fc_0.w_0: 1 of 13 elements differ, by up to 0.5 ") for line in signs)
    assert any(line.startswith("- fc_0.tmp_1: float32[-1, 1] = elementwise_add(") for line in signs)
    assert "  (Out=" not in out and any(" = mul(" in line and line.startswith("  ") for line in out.splitlines())
    found = json.loads(call("diff", LINREG, tmp_path / "other", "--json", status=1))
    assert {change["sign"] for change in found["ops"]} == {"+", "-"} and list(found["values"]) == ["fc_0.w_0"]


def test_diff_of_programs_in_python():
    x = fluid.data("x", [2])
    y = layers.tanh(x)
    one = fluid.default_main_program()
    two = one.clone()
    assert not fluid.diff(one, two) and str(fluid.diff(one, two)) == "no differences"
    two.global_block().ops[0].attrs["op_role"] = 1  # says nothing of what is computed
    assert not fluid.diff(one, two)
    layers.scale(y, 2.0)
    found = fluid.diff(one, two, {"a": np.ones(2), "b": np.ones(2), "c": np.ones(2)}, {"a": np.ones(3), "b": np.ones(2), "d": 1})
    assert [sign for sign, _, _ in found.ops] == [" ", "-"]
    assert found.values == {
        "a": "float64[2] and float64[3]",
        "c": "only the first has a value",
        "d": "only the second has a value",
    }


def test_explain():
    out = call("explain", ZOO / "linreg" / "main.pb", "mean_0.tmp_0", "fc_0.w_0")
    assert out.startswith("The gradient of mean_0.tmp_0 reaches fc_0.w_0 along:\n")
    assert "error: the variable 'fc' is not a variable of this program's block 0" in call(
        "explain", ZOO / "linreg" / "main.pb", "mean_0.tmp_0", "fc", status=2
    )


# -------------------------------------------------------------------------------------------------- changing and running
def test_prune_writes_a_part(tmp_path):
    out = call("prune", LENET, tmp_path / "part.pdmodel", "--fetch", "fc_0.tmp_2")
    assert out.splitlines()[-1] == "5 of 17 ops and 8 variables left out"
    model = load(tmp_path / "part")
    assert [var.name for var in model.fetches] == ["fc_0.tmp_2"] and model.feeds == ["img"] and not model.missing
    assert "fc_1.w_0" not in model.parameters
    assert "no variable 'fc_9' is visible" in call("prune", LENET, tmp_path / "x", "--fetch", "fc_9", status=2)


FORGED = "w\neverything in it can run\x1b[2J\u202egnp.\u2066\u200b"


def test_names_forge_no_lines(tmp_path: Path) -> None:
    """Names with line breaks, escape sequences of terminals, and marks that turn the direction of text."""
    program = fluid.Program()
    root = program.global_block()
    for name, more in (("x", {"is_data": True}), (FORGED, {"persistable": True}), (FORGED + "out", {})):
        root.create_var(name=name, shape=[1], dtype="float32", **more)
    root.append_op("elementwise_add", {"X": "x", "Y": FORGED}, {"Out": FORGED + "out"}, {"note": FORGED})
    root.append_op("relu", {"X": FORGED + "out"}, {"Out": FORGED + "out"})
    root.append_op(FORGED, {"X": FORGED + "out"}, {"Out": FORGED + "out"})
    (tmp_path / "a.pdmodel").write_bytes(program.serialize_to_string())
    (tmp_path / "b.pdmodel").write_bytes(fluid.Program().serialize_to_string())
    one, two = str(tmp_path / "a.pdmodel"), str(tmp_path / "b.pdmodel")
    for arguments in (
        ["inspect", one],
        ["dump", one],
        ["dump", "--short", one],
        ["dump", "--format", "json", one],
        ["dump", "--format", "pbtxt", one],
        ["diff", one, two],
        ["explain", one, FORGED + "out", "x"],
        ["explain", one, FORGED + "out", FORGED],
        ["explain", one, FORGED, "x"],
        ["run", one, "--fetch", FORGED + "out"],
        ["--verbose", "run", one, "--fetch", FORGED],
        ["draw", one],
    ):
        result = CliRunner().invoke(cli, arguments)
        text = result.output
        assert "everything in it can run" not in [line.strip() for line in text.splitlines()], arguments
        assert all(char.isprintable() or char in "\n\t" for char in text), (arguments, text)
        assert "gnp." in text or "run" in arguments, (arguments, text)


@each("output", ["folder", "net.pdmodel", "net.txt", "net.npz", "net.safetensors", "net.pdparams"])
def test_convert_to_every_form(tmp_path, output):
    written = call("convert", LENET, tmp_path / output).splitlines()
    assert written[0] == str(tmp_path / output) and all(os.path.exists(path) for path in written)
    model = load(tmp_path / output)
    if model.program is not None:
        assert model.program.to_string() == load(LENET).program.to_string()
    if output != "net.txt":
        np.testing.assert_array_equal(model.value("fc_0.w_0"), load(LENET).value("fc_0.w_0"))


def test_convert_refuses_unknown_endings(tmp_path):
    """Not a folder of that name, which nobody asked for; one that exists is a folder, whatever its name."""
    error = call("convert", LENET, tmp_path / "net.onx", status=2)
    assert "net.onx: .onx is none of the formats that are written" in error and not (tmp_path / "net.onx").exists()
    (tmp_path / "net.v").mkdir()
    call("convert", LENET, tmp_path / "net.v")
    assert (tmp_path / "net.v" / "__model__").exists()
    call("convert", LENET, tmp_path / "net-1.2")
    assert (tmp_path / "net-1.2" / "__model__").exists()


def test_convert_folds_and_rewrites(tmp_path):
    out = call("convert", LENET, tmp_path / "old", "--target", "paddle-1.6", "--fold")
    assert "fold_constants: nothing changed" in out and "fold_batch_norm: nothing changed" in out
    kinds = {op.type for op in load(tmp_path / "old").program.global_block().ops}
    assert kinds <= op_versions.known_ops("paddle-1.6")
    error = call("convert", ZOO / "while_rnn" / "train.pb", tmp_path / "x", "--target", "paddle-1.6", status=2)
    assert error.startswith("error: the program cannot be written for paddle-1.6: ") and error.count("\n") == 1
    assert "paddle-1.6 does not know it (" in error  # the list that the message is about
    call("params", "export", LINREG, tmp_path / "w.npz")
    assert call("convert", tmp_path / "w.npz", tmp_path / "w.safetensors").strip().endswith("w.safetensors: 2 values")


def test_quantize_prints_the_errors_of_layers(tmp_path):
    pytest.importorskip("onnx")
    images = np.random.default_rng(0).standard_normal((40, 1, 28, 28)).astype("float32")
    np.savez(tmp_path / "x.npz", img=images)
    out = call("quantize", LENET, tmp_path / "x.npz", "-o", tmp_path / "q.onnx")
    lines = [line.split() for line in out.splitlines()]
    assert lines[0] == ["error", "layer", "op", "weight"] and lines[-1] == [str(tmp_path / "q.onnx")]
    rows = [line for line in lines if line[0].endswith("%")]
    assert [row[2] for row in rows] == ["conv2d", "conv2d", "mul", "mul"]
    assert all(0 < float(row[0][:-1]) < 6 for row in rows)
    exact, model = load(LENET), load(tmp_path / "q.onnx")
    pair = [fluid.Executor().run(one.program, {"img": images}, one.fetches, scope=one.scope)[0] for one in (exact, model)]
    assert 0 < np.abs(pair[0] - pair[1]).max() < 0.03 * np.abs(pair[0]).max()
    report = json.loads(call("quantize", LENET, tmp_path / "x.npz", "-o", tmp_path / "d.onnx", "--dynamic", "--json"))
    assert len(report["layers"]) == len(rows) and all(layer["error"] < 0.06 for layer in report["layers"])
    error = call("quantize", LENET, tmp_path / "x.npz", "-o", tmp_path / "q.onnx", status=2)
    assert error.endswith("; --force writes over what is there\n")
    np.savez(tmp_path / "one.npz", img=np.float32(3))
    error = call("quantize", LENET, tmp_path / "one.npz", "-o", tmp_path / "one.onnx", status=2)
    assert error.startswith("error: img is declared float32[-1, 1, 28, 28], but float32[] is fed")


def test_convert_for_inference(tmp_path):
    call("convert", LENET, tmp_path / "fast.pdmodel", "--for-inference")
    before, after = (json.loads(call("inspect", model, "--json")) for model in (LENET, tmp_path / "fast.pdmodel"))
    assert {"fc", "fused_conv2d_add_act"} <= set(after["ops"]) and sum(after["ops"].values()) < sum(before["ops"].values())
    assert after["unsupported"] == [] and after["parameters"]["missing"] == []
    assert [item["name"] for item in after["outputs"]] == [item["name"] for item in before["outputs"]]


def test_run_computes_what_paddle_does(tmp_path):
    np.savez(tmp_path / "feed.npz", img=np.load(ZOO / "lenet" / "feeds.npz")["img"], label=np.zeros(3))
    done = CliRunner().invoke(cli, ["run", LENET, "--feed", str(tmp_path / "feed.npz"), "--out", str(tmp_path / "out.npz")])
    assert done.exit_code == 0 and done.stderr == "not in the program, and left out: label\n"
    assert done.stdout.splitlines()[-1].endswith(f"ms, written to {tmp_path / 'out.npz'}")
    (found,) = model_io.read_arrays(tmp_path / "out.npz").values()
    with np.load(ZOO / "lenet" / "infer.npz") as expected:
        np.testing.assert_allclose(found, expected[expected.files[0]], rtol=1e-4, atol=1e-5)
    more = json.loads(
        call("run", LENET, "--feed", tmp_path / "feed.npz", "--fetch", "fc_0.tmp_2,fc_1.tmp_0", "--repeat", 2, "--json")
    )
    assert [item["name"] for item in more["outputs"]] == ["fc_0.tmp_2", "fc_1.tmp_0"] and more["seconds"] > 0


def test_run_says_what_it_needs(tmp_path):
    assert "error: the model is fed img; give a file of arrays with these names" in call("run", LENET, status=2)
    assert "does not say what it computes; name it with --fetch" in call("run", ZOO / "linreg" / "main.pb", status=2)
    np.savez(tmp_path / "feed.npz", img=np.zeros((2, 3), "float32"))
    assert "img is declared float32[-1, 1, 28, 28], but float32[2, 3] is fed" in call(
        "run", LENET, "--feed", tmp_path / "feed.npz", status=2
    )


def test_run_and_quantize_say_that_the_parameters_are_missing(tmp_path):
    prediction = layers.fc(fluid.data("x", [None, 2]), 1)
    fluid.Executor().run(fluid.default_startup_program())
    fluid.save_model(tmp_path / "net.pdmodel", feeds=["x"], fetches=[prediction])
    (tmp_path / "net.pdiparams").unlink()
    np.savez(tmp_path / "feed.npz", x=np.zeros((2, 2), "float32"))
    expected = "there is no file with its parameters, fc_0.b_0, fc_0.w_0; put it beside the model, such as net.pdiparams"
    assert expected in call("run", tmp_path / "net.pdmodel", "--feed", tmp_path / "feed.npz", status=2)
    quantized = tmp_path / "quantized.onnx"
    assert expected in call("quantize", tmp_path / "net.pdmodel", tmp_path / "feed.npz", "-o", quantized, status=2)


# ------------------------------------------------------------------------------------------------------------- pictures
def test_draw_writes_dot(tmp_path):
    text = call("draw", LINREG)
    assert text.startswith("digraph program {") and text.endswith("}\n") and text == fluid.graph.to_dot(load(LINREG).program)
    assert '"0 x 1" -> "0 1";' in text and '[label="Y", fontsize=8]' in text
    assert 'label="fc_0.w_0\\nfloat32[13, 1]", style=bold' in text
    call("draw", LINREG, "--out", tmp_path / "net.dot")
    assert (tmp_path / "net.dot").read_text() == text
    loops = call("draw", ZOO / "while_rnn" / "train.pb")
    assert "subgraph cluster_1 {" in loops and loops.count("{") == loops.count("}")
    assert "a drawing's name ends in .dot, .svg, .png or .pdf" in call("draw", LINREG, "--out", tmp_path / "net.bmp", status=2)


def test_pictures_are_made_by_graphviz(tmp_path, monkeypatch):
    fake = tmp_path / "dot"
    fake.write_text('#!/bin/sh\n[ "$1" = -Tsvg ] || { echo "no such format" >&2; exit 1; }\necho "<svg/>"; cat > "$0.in"\n')
    fake.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    call("draw", LINREG, "--out", tmp_path / "net.svg")
    assert (tmp_path / "net.svg").read_text() == "<svg/>\n" and (tmp_path / "dot.in").read_text().startswith("digraph")
    assert "dot failed: no such format" in call("draw", LINREG, "--out", tmp_path / "net.png", status=2)
    monkeypatch.setattr(shutil, "which", lambda name: None)
    assert "graphviz's command dot is not installed" in call("draw", LINREG, "--out", tmp_path / "net.svg", status=2)


def test_names_in_dot_are_quoted():
    program = fluid.Program()
    block = program.global_block()
    block.create_var(name='a"b\\', shape=[1], dtype="float32")
    block.append_op("odd", {"X": 'a"b\\'}, {})
    assert 'label="a\\"b\\\\\\nfloat32[1]"' in fluid.graph.to_dot(program)


def test_names_that_are_no_text_can_be_drawn(tmp_path):
    program = fluid.Program.parse_from_string((ZOO / "linreg" / "main.pb").read_bytes())
    program.rename("x", "\udcff")
    (tmp_path / "odd.pb").write_bytes(program.serialize_to_string())
    assert '"0 \\udcff 0"' in call("draw", tmp_path / "odd.pb")


def test_view_writes_a_page(tmp_path):
    page = tmp_path / "net.html"
    assert call("view", LINREG, "--out", page).strip() == str(page)
    assert "fc_0.w_0" in page.read_text()
    shutil.copy(ZOO / "linreg" / "model.pdmodel", tmp_path)
    call("view", tmp_path / "model.pdmodel")
    assert (tmp_path / "model.html").exists()


def test_view_compares_and_runs(tmp_path):
    page = tmp_path / "net.html"
    call("view", "--diff", LINREG, "--out", page, LENET)
    text = page.read_text()
    assert "<title>model → model</title>" in text and '"difference":2' in text
    feeds = ZOO / "lenet" / "feeds.npz"
    call("view", "--run", feeds, "--out", page, LENET)
    assert '"measured":{"seconds":[[' in page.read_text()
    np.savez(tmp_path / "none.npz", other=np.zeros(1))
    found = call("view", "--run", tmp_path / "none.npz", LENET, status=2)
    assert "give a file of arrays with these names with --run" in found


# --------------------------------------------------------------------------------------------------- errors and terminals
def test_errors_are_one_line(tmp_path):
    (tmp_path / "bad").write_bytes(b"nonsense")
    for arguments in (["inspect", tmp_path / "bad"], ["dump", tmp_path / "none"], ["diff", LINREG, tmp_path / "bad"]):
        error = call(*arguments, status=2)
        assert error.count("\n") == 1 and error.startswith(f"error: {tmp_path}") and "Traceback" not in error
    assert "No such command 'inspekt'" in call("inspekt", status=2)


COMMANDS = {
    "inspect": ["inspect", "FILE"],
    "inspect as JSON": ["inspect", "FILE", "--json"],
    "dump": ["dump", "FILE"],
    "diff, first": ["diff", "FILE", LENET],
    "diff, second": ["diff", LENET, "FILE"],
    "explain": ["explain", "FILE", "a", "b"],
    "params list": ["params", "list", "FILE"],
    "params show": ["params", "show", "FILE", "a"],
    "params export": ["params", "export", "FILE", "out.npz"],
    "prune": ["prune", "FILE", "out", "--fetch", "a"],
    "convert": ["convert", "FILE", "out"],
    "quantize": ["quantize", "FILE", "x.npz", "-o", "out"],
    "data to quantize": ["quantize", LENET, "FILE", "-o", "out"],
    "run": ["run", "FILE"],
    "draw": ["draw", "FILE"],
    "view": ["view", "FILE", "--out", "out.html"],
    "parameters": ["inspect", LENET, "--params", "FILE"],
    "parameters to compare": ["diff", LENET, LENET, "--a-params", "FILE"],
    "what is fed": ["run", LENET, "--feed", "FILE"],
}
NO_MODELS = {
    "missing": "there is no such (model|file): No such file or directory",
    "": "'': there is no such (model|file): No such file or directory",
    "folder": "the folder holds no __model__, it is empty|the file cannot be read|is a folder; arrays by name are in one file",
    "empty": "the file is empty|0 are left in the file of 0|is not a file of arrays by name",
    "cut.pdmodel": r"blocks should take \d+ bytes, but \d+ are left|holds a program, not arrays by name",
    "text.pdmodel": "it looks like text, but not like a program's|holds a program, not arrays by name",
    "photo.png": "is a picture; a model takes it as an array of pixels|is not a file of arrays by name",
    "cut.npz": "the archive cannot be read: File is not a zip file",
    "words.npz": r"array 'img': its elements are text \(<U1\), not numbers",
    "code.pdparams": "it refers to os.system; only arrays, containers, strings and numbers are read",
    "bad.txt": "line 2, column 12: expected a slot, not the end of the line|holds a program, not arrays by name",
    "latin.txt": "the text is not UTF-8, at byte 12|holds a program, not arrays by name",
}


def write_no_models():
    model = (ZOO / "lenet" / "model.pdmodel").read_bytes()
    Path("folder").mkdir()
    np.savez("words.npz", img=np.array(["a"]))
    for name, data in {
        "empty": b"",
        "cut.pdmodel": model[: len(model) // 2],
        "text.pdmodel": b"hello world\n",
        "photo.png": b"\x89PNG\r\n\x1a\n" + bytes(50),
        "cut.npz": Path("words.npz").read_bytes()[:100],
        "code.pdparams": b"\x80\x02cos\nsystem\n(S'x'\ntR.",
        "bad.txt": b"block 0 {\n  x = tanh(\n",
        "latin.txt": b"block 0 {\n  \xff\n}",
    }.items():
        Path(name).write_bytes(data)


@each("command", COMMANDS)
def test_whatever_is_no_model_is_told_in_one_line(tmp_path, monkeypatch, command):
    monkeypatch.chdir(tmp_path)
    write_no_models()
    before = sorted(os.listdir())
    for name, says in NO_MODELS.items():
        error = call(*[name if word == "FILE" else word for word in COMMANDS[command]], status=2)
        assert error.startswith("error: ") and error.count("\n") == 1, error
        assert re.search(says, error), error
    assert sorted(os.listdir()) == before


@each(
    ("arguments", "says"),
    [
        (["convert", LENET, "FILE/x"], "FILE/x/batch_norm_0.b_0: the file cannot be written: Not a directory"),
        (["convert", LENET, "FILE"], "FILE exists; --force writes over what is there"),
        (["convert", "--force", LENET, "FILE"], "FILE/batch_norm_0.b_0: the file cannot be written: Not a directory"),
        (["convert", LENET, ""], "the path is empty"),
        (["convert", LENET, "out", "--target", "paddle-4"], "'paddle-4' is not one of"),
        (["convert", LENET, "FILE.bin.npz/y.npz"], "the file cannot be written: Not a directory"),
        (["prune", LENET, "", "--fetch", "save_infer_model/scale_0.tmp_0"], "the path is empty"),
        (["prune", LENET, "out", "--fetch", "batch_nrom_0.tmp_2"], "no variable .* did you mean batch_norm_0.tmp_2"),
        (["prune", LENET, "out", "--fetch", "batch_norm_0.tmp_2", "--feed", "imge"], "no variable 'imge' .* did you mean img"),
        (["params", "export", LENET, "out.bin"], "names that end in .npz, .safetensors or .pdparams"),
        (["params", "export", LENET, "out.npz", "--only", "fc_0.w_9"], "no value of 'fc_0.w_9'; did you mean fc_0.w_0"),
        (["params", "show", LENET, "nothing"], "there is no value of 'nothing'"),
        (["draw", LENET, "--out", ""], "a drawing's name ends in"),
        (["draw", LENET, "--out", "FILE/net.dot"], "the file cannot be written: Not a directory"),
        (["view", LENET, "--out", ""], "the file cannot be written"),
        (["view", LENET, "--out", "folder"], "folder: the file cannot be written: Is a directory"),
        (["explain", LENET, "nothing", "fc_0.w_0"], "the loss 'nothing' is not a variable"),
        (["run", LENET, "--feed", "words.npz"], "its elements are text"),
        (["run", LENET, "--feed", "other.npz"], "the model is fed img; .*; other.npz has a, b"),
        (["run", LENET, "--feed", "img.npz", "--fetch", "nothing"], "'nothing'"),
        (["run", LENET, "--feed", "img.npz", "--out", "out.bin"], "names that end in .npz, .safetensors or .pdparams"),
        (["run", LENET, "--repeat", "0"], "0 is not in the range"),
        (["diff", LENET, LENET, "--context", "-1"], "-1 is not in the range"),
        (["inspect", LENET, "--batch", "many"], "'many' is not a valid integer"),
        (["params", "lst", LENET], "No such command 'lst'"),
    ],
)  # fmt: skip
def test_wrong_names_and_places_are_told(tmp_path, monkeypatch, arguments, says):
    monkeypatch.chdir(tmp_path)
    Path("FILE").write_bytes(b"")
    Path("FILE.bin.npz").write_bytes(b"")
    Path("folder").mkdir()
    np.savez("words.npz", img=np.array(["a"]))
    np.savez("other.npz", a=np.ones(2), b=np.ones(2))
    np.savez("img.npz", img=np.ones((1, 1, 28, 28), "float32"))
    before = sorted(os.listdir())
    error = call(*arguments, status=2)
    assert re.search(says, error) and "Traceback" not in error, error
    assert error.startswith("Usage: ") or error.count("\n") == 1
    assert sorted(os.listdir()) == before


def test_verbose_tells_all_of_an_error(tmp_path):
    model = load(ZOO / "linreg" / "main.pb")
    (tmp_path / "main.txt").write_text(model.program.to_string())
    short = call("prune", tmp_path / "main.txt", tmp_path / "x", "--feed", "x", "--fetch", "mean_0.tmp_0", status=2)
    long = call("-v", "prune", tmp_path / "main.txt", tmp_path / "x", "--feed", "x", "--fetch", "mean_0.tmp_0", status=2)
    assert short.count("\n") == 1 and long.startswith(short.strip()) and "  op: " in long


def fluid_process(*arguments, **kwargs):
    code = "from fluid.cli import main; main()"
    return subprocess.run([sys.executable, "-c", code, *map(str, arguments)], capture_output=True, text=True, **kwargs)


@pytest.mark.slow
def test_as_a_process(tmp_path):
    done = fluid_process("params", "list", LINREG)
    assert done.returncode == 0 and done.stdout.splitlines()[-1] == "2 values, 56 B" and not done.stderr
    done = fluid_process("inspect", tmp_path)
    assert done.returncode == 2 and done.stderr == f"error: {tmp_path}: the folder holds no __model__, it is empty\n"
    assert fluid_process("diff", LINREG, ZOO / "linreg" / "main.pb").returncode == 1
    assert fluid_process("--version").stdout == f"fluid, version {fluid.__version__}\n"


def test_the_command_line_needs_what_the_plain_install_brings_and_no_more():
    code = f"import sys; sys.modules['rich'] = None; {MAIN}"
    done = subprocess.run([sys.executable, "-c", code, "inspect", LINREG], capture_output=True, text=True)
    assert done.returncode == 0 and "everything in it can run" in done.stdout
    if sys.platform not in ("win32", "emscripten"):
        written = on_terminal("inspect", LINREG, code=code)
        assert "┃" not in written and "elementwise_add      1" in written


def on_terminal(*arguments, code=MAIN, **kwargs):
    """The output of `fluid` on a terminal, with escape codes for colours."""
    from test_examples import on_a_terminal

    return on_a_terminal(sys.executable, "-c", code, *map(str, arguments), **kwargs)


def plain(text):
    """Lines of a terminal without colours."""
    return re.sub(r"\x1b\[[0-9;]*m", "", text).replace("\r", "").splitlines()


needs_terminals = pytest.mark.skipif(sys.platform in ("win32", "emscripten"), reason="has no pseudo-terminals")


@needs_terminals
def test_colours_and_frames_on_a_terminal():
    pytest.importorskip("rich")
    written = on_terminal("inspect", LINREG)
    assert "\x1b[" in written and "┃" in written and "elementwise_add" in written


LONG = "save_infer_model/scale_0.tmp_0_whose_name_is_longer_than_a_line"


@pytest.fixture
def long_names(tmp_path):
    """A model whose ops have backend attributes and callstacks, and a name that is longer than a narrow terminal."""
    model = load(LENET)
    model.program.rename("save_infer_model/scale_0.tmp_0", LONG)
    model.program.global_block().ops[1].attrs |= {"op_callstack": ["File train.py, line 7"], "use_mkldnn": True}
    fluid.save_model(tmp_path / "net.pdmodel", model.program, scope=model.scope)
    return tmp_path / "net"


@pytest.mark.slow
@needs_terminals
@each("columns", [40, 80, 200])
def test_what_is_printed_fits_a_terminal(long_names, monkeypatch, columns):
    monkeypatch.chdir(long_names.parent)
    monkeypatch.delenv("COLUMNS", raising=False)
    lines = plain(on_terminal("dump", long_names, columns=columns))
    assert lines[0] == "block 0 {" and lines[-2:] == ["}", "shortened; --full prints all"]
    assert not [line for line in lines if len(line) > columns and len(line.split()) > 1]
    text = " ".join(" ".join(lines).split())  # broken at spaces only
    assert f"{LONG}: float32[-1, 10] = scale(X=fc_1.tmp_1)" in text
    assert not {"op_callstack", "use_mkldnn", "use_cudnn", "op_device"} & set(re.findall(r"\w+", text))
    shown = plain(on_terminal("inspect", "net", columns=columns)) + plain(on_terminal("params", "list", "net", columns=columns))
    assert any(LONG in line for line in shown) and any("conv2d_0.b_0" in line for line in shown)


@pytest.mark.slow
@needs_terminals
def test_what_is_piped_is_complete(long_names):
    whole = fluid_process("dump", long_names).stdout
    assert fluid.text.parse_program_text(whole).to_string() == whole and "op_callstack" in whole and "use_mkldnn" in whole
    assert plain(on_terminal("dump", "--full", long_names)) == whole.splitlines()
    narrow = fluid_process("inspect", long_names, env={**os.environ, "COLUMNS": "40"}).stdout
    assert narrow == fluid_process("inspect", long_names).stdout and f"  {LONG}  float32[-1, 10]\n" in narrow


# ----------------------------------------------------------------------------------------------------- what is there
@each(
    ("command", "output"),
    [
        (["convert", LENET], "net.pdmodel"),
        (["convert", LENET], "net.txt"),
        (["convert", LENET], "folder"),
        (["convert", "w.npz"], "v.npz"),
        (["prune", LENET, "--fetch", "fc_0.tmp_2"], "net.pdmodel"),
        (["params", "export", LENET], "w.npz"),
    ],
)
def test_files_are_written_over_only_where_that_is_said(tmp_path, monkeypatch, command, output):
    monkeypatch.chdir(tmp_path)
    call("params", "export", LINREG, "w.npz")
    at = 3 if command[0] == "params" else 2
    arguments = [*command[:at], output, *command[at:]]
    if not os.path.exists(output):
        call(*arguments)
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    error = call(*arguments, status=2)
    assert error.startswith(f"error: {output} ") and error.endswith("; --force writes over what is there\n")
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before
    call(*arguments, "--force")


def test_parameters_beside_a_model_are_not_written_over(tmp_path):
    (tmp_path / "net.pdiparams").write_bytes(b"mine")
    error = call("convert", LENET, tmp_path / "net.pdmodel", status=2)
    assert error == f"error: {tmp_path / 'net.pdiparams'} exists; --force writes over what is there\n"
    assert (tmp_path / "net.pdiparams").read_bytes() == b"mine"


@needs_terminals
def test_on_a_terminal_it_asks(tmp_path):
    page = tmp_path / "net.txt"
    page.write_text("mine")
    refused = plain(on_terminal("convert", LINREG, page, typed="n\n", status=1))
    assert f"{page} exists; write over what is there? [y/N]:" in " ".join(refused) and page.read_text() == "mine"
    on_terminal("convert", LINREG, page, typed="y\n")
    assert page.read_text() == load(LINREG).program.to_string()


# ------------------------------------------------------------------------------------------------------------ sequences
@pytest.fixture
def pooling(tmp_path):
    """A model that is fed sequences and gives sequences, and the sums of each."""
    main = fluid.Program()
    with fluid.program_guard(main, fluid.Program()):
        x = fluid.data("x", [None, 2], lod_level=1)
        y = layers.scale(x, 2.0)
        total = layers.sequence_pool(y, "sum")
        fluid.save_model(tmp_path / "net.pdmodel", main, [x], [y, total], scope=Scope())
    return tmp_path / "net", y.name, total.name


def test_sequences_are_run_by_their_lengths(tmp_path, monkeypatch, pooling):
    model, *_ = pooling
    monkeypatch.chdir(tmp_path)
    rows = np.arange(10, dtype="float32").reshape(5, 2)
    np.savez("rows.npz", x=rows)
    np.savez("both.npz", **{"x": rows, "x@LENGTHS": np.array([2, 3])})
    outputs = [item["name"] for item in json.loads(call("inspect", model, "--json"))["outputs"]]
    for arguments in (["--feed", "rows.npz", "--lengths", "x=2,3"], ["--feed", "both.npz"]):
        told = json.loads(call("run", model, *arguments, "--out", "out.npz", "--json"))["outputs"]
        found = model_io.read_arrays("out.npz")
        np.testing.assert_array_equal(found[outputs[1]], 2 * np.stack([rows[:2].sum(0), rows[2:].sum(0)]))
        assert told[0]["lengths"] == [[2, 3]] and found[outputs[0] + "@LENGTHS"].tolist() == [2, 3]
    call("run", model, "--feed", "both.npz", "--lengths", "x=1,4", "--out", "out.npz")  # what is typed counts
    np.testing.assert_array_equal(model_io.read_arrays("out.npz")[outputs[1]][0], 2 * rows[0])


def test_two_levels_of_lengths(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    main = fluid.Program()
    with fluid.program_guard(main, fluid.Program()):
        x = fluid.data("x", [None, 1], lod_level=2)
        last = layers.sequence_pool(x, "last")
        fluid.save_model("net.pdmodel", main, [x], [last], scope=Scope())
    np.savez("rows.npz", x=np.arange(9, dtype="float32")[:, None])
    told = json.loads(call("run", "net", "--feed", "rows.npz", "--lengths", "x=2,1/2,3,4", "--out", "out.npz", "--json"))
    assert told["outputs"][0]["lengths"] == [[2, 1]]  # the inner sequences became rows
    np.savez("both.npz", **{"x": np.arange(9, dtype="float32")[:, None], "x@LENGTHS@0": [2, 1], "x@LENGTHS@1": [2, 3, 4]})
    call("run", "net", "--feed", "both.npz", "--out", "again.npz")
    one, two = model_io.read_arrays("out.npz"), model_io.read_arrays("again.npz")
    assert list(one) == list(two) and all(np.array_equal(one[name], two[name]) for name in one)
    assert one[told["outputs"][0]["name"]].ravel().tolist() == [1, 4, 8]


@each(
    ("options", "says"),
    [
        (["--lengths", "x"], "--lengths x: expected a name and lengths, such as words=2,3"),
        (["--lengths", "x=2,three"], "--lengths x=2,three: expected"),
        (["--lengths", "y=2,3"], "--lengths of y, which the file of --feed does not have; it has x"),
        (["--lengths", "x=2,2"], r"the lengths \[2, 2\] are of 4 rows, but the data is float32\[5, 2\]"),
        (["--feed", "odd.npz"], r"x@LENGTHS should be the lengths of sequences, .*; it is float64\[2\]"),
    ],
)
def test_wrong_lengths_are_told(tmp_path, monkeypatch, pooling, options, says):
    model, *_ = pooling
    monkeypatch.chdir(tmp_path)
    np.savez("rows.npz", x=np.ones((5, 2), "float32"))
    np.savez("odd.npz", **{"x": np.ones((5, 2), "float32"), "x@LENGTHS": np.ones(2)})
    assert re.search(says, call("run", model, "--feed", "rows.npz", *options, status=2))


# ----------------------------------------------------------------------------------------------------------- completion
@pytest.mark.slow
@each("shell", ["bash", "zsh", "fish"])
def test_shells_can_complete(shell):
    script = fluid_process(env={**os.environ, "_FLUID_COMPLETE": f"{shell}_source"}).stdout
    assert "_FLUID_COMPLETE" in script
    if shell == "bash":
        asked = {"_FLUID_COMPLETE": "bash_complete", "COMP_WORDS": "fluid ins", "COMP_CWORD": "1"}
        assert fluid_process(env={**os.environ, **asked}).stdout == "plain,inspect\n"


# ----------------------------------------------------------------------------------------------------------------- doctor
def test_doctor_says_what_programs_run_on(monkeypatch):
    monkeypatch.setenv("FLUID_NATIVE", "0")
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    lines = [line.split(None, 1) for line in call("doctor").splitlines()]
    assert ["fluid", fluid.__version__] in lines and ["OMP_NUM_THREADS", "3"] in lines
    assert ["native", "code   off: FLUID_NATIVE=0"] in lines
    facts = json.loads(call("doctor", "--json"))
    assert facts["part"]["libraries"].startswith(f"numpy {np.__version__}, ")
    assert "rich " in facts["extra"]["cli"] and facts["variable"]["FLUID_NATIVE"] == "0"


def test_doctor_counts_the_devices_of_xla_without_waiting_for_ever(monkeypatch):
    import fluid.cli.doctor as module

    def here():
        return json.loads(call("doctor", "--json"))["part"]["XLA devices"]

    monkeypatch.setattr(module, "_LISTING", "import time; time.sleep(600)")
    monkeypatch.setattr(module, "_MOST_SECONDS", 1)
    monkeypatch.setattr(module.importlib.util, "find_spec", lambda name: name)
    assert here() == "unknown: jax has not answered for 1 s; JAX_PLATFORMS=cpu has it look for no others"
    monkeypatch.setattr(module, "_MOST_SECONDS", 60)
    monkeypatch.setattr(module, "_LISTING", "raise OSError('no driver')")
    assert here() == "none: jax fails: OSError: no driver"
    monkeypatch.setattr(module.importlib.util, "find_spec", lambda name: None)
    assert here() == 'none: jax is not installed (pip install ".[xla]" in the folder of Fluid\'s source)'


def test_doctor_lists_the_devices_of_xla(monkeypatch):
    pytest.importorskip("jax")
    monkeypatch.setenv("XLA_FLAGS", "--xla_force_host_platform_device_count=3")
    monkeypatch.setenv("JAX_PLATFORMS", "cpu")
    assert json.loads(call("doctor", "--json"))["part"]["XLA devices"] == "3 cpu"


def test_doctor_names_the_way_to_a_gpu(monkeypatch):
    devices = {}
    monkeypatch.setattr("fluid.cli.doctor.get_cuda_device_count", lambda: devices["cuda"])
    monkeypatch.setattr("fluid.cli.doctor._xla_devices", lambda: devices["xla"])

    def said(cuda, xla):
        devices.update(cuda=cuda, xla=xla)
        return json.loads(call("doctor", "--json"))["part"]["a GPU"]

    assert said(0, "1 cpu") == "none that jax or cupy finds"
    assert said(0, "1 cpu, 2 gpu") == 'fluid.XLAPlace("gpu")'
    assert said(1, "1 cpu, 1 gpu, 1 tpu").startswith('fluid.XLAPlace("gpu"); fluid.CUDAPlace(0) for eager mode')
    assert "recorded=True" in said(1, "1 cpu") and 'cuDNN: pip install ".[cudnn]"' in said(1, "1 cpu")
    monkeypatch.setattr("fluid.cli.doctor.importlib.util.find_spec", lambda name: name)
    assert said(1, "1 cpu").endswith("convolutions by cuDNN)")
    assert said(1, "1 cpu").startswith('fluid.XLAPlace("gpu") after pip install "jax[cuda13]"')


def test_doctor_tells_of_an_installation_that_does_not_train(monkeypatch):
    def broken():
        raise fluid.errors.ExecutionError("the loss stays")

    monkeypatch.setattr("fluid.cli.doctor.run_check", broken)
    assert "a small program could not be trained: the loss stays" in call("doctor", status=2)


# ------------------------------------------------------------------------------------------------------- the first hour
def test_params_of_a_model_lists(tmp_path):
    out = call("params", f"{LINREG}.pdmodel")
    assert out == call("params", "list", f"{LINREG}.pdmodel") and out.splitlines()[-1] == "2 values, 56 B"
    assert "No such command 'lst'" in CliRunner().invoke(cli, ["params", "lst"]).stderr


def test_inspect_of_a_checkpoint_tells_its_step(tmp_path):
    loss = layers.mean(layers.fc(fluid.data("x", [None, 2]), 1))
    fluid.optimizer.SGD(0.1).minimize(loss)
    fluid.Executor().run(fluid.default_startup_program())
    path = tmp_path / "x.ckpt"
    fluid.save_checkpoint(fluid.default_main_program(), path, step=7)
    lines = call("inspect", path).splitlines()
    assert lines == [
        f"{path}: checkpoint of step 7",
        "fluid.load_checkpoint(program, path) resumes the training",
        f"3 arrays, {json.loads(call('inspect', path, '--json'))['parameters']['bytes']} B; no program",
    ]
    assert json.loads(call("inspect", path, "--json"))["step"] == 7


@each("kind", ["program", "layer"])
def test_inspect_of_a_checkpoint_of_fit_tells_its_epoch(kind, tmp_path):
    path, batch = tmp_path / "x.ckpt", np.ones([2, 2], "float32")
    if kind == "program":
        x = fluid.data("x", [None, 2])
        loss = layers.mean(layers.fc(x, 1))
        fluid.optimizer.SGD(0.1).minimize(loss)
        fluid.training.fit(fluid.training.ProgramTrainer(loss), [{"x": batch}] * 4, epochs=3, checkpoint=path)
    else:
        with fluid.dygraph.guard():
            net = fluid.dygraph.Linear(2, 2)
            optimizer = fluid.optimizer.SGD(0.1, parameter_list=net.parameters())
            trainer = fluid.training.LayerTrainer(net, layers.mse_loss, optimizer)
            fluid.training.fit(trainer, [(fluid.dygraph.to_variable(batch),) * 2] * 4, epochs=3, checkpoint=path)
    lines = call("inspect", path).splitlines()
    assert (
        lines[0] == f"{path}: checkpoint after epoch 3" and "fit(trainer, batches, epochs, checkpoint=path) resumes" in lines[1]
    )
    assert json.loads(call("inspect", path, "--json"))["epoch"] == 3


def test_converting_beside_the_parameters_that_the_model_reads(tmp_path):
    for ending in ("pdmodel", "pdiparams"):
        shutil.copy(f"{LENET}.{ending}", tmp_path / f"m.{ending}")
    error = call("convert", tmp_path / "m.pdmodel", tmp_path / "m.json", status=2)
    assert f"m.pdiparams exists, with the parameters of {tmp_path / 'm.pdmodel'}: give OUTPUT another name, such as" in error
    assert "m_converted.json; --force writes over what is there" in error
    call("convert", tmp_path / "m.pdmodel", tmp_path / "m_converted.json")
    assert load(tmp_path / "m").parameters == load(LENET).parameters  # as it was


@pytest.mark.parametrize(("output", "target"), [("n.json", None), ("n.pdmodel", "paddle-1.6"), ("n.pdmodel", "paddle-2.6")])
def test_converting_for_inference_makes_only_ops_that_the_target_knows(output, target, tmp_path):
    options = [] if target is None else ["--target", target]
    call("convert", LENET, tmp_path / output, "--for-inference", *options)
    found = {op.type for op in load(tmp_path / output).program.global_block().ops} - {"feed", "fetch"}
    assert all(op_versions.knows(target or "paddle-3", kind) for kind in found)
    assert ("fused_conv2d_add_act" in found) is (target != "paddle-1.6")
    image = np.random.default_rng(0).normal(size=(2, 1, 28, 28)).astype("float32")
    executor = fluid.Executor()
    results = []
    for path in (LENET, tmp_path / output):
        model = load(path)
        results.append(executor.run(model.program, {"img": image}, model.fetches, scope=model.scope)[0])
    np.testing.assert_allclose(*results, rtol=1e-4, atol=1e-5)


# ------------------------------------------------------------------------------------------------------------ where to write
@each("option", ["-o", "--out", "--output"])
def test_each_command_that_writes_takes_the_same_options(option, tmp_path):
    net = tmp_path / "net.pdmodel"
    call("convert", LINREG, option, net)
    call("prune", LINREG, "--fetch", load(LINREG).fetches[0].name, option, tmp_path / "part.pdmodel")
    call("params", "export", net, option, tmp_path / "w.npz")
    call("view", net, option, tmp_path / "page.html")
    call("draw", net, option, tmp_path / "net.dot")
    np.savez(tmp_path / "feed.npz", x=np.zeros([2, 13], "float32"))
    call("run", net, "--feed", tmp_path / "feed.npz", option, tmp_path / "out.npz")
    names = {path.name for path in tmp_path.iterdir()}
    assert {"net.pdmodel", "part.pdmodel", "w.npz", "page.html", "net.dot", "out.npz"} <= names


@each("command", [["convert", LINREG], ["prune", LINREG, "--fetch", "x"], ["params", "export", LINREG]])
def test_one_output_is_needed(command, tmp_path):
    assert "say where to write: -o OUTPUT" in call(*command, status=2)
    assert "one output is written, but there are two: a.npz and -o b.npz" in call(*command, "a.npz", "-o", "b.npz", status=2)
