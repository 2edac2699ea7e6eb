"""Creates tensors whose rows form sequences."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from .errors import FluidTypeError, LengthsError
from .executor.runtime.scope import LoDTensor
from .not_here import names_here
from .values.lod_array import refuse_other_counts
from .values.numeric import has, numeric_array, said_by

__all__ = ["create_lod_tensor", "create_random_int_lodtensor"]

__dir__ = names_here(__name__)

Lengths = Sequence[Sequence[int]]


def _checked(lengths: Lengths) -> list[list[int]]:
    """Check that each level of lengths counts the sequences of the next, and return lists; else a `LengthsError`."""
    try:
        levels = [[int(length) for length in level] for level in lengths]
    except TypeError:
        raise LengthsError(f"recursive_sequence_lengths should be a list of lists of numbers, not {lengths!r}") from None
    if not levels:
        raise LengthsError("recursive_sequence_lengths should have at least one level, such as [[2, 3]] for two sequences")
    if any(length < 0 for level in levels for length in level):
        raise LengthsError(f"lengths of sequences cannot be negative, as some in {levels} are")
    refuse_other_counts(levels)
    return levels


def create_lod_tensor(data: Any, recursive_seq_lens: Lengths, place: Any) -> LoDTensor:
    """A tensor of concatenated sequences of different lengths.

    Args:
        data: an array or `LoDTensor` with the rows of all sequences along its first dimension; or a list of sequences, each a
            list of numbers, which give int64 of shape ``[rows, 1]``.
        recursive_seq_lens: lengths level by level: ``[[2, 1], [2, 3, 4]]`` is a sequence of two sequences, with 2 and 3 rows, and
            a sequence of one, with 4 rows.
        place: the place of the tensor.

    Raises:
        LengthsError: the lengths do not fit each other or the data.

    >>> words = fluid.create_lod_tensor([[1, 2, 3], [4, 5]], [[3, 2]], fluid.CPUPlace())
    >>> words.shape(), words.recursive_sequence_lengths()
    ([5, 1], [[3, 2]])
    """
    lengths = _checked(recursive_seq_lens)
    if isinstance(data, list):
        array = _rows_of(data, lengths[-1])
    else:
        array = data if has(data, "__cuda_array_interface__") else numeric_array(data, "create_lod_tensor takes an array")
    if array.ndim == 0 or sum(lengths[-1]) != array.shape[0]:
        rows = f"{array.dtype}{list(array.shape)}"
        raise LengthsError(f"the lengths {lengths[-1]} are of {sum(lengths[-1])} rows, but the data is {rows}")
    tensor = LoDTensor()
    tensor.set(array, place)
    tensor.set_recursive_sequence_lengths(lengths)
    return tensor


def _rows_of(sequences: list[Any], lengths: list[int]) -> np.ndarray[Any, Any]:
    """Concatenate the items of lists of these lengths as rows."""
    try:
        counts = [len(sequence) for sequence in sequences]
        items = [item for sequence in sequences for item in sequence] if counts == lengths else []
    except Exception as error:  # not a list, or iterating over it raises
        raise FluidTypeError(f"create_lod_tensor takes a list of lists of numbers; of one of these: {said_by(error)}") from None
    if counts != lengths:
        raise LengthsError(f"the sequences have {counts} elements, but the last level of the lengths says {lengths}")
    if not items:
        return np.zeros((0, 1), np.int64)
    array = numeric_array(items, "create_lod_tensor: the sequences hold something that is no number").reshape(len(items), -1)
    return array.astype(np.int64) if array.dtype.kind in "iu" else array


def create_random_int_lodtensor(
    recursive_seq_lens: Lengths, base_shape: Sequence[int], place: Any, low: int, high: int
) -> LoDTensor:
    """A tensor of sequences of random int64.

    numpy's global generator draws the numbers, so ``numpy.random.seed`` makes them reproducible.

    Args:
        recursive_seq_lens: lengths of the sequences, level by level; see `create_lod_tensor`.
        base_shape: the shape of a row.
        place: the place of the tensor.
        low, high: the least and the greatest number, both inclusive.

    >>> fluid.create_random_int_lodtensor([[3, 2]], [1], fluid.CPUPlace(), low=0, high=9).shape()
    [5, 1]
    """
    lengths = _checked(recursive_seq_lens)
    data = np.random.randint(low, high + 1, [sum(lengths[-1]), *base_shape]).astype(np.int64)
    return create_lod_tensor(data, lengths, place)
