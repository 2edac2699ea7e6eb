"""A file as a checked `onnx.ModelProto`, without the bytes of its large tensors, which stay in the file.

A model's message may be as large as its weights, which protobuf would copy. So it is read twice: `_outline` goes along the message
and leaves out the bytes of large tensors, of which it notes the place as ONNX does for data in other files; what is left is parsed.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any

from ..errors import FluidError, FormatError
from .tensors import SELF, TensorReader, map_file

__all__ = ["read_model_proto"]

_DEEPEST = 90
"""The most messages inside of each other; protobuf reads no more than 100."""
_LARGE = 4096
"""Bytes of a tensor from which on they stay in the file."""
_SPARE, _PER_BYTE = 64 << 20, 10
_MESSAGE = 240
"""Bytes of memory of a message without anything, of two bytes in the file."""
_RAW_DATA, _LOCATION, _EXTERNAL = 9, 14, 13


def read_model_proto(path: str) -> tuple[Any, TensorReader]:
    """The model in a file as `onnx.ModelProto`, and what makes arrays of its tensors.

    Raises:
        FormatError: the file is damaged, or no ONNX model.
        FluidError: the package ``onnx`` is not installed.
    """
    try:
        import onnx
    except ImportError:
        raise FluidError(f"{path} is an ONNX model; reading it needs the package onnx: pip install fluid-graph[onnx]") from None
    from google.protobuf.message import DecodeError

    data = map_file(path, "the file")
    outline = b"".join(_outline(data, 0, len(data), onnx.ModelProto.DESCRIPTOR, 0, path))
    _check_density(outline, len(data), onnx.ModelProto.DESCRIPTOR, path)
    try:
        model = onnx.ModelProto.FromString(outline)
    except DecodeError as error:
        raise FormatError(f"{path}: not an ONNX model, or damaged: {error}") from None
    _check_versions(model, path)
    return model, TensorReader(path, data)


def _check_versions(model: Any, path: str) -> None:
    if not model.HasField("graph"):
        raise FormatError(f"{path}: the ONNX model holds no graph")


# --------------------------------------------------------------------------------------------------------- the wire format
@cache
def _children(descriptor: Any) -> dict[int, Any]:
    """The fields of a message that hold messages: number -> their descriptor."""
    return {field.number: field.message_type for field in descriptor.fields if field.message_type is not None}


def _varint(data: memoryview, at: int, end: int, path: str) -> tuple[int, int]:
    value = shift = 0
    while True:
        if at >= end or shift > 63:
            raise FormatError(f"{path}: not an ONNX model, or damaged: a number ends too late, at byte {at}")
        byte = data[at]
        at += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, at
        shift += 7


def _fields(data: memoryview, start: int, end: int, path: str) -> Iterator[tuple[int, int, int, int]]:
    """The fields of the message between two bytes: number, and where it begins, its content begins, and it ends."""
    at = start
    while at < end:
        begin = at
        tag, at = _varint(data, at, end, path)
        kind = tag & 7
        content = at
        if kind == 0:
            _, at = _varint(data, at, end, path)
        elif kind == 2:
            length, content = _varint(data, at, end, path)
            at = content + length
        elif kind in (1, 5):
            at += 8 if kind == 1 else 4
        else:
            raise FormatError(f"{path}: not an ONNX model, or damaged: there is no field of kind {kind}, at byte {begin}")
        if at > end:
            raise FormatError(f"{path}: truncated, or damaged: the field at byte {begin} ends behind its message, at {at}")
        yield (tag >> 3 if kind == 2 else 0), begin, content, at


def _outline(data: memoryview, start: int, end: int, descriptor: Any, depth: int, path: str) -> Iterator[bytes | memoryview]:
    """The parts of a message, without the bytes of large tensors; these become external data in the file itself."""
    if depth > _DEEPEST:
        raise FormatError(f"{path}: more than {_DEEPEST} messages inside of each other, at byte {start}; no model has as many")
    children = _children(descriptor)
    is_tensor = descriptor.name == "TensorProto"
    kept = start
    for number, begin, content, stop in _fields(data, start, end, path):
        if stop - content < _LARGE or number == 0:
            continue
        if is_tensor and number == _RAW_DATA:
            yield data[kept:begin]
            yield _as_external(content, stop - content)
            kept = stop
        elif number in children:
            parts = list(_outline(data, content, stop, children[number], depth + 1, path))
            yield data[kept:begin]
            yield _tag(number) + _as_varint(sum(map(len, parts)))
            yield from parts
            kept = stop
    yield data[kept:end]


def _as_varint(value: int) -> bytes:
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)


def _tag(number: int) -> bytes:
    return _as_varint(number << 3 | 2)


def _as_external(offset: int, length: int) -> bytes:
    """The fields of a tensor that say where its bytes are."""
    parts = [_as_varint(_LOCATION << 3), b"\x01"]
    for key, value in (("location", SELF), ("offset", str(offset)), ("length", str(length))):
        entry = b"".join(_tag(n) + _as_varint(len(text)) + text.encode() for n, text in ((1, key), (2, value)))
        parts.append(_tag(_EXTERNAL) + _as_varint(len(entry)) + entry)
    return b"".join(parts)


def _check_density(outline: bytes, size: int, descriptor: Any, path: str) -> None:
    """`FormatError` if the messages in the outline are so many, and so small, that they would take too much memory.

    The density of a file that is small enough does not matter; of others, every message is counted.
    """
    room = _SPARE + _PER_BYTE * size
    if len(outline) * _MESSAGE // 2 <= room // 2:
        return
    view = memoryview(outline)
    left = room // 2 // _MESSAGE
    stack = [(0, len(outline), descriptor, 0)]
    while stack:
        start, end, message, depth = stack.pop()
        if depth > _DEEPEST:
            raise FormatError(f"{path}: more than {_DEEPEST} messages inside of each other; no model has as many")
        children = _children(message)
        for number, _, content, stop in _fields(view, start, end, path):
            left -= 1
            if left < 0:
                raise FormatError(
                    f"{path}: its parts are so many, and so small, that they would take more than 64 MiB of memory and ten times "
                    "the file; no model that computes something is as dense"
                )
            if number in children:
                stack.append((content, stop, children[number], depth + 1))
