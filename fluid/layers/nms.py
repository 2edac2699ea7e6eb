"""Layers that choose detections among boxes with scores: of boxes that overlap, the best."""

from __future__ import annotations

from typing import Any

from ..building.layer_helper import LayerHelper
from ..ir.program import Variable
from .tensor import constant, constants_of

__all__ = ["locality_aware_nms", "matrix_nms", "multiclass_nms", "multiclass_nms2"]


def multiclass_nms(
    bboxes: Variable,
    scores: Variable,
    score_threshold: float,
    nms_top_k: int,
    keep_top_k: int,
    nms_threshold: float = 0.3,
    normalized: bool = True,
    nms_eta: float = 1.0,
    background_label: int = 0,
    name: str | None = None,
) -> Variable:
    """Detections ``[D, 6]``, rows of class, score and box, a sequence for each image: of boxes that overlap, the best.

    Args:
        bboxes: ``[N, M, 4]``, or ``[R, C, 4]`` if each class has its own (a sequence of rows for each image).
        scores: ``[N, C, M]``, or ``[R, C]``.
        score_threshold: boxes with a score above it count.
        nms_top_k: how many of a class, the best; -1 for all.
        keep_top_k: how many detections of an image are kept; -1 for all.
        nms_threshold: boxes of a class that overlap a better one by more are left out.
        normalized: whether boxes end at right and bottom; otherwise these are pixels of it.
        nms_eta: if below 1, the threshold is multiplied by it after each box that is kept, while above 0.5.
        background_label: the class that is left out; -1 for none.

    Where nothing is found in any image, the result is ``[[-1]]``.

    >>> boxes = fluid.dygraph.to_variable([[[0.0, 0.0, 4.0, 4.0], [0.0, 0.0, 4.0, 3.5], [5.0, 5.0, 9.0, 9.0]]])
    >>> scores = fluid.dygraph.to_variable([[[0.0, 0.0, 0.0], [0.9, 0.8, 0.7]]])
    >>> layers.multiclass_nms(boxes, scores, score_threshold=0.1, nms_top_k=-1, keep_top_k=-1)
    Tensor([[1. , 0.9, 0. , 0. , 4. , 4. ],
            [1. , 0.7, 5. , 5. , 9. , 9. ]], shape=[2, 6], dtype=float32)
    """
    attrs = _choice(score_threshold, nms_top_k, keep_top_k, nms_threshold, normalized, nms_eta, background_label)
    return _rows("multiclass_nms", bboxes, scores, attrs, name)


def _rows(op_type: str, bboxes: Variable, scores: Variable, attrs: dict[str, Any], name: str | None) -> Variable:
    """The detections of an op that gives a single number if there are none; programs are built as if there are some."""
    detections: Variable = constants_of(op_type, {"BBoxes": bboxes, "Scores": scores}, attrs, name)
    if detections.shape[0] < 0:
        detections.shape = (-1, 2 + bboxes.shape[2] if bboxes.shape[2] >= 0 else -1)
    return detections


def _choice(
    score_threshold: float,
    nms_top_k: int,
    keep_top_k: int,
    nms_threshold: float,
    normalized: bool,
    nms_eta: float,
    background_label: int,
) -> dict[str, Any]:
    return {
        "background_label": background_label,
        "score_threshold": score_threshold,
        "nms_top_k": nms_top_k,
        "nms_threshold": nms_threshold,
        "nms_eta": nms_eta,
        "keep_top_k": keep_top_k,
        "normalized": normalized,
    }


def multiclass_nms2(
    bboxes: Variable,
    scores: Variable,
    score_threshold: float,
    nms_top_k: int,
    keep_top_k: int,
    nms_threshold: float = 0.3,
    normalized: bool = True,
    nms_eta: float = 1.0,
    background_label: int = 0,
    return_index: bool = False,
    name: str | None = None,
) -> Any:
    """`multiclass_nms` that gives no rows where nothing is found and, with `return_index`, also returns the indices ``[D, 1]`` of
    the boxes among all images' boxes.

    Args:
        bboxes, scores, score_threshold, nms_top_k, keep_top_k, nms_threshold, normalized, nms_eta, background_label: as of
            `multiclass_nms`.
        return_index: whether to return the indices too, int32 ``[D, 1]``.

    >>> boxes = fluid.dygraph.to_variable([[[0.0, 0.0, 4.0, 4.0], [0.0, 0.0, 4.0, 3.5], [5.0, 5.0, 9.0, 9.0]]])
    >>> scores = fluid.dygraph.to_variable([[[0.0, 0.0, 0.0], [0.9, 0.8, 0.7]]])
    >>> detections, index = layers.multiclass_nms2(boxes, scores, 0.1, nms_top_k=-1, keep_top_k=-1, return_index=True)
    >>> detections.shape, index.numpy().ravel()
    ((2, 6), array([0, 2], dtype=int32))
    """
    helper = LayerHelper("multiclass_nms2", name)
    attrs = _choice(score_threshold, nms_top_k, keep_top_k, nms_threshold, normalized, nms_eta, background_label)
    outputs = helper.apply("multiclass_nms2", {"BBoxes": bboxes, "Scores": scores}, attrs, also=["Index"])
    detections, index = constant(outputs["Out"]), constant(outputs["Index"])
    return (detections, index) if return_index else detections


