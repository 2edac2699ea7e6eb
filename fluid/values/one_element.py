"""Arrays of one element that convert to numbers whatever their shape, as all of numpy's did before 2.4."""

from __future__ import annotations

import operator
from typing import Any

import numpy as np

_Array = np.ndarray[Any, Any]


class OneElementArray(np.ndarray[Any, Any]):
    """An array of one element, as losses have it (shape ``[1]``): ``float(loss)``, ``"%.4f" % loss`` and the like work.

    Results computed from it convert too while they have one element, so that sums and means over batches can be printed.
    Results of more elements, copies by ``numpy.array`` and pickles are plain arrays.
    """

    __slots__ = ()

    def _element(self) -> Any:
        if self.size != 1:  # a view with other strides, or a method such as repeat
            raise TypeError("only arrays of one element can be converted to Python scalars")
        return self.item()

    def __float__(self) -> float:
        return float(self._element())

    def __int__(self) -> int:
        return int(self._element())

    def __complex__(self) -> complex:
        return complex(self._element())

    def __index__(self) -> int:
        return operator.index(self._element())

    def __format__(self, spec: str) -> str:
        return format(self._element(), spec) if spec else str(self)

    def __repr__(self) -> str:
        return repr(np.asarray(self))

    def __array_wrap__(self, array: _Array, context: Any = None, return_scalar: bool = False) -> Any:
        return array[()] if return_scalar else convertible(array)

    def __reduce_ex__(self, protocol: Any) -> Any:
        return np.asarray(self).__reduce_ex__(protocol)


def convertible(array: _Array) -> _Array:
    """The array; if it has one element and dimensions, a view of it that converts to a number."""
    return array.view(OneElementArray) if array.size == 1 and array.ndim else array
