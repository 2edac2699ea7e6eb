"""Data sets: samples by number, or one after the other, and data sets made of others."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from ..errors import FluidTypeError, IndexRangeError, ProgramError
from ..ir.checked import checked


class Dataset:
    """Samples by number. A class of yours defines ``__getitem__`` and ``__len__``; a list, or anything else that has both, will
    do, too.

    A sample is a tuple of fields, a dict of fields by name, or one field: an array, a number, a text.

    Where reading a sample draws random numbers, define `sample` instead of ``__getitem__``, and draw them from its argument
    `generator`. The numbers then depend only on the seed, the epoch and the sample's number, not on the number of workers.

    >>> class Squares(fluid.io.Dataset):
    ...     def __len__(self):
    ...         return 5
    ...     def __getitem__(self, index):
    ...         return index, index * index
    >>> [batch for batch in fluid.io.DataLoader(Squares(), batch_size=3)]
    [(array([0, 1, 2]), array([0, 1, 4])), (array([3, 4]), array([ 9, 16]))]
    """

    def __getitem__(self, index: int) -> Any:
        """The sample of this number, at least 0 and below the length."""
        if type(self).sample is not Dataset.sample:
            return self.sample(index, np.random.default_rng())
        raise NotImplementedError(f"{type(self).__name__} should define __getitem__, or sample")

    def __len__(self) -> int:
        """How many samples there are."""
        raise NotImplementedError(f"{type(self).__name__} should define __len__")

    def sample(self, index: int, generator: np.random.Generator) -> Any:
        """The sample of the number `index`, as ``__getitem__`` gives it, with random numbers from `generator`."""
        return self[index]

    @property
    def draws(self) -> bool:
        """Whether samples depend on random numbers, so that they need a generator."""
        return type(self).sample is not Dataset.sample

    def map(self, function: Callable[..., Any], field: Any = None) -> MappedDataset:
        """The same samples, each changed by a function when it is read.

        Args:
            function: of a sample; or one of `fluid.io.transforms` that draws random numbers, or a function marked by
                `fluid.io.transforms.random`, of a sample and a `numpy.random.Generator`.
            field: which field the function is given, and replaces: a position in tuples, a name in dicts. None: the whole sample.

        >>> data = fluid.io.TensorDataset(np.arange(3), np.arange(3)).map(lambda x: x * 10, field=0)
        >>> int(data[2][0]), int(data[2][1])
        (20, 2)
        """
        return MappedDataset(self, function, field)

    def __add__(self, other: Any) -> ConcatDataset:
        return ConcatDataset([self, other])


class IterableDataset:
    """Samples one after the other, for data that has no numbers: a stream, a large file. A class of yours defines ``__iter__``.

    Each worker of a loader goes through all of it, and makes every n-th batch: the order is the same for any number of workers,
    and functions of `map` run once for each sample. If the iteration itself is slow, set ``splits_itself = True``, and
    let ``__iter__`` yield a part of the samples to each worker, as `fluid.io.get_worker_info` says; then the workers' batches
    come in turns.

    >>> class Lines(fluid.io.IterableDataset):
    ...     def __iter__(self):
    ...         yield from ("one", "two", "three")
    >>> list(fluid.io.DataLoader(Lines().map(len), batch_size=2))
    [array([3, 3]), array([5])]
    """

    splits_itself = False

    def __iter__(self) -> Iterator[Any]:
        """The samples from the first on."""
        raise NotImplementedError(f"{type(self).__name__} should define __iter__")

    def map(self, function: Callable[..., Any], field: Any = None) -> MappedStream:
        """The same samples, each changed by a function when it is read.

        Args:
            function: as of `Dataset.map`.
            field: which field the function is given, and replaces; None: the whole sample.
        """
        return MappedStream(self, function, field)


# ------------------------------------------------------------------------------------------------------ made of others
def length_of(dataset: Any) -> int:
    """The number of samples; a `FluidTypeError` for values without a length."""
    try:
        return len(dataset)
    except TypeError:
        raise FluidTypeError(
            f"a dataset should have __getitem__ and __len__, or be an IterableDataset, not {type(dataset).__name__}"
        ) from None


def checked_seed(seed: Any) -> int:
    """Check that a value is a seed, else raise a `ProgramError`."""
    if not isinstance(seed, (int, np.integer)) or isinstance(seed, bool) or seed < 0:
        raise ProgramError(f"seed should be a whole number, at least 0, not {seed!r}")
    return int(seed)


def draws(dataset: Any) -> bool:
    """Whether samples of a dataset, which may be a list, need a generator."""
    return bool(getattr(dataset, "draws", False))


def sample_of(dataset: Any, index: int, generator: np.random.Generator | None) -> Any:
    """A sample of a dataset, which may be a list, drawn with the generator if it draws."""
    return dataset.sample(index, generator) if generator is not None and draws(dataset) else dataset[index]


def changed(function: Callable[..., Any], field: Any, sample: Any, generator: np.random.Generator | None) -> Any:
    """Apply a function to a sample, or to one field."""
    arguments = (generator,) if getattr(function, "is_random", False) else ()
    if field is None:
        return function(sample, *arguments)
    if isinstance(sample, dict):
        return {**sample, field: function(sample[field], *arguments)}
    fields = list(sample)
    fields[field] = function(fields[field], *arguments)
    return tuple(fields)


class _DerivedDataset(Dataset):
    """A dataset derived from others; it draws random numbers if one of its sources does."""

    _sources: Sequence[Any]

    @property
    def draws(self) -> bool:
        return any(map(draws, self._sources))

    def __getitem__(self, index: int) -> Any:
        return self.sample(index, np.random.default_rng() if self.draws else None)  # type: ignore[arg-type]

    def _place(self, index: int) -> int:
        """Convert a sample's number, which may count from the end, to one that counts from 0."""
        length = len(self)
        if not -length <= index < length:
            raise IndexRangeError(f"sample {index} of a {type(self).__name__} of {length} samples")
        return index % length


