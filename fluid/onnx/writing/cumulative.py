"""Write cumulative products, extrema and log-sum-exps along an axis."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from fluid.values.types import as_dtype

from .arithmetic import is_nan
from .exporting import exports
from .graph import NotExported, OnnxGraph, OnnxTensor
from .shaping import positions


def running(g: OnnxGraph, combine: Callable[[OnnxTensor, OnnxTensor], OnnxTensor], x: OnnxTensor, axis: int) -> OnnxTensor:
    """Combine all elements up to each one, in log2(size) steps."""
    size, step = g.size(x, axis), 1
    if not isinstance(size, int):
        raise NotExported("running along a dimension whose size is known only at run time")
    while step < size:
        first = g.slice(x, [axis], [0], [step])
        combined = combine(g.slice(x, [axis], [0], [size - step]), g.slice(x, [axis], [step], [size]))
        x, step = g.concat([first, combined], axis), 2 * step
    return g.identity(x)


@exports("cumprod")
def cumprod(g: OnnxGraph, X: OnnxTensor, dim: int) -> OnnxTensor:
    return running(g, lambda a, b: g.binary("Mul", a, b), X, dim % X.ndim) if X.ndim else g.identity(X)


def _extreme(op: str) -> Any:
    """Make the writer of running maxima or minima and of their positions; `op` is ``Max`` or ``Min``."""

    def extreme(g: OnnxGraph, x: OnnxTensor, axis: int, dtype: int) -> dict[str, OnnxTensor]:
        values = x if x.ndim else g.reshape(x, [1])
        axis %= values.ndim

        def better(a: OnnxTensor, b: OnnxTensor) -> OnnxTensor:  # NaN counts as the best
            best = g.binary(op, a, b)
            if not x.is_floating:
                return best
            has_nan = g.binary("Or", is_nan(g, a), is_nan(g, b))
            return g.where(has_nan, g.number(math.nan, a), best)

        best = running(g, better, values, axis)
        reached = g.binary("Equal", values, best)
        if x.is_floating:
            reached = g.binary("Or", reached, is_nan(g, values))
        places = g.where(reached, positions(g, g.size(values, axis), axis, values.ndim), g.number(0, g.ints(0)))
        last = running(g, lambda a, b: g.binary("Max", a, b), places, axis)
        return {"out": best, "indices": g.cast(last, as_dtype(dtype))}

    return extreme


exports("cummax")(_extreme("Max"))
exports("cummin")(_extreme("Min"))


@exports("logcumsumexp")
def logcumsumexp(g: OnnxGraph, f: Any, X: OnnxTensor, axis: int, flatten: bool, exclusive: bool, reverse: bool) -> Any:
    x = g.reshape(X, [-1], (X.spec.size,)) if flatten or not X.ndim else X
    axis = axis % x.ndim if not flatten and X.ndim else 0
    lowest = g.number(-math.inf, x)

    def sum_of_two(a: OnnxTensor, b: OnnxTensor) -> OnnxTensor:
        top = g.binary("Max", a, b)
        minus_distance = g.unary("Neg", g.unary("Abs", g.binary("Sub", a, b)))
        is_empty = g.binary("Equal", top, lowest)  # both are logarithms of 0
        return g.where(
            is_empty, lowest, g.binary("Add", top, f.log1p(g.unary("Exp", g.where(is_empty, g.number(0, x), minus_distance))))
        )

    x = f.flip(x, axis=[axis]) if reverse else x
    if exclusive:
        size = g.size(x, axis)
        if not isinstance(size, int):
            raise NotExported("sums along a dimension whose size is known only at run time")
        first = g.slice(x, [axis], [0], [1])
        initial = g.where(g.binary("Equal", first, first), lowest, lowest)
        x = g.concat([initial, g.slice(x, [axis], [0], [size - 1])], axis)
    x = running(g, sum_of_two, x, axis)
    return f.flip(x, axis=[axis]) if reverse else x
