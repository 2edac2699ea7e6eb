"""Readers in threads and processes, and the loaders that feed programs from readers."""

from __future__ import annotations

import gc
import signal
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from checks import each

import fluid
from fluid import layers, reader
from fluid.errors import FeedError, FluidTypeError, ProgramError


def count(n: int) -> reader.Reader:
    return lambda: iter(range(n))


def ends(threads: set[threading.Thread]) -> None:
    """These threads, begun by a test, end."""
    for thread in threads:
        thread.join(5)
        assert not thread.is_alive()


# --------------------------------------------------------------------------------------------------- threads, processes
def test_compose_says_that_readers_are_not_aligned() -> None:
    with pytest.raises(fluid.io.ComposeNotAligned, match="different lengths"):
        list(fluid.io.compose(count(2), count(3))())
    arrays = [np.zeros(2), np.ones(2)]
    assert len(list(fluid.io.compose(lambda: iter(arrays), count(2))())) == 2


def test_buffered_ends_its_thread_when_it_is_forgotten() -> None:
    before = set(threading.enumerate())
    samples: Any = iter(reader.buffered(count(1000), 2)())
    assert [next(samples), next(samples)] == [0, 1]
    mine = set(threading.enumerate()) - before
    assert mine
    del samples
    gc.collect()
    ends(mine)


@each("order", [False, True])
def test_xmap_readers(order: bool) -> None:
    def slow_at_first(item: int) -> int:
        time.sleep(0.02 if item == 0 else 0)
        return item * item

    found = list(reader.xmap_readers(slow_at_first, count(40), 4, 3, order)())
    assert (found if order else sorted(found)) == [item * item for item in range(40)]
    again = reader.xmap_readers(slow_at_first, count(3), 2, 1, order)
    assert sorted(again()) == sorted(again()) == [0, 1, 4]


