"""Errors for values of a wrong type in runs, feeds, fetches and new tensors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import product
from typing import Any

import numpy as np
import pytest
from checks import Checks

import fluid
from fluid import dygraph, layers
from fluid.errors import FluidError

X = np.ones((2, 3), "float32")
MASKED = np.ma.array(X, mask=X > 0)

NO_ARRAYS: list[tuple[Any, str]] = [
    ([[1, 2, 3], [1, 2]], "its lists differ in length, where they hold 3 and 2 items"),
    ([[[1], [2, 3]]], "its lists differ in length, where they hold 1 and 2 items"),
    ([[1], 2], "its lists differ in depth: beside a list it holds 2"),
    ([[10**30]], f"it holds {10**30}, which 64 bits cannot hold"),
    (10**30, f"it is {10**30}, which 64 bits cannot hold"),
    ("abc", "it is 'abc', a str"),
    ([["a", 1.0]], "it holds 'a', a str"),
    (b"x", "it is b'x', a bytes"),
    (None, "it is None"),
    ([[None, 1.0]], "it holds None"),
    ([float, 1.0], "it holds .*float.*, a type"),
    ({"a": 1}, "it is {'a': 1}, a dict"),
    ({1}, r"it is \{1\}, a set"),
    (iter([1]), "it is .*, a list_iterator"),
    (np.array([["a"]], object), "it holds 'a', a str"),
    (np.array(["a"]), "it holds 'a', a str"),
    (np.datetime64("2020"), "it is .*datetime64"),
    (MASKED, r"6 of its 6 elements are masked, which leaves them without a value; .*\.filled\("),
]


@pytest.fixture
def run() -> Callable[..., Any]:
    """Runs a program of x, y = 2 x, ids, and s, which holds sequences; by default x is fed and y fetched."""
    x = fluid.data("x", [None, 3])
    fluid.data("ids", [None, 1], "int64")
    fluid.data("s", [None, 3], lod_level=1)
    y = layers.scale(x, 2.0)
    usual = {"program": fluid.default_main_program(), "feed": {"x": X}, "fetch_list": [y]}
    return lambda method="run", **given: getattr(fluid.Executor(), method)(**{**usual, **given})


def assert_refused(cases: list[tuple[str, Callable[[], Any], str]]) -> None:
    with Checks() as check:
        for what, call, says in cases:
            with check(what), pytest.raises(FluidError, match=says):
                call()


def test_arguments_of_runs(run: Callable[..., Any]) -> None:
    wrong: list[tuple[str, Sequence[Any], str]] = [
        ("fetch_list", (True, 3.5, object(), {"x": 1}, b"x", len), "fetch_list should be a list of Variables or names, not "),
        ("scope", ({}, 0, "x", fluid.Scope), "a program runs in a Scope, such as fluid.Scope.* not "),
        ("program", ("main", 3, False), "an Executor runs a Program, not"),
        ("feed", ([1], "x", 0), "feed should be a dict of variable name -> array, not"),
    ]
    cases: list[tuple[str, Callable[[], Any], str]] = [
        (f"{method} with {name}={value!r}", lambda m=method, n=name, v=value: run(m, **{n: v}), says)
        for method, (name, values, says) in product(("run", "interpret", "plan"), wrong)
        for value in values
    ]
    cases.append(("scope_guard", lambda: fluid.scope_guard({}).__enter__(), "a program runs in a Scope"))
    assert_refused(cases)


def test_values_that_are_no_arrays(run: Callable[..., Any]) -> None:
    """Each is told of in the same words, wherever it is given."""

    feeder = fluid.DataFeeder(["x"], fluid.CPUPlace())

    with dygraph.guard(), Checks() as check:
        for value, says in NO_ARRAYS:
            for where, call, heads in (
                ("feed", lambda v: run(feed={"x": v}), r"the feed of x \(float32\[-1, 3\]\) is not an array: "),
                ("set", fluid.LoDTensor().set, "LoDTensor.set takes an array: "),
                ("to_variable", dygraph.to_variable, "a tensor is made of an array: "),
                ("set_value", dygraph.to_variable(X).set_value, "a tensor is made of an array: "),
                ("rows", lambda v: feeder.feed([(v,)]), r"the rows of x \(float32\[-1, 3\]\) are not an array: "),
            ):
                within = says.replace("it is", "it holds") if where == "rows" else says
                if where == "set_value" and type(value) is int:
                    continue  # a float like any other, of another shape
                with check(f"{where} of {value!r}"), pytest.raises(FluidError, match=heads + within):
                    call(value)


def test_sequences(run: Callable[..., Any]) -> None:
    def fed(name: str, value: Any) -> Callable[[], Any]:
        return lambda: run(feed={"x": X, name: value})

    def lengths(method: str, value: Any) -> Callable[[], Any]:
        return lambda: getattr(fluid.LoDTensor(X), method)(value)

    listed = "lists of integers, level by level"
    cases = [
        ("sequences for x", fed("x", (X, [[1, 1]])), r"x \(float32\[-1, 3\]\) is declared without sequences.* lod_level=1"),
        ("number", fed("s", (X, 5)), listed),
        ("None", fed("s", (X, None)), listed),
        ("one level", fed("s", (X, [1, 1])), listed),
        ("text", fed("s", (X, [["a"]])), listed),
        ("fractions", fed("s", (X, [[1.5, 0.5]])), listed),
        ("pair of three", fed("s", (X, [[1, 1]], 3)), "is not an array"),
    ]
    for method in ("set_lod", "set_recursive_sequence_lengths"):
        cases += [(f"{method} {value}", lengths(method, value), listed) for value in ("a", 3, None, [1], [["a"]], [[1.5]], {})]
    assert_refused(cases)
    assert run(feed={"x": X, "s": (X, np.array([[1, 1]]))})[0].shape == (2, 3)


def test_rows(run: Callable[..., Any]) -> None:
    feeder = fluid.DataFeeder(["x"], fluid.CPUPlace())
    rows = "should be a list of rows, each a list of 1 field"
    cases = [(f"rows {value}", lambda v=value: feeder.feed(v), rows) for value in (None, 3, [1], [None], [{"x": X[0]}])]
    for value in (None, 3):
        cases.append((f"feed_list {value}", lambda v=value: fluid.DataFeeder(v, None), "feed_list should be a list of Variables"))
        program = fluid.Program if value is None else value
        cases.append((f"program {value}", lambda p=program: fluid.DataFeeder(["x"], None, p), "program should be a Program"))
    cases.append(("place", lambda: fluid.LoDTensor().set(X, "cpu"), "place should be a place, such as fluid.CPUPlace"))
    assert_refused(cases)
    assert [var.name for var in fluid.DataFeeder("ids", None).feed_vars] == ["ids"]


def test_steps_of_slices(run: Callable[..., Any]) -> None:
    x = fluid.data("x2", [4, 3])
    with pytest.raises(FluidError, match=r"strides \[0\] should not be 0"):
        layers.strided_slice(x, [0], [0], [2], [0])
    with dygraph.guard():
        tensor = dygraph.to_variable(X)

        def assign() -> None:
            tensor[::0] = 1.0

        assert_refused(
            [
                ("variable", lambda: x[::0], r"x2: the step of a slice should not be 0"),
                ("tensor", lambda: tensor[:, ::0], r"the step of a slice should not be 0"),
                ("assigned", assign, r"the step of a slice should not be 0"),
            ]
        )


def test_sizes_that_only_a_run_knows(run: Callable[..., Any]) -> None:
    shape = fluid.data("shape", [2], "int32")
    out = layers.reshape(fluid.default_main_program().global_block().var("x"), [2, 3], actual_shape=shape)
    with pytest.raises(FluidError, match=r"reshape2(?: failed)?: cannot reshape \[2, 3\] to \[-5, 2\]: at most one size"):
        run(feed={"x": X, "shape": np.array([-5, 2], "int32")}, fetch_list=[out])


def test_loops_of_variables_and_tensors(run: Callable[..., Any]) -> None:
    x = fluid.default_main_program().global_block().var("x")
    with dygraph.guard():
        tensor = dygraph.to_variable(X)
    for first in ([x, tensor], [tensor, {"more": x}]):
        with pytest.raises(FluidError, match=r"while_loop: loop_vars mixes .* give variables of one program, or tensors"):
            layers.while_loop(lambda a, b: True, lambda a, b: [a, b], first)
