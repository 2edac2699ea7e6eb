"""Give room to states of loops that grow by some rows in each trip, such as the keys and values that a decoder attends to.

Native code needs the same shapes in each trip. So in a copy of the program such a state, and each value that grows with it, has
the rows of the last trip, and ``concat`` becomes a write to the next rows. Behind the rows that count there are zeros in
states, and anything in other values; what would mix these rows with others reads copies that hold a neutral number there.

A loop of many trips becomes several loops, each with room for twice the trips of the loop before it: values may end it early.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from itertools import pairwise
from math import inf, prod
from typing import Any, NamedTuple

import numpy as np

from fluid.ir.copying import copy_op, declare_like, rewritten_copy
from fluid.ir.program import Block, Operator, Program
from fluid.ir.regions import Region, region_of
from fluid.ir.versions import BlockVersions, Value, values_in
from fluid.ops.shapes import normalize_axes
from fluid.values.spec import Spec
from fluid.values.types import VarType, is_floating

from ..binding.constants import make_constant
from ..stepwise.inferred_specs import inferred_specs
from ..stepwise.interpreter import step_captures
from .op_inserter import OpInserter
from .trip_counts import MOST_TRIPS, bound_trips, count_trips

__all__ = ["has_room", "with_room"]

_PREFIX = "room."
"""Prefix of the names of new variables."""
_MOST_BYTES, _MOST_GUESSED = 1 << 24, 1 << 20
"""The most bytes of states with room; fewer if values may end the loop before they are full."""
_FIRST_TRIPS = 32
"""The trips of the first stage of a loop; each later stage has room for twice the trips of the one before it."""


def with_room(program: Program, instructions: Sequence[Any], specs: Mapping[Value, Spec]) -> Program | None:
    """Copy a program with room in the states of the loops of block 0 that grow; None if there is no such loop.

    Args:
        instructions: the instructions of the program's ops, in order.
        specs: the specs of values, as far as they are known.
    """
    loops = [instruction for instruction in instructions if instruction.op.type == "while"]
    captured = step_captures(program) if loops else {}
    growing = [(loop.op, stages) for loop in loops if (stages := _plan_stages(loop, specs, captured))]
    return rewritten_copy(program, growing, _rewrite)


def has_room(op: Operator) -> bool:
    """Whether an op is a loop whose states have room."""
    return op.type == "while" and any(name.startswith(_PREFIX) for name in op.output_arg_names)


class _UnsuitedError(Exception):
    """An op of the loop cannot compute with room."""


class _Length(NamedTuple):
    """The length of a value that grows, as the states do.

    Attributes:
        axes: the axes that grow; they have one length.
        first: the length in the first trip.
    """

    axes: tuple[int, ...]
    first: int


@dataclass
class _GrowingLoop:
    """A loop with states that grow, or the stage of one.

    Attributes:
        trips: the number of the trips of all stages; None if values decide.
        start, end: the trips before this stage, and at most after it.
        step: the rows that each trip adds.
        room: the length of all values that grow, with room.
        states: name -> its spec before the loop, and its axis that grows.
        shapes: value of the block -> its shape with room.
        lengths: value of the block -> its length, for values that grow.
        fillers: (number of an op, slot, place) -> the number that the op reads in the room of this operand, and along which axes.
        appends: the numbers of ops that append rows.
        last_rows: number of an op that reads the last rows along an axis -> the axis, and how many.
        means: number of a ``reduce_mean`` over an axis that grows -> how many numbers it adds for each row.
    """

    trips: int | None
    start: int
    end: int
    step: int
    room: int
    states: dict[str, tuple[Spec, int]]
    shapes: dict[Value, Spec]
    lengths: dict[Value, _Length]
    fillers: dict[tuple[int, str, int], tuple[float, tuple[int, ...]]] = field(default_factory=dict)
    appends: list[int] = field(default_factory=list)
    last_rows: dict[int, tuple[int, int]] = field(default_factory=dict)
    means: dict[int, int] = field(default_factory=dict)


def _plan_stages(instruction: Any, specs: Mapping[Value, Spec], captured: Collection[str]) -> list[_GrowingLoop]:
    """Plan the stages of a loop, each with more room; none if no state grows, or if an op cannot compute with room."""
    op: Operator = instruction.op
    region = region_of(op)
    assert region is not None, "a loop owns a block"
    if region.scopes in captured:
        return []
    versions = BlockVersions(region.body)
    first = {(name, 0): specs[value] for name, value in instruction.outer.items() if value in specs}
    in_first = _infer_trip(versions, first)
    states, steps = _find_states(versions, region, first, in_first)
    variables = [op.block.find_var(name) for name in states]
    if len(steps) != 1 or any(var is None or var.persistable for var in variables):
        return []
    second = first | {(name, 0): in_first[versions.current(name)] for name in states}
    (step,) = steps
    try:
        lengths = _find_lengths(versions, region, in_first, _infer_trip(versions, second), step)
        trips = count_trips(op, region, MOST_TRIPS)
        most = bound_trips(op, region, MOST_TRIPS) if trips is None else trips
        if not most:
            return []
        longest = max(spec.shape[axis] for spec, axis in states.values())
        stages = list[_GrowingLoop]()
        for start, end in pairwise([0, *_stage_ends(op, most)]):
            room = longest + step * end
            shapes = {(name, 0): _with_extent(spec, axis, room) for name, (spec, axis) in states.items()}
            if sum(spec.nbytes for spec in shapes.values()) > (_MOST_BYTES if trips is not None else _MOST_GUESSED):
                return []
            stages.append(_GrowingLoop(trips, start, end, step, room, states, first | shapes, lengths))
            _Analysis(versions, stages[-1], {*_read_values(versions, region)}).run()
    except _UnsuitedError:
        return []
    return stages


def _find_states(
    versions: BlockVersions, region: Region, first: Mapping[Value, Spec], in_first: Mapping[Value, Spec]
) -> tuple[dict[str, tuple[Spec, int]], set[int]]:
    """Find the states that grow in the first trip: name -> spec before the loop and growing axis. And the rows per trip."""
    states, steps = dict[str, tuple[Spec, int]](), set[int]()
    for name in region.writes:
        before, after = first.get((name, 0)), in_first.get(versions.current(name))
        grown = _growth(before, after)
        if before is not None and len(grown) == 1:
            ((axis, step),) = grown.items()
            states[name] = before, axis
            steps.add(step)
    return states, steps


def _stage_ends(op: Operator, most: int) -> list[int]:
    """The numbers of trips after each stage of a loop; arrays of tensors are collected by one loop alone."""
    block, ends, end = op.block, list[int](), _FIRST_TRIPS
    names = (*op.input_arg_names, *op.output_arg_names)
    has_arrays = any((var := block.find_var(name)) is not None and var.type is VarType.LOD_TENSOR_ARRAY for name in names)
    while 2 * end <= most and not has_arrays:
        ends.append(end)
        end *= 2
    return [*ends, most]


def _growth(before: Spec | None, after: Spec | None) -> dict[int, int]:
    """Axis -> by how much a value has grown along it; empty if it has shrunk, a spec is unknown, or anything else has changed."""
    if before is None or after is None or before.ndim != after.ndim or before.dtype is not after.dtype:
        return {}
    changed = {axis: new - old for axis, (old, new) in enumerate(zip(before.shape, after.shape, strict=True)) if old != new}
    return changed if min(changed.values(), default=0) > 0 else {}


def _with_extent(spec: Spec, axis: int, extent: int) -> Spec:
    return spec.with_shape((*spec.shape[:axis], extent, *spec.shape[axis + 1 :]))


def _infer_trip(versions: BlockVersions, specs: Mapping[Value, Spec]) -> dict[Value, Spec]:
    """Infer the specs of the values in a trip, as far as they are known, from the specs before it."""
    in_trip = dict(specs)
    for index, op in enumerate(versions.ops):
        definition = versions.definitions[index]
        if definition is not None and not op.sub_blocks:
            in_trip |= inferred_specs(op, definition, versions.reads[index], versions.writes[index], in_trip) or {}
    return in_trip


def _find_lengths(
    versions: BlockVersions, region: Region, first: Mapping[Value, Spec], second: Mapping[Value, Spec], step: int
) -> dict[Value, _Length]:
    """Find the lengths of the values that grow, from the specs in the first and in the second trip."""
    lengths = dict[Value, _Length]()
    for value in _read_values(versions, region):
        before, after = first.get(value), second.get(value)
        if before is None or before == after:
            continue
        grown = _growth(before, after)
        extents = {before.shape[axis] for axis in grown}
        if {*grown.values()} != {step} or len(extents) != 1:
            raise _UnsuitedError
        lengths[value] = _Length((*grown,), *extents)
    return lengths


def _read_values(versions: BlockVersions, region: Region) -> Iterator[Value]:
    """The values of a block that an op reads, or that leave it."""
    for reads in versions.reads:
        yield from values_in(reads)
    yield from map(versions.current, region.writes)


# --------------------------------------------------------------------------------------------------------- analysis
_BY_ELEMENT = frozenset(
    ("scale", "cast", "assign", "clip", "where", "pow", "sum", "minus", "fill_zeros_like", "fill_any_like", "dropout",
     "logical_and", "logical_or", "logical_xor", "logical_not", "equal", "not_equal", "less_than", "less_equal", "greater_than",
     "greater_equal", *(f"elementwise_{kind}" for kind in ("add", "sub", "mul", "div", "max", "min", "pow", "mod", "floordiv")))
)  # fmt: skip
"""Ops that compute each element by itself; so do the activations."""
_PRODUCTS = frozenset({"matmul", "matmul_v2", "mul"})
_NEUTRAL = {
    "reduce_sum": 0.0, "reduce_prod": 1.0, "reduce_max": -inf, "reduce_min": inf, "reduce_any": 0.0, "reduce_all": 1.0,
    "softmax": -inf, "log_softmax": -inf, "logsumexp": -inf, "arg_max": -inf, "arg_min": inf,
}  # fmt: skip
"""Ops that reduce an axis, or divide by a sum over it -> the number that does not change their results for other elements."""
_ALONG_AXIS = frozenset({"softmax", "log_softmax"})
"""The ones whose results have the axis."""
_MOVES = frozenset({"reshape", "reshape2", "unsqueeze", "unsqueeze2", "squeeze", "squeeze2", "flatten", "flatten2"})
"""Ops that keep the order of elements."""
_TURNS = frozenset({"transpose", "transpose2"})
_COPIES = frozenset({"assign", "cast", "fill_zeros_like"})
"""Ops by element whose results are 0 where their inputs are."""


@dataclass(frozen=True)
class _GrownReader:
    """An op that reads values that grow.

    Attributes:
        index: its number in the block.
        op: the op.
        grown: slot, place and value of each operand that grows.
        before: the length of the first of them.
        out: its first result.
        after: the length of this result; None if it does not grow.
    """

    index: int
    op: Operator
    grown: Sequence[tuple[str, int, Value]]
    before: _Length
    out: Value
    after: _Length | None


class _Analysis:
    """Finds the ops of a block that have to read other operands, so that they compute the same with room.

    Args:
        versions: the values of the block.
        loop: the loop; its shapes and the ops that change are added.
        read: the values that an op reads, or that leave the block.
    """

    def __init__(self, versions: BlockVersions, loop: _GrowingLoop, read: Container[Value]) -> None:
        self._versions, self._loop, self._read = versions, loop, read
        self._zeros: set[tuple[Value, int]] = {((name, 0), axis) for name, (_, axis) in loop.states.items()}
        """Values, with an axis behind whose rows that count they hold zeros."""

    def run(self) -> None:
        """Go through the ops; raises `_UnsuitedError` if one cannot compute with room."""
        versions, loop = self._versions, self._loop
        for index, op in enumerate(versions.ops):
            self._visit(index, op)
        for name, (spec, axis) in loop.states.items():
            last = versions.current(name)
            if loop.lengths.get(last) != ((axis,), spec.shape[axis] + loop.step) or (last, axis) not in self._zeros:
                raise _UnsuitedError

    def _visit(self, index: int, op: Operator) -> None:
        """Infer an op's results with room; raises `_UnsuitedError` if it cannot compute so."""
        versions, loop = self._versions, self._loop
        definition, reads, writes = versions.definitions[index], versions.reads[index], versions.writes[index]
        read = [(slot, place, value) for slot, values in reads.items() for place, value in enumerate(values) if value is not None]
        grown = [one for one in read if one[2] in loop.lengths]
        if not grown:
            if definition is not None and not op.sub_blocks:
                loop.shapes |= inferred_specs(op, definition, reads, writes, loop.shapes) or {}
            return
        if definition is None or op.sub_blocks or versions.updates[index] or (definition.is_random and not op.attr("is_test")):
            raise _UnsuitedError
        results = [value for value in values_in(writes) if value in self._read]
        if op.type == "concat" and results and self._appends(index, op):
            return
        shapes = inferred_specs(op, definition, reads, writes, loop.shapes)
        if shapes is None:
            raise _UnsuitedError
        for value, spec in shapes.items():
            length = loop.lengths.get(value)
            if length is not None and any(spec.shape[axis] != loop.room for axis in length.axes):
                raise _UnsuitedError
        loop.shapes |= shapes
        if results:
            self._require_suited(index, op, grown, results[0])

    def _appends(self, index: int, op: Operator) -> bool:
        """Note an op if it appends rows to a value that grows; returns whether it does."""
        loop, (out,) = self._loop, self._versions.writes[index]["Out"]
        values = self._versions.reads[index]["X"]
        before = values[0]
        length = loop.lengths.get(before) if before is not None else None
        if before is None or length is None or out is None or self._axis(op, before) not in length.axes:
            return False
        (axis, *more), first = length
        rows = loop.shapes.get(values[1]) if len(values) == 2 and values[1] is not None else None
        are_rows = rows is not None and values[1] not in loop.lengths and rows.shape[axis] == loop.step
        if more or not are_rows or op.inputs.get("AxisTensor") or loop.lengths.get(out) != ((axis,), first + loop.step):
            raise _UnsuitedError
        loop.shapes[out] = loop.shapes[before]
        loop.appends.append(index)
        if (before, axis) in self._zeros:
            self._zeros.add((out, axis))
        return True

    def _require_suited(self, index: int, op: Operator, grown: Sequence[tuple[str, int, Value]], out: Value) -> None:
        """Note what an op has to read; raises `_UnsuitedError` if it cannot compute with room."""
        lengths, definition = self._loop.lengths, op.definition
        assert definition is not None
        reader = _GrownReader(index, op, grown, lengths[grown[0][2]], out, lengths.get(out))
        firsts = {lengths[value].first for _, _, value in grown} | ({reader.after.first} if reader.after is not None else set())
        is_activation = definition.module == "fluid.ops.activation"
        rule = _Analysis._compute_elements if is_activation else _RULES.get(op.type)
        if rule is None or len(firsts) > 1:
            raise _UnsuitedError
        axes, results = rule(self, reader), [value for values in self._versions.writes[index].values() for value in values]
        self._zeros |= {(value, axis) for value in results if value in lengths for axis in axes}

    # -- rules: each returns the axes of the result along which the unused room holds zeros
    def _compute_elements(self, reader: _GrownReader) -> Collection[int]:
        self._require(reader.after is not None)
        return self._axes_of_zeros(reader) if reader.op.type in _COPIES else ()

    def _multiply(self, reader: _GrownReader) -> Collection[int]:
        op, shapes = reader.op, self._loop.shapes
        inner = {slot: _inner_axes(op, slot, shapes[value].ndim) for slot, _, value in reader.grown}
        sums = {slot: axes for slot, _, value in reader.grown if (axes := inner[slot] & {*self._loop.lengths[value].axes})}
        if sums:  # over an axis that grows
            self._require(len(sums) == 2)
            for one in reader.grown:
                self._fill_room(reader, one, 0.0, sums[one[0]])
        return ()

    def _reduce(self, reader: _GrownReader) -> Collection[int]:
        op, one = reader.op, reader.grown[0]
        kind, shape = op.type, self._loop.shapes[one[2]]
        along = {*reader.before.axes} & _reduced_axes(op, shape.ndim)
        if kind in _ALONG_AXIS:
            self._require(reader.after == reader.before)
        if not along:
            return ()
        neutral = 0.0 if kind == "reduce_mean" else _NEUTRAL[kind]
        self._require(neutral != inf or is_floating(shape.dtype))
        self._fill_room(reader, one, neutral, along)
        if kind == "reduce_mean":
            self._require(len(along) == 1 and is_floating(shape.dtype))
            self._loop.means[reader.index] = prod(shape.shape[axis] for axis in _reduced_axes(op, shape.ndim) - along)
        return along if kind == "softmax" else ()

    def _move(self, reader: _GrownReader) -> Collection[int]:
        self._require(reader.after is not None and len(reader.after.axes) == len(reader.before.axes))
        assert reader.after is not None
        before, after = self._loop.shapes[reader.grown[0][2]].shape, self._loop.shapes[reader.out].shape
        places = dict(zip(reader.before.axes, reader.after.axes, strict=True))
        self._require(all(prod(before[:old]) == prod(after[:new]) for old, new in places.items()))
        return [places[axis] for axis in self._axes_of_zeros(reader)]

    def _transpose(self, reader: _GrownReader) -> Collection[int]:
        order = list(reader.op.attr("axis"))
        self._require(reader.after is not None and {*reader.after.axes} == {order.index(axis) for axis in reader.before.axes})
        return [order.index(axis) for axis in self._axes_of_zeros(reader)]

    def _join_or_cut(self, reader: _GrownReader) -> Collection[int]:
        op, ndim = reader.op, self._loop.shapes[reader.grown[0][2]].ndim
        axes = normalize_axes(op.attr("axes") if op.type == "slice" else [op.attr("axis")], ndim)
        tensors = [slot for slot, names in op.inputs.items() if names and slot not in ("X", "Input")]
        self._require(not tensors and (op.type != "concat" or len(reader.grown) == len(op.input("X"))))
        dropped = op.attr("decrease_axis") or () if op.type == "slice" else ()
        places = {axis: axis - sum(one < axis for one in dropped) for axis in reader.before.axes if axis not in axes}
        self._require((*places.values(),) == (reader.after.axes if reader.after is not None else ()))
        for axis in {*reader.before.axes} & {*axes}:
            self._require(op.type == "slice")
            self._cut_rows(reader, axis, list(axes).index(axis))
        return [places[axis] for axis in self._axes_of_zeros(reader) if axis in places]

    def _cut_rows(self, reader: _GrownReader, axis: int, place: int) -> None:
        """Note a slice of the last rows along an axis that grows; the first rows are the same with room."""
        start, end, loop = reader.op.attr("starts")[place], reader.op.attr("ends")[place], self._loop
        if start < 0:
            self._require(-start <= reader.before.first and end >= loop.room and reader.index not in loop.last_rows)
            loop.last_rows[reader.index] = axis, -start
        else:
            self._require(start <= end <= reader.before.first)

    def _gather(self, reader: _GrownReader) -> Collection[int]:
        if [slot for slot, _, _ in reader.grown] == ["Index"]:
            return self._look_up(reader)
        axis = 0 if reader.op.attr("axis") is None else int(reader.op.attr("axis"))
        self._require(reader.after == reader.before and reader.grown[0][0] == "X")
        self._require(not reader.op.inputs.get("Axis") and axis not in reader.before.axes)
        return self._axes_of_zeros(reader)

    def _look_up(self, reader: _GrownReader) -> Collection[int]:
        slots = [slot for slot, _, _ in reader.grown]
        self._require(reader.after is not None and slots in (["Ids"], ["Index"]) and not reader.op.inputs.get("Axis"))
        self._fill_room(reader, reader.grown[0], 0.0, reader.before.axes)  # ids of the room have to be in the table
        return ()

    def _normalize(self, reader: _GrownReader) -> Collection[int]:
        is_before = max(reader.before.axes) < reader.op.attr("begin_norm_axis")
        self._require(reader.after == reader.before and is_before and reader.grown[0][0] == "X")
        return ()

    def _repeat(self, reader: _GrownReader) -> Collection[int]:
        self._require(reader.after is not None and len(reader.grown) == 1 and reader.grown[0][0] == "X")
        return ()

    def _add_up(self, reader: _GrownReader) -> Collection[int]:
        is_backward = reader.op.attr("reverse") and self._axis(reader.op, reader.grown[0][2]) in reader.before.axes
        self._require(reader.after == reader.before and not is_backward and not reader.op.attr("flatten"))
        return ()

    @staticmethod
    def _require(condition: bool) -> None:
        if not condition:
            raise _UnsuitedError

    def _axes_of_zeros(self, reader: _GrownReader) -> list[int]:
        """The axes behind whose rows that count all values that grow hold zeros."""
        return [axis for axis in reader.before.axes if all((value, axis) in self._zeros for _, _, value in reader.grown)]

    def _axis(self, op: Operator, value: Value) -> int:
        """The axis of an op, counted from the front."""
        return normalize_axes([op.attr("axis")], self._loop.shapes[value].ndim)[0]

    def _fill_room(self, reader: _GrownReader, operand: tuple[str, int, Value], number: float, axes: Iterable[int]) -> None:
        """Let an op read a copy of an operand with a number behind the rows that count along some axes."""
        slot, place, value = operand
        if not number:
            axes = [axis for axis in axes if (value, axis) not in self._zeros]
        if axes := tuple(axes):
            self._loop.fillers[reader.index, slot, place] = number, axes


