"""The communicator of this process.

Each process has one, as a process of MPI has one world, and this module is the one place that knows it: `communicator` gives it,
`use_communicator` sets it. Kernels of collective ops ask the engine of their arrays for one (`KernelEngine.communicator`); the
engine of numpy answers with the communicator of the process.
"""

from __future__ import annotations

import os

from .by_jax import JaxCommunicator, has_joined_jax
from .communicator import Alone, Communicator
from .environment import BACKEND, worker_of
from .mpi import MPICommunicator

_of_process: Communicator | None = None


def communicator() -> Communicator:
    """The communicator of this process, made when it is first asked for: `Alone` unless the environment says that this process
    is one of several (`worker_of`); these speak by MPI, or by ``jax.distributed``, where ``FLUID_BACKEND`` is ``jax``
    or this process has joined it.

    Raises:
        CommunicationError: there are several workers, and MPI is not installed or knows less, or jax does.

    >>> fluid.distributed.communicator().size
    1
    """
    global _of_process
    if _of_process is None:
        worker = worker_of()
        if worker.size == 1:
            _of_process = Alone()
        elif os.environ.get(BACKEND) == "jax" or has_joined_jax():
            _of_process = JaxCommunicator(worker)
        else:
            _of_process = MPICommunicator(worker)
    return _of_process


def use_communicator(group: Communicator | None) -> Communicator | None:
    """Let the process have another communicator; returns the former one.

    Args:
        group: the communicator; None to have the process make its own anew when asked.

    >>> group = fluid.distributed.Alone()
    >>> former = fluid.distributed.use_communicator(group)
    >>> fluid.distributed.communicator() is group
    True
    >>> fluid.distributed.use_communicator(former) is group
    True
    """
    global _of_process
    former, _of_process = _of_process, group
    return former
