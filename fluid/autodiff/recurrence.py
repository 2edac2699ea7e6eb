"""Gradient of `recurrent`: a block run once for each slice of its inputs, with states handed from step to step.

By Fluid's convention a slice goes inside the block by the name of the sequence outside, and so does each output. The
gradient op owns a block of gradients, run once for each step in reverse. Of a sequence, a parameter or an output the
gradient inside is called as the one outside, ``name@GRAD``; ``input_grads``, ``parameter_grads`` and ``output_grads`` say so,
or otherwise. The gradients of states are carried around the block, as `fluid.autodiff.regions` has it: ``CarriedOut`` names, for
each initial state, the variable that holds it.
"""

from __future__ import annotations

from collections.abc import Mapping

from ..ir.program import Block, Operator
from ..ir.versions import Value
from ..opdef.registry import EMPTY, grad_slot
from . import regions
from .reverse import Differentiator, differentiates

__all__ = ["differentiate"]

_SLOTS = ("inputs", "initial_states", "parameters")


def _states(op: Operator) -> list[tuple[str, str]]:
    """(name that holds a state from the step before, name that holds it after this step), for each state."""
    return list(zip(op.attr("ex_states"), op.attr("states"), strict=True))


@differentiates("recurrent")
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
    varying = regions.live_values(inner, map(inner.versions.current, given), dict(_states(op)))
    live = {ex_state: state for ex_state, state in _states(op) if (ex_state, 0) in varying}
    """States whose gradient is not always zero."""

    block = body.program.create_block(parent=outer.out, forward=body)
    inner.out = block
    inner.outer_reads = {}
    output_grads = []
    for name in op.output("outputs"):
        output_grads.append(name + "@GRAD" if name in given else EMPTY)
        if name in given:
            inner.declare(output_grads[-1], body.var(name))
            inner.seed(inner.versions.current(name), output_grads[-1])
    firsts = dict(zip(op.attr("ex_states"), versions.reads[index].get("initial_states", ()), strict=True))
    held: dict[str, str] = {}
    for ex_state, state in live.items():
        first = firsts[ex_state]
        assert first is not None
        held[ex_state] = regions.bring_in(outer, first, None, op)
        inner.seed(inner.versions.current(state), held[ex_state])
    inner.walk()
    outputs: dict[str, list[str]] = {}
    left: dict[str, list[str]] = {}
    wanted: list[tuple[Value, str, int, bool]] = []
    for slot in ("inputs", "parameters"):
        left[slot], outputs[grad_slot(slot)] = [], []
        for position, (name, value) in enumerate(zip(op.input(slot), versions.reads[index].get(slot, ()), strict=True)):
            found = inner.gradient((name, 0)) if value is not None and value in outer.varied else None
            left[slot].append(EMPTY if found is None else regions.by_convention(inner, name, name, found, op))
            outputs[grad_slot(slot)].append(EMPTY)
            if found is not None and value is not None:
                wanted.append((value, grad_slot(slot), position, inner.is_sparse(found)))
    _leave_states(inner, held, op)

    saved = regions.rename_outer_reads(outer, inner, index)
    inputs = {slot: op.input(slot) for slot in (*_SLOTS, "outputs")}
    inputs |= {grad_slot("outputs"): [given.get(name, EMPTY) for name in op.output("outputs")]}
    inputs |= {"step_scopes": [regions.scopes_of(op, "step_scopes")], "Carried": list(held.values())}
    inputs["outputs"] = op.output("outputs")
    if saved:
        inputs["Saved"] = list(saved.values())
    outputs["CarriedOut"] = [held.get(ex_state, EMPTY) for ex_state in firsts]
    grad_op = outer.append(
        "recurrent_grad",
        inputs,
        outputs,
        op,
        reverse=op.attr("reverse"),
        sub_block=block,
        output_grads=output_grads,
        input_grads=left["inputs"],
        parameter_grads=left["parameters"],
    )
    for value, slot, position, is_sparse in wanted:
        outer.contribute(value, grad_op, slot, position, is_sparse)
    for ex_state, name in held.items():
        first = firsts[ex_state]
        if first is not None and first in outer.varied:
            outer.contribute(first, outer.hand_on(name, EMPTY, op), "Out", 0)


def _leave_states(inner: Differentiator, held: dict[str, str], op: Operator) -> None:
    """Let the gradient block end with the gradients of what states held before the step, each in its variable of `held`."""
    found = {ex_state: inner.gradient((ex_state, 0)) for ex_state in held}
    for ex_state, name in found.items():
        if name is not None and name in held.values():  # which is about to hold another gradient
            found[ex_state] = kept = inner.new_name(ex_state + "@GRAD")
            inner.hand_on(name, kept, op)
            inner.declare(kept, inner.block.var(ex_state))
    for ex_state, name in found.items():
        if name is None:
            inner.append("fill_zeros_like", {"X": [held[ex_state]]}, {"Out": [held[ex_state]]}, op)
        else:
            inner.append("assign", {"X": [name]}, {"Out": [held[ex_state]]}, op)
