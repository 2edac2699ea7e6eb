"""Kernels of `fluid.ops.pool`.

Windows are rows by columns, so a maximum or sum over one is taken along the rows first and the columns then, each as
elementwise ops on shifted views (`_Axis.taps`). Where there are few windows, or they differ in size, they are taken one by
one (`_Axis.spans`).
"""

from __future__ import annotations

from functools import partial
from itertools import product
from typing import Any

from fluid.ops.conv import image_axes
from fluid.ops.pool import pool_geometry

from .manipulation import place_into
from .table import Step, prepared


class _Axis:
    """The windows along one axis of an image."""

    def __init__(self, axis: int, extent: int, out: int, size: int, stride: int, pad: tuple[int, int]) -> None:
        self.axis, self.extent, self.out, self.size, self.stride, self.pad = axis, extent, out, size, stride, pad

    @property
    def is_halving(self) -> bool:
        return self.size == self.stride == 2 and self.pad == (0, 0) and 2 * self.out <= self.extent

    def spans(self) -> list[tuple[int, int]]:
        """Bounds of each window within the image."""
        if not self.size:
            return [(i * self.extent // self.out, -(-(i + 1) * self.extent // self.out)) for i in range(self.out)]
        starts = [i * self.stride - self.pad[0] for i in range(self.out)]
        return [(min(max(start, 0), self.extent), max(min(start + self.size, self.extent), 0)) for start in starts]

    def counts(self, exclusive: bool) -> list[int]:
        """How many elements each window counts."""
        if exclusive or not self.size:
            return [max(end - start, 1) for start, end in self.spans()]
        room = self.extent + sum(self.pad)
        return [max(min(self.size, room - i * self.stride), 1) for i in range(self.out)]

    def taps(self) -> list[tuple[slice, slice]]:
        """For each place in a window: the windows where it lies within the image, and the elements that are there."""
        found = []
        for tap in range(self.size):
            first = max(0, -(-(self.pad[0] - tap) // self.stride))
            last = min(self.out - 1, (self.extent - 1 + self.pad[0] - tap) // self.stride)
            if last >= first:
                start = first * self.stride - self.pad[0] + tap
                end = last * self.stride - self.pad[0] + tap + 1
                found.append((slice(first, last + 1), slice(start, end, self.stride)))
        return found

    def at(self, where: slice) -> tuple[slice, ...]:
        """An index that is `where` along this axis."""
        return (slice(None),) * self.axis + (where,)

    def reduce(self, xp: Any, combine: Any, identity: float, source: Any, target: Any) -> list[Step]:
        """Calls that combine the elements of `source` in each window into `target`."""
        steps: list[Step] = []
        pairs = [(target[self.at(windows)], source[self.at(elements)]) for windows, elements in self.taps()]
        if len(pairs) > 1 and pairs[0][0].shape == pairs[1][0].shape == target.shape:
            steps.append(partial(combine, pairs[0][1], pairs[1][1], out=target))
            pairs = pairs[2:]
        else:
            steps.append(partial(target.fill, identity) if len(pairs) != 1 else partial(xp.copyto, target, identity))
        return steps + [partial(combine, windows, elements, out=windows) for windows, elements in pairs]

    def spread(self, xp: Any, source: Any, target: Any) -> list[Step]:
        """Calls that add what each window has in `source` to all its elements in `target`: the transpose of a sum."""
        steps: list[Step] = []
        pairs = [(source[self.at(windows)], target[self.at(elements)]) for windows, elements in self.taps()]
        apart = self.stride >= self.size
        if not apart or sum(part.shape[self.axis] for _, part in pairs) < self.extent:
            steps.append(partial(target.fill, 0))
        for windows, elements in pairs:
            steps.append(partial(xp.copyto, elements, windows) if apart else partial(xp.add, elements, windows, elements))
        return steps


def _axes(shape: tuple[int, ...], attrs: dict[str, Any]) -> list[_Axis]:
    axes = image_axes(attrs["data_format"], 4)[1]
    extents = [shape[axis] for axis in axes]
    geometry = pool_geometry(extents, attrs)
    return [_Axis(axis, extent, *each) for axis, extent, *each in zip(axes, extents, *geometry, strict=True)]


def _by_window(axes: list[_Axis]) -> bool:
    """Whether windows are to be taken one by one."""
    rows, columns = axes
    return not (rows.size and columns.size) or rows.out * columns.out <= rows.size + columns.size


def _windows(axes: list[_Axis], image: Any, pooled: Any) -> list[tuple[Any, Any]]:
    """For each window: its elements, and its element of the pooled image with the axes kept."""
    rows, columns = axes
    found = []
    for (i, height), (j, width) in product(enumerate(rows.spans()), enumerate(columns.spans())):
        elements = image[rows.at(slice(*height))][columns.at(slice(*width))]
        found.append((elements, pooled[rows.at(slice(i, i + 1))][columns.at(slice(j, j + 1))]))
    return found


def _between(scratch: Any, axes: list[_Axis], image: Any) -> Any:
    """An array for an image whose rows are pooled and whose columns are not."""
    shape = list(image.shape)
    shape[axes[0].axis] = axes[0].out
    return scratch(tuple(shape), image.dtype)


def _lowest(xp: Any, dtype: Any) -> float:
    return float(xp.finfo(dtype).min)


def _weights(xp: Any, axes: list[_Axis], pooled: Any, exclusive: bool) -> Any:
    """One over the number of elements in each window, shaped to multiply pooled images."""
    rows, columns = (1 / xp.asarray(axis.counts(exclusive), pooled.dtype) for axis in axes)
    weights = rows[:, None] * columns
    if bool((weights == weights[0, 0]).all()):
        return pooled.dtype.type(float(weights[0, 0]))
    return weights[:, :, None] if axes[0].axis == 1 else weights


def _maxima(xp: Any, scratch: Any, axes: list[_Axis], X: Any, Out: Any) -> list[Step]:
    if _by_window(axes):
        kept = (axes[0].axis, axes[1].axis)
        return [partial(xp.maximum.reduce, window, kept, None, out, True) for window, out in _windows(axes, X, Out)]
    between = _between(scratch, axes, X)
    lowest = _lowest(xp, X.dtype)
    return axes[0].reduce(xp, xp.maximum, lowest, X, between) + axes[1].reduce(xp, xp.maximum, lowest, between, Out)


def _averages(xp: Any, scratch: Any, axes: list[_Axis], X: Any, Out: Any, exclusive: bool) -> list[Step]:
    weights = _weights(xp, axes, Out, exclusive)
    steps: list[Step]
    if _by_window(axes):
        kept = (axes[0].axis, axes[1].axis)
        steps = [partial(xp.add.reduce, window, kept, None, out, True) for window, out in _windows(axes, X, Out)]
    else:
        between = _between(scratch, axes, X)
        steps = axes[0].reduce(xp, xp.add, 0, X, between) + axes[1].reduce(xp, xp.add, 0, between, Out)
    return [*steps, partial(xp.multiply, Out, weights, Out)]


def _share(xp: Any, scratch: Any, axes: list[_Axis], pooled: Any, image: Any, exclusive: bool) -> list[Step]:
    """Calls for the transpose of averages."""
    shares = scratch(pooled.shape, pooled.dtype)
    steps: list[Step] = [partial(xp.multiply, pooled, _weights(xp, axes, pooled, exclusive), shares)]
    if _by_window(axes):
        steps.append(partial(image.fill, 0))
        return steps + [partial(xp.add, window, share, window) for window, share in _windows(axes, image, shares)]
    between = _between(scratch, axes, image)
    return steps + axes[1].spread(xp, shares, between) + axes[0].spread(xp, between, image)


def _find_maxima(xp: Any, scratch: Any, axes: list[_Axis], X: Any, Index: Any) -> list[Step]:
    """Calls that find where in its image the first maximum of each window lies."""
    rows, columns = axes
    width = columns.extent
    if _by_window(axes):

        def find() -> None:
            for (i, (top, bottom)), (j, (left, right)) in product(enumerate(rows.spans()), enumerate(columns.spans())):
                if bottom <= top or right <= left:
                    continue
                window = xp.moveaxis(
                    X[rows.at(slice(top, bottom))][columns.at(slice(left, right))], (rows.axis, columns.axis), (2, 3)
                )
                at = window.reshape(*window.shape[:2], -1).argmax(-1)
                target = xp.moveaxis(Index, (rows.axis, columns.axis), (2, 3))
                target[:, :, i, j] = (top + at // (right - left)) * width + left + at % (right - left)

        return [partial(Index.fill, 0), find]
    best, better = scratch(Index.shape, X.dtype), scratch(Index.shape, xp.dtype(bool))
    places = xp.arange(rows.extent * width).reshape(rows.extent, width)
    places = places[:, :, None] if rows.axis == 1 else places
    steps: list[Step] = [partial(best.fill, -xp.inf), partial(Index.fill, 0)]

    def consider(value: Any, top: Any, where: Any, index: Any, place: Any) -> None:
        xp.greater(value, top, where)
        xp.copyto(top, value, where=where)
        xp.copyto(index, place, where=where)

    for (row_windows, row_elements), (column_windows, column_elements) in product(rows.taps(), columns.taps()):
        windows = rows.at(row_windows) + (column_windows,)
        place = places[row_elements, column_elements]
        steps.append(
            partial(
                consider, X[rows.at(row_elements) + (column_elements,)], best[windows], better[windows], Index[windows], place
            )
        )
    return steps


def _halved_back(xp: Any, scratch: Any, axes: list[_Axis], X: Any, dOut: Any, dX: Any) -> list[Step]:
    """Calls for the gradient of maxima of 2 by 2 windows next to each other."""
    rows, columns = axes
    steps: list[Step] = []
    if (2 * rows.out, 2 * columns.out) != (rows.extent, columns.extent):
        steps.append(partial(dX.fill, 0))
    (_, even), (_, odd) = columns.taps()
    (_, top), (_, bottom) = rows.taps()
    covered = rows.at(slice(0, 2 * rows.out))
    left, right = X[covered][columns.at(even)], X[covered][columns.at(odd)]
    d_left, d_right = dX[covered][columns.at(even)], dX[covered][columns.at(odd)]
    widest, gradient = scratch(left.shape, X.dtype), scratch(left.shape, X.dtype)
    first, upper = scratch(left.shape, xp.dtype(bool)), scratch(dOut.shape, xp.dtype(bool))
    d_top, d_bottom = gradient[rows.at(top)], gradient[rows.at(bottom)]
    return [
        *steps,
        partial(xp.maximum, left, right, out=widest),
        partial(xp.greater_equal, left, right, first),
        partial(xp.greater_equal, widest[rows.at(top)], widest[rows.at(bottom)], upper),
        partial(xp.multiply, dOut, upper, d_top),
        partial(xp.subtract, dOut, d_top, d_bottom),
        partial(xp.multiply, gradient, first, d_left),
        partial(xp.subtract, gradient, d_left, d_right),
    ]


def _maxima_back(xp: Any, scratch: Any, axes: list[_Axis], X: Any, dOut: Any, dX: Any) -> list[Step]:
    rows, columns = axes
    if rows.is_halving and columns.is_halving:
        return _halved_back(xp, scratch, axes, X, dOut, dX)
    if _by_window(axes):
        index = scratch(dOut.shape, xp.dtype("int64"))

        def flat(array: Any) -> Any:
            shape = array.shape
            return array.reshape(*shape[: rows.axis], shape[rows.axis] * shape[columns.axis], *shape[columns.axis + 1 :])

        put: Step = partial(place_into, xp, flat(dOut), flat(index), rows.axis, -100, flat(dX))
        return [*_find_maxima(xp, scratch, axes, X, index), put]
    maxima, part = scratch(dOut.shape, X.dtype), scratch(dOut.shape, dOut.dtype)
    here, free = scratch(dOut.shape, xp.dtype(bool)), scratch(dOut.shape, xp.dtype(bool))
    steps: list[Step] = [*_maxima(xp, scratch, axes, X, maxima), partial(dX.fill, 0), partial(free.fill, True)]
    for (row_windows, row_elements), (column_windows, column_elements) in product(rows.taps(), columns.taps()):
        windows = rows.at(row_windows) + (column_windows,)
        elements = rows.at(row_elements) + (column_elements,)
        steps += [  # the first element of a window that equals the maximum gets the gradient
            partial(xp.equal, X[elements], maxima[windows], here[windows]),
            partial(xp.logical_and, here[windows], free[windows], here[windows]),
            partial(xp.logical_xor, free[windows], here[windows], free[windows]),
            partial(xp.multiply, dOut[windows], here[windows], part[windows]),
            partial(xp.add, dX[elements], part[windows], dX[elements]),
        ]
    return steps


@prepared("pool2d")
def pool2d(xp: Any, scratch: Any, X: Any, pooling_type: str, exclusive: bool, attrs: dict[str, Any], Out: Any) -> list[Step]:
    axes = _axes(X.shape, attrs)
    if pooling_type == "max":
        return _maxima(xp, scratch, axes, X, Out)
    return _averages(xp, scratch, axes, X, Out, exclusive)


@prepared("pool2d_grad")
def pool2d_grad(
    xp: Any, scratch: Any, X: Any, dOut: Any, pooling_type: str, exclusive: bool, attrs: dict[str, Any], dX: Any
) -> list[Step]:
    axes = _axes(X.shape, attrs)
    if pooling_type == "max":
        return _maxima_back(xp, scratch, axes, X, dOut, dX)
    return _share(xp, scratch, axes, dOut, dX, exclusive)


@prepared("pool2d_index")
def pool2d_index(xp: Any, scratch: Any, X: Any, attrs: dict[str, Any], Index: Any) -> list[Step]:
    return _find_maxima(xp, scratch, _axes(X.shape, attrs), X, Index)


@prepared("pool2d_average_back")
def pool2d_average_back(xp: Any, scratch: Any, Output: Any, exclusive: bool, attrs: dict[str, Any], X: Any) -> list[Step]:
    return _share(xp, scratch, _axes(X.shape, attrs), Output, X, exclusive)
