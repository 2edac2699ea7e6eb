"""`Executor`: runs programs in scopes."""

from __future__ import annotations

import threading
import weakref
from collections import OrderedDict
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from fluid.errors import ExecutionError, FeedTypeError
from fluid.ir.collector import collector_paused
from fluid.ir.program import Program, Variable
from fluid.parallel.mesh import Mesh
from fluid.values.cache import OP_LIMIT, Cache
from fluid.values.lod_array import LoDArray
from fluid.values.place import CPUPlace, Place, no_place

from . import backends, feeding  # noqa: F401  (importing backends registers them)
from .backend import BoundPlan, Check, Plan, Request, Unavailable, backends_of, cache_plan, is_fitting
from .dataset_runs import run_from_dataset
from .fetching import fetched, raise_if_not_finite
from .pruned import PrunedPrograms
from .records import FeedRecord, RunRecord
from .runtime import timing
from .runtime.flags import checks_every_run
from .runtime.scope import Scope
from .runtime.threads import OnNumpy
from .runtime.timing import Watch
from .stepwise.program import StepwiseProgram
from .widening import WidenedPrograms

_Key = tuple[int, int, int, tuple[str, ...], Hashable]
"""Id and version of the program, number of the backend, fetches, and the backend's key. Plans keep their program alive, so ids
stay unique."""


