"""The pool of threads: every share of every record is computed once, in order of the records, and processes fork and end."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import numpy as np
import pytest
from checks import each

import fluid
from fluid.executor.native.compiler import Library, compile_object, host
from fluid.executor.native.emitter import INT64, Function, Module, Value
from fluid.executor.native.instructions import RECORD_WORDS, SERIAL
from fluid.executor.native.kernel import Share, write_kernel
from fluid.executor.native.pool import Pool, pool, pool_text
from fluid.executor.native.target import Target

CHUNKS = 24


@contextmanager
def num_threads(count: int) -> Iterator[None]:
    before = fluid.get_num_threads()
    fluid.set_num_threads(count)
    try:
        yield
    finally:
        fluid.set_num_threads(before)


def write_mixed(f: Function, pointers: Any, share: Share) -> None:
    """``out[i] = 3 * x[(7 * i + 5) % CHUNKS] + i``: each chunk reads what another share has written."""
    x, out = pointers
    start, stop = share.of(f, CHUNKS)

    def body(i: Value) -> None:
        other = f.rem(f.add(f.mul(i, 7), 5), CHUNKS)
        f.store_number(f.add(f.mul(f.load(f.at(x, other, INT64), INT64), 3), i), f.at(out, i, INT64))

    f.loop(start, stop, 1, [], body)


def write_counted(f: Function, pointers: Any, share: Share) -> None:
    """``counts[thread] += 1``, ``counts[16 + thread] = threads``."""
    at = f.at(pointers[0], share.thread, INT64)
    f.store_number(f.add(f.load(at, INT64), 1), at)
    f.store_number(share.threads, f.at(at, 16, INT64))


def compiled() -> Library:
    """The kernels of these tests."""
    module = Module(host())
    write_kernel(module, "mixed", 2, write_mixed)
    write_kernel(module, "counted", 1, write_counted)
    return Library([compile_object(module.text, host())], module.footprints)


@pytest.fixture(scope="module")
def addresses() -> Iterator[dict[str, int]]:
    library = compiled()
    yield library.addresses


class Table:
    """A table, with the arrays that its records name."""

    def __init__(self) -> None:
        self.rows: list[list[int]] = []
        self.kept: list[Any] = []

    def add(self, address: int, *arrays: Any, flags: int = 0) -> None:
        operands = np.array([array.ctypes.data for array in arrays], np.int64)
        self.kept += [operands, arrays]
        self.rows.append([address, operands.ctypes.data, flags, 0])

    @property
    def words(self) -> Any:
        return np.array(self.rows, np.int64).reshape(-1, RECORD_WORDS)


def chained(addresses: dict[str, int], records: int) -> tuple[Table, Any]:
    """A table of records, and its arrays; each record reads results of all shares of the record before."""
    table, values = Table(), np.zeros((records + 1, CHUNKS), np.int64)
    for number in range(records):
        table.add(addresses["mixed"], values[number], values[number + 1], flags=SERIAL if number % 5 == 3 else 0)
    return table, values


def expected(first: Any, records: int) -> Any:
    """The last array of `chained`, from the first one."""
    index, value = np.arange(CHUNKS), first.copy()
    for _ in range(records):
        value = 3 * value[(7 * index + 5) % CHUNKS] + index
    return value


@each("count", [1, 2, 3, 4, 7])
def test_every_share_of_every_record_is_computed_once(count: int, addresses: dict[str, int]) -> None:
    table, values = chained(addresses, 150)
    counts = np.zeros(32, np.int64)
    for _ in range(3):
        table.add(addresses["counted"], counts)
    with num_threads(count):
        run = pool().caller(table.words)
        for number in range(1, 11):
            values[0] = number * np.arange(CHUNKS)
            values[1:] = -1
            run()
            assert (values[-1] == expected(values[0], 150)).all()
            assert counts[:16].tolist() == [3 * number] * count + [0] * (16 - count)
            assert counts[16:].tolist() == [count] * count + [0] * (16 - count)
            if number % 5 == 0:
                time.sleep(0.01)  # the workers sleep


def test_the_first_thread_does_not_wait_for_threads_without_a_core(
    addresses: dict[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fluid.executor.native.pool.threading", SimpleNamespace(Lock=threading.Lock, Thread=MagicMock()))
    table, values = chained(addresses, 20)
    with num_threads(3):
        runner = threading.Thread(target=Pool().caller(table.words), daemon=True)
        runner.start()
        runner.join(60)
        assert not runner.is_alive()
    assert (values[-1] == expected(values[0], 20)).all()


def test_number_of_threads_may_change_between_runs(addresses: dict[str, int]) -> None:
    table, values = chained(addresses, 9)
    run = pool().caller(table.words)
    for count in (4, 1, 3, 2, 2, 1, 4):
        with num_threads(count):
            for _ in range(3):
                values[1:] = -1
                run()
                assert (values[-1] == expected(values[0], 9)).all()
            assert sum(thread.name == "fluid native" for thread in threading.enumerate()) == count - 1


def test_tables_without_work_for_several_threads_wake_nobody(addresses: dict[str, int]) -> None:
    counts = np.zeros(32, np.int64)
    serial = Table()
    for _ in range(2):
        serial.add(addresses["counted"], counts, flags=SERIAL)
    with num_threads(3):
        pool().caller(serial.words)()
        pool().caller(Table().words)()
    assert counts[:16].tolist() == [2] + [0] * 15
    assert counts[16] == 1


def test_operands_may_be_exchanged_between_runs(addresses: dict[str, int]) -> None:
    table, values = chained(addresses, 1)
    other, words = np.arange(CHUNKS), table.words
    with num_threads(2):
        run = pool().caller(words)
        run()
        operands = np.array([other.ctypes.data, values[1].ctypes.data])
        words[0, 1] = operands.ctypes.data
        run()
    assert (values[1] == expected(other, 1)).all()


def test_threads_of_python_take_turns(addresses: dict[str, int]) -> None:
    failures = []

    def work(seed: int) -> None:
        table, values = chained(addresses, 40)
        run = pool().caller(table.words)
        for number in range(100):
            values[0] = seed + number
            values[1:] = -1
            run()
            if (values[-1] != expected(values[0], 40)).any():
                failures.append((seed, number))

    with num_threads(2):
        workers = [threading.Thread(target=work, args=(seed,)) for seed in range(3)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join(60)
            assert not worker.is_alive()
    assert not failures


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the platform has no fork")
@pytest.mark.filterwarnings("ignore:This process.*multi-threaded:DeprecationWarning")
def test_a_forked_process_has_threads_of_its_own(addresses: dict[str, int]) -> None:
    table, values = chained(addresses, 20)
    run = pool().caller(table.words)
    with num_threads(2):
        run()
        values[1:] = -1
        child = os.fork()
        if not child:
            try:
                run()
                is_right = (values[-1] == expected(values[0], 20)).all() and threading.active_count() == 2
                os._exit(0 if is_right else 1)
            finally:
                os._exit(2)
        run()
        deadline = time.monotonic() + 30
        while not (ended := os.waitpid(child, os.WNOHANG))[0]:
            assert time.monotonic() < deadline, "the child hangs"
            time.sleep(0.005)
    assert os.waitstatus_to_exitcode(ended[1]) == 0
    assert (values[-1] == expected(values[0], 20)).all()


def test_a_process_ends_while_workers_wait_and_after_they_are_gone() -> None:
    code = f"""
