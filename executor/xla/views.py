"""Views of arrays: how to read a part of an array, and how to write it back.

A view has two functions of jax values: `get` reads the part from its source, `put` returns the source with the part replaced.
They express numpy's strided views by XLA's operations.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from jax import lax

Shape = tuple[int, ...]
Views = tuple["ArrayView", ...]


class ArrayView:
    """A part of an array. If it `is_complete`, it holds all elements, and `put` ignores the former source."""

    is_complete = True

    def get(self, source: Any) -> Any:
        raise NotImplementedError

    def put(self, source: Any, part: Any) -> Any:
        raise NotImplementedError


@dataclass(frozen=True)
class ReshapedView(ArrayView):
    old: Shape
    new: Shape

    def get(self, source: Any) -> Any:
        return lax.reshape(source, self.new)

    def put(self, source: Any, part: Any) -> Any:
        return lax.reshape(part, self.old)


@dataclass(frozen=True)
class Transposed(ArrayView):
    axes: Shape

    def get(self, source: Any) -> Any:
        return lax.transpose(source, self.axes)

    def put(self, source: Any, part: Any) -> Any:
        return lax.transpose(part, [int(axis) for axis in np.argsort(self.axes)])


@dataclass(frozen=True)
class Bits(ArrayView):
    """The same bytes as elements of another type; if the width differs, the last axis gets longer or shorter."""

    old: Any
    new: Any

    def get(self, source: Any) -> Any:
        return _as_bits(source, self.new)

    def put(self, source: Any, part: Any) -> Any:
        return _as_bits(part, self.old)


@dataclass(frozen=True)
class RealPart(ArrayView):
    """The real parts of complex numbers."""

    is_complete = False

    def get(self, source: Any) -> Any:
        return lax.real(source)

    def put(self, source: Any, part: Any) -> Any:
        return lax.complex(part, lax.imag(source))


@dataclass(frozen=True)
class ImaginaryPart(ArrayView):
    """The imaginary parts of complex numbers."""

    is_complete = False

    def get(self, source: Any) -> Any:
        return lax.imag(source)

    def put(self, source: Any, part: Any) -> Any:
        return lax.complex(lax.real(source), part)


def _as_bits(value: Any, dtype: Any) -> Any:
    width, wanted = value.dtype.itemsize, np.dtype(dtype).itemsize
    *outer, last = value.shape or (1,)
    if wanted > width:
        value = lax.reshape(value, (*outer, last * width // wanted, wanted // width))
    value = lax.bitcast_convert_type(value, dtype)
    return value if wanted >= width else lax.reshape(value, (*outer, last * width // wanted))


@dataclass(frozen=True)
class Spread(ArrayView):
    """Broadcast to a shape, for reading only; `axes` maps each axis of the source to an axis of the result."""

    shape: Shape
    axes: Shape

    def get(self, source: Any) -> Any:
        return lax.broadcast_in_dim(source, self.shape, self.axes)

    def put(self, source: Any, part: Any) -> Any:
        raise ValueError("an array that was broadcast is only for reading")


class IndexedRegion(NamedTuple):
    """The elements selected by basic indexing: first index, number of elements and step along each axis of the array; and the
    shape of the result, with axes dropped or added."""

    starts: Shape
    extents: Shape
    steps: Shape
    shape: Shape


@dataclass(frozen=True)
class Sliced(ArrayView):
    """The elements that basic indexing selects from an array of shape `old`."""

    old: Shape
    region: IndexedRegion
    is_complete = False

    @cached_property
    def _bounds(self) -> tuple[list[int], list[int], list[int], list[int]]:
        """Lowest index, end and step along each axis, and the axes that go backwards."""
        lows, ends, steps = [], [], []
        for start, extent, step in zip(self.region.starts, self.region.extents, self.region.steps, strict=True):
            last = start + (extent - 1) * step
            lows.append(min(start, last) if extent else 0)
            ends.append(max(start, last) + 1 if extent else 0)
            steps.append(abs(step) if extent else 1)
        return lows, ends, steps, [axis for axis, step in enumerate(self.region.steps) if step < 0]

    def get(self, source: Any) -> Any:
        lows, ends, steps, backwards = self._bounds
        part = lax.slice(source, lows, ends, steps)
        if backwards:
            part = lax.rev(part, backwards)
        return part if part.shape == self.region.shape else lax.reshape(part, self.region.shape)

    def put(self, source: Any, part: Any) -> Any:
        if 0 in self.region.extents:
            return source
        lows, ends, steps, backwards = self._bounds
        part = part if part.shape == self.region.extents else lax.reshape(part, self.region.extents)
        if backwards:
            part = lax.rev(part, backwards)
        if all(step == 1 for step in steps):
            # lax.dynamic_update_slice makes arrays of the numbers, one by one
            return part if part.shape == self.old else lax.dynamic_update_slice_p.bind(source, part, *map(np.int32, lows))
        edges = [(low, size - end, step - 1) for low, end, step, size in zip(lows, ends, steps, self.old, strict=True)]
        padded = lax.pad(part, np.zeros((), part.dtype), edges)
        mask = None
        for axis, (low, end, step, size) in enumerate(zip(lows, ends, steps, self.old, strict=True)):
            line = np.zeros(size, bool)
            line[low:end:step] = True
            if not line.all():
                along = lax.broadcast_in_dim(line, self.old, (axis,))
                mask = along if mask is None else lax.bitwise_and(mask, along)
        return padded if mask is None else lax.select(mask, padded, source)


@dataclass(frozen=True, eq=False)
class Picked(ArrayView):
    """Arbitrary elements, by their flat indices in the source; an element may be picked several times."""

    old: Shape
    numbers: Any
    is_complete = False

    def get(self, source: Any) -> Any:
        return lax.reshape(source, (source.size,)).at[self.numbers].get(mode="promise_in_bounds")

    def put(self, source: Any, part: Any) -> Any:
        flat = lax.reshape(source, (source.size,))
        return lax.reshape(flat.at[self.numbers].set(part, mode="promise_in_bounds"), self.old)


def spread(value: Any, shape: Sequence[int]) -> Any:
    """A value broadcast to a shape, as numpy does."""
    if value.shape == tuple(shape):
        return value
    return lax.broadcast_in_dim(value, tuple(shape), range(len(shape) - len(value.shape), len(shape)))


def followed_by(views: Views, view: ArrayView) -> Views:
    """Append a view to a chain of views, merging it with the last one if possible."""
    last = views[-1] if views else None
    if isinstance(last, Spread) and isinstance(view, Transposed):
        axes = tuple(view.axes.index(axis) for axis in last.axes)
        if axes == tuple(sorted(axes)):
            return (*views[:-1], Spread(tuple(last.shape[axis] for axis in view.axes), axes))
    if isinstance(last, Transposed) and isinstance(view, Transposed):
        axes = tuple(last.axes[axis] for axis in view.axes)
        return views[:-1] if axes == tuple(range(len(axes))) else (*views[:-1], Transposed(axes))
    if not isinstance(last, ReshapedView):
        return (*views, view)
    if isinstance(view, ReshapedView):
        return views[:-1] if view.new == last.old else (*views[:-1], ReshapedView(last.old, view.new))
    if isinstance(view, Spread) and (places := _surviving_axes(last)) is not None:
        return (*views[:-1], Spread(view.shape, tuple(view.axes[axis] for axis in places)))
    return (*views, view)


def _surviving_axes(reshaped: ReshapedView) -> Shape | None:
    """The new positions of the axes if a reshape only inserts axes of size 1; otherwise None."""
    axes, old = [], list(reversed(reshaped.old))
    for axis, size in enumerate(reshaped.new):
        if old and size == old[-1]:
            axes.append(axis)
            old.pop()
        elif size != 1:
            return None
    return None if old else tuple(axes)


def basic_region(index: Any, shape: Shape) -> IndexedRegion | None:
    """Resolve an index of ints, slices, None and Ellipsis for an array of this shape; None for any other kind of index."""
    items = list(index) if isinstance(index, tuple) else [index]
    for item in items:
        plain = item is None or item is Ellipsis or isinstance(item, (int, np.integer, slice))
        if not plain or isinstance(item, (bool, np.bool_)):
            return None
    if not any(item is Ellipsis for item in items):
        items.append(Ellipsis)
    missing = len(shape) - sum(item is not None and item is not Ellipsis for item in items)
    if missing < 0:
        raise IndexError(f"an index of {len(shape) - missing} parts for an array of shape {shape}")
    full: list[Any] = []
    for item in items:
        full += [slice(None)] * missing if item is Ellipsis else [item]
    starts, extents, steps, sizes, axis = [], [], [], [], 0
    for item in full:
        if item is None:
            sizes.append(1)
            continue
        size, axis = shape[axis], axis + 1
        if isinstance(item, slice):
            bounds = (None if bound is None else operator.index(bound) for bound in (item.start, item.stop, item.step))
            start, stop, step = slice(*bounds).indices(size)
            extent = len(range(start, stop, step))
            sizes.append(extent)
        else:
            start, extent, step = operator.index(item) + (size if item < 0 else 0), 1, 1
            if not 0 <= start < size:
                raise IndexError(f"index {item} is out of bounds for axis {axis - 1} with size {size}")
        starts.append(start)
        extents.append(extent)
        steps.append(step)
    return IndexedRegion(tuple(starts), tuple(extents), tuple(steps), tuple(sizes))
