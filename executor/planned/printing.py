"""Prints the calls of a plan."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from types import ModuleType
from typing import Any

import numpy as np

from fluid.ir.versions import Value
from fluid.values.memory import address_of, extent_of
from fluid.values.place import CPUPlace

from ..runtime.calls import Call, Source, destinations, is_named, name_of
from ..runtime.scope import Scope
from .bound_plan import BoundArenaPlan
from .plan import ArenaPlan

__all__ = ["calls_of"]

_Named = list[tuple[str, Any]]
"""Arrays with their names. Several may share memory: the first that matches gives the name."""


def calls_of(plan: ArenaPlan) -> list[list[str]]:
    """Print the calls of each op on numpy; none for ops that run step by step."""
    scope = Scope()
    for name, spec in {**plan.externals, **plan.storage}.items():
        scope.put(name, np.empty(spec.shape, spec.dtype.array_dtype))
    bound = BoundArenaPlan(plan, scope, CPUPlace())
    texts = []
    for instruction, calls in bound.calls():
        if instruction.is_native:
            texts.append(instruction.describe().splitlines())
            continue
        slots = instruction.definition.inputs if instruction.definition is not None else {}
        shapes = {name for name, slot in slots.items() if slot.shape_only}
        read = [value for slot, values in instruction.reads.items() if slot not in shapes for value in values]
        shape_only = [value for slot in shapes for value in instruction.reads.get(slot, ())]
        scratch = [(f"scratch{number}", array) for number, array in enumerate(bound.scratch_memory)]
        reads = _named(bound, [*read, *instruction.written, *shape_only]) + scratch
        writes = _named(bound, [*instruction.written, *read]) + scratch
        texts.append([_text(call, reads, writes) for call in calls])
    return texts


def _named(bound: BoundArenaPlan, values: Sequence[Value | None]) -> _Named:
    arrays = [(value[0], bound.array(value)) for value in values if value is not None]
    return [(name, array) for name, array in arrays if array is not None]


def _text(call: Call, named: _Named, targets: _Named) -> str:
    """A call such as ``add(x, bias) -> out``."""
    operands = list(call.args)
    keywords = {key: value for key, value in call.keywords.items() if value is not None}
    outputs = destinations(call)
    for array in outputs:  # not shown before the arrow, unless it is also read
        key = next((key for key, value in keywords.items() if value is array), None)
        place = next((at for at in reversed(range(len(operands))) if operands[at] is array), None)
        if key is not None:
            del keywords[key]
        elif place is not None:
            del operands[place]
    while operands and operands[-1] is None:
        operands.pop()
    arguments = [_operand(value, named) for value in operands if not isinstance(value, ModuleType)]
    arguments += [f"{key}={_operand(value, named)}" for key, value in keywords.items() if not isinstance(value, ModuleType)]
    arrow = f" -> {', '.join(_array(array, targets) for array in outputs)}" if outputs else ""
    return f"{name_of(call.func)}({', '.join(arguments)}){arrow}"


def _operand(value: Any, named: _Named) -> str:
    if isinstance(value, np.ndarray):
        return _array(value, named)
    if isinstance(value, (list, tuple)):
        inner = ", ".join(_operand(item, named) for item in value)
        return f"[{inner}]" if isinstance(value, list) else f"({inner})"
    if isinstance(value, dict):
        return f"{{{', '.join(f'{key}: {_operand(item, named)}' for key, item in value.items())}}}"
    if isinstance(value, partial):
        return _text(value, named, named)
    if isinstance(value, Source):
        return "random"
    if isinstance(value, slice):
        return f"{value.start}:{value.stop}" + (f":{value.step}" if value.step is not None else "")
    if callable(value) and not isinstance(value, type) and is_named(value):
        return name_of(value)
    return str(value) if isinstance(value, (np.generic, np.dtype)) else repr(value)


def _array(array: Any, named: _Named) -> str:
    """The name of an array, or of its base array with the view; otherwise its single number, or its type and shape."""
    for name, root in named:
        if (extent_of(array), array.shape, array.dtype, array.strides) == (extent_of(root), root.shape, root.dtype, root.strides):
            return name
    low, high = extent_of(array)
    for name, root in named:
        start, end = extent_of(root)
        if start <= low and high <= end:
            return f"{name}.view({_view(array, (address_of(array) - address_of(root)) // array.itemsize)})"
    return str(array[()]) if not array.ndim else f"{array.dtype}{list(array.shape)}"


def _view(array: Any, offset: int) -> str:
    parts = [str(list(array.shape))]
    if offset:
        parts.append(f"offset={offset}")
    if not array.flags.c_contiguous:
        parts.append(f"strides={[stride // array.itemsize for stride in array.strides]}")
    return ", ".join(parts)
