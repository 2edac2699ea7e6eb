"""How ops that read a LoD, or mix rows, are written for padded rows (see `padded_rows`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import prod
from typing import Any

import numpy as np

from fluid.errors import InferenceError
from fluid.ir.program import Operator, OpRole, Program, Variable
from fluid.opdef.registry import EMPTY, grad_slot
from fluid.values.types import VarType

from ..kernels.sequence import mirrored
from .padded_rows import REWRITES, UNPADDING, NotRewritten, PaddedProgram, Padding, Rewriter, RowFacts
from .sequence_batch import (
    DerivedLod,
    Extent,
    Index,
    SequenceBatch,
    joined_offsets,
    joined_rows,
    padded_places,
    places_in_slices,
    places_of_part,
    sliced_offsets,
    sliced_rows,
    steps_of,
)
from .specialization import deciding_names

__all__ = ["VIEWS", "fed_lengths", "is_zero", "keeps_rows", "padded_program"]

_FLOATS = (VarType.FP32, VarType.FP64)
_rewrites = REWRITES.register


@_rewrites("sequence_pool")
def _rewrite_pool(to: Rewriter, op: Operator) -> Mapping[str, RowFacts]:
    (x,), (out,), group = op.input("X"), op.output("Out"), to.rows_with_lod(op, "X").group
    kind = str(op.attr("pooltype")).upper()
    if op.attr("pad_value") or to.block.var(x).dtype not in _FLOATS:
        raise NotRewritten
    target = out if to.parent_of(group) is None else None
    divisor = to.divisor(op, x, group)
    if kind == "MAX":
        pooled = _rewrite_maximum(to, op, x, target, group)
    elif kind in ("FIRST", "LAST"):
        pooled = to.add(op, "take_rows", {"X": x, "Index": to.ends(group, kind)}, target)
    elif divisor is None:
        pooled = to.sums(op, x, group, target)
    else:
        pooled = to.add(op, "elementwise_div", {"X": to.sums(op, x, group), "Y": divisor}, target, axis=0)
    return to.of_sequences(op, pooled, group, out)


def _rewrite_maximum(to: Rewriter, op: Operator, x: str, out: str | None, group: int) -> str:
    """Write maxima of sequences. MaxIndex holds the countdown of the first row with the maximum, 0 for an empty sequence."""
    maxima = to.maxima(op, x, group, out)
    max_index = next(iter(op.output("MaxIndex")), None)
    if max_index not in to.read:
        return maxima
    if len(to.block.var(x).shape) != 2:
        raise NotRewritten
    to.private.add(max_index)
    ids = to.ids(group, None)
    is_maximum = to.add(op, "equal", {"X": x, "Y": to.add(op, "take_rows", {"X": maxima, "Index": ids})})
    numbers = to.add(op, "cast", {"X": is_maximum}, in_dtype=VarType.BOOL, out_dtype=VarType.INT32)
    to.maxima(op, to.add(op, "elementwise_mul", {"X": numbers, "Y": to.countdown(group)}), group, max_index)
    return maxima


def _rewrite_maximum_grad(to: Rewriter, op: Operator, group: int, gradient: str, d_x: str) -> None:
    """Write the gradient of a maximum that `_rewrite_maximum` has written: it goes to the first row with the maximum."""
    (x,), (max_index,), ids = op.input("X"), op.input("MaxIndex"), to.ids(group)
    if max_index not in to.private:
        raise NotRewritten
    is_first_maximum = to.add(
        op, "equal", {"X": to.add(op, "take_rows", {"X": max_index, "Index": ids}), "Y": to.countdown(group)}
    )
    choices = {"X": to.add(op, "take_rows", {"X": gradient, "Index": ids}), "Y": to.zeros(op, x, to.sizes[group][1])}
    to.add(op, "where", {"Condition": is_first_maximum, **choices}, d_x)


@_rewrites("sequence_pool_grad")
def _rewrite_pool_grad(to: Rewriter, op: Operator) -> Mapping[str, RowFacts]:
    (x,), (gradient,), (d_x,) = op.input("X"), op.input(grad_slot("Out")), op.output(grad_slot("X"))
    group, kind = to.rows_with_lod(op, "X").group, str(op.attr("pooltype")).upper()
    result = {d_x: RowFacts(group, True, Padding.ZEROS)}
    if gradient in to.rows:
        gradient = to.with_zeros(op, gradient)
    if kind == "MAX":
        _rewrite_maximum_grad(to, op, group, gradient, d_x)
        return result
    if kind in ("FIRST", "LAST"):
        to.add(op, "add_rows", {"X": gradient, "Index": to.ends(group, kind), "Like": x}, d_x)
        return result
    divisor = to.divisor(op, x, group)
    if divisor is not None:
        gradient = to.add(op, "elementwise_div", {"X": gradient, "Y": divisor}, axis=0)
    to.add(op, "take_rows", {"X": gradient, "Index": to.ids(group)}, d_x)
    return result


def _repeats_by_last_level(to: Rewriter, op: Operator, group: int) -> bool:
    """Whether an expansion repeats rows by the innermost sequences."""
    return "sequence_expand_as" in op.type or op.attr("ref_level") in (-1, len(to.levels_of(group)) - 1)


@_rewrites("sequence_expand", "sequence_expand_as")
def _rewrite_expand(to: Rewriter, op: Operator) -> Mapping[str, RowFacts]:
    (x,), (out,), rows = op.input("X"), op.output("Out"), to.rows_with_lod(op, "Y")
    if x in to.rows or to.block.var(x).lod_level or op.role & OpRole.BACKWARD or not _repeats_by_last_level(to, op, rows.group):
        raise NotRewritten
    checked = _with_checked_rows(to, op, x, rows.group)
    to.add(op, "take_rows", {"X": checked, "Index": to.ids(rows.group, None)}, out)
    return {out: RowFacts(rows.group, op.type == "sequence_expand_as", Padding.COPIES)}


def _with_checked_rows(to: Rewriter, op: Operator, x: str, group: int) -> str:
    """Let planning fail unless a value has a row for each sequence; only a run tells the number of nested ones."""
    if to.parent_of(group) is not None:
        raise NotRewritten
    same = [0] * (len(to.block.var(x).shape) - 1)
    return to.add(op, "reshape", {"X": x}, shape=[to.sizes[group][0], *same])


@_rewrites("sequence_expand_grad", "sequence_expand_as_grad")
def _rewrite_expand_grad(to: Rewriter, op: Operator) -> Mapping[str, RowFacts]:
    (x,), (gradient,), rows = op.input("X"), op.input(grad_slot("Out")), to.rows_of(op, grad_slot("Out"))
    if x in to.rows or to.rows_with_lod(op, "Y").group != rows.group or not _repeats_by_last_level(to, op, rows.group):
        raise NotRewritten
    to.add(op, "add_rows", {"X": gradient, "Index": to.ids(rows.group), "Like": x}, op.output(grad_slot("X"))[0])
    return {}


@_rewrites("sequence_reverse")
def _rewrite_reverse(to: Rewriter, op: Operator) -> Mapping[str, RowFacts]:
    (out,), rows = op.output("Y"), to.rows_with_lod(op, "X")
    if rows.padding is Padding.UNKNOWN:
        raise NotRewritten
    index = to.index(Index(rows.group, mirrored, padding=None if rows.padding is Padding.COPIES else -1))
    to.add(op, "take_rows", {"X": op.input("X")[0], "Index": index}, out)
    return {out: rows}


@_rewrites("lod_reset")
def _rewrite_reset(to: Rewriter, op: Operator) -> Mapping[str, RowFacts]:
    """Give rows the LoD of their group."""
    (x,), (out,), rows = op.input("X"), op.output("Out"), to.rows_of(op, "X")
    if not op.input("Y") or op.attr("append") or to.rows_with_lod(op, "Y").group != rows.group:
        raise NotRewritten
    to.add(op, "assign", {"X": x}, out)
    return {out: replace(rows, has_lod=True)}


def _windows(to: Rewriter, op: Operator, rows: RowFacts) -> str:
    """For each row, the rows that `sequence_conv` multiplies by the filter, joined to one row."""
    if op.attr("paddingTrainable") or op.attr("contextStride") != 1:
        raise NotRewritten
    length, (x,) = op.attr("contextLength"), op.input("X")
    in_windows = to.add(op, "take_rows", {"X": x, "Index": to.context(op, rows.group, None)})
    return to.add(op, "reshape", {"X": in_windows}, shape=[-1, length * to.block.var(x).shape[1]])


@_rewrites("sequence_conv")
def _rewrite_conv(to: Rewriter, op: Operator) -> Mapping[str, RowFacts]:
    (out,), rows = op.output("Out"), to.rows_with_lod(op, "X", Padding.COPIES)
    to.add(op, "mul", {"X": _windows(to, op, rows), "Y": op.input("Filter")[0]}, out)
    return {out: rows}


@_rewrites("sequence_conv_grad")
def _rewrite_conv_grad(to: Rewriter, op: Operator) -> Mapping[str, RowFacts]:
    (x,), (gradient,), (weight,) = op.input("X"), op.input(grad_slot("Out")), op.input("Filter")
    rows, results = to.rows_with_lod(op, "X", Padding.COPIES), dict[str, RowFacts]()
    to.rows_of(op, grad_slot("Out"), Padding.ZEROS)
    for name in op.output(grad_slot("Filter")):
        to.add(op, "matmul", {"X": _windows(to, op, rows), "Y": gradient}, name, transpose_X=True)
    for name in op.output(grad_slot("X")):
        of_windows = to.add(op, "matmul", {"X": gradient, "Y": weight}, transpose_Y=True)
        in_windows = to.add(op, "reshape", {"X": of_windows}, shape=[-1, op.attr("contextLength"), to.block.var(x).shape[1]])
        to.add(op, "add_rows", {"X": in_windows, "Index": to.context(op, rows.group), "Like": x}, name)
        results[name] = replace(rows, padding=Padding.ZEROS)
    return results


@_rewrites("sequence_softmax")
def _rewrite_softmax(to: Rewriter, op: Operator) -> Mapping[str, RowFacts]:
    (x,), (out,), rows = op.input("X"), op.output("Out"), to.rows_with_lod(op, "X", Padding.COPIES)
    ids = to.ids(rows.group, None)
    maxima = to.add(op, "take_rows", {"X": to.maxima(op, x, rows.group), "Index": ids})
    powers = to.add(op, "exp", {"X": to.add(op, "elementwise_sub", {"X": x, "Y": maxima})})
    sums = to.add(op, "take_rows", {"X": to.sums(op, powers, rows.group), "Index": ids})
    to.add(op, "elementwise_div", {"X": powers, "Y": sums}, out)
    return {out: rows}


@_rewrites("sequence_softmax_grad")
def _rewrite_softmax_grad(to: Rewriter, op: Operator) -> Mapping[str, RowFacts]:
    (out,), (gradient,), (d_x,) = op.input("Out"), op.input(grad_slot("Out")), op.output(grad_slot("X"))
    to.rows_of(op, "Out", Padding.COPIES)
    rows = to.rows_of(op, grad_slot("Out"), Padding.ZEROS)
    products = to.add(op, "elementwise_mul", {"X": out, "Y": gradient})
    sums = to.add(op, "take_rows", {"X": to.sums(op, products, rows.group), "Index": to.ids(rows.group)})
    to.add(op, "elementwise_mul", {"X": out, "Y": to.add(op, "elementwise_sub", {"X": gradient, "Y": sums})}, d_x)
    return {d_x: rows}


# ------------------------------------------------------------------------------------------------------- padded sequences
def fed_lengths(program: Program) -> tuple[str, ...]:
    """The feeds that hold lengths of padded sequences, for `sequence_unpad`."""
    block = program.global_block()
    names = {name for op in block.ops if op.type == UNPADDING for name in op.input("Length") if block.vars[name].is_data}
    return tuple(sorted(names.difference(*(op.output_arg_names for op in block.ops)))) if names else ()


def _steps(to: Rewriter, group: int) -> str:
    """An index of sequence and step for each row."""
    return to.index(Index(group, steps_of, padding=None, width=2))


@_rewrites(UNPADDING)
def _rewrite_unpad(to: Rewriter, op: Operator) -> Mapping[str, RowFacts]:
    (x,), (length,), (out,) = op.input("X"), op.input("Length"), op.output("Out")
    group = to.lengths.get(length)
    if group is None or x in to.rows:
        raise NotRewritten
    if to.block.var(x).ndim > 2:
        to.add(op, "gather_nd", {"X": x, "Index": _steps(to, group)}, out)
    else:
        to.add(op, "unsqueeze", {"X": to.add(op, "gather_nd", {"X": x, "Index": _steps(to, group)})}, out, axes=[1])
    return {out: RowFacts(group, True, Padding.COPIES)}


@_rewrites(f"{UNPADDING}_grad")
def _rewrite_unpad_grad(to: Rewriter, op: Operator) -> Mapping[str, RowFacts]:
    """Write the gradient of unpadding: the rows go back to their steps."""
    (x,), (gradient,), (d_x,) = op.input("X"), op.input(grad_slot("Out")), op.output(grad_slot("X"))
    group = to.rows_of(op, grad_slot("Out")).group
    if x in to.rows or group not in to.lengths.values():
        raise NotRewritten
    rows = to.with_zeros(op, gradient)
    if to.block.var(x).ndim == 2:
        rows = to.add(op, "squeeze", {"X": rows}, axes=[1])
    to.add(op, "gather_nd_grad", {"X": x, "Index": _steps(to, group), grad_slot("Out"): rows}, d_x, slot=grad_slot("X"))
    return {}


@_rewrites("sequence_pad")
def _rewrite_pad(to: Rewriter, op: Operator) -> Mapping[str, RowFacts]:
    (x,), (out,), group, steps = op.input("X"), op.output("Out"), to.rows_with_lod(op, "X").group, int(op.attr("padded_length"))
    if steps < 0 or to.parent_of(group) is not None or not is_zero(to, op.input("PadValue")[0]):
        raise NotRewritten
    places = to.index(Index(group, padded_places, Extent.SEQUENCES, width=steps, arguments=(steps, op)))
    to.add(op, "take_rows", {"X": x, "Index": places}, out)
    for length in op.output("Length"):
        to.add(op, "assign", {"X": to.index(Index(group, np.diff, Extent.SEQUENCES))}, length)
        to.lengths[length] = group
    return {}


def is_zero(to: Rewriter, name: str) -> bool:
    """Whether a value is a constant 0."""
    makers = [op for op in to.block.ops if name in op.output_arg_names]
    return bool(makers) and makers[-1].type == "fill_constant" and not makers[-1].inputs and not float(makers[-1].attr("value"))


@_rewrites("sequence_pad_grad")
def _rewrite_pad_grad(to: Rewriter, op: Operator) -> Mapping[str, RowFacts]:
    (gradient,), (d_x,), rows = op.input(grad_slot("Out")), op.output(grad_slot("X")), to.rows_with_lod(op, "X")
    if gradient in to.rows:
        raise NotRewritten
    of_rows = to.add(op, "gather_nd", {"X": gradient, "Index": _steps(to, rows.group)})
    to.rows[of_rows] = replace(rows, padding=Padding.UNKNOWN)
    to.with_zeros(op, of_rows, d_x)
    return {d_x: replace(rows, padding=Padding.ZEROS)}


# ------------------------------------------------------------------------------------------------------- joined sequences
def _groups_of(to: Rewriter, op: Operator) -> tuple[int, ...]:
    """The LoDs of the sequences that are joined."""
    parts = [to.rows.get(name) for name in op.input("X")]
    groups = tuple(rows.group for rows in parts if rows is not None and rows.has_lod)
    if len(groups) < len(parts) or len({to.sizes[group][0] for group in groups}) > 1:
        raise NotRewritten
    return groups


@_rewrites("sequence_concat")
def _rewrite_concat(to: Rewriter, op: Operator) -> Mapping[str, RowFacts]:
    (out,), groups = op.output("Out"), _groups_of(to, op)
    capacities = tuple(to.sizes[group][1] for group in groups)
    joined = to.derive(DerivedLod(groups, joined_offsets), sum(capacities))
    rows = to.add(op, "concat", {"X": op.input("X")}, axis=0)
    index = to.index(Index(joined, joined_rows, padding=None, beside=groups, arguments=(capacities,)))
    to.add(op, "take_rows", {"X": rows, "Index": index}, out)
    return {out: RowFacts(joined, True, Padding.COPIES)}


@_rewrites("sequence_concat_grad")
def _rewrite_concat_grad(to: Rewriter, op: Operator) -> Mapping[str, RowFacts]:
    (gradient,), groups, results = op.input(grad_slot("Out")), _groups_of(to, op), dict[str, RowFacts]()
    to.rows_of(op, grad_slot("Out"))
    for number, (group, name) in enumerate(zip(groups, op.output(grad_slot("X")), strict=True)):
        if name != EMPTY:
            index = to.index(Index(group, places_of_part, beside=groups, arguments=(number,)))
            to.add(op, "take_rows", {"X": gradient, "Index": index}, name)
            results[name] = RowFacts(group, True, Padding.ZEROS)
    return results


def _fed_bounds(to: Rewriter, op: Operator) -> tuple[str, ...]:
    """The feeds that hold the bounds of slices."""
    names = (op.input("Offset")[0], op.input("Length")[0])
    if not all(to.block.var(name).is_data and name not in to.rows for name in names) or to.writes(names):
        raise NotRewritten
    return names


@_rewrites("sequence_slice")
def _rewrite_slice(to: Rewriter, op: Operator) -> Mapping[str, RowFacts]:
    (x,), (out,), group, bounds = op.input("X"), op.output("Out"), to.rows_with_lod(op, "X").group, _fed_bounds(to, op)
    slices = to.derive(DerivedLod((group,), sliced_offsets, bounds, (op,)), to.sizes[group][1])
    index = to.index(Index(slices, sliced_rows, padding=None, beside=(group,), feeds=bounds[:1]))
    to.add(op, "take_rows", {"X": x, "Index": index}, out)
    return {out: RowFacts(slices, True, Padding.COPIES)}


@_rewrites("sequence_slice_grad")
def _rewrite_slice_grad(to: Rewriter, op: Operator) -> Mapping[str, RowFacts]:
    (gradient,), (d_x,), group = op.input(grad_slot("Out")), op.output(grad_slot("X")), to.rows_with_lod(op, "X").group
    slices, bounds = to.rows_of(op, grad_slot("Out")).group, _fed_bounds(to, op)
    index = to.index(Index(group, places_in_slices, beside=(slices,), feeds=bounds[:1]))
    to.add(op, "take_rows", {"X": gradient, "Index": index}, d_x)
    return {d_x: RowFacts(group, True, Padding.ZEROS)}


# ------------------------------------------------------------------------------------------------- views of the same rows
def _squeezes_columns(op: Operator, x: Variable, out: Variable) -> bool:
    ndim = (out if op.type.startswith("un") else x).ndim
    return bool(op.attr("axes")) and all(axis % ndim for axis in op.attr("axes"))


def _reshapes_columns(op: Operator, x: Variable, out: Variable) -> bool:
    return (
        op.attr("shape")[0] in (0, -1) and -1 not in (*x.shape[1:], *out.shape[1:]) and prod(x.shape[1:]) == prod(out.shape[1:])
    )


def _flattens_columns(op: Operator, x: Variable, out: Variable) -> bool:
    return bool(op.attr("axis" if op.type.startswith("flatten2") else "start_axis") == 1)


def _transposes_columns(op: Operator, x: Variable, out: Variable) -> bool:
    return not op.attr("axis")[0]


VIEWS = {
    **dict.fromkeys(("squeeze", "squeeze2", "unsqueeze", "unsqueeze2"), _squeezes_columns),
    **dict.fromkeys(("reshape", "reshape2"), _reshapes_columns),
    **dict.fromkeys(("flatten2", "flatten_contiguous_range"), _flattens_columns),
    **dict.fromkeys(("transpose", "transpose2"), _transposes_columns),
}
"""Type of an op -> whether it leaves the rows where they are."""


def keeps_rows(op: Operator, x: Variable, out: Variable) -> bool:
    """Whether a view of X, or the gradient of one, leaves the rows where they are."""
    return VIEWS[op.type.removesuffix("_grad")](op, x, out)


@_rewrites(*VIEWS)
def _rewrite_view(to: Rewriter, op: Operator) -> Mapping[str, RowFacts]:
    """Keep an op that leaves the rows where they are."""
    (x,), (out,), rows = op.input("X"), op.output("Out"), to.rows_of(op, "X")
    if len(op.input_arg_names) > 1 or not keeps_rows(op, to.block.var(x), to.block.var(out)):
        raise NotRewritten
    to.block.ops.append(op)
    return {out: rows}


@_rewrites(*(f"{op_type}_grad" for op_type in VIEWS))
def _rewrite_view_grad(to: Rewriter, op: Operator) -> Mapping[str, RowFacts]:
    (d_x,), (gradient,), rows = op.output(grad_slot("X")), op.input(grad_slot("Out")), to.rows_of(op, grad_slot("Out"))
    variables = to.block.var(d_x), to.block.var(gradient)
    if not all(var.has_shape for var in variables) or not keeps_rows(op, *variables):
        raise NotRewritten
    op.inputs[grad_slot("Out")] = [to.with_zeros(op, gradient)]
    to.block.ops.append(op)
    return {d_x: replace(rows, padding=Padding.ZEROS)}


# ----------------------------------------------------------------------------------------------------------- random masks
@_rewrites("dropout")
def _rewrite_dropout(to: Rewriter, op: Operator) -> Mapping[str, RowFacts]:
    """Keep a dropout: the numbers for the real rows come first, so a run without padding draws the same."""
    (out,), rows = op.output("Out"), to.rows_of(op, "X")
    if op.input("Seed"):
        raise NotRewritten
    to.block.ops.append(op)
    to.with_copies(op, out, rows, out)
    masks = dict.fromkeys(op.output("Mask"), replace(rows, padding=Padding.UNKNOWN))
    return {**masks, out: replace(rows, padding=Padding.COPIES)}


@_rewrites("dropout_grad")
def _rewrite_dropout_grad(to: Rewriter, op: Operator) -> Mapping[str, RowFacts]:
    (d_x,), (gradient,), rows = op.output(grad_slot("X")), op.input(grad_slot("Out")), to.rows_of(op, grad_slot("Out"))
    op.inputs[grad_slot("Out")] = [to.with_zeros(op, gradient)]
    to.block.ops.append(op)
    return {d_x: replace(rows, padding=Padding.ZEROS)}


# ---------------------------------------------------------------------------------------------------------- over all rows
def _sum_over_rows(to: Rewriter, op: Operator) -> tuple[dict[str, Any], int]:
    """The attributes of the `reduce_sum` in a reduction over rows, and the count of numbers that it adds in each row."""
    (x,) = op.input("X")
    shape, is_mean = to.block.var(x).shape, op.type.startswith("mean")
    is_whole = is_mean or bool(op.attr("reduce_all"))
    axes = {axis % len(shape) for axis in (range(len(shape)) if is_whole else op.attr("dim"))}
    if 0 not in axes or -1 in shape[1:] or to.block.var(x).dtype not in _FLOATS:
        raise NotRewritten
    if not is_mean and max(op.attr("in_dtype"), op.attr("out_dtype")) >= 0:
        raise NotRewritten
    attrs = {"dim": sorted(axes), "reduce_all": is_whole, "keep_dim": not is_mean and bool(op.attr("keep_dim"))}
    return attrs, prod(shape[axis] for axis in axes - {0})


@_rewrites("mean", "reduce_mean", "reduce_sum")
def _rewrite_sum(to: Rewriter, op: Operator) -> Mapping[str, RowFacts]:
    """Write a sum, or a mean, of the real rows."""
    (x,), (out,), rows = op.input("X"), op.output("Out"), to.rows_of(op, "X")
    attrs, count = _sum_over_rows(to, op)
    if not to.block.var(out).shape:
        raise NotRewritten
    if op.type == "reduce_sum":
        to.add(op, "reduce_sum", {"X": to.with_zeros(op, x)}, out, **attrs)
    else:
        total = to.add(op, "reduce_sum", {"X": to.with_zeros(op, x)}, **attrs)
        to.add(op, "elementwise_div", {"X": total, "Y": to.count(x, rows.group, count)}, out)
    return {}


@_rewrites("mean_grad", "reduce_mean_grad", "reduce_sum_grad")
def _rewrite_sum_grad(to: Rewriter, op: Operator) -> Mapping[str, RowFacts]:
    (x,), (gradient,), (d_x,) = op.input("X"), op.input(grad_slot("Out")), op.output(grad_slot("X"))
    rows, (attrs, count) = to.rows_of(op, "X"), _sum_over_rows(to, op)
    if gradient in to.rows:
        raise NotRewritten
    if op.type != "reduce_sum_grad":
        gradient = to.add(op, "elementwise_div", {"X": gradient, "Y": to.count(x, rows.group, count)})
    of_all = to.add(op, "reduce_sum_grad", {"X": x, grad_slot("Out"): gradient}, slot=grad_slot("X"), **attrs)
    to.rows[of_all] = replace(rows, padding=Padding.UNKNOWN)
    to.with_zeros(op, of_all, d_x)
    return {d_x: replace(rows, padding=Padding.ZEROS)}


def padded_program(program: Program, fetches: Sequence[str], batch: SequenceBatch) -> PaddedProgram | None:
    """Rewrite a program for batches like this one; None if that is impossible."""
    if deciding_names(program):
        return None
    try:
        return Rewriter(program, fetches, batch).run()
    except (NotRewritten, InferenceError):  # an error of the program itself is reported as it runs
        return None
