"""Recorded graphs, and ops that ran, as programs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from .. import unique_name
from ..executor.binding.array_types import ArrayType
from ..ir.program import Operator, Program, Variable
from ..opdef.registry import OpDef
from .graph import AccumulateGrad, Node, OpNode
from .program import Parameter
from .tensor import Tensor


def append_call(
    program: Program,
    definition: OpDef,
    attrs: Mapping[str, Any],
    inputs: Mapping[str, Any],
    names: Callable[[str], str],
    counts: Callable[[str], int],
) -> Operator:
    """Append an op that ran to the program's current block; ``counts(slot)`` is the number of values of an output."""
    block = program.current_block()
    prefix = names(definition.type)
    outputs: dict[str, Any] = {}
    for slot, place in definition.outputs.items():
        if place.many:
            outputs[slot] = [block.create_var(name=names(prefix + ".tmp")) for _ in range(counts(slot))]
        elif not place.optional or counts(slot):
            outputs[slot] = block.create_var(name=names(prefix + ".tmp"))
    required = definition.required_attrs
    telling = {
        name: value
        for name, value in attrs.items()
        if name in required or name not in definition.attrs or value != definition.attrs[name].default
    }
    return block.append_op(definition.type, inputs, outputs, telling)


def program_of(tensor: Tensor) -> Program:
    """The recorded graph of a tensor as a program: from leaves, and constants as data, to the tensor."""
    program = Program()
    block = program.global_block()
    names = unique_name.UniqueNameGenerator()
    if tensor._edge is None:
        block.create_var(name=tensor.name, shape=tensor.shape, dtype=tensor.dtype, is_data=True)
        return program
    outputs: dict[tuple[int, int], Variable] = {}
    arrays: dict[int, Variable] = {}

    def declared(kind: ArrayType, name: str, **settings: Any) -> Variable:
        while block.has_var(name):
            name = names(name)
        return block.create_var(name=name, shape=kind.shape, dtype=kind.dtype, lod_level=len(kind.lod), **settings)

    def constant(kind: ArrayType, saved: Any) -> Variable:
        variable = arrays.get(id(saved)) if saved is not None else None
        if variable is None:
            variable = declared(kind, names("constant"), is_data=True, stop_gradient=True)
            if saved is not None:
                arrays[id(saved)] = variable
        return variable

    def leaf(node: AccumulateGrad) -> Variable:
        variable = outputs.get((id(node), 0))
        if variable is None:
            tensor = node.variable
            if isinstance(tensor, Parameter):
                variable = block.create_parameter(name=tensor.name, shape=tensor.shape, dtype=tensor.dtype)
            else:
                variable = declared(tensor._kind, tensor.name, is_data=True)
            outputs[id(node), 0] = variable
        return variable

    for node in _in_order(tensor._edge[0]):
        if isinstance(node, AccumulateGrad):
            leaf(node)
        elif isinstance(node, OpNode):
            compiled_op, op = node._compiled_op, node._compiled_op.op
            saved = dict(zip(compiled_op._save_in, [entry[0] for entry in node._saved or ()], strict=False))
            inputs: dict[str, Any] = {}
            for number, ((slot, nth), kind, edge) in enumerate(zip(op.positions(), compiled_op.kinds, node._edges, strict=True)):
                if edge is None:
                    variable = constant(kind, saved.get(number))
                else:
                    variable = outputs[id(edge[0]), edge[1]]
                if nth is None:
                    inputs[slot] = variable
                else:
                    inputs.setdefault(slot, []).append(variable)
            count = compiled_op._slots.count
            appended = append_call(program, op.definition, op.attrs, inputs, names, count)
            counts: dict[str, int] = {}
            for number, slot in enumerate(compiled_op._slots):
                outputs[id(node), number] = block.var(appended.outputs[slot][counts.setdefault(slot, 0)])
                counts[slot] += 1
            for number, entry in zip(compiled_op._save_out, (node._saved or ())[len(compiled_op._save_in) :], strict=False):
                arrays[id(entry[0])] = outputs[id(node), number]
        else:
            read = [outputs[id(edge[0]), edge[1]].name for edge in node._edges if edge is not None]
            kinds = {number: kind for number, kind in enumerate(node.kinds) if kind is not None}
            results = {(id(node), number): declared(kind, names(node.name)) for number, kind in kinds.items()}
            block.append_op(node.name.removesuffix("_backward"), {"X": read}, {"Out": list(results.values())})
            outputs.update(results)
    return program


def _in_order(root: Node) -> list[Node]:
    """`root` and the nodes that it depends on, in topological order."""
    seen = {root}
    stack = [root]
    while stack:
        for edge in stack.pop()._edges:
            if edge is not None and edge[0] not in seen:
                seen.add(edge[0])
                stack.append(edge[0])
    return sorted(seen, key=lambda node: (not node.is_leaf, node.sequence_nr))
