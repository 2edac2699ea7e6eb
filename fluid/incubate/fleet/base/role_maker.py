"""Role makers: they give `fleet.init` the number of this worker and of all workers."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from ....distributed.environment import worker_of
from ....distributed.process import communicator
from ....errors import FluidTypeError, ProgramError
from ....not_here import names_here

__all__ = [
    "GeneralRoleMaker", "MPISymetricRoleMaker", "PaddleCloudRoleMaker", "Role", "RoleMakerBase", "UserDefinedCollectiveRoleMaker",
    "UserDefinedRoleMaker",
]  # fmt: skip

__dir__ = names_here(__name__)


class Role:
    """The role of a process. There are only workers here."""

    WORKER = 1
    SERVER = 2


class RoleMakerBase:
    """The number of this worker, and of all workers."""

    def __init__(self) -> None:
        self._current_id = 0
        self._worker_endpoints: list[str] = [""]

    def generate_role(self) -> None:
        """Determine the role; `fleet.init` calls it."""

    def is_worker(self) -> bool:
        """Whether this process is a worker: all are."""
        return True

    def is_server(self) -> bool:
        """Whether this process is a parameter server: none is."""
        return False

    def is_first_worker(self) -> bool:
        """Whether this is worker 0."""
        return self._current_id == 0

    def worker_index(self) -> int:
        """The number of this worker, from 0."""
        return self._current_id

    def worker_num(self) -> int:
        """The number of workers."""
        return len(self._worker_endpoints)

    def role_id(self) -> int:
        """The number of this worker, from 0."""
        return self.worker_index()

    def get_trainer_endpoints(self) -> list[str]:
        """The workers' addresses, as far as they are known; communication by MPI needs none."""
        return list(self._worker_endpoints)

    def get_pserver_endpoints(self) -> list[str]:
        """No address: there are no parameter servers here."""
        return []

    def _be(self, index: int, endpoints: Sequence[str]) -> None:
        if not 0 <= index < len(endpoints):
            raise ProgramError(f"{type(self).__name__}: worker {index} of {len(endpoints)} cannot be; it should be below that")
        self._current_id, self._worker_endpoints = index, list(endpoints)


class PaddleCloudRoleMaker(RoleMakerBase):
    """Reads the environment: ``PADDLE_TRAINER_ID``, ``PADDLE_TRAINERS_NUM``, ``PADDLE_TRAINER_ENDPOINTS``, and the variables of
    mpiexec, Slurm and Kubernetes.

    Args:
        is_collective: whether all processes are workers. If not, some could be parameter servers, which are not here: then
            ``TRAINING_ROLE`` has to be ``TRAINER``, as it is by default.

    >>> from fluid.incubate.fleet.base.role_maker import PaddleCloudRoleMaker
    >>> role = PaddleCloudRoleMaker(is_collective=True)
    >>> role.generate_role()
    >>> role.worker_index(), role.worker_num()
    (0, 1)
    """

    def __init__(self, is_collective: bool = False) -> None:
        super().__init__()
        self._is_collective = is_collective

    def generate_role(self) -> None:
        if not self._is_collective and os.environ.get("TRAINING_ROLE", "TRAINER") != "TRAINER":
            raise _no_servers(f"TRAINING_ROLE={os.environ['TRAINING_ROLE']}")
        worker = worker_of()
        endpoints = list(filter(None, os.environ.get("PADDLE_TRAINER_ENDPOINTS", "").split(",")))
        self._be(worker.rank, endpoints if len(endpoints) == worker.size else [""] * worker.size)


class GeneralRoleMaker(PaddleCloudRoleMaker):
    """Like `PaddleCloudRoleMaker` for workers.

    Args:
        kwargs: Fluid's settings of gloo, its communication; accepted and unused.
    """

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(is_collective=True)


class MPISymetricRoleMaker(RoleMakerBase):
    """Asks MPI. In Fluid every second process is a parameter server; here all are workers."""

    def generate_role(self) -> None:
        group = communicator()
        self._be(group.rank, [""] * group.size)


class UserDefinedRoleMaker(RoleMakerBase):
    """A role maker whose rank and addresses are arguments.

    Args:
        current_id: the number of this worker.
        role: `Role.WORKER`; there are no parameter servers here.
        worker_num: the number of workers.
        server_endpoints: no entries.

    >>> from fluid.incubate.fleet.base.role_maker import UserDefinedRoleMaker
    >>> UserDefinedRoleMaker(current_id=1, worker_num=2).worker_index()
    1
    """

    def __init__(
        self, current_id: int = 0, role: int = Role.WORKER, worker_num: int = 0, server_endpoints: Sequence[str] | None = None
    ) -> None:
        super().__init__()
        if role != Role.WORKER or server_endpoints:
            raise _no_servers("UserDefinedRoleMaker")
        if not isinstance(current_id, int) or not isinstance(worker_num, int):
            raise FluidTypeError(f"UserDefinedRoleMaker takes numbers, not {current_id!r} and {worker_num!r}")
        if worker_num < 1:
            raise ProgramError(f"UserDefinedRoleMaker: worker_num is {worker_num}; it should be the number of workers")
        self._be(current_id, [""] * worker_num)


class UserDefinedCollectiveRoleMaker(RoleMakerBase):
    """A role maker whose rank and addresses are arguments.

    Args:
        current_id: the number of this worker.
        worker_endpoints: the addresses of all workers, ``host:port``; only their number counts.

    >>> from fluid.incubate.fleet.base.role_maker import UserDefinedCollectiveRoleMaker
    >>> UserDefinedCollectiveRoleMaker(0, ["127.0.0.1:6170", "127.0.0.1:6171"]).worker_num()
    2
    """

    def __init__(self, current_id: int = 0, worker_endpoints: Sequence[str] | None = None) -> None:
        super().__init__()
        if not isinstance(worker_endpoints, (list, tuple)) or not worker_endpoints:
            raise FluidTypeError(f"worker_endpoints should be a list of addresses, one for each worker, not {worker_endpoints!r}")
        self._be(current_id, worker_endpoints)


def _no_servers(call: str) -> ProgramError:
    return ProgramError(
        f"{call}: there are no parameter servers here; all processes are workers (fluid.incubate.fleet.collective)"
    )
