"""Kernels of `fluid.ops.norm`."""

from __future__ import annotations

from functools import partial
from math import prod
from typing import Any

from fluid.ops.norm import channel_axis, dropout_scale, spectral_matrix, uses_global_stats

from .manipulation import copy, ranges
from .table import Step, kernel, prepared


def sum_of_products(xp: Any, subscripts: str, left: Any, right: Any, out: Any) -> Step:
    """The call of ``einsum`` into an array; cupy's takes none to write to."""
    if xp.__name__ == "numpy":
        return partial(xp.einsum, subscripts, left, right, out=out)
    return lambda: xp.copyto(out, xp.einsum(subscripts, left, right))


# --------------------------------------------------------------------------------------------------------- batch_norm
class _Channels:
    """Arrays of X's shape as [rows, channels, places], or [rows, channels] where the channels come last."""

    def __init__(self, xp: Any, scratch: Any, shape: tuple[int, ...], data_layout: str, dtype: Any) -> None:
        axis = channel_axis(data_layout, len(shape))
        self.xp, self.scratch, self.dtype = xp, scratch, dtype
        self.channels = shape[axis]
        self.is_last = axis == len(shape) - 1
        self.shape = (prod(shape[:-1]), self.channels) if self.is_last else (*shape[:2], prod(shape[2:]))
        self.count = max(prod(shape) // max(self.channels, 1), 1)

    def view(self, array: Any) -> Any:
        return array if array is None else array.reshape(self.shape)

    def spread(self, statistic: Any) -> Any:
        """Numbers by channel, shaped to be combined with views."""
        return statistic if self.is_last else statistic[:, None]

    def sums(self, left: Any, right: Any, out: Any) -> list[Step]:
        """Calls for the sums by channel of `left`, times `right` if that is given."""
        xp = self.xp
        if right is None:
            return [partial(xp.add.reduce, left, 0 if self.is_last else (0, 2), None, out)]
        if self.is_last:
            return [sum_of_products(xp, "rc,rc->c", left, right, out)]
        by_row = self.scratch(left.shape[:2], out.dtype)
        return [sum_of_products(xp, "rcp,rcp->rc", left, right, by_row), partial(xp.add.reduce, by_row, 0, None, out)]


@prepared("batch_norm", inplace={"MeanOut": "Mean", "VarianceOut": "Variance"})
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
    Y: Any,
    MeanOut: Any,
    VarianceOut: Any,
    SavedMean: Any,
    SavedVariance: Any,
) -> list[Step]:
    c = _Channels(xp, scratch, X.shape, data_layout, X.dtype)
    mean = scratch(Mean.shape, Mean.dtype) if SavedMean is None else SavedMean
    inverse = scratch(Variance.shape, Variance.dtype) if SavedVariance is None else SavedVariance
    x, y = c.view(X), c.view(Y)
    is_global = uses_global_stats(is_test, use_global_stats, trainable_statistics)
    if Y is None:
        y = c.view(scratch(X.shape, X.dtype))
    steps: list[Step] = []
    if is_global:
        steps += [
            partial(xp.copyto, mean, Mean),
            partial(xp.add, Variance, epsilon, inverse),
            partial(xp.sqrt, inverse, inverse),
            partial(xp.divide, 1, inverse, inverse),
        ]
    variance = scratch(Variance.shape, Variance.dtype)
    if not is_global:
        steps += [*c.sums(x, None, mean), partial(xp.divide, mean, c.count, mean)]
    steps.append(partial(xp.subtract, x, c.spread(mean), y))
    if not is_global:
        steps += [
            *c.sums(y, y, variance),
            partial(xp.divide, variance, c.count, variance),
            partial(xp.add, variance, epsilon, inverse),
            partial(xp.sqrt, inverse, inverse),
            partial(xp.divide, 1, inverse, inverse),
        ]
    scale = inverse
    if Scale is not None:
        scale = scratch(Scale.shape, Variance.dtype)
        steps.append(partial(xp.multiply, inverse, Scale, scale))
    steps.append(partial(xp.multiply, y, c.spread(scale), y))
    if Bias is not None:
        steps.append(partial(xp.add, y, c.spread(Bias), y))
    for running, new, out in ((Mean, mean, MeanOut), (Variance, variance, VarianceOut)):
        if out is None:
            continue
        steps += copy(xp, running, out)
        if is_global:
            continue
        if MomentumTensor is not None:
            steps.append(partial(_move, out, new, MomentumTensor))
            continue
        share = scratch(new.shape, new.dtype)
        steps += [
            partial(xp.multiply, out, momentum, out),
            partial(xp.multiply, new, 1.0 - momentum, share),
            partial(xp.add, out, share, out),
        ]
    return steps


