"""Changes of images: arrays ``[height, width]`` or ``[height, width, channels]`` of any element type."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ...errors import FluidTypeError, ProgramError

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


class RandomResizedCrop:
    """A random part of an image, of random size and proportions, resized.

    Args:
        size: the side of the square, or height and width, of the result.
        scale: the least and the greatest share of the image's area.
        ratio: the least and the greatest width per height.

    Ten draws may fail where an image is narrow; then the middle of the image is taken, as in torchvision.

    >>> crop = fluid.io.transforms.RandomResizedCrop((2, 3))
    >>> crop(np.zeros((8, 8, 3), "uint8"), np.random.default_rng(0)).shape
    (2, 3, 3)
    """

    is_random = True

    def __init__(
        self,
        size: int | tuple[int, int],
        scale: tuple[float, float] = (0.08, 1.0),
        ratio: tuple[float, float] = (3 / 4, 4 / 3),
    ) -> None:
        for name, (least, greatest) in (("scale", scale), ("ratio", ratio)):
            if not 0 < least <= greatest or (name == "scale" and greatest > 1):
                raise ProgramError(
                    f"RandomResizedCrop: {name} should be two numbers above 0, the least first, not {(least, greatest)}"
                )
        self._resize, self._scale, self._ratio = Resize(size), scale, ratio

    def __call__(self, image: Image, generator: np.random.Generator) -> Any:
        array = _image("RandomResizedCrop", image)
        height, width = array.shape[:2]
        for _ in range(10):
            area = height * width * generator.uniform(*self._scale)
            ratio = np.exp(generator.uniform(*np.log(self._ratio)))
            wide, high = round(float(np.sqrt(area * ratio))), round(float(np.sqrt(area / ratio)))
            if 0 < wide <= width and 0 < high <= height:
                top, left = (int(generator.integers(have - want + 1)) for have, want in ((height, high), (width, wide)))
                return self._resize(array[top : top + high, left : left + wide])
        least, greatest = self._ratio
        wide = min(width, max(round(height * greatest), 1))
        high = min(height, max(round(width / least), 1))
        top, left = (height - high) // 2, (width - wide) // 2
        return self._resize(array[top : top + high, left : left + wide])


class RandomRotation:
    """An image turned around its middle by a random angle, interpolated between the four nearest pixels.

    Args:
        degrees: the greatest angle, to either side; or the least and the greatest, against the clock.
        value: the value of pixels from outside the image.

    >>> turn = fluid.io.transforms.RandomRotation((90, 90))
    >>> turn(np.array([[1, 2], [3, 4]], "uint8"), np.random.default_rng(0))
    array([[2, 4],
           [1, 3]], dtype=uint8)
    """

    is_random = True

    def __init__(self, degrees: float | tuple[float, float], value: float = 0) -> None:
        limits = (-degrees, degrees) if isinstance(degrees, (int, float)) else tuple(degrees)
        if len(limits) != 2 or not limits[0] <= limits[1]:
            raise ProgramError(
                f"RandomRotation: degrees should be a number, or the least and the greatest angle, not {degrees!r}"
            )
        self._least, self._greatest, self._value = limits[0], limits[1], value

    def __call__(self, image: Image, generator: np.random.Generator) -> Any:
        array = _image("RandomRotation", image)
        return _rotated(array, float(generator.uniform(self._least, self._greatest)), self._value)


def _rotated(array: Any, degrees: float, value: float) -> Any:
    """An image turned against the clock around its middle."""
    height, width = array.shape[:2]
    angle = np.deg2rad(degrees)
    rows, columns = np.arange(height)[:, None] - (height - 1) / 2, np.arange(width) - (width - 1) / 2
    from_row = np.cos(angle) * rows + np.sin(angle) * columns + (height - 1) / 2
    from_column = np.cos(angle) * columns - np.sin(angle) * rows + (width - 1) / 2
    padded = np.full((height + 2, width + 2, *array.shape[2:]), value, np.float32)  # margins, for pixels from outside
    padded[1:-1, 1:-1] = array
    row, column = np.clip(from_row + 1, 0, height + 1), np.clip(from_column + 1, 0, width + 1)
    row, column = np.round(row, 6), np.round(column, 6)  # quarter turns meet pixels
    top, left = np.minimum(row.astype(int), height), np.minimum(column.astype(int), width)
    down, right = (row - top)[(...,) + (None,) * (array.ndim - 2)], (column - left)[(...,) + (None,) * (array.ndim - 2)]
    above = padded[top, left] * (1 - right) + padded[top, left + 1] * right
    below = padded[top + 1, left] * (1 - right) + padded[top + 1, left + 1] * right
    return _as_type_of(array, above * (1 - down) + below * down)


def _as_type_of(array: Any, values: Any) -> Any:
    """Floats as pixels of the type of an image: integers are rounded, and cut at the limits of their type."""
    if array.dtype.kind == "b":
        return values > 0.5
    if array.dtype.kind in "iu":
        limits = np.iinfo(array.dtype)
        values = np.clip(np.rint(values), limits.min, limits.max)
    return values.astype(array.dtype)


class ColorJitter:
    """Random changes of brightness, contrast and saturation, in this order.

    Args:
        brightness, contrast, saturation: the greatest relative change: 0.4 draws a factor from 0.6 to 1.4; 0 for none.

    Contrast is around the mean grey of the image, saturation around the grey of each pixel, by the weights of ITU-R BT.601.

    >>> jitter = fluid.io.transforms.ColorJitter(brightness=0.5)
    >>> jitter(np.full((1, 1, 3), 100, "uint8"), np.random.default_rng(0))
    array([[[114, 114, 114]]], dtype=uint8)
    """

    is_random = True

    def __init__(self, brightness: float = 0, contrast: float = 0, saturation: float = 0) -> None:
        for name, change in (("brightness", brightness), ("contrast", contrast), ("saturation", saturation)):
            if not 0 <= change <= 1:
                raise ProgramError(f"ColorJitter: {name} should be from 0 to 1, not {change!r}")
        self._changes = brightness, contrast, saturation

    def __call__(self, image: Image, generator: np.random.Generator) -> Any:
        array = _image("ColorJitter", image)
        if array.ndim != 3 or array.shape[2] != 3:
            raise FluidTypeError(f"ColorJitter takes an image [height, width, 3], not {list(array.shape)}")
        brightness, contrast, saturation = (float(generator.uniform(1 - change, 1 + change)) for change in self._changes)
        greatest = 1.0 if array.dtype.kind == "f" else float(np.iinfo(array.dtype).max)
        values = np.clip(array.astype(np.float32) * brightness, 0, greatest)
        mean = (values @ _GREY).mean()
        values = np.clip(mean + (values - mean) * contrast, 0, greatest)
        grey = (values @ _GREY)[:, :, None]
        return _as_type_of(array, np.clip(grey + (values - grey) * saturation, 0, greatest))


_GREY = np.array([0.299, 0.587, 0.114], np.float32)
