"""Checks that a program is well formed, and reports every fault at once, each with the ops around it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ..errors import ProgramError, did_you_mean
from ..opdef.registry import EMPTY, Slot
from .program import MOST_DEPTH, Block, Operator, Program, crowded_slots

_AROUND = 2
_MOST = 20
_MOST_NAMES = 300


@dataclass(frozen=True)
class Finding:
    """One fault: a message, the block and, for a fault of an op, the op's position."""

    message: str
    block: Block
    position: int | None = None

    @property
    def op(self) -> Operator | None:
        return self.block.ops[self.position] if self.position is not None else None

    def __str__(self) -> str:
        op = self.op
        if op is None:
            return f"block {self.block.idx}: {self.message}"
        lines = [f"block {self.block.idx}, op {self.position} ({op.type}): {self.message}"]
        frame = op.user_frame
        if frame is not None:
            lines.append(f"  made at: {frame[0]}:{frame[1]} in {frame[2]}")
        return "\n".join(lines)

    def neighbourhood(self) -> str:
        """The ops around the fault, one a line, the faulty one marked."""
        if self.position is None:
            return ""
        start, end = max(0, self.position - _AROUND), self.position + _AROUND + 1
        around = enumerate(self.block.ops[start:end], start)
        return "\n".join(f"  {'>' if number == self.position else ' '} {number}: {op}" for number, op in around)


def verify(program: Program) -> None:
    """Check that names resolve, slots and attributes are legal, and blocks form a tree.

    Of ops without a definition, only the names are checked. Reading a name before it is written is not a fault.

    Raises:
        ProgramError: lists every fault, with the op, the user's line that made it, and the ops around it.
    """
    faults = find_faults(program)
    if faults:
        raise ProgramError(f"the program has {describe_faults(faults)}")


def describe_faults(faults: Sequence[Finding]) -> str:
    """How many faults there are, and each of them with the ops around it."""
    count = "a fault" if len(faults) == 1 else f"{len(faults)} faults"
    parts = [count]
    for number, fault in enumerate(faults[:_MOST]):
        parts.append(str(fault))
        following = faults[number + 1] if number + 1 < min(len(faults), _MOST) else None
        if following is None or (following.block, following.position) != (fault.block, fault.position):
            parts.append(fault.neighbourhood())
    if len(faults) > _MOST:
        parts.append(f"... {len(faults) - _MOST} more")
    return "\n".join(filter(None, parts))


def find_faults(program: Program) -> list[Finding]:
    """Every fault of a program, block by block; see `verify`."""
    faults = list(_check_tree(program))
    if faults:
        return faults  # names cannot be looked up along broken links, nor along thousands of them for each name
    for block in program.blocks:
        faults += _check_vars(block)
        for position, op in enumerate(block.ops):
            messages = _check_op(op, block, has_hints=len(faults) < _MOST)
            faults += [Finding(message, block, position) for message in messages]
    return faults


def self_owning(blocks: Sequence[Block]) -> tuple[Block, Block] | None:
    """A block owned by an op inside it, directly or through other blocks, and the op's block; None if there is none."""
    open_, done = 1, 2
    state = [0] * len(blocks)
    for root in blocks:
        if state[root.idx]:
            continue
        stack = [(root, iter([sub for op in root.ops for sub in op.sub_blocks]))]
        state[root.idx] = open_
        while stack:
            block, owned = stack[-1]
            for sub in owned:
                if state[sub.idx] == open_:
                    return sub, block
                if not state[sub.idx]:
                    state[sub.idx] = open_
                    stack.append((sub, iter([deeper for op in sub.ops for deeper in op.sub_blocks])))
                    break
            else:
                state[block.idx] = done
                stack.pop()
    return None


def faults_of(op: Operator) -> list[str]:
    """The faults of one op."""
    return list(_check_op(op, op.block))


def reason_of(op: Operator, error: Exception) -> str:
    """Explain why work on an op failed with `error`: the op's faults if there are any, else the error itself."""
    return "; ".join(faults_of(op)) or f"its slots and attributes do not fit together: {type(error).__name__}: {error}"


def refuse_deep(program: Program) -> None:
    """Raise `ProgramError` if ops own blocks nested more deeply than recursive analyses can go."""
    reason = too_deep(program)
    if reason:
        raise ProgramError(reason)


def too_deep(program: Program) -> str:
    """Why the blocks of a program are nested too deeply; "" if they are not."""
    if len(program.blocks) <= MOST_DEPTH:
        return ""
    for is_deep, how in ((_is_deep_by_owners, "by ops that own them"), (_is_deep_by_parents, "by their parents")):
        if is_deep(program):
            return f"blocks are nested more than {MOST_DEPTH} deep, {how}; a program may nest {MOST_DEPTH} at most"
    return ""


def _is_deep_by_owners(program: Program) -> bool:
    """Whether blocks are nested too deeply, judged by the ops that own them."""
    owned = {id(sub) for block in program.blocks for op in block.ops for sub in op.sub_blocks}
    level = [block for block in program.blocks if id(block) not in owned]
    depth = 0
    while level and depth <= MOST_DEPTH:
        depth += 1
        level = list({id(sub): sub for block in level for op in block.ops for sub in op.sub_blocks}.values())
    return depth > MOST_DEPTH


