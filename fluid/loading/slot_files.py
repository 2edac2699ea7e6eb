"""Text files of slots, as scripts of Fluid 1.x read them for models of clicks: a line is a sample, with a count and values for
each fed variable."""

from __future__ import annotations

import random
import subprocess
from collections.abc import Iterator, Sequence
from math import prod
from typing import Any

import numpy as np

from ..data_feeder import Fed
from ..errors import DataError, FluidTypeError, FormatError, ProgramError, shown
from ..values.lod_tensor import LoDTensor
from ..values.types import VarType, is_floating
from .batching import batches_of, checked_size

__all__ = ["DatasetBase", "DatasetFactory", "InMemoryDataset", "QueueDataset"]

Sample = list[Any]
"""The values of a line, an array for each fed variable."""


class DatasetBase:
    """Samples in text files, for `Executor.train_from_dataset`. `DatasetFactory` makes one.

    Each line of a file holds, for each fed variable in turn, a count and then the numbers: ``2 7 8 1 0.5`` is two ids and one
    value. Numbers of a variable with `lod_level` 1 are a sequence; other variables take the same count in each line.
    """

    def __init__(self) -> None:
        self._files: list[str] = []
        self._variables: list[Fed] = []
        self._batch_size, self._command = 1, "cat"

    def set_filelist(self, filelist: Sequence[str]) -> None:
        """Set the paths of the files, read in this order."""
        if isinstance(filelist, str):
            raise FluidTypeError(f"set_filelist takes a list of paths, not the text {shown(filelist)}")
        self._files = list(filelist)

    def set_use_var(self, var_list: Sequence[Fed]) -> None:
        """Set the fed variables, in the order of the numbers in a line: of floats, or of integers."""
        for var in var_list:
            if var.lod_level > 1 or not (is_floating(var.dtype) or var.dtype in (VarType.INT32, VarType.INT64)):
                raise FluidTypeError(
                    f"set_use_var: {var.name} ({var.describe()}) should be of floats or integers, with one LoD level"
                )
        self._variables = list(var_list)

    def set_batch_size(self, batch_size: int) -> None:
        """Set how many lines a batch has; the last one may have fewer."""
        self._batch_size = checked_size(batch_size)

    def set_pipe_command(self, pipe_command: str) -> None:
        """Set the shell command that each file goes through: it reads the file from stdin, and prints lines of slots."""
        self._command = pipe_command

    def set_thread(self, thread_num: int) -> None:
        """Accepted as in Fluid 1.x: one batch runs at a time, on all threads."""

    def set_hdfs_config(self, fs_name: str, fs_ugi: str) -> None:
        """Refused: files of Hadoop are not read."""
        raise ProgramError(f"set_hdfs_config: files of Hadoop ({fs_name}) are not read here; copy them to the disk")

    def samples(self) -> Iterator[Sample]:
        """The samples of all files."""
        if not self._files or not self._variables:
            raise ProgramError("a dataset needs set_filelist([paths]) and set_use_var([fed variables]) before it is read")
        for path in self._files:
            yield from self._read(path)

    def batches(self) -> Iterator[dict[str, Any]]:
        """The feeds of a pass, by the names of the variables."""
        return map(self._feed, batches_of(self.samples(), self._batch_size))

    def _read(self, path: str) -> Iterator[Sample]:
        try:
            file = open(path, "rb")  # noqa: SIM115  closed by the with below
        except OSError as error:
            raise DataError(f"{path}: the file cannot be read: {error.strerror}") from None
        with file:
            for number, line in enumerate(file if self._command == "cat" else self._piped(path, file), 1):
                if line.strip():
                    yield self._parsed(line, f"{path}, line {number}")

    def _piped(self, path: str, file: Any) -> Iterator[bytes]:
        """The lines that the pipe command prints for a file."""
        with subprocess.Popen(self._command, shell=True, stdin=file, stdout=subprocess.PIPE) as process:
            assert process.stdout is not None
            yield from process.stdout
        if process.returncode:
            raise DataError(f"{path}: the pipe command {self._command!r} ended with status {process.returncode}")

    def _parsed(self, line: bytes, where: str) -> Sample:
        """The values of a line; `FormatError` names the place and the variable."""
        words, start, sample = line.split(), 0, []
        for var in self._variables:
            try:
                count = int(words[start])
                values = _numbers(words[start + 1 : start + 1 + count], var)
            except (IndexError, OverflowError, ValueError) as error:
                raise FormatError(f"{where}: no count and values of {var.name} at word {start + 1}: {error}") from None
            if count < 1 or len(values) != count:
                raise FormatError(f"{where}: {var.name} should have {count} values, and one at least, but {len(values)} follow")
            if var.lod_level and count % (width := _width(var)):
                raise FormatError(f"{where}: {var.name} ({var.describe()}) has {count} values, which fill no rows of {width}")
            sample.append(values)
            start += count + 1
        if start != len(words):
            raise FormatError(f"{where}: {len(words) - start} words follow the values of {len(self._variables)} variables")
        return sample

    def _feed(self, samples: list[Sample]) -> dict[str, Any]:
        return {var.name: _column(var, [sample[place] for sample in samples]) for place, var in enumerate(self._variables)}


