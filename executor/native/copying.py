"""Kernels that copy bytes, or clear them."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from .emitter import BYTE, Function, Value, zero
from .emitter import Operand as Index
from .images import each_vector
from .instructions import KernelCall, Operand, Writer, WrittenKernel
from .kernel import Share, written_kernel
from .target import Target


def copy_call(to: Operand, source: Operand | None, size: int, target: Target) -> tuple[KernelCall, Writer]:
    """The call of a kernel that copies `size` bytes, and the kernel's writer; without a source, the bytes become zeros."""
    operands = [to] if source is None else [to, source]
    signature = f"{'clear' if source is None else 'copy'} {size} bytes"
    return KernelCall(signature, operands, size <= target.limits.serial), partial(_write, size, len(operands), target)


def _write(size: int, operands: int, target: Target, name: str) -> WrittenKernel:
    def body(f: Function, pointers: Sequence[Value], share: Share) -> None:
        write_copied(f, pointers, size, share, target)

    return written_kernel(name, operands, body, target)


def write_copied(f: Function, pointers: Sequence[Value], size: int, share: Share, target: Target) -> None:
    """Copy `size` bytes to the first pointer from the second one; without a second one, write zeros."""
    lanes, part = target.lanes(BYTE.bytes), target.limits.part

    def move(start: Value, count: int) -> None:
        to, *sources = [f.at(pointer, start, BYTE) for pointer in pointers]

        def vector(first: Index, width: int) -> None:
            type_ = BYTE.of(width)
            f.store(f.load(f.at(sources[0], first, BYTE), type_) if sources else zero(type_), f.at(to, first, BYTE))

        each_vector(f, count, lanes, vector)

    whole, remainder = divmod(size, part)
    f.loop(*share.of(f, whole), 1, [], lambda number: move(f.mul(number, part), part))
    if remainder:
        f.loop(*share.of(f, 1), 1, [], lambda _: move(f.int64(whole * part), remainder))
