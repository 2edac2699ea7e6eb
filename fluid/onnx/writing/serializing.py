"""Serialize a graph part by part: arrays go straight to the file, without copies."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np

from fluid.formats.writing import together, write_file
from fluid.values.types import BFLOAT16, VarType, as_dtype

from ..wire import head_of_field
from .graph import ELEMENTS, GraphScope, NodeRecord, OnnxGraph, OnnxTensor, Symbol, is_number

LARGEST = 2**31 - 1
"""Bytes of the largest message that readers of protobuf accept."""
_ALIGNMENT = 4096
"""Arrays in a separate file begin at multiples of this, so that it can be mapped."""
_SMALL = 1024
"""Arrays of fewer bytes stay in the model when others go into a separate file."""

_IR = {13: 7, 14: 7, 15: 8, 16: 8, 17: 8, 18: 8, 19: 9, 20: 9, 21: 10, 22: 10, 23: 11, 24: 12}
"""Opset -> the IR version released with it; later opsets have other versions."""


class Contents:
    """The contents of a model file.

    Attributes:
        graph: the graph; its first scope has the inputs and outputs.
        parameters: name -> array, of the initializers besides the graph's constants.
        metadata: properties of the model.
    """

    def __init__(self, graph: OnnxGraph, parameters: Mapping[str, Any], metadata: Mapping[str, str]) -> None:
        self.graph, self.parameters, self.metadata = graph, dict(parameters), dict(metadata)

    def arrays(self) -> dict[str, Any]:
        """All initializers with a reader, by name."""
        read = _read_names(self.graph.scopes[0])
        constants = {name: array for name, array in self.graph.constants.items() if name in read}
        weights = self.graph.weights  # some are written in another form
        return {name: array for name, array in self.parameters.items() if name in read or name not in weights} | constants


def _read_names(scope: GraphScope) -> set[str]:
    names = {tensor.name for tensor in scope.outputs}
    waiting = [scope]
    while waiting:
        inner_scope = waiting.pop()
        names.update(tensor.name for tensor in inner_scope.outputs)
        for node in inner_scope.nodes:
            names.update(node.inputs)
            waiting += [value for value in node.attrs.values() if isinstance(value, GraphScope)]
    return names


# ------------------------------------------------------------------------------------------------------------- messages
def _value_info(tensor: OnnxTensor, parts: Mapping[int, str]) -> Any:
    from onnx import helper

    shape = [size if is_number(size) else parts.get(size) for size in tensor.sizes]
    if tensor.spec.type is VarType.LOD_TENSOR_ARRAY:
        return helper.make_tensor_sequence_value_info(tensor.name, ELEMENTS[tensor.dtype], None)
    return helper.make_tensor_value_info(tensor.name, ELEMENTS[tensor.dtype], shape)


def _attribute(name: str, value: Any, parts: Mapping[int, str]) -> Any:
    from onnx import helper, numpy_helper

    if isinstance(value, GraphScope):
        return helper.make_attribute(name, _graph_message(value, name, parts))
    if isinstance(value, np.ndarray):
        return helper.make_attribute(name, numpy_helper.from_array(value))
    return helper.make_attribute(name, value)


def _node_message(node: NodeRecord, parts: Mapping[int, str]) -> Any:
    from onnx import NodeProto

    message = NodeProto(op_type=node.op, name=node.outputs[0], input=node.inputs, output=node.outputs)
    for name, value in sorted(node.attrs.items()):
        message.attribute.append(_attribute(name, value, parts))
    return message


def _graph_message(scope: GraphScope, name: str, parts: Mapping[int, str]) -> Any:
    from onnx import GraphProto

    message = GraphProto(name=name)
    message.node.extend(_node_message(node, parts) for node in scope.nodes)
    message.input.extend(_value_info(tensor, parts) for tensor in scope.inputs)
    message.output.extend(_value_info(tensor, parts) for tensor in scope.outputs)
    return message


def _names_of_sizes(graph: OnnxGraph) -> dict[int, str]:
    """Symbol -> its name in the file, after the first input that has it."""
    names: dict[int, str] = {}
    for tensor in graph.scopes[0].inputs:
        for axis, size in enumerate(tensor.sizes):
            if isinstance(size, Symbol):
                names.setdefault(size, f"{tensor.name}.size{axis}")
    return names


def _version(opset: int) -> int:
    from onnx import helper

    return _IR.get(opset) or helper.find_min_ir_version_for([helper.make_opsetid("", opset)])


# ---------------------------------------------------------------------------------------------------------------- bytes
def _raw(array: Any) -> memoryview:
    """The bytes of an array, without a copy if it is contiguous and in this machine's byte order."""
    array = np.ascontiguousarray(array)
    if array.dtype.byteorder == ">":
        array = array.astype(array.dtype.newbyteorder("<"))
    return memoryview(array.reshape(-1).view(np.uint8)) if array.size else memoryview(b"")


