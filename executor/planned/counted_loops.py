"""Rewrite loops as recurrences, where it is known how often they run.

A ``while`` stacks the values of its trips in arrays of tensors, whose sizes only running tells. If constants decide how many
trips it makes, and its arrays only collect a value of each trip, it is a ``recurrent``: its results have known shapes, and native
code computes them with the ops around them. Ops that read the arrays later read stacks of their entries.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, NamedTuple

from fluid.ir.copying import declare_like, rewritten_copy
from fluid.ir.dataflow import needed_ops
from fluid.ir.nesting import walk
from fluid.ir.program import Block, Operator, Program, Variable
from fluid.ir.regions import region_of
from fluid.ir.versions import BlockVersions, Value, outer_names
from fluid.values.spec import Spec
from fluid.values.types import VarType

from ..stepwise.debug import has_effect
from ..stepwise.interpreter import step_captures
from ..stepwise.positions import Affine, affine_values
from .op_inserter import OpInserter
from .trip_counts import MOST_TRIPS, constants_before, count_trips

__all__ = ["count_entries", "with_recurrences"]

_MOST_BYTES = 1 << 24
"""The most bytes of states that are read after a loop, of all trips: a recurrence stacks them, a loop has the last ones alone."""


def with_recurrences(
    program: Program, instructions: Sequence[Any], specs: Mapping[Value, Spec], fetches: Collection[str]
) -> Program | None:
    """Copy a program with a recurrence in place of the first loop of block 0 that collects values; None if there is no such loop.

    Args:
        instructions: the instructions of the program's ops, in order.
        specs: the specs of values, as far as they are known.
        fetches: the names that a run returns.
    """
    if not any(instruction.op.type == "while" for instruction in instructions):
        return None
    captured = step_captures(program)
    for instruction in instructions:
        loop = _counted_loop(instruction, specs, captured, fetches) if instruction.op.type == "while" else None
        if loop is not None:
            return rewritten_copy(program, [(instruction.op, loop)], _replace)
    return None


def count_entries(op: Operator, array: str) -> int | None:
    """Count the entries that an array of tensors has after a ``while`` that collects a value of each trip; None if unknown."""
    region = region_of(op)
    assert region is not None, "a loop owns a block"
    trips = count_trips(op, region, MOST_TRIPS)
    item = _collected(op, BlockVersions(region.body), array, trips) if trips else None
    return None if trips is None or item is None else trips + item.has_entry


class _Collected(NamedTuple):
    """An array of tensors that gets one entry in each trip.

    Attributes:
        write: the number of the op of the block that writes it.
        reads: the numbers of the ops that read the entry before it.
        has_entry: whether it has an entry before the loop.
        is_reversed: whether the first trip writes the last entry.
    """

    write: int
    reads: list[int]
    has_entry: bool
    is_reversed: bool


class _CountedLoop(NamedTuple):
    """A loop that is a recurrence.

    Attributes:
        trips: their number.
        items: the arrays that it collects.
        states: names that pass from trip to trip.
        finals: the states that are read after the loop.
    """

    trips: int
    items: dict[str, _Collected]
    states: list[str]
    finals: list[str]


def _counted_loop(
    instruction: Any,
    specs: Mapping[Value, Spec],
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
    if not {*arrays}.isdisjoint(fetches):
        return None
    trips = count_trips(op, region, MOST_TRIPS)
    items = {name: item for name in arrays if trips and (item := _collected(op, versions, name, trips)) is not None}
    if not trips or len(items) != len(arrays) or _needs_sizes(op, versions, items, {*readers, *fetches}):
        return None
    if not all(_reads_entries(op, name, trips + item.has_entry, captured) for name, item in items.items()):
        return None
    states = [name for name in region.writes if name not in items and versions.last.get(name) and not _stays(versions, name)]
    results = {value[0]: value for value in instruction.written}
    is_settled = all(
        name in results and specs.get(results[name]) is not None and specs[results[name]] == specs.get(instruction.outer[name])
        for name in states
    )
    if not is_settled:
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


def _uses(op: Operator, name: str) -> bool:
    """Whether an op reads or writes a name."""
    return name in op.input_arg_names or name in op.output_arg_names


def _reads_entries(op: Operator, array: str, count: int, captured: Collection[str]) -> bool:
    """Whether all ops after a loop, also in blocks of loops, only read the `count` entries of an array."""
    ops = op.block.ops
    users = [one for one in ops[ops.index(op) + 1 :] if _uses(one, array)]
    if any(name == array or name in captured for one in users for name in one.output_arg_names):
        return False
    return all(one.type in _READERS and _reads_within(one, array, count) for one in users)


def _reads_within(op: Operator, array: str, count: int) -> bool:
    """Whether an op, or the block of a loop, reads an array at known positions below `count` alone."""
    if op.type == "read_from_array":
        place = _number_before(op)
        return place is not None and 0 <= place < count
    region = region_of(op)
    if region is None:
        return True
    versions, trips = BlockVersions(region.body), count_trips(op, region, MOST_TRIPS)
    users = [index for index, one in enumerate(versions.ops) if _uses(one, array)]
    is_nested = any(_uses(one, array) for one in walk(region.body.ops) if one.block is not region.body)
    if trips is None or is_nested or any(versions.ops[index].type != "read_from_array" for index in users):
        return False
    places = [_positions(op, versions, index) for index in users]
    return all(place is not None and {place[0], place[0] + place[1] * (trips - 1)} <= {*range(count)} for place in places)


def _needs_sizes(op: Operator, versions: BlockVersions, items: Mapping[str, _Collected], read: Collection[str]) -> bool:
    """Whether sizes of entries are read that are not declared."""
    sized = {array for one in op.block.ops for array in one.input("X") if not {*one.output("OutIndex")}.isdisjoint(read)}
    entries = [_written_by(versions, items[array].write) for array in items if array in sized]
    return any(entry is None or -1 in entry.shape for entry in entries)


def _written_by(versions: BlockVersions, write: int) -> Variable | None:
    """The variable of the entry that an op writes to an array."""
    return versions.block.find_var(versions.ops[write].input("X")[0])


def _collected(op: Operator, versions: BlockVersions, array: str, trips: int) -> _Collected | None:
    """The facts about an array that gets one entry in each trip of a loop; None for another array."""
    uses = [index for index, one in enumerate(versions.ops) if _uses(one, array)]
    writes = [index for index in uses if array in versions.ops[index].output_arg_names]
    former = [one for one in op.block.ops[: op.block.ops.index(op)] if _uses(one, array) and one.type != "new_array"]
    if len(writes) != 1 or versions.ops[writes[0]].type != "write_to_array" or versions.ops[writes[0]].attr("clears"):
        return None
    reads = [index for index in uses if index != writes[0]]
    if any(versions.ops[index].type != "read_from_array" for index in reads):
        return None
    places = {index: _positions(op, versions, index) for index in uses}
    entry = _written_by(versions, writes[0])
    if entry is None or not entry.has_shape or entry.lod_level or entry.shape.count(-1) > 1:
        return None
    if not former:
        is_reversed = trips > 1 and places[writes[0]] == (trips - 1, -1)
        fits = is_reversed or places[writes[0]] in ((0, 1), *([(0, -1)] if trips == 1 else []))
        return _Collected(writes[0], [], False, is_reversed) if fits and not reads else None
    (first, *more) = former
    is_first = not more and first.type == "write_to_array" and not first.attr("clears") and _number_before(first) == 0
    if not is_first or places[writes[0]] != (1, 1) or any(places[index] != (0, 1) for index in reads):
        return None
    before = op.block.find_var(first.input("X")[0])
    if before is None or not before.has_shape or (before.shape, before.dtype, before.lod_level) != (entry.shape, entry.dtype, 0):
        return None
    return _Collected(writes[0], reads, True, False)


def _number_before(op: Operator) -> int | None:
    """The position that an op outside of loops uses; None if constants do not decide it."""
    (name,) = op.input("I")
    values = constants_before(op, [name])
    return None if values is None else int(values[name].item())


def _positions(op: Operator, versions: BlockVersions, index: int) -> tuple[int, int] | None:
    """The position that an op of a loop's block uses in the first trip, and its step from trip to trip; None if unknown."""
    affine, (position,) = affine_values(versions), versions.reads[index]["I"]
    place = affine.get(position) if position is not None else None
    if place is None:
        return None
    names = [name for name, _ in place.factors]
    steps = [0 if not versions.last.get(name) else _step(affine, versions, name) for name in names]
    values = constants_before(op, names)
    if values is None or None in steps:
        return None
    first = place.at({name: values[name].item() for name in names})
    return first, place.at(dict(zip(names, steps, strict=True))) - place.constant


