"""Write optimizers that draw random numbers; the others are written by their formulas (`fluid.ops.updates`)."""

from __future__ import annotations

from typing import Any

from fluid.values.spec import Spec
from fluid.values.types import VarType

from .exporting import exports
from .graph import OnnxGraph


@exports("dpsgd")
def dpsgd(
    g: OnnxGraph,
    f: Any,
    Param: Any,
    Grad: Any,
    LearningRate: Any,
    clip: float,
    batch_size: float,
    sigma: float,
    seed: int,
) -> Any:
    size = f.sqrt(f.reduce_sum(f.square(Grad), reduce_all=True))
    step = Grad / g.binary("Max", size * (1.0 / clip), g.number(1, Grad))
    if sigma:
        settings = {"seed": float(seed)} if seed else {}
        drawn = g.node("RandomNormal", [], Spec((1,), VarType.FP32), dtype=1, shape=[1], **settings)
        step = step + g.reshape(g.cast(drawn, Param.dtype), [1]) * (sigma / batch_size)
    return Param - step * g.cast(LearningRate, Param.dtype)
