"""Ops that own blocks, as loops and branches of XLA.

Conditions known at trace time are decided while tracing, and a loop with a known number of trips becomes a scan.
Other loops run as long as their condition holds. If gradients read the frames of each trip, the loop reserves room for a number
of trips, and `Sizes` reports a run that needed more.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
from jax import lax
from jax import numpy as jnp

from fluid.errors import ExecutionError
from fluid.ir.program import Operator, OpRole
from fluid.ir.versions import outer_names
from fluid.opdef.registry import EMPTY
from fluid.values.lod_array import array_of
from fluid.values.selected_rows import SelectedRows

from ..stepwise.handlers import HANDLERS
from ..stepwise.interpreter import Environment
from .arrays import ValueAsked, value_of, wrap
from .bodies import Body, Carry, RunFrames, RunOutputs, leaves_like
from .callbacks import ON_HOST
from .known_loops import Trips, known_trips
from .sizes import HELD
from .stacks import Stack, fit
from .tracing import XlaTracer, traces
from .trees import Form, ShapesVary, flatten, form_of, unflatten, zeros_of

_FIRST_ROOM = 16
"""The initial room, in trips, of a loop whose number of trips is unknown."""
_MOST_ROUNDS = 8
"""The most times that a block is traced until the forms of its incoming and outgoing carry agree."""


class _Outline(NamedTuple):
    """The outcome of tracing one run: the forms of its outputs, the keys of the numbers it met (`Sizes`), its random draws."""

    outputs: list[Form]
    met: list[Any]
    draws: Mapping[Any, int]


class TracedRuns:
    """The runs of a body, as a loop or a branch of XLA."""

    def __init__(self, tracer: XlaTracer, op: Operator, env: Environment) -> None:
        self._tracer, self._op, self._body = tracer, op, Body(tracer, op, env)
        region = self._body.region
        frames = env.get(region.frames) if region.frames is not None else None
        self._frames = frames if isinstance(frames, RunFrames) else None

    def scan(self, count: int, reverse: bool = False) -> None:
        """Run a known number of times, in order or in reverse; each run gets its slices and its frame."""
        sources, tree = flatten(self._sources())
        numbers = jnp.arange(count, dtype=jnp.int32)
        with self._tracer.loop_of(count):
            start, outline = self._stable_start(unflatten(tree, [source[0] for source in sources]))
            leaves, form = flatten(start)

            def step(leaves: Any, run_inputs: Any) -> Any:
                number, *parts = run_inputs
                carry = unflatten(form, leaves)
                next_carry, outputs, met = self._run(carry, unflatten(tree, parts), number, outline)
                return leaves_like(next_carry, carry), (outputs, met)

            all_inputs = (numbers[::-1] if reverse else numbers, *sources)
            end, (outputs, met) = lax.scan(step, leaves, all_inputs, length=count, reverse=reverse)
        self._finish(unflatten(form, end), outputs, met, outline, count, None)

    def loop(self, is_on: Callable[[Carry], Any]) -> None:
        """Run as long as `is_on` holds for the carry of the last run."""
        tracer, key = self._tracer, ("trips", self._op)
        keeps = self._body.keeps_frames
        room = tracer.sizes.room(key, _FIRST_ROOM) if keeps else 0

        def part(number: Any) -> Any:
            return {}, {}

        count = self._repeated(lambda number, carry: is_on(carry), part, room)
        if keeps:
            tracer.sizes.met(key, count)

    def run_backwards(self, frames: RunFrames) -> None:
        """Run once for each frame, the last first; the number of frames is a traced value."""
        leaves, tree = flatten(self._sources())
        if frames.room == 1:
            self.run_if(frames.count > 0)
            return
        count = jnp.minimum(frames.count, frames.room)

        def part(number: Any) -> Any:
            return unflatten(tree, [lax.dynamic_index_in_dim(leaf, count - 1 - number, keepdims=False) for leaf in leaves])

        self._repeated(lambda number, carry: number < count, part, frames.room)

    def _repeated(self, is_on: Callable[[Any, Carry], Any], part: Callable[[Any], Any], room: int) -> Any:
        """Run as long as `is_on` holds; `part` returns the slices and the frame of a run. `room` is the room for run outputs."""
        with self._tracer.loop_of(room):
            start, outline = self._stable_start(part(jnp.int32(0)))
            leaves, form = flatten(start)

            def step(state: Any) -> Any:
                number, leaves, outputs, met = state
                carry = unflatten(form, leaves)
                next_carry, new, more = self._run(carry, part(number), number, outline)
                outputs = [_put(into, values, number) for into, values in zip(outputs, new, strict=True)]
                return number + 1, leaves_like(next_carry, carry), outputs, list(map(jnp.maximum, met, more))

            first = (
                jnp.int32(0),
                list(map(jnp.asarray, leaves)),
                _blank(outline.outputs, room),
                [jnp.int32(HELD)] * len(outline.met),
            )
            state = lax.while_loop(lambda state: is_on(state[0], unflatten(form, state[1])), step, first)
        count, end, outputs, met = state
        self._finish(unflatten(form, end), outputs, met, outline, room, count)
        return count

    def run_if(self, holds: Any) -> None:
        """Run once if a condition holds."""
        sources, tree = flatten(self._sources())
        run_inputs = unflatten(tree, [source[0] for source in sources])
        start, outline = self._stable_start(run_inputs)
        leaves, form = flatten(start)

        def run_once(leaves: Any) -> Any:
            carry = unflatten(form, leaves)
            next_carry, outputs, met = self._run(carry, run_inputs, 0, outline)
            return leaves_like(next_carry, carry), [[leaf[None] for leaf in part] for part in outputs], met

        def skip(leaves: Any) -> Any:
            return leaves, _blank(outline.outputs, 1), [jnp.int32(HELD)] * len(outline.met)

        def choose(leaves: Any) -> Any:
            """Run in any case, and take the results if the condition holds."""
            new, old = run_once(leaves), skip(leaves)
            return jax.tree.map(lambda one, other: jnp.where(holds, one, other), new, old)

        before = list(map(jnp.asarray, leaves))
        end, outputs, met = choose(before) if self._is_update(outline) else lax.cond(holds, run_once, skip, before)
        self._finish(unflatten(form, end), outputs, met, outline, 1, jnp.asarray(holds).astype(jnp.int32))

    def _is_update(self, outline: _Outline) -> bool:
        """Whether the block only updates parameters. Then selecting between its results and the old values costs less than a
        branch, before which a GPU waits for the host."""
        tracer, ops = self._tracer, self._body.region.body.ops
        is_plain = all(op.role & OpRole.OPTIMIZE and not op.sub_blocks and op.type not in ON_HOST for op in ops)
        is_watched = tracer.checks_values or tracer.check is not None
        return is_plain and not is_watched and not self._body.keeps_frames and not outline.draws

    # -- shared steps
    def _sources(self) -> Any:
        """The sliced inputs and the saved frames, each with one entry per run along the first axis."""
        return self._body.slices, self._frames.values if self._frames is not None else {}

    def _run(self, carry: Carry, run_inputs: Any, number: Any, outline: _Outline) -> tuple[Carry, list[list[Any]], list[Any]]:
        """Run the body once, in a function traced for XLA; `number` is the index of the run."""
        tracer, streams = self._tracer, self._tracer.streams
        before = dict(streams.draws)
        streams.draws.update({name: before.get(name, 0) + number * count for name, count in outline.draws.items()})
        try:
            with tracer.sizes.nested() as met:
                next_carry, outputs = self._body.run(carry, *run_inputs)
        finally:
            streams.draws.clear()
            streams.draws.update(before)
        return next_carry, [flatten(part)[0] for part in outputs], list(met.values())

    def _stable_start(self, run_inputs: Any) -> tuple[Carry, _Outline]:
        """The carry of the first run, in a form that runs preserve (if one is found), and the outline of a run."""
        carry = self._body.start()
        for _ in range(_MOST_ROUNDS):
            forms, outline = self._trace_outline(carry, run_inputs)
            next_carry = {key: fit(value, zeros_of(forms[key])) for key, value in carry.items()}
            if all(form_of(next_carry[key]) == form_of(value) for key, value in carry.items()):
                break
            carry = next_carry
        return carry, outline

    def _trace_outline(self, carry: Carry, run_inputs: Any) -> tuple[dict[Any, Form], _Outline]:
        """Trace a run without keeping its code; returns the forms of its carry, and its outline."""
        tracer, draws = self._tracer, self._tracer.streams.draws
        leaves, tree = flatten((carry, run_inputs))
        before, forms, outlines = dict(draws), {}, []

        def outlined(*leaves: Any) -> Any:
            carry, run_inputs = unflatten(tree, leaves)
            with tracer.sizes.nested() as met:
                next_carry, outputs = self._body.run(carry, *run_inputs)
            forms.update({key: form_of(value) for key, value in next_carry.items()})
            new_draws = {name: count - before.get(name, 0) for name, count in draws.items() if count is not before.get(name, 0)}
            outlines.append(_Outline([form_of(part) for part in outputs], list(met), new_draws))
            return ()

        try:
            jax.eval_shape(outlined, *leaves)
        finally:
            draws.clear()
            draws.update(before)
        return forms, outlines[-1]

    def _finish(self, end: Carry, outputs: Any, met: Any, outline: _Outline, room: int, count: Any) -> None:
        """Set the op's outputs from the final carry and the outputs of all runs; for `room` and `count` see `RunFrames`."""
        tracer = self._tracer
        runs = room if count is None else count
        tracer.sizes.merge(outline.met, met)
        for name, number in outline.draws.items():
            tracer.streams.draws[name] = tracer.streams.draws.get(name, 0) + runs * number
        stacked, rows, frame = (unflatten(form.tree, leaves) for form, leaves in zip(outline.outputs, outputs, strict=True))
        all_outputs = RunOutputs(stacked, {name: _flat(part) for name, part in rows.items()}, frame)
        self._body.finish(end, all_outputs, RunFrames(frame, room, count))


