"""Write a program as an ONNX graph: its inputs and outputs, and its ops in order."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any

from fluid.errors import FluidError, ProgramError, locate
from fluid.executor.stepwise.interpreter import step_captures
from fluid.ir.dataflow import needed_ops
from fluid.ir.inference import declared_specs
from fluid.ir.nesting import walk
from fluid.ir.program import Block, Operator, Program, Variable
from fluid.ir.versions import BlockVersions, outer_names
from fluid.opdef.registry import EMPTY, OpDef
from fluid.opdef.tables import OpTable
from fluid.values.spec import Spec
from fluid.values.types import VarType

from .exporting import EXPORTS, OnnxNamespace, export, is_exported
from .graph import ELEMENTS, GraphScope, NodeRecord, NotExported, OnnxGraph, OnnxTensor, Symbol
from .refused import REFUSED
from .serializing import Contents

_EDGES = ("feed", "fetch")

Handler = Callable[["ProgramWriter", Operator, "Names"], None]
HANDLERS: OpTable[Handler] = OpTable("handler of ONNX")
"""Type of an op that owns a block or handles non-tensor values -> the function that writes it."""
handles = HANDLERS.register
"""Register the function that writes these ops by the names of their variables."""

ARRAY_HANDLERS: OpTable[Handler] = OpTable("handler of ONNX for arrays")
"""Type of an op on tensors or arrays of tensors -> the function that writes it for arrays."""
handles_arrays = ARRAY_HANDLERS.register
"""Register the function that writes these ops if an input is an array of tensors."""


Decomposer = Callable[["ProgramWriter", OpDef, Mapping[str, Any], Mapping[str, Any], set[str]], dict[str, Any]]
DECOMPOSERS: list[Decomposer] = []
"""The one function that writes decomposed ops."""


def decomposes(fn: Decomposer) -> Decomposer:
    """Register the function that writes decomposed ops."""
    DECOMPOSERS.append(fn)
    return fn


# ------------------------------------------------------------------------------------------------------- what goes where
@dataclass(frozen=True)
class Signature:
    """The inputs, outputs and state of a model.

    Attributes:
        feeds: names of variables that a run is given.
        fetches: names of variables that a run computes.
        state: names of persistable variables that are inputs, too; they have initial values.
        updated: the state that a run changes; its next values are outputs.
        constants: names of the other persistable variables.
        ops: the positions of the ops of block 0 that the model needs.
    """

    feeds: list[str]
    fetches: list[str]
    state: list[str]
    updated: list[str]
    constants: list[str]
    ops: list[int]


def signature_of(program: Program, feeds: Sequence[str], fetches: Sequence[str], with_state: bool) -> Signature:
    """The signature of a program.

    Args:
        with_state: whether persistable variables are inputs, and their next values outputs; otherwise they are constants.
    """
    block = program.global_block()
    versions = BlockVersions(block)

    def updates(op: Operator) -> bool:
        names = op.output_arg_names if with_state and op.type not in _EDGES else ()
        return any(_is_persistable(block, name) for name in names)

    positions = needed_ops(versions, {versions.current(name) for name in fetches}, also=updates)
    positions = [position for position in positions if block.ops[position].type not in _EDGES]
    read: dict[str, None] = {}
    outputs: dict[str, None] = {}
    for position in positions:
        op = block.ops[position]
        names, outs = _reads_and_writes(op)
        read.update((name, None) for name in names if name not in outputs)
        outputs.update((name, None) for name in outs)
    read.update((name, None) for name in fetches if name not in outputs)
    outer = [name for name in read if name not in feeds and name != EMPTY]
    persistable = [name for name in outer if _is_persistable(block, name)]
    updated = [name for name in outputs if _is_persistable(block, name)] if with_state else []
    state = [*persistable, *(name for name in updated if name not in persistable)] if with_state else []
    _check_given(block, [name for name in outer if name not in persistable], outputs, positions)
    return Signature(list(feeds), list(fetches), state, updated, [] if with_state else persistable, positions)


def _check_given(block: Block, names: list[str], outputs: Mapping[str, None], positions: list[int]) -> None:
    """`ProgramError` for names that are read, but neither fed, computed nor persistable."""
    computed = {name for inner_block in block.program.blocks for op in inner_block.ops for name in op.output_arg_names}
    for name in names:
        var = block.find_var(name)
        if var is not None and name not in computed and var.type is VarType.LOD_TENSOR:
            reader = next((block.ops[at] for at in positions if name in block.ops[at].input_arg_names), None)
            location = f"\n{locate(reader)}" if reader is not None else ""
            raise ProgramError(f"{name!r} is neither fed, computed nor persistable: name it among the feeds{location}")


def _is_persistable(block: Block, name: str) -> bool:
    var = block.find_var(name)
    return var is not None and var.persistable and var.type in (VarType.LOD_TENSOR, VarType.SELECTED_ROWS)


def _reads_and_writes(op: Operator) -> tuple[list[str], list[str]]:
    reads, writes = list(op.input_arg_names), list(op.output_arg_names)
    definition = op.definition
    for slot in definition.updated if definition is not None else ():
        reads += op.outputs.get(slot, ())
    for sub in op.sub_blocks:
        inner_reads, inner_writes = outer_names(sub)
        reads += inner_reads + inner_writes
        writes += inner_writes
    return reads, writes


# ------------------------------------------------------------------------------------------------------------ refusals
def refusals(program: Program, positions: Iterable[int] | None = None) -> list[str]:
    """Why ops of a program cannot be written, as far as their types tell; writes nothing."""
    reasons: dict[str, None] = {}
    block = program.global_block()
    ops = block.ops if positions is None else [block.ops[position] for position in positions]
    for op in walk(ops):
        if op.type in _EDGES or op.type in HANDLERS:
            continue
        definition = op.definition
        if definition is None:
            reasons[f"{op.type}: the op is not known here"] = None
        elif not is_exported(definition):
            reasons[f"{op.type}: {why_not(definition)}"] = None
        elif _is_lazy(op):
            reasons[f"{op.type}: with lazy_mode it leaves rows as they are of which a sparse gradient has none"] = None
    return list(reasons)


def _is_lazy(op: Operator) -> bool:
    """Whether an update by a sparse gradient differs from an update by the same dense gradient."""
    if not op.attrs.get("lazy_mode"):
        return False
    gradient = op.block.find_var(op.input("Grad")[0])
    return gradient is not None and gradient.type is VarType.SELECTED_ROWS


def why_not(definition: OpDef) -> str:
    """Why ops of a type cannot be written."""
    forward = definition.forward or definition
    return REFUSED.get(definition.type) or REFUSED.get(forward.type) or "there is no function that writes it yet"


# -------------------------------------------------------------------------------------------------------------- writing
class Names:
    """The tensors of a block's names; names of outer blocks are visible, too.

    Attributes:
        frames: variable of step scopes -> the frames of a block's runs.
    """

    def __init__(self, block: Block, parent: Names | None = None) -> None:
        self.block, self.parent = block, parent
        self.frames: dict[str, Any] = {}
        self.values: dict[str, OnnxTensor | None] = {}
        """None stands for an output that an op leaves out, as nothing needs it."""

    def get(self, name: str) -> OnnxTensor | None:
        names: Names | None = self
        while names is not None:
            if name in names.values:
                return names.values[name]
            names = names.parent
        return None

    def value(self, name: str) -> OnnxTensor:
        value = self.get(name)
        if value is None:
            raise NotExported(f"{name} has no value")
        return value

    def has(self, name: str) -> bool:
        return name in self.values or (self.parent is not None and self.parent.has(name))

    def need(self, name: str, op: Operator) -> OnnxTensor | None:
        value = self.get(name)
        if value is None and not self.has(name):
            raise ProgramError(f"{op.type} reads {name!r}, which has no value before it\n{locate(op)}")
        return value

    def set(self, name: str, value: OnnxTensor) -> None:
        """Set the value of a name, in the innermost block."""
        self.values[name] = value


class ProgramWriter:
    """Writes the ops of a program into a graph."""

    def __init__(self, program: Program, graph: OnnxGraph, is_inner: bool = False) -> None:
        self.program, self.graph, self._is_inner = program, graph, is_inner
        for block in program.blocks if not is_inner else ():
            for name in block.vars:
                self.graph.unique(name)
        self._used_names: set[str] = set()
        self.captures = step_captures(program)

    def frames_of(self, scopes: str, names: Names) -> Any:
        """The frames of a forward block's runs."""
        scope_names: Names | None = names
        while scope_names is not None:
            if scopes in scope_names.frames:
                return scope_names.frames[scopes]
            scope_names = scope_names.parent
        raise NotExported(f"the forward part of it, which fills {scopes}, is not written before it")

    # -- names in the file
    def name(self, name: str) -> str:
        """The name in the file for a variable's value: the variable's name, if no other value has it."""
        if name not in self._used_names and not self._is_inner:
            self._used_names.add(name)
            return name
        return self.graph.unique(name)

    def inner(self, program: Program) -> ProgramWriter:
        """A writer of another program into the same graph; its names have no meaning outside."""
        return ProgramWriter(program, self.graph, is_inner=True)

    def bind(self, names: Names, name: str, tensor: OnnxTensor, first: int, takes_name: bool = True) -> None:
        """Bind a name to a tensor; the tensor gets the name if a node from number `first` on computes it."""
        names.set(name, tensor)
        if not takes_name or tensor.value is not None or tensor.like is not None:
            return
        nodes = self.graph.scope.nodes
        old = tensor._name
        if any(old in node.outputs for node in nodes[first:]):
            new = self.name(name)
            for node in nodes[first:]:
                _rename(node, old, new)
            tensor.renamed(new)

    # -- ops
    def ops(self, ops: Iterable[Operator], names: Names, last: Mapping[str, int] | None = None) -> None:
        """Write ops in order; `last` maps a name to its last writer's number, whose output gets the variable's name."""
        for number, op in enumerate(ops):
            try:
                self.op(op, names, lambda name, number=number: last is None or last.get(name) == number)  # type: ignore[misc]
            except NotExported as error:
                raise ProgramError(f"{op.type} cannot be written to ONNX: {error}\n{locate(op)}") from None
            except FluidError as error:
                if type(error) is ProgramError and "\n" in str(error):
                    raise
                raise type(error)(f"{op.type}: {error}\n{locate(op)}") from None

    def op(self, op: Operator, names: Names, takes_name: Callable[[str], bool]) -> None:
        """Write an op by its handler, or as nodes, or as the ops that it is made of."""
        first = len(self.graph.scope.nodes)
        handler = HANDLERS.get(op.type)
        if handler is None and op.type in ARRAY_HANDLERS and _takes_array(op, names):
            handler = ARRAY_HANDLERS[op.type]
        if handler is not None:
            handler(self, op, names)
            return
        definition = op.definition
        if definition is None:
            raise NotExported("the op is not known here")
        if not is_exported(definition):
            raise NotExported(why_not(definition))
        inputs = self.inputs(op, definition, names)
        wanted = {slot for slot, outs in op.outputs.items() if any(name != EMPTY for name in outs)}
        attrs = definition.defaults(op.attrs)
        forward = definition.forward or definition
        in_parts = forward.decomposition is not None or (forward.composition is not None and forward.lod_aware)
        if definition.type not in EXPORTS and in_parts:
            results = DECOMPOSERS[0](self, definition, inputs, attrs, wanted)
        else:
            declared = declared_specs(op) if definition.forward is None else None
            results = export(self.graph, definition, inputs, attrs, wanted, declared)
        self.outputs(op, definition, results, names, first, takes_name)

    def inputs(self, op: Operator, definition: OpDef, names: Names) -> dict[str, Any]:
        """The tensors of an op's slots."""
        inputs: dict[str, Any] = {}
        for slot, slot_def in definition.inputs.items():
            slot_names = op.inputs.get(slot)
            if not slot_names:
                continue
            if slot_def.many:
                inputs[slot] = [None if name == EMPTY else names.need(name, op) for name in slot_names]
            elif slot_names[0] != EMPTY:
                inputs[slot] = names.need(slot_names[0], op)
        return inputs

    def outputs(
        self,
        op: Operator,
        definition: OpDef,
        results: Mapping[str, Any],
        names: Names,
        first: int,
        takes_name: Callable[[str], bool] = lambda name: True,
    ) -> None:
        """Bind an op's results to the names of its outputs."""
        for slot, outs in op.outputs.items():
            value = results.get(slot)
            values = value if isinstance(value, (list, tuple)) else [value]
            for name, tensor in zip_longest(outs, values[: len(outs)]):
                if name == EMPTY:
                    continue
                if tensor is None:
                    names.values[name] = None
                else:
                    self.bind(names, name, tensor, first, takes_name(name))