def _inner_axes(op: Operator, slot: str, ndim: int) -> set[int]:
    """The axes of an operand that a product sums over."""
    if op.type == "mul":
        first = op.attr("x_num_col_dims" if slot == "X" else "y_num_col_dims")
        return {*range(first, ndim)} if slot == "X" else {*range(first)}
    is_turned = any(op.attrs.get(name) for name in (f"transpose_{slot}", f"trans_{slot.lower()}"))
    return {ndim - 1 if ndim == 1 or is_turned == (slot == "Y") else ndim - 2}


def _reduced_axes(op: Operator, ndim: int) -> set[int]:
    """The axes that an op reduces, or divides by a sum over."""
    if op.attrs.get("reduce_all") or op.attrs.get("flatten"):
        return {*range(ndim)}
    axes: Any = op.attrs.get("dim", op.attrs.get("axis"))
    return {*normalize_axes(axes if isinstance(axes, Sequence) else [axes], ndim)}


_RULES: dict[str, Callable[[_Analysis, _GrownReader], Collection[int]]] = {
    **dict.fromkeys(_BY_ELEMENT, _Analysis._compute_elements),
    **dict.fromkeys(_PRODUCTS, _Analysis._multiply),
    **dict.fromkeys((*_NEUTRAL, "reduce_mean"), _Analysis._reduce),
    **dict.fromkeys(_MOVES, _Analysis._move),
    **dict.fromkeys(_TURNS, _Analysis._transpose),
    **dict.fromkeys(("concat", "split", "slice"), _Analysis._join_or_cut),
    "gather": _Analysis._gather,
    "gather_nd": _Analysis._look_up,
    "cumsum": _Analysis._add_up,
    **dict.fromkeys(("lookup_table", "lookup_table_v2"), _Analysis._look_up),
    "layer_norm": _Analysis._normalize,
    **dict.fromkeys(("expand", "expand_v2", "expand_as", "expand_as_v2", "tile"), _Analysis._repeat),
}
"""Type of an op that can compute with room -> its rule; activations have the one of `_BY_ELEMENT`."""


