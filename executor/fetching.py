"""Converts fetched values for users, to numpy arrays or tensors."""

from __future__ import annotations

from typing import Any

import numpy as np

from fluid.errors import ExecutionError, FeedError, locate
from fluid.ir.program import Operator
from fluid.values.bfloat16 import computable
from fluid.values.lod_array import array_of
from fluid.values.one_element import convertible
from fluid.values.place import to_numpy
from fluid.values.selected_rows import SelectedRows
from fluid.values.types import as_dtype, is_floating

from .runtime.scope import LoDTensor, Scope, global_scope


def fetched(value: Any, return_numpy: bool) -> Any:
    if return_numpy and type(value) is np.ndarray and value.size != 1 and value.dtype.kind != "V":
        return value  # at once: small programs pay for each call
    if isinstance(value, list):
        return [None if item is None else fetched(item, return_numpy) for item in value]
    if return_numpy:
        return convertible(computable(value if type(value) is np.ndarray else to_numpy(array_of(value))))
    if isinstance(value, SelectedRows):
        return value
    return LoDTensor.of(value)


def raise_if_not_finite(op: Operator, name: str, value: Any) -> None:
    if is_floating(as_dtype(value.dtype)):
        host = computable(to_numpy(value.value if isinstance(value, SelectedRows) else array_of(value)))
        if not np.isfinite(host).all():
            kind = "NaN" if np.isnan(host).any() else "infinity"
            count = int((~np.isfinite(host)).sum())
            error = ExecutionError(f"{op.type} makes {kind} in {name} ({count} of {host.size} elements)\n{locate(op)}")
            error.located = True
            raise error


def as_numpy(tensor: Any) -> Any:
    """Convert a tensor, or a list of tensors, to numpy arrays; `ExecutionError` if the rows form sequences.

    >>> tensor = fluid.LoDTensor()
    >>> tensor.set([1.0, 2.0])
    >>> fluid.executor.as_numpy(tensor)
    array([1., 2.])
    """
    if isinstance(tensor, (list, tuple)):
        return [as_numpy(item) for item in tensor]
    if isinstance(tensor, LoDTensor) and tensor.recursive_sequence_lengths():
        raise ExecutionError(
            "as_numpy: the rows of this tensor form sequences, which an array cannot tell; use numpy.array(tensor)"
        )
    return convertible(to_numpy(tensor))


def _fetch_var(name: str, scope: Scope | None = None, return_numpy: bool = True) -> Any:
    """The value of a variable of a scope, as a numpy array or a `LoDTensor`; `FeedError` if it has none."""
    variable = (scope if scope is not None else global_scope()).find_var(name)
    if variable is None or variable.get_tensor().array is None:
        raise FeedError(f"{name} has no value in the scope; persistable variables keep theirs after a run")
    return as_numpy(variable.get_tensor()) if return_numpy else variable.get_tensor()
