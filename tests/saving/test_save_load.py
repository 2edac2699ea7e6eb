"""`fluid.save` and `fluid.load`: a program and its state in three files, which Paddle's are too."""

from __future__ import annotations

import pickle
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from paths import TESTS

import fluid
from fluid import dygraph, io, layers
from fluid.errors import ExecutionError, FluidTypeError, FormatError, NameNotFoundError, ProgramError

GOLDEN = TESTS / "golden" / "pickles"


def trained() -> tuple[fluid.Executor, fluid.Variable]:
    x, y = fluid.data("x", [None, 2]), fluid.data("y", [None, 1])
    loss = layers.mean(layers.square_error_cost(layers.fc(layers.batch_norm(layers.fc(x, 3)), 1), y))
    fluid.optimizer.Adam(0.1).minimize(loss)
    fluid.default_startup_program().random_seed = 3
    executor = fluid.Executor(fluid.CPUPlace())
    executor.run(fluid.default_startup_program())
    for _ in range(2):
        step(executor, loss)
    return executor, loss


def step(executor: fluid.Executor, loss: fluid.Variable) -> Any:
    x = np.array([[1.0, 2.0], [3.0, -1.0], [0.5, 0.0]], "float32")
    return executor.run(feed={"x": x, "y": x[:, :1]}, fetch_list=[loss])[0]


def values() -> dict[str, Any]:
    scope = fluid.global_scope()
    return {name: np.array(scope.find_var(name).get_tensor()) for name in scope.local_var_names()}  # type: ignore[union-attr]


def test_training_goes_on_with_the_same_bits(tmp_path: Path) -> None:
    executor, loss = trained()
    path, program = str(tmp_path / "deep" / "model"), fluid.default_main_program()
    fluid.save(program, path)
    assert sorted(file.name for file in (tmp_path / "deep").iterdir()) == ["model.pdmodel", "model.pdopt", "model.pdparams"]
    before, after = values(), [step(executor, loss) for _ in range(3)]
    with fluid.scope_guard(fluid.Scope()):
        fluid.load(program, path, executor)
        assert all(np.array_equal(value, before[name]) for name, value in values().items())
        assert [step(executor, loss) for _ in range(3)] == after
    assert len(fluid.Program.parse_from_string((tmp_path / "deep" / "model.pdmodel").read_bytes()).global_block().ops) > 10


def test_which_file_holds_what(tmp_path: Path) -> None:
    trained()
    path, program = str(tmp_path / "model"), fluid.default_main_program()
    fluid.save(program, path)
    parameters, state = (pickle.loads((tmp_path / f"model.{kind}").read_bytes()) for kind in ("pdparams", "pdopt"))
    assert set(parameters) == {var.name for var in io.get_program_parameter(program)}
    assert set(parameters) | set(state) == {var.name for var in io.get_program_persistable_vars(program)}
    assert any("moment1" in name for name in state) and not set(parameters) & set(state)
    found = io.load_program_state(path)
    assert set(found) == {*parameters, *state}
    assert set(io.load_program_state(path + ".pdparams")) == set(found)
    np.testing.assert_array_equal(found["fc_0.w_0"], values()["fc_0.w_0"])


def test_paddles_files_load(tmp_path: Path) -> None:
    """A program that Paddle 2.6 trained for no step, its parameters and the state of its Adam."""
    program = fluid.Program.parse_from_string((GOLDEN / "static.pdmodel").read_bytes())
    fluid.load(program, str(GOLDEN / "static"))
    found = values()
    for kind in ("pdparams", "pdopt"):
        for name, value in pickle.loads((GOLDEN / f"static.{kind}").read_bytes()).items():
            np.testing.assert_array_equal(found[name].reshape(value.shape), value)


def test_names_within_a_layer_become_those_of_parameters() -> None:
    found = io.load_program_state(str(GOLDEN / "layer"))
    assert {"linear_0.w_0", "linear_0.b_0", "linear_0.w_0_moment1_0"} <= set(found)
    assert all(isinstance(value, (np.ndarray, np.generic)) for value in found.values())


