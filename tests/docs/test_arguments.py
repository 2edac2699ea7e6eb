"""Arguments of a wrong kind: every function that users call says which of its arguments it is, and what that should be."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from checks import each

import fluid
from fluid import io, viewer
from fluid.dygraph import checkpoint as dygraph_checkpoint
from fluid.errors import FluidError, FluidTypeError, FormatError
from fluid.formats import pickles as pickle_io
from fluid.formats import program as serde
from fluid.formats import text
from fluid.ir.checked import Positive, arguments_of, checked
from fluid.saving import checkpoint
from fluid.saving import models as model_io
from fluid.transform import compare, edit, flops, folding, graph

MODULES = (checkpoint, compare, dygraph_checkpoint, edit, flops, folding, graph, io, model_io, pickle_io, serde, text, viewer)
INSIDE = {
    "attr_kind",
    "check_numbers",
    "match_ops",
    "not_numbers",
    "parse_tensor_desc",
    "read_instructions",
    "progress_of",
    "serialize_tensor_desc",
    "telling_attrs",
    "with_versions",
}
"""Functions that others of the package call, for each attribute or tensor, say; users do not."""


def functions() -> Iterator[Callable[..., Any]]:
    for module in MODULES:
        for name in module.__all__:
            value = getattr(module, name)
            if inspect.isfunction(value) and name not in INSIDE and value.__module__.split(".")[1] not in ("loading", "reader"):
                yield value


def model() -> fluid.Program:
    program, startup = fluid.Program(), fluid.Program()
    with fluid.program_guard(program, startup), fluid.unique_name.guard():
        fluid.layers.fc(fluid.data("x", [-1, 3]), 2)
    fluid.Executor(fluid.CPUPlace()).run(startup)
    return program


def odd_values() -> dict[str, Any]:
    program = model()
    return {
        "None": None,
        "a number": 3,
        "another number": 2.5,
        "a string": "x",
        "an empty string": "",
        "bytes": b"x",
        "a list": [3],
        "a dict": {3: 3},
        "an array": np.zeros(2),
        "an array of none": np.zeros(()),
        "a Program": program,
        "a Block": program.global_block(),
        "a Variable": program.global_block().vars["x"],
        "an Operator": program.global_block().ops[0],
        "a Scope": fluid.global_scope(),
        "a function": print,
        "a type": int,
        "an object": object(),
    }


def good_values(program: fluid.Program, names: Iterable[str]) -> dict[str, Any]:
    """A value for each of these arguments; some are parts of `program`."""
    root = program.global_block()
    written: dict[str, Callable[[], Any]] = {"data": program.serialize_to_string, "text": program.to_string}
    named = {
        "op": root.ops[0],
        "block": root,
        "para": program.all_parameters()[0],
        "var": root.vars["x"],
        "old": "x",
        "new": "y",
        "inputs": ["x"],
        "feeds": ["x"],
        "feeded_var_names": ["x"],
        "shape": [2, 3],
        "builder": lambda X, **others: X,
        "name": "fc_0.w_0",
        "kind": "int",
        "value": 1,
        "arrays": {"a": np.zeros(2)},
        "state_dict": {"fc_0.w_0": np.zeros((3, 2), "float32")},
        "dirname": "folder",
        "model_path": "folder/start",
        "path": "folder/file.npz",
        "executor": fluid.Executor(fluid.CPUPlace()),
        "feed": {"x": np.zeros((2, 3), "float32")},
        "scope": fluid.global_scope(),
    }
    named |= dict.fromkeys(("program", "main_program", "p", "q"), program)
    named |= {name: ["fc_0.tmp_1"] for name in ("outputs", "targets", "target_vars", "fetches")}
    return {name: written[name]() if name in written else named[name] for name in names}


@pytest.mark.filterwarnings("ignore:set_program_state")
@each("function", list(functions()), ids=lambda function: f"{function.__module__}.{function.__name__}")
def test_what_an_argument_cannot_be_is_refused(
    function: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Replace each argument in turn by an invalid value; an error of Python's own fails the test."""
    monkeypatch.chdir(tmp_path)
    parameters = inspect.signature(function).parameters
    known = arguments_of(inspect.unwrap(function))
    refused, start = 0, model()
    for argument in parameters:
        for what, value in odd_values().items():
            given = good_values(start.clone(), [name for name, one in parameters.items() if one.default is one.empty])
            if function.__name__ == "insert" and argument != "after":
                given["before"] = 0
            if argument == "builder" and callable(value):
                continue  # what it raises is its own
            says, holds, *_ = known.get(argument, ("", bool))
            try:
                found = function(**(given | {argument: value}))
                if inspect.isgenerator(found):
                    list(found)
            except FluidTypeError as error:
                refused += f"{argument} should be {says}, not" in str(error)
            except FluidError:
                pass
            else:
                assert not says or holds(value), f"{argument} cannot be {what}"
    assert refused or not any(says for says, *_ in known.values())


