"""Fourier transforms, and signals as overlapping frames.

A transform is linear, so the rules are its adjoint: the transform in the other direction, with the factor of this one.
"""

from __future__ import annotations

from typing import Any

from ..errors import ElementTypeError, InferenceError
from ..opdef.registry import EXPLICIT, LINEAR, Attr, ShapeOnly, choice, define, least, required
from ..values.spec import Spec
from ..values.types import complex_of, real_of
from .manipulation import LIKE
from .shapes import different_axes, may_equal

ADJOINT_FACTOR = {"backward": "forward", "ortho": "ortho", "forward": "backward"}
"""Normalization -> that under which a transform in the other direction has the same factor."""
_TRANSFORM: dict[str, Any] = {
    "axes": required("longs"),
    "normalization": choice("backward", "ortho", "forward")._replace(required=True),
    "forward": required("bool"),
}


def _axes(X: Spec, axes: list[int]) -> list[int]:
    normalized = different_axes("axes", axes, X.ndim)
    if not normalized:
        raise InferenceError(f"axes {axes} should name an axis of X {X} at least")
    if any(X.shape[axis] == 0 for axis in normalized):
        raise InferenceError(f"X is {X}; along axes {axes} there should be elements to transform")
    return normalized


def _c2c(X: Spec, axes: list[int]) -> Spec:
    _axes(X, axes)
    return X


def _back(attrs: dict[str, Any]) -> dict[str, Any]:
    """The attributes of the adjoint."""
    factor = ADJOINT_FACTOR[attrs["normalization"]]
    return {"axes": attrs["axes"], "normalization": factor, "forward": not attrs["forward"]}


@define("fft_c2c(X: complex) -> Out", infer=_c2c, complex_rule=EXPLICIT, **_TRANSFORM)
def fft_c2c(f: Any, dOut: Any, attrs: dict[str, Any]) -> Any:
    """The discrete Fourier transform of X along `axes`, or with `forward` off its inverse.

    The factor, one over the number n of elements, belongs to the inverse under the `normalization` "backward", to the transform
    under "forward", and half (one over the root of n) to each under "ortho".
    """
    return {"X": f.fft_c2c(dOut, **_back(attrs))}


def half(size: int) -> int:
    """The number of elements of a one-sided transform; -1 if the size is unknown."""
    return size // 2 + 1 if size >= 0 else -1


def _r2c(X: Spec, axes: list[int], onesided: bool) -> Spec:
    last = _axes(X, axes)[-1]
    if complex_of(X.dtype) is X.dtype:
        raise ElementTypeError(f"fft_r2c: X is {X}; it should be of float32 or float64")
    shape = tuple(half(size) if onesided and axis == last else size for axis, size in enumerate(X.shape))
    return Spec(shape, complex_of(X.dtype))


@define("fft_r2c(X: real) -> Out", infer=_r2c, complex_rule=EXPLICIT, **_TRANSFORM, onesided=required("bool"))
def fft_r2c(f: Any, X: ShapeOnly, dOut: Any, attrs: dict[str, Any]) -> Any:
    """The Fourier transform of real numbers, as `fft_c2c`; if `onesided`, only the first n / 2 + 1 elements along the last of
    `axes`: the others are their conjugates."""
    return {"X": _back_to_real(f, dOut, X, _back(attrs), attrs["onesided"])}


def _back_to_real(f: Any, dOut: Any, X: Any, adjoint: dict[str, Any], onesided: bool) -> Any:
    """The gradient of a real signal X, from the gradient of its transform and the attributes of the adjoint."""
    return f.fft_r2c_adjoint(dOut, X, **adjoint) if onesided else f.real(f.fft_c2c(dOut, **adjoint))


def _r2c_adjoint(X: Spec, Like: Spec, axes: list[int]) -> Spec:
    spectrum = _r2c(Like, axes, onesided=True)
    if not may_equal(X.shape, spectrum.shape) or X.dtype is not spectrum.dtype:
        raise InferenceError(f"fft_r2c_adjoint: X is {X}; it should be the one-sided transform {spectrum} of Like {Like}")
    return Like


