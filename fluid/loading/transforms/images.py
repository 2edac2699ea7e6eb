"""Changes of images: arrays ``[height, width]`` or ``[height, width, channels]`` of any element type."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ...errors import FluidTypeError, ProgramError

__all__ = ["CenterCrop", "Normalize", "Pad", "RandomCrop", "RandomFlip", "Resize", "ToFloat"]

Image = Any


def _pair(where: str, size: Any, least: int = 1) -> tuple[int, int]:
    """A height and a width, from one number or two."""
    pair = (size, size) if isinstance(size, (int, np.integer)) else tuple(size) if isinstance(size, Sequence) else ()
    if len(pair) != 2 or not all(isinstance(item, (int, np.integer)) and item >= least for item in pair):
        raise ProgramError(f"{where} should be a number, or height and width, at least {least}, not {size!r}")
    return int(pair[0]), int(pair[1])


def _image(where: str, image: Any) -> Any:
    """The image as an array; a `FluidTypeError` if it is no image."""
    array = np.asarray(image)
    if array.ndim not in (2, 3) or array.dtype.kind not in "buif":
        raise FluidTypeError(
            f"{where} takes an image, an array [height, width] or [height, width, channels], not {array.dtype}{list(array.shape)}"
        )
    return array


def _padded(array: Any, margins: tuple[tuple[int, int], tuple[int, int]], value: float) -> Any:
    return np.pad(array, (*margins, *((0, 0),) * (array.ndim - 2)), constant_values=value)


class ToFloat:
    """Convert images for nets: float32 ``[channels, height, width]``, integers divided by the greatest of their type.

    >>> image = np.full((4, 6, 3), 255, "uint8")
    >>> found = fluid.io.transforms.ToFloat()(image)
    >>> found.shape, found.dtype, float(found.max())
    ((3, 4, 6), dtype('float32'), 1.0)
    """

    def __call__(self, image: Image) -> Any:
        array = _image("ToFloat", image)
        planes = array[None] if array.ndim == 2 else array.transpose(2, 0, 1)
        result = np.ascontiguousarray(planes, np.float32)
        if array.dtype.kind in "iu":
            result *= np.float32(1.0 / np.iinfo(array.dtype).max)
        return result


class Normalize:
    """``(image - mean) / std`` for each channel of a float image ``[channels, height, width]``, such as `ToFloat` makes.

    Args:
        mean, std: a number, or one for each channel.

    >>> found = fluid.io.transforms.Normalize(mean=[0.5, 0.25], std=0.5)(np.ones((2, 1, 1), "float32"))
    >>> found.ravel()
    array([1. , 1.5], dtype=float32)
    """

    def __init__(self, mean: float | Sequence[float], std: float | Sequence[float]) -> None:
        self._mean, self._std = (np.atleast_1d(np.asarray(values, np.float32))[:, None, None] for values in (mean, std))
        if not (self._std > 0).all():
            raise ProgramError(f"Normalize: std should be above 0, not {std!r}")

    def __call__(self, image: Image) -> Any:
        array = np.asarray(image)
        counts = {len(values) for values in (self._mean, self._std)} - {1}
        if array.ndim != 3 or array.dtype.kind != "f" or not counts <= {array.shape[0]}:
            channels = f" of {', '.join(map(str, sorted(counts)))} channels" if counts else ""
            raise FluidTypeError(
                f"Normalize takes a float image [channels, height, width]{channels}, as ToFloat() makes it, not "
                f"{array.dtype}{list(array.shape)}"
            )
        return (array - self._mean) / self._std


class Pad:
    """Margins around an image.

    Args:
        margin: how many pixels, one number, or one above and below and one left and right.
        value: the value of the margin's pixels.

    >>> fluid.io.transforms.Pad((0, 1), value=7)(np.zeros((1, 2), int))
    array([[7, 0, 0, 7]])
    """

    def __init__(self, margin: int | tuple[int, int], value: float = 0) -> None:
        self._margin, self._value = _pair("Pad: margin", margin, 0), value

    def __call__(self, image: Image) -> Any:
        high, wide = self._margin
        return _padded(_image("Pad", image), ((high, high), (wide, wide)), self._value)


def _check_fits(where: str, array: Any, size: tuple[int, int]) -> None:
    if array.shape[0] < size[0] or array.shape[1] < size[1]:
        have = f"{array.shape[0]} x {array.shape[1]}"
        raise ProgramError(f"{where}: {size[0]} x {size[1]} pixels cannot be cut out of {have}; Pad or Resize comes before")


class CenterCrop:
    """The middle of an image.

    Args:
        size: the side of the square, or height and width.

    >>> fluid.io.transforms.CenterCrop(1)(np.arange(9).reshape(3, 3))
    array([[4]])
    """

    def __init__(self, size: int | tuple[int, int]) -> None:
        self._size = _pair("CenterCrop: size", size)

    def __call__(self, image: Image) -> Any:
        array = _image("CenterCrop", image)
        _check_fits("CenterCrop", array, self._size)
        top, left = ((have - want) // 2 for have, want in zip(array.shape, self._size, strict=False))
        return array[top : top + self._size[0], left : left + self._size[1]]


class RandomCrop:
    """A part of an image, at a random place.

    Args:
        size: the side of the square, or height and width.
        margin: how many pixels are put around the image before.
        value: the value of the margin's pixels.

    >>> crop = fluid.io.transforms.RandomCrop(2, margin=1)
    >>> crop(np.ones((2, 2)), np.random.default_rng(0))
    array([[1., 1.],
           [0., 0.]])
    """

    is_random = True

    def __init__(self, size: int | tuple[int, int], margin: int = 0, value: float = 0) -> None:
        self._size, self._margin, self._value = _pair("RandomCrop: size", size), _pair("RandomCrop: margin", margin, 0), value

    def __call__(self, image: Image, generator: np.random.Generator) -> Any:
        array, (high, wide) = _image("RandomCrop", image), self._margin
        if high or wide:
            array = _padded(array, ((high, high), (wide, wide)), self._value)
        _check_fits("RandomCrop", array, self._size)
        top, left = (int(generator.integers(have - want + 1)) for have, want in zip(array.shape, self._size, strict=False))
        return array[top : top + self._size[0], left : left + self._size[1]]


class RandomFlip:
    """An image, or its mirror image.

    Args:
        probability: of the mirror image.
        axis: 1: left and right change places; 0: above and below.

    >>> fluid.io.transforms.RandomFlip(probability=1.0)(np.arange(3)[None], np.random.default_rng(0))
    array([[2, 1, 0]])
    """

    is_random = True

    def __init__(self, probability: float = 0.5, axis: int = 1) -> None:
        if not 0 <= probability <= 1:
            raise ProgramError(f"RandomFlip: probability should be from 0 to 1, not {probability!r}")
        if axis not in (0, 1):
            raise ProgramError(f"RandomFlip: axis should be 1 (left and right) or 0 (above and below), not {axis!r}")
        self._probability, self._axis = probability, axis

    def __call__(self, image: Image, generator: np.random.Generator) -> Any:
        array = _image("RandomFlip", image)
        return np.flip(array, self._axis) if generator.random() < self._probability else array


class Resize:
    """An image of another size, interpolated between the four nearest pixels.

    The numbers equal ``layers.resize_bilinear(align_corners=False, align_mode=0)``. Where an image gets much smaller, pixels in
    between are skipped.

    Args:
        size: the side of the square, or height and width.

    >>> fluid.io.transforms.Resize((1, 2))(np.array([[0, 0, 4, 4], [2, 2, 6, 6]], "uint8"))
    array([[1, 5]], dtype=uint8)
    """

    def __init__(self, size: int | tuple[int, int]) -> None:
        self._size = _pair("Resize: size", size)

    def __call__(self, image: Image) -> Any:
        array = _image("Resize", image)
        if 0 in array.shape:
            raise ProgramError(f"Resize: an image of {list(array.shape)} has no pixels")
        values = array if array.dtype.kind == "f" else array.astype(np.float32)
        for axis, size in enumerate(self._size):
            values = _along(values, axis, size)
        if array.dtype.kind == "f":
            return values
        return values > 0.5 if array.dtype.kind == "b" else np.rint(values).astype(array.dtype)


def _along(values: Any, axis: int, size: int) -> Any:
    """Interpolate values along an axis to another size; pixels are areas."""
    have = values.shape[axis]
    if have == size:
        return values
    places = np.clip((np.arange(size) + 0.5) * (have / size) - 0.5, 0, have - 1)
    below = places.astype(np.int64)
    above = np.minimum(below + 1, have - 1)
    shape = [-1 if dimension == axis else 1 for dimension in range(values.ndim)]
    weight = (places - below).astype(values.dtype).reshape(shape)
    return np.take(values, below, axis) * (1 - weight) + np.take(values, above, axis) * weight
