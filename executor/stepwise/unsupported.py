"""Finds the ops of a program that cannot run, or may not run without permission, before anything runs."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from fluid.errors import ExecutionError, locate, printable
from fluid.ir.nesting import walk
from fluid.ir.program import Operator, Program
from fluid.ir.verify import misuses_of
from fluid.opdef.registry import Rule

from ..kernels.table import kernel_of, sparse_kernel_of
from .handlers import ARRAY_HANDLERS, HANDLERS

__all__ = ["REACHES_OUT", "UnsupportedOp", "refuse_unsupported", "unsupported_ops"]

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
"""Ops with effects outside the scope: a program from a file may run them only with permission."""


@dataclass(frozen=True)
class UnsupportedOp:
    """An op type that cannot run: how often it occurs, where first, and why it cannot run."""

    type: str
    count: int
    block: int
    position: int
    reason: str
    first: Operator

    def __str__(self) -> str:
        times = "once" if self.count == 1 else f"{self.count} times"
        frame = self.first.user_frame
        origin = f", made at {frame[0]}:{frame[1]}" if frame is not None else ""
        return f"the op {printable(self.type)} {self.reason}; {times}, first as op {self.position} of block {self.block}{origin}"


def refuse_unsupported(program: Program, ops: Iterable[Operator]) -> None:
    """Raise an `ExecutionError` that lists which of the `ops` of block 0, and ops in their blocks, cannot run.

    If all can run, check that the definition of each op allows its attributes and slots.
    """
    ops = list(ops)
    unsupported = unsupported_ops(program, (), ops)
    if unsupported:
        advice = _cut_advice(program, unsupported[0].first)
        if len(unsupported) == 1:
            raise ExecutionError(f"{unsupported[0]}\n{locate(unsupported[0].first)}{advice}")
        lines = [f"{len(unsupported)} kinds of ops of the program cannot run:", *(f"  - {item}" for item in unsupported)]
        raise ExecutionError("\n".join(lines) + advice)
    for op in walk(ops):
        for fault in misuses_of(op):
            raise ExecutionError(f"{op.type}: {fault}\n{locate(op)}")


def _cut_advice(program: Program, op: Operator) -> str:
    """A line that names variables to fetch in place of the outputs of an op; "" if there are none."""
    root = program.global_block()
    owners = {id(inner): owner for owner in root.ops for inner in walk([owner])}
    op = owners.get(id(op), op)
    computed = {name for earlier in root.ops[: op.idx] if earlier.type != "feed" for name in earlier.output_arg_names}
    names = [name for name in dict.fromkeys(op.input_arg_names) if name in computed and not root.var(name).persistable]
    if not names:
        return ""
    listed = ", ".join(repr(printable(name)) for name in names)
    return f"\n  what comes before it can run: fetch {listed}, or cut the program there with program.prune(None, [{listed}])"


def unsupported_ops(program: Program, allow: Iterable[str] = (), ops: Iterable[Operator] | None = None) -> list[UnsupportedOp]:
    """The op types that cannot or may not run, in the order of their first ops; see `Program.unsupported_ops`.

    `ops` restricts this to some ops of block 0 and the blocks that they own.
    """
    allowed = None if program.allowed_ops is None else program.allowed_ops | set(allow)
    chosen = None if ops is None else {id(op) for op in walk(ops)}
    places: dict[str, list[tuple[int, int, Operator]]] = {}
    for block in program.blocks:
        for position, op in enumerate(block.ops):
            if chosen is None or id(op) in chosen:
                places.setdefault(op.type, []).append((block.idx, position, op))
    return [
        UnsupportedOp(op_type, len(ops_of_type), block_index, position, reason, first)
        for op_type, ops_of_type in places.items()
        for block_index, position, first in ops_of_type[:1]
        if (reason := _reason(first, allowed)) is not None
    ]


def _reason(op: Operator, allowed: frozenset[str] | None) -> str | None:
    if op.type in ("feed", "fetch"):
        return None
    definition = op.definition
    if definition is None:
        return "is not known here, so it cannot run"
    if op.type in REACHES_OUT and allowed is not None and op.type not in allowed:
        return f"{REACHES_OUT[op.type]}, which a program from a file may do only where its allowed_ops name it"
    has_rule = definition.forward is not None and isinstance(definition.forward.rule, Rule)
    if has_rule or definition.formula is not None or op.type in HANDLERS or op.type in ARRAY_HANDLERS:
        return None
    if kernel_of(op.type) is not None or sparse_kernel_of(op.type) is not None:
        return None
    return "has no kernel, so it cannot run"
