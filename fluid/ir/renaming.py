"""Renaming variables wherever their names occur: in slots, in attributes, and in names that are derived from them.

By Paddle's convention, a slice inside a recurrence has the name of its sequence, the output of a step has the name of all steps'
outputs, and the gradient of ``x`` inside a gradient block is ``x@GRAD``. When a variable of an op is renamed or replaced, the
names inside the op's block follow.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import product

from ..errors import ProgramError, locate
from ..opdef.registry import grad_slot
from .nesting import walk
from .program import Block, Operator, OpRole, Variable
from .regions import list_inner_gradients, region_of, shape_slots
from .versions import outer_names

_NAMES_HERE = frozenset({OpRole.VARS, "skip_eager_deletion_vars"})
"""Attributes that list names as seen from the block around the op."""
_NAMES_INSIDE = frozenset(
    ("ex_state_grads", "ex_states", "state_grads", "states")
    + ("input_grads", "output_grads", "parameter_grads", "original_output_grad")
)
"""Attributes that list names as seen from the block that the op owns."""


def _named_after(op: Operator, slots: Mapping[str, list[str]], old: str, new: str) -> Iterator[tuple[Variable, str]]:
    """Variables in an op's block with names derived from `old`, a name in `slots`; each with the same name derived from `new`."""
    region = region_of(op)
    if region is None or not any(old in names for names in slots.values()):
        return
    same = {inner for inner, outer in region.slices if inner == outer}
    same |= {output.name for output in region.stacked if output.inner == output.name}
    var = region.body.vars.get(old) if old in same else None
    if var is not None:
        yield var, new
    # A gradient is called so for Paddle's sake only (a taken name stays as it is); a slice is known by its name alone.
    old_grad, new_grad = old + "@GRAD", new + "@GRAD"
    var = region.body.vars.get(old_grad)
    named = any(old in names for slot, names in slots.items() if grad_slot(slot) in op.outputs)
    named |= any(inner == old_grad for inner, _ in region.slices)
    if region.frames and var is not None and named and new_grad not in region.body.vars and not _uses(region.body, new_grad):
        yield var, new_grad


def _find_aliases(op: Operator, var: Variable, new: str) -> Iterator[tuple[Variable, str]]:
    """Variables in the block of an op that are named after `var`, each with its name once `var` is called `new`."""
    if op.block.find_var(var.name) is var:
        if var.name in op.input_arg_names:
            list_inner_gradients(op)
        yield from _named_after(op, {**op.inputs, **op.outputs}, var.name, new)


def rename_variables(names: Mapping[Variable, str]) -> None:
    """Rename variables of a program to names that are not in use, and with them the variables whose names derive from theirs."""
    if not names:
        return
    program = next(iter(names)).block.program
    owners = [op for block in program.blocks for op in block.ops if op.sub_blocks]
    names, added = dict(names), dict(names)
    while added:
        former, added = added, {}
        for op, (var, new) in product(owners, former.items()):
            for alias, new_alias in _find_aliases(op, var, new):
                if alias not in names:
                    names[alias] = added[alias] = new_alias
    seen_from = {
        block: {var.name: new for var, new in names.items() if block.find_var(var.name) is var} for block in program.blocks
    }
    for block in program.blocks:
        for op in block.ops:
            _rename_in(op, seen_from[block], *(seen_from[sub] for sub in op.sub_blocks[:1]))
    for var in names:
        del var.block.vars[var.name]
    for var, new in names.items():
        var.name = new
        var.block.vars[new] = var
    program._changed()


