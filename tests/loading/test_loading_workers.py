"""Processes that make batches: their order, what goes wrong in them, and that nothing is left of them."""

from __future__ import annotations

import copy
import errno
import functools
import gc
import multiprocessing
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from checks import each

import fluid
from fluid import dygraph, io, layers
from fluid.errors import DataError, FluidError, FluidTypeError, ProgramError
from fluid.loading.shared_batches import BatchReader, BatchWriter

SHARED = Path("/dev/shm")


class Draws(io.Dataset):
    """A number, and random numbers."""

    def __init__(self, size: int = 3) -> None:
        self.size = size

    def __len__(self) -> int:
        return 23

    def sample(self, index: int, generator: np.random.Generator) -> Any:
        return index, generator.normal(size=self.size).astype("float32")


class Counted(io.IterableDataset):
    def __init__(self, splits_itself: bool = False) -> None:
        self.splits_itself = splits_itself

    def __iter__(self) -> Iterator[int]:
        info = io.get_worker_info()
        assert info is not None
        yield from range(info.id, 11, info.num_workers) if self.splits_itself else range(11)


def bad_at(index: int, number: int) -> Any:
    """`number`, or an error at the number `index`."""
    if number == index:
        raise OSError("the disk is gone")
    return number


def end_at(index: int, number: int) -> Any:
    """`number`, or the end of the process at the number `index`."""
    if number == index:
        os.kill(os.getpid(), signal.SIGKILL)
    return number


def numbered(function: Any, *arguments: Any) -> io.MappedDataset:
    return io.MappedDataset(range(20), functools.partial(function, *arguments))


@pytest.fixture(autouse=True)
def _nothing_is_left() -> Iterator[None]:
    """After each test there are no processes, and no shared memory has a name."""
    yield
    gc.collect()
    assert multiprocessing.active_children() == []
    assert list(SHARED.glob(f"fl{os.getpid():x}-*")) == []


def arrays(loader: Any) -> list[list[Any]]:
    return [[np.array(field) for field in batch] for batch in loader]


# --------------------------------------------------------------------------------------------------------------- order
@each("size", [3, 5000])
def test_batches_are_the_same_for_any_number_of_workers(size: int) -> None:
    """Small ones, which go by the pipe, and large ones."""
    expected = [arrays(loader) for loader in [io.DataLoader(Draws(size), 4, True)] for _ in range(2)]
    for count, ahead in ((1, 1), (2, 3), (5, 2)):
        loader = io.DataLoader(Draws(size), 4, True, count, ahead=ahead)
        for epoch in expected:
            np.testing.assert_equal(arrays(loader), epoch)


@pytest.mark.slow
def test_spawned_workers_give_the_same() -> None:
    expected = arrays(io.DataLoader(Draws(), 8))
    np.testing.assert_equal(arrays(io.DataLoader(Draws(), 8, num_workers=1, start_method="spawn")), expected)
    with pytest.raises(FluidTypeError, match=r"cannot be sent to a worker started by spawn.*no lambdas"):
        list(io.DataLoader(range(3), num_workers=1, collate_fn=lambda samples: samples, start_method="spawn"))
    with pytest.raises(ProgramError, match=r"start_method should be one of .*, not 'threads'"):
        list(io.DataLoader(range(3), num_workers=1, start_method="threads"))


KEPT: dict[str, Any] = {
    "small": Draws(),
    "large": Draws(5000),
    "stream": Counted().map(functools.partial(max, 3)),
    "stream in parts": Counted(splits_itself=True),
}


@pytest.mark.slow
@each("name", KEPT)
def test_workers_that_are_kept_give_the_same(name: str) -> None:
    fresh, kept = (io.DataLoader(KEPT[name], 2, num_workers=2, keep_workers=keep) for keep in (False, True))
    expected, pids = [list(fresh) for _ in range(3)], set()
    for epoch in expected:
        np.testing.assert_equal(list(kept), epoch)
        pids |= {process.pid for process in multiprocessing.active_children()}
    assert len(pids) == 2 and fresh.epoch == kept.epoch == copy.deepcopy(kept).epoch == 3
    next(iter(kept))  # left early: what they still make is of no use to the next epoch
    assert multiprocessing.active_children() == []
    list(kept)
    del kept
    assert multiprocessing.active_children() == []


@pytest.mark.slow
def test_streams_are_divided_among_workers() -> None:
    double = Counted().map(functools.partial(max, 3))
    expected = [batch.tolist() for batch in io.DataLoader(double, 2)]
    for count in (1, 2, 3, 7):
        assert [batch.tolist() for batch in io.DataLoader(double, 2, num_workers=count)] == expected
    loader = io.DataLoader(double, 2, num_workers=2)
    loader.load_state_dict({**loader.state_dict(), "batch": 3})
    assert [batch.tolist() for batch in loader] == expected[3:]
    own = io.DataLoader(Counted(splits_itself=True), 2, num_workers=3, drop_last=True)
    turns = [[0, 3], [1, 4], [2, 5], [6, 9], [7, 10]]  # the third has one left, which makes no whole batch
    assert [batch.tolist() for batch in own] == turns
    own.load_state_dict({**own.state_dict(), "batch": 2})
    assert [batch.tolist() for batch in own] == turns[2:]


