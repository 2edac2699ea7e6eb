"""Inputs of gradient ops that a version of Paddle does not list, and ours read: the forward ops have them."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator

from ..ir.program import Block, Operator
from ..opdef.registry import grad_slot

Names = dict[str, list[str]]
"""Slot -> names of variables."""


def missing_inputs(blocks: Iterable[Block]) -> Iterator[tuple[Operator, Names]]:
    """Gradient ops that lack inputs, with the names to fill in, where one op fits and nothing has overwritten them since."""
    writers: dict[int, _Writers] = {}
    for block in blocks:
        for position, op in enumerate(block.ops):
            lacking = _lacking(op)
            for source in [block, block.forward] if lacking else []:
                if source is not None:
                    if source.idx not in writers:
                        writers[source.idx] = _Writers(source)
                    end = position if source is block else len(source.ops)
                    names = writers[source.idx].names_for(op, lacking, end)
                    if names:
                        yield op, names
                        break


def _lacking(op: Operator) -> list[str]:
    """The slots of the forward op that the gradient op should read, and does not."""
    definition = op.definition
    if definition is None or definition.forward is None:
        return []
    slots = [name for name, slot in definition.inputs.items() if not slot.optional and not op.inputs.get(name)]
    return [slot for slot in slots if slot in definition.forward.inputs or slot in definition.forward.outputs]


class _Writers:
    """The positions of the ops of a block that write each name."""

    def __init__(self, block: Block) -> None:
        self._ops, self._positions = block.ops, dict[str, list[int]]()
        for position, op in enumerate(block.ops):
            for name in set(op.output_arg_names):
                self._positions.setdefault(name, []).append(position)

    def names_for(self, op: Operator, lacking: list[str], end: int) -> Names:
        """The inputs to fill in at a gradient op, from its forward op before the position `end`; none if they are in doubt."""
        assert op.definition is not None and op.definition.forward is not None
        gradients = [name for slot in op.definition.forward.outputs for name in op.inputs.get(grad_slot(slot), [])]
        positions = self._positions.get(gradients[0].rpartition("@GRAD")[0], []) if gradients else []
        if len(positions) != 1 or positions[0] >= end:
            return {}
        forward = self._ops[positions[0]]
        slots = {**forward.inputs, **forward.outputs}
        if forward.type != op.definition.forward.type or any(op.inputs[slot] != slots[slot] for slot in op.inputs.keys() & slots):
            return {}
        names = {slot: list(slots[slot]) for slot in lacking if slots.get(slot)}
        read = [name for slot in names if not op.definition.inputs[slot].shape_only for name in names[slot]]
        return {} if any(self._is_written(name, forward, positions[0], end) for name in read) else names

    def _is_written(self, name: str, forward: Operator, start: int, end: int) -> bool:
        """Whether an op between two positions writes a name, or the forward op has written over it."""
        positions = self._positions.get(name, [])
        following = bisect_right(positions, start)
        overwrites = name in forward.output_arg_names and name in forward.input_arg_names
        return overwrites or (following < len(positions) and positions[following] < end)