@define(
    "fft_r2c_adjoint(X: complex, Like: real) -> Out",
    infer=_r2c_adjoint,
    wrt=("X",),
    shape_only=("Like",),
    complex_rule=EXPLICIT,
    **_TRANSFORM,
)
def fft_r2c_adjoint(f: Any, dOut: Any, attrs: dict[str, Any]) -> Any:
    """The real part of the Fourier transform of X, with zeros added along the last of `axes` up to the length of Like: the
    transpose of a one-sided `fft_r2c`."""
    return {"X": f.fft_r2c(dOut, **_back(attrs), onesided=True)}


def _c2r(X: Spec, axes: list[int], last_dim_size: int) -> Spec:
    last = _axes(X, axes)[-1]
    size = X.shape[last]
    signal = last_dim_size or (2 * (size - 1) if size >= 0 else -1)
    if signal == 0 or size not in (-1, half(signal)):
        raise InferenceError(
            f"fft_c2r: X is {X}; along axis {last} it should have last_dim_size {last_dim_size} / 2 + 1 elements"
        )
    return Spec(tuple(signal if axis == last else n for axis, n in enumerate(X.shape)), real_of(X.dtype))


@define(
    "fft_c2r(X: complex) -> Out",
    infer=_c2r,
    complex_rule=EXPLICIT,
    **_TRANSFORM,
    last_dim_size=least(0, Attr("long", 0)),
)
def fft_c2r(f: Any, dOut: Any, attrs: dict[str, Any]) -> Any:
    """The real numbers whose one-sided transform is X, `last_dim_size` of them along the last of `axes`; 0 stands for the even
    number that X has room for."""
    half = f.fft_r2c(dOut, **_back(attrs), onesided=True)
    return {"X": f.double_inner(half, dOut, axis=attrs["axes"][-1])}


@define("double_inner(X, Like) -> Out", infer=lambda X: X, wrt=("X",), shape_only=("Like",), complex_rule=LINEAR, axis=-1)
def double_inner(f: Any, X: ShapeOnly, Like: ShapeOnly, dOut: Any, axis: int) -> Any:
    """A one-sided transform, of a signal as long as Like, with those elements doubled that stand for two of the whole one."""
    return {"X": f.double_inner(dOut, Like, axis=axis)}


# ---------------------------------------------------------------------------------------------------------------- frames
def frame_axis(axis: int, ndim: int) -> int:
    """Where the frames and their elements stand: 0, or -1 for the last dimension; `InferenceError` for any other."""
    if axis not in (0, -1) or not ndim:
        raise InferenceError(f"axis {axis} should be 0, the first dimension, or -1, the last one, of 1 at least")
    return axis


def _framed(X: Spec, frame_length: int, hop_length: int, axis: int) -> Spec:
    frame_axis(axis, X.ndim)
    size = X.shape[axis]
    if 0 <= size < frame_length:
        raise InferenceError(f"X is {X}; its axis {axis} should have a frame at least, of frame_length {frame_length}")
    count = -1 if size < 0 else 1 + (size - frame_length) // hop_length
    return X.with_shape((*X.shape[:-1], frame_length, count) if axis else (count, frame_length, *X.shape[1:]))


_HOP: dict[str, Any] = {"hop_length": least(1, required("int")), "axis": required("int")}


@define("frame(X) -> Out", infer=_framed, complex_rule=LINEAR, frame_length=least(1, required("int")), **_HOP)
def frame(f: Any, X: ShapeOnly, dOut: Any, hop_length: int, axis: int) -> Any:
    """Parts of X of `frame_length` elements along its last dimension, each `hop_length` after the one before: [...,
    frame_length, frames]; with axis 0 along its first dimension, as [frames, frame_length, ...]."""
    return {"X": f.overlap_like(dOut, X, hop_length=hop_length, axis=axis)}


def _overlapped(X: Spec, hop_length: int, axis: int) -> Spec:
    if X.ndim < 2:
        raise InferenceError(f"overlap_add: X is {X}; it should have two dimensions at least, of frames and of their elements")
    frame_axis(axis, X.ndim)
    length, count = X.shape[-2:] if axis else X.shape[1::-1]
    size = -1 if -1 in (length, count) else (count - 1) * hop_length + length
    if count == 0:
        raise InferenceError(f"overlap_add: X is {X}; it should have a frame at least")
    return X.with_shape((*X.shape[:-2], size) if axis else (size, *X.shape[2:]))