# -------------------------------------------------------------------------------------------------------- rewriting
def _rewrite(op: Operator, stages: Sequence[_GrowingLoop]) -> None:
    """Put the stages of a loop, in a copy of the program, in its place."""
    block = op.block
    loops = [op, *(_copy_loop(op) for _ in stages[1:])]
    place = block.ops.index(op)
    block.ops[place + 1 : place + 1] = loops[1:]
    added = _declare(block, "added", (1,), VarType.INT64)
    block.insert_op(place, "fill_constant", outputs={"Out": added}, attrs=_integer_attrs(0))
    sources = {name: (name, spec.shape[axis]) for name, (spec, axis) in stages[0].states.items()}
    for loop, stage in zip(loops, stages, strict=True):
        rewriter = _Rewriter(loop, stage, added)
        if len(stages) > 1:
            rewriter.end_early()
        sources = rewriter.give_room(sources)
    grown = stages[0].trips and stages[0].trips * stages[0].step
    for name, (spec, axis) in stages[0].states.items():
        _cut_room(loops[-1], name, sources[name][0], axis, spec.shape[axis], grown, added)


def _copy_loop(op: Operator) -> Operator:
    """Copy a loop and its block; inner blocks are shared, since no value that grows is read there."""
    body = op.block.program.create_block(parent=op.block)
    for name, var in op.sub_blocks[0].vars.items():
        declare_like(body, name, var)
    body.ops = [copy_op(one, body) for one in op.sub_blocks[0].ops]
    copy = copy_op(op, op.block)
    copy.attrs["sub_block"] = body
    return copy


