"""Starts workers: ``python -m fluid.distributed.launch -n 2 script.py arguments``.

The workers run the script; what they print goes to one log each, and that of worker 0 to the screen too. When one ends by an
error, all are ended, and its error is shown. Inside of an allocation of Slurm, or of a job of Open MPI or Kubernetes, the number
of workers is that of the job; where such a job has started this process as one of many, it becomes a worker itself. A worker that
ends before its script does (by ``os._exit``, or since it is killed) is an error, whatever status it leaves.

Workers on one machine share its cores (``OMP_NUM_THREADS``, if that is not set already).

    --backend mpi   (default) by the mpiexec that belongs to mpi4py: pip install "fluid-graph[mpi]"
    --backend jax   the workers join ``jax.distributed``, whose collectives on CPUs are gloo's
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from ..errors import CommunicationError
from .environment import BACKEND, LOG_DIR, RUNNING, UNATTENDED, worker_of

__all__ = ["main"]

_WORKER = "fluid.distributed.worker"
_POLL = 0.05


def main(arguments: Sequence[str] | None = None) -> int:
    """Start workers as the command line says; returns 0, or what the first worker that failed returned, or 1."""
    parser = argparse.ArgumentParser(prog="python -m fluid.distributed.launch", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("-n", "--workers", type=int, help="how many; by default as many as the job has, or 2")
    parser.add_argument("--backend", choices=("mpi", "jax"), default="mpi", help="by what the workers speak (%(default)s)")
    parser.add_argument("--log-dir", type=Path, default=Path("log"), help="where each worker's log goes (%(default)s)")
    parser.add_argument("--timeout", type=float, help="seconds after which a worker that waits for the others gives up (300)")
    parser.add_argument("--mpiexec", help="the mpiexec to use, with options (that beside this Python, or the first in PATH)")
    parser.add_argument("script", help="what each worker runs")
    parser.add_argument("arguments", nargs=argparse.REMAINDER, help="of the script")
    options = parser.parse_args(arguments)
    if options.workers is not None and options.workers < 1:
        parser.error(f"-n is {options.workers}; it should be the number of workers")
    if not os.path.isfile(options.script):
        parser.error(f"there is no script {options.script}")
    environment = {LOG_DIR: str(options.log_dir.resolve()), BACKEND: options.backend}
    if options.timeout is not None:
        environment["FLUID_DISTRIBUTED_TIMEOUT"] = str(options.timeout)
    command = [sys.executable, "-m", _WORKER, options.script, *options.arguments]
    if worker_of().size > 1:  # started by srun, mpiexec or a job of Kubernetes
        os.environ.update({**environment, UNATTENDED: "1"})
        os.execv(sys.executable, command)
    options.log_dir.mkdir(parents=True, exist_ok=True)
    for old in options.log_dir.glob("worker.*"):
        old.unlink()
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))  # what is started is ended on the way out
    of_job = _workers_of_job(os.environ)
    count = options.workers or of_job or 2
    if not of_job and "OMP_NUM_THREADS" not in os.environ:  # all on this machine, whose cores they share
        environment["OMP_NUM_THREADS"] = str(max((os.cpu_count() or 1) // count, 1))
    try:
        if options.backend == "mpi":
            end = _by_mpi(command, count, environment, options.mpiexec)
        else:
            end = _by_hand(command, count, environment)
    except CommunicationError as error:
        parser.error(str(error))
    if not end.code and not _unfinished(options.log_dir):
        return 0
    print(_account(options.log_dir, end), file=sys.stderr)
    return end.code or 1


def _workers_of_job(environ: Mapping[str, str]) -> int:
    """How many workers the allocation of a batch system is for; 0 if there is none."""
    for name in ("SLURM_NTASKS", "PADDLE_TRAINERS_NUM", "WORLD_SIZE"):
        if environ.get(name, "").isdigit():
            return int(environ[name])
    return 0


# ---------------------------------------------------------------------------------------------------------------- starting
class _Outcome(NamedTuple):
    """How workers ended."""

    code: int
    """That of the first that failed, or 0."""
    gone: Mapping[int, int]
    """Rank of those that had ended by themselves, where that is known -> its code."""


def _by_mpi(command: Sequence[str], count: int, environment: Mapping[str, str], mpiexec: str | None) -> _Outcome:
    """Run `count` workers by mpiexec, which ends all when one fails."""
    words = mpiexec.split() if mpiexec else [_mpiexec()]
    try:
        process = subprocess.Popen([*words, "-n", str(count), *command], env={**os.environ, **environment})
    except OSError as error:
        raise CommunicationError(f"{words[0]} cannot be started ({error}); --mpiexec should be the path of an mpiexec") from None
    code = _wait([process]).code
    return _Outcome(code, {} if code else dict.fromkeys(range(count), 0))  # mpiexec does not say which it has ended itself


def _mpiexec() -> str:
    beside = shutil.which("mpiexec", path=os.path.dirname(sys.executable))
    path = beside or shutil.which("mpiexec")
    if path is None:
        raise CommunicationError('there is no mpiexec, neither beside this Python nor in PATH: pip install "fluid-graph[mpi]"')
    return path


def _by_hand(command: Sequence[str], count: int, environment: Mapping[str, str]) -> _Outcome:
    """Run `count` workers, and end all when one fails."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    processes = []
    for rank in range(count):
        own = {
            "PADDLE_TRAINER_ID": str(rank),
            "PADDLE_TRAINERS_NUM": str(count),
            "PADDLE_LOCAL_RANK": str(rank),
            "FLUID_COORDINATOR": address,
        }
        processes.append(subprocess.Popen(command, env={**os.environ, **environment, **own}))
    return _wait(processes)


