"""Training by workers that each have all parameters and a part of each batch, and sum their gradients::

    from fluid.incubate.fleet.base.role_maker import PaddleCloudRoleMaker
    from fluid.incubate.fleet.collective import fleet

    fleet.init(PaddleCloudRoleMaker(is_collective=True))
    ...                                                   # a program with a loss, as for one worker
    fleet.distributed_optimizer(fluid.optimizer.SGD(0.1)).minimize(loss)
    exe.run(fluid.default_startup_program())              # all workers start from the parameters of worker 0
    for batch in fluid.io.shard(batches)():               # this worker's part of each batch
        exe.run(feed=..., fetch_list=[loss])

Started by ``python -m fluid.distributed.launch -n 2 script.py``, or by ``mpiexec -n 2 python script.py``, it computes what one
process computes of the whole batches. Without either, it is that one process.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from .... import io, unique_name
from ....clip import GradientClipByGlobalNorm, GradientClipByNorm
from ....compiler import BuildStrategy, ExecutionStrategy
from ....contrib.mixed_precision import decorate
from ....errors import FluidTypeError, ProgramError
from ....ir.program import Operator, OpRole, Program, Variable, default_main_program, default_startup_program, program_guard
from ....layers import create_global_var
from ....not_here import names_here
from ....optimizer import LookaheadOptimizer, Optimizer, RecomputeOptimizer
from ....saving.by_workers import load_by_workers, save_by_workers
from ....saving.checkpoint import Checkpoint
from ....saving.variables import refuse_divided
from ....training.periods import do_every
from ....transform.data_parallel import (
    average_loss,
    average_parameters,
    broadcast_parameters,
    reduce_gradients,
    synchronize_batch_norm,
)
from ....transform.divided import divide_optimizer_state, divide_state_of_tables, divide_tables
from ..base.fleet_base import DistributedOptimizer, Fleet, Mode

__all__ = ["Collective", "CollectiveOptimizer", "DistributedStrategy", "fleet"]

__dir__ = names_here(__name__)


class DistributedStrategy(BuildStrategy):
    """How the workers of a fleet train.

    Attributes:
        fuse_all_reduce_ops: whether gradients are reduced in buckets, each at once.
        fuse_grad_size_in_MB: how large a bucket is when its reduction begins.
        gradients_sent_as: ``"bfloat16"`` to halve what float32 gradients send: each is rounded before it travels, and so is the
            sum, which is computed in float32. None sends them as they are.
        gradient_scale_strategy: ``CoeffNumDevice`` divides by the number of workers, to give gradients of the mean of the
            workers' losses; ``One`` does not.
        sync_batch_norm: whether each batch_norm uses the statistics of all workers' rows, by two small reductions.
        forward_recompute, recompute_checkpoints: as of `RecomputeOptimizer`.
        use_amp: whether to train in mixed precision, by `fluid.contrib.mixed_precision.decorate` with a factor of the loss that
            changes. To choose more, decorate the optimizer instead.
        amp_loss_scaling: the factor of the loss at first (32,768).
        mode: ``"nccl2"`` or ``"collective"``, which are the same here.
        collective_mode: None or ``"grad_allreduce"``, which are the same; see `use_local_sgd`.
        exec_strategy, nccl_comm_num, and the settings of `BuildStrategy` that change speed in Paddle, never results: accepted
            without effect. So are `is_distribution`, `num_trainers`, `trainer_id` and `trainers_endpoints`: `fleet.init` finds
            out who the workers are.
        shard_optimizer_state: whether each worker keeps the optimizer's state (such as moments) for its part of each parameter,
            updates that part, and gets the others from the other workers (ZeRO, stage 1). For optimizers that update each element
            by itself.
        use_local_sgd: whether each worker updates its parameters by its own gradients, and all take the mean of their parameters
            after every `local_sgd_steps` steps (1), instead of summing gradients in each.
        use_dist_fc, dist_fc_config: not supported; leave them unset.

    Raises:
        ProgramError: a setting that Fluid does not have is set, or one to a value that is not here.

    >>> from fluid.incubate.fleet.collective import DistributedStrategy
    >>> strategy = DistributedStrategy()
    >>> strategy.sync_batch_norm = True
    """

    _DEFAULTS = BuildStrategy._DEFAULTS | {
        "fuse_all_reduce_ops": True,
        "fuse_grad_size_in_MB": 1,
        "gradients_sent_as": None,
        "shard_optimizer_state": False,
        "use_local_sgd": False,
        "local_sgd_steps": 1,
        "use_dist_fc": False,
        "dist_fc_config": None,
        "mode": "nccl2",
        "collective_mode": None,
        "forward_recompute": False,
        "recompute_checkpoints": (),
        "use_amp": False,
        "amp_loss_scaling": 2**15,
        "exec_strategy": None,
    }
    _LIMITS = {
        "async_mode": BuildStrategy._LIMITS["async_mode"],
        "debug_graphviz_path": (("",), "fluid.debugger.draw_block_graphviz(program.global_block(), path=...) writes such a file"),
        "collective_mode": ((None, "grad_allreduce"), "set use_local_sgd = True for local_sgd, and leave this unset"),
        "dist_fc_config": ((None,), "layers that are divided among workers are not here; leave it unset"),
        "gradient_scale_strategy": (
            (BuildStrategy.GradientScaleStrategy.CoeffNumDevice, BuildStrategy.GradientScaleStrategy.One),
            "multiply the loss by the factor that you want, and set One",
        ),
        "gradients_sent_as": ((None, "bfloat16"), "leave it None to send gradients as they are"),
        "mode": (("nccl2", "collective"), "there are no parameter servers here: all processes are workers"),
        "use_dist_fc": ((False,), "layers that are divided among workers are not here; leave it unset"),
    }

    def __init__(self) -> None:
        super().__init__()
        self.exec_strategy = ExecutionStrategy()


class Collective(Fleet):
    """The workers of this program.

    Attributes:
        main_program, startup_program: the programs of the last `minimize` of a `distributed_optimizer`.

    >>> from fluid.incubate.fleet.base.role_maker import PaddleCloudRoleMaker
    >>> from fluid.incubate.fleet.collective import Collective
    >>> fleet = Collective()
    >>> fleet.init(PaddleCloudRoleMaker(is_collective=True))
    >>> fleet.worker_index(), fleet.is_first_worker()
    (0, True)
    """

    def __init__(self) -> None:
        super().__init__(Mode.COLLECTIVE)
        self.main_program: Program | None = None
        self.startup_program: Program | None = None

    def distributed_optimizer(self, optimizer: Any, strategy: DistributedStrategy | None = None) -> CollectiveOptimizer:
        """An optimizer whose gradients are summed over all workers.

        Args:
            optimizer: does the updates; also a `fluid.training.GradientAccumulation`.
            strategy: how; a `DistributedStrategy()` if None.
        """
        return CollectiveOptimizer(optimizer, strategy, self)

    def save_inference_model(
        self,
        executor: Any,
        dirname: str,
        feeded_var_names: Sequence[str],
        target_vars: Sequence[Variable],
        main_program: Program | None = None,
        export_for_deployment: bool = True,
    ) -> Any:
        """As `fluid.io.save_inference_model`, on worker 0; the others do nothing.

        Args:
            executor, dirname, feeded_var_names, target_vars, export_for_deployment: see `fluid.io.save_inference_model`.
            main_program: the program; if None, the last one that was minimized.
        """
        refuse_divided(self._program(main_program).all_parameters(), "save_inference_model")
        if not self.is_first_worker():
            return None
        program = main_program if main_program is not None else self.main_program
        return io.save_inference_model(
            dirname, feeded_var_names, target_vars, executor, program, export_for_deployment=export_for_deployment
        )

    def save_persistables(
        self, executor: Any, dirname: str, main_program: Program | None = None, filename: str | None = None
    ) -> None:
        """As `fluid.io.save_persistables`, on worker 0; the others do nothing.

        Args:
            executor, dirname, filename: see `fluid.io.save_persistables`.
            main_program: the program; if None, the last one that was minimized.
        """
        refuse_divided(self._program(main_program).list_vars(), "save_persistables")
        if self.is_first_worker():
            io.save_persistables(executor, dirname, main_program if main_program is not None else self.main_program, filename)

    def save_checkpoint(
        self,
        path: str,
        step: int = 0,
        main_program: Program | None = None,
        shards: bool = False,
        state: Mapping[str, Any] | None = None,
    ) -> None:
        """Save all that training needs to go on, with any number of workers; all workers call it.

        Args:
            path, step, shards, state: see `fluid.saving.by_workers.save_by_workers`.
            main_program: the program; if None, the last one that was minimized.
        """
        save_by_workers(self._program(main_program), path, step, shards, state)

    def load_checkpoint(self, path: str, executor: Any = None, main_program: Program | None = None) -> Checkpoint:
        """Load a checkpoint of `save_checkpoint`; returns its step and state, as `fluid.load_checkpoint` does.

        Args:
            path: the file.
            executor: on whose place the values are put.
            main_program: the program; if None, the last one that was minimized.
        """
        return load_by_workers(self._program(main_program), path, executor)

    @property
    def _origin_program(self) -> Program | None:
        """`main_program`, under the name that Fluid's scripts use when they save."""
        return self.main_program

    def _program(self, program: Program | None) -> Program:
        return program or self.main_program or default_main_program()

    # Fluid's scripts call these to start and stop servers, which are not here.
    def init_worker(self) -> None:
        """Does nothing."""

    def stop_worker(self) -> None:
        """Does nothing."""

    def init_server(self, model_dir: str | None = None) -> None:
        """An error: there are no parameter servers here."""
        raise ProgramError("there are no parameter servers here: all processes are workers")

    def run_server(self) -> None:
        """An error: there are no parameter servers here."""
        self.init_server()


