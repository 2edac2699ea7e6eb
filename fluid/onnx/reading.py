"""Read a file as a checked `onnx.ModelProto`, without the bytes of its large tensors, which stay in the file.

A model's message may be as large as its weights, and protobuf would copy it. So it is read twice: `_Scan.outline` walks the
message and replaces the bytes of large tensors by their place in the file, as ONNX does for external data; then the remaining
bytes are parsed.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any

from ..errors import FluidError, FormatError, how_to_install
from ..formats.room import Room, most_bytes
from .tensors import SELF, OnnxTensorReader, map_file
from .wire import head_of_field, varint

_DEEPEST = 90
"""The deepest nesting of messages; protobuf reads no more than 100."""
_LARGE = 4096
"""Tensors of this many bytes or more stay in the file."""
_MESSAGE, _NUMBER = 240, 40
"""Bytes of memory of an empty message, which has two bytes in the file, and of a number in a list of Python."""
_RAW_DATA, _LOCATION, _EXTERNAL = 9, 14, 13


_REFUSAL = (
    "the nodes of the model, with those of the functions that they call, are so many that they would take more than 64 MiB of "
    "memory and ten times the file"
)


def read_model_proto(path: str) -> tuple[Any, OnnxTensorReader]:
    """Read the model in a file as `onnx.ModelProto`, with a reader for its tensors.

    Raises:
        FormatError: the file is damaged, or no ONNX model.
        FluidError: the package ``onnx`` is not installed.
    """
    try:
        import onnx
    except ImportError:
        raise FluidError(f"{path} is an ONNX model; reading it needs the package onnx: {how_to_install('onnx')}") from None
    from google.protobuf.message import DecodeError

    data = map_file(path, "the file")
    scan = _Scan(path, len(data))
    outline = b"".join(scan.outline(data, 0, len(data), onnx.ModelProto.DESCRIPTOR))
    scan.check_density(outline, onnx.ModelProto.DESCRIPTOR)
    try:
        model = onnx.ModelProto.FromString(outline)
    except DecodeError as error:
        raise FormatError(f"{path}: not an ONNX model, or damaged: {error}") from None
    _check_versions(model, path)
    return model, OnnxTensorReader(path, data, Room(len(data), _REFUSAL))


def _check_versions(model: Any, path: str) -> None:
    if not model.HasField("graph"):
        raise FormatError(f"{path}: the ONNX model holds no graph")


def check_names_of_model(model: Any) -> None:
    """`FormatError` if a name in a model is no text; `check_names` checks functions and graphs of nodes."""
    _check_text("an opset", (opset.domain for opset in model.opset_import))
    for function in model.functions:
        _check_text("a function", (function.name, function.domain, function.overload))
        _check_text("an opset", (opset.domain for opset in function.opset_import))
    check_names(model.graph)


def check_names(graph: Any) -> None:
    """`FormatError` if a name in a graph or function is no text; protobuf returns such names as bytes."""
    for node in graph.node:
        _check_text("a node", (node.name, node.op_type, node.domain, node.overload, *node.input, *node.output))
        for attribute in node.attribute:
            _check_text("an attribute", (attribute.name, attribute.ref_attr_name))
    _check_text("a graph", (graph.name,))
    for name, messages in (("input", graph.input), ("output", graph.output)):
        for message in messages:
            _check_text(f"an {name}", (message if isinstance(message, (str, bytes)) else message.name,))
    for tensor in getattr(graph, "initializer", ()):
        _check_text("an initializer", (tensor.name,))
    for sparse in getattr(graph, "sparse_initializer", ()):
        _check_text("an initializer", (sparse.values.name, sparse.indices.name))


def _check_text(label: str, names: Any) -> None:
    for name in names:
        if name.__class__ is bytes:
            raise FormatError(f"a name in {label}, {name[:40]!r}, is no text: it is not UTF-8")


# --------------------------------------------------------------------------------------------------------- the wire format
@cache
def _children(descriptor: Any) -> dict[int, Any]:
    """The fields of a message that hold messages: number -> their descriptor."""
    return {field.number: field.message_type for field in descriptor.fields if field.message_type is not None}


class _Scan:
    """Walks messages in the wire format without building objects.

    Args:
        path: the file, for errors.
        size: its size, which bounds how many fields there may be.
    """

    def __init__(self, path: str, size: int) -> None:
        self._path = path
        self._left = self._room = most_bytes(size) // 2

    def _damaged(self, reason: str) -> FormatError:
        return FormatError(f"{self._path}: not an ONNX model, or damaged: {reason}")

    def _varint(self, data: memoryview, at: int, end: int) -> tuple[int, int]:
        value = shift = 0
        while True:
            if at >= end or shift > 63:
                raise self._damaged(f"a number ends too late, at byte {at}")
            byte = data[at]
            at += 1
            value |= (byte & 127) << shift
            if byte < 128:
                return value, at
            shift += 7

    def _fields(self, data: memoryview, start: int, end: int, depth: int) -> Iterator[tuple[int, int, int, int]]:
        """Yield the fields of bytes (strings, messages, arrays) in a range: number, start, start of the content, end."""
        if depth > _DEEPEST:
            raise FormatError(
                f"{self._path}: more than {_DEEPEST} messages inside of each other, at byte {start}; no model has as many"
            )
        at = start
        while at < end:
            begin = at
            tag, at = self._varint(data, at, end)
            kind = tag & 7
            self._left -= _MESSAGE if kind == 2 else _NUMBER
            if self._left < 0:
                raise FormatError(
                    f"{self._path}: its parts are so many, and so small, that they would take more than 64 MiB of memory and ten "
                    "times the file; no model that computes something is as dense"
                )
            content = at
            if kind == 0:
                _, at = self._varint(data, at, end)
            elif kind == 2:
                length, content = self._varint(data, at, end)
                at = content + length
            elif kind in (1, 5):
                at += 8 if kind == 1 else 4
            else:
                raise self._damaged(f"there is no field of kind {kind}, at byte {begin}")
            if at > end:
                raise self._damaged(f"the field at byte {begin} should end at {at}, and its message, or the file, ends before")
            if kind == 2:
                yield tag >> 3, begin, content, at

    def outline(self, data: memoryview, start: int, end: int, descriptor: Any, depth: int = 0) -> Iterator[bytes | memoryview]:
        """The parts of a message without the bytes of large tensors; these become external data in the file itself."""
        children = _children(descriptor)
        is_tensor = descriptor.name == "TensorProto"
        copied_from = start
        at_end = b""  # of several fields for one thing the last counts, and files may state that data are in the message
        for number, begin, content, stop in self._fields(data, start, end, depth):
            if stop - content < _LARGE:
                continue
            if is_tensor and number == _RAW_DATA:
                yield data[copied_from:begin]
                at_end = _as_external(content, stop - content)
                copied_from = stop
            elif number in children:
                parts = list(self.outline(data, content, stop, children[number], depth + 1))
                yield data[copied_from:begin]
                yield head_of_field(number, sum(map(len, parts)))
                yield from parts
                copied_from = stop
        yield data[copied_from:end]
        yield at_end

    def check_density(self, outline: bytes, descriptor: Any) -> None:
        """`FormatError` if an outline has so many small messages that they would take too much memory."""
        self._left = self._room
        if len(outline) // 2 * _MESSAGE <= self._left:  # a message has two bytes at least
            return
        view = memoryview(outline)
        stack = [(0, len(outline), descriptor, 0)]
        while stack:
            start, end, message, depth = stack.pop()
            children = _children(message)
            for number, _, content, stop in self._fields(view, start, end, depth):
                if number in children:
                    stack.append((content, stop, children[number], depth + 1))


def _as_external(offset: int, length: int) -> bytes:
    """The fields of a tensor that name the place of its bytes."""
    parts = [varint(_LOCATION << 3), b"\x01"]
    for key, value in (("location", SELF), ("offset", str(offset)), ("length", str(length))):
        entry = b"".join(head_of_field(n, len(text)) + text.encode() for n, text in ((1, key), (2, value)))
        parts.append(head_of_field(_EXTERNAL, len(entry)) + entry)
    return b"".join(parts)
