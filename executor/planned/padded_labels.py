"""Patches of images as sequences, and their labels, in programs with padded rows (see `padded_rows`)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from fluid.autodiff.expand import expand_composition, expand_gradient
from fluid.ir.program import Operator
from fluid.opdef.inference import infer_specs
from fluid.opdef.registry import get, grad_slot
from fluid.values.spec import Spec

from .padded_rows import REWRITES, NotRewritten, Padding, Rewriter, RowFacts
from .sequence_batch import DerivedLod, Extent, Index, divisors_of, padded_places, places_at_steps, rows_at_steps

__all__ = ["ON_STEPS"]

ON_STEPS = ("warpctc", "ctc_align", "edit_distance")
"""Ops over sequences that become ops on padded steps."""
_rewrites = REWRITES.register


# ---------------------------------------------------------------------------------------------------------------- patches
def _group_of_patches(to: Rewriter, op: Operator) -> int:
    """The LoD of patches of images, one image for each sequence of the first LoD."""
    (x,), group = op.input("X"), next((group for group in range(len(to.sizes)) if to.parent_of(group) is None), None)
    if op.input("Y") or group is None or x in to.rows or -1 in (sizes := to.block.var(to.readable(x)).shape[1:]):
        raise NotRewritten
    shape = infer_specs(get("im2sequence"), {"X": Spec((1, *sizes), to.block.var(x).dtype)}, op.attrs)["Out"].shape
    return to.derive(DerivedLod((group,), _equal_offsets, arguments=shape[:1]), to.sizes[group][0] * shape[0], shape[0])


@_rewrites("im2sequence")
def _rewrite_patches(to: Rewriter, op: Operator) -> Mapping[str, RowFacts]:
    """Write patches of images. Planning fails unless there is an image for each sequence."""
    (x,), (out,), group = op.input("X"), op.output("Out"), _group_of_patches(to, op)
    images = to.add(op, "reshape", {"X": x}, shape=[to.sizes[group][0], 0, 0, 0])
    expand_composition(to.block, to.block.append_op("im2sequence", {"X": images}, {"Out": out}, op.attrs, frames=op.frames))
    return {out: RowFacts(group, True, Padding.COPIES)}


def _equal_offsets(offsets: Any, length: int) -> Any:
    """Offsets of the same number of sequences, which all have one length."""
    return np.arange(len(offsets)) * length


@_rewrites("im2sequence_grad")
def _rewrite_patches_grad(to: Rewriter, op: Operator) -> Mapping[str, RowFacts]:
    if to.rows_of(op, grad_slot("Out")).group != _group_of_patches(to, op):  # other sequences may have padding
        raise NotRewritten
    to.block.ops.append(op)
    expand_gradient(to.block, op)
    return {}


# ----------------------------------------------------------------------------------------------------------------- labels
def _group_of_labels(to: Rewriter, op: Operator, slot: str) -> int:
    """The LoD of an op's input; `NotRewritten` if its sequences are nested."""
    group = to.rows_with_lod(op, slot).group
    if to.parent_of(group) is not None:
        raise NotRewritten
    return group


def _lengths(to: Rewriter, group: int) -> str:
    """The length of each sequence."""
    return to.index(Index(group, np.diff, Extent.SEQUENCES))


@dataclass(frozen=True)
class _Aligned:
    """What `ctc_align` gives: labels that are padded to steps. The value `lengths` holds their numbers."""

    lengths: str


def _pad_labels(to: Rewriter, op: Operator, slot: str) -> tuple[str, str]:
    """Pad labels to ``[sequences, steps]``; returns them and their lengths."""
    (name,) = op.input(slot)
    aligned = to.loops.get(name)
    if isinstance(aligned, _Aligned):
        return name, aligned.lengths
    group = _group_of_labels(to, op, slot)
    steps = to.steps_of(group)
    places = to.index(Index(group, padded_places, Extent.SEQUENCES, width=steps, arguments=(steps, op)))
    labels = to.add(op, "take_rows", {"X": name, "Index": places})
    return to.add(op, "reshape", {"X": labels}, shape=[to.sizes[group][0], steps]), _lengths(to, group)


