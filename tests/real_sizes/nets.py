"""Random nets with training, at sizes from practice."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod

import fluid
from fluid import layers
from fluid.ir.program import Variable

from .building import Builder, case_of, dense, refusals
from .cases import Case, Unfit
from .choices import BATCHES, IMAGE_SIZES, Choices
from .layer_choices import LAYERS, SEQUENCE_LAYERS, image_area
from .training import minimize

__all__ = ["make_net"]


# -------------------------------------------------------------------------------------------------------------- inputs
def table(b: Builder) -> Variable:
    batch = b.choices.extent(8192, BATCHES)
    return b.data([batch, b.width(batch, most=4096)])


def series(b: Builder) -> Variable:
    batch, steps = b.choices.extent(64), b.choices.extent(130)
    return b.data([batch, steps, b.width(batch * steps, most=512)])


def images(b: Builder) -> Variable:
    batch = b.choices.extent(64, BATCHES)
    channels = b.width(batch, most=b.choices.pick((3, 1, 64, 512)))
    most = image_area(b, batch, channels)
    height = b.choices.extent(min(most, 224), IMAGE_SIZES)
    width = height if b.choices.chance(70) else b.choices.extent(min(most, 224), IMAGE_SIZES)
    return b.data([batch, channels, height, width])


def words(b: Builder) -> Variable:
    """Rows of a table for series of ids."""
    c = b.choices
    batch, steps, rows = c.extent(128), c.extent(64), c.extent(8192, least=2)
    width = b.width(max(batch * steps, rows), most=512)
    padding = c.pick((None, 0, -1))
    ids = b.integers([batch, steps], rows)
    return fluid.embedding(ids, [rows, width], is_sparse=c.chance(50), padding_idx=padding, dtype=b.dtype)


INPUTS = (table, images, series, words, table, images)


# --------------------------------------------------------------------------------------------------------------- losses
def _classes(b: Builder, x: Variable, least: int = 1) -> Variable:
    """Scores of classes, by a dense layer."""
    size = max(b.width(x.shape[0], x.shape[1], most=1000), least)
    b.need(prod(x.shape) * size, max(x.shape) * size)
    return layers.fc(x, size)


def of_mean(b: Builder, x: Variable) -> Variable:
    """The mean of a tensor, or of a layer with one output: then the gradient of its bias is a sum of equal numbers."""
    return layers.mean(layers.fc(x, 1) if b.choices.chance(60) else x)


def of_sum(b: Builder, x: Variable) -> Variable:
    """The sum of a tensor, perhaps with a number added to each row, whose gradient is a sum of equal numbers, too."""
    if b.choices.chance(60):
        x = layers.elementwise_add(x, b.parameter([x.shape[0], 1]))
    return layers.scale(layers.reduce_sum(x), 1.0 / prod(x.shape))


def of_squares(b: Builder, x: Variable) -> Variable:
    y = b.data(x.shape, 1.0)
    kind = b.choices.below(4)
    if kind == 0:
        return layers.mean(layers.square(layers.elementwise_sub(x, y)))
    if kind == 1:
        return layers.mse_loss(x, y)
    if kind == 2:
        return layers.mean(layers.square_error_cost(x, y))
    return layers.scale(
        layers.reduce_sum(layers.reduce_sum(layers.square(layers.elementwise_sub(x, y)), dim=-1)), 1 / prod(x.shape)
    )


def of_classes(b: Builder, x: Variable) -> Variable:
    c = b.choices
    scores = _classes(b, x)
    rows, count = scores.shape
    if c.chance(25):
        weights = layers.softmax(b.data([rows, count], 1.0))
        if c.chance(50):
            return layers.mean(layers.softmax_with_cross_entropy(scores, weights, soft_label=True))
        return layers.mean(layers.cross_entropy(layers.softmax(scores), weights, soft_label=True))
    labels = b.integers([rows, 1], count)
    if c.chance(20):
        smooth = layers.one_hot(labels, count)
        smooth = smooth if b.dtype == "float32" else layers.cast(smooth, b.dtype)
        smooth = layers.label_smooth(smooth, epsilon=0.1, dtype=b.dtype)
        return layers.mean(layers.softmax_with_cross_entropy(scores, smooth, soft_label=True))
    ignored = c.pick((-100, 0))
    if c.chance(40):
        return layers.mean(layers.cross_entropy(layers.softmax(scores), labels, ignore_index=ignored))
    return layers.mean(layers.softmax_with_cross_entropy(scores, labels, ignore_index=ignored))


def of_yes_or_no(b: Builder, x: Variable) -> Variable:
    c = b.choices
    y = layers.cast(b.integers(x.shape, 2), b.dtype)
    kind = c.below(4)
    if kind == 0:
        return layers.mean(layers.sigmoid_cross_entropy_with_logits(x, y))
    if kind == 1:
        return layers.mean(layers.log_loss(layers.sigmoid(layers.reshape(x, [-1, 1])), layers.reshape(y, [-1, 1])))
    if kind == 2:
        return layers.mean(fluid.extend.ops().hinge_loss(layers.reshape(x, [-1, 1]), layers.reshape(y, [-1, 1])))
    return layers.mean(fluid.extend.ops().bce_loss(layers.sigmoid(x), y))


def of_distances(b: Builder, x: Variable) -> Variable:
    c = b.choices
    y = b.data(x.shape, 1.0)
    kind = c.below(5)
    if kind == 0:
        return layers.mean(layers.huber_loss(x, y, 0.5))
    if kind == 1:
        return layers.mean(layers.smooth_l1(x, y))
    if kind == 2:
        return layers.kldiv_loss(
            fluid.extend.ops().log_softmax(x, axis=-1), layers.softmax(y), c.pick(("mean", "sum", "batchmean"))
        )
    if kind == 3:
        return layers.mean(layers.cos_sim(x, y))
    return layers.mean(layers.abs(layers.elementwise_sub(x, y)))


def of_ranks(b: Builder, x: Variable) -> Variable:
    left, right = layers.fc(x, 1), layers.fc(x, 1)
    b.need(2 * prod(x.shape))
    labels = layers.cast(b.integers([x.shape[0], 1], 2), b.dtype)
    if b.choices.chance(50):
        return layers.mean(layers.rank_loss(labels, left, right))
    return layers.mean(layers.margin_rank_loss(layers.scale(labels, 2.0, -1.0), left, right, 0.1))


def of_tree(b: Builder, x: Variable) -> Variable:
    classes = b.choices.extent(300, least=2)
    b.need(prod(x.shape) * 10, classes * x.shape[1])
    labels = b.integers([x.shape[0], 1], classes)
    return layers.mean(layers.hsigmoid(x, labels, classes, is_sparse=b.choices.chance(40)))


LOSSES: Sequence[Callable[[Builder, Variable], Variable]] = (
    *(of_mean, of_squares, of_classes, of_sum, of_yes_or_no, of_distances, of_classes, of_ranks, of_tree),
)


def _loss(b: Builder, x: Variable) -> Variable:
    if len(x.shape) != 2:
        x = layers.reshape(x, [x.shape[0], -1])
    for _ in range(3):
        try:
            with refusals():
                return b.choices.pick(LOSSES)(b, x)
        except Unfit:
            continue
    return layers.mean(x)


# ------------------------------------------------------------------------------------- variables of the scope, by formulas
def running_mean(b: Builder, x: Variable) -> None:
    """An average that moves: a mean over rows, or of all."""
    mean = layers.reduce_mean(x, dim=0)
    state = b.state(mean.shape)
    layers.assign(layers.elementwise_add(layers.scale(state, 0.9), layers.scale(mean, 0.1)), state)


def recurrent_state(b: Builder, x: Variable) -> None:
    """s = tanh(x w + s)."""
    if len(x.shape) != 2:
        return
    size = b.width(x.shape[0], x.shape[1])
    b.need(prod(x.shape) * size, max(x.shape) * size)
    state = b.state([x.shape[0], size])
    layers.assign(layers.tanh(layers.elementwise_add(layers.matmul(x, b.parameter([x.shape[1], size])), state)), state)


def summed_state(b: Builder, x: Variable) -> None:
    """Sums over runs, written to a variable that the program reads."""
    state = b.state(x.shape, 0.25)
    if b.choices.chance(50):
        layers.sums([x, state], out=state)
    else:
        layers.assign(layers.elementwise_add(state, x), state)


def scaled_state(b: Builder, x: Variable) -> None:
    state = b.state(x.shape)
    b.block.append_op("scale", {"X": state}, {"Out": state}, {"scale": 0.5, "bias": 0.1})
    layers.assign(layers.elementwise_mul(state, layers.tanh(x)), state)


STATES = (running_mean, recurrent_state, summed_state, scaled_state)


def summed_gradients(b: Builder) -> None:
    """Gradients that are summed over runs."""
    block = fluid.default_main_program().global_block()
    for param in block.all_parameters()[:3]:
        grad = block.vars.get(param.name + "@GRAD")  # of a table, it may be some rows
        if grad is not None:
            state = b.state(param.shape, 0.0)
            layers.sums([grad, state], out=state)


# ------------------------------------------------------------------------------------------------------------------ nets
def _dense_net(b: Builder) -> Variable:
    x = b.choices.pick(INPUTS)(b)
    b.values.append(x)
    for _ in b.choices.repeat(8, 78):
        try:
            with refusals():
                result = b.choices.pick(LAYERS[len(x.shape)])(b, x)
        except Unfit:
            continue
        if prod(result.shape) > 2 * b.elements or -1 in result.shape or len(result.shape) not in LAYERS:
            continue
        x = result
        b.values.append(x)
        if b.choices.chance(8):
            x = b.choices.pick(b.values)
    return x


def _sequence_net(b: Builder) -> Variable:
    """A net over rows that form sequences."""
    c = b.choices
    lengths = [c.extent(65) for _ in range(c.between(1, 24))]
    b.rows_of_sequences = sum(lengths)
    if c.chance(50):
        rows, width = c.extent(5000, least=2), c.extent(128)
        x = layers.embedding(b.sequences(lengths, 1, high=rows), [rows, width], is_sparse=c.chance(50), dtype=b.dtype)
    else:
        x = b.sequences(lengths, c.extent(128))
        x.stop_gradient = False
    b.values.append(x)
    for _ in c.repeat(4, 70):
        try:
            with refusals():
                x = c.pick(SEQUENCE_LAYERS)(b, x)
        except Unfit:
            continue
        b.values.append(x)
    x = layers.sequence_pool(x, c.pick(("sum", "average", "max", "last", "first", "sqrt")))
    x = layers.fc(x, c.between(1, 10))
    # a loss without labels, whose number of rows is known only when sequences are fed
    return layers.mean(c.pick((layers.square, layers.tanh, layers.softmax))(x))


def _build(choices: Choices) -> tuple[Builder, list[Variable], int]:
    b = Builder(choices)
    if choices.chance(10):
        loss = _sequence_net(b)
    else:
        x = _dense_net(b)
        loss = _loss(b, x)
        if choices.chance(20) and len(b.values) > 1:
            loss = layers.elementwise_add(loss, layers.mean(layers.tanh(choices.pick(b.values))))
        for _ in choices.repeat(2, 15):
            with refusals():
                choices.pick(STATES)(b, choices.pick(b.values))
    fetches = [loss, *(var for var in b.values[1:] if choices.chance(15))]
    if choices.chance(8):
        parameters = fluid.default_main_program().all_parameters()
        fetches += dense(fluid.gradients([loss], [*parameters, b.values[0]] if b.values[0].name in b.feeds else parameters))
    elif fluid.default_main_program().all_parameters() and not choices.chance(4):
        minimize(choices, loss, b.dtype)
        if choices.chance(10):
            summed_gradients(b)
        gradients = dense([var for name, var in b.block.vars.items() if name.endswith("@GRAD")])
        fetches += [var for var in gradients if choices.chance(6)]
    return b, fetches, choices.between(1, 3)


def make_net(choices: Choices) -> Case:
    """A net, its loss and its training."""
    return case_of("net", choices, _build)
