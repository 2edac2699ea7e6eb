"""`CompiledProgram`, `ParallelExecutor` and their settings, as Fluid 1.6 has them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .errors import FluidTypeError, ProgramError
from .executor import CPUPlace, CUDAPlace, Executor
from .ir.program import Program, default_main_program
from .not_here import names_here
from .parallel.mesh import Mesh
from .values.place import Place, XLAPlace

__all__ = ["BuildStrategy", "CompiledProgram", "ExecutionStrategy", "ParallelExecutor"]

__dir__ = names_here(__name__)


class _Settings:
    """Settings by name. Settings that change only speed in Paddle are accepted without effect."""

    def __init__(self) -> None:
        self.__dict__.update(type(self)._DEFAULTS)

    _DEFAULTS: dict[str, Any] = {}
    _LIMITS: dict[str, tuple[tuple[Any, ...], str]] = {}
    """Settings that would change results: their allowed values here, and advice for other values."""

    def __setattr__(self, name: str, value: Any) -> None:
        if name not in self._DEFAULTS:
            raise ProgramError(f"{type(self).__name__} has no setting {name!r}; it has {', '.join(self._DEFAULTS)}")
        allowed, instead = self._LIMITS.get(name, ((value,), ""))
        if value not in allowed:
            raise ProgramError(f"{type(self).__name__}.{name} = {value!r} is not here: {instead}")
        self.__dict__[name] = value


class ExecutionStrategy(_Settings):
    """Settings of Paddle's executor.

    Attributes:
        allow_op_delay, num_iteration_per_drop_scope, num_threads, use_cuda, use_experimental_executor, use_thread_barrier: in
            Paddle these change speed and memory, never results; accepted without effect. The executor's place says where a
            program runs, `fluid.set_num_threads` with how many threads.
        num_iteration_per_run: 1; how often a run is made is left to the script.

    Raises:
        ProgramError: a setting that Paddle does not have is set, or one to a value that is not here.

    >>> fluid.ExecutionStrategy().num_iteration_per_drop_scope = 10
    """

    _DEFAULTS = {
        "allow_op_delay": False,
        "num_iteration_per_drop_scope": 1,
        "num_iteration_per_run": 1,
        "num_threads": 0,
        "use_cuda": False,
        "use_experimental_executor": False,
        "use_thread_barrier": False,
    }
    _LIMITS = {"num_iteration_per_run": ((1,), "call Executor.run as often")}


class BuildStrategy(_Settings):
    """Settings of how Paddle rewrites a program before running it.

    The attributes are Fluid 1.6's. Most, such as `reduce_strategy`, `fuse_all_reduce_ops` and `memory_optimize`, change
    speed and memory in Paddle, never results: they are accepted without effect. So are `trainer_id` and `trainers_endpoints`,
    and `sync_batch_norm`, as each batch_norm uses the statistics of the whole batch, on several devices too.

    Attributes:
        gradient_scale_strategy: ``CoeffNumDevice``: the loss is the mean over the whole batch, on however many devices.
        num_trainers, is_distribution, async_mode: 1, False and False: several processes train by `fluid.incubate.fleet`.
        debug_graphviz_path: the file where a `CompiledProgram` with this strategy draws its program, for Graphviz.

    Raises:
        ProgramError: a setting that Paddle does not have is set, or one to a value that is not here.

    >>> fluid.BuildStrategy().memory_optimize = True
    """

    class ReduceStrategy:
        """Values of `reduce_strategy`."""

        AllReduce = 0
        Reduce = 1

    class GradientScaleStrategy:
        """Values of `gradient_scale_strategy`."""

        CoeffNumDevice = 0
        One = 1
        Customized = 2

    _DEFAULTS = {
        "async_mode": False,
        "cache_runtime_context": False,
        "debug_graphviz_path": "",
        "enable_backward_optimizer_op_deps": True,
        "enable_inplace": True,
        "enable_parallel_graph": False,
        "enable_sequential_execution": False,
        "fuse_all_optimizer_ops": False,
        "fuse_all_reduce_ops": False,
        "fuse_bn_act_ops": False,
        "fuse_broadcast_ops": False,
        "fuse_elewise_add_act_ops": False,
        "fuse_relu_depthwise_conv": False,
        "gradient_scale_strategy": GradientScaleStrategy.CoeffNumDevice,
        "hierarchical_allreduce_inter_nranks": 0,
        "is_distribution": False,
        "memory_optimize": True,
        "mkldnn_enabled_op_types": frozenset(),
        "nccl_comm_num": 1,
        "num_trainers": 1,
        "reduce_strategy": ReduceStrategy.AllReduce,
        "remove_unnecessary_lock": True,
        "sync_batch_norm": False,
        "trainer_id": 0,
        "trainers_endpoints": (),
        "use_hierarchical_allreduce": False,
    }
    _LIMITS = {
        "async_mode": ((False,), "all devices and workers make the same updates; leave it unset"),
        "gradient_scale_strategy": (
            (GradientScaleStrategy.CoeffNumDevice,),
            "the loss is that of the whole batch, whatever devices compute it; multiply the loss by the factor that you want",
        ),
        "is_distribution": ((False,), "several processes train by fluid.incubate.fleet.collective"),
        "num_trainers": ((1,), "several processes train by fluid.incubate.fleet.collective"),
    }


def _draw(program: Program, strategy: BuildStrategy | None) -> None:
    """Write the program to the file that its strategy names, if there is one."""
    path = strategy.__dict__.get("debug_graphviz_path") if strategy is not None else None
    if path:
        from .debugger import draw_block_graphviz

        draw_block_graphviz(program.global_block(), path=path)


class CompiledProgram:
    """A program and the devices that it runs on; `Executor.run` takes it in place of the program.

    Args:
        program_or_graph: the program.
        build_strategy: its `debug_graphviz_path` has an effect; see `BuildStrategy`.

    Attributes:
        program: the program.
        mesh: a mesh of devices, as `with_mesh` names it; otherwise None.
        takes_all_devices: whether it runs on all devices of the executor's place, each with a part of the batch.

    >>> x = fluid.data("x", [None, 2])
    >>> compiled = fluid.CompiledProgram(fluid.default_main_program()).with_data_parallel()
    >>> fluid.Executor().run(compiled, {"x": np.ones([4, 2], "float32")}, [layers.reduce_sum(x)])
    [array([8.], dtype=float32)]
    """

    def __init__(self, program_or_graph: Program, build_strategy: BuildStrategy | None = None) -> None:
        if not isinstance(program_or_graph, Program):
            raise FluidTypeError(f"CompiledProgram takes a Program, not {type(program_or_graph).__name__}")
        self.program = program_or_graph
        self.build_strategy = build_strategy
        self.mesh: Mesh | None = None
        self.takes_all_devices = False
        _draw(self.program, build_strategy)

    def with_mesh(self, mesh: Mesh) -> CompiledProgram:
        """Run over the devices of a mesh, at an `XLAPlace`; returns this object.

        Fed arrays are split over the axis ``data``, variables as `Program.shard` says. The results are the same as on one device.

        >>> import fluid
        >>> program = fluid.CompiledProgram(fluid.default_main_program()).with_mesh(fluid.parallel.Mesh(data=4, model=2))
        """
        if not isinstance(mesh, Mesh):
            raise FluidTypeError(f"with_mesh takes a fluid.parallel.Mesh, not {type(mesh).__name__}")
        self.mesh = mesh
        return self

    @property
    def _is_data_parallel(self) -> bool:
        """`takes_all_devices`, by its name in Fluid 1.6."""
        return self.takes_all_devices

    def with_data_parallel(
        self,
        loss_name: str | None = None,
        build_strategy: BuildStrategy | None = None,
        exec_strategy: ExecutionStrategy | None = None,
        share_vars_from: CompiledProgram | None = None,
        places: Sequence[Any] | Place | None = None,
    ) -> CompiledProgram:
        """Run over all devices, at an `XLAPlace`, each with a part of the batch; returns this object.

        Elsewhere, and where there is one device, it runs on that with the whole batch, which gives the same results.

        Args:
            places: places of XLA, one for each device to use; by default, all devices.
            build_strategy: see `CompiledProgram`.
            loss_name, exec_strategy, share_vars_from: accepted as in Fluid, without effect.

        Raises:
            ProgramError: `places` has several entries that are not places of XLA.
        """
        listed = [places] if places is None or isinstance(places, Place) else list(places)
        if len(listed) > 1 and not all(isinstance(place, XLAPlace) for place in listed):
            raise ProgramError(f"programs run on one such device here, not on {len(listed)}; leave places out, or use XLAPlace")
        if len(listed) > 1:
            self.mesh = Mesh(data=len(listed))
        self.takes_all_devices = True
        _draw(self.program, build_strategy)
        return self


class ParallelExecutor:
    """Runs one program, for scripts older than `CompiledProgram`: here on one device with the whole batch.

    Paddle gives each of several devices (``CPU_NUM``) a part of the batch, and fetches a loss of each, whose mean is the one that
    is fetched here. As native code shares a step among the processor's cores, dividing it by `CompiledProgram` would gain
    nothing on a CPU; for several devices of XLA, use ``CompiledProgram(program).with_data_parallel()`` with
    ``Executor(XLAPlace())``.

    Args:
        use_cuda: run on CUDA device 0, not on the CPU.
        main_program: the program; the default main program if None.
        scope: the scope of persistable variables; the global scope if None.
        loss_name, share_vars_from, exec_strategy, build_strategy, num_trainers, trainer_id: accepted as in Fluid; without
            effect. `ProgramError` if `num_trainers` is not 1.

    >>> total = layers.reduce_sum(fluid.data("x", [None, 2]))
    >>> fluid.ParallelExecutor(use_cuda=False).run([total], {"x": np.ones([4, 2], "float32")})
    [array([8.], dtype=float32)]
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
        """The number of devices on which the program runs: 1."""
        return 1

    def run(self, fetch_list: Any, feed: Any = None, feed_dict: Any = None, return_numpy: bool = True) -> list[Any]:
        """Run the program once.

        Args:
            fetch_list, feed, return_numpy: see `Executor.run`.
            feed_dict: an older name of `feed`.

        Returns:
            The fetched values, in order.
        """
        feed = feed if feed is not None else feed_dict
        return self._executor.run(self._program, feed, fetch_list, scope=self._scope, return_numpy=return_numpy)

    def drop_local_exe_scopes(self) -> None:
        """Does nothing: no scopes are kept between runs here."""
