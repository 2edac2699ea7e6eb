"""Generated names, numbered by key as Fluid numbers them: ``fc_0``, ``fc_1``, ``fc_0.tmp_0``."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .framework import Program

__all__ = ["UniqueNameGenerator", "generate", "guard", "switch", "unused_in"]


class UniqueNameGenerator:
    """Numbers names by key, from zero."""

    __slots__ = ("_next", "_prefix")

    def __init__(self, prefix: str = "") -> None:
        self._next: dict[str, int] = {}
        self._prefix = prefix

    def __call__(self, key: str) -> str:
        number = self._next.get(key, 0)
        self._next[key] = number + 1
        return f"{self._prefix}{key}_{number}"


class _UnusedNames(UniqueNameGenerator):
    """Passes over names that are taken, and over those of layers whose variables are there."""

    __slots__ = ("_taken",)

    def __init__(self, taken: Iterable[str]) -> None:
        super().__init__()
        self._taken = {part for name in taken for part in (name, name.split(".")[0])}

    def __call__(self, key: str) -> str:
        while (name := super().__call__(key)) in self._taken:
            pass
        return name


def unused_in(program: Program) -> UniqueNameGenerator:
    """Names that a program, such as one from a file, does not have yet: ``with unique_name.guard(unused_in(program))``."""
    return _UnusedNames(var.name for var in program.list_vars())


_shared = UniqueNameGenerator()


class _Current(threading.local):
    """All threads share one generator until one of them switches to its own."""

    def __init__(self) -> None:
        self.generator = _shared


_current = _Current()


def generate(key: str) -> str:
    """The next name for `key`."""
    return _current.generator(key)


def switch(new_generator: UniqueNameGenerator | None = None) -> UniqueNameGenerator:
    """Use `new_generator`, or a fresh one, from now on; returns the one used until now."""
    old = _current.generator
    _current.generator = new_generator if new_generator is not None else UniqueNameGenerator()
    return old


@contextlib.contextmanager
def guard(new_generator: UniqueNameGenerator | str | None = None) -> Iterator[None]:
    """Number names from zero inside the ``with``; a string becomes a prefix of every name."""
    if isinstance(new_generator, str):
        new_generator = UniqueNameGenerator(new_generator)
    old = switch(new_generator)
    try:
        yield
    finally:
        switch(old)
