"""`Executor`: runs programs in scopes."""

from __future__ import annotations

import threading
import weakref
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np

from fluid.errors import ExecutionError, FeedError, FeedTypeError, FluidError, FluidTypeError, did_you_mean, locate, shown
from fluid.formats.bfloat16 import BFLOAT16, computable, to_bfloat16
from fluid.ir.collector import collector_paused
from fluid.ir.program import Operator, Program, Variable, default_main_program
from fluid.parallel.mesh import Mesh
from fluid.values.cache import FEW, Cache
from fluid.values.lod_array import LoDArray, array_of, to_lod
from fluid.values.lod_tensor import FedArray
from fluid.values.numeric import DEFAULT_INT, NO_NUMBERS, numeric_array, said_by
from fluid.values.one_element import convertible
from fluid.values.place import CPUPlace, Place, XLAPlace, to_numpy
from fluid.values.selected_rows import SelectedRows
from fluid.values.spec import Spec
from fluid.values.types import VarType, as_dtype, is_floating

from . import timing
from .binding.arrays import spec_of
from .native.fallback import NativeUnavailable, is_enabled, warn_of
from .planned.bound_plan import BoundPlan
from .planned.memory import Memory
from .planned.plan import Plan, compile_plan
from .planned.printing import calls_of
from .scope import LoDTensor, Scope, checked_scope, global_scope
from .stepwise.interpreter import Check
from .stepwise.program import StepwiseProgram
from .threads import OnNumpy
from .timing import Watch
from .widening import holds_bfloat16, widened_copy
from .xla.lod import LodPolicy

if TYPE_CHECKING:
    from .xla.execution import XlaPlan, XlaStep

__all__ = ["Executor", "as_numpy"]

AnyPlan: TypeAlias = "Plan | XlaPlan"
AnyBoundPlan: TypeAlias = "BoundPlan | XlaStep"

_Key = tuple[int, int, tuple[tuple[str, Spec], ...], tuple[str, ...], Mesh | None, bool]
"""Id and version of the program, specs of the feeds, fetches, mesh of devices, whether native code is used. Plans keep their
program alive, so ids stay unique."""
_BoundPlans: TypeAlias = "tuple[Memory, OrderedDict[_Key, AnyBoundPlan]]"
_Check = Callable[[Operator, str, Any], None]


class _Feed(NamedTuple):
    """A fed array as it was in a run, and whether its variable held it to the declared shape."""

    var: Variable
    is_checked: bool
    dtype: np.dtype[Any]
    shape: tuple[int, ...]


class _Run(NamedTuple):
    """What a run was: its bound plan, the version of the program, and what was fed."""

    bound: weakref.ref[AnyBoundPlan]
    version: int
    feeds: dict[str, _Feed]