def _element(array: Any) -> int:
    return ELEMENTS[VarType.BF16 if array.dtype == BFLOAT16 else as_dtype(array.dtype)]


class _Initializer:
    """An initializer as bytes: a head, and the array's bytes, which may be in another file."""

    def __init__(self, name: str, array: Any, place: tuple[str, int] | None) -> None:
        from onnx import TensorProto

        message = TensorProto(name=name, dims=array.shape, data_type=_element(array))
        self.raw = memoryview(b"")
        head = b""
        if place is None:
            self.raw = _raw(array)
            head = head_of_field(9, self.raw.nbytes)
        else:
            message.data_location = TensorProto.EXTERNAL
            for key, value in (("location", place[0]), ("offset", place[1]), ("length", array.nbytes)):
                message.external_data.add(key=key, value=str(value))
        body = message.SerializeToString() + head
        size = len(body) + self.raw.nbytes
        self.head = head_of_field(5, size) + body
        self.size = len(self.head) + self.raw.nbytes


def chunks_of(contents: Contents, places: Mapping[str, tuple[str, int]]) -> list[bytes | memoryview]:
    """The model's bytes; the arrays in `places` are in another file: its name, and their offsets there."""
    from onnx import ModelProto

    graph = contents.graph
    model = ModelProto(ir_version=_version(graph.opset), producer_name="fluid")
    model.opset_import.add(domain="", version=graph.opset)
    for key, value in sorted(contents.metadata.items()):
        model.metadata_props.add(key=key, value=value)
    body = _graph_message(graph.scopes[0], "program", _names_of_sizes(graph)).SerializeToString()
    initializers = [_Initializer(name, array, places.get(name)) for name, array in contents.arrays().items()]
    size = len(body) + sum(initializer.size for initializer in initializers)
    chunks: list[bytes | memoryview] = [model.SerializeToString(), head_of_field(7, size), body]
    for initializer in initializers:
        chunks += [initializer.head, initializer.raw]
    return chunks


def write_contents(path: str, contents: Contents, external: bool | None) -> list[str]:
    """Write a model; with `external`, or if the model is too large, large arrays go into a separate file."""
    arrays = contents.arrays()
    if external is None:
        external = sum(array.nbytes for array in arrays.values()) > LARGEST - (64 << 20)
    if not external:
        write_file(path, chunks_of(contents, {}))  # type: ignore[arg-type]
        return [path]
    data = path + ".data"
    places, offset = {}, 0
    for name, array in arrays.items():
        if array.nbytes >= _SMALL:
            places[name] = (os.path.basename(data), offset)
            offset += -(-array.nbytes // _ALIGNMENT) * _ALIGNMENT
    with together():
        write_file(data, _aligned([arrays[name] for name in places]))  # type: ignore[arg-type]
        write_file(path, chunks_of(contents, places))  # type: ignore[arg-type]
    return [path, data]


def _aligned(arrays: Iterable[Any]) -> Iterator[bytes | memoryview]:
    for array in arrays:
        raw = _raw(array)
        yield raw
        yield bytes(-raw.nbytes % _ALIGNMENT)