def _is_deep_by_parents(program: Program) -> bool:
    """Whether blocks are nested too deeply, judged by their parents."""
    depths: dict[int, int] = {}
    for block in program.blocks:
        path: dict[int, Block] = {}
        at: Block | None = block
        while at is not None and id(at) not in depths and id(at) not in path:  # or some are in a circle
            path[id(at)] = at
            at = at.parent
        depth = depths.get(id(at), 0)
        for number in reversed(path):
            depth += 1
            depths[number] = depth
    return max(depths.values()) > MOST_DEPTH


def _check_tree(program: Program) -> Iterator[Finding]:
    members = {id(block) for block in program.blocks}
    broken = False
    for index, block in enumerate(program.blocks):
        if block.idx != index:
            yield Finding(f"it stands at position {index} of the program", block)
        for relation, related in (("parent", block.parent), ("forward", block.forward)):
            if related is not None and id(related) not in members:
                broken = True
                yield Finding(f"its {relation} block is not in this program", block)
        if index == 0 and block.parent is not None:
            yield Finding(f"the root has a parent, block {block.parent_idx}", block)
        if index and block.parent is None:
            yield Finding("it has no parent; only block 0, the root, has none", block)
    if not broken:
        for block in on_cycles(program):
            broken = True
            yield Finding("it is its own ancestor, by way of its parent blocks", block)
    if not broken and (reason := too_deep(program)):
        broken = True
        yield Finding(reason, program.global_block())
    owners: dict[int, tuple[Block, int]] = {}
    for block in program.blocks:
        for position, op in enumerate(block.ops):
            for sub in op.sub_blocks:
                if id(sub) not in members:
                    yield Finding(f"it owns block {sub.idx}, which is not in this program", block, position)
                    continue
                first = owners.setdefault(id(sub), (block, position))
                if first != (block, position):
                    message = f"it owns block {sub.idx}, which op {first[1]} of block {first[0].idx} owns already"
                    yield Finding(message, block, position)
                if not broken and _is_inside(block, sub):
                    yield Finding(f"it owns block {sub.idx}, in which it stands itself", block, position)


def on_cycles(program: Program) -> Iterator[Block]:
    """Blocks that are their own ancestors, one of each cycle."""
    done: set[int] = set()
    for block in program.blocks:
        path: dict[int, Block] = {}
        at: Block | None = block
        while at is not None and id(at) not in done and id(at) not in path:
            path[id(at)] = at
            at = at.parent
        if at is not None and id(at) in path:
            yield at
        done.update(path)


def _is_inside(block: Block | None, ancestor: Block) -> bool:
    """Whether `ancestor` is `block` or one around it."""
    while block is not None and block is not ancestor:
        block = block.parent
    return block is not None


def _check_vars(block: Block) -> Iterator[Finding]:
    for name, var in block.vars.items():
        if var.name != name:
            yield Finding(f"the variable listed as {name!r} calls itself {var.name!r}", block)
        if var.block is not block:
            yield Finding(f"the variable {name!r} says that it belongs to block {var.block.idx}", block)


def _check_op(op: Operator, block: Block, has_hints: bool = True) -> Iterator[str]:
    if op.block is not block:
        yield f"it says that it belongs to block {op.block.idx}"
    for verb, slots in (("reads", op.inputs), ("writes", op.outputs)):
        for slot, names in slots.items():
            for name in names:
                if name != EMPTY and block.find_var(name) is None:
                    hint = did_you_mean(name, list(block.vars)[:_MOST_NAMES], 1, repr) if has_hints else ""
                    yield f"it {verb} {name!r} ({slot}), a name that no visible block declares{hint}"
    definition = op.definition
    if definition is None:
        return
    yield from _check_slots("input", op.inputs, definition.inputs)
    yield from _check_slots("output", op.outputs, definition.outputs)
    yield from misuses_of(op)


def misuses_of(op: Operator) -> Iterator[str]:
    """Faults that no version of an op allows: crowded slots and wrong attributes."""
    definition = op.definition
    if definition is None:
        return
    yield from crowded_slots(op, definition)
    for name, attr in definition.attrs.items():
        if name not in op.attrs:
            if attr.required and definition.forward is None:
                yield f"the attribute {name!r} ({attr.kind}) is required and missing"
            continue
        try:
            attr.check(op.attrs[name])
        except (TypeError, ValueError, OverflowError) as error:
            yield f"the attribute {name!r} should be of kind {attr.kind}: {error}"


def _check_slots(side: str, filled: dict[str, list[str]], defined: dict[str, Slot]) -> Iterator[str]:
    for slot, names in filled.items():
        if names and slot not in defined:  # other versions of an op may have more slots; only filled ones matter
            yield f"it has no {side} slot {slot!r}; known are {', '.join(defined) or 'none'}"
    for slot, definition in defined.items():
        if not (definition.optional or definition.intermediate) and all(name == EMPTY for name in filled.get(slot, ())):
            yield f"the {side} slot {slot!r} is empty; it needs a variable"
