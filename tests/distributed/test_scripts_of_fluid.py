"""Scripts as users of Fluid 1.6 wrote them, for one process and, unchanged, for two."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from workers import SCRIPTS, alone, launched, needs_mpi

pytestmark = pytest.mark.slow

WARNINGS = {"PYTHONWARNINGS": "error::UserWarning"}


def by_one(script: str, folder: Path) -> Any:
    return json.loads(alone(script, folder, **WARNINGS))


def by_two(script: str, folder: Path, *options: object) -> Any:
    out, _ = launched(folder / "log", "-n", 2, *options, SCRIPTS / script, folder, **WARNINGS)
    return json.loads(out.splitlines()[-1])


def close(one: Any, other: Any) -> None:
    np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    "backend",
    [
        pytest.param("mpi", marks=needs_mpi),
        pytest.param("jax", marks=pytest.mark.skipif(importlib.util.find_spec("jax") is None, reason="jax is not installed")),
    ],
)
def test_a_fleet_that_reads_files_and_saves_models(tmp_path: Path, backend: str) -> None:
    draw = np.random.RandomState(0)
    for number in range(4):
        lines = [f"{draw.randint(3)} {' '.join(map(str, draw.randn(16).round(3)))}\n" for _ in range(8)]
        (tmp_path / f"part-{number}").write_text("".join(lines))
    one, two = by_one("fluid_static.py", tmp_path), by_two("fluid_static.py", tmp_path, "--backend", backend)
    assert len(one["losses"]) == 8 and one["accuracy"] == two["accuracy"]
    for what in ("losses", "scores", "sums"):
        close(two[what], one[what])
    assert {path.name for path in (tmp_path / "persistables").iterdir()} > {"conv2d_0.w_0", "fc_0.w_0", "fc_0.w_0_velocity_0"}


@needs_mpi
def test_a_fleet_with_a_reader_sparse_rows_and_a_schedule_goes_on(tmp_path: Path) -> None:
    one, two = (run("fluid_words.py", tmp_path) for run in (by_one, by_two))
    assert len(one) == 12 and one[8] < one[4] < one[0]
    close(two, one)


@needs_mpi
def test_eager_layers_with_every_second_batch_each(tmp_path: Path) -> None:
    one, two = (run("fluid_dygraph.py", tmp_path) for run in (by_one, by_two))
    assert len(one["losses"]) == 8
    close(two["losses"], one["losses"])
    close(two["scores"], one["scores"])
