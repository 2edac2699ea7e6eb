"""Write ops: one function per op type, with the op's slots and attributes as parameters.

A function under `exports` takes ``g``, the graph; tensors by slot (a list for a slot of many, None if absent; ``dOut`` for the
gradient of ``Out``); attributes; ``f``, the namespace of Fluid's ops over tensors; ``specs``, the specs of the outputs by slot;
``wanted``, the set of output slots that something may read; ``inputs`` and ``attrs``, all of them by name. It returns the tensor
of the first output, or slot -> tensor. Results are brought to the shape and element type of inference. It raises `NotExported`
with a reason if it cannot write the op with these shapes and attributes.

A gradient op without such a function is written by its rule, which runs over tensors.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

import numpy as np

from fluid.errors import FluidError, FluidTypeError
from fluid.executor.binding.compiled import apply_op
from fluid.executor.binding.halves import widened_attrs
from fluid.opdef.inference import OpNamespace, infer_specs
from fluid.opdef.parameters import OpFunction
from fluid.opdef.registry import OpDef, Rule, get, grad_slot
from fluid.opdef.tables import OpTable
from fluid.values.spec import Spec
from fluid.values.types import VarType, accumulated

from .graph import ELEMENTS, NotExported, OnnxGraph, OnnxTensor, Symbol, is_number, without_symbols
from .refused import REFUSED

_Export = Callable[..., Any]
_E = TypeVar("_E", bound=_Export)
_CONTEXT = ("g", "f", "inputs", "attrs", "specs", "wanted")
EXPORTS: OpTable[OpFunction] = OpTable("function that writes it as ONNX")
"""Op type -> the function that writes it."""


def exports(*op_types: str) -> Callable[[_E], _E]:
    """Register the function that writes these ops."""

    def register(fn: _E) -> _E:
        EXPORTS.add(OpFunction.of(map(get, op_types), fn, _CONTEXT, EXPORTS.noun))
        return fn

    return register


class OnnxNamespace(OpNamespace):
    """Fluid's ops over tensors of an ONNX graph."""

    def __init__(self, graph: OnnxGraph) -> None:
        self._graph = graph

    def apply(self, definition: OpDef, inputs: Mapping[str, Any], attrs: Mapping[str, Any]) -> dict[str, Any]:
        values = {slot: list(value) if isinstance(value, tuple) else value for slot, value in inputs.items()}
        attrs = definition.defaults(definition.check_attrs(attrs))
        return export(self._graph, definition, values, attrs, None)


def _map_values(value: Any, function: Callable[[Any], Any]) -> Any:
    if isinstance(value, list):
        return [None if item is None else function(item) for item in value]
    return None if value is None else function(value)


def specs_of(
    definition: OpDef, inputs: Mapping[str, Any], attrs: Mapping[str, Any], declared: Mapping[str, Any] | None
) -> dict[str, Any]:
    """The specs of an op's outputs, with symbols for sizes that follow from inputs; -1 for other unknown sizes."""
    specs = _specs_of_symbols(definition, inputs, attrs, declared)
    if specs is None:
        plain = {slot: _map_values(value, lambda tensor: tensor.spec) for slot, value in inputs.items()}
        specs = infer_specs(definition, plain, attrs, declared)
    return specs


def _specs_of_symbols(
    definition: OpDef, inputs: Mapping[str, Any], attrs: Mapping[str, Any], declared: Mapping[str, Any] | None
) -> dict[str, Any] | None:
    """The result of `specs_of` if inputs have symbols; None if they have none, or if symbols tell too little.

    Inference computes with numbers, so it runs twice, with different numbers for each unknown size. A size that comes out the
    same is known. A size that comes out as a symbol's number both times is that symbol. The numbers are in opposite order, so the
    greater of two symbols is neither.
    """
    symbols = {size for tensor in _tensors(inputs) for size in tensor.sizes if isinstance(size, Symbol)}
    if not symbols or (definition.forward or definition).lod_aware:  # inference may visit each row
        return None
    symbolic = {slot: _map_values(value, _with_each_size) for slot, value in inputs.items()}
    unknown = sorted({size for spec in _specs(symbolic) for size in spec.shape if isinstance(size, Symbol)})
    first = {symbol: 1_000_000_007 + 1009 * place**2 for place, symbol in enumerate(unknown)}
    second = {symbol: 1_500_000_001 + 2003 * place**2 for place, symbol in enumerate(reversed(unknown))}
    runs = []
    try:
        for numbers in (first, second):
            numbered = {slot: _map_values(value, partial(_numbered, numbers)) for slot, value in symbolic.items()}
            runs.append(infer_specs(definition, numbered, attrs, declared))
    except FluidError:  # two sizes that may be equal, say
        return None
    symbol_of = {(first[symbol], second[symbol]): symbol for symbol in symbols}
    return {
        slot: [_agreed(*pair, symbol_of) for pair in zip(value, runs[1][slot], strict=True)]
        if isinstance(value, list)
        else _agreed(value, runs[1][slot], symbol_of)
        for slot, value in runs[0].items()
    }


