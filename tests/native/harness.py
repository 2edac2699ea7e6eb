"""Runs kernels over numpy arrays as tests want them run: with red zones, on each kind of processor, by any number of threads.

`run` is what tests call::

    from harness import TARGETS, run

    def test_doubling():
        x = np.arange(5, dtype=np.float32)

        def body(f, pointers, share):
            ...

        for target in TARGETS:
            _, y = run(body, [x, np.zeros_like(x)], target)
            np.testing.assert_array_equal(y, 2 * x)
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import Any

import numpy as np
import pytest

from fluid.executor.native import compiler
from fluid.executor.native.bounds import Footprint
from fluid.executor.native.compiler import Library, compile_object
from fluid.executor.native.emitter import Function, Module, Value
from fluid.executor.native.kernel import Share, checked_words, fault_in, write_kernel
from fluid.executor.native.target import Target

Body = Callable[[Function, Sequence[Value], Share], None]

AVX2 = Target.of("x86_64-unknown-linux-gnu", "x86-64-v3", "+avx2,+fma,+f16c,+bmi,+bmi2,+lzcnt")
AVX512 = Target.of("x86_64-unknown-linux-gnu", "x86-64-v4", AVX2.features + ",+avx512f,+avx512bw,+avx512cd,+avx512dq,+avx512vl")
NEON = Target.of("aarch64-unknown-linux-gnu", "neoverse-n1", "+neon,+fp-armv8")
CROSS = {"AVX2": AVX2, "AVX-512": AVX512, "NEON": NEON}
"""Processors that code can be made for here, wherever here is (`emits`)."""


def _runnable() -> list[Target]:
    """Processors whose code runs here: this one and older ones."""
    host = compiler.host()
    older = [Target.of(host.triple, target.cpu, target.features) for target in (AVX2,) if host.vector_bytes > target.vector_bytes]
    return [host, *older]


TARGETS = _runnable()


def nth_target(number: int) -> Target:
    """One of them, whatever the number."""
    return TARGETS[number % len(TARGETS)]


def set_limits(patches: pytest.MonkeyPatch, **limits: int) -> None:
    """Let plans be made with other limits, for this processor."""
    set_target(patches, replace(compiler.host(), limits=replace(compiler.host().limits, **limits)))


def set_target(patches: pytest.MonkeyPatch, target: Target) -> None:
    """Let plans be made for a processor, whose code runs here."""
    patches.setattr(compiler, "host", lambda: target)


_RED_BYTES = 1024


def _red(size: int, itemsize: int, number: int) -> Any:
    """At least as many bytes of signalling NaNs: arithmetic changes them, and their lower bits tell places apart."""
    word, bits = (np.uint64, 0x7FF4 << 48) if itemsize == 8 else (np.uint32, 0x7FA0 << 16)
    places = np.arange(size // np.dtype(word).itemsize + 1, dtype=word) + word(4099 * number)
    return (word(bits) + places % word(0x10000)).view(np.uint8)


class _Guarded:
    """A copy of the operand of a number, with the same strides, between red zones."""

    def __init__(self, number: int, array: Any, align: int) -> None:
        low, high = np.lib.array_utils.byte_bounds(array) if array.size else (array.ctypes.data, array.ctypes.data)
        before, size = array.ctypes.data - low, high - low
        self._memory = _red(2 * _RED_BYTES + size + 2 * 64, array.itemsize, number)
        first = -(-(self._memory.ctypes.data + _RED_BYTES) // 64) * 64 - self._memory.ctypes.data
        first += align % 64  # aligned to `align` bytes, and to no more
        self.low = self._memory.ctypes.data + first
        self.high = self.low + size
        self.array: Any = np.ndarray(array.shape, array.dtype, self._memory, first + before, array.strides)
        self._red = np.ones(len(self._memory), np.bool_)
        own = np.ndarray((*array.shape, array.itemsize), np.bool_, self._red, first + before, (*array.strides, 1))
        own[...] = False
        self.array[...] = array
        self._kept = self._memory[self._red]

    def damage(self) -> list[int]:
        """Where bytes outside the array's elements have changed, counted from the first byte of the array."""
        places = np.flatnonzero(self._red)[self._memory[self._red] != self._kept]
        return (places + self._memory.ctypes.data - self.low).tolist()  # type: ignore[no-any-return]


