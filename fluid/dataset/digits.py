"""1,797 handwritten digits, 8 x 8 pixels each: the "Optical Recognition of Handwritten Digits" images of UCI.

Image ``i`` of the file is a test image if ``i % 5 == 4`` (359 images) and a training image otherwise (1,438). The file is
ordered by writer: test images are not among the training images, but may be by the same writers.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from ..not_here import names_here
from ._files import Part, Reader, in_part, load

__all__ = ["arrays", "test", "train"]

__dir__ = names_here(__name__)


def arrays(part: Part = "all") -> tuple[Any, Any]:
    """``(images, labels)`` of a part.

    images: float32 ``[n, 1, 8, 8]`` from -1 (paper) to 1 (ink); labels: int64 ``[n, 1]`` from 0 to 9.

    Args:
        part: ``"train"``, ``"test"`` or ``"all"``.

    >>> images, labels = fluid.dataset.digits.arrays("test")
    >>> images.shape, labels.shape
    ((359, 1, 8, 8), (359, 1))
    """
    data = load("digits")
    rows = in_part(len(data["labels"]), part)
    images = data["images"][rows].astype(np.float32) / np.float32(8) - np.float32(1)
    return images[:, None], data["labels"][rows].astype(np.int64)[:, None]


def train() -> Reader:
    """Creates a reader of the training images: pairs of float32 ``[64]``, from -1 to 1, and an int label.

    >>> image, label = next(fluid.dataset.digits.train()())
    >>> image.shape, label
    ((64,), 0)
    """
    return _reader("train")


def test() -> Reader:
    """Creates a reader of the test images: pairs of float32 ``[64]``, from -1 to 1, and an int label.

    >>> sum(1 for sample in fluid.dataset.digits.test()())
    359
    """
    return _reader("test")


def _reader(part: Part) -> Reader:
    def read() -> Iterator[tuple[Any, int]]:
        images, labels = arrays(part)
        yield from zip(images.reshape(-1, 64), labels[:, 0].tolist(), strict=True)

    return read
