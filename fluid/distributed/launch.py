"""Starts workers: ``python -m fluid.distributed.launch -n 2 script.py arguments``.

The workers run the script. Each worker prints to a log; worker 0 prints to the screen too. When one ends by an error, all are
ended, and its error is shown. Inside of an allocation of Slurm, or a job of Open MPI or Kubernetes, the job sets the number of
workers; if the job has started this process as one of many, it becomes a worker itself. A worker that ends before its script does
(by ``os._exit``, or since it is killed) is an error, whatever status it leaves.

Workers on one machine share its cores (``OMP_NUM_THREADS``, if that is not set already).

    --backend mpi   (default) by the mpiexec that belongs to mpi4py: pip install ".[mpi]"
    --backend jax   the workers join ``jax.distributed``, whose collectives on CPUs are gloo's
"""

from __future__ import annotations

import argparse
import errno
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from ..errors import CommunicationError, how_to_install, readable
from .communicator import seconds_of
from .environment import BACKEND, LOG_DIR, RUNNING, UNATTENDED, worker_of

_WORKER = "fluid.distributed.worker"
_POLL = 0.05
_MOST_WORKERS = 1 << 16
_MOST_PER_CORE, _MOST_BY_HAND = 32, 64
"""Workers that this process starts itself: so many for each core of the machine, and so many on any."""
_NUMBER = re.compile("[0-9]+")
_MOST_DIGITS = 18
_OF_WORKER = re.compile(rf"worker\.([0-9]+)(\.log|\.error|{re.escape(RUNNING)})")
"""The files that a worker writes into the folder of logs."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Start workers as the command line says; returns 0, or what the first worker that failed returned, or 1."""
    parser = _parser()
    options = parser.parse_args(arguments)
    try:
        return _started(options)
    except CommunicationError as error:
        parser.error(str(error))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m fluid.distributed.launch", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("-n", "--workers", help="how many; by default as many as the job has, or 2")
    parser.add_argument("--backend", choices=("mpi", "jax"), default="mpi", help="by what the workers speak (%(default)s)")
    parser.add_argument("--log-dir", type=Path, default=Path("log"), help="where each worker's log goes (%(default)s)")
    parser.add_argument("--timeout", help="seconds after which a worker that waits for the others gives up (300)")
    parser.add_argument("--mpiexec", help="the mpiexec to use, with options (that beside this Python, or the first in PATH)")
    parser.add_argument("script", help="what each worker runs")
    parser.add_argument("arguments", nargs=argparse.REMAINDER, help="of the script")
    return parser