def _numbers(words: list[bytes], var: Fed) -> Any:
    """Numbers of a variable's dtype; `OverflowError` if it cannot hold them."""
    exact = np.array(words, dtype=bytes).astype(np.float64 if is_floating(var.dtype) else np.int64)
    with np.errstate(over="ignore"):
        values = exact.astype(var.dtype.numpy)
    lost = np.isfinite(values) != np.isfinite(exact) if is_floating(var.dtype) else values != exact
    if lost.any():
        raise OverflowError(f"{words[int(lost.argmax())].decode()} is too large for {var.dtype.name.lower()}")
    return values


def _width(var: Fed) -> int:
    """The numbers of a row of a sequence; 1 if it is not known."""
    return max(prod(var.shape[1:]), 1)


def _column(var: Fed, rows: list[Any]) -> Any:
    """The array of a fed variable, or the tensor of its sequences."""
    counts = [len(row) for row in rows]
    try:
        array = np.concatenate(rows).reshape([-1 if var.lod_level else len(rows), *var.shape[1:]])
    except ValueError:
        raise DataError(f"{var.name} ({var.describe()}): lines of a batch have {shown(counts)} values") from None
    if not var.lod_level:
        return array
    tensor = LoDTensor(array)
    tensor.set_recursive_sequence_lengths([[count * len(array) // sum(counts) for count in counts]])
    return tensor


class QueueDataset(DatasetBase):
    """A dataset that is read from its files in each pass.

    >>> with open("numbers.txt", "w") as file:
    ...     print("1 3", "1 4", "1 5", sep=chr(10), file=file)
    >>> dataset = fluid.dataset.QueueDataset()
    >>> dataset.set_filelist(["numbers.txt"])
    >>> dataset.set_use_var([fluid.data("x", [None, 1], "int64")])
    >>> dataset.set_batch_size(2)
    >>> [feed["x"].tolist() for feed in dataset.batches()]
    [[[3], [4]], [[5]]]
    """

    def local_shuffle(self) -> None:
        """Refused: the samples are not in memory."""
        raise ProgramError('a QueueDataset has no samples in memory to shuffle; create_dataset("InMemoryDataset") has')

    def global_shuffle(self, fleet: Any = None) -> None:
        """Refused, as `local_shuffle`."""
        self.local_shuffle()


class InMemoryDataset(DatasetBase):
    """A dataset whose samples are in memory, and can be shuffled.

    >>> with open("numbers.txt", "w") as file:
    ...     print("1 3", "1 4", "1 5", sep=chr(10), file=file)
    >>> dataset = fluid.dataset.InMemoryDataset()
    >>> dataset.set_filelist(["numbers.txt"])
    >>> dataset.set_use_var([fluid.data("x", [None, 1], "int64")])
    >>> dataset.load_into_memory()
    >>> dataset.local_shuffle()
    >>> dataset.get_memory_data_size()
    3
    """

    def __init__(self) -> None:
        super().__init__()
        self._samples: list[Sample] | None = None

    def load_into_memory(self) -> None:
        """Read all files."""
        self._samples = list(super().samples())

    def preload_into_memory(self, thread_num: int | None = None) -> None:
        """The same as `load_into_memory`."""
        self.load_into_memory()

    def wait_preload_done(self) -> None:
        """Return at once: `preload_into_memory` has read the files."""

    def samples(self) -> Iterator[Sample]:
        """The samples in memory."""
        return iter(self._loaded())

    def local_shuffle(self) -> None:
        """Shuffle the samples, by Python's `random`."""
        random.shuffle(self._loaded())

    def global_shuffle(self, fleet: Any = None, thread_num: int = 12) -> None:
        """Shuffle the samples of this process; with several workers, give each its own files.

        Args:
            fleet, thread_num: accepted as in Fluid 1.x.
        """
        self.local_shuffle()

    def release_memory(self) -> None:
        """Forget the samples."""
        self._samples = None

    def get_memory_data_size(self, fleet: Any = None) -> int:
        """The number of samples in memory."""
        return len(self._samples or ())

    get_shuffle_data_size = get_memory_data_size

    def set_queue_num(self, queue_num: int) -> None:
        """Accepted as in Fluid 1.x."""

    set_fleet_send_batch_size = set_queue_num

    def _loaded(self) -> list[Sample]:
        if self._samples is None:
            raise ProgramError("the samples are not in memory yet: call load_into_memory first")
        return self._samples


_CLASSES = {"QueueDataset": QueueDataset, "InMemoryDataset": InMemoryDataset}


class DatasetFactory:
    """Makes datasets for `Executor.train_from_dataset`, as in Fluid 1.x.

    >>> x, y = fluid.data("x", [None, 2], "int64"), fluid.data("y", [None, 1])
    >>> with open("clicks.txt", "w") as file:
    ...     print("2 3 4 1 0.5", "2 5 6 1 1.5", sep=chr(10), file=file)
    >>> dataset = fluid.DatasetFactory().create_dataset("InMemoryDataset")
    >>> dataset.set_filelist(["clicks.txt"])
    >>> dataset.set_use_var([x, y])
    >>> dataset.set_batch_size(2)
    >>> dataset.load_into_memory()
    >>> total = fluid.layers.reduce_sum(y)
    >>> fluid.Executor().train_from_dataset(dataset=dataset, fetch_list=[total], fetch_info=["total"], print_period=1)
    step 1: total [2.]
    """

    def create_dataset(self, datafeed_class: str = "QueueDataset") -> Any:
        """A `QueueDataset`, or an `InMemoryDataset`, by its name."""
        if datafeed_class not in _CLASSES:
            raise ProgramError(f"create_dataset: there is no {shown(datafeed_class)}; known are {', '.join(_CLASSES)}")
        return _CLASSES[datafeed_class]()
