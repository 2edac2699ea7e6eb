"""Encode bytes of protobuf's wire format, for messages assembled in parts."""

from __future__ import annotations


def varint(value: int) -> bytes:
    """Encode a number in seven bits per byte, the lowest bits first."""
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)


def head_of_field(number: int, size: int) -> bytes:
    """The bytes before a message, text or bytes in a field."""
    return varint(number << 3 | 2) + varint(size)
