"""Specs describe values before they are computed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, ClassVar

from .operators import ValueOperators
from .types import VarType

Lod = tuple[tuple[int, ...] | None, ...]
"""How rows form nested sequences: for each level, from the outermost, the offsets at which its sequences begin and end. The last
offset is the number of sequences of the next level (of rows, in the last level). None is a level whose offsets are not known yet;
``()`` means a plain tensor."""


@dataclass(frozen=True, slots=True)
class Spec(ValueOperators):
    """The shape, type and sequences of a value before it is computed.

    Attributes:
        shape: the dimensions, ``-1`` where unknown.
        dtype: element type.
        type: type of variable.
        lod: the sequences that its rows form.

    >>> spec = fluid.extend.Spec((-1, 3), fluid.core.VarType.FP32)
    >>> spec.ndim, spec.with_shape((2, 3)).shape
    (2, (2, 3))
    """

    shape: tuple[int, ...]
    dtype: VarType
    type: VarType = VarType.LOD_TENSOR
    lod: Lod = ()
    namespace: ClassVar[Any] = None
    """The namespace of ops that infer specs from specs; set by `fluid.opdef.inference`."""

    @property
    def ndim(self) -> int:
        """The number of dimensions."""
        return len(self.shape)

    @property
    def known(self) -> bool:
        """Whether this is a plain tensor of known shape."""
        return self.type is VarType.LOD_TENSOR and -1 not in self.shape and not self.lod

    @property
    def is_sparse(self) -> bool:
        """Whether this is a `SelectedRows` of a tensor of known shape. How many rows it stores is not known."""
        return self.type is VarType.SELECTED_ROWS and -1 not in self.shape and not self.lod

    @property
    def size(self) -> int:
        """Number of elements; -1 if a dimension is unknown."""
        return -1 if any(size < 0 for size in self.shape) else prod(self.shape)

    @property
    def nbytes(self) -> int:
        """Bytes of the elements; their number has to be known."""
        return self.size * int(self.dtype.array_dtype.itemsize)

    def with_shape(self, shape: tuple[int, ...]) -> Spec:
        """The same, with this shape."""
        return Spec(tuple(shape), self.dtype, self.type, self.lod)

    def with_dtype(self, dtype: VarType) -> Spec:
        """The same, with this element type."""
        return Spec(self.shape, dtype, self.type, self.lod)

    def with_lod(self, lod: Lod) -> Spec:
        """The same, with these sequences."""
        return self if lod == self.lod else Spec(self.shape, self.dtype, self.type, lod)

    def _ops(self) -> Any:
        return Spec.namespace

    def __str__(self) -> str:
        return f"{self.dtype.text}{list(self.shape)}"


class SpecValue(ValueOperators):
    """Base class of values that a spec describes."""

    __slots__ = ()

    spec: Spec

    @property
    def shape(self) -> tuple[int, ...]:
        return self.spec.shape

    @property
    def ndim(self) -> int:
        return self.spec.ndim

    @property
    def dtype(self) -> VarType:
        return self.spec.dtype


def fits(left: int, right: int) -> bool:
    """Whether two sizes may be equal, as far as they are known."""
    return left == right or -1 in (left, right)


def may_equal(left: Sequence[int], right: Sequence[int]) -> bool:
    """Whether two shapes may be equal, as far as they are known."""
    return len(left) == len(right) and all(map(fits, left, right))


def agreed_sizes(first: Sequence[int], second: Sequence[int]) -> tuple[int, ...]:
    """The sizes of two shapes of the same rank, with -1 where they differ."""
    return tuple(a if a == b else -1 for a, b in zip(first, second, strict=True))
