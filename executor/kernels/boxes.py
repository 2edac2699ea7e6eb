"""Arithmetic on boxes, shared by the kernels of object detection.

Boxes [..., 4] are left, top, right and bottom. With `edge` 0, these are coordinates, so that a box is ``right - left`` wide. With
`edge` 1, they are pixel indices, and the right and bottom pixels belong to the box. Arguments broadcast: to compare all pairs
of two sets, pass ``first[:, None]`` and ``second``.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from fluid.errors import ExecutionError
from fluid.values.lod_array import lengths_of
from fluid.values.spec import Lod

_BLOCK = 256
"""So many boxes are compared with each other at a time."""


def sizes(boxes: Any, edge: int = 0) -> Any:
    """Widths and heights [..., 2]."""
    return boxes[..., 2:4] - boxes[..., :2] + boxes.dtype.type(edge)


def centers(boxes: Any, edge: int = 0) -> Any:
    """The x and y of the centers [..., 2]."""
    return boxes[..., :2] + sizes(boxes, edge) * boxes.dtype.type(0.5)


def corners(xp: Any, middle: Any, size: Any, edge: int = 0) -> Any:
    """Boxes [..., 4] with these centers and sizes [..., 2]."""
    half = size * size.dtype.type(0.5)
    return xp.concatenate(xp.broadcast_arrays(middle - half, middle + half - size.dtype.type(edge)), -1)


def encode(xp: Any, boxes: Any, anchors: Any, edge: int = 0) -> Any:
    """Encode boxes relative to anchors: the offsets of the centers in units of the anchor sizes, and the logarithms of the size
    ratios."""
    size = sizes(anchors, edge)
    shift = (centers(boxes, edge) - centers(anchors, edge)) / size
    return xp.concatenate(xp.broadcast_arrays(shift, xp.log(sizes(boxes, edge) / size)), -1)


def decode(xp: Any, deltas: Any, anchors: Any, edge: int = 0) -> Any:
    """The boxes that `encode` gives these deltas for."""
    size = sizes(anchors, edge)
    return corners(xp, deltas[..., :2] * size + centers(anchors, edge), xp.exp(deltas[..., 2:4]) * size, edge)


def _shared(xp: Any, first: Any, second: Any) -> tuple[Any, Any]:
    """Widths and heights of the intersections of boxes; below 0 if they do not touch."""
    left, right = ([xp.ascontiguousarray(boxes[..., number]) for number in range(4)] for boxes in (first, second))
    across, down = (xp.minimum(left[axis + 2], right[axis + 2]) - xp.maximum(left[axis], right[axis]) for axis in (0, 1))
    return across, down


def areas(boxes: Any, edge: int = 0) -> Any:
    """Widths times heights [...]."""
    extent = sizes(boxes, edge)
    return extent[..., 0] * extent[..., 1]


def iou(xp: Any, first: Any, second: Any, edge: int = 0) -> Any:
    """Intersection over union of boxes [...]; 0 of empty ones."""
    across, down = (xp.maximum(extent + extent.dtype.type(edge), 0) for extent in _shared(xp, first, second))
    shared = across * down
    union = areas(first, edge) + areas(second, edge) - shared
    return shared / xp.where(union == 0, 1, union)


def jaccard(xp: Any, first: Any, second: Any, edge: int = 0) -> Any:
    """`iou`, but 0 where boxes do not touch, though the pixels at their ends may, and without the areas of boxes that end before
    they begin."""
    across, down = _shared(xp, first, second)
    shared = (across + across.dtype.type(edge)) * (down + down.dtype.type(edge))
    real = [xp.where((box[..., 2] < box[..., 0]) | (box[..., 3] < box[..., 1]), 0, areas(box, edge)) for box in (first, second)]
    return xp.where((across < 0) | (down < 0), 0, shared / (real[0] + real[1] - shared))


def suppress(boxes: Any, threshold: float, overlap: Callable[[Any, Any], Any], eta: float = 1.0) -> Any:
    """Non-maximum suppression on the host: the indices of boxes [K, ...] (best first) to retain.

    A box is retained if it overlaps no better retained box by more than `threshold`. If `eta` is below 1, each retained box
    multiplies the threshold by `eta`, as long as it is above 0.5.
    """
    chosen: list[int] = []
    with np.errstate(all="ignore"):
        for start in range(0, len(boxes), _BLOCK):
            block = boxes[start : start + _BLOCK]
            among = overlap(block[:, None], block)
            worst = overlap(boxes[chosen][:, None], block).max(0) if chosen else np.full(len(block), -np.inf, among.dtype)
            for number in range(len(block)):
                if worst[number] <= threshold:
                    chosen.append(start + number)
                    np.maximum(worst, among[number], out=worst)
                    if eta < 1 and threshold > 0.5:
                        threshold *= eta
    return np.asarray(chosen, np.int64)


def images_of(label: str, rows: int, lod: Lod, counts: Sequence[int] | None = None) -> list[tuple[int, int]]:
    """The range of rows of each image, from `counts` or else from the sequences; without either, all rows belong to one image."""
    if counts is None:
        counts = lengths_of(lod[-1]) if lod and lod[-1] is not None else [rows]
    elif min(counts, default=0) < 0 or sum(counts) != rows:
        raise ExecutionError(f"{label} has {rows} rows, but there should be {list(counts)} of the images")
    ends = np.cumsum([0, *counts]).tolist()
    return list(itertools.pairwise(ends))