@each(
    ("call", "says"),
    [
        (lambda program: fluid.load_model(3), "load_model: path should be a string or a path, not 3"),
        (lambda program: program.extract(3, 4), "a Variable or a string or a list of Variables or strings, not 3"),
        (lambda program: program.extract("x", [4]), r"extract: outputs should be a Variable or .*, not \[4\]"),
        (lambda program: program.make_trainable(3), "pattern should be a string or a list of strings or None, not 3"),
        (lambda program: graph.to_networkx(3), "to_networkx: program should be a Program, not 3"),
        (lambda program: graph.to_dot("x"), "to_dot: program should be a Program, not 'x'"),
        (lambda program: graph.to_dot(program.global_block()), "to_dot: .* a Program, not Block; its `program` is one"),
        (lambda program: io.save_params(None, None, program), "save_params: dirname should be a string or a path, not None"),
        (lambda program: io.save_params(None, "d", fluid.CompiledProgram(program)), "not CompiledProgram; its `program` is one"),
        (lambda program: io.prune(program, "fc"), "prune: targets should be a list of Variables or strings, not 'fc'"),
        (lambda program: io.load_vars(None, "d", predicate=3), "load_vars: predicate should be a function or None, not 3"),
        (lambda program: fluid.load_model("x", allow="py_func"), "load_model: allow should be a list of strings, not 'py_func'"),
        (lambda program: program.fold_constants({}), "fold_constants: scope should be a Scope or None, not dict"),
        (lambda program: flops.count_flops(program, "many"), "count_flops: unknown should be an integer, not 'many'"),
        (lambda program: compare.diff(program, program, [1]), r"diff: values_p should be a dict by name or None, not \[1\]"),
        (lambda program: io.set_program_state(program, {1: 2}), "state_dict should be a dict by name, not dict"),
        (lambda program: text.parse_program_text(b"block 0 {}"), "parse_program_text: text should be a string, not bytes"),
        (lambda program: fluid.save_model("m", "m"), "save_model: program should be a Program or None, not 'm'"),
    ],
)  # fmt: skip
def test_messages(call: Callable[[fluid.Program], Any], says: str) -> None:
    with pytest.raises(FluidTypeError, match=says):
        call(model())


def test_any_list_will_do(tmp_path: Path) -> None:
    """Tuples, sets, generators and keys; paths beside strings."""
    program = model()
    io.save_vars(None, tmp_path, program, vars=(var for var in program.list_vars() if var.name == "fc_0.w_0"))
    assert os.listdir(tmp_path) == ["fc_0.w_0"]
    io.save_vars(None, tmp_path, program, vars=["fc_0.w_0"], filename=Path("all"))
    io.load_vars(None, tmp_path, program, vars=["fc_0.w_0"], filename=Path("all"))
    io.save_inference_model(tmp_path / "m", {"x": 0}.keys(), iter(["fc_0.tmp_1"]), None, program)
    fluid.save(program, tmp_path / "s")
    fluid.load(program, tmp_path / "s")
    assert sorted(io.load_program_state(tmp_path / "s")) == ["fc_0.b_0", "fc_0.w_0"]
    assert io.load_inference_model(tmp_path / "m", None)[1] == ["x"]
    assert [op.type for op in io.prune(program, {"fc_0.tmp_0"}).global_block().ops] == ["mul"]
    assert program.set_shape("x", np.array([2, 3])).changed
    with pytest.raises(FluidTypeError, match="targets should be"):
        io.prune(program, program.global_block().vars["x"])


@each(
    ("name", "says"),
    [
        ("folder", "folder is a folder; a checkpoint is one file: give that file's name"),
        ("missing", "missing: there is no such checkpoint: No such file or directory"),
        ("text", "text: the file is not a checkpoint, which begins as archives do"),
    ],
)
def test_what_is_no_checkpoint(tmp_path: Path, name: str, says: str) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "text").write_text("hello")
    (tmp_path / "missing.npz").write_bytes(b"PK\x05\x06" + bytes(18))
    with pytest.raises(FormatError, match=says):
        fluid.load_checkpoint(model(), tmp_path / name)


# ------------------------------------------------------------------------------------------------------- plain arguments
@checked
def handed_on(
    whole: int = 0,
    number: float = 0.0,
    flag: bool = False,
    above: Positive = 1,
    several: int | Sequence[int] | None = None,
    pairs: Sequence[int | Sequence[int]] = (),
    numbers: Sequence[float] = (),
    names: str | Iterable[str] = "",
    anything: Any = None,
) -> dict[str, Any]:
    return dict(locals())


