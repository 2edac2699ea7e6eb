"""Files of earlier versions are read, and trainings continue as before: see `golden/make_files.py`."""

from __future__ import annotations

import pickle
import shutil
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from checks import each
from paths import TESTS

import fluid
from fluid import dygraph
from fluid.formats.program import with_versions
from fluid.formats.text import parse_program_text
from fluid.ir.program import Program

GOLDEN = TESTS / "golden"
FILES = GOLDEN / "files"
sys.path.insert(0, str(GOLDEN))  # old pickles name the module of the script
import make_files  # noqa: E402

with np.load(FILES / "training.npz") as file:
    TRAINING = dict(file)
LOSS = str(TRAINING["loss"])


def read(name: str) -> Program:
    """A program in Paddle's format, which has no seed."""
    program = Program.parse_from_string((FILES / name).read_bytes())
    program.random_seed = 7
    return program


def fresh() -> tuple[Program, fluid.Scope]:
    """The training program as it was written, and a scope with first values."""
    scope = fluid.Scope()
    fluid.Executor().run(read("startup.program"), scope=scope)
    return read("training.program"), scope


def losses(program: Program, scope: fluid.Scope, count: int) -> Any:
    executor = fluid.Executor()
    return np.array([executor.run(program, make_files.FEED, [LOSS], scope=scope)[0] for _ in range(count)]).reshape(-1)


def test_programs_run_on() -> None:
    """The binary form and the text are the same program, and it trains as it did."""
    program, scope = fresh()
    assert program.serialize_to_string() == (FILES / "training.program").read_bytes()
    assert parse_program_text((FILES / "training.txt").read_text()).to_string() == (FILES / "training.txt").read_text()
    np.testing.assert_allclose(losses(program, scope, 5)[2:], TRAINING["losses"], rtol=1e-5)


def test_the_program_is_built_as_it_was() -> None:
    main, startup, _ = make_files.training_program()
    assert main.to_string() == (FILES / "training.txt").read_text()
    assert startup.serialize_to_string() == (FILES / "startup.program").read_bytes()


@each("how", ["checkpoint", "save", "persistables", "combined"])
def test_training_goes_on(how: str) -> None:
    program, scope = fresh()
    executor = fluid.Executor()
    with fluid.scope_guard(scope):
        if how == "checkpoint":
            assert fluid.load_checkpoint(program, str(FILES / "training.checkpoint")).step == 2
        elif how == "save":
            fluid.load(program, str(FILES / "saved"), executor)
        elif how == "persistables":
            fluid.io.load_persistables(executor, str(FILES / "separate"), program)
        elif how == "combined":
            fluid.io.load_persistables(executor, str(FILES), program, filename="combined.params")
        else:
            model = fluid.load_model(str(FILES / "saved.pdmodel"), scope=scope)
            program = model.program
    if how != "checkpoint":  # which alone knows how many runs there were: dropout draws by that
        scope.runs = 3
    np.testing.assert_allclose(losses(program, scope, 3), TRAINING["losses"], rtol=1e-5)


@each("how", ["load_inference_model", "load_model of a folder", "load_model"])
def test_inference_models(how: str, tmp_path: Path) -> None:
    scope = fluid.Scope()
    executor = fluid.Executor()
    with np.load(FILES / "inference.npz") as file, fluid.scope_guard(scope):
        expected = file["y"]
    with fluid.scope_guard(scope):
        if how == "load_inference_model":
            program, feeds, fetches = fluid.io.load_inference_model(str(FILES / "inference"), executor)
        else:
            path = FILES / ("inference" if how.endswith("folder") else "model.pdmodel")
            model = fluid.load_model(str(path), scope=scope)
            program, feeds, fetches = model.program, model.feeds, model.fetches
        (found,) = executor.run(program, {feeds[0]: make_files.X}, fetches, scope=scope)
    np.testing.assert_allclose(found, expected, rtol=1e-6)


