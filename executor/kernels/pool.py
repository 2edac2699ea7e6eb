"""Kernels of `fluid.ops.pool`.

Windows are rows by columns (by more in volumes), so a maximum or sum over one is taken along one axis after the other, each
as elementwise ops on shifted views (`_AxisWindows.taps`). Where there are few windows, or they differ in size, they are taken one
by one (`_AxisWindows.spans`).
"""

from __future__ import annotations

from functools import partial
from itertools import product
from math import prod
from typing import Any

import numpy as np

from fluid.errors import IndexRangeError
from fluid.ops.conv import image_axes
from fluid.ops.pool import pool_geometry, windows_of

from .manipulation import place_into, ranges
from .portable import last_positions, reduction, values_in_order
from .table import Call, OutArray, checked, fill, kernel, prepared


class _AxisWindows:
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
        """The number of counted elements of each window."""
        if exclusive or not self.size:
            return [max(end - start, 1) for start, end in self.spans()]
        room = self.extent + sum(self.pad)
        return [max(min(self.size, room - i * self.stride), 1) for i in range(self.out)]

    def taps(self) -> list[tuple[slice, slice]]:
        """For each place in a window: the windows where it lies within the image, and the elements that are there."""
        pairs = []
        for tap in range(self.size):
            first = max(0, -(-(self.pad[0] - tap) // self.stride))
            last = min(self.out - 1, (self.extent - 1 + self.pad[0] - tap) // self.stride)
            if last >= first:
                start = first * self.stride - self.pad[0] + tap
                end = last * self.stride - self.pad[0] + tap + 1
                pairs.append((slice(first, last + 1), slice(start, end, self.stride)))
        return pairs

    def at(self, where: slice) -> tuple[slice, ...]:
        """An index that is `where` along this axis."""
        return (slice(None),) * self.axis + (where,)

    def reduce(self, xp: Any, combine: Any, identity: float, source: Any, target: Any) -> list[Call]:
        """Calls that combine the elements of `source` in each window into `target`."""
        steps: list[Call] = []
        pairs = [(target[self.at(windows)], source[self.at(elements)]) for windows, elements in self.taps()]
        if len(pairs) > 1 and pairs[0][0].shape == pairs[1][0].shape == target.shape:
            steps.append(partial(combine, pairs[0][1], pairs[1][1], out=target))
            pairs = pairs[2:]
        else:
            steps.append(fill(xp, target, identity) if len(pairs) != 1 else partial(xp.copyto, target, identity))
        return steps + [partial(combine, windows, elements, out=windows) for windows, elements in pairs]

    def spread(self, xp: Any, source: Any, target: Any) -> list[Call]:
        """Calls that add each window's number in `source` to all its elements in `target`: the transpose of a sum."""
        steps: list[Call] = []
        pairs = [(source[self.at(windows)], target[self.at(elements)]) for windows, elements in self.taps()]
        apart = self.stride >= self.size
        if not apart or sum(part.shape[self.axis] for _, part in pairs) < self.extent:
            steps.append(fill(xp, target, 0))
        for windows, elements in pairs:
            steps.append(partial(xp.copyto, elements, windows) if apart else partial(xp.add, elements, windows, elements))
        return steps


def _axes(shape: tuple[int, ...], attrs: dict[str, Any]) -> list[_AxisWindows]:
    axes = image_axes(attrs["data_format"], len(shape))[1]
    extents = [shape[axis] for axis in axes]
    geometry = pool_geometry(extents, attrs)
    return [_AxisWindows(axis, extent, *parameters) for axis, extent, *parameters in zip(axes, extents, *geometry, strict=True)]


def _by_window(axes: list[_AxisWindows]) -> bool:
    """Whether to compute windows one by one."""
    return not all(axis.size for axis in axes) or prod(axis.out for axis in axes) <= sum(axis.size for axis in axes)


def _at(axes: list[_AxisWindows], where: tuple[slice, ...]) -> tuple[slice, ...]:
    """An index with `where` along the consecutive pooled axes."""
    return axes[0].at(where[0]) + where[1:]


def _windows(axes: list[_AxisWindows], image: Any, pooled: Any) -> list[tuple[Any, Any]]:
    """For each window: its elements, and its element of the pooled image, whose pooled axes have size 1."""
    pairs = []
    for window in product(*(enumerate(axis.spans()) for axis in axes)):
        elements = image[_at(axes, tuple(slice(*span) for _, span in window))]
        pairs.append((elements, pooled[_at(axes, tuple(slice(i, i + 1) for i, _ in window))]))
    return pairs


def _between(scratch: Any, axes: list[_AxisWindows], image: Any, pooled: Any) -> list[Any]:
    """`image`, arrays for it with one axis more pooled each, and `pooled`, where all are."""
    shape, arrays = list(image.shape), [image]
    for axis in axes[:-1]:
        shape[axis.axis] = axis.out
        arrays.append(scratch(tuple(shape), image.dtype))
    return [*arrays, pooled]


def _lowest(xp: Any, dtype: Any) -> float:
    """The maximum of a window that lies in the padding."""
    return float(xp.finfo(dtype).min)


def _weights(xp: Any, axes: list[_AxisWindows], pooled: Any, exclusive: bool) -> Any:
    """One over the number of elements in each window, shaped to multiply pooled images."""
    weights = np.ones((), pooled.dtype)
    for axis in axes:
        weights = weights[..., None] * (1 / np.asarray(axis.counts(exclusive), pooled.dtype))
    if weights.size and (weights == weights.reshape(-1)[0]).all():
        return weights.reshape(-1)[0]
    return xp.asarray(weights[..., None] if axes[0].axis == 1 else weights)


def _reduced(
    xp: Any, scratch: Any, axes: list[_AxisWindows], combine: Any, identity: float, image: Any, pooled: Any
) -> list[Call]:
    """Calls that combine the elements of each window of `image` into `pooled`."""
    if _by_window(axes):
        pooled_axes = tuple(axis.axis for axis in axes)
        return [
            partial(xp.copyto, out, identity) if not window.size else reduction(xp, combine, window, pooled_axes, out)
            for window, out in _windows(axes, image, pooled)
        ]
    stages = _between(scratch, axes, image, pooled)
    return [
        step
        for axis, source, target in zip(axes, stages[:-1], stages[1:], strict=True)
        for step in axis.reduce(xp, combine, identity, source, target)
    ]


def _maxima(xp: Any, scratch: Any, axes: list[_AxisWindows], X: Any, Out: Any) -> list[Call]:
    outside = [axis.at(slice(i, i + 1)) for axis in axes for i, (start, end) in enumerate(axis.spans()) if start >= end]
    steps = _reduced(xp, scratch, axes, xp.maximum, -xp.inf, X, Out)
    return [*steps, *(fill(xp, Out[windows], _lowest(xp, X.dtype)) for windows in outside)]


def _averages(xp: Any, scratch: Any, axes: list[_AxisWindows], X: Any, Out: Any, exclusive: bool) -> list[Call]:
    steps = _reduced(xp, scratch, axes, xp.add, 0, X, Out)
    return [*steps, partial(xp.multiply, Out, _weights(xp, axes, Out, exclusive), Out)]


def _share(xp: Any, scratch: Any, axes: list[_AxisWindows], pooled: Any, image: Any, exclusive: bool) -> list[Call]:
    """Calls for the transpose of averages."""
    shares = scratch(pooled.shape, pooled.dtype)
    steps: list[Call] = [partial(xp.multiply, pooled, _weights(xp, axes, pooled, exclusive), shares)]
    if _by_window(axes):
        steps.append(fill(xp, image, 0))
        return steps + [partial(xp.add, window, share, window) for window, share in _windows(axes, image, shares)]
    stages = _between(scratch, axes, image, shares)
    for axis, source, target in zip(reversed(axes), stages[:0:-1], stages[-2::-1], strict=True):
        steps += axis.spread(xp, source, target)
    return steps


_NO_PLACE = -100
"""The place of the maximum of a window that lies in the padding."""


def _find_maxima(xp: Any, scratch: Any, axes: list[_AxisWindows], X: Any, Index: Any, empty: int = 0) -> list[Call]:
    """Calls that find where in its image the first maximum of each window lies; `empty` for windows in the padding.

    A NaN is greater than all numbers. Elements of a window are visited from the last to the first, which remains of equal ones.
    """
    extents = tuple(axis.extent for axis in axes)
    places = xp.arange(prod(extents), dtype=Index.dtype).reshape(extents)
    steps: list[Call] = []
    if _by_window(axes):
        steps.append(fill(xp, Index, empty))
        first, count = axes[0].axis, len(axes)
        for window in product(*(enumerate(axis.spans()) for axis in axes)):
            spans = tuple(slice(*span) for _, span in window)
            target = Index[_at(axes, tuple(slice(i, i + 1) for i, _ in window))]
            if places[spans].size:
                steps.append(partial(_find_maximum, xp, first, count, X[_at(axes, spans)], places[spans].reshape(-1), target))
        return steps
    values, places = X, places[None, ..., None] if axes[0].axis == 1 else places[None, None]
    for axis in reversed(axes):  # the first maximum of the first row that has it
        shape = list(values.shape)
        shape[axis.axis] = axis.out
        best, hits, nans = scratch(tuple(shape), X.dtype), *(scratch(tuple(shape), xp.dtype(bool)) for _ in range(2))
        index = Index if axis is axes[0] else scratch(tuple(shape), Index.dtype)
        steps += [fill(xp, index, empty), fill(xp, best, -xp.inf)]
        for window_part, element_part in reversed(list(axis.taps())):
            windows, elements = axis.at(window_part), axis.at(element_part)
            value, is_hit, is_nan = values[elements], hits[windows], nans[windows]
            steps += [
                partial(xp.maximum, best[windows], value, out=best[windows]),
                partial(xp.equal, value, best[windows], is_hit),
                partial(xp.not_equal, value, value, is_nan),
                partial(xp.logical_or, is_hit, is_nan, is_hit),
                partial(xp.copyto, index[windows], places[elements], where=is_hit),
            ]
        values, places = best, index
    return steps


def _find_maximum(xp: Any, first: int, count: int, window: Any, places: Any, out: OutArray) -> None:
    """Write the place of the first maximum of each window; windows span `count` axes from `first` on."""
    shape = window.shape
    flat = window.reshape(*shape[:first], prod(shape[first : first + count]), *shape[first + count :])
    xp.copyto(out, places[flat.argmax(first)].reshape(out.shape))


def _halved_back(xp: Any, scratch: Any, axes: list[_AxisWindows], X: Any, dOut: Any, dX: Any) -> list[Call]:
    """Calls for the gradient of maxima of 2 by 2 windows next to each other, some images at a time."""
    rows, columns = axes
    steps: list[Call] = []
    if (2 * rows.out, 2 * columns.out) != (rows.extent, columns.extent):
        steps.append(fill(xp, dX, 0))
    first = rows.axis - 1
    images = [array.reshape(prod(array.shape[: first + 1]), *array.shape[first + 1 :]) for array in (X, dOut, dX)]
    rows, columns = (_AxisWindows(a.axis - first, a.extent, a.out, a.size, a.stride, a.pad) for a in axes)
    (_, even), (_, odd) = columns.taps()
    (_, top), (_, bottom) = rows.taps()
    image_size = prod(images[0].shape[1:])
    parts = ranges(xp, len(images[0]), image_size, _PART)
    shape = list(images[0].shape)
    shape[:3] = parts[0][1] if parts else 0, 2 * rows.out, columns.out
    widest, gradient = (scratch(tuple(shape), X.dtype) for _ in range(2))
    larger, nans = (scratch(tuple(shape), xp.dtype(bool)) for _ in range(2))
    upper, upper_nans = (scratch((shape[0], *images[1].shape[1:]), xp.dtype(bool)) for _ in range(2))
    for start, end in parts:
        x, d_out, d_x = (array[start:end] for array in images)
        wide, grad = widest[: end - start], _bits(gradient[: end - start])
        left_first, left_nans, top_first, top_nans = (array[: end - start] for array in (larger, nans, upper, upper_nans))
        x, d_x = x[rows.at(slice(0, 2 * rows.out))], _bits(d_x[rows.at(slice(0, 2 * rows.out))])
        left, right, d_left, d_right = (array[columns.at(at)] for array in (x, d_x) for at in (even, odd))
        d_top, d_bottom = grad[rows.at(top)], grad[rows.at(bottom)]
        steps += [
            partial(xp.maximum, left, right, out=wide),
            *_is_first(xp, left, right, left_nans, left_first),
            *_is_first(xp, wide[rows.at(top)], wide[rows.at(bottom)], top_nans, top_first),
            partial(xp.multiply, _bits(d_out), top_first, d_top),
            partial(xp.subtract, _bits(d_out), d_top, d_bottom),
            partial(xp.multiply, grad, left_first, d_left),
            partial(xp.subtract, grad, d_left, d_right),
        ]
    return steps


def _is_first(xp: Any, first: Any, second: Any, nans: Any, out: Any) -> list[Call]:
    """Calls that tell where the first of two elements is their maximum, a NaN being greater than all numbers."""
    return [
        partial(xp.greater_equal, first, second, out),
        partial(xp.not_equal, first, first, nans),
        partial(xp.logical_or, out, nans, out),
    ]


def _bits(array: Any) -> Any:
    """A view of floats as integers, whose products with 0 are 0 where the floats are infinite, too."""
    return array.view(f"i{array.dtype.itemsize}")


def _flat(axes: list[_AxisWindows], array: Any) -> Any:
    """Images with the pooled axes as one."""
    shape, first, end = array.shape, axes[0].axis, axes[-1].axis + 1
    return array.reshape(*shape[:first], prod(shape[first:end]), *shape[end:])


def overlapping_maxima(shape: tuple[int, ...], attrs: dict[str, Any]) -> list[_AxisWindows]:
    """The windows along each pooled axis of images with this shape; none unless they overlap."""
    axes = _axes(shape, attrs)
    is_halved = len(axes) == 2 and all(axis.is_halving for axis in axes)
    return [] if is_halved or _by_window(axes) else axes


def _maxima_back(xp: Any, scratch: Any, axes: list[_AxisWindows], X: Any, dOut: Any, dX: Any) -> list[Call]:
    if len(axes) == 2 and all(axis.is_halving for axis in axes):
        return _halved_back(xp, scratch, axes, X, dOut, dX)
    if _by_window(axes):
        index = scratch(dOut.shape, xp.dtype("int64"))
        put: Call = partial(place_into, xp, _flat(axes, dOut), _flat(axes, index), axes[0].axis, _NO_PLACE, _flat(axes, dX))
        return [*_find_maxima(xp, scratch, axes, X, index, _NO_PLACE), put]
    return [_overlapping_back(xp, scratch, axes, X, dOut, dX)]


_PART = 1 << 17
"""Elements of images that are taken at a time, few enough to stay in a near cache."""


def _overlapping_back(xp: Any, scratch: Any, axes: list[_AxisWindows], X: Any, dOut: Any, dX: Any) -> Call:
    """The call for the gradient of maxima of windows that overlap.

    Images are split into grids, one for each position within a stride (four for rows and columns with stride 2). In a grid, the
    elements at one place of all windows are consecutive. So all steps work on flat arrays, shifted against each other, one axis
    after the other: for example, gradients go to the rows of the maxima first, and then to their columns. Thus the first of equal
    elements gets the gradient. Grid elements outside of the windows get zeros.
    """
    if not X.size:
        return fill(xp, dX, 0)
    first = axes[0].axis
    x, d_out, d_x = (array.reshape(-1, *array.shape[first:]) for array in (X, dOut, dX))
    phases = [min(axis.stride, axis.size) for axis in axes]
    extents = [axis.out + (axis.size - 1) // axis.stride for axis in axes]
    grid = (*extents, *x.shape[1 + len(axes) :])
    grid_size = prod(grid)
    count = ranges(xp, len(x), grid_size * prod(phases), _PART)[0][1]
    counts = [prod(phases[:level]) for level in range(len(axes), -1, -1)]
    values, grads = ([scratch((number, grid_size * count), array.dtype) for number in counts] for array in (X, dOut))
    spare, masks = scratch((grid_size * count,), dOut.dtype), scratch((3, grid_size * count), xp.dtype(bool))
    taps = []
    for number, axis in reversed(list(enumerate(axes))):
        step = prod(grid[number + 1 :])
        taps.append((phases[number], [(tap % axis.stride, tap // axis.stride * step) for tap in range(axis.size)]))
    along = [_in_grid(axis, *pair) for axis, *pair in zip(axes, phases, extents, strict=True)]
    places = [
        (number, tuple(source for source, _ in both), tuple(target for _, target in both))
        for number, both in enumerate(product(*along))
    ]
    windows = tuple(slice(0, axis.out) for axis in axes)
    return partial(_take_back, xp, x, d_out, d_x, values, grads, spare, masks, grid, taps, places, windows)


def _in_grid(axis: _AxisWindows, phases: int, extent: int) -> list[tuple[slice, slice]]:
    """For each phase along an axis: the slice of its grid that lies in the image, and the matching slice of the image."""
    slices = []
    for phase in range(phases):
        start = max(0, -(-(axis.pad[0] - phase) // axis.stride))
        end = max(start, min(extent, (axis.extent - 1 + axis.pad[0] - phase) // axis.stride + 1))
        at = start * axis.stride + phase - axis.pad[0]
        slices.append(
            (slice(start, end), slice(at, at + max(0, (end - start - 1) * axis.stride + 1) * (end > start), axis.stride))
        )
    return slices


def _take_back(
    xp: Any,
    x: Any,
    d_out: Any,
    d_x: OutArray,
    values: list[OutArray],
    grads: list[OutArray],
    spare: OutArray,
    masks: OutArray,
    grid: tuple[int, ...],
    taps: list[Any],
    places: list[Any],
    windows: tuple[slice, ...],
) -> None:
    """Compute the gradient of overlapping maxima, a few images at a time.

    `values` and `grads` hold the grids of the elements, then the grids with one more axis pooled each. For each axis, last one
    first, `taps` holds the number of phases, and the phase and shift of each place.
    """
    grid_size = prod(grid)
    count = len(spare) // grid_size
    lowest = _lowest(xp, x.dtype)
    d_x.fill(0)
    for start in range(0, len(x), count):
        images, gradient, target = (array[start : start + count] for array in (x, d_out, d_x))
        size = grid_size * len(images)
        elements, *maxima = (array[:, :size] for array in values)
        in_grids = elements.reshape(len(elements), -1, *grid)
        in_grids.fill(-xp.inf)  # below all elements
        for number, grid_part, image_part in places:
            xp.maximum(images[(slice(None), *image_part)], lowest, out=in_grids[number][(slice(None), *grid_part)])
        for tap, source, pooled in zip(taps, [elements, *maxima], maxima, strict=False):
            _pool_axis(xp, tap, source, pooled)
        has_nans = xp is not np or bool(xp.isnan(maxima[-1]).any())
        d_elements, *d_maxima = (array[:, :size] for array in grads)
        d_maxima[-1].fill(0)
        d_maxima[-1].reshape(-1, *grid)[(slice(None), *windows)] = gradient
        levels = zip(taps, [elements, *maxima], maxima, [d_elements, *d_maxima], d_maxima, strict=False)
        for tap, source, pooled, d_source, d_pooled in reversed(list(levels)):
            _pool_axis_back(xp, tap, source, pooled, d_source, d_pooled, spare, masks, has_nans)
        d_in_grids = d_elements.reshape(in_grids.shape)
        for number, grid_part, image_part in places:
            target[(slice(None), *image_part)] = d_in_grids[number][(slice(None), *grid_part)]


def _pool_axis(xp: Any, taps: Any, source: Any, pooled: OutArray) -> None:
    """Compute the maxima of windows along one axis of flat grids: the number of phases, and the phase and shift of each place."""
    phases, by_tap = taps
    size = source.shape[1]
    for number, maxima in enumerate(pooled):
        xp.copyto(maxima, source[number * phases])
        for phase, shift in by_tap[1:]:
            xp.maximum(maxima[: size - shift], source[number * phases + phase, shift:], out=maxima[: size - shift])


def _pool_axis_back(
    xp: Any,
    taps: Any,
    source: Any,
    pooled: Any,
    d_source: OutArray,
    d_pooled: Any,
    spare: OutArray,
    masks: OutArray,
    has_nans: bool,
) -> None:
    """Give the gradient of each maximum of `_pool_axis` to the first element that equals it, or is NaN."""
    phases, by_tap = taps
    size = source.shape[1]
    is_maximum, free, is_nan = masks
    d_source.fill(0)
    for number, (maxima, gradient) in enumerate(zip(pooled, d_pooled, strict=True)):
        free[:size].fill(True)
        for phase, shift in by_tap:
            end, at = size - shift, number * phases + phase
            here, left, product = is_maximum[:end], free[:end], spare[:end]
            value, d_value = source[at, shift:], d_source[at, shift:]
            xp.equal(value, maxima[:end], here)
            if has_nans:
                xp.not_equal(value, value, is_nan[:end])
                xp.logical_or(here, is_nan[:end], here)
            xp.logical_and(here, left, here)
            xp.logical_xor(left, here, left)
            xp.multiply(_bits(gradient[:end]), here, _bits(product))
            xp.add(d_value, product, d_value)


@prepared("pool2d", "pool3d")
def pool(xp: Any, scratch: Any, X: Any, pooling_type: str, exclusive: bool, attrs: dict[str, Any], Out: Any) -> list[Call]:
    axes = _axes(X.shape, attrs)
    if pooling_type == "max":
        return _maxima(xp, scratch, axes, X, Out)
    return _averages(xp, scratch, axes, X, Out, exclusive)


@prepared("pool2d_grad", "pool3d_grad")
def pool_grad(
    xp: Any, scratch: Any, X: Any, dOut: Any, pooling_type: str, exclusive: bool, attrs: dict[str, Any], dX: Any
) -> list[Call]:
    axes = _axes(X.shape, attrs)
    if pooling_type == "max":
        return _maxima_back(xp, scratch, axes, X, dOut, dX)
    return _share(xp, scratch, axes, dOut, dX, exclusive)


@prepared("pool2d_index", "pool3d_index")
def pool_index(xp: Any, scratch: Any, X: Any, attrs: dict[str, Any], Index: Any) -> list[Call]:
    return _find_maxima(xp, scratch, _axes(X.shape, attrs), X, Index)


@prepared("pool2d_average_back", "pool3d_average_back")
def pool_average_back(xp: Any, scratch: Any, Output: Any, exclusive: bool, attrs: dict[str, Any], X: Any) -> list[Call]:
    return _share(xp, scratch, _axes(X.shape, attrs), Output, X, exclusive)


@prepared("max_pool2d_with_index", "max_pool3d_with_index")
def max_pool_with_index(xp: Any, scratch: Any, X: Any, attrs: dict[str, Any], Out: Any, Mask: Any) -> list[Call]:
    axes = _axes(X.shape, windows_of(attrs, X.ndim - 2))
    steps = [] if Out is None else _maxima(xp, scratch, axes, X, Out)
    return steps if Mask is None else [*steps, *_find_maxima(xp, scratch, axes, X, Mask)]


# ----------------------------------------------------------------------------------------------------------- unpooling
def _unpool(values: Any, Indices: Any, image: Any) -> tuple[Any, Any, Any]:
    """Values, indices and image as one row for each channel of each image."""
    rows, places = prod(image.shape[:2]), prod(image.shape[2:])
    ids = Indices.reshape(rows, prod(Indices.shape[2:]))
    return values.reshape(ids.shape), ids, image.reshape(rows, places)


def _check_places(Indices: Any, places: int) -> None:
    if Indices.size and not 0 <= int(Indices.min()) <= int(Indices.max()) < places:
        bad = int(Indices.min()) if int(Indices.min()) < 0 else int(Indices.max())
        raise IndexRangeError(f"unpool: index {bad} lies outside of the output, whose images have {places} elements")


@checked("unpool_back", "unpool3d_back")
def check_unpool_back(Output: Any, Indices: Any) -> None:
    _check_places(Indices, prod(Output.shape[2:]))


@checked("unpool", "unpool3d")
def check_unpool(Indices: Any, OutputSize: Any, Out: Any) -> None:
    _check_places(Indices, prod(_sizes_of_image(OutputSize) if Out is None else Out.shape[2:]))


def _sizes_of_image(OutputSize: Any) -> list[int]:
    return [int(size) for part in OutputSize for size in part.reshape(-1)]


@kernel("unpool", "unpool3d")
def unpool(xp: Any, X: Any, Indices: Any, OutputSize: Any, Out: Any) -> Any:
    if Out is None:
        Out = xp.empty((*X.shape[:2], *_sizes_of_image(OutputSize)), X.dtype)
    values, ids, image = _unpool(X, Indices, Out)
    image.fill(0)
    index = xp.arange(len(ids))[:, None], ids
    image[index] = values_in_order(xp, image, index, values)
    return Out


@kernel("unpool_back", "unpool3d_back")
def unpool_back(xp: Any, Output: Any, Indices: Any, X: Any) -> None:
    values, ids, image = _unpool(X, Indices, Output)
    last = last_positions(xp, image.shape, (xp.arange(len(ids))[:, None], ids))
    stays = last == xp.arange(ids.size).reshape(ids.shape)
    xp.copyto(values, xp.where(stays, xp.take_along_axis(image, ids, 1), 0))
