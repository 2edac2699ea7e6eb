"""Loads object files into this process without LLVM, whose library takes 40 MB: kernels on disk need no compiler.

It knows objects that LLVM makes of kernels for x86-64 Linux, in a small code model. Other objects, and those with unknown parts,
are left to LLVM's linker.
"""

from __future__ import annotations

import mmap
import sys
from collections.abc import Iterator, Sequence
from ctypes import CDLL, c_int, c_size_t, c_void_p, cast
from dataclasses import dataclass, field
from struct import Struct
from struct import error as StructError

import numpy as np

_HEADER = Struct("<16sHHIQQQIHHHHHH")
_SECTION = Struct("<IIQQQQIIQQ")
_SYMBOL = Struct("<IBBHQQ")
_RELOCATION = Struct("<QIIq")
_MAGIC, _RELOCATABLE, _X86_64 = b"\x7fELF\x02\x01\x01", 1, 62
_SYMBOLS, _RELOCATIONS, _NO_BITS = 2, 4, 8
"""Types of sections."""
_ALLOCATED, _WRITABLE, _EXECUTABLE, _THREAD_LOCAL = 2, 1, 4, 0x400
"""Flags of sections."""
_ABSOLUTE, _RELATIVE, _CALL, _BY_POINTER = 1, 2, 4, (9, 41, 42)
"""Types of relocations."""
_JUMP = b"\xff\x25\x00\x00\x00\x00"
"""A jump to the address that follows: functions of the process may lie farther away than a call reaches."""


class _UnexpectedError(Exception):
    """An object holds what this loader does not know."""


