"""The block of a loop as steps on plain tensors.

Entries of arrays of tensors become variables of the block: one variable for each array and position (`Affine`), which is updated
in place. The positions differ from each other in a trip; the loop checks this before it runs. Where that is impossible, since
positions depend on values, or branches use arrays, the arrays are *indexed* (`indexed_arrays.py`): their ops stay steps. Sums
over the trips are variables that are updated in place, too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

from fluid.ir.nesting import nested_blocks
from fluid.ir.program import Operator
from fluid.ir.regions import Region, region_of
from fluid.ir.versions import BlockVersions, Value, outer_names, values_in
from fluid.opdef.parameters import grad_slot
from fluid.opdef.registry import EMPTY, OpDef, get
from fluid.values.types import VarType

from .active_rows import is_over_rank_table, names_of_rows
from .handlers import HANDLERS
from .positions import Affine, affine_values, integer_of
from .row_ops import SHRINKING

__all__ = [
    "BRANCHES",
    "CHOICES",
    "IS_TAKEN",
    "LOOPS",
    "Entry",
    "LoopBody",
    "Slots",
    "Step",
    "is_plain_copy",
    "name_in_branch",
    "total_of",
]

BRANCHES = frozenset({"conditional_block", "conditional_block_infer", "conditional_block_grad"})
"""Types of ops that own a block which runs if a condition holds."""
CHOICES = frozenset({"select_input", "select_output"})
"""Types of ops that choose among the results of branches."""
LOOPS = frozenset({"while", "recurrent", "while_grad", "recurrent_grad"})
"""Types of ops that run a block repeatedly."""
IS_TAKEN = ""
"""A name in each branch: whether the branch has run."""

Slots = Mapping[str, list["Value | None"]]


@dataclass(frozen=True)
class Step:
    """An op on plain tensors, or a branch of such ops.

    Attributes:
        op: the op of the block; None for an op without attributes that is not in the block.
        outer: for a branch, the values of the names that its block reads or writes.
        frame: for the gradient of a branch of another block, the values that the branch has saved.
    """

    op: Operator | None
    definition: OpDef
    reads: Slots
    writes: Slots
    outer: Mapping[str, Value] = field(default_factory=dict)
    frame: Sequence[Value] = ()

    @property
    def owns_loop(self) -> bool:
        return self.op is not None and self.op.type in LOOPS

    @property
    def read(self) -> set[Value]:
        """The values that it reads."""
        if self.owns_loop:
            return {*self.outer.values()}
        if self.op is not None and self.op.type in BRANCHES:
            condition = self.reads["Cond"] if self.op.type != "conditional_block_grad" else []
            return {*self.outer.values(), *self.frame, *(value for value in condition if value is not None)}
        return {*values_in(self.reads)}


@dataclass(eq=False)
class Entry:
    """An entry of an array that trips read or write.

    Attributes:
        name: the variable that holds it.
        array: the array.
        position: its position.
        version: the last version of the variable; 0 if trips only read the entry.
        must_exist: whether a trip needs a value from before the trip; otherwise a missing entry counts as zeros.
        has_active_rows: in a loop over a rank table, whether the entry must have the active rows alone when a trip reads it;
            otherwise it may have more.
        rows_of: in the gradient of such a loop, a name of the forward block with the same number of rows; empty if the entry
            has the active rows.
    """

    name: str
    array: str
    position: Affine
    version: int = 0
    must_exist: bool = False
    has_active_rows: bool = False
    rows_of: str = ""

    @property
    def value(self) -> Value:
        """Its current value."""
        return self.name, self.version


def name_in_branch(scopes: str, name: str) -> str:
    """The variable of a loop's block that holds a name of a branch, whose values are saved in `scopes`."""
    return f"{scopes}/{name}"


def total_of(name: str) -> str:
    """The variable that holds the sum of a name over the trips."""
    return f"{name}.sum"


