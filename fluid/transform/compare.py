"""The differences of two programs: their ops, aligned with each other, declarations, and values of parameters."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import SequenceMatcher
from typing import Any

import numpy as np

from ..errors import printable
from ..ir.checked import checked
from ..ir.paddle_attrs import is_paddle_default
from ..ir.printing import NOISE, op_to_string
from ..ir.program import Block, Operator, Program
from ..not_here import names_here
from .edit import show_var

__all__ = ["ProgramDiff", "diff", "match_ops", "telling_attrs"]


Key = Callable[[Operator], Hashable]

__dir__ = names_here(__name__)


@dataclass
class ProgramDiff:
    """The differences of two programs, which can be printed; false if there are none.

    Attributes:
        ops: (sign, block, line); the sign is a space for an op of both programs, ``-`` of the first, ``+`` of the second.
        variables: (sign, block, line) of declarations that differ.
        values: name -> how its value differs.

    >>> bool(fluid.diff(fluid.Program(), fluid.Program()))
    False
    """

    ops: list[tuple[str, int, str]] = field(default_factory=list)
    variables: list[tuple[str, int, str]] = field(default_factory=list)
    values: dict[str, str] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.variables or self.values) or any(sign != " " for sign, _, _ in self.ops)

    def lines(self, around: int = 2) -> Iterator[str]:
        """The differences as lines, with up to `around` equal ops around each difference."""
        yield from _section("variables", self.variables, 0)
        yield from _section("ops", self.ops, around)
        if self.values:
            yield "values"
            for name, text in self.values.items():
                yield f"~ {printable(name)}: {text}"

    def __str__(self) -> str:
        return "\n".join(self.lines()) or "no differences"


def _section(title: str, entries: Sequence[tuple[str, int, str]], around: int) -> Iterator[str]:
    shown: set[int] = set()
    for index, (sign, _, _) in enumerate(entries):
        if sign != " ":
            shown.update(range(max(0, index - around), min(len(entries), index + around + 1)))
    before, block = -1, -1
    for index in sorted(shown):
        sign, number, line = entries[index]
        if number != block:
            yield f"{title} of block {number}"
            block = number
        elif index != before + 1:
            yield "  ..."
        yield f"{sign} {line}"
        before = index


@checked
def diff(
    p: Program, q: Program, values_p: Mapping[str, Any] | None = None, values_q: Mapping[str, Any] | None = None
) -> ProgramDiff:
    """The differences of program `q` from `p`, block by block.

    Args:
        p, q: the programs.
        values_p, values_q: arrays by name, of both; then the values are compared, too.

    Returns:
        The differences, which can be printed; false if there are none.

    >>> p = fluid.Program()
    >>> with fluid.program_guard(p):
    ...     y = layers.relu(fluid.data("x", [None, 2]))
    >>> q = p.clone()
    >>> q.global_block().ops[0].type = "tanh"
    >>> print(fluid.diff(p, q))
    ops of block 0
    - relu_0.tmp_0: float32[-1, 2] = relu(X=x)
    + relu_0.tmp_0: float32[-1, 2] = tanh(X=x)
    """
    result = ProgramDiff()
    for number in range(max(len(p.blocks), len(q.blocks))):
        one = p.blocks[number] if number < len(p.blocks) else None
        two = q.blocks[number] if number < len(q.blocks) else None
        declared = [{name: show_var(var) for name, var in block.vars.items()} if block else {} for block in (one, two)]
        for name in dict.fromkeys([*declared[0], *declared[1]]):
            texts = [side.get(name) for side in declared]
            if texts[0] != texts[1]:
                result.variables += [(sign, number, text) for sign, text in zip("-+", texts, strict=True) if text is not None]
        before_ops, after_ops = (block.ops if block else [] for block in (one, two))
        for before, after, is_same in match_ops(before_ops, after_ops, _key, lambda op: op.type):
            sides = [(" ", before)] if is_same else [("-", before), ("+", after)]
            result.ops += [(sign, number, op_to_string(op)) for sign, op in sides if op is not None]
    if values_p is not None and values_q is not None:
        result.values = _compared(values_p, values_q)
    return result


def telling_attrs(op: Operator) -> list[tuple[str, Any]]:
    """The attributes that affect what an op computes, sorted by name."""
    attrs = [(name, f"block {value.idx}" if isinstance(value, Block) else value) for name, value in op.all_attrs().items()]
    telling = [(name, value) for name, value in attrs if name not in NOISE and not is_paddle_default(op.type, name, value)]
    return sorted(telling, key=lambda item: item[0])


def _key(op: Operator) -> tuple[str, str]:
    return op.type, repr((sorted(op.inputs.items()), sorted(op.outputs.items()), telling_attrs(op)))


def match_ops(
    one: Sequence[Operator], two: Sequence[Operator], *keys: Key
) -> Iterator[tuple[Operator | None, Operator | None, bool]]:
    """Pair the ops of both sides in order and flag pairs whose first keys match. Ops between these are paired by the next key.

    Args:
        one, two: the ops of each side.
        keys: functions of an op.
    """
    if not keys or not one or not two:
        yield from ((op, None, False) for op in one)
        yield from ((None, op, False) for op in two)
        return
    key, *later_keys = keys
    matcher = SequenceMatcher(None, list(map(key, one)), list(map(key, two)), autojunk=False)
    for tag, a, b, c, d in matcher.get_opcodes():
        if tag == "equal":
            yield from ((before, after, True) for before, after in zip(one[a:b], two[c:d], strict=True))
        else:
            yield from ((before, after, False) for before, after, _ in match_ops(one[a:b], two[c:d], *later_keys))


def _compared(one: Mapping[str, Any], two: Mapping[str, Any]) -> dict[str, str]:
    texts = {}
    for name in sorted({*one, *two}):
        if name not in two:
            texts[name] = "only the first has a value"
        elif name not in one:
            texts[name] = "only the second has a value"
        elif text := _difference(np.asarray(one[name]), np.asarray(two[name])):
            texts[name] = text
    return texts


def _difference(a: Any, b: Any) -> str:
    if a.shape != b.shape or a.dtype != b.dtype:
        return f"{a.dtype}{list(a.shape)} and {b.dtype}{list(b.shape)}"
    differs = (a != b) & ~((a != a) & (b != b))
    count = int(differs.sum())
    if not count:
        return ""
    text = f"{count} of {a.size} elements differ"
    if a.dtype.kind in "fiu":
        finite = np.isfinite(a) & np.isfinite(b)
        if not finite[differs].all():
            text += f", {int((differs & ~finite).sum())} of them not finite"
        if (differs & finite).any():
            one, two = a[finite].astype(np.float64), b[finite].astype(np.float64)
            text += f", by up to {np.abs(one - two).max():.3g} (the largest is {np.abs(one).max():.3g})"
    return text
