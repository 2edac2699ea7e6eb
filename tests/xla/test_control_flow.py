"""Loops, branches, recurrences and arrays of tensors at an XLAPlace, compared with numpy: values, gradients, compiled
programs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

pytest.importorskip("jax")

from control_flow_programs import BUILDERS, repeat, total
from differentiation import Case

import fluid
from fluid import layers
from fluid.errors import ExecutionError, IndexRangeError

pytestmark = [pytest.mark.numpy_alone, pytest.mark.usefixtures("quick_to_compile")]

QUICK = ("loop", "branch_in_loop", "rnn")
VARY = {
    "loop_that_grows": "tanh_0.tmp_0 is float64[1, 2] before a run of the block and float64[2, 2] after it",
    "array_entry_overwritten_in_another_shape": "an array has entries of the shapes float64[4] and float64[2, 3]",
}
"""Programs in which values that are fed decide about shapes, and what is said of them."""


def by_name(names: Any) -> Any:
    """Parametrizes by the names of programs; all but a few are slow."""
    marked = [name if name in QUICK else pytest.param(name, marks=pytest.mark.slow) for name in names]
    return pytest.mark.parametrize("name", marked)


class Differentiated:
    """One of the small programs with its gradients, up to an order.

    With `fed`, the integers of block 0 are fed instead of constants: only running tells how often a loop runs, and which branch
    is taken.
    """

    def __init__(self, name: str, order: int = 1, fed: bool = False) -> None:
        case = self.case = Case(name)
        self.program = case.program
        with fluid.program_guard(case.program, case.startup), fluid.unique_name.guard():
            target, inputs = BUILDERS[name](case)
            fetch, seed = [target], None
            for number in range(order):
                grads = [grad for grad in fluid.gradients(target, inputs, seed) if grad is not None]
                if not grads:
                    break
                fetch += grads
                target, inputs, seed = grads[0], inputs[:1], case.data(f"weight{number}", case.shape_of(inputs[0]))
        self.fetch = [var.name for var in fetch]
        if fed:
            self._feed_integers()

    def _feed_integers(self) -> None:
        block = self.program.global_block()
        for op in [op for op in block.ops if op.type == "fill_constant"]:
            (name,) = op.output("Out")
            dtype = block.var(name).dtype.numpy
            if dtype.kind == "i":
                self.case.values[name] = np.full(op.attr("shape"), int(op.attr("value")), dtype)
                block.ops.remove(op)
        self.program._changed()

    def run(self, place: Any) -> tuple[list[Any], Any]:
        """The values of the target and of all gradients, and the plan at this place."""
        executor, scope, feed = fluid.Executor(place), fluid.Scope(), {}
        fluid.Executor(fluid.CPUPlace()).run(self.case.startup, scope=scope)
        for name, value in self.case._inputs(self.program).items():
            if self.program.global_block().vars[name].persistable:
                scope.var(name).get_tensor().set(value, fluid.CPUPlace())
            else:
                feed[name] = value
        values = executor.run(self.program, feed, self.fetch, scope=scope)
        return values, executor.plan(self.program, feed, self.fetch, scope=scope)

    def check(self) -> Any:
        """Hold XLA's values against numpy's; returns XLA's plan."""
        expected, _ = self.run(fluid.CPUPlace())
        values, plan = self.run(fluid.XLAPlace())
        for name, value, other in zip(self.fetch, values, expected, strict=True):
            np.testing.assert_allclose(value, other, rtol=1e-9, atol=1e-11, err_msg=name)
        return plan


# ------------------------------------------------------------------------------------------------------- all programs
@by_name(BUILDERS)
def test_known_trip_counts(name: str) -> None:
    Differentiated(name).check()


@by_name(sorted(BUILDERS.keys() - VARY))
def test_what_only_running_tells(name: str) -> None:
    Differentiated(name, fed=True).check()


@pytest.mark.parametrize("name", VARY)
def test_values_that_decide_about_shapes(name: str) -> None:
    with pytest.raises(ExecutionError) as raised:
        Differentiated(name, fed=True).run(fluid.XLAPlace())
    message = str(raised.value)
    assert VARY[name] in message and "Make that a constant of the program, or run it on CPUPlace()" in message


