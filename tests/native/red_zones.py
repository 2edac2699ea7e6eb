"""Runs native kernels on arrays that have red zones: words before and after each that no kernel may touch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from ctypes import CFUNCTYPE, c_int64, c_void_p
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from harness import assert_within, texts

from fluid.executor.native.bounds import Footprint
from fluid.executor.native.compiler import Library, compile_object
from fluid.executor.native.emitter import Function, Module, Value
from fluid.executor.native.images import Images
from fluid.executor.native.kernel import Share, checked_words, fault_in, write_kernel
from fluid.executor.native.target import Target

_GUARD = 64
_KERNEL = CFUNCTYPE(None, c_void_p, c_int64, c_int64)

Body = Callable[[Function, Sequence[Value], Share], None]


@dataclass
class Guarded:
    """An array between red zones, filled with NaN. It does not begin at a multiple of any vector's size.

    Red zones hold ones in all bits, which is NaN: what reads them and computes with it is found, too.
    """

    shape: tuple[int, ...]
    dtype: Any = np.float32
    array: Any = field(init=False)

    def __post_init__(self) -> None:
        size, itemsize = int(np.prod(self.shape)), np.dtype(self.dtype).itemsize
        raw = np.empty(size + 2 * _GUARD + 64 // itemsize, self.dtype)
        raw.view(np.uint8)[:] = 0xFF
        first = -(raw.ctypes.data // itemsize) % (64 // itemsize) + _GUARD - 1
        self._zones = raw[:first], raw[first + size :]
        self.array = raw[first : first + size].reshape(self.shape)

    @classmethod
    def of(cls, array: Any) -> Guarded:
        guarded = cls(array.shape, array.dtype)
        guarded.array[...] = array
        return guarded

    def check(self) -> None:
        for where, zone in zip(("before", "after"), self._zones, strict=True):
            assert (zone.view(np.uint8) == 0xFF).all(), f"written {where} an array of shape {self.shape}"


@dataclass
class Kernels:
    """Kernels that are compiled together: `add` each, then `run` it by its number."""

    target: Target
    bodies: list[tuple[int, Body]] = field(default_factory=list)
    libraries: dict[bool, Library] = field(default_factory=dict)

    def add(self, operands: int, body: Body) -> int:
        self.bodies.append((operands, body))
        return len(self.bodies) - 1

    def _library(self, checked: bool) -> Library:
        if checked not in self.libraries:
            module = Module(self.target, checked)
            for count, (operands, body) in enumerate(self.bodies):
                write_kernel(module, f"kernel{count}", operands, body)
            self.libraries[checked] = Library([compile_object(module.text, self.target)], module.footprints)
        return self.libraries[checked]

    def _footprints(self, number: int, threads: int) -> list[Footprint]:
        """A kernel's footprint of each operand, for a number of threads."""
        target = replace(self.target, threads=threads)
        return texts(self.bodies[number][1], self.bodies[number][0], target=target).footprints["kernel0"]

    def run(self, number: int, arrays: Sequence[Guarded], threads: int = 1) -> None:
        """Run a kernel on arrays, a thread after the other, and check the red zones; one thread asks of each access, too,
        whether it lies within its array."""
        bounds = [(each.array.ctypes.data, each.array.ctypes.data, each.array.ctypes.data + each.array.nbytes) for each in arrays]
        words = checked_words(bounds)
        function = _KERNEL(self._library(threads == 1).addresses[f"kernel{number}"])
        for operand, (footprint, each) in enumerate(zip(self._footprints(number, threads), arrays, strict=True)):
            assert_within(operand, footprint, 0, each.array.nbytes)
        for thread in range(threads):
            function(words.ctypes.data, thread, threads)
        fault = fault_in(words)
        assert fault is None, f"operand {fault[0]} is accessed at byte {fault[1]}, outside"
        for each in arrays:
            each.check()


def laid_out(images: Images, array: Any) -> Guarded:
    """Images [N, C, H, W] as `images` says, with a cleared halo."""
    guarded = Guarded(images.shape, array.dtype)
    guarded.array[...] = 0
    inner(images, guarded.array)[...] = array
    return guarded


def inner(images: Images, array: Any) -> Any:
    """The images in their layout, without the halo, seen as [N, C, H, W]."""
    rows, columns = images.halo
    return array[:, rows : rows + images.height, columns : columns + images.width].transpose(0, 3, 1, 2)


def check_halo(images: Images, guarded: Guarded) -> None:
    copy = guarded.array.copy()
    inner(images, copy)[...] = 0
    assert not copy.any(), "the halo is no longer zero"
