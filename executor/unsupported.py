"""What of a program cannot run here, or should not without being asked: told before anything runs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from fluid.errors import ExecutionError, locate
from fluid.ir.program import Operator, Program
from fluid.opdef.registry import Rule

from .kernels.table import KERNELS, SPARSE_KERNELS
from .stepwise.handlers import ARRAY_HANDLERS, HANDLERS

__all__ = ["REACHES_OUT", "UnsupportedOp", "describe_unsupported", "refuse_unsupported", "unsupported_ops"]

REACHES_OUT = {
    "load": "reads files",
    "load_combine": "reads files",
    "save": "writes files",
    "save_combine": "writes files",
    "read_file": "reads files",
    "create_custom_reader": "reads files",
    "open_files": "reads files",
    "create_py_reader": "runs code of the process",
    "py_func": "runs code of the process",
    "py_func_backward": "runs code of the process",
    "py_layer": "runs code of the process",
    "run_program": "runs another program",
    "send": "talks to other machines",
    "recv": "talks to other machines",
    "listen_and_serv": "talks to other machines",
}
"""Ops whose effect is outside the scope: a program from a file runs them only where it is allowed."""


@dataclass(frozen=True)
class UnsupportedOp:
    """A type of op that cannot run: why, how often it is there, and where first."""

    type: str
    count: int
    block: int
    position: int
    reason: str
    first: Operator

    def __str__(self) -> str:
        times = "once" if self.count == 1 else f"{self.count} times"
        frame = self.first.user_frame
        made = f", made at {frame[0]}:{frame[1]}" if frame is not None else ""
        return f"the op {self.type} {self.reason}; {times}, first as op {self.position} of block {self.block}{made}"


def refuse_unsupported(program: Program, ops: Iterable[Operator]) -> None:
    """`ExecutionError` with the list of what cannot run, if any of these ops of block 0, or in the blocks they own, cannot."""
    found = unsupported_ops(program, (), ops)
    if len(found) == 1:
        raise ExecutionError(f"{found[0]}\n{locate(found[0].first)}")
    if found:
        raise ExecutionError(f"{len(found)} kinds of ops of the program cannot run:\n{describe_unsupported(found)}")


def unsupported_ops(program: Program, allow: Iterable[str] = (), ops: Iterable[Operator] | None = None) -> list[UnsupportedOp]:
    """The ops that cannot run here, or must not, each type once, in order of first places; see `Program.unsupported_ops`.

    `ops` restricts this to some ops of block 0, and the blocks that they own.
    """
    allowed = None if program.allowed_ops is None else program.allowed_ops | set(allow)
    chosen = None if ops is None else {id(op) for op in _with_owned(ops)}
    reasons: dict[str, str | None] = {}
    counts: dict[str, int] = {}
    first: dict[str, tuple[int, int, Operator]] = {}
    for block in program.blocks:
        for position, op in enumerate(block.ops):
            if chosen is not None and id(op) not in chosen:
                continue
            if op.type not in reasons:
                reasons[op.type] = _reason(op, allowed)
            if reasons[op.type] is not None:
                counts[op.type] = counts.get(op.type, 0) + 1
                first.setdefault(op.type, (block.idx, position, op))
    return [UnsupportedOp(kind, counts[kind], *first[kind][:2], reasons[kind] or "", first[kind][2]) for kind in first]


def _with_owned(ops: Iterable[Operator]) -> Iterable[Operator]:
    stack = list(ops)
    seen: set[int] = set()
    while stack:
        op = stack.pop()
        yield op
        for block in op.sub_blocks:
            if block.idx not in seen:
                seen.add(block.idx)
                stack += block.ops


def _reason(op: Operator, allowed: frozenset[str] | None) -> str | None:
    if op.type in ("feed", "fetch"):
        return None
    definition = op.definition
    if definition is None:
        return "is not known here, so it cannot run"
    if op.type in REACHES_OUT and allowed is not None and op.type not in allowed:
        return f"{REACHES_OUT[op.type]}, which a program from a file may do only where its allowed_ops name it"
    if any(op.type in table for table in (KERNELS, SPARSE_KERNELS, HANDLERS, ARRAY_HANDLERS)):
        return None
    if definition.forward is not None and isinstance(definition.forward.rule, Rule):
        return None
    return "has no kernel, so it cannot run"


def describe_unsupported(found: Sequence[UnsupportedOp]) -> str:
    """The list as text, a line each."""
    return "\n".join(f"  - {item}" for item in found)
