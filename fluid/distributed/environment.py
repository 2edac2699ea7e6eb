"""The rank of this process and the number of workers, read from the environment variables that launchers set."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import NamedTuple

from ..errors import CommunicationError

BACKEND = "FLUID_BACKEND"
"""The variable that selects how workers communicate: ``mpi``, which is the default, or ``jax``."""
LOG_DIR = "FLUID_LOG_DIR"
"""The variable that says where the launcher finds logs and errors."""
UNATTENDED = "FLUID_UNATTENDED"
"""The variable that is set where a batch system has started the workers, so that no launcher shows their errors."""
RUNNING = ".running"
"""The suffix of a file beside a worker's log that is there until its script has come to an end, or to an error that is noted."""


class Worker(NamedTuple):
    """A process in a group of workers.

    Args:
        rank: its number, from 0.
        size: how many there are.
        local_rank: its number among those on its machine.
        source: the variables that say so; empty for a process that is alone.

    >>> fluid.distributed.Worker(rank=1, size=2, local_rank=1).size
    2
    """

    rank: int
    size: int
    local_rank: int
    source: str = ""


class _Variables(NamedTuple):
    rank: str
    size: str
    local_rank: str
    also: str = ""
    """A variable without which the others do not count."""


_STARTERS = (
    _Variables("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK"),  # Open MPI
    _Variables("PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID"),  # MPICH, Intel MPI
    _Variables("PADDLE_TRAINER_ID", "PADDLE_TRAINERS_NUM", "PADDLE_LOCAL_RANK"),  # Paddle's launcher, and this one
    _Variables("SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID", also="SLURM_STEP_ID"),  # srun; not the batch script
    _Variables("RANK", "WORLD_SIZE", "LOCAL_RANK"),  # Kubeflow's jobs
    _Variables("JOB_COMPLETION_INDEX", "WORLD_SIZE", "LOCAL_RANK"),  # Kubernetes' indexed jobs
)
"""The innermost first: a batch system starts mpiexec, and not the other way round."""


def worker_of(environ: Mapping[str, str] | None = None) -> Worker:
    """The worker that this process is; one that is alone if no variable says otherwise.

    Understood are the variables of Open MPI, MPICH, Paddle (``PADDLE_TRAINER_ID``, ``PADDLE_TRAINERS_NUM``), Slurm's srun, and
    Kubernetes (``RANK`` or ``JOB_COMPLETION_INDEX``, and ``WORLD_SIZE``).

    Args:
        environ: the variables; this process's if None.

    Raises:
        CommunicationError: a variable is no number, or the rank does not lie below the number of workers.

    >>> fluid.distributed.worker_of({"PMI_RANK": "1", "PMI_SIZE": "2"})
    Worker(rank=1, size=2, local_rank=1, source='PMI_RANK=1, PMI_SIZE=2')
    """
    environ = os.environ if environ is None else environ
    for names in _STARTERS:
        if names.rank in environ and names.size in environ and (not names.also or names.also in environ):
            rank, size = _number(environ, names.rank), _number(environ, names.size)
            source = f"{names.rank}={rank}, {names.size}={size}"
            if not 0 <= rank < size:
                raise CommunicationError(f"the environment says {source}; the rank should be from 0 to {size - 1}")
            return Worker(rank, size, _number(environ, names.local_rank, rank), source)
    return Worker(0, 1, 0)


def _number(environ: Mapping[str, str], name: str, default: int | None = None) -> int:
    text = environ.get(name)
    if text is None and default is not None:
        return default
    try:
        return int(text or "")
    except ValueError:
        raise CommunicationError(f"the environment variable {name} is {text!r}; it should be a number") from None
