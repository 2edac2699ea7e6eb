"""The ops of `DynamicRNN` and `IfElse`: sequences as arrays of time steps, and batches split in two.

A rank table orders sequences from the longest to the shortest, so that the sequences that reach a step come first.
"""

from __future__ import annotations

from typing import Any

from ..errors import InferenceError
from ..opdef.composition import composed
from ..opdef.registry import NOT_DIFFERENTIABLE, ZERO_GRADIENT, ShapeOnly, define
from ..values.lod_array import capacity_of
from ..values.spec import Spec, may_equal
from ..values.types import VarType, is_floating

_TABLE = Spec((), VarType.FP32, VarType.LOD_RANK_TABLE)


@define("lod_rank_table(X) -> Out", infer=lambda X: _TABLE, grad=ZERO_GRADIENT, lod_aware=True, level=0)
def lod_rank_table() -> None:
    """The sequences of level `level` of X, from the longest to the shortest; the sort is stable."""


@define("max_sequence_len(RankTable) -> Out", infer=lambda: Spec((1,), VarType.INT64), grad=ZERO_GRADIENT)
def max_sequence_len() -> None:
    """The length of the longest sequence of the table, as int64 of one element."""


def _steps(X: Spec) -> Spec:
    return Spec((-1, *X.shape[1:]), X.dtype, VarType.LOD_TENSOR_ARRAY, X.lod[1:])


@define("lod_tensor_to_array(X, RankTable) -> Out", infer=_steps, wrt=["X"], inline_grad=True, lod_aware=True)
def lod_tensor_to_array(f, RankTable, dOut):  # type: ignore[no-untyped-def]
    """An entry for each step: the row (for nested sequences, rows) of each sequence that reaches the step, in rank order."""
    return {"X": f.array_to_lod_tensor(dOut, RankTable)}


def _sequences(X: Spec) -> Spec:
    return Spec((-1, *X.shape[1:]), X.dtype, lod=(None, *X.lod))


@define("array_to_lod_tensor(X, RankTable) -> Out", infer=_sequences, wrt=["X"], inline_grad=True, lod_aware=True)
def array_to_lod_tensor(f, RankTable, dOut):  # type: ignore[no-untyped-def]
    """The sequences whose steps the array holds, in the original order: the inverse of `lod_tensor_to_array`."""
    return {"X": f.lod_tensor_to_array(dOut, RankTable)}


def _fewer(X: Spec) -> Spec:
    return X.with_shape((-1, *X.shape[1:])).with_lod((None,) * len(X.lod))


@define("shrink_rnn_memory(X, RankTable, I) -> Out", infer=_fewer, wrt=["X"], lod_aware=True)
def shrink_rnn_memory(f: Any, X: ShapeOnly, dOut: Any) -> Any:
    """The rows (or sequences) of X, in rank order, of the sequences that have a step number `I`."""
    return {"X": f.resize_rows(dOut, X)}


def _resized(X: Spec, Like: Spec) -> Spec:
    if not X.ndim or not may_equal(X.shape[1:], Like.shape[1:]):
        raise InferenceError(f"X {X} and Like {Like} should differ in their first dimension alone")
    return Spec(Like.shape, X.dtype, lod=Like.lod)


@define(
    "resize_rows(X, Like) -> Out",
    infer=_resized,
    wrt=["X"],
    shape_only=["Like"],
    lod_aware=True,
)
def resize_rows(f: Any, X: ShapeOnly, dOut: Any) -> Any:
    """The first rows of X, one for each row of Like, and zeros after X's last row."""
    return {"X": f.resize_rows(dOut, X)}


@composed("repeat_first_row(X: [N, ...], Mask: bool[N]) -> Out")
def repeat_first_row(f: Any, X: Any, Mask: Any) -> Any:
    """The rows of X where `Mask` is true, and its first row elsewhere."""
    return f.where(f.expand_to(Mask, X, axis=0), X, f.expand_to(f.slice(X, axes=[0], starts=[0], ends=[1]), X))


