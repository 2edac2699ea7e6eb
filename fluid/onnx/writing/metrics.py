"""Write metrics: areas under curves, precision, overlap of classes, ordered pairs."""

from __future__ import annotations

from typing import Any

import numpy as np

from fluid.values.spec import Spec
from fluid.values.types import VarType

from .exporting import exports
from .graph import OnnxGraph, OnnxTensor
from .making import as_vector, filled
from .reductions import total
from .shaping import add_rows, reverse


def _counted(g: OnnxGraph, places: OnnxTensor, size: int, weights: OnnxTensor) -> OnnxTensor:
    return add_rows(g, filled(g, g.ints(size), 0, Spec((size,), weights.dtype)), places, weights)


def _running(g: OnnxGraph, x: OnnxTensor) -> OnnxTensor:
    return g.sized_node("CumSum", [x, g.constant(np.int64(0))], x.dtype, x.sizes)


@exports("auc")
def auc(g: OnnxGraph, inputs: dict[str, Any], attrs: dict[str, Any]) -> dict[str, OnnxTensor]:
    predictions = g.reshape(g.slice(inputs["Predict"], [1], [-1], [2**31 - 1]), [-1], (-1,))
    true = g.binary("Equal", as_vector(g, inputs["Label"]), g.ints(0))
    true = g.unary("Not", true)
    bins, slides = attrs["num_thresholds"] + 1, attrs["slide_steps"]
    places = g.cast(g.binary("Mul", predictions, g.number(attrs["num_thresholds"], predictions)), VarType.INT64)
    weight = inputs.get("InsTagWeight")
    ones = g.binary("Equal", places, places) if weight is None else g.reshape(weight, [-1], (-1,))
    weights = g.cast(ones, VarType.INT64)
    sums, states = [], []
    for slot, chosen in (("StatPos", true), ("StatNeg", g.unary("Not", true))):
        stat = inputs[slot]
        counts = as_vector(g, stat)
        new = _counted(g, places, bins, g.where(chosen, weights, g.ints(0)))
        if slides:
            batch = g.binary("Mod", g.slice(counts, [0], [-1], [2**31 - 1]), g.ints(slides))
            index = g.binary("Add", g.binary("Mul", batch, g.ints(bins)), g.constant(np.arange(bins)))
            counts_of_all = g.slice(counts, [0], [slides * bins], [(slides + 1) * bins])
            counts_of_all = g.binary("Add", counts_of_all, g.binary("Sub", new, g.gather(counts, index)))
            former = g.slice(counts, [0], [0], [slides * bins])
            former = g.node("ScatterND", [former, g.unsqueeze(index, 1), new], former)
            last = g.binary("Add", g.slice(counts, [0], [-1], [2**31 - 1]), g.ints(1))
            counts = g.concat([former, counts_of_all, last], 0)
        else:
            counts = counts_of_all = g.binary("Add", counts, new)
        sums.append(g.cast(counts_of_all, VarType.FP64))
        states.append(g.reshape_as(g.cast(counts, stat.dtype), stat))
    negative = reverse(g, sums[1])
    hits, misses = (_running(g, reverse(g, counts_of_bins)) for counts_of_bins in sums)
    before = g.concat([g.constant(np.zeros(1)), g.slice(hits, [0], [0], [-1])], 0)
    area = g.binary("Mul", total(g, g.binary("Mul", negative, g.binary("Add", hits, before))), g.constant(np.array(0.5)))
    area_total = g.squeeze(g.slice(g.binary("Mul", hits, misses), [0], [-1], [2**31 - 1]), 0)
    is_positive = g.binary("Greater", area_total, g.number(0, area_total))
    area = g.binary("Div", area, g.where(is_positive, area_total, g.number(1, area_total)))
    return {"AUC": area, "StatPosOut": states[0], "StatNegOut": states[1]}
