"""Rewrite loops as recurrences, where it is known how often they run.

A ``while`` stacks the values of its trips in arrays of tensors, whose sizes only running tells. If constants decide how many
trips it makes, and its arrays only collect a value of each trip, it is a ``recurrent``: its results have known shapes, and native
code computes them with the ops around them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple

from fluid.ir.copying import rewritten_copy
from fluid.ir.dataflow import needed_ops
from fluid.ir.program import Block, Operator, Program
from fluid.ir.regions import region_of
from fluid.ir.versions import BlockVersions, Value, outer_names
from fluid.values.spec import Spec
from fluid.values.types import VarType

from ..stepwise.debug import has_effect
from ..stepwise.interpreter import step_captures
from ..stepwise.positions import Affine, affine_values
from .trip_counts import MOST_TRIPS, constants_before, count_trips

__all__ = ["with_recurrences"]

_MOST_BYTES = 1 << 24
"""The most bytes of states that are read after a loop, of all trips: a recurrence stacks them, a loop has the last ones alone."""


def with_recurrences(
    program: Program, instructions: Sequence[Any], specs: Mapping[Value, Spec], fetches: Collection[str]
) -> Program | None:
    """Copy a program with recurrences in place of the loops of block 0 that collect values; None if there is no such loop.

    Args:
        instructions: the instructions of the program's ops, in order.
        specs: the specs of values, as far as they are known.
        fetches: the names that a run returns.
    """
    if not any(instruction.op.type == "while" for instruction in instructions):
        return None
    captured, results = step_captures(program), [value for instruction in instructions for value in instruction.written]
    counts = Counter(name for name, _ in {*specs, *results})
    shapes = {name: spec for (name, _), spec in specs.items() if counts[name] == 1}
    loops = [
        (instruction.op, loop)
        for instruction in instructions
        if instruction.op.type == "while" and (loop := _counted_loop(instruction, specs, shapes, captured, fetches)) is not None
    ]
    return rewritten_copy(program, loops, _replace)


class _CountedLoop(NamedTuple):
    """A loop that is a recurrence.

    Attributes:
        trips: their number.
        items: array -> the number of the op of the block that writes a value of each trip to it.
        states: names that pass from trip to trip.
        finals: the states that are read after the loop.
    """

    trips: int
    items: dict[str, int]
    states: list[str]
    finals: list[str]


def _counted_loop(
    instruction: Any,
    specs: Mapping[Value, Spec],
    shapes: Mapping[str, Spec],
    captured: Collection[str],
    fetches: Collection[str],
) -> _CountedLoop | None:
    """The facts about a loop that is a recurrence; None if it is none."""
    op: Operator = instruction.op
    region = region_of(op)
    assert region is not None, "a loop owns a block"
    versions = BlockVersions(region.body)
    arrays = [name for name in region.writes if _is_array(region.body, name)]
    if not arrays or region.scopes in captured or not all(map(_only_computes, versions.ops)) or _is_stored(op, region.writes):
        return None
    readers = _readers_after(op)
    if any(one.type != "stack_array" for name in arrays for one in readers.get(name, ())) or not {*arrays}.isdisjoint(fetches):
        return None
    items = {name: index for name in arrays if (index := _collecting_op(op, versions, name)) is not None}
    states = [name for name in region.writes if name not in items and versions.last.get(name) and not _stays(versions, name)]
    results = {value[0]: value for value in instruction.written}
    is_settled = all(
        name in results and specs.get(results[name]) is not None and specs[results[name]] == specs.get(instruction.outer[name])
        for name in states
    )
    trips = count_trips(op, region, MOST_TRIPS, shapes) if len(items) == len(arrays) and is_settled else None
    if not trips:
        return None
    finals = [name for name in states if name in readers or name in fetches]
    if trips * sum(specs[results[name]].nbytes for name in finals) > _MOST_BYTES:
        return None
    return _CountedLoop(trips, items, states, finals)


def _only_computes(op: Operator) -> bool:
    return not op.sub_blocks and not has_effect(op) and any(op.outputs.values())


def _is_stored(op: Operator, names: Collection[str]) -> bool:
    """Whether any of these names is a variable that outlives the run."""
    return any((var := op.block.find_var(name)) is None or var.persistable for name in names)


def _is_array(block: Block, name: str) -> bool:
    var = block.find_var(name)
    return var is not None and var.type is VarType.LOD_TENSOR_ARRAY


def _readers_after(op: Operator) -> dict[str, list[Operator]]:
    """Name -> the ops after an op that read it."""
    readers: dict[str, list[Operator]] = {}
    ops = op.block.ops
    for one in ops[ops.index(op) + 1 :]:
        for name in one.input_arg_names:
            readers.setdefault(name, []).append(one)
    return readers


def _collecting_op(op: Operator, versions: BlockVersions, array: str) -> int | None:
    """Find the op that appends one entry in each trip to an array that is empty before the loop; returns its number, or None."""
    uses = [index for index, one in enumerate(versions.ops) if array in (*one.input_arg_names, *one.output_arg_names)]
    earlier = op.block.ops[: op.block.ops.index(op)]
    makers = [one.type for one in earlier if array in (*one.input_arg_names, *one.output_arg_names)]
    if len(uses) != 1 or versions.ops[uses[0]].type != "write_to_array" or makers != ["new_array"]:
        return None
    affine = affine_values(versions)
    (position,) = versions.reads[uses[0]]["I"]
    place = affine.get(position) if position is not None else None
    if place is None or len(place.factors) != 1 or versions.ops[uses[0]].attr("clears"):
        return None
    ((counter, _),) = place.factors
    first = constants_before(op, [counter])
    is_next = affine.get(versions.current(counter)) == Affine(1, ((counter, 1),)) and place.step(counter) is not None
    if not is_next or first is None or place.at({counter: first[counter].item()}) != 0:
        return None
    return uses[0]


def _stays(versions: BlockVersions, name: str) -> bool:
    """Whether a trip leaves a name as it is: the value that it assigns to it in the end is the one from before."""
    value = versions.current(name)
    while value[1] or value[0] != name:
        index = versions.writer.get(value)
        if index is None or versions.ops[index].type != "assign":
            return False
        (source,) = versions.reads[index]["X"]
        if source is None:
            return False
        value = source
    return True


# ------------------------------------------------------------------------------------------------------- rewriting
def _replace(op: Operator, loop: _CountedLoop) -> None:
    """Put a recurrence, and the ops that read its results, in the place of a loop."""
    block, (body,) = op.block, op.sub_blocks
    for name in loop.states:
        outer = block.var(name)
        body.create_var(name=name, dtype=outer.dtype, shape=outer.shape)
    stacks: dict[str, str] = {}
    for array, index in loop.items.items():  # where it is written: a later op of the trip may overwrite the value
        source = body.ops[index].input("X")[0]
        stacks[array] = _stack(body, source, loop.trips, index)
        body.remove_op(index + 1)
    stacks |= {name: _stack(body, name, loop.trips, len(body.ops)) for name in loop.finals}
    states = _prune(body, [*stacks.values()], loop.states)
    trip = block.create_var(name=block.program.fresh_name("trip"), dtype="int64", shape=(loop.trips,))
    body.create_var(name=trip.name, dtype="int64", shape=())
    place = block.ops.index(op)
    block.insert_op(
        place, "fill_constant", outputs={"Out": trip}, attrs={"shape": [loop.trips], "dtype": int(VarType.INT64), "value": 0.0}
    )
    op.type, op.outputs = "recurrent", {"outputs": [*stacks.values()]}
    op.inputs = {"inputs": [trip.name], "initial_states": states, "parameters": outer_names(body)[0]}
    op.attrs = {"sub_block": body, "has_states": bool(states), "ex_states": states, "states": states}
    for name in loop.finals:
        last = {"axes": [0], "starts": [loop.trips - 1], "ends": [loop.trips], "decrease_axis": [0]}
        block.insert_op(place + 2, "slice", inputs={"Input": stacks[name]}, outputs={"Out": name}, attrs=last)
    for reader in block.ops[place + 2 :]:
        if reader.type == "stack_array" and reader.input("X")[0] in loop.items:
            reader.type, reader.attrs, reader.inputs = "assign", {}, {"X": [stacks[reader.input("X")[0]]]}


def _stack(body: Block, name: str, trips: int, place: int) -> str:
    """Let a recurrence stack the values that a name has before an op of its block; returns the name of the stack."""
    source, outer = body.var(name), body.parent
    assert outer is not None, "the body lies in another block"
    stack = body.program.fresh_name(f"{name}.stack")
    outer.create_var(name=stack, dtype=source.dtype, shape=(trips, *source.shape))
    body.create_var(name=stack, dtype=source.dtype, shape=source.shape)
    body.insert_op(place, "assign", inputs={"X": name}, outputs={"Out": stack})
    return stack


def _prune(body: Block, results: Sequence[str], states: Sequence[str]) -> list[str]:
    """Drop the ops on which no result depends; returns the states on which one does."""
    versions = BlockVersions(body)
    needed = {versions.current(name) for name in results}
    body.ops = [versions.ops[index] for index in needed_ops(versions, needed, carried={name: name for name in states})]
    return [name for name in states if (name, 0) in needed]