def test_xmap_readers_hand_on_what_is_raised_and_end() -> None:
    before = set(threading.enumerate())
    with pytest.raises(ZeroDivisionError):
        list(reader.xmap_readers(lambda item: 1 // (5 - item), count(100), 3, 2)())

    def bad() -> Iterator[int]:
        yield 1
        raise OSError("the disk is gone")

    with pytest.raises(OSError, match="the disk is gone"):
        list(reader.xmap_readers(lambda item: item, bad, 3, 2)())
    part: Any = reader.xmap_readers(lambda item: item, count(1000), 3, 2)()
    next(part)
    part.close()
    ends(set(threading.enumerate()) - before)
    with pytest.raises(ProgramError, match="process_num should be a positive number, not 0"):
        reader.xmap_readers(lambda item: item, count(3), 0, 2)


@each("forks", [True, False])
def test_multiprocess_reader(forks: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if not forks:
        monkeypatch.setattr("multiprocessing.get_all_start_methods", lambda: ["spawn"])
    elif "fork" not in __import__("multiprocessing").get_all_start_methods():
        pytest.skip("processes cannot be forked here")
    merged = reader.multiprocess_reader([count(10), lambda: ((i, np.full(2, i)) for i in range(5))], queue_size=3)
    found = list(merged())
    assert sorted(item for item in found if isinstance(item, int)) == list(range(10))
    assert sorted(item[0] for item in found if isinstance(item, tuple)) == list(range(5))

    def bad() -> Iterator[int]:
        yield 1
        raise OSError("the disk is gone")

    with pytest.raises((ProgramError, OSError), match="the disk is gone"):
        list(reader.multiprocess_reader([bad, count(3)])())
    part: Any = reader.multiprocess_reader([count(100_000)], queue_size=2)()
    next(part)
    part.close()
    with pytest.raises(ProgramError, match="at least one"):
        reader.multiprocess_reader([])


def test_processes_of_readers_end_though_the_parent_handles_the_signal() -> None:
    """A handler that raises an error would report it, and wait for ever at the full queue."""
    before = signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(1))
    try:
        part: Any = reader.multiprocess_reader([count(100_000)], queue_size=2)()
        next(part)
        part.close()
    finally:
        signal.signal(signal.SIGTERM, before)


# --------------------------------------------------------------------------------------------------------------- loaders
def network() -> tuple[fluid.Variable, fluid.Variable, fluid.Variable]:
    x, y = fluid.data("x", [None, 2]), fluid.data("y", [None, 1], "int64")
    return x, y, layers.reduce_sum(x) + layers.cast(layers.reduce_sum(y), "float32")


def samples() -> Iterator[Any]:
    for i in range(5):
        yield np.full(2, i, "float32"), [i]


SUMS = [1 + 2.0, 5 + 10.0]
"""What the network gives for the two whole batches of two."""


def test_iterable_loader_gives_feeds() -> None:
    x, y, total = network()
    loader = fluid.io.DataLoader.from_generator([x, y], capacity=2)
    assert loader.set_sample_generator(samples, 2, places=fluid.CPUPlace()) is loader and loader.iterable
    executor = fluid.Executor(fluid.CPUPlace())
    for _ in range(2):
        found = [executor.run(feed=feed, fetch_list=[total])[0].item() for feed in loader()]
        assert found == SUMS
    (feed,) = next(iter(loader))
    assert feed["x"].shape == (2, 2) and feed["y"].dtype == np.int64
    assert len(list(loader.set_sample_generator(samples, 2, drop_last=False))) == 3


def test_loader_of_sample_lists_and_of_batches() -> None:
    x, y, _ = network()
    loader = fluid.io.DataLoader.from_generator([x, y], capacity=2, return_list=True)
    loader.set_sample_list_generator(fluid.io.batch(samples, 3))
    assert [len(arrays[0]) for (arrays,) in loader] == [3, 2]
    batches = [
        (np.ones((2, 2), "float32"), np.ones((2, 1), "int64")),
        {"y": np.zeros((1, 1), "int64"), "x": np.zeros((1, 2), "float32")},
    ]
    loader.set_batch_generator(lambda: iter(batches))
    assert [arrays[1].shape for (arrays,) in loader] == [(2, 1), (1, 1)]
    single = fluid.io.DataLoader.from_generator([x], capacity=1).set_batch_generator(lambda: iter([np.ones((1, 2))]))
    assert [list(feed) for (feed,) in single] == [["x"]]


@each("with_lod", [False, True])
def test_a_generator_may_fill_one_array_for_each_batch(with_lod: bool) -> None:
    """The loader reads all batches ahead before the first one is fed."""
    x = fluid.data("x", [None, 2], lod_level=int(with_lod))
    array = np.zeros((3, 2), "float32")

    def batches() -> Iterator[Any]:
        for number in range(4):
            array[...] = number
            yield ((array, [[2, 1]]) if with_lod else array,)

    loader = fluid.io.DataLoader.from_generator([x], capacity=8).set_batch_generator(batches)
    feeds = list(loader)
    maxima = [fluid.Executor().run(feed=feed, fetch_list=[layers.reduce_max(x)])[0].item() for feed in feeds]
    assert maxima == [0, 1, 2, 3]


@each("kind", ["DataLoader", "PyReader", "py_reader", "by_data"])
def test_loader_that_programs_take_from(kind: str) -> None:
    if kind == "py_reader":
        loader = layers.py_reader(4, [[-1, 2], [-1, 1]], ["float32", "int64"], name="feeds")
        x, y = layers.read_file(layers.double_buffer(loader))
        assert [x.name, y.name] == ["feeds_0", "feeds_1"]
        total = layers.reduce_sum(x) + layers.cast(layers.reduce_sum(y), "float32")
        loader.decorate_paddle_reader(fluid.io.batch(samples, 2, drop_last=True))
    else:
        x, y, total = network()
        if kind == "by_data":
            loader = layers.create_py_reader_by_data(4, [x, y])
            loader.decorate_sample_list_generator(fluid.io.batch(samples, 2, drop_last=True))
        elif kind == "PyReader":
            loader = fluid.io.PyReader([x, y], 4, iterable=False)
            loader.decorate_sample_generator(samples, 2)
        else:
            loader = fluid.io.DataLoader.from_generator([x, y], 4, iterable=False)
            loader.set_sample_generator(samples, 2)
    test = fluid.default_main_program().clone(for_test=True)
    executor = fluid.Executor(fluid.CPUPlace())
    for program in (None, test, fluid.CompiledProgram(test).with_data_parallel()):
        loader.start()
        found = []
        with pytest.raises(fluid.core.EOFException, match=r", \w+: the data has come to its end; reset\(\) the"):
            while True:
                found.append(executor.run(program, fetch_list=[total])[0].item())
        assert found == SUMS
        loader.reset()
    loader.start()
    assert executor.interpret(fetch_list=[total])[0].item() == SUMS[0]
    loader.reset()  # in the middle
    loader.start()
    assert executor.run(fetch_list=[total])[0].item() == SUMS[0]
    feed = {x.name: np.ones((1, 2), "float32"), y.name: np.ones((1, 1), "int64")}
    assert executor.run(feed=feed, fetch_list=[total])[0].item() == 3  # what is fed is not taken
    assert executor.run(fetch_list=[total])[0].item() == SUMS[1]


def test_a_program_without_the_labels_takes_the_rest() -> None:
    x, y, _ = network()
    loader = fluid.io.DataLoader.from_generator([x, y], 4, iterable=False).set_sample_generator(samples, 2)
    out = layers.reduce_sum(x)
    program = fluid.io.prune(fluid.default_main_program(), [out])
    assert not program.global_block().has_var("y")
    loader.start()
    assert fluid.Executor().run(program, fetch_list=[out.name])[0].item() == 2


def test_a_loader_hands_on_what_is_raised_and_ends_its_thread() -> None:
    x, y, total = network()

    def bad() -> Iterator[Any]:
        yield from list(samples())[:2]
        raise OSError("the disk is gone")

    before = set(threading.enumerate())
    loader = fluid.io.DataLoader.from_generator([x, y], 4, iterable=False).set_sample_generator(bad, 2)
    loader.start()
    executor = fluid.Executor()
    executor.run(fetch_list=[total])
    with pytest.raises(OSError, match="the disk is gone"):
        executor.run(fetch_list=[total])
    loader.reset()
    loader.set_sample_generator(lambda: iter([(np.zeros(3), [1])] * 100), 1)
    loader.start()
    with pytest.raises(FeedError, match=r"x is float32\[-1, 2\], but each row holds \[3\]"):
        executor.run(fetch_list=[total])
    loader.reset()
    iterable = fluid.io.DataLoader.from_generator([x, y], 1).set_sample_generator(lambda: iter(list(samples()) * 99), 2)
    for _ in iterable:
        break
    gc.collect()
    ends(set(threading.enumerate()) - before)


def test_errors_of_loaders() -> None:
    x, y, total = network()
    make = fluid.io.DataLoader.from_generator
    with pytest.raises(ProgramError, match="DataLoader: feed_list should name the variables that are fed"):
        make(capacity=2)
    with pytest.raises(FluidTypeError, match="PyReader: feed_list should hold Variables, not str"):
        fluid.io.PyReader(["x"], 2)  # type: ignore[list-item]
    with pytest.raises(ProgramError, match="capacity, the number of batches read ahead, should be positive, not None"):
        make([x])
    with pytest.raises(ProgramError, match="say first where the data comes from, with set_sample_generator"):
        iter(make([x], 1))
    with pytest.raises(ProgramError, match="say first where the data comes from, with decorate_sample_generator"):
        iter(fluid.io.PyReader([x], 1))
    with pytest.raises(ProgramError, match=r"start\(\) is for loaders with iterable=False"):
        make([x], 1).start()
    with pytest.raises(ProgramError, match=r"reset\(\) is for loaders with iterable=False"):
        make([x], 1).reset()
    loader = make([x, y], 1, iterable=False).set_sample_generator(samples, 2)
    with pytest.raises(ProgramError, match="this DataLoader is not iterable; start"):
        iter(loader)
    with pytest.raises(FeedError, match=r"x, y: nothing is fed, and the DataLoader .* has not been started; start\(\) it"):
        fluid.Executor().run(fetch_list=[total])
    loader.start()
    with pytest.raises(ProgramError, match=r"has been started already; reset\(\) it first"):
        loader.start()
    loader.reset()
    pairs = make([x, y], 1)
    with pytest.raises(FeedError, match="a batch has 1 arrays, but 2 variables are fed: x, y"):
        list(pairs.set_batch_generator(lambda: iter([(1,)])))
    with pytest.raises(FeedError, match="a batch has arrays for x; it should have x, y"):
        list(pairs.set_batch_generator(lambda: iter([{"x": 1}])))
    with pytest.raises(ProgramError, match=r"from_dataset: .* use DataLoader.from_generator"):
        fluid.io.DataLoader.from_dataset(None, None)
    with pytest.raises(ProgramError, match="there are 1 shapes, 2 dtypes and 1 lod_levels"):
        layers.py_reader(1, [[-1, 2]], ["float32", "int64"])
    for layer in (layers.read_file, layers.double_buffer):
        with pytest.raises(FluidTypeError, match="reader should be what py_reader gives, not str"):
            layer("x")


def test_feeds_for_several_devices_are_refused() -> None:
    _, _, total = network()
    with pytest.raises(FeedError, match="feed is a list of 2 dicts, one for each device"):
        fluid.Executor().run(feed=[{}, {}], fetch_list=[total])  # type: ignore[arg-type]
