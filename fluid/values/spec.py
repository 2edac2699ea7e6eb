"""What is known of values before they are computed."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar

from .operators import ValueOperators
from .types import VarType

__all__ = ["Lod", "Spec"]

Lod = tuple[tuple[int, ...] | None, ...]
"""Where sequences begin and end, level by level from the outermost: offsets, the last of which is the number of entries of
the next level (of rows, in the last); None for a level of which only the existence is known. ``()`` for a plain tensor."""


@dataclass(frozen=True, slots=True)
class Spec(ValueOperators):
    """What is known of a value before it is computed: shape (``-1`` where unknown), element type, kind of variable, and
    which of its rows form sequences."""

    shape: tuple[int, ...]
    dtype: VarType
    type: VarType = VarType.LOD_TENSOR
    lod: Lod = ()
    namespace: ClassVar[Any] = None
    """What ops of specs mean, inference; `fluid.opdef.inference` sets it."""

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def known(self) -> bool:
        """A plain tensor of which every extent is known."""
        return self.type is VarType.LOD_TENSOR and -1 not in self.shape and not self.lod

    @property
    def size(self) -> int:
        """Number of elements, or -1 where an extent is unknown."""
        total = 1
        for extent in self.shape:
            if extent < 0:
                return -1
            total *= extent
        return total

    def with_shape(self, shape: tuple[int, ...]) -> Spec:
        return replace(self, shape=tuple(shape))

    def with_dtype(self, dtype: VarType) -> Spec:
        return replace(self, dtype=dtype)

    def with_lod(self, lod: Lod) -> Spec:
        return self if lod == self.lod else replace(self, lod=lod)

    def _ops(self) -> Any:
        return Spec.namespace

    def __str__(self) -> str:
        return f"{self.dtype.text}{list(self.shape)}"
