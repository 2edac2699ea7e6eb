"""Runs cases: natively by one thread and by two, on numpy, by XLA; fed arrays end where their memory does."""

from __future__ import annotations

import ctypes
import math
import mmap
import os
import warnings
from collections.abc import Callable, Hashable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from importlib.util import find_spec
from typing import Any, Protocol

import numpy as np

import fluid
from fluid.errors import ExecutionError
from fluid.executor.binding.halves import DTYPE_ATTRS
from fluid.executor.planned import plan
from fluid.executor.stepwise.interpreter import Environment, Machine
from fluid.ir.program import Operator, Program
from fluid.values.lod_array import array_of
from fluid.values.types import VarType
from fluid.values.unchanging import unchanging

from .arrays import Fed
from .cases import Case

__all__ = ["ENGINES", "Arrays", "Fault", "errors_of_float32", "first_values", "run", "run_alone", "run_natively", "run_widened"]

Arrays = dict[str, Any]
"""What a run fetches and what it leaves in the scope, by name."""

ENGINES = ("numpy", "native", *(["xla"] if find_spec("jax") else []))

_PAGE = mmap.PAGESIZE
_NOBODY = 0
"""Protection of pages that nobody may touch (PROT_NONE)."""


class Fault(Exception):
    """A run broke a rule, whatever it computed."""


# ------------------------------------------------------------------------------------------------------------- memory
@cache
def _libc() -> Any:
    library = ctypes.CDLL(None, use_errno=True)
    library.mmap.restype = ctypes.c_void_p
    library.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
    library.mprotect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    library.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
    return library