@pytest.mark.slow
@pytest.mark.parametrize("name", BUILDERS)
def test_second_order(name: str) -> None:
    Differentiated(name, 2).check()


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(BUILDERS.keys() - VARY))
def test_second_order_of_what_only_running_tells(name: str) -> None:
    Differentiated(name, 2, fed=True).check()


@pytest.mark.slow
@pytest.mark.parametrize("fed", [False, True])
@pytest.mark.parametrize("name", ["loop", "branch_taken", "rnn"])
def test_third_order(name: str, fed: bool) -> None:
    Differentiated(name, 3, fed).check()


# ---------------------------------------------------------------------------------------------- what they compile to
@pytest.mark.parametrize(
    ("name", "fed", "loops", "branches"),
    [
        ("loop", False, 2, 0),  # forward, and backward
        ("loop", True, 2, 0),
        ("branch_taken", False, 0, 0),  # decided while it is compiled
        ("branch_taken", True, 0, 2),
        ("rnn", False, 2, 0),
        ("loop_that_grows", False, 0, 0),  # trip by trip
    ],
)
def test_structure(name: str, fed: bool, loops: int, branches: int) -> None:
    _, plan = Differentiated(name, fed=fed).run(fluid.XLAPlace())
    text = plan.lowered().as_text()
    assert (text.count("stablehlo.while"), text.count("stablehlo.case")) == (loops, branches)


# --------------------------------------------------------------------------------------------------- numbers not known
def trained_loop() -> Any:
    """A loss after so many trips as are fed, which a step of SGD makes smaller."""
    trips = fluid.data("trips", [1], "int64")
    w = layers.create_parameter([3], "float64", name="w", default_initializer=fluid.initializer.Constant(0.5))
    i, h = layers.fill_constant([1], "int64", 0), layers.scale(w, 1.0)
    go_on = layers.less_than(i, trips)
    loop = layers.While(go_on)
    with loop.block():
        layers.assign(layers.tanh(h * w) + w, h)
        layers.increment(i)
        layers.less_than(i, trips, cond=go_on)
    loss = total(h)
    fluid.optimizer.SGD(0.01).minimize(loss)
    return loss


def test_a_run_with_more_trips_than_there_is_room_for_is_made_again() -> None:
    """And only its last time counts: parameters are updated once."""
    loss = trained_loop()
    sides = []
    for place in (fluid.CPUPlace(), fluid.XLAPlace()):
        executor, scope = fluid.Executor(place), fluid.Scope()
        executor.run(fluid.default_startup_program(), scope=scope)
        losses = [executor.run(feed={"trips": [trips]}, fetch_list=[loss], scope=scope)[0] for trips in (3, 40, 0, 17)]
        sides.append([*losses, scope.array("w")])
    for one, other in zip(*sides, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-12)


@pytest.mark.parametrize("trips", [0, 5, 20])
def test_a_gradient_that_reads_nothing_of_the_trips(trips: int) -> None:
    x, n = fluid.data("x", [2], "float64"), fluid.data("n", [1], "int64")
    x.stop_gradient = False
    i, h = layers.fill_constant([1], "int64", 0), layers.scale(x, 1.0)
    go_on = layers.less_than(i, n)
    loop = layers.While(go_on)
    with loop.block():
        layers.assign(layers.scale(h, 2.0), h)
        layers.increment(i)
        layers.less_than(i, n, cond=go_on)
    (grad,) = fluid.gradients(total(h), x)
    (slope,) = fluid.Executor(fluid.XLAPlace()).run(feed={"x": np.ones(2), "n": [trips]}, fetch_list=[grad])
    np.testing.assert_array_equal(slope, [2.0**trips] * 2)


def test_lengths_that_never_hold() -> None:
    """A concat has as many rows as the feed: each number of rows is compiled once."""
    count = fluid.data("count", [1], "int64")
    array = layers.create_array("float64")
    i, n = layers.fill_constant([1], "int64", 0), layers.scale(count, 1.0)
    go_on = layers.less_than(i, n)
    loop = layers.While(go_on)
    with loop.block():
        layers.array_write(layers.cast(i, "float64") * 2.0, i, array)
        layers.increment(i)
        layers.less_than(i, n, cond=go_on)
    joined, _ = layers.tensor_array_to_tensor(array, axis=0)
    executor = fluid.Executor(fluid.XLAPlace())
    for length in (3, 20, 1):
        (values,) = executor.run(feed={"count": [length]}, fetch_list=[joined * 1.0])
        np.testing.assert_array_equal(values, np.arange(length) * 2.0)


