"""Ops that own blocks, as loops and branches of XLA.

A condition that is known while tracing is decided then, and a loop whose number of trips is known has that length. Other loops
run as long as their condition holds; where gradients read what each trip keeps, there is room for a number of trips, and `Sizes`
tells when more were made.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
from jax import lax
from jax import numpy as jnp

from fluid.errors import ExecutionError
from fluid.ir.program import Operator
from fluid.ir.versions import outer_names
from fluid.opdef.registry import EMPTY
from fluid.values.lod_array import array_of
from fluid.values.selected_rows import SelectedRows

from ..stepwise.handlers import HANDLERS
from ..stepwise.interpreter import Environment
from .arrays import ValueAsked, value_of, wrap
from .bodies import Body, Carry, Frames, Kept, leaves_like
from .known_loops import Trips, known_trips
from .sizes import HELD
from .stacks import Stack, fit
from .tracing import Tracer, traces
from .trees import Form, ShapesVary, flatten, form_of, unflatten, zeros_of

__all__ = ["Runs"]

_FIRST_ROOM = 16
"""The number of trips for which there is room at first, where it is not known."""
_MOST_ROUNDS = 8
"""How often a block is traced until what it is handed has the same form as what it hands on."""


class _Outline(NamedTuple):
    """What tracing a run told: the forms of what is kept of it, what it met (`Sizes`), and its draws of each random stream."""

    kept: list[Form]
    met: list[Any]
    draws: Mapping[Any, int]


class Runs:
    """The runs of a body, as a loop or a branch of XLA."""

    def __init__(self, tracer: Tracer, op: Operator, env: Environment) -> None:
        self._tracer, self._op, self._body = tracer, op, Body(tracer, op, env)
        region = self._body.region
        frames = env.get(region.frames) if region.frames is not None else None
        self._frames = frames if isinstance(frames, Frames) else None

    def scan(self, count: int, reverse: bool = False) -> None:
        """Make a known number of runs, in order or in reverse; each takes its slices and its frame."""
        sources, tree = flatten(self._sources())
        numbers = jnp.arange(count, dtype=jnp.int32)
        with self._tracer.loop_of(count):
            start, outline = self._settled(unflatten(tree, [each[0] for each in sources]))
            leaves, form = flatten(start)

            def step(leaves: Any, of_run: Any) -> Any:
                number, *parts = of_run
                handed = unflatten(form, leaves)
                after, kept, met = self._run(handed, unflatten(tree, parts), number, outline)
                return leaves_like(after, handed), (kept, met)

            of_runs = (numbers[::-1] if reverse else numbers, *sources)
            end, (kept, met) = lax.scan(step, leaves, of_runs, length=count, reverse=reverse)
        self._finish(unflatten(form, end), kept, met, outline, count, None)

    def loop(self, is_on: Callable[[Carry], Any]) -> None:
        """Run as long as `is_on` says, of what each run hands on."""
        tracer, about = self._tracer, ("trips", self._op)
        keeps = self._body.keeps_frames
        room = tracer.sizes.room(about, _FIRST_ROOM) if keeps else 0

        def part(number: Any) -> Any:
            return {}, {}

        count = self._repeated(lambda number, handed: is_on(handed), part, room)
        if keeps:
            tracer.sizes.met(about, count)

    def back(self, frames: Frames) -> None:
        """Run once for each frame, the last first, where only running tells how many there are."""
        leaves, tree = flatten(self._sources())
        if frames.room == 1:
            self.maybe(frames.count > 0)
            return
        count = jnp.minimum(frames.count, frames.room)

        def part(number: Any) -> Any:
            return unflatten(tree, [lax.dynamic_index_in_dim(leaf, count - 1 - number, keepdims=False) for leaf in leaves])

        self._repeated(lambda number, handed: number < count, part, frames.room)

    def _repeated(self, is_on: Callable[[Any, Carry], Any], part: Callable[[Any], Any], room: int) -> Any:
        """Run as long as `is_on` says; `part` gives the slices and the frame of a run. What is kept has this room."""
        with self._tracer.loop_of(room):
            start, outline = self._settled(part(jnp.int32(0)))
            leaves, form = flatten(start)

            def step(state: Any) -> Any:
                number, leaves, kept, met = state
                handed = unflatten(form, leaves)
                after, new, more = self._run(handed, part(number), number, outline)
                kept = [_put(into, values, number) for into, values in zip(kept, new, strict=True)]
                return number + 1, leaves_like(after, handed), kept, list(map(jnp.maximum, met, more))

            first = jnp.int32(0), list(map(jnp.asarray, leaves)), _blank(outline.kept, room), [jnp.int32(HELD)] * len(outline.met)
            state = lax.while_loop(lambda state: is_on(state[0], unflatten(form, state[1])), step, first)
        count, end, kept, met = state
        self._finish(unflatten(form, end), kept, met, outline, room, count)
        return count

    def maybe(self, holds: Any) -> None:
        """Run once if a condition holds."""
        sources, tree = flatten(self._sources())
        of_run = unflatten(tree, [each[0] for each in sources])
        start, outline = self._settled(of_run)
        leaves, form = flatten(start)

        def taken(leaves: Any) -> Any:
            handed = unflatten(form, leaves)
            after, kept, met = self._run(handed, of_run, 0, outline)
            return leaves_like(after, handed), [[leaf[None] for leaf in part] for part in kept], met

        def left(leaves: Any) -> Any:
            return leaves, _blank(outline.kept, 1), [jnp.int32(HELD)] * len(outline.met)

        end, kept, met = lax.cond(holds, taken, left, list(map(jnp.asarray, leaves)))
        self._finish(unflatten(form, end), kept, met, outline, 1, jnp.asarray(holds).astype(jnp.int32))

    # -- what is common to them
    def _sources(self) -> Any:
        """What runs take slices of, and their frames, each with an entry for each run."""
        return self._body.slices, self._frames.values if self._frames is not None else {}

    def _run(self, handed: Carry, of_run: Any, number: Any, outline: _Outline) -> tuple[Carry, list[list[Any]], list[Any]]:
        """One run, inside of a function that XLA runs; `number` is that of the run."""
        tracer, streams = self._tracer, self._tracer.streams
        before = dict(streams.draws)
        streams.draws.update({name: before.get(name, 0) + number * count for name, count in outline.draws.items()})
        try:
            with tracer.sizes.inside() as met:
                after, kept = self._body.run(handed, *of_run)
        finally:
            streams.draws.clear()
            streams.draws.update(before)
        return after, [flatten(part)[0] for part in kept], list(met.values())

    def _settled(self, of_run: Any) -> tuple[Carry, _Outline]:
        """What the first run is handed, in the form in which every run hands it on, if there is one; and what a run is like."""
        handed = self._body.start()
        for _ in range(_MOST_ROUNDS):
            forms, outline = self._outlined(handed, of_run)
            after = {key: fit(value, zeros_of(forms[key])) for key, value in handed.items()}
            if all(form_of(after[key]) == form_of(value) for key, value in handed.items()):
                break
            handed = after
        return handed, outline

    def _outlined(self, handed: Carry, of_run: Any) -> tuple[dict[Any, Form], _Outline]:
        """Trace a run, for the forms of what it hands on, and what else it tells."""
        tracer, draws = self._tracer, self._tracer.streams.draws
        leaves, tree = flatten((handed, of_run))
        before, forms, outlines = dict(draws), {}, []

        def outlined(*leaves: Any) -> Any:
            handed, of_run = unflatten(tree, leaves)
            with tracer.sizes.inside() as met:
                after, kept = self._body.run(handed, *of_run)
            forms.update({key: form_of(value) for key, value in after.items()})
            made = {name: count - before.get(name, 0) for name, count in draws.items() if count is not before.get(name, 0)}
            outlines.append(_Outline([form_of(part) for part in kept], list(met), made))
            return ()

        try:
            jax.eval_shape(outlined, *leaves)
        finally:
            draws.clear()
            draws.update(before)
        return forms, outlines[-1]

    def _finish(self, end: Carry, kept: Any, met: Any, outline: _Outline, room: int, count: Any) -> None:
        """Set the op's outputs from what the last run handed on, and what is kept of all; `room` and `count` as of `Frames`."""
        tracer = self._tracer
        runs = room if count is None else count
        tracer.sizes.merge(outline.met, met)
        for name, number in outline.draws.items():
            tracer.streams.draws[name] = tracer.streams.draws.get(name, 0) + runs * number
        stacked, rows, frame = (unflatten(form.tree, leaves) for form, leaves in zip(outline.kept, kept, strict=True))
        all_kept = Kept(stacked, {name: _flat(each) for name, each in rows.items()}, frame)
        self._body.finish(end, all_kept, Frames(frame, room, count))


