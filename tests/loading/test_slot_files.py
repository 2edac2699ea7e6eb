"""Text files of slots, as models of clicks read them: `DatasetFactory`, `train_from_dataset`, `data_generator`."""

from __future__ import annotations

import io
import random
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from checks import each

import fluid
from fluid import layers
from fluid.errors import FluidError
from fluid.incubate.data_generator import MultiSlotDataGenerator


def variables() -> list[fluid.Variable]:
    names = (("a", [None, 2], "int64", 0), ("b", [None, 1], "float32", 0), ("c", [None, 1], "int64", 1))
    return [fluid.data(name, shape, dtype, lod_level) for name, shape, dtype, lod_level in names]


def dataset(folder: Path, kind: str = "QueueDataset", count: int = 7) -> Any:
    """Samples (i, i + 1), i / 10 and a sequence of 1 to 3 numbers from i on, in two files."""
    lines = [f"2 {i} {i + 1} 1 {i / 10} {1 + i % 3} {' '.join(str(i + k) for k in range(1 + i % 3))}\n" for i in range(count)]
    (folder / "first.txt").write_text("".join(lines[:2]) + "\n")
    (folder / "second.txt").write_text("".join(lines[2:]))
    slots = fluid.DatasetFactory().create_dataset(kind)
    slots.set_filelist([str(folder / "first.txt"), str(folder / "second.txt")])
    slots.set_use_var(variables())
    slots.set_batch_size(3)
    slots.set_thread(2)
    return slots