class MappedDataset(_DerivedDataset):
    """Samples of a dataset, each changed by a function when it is read; `Dataset.map` makes it, also of lists.

    Args:
        dataset: the samples.
        function, field: as of `Dataset.map`.

    >>> fluid.io.MappedDataset(["one", "two"], str.upper)[1]
    'TWO'
    """

    def __init__(self, dataset: Any, function: Callable[..., Any], field: Any = None) -> None:
        if not callable(function):
            raise FluidTypeError(f"map takes a function of a sample, not {function!r}")
        length_of(dataset)
        self._sources, self._function, self._field = [dataset], function, field

    def __len__(self) -> int:
        return len(self._sources[0])

    @property
    def draws(self) -> bool:
        return bool(getattr(self._function, "is_random", False)) or super().draws

    def sample(self, index: int, generator: np.random.Generator) -> Any:
        """The sample of the number `index`, changed, with random numbers from `generator`."""
        return changed(self._function, self._field, sample_of(self._sources[0], index, generator), generator)


class MappedStream(IterableDataset):
    """Samples of an iterable dataset, each changed by a function when it is read; `IterableDataset.map` makes it."""

    def __init__(self, dataset: IterableDataset, function: Callable[..., Any], field: Any = None) -> None:
        if not callable(function):
            raise FluidTypeError(f"map takes a function of a sample, not {function!r}")
        self.source, self.function, self.field = dataset, function, field
        self.splits_itself = dataset.splits_itself

    def __iter__(self) -> Iterator[Any]:
        generator = np.random.default_rng()
        return (changed(self.function, self.field, sample, generator) for sample in self.source)


class TensorDataset(Dataset):
    """Rows of arrays: sample `i` is the tuple of their rows `i`.

    Args:
        arrays: arrays, or tensors of eager mode, with the same number of rows.

    Raises:
        FluidTypeError: there is no array, or one without rows.
        ProgramError: they have different numbers of rows.

    >>> data = fluid.io.TensorDataset(np.zeros((100, 8), "float32"), np.ones((100, 1), "int64"))
    >>> len(data), [field.shape for field in data[0]]
    (100, [(8,), (1,)])
    """

    def __init__(self, *arrays: Any) -> None:
        self.arrays = [np.asarray(array.numpy() if hasattr(array, "numpy") else array) for array in arrays]
        if not arrays or any(array.ndim == 0 for array in self.arrays):
            raise FluidTypeError(f"TensorDataset takes arrays with rows, not {', '.join(map(repr, arrays)) or 'nothing'}")
        counts = [len(array) for array in self.arrays]
        if len(set(counts)) > 1:
            raise ProgramError(
                f"TensorDataset: the arrays should have the same number of rows, not {', '.join(map(str, counts))}"
            )

    def __len__(self) -> int:
        return len(self.arrays[0])

    def __getitem__(self, index: int) -> tuple[Any, ...]:
        return tuple(array[index] for array in self.arrays)