def _put(into: Sequence[Any], values: Sequence[Any], number: Any) -> list[Any]:
    """Write the leaves of one run into the leaves of all runs, at index `number`; beyond the room, they are dropped."""
    return [leaf.at[number].set(value, mode="drop") for leaf, value in zip(into, values, strict=True)]


def _blank(forms: Sequence[Form], room: int) -> list[list[Any]]:
    """Blank leaves for the outputs of all runs; indices of sparse rows lie outside of the table, so that they add nothing."""
    blank = [[jnp.zeros((room, *shape), dtype) for shape, dtype in form.leaves] for form in forms]
    rows = unflatten(forms[1].tree, blank[1])
    for part in rows.values():
        part.index.fill(part.shape[0])
    return [blank[0], flatten(rows)[0], blank[2]]


def _flat(rows: SelectedRows) -> SelectedRows:
    """Join the rows of all runs into one set of rows."""
    index, value = value_of(rows.index), value_of(rows.value)
    return SelectedRows(wrap(index.reshape(-1)), wrap(value.reshape(-1, *value.shape[2:])), rows.shape[0])


# ----------------------------------------------------------------------------------------------------------- the ops
def _condition(op: Operator, env: Environment, name: str) -> Any:
    """Read a condition: a bool if it is known at trace time, otherwise a traced scalar."""
    value = array_of(env.need(name))
    if value.size != 1:
        raise ExecutionError(f"the condition {name} has {value.size} elements; it should have one")
    return bool(value.item()) if value.is_known else value.read().reshape(())


