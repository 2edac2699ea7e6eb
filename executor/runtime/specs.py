"""Specs of arrays."""

from __future__ import annotations

from typing import Any

from fluid.values.lod_array import lod_of
from fluid.values.selected_rows import SelectedRows
from fluid.values.spec import Spec
from fluid.values.types import VarType, as_dtype


def spec_of(value: Any) -> Spec:
    """The spec of an array, a `LoDArray` or a `SelectedRows`."""
    if type(value) is SelectedRows:
        return Spec(value.shape, as_dtype(value.dtype), VarType.SELECTED_ROWS)
    return Spec(tuple(value.shape), as_dtype(value.dtype), lod=lod_of(value))
