"""Steps that run loops with arrays of tensors by native code: entries move from lists to memory, and back."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from fluid.ir.versions import Value

from ..stepwise.indexed_arrays import IndexedArray

__all__ = ["ArrayLoop"]


class ArrayLoop:
    """A step that runs a loop with arrays of tensors.

    Args:
        arrays: for each array, its memory, and its values before and after the loop; None for values that do not exist.
        signals: the memory where native code notes that it could not go on; its first byte is not zero then.
        frames: the step scopes of the loop, and what its trips leave for gradients; None if no gradient reads them.
        past: for a gradient, the step scopes of the forward loop, and what its trips leave if they were native.
        run: runs the native code.
        otherwise: runs the loop step by step, if its arrays do not fit, or native code could not go on.
        cells: value -> its list; the results are added.
        frees: the cells that are dead after it.
    """

    def __init__(
        self,
        arrays: Sequence[tuple[IndexedArray, Value | None, Value | None]],
        signals: Sequence[Any],
        frames: tuple[Value, Any] | None,
        past: tuple[Value, Any] | None,
        run: Callable[[], None],
        otherwise: Callable[[], None],
        cells: dict[Value, Any],
        frees: Sequence[Value],
    ) -> None:
        self._arrays, self._signals, self._frames, self._past = arrays, signals, frames, past
        self._run, self._otherwise, self._cells, self._frees = run, otherwise, cells, frees

    def __call__(self) -> None:
        if not self._load() or not self._is_done():
            self._otherwise()
            return
        cells = self._cells
        for array, _, after in self._arrays:
            if after is not None:
                cells[after] = array.values()
        if self._frames is not None:
            scopes, frames = self._frames
            cells[scopes] = frames
        for value in self._frees:
            cells.pop(value, None)

    def _load(self) -> bool:
        """Move the entries of arrays to their memories; returns False if that is impossible."""
        cells, past = self._cells, self._past
        if past is not None and cells.get(past[0]) is not past[1]:
            return False  # the forward loop ran step by step
        for array, before, _ in self._arrays:
            former = cells.get(before) if before is not None else None
            if former is None:
                former = []
            if not isinstance(former, list) or not array.can_load(former):
                return False
            array.load(former)
        return True

    def _is_done(self) -> bool:
        """Run the native code; returns False if it could not go on."""
        for signal in self._signals:
            signal[0] = 0
        self._run()
        is_done = not any(signal[0] for signal in self._signals)
        for signal in self._signals:
            signal[0] = 0
        return is_done
