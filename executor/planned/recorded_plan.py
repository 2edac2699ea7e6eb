"""Plans at ``CUDAPlace(recorded=True)``: their first runs prepare recordings, which later runs play back."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import nullcontext
from functools import partial
from itertools import groupby
from typing import Any

from fluid.errors import ExecutionError
from fluid.ir.versions import Value
from fluid.values.place import Place
from fluid.values.types import is_floating

from ..kernels.engine import Step
from ..kernels.table import checked_op
from ..native.fallback import warn_once
from ..native.instructions import inspected_values
from ..runtime.calls import Call, fault_of
from ..runtime.scope import Scope
from .bound_plan import BoundArenaPlan
from .memory import Memory
from .plan import AnyInstruction, ArenaPlan
from .recording import NotRecorded, Piece, RecordedPart, Recording, Snapshot, on_copies, without_draws

__all__ = ["RecordedPlan"]


class RecordedPlan(BoundArenaPlan):
    """A bound plan that is recorded as CUDA graphs (see `fluid.executor.planned.recording`).

    After each binding, the first run makes the calls as they are, which compiles kernels. The second makes them with the memory
    and the products of the recordings. The third records, plays back, and compares with the results of the calls; the fourth
    compares again, with other feeds. From then on recordings are played back, and the calls between them are made.
    ``plan.recording`` says how far this is.
    """

    def __init__(self, plan: ArenaPlan, scope: Scope, place: Place, memory: Memory | None = None) -> None:
        super().__init__(plan, scope, place, memory)
        self._is_refused = False
        self._forget_recordings()

    def _forget_recordings(self) -> None:
        """Begin again, since arrays have changed."""
        self._runs = 0
        """How many runs have ended without an error."""
        self._parts: list[RecordedPart] = []
        self._recording: Recording | None = None
        self._checked = Snapshot(self.place.xp)
        self._last_reads: dict[Value, int] = {}
        """Value -> number of the last instruction that reads it, or the number of all instructions if the caller does."""
        if not self._is_refused:
            self.plan.recording = "not recorded yet: that takes four runs with the same arrays of the scope"

    def lose_arena(self) -> None:
        super().lose_arena()
        self._forget_recordings()

    def _bind(self) -> None:
        self._forget_recordings()
        super()._bind()

    def _refuse(self, reason: str) -> None:
        """Make the calls one by one from now on, and say why."""
        self._is_refused = True
        self._forget_recordings()
        self.plan.recording = f"not recorded: {reason}"
        warn_once(f"CUDAPlace(recorded=True): a program runs call by call, since it is {self.plan.recording}", self.plan.program)

    # -- runs
    def _run_all(self) -> None:
        if self._runs == 1 and self._recording is None and not self._is_refused:
            try:
                self._prepare()
            except (NotRecorded, ExecutionError) as error:
                self._refuse(str(error))
        if self._recording is None:
            super()._run_all()
        elif self._runs == 1:
            self._make_aside(self._recording)
        elif self._runs == 2:
            self._record(self._recording)
        elif self._runs == 3:
            self._compare(self._recording)
        else:
            self._play_back()
        self._runs += 1

    def _make_aside(self, recording: Recording) -> None:
        """Make all calls, those to record with the memory and the products of the recording."""
        for part in self._parts:
            with recording.aside() if part.recorded else nullcontext():
                self._make(part)

    def _make(self, part: RecordedPart) -> None:
        """Make the calls of a part."""
        for piece in part.pieces:
            number = 0
            try:
                for number, call in enumerate(piece.calls):  # noqa: B007
                    call()
            except Exception as error:
                if isinstance(error, ExecutionError) and error.located:
                    raise
                raise self._failure(piece.start + number, error) from error

    def _record(self, recording: Recording) -> None:
        """Record each part and compare its results; a piece that cannot be recorded is left out."""
        parts = self._parts_of([piece for part in self._parts for piece in part.pieces])  # a run with an error left some out
        waiting, done, wrong = parts[::-1], list[RecordedPart](), ""
        while waiting:
            part = waiting.pop()
            if part.recorded and recording.record(part, self.scratch_memory) is not None:
                waiting += reversed(self._parts_of(part.pieces))
                continue
            wrong = self._compare_part(recording, part) or wrong
            done.append(part)
        self._parts = done
        if wrong:
            self._refuse_wrong(wrong)
        else:
            self._describe()

    def _compare(self, recording: Recording) -> None:
        """Compare the results of each part once more: a graph that repeats the numbers of one run passes the first time."""
        wrong = [name for part in self._parts if (name := self._compare_part(recording, part))]
        if wrong:
            self._refuse_wrong(wrong[0])

    def _compare_part(self, recording: Recording, part: RecordedPart) -> str:
        """Compute a part by its calls; returns the name of a result that differs in its graph, or an empty text."""
        if part.recorded:
            return recording.compare(part, partial(self._make, part))
        self._make(part)
        return ""

    def _refuse_wrong(self, name: str) -> None:
        self._refuse(f"a graph computes {name} otherwise than its calls")

    def _describe(self) -> None:
        """Say in the plan how much is recorded, and why not all."""
        recorded = [part for part in self._parts if part.recorded]
        reasons = dict.fromkeys(piece.reason for part in self._parts for piece in part.pieces if piece.reason)
        if not recorded:
            return self._refuse("; ".join(reasons) or "it has no calls")
        calls, graphs = sum(len(part.recorded) for part in recorded), len(recorded)
        launched = sum(len(part.launched) for part in recorded)
        self.plan.recording = f"recorded: {calls} calls as {launched}, in {graphs} graph{'s' * (graphs > 1)}"
        if reasons:
            self.plan.recording += f"; call by call: {'; '.join(reasons)}"
        return None

    def _play_back(self) -> None:
        for part in self._parts:
            if part.recorded:
                part.graph.launch()
            else:
                self._make(part)
        pieces = [piece for part in self._parts for piece in part.pieces if piece.checks]
        copies = self._checked.to_host() if pieces else []
        for piece in pieces:
            try:
                for check in piece.checks:
                    on_copies(check, copies)()
            except Exception as error:
                failure = self._failure_of(piece.instruction, error)
                failure.restate(f"{failure}\nRecorded runs are checked at their end: this one has updated variables.")
                raise failure from error

    # -- parts to record
    def _prepare(self) -> None:
        """Divide the plan into parts to record, and parts whose calls are made."""
        plan = self.plan
        if self._meeting is not None:
            raise NotRecorded("it communicates with other workers")
        recording = Recording(self.place.xp, self.place.wait)
        ends = [*self._starts[1:], len(self.steps)]
        pieces = []
        for number, (instruction, start, end) in enumerate(zip(plan.instructions, self._starts, ends, strict=True)):
            self._last_reads.update(dict.fromkeys(instruction.read, number))
            pieces.append(self._piece(recording, instruction, number, start, self.steps[start:end]))
        self._last_reads.update(dict.fromkeys(plan.fetch_values, len(plan.instructions)))
        self._checked.allocate()
        self._recording, self._parts = recording, self._parts_of(pieces)

    def _piece(self, recording: Recording, instruction: AnyInstruction, number: int, start: int, steps: list[Step]) -> Piece:
        """The calls of an instruction; checks of values become copies of these."""
        piece = Piece(instruction, number, start)
        fault = next(filter(None, (fault_of(step, self.place.xp.ndarray) for step in steps)), "")
        if instruction.dynamic:
            fault = "runs step by step"
        if fault:
            piece.leave_out(fault)
            piece.calls = steps
            return piece
        inspected = inspected_values(instruction, self.plan.specs)
        for step in steps:
            assert isinstance(step, partial), "steps without faults are calls"
            call: Call = recording.with_own_products(step)
            piece.calls.append(call)
            copies: list[Call] = []
            if checked_op(step) and not any(is_floating(self.plan.specs[value].dtype) for value in inspected):
                copies, check = self._checked.postpone(step)
                piece.checks += [check] if copies else []
            piece.recorded += copies or [without_draws(call)]  # a check without integers reads floats, or shapes alone
        return piece

    def _parts_of(self, pieces: Iterable[Piece]) -> list[RecordedPart]:
        """Join neighbouring pieces."""
        groups = (list(group) for _, group in groupby(pieces, lambda piece: bool(piece.reason)))
        return [RecordedPart(group, *self._memory_of(group)) for group in groups]

    def _memory_of(self, pieces: list[Piece]) -> tuple[list[Any], list[tuple[str, Any]]]:
        """The arrays that pieces may overwrite, and their results by name."""
        written = {value for piece in pieces for value in piece.instruction.written}
        stored = {name: self._stored[name] for name, _ in written if name in self.plan.storage}
        end = pieces[-1].number
        passed_on = [value for value in written if self._last_reads.get(value, -1) > end and value[0] not in stored]
        results = [*((value[0], self.array(value)) for value in passed_on if value in self.plan.specs), *stored.items()]
        memory = [self.arena[: self.plan.arena_bytes], *stored.values()]
        return memory, [(name, array) for name, array in results if array is not None and array.size]
