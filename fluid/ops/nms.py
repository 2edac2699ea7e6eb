"""Ops that choose detections among boxes with scores: of boxes that overlap, the best.

Results are rows of class, score and box (``[D, 2 + K]``), one row for each detection in the batch. The rows of an image form
a sequence or, where an op has an output for it, are counted there. Boxes have K numbers: left, top, right and bottom or, in some
ops, the places x, y of K / 2 corners.
"""

from __future__ import annotations

from typing import Any

from ..errors import InferenceError
from ..opdef.registry import NOT_DIFFERENTIABLE, define, least, required
from ..values.spec import Spec
from ..values.types import VarType
from .sequence import images_of, offsets_of
from .shapes import fits

_CORNERS = (4, 8, 16, 24, 32)
"""How many numbers a box may have."""


def _check_shared(BBoxes: Spec, Scores: Spec) -> None:
    """Boxes [N, M, K] that all classes share, with scores [N, C, M]."""
    if not (fits(BBoxes.shape[0], Scores.shape[0]) and fits(BBoxes.shape[1], Scores.shape[2])):
        raise InferenceError(f"Scores {Scores} should be [N, C, M], where BBoxes is {BBoxes}, [N, M, K]")


def _check_boxes(BBoxes: Spec, allowed: tuple[int, ...]) -> None:
    if BBoxes.shape[2] not in (-1, *allowed):
        raise InferenceError(f"the boxes in BBoxes {BBoxes} should have {' or '.join(map(str, allowed))} numbers")


def _chosen(BBoxes: Spec, Scores: Spec) -> tuple[Spec, int]:
    """The detections, without sequences, and the number of images; -1 where the op does not tell."""
    _check_boxes(BBoxes, _CORNERS)
    if Scores.ndim == 3:
        _check_shared(BBoxes, Scores)
    elif Scores.ndim != 2 or not fits(BBoxes.shape[0], Scores.shape[0]) or not fits(BBoxes.shape[1], Scores.shape[1]):
        raise InferenceError(
            f"Scores {Scores} should be [N, C, M] of boxes [N, M, K], or [R, C] of boxes [R, C, K]; BBoxes is {BBoxes}"
        )
    elif BBoxes.shape[2] not in (-1, 4):
        raise InferenceError(f"the boxes of each class in BBoxes {BBoxes} should have 4 numbers")
    size = BBoxes.shape[2]
    return Spec((-1, 2 + size if size >= 0 else -1), BBoxes.dtype), BBoxes.shape[0] if Scores.ndim == 3 else -1


def _by_sequence(BBoxes: Spec, Scores: Spec) -> tuple[Spec, Spec]:
    rows, _ = _chosen(BBoxes, Scores)
    if Scores.ndim == 2:
        offsets_of(BBoxes, "BBoxes")
    return rows.with_lod((None,)), Spec((-1, 1), VarType.INT32, lod=(None,))


def _rows_or_none(BBoxes: Spec, Scores: Spec) -> Spec:
    rows, _ = _by_sequence(BBoxes, Scores)
    return rows.with_shape((-1, -1))  # where nothing is found, a row of one number


_CHOICE: dict[str, Any] = {
    "score_threshold": required("float"),
    "nms_top_k": least(-1, required("int")),
    "nms_threshold": 0.3,
    "nms_eta": 1.0,
    "keep_top_k": least(-1, required("int")),
    "normalized": True,
}
_BOXES = "BBoxes: float[N, M, K], Scores: float"


@define(
    f"multiclass_nms({_BOXES}) -> Out",
    infer=_rows_or_none,
    grad=NOT_DIFFERENTIABLE,
    lod_aware=True,
    background_label=0,
    **_CHOICE,
)
def multiclass_nms() -> None:
    """Detections: of each class but `background_label`, by descending score, boxes that overlap none before by more than
    `nms_threshold`.

    All classes share the boxes [N, M, K], with Scores [N, C, M], or each has its own [R, C, 4], with Scores [R, C], where
    rows of an image are a sequence. Only boxes with a score above `score_threshold` count, the `nms_top_k` best of a class; of
    the detections of an image the `keep_top_k` best are kept (-1: all). With `nms_eta` below 1, the threshold is
    multiplied by it after each box while above 0.5. Out is [D, 2 + K], or [[-1]] if nothing is found in any image.
    """


