"""Functions of numpy's OpenBLAS that numpy does not offer."""

from __future__ import annotations

import ctypes
import sys
from functools import cache
from typing import Any, NamedTuple

import numpy as np

_NAMES = [(start, end) for start in ("scipy_", "") for end in ("64_", "")]
_ROWS_FIRST, _LEFT = 101, 141
_UPPER, _LOWER = 121, 122
_AS_IT_IS, _TRANSPOSED = 111, 112
_NON_UNIT, _UNIT = 131, 132
_LETTERS = {"f4": "s", "f8": "d", "c8": "c", "c16": "z"}


class OpenBlas(NamedTuple):
    """A library, and the prefix and suffix of its names."""

    library: ctypes.CDLL
    start: str
    end: str

    def function(self, name: str) -> Any:
        """The function of a name; raises `AttributeError` if the library has none."""
        return getattr(self.library, f"{self.start}{name}{self.end}")

    @property
    def index_type(self) -> Any:
        """The type of its integers."""
        return ctypes.c_int64 if self.end else ctypes.c_int32


@cache
def openblas() -> OpenBlas | None:
    """Find the OpenBLAS of numpy; None if numpy has another BLAS, or it cannot be found on this platform."""
    try:
        file = sys.modules["numpy._core._multiarray_umath"].__file__
        library = ctypes.CDLL(file)  # looks up names in linked libraries, too
    except (KeyError, OSError):
        return None
    for start, end in _NAMES:
        if hasattr(library, f"{start}openblas_get_num_threads{end}"):
            return OpenBlas(library, start, end)
    return None


@cache
def _solver(letter: str) -> Any:
    """The function of BLAS that solves triangular systems of an element type; None if there is none."""
    blas = openblas()
    if blas is None:
        return None
    try:
        function = blas.function(f"cblas_{letter}trsm")
    except AttributeError:
        return None
    index = blas.index_type
    number = {"s": ctypes.c_float, "d": ctypes.c_double}.get(letter, ctypes.c_void_p)
    function.argtypes = [*[ctypes.c_int] * 5, index, index, number, ctypes.c_void_p, index, ctypes.c_void_p, index]
    function.restype = None
    return function


def has_triangular_solver(dtype: Any) -> bool:
    """Whether `solve_triangular` can solve systems of this element type."""
    return dtype.str[1:] in _LETTERS and dtype.isnative and _solver(_LETTERS[dtype.str[1:]]) is not None


def solve_triangular(matrix: Any, columns: Any, is_upper: bool, transpose: bool, is_unit: bool) -> None:
    """Replace the columns of matrices [..., N, K] by the solutions X of ``matrix @ X = columns``.

    Args:
        matrix: [..., N, N], with the leading dimensions and the element type of `columns`. Of each, one triangle is read.
        columns: contiguous; written in place.
        transpose: the matrix is transposed after its triangle is read.
        is_unit: the diagonal counts as ones.
    """
    size, width = columns.shape[-2:]
    letter = _LETTERS[columns.dtype.str[1:]]
    function = _solver(letter)
    one = np.ones((), columns.dtype)
    order = _TRANSPOSED if transpose else _AS_IT_IS
    how = (_ROWS_FIRST, _LEFT, _UPPER if is_upper else _LOWER, order, _UNIT if is_unit else _NON_UNIT, size, width)
    factor = one.ctypes.data if letter in "cz" else float(one)
    matrix = np.ascontiguousarray(matrix)
    stride, step = matrix.itemsize * size * size, columns.itemsize * size * width
    for number in range(columns.size // max(size * width, 1)):
        function(*how, factor, matrix.ctypes.data + number * stride, size, columns.ctypes.data + number * step, width)