class Executor:
    """Runs programs on a place.

    A program that is fed plain arrays is compiled once for each set of feed shapes and fetches, and bound to the arrays of each
    scope that it runs in; both are cached, the latter as long as the scope lives. If rows form sequences, native code pads them,
    so that one plan serves many lengths; without native code, or if an op mixes rows, such a program runs op by op. Several
    threads may share an executor; runs in the same scope take turns.

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
            raise FeedTypeError(f"an Executor runs at a place, {no_place(place)}")
        self.place = place if place is not None else CPUPlace()
        self.place.xp  # noqa: B018  raises an error at once if there is no such device
        self._device_array = self.place.device_array
        self._needs_no_context = self.place.is_cpu_place()
        """Whether runs need no context but the settings of their bound plan; small programs pay for each."""
        self._backends = backends_of(self.place)
        self._plans: OrderedDict[_Key, Plan] = OrderedDict()
        self._bound_plans: weakref.WeakKeyDictionary[Scope, OrderedDict[_Key, BoundPlan]] = weakref.WeakKeyDictionary()
        self._refused: weakref.WeakKeyDictionary[Program, set[_Key]] = weakref.WeakKeyDictionary()
        """Program -> the keys of plans that their backend cannot run."""
        self._runs: Cache[tuple[Any, ...], RunRecord] = Cache(OP_LIMIT)
        self._widened = WidenedPrograms()
        self._pruned = PrunedPrograms()
        self._lock = threading.Lock()

    @property
    def _default_executor(self) -> Executor:
        """Itself: scripts of Fluid 1.6 pass Paddle's executor of C++ on."""
        return self

    def close(self) -> None:
        """Forget the compiled plans and their memory."""
        with self._lock:
            self._plans.clear()
            self._bound_plans.clear()
            self._refused.clear()
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
        return_merged: bool = True,
        use_prune: bool = False,
    ) -> list[Any]:
        """Run a program once.

        Args:
            program: by default, the default main program.
            feed: variable name -> array (or nested list, or `LoDTensor`) of the declared dtype and, for variables of
                `fluid.data`, a matching shape; a list of arrays for an array of tensors; if rows form sequences, a `LoDTensor`
                or (array, LoD): lengths or offsets of the sequences, level by level; offsets where both fit, as do [0, 7].
            fetch_list: variables or names whose values to return.
            scope: where persistable variables live; by default, the global scope.
            return_numpy: return numpy arrays (arrays of one element convert to numbers in any shape); otherwise, return
                each value as a `LoDTensor` at the executor's place, with the LoD of sequences. At an `XLAPlace` the run then
                returns before it is done, as it does without fetches; reading a tensor waits for it.
            check_nan: stop at the first op that computes a NaN or an infinity, with an error that names it. Such a run computes
                ops one by one, without native code.
            return_merged: if False, each fetched value is in a list of one entry, for the one device.
            use_prune: run only the ops that the fetches need: a program that trains is evaluated, without its updates.
            feed_var_name, fetch_var_name, use_program_cache: accepted as in Fluid, without effect; plans are always cached.

        Returns:
            The fetched values, in order.

        Raises:
            FeedError: a feed is missing, misspelt, or of another dtype or shape than declared, or a fetch is unknown. A feed that
                the program has no variable for is passed over with a warning.
            ExecutionError: an op failed.
        """
        mesh, scope = None, feeding.scope_of(scope)
        if type(program) is not Program:
            mesh, program = feeding.mesh_of(program, self.place), feeding.program_of(program)
        feed, fetches = feeding.with_loaders(program, feed), feeding.fetched_names(program, fetch_list)
        if use_prune and fetches and isinstance(feed, Mapping):
            program, feed = self._pruned.copy_for(program, feed, fetches)
        check = raise_if_not_finite if check_nan or checks_every_run() else None
        timer = timing.current
        watches_ops = check is not None or (timer is not None and not timer.accepts_fused)
        bound, request, feeds = self._previous_bound_plan(program, feed, fetches, scope, mesh, watches_ops), None, feed
        if bound is None:
            request = self._check_request(Request(program, feed, fetches, scope, mesh, watches_ops), self._device_array)
            program, feeds = request.program, request.feeds
        settings = OnNumpy() if bound is None else bound.settings()
        with settings if timer is None and self._needs_no_context else timing.around_run(timer, program, self.place, settings):
            try:
                if bound is None:
                    assert request is not None
                    bound = self._bound(request)
                    self._record_run(bound, request, feed)
                try:
                    run = bound.run if return_numpy else getattr(bound, "start", bound.run)
                    results = run(feeds, check, timer)
                except Unavailable as error:
                    request = request or Request(program, feed, fetches, scope, mesh, watches_ops)
                    results = self._run_on_next_backend(error, bound, request, check, timer)
            except ExecutionError as error:
                feeding.add_feed_differences(error, program, feeds, feed)
                raise
            values = [fetched(value, return_numpy) for value in results]
            return values if return_merged else [[value] for value in values]

    def plan(
        self,
        program: Program | None = None,
        feed: Mapping[str, Any] | None = None,
        fetch_list: Sequence[Variable | str] | Variable | str | None = None,
        scope: Scope | None = None,
    ) -> Plan:
        """The plan that `run` uses for these arguments. Printed, it shows the ops and the storage of their values;
        ``to_string(calls=True)`` also shows the calls of each op.

        Args:
            program, feed, fetch_list, scope: see `run`.
        """
        mesh, scope = feeding.mesh_of(program, self.place), feeding.scope_of(scope)
        program = feeding.program_of(program)
        request = Request(program, feeding.one_feed(feed), feeding.fetched_names(program, fetch_list), scope, mesh)
        with self.place.active():
            return self._bound(self._check_request(request)).plan

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
        """Run a program once, op by op into new arrays, without a plan; returns the same values as `run`, but slower.

        Args:
            program, feed, fetch_list, scope, return_numpy: see `run`.
            check: called after each op, with the op, and the name and value of each output.
            timer: gets the time of each op of block 0.
        """
        program = feeding.program_of(program)
        feed, fetches = feeding.with_loaders(program, feed), feeding.fetched_names(program, fetch_list)
        request = self._check_request(Request(program, feed, fetches, feeding.scope_of(scope)))
        with self.place.active(), OnNumpy():
            try:
                steps = StepwiseProgram(request.program, request.fetches, self.place)
                results = steps.run(request.feeds, request.scope, check, timer)
            except ExecutionError as error:
                feeding.add_feed_differences(error, request.program, request.feeds, feed)
                raise
            return [fetched(value, return_numpy) for value in results]

    def train_from_dataset(
        self,
        program: Program | None = None,
        dataset: Any = None,
        scope: Scope | None = None,
        thread: int = 0,
        debug: bool = False,
        fetch_list: Sequence[Variable | str] | None = None,
        fetch_info: Sequence[str] | None = None,
        print_period: int = 100,
        fetch_handler: Any = None,
    ) -> None:
        """Run a program on each batch of a dataset once, and print the fetched values now and then.

        Args:
            program, scope: see `run`.
            dataset: of `fluid.DatasetFactory`.
            fetch_list: variables to print, or names.
            fetch_info: the words before each; their names by default.
            print_period: the number of batches from print to print.
            thread, debug, fetch_handler: accepted as in Fluid 1.6, without effect.
        """
        run_from_dataset(self, program, dataset, scope, fetch_list, fetch_info, print_period, use_prune=False)

    def infer_from_dataset(
        self,
        program: Program | None = None,
        dataset: Any = None,
        scope: Scope | None = None,
        thread: int = 0,
        debug: bool = False,
        fetch_list: Sequence[Variable | str] | None = None,
        fetch_info: Sequence[str] | None = None,
        print_period: int = 100,
        fetch_handler: Any = None,
    ) -> None:
        """The same as `train_from_dataset`, without updates: only the ops that the fetches need run.

        Args:
            program, dataset, scope, thread, debug, fetch_list, fetch_info, print_period, fetch_handler: the same.
        """
        run_from_dataset(self, program, dataset, scope, fetch_list, fetch_info, print_period, use_prune=True)

    # -- requests
    def _check_request(self, request: Request, device_array: type[Any] = np.ndarray) -> Request:
        """Check the feeds and fetches of a request, convert feeds to arrays, and widen bfloat16 if a backend lacks it. Arrays of
        type `device_array` stay as they are, unless rows form sequences: such programs may run on the host."""
        program, takes_bfloat16 = request.program, all(backend.takes_bfloat16 for backend in self._backends)
        if not takes_bfloat16:
            program = self._widened.copy_of(program, request.scope)
        feeds = feeding.checked_feeds(program, request.feeds, self.place, device_array)
        if device_array is not np.ndarray and any(isinstance(value, (list, LoDArray)) for value in feeds.values()):
            feeds = feeding.checked_feeds(program, request.feeds, self.place)
        return replace(request, program=program, feeds=feeds, fetches=feeding.checked_fetches(program, request.fetches))

    # -- plans
    def _previous_bound_plan(
        self, program: Program, feed: Any, fetches: list[str], scope: Scope, mesh: Mesh | None, watches_ops: bool
    ) -> BoundPlan | None:
        """The bound plan of the last run of a program in a scope with these fetches, if the feeds have the same types and shapes
        as then: plain arrays that need no check."""
        run = self._runs.get((id(program), id(scope), watches_ops, mesh, *fetches))
        if run is None or run.version != program.version or type(feed) is not dict or len(feed) != len(run.feeds):
            return None
        bound = run.bound()
        if bound is None or bound.plan.program is not program or not bound.is_of(scope):
            return None
        if run.held and any(scope.array(name).tobytes() != data for name, data in run.held):
            return None
        for name, (var, is_checked, dtype, shape, data) in run.feeds.items():
            value: Any = feed.get(name)
            if type(value) is not np.ndarray and type(value) is not self._device_array:
                return None
            if value.dtype is not dtype or value.shape != shape or var.need_check_feed is not is_checked:
                return None
            if data is not None and value.tobytes() != data:
                return None
        return bound

    def _record_run(self, bound: BoundPlan, request: Request, feed: Any) -> None:
        """Record a run for `_previous_bound_plan`, if its plan stays the same and its feeds are plain arrays by name."""
        if getattr(bound.plan, "is_provisional", False):
            return
        program, feeds, values = bound.plan.program, {}, getattr(bound.plan, "values", {})
        for name, value in feed.items():
            if type(name) is not str or (type(value) is not np.ndarray and type(value) is not self._device_array):
                return
            if name not in request.feeds:
                continue
            var = program.global_block().vars[name]
            if value.dtype != request.feeds[name].dtype:
                return  # each run converts it
            feeds[name] = FeedRecord(var, var.need_check_feed, value.dtype, value.shape, values.get(name))
        key = id(program), id(request.scope), request.watches_ops, request.mesh, *request.fetches
        held = [(name, data) for name, data in values.items() if name not in feeds]
        self._runs.keep(key, RunRecord(weakref.ref(bound), program.version, feeds, held))

    def _bound(self, request: Request) -> BoundPlan:
        """The bound plan of a request, by the first backend that takes it."""
        program, scope = request.program, request.scope
        with self._lock:
            bound_plans = self._bound_plans.setdefault(scope, OrderedDict())
            for number, backend in enumerate(self._backends):
                decided_by = backend.key(request)
                key = id(program), program.version, number, tuple(request.fetches), decided_by
                if decided_by is None or key in self._refused.get(program, ()):
                    continue
                bound = bound_plans.get(key)
                if bound is not None and (bound.is_of(scope) or is_fitting(bound.plan, scope)):
                    bound_plans.move_to_end(key)
                    return bound
                plan = self._plans.get(key)
                with collector_paused():
                    if plan is None or not is_fitting(plan, scope):
                        plan = backend.compile(request)
                    bound = plan.bind(scope)
                cache_plan(self._plans, key, plan)
                cache_plan(bound_plans, key, bound)
                return bound
        raise ExecutionError(f"no backend of {self.place} runs such a program")

    def _run_on_next_backend(
        self, error: Unavailable, bound: BoundPlan, request: Request, check: Check | None, timer: Watch | None
    ) -> list[Any]:
        """Run a request on the next backend, because the present one cannot run its bound plan."""
        error.warn(request.program)
        with self._lock:
            plans = self._bound_plans.setdefault(request.scope, OrderedDict())
            self._refused.setdefault(request.program, set()).update(key for key, plan in plans.items() if plan is bound)
        return self._bound(request).run(request.feeds, check, timer)