def test_parameters_in_pieces_are_put_together(tmp_path: Path) -> None:
    """As Paddle writes arrays that are too large for old pickles."""
    pieces = {
        "w@@.0": np.arange(4.0),
        "w@@.1": np.arange(4.0, 6.0),
        "UnpackBigParamInfor@@": {"w": {"OriginShape": (2, 3), "slices": ["w@@.0", "w@@.1"]}},
    }
    (tmp_path / "m.pdparams").write_bytes(pickle.dumps(pieces, 2))
    found = io.load_program_state(str(tmp_path / "m"))
    assert list(found) == ["w"]
    np.testing.assert_array_equal(found["w"], np.arange(6.0).reshape(2, 3))
    pieces["UnpackBigParamInfor@@"]["w"]["OriginShape"] = (7,)  # type: ignore[call-overload]
    (tmp_path / "m.pdparams").write_bytes(pickle.dumps(pieces, 2))
    with pytest.raises(FormatError, match=r"m\.pdparams: the pieces of 'w' do not make one array"):
        io.load_program_state(str(tmp_path / "m"))


def test_files_of_two_saves_are_not_mixed(tmp_path: Path) -> None:
    """As someone leaves them who copies one of two files; a process that is killed between their renames leaves a whole save."""
    executor, loss = trained()
    path, program = tmp_path / "m", fluid.default_main_program()
    fluid.save(program, path)
    first = {name: (tmp_path / name).read_bytes() for name in ("m.pdparams", "m.pdopt")}
    fluid.save(program, path)
    assert {name: (tmp_path / name).read_bytes() for name in first} == first  # the same values, the same bytes
    step(executor, loss)
    before = values()
    fluid.save(program, path)
    (tmp_path / "m.pdparams").write_bytes(first["m.pdparams"])
    says = r"m\.pdparams and .*m\.pdopt were not saved together: their stamps are ([0-9a-f]{8}) and (?!\1)[0-9a-f]{8}"
    for load in (
        lambda: fluid.load(program, path),
        lambda: io.load_program_state(path),
        lambda: fluid.load_model(tmp_path / "m.pdparams"),
        lambda: dygraph.load_dygraph(str(path)),
    ):
        with pytest.raises(FormatError, match=says):
            load()
    assert all(np.array_equal(value, before[name]) for name, value in values().items())
    bare = first["m.pdparams"][: -len(b"\n# saved together: 01234567\n")]  # as earlier versions wrote, and Paddle does
    assert set(pickle.loads(bare)) == set(pickle.loads(first["m.pdparams"]))
    (tmp_path / "m.pdparams").write_bytes(bare)
    fluid.load(program, path)


def test_set_program_state(tmp_path: Path) -> None:
    executor, _ = trained()
    program, before = fluid.default_main_program(), values()
    with pytest.warns(UserWarning, match="the program keeps nothing under these 1 names: other"):
        io.set_program_state(program, {"fc_0.w_0": np.full((2, 3), 7, "float32"), "other": np.ones(3)})
    found = values()
    assert (found.pop("fc_0.w_0") == 7).all()
    assert all(np.array_equal(value, before[name]) for name, value in found.items())
    message = r"the state, variable 'fc_0.w_0': the file holds float32\[3, 2\], the program declares float32\[2, 3\]"
    with pytest.raises(FormatError, match=message):
        io.set_program_state(program, {"fc_0.b_0": np.ones(3, "float32"), "fc_0.w_0": np.ones((3, 2), "float32")})
    assert (values()["fc_0.b_0"] != 1).any()  # nothing has changed
    assert (io.get_parameter_value_by_name("fc_0.w_0", executor) == 7).all()
    assert (io.get_parameter_value(program.global_block().vars["fc_0.w_0"], executor) == 7).all()  # type: ignore[arg-type]


