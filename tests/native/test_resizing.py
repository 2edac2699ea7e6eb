"""Resized images in native code beside numpy: copies, gathered rows, and products with a matrix."""

from __future__ import annotations

from typing import Any

import numpy as np
from beside_numpy import assert_alike, assert_layer_is_native, results_of
from checks import each

import fluid
from fluid import layers
from fluid.ir.program import Variable

SIZES = (((17, 33), (34, 99)), ((17, 33), (40, 20)), ((3, 5), (6, 10)), ((5, 300), (7, 310)), ((20, 1), (1, 3)))


@each("method", ["NEAREST", "BILINEAR"])
@each("aligned", [False, True])
@each("is_filtered", [False, True])
def test_resized_images_and_their_gradients_are_those_of_numpy(is_filtered: bool, aligned: bool, method: str) -> None:
    """Images come from memory with channels first, or from a convolution, with channels last."""
    for source, target in SIZES[:3]:

        def layer(x: Variable, target: Any = target) -> Variable:
            if is_filtered:
                x = layers.conv2d(x, 18, 1, bias_attr=False)
            return layers.image_resize(x, target, resample=method, align_corners=aligned, align_mode=0)

        assert_layer_is_native((2, 3, *source), layer)


@each("aligned", [False, True])
def test_nearest_elements_are_copies(aligned: bool) -> None:
    """An infinity stays where it is."""
    for source, target in SIZES:
        for dtype in ("float32", "float64"):
            x = np.random.default_rng(0).standard_normal((60, 3, *source)).astype(dtype)
            x[0, 1, -1, -1], x[1, 2, 0, 0], x[0, 0, 0, 0] = np.inf, np.nan, -0.0

            def build(x: Any = x, target: Any = target) -> list[Variable]:
                image = fluid.data("x", list(x.shape), x.dtype.name)
                return [layers.resize_nearest(image, target, align_corners=aligned)]

            assert_alike(build, {"x": x}, tolerance=0)
            (result,) = results_of(build, {"x": x}, native=True).values()
            infinite = np.isinf(x).sum(axis=(2, 3)) > 0
            np.testing.assert_array_equal(np.isnan(result).any(axis=(2, 3)), np.isnan(x).any(axis=(2, 3)))
            np.testing.assert_array_equal(np.isinf(result).any(axis=(2, 3)) <= infinite, True)


def test_linear_interpolation_reads_two_elements() -> None:
    """Far elements do not count, even if they are infinite."""
    x = np.zeros((8, 3, 40, 20), np.float32)
    x[0, 0, 0, 0] = np.inf

    def build() -> list[Variable]:
        return [layers.resize_bilinear(fluid.data("x", list(x.shape)), (80, 30), align_corners=False)]

    (result,) = results_of(build, {"x": x}, native=True).values()
    np.testing.assert_array_equal(result[:, :, 5:, 5:], 0)
