"""Convolutions and pools of volumes in native code, beside numpy."""

from __future__ import annotations

from typing import Any

import numpy as np
from beside_numpy import assert_alike, assert_layer_is_native
from checks import each

import fluid
from fluid import layers
from fluid.ir.program import Variable


@each("groups", [1, 2])
@each("taps, dilation", [(1, 1), (2, 1), (2, 2), (3, 1), (3, 2)])
@each("padding", [0, 1, 2])
@each("stride", [1, 2, 3])
def test_convolutions(stride: int, padding: int, taps: int, dilation: int, groups: int) -> None:
    def layer(x: Variable) -> Variable:
        return layers.conv3d(x, 6, taps, [stride, 1, stride], padding, [dilation, 1, dilation], groups, bias_attr=False)

    assert_layer_is_native((2, 4, 5, 6, 7), layer)


@each("data_format", ["NCDHW", "NDHWC"])
@each("padding", ["SAME", "VALID", [1, 2, 0, 1, 2, 0]])
def test_layouts_and_paddings_of_convolutions(data_format: str, padding: Any) -> None:
    shape = (2, 3, 5, 4, 6) if data_format == "NCDHW" else (2, 5, 4, 6, 3)
    assert_layer_is_native(shape, lambda x: layers.relu(layers.conv3d(x, 5, 3, 2, padding, data_format=data_format)))


@each("stride", [1, 2])
@each("padding", [0, 1])
def test_transposed_convolutions(padding: int, stride: int) -> None:
    assert_layer_is_native((2, 4, 3, 4, 5), lambda x: layers.conv3d_transpose(x, 6, None, 3, padding, stride, bias_attr=False))


@each("kind", ["max", "avg"])
@each("ceil_mode", [False, True])
@each("window, padding", [(2, 0), (2, 1), (3, 0), (3, 1)])
@each("stride", [1, 2, 3])
def test_pools(stride: int, window: int, padding: int, ceil_mode: bool, kind: str) -> None:
    """Of equal maxima in a window, the first one gets the gradient."""
    assert_layer_is_native(
        (2, 3, 7, 6, 7), lambda x: layers.pool3d(x, window, kind, stride, padding, ceil_mode=ceil_mode), steps=1.0, tolerance=1e-4
    )


@each(
    "padding, size, stride, ceil_mode",
    [(1, [4, 2, 3], 2, False), (0, [4, 2, 3], 2, True), ([0, 1, 0], 2, 3, True), (0, 1, 4, True)],
)
@each("channels", [1, 8])
def test_special_numbers_pass_max_pools(channels: int, padding: Any, size: Any, stride: int, ceil_mode: bool) -> None:
    """Windows in part in the padding may hold only -infinity; one of its elements gets the gradient."""
    shape = (2, channels, 6, 5, 7)
    for numbers in ([-np.inf], [np.nan, np.inf, -np.inf, 1.0], [-np.inf, -1e38]):

        def build() -> list[Variable]:
            x = fluid.data("x", shape, "float32")
            x.stop_gradient = False
            out = layers.pool3d(x, size, "max", stride, padding, ceil_mode=ceil_mode)
            return [out, *fluid.gradients([out], [x])]

        feed = {"x": np.random.default_rng(0).choice(np.array(numbers, "float32"), shape)}
        assert_alike(build, feed)


def test_averages_over_whole_windows() -> None:
    assert_layer_is_native((2, 3, 5, 6, 7), lambda x: layers.pool3d(x, 3, "avg", 2, 1, exclusive=False))


def test_a_net_of_volumes_with_batch_norm() -> None:
    def net(x: Variable) -> Variable:
        hidden = layers.pool3d(layers.batch_norm(layers.conv3d(x, 6, 3, padding=1, bias_attr=False), act="relu"), 2, "max", 2)
        return layers.fc(layers.conv3d(hidden, 5, 3, padding=1), 4)

    assert_layer_is_native((3, 2, 6, 8, 10), net)


@each("axis", [1, -1])
@each("groups", [1, 2, 3, 12])
def test_the_first_of_equal_channels_gets_the_gradient_of_maxout(groups: int, axis: int) -> None:
    shape = (2, 12, 3, 5) if axis == 1 else (2, 3, 5, 12)
    assert_layer_is_native(shape, lambda x: layers.maxout(x, groups, axis=axis), steps=1.0)


@each("data_format", ["NCDHW", "NDHWC"])
def test_a_nan_gets_the_gradient_of_a_maximum(data_format: str) -> None:
    values = np.random.default_rng(0).choice([np.nan, 1.0, 2.0, 3.0], (2, 4, 3, 4, 5), p=[0.1, 0.3, 0.3, 0.3]).astype("float32")

    def build() -> list[Variable]:
        x = fluid.data("x", list(values.shape))
        x.stop_gradient = False
        return fluid.gradients([layers.reduce_sum(layers.pool3d(x, global_pooling=True, data_format=data_format))], [x])

    assert_alike(build, {"x": values})
