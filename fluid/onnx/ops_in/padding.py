"""Padding by amounts known only at run time, and along axes of unknown size: gathers elements by computed positions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ...errors import FormatError
from ...values.types import VarType, is_floating
from ..builder import Builder
from ..node import OnnxNode
from .elementwise import choose


def within(b: Builder, index: Any, size: Any) -> Any:
    """Clip positions to an axis of `size` elements; all of int64."""
    return b.f.elementwise_max(b.f.elementwise_min(index, size - b.integer(1)), b.integer(0))


def _folded(b: Builder, index: Any, size: Any, mode: str) -> Any:
    """The positions within an axis of `size` elements that stand for positions beyond it."""
    if mode == "wrap":
        return b.f.elementwise_mod(index, size)
    if mode == "reflect":
        last = size - b.integer(1)
        period = b.f.elementwise_max(last + last, b.integer(1))
        return last - b.f.abs(b.f.elementwise_mod(index, period) - last)
    return within(b, index, size)


def padded_at_run(b: Builder, x: Any, axis: int, before: Any, after: Any, mode: str, value: Any) -> Any:
    """Pad one axis; negative numbers cut elements off.

    Args:
        before, after: how many elements to add, each an int, a `Size`, an `Element` or a variable of one int64.
        mode: of ``constant``, ``edge``, ``reflect`` and ``wrap``.
        value: the number that ``constant`` adds.
    """
    size = b.integer(b.size_of(x, axis))
    index = b.positions(b.integer(0) - b.integer(before), size + b.integer(after))
    places = _folded(b, index, size, mode)
    out = b.f.gather(x, places, axis=axis)
    if mode != "constant":
        return out
    shape = [-1 if n == axis else 1 for n in range(x.ndim)]
    return choose(b, b.f.reshape2(b.f.equal(index, places), shape=shape), out, value)


def padded_for_same(b: Builder, node: OnnxNode, x: Any, windows: Sequence[int], strides: Sequence[int], value: Any) -> Any:
    """Pad the spatial axes of `x` with `value`, as ``auto_pad=SAME_UPPER`` or ``SAME_LOWER`` of a node asks for.

    Args:
        windows: the sizes of the window, with dilations.
        value: a number, or a variable that holds one.
    """
    is_upper = node.string("auto_pad") == "SAME_UPPER"
    number = b.number(value, x.dtype) if isinstance(value, (int, float)) else value
    for axis, window, stride in zip(range(2, x.ndim), windows, strides, strict=True):
        size = b.integer(b.size_of(x, axis))
        steps = b.f.elementwise_floordiv(size + b.integer(stride - 1), b.integer(stride))
        total = b.f.elementwise_max((steps - b.integer(1)) * b.integer(stride) + b.integer(window) - size, b.integer(0))
        less = b.f.elementwise_floordiv(total, b.integer(2))
        before, after = (less, total - less) if is_upper else (total - less, less)
        x = padded_at_run(b, x, axis, before, after, "constant", number)
    return x


def lowest(dtype: VarType) -> float | int:
    """The lowest number of an element type."""
    if is_floating(dtype):
        return -float("inf")
    if dtype is VarType.BOOL:
        raise FormatError("a maximum of bools is not supported")
    return int(np.iinfo(dtype.numpy).min)