@define(
    f"multiclass_nms2({_BOXES}) -> Out, Index~",
    infer=_by_sequence,
    grad=NOT_DIFFERENTIABLE,
    lod_aware=True,
    background_label=0,
    **_CHOICE,
)
def multiclass_nms2() -> None:
    """As `multiclass_nms`, with an empty Out if nothing is found, and Index [D, 1]: where the box of each detection stands
    among all boxes, counted over all images (and, where each has its own, classes)."""


def _counted(BBoxes: Spec, Scores: Spec, RoisNum: Spec | None) -> tuple[Spec, Spec, Spec]:
    rows, images = _chosen(BBoxes, Scores)
    if Scores.ndim == 2:
        images = images_of(BBoxes, RoisNum, "BBoxes")
    return rows, Spec((-1, 1), VarType.INT32), Spec((images,), VarType.INT32)


@define(
    f"multiclass_nms3({_BOXES}, RoisNum?: int[n]) -> Out, Index, NmsRoisNum?",
    infer=_counted,
    grad=NOT_DIFFERENTIABLE,
    lod_aware=True,
    **_CHOICE,
    background_label=0,
)
def multiclass_nms3() -> None:
    """As `multiclass_nms2`, with the numbers of detections in the images as NmsRoisNum [N], in place of sequences. RoisNum says
    how many rows an image has where each class has its own boxes."""


def _matrix(BBoxes: Spec, Scores: Spec) -> tuple[Spec, Spec, Spec]:
    _check_boxes(BBoxes, (4,))
    _check_shared(BBoxes, Scores)
    return Spec((-1, 6), BBoxes.dtype), Spec((-1, 1), VarType.INT32), Spec((BBoxes.shape[0],), VarType.INT32)


@define(
    "matrix_nms(BBoxes: float[N, M, K], Scores: float[n, C, m]) -> Out, Index, RoisNum?",
    infer=_matrix,
    grad=NOT_DIFFERENTIABLE,
    score_threshold=required("float"),
    nms_top_k=least(-1, required("int")),
    keep_top_k=least(-1, required("int")),
    post_threshold=required("float"),
    use_gaussian=False,
    gaussian_sigma=2.0,
    background_label=0,
    normalized=True,
)
def matrix_nms() -> None:
    """Detections [D, 6] by descending score, which is lowered by how far better boxes of the class overlap the box, not by
    whether.

    The factor is the least, over better boxes i of the class, of ``(1 - o) / (1 - most)``, where o is the overlap with i and most
    the largest overlap of i with boxes better than it; with `use_gaussian`, of ``exp(gaussian_sigma * (most ** 2 - o ** 2))``.
    Scores at most `post_threshold` are left out. Index and the counts RoisNum [N] are as of `multiclass_nms3`.
    """


def _local(BBoxes: Spec, Scores: Spec) -> Spec:
    _check_boxes(BBoxes, _CORNERS)
    _check_shared(BBoxes, Scores)
    return Spec((-1, -1), BBoxes.dtype, lod=(None,))


@define(
    "locality_aware_nms(BBoxes: float[N, M, K], Scores: float[n, C, m]) -> Out",
    infer=_local,
    grad=NOT_DIFFERENTIABLE,
    lod_aware=True,
    background_label=-1,
    **_CHOICE,
)
def locality_aware_nms() -> None:
    """As `multiclass_nms` after neighbours have been merged: going over the boxes in their order, one that overlaps the box
    before by more than `nms_threshold` is merged into it, weighted by their scores, which add up. For places of text, say,
    which are found at each pixel; classes merge the boxes one after another."""


@define(
    "nms(Boxes: float[N, 4]) -> KeepBoxesIdxs",
    infer=lambda Boxes: Spec((-1,), VarType.INT64),
    grad=NOT_DIFFERENTIABLE,
    iou_threshold=1.0,
)
def nms() -> None:
    """The numbers of the boxes that overlap no box kept before, by more than `iou_threshold`, as intersection over union. Boxes
    come in order, the best first."""