class Executor:
    """Runs programs on a place.

    A program that is fed plain arrays is compiled once for each set of feed shapes and fetches, and bound to the arrays of each
    scope that it runs in; both are cached, the latter as long as the scope lives. If rows form sequences, whose lengths differ in
    every batch, the program runs op by op. Several threads may share an executor; runs in the same scope take turns.

    Args:
        place: the device; the CPU if None.

    Raises:
        FeedTypeError: `place` is no place.
        ExecutionError: there is no such device.

    >>> y = layers.scale(fluid.data("x", [None, 2]), 10.0)
    >>> exe = fluid.Executor(fluid.CPUPlace())
    >>> exe.run(feed={"x": np.array([[1.0, 2.0]], "float32")}, fetch_list=[y])
    [array([[10., 20.]], dtype=float32)]
    """

    def __init__(self, place: Place | None = None) -> None:
        if place is not None and not isinstance(place, Place):
            raise FeedTypeError(f"an Executor runs at a place, such as fluid.CPUPlace(), not {place!r}")
        self.place = place if place is not None else CPUPlace()
        self.place.xp  # noqa: B018  raises an error at once if there is no such device
        self._plans: OrderedDict[_Key, AnyPlan] = OrderedDict()
        self._bound_plans: weakref.WeakKeyDictionary[Scope, _BoundPlans] = weakref.WeakKeyDictionary()
        self._stepwise: weakref.WeakKeyDictionary[Scope, OrderedDict[_Key, StepwiseProgram]] = weakref.WeakKeyDictionary()
        self._runs: Cache[tuple[Any, ...], _Run] = Cache(FEW)
        self._widened: weakref.WeakKeyDictionary[Program, tuple[int, Program | None]] = weakref.WeakKeyDictionary()
        """Program -> its version, and its copy without bfloat16 if it has any."""
        self._lock = threading.Lock()
        self._is_traced = isinstance(self.place, XLAPlace)
        self._lods = LodPolicy()
        self._has_native = self.place.xp is np and not self._is_traced

    def close(self) -> None:
        """Forget the compiled plans and their memory."""
        with self._lock:
            self._plans.clear()
            self._bound_plans.clear()
            self._stepwise.clear()
            self._runs.clear()

    def run(
        self,
        program: Program | None = None,
        feed: Mapping[str, Any] | None = None,
        fetch_list: Sequence[Variable | str] | Variable | str | None = None,
        feed_var_name: str = "feed",
        fetch_var_name: str = "fetch",
        scope: Scope | None = None,
        return_numpy: bool = True,
        use_program_cache: bool = False,
        check_nan: bool = False,
    ) -> list[Any]:
        """Run a program once.

        Args:
            program: by default, the default main program.
            feed: variable name -> array (or nested list, or `LoDTensor`) of the declared dtype and, for those of `fluid.data`, a
                matching shape; a list of arrays for an array of tensors; if rows form sequences, a `LoDTensor` or (array, LoD):
                lengths or offsets of the sequences, level by level.
            fetch_list: variables or names whose values to return.
            scope: where persistable variables live; by default, the global scope.
            return_numpy: return numpy arrays, where those of one element convert to numbers in any shape; otherwise
                each a `LoDTensor` at the executor's place, with the LoD of sequences.
            check_nan: stop at the first op that makes a NaN or an infinity, with an error that names it. Such a run computes each
                op by itself, without native code.
            feed_var_name, fetch_var_name, use_program_cache: accepted as in Fluid, without effect; plans are always cached.

        Returns:
            The fetched values, in order.

        Raises:
            FeedError: a feed is missing, unknown, or of another dtype or shape than declared, or a fetch is unknown.
            ExecutionError: an op failed.
        """
        mesh = self._mesh(program)
        program, scope = _program(program), _scope(scope)
        feeds, fetches = _with_loaders(program, feed), _names(fetch_list)
        check = _raise_if_not_finite if check_nan else None
        timer = timing.current
        watches_ops = check is not None or (timer is not None and not timer.sees_native)
        native = not watches_ops and self._has_native  # native code computes several ops at once
        bound = self._bound_before(program, feeds, fetches, scope, native, mesh)
        if bound is None:
            program = self._without_bfloat16(program, scope)
            feeds, fed = self._feeds(program, feeds), feeds
            _check_fetches(program, fetches)
        whole = nullcontext() if timer is None else timing.whole_run(timer, f"run of {len(program.global_block().ops)} ops")
        with whole, self.place.active(), OnNumpy() if bound is None else bound.settings():
            try:
                if bound is None and self._is_compiled_for(program, feeds, fetches):
                    bound = self._bound(program, feeds, fetches, scope, native, mesh)
                    self._note(bound, fed, fetches, scope, native, mesh)
                if bound is None or bound.plan.step_by_step:
                    results = self._step_by_step(program, fetches, scope).run(feeds, scope, check, timer)
                else:
                    results = self._results(bound, feeds, fetches, scope, check, timer)
            except ExecutionError as error:
                _tell_other_feeds(error, program, feeds)
                raise
            return [_result(value, return_numpy) for value in results]

    def plan(
        self,
        program: Program | None = None,
        feed: Mapping[str, Any] | None = None,
        fetch_list: Sequence[Variable | str] | Variable | str | None = None,
        scope: Scope | None = None,
    ) -> AnyPlan:
        """The plan that `run` uses for these arguments. Printed, it shows the ops and where their values are kept;
        ``to_string(calls=True)`` also shows the calls of each op.

        Args:
            program, feed, fetch_list, scope: see `run`.
        """
        mesh, scope = self._mesh(program), _scope(scope)
        program = self._without_bfloat16(_program(program), scope)
        feeds, fetches = self._feeds(program, _only_feed(feed)), _check_fetches(program, _names(fetch_list))
        with self.place.active():
            return self._bound(program, feeds, fetches, scope, self._has_native, mesh).plan

    def interpret(
        self,
        program: Program | None = None,
        feed: Mapping[str, Any] | None = None,
        fetch_list: Sequence[Variable | str] | Variable | str | None = None,
        scope: Scope | None = None,
        return_numpy: bool = True,
        check: Check | None = None,
        timer: Watch | None = None,
    ) -> list[Any]:
        """Run a program once, op by op into fresh arrays, without a plan: the same values as `run`, but slower.

        Args:
            program, feed, fetch_list, scope, return_numpy: see `run`.
            check: called with each op, name and value as they are made.
            timer: told the time of each op of block 0.
        """
        scope = _scope(scope)
        program = self._without_bfloat16(_program(program), scope)
        feeds, fetches = self._feeds(program, _with_loaders(program, feed)), _check_fetches(program, _names(fetch_list))
        with self.place.active(), OnNumpy():
            try:
                results = StepwiseProgram(program, fetches, self.place).run(feeds, scope, check, timer)
            except ExecutionError as error:
                _tell_other_feeds(error, program, feeds)
                raise
            return [_result(value, return_numpy) for value in results]

    def train_from_dataset(
        self,
        program: Program | None = None,
        dataset: Any = None,
        scope: Scope | None = None,
        thread: int = 0,
        debug: bool = False,
        fetch_list: Any = None,
        fetch_info: Any = None,
        print_period: int = 100,
        fetch_handler: Any = None,
    ) -> None:
        """Not supported: Paddle reads datasets in processes of its own. `fluid.io.DataLoader` reads data here.

        Args:
            program, dataset, scope, thread, debug, fetch_list, fetch_info, print_period, fetch_handler: as in Fluid 1.6.

        Raises:
            ExecutionError: always; it says what to use instead.
        """
        raise _no_datasets("train_from_dataset")

    def infer_from_dataset(
        self,
        program: Program | None = None,
        dataset: Any = None,
        scope: Scope | None = None,
        thread: int = 0,
        debug: bool = False,
        fetch_list: Any = None,
        fetch_info: Any = None,
        print_period: int = 100,
        fetch_handler: Any = None,
    ) -> None:
        """Not supported, as `train_from_dataset`.

        Args:
            program, dataset, scope, thread, debug, fetch_list, fetch_info, print_period, fetch_handler: as in Fluid 1.6.

        Raises:
            ExecutionError: always; it says what to use instead.
        """
        raise _no_datasets("infer_from_dataset")

    def _results(
        self,
        bound: AnyBoundPlan,
        feeds: dict[str, Any],
        fetches: list[str],
        scope: Scope,
        check: _Check | None,
        timer: Watch | None,
    ) -> list[Any]:
        """What a bound plan gives; if native code cannot be made of it, what a plan without gives."""
        try:
            return bound.run(feeds, check, timer)
        except NativeUnavailable as error:
            warn_of(error, bound.plan.program)
            bound.plan.has_failed = True
            return self._bound(bound.plan.program, feeds, fetches, scope, native=False).run(feeds, check, timer)

    def _without_bfloat16(self, program: Program, scope: Scope) -> Program:
        """The program itself, or a copy in float32 if it has bfloat16 and this place has not, which is kept while the program
        does not change."""
        if self._has_native or self._is_traced:
            return program
        version, kept = self._widened.get(program, (-1, None))
        if version != program.version:
            kept = widened_copy(program, scope) if holds_bfloat16(program) else None
            self._widened[program] = program.version, kept
        return program if kept is None else kept

    # -- plans
    def _mesh(self, program: Any) -> Mesh | None:
        """The mesh of devices on which a program, such as a `CompiledProgram`, is to run here."""
        if type(program) is Program:
            return None
        mesh = getattr(program, "mesh", None)
        if mesh is not None and not self._is_traced:
            raise ExecutionError(f"{mesh} is one of devices of XLA, but the program runs on {self.place}; use fluid.XLAPlace()")
        if not self._is_traced or mesh is not None or not getattr(program, "takes_all_devices", False):
            return mesh if isinstance(mesh, Mesh) else None
        assert isinstance(self.place, XLAPlace)
        return Mesh(data=self.place.device_count) if self.place.device_count > 1 else None

    def _is_compiled_for(self, program: Program, feeds: Mapping[str, Any], fetches: list[str]) -> bool:
        """Whether a plan is made for what is fed; sequences have other lengths in every batch."""
        if not self._is_traced:
            return not any(type(value) in (LoDArray, list) for value in feeds.values())
        lods = {name: value.lod for name, value in feeds.items() if type(value) is LoDArray}
        if not lods:
            return True
        with self._lock:
            return self._lods.is_compiled(program, fetches, lods)

    def _step_by_step(self, program: Program, fetches: list[str], scope: Scope) -> StepwiseProgram:
        key = (id(program), program.version, (), tuple(fetches), None, False)
        with self._lock:
            programs = self._stepwise.setdefault(scope, OrderedDict())
            _keep(programs, key, programs.get(key) or StepwiseProgram(program, fetches, self.place))
            return programs[key]

    def _bound_before(
        self, program: Program, feed: Any, fetches: list[str], scope: Scope, native: bool, mesh: Mesh | None
    ) -> AnyBoundPlan | None:
        """The bound plan of the last run of a program in a scope with these fetches, if the same is fed as then: plain arrays of
        the same types and shapes, which need no check."""
        run = self._runs.get((id(program), id(scope), native, mesh, *fetches))
        if run is None or run.version != program.version or type(feed) is not dict or len(feed) != len(run.feeds):
            return None
        bound = run.bound()
        if bound is None or bound.plan.program is not program or not bound.is_of(scope):
            return None
        for name, value in feed.items():
            expected = run.feeds.get(name) if type(name) is str else None
            if expected is None or type(value) is not np.ndarray:
                return None
            if value.dtype is not expected.dtype or value.shape != expected.shape:
                return None
            if expected.var.need_check_feed is not expected.is_checked:
                return None
        return bound

    def _note(self, bound: AnyBoundPlan, feed: Any, fetches: list[str], scope: Scope, native: bool, mesh: Mesh | None) -> None:
        """Remember a run for `_bound_before`, if it is fed plain arrays by name."""
        program, feeds = bound.plan.program, {}
        if bound.plan.step_by_step:
            return
        for name, value in feed.items():
            if type(name) is not str or type(value) is not np.ndarray:
                return
            var = program.global_block().vars[name]
            if var.dtype is VarType.BF16 and value.dtype != BFLOAT16:
                return  # is rounded in each run
            feeds[name] = _Feed(var, var.need_check_feed, value.dtype, value.shape)
        self._runs.keep((id(program), id(scope), native, mesh, *fetches), _Run(weakref.ref(bound), program.version, feeds))

    def _bound(
        self,
        program: Program,
        feeds: Mapping[str, Any],
        fetches: list[str],
        scope: Scope,
        native: bool,
        mesh: Mesh | None = None,
    ) -> AnyBoundPlan:
        specs = {name: spec_of(value) for name, value in feeds.items()}
        of_run = id(program), program.version, tuple(specs.items()), tuple(fetches), mesh
        with self._lock:
            cached = self._bound_plans.get(scope)
            if cached is None:
                cached = self._bound_plans[scope] = Memory(self.place.xp), OrderedDict()
            memory, bound_plans = cached
            former = self._plans.get((*of_run, True))
            key = (*of_run, native and is_enabled() and not (former is not None and former.has_failed))
            bound = bound_plans.get(key)
            if bound is not None and (bound.generation == scope.generation or _fits(bound.plan, scope)):
                bound_plans.move_to_end(key)
                return bound
            plan = self._plans.get(key)
            with collector_paused():
                if plan is None or not _fits(plan, scope):
                    plan = self._compiled(program, specs, fetches, scope, native=key[-1], mesh=mesh)
                if memory.size < plan.arena_bytes:
                    bound_plans.clear()  # they refer to the smaller arena, and are bound again when they run
                bound = self._bind(plan, scope, memory)
            _keep(self._plans, key, plan)
            _keep(bound_plans, key, bound)
            return bound

    def _compiled(
        self, program: Program, specs: dict[str, Spec], fetches: list[str], scope: Scope, native: bool, mesh: Mesh | None
    ) -> AnyPlan:
        if isinstance(self.place, XLAPlace):
            from .xla.execution import compile_for_xla

            return compile_for_xla(program, specs, fetches, scope, self.place, mesh)
        plan = compile_plan(program, specs, fetches, scope, native=native)
        plan.calls_of = calls_of
        return plan

    def _bind(self, plan: AnyPlan, scope: Scope, memory: Memory) -> AnyBoundPlan:
        if not isinstance(plan, Plan):
            return plan.bind(scope)
        return BoundPlan(plan, scope, self.place, memory.lend(plan.arena_bytes))

    def _feeds(self, program: Program, feed: Mapping[Any, Any]) -> dict[str, Any]:
        """Fed values as arrays, checked against the declared variables."""
        if type(feed) is not dict and not isinstance(feed, Mapping):
            raise FeedTypeError(f"feed should be a dict of variable name -> array, not {type(feed).__name__}")
        block = program.global_block()
        feeds = {}
        for name, value in feed.items():
            name = name.name if isinstance(name, Variable) else name
            var = block.vars.get(name)
            if var is None:
                data = [v.name for v in block.vars.values() if v.is_data]
                hint = did_you_mean(name, data or block.vars) or f"; it is fed {', '.join(data) or 'nothing'}"
                raise FeedError(f"{shown(name)} is fed, but the program has no such variable{hint}")
            try:
                feeds[name] = _fed(var, value)
            except FluidError:
                raise
            except Exception as error:  # of a value that raises where it is looked at
                raise FeedError(f"what is fed to {var.name} ({var.describe()}) raises an error: {said_by(error)}") from error
        return feeds


