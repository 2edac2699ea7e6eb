"""Programs of several workers: they compare their programs before a run, and wait for reductions as late as possible."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from fluid.distributed.agreement import digest_of
from fluid.distributed.communicator import Statement, statement_of
from fluid.ir.nesting import walk
from fluid.ir.program import Block, Operator, Program
from fluid.ir.versions import Value
from fluid.ops.collective import COLLECTIVE, SETTING_UP
from fluid.values.lod_array import LoDArray
from fluid.values.spec import Spec
from fluid.values.types import VarType

from ..kernels.engine import engine_of
from ..runtime.specs import spec_of

__all__ = ["Meeting", "reductions_in_flight", "stating"]

_OF_PROCESS = frozenset({"forward_callable_id", "backward_callable_id", "callable_id"})
"""Attributes whose values are valid in this process only."""


class Meeting:
    """Before a run, the workers compare the program and the shapes of the feeds, which must be the same for all.

    The random seeds of programs may differ.
    """

    def __init__(self, program: Program) -> None:
        self._lines = [("what they do", "run of a program"), *_lines(program)]
        self._digest = digest_of(self._lines)

    @staticmethod
    def of(program: Program, ops: Iterable[Operator]) -> Meeting | None:
        """The meeting before runs of these ops of a program; None if they do not communicate."""
        types = {op.type for block in program.blocks for op in block.ops}
        return Meeting(program) if not COLLECTIVE.isdisjoint(types) and any(map(_communicates, ops)) else None

    def statement(self, feeds: Mapping[str, Any], way: str, more: Iterable[tuple[str, str]] = ()) -> Statement:
        """The statement of this worker. `feeds` are arrays or specs; `way` says how the program runs; `more` are further
        (subject, text) lines. Everything that decides the communication must be included."""
        fed = [(f"the feed of {name}", f"{name}: {_shape_of(value)}") for name, value in sorted(feeds.items())]
        fed += [("how the program runs", way), *more]
        return Statement(self._digest ^ digest_of(fed), lambda: [*self._lines, *fed])


def stating(
    op_type: str, attrs: Mapping[str, Any], specs: Sequence[Spec], xp: Any, run: Callable[..., Any]
) -> Callable[..., Any]:
    """Wrap the run of a single op: for a collective op, the workers first compare the op and the shapes of its operands.

    The number of sparse rows may differ between workers.
    """
    if op_type not in COLLECTIVE:
        return run
    operands = ", ".join(str(spec) if spec.type is VarType.LOD_TENSOR else "sparse rows" for spec in specs)
    statement = statement_of(f"{op_type}({operands}) {dict(sorted(attrs.items()))}")

    def stated(*arrays: Any) -> Any:
        engine_of(xp).communicator().state(statement)
        return run(*arrays)

    return stated


def _communicates(op: Operator) -> bool:
    return any(inner.type in COLLECTIVE for inner in walk([op]))


def _shape_of(value: Any) -> str:
    if isinstance(value, LoDArray):
        return f"{value.dtype}{['sequences', *value.shape[1:]]}"  # sequences differ between workers
    return str(value if isinstance(value, Spec) else spec_of(value))


def _lines(program: Program) -> Iterator[tuple[str, str]]:
    for block in program.blocks:
        yield from _lines_of(block)


def _lines_of(block: Block) -> Iterator[tuple[str, str]]:
    where = f" of block {block.idx}" if block.idx else ""
    for name in sorted(name for name, var in block.vars.items() if var.persistable):
        yield f"the variable {name}{where}", str(block.vars[name])
    for number, op in enumerate(block.ops):
        if op.type in SETTING_UP:
            continue
        text = str(op)
        for name in _OF_PROCESS.intersection(op.attrs):
            text = text.replace(f"{name}={op.attrs[name]}", name)
        yield f"op {number}{where}", text


def reductions_in_flight(instructions: Sequence[Any], scope_names: Iterable[str]) -> dict[int, int]:
    """Index of a reduction -> index of the first instruction that reads its result; the wait comes before that instruction.

    Missing reductions are waited for at once: reductions on the computation stream, without a reader, or into a persistable
    variable.

    Args:
        instructions: the instructions of a plan, in order.
        scope_names: names whose values live in the scope.
    """
    in_scope, flights = set(scope_names), dict[int, int]()
    pending: dict[Value, int] = {}
    for number, instruction in enumerate(instructions):
        for value in {*instruction.read, *instruction.outer.values()}:
            if value in pending:
                flights.setdefault(pending.pop(value), number)
        op = instruction.op
        is_begun = op.type.startswith("c_allreduce_") and not instruction.dynamic and not op.attrs.get("use_calc_stream")
        if is_begun and in_scope.isdisjoint(name for name, _ in instruction.written):
            pending.update(dict.fromkeys(instruction.written, number))
    return flights