@traces("while")
def run_while(tracer: XlaTracer, op: Operator, env: Environment) -> None:
    (name,) = op.input("Condition")
    trips = known_trips(tracer, op, env)
    if trips is None:
        if name not in outer_names(op.attr("sub_block"))[1]:
            raise ExecutionError(f"the block of the loop never writes its condition {name}, so the loop would not end")
        TracedRuns(tracer, op, env).loop(lambda carry: value_of(carry["outer", name]).reshape(()))
        return
    try:
        if trips.count:
            _scan_known(tracer, op, env, trips)
            return
    except (ExecutionError, ValueAsked) as error:
        if not isinstance(_root(error), (ShapesVary, ValueAsked)):
            raise
    HANDLERS[op.type](tracer, op, env)  # trip by trip: shapes vary, or depend on values that only single trips know


def _scan_known(tracer: XlaTracer, op: Operator, env: Environment, trips: Trips) -> None:
    """Run a loop with a known number of trips."""
    lengths = _lengths_after(op, env, trips)
    tracer.lengths.update(trips.lengths)
    try:
        TracedRuns(tracer, op, env).scan(trips.count)
    finally:
        for writer in trips.lengths:
            tracer.lengths.pop(writer, None)
    for name, value in trips.last.items():
        env.set(name, wrap(value))
    for name, length in lengths.items():
        array = env.get(name)
        if isinstance(array, Stack):
            env.set(name, Stack(array.tree, array.leaves, length))


