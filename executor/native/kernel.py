"""Kernels: compiled functions that a table of records calls.

A kernel is ``void kernel(ptr operands, i64 thread, i64 threads)``. `operands` points to one 64-bit word per operand: the address
of its first element. Extents and strides are constants in the code. All threads call the same kernels in the same order, and each
computes its share of the chunks. Chunks depend on shapes alone, so results do not depend on the number of threads. A record of a
table holds four words: the kernel's address, the address of its operands' addresses, flags, and for a branch the number of
records to skip.

A kernel in a checked module reads more words after the addresses: per operand, the addresses of its first byte and of the byte
after its last; then two words that it writes if an access is outside (`checked_words`, `fault_in`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from .bounds import IndexBounds, Sum
from .emitter import BYTE, INT64, POINTER, Function, Module, Operand, Value
from .instructions import WrittenKernel
from .target import Target


@dataclass(frozen=True)
class Share:
    """One thread's share of the work: values of the function being written."""

    thread: Value
    threads: Value

    def of(self, f: Function, chunks: int) -> tuple[Operand, Operand]:
        """The first chunk of this thread, and the one after its last."""
        if f.module.target.threads == 1:
            return 0, chunks
        if chunks == 1:
            first = f.compare("eq", self.thread, 0)
            return 0, f.select(first, f.int64(1), f.int64(0))
        start = f.div(f.mul(self.thread, chunks), self.threads)
        stop = f.div(f.mul(f.add(self.thread, 1), chunks), self.threads)
        return f.between(start, 0, chunks), f.between(stop, 0, chunks)


Body: TypeAlias = "Callable[[Function, Sequence[Value], Share], None]"
"""Writes the body of a kernel, from the pointers to its operands and the thread's share."""


def write_kernel(module: Module, name: str, operands: int, body: Body) -> None:
    """Write a kernel for at most the number of threads of the module's target."""
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
    most = module.target.threads
    share = Share(f.int64(0), f.int64(1)) if most == 1 else Share(f.between(thread, 0, most - 1), threads)
    body(f, pointers, share)
    f.end()
    module.footprints[name] = f.footprints(operands)


def written_kernel(name: str, operands: int, body: Body, target: Target) -> WrittenKernel:
    """Write a kernel as the only kernel of a new module."""
    module = Module(target)
    write_kernel(module, name, operands, body)
    return WrittenKernel(module.text, module.footprints[name])


def written_condition(target: Target, name: str) -> WrittenKernel:
    """Write a stand-in for a record that may skip others, which calls no kernel: it reads the condition, one byte."""

    def body(f: Function, pointers: Sequence[Value], share: Share) -> None:
        f.load(f.at(pointers[0], 0, BYTE), BYTE)

    return written_kernel(name, 1, body, target)


def checked_words(operands: Sequence[tuple[int, int, int]]) -> Any:
    """The words of the operands of a checked kernel.

    Args:
        operands: per operand, the addresses of its first element, of its first byte, and of the byte after its last.
    """
    return np.array([*(address for address, _, _ in operands), *(end for _, *ends in operands for end in ends), 0, 0], np.int64)


def fault_in(words: Any) -> tuple[int, int] | None:
    """The first access outside its operand, as (operand, byte offset from its first byte); None if there was none."""
    root, offset = words[-2:].tolist()
    return (root - 1, offset) if root else None