def _no_datasets(method: str) -> ExecutionError:
    return ExecutionError(
        f"{method}: Paddle's dataset engines are not here; read the files in a generator, and run the program on the batches of "
        "fluid.io.DataLoader.from_generator(...)"
    )


def _fits(plan: AnyPlan, scope: Scope) -> bool:
    """Whether the variables of the scope that the plan reads still have the shapes that it was compiled for."""
    if any(scope.held(name) is not None for name in plan.absent):
        return False
    arrays = ((scope.held(name), spec) for name, spec in plan.externals.items())
    return all(array is not None and spec_of(array) == spec for array, spec in arrays)


def _keep(plans: OrderedDict[_Key, Any], key: _Key, plan: Any) -> None:
    """Cache a plan; plans of older versions of its program, and the least recently used of too many, are dropped."""
    for old in [other for other in plans if other[0] == key[0] and other[1] != key[1]]:
        del plans[old]
    plans[key] = plan
    plans.move_to_end(key)
    while len(plans) > FEW:
        plans.popitem(last=False)


def _program(program: Any) -> Program:
    if type(program) is Program:
        return program
    program = program if program is not None else default_main_program()
    inner = getattr(program, "program", None)
    program = inner if isinstance(inner, Program) else program  # a CompiledProgram
    if not isinstance(program, Program):
        raise FeedTypeError(f"an Executor runs a Program, not {type(program).__name__}")
    return program