def _put(into: Sequence[Any], values: Sequence[Any], number: Any) -> list[Any]:
    """The leaves of what is kept of all runs, with those of one run at its number; without them, if there is no room."""
    return [each.at[number].set(value, mode="drop") for each, value in zip(into, values, strict=True)]


def _blank(kept: Sequence[Form], room: int) -> list[list[Any]]:
    """The leaves of what is kept, before any run; numbers of sparse rows lie outside of the table, so that they count nothing."""
    blank = [[jnp.zeros((room, *shape), dtype) for shape, dtype in form.leaves] for form in kept]
    rows = unflatten(kept[1].tree, blank[1])
    for each in rows.values():
        each.index.fill(each.shape[0])
    return [blank[0], flatten(rows)[0], blank[2]]


def _flat(rows: SelectedRows) -> SelectedRows:
    """The rows of all runs as those of one."""
    index, value = value_of(rows.index), value_of(rows.value)
    return SelectedRows(wrap(index.reshape(-1)), wrap(value.reshape(-1, *value.shape[2:])), rows.shape[0])


# ----------------------------------------------------------------------------------------------------------- the ops
def _condition(op: Operator, env: Environment, name: str) -> Any:
    """A condition: a bool if it is known, or a traced one."""
    value = array_of(env.need(name))
    if value.size != 1:
        raise ExecutionError(f"the condition {name} has {value.size} elements; it should have one")
    return bool(value.item()) if value.is_known else value.read().reshape(())


