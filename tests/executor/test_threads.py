"""Several threads at once: programs built, and programs run, each in its own guard or scope."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

import fluid
from fluid import layers
from fluid.executor import Executor, Scope
from fluid.ir.program import Program, program_guard

WORKERS = 8


def at_once(work: Callable[[int], Any], workers: int = WORKERS) -> list[Any]:
    """Run `work` for each number, starting all at the same time; returns the results."""
    barrier = threading.Barrier(workers)

    def start(number: int) -> Any:
        barrier.wait(30)
        return work(number)

    with ThreadPoolExecutor(workers) as pool:
        return list(pool.map(start, range(workers)))


def classifier(width: int = 16, seed: int = 3) -> tuple[Program, Program, str]:
    """A program that trains, its startup program, and its loss."""
    main, startup = Program(), Program()
    main.random_seed = startup.random_seed = seed
    with program_guard(main, startup), fluid.unique_name.guard():
        x, label = fluid.data("x", [-1, 8]), fluid.data("label", [-1, 1], "int64")
        hidden = layers.dropout(layers.fc(x, width, act="relu"), 0.2)
        loss = layers.mean(layers.softmax_with_cross_entropy(layers.fc(hidden, 3), label))
        fluid.optimizer.Adam(0.01).minimize(loss)
    return main, startup, loss.name


def batch(number: int) -> dict[str, Any]:
    rng = np.random.default_rng(number)
    return {"x": rng.standard_normal((16, 8)).astype("float32"), "label": rng.integers(0, 3, (16, 1))}


def train(exe: Executor, main: Program, startup: Program, loss: str, number: int, steps: int = 15) -> list[float]:
    scope = Scope()
    exe.run(startup, scope=scope)
    return [float(exe.run(main, batch(number), [loss], scope=scope)[0][0]) for _ in range(steps)]


def test_one_executor_and_one_program_in_scopes_of_their_own() -> None:
    main, startup, loss = classifier()
    alone = [train(Executor(), main, startup, loss, number) for number in range(WORKERS)]
    exe = Executor()
    together = at_once(lambda number: train(exe, main, startup, loss, number))
    assert together == alone
    assert alone[0] != alone[1] and alone[0][-1] < alone[0][0]


def test_guarded_scopes() -> None:
    main, startup, loss = classifier()
    exe = Executor()

    def work(number: int) -> list[float]:
        with fluid.scope_guard(Scope()):
            exe.run(startup)
            return [float(exe.run(main, batch(number), [loss])[0][0]) for _ in range(5)]

    assert at_once(work) == [train(exe, main, startup, loss, number, 5) for number in range(WORKERS)]


def test_runs_in_one_scope_take_turns() -> None:
    """None of these additions is lost, though threads, executors and fetches differ."""
    main, startup = Program(), Program()
    with program_guard(main, startup), fluid.unique_name.guard():
        size = [200_000]  # adding takes long enough for other threads to come in between
        counter = layers.create_global_var(size, 0.0, "float32", persistable=True, name="counter")
        more = layers.fill_constant(size, "float32", 1.0)
        layers.assign(counter + more, counter)
    scope, executors = Scope(), [Executor(), Executor()]
    executors[0].run(startup, scope=scope)

    def work(number: int) -> None:
        for _ in range(25):
            executors[number % 2].run(main, fetch_list=[counter, more][: number % 3], scope=scope)

    at_once(work)
    assert (scope.array("counter") == 25 * WORKERS).all()


def test_children_of_one_scope_read_its_parameters_at_once() -> None:
    main, startup = Program(), Program()
    with program_guard(main, startup), fluid.unique_name.guard():
        y = layers.fc(fluid.data("x", [-1, 8]), 4, act="tanh")
    parent, exe = Scope(), Executor()
    exe.run(startup, scope=parent)

    def work(number: int) -> Any:
        kid = parent.new_scope()
        return [exe.run(main, {"x": batch(number)["x"]}, [y], scope=kid)[0] for _ in range(10)]

    for number, found in enumerate(at_once(work)):
        (expected,) = exe.run(main, {"x": batch(number)["x"]}, [y], scope=parent)
        assert all(np.array_equal(value, expected) for value in found)


def test_programs_are_built_at_once() -> None:
    """Each thread has its own guards, so its program and names are the same as if it ran alone."""

    def build(number: int) -> str:
        main, _, _ = classifier(width=8 + number)
        with fluid.unique_name.guard(f"{number}_"), fluid.name_scope(f"scope_{number}"), program_guard(main):
            layers.relu(main.global_block().var("x"))
        return main.to_string()

    assert at_once(build) == [build(number) for number in range(WORKERS)]


def test_failures_stay_with_their_thread() -> None:
    main = Program()
    with program_guard(main), fluid.unique_name.guard():
        rows = layers.gather(fluid.data("table", [4, 2]), fluid.data("ids", [-1], "int64"))
    exe = Executor()
    table = np.arange(8, dtype="float32").reshape(4, 2)

    def work(number: int) -> Any:
        found = []
        for position in range(10):
            try:
                found.append(exe.run(main, {"table": table, "ids": np.array([number])}, [rows], scope=Scope())[0][0, 0])
            except fluid.errors.ExecutionError:
                found.append(None)
            assert position == len(found) - 1
        return found

    assert at_once(work) == [[2.0 * number if number < 4 else None] * 10 for number in range(WORKERS)]