def _step(affine: Mapping[Value, Affine], versions: BlockVersions, name: str) -> int | None:
    """The difference of an integer from trip to trip, if it is constant."""
    last = affine.get(versions.current(name))
    return None if last is None else last.step(name)


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
    inner = list(body.ops)
    for name in loop.states:
        outer = block.var(name)
        body.create_var(name=name, dtype=outer.dtype, shape=outer.shape)
    stacks: dict[str, str] = {}
    entries: dict[str, str] = {}
    """Array -> the state that holds its last entry; outside, it holds the entry before the loop."""
    for array, item in loop.items.items():  # where it is written: a later op of the trip may overwrite the value
        write = inner[item.write]
        stacks[array] = _stack(body, write.input("X")[0], loop.trips, body.ops.index(write))
        if item.has_entry:
            entries[array] = _pass_entry(write, [inner[index] for index in item.reads], block)
        else:
            body.remove_op(body.ops.index(write))
    stacks |= {name: _stack(body, name, loop.trips, len(body.ops)) for name in loop.finals}
    states = _prune(body, [*stacks.values()], [*loop.states, *entries.values()])
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
    steps = OpInserter(op.block, place + 2, op.frames)
    for array, item in loop.items.items():
        stack, count = stacks[array], loop.trips
        if item.is_reversed:
            stack = steps.add("reverse", {"X": [stack]}, axis=[0])
        if array in entries:
            first = steps.add("unsqueeze", {"X": [entries[array]]}, axes=[0])
            stack, count = steps.add("concat", {"X": [first, stack]}, axis=0), count + 1
        for reader in [one for one in walk(block.ops[steps.place :]) if array in one.input_arg_names]:
            _READERS[reader.type](reader, array, stack, count)


