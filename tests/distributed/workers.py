"""Runs scripts by several workers, each time for a limited time, on this machine alone."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPTS = Path(__file__).parent / "scripts"
MPIEXEC = shutil.which("mpiexec", path=os.path.dirname(sys.executable)) or shutil.which("mpiexec")

needs_mpi = pytest.mark.skipif(
    MPIEXEC is None or importlib.util.find_spec("mpi4py") is None, reason="mpi4py or mpiexec is not installed"
)


def environment(**more: str) -> dict[str, str]:
    """The environment of a worker: no variables of a surrounding job, and one thread."""
    prefixes = ("PMI", "OMPI_", "SLURM_", "PADDLE_", "MPI")
    names = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "JOB_COMPLETION_INDEX")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(prefixes) and name not in names}
    return {**kept, "OMP_NUM_THREADS": "1", "HYDRA_IFACE": "lo", "FLUID_DISTRIBUTED_TIMEOUT": "20", **more}


def alone(script: Path | str, *arguments: object, status: int = 0, **variables: str) -> str:
    """The output of one process."""
    return _run([sys.executable, str(SCRIPTS / script), *map(str, arguments)], status, variables)[0]


def together(script: Path | str, *arguments: object, workers: int = 2, status: int = 0, **variables: str) -> str:
    """The output of several processes, by mpiexec."""
    command = [str(MPIEXEC), "-n", str(workers), sys.executable, str(SCRIPTS / script), *map(str, arguments)]
    return _run(command, status, variables)[0]


def failing(script: Path | str, *arguments: object, workers: int = 2, **variables: str) -> str:
    """The errors that several print."""
    command = [str(MPIEXEC), "-n", str(workers), sys.executable, str(SCRIPTS / script), *map(str, arguments)]
    return _run(command, None, variables)[1]


def launched(folder: Path, *arguments: object, status: int | None = 0, **variables: str) -> tuple[str, str]:
    """Output and errors of the launcher, whose logs go to a folder."""
    command = [sys.executable, "-m", "fluid.distributed.launch", "--log-dir", str(folder), *map(str, arguments)]
    return _run(command, status, variables)


def _run(command: list[str], status: int | None, variables: dict[str, str]) -> tuple[str, str]:
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, env=environment(**variables), cwd=Path.home())
    assert done.returncode == status if status is not None else done.returncode, done.stdout[-2000:] + done.stderr
    return done.stdout, done.stderr
