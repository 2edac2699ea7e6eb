"""Convolutions over sequences [N, C, L] in native code: as convolutions of images of one row, with norms and pools between."""

from __future__ import annotations

from typing import Any

from beside_numpy import assert_layer_is_native
from checks import each

from fluid import layers
from fluid.executor.native.emitter import FLOAT
from fluid.executor.native.graph import ChannelsFirst, PlanArray, channels_first, reshaped
from fluid.ir.program import Variable


def convolved(x: Variable, filters: int, **options: Any) -> Variable:
    """A convolution of three taps over a sequence."""
    image = layers.conv2d(layers.unsqueeze(x, [2]), filters, [1, 3], padding=[0, 1], **options)
    return layers.squeeze(image, [2])


@each("shape", [(3, 4, 17), (1, 4, 17), (3, 1, 17), (3, 4, 1)])
def test_batch_norm_between_convolutions(shape: tuple[int, ...]) -> None:
    def net(x: Variable) -> Variable:
        hidden = layers.batch_norm(convolved(x, 9, bias_attr=False), act="relu")
        return layers.relu(layers.batch_norm(convolved(hidden, 9, bias_attr=False)) + hidden)

    assert_layer_is_native(shape, net, tolerance=1e-4)


@each("axis", [0, 1, 2])
def test_what_reads_the_results_along_an_axis(axis: int) -> None:
    def net(x: Variable) -> Variable:
        hidden = convolved(x, 6, act="tanh")
        parts = [layers.reduce_sum(hidden, axis), layers.reduce_max(layers.softmax(hidden, axis=axis), axis)]
        return layers.concat([layers.reshape(part, [-1]) for part in parts], 0)

    assert_layer_is_native((3, 4, 10), net)


def test_products_and_parts_of_the_results() -> None:
    def net(x: Variable) -> Variable:
        hidden = convolved(x, 6)
        products = layers.matmul(hidden, hidden, transpose_y=True)
        part = layers.slice(layers.transpose(hidden, [0, 2, 1]), [1], [2], [8])
        return layers.matmul(part, layers.concat([products, products * 2.0], 2))

    assert_layer_is_native((3, 4, 10), net, tolerance=1e-4)


def test_a_reshape_that_drops_ones_keeps_channels_last() -> None:
    """Otherwise each norm between convolutions over sequences goes through memory in steps of a row."""
    images = channels_first(PlanArray((2, 1, 7, 3), FLOAT, ("x", 0)))
    sequences = reshaped(images, (2, 3, 7))
    assert isinstance(sequences, ChannelsFirst) and sequences.shape == (2, 3, 7)
    assert isinstance(reshaped(sequences, (2, 3, 7, 1)), ChannelsFirst)
    assert not isinstance(reshaped(images, (2, 21)), ChannelsFirst)
