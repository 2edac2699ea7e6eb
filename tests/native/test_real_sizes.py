"""Native code at the sizes where kernels change how they work: longer than a tile, a vector, or a part of a sum."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from beside_numpy import assert_alike
from checks import each

import fluid
from fluid import layers
from fluid.ir.program import Variable

OPTIMIZERS: dict[str, Callable[[], Any]] = {
    "SGD": lambda: fluid.optimizer.SGD(0.1),
    "Momentum": lambda: fluid.optimizer.Momentum(0.1, 0.9),
    "Nesterov": lambda: fluid.optimizer.Momentum(0.1, 0.9, use_nesterov=True),
    "Adagrad": lambda: fluid.optimizer.Adagrad(0.1),
    "DecayedAdagrad": lambda: fluid.optimizer.DecayedAdagrad(0.1),
    "Adam": lambda: fluid.optimizer.Adam(0.01),
    "Adamax": lambda: fluid.optimizer.Adamax(0.01),
    "Adadelta": lambda: fluid.optimizer.Adadelta(0.1, epsilon=1e-3),
    "RMSProp": lambda: fluid.optimizer.RMSProp(0.01),
    "centered RMSProp": lambda: fluid.optimizer.RMSProp(0.01, centered=True, momentum=0.5),
    "Ftrl": lambda: fluid.optimizer.Ftrl(0.1),
    "Lamb": lambda: fluid.optimizer.Lamb(0.01),
    "LarsMomentum": lambda: fluid.optimizer.LarsMomentum(0.1, 0.9),
}


def normal(*shape: int, dtype: str = "float32") -> Any:
    return np.random.default_rng(0).standard_normal(shape).astype(dtype)


# ------------------------------------------------------------------------------ products deeper than one part of a sum
def regression(optimizer: str, shape: Sequence[int], dtype: str = "float32") -> Callable[[], Sequence[Variable]]:
    """A dense layer whose weight gradient is a product as deep as there are rows."""

    def build() -> Sequence[Variable]:
        x = fluid.data("x", [None, *shape], dtype)
        loss = layers.mean(layers.square(layers.fc(x, 2, num_flatten_dims=len(shape), act="tanh")))
        OPTIMIZERS[optimizer]().minimize(loss)
        return [loss]

    return build


@each("optimizer", OPTIMIZERS)
def test_every_optimizer_trains_a_layer_on_more_rows_than_one_part(optimizer: str) -> None:
    assert_alike(regression(optimizer, [13]), {"x": normal(1025, 13)}, tolerance=2e-4)


@each("rows", [1023, 1024, 1025, 2049, 5000])
def test_a_layer_is_trained_on_any_number_of_rows(rows: int) -> None:
    assert_alike(regression("Momentum", [7]), {"x": normal(rows, 7)}, tolerance=1e-4)


def test_a_layer_of_doubles_is_trained_on_many_rows() -> None:
    assert_alike(regression("Adam", [13], "float64"), {"x": normal(513, 13, dtype="float64")}, tolerance=1e-9)


def test_a_layer_over_sequences_is_trained_on_many_rows() -> None:
    assert_alike(regression("SGD", [128, 5]), {"x": normal(9, 128, 5)}, tolerance=1e-4)


def test_a_deep_product_is_added_to_the_variable_that_it_is_written_to() -> None:
    """A state that its own formula reads, an average that moves, and a gradient that is summed over steps."""

    def build() -> Sequence[Variable]:
        x = fluid.data("x", [3, 1025])
        weight = layers.create_parameter([1025, 4], "float32")
        product = layers.scale(layers.matmul(x, weight), scale=0.01)
        state, average, total = (
            layers.create_global_var([3, 4], 0.5, "float32", persistable=True, name=name) for name in ("s", "a", "t")
        )
        layers.assign(layers.tanh(layers.elementwise_add(product, state)), state)
        layers.assign(layers.elementwise_add(layers.scale(average, 0.9), layers.scale(product, 0.1)), average)
        layers.sums([layers.matmul(x, weight), total], out=total)
        return [product]

    assert_alike(build, {"x": normal(3, 1025)}, runs=3)


# ------------------------------------------------------------------------------------------- values alike in all lanes
@each("size", [1, 2, 3, 7, 15, 17, 31, 33, 65, 80, 127, 129, 240, 1023, 1025])
def test_equal_numbers_are_summed_over_any_number_of_lanes(size: int) -> None:
    def build() -> Sequence[Variable]:
        threes = layers.fill_constant([size], "float32", 3.0)
        rows = layers.fill_constant([5, size], "float32", 2.0)
        return [
            layers.reduce_sum(threes),
            layers.reduce_max(threes),
            layers.reduce_sum(layers.tanh(threes)),
            layers.reduce_sum(rows, dim=1),
            layers.reduce_sum(rows, dim=0),
            layers.reduce_mean(rows),
        ]

    assert_alike(build, {})


@each("rows", [7, 80, 129, 1025])
def test_a_bias_has_the_gradient_of_a_mean(rows: int) -> None:
    def build() -> Sequence[Variable]:
        loss = layers.mean(layers.fc(fluid.data("x", [None, 13]), 1))
        return fluid.gradients([loss], fluid.default_main_program().all_parameters())

    assert_alike(build, {"x": normal(rows, 13)})


def test_a_filter_and_a_bias_have_the_gradients_of_a_mean() -> None:
    def build() -> Sequence[Variable]:
        loss = layers.mean(layers.conv2d(fluid.data("x", [None, 3, 12, 12]), 5, 3, padding=1))
        return [loss, *fluid.gradients([loss], fluid.default_main_program().all_parameters())]

    assert_alike(build, {"x": normal(2, 3, 12, 12)})


@each("width", [3, 70, 129])
def test_a_column_that_is_broadcast_has_the_sum_of_its_rows_as_gradient(width: int) -> None:
    def build() -> Sequence[Variable]:
        x, y = fluid.data("x", [2, width]), fluid.data("y", [2, 1])
        x.stop_gradient = y.stop_gradient = False
        total = layers.reduce_sum(layers.elementwise_sub(x, y))
        return [total, *fluid.gradients([total], [x, y])]

    assert_alike(build, {"x": normal(2, width), "y": normal(2, 1)})


# ------------------------------------------------------------------------------------- sparse and dense gradients added
def table(optimizer: Callable[[], Any]) -> Callable[[], Sequence[Variable]]:
    def build() -> Sequence[Variable]:
        rows = layers.embedding(fluid.data("ids", [None, 1], "int64"), [50, 8], is_sparse=True)
        loss = layers.mean(layers.square(rows))
        optimizer().minimize(loss)
        return [loss]

    return build


@each(
    "optimizer",
    {
        "SGD": lambda: fluid.optimizer.SGD(0.1, regularization=fluid.regularizer.L2Decay(0.01)),
        "Adam": lambda: fluid.optimizer.Adam(0.1, regularization=fluid.regularizer.L2Decay(0.01)),
        "LarsMomentum": lambda: fluid.optimizer.LarsMomentum(0.1, 0.9, regularization=fluid.regularizer.L2Decay(0.01)),
        "LarsMomentum, L1": lambda: fluid.optimizer.LarsMomentum(0.1, 0.9, regularization=fluid.regularizer.L1Decay(0.01)),
    }.values(),
)
def test_a_sparse_table_with_decay_is_updated(optimizer: Callable[[], Any]) -> None:
    assert_alike(table(optimizer), {"ids": np.arange(16, dtype="int64").reshape(16, 1)})


def test_sparse_gradients_are_added_up_in_a_variable() -> None:
    def build() -> Sequence[Variable]:
        rows = layers.embedding(fluid.data("ids", [None, 1], "int64"), [50, 8], is_sparse=True)
        loss = layers.mean(layers.square(rows))
        total = layers.create_global_var([50, 8], 0.0, "float32", persistable=True, name="total")
        ((_, gradient),) = fluid.backward.append_backward(loss)
        layers.sums([gradient, total], out=total)
        return [loss]

    assert_alike(build, {"ids": np.arange(16, dtype="int64").reshape(16, 1)}, runs=3)


# -------------------------------------------------------------------------------------------- numbers of columns in cores
@each("classes", [5, 13, 33, 257])
def test_labels_meet_the_result_of_a_product(classes: int) -> None:
    def build() -> Sequence[Variable]:
        hot = layers.one_hot(fluid.data("labels", [None, 1], "int64"), classes)
        scores = layers.fc(fluid.data("x", [None, 3]), classes, act="tanh")
        smooth = layers.label_smooth(hot, epsilon=0.1)
        loss = layers.reduce_sum(layers.elementwise_mul(smooth, scores))
        return [
            layers.elementwise_mul(hot, scores),
            loss,
            *fluid.gradients([loss], fluid.default_main_program().all_parameters()),
        ]

    assert_alike(build, {"x": normal(19, 3), "labels": np.arange(19).reshape(19, 1) % classes})


@each("width", [1, 3, 5])
def test_labels_meet_the_result_of_a_convolution(width: int) -> None:
    """One-hot numbers of columns of an image, and of what a convolution itself chooses."""

    def build() -> Sequence[Variable]:
        image = fluid.data("x", [None, 2, 4, 1])
        chosen = layers.cast(layers.conv2d(image, 3, (3, 1), padding=(1, 0), act="sigmoid") * 4.0, "int64")
        hot = layers.one_hot(chosen, 5)
        columns = layers.one_hot(fluid.data("labels", [None, 3, 4, 1], "int64"), width)
        scores = layers.conv2d(layers.expand(image, [1, 1, 1, width]), 3, 3, padding=1)
        return [hot, layers.elementwise_mul(columns, scores), layers.reduce_sum(layers.elementwise_mul(hot, hot))]

    labels = np.random.default_rng(1).integers(0, width, (2, 3, 4, 1))
    assert_alike(build, {"x": normal(2, 2, 4, 1), "labels": labels})


# ------------------------------------------------------------------------------------------------------- long sums
@each("shape", [(25000, 2), (25000, 64), (25000, 512), (250000, 3), (8, 3, 56, 56), (1, 3, 500, 500), (32, 2, 28, 28)])
def test_sums_over_many_rows_are_as_exact_as_short_ones(shape: tuple[int, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    """The gradient of a batch norm's bias: a sum over all rows of a channel."""
    monkeypatch.setenv("FLUID_NATIVE", "1")
    x, w = fluid.data("x", [None, *shape[1:]]), fluid.data("w", [None, *shape[1:]])
    total = layers.reduce_sum(layers.elementwise_mul(layers.batch_norm(x), w))
    bias = next(one for one in fluid.default_main_program().all_parameters() if one.name.endswith("b_0"))
    (gradient,) = fluid.gradients([total], [bias])
    executor = fluid.Executor()
    executor.run(fluid.default_startup_program())
    weights = np.random.default_rng(1).random(shape, "float32")  # of one sign, so that rounding errors add up
    (found,) = executor.run(feed={"x": normal(*shape), "w": weights}, fetch_list=[gradient])
    exact = weights.sum(axis=tuple(axis for axis in range(len(shape)) if axis != 1), dtype="float64")
    assert np.abs(found / exact - 1).max() < 6e-7