@dataclass(frozen=True)
class Compiled:
    """Kernels that follow each other, with a barrier between two, over the same operands."""

    addresses: Sequence[int]
    footprints: Callable[[int], Sequence[list[Footprint]]]
    """What kernels say that they access of each operand, by how many threads there are."""
    checked: bool
    library: Library

    def __call__(self, arrays: Sequence[Any], threads: int = 1, align: int | None = None) -> list[Any]:
        """The arrays as the kernels leave them; the given ones stay as they are.

        The last thread's share is computed first: where that changes anything, the shares depend on each other.
        """
        guarded = [_Guarded(number, array, align or array.itemsize) for number, array in enumerate(arrays)]
        words = checked_words([(copy.array.ctypes.data, copy.low, copy.high) for copy in guarded])
        footprints = self.footprints(threads)
        for number, address in enumerate(self.addresses):
            kernel = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)(address)
            for thread in reversed(range(threads)):
                kernel(words.ctypes.data, thread, threads)
                where = f"kernel {number}, thread {thread} of {threads}"
                fault = fault_in(words)
                assert fault is None, f"{where}: an access to operand {fault[0]} at byte {fault[1]}, outside"
                for operand, copy in enumerate(guarded):
                    damage = copy.damage()
                    assert not damage, f"{where}: it wrote outside operand {operand}, at bytes {damage[:8]}"
            for operand, (footprint, copy) in enumerate(zip(footprints[number], guarded, strict=True)):
                first = copy.array.ctypes.data
                assert_within(operand, footprint, copy.low - first, copy.high - first)
        return [copy.array for copy in guarded]


def assert_within(operand: int, footprint: Footprint, low: int, high: int) -> None:
    """Assert that a kernel's footprint of an operand is within the given bytes."""
    first, end = footprint
    assert first == end or low <= first <= end <= high, f"operand {operand}: bytes {first} to {end} of {low} to {high}"


def texts(phases: Body | Sequence[Body], operands: int, checked: bool = False, target: Target | None = None) -> Module:
    """Kernels, one for each phase; for this processor unless a target is given."""
    module = Module(target or compiler.host(), checked)
    for number, body in enumerate([phases] if callable(phases) else phases):
        write_kernel(module, f"kernel{number}", operands, body)
    return module


def compiled(phases: Body | Sequence[Body], operands: int, target: Target | None = None, checked: bool = False) -> Compiled:
    """Compile kernels for a processor that code of runs here; the same text is compiled once."""
    processor = target or compiler.host()
    module = texts(phases, operands, checked, processor)
    library = _library(module.text, tuple(module.names), processor)

    footprints = partial(_footprints, phases, operands, processor)
    return Compiled([library.addresses[name] for name in module.names], footprints, checked, library)


def _footprints(phases: Body | Sequence[Body], operands: int, target: Target, threads: int) -> list[list[Footprint]]:
    """What each kernel says that it accesses of each operand, if so many threads run it."""
    return list(texts(phases, operands, target=replace(target, threads=threads)).footprints.values())


@cache
def _library(text: str, names: tuple[str, ...], target: Target) -> Library:
    return Library([compile_object(text, target)], dict.fromkeys(names, ()))


def run(
    phases: Body | Sequence[Body],
    arrays: Sequence[Any],
    target: Target | None = None,
    threads: Iterable[int] = (1, 2, 4),
    checked: bool = True,
    align: int | None = None,
) -> list[Any]:
    """Run kernels with each number of threads, assert equal bits, and return the arrays.

    Every element outside the arrays (in gaps of their strides, too) has to stay as it was; what lies there is a NaN.

    Args:
        phases: the body of a kernel as `write_kernel` takes it, or several that follow each other with a barrier between two.
        arrays: operands, of any strides. They stay as they are.
        target: what is compiled for; None for this processor.
        checked: compute also, and first, with every access checked; the bits have to be the same.
        align: bytes that the kernel takes arrays to be aligned to; None for those of an element. They are never aligned to more.
    """
    results: list[Any] | None = None
    footprints = cache(partial(_footprints, phases, len(arrays), target or compiler.host()))
    for mode in (True, False) if checked else (False,):
        kernels = replace(compiled(phases, len(arrays), target, mode), footprints=footprints)
        for count in threads:
            these = kernels(arrays, count, align)
            for operand, (one, other) in enumerate(zip(these, results or these, strict=True)):
                same = one.tobytes() == other.tobytes()
                assert same, f"{count} threads{', checked' if mode else ''}: operand {operand} has other bits"
            results = results or these
    assert results is not None
    return results


def emits(phases: Body | Sequence[Body], operands: int, target: Target) -> bytes:
    """Compile kernels to an object file for any processor, for inspection."""
    import llvmlite.binding as llvm

    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    code = compile_object(texts(phases, operands, target=target).text, target)
    assert code[:4] == b"\x7fELF"
    return code
