"""The interfaces of a fleet and of its optimizers."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

from ....errors import FluidTypeError, ProgramError
from ....ir.program import Operator, Program, Variable
from ....not_here import names_here
from .role_maker import PaddleCloudRoleMaker, RoleMakerBase

__all__ = ["DistributedOptimizer", "Fleet", "Mode"]

__dir__ = names_here(__name__)


class Mode:
    """How workers synchronize parameters. There is only `COLLECTIVE` here."""

    TRANSPILER = 1
    PSLIB = 2
    COLLECTIVE = 3


class Fleet(ABC):
    """The group of all workers, from the view of one.

    Args:
        mode: one of `Mode`.
    """

    def __init__(self, mode: int) -> None:
        self._mode = mode
        self._role_maker: RoleMakerBase | None = None

    def init(self, role_maker: RoleMakerBase | None = None) -> None:
        """Determine the workers, from the environment if no role maker is given."""
        if role_maker is None:
            role_maker = PaddleCloudRoleMaker(is_collective=True)
        if not isinstance(role_maker, RoleMakerBase):
            raise FluidTypeError(f"fleet.init takes a role maker, such as PaddleCloudRoleMaker(), not {role_maker!r}")
        role_maker.generate_role()
        self._role_maker = role_maker

    @property
    def _role(self) -> RoleMakerBase:
        if self._role_maker is None:
            raise ProgramError("the fleet does not know its workers yet; call fleet.init(role_maker) first")
        return self._role_maker

    def is_first_worker(self) -> bool:
        """Whether this is worker 0."""
        return self._role.is_first_worker()

    def worker_index(self) -> int:
        """The number of this worker, from 0."""
        return self._role.worker_index()

    def worker_num(self) -> int:
        """The number of workers."""
        return self._role.worker_num()

    def is_worker(self) -> bool:
        """Whether this process is a worker: all are."""
        return self._role.is_worker()

    def worker_endpoints(self, to_string: bool = False) -> list[str] | str:
        """The workers' addresses, as far as they are known."""
        endpoints = self._role.get_trainer_endpoints()
        return ",".join(endpoints) if to_string else endpoints

    def server_num(self) -> int:
        """0: there are no parameter servers here."""
        return 0

    def is_server(self) -> bool:
        """Whether this process is a parameter server: none is."""
        return self._role.is_server()

    def split_files(self, files: Sequence[str]) -> list[str]:
        """The files that this worker reads: consecutive ones, an equal number for each worker, or one more.

        Args:
            files: a list or tuple of paths, the same on all workers.

        >>> from fluid.incubate.fleet.base.role_maker import UserDefinedRoleMaker
        >>> from fluid.incubate.fleet.collective import Collective
        >>> fleet = Collective()
        >>> fleet.init(UserDefinedRoleMaker(current_id=1, worker_num=2))
        >>> fleet.split_files(["a", "b", "c"])
        ['c']
        """
        if not isinstance(files, (list, tuple)):
            raise FluidTypeError(f"split_files takes a list of files, not {files!r}")
        count, more = divmod(len(files), self.worker_num())
        index = self.worker_index()
        start = index * count + min(index, more)
        return list(files[start : start + count + (index < more)])

    @abstractmethod
    def distributed_optimizer(self, optimizer: Any, strategy: Any = None) -> DistributedOptimizer:
        """An optimizer that trains with all workers, by the updates of `optimizer`, as `strategy` says."""

    @abstractmethod
    def save_inference_model(
        self,
        executor: Any,
        dirname: str,
        feeded_var_names: Sequence[str],
        target_vars: Sequence[Variable],
        main_program: Program | None = None,
        export_for_deployment: bool = True,
    ) -> Any:
        """As `fluid.io.save_inference_model`, on worker 0 alone.

        Args:
            executor, dirname, feeded_var_names, target_vars, main_program: see `fluid.io.save_inference_model`.
            export_for_deployment: the same.
        """

    @abstractmethod
    def save_persistables(
        self, executor: Any, dirname: str, main_program: Program | None = None, filename: str | None = None
    ) -> None:
        """As `fluid.io.save_persistables`, on worker 0 alone.

        Args:
            executor, dirname, main_program, filename: see `fluid.io.save_persistables`.
        """


class DistributedOptimizer(ABC):
    """An optimizer that trains with all workers.

    Args:
        optimizer: makes the updates.
        strategy: how the workers train.
    """

    def __init__(self, optimizer: Any, strategy: Any = None) -> None:
        self._optimizer, self._strategy = optimizer, strategy

    @abstractmethod
    def minimize(
        self, loss: Variable, startup_program: Program | None = None, parameter_list: Any = None, no_grad_set: Any = None
    ) -> tuple[list[Operator], list[Any]]:
        """Append the backward part, the reductions and the updates.

        Args:
            loss, startup_program, parameter_list, no_grad_set: see `fluid.optimizer.Optimizer.minimize`.
        """
