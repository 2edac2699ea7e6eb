"""States of loops that grow by a row in each trip get room, so that native code computes the trips: results are numpy's."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from beside_numpy import Built
from checks import each, fresh_programs

import fluid
from fluid import layers
from fluid.executor.planned import growing_states
from fluid.extend import ops
from fluid.ir.program import Variable

Body = Callable[..., Sequence[Any]]


def number(value: int) -> Any:
    return layers.fill_constant([1], "int64", value)


def repeated(trips: int, body: Body, states: Sequence[Any], goes_on: Callable[..., Any] | None = None) -> Any:
    """The states after so many trips, or fewer if `goes_on` says so."""
    index, end = number(0), number(trips)

    def condition(index: Any, *states: Any) -> Any:
        is_within = layers.less_than(index, end)
        return is_within if goes_on is None else layers.logical_and(is_within, goes_on(*states))

    return layers.while_loop(condition, lambda index, *states: [index + 1, *body(*states)], [index, *states])[1:]


def assert_alike(build: Callable[[], Sequence[Variable]], feed: dict[str, Any], is_native: bool = True) -> None:
    """Assert that results and their shapes equal numpy's, and that native code computes the loop, or does not."""
    with fresh_programs():
        built = Built(build)
        built.assert_alike(feed)
        assert ("while(" in built.plan(feed)) != is_native


