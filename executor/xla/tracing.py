"""Programs as functions of jax: the interpreter runs their ops over traced arrays.

`XlaTracer` is the interpreter's `Machine` over `XP`, the namespace of traced arrays. Each op runs once, while jax traces. jax
records the operations on arrays; operations on numbers known at trace time (axes, shapes, counters, offsets of sequences) run
at once. The result is one function of jax values, which XLA compiles.

Most ops need nothing else. Ops without a traceable kernel (they own a block, handle lists, or reach outside the program) have a
*handler*, a function under `traces`::

    @traces("while")
    def trace_while(tracer: XlaTracer, op: Operator, env: Environment) -> None:
        ...

It reads values by ``env.get(name)`` and binds names by ``env.set(name, value)``, as handlers of the interpreter do. Values are
`Array`s, or `LoDArray`, `SelectedRows` and lists of them; offsets of a LoD are always known. ``array.read()`` returns the jax
value of an array, and ``wrap(value)`` makes an array of a jax value. If ``array.is_known``, the numbers are known at trace time,
and ``int(array)`` returns them. ``tracer.run_block(block, Environment(block, env))`` runs a block. If the block becomes a
separate function (the body of `jax.lax.while_loop`), all its inputs and outputs pass as jax values, through environments created
in that function. It must not write to outer arrays: ``env.set`` binds the name to another array. Random ops draw by name and
number of the draw (`KeyStreams`), so a loop that is one function folds its counter into the keys.

An op with neither a handler nor a traceable kernel is in `callbacks.ON_HOST`, or `callbacks.refuse_untraceable` refuses it before
tracing starts.
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
from fluid.opdef.tables import OpTable
from fluid.values.lod_array import LoDArray, array_of, with_lod
from fluid.values.selected_rows import SelectedRows

from ..kernels.engine import KernelEngine, add_engine
from ..stepwise.interpreter import Check, Environment, Machine, step_captures
from ..stepwise.program import last_uses, not_made
from . import kernels
from .arrays import Array, wrap
from .host import HostCalls
from .namespace import FUSING_XP, XP, TracedNamespace
from .random import KeyStreams
from .recurrent import LOOPS
from .sizes import Sizes
from .workers import group_of_trace

Handler = Callable[["XlaTracer", Operator, Environment], None]

Before = Callable[["XlaTracer", Operator, Environment], None]
"""Called before an ordinary op is traced."""

HANDLERS: OpTable[Handler] = OpTable("handler of XLA")
"""Op type -> function that traces such an op."""

Pattern = Callable[[Iterator[Any]], Any]
"""Builds a value of a program from its arrays."""

for _xp in (FUSING_XP, XP):
    add_engine(
        KernelEngine(
            _xp,
            kernels.KERNELS,
            kernels.SPARSE_KERNELS,
            checks_values=False,
            writes_functions=False,
            widens_halves=True,
            communicator=group_of_trace,
            recurrent_loops=lambda: LOOPS,
        )
    )


def traces(*op_types: str) -> Callable[[Handler], Handler]:
    """Register the decorated function as the handler of these op types; it takes the tracer, the op and its environment."""
    return HANDLERS.register(*op_types)


class XlaTracer(Machine):
    """Runs the ops of a program over traced arrays."""

    streams: KeyStreams

    def __init__(self, program: Program, host: HostCalls, before: Before | None = None, xp: TracedNamespace = XP) -> None:
        super().__init__(xp, KeyStreams(), step_captures(program), HANDLERS)
        self.host = host
        self._before = before
        self.sizes = Sizes()
        self.lengths: dict[Operator, int] = {}
        """Op in a loop -> length of the array of tensors after its last write: the greatest position plus one, if known."""
        self.trips_around = 0
        """Trips (or room for trips) of the longest loop around the current op."""

    @property
    def checks_values(self) -> bool:
        """Whether ops check the values of their inputs."""
        return self._before is not None

    def run_block(self, block: Block, env: Environment) -> None:
        """Trace the ops of a block in order, without timing them."""
        for op in block.ops:
            self.run_op(op, env)

    @contextlib.contextmanager
    def loop_of(self, trips: int) -> Iterator[None]:
        """Mark the ops traced in this context as the body of a loop."""
        former, self.trips_around = self.trips_around, max(self.trips_around, trips)
        try:
            yield
        finally:
            self.trips_around = former

    def trace_kernel(self, op: Operator, env: Environment) -> None:
        """Trace an op by its kernel, bypassing its handler."""
        self._compute(op, env)

    def _compute(self, op: Operator, env: Environment) -> None:
        if self._before is not None:
            self._before(self, op, env)
        with jax.named_scope(op.type):
            super()._compute(op, env)


class StateEnvironment(Environment):
    """The values of block 0; `state` holds the persistable ones, which outlive a run."""

    __slots__ = ("state",)

    def __init__(self, block: Block, values: dict[str, Any], state: dict[str, Any]) -> None:
        super().__init__(block, None, values)
        self.state = state

    def _look_up_outside(self, name: str) -> Any:
        return self.state.get(name)

    def _bind_outermost(self, name: str, value: Any) -> None:
        var = self.block.vars.get(name)
        if var is not None and var.persistable:
            self.values.pop(name, None)  # a fed value
            self.state[name] = value
        else:
            self.values[name] = value


class TracedBlock:
    """The needed ops of block 0, as a function of jax values. Needed are the ops for the fetches and for the state.

    The state is the set of persistable variables, which outlive a run.

    Attributes:
        host: callbacks to the host.
        fetched, state_patterns: build the fetches, and the state by name, from the arrays that the function returns.
        draws: whether it draws random numbers by the run's words.
        assumption_keys: the subjects of its assumptions (see `Sizes`).
        failure: an error during tracing that a wrong assumption may have caused; the function then ends before that op.
    """

    def __init__(
        self,
        program: Program,
        ops: Sequence[Operator],
        fetches: Sequence[str],
        lods: Mapping[str, Any],
        stored_names: Sequence[str],
        before: Before | None = None,
        check: Check | None = None,
        xp: TracedNamespace = XP,
    ) -> None:
        self.program, self.ops, self._fetches, self._lods, self._stored_names = (
            program,
            ops,
            list(fetches),
            lods,
            list(stored_names),
        )
        self.host = HostCalls()
        self._tracer = XlaTracer(program, self.host, before, xp)
        if check is not None:
            self._tracer.check = partial(self._check_at_host, check)
        self._frees = last_uses(program.global_block(), ops, set(fetches))
        self.assumption_keys: list[Hashable] = []
        self.failure: ExecutionError | None = None
        self.fetched: list[Pattern] = []
        self.state_patterns: dict[str, Pattern] = {}
        self.state_names: list[str] = []
        """The variable of each returned array of the state."""

    @property
    def draws(self) -> bool:
        return self._tracer.streams.is_used

    def corrected(self, met: Any) -> bool:
        """Assume the numbers that a run met from now on; returns whether any assumption changed."""
        assumed = self._tracer.sizes.corrected(self.assumption_keys, met)
        if assumed is not None:
            self._tracer.sizes = Sizes(assumed)
        return assumed is not None

    def _check_at_host(self, check: Check, op: Operator, name: str, value: Any) -> None:
        """Have the compiled program check an output of an op at the host."""
        rows = value.value if isinstance(value, SelectedRows) else array_of(value)
        self.host.add_check(partial(check, op, name), rows.read())

    def __call__(self, state: Mapping[str, Any], feeds: Mapping[str, Any], words: Any) -> tuple[list[Any], list[Any], Any]:
        """Run the ops; returns the arrays of the fetches, the arrays of the state, and the numbers met by the assumptions.

        If an assumption did not hold, the results are invalid.

        `state` holds the values from the scope; `words` come from `words_of_run`.
        """
        self._tracer.streams.begin(words)
        values = {name: with_lod(wrap(value), self._lods.get(name, ())) for name, value in feeds.items()}
        env = StateEnvironment(self.program.global_block(), values, {name: wrap(value) for name, value in state.items()})
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
        self.fetched, self.state_patterns, self.state_names = [], {}, []
        self.assumption_keys, met = self._tracer.sizes.result()
        if self.failure is not None:
            return [], [], met
        for name in self._fetches:
            value = env.get(name)
            if value is None:
                raise not_made(name)
            self.fetched.append(pattern_of(value, fetches))
        leaves: list[Any] = []
        left = {name: value for name in self._stored_names if (value := env.state.get(name)) is not None}
        self.state_names = []
        for name, value in left.items():
            self.state_patterns[name] = pattern_of(value, leaves)
            self.state_names += [name] * (len(leaves) - len(self.state_names))
        inputs = {id(value) for values in (state, feeds) for value in values.values()}

        def copied(values: list[Any]) -> list[Any]:
            """Copy arguments: jax would return the same arrays, which the next run overwrites."""
            return [jnp.array(value, copy=True) if id(value) in inputs else jnp.asarray(value) for value in values]

        return copied(fetches), copied(leaves), met


def _stored_rows(index: Any, value: Any, height: int) -> SelectedRows:
    """Drop the padding rows, whose index is the height or greater."""
    return SelectedRows(index[index < height], value[index < height], height)


def pattern_of(value: Any, leaves: list[Any]) -> Pattern:
    """Append the jax values of a value's arrays to `leaves`; returns a function that rebuilds the value from such arrays."""
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