class CollectiveOptimizer(DistributedOptimizer):
    """An optimizer whose gradients are summed over all workers.

    Args:
        optimizer: does the updates.
        strategy: how; a `DistributedStrategy()` if None.
        workers: the group of workers; by default the workers of `fleet`.

    >>> from fluid.incubate.fleet.base.role_maker import PaddleCloudRoleMaker
    >>> from fluid.incubate.fleet.collective import Collective
    >>> fleet = Collective()
    >>> fleet.init(PaddleCloudRoleMaker(is_collective=True))
    >>> loss = layers.mean(layers.fc(fluid.data("x", [None, 2]), 1))
    >>> updates, pairs = fleet.distributed_optimizer(fluid.optimizer.SGD(0.1)).minimize(loss)
    """

    def __init__(self, optimizer: Any, strategy: DistributedStrategy | None = None, workers: Collective | None = None) -> None:
        strategy = strategy if strategy is not None else DistributedStrategy()
        if not isinstance(strategy, DistributedStrategy):
            raise FluidTypeError(f"strategy should be a DistributedStrategy, not {strategy!r}")
        steps: Any = strategy.local_sgd_steps  # type: ignore[attr-defined]
        if not isinstance(steps, int) or steps < 1:
            raise ProgramError(f"local_sgd_steps is {steps!r}; it should be the number of steps from one mean to the next")
        if isinstance(optimizer, LookaheadOptimizer) or not hasattr(optimizer, "apply_gradients"):
            raise FluidTypeError(
                "distributed_optimizer takes an optimizer that has backward and apply_gradients, such as "
                f"fluid.optimizer.SGD(0.1), not a {type(optimizer).__name__}"
            )
        wraps = [name for name in ("forward_recompute", "use_amp") if getattr(strategy, name)]
        if wraps and not isinstance(optimizer, Optimizer):
            raise FluidTypeError(
                f"strategy.{wraps[0]} takes an optimizer of fluid.optimizer, not a {type(optimizer).__name__}; leave it unset "
                "(a RecomputeOptimizer can be put into a GradientAccumulation)"
            )
        if strategy.forward_recompute:  # type: ignore[attr-defined]
            optimizer = RecomputeOptimizer(optimizer)
            optimizer._set_checkpoints(list(strategy.recompute_checkpoints))  # type: ignore[attr-defined]
        if strategy.use_amp:  # type: ignore[attr-defined]
            scaling: Any = strategy.amp_loss_scaling  # type: ignore[attr-defined]
            optimizer = decorate(optimizer, init_loss_scaling=scaling, use_dynamic_loss_scaling=True)
        super().__init__(optimizer, strategy)
        self._workers = workers if workers is not None else fleet

    def backward(
        self,
        loss: Variable,
        startup_program: Program | None = None,
        parameter_list: Any = None,
        no_grad_set: Any = None,
        callbacks: Any = None,
    ) -> list[Any]:
        """Append only the backward part, without reductions.

        Args:
            loss, startup_program, parameter_list, no_grad_set, callbacks: see `fluid.optimizer.Optimizer.backward`.
        """
        pairs = self._optimizer.backward(loss, startup_program, parameter_list, no_grad_set, callbacks)
        return pairs[0] if isinstance(pairs, tuple) else pairs  # type: ignore[no-any-return]

    def minimize(
        self, loss: Variable, startup_program: Program | None = None, parameter_list: Any = None, no_grad_set: Any = None
    ) -> tuple[list[Operator], list[Any]]:
        """Append the backward part, the reductions and the updates; with one worker, the same ops as the optimizer itself.

        Args:
            loss: this worker's loss, a mean over its part of the batch. The gradients are of the mean over all workers.
            startup_program: also gives all workers the first parameters of worker 0; the default one if None.
            parameter_list, no_grad_set: as of `Optimizer.minimize`.

        Returns:
            The ops of the updates, and (parameter, gradient) pairs.
        """
        startup = startup_program if startup_program is not None else default_startup_program()
        program, count = loss.block.program, self._workers.worker_num()
        tables = {table.name: table for table in self._divide_tables(program, startup, count)} if count > 1 else {}
        if count > 1 and self._strategy.sync_batch_norm:
            synchronize_batch_norm(program, count)
        pairs = self.backward(loss, startup, parameter_list, no_grad_set)
        end = len(program.global_block().ops)
        updates = self._updates(loss, startup, pairs)
        self._workers.main_program, self._workers.startup_program = program, startup
        if count > 1:
            if self._strategy.use_local_sgd:
                with program_guard(program, startup):
                    self._average([parameter for parameter, gradient in pairs if gradient is not None], count)
            else:
                everywhere = [gradient for parameter, gradient in pairs if gradient is not None and parameter.name not in tables]
                self._reduce(loss, everywhere, end, count)
            divide_state_of_tables(tables.values(), updates)
            if self._strategy.shard_optimizer_state:
                divide_optimizer_state(startup, updates, count, self._bucket_bytes)
            broadcast_parameters(program, startup)
        return updates, pairs

    def _divide_tables(self, program: Program, startup: Program, count: int) -> list[Variable]:
        tables = divide_tables(program, startup, count)
        if self._strategy.use_local_sgd and (tables or self._strategy.shard_optimizer_state):
            setting = "is_distributed=True" if tables else "shard_optimizer_state"
            raise ProgramError(f"use_local_sgd lets workers have parameters that differ, so {setting} is not possible with it")
        optimizer = self._optimizer
        while hasattr(optimizer, "_optimizer"):
            optimizer = optimizer._optimizer
        clip = getattr(optimizer, "_grad_clip", None)
        if tables and isinstance(clip, (GradientClipByNorm, GradientClipByGlobalNorm)):
            raise ProgramError(
                f"{type(clip).__name__} needs the norm of a full gradient, and the gradient of {tables[0].name} is divided among "
                "the workers (is_distributed=True); use GradientClipByValue, or leave is_distributed unset"
            )
        return tables

    @property
    def _bucket_bytes(self) -> int:
        return int(self._strategy.fuse_grad_size_in_MB * 2**20) if self._strategy.fuse_all_reduce_ops else 1

    def _average(self, parameters: Sequence[Variable], count: int) -> None:
        """Append ops that average the parameters over all workers from time to time."""
        program, size = default_main_program(), int(self._strategy.fuse_grad_size_in_MB * 2**20)
        with program.role_guard(OpRole.OPTIMIZE):
            if self._strategy.local_sgd_steps == 1:
                average_parameters(program.current_block(), parameters, count, size)
                return
            step = create_global_var([1], 0, "int64", persistable=True, name=unique_name.generate("local_sgd_step"))
            do_every(
                step,
                self._strategy.local_sgd_steps,
                lambda: average_parameters(program.current_block(), parameters, count, size),
            )

    def _updates(self, loss: Variable, startup: Program, pairs: Iterable[Any]) -> list[Operator]:
        optimizer = self._optimizer
        if isinstance(optimizer, Optimizer):
            return optimizer.apply_optimize(loss, startup, pairs)
        with program_guard(loss.block.program, startup):
            return optimizer.apply_gradients(pairs)  # type: ignore[no-any-return]

    def _reduce(self, loss: Variable, gradients: list[Variable], end: int, count: int) -> None:
        strategy: Any = self._strategy
        reduce_gradients(gradients, end, count, self._bucket_bytes, strategy.gradients_sent_as)
        if strategy.gradient_scale_strategy == BuildStrategy.GradientScaleStrategy.CoeffNumDevice:
            scaled = self._optimizer.get_scaled_loss() if hasattr(self._optimizer, "get_scaled_loss") else loss
            average_loss(scaled, count)


fleet = Collective()
"""The workers of this process's programs; Fluid's scripts import this object."""
