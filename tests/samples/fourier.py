"""Samples of `fluid.ops.fourier`."""

from __future__ import annotations

from typing import Any

import numpy as np

from .base import Data, Sample, add

data = Data("fourier")
FACTORS = {"backward": (0, 1), "ortho": (0.5, 0.5), "forward": (1, 0)}


def transform(x: Any, axes: list[int], normalization: str, forward: bool) -> Any:
    """The transform by its sum."""
    out = np.asarray(x, "complex128")
    for axis in axes:
        n = x.shape[axis]
        matrix = np.exp((-2j if forward else 2j) * np.pi / n * np.outer(np.arange(n), np.arange(n)))
        matrix /= n ** FACTORS[normalization][not forward]
        out = np.moveaxis(np.tensordot(matrix, out, (1, axis)), 0, axis)
    return out


def c2c(X: Any, **attrs: Any) -> Any:
    return transform(X, **attrs).astype(X.dtype)


def r2c(X: Any, onesided: bool, **attrs: Any) -> Any:
    whole = transform(X, **attrs)
    last = attrs["axes"][-1]
    kept = whole.take(np.arange(X.shape[last] // 2 + 1), last) if onesided else whole
    return kept.astype(np.result_type(X.dtype, "complex64"))


def c2r(X: Any, last_dim_size: int = 0, *, axes: list[int], normalization: str, forward: bool) -> Any:
    """The whole spectrum, whose first and middle elements along the last axis count as real, transformed."""
    *others, last = axes
    x = transform(X, others, normalization, forward)
    n = last_dim_size or 2 * (X.shape[last] - 1)
    x = np.moveaxis(x, last, -1).copy()
    x[..., 0] = x[..., 0].real
    if n % 2 == 0:
        x[..., -1] = x[..., -1].real
    mirrored = x[..., 1 : (n + 1) // 2][..., ::-1].conj()
    whole = np.moveaxis(np.concatenate([x, mirrored], -1), -1, last)
    return transform(whole, [last], normalization, forward).real.astype(X.real.dtype)


def r2c_adjoint(X: Any, Like: Any, **attrs: Any) -> Any:
    """The real part of the transform of X with zeros after it."""
    full = np.zeros(Like.shape, X.dtype)
    full[tuple(map(slice, X.shape))] = X
    return transform(full, **attrs).real.astype(Like.dtype)


for shape, axes in (((4,), [0]), ((3, 5), [-1]), ((2, 3, 4), [0, 2]), ((1, 2), [1, 0])):
    for normalization in FACTORS if shape == (3, 5) else ["ortho"]:
        for forward in (True, False):
            attrs = {"axes": axes, "normalization": normalization, "forward": forward}
            add("fft_c2c", Sample({"X": data.complex(*shape)}, attrs, c2c))
            for onesided in (True, False):
                add("fft_r2c", Sample({"X": data(*shape)}, {**attrs, "onesided": onesided}, r2c))
            half = list(shape)
            half[axes[-1]] = half[axes[-1]] // 2 + 1
            add("fft_c2r", Sample({"X": data.complex(*half)}, {**attrs, "last_dim_size": shape[axes[-1]]}, c2r))
            add("fft_r2c_adjoint", Sample({"X": data.complex(*half), "Like": data(*shape)}, attrs, r2c_adjoint))
add("fft_c2r", Sample({"X": data.complex(2, 4)}, {"axes": [1], "normalization": "backward", "forward": False}, c2r))
add(
    "fft_c2r",
    Sample({"X": data.complex(2, 4)}, {"axes": [1], "normalization": "ortho", "forward": True, "last_dim_size": 7}, c2r),
)


def doubled(X: Any, Like: Any, axis: int = -1) -> Any:
    out, n = np.moveaxis(X.copy(), axis, 0), Like.shape[axis]
    for k in range(1, len(out)):
        if 2 * k != n:
            out[k] *= 2
    return np.moveaxis(out, 0, axis)


for n in (1, 2, 5, 6):
    add("double_inner", Sample({"X": data(2, n // 2 + 1), "Like": data(2, n)}, {}, doubled))
add("double_inner", Sample({"X": data.complex(3, 2), "Like": data(5, 2)}, {"axis": 0}, doubled))


def framed(X: Any, frame_length: int, hop_length: int, axis: int) -> Any:
    x = X if axis == 0 else np.moveaxis(X, -1, 0)
    parts = np.stack([x[s : s + frame_length] for s in range(0, len(x) - frame_length + 1, hop_length)])
    return parts if axis == 0 else np.moveaxis(parts, (0, 1), (-1, -2))


def overlapped(X: Any, hop_length: int, axis: int, Like: Any = None) -> Any:
    x = X if axis == 0 else np.moveaxis(X, (-1, -2), (0, 1))
    size = (len(x) - 1) * hop_length + x.shape[1] if Like is None else Like.shape[axis]
    out = np.zeros((size, *x.shape[2:]), X.dtype)
    for number, part in enumerate(x):
        out[number * hop_length : number * hop_length + len(part)] += part
    return out if axis == 0 else np.moveaxis(out, 0, -1)


for shape, length, hop in (((7,), 3, 2), ((2, 8), 4, 1), ((2, 3, 6), 2, 3), ((5, 1), 1, 1), ((2, 6), 6, 4)):
    for axis in (-1, 0):
        x = data(*shape) if axis else np.moveaxis(data(*shape), -1, 0).copy()
        frames = framed(x, length, hop, axis) if x.shape[axis] >= length else None
        if frames is None:
            continue
        add("frame", Sample({"X": x}, {"frame_length": length, "hop_length": hop, "axis": axis}, framed))
        add("overlap_add", Sample({"X": frames}, {"hop_length": hop, "axis": axis}, overlapped))
        add("overlap_like", Sample({"X": frames, "Like": x}, {"hop_length": hop, "axis": axis}, overlapped))
        add(
            "frame_like",
            Sample(
                {"X": x, "Like": frames},
                {"hop_length": hop, "axis": axis},
                lambda X, Like, hop_length, axis: framed(X, Like.shape[-2 if axis else 1], hop_length, axis),
            ),
        )


def stft(X: Any, Window: Any, n_fft: int, hop_length: int, normalized: bool, onesided: bool) -> Any:
    frames = framed(X, n_fft, hop_length, -1) * Window[:, None]
    return r2c(frames, onesided, axes=[1], normalization="ortho" if normalized else "backward", forward=True).astype(
        np.result_type(X.dtype, "complex64")
    )


for n_fft, hop, normalized, onesided in ((4, 2, False, True), (5, 1, True, True), (4, 3, True, False)):
    attrs = {"n_fft": n_fft, "hop_length": hop, "normalized": normalized, "onesided": onesided}
    add("stft", Sample({"X": data(2, 9), "Window": data(n_fft)}, attrs, stft))