def _takes_array(op: Operator, names: Names) -> bool:
    values = [names.get(name) for name in op.input_arg_names]
    if any(tensor is not None and tensor.spec.type is VarType.LOD_TENSOR_ARRAY for tensor in values):
        return True
    variables = [op.block.find_var(name) for name in op.input_arg_names]
    return bool(variables) and all(var is not None and var.type is VarType.LOD_TENSOR_ARRAY for var in variables)


def _rename(node: NodeRecord, old: str, new: str) -> None:
    if old in node.inputs:
        node.inputs = [new if name == old else name for name in node.inputs]
    if old in node.outputs:
        node.outputs = [new if name == old else name for name in node.outputs]
    for value in node.attrs.values():
        if isinstance(value, GraphScope):
            for inner in value.nodes:
                _rename(inner, old, new)


def _input_spec(var: Variable) -> Spec:
    spec = var.spec
    if spec.dtype not in ELEMENTS:
        raise ProgramError(f"{var.name} has elements of {spec.dtype.text}, which ONNX lacks")
    return Spec(spec.shape, spec.dtype)


UPDATED = ".updated"
"""Suffix of the name of a persistable variable's next value."""


def contents_of(program: Program, signature: Signature, value_of: Callable[[str], Any], opset: int) -> Contents:
    """Write a program to an ONNX model in memory.

    Args:
        value_of: the initial value of a persistable variable, as an array.
    """
    reasons = refusals(program, signature.ops)
    if reasons:
        raise ProgramError("the program cannot be written to ONNX:\n  " + "\n  ".join(reasons))
    graph, block = OnnxGraph(opset, OnnxNamespace), program.global_block()
    writer = ProgramWriter(program, graph)
    names = Names(block)
    parameters = _add_inputs(writer, names, signature, value_of)
    ops = [block.ops[position] for position in signature.ops]
    last: dict[str, int] = {}
    for number, op in enumerate(ops):
        last.update(dict.fromkeys(op.output_arg_names, number))
    for name in signature.updated:
        last.pop(name, None)
    writer.ops(ops, names, last)
    updated_names = _add_outputs(writer, names, signature)
    drop_unread(graph)
    return Contents(graph, parameters, {"fluid.updated": json.dumps(updated_names)} if updated_names else {})


