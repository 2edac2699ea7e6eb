"""Freezes parameters of a program that trains: removes their updates, and the ops that only these updates need."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase

from ..errors import ProgramError, did_you_mean
from ..ir.program import Operator, Program
from ..ir.roles import OpRole


def updated_parameters(program: Program) -> list[str]:
    """The names of the parameters that a program updates, in the order of their updates."""
    return list(dict.fromkeys(name for op in _ops(program) if _is_update(op) for name in op.input("Param")))


def freeze_parameters(program: Program, patterns: Sequence[str]) -> list[str]:
    """Remove the updates of parameters, and their gradients from ops that read many gradients, such as the norm for clipping.

    Args:
        program: the program to change.
        patterns: patterns of names, as of files: ``conv2d_*``.

    Returns:
        The names of the parameters that are not updated any more.

    Raises:
        ProgramError: a pattern fits no parameter that is updated.
    """
    updated = updated_parameters(program)
    for pattern in patterns:
        if not any(fnmatchcase(name, pattern) for name in updated):
            if not updated:
                raise ProgramError("freeze: the program updates no parameter, so there is nothing to freeze; leave out freeze")
            hint = did_you_mean(pattern, updated)
            raise ProgramError(f"freeze: {pattern!r} fits no parameter{hint}; updated are: {', '.join(updated)}")
    frozen = [name for name in updated if any(fnmatchcase(name, pattern) for pattern in patterns)]
    absent = _gradients(program, frozen)
    for block in program.blocks:
        block.ops = [op for op in block.ops if _stays_without(op, frozen, absent)]
    program._changed()
    return frozen


def _ops(program: Program) -> Iterable[Operator]:
    return (op for block in program.blocks for op in block.ops)


def _is_update(op: Operator) -> bool:
    return bool(op.input("Param")) and op.input("Param") == op.output("ParamOut")


def _gradients(program: Program, parameters: Iterable[str]) -> dict[str, str]:
    """Gradient -> its parameter, of the given ones."""
    gradients, chosen = {f"{name}@GRAD": name for name in parameters}, set(parameters)
    for op in _ops(program):
        if op.role & OpRole.BACKWARD:
            pairs = op.attrs.get(OpRole.VARS) or []
            gradients |= {gradient: name for name, gradient in zip(pairs[::2], pairs[1::2], strict=True) if name in chosen}
    return gradients


def _stays_without(op: Operator, frozen: Sequence[str], absent: dict[str, str]) -> bool:
    """Remove absent values from an op, such as a sum; returns whether it stays.

    It does not stay if it updates a frozen parameter, or cannot do without an absent value. Its outputs are absent then, too.

    Args:
        absent: value that is not computed any more -> the frozen parameter that it belongs to; the op's outputs are added.
    """
    if not op.role & OpRole.OPTIMIZE:
        return True
    if _is_update(op):
        return op.input("Param")[0] not in frozen
    definition = op.definition
    missing = [name for name in op.input_arg_names if name in absent]
    if definition is None or not missing:
        return True
    lists = {slot: names for slot, names in op.inputs.items() if slot in definition.inputs and definition.inputs[slot].many}
    places = {slot: [place for place, name in enumerate(names) if name not in absent] for slot, names in lists.items()}
    is_in_lists = all(any(name in names for names in lists.values()) for name in missing)
    if not is_in_lists or not all(places.values()) or _is_gradient(op, absent):
        absent |= dict.fromkeys(op.output_arg_names, absent[missing[0]])
        return False
    for slot, names in lists.items():
        for listed in [listed for listed in op.outputs.values() if len(listed) == len(names) > 1]:
            listed[:] = [listed[place] for place in places[slot]]
        op.inputs[slot] = [names[place] for place in places[slot]]
    return True


def _is_gradient(op: Operator, absent: dict[str, str]) -> bool:
    """Whether an op only changes the gradient of a frozen parameter: its one output has the parameter's shape."""
    var = op.block.find_var(op.output_arg_names[0]) if len(op.output_arg_names) == 1 else None
    parameters = (op.block.find_var(absent[name]) for name in op.input_arg_names if name in absent)
    shapes = [parameter.shape for parameter in parameters if parameter is not None]
    return var is not None and var.has_shape and var.shape in shapes and var.shape not in ((), (1,))