@traces("while")
def run_while(tracer: Tracer, op: Operator, env: Environment) -> None:
    (name,) = op.input("Condition")
    trips = known_trips(tracer, op, env)
    if trips is None:
        if name not in outer_names(op.attr("sub_block"))[1]:
            raise ExecutionError(f"the block of the loop never writes its condition {name}, so the loop would not end")
        Runs(tracer, op, env).loop(lambda handed: value_of(handed["outer", name]).reshape(()))
        return
    try:
        if trips.count:
            _scan_known(tracer, op, env, trips)
            return
    except (ExecutionError, ValueAsked) as error:
        if not isinstance(_root(error), (ShapesVary, ValueAsked)):
            raise
    HANDLERS[op.type](tracer, op, env)  # trip by trip: shapes differ, or values decide them that are known then


def _scan_known(tracer: Tracer, op: Operator, env: Environment, trips: Trips) -> None:
    """Run a loop of which the trips are known."""
    lengths = _lengths_after(op, env, trips)
    tracer.lengths.update(trips.lengths)
    try:
        Runs(tracer, op, env).scan(trips.count)
    finally:
        for each in trips.lengths:
            tracer.lengths.pop(each, None)
    for name, value in trips.last.items():
        env.set(name, wrap(value))
    for name, length in lengths.items():
        array = env.get(name)
        if isinstance(array, Stack):
            env.set(name, Stack(array.tree, array.leaves, length))


