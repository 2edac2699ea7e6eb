"""Give room to states of loops that grow by one row in each trip, such as the keys and values that a decoder attends to.

Native code needs the same shapes in each trip. So in a copy of the program such a state, and each value that grows with it, has
the rows of the last trip, and ``concat`` becomes a write to the next row. Behind the rows that count there are zeros in
states, and anything in other values; what would mix these rows with others reads copies that hold a neutral number there.

A loop of many trips becomes several loops, each with room for twice the trips of the loop before it: values may end it early.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from math import inf, prod
from typing import Any, NamedTuple

import numpy as np

from fluid.ir.copying import declare_like, rewritten_copy
from fluid.ir.program import Block, Operator, Program
from fluid.ir.regions import Region, region_of
from fluid.ir.versions import BlockVersions, Value
from fluid.ops.shapes import normalize_axes
from fluid.values.spec import Spec
from fluid.values.types import VarType, is_floating

from ..binding.constants import make_constant
from ..stepwise.inferred_specs import inferred_specs
from ..stepwise.interpreter import step_captures
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
    """The length of a value that grows: `first` in the first trip, and one more in each trip after it.

    Attributes:
        axis: the axis that grows.
        first: the length.
    """

    axis: int
    first: int


@dataclass
class _GrowingLoop:
    """A loop with states that grow, or the stage of one.

    Attributes:
        trips: the number of the trips of all stages; None if values decide.
        start, end: the trips before this stage, and at most after it.
        room: the length of all values that grow, with room.
        states: name -> its spec before the loop, and its axis that grows.
        shapes: value of the block -> its shape with room.
        lengths: value of the block -> its length, for values that grow.
        fillers: (number of an op, slot, place) -> the number that the op reads in the room of this operand.
        appends: the numbers of ops that append a row.
    """

    trips: int | None
    start: int
    end: int
    room: int
    states: dict[str, tuple[Spec, int]]
    shapes: dict[Value, Spec]
    lengths: dict[Value, _Length]
    fillers: dict[tuple[int, str, int], float] = field(default_factory=dict)
    appends: list[int] = field(default_factory=list)


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
    states = _find_states(versions, region, first, in_first)
    variables = [op.block.find_var(name) for name in states]
    if not states or any(var is None or var.persistable for var in variables):
        return []
    second = first | {(name, 0): in_first[versions.current(name)] for name in states}
    try:
        lengths = _find_lengths(versions, region, in_first, _infer_trip(versions, second))
        trips = count_trips(op, region, MOST_TRIPS)
        most = bound_trips(op, region, MOST_TRIPS) if trips is None else trips
        if not most:
            return []
        longest = max(spec.shape[axis] for spec, axis in states.values())
        stages = list[_GrowingLoop]()
        for start, end in pairwise([0, *_stage_ends(op, most)]):
            shapes = {(name, 0): _with_extent(spec, axis, longest + end) for name, (spec, axis) in states.items()}
            if sum(spec.nbytes for spec in shapes.values()) > (_MOST_BYTES if trips is not None else _MOST_GUESSED):
                return []
            stages.append(_GrowingLoop(trips, start, end, longest + end, states, first | shapes, lengths))
            _Analysis(versions, stages[-1], {*_read_values(versions, region)}).run()
    except _UnsuitedError:
        return []
    return stages


def _find_states(
    versions: BlockVersions, region: Region, first: Mapping[Value, Spec], in_first: Mapping[Value, Spec]
) -> dict[str, tuple[Spec, int]]:
    """Find the states that grow in the first trip: name -> spec before the loop, and the axis that grows."""
    states = dict[str, tuple[Spec, int]]()
    for name in region.writes:
        before, after = first.get((name, 0)), in_first.get(versions.current(name))
        axis = _grown_axis(before, after)
        if before is not None and axis is not None:
            states[name] = before, axis
    return states


def _stage_ends(op: Operator, most: int) -> list[int]:
    """The numbers of trips after each stage of a loop; arrays of tensors are collected by one loop alone."""
    block, ends, end = op.block, list[int](), _FIRST_TRIPS
    names = (*op.input_arg_names, *op.output_arg_names)
    has_arrays = any((var := block.find_var(name)) is not None and var.type is VarType.LOD_TENSOR_ARRAY for name in names)
    while 2 * end <= most and not has_arrays:
        ends.append(end)
        end *= 2
    return [*ends, most]


def _grown_axis(before: Spec | None, after: Spec | None) -> int | None:
    """The axis along which a value has grown by one; None if a spec is unknown, or if anything else has changed."""
    if before is None or after is None or before.ndim != after.ndim or before.dtype is not after.dtype:
        return None
    changed = [axis for axis, (old, new) in enumerate(zip(before.shape, after.shape, strict=True)) if old != new]
    return changed[0] if len(changed) == 1 and after.shape[changed[0]] == before.shape[changed[0]] + 1 else None


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
    versions: BlockVersions, region: Region, first: Mapping[Value, Spec], second: Mapping[Value, Spec]
) -> dict[Value, _Length]:
    """Find the lengths of the values that grow, from the specs in the first and in the second trip."""
    lengths = dict[Value, _Length]()
    for value in _read_values(versions, region):
        before, after = first.get(value), second.get(value)
        if before is None or before == after:
            continue
        axis = _grown_axis(before, after)
        if axis is None:
            raise _UnsuitedError
        lengths[value] = _Length(axis, before.shape[axis])
    return lengths


def _read_values(versions: BlockVersions, region: Region) -> Iterator[Value]:
    """The values of a block that an op reads, or that leave it."""
    for reads in versions.reads:
        yield from (value for values in reads.values() for value in values if value is not None)
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
        self._zeros: set[Value] = {(name, 0) for name in loop.states}
        """The values that hold zeros behind the rows that count."""

    def run(self) -> None:
        """Go through the ops; raises `_UnsuitedError` if one cannot compute with room."""
        versions, loop = self._versions, self._loop
        for index, op in enumerate(versions.ops):
            self._visit(index, op)
        for name, (spec, axis) in loop.states.items():
            last = versions.current(name)
            if loop.lengths.get(last) != (axis, spec.shape[axis] + 1) or last not in self._zeros:
                raise _UnsuitedError

    def _visit(self, index: int, op: Operator) -> None:
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
        results = [value for values in writes.values() for value in values if value is not None and value in self._read]
        if op.type == "concat" and results and self._appends(index, op):
            return
        shapes = inferred_specs(op, definition, reads, writes, loop.shapes)
        if shapes is None:
            raise _UnsuitedError
        for value, spec in shapes.items():
            length = loop.lengths.get(value)
            if length is not None and spec.shape[length.axis] != loop.room:
                raise _UnsuitedError
        loop.shapes |= shapes
        if results:
            self._require_suited(index, op, grown, results[0])

    def _appends(self, index: int, op: Operator) -> bool:
        """Note an op if it appends a row to a value that grows; returns whether it does."""
        loop, (out,) = self._loop, self._versions.writes[index]["Out"]
        values = self._versions.reads[index]["X"]
        before = values[0]
        length = loop.lengths.get(before) if before is not None else None
        if before is None or length is None or out is None or self._axis(op, before) != length.axis:
            return False
        row = loop.shapes.get(values[1]) if len(values) == 2 and values[1] is not None else None
        is_row = row is not None and values[1] not in loop.lengths and row.shape[length.axis] == 1
        if not is_row or op.inputs.get("AxisTensor") or loop.lengths.get(out) != (length.axis, length.first + 1):
            raise _UnsuitedError
        loop.shapes[out] = loop.shapes[before]
        loop.appends.append(index)
        if before in self._zeros:
            self._zeros.add(out)
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
        if rule(self, reader):
            self._zeros |= {value for values in self._versions.writes[index].values() for value in values if value in lengths}

    # -- rules: each returns whether results are 0 behind the rows that count
    def _compute_elements(self, reader: _GrownReader) -> bool:
        self._require(reader.after is not None)
        return reader.op.type in _COPIES and self._reads_zeros(reader)

    def _multiply(self, reader: _GrownReader) -> bool:
        if reader.after is None:  # a sum over the axis that grows
            self._require(len(reader.grown) == 2)
            self._fill_room(reader, 0.0)
        return False

    def _reduce(self, reader: _GrownReader) -> bool:
        kind, value = reader.op.type, reader.grown[0][2]
        keeps_axis = kind in _ALONG_AXIS
        is_along_room = self._axis(reader.op, value) == reader.before.axis if keeps_axis else reader.after is None
        if is_along_room:
            self._require(_NEUTRAL[kind] != inf or is_floating(self._loop.shapes[value].dtype))
            self._fill_room(reader, _NEUTRAL[kind])
        return kind == "softmax" and is_along_room

    def _move(self, reader: _GrownReader) -> bool:
        self._require(reader.after is not None)
        assert reader.after is not None
        before, after = self._loop.shapes[reader.grown[0][2]].shape, self._loop.shapes[reader.out].shape
        self._require(prod(before[: reader.before.axis]) == prod(after[: reader.after.axis]))
        return self._reads_zeros(reader)

    def _transpose(self, reader: _GrownReader) -> bool:
        self._require(reader.after is not None)
        assert reader.after is not None
        self._require(reader.op.attr("axis")[reader.after.axis] == reader.before.axis)
        return self._reads_zeros(reader)

    def _join_or_cut(self, reader: _GrownReader) -> bool:
        op = reader.op
        axes = op.attr("axes") if op.type == "slice" else [op.attr("axis")]
        tensors = [slot for slot, names in op.inputs.items() if names and slot not in ("X", "Input")]
        ndim = self._loop.shapes[reader.grown[0][2]].ndim
        self._require(reader.after is not None and not tensors and reader.before.axis not in normalize_axes(axes, ndim))
        self._require(op.type != "concat" or len(reader.grown) == len(op.input("X")))
        return self._reads_zeros(reader)

    def _gather(self, reader: _GrownReader) -> bool:
        axis = 0 if reader.op.attr("axis") is None else int(reader.op.attr("axis"))
        self._require(reader.after == reader.before and reader.grown[0][0] == "X")
        self._require(not reader.op.inputs.get("Axis") and axis != reader.before.axis)
        return self._reads_zeros(reader)

    def _look_up(self, reader: _GrownReader) -> bool:
        self._require(reader.after is not None and [slot for slot, _, _ in reader.grown] == ["Ids"])
        self._fill_room(reader, 0.0)  # ids of the room have to be in the table
        return False

    def _normalize(self, reader: _GrownReader) -> bool:
        is_before = reader.before.axis < reader.op.attr("begin_norm_axis")
        self._require(reader.after == reader.before and is_before and reader.grown[0][0] == "X")
        return False

    def _repeat(self, reader: _GrownReader) -> bool:
        self._require(reader.after is not None and len(reader.grown) == 1 and reader.grown[0][0] == "X")
        return False

    @staticmethod
    def _require(condition: bool) -> None:
        if not condition:
            raise _UnsuitedError

    def _reads_zeros(self, reader: _GrownReader) -> bool:
        """Whether all values that grow hold zeros behind the rows that count."""
        return all(value in self._zeros for _, _, value in reader.grown)

    def _axis(self, op: Operator, value: Value) -> int:
        """The axis of an op, counted from the front."""
        return normalize_axes([op.attr("axis")], self._loop.shapes[value].ndim)[0]

    def _fill_room(self, reader: _GrownReader, number: float) -> None:
        """Let an op read copies of values with a number behind the rows that count."""
        for slot, place, value in reader.grown:
            if number or value not in self._zeros:
                self._loop.fillers[reader.index, slot, place] = number


_RULES: dict[str, Callable[[_Analysis, _GrownReader], bool]] = {
    **dict.fromkeys(_BY_ELEMENT, _Analysis._compute_elements),
    **dict.fromkeys(_PRODUCTS, _Analysis._multiply),
    **dict.fromkeys(_NEUTRAL, _Analysis._reduce),
    **dict.fromkeys(_MOVES, _Analysis._move),
    **dict.fromkeys(_TURNS, _Analysis._transpose),
    **dict.fromkeys(("concat", "split", "slice"), _Analysis._join_or_cut),
    "gather": _Analysis._gather,
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
    trip = _declare(block, "trip", (1,), VarType.INT64)
    block.insert_op(place, "fill_constant", outputs={"Out": trip}, attrs=_integer_attrs(0))
    sources = {name: (name, spec.shape[axis]) for name, (spec, axis) in stages[0].states.items()}
    for loop, stage in zip(loops, stages, strict=True):
        rewriter = _Rewriter(loop, stage, trip)
        if len(stages) > 1:
            rewriter.end_early()
        sources = rewriter.give_room(sources)
    for name, (spec, axis) in stages[0].states.items():
        _cut_room(loops[-1], name, sources[name][0], axis, spec.shape[axis], stages[0].trips, trip)


def _copy_loop(op: Operator) -> Operator:
    """Copy a loop and its block; inner blocks are shared, since no value that grows is read there."""
    body = op.block.program.create_block(parent=op.block)
    for name, var in op.sub_blocks[0].vars.items():
        declare_like(body, name, var)
    body.ops = [_copy_op(one, body) for one in op.sub_blocks[0].ops]
    copy = _copy_op(op, op.block)
    copy.attrs["sub_block"] = body
    return copy


def _copy_op(op: Operator, home: Block) -> Operator:
    """Copy an op."""
    inputs, outputs = ({slot: list(names) for slot, names in slots.items()} for slots in (op.inputs, op.outputs))
    return Operator(home, op.type, inputs, outputs, dict(op.attrs), op.frames)


def _cut_room(op: Operator, name: str, room: str, axis: int, extent: int, trips: int | None, trip: str) -> None:
    """Give a state that has grown from an extent its value after a loop, without room."""
    place, end = op.block.ops.index(op) + 1, dict[str, Any]()
    attrs = {"axes": [axis], "starts": [0], "ends": [extent + (trips or 0)]}
    if trips is None:
        steps = _Inserter(op.block, place)
        end["EndsTensor"] = [steps.add("scale", {"X": [trip]}, [1], VarType.INT64, {"scale": 1.0, "bias": float(extent)})]
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
        trip: the variable that counts its trips.
    """

    def __init__(self, op: Operator, loop: _GrowingLoop, trip: str) -> None:
        self._op, self._loop, self._trip = op, loop, trip
        self._block: Block = op.block
        self._body: Block = op.sub_blocks[0]
        self._versions = BlockVersions(self._body)
        self._positions: dict[int, str] = {}
        """First length -> the variable with the positions of rows minus this length."""
        self._change_body()
        op.inputs["X"] = [*op.input("X"), trip, *self._positions.values()]
        op.outputs["Out"] = [*op.output("Out"), trip]

    def give_room(self, sources: Mapping[str, tuple[str, int]]) -> dict[str, tuple[str, int]]:
        """Let the loop pass states with room.

        Args:
            sources: state -> the variable with its value before, and the length of this value.

        Returns:
            The same after the loop.
        """
        for first, name in self._positions.items():
            type_, attrs = make_constant(np.arange(self._loop.room) - first)
            self._block.insert_op(self._place, type_, outputs={"Out": name}, attrs=attrs)
        return {name: (self._pass_room(name, *source), self._loop.room) for name, source in sources.items()}

    def end_early(self) -> None:
        """Let the loop end where its room does."""
        block, body, steps = self._block, self._body, _Inserter(self._block, self._place)
        if self._loop.trips is not None and self._loop.start:  # trips are counted from a constant
            block.insert_op(self._place, "fill_constant", outputs={"Out": self._trip}, attrs=_integer_attrs(self._loop.start))
            steps = _Inserter(block, self._place)
        end = steps.add("fill_constant", {}, [1], VarType.INT64, _integer_attrs(self._loop.end))
        goes_on, condition = _declare(block, "goes_on", (1,), VarType.BOOL), self._op.input("Condition")
        for home, place in ((block, self._place), (body, len(body.ops))):
            compared = {"X": [self._trip], "Y": [end]}
            if self._loop.trips is not None:
                home.insert_op(place, "less_than", inputs=compared, outputs={"Out": goes_on})
            else:
                is_within = _Inserter(home, place).add("less_than", compared, [1], VarType.BOOL, {})
                both = {"X": condition, "Y": is_within}
                home.insert_op(place + 1, "logical_and", inputs=both, outputs={"Out": goes_on})
        self._op.inputs |= {"X": [*self._op.input("X"), *condition, end], "Condition": [goes_on]}
        self._op.outputs["Out"] = [*self._op.output("Out"), goes_on]

    @property
    def _place(self) -> int:
        """The place of the loop in its block."""
        return self._block.ops.index(self._op)

    def _change_body(self) -> None:
        """Let the ops of the block compute with room, and count the trip."""
        loop, ops = self._loop, self._versions.ops
        for index in reversed(range(len(ops))):
            for slot, place in [(slot, place) for number, slot, place in loop.fillers if number == index]:
                self._read_filled(index, slot, place)
            if index in loop.appends:
                self._write_row(index)
        last = len(self._body.ops)
        self._body.insert_op(last, "increment", inputs={"X": self._trip}, outputs={"Out": self._trip}, attrs={"step": 1.0})

    def _read_filled(self, index: int, slot: str, place: int) -> None:
        """Let an op read a copy of a value with a number behind the rows that count."""
        op, value = self._versions.ops[index], self._versions.reads[index][slot][place]
        assert value is not None
        number, spec = self._loop.fillers[index, slot, place], self._loop.shapes[value]
        if number == -inf and not is_floating(spec.dtype):
            number = float(np.iinfo(spec.dtype.array_dtype).min)
        start = self._body.ops.index(op)
        steps = _Inserter(self._body, start)
        shape = list(spec.shape)
        constant = steps.add("fill_constant", {}, shape, spec.dtype, {"shape": shape, "dtype": int(spec.dtype), "value": number})
        is_real = self._mask(steps, "less_than", self._loop.lengths[value], shape)
        chosen = {"Condition": [is_real], "X": [op.inputs[slot][place]], "Y": [constant]}
        op.inputs[slot][place] = steps.add("where", chosen, shape, spec.dtype, {})

    def _write_row(self, index: int) -> None:
        """Let an op that appends a row write it to its place."""
        op, (value, _) = self._versions.ops[index], self._versions.reads[index]["X"]
        assert value is not None
        before, row = op.input("X")
        spec = self._loop.shapes[value]
        shape = list(spec.shape)
        start = self._body.ops.index(op)
        steps = _Inserter(self._body, start)
        repeated = steps.add("expand_v2", {"X": [row]}, shape, spec.dtype, {"shape": shape})
        is_there = self._mask(steps, "equal", self._loop.lengths[value], shape)
        op.type, op.attrs = "where", {}
        op.inputs = {"Condition": [is_there], "X": [repeated], "Y": [before]}

    def _mask(self, steps: _Inserter, relation: str, length: _Length, shape: Sequence[int]) -> str:
        """Compare the positions of rows with a length, for the elements of a shape."""
        if length.first not in self._positions:
            name = _declare(self._block, "positions", (self._loop.room,), VarType.INT64)
            self._positions[length.first] = name
        inputs = {"X": [self._positions[length.first]], "Y": [self._trip]}
        flat = steps.add(relation, inputs, [self._loop.room], VarType.BOOL, {})
        column = [self._loop.room, *[1] * (len(shape) - length.axis - 1)]
        turned = steps.add("reshape", {"X": [flat]}, column, VarType.BOOL, {"shape": column})
        return steps.add("expand_v2", {"X": [turned]}, shape, VarType.BOOL, {"shape": list(shape)})

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


class _Inserter:
    """Inserts ops before a place of a block.

    Args:
        block: the block.
        place: the place of the next op.
    """

    def __init__(self, block: Block, place: int) -> None:
        self._block, self._place = block, place

    def add(self, type_: str, inputs: Mapping[str, Any], shape: Sequence[int], dtype: VarType, attrs: Mapping[str, Any]) -> str:
        """Insert an op; returns the variable with its result."""
        name = _declare(self._block, type_, shape, dtype)
        self._block.insert_op(self._place, type_, inputs=inputs, outputs={"Out": name}, attrs=attrs)
        self._place += 1
        return name
