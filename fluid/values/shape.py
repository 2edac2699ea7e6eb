"""Shapes as users of tensors see them."""

from __future__ import annotations

from typing import Any, SupportsIndex, overload

from ..errors import FluidTypeError


class Shape(tuple[int, ...]):
    """A tuple of sizes that can be compared with lists, and added to them, as the lists of Fluid 1.6.

    >>> shape = dygraph.Tensor(np.ones([2, 3])).shape
    >>> shape == [2, 3], shape == (2, 3), [7] + shape[1:], shape[:1] + [7]
    (True, True, [7, 3], [2, 7])
    """

    __slots__ = ()

    def __eq__(self, value: object) -> bool:
        return tuple.__eq__(self, tuple(value) if isinstance(value, list) else value)

    def __ne__(self, value: object) -> bool:
        return not self == value

    __hash__ = tuple.__hash__

    def __add__(self, value: Any) -> Any:
        if isinstance(value, list):
            return [*self, *value]
        return Shape(tuple.__add__(self, value)) if isinstance(value, tuple) else NotImplemented

    def __radd__(self, value: Any) -> Any:
        if isinstance(value, list):
            return [*value, *self]
        return Shape((*value, *self)) if isinstance(value, tuple) else NotImplemented

    @overload
    def __getitem__(self, index: SupportsIndex) -> int: ...

    @overload
    def __getitem__(self, index: slice) -> Shape: ...

    def __getitem__(self, index: Any) -> Any:
        item = tuple.__getitem__(self, index)
        return Shape(item) if isinstance(index, slice) else item

    def __setitem__(self, index: Any, size: Any) -> None:
        raise FluidTypeError("the shape of a tensor cannot be changed; change a copy, list(x.shape), and reshape")

    def __reduce__(self) -> Any:
        return tuple, (tuple(self),)