@each("groups", [1, 3])
def test_a_filter_has_an_exact_gradient_over_many_pixels(groups: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLUID_NATIVE", "1")
    out = layers.conv2d(fluid.data("x", [None, 3, 32, 32]), 3, 5, padding=2, groups=groups, bias_attr=False)
    (gradient,) = fluid.gradients([layers.reduce_sum(out)], fluid.default_main_program().all_parameters())
    executor = fluid.Executor()
    executor.run(fluid.default_startup_program())
    image = np.random.default_rng(0).random((512, 3, 32, 32), "float32")
    (found,) = executor.run(feed={"x": image}, fetch_list=[gradient])
    exact = image.sum(axis=(0, 2, 3), dtype="float64")  # at the middle tap, which meets every pixel
    expected = np.tile(exact, (3, 1)) if groups == 1 else exact[:, None]
    assert np.abs(found[:, :, 2, 2] / expected - 1).max() < 6e-7


# ------------------------------------------------------------------------------------------- windows as wide as the images
@each("data_format", ["NCHW", "NHWC"])
@each(
    "shape, filters, kernel, more",
    [
        ((3, 1, 20, 16), 5, (3, 16), {}),
        ((3, 4, 20, 16), 5, (3, 16), {"padding": (2, 0), "dilation": (2, 1)}),
        ((2, 3, 20, 7), 6, (4, 7), {"stride": (3, 2), "padding": (2, 0)}),
        ((1, 2, 60, 129), 33, (5, 129), {}),
        ((3, 4, 9, 16), 5, (9, 16), {}),
        ((3, 4, 9, 1), 5, (3, 1), {}),
        ((17, 3, 5, 5), 6, (5, 5), {"stride": (2, 2)}),
        ((2, 4, 5, 6), 6, (3, 6), {"groups": 2}),
        ((2, 4, 5, 6), 6, (3, 6), {"padding": (1, 1)}),
    ],
)
def test_windows_as_wide_as_the_image(
    shape: tuple[int, ...], filters: int, kernel: tuple[int, int], more: dict[str, Any], data_format: str
) -> None:
    """Their columns are no columns of the output: the convolution is one along rows, or a product of matrices."""
    if data_format == "NHWC":
        shape = (shape[0], *shape[2:], shape[1])

    def build() -> Sequence[Variable]:
        x = fluid.data("x", shape)
        x.stop_gradient = False
        images = layers.conv2d(layers.tanh(x), filters, kernel, act="tanh", data_format=data_format, **more)
        loss = layers.mean(layers.square(images))
        return [loss, *fluid.gradients([loss], [x, *fluid.default_main_program().all_parameters()])]

    assert_alike(build, {"x": normal(*shape)}, tolerance=1e-4)


# ---------------------------------------------------------------------------------------------------------- wide recurrences
@each("hidden, dtype", [(128, "float64"), (129, "float64"), (256, "float32"), (257, "float32"), (650, "float32")])
@each("rows", [1, 20])
def test_recurrences_wider_than_one_part_of_a_sum(hidden: int, dtype: str, rows: int) -> None:
    """The gradient of a state is a product as deep as all gates; another step's gates lie in the memory that it writes."""

    def build() -> Sequence[Variable]:
        x, zeros = fluid.data("x", [3, rows, hidden], dtype), layers.fill_constant([1, rows, hidden], dtype, 0.0)
        x.stop_gradient = False
        states, last, cell = layers.lstm(x, zeros, zeros, 3, hidden, 1)
        loss = layers.mean(states) + layers.mean(last) + layers.mean(cell)
        fluid.optimizer.SGD(0.1).minimize(loss)
        return [loss, fluid.default_main_program().global_block().var("x@GRAD")]

    assert_alike(build, {"x": normal(3, rows, hidden, dtype=dtype)}, tolerance=1e-4)


# ------------------------------------------------------------------------------------- columns of more than one dimension
@each("extent", [1, 2, 3, 4, 5, 7, 8, 9, 12, 16, 49, 257])
@each("dtype", ["float32", "float64"])
def test_a_scale_per_channel_within_rows_of_groups(extent: int, dtype: str) -> None:
    """Rows are groups of three channels; one vector may hold numbers of several channels."""

    def build() -> Sequence[Variable]:
        x = fluid.data("x", [2, 6, 1, extent], dtype)
        x.stop_gradient = False
        loss = layers.mean(layers.square(layers.group_norm(layers.group_norm(x, 2), 2)) * x)
        return [loss, *fluid.gradients([loss], [x, *fluid.default_main_program().all_parameters()])]

    assert_alike(build, {"x": normal(2, 6, 1, extent, dtype=dtype)}, tolerance=1e-4)


@each("width", [1, 3, 5, 8, 13])
def test_parts_of_rows_that_lie_apart_in_memory(width: int) -> None:
    """A normalized row holds several runs of an array with gaps between them."""

    def build() -> Sequence[Variable]:
        x = fluid.data("x", [4, 5, 2 * width])
        x.stop_gradient = False
        part = layers.slice(layers.tanh(x), [2], [width // 2], [width // 2 + width])
        loss = layers.mean(layers.layer_norm(part, begin_norm_axis=1) * part)
        return [loss, *fluid.gradients([loss], [x, *fluid.default_main_program().all_parameters()])]

    assert_alike(build, {"x": normal(4, 5, 2 * width)}, tolerance=1e-4)


@each("shape, order", [
    ((3, 17, 40), (0, 2, 1)), ((2, 16, 16), (0, 2, 1)), ((2, 3, 33, 20), (0, 2, 3, 1)), ((2, 5, 24, 31), (1, 0, 3, 2)),
    ((40, 50), (1, 0)), ((4, 7, 9), (0, 2, 1)),
])  # fmt: skip
@each("dtype", ["float32", "float64", "int32", "bool"])
def test_copies_that_turn_rows_into_columns(shape: tuple[int, ...], order: tuple[int, ...], dtype: str) -> None:
    """Copies go through squares; elements at both edges are copied one by one."""

    def build() -> Sequence[Variable]:
        return [layers.transpose(fluid.data("x", list(shape), dtype), list(order))]

    assert_alike(build, {"x": (normal(*shape) * 9).astype(dtype)})


@each("length", [63, 64, 65, 1500])
def test_the_gradient_of_a_product_takes_memory_by_its_factors(length: int) -> None:
    def build() -> Sequence[Variable]:
        x = fluid.data("x", [40, length])
        x.stop_gradient = False
        return fluid.gradients([layers.reduce_prod(layers.scale(x, 1.0), 1)], [x])

    feed = {"x": np.random.default_rng(0).uniform(0.99, 1.01, (40, length)).astype("float32")}
    assert_alike(build, feed)
    plan = fluid.Executor().plan(fluid.default_main_program(), feed, list(build()))
    assert plan.arena_bytes < 40 * length * 4 * 4 * 64
