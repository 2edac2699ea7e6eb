"""Kernels of `fluid.ops.fourier`."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

from fluid.ops.fourier import ADJOINT_FACTOR

from .table import kernel


@cache
def _scipy_or_numpy() -> Any:
    """scipy transforms several lines at once, in 0.3 to 0.6 of numpy's time (256 lines of 512 float32, AVX2)."""
    try:
        import scipy.fft
    except ImportError:
        return np.fft
    return scipy.fft


def transforms(xp: Any) -> Any:
    """The module of fast transforms for arrays of `xp`."""
    return _scipy_or_numpy() if xp is np else xp.fft


def _full(xp: Any, X: Any, axes: list[int], normalization: str, forward: bool) -> Any:
    module = transforms(xp)
    return (module.fftn if forward else module.ifftn)(X, axes=axes, norm=normalization)


@kernel("fft_c2c")
def fft_c2c(xp: Any, X: Any, axes: list[int], normalization: str, forward: bool, Out: Any) -> None:
    xp.copyto(Out, _full(xp, X, axes, normalization, forward))


def _of_real(xp: Any, X: Any, axes: list[int], normalization: str, forward: bool, onesided: bool) -> Any:
    if not onesided:
        return _full(xp, X, axes, normalization, forward)
    if forward:
        return transforms(xp).rfftn(X, axes=axes, norm=normalization)
    return transforms(xp).rfftn(X, axes=axes, norm=ADJOINT_FACTOR[normalization]).conj()


@kernel("fft_r2c")
def fft_r2c(xp: Any, X: Any, axes: list[int], normalization: str, forward: bool, onesided: bool, Out: Any) -> None:
    xp.copyto(Out, _of_real(xp, X, axes, normalization, forward, onesided))


@kernel("fft_c2r")
def fft_c2r(xp: Any, X: Any, axes: list[int], normalization: str, forward: bool, Out: Any) -> None:
    if forward:
        X, normalization = X.conj(), ADJOINT_FACTOR[normalization]
    xp.copyto(Out, transforms(xp).irfftn(X, [Out.shape[axis] for axis in axes], axes, norm=normalization))


@kernel("double_inner")
def double_inner(xp: Any, X: Any, Like: Any, axis: int, Out: Any) -> None:
    xp.copyto(Out, X)
    Out[_inner(Like, axis)] *= 2


@kernel("fft_r2c_adjoint")
def fft_r2c_adjoint(xp: Any, X: Any, Like: Any, axes: list[int], normalization: str, forward: bool, Out: Any) -> None:
    halved = X.copy()
    halved[_inner(Like, axes[-1])] *= 0.5  # irfftn counts them twice
    fft_c2r(xp, halved, axes, normalization, forward, Out)


def _inner(signal: Any, axis: int) -> tuple[slice, ...]:
    """The elements of a one-sided transform that stand for two of the full one."""
    return (*[slice(None)] * (axis % signal.ndim), slice(1, (signal.shape[axis] + 1) // 2))


def _framed(xp: Any, X: Any, frame_length: int, hop_length: int, count: int, axis: int) -> Any:
    starts, within = xp.arange(count) * hop_length, xp.arange(frame_length)
    return X[..., within[:, None] + starts] if axis else X[starts[:, None] + within]


@kernel("frame")
def frame(xp: Any, X: Any, frame_length: int, hop_length: int, axis: int, Out: Any) -> None:
    count = Out.shape[-1] if axis else Out.shape[0]
    xp.copyto(Out, _framed(xp, X, frame_length, hop_length, count, axis))


@kernel("frame_like")
def frame_like(xp: Any, X: Any, hop_length: int, axis: int, Out: Any) -> None:
    length, count = Out.shape[-2:] if axis else Out.shape[1::-1]
    xp.copyto(Out, _framed(xp, X, length, hop_length, count, axis))


@kernel("overlap_add", "overlap_like")
def overlap_add(xp: Any, X: Any, hop_length: int, axis: int, Out: Any) -> None:
    # As [frames, length, ...], in parts of a hop: in each, no two frames overlap.
    frames = xp.moveaxis(X, (-1, -2), (0, 1)) if axis else X
    count, length = frames.shape[:2]
    parts = -(-length // hop_length)
    signal = xp.zeros((count + parts, hop_length, *frames.shape[2:]), X.dtype)
    for part in range(parts):
        piece = frames[:, part * hop_length : (part + 1) * hop_length]
        signal[part : part + count, : piece.shape[1]] += piece
    total = signal.reshape((count + parts) * hop_length, *frames.shape[2:])[: (count - 1) * hop_length + length]
    target = xp.moveaxis(Out, -1, 0) if axis else Out
    target[: len(total)] = total
    target[len(total) :] = 0


@kernel("stft")
def stft(xp: Any, X: Any, Window: Any, n_fft: int, hop_length: int, normalized: bool, onesided: bool, Out: Any) -> None:
    frames = _framed(xp, X, n_fft, hop_length, Out.shape[2], -1) * Window[:, None]
    xp.copyto(Out, _of_real(xp, frames, [1], "ortho" if normalized else "backward", True, onesided))