def test_sequences_and_names_come_from_workers() -> None:
    words, label = fluid.data("words", [None, 1], "int64", lod_level=1), fluid.data("label", [None, 1], "int64")
    rows = [(list(range(number + 1)), number) for number in range(600)]
    (here,), (there,) = ([*io.DataLoader(rows, 600, num_workers=count, feed_list=[words, label])] for count in (0, 1))
    assert there["words"].recursive_sequence_lengths() == here["words"].recursive_sequence_lengths()
    np.testing.assert_array_equal(np.asarray(there["words"]), np.asarray(here["words"]))
    (found,) = fluid.Executor().run(feed=there, fetch_list=[layers.sequence_pool(layers.cast(words, "float32"), "max")])
    np.testing.assert_array_equal(np.asarray(found), there["label"])


def test_tensors_in_eager_mode() -> None:
    with dygraph.guard():
        total = sum(float(x.numpy().sum()) for _, x in io.DataLoader(Draws(5000), 4, num_workers=2))
    expected = sum(float(x.sum()) for _, x in io.DataLoader(Draws(5000), 4))
    assert total == pytest.approx(expected)


# ------------------------------------------------------------------------------------------------------- shared memory
def test_arrays_stay_as_long_as_somebody_has_them() -> None:
    """Batches outlive the loader and its workers; writes to one batch do not reach another."""
    loader = io.DataLoader(Draws(5000), 1, num_workers=1)
    kept = [batch[1] for batch in loader]
    kept[0][:] = 7
    for number, array in enumerate(kept[1:], 1):
        np.testing.assert_array_equal(array[0], np.random.default_rng([0, 0, number]).normal(size=5000).astype("float32"))


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="does not tell what is open")
def test_batches_that_are_kept_leave_few_files_open(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fluid.loading.shared_batches._MOST_IN_ALL", 20)
    before, kept = len(os.listdir("/proc/self/fd")), []
    for _ in range(3):
        kept += [batch[1] for batch in io.DataLoader(Draws(5000), 1, num_workers=1)]
    assert (
        len(kept) == 69 and len(os.listdir("/proc/self/fd")) <= before + 2 * 20 + 1
    )  # two for each, and the tracker of resources
    for number, array in enumerate(kept):
        expected = np.random.default_rng([0, 0, number % 23]).normal(size=5000).astype("float32")
        np.testing.assert_array_equal(array[0], expected)


@pytest.mark.slow
def test_segments_are_written_again() -> None:
    writer, reader = BatchWriter(f"fl{os.getpid():x}-test-"), BatchReader(f"fl{os.getpid():x}-test-")
    try:
        numbers = []
        for step in range(50):
            message = writer.write({"x": np.full(1000, step), "text": "a" * 3000, "none": np.empty((0, 3))})
            numbers.append(message[1])
            batch = reader.read(message)
            assert batch["x"][999] == step and batch["text"] == "a" * 3000 and batch["none"].shape == (0, 3)
            assert batch["x"].flags.writeable and not batch["x"].flags.owndata
            del batch
            writer.release(reader.released())
        assert set(numbers) == {0}
        kept = [reader.read(writer.write(np.full(1000, step))) for step in range(40)]
        assert [int(array[0]) for array in kept] == list(range(40)) and len(reader._free) == 40 - 16
        assert writer.write(np.zeros(3))[1] is None
        unread = [writer.write(np.zeros(10_000)) for _ in range(3)]
        assert unread
    finally:
        writer.close()
        reader.close()
    assert int(kept[3][0]) == 3


@pytest.mark.skipif(not SHARED.exists(), reason="has no folder of shared memory")
def test_what_killed_writers_leave_is_removed() -> None:
    """A segment that nobody was told of, and one that has no size yet."""
    writer, reader = BatchWriter(f"fl{os.getpid():x}-left-"), BatchReader(f"fl{os.getpid():x}-left-")
    writer.write(np.zeros(1000))
    (SHARED / f"fl{os.getpid():x}-left-1").touch()
    reader.close()
    writer.close()
    assert list(SHARED.glob(f"fl{os.getpid():x}-left-*")) == []


# --------------------------------------------------------------------------------------------------- what goes wrong
def test_an_error_has_the_sample_the_worker_and_the_traceback() -> None:
    loader, seen = io.DataLoader(numbered(bad_at, 9), 4, num_workers=2), []
    with pytest.raises(
        DataError, match=r"sample 9 of the dataset: OSError: the disk is gone\n\nin worker 0 of a DataLoader"
    ) as caught:
        for batch in loader:
            seen += batch.tolist()
    assert seen == list(range(8))
    lines = str(caught.value).splitlines()
    assert 'raise OSError("the disk is gone")' in str(caught.value) and lines[-1] == "OSError: the disk is gone"
    assert "fluid/loading" not in "".join(line for line in lines if line.startswith("  File")).replace("datasets.py", "")


@each("kind", [OSError, FluidError, DataError])
def test_an_error_of_a_worker_is_as_short_as_others(kind: type[Exception]) -> None:
    """100 MB, with what moves a terminal's cursor, once went from the worker to the screen."""

    def fail(number: int) -> Any:
        raise kind("\x1b[2J" + "x" * (100 << 20))

    with pytest.raises(DataError, match=r"\\x1b\[2Jxxx") as caught:
        list(io.DataLoader(numbered(fail), 4, num_workers=1))
    text = str(caught.value)
    assert len(text) < 17_000 and text.replace("\n", "").isprintable() and "in worker 0 of a DataLoader" in text


def test_a_killed_worker_is_an_error() -> None:
    said = r"worker 1 .* was killed by SIGKILL while it made the batch of samples 12, 13, 14, 15; is memory short\?"
    with pytest.raises(DataError, match=said):
        list(io.DataLoader(numbered(end_at, 13), 4, num_workers=2))
    with pytest.raises(DataError, match=r"sample 3 of the dataset: |SystemExit: 3"):
        list(io.DataLoader(numbered(lambda number: sys.exit(3) if number == 3 else number), 4, num_workers=1))
    with pytest.raises(DataError, match="ended with the exit code 4 while it made"):
        list(io.DataLoader(numbered(lambda number: os._exit(4)), 4, num_workers=1))


@pytest.mark.slow
def test_a_script_that_workers_import_is_told(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text("import fluid\nprint(list(fluid.io.DataLoader(range(3), 3, num_workers=1, start_method='spawn')))")
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, check=False, timeout=60)
    assert "while it made the batch of samples 0, 1, 2. What it said stands above." in done.stderr and done.stdout == ""


@pytest.mark.slow
def test_a_worker_that_hangs_is_an_error_after_a_time() -> None:
    with pytest.raises(DataError, match=r"worker 0 .* has not made the batch of samples 0, 1 in 0.2 s"):
        list(io.DataLoader(numbered(lambda number: time.sleep(60)), 2, num_workers=2, timeout=0.2))


@pytest.mark.skipif(not SHARED.exists() or not hasattr(os, "posix_fallocate"), reason="has no memory that can be full")
def test_shared_memory_that_is_full_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(file: int, start: int, size: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "posix_fallocate", refuse)
    writer = BatchWriter(f"fl{os.getpid():x}-full-")
    for _ in range(2):
        with pytest.raises(DataError, match="has no room"):
            writer.write(np.zeros(1000))
    assert writer._segments == []  # so that the next one has the first name, where the reader looks
    with pytest.raises(DataError, match=r"/dev/shm, has no room for another 0\.1 MB, for a batch; use fewer workers"):
        list(io.DataLoader(Draws(5000), 4, num_workers=2, start_method="fork"))


@pytest.mark.slow
def test_what_waits_for_room_in_a_pipe_does_not_wait_for_ever() -> None:
    """Many long lists of numbers go one way, while texts that are longer than a pipe come the other way."""
    batches = [list(range(4000))] * 40
    loader = io.DataLoader(range(4000), batch_sampler=batches, num_workers=1, ahead=20, collate_fn=lambda numbers: "x" * 300_000)
    assert sum(map(len, loader)) == 40 * 300_000


# ------------------------------------------------------------------------------------------------------- nothing is left
def test_workers_end_when_an_epoch_is_left() -> None:
    for _ in io.DataLoader(Draws(5000), 1, num_workers=2):
        assert len(multiprocessing.active_children()) == 2
        break
    assert multiprocessing.active_children() == []
    batches = iter(io.DataLoader(Draws(5000), 1, num_workers=2))
    next(batches)
    del batches  # forgotten
    assert multiprocessing.active_children() == []


@pytest.mark.skipif("fork" not in multiprocessing.get_all_start_methods(), reason="the platform has no fork")
def test_a_worker_that_is_ended_as_it_starts_runs_no_handler_of_its_parent(monkeypatch: pytest.MonkeyPatch) -> None:
    """SIGTERM comes before the worker's own code: a handler that exits could let it run on as a copy of this process."""
    parent, start = os.getpid(), BaseProcess._bootstrap  # type: ignore[attr-defined]
    reading, writing = os.pipe()

    def terminated(*args: Any, **kwargs: Any) -> Any:
        assert os.getpid() != parent
        os.kill(os.getpid(), signal.SIGTERM)
        return start(*args, **kwargs)

    def handle(number: int, frame: Any) -> None:
        os.write(writing, b"handled")
        sys.exit(1)

    monkeypatch.setattr(BaseProcess, "_bootstrap", terminated)
    before = signal.signal(signal.SIGTERM, handle)
    try:
        with pytest.raises(DataError, match="was killed by SIGTERM"):
            next(iter(io.DataLoader(Draws(), 1, num_workers=1, start_method="fork")))
        with pytest.raises(ProgramError, match="ended before its reader did"):
            next(iter(fluid.io.multiprocess_reader([lambda: [1]])()))
    finally:
        signal.signal(signal.SIGTERM, before)
        os.close(writing)
    assert os.read(reading, 100) == b""
    os.close(reading)


SCRIPT = """
import signal, sys, numpy as np, fluid
signal.signal(signal.SIGINT, signal.default_int_handler)  # shells have what they start in the background ignore it
class Data:
    def __len__(self): return 1000
    def __getitem__(self, index): return np.zeros(10_000)
loader = fluid.io.DataLoader(Data(), 4, num_workers=2)
batches = iter(loader)
for number, batch in enumerate(batches):
    if number == 3:
        print("ready", *(worker.pid for worker in __import__("multiprocessing").active_children()), flush=True)
        if sys.argv[1] != "exit":
            __import__("time").sleep(60)
        break
kept = [batch, next(batches)]
"""


def ends(pid: int) -> bool:
    """Whether the process ends within some seconds."""
    for _ in range(100):
        try:
            os.kill(pid, 0)
            if Path(f"/proc/{pid}/stat").exists() and Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] == "Z":
                return True
        except ProcessLookupError:
            return True
        time.sleep(0.05)
    return False


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="has other signals")
def test_workers_end_with_their_parent() -> None:
    """A script that comes to its end with an iterator and a batch still there, Ctrl-C, and a parent that is killed."""
    processes, workers = {}, {}
    for how in ("exit", "SIGINT", "SIGKILL"):
        command = [sys.executable, "-c", SCRIPT, how]
        processes[how] = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
        )
    for how, process in processes.items():
        assert process.stdout is not None
        workers[how] = [int(pid) for pid in process.stdout.readline().split()[1:]]
        assert len(workers[how]) == 2
        if how == "SIGINT":
            os.killpg(process.pid, signal.SIGINT)  # as a terminal does
        elif how == "SIGKILL":
            process.kill()
    errors = {how: process.communicate(timeout=60)[1] for how, process in processes.items()}
    assert (processes["exit"].returncode, errors["exit"]) == (0, "")
    assert errors["SIGINT"].count("Traceback") == 1 and errors["SIGINT"].rstrip().endswith("KeyboardInterrupt")
    for how, process in processes.items():
        assert all(map(ends, workers[how])), how
        assert any(not list(SHARED.glob(f"fl{process.pid:x}-*")) or time.sleep(0.1) for _ in range(50)), how