def _move(running: Any, new: Any, momentum: Any) -> None:
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
) -> list[Step]:
    c = _Channels(xp, scratch, X.shape, data_layout, X.dtype)
    by_channel = partial(scratch, SavedMean.shape, SavedMean.dtype)
    d_scale, d_bias = dScale if dScale is not None else by_channel(), dBias if dBias is not None else by_channel()
    x, d_y = c.view(X), c.view(dY)
    d_x = c.view(dX if dX is not None else scratch(X.shape, X.dtype))
    is_global = uses_global_stats(is_test, use_global_stats, trainable_statistics)
    inverse = SavedVariance
    steps: list[Step] = []
    if dBias is not None or not is_global:
        steps += c.sums(d_y, None, d_bias)
    if dScale is not None or not is_global:
        steps.append(partial(xp.subtract, x, c.spread(SavedMean), d_x))
        steps += [*c.sums(d_y, d_x, d_scale), partial(xp.multiply, d_scale, inverse, d_scale)]
    if dX is None:
        return steps
    scale = inverse
    if Scale is not None:
        scale = by_channel()
        steps.append(partial(xp.multiply, Scale, inverse, scale))
    if is_global:
        return [*steps, partial(xp.multiply, d_y, c.spread(scale), d_x)]
    # dX = scale * (dY - centered * slope - shift), with slope = dScale * inverse / count and shift = dBias / count
    slope, shift = by_channel(), by_channel()
    steps += [
        partial(xp.multiply, d_scale, inverse, slope),
        partial(xp.divide, slope, c.count, slope),
        partial(xp.divide, d_bias, c.count, shift),
        partial(xp.multiply, d_x, c.spread(slope), d_x),
        partial(xp.subtract, d_y, d_x, d_x),
        partial(xp.subtract, d_x, c.spread(shift), d_x),
        partial(xp.multiply, d_x, c.spread(scale), d_x),
    ]

    def through_statistics() -> None:
        """What reaches X through the saved mean and inverse deviation, if somebody reads those."""
        if dSavedMean is not None:
            d_x[...] += c.spread(dSavedMean / c.count)
        if dSavedVariance is not None:
            d_x[...] -= (x - c.spread(SavedMean)) * c.spread(dSavedVariance * SavedVariance**3 / c.count)

    return steps if dSavedMean is None and dSavedVariance is None else [*steps, through_statistics]


# --------------------------------------------------------------------------------------------------------- layer_norm
def _product(xp: Any, left: Any, right: Any, out: Any) -> Step:
    """The call of ``dot`` of a matrix and a vector, in this order or the other, into an array."""
    if left.dtype == right.dtype == out.dtype:
        return partial(xp.dot, left, right, out)
    return lambda: xp.copyto(out, xp.dot(left, right), casting="same_kind")


def _inverse_deviation(xp: Any, variance: Any, epsilon: float, out: Any) -> list[Step]:
    return [partial(xp.add, variance, epsilon, out), partial(xp.sqrt, out, out), partial(xp.divide, 1, out, out)]


@prepared("layer_norm")
def layer_norm(
    xp: Any,
    scratch: Any,
    X: Any,
    Scale: Any,
    Bias: Any,
    epsilon: float,
    begin_norm_axis: int,
    Y: Any,
    Mean: Any,
    Variance: Any,
) -> list[Step]:
    rows = prod(X.shape[:begin_norm_axis])
    if not X.size:
        return []
    x = X.reshape(rows, -1)
    width = x.shape[1]
    y = (Y if Y is not None else scratch(X.shape, X.dtype)).reshape(x.shape)
    dtype = X.dtype if Mean is None else Mean.dtype
    mean = Mean if Mean is not None else scratch((rows,), dtype)
    variance = Variance if Variance is not None else scratch((rows,), dtype)
    inverse, shares = scratch((rows,), dtype), xp.full(width, 1 / width, dtype)
    steps: list[Step] = []
    for start, end in ranges(rows, width):
        out = y[start:end]
        steps += [
            _product(xp, x[start:end], shares, mean[start:end]),
            partial(xp.subtract, x[start:end], mean[start:end, None], out),
            sum_of_products(xp, "rc,rc->r", out, out, variance[start:end]),
            partial(xp.divide, variance[start:end], width, variance[start:end]),
            *_inverse_deviation(xp, variance[start:end], epsilon, inverse[start:end]),
            partial(xp.multiply, out, inverse[start:end, None], out),
        ]
        if Scale is not None:
            steps.append(partial(xp.multiply, out, Scale, out))
        if Bias is not None:
            steps.append(partial(xp.add, out, Bias, out))
    return steps


