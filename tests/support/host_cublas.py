"""A stand-in for the library cuBLAS, on the memory of `support.strict_cupy`. Its functions get addresses, as the library's do."""

from __future__ import annotations

import ctypes
import itertools
from types import SimpleNamespace
from typing import Any

import numpy as np

from .strict_cupy import streams

_INVALID_VALUE = 7


class _Function:
    """A function of a library, to which ctypes lets parameters be declared."""

    def __init__(self, by: Any) -> None:
        self.argtypes: list[Any] = []
        self.restype: Any = ctypes.c_int
        self._by = by

    def __call__(self, *args: Any) -> Any:
        assert len(args) == len(self.argtypes), f"{self._by.__name__}: {len(self.argtypes)} parameters, {len(args)} arguments"
        for argument, declared in zip(args, self.argtypes, strict=True):
            declared.from_param(argument)  # TypeError for another type
        return self._by(*args)


def _matrix(address: int, rows: int, columns: int, leading: int, dtype: Any, count: int, step: int) -> Any:
    """Matrices of columns in memory, as an array [count, rows, columns]."""
    size = np.dtype(dtype).itemsize
    if not address or leading < max(rows, 1):
        return None
    extent = (columns - 1) * leading + rows + (count - 1) * step
    memory = np.ctypeslib.as_array(ctypes.cast(address, ctypes.POINTER(ctypes.c_uint8)), (extent * size,)).view(dtype)
    return np.lib.stride_tricks.as_strided(memory, (count, rows, columns), (step * size, size, leading * size))


class HostCuBlas:
    """The functions of cuBLAS that the executor calls.

    Attributes:
        calls: the names of the products that were called.
        math_modes: the modes that were set.
    """

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.math_modes: list[int] = []
        self._streams: dict[int, int] = {}
        self._handles = itertools.count(1)
        for name in ("Create_v2", "Destroy_v2", "SetStream_v2", "SetWorkspace_v2", "SetMathMode", "GetStatusString"):
            setattr(self, f"cublas{name}", _Function(getattr(self, f"_{name}")))
        for letter, dtype in (("S", "float32"), ("D", "float64")):
            setattr(self, f"cublas{letter}gemm_v2_64", _Function(self._product(letter, dtype, is_batch=False)))
            setattr(self, f"cublas{letter}gemmStridedBatched_64", _Function(self._product(letter, dtype, is_batch=True)))

    def _Create_v2(self, handle: Any) -> int:
        handle._obj.value = next(self._handles)
        self._streams[handle._obj.value] = 0
        return 0

    def _Destroy_v2(self, handle: Any) -> int:
        return 0 if self._streams.pop(handle.value, None) is not None else _INVALID_VALUE

    def _SetStream_v2(self, handle: Any, stream: int) -> int:
        if streams.Stream.by_pointer[stream].is_capturing():
            raise AssertionError("the stream of a handle is set while it records")
        self._streams[handle.value] = stream
        return 0

    def _SetWorkspace_v2(self, handle: Any, address: int, size: int) -> int:
        return 0 if address and size >= 4 << 20 else _INVALID_VALUE

    def _SetMathMode(self, handle: Any, mode: int) -> int:
        self.math_modes.append(mode)
        return 0

    def _GetStatusString(self, status: int) -> bytes:
        return b"an unsupported value or parameter was passed to the function" if status == _INVALID_VALUE else b"?"

    def _product(self, letter: str, dtype: str, is_batch: bool) -> Any:
        def product(handle: Any, turn_a: int, turn_b: int, m: int, n: int, k: int, alpha: Any, *operands: Any) -> int:
            *operands, count = operands if is_batch else (*operands, 1)
            width = 3 if is_batch else 2
            a, b = operands[:width], operands[width : 2 * width]
            beta, c = operands[2 * width], operands[2 * width + 1 :]
            assert (alpha._obj.value, beta._obj.value) == (1, 0)
            shapes = [(k, m) if turn_a else (m, k), (n, k) if turn_b else (k, n), (m, n)]
            of_a, of_b, of_c = (
                _matrix(place[0], *shape, place[1], dtype, count, place[2] if is_batch else 0)
                for place, shape in zip((a, b, c), shapes, strict=True)
            )
            if of_a is None or of_b is None or of_c is None:
                return _INVALID_VALUE
            left, right = of_a.swapaxes(1, 2) if turn_a else of_a, of_b.swapaxes(1, 2) if turn_b else of_b
            self.calls.append(f"{letter}gemm" + "StridedBatched" * is_batch)
            stream = streams.Stream.by_pointer[self._streams[handle.value]]

            def compute() -> None:
                of_c[...] = left @ right

            if stream.is_capturing():
                stream.record_call(compute, (SimpleNamespace(_host=of_c),))
            else:
                compute()
            return 0

        product.__name__ = f"cublas{letter}gemm"
        return product
