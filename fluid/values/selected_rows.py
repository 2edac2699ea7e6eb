"""Tensors of which only some rows are stored."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from .lod_tensor import LoDTensor
from .place import namespace_of, to_numpy

__all__ = ["SelectedRows", "add_rows_at"]


class SelectedRows:
    """Some rows of a tensor; the others are zeros. A row that is stored several times counts as the sum.

    Attributes:
        index: the indices of the rows, an integer array ``[n]``.
        value: the rows, ``[n, ...]``.
        shape: the shape of the whole tensor.
    """

    __slots__ = ("index", "shape", "value")

    __array_ufunc__ = None  # array + self calls __radd__

    def __init__(self, index: Any, value: Any, height: int) -> None:
        self.index, self.value = index, value
        self.shape: tuple[int, ...] = (int(height), *value.shape[1:])

    @property
    def dtype(self) -> Any:
        return self.value.dtype

    @property
    def size(self) -> int:
        return int(self.value.size)

    @property
    def nbytes(self) -> int:
        """Bytes of the stored rows and their indices."""
        return int(self.index.nbytes + self.value.nbytes)

    def rows(self) -> list[int]:
        """The indices of the stored rows."""
        return to_numpy(self.index).tolist()  # type: ignore[no-any-return]

    def height(self) -> int:
        """Number of rows of the whole tensor."""
        return self.shape[0]

    def get_tensor(self) -> LoDTensor:
        """The stored rows, as a tensor."""
        return LoDTensor(self.value)

    def copy(self) -> SelectedRows:
        return SelectedRows(self.index.copy(), self.value.copy(), self.shape[0])

    def empty(self) -> SelectedRows:
        """A tensor of this shape without stored rows: zeros."""
        return SelectedRows(self.index[:0].copy(), self.value[:0].copy(), self.shape[0])

    def merged(self, xp: Any) -> SelectedRows:
        """The same tensor with each row stored once, sorted by index."""
        index, place = xp.unique(self.index, return_inverse=True)
        if len(index) == len(self.index):
            order = xp.argsort(self.index)
            return SelectedRows(index, self.value[order], self.shape[0])
        value = xp.zeros((len(index), *self.shape[1:]), self.dtype)
        add_rows_at(xp, self.value, place.reshape(-1), value)
        return SelectedRows(index, value, self.shape[0])

    def add_to(self, xp: Any, array: Any) -> None:
        """Add the rows to a dense array, in place."""
        add_rows_at(xp, self.value, self.index, array)

    @staticmethod
    def total(parts: Sequence[SelectedRows]) -> SelectedRows:
        """The sum of tensors of one shape, which stores all rows of all of them."""
        xp = namespace_of(parts[0].value)
        index, value = (xp.concatenate([getattr(part, name) for part in parts]) for name in ("index", "value"))
        return SelectedRows(index, value, parts[0].shape[0])

    def __add__(self, other: Any) -> Any:
        """A `SelectedRows` with the rows of both; with a dense array, a dense array."""
        if isinstance(other, SelectedRows):
            return SelectedRows.total([self, other])
        total = other.copy()
        self.add_to(namespace_of(total), total)
        return total

    __radd__ = __add__

    def dense(self, xp: Any) -> Any:
        """The whole tensor, as an array."""
        array = xp.zeros(self.shape, self.dtype)
        self.add_to(xp, array)
        return array

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray[Any, Any]:
        array = SelectedRows(to_numpy(self.index), to_numpy(self.value), self.shape[0]).dense(np)
        return array if dtype is None else array.astype(dtype)  # type: ignore[no-any-return]

    def __repr__(self) -> str:
        return f"<SelectedRows {len(self.index)} rows of {self.dtype}{list(self.shape)}>"


def add_rows_at(xp: Any, rows: Any, ids: Any, out: Any) -> None:
    """``out[ids] += rows`` along the first axis, in place; repeated ids add up."""
    width = out[:1].size
    if not rows.size:
        return
    if not out.flags.c_contiguous or width == 1:
        xp.add.at(out, ids, rows.reshape(ids.shape + out.shape[1:]))
        return
    places = (ids.astype(xp.int64)[:, None] * width + xp.arange(width)).reshape(-1)
    xp.add.at(out.reshape(-1), places, rows.reshape(-1))  # several times faster flat than row by row
