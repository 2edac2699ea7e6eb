"""Tensors that store only some of their rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..errors import ExecutionError
from .bfloat16 import BFLOAT16, to_bfloat16, to_float32
from .lod_tensor import LoDTensor
from .place import namespace_of, to_numpy


class SelectedRows:
    """Some rows of a tensor; the others are zeros. A row that is stored several times counts as the sum.

    ``SelectedRows(rows, height)`` and ``SelectedRows()`` have no values yet: as in Fluid 1.6, ``get_tensor().set(...)``
    gives them.

    Args:
        index: the indices of the rows, an integer array ``[n]``.
        value: the rows, ``[n, ...]``.
        height: the number of rows of the whole tensor.

    Attributes:
        shape: the shape of the whole tensor.

    >>> rows = fluid.core.SelectedRows(np.array([0, 2]), np.ones([2, 3], "float32"), 4)
    >>> rows.rows(), rows.height()
    ([0, 2], 4)
    """

    __slots__ = ("_changed", "index", "shape", "value")

    __array_ufunc__ = None  # array + self calls __radd__

    def __init__(self, index: Any = (), value: Any = 0, height: int | None = None) -> None:
        if height is None:
            index, value, height = np.asarray(index, np.int64), np.empty(0, np.float32), value
        self.index, self.value = index, value
        self.shape: tuple[int, ...] = (int(height), *value.shape[1:])
        self._changed: Callable[[], None] | None = None

    @property
    def dtype(self) -> Any:
        """The element type."""
        return self.value.dtype

    @property
    def size(self) -> int:
        """The number of elements of the stored rows."""
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
        return _StoredRows(self)

    # -- as Fluid 1.6 fills it piece by piece
    def set_height(self, height: int) -> None:
        """Set the number of rows of the whole tensor."""
        self.become(self.index, self.value, height)
        self._notify()

    def set_rows(self, rows: Sequence[int]) -> None:
        """Set the indices of the rows that ``get_tensor()`` holds."""
        self.become(namespace_of(self.value).asarray(rows, np.int64), self.value, self.shape[0])
        self._notify()

    def sync_index(self) -> None:
        """Do nothing: rows are looked up by what `set_rows` said last."""

    def set_values(self, value: Any) -> None:
        """Hold other rows, ``[n, ...]``, at the same indices."""
        self.become(namespace_of(value).asarray(self.index), value, self.shape[0])
        self._notify()

    def become(self, index: Any, value: Any, height: int) -> None:
        """Hold what ``SelectedRows(index, value, height)`` does.

        Args:
            index, value, height: as of the class.
        """
        self.index, self.value, self.shape = index, value, (int(height), *value.shape[1:])

    def watch(self, changed: Callable[[], None]) -> None:
        """Call `changed` whenever one of the setters was called."""
        self._changed = changed

    def _notify(self) -> None:
        if self._changed is not None:
            self._changed()

    def complete(self) -> SelectedRows | None:
        """The tensor as it is now, or None while rows and values differ in number; values without any rows count for nothing."""
        if self.value.shape == (0,) or len(self.index) not in (0, len(self.value)):
            return None
        return SelectedRows(self.index, self.value[: len(self.index)], self.shape[0])

    def places(self, xp: Any, ids: Any) -> Any:
        """The places where the rows of these ids are stored; `ExecutionError` if one is not. Each row should be stored once."""
        order = xp.argsort(self.index)
        ranks = xp.searchsorted(self.index[order], ids)
        places = order[xp.minimum(ranks, len(order) - 1)] if len(order) else xp.zeros(ids.shape, np.int64)
        absent = self.index[places] != ids if len(order) else xp.ones(ids.shape, bool)
        if absent.any():
            row = int(ids[absent].reshape(-1)[0])
            raise ExecutionError(f"row {row} of a sparse tensor is asked for, but it stores {len(order)} other rows alone")
        return places

    @staticmethod
    def of_all_rows(array: Any) -> SelectedRows:
        """A dense array as a tensor all of whose rows are stored."""
        return SelectedRows(namespace_of(array).arange(len(array)), array, len(array))

    def copy(self) -> SelectedRows:
        """The same tensor in new memory."""
        return SelectedRows(self.index.copy(), self.value.copy(), self.shape[0])

    def empty(self) -> SelectedRows:
        """A tensor of this shape without stored rows: zeros."""
        return SelectedRows(self.index[:0].copy(), self.value[:0].copy(), self.shape[0])

    @classmethod
    def chosen(cls, xp: Any, index: Any, value: Any, is_chosen: Any, height: int) -> SelectedRows:
        """Select the rows where `is_chosen` is true.

        A namespace whose shapes are fixed before values are known brings `choose_rows`, and `merge_rows` for `merged`. They keep
        the number of rows: a row that is left out has the index `height` and zeros as values.

        Args:
            xp: numpy or cupy.
            index, value, height: as of the class.
            is_chosen: for each row, whether it is taken.
        """
        if (choose := getattr(xp, "choose_rows", None)) is not None:
            index, value = choose(index, value, is_chosen, height)
            return cls(index, value, height)
        return cls(index[is_chosen], value[is_chosen], height)

    def merged(self, xp: Any) -> SelectedRows:
        """The same tensor with each row stored once, sorted by index."""
        if (merge := getattr(xp, "merge_rows", None)) is not None:
            index, value = merge(self.index, self.value, self.shape[0])
            return SelectedRows(index, value, self.shape[0])
        order, index, is_first = self._ordered(xp)
        if is_first is None:
            return SelectedRows(index, self.value.take(order, 0), self.shape[0])
        return self._merged(xp, order, index, is_first)

    def distinct(self, xp: Any) -> SelectedRows:
        """The same tensor with each row stored once, in any order; this one if it is so already."""
        if hasattr(xp, "merge_rows"):
            return self.merged(xp)
        order, index, is_first = self._ordered(xp)
        return self if is_first is None else self._merged(xp, order, index, is_first)

    def _ordered(self, xp: Any) -> tuple[Any, Any, Any]:
        """The places of the rows, sorted by index; their indices; and which are the first of their index, None if all are."""
        order = xp.argsort(self.index, kind="stable")
        index = self.index.take(order)
        differs = xp.not_equal(index[1:], index[:-1])
        if bool(differs.all()):
            return order, index, None
        return order, index, xp.concatenate([xp.ones(1, bool), differs])

    def _merged(self, xp: Any, order: Any, index: Any, is_first: Any) -> SelectedRows:
        firsts, repeats = xp.flatnonzero(is_first), xp.flatnonzero(~is_first)
        value = self.value.take(order.take(firsts), 0)
        add_rows_at(xp, self.value.take(order.take(repeats), 0), xp.cumsum(is_first).take(repeats) - 1, value)
        return SelectedRows(index.take(firsts), value, self.shape[0])

    def add_to(self, xp: Any, array: Any) -> None:
        """Add the rows to a dense array, in place."""
        add_rows_at(xp, self.value, self.index, array)

    @staticmethod
    def total(parts: Sequence[SelectedRows]) -> SelectedRows:
        """The sum of tensors with one shape; it stores the rows of each of them."""
        xp = namespace_of(parts[0].value)
        index, value = (xp.concatenate([getattr(part, name) for part in parts]) for name in ("index", "value"))
        return SelectedRows(index, value, parts[0].shape[0])

    def __add__(self, operand: Any) -> Any:
        """A `SelectedRows` with the rows of both; with a dense array, a dense array."""
        if isinstance(operand, SelectedRows):
            return SelectedRows.total([self, operand])
        total = operand.copy()
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


class _StoredRows(LoDTensor):
    """The stored rows of a `SelectedRows`; setting this tensor sets the rows."""

    __slots__ = ("_rows",)

    def __init__(self, rows: SelectedRows) -> None:
        self._rows = rows
        super().__init__()

    @property
    def held(self) -> Any:
        """The rows as they are now."""
        return self._rows.value

    @property
    def array(self) -> Any:
        """The rows as they are now."""
        return self._rows.value

    @array.setter
    def array(self, array: Any) -> None:
        self._rows.set_values(array)


def put_rows(table: Any, places: Any, rows: Any) -> None:
    """``table[places] = rows`` along the first axis, in place."""
    is_plain = type(table) is np.ndarray and table.ndim > 1 and table.flags.c_contiguous and rows.flags.c_contiguous
    if is_plain and rows.size and table.dtype == rows.dtype:
        row_type = np.dtype((np.void, table[0].nbytes))  # a row as one element, which numpy copies several times faster
        table.reshape(len(table), -1).view(row_type)[places, 0] = rows.reshape(len(rows), -1).view(row_type)[:, 0]
    else:
        table[places] = rows


def add_rows_at(xp: Any, rows: Any, ids: Any, out: Any) -> None:
    """``out[ids] += rows`` along the first axis, in place; repeated ids add up."""
    width = out[:1].size
    if not rows.size:
        return
    if out.dtype == BFLOAT16:
        touched, places = np.unique(ids, return_inverse=True)
        sums = to_float32(out[touched])
        add_rows_at(np, to_float32(rows), places, sums)
        out[touched] = to_bfloat16(sums)
        return
    if xp.__name__ != "numpy" or not out.flags.c_contiguous or width == 1:
        xp.add.at(out, ids, rows.reshape(ids.shape + out.shape[1:]))
        return
    places = (ids.astype(xp.int64)[:, None] * width + xp.arange(width)).reshape(-1)
    xp.add.at(out.reshape(-1), places, rows.reshape(-1))  # several times faster flat than row by row
