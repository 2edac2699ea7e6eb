"""Kernels: compiled functions that a table of records calls.

A kernel is ``void kernel(ptr operands, i64 thread, i64 threads)``. `operands` points at one word of 64 bits for each operand, the
address of its first element. Extents and strides are part of the code. All threads call the same kernels in the same order; each
takes its share of the work, which is cut in chunks that depend on shapes alone, so that results do not depend on how many threads
there are. A record of a table holds four words: the kernel's address, that of its operands, flags, and one that is not used.

A kernel of a module that is checked reads more words after the addresses: for each operand the addresses of its first byte and of
the one after its last; then two that it writes when an access lies outside (`checked_words`, `fault_in`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from ..runtime.threads import MOST_THREADS
from .bounds import IndexBounds, Sum
from .emitter import INT64, POINTER, Function, Module, Operand, Value
from .instructions import WrittenKernel

__all__ = ["Share", "checked_words", "fault_in", "write_kernel", "written_kernel"]


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
        stop = f.div(f.mul(f.add(self.thread, 1), chunks), self.threads)
        return f.between(start, 0, chunks), f.between(stop, 0, chunks)


Body: TypeAlias = "Callable[[Function, Sequence[Value], Share], None]"
"""Writes what a kernel does with its operands."""


def write_kernel(module: Module, name: str, operands: int, body: Body, most_threads: int = MOST_THREADS) -> None:
    """Write a kernel, for so many threads at most."""
    f = Function(module, name, [POINTER, INT64, INT64])
    words, thread, threads = f.arguments
    pointers = []
    for number in range(operands):
        address = f.load(f.at(words, number, POINTER), POINTER)
        pointers.append(Value(address.text, POINTER, number, Sum(0)))
    if module.checked:
        bounds = [f.load(f.at(words, operands + number, INT64), INT64) for number in range(2 * operands)]
        f.guard(list(zip(bounds[::2], bounds[1::2], strict=True)), f.at(words, 3 * operands, INT64))
    f.bounds = IndexBounds()
    body(f, pointers, Share(f.between(thread, 0, most_threads - 1), threads))
    f.end()
    module.footprints[name] = f.footprints(operands)


def written_kernel(name: str, operands: int, body: Body) -> WrittenKernel:
    """A kernel that is alone in its module."""
    module = Module()
    write_kernel(module, name, operands, body)
    return WrittenKernel(module.text, module.footprints[name])


def checked_words(operands: Sequence[tuple[int, int, int]]) -> Any:
    """The words of operands for a kernel that is checked.

    Args:
        operands: of each the addresses of its first element, of its first byte, and of the byte after its last.
    """
    return np.array([*(address for address, _, _ in operands), *(end for _, *ends in operands for end in ends), 0, 0], np.int64)


def fault_in(words: Any) -> tuple[int, int] | None:
    """The first access that lay outside, as the operand's number and the bytes from its first one; None if all lay within."""
    root, offset = words[-2:].tolist()
    return (root - 1, offset) if root else None