@dataclass
class LoopBody:
    """The steps of one trip.

    Attributes:
        steps: the ops, in order.
        entries: entries of arrays.
        totals: names of plain tensors that are summed over the trips.
        likes: initial value of a variable that is updated in place -> a value of the same shape and type.
        affine: value -> its sum, for single integers (see `affine_values`).
        rows: names whose rows belong to sequences, in a loop over a rank table (see `active_rows`).
        active: the entry that says which rows are active: the rank table counts as an array of masks.
        shrunk: names from outside with a row for each sequence; trips read their active rows.
        unshrunk: name of a value that may have more than the active rows -> the entry that it was read from.
        condition: the value that tells whether another trip follows; None if the number of trips is known.
        positions: integer that trips read from an array, for the position of another entry -> the entry that it is read from.
        indexed: indexed array from outside -> its value after a trip.
        indexed_totals: indexed array that sums an array over the trips -> the summand after a trip.
    """

    steps: list[Step] = field(default_factory=list)
    entries: list[Entry] = field(default_factory=list)
    totals: list[str] = field(default_factory=list)
    likes: dict[Value, Value] = field(default_factory=dict)
    affine: dict[Value, Affine] = field(default_factory=dict)
    rows: set[str] = field(default_factory=set)
    active: Entry | None = None
    shrunk: set[str] = field(default_factory=set)
    unshrunk: dict[str, Entry] = field(default_factory=dict)
    condition: Value | None = None
    positions: dict[str, Entry] = field(default_factory=dict)
    indexed: dict[str, Value] = field(default_factory=dict)
    indexed_totals: dict[str, Value] = field(default_factory=dict)

    @classmethod
    def of(cls, region: Region, versions: BlockVersions, saved: Mapping[str, Sequence[str]]) -> LoopBody | None:
        """The steps of the block of a region; None if it has ops that only run one by one, or arrays in other roles.

        Args:
            saved: variable of step scopes -> the variables that hold what its branch saves (`name_in_branch`).
        """
        with suppress(_OpByOpError):
            return _Builder(region, versions, saved).body
        return None

    @classmethod
    def with_indexed_arrays(cls, region: Region, versions: BlockVersions, saved: Mapping[str, Sequence[str]]) -> LoopBody | None:
        """The steps as `of` gives them, with indexed arrays; None if the block has no arrays, too."""
        with suppress(_OpByOpError):
            return _IndexingBuilder(region, versions, saved).body
        return None

    @property
    def memories(self) -> set[str]:
        """The indexed arrays, sums included."""
        return {*self.indexed, *self.indexed_totals}

    @property
    def reads(self) -> set[str]:
        """The names that the steps, or the positions of entries, read from before the trip."""
        values = {value for step in self.steps for value in step.read}
        in_place = {entry.name for entry in self.entries} | {total_of(name) for name in self.totals} | self.memories
        return {name for name, version in values if not version and name not in in_place} | self.integers

    @property
    def integers(self) -> set[str]:
        """The integers that positions of entries depend on, except those in `positions`."""
        return {name for entry in self.entries for name, _ in entry.position.factors} - self.positions.keys()

    @property
    def updated(self) -> dict[Value, Value]:
        """Initial -> last value of the variables that are updated in place."""
        totals = {(total_of(name), 0): (total_of(name), 1) for name in self.totals}
        return totals | {(entry.name, 0): entry.value for entry in self.entries if entry.version}


class _OpByOpError(Exception):
    """The block has to run op by op."""


@dataclass(frozen=True)
class _Array:
    """The content of an array in a block.

    Attributes:
        outer: the name of an array from outside that it updates; empty for a new array.
        parts: of a new array, position -> value.
        updates: for a copy of an array from outside, how many entries the trip had written there.
    """

    outer: str
    parts: dict[Affine, Value] = field(default_factory=dict)
    updates: int | None = None


