"""Gradients of ops that own a block and write variables around it: `while`, `conditional_block`.

The gradient op owns a block of gradients, beside which the names of the forward block are visible. For a variable ``v``
that the forward block overwrites (a *carried* one) there is a variable around the gradient block, in the slots ``Carried``
and ``CarriedOut``: the gradient block reads there the gradient of what ``v`` holds after a trip, and leaves there the
gradient of what ``v`` held before it. A block that never runs leaves it as it is. For a variable ``r`` that is only read,
the gradient block leaves that trip's part of the gradient in a variable of its own; ``input_grads`` lists these variables.
They are called ``r@GRAD`` where that name is free, since Paddle, which does not know the list, looks for it.

Paddle runs that as it stands: it hands on the slots that it does not know, and looks up outside what a block does not
declare. Its own programs carry in another way: ``original_output_grad`` lists names inside the gradient block that hold, one
after another, what the slot ``Out@GRAD`` names outside. A loop's gradient op must name the loop's ``X`` and ``Out`` for
Paddle to find the loop; ``Saved`` are copies, of values in ``X`` that are overwritten, which the gradient block reads instead.

What the gradient block reads of a trip must be found when the trip is long over. Names local to the forward block are
kept for each trip with its scope; values of carried variables are first saved under local names
(`Differentiator.name_of`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from ..ir.dataflow import needed_ops
from ..ir.program import Operator
from ..ir.regions import Region, region_of
from ..ir.renaming import redirect
from ..ir.versions import Value, reads_and_writes
from ..opdef import registry
from ..opdef.registry import EMPTY, ZERO_GRADIENT, Rule, grad_slot
from ..values.types import VarType
from .reverse import Differentiator, differentiates

__all__ = ["bring_in", "by_convention", "differentiate_block", "live_values", "rename_outer_reads", "scopes_of"]


_FORWARD_ONLY = ("is_test",)
"""Attributes that Paddle declares for gradient ops as well, and does not hand on to them."""


def live_values(inner: Differentiator, targets: Iterable[Value], carried: Mapping[str, str]) -> set[Value]:
    """Values of a block whose gradient may be other than zero when those of `targets` are.

    `carried`: name that a run of the block starts with -> name under which the one before has left it.
    """
    versions, found = inner.versions, set(targets)

    def reads(index: int) -> Iterator[Value]:
        definition = versions.ops[index].definition
        rule = definition.rule if definition is not None else None
        for slot, _, value in versions.read_at(index) if rule is not ZERO_GRADIENT else ():
            if value in inner.varied and (not isinstance(rule, Rule) or slot in rule.wrt):
                yield value

    needed_ops(versions, found, reads, carried=carried)
    return found


def _list_what_may_stay(outer: Differentiator, index: int, region: Region) -> None:
    """Let the op list as read what it may leave as it was."""
    op, versions = region.op, outer.versions
    read = {value[0] for _, _, value in versions.read_at(index)}
    for name, version in {value: None for _, _, value in versions.written_at(index) if value[0] in region.writes}:
        if name not in read and (name, version - 1) in outer.varied:
            op.inputs[region.reads_slot] = [*op.inputs.get(region.reads_slot, ()), name]
            versions.reads[index].setdefault(region.reads_slot, []).append((name, version - 1))


@differentiates("while", "conditional_block")
def differentiate_block(outer: Differentiator, index: int, op: Operator, grads: Mapping[str, list[str | None]]) -> None:
    """Append the gradient op of op number `index`, with its block; `grads` holds the gradients of its outputs."""
    region = region_of(op)
    assert region is not None, "only ops that own blocks are differentiated here"
    versions = outer.versions
    body, program, read_slot = region.body, region.body.program, region.reads_slot
    inner = outer.inner_of(index)
    after = {value[0]: value for slot, _, value in versions.written_at(index) if slot == "Out"}
    given = {
        value[0]: name
        for value, name in zip(versions.writes[index].get("Out", ()), grads.get("Out", ()), strict=True)
        if value is not None and name is not None and value in outer.varied
    }
    if not given:
        return
    _list_what_may_stay(outer, index, region)
    # The gradient of what one variable holds after a trip reaches what others held before it.
    live = live_values(inner, map(inner.versions.current, given), region.carried)
    carried = dict.fromkeys([*given, *(name for name in after if (name, 0) in live)])
    names = list(op.inputs.get(read_slot, ()))
    wanted = [value is not None and value in outer.varied for value in versions.reads[index].get(read_slot, ())]

    block = program.create_block(parent=outer.out, forward=body)
    inner.out = block
    inner.outer_reads = {}
    carried_grads: dict[str, str] = {}
    for name in carried:
        carried_grads[name] = bring_in(outer, after[name], given.get(name), op)
        inner.seed(inner.versions.current(name), carried_grads[name])
        if body.var(name).type is VarType.LOD_TENSOR_ARRAY:
            inner.owned.add(carried_grads[name])
    inner.walk()
    # What the forward op reads is listed again: its shapes are those of gradients that are zero if the block never ran.
    values = versions.reads[index].get(read_slot, ())
    seen = [
        name if name in after or value is None else outer.name_of(value, True) for name, value in zip(names, values, strict=True)
    ]
    inner_grads: list[str] = []
    for name, seen_as, is_wanted in zip(names, seen, wanted, strict=True):
        found = inner.gradient((name, 0)) if is_wanted and name not in after else None
        inner_grads.append(EMPTY if found is None else by_convention(inner, name, seen_as, found, op))
    for name, found in carried_grads.items():
        _leave(inner, name, found, op)

    scopes = scopes_of(op, region.scopes_slot)
    saved = [name for name in rename_outer_reads(outer, inner, index).values() if name not in seen]
    gradient = registry.get(op.type + "_grad")
    inputs: dict[str, list[str]] = {}
    for slot, values in versions.reads[index].items():
        # Which branch was taken is told by the scope; the condition itself may have been overwritten.
        if slot != read_slot and slot in gradient.inputs:
            inputs[slot] = [outer.name_of(value) for value in values if value is not None]
    held = list(carried_grads.values())
    inputs |= {read_slot: seen, "Out": op.output("Out"), grad_slot("Out"): [], region.scopes_slot: [scopes], "Carried": held}
    if saved:
        inputs["Saved"] = saved
    outputs = [EMPTY] * len(names)
    grad_op = outer.append(op.type + "_grad", inputs, {grad_slot(read_slot): outputs, "CarriedOut": list(held)}, op)
    grad_op.attrs["sub_block"] = block
    grad_op.attrs["input_grads"] = inner_grads
    shared = [name for name in op.attrs if name in gradient.attrs and name not in grad_op.attrs and name not in _FORWARD_ONLY]
    grad_op.attrs |= {name: op.attrs[name] for name in shared}
    for position, (name, found) in enumerate(zip(names, inner_grads, strict=True)):
        read = versions.reads[index][read_slot][position]
        if read is None or not wanted[position]:
            continue
        if name in carried_grads:
            handed_on = outer.hand_on(carried_grads[name], EMPTY, op)
            outer.contribute(read, handed_on, "Out", 0)
        elif found != EMPTY:
            outer.contribute(read, grad_op, grad_slot(read_slot), position, inner.is_sparse(found))


def bring_in(outer: Differentiator, value: Value, given: str | None, op: Operator) -> str:
    """The variable outside the gradient block that holds what it carries: first the gradient `given`, or zeros."""
    name = outer.out.program.fresh_name(value[0] + "@GRAD@CARRIED")
    var = outer.block.var(value[0])
    if given is not None:
        outer.hand_on(given, name, op)
    elif var.type is not VarType.LOD_TENSOR_ARRAY:  # where an array needs no more than that it be declared
        outer.append("fill_zeros_like", {"X": [outer.name_of(value, True)]}, {"Out": [name]}, op)
    outer.declare(name, var)
    return name


def by_convention(inner: Differentiator, name: str, seen_as: str, found: str, op: Operator) -> str:
    """Let the gradient block have `found`, the gradient of `name`, under the name that Paddle looks for, if that is free.

    `seen_as` is what the gradient op calls the variable.
    """
    wanted = seen_as + "@GRAD"
    if found == wanted or wanted in inner.out.vars or any(wanted in names for names in reads_and_writes(inner.out)):
        return found
    inner.declare(wanted, inner.block.var(name), inner.is_sparse(found))
    inner.hand_on(found, wanted, op)
    return wanted


def _leave(inner: Differentiator, name: str, carried: str, op: Operator) -> None:
    """Let the gradient block end with the gradient of what `name` held before the trip, in `carried`."""
    value = (name, 0)
    if inner.versions.current(name) == value:  # the block does not write it after all
        return
    found = inner.gradient(value)
    if found is None:
        inner.append("fill_zeros_like", {"X": [carried]}, {"Out": [carried]}, op)
    elif found != carried:  # only now: ops before this one may read what came in
        inner.append("assign", {"X": [found]}, {"Out": [carried]}, op)


def scopes_of(op: Operator, slot: str) -> str:
    """The variable in which an op keeps its step scopes, declared now if it had none."""
    names = op.outputs.get(slot)
    if names:
        return names[0]
    var = op.block.create_var(name=op.block.fresh_name("_step_scopes"), type=VarType.STEP_SCOPES)
    op.outputs[slot] = [var.name]
    return var.name


def rename_outer_reads(outer: Differentiator, inner: Differentiator, index: int) -> dict[str, str]:
    """Let the gradients of the block of op number `index` read saved values where outer variables are overwritten later.

    Returns:
        The names that were changed, and to what.
    """
    names, shapes = {}, {}
    for name, shape_only in inner.outer_reads.items():
        value = outer.versions.before(name, index)
        names[name], shapes[name] = outer.name_of(value, shape_only), outer.name_of(value, True)
    for op in inner.out.ops:
        redirect(op, names, shapes)
    return {old: new for old, new in names.items() if old != new}