def _started(options: argparse.Namespace) -> int:
    """Start the workers and wait for them; `CommunicationError` if they cannot be started so."""
    wanted = None if options.workers is None else _count_of(options.workers, "-n")
    if not os.path.isfile(options.script):
        raise CommunicationError(f"there is no script {options.script}")
    environment = {BACKEND: options.backend}
    if options.timeout is not None:
        environment["FLUID_DISTRIBUTED_TIMEOUT"] = str(seconds_of(options.timeout, "--timeout"))
    command = [sys.executable, "-m", _WORKER, options.script, *options.arguments]
    if worker_of().size > 1:  # started by srun, mpiexec or a job of Kubernetes
        os.environ.update({**environment, LOG_DIR: os.path.abspath(options.log_dir), UNATTENDED: "1"})
        os.execv(sys.executable, command)
    environment[LOG_DIR] = str(_emptied(options.log_dir))
    of_job = _workers_of_job(os.environ)
    count = wanted or of_job or 2
    if not of_job and "OMP_NUM_THREADS" not in os.environ:  # all on this machine, whose cores they share
        environment["OMP_NUM_THREADS"] = str(max((os.cpu_count() or 1) // count, 1))
    with _exit_on_termination():  # the exit ends the started workers
        if options.backend == "mpi":
            end = _by_mpi(command, count, environment, options.mpiexec)
        else:
            end = _by_hand(command, count, environment)
    if not end.code and not _unfinished(options.log_dir):
        return 0
    print(_account(options.log_dir, end), file=sys.stderr)
    return end.code or 1


@contextmanager
def _exit_on_termination() -> Iterator[None]:
    """Inside the ``with``, SIGTERM exits by an error, so that `finally` clauses run."""
    before = signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _count_of(text: str, name: str) -> int:
    """The number of workers that an option or a variable of this name gives as text; `CommunicationError` if it is none."""
    count = int(text) if _NUMBER.fullmatch(text) and len(text) <= _MOST_DIGITS else 0
    if not 0 < count <= _MOST_WORKERS:
        raise CommunicationError(f"{name} is {text}; it should be the number of workers, from 1 to {_MOST_WORKERS}")
    return count


def _emptied(folder: Path) -> Path:
    """Create or empty the folder of the logs; `CommunicationError` if that fails."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for old, _ in _files_of_workers(folder):
            old.unlink()
        if not os.access(folder, os.W_OK | os.X_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
        return folder.resolve()
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        where = getattr(error, "filename", None) or folder
        raise CommunicationError(
            f"the logs cannot go to {folder} ({where}: {reason}); --log-dir should be a folder to write to"
        ) from None


def _workers_of_job(environ: Mapping[str, str]) -> int:
    """How many workers the allocation of a batch system is for; 0 if there is none."""
    for name in ("SLURM_NTASKS", "PADDLE_TRAINERS_NUM", "WORLD_SIZE"):
        if _NUMBER.fullmatch(environ.get(name, "")) and environ[name].strip("0"):
            return _count_of(environ[name], name)
    return 0


# ---------------------------------------------------------------------------------------------------------------- starting
class _Outcome(NamedTuple):
    """The end of the workers."""

    code: int
    """The exit code of the first worker that failed, or 0."""
    gone: Mapping[int, int]
    """Rank -> exit code, for workers known to have ended by themselves."""


def _by_mpi(command: Sequence[str], count: int, environment: Mapping[str, str], mpiexec: str | None) -> _Outcome:
    """Run `count` workers by mpiexec, which ends all when one fails."""
    words = [_mpiexec()] if mpiexec is None else mpiexec.split()
    if not words:
        raise CommunicationError("--mpiexec is empty; it should be the path of an mpiexec, with its options")
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
        raise CommunicationError(f"there is no mpiexec, neither beside this Python nor in PATH: {how_to_install('mpi')}")
    return path


def _by_hand(command: Sequence[str], count: int, environment: Mapping[str, str]) -> _Outcome:
    """Run `count` workers, and end all when one fails."""
    most = max(_MOST_BY_HAND, _MOST_PER_CORE * (os.cpu_count() or 1))
    if count > most:
        raise CommunicationError(f"{count} workers are too many for this machine, on which this process starts {most} at most")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    processes = []
    for rank in range(count):
        rank_environment = {
            "PADDLE_TRAINER_ID": str(rank),
            "PADDLE_TRAINERS_NUM": str(count),
            "PADDLE_LOCAL_RANK": str(rank),
            "FLUID_COORDINATOR": address,
        }
        try:
            processes.append(subprocess.Popen(command, env={**os.environ, **environment, **rank_environment}))
        except OSError as error:
            _end(processes)
            raise CommunicationError(f"worker {rank} of {count} cannot be started: {error}") from None
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
def _files_of_workers(folder: Path) -> list[tuple[Path, int]]:
    """The files that workers have written into the folder of logs, each with the number of its worker."""
    matches = [(path, _OF_WORKER.fullmatch(path.name)) for path in folder.iterdir() if path.is_file()]
    return [(path, int(match[1])) for path, match in matches if match is not None]


def _unfinished(folder: Path) -> list[int]:
    """The workers that have ended without having come to the end of the script, or to an error."""
    return sorted(rank for path, rank in _files_of_workers(folder) if path.suffix == RUNNING)


def _account(folder: Path, end: _Outcome) -> str:
    """An account of the failure: workers that ended without a message, and the noted error of the first that failed."""
    errors = [(path, rank) for path, rank in _files_of_workers(folder) if path.suffix == ".error"]
    errors.sort(key=lambda error: error[0].stat().st_mtime_ns)
    messages = []
    if silent := [f"{rank} (code {end.gone[rank]})" for rank in _unfinished(folder) if rank in end.gone]:
        messages.append(
            f"worker {', '.join(silent)} ended before the script did and left no error (was it killed, or does the script call "
            f"os._exit?); the logs are in {folder}"
        )
    elif not errors:
        messages.append(f"a worker ended with code {end.code} and left no error (was it killed?); the logs are in {folder}")
    if errors:
        path, rank = errors[0]
        messages.append(f"worker {rank} failed first; the logs are in {folder}" if not silent else f"worker {rank} failed then")
        messages.append(readable(path.read_text(encoding="utf-8", errors="replace").rstrip()))
    return "\n".join(messages)


if __name__ == "__main__":
    sys.exit(main())
