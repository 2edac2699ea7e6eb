"""Fourier transforms: the extension ``fft`` of the array API standard.

>>> import fluid.numpy as xp
>>> xp.fft.fft(xp.asarray([1.0, 0.0, 0.0, 0.0]))
NDArray([1.+0.j, 1.+0.j, 1.+0.j, 1.+0.j], dtype=complex64)
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..errors import ProgramError
from ..values.types import DTypeLike, VarType, as_dtype, complex_of, is_floating
from .manipulation import roll
from .operands import axes_of, cast, known_size, new, operand, ops_of, placed

__all__ = [
    "fft", "fftfreq", "fftn", "fftshift", "hfft", "ifft", "ifftn", "ifftshift", "ihfft", "irfft", "irfftn", "rfft", "rfftfreq",
    "rfftn",
]  # fmt: skip


def __dir__() -> list[str]:
    return __all__


_OPPOSITE = {"backward": "forward", "ortho": "ortho", "forward": "backward"}


def _floats(x: Any) -> Any:
    x = operand(x)
    return x if is_floating(x.dtype) else cast(x, VarType.FP32)


def _resized(x: Any, axis: int, size: int) -> Any:
    """The array with `size` elements along an axis: cut, or followed by zeros."""
    now, f = known_size(x, axis, "fft"), ops_of(x)
    if size < 1:
        raise ProgramError(f"a transform has one element at least, not {size}")
    if size <= now:
        return x if size == now else f.slice(x, axes=[axis], starts=[0], ends=[size], infer_flags=[1], decrease_axis=[])
    zeros = placed(np.zeros((*x.shape[:axis], size - now, *x.shape[axis + 1 :]), x.dtype.numpy), x)
    return f.concat([x, zeros], axis=axis)


def _sizes(x: Any, s: Sequence[int] | None, axes: Sequence[int] | None) -> tuple[list[int], list[int]]:
    """The axes of a transform, and how many elements it has along each."""
    if axes is None:
        axes = range(x.ndim) if s is None else range(x.ndim - len(s), x.ndim)
    places = axes_of(tuple(axes), x.ndim)
    sizes = [known_size(x, axis, "fft") for axis in places] if s is None else [int(size) for size in s]
    if len(sizes) != len(places):
        raise ProgramError(f"there are {len(sizes)} sizes in s for {len(places)} axes")
    return places, sizes


def _transformed(x: Any, s: Sequence[int] | None, axes: Sequence[int] | None, norm: str, forward: bool) -> Any:
    """The transform of complex numbers over some axes."""
    x = _floats(x)
    x = cast(x, complex_of(x.dtype))
    places, sizes = _sizes(x, s, axes)
    for axis, size in zip(places, sizes, strict=True):
        x = _resized(x, axis, size)
    return ops_of(x).fft_c2c(x, axes=places, normalization=norm, forward=forward) if places else x


def fft(x: Any, /, *, n: int | None = None, axis: int = -1, norm: str = "backward") -> Any:
    """The discrete Fourier transform along an axis.

    Args:
        x: floats or complex numbers.
        n: how many elements to transform: `x` is cut, or followed by zeros.
        axis: the axis.
        norm: where the factor 1 / n belongs: ``"backward"`` to the inverse, ``"forward"`` to the transform, ``"ortho"`` for its
            root to each.

    >>> import fluid.numpy as xp
    >>> xp.fft.fft(xp.asarray([1.0, 1.0]))
    NDArray([2.+0.j, 0.+0.j], dtype=complex64)
    """
    return _transformed(x, None if n is None else [n], [axis], norm, True)


def ifft(x: Any, /, *, n: int | None = None, axis: int = -1, norm: str = "backward") -> Any:
    """The inverse of `fft`.

    Args:
        x: floats or complex numbers.
        n, axis, norm: as in `fft`.

    >>> import fluid.numpy as xp
    >>> xp.fft.ifft(xp.asarray([2.0, 0.0]))
    NDArray([1.+0.j, 1.+0.j], dtype=complex64)
    """
    return _transformed(x, None if n is None else [n], [axis], norm, False)


def fftn(x: Any, /, *, s: Sequence[int] | None = None, axes: Sequence[int] | None = None, norm: str = "backward") -> Any:
    """The discrete Fourier transform along several axes.

    Args:
        x: floats or complex numbers.
        s: how many elements to transform along each axis.
        axes: the axes; by default all, or the last ones for which `s` has sizes.
        norm: as in `fft`.

    >>> import fluid.numpy as xp
    >>> xp.fft.fftn(xp.ones((2, 2)))[0, 0]
    NDArray(4.+0.j, dtype=complex64)
    """
    return _transformed(x, s, axes, norm, True)


def ifftn(x: Any, /, *, s: Sequence[int] | None = None, axes: Sequence[int] | None = None, norm: str = "backward") -> Any:
    """The inverse of `fftn`.

    Args:
        x: floats or complex numbers.
        s, axes, norm: as in `fftn`.

    >>> import fluid.numpy as xp
    >>> xp.fft.ifftn(xp.ones((2, 2)))[0, 0]
    NDArray(1.+0.j, dtype=complex64)
    """
    return _transformed(x, s, axes, norm, False)


def rfft(x: Any, /, *, n: int | None = None, axis: int = -1, norm: str = "backward") -> Any:
    """The first n / 2 + 1 elements of the transform of real numbers; the others are their conjugates.

    Args:
        x: floats.
        n, axis, norm: as in `fft`.

    >>> import fluid.numpy as xp
    >>> xp.fft.rfft(xp.asarray([1.0, 1.0, 1.0, 1.0]))
    NDArray([4.+0.j, 0.+0.j, 0.+0.j], dtype=complex64)
    """
    return rfftn(x, s=None if n is None else [n], axes=[axis], norm=norm)


def irfft(x: Any, /, *, n: int | None = None, axis: int = -1, norm: str = "backward") -> Any:
    """The inverse of `rfft`.

    Args:
        x: complex numbers.
        n: how many real numbers; by default 2 * (m - 1) for m complex ones.
        axis, norm: as in `fft`.

    >>> import fluid.numpy as xp
    >>> xp.fft.irfft(xp.asarray([4.0, 0.0, 0.0]))
    NDArray([1., 1., 1., 1.], dtype=float32)
    """
    x = operand(x)
    size = 2 * (known_size(x, axis, "irfft") - 1) if n is None else n
    return irfftn(x, s=[size], axes=[axis], norm=norm)


def rfftn(x: Any, /, *, s: Sequence[int] | None = None, axes: Sequence[int] | None = None, norm: str = "backward") -> Any:
    """The transform of real numbers along several axes, without the conjugates along the last of them.

    Args:
        x: floats.
        s, axes, norm: as in `fftn`.

    >>> import fluid.numpy as xp
    >>> xp.fft.rfftn(xp.ones((2, 4))).shape
    (2, 3)
    """
    x = _floats(x)
    places, sizes = _sizes(x, s, axes)
    for axis, size in zip(places, sizes, strict=True):
        x = _resized(x, axis, size)
    return ops_of(x).fft_r2c(x, axes=places, normalization=norm, forward=True, onesided=True)


def irfftn(x: Any, /, *, s: Sequence[int] | None = None, axes: Sequence[int] | None = None, norm: str = "backward") -> Any:
    """The inverse of `rfftn`.

    Args:
        x: complex numbers.
        s: how many real numbers along each axis; by default, 2 * (m - 1) along the last, for m complex ones.
        axes, norm: as in `fftn`.

    >>> import fluid.numpy as xp
    >>> xp.fft.irfftn(xp.ones((2, 3))).shape
    (2, 4)
    """
    x = _floats(x)
    x = cast(x, complex_of(x.dtype))
    places, sizes = _sizes(x, s, axes)
    if s is None:
        sizes[-1] = 2 * (sizes[-1] - 1)
    if sizes[-1] < 1:
        raise ProgramError(f"a transform has one element at least, not {sizes[-1]}")
    for axis, size in zip(places[:-1], sizes[:-1], strict=True):
        x = _resized(x, axis, size)
    x = _resized(x, places[-1], sizes[-1] // 2 + 1)
    return ops_of(x).fft_c2r(x, axes=places, normalization=norm, forward=False, last_dim_size=sizes[-1])


def hfft(x: Any, /, *, n: int | None = None, axis: int = -1, norm: str = "backward") -> Any:
    """The transform, of real numbers, of a signal whose second half is the conjugate of the first.

    Args:
        x: the first half of the signal.
        n: how many elements the transform has; by default 2 * (m - 1) for m elements of `x`.
        axis, norm: as in `fft`.

    >>> import fluid.numpy as xp
    >>> xp.fft.hfft(xp.asarray([1.0, 0.0, 0.0]))
    NDArray([1., 1., 1., 1.], dtype=float32)
    """
    x = _floats(x)
    x = cast(x, complex_of(x.dtype))
    return irfft(ops_of(x).conj(x), n=n, axis=axis, norm=_OPPOSITE[norm])


def ihfft(x: Any, /, *, n: int | None = None, axis: int = -1, norm: str = "backward") -> Any:
    """The inverse of `hfft`.

    Args:
        x: floats.
        n, axis, norm: as in `fft`.

    >>> import fluid.numpy as xp
    >>> xp.fft.ihfft(xp.asarray([1.0, 1.0, 1.0, 1.0]))
    NDArray([1.-0.j, 0.-0.j, 0.-0.j], dtype=complex64)
    """
    result = rfft(x, n=n, axis=axis, norm=_OPPOSITE[norm])
    return ops_of(result).conj(result)


def fftfreq(n: int, /, *, d: float = 1.0, dtype: DTypeLike | None = None, device: Any = None) -> Any:
    """The frequencies of the elements of `fft`.

    Args:
        n: how many elements.
        d: the time between samples.
        dtype: element type; float32 by default.
        device: as in `fluid.numpy.asarray`.

    >>> import fluid.numpy as xp
    >>> xp.fft.fftfreq(4)
    NDArray([ 0.  ,  0.25, -0.5 , -0.25], dtype=float32)
    """
    return new(np.fft.fftfreq(n, d).astype((VarType.FP32 if dtype is None else as_dtype(dtype)).numpy), device)


def rfftfreq(n: int, /, *, d: float = 1.0, dtype: DTypeLike | None = None, device: Any = None) -> Any:
    """The frequencies of the elements of `rfft`.

    Args:
        n: how many elements the signal has.
        d: the time between samples.
        dtype: element type; float32 by default.
        device: as in `fluid.numpy.asarray`.

    >>> import fluid.numpy as xp
    >>> xp.fft.rfftfreq(4)
    NDArray([0.  , 0.25, 0.5 ], dtype=float32)
    """
    return new(np.fft.rfftfreq(n, d).astype((VarType.FP32 if dtype is None else as_dtype(dtype)).numpy), device)


def fftshift(x: Any, /, *, axes: int | Sequence[int] | None = None) -> Any:
    """The elements of a transform with the frequency zero in the middle.

    Args:
        x: an array.
        axes: one axis or several; all by default.

    >>> import fluid.numpy as xp
    >>> xp.fft.fftshift(xp.asarray([0, 1, -2, -1]))
    NDArray([-2, -1,  0,  1], dtype=int64)
    """
    x = operand(x)
    places = axes_of(axes if axes is None or isinstance(axes, int) else tuple(axes), x.ndim)
    return roll(x, tuple(known_size(x, axis, "fftshift") // 2 for axis in places), axis=tuple(places))


def ifftshift(x: Any, /, *, axes: int | Sequence[int] | None = None) -> Any:
    """The inverse of `fftshift`.

    Args:
        x: an array.
        axes: one axis or several; all by default.

    >>> import fluid.numpy as xp
    >>> xp.fft.ifftshift(xp.asarray([-2, -1, 0, 1]))
    NDArray([ 0,  1, -2, -1], dtype=int64)
    """
    x = operand(x)
    places = axes_of(axes if axes is None or isinstance(axes, int) else tuple(axes), x.ndim)
    return roll(x, tuple(-(known_size(x, axis, "ifftshift") // 2) for axis in places), axis=tuple(places))