def _add_inputs(writer: ProgramWriter, names: Names, signature: Signature, value_of: Callable[[str], Any]) -> dict[str, Any]:
    """Add feeds and state as inputs of the model, and constants as weights; returns the values of state and constants."""
    graph, block = writer.graph, names.block
    parameters: dict[str, Any] = {}
    for name in (*signature.feeds, *signature.state):
        writer.name(name)
        var = block.var(name)
        array = value_of(name) if name in signature.state else None
        spec = _input_spec(var) if array is None else Spec(tuple(array.shape), _input_spec(var).dtype)
        tensor = OnnxTensor(graph, name, spec, tuple(Symbol() if size < 0 else size for size in spec.shape))
        graph.scope.inputs.append(tensor)
        names.set(name, tensor)
        if array is not None:
            parameters[name] = array
        elif var.lod_level:
            lengths_of(writer, var, tensor)
    for name in signature.constants:
        writer.name(name)
        array = value_of(name)
        parameters[name] = graph.weights[name] = array
        names.set(name, OnnxTensor(graph, name, Spec(tuple(array.shape), _input_spec(block.var(name)).dtype)))
    return parameters


def _add_outputs(writer: ProgramWriter, names: Names, signature: Signature) -> dict[str, str]:
    """Add fetches, next values of state, and lengths of fetched sequences; returns name of a state -> name of its next value."""
    outputs = writer.graph.scope.outputs
    updated_names: dict[str, str] = {}
    for name in (*signature.fetches, *signature.updated):
        if names.get(name) is None:
            raise ProgramError(f"{name!r} is not computed: no op writes it")
    for name in signature.fetches:
        outputs.append(_as_output(writer, names.value(name), name))
    for name in signature.updated:
        outputs.append(_as_output(writer, names.value(name), name + UPDATED))
        updated_names[name] = outputs[-1].name
    for name in signature.fetches:
        lengths = names.value(name).lengths
        if lengths is not None:
            outputs.append(_as_output(writer, lengths, name + LENGTHS))
    return updated_names