def _lengths_after(op: Operator, env: Environment, trips: Trips) -> dict[str, int]:
    """Name -> length after the loop, for arrays of tensors with all their writers in `trips.lengths`."""
    lengths = {}
    for name in {writer.output("Out")[0] for writer in trips.lengths}:
        before = env.get(name)
        length = before.length if isinstance(before, Stack) else len(before or ())
        writers = [writer for writer in op.attr("sub_block").ops if _writes(writer, name)]
        if isinstance(length, int) and all(writer in trips.lengths for writer in writers):
            lengths[name] = max([length, *(trips.lengths[writer] for writer in writers)])
    return lengths


def _writes(op: Operator, name: str) -> bool:
    return name in op.output_arg_names or any(name in outer_names(block)[1] for block in op.sub_blocks)


def _root(error: BaseException) -> BaseException:
    while error.__cause__ is not None:
        error = error.__cause__
    return error


@traces("conditional_block")
def run_conditional_block(tracer: XlaTracer, op: Operator, env: Environment) -> None:
    holds = _condition(op, env, op.input("Cond")[0]) if op.attr("is_scalar_condition") else True
    if isinstance(holds, bool):
        HANDLERS[op.type](tracer, op, env)
    else:
        TracedRuns(tracer, op, env).run_if(holds)


@traces("recurrent")
def run_recurrent(tracer: XlaTracer, op: Operator, env: Environment) -> None:
    sequences = op.input("inputs")
    length = array_of(env.need(sequences[0])).shape[0] if sequences else 0
    if length:
        TracedRuns(tracer, op, env).scan(length, bool(op.attr("reverse")))
    else:
        HANDLERS[op.type](tracer, op, env)


@traces("while_grad", "conditional_block_grad", "recurrent_grad")
def run_backwards(tracer: XlaTracer, op: Operator, env: Environment) -> None:
    region = tracer.region(op)
    assert region is not None and region.frames is not None
    frames = env.get(region.frames)
    if not isinstance(frames, RunFrames):
        HANDLERS[op.type](tracer, op, env)  # the forward block ran trip by trip, or never
    elif frames.count is None:
        TracedRuns(tracer, op, env).scan(frames.room, not op.attrs.get("reverse"))
    else:
        TracedRuns(tracer, op, env).run_backwards(frames)


# ---------------------------------------------------------------------------------------------------------- choosing
@traces("select_input")
def select_input(tracer: XlaTracer, op: Operator, env: Environment) -> None:
    mask = array_of(env.need(op.input("Mask")[0]))
    if mask.is_known:
        HANDLERS[op.type](tracer, op, env)
        return
    values = [env.get(name) for name in op.input("X")]
    like = next(
        (value for value in values if isinstance(value, Stack)), next((value for value in values if value is not None), None)
    )
    if like is None:
        return
    form = form_of(like)
    branches = []
    for name, value in zip(op.input("X"), values, strict=True):
        fitted = fit(value, like)
        if form_of(fitted) != form:
            raise ShapesVary(f"{name} is {form_of(fitted)}, and another branch has {form}")
        branches.append(flatten(fitted)[0])
    branch = mask.read().reshape(()).astype(jnp.int32)
    env.set(op.output("Out")[0], unflatten(form.tree, [lax.select_n(branch, *leaves) for leaves in zip(*branches, strict=True)]))


@traces("select_output")
def select_output(tracer: XlaTracer, op: Operator, env: Environment) -> None:
    mask = array_of(env.need(op.input("Mask")[0]))
    if mask.is_known:
        HANDLERS[op.type](tracer, op, env)
        return
    leaves, tree = flatten(env.get(op.input("X")[0]))
    branch = mask.read().reshape(())
    for number, name in enumerate(op.output("Out")):
        if name != EMPTY:
            env.set(name, unflatten(tree, [jnp.where(branch == number, leaf, jnp.zeros_like(leaf)) for leaf in leaves]))
