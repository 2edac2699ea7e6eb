"""Two processes that have joined jax, each with a program at an XLAPlace: ops, their gradients, training, and what goes wrong."""

from __future__ import annotations

import importlib.util
import json
import re
from pathlib import Path

import numpy as np
import pytest
from test_launch import EXAMPLE, close, losses
from workers import SCRIPTS, alone, launched

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(importlib.util.find_spec("jax") is None, reason="jax is not installed"),
]


def joined(folder: Path, *arguments: object, status: int | None = 0) -> tuple[str, str]:
    """Output and errors of two workers."""
    return launched(folder, "-n", 2, "--backend", "jax", "--timeout", 8, *arguments, status=status, JAX_PLATFORMS="cpu")


@pytest.mark.parametrize("place", ["xla", "numpy"])
def test_each_op_and_its_gradients(tmp_path: Path, place: str) -> None:
    """On numpy, workers that have joined jax leave each other notes."""
    assert {"c_allreduce_sum", "c_allgather", "c_reducescatter", "barrier"} <= set(
        joined(tmp_path, SCRIPTS / "ops.py", place)[0].split()
    )


@pytest.mark.parametrize(
    ("network", "optimizer"), [("layers", "clipped"), ("images", "adam"), ("table", "adam"), ("normalized", "sgd")]
)
def test_training_equals_one_process(tmp_path: Path, network: str, optimizer: str) -> None:
    one = json.loads(alone("training.py", network, optimizer, 0.001))
    many = json.loads(joined(tmp_path, SCRIPTS / "training.py", network, optimizer, 0.001, "XLAPlace")[0].splitlines()[-1])
    np.testing.assert_allclose(many["losses"], one["losses"], rtol=2e-6, atol=1e-6)
    np.testing.assert_allclose(list(many["sums"].values()), list(one["sums"].values()), rtol=1e-5, atol=1e-6)


def test_the_example_goes_on_from_a_checkpoint(tmp_path: Path) -> None:
    def part(steps: int) -> dict[int, float]:
        arguments = "--on", "xla", "--steps", steps, "--checkpoint", tmp_path / "ck", "--shards"
        return losses(joined(tmp_path / "log", EXAMPLE, *arguments)[0])

    close({**part(5), **part(10)}, losses(alone(EXAMPLE, "--steps", 10)))


def test_what_goes_wrong(tmp_path: Path) -> None:
    _, errors = joined(tmp_path, SCRIPTS / "faults.py", "saves", status=None)  # on numpy
    assert re.search("what they do\n  on rank 0: comparison of what .*\n  on rank 1: exchange of plain values", errors), errors
    for fault, message in (
        ("program", "the workers do not run the same: they differ in"),
        ("shape", r"they differ in the feed of x\n  on rank 0: x: float32\[4, 4\]\n  on rank 1: x: float32\[3, 4\]"),
        ("hangs", "worker 0 of 2 has waited 8 s for the others in the (comparison|run of a program)"),
        ("dies", "worker 1 .code 9. ended before the script did(.|\n)*worker 0 of 2 has lost the others, perhaps since one has"),
        ("sequences", "x: sequences differ from worker to worker"),
        ("loop", "the trips of a loop, or the length of an array of tensors, depend on values"),
    ):
        _, errors = joined(tmp_path, SCRIPTS / "faults_of_xla.py", fault, status=None)
        assert re.search(message, errors), (fault, errors)
        if fault in ("program", "shape"):  # each says it
            logs = [(tmp_path / f"worker.{rank}.log").read_text() for rank in range(2)]
            assert all(re.search(message, log) for log in logs), (fault, logs)
