"""Labelled boxes, which are sequences, matched with priors, in programs with padded rows (see `padded_rows`)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from fluid.ir.program import Operator
from fluid.values.types import VarType

from .padded_rows import REWRITES, NotRewritten, Rewriter, RowFacts
from .sequence_batch import Extent, Index

_rewrites = REWRITES.register


def _matched_group(to: Rewriter, name: str) -> int:
    """The LoD of the boxes that `bipartite_match` has matched; `NotRewritten` for numbers that may name no box."""
    maker = next((op for op in reversed(to.block.ops) if name in op.output_arg_names), None)
    if maker is not None and maker.type == "assign":
        return _matched_group(to, maker.input("X")[0])
    if maker is None or maker.type != "bipartite_match":
        raise NotRewritten
    group = to.rows_with_lod(maker, "DistMat").group
    if to.parent_of(group) is not None:
        raise NotRewritten
    return group


def _starts(offsets: Any) -> Any:
    """The first row of each sequence."""
    return offsets[:-1, None]


def _columns(offsets: Any, count: int, columns: int) -> Any:
    """The column of each of `count` priors, for boxes with this number of columns."""
    return np.arange(count) % columns


def _add_constant(to: Rewriter, op: Operator, value: float, dtype: VarType) -> str:
    """Add a constant of one number."""
    return to.add(op, "fill_constant", {}, shape=[1], dtype=dtype, value=float(value))


def _add_cast(to: Rewriter, op: Operator, name: str, dtype: VarType) -> str:
    """Add a cast to another element type."""
    return to.add(op, "cast", {"X": name}, in_dtype=to.block.var(name).dtype, out_dtype=dtype)


def _mask_free(to: Rewriter, op: Operator, matches: str) -> str:
    """Add a mask of the priors without a match."""
    return to.add(op, "less_than", {"X": matches, "Y": _add_constant(to, op, 0, to.block.var(matches).dtype)})


@_rewrites("target_assign")
def _rewrite_targets(to: Rewriter, op: Operator) -> Mapping[str, RowFacts]:
    """Take the rows of matched boxes."""
    (x,), (matches,), negatives = op.input("X"), op.input("MatchIndices"), op.input("NegIndices")
    group, var, priors = to.rows_with_lod(op, "X").group, to.block.var(x), to.block.var(matches).shape[1]
    if _matched_group(to, matches) != group or not to.private.issuperset(negatives) or -1 in (priors, *var.shape[1:]):
        raise NotRewritten
    _, columns, size = var.shape
    first = to.index(Index(group, _starts, Extent.SEQUENCES, width=1))
    rows = to.add(op, "elementwise_add", {"X": _add_cast(to, op, matches, VarType.INT64), "Y": first})
    if columns > 1:
        column = to.index(Index(group, _columns, Extent.STEPS, steps=priors, arguments=(priors, columns)))
        rows = to.add(op, "elementwise_add", {"X": to.add(op, "scale", {"X": rows}, scale=float(columns)), "Y": column})
    free, none = _mask_free(to, op, matches), to.add(op, "fill_any_like", {"X": rows}, value=-1.0)
    index = to.add(op, "where", {"Condition": free, "X": none, "Y": rows})
    flat = to.add(op, "reshape", {"X": x}, shape=[-1, size])
    mismatch = float(op.attr("mismatch_value"))
    for out in op.output("Out"):
        targets = to.add(op, "take_rows", {"X": flat, "Index": index}, None if mismatch else out)
        if mismatch:  # without a match, the numbers are zeros
            shifts = to.add(op, "scale", {"X": _add_cast(to, op, free, var.dtype)}, scale=mismatch)
            to.add(op, "elementwise_add", {"X": targets, "Y": to.add(op, "unsqueeze", {"X": shifts}, axes=[2])}, out)
    for out in op.output("OutWeight"):
        learned = to.add(op, "logical_not", {"X": free})
        for mask in negatives:
            learned = to.add(op, "logical_or", {"X": learned, "Y": mask})
        to.add(op, "unsqueeze", {"X": _add_cast(to, op, learned, VarType.FP32)}, out, axes=[2])
    return {}


@_rewrites("mine_hard_examples")
def _rewrite_mining(to: Rewriter, op: Operator) -> Mapping[str, RowFacts]:
    """Write a mask of the priors to learn from as background, in place of their numbers."""
    (loss,), (matches,), (similar,) = (op.input(slot) for slot in ("ClsLoss", "MatchIndices", "MatchDist"))
    (negatives,), dtype = op.output("NegIndices"), to.block.var(loss).dtype
    _matched_group(to, matches)
    if op.attr("mining_type") != "max_negative" or loss in to.rows:
        raise NotRewritten
    free = _mask_free(to, op, matches)
    threshold = _add_constant(to, op, op.attr("neg_dist_threshold"), to.block.var(similar).dtype)
    eligible = to.add(op, "logical_and", {"X": free, "Y": to.add(op, "less_than", {"X": similar, "Y": threshold})})

    def count(mask: str, dtype: VarType) -> str:
        return to.add(op, "reduce_sum", {"X": _add_cast(to, op, mask, dtype)}, dim=[1], keep_dim=True)

    matched = count(to.add(op, "logical_not", {"X": free}), VarType.FP32)
    most = _add_cast(to, op, to.add(op, "scale", {"X": matched}, scale=float(op.attr("neg_pos_ratio"))), VarType.INT64)
    most = to.add(op, "elementwise_min", {"X": most, "Y": count(eligible, VarType.INT64)})
    far = to.add(op, "fill_any_like", {"X": loss}, value=np.finfo(dtype.numpy).max.item())
    keys = to.add(op, "where", {"Condition": eligible, "X": to.add(op, "scale", {"X": loss}, scale=-1.0), "Y": far})
    order = to.add(op, "argsort", {"X": keys}, slot="Indices", axis=1)
    ranks = to.add(op, "argsort", {"X": order}, slot="Indices", axis=1)
    chosen = to.add(op, "less_than", {"X": ranks, "Y": most})
    to.add(op, "logical_and", {"X": eligible, "Y": chosen}, negatives)
    to.private.add(negatives)
    for out in op.output("UpdatedMatchIndices"):
        to.add(op, "assign", {"X": matches}, out)
    return {}
