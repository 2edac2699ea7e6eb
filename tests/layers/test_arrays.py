"""Layers of Fluid 1.8 with the names of array libraries, in programs, beside numpy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from support.checks import Checks

import fluid
from fluid import layers

RNG = np.random.default_rng(0)
X, Y = (RNG.normal(size=(3, 4)).astype("float32") for _ in "xy")
CUBE = RNG.normal(size=(2, 3, 4)).astype("float32")
PLACES = np.array([2, 0, 2])
SAMPLES = np.array([[0, 3], [1, 1], [2, 0]])
VALUES = {"x": X, "y": Y, "cube": CUBE, "places": PLACES, "samples": SAMPLES}

CASES: dict[str, tuple[Any, Any]] = {
    "addcmul": (lambda x, y, **_: layers.addcmul(x, x, y, value=2.0), X + 2 * X * Y),
    "addmm": (lambda x, y, **_: layers.addmm(layers.full([3, 3], 1.0), x, layers.t(y), 0.5, 2.0), 2 + 0.5 * X @ Y.T),
    "allclose": (lambda x, y, **_: layers.allclose(x, y), [False]),
    "arange": (lambda **_: layers.arange(1, 3, 0.5), np.arange(1, 3, 0.5)),
    "bmm": (lambda cube, **_: layers.bmm(cube, layers.transpose(cube, [0, 2, 1])), CUBE @ CUBE.transpose(0, 2, 1)),
    "clamp": (lambda x, **_: layers.clamp(x, -0.5, 0.5), X.clip(-0.5, 0.5)),
    "clamp below": (lambda places, **_: layers.clamp(places, min=1), PLACES.clip(1)),
    "clamp above": (lambda x, **_: layers.clamp(x, max=0.0), np.minimum(X, 0)),
    "cross": (lambda cube, **_: layers.cross(cube, cube * 2.0 + 1.0), np.cross(CUBE, 2 * CUBE + 1, axis=1)),
    "diag_embed": (lambda x, **_: layers.diag_embed(x), X[:, :, None] * np.eye(4)),
    "dist": (lambda x, y, **_: layers.dist(x, y, 3), [np.sum(np.abs(X - Y) ** 3) ** (1 / 3)]),
    "dist, greatest": (lambda x, y, **_: layers.dist(x, y, float("inf")), [np.abs(X - Y).max()]),
    "dot": (lambda x, y, **_: layers.dot(x, y), (X * Y).sum(1, keepdims=True)),
    "elementwise_equal": (lambda places, **_: layers.elementwise_equal(places, places * 0 + 2), PLACES == 2),
    "flip": (lambda x, **_: layers.flip(x, [0, 1]), X[::-1, ::-1]),
    "full": (lambda **_: layers.full([2], 2.5, dtype="float64"), np.full(2, 2.5)),
    "full_like": (lambda x, **_: layers.full_like(x, 2, dtype="int64"), np.full((3, 4), 2)),
    "index_sample": (lambda x, samples, **_: layers.index_sample(x, samples), np.take_along_axis(X, SAMPLES, 1)),
    "index_select": (lambda x, places, **_: layers.index_select(x, places, 1), X[:, PLACES]),
    "kron": (lambda x, y, **_: layers.kron(x, y), np.kron(X, Y)),
    "log_softmax": (lambda x, **_: layers.log_softmax(x, 0), np.log(np.exp(X) / np.exp(X).sum(0))),
    "logsumexp": (lambda x, **_: layers.logsumexp(x), [np.log(np.exp(X).sum())]),
    "logsumexp of rows": (lambda x, **_: layers.logsumexp(x, 1, True), np.log(np.exp(X).sum(1, keepdims=True))),
    "meshgrid": (lambda places, **_: layers.meshgrid([places, places])[1], np.meshgrid(PLACES, PLACES, indexing="ij")[1]),
    "nonzero": (lambda places, **_: layers.nonzero(places), [[0], [2]]),
    "nonzero, apart": (lambda x, **_: layers.nonzero(layers.relu(x), as_tuple=True)[1], np.argwhere(X > 0)[:, 1:]),
    "roll": (lambda x, **_: layers.roll(x, 1), np.roll(X, 1)),
    "roll along two": (lambda x, **_: layers.roll(x, [1, -1], [0, 1]), np.roll(X, [1, -1], [0, 1])),
    "t": (lambda x, **_: layers.t(x), X.T),
    "t of a vector": (lambda places, **_: layers.t(places) + 0, PLACES),
    "trace": (lambda cube, **_: layers.trace(cube, 1, 1, 2), np.trace(CUBE, 1, 1, 2)),
}


def test_values_of_numpy() -> None:
    with Checks() as check:
        for name, (build, expected) in CASES.items():
            with check(name), fluid.program_guard(fluid.Program(), fluid.Program()):
                inputs = {key: fluid.data(key, [None, *value.shape[1:]], str(value.dtype)) for key, value in VALUES.items()}
                built = build(**inputs)
                (value,) = fluid.Executor().run(feed=VALUES, fetch_list=[built])
                assert value.shape == np.shape(expected)
                assert len(built.shape) == value.ndim
                np.testing.assert_allclose(value, expected, rtol=1e-5, atol=1e-6)


def test_draws() -> None:
    with fluid.program_guard(fluid.Program(), fluid.Program()):
        drawn = [layers.randn([1000]), layers.randint(2, 5, [1000], dtype="int32"), layers.randint(5), layers.randperm(9)]
        normal, integers, one, order = fluid.Executor().run(fetch_list=drawn)
    assert abs(normal.mean()) < 0.2 and 0.8 < normal.std() < 1.2
    assert {*integers.tolist()} == {2, 3, 4} and integers.dtype == "int32"
    assert one.shape == (1,) and 0 <= one < 5 and sorted(order.tolist()) == [*range(9)]


def test_results_are_written_where_they_are_wanted() -> None:
    target = layers.create_tensor("float32")
    results = [
        layers.full([2], 3.0, out=target),
        layers.full_like(target, 4.0, out=target),
        layers.addcmul(target, target, target, out=target),
        layers.clamp(target, 0.0, 5.0, output=target),
    ]
    assert all(result is target for result in results)
    assert fluid.Executor().run(fetch_list=[target])[0].tolist() == [5.0, 5.0]


def test_what_has_no_meaning() -> None:
    with fluid.dygraph.guard():
        x = fluid.dygraph.to_variable(CUBE)
        with pytest.raises(fluid.errors.ProgramError, match="clamp: give min, max, or both"):
            layers.clamp(x)
        with pytest.raises(fluid.errors.ProgramError, match=r"t: .* is float32\[2, 3, 4\]; transpose takes more"):
            layers.t(x)


def test_ones_at_the_end_of_an_operand_give_way_to_the_axis() -> None:
    """As in Fluid 1.x: y has two dimensions, like x, but its first dimension meets dimension `axis` of x."""
    x, y = fluid.data("x", [None, 4]), fluid.data("y", [4, 1])
    y.stop_gradient = False
    product = layers.elementwise_mul(x, y, axis=1)
    column = np.arange(4, dtype="float32")[:, None]
    value, gradient = fluid.Executor().run(feed={"x": X, "y": column}, fetch_list=[product, *fluid.gradients(product, [y])])
    assert product.shape == (-1, 4)
    np.testing.assert_array_equal(value, X * column[:, 0])
    np.testing.assert_allclose(gradient, X.sum(0)[:, None], rtol=1e-6)


def test_joined_rows_have_the_sequences_of_all_inputs() -> None:
    x, y = (fluid.data(name, [None, 4], lod_level=2) for name in "xy")
    plain = fluid.data("plain", [None, 4])
    joined = layers.concat([x, y], 0)
    sums = layers.sequence_pool(joined, "sum")
    rows = {"x": (X, [[1, 1], [1, 2]]), "y": (Y, [[2], [2, 1]]), "plain": X}
    for place in (fluid.CPUPlace(), None):
        executor = fluid.Executor(place or fluid.CPUPlace())
        run = executor.run if place else executor.interpret
        both, totals, mixed, wide = run(
            feed=rows,
            fetch_list=[joined, sums, layers.concat([x, plain], 0), layers.concat([x, plain], 1)],
            return_numpy=False,
        )
        assert both.recursive_sequence_lengths() == [[1, 1, 2], [1, 2, 2, 1]]
        np.testing.assert_allclose(totals, [X[0], X[1:].sum(0), Y[:2].sum(0), Y[2]], rtol=1e-6)
        assert mixed.recursive_sequence_lengths() == []  # not all rows are in sequences
        assert wide.recursive_sequence_lengths() == [[1, 1], [1, 2]]
    assert joined.lod_level == 2
