"""Write ops of object detection."""

from __future__ import annotations

import numpy as np

from fluid.values.types import VarType

from .exporting import exports
from .graph import OnnxGraph, OnnxTensor
from .shaping import positions


@exports("polygon_box_transform")
def polygon_box_transform(g: OnnxGraph, Input: OnnxTensor) -> OnnxTensor:
    wide = g.cast(positions(g, g.size(Input, 3), 3, 4), Input.dtype)
    high = g.cast(positions(g, g.size(Input, 2), 2, 4), Input.dtype)
    number = positions(g, g.size(Input, 1), 1, 4)
    even = g.binary("Equal", g.binary("Mod", number, g.constant(np.int64(2))), g.constant(np.int64(0)))
    places = g.binary("Mul", g.where(even, wide, high), g.number(4, Input))
    return g.binary("Sub", places, Input)


@exports("box_clip")
def box_clip(g: OnnxGraph, Input: OnnxTensor, ImInfo: OnnxTensor) -> OnnxTensor:
    """ImInfo has height, width and scale of each image."""
    size = g.gather(ImInfo, g.ints(1, 0), 1)
    scaled = g.binary("Div", size, g.slice(ImInfo, [1], [2], [3]))
    most = g.binary("Sub", g.unary("Floor", g.binary("Add", scaled, g.number(0.5, scaled))), g.number(1, scaled))
    most = g.concat([most, most], 1)
    if Input.lengths is not None:  # the image of a row: how many images end at or before it
        ends = g.sized_node("CumSum", [Input.lengths, g.constant(np.int64(0))], VarType.INT64, Input.lengths.sizes)
        row = positions(g, g.size(Input, 0), 0, 2)
        image = g.cast(g.binary("GreaterOrEqual", row, g.unsqueeze(ends, 0)), VarType.INT64)
        most = g.gather(most, g.reduce("ReduceSum", image, [1]))
    elif Input.ndim == 3:
        most = g.unsqueeze(most, 1)
    return g.binary("Max", g.binary("Min", Input, most), g.number(0, Input))