def _cut_room(op: Operator, name: str, room: str, axis: int, extent: int, grown: int | None, added: str) -> None:
    """Give a state its value after a loop, without room.

    Args:
        extent: its rows before the loop.
        grown: the rows that the loop adds; None if values decide.
        added: the variable with their number.
    """
    place, end = op.block.ops.index(op) + 1, dict[str, Any]()
    attrs = {"axes": [axis], "starts": [0], "ends": [extent + (grown or 0)]}
    if grown is None:
        steps = OpInserter(op.block, place, op.frames)
        end["EndsTensor"] = [steps.add("scale", {"X": [added]}, scale=1.0, bias=float(extent))]
        attrs["infer_flags"] = [-1]
        place += 1
    op.block.insert_op(place, "slice", inputs={"Input": [room], **end}, outputs={"Out": name}, attrs=attrs)


def _declare(block: Block, name: str, shape: Sequence[int], dtype: VarType) -> str:
    """Declare a new variable."""
    return block.create_var(name=block.program.fresh_name(f"{_PREFIX}{name}"), shape=tuple(shape), dtype=dtype).name


def _integer_attrs(number: int) -> dict[str, Any]:
    """The attributes of a ``fill_constant`` of one integer."""
    return {"shape": [1], "dtype": int(VarType.INT64), "value": float(number)}


