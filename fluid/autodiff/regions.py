"""Gradients of ops that own a block and write variables around it: `while`, `conditional_block`.

The gradient op owns a gradient block, which sees the names of the forward block. For a variable ``v`` that the forward block
overwrites (a *carried* one), a variable outside the gradient block, in the slots ``Carried`` and ``CarriedOut``, holds the
gradient: of ``v`` after a trip when the gradient block starts, of ``v`` before the trip when it ends. A block that never runs
leaves it unchanged. For a variable ``r`` that is only read, a variable of the gradient block holds the trip's part of the
gradient; ``input_grads`` lists these variables. They are called ``r@GRAD`` where that name is free, since Paddle, which does
not know the list, looks for it.

Paddle runs such programs as they are: it ignores the slots that it does not know, and looks up outside what a block does not
declare. Its own programs carry gradients in another way: ``original_output_grad`` lists names inside the gradient block for
the variables in the slot ``Out@GRAD``. A loop's gradient op must name the loop's ``X`` and ``Out`` for Paddle to find the loop;
``Saved`` lists copies of overwritten values in ``X``, which the gradient block reads instead.

The values that the gradient block reads of a trip must outlive the trip. Each trip's scope keeps the local variables of the
forward block; values of carried variables are first copied to local names (`Differentiator.name_of`).
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

_FORWARD_ONLY = ("is_test",)
"""Attributes that Paddle declares for gradient ops as well, but does not set there."""


def live_values(inner: Differentiator, targets: Iterable[Value], carried: Mapping[str, str]) -> set[Value]:
    """Values of a block whose gradients may be non-zero, given non-zero gradients of `targets`; `carried` is `Region.carried`."""
    versions, live = inner.versions, set(targets)

    def reads(index: int) -> Iterator[Value]:
        definition = versions.ops[index].definition
        rule = definition.rule if definition is not None else None
        for slot, _, value in versions.read_at(index) if rule is not ZERO_GRADIENT else ():
            if value in inner.varied and (not isinstance(rule, Rule) or slot in rule.wrt):
                yield value

    needed_ops(versions, live, reads, carried=carried)
    return live


def gradients_of_outputs(outer: Differentiator, index: int, slot: str, grads: Mapping[str, list[str | None]]) -> dict[str, str]:
    """Name of an output of op number `index` -> the name of its gradient, for outputs that depend on the targets."""
    return {
        value[0]: name
        for value, name in zip(outer.versions.writes[index].get(slot, ()), grads.get(slot, ()), strict=False)
        if value is not None and name is not None and value in outer.varied
    }


def _list_conditional_writes(outer: Differentiator, index: int, region: Region) -> None:
    """Add to the op's inputs the variables that it may leave unchanged."""
    op, versions = region.op, outer.versions
    read = {value[0] for _, _, value in versions.read_at(index)}
    for name, version in {value: None for _, _, value in versions.written_at(index) if value[0] in region.writes}:
        if name not in read and (name, version - 1) in outer.varied:
            op.inputs[region.reads_slot] = [*op.inputs.get(region.reads_slot, ()), name]
            versions.reads[index].setdefault(region.reads_slot, []).append((name, version - 1))


@differentiates("while", "conditional_block")
def differentiate_block(outer: Differentiator, index: int, op: Operator, grads: Mapping[str, list[str | None]]) -> None:
    """Append the gradient op of an op that owns a block, with its block.

    Args:
        outer: walks through the block that the op is in.
        index: the number of the op there.
        op: the op.
        grads: output slot -> names of the gradients of its outputs.
    """
    region = region_of(op)
    assert region is not None, "only ops that own blocks are differentiated here"
    versions = outer.versions
    body, read_slot = region.body, region.reads_slot
    inner = outer.inner_of(index)
    after = {value[0]: value for slot, _, value in versions.written_at(index) if slot == "Out"}
    output_grads = gradients_of_outputs(outer, index, "Out", grads)
    if not output_grads:
        return
    _list_conditional_writes(outer, index, region)
    # The gradient of one variable after a trip may reach the values of others before it.
    live = live_values(inner, map(inner.versions.current, output_grads), region.carried)
    carried = dict.fromkeys([*output_grads, *(name for name in after if (name, 0) in live)])
    names = list(op.inputs.get(read_slot, ()))
    wanted = [value is not None and value in outer.varied for value in versions.reads[index].get(read_slot, ())]

    inner.out = body.program.create_block(parent=outer.out, forward=body)
    inner.outer_reads = {}
    carried_grads: dict[str, str] = {}
    for name in carried:
        carried_grads[name] = bring_in(outer, after[name], output_grads.get(name), op)
        inner.seed(inner.versions.current(name), carried_grads[name])
        if body.var(name).type is VarType.LOD_TENSOR_ARRAY:
            inner.owned.add(carried_grads[name])
    inner.walk()
    # The gradient op lists the forward inputs too: gradients of their shapes are zero if the block never ran.
    values = versions.reads[index].get(read_slot, ())
    seen = [
        name if name in after or value is None else outer.name_of(value, True) for name, value in zip(names, values, strict=True)
    ]
    inner_grads: list[str] = []
    for name, seen_as, is_wanted in zip(names, seen, wanted, strict=True):
        grad = inner.gradient((name, 0)) if is_wanted and name not in after else None
        inner_grads.append(EMPTY if grad is None else by_convention(inner, name, seen_as, grad, op))
    for name, grad in carried_grads.items():
        _leave(inner, name, grad, op)

    saved = [name for name in rename_outer_reads(outer, inner, index).values() if name not in seen]
    grad_op = _append_gradient_op(outer, index, region, seen, list(carried_grads.values()), saved)
    grad_op.attrs["sub_block"] = inner.out
    grad_op.attrs["input_grads"] = inner_grads
    _copy_attrs(op, grad_op)
    for position, (name, grad) in enumerate(zip(names, inner_grads, strict=True)):
        read = versions.reads[index][read_slot][position]
        if read is None or not wanted[position]:
            continue
        if name in carried_grads:
            outer.contribute(read, outer.copy_gradient(carried_grads[name], EMPTY, op), "Out", 0)
        elif grad != EMPTY:
            outer.contribute(read, grad_op, grad_slot(read_slot), position, inner.is_sparse(grad))


