"""Kernels: compiled functions that a table of records calls.

A kernel is ``void kernel(ptr operands, i64 thread, i64 threads)``. `operands` points at one word of 64 bits for each operand, the
address of its first element. Extents and strides are part of the code. All threads call the same kernels in the same order; each
takes its share of the work, which is cut in chunks that depend on shapes alone, so that results do not depend on how many threads
there are. A record of a table holds four words: the kernel's address, that of its operands, flags, and one that is not used.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from .emitter import INT64, POINTER, Function, Module, Operand, Value

__all__ = ["AFTER_BARRIER", "RECORD_WORDS", "SERIAL", "Share", "write_kernel"]

RECORD_WORDS = 4
SERIAL = 1
"""Flag of a record that only the first thread computes."""
AFTER_BARRIER = 2
"""Flag of a record that waits until all threads have done the records before it."""


@dataclass(frozen=True)
class Share:
    """The share of one thread: values in the function that is being written."""

    thread: Value
    threads: Value

    def of(self, f: Function, chunks: int) -> tuple[Operand, Operand]:
        """The bounds of the chunks, of as many, that this thread takes."""
        if chunks == 1:
            first = f.compare("eq", self.thread, 0)
            return 0, f.select(first, f.int64(1), f.int64(0))
        start = f.div(f.mul(self.thread, chunks), self.threads)
        return start, f.div(f.mul(f.add(self.thread, 1), chunks), self.threads)


def write_kernel(module: Module, name: str, operands: int, body: Callable[[Function, Sequence[Value], Share], None]) -> None:
    """Write a kernel: ``body(f, pointers, share)`` writes what it does with its operands."""
    f = Function(module, name, [POINTER, INT64, INT64])
    words, thread, threads = f.arguments
    pointers = []
    for number in range(operands):
        address = f.load(f.at(words, number, POINTER), POINTER)
        pointers.append(Value(address.text, POINTER, number))
    body(f, pointers, Share(thread, threads))
    f.end()