@prepared("layer_norm_grad")
def layer_norm_grad(
    xp: Any,
    scratch: Any,
    X: Any,
    Scale: Any,
    Mean: Any,
    Variance: Any,
    dY: Any,
    epsilon: float,
    dX: Any,
    dScale: Any,
    dBias: Any,
) -> list[Step]:
    rows = Mean.size
    if not X.size:
        return [partial(array.fill, 0) for array in (dScale, dBias) if array is not None]
    x, d_y = X.reshape(rows, -1), dY.reshape(rows, -1)
    width = x.shape[1]
    d_x = dX.reshape(x.shape) if dX is not None else None
    inverse, average, slope = (scratch((rows,), Mean.dtype) for _ in range(3))
    shares = xp.full(width, 1 / width, Mean.dtype) if Scale is None else scratch((width,), Mean.dtype)
    parts = ranges(rows, width)
    longest = max(end - start for start, end in parts)
    ones = xp.ones(longest, X.dtype)
    buffers = [scratch((longest, width), X.dtype) for _ in range(2)]
    sums = scratch((2, width), X.dtype)
    steps: list[Step] = [] if Scale is None else [partial(xp.divide, Scale, width, shares)]

    def add_up(weights: Any, source: Any, target: Any, own: Any, is_first: bool) -> None:
        steps.append(_product(xp, weights, source, target if is_first else own))
        if not is_first:
            steps.append(partial(xp.add, target, own, target))

    for start, end in parts:
        # With c = x - mean: dX = (s - mean(s) - c * mean(s * c) / deviation^2) / deviation, where s = dY * Scale.
        centered, product = (buffer[: end - start] for buffer in buffers)
        by_row, mean, along, gradient = inverse[start:end], average[start:end], slope[start:end], d_y[start:end]
        if dBias is not None:
            add_up(ones[: end - start], gradient, dBias, sums[0], start == 0)
        if dScale is None and d_x is None:
            continue
        steps += [
            *_inverse_deviation(xp, Variance[start:end], epsilon, by_row),
            partial(xp.subtract, x[start:end], Mean[start:end, None], centered),
            partial(xp.multiply, gradient, centered, product),
        ]
        if dScale is not None:
            add_up(by_row, product, dScale, sums[1], start == 0)
        if d_x is None:
            continue
        out = d_x[start:end]
        steps += [
            _product(xp, gradient, shares, mean),
            _product(xp, product, shares, along),
            partial(xp.multiply, along, by_row, along),
            partial(xp.multiply, along, by_row, along),
            partial(xp.multiply, centered, along[:, None], centered),
        ]
        if Scale is not None:
            steps.append(partial(xp.multiply, gradient, Scale, product))
        steps += [
            partial(xp.subtract, product if Scale is not None else gradient, mean[:, None], out),
            partial(xp.subtract, out, centered, out),
            partial(xp.multiply, out, by_row[:, None], out),
        ]
    return steps


# ----------------------------------------------------------------------------------------------- instance and group norm
def _normalize(
    xp: Any, X: Any, axes: tuple[int, ...], shape: tuple[int, ...], channel: int, Scale: Any, Bias: Any, epsilon: float, Y: Any
) -> tuple[Any, Any]:
    """Writes X, seen as `shape`, normalized over `axes`, then scaled by channel; gives mean and variance."""
    x = X.reshape(shape)
    mean = x.mean(axes, keepdims=True)
    centered = x - mean
    variance = xp.square(centered).mean(axes, keepdims=True)
    if Y is not None:
        centered /= xp.sqrt(variance + X.dtype.type(epsilon))
        found = centered.reshape(X.shape)
        by_channel = [-1 if axis == channel else 1 for axis in range(X.ndim)]
        if Scale is not None:
            found = found * Scale.reshape(by_channel)
        if Bias is not None:
            found = found + Bias.reshape(by_channel)
        xp.copyto(Y, found)
    return mean, variance


@kernel("instance_norm")
def instance_norm(xp: Any, X: Any, Scale: Any, Bias: Any, epsilon: float, Y: Any, SavedMean: Any, SavedVariance: Any) -> None:
    shape = (*X.shape[:2], prod(X.shape[2:]))
    mean, variance = _normalize(xp, X, (2,), shape, 1, Scale, Bias, epsilon, Y)
    if SavedMean is not None:
        xp.copyto(SavedMean, mean.reshape(-1))
    if SavedVariance is not None:
        xp.copyto(SavedVariance, 1.0 / xp.sqrt(variance.reshape(-1) + X.dtype.type(epsilon)))


@kernel("group_norm")
def group_norm(
    xp: Any,
    X: Any,
    Scale: Any,
    Bias: Any,
    epsilon: float,
    groups: int,
    data_layout: str,
    Y: Any,
    Mean: Any,
    Variance: Any,
) -> None:
    channel = channel_axis(data_layout, X.ndim)
    each = X.shape[channel] // groups
    if channel == 1:
        shape: tuple[int, ...] = (len(X), groups, each * prod(X.shape[2:]))
        axes: tuple[int, ...] = (2,)
    else:
        shape, axes = (len(X), prod(X.shape[1:-1]), groups, each), (1, 3)
    mean, variance = _normalize(xp, X, axes, shape, channel, Scale, Bias, epsilon, Y)
    for target, source in ((Mean, mean), (Variance, variance)):
        if target is not None:
            xp.copyto(target, source.reshape(target.shape))