def heads(x: Any, count: int) -> Any:
    rows, width = x.shape[0], x.shape[-1]
    return layers.transpose(layers.reshape(x, [rows, -1, count, width // count]), [0, 2, 1, 3])


@each("trips", [0, 1, 2, 9])
@each("length", [0, 1, 3])
@each("ends", [False, True])
@each("first_trips", [2, 32])
def test_attention_to_keys_and_values_so_far(
    monkeypatch: pytest.MonkeyPatch, first_trips: int, trips: int, length: int, ends: bool
) -> None:
    """Words so far are returned, too. With `ends`, the largest logit may end the loop, and the shapes of results depend on it."""
    monkeypatch.setattr(growing_states, "_FIRST_TRIPS", first_trips)
    rows, width = 2, 12
    x = np.random.default_rng(trips).standard_normal((rows, width)).astype("float32")

    def build() -> Sequence[Variable]:
        state, table = fluid.data("x", [rows, width]), layers.create_parameter([7, width], "float32")
        caches = [heads(layers.fill_constant([rows, length, width], "float32", 0.25), 3) for _ in range(2)]
        if not length:
            caches = [layers.fill_constant([rows, 3, 0, width // 3], "float32", 0.0) for _ in range(2)]

        def step(h: Any, words: Any, top: Any, keys: Any, values: Any) -> Sequence[Any]:
            query, key, value = (heads(layers.fc(h, width, bias_attr=False), 3) for _ in range(3))
            keys, values = layers.concat([keys, key], 2), layers.concat([values, value], 2)
            weights = layers.softmax(layers.matmul(query, keys, transpose_y=True, alpha=0.5))
            context = layers.reshape(layers.transpose(layers.matmul(weights, values), [0, 2, 1, 3]), [rows, width])
            logits = layers.matmul(h + context, table, transpose_y=True)
            word = layers.argmax(logits, 1)
            words = layers.concat([words, layers.reshape(word, [rows, 1])], 1)
            return [layers.gather(table, word) + h, words, layers.reduce_max(logits, keep_dim=True), keys, values]

        top = layers.fill_constant([1, 1], "float32", -9.0)
        first = [state, layers.fill_constant([rows, 1], "int64", 1), top, *caches]
        goes_on = (lambda h, words, top, *_: layers.reshape(layers.less_than(top, number_like(3.0)), [1])) if ends else None
        return repeated(trips, step, first, goes_on)

    assert_alike(build, {"x": x}, is_native=trips > 0 or ends)


def number_like(value: float) -> Any:
    return layers.fill_constant([1, 1], "float32", value)


@each("seed", range(40))
def test_random_loops_give_the_same_with_room(monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    """A state of any rank grows along any axis, and ops of all kinds read it; the loop is one, or one of several stages."""
    monkeypatch.setattr(growing_states, "_FIRST_TRIPS", 1 + seed % 3)
    random = np.random.default_rng(seed)
    rank, width = int(random.integers(1, 5)), int(random.integers(1, 4))
    axis, trips, length = int(random.integers(rank)), int(random.integers(1, 6)), int(random.integers(1, 4))
    count = int(random.choice([1, 1, 2, 3]))
    shape = [int(random.integers(1, 4)) for _ in range(rank)]
    shape[axis] = length
    rows = [*shape[:axis], count, *shape[axis + 1 :]]
    ends = bool(random.integers(2))
    x = random.standard_normal((width, 2)).astype("float32")

    def grown_and_still(grown: Any, h: Any) -> Any:
        """A number that random ops compute from the grown state."""
        value, place, twin = grown, axis, grown * 0.5
        for _ in range(int(random.integers(0, 5))):
            rank, kind = len(value.shape), int(random.integers(11))
            free = [other for other in range(rank) if other != place]
            if kind == 0:
                value = layers.exp(layers.scale(value, 0.3, bias=-0.2))
            elif kind == 1:
                value = value * layers.reduce_mean(h) + 1.5
            elif kind == 2:
                order = [int(one) for one in random.permutation(rank)]
                value, twin, place = layers.transpose(value, order), layers.transpose(twin, order), order.index(place)
            elif kind == 3:
                value, twin = layers.softmax(value, axis=place), layers.relu(twin)
            elif kind == 4 and free:
                value = layers.softmax(value, axis=free[0])
            elif kind == 5 and free:
                value, twin = layers.concat([value, value * 2.0], free[-1]), layers.concat([twin, twin], free[-1])
            elif kind == 6 and rank < 5:
                value, twin = layers.unsqueeze(value, [place]), layers.unsqueeze(twin, [place])
                place += 1
            elif kind == 7 and free[0:1] == [0]:
                picked = layers.fill_constant([2], "int64", value.shape[0] - 1)
                value, twin = layers.gather(value, picked), layers.gather(twin, picked)
            elif kind == 8 and place + 2 < rank:
                merged = [0] * (place + 1) + [-1]
                value, twin = layers.reshape(value, merged), layers.reshape(twin, merged)
            elif kind == 9 and free:
                value, twin = (layers.reduce_sum(one, free[-1], keep_dim=True) for one in (value, twin))
            elif kind == 10:
                value = layers.cumsum(value, axis=place, exclusive=True)
        end = int(random.integers(9))
        if end == 0 and len(value.shape) > 1:
            order = [*(other for other in range(len(value.shape)) if other != place), place]
            value = layers.matmul(layers.transpose(value, order), layers.transpose(twin, order), transpose_y=True)
        elif end == 1:
            value = layers.log(layers.reduce_sum(layers.exp(value * 0.1), place))
        elif end == 2:
            value = layers.reduce_max(value + twin, place, keep_dim=True)
        elif end == 3:
            value = layers.reduce_min(value * -2.0, place)
        elif end == 4:
            value = layers.reduce_sum(ops().log_softmax(value, axis=place) * layers.softmax(twin, axis=place), place)
        elif end == 5:
            value = layers.reduce_sum(layers.cast(layers.greater_than(value, twin), "float32"), place)
        elif end == 6:
            value = layers.reduce_mean(value, sorted({place, int(random.integers(len(value.shape)))}))
        elif end == 7:
            value = layers.slice(value * twin, [place], [-1], [10**9])
        else:
            value = layers.slice(value, [0, place], [0, -length], [1, 10**9]) if place else layers.slice(value, [0], [0], [1])
        return layers.reduce_mean(value, keep_dim=True)

    def build() -> Sequence[Variable]:
        first = fluid.data("x", [width, 2])
        state = layers.fill_constant(shape, "float32", 0.3)

        def step(h: Any, grown: Any) -> Sequence[Any]:
            numbers = layers.expand(layers.reshape(layers.reduce_mean(h), [1] * rank), rows)
            grown = layers.concat([grown, layers.cumsum(numbers * 1.5 - 0.1, axis=axis)], axis)
            mixed = layers.reshape(grown_and_still(grown, h), [1])
            return [layers.tanh(h * 0.7 + mixed), grown]

        goes_on = (
            (lambda h, grown: layers.less_than(layers.reduce_max(h), layers.fill_constant([1], "float32", 0.8))) if ends else None
        )
        return repeated(trips, step, [first, state], goes_on)

    with fresh_programs():
        built = Built(build)
        built.assert_alike({"x": x})
        assert "while(" not in built.plan({"x": x})


def test_infinite_rows_stay_in_their_places() -> None:
    """Rows are chosen, not multiplied by a mask; and a maximum over rows of -infinity is -infinity."""

    def build() -> Sequence[Variable]:
        start = fluid.data("x", [1, 2])

        def step(row: Any, rows: Any, top: Any) -> Sequence[Any]:
            rows = layers.concat([rows, row], 0)
            return [row * 2.0, rows, layers.reduce_max(rows, 0, keep_dim=True)]

        return repeated(4, step, [start, layers.fill_constant([0, 2], "float32", 0.0), start * 1.0])

    for values in ([-np.inf, 3.0], [np.inf, -1e38], [np.nan, -np.inf]):
        assert_alike(build, {"x": np.array([values], "float32")})


@each("trips", [1, 2, 7])
@each("rows", [1, 2, 3])
@each("first_trips", [2, 32])
def test_a_prefix_is_computed_again_in_each_trip(
    trips: int, rows: int, first_trips: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The scores grow along two axes. A causal mask comes from numbers of places, which grow, too."""
    monkeypatch.setattr(growing_states, "_FIRST_TRIPS", first_trips)
    w = np.random.default_rng(0).standard_normal((11, 6)).astype("float32")

    def build() -> Sequence[Variable]:
        table, first = fluid.data("w", [11, 6]), fluid.data("first", [2, 3], "int64")

        def attend(x: Any, words: Any) -> Any:
            place = layers.cumsum(layers.cast(layers.ones_like(words), "float32"), axis=1)
            is_later = layers.less_than(layers.unsqueeze(place, [2]), layers.unsqueeze(place, [1]))
            scores = layers.matmul(x, x, transpose_y=True, alpha=0.4) - layers.cast(is_later, "float32") * 1e9
            return layers.layer_norm(x + layers.matmul(layers.softmax(scores), x), begin_norm_axis=2, scale=False, shift=False)

        def step(words: Any, score: Any) -> Sequence[Any]:
            x = layers.gather_nd(table, layers.unsqueeze(words, [2]))
            x = attend(attend(x, words), words)
            last = layers.reshape(layers.slice(x, [1], [-1], [10**9]), [2, 6])
            likely = layers.matmul(last, table, transpose_y=True)
            words = layers.concat([words, layers.topk(likely, rows)[1]], 1)
            return [words, score + layers.reduce_max(likely, 1) + layers.reduce_mean(x, [1, 2])]

        return repeated(trips, step, [first, layers.fill_constant([2], "float32", 0.0)])

    assert_alike(build, {"w": w, "first": np.array([[1, 0, 5], [3, 10, 2]])})


@each("kind", ["interleaved", "both axes", "by one and two", "positions", "mean", "on numpy"])
def test_what_cannot_have_room_runs_as_before(kind: str) -> None:
    """Values whose rows do not lie together, axes that become one, states that grow by different numbers of rows, lengths as
    numbers, a mean over two axes that grow, and ops that native code does not have."""

    def build() -> Sequence[Variable]:
        start = fluid.data("x", [2, 3])

        def step(h: Any, rows: Any, more: Any) -> Sequence[Any]:
            rows, more = (layers.concat([one, *[layers.unsqueeze(h, [1])] * count], 1) for one, count in ((rows, 1), (more, 2)))
            if kind != "by one and two":
                more = rows * 0.5
            scores = layers.softmax(layers.matmul(rows, rows, transpose_y=True))
            if kind == "interleaved":
                mixed = layers.reduce_sum(layers.reshape(rows, [-1, 3]), 0)
            elif kind == "both axes":
                mixed = layers.reduce_sum(layers.reshape(scores, [2, -1]))
            elif kind == "positions":
                mixed = layers.reduce_sum(layers.cast(layers.shape(rows), "float32"))
            elif kind == "on numpy":
                mixed = layers.reduce_sum(rows) + layers.reduce_sum(
                    ops().eigvalsh(layers.matmul(h, h, transpose_x=True), UPLO="L")[0]
                )
            elif kind == "mean":
                mixed = layers.reduce_mean(scores)
            else:
                mixed = layers.reduce_sum(rows, [0, 1])
            return [layers.tanh(h + mixed * 0.1), rows, more]

        return repeated(4, step, [start, *[layers.fill_constant([2, 1, 3], "float32", 0.5)] * 2])

    assert_alike(build, {"x": np.ones((2, 3), "float32")}, is_native=False)


@each("trips", [5, 9])
@each("nested", ["cond", "while_loop"])
def test_loops_with_inner_blocks_run_in_stages(monkeypatch: pytest.MonkeyPatch, nested: str, trips: int) -> None:
    """A branch or a loop in the block, which reads no value that grows, runs in each stage."""
    monkeypatch.setattr(growing_states, "_FIRST_TRIPS", 2)

    def build() -> Sequence[Variable]:
        x = fluid.data("x", [2, 3])

        def step(h: Any, rows: Any) -> Sequence[Any]:
            if nested == "cond":
                is_small = layers.reshape(layers.less_than(layers.reduce_sum(h), number_like(4.0)), [1])
                new = layers.cond(is_small, lambda: h * 1.5, lambda: h - 1.0)
            else:
                new = repeated(3, lambda value: [layers.tanh(value) + 0.5], [h])[0]
            return [new, layers.concat([rows, layers.reduce_sum(h, dim=[0], keep_dim=True)], 0)]

        return repeated(trips, step, [x, layers.fill_constant([1, 3], "float32", 0.25)])

    for scale in (1.0, -1.0):
        assert_alike(build, {"x": np.full((2, 3), scale, np.float32)})
