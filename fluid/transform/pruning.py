"""Programs cut down to what targets need."""

from __future__ import annotations

from collections.abc import Iterable

from ..ir.checked import checked
from ..ir.program import Block, Operator, Program, Variable
from ..ir.regions import is_gradient_op
from ..values.types import VarType


@checked
def prune(program: Program, targets: Iterable[Variable | str], feeds: Iterable[str] = ()) -> Program:
    """A copy of the program with only the ops and variables that the targets need.

    Needs stop at the variables in `feeds`: an op that makes one of them is left out, unless it reads it too (an op that
    overwrites what is fed). An op with a sub-block stays if one of its outputs is needed; in its block, what neither
    those outputs nor its own next round need is left out likewise.

    Raises:
        NameNotFoundError: block 0 declares no such target.
    """
    new = program.clone()
    prune_in_place(new, targets, feeds)
    return new


def prune_in_place(program: Program, targets: Iterable[Variable | str], feeds: Iterable[str] = ()) -> None:
    """What `prune` does, to the program itself."""
    root = program.global_block()
    names = [target if isinstance(target, str) else target.name for target in targets]
    for name in names:
        root.var(name)
    boundary = set(feeds)
    _prune_block(root, set(names), boundary)
    owned = {id(root)}
    stack = [root]
    while stack:
        block: Block | None = stack.pop()
        assert block is not None
        for near in (block.parent, block.forward, *(sub for op in block.ops for sub in op.sub_blocks)):
            if near is not None and id(near) not in owned:
                owned.add(id(near))
                stack.append(near)
    program.blocks = [block for block in program.blocks if id(block) in owned]
    used = {name for block in program.blocks for op in block.ops for name in (*op.input_arg_names, *op.output_arg_names)}
    used.update(names, boundary)
    for index, block in enumerate(program.blocks):
        block._idx = index
        block.vars = {name: var for name, var in block.vars.items() if name in used}
    program._current = 0
    program._changed()


def _overwrites(op: Operator, name: str) -> bool:
    """Whether after this op nothing of the old value of `name` is left."""
    definition = op.definition
    var = op.block.find_var(name)
    if definition is None or op.sub_blocks or var is None or var.type is not VarType.LOD_TENSOR:
        return False
    return all(
        slot in definition.outputs and not definition.outputs[slot].updated for slot, names in op.outputs.items() if name in names
    )


def _prune_block(block: Block, needed: set[str], boundary: set[str]) -> None:
    """Leave out the ops of the root that `needed` does not need."""
    kept = []
    for op in reversed(block.ops):
        outputs, inputs = set(op.output_arg_names), set(op.input_arg_names)
        wanted = {name for name in outputs & needed if name not in boundary or name in inputs}
        if not wanted:
            continue
        kept.append(op)
        needed -= {name for name in wanted if _overwrites(op, name)}
        needed |= inputs
        if op.sub_blocks:
            # Its gradient reads what is local to its block, too.
            local = {name for sub in op.sub_blocks for name in sub.vars if name in needed}
            needed |= _prune_below(op, wanted | inputs | local)
    block.ops = kept[::-1]


def _must_make(op: Operator) -> set[str]:
    """Names that the block of `op` has to write each time it runs, whatever they are used for."""
    if op.type == "recurrent":
        return {*op.output("outputs"), *op.attr("states")}
    if is_gradient_op(op):  # it takes the gradients from its block, where they have names of their own
        return {name for sub in op.sub_blocks for inner in sub.ops for name in inner.output_arg_names}
    return set()


def _prune_below(owner: Operator, needed: set[str]) -> set[str]:
    """Leave out the ops under `owner` that `needed` does not need; the names from outside that the others read.

    These blocks may run again, so every op that writes a needed name, wherever it stands, is needed.
    """
    blocks: dict[int, tuple[Block, Operator]] = {}
    writers: dict[str, list[tuple[Operator, Operator]]] = {}
    stack = [(sub, owner) for sub in owner.sub_blocks]
    while stack:
        block, above = stack.pop()
        if id(block) in blocks:
            continue
        blocks[id(block)] = block, above
        for op in block.ops:
            stack += [(sub, op) for sub in op.sub_blocks]
            for name in op.output_arg_names:
                writers.setdefault(name, []).append((op, above))
    kept: set[int] = {id(owner)}
    outside: set[str] = set()
    names = [*needed, *_must_make(owner)]
    seen = set(names)
    while names:
        for op, above in writers.get(names.pop(), ()):
            chain = [op, above]
            while chain:
                found = chain.pop()
                if id(found) in kept:
                    continue
                kept.add(id(found))
                if id(found.block) in blocks:
                    chain.append(blocks[id(found.block)][1])
                for name in found.input_arg_names:
                    var = found.block.find_var(name)
                    if var is None or id(var.block) not in blocks:
                        outside.add(name)
                more = {*found.input_arg_names, *_must_make(found)} - seen
                seen |= more
                names += more
    for block, _ in blocks.values():
        block.ops = [op for op in block.ops if id(op) in kept]
    return outside
