"""Formulas that meanings and gradient rules of several ops share, over values of any namespace."""

from __future__ import annotations

from typing import Any


def number_like(f: Any, value: Any, number: float) -> Any:
    """A number as a tensor of one element with the element type of `value`: of shape [1], or [] if `value` has that too."""
    return f.fill_constant(shape=[1] if value.ndim else [], dtype=int(value.dtype), value=number)


def as_type_of(x: Any, value: Any) -> Any:
    """Convert a value, such as labels that may be integers, to the element type of x."""
    return value if value.dtype is x.dtype else value.astype(x.dtype)


def at_least(f: Any, x: Any, low: float) -> Any:
    """The maximum of x and a number, elementwise."""
    return f.elementwise_max(x, number_like(f, x, low))


def at_most(f: Any, x: Any, high: float) -> Any:
    """The minimum of x and a number, elementwise."""
    return f.elementwise_min(x, number_like(f, x, high))


def choose(f: Any, condition: Any, x: Any, y: Any) -> Any:
    """Select x where the condition holds, y elsewhere; y may be a number."""
    return f.where(condition, x, f.fill_any_like(x, value=float(y), dtype=-1) if isinstance(y, (int, float)) else y)


def root(f: Any, x: Any, power: float = 0.5) -> Any:
    """x raised to a power below 1, with the gradient 0 at 0: a subgradient of norms, and what torch gives for deviations."""
    zero, one = (f.fill_any_like(x, value=number) for number in (0.0, 1.0))
    is_zero = f.equal(x, zero)
    safe = choose(f, is_zero, one, x)
    return choose(f, is_zero, zero, f.sqrt(safe) if power == 0.5 else f.pow(safe, factor=power))


def log1p_exp(f: Any, x: Any) -> Any:
    """``log(1 + exp(x))`` without overflow."""
    return f.log1p(f.exp(-f.abs(x))) + at_least(f, x, 0.0)


def size_of(f: Any, x: Any, axis: int) -> Any:
    """The size of x along an axis, in the element type of x: a number where ops run, an op where a program is built."""
    axis %= x.ndim
    if x.shape[axis] > 0 and not f.sizes_may_differ:
        return float(x.shape[axis])
    return f.slice(f.shape(x), axes=[0], starts=[axis], ends=[axis + 1]).astype(x.dtype)
