"""The state of a compiled library in a scope, and a scope in a state, so that training continues on either side."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from math import prod
from typing import Any

import numpy as np

from ..errors import FormatError, ProgramError
from ..executor import Scope, global_scope
from ..formats.writing import write_file
from ..ir.checked import checked


@checked
def load_compiled_state(
    state: str | os.PathLike[str] | bytes, description: str | os.PathLike[str], *, scope: Scope | None = None
) -> dict[str, Any]:
    """Put the state of a compiled library into a scope.

    Args:
        state: the bytes of the state, or the file that holds them.
        description: the JSON file of the library.
        scope: gets the variables; the current scope by default.

    The number of runs, which decides the masks of dropout, goes into the scope, too.

    Returns:
        The arrays by name. `fluid.io.save_arrays` writes them in other formats.

    Raises:
        FormatError: the state has another size, or the description is not one.

    >>> x = fluid.data("x", [2, 4])
    >>> loss = layers.mean(layers.fc(x, 3))
    >>> _ = fluid.optimizer.SGD(0.1).minimize(loss)
    >>> exe = fluid.Executor()
    >>> _ = exe.run(fluid.default_startup_program())
    >>> _ = fluid.compile_program(fluid.default_main_program(), fetches=[loss])
    >>> fluid.save_compiled_state("before.state", "net.json")
    >>> list(fluid.load_compiled_state("before.state", "net.json"))
    ['fc_0.w_0', 'fc_0.b_0', 'learning_rate_0']
    """
    data = state if isinstance(state, bytes) else _read(os.fspath(state))
    described = _described(os.fspath(description))
    where = "the state" if isinstance(state, bytes) else os.fspath(state)
    size = described["state_bytes"]
    if len(data) != size:
        raise FormatError(f"{where} has {len(data)} bytes; the state of {described['name']} has {size}")
    arrays = {
        name: np.frombuffer(data, part["dtype"], part["bytes"] // np.dtype(part["dtype"]).itemsize, part["offset"])
        .reshape(part["shape"])
        .copy()
        for name, part in described["state"].items()
    }
    target = scope if scope is not None else global_scope()
    for name, array in arrays.items():
        target.put(name, array)
    offset = described["runs_offset"]
    if offset is not None:
        target.runs = int.from_bytes(data[offset : offset + 8], "little")
    return arrays


@checked
def save_compiled_state(
    state: str | os.PathLike[str], description: str | os.PathLike[str], *, scope: Scope | None = None
) -> None:
    """Write the variables of a scope as the state of a compiled library.

    Args:
        state: the file to write; a program reads its bytes into the memory of the state.
        description: the JSON file of the library.
        scope: holds the variables; the current scope by default.

    Raises:
        ProgramError: the scope lacks a variable, or it has another shape or element type.
        FormatError: the description is not one.

    >>> loss = layers.mean(layers.fc(fluid.data("x", [2, 4]), 3))
    >>> _ = fluid.optimizer.SGD(0.1).minimize(loss)
    >>> _ = fluid.Executor().run(fluid.default_startup_program())
    >>> _ = fluid.compile_program(fluid.default_main_program(), fetches=[loss])
    >>> fluid.save_compiled_state("before.state", "net.json")
    """
    described = _described(os.fspath(description))
    source = scope if scope is not None else global_scope()
    data = bytearray(described["state_bytes"])
    for name, part in described["state"].items():
        array = source.array(name)
        if array is None:
            raise ProgramError(f"{name} is part of the state of {described['name']}, but the scope does not hold it")
        array = np.ascontiguousarray(array)
        if list(array.shape) != part["shape"] or array.dtype.name != part["dtype"]:
            held, expected = f"{array.dtype.name}{list(array.shape)}", f"{part['dtype']}{part['shape']}"
            raise ProgramError(f"{name} is {held} in the scope, and {expected} in the state of {described['name']}")
        data[part["offset"] : part["offset"] + part["bytes"]] = array.tobytes()
    offset = described["runs_offset"]
    if offset is not None:
        data[offset : offset + 8] = source.runs.to_bytes(8, "little")
    write_file(os.fspath(state), [bytes(data)])


def _read(path: str) -> bytes:
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError as error:
        raise FormatError(f"{path}: the file cannot be read: {error.strerror}") from None


def _described(path: str) -> dict[str, Any]:
    """The contents of a library's JSON file, checked."""
    try:
        described = json.loads(_read(path))
        runs = {"offset": described["runs_offset"], "dtype": "int64", "shape": [], "bytes": 8}
        parts = [*described["state"].values(), *([] if described["runs_offset"] is None else [runs])]
        fits = isinstance(described["name"], str) and all(_fits(part, described["state_bytes"]) for part in parts)
    except (ValueError, KeyError, TypeError, AttributeError):
        fits = False
    if not fits:
        raise FormatError(f"{path} does not describe the state of a compiled library")
    return described  # type: ignore[no-any-return]


def _fits(part: Mapping[str, Any], state_bytes: int) -> bool:
    """Whether a variable is a plain array within the state."""
    dtype, sizes = np.dtype(part["dtype"]), part["shape"]
    size = prod(sizes) * dtype.itemsize
    numbers = [*sizes, part["offset"], state_bytes]
    is_plain = all(type(number) is int and number >= 0 for number in numbers) and dtype.kind in "fiub"
    return is_plain and part["bytes"] == size and part["offset"] + size <= state_bytes
