"""Values that are no arrays, or lie about it, wherever arrays are given: each is taken, or refused by an error of ours."""

from __future__ import annotations

import faulthandler
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from bad_feeds import bad_values
from checks import MORE, Checks

import fluid
from fluid import dygraph, io, layers
from fluid.errors import FluidError

pytestmark = pytest.mark.filterwarnings("ignore")

EVERY = 1 if MORE > 1 else 7
"""Of the values in containers, each so manieth is tried."""
DECLARED: dict[str, dict[str, Any]] = {
    "floats": {"shape": [None, 3], "dtype": "float32"},
    "integers": {"shape": [None, 3], "dtype": "int64"},
    "bools": {"shape": [2], "dtype": "bool"},
    "bfloat16": {"shape": [None, 3], "dtype": "bfloat16"},
    "sequences": {"shape": [None, 3], "dtype": "float32", "lod_level": 1},
}


def reader_of(name: str) -> tuple[fluid.Program, Any]:
    """A program that reads x, with this declaration, and its fetches."""
    program = fluid.Program()
    with fluid.program_guard(program, fluid.Program()):
        return program, layers.cast(fluid.data("x", **DECLARED[name]), "float32") * 2.0


def of_programs(name: str, run: str) -> Callable[[Any], Any]:
    program, y = reader_of(name)
    executor = fluid.Executor()
    return lambda value: getattr(executor, run)(program, {"x": value}, [y])


def uses() -> dict[str, Callable[[Any], Any]]:
    """All functions that take arrays, lengths of sequences, feeds or fetches."""
    program, y = reader_of("floats")
    x, executor = program.global_block().var("x"), fluid.Executor()
    keeping = fluid.Program()
    keeping.global_block().create_var(name="w", shape=[2, 3], dtype="float32", persistable=True)
    good = np.zeros((2, 3), "float32")

    def assign(value: Any) -> None:
        with fluid.program_guard(fluid.Program(), fluid.Program()):
            layers.assign(value)

    return {
        **{f"run, {name}": of_programs(name, "run") for name in DECLARED},
        **{f"interpret, {name}": of_programs(name, "interpret") for name in ("floats", "sequences")},
        "feed": lambda value: executor.run(program, value, [y]),
        "name that is fed": lambda value: executor.run(program, {"x": good, (id(value), str): value}, [y]),
        "fetch_list": lambda value: executor.run(program, {"x": good}, value),
        "DataFeeder": lambda value: fluid.DataFeeder([x], fluid.CPUPlace(), program).feed([(value,)]),
        "LoDTensor.set": lambda value: fluid.LoDTensor().set(value, fluid.CPUPlace()),
        "lengths": lambda value: fluid.LoDTensor().set_recursive_sequence_lengths(value),
        "create_lod_tensor": lambda value: fluid.create_lod_tensor(value, [[1, 1]], fluid.CPUPlace()),
        "Scope.put": lambda value: fluid.Scope().put("x", value),
        "set_program_state": lambda value: io.set_program_state(keeping, {"w": value}),
        "assign": assign,
    }


def eager_uses() -> dict[str, Callable[[Any], Any]]:
    tensor = dygraph.to_variable(np.zeros(3, "float32"))
    return {
        "to_variable": dygraph.to_variable,
        "op": lambda value: layers.elementwise_add(tensor, value),
    }


def check(use: Callable[[Any], Any], name: str, make: Callable[[], Any]) -> None:
    value, start = make(), time.process_time()
    try:
        use(value)
    except FluidError as error:
        text = str(error)
        assert len(text) < 17_000 and text.replace("\n", "").isprintable()
    assert time.process_time() - start < 2


@pytest.fixture(autouse=True)
def told_where_it_crashes() -> None:
    faulthandler.enable()


def test_there_are_hundreds_of_kinds() -> None:
    assert len(bad_values(1 << 30)) > 250 and len(bad_values()) > 2000


@pytest.mark.random
def test_programs() -> None:
    values, places = bad_values(EVERY), uses()
    with Checks() as checks:
        for place, use in places.items():
            for name, make in values.items():
                with checks(f"{place}: {name}"):
                    check(use, name, make)


@pytest.mark.random
def test_eager_mode() -> None:
    with dygraph.guard(), Checks() as checks:
        for place, use in eager_uses().items():
            for name, make in bad_values(EVERY).items():
                if "__getattr__ raises" in name:
                    continue  # hasattr itself raises then, in each of the places that ask what a value is
                with checks(f"{place}: {name}"):
                    check(use, name, make)


def test_what_is_said() -> None:
    run = of_programs("floats", "run")
    itself: list[Any] = []
    itself += [itself, itself]
    for value, says in (
        (itself, r"x \(float32\[-1, 3\]\) is not an array: .*nested more than 64 deep, or hold themselves"),
        (bad_values()["__array__ raises OSError"](), r"is not an array: .*OSError: \\x1b\[31mfrom the value"),
        (bad_values()["interface: strides"](), "its elements lie outside of the 24 bytes that it holds"),
        (bad_values()["interface: type of objects"](), "it says that its bytes are Python objects"),
    ):
        with pytest.raises(FluidError, match=says):
            run(value)
