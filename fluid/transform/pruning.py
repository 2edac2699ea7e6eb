"""Removes the ops and variables that targets do not need, and the ops that only training needs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ..ir.checked import checked
from ..ir.dataflow import needed_ops, reads_of
from ..ir.nesting import walk
from ..ir.program import Block, Operator, Program, Variable
from ..ir.regions import Region, is_gradient_op, region_of
from ..ir.roles import OpRole
from ..ir.verify import refuse_deep
from ..ir.versions import BlockVersions, Value, outer_names
from ..opdef.registry import Rule

_FEEDING = ("feed", "read")
"""Ops that write the feeds."""


@checked
def prune(program: Program, targets: Iterable[Variable | str], feeds: Iterable[str] = ()) -> Program:
    """A copy of the program with only the ops and variables that the targets need.

    An op that writes a variable in `feeds` is removed, unless it overwrites the fed value: then it, or an op before it, reads it,
    or the variable was declared to be fed (`layers.data`).
    An op with a sub-block stays if one of its outputs is needed; in its block, ops stay if these outputs or the next run need
    them.

    Args:
        program: the program, which stays as it is.
        targets: variables of block 0 to compute, or their names.
        feeds: names of variables that are fed.

    Raises:
        NameNotFoundError: block 0 does not declare a target.

    >>> x = fluid.data("x", [None, 2])
    >>> y, z = layers.relu(x), layers.tanh(x)
    >>> [op.type for op in fluid.io.prune(fluid.default_main_program(), [y]).global_block().ops]
    ['relu']
    """
    new = program.clone()
    prune_in_place(new, targets, feeds)
    return new


def prune_in_place(program: Program, targets: Iterable[Variable | str], feeds: Iterable[str] = ()) -> None:
    """As `prune`, but changes the program itself."""
    refuse_deep(program)
    root = program.global_block()
    names = [target if isinstance(target, str) else target.name for target in targets]
    for name in names:
        root.var(name)
    boundary = set(feeds)
    _prune_block(root, names, boundary)
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


def _prune_block(block: Block, targets: Iterable[str], boundary: set[str]) -> None:
    """Remove the ops of the root, and of the blocks that its ops own, that the targets do not need."""
    versions = BlockVersions(block)

    def is_made_here(value: Value) -> bool:
        """Whether a needed value has to be computed: it is not fed, or overwrites the fed one."""
        name, writer = value[0], versions.writer.get(value)
        if writer is None or name not in boundary:
            return writer is not None
        var, op = block.vars.get(name), versions.ops[writer]
        is_declared = var is not None and var.is_data and op.type not in _FEEDING
        return is_declared or name in versions.read_first or name in op.input_arg_names

    needed = set(filter(is_made_here, map(versions.current, targets)))
    positions = needed_ops(versions, needed, lambda index: filter(is_made_here, reads_of(versions, index)))
    read_by_gradients: dict[Block, set[str]] = {}
    for op in walk(versions.ops[index] for index in positions):
        region = region_of(op)
        if region is not None and region.forward is not None:
            read_by_gradients.setdefault(region.forward, set()).update(outer_names(region.body)[0])
    _keep(block, versions, positions, needed, read_by_gradients)


def _keep(
    block: Block,
    versions: BlockVersions,
    positions: Iterable[int],
    needed: set[Value],
    read_by_gradients: Mapping[Block, set[str]],
) -> None:
    """Keep only the ops at these positions in a block; prune the blocks that these ops own to the ops that `needed` values
    need."""
    block.ops = [versions.ops[index] for index in positions]
    for index in positions:
        op = versions.ops[index]
        wanted = {name for _, _, (name, version) in versions.written_at(index) if (name, version) in needed}
        region = region_of(op)
        if region is not None and not is_gradient_op(op):  # a gradient op needs all of its block
            _prune_inside(op, region, wanted, read_by_gradients)


def _prune_inside(op: Operator, region: Region, wanted: set[str], read_by_gradients: Mapping[Block, set[str]]) -> None:
    """Prune the block that an op owns; `wanted` are the names of the op's needed outputs.

    Values that the op stacks, passes on as states, or reads before each run are always needed.
    """
    versions = BlockVersions(region.body)
    names = {inner for outer, inner in region.leaving.items() if outer in wanted or outer not in region.writes}
    names |= {state.after for state in region.states}
    names |= {name for slot, used in op.inputs.items() if slot != region.reads_slot for name in used}
    names |= read_by_gradients.get(region.body, set())
    needed = {versions.current(name) for name in names}
    positions = needed_ops(versions, needed, carried=region.carried)
    _keep(region.body, versions, positions, needed, read_by_gradients)


def leave_out_training(block: Block) -> None:
    """Remove the ops that only training needs from a block, and from the blocks that its ops own.

    These are updates, learning rates, and gradients that no forward op depends on. All gradients of a block are left out where
    one was written out for training, as `minimize` does before it differentiates it, and would be another in test mode.
    """
    for op in block.ops:
        for body in op.sub_blocks if not op.role & _TRAINING else ():
            _leave_out_inside(op, body)
    if not any(op.role & _TRAINING for op in block.ops):
        return
    versions, needed, positions = BlockVersions(block), set[Value](), list[int]()
    for index in range(len(versions.ops) - 1, -1, -1):
        op = versions.ops[index]
        if op.role & (OpRole.OPTIMIZE | OpRole.LR_SCHED):
            continue
        if not op.role & OpRole.BACKWARD or any(value in needed for _, _, value in versions.written_at(index)):
            positions.append(index)
            needed.update(reads_of(versions, index))
    block.ops = [versions.ops[index] for index in reversed(positions)]
    if any(_is_written_for_training(op, block.ops) for op in block.ops):
        block.ops = [op for op in block.ops if not op.role & OpRole.BACKWARD]


_TRAINING = OpRole.BACKWARD | OpRole.OPTIMIZE | OpRole.LR_SCHED
"""The roles of ops that train."""


def _leave_out_inside(owner: Operator, block: Block) -> None:
    """`leave_out_training` of a block, whose owner no longer lists what only the removed ops read."""
    before = {name for names in outer_names(block) for name in names}
    leave_out_training(block)
    unread = before.difference(*outer_names(block))
    region = region_of(owner)
    if region is not None and region.reads_slot in owner.inputs:
        owner.inputs[region.reads_slot] = [name for name in owner.inputs[region.reads_slot] if name not in unread]


def _is_written_for_training(op: Operator, ops: Iterable[Operator]) -> bool:
    """Whether ops of the backward part are the gradient of an op, as it is in training, in place of its gradient op."""
    rule = op.definition.rule if op.definition is not None else None
    if not isinstance(rule, Rule) or not rule.reads_attr("is_test") or not op.has_attr("is_test") or op.attr("is_test"):
        return False
    names = {*op.input_arg_names, *op.output_arg_names}
    readers = [reader for reader in ops if reader.role & OpRole.BACKWARD and not names.isdisjoint(reader.input_arg_names)]
    return bool(readers) and all(reader.type != rule.definition.grad_type for reader in readers)