def _wait(processes: Sequence[subprocess.Popen[bytes]]) -> _Outcome:
    """Wait until all processes have ended, or one has failed, which ends the others."""
    try:
        while True:
            codes = [process.poll() for process in processes]
            failed = [code for code in codes if code]
            if failed or None not in codes:
                gone = {rank: abs(code) for rank, code in enumerate(codes) if code is not None}
                return _Outcome(abs(failed[0]) if failed else 0, gone)
            time.sleep(_POLL)
    finally:
        _end(processes)


def _end(processes: Sequence[subprocess.Popen[bytes]], patience: float = 5.0) -> None:
    """End the processes that still run, the hard way if they take too long."""
    for process in processes:
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
    end = time.monotonic() + patience
    for process in processes:
        try:
            process.wait(max(end - time.monotonic(), 0.1))
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


# ---------------------------------------------------------------------------------------------------------------- telling
def _unfinished(folder: Path) -> list[int]:
    """The workers that have ended without having come to the end of the script, or to an error."""
    return sorted(int(path.name.split(".")[1]) for path in folder.glob(f"worker.*{RUNNING}"))


def _account(folder: Path, end: _Outcome) -> str:
    """What went wrong: who ended without a word, and the error of the worker that failed first, as it noted it."""
    errors = sorted(folder.glob("worker.*.error"), key=lambda path: path.stat().st_mtime_ns)
    told = []
    if silent := [f"{rank} (code {end.gone[rank]})" for rank in _unfinished(folder) if rank in end.gone]:
        told.append(
            f"worker {', '.join(silent)} ended before the script did and left no error (was it killed, or does the script call "
            f"os._exit?); the logs are in {folder}"
        )
    elif not errors:
        told.append(f"a worker ended with code {end.code} and left no error (was it killed?); the logs are in {folder}")
    if errors:
        rank = errors[0].name.split(".")[1]
        told.append(f"worker {rank} failed first; the logs are in {folder}" if not silent else f"worker {rank} failed then")
        told.append(errors[0].read_text(encoding="utf-8", errors="replace").rstrip())
    return "\n".join(told)


if __name__ == "__main__":
    sys.exit(main())