def test_entries_beyond_an_array() -> None:
    """Read as zeros, unless values are checked."""
    x, i = fluid.data("x", [2]), fluid.data("i", [1], "int64")
    array = layers.array_write(x, layers.fill_constant([1], "int64", 0))
    entry = layers.array_read(array, i)
    feed = {"x": np.ones(2, "float32"), "i": [5]}
    assert not fluid.Executor(fluid.XLAPlace()).run(feed=feed, fetch_list=[entry])[0].any()
    with pytest.raises(IndexRangeError, match=r"entry 5 is read from .*, which has 1 entries"):
        fluid.Executor(fluid.XLAPlace(check_values=True)).run(feed=feed, fetch_list=[entry])


# --------------------------------------------------------------------------------------------------------- random ops
@pytest.mark.parametrize("fed", [False, True])
def test_each_trip_draws_other_numbers(fed: bool) -> None:
    """The same ones in each run of a program with a seed, whether the number of trips is known or not."""
    fluid.default_main_program().random_seed = 3
    x = fluid.data("x", [1], "int64")
    array = layers.create_array("float32")
    n = x if fed else layers.fill_constant([1], "int64", 3)
    i = layers.fill_constant([1], "int64", 0)
    go_on = layers.less_than(i, n)
    loop = layers.While(go_on)
    with loop.block():
        layers.array_write(layers.uniform_random([4]), i, array)
        layers.increment(i)
        layers.less_than(i, n, cond=go_on)
    after = layers.uniform_random([4])
    entries = [layers.array_read(array, layers.fill_constant([1], "int64", number)) for number in range(3)]
    executor = fluid.Executor(fluid.XLAPlace())
    drawn = [executor.run(feed={"x": [3]}, fetch_list=[*entries, after], scope=fluid.Scope()) for _ in range(2)]
    np.testing.assert_array_equal(*drawn)
    assert len(np.unique(drawn[0])) == 16


def test_a_mask_of_a_loop_is_that_of_its_gradient() -> None:
    x = fluid.data("x", [64])
    x.stop_gradient = False
    h = layers.scale(x, 1.0)
    repeat(3, lambda i: layers.assign(layers.dropout(h, 0.3, dropout_implementation="upscale_in_train"), h))
    (grad,) = fluid.gradients(total(h), x)
    out, slope = fluid.Executor(fluid.XLAPlace()).run(feed={"x": np.full(64, 2.0, "float32")}, fetch_list=[h, grad])
    np.testing.assert_allclose(out, 2.0 * slope, rtol=1e-6)
    assert 0 < np.count_nonzero(out) < 64


# ------------------------------------------------------------------------------------------------------ sparse gradients
@pytest.mark.parametrize("fed", [False, True])
def test_sparse_gradients_of_a_table_in_a_loop(fed: bool) -> None:
    ids, n = fluid.data("ids", [4, 1], "int64"), fluid.data("n", [1], "int64")
    trips = n if fed else layers.fill_constant([1], "int64", 3)
    w = fluid.ParamAttr(name="w", initializer=fluid.initializer.NumpyArrayInitializer(np.arange(20.0).reshape(10, 2) / 20))
    i, h = layers.fill_constant([1], "int64", 0), layers.fill_constant([4, 2], "float32", 1.0)
    h.stop_gradient = False
    go_on = layers.less_than(i, trips)
    loop = layers.While(go_on)
    with loop.block():
        layers.assign(layers.tanh(layers.embedding(ids, [10, 2], is_sparse=True, param_attr=w) * h), h)
        layers.increment(i)
        layers.less_than(i, trips, cond=go_on)
    fluid.optimizer.SGD(0.5).minimize(total(h))
    tables = []
    for place in (fluid.CPUPlace(), fluid.XLAPlace()):
        executor, scope = fluid.Executor(place), fluid.Scope()
        executor.run(fluid.default_startup_program(), scope=scope)
        for _ in range(2):
            executor.run(feed={"ids": [[1], [3], [1], [9]], "n": [3]}, scope=scope)
        tables.append(scope.array("w"))
    np.testing.assert_allclose(*tables, rtol=1e-5, atol=1e-6)