@_rewrites("ctc_align")
def _rewrite_alignment(to: Rewriter, op: Operator) -> Mapping[str, RowFacts]:
    """Write labels that are padded to steps, which only rewritten ops can read."""
    (words,) = op.output("Output")
    labels, lengths = _pad_labels(to, op, "Input")
    counts = to.fresh_name("lengths")
    to.block.create_var(name=counts, stop_gradient=True)
    outputs = {"Output": words, "OutputLength": counts}
    to.block.append_op("ctc_align", {"Input": labels, "InputLength": lengths}, outputs, op.attrs, frames=op.frames)
    to.private.add(words)
    to.loops[words] = _Aligned(counts)
    return {}


@_rewrites("edit_distance")
def _rewrite_distance(to: Rewriter, op: Operator) -> Mapping[str, RowFacts]:
    """Write the distances of padded sequences."""
    inputs = {}
    for slot in ("Hyps", "Refs"):
        if op.input(f"{slot}Length"):
            raise NotRewritten
        inputs[slot], inputs[f"{slot}Length"] = _pad_labels(to, op, slot)
    to.block.append_op("edit_distance", inputs, dict(op.outputs), op.attrs, frames=op.frames)
    return {}


@_rewrites("warpctc")
def _rewrite_ctc(to: Rewriter, op: Operator) -> Mapping[str, RowFacts]:
    """Write the loss of padded sequences."""
    (logits,), (loss,), (gradient,) = op.input("Logits"), op.output("Loss"), op.output("WarpCTCGrad")
    groups = _group_of_labels(to, op, "Logits"), _group_of_labels(to, op, "Label")
    (count, _), steps = to.sizes[groups[0]], to.steps_of(groups[0])
    if count != to.sizes[groups[1]][0]:
        raise NotRewritten
    rows = to.index(Index(groups[0], rows_at_steps, Extent.STEPS, width=count, steps=steps, arguments=(steps,)))
    label, letters = _pad_labels(to, op, "Label")
    inputs = {
        "Logits": to.add(op, "take_rows", {"X": logits, "Index": rows}),
        "Label": label,
        "LogitsLength": _lengths(to, groups[0]),
        "LabelLength": letters,
    }
    to.block.append_op("warpctc", inputs, {"Loss": loss, "WarpCTCGrad": gradient}, op.attrs, frames=op.frames)
    to.private.add(gradient)
    return {}


@_rewrites("warpctc_grad")
def _rewrite_ctc_grad(to: Rewriter, op: Operator) -> Mapping[str, RowFacts]:
    """Write the gradient of the loss of padded sequences: the rows of its steps."""
    (logits,), (gradient,), (d_loss,), (d_logits,) = (
        *(op.input(slot) for slot in ("Logits", "WarpCTCGrad", grad_slot("Loss"))),
        op.output(grad_slot("Logits")),
    )
    group = _group_of_labels(to, op, "Logits")
    if gradient not in to.private:
        raise NotRewritten
    if op.attr("norm_by_times"):
        times = to.index(Index(group, divisors_of, Extent.SEQUENCES, dtype=to.block.var(logits).dtype))
        d_loss = to.add(op, "elementwise_div", {"X": d_loss, "Y": times}, axis=0)
    of_steps = to.add(op, "elementwise_mul", {"X": gradient, "Y": d_loss})
    flat = to.add(op, "reshape", {"X": of_steps}, shape=[-1, to.block.var(logits).shape[1]])
    to.add(op, "take_rows", {"X": flat, "Index": to.index(Index(group, places_at_steps))}, d_logits)
    return {d_logits: RowFacts(group, True, Padding.ZEROS)}