class _Builder:
    """Builds the body of a region's block."""

    def __init__(self, region: Region, versions: BlockVersions, saved: Mapping[str, Sequence[str]]) -> None:
        self._region, self._versions, self._saved = region, versions, saved
        self.body = LoopBody(affine=affine_values(versions))
        self._arrays: dict[Value, _Array] = {}
        self._entries: dict[tuple[str, Affine], Entry] = {}
        self._zeros: set[Value] = set()
        """Entries that this trip has removed, which count as zeros."""
        self._rows_of: dict[Value, str] = {}
        """Gradient of a value before it shrinks -> the name of the value."""
        if is_over_rank_table(region):
            rows = names_of_rows(region.body)
            if rows is None:
                raise _OpByOpError
            self.body.rows = rows
        for index, op in enumerate(versions.ops):
            self._add(index, op)
        self._add_totals()
        self._require_possible()
        passed = [*(state.before for state in region.states), *(name for name, _ in region.slices)]
        passed += [part.inner for part in (*region.stacked, *region.final)]
        if any(name in self.body.rows or self._is_array(name) for name in passed):
            raise _OpByOpError

    def _require_possible(self) -> None:
        """Require that each array is still its own, and that positions are known before the trips."""
        region, versions, body = self._region, self._versions, self.body
        for name in region.writes:
            if self._is_array(name) and self._array(versions.current(name)).outer != name:
                raise _OpByOpError
        afters = {state.before: state.after for state in region.states} | {name: name for name in region.writes}
        for name in body.integers & afters.keys():
            after = body.affine.get(versions.current(afters[name]))
            if after is None or after.step(name) is None:
                raise _OpByOpError

    # -- arrays
    def _is_array(self, name: str) -> bool:
        var = self._region.body.find_var(name) if name != EMPTY else None
        return var is not None and var.type is VarType.LOD_TENSOR_ARRAY

    def _array(self, value: Value) -> _Array:
        if value not in self._arrays:
            if value[1] or value[0] in self._region.body.vars:
                raise _OpByOpError
            self._arrays[value] = _Array(value[0])
        array = self._arrays[value]
        if array.updates not in (None, self._updates(array.outer)):
            raise _OpByOpError  # the copied array has changed
        return array

    def _updates(self, outer: str) -> int:
        """How many entries of an array from outside the trip has written."""
        return sum(entry.version for entry in self.body.entries if entry.array == outer)

    def _entry(self, array: str, position: Affine) -> Entry:
        entry = self._entries.get((array, position))
        if entry is None:
            self._entries[array, position] = entry = Entry(f"{array}[{len(self._entries)}]", array, position)
            self.body.entries.append(entry)
        return entry

    def _update(self, entry: Entry, op_type: str, reads: list[Value | None]) -> None:
        """Let an op compute the next value of an entry."""
        entry.version += 1
        self._step(op_type, reads, entry.value)

    def _accumulate_parts(self, outer: str, array: _Array) -> None:
        """Add the parts of a new array to the entries of an outer one."""
        for position, part in array.parts.items():
            self._accumulate(self._entry(outer, position), part)

    def _accumulate(self, entry: Entry, part: Value) -> None:
        if entry.value in self._zeros:
            self._update(entry, "assign", [part])
        else:
            self.body.likes.setdefault((entry.name, 0), part)
            self._rows_of[entry.value] = entry.rows_of = self._rows_of.get(part, "")
            self._update(entry, "sum", [entry.value, part])

    # -- ops
    def _step(self, op_type: str, reads: list[Value | None], target: Value) -> None:
        self._append(Step(None, get(op_type), {"X": reads}, {"Out": [target]}))

    def _append(self, step: Step) -> None:
        """Append a step. If it reads gradients of values before they shrink, its results have the same rows."""
        names = {self._rows_of.get(value, "") for value in step.read}
        if any(names):
            if len(names) > 1 or step.definition.type not in ("assign", "sum"):
                raise _OpByOpError
            (name,) = names
            self._rows_of |= dict.fromkeys(values_in(step.writes), name)
        self.body.steps.append(step)

    def _add(self, index: int, op: Operator) -> None:
        definition, reads, writes = self._versions.definitions[index], self._versions.reads[index], self._versions.writes[index]
        names = (*op.input_arg_names, *op.output_arg_names)
        if any(map(self._is_array, names)) and not op.sub_blocks:
            self._add_on_arrays(index, op)
        elif definition is None or self._versions.updates[index]:
            raise _OpByOpError
        elif op.type in _OF_RANK_TABLE:
            _OF_RANK_TABLE[op.type](self, op, reads, writes)
        elif op.type in BRANCHES or op.type in LOOPS:
            self._add_owner(index, op, definition)
        elif op.sub_blocks or (op.type in HANDLERS and op.type not in CHOICES):
            raise _OpByOpError
        else:
            self._append(Step(op, definition, reads, writes))

    def _add_on_arrays(self, index: int, op: Operator) -> None:
        handler = _ON_ARRAYS.get(op.type)
        if handler is None:
            raise _OpByOpError
        handler(self, op, self._versions.reads[index], self._versions.writes[index])

    def _pass_arrays(self, names: Iterable[str]) -> None:
        """Note the arrays that a branch uses."""
        if any(map(self._is_array, names)):
            raise _OpByOpError

    def _add_owner(self, index: int, op: Operator, definition: OpDef) -> None:
        """Add a branch or a loop, with the outer values that its blocks read or write."""
        region, versions = region_of(op), self._versions
        assert region is not None, "the op owns a block"
        names = set[str]().union(*outer_names(region.body))
        if op.type in LOOPS:
            names |= {*op.input_arg_names, *op.output_arg_names} - {region.scopes, EMPTY}
            if region.frames is not None or region.scopes in self._saved or any(map(self._is_array, names)):
                raise _OpByOpError  # with a gradient, or arrays
        for block in nested_blocks([op]):
            names -= block.forward.vars.keys() if block.forward is not None else set()
        frame: list[Value] = []
        if region.frames is not None and not versions.before(region.frames, index)[1]:
            frame = [(name, 0) for name in self._saved.get(region.frames, ())]
        self._pass_arrays(names)
        passed = {*(state.before for state in self._region.states), *(name for name, _ in self._region.slices)}
        computed = {name for one in self._region.body.ops for name in one.output_arg_names}
        local = self._region.body.vars.keys() - passed - (computed - versions.last.keys())  # hoisted values are there
        values = {name: versions.before(name, index) for name in names}
        outer = {name: value for name, value in values.items() if value[1] or name not in local}
        self.body.steps.append(Step(op, definition, versions.reads[index], versions.writes[index], outer, frame))

    # -- rows of sequences
    def shrink(self, op: Operator, reads: Slots, writes: Slots) -> None:
        (source,), (table,), position = reads["X"], reads["RankTable"], self._position(reads)
        if source is None or table is None or table[1] or self._region.forward is not None:
            raise _OpByOpError
        if any(name in self.body.positions for name, _ in position.factors):
            raise _OpByOpError
        active = self._entry(table[0], position)
        if self.body.active not in (None, active):
            raise _OpByOpError
        self.body.active, active.must_exist = active, True
        if source[0] not in self.body.rows:
            self.body.shrunk.add(source[0])
        self.body.steps.append(Step(None, get("repeat_first_row"), {"X": [source], "Mask": [active.value]}, writes))

    def widen(self, op: Operator, reads: Slots, writes: Slots) -> None:
        """The gradient of `shrink`: the cotangents of padding rows are zeros in memory already."""
        (like,), (source,), (target,) = reads["X"], reads[grad_slot("Out")], writes[grad_slot("X")]
        if like is None or source is None or target is None:
            raise _OpByOpError
        self._step("assign", [source], target)
        self._rows_of[target] = like[0]

    def _is_only_shrunk(self, name: str) -> bool:
        """Whether all ops that read a name shrink it to its active rows."""
        return all(op.type == SHRINKING for op in self._versions.ops if name in op.input_arg_names)

    def _position(self, reads: Slots) -> Affine:
        (value,) = reads["I"]
        position = self.body.affine.get(value) if value is not None else None
        if position is None:
            raise _OpByOpError
        return position

    def write(self, op: Operator, reads: Slots, writes: Slots) -> None:
        (source,), (target,), position = reads["X"], writes["Out"], self._position(reads)
        if source is None or target is None or self._is_array(source[0]):
            raise _OpByOpError
        if self.body.rows and source[0] not in self.body.rows:
            raise _OpByOpError
        name, version = target
        is_new = version == 1 and name in self._region.body.vars
        array = _Array("") if is_new else self._array((name, version - 1))
        if not array.outer:
            parts = {place: value for place, value in array.parts.items() if place != position}
            self._arrays[target] = _Array("", parts if op.attr("clears") else {**parts, position: source})
            return
        if array.updates is not None:
            raise _OpByOpError  # the copied array stays as it is
        entry = self._entry(array.outer, position)
        entry.rows_of = self._rows_of.get(source, "")
        self._arrays[target] = array
        self._update(entry, "fill_zeros_like" if op.attr("clears") else "assign", [source])
        if op.attr("clears"):
            self._zeros.add(entry.value)

    def read(self, op: Operator, reads: Slots, writes: Slots) -> None:
        (source,), (target,), position = reads["X"], writes["Out"], self._position(reads)
        if source is None or target is None or self._is_array(target[0]):
            raise _OpByOpError
        array, (like,) = self._array(source), reads.get("X_W") or [None]
        if not array.outer:
            if position not in array.parts:
                raise _OpByOpError
            self._step("assign", [array.parts[position]], target)
            return
        entry = self._entry(array.outer, position)
        if not entry.version and like is not None:
            self.body.likes.setdefault(entry.value, like)
        entry.must_exist |= not entry.version and like is None
        if target in self.body.affine and like is None:
            self.body.positions[integer_of(target)] = entry
        if self.body.rows and self._is_only_shrunk(target[0]):
            self.body.unshrunk[target[0]] = entry
        else:
            entry.has_active_rows = True
        self._step("assign", [entry.value], target)

    def copy(self, op: Operator, reads: Slots, writes: Slots) -> None:
        """Let a name stand for another array, as long as this one stays as it is; gradients copy arrays by `scale`, too."""
        (source,), (target,) = reads["X"], writes["Out"]
        if source is None or target is None or (op.type == "scale" and not is_plain_copy(op)):
            raise _OpByOpError
        array = self._array(source)
        self._arrays[target] = replace(array, updates=self._updates(array.outer)) if array.outer else array

    def sum(self, op: Operator, reads: Slots, writes: Slots) -> None:
        (target,), arrays = writes["Out"], [self._array(value) for value in reads["X"] if value is not None]
        outer = [array.outer for array in arrays if array.outer]
        if target is None or len(outer) > 1 or (outer and outer != [target[0]]):
            raise _OpByOpError
        if outer:
            for array in arrays:
                self._accumulate_parts(outer[0], array)
            self._arrays[target] = _Array(outer[0])
        else:
            self._arrays[target] = self._sum_of_parts(arrays, target)

    def _sum_of_parts(self, arrays: Sequence[_Array], target: Value) -> _Array:
        """Sum new arrays, position by position."""
        summands: dict[Affine, list[Value | None]] = {}
        for array in arrays:
            for position, part in array.parts.items():
                summands.setdefault(position, []).append(part)
        parts: dict[Affine, Value] = {}
        for number, (position, values) in enumerate(summands.items()):
            parts[position] = f"{target[0]}[{number}]", target[1]
            self._step("sum", values, parts[position])
        return _Array("", parts)

    def _add_totals(self) -> None:
        for name in dict.fromkeys(part.inner for part in self._region.summed if part.inner != EMPTY):
            last = self._versions.current(name)
            if not last[1]:
                raise _OpByOpError
            if self._is_array(name):
                self._add_array_total(name, last)
            else:
                self.body.totals.append(name)
                self.body.likes[total_of(name), 0] = last
                self._step("sum", [(total_of(name), 0), last], (total_of(name), 1))

    def _add_array_total(self, name: str, last: Value) -> None:
        array = self._array(last)
        if array.outer:
            raise _OpByOpError
        self._accumulate_parts(total_of(name), array)