@pytest.mark.parametrize("how", [None, "all"])
def test_load_takes_what_save_vars_wrote(tmp_path: Path, how: str | None) -> None:
    """As of Fluid 1.7: a folder with a file for each variable, or one file with all, whose names the variables tell."""
    executor, loss = trained()
    program, before, path = fluid.default_main_program(), values(), str(tmp_path / "saved")
    io.save_persistables(executor, path, program, filename=how)
    path += "/all" if how else ""
    every = io.get_program_persistable_vars(program)
    if how:
        for load in (lambda: fluid.load(program, path), lambda: io.load_program_state(path)):
            with pytest.raises(ProgramError, match=r"saved/all holds arrays without names; give the variables .* var_list="):
                load()
        with pytest.raises(FormatError, match=r"saved/all, at byte \d+: \d+ bytes follow the 1 variables"):
            io.load_program_state(path, var_list=["fc_0.w_0"])
    for state in (io.load_program_state(path, var_list=every), *([] if how else [io.load_program_state(path)])):
        assert set(state) == set(before) and all(np.array_equal(array, before[name]) for name, array in state.items())
    step(executor, loss)
    assert any(not np.array_equal(value, before[name]) for name, value in values().items())
    fluid.load(program, path, executor, var_list=every if how else None)
    assert all(np.array_equal(value, before[name]) for name, value in values().items())
    if not how:
        (tmp_path / "saved" / "fc_0.b_0").unlink()
        io.set_program_state(program, {name: array * 0 for name, array in before.items()})
        fluid.load(program, path)  # variables without a file keep their values
        assert not values()["fc_0.b_0"].any() and np.array_equal(values()["fc_0.w_0"], before["fc_0.w_0"])
        with pytest.raises(FormatError, match=r"variable 'fc_0.b_0': the file cannot be read"):
            fluid.load(program, path, var_list=["fc_0.b_0"])


def test_load_of_some_variables(tmp_path: Path) -> None:
    trained()
    program, before, path = fluid.default_main_program(), values(), str(tmp_path / "m")
    fluid.save(program, path)
    assert list(io.load_program_state(path, var_list=["fc_0.w_0"])) == ["fc_0.w_0"]
    io.set_program_state(program, {name: array * 0 for name, array in before.items()})
    fluid.load(program, path, var_list=[program.global_block().var("fc_0.w_0")])
    loaded = values()
    assert np.array_equal(loaded.pop("fc_0.w_0"), before["fc_0.w_0"]) and not any(value.any() for value in loaded.values())


def test_errors(tmp_path: Path) -> None:
    executor, _ = trained()
    program, path = fluid.default_main_program(), str(tmp_path / "model")
    for act in (fluid.save, fluid.load):
        with pytest.raises(ProgramError, match=r"names a folder; give the start of the files' names too"):
            act(program, str(tmp_path) + "/")
    with pytest.raises(FormatError, match=r"model.pdparams: the file cannot be read: No such file"):
        fluid.load(program, path)
    with (
        fluid.scope_guard(fluid.Scope()),
        pytest.raises(ExecutionError, match="has no value in the scope; run the startup program"),
    ):
        fluid.save(program, path)
    assert list(tmp_path.iterdir()) == []
    fluid.save(program, path)
    (tmp_path / "model.pdopt").unlink()
    with pytest.raises(FormatError, match=r"model.pdopt: there is no '[\w.]+' \(float32.*\) and \d+ more; was it saved for"):
        fluid.load(program, path)
    shutil.copy(tmp_path / "model.pdmodel", tmp_path / "model.pdparams")
    with pytest.raises(FormatError, match=r"model\.pdparams, at byte 0: "):
        fluid.load(program, path)
    (tmp_path / "model.pdparams").write_bytes(pickle.dumps([1, 2]))
    with pytest.raises(FormatError, match=r"model\.pdparams: it should hold a dict of arrays by name, but holds a list"):
        fluid.load(program, path)
    with pytest.raises(NameNotFoundError, match=r"no variable 'fc_0.w_9'.*did you mean fc_0.w_0"):
        io.get_parameter_value_by_name("fc_0.w_9", executor)
    with pytest.raises(ProgramError, match="'x' is not a parameter of the program"):
        io.get_parameter_value_by_name("x", executor)
    with pytest.raises(FluidTypeError, match="get_parameter_value: para should be a Parameter, not 'w'"):
        io.get_parameter_value("w", executor)  # type: ignore[arg-type]
