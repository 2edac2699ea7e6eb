"""Recomputation: forward values are computed again for backward instead of being kept.

Checkpoints cut the forward ops into segments. The values that gradient ops read of a segment, except the last, are computed
again right before them by copies of the forward ops, under names of their own (``x@RECOMPUTE``); so the original values need
not live until then. The gradient ops do not change, and a copy gives the same bits as its original, so neither do gradients.

A segment's copies start from values that are kept: checkpoints, parameters, data, and other values from before the segment.
Such a value is saved if it is overwritten in the meantime, as for gradient ops. A loop, branch or recurrence is copied with its
blocks, and its gradient blocks then belong to the copy. A copy updates (running statistics, a counter, an array) variables of
its own, which start from the old value. The copy of a random op has the attribute ``random_stream`` and draws the same numbers.

The results of ops that cannot run twice are kept: ops with effects outside the program, unknown ops, updates of parameters,
gradient ops that own blocks, and random ops that share an output name.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

from ..errors import BackwardError
from ..ir.copying import _is_random, _random_writers, copy_for_backward, declare_like
from ..ir.dataflow import reads_of
from ..ir.nesting import nested_blocks
from ..ir.program import Block, Operator, OpRole
from ..ir.regions import is_gradient_op, region_of
from ..ir.renaming import redirect
from ..ir.versions import BlockVersions, Value, outer_names
from ..opdef.registry import EMPTY

_SUFFIX = "@RECOMPUTE"
_ONCE = {"feed", "fetch", "print", "py_func", "read", "save", "save_combine", "load", "load_combine", "assert"}
"""Ops that do more than compute their outputs."""


def segment_ends(versions: BlockVersions, names: Iterable[str], end: int) -> list[tuple[int, Value]]:
    """The end of each segment, as a position among the ops before `end`, and its checkpoint; the last segment is left out.

    Parameters and data, which no op computes, are kept in any case and end no segment.
    """
    ends: dict[int, Value] = {}
    for name in dict.fromkeys(names):
        value = versions.before(name, end)
        if value[1]:
            ends[versions.writer[value]] = value
        elif versions.last.get(name, 0) and name not in versions.read_first:
            raise BackwardError(
                f"the checkpoint {name} is computed after the loss, so it divides nothing; name a value before it"
            )
    return sorted((index + 1, value) for index, value in ends.items() if index + 1 < end)


def recomputed(block: Block) -> list[str]:
    """The variables of a block that hold recomputed values."""
    return [name for name in block.vars if _SUFFIX in name]


def copies_of(name: str, among: Sequence[str]) -> list[str]:
    """The variables among the `recomputed` ones that hold values of `name`."""
    if not among:
        return []
    copy = re.compile(rf"{re.escape(name)}({_SUFFIX}(_\d+)?)+")
    return [candidate for candidate in among if copy.fullmatch(candidate)]


def recompute(
    block: Block,
    forward: Sequence[Sequence[Operator]],
    backward: Sequence[Sequence[Operator]],
    checkpoints: Iterable[Value],
    saved: Mapping[Value, str],
) -> None:
    """Make the gradient ops of all segments but the last read recomputed values.

    Args:
        forward, backward: for each segment, its ops and their gradient ops.
        checkpoints: values that are kept.
        saved: value that is copied before it is overwritten -> name of the copy.
    """
    _Recomputation(block, forward, backward, set(checkpoints), saved).run()


class _Recomputation:
    def __init__(
        self,
        block: Block,
        forward: Sequence[Sequence[Operator]],
        backward: Sequence[Sequence[Operator]],
        retained: set[Value],
        saved: Mapping[Value, str],
    ) -> None:
        self.block, self.backward, self.retained = block, backward, retained
        self.saved = dict(saved)
        self.versions = BlockVersions(block)
        self.position = {op: index for index, op in enumerate(self.versions.ops)}
        self.segment = {op: number for number, ops in enumerate(forward) for op in ops}
        self.last = len(forward) - 1
        self._place_saved()
        self.read_first = {
            value[0]
            for index, op in enumerate(self.versions.ops)
            for values in self.versions.reads[index].values()
            for value in values
            if value is not None and value[1] == 0 and not op.sub_blocks
        }
        """Names that need a value before the program runs."""
        self.inserts: dict[int, list[Operator]] = {}
        self.random = _random_writers(block)
        self.names: dict[str, str] = {}
        """In the current segment: name -> name that the copies write instead."""
        self.copied: dict[Value, str] = {}
        """In the current segment: value -> name that holds it again."""

    def _place_saved(self) -> None:
        """Put each op that saves a value before it is overwritten into the segment of the value."""
        for value, name in self.saved.items():
            source = self._segment_of(value)
            if source is not None:
                self.segment[self.versions.ops[self.versions.writer[(name, 1)]]] = source

    def _segment_of(self, value: Value) -> int | None:
        """The segment that computes a value; None if no segment does."""
        index = self.versions.writer.get(value)
        return None if index is None else self.segment.get(self.versions.ops[index])

    def run(self) -> None:
        versions = self.versions
        wanted: list[set[Value]] = [set() for _ in self.backward]
        owner = {op: number for number, ops in enumerate(self.backward) for op in ops}
        for index, op in enumerate(versions.ops):
            if op in self.segment:
                continue
            for value, shape_only in reads_of(self.versions, index).items():
                number = self._segment_of(value)
                if number is None or (shape_only and versions.current(value[0]) == value):
                    continue  # reading a shape keeps nothing alive
                if owner.get(op) == number:
                    wanted[number].add(value)
                elif op in owner:
                    self.retained.add(value)
        for number in range(self.last - 1, -1, -1):
            if self.backward[number]:
                self._recompute(number, wanted[number])
        self._apply()

    # -- what to copy
    def _recompute(self, number: int, wanted: set[Value]) -> None:
        chosen: set[int] = set()
        waiting = sorted(wanted)
        while waiting:
            value = waiting.pop()
            index = self.versions.writer.get(value)
            if index is None or value in self.retained or index in chosen:
                continue
            if self._segment_of(value) != number or not self._can_be_copied(self.versions.ops[index]):
                self.retained.add(value)
                continue
            chosen.add(index)
            for read, shape_only in reads_of(self.versions, index).items():
                if not (shape_only and self.versions.current(read[0]) == read):
                    waiting.append(read)
        self.names, self.copied = {}, {}
        copies: list[Operator] = []
        first = self.backward[number][0]
        for index in sorted(chosen):
            copies += self._copy(index, self.position[first])
        self.inserts.setdefault(self.position[first], []).extend(copies)
        for op in self.backward[number]:
            reads = {value[0]: self.copied[value] for value in reads_of(self.versions, self.position[op]) if value in self.copied}
            redirect(op, reads)

    def _can_be_copied(self, op: Operator) -> bool:
        definition = op.definition
        if definition is None or op.role & OpRole.OPTIMIZE or op.type in _ONCE:
            return False
        if _is_random(op) and self.random[op.output_arg_names[0]] > 1:
            return False
        subs = op.sub_blocks
        if subs and (is_gradient_op(op) or region_of(op) is None or not set(outer_names(subs[0])[1]) <= set(op.output_arg_names)):
            return False
        return all(self._can_be_copied(inner) for sub in subs for inner in sub.ops)

    # -- copying
    def _copy(self, index: int, at: int) -> Iterator[Operator]:
        """A copy of op number `index`, to run before op number `at`; before it, ops that copy the variables which it updates."""
        versions, op = self.versions, self.versions.ops[index]
        reads = {value: self._name_of(value, at) for value in reads_of(self.versions, index) if self._exists(value)}
        updated = list(versions.updates[index].values())
        if op.sub_blocks:  # they may leave variables unchanged
            updated += [versions.before(name, index) for name in op.output_arg_names]
        for value in updated:
            new = self._fresh(value[0])
            if reads.get(value, new) != new:
                yield self._operator("assign", {"X": [reads[value]]}, {"Out": [new]}, op)
            reads[value] = new
        blocks: dict[Block, Block] = {}
        copy = copy_for_backward(op, self.block, blocks)
        if blocks:
            self._move_gradients(op, blocks)
            names = {value[0]: name for value, name in reads.items()} | {n: self._fresh(n) for n in op.output_arg_names}
            redirect(copy, names)
        else:
            for slot, values in versions.reads[index].items():
                copy.inputs[slot] = [EMPTY if value is None else reads[value] for value in values]
            for slot, values in versions.writes[index].items():
                copy.outputs[slot] = [EMPTY if value is None else self._fresh(value[0]) for value in values]
        yield copy
        self.copied.update((value, self._fresh(value[0])) for _, _, value in versions.written_at(index))

    def _move_gradients(self, op: Operator, blocks: Mapping[Block, Block]) -> None:
        """Move the gradient ops of a region, and of nested regions, to its copy; `blocks` maps old blocks to new."""
        outs = {name: self._fresh(name) for name in op.output_arg_names}
        for grad_op in (grad_op for ops in self.backward for grad_op in ops):
            if any(sub.forward is op.sub_blocks[0] for sub in grad_op.sub_blocks):
                for slot in ("Out", "outputs"):
                    if slot in grad_op.inputs:
                        grad_op.inputs[slot] = [outs.get(name, name) for name in grad_op.inputs[slot]]
                for sub in nested_blocks([grad_op]):
                    assert sub.parent is not None
                    sub.parent = blocks.get(sub.parent, sub.parent)
                    sub.forward = blocks.get(sub.forward, sub.forward) if sub.forward is not None else None

    def _exists(self, value: Value) -> bool:
        """Whether a value is computed, persistable, or may be fed."""
        var = self.block.vars.get(value[0])
        return value[1] > 0 or var is None or var.persistable or var.is_data or value[0] in self.read_first

    def _name_of(self, value: Value, at: int) -> str:
        """The name under which op number `at` reads a value: its own, or its copy's name if its own is overwritten."""
        if value in self.copied:
            return self.copied[value]
        name = value[0]
        if name not in self.block.vars or self.versions.before(name, at) == value:
            return name
        if value not in self.saved:
            saved = self.saved[value] = self._declare(self.block.program.fresh_name(name + "@SAVED"), name)
            overwriter = self.versions.writer[(name, value[1] + 1)]
            op = self._operator("assign", {"X": [name]}, {"Out": [saved]}, self.versions.ops[overwriter])
            self.inserts.setdefault(overwriter, []).append(op)
        return self.saved[value]

    def _fresh(self, name: str) -> str:
        """The name that the copies of this segment write instead of `name`."""
        if name not in self.names:
            self.names[name] = self._declare(self.block.program.fresh_name(name + _SUFFIX), name)
        return self.names[name]

    def _declare(self, name: str, like: str) -> str:
        return declare_like(self.block, name, self.block.var(like)).name

    def _operator(self, op_type: str, inputs: dict[str, list[str]], outputs: dict[str, list[str]], source: Operator) -> Operator:
        return Operator(self.block, op_type, inputs, outputs, {OpRole.NAME: OpRole.BACKWARD}, source.frames)

    # -- putting it together
    def _apply(self) -> None:
        ops: list[Operator] = []
        for index, op in enumerate(self.versions.ops):
            ops += self.inserts.get(index, ())
            ops.append(op)
        read = {name for op in ops for name in op.input_arg_names}
        read.update(name for op in ops for sub in op.sub_blocks for name in outer_names(sub)[0])
        idle = {name for name in self.saved.values() if name not in read}
        self.block.ops[:] = [op for op in ops if not (op.type == "assign" and op.outputs["Out"][0] in idle)]
        for name in idle:
            del self.block.vars[name]
        # A block comes after the blocks that it refers to.
        program = self.block.program
        late = {sub for ops_of in self.backward for sub in nested_blocks(ops_of)}
        program.blocks = [*(b for b in program.blocks if b not in late), *(b for b in program.blocks if b in late)]
        for number, block in enumerate(program.blocks):
            block._idx = number
