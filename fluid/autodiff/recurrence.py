"""Gradient of `recurrent`: a block that runs once for each slice of its inputs, and passes states from step to step.

By Fluid's convention, a slice has the name of its sequence inside the block, and a step's output has the stacked output's name.
The gradient op owns a gradient block, which runs once for each step in reverse. The gradients of sequences, parameters and
outputs are called ``name@GRAD`` inside too, unless ``input_grads``, ``parameter_grads`` and ``output_grads`` list other names.
The gradients of states are carried in variables outside, as in `fluid.autodiff.regions`: ``CarriedOut`` names one for each
initial state.
"""

from __future__ import annotations

from collections.abc import Mapping

from ..ir.program import Block, Operator
from ..ir.versions import Value
from ..opdef.registry import EMPTY, grad_slot
from . import regions
from .reverse import Differentiator, differentiates

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
    output_gradients = regions.gradients_of_outputs(outer, index, "outputs", grads)
    if not output_gradients:
        return
    live_values = regions.live_values(inner, map(inner.versions.current, output_gradients), dict(_states(op)))
    live = {ex_state: state for ex_state, state in _states(op) if (ex_state, 0) in live_values}
    """States whose gradient may be non-zero."""

    block = inner.out = body.program.create_block(parent=outer.out, forward=body)
    inner.outer_reads = {}
    output_grads = [name + "@GRAD" if name in output_gradients else EMPTY for name in op.output("outputs")]
    for name, output_grad in zip(op.output("outputs"), output_grads, strict=True):
        if output_grad != EMPTY:
            inner.declare(output_grad, body.var(name))
            inner.seed(inner.versions.current(name), output_grad)
    firsts = dict(zip(op.attr("ex_states"), versions.reads[index].get("initial_states", ()), strict=True))
    held: dict[str, str] = {}
    for ex_state, state in live.items():
        first = firsts[ex_state]
        assert first is not None
        held[ex_state] = regions.bring_in(outer, first, None, op)
        inner.seed(inner.versions.current(state), held[ex_state])
    inner.walk()
    outputs: dict[str, list[str]] = {}
    inner_grads: dict[str, list[str]] = {}
    wanted: list[tuple[Value, str, int, bool]] = []
    for slot in ("inputs", "parameters"):
        inner_grads[slot], outputs[grad_slot(slot)] = [], []
        for position, (name, value) in enumerate(zip(op.input(slot), versions.reads[index].get(slot, ()), strict=True)):
            grad = inner.gradient((name, 0)) if value is not None and value in outer.varied else None
            inner_grads[slot].append(EMPTY if grad is None else regions.by_convention(inner, name, name, grad, op))
            outputs[grad_slot(slot)].append(EMPTY)
            if grad is not None and value is not None:
                wanted.append((value, grad_slot(slot), position, inner.is_sparse(grad)))
    _leave_states(inner, held, op)

    saved = regions.rename_outer_reads(outer, inner, index)
    inputs = {slot: op.input(slot) for slot in _SLOTS}
    inputs["outputs"] = op.output("outputs")
    inputs |= {grad_slot("outputs"): [output_gradients.get(name, EMPTY) for name in op.output("outputs")]}
    inputs |= {"step_scopes": [regions.scopes_of(op, "step_scopes")], "Carried": list(held.values())}
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
        input_grads=inner_grads["inputs"],
        parameter_grads=inner_grads["parameters"],
    )
    for value, slot, position, is_sparse in wanted:
        outer.contribute(value, grad_op, slot, position, is_sparse)
    for ex_state, name in held.items():
        first = firsts[ex_state]
        if first is not None and first in outer.varied:
            outer.contribute(first, outer.copy_gradient(name, EMPTY, op), "Out", 0)


def _leave_states(inner: Differentiator, held: dict[str, str], op: Operator) -> None:
    """End the gradient block by writing the gradients of the states before the step to their variables in `held`."""
    grads = {ex_state: inner.gradient((ex_state, 0)) for ex_state in held}
    for ex_state, name in grads.items():
        if name is not None and name in held.values():  # another gradient is about to overwrite it
            grads[ex_state] = grad = inner.new_name(ex_state + "@GRAD")
            inner.copy_gradient(name, grad, op)
            inner.declare(grad, inner.block.var(ex_state))
    for ex_state, name in grads.items():
        if name is None:
            inner.append("fill_zeros_like", {"X": [held[ex_state]]}, {"Out": [held[ex_state]]}, op)
        else:
            inner.append("assign", {"X": [name]}, {"Out": [held[ex_state]]}, op)
