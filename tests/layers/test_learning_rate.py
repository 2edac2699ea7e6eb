"""Learning-rate schedules: their numbers against their formulas, and their ops in programs."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from checks import each

import fluid
from fluid import layers, optimizer
from fluid.errors import ProgramError
from fluid.ir.program import OpRole, Variable

COUNTER = "@LR_DECAY_COUNTER@"


@pytest.fixture(autouse=True)
def programs() -> Iterator[fluid.Program]:
    """Every test builds in programs of its own."""
    main = fluid.Program()
    with fluid.program_guard(main, fluid.Program()), fluid.unique_name.guard():
        yield main


def rates(steps: int, *fetch: Variable) -> list[float]:
    """The first of `fetch` in each of some runs; also checks that the variable is one float32 element."""
    executor, scope = fluid.Executor(fluid.CPUPlace()), fluid.Scope()
    executor.run(fluid.default_startup_program(), scope=scope)
    found = []
    for _ in range(steps):
        (value,) = executor.run(fetch_list=[fetch[0]], scope=scope)
        assert value.shape == (1,)
        found.append(float(value[0]))
    return found


def polynomial(step: float, cycle: bool, power: float = 2.0) -> float:
    decay_steps = 4.0 * max(1, math.ceil(step / 4)) if cycle else 4.0
    return (0.5 - 0.1) * (1 - min(step, decay_steps) / decay_steps) ** power + 0.1


def piecewise(step: int) -> float:
    return 1.0 if step < 2 else 0.5 if step < 5 else 0.25


def warmup(step: int, after: Callable[[int], float]) -> float:
    return 0.1 + (0.7 - 0.1) * step / 4 if step < 4 else after(step)


SCHEDULES: dict[str, tuple[Callable[[], Variable], Callable[[int], float]]] = {
    "exponential": (lambda: layers.exponential_decay(0.5, 3, 0.8), lambda n: 0.5 * 0.8 ** (n / 3)),
    "exponential staircase": (lambda: layers.exponential_decay(0.5, 3, 0.8, staircase=True), lambda n: 0.5 * 0.8 ** (n // 3)),
    "natural_exp": (lambda: layers.natural_exp_decay(0.5, 3, 0.8), lambda n: 0.5 * math.exp(-0.8 * n / 3)),
    "natural_exp staircase": (lambda: layers.natural_exp_decay(0.5, 3, 0.8, True), lambda n: 0.5 * math.exp(-0.8 * (n // 3))),
    "inverse_time": (lambda: layers.inverse_time_decay(0.5, 3, 0.8), lambda n: 0.5 / (1 + 0.8 * n / 3)),
    "inverse_time staircase": (lambda: layers.inverse_time_decay(0.5, 3, 0.8, True), lambda n: 0.5 / (1 + 0.8 * (n // 3))),
    "polynomial": (lambda: layers.polynomial_decay(0.5, 4, 0.1, 2.0), lambda n: polynomial(n, False)),
    "polynomial cycle": (lambda: layers.polynomial_decay(0.5, 4, 0.1, 2.0, cycle=True), lambda n: polynomial(n, True)),
    "polynomial defaults": (lambda: layers.polynomial_decay(0.5, 40), lambda n: (0.5 - 0.0001) * (1 - n / 40) + 0.0001),
    "piecewise": (lambda: layers.piecewise_decay([2, 5], [1.0, 0.5, 0.25]), piecewise),
    "noam": (lambda: layers.noam_decay(64, 4), lambda n: 64**-0.5 * min((n + 1) ** -0.5, (n + 1) * 4**-1.5)),
    "noam scaled": (lambda: layers.noam_decay(64, 4, 3.0), lambda n: 3 * 64**-0.5 * min((n + 1) ** -0.5, (n + 1) * 4**-1.5)),
    "cosine": (lambda: layers.cosine_decay(0.5, 2, 5), lambda n: 0.5 * 0.5 * (math.cos((n // 2) * math.pi / 5) + 1)),
    "warmup": (lambda: layers.linear_lr_warmup(0.9, 4, 0.1, 0.7), lambda n: warmup(n, lambda n: 0.9)),
    "warmup of a schedule": (
        lambda: layers.linear_lr_warmup(layers.exponential_decay(0.5, 3, 0.8), 4, 0.1, 0.7),
        lambda n: warmup(n, lambda n: 0.5 * 0.8 ** (n / 3)),
    ),
    "warmup of pieces": (
        lambda: layers.linear_lr_warmup(layers.piecewise_decay([2, 5], [1.0, 0.5, 0.25]), 4, 0.1, 0.7),
        lambda n: warmup(n, piecewise),
    ),
    "of a variable": (
        lambda: layers.natural_exp_decay(layers.fill_constant([1], "float32", 0.5), 3, 0.8),
        lambda n: 0.5 * math.exp(-0.8 * n / 3),
    ),
}


@each("name", SCHEDULES)
def test_formula(name: str, programs: fluid.Program) -> None:
    build, formula = SCHEDULES[name]
    rate = build()
    assert rate.describe() == "float32[1]"
    programs.verify()
    np.testing.assert_allclose(rates(12, rate), [formula(n) for n in range(12)], rtol=2e-5, atol=1e-8)


@each("name", SCHEDULES)
def test_formula_over_the_wire(name: str, programs: fluid.Program) -> None:
    build, formula = SCHEDULES[name]
    rate = build()
    program = fluid.Program.parse_from_string(programs.serialize_to_string())
    startup = fluid.Program.parse_from_string(fluid.default_startup_program().serialize_to_string())
    executor, scope = fluid.Executor(), fluid.Scope()
    executor.run(startup, scope=scope)
    found = [float(executor.run(program, fetch_list=[rate.name], scope=scope)[0][0]) for _ in range(6)]
    np.testing.assert_allclose(found, [formula(n) for n in range(6)], rtol=2e-5, atol=1e-8)


@each("name", SCHEDULES)
def test_roles_and_clones(name: str, programs: fluid.Program) -> None:
    """All ops of a schedule are said to be that; a test clone has none of them and its counter stands still."""
    w = layers.create_parameter([1], "float32", name="w")
    loss = layers.mean(layers.square(w))
    SCHEDULES[name][0]()
    inside = [op for block in programs.blocks for op in block.ops if op.type not in ("square", "mean")]
    assert programs.global_block().ops[0].type == "increment"
    assert all(op.role == OpRole.LR_SCHED for op in inside if name != "of a variable" or op.role)
    test = programs.clone(for_test=True)
    if name != "of a variable":
        assert [op.type for op in test.global_block().ops] == ["square", "mean"]
    optimizer.SGD(0.1).minimize(loss)
    after = [op.role for op in programs.global_block().ops if op.type == "sgd"]
    assert after == [OpRole.OPTIMIZE]


def test_layout_of_piecewise(programs: fluid.Program) -> None:
    """Counter, names and branches are as Paddle writes them."""
    rate = layers.piecewise_decay([2, 4], [0.3, 0.1, 0.02])
    assert rate.name == "learning_rate" and rate.persistable
    block = programs.global_block()
    assert [op.type for op in block.ops] == [
        *("increment", "cast", "fill_constant", "less_than", "logical_not", "conditional_block"),
        *("fill_constant", "less_than", "logical_not", "logical_and", "logical_and", "conditional_block", "conditional_block"),
    ]
    counter = block.var(COUNTER)
    assert counter.describe() == "int64[1]" and counter.persistable and counter.stop_gradient
    (first,) = [op for op in fluid.default_startup_program().global_block().ops if op.output("Out") == [COUNTER]]
    assert (first.type, first.attr("value")) == ("fill_constant", -1.0)
    assert layers.piecewise_decay([2], [0.3, 0.1]).name != "learning_rate"


def test_layout_of_exponential(programs: fluid.Program) -> None:
    layers.exponential_decay(0.2, 2, 0.5, staircase=True)
    types = [op.type for op in programs.global_block().ops]
    assert types == ["increment", "cast", "scale", "floor", "fill_constant", "elementwise_pow", "scale"]


def test_schedules_share_the_counter(programs: fluid.Program) -> None:
    first = layers.exponential_decay(0.5, 3, 0.8)
    layers.cosine_decay(0.5, 2, 5)
    assert [op.type for op in programs.global_block().ops].count("increment") == 1
    np.testing.assert_allclose(rates(4, first), [0.5 * 0.8 ** (n / 3) for n in range(4)], rtol=1e-5)


MAKERS: list[Callable[[Any], optimizer.Optimizer]] = [
    optimizer.SGD,
    lambda rate: optimizer.Momentum(rate, 0.9),
    optimizer.Adam,
    optimizer.AdamW,
    optimizer.Lamb,
    optimizer.Adamax,
    optimizer.Adagrad,
    optimizer.DecayedAdagrad,
    optimizer.Adadelta,
    optimizer.RMSProp,
    lambda rate: optimizer.Ftrl(rate, l2=0.1),
    lambda rate: optimizer.LarsMomentum(rate, 0.9),
]


@each("make", MAKERS, ids=range(len(MAKERS)))
@each("dtype", ["float32", "float64"])
def test_every_optimizer_follows_a_schedule(make: Callable[[Any], optimizer.Optimizer], dtype: str) -> None:
    """Training with a schedule is training with its numbers, given one by one."""

    def trained(scheduled: bool) -> Any:
        main, startup = fluid.Program(), fluid.Program()
        with fluid.program_guard(main, startup), fluid.unique_name.guard():
            attr = fluid.ParamAttr("w", fluid.initializer.NumpyArrayInitializer(np.array([0.5, -1.0, 2.0])))
            w = layers.create_parameter([3], dtype, attr=attr)
            rate = (
                layers.piecewise_decay([1, 3], [0.1, 0.03, 0.01])
                if scheduled
                else layers.create_global_var([1], 0.1, "float32", persistable=True, name="rate")
            )
            make(rate).minimize(layers.mean(layers.square(w)))
        executor, scope = fluid.Executor(), fluid.Scope()
        executor.run(startup, scope=scope)
        for value in (0.1, 0.03, 0.03, 0.01):
            if not scheduled:
                scope.find_var("rate").get_tensor().set(np.array([value], "float32"))
            executor.run(main, scope=scope)
        return np.array(scope.find_var("w").get_tensor())

    found = trained(True)
    assert not np.allclose(found, [0.5, -1.0, 2.0], atol=1e-7)
    np.testing.assert_array_equal(found, trained(False))


def test_step_counter(programs: fluid.Program) -> None:
    counter = layers.autoincreased_step_counter()
    by_two = layers.autoincreased_step_counter("mine", begin=10, step=2)
    assert layers.autoincreased_step_counter("mine") is by_two
    assert counter.name == "@STEP_COUNTER@"
    executor, scope = fluid.Executor(), fluid.Scope()
    executor.run(fluid.default_startup_program(), scope=scope)
    found = [[int(x[0]) for x in executor.run(fetch_list=[counter, by_two], scope=scope)] for _ in range(3)]
    # The variable holds begin - 1 before the first run, so that a step other than 1 starts at begin - 1 + step.
    assert found == [[1, 11], [2, 13], [3, 15]]


def test_rates_and_updates_of_ones_own_are_left_out_of_test_programs(programs: fluid.Program) -> None:
    """As scripts write them: a warmup, and decay of the weights after the optimizer's updates."""
    x = fluid.data("x", [None, 2])
    loss = layers.mean(layers.fc(x, 1, param_attr="w", bias_attr=False))
    with programs._lr_schedule_guard():
        rate = layers.create_global_var([1], 0.5, "float32", persistable=True, name="rate")
        step = layers.learning_rate_scheduler._decay_step_counter()
        layers.assign(step * 0.5 + 0.5, rate)
    ((weight, gradient),) = optimizer.SGD(rate).minimize(loss)[1]
    with programs._optimized_guard([weight, gradient]):
        layers.assign(weight * 0.5, weight)
    assert "scale" not in {op.type for op in programs.clone(for_test=True).global_block().ops}
    assert programs.global_block().ops[-1].attrs[OpRole.VARS] == ["w", gradient.name]

    executor, scope = fluid.Executor(), fluid.Scope()
    executor.run(fluid.default_startup_program(), scope=scope)
    first = np.array(scope.find_var("w").get_tensor())
    for factor in (0.5, 1.0):
        executor.run(feed={"x": np.ones((3, 2), np.float32)}, scope=scope)
        first = (first - factor) * 0.5
        np.testing.assert_allclose(np.asarray(scope.find_var("w").get_tensor()), first, rtol=1e-6)