def _scope(scope: Any) -> Scope:
    return global_scope() if scope is None else checked_scope(scope)


def _only_feed(feed: Any) -> Any:
    """The feed as one dict; loaders make lists of one."""
    if isinstance(feed, (list, tuple)) and feed and all(isinstance(item, Mapping) for item in feed):
        if len(feed) > 1:
            raise FeedError(f"feed is a list of {len(feed)} dicts, one for each device; programs run on one device here")
        feed = feed[0]
    return feed if feed is not None else {}


def _with_loaders(program: Program, feed: Any) -> Any:
    """The feed as one dict, with values of the program's loaders for variables that are not fed."""
    if type(feed) is dict and not program.loaders:
        return feed
    feed = _only_feed(feed)
    for loader in program.loaders:
        names = {var.name for var in loader.variables} & set(program.global_block().vars)
        if names and isinstance(feed, Mapping) and not names & {getattr(name, "name", name) for name in feed}:
            feed = {**feed, **{name: value for name, value in loader.next_feed().items() if name in names}}
    return feed


def _names(fetch_list: Any) -> list[str]:
    """The names in a fetch list."""
    if fetch_list is None:
        return []
    items = [fetch_list] if isinstance(fetch_list, (str, Variable)) else fetch_list
    if type(items) is not list and (isinstance(items, (bytes, Mapping)) or not isinstance(items, Iterable)):
        raise FeedError(f"fetch_list should be a list of Variables or names, not {shown(fetch_list)}")
    try:
        return [item.name if isinstance(item, Variable) else _name(item) for item in items]
    except FluidError:
        raise
    except Exception as error:  # of a list that raises where it is gone through
        raise FeedError(f"fetch_list should be a list of Variables or names; it raises an error: {said_by(error)}") from error


