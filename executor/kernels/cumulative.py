"""Kernels of `fluid.ops.cumulative`."""

from __future__ import annotations

from typing import Any

from .manipulation import write_wanted
from .table import kernel


def _first(xp: Any, array: Any, axis: int) -> Any:
    """A view with `axis` first."""
    return xp.moveaxis(array, axis, 0) if array.ndim else array.reshape(1)


def running(xp: Any, combine: Any, array: Any) -> Any:
    """The running reduction by `combine` (a function of two arrays) along the first axis, in a logarithmic number of steps."""
    total, step = array.copy(), 1
    while step < len(total):
        total[step:] = combine(total[:-step], total[step:])
        step *= 2
    return total


@kernel("cumprod")
def cumprod(xp: Any, X: Any, dim: int, Out: Any) -> None:
    xp.copyto(Out, xp.cumprod(X, dim if X.ndim else None).reshape(Out.shape))


@kernel("cumprod_grad")
def cumprod_grad(xp: Any, X: Any, dOut: Any, dim: int, dX: Any) -> None:
    x, grad = _first(xp, X, dim), _first(xp, dOut, dim)
    zero = x == 0
    first = zero & (xp.cumsum(zero, 0) == 1)  # gradients behind the first zero are 0; its own omits it
    without = xp.cumprod(xp.where(first, 1, x), 0)

    def behind(array: Any) -> Any:
        return xp.cumsum(array[::-1], 0)[::-1]

    gradient = xp.where(first, behind(grad * without), behind(grad * xp.cumprod(x, 0)) / xp.where(zero, 1, x))
    _first(xp, dX, dim)[...] = gradient


def _extreme(xp: Any, x: Any, axis: int, out: Any, indices: Any, largest: bool) -> None:
    values = _first(xp, x, axis)
    best = running(xp, xp.maximum if largest else xp.minimum, values)
    places = xp.arange(len(values)).reshape(-1, *(1,) * (values.ndim - 1))
    reached = (values == best) | (values != values)
    last = running(xp, xp.maximum, xp.where(reached, places, 0))
    pairs = ((out, best), (indices, last))
    write_wanted(*((_first(xp, target, axis), value) for target, value in pairs if target is not None))


@kernel("cummax")
def cummax(xp: Any, x: Any, axis: int, out: Any, indices: Any) -> None:
    _extreme(xp, x, axis, out, indices, largest=True)


@kernel("cummin")
def cummin(xp: Any, x: Any, axis: int, out: Any, indices: Any) -> None:
    _extreme(xp, x, axis, out, indices, largest=False)


@kernel("logcumsumexp")
def logcumsumexp(xp: Any, X: Any, axis: int, flatten: bool, exclusive: bool, reverse: bool, Out: Any) -> None:
    source = X.reshape(-1) if flatten else _first(xp, X, axis)
    target = Out.reshape(-1) if flatten else _first(xp, Out, axis)
    if reverse:
        source, target = source[::-1], target[::-1]
    if exclusive:
        target[:1] = -xp.inf
        source, target = source[:-1], target[1:]
    target[...] = running(xp, xp.logaddexp, source)


@kernel("logcumsumexp_grad")
def logcumsumexp_grad(
    xp: Any, X: Any, Out: Any, dOut: Any, axis: int, flatten: bool, exclusive: bool, reverse: bool, dX: Any
) -> None:
    """Sums of ``dOut * exp(-Out)``, of positive and of negative gradients, by their logarithms."""
    parts = [array.reshape(-1) if flatten else _first(xp, array, axis) for array in (X, Out, dOut, dX)]
    x, out, grad, target = [array[::-1] for array in parts] if reverse else parts
    if exclusive:
        target[-1:] = 0
        x, out, grad, target = x[:-1], out[1:], grad[1:], target[:-1]

    def share(weights: Any) -> Any:
        logs = xp.where(weights > 0, xp.log(xp.where(weights > 0, weights, 1)) - out, -xp.inf)
        return xp.exp(running(xp, xp.logaddexp, logs[::-1])[::-1] + x)

    target[...] = share(grad) - share(-grad)
