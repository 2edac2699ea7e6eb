"""Tensors whose rows form sequences, and feeding them from rows of data."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from checks import each

import fluid
from fluid import layers
from fluid.errors import FeedError
from fluid.executor.stepwise.interpreter import BlockOp

PLACE = fluid.CPUPlace()


def test_create_lod_tensor_of_an_array() -> None:
    found = fluid.create_lod_tensor(np.arange(10.0).reshape(5, 2), [[2, 3]], PLACE)
    assert found.lod() == [[0, 2, 5]] and found.recursive_sequence_lengths() == [[2, 3]]
    np.testing.assert_array_equal(np.asarray(found), np.arange(10.0).reshape(5, 2))
    again = fluid.create_lod_tensor(found, [[2, 1], [1, 1, 3]], PLACE)
    assert again.lod() == [[0, 2, 3], [0, 1, 2, 5]]


def test_a_tensor_of_a_scope_is_emptied_by_its_own_dimensions() -> None:
    """As scripts do with the counts of layers.auc after each epoch."""
    tensor = fluid.Scope().var("counts").get_tensor()
    assert tensor._get_dims() == []
    tensor.set(np.ones((2, 3), np.int64), PLACE)
    tensor.set(np.zeros(tensor._get_dims()).astype("int64"), PLACE)
    assert tensor._get_dims() == [2, 3] and not np.asarray(tensor).any()


def test_create_lod_tensor_of_lists_is_paddles() -> None:
    found = fluid.create_lod_tensor([[1, 2], [3]], [[2, 1]], PLACE)
    assert np.asarray(found).tolist() == [[1], [2], [3]] and np.asarray(found).dtype == np.int64
    assert found.lod() == [[0, 2, 3]]
    empty = fluid.create_lod_tensor([[], [3]], [[0, 1]], PLACE)
    assert empty.lod() == [[0, 0, 1]] and np.asarray(empty).shape == (1, 1)
    assert np.asarray(fluid.create_lod_tensor([[]], [[0]], PLACE)).shape == (0, 1)


def test_create_random_int_lodtensor() -> None:
    np.random.seed(3)
    first = fluid.create_random_int_lodtensor([[2, 30]], [4], PLACE, 0, 2)
    np.random.seed(3)
    assert np.array_equal(first, fluid.create_random_int_lodtensor([[2, 30]], [4], PLACE, 0, 2))
    assert np.asarray(first).shape == (32, 4) and set(np.unique(first)) == {0, 1, 2} and first.lod() == [[0, 2, 32]]


@each(
    ("data", "lengths", "says"),
    [
        (np.ones((3, 1)), [[2, 2]], r"the lengths \[2, 2\] are of 4 rows, but the data is float64\[3, 1\]"),
        (np.ones(()), [[1]], r"of 1 rows, but the data is float64\[\]"),
        (np.ones((3, 1)), [[2], [1, 1, 1]], r"level 0 of the lengths, \[2\], counts 2 sequences, but level 1 has 3"),
        (np.ones((3, 1)), [], "at least one level"),
        (np.ones((3, 1)), [3], "should be a list of lists of numbers"),
        (np.ones((3, 1)), [[4, -1]], "cannot be negative"),
        ([[1, 2], [3]], [[1, 2]], r"the sequences have \[2, 1\] elements, but the last level of the lengths says \[1, 2\]"),
    ],
)
def test_errors(data: Any, lengths: Any, says: str) -> None:
    with pytest.raises(FeedError, match=says):
        fluid.create_lod_tensor(data, lengths, PLACE)


# --------------------------------------------------------------------------------------------------------------- feeding
def test_feeder_of_sequences() -> None:
    words = fluid.data("words", [None, 1], "int64", lod_level=1)
    nested = fluid.data("nested", [None, 2], "float32", lod_level=2)
    label = fluid.data("label", [None, 1], "int64")
    found = fluid.DataFeeder([words, nested, label], PLACE).feed(
        [([1, 2, 3], [[[1, 2]], [[3, 4], [5, 6]]], 0), ([4], [[]], 1), ([], [], 2)],
    )
    assert found["words"].lod() == [[0, 3, 4, 4]] and np.asarray(found["words"]).tolist() == [[1], [2], [3], [4]]
    assert found["nested"].lod() == [[0, 2, 3, 3], [0, 1, 3, 3]]
    np.testing.assert_array_equal(found["nested"], np.array([[1, 2], [3, 4], [5, 6]], np.float32))
    assert found["label"].shape == (3, 1)
    empty = fluid.DataFeeder([words], PLACE).feed([([],)])["words"]
    assert np.asarray(empty).shape == (0, 1) and np.asarray(empty).dtype == np.int64


def test_what_is_fed_runs() -> None:
    words = fluid.data("words", [None, 1], "int64", lod_level=1)
    out = fluid.layers.cast(words, "float32")
    feed = fluid.DataFeeder([words], PLACE).feed([([1, 2],), ([3],)])
    (found,) = fluid.Executor().run(feed=feed, fetch_list=[out], return_numpy=False)
    assert found.lod() == [[0, 2, 3]] and np.asarray(found).ravel().tolist() == [1, 2, 3]


def test_a_sum_has_the_sequences_of_its_first_term() -> None:
    """As in Paddle; the state and the word of a decoder are added so."""
    plain, rows = fluid.data("plain", [3, 2]), fluid.data("rows", [None, 2], lod_level=1)
    sums = [fluid.layers.sum([plain, rows]), fluid.layers.sum([rows, plain])]
    assert [each.lod_level for each in sums] == [0, 1]
    feed = {"plain": np.ones((3, 2), "float32"), "rows": (np.ones((3, 2), "float32"), [[2, 1]])}
    for run in (fluid.Executor().run, fluid.Executor().interpret):
        found = run(fluid.default_main_program(), feed, sums, return_numpy=False)
        assert [each.lod() for each in found] == [[], [[0, 2, 3]]]


def test_errors_of_the_feeder() -> None:
    words = fluid.data("words", [None, 1], "int64", lod_level=1)
    feeder = fluid.DataFeeder([words], PLACE)
    with pytest.raises(FeedError, match=r"words holds sequences \(lod_level=1\): sequence 1 of level 0 should be a list, not 3"):
        feeder.feed([([1],), (3,)])
    with pytest.raises(FeedError, match=r"words is int64\[-1, 1\], but the rows hold float64"):
        feeder.feed([([0.5],)])


def test_other_lengths_of_sequences_compile_only_ops_that_read_them(monkeypatch: pytest.MonkeyPatch) -> None:
    x, beside = (fluid.data(name, [None, 4], lod_level=level) for name, level in (("x", 1), ("beside", 2)))
    joined = layers.concat([layers.relu(x), beside], 0)
    values = [layers.elementwise_add(layers.tanh(beside), x), joined, layers.add_position_encoding(x, 1.0, 1.0)]
    values += [layers.sequence_pool(x, "sum"), *layers.split(beside, 2, 1), layers.topk(x, 2)[1]]
    compiled: list[str] = []
    compile_op = BlockOp.compile
    monkeypatch.setattr(BlockOp, "compile", lambda self, *values: compiled.append(self.op.type) or compile_op(self, *values))
    executor, rows = fluid.Executor(), np.arange(20, dtype="float32").reshape(5, 4)

    def lods_after(of_x: Any, of_beside: Any) -> list[Any]:
        compiled.clear()
        fetched = executor.run(feed={"x": (rows, of_x), "beside": (-rows, of_beside)}, fetch_list=values, return_numpy=False)
        np.testing.assert_array_equal(np.asarray(fetched[1]), np.concatenate([rows, -rows]))
        return [tensor.lod() for tensor in fetched]

    with monkeypatch.context() as patch:
        patch.setenv("FLUID_NATIVE", "0")
        for of_x, of_beside in (([[0, 2, 5]], [[0, 1, 2], [0, 4, 5]]), ([[0, 1, 5]], [[0, 1, 3], [0, 1, 1, 5]])):
            assert lods_after(of_x, of_beside) == [of_beside, [], of_x, [], of_beside, of_beside, of_x]
        assert sorted(compiled) == ["add_position_encoding", "sequence_pool"]