def _with_each_size(tensor: OnnxTensor) -> Spec:
    """The spec of a tensor with a symbol for each unknown size."""
    return tensor.spec.with_shape(tuple(Symbol() if size < 0 else size for size in tensor.sizes))


def _numbered(numbers: Mapping[Any, int], spec: Spec) -> Spec:
    return spec.with_shape(tuple(numbers.get(size, size) for size in spec.shape))


def _agreed(one: Spec | None, two: Spec | None, symbol_of: Mapping[tuple[int, int], Symbol]) -> Spec | None:
    """Merge the specs of two runs of inference: sizes where they agree, a symbol, or -1."""
    if one is None or two is None:
        return one
    if len(one.shape) != len(two.shape):
        return one.with_shape((-1,) * len(one.shape))
    return one.with_shape(tuple(a if a == b else symbol_of.get((a, b), -1) for a, b in zip(one.shape, two.shape, strict=True)))


def _specs(values: Mapping[str, Any]) -> list[Spec]:
    return [spec for value in values.values() for spec in (value if isinstance(value, list) else [value]) if spec is not None]


def is_exported(definition: OpDef) -> bool:
    """Whether ops of this type can be written, at least with some attributes."""
    forward = definition.forward
    if definition.type in REFUSED:
        return False
    if definition.type in EXPORTS or (forward or definition).decomposition is not None or _reads_shapes_alone(definition):
        return True
    return definition.formula is not None or (forward is not None and isinstance(forward.rule, Rule))