# -------------------------------------------------------------------------------------- by neighbours, by data, by matrix
@prepared("lrn")
def lrn(
    xp: Any, scratch: Any, X: Any, n: int, k: float, alpha: float, beta: float, data_format: str, Out: Any, MidOut: Any
) -> list[Step]:
    channel = channel_axis(data_format, X.ndim)
    channels, before = X.shape[channel], (n - 1) // 2
    squares = scratch(X.shape, X.dtype)
    sums = MidOut if MidOut is not None else scratch(X.shape, X.dtype)
    steps: list[Step] = [partial(xp.multiply, X, X, squares), partial(sums.fill, 0)]
    for tap in range(n):
        start, end = max(0, before - tap), min(channels, channels + before - tap)
        if start < end:
            here = (slice(None),) * channel + (slice(start, end),)
            there = (slice(None),) * channel + (slice(start + tap - before, end + tap - before),)
            steps.append(partial(xp.add, sums[here], squares[there], sums[here]))
    steps += [partial(xp.multiply, sums, alpha, sums), partial(xp.add, sums, k, sums)]
    if Out is None:
        return steps
    return [*steps, partial(xp.power, sums, -beta, squares), partial(xp.multiply, X, squares, Out)]


@prepared("affine_channel", inplace={"Out": "X"})
def affine_channel(xp: Any, X: Any, Scale: Any, Bias: Any, data_layout: str, Out: Any) -> list[Step]:
    channel = channel_axis(data_layout, X.ndim)
    scale, bias = (by.reshape([-1 if axis == channel else 1 for axis in range(X.ndim)]) for by in (Scale, Bias))
    return [partial(xp.multiply, X, scale, Out), partial(xp.add, Out, bias, Out)]


@kernel("data_norm")
def data_norm(
    xp: Any,
    scale_w: Any,
    bias: Any,
    X: Any,
    BatchSize: Any,
    BatchSum: Any,
    BatchSquareSum: Any,
    enable_scale_and_shift: bool,
    Y: Any,
    Means: Any,
    Scales: Any,
) -> None:
    means, scales = BatchSum / BatchSize, xp.sqrt(BatchSize / BatchSquareSum)
    for target, source in ((Means, means), (Scales, scales)):
        if target is not None:
            xp.copyto(target, source)
    if Y is not None:
        found = (X - means) * scales
        xp.copyto(Y, found * scale_w + bias if enable_scale_and_shift else found)


def _spectral_vectors(xp: Any, Weight: Any, U: Any, V: Any, dim: int, rounds: int, eps: float) -> tuple[Any, Any, Any]:
    """Weight as a matrix, and its left and right vector after some rounds of power iteration."""
    matrix = Weight.transpose(spectral_matrix(Weight.ndim, dim)).reshape(Weight.shape[dim], -1)
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
    for target, source in ((UOut, u), (VOut, v)):
        if target is not None:
            xp.copyto(target, source)


# ------------------------------------------------------------------------------------------------------------ dropout
def _scaled(xp: Any, source: Any, scale: float, out: Any) -> list[Step]:
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
) -> list[Step]:
    scale = dropout_scale(dropout_prob, dropout_implementation, is_test)
    if is_test:
        steps = [] if Mask is None else [partial(Mask.fill, 1)]
        return steps + ([] if Out is None else _scaled(xp, X, scale, Out))
    mask = Mask if Mask is not None else scratch(X.shape, xp.dtype("uint8"))
    draws = scratch(X.shape, xp.dtype("float32"))

    def draw() -> None:
        generator = rng() if Seed is None else xp.random.default_rng(int(Seed.reshape(-1)[0]))
        generator.random(out=draws, dtype=draws.dtype)
        xp.greater_equal(draws, dropout_prob, out=mask)

    if Out is None:
        return [draw]
    return [draw, partial(xp.multiply, X, mask, Out), *([] if scale == 1.0 else [partial(xp.multiply, Out, scale, Out)])]


@prepared("dropout_grad", inplace={"dX": "dOut"})
def dropout_grad(
    xp: Any, Mask: Any, dOut: Any, dropout_prob: float, dropout_implementation: str, is_test: bool, dX: Any
) -> list[Step]:
    scale = dropout_scale(dropout_prob, dropout_implementation, is_test)
    if is_test:
        return _scaled(xp, dOut, scale, dX)
    return [partial(xp.multiply, dOut, Mask, dX), *([] if scale == 1.0 else [partial(xp.multiply, dX, scale, dX)])]
