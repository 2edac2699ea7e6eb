"""Tensors of which only some rows are there."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from .lod_tensor import LoDTensor
from .place import namespace_of, to_numpy

__all__ = ["SelectedRows", "add_rows_at"]


class SelectedRows:
    """Some rows of a tensor, the others being zeros; a row that is there several times counts as the sum.

    Attributes:
        index: which rows, an integer array ``[n]``.
        value: the rows, ``[n, ...]``.
        shape: of the whole tensor.
    """

    __slots__ = ("index", "shape", "value")

    __array_ufunc__ = None  # an array plus this is up to this

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
        """Of the rows that are there, and their numbers."""
        return int(self.index.nbytes + self.value.nbytes)

    def rows(self) -> list[int]:
        """Which rows are there."""
        found: list[int] = to_numpy(self.index).tolist()
        return found

    def height(self) -> int:
        """Number of rows of the whole tensor."""
        return self.shape[0]

    def get_tensor(self) -> LoDTensor:
        """The rows, as a tensor."""
        return LoDTensor(self.value)

    def copy(self) -> SelectedRows:
        return SelectedRows(self.index.copy(), self.value.copy(), self.shape[0])

    def empty(self) -> SelectedRows:
        """A tensor of this shape of which no row is there: zeros."""
        return SelectedRows(self.index[:0].copy(), self.value[:0].copy(), self.shape[0])

    def merged(self, xp: Any) -> SelectedRows:
        """Each row once, in order."""
        index, place = xp.unique(self.index, return_inverse=True)
        if len(index) == len(self.index):
            order = xp.argsort(self.index)
            return SelectedRows(index, self.value[order], self.shape[0])
        value = xp.zeros((len(index), *self.shape[1:]), self.dtype)
        add_rows_at(xp, self.value, place.reshape(-1), value)
        return SelectedRows(index, value, self.shape[0])

    def add_to(self, xp: Any, array: Any) -> None:
        """Add the rows to those of a dense array."""
        add_rows_at(xp, self.value, self.index, array)

    @staticmethod
    def total(parts: Sequence[SelectedRows]) -> SelectedRows:
        """The sum of tensors of one shape: all rows of all of them."""
        xp, height = namespace_of(parts[0].value), parts[0].shape[0]
        return SelectedRows(
            xp.concatenate([part.index for part in parts]), xp.concatenate([part.value for part in parts]), height
        )

    def __add__(self, other: Any) -> Any:
        """All rows of both; with a dense array, that array with these rows added."""
        if isinstance(other, SelectedRows):
            return SelectedRows.total([self, other])
        found = other.copy()
        self.add_to(namespace_of(found), found)
        return found

    __radd__ = __add__

    def dense(self, xp: Any) -> Any:
        """The whole tensor."""
        found = xp.zeros(self.shape, self.dtype)
        self.add_to(xp, found)
        return found

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray[Any, Any]:
        found = SelectedRows(to_numpy(self.index), to_numpy(self.value), self.shape[0]).dense(np)
        return found if dtype is None else found.astype(dtype)  # type: ignore[no-any-return]

    def __repr__(self) -> str:
        return f"<SelectedRows {len(self.index)} rows of {self.dtype}{list(self.shape)}>"


def add_rows_at(xp: Any, rows: Any, ids: Any, out: Any) -> None:
    """``out[ids] += rows`` along the first axis, for repeated ids too."""
    width = out[:1].size
    if not rows.size:
        return
    if not out.flags.c_contiguous or width == 1:
        xp.add.at(out, ids, rows.reshape(ids.shape + out.shape[1:]))
        return
    places = (ids.astype(xp.int64)[:, None] * width + xp.arange(width)).reshape(-1)
    xp.add.at(out.reshape(-1), places, rows.reshape(-1))  # several times faster flat than row by row
