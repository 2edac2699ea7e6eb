"""Kernels of `fluid.ops.arithmetic`."""

from __future__ import annotations

from functools import partial
from typing import Any

from .table import Call, kernel, prepared


def _binary(op_type: str, ufunc: str) -> None:
    @prepared(op_type)
    def bind(xp: Any, X: Any, Y: Any, Out: Any) -> Call:
        return partial(getattr(xp, ufunc), X, Y, out=Out)


for _name in ("and", "or", "xor"):
    _binary(f"bitwise_{_name}", f"bitwise_{_name}")
for _name in ("fmax", "fmin", "heaviside"):
    _binary(f"elementwise_{_name}", _name)


@prepared("bitwise_not")
def bitwise_not(xp: Any, X: Any, Out: Any) -> Call:
    return partial(xp.invert, X, Out)


@prepared("bitwise_left_shift")
def bitwise_left_shift(xp: Any, x: Any, y: Any, out: Any) -> Call:
    return partial(xp.left_shift, x, y, out)


@prepared("bitwise_right_shift")
def bitwise_right_shift(xp: Any, x: Any, y: Any, out: Any) -> Call:
    return partial(xp.right_shift, x, y, out)


@prepared("signbit")
def signbit(xp: Any, X: Any, Out: Any) -> Call:
    return partial(xp.signbit, X, Out)


@prepared("trunc")
def trunc(xp: Any, X: Any, Out: Any) -> Call:
    return partial(xp.trunc, X, Out)


@prepared("atan2")
def atan2(xp: Any, X1: Any, X2: Any, Out: Any) -> Call:
    return partial(xp.arctan2, X1, X2, Out)


@prepared("nextafter")
def nextafter(xp: Any, x: Any, y: Any, out: Any) -> Call:
    return partial(xp.nextafter, x, y, out)


@kernel("equal_all")
def equal_all(xp: Any, X: Any, Y: Any, Out: Any) -> None:
    Out[...] = X.shape == Y.shape and (X == Y).all()


@kernel("partial_concat")
def partial_concat(xp: Any, X: list[Any], start_index: int, length: int, Out: Any) -> None:
    start = start_index % X[0].shape[1] if X[0].shape[1] else 0
    xp.copyto(Out, xp.concatenate([array[:, start : start + length if length >= 0 else None] for array in X], 1))
