"""Nets of images at an XLAPlace, where convolutions store images with channels last: every value equals the plan's."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from checks import each, fresh_programs

pytest.importorskip("jax")

import fluid
from fluid import layers

SHAPE = (2, 4, 6, 8)

OPS: dict[str, Callable[[Any], Any]] = {
    "conv": lambda x: layers.conv2d(x, 4, 3, padding=1),
    "strided conv": lambda x: layers.resize_nearest(layers.conv2d(x, 4, 3, stride=2, padding=1), [6, 8], align_corners=False),
    "grouped conv": lambda x: layers.conv2d(x, 4, 3, padding=2, dilation=2, groups=2, act="relu"),
    "depthwise conv": lambda x: layers.conv2d(x, 4, 3, padding=1, groups=4, bias_attr=False),
    "transposed conv": lambda x: layers.conv2d_transpose(x, 4, filter_size=3, padding=1),
    "batch_norm": lambda x: layers.batch_norm(x),
    "batch_norm in test mode": lambda x: layers.batch_norm(x, is_test=True),
    "group_norm": lambda x: layers.group_norm(x, 2),
    "layer_norm": lambda x: layers.layer_norm(x, begin_norm_axis=2),
    "relu": layers.relu,
    "leaky_relu": lambda x: layers.leaky_relu(x, 0.1),
    "channel prelu": lambda x: layers.prelu(x, "channel"),
    "max pool": lambda x: layers.pool2d(x, 3, "max", 1, 1),
    "average pool": lambda x: layers.pool2d(x, 3, "avg", 1, 1),
    "squeeze and excite": lambda x: layers.elementwise_mul(x, layers.sigmoid(layers.pool2d(x, 1, "avg", global_pooling=True))),
    "mask": lambda x: layers.elementwise_mul(x, layers.cast(layers.greater_than(x, layers.zeros_like(x)), "float32")),
    "softmax of channels": lambda x: layers.softmax(x, axis=1),
    "sum over channels": lambda x: layers.elementwise_add(x, layers.reduce_sum(x, 1, keep_dim=True)),
    "halves": lambda x: layers.concat(layers.split(x, 2, 1)[::-1], 1),
    "flipped": lambda x: layers.reverse(x, [2]),
    "padded and cut": lambda x: layers.slice(layers.pad2d(x, [1, 0, 0, 2], "reflect"), [2, 3], [0, 1], [6, 9]),
    "rows": lambda x: layers.reshape(layers.fc(layers.reshape(x, [-1, 8]), 8), [2, 4, 6, 8]),
    "turned": lambda x: layers.transpose(layers.tanh(layers.transpose(x, [0, 2, 3, 1])), [0, 3, 1, 2]),
    "per channel": lambda x: layers.elementwise_add(x, layers.create_parameter([4], "float32"), axis=1),
}
"""From images to images of the same shape."""


def net(seed: int) -> list[Any]:
    """The images of a random net, each computed of former ones; and parts that are put together again."""
    draw = random.Random(seed)
    x = fluid.data("x", SHAPE)
    x.stop_gradient = False
    images = [x]
    for _ in range(7):
        image = OPS[draw.choice(list(OPS))](draw.choice(images[-3:]))
        if draw.random() < 0.4:
            image = draw.choice([layers.elementwise_add, layers.elementwise_mul, layers.elementwise_max])(
                image, draw.choice(images)
            )
        images.append(image)
    return images


def check(seed: int) -> None:
    """Compare values, gradients of feeds and parameters, and statistics after the run."""
    with fresh_programs():
        main, startup = fluid.default_main_program(), fluid.default_startup_program()
        main.random_seed = startup.random_seed = seed + 1
        images = net(seed)
        loss = layers.mean(layers.square(images[-1]))
        pairs = fluid.append_backward(loss)
        fetch = [*images[1:], loss, *(gradient for _, gradient in pairs), *fluid.gradients([loss], [images[0]])]
        fetch = [var for var in fetch if var is not None]
        feed = {"x": np.random.default_rng(seed).standard_normal(SHAPE, np.float32)}
        at_host = fluid.Scope()
        fluid.Executor().run(startup, scope=at_host)
        scope = fluid.Scope()
        for name in at_host.local_var_names():
            scope.var(name).get_tensor().set(np.array(at_host.array(name)))
        expected = fluid.Executor().run(main, feed, fetch, scope=at_host)
        results = fluid.Executor(fluid.XLAPlace()).run(main, feed, fetch, scope=scope)
        for var, one, other in zip(fetch, expected, results, strict=True):
            largest = max(1.0, float(np.abs(one).max(initial=0)))
            np.testing.assert_allclose(other / largest, one / largest, rtol=2e-4, atol=2e-5, err_msg=f"{var.name}\n{main}")
        for name in at_host.local_var_names():
            np.testing.assert_allclose(scope.array(name), at_host.array(name), rtol=1e-4, atol=1e-5, err_msg=name)


@pytest.mark.usefixtures("quick_to_compile")
@each("seed", list(range(6)))
def test_random_nets_of_images_have_the_values_of_the_plan(seed: int) -> None:
    check(seed)


@pytest.mark.slow
@each("seed", list(range(6, 60)))
def test_more_random_nets_of_images_have_the_values_of_the_plan(seed: int) -> None:
    check(seed)


@pytest.mark.usefixtures("quick_to_compile")
@each("name", list(OPS))
def test_each_op_after_a_convolution_and_before_one(name: str) -> None:
    with fresh_programs():
        x = fluid.data("x", SHAPE)
        x.stop_gradient = False
        hidden = OPS[name](layers.conv2d(x, 4, 3, padding=1))
        out = layers.conv2d(hidden, 4, 3, padding=1)
        (gradient,) = fluid.gradients([layers.mean(layers.square(out))], [x])
        feed = {"x": np.random.default_rng(0).standard_normal(SHAPE, np.float32)}
        scope = fluid.Scope()
        fluid.Executor().run(fluid.default_startup_program(), scope=scope)
        fetch = [hidden, out, gradient]
        expected = fluid.Executor().run(feed=feed, fetch_list=fetch, scope=scope)
        results = fluid.Executor(fluid.XLAPlace()).run(feed=feed, fetch_list=fetch, scope=scope)
        for var, one, other in zip(fetch, expected, results, strict=True):
            np.testing.assert_allclose(other, one, rtol=2e-4, atol=2e-5, err_msg=var.name)


NORMS: dict[str, Callable[[Any], Any]] = {
    "layer_norm": lambda x: layers.layer_norm(layers.reshape(x, [110_000, 8])),
    "layer_norm of long rows": lambda x: layers.layer_norm(x),
    "group_norm": lambda x: layers.group_norm(x, 2),
    "instance_norm": layers.instance_norm,
    "batch_norm": layers.batch_norm,
}


@each("name", NORMS)
def test_sums_of_many_equal_numbers_are_right(name: str) -> None:
    """XLA's products of a matrix and a vector sum one element after the other: means were wrong in the fourth digit."""
    number = np.float32(0.38363)
    with fresh_programs():
        y = NORMS[name](fluid.data("x", [1, 8, 1000, 110]))
        block = fluid.default_main_program().global_block()
        (op,) = [op for op in block.ops if op.type.endswith("_norm")]
        (bias,) = op.inputs["Bias"]
        grads = fluid.gradients([layers.reduce_sum(y)], [block.var(bias)])
        executor = fluid.Executor(fluid.XLAPlace("cpu"))
        executor.run(fluid.default_startup_program())
        (mean_name,) = op.outputs["SavedMean" if "SavedMean" in op.outputs else "Mean"]
        feed = {"x": np.full((1, 8, 1000, 110), number)}
        mean, grad = executor.run(feed=feed, fetch_list=[mean_name, *grads])
    units = np.finfo("float32").eps
    np.testing.assert_allclose(mean, np.full(mean.shape, number), rtol=8 * units)
    np.testing.assert_allclose(grad, np.full(grad.shape, feed["x"].size / grad.size), rtol=8 * units)


