"""Tensors in nested lists, tuples and dicts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from .tensor import Tensor


def tensors_in(value: Any) -> list[Any]:
    """Tensors and arrays in nested lists, tuples and dicts.

    >>> x, y = dygraph.Tensor([1.0]), dygraph.Tensor([2.0])
    >>> [tensor.item() for tensor in dygraph.jit.extract_vars([x, {"y": y}])]
    [1.0, 2.0]
    """
    if isinstance(value, (Tensor, np.ndarray)):
        return [value]
    if isinstance(value, Mapping):
        return [item for key in sorted(value, key=str) for item in tensors_in(value[key])]
    if isinstance(value, (list, tuple)):
        return [item for part in value for item in tensors_in(part)]
    return []


def refilled(value: Any, tensors: Iterator[Any]) -> Any:
    """A copy of nested lists, tuples and dicts with `tensors` in place of the tensors and arrays."""
    if isinstance(value, (Tensor, np.ndarray)):
        return next(tensors)
    if isinstance(value, Mapping):
        parts = {key: refilled(value[key], tensors) for key in sorted(value, key=str)}
        return {key: parts[key] for key in value}
    if isinstance(value, (list, tuple)):
        items = [refilled(item, tensors) for item in value]
        return type(value)(*items) if hasattr(value, "_fields") else type(value)(items)
    return value
