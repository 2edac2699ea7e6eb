"""Tiny versions of the programs in examples/, with parameters and feeds that numpy draws, for comparing numbers with Paddle."""

from __future__ import annotations

import re
import sys
import zlib
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
from paths import ROOT

import fluid
from fluid import layers
from fluid.values.types import VarType

sys.path.insert(0, str(ROOT / "examples"))

import image_classification
import label_semantic_roles
import machine_translation
import recognize_digits
import recommender_system
import understand_sentiment
import word2vec

PLACE = fluid.CPUPlace()


@dataclass
class Case:
    """A program and what to run it with."""

    fetch: list[Any]
    """What to compare in each step."""
    feed: dict[str, Any]
    steps: int = 3
    grads: list[str] = field(default_factory=list)
    """Gradients of parameters, compared in the first step."""
    salt: str = ""
    """Goes before the names of parameters where they are drawn."""
    main: fluid.Program = field(default_factory=fluid.default_main_program)
    startup: fluid.Program = field(default_factory=fluid.default_startup_program)


def drawn(name: str, shape: Any, low: float = -0.5, high: float = 0.5) -> Any:
    """Numbers that depend on the name alone."""
    return np.random.RandomState(zlib.crc32(name.encode())).uniform(low, high, shape).astype("float32")


def prepare(case: Case) -> dict[str, Any]:
    """Run the startup program and draw all that is trained, in the current scope; first values of persistable variables."""
    fluid.Executor(PLACE).run(case.startup)
    scope = fluid.global_scope()
    parameters = {param.name for param in case.main.all_parameters() if param.trainable}
    first = {}
    for var in case.main.list_vars():
        if var.persistable and var.type is VarType.LOD_TENSOR and scope.find_var(var.name) is not None:
            tensor = scope.find_var(var.name).get_tensor()
            if var.name in parameters:
                bound = 1.5 / np.sqrt(np.prod(var.shape) / var.shape[0 if var.ndim == 4 else -1])
                tensor.set(drawn(case.salt + var.name, var.shape, -bound, bound), PLACE)
            first[var.name] = np.array(tensor)
    return first


def trained(loss: Any, feed: dict[str, Any], optimizer: Any, *more: Any) -> Case:
    """A case that minimizes `loss` with `optimizer`."""
    optimizer.minimize(loss)
    block = loss.block
    names = [param.name + "@GRAD" for param in block.program.all_parameters()]
    grads = [name for name in names if name in block.vars and block.vars[name].type is VarType.LOD_TENSOR]
    return Case([loss, *more], feed, grads=grads)


def fed(feed_list: list[Any], rows: Any) -> dict[str, Any]:
    return dict(fluid.DataFeeder(feed_list, PLACE).feed(rows))


def cos_sim(x: Any, y: Any) -> Any:
    """`layers.cos_sim` written with ops that Paddle 2.6 still has."""

    def dot(a: Any, b: Any) -> Any:
        return layers.reduce_sum(layers.elementwise_mul(a, b), dim=1, keep_dim=True)

    return layers.elementwise_div(dot(x, y), layers.elementwise_mul(layers.sqrt(dot(x, x)), layers.sqrt(dot(y, y))))


def fit_a_line() -> Case:
    x, y = layers.data("x", [13]), layers.data("y", [1])
    loss = layers.mean(layers.square_error_cost(layers.fc(x, 1), y))
    return trained(loss, {"x": drawn("x", [8, 13]), "y": drawn("y", [8, 1])}, fluid.optimizer.SGD(0.05))


def images() -> tuple[Any, Any, dict[str, Any]]:
    feed = {"image": drawn("image", [8, 1, 8, 8], -1, 1), "label": np.array([[3], [1], [0], [9], [4], [2], [7], [7]])}
    return layers.data("image", [1, 8, 8]), layers.data("label", [1], dtype="int64"), feed


def digits() -> Case:
    image, label, feed = images()
    prediction = recognize_digits.lenet(image)
    loss = layers.mean(layers.cross_entropy(prediction, label))
    return trained(loss, feed, fluid.optimizer.Momentum(0.01, 0.9), layers.accuracy(prediction, label))