def export(
    graph: OnnxGraph,
    definition: OpDef,
    inputs: Mapping[str, Any],
    attrs: Mapping[str, Any],
    wanted: set[str] | None,
    declared: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Write an op; return its outputs by slot, as tensors.

    Args:
        inputs: tensors by slot, lists in slots of many.
        attrs: all attributes, defaults included.
        wanted: the output slots that something may read; None for all except intermediate ones.
        declared: declared specs of the outputs, by slot.
    """
    specs = specs_of(definition, inputs, attrs, declared)
    if not any(map(_is_half, (*_specs(specs), *(tensor.spec for tensor in _tensors(inputs))))):
        return _write_op(graph, definition, inputs, attrs, wanted, specs)
    start = len(graph.scope.nodes)
    try:
        results = _write_op(graph, definition, inputs, attrs, wanted, specs)
        if _takes_halves(graph, start, inputs):
            return results
    except (NotExported, FluidTypeError):  # of constants of bfloat16, say
        pass
    wide = {slot: _map_values(value, partial(_widened, graph)) for slot, value in inputs.items()}
    wide_specs = {slot: _map_values(spec, _wider) for slot, spec in specs.items()}
    results = _write_op(graph, definition, wide, widened_attrs(attrs), wanted, wide_specs)
    return _fitted(graph, results, specs)


_MOVES = frozenset(
    {
        "Cast", "Concat", "Expand", "Flatten", "Gather", "GatherElements", "GatherND", "Identity", "Pad", "Reshape", "Shape",
        "Slice", "Split", "Squeeze", "Tile", "Transpose", "Unsqueeze", "Where",
    }
)  # fmt: skip
"""Nodes that move or convert elements."""


def _tensors(values: Mapping[str, Any]) -> list[OnnxTensor]:
    """The tensors of slots."""
    flat = (item for value in values.values() for item in (value if isinstance(value, list) else [value]))
    return [tensor for tensor in flat if tensor is not None]


def _is_half(spec: Spec) -> bool:
    return accumulated(spec.dtype) is not spec.dtype


def _wider(spec: Spec) -> Spec:
    """Replace halves by float32 in a spec."""
    return spec.with_dtype(accumulated(spec.dtype))


def _widened(graph: OnnxGraph, tensor: OnnxTensor) -> OnnxTensor:
    """Cast a tensor of halves to float32."""
    if not _is_half(tensor.spec) or tensor.like is not None:
        return tensor
    wide = graph.cast(tensor, VarType.FP32)
    wide.lengths = tensor.lengths
    return wide


def _takes_halves(graph: OnnxGraph, start: int, inputs: Mapping[str, Any]) -> bool:
    """Whether one node computes the result from halves, so that it is rounded once, and ONNX allows that."""
    import onnx

    nodes = [node for node in graph.scope.nodes[start:] if node.op not in _MOVES]
    if len(nodes) != 1:
        return not nodes
    node = nodes[0]
    types = {tensor.name: f"tensor({tensor.dtype.text})" for tensor in _tensors(inputs) if _is_half(tensor.spec)}
    declared = onnx.defs.get_schema(node.op, graph.opset, node.attrs.get("domain", "")).inputs
    places = ((name, min(place, len(declared) - 1)) for place, name in enumerate(node.inputs))  # the last one may repeat
    return all(types[name] in declared[place].types for name, place in places if name in types)


def _write_op(
    graph: OnnxGraph,
    definition: OpDef,
    inputs: Mapping[str, Any],
    attrs: Mapping[str, Any],
    wanted: set[str] | None,
    specs: Mapping[str, Any],
) -> dict[str, Any]:
    """Write an op whose outputs have these specs."""
    if wanted is None:
        wanted = (
            {slot for slot in specs if not definition.outputs[slot].intermediate} if definition.forward is None else set(specs)
        )
    entry = EXPORTS.get(definition.type)
    if entry is None and definition.formula is None and _reads_shapes_alone(definition):
        return _computed(graph, definition, inputs, attrs)
    if entry is None:
        results = _by_rule(graph, definition, inputs, attrs, wanted)
    else:
        context = {"g": graph, "f": graph.ops, "inputs": inputs, "attrs": attrs, "specs": specs, "wanted": wanted}
        results = entry.results(definition, entry.arguments(inputs, attrs, context))
    done = _fitted(graph, results, specs)
    if not (definition.forward or definition).lod_aware:
        _share_lengths(inputs, done)
    _mark_sequences(done)
    return done


def _fitted(graph: OnnxGraph, results: Mapping[str, Any], specs: Mapping[str, Any]) -> dict[str, Any]:
    """Bring results to the shapes and element types of inference."""
    done: dict[str, Any] = {}
    for slot, value in results.items():
        spec = specs.get(slot)
        if value is None or spec is None:
            done[slot] = value
        elif isinstance(value, (list, tuple)):
            done[slot] = [
                None if tensor is None else _fit(graph, tensor, output_spec)
                for tensor, output_spec in zip(value, spec, strict=True)
            ]
        else:
            done[slot] = _fit(graph, value, spec)
    return done


def _mark_sequences(outputs: Mapping[str, Any]) -> None:
    """Mark outputs with lengths as sequences in their specs."""
    for value in outputs.values():
        for tensor in value if isinstance(value, list) else [value]:
            if (
                tensor is not None
                and tensor.spec.type is VarType.LOD_TENSOR
                and bool(tensor.spec.lod) is not (tensor.lengths is not None)
            ):
                tensor.spec = tensor.spec.with_lod(() if tensor.lengths is None else (None,))
            if tensor is not None and tensor.lengths is not None and tensor.sizes and tensor.sizes[0] == -1:
                tensor.sizes = (tensor.graph.rows_of(tensor.lengths), *tensor.sizes[1:])


def _reads_shapes_alone(definition: OpDef) -> bool:
    """Whether an op reads only the shapes of its inputs: with known shapes, its outputs are constants."""
    return definition.forward is None and bool(definition.inputs) and all(slot.shape_only for slot in definition.inputs.values())


def _computed(graph: OnnxGraph, definition: OpDef, inputs: Mapping[str, Any], attrs: Mapping[str, Any]) -> dict[str, Any]:
    """Compute an op's outputs from input shapes, as constants; the outputs must be equal for two values of unknown sizes."""
    specs = _specs({slot: _map_values(value, lambda tensor: tensor.spec) for slot, value in inputs.items()})

    def outputs(unknown: int) -> dict[str, Any]:
        def zeros(tensor: OnnxTensor) -> Any:
            return np.zeros([unknown if size < 0 else size for size in tensor.shape], tensor.dtype.numpy)

        return apply_op(definition.type, {slot: _map_values(value, zeros) for slot, value in inputs.items()}, attrs)

    results = outputs(2)
    if not all(spec.known for spec in specs):
        second_results = outputs(3)
        pairs = [(one, second_results[slot]) for slot, one in results.items() if one is not None]
        if any(isinstance(one, list) or not np.array_equal(one, two) for one, two in pairs):
            raise NotExported("shapes that are known only at run time")
    return {slot: _map_values(value, graph.constant) for slot, value in results.items()}


def _by_rule(
    graph: OnnxGraph, definition: OpDef, inputs: Mapping[str, Any], attrs: Mapping[str, Any], wanted: set[str]
) -> dict[str, Any]:
    if definition.formula is not None:
        return definition.formula(graph.ops, dict(inputs), attrs, wanted)
    forward = definition.forward
    if forward is None:
        raise NotExported("there is no function that writes it")
    if not isinstance(forward.rule, Rule):
        raise NotExported("it has no gradient rule")
    if forward.decomposition is not None:
        raise NotExported("it is the gradient of a decomposed op")
    if forward.sparse_grad and attrs.get("is_sparse"):
        attrs = {**attrs, "is_sparse": False}
    slots = {slot for slot in forward.rule.wrt if grad_slot(slot) in wanted}
    gradients = forward.rule(graph.ops, dict(inputs), attrs, slots)
    return {grad_slot(slot): gradients.get(slot) for slot in slots}


def _fit(graph: OnnxGraph, tensor: OnnxTensor, spec: Spec) -> OnnxTensor:
    """Bring a tensor to the shape and element type of inference, where it was written with others."""
    if spec.type is not VarType.LOD_TENSOR or tensor.spec.type is not VarType.LOD_TENSOR:
        if spec.type is VarType.SELECTED_ROWS:
            return tensor
        tensor.spec = replace(spec, shape=without_symbols(spec.shape))
        tensor.sizes = spec.shape
        return tensor
    if tensor.dtype is not spec.dtype:
        if spec.dtype not in ELEMENTS:
            raise NotExported(f"elements of {spec.dtype.text}")
        tensor = graph.cast(tensor, spec.dtype)
    if tensor.ndim != spec.ndim:
        if tensor.like is not None:
            raise NotExported("the shape of a shape")
        lengths, tensor = tensor.lengths, graph.reshape(tensor, [], ()) if not spec.ndim else _reshaped(graph, tensor, spec)
        tensor.lengths = lengths
    elif tensor.sizes != spec.shape:
        sizes = tuple(
            size if is_number(size) else inferred if inferred != -1 else size
            for size, inferred in zip(tensor.sizes, spec.shape, strict=True)
        )
        if sizes != tensor.sizes:
            tensor.sizes = sizes
            tensor.spec = tensor.spec.with_shape(without_symbols(sizes))
    return tensor


def _reshaped(graph: OnnxGraph, tensor: OnnxTensor, spec: Spec) -> OnnxTensor:
    """Reshape a tensor to another rank, with the same number of elements."""
    return graph.in_shape(tensor, spec.shape)


def _share_lengths(inputs: Mapping[str, Any], outputs: Mapping[str, Any]) -> None:
    """Give an input's sequences to outputs with the same number of rows."""
    sources: dict[int, OnnxTensor] = {}
    tensors = _tensors(inputs)
    for tensor in tensors:
        if tensor.lengths is not None and tensor.sizes:
            sources.setdefault(tensor.sizes[0], tensor.lengths)
    if not sources:
        return
    every = all(tensor.lengths is not None for tensor in tensors if tensor.value is None)
    for value in outputs.values():
        for tensor in value if isinstance(value, list) else [value]:
            if tensor is not None and tensor.sizes and tensor.like is None and tensor.lengths is None:
                if tensor.sizes[0] != -1:
                    tensor.lengths = sources.get(tensor.sizes[0])
                elif every:  # it is unknown whether the number of rows equals an input's
                    tensor.lengths = next(iter(sources.values()))