@each("name", ["arrays.npz", "arrays.safetensors"])
def test_arrays(name: str) -> None:
    found = fluid.model_io.read_arrays(str(FILES / name))
    np.testing.assert_array_equal(found["x"], make_files.X)
    np.testing.assert_array_equal(found["n"], [0, 1, 2])


@pytest.fixture
def expected(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """The final results of the pickled networks; `__main__` is the script that made them."""
    for name in ("Net",):
        monkeypatch.setattr(sys.modules["__main__"], name, getattr(make_files, name), raising=False)
    with np.load(FILES / "pickles.npz") as file:
        return dict(file)


@each("path", sorted(FILES.glob("net_*.pickle")), ids=lambda path: path.stem)
def test_networks(path: Path, expected: dict[str, Any]) -> None:
    """A net computes the same after more steps. Its parameters may differ: if a norm cancels a step, the gradient is a rounding
    error, and Adam follows its sign."""
    with dygraph.guard():
        net, how, average = pickle.loads(path.read_bytes())
        make_files.train(net, how, 2)
        found = net(dygraph.to_variable(make_files.X)).numpy()
        average.update()
        with average.apply():
            assert all(np.isfinite(parameter.numpy()).all() for parameter in net.parameters())
        for number, parameter in enumerate(net.parameters()):
            parameter.set_value(expected[f"{path.stem}.{number}"])
        np.testing.assert_allclose(found, net(dygraph.to_variable(make_files.X)).numpy(), rtol=1e-4, atol=1e-5)


@each("path", sorted(FILES.glob("optimizer_*.pickle")), ids=lambda path: path.stem)
def test_optimizers(path: Path, expected: dict[str, Any]) -> None:
    with dygraph.guard():
        for number, value in enumerate(make_files.train(*pickle.loads(path.read_bytes()), 2)):
            np.testing.assert_allclose(value, expected[f"{path.stem}.{number}"], rtol=1e-5, atol=1e-7)


def test_eager_state(expected: dict[str, Any], tmp_path: Path) -> None:
    for ending in ("pdparams", "pdopt"):
        shutil.copy(FILES / f"eager.{ending}", tmp_path)
    parameters, state = dygraph.load_dygraph(str(tmp_path / "eager"))
    assert state and parameters.keys() == {key.removeprefix("eager.") for key in expected if key.startswith("eager.")}
    for key, value in parameters.items():
        assert np.asarray(value).shape == expected[f"eager.{key}"].shape


VALUES = {
    "tensor": lambda found: not found.stop_gradient and np.array_equal(found.numpy(), make_files.X),
    "places": lambda found: found == [fluid.CPUPlace(), fluid.CUDAPlace(1)],
    "types": lambda found: found[0] is fluid.core.VarDesc.VarType.FP32 and found[1].name == "LOD_TENSOR",
    "attrs": lambda found: found[0].name == "w" and isinstance(found[1], fluid.WeightNormParamAttr) and found[1].dim == 1,
    "initializers": lambda found: isinstance(found[0], fluid.initializer.MSRAInitializer) and callable(found[1]),
    "rates": lambda found: [rate.step_num for rate in found] == [0, 0] and [rate() is not None for rate in found] == [True] * 2,
    "lod": lambda found: found.recursive_sequence_lengths() == [[1, 3]] and np.array_equal(np.array(found), make_files.X),
    "traced": lambda found: found(dygraph.to_tensor(make_files.X)).shape == (4, 3),
    "metrics": lambda found: isinstance(found[0], fluid.metrics.Accuracy) and isinstance(found[1], fluid.metrics.Auc),
    "errors": lambda found: isinstance(found[0], fluid.errors.ProgramError) and str(found[1]) == "no",
}


def test_every_value_is_looked_at() -> None:
    assert {path.stem.removeprefix("value_") for path in FILES.glob("value_*.pickle")} == VALUES.keys()


@each("name", VALUES)
def test_values(name: str) -> None:
    with dygraph.guard():
        assert VALUES[name](pickle.loads((FILES / f"value_{name}.pickle").read_bytes()))


def lamb_of_paddle_1(decay: float) -> Program:
    """A program of Paddle 1.8 with one update, read from its file."""
    program = Program()
    block = program.global_block()
    sizes = {"Param": 3, "Grad": 3, "Moment1": 3, "Moment2": 3, "LearningRate": 1, "Beta1Pow": 1, "Beta2Pow": 1}
    for name, size in sizes.items():
        block.create_var(name=name, shape=[size], dtype="float32", persistable=True)
    outputs = {f"{name}Out": [name] for name in ("Param", "Moment1", "Moment2")}
    block.append_op("uncorrected_lamb", {name: [name] for name in sizes}, outputs, {"weight_decay": decay})
    data = program.serialize_to_string()
    assert b"uncorrected" not in data
    again = Program.parse_from_string(data)
    assert again.serialize_to_string() == data
    return again


@each("version, expected", [(0, 6), (1_006_000, -1), (1_006_003, -1), (1_007_000, 6), (1_008_005, 6)])
def test_shards_of_paddle_1_6(version: int, expected: int) -> None:
    """Paddle 1.6 divides 15 ids among 2 shards as 7 and 7, so id 14 is in none; later versions as 8 and 7."""
    program = Program()
    with fluid.program_guard(program):
        shard = fluid.layers.shard_index(fluid.data("ids", [None, 1], "int64"), 15, 2, 1)
    program.wire = with_versions(version, [])
    data = program.serialize_to_string()
    again = Program.parse_from_string(data)
    assert again.serialize_to_string() == data
    (found,) = fluid.Executor().run(again, {"ids": np.int64([[14], [0]])}, [shard.name])
    assert found.tolist() == [[expected], [-1]]


@each("decay, expected", [(0.0, [0.8050579, 2.098338, -3.303854]), (0.1, [0.6962751, 2.012969, -3.218135])])
def test_lamb_of_paddle_1(decay: float, expected: list[float]) -> None:
    """Paddle 1.x does not correct the moments; the numbers are of Paddle 1.8.5."""
    scope, numbers = fluid.Scope(), {"LearningRate": [0.1], "Beta1Pow": [0.9], "Beta2Pow": [0.999]}
    moments = {"Moment1": [0.1, 0, 0.2], "Moment2": [0.1, 0.2, 0.3]}
    for name, value in {"Param": [1, 2, -3], "Grad": [0.5, -1, 2], **moments, **numbers}.items():
        scope.var(name).get_tensor().set(np.float32(value))
    fluid.Executor().run(lamb_of_paddle_1(decay), scope=scope)
    np.testing.assert_allclose(np.asarray(scope.find_var("Param").get_tensor()), expected, rtol=1e-6)


def test_lamb_of_paddle_2() -> None:
    program = lamb_of_paddle_1(0.0)
    program.wire = with_versions(2_000_000, [])
    again = Program.parse_from_string(program.serialize_to_string())
    assert [op.type for op in again.global_block().ops] == ["lamb"]


@pytest.mark.parametrize("powers", [(), ("Beta1PowOut", "Beta2PowOut")])
def test_a_lamb_that_was_built_here_reads_back_as_lamb(powers: tuple[str, ...]) -> None:
    """With or without the outputs that tell it from the lamb of Paddle 1.x."""
    program = fluid.Program()
    block = program.global_block()
    inputs = ("Param", "Grad", "LearningRate", "Moment1", "Moment2", "Beta1Pow", "Beta2Pow")
    for name in inputs:
        block.create_var(name=name, shape=[1 if name[-4:] in ("Rate", "1Pow", "2Pow") else 3], dtype="float32", persistable=True)
    outputs = {f"{name}Out": [name] for name in ("Param", "Moment1", "Moment2")} | {name: [name[:-3]] for name in powers}
    block.append_op("lamb", {name: [name] for name in inputs}, outputs, {"weight_decay": 0.01})
    for _ in range(2):
        program = fluid.Program.parse_from_string(program.serialize_to_string())
        (op,) = program.global_block().ops
        assert op.type == "lamb" and {slot: names for slot, names in op.outputs.items() if names} == outputs
