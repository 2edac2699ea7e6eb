"""Finds the forward op of each gradient op by names alone, which also works for programs from files.

A gradient op ``foo_grad`` has slots of ``foo`` with the same names, and slots ``SLOT@GRAD`` with names ``name@GRAD``. A gradient
may also be ordinary ops, as the gradient of `scale` is a `scale`: such an op reads the gradient of the forward op's output and
writes the gradient of its input.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice

from ..ir.program import Block, Operator, OpRole
from ..opdef.registry import EMPTY

_GRADIENT = re.compile(r"(?:grad/)*(.+)@GRAD(?:_\d+)?(?:@RENAME@.*)?", re.DOTALL)
_SAVED = re.compile(r"(.+)@SAVED(?:_\d+)?", re.DOTALL)
_TRIED = 64
"""The maximal number of ops to compare for one gradient op; ten thousand ops may read one name."""

Index = Mapping[tuple[str, str, str], Sequence[Operator]]


def base_name(name: str) -> str | None:
    """The name whose gradient `name` is, by its spelling; None if it is not a gradient."""
    match = _GRADIENT.fullmatch(name)
    return match[1] if match is not None else None


def has_role(op: Operator, bits: int) -> bool:
    """Whether an op has one of these bits of `OpRole`; in files, the role may be anything."""
    role = op.attrs.get(OpRole.NAME, OpRole.FORWARD)
    return isinstance(role, int) and bool(role & bits)


def _slots(op: Operator) -> Iterator[tuple[str, str]]:
    for slots in (op.inputs, op.outputs):
        for slot, names in slots.items():
            for name in names:
                if name != EMPTY:
                    yield slot, name


def _forward_slots(op: Operator) -> Iterator[tuple[str, str]]:
    """The pairs of slot and name that the forward op should have if `op` is its gradient."""
    for slot, name in _slots(op):
        if slot.endswith("@GRAD"):
            slot = slot[: -len("@GRAD")]
            yield slot, base_name(name) or name
        else:
            saved = _SAVED.fullmatch(name)
            yield slot, saved[1] if saved is not None else name


def find_pairs(blocks: Sequence[Block]) -> dict[Operator, Operator]:
    """Gradient op -> its forward op, for those where it can be found by names."""
    pairs: dict[Operator, Operator] = {}
    owners = {sub: op for block in blocks for op in block.ops for sub in op.sub_blocks}
    index: dict[tuple[str, str, str], list[Operator]] = {}
    makers: dict[str, list[Operator]] = {}
    for block in blocks:
        for op in block.ops:
            for slot, name in _slots(op):
                index.setdefault((op.type, slot, name), []).append(op)
            if not has_role(op, OpRole.BACKWARD | OpRole.OPTIMIZE):
                for name in op.output_arg_names:
                    makers.setdefault(name, []).append(op)
    place = {op: number for number, op in enumerate(op for block in blocks for op in block.ops)}
    paired: set[Operator] = set()
    for block in blocks:
        near = {block, block.forward, block.parent}
        for op in block.ops:
            if op.type.endswith("_grad"):
                forward = _owner(op, owners) or _by_slots(op, index, near, place, paired)
            elif has_role(op, OpRole.BACKWARD):
                forward = _by_flow(op, makers, near)
            else:
                continue
            if forward is not None and forward is not op:
                pairs[op] = forward
                paired.add(forward)
    return pairs


def _owner(op: Operator, owners: Mapping[Block, Operator]) -> Operator | None:
    """The op that owns the block whose gradient the block of `op` is."""
    for sub in op.sub_blocks:
        for body in (sub.forward, sub.parent):
            owner = owners.get(body) if body is not None else None
            if owner is not None and owner is not op and op.type == owner.type + "_grad":
                return owner
    return None


def _by_slots(
    op: Operator, index: Index, near: Iterable[Block | None], place: Mapping[Operator, int], paired: set[Operator]
) -> Operator | None:
    """The earlier op with the most of the names that the forward op should have, preferably one without a gradient yet."""
    forward_type = op.type[: -len("_grad")]
    keys = {(forward_type, *slot) for slot in _forward_slots(op)}
    candidates = [index[key] for key in keys if key in index]
    if not candidates:
        return None
    fewest = min(candidates, key=len)
    before = (
        candidate
        for candidate in reversed(fewest)
        if candidate.block in near and (candidate.block is not op.block or place[candidate] < place[op])
    )
    return max(
        islice(before, _TRIED),
        key=lambda candidate: (
            sum((candidate.type, *slot) in keys for slot in set(_slots(candidate))),
            candidate not in paired,
            place[candidate],
        ),
        default=None,
    )


def _by_flow(op: Operator, makers: Mapping[str, Sequence[Operator]], near: Iterable[Block | None]) -> Operator | None:
    """The forward op for which this op turns the gradient of an output into the gradient of an input."""
    outputs = {base_name(name) for name in op.output_arg_names} - {None}
    if not outputs:
        return None
    for name in op.input_arg_names:
        base = base_name(name)
        if base is None:
            continue
        for maker in islice(reversed(makers.get(base, ())), _TRIED):
            if maker.block in near and outputs & set(maker.input_arg_names):
                return maker
    return None
