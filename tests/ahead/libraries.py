"""Compiled libraries, called from Python by ctypes: memory between guard bytes, each call's result beside the executor's."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from networks import Network

import fluid

__all__ = ["Library", "Memory", "assert_equal_states", "assert_equal_steps", "compiler_of_c", "made"]

_GUARD = 256


def compiler_of_c() -> str:
    """The compiler of C; skips the test where there is none."""
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        pytest.skip("there is no compiler of C here to link with")
    return compiler


def made(network: Network, folder: Path, scope: fluid.Scope, **options: Any) -> Any:
    """Compile a network as the library ``net``."""
    given = {"batch": 6, "target": "host", "predict": {"prediction": network.prediction}} | options
    return fluid.compile_program(network.main, network.feeds, {"loss": network.loss}, scope=scope, output=folder / "net", **given)


class Memory:
    """Bytes of garbage between guard bytes; they begin at an odd multiple of an alignment."""

    def __init__(self, size: int, alignment: int) -> None:
        self._all = np.full(size + 2 * _GUARD + 2 * alignment, 0xA5, np.uint8)
        address = self._all.ctypes.data + _GUARD
        self._start = _GUARD + (alignment - address) % (2 * alignment)
        self.size = size

    @property
    def bytes(self) -> Any:
        return self._all[self._start : self._start + self.size]

    @property
    def address(self) -> ctypes.c_void_p:
        return ctypes.c_void_p(self._all.ctypes.data + self._start)

    def assert_guards(self) -> None:
        """Nothing was written beside the memory."""
        assert (self._all[: self._start] == 0xA5).all() and (self._all[self._start + self.size :] == 0xA5).all()


class Library:
    """A library for this processor, linked and loaded, with a state and an arena."""

    def __init__(self, library: Any) -> None:
        path = library.paths[0]
        shared = str(Path(path).with_suffix(".so"))
        subprocess.run([compiler_of_c(), "-shared", path, "-o", shared], check=True)
        self.description = library.description
        self.json = library.paths[2]
        self._functions = ctypes.CDLL(shared)
        self._name = library.description["name"]
        self.function("error").restype = ctypes.c_char_p
        self.state, self.arena = self.new_state(), self.new_arena()

    def function(self, name: str) -> Any:
        return getattr(self._functions, f"{self._name}_{name}")

    def new_state(self) -> Memory:
        state = Memory(self.description["state_bytes"], 8)
        self.function("init")(state.address)
        return state

    def new_arena(self) -> Memory:
        return Memory(self.description["arena_bytes"], 8)

    def call(
        self, name: str, feed: Mapping[str, Any], state: Memory | None = None, arena: Memory | None = None
    ) -> tuple[int, Any]:
        """Call a function; returns its code and its fetches. Feeds are aligned to their elements, and to no more."""
        state, arena = state or self.state, arena or self.arena
        described = self.description["functions"][name]
        arrays = [_barely_aligned(feed[key], part) for key, part in described["feeds"].items()]
        before = [array.tobytes() for array in arrays]
        results = {key: np.full(part["shape"], 7, part["dtype"]) for key, part in described["fetches"].items()}
        feeds = (ctypes.c_void_p * max(len(arrays), 1))(*[array.ctypes.data for array in arrays])
        fetches = (ctypes.c_void_p * max(len(results), 1))(*[array.ctypes.data for array in results.values()])
        code = self.function(name)(state.address, arena.address, feeds, fetches)
        assert [array.tobytes() for array in arrays] == before, "feeds are only read"
        for memory in (state, arena):
            memory.assert_guards()
        return code, results

    def step(self, feed: Mapping[str, Any], **memory: Any) -> Any:
        """A step that succeeds; returns the loss."""
        code, results = self.call("step", feed, **memory)
        assert code == 0, self.error(code)
        return results["loss"]

    def error(self, code: int) -> str:
        return self.function("error")(code).decode()  # type: ignore[no-any-return]

    def variables(self) -> dict[str, Any]:
        """The variables of the state."""
        return fluid.load_compiled_state(self.state.bytes.tobytes(), self.json, scope=fluid.Scope())


def _barely_aligned(array: Any, part: Mapping[str, Any]) -> Any:
    """A copy that begins at an odd multiple of the size of an element."""
    array = np.ascontiguousarray(array, part["dtype"])
    assert list(array.shape) == part["shape"]
    memory = np.zeros(array.nbytes + 128, np.uint8)
    start = (array.itemsize - memory.ctypes.data) % 64
    copy = memory[start : start + array.nbytes].view(array.dtype).reshape(array.shape)
    copy[...] = array
    return copy


def assert_equal_states(library: Library, scope: fluid.Scope) -> None:
    """Every variable of the state has the bits that it has in the scope."""
    variables = library.variables()
    different = [name for name, array in variables.items() if array.tobytes() != np.array(scope.array(name)).tobytes()]
    assert not different and variables


def assert_equal_steps(
    build: Callable[[], dict[str, Any]], values: Callable[[int, tuple[int, ...]], dict[str, Any]], count: int, folder: Path
) -> None:
    """Some steps of a program have the same results and state, bit by bit, in a library and in the executor.

    Args:
        build: builds the program, with an input x; returns its results by name.
        values: returns the inputs of a step, by its number and the shape of x; there may be some that are not fed.
    """
    main, startup = fluid.Program(), fluid.Program()
    main.random_seed = startup.random_seed = 7
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        results = build()
    executor, scope = fluid.Executor(), fluid.Scope()
    executor.run(startup, scope=scope)
    library = Library(fluid.compile_program(main, fetches=results, scope=scope, output=folder / "net"))
    shape = main.global_block().var("x").shape
    for number in range(count):
        inputs = values(number, shape)
        feed = {name: inputs[name] for name in library.description["functions"]["step"]["feeds"]}
        expected = executor.run(main, feed, list(results.values()), scope=scope)
        code, computed = library.call("step", feed)
        assert code == 0
        different = [name for name, array in zip(results, expected, strict=True) if computed[name].tobytes() != array.tobytes()]
        assert not different
    assert_equal_states(library, scope)
