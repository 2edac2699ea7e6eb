"""Gradient of `recurrent`: a block run once for each slice of its inputs, with states handed from step to step.

By Fluid's convention a slice goes inside the block by the name of the sequence outside, and so does each output. The
gradient op owns a block of gradients, run once for each step in reverse; its attributes name, for each forward slot,
the gradients inside: what comes in (``output_grads``, ``state_grads``) and what is left (``input_grads``,
``ex_state_grads``, ``parameter_grads``).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from .framework import Block, Operator
from .ops.registry import EMPTY, grad_slot
from .regions import reached, rename_outer_reads, scopes_of
from .versions import Value

if TYPE_CHECKING:
    from .differentiator import Differentiator

__all__ = ["differentiate", "mark_varied"]

_SLOTS = ("inputs", "initial_states", "parameters")


def _states(op: Operator) -> list[tuple[str, str]]:
    """(name that holds a state from the step before, name that holds it after this step), for each state."""
    return list(zip(op.attr("ex_states"), op.attr("states"), strict=True))


def mark_varied(outer: Differentiator, index: int, op: Operator) -> None:
    """Find the varied values of the block of op number `index`, and which of its outputs are varied."""
    reads = outer.versions.reads[index]
    inner = outer.inner_of(index)
    seeds: set[Value] = set()
    for slot in ("inputs", "parameters"):
        seeds.update((value[0], 0) for value in reads.get(slot, ()) if value is not None and value in outer.varied)
    for value, (ex_state, _) in zip(reads.get("initial_states", ()), _states(op), strict=True):
        if value in outer.varied:
            seeds.add((ex_state, 0))
    while True:
        inner.mark_varied(seeds)
        more = {(ex_state, 0) for ex_state, state in _states(op) if inner.versions.current(state) in inner.varied} - seeds
        if not more:
            break
        seeds |= more
    for _, _, value in outer.versions.written_at(index):
        if inner.versions.current(value[0]) in inner.varied and not outer.is_cut(value[0]):
            outer.varied.add(value)


def differentiate(outer: Differentiator, index: int, op: Operator, grads: Mapping[str, list[str | None]]) -> None:
    """Append the gradient op of op number `index`, with its block; `grads` holds the gradients of its outputs."""
    versions = outer.versions
    body: Block = op.attr("sub_block")
    inner = outer.inner_of(index)
    given = {
        value[0]: name
        for value, name in zip(versions.writes[index]["outputs"], grads.get("outputs", ()), strict=False)
        if value is not None and name is not None and value in outer.varied
    }
    if not given:
        return
    live: dict[str, str] = {}
    while True:  # states whose gradient is not always zero
        known = reached(inner, {inner.versions.current(name) for name in (*given, *live.values())})
        more = {ex: state for ex, state in _states(op) if ex not in live and (ex, 0) in known}
        if not more:
            break
        live.update(more)

    block = body.program.create_block(parent=body, forward=body)
    inner.out = block
    inner.outer_reads = {}

    def bring_in(name: str) -> str:
        incoming = block.fresh_name(name + "@GRAD")
        inner.declare(incoming, body.var(name))
        inner.seed(inner.versions.current(name), incoming)
        return incoming

    output_grads = [bring_in(name) for name in given]
    state_grads = [bring_in(state) if ex in live else EMPTY for ex, state in _states(op)]
    inner.walk()
    outputs: dict[str, list[str]] = {}
    left: dict[str, list[str]] = {}
    inner_names = {slot: op.input(slot) for slot in ("inputs", "parameters")} | {"initial_states": op.attr("ex_states")}
    wanted: list[tuple[Value, str, int]] = []
    for slot in _SLOTS:
        left[slot], outputs[grad_slot(slot)] = [], []
        for position, (name, value) in enumerate(zip(inner_names[slot], versions.reads[index].get(slot, ()), strict=True)):
            needed = value is not None and (value in outer.varied or (slot == "initial_states" and name in live))
            found = inner.gradient((name, 0)) if needed else None
            left[slot].append(found or EMPTY)
            outputs[grad_slot(slot)].append(EMPTY)
            if found is not None and value is not None and value in outer.varied:
                wanted.append((value, grad_slot(slot), position))

    inputs = {slot: op.input(slot) for slot in _SLOTS}
    renamed = rename_outer_reads(outer, inner, index)
    inputs["parameters"] = [renamed.get(name, name) for name in inputs["parameters"]]
    grad_op = outer.append(
        "recurrent_grad",
        {
            **inputs,
            "outputs": list(given),
            grad_slot("outputs"): list(given.values()),
            "step_scopes": [scopes_of(op, "step_scopes")],
        },
        {slot: names for slot, names in outputs.items() if names},
        op,
        **{name: value for name, value in op.attrs.items() if name in ("has_states", "ex_states", "states", "reverse")},
        sub_block=block,
        output_grads=output_grads,
        state_grads=state_grads,
        ex_state_grads=left["initial_states"],
        input_grads=left["inputs"],
        parameter_grads=left["parameters"],
    )
    for value, slot, position in wanted:
        outer.contribute(value, grad_op, slot, position)
