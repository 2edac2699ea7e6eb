"""Random layers, by the kind of input: matrices, series, images, and rows that form sequences."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from math import prod

from fluid import layers, nets
from fluid.extend import ops
from fluid.ir.program import Variable

from .building import ACTIVATIONS, Builder, broadcast_shape, random_order
from .cases import Unfit
from .training import parameter_attr
from .windows import divisor, filter_window, pool_window

__all__ = ["LAYERS", "SEQUENCE_LAYERS"]

Layer = Callable[[Builder, Variable], Variable]

ACTS = (None, "relu", "tanh", "sigmoid", "gelu", "softmax", "leaky_relu", "relu6", "softplus")


def _rows(x: Variable) -> int:
    return prod(x.shape[:-1])


def _bias(b: Builder) -> bool | None:
    return False if b.choices.chance(20) else None


# ------------------------------------------------------------------------------------------------- tensors of any rank
def activation(b: Builder, x: Variable) -> Variable:
    return b.choices.pick(ACTIVATIONS)(x)


def dense(b: Builder, x: Variable) -> Variable:
    rows = _rows(x)
    size = b.width(rows, x.shape[-1])
    b.need(rows * x.shape[-1] * size, max(rows * size, size * x.shape[-1]))
    attr, act = parameter_attr(b.choices), b.choices.pick(ACTS)
    return layers.fc(x, size, num_flatten_dims=len(x.shape) - 1, act=act, param_attr=attr, bias_attr=_bias(b))


def layer_norm(b: Builder, x: Variable) -> Variable:
    first = b.choices.between(1, len(x.shape) - 1)
    return layers.layer_norm(x, begin_norm_axis=first, scale=not b.choices.chance(15), shift=not b.choices.chance(15))


def softmax(b: Builder, x: Variable) -> Variable:
    kind = b.choices.pick((layers.softmax, ops().log_softmax))
    return layers.scale(kind(x, axis=b.choices.pick((-1, 1))), scale=3.0)


def with_value(b: Builder, x: Variable) -> Variable:
    """An elementwise op of two values; one may be broadcast, and is an earlier value, a parameter, a constant or a feed."""
    c = b.choices
    same = [var for var in b.values if var.shape == x.shape]
    kind = c.below(6)
    if kind < 2 and same:
        y = c.pick(same)
    else:
        shape = broadcast_shape(c, x.shape)
        b.need(0, prod(shape))
        y = (b.parameter, b.constant, b.data, b.parameter)[kind % 4](shape)
    functions = (
        layers.elementwise_add,
        layers.elementwise_sub,
        layers.elementwise_mul,
        layers.elementwise_max,
        layers.elementwise_min,
    )
    if c.chance(10):
        return layers.elementwise_div(x, layers.scale(layers.square(y), bias=1.0))
    act = c.pick((None, None, "tanh", "relu", "sigmoid"))
    return c.pick(functions)(y, x, act=act) if y.shape == x.shape and c.chance(30) else c.pick(functions)(x, y, act=act)


def reduced(b: Builder, x: Variable) -> Variable:
    """Means, sums or extremes along some axes, which keep an extent of 1."""
    axes = [axis for axis in range(len(x.shape)) if b.choices.chance(50)] or [len(x.shape) - 1]
    reduce = b.choices.pick((layers.reduce_mean, layers.reduce_max, layers.reduce_min, layers.reduce_sum))
    result = reduce(x, dim=axes, keep_dim=True)
    return layers.scale(result, 1.0 / prod(x.shape[axis] for axis in axes)) if reduce is layers.reduce_sum else result


def minus_reduced(b: Builder, x: Variable) -> Variable:
    return layers.elementwise_sub(x, reduced(b, x))


def standardized(b: Builder, x: Variable) -> Variable:
    """Layer normalization, written with single ops."""
    centered = layers.elementwise_sub(x, layers.reduce_mean(x, dim=-1, keep_dim=True))
    variance = layers.reduce_mean(layers.square(centered), dim=-1, keep_dim=True)
    return layers.elementwise_mul(centered, layers.rsqrt(layers.scale(variance, bias=1e-2)))


def part(b: Builder, x: Variable) -> Variable:
    """Some indices of an axis, after the first."""
    c = b.choices
    axis = c.between(0 if c.chance(20) else 1, len(x.shape) - 1)
    extent = x.shape[axis]
    if extent < 2:
        return layers.scale(x, 0.5)
    start = c.below(extent // 2 + 1)
    end = c.between(start + 1, extent)
    if c.chance(30):
        step = c.between(1, 3)
        return layers.strided_slice(x, [axis], [start], [end], [step])
    return layers.slice(x, [axis], [start], [end])


def joined(b: Builder, x: Variable) -> Variable:
    """Two tensors beside each other along an axis."""
    axis = b.choices.between(1, len(x.shape) - 1)
    fitting = [
        var
        for var in b.values
        if len(var.shape) == len(x.shape)
        and all(i == axis or m == n for i, (m, n) in enumerate(zip(var.shape, x.shape, strict=True)))
    ]
    y = b.choices.pick(fitting) if fitting else x
    b.need(0, prod(x.shape) + prod(y.shape))
    return layers.concat([x, y] if b.choices.chance(70) else [y, x, x], axis=axis)


def halves(b: Builder, x: Variable) -> Variable:
    """A gated linear unit, or two halves added."""
    if x.shape[-1] % 2:
        return layers.square(x)
    if b.choices.chance(50):
        return nets.glu(x, dim=-1)
    return layers.elementwise_sub(*layers.split(x, 2, dim=-1))


def turned(b: Builder, x: Variable) -> Variable:
    """The axes in another order, and back after a function."""
    order = random_order(b.choices, len(x.shape))
    back = [order.index(axis) for axis in range(len(order))]
    return layers.transpose(activation(b, layers.transpose(x, order)), back)


def dropped(b: Builder, x: Variable) -> Variable:
    """Dropout that drops nothing."""
    kind = b.choices.pick(("downgrade_in_infer", "upscale_in_train"))
    if b.choices.chance(50):
        return layers.dropout(x, 0.3, is_test=True, dropout_implementation=kind)
    return layers.dropout(x, 0.0, dropout_implementation=kind)


def padded(b: Builder, x: Variable) -> Variable:
    paddings = [b.choices.below(3) if axis else 0 for axis in range(len(x.shape)) for _ in range(2)]
    b.need(0, 4 * prod(x.shape))
    return layers.pad(x, paddings, pad_value=0.5)


def tiled(b: Builder, x: Variable) -> Variable:
    times = [1] * len(x.shape)
    times[b.choices.between(1, len(x.shape) - 1)] = b.choices.between(1, 3)
    b.need(0, 3 * prod(x.shape))
    return layers.expand(x, times)


ANY: Sequence[Layer] = (activation, dense, with_value, layer_norm, minus_reduced, part, joined, softmax, turned, dropped, halves)
ANY = (*ANY, padded, tiled, standardized, reduced)


# ------------------------------------------------------------------------------------------------------------ matrices
def batch_norm(b: Builder, x: Variable) -> Variable:
    c = b.choices
    act = c.pick((None, "relu"))
    return layers.batch_norm(x, act=act, is_test=c.chance(10), use_global_stats=c.chance(5), momentum=c.pick((0.9, 0.99)))


def normalized(b: Builder, x: Variable) -> Variable:
    return layers.l2_normalize(x, axis=b.choices.pick((1, 0)))


def with_one_hot(b: Builder, x: Variable) -> Variable:
    """An elementwise op of a product and of rows with a one, or with such rows smoothed."""
    c = b.choices
    depth = b.width(x.shape[0], x.shape[1], most=1000)
    b.need(prod(x.shape) * depth, x.shape[0] * depth)
    labels = layers.one_hot(b.integers([x.shape[0], 1], depth), depth)
    if b.dtype != "float32":
        labels = layers.cast(labels, b.dtype)
    if c.chance(40):
        labels = layers.label_smooth(labels, epsilon=0.1, dtype=b.dtype)
    function = c.pick((layers.elementwise_mul, layers.elementwise_add, layers.elementwise_sub))
    return function(labels, layers.fc(x, depth)) if c.chance(60) else function(layers.fc(x, depth), labels)


def embedded(b: Builder, x: Variable) -> Variable:
    """Rows of a table, added or multiplied."""
    c = b.choices
    rows, batch, width = c.extent(5000, least=2), x.shape[0], x.shape[1]
    b.need(0, rows * width)
    attr = parameter_attr(c)
    looked_up = layers.embedding(
        b.integers([batch, 1], rows), [rows, width], is_sparse=c.chance(50), param_attr=attr, dtype=b.dtype
    )
    return c.pick((layers.elementwise_add, layers.elementwise_mul))(x, layers.reshape(looked_up, [batch, width]))


def tied(b: Builder, x: Variable) -> Variable:
    """A table that is looked up, and whose transpose makes the outputs."""
    c = b.choices
    batch, width = x.shape
    rows = b.width(batch, width)
    b.need(batch * width * rows, max(rows * width, batch * rows))
    table = b.parameter([rows, width])
    name = table.name
    looked_up = layers.embedding(
        b.integers([batch, 1], rows), [rows, width], is_sparse=c.chance(50), param_attr=name, dtype=b.dtype
    )
    return layers.matmul(layers.elementwise_add(x, layers.reshape(looked_up, [batch, width])), table, transpose_y=True)


def products(b: Builder, x: Variable) -> Variable:
    """The products of all rows with each other, and with the rows."""
    rows, width = x.shape
    b.need(2 * rows * rows * width, max(rows * rows, rows * width))
    return layers.matmul(layers.matmul(x, x, transpose_y=True, alpha=1.0 / (rows * width) ** 0.5), x)


def transposed_product(b: Builder, x: Variable) -> Variable:
    size = b.width(x.shape[0], x.shape[1])
    b.need(prod(x.shape) * size, max(x.shape[0], x.shape[1]) * size)
    if b.choices.chance(50):
        return layers.matmul(x, b.parameter([size, x.shape[1]]), transpose_y=True, alpha=0.5)
    return layers.transpose(layers.matmul(b.parameter([x.shape[1], size]), x, transpose_x=True, transpose_y=True), [1, 0])


def picked_rows(b: Builder, x: Variable) -> Variable:
    count = x.shape[0] if b.choices.chance(70) else b.width(x.shape[1])
    b.need(0, count * x.shape[1])
    return layers.gather(x, b.integers([count], x.shape[0]))


def as_series(b: Builder, x: Variable) -> Variable:
    return layers.reshape(x, [x.shape[0], divisor(b.choices, x.shape[1], (1, 2, 3, 4, 5, 7, 8, 16, 25)), -1])


def as_images(b: Builder, x: Variable) -> Variable:
    sides = [side for side in (2, 3, 4, 5, 8, 16) if x.shape[1] % (side * side) == 0]
    side = b.choices.pick(sides) if sides else 1
    return layers.reshape(x, [x.shape[0], -1, side, side])


def gated(b: Builder, x: Variable) -> Variable:
    """One step of a GRU or an LSTM."""
    size = b.width(x.shape[0], 4 * x.shape[1], most=256)
    b.need(x.shape[0] * 4 * size * (x.shape[1] + size))
    first = layers.fc(x, size, act="tanh")
    if b.choices.chance(50):
        return layers.lstm_unit(x, first, layers.fc(x, size))[0]
    return layers.gru_unit(layers.fc(x, 3 * size), first, 3 * size)[0]


def largest(b: Builder, x: Variable) -> Variable:
    return layers.topk(x, b.choices.between(1, min(x.shape[1], 5)))[0]


def chosen(b: Builder, x: Variable) -> Variable:
    """Elements of one tensor where a condition holds, of another elsewhere."""
    y = layers.scale(layers.tanh(x), 0.5)
    return ops().where(layers.greater_than(x, y), x, y)


MATRICES: Sequence[Layer] = (
    *(dense, dense, *ANY, batch_norm, normalized, with_one_hot, embedded, tied, products, transposed_product, picked_rows),
    *(as_series, as_images, gated, largest, chosen),
)


# -------------------------------------------------------------------------------------------------------------- series
def attention(b: Builder, x: Variable) -> Variable:
    """Each step looks at all steps, with some heads."""
    c = b.choices
    batch, steps, width = x.shape
    heads = divisor(c, width, (1, 2, 3, 4, 8))
    b.need(batch * steps * width * (4 * width + 2 * steps), max(batch * heads * steps * steps, batch * steps * width))
    query, key, value = (layers.fc(x, width, num_flatten_dims=2, bias_attr=_bias(b)) for _ in range(3))

    def split(one: Variable) -> Variable:
        return layers.transpose(layers.reshape(one, [batch, steps, heads, width // heads]), [0, 2, 1, 3])

    weights = layers.matmul(split(query), split(key), transpose_y=True, alpha=(width // heads) ** -0.5)
    if c.chance(40):
        mask = layers.scale(b.targets([batch, 1, 1, steps], 0.0, 1.0), -10.0)
        weights = layers.elementwise_add(weights, mask)
    weights = dropped(b, layers.softmax(weights))
    mixed = layers.reshape(layers.transpose(layers.matmul(weights, split(value)), [0, 2, 1, 3]), [batch, steps, width])
    out = layers.fc(mixed, width, num_flatten_dims=2)
    return layers.layer_norm(layers.elementwise_add(x, out), begin_norm_axis=2) if c.chance(60) else out


def lstm(b: Builder, x: Variable) -> Variable:
    """cuDNN's LSTM, over series with the steps first."""
    c = b.choices
    batch, steps, width = x.shape
    b.need(0, batch * steps * 2)
    size = b.width(batch * steps, 8 * width, most=300)
    count, ways = (2 if c.chance(25) else 1), (2 if c.chance(25) else 1)
    b.need(count * ways * steps * batch * 4 * size * (ways * size + width), 4 * size * (size + width) * count * ways)
    first, cell = (layers.fill_constant([count * ways, batch, size], b.dtype, 0.0) for _ in range(2))
    out = layers.lstm(layers.transpose(x, [1, 0, 2]), first, cell, steps, size, count, is_bidirec=ways == 2)[0]
    return layers.transpose(out, [1, 0, 2])


