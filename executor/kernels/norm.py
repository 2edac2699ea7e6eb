"""Kernels of `fluid.ops.norm`."""

from __future__ import annotations

from functools import partial
from math import prod
from typing import Any

from fluid.ops.norm import channel_axis, dropout_scale, spectral_matrix, uses_global_stats

from .collective import average
from .elementwise import scalar
from .manipulation import flattened, ranges, write_wanted
from .portable import LONG, copy
from .sums import ROWS, sum_over
from .table import Call, OutArray, Slots, fill, kernel, prepared


def sum_of_products(xp: Any, subscripts: str, left: Any, right: Any, out: Any) -> Call:
    """The call of ``einsum`` into an array; cupy's takes none to write to."""
    if xp.__name__ == "numpy":
        return partial(xp.einsum, subscripts, left, right, out=out)
    return partial(_einsum, xp, subscripts, left, right, out)


def _einsum(xp: Any, subscripts: str, left: Any, right: Any, out: OutArray) -> None:
    xp.copyto(out, xp.einsum(subscripts, left, right))


def sums_of_products(xp: Any, left: Any, right: Any, out: Any) -> Call:
    """The call that gives, for each row of two arrays, the sum of their products."""
    if xp.__name__ == "numpy" and left.dtype == right.dtype == out.dtype:
        return partial(xp.vecdot, left, right, out)
    return sum_of_products(xp, "...c,...c->...", left, right, out)


_DEFAULT_BUFFER, _BUFFER = 8192, 512
"""The buffer size of numpy's ufuncs, in elements, for operands that they have to copy."""


def by_row(xp: Any, width: int, steps: list[Call]) -> list[Call]:
    """Wrap calls that combine rows of `width` elements with one number each.

    If two rows fit numpy's buffer, numpy copies and combines them together, which takes twice as long as row by row unless rows
    are short. A smaller buffer for these calls prevents that.
    """
    if xp.__name__ != "numpy" or not 2 * _BUFFER // 3 < width <= _DEFAULT_BUFFER // 2:
        return steps
    return [partial(xp.setbufsize, _BUFFER), *steps, partial(xp.setbufsize, _DEFAULT_BUFFER)]


# --------------------------------------------------------------------------------------------------------- batch_norm
_PART = 1 << 17
"""Elements of images that are taken at a time."""


