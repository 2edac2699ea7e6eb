"""Meshes, and annotations of how variables are split: stored in the program, with errors for splits that do not fit."""

from __future__ import annotations

import pytest

import fluid
from fluid import layers
from fluid.errors import NameNotFoundError, ProgramError
from fluid.ir.program import Program
from fluid.parallel import Mesh
from fluid.parallel.annotations import check_fits


def built() -> Program:
    """A regression with momentum, in a program and its variables' usual names."""
    program = Program()
    with fluid.program_guard(program, Program()), fluid.unique_name.guard():
        x, y = fluid.data("x", [None, 8]), fluid.data("y", [None, 1])
        loss = layers.mean(layers.square_error_cost(layers.fc(layers.fc(x, 6), 1), y))
        fluid.optimizer.Momentum(0.1, 0.9).minimize(loss)
    return program


def shardings(program: Program) -> dict[str, tuple[str | None, ...]]:
    return {var.name: var.sharding for var in program.list_vars() if var.sharding is not None}


# ------------------------------------------------------------------------------------------------------------- meshes
def test_a_mesh_has_axes() -> None:
    mesh = Mesh(data=4, model=2)
    assert mesh.axes == (("data", 4), ("model", 2)) and mesh.size == 8
    assert mesh.extent("model") == 2 and mesh.extent("pipe") == 1
    assert mesh == Mesh(data=4, model=2) != Mesh(model=2, data=4) and hash(mesh) == hash(Mesh(data=4, model=2))


@pytest.mark.parametrize("axes", [{}, {"data": 0}, {"data": -1}, {"data": 2.0}, {"data": True}])
def test_a_mesh_without_devices(axes: dict[str, int]) -> None:
    with pytest.raises(ProgramError, match=r"such as Mesh|positive number of devices"):
        Mesh(**axes)


# -------------------------------------------------------------------------------------------------------- annotations
def test_a_pattern_names_variables() -> None:
    program = built()
    version = program.version
    assert program.shard("fc_0.w_0", [None, "model"]) == ["fc_0.w_0"]
    assert program.version > version
    assert program.shard("*velocity*", "data") == [name for name in program.global_block().vars if "velocity" in name]
    assert shardings(program)["fc_0.w_0"] == (None, "model")
    assert shardings(program)["fc_1.w_0_velocity_0"] == ("data",)
    program.shard("*", None)
    assert shardings(program) == {}


def test_a_pattern_leaves_out_what_has_fewer_dimensions() -> None:
    """A parameter and its moments, but not the powers of betas beside them."""
    program = built()
    assert program.shard("*fc_0.?_0*", [None, "model"]) == ["fc_0.w_0", "fc_0.w_0_velocity_0"]


def test_clones_and_pruned_programs_are_annotated() -> None:
    program = built()
    program.shard("fc_?.w_0", [None, "model"])
    program.shard("*velocity*", "data")
    weights = {"fc_0.w_0": (None, "model"), "fc_1.w_0": (None, "model")}
    assert shardings(program.clone()) == shardings(program)
    assert shardings(program.clone(for_test=True)) == weights
    assert shardings(program._prune(["fc_1.tmp_0"])) == weights
    program.prune(["x"], ["fc_0.tmp_0"])
    assert shardings(program) == {"fc_0.w_0": (None, "model")}


def test_annotations_follow_a_new_name() -> None:
    program = built()
    program.shard("fc_0.w_0", "model")
    program.rename("fc_0.w_0", "first")
    assert shardings(program) == {"first": ("model",)}


def test_a_pattern_that_matches_nothing() -> None:
    program = built()
    with pytest.raises(NameNotFoundError, match=r"'fc_0\.w_1'; did you mean fc_0\.w_0"):
        program.shard("fc_0.w_1", "model")
    with pytest.raises(NameNotFoundError, match="outlives a run, or is fed"):
        program.shard("fc_0.tmp_0", "data")


@pytest.mark.parametrize(
    ("axes", "message"),
    [
        (["data", None, "model"], r"fc_0\.w_0 is float32\[8, 6\], of 2 dimensions, but .* names 3"),
        (["data", "data"], r"one axis .* splits one dimension, but \['data', 'data'\] repeats one"),
        ([1, None], "the name of a mesh's axis, or None, not 1"),
        ("", "the name of a mesh's axis, or None, not ''"),
    ],
)
def test_annotations_that_mean_nothing(axes: list[str | None], message: str) -> None:
    program = built()
    with pytest.raises(ProgramError, match=message):
        program.shard("fc_0.w_0", axes)
    assert shardings(program) == {}


@pytest.mark.parametrize(
    ("mesh", "axes", "message"),
    [
        (Mesh(model=4), ("model",), None),
        (Mesh(data=3, model=2), ("model", "data"), None),
        (Mesh(model=3), ("model",), r"fc_0\.w_0 has 8 along dimension 0 .*\[8, 6\].* the 3 devices of the axis 'model' of "
         r"Mesh\(model=3\); make it a multiple of 3, or split another dimension"),
        (Mesh(data=2), (None, "model"), r"fc_0\.w_0 .* axis 'model', but Mesh\(data=2\) has data; add the axis"),
        (Mesh(data=2, model=1), (None, "modle"), "did you mean model"),
    ],
)  # fmt: skip
def test_an_annotation_fits_a_mesh_or_says_why_not(mesh: Mesh, axes: tuple[str | None, ...], message: str | None) -> None:
    var = built().global_block().vars["fc_0.w_0"]
    if message is None:
        check_fits(mesh, var, var.shape, axes)
        return
    with pytest.raises(ProgramError, match=message):
        check_fits(mesh, var, var.shape, axes)


def test_processes_are_numbered_from_zero() -> None:
    with pytest.raises(ProgramError, match="of 2 processes, there is no process 2"):
        fluid.parallel.connect("127.0.0.1:1", 2, 2)