def unrolled(b: Builder, x: Variable) -> Variable:
    """A layer of GRU or LSTM cells, which is a recurrence of the program."""
    batch, steps, width = x.shape
    if steps > 40:
        raise Unfit("too many steps")
    size = b.width(batch * steps, 4 * width, most=256)
    b.need(steps * batch * 4 * size * (size + width))
    cell = b.choices.pick((layers.GRUCell, layers.LSTMCell))(size, dtype=b.dtype)
    return layers.rnn(cell, x, is_reverse=b.choices.chance(20))[0]


def over_steps(b: Builder, x: Variable) -> Variable:
    reduce = b.choices.pick((layers.reduce_mean, layers.reduce_max, layers.reduce_sum))
    return reduce(x, dim=1)


def flat_steps(b: Builder, x: Variable) -> Variable:
    if b.choices.chance(50):
        return layers.reshape(x, [-1, x.shape[2]])
    return layers.reshape(x, [x.shape[0], -1])


def position(b: Builder, x: Variable) -> Variable:
    return layers.elementwise_add(x, b.parameter(list(x.shape[1:])), axis=1)


def batched_products(b: Builder, x: Variable) -> Variable:
    batch, steps, width = x.shape
    b.need(2 * batch * steps * steps * width, batch * max(steps * steps, width * width, steps * width))
    if b.choices.chance(50):
        return layers.matmul(layers.matmul(x, x, transpose_y=True, alpha=1.0 / width), x)
    return layers.matmul(x, layers.matmul(x, x, transpose_x=True, alpha=1.0 / steps))