def _append_gradient_op(
    outer: Differentiator, index: int, region: Region, read: list[str], carried: list[str], saved: list[str]
) -> Operator:
    """Append the gradient op of op number `index`, without its attributes.

    Args:
        read: the names that the op reads, as they are called now.
        carried: the variables with the gradients of overwritten variables.
        saved: copies of overwritten values.
    """
    op, read_slot = region.op, region.reads_slot
    gradient = registry.get(op.type + "_grad")
    inputs: dict[str, list[str]] = {}
    for slot, values in outer.versions.reads[index].items():
        # The scope tells which branch was taken; the condition itself may have been overwritten.
        if slot != read_slot and slot in gradient.inputs:
            inputs[slot] = [outer.name_of(value) for value in values if value is not None]
    scopes = scopes_of(op, region.scopes_slot)
    inputs |= {read_slot: read, "Out": op.output("Out"), grad_slot("Out"): [], region.scopes_slot: [scopes], "Carried": carried}
    if saved:
        inputs["Saved"] = saved
    outputs = {grad_slot(read_slot): [EMPTY] * len(read), "CarriedOut": list(carried)}
    return outer.append(op.type + "_grad", inputs, outputs, op)


def _copy_attrs(op: Operator, grad_op: Operator) -> None:
    """Give a gradient op the attributes of its forward op that it has, too."""
    declared = registry.get(grad_op.type).attrs
    shared = [name for name in op.attrs if name in declared and name not in grad_op.attrs and name not in _FORWARD_ONLY]
    grad_op.attrs |= {name: op.attrs[name] for name in shared}


def bring_in(outer: Differentiator, value: Value, grad: str | None, op: Operator) -> str:
    """Declare the variable outside the gradient block that carries a gradient; it starts as `grad`, or zeros."""
    name = outer.out.program.fresh_name(value[0] + "@GRAD@CARRIED")
    var = outer.block.var(value[0])
    if grad is not None:
        outer.copy_gradient(grad, name, op)
    elif var.type is not VarType.LOD_TENSOR_ARRAY:  # an array only needs to be declared
        outer.append("fill_zeros_like", {"X": [outer.name_of(value, True)]}, {"Out": [name]}, op)
    outer.declare(name, var)
    return name


def by_convention(inner: Differentiator, name: str, seen_as: str, grad: str, op: Operator) -> str:
    """Copy `grad`, the gradient of `name`, to the name that Paddle looks for, if that is free; returns the name to use.

    `seen_as` is the name of the variable in the gradient op.
    """
    wanted = seen_as + "@GRAD"
    if grad == wanted or wanted in inner.out.vars or any(wanted in names for names in reads_and_writes(inner.out)):
        return grad
    inner.declare(wanted, inner.block.var(name), inner.is_sparse(grad))
    inner.copy_gradient(grad, wanted, op)
    return wanted


def _leave(inner: Differentiator, name: str, carried: str, op: Operator) -> None:
    """End the gradient block by writing the gradient of `name` before the trip to `carried`."""
    value = (name, 0)
    if inner.versions.current(name) == value:  # the block does not write it after all
        return
    grad = inner.gradient(value)
    if grad is None:
        inner.append("fill_zeros_like", {"X": [carried]}, {"Out": [carried]}, op)
    elif grad != carried:  # last, since ops before may read the old value
        inner.append("assign", {"X": [grad]}, {"Out": [carried]}, op)


def scopes_of(op: Operator, slot: str) -> str:
    """The variable that holds an op's step scopes; declares it if there is none."""
    names = op.outputs.get(slot)
    if names:
        return names[0]
    var = op.block.create_var(name=op.block.fresh_name("_step_scopes"), type=VarType.STEP_SCOPES)
    op.outputs[slot] = [var.name]
    return var.name


def rename_outer_reads(outer: Differentiator, inner: Differentiator, index: int) -> dict[str, str]:
    """Make the gradient block of op number `index` read saved values of outer variables that are overwritten later.

    Returns:
        Old name -> new name, for the names that changed.
    """
    names, shapes = {}, {}
    for name, shape_only in inner.outer_reads.items():
        value = outer.versions.before(name, index)
        names[name], shapes[name] = outer.name_of(value, shape_only), outer.name_of(value, True)
    for op in inner.out.ops:
        redirect(op, names, shapes)
    return {old: new for old, new in names.items() if old != new}
