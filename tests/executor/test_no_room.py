"""Arrays for which no memory is large enough: the error says which array, how much it takes, and where it was made."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import fluid
import fluid.numpy as xp
from fluid import dygraph, layers
from fluid.errors import ExecutionError, OutOfMemoryError, no_room
from fluid.ir.program import Program, program_guard

MANY, SIDE = 2**48, 2**24  # beyond what a processor of 64 bits addresses, whatever memory the machine promises
TAKES = r"1,048,576\.0 GiB"  # of float32
LAYERS: dict[str, Callable[[], Any]] = {
    "fill_constant": lambda: layers.fill_constant([MANY], "float32", 1.0),
    "eye": lambda: layers.eye(SIDE),
    "expand": lambda: layers.expand(layers.ones([2, 2], "float32"), [SIDE // 2, SIDE // 2]),
    "uniform_random": lambda: layers.uniform_random([MANY]),
    "gaussian_random": lambda: layers.gaussian_random([SIDE, SIDE]),
    "pad": lambda: layers.pad(layers.ones([1, 1], "float32"), [0, SIDE - 1, 0, SIDE - 1]),
    "elementwise_add": lambda: layers.ones([SIDE, 1], "float32") + layers.ones([1, SIDE], "float32"),
    "range": lambda: layers.cast(layers.range(0, MANY // 2, 1, "int64"), "float32"),
}
ARRAYS: dict[str, Callable[[], Any]] = {
    "ones": lambda: xp.ones((MANY,)),
    "zeros": lambda: xp.zeros((SIDE, SIDE)),
    "full": lambda: xp.full((MANY,), 2.0),
    "empty": lambda: xp.empty((MANY,)),
    "eye": lambda: xp.eye(SIDE),
    "arange": lambda: xp.arange(MANY // 2),
    "linspace": lambda: xp.linspace(0.0, 1.0, MANY // 2),
    "repeat": lambda: xp.repeat(xp.ones((4,)), MANY // 8),
    "tile": lambda: xp.tile(xp.ones((2, 2)), (SIDE // 2, SIDE // 2)),
    "outer sum": lambda: xp.ones((SIDE, 1)) + xp.ones((1, SIDE)),
    "impossible": lambda: xp.ones((MANY, MANY)),
}


@pytest.mark.parametrize("name", LAYERS)
def test_in_a_program(name: str) -> None:
    with program_guard(Program(), Program()), fluid.unique_name.guard():
        result = LAYERS[name]()
        with pytest.raises(OutOfMemoryError, match="no room in memory") as caught:
            fluid.Executor(fluid.CPUPlace()).run(fetch_list=[result])
    assert re.search(TAKES, str(caught.value)) and f"{name}(" in str(caught.value) and __file__ in str(caught.value)


@pytest.mark.parametrize("name", LAYERS)
def test_in_eager_mode(name: str) -> None:
    with dygraph.guard(fluid.CPUPlace()), pytest.raises(OutOfMemoryError, match=rf"no room in memory for .*{TAKES}") as caught:
        LAYERS[name]()
    assert str(caught.value).startswith(name) and __file__ in str(caught.value)


@pytest.mark.parametrize("name", ARRAYS)
def test_arrays(name: str) -> None:
    takes = "so many elements" if name == "impossible" else TAKES
    with pytest.raises(OutOfMemoryError, match=f"no room in memory for .*{takes}"):
        ARRAYS[name]()


def test_parameters_and_variables() -> None:
    with dygraph.guard(fluid.CPUPlace()):
        for make in (
            lambda: dygraph.Linear(SIDE, SIDE),
            lambda: dygraph.Embedding([MANY // 8, 8]),
            lambda: layers.create_parameter([MANY], "float32"),
            lambda: layers.create_global_var([MANY], 0.0, "float32"),
        ):
            with pytest.raises(OutOfMemoryError, match=TAKES):
                make()
    with program_guard(Program(), Program()), fluid.unique_name.guard():
        layers.fc(fluid.data("x", [None, SIDE]), SIDE)
        with pytest.raises(OutOfMemoryError, match=TAKES + rf", for float32\[{SIDE}, {SIDE}\]"):
            fluid.Executor(fluid.CPUPlace()).run(fluid.default_startup_program(), scope=fluid.Scope())


def test_it_is_an_error_of_both_kinds() -> None:
    assert issubclass(OutOfMemoryError, MemoryError) and issubclass(OutOfMemoryError, ExecutionError)
    assert no_room(ValueError("shapes differ")) is None and no_room(KeyError("x")) is None
    assert str(no_room(MemoryError("5 bytes on the device"))) == "there is no room in memory: 5 bytes on the device"


@pytest.mark.parametrize("make", [lambda: xp.ones((2, -1)), lambda: xp.zeros(-1), lambda: xp.full((-2,), 1), lambda: xp.eye(-1)])
def test_sizes_below_0(make: Callable[[], Any]) -> None:
    with pytest.raises(fluid.errors.ProgramError, match="should have no size below 0"):
        make()
    assert np.asarray(xp.ones((0, 2))).shape == (0, 2)
