"""Files that claim to be programs of Paddle 3: each ends in an error that names the fault, and takes no more memory than its size
allows.

`test_fuzz` has thousands of damaged ones; here are those that are built to hurt.
"""

from __future__ import annotations

import json
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from paths import TESTS

import fluid
from fluid.errors import FormatError
from fluid.executor import Scope
from fluid.formats import room

GOLDEN = TESTS / "golden" / "paddle3"
HEAD = b'{"base_code":{"magic":"pir","version":4},"program":{"regions":['


def changed(change: Callable[[list[Any]], None]) -> bytes:
    """A good program after a change of its ops."""
    tree = json.loads((GOLDEN / "branches.json").read_bytes())
    change(tree["program"]["regions"][0]["blocks"][0]["ops"])
    return json.dumps(tree).encode()


def of_type(ops: list[Any], name: str) -> Any:
    return next(op for op in ops if op["#"] == name)


def set_shape(ops: list[Any], shape: list[int]) -> None:
    of_type(ops, "1.data")["O"][0]["TT"]["D"][1] = shape


def is_its_own_operand(ops: list[Any]) -> None:
    scale = of_type(ops, "1.scale")
    scale["I"][0]["%"] = scale["O"][0]["%"]


def reads_what_comes_later(ops: list[Any]) -> None:
    of_type(ops, "1.scale")["I"][0]["%"] = ops[-1]["O"][0]["%"]


def looks_into_a_branch(ops: list[Any]) -> None:
    branch = of_type(ops, "1.if")["regions"][0]["blocks"][0]["ops"]
    of_type(ops, "1.fetch")["I"][0]["%"] = branch[0]["O"][0]["%"]


def nested_ifs(depth: int) -> bytes:
    opening = b'{"blocks":[{"args":[],"ops":['
    return HEAD + (opening + b'{"#":"1.if","I":[],"O":[],"regions":[') * depth + b"]}" * depth + b"]}]}" * depth + b"]}}"


HOSTILE: dict[str, tuple[bytes, str]] = {
    "truncated": ((GOLDEN / "branches.json").read_bytes()[:-40], "not a program of Paddle 3: Unterminated string"),
    "no JSON": (b"{nonsense", "not a program of Paddle 3: Expecting property name"),
    "no UTF-8": (b'{"a": "\xff\xff"}', "is not UTF-8, at byte 7"),
    "another magic": (b'{"base_code":{"magic":"onnx"}}', "base_code.magic should be 'pir', not 'onnx'"),
    "a version to come": (
        b'{"base_code":{"magic":"pir","version":5}}',
        "written in version 5 of the format; 1 to 4 are known",
    ),
    "lists a million deep": (b'{"a":' + b"[" * 1_000_000, "nested too deep"),
    "objects a million deep": (b'{"a":' * 1_000_000, "nested too deep"),
    "regions too deep": (nested_ifs(60), "regions lie deeper in each other than 40"),
    "an integer of a million digits": (HEAD + b"9" * 1_000_000 + b"]}}", "not a program of Paddle 3: Exceeds the limit"),
    "lists of nothing": (HEAD + b"[]," * 3_000_000 + b"[]]}}", "so many, and so small"),
    "a dimension of 2^62": (changed(lambda ops: set_shape(ops, [1 << 62])), "a shape should be at most 64 sizes"),
    "a dimension of 1e30": (changed(lambda ops: set_shape(ops, [10**30])), "a shape should be at most 64 sizes"),
    "a thousand dimensions": (changed(lambda ops: set_shape(ops, [1] * 1000)), "a shape should be at most 64 sizes"),
    "an op that reads itself": (changed(is_its_own_operand), "op 6 (scale): the operand 7 is not defined before"),
    "an op that reads what comes later": (changed(reads_what_comes_later), "is not defined before"),
    "a value defined twice": (changed(lambda ops: ops.append(ops[-1])), "op 14 (fetch): the value 30 is defined again"),
    "a value out of view": (changed(looks_into_a_branch), "op 12 (fetch): the operand 14 is out of view"),
    "a key twice": (HEAD + b'{"a":1,"b":2,"a":3}]}}', "an object has 'a' twice"),
    "a parameter twice": (changed(lambda ops: ops.insert(1, {**ops[0], "O": {**ops[0]["O"], "%": 99}})), "is there twice"),
    "a branch without a yield": (
        changed(lambda ops: of_type(ops, "1.if")["regions"][0]["blocks"][0]["ops"].pop()),
        "a region should end with a cf.yield of 2 values, not of 0",
    ),
    "a type of attribute that is none": (
        changed(lambda ops: of_type(ops, "1.scale")["A"][0]["AT"].update(D="x")),
        "the attribute 'bias' is of type f32, but holds 'x'",
    ),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_it_is_refused_with_a_reason(tmp_path: Path, name: str) -> None:
    data, message = HOSTILE[name]
    (tmp_path / "model.json").write_bytes(data)
    scope = Scope()
    with pytest.raises(FormatError) as error:
        fluid.load_model(tmp_path / "model.json", scope=scope)
    assert message in str(error.value) and str(tmp_path / "model.json") in str(error.value)
    assert len(str(error.value)) < 1000 and not scope.local_var_names()


@pytest.mark.parametrize("item", [b"[]", b"{}", b"1", b"999999", b"1.5", b'"ab"', b'{"#":1}', b'{"%":1,"TT":2}'])
def test_memory_is_bounded_by_the_size_of_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, item: bytes) -> None:
    """With less to spare than the 64 MiB, which would take longer to fill."""
    monkeypatch.setattr(room, "_SPARE", 4 << 20)
    (tmp_path / "model.json").write_bytes(HEAD + (item + b",") * 60_000 + item + b"]}}")
    size = (tmp_path / "model.json").stat().st_size
    tracemalloc.start()
    with pytest.raises(FormatError):
        fluid.load_model(tmp_path / "model.json", scope=Scope())
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < (4 << 20) + 10 * size


def test_parameters_that_lie_about_their_shape(tmp_path: Path) -> None:
    """The program says one shape, the file of parameters another."""
    tree = json.loads((GOLDEN / "branches.json").read_bytes())
    tree["program"]["regions"][0]["blocks"][0]["ops"][0]["O"]["TT"]["D"][1] = [1 << 40]
    (tmp_path / "model.json").write_text(json.dumps(tree))
    (tmp_path / "model.pdiparams").write_bytes((GOLDEN / "branches.pdiparams").read_bytes())
    with pytest.raises(FormatError, match=r"the file holds float32\[2\], the program declares float32\[1099511627776\]"):
        fluid.load_model(tmp_path / "model.json", scope=Scope())
