"""Generated names, numbered by key as Fluid numbers them: ``fc_0``, ``fc_1``, ``fc_0.tmp_0``.

Inside ``program_guard`` of a program that was read from a file, names that the program already has are skipped.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Container, Iterator
from typing import TYPE_CHECKING

from .not_here import names_here

if TYPE_CHECKING:
    from .ir.program import Program

__all__ = ["TakenNames", "UniqueNameGenerator", "UnusedNames", "avoid", "generate", "guard", "kinds", "switch", "unused_in"]

__dir__ = names_here(__name__)


class UniqueNameGenerator:
    """Numbers names by key, from zero.

    Args:
        prefix: the start of all names.

    >>> name = fluid.unique_name.UniqueNameGenerator("my_")
    >>> name("fc"), name("fc")
    ('my_fc_0', 'my_fc_1')
    """

    __slots__ = ("_next", "_prefix")

    def __init__(self, prefix: str = "") -> None:
        self._next: dict[str, int] = {}
        self._prefix = prefix

    def __call__(self, key: str) -> str:
        number = self._next.get(key, 0)
        self._next[key] = number + 1
        return f"{self._prefix}{key}_{number}"


class TakenNames:
    """The names of a program's variables and of their layers, collected at the first look-up.

    Args:
        program: the program.

    >>> x = fluid.data("x", [None, 2])
    >>> "x" in fluid.unique_name.TakenNames(fluid.default_main_program())
    True
    """

    __slots__ = ("_names", "_program")

    def __init__(self, program: Program) -> None:
        self._program = program
        self._names: set[str] | None = None

    def __contains__(self, name: object) -> bool:
        if self._names is None:
            self._names = {part for var in self._program.list_vars() for part in (var.name, var.name.split(".")[0])}
        return name in self._names


class UnusedNames(UniqueNameGenerator):
    """A generator that skips used names.

    Args:
        used_names: these names.
        prefix: the start of all names.

    >>> name = fluid.unique_name.UnusedNames({"my_fc_0"}, "my_")
    >>> name("fc")
    'my_fc_1'
    """

    __slots__ = ("_used_names",)

    def __init__(self, used_names: Container[str], prefix: str = "") -> None:
        super().__init__(prefix)
        self._used_names = used_names

    def __call__(self, key: str) -> str:
        while (name := super().__call__(key)) in self._used_names:
            pass
        return name


def unused_in(program: Program) -> UniqueNameGenerator:
    """A generator of names that a program does not have yet: ``with unique_name.guard(unused_in(program))``.

    ``program_guard`` does this by itself for programs from files.

    >>> x = fluid.data("fc_0", [None, 2])
    >>> with fluid.unique_name.guard(fluid.unique_name.unused_in(fluid.default_main_program())):
    ...     fluid.unique_name.generate("fc")
    'fc_1'
    """
    return UnusedNames(TakenNames(program))


_shared = UniqueNameGenerator()


class _CurrentGenerator(threading.local):
    """All threads share one generator until one of them switches to its own."""

    def __init__(self) -> None:
        self.generator = _shared
        self.avoided: TakenNames | None = None


_current = _CurrentGenerator()


def generate(key: str) -> str:
    """The next name for `key`.

    >>> with fluid.unique_name.guard():
    ...     fluid.unique_name.generate("fc"), fluid.unique_name.generate("fc")
    ('fc_0', 'fc_1')
    """
    name, avoided = _current.generator(key), _current.avoided
    if avoided is not None:
        while name in avoided:
            name = _current.generator(key)
    return name


def kinds() -> int:
    """The number of keys with a name.

    >>> with fluid.unique_name.guard():
    ...     names = fluid.unique_name.generate("fc"), fluid.unique_name.generate("fc"), fluid.unique_name.generate("relu")
    ...     fluid.unique_name.kinds()
    2
    """
    return len(_current.generator._next)


def avoid(names: TakenNames | None) -> TakenNames | None:
    """From now on also skip these names (None: no names); returns the names skipped until now.

    >>> x = fluid.data("fc_0", [None, 2])
    >>> with fluid.unique_name.guard():
    ...     former = fluid.unique_name.avoid(fluid.unique_name.TakenNames(fluid.default_main_program()))
    ...     name = fluid.unique_name.generate("fc")
    ...     _ = fluid.unique_name.avoid(former)
    >>> name
    'fc_1'
    """
    old, _current.avoided = _current.avoided, names
    return old


def switch(new_generator: UniqueNameGenerator | None = None) -> UniqueNameGenerator:
    """Use `new_generator`, or a new one if None, from now on; returns the one used until now.

    >>> former = fluid.unique_name.switch()
    >>> fluid.unique_name.generate("fc")
    'fc_0'
    >>> _ = fluid.unique_name.switch(former)
    """
    old = _current.generator
    _current.generator = new_generator if new_generator is not None else UniqueNameGenerator()
    return old


@contextlib.contextmanager
def guard(new_generator: UniqueNameGenerator | str | None = None) -> Iterator[None]:
    """Inside the ``with``, names are counted anew.

    Args:
        new_generator: a generator of names; None for one that counts from zero, and a string for one whose names begin with it.

    >>> with fluid.unique_name.guard("left_"):
    ...     fluid.unique_name.generate("fc")
    'left_fc_0'
    """
    if isinstance(new_generator, str):
        new_generator = UniqueNameGenerator(new_generator)
    old = switch(new_generator)
    try:
        yield
    finally:
        switch(old)
