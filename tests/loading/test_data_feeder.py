"""Tools that turn rows of data into feeds: DataFeeder, readers, averages and metrics."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from checks import each

import fluid
from fluid import layers, reader
from fluid.average import WeightedAverage
from fluid.errors import FeedError, FluidTypeError, NameNotFoundError, ProgramError


@pytest.fixture
def program() -> Iterator[fluid.Program]:
    main = fluid.Program()
    with fluid.program_guard(main, fluid.Program()):
        yield main


def feeder(*declared: tuple[str, list[Any], str]) -> fluid.DataFeeder:
    return fluid.DataFeeder([fluid.data(*item) for item in declared], fluid.CPUPlace())


def test_feed_stacks_casts_and_reshapes(program: fluid.Program) -> None:
    found = feeder(("image", [None, 1, 2, 2], "float32"), ("label", [None, 1], "int64")).feed(
        [(np.arange(4.0), 1), (np.arange(4.0) + 4, 0), (np.zeros(4), 2)]
    )
    assert list(found) == ["image", "label"]
    assert found["image"].shape == (3, 1, 2, 2) and found["image"].dtype == np.float32
    np.testing.assert_array_equal(found["image"][1, 0], [[4, 5], [6, 7]])
    assert found["label"].dtype == np.int64
    np.testing.assert_array_equal(found["label"], [[1], [0], [2]])


def test_feed_by_names_and_other_program() -> None:
    other = fluid.Program()
    with fluid.program_guard(other, fluid.Program()):
        fluid.data("x", [None, 2])
    found = fluid.DataFeeder(["x"], fluid.CPUPlace(), program=other).feed([([1, 2],), ([3, 4],)])
    np.testing.assert_array_equal(found["x"], np.array([[1, 2], [3, 4]], np.float32))
    with pytest.raises(NameNotFoundError, match="no variable 'nope'"):
        fluid.DataFeeder(["nope"], fluid.CPUPlace(), program=other)


def test_what_is_fed_reads_as_tensors_of_that_time(program: fluid.Program) -> None:
    image, words = layers.data("image", [1, 2, 2]), layers.data("words", [1], dtype="int64", lod_level=1)
    fed = fluid.DataFeeder([image, words], fluid.CPUPlace()).feed([([0] * 4, [1, 2, 3]), ([1] * 4, [4])])
    assert fed["image"].shape() == [2, 1, 2, 2] == list(fed["image"].shape) and fed["words"].shape() == [4, 1]
    assert fed["image"].lod() == fed["image"].recursive_sequence_lengths() == []
    assert fed["words"].lod() == [[0, 3, 4]]
    (doubled,) = fluid.Executor().run(feed={"image": fed["image"]}, fetch_list=[image * 2.0])
    assert type(doubled) is not type(fed["image"]) and doubled.sum() == 8
    with fluid.dygraph.guard():
        assert type(fluid.dygraph.to_variable(fed["image"])._array) is np.ndarray


def test_fields_that_are_batches_are_joined(program: fluid.Program) -> None:
    """A reader of Fluid 1.6 may give a whole batch as a row."""
    rows = np.arange(60.0).reshape(2, 3, 10)
    feed = feeder(("x", [None, 10], "float32")).feed([(rows[0],), (rows[1],)])
    assert feed["x"].dtype == np.float32 and np.array_equal(feed["x"], rows.reshape(6, 10))
    with pytest.raises(FeedError, match=r"each row holds \[3, 10\]"):
        feeder(("y", [2, 10], "float32")).feed([(rows[0],), (rows[1],)])


def test_feed_keeps_unknown_extents(program: fluid.Program) -> None:
    found = feeder(("x", [None, None, 2], "float32")).feed([(np.ones((3, 2)),), (np.ones((3, 2)),)])
    assert found["x"].shape == (2, 3, 2)
    found = feeder(("y", [None, None, None], "float32")).feed([(np.ones((3, 2)),)])
    assert found["y"].shape == (1, 3, 2)


@each(
    ("rows", "said"),
    [
        ([], "no rows to feed to x, y"),
        ([([1, 2],)], r"row 0 has 1 fields, but 2 variables are fed: x, y"),
        ([([1, 2], 0), ([1, 2, 3], 0)], r"x .* cannot be stacked: row 0 has the shape \[2\], row 1 \[3\]"),
        ([([1, 2, 3], 0)], r"x is float32\[-1, 2\], but each row holds \[3\]"),
        ([([1, 2], 0.5)], r"y is int64\[-1, 1\], but the rows hold float64; convert them to int64"),
        ([(["a", "b"], 0)], r"the rows of x \(float32\[-1, 2\]\) are not an array: it holds 'a', a str"),
    ],
)
def test_feed_errors(program: fluid.Program, rows: list[Any], said: str) -> None:
    with pytest.raises(FeedError, match=said):
        feeder(("x", [None, 2], "float32"), ("y", [None, 1], "int64")).feed(rows)


def test_feeder_refuses_what_is_no_variable(program: fluid.Program) -> None:
    with pytest.raises(FluidTypeError, match="should hold Variables or names, not int"):
        fluid.DataFeeder([3], fluid.CPUPlace())  # type: ignore[list-item]


def test_decorate_reader(program: fluid.Program) -> None:
    found = feeder(("x", [None, 1], "float32")).decorate_reader(lambda: iter([[(1,), (2,)], [(3,)]]), multi_devices=False)
    assert [feed["x"].ravel().tolist() for feed in found()] == [[1, 2], [3]]
    with pytest.raises(FeedError, match="multi_devices=False"):
        feeder(("z", [None, 1], "float32")).decorate_reader(list, multi_devices=True)


# ------------------------------------------------------------------------------------------------------------ readers
def count(n: int) -> reader.Reader:
    return lambda: iter(range(n))


def test_batch() -> None:
    assert list(reader.batch(count(5), 2)()) == [[0, 1], [2, 3], [4]]
    assert list(reader.batch(count(5), 2, drop_last=True)()) == [[0, 1], [2, 3]]
    assert list(reader.batch(count(0), 2)()) == []
    with pytest.raises(ProgramError, match="a number of samples, at least 1, not 0"):
        reader.batch(count(5), 0)


def test_shuffle_is_a_permutation_that_random_seed_fixes() -> None:
    random.seed(3)
    first = list(reader.shuffle(count(20), 7)())
    random.seed(3)
    assert list(reader.shuffle(count(20), 7)()) == first
    assert sorted(first) == list(range(20)) and first != list(range(20))
    assert sorted(first[:7]) == list(range(7)), "only what is in the buffer is shuffled"


def test_other_readers() -> None:
    assert list(reader.map_readers(lambda a, b: a * b, count(4), count(3))()) == [0, 1, 4]
    assert list(reader.chain(count(2), count(3))()) == [0, 1, 0, 1, 2]
    assert list(reader.firstn(count(9), 2)()) == [0, 1]
    assert list(reader.compose(count(2), lambda: iter([(5, 6), (7, 8)]))()) == [(0, 5, 6), (1, 7, 8)]
    assert list(reader.compose(count(2), count(3), check_alignment=False)()) == [(0, 0), (1, 1)]
    with pytest.raises(ProgramError, match="different lengths"):
        list(reader.compose(count(2), count(3))())


def test_cache_reads_once() -> None:
    calls = []

    def read() -> Iterator[int]:
        calls.append(1)
        yield from range(3)

    cached = reader.cache(read)
    assert list(cached()) == list(cached()) == [0, 1, 2]
    assert len(calls) == 1


def test_buffered_reads_all_raises_what_is_raised_and_ends_its_thread() -> None:
    assert list(reader.buffered(count(100), 4)()) == list(range(100))

    def bad() -> Iterator[int]:
        yield 1
        raise OSError("the disk is gone")

    found = reader.buffered(bad, 4)()
    assert next(iter(found)) == 1
    with pytest.raises(OSError, match="the disk is gone"):
        list(reader.buffered(bad, 4)())

    before = set(threading.enumerate())
    half = iter(reader.buffered(count(1000), 2)())
    assert next(half) == 0
    mine = set(threading.enumerate()) - before
    half.close()  # type: ignore[attr-defined]
    for thread in mine:
        thread.join(5)
        assert not thread.is_alive()


# ------------------------------------------------------------------------------------------------- averages, metrics
def test_weighted_average() -> None:
    average = WeightedAverage()
    with pytest.raises(ProgramError, match="nothing has been added"):
        average.eval()
    average.add(2.0, 1)
    average.add(np.array([4.0], np.float32), 3)
    assert average.eval() == pytest.approx(3.5)
    average.reset()
    average.add(np.array([1.0, 2.0]), 2)
    np.testing.assert_allclose(average.eval(), [1.0, 2.0])
    with pytest.raises(FluidTypeError, match="numbers and arrays"):
        average.add("x", 1)


def test_accuracy_metric() -> None:
    metric = fluid.metrics.Accuracy()
    with pytest.raises(ProgramError, match="no batch"):
        metric.eval()
    metric.update(np.array([0.5], np.float32), 10)
    metric.update(1.0, 30)
    assert metric.eval() == pytest.approx(0.875)
    assert metric.get_config() == {"name": "Accuracy", "states": {"value": 35.0, "weight": 40.0}}
    with pytest.raises(ProgramError, match="negative"):
        metric.update(1.0, -1)
    with pytest.raises(FluidTypeError, match="one number"):
        metric.update([1.0, 2.0], 1)
    metric.reset()
    assert metric.weight == 0


def test_precision_and_recall() -> None:
    both = fluid.metrics.CompositeMetric()
    both.add_metric(fluid.metrics.Precision())
    both.add_metric(fluid.metrics.Recall())
    assert both.eval() == [0.0, 0.0]
    both.update(np.array([[0.9], [0.8], [0.2], [0.1]]), np.array([[1], [0], [1], [0]]))
    both.update(np.array([[0.7]]), np.array([[1]]))
    assert both.eval() == [pytest.approx(2 / 3), pytest.approx(2 / 3)]
    with pytest.raises(ProgramError, match="2 predictions but 1 labels"):
        both.update(np.array([0.1, 0.2]), np.array([1]))
    with pytest.raises(FluidTypeError, match="takes a metric"):
        both.add_metric(3)  # type: ignore[arg-type]