class Named(io.Dataset):
    """The name that this process was given, and the number of the sample."""

    name = -1

    def __len__(self) -> int:
        return 6

    def __getitem__(self, index: int) -> Any:
        return np.array([Named.name]), np.array([index])


def give_name(number: int) -> None:
    assert io.get_worker_info().id == number  # type: ignore[union-attr]
    Named.name = number + 10


@pytest.mark.parametrize("keep", [False, True])
def test_workers_are_initialized(keep: bool) -> None:
    """In each epoch, also in workers that are kept; this process is not initialized."""
    loader = io.DataLoader(
        Named(), 1, num_workers=2, worker_init_fn=give_name, keep_workers=keep, use_shared_memory=True, timeout=0
    )
    for _ in range(2):
        assert [int(name.item()) for name, _ in loader()] == [10, 11] * 3
    assert Named.name == -1 and [int(name.item()) for name, _ in io.DataLoader(Named(), worker_init_fn=give_name)] == [-1] * 6


def test_a_worker_that_cannot_be_initialized() -> None:
    loader = io.DataLoader(Named(), 1, num_workers=2, worker_init_fn=functools.partial(bad_at, 1))
    with pytest.raises(DataError, match=r"worker_init_fn\(1\): OSError: the disk is gone"):
        list(loader)


def test_batches_as_lists() -> None:
    x, y = fluid.data("x", [None, 1], "int64"), fluid.data("y", [None, 1], "int64")
    loader = io.DataLoader(Named(), feed_list=[y, x], batch_size=4, return_list=True, places=fluid.cpu_places(1))
    assert [[array.tolist() for array in batch] for batch in loader] == [
        [[[-1]] * 4, [[0], [1], [2], [3]]],
        [[[-1]] * 2, [[4], [5]]],
    ]