SERIES: Sequence[Layer] = (*ANY, attention, attention, lstm, unrolled, over_steps, flat_steps, position, batched_products)


# -------------------------------------------------------------------------------------------------------------- images
def convolution(b: Builder, x: Variable) -> Variable:
    c = b.choices
    batch, channels, *extents = x.shape
    window = filter_window(c, extents)
    places = batch * prod(window.outputs(extents))
    groups = 1 if c.chance(70) else divisor(c, channels, (1, 2, 3, 4, 8, channels))
    taps = prod(window.sizes) * channels // groups
    filters = max(b.width(places, taps, most=512) // groups, 1) * groups
    b.need(places * taps * filters, max(places, taps) * filters)
    padding = window.paddings if c.chance(92) else c.pick(("SAME", "VALID"))
    return layers.conv2d(
        *(x, filters, window.sizes, window.strides, padding, window.dilations, groups),
        act=c.pick((None, "relu", "tanh")),
        bias_attr=_bias(b),
        param_attr=parameter_attr(c),
    )


def transposed_convolution(b: Builder, x: Variable) -> Variable:
    c = b.choices
    batch, channels, *extents = x.shape
    window = filter_window(c, extents)
    places = batch * prod(window.transposed_outputs(extents))
    groups = 1 if c.chance(80) else divisor(c, channels, (1, 2, 3))
    taps = prod(window.sizes) * channels // groups
    filters = groups * b.width(places, taps, most=128)
    b.need(places * taps * filters, max(places, taps) * filters)
    return layers.conv2d_transpose(
        *(x, filters, None, window.sizes, window.paddings, window.strides, window.dilations, groups), act=c.pick((None, "relu"))
    )


def pooled(b: Builder, x: Variable) -> Variable:
    c = b.choices
    extents, kind = x.shape[2:], c.pick(("max", "avg"))
    if c.chance(12):
        return layers.pool2d(x, pool_type=kind, global_pooling=True)
    if c.chance(10):
        return layers.adaptive_pool2d(x, [c.between(1, min(extent, 7)) for extent in extents], kind)
    window = pool_window(c, extents)
    arguments = {"ceil_mode": c.chance(30), "exclusive": c.chance(60)}
    return layers.pool2d(x, window.sizes, kind, window.strides, window.paddings, **arguments)


def grouped_norm(b: Builder, x: Variable) -> Variable:
    if b.choices.chance(30):
        return layers.instance_norm(x)
    return layers.group_norm(x, divisor(b.choices, x.shape[1], (1, 2, 3, 4, 8)))


def of_channels(b: Builder, x: Variable) -> Variable:
    """Something with a number for each channel."""
    c = b.choices
    kind = c.below(4)
    if kind == 0:
        return layers.prelu(x, c.pick(("channel", "all")))
    if kind == 1:
        return layers.affine_channel(x, b.parameter([x.shape[1]]), b.parameter([x.shape[1]]))
    if kind == 2:
        return layers.lrn(x, n=3)
    b.need(prod(x.shape[:2]) * x.shape[1])
    excited = layers.fc(layers.pool2d(x, pool_type="avg", global_pooling=True), x.shape[1], act="sigmoid")
    return layers.elementwise_mul(x, excited, axis=0)


def residual(b: Builder, x: Variable) -> Variable:
    """Two convolutions with batch normalization, beside a shortcut."""
    channels = x.shape[1]
    b.need(2 * 9 * prod(x.shape) * channels)
    h = layers.batch_norm(layers.conv2d(x, channels, 3, padding=1, bias_attr=False), act="relu")
    h = layers.batch_norm(layers.conv2d(h, channels, 3, padding=1, bias_attr=False))
    return layers.elementwise_add(x, h, act="relu")


def attention_to_places(b: Builder, x: Variable) -> Variable:
    """Weights of pixels, by a convolution over statistics of their channels."""
    c = b.choices
    size = c.pick((3, 7, 1, 5))
    b.need(2 * prod(x.shape) * size * size // x.shape[1])
    image = c.pick((layers.reduce_mean, layers.reduce_max, layers.reduce_sum))(x, dim=1, keep_dim=True)
    if c.chance(50):
        image = layers.concat([image, layers.reduce_max(x, dim=1, keep_dim=True)], axis=1)
    return layers.elementwise_mul(x, layers.conv2d(image, 1, size, padding=size // 2, act="sigmoid"))


def depthwise(b: Builder, x: Variable) -> Variable:
    c = b.choices
    channels = x.shape[1]
    size, many = c.pick((3, 5, 1, 7, 2)), c.pick((1, 1, 2))
    if min(x.shape[2:]) < size:
        raise Unfit("the filter is larger than the image")
    b.need(prod(x.shape) * size * size * many, prod(x.shape) * many)
    return layers.conv2d(
        x, channels * many, size, c.between(1, 2), size // 2, groups=channels, bias_attr=_bias(b), act=c.pick((None, "relu6"))
    )


def flat_images(b: Builder, x: Variable) -> Variable:
    if b.choices.chance(50):
        return layers.flatten(x)
    return layers.reduce_mean(x, dim=[2, 3])


def pixels_as_steps(b: Builder, x: Variable) -> Variable:
    batch, channels, height, width = x.shape
    return layers.transpose(layers.reshape(x, [batch, channels, height * width]), [0, 2, 1])


def resized(b: Builder, x: Variable) -> Variable:
    height, width = (b.choices.between(1, 2 * extent) for extent in x.shape[2:])
    b.need(0, prod(x.shape[:2]) * height * width)
    return b.choices.pick((layers.resize_bilinear, layers.resize_nearest))(x, out_shape=[height, width])


def padded_images(b: Builder, x: Variable) -> Variable:
    c = b.choices
    paddings = [c.below(3) for _ in range(4)]
    mode = c.pick(("constant", "edge", "reflect"))
    if mode == "reflect":
        paddings = [
            min(size, extent - 1) for size, extent in zip(paddings, (x.shape[2], x.shape[2], x.shape[3], x.shape[3]), strict=True)
        ]
    b.need(0, prod(x.shape[:2]) * (x.shape[2] + 4) * (x.shape[3] + 4))
    return layers.pad2d(x, paddings, mode, 0.25)


IMAGES: Sequence[Layer] = (
    *(convolution,) * 8,
    *(pooled, batch_norm, depthwise, activation, with_value) * 2,
    *(
        residual,
        attention_to_places,
        grouped_norm,
        of_channels,
        transposed_convolution,
        flat_images,
        pixels_as_steps,
        resized,
        padded_images,
        *ANY,
    ),
)

LAYERS: Mapping[int, Sequence[Layer]] = {2: MATRICES, 3: SERIES, 4: IMAGES}


# ----------------------------------------------------------------------------------------- rows that form sequences
def _need_rows(b: Builder, x: Variable, products: int, width: int) -> None:
    rows = b.rows_of_sequences
    b.need(rows * products, rows * width)


def sequence_dense(b: Builder, x: Variable) -> Variable:
    size = b.width(b.rows_of_sequences, x.shape[-1], most=512)
    _need_rows(b, x, x.shape[-1] * size, size)
    return layers.fc(x, size, act=b.choices.pick(ACTS[:4]))


def sequence_lstm(b: Builder, x: Variable) -> Variable:
    size = b.width(b.rows_of_sequences, 4 * x.shape[-1], most=128)
    _need_rows(b, x, 4 * size * (size + x.shape[-1]), 4 * size)
    projected = layers.fc(x, 4 * size, bias_attr=False)
    return layers.dynamic_lstm(
        projected, 4 * size, use_peepholes=b.choices.chance(60), is_reverse=b.choices.chance(30), dtype=b.dtype
    )[0]


def sequence_gru(b: Builder, x: Variable) -> Variable:
    size = b.width(b.rows_of_sequences, 3 * x.shape[-1], most=128)
    _need_rows(b, x, 3 * size * (size + x.shape[-1]), 3 * size)
    return layers.dynamic_gru(layers.fc(x, 3 * size, bias_attr=False), size, is_reverse=b.choices.chance(30))


def sequence_convolution(b: Builder, x: Variable) -> Variable:
    taps = b.choices.pick((3, 1, 2, 5))
    size = b.width(b.rows_of_sequences, taps * x.shape[-1], most=256)
    _need_rows(b, x, taps * x.shape[-1] * size, size)
    return layers.sequence_conv(x, size, taps, act=b.choices.pick(ACTS[:4]))


def sequence_weights(b: Builder, x: Variable) -> Variable:
    _need_rows(b, x, x.shape[-1], x.shape[-1])
    weights = layers.sequence_softmax(layers.fc(x, 1))
    return layers.elementwise_mul(x, weights)


def sequence_expanded(b: Builder, x: Variable) -> Variable:
    """The last step of each sequence beside all its steps."""
    last = layers.sequence_pool(x, b.choices.pick(("last", "average", "max", "first", "sum", "sqrt")))
    return layers.elementwise_add(x, layers.sequence_expand(last, x))


def sequence_reversed(b: Builder, x: Variable) -> Variable:
    return layers.elementwise_sub(x, layers.sequence_reverse(x))


SEQUENCE_LAYERS: Sequence[Layer] = (
    *(sequence_dense, sequence_lstm, sequence_gru, sequence_convolution, sequence_weights, sequence_expanded, activation),
    sequence_reversed,
)


def image_area(b: Builder, batch: int, channels: int) -> int:
    """The largest side of images that fit."""
    return max(math.isqrt(b.elements // (batch * channels)), 1)
