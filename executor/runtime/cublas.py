"""Products by cuBLAS itself, called by ctypes: cupy refuses its own products while a stream records a CUDA graph.

A matrix of C, row after row, is the transpose of one in cuBLAS, which stores columns. So ``out = a @ b`` is computed as
``out.T = b.T @ a.T``. No matrix is turned or copied if its rows or its columns lie together.
"""

from __future__ import annotations

import ctypes
import os
import sys
from ctypes import POINTER, byref, c_char_p, c_double, c_float, c_int, c_int64, c_size_t, c_void_p
from typing import Any, NamedTuple
from weakref import finalize

import numpy as np

from fluid.errors import ExecutionError

from .calls import OutArray

__all__ = ["CuBlas", "CuBlasNamespace", "declare_functions", "load_cublas"]

_WORKSPACE, _WORKSPACE_OF_HOPPER = 8 << 20, 32 << 20
"""Bytes of memory for intermediate results. With memory of the caller's, cuBLAS allocates none while a stream records."""
_TF32 = 3
"""CUBLAS_TF32_TENSOR_OP_MATH."""
_SIZES = {"float32": c_float, "float64": c_double}
_LETTERS = {"float32": "S", "float64": "D"}
_PRODUCT, _PRODUCTS = "gemm_v2_64", "gemmStridedBatched_64"
"""How the names of cuBLAS's functions end: for one product, and for the products of two stacks of matrices."""


def load_cublas(cupy: Any) -> Any:
    """Load cuBLAS by ctypes, from where cupy loads it.

    Raises:
        ExecutionError: it is not there.
    """
    try:
        from cuda.pathfinder import load_nvidia_dynamic_lib  # cupy 14 finds its libraries by it

        path = load_nvidia_dynamic_lib("cublas").abs_path
    except Exception:  # an older cupy, or libraries at an unusual place
        version = cupy.cuda.runtime.runtimeGetVersion() // 1000
        path = f"cublas64_{version}.dll" if sys.platform == "win32" else f"libcublas.so.{version}"
    try:
        return declare_functions(ctypes.CDLL(path))
    except (OSError, AttributeError) as error:
        raise ExecutionError(f"cuBLAS of CUDA 12 or later cannot be loaded: {error}") from error


def declare_functions(library: Any) -> Any:
    """Declare the parameters of the functions that are called here; AttributeError if the library has not all of them."""
    operands = [c_void_p, c_int64]
    batch = [*operands, c_int64]
    for letter, number in (("S", c_float), ("D", c_double)):
        start = [c_void_p, c_int, c_int, c_int64, c_int64, c_int64, POINTER(number)]
        of_one, of_many = (getattr(library, f"cublas{letter}{suffix}") for suffix in (_PRODUCT, _PRODUCTS))
        of_one.argtypes = [*start, *operands, *operands, POINTER(number), *operands]
        of_many.argtypes = [*start, *batch, *batch, POINTER(number), *batch, c_int64]
    library.cublasCreate_v2.argtypes = [POINTER(c_void_p)]
    library.cublasDestroy_v2.argtypes = [c_void_p]
    library.cublasSetStream_v2.argtypes = [c_void_p, c_void_p]
    library.cublasSetWorkspace_v2.argtypes = [c_void_p, c_void_p, c_size_t]
    library.cublasSetMathMode.argtypes = [c_void_p, c_int]
    library.cublasGetStatusString.argtypes, library.cublasGetStatusString.restype = [c_int], c_char_p
    return library


class _MatrixLayout(NamedTuple):
    """How cuBLAS reads a matrix, or a stack of them.

    Attributes:
        is_turned: whether its columns lie together, not its rows.
        leading: elements from one row (or column) to the next.
        step: elements from one matrix of the stack to the next.
    """

    is_turned: bool
    leading: int
    step: int