@each(
    ("argument", "value", "plain"),
    [
        ("whole", np.int64(2), 2),
        ("whole", np.array(2), 2),
        ("whole", np.array([2.0]), 2),
        ("whole", 2.0, 2),
        ("whole", True, True),
        ("whole", np.uint64(2**64 - 1), 2**64 - 1),
        ("number", np.float32(0.5), 0.5),
        ("number", np.array([0.5]), 0.5),
        ("number", 3, 3),
        ("flag", np.True_, True),
        ("flag", np.array(False), False),
        ("flag", 1, True),
        ("above", np.int8(2), 2),
        ("several", np.int64(2), 2),
        ("several", 2.0, 2),
        ("several", np.array(2), 2),
        ("several", np.array([2]), [2]),
        ("several", np.array([1, 2]), [1, 2]),
        ("several", range(1, 3), [1, 2]),
        ("several", (1.0, np.int32(2)), [1, 2]),
        ("several", (1, 2), (1, 2)),
        ("several", None, None),
        ("pairs", np.array([[1, 2], [3, 4]]), [[1, 2], [3, 4]]),
        ("pairs", [1, (np.int64(2), 3)], [1, [2, 3]]),
        ("numbers", np.array([0.5, 1]), [0.5, 1.0]),
        ("numbers", [1, np.float64(0.5)], [1, 0.5]),
        ("names", ("a", "b"), ("a", "b")),
        ("anything", range(3), range(3)),
    ],
)
def test_what_is_checked_is_handed_on_as_pythons_own(argument: str, value: Any, plain: Any) -> None:
    for found in (
        handed_on(**{argument: value})[argument],
        handed_on(*[value if name == argument else one for name, one in handed_on().items()])[argument],
    ):
        assert repr(found) == repr(plain)  # which tells 2 from 2.0, True and np.int64(2)


@each(
    ("argument", "value", "says"),
    [
        ("whole", np.float64(2.5), "whole should be an integer, not 2.5|np.float64"),
        ("whole", float("inf"), "whole should be an integer, not inf"),
        ("whole", np.array([1, 2]), "whole should be an integer, not ndarray"),
        ("flag", np.array([True, False]), "flag should be True or False, not ndarray"),
        ("above", np.array(0), "above should be an integer above 0"),
        ("several", np.array([0.5, 1]), "several should be an integer or a list of integers or None, not ndarray"),
        ("pairs", [[1, [2]]], "pairs should be a list of integers or a list of integers"),
    ],
)
def test_what_numpy_holds_is_checked_too(argument: str, value: Any, says: str) -> None:
    with pytest.raises(FluidTypeError, match=says):
        handed_on(**{argument: value})


def test_lists_that_are_plain_stay_the_same_objects() -> None:
    plain, names = [1, 2], iter(["a"])
    found = handed_on(several=plain, names=names)
    assert found["several"] is plain and found["names"] is names


def test_layers_take_numbers_of_numpy() -> None:
    layers = fluid.layers
    x, image = fluid.data("x", [2, 3, 4]), fluid.data("image", [1, 2, 8, 8])
    one_two: Any = np.array([1, 2])
    assert layers.reduce_sum(x, dim=np.int64(1)).shape == layers.reduce_sum(x, dim=1.0).shape == (2, 4)
    assert layers.reduce_sum(x, 0, keep_dim=np.True_).shape == (1, 3, 4)
    assert layers.reduce_sum(x, one_two).shape == layers.reduce_sum(x, range(1, 3)).shape == (2,)
    for two in (np.int64(2), 2.0, np.array(2)):
        assert [part.shape for part in layers.split(x, two, dim=0)] == [(1, 3, 4)] * 2
        assert layers.fc(x, 5, num_flatten_dims=two).shape == (2, 3, 5)
        assert len(layers.unstack(x, axis=two)) == 4
        assert layers.conv2d(image, 3, two, stride=two, padding=two).shape == (1, 3, 6, 6)
        assert layers.linspace(0.0, 1.0, two, "float32").dtype.text == "float32"
    assert layers.pool2d(image, pool_size=one_two, pool_stride=one_two).shape == (1, 2, 8, 4)
    assert layers.pool2d(image, range(1, 3), pool_stride=range(1, 3)).shape == (1, 2, 8, 4)
    assert layers.conv2d(image, 3, one_two, padding=range(1, 3)).shape == (1, 3, 10, 11)
    assert layers.conv2d(image, 3, 1, padding=np.array([[0, 0], [0, 0], [1, 2], [0, 1]])).shape == (1, 3, 11, 9)
    assert layers.resize_nearest(image, one_two).shape == layers.resize_nearest(image, range(1, 3)).shape == (1, 2, 1, 2)
    assert layers.crop_tensor(x, np.array([1, 2, 3]), np.zeros(3, "int64")).shape == (1, 2, 3)
    assert layers.crop(x, range(1, 4)).shape == (1, 2, 3)
    assert layers.piecewise_decay(one_two, np.array([0.1, 0.2, 0.3])).shape == (1,)
    assert layers.dropout(x, 0.5, is_test=one_two.sum() == 3).block.ops[-1].attrs["is_test"] is True


def test_flags_that_are_none_are_value_errors_too() -> None:
    """As Fluid 1.6's layers raise of `use_cudnn`."""
    image, volume = fluid.data("image", [None, 3, 8, 8]), fluid.data("volume", [None, 3, 8, 8, 8])
    for layer, x in ((fluid.layers.pool2d, image), (fluid.layers.pool3d, volume)):
        for error in (ValueError, FluidTypeError):
            with pytest.raises(error, match=r"use_cudnn should be True or False, not \[0\]"):
                layer(x, 2, use_cudnn=[0])  # type: ignore[arg-type]