def matrix_nms(
    bboxes: Variable,
    scores: Variable,
    score_threshold: float,
    post_threshold: float,
    nms_top_k: int,
    keep_top_k: int,
    use_gaussian: bool = False,
    gaussian_sigma: float = 2.0,
    background_label: int = 0,
    normalized: bool = True,
    return_index: bool = False,
    name: str | None = None,
) -> Any:
    """Detections ``[D, 6]`` whose scores are lowered by how far better boxes overlap them, not left out.

    Formula: Wang et al., SOLOv2: Dynamic and Fast Instance Segmentation, 2020.

    Args:
        bboxes: ``[N, M, 4]``.
        scores: ``[N, C, M]``.
        score_threshold, nms_top_k, keep_top_k, background_label, normalized: as of `multiclass_nms`.
        post_threshold: lowered scores that are at most this are left out.
        use_gaussian: whether scores fall with the overlap as a Gaussian, rather than linearly.
        gaussian_sigma: how fast they do.
        return_index: whether to also return the indices of the boxes, int32 ``[D, 1]``.

    >>> boxes = fluid.dygraph.to_variable([[[0.0, 0.0, 4.0, 4.0], [0.0, 0.0, 4.0, 3.5], [5.0, 5.0, 9.0, 9.0]]])
    >>> scores = fluid.dygraph.to_variable([[[0.0, 0.0, 0.0], [0.9, 0.8, 0.7]]])
    >>> layers.matrix_nms(boxes, scores, 0.1, post_threshold=0.05, nms_top_k=-1, keep_top_k=-1)
    Tensor([[1. , 0.9, 0. , 0. , 4. , 4. ],
            [1. , 0.7, 5. , 5. , 9. , 9. ],
            [1. , 0.1, 0. , 0. , 4. , 3.5]], shape=[3, 6], dtype=float32)
    """
    attrs = {
        "background_label": background_label,
        "score_threshold": score_threshold,
        "post_threshold": post_threshold,
        "nms_top_k": nms_top_k,
        "gaussian_sigma": gaussian_sigma,
        "use_gaussian": use_gaussian,
        "keep_top_k": keep_top_k,
        "normalized": normalized,
    }
    outputs = LayerHelper("matrix_nms", name).apply("matrix_nms", {"BBoxes": bboxes, "Scores": scores}, attrs)
    detections, index = constant(outputs["Out"]), constant(outputs["Index"])
    return (detections, index) if return_index else detections


def locality_aware_nms(
    bboxes: Variable,
    scores: Variable,
    score_threshold: float,
    nms_top_k: int,
    keep_top_k: int,
    nms_threshold: float = 0.3,
    normalized: bool = True,
    nms_eta: float = 1.0,
    background_label: int = -1,
    name: str | None = None,
) -> Variable:
    """`multiclass_nms` of boxes that come in rows of neighbours, which are merged first, weighted by their scores.

    Formula: Zhou et al., EAST: An Efficient and Accurate Scene Text Detector, 2017.

    Args:
        bboxes: ``[N, M, 4]``, or polygons ``[N, M, 2 * corners]``.
        scores: ``[N, C, M]``; scores of merged boxes add up.
        score_threshold, nms_top_k, keep_top_k, normalized, nms_eta, background_label: as of `multiclass_nms`.
        nms_threshold: boxes that overlap by more are merged if they are neighbours; afterwards, the worse is left out.

    >>> boxes = fluid.dygraph.to_variable([[[0.0, 0.0, 4.0, 4.0], [0.0, 0.0, 4.0, 4.0], [5.0, 5.0, 9.0, 9.0]]])
    >>> scores = fluid.dygraph.to_variable([[[0.5, 0.25, 0.75]]])
    >>> layers.locality_aware_nms(boxes, scores, 0.1, nms_top_k=-1, keep_top_k=-1)
    Tensor([[0.  , 0.75, 0.  , 0.  , 4.  , 4.  ],
            [0.  , 0.75, 5.  , 5.  , 9.  , 9.  ]], shape=[2, 6], dtype=float32)
    """
    attrs = _choice(score_threshold, nms_top_k, keep_top_k, nms_threshold, normalized, nms_eta, background_label)
    return _rows("locality_aware_nms", bboxes, scores, attrs, name)
