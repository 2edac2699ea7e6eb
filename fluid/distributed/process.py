"""The communicator of this process.

Each process has one, as a process of MPI has one world, and this module is the one place that knows it: `communicator` gives it,
`use_communicator` sets it. Kernels of collective ops ask the engine of their arrays for one (`Engine.communicator`), which for
numpy is that of the process.
"""

from __future__ import annotations

from .communicator import Alone, Communicator
from .environment import worker_of
from .mpi import MPICommunicator

__all__ = ["communicator", "use_communicator"]

_of_process: Communicator | None = None


def communicator() -> Communicator:
    """The communicator of this process, made when it is first asked for: by MPI where the environment says that this process is
    one of several (`worker_of`), and `Alone` where it is not.

    Raises:
        CommunicationError: there are several workers, and MPI is not installed or knows less.

    >>> fluid.distributed.communicator().size
    1
    """
    global _of_process
    if _of_process is None:
        worker = worker_of()
        _of_process = Alone() if worker.size == 1 else MPICommunicator(worker)
    return _of_process


def use_communicator(group: Communicator | None) -> Communicator | None:
    """Let the process have another communicator, or, if None, make its own anew when asked; returns the former one."""
    global _of_process
    former, _of_process = _of_process, group
    return former