@each(
    ("build", "message"),
    [
        (lambda: layers.piecewise_decay([1, 2], [0.1, 0.2]), r"one more of values; there are 2 boundaries and 2 values"),
        (lambda: layers.piecewise_decay([], [0.1]), r"there are 0 boundaries and 1 values"),
        (lambda: layers.piecewise_decay([3, 2], [0.1, 0.2, 0.3]), r"boundaries should increase, not be \[3, 2\]"),
        (
            lambda: layers.exponential_decay(0.1, 0, 0.5),
            r"exponential_decay: decay_steps should be a number greater than 0, not 0",
        ),
        (lambda: layers.polynomial_decay(0.1, -1), r"polynomial_decay: decay_steps should be"),
        (lambda: layers.noam_decay(64, 0), r"noam_decay: warmup_steps should be"),
        (lambda: layers.cosine_decay(0.1, 2, 0), r"cosine_decay: epochs should be"),
        (lambda: layers.linear_lr_warmup(0.1, 0, 0.0, 0.1), r"linear_lr_warmup: warmup_steps should be"),
    ],
)
def test_wrong_arguments(build: Callable[[], Any], message: str, programs: fluid.Program) -> None:
    with pytest.raises(ProgramError, match=message):
        build()
    assert not programs.global_block().ops, "what fails leaves nothing behind"