def test_what_paddle_1_8_prints(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The sums are of Paddle 1.8.5, of the same file."""
    slots = dataset(tmp_path)
    a, b, c = slots._variables
    fetches = [layers.reduce_sum(layers.cast(a, "float32")), layers.reduce_sum(b)]
    fetches.append(layers.sequence_pool(layers.cast(c, "float32"), "sum"))
    fluid.Executor().train_from_dataset(dataset=slots, fetch_list=fetches, fetch_info=["a", "b", "c"], print_period=2)
    assert capsys.readouterr().out == "step 2: a [27.], b [1.2], c [[ 3.]\n [ 9.]\n [18.]]\n"
    fluid.Executor().infer_from_dataset(dataset=slots, fetch_list=fetches[:1], print_period=3)
    assert capsys.readouterr().out.endswith(" [13.]\n")


def test_samples_in_memory_are_shuffled_and_trained_on(tmp_path: Path) -> None:
    slots = dataset(tmp_path, "InMemoryDataset")
    with pytest.raises(FluidError, match="call load_into_memory first"):
        slots.local_shuffle()
    slots.load_into_memory()
    random.seed(1)
    slots.local_shuffle()
    firsts = [int(row[0]) for feed in slots.batches() for row in feed["a"]]
    assert sorted(firsts) == list(range(7)) != firsts and slots.get_memory_data_size() == 7
    a, b, _ = slots._variables
    embedded = layers.reduce_sum(fluid.embedding(a, [9, 1], is_sparse=True, param_attr="table"), 1)
    loss = layers.mean(layers.square(embedded - b))
    fluid.optimizer.SGD(0.1).minimize(loss)
    executor = fluid.Executor()
    executor.run(fluid.default_startup_program())
    table = fluid.global_scope().find_var("table").get_tensor()
    before = np.array(table)
    executor.infer_from_dataset(dataset=slots, fetch_list=[loss])
    assert np.array_equal(table, before)
    executor.train_from_dataset(dataset=slots)
    assert not np.array_equal(table, before)
    slots.release_memory()
    assert slots.get_memory_data_size() == 0


def test_a_pipe_command_makes_the_lines(tmp_path: Path) -> None:
    slots = dataset(tmp_path)
    slots.set_pipe_command("head -n 1")
    assert [feed["a"].tolist() for feed in slots.batches()] == [[[0, 1], [2, 3]]]
    slots.set_pipe_command("exit 3")
    with pytest.raises(FluidError, match=r"first.txt: the pipe command 'exit 3' ended with status 3"):
        list(slots.batches())


@each(
    ("line", "words"),
    [
        ("2 1", r"bad.txt, line 2: a should have 2 values, and one at least, but 1 follow"),
        ("2 1 x", r"line 2: no count and values of a at word 1: .*x"),
        ("0", r"line 2: a should have 0 values, and one at least"),
        ("2 1 2 1 0.5 1 3 4", r"line 2: 1 words follow the values of 3 variables"),
        ("3 1 2 3 1 0.5 1 3", r"a \(int64\[-1, 2\].*lines of a batch have \[2, 3\] values"),
        ("1 99999999999999999999 1 0.5 1 3", r"line 2: no count and values of a"),
        ("2 1 2 1 1e300 1 3", r"line 2: no count and values of b at word 4: 1e300 is too large for fp32"),
    ],
)
def test_wrong_lines(line: str, words: str, tmp_path: Path) -> None:
    (tmp_path / "bad.txt").write_text(f"2 1 2 1 0.5 1 3\n{line}\n")
    slots = dataset(tmp_path)
    slots.set_filelist([str(tmp_path / "bad.txt")])
    with pytest.raises(FluidError, match=words):
        list(slots.batches())


def test_numbers_that_do_not_fit(tmp_path: Path) -> None:
    """An integer that a dtype cannot hold, and sequences of rows that a line does not fill."""
    for text, var, words in (
        ("1 4294967301", fluid.data("n", [None, 1], "int32"), "4294967301 is too large for int32"),
        ("3 1 2 3\n5 1 2 3 4 5", fluid.data("s", [None, 2], "int64", 1), r"line 1: s .* has 3 values, which fill no rows of 2"),
    ):
        (tmp_path / "bad.txt").write_text(f"{text}\n")
        slots = fluid.DatasetFactory().create_dataset("QueueDataset")
        slots.set_filelist([str(tmp_path / "bad.txt")])
        slots.set_use_var([var])
        slots.set_batch_size(2)
        with pytest.raises(FluidError, match=words):
            list(slots.batches())


def test_wrong_calls(tmp_path: Path) -> None:
    slots, executor = dataset(tmp_path), fluid.Executor()
    for call, words in (
        (lambda: fluid.DatasetFactory().create_dataset("QueDataset"), "known are QueueDataset, InMemoryDataset"),
        (lambda: slots.set_filelist("a.txt"), "a list of paths, not the text 'a.txt'"),
        (lambda: slots.set_batch_size(0), "batch_size should be a number of samples, at least 1, not 0"),
        (lambda: Clicks().set_batch(0), "batch_size should be a number of samples, at least 1, not 0"),
        (lambda: slots.set_hdfs_config("hdfs://x", "u"), "files of Hadoop"),
        (lambda: slots.local_shuffle(), "no samples in memory to shuffle"),
        (lambda: executor.train_from_dataset(), "one that fluid.DatasetFactory makes, not NoneType"),
        (lambda: executor.train_from_dataset(dataset=slots, fetch_list=["a"], fetch_info=["x", "y"]), "2 texts for the 1 var"),
        (lambda: list(fluid.DatasetFactory().create_dataset().batches()), "needs set_filelist"),
    ):
        with pytest.raises(FluidError, match=words):
            call()
    slots.set_filelist(["absent.txt"])
    with pytest.raises(FluidError, match=r"absent.txt: the file cannot be read: No such file"):
        list(slots.batches())


class Clicks(MultiSlotDataGenerator):
    def generate_sample(self, line: str | None) -> Any:
        numbers = [int(word) for word in (line or "").split()]
        return lambda: [[("ids", numbers), ("click", [0.5])]] if numbers else []


def test_a_generator_prints_slots(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO("3 4\n\n5\n"))
    Clicks().run_from_stdin()
    assert capsys.readouterr().out == "2 3 4 1 0.5\n1 5 1 0.5\n"
    with pytest.raises(FluidError, match="the slot 'ids' should have a list of one value at least, not 3"):
        Clicks()._gen_str([("ids", 3)])  # type: ignore[list-item]