def classification(net: Any) -> Case:
    image, label, feed = images()
    loss, accuracy = image_classification.classification(net, image, label)
    case = trained(loss, feed, fluid.optimizer.Momentum(0.01, 0.9), accuracy)
    # Of what is added before a batch norm, which takes means off, the gradient is what rounding leaves.
    case.grads = [name for name in case.grads if not re.match(r"conv2d_\d+.b_0", name)]
    return case


def vgg() -> Case:
    return classification(lambda image: image_classification.vgg(image, filters=(4, 6), hidden=8, drop=0.0))


def resnet() -> Case:
    return classification(lambda image: image_classification.resnet(image, filters=(4, 6), blocks=1))


def words() -> Case:
    inputs = [layers.data(name, [1], dtype="int64") for name in (*word2vec.CONTEXT, "following")]
    prediction = word2vec.predict_next(inputs[:4], 20, embedding_size=4, hidden_size=6)
    rows = np.random.RandomState(3).randint(0, 20, [6, 5])
    loss = layers.mean(layers.cross_entropy(prediction, inputs[4]))
    return trained(loss, fed(inputs, rows), fluid.optimizer.Adam(0.01))


def recommender() -> Case:
    inputs = recommender_system.inputs()
    predicted, loss = recommender_system.recommender(*inputs, size=4)
    return trained(loss, fed(inputs, recommender_system.ratings(6, 1)), fluid.optimizer.SGD(0.2), predicted)


def sentiment(net: Callable[..., Any], optimizer: Callable[[], Any]) -> Callable[[], Case]:
    def build() -> Case:
        inputs = [layers.data("words", [1], dtype="int64", lod_level=1), layers.data("label", [1], dtype="int64")]
        loss, accuracy = understand_sentiment.sentiment(lambda words: net(words, size=4), *inputs)
        feed = fed(inputs, understand_sentiment.reviews(5, 2))
        return trained(loss, feed, optimizer(), accuracy)

    return build


def roles() -> Case:
    inputs = label_semantic_roles.inputs()
    loss, decoded = label_semantic_roles.semantic_roles(*inputs, size=4, depth=3)
    *_, found, true, right = layers.chunk_eval(decoded, inputs[-1], "IOB", len(label_semantic_roles.ROLES))
    feed = fed(inputs, label_semantic_roles.sentences(3, 1))
    rate = layers.exponential_decay(learning_rate=0.05, decay_steps=2, decay_rate=0.5)
    return trained(loss, feed, fluid.optimizer.SGD(rate), decoded, found, true, right)


def translation_training() -> Case:
    inputs = machine_translation.sequences("source", "said", "following")
    loss = machine_translation.training(*inputs, size=4)
    return trained(loss, fed(inputs, machine_translation.pairs(4, 3)), fluid.optimizer.SGD(0.1))


def translation() -> Case:
    source = machine_translation.sequences("source")
    feed = {**machine_translation.beginnings(3), **fed(source, [pair[:1] for pair in machine_translation.pairs(3, 4)])}
    first = [
        layers.data(name, [1], dtype=kind, lod_level=2) for name, kind in (("first_ids", "int64"), ("first_scores", "float32"))
    ]
    # Drawn so that some sentences end early and others do not.
    return Case([*machine_translation.translation(*source, *first, size=4, longest=6)], feed, steps=1, salt="83")


CASES: dict[str, Callable[[], Case]] = {
    "fit_a_line": fit_a_line,
    "recognize_digits": digits,
    "image_classification_vgg": vgg,
    "image_classification_resnet": resnet,
    "word2vec": words,
    "recommender_system": recommender,
    "understand_sentiment_conv": sentiment(understand_sentiment.conv_net, partial(fluid.optimizer.SGD, 0.1)),
    "understand_sentiment_stacked_lstm": sentiment(understand_sentiment.stacked_lstm, partial(fluid.optimizer.Adagrad, 0.05)),
    "understand_sentiment_dynamic_rnn": sentiment(understand_sentiment.dynamic_rnn, partial(fluid.optimizer.SGD, 0.1)),
    "label_semantic_roles": roles,
    "machine_translation_training": translation_training,
    "machine_translation": translation,
}
