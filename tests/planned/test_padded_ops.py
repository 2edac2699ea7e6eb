"""Ops over sequences and over rows in programs with padded rows."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from checks import MORE, each, some
from padded_runs import TAGS, WORDS, Net, Run, assert_close, assert_runs_agree, fed, fed_x, fill_padding

import fluid
from fluid import layers
from fluid.errors import ExecutionError
from fluid.ir.program import Variable

FEW = [[2, 0, 3, 1, 1], [2, 0, 3, 1, 1], [1, 0, 0, 0, 0], [4, 4, 0, 0, 3], [3, 3, 3, 3, 4], [8, 0, 0, 0, 0], [4, 3, 3, 3, 4]]


def tags_in(rows: Variable) -> Variable:
    """The tags as a row of floats each."""
    return layers.one_hot(fed("tags"), TAGS)


SMOOTH: dict[str, Callable[[Variable], Variable]] = {
    "layer_norm": lambda x: layers.layer_norm(x, begin_norm_axis=1),
    "softmax": layers.softmax,
    "l2_normalize": lambda x: layers.l2_normalize(x + 0.1, axis=1),
    "clip": lambda x: layers.clip(x, -1.0, 1.0),
    "pow": lambda x: layers.pow(layers.abs(x) + 1.0, 1.5),
    "label_smooth": lambda x: layers.label_smooth(layers.softmax(x), epsilon=0.1),
    "stack": lambda x: layers.reshape(layers.stack([x, layers.tanh(x)], axis=1), [0, -1]),
    "split": lambda x: layers.concat(layers.split(x, 2, dim=1)[::-1], axis=1),
    "slice": lambda x: layers.slice(x, axes=[1], starts=[1], ends=[3]),
    "pad": lambda x: layers.pad(x, [0, 0, 1, 2], 0.5),
    "expand": lambda x: layers.expand(x, [1, 3]),
    "reshape": lambda x: layers.reshape(layers.transpose(layers.reshape(x, [-1, 2, 2]), [0, 2, 1]), [0, 4]),
    "flatten": lambda x: layers.flatten(layers.unsqueeze(x, [1]), axis=1),
    "reduce_sum of columns": lambda x: layers.reduce_sum(x, dim=1, keep_dim=True),
    "reduce_mean of columns": lambda x: layers.reduce_mean(x, dim=-1, keep_dim=True),
    "where": lambda x: layers.where(layers.less_than(x, layers.scale(x, 0.5)), x, layers.square(x)),
    "cos_sim": lambda x: layers.cos_sim(x + 0.1, layers.scale(layers.fc(x, 4), 0.5)),
    "bilinear": lambda x: layers.bilinear_tensor_product(x, layers.tanh(x), 3),
    "dropout": lambda x: layers.tanh(layers.dropout(layers.fc(x, 6), 0.4)),
    "dropout, upscaled": lambda x: layers.dropout(x, 0.4, dropout_implementation="upscale_in_train"),
    "dropout with a seed": lambda x: layers.dropout(x, 0.4, seed=7),
    "dropout in a test": lambda x: layers.dropout(x, 0.4, is_test=True),
}  # fmt: skip
"""Functions of rows, each by itself, with continuous gradients, in any float type."""
OF_ROWS: dict[str, Callable[[Variable], Variable]] = SMOOTH | {
    "prelu": lambda x: layers.prelu(x, "all"),
    "argmax": lambda x: layers.unsqueeze(layers.cast(layers.argmax(x, 1), "float32"), [1]) + layers.reduce_sum(x, 1, True),
    "reduce_max of columns": lambda x: layers.unsqueeze(layers.reduce_max(x + 0.3 * tags_in(x)[:, :4], dim=1), [1]),
    "matmul": lambda x: layers.matmul(x, layers.create_parameter([5, 4], "float32"), transpose_y=True),
    "top_k": lambda x: layers.topk(x + 0.3 * tags_in(x)[:, :4], 2)[0],
    "cross_entropy": lambda x: layers.cross_entropy(layers.fc(x, TAGS, act="softmax"), fed("tags")),
    "softmax_with_cross_entropy": lambda x: layers.softmax_with_cross_entropy(layers.fc(x, TAGS), fed("tags"), ignore_index=2),
    "soft labels": lambda x: layers.softmax_with_cross_entropy(layers.fc(x, TAGS), tags_in(x), soft_label=True),
    "sigmoid_cross_entropy": lambda x: layers.sigmoid_cross_entropy_with_logits(layers.fc(x, TAGS), tags_in(x)),
    "huber_loss": lambda x: layers.huber_loss(layers.fc(x, 1), layers.cast(fed("tags"), "float32"), 1.0),
    "smooth_l1": lambda x: layers.smooth_l1(layers.fc(x, TAGS), tags_in(x)),
    "log_loss": lambda x: layers.log_loss(layers.fc(x, 1, act="sigmoid"), layers.scale(layers.cast(fed("tags"), "float32"), 0.2)),
    "square_error_cost": lambda x: layers.square_error_cost(layers.fc(x, TAGS), tags_in(x)),
    "padding_idx": lambda x: x + layers.embedding(fed("ids"), [WORDS, 4], padding_idx=3),
    "sparse table": lambda x: x + layers.embedding(fed("ids"), [WORDS, 4], is_sparse=True),
}  # fmt: skip


def of_rows(make: Callable[[Variable], Variable], optimizer: str = "SGD") -> Net:
    """Trains by the mean over all rows, and by an average of each sequence."""

    def build() -> list[Variable]:
        x = fed_x()
        rows = make(x + layers.create_parameter([4], "float32", is_bias=True))
        loss = layers.mean(layers.softplus(rows)) + layers.reduce_mean(layers.softplus(layers.sequence_pool(rows, "average")))
        getattr(fluid.optimizer, optimizer)(0.1).minimize(loss)
        return [loss, rows, x.block.var("x@GRAD")]

    return build


def numpy_ops(run: Run, lengths: list[int]) -> str:
    """The ops of a plan that numpy computes."""
    return str(run.plan(lengths)).split("on numpy: ")[1].splitlines()[0]


@each("name", OF_ROWS)
def test_functions_of_rows(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    run = assert_runs_agree(of_rows(OF_ROWS[name]), monkeypatch, FEW[:-1])  # of two capacities, each filled by one of them
    drawing = ("dropout", "dropout, upscaled", "dropout with a seed")
    by_numpy = {"pow": "pow, pow_grad", **dict.fromkeys(drawing, "dropout")}
    assert numpy_ops(run, FEW[0]) == by_numpy.get(name, "none")


@pytest.mark.random
@each("name", some(OF_ROWS))
def test_padding_rows_do_not_matter(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    fill_padding(monkeypatch, 20.0)
    assert_runs_agree(of_rows(OF_ROWS[name], "Adam"), monkeypatch, FEW[:3])


# ---------------------------------------------------------------------------------------------------- ops over sequences
def updated(loss: Variable, *fetches: Variable, optimizer: str = "SGD") -> list[Variable]:
    getattr(fluid.optimizer, optimizer)(0.1).minimize(loss)
    return [loss, *fetches, loss.block.var("x@GRAD")]


def pooled_loss(*rows: Variable) -> Variable:
    """A loss by the maximum of each sequence and the mean of all rows."""
    parts = [layers.reduce_mean(layers.softplus(layers.sequence_pool(part, "max"))) for part in rows]
    return layers.sums([*parts, *(layers.mean(layers.square(part)) for part in rows)])


def lstms() -> list[Variable]:
    x = layers.fc(fed_x(), 12)
    forward, cell = layers.dynamic_lstm(x, 12)
    backward, _ = layers.dynamic_lstm(layers.fc(x, 12), 12, is_reverse=True, use_peepholes=False)
    return updated(pooled_loss(forward, backward), forward, cell, backward)


def projected_lstm() -> list[Variable]:
    projection, cell = layers.dynamic_lstmp(layers.fc(fed_x(), 12), 12, 2)
    return updated(pooled_loss(projection), projection, cell, optimizer="Adam")


def grus() -> list[Variable]:
    x, dense = fed_x(), fed("dense")
    forward = layers.dynamic_gru(layers.fc(x, 12), 4, h_0=dense)
    both = layers.concat([forward, layers.dynamic_gru(layers.fc(x, 12), 4, is_reverse=True)], 1)
    return [*updated(pooled_loss(both), both), dense.block.var("dense@GRAD")]


def tagger() -> list[Variable]:
    x, tags = fed_x(), fed("tags")
    h = layers.concat([layers.dynamic_gru(layers.fc(x, 12), 4, is_reverse=turn) for turn in (False, True)], 1)
    scores = layers.fc(layers.sequence_conv(h, 6, 3, act="tanh"), TAGS)
    cost = layers.linear_chain_crf(scores, tags, param_attr=fluid.ParamAttr("moves"))
    path = layers.crf_decoding(scores, param_attr=fluid.ParamAttr("moves"))
    counts = layers.chunk_eval(path, tags, "IOB", 2)
    return updated(layers.mean(cost), cost, path, *counts, optimizer="Adam")


def windows() -> list[Variable]:
    """Embeddings of each word and the next ones, and a sum over the rows to come."""
    x = fed_x()
    pairs = fluid.embedding(layers.sequence_enumerate(fed("ids"), 2, pad_value=1), [WORDS, 3])
    ahead = layers.row_conv(x, 2, act="tanh")
    rows = layers.concat([ahead, layers.flatten(pairs, axis=1)], 1)
    return updated(pooled_loss(rows), rows)


def classified_rows() -> list[Variable]:
    x, tags = fed_x(), fed("tags")
    probabilities = layers.fc(layers.batch_norm(layers.fc(x, 6)), TAGS, act="softmax")
    cost = layers.cross_entropy(probabilities, tags)
    right = layers.accuracy(probabilities, tags)
    sums = [
        layers.reduce_sum(cost),
        layers.reduce_mean(probabilities, 0, True),
        layers.reduce_max(x, 0, True),
        layers.reduce_sum(x, [0, 1]),
    ]
    return updated(layers.mean(cost), right, probabilities, *sums)


def centred() -> list[Variable]:
    """Rows minus the mean of all rows, and a softmax over all rows."""
    x = fed_x()
    mean = layers.reduce_mean(x, 0, keep_dim=True)
    x = x + layers.create_parameter([4], "float32", is_bias=True)
    rows = layers.elementwise_sub(layers.elementwise_mul(x, layers.softmax(x, axis=0)), mean)
    return updated(pooled_loss(rows) + layers.reduce_sum(layers.square(mean)), rows, mean)


def of_two_lods() -> list[Variable]:
    x, beside = fed_x(), fed("beside")
    second = layers.sequence_last_step(layers.dynamic_gru(layers.fc(beside, 6), 2))
    rows = layers.concat([layers.dynamic_gru(layers.fc(x, 6), 2), layers.sequence_expand_as(second, x)], 1)
    loss = pooled_loss(rows) + layers.mean(layers.square(beside))
    return [*updated(loss, rows, optimizer="Adam"), x.block.var("beside@GRAD")]


def averaged_words() -> list[Variable]:
    """Sparse tables, layer_norm, dropout and an average, as text classifiers have them."""
    words = layers.embedding(fed("ids"), [WORDS, 8], is_sparse=True)
    x = fed_x()
    for _ in range(2):
        words = layers.layer_norm(words + layers.fc(layers.dropout(layers.fc(words, 6, act="relu"), 0.3), 8), begin_norm_axis=1)
    average = layers.sequence_pool(layers.concat([words, x], 1), "average")
    probabilities = layers.fc(average, 2, act="softmax")
    loss = layers.mean(layers.cross_entropy(probabilities, fed("label")))
    return updated(loss, layers.accuracy(probabilities, fed("label")), words, optimizer="Adam")


def unpadded() -> list[Variable]:
    """A tagger of padded sentences, whose lengths are fed."""
    length, vectors = fed("length"), fed("vectors")
    words = layers.sequence_unpad(fluid.embedding(fed("steps"), [TAGS, 4]), length)
    rows, tags = words + layers.sequence_unpad(vectors, length), layers.sequence_unpad(fed("steps"), length)
    scores = layers.fc(layers.dynamic_gru(layers.fc(rows, 12), 4), TAGS)
    cost = layers.linear_chain_crf(scores, tags, param_attr=fluid.ParamAttr("moves"))
    loss = layers.mean(cost) + layers.mean(layers.square(layers.sequence_pool(rows, "max")))
    fluid.optimizer.Adam(0.1).minimize(loss)
    return [loss, rows, tags, layers.crf_decoding(scores, param_attr=fluid.ParamAttr("moves")), loss.block.var("vectors@GRAD")]


def unpadded_beside_rows() -> list[Variable]:
    """Padded sentences beside rows of sequences."""
    x = fed_x()
    steps = layers.sequence_unpad(fed("vectors"), fed("length"))
    pools = [layers.sequence_pool(layers.fc(rows, 3, act="tanh"), "average") for rows in (x, steps)]
    return updated(layers.mean(layers.square(layers.concat(pools, 1))), *pools)


NETS = [
    unpadded,
    unpadded_beside_rows,
    lstms,
    projected_lstm,
    grus,
    tagger,
    windows,
    classified_rows,
    centred,
    of_two_lods,
    averaged_words,
]


@pytest.mark.random
@each("build", some(NETS))
def test_nets(build: Net, monkeypatch: pytest.MonkeyPatch) -> None:
    assert_runs_agree(build, monkeypatch)


@each("build", NETS)
def test_padding_rows_of_nets_do_not_matter(build: Net, monkeypatch: pytest.MonkeyPatch) -> None:
    fill_padding(monkeypatch, 20.0)
    assert_runs_agree(build, monkeypatch, FEW)


@pytest.mark.random
@each("build", some(NETS))
def test_threads_change_no_bit_of_nets(build: Net, monkeypatch: pytest.MonkeyPatch) -> None:
    by_one, by_two = (Run(build, True, monkeypatch, threads) for threads in (1, 2))
    for lengths in FEW:
        assert all(np.array_equal(*pair) for pair in zip(by_one.step(lengths), by_two.step(lengths), strict=True))


def random_net(seed: int, dtype: str) -> Net:
    """A net of random functions of rows and of sequences, with a random loss and optimizer."""
    of_rows = list(SMOOTH.values())

    def build() -> list[Variable]:
        rng = np.random.default_rng(seed)
        x = fed("x", dtype)
        rows, fetches = x, []
        if rng.random() < 0.5:
            rows = rows + layers.embedding(fed("ids"), [WORDS, 4], is_sparse=bool(rng.random() < 0.5), dtype=dtype)
        for _ in range(rng.integers(2, 6)):
            kind = rng.integers(0, 8)
            if kind < 2:
                rows = of_rows[rng.integers(0, len(of_rows))](rows)
            elif kind == 2:
                turns, mode = rng.random(2) < 0.5
                rows = layers.dynamic_gru(layers.fc(rows, 12), 4, is_reverse=bool(turns), origin_mode=bool(mode))
            elif kind == 3:
                rows = layers.dynamic_lstm(layers.fc(rows, 16), 16, is_reverse=bool(rng.random() < 0.5))[0]
            elif kind == 4:
                rows = layers.sequence_conv(rows, 4, 3)
            elif kind == 5:
                rows = layers.sequence_reverse(rows)
            elif kind == 6:
                pooled = layers.sequence_pool(rows, ["average", "sum", "sqrt", "last"][rng.integers(0, 4)])
                rows = layers.concat([rows, layers.sequence_expand_as(layers.tanh(pooled), rows)], 1)
            else:
                rows = layers.elementwise_mul(rows, layers.sequence_softmax(layers.fc(rows, 1, bias_attr=False)))
            fetches.append(rows)
            rows = layers.fc(rows, 4, act="tanh")
        losses = [layers.mean(layers.square(rows)), layers.mean(layers.square(layers.sequence_pool(rows, "sum")))]
        if rng.random() < 0.5:
            losses.append(layers.mean(layers.linear_chain_crf(layers.fc(rows, TAGS), fed("tags"))))
        loss = layers.sums(losses)
        getattr(fluid.optimizer, ["SGD", "Adagrad"][rng.integers(0, 2)])(1e-2 if dtype == "float64" else 1e-3).minimize(loss)
        return [loss, *fetches, x.block.var("x@GRAD")]

    return build


def random_batches(seed: int) -> list[list[int]]:
    """Lengths that grow and shrink, with empty sequences, a single row, and numbers of rows around capacities."""
    rng = np.random.default_rng(seed)
    count = int(rng.choice([1, 2, 5, 9]))
    batches = []
    for total in (1, *rng.choice([7, 8, 9, 15, 16, 17, 23, 24, 25, 39, 40, 41, 63, 64, 65], 5, replace=False)):
        cuts = np.sort(rng.integers(0, total + 1, count - 1))
        batches.append(np.diff([0, *cuts, total]).tolist())
    return batches


@each("seed", range(6 * MORE))
def test_random_nets(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    dtype = "float32" if seed % 3 == 1 else "float64"
    assert_runs_agree(random_net(seed, dtype), monkeypatch, random_batches(seed), dtype)


def of_infinities() -> list[Variable]:
    x = fed_x()
    logs = layers.log(x)
    rows = layers.elementwise_mul(logs, layers.dropout(layers.ones_like(x), 0.3))
    kinds = ("sum", "average", "max", "last")
    pools = [layers.sequence_pool(part, kind) for part in (logs, rows) for kind in kinds]
    means = [layers.mean(layers.slice(logs, [1], [column], [column + 1])) for column in range(4)]
    sums = layers.reduce_sum(logs, 0, True)
    loss = layers.mean(layers.square(layers.sequence_pool(layers.sqrt(x), "sum")))
    fluid.gradients([loss], [x])
    return [logs, rows, *pools, *means, sums, layers.softmax(x), layers.dynamic_gru(layers.fc(x, 6), 2), x.block.var("x@GRAD")]


@each("first", [1.0, np.inf, -1.0, np.nan, 0.0])
def test_infinities_stay_in_their_rows(first: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the first row holds, which padding rows copy."""
    rows = np.array([[first, 1, 2, 3], [1, 1, 1, 1], [3, np.nan, 1, 0], [1, 2, np.inf, 1], [2, 2, 2, 2]], "float32")
    runs = [Run(of_infinities, native, monkeypatch) for native in (False, True)]
    results = []
    for run, native in zip(runs, "01", strict=True):
        monkeypatch.setenv("FLUID_NATIVE", native)
        results.append(run.executor.run(run.program, {"x": (rows, [[0, 1, 1, 4, 5]])}, run.fetches, scope=run.scope))
    assert_close(results[1], results[0])


def test_lengths_beyond_the_steps_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    run = Run(unpadded, True, monkeypatch)
    feed = run.feed([2, 1, 3])
    run.executor.run(run.program, feed, run.fetches, scope=run.scope)
    for length in ([1, 2, 10], [3, -1, 4]):
        with pytest.raises(ExecutionError, match=r"-1|index 9"):
            run.executor.run(run.program, {**feed, "length": np.array(length)}, run.fetches, scope=run.scope)


def test_feeds_of_the_same_shapes_have_lengths_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    def build() -> list[Variable]:
        return [layers.sequence_pool(layers.sequence_unpad(fed("vectors"), fed("length")), "sum")]

    run = Run(build, True, monkeypatch)
    vectors = np.ones((4, 9, 4), "float32")
    for length in ([1, 1, 1, 1], [9, 9, 9, 9], [0, 0, 0, 0], [2, 9, 9, 9], [0, 0, 0, 1]):
        (sums,) = run.executor.run(run.program, {"vectors": vectors, "length": np.array(length)}, run.fetches, scope=run.scope)
        np.testing.assert_array_equal(sums, np.repeat(np.array(length, "float32")[:, None], 4, 1))
