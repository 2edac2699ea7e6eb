"""Kernels of `fluid.ops.complex`."""

from __future__ import annotations

from functools import partial
from typing import Any

from .table import Call, kernel, prepared


def _parts(xp: Any, array: Any) -> Any:
    """View complex numbers as pairs of floats in a new last dimension; copies arrays that are not contiguous."""
    contiguous = xp.ascontiguousarray(array).reshape(array.shape)
    return contiguous.reshape(-1).view(contiguous.real.dtype).reshape(*contiguous.shape, 2)


@prepared("real")
def real(xp: Any, X: Any, Out: Any) -> Call:
    return partial(xp.copyto, Out, X.real)


@prepared("imag")
def imag(xp: Any, X: Any, Out: Any) -> Call:
    return partial(xp.copyto, Out, X.imag)


@prepared("conj", inplace={"Out": "X"})
def conj(xp: Any, X: Any, Out: Any) -> Call:
    return partial(xp.conjugate, X, Out)


@kernel("angle")
def angle(xp: Any, X: Any, Out: Any) -> None:
    xp.copyto(Out, xp.angle(X))


@kernel("complex")
def complex_(xp: Any, X: Any, Y: Any, Out: Any) -> None:
    Out.real[...] = X
    Out.imag[...] = Y


@kernel("as_complex")
def as_complex(xp: Any, X: Any, Out: Any) -> None:
    Out.real[...] = X[..., 0]
    Out.imag[...] = X[..., 1]


@kernel("as_real")
def as_real(xp: Any, X: Any, Out: Any) -> None:
    xp.copyto(Out, _parts(xp, X))
