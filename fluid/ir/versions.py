"""Versions of names: a program may overwrite a name, so analyses number the values that it takes within a block.

Version 0 of a name is its value when the block starts; each op that writes the name makes the next version.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence

from ..errors import InferenceError
from ..opdef.inference import infer_specs
from ..opdef.registry import EMPTY, OpDef
from ..values.types import VarType
from .inference import add_output, declared_specs, gather_specs
from .program import Block, Operator

Value = tuple[str, int]
"""A name and its version in a block."""


def values_in(slots: Mapping[str, Sequence[Value | None]]) -> Iterator[Value]:
    """The values in some slots; empty positions are left out."""
    return (value for values in slots.values() for value in values if value is not None)


class BlockVersions:
    """The values that each op of a block reads and writes.

    Args:
        block: the block.
        unwritten: (number of an op, output slot) that count as absent.
        without: ops of the block that count as absent.

    Attributes:
        ops: the block's ops when this object was created.
        definitions: the definition of each op, None if it has none here.
        reads, writes: for each op, slot -> values, None at an empty position of the slot.
        updates: for each op, output slot -> the value before, for outputs that the op updates.
        last: name -> its last version, for names that the block writes.
        read_first: names whose version 0 some op reads.
        writer: value -> position of the op that writes it.
    """

    __slots__ = ("_one_shape", "block", "definitions", "last", "ops", "read_first", "reads", "updates", "writer", "writes")

    def __init__(self, block: Block, unwritten: Collection[tuple[int, str]] = (), without: Collection[Operator] = ()) -> None:
        self.block = block
        self.ops: list[Operator] = [op for op in block.ops if op not in without] if without else list(block.ops)
        self.definitions = [op.definition for op in self.ops]
        self.reads: list[dict[str, list[Value | None]]] = []
        self.writes: list[dict[str, list[Value | None]]] = []
        self.updates: list[dict[str, Value]] = []
        self.last: dict[str, int] = {}
        self.writer: dict[Value, int] = {}
        self.read_first: set[str] = set()
        self._one_shape: dict[str, bool] = {}
        last, read_first, writer = self.last, self.read_first, self.writer
        for index, (op, definition) in enumerate(zip(self.ops, self.definitions, strict=True)):
            reads: dict[str, list[Value | None]] = {}
            values: list[Value | None]
            for slot, names in op.inputs.items():
                reads[slot] = values = []
                for name in names:
                    version = last.get(name, 0)
                    if name == EMPTY:
                        values.append(None)
                        continue
                    if not version:
                        read_first.add(name)
                    values.append((name, version))
            self.reads.append(reads)
            self.updates.append(self._updated(op, definition) if definition is not None and definition.updated else {})
            writes: dict[str, list[Value | None]] = {}
            for slot, names in op.outputs.items():
                writes[slot] = values = []
                for name in names:
                    if name == EMPTY or (index, slot) in unwritten:
                        values.append(None)
                        continue
                    last[name] = version = last.get(name, 0) + 1
                    value = name, version
                    writer[value] = index
                    values.append(value)
            self.writes.append(writes)

    def _updated(self, op: Operator, definition: OpDef) -> dict[str, Value]:
        """Slot -> the value that the op updates."""
        updates: dict[str, Value] = {}
        for slot in definition.updated:
            if op.outputs.get(slot):
                name = op.outputs[slot][0]
                updates[slot] = (name, self.last.get(name, 0))
                if name not in self.last:
                    self.read_first.add(name)
        return updates

    def add_output(self, index: int, slot: str) -> None:
        """Give op number `index` an output that it lacks, as new variables."""
        op = self.ops[index]
        add_output(op, slot)
        self.writes[index][slot] = [(name, 1) for name in op.outputs[slot]]
        for name in op.outputs[slot]:
            self.last[name] = 1
            self.writer[(name, 1)] = index

    def names(self) -> set[str]:
        """All names that ops of the block read or write."""
        return self.read_first | self.last.keys()

    def current(self, name: str) -> Value:
        """The value of the name when the block ends."""
        return name, self.last.get(name, 0)

    def before(self, name: str, index: int) -> Value:
        """The value of the name just before op number `index` runs."""
        version = self.last.get(name, 0)
        while version and self.writer[(name, version)] >= index:
            version -= 1
        return name, version

    def written_at(self, index: int) -> Iterator[tuple[str, int, Value]]:
        """(slot, position, value) of everything that op number `index` writes."""
        for slot, values in self.writes[index].items():
            for position, value in enumerate(values):
                if value is not None:
                    yield slot, position, value

    def read_at(self, index: int) -> Iterator[tuple[str, int, Value]]:
        """(slot, position, value) of everything that op number `index` reads, updated outputs included."""
        for slot, values in self.reads[index].items():
            for position, value in enumerate(values):
                if value is not None:
                    yield slot, position, value
        for slot, value in self.updates[index].items():
            yield slot, 0, value

    def has_one_shape(self, name: str) -> bool:
        """Whether all values of a name that this block overwrites are sure to have the declared shape, and no sequences."""
        if name in self._one_shape:
            return self._one_shape[name]
        checked, waiting = {name}, [name]
        is_one = True
        while waiting and is_one:
            inputs = self._overwritten_inputs(waiting.pop())
            is_one = inputs is not None
            more = set(inputs or ()) - checked
            checked |= more
            waiting += more
        self._one_shape.update(dict.fromkeys(checked, True) if is_one else {name: False})
        return is_one

    def _overwritten_inputs(self, name: str) -> set[str] | None:
        """Overwritten names that the writers of `name` read; None if one may write another shape than the declared, or sequences.

        Inference starts from declared shapes, so its answer holds only if those names keep theirs too.
        """
        var = self.block.var(name)
        if var.type is VarType.LOD_TENSOR_ARRAY:  # how many entries an array has, changes
            return None
        if var.type is not VarType.LOD_TENSOR:
            return set()
        if not var.has_shape or -1 in var.shape or var.lod_level:
            return None
        inputs: set[str] = set()
        for version in range(1, self.last.get(name, 0) + 1):
            op = self.ops[self.writer[(name, version)]]
            definition = op.definition
            if definition is None or (definition.infer is None and definition.forward is None):
                continue
            try:
                specs = infer_specs(definition, gather_specs(op), op.attrs, declared_specs(op))
            except InferenceError:
                return None
            for slot, names in op.outputs.items():
                inferred = specs.get(slot)
                for candidate, spec in zip(names, inferred if isinstance(inferred, list) else [inferred], strict=False):
                    if candidate == name and (spec is None or spec.shape != var.shape or spec.lod):
                        return None
            inputs.update(n for n in op.input_arg_names if self.last.get(n, 0) > (0 if n in self.read_first else 1))
        return inputs


def reads_and_writes(block: Block) -> tuple[list[str], list[str]]:
    """Names that a block reads before it writes them, and names that it writes, each in order of first use.

    What a sub-block reads and writes counts as read and written by the op that owns it.
    """
    reads: dict[str, None] = {}
    writes: dict[str, None] = {}
    for op in block.ops:
        names = dict.fromkeys(op.input_arg_names)
        op_writes = dict.fromkeys(op.output_arg_names)
        definition = op.definition
        if definition is not None:
            for slot, described in definition.outputs.items():
                if described.updated:
                    names.update(dict.fromkeys(op.outputs.get(slot, ())))
        for sub in op.sub_blocks:
            inner_reads, inner_writes = outer_names(sub)
            names.update(dict.fromkeys(inner_reads + inner_writes))  # a block that does not run leaves the old values
            op_writes.update(dict.fromkeys(inner_writes))
        reads.update((name, None) for name in names if name not in writes)
        writes.update(op_writes)
    return list(reads), list(writes)


def outer_names(block: Block) -> tuple[list[str], list[str]]:
    """`reads_and_writes` of a block, limited to names that are declared outside it."""
    reads, writes = reads_and_writes(block)
    return [name for name in reads if name not in block.vars], [name for name in writes if name not in block.vars]
