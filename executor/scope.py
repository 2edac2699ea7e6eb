"""Scopes: the values that outlive a run, by name."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator, Sequence
from typing import Any

from fluid.values.lod_tensor import LoDTensor

__all__ = ["LoDTensor", "Scope", "ScopeVariable", "global_scope", "scope_guard"]


class ScopeVariable:
    """A name in a scope: a tensor, or another value that a program keeps there."""

    __slots__ = ("name", "tensor", "value")

    def __init__(self, name: str, owner: Scope) -> None:
        self.name = name
        self.tensor = LoDTensor(owner=owner)
        self.value: Any = None

    def get_tensor(self) -> LoDTensor:
        return self.tensor


class Scope:
    """Variables by name; names not found here are looked for in the parent scope.

    `runs` counts the runs of programs in this scope: together with the program's seed it decides what random ops draw.
    Who holds `lock` runs a program in this scope; others wait.
    """

    __slots__ = ("__weakref__", "_generation", "_kids", "_parent", "_variables", "lock", "runs")

    def __init__(self, parent: Scope | None = None) -> None:
        self._parent = parent
        self._variables: dict[str, ScopeVariable] = {}
        self._kids: list[Scope] = []
        self._generation = 0
        self.runs = 0
        self.lock = threading.RLock()

    @property
    def generation(self) -> int:
        """Changes whenever a tensor of this scope, or of one around it, is given another array."""
        return self._generation + (self._parent.generation if self._parent is not None else 0)

    def tensor_changed(self) -> None:
        self._generation += 1

    def var(self, name: str) -> ScopeVariable:
        """The variable of this name in this very scope, made if need be."""
        found = self._variables.get(name)
        if found is None:
            found = self._variables[name] = ScopeVariable(name, self)
            self.tensor_changed()
        return found

    def find_var(self, name: str) -> ScopeVariable | None:
        """The variable of this name here or in a scope around, or None."""
        scope: Scope | None = self
        while scope is not None:
            found = scope._variables.get(name)
            if found is not None:
                return found
            scope = scope._parent
        return None

    def array(self, name: str) -> Any:
        """The array of a variable's tensor, or None where there is none."""
        found = self.find_var(name)
        return found.tensor.array if found is not None else None

    def put(self, name: str, array: Any) -> None:
        """Give a variable's tensor an array, where the variable is, or in this scope."""
        (self.find_var(name) or self.var(name)).tensor.array = array

    def erase(self, names: Sequence[str]) -> None:
        for name in names:
            self._variables.pop(name, None)
        self.tensor_changed()

    def new_scope(self) -> Scope:
        """A scope inside this one."""
        kid = Scope(self)
        self._kids.append(kid)
        return kid

    def drop_kids(self) -> None:
        self._kids.clear()

    def local_var_names(self) -> list[str]:
        return list(self._variables)


_global = Scope()


class _Current(threading.local):
    """All threads share the global scope until one of them guards itself another."""

    def __init__(self) -> None:
        self.scope = _global


_current = _Current()


def global_scope() -> Scope:
    """The scope that programs run in when none is given."""
    return _current.scope


@contextlib.contextmanager
def scope_guard(scope: Scope) -> Iterator[None]:
    """Inside the ``with``, programs of this thread run in `scope`."""
    old, _current.scope = _current.scope, scope
    try:
        yield
    finally:
        _current.scope = old
