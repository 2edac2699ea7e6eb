"""Two processes that speak by MPI: ops and their gradients, training, and what goes wrong."""

from __future__ import annotations

import json
import re
from typing import Any

import numpy as np
import pytest
from workers import alone, failing, needs_mpi, together

pytestmark = needs_mpi


def test_each_op_and_its_gradients() -> None:
    assert together("ops.py").split() == [
        *("c_allreduce_sum", "c_allreduce_max", "c_allreduce_min", "c_allreduce_prod", "c_reduce_sum", "c_broadcast"),
        *("c_allgather", "c_reducescatter", "allreduce", "c_sync_calc_stream", "barrier"),
    ]


def check_training(network: str, optimizer: str, bucket: float, workers: int = 2, **variables: str) -> None:
    """Workers come to what one process comes to with all rows of each batch."""
    arguments = network, optimizer, bucket
    one, many = (
        json.loads(text)
        for text in (alone("training.py", *arguments), together("training.py", *arguments, workers=workers, **variables))
    )
    check_same(many, one)


def check_same(many: dict[str, Any], one: dict[str, Any]) -> None:
    np.testing.assert_allclose(many["losses"], one["losses"], rtol=1e-6, atol=1e-6)
    assert many["sums"].keys() == one["sums"].keys() and one["losses"][-1] != one["losses"][0]
    np.testing.assert_allclose(list(many["sums"].values()), list(one["sums"].values()), rtol=1e-5, atol=1e-6)


def test_training_equals_one_process() -> None:
    check_training("table", "adam", 0.001)


@pytest.mark.slow
@pytest.mark.parametrize("network", ["layers", "images", "table", "normalized"])
@pytest.mark.parametrize("optimizer", ["sgd", "adam", "clipped"])
def test_training_of_each_kind(network: str, optimizer: str) -> None:
    check_training(network, optimizer, 0.001)


@pytest.mark.parametrize(
    ("network", "optimizer"),
    [
        ("table", "adam"),
        *(pytest.param(*each, marks=pytest.mark.slow) for each in [("table", "sgd"), ("layers", "clipped"), ("images", "adam")]),
    ],
)
def test_accumulated_gradients_of_workers(network: str, optimizer: str) -> None:
    """Two workers that accumulate two batches each get the result of one process with all batches."""
    one = json.loads(alone("training.py", network, optimizer, 0.001))
    check_same(json.loads(together("training.py", network, optimizer, 0.001, "CPUPlace", 0, 2)), one)


@pytest.mark.slow
def test_local_sgd() -> None:
    """After one step of SGD, the mean of the parameters equals a step by the mean gradient; after more steps, it does not."""
    one, means, seldom, never = (
        json.loads(text)["losses"]
        for text in (
            alone("training.py", "layers", "sgd", 0.001),
            *(together("training.py", "layers", "sgd", 0.001, "CPUPlace", steps) for steps in (1, 4, 9)),
        )
    )
    np.testing.assert_allclose(means, one, rtol=1e-6, atol=1e-6)
    assert seldom[:2] == never[:2] and seldom[:4] == never[:4] and seldom[4] != never[4] and seldom[2] != one[2]


@pytest.mark.slow
def test_training_in_one_bucket_of_four_workers_and_on_numpy() -> None:
    check_training("layers", "adam", 4, workers=4)
    check_training("images", "adam", 0, FLUID_NATIVE="0")
    check_training("table", "sgd", 0, FLUID_NATIVE="0")


def check_fault(fault: str, *expected: str, **variables: str) -> None:
    errors = failing("faults.py", fault, **variables)
    for text in expected:
        assert text in errors, errors


def test_feeds_of_different_shapes() -> None:
    errors = failing("faults.py", "shape")
    message = (
        "the workers do not run the same: they differ in the feed of x\n"
        "  on rank 0: x: float32[4, 4]\n"
        "  on rank 1: x: float32[3, 4]\n"
        "  all workers should build one program"
    )
    assert errors.count(f"CommunicationError: c_allreduce_sum_coalesced failed: {message}") == 2, errors  # on each


@pytest.mark.slow
def test_programs_that_differ() -> None:
    check_fault(
        "program", "they differ in the variable fc_0.b_0\n  on rank 0: fc_0.b_0: float32[5]\n  on rank 1: fc_0.b_0: float32[7]"
    )


@pytest.mark.slow
def test_a_worker_that_saves_alone() -> None:
    check_fault(
        "saves", "differ in what they do\n  on rank 0: run of a program\n  on rank 1: exchange of plain values (a barrier,"
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("fault", "sides"),
    [
        ("layers", ("weight\n", "weight: float32[4, 5]", "weight: float32[4, 6]")),
        ("lazy", ("weight\n", "weight: float32[4, 5]", "weight: float32[4, 6]")),
        ("op", ("what they do\n", "allreduce(float32[4, 4])", "allreduce(float32[3, 4])")),
    ],
)
def test_eager_workers_that_differ(fault: str, sides: tuple[str, ...]) -> None:
    """MPI would give an error of its own for some, and a wrong sum for others."""
    errors = failing("faults_of_eager.py", fault)
    found = re.findall(r"differ in (.*\n)  on rank 0: (.*)\n  on rank 1: (.*)\n", errors)
    assert len(found) >= 2 and all(text in part for each in found for text, part in zip(sides, each, strict=True)), errors


@pytest.mark.slow
def test_a_worker_that_hangs() -> None:
    check_fault("hangs", "worker 0 of 2 has waited 2 s for the others in the comparison of what", FLUID_DISTRIBUTED_TIMEOUT="2")


@pytest.mark.slow
def test_a_worker_that_ends() -> None:
    check_fault("exits", "worker 0 of 2 has waited 2 s for the others", FLUID_DISTRIBUTED_TIMEOUT="2")


@pytest.mark.slow
def test_a_worker_that_dies() -> None:
    check_fault("raises", "ValueError: a fault of worker 1")
    failing("faults.py", "killed")
