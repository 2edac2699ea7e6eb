"""Items of nested lists, tuples and dicts: variables, or values of any kind. Items of dicts come in the order of the keys."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from ..errors import FluidTypeError
from ..ir.program import Variable


def items_of(value: Any) -> list[Any]:
    """The items of nested lists, tuples and dicts."""
    if isinstance(value, Mapping):
        return [item for key in sorted(value) for item in items_of(value[key])]
    if isinstance(value, (list, tuple)):
        return [item for part in value for item in items_of(part)]
    return [value]


def replaced(value: Any, replacement: Callable[[Any], Any]) -> Any:
    """The same nesting with `replacement(item)` in place of each item; a dict becomes a plain one, or an OrderedDict again."""
    if isinstance(value, Mapping):
        entries = {key: replaced(value[key], replacement) for key in sorted(value)}
        in_order = ((key, entries[key]) for key in value)
        return OrderedDict(in_order) if isinstance(value, OrderedDict) else dict(in_order)
    if isinstance(value, (list, tuple)):
        parts = [replaced(part, replacement) for part in value]
        return type(value)(*parts) if hasattr(value, "_fields") else type(value)(parts)
    return replacement(value)


def flatten(value: Any, where: str) -> list[Variable]:
    """The variables in nested lists, tuples and dicts; None stands for no variable."""
    items = [item for item in items_of(value) if item is not None]
    for item in items:
        if not isinstance(item, Variable):
            kind = type(item).__name__
            raise FluidTypeError(f"{where} should be Variables, in lists, tuples or dicts or alone, but holds a {kind}")
    return items


def structure(value: Any) -> Any:
    """The nesting of a value, for comparisons and messages."""
    if isinstance(value, Mapping):
        return {key: structure(value[key]) for key in sorted(value)}
    if isinstance(value, (list, tuple)):
        return [structure(item) for item in value]
    return None if value is None else "Variable"


def rebuild(like: Any, items: Iterator[Any]) -> Any:
    """Nest the items in the same way as `like`; each None there stays."""
    return replaced(like, lambda item: None if item is None else next(items))
