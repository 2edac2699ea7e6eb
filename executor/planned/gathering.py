"""Gathers the inputs of an embedding's sparse gradient from all workers, in place of the gradient itself.

``grad = lookup_table_grad(W, Ids, dOut); grad = c_allreduce_sum(grad)`` becomes the gradient of all workers' Ids and dOut, if
their shapes are known. These are tensors of planned shapes, so native code can compute them, and workers need not exchange their
numbers of rows.
"""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from dataclasses import replace
from typing import Any

from fluid.ir.program import Operator
from fluid.ir.versions import Value
from fluid.opdef import registry
from fluid.opdef.registry import grad_slot
from fluid.values.spec import Spec

__all__ = ["gather_lookups"]

_LOOKUPS = ("lookup_table_grad", "lookup_table_v2_grad")


def gather_lookups(instructions: Sequence[Any], specs: dict[Value, Spec], storage: Container[str]) -> list[Any]:
    """Apply this rewrite to the instructions of a plan; adds the specs of gathered tensors. Inputs in `storage` are excluded:
    an op may overwrite them before the gathering."""
    makers = {lookup.written[0]: lookup for lookup in instructions if lookup.op.type in _LOOKUPS and len(lookup.written) == 1}
    exchanged = [instruction for instruction in instructions if _can_exchange(instruction, makers, instructions, specs, storage)]
    if not exchanged:
        return list(instructions)
    left_out = {id(makers[instruction.read[0]]) for instruction in exchanged}
    results: list[Any] = []
    gathered: dict[Value, Value] = {}
    for instruction in instructions:
        if instruction in exchanged:
            results += _gathered(instruction, makers[instruction.read[0]], gathered, specs)
        elif id(instruction) not in left_out:
            results.append(instruction)
    return results


def _can_exchange(
    instruction: Any,
    makers: dict[Value, Any],
    instructions: Sequence[Any],
    specs: dict[Value, Spec],
    storage: Container[str],
) -> bool:
    if instruction.op.type != "c_allreduce_sum" or not instruction.op.attrs.get("nranks") or len(instruction.read) != 1:
        return False
    (rows,) = instruction.read
    maker = makers.get(rows)
    if maker is None or not maker.op.attrs.get("is_sparse"):
        return False
    values = [maker.reads[slot][0] for slot in ("Ids", grad_slot("Out"))]
    sources = [specs.get(value) for value in values if value[0] not in storage]
    readers = [instruction for instruction in instructions if rows in instruction.read or rows in instruction.outer.values()]
    are_known = all(spec is not None and spec.known and spec.ndim and not spec.lod for spec in sources)
    return len(sources) == 2 and are_known and readers == [instruction]


def _gathered(instruction: Any, maker: Any, gathered: dict[Value, Value], specs: dict[Value, Spec]) -> list[Any]:
    """The instructions that gather the inputs of `maker`, and the op of `maker` on the gathered tensors."""
    results = []
    reads = dict(maker.reads)
    outer: dict[str, Value] = {}
    for slot in ("Ids", grad_slot("Out")):
        (value,) = maker.reads[slot]
        if value not in gathered:
            results.append(_gathering(instruction, value, gathered, specs))
        reads[slot] = [gathered[value]]
    for values in reads.values():
        outer.update((value[0], value) for value in values if value is not None)
    writes = {slot: list(instruction.written) for slot, values in maker.writes.items() if any(values)}
    op = Operator(maker.op.block, maker.op.type, _names(reads), _names(writes), dict(maker.op.attrs), maker.op.frames)
    return [*results, replace(maker, op=op, reads=reads, writes=writes, outer=outer)]


def _names(slots: Mapping[str, Sequence[Value | None]]) -> dict[str, list[str]]:
    return {slot: [value[0] for value in values if value is not None] for slot, values in slots.items()}


def _gathering(instruction: Any, value: Value, gathered: dict[Value, Value], specs: dict[Value, Spec]) -> Any:
    spec, workers = specs[value], int(instruction.op.attrs["nranks"])
    out = gathered[value] = (f"{value[0]}@{value[1]}@ALL", 1)
    specs[out] = spec.with_shape((spec.shape[0] * workers, *spec.shape[1:]))
    op = Operator(
        instruction.op.block,
        "c_allgather",
        {"X": [value[0]]},
        {"Out": [out[0]]},
        {"nranks": workers, "use_calc_stream": True},
        instruction.op.frames,
    )
    return replace(
        instruction,
        op=op,
        definition=registry.get("c_allgather"),
        reads={"X": [value]},
        writes={"Out": [out]},
        outer={value[0]: value},
        dynamic=False,
    )