def _name(item: Any) -> str:
    if not isinstance(item, str):
        raise FeedTypeError(f"fetch_list holds {shown(item)}, which is neither a Variable nor a name")
    return item


def _check_fetches(program: Program, names: list[str]) -> list[str]:
    """The names, if the program has such variables."""
    variables = program.global_block().vars
    for name in names:
        if name not in variables:
            hint = did_you_mean(name, variables)
            raise FeedError(f"{name!r} is to be fetched, but the program's block 0 has no such variable{hint}")
    return names


def _fed(var: Variable, value: Any) -> Any:
    """A fed value as an array of the declared type and shape, with its LoD if any; a list of them for an array of tensors."""
    if var.type is VarType.LOD_TENSOR_ARRAY and isinstance(value, (list, tuple)):
        return [_as_item(var, item) for item in value]
    levels: Any = ()
    if isinstance(value, LoDTensor):
        if value.array is None:
            raise FeedError(f"the LoDTensor that is fed to {var.name} ({var.describe()}) holds nothing; set() it first")
        value, levels = value.array, value.lod()
    elif type(value) is FedArray:
        value = value.view(np.ndarray)
    elif var.lod_level and _is_pair(value):
        value, levels = value
    try:
        array = _fed_array(var, value)
    except FeedError:
        if not _is_pair(value):
            raise
        raise FeedError(
            f"{var.name} ({var.describe()}) is declared without sequences, but an array with lengths is fed; declare it with "
            "lod_level=1, or feed the array alone"
        ) from None
    try:
        lod = to_lod(levels, array.shape[0] if array.ndim else 0)
        return LoDArray(array, lod) if lod else array
    except ExecutionError as error:
        raise FeedError(f"what is fed to {var.name} ({var.describe()}, lod_level={var.lod_level}): {error}") from None


