"""Programs as functions of jax: the interpreter runs their ops over traced arrays.

`Tracer` is the interpreter's `Machine` over `XP`, the namespace of traced arrays. Each op runs once, while jax traces: what its
kernel does with arrays is written down; what it does with numbers that are known (axes, shapes, counters, offsets of sequences)
is done then and there. What comes out is one function of jax values, which XLA compiles.

Most ops need nothing else. What a kernel cannot say (an op that owns a block, handles lists, or reaches outside) is traced by a
*handler*, a function under `traces`::

    @traces("while")
    def trace_while(tracer: Tracer, op: Operator, env: Environment) -> None:
        ...

It reads values by ``env.get(name)`` and gives names new ones by ``env.set(name, value)``, as handlers of the interpreter do. They
are `Array`s, or `LoDArray`, `SelectedRows` and lists of them; offsets of a LoD are always known. ``array.read()`` is the jax
value of an array and ``wrap(value)`` an array of one; ``array.is_known`` says whether the numbers are there already, and then
``int(array)`` gives them. A block is run by ``tracer.run_block(block, Environment(block, env))``; where it becomes a function of
its own (the body of `jax.lax.while_loop`), what it reads and writes has to go in and out as jax values, in environments that are
made inside of it, and arrays from outside must not be written to: ``env.set`` gives a name another array. Random ops draw by name
and number of draw (`KeyStreams`), so a loop that is one function folds its counter into the keys.

An op that neither has a handler nor is traced by its kernel is one of `callbacks.ON_HOST`, or refused before anything is traced
(`callbacks.refuse_untraceable`).
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import jax
import numpy as np
from jax import numpy as jnp

from fluid.errors import ExecutionError
from fluid.ir.program import Block, Operator, Program
from fluid.opdef.registry import registers
from fluid.values.lod_array import LoDArray, array_of, with_lod
from fluid.values.selected_rows import SelectedRows

from ..kernels.engine import Engine, add_engine
from ..stepwise.interpreter import Check, Environment, Machine, step_captures
from ..stepwise.program import last_uses, not_made
from . import kernels
from .arrays import Array, wrap
from .host import HostCalls
from .namespace import XP
from .random import KeyStreams
from .sizes import Sizes
from .workers import group_of_trace

__all__ = ["HANDLERS", "Handler", "TracedBlock", "Tracer", "traces"]

Handler = Callable[["Tracer", Operator, Environment], None]

Before = Callable[["Tracer", Operator, Environment], None]
"""Called before an ordinary op is traced."""

HANDLERS: dict[str, Handler] = {}
"""Op type -> function that traces such an op."""

Pattern = Callable[[Iterator[Any]], Any]
"""Builds a value of a program from the arrays that it consists of."""

add_engine(
    Engine(
        XP,
        kernels.KERNELS,
        kernels.SPARSE_KERNELS,
        checks_values=False,
        writes_functions=False,
        widens_halves=True,
        communicator=group_of_trace,
    )
)


def traces(*op_types: str) -> Callable[[Handler], Handler]:
    """Decorates the function that traces ops of these types; its arguments are the tracer, the op and its environment."""
    return registers(HANDLERS, op_types)


class Tracer(Machine):
    """Runs the ops of a program over traced arrays."""

    streams: KeyStreams

    def __init__(self, program: Program, host: HostCalls, before: Before | None = None) -> None:
        super().__init__(XP, KeyStreams(), step_captures(program), HANDLERS)
        self.host = host
        self._before = before
        self.sizes = Sizes()
        self.lengths: dict[Operator, int] = {}
        """Op in a loop that writes to an array of tensors -> the greatest position that it writes to, plus one, where known."""
        self.trips_around = 0
        """Of the loops around what is traced, the number of trips of the longest one, or for how many there is room."""

    @property
    def checks_values(self) -> bool:
        """Whether ops look at values to refuse wrong ones."""
        return self._before is not None

    def run_block(self, block: Block, env: Environment) -> None:
        """Trace the ops of a block in order; how long that takes, no watch is told."""
        for op in block.ops:
            self.run_op(op, env)

    @contextlib.contextmanager
    def loop_of(self, trips: int) -> Iterator[None]:
        """What is traced inside is the body of a loop."""
        former, self.trips_around = self.trips_around, max(self.trips_around, trips)
        try:
            yield
        finally:
            self.trips_around = former

    def trace_kernel(self, op: Operator, env: Environment) -> None:
        """Trace an op by its kernel, as one without a handler."""
        self._compute(op, env)

    def _compute(self, op: Operator, env: Environment) -> None:
        if self._before is not None:
            self._before(self, op, env)
        with jax.named_scope(op.type):
            super()._compute(op, env)


class StateEnvironment(Environment):
    """The values of block 0; `state` has those that outlive a run."""

    __slots__ = ("state",)

    def __init__(self, block: Block, values: dict[str, Any], state: dict[str, Any]) -> None:
        super().__init__(block, None, values)
        self.state = state

    def _outside(self, name: str) -> Any:
        return self.state.get(name)

    def _keep(self, name: str, value: Any) -> None:
        var = self.block.vars.get(name)
        if var is not None and var.persistable:
            self.values.pop(name, None)  # a fed value
            self.state[name] = value
        else:
            self.values[name] = value


class TracedBlock:
    """Block 0 of a program, as far as its fetches and what outlives a run need it, as a function of jax values.

    Attributes:
        host: what it calls at the host.
        fetched, kept: how the fetches, and the values by name that outlive a run, are built from what the function returns.
        draws: whether it draws random numbers by the run's words.
        about: what the assumptions are about that it makes (see `Sizes`).
        failure: an error that tracing met, if that may come from a wrong assumption; the function then ends before it.
    """

    def __init__(
        self,
        program: Program,
        ops: Sequence[Operator],
        fetches: Sequence[str],
        lods: Mapping[str, Any],
        written: Sequence[str],
        before: Before | None = None,
        check: Check | None = None,
    ) -> None:
        self.program, self.ops, self._fetches, self._lods, self._written = program, ops, list(fetches), lods, list(written)
        self.host = HostCalls()
        self._tracer = Tracer(program, self.host, before)
        if check is not None:
            self._tracer.check = partial(self._check_at_host, check)
        self._frees = last_uses(program.global_block(), ops, set(fetches))
        self.about: list[Hashable] = []
        self.failure: ExecutionError | None = None
        self.fetched: list[Pattern] = []
        self.kept: dict[str, Pattern] = {}
        self.kept_names: list[str] = []
        """Of each array that outlives a run, the variable that it belongs to."""

    @property
    def draws(self) -> bool:
        return self._tracer.streams.is_used

    def corrected(self, met: Any) -> bool:
        """Assume what a run met from now on; whether that is something else than before."""
        assumed = self._tracer.sizes.corrected(self.about, met)
        if assumed is not None:
            self._tracer.sizes = Sizes(assumed)
        return assumed is not None

    def _check_at_host(self, check: Check, op: Operator, name: str, value: Any) -> None:
        """Have the compiled program check what an op makes, at the host."""
        rows = value.value if isinstance(value, SelectedRows) else array_of(value)
        self.host.add_check(partial(check, op, name), rows.read())

    def __call__(
        self, given_away: Mapping[str, Any], lent: Mapping[str, Any], feeds: Mapping[str, Any], words: Any
    ) -> tuple[list[Any], list[Any], Any]:
        """What the ops compute: the arrays of the fetches, those of what outlives a run, and what its assumptions met.

        Where one did not hold, nothing of it counts.

        `given_away` and `lent` have the values from the scope, in two parts; `words` are those of `words_of_run`.
        """
        self._tracer.streams.begin(words)
        values = {name: with_lod(wrap(value), self._lods.get(name, ())) for name, value in feeds.items()}
        env = StateEnvironment(
            self.program.global_block(), values, {name: wrap(value) for name, value in {**given_away, **lent}.items()}
        )
        self.failure = None
        try:
            for op, names in zip(self.ops, self._frees, strict=True):
                self._tracer.run_op(op, env)
                for name in names:
                    env.values.pop(name, None)
        except ExecutionError as error:
            if not self._tracer.sizes.may_be_wrong:
                raise
            self.failure = error
        fetches: list[Any] = []
        self.fetched, self.kept, self.kept_names = [], {}, []
        self.about, met = self._tracer.sizes.result()
        if self.failure is not None:
            return [], [], met
        for name in self._fetches:
            value = env.get(name)
            if value is None:
                raise not_made(name)
            self.fetched.append(pattern_of(value, fetches))
        kept: list[Any] = []
        left = {name: value for name in self._written if (value := env.state.get(name)) is not None}
        self.kept_names = []
        for name, value in left.items():
            self.kept[name] = pattern_of(value, kept)
            self.kept_names += [name] * (len(kept) - len(self.kept_names))
        inputs = {id(value) for values in (given_away, lent, feeds) for value in values.values()}
        return fetches, [jnp.array(value, copy=True) if id(value) in inputs else jnp.asarray(value) for value in kept], met


def _stored_rows(index: Any, value: Any, height: int) -> SelectedRows:
    """Rows without those that stand for none."""
    return SelectedRows(index[index < height], value[index < height], height)


def pattern_of(value: Any, leaves: list[Any]) -> Pattern:
    """How a value is built from its arrays, whose jax values are added to `leaves`."""
    if isinstance(value, list):
        patterns = [None if item is None else pattern_of(item, leaves) for item in value]
        return lambda arrays: [None if pattern is None else pattern(arrays) for pattern in patterns]
    if isinstance(value, SelectedRows):
        leaves += [value.index.read(), value.value.read()]
        height = value.shape[0]
        return lambda arrays: _stored_rows(np.array(next(arrays)), np.array(next(arrays)), height)
    array = array_of(value)
    leaves.append(array.read() if isinstance(array, Array) else jnp.asarray(array))
    if type(value) is LoDArray:
        lod = value.lod
        return lambda arrays: LoDArray(next(arrays), lod)
    return next