import atexit, sys
sys.path[:0] = {sys.path[:]!r}
import test_pool
from fluid.executor.native.pool import pool
import fluid
fluid.set_num_threads(3)
def last():
    values[1:] = -1
    run()
    print((values[-1] == test_pool.expected(values[0], 20)).all())
atexit.register(last)  # runs after the pool has ended
library = test_pool.compiled()
table, values = test_pool.chained(library.addresses, 20)
run = pool().caller(table.words)
last()
atexit.register(last)
"""
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert (ended.returncode, ended.stdout.split()) == (0, ["True"] * 3), ended.stderr


def test_where_there_are_no_threads_tables_still_run(addresses: dict[str, int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fluid.executor.native.pool._family_of", lambda target: None)
    table, values = chained(addresses, 20)
    with num_threads(2):
        Pool().caller(table.words)()
    assert (values[-1] == expected(values[0], 20)).all()


@each(
    "triple, cpu, features, holds",
    [
        ("aarch64-unknown-linux-gnu", "generic", "+neon", "@syscall(i64 98"),
        ("x86_64-unknown-linux-gnu", "x86-64", "+sse2", "@syscall(i64 202"),
        ("arm64-apple-darwin", "generic", "+neon", "@run("),
        ("x86_64-pc-windows-msvc", "x86-64", "+sse2", "@run("),
    ],
)
def test_other_platforms_have_code_that_compiles(triple: str, cpu: str, features: str, holds: str) -> None:
    from llvmlite import binding

    binding.initialize_all_targets()
    binding.initialize_all_asmprinters()
    target = Target.of(triple, cpu, features)
    text = pool_text(target)
    assert holds in text
    assert ("@worker" in text) == ("linux" in triple)
    assert compile_object(text, target)