def _pass_entry(write: Operator, reads: Sequence[Operator], block: Block) -> str:
    """Let a loop pass the last entry of an array from trip to trip; returns the state that holds it.

    Args:
        write: the op of the loop's block that writes the array.
        reads: the ops that read the entry before it.
        block: the block of the loop, where the array gets its first entry.
    """
    (first,) = (one for one in block.ops if one.type == "write_to_array" and one.output("Out") == write.output("Out"))
    (source,) = first.input("X")
    name: str = block.program.fresh_name(f"{source}.entry")
    for home in (block, write.block):
        declare_like(home, name, block.var(source))
    block.insert_op(block.ops.index(first), "assign", inputs={"X": source}, outputs={"Out": name})
    for read in reads:
        read.type, read.inputs = "assign", {"X": [name]}
    write.type, write.inputs, write.outputs = "assign", {"X": write.input("X")}, {"Out": [name]}
    return name


# Each makes an op that reads an array of tensors read the stack of its entries.
def _read_all(op: Operator, array: str, stack: str, count: int) -> None:
    op.type, op.attrs, op.inputs = "assign", {}, {"X": [stack]}


def _join(op: Operator, array: str, stack: str, count: int) -> None:
    """Write `tensor_array_to_tensor`."""
    steps, shape = OpInserter(op.block, op.block.ops.index(op), op.frames), op.block.var(stack).shape
    rank = len(shape) - (not op.attr("use_stack"))
    axis = int(op.attr("axis")) % rank
    order = [*range(1, axis + 1), 0, *range(axis + 1, len(shape))]
    entry = (*shape[1:], 1)[axis]
    for name in op.outputs.pop("OutIndex", []):
        steps.add("fill_constant", {}, name, shape=[count], dtype=int(VarType.INT32), value=float(entry))
    turned = steps.add("transpose", {"X": [stack]}, axis=order) if axis else stack
    if op.attr("use_stack"):
        _read_all(op, array, turned, count)
    else:
        joined = [*shape[1 : axis + 1], count * entry if entry >= 0 else -1, *shape[axis + 2 :]]
        op.type, op.attrs, op.inputs = "reshape", {"shape": joined}, {"X": [turned]}


def _count_entries(op: Operator, array: str, stack: str, count: int) -> None:
    op.type, op.inputs = "fill_constant", {}
    op.attrs = {"shape": [1], "dtype": int(VarType.INT64), "value": float(count)}


def _read_entry(op: Operator, array: str, stack: str, count: int) -> None:
    steps = OpInserter(op.block, op.block.ops.index(op), op.frames)
    entry = steps.add("gather", {"X": [stack], "Index": op.input("I")}, axis=0)
    op.type, op.attrs, op.inputs = "squeeze", {"axes": [0]}, {"X": [entry]}


def _pass_stack(op: Operator, array: str, stack: str, count: int) -> None:
    op.rename_input(array, stack)


_READERS: dict[str, Callable[[Operator, str, str, int], None]] = {
    "stack_array": _read_all,
    "tensor_array_to_tensor": _join,
    "lod_array_length": _count_entries,
    "read_from_array": _read_entry,
    "while": _pass_stack,
}
"""Type of an op that may read an array of a loop -> what makes it read the stack of the array's entries."""


def _stack(body: Block, name: str, trips: int, place: int) -> str:
    """Let a recurrence stack the values that a name has before an op of its block; returns the name of the stack."""
    source, outer = body.find_var(name), body.parent
    assert source is not None and outer is not None, "the body lies in another block"
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
