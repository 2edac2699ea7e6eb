"""Calls of a plan as CUDA graphs: a stream records them once, and each run starts them all at once.

To start a kernel takes Python some 14 us, a whole graph about as long as one kernel. A graph repeats the same kernels on the same
memory with the same numbers. So nothing that a run decides on the host may be in it:

- A call that reads a value from the device, or copies an array to it, raises an error while a stream records.
- Such a call is made between two graphs, as are ops that draw random numbers or run step by step.
- A check of values becomes a copy of these values, and is made by numpy after the graphs, from one copy for all checks.
- Memory that calls allocate comes from a pool that nothing else uses, and stays with the graph.
- Products go to cuBLAS directly (`fluid.executor.runtime.cublas`), and elementwise calls become kernels (`fused_calls.py`).

A graph is compared with its calls in two runs before it is used (`Recording.compare`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from math import prod
from threading import Lock, get_ident
from typing import Any

import numpy as np

from fluid.ir.collector import collector_paused

from ..kernels.engine import Step
from ..runtime.calls import Call, Source
from ..runtime.cublas import CuBlas, CuBlasNamespace, load_cublas
from .fused_calls import fuse
from .placement import padded
from .plan import AnyInstruction

__all__ = ["NotRecorded", "Piece", "RecordedPart", "Recording", "Snapshot", "on_copies", "without_draws"]

_TOLERANCE, _SMALLEST = 1e-3, 1e-5
"""How far a graph and its calls may differ, relative to a number and to the greatest one: sums at equal indices have no order."""


class NotRecorded(Exception):
    """A plan runs call by call, or a call cannot be recorded; the message says why."""


@dataclass
class Piece:
    """An instruction of a plan.

    Attributes:
        number: its number in the plan.
        start: the number of its first call.
        calls: what computes it call by call.
        recorded: the calls to record in their place.
        checks: checks of values that are made at the end of a run (`Snapshot.postpone`).
        reason: why it is not recorded; empty if it is.
    """

    instruction: AnyInstruction
    number: int
    start: int
    calls: list[Step] = field(default_factory=list)
    recorded: list[Call] = field(default_factory=list)
    checks: list[Call] = field(default_factory=list)
    reason: str = ""

    def leave_out(self, reason: str) -> None:
        """Do not record it, for this reason."""
        self.reason, self.recorded, self.checks = f"{self.instruction.label} {reason}", [], []


@dataclass
class RecordedPart:
    """Neighbouring instructions of a plan: all of them are recorded, or none.

    Attributes:
        memory: arrays that they may overwrite.
        results: names and arrays of values that later instructions or the caller read.
        graph: the recorded calls.
        launched: these calls, with elementwise calls as kernels, and the pieces that they belong to.
    """

    pieces: list[Piece]
    memory: list[Any]
    results: list[tuple[str, Any]]
    graph: Any = None
    launched: list[tuple[Piece, Call]] = field(default_factory=list)

    @property
    def recorded(self) -> list[Call]:
        """The calls to record; none if the calls are made one by one."""
        return [call for piece in self.pieces for call in piece.recorded]


class _NoSource(Source):
    """Stands for a source of random numbers, and refuses to draw: a graph would draw the same numbers in each run."""

    __slots__ = ()

    def __call__(self) -> Any:
        raise NotRecorded("draws random numbers")


def without_draws(call: Call) -> Call:
    """Let a call raise an error where it draws random numbers."""
    return _replace_operands(call, lambda value: _NoSource() if isinstance(value, Source) else value)  # type: ignore[no-any-return]


def _replace_operands(value: Any, replace: Callable[[Any], Any]) -> Any:
    """Replace the functions and the operands of a call, also in lists and in calls that are its operands."""
    if isinstance(value, partial):
        keywords = {name: _replace_operands(item, replace) for name, item in value.keywords.items()}
        return partial(replace(value.func), *(_replace_operands(item, replace) for item in value.args), **keywords)
    return type(value)(_replace_operands(item, replace) for item in value) if type(value) in (list, tuple) else replace(value)


@dataclass(frozen=True)
class _ShapeAlone:
    """Stands for an array whose values a check does not read."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def size(self) -> int:
        return prod(self.shape)

    def __len__(self) -> int:
        return self.shape[0]


@dataclass(frozen=True)
class _Copy:
    """Stands for the copy of an array, by its number."""

    number: int


class Snapshot:
    """Copies of arrays on the device, which come to the host together."""

    def __init__(self, xp: Any) -> None:
        self._xp = xp
        self._arrays: list[Any] = []
        self._places: list[slice] = []
        self._memory: Any = None

    def postpone(self, check: Call) -> tuple[list[Call], Call]:
        """Calls that copy the integers of a check, and the check of these copies by numpy, for `on_copies`."""
        copies: list[Call] = []

        def stand_in(value: Any) -> Any:
            if not isinstance(value, self._xp.ndarray):
                return np if value is self._xp else value
            if value.dtype.kind not in "iub":  # read for its shape and type alone
                return _ShapeAlone(value.shape, value.dtype)
            start = self._places[-1].stop if self._places else 0
            self._places.append(slice(start, start + padded(value.nbytes)))
            self._arrays.append(value)
            number = len(self._arrays) - 1
            copies.append(partial(self._copy, number))
            return _Copy(number)

        return copies, _replace_operands(check, stand_in)

    def allocate(self) -> None:
        """Allocate memory for the copies."""
        self._memory = self._xp.empty(self._places[-1].stop if self._places else 0, "uint8")

    def _copy(self, number: int) -> None:
        self._xp.copyto(self._view(self._memory, number), self._arrays[number])

    def _view(self, memory: Any, number: int) -> Any:
        array, start = self._arrays[number], self._places[number].start
        return memory[start : start + array.nbytes].view(array.dtype).reshape(array.shape)

    def to_host(self) -> list[Any]:
        """Copy the copies to the host, as arrays of numpy."""
        memory = self._memory.get()
        return [self._view(memory, number) for number in range(len(self._arrays))]


