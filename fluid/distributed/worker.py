"""The process that `fluid.distributed.launch` starts: it runs the script, keeps a log, and notes its error.

Not to be called by hand: ``python -m fluid.distributed.worker script.py arguments``.
"""

from __future__ import annotations

import os
import runpy
import shutil
import socket
import subprocess
import sys
import traceback
from collections.abc import Mapping, Sequence
from pathlib import Path

from ..errors import CommunicationError, readable
from .by_jax import join_jax
from .communicator import time_limit
from .ending import end_at_once
from .environment import BACKEND, LOG_DIR, RUNNING, UNATTENDED, Worker, worker_of
from .process import communicator

_PADDLES_PORT = 6170
_screen: int | None = None
"""The file descriptor that errors went to before they went to a file only."""


def main(arguments: list[str]) -> None:
    """Run a script as the worker that the environment says this is."""
    worker, log, running = worker_of(), _file(".log"), _file(RUNNING)
    log.parent.mkdir(parents=True, exist_ok=True)
    running.touch()
    _tee(log, is_shown=worker.rank == 0)
    try:
        if os.environ.get(BACKEND) == "jax":
            join_jax(_coordinator(os.environ), worker.size, worker.rank, time_limit())
        for name, value in _as_paddle_says(worker, communicator().exchange(socket.gethostname())).items():
            os.environ.setdefault(name, value)
        sys.argv = arguments
        sys.path[0] = os.path.dirname(os.path.abspath(arguments[0]))
        runpy.run_path(arguments[0], run_name="__main__")
        running.unlink(missing_ok=True)
    except SystemExit as error:
        if error.code in (None, 0):
            running.unlink(missing_ok=True)
            raise
        _note(f"SystemExit: {error.code}")
        _end_all()
    except BaseException:
        fail(traceback.format_exc())


def _as_paddle_says(worker: Worker, hosts: Sequence[str]) -> dict[str, str]:
    """The variables that Paddle's launcher sets, which scripts look at; nobody listens at these ports."""
    endpoints = [f"{host}:{_PADDLES_PORT + rank}" for rank, host in enumerate(hosts)]
    return {
        "PADDLE_TRAINER_ID": str(worker.rank),
        "PADDLE_TRAINERS_NUM": str(worker.size),
        "PADDLE_LOCAL_RANK": str(worker.local_rank),
        "PADDLE_TRAINER_ENDPOINTS": ",".join(endpoints),
        "PADDLE_CURRENT_ENDPOINT": endpoints[worker.rank],
    }


def _coordinator(environ: Mapping[str, str]) -> str:
    """The address where the workers meet: the launcher's, or the one of a Kubernetes job."""
    if "FLUID_COORDINATOR" in environ:
        return environ["FLUID_COORDINATOR"]
    if "MASTER_ADDR" in environ and "MASTER_PORT" in environ:
        return f"{environ['MASTER_ADDR']}:{environ['MASTER_PORT']}"
    raise CommunicationError("the workers do not know where to meet: set MASTER_ADDR and MASTER_PORT to those of worker 0")


def _tee(log: Path, is_shown: bool) -> None:
    """Redirect the output of this process to a file; if `is_shown`, also show it where it went before."""
    global _screen
    sys.stdout.flush()
    sys.stderr.flush()
    if is_shown and shutil.which("tee"):
        copier = subprocess.Popen(["tee", str(log)], stdin=subprocess.PIPE)
        assert copier.stdin is not None
        write = copier.stdin.fileno()
    else:
        _screen = os.dup(2)
        write = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
    os.dup2(write, 1)
    os.dup2(write, 2)


def fail(text: str) -> None:
    """End this process, and by that all, with this error."""
    print(readable(text), file=sys.stderr, end="" if text.endswith("\n") else "\n")
    _note(text)
    _end_all()


def _file(suffix: str) -> Path:
    """A file of this worker, where the launcher finds it."""
    return Path(os.environ.get(LOG_DIR, "log"), f"worker.{worker_of().rank}{suffix}")


def _note(text: str) -> None:
    """Write the error to the launcher's file; without a launcher, show it."""
    text = readable(text)
    if _screen is not None and UNATTENDED in os.environ:
        os.write(_screen, f"{text.rstrip()}\n".encode(errors="replace"))
    if LOG_DIR in os.environ:
        _file(".error").write_text(text, encoding="utf-8")
        _file(RUNNING).unlink(missing_ok=True)


def _end_all() -> None:
    """End this process, and by that all."""

    def abort() -> None:
        mpi = sys.modules.get("mpi4py.MPI")
        if mpi is not None and os.environ.get(BACKEND) != "jax":
            mpi.COMM_WORLD.Abort(1)

    end_at_once(abort)


if __name__ == "__main__":
    main(sys.argv[1:])
