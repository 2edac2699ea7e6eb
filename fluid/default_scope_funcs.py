"""A stack of nested scopes for each thread, under the names of Fluid 1.6.

`fluid.scope_guard` selects the scope of programs; these scopes only hold variables.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from .errors import ExecutionError
from .executor.runtime.scope import Scope, ScopeVariable
from .not_here import names_here

__all__ = ["enter_local_scope", "find_var", "get_cur_scope", "leave_local_scope", "scoped_function", "var"]

__dir__ = names_here(__name__)


class _Entered(threading.local):
    """The scopes that a thread has entered, the innermost last."""

    def __init__(self) -> None:
        self.scopes = [Scope()]


_entered = _Entered()


def get_cur_scope() -> Scope:
    """The innermost scope.

    >>> from fluid import default_scope_funcs as scopes
    >>> outside = scopes.get_cur_scope()
    >>> scopes.enter_local_scope()
    >>> scopes.get_cur_scope() is outside
    False
    >>> scopes.leave_local_scope()
    """
    return _entered.scopes[-1]


def enter_local_scope() -> None:
    """Enter a new scope inside the innermost one.

    >>> from fluid import default_scope_funcs as scopes
    >>> scopes.enter_local_scope()
    >>> x = scopes.var("x")
    >>> scopes.leave_local_scope()
    """
    _entered.scopes.append(get_cur_scope().new_scope())


def leave_local_scope() -> None:
    """Leave the innermost scope, which forgets its variables.

    >>> from fluid import default_scope_funcs as scopes
    >>> scopes.enter_local_scope()
    >>> x = scopes.var("x")
    >>> scopes.leave_local_scope()
    >>> scopes.find_var("x") is None
    True
    """
    if len(_entered.scopes) == 1:
        raise ExecutionError("leave_local_scope: there is no local scope to leave; enter_local_scope() comes first")
    _entered.scopes.pop()
    get_cur_scope().drop_kids()


def var(name: str) -> ScopeVariable:
    """The variable of this name in the innermost scope, created if missing.

    >>> from fluid import default_scope_funcs as scopes
    >>> scopes.scoped_function(lambda: scopes.var("x").set_int(3))
    """
    return get_cur_scope().var(name)


def find_var(name: str) -> ScopeVariable | None:
    """The variable of this name in the innermost scope or one around it, or None.

    >>> from fluid import default_scope_funcs as scopes
    >>> scopes.find_var("nobody's") is None
    True
    """
    return get_cur_scope().find_var(name)


def scoped_function(func: Callable[[], Any]) -> None:
    """Call `func`, a function without arguments, in a local scope of its own.

    >>> from fluid import default_scope_funcs as scopes
    >>> scopes.scoped_function(lambda: scopes.var("x").set_int(3))
    >>> scopes.find_var("x") is None
    True
    """
    enter_local_scope()
    try:
        func()
    finally:
        leave_local_scope()