@define("overlap_add(X) -> Out", infer=_overlapped, complex_rule=LINEAR, **_HOP)
def overlap_add(f: Any, X: ShapeOnly, dOut: Any, hop_length: int, axis: int) -> Any:
    """The sum of frames, each `hop_length` after the one before; they lie as `frame` leaves them."""
    return {"X": f.frame_like(dOut, X, hop_length=hop_length, axis=axis)}


def _check_frames(frames: Spec, signal: Spec, hop_length: int, axis: int) -> None:
    """`InferenceError` unless a signal has room for frames, in the dimensions that they share."""
    frame_axis(axis, frames.ndim)
    length, count = frames.shape[-2:] if axis else frames.shape[1::-1]
    shared = (frames.shape[:-2], signal.shape[:-1]) if axis else (frames.shape[2:], signal.shape[1:])
    size = signal.shape[-1 if axis else 0] if signal.ndim else 0
    fits = -1 in (length, count, size) or (count - 1) * hop_length + length <= size
    if frames.ndim != signal.ndim + 1 or not fits or not may_equal(*shared):
        raise InferenceError(f"{frames} are no frames, each {hop_length} after the one before along axis {axis}, of {signal}")


def _overlap_like(X: Spec, Like: Spec, hop_length: int, axis: int) -> Spec:
    _check_frames(X, Like, hop_length, axis)
    return X.with_shape(Like.shape)


def _frame_like(X: Spec, Like: Spec, hop_length: int, axis: int) -> Spec:
    _check_frames(Like, X, hop_length, axis)
    return X.with_shape(Like.shape)


@define("overlap_like(X, Like) -> Out", **LIKE | {"infer": _overlap_like}, complex_rule=LINEAR, **_HOP)
def overlap_like(f: Any, X: ShapeOnly, dOut: Any, hop_length: int, axis: int) -> Any:
    """As `overlap_add`, with zeros behind the last frame, to the shape of Like: the transpose of `frame`."""
    return {"X": f.frame_like(dOut, X, hop_length=hop_length, axis=axis)}


@define("frame_like(X, Like) -> Out", **LIKE | {"infer": _frame_like}, complex_rule=LINEAR, **_HOP)
def frame_like(f: Any, X: ShapeOnly, dOut: Any, hop_length: int, axis: int) -> Any:
    """As `frame`, with the number and length of the frames in Like: the transpose of `overlap_add`."""
    return {"X": f.overlap_like(dOut, X, hop_length=hop_length, axis=axis)}


def _stft(X: Spec, Window: Spec, n_fft: int, hop_length: int, onesided: bool) -> Spec:
    if X.ndim != 2 or not may_equal(Window.shape, (n_fft,)) or X.dtype is not Window.dtype:
        raise InferenceError(f"stft: X is {X} and Window is {Window}; they should be of one type, [batch, length] and [{n_fft}]")
    frames = _framed(X, n_fft, hop_length, -1)
    return _r2c(frames, [1], onesided)


@define(
    "stft(X: real, Window: real) -> Out",
    infer=_stft,
    complex_rule=EXPLICIT,
    n_fft=least(1, required("int")),
    hop_length=least(1, required("int")),
    normalized=required("bool"),
    onesided=required("bool"),
)
def stft(f: Any, X: Any, Window: Any, dOut: Any, n_fft: int, hop_length: int, normalized: bool, onesided: bool) -> Any:
    """The Fourier transforms [batch, frequencies, frames] of the frames of X, of `n_fft` elements, each times Window.

    If `normalized`, they are divided by the root of `n_fft`; if `onesided`, there are ``n_fft / 2 + 1`` frequencies.
    """
    frames = f.frame(X, frame_length=n_fft, hop_length=hop_length, axis=-1)
    adjoint = {"axes": [1], "normalization": "ortho" if normalized else "forward", "forward": False}
    windowed = _back_to_real(f, dOut, frames, adjoint, onesided)
    return {
        "X": lambda: f.overlap_like(f.elementwise_mul(windowed, Window, axis=1), X, hop_length=hop_length, axis=-1),
        "Window": lambda: f.sum_to(windowed * frames, Window, axis=1),
    }