def _as_item(var: Variable, item: Any) -> Any:
    """An entry of a list that is fed to an array of tensors."""
    array = numeric_array(item, f"what is fed to {var.name} ({var.describe()}) holds what is no array")
    if array.dtype != var.dtype.array_dtype:
        raise FeedError(
            f"{var.name} is an array of tensors of {var.dtype.text}, but one of {array.dtype} is fed{_converting(var)}"
        )
    return array


def _is_pair(value: Any) -> bool:
    """Whether a value is a pair of an array and lengths of sequences."""
    return isinstance(value, tuple) and len(value) == 2 and (isinstance(value[1], list) or getattr(value[0], "ndim", 0) > 0)


def _fed_array(var: Variable, value: Any) -> Any:
    expected = var.dtype.array_dtype
    if expected == BFLOAT16 and getattr(value, "dtype", None) != BFLOAT16:  # which numpy has not: floats are rounded to it
        value = to_bfloat16(_converted(var, value, np.dtype("float32")))
    is_array = type(value) is np.ndarray or hasattr(value, "__cuda_array_interface__")
    if not is_array or value.dtype.kind in NO_NUMBERS:
        value = _converted(var, value, expected)
    if expected == np.int64 and value.dtype == DEFAULT_INT:  # other than int64 in a browser, where pointers have 32 bits
        value = value.astype(np.int64, copy=False)
    if value.dtype != expected and not _takes_other_types(var, value):
        raise FeedError(_of_other_sizes(var, value) + _converting(var))
    if var.need_check_feed and not _is_of_declared_sizes(var, value):
        raise FeedError(_of_other_sizes(var, value) + _reshaping(var, value))
    return value


def _takes_other_types(var: Variable, value: Any) -> bool:
    """Whether integers of another type than the declared one are left to the ops, as all values of `layers.data` in Fluid 1.6.

    Not floats: numpy makes float64 where nobody asks for it, which would change how precisely a program computes.
    """
    return value.dtype.kind in "biu" and not var.need_check_feed and (var.is_data or not var.persistable)


def _converting(var: Variable) -> str:
    return f"; convert it, for instance with .astype({var.dtype.text!r})"


def _is_of_declared_sizes(var: Variable, value: Any) -> bool:
    if not var.has_shape:
        return True
    return len(value.shape) == len(var.shape) and all(a in (-1, b) for a, b in zip(var.shape, value.shape, strict=True))


def _of_other_sizes(var: Variable, value: Any) -> str:
    return f"{var.name} is declared {var.describe()}, but {value.dtype}{list(value.shape)} is fed"