LENGTHS = ".lengths"
"""Suffix of the name of the lengths of a variable's sequences."""


def lengths_of(writer: ProgramWriter, var: Variable, tensor: OnnxTensor) -> None:
    """Add an input for the lengths of sequences, for a variable whose rows form sequences."""
    if var.lod_level > 1:
        raise ProgramError(f"{var.name} has {var.lod_level} levels of sequences; ONNX can be told the lengths of one")
    graph = writer.graph
    lengths = OnnxTensor(graph, writer.name(var.name + LENGTHS), Spec((-1,), VarType.INT64), (Symbol(),))
    graph.scope.inputs.append(lengths)
    tensor.lengths = lengths
    graph.rows_of(lengths, tensor.sizes[0])
    tensor.spec = tensor.spec.with_lod((None,))


def _as_output(writer: ProgramWriter, tensor: OnnxTensor, name: str) -> OnnxTensor:
    """Make a tensor an output of the graph, under a name."""
    graph = writer.graph
    used_names = {edge.name for edge in (*graph.scope.inputs, *graph.scope.outputs)}
    if tensor.value is None and tensor.like is None and tensor._name == name and name not in used_names:
        return tensor
    copy = graph.identity(tensor)
    new = name if name not in writer._used_names and name not in used_names else graph.unique(name)
    writer._used_names.add(new)
    _rename(graph.scope.nodes[-1], copy._name, new)
    copy.renamed(new)
    return copy


def drop_unread(graph: OnnxGraph) -> None:
    """Remove nodes with no reader, also in inner graphs."""
    _drop(graph.scopes[0])


def _drop(scope: GraphScope) -> None:
    read = {tensor.name for tensor in scope.outputs}
    live_nodes = []
    for node in reversed(scope.nodes):
        if read.isdisjoint(node.outputs):
            continue
        live_nodes.append(node)
        read.update(node.inputs)
        for value in node.attrs.values():
            if isinstance(value, GraphScope):
                _drop(value)
                read.update(_names_in(value))
    scope.nodes = live_nodes[::-1]


def _names_in(scope: GraphScope) -> set[str]:
    names = {tensor.name for tensor in scope.outputs}
    for node in scope.nodes:
        names.update(node.inputs)
        for value in node.attrs.values():
            if isinstance(value, GraphScope):
                names |= _names_in(value)
    return names
