"""Scopes inside one another, of which each thread has its own, under the names of Fluid 1.6.

`fluid.scope_guard` says in which scope programs run; these scopes only hold variables.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from .errors import ExecutionError
from .executor.scope import Scope, ScopeVariable

__all__ = ["enter_local_scope", "find_var", "get_cur_scope", "leave_local_scope", "scoped_function", "var"]


class _Entered(threading.local):
    """The scopes that a thread has entered, the innermost last."""

    def __init__(self) -> None:
        self.scopes = [Scope()]


_entered = _Entered()


def get_cur_scope() -> Scope:
    """The innermost scope."""
    return _entered.scopes[-1]


def enter_local_scope() -> None:
    """Enter a new scope inside the innermost one."""
    _entered.scopes.append(get_cur_scope().new_scope())


def leave_local_scope() -> None:
    """Leave the innermost scope, which forgets its variables."""
    if len(_entered.scopes) == 1:
        raise ExecutionError("leave_local_scope: there is no local scope to leave; enter_local_scope() comes first")
    _entered.scopes.pop()
    get_cur_scope().drop_kids()


def var(name: str) -> ScopeVariable:
    """The variable of this name in the innermost scope, created if missing."""
    return get_cur_scope().var(name)


def find_var(name: str) -> ScopeVariable | None:
    """The variable of this name in the innermost scope or one around it, or None."""
    return get_cur_scope().find_var(name)


def scoped_function(func: Callable[[], Any]) -> None:
    """Call a function in a local scope of its own."""
    enter_local_scope()
    try:
        func()
    finally:
        leave_local_scope()