def _reshaping(var: Variable, value: Any) -> str:
    """Advice for a value that lacks dimensions of size 1, such as labels ``[N]`` in place of ``[N, 1]``, or has too many."""
    if len(var.shape) == len(value.shape) == 4:
        first, second = var.shape[1:], value.shape[1:]
        for was, axes in (((second[2], *second[:2]), (0, 3, 1, 2)), ((*second[1:], second[0]), (0, 2, 3, 1))):
            if all(a in (-1, b) for a, b in zip(first, was, strict=True)):
                return f"; it seems to have its channels elsewhere: .transpose{axes} puts them there"
    others, sizes = ([size for size in shape if size != 1] for shape in (var.shape, value.shape))
    if var.shape.count(-1) > 1 or len(others) != len(sizes) or any(a not in (-1, b) for a, b in zip(others, sizes, strict=True)):
        return ""
    return f"; give it that shape, by .reshape({', '.join(map(str, var.shape))})"


def _tell_other_feeds(error: ExecutionError, program: Program, feeds: Mapping[str, Any]) -> None:
    """Add to an error what is fed with other sizes or types than those declared, by which the program was built.

    Only `fluid.data` asks for them; variables of `layers.data` may be fed any that the ops take, as in Fluid 1.6.
    """
    others = []
    for name, value in feeds.items():
        var, array = program.global_block().vars[name], array_of(value)
        is_other_type = array.dtype != var.dtype.array_dtype
        if is_other_type or not _is_of_declared_sizes(var, array):
            others.append(f"\n  fed: {_of_other_sizes(var, array)}{_converting(var) if is_other_type else ''}")
    if others:
        error.restate(str(error) + "".join(others))


def _converted(var: Variable, value: Any, expected: np.dtype[Any]) -> Any:
    """A list or number of Python as an array, of the declared type if its own casts to that safely within its kind."""
    try:
        array = numeric_array(value, f"what is fed to {var.name} ({var.describe()}) is not an array")
    except FluidTypeError as error:
        raise FeedError(str(error)) from None
    if hasattr(value, "dtype") or not (np.can_cast(array.dtype, expected, "same_kind") or array.size == 0):
        return array
    try:
        return np.asarray(value, dtype=expected)
    except OverflowError:
        limits = np.iinfo(expected)
        raise FeedError(
            f"{var.name} is declared {var.describe()}, but a number outside of {limits.min} to {limits.max} is fed"
        ) from None


def _result(value: Any, return_numpy: bool) -> Any:
    if isinstance(value, list):
        return [None if item is None else _result(item, return_numpy) for item in value]
    if return_numpy:
        return convertible(computable(value if type(value) is np.ndarray else to_numpy(array_of(value))))
    if isinstance(value, SelectedRows):
        return value
    return LoDTensor.of(value)


def _raise_if_not_finite(op: Operator, name: str, value: Any) -> None:
    if is_floating(as_dtype(value.dtype)):
        host = computable(to_numpy(value.value if isinstance(value, SelectedRows) else array_of(value)))
        if not np.isfinite(host).all():
            what = "NaN" if np.isnan(host).any() else "infinity"
            count = int((~np.isfinite(host)).sum())
            error = ExecutionError(f"{op.type} makes {what} in {name} ({count} of {host.size} elements)\n{locate(op)}")
            error.located = True
            raise error


def as_numpy(tensor: Any) -> Any:
    """A tensor, or each of a list of them, as a numpy array; `ExecutionError` if its rows form sequences.

    >>> tensor = fluid.LoDTensor()
    >>> tensor.set([1.0, 2.0])
    >>> fluid.executor.as_numpy(tensor)
    array([1., 2.])
    """
    if isinstance(tensor, (list, tuple)):
        return [as_numpy(item) for item in tensor]
    if isinstance(tensor, LoDTensor) and tensor.recursive_sequence_lengths():
        raise ExecutionError(
            "as_numpy: the rows of this tensor form sequences, which an array cannot tell; use numpy.array(tensor)"
        )
    return convertible(to_numpy(tensor))


def _fetch_var(name: str, scope: Scope | None = None, return_numpy: bool = True) -> Any:
    """The value of a variable of a scope, as a numpy array or a `LoDTensor`; `FeedError` if it has none."""
    variable = (scope if scope is not None else global_scope()).find_var(name)
    if variable is None or variable.get_tensor().array is None:
        raise FeedError(f"{name} has no value in the scope; persistable variables keep theirs after a run")
    return as_numpy(variable.get_tensor()) if return_numpy else variable.get_tensor()