def _rename_in(op: Operator, names: Mapping[str, str], inner_names: Mapping[str, str] | None = None) -> None:
    """Replace names in an op's slots and attributes; `inner_names` maps names as seen from the block that it owns."""

    def renamed(values: list[str], names: Mapping[str, str] = names) -> list[str]:
        return [names.get(name, name) for name in values]

    if names:
        op.inputs = {slot: renamed(values) for slot, values in op.inputs.items()}
        op.outputs = {slot: renamed(values) for slot, values in op.outputs.items()}
    attr_types = op.wire.kinds if op.wire is not None else {}
    for name, value in op.attrs.items():
        if attr_types.get(name) == "var" and isinstance(value, str):
            op.attrs[name] = names.get(value, value)
        elif isinstance(value, list) and name in _NAMES_INSIDE:
            op.attrs[name] = renamed(value, inner_names or {})
        elif isinstance(value, list) and (name in _NAMES_HERE or attr_types.get(name) == "vars"):
            op.attrs[name] = renamed(value)


def redirect(op: Operator, names: Mapping[str, str], shapes: Mapping[str, str] | None = None) -> None:
    """Make an op, and the blocks that it owns, use other variables of the blocks around it.

    Args:
        names: old name -> new name.
        shapes: the same for inputs whose shape alone is read, `names` by default. A loop's or branch's gradient op repeats the
            forward op's inputs so, and Paddle finds the forward op by them.

    Raises:
        ProgramError: a slice of a recurrence would get the name of an outside variable that the recurrence uses too.
    """
    names = {old: new for old, new in names.items() if old != new}
    shapes = names if shapes is None else {old: new for old, new in shapes.items() if old != new}
    list_inner_gradients(op)
    for_shape = {slot: op.inputs[slot] for slot in shape_slots(op)}
    _follow(op, names, {slot: used for slot, used in (*op.inputs.items(), *op.outputs.items()) if slot not in for_shape})
    _follow(op, shapes, for_shape)
    _rename_in(op, names)
    op.inputs |= {slot: [shapes.get(name, name) for name in values] for slot, values in for_shape.items()}
    for sub in op.sub_blocks:
        _redirect_inside(sub, names, shapes)
    if for_shape:
        listed = {*op.input_arg_names, *op.output_arg_names}
        read = outer_names(op.attr("sub_block"))[0]
        saved = [new for new in dict.fromkeys(names.values()) if new in read and new not in listed]
        if saved:
            op.inputs["Saved"] = [*op.inputs.get("Saved", ()), *saved]
    op.block.program._changed()


def redirect_reads(op: Operator, names: Mapping[str, str]) -> None:
    """As `redirect`, but only for the inputs of the op; its blocks must not write these variables."""
    names = {old: new for old, new in names.items() if old != new}
    _follow(op, names, op.inputs)
    op.inputs = {slot: [names.get(name, name) for name in values] for slot, values in op.inputs.items()}
    for sub in op.sub_blocks:
        _redirect_inside(sub, names, names)
    op.block.program._changed()


def _redirect_inside(block: Block, names: Mapping[str, str], shapes: Mapping[str, str]) -> None:
    hidden = {*block.vars, *(block.forward.vars if block.forward is not None else ())}
    inner_names = {old: new for old, new in names.items() if old not in hidden}
    inner_shapes = {old: new for old, new in shapes.items() if old not in hidden}
    for op in block.ops if inner_names or inner_shapes else ():
        redirect(op, inner_names, inner_shapes)


def _follow(op: Operator, names: Mapping[str, str], slots: Mapping[str, list[str]]) -> None:
    """Rename the variables inside an op's block whose names derive from variables in these slots."""
    for old, new in names.items():
        derived = dict(_named_after(op, slots, old, new))
        for var, name in derived.items():
            if name == new and _uses(var.block, new):
                raise ProgramError(
                    f"{new!r} cannot take the place of {old!r}, since the block of this op uses both\n{locate(op)}"
                )
        inner_names = {var.name: name for var, name in derived.items()}
        rename_variables(derived)
        _rename_in(op, {}, inner_names)  # it may not stand in its block yet


def _uses(block: Block, name: str) -> bool:
    """Whether a block, or one inside it, uses a variable of this name."""
    return any(name in (*op.input_arg_names, *op.output_arg_names) for op in walk(block.ops))
