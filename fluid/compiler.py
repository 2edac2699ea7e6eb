"""Programs with wishes about how to run them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .errors import FluidTypeError, ProgramError
from .executor import CPUPlace, CUDAPlace, Executor
from .ir.program import Program, default_main_program

__all__ = ["BuildStrategy", "CompiledProgram", "ExecutionStrategy", "ParallelExecutor"]


class _Wishes:
    """Settings by name. They change speed in Paddle, never results; here the executor plans by itself."""

    def __init__(self) -> None:
        self.__dict__.update(type(self)._DEFAULTS)

    _DEFAULTS: dict[str, Any] = {}

    def __setattr__(self, name: str, value: Any) -> None:
        if name not in self._DEFAULTS:
            raise ProgramError(f"{type(self).__name__} has no setting {name!r}; it has {', '.join(self._DEFAULTS)}")
        self.__dict__[name] = value


class ExecutionStrategy(_Wishes):
    """How Paddle's executor is to run: accepted for scripts that set it."""

    _DEFAULTS = {"num_threads": 0, "num_iteration_per_drop_scope": 1, "num_iteration_per_run": 1, "use_thread_barrier": False}


class BuildStrategy(_Wishes):
    """How Paddle is to rewrite the program before running it: accepted for scripts that set it."""

    class ReduceStrategy:
        AllReduce = 0
        Reduce = 1

    class GradientScaleStrategy:
        CoeffNumDevice = 0
        One = 1
        Customized = 2

    _DEFAULTS = {
        "debug_graphviz_path": "",
        "enable_inplace": True,
        "enable_sequential_execution": False,
        "fuse_all_optimizer_ops": False,
        "fuse_all_reduce_ops": False,
        "fuse_bn_act_ops": False,
        "fuse_broadcast_ops": False,
        "fuse_elewise_add_act_ops": False,
        "fuse_relu_depthwise_conv": False,
        "gradient_scale_strategy": GradientScaleStrategy.CoeffNumDevice,
        "memory_optimize": True,
        "num_trainers": 1,
        "reduce_strategy": ReduceStrategy.AllReduce,
        "remove_unnecessary_lock": True,
        "sync_batch_norm": False,
        "trainer_id": 0,
    }


class CompiledProgram:
    """A program for the executor, which runs ``program`` as it is: it compiles every program that it runs."""

    def __init__(self, program_or_graph: Program, build_strategy: BuildStrategy | None = None) -> None:
        if not isinstance(program_or_graph, Program):
            raise FluidTypeError(f"CompiledProgram takes a Program, not {type(program_or_graph).__name__}")
        self.program = program_or_graph
        self.build_strategy = build_strategy

    def with_data_parallel(
        self,
        loss_name: str | None = None,
        build_strategy: BuildStrategy | None = None,
        exec_strategy: ExecutionStrategy | None = None,
        share_vars_from: CompiledProgram | None = None,
        places: Sequence[Any] | None = None,
    ) -> CompiledProgram:
        """This program itself: it runs on the executor's one device, on the whole batch, which gives the same gradients.

        `ProgramError` if several places are asked for.
        """
        if places is not None and len(places) > 1:
            raise ProgramError(f"programs run on one device here, not on {len(places)}; leave places out")
        return self


class ParallelExecutor:
    """Runs one program, as scripts older than `CompiledProgram` do: on one device here, on the whole batch.

    Args:
        use_cuda: run on CUDA device 0, not on the processor.
        main_program: the program; the default main program if None.
        scope: where persistable variables live; the global scope if None.
        loss_name, share_vars_from, exec_strategy, build_strategy, num_trainers, trainer_id: accepted as in Fluid; of no
            effect. `ProgramError` if there should be several trainers.
    """

    def __init__(
        self,
        use_cuda: bool,
        loss_name: str | None = None,
        main_program: Program | None = None,
        share_vars_from: ParallelExecutor | None = None,
        exec_strategy: ExecutionStrategy | None = None,
        build_strategy: BuildStrategy | None = None,
        num_trainers: int = 1,
        trainer_id: int = 0,
        scope: Any = None,
    ) -> None:
        if num_trainers != 1:
            raise ProgramError(f"programs run in one process here, not in {num_trainers}; leave num_trainers out")
        self._program = main_program if main_program is not None else default_main_program()
        self._scope = scope
        self._executor = Executor(CUDAPlace(0) if use_cuda else CPUPlace())

    @property
    def device_count(self) -> int:
        """How many devices the program runs on: one."""
        return 1

    def run(self, fetch_list: Any, feed: Any = None, feed_dict: Any = None, return_numpy: bool = True) -> list[Any]:
        """Run once, as `Executor.run`; `feed_dict` is an older name of `feed`."""
        given = feed if feed is not None else feed_dict
        return self._executor.run(self._program, given, fetch_list, scope=self._scope, return_numpy=return_numpy)

    def drop_local_exe_scopes(self) -> None:
        """Nothing: no scopes are kept here from run to run."""
