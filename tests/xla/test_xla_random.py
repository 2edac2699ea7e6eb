"""Random ops at an XLAPlace: draws are reproducible by seed, run and name, and have the right distributions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from checks import Checks, fresh_programs

pytest.importorskip("jax")

import fluid
from fluid.executor.xla.random import WordsOnDevice, words_of_run

N = 20000


def drawn(make: Callable[[], Any], seed: int = 1, runs: int = 1) -> Any:
    """An op's draws in the last of some runs of its program."""
    with fresh_programs():
        out = make()
        fluid.default_main_program().random_seed = seed
        executor, scope = fluid.Executor(fluid.XLAPlace()), fluid.Scope()
        return [executor.run(fetch_list=[out], scope=scope)[0] for _ in range(runs)][-1]


def uniform() -> Any:
    return fluid.layers.uniform_random([N], min=-1.0, max=3.0)


def test_draws_depend_on_seed_and_run() -> None:
    assert drawn(uniform).tobytes() == drawn(uniform).tobytes()
    assert drawn(uniform, runs=2).tobytes() == drawn(uniform, runs=2).tobytes()
    different = [drawn(uniform), drawn(uniform, runs=2), drawn(uniform, seed=2)]
    assert len({value.tobytes() for value in different}) == 3


def test_words_that_were_sent_ahead_are_those_of_the_run() -> None:
    """Runs in order, with others between them, going back, and with another seed."""
    sent = []

    def unstack(table: Any) -> list[Any]:
        sent.append(table)
        return list(table)

    words = WordsOnDevice(unstack)
    for seed, runs in ((3, range(200)), (3, range(201, 300, 3)), (4, range(300, 310)), (0, (5, 6, 7, 50)), (3, (0, 1, 150))):
        for run in runs:
            assert (words.of_run(seed, run) == words_of_run(seed, run)).all(), (seed, run)
    assert len(sent) == 8, "once in 64 runs, from the second of a seed on"


def test_draws_do_not_depend_on_the_runs_before() -> None:
    with fresh_programs():
        x = fluid.data("x", [64])
        out = fluid.layers.dropout(x, 0.5)
        fluid.default_main_program().random_seed = 9
        executor, scope, feed = fluid.Executor(fluid.XLAPlace()), fluid.Scope(), {"x": np.ones(64, np.float32)}
        in_order = [executor.run(feed=feed, fetch_list=[out], scope=scope)[0] for _ in range(70)]
        for run in (69, 0, 1, 30):
            scope.runs = run
            (value,) = executor.run(feed=feed, fetch_list=[out], scope=scope)
            assert (value == in_order[run]).all(), run
        assert len({value.tobytes() for value in in_order}) == 70


def test_ops_draw_apart() -> None:
    both = drawn(lambda: fluid.layers.stack([uniform(), uniform()]))
    assert abs(np.corrcoef(both)[0, 1]) < 0.05


def test_an_op_with_a_seed_draws_the_same_each_time() -> None:
    def own() -> Any:
        return fluid.layers.uniform_random([8], seed=5)

    assert drawn(own).tobytes() == drawn(own, seed=9, runs=3).tobytes()


DISTRIBUTIONS: dict[str, tuple[Callable[[], Any], Callable[[Any], Any]]] = {
    "uniform": (uniform, lambda x: np.clip((x + 1) / 4, 0, 1)),
    "normal": (lambda: fluid.layers.gaussian_random([N], mean=1.0, std=2.0), lambda x: normal((x - 1) / 2)),
    "truncated": (
        lambda: made_by("truncated_gaussian_random", shape=[N], mean=0.0, std=2.0),
        lambda x: np.clip((normal(x / 2) - normal(-2)) / (normal(2) - normal(-2)), 0, 1),
    ),
}
"""What draws N numbers, and the distribution function that they should have."""


def made_by(op_type: str, **attrs: Any) -> Any:
    """The outputs of an op that has no layer."""
    block = fluid.default_main_program().global_block()
    out = block.create_var(name="made")
    block.append_op(op_type, {}, {"Out": out}, attrs)
    return out


def normal(x: Any) -> Any:
    from math import erf

    return 0.5 * (1 + np.vectorize(erf)(np.asarray(x) / 2**0.5))


def test_distributions() -> None:
    """The greatest distance to the distribution function: beyond 2 / sqrt(N) once in 1,500 seeds."""
    with Checks() as checks:
        for name, (make, distribution) in DISTRIBUTIONS.items():
            with checks(name):
                values = np.sort(drawn(make).reshape(-1).astype(float))
                steps = np.arange(N + 1) / N
                expected = distribution(values)
                assert max(np.abs(expected - steps[1:]).max(), np.abs(expected - steps[:-1]).max()) < 2 / N**0.5


def test_dropout_and_bits() -> None:
    with Checks() as checks:
        with checks("dropout"):
            kept = drawn(lambda: fluid.layers.dropout(fluid.layers.ones([N], "float32"), 0.3)) != 0
            assert abs(kept.mean() - 0.7) < 4 * (0.21 / N) ** 0.5
        with checks("randint"):
            counts = np.bincount(drawn(lambda: made_by("randint", low=0, high=4, shape=[N])).reshape(-1), minlength=4)
            assert len(counts) == 4 and np.abs(counts / N - 0.25).max() < 4 * (0.1875 / N) ** 0.5


def test_functions_of_eager_mode_draw_from_its_stream() -> None:
    def values() -> list[Any]:
        fluid.seed(3)
        with fluid.dygraph.guard(fluid.XLAPlace()):
            run = fluid.dygraph.to_static(lambda x: fluid.layers.dropout(x, 0.5))
            x = fluid.dygraph.to_variable(np.ones(64, "float32"))
            return [run(x).numpy().tobytes() for _ in range(3)]

    first = values()
    assert first == values() and len({*first[1:]}) == 2