class Subset(_DerivedDataset):
    """Some samples of a dataset.

    Args:
        dataset: the samples.
        indices: their numbers, in order.

    Raises:
        IndexRangeError: a number is none of the dataset's.

    >>> fluid.io.Subset("abcd", [3, 0])[0]
    'd'
    """

    def __init__(self, dataset: Any, indices: Iterable[int]) -> None:
        length, numbers = length_of(dataset), np.array(list(indices), np.int64)
        wrong = numbers[(numbers < 0) | (numbers >= length)]
        if len(wrong):
            raise IndexRangeError(f"Subset: there is no sample {wrong[0]} in a dataset of {length} samples")
        self._sources, self.indices = [dataset], numbers

    def __len__(self) -> int:
        return len(self.indices)

    def sample(self, index: int, generator: np.random.Generator) -> Any:
        """The sample of the number `index` of the subset, with random numbers from `generator`."""
        return sample_of(self._sources[0], int(self.indices[self._place(index)]), generator)


class ConcatDataset(_DerivedDataset):
    """The samples of several datasets, one dataset after the other; ``a + b`` for two.

    Args:
        datasets: the datasets.

    >>> joined = fluid.io.ConcatDataset(["ab", "cde"])
    >>> len(joined), joined[2], joined[-1]
    (5, 'c', 'e')
    """

    def __init__(self, datasets: Iterable[Any]) -> None:
        self._sources = list(datasets)
        if not self._sources:
            raise ProgramError("ConcatDataset needs at least one dataset")
        self._ends = np.cumsum([length_of(dataset) for dataset in self._sources])

    def __len__(self) -> int:
        return int(self._ends[-1])

    def sample(self, index: int, generator: np.random.Generator) -> Any:
        """The sample of the number `index`, counted over all datasets, with random numbers from `generator`."""
        place = self._place(index)
        number = int(np.searchsorted(self._ends, place, side="right"))
        first = int(self._ends[number - 1]) if number else 0
        return sample_of(self._sources[number], place - first, generator)


@checked
def random_split(dataset: Any, sizes: Sequence[float], seed: int = 0) -> list[Subset]:
    """Split a dataset at random into parts that have no sample in common.

    Args:
        dataset: the samples.
        sizes: how many samples the parts have, numbers whose sum is the dataset's length; or fractions whose sum is 1, where what
            rounding leaves goes to the first parts, one sample each.
        seed: decides which samples go where; the same seed gives the same parts.

    Raises:
        ProgramError: the sizes do not sum up to the length, or the fractions to 1.

    >>> training, testing = fluid.io.random_split(range(10), [0.75, 0.25])
    >>> len(training), len(testing), sorted([*training, *testing]) == list(range(10))
    (8, 2, True)
    """
    length, seed = length_of(dataset), checked_seed(seed)
    if any(size < 0 for size in sizes) or not sizes:
        raise ProgramError(f"random_split: sizes should be numbers of samples, or fractions, not {sizes!r}")
    if all(isinstance(size, (int, np.integer)) for size in sizes):
        counts = [int(size) for size in sizes]
        if sum(counts) != length:
            raise ProgramError(f"random_split: the sizes sum up to {sum(counts)}, but there are {length} samples")
    else:
        if abs(sum(sizes) - 1) > 1e-9:
            raise ProgramError(f"random_split: the fractions sum up to {sum(sizes)}, not to 1")
        counts = [int(size * length + 1e-9) for size in sizes]
        for number in range(length - sum(counts)):
            counts[number % len(counts)] += 1
    order = np.random.default_rng(seed).permutation(length)
    return [Subset(dataset, part) for part in np.split(order, np.cumsum(counts)[:-1])]
