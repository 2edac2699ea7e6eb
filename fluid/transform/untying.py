"""Separate the parameters that an exporter merged because their values were equal.

Exporters write equal arrays once: all biases of zeros of one length, say, and running means with them. A layer that the model
applies several times shares its arrays, too, but there the matrices around the array are the same each time.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from ..ir.program import Block, Operator, Variable
from ..opdef.registry import EMPTY
from ..values.types import VarType, is_floating

STATISTICS = frozenset({"Mean", "Variance"})
"""Inputs of batch_norm that it updates."""


_Place = tuple[frozenset[str], frozenset[str]]
"""The matrices nearest before and behind an op."""
_LAYER_SLOTS = STATISTICS | {"Scale", "Bias"}
"""Inputs of normalizations: arrays in two of them are two parameters."""


class Use(NamedTuple):
    """One input of an op."""

    op: Operator
    slot: str


def vectors_and_matrices(block: Block) -> tuple[list[str], list[str]]:
    """Names of the persistable floating-point variables that are read: the vectors, and the others.

    A vector has one dimension, or one that is larger than 1 if only elementwise ops read it. One that is written, other than by
    a batch_norm as its statistic, is in neither list.
    """
    readers: dict[str, set[str]] = {}
    assigned: set[str] = set()
    for op in block.ops:
        for name in op.input_arg_names:
            readers.setdefault(name, set()).add(op.type)
        for slot, names in op.outputs.items():
            if slot.removesuffix("Out") not in STATISTICS:
                assigned.update(names)
    vectors, matrices = [], []
    for name, types in readers.items():
        var = block.vars.get(name)
        if var is None or name in assigned or not is_weight(var):
            continue
        large = sum(size > 1 for size in var.shape)
        if var.ndim == 1 or (large == 1 and all(kind.startswith("elementwise_") for kind in types)):
            vectors.append(name)
        elif large:
            matrices.append(name)
    return vectors, matrices


def is_weight(var: Variable) -> bool:
    """Whether the variable is a persistable floating-point tensor."""
    return var.persistable and var.type is VarType.LOD_TENSOR and var.has_shape and is_floating(var.dtype)


def merged_uses(block: Block) -> dict[str, list[list[Use]]]:
    """The uses of each vector that was merged from several parameters, grouped by these parameters.

    Two uses are of one parameter if

    - they are the same input of ops of one type, and a matrix that several ops of one type read is the nearest before both, or
      the nearest behind both: a layer that is applied several times;
    - or the nearest matrices before and behind are the same, and no layer reads it: a formula with the parameter twice.

    Vectors that blocks inside read are left out.
    """
    vectors, matrices = vectors_and_matrices(block)
    nested = {name for op in block.ops for sub in op.sub_blocks for inner in sub.ops for name in inner.input_arg_names}
    uses: dict[str, list[Use]] = {name: [] for name in vectors if name not in nested}
    for op in block.ops:
        for slot, names in op.inputs.items():
            for name in names:
                if name in uses:
                    uses[name].append(Use(op, slot))
    repeated = {name: readers for name, readers in uses.items() if len(readers) > 1}
    if not repeated:
        return {}
    places = _places(block, frozenset(matrices), frozenset(vectors))
    several = _read_by_several(block, frozenset(matrices))
    grouped = {name: _grouped(readers, places, several) for name, readers in repeated.items()}
    return {name: groups for name, groups in grouped.items() if len(groups) > 1}


def read_from(use: Use, old: str, new: str) -> None:
    """Have the op read `new` instead of `old`; a statistic that it updates in place is updated there."""
    op, slot = use
    op.inputs = {**op.inputs, slot: [new if name == old else name for name in op.inputs[slot]]}
    out = f"{slot}Out"
    if slot in STATISTICS and op.outputs.get(out) == [old]:
        op.outputs = {**op.outputs, out: [new]}


def _grouped(uses: Iterable[Use], places: Mapping[int, _Place], several: frozenset[str]) -> list[list[Use]]:
    def is_one(use: Use, second: Use) -> bool:
        place, its_place = places[id(use.op)], places[id(second.op)]
        if not _LAYER_SLOTS & {use.slot, second.slot} and place == its_place:
            return True
        is_same_input = (use.op.type, use.slot) == (second.op.type, second.slot)
        return is_same_input and any(side & its_side & several for side, its_side in zip(place, its_place, strict=True))

    groups: list[list[Use]] = []
    for use in uses:
        joined = [group for group in groups if any(is_one(use, second) for second in group)]
        groups = [group for group in groups if group not in joined]
        groups.append([*(second for group in joined for second in group), use])
    return groups


def _places(block: Block, matrices: frozenset[str], vectors: frozenset[str]) -> dict[int, _Place]:
    """The place of each op, by its id; an op on weights alone is where its result meets something else."""
    none: frozenset[str] = frozenset()
    before: dict[str, frozenset[str]] = {name: frozenset({name}) for name in matrices}
    of_matrices, of_weights = set(matrices), {*matrices, *vectors}  # and results that depend on nothing else
    ahead: dict[int, frozenset[str]] = {}
    for op in block.ops:
        names = [name for name in op.input_arg_names if name != EMPTY]
        read = of_matrices.intersection(names)
        ahead[id(op)] = none.union(*(before.get(name, none) for name in read or names))
        before.update(dict.fromkeys(op.output_arg_names, ahead[id(op)]))
        if read:
            of_matrices.update(op.output_arg_names if read.issuperset(names) else ())
        if names and of_weights.issuperset(names):
            of_weights.update(op.output_arg_names)
    behind: dict[str, frozenset[str]] = {}
    places: dict[int, _Place] = {}
    readers: dict[str, list[_Place]] = {}
    for op in reversed(block.ops):
        nearest = none.union(*(behind.get(name, none) for name in op.output_arg_names))
        place = ahead[id(op)], nearest
        if of_weights.issuperset(op.input_arg_names):
            place = next((reader for name in op.output_arg_names for reader in readers.get(name, ())), place)
        places[id(op)] = place
        read = of_matrices.intersection(op.input_arg_names)
        towards = none.union(*(before[name] for name in read)) if read else nearest
        for name in op.input_arg_names:
            behind[name] = behind.get(name, none) | towards
            readers.setdefault(name, []).append(place)
    return places


def _read_by_several(block: Block, matrices: frozenset[str]) -> frozenset[str]:
    """The matrices that are one input of several ops of one type; a table that is looked up and multiplied by is not."""
    seen: set[tuple[str, str, str]] = set()
    repeated = set()
    for op in block.ops:
        for slot, names in op.inputs.items():
            for name in matrices.intersection(names):
                key = (name, op.type, slot)
                if key in seen:
                    repeated.add(name)
                seen.add(key)
    return frozenset(repeated)
