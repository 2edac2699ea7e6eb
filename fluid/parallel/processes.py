"""Several processes act as one: together, their devices form the mesh."""

from __future__ import annotations

from ..distributed.by_jax import join_jax
from ..errors import ProgramError

__all__ = ["connect"]


def connect(coordinator: str, processes: int, process: int, timeout: int = 300) -> None:
    """Join this process with others, before anything has run: a mesh then spans the devices of all of them.

    Each process builds the same program, makes the same runs, feeds its own part of each batch, and is given the same fetches.
    Where a parameter is split over processes, all of them have to look at it, or save it, together.

    Args:
        coordinator: ``address:port`` of process 0, the same for all.
        processes: how many there are.
        process: the number of this one, from 0.
        timeout: seconds to wait for the others.

    Raises:
        ProgramError: `process` is not one of 0 to `processes` - 1.
        CommunicationError: jax is not installed, or the others did not come.
    """
    if not 0 <= process < processes:
        raise ProgramError(f"connect: of {processes} processes, there is no process {process}; they are numbered from 0")
    join_jax(coordinator, processes, process, timeout)
