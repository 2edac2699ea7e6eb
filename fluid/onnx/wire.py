"""Bytes of protobuf's wire format, for messages that are put together in parts."""

from __future__ import annotations

__all__ = ["head_of_field", "varint"]


def varint(value: int) -> bytes:
    """A number of seven bits a byte, the lowest ones first."""
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)


def head_of_field(number: int, size: int) -> bytes:
    """The bytes in front of a message, a text or bytes in a field."""
    return varint(number << 3 | 2) + varint(size)
