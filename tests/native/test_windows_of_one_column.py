"""Pools whose windows are one column wide, where the columns of images with few channels are computed as channels."""

from __future__ import annotations

from beside_numpy import assert_layer_is_native
from checks import each

from fluid import layers
from fluid.executor.native.emitter import FLOAT
from fluid.executor.native.graph import PlanArray, Windows
from fluid.executor.native.image_lowering import _columns_as_channels
from fluid.ir.program import Variable


@each("kind", ["max", "avg"])
@each("channels", [1, 3, 9])
@each("stride, padding", [(1, 1), (2, 0), (3, 1)])
def test_between_convolutions(kind: str, channels: int, stride: int, padding: int) -> None:
    def net(x: Variable) -> Variable:
        hidden = layers.conv2d(x, channels, 3, padding=1)
        pooled = layers.pool2d(hidden, [3, 1], kind, [stride, 1], [padding, 0])
        return layers.conv2d(pooled, 2, 3, padding=1)

    assert_layer_is_native((2, 2, 9, 11), net, tolerance=1e-4)


@each("shape", [(2, 1, 9, 11), (2, 3, 9, 1), (1, 1, 3, 40)])
def test_of_arrays(shape: tuple[int, ...]) -> None:
    assert_layer_is_native(shape, lambda x: layers.pool2d(x, [3, 1], "avg", 1, [1, 0], exclusive=False))


def test_a_response_is_normalized_over_channels() -> None:
    """`lrn` pools over channels, as over rows of an image of one channel."""
    assert_layer_is_native((2, 12, 5, 7), lambda x: layers.lrn(x, 5, 1.0, 0.5, 0.75), tolerance=1e-4)


def test_columns_are_channels_if_these_are_few() -> None:
    windows = Windows((5, 1), (1, 1), ((2, 2), (0, 0)))
    few, many = (PlanArray((2, 9, 35, channels), FLOAT, ("x", 0)) for channels in (1, 16))
    assert _columns_as_channels(few, windows).shape == (2, 9, 1, 35)
    assert _columns_as_channels(many, windows) is many
    assert _columns_as_channels(few, Windows((5, 2), (1, 1), ((2, 2), (0, 0)))) is few