class _IndexingBuilder(_Builder):
    """Builds the body of a region's block, with indexed arrays."""

    def _require_possible(self) -> None:
        if self.body.rows or self.body.entries or not self.body.memories:
            raise _OpByOpError
        self.body.affine.clear()

    def _add_on_arrays(self, index: int, op: Operator) -> None:
        definition, versions = self._versions.definitions[index], self._versions
        if definition is None or op.type not in _INDEXED:
            raise _OpByOpError
        self._pass_arrays(op.input_arg_names)
        self._pass_arrays(op.output_arg_names)
        reads = dict(versions.reads[index])
        for slot, value in versions.updates[index].items():
            if value[1] or value[0] in self.body.indexed:
                reads[slot] = [value]
        self.body.steps.append(Step(op, definition, reads, versions.writes[index]))

    def _pass_arrays(self, names: Iterable[str]) -> None:
        outer = [name for name in names if self._is_array(name) and name not in self._region.body.vars]
        self.body.indexed |= {name: self._versions.current(name) for name in outer}

    def _add_array_total(self, name: str, last: Value) -> None:
        self.body.indexed_totals[total_of(name)] = last


def is_plain_copy(op: Operator) -> bool:
    """Whether `scale` multiplies by one and adds nothing."""
    attrs = get("scale").defaults(op.attrs)
    return attrs["scale"] == 1.0 and not attrs["bias"] and not op.input("ScaleTensor")


_ON_ARRAYS: dict[str, Callable[[Any, Operator, Slots, Slots], None]] = {
    "write_to_array": _Builder.write,
    "read_from_array": _Builder.read,
    "sum": _Builder.sum,
    **dict.fromkeys(("assign", "scale"), _Builder.copy),
}
"""Type of an op that reads or writes arrays -> how it becomes steps on entries."""
_INDEXED = frozenset({*_ON_ARRAYS, "new_array"})
"""Types of ops that may read or write indexed arrays."""
_OF_RANK_TABLE: dict[str, Callable[[Any, Operator, Slots, Slots], None]] = {
    SHRINKING: _Builder.shrink,
    f"{SHRINKING}_grad": _Builder.widen,
}
"""Type of an op that changes the number of active rows -> how it becomes steps on values that have all rows."""
