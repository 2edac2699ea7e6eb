"""Ops on SelectedRows: tensors that store only some of their rows, such as the gradient of an embedding with ``is_sparse``.

The other rows are zeros. A row that is stored several times counts as the sum.
"""

from __future__ import annotations

from dataclasses import replace

from ..errors import InferenceError
from ..opdef.registry import NOT_DIFFERENTIABLE, define
from ..values.spec import Spec
from ..values.types import VarType
from .shapes import may_equal


def _sparse(X: Spec) -> Spec:
    return replace(X, type=VarType.SELECTED_ROWS)


@define("merge_selected_rows(X) -> Out", infer=_sparse, grad=NOT_DIFFERENTIABLE)
def merge_selected_rows() -> None:
    """X with each row stored at most once, in order."""


def _rows(X: Spec) -> Spec:
    return Spec((-1, *X.shape[1:]), X.dtype)


@define("get_tensor_from_selected_rows(X) -> Out", infer=_rows, grad=NOT_DIFFERENTIABLE)
def get_tensor_from_selected_rows() -> None:
    """The stored rows of X, as a tensor."""


def _rows_like(X: Spec, Like: Spec) -> Spec:
    if not may_equal(X.shape, Like.shape):
        raise InferenceError(f"select_rows_like: X {X} and Like {Like} should have one shape")
    return _sparse(X)


@define("select_rows_like(X, Like) -> Out", infer=_rows_like, grad=NOT_DIFFERENTIABLE)
def select_rows_like() -> None:
    """The rows of the tensor X that the SelectedRows Like stores, each once, in order; only used by older programs."""