class _Channels:
    """Views arrays of X's shape as [rows, channels, places], or as [rows, channels] if the channels come last."""

    def __init__(self, xp: Any, scratch: Any, shape: tuple[int, ...], data_layout: str, dtype: Any) -> None:
        axis = channel_axis(data_layout, len(shape))
        self.xp, self.scratch, self.dtype = xp, scratch, dtype
        self.channels = shape[axis]
        self.is_last = axis == len(shape) - 1
        self.shape = (prod(shape[:-1]), self.channels) if self.is_last else (*shape[:2], prod(shape[2:]))
        self.count = max(prod(shape) // max(self.channels, 1), 1)

    def view(self, array: Any) -> Any:
        return array.reshape(self.shape)

    def spread(self, statistic: Any) -> Any:
        """Numbers by channel, shaped to be combined with views."""
        return statistic if self.is_last else statistic[:, None]

    def parts(self) -> list[tuple[slice, slice]]:
        """Indices of parts of views, of rows and channels, that stay in a near cache."""
        rows, channel_size = self.shape[0], prod(self.shape[1:])
        channels = [(0, self.channels)] if self.is_last else ranges(self.xp, self.channels, self.shape[2], _PART)
        if len(channels) == 1:
            return [(slice(*part), slice(None)) for part in ranges(self.xp, rows, channel_size, _PART)]
        return [(slice(row, row + 1), slice(*part)) for row in range(rows) for part in channels]

    def chain(self, part: tuple[slice, slice], out: Any, *calls: tuple[Any, Any, Any]) -> list[Call]:
        """Calls of binary ufuncs in order, into a part of `out`. Each operand is a view, numbers by channel, or None for the
        current contents of `out`."""
        steps: list[Call] = []
        for ufunc, *operands in calls:
            left, right = (
                out[part] if operand is None else operand[part] if operand.ndim > 1 else self.spread(operand[part[1]])
                for operand in operands
            )
            steps.append(partial(ufunc, left, right, out[part]))
        return steps

    def chained(self, out: Any, *calls: tuple[Any, Any, Any]) -> list[Call]:
        """The calls of `chain` for all parts."""
        return by_row(self.xp, self.shape[-1], [step for part in self.parts() for step in self.chain(part, out, *calls)])

    def sums(self, left: Any, right: Any, out: Any) -> list[Call]:
        """Calls for the sums by channel of `left`, or of ``left * right``."""
        xp = self.xp
        if right is None:
            return sum_over(xp, left, (0,) if self.is_last else (0, 2), out, self.scratch)
        if self.is_last:
            return self._sums_of_rows(left, right, out)
        row_sums = self.scratch(left.shape[:2], out.dtype)
        return [
            sum_of_products(xp, "rcp,rcp->rc", left, right, row_sums),
            *sum_over(xp, row_sums, (0,), out, self.scratch),
        ]

    def _sums_of_rows(self, left: Any, right: Any, out: Any) -> list[Call]:
        """Calls for the sums over all rows of ``left * right``, block by block: numpy adds row after row and rounds each time."""
        xp, channels = self.xp, self.channels
        blocks, remaining = divmod(len(left), ROWS) if xp.__name__ == "numpy" else (0, len(left))
        if not blocks:
            return [sum_of_products(xp, "rc,rc->c", left, right, out)]
        sums, end = self.scratch((blocks + bool(remaining), channels), out.dtype), blocks * ROWS
        left_blocks, right_blocks = (array[:end].reshape(blocks, ROWS, channels) for array in (left, right))
        steps = [sum_of_products(xp, "brc,brc->bc", left_blocks, right_blocks, sums[:blocks])]
        if remaining:
            steps.append(sum_of_products(xp, "rc,rc->c", left[end:], right[end:], sums[blocks]))
        return [*steps, *sum_over(xp, sums, (0,), out, self.scratch)]

    def products_with_centered(self, x: Any, mean: Any, operand: Any, centered: Any, out: Any) -> list[Call]:
        """Calls for ``centered = x - mean``, and for the sums by channel of its products with `operand`."""
        xp = self.xp
        if self.is_last:
            return [partial(xp.subtract, x, mean, centered), *self.sums(operand, centered, out)]
        row_sums = self.scratch(x.shape[:2], out.dtype)
        steps: list[Call] = []
        for part in self.parts():
            steps += self.chain(part, centered, (xp.subtract, x, mean))
            steps.append(sums_of_products(xp, operand[part], centered[part], row_sums[part]))
        return [*by_row(xp, self.shape[-1], steps), *sum_over(xp, row_sums, (0,), out, self.scratch)]


@prepared("batch_norm", "sync_batch_norm", inplace={"MeanOut": "Mean", "VarianceOut": "Variance"})
def batch_norm(
    xp: Any,
    scratch: Any,
    X: Any,
    Scale: Any,
    Bias: Any,
    Mean: Any,
    Variance: Any,
    MomentumTensor: Any,
    is_test: bool,
    momentum: float,
    epsilon: float,
    data_layout: str,
    use_global_stats: bool,
    trainable_statistics: bool,
    attrs: Slots,
    Y: Any,
    MeanOut: Any,
    VarianceOut: Any,
    SavedMean: Any,
    SavedVariance: Any,
) -> list[Call]:
    c = _Channels(xp, scratch, X.shape, data_layout, X.dtype)
    mean = scratch(Mean.shape, Mean.dtype) if SavedMean is None else SavedMean
    inverse = scratch(Variance.shape, Variance.dtype) if SavedVariance is None else SavedVariance
    x, y = c.view(X), c.view(scratch(X.shape, X.dtype) if Y is None else Y)
    is_global = uses_global_stats(is_test, use_global_stats, trainable_statistics)
    variance = scratch(Variance.shape, Variance.dtype)
    if is_global:
        steps = [partial(xp.copyto, mean, Mean), *_inverse_deviation(xp, Variance, epsilon, inverse)]
    else:
        workers = attrs.get("nranks")  # of sync_batch_norm
        steps = [
            *c.sums(x, None, mean),
            partial(xp.divide, mean, c.count, mean),
            *([] if workers is None else [partial(average, xp, workers, mean)]),
            partial(xp.subtract, x, c.spread(mean), y),
            *c.sums(y, y, variance),
            partial(xp.divide, variance, c.count, variance),
            *([] if workers is None else [partial(average, xp, workers, variance)]),
            *_inverse_deviation(xp, variance, epsilon, inverse),
        ]
    scale = inverse
    if Scale is not None:
        scale = scratch(Scale.shape, Variance.dtype)
        steps.append(partial(xp.multiply, inverse, Scale, scale))
    calls = [(xp.subtract, x, mean)] if is_global else []
    calls += [(xp.multiply, None, scale), *([] if Bias is None else [(xp.add, None, Bias)])]
    steps += c.chained(y, *calls)
    for running, new, out in ((Mean, mean, MeanOut), (Variance, variance, VarianceOut)):
        if out is None:
            continue
        steps += copy(xp, running, out)
        if MomentumTensor is not None and not is_global:
            steps.append(partial(_move, out, new, MomentumTensor))
        elif not is_global:
            share = scratch(new.shape, new.dtype)
            steps += [partial(xp.multiply, out, momentum, out), partial(xp.multiply, new, 1.0 - momentum, share)]
            steps.append(partial(xp.add, out, share, out))
    return steps


def _move(running: OutArray, new: Any, momentum: Any) -> None:
    running *= momentum
    running += new * (1 - momentum)


@prepared("batch_norm_grad")
def batch_norm_grad(
    xp: Any,
    scratch: Any,
    X: Any,
    Scale: Any,
    SavedMean: Any,
    SavedVariance: Any,
    dY: Any,
    dSavedMean: Any,
    dSavedVariance: Any,
    is_test: bool,
    data_layout: str,
    use_global_stats: bool,
    trainable_statistics: bool,
    dX: Any,
    dScale: Any,
    dBias: Any,
) -> list[Call]:
    c = _Channels(xp, scratch, X.shape, data_layout, X.dtype)
    by_channel = partial(scratch, SavedMean.shape, SavedMean.dtype)
    d_scale, d_bias = dScale if dScale is not None else by_channel(), dBias if dBias is not None else by_channel()
    x, d_y = c.view(X), c.view(dY)
    d_x = c.view(dX if dX is not None else scratch(X.shape, X.dtype))
    is_global = uses_global_stats(is_test, use_global_stats, trainable_statistics)
    inverse = SavedVariance
    steps: list[Call] = []
    if dBias is not None or not is_global:
        steps += c.sums(d_y, None, d_bias)
    if dScale is not None or not is_global:
        steps += c.products_with_centered(x, SavedMean, d_y, d_x, d_scale)
        steps.append(partial(xp.multiply, d_scale, inverse, d_scale))
    if dX is None:
        return steps
    scale = inverse
    if Scale is not None:
        scale = by_channel()
        steps.append(partial(xp.multiply, Scale, inverse, scale))
    if is_global:
        return steps + c.chained(d_x, (xp.multiply, d_y, scale))
    # dX = scale * (dY - centered * slope - shift), with slope = dScale * inverse / count and shift = dBias / count
    slope, shift = by_channel(), by_channel()
    steps += [
        partial(xp.multiply, d_scale, inverse, slope),
        partial(xp.divide, slope, c.count, slope),
        partial(xp.divide, d_bias, c.count, shift),
    ]
    calls = ((xp.multiply, None, slope), (xp.subtract, d_y, None), (xp.subtract, None, shift), (xp.multiply, None, scale))
    steps += c.chained(d_x, *calls)
    # The gradient of X through the saved mean and inverse deviation, if an op reads these.
    if dSavedMean is not None:
        steps.append(partial(_through_mean, c.spread(dSavedMean), c.count, d_x))
    if dSavedVariance is not None:
        mean, inverse, gradient = (c.spread(statistic) for statistic in (SavedMean, SavedVariance, dSavedVariance))
        steps.append(partial(_through_deviation, x, mean, inverse, gradient, c.count, d_x))
    return steps


def _through_mean(gradient: Any, count: int, out: OutArray) -> None:
    out += gradient / count


def _through_deviation(x: Any, mean: Any, inverse: Any, gradient: Any, count: int, out: OutArray) -> None:
    out -= (x - mean) * (gradient * inverse**3 / count)


# --------------------------------------------------------------------------------------------------------- layer_norm
_CORRECTED_WIDTH = 256
"""The width of rows beyond which the mean is corrected."""


def _product(xp: Any, left: Any, right: Any, out: Any) -> Call:
    """The call of ``dot`` of a matrix and a vector, in this order or the other, into an array."""
    if left.dtype == right.dtype == out.dtype:
        return partial(xp.dot, left, right, out)
    return partial(_dot, xp, left, right, out)


def _dot(xp: Any, left: Any, right: Any, out: OutArray) -> None:
    xp.copyto(out, xp.dot(left, right), casting="same_kind")


def _row_sums(xp: Any, rows: Any, ones: Any, out: Any) -> Call:
    """The call that sums each row: by BLAS if rows are short, else pairwise, which rounds less."""
    if xp.__name__ == "numpy" and len(ones) <= LONG:
        return _product(xp, rows, ones, out)
    return partial(xp.add.reduce, rows, -1, out.dtype, out)


def _row_means(xp: Any, rows: Any, shares: Any, out: Any) -> list[Call]:
    """The calls that write the mean of each row; `shares` are ones over the width."""
    if xp.__name__ == "numpy":
        return [_product(xp, rows, shares, out)]
    return [_row_sums(xp, rows, shares, out), partial(xp.divide, out, scalar(xp, max(len(shares), 1), out.dtype), out)]


def _centered_rows(xp: Any, rows: Any, shares: Any, mean: Any, residual: Any, out: Any) -> list[Call]:
    """The calls that write the mean of each row, and the rows less their means.

    BLAS adds many terms to each of its partial sums, and rounds terms that are all alike in the same direction. In long rows, the
    mean of the centered rows therefore corrects the mean: a row that hardly varies divides its error by a small deviation.
    """
    steps = [*_row_means(xp, rows, shares, mean), partial(xp.subtract, rows, mean[:, None], out)]
    if xp.__name__ == "numpy" and len(shares) > _CORRECTED_WIDTH:
        steps += [
            *_row_means(xp, out, shares, residual),
            partial(xp.add, mean, residual, mean),
            partial(xp.subtract, rows, mean[:, None], out),
        ]
    return steps


def _weighted_row_sums(xp: Any, rows: Any, weights: Any, buffer: Any, out: Any) -> list[Call]:
    """The calls that sum each row times weights: by BLAS without a buffer for the products, else pairwise, which rounds less."""
    if buffer is None:
        return [_product(xp, rows, weights, out)]
    terms = buffer[: len(rows)]
    return [partial(xp.multiply, rows, weights, terms), partial(xp.add.reduce, terms, -1, out.dtype, out)]


def _inverse_deviation(xp: Any, variance: Any, epsilon: float, out: Any) -> list[Call]:
    number = partial(scalar, xp, dtype=out.dtype)
    return [
        partial(xp.add, variance, number(epsilon), out),
        partial(xp.sqrt, out, out),
        partial(xp.divide, number(1.0), out, out),
    ]


def _tiled(xp: Any, scratch: Any, row: Any, parts: list[tuple[int, int]]) -> tuple[list[Call], Any]:
    """Repeat a row for each row of a part; returns the calls and the array. numpy combines arrays of equal shapes twice as fast;
    for a single part, that does not pay."""
    if row is None or len(parts) == 1:
        return [], row
    tile = scratch((parts[0][1], row.size), row.dtype)
    return [partial(xp.copyto, tile, row)], tile


@prepared("layer_norm")
def layer_norm(
    xp: Any, scratch: Any, X: Any, Scale: Any, Bias: Any, epsilon: float, begin_norm_axis: int, Y: Any, Mean: Any, Variance: Any
) -> list[Call]:
    rows = prod(X.shape[:begin_norm_axis])
    if not X.size:
        return [fill(xp, array, 0) for array in (Mean, Variance) if array is not None]
    x = X.reshape(rows, -1)
    width = x.shape[1]
    y = (Y if Y is not None else scratch(X.shape, X.dtype)).reshape(x.shape)
    dtype = X.dtype if Mean is None else Mean.dtype
    mean = Mean if Mean is not None else scratch((rows,), dtype)
    variance = Variance if Variance is not None else scratch((rows,), dtype)
    inverse, shares = scratch((rows,), dtype), xp.full(width, 1 / width, dtype)
    parts = ranges(xp, rows, width)
    (scaling, scale), (shifting, bias) = (_tiled(xp, scratch, row, parts) for row in (Scale, Bias))
    steps = scaling + shifting
    for start, end in parts:
        out = y[start:end]
        steps += [
            *_centered_rows(xp, x[start:end], shares, mean[start:end], inverse[start:end], out),
            sums_of_products(xp, out, out, variance[start:end]),
            partial(xp.divide, variance[start:end], scalar(xp, width, dtype), variance[start:end]),
            *_inverse_deviation(xp, variance[start:end], epsilon, inverse[start:end]),
            partial(xp.multiply, out, inverse[start:end, None], out),
        ]
        if Scale is not None:
            steps.append(partial(xp.multiply, out, scale[: end - start] if scaling else scale, out))
        if Bias is not None:
            steps.append(partial(xp.add, out, bias[: end - start] if shifting else bias, out))
    return by_row(xp, width, steps)


@prepared("layer_norm_grad")
def layer_norm_grad(
    xp: Any, scratch: Any, X: Any, Scale: Any, Mean: Any, Variance: Any, dY: Any, epsilon: float, dX: Any, dScale: Any, dBias: Any
) -> list[Call]:
    rows = Mean.size
    if not X.size:
        return [fill(xp, array, 0) for array in (dScale, dBias) if array is not None]
    x, d_y = X.reshape(rows, -1), dY.reshape(rows, -1)
    width = x.shape[1]
    d_x = dX.reshape(x.shape) if dX is not None else None
    inverse, average, slope = (scratch((rows,), Mean.dtype) for _ in range(3))
    shares = xp.full(width, 1 / width, Mean.dtype) if Scale is None else scratch((width,), Mean.dtype)
    parts = ranges(xp, rows, max(width, 32))  # sums over more than 1,024 rows at a time lose digits
    longest = parts[0][1]
    ones = xp.ones(longest, X.dtype)
    buffers = [scratch((longest, width), X.dtype) for _ in range(2)]
    terms = scratch((longest, width), X.dtype) if xp.__name__ == "numpy" and width > LONG else None
    sums = scratch((2, width), X.dtype)
    steps, scale = _tiled(xp, scratch, Scale if dX is not None else None, parts)
    if Scale is not None:
        steps.append(partial(xp.divide, Scale, width, shares))

    def add_up(weights: Any, source: Any, target: Any, partial_sum: Any, is_first: bool) -> None:
        steps.append(_product(xp, weights, source, target if is_first else partial_sum))
        if not is_first:
            steps.append(partial(xp.add, target, partial_sum, target))

    for start, end in parts:
        # With c = x - mean: dX = (s - mean(s) - c * mean(s * c) / deviation^2) / deviation, where s = dY * Scale.
        centered, product = (buffer[: end - start] for buffer in buffers)
        reciprocal, mean, along, gradient = inverse[start:end], average[start:end], slope[start:end], d_y[start:end]
        if dBias is not None and xp.__name__ != "numpy":  # there is one part, of any number of rows
            steps.append(partial(xp.add.reduce, gradient, 0, dBias.dtype, dBias))
        elif dBias is not None:
            add_up(ones[: end - start], gradient, dBias, sums[0], start == 0)
        if dScale is None and d_x is None:
            continue
        steps += [
            *_inverse_deviation(xp, Variance[start:end], epsilon, reciprocal),
            partial(xp.subtract, x[start:end], Mean[start:end, None], centered),
            partial(xp.multiply, gradient, centered, product),
        ]
        if dScale is not None:
            add_up(reciprocal, product, dScale, sums[1], start == 0)
        if d_x is None:
            continue
        out = d_x[start:end]
        steps += [
            *_weighted_row_sums(xp, gradient, shares, terms, mean),
            *_weighted_row_sums(xp, product, shares, terms, along),
            partial(xp.multiply, along, reciprocal, along),
            partial(xp.multiply, along, reciprocal, along),
            partial(xp.multiply, centered, along[:, None], centered),
        ]
        if Scale is not None:
            steps.append(partial(xp.multiply, gradient, scale[: end - start] if len(parts) > 1 else scale, product))
        steps += [
            partial(xp.subtract, product if Scale is not None else gradient, mean[:, None], out),
            partial(xp.subtract, out, centered, out),
            partial(xp.multiply, out, reciprocal[:, None], out),
        ]
    return by_row(xp, width, steps)


# ----------------------------------------------------------------------------------------------- instance and group norm
class _Groups:
    """Images as [rows, channels, places], with one row for each group of channels of each image, taken some rows at a time."""

    def __init__(self, xp: Any, scratch: Any, X: Any, groups: int, channel: int, dtype: Any) -> None:
        self.xp, self.scratch, self.dtype, self.groups, self.channel = xp, scratch, dtype, groups, channel
        self.channels_in_group = X.shape[channel] // max(groups, 1)
        self.rows = len(X) * groups
        self.places = prod(X.shape[2:] if channel == 1 else X.shape[1:-1])
        self.width = self.channels_in_group * self.places
        self.parts = ranges(xp, self.rows, self.width, _PART)

    def by_channel(self) -> Any:
        return self.scratch((self.rows, self.channels_in_group), self.dtype)

    def repeated(self, by_channel: Any, number: float) -> tuple[Call, Any]:
        """The call that copies the channels' numbers to each row (`number` if there are none), and the array of the rows."""
        rows = self.by_channel()
        if by_channel is None:
            return fill(self.xp, rows, number), rows
        source = by_channel.reshape(self.groups, self.channels_in_group)
        return partial(
            self.xp.copyto, rows.reshape(self.rows // max(self.groups, 1), self.groups, self.channels_in_group), source
        ), rows

    def as_rows(self, array: Any, back: bool = False) -> tuple[list[Call], Any]:
        """View an array as rows, with the calls that copy it there (or `back`) if the channels come last."""
        if self.channel == 1:
            return [], array.reshape(self.rows, self.channels_in_group, self.places)
        rows = self.scratch((len(array), array.shape[-1], self.places), array.dtype)
        by_channel = array.reshape(len(array), self.places, array.shape[-1]).transpose(0, 2, 1)
        step = partial(self.xp.copyto, *((by_channel, rows) if back else (rows, by_channel)))
        return [step], rows.reshape(self.rows, self.channels_in_group, self.places)


def _normalize(images: _Groups, X: Any, Scale: Any, Bias: Any, epsilon: float, Y: Any, mean: Any, variance: Any) -> list[Call]:
    """Calls that write X, normalized by row, then scaled by channel; `mean` and `variance` are flat."""
    xp, scratch, width = images.xp, images.scratch, images.width
    inverse, shares = scratch(mean.shape, images.dtype), xp.full(width, 1 / max(width, 1), images.dtype)
    before, x = images.as_rows(X)
    after, y = images.as_rows(Y if Y is not None else scratch(X.shape, X.dtype), back=True)
    (scaling, factor), (shifting, bias) = images.repeated(Scale, 1), images.repeated(Bias, 0)
    steps = [*before, scaling, shifting]
    for start, end in images.parts:
        here, out = slice(start, end), y[start:end]
        flat, source = out.reshape(end - start, width), x[start:end].reshape(end - start, width)
        steps += [
            *_centered_rows(xp, source, shares, mean[here], inverse[here], flat),
            sums_of_products(xp, flat, flat, variance[here]),
            partial(xp.divide, variance[here], scalar(xp, max(width, 1), variance.dtype), variance[here]),
            *_inverse_deviation(xp, variance[here], epsilon, inverse[here]),
            partial(xp.multiply, factor[here], inverse[here, None], factor[here]),
            partial(xp.multiply, out, factor[here, :, None], out),
        ]
        if Bias is not None:
            steps.append(partial(xp.add, out, bias[here, :, None], out))
    return by_row(xp, images.places, steps + after)


def _normalize_back(
    images: _Groups, X: Any, Scale: Any, mean: Any, inverse: Any, dY: Any, dX: Any, dScale: Any, dBias: Any
) -> list[Call]:
    """Calls for the gradients; `mean` and `inverse`, one over the deviation, are flat."""
    xp, scratch = images.xp, images.scratch
    (before, x), (coming, d_y) = images.as_rows(X), images.as_rows(dY)
    after, d_x = images.as_rows(dX if dX is not None else scratch(X.shape, X.dtype), back=True)
    scaling, factor = images.repeated(Scale, 1)
    shares, of_scale, of_bias = (images.by_channel() for _ in range(3))
    squared, along, average = (scratch(mean.shape, images.dtype) for _ in range(3))
    ones = xp.ones(images.places, images.dtype)
    spare = scratch((images.parts[0][1] if images.parts else 0, *x.shape[1:]), X.dtype)
    steps: list[Call] = [
        *before,
        *coming,
        scaling,
        partial(xp.multiply, factor, inverse[:, None], factor),
        partial(xp.divide, factor, max(images.width, 1), shares),
        partial(xp.multiply, inverse, inverse, squared),
    ]
    for start, end in images.parts:
        # With c = x - mean: dX = dY * factor - c * sum(dY * c * shares) / deviation^2 - sum(dY * shares).
        here, out, centered, count = (
            slice(start, end),
            d_x[start:end],
            spare[: end - start],
            (end - start) * images.channels_in_group,
        )
        by_place = (count, images.places)
        steps += [
            partial(xp.subtract, x[here], mean[here, None, None], centered),
            _row_sums(xp, d_y[here].reshape(by_place), ones, of_bias[here].reshape(count)),
            sums_of_products(xp, d_y[here].reshape(by_place), centered.reshape(by_place), of_scale[here].reshape(count)),
        ]
        if dX is not None:
            steps += [
                sums_of_products(xp, of_bias[here], shares[here], average[here]),
                sums_of_products(xp, of_scale[here], shares[here], along[here]),
                partial(xp.multiply, along[here], squared[here], along[here]),
                partial(xp.multiply, d_y[here], factor[here, :, None], out),
                partial(xp.multiply, centered, along[here, None, None], centered),
                partial(xp.subtract, out, centered, out),
                partial(xp.subtract, out, average[here, None, None], out),
            ]
    if dX is not None:
        steps += after
    if dScale is not None:
        steps.append(partial(xp.multiply, of_scale, inverse[:, None], of_scale))
        steps += sum_over(xp, of_scale.reshape(len(X), dScale.size), (0,), dScale, scratch)
    if dBias is not None:
        steps += sum_over(xp, of_bias.reshape(len(X), dBias.size), (0,), dBias, scratch)
    return by_row(xp, images.places, steps)


@prepared("instance_norm")
def instance_norm(
    xp: Any, scratch: Any, X: Any, Scale: Any, Bias: Any, epsilon: float, Y: Any, SavedMean: Any, SavedVariance: Any
) -> list[Call]:
    dtype = X.dtype if SavedMean is None else SavedMean.dtype
    images = _Groups(xp, scratch, X, X.shape[1], 1, dtype)
    mean, variance = SavedMean if SavedMean is not None else scratch((images.rows,), dtype), scratch((images.rows,), dtype)
    steps = _normalize(images, X, Scale, Bias, epsilon, Y, mean, variance)
    return steps if SavedVariance is None else steps + _inverse_deviation(xp, variance, epsilon, SavedVariance)


@prepared("instance_norm_grad")
def instance_norm_grad(
    xp: Any, scratch: Any, X: Any, Scale: Any, SavedMean: Any, SavedVariance: Any, dY: Any, dX: Any, dScale: Any, dBias: Any
) -> list[Call]:
    images = _Groups(xp, scratch, X, X.shape[1], 1, SavedMean.dtype)
    return _normalize_back(images, X, Scale, SavedMean, SavedVariance, dY, dX, dScale, dBias)


@prepared("group_norm")
def group_norm(
    xp: Any,
    scratch: Any,
    X: Any,
    Scale: Any,
    Bias: Any,
    epsilon: float,
    groups: int,
    data_layout: str,
    Y: Any,
    Mean: Any,
    Variance: Any,
) -> list[Call]:
    dtype = X.dtype if Mean is None else Mean.dtype
    images = _Groups(xp, scratch, X, groups, channel_axis(data_layout, X.ndim), dtype)
    mean, variance = (scratch((images.rows,), dtype) if out is None else out.reshape(-1) for out in (Mean, Variance))
    return _normalize(images, X, Scale, Bias, epsilon, Y, mean, variance)


@prepared("group_norm_grad")
def group_norm_grad(
    xp: Any,
    scratch: Any,
    X: Any,
    Scale: Any,
    Mean: Any,
    Variance: Any,
    dY: Any,
    epsilon: float,
    groups: int,
    data_layout: str,
    dX: Any,
    dScale: Any,
    dBias: Any,
) -> list[Call]:
    images = _Groups(xp, scratch, X, groups, channel_axis(data_layout, X.ndim), Mean.dtype)
    inverse = scratch((images.rows,), Mean.dtype)
    steps = _normalize_back(images, X, Scale, Mean.reshape(-1), inverse, dY, dX, dScale, dBias)
    return _inverse_deviation(xp, Variance.reshape(-1), epsilon, inverse) + steps


# -------------------------------------------------------------------------------------- by neighbours, by data, by matrix
@prepared("lrn")
def lrn(
    xp: Any, scratch: Any, X: Any, n: int, k: float, alpha: float, beta: float, data_format: str, Out: Any, MidOut: Any
) -> list[Call]:
    channel = channel_axis(data_format, X.ndim)
    channels, before = X.shape[channel], (n - 1) // 2
    squares = scratch(X.shape, X.dtype)
    sums = MidOut if MidOut is not None else scratch(X.shape, X.dtype)
    steps: list[Call] = [partial(xp.multiply, X, X, squares), fill(xp, sums, 0)]
    for tap in range(max(0, before - channels + 1), min(n, before + channels)):  # other taps lie outside of all channels
        start, end = max(0, before - tap), min(channels, channels + before - tap)
        here = (slice(None),) * channel + (slice(start, end),)
        window = (slice(None),) * channel + (slice(start + tap - before, end + tap - before),)
        steps.append(partial(xp.add, sums[here], squares[window], sums[here]))
    steps += [partial(xp.multiply, sums, alpha, sums), partial(xp.add, sums, k, sums)]
    if Out is None:
        return steps
    return [*steps, partial(xp.power, sums, -beta, squares), partial(xp.multiply, X, squares, Out)]


@prepared("affine_channel", inplace={"Out": "X"})
def affine_channel(xp: Any, X: Any, Scale: Any, Bias: Any, data_layout: str, Out: Any) -> list[Call]:
    channel = channel_axis(data_layout, X.ndim)
    scale, bias = (by.reshape([-1 if axis == channel else 1 for axis in range(X.ndim)]) for by in (Scale, Bias))
    return [partial(xp.multiply, X, scale, Out), partial(xp.add, Out, bias, Out)]


def _spectral_vectors(xp: Any, Weight: Any, U: Any, V: Any, dim: int, rounds: int, eps: float) -> tuple[Any, Any, Any]:
    """Weight as a matrix, and its left and right vector after some rounds of power iteration."""
    matrix = flattened(Weight.transpose(spectral_matrix(Weight.ndim, dim)), 1)
    u, v = U, V
    for _ in range(rounds):
        v = matrix.T @ u
        v = v / (xp.sqrt(xp.square(v).sum()) + eps)
        u = matrix @ v
        u = u / (xp.sqrt(xp.square(u).sum()) + eps)
    return matrix, u, v


@kernel("spectral_norm")
def spectral_norm(xp: Any, Weight: Any, U: Any, V: Any, dim: int, power_iters: int, eps: float, Out: Any) -> None:
    matrix, u, v = _spectral_vectors(xp, Weight, U, V, dim, power_iters, eps)
    xp.divide(Weight, u @ (matrix @ v), out=Out)


@kernel("spectral_vectors")
def spectral_vectors(xp: Any, Weight: Any, U: Any, V: Any, dim: int, power_iters: int, eps: float, UOut: Any, VOut: Any) -> None:
    _, u, v = _spectral_vectors(xp, Weight, U, V, dim, power_iters, eps)
    write_wanted((UOut, u), (VOut, v))


# ------------------------------------------------------------------------------------------------------------ dropout
def _scaled(xp: Any, source: Any, scale: float, out: Any) -> list[Call]:
    return copy(xp, source, out) if scale == 1.0 else [partial(xp.multiply, source, scale, out)]


@prepared("dropout", inplace={"Out": "X"})
def dropout(
    xp: Any,
    scratch: Any,
    rng: Any,
    X: Any,
    Seed: Any,
    dropout_prob: float,
    dropout_implementation: str,
    is_test: bool,
    Out: Any,
    Mask: Any,
) -> list[Call]:
    scale = dropout_scale(dropout_prob, dropout_implementation, is_test)
    return _dropped(xp, scratch, rng, X, Seed, X.shape, dropout_prob, scale, is_test, Out, Mask)


def _dropped(
    xp: Any,
    scratch: Any,
    rng: Any,
    X: Any,
    Seed: Any,
    shape: tuple[int, ...],
    dropout_prob: float,
    scale: float,
    is_test: bool,
    Out: Any,
    Mask: Any,
) -> list[Call]:
    """Calls that draw a mask of a shape that broadcasts with X, and multiply X by the mask and `scale`."""
    if is_test:
        return [*([] if Mask is None else [fill(xp, Mask, 1)]), *([] if Out is None else _scaled(xp, X, scale, Out))]
    mask = Mask if Mask is not None else scratch(shape, xp.dtype("uint8"))
    draws = scratch(shape, xp.dtype("float32"))
    steps: list[Call] = [partial(_draw, xp, rng, Seed, draws), partial(xp.greater_equal, draws, dropout_prob, mask)]
    if Out is None:
        return steps
    return [*steps, partial(xp.multiply, X, mask, Out), *([] if scale == 1.0 else [partial(xp.multiply, Out, scale, Out)])]


def _draw(xp: Any, rng: Any, seed: Any, out: OutArray) -> None:
    """Uniform numbers, drawn by the seed in a tensor, if there is one."""
    generator = rng() if seed is None else xp.random.default_rng(int(seed.reshape(-1)[0]))
    generator.random(out.shape, dtype=out.dtype, out=out)  # cupy draws one number for all where no size is given


@prepared("dropout_grad", inplace={"dX": "dOut"})
def dropout_grad(
    xp: Any, Mask: Any, dOut: Any, dropout_prob: float, dropout_implementation: str, is_test: bool, dX: Any
) -> list[Call]:
    scale = dropout_scale(dropout_prob, dropout_implementation, is_test)
    if is_test:
        return _scaled(xp, dOut, scale, dX)
    return [partial(xp.multiply, dOut, Mask, dX), *([] if scale == 1.0 else [partial(xp.multiply, dX, scale, dX)])]


@prepared("dropout_nd")
def dropout_nd(
    xp: Any,
    scratch: Any,
    rng: Any,
    X: Any,
    Seed: Any,
    dropout_prob: float,
    dropout_implementation: str,
    is_test: bool,
    axis: list[int],
    Out: Any,
    Mask: Any,
) -> list[Call]:
    alone = {place % X.ndim for place in axis} or set(range(X.ndim))
    shape = tuple(size if place in alone else 1 for place, size in enumerate(X.shape))
    scale = dropout_scale(dropout_prob, dropout_implementation, is_test)
    return _dropped(xp, scratch, rng, X, Seed, shape, dropout_prob, scale, is_test, Out, Mask)
