"""Largest elements and accuracy."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..errors import InferenceError
from ..types import VarType
from ..values import Spec
from .registry import NOT_DIFFERENTIABLE, Like, define
from .shapes import normalize_axis


def _top(X: Spec, K: Spec | None, k: int, axis: int) -> tuple[Spec, Spec]:
    axis = normalize_axis(axis, X.ndim)
    if K is None and not (k >= 1 and (X.shape[axis] == -1 or k <= X.shape[axis])):
        raise InferenceError(f"top_k: k {k} should be in [1, {X.shape[axis]}], the extent of axis {axis} of X {X}")
    found = X.with_shape((*X.shape[:axis], k if K is None else -1, *X.shape[axis + 1 :]))
    return found, found.with_dtype(VarType.INT64)


def _top_k(X: Spec, K: Spec | None, k: int) -> tuple[Spec, Spec]:
    return _top(X, K, k, -1)


@define("top_k(X, K?) -> Out, Indices", infer=_top_k, wrt=("X",), k=1)
def top_k(f: Any, X: Like, Indices: Any, dOut: Any) -> Any:
    """The k (or the number in K) largest elements of each row, from the largest on, and where in the row they are."""
    return {"X": f.place(dOut, Indices, X)}


@define("top_k_v2(X, K?) -> Out, Indices", infer=_top, wrt=("X",), k=1, axis=-1, largest=True, sorted=True)
def top_k_v2(f: Any, X: Like, K: Like, Indices: Any, dOut: Any, axis: Any) -> Any:
    """The k largest (or smallest) elements along `axis`, in order, and where they are."""
    return {"X": f.place(dOut, Indices, X, axis=axis)}


def _accuracy(Out: Spec, Indices: Spec, Label: Spec, declared: Mapping[str, Any]) -> tuple[Spec, Spec, Spec]:
    if Indices.ndim != 2 or Label.ndim not in (1, 2):
        raise InferenceError(f"accuracy: Indices {Indices} should have shape [N, k], and Label {Label} [N, 1]")
    kinds = (VarType.FP32, VarType.INT32, VarType.INT32)
    specs = [declared.get(slot) for slot in ("Accuracy", "Correct", "Total")]
    shapes = [() if spec is not None and spec.shape == () else (1,) for spec in specs]
    accuracy, correct, total = (Spec(shape, kind) for shape, kind in zip(shapes, kinds, strict=True))
    return accuracy, correct, total


@define("accuracy(Out, Indices, Label) -> Accuracy, Correct, Total", infer=_accuracy, grad=NOT_DIFFERENTIABLE, likes=("Out",))
def accuracy() -> None:
    """The share of rows whose Label [N, 1] is among Indices [N, k], as float32; the number of them, and of all rows."""