@dataclass
class _Object:
    """An object file, with the offset of each of its sections in the loaded image."""

    code: bytes
    sections: list[tuple[int, ...]] = field(init=False)
    offset_of: dict[int, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        magic, kind, machine, *_, at, _, _, _, _, size, count, _ = _HEADER.unpack_from(self.code)
        if not magic.startswith(_MAGIC) or (kind, machine, size) != (_RELOCATABLE, _X86_64, _SECTION.size):
            raise _UnexpectedError("no object of x86-64")
        self.sections = [_SECTION.unpack_from(self.code, at + number * size) for number in range(count)]
        for _, _, flags, *_ in self.sections:
            if flags & _ALLOCATED and flags & (_WRITABLE | _THREAD_LOCAL):
                raise _UnexpectedError("memory that is written")

    def allocated(self, is_code: bool) -> Iterator[int]:
        """The numbers of the sections that are loaded, with code or with constants."""
        for number, (_, _, flags, *_) in enumerate(self.sections):
            if flags & _ALLOCATED and bool(flags & _EXECUTABLE) == is_code:
                yield number

    def symbols(self) -> Iterator[tuple[int, str, int, int]]:
        """Number, name, section and value of each symbol."""
        for _, kind, _, _, at, size, names, *_ in self.sections:
            for number in range(size // _SYMBOL.size if kind == _SYMBOLS else 0):
                name, _, _, section, value, _ = _SYMBOL.unpack_from(self.code, at + number * _SYMBOL.size)
                start = self.sections[names][4] + name
                yield number, self.code[start : self.code.index(b"\0", start)].decode(), section, value

    def relocations(self) -> Iterator[tuple[int, int, int, int, int]]:
        """Section, offset in it, type, symbol and addend of each place that holds an address."""
        for _, kind, _, _, at, size, _, section, *_ in self.sections:
            for number in range(size // _RELOCATION.size if kind == _RELOCATIONS else 0):
                yield section, *_RELOCATION.unpack_from(self.code, at + number * _RELOCATION.size)


class Image:
    """Objects, loaded into memory that lives as long as this object.

    Attributes:
        addresses: name of each symbol that the objects define -> its address.
    """

    def __init__(self, objects: Sequence[_Object]) -> None:
        self._jumps: dict[int, int] = {}
        """Address of a function of the process, or of a symbol -> the offset of the jump to it; the address follows the jump."""
        calls = sum(kind in (_CALL, *_BY_POINTER) for item in objects for _, _, kind, *_ in item.relocations())
        end = self._place(objects, 0, is_code=True)
        self._next, self._code_bytes = end, _aligned(end + 16 * calls, mmap.PAGESIZE)
        size = _aligned(self._place(objects, self._code_bytes, is_code=False), mmap.PAGESIZE)
        self._memory = mmap.mmap(-1, size, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        self._start = int(np.frombuffer(self._memory, np.uint8).ctypes.data)
        self.addresses: dict[str, int] = {}
        for item in objects:
            self._load(item)
        self._protect()

    def _place(self, objects: Sequence[_Object], end: int, is_code: bool) -> int:
        """Choose the offsets of sections; returns the end of the last one."""
        for item in objects:
            for number in item.allocated(is_code):
                _, _, _, _, _, size, _, _, alignment, _ = item.sections[number]
                item.offset_of[number] = start = _aligned(end, max(alignment, 1))
                end = start + size
        return end

    def _load(self, item: _Object) -> None:
        """Copy the sections of an object to their offsets, and fill in the addresses that they hold."""
        for number, offset in item.offset_of.items():
            _, kind, _, _, at, size, *_ = item.sections[number]
            if kind != _NO_BITS:
                self._memory[offset : offset + size] = item.code[at : at + size]
        address_of: dict[int, int] = {}
        external: set[int] = set()
        for number, name, section, value in item.symbols():
            if section in item.offset_of:
                address_of[number] = self._start + item.offset_of[section] + value
                self.addresses[name] = address_of[number]
            elif section == 0 and name:
                address_of[number] = _function(name)
                external.add(number)
        for section, offset, kind, symbol, addend in item.relocations():
            if section not in item.offset_of:
                continue
            if symbol not in address_of:
                raise _UnexpectedError("a symbol without an address")
            self._relocate(item.offset_of[section] + offset, kind, address_of[symbol], addend, symbol in external)

    def _relocate(self, place: int, kind: int, address: int, addend: int, is_external: bool) -> None:
        """Write the address of a symbol, or the distance to it, at a place of the image."""
        if kind == _ABSOLUTE:
            self._memory[place : place + 8] = (address + addend).to_bytes(8, "little", signed=True)
            return
        if kind in _BY_POINTER:
            address = self._start + self._jump(address) + len(_JUMP)
        elif kind == _CALL and is_external:
            address = self._start + self._jump(address)
        elif kind not in (_RELATIVE, _CALL) or is_external:
            raise _UnexpectedError(f"a relocation of type {kind}")
        distance = address + addend - (self._start + place)
        if not -(1 << 31) <= distance < 1 << 31:
            raise _UnexpectedError("memory that is too far away")
        self._memory[place : place + 4] = distance.to_bytes(4, "little", signed=True)

    def _jump(self, address: int) -> int:
        """The offset of a jump to an address, followed by the address itself."""
        if address not in self._jumps:
            self._jumps[address] = self._next
            self._memory[self._next : self._next + len(_JUMP) + 8] = _JUMP + address.to_bytes(8, "little")
            self._next += 16
        return self._jumps[address]

    def _protect(self) -> None:
        """Let the code be executed, and nothing be written."""
        protect = CDLL(None).mprotect
        protect.argtypes = (c_void_p, c_size_t, c_int)
        read, execute = 1, 4
        constants = len(self._memory) - self._code_bytes
        if protect(self._start, self._code_bytes, read | execute) or (
            constants and protect(self._start + self._code_bytes, constants, read)
        ):
            raise _UnexpectedError("a system that forbids new code")


def _aligned(size: int, alignment: int) -> int:
    return -(-size // alignment) * alignment


def _function(name: str) -> int:
    """The address of a function of this process."""
    try:
        address = cast(getattr(CDLL(None), name), c_void_p).value
    except AttributeError:
        address = None
    if address is None:
        raise _UnexpectedError(f"no function {name}")
    return address


def load(objects: Sequence[bytes]) -> Image | None:
    """Load object files; None if LLVM's linker has to."""
    if not sys.platform.startswith("linux"):
        return None
    try:
        return Image([_Object(code) for code in objects])
    except (_UnexpectedError, OSError, StructError, IndexError, ValueError, OverflowError):
        return None
