"""Fourier transforms, as products with matrices of sines and cosines."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...errors import FormatError
from ..builder import Builder
from ..node import OnnxNode
from ..table import imports

_LONGEST = 4096


def _check_length(length: int) -> None:
    if length > _LONGEST:
        raise FormatError(f"a transform of {length} elements is not supported; the most are {_LONGEST}")


def _matrices(b: Builder, length: int, count: int, onesided: bool, inverse: bool, dtype: Any) -> tuple[Any, Any]:
    """The cosine and sine matrices [elements, frequencies] of a transform."""
    _check_length(length)
    frequencies = length // 2 + 1 if onesided else length
    b.reserve(count, frequencies, itemsize=4 + 2 * dtype.itemsize)
    angles = 2.0 * np.pi * np.arange(length) / length * (1.0 if inverse else -1.0)
    scale = 1.0 / length if inverse else 1.0
    turns = np.arange(count, dtype=np.int32)[:, None] * np.arange(frequencies, dtype=np.int32)[None]
    turns %= length
    cosines, sines = ((wave(angles) * scale).astype(dtype) for wave in (np.cos, np.sin))
    return cosines[turns], sines[turns]


def _transformed(b: Builder, x: Any, length: int, axis: int, onesided: bool, inverse: bool) -> Any:
    """Transform along `axis`; the last dimension holds real and imaginary parts."""
    count = min(x.shape[axis], length)
    if count < x.shape[axis]:
        x = b.slice(x, axis, 0, count)
    cosines, sines = (b.constant(part) for part in _matrices(b, length, count, onesided, inverse, x.dtype.numpy))
    last = x.ndim - 1
    order = [n for n in range(last) if n != axis] + [axis]

    def part(place: int) -> Any:
        return b.transpose(b.squeeze(b.slice(x, last, place, place + 1), [last]), order)

    real = part(0)
    outs = [b.f.matmul_v2(real, cosines), b.f.matmul_v2(real, sines)]
    if x.shape[last] == 2:
        imaginary = part(1)
        outs = [outs[0] - b.f.matmul_v2(imaginary, sines), outs[1] + b.f.matmul_v2(imaginary, cosines)]
    back = [order.index(n) for n in range(last)]
    both = b.f.stack([b.transpose(out, back) for out in outs], axis=0)
    return b.transpose(both, [*range(1, last + 1), 0])


def _dft(b: Builder, node: OnnxNode, axis: int) -> Any:
    x = node[0]
    axis = axis + x.ndim if axis < 0 else axis
    length = node.constant_input(1, "its length")
    onesided, inverse = bool(node.int("onesided", 0)), bool(node.int("inverse", 0))
    if length is not None:
        length = int(np.reshape(length, ()))
    else:
        length = 2 * (x.shape[axis] - 1) if onesided and inverse else x.shape[axis]
    if length < 1:
        raise FormatError("the length is known only in a run")
    _check_length(length)
    if onesided and inverse:
        spectrum = _mirrored(b, x, axis, length)
        return b.slice(_transformed(b, spectrum, length, axis, False, True), x.ndim - 1, 0, 1)
    return _transformed(b, x, length, axis, onesided, inverse)


def _mirrored(b: Builder, x: Any, axis: int, length: int) -> Any:
    """Complete the frequencies of a real signal; `x` has the first half."""
    mirrored_places = list(range(1, (length + 1) // 2))[::-1]
    mirrored = b.f.gather(x, b.constant(np.array(mirrored_places, np.int64)), axis=axis)
    turned = b.f.elementwise_mul(mirrored, b.constant(np.array([1.0, -1.0], x.dtype.numpy)))
    return b.f.concat([x, turned], axis=axis)


@imports("DFT", since=17)
def dft(b: Builder, node: OnnxNode) -> Any:
    return _dft(b, node, node.int("axis", 1))


@imports("DFT", since=20)
def dft_20(b: Builder, node: OnnxNode) -> Any:
    axis = node.constant_input(2, "its axis")
    return _dft(b, node, -2 if axis is None else int(np.reshape(axis, ())))


@imports("STFT")
def stft(b: Builder, node: OnnxNode) -> Any:
    signal, window = node[0], node.get(2)
    step = int(np.reshape(node.constant_input(1, "its step"), ()))
    length = node.constant_input(3, "its length")
    length = int(np.reshape(length, ())) if length is not None else window.shape[0] if window is not None else 0
    total = signal.shape[1]
    if total < 0 or length < 1 or step < 1 or length > total:
        raise FormatError("the lengths of the signal and of its parts should be known beforehand")
    count = (total - length) // step + 1
    b.reserve(count, length)
    places = np.arange(count)[:, None] * step + np.arange(length)[None]
    frames = b.f.gather(signal, b.constant(places.reshape(-1).astype(np.int64, copy=False)), axis=1)
    wide = signal.ndim == 3
    frames = b.f.reshape2(frames, shape=[0, count, length, signal.shape[2] if wide else 1])
    if window is not None:
        frames = b.f.elementwise_mul(frames, b.ones_like_axes(window, 0, 1))
    return _transformed(b, frames, length, 2, bool(node.int("onesided", 1)), False)


@imports("MelWeightMatrix", trains=False)
def mel_weight_matrix(b: Builder, node: OnnxNode) -> Any:
    names = ("the number of bands", "the length of the transform", "the sample rate", "the lowest and", "the highest frequency")
    bands, length, rate, lowest, highest = (float(np.reshape(node.constant_input(n, name), ())) for n, name in enumerate(names))
    count = int(length) // 2 + 1
    b.reserve(int(bands) + 2, itemsize=1024)  # a band takes as long as a kilobyte does
    b.reserve(count, int(bands) + 16, itemsize=4)
    low, high = (2595.0 * np.log10(1.0 + edge / 700.0) for edge in (lowest, highest))
    step = (high - low) / (bands + 2)
    edges = 700.0 * (np.power(10.0, (np.arange(int(bands) + 2) * step + low) / 2595.0) - 1.0)
    bins = np.floor((length + 1) * edges / rate).astype(int)
    if bands >= 1 and not 0 <= bins.min() <= bins[:-1].max() < count >= bins[-1]:
        raise FormatError(f"its bands begin at {bins.min()} and end at {bins.max()}, of {count} frequencies")
    out = np.zeros((count, int(bands)), np.float32)
    for band in range(int(bands)):
        left, centre, right = bins[band : band + 3]
        if centre == left:
            out[centre, band] = 1.0
        else:
            out[left : centre + 1, band] = np.arange(centre + 1 - left) / (centre - left)
        if centre < right:
            out[centre:right, band] = np.arange(right - centre, 0, -1) / (right - centre)
    return out