@each("extents", [(1, 4), (4, 1), (1, 1), (2, 3)])
@each("pads", [[1, 0, 0, 2], [0, 2, 1, 0], [1, 0, 1, 0], [2, 0, 2, 0]])
def test_windows_that_see_padding_alone(extents: tuple[int, int], pads: list[int]) -> None:
    """XLA by itself computes other gradients of filters for 64 such images."""
    with fresh_programs():
        x = fluid.data("x", [64, 1, *extents])
        x.stop_gradient = False
        y = layers.conv2d(x, 2, 1, 2, pads, bias_attr=False, param_attr=fluid.initializer.Constant(1.0))
        (weight,) = fluid.default_main_program().all_parameters()
        fetches = [y, *fluid.gradients(layers.reduce_sum(layers.square(y + 1.0)), [weight, x])]
        feed, results = {"x": np.random.default_rng(0).standard_normal((64, 1, *extents)).astype("float32")}, []
        for place in (fluid.CPUPlace(), fluid.XLAPlace()):
            executor, scope = fluid.Executor(place), fluid.Scope()
            executor.run(fluid.default_startup_program(), scope=scope)
            results.append(executor.run(feed=feed, fetch_list=fetches, scope=scope))
        for value, expected in zip(results[1], results[0], strict=True):
            np.testing.assert_allclose(value, expected, rtol=1e-5, atol=1e-4)
