"""Backends: a backend of a few lines runs whole programs, and hands programs that it cannot run to the next backend."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from contextlib import nullcontext
from typing import Any

import numpy as np
import pytest

import fluid
from fluid import layers
from fluid.executor import backend as interface
from fluid.executor.backend import Request, Unavailable
from fluid.executor.stepwise.needed import ops_to_run

FORMULAS: dict[str, Callable[..., Any]] = {
    "mul": lambda X, Y: X @ Y,
    "elementwise_add": lambda X, Y: X + Y,
    "tanh": lambda X: np.tanh(X),
    "mean": lambda X: np.mean(X),
    "assign": lambda X: X,
}


class Toy:
    """Runs programs whose ops all have a formula, on arrays of numpy."""

    takes_bfloat16 = True

    def __init__(self, place: fluid.core.Place) -> None:
        self.compiled = 0

    def key(self, request: Request) -> Hashable | None:
        ops = ops_to_run(request.program.global_block(), request.fetches)
        return tuple(request.specs.items()) if all(op.type in FORMULAS for op in ops) else None

    def compile(self, request: Request) -> ToyPlan:
        self.compiled += 1
        return ToyPlan(request)


class ToyPlan:
    def __init__(self, request: Request) -> None:
        self.program, self.fetches = request.program, request.fetches
        self.ops = ops_to_run(self.program.global_block(), self.fetches)
        read = {name for op in self.ops for name in op.input_arg_names}
        names = sorted(name for name in read if request.scope.array(name) is not None)
        self.externals = {name: interface.spec_of(request.scope.array(name)) for name in names}
        self.absent: frozenset[str] = frozenset()

    def bind(self, scope: fluid.Scope) -> BoundToy:
        return BoundToy(self, scope)

    def to_string(self, calls: bool = False) -> str:
        return "\n".join(["a toy", *map(str, self.ops)])


class BoundToy:
    fails = False

    def __init__(self, plan: ToyPlan, scope: fluid.Scope) -> None:
        self.plan, self.scope = plan, scope

    def is_of(self, scope: fluid.Scope) -> bool:
        return self.scope is scope

    def settings(self) -> Any:
        return nullcontext()

    def run(self, feeds: Mapping[str, Any], check: Any = None, timer: Any = None) -> list[Any]:
        if BoundToy.fails:
            raise Unavailable("the toy is broken")
        block = self.plan.program.global_block()
        values = {name: self.scope.array(name) for name in self.plan.externals} | dict(feeds)
        for op in self.plan.ops:
            inputs = {slot: values[names[0]] for slot, names in op.inputs.items()}
            (name,) = op.output_arg_names
            values[name] = np.asarray(FORMULAS[op.type](**inputs), block.var(name).dtype.array_dtype)
            if block.var(name).persistable:
                self.scope.put(name, values[name])
        return [values[name] for name in self.plan.fetches]


class ToyPlace(fluid.CPUPlace):
    """The CPU, with a toy before the backends that are here."""


@pytest.fixture
def toys(monkeypatch: pytest.MonkeyPatch) -> list[Toy]:
    """The toys that executors at a `ToyPlace` make."""
    toys_made: list[Toy] = []
    monkeypatch.setitem(interface._MAKERS, ToyPlace, [])

    def make(place: fluid.core.Place) -> Toy:
        toys_made.append(Toy(place))
        return toys_made[-1]

    fluid.extend.add_backend(ToyPlace, make)
    return toys_made


X = np.linspace(-1, 1, 12).reshape(4, 3).astype("float32")


def test_a_backend_runs_whole_programs(toys: list[Toy]) -> None:
    y = layers.fc(fluid.data("x", [None, 3]), 2, act="tanh")
    executor, reference = fluid.Executor(ToyPlace()), fluid.Executor()
    executor.run(fluid.default_startup_program())
    for rows in (4, 3, 4):
        feed = {"x": X[:rows]}
        ours, theirs = (each.run(feed=feed, fetch_list=[y])[0] for each in (executor, reference))
        np.testing.assert_allclose(ours, theirs, 1e-6)
    assert toys[0].compiled == 2 and len(toys) == 1
    assert executor.plan(feed={"x": X}, fetch_list=[y]).to_string().startswith("a toy")
    weight = fluid.default_main_program().all_parameters()[0].name
    fluid.global_scope().put(weight, np.zeros((3, 2), "float32"))
    assert not executor.run(feed={"x": X}, fetch_list=[y])[0].any()


def test_the_next_backend_gets_what_one_does_not_take(toys: list[Toy]) -> None:
    loss = layers.mean(layers.fc(fluid.data("x", [None, 3]), 2))
    fluid.optimizer.SGD(0.1).minimize(loss)  # whose op has no formula
    executor = fluid.Executor(ToyPlace())
    executor.run(fluid.default_startup_program())
    losses = [executor.run(feed={"x": X + 1}, fetch_list=[loss])[0].item() for _ in range(3)]
    assert losses[2] < losses[1] < losses[0] and toys[0].compiled == 0


def test_the_next_backend_gets_what_one_cannot_run(toys: list[Toy], monkeypatch: pytest.MonkeyPatch) -> None:
    y = layers.tanh(fluid.data("x", [None, 3]))
    executor = fluid.Executor(ToyPlace())
    monkeypatch.setattr(BoundToy, "fails", True)
    for _ in range(2):
        np.testing.assert_allclose(executor.run(feed={"x": X}, fetch_list=[y])[0], np.tanh(X), 1e-6)
    assert toys[0].compiled == 1


def test_every_place_runs_programs_op_by_op() -> None:
    class Nowhere(fluid.core.Place):
        @property
        def xp(self) -> Any:
            return np

    y = layers.tanh(fluid.data("x", [None, 3]))
    np.testing.assert_allclose(fluid.Executor(Nowhere()).run(feed={"x": X}, fetch_list=[y])[0], np.tanh(X), 1e-6)
