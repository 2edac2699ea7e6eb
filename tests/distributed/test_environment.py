"""The environment variables that launchers set for workers."""

from __future__ import annotations

import sys

import pytest
from workers import environment

import fluid
from fluid.distributed import Worker, worker_of
from fluid.distributed.launch import _workers_of_job
from fluid.distributed.process import communicator, use_communicator
from fluid.distributed.worker import _coordinator
from fluid.errors import CommunicationError

STARTED = {
    "OMPI_COMM_WORLD_RANK=3 OMPI_COMM_WORLD_SIZE=8 OMPI_COMM_WORLD_LOCAL_RANK=1 SLURM_PROCID=0 SLURM_STEP_NUM_TASKS=1": (
        3,
        8,
        1,
    ),
    "PMI_RANK=1 PMI_SIZE=2 MPI_LOCALRANKID=0": (1, 2, 0),
    "PADDLE_TRAINER_ID=1 PADDLE_TRAINERS_NUM=4": (1, 4, 1),
    "SLURM_PROCID=5 SLURM_STEP_NUM_TASKS=6 SLURM_LOCALID=1 SLURM_STEP_ID=0": (5, 6, 1),
    "SLURM_PROCID=0 SLURM_NTASKS=6 SLURM_LOCALID=0": (0, 1, 0),  # the batch script itself
    "RANK=2 WORLD_SIZE=3 LOCAL_RANK=0": (2, 3, 0),
    "JOB_COMPLETION_INDEX=1 WORLD_SIZE=3": (1, 3, 1),
    "JOB_COMPLETION_INDEX=1": (0, 1, 0),
    "": (0, 1, 0),
}


@pytest.mark.parametrize("variables", STARTED)
def test_those_who_start_processes_are_understood(variables: str) -> None:
    worker = worker_of(dict(item.split("=") for item in variables.split()))
    assert (worker.rank, worker.size, worker.local_rank) == STARTED[variables]
    assert all(item in variables for item in worker.source.split(", "))


@pytest.mark.parametrize(
    ("variables", "message"),
    [
        ({"PMI_RANK": "2", "PMI_SIZE": "2"}, "says PMI_RANK=2, PMI_SIZE=2; the rank should be from 0 to 1"),
        ({"RANK": "x", "WORLD_SIZE": "2"}, "the environment variable RANK is 'x'; it should be a number"),
    ],
)
def test_an_environment_that_cannot_be(variables: dict[str, str], message: str) -> None:
    with pytest.raises(CommunicationError, match=message):
        worker_of(variables)


def test_a_job_says_how_many_workers_it_has() -> None:
    assert _workers_of_job({"SLURM_NTASKS": "12"}) == 12 and _workers_of_job({"WORLD_SIZE": "x"}) == 0


def test_where_workers_meet_that_join_jax() -> None:
    assert _coordinator({"FLUID_COORDINATOR": "a:1", "MASTER_ADDR": "b", "MASTER_PORT": "2"}) == "a:1"
    assert _coordinator({"MASTER_ADDR": "b", "MASTER_PORT": "2"}) == "b:2"
    with pytest.raises(CommunicationError, match="set MASTER_ADDR and MASTER_PORT"):
        _coordinator({})


def test_mpi_that_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in set(fluid.distributed.launch.os.environ) - environment().keys():
        monkeypatch.delenv(name)
    monkeypatch.setenv("PMI_RANK", "1")
    monkeypatch.setenv("PMI_SIZE", "2")
    monkeypatch.setitem(sys.modules, "mpi4py", None)
    former = use_communicator(None)
    try:
        with pytest.raises(CommunicationError, match=r'worker 1 of 2 \(PMI_RANK=1, PMI_SIZE=2\).*pip install "\.\[mpi\]"'):
            communicator()
    finally:
        use_communicator(former)


def test_a_process_that_nobody_started_is_alone() -> None:
    assert worker_of({}) == Worker(0, 1, 0, "")
    assert communicator().size == 1 and communicator().exchange("x") == ["x"]