def on_copies(check: Call, copies: list[Any]) -> Call:
    """Let a postponed check read the copies that a `Snapshot` has brought to the host."""
    return _replace_operands(check, lambda value: copies[value.number] if isinstance(value, _Copy) else value)  # type: ignore[no-any-return]


class Recording:
    """Records parts of a plan, and plays them back.

    Args:
        xp: cupy.
        wait: waits for the device.

    Raises:
        ExecutionError: there is no cuBLAS.
    """

    def __init__(self, xp: Any, wait: Callable[[], None]) -> None:
        self._xp, self._wait = xp, wait
        self._stream = xp.cuda.Stream(non_blocking=True)
        self._pool = xp.cuda.MemoryPool()
        self._namespace = CuBlasNamespace(xp, CuBlas(load_cublas(xp), xp, self._stream))

    def with_own_products(self, call: Call) -> Call:
        """Let cuBLAS itself compute the products of a call, not cupy."""

        def by_cublas(value: Any) -> Any:
            if value is self._xp.dot or value is self._xp.matmul:
                return getattr(self._namespace, value.__name__)
            return self._namespace if value is self._xp else value

        return _replace_operands(call, by_cublas)  # type: ignore[no-any-return]

    @contextmanager
    def aside(self) -> Iterator[None]:
        """In the ``with`` block, calls go to the stream that records, with the memory of the recording."""
        self._wait()
        try:
            with self._stream, self._xp.cuda.using_allocator(self._pool.malloc):
                yield
        finally:
            self._wait()

    def record(self, part: RecordedPart, scratch: Sequence[Any]) -> Piece | None:
        """Record a part whose calls have been made in `aside` before; nothing is computed.

        Args:
            part: the part.
            scratch: the memory of the intermediate results of pieces.

        Returns:
            The piece that cannot be recorded, which then says why; None if the part has its graph.
        """
        calls = [(piece, call) for piece in part.pieces for call in piece.recorded]
        part.launched = calls
        with suppress(Exception):  # no compiler
            part.launched = fuse(self._xp, calls, scratch)
        with collector_paused(), self.aside(), _without_uploads(self._xp):  # what a collector frees may make a stream wait
            self._stream.begin_capture()
            try:
                for piece, call in part.launched:  # noqa: B007
                    call()
                part.graph = self._stream.end_capture()
            except Exception as error:
                with suppress(Exception):  # a stream that was told to wait has no graph
                    self._stream.end_capture()
                piece.leave_out(f"({str(error).partition(chr(10))[0] or type(error).__name__})")
                return piece
        return None

    def compare(self, part: RecordedPart, compute: Callable[[], None]) -> str:
        """Compute a part by its calls, play it back from the same values, and compare the results.

        Args:
            part: has been recorded.
            compute: makes its calls.

        Returns:
            The name of a result that differs; empty if none does. The part then has the results of the calls.
        """
        xp = self._xp
        before = [array.copy() for array in part.memory]
        with self.aside():
            compute()
        expected = [array.copy() for _, array in part.results]
        for array, former in zip(part.memory, before, strict=True):
            xp.copyto(array, former)
        part.graph.launch()
        self._wait()
        pairs = [(name, array, value) for (name, array), value in zip(part.results, expected, strict=True)]
        wrong = [name for name, array, value in pairs if not _is_close(xp, array, value)]
        for _, array, value in pairs:
            xp.copyto(array, value)
        return wrong[0] if wrong else ""


def _is_close(xp: Any, found: Any, expected: Any) -> bool:
    """Whether two arrays are equal up to rounding."""
    if bool((found == expected).all()):
        return True
    if expected.dtype.kind not in "fc":
        return False
    scale = float(xp.abs(xp.nan_to_num(expected, posinf=0.0, neginf=0.0)).max())
    return bool(xp.allclose(found, expected, _TOLERANCE, _SMALLEST * scale, equal_nan=True))


_LOCK = Lock()
"""Held while a stream records: the allocator of `_without_uploads` belongs to the process."""


@contextmanager
def _without_uploads(xp: Any) -> Iterator[None]:
    """In the ``with`` block, this thread can copy no array to the device.

    cupy copies by a buffer that it uses again for other copies, so a graph would copy its later content.
    """
    pool, recorder = xp.get_default_pinned_memory_pool(), get_ident()

    def allocate(size: int) -> Any:
        if get_ident() == recorder:
            raise NotRecorded("an array is copied from the host")
        return pool.malloc(size)

    with _LOCK:
        xp.cuda.set_pinned_memory_allocator(allocate)
        try:
            yield
        finally:
            xp.cuda.set_pinned_memory_allocator(pool.malloc)