def _lengths_after(op: Operator, env: Environment, trips: Trips) -> dict[str, int]:
    """Name -> length after the loop, of the arrays of tensors that the ops in `trips.lengths` alone write."""
    lengths = {}
    for name in {each.output("Out")[0] for each in trips.lengths}:
        before = env.get(name)
        length = before.length if isinstance(before, Stack) else len(before or ())
        writers = [each for each in op.attr("sub_block").ops if _writes(each, name)]
        if isinstance(length, int) and all(each in trips.lengths for each in writers):
            lengths[name] = max([length, *(trips.lengths[each] for each in writers)])
    return lengths


def _writes(op: Operator, name: str) -> bool:
    return name in op.output_arg_names or any(name in outer_names(block)[1] for block in op.sub_blocks)


def _root(error: BaseException) -> BaseException:
    while error.__cause__ is not None:
        error = error.__cause__
    return error


@traces("conditional_block")
def run_conditional_block(tracer: Tracer, op: Operator, env: Environment) -> None:
    holds = _condition(op, env, op.input("Cond")[0]) if op.attr("is_scalar_condition") else True
    if isinstance(holds, bool):
        HANDLERS[op.type](tracer, op, env)
    else:
        Runs(tracer, op, env).maybe(holds)


@traces("recurrent")
def run_recurrent(tracer: Tracer, op: Operator, env: Environment) -> None:
    sequences = op.input("inputs")
    length = array_of(env.need(sequences[0])).shape[0] if sequences else 0
    if length:
        Runs(tracer, op, env).scan(length, bool(op.attr("reverse")))
    else:
        HANDLERS[op.type](tracer, op, env)


@traces("while_grad", "conditional_block_grad", "recurrent_grad")
def run_backwards(tracer: Tracer, op: Operator, env: Environment) -> None:
    region = tracer.region(op)
    assert region is not None and region.frames is not None
    frames = env.get(region.frames)
    if not isinstance(frames, Frames):
        HANDLERS[op.type](tracer, op, env)  # the forward block ran trip by trip, or never
    elif frames.count is None:
        Runs(tracer, op, env).scan(frames.room, not op.attrs.get("reverse"))
    else:
        Runs(tracer, op, env).back(frames)


# ---------------------------------------------------------------------------------------------------------- choosing
@traces("select_input")
def select_input(tracer: Tracer, op: Operator, env: Environment) -> None:
    mask = array_of(env.need(op.input("Mask")[0]))
    if mask.is_known:
        HANDLERS[op.type](tracer, op, env)
        return
    values = [env.get(name) for name in op.input("X")]
    like = next(
        (value for value in values if isinstance(value, Stack)), next((each for each in values if each is not None), None)
    )
    if like is None:
        return
    form = form_of(like)
    branches = []
    for name, value in zip(op.input("X"), values, strict=True):
        other = fit(value, like)
        if form_of(other) != form:
            raise ShapesVary(f"{name} is {form_of(other)}, and another branch has {form}")
        branches.append(flatten(other)[0])
    which = mask.read().reshape(()).astype(jnp.int32)
    env.set(op.output("Out")[0], unflatten(form.tree, [lax.select_n(which, *leaves) for leaves in zip(*branches, strict=True)]))


@traces("select_output")
def select_output(tracer: Tracer, op: Operator, env: Environment) -> None:
    mask = array_of(env.need(op.input("Mask")[0]))
    if mask.is_known:
        HANDLERS[op.type](tracer, op, env)
        return
    leaves, tree = flatten(env.get(op.input("X")[0]))
    which = mask.read().reshape(())
    for number, name in enumerate(op.output("Out")):
        if name != EMPTY:
            env.set(name, unflatten(tree, [jnp.where(which == number, leaf, jnp.zeros_like(leaf)) for leaf in leaves]))