@contextmanager
def guarded(arrays: Mapping[str, Any], at_end: bool) -> Iterator[dict[str, Any]]:
    """Copies of arrays that end where a page does (or begin there), beside pages that nobody may touch."""
    libc, held, copies = _libc(), [], {}
    try:
        for name, array in arrays.items():
            pages = -(-array.nbytes // _PAGE) + 2
            start = libc.mmap(None, pages * _PAGE, mmap.PROT_READ | mmap.PROT_WRITE, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, -1, 0)
            if start in (None, ctypes.c_void_p(-1).value):
                raise MemoryError
            held.append((start, pages * _PAGE))
            for edge in (start, start + (pages - 1) * _PAGE):
                if libc.mprotect(edge, _PAGE, _NOBODY):
                    raise OSError(ctypes.get_errno(), "mprotect")
            first = start + (pages - 1) * _PAGE - array.nbytes if at_end else start + _PAGE
            memory = (ctypes.c_char * array.nbytes).from_address(first)
            copies[name] = np.frombuffer(memory, array.dtype).reshape(array.shape)
            copies[name][...] = array
        yield copies
    finally:
        copies.clear()
        for start, size in held:
            libc.munmap(start, size)


# -------------------------------------------------------------------------------------------------------------- runs
def first_values(case: Case) -> Arrays:
    """The scope before the first run: values of the startup program, computed by numpy."""
    os.environ["FLUID_NATIVE"] = "0"
    scope = fluid.Scope()
    fluid.Executor().run(case.startup, scope=scope)
    names = [name for name, var in case.startup.global_block().vars.items() if var.persistable]
    results = {name: np.array(scope.array(name)) for name in names if scope.array(name) is not None}
    return results | {name: fed.array() for name, fed in case.state.items()}


def new_scope(first: Arrays) -> fluid.Scope:
    scope = fluid.Scope()
    for name, array in first.items():
        scope.put(name, array.copy())
    return scope


def scope_of_layouts(first: Arrays) -> fluid.Scope:
    """A scope whose arrays lie row by row, column by column, or with gaps, or may not be written, in turn; equal ones are one."""
    scope, arrays = fluid.Scope(), dict[Hashable, Any]()
    for number, (name, array) in enumerate(first.items()):
        key = array.dtype, array.shape, array.tobytes()
        if key not in arrays:
            arrays[key] = _LAYOUTS[number % len(_LAYOUTS)](array)
        scope.put(name, arrays[key])
    return scope


def _with_gaps(array: Any) -> Any:
    memory = np.full((*array.shape, 2), np.nan if array.dtype.kind in "fc" else 1).astype(array.dtype)
    memory[..., 0] = array
    return memory[..., 0]


_LAYOUTS: tuple[Callable[[Any], Any], ...] = (
    lambda array: array.copy(order="F"), _with_gaps, np.copy, lambda array: unchanging(array.copy()),
)  # fmt: skip


def _fed(feed: Mapping[str, Fed], arrays: Mapping[str, Any]) -> dict[str, Any]:
    return {name: (arrays[name], [list(level) for level in fed.lod]) if fed.lod else arrays[name] for name, fed in feed.items()}


@contextmanager
def settings(native: bool, is_single: bool) -> Iterator[None]:
    """Inside, native code is used or not, of single ops or not; a warning is an error."""
    before = plan._FEWEST
    os.environ["FLUID_NATIVE"] = str(int(native))
    plan._FEWEST = 1 if is_single else before
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            warnings.filterwarnings("error", ".*(fault of Fluid|is wrong|native code)")
            yield
    finally:
        plan._FEWEST = before


def run(case: Case, engine: str, first: Arrays) -> Arrays:
    """The results of runs on numpy or by XLA."""
    place = fluid.XLAPlace() if engine == "xla" else fluid.CPUPlace()
    with settings(False, False):
        return _results(case, fluid.Executor(place), new_scope(first), [_arrays(feed) for feed in case.feeds])


def run_natively(case: Case, first: Arrays, threads: int, executor: fluid.Executor) -> Arrays:
    """The results of native code, which must not access memory beside a feed, nor change the feed.

    Args:
        executor: has the plan, if the program ran before.
    """
    scope = scope_of_layouts(first)
    before = fluid.get_num_threads()
    fluid.set_num_threads(threads)
    results: Arrays = {}
    try:
        with settings(True, case.is_single):
            for step, feed in enumerate(case.feeds):
                plain = _arrays(feed)
                with guarded(plain, at_end=step % 2 == 0) as arrays:
                    results |= _step(case, executor, scope, step, arrays)
                    for name, array in plain.items():
                        if not np.array_equal(arrays[name], array, equal_nan=array.dtype.kind in "fc"):
                            raise Fault(f"the run changed what was fed to {name}")
                    arrays.clear()
    finally:
        fluid.set_num_threads(before)
    return results | _state(case, scope)


class Watch(Protocol):
    """Observes the inputs and results of ops in a run, or changes them."""

    def __call__(self, name: str, array: Any, op: Any = None) -> None: ...

    def number(self, number: float) -> float:
        """A number among the attributes of an op."""


def run_widened(case: Case, first: Arrays, watch: Watch) -> Arrays:
    """The program's results in float64, op by op.

    Args:
        watch: is called with each array that is fed, held or computed.
    """
    program = in_types(case.main, _WIDE, watch.number)
    executor = fluid.Executor()
    arrays = [{name: _wide(array) for name, array in _arrays(feed).items()} for feed in case.feeds]
    state = {name: _wide(array) for name, array in first.items()}
    for held in (state, *arrays):
        for name, array in held.items():
            watch(name, array)
    with settings(False, False):
        return _results(case, executor, new_scope(state), arrays, program, _on_each_value(watch))


def run_alone(op: Operator, values: Arrays) -> Arrays:
    """The results of one op by name; empty if it draws numbers, or takes more than arrays."""
    env = Environment(op.block, None, dict(values))
    try:
        Machine(np, _NoStreams(), {}).run_op(op, env)
    except ExecutionError:
        return {}
    results = {name: env.get(name) for name in op.output_arg_names}
    return {name: array for name, array in results.items() if isinstance(array, np.ndarray) and array.dtype.kind in "fc"}


class _NoStreams:
    """Random streams of an op that may not draw."""

    def source(self, name: str, op_seed: int, drawer: Hashable = None, op_type: str = "") -> Callable[[], Any]:
        return self._refuse

    def first_values(self, name: str, op_seed: int, name_from_zero: str) -> Callable[[], Any]:
        return self._refuse

    def _refuse(self) -> Any:
        raise ExecutionError("the op draws numbers")


def errors_of_float32(case: Case, first: Arrays) -> Arrays:
    """How far numpy is from float64 where it computes in float32, for the numbers that a program of float64 is given, rounded."""
    rounded = [{name: _narrow(array) for name, array in held.items()} for held in (first, *map(_arrays, case.feeds))]
    wide = [{name: _wide(array) for name, array in held.items()} for held in rounded]
    results = []
    for types, (state, *arrays) in ((_NARROW, rounded), ({}, wide)):
        with settings(False, False):
            results.append(_results(case, fluid.Executor(), new_scope(state), arrays, in_types(case.main, types)))
    return {name: np.abs(_wide(value) - results[1][name]) for name, value in results[0].items() if value.dtype.kind in "fc"}


def _on_each_value(watch: Watch) -> Callable[..., None]:
    def check(op: Any, name: str, value: Any) -> None:
        array = value.value if hasattr(value, "index") and hasattr(value, "value") else array_of(value)
        watch(name, array, op)

    return check


def _arrays(feed: Mapping[str, Fed]) -> Arrays:
    return {name: np.ascontiguousarray(fed.array()).reshape(np.shape(fed.array())) for name, fed in feed.items()}


def _wide(array: Any) -> Any:
    return array.astype({"f": np.float64, "c": np.complex128}.get(array.dtype.kind, array.dtype))


def _narrow(array: Any) -> Any:
    return array.astype({"f": np.float32, "c": np.complex64}.get(array.dtype.kind, array.dtype))


def _results(
    case: Case,
    executor: fluid.Executor,
    scope: fluid.Scope,
    arrays: list[Arrays],
    program: Program | None = None,
    check: Any = None,
) -> Arrays:
    results: Arrays = {}
    for step, fed in enumerate(arrays):
        results |= _step(case, executor, scope, step, fed, program, check)
    return results | _state(case, scope)


def _step(
    case: Case,
    executor: fluid.Executor,
    scope: fluid.Scope,
    step: int,
    arrays: Arrays,
    program: Program | None = None,
    check: Any = None,
) -> Arrays:
    feed = _fed(case.feeds[step], arrays)
    if program is None:
        values = executor.run(case.main, feed, case.fetches, scope=scope)
    else:
        values = executor.interpret(program, feed, case.fetches, scope=scope, check=check)
    return {f"{name} of run {step}": np.array(value) for name, value in zip(case.fetches, values, strict=True)}


def _state(case: Case, scope: fluid.Scope) -> Arrays:
    names = [name for name, var in case.main.global_block().vars.items() if var.persistable]
    arrays = {name: scope.array(name) for name in names}
    return {f"{name} afterwards": np.array(array) for name, array in arrays.items() if array is not None}


# ------------------------------------------------------------------------------------------------------------ float64
_WIDE = {VarType.FP32: VarType.FP64, VarType.COMPLEX64: VarType.COMPLEX128}
_NARROW = {wide: narrow for narrow, wide in _WIDE.items()}


def in_types(program: Program, types: Mapping[VarType, VarType], change: Callable[[float], float] | None = None) -> Program:
    """A copy of a program with other element types.

    Args:
        types: element type -> another one.
        change: changes numbers among attributes, which some engines round to float32 and others do not.
    """
    copy = program.clone()
    copy.random_seed = program.random_seed
    for block in copy.blocks:
        for var in block.vars.values():
            if var.has_dtype and var.dtype in types:
                var.dtype = types[var.dtype]
        for op in block.ops:
            attrs = {} if op.definition is None else op.definition.defaults(op.attrs)
            for attr in DTYPE_ATTRS:
                if attrs.get(attr) in types:
                    op.attrs[attr] = int(types[attrs[attr]])
            for attr, number in op.attrs.items() if change is not None else ():
                if type(number) is float and math.isfinite(number) and not number.is_integer():
                    op.attrs[attr] = change(number)
    copy._changed()
    return copy
