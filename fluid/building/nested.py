"""Variables in nested lists, tuples and dicts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from ..errors import FluidTypeError
from ..ir.program import Variable

__all__ = ["flatten", "rebuild", "structure"]


def flatten(value: Any, where: str) -> list[Variable]:
    """The variables in nested lists, tuples and dicts."""
    if value is None:
        return []
    if isinstance(value, Variable):
        return [value]
    if isinstance(value, Mapping):
        return [item for key in sorted(value) for item in flatten(value[key], where)]
    if isinstance(value, (list, tuple)):
        return [item for part in value for item in flatten(part, where)]
    raise FluidTypeError(f"{where} should be Variables, in lists, tuples or dicts or alone, but holds a {type(value).__name__}")


def structure(value: Any) -> Any:
    """The nesting of a value, for comparisons and messages."""
    if isinstance(value, Mapping):
        return {key: structure(value[key]) for key in sorted(value)}
    if isinstance(value, (list, tuple)):
        return [structure(item) for item in value]
    return None if value is None else "Variable"


def rebuild(like: Any, items: Iterator[Any]) -> Any:
    """The items, nested as `like` is."""
    if isinstance(like, Mapping):
        entries = {key: rebuild(like[key], items) for key in sorted(like)}
        return {key: entries[key] for key in like}
    if isinstance(like, (list, tuple)):
        parts = [rebuild(item, items) for item in like]
        return type(like)(*parts) if hasattr(like, "_fields") else type(like)(parts)
    return None if like is None else next(items)