def _padded(X: list[Spec]) -> tuple[list[Spec], list[Spec], list[Spec], Spec]:
    for number, spec in enumerate(X):
        if len(spec.lod) != 1:
            raise InferenceError(f"pad_sequences: X[{number}] {spec} should have one level of sequences")
        if not may_equal(spec.shape[:1], X[0].shape[:1]):
            raise InferenceError(f"pad_sequences: X[{number}] {spec} should have as many rows as X[0] {X[0]}")
    rows, counts = X[0].shape[0], [-1 if spec.lod[0] is None else len(spec.lod[0]) - 1 for spec in X]
    capacity = -1 if rows == -1 else capacity_of(rows)
    padded = [Spec((capacity, *spec.shape[1:]), spec.dtype) for spec in X]
    ids = [Spec((capacity,), VarType.INT64)] * len(X)
    dtypes = [spec.dtype if is_floating(spec.dtype) else VarType.FP32 for spec in X]
    divisors = [Spec((count, 1), dtype) for count, dtype in zip(counts, dtypes, strict=True)]
    return padded, ids, divisors, Spec((counts[0], 1), VarType.INT64)


@define("pad_sequences(X*) -> Out*, Ids*, Divisors*, Numbers", infer=_padded, grad=NOT_DIFFERENTIABLE, lod_aware=True)
def pad_sequences() -> None:
    """The rows of sequences as plain tensors of a rounded number of rows, for each X. Padding rows are copies of the first row.

    Ids holds the number of each row's sequence, -1 in padding rows. Divisors ``[N, 1]`` holds the length of each sequence, 1 for
    an empty one, and Numbers ``[N, 1]`` the numbers of the sequences of the first X.
    """


@define("active_ids(Ids: int, Numbers: int) -> Out", infer=lambda Ids: Ids, grad=NOT_DIFFERENTIABLE)
def active_ids() -> None:
    """The numbers in Ids, ``[R]``, that row ``Numbers[number]`` repeats, -1 in place of the others.

    Numbers ``[n, 1]`` is a shrunk column 0, 1, 2, ...: rows of sequences that are over are missing, or hold the first number.
    """


def _reordered(X: Spec) -> Spec:
    return X.with_lod((None,) * len(X.lod))


@define("reorder_lod_tensor_by_rank(X, RankTable) -> Out", infer=_reordered, wrt=["X"], inline_grad=True, lod_aware=True)
def reorder_lod_tensor_by_rank(f, RankTable, dOut):  # type: ignore[no-untyped-def]
    """The sequences (or rows, where there are none) of X in rank order."""
    return {"X": f.reorder_lod_tensor_by_rank_grad(dOut, RankTable)}


@define("reorder_lod_tensor_by_rank_grad(X, RankTable) -> Out", infer=_reordered, wrt=["X"], inline_grad=True, lod_aware=True)
def reorder_lod_tensor_by_rank_grad(f, RankTable, dOut):  # type: ignore[no-untyped-def]
    """The sequences (or rows) of X, which are in rank order, in the original order."""
    return {"X": f.reorder_lod_tensor_by_rank(dOut, RankTable)}


@define(
    "split_lod_tensor(X, Mask) -> OutTrue, OutFalse",
    infer=lambda X: (_fewer(X), _fewer(X)),
    wrt=["X"],
    inline_grad=True,
    lod_aware=True,
    level=0,
)
def split_lod_tensor(f, X: ShapeOnly, Mask, dOutTrue, dOutFalse, level):  # type: ignore[no-untyped-def]
    """The rows (or sequences) of X where Mask, bool ``[rows, 1]``, is true, and the others."""
    return {"X": f.merge_lod_tensor(X, Mask, dOutTrue, dOutFalse, level=level)}


@define(
    "merge_lod_tensor(X, Mask, InTrue, InFalse) -> Out",
    infer=lambda InTrue: _fewer(InTrue),
    wrt=["InTrue", "InFalse"],
    inline_grad=True,
    lod_aware=True,
    level=0,
)
def merge_lod_tensor(f, Mask, dOut, level):  # type: ignore[no-untyped-def]
    """The rows (or sequences) of InTrue and InFalse, in the order given by Mask: the inverse of `split_lod_tensor`."""
    true, false = f.split_lod_tensor(dOut, Mask, level=level)
    return {"InTrue": true, "InFalse": false}


@define(
    "merge_lod_tensor_infer(X, Mask, InTrue, InFalse) -> Out",
    infer=lambda InTrue: _fewer(InTrue),
    grad=NOT_DIFFERENTIABLE,
    lod_aware=True,
    level=0,
)
def merge_lod_tensor_infer() -> None:
    """`merge_lod_tensor` in programs for inference."""