class _Rewriter:
    """Gives room to the states of a loop, or of one of its stages.

    Args:
        op: the loop.
        loop: the facts about it.
        added: the variable with the number of the rows that its trips have added.
    """

    def __init__(self, op: Operator, loop: _GrowingLoop, added: str) -> None:
        self._op, self._loop, self._added = op, loop, added
        self._block: Block = op.block
        self._body: Block = op.sub_blocks[0]
        self._versions = BlockVersions(self._body)
        self._ranges: dict[range, str] = {}
        """Range -> the variable outside with its numbers."""
        self._change_body()
        op.inputs["X"] = [*op.input("X"), added, *self._ranges.values()]
        op.outputs["Out"] = [*op.output("Out"), added]

    def give_room(self, sources: Mapping[str, tuple[str, int]]) -> dict[str, tuple[str, int]]:
        """Let the loop pass states with room.

        Args:
            sources: state -> the variable with its value before, and the length of this value.

        Returns:
            The same after the loop.
        """
        for numbers, name in self._ranges.items():
            type_, attrs = make_constant(np.array(numbers))
            self._block.insert_op(self._place, type_, outputs={"Out": name}, attrs=attrs)
        return {name: (self._pass_room(name, *source), self._loop.room) for name, source in sources.items()}

    def end_early(self) -> None:
        """Let the loop end where its room does."""
        block, body, steps = self._block, self._body, OpInserter(self._block, self._place, self._op.frames)
        start, end_rows = (trips * self._loop.step for trips in (self._loop.start, self._loop.end))
        if self._loop.trips is not None and start:  # trips are counted from a constant
            block.insert_op(self._place, "fill_constant", outputs={"Out": self._added}, attrs=_integer_attrs(start))
            steps = OpInserter(block, self._place, self._op.frames)
        end = steps.add("fill_constant", {}, **_integer_attrs(end_rows))
        goes_on, condition = _declare(block, "goes_on", (1,), VarType.BOOL), self._op.input("Condition")
        for home, place in ((block, self._place), (body, len(body.ops))):
            compared = {"X": [self._added], "Y": [end]}
            if self._loop.trips is not None:
                home.insert_op(place, "less_than", inputs=compared, outputs={"Out": goes_on})
            else:
                is_within = OpInserter(home, place, self._op.frames).add("less_than", compared)
                both = {"X": condition, "Y": is_within}
                home.insert_op(place + 1, "logical_and", inputs=both, outputs={"Out": goes_on})
        self._op.inputs |= {"X": [*self._op.input("X"), *condition, end], "Condition": [goes_on]}
        self._op.outputs["Out"] = [*self._op.output("Out"), goes_on]

    @property
    def _place(self) -> int:
        """The place of the loop in its block."""
        return self._block.ops.index(self._op)

    def _change_body(self) -> None:
        """Let the ops of the block compute with room, and count the rows that a trip adds."""
        loop, ops = self._loop, self._versions.ops
        for index in reversed(range(len(ops))):
            for slot, place in [(slot, place) for number, slot, place in loop.fillers if number == index]:
                self._read_filled(index, slot, place)
            if index in loop.appends:
                self._write_rows(index)
            if index in loop.last_rows:
                self._read_last_rows(index, *loop.last_rows[index])
            if index in loop.means:
                self._divide_sum(index, loop.means[index])
        added, attrs = self._added, {"step": float(loop.step)}
        self._body.insert_op(len(self._body.ops), "increment", inputs={"X": added}, outputs={"Out": added}, attrs=attrs)

    def _read_filled(self, index: int, slot: str, place: int) -> None:
        """Let an op read a copy of a value with a number behind the rows that count."""
        op, value = self._versions.ops[index], self._versions.reads[index][slot][place]
        assert value is not None
        (number, axes), spec = self._loop.fillers[index, slot, place], self._loop.shapes[value]
        if number == -inf and not is_floating(spec.dtype):
            number = float(np.iinfo(spec.dtype.array_dtype).min)
        start = self._body.ops.index(op)
        steps = OpInserter(self._body, start, op.frames)
        shape = list(spec.shape)
        constant = steps.add("fill_constant", {}, shape=shape, dtype=int(spec.dtype), value=number)
        first = self._loop.lengths[value].first
        masks = [self._mask(steps, "less_than", first, axis, shape) for axis in axes]
        is_real = reduce(lambda x, y: steps.add("logical_and", {"X": [x], "Y": [y]}), masks)
        chosen = {"Condition": [is_real], "X": [op.inputs[slot][place]], "Y": [constant]}
        op.inputs[slot][place] = steps.add("where", chosen)

    def _write_rows(self, index: int) -> None:
        """Let an op that appends rows write them to their place."""
        op, (value, _), count = self._versions.ops[index], self._versions.reads[index]["X"], self._loop.step
        assert value is not None
        before, rows = op.input("X")
        shape, ((axis,), first) = list(self._loop.shapes[value].shape), self._loop.lengths[value]
        steps = OpInserter(self._body, self._body.ops.index(op), op.frames)
        if count == 1:
            placed = steps.add("expand_v2", {"X": [rows]}, shape=shape)
            is_there = self._mask(steps, "equal", first, axis, shape)
        else:
            number = steps.add("elementwise_sub", {"X": [self._positions_of(first)], "Y": [self._added]})
            divisor = steps.add("fill_constant", {}, **_integer_attrs(count))
            place = steps.add("elementwise_mod", {"X": [number], "Y": [divisor]})
            placed = steps.add("gather", {"X": [rows], "Index": [place]}, axis=axis)
            is_place = steps.add("equal", {"X": [number], "Y": [place]})
            is_there = self._spread(steps, is_place, axis, shape)
        op.type, op.attrs = "where", {}
        op.inputs = {"Condition": [is_there], "X": [placed], "Y": [before]}

    def _read_last_rows(self, index: int, axis: int, count: int) -> None:
        """Let an op that reads the last rows along an axis read them alone."""
        op, (value,) = self._versions.ops[index], self._versions.reads[index]["Input"]
        assert value is not None
        first = self._loop.lengths[value].first
        steps = OpInserter(self._body, self._body.ops.index(op), op.frames)
        places = self._range(first - count, first)
        places = steps.add("elementwise_add", {"X": [places], "Y": [self._added]}, axis=-1)
        rows = {"X": op.input("Input"), "Index": [places]}
        op.inputs["Input"] = [steps.add("gather", rows, axis=axis)]

    def _divide_sum(self, index: int, count: int) -> None:
        """Let a mean be a sum, divided by so many numbers for each row."""
        op, (value,), (out,) = self._versions.ops[index], self._versions.reads[index]["X"], self._versions.writes[index]["Out"]
        assert value is not None and out is not None
        spec, steps = self._loop.shapes[out], OpInserter(self._body, self._body.ops.index(op), op.frames)
        total = steps.add("reduce_sum", op.inputs, **op.attrs)
        first = float(count * self._loop.lengths[value].first)
        divisor = steps.add("scale", {"X": [self._added]}, scale=float(count), bias=first)
        divisor = steps.add("cast", {"X": [divisor]}, in_dtype=int(VarType.INT64), out_dtype=int(spec.dtype))
        op.type, op.attrs, op.inputs = "elementwise_div", {"axis": -1}, {"X": [total], "Y": [divisor]}

    def _positions_of(self, first: int) -> str:
        """The variable with the positions of rows, minus the length in the first trip."""
        return self._range(-first, self._loop.room - first)

    def _range(self, start: int, end: int) -> str:
        numbers = range(start, end)
        if numbers not in self._ranges:
            self._ranges[numbers] = _declare(self._block, "numbers", (end - start,), VarType.INT64)
        return self._ranges[numbers]

    def _mask(self, steps: OpInserter, relation: str, first: int, axis: int, shape: Sequence[int]) -> str:
        """Compare the positions of rows along an axis with a length, for the elements of a shape."""
        inputs = {"X": [self._positions_of(first)], "Y": [self._added]}
        return self._spread(steps, steps.add(relation, inputs), axis, shape)

    def _spread(self, steps: OpInserter, flat: str, axis: int, shape: Sequence[int]) -> str:
        """Repeat a truth for each row along an axis for all elements of a shape."""
        column = [self._loop.room, *[1] * (len(shape) - axis - 1)]
        turned = steps.add("reshape", {"X": [flat]}, shape=column)
        return steps.add("expand_v2", {"X": [turned]}, shape=list(shape))

    def _pass_room(self, name: str, source: str, former: int) -> str:
        """Let the loop pass a state with room, and give it its first value; returns its variable."""
        spec, axis = self._loop.states[name]
        full = _with_extent(spec, axis, self._loop.room)
        room = _declare(self._block, name, full.shape, spec.dtype)
        for one in (self._op, *self._body.ops):
            one.rename_input(name, room)
            one.rename_output(name, room)
        missing = _with_extent(spec, axis, self._loop.room - former).shape
        zeros = _declare(self._block, name, missing, spec.dtype) if former else room
        attrs = {"shape": list(missing), "dtype": int(spec.dtype), "value": 0.0}
        self._block.insert_op(self._place, "fill_constant", outputs={"Out": zeros}, attrs=attrs)
        if former:
            parts = {"X": [source, zeros]}
            self._block.insert_op(self._place, "concat", inputs=parts, outputs={"Out": room}, attrs={"axis": axis})
        return room
