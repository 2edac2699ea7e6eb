"""Generators of lines of slots, which scripts of Fluid 1.x run as the pipe command of a dataset."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from ..errors import DataError, shown
from ..loading.batching import batches_of, checked_size
from ..not_here import names_here

__all__ = ["DataGenerator", "MultiSlotDataGenerator", "MultiSlotStringDataGenerator"]

Slots = Sequence[tuple[str, Sequence[Any]]]
"""A sample: the name and the values of each slot."""

__dir__ = names_here(__name__)


class DataGenerator:
    """Turns lines of text into lines of slots: a script derives from it, defines `generate_sample`, calls `run_from_stdin`."""

    def __init__(self) -> None:
        self._batch_size = 32

    def set_batch(self, batch_size: int) -> None:
        """Set how many samples `generate_batch` gets at once."""
        self._batch_size = checked_size(batch_size)

    def generate_sample(self, line: str | None) -> Callable[[], Iterable[Slots]]:
        """A function that yields the samples of a line; of all data if the line is None. To be defined."""
        raise NotImplementedError(f"{type(self).__name__} should define generate_sample(line)")

    def generate_batch(self, samples: Sequence[Slots]) -> Callable[[], Iterable[Slots]]:
        """A function that yields the samples of a batch, which may be changed."""
        return lambda: samples

    def run_from_stdin(self) -> None:
        """Print the samples of each line of the standard input."""
        self._print(sample for line in sys.stdin for sample in self.generate_sample(line)())

    def run_from_memory(self) -> None:
        """Print the samples that `generate_sample` yields without a line."""
        self._print(self.generate_sample(None)())

    def _print(self, samples: Iterable[Slots]) -> None:
        for batch in batches_of((sample for sample in samples if sample is not None), self._batch_size):
            for sample in self.generate_batch(batch)():
                sys.stdout.write(self._gen_str(sample))

    def _gen_str(self, line: Slots) -> str:
        """A sample as a line of slots."""
        words: list[str] = []
        for name, values in line:
            if not isinstance(values, (list, tuple)) or not values:
                raise DataError(f"the slot {name!r} should have a list of one value at least, not {shown(values)}")
            words += [str(len(values)), *map(str, values)]
        return " ".join(words) + "\n"


class MultiSlotDataGenerator(DataGenerator):
    """A generator of slots of numbers.

    >>> class Clicks(fluid.incubate.data_generator.MultiSlotDataGenerator):
    ...     def generate_sample(self, line):
    ...         return lambda: [[("ids", [3, 4]), ("value", [0.5])]]
    >>> Clicks().run_from_memory()
    2 3 4 1 0.5
    """


class MultiSlotStringDataGenerator(DataGenerator):
    """The same, of slots whose values are texts already."""