def _layout(array: Any) -> _MatrixLayout | None:
    """The layout of a matrix or a stack; None if it has to be copied first."""
    if any(stride % array.itemsize for stride in array.strides):
        return None
    *steps, down, right = (stride // array.itemsize for stride in array.strides)
    *stack, rows, columns = array.shape
    step = _step_of_stack(stack, steps)
    if step is None:
        return None
    if (right == 1 or columns == 1) and (down >= columns or rows == 1):
        return _MatrixLayout(False, max(down if rows > 1 else columns, 1), step)
    if (down == 1 or rows == 1) and (right >= rows or columns == 1):
        return _MatrixLayout(True, max(right if columns > 1 else rows, 1), step)
    return None


def _step_of_stack(extents: list[int], strides: list[int]) -> int | None:
    """The distance between neighbouring matrices, 0 for a single one; None if they do not lie at equal distances."""
    step, reach = 0, None
    for extent, stride in zip(reversed(extents), reversed(strides), strict=True):
        if extent > 1:
            if reach is None:
                step = stride
            elif stride != reach:
                return None
            reach = stride * extent
    return step if step >= 0 else None


class CuBlas:
    """cuBLAS for one stream, with memory of its own. The stream is set here, since it cannot be set while it records.

    Args:
        library: see `load_cublas`.
        cupy: the array namespace.
        stream: the stream on which products are computed, whichever is current.
    """

    def __init__(self, library: Any, cupy: Any, stream: Any) -> None:
        self._library, self._cupy = library, cupy
        self._handle = c_void_p()
        self._check(library.cublasCreate_v2(byref(self._handle)))
        finalize(self, library.cublasDestroy_v2, c_void_p(self._handle.value)).atexit = False
        self._check(library.cublasSetStream_v2(self._handle, stream.ptr))
        is_hopper = int(cupy.cuda.Device().compute_capability) >= 90
        self._workspace = cupy.empty(_WORKSPACE_OF_HOPPER if is_hopper else _WORKSPACE, "uint8")
        self._check(library.cublasSetWorkspace_v2(self._handle, self._workspace.data.ptr, self._workspace.nbytes))
        if os.environ.get("CUPY_TF32", "0") not in ("", "0"):  # as cupy's own products
            self._check(library.cublasSetMathMode(self._handle, _TF32))

    def _check(self, status: int) -> None:
        if status:
            reason = (self._library.cublasGetStatusString(status) or b"").decode() or f"status {status}"
            raise ExecutionError(f"cuBLAS: {reason}")

    def multiply(self, a: Any, b: Any, out: OutArray) -> None:
        """Compute ``out = a @ b`` of matrices or stacks of them, which are broadcast to the shape of `out`."""
        xp, stack = self._cupy, out.shape[:-2]
        (rows, depth), columns = a.shape[-2:], b.shape[-1]
        if not out.size:
            return
        if not depth:
            out.fill(0)
            return
        if a.shape[:-2] != stack:
            a = xp.broadcast_to(a, (*stack, rows, depth))
        if b.shape[:-2] != stack:
            b = xp.broadcast_to(b, (*stack, depth, columns))
        of_out = _layout(out)
        if of_out is None:
            result = xp.empty(out.shape, out.dtype)
            self.multiply(a, b, result)
            xp.copyto(out, result)
            return
        if of_out.is_turned:
            a, b, out = b.swapaxes(-1, -2), a.swapaxes(-1, -2), out.swapaxes(-1, -2)
            rows, columns = columns, rows
        a, of_a = self._readable(a)
        b, of_b = self._readable(b)
        self._call(out, (columns, rows, depth), (b, of_b), (a, of_a), of_out)

    def _readable(self, array: Any) -> tuple[Any, _MatrixLayout]:
        layout = _layout(array)
        if layout is None:
            array = self._cupy.ascontiguousarray(array)
            layout = _layout(array)
            assert layout is not None, "rows of a contiguous array lie together"
        return array, layout

    def _call(
        self,
        out: Any,
        sizes: tuple[int, int, int],
        left: tuple[Any, _MatrixLayout],
        right: tuple[Any, _MatrixLayout],
        of_out: _MatrixLayout,
    ) -> None:
        """Compute a product as cuBLAS sees it: `left` and `right` are transposed, and have changed places."""
        name, count = out.dtype.name, out.size // (out.shape[-1] * out.shape[-2])
        number, suffix = _SIZES[name], _PRODUCT if count == 1 else _PRODUCTS
        places: list[list[int]] = [
            [array.data.ptr, layout.leading, layout.step][: 2 if count == 1 else 3]
            for array, layout in (left, right, (out, of_out))
        ]
        start = (self._handle, int(left[1].is_turned), int(right[1].is_turned), *sizes, byref(number(1)))
        function = getattr(self._library, f"cublas{_LETTERS[name]}{suffix}")
        batch = () if count == 1 else (count,)
        self._check(function(*start, *places[0], *places[1], byref(number(0)), *places[2], *batch))


class CuBlasNamespace:
    """cupy, with products and sums of products that a stream can record."""

    __name__ = "cupy"

    def __init__(self, cupy: Any, blas: CuBlas) -> None:
        self._cupy, self._blas = cupy, blas

    def __getattr__(self, name: str) -> Any:
        return getattr(self._cupy, name)

    def dot(self, a: Any, b: Any, out: Any = None) -> Any:
        """``cupy.dot``."""
        if max(a.ndim, b.ndim) > 2:
            return self._cupy.dot(a, b, out)
        return self.matmul(a, b, out=out)

    def matmul(self, a: Any, b: Any, out: Any = None) -> Any:
        """``cupy.matmul``."""
        dtypes = {a.dtype, b.dtype} | ({out.dtype} if out is not None else set())
        if len(dtypes) > 1 or a.dtype.name not in _SIZES or not a.ndim or not b.ndim:
            return self._cupy.matmul(a, b, out=out)
        left, right = a[None, :] if a.ndim == 1 else a, b[:, None] if b.ndim == 1 else b
        if left.shape[-1] != right.shape[-2]:
            return self._cupy.matmul(a, b, out=out)  # raises the error
        stack = np.broadcast_shapes(left.shape[:-2], right.shape[:-2])
        rows, columns = left.shape[-2:-1], right.shape[-1:]
        if out is None:
            out = self._cupy.empty((*stack, *(rows if a.ndim > 1 else ()), *(columns if b.ndim > 1 else ())), a.dtype)
        self._blas.multiply(left, right, out.reshape(*stack, *rows, *columns))
        return out

    def einsum(self, subscripts: str, *operands: Any) -> Any:
        """``cupy.einsum``: sums of the products of two arrays that have the same letters, without cuBLAS."""
        letters, _, result = subscripts.partition("->")
        if len(operands) != 2 or len(set(letters.split(","))) > 1 or operands[0].shape != operands[1].shape:
            return self._cupy.einsum(subscripts, *operands)
        names = letters.split(",")[0]
        if "..." in names:
            free = operands[0].ndim - len(names) + 3
            names, result = (text.replace("...", "".join(map(chr, range(0x100, 0x100 + free)))) for text in (names, result))
        if len(set(names)) < len(names) or "".join(name for name in names if name in result) != result:
            return self._cupy.einsum(subscripts, *operands)
        axes = tuple(axis for axis, name in enumerate(names) if name not in result)
        return (operands[0] * operands[1]).sum(axes)
