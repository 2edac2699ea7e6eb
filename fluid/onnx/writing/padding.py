"""Write padding and its removal."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from fluid.ops.manipulation import PAD_MODES, all_paddings

from .exporting import exports
from .graph import NotExported, OnnxGraph, OnnxTensor, is_number
from .making import as_vector
from .shaping import added_along, pad_node

_FAR = 2**31 - 1


def _padded_by(g: OnnxGraph, X: OnnxTensor, paddings: Sequence[int], mode: str, value: float) -> OnnxTensor:
    """X with margins, in numpy's modes."""
    before, after = list(paddings[::2]), list(paddings[1::2])
    if mode == "wrap":
        for axis, pair in enumerate(zip(before, after, strict=True)):
            if any(pair):
                X = g.gather(X, _copies(g, X, axis, pair, mode), axis)
        return X
    sizes = tuple(
        size + low + high if is_number(size) else (size if low + high == 0 else -1)
        for size, low, high in zip(X.sizes, before, after, strict=True)
    )
    return pad_node(g, X, g.ints(*before, *after), sizes, value, mode)


def _copies(g: OnnxGraph, x: OnnxTensor, axis: int, pair: tuple[int, int], mode: str) -> OnnxTensor:
    """For each element of the padded tensor, the index of its source element along an axis."""
    size = g.size(x, axis)
    if not isinstance(size, int):
        raise NotExported(f"padding by the mode {mode} of a dimension whose size is known only at run time")
    return g.constant(np.pad(np.arange(size), pair, mode=mode))  # type: ignore[call-overload]


@exports("pad")
def pad(g: OnnxGraph, X: OnnxTensor, paddings: list[int], pad_value: float) -> OnnxTensor:
    return _padded_by(g, X, paddings, "constant", pad_value)


@exports("pad2d")
def pad2d(
    g: OnnxGraph,
    X: OnnxTensor,
    Paddings: OnnxTensor | None,
    paddings: list[int],
    mode: str,
    pad_value: float,
    data_format: str,
    specs: Any,
) -> OnnxTensor:
    if Paddings is None:
        return _padded_by(g, X, all_paddings(paddings, data_format, False), PAD_MODES[mode], pad_value)
    return pad_node(g, X, _margins(g, Paddings, data_format), specs["Out"].shape, pad_value, PAD_MODES[mode])


def _margins(g: OnnxGraph, Paddings: OnnxTensor, data_format: str) -> OnnxTensor:
    """The input of `Pad` from top, bottom, left and right."""
    margins = as_vector(g, Paddings)
    batch_and_channel, one_axis = [0, 0], [0]
    before, after = g.gather(margins, g.ints(0, 2)), g.gather(margins, g.ints(1, 3))
    first, last = (one_axis, one_axis) if data_format.endswith("C") else (batch_and_channel, [])
    parts = [part for pair in (before, after) for part in (g.ints(*first), pair, g.ints(*last)) if part.shape[0]]
    return g.concat(parts, 0)


@exports("pad3d")
def pad3d(g: OnnxGraph, X: OnnxTensor, paddings: list[int], mode: str, value: float, data_format: str) -> OnnxTensor:
    return _padded_by(g, X, all_paddings(paddings, data_format, True), PAD_MODES[mode], value)


@exports("pad_by")
def pad_by(
    g: OnnxGraph, X: OnnxTensor, Paddings: OnnxTensor | None, paddings: list[int], mode: str, data_format: str, specs: Any
) -> OnnxTensor:
    if Paddings is not None:
        return pad_node(g, X, _margins(g, Paddings, data_format), specs["Out"].shape, 0.0, mode)
    return _padded_by(g, X, paddings, mode, 0.0)


@exports("unpad_by")
def unpad_by(
    g: OnnxGraph,
    f: Any,
    X: OnnxTensor,
    Like: OnnxTensor,
    Paddings: OnnxTensor | None,
    paddings: list[int],
    mode: str,
    data_format: str,
) -> Any:
    if Paddings is not None:
        if mode != "constant":
            raise NotExported(f"the gradient of padding by computed margins in the mode {mode}")
        margins = _margins(g, Paddings, data_format)
        starts = g.slice(margins, [0], [0], [Like.ndim])
        ends = g.binary("Add", starts, g.dims(Like))
        return g.sized_node("Slice", [X, starts, ends, g.ints(*range(Like.ndim))], X.dtype, Like.sizes)
    for axis in range(Like.ndim):
        pair = (paddings[2 * axis], paddings[2 * axis + 1])
        if not any(pair):
            continue
        if mode == "constant":
            X = g.slice(X, [axis], [pair[0]], [-pair[1] or _FAR])
            continue
        sizes = tuple(Like.shape[at] if at == axis else size for at, size in enumerate(X.sizes))
        X = added_along(g, X, _copies(g, Like, axis, pair, mode), axis, Like.shape[axis], sizes)
    return X
