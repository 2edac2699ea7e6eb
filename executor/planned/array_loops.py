"""Loops with arrays of tensors as native code: between the lists that hold the arrays and the memory that the code reads."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from fluid.ir.versions import Value

from ..stepwise.indexed_arrays import IndexedArray
from .plan import Instruction

__all__ = ["ArrayLoop"]


class ArrayLoop:
    """A step that runs a loop.

    Args:
        instruction: the loop; no gradient reads its trips.
        arrays: array of tensors -> the memory that native code reads and writes.
        signals: the memory where native code notes that it could not go on; its first byte is not zero then.
        run: runs the native code.
        otherwise: runs the loop step by step, if its arrays do not fit, or native code could not go on.
        cells: value -> its list; the results are added.
        frees: the cells that are dead after it.
    """

    def __init__(
        self,
        instruction: Instruction,
        arrays: Mapping[str, IndexedArray],
        signals: Sequence[Any],
        run: Callable[[], None],
        otherwise: Callable[[], None],
        cells: dict[Value, Any],
        frees: Sequence[Value],
    ) -> None:
        self._signals, self._run, self._otherwise, self._cells, self._frees = signals, run, otherwise, cells, frees
        results = {value[0]: value for value in instruction.results}
        self._arrays = [(array, instruction.outer.get(name), results.get(name)) for name, array in arrays.items()]

    def __call__(self) -> None:
        cells = self._cells
        for array, before, _ in self._arrays:
            former = cells.get(before) if before is not None else None
            if former is None:
                former = []
            if type(former) is not list or not array.can_load(former):
                self._otherwise()
                return
            array.load(former)
        for signal in self._signals:
            signal[0] = 0
        self._run()
        if any(signal[0] for signal in self._signals):
            for signal in self._signals:
                signal[0] = 0
            self._otherwise()
            return
        for array, _, after in self._arrays:
            if after is not None:
                cells[after] = array.values()
        for value in self._frees:
            cells.pop(value, None)
