"""Match boxes with priors, and derive training targets from the matches."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from fluid.executor.kernels.detection import SIMILAR
from fluid.values.spec import Spec
from fluid.values.types import VarType

from .exporting import exports
from .graph import NotExported, OnnxGraph, OnnxTensor
from .making import as_vector, filled
from .rounds import in_rounds
from .sequence_rows import ids_of, longest_of, padded_rows, starts_of, taken_rows
from .shaping import add_rows, positions


def _best(g: OnnxGraph, x: OnnxTensor, axis: int) -> OnnxTensor:
    """The index of the maximum along an axis, which remains with size 1."""
    sizes = tuple(1 if place == axis else size for place, size in enumerate(x.sizes))
    return g.sized_node("ArgMax", [x], VarType.INT64, sizes, axis=axis, keepdims=1)


@exports("bipartite_match")
def bipartite_match(
    g: OnnxGraph, DistMat: OnnxTensor, match_type: str, dist_threshold: float, specs: Any
) -> dict[str, OnnxTensor]:
    """Each round matches the most similar pair of each image; ties go to the first column, then row."""
    rows = g.size(DistMat, 0)
    lengths = DistMat.lengths
    if lengths is None:
        lengths = g.as_size(rows)
    index = padded_rows(g, lengths, longest_of(g, lengths))  # [N, K], -1 after the last
    similar = taken_rows(g, DistMat, index)
    zero = g.number(0, similar)
    dims = [g.size(similar, axis) for axis in range(3)]
    turned = g.transpose(similar, [0, 2, 1])  # [N, M, K]
    count, height = dims[2], dims[1]
    flat_sizes = [dims[0], g.product_of([count, height])]
    column_number, row_number = positions(g, count, 1, 2), positions(g, height, 1, 2)

    def body(number: OnnxTensor, states: Sequence[OnnxTensor]) -> list[OnnxTensor]:
        left, chosen, distances = states
        flat = g.reshape(left, flat_sizes, (-1, -1))
        place = _best(g, flat, 1)
        value = g.sized_node("GatherElements", [flat, place], left.dtype, place.sizes, axis=1)
        is_similar = g.binary("GreaterOrEqual", value, g.number(SIMILAR, value))
        high = g.as_size(height)
        column, row = g.binary("Div", place, high), g.binary("Mod", place, high)
        in_column = g.binary("And", is_similar, g.binary("Equal", column_number, column))
        in_row = g.binary("And", is_similar, g.binary("Equal", row_number, row))
        chosen = g.where(in_column, row, chosen)
        distances = g.where(in_column, value, distances)
        is_matched = g.binary("Or", g.unsqueeze(in_column, 2), g.unsqueeze(in_row, 1))
        return [g.where(is_matched, zero, left), chosen, distances]

    shape = g.joined_sizes([dims[0], count])
    static_sizes = (similar.sizes[0], similar.sizes[2])
    plain = tuple(size if 0 <= size < 2**30 else -1 for size in static_sizes)
    no_matches = filled(g, shape, -1, Spec(plain, VarType.INT64))
    no_distances = filled(g, shape, 0, Spec(plain, similar.dtype))
    rounds = g.binary("Min", g.as_size(height), g.as_size(count))
    _, chosen, distances = in_rounds(g, rounds, [turned, no_matches, no_distances], body)
    if match_type == "per_prediction":
        best = _best(g, similar, 1)
        value = g.squeeze(g.sized_node("GatherElements", [similar, best], similar.dtype, best.sizes, axis=1), 1)
        enough = g.binary("GreaterOrEqual", value, g.number(max(dist_threshold, SIMILAR), value))
        is_added = g.binary("And", g.binary("Less", chosen, g.ints(0)), enough)
        chosen, distances = g.where(is_added, g.squeeze(best, 1), chosen), g.where(is_added, value, distances)
    return {"ColToRowMatchIndices": g.cast(chosen, VarType.INT32), "ColToRowMatchDist": distances}


@exports("mine_hard_examples")
def mine_hard_examples(g: OnnxGraph, inputs: dict[str, Any], attrs: dict[str, Any]) -> dict[str, OnnxTensor]:
    loss, matches, similar = (inputs[slot] for slot in ("ClsLoss", "MatchIndices", "MatchDist"))
    mines_hard = attrs["mining_type"] == "hard_example"
    if mines_hard and inputs.get("LocLoss") is not None:
        loss = g.binary("Add", loss, inputs["LocLoss"])
    is_unmatched = g.binary("Equal", matches, g.number(-1, matches))
    lowest = g.number(-np.inf, loss)
    if mines_hard:
        most = g.ints(attrs["sample_size"])
        ranked = loss
        limit = g.binary("Min", most, g.as_size(g.size(loss, 1)))
    else:
        near = g.binary("Less", similar, g.number(attrs["neg_dist_threshold"], similar))
        eligible = g.binary("And", is_unmatched, near)
        ranked = g.where(eligible, loss, lowest)
        matched = g.reduce("ReduceSum", g.cast(g.unary("Not", is_unmatched), VarType.FP32), [1], keep=True)
        negative_count = g.cast(g.binary("Mul", matched, g.constant([[attrs["neg_pos_ratio"]]], VarType.FP32)), VarType.INT64)
        limit = g.binary("Min", negative_count, g.reduce("ReduceSum", g.cast(eligible, VarType.INT64), [1], keep=True))
    spec = Spec(ranked.shape, ranked.dtype)
    order = g.nodes("TopK", [ranked, g.as_size(g.size(ranked, 1))], [spec, spec.with_dtype(VarType.INT64)], axis=1)[1]
    order.sizes = ranked.sizes
    first = g.binary("Less", positions(g, g.size(loss, 1), 1, 2), limit)
    first = g.cast(g.expand(first, g.dims(order), order.sizes), VarType.INT32)
    zeros = g.cast(g.where(is_unmatched, g.constant(0, VarType.INT32), g.constant(0, VarType.INT32)), VarType.INT32)
    chosen = g.cast(g.node("ScatterElements", [zeros, order, first], zeros, axis=1), VarType.BOOL)
    negative = g.binary("And", chosen, is_unmatched) if mines_hard else chosen
    places = g.node("NonZero", [negative], Spec((2, -1), VarType.INT64))
    columns = g.cast(g.transpose(g.slice(places, [0], [1], [2]), [1, 0]), VarType.INT32)
    columns.lengths = g.reduce("ReduceSum", g.cast(negative, VarType.INT64), [1])
    left = g.where(chosen, matches, g.number(-1, matches)) if mines_hard else g.identity(matches)
    return {"NegIndices": columns, "UpdatedMatchIndices": left}


@exports("target_assign")
def target_assign(
    g: OnnxGraph, X: OnnxTensor, MatchIndices: OnnxTensor, NegIndices: OnnxTensor | None, mismatch_value: int
) -> dict[str, OnnxTensor]:
    depth = X.shape[1]
    if depth < 0:
        raise NotExported("a number of targets of a row that is known only at run time")
    matches = g.cast(MatchIndices, VarType.INT64)
    matched = g.unsqueeze(g.binary("GreaterOrEqual", matches, g.ints(0)), 2)
    first = g.ints(0) if X.lengths is None else g.unsqueeze(starts_of(g, X.lengths), 1)
    rows = g.binary("Add", first, g.binary("Max", matches, g.ints(0)))
    last = g.binary("Sub", g.as_size(g.size(X, 0)), g.ints(1))
    rows = g.binary("Max", g.binary("Min", rows, last), g.ints(0))
    column = g.binary("Mod", positions(g, g.size(matches, 1), 1, 2), g.ints(depth))
    place = g.binary("Add", g.binary("Mul", rows, g.ints(depth)), column)
    width = g.size(X, 2)
    flat = g.reshape(X, [-1, width] if isinstance(width, int) else [g.product_of(g.sizes_of(X)[:2]), width], (-1, X.sizes[2]))
    margin = filled(g, g.joined_sizes([1, width]), mismatch_value, Spec((1, X.shape[2]), X.dtype))
    values = g.gather(g.concat([flat, margin], 0), place)
    mismatch = g.number(mismatch_value, X)
    out = g.where(matched, values, mismatch)
    weight = g.cast(matched, VarType.FP32)
    if NegIndices is not None:
        columns = as_vector(g, NegIndices)
        if NegIndices.lengths is None:
            raise NotExported("rows whose sequences are known only at run time")
        image = ids_of(g, NegIndices.lengths, g.size(columns, 0))
        count = g.as_size(g.size(matches, 1))
        zeros = g.reshape(g.binary("Mul", matches, g.ints(0)), [-1], (-1,))
        ones = g.cast(g.binary("Equal", columns, columns), VarType.INT64)
        hits = add_rows(g, zeros, g.binary("Add", g.binary("Mul", image, count), columns), ones)
        negative = g.unsqueeze(g.cast(g.reshape_as(hits, matches), VarType.BOOL), 2)
        out, weight = g.where(negative, mismatch, out), g.where(negative, g.number(1, weight), weight)
    return {"Out": out, "OutWeight": weight}
