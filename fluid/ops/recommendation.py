"""Ops of recommender systems: counts of how often something was shown and clicked, and instances that are chosen by tags."""

from __future__ import annotations

from typing import Any

from ..errors import InferenceError
from ..opdef.registry import NOT_DIFFERENTIABLE, ZERO_GRADIENT, ShapeOnly, define, required
from ..values.spec import Spec
from ..values.types import VarType
from .sequence import offsets_of
from .shapes import fits


# --------------------------------------------------------------------------------------------------------------- counts
def _instances(spec: Spec, name: str) -> int:
    """How many sequences there are, or rows, if they form none; -1 if it is not known yet."""
    offsets = offsets_of(spec, name) if spec.lod else range(spec.shape[0] + 1) if spec.shape[0] >= 0 else None
    return -1 if offsets is None else len(offsets) - 1


def _cvm(X: Spec, CVM: Spec, use_cvm: bool) -> Spec:
    width = X.shape[1]
    if 0 <= width < 2:
        raise InferenceError(f"X {X} should begin with two columns, of how often something was shown and clicked")
    return X.with_shape((X.shape[0], width if use_cvm or width < 0 else width - 2))


@define("cvm(X: float[N, D], CVM: float[M, 2]) -> Y", infer=_cvm, wrt=("X",), constants=("CVM",), use_cvm=True)
def cvm(f: Any, X: ShapeOnly, CVM: Any, dY: Any, use_cvm: bool) -> Any:
    """X [N, D] with logarithms of its first two columns, shown and clicked: ``log(s + 1)`` and ``log(c + 1) - log(s + 1)``.

    Without `use_cvm`, X without these columns. The gradient is that of the other columns; the two columns get CVM, the counts
    of each row (of each sequence of X, if its rows form some), which is how a table of embeddings learns them.
    """
    rest = f.slice(dY, axes=[1], starts=[2], ends=[2**31 - 1]) if use_cvm else dY
    return {"X": f.concat([f.row_of_each(CVM, X), rest], axis=1)}


def _row_of_each(X: Spec, Like: Spec) -> Spec:
    if not fits(X.shape[0], _instances(Like, "Like")):
        raise InferenceError(f"X {X} should have a row for each sequence, or row, of Like {Like}")
    return Spec((Like.shape[0], *X.shape[1:]), X.dtype, lod=Like.lod)


@define("row_of_each(X, Like) -> Out", infer=_row_of_each, grad=ZERO_GRADIENT, shape_only=("Like",), lod_aware=True)
def row_of_each() -> None:
    """For each row of Like the row of X that its sequence has; X itself if the rows of Like form no sequences.

    It stands in gradients that treat X as a constant.
    """


# ----------------------------------------------------------------------------------------------------------------- tags
def _filtered(Ins: Spec, Ins_tag: Spec, is_lod: bool) -> tuple[Spec, Spec, Spec]:
    if not fits(Ins_tag.size, Ins_tag.shape[0]):
        raise InferenceError(f"Ins_tag {Ins_tag} should have one tag in each row")
    instances = _instances(Ins, "Ins") if is_lod else Ins.shape[0]
    if not fits(instances, _instances(Ins_tag, "Ins_tag")):
        raise InferenceError(f"Ins_tag {Ins_tag} should have a sequence of tags for each of {instances} instances in Ins {Ins}")
    unknown = (None,)
    return (
        Spec((-1, *Ins.shape[1:]), Ins.dtype, lod=unknown),
        Spec((-1, 1), VarType.FP32, lod=unknown),
        Spec((-1, 3), VarType.INT64, lod=unknown),
    )


@define(
    "filter_by_instag(Ins: [N, ...], Ins_tag: int[T, ...], Filter_tag: int) -> Out, LossWeight, IndexMap",
    infer=_filtered,
    wrt=("Ins",),
    lod_aware=True,
    is_lod=required("bool"),
)
def filter_by_instag(f: Any, Ins: ShapeOnly, LossWeight: Any, IndexMap: Any, dOut: Any) -> Any:
    """The instances in Ins that have one of the tags Filter_tag: sequences of its rows, or single rows without `is_lod`.

    Ins_tag has a sequence of tags for each instance. LossWeight [.., 1] is 1 for each instance that is left, and IndexMap [.., 3]
    says where it begins in Out and in Ins, and how many rows it has. If none is left, Out is a row of zeros with LossWeight 0.
    """
    return {"Ins": f.add_rows(dOut, f.rows_of_tagged(IndexMap, LossWeight, dOut), Ins)}


def _rows_of_tagged(Like: Spec) -> Spec:
    return Spec((Like.shape[0],), VarType.INT64, lod=Like.lod)


@define(
    "rows_of_tagged(IndexMap, LossWeight, Like) -> Out",
    infer=_rows_of_tagged,
    grad=NOT_DIFFERENTIABLE,
    shape_only=("Like",),
    lod_aware=True,
)
def rows_of_tagged() -> None:
    """For each row of Like, which `filter_by_instag` has made, the row that it was before; -1 for none."""
