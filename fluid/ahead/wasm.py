"""Turns WebAssembly's object files into modules that run by themselves.

The object of a whole library is nearly such a module: LLVM has numbered its functions and placed its data as if nothing else
were linked. Only its memory, its table of functions and its stack pointer are imports, and it exports nothing. So no code is
changed: the imports become definitions, and the functions for callers are exported. See the specification of WebAssembly, section
5.5 (modules), and its tool conventions, `Linking.md` (the symbol table).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from ..errors import FluidError

_PAGE, _STACK_BYTES = 1 << 16, 1 << 16
_HEAD = b"\0asm\1\0\0\0"
_CUSTOM, _TYPES, _IMPORTS, _FUNCTIONS, _TABLES, _MEMORIES, _GLOBALS, _EXPORTS, _ELEMENTS = 0, 1, 2, 3, 4, 5, 6, 7, 9
_CODE, _DATA, _DATA_COUNT = 10, 11, 12
"""Numbers of sections."""
_ORDER = [_TYPES, _FUNCTIONS, _TABLES, _MEMORIES, _GLOBALS, _EXPORTS, _ELEMENTS, _DATA_COUNT, _CODE, _DATA]
"""Sections as they follow each other in a module."""
_FUNCTION, _TABLE, _MEMORY, _GLOBAL = 0, 1, 2, 3
"""Kinds of imports and exports."""
_I32, _FUNCREF, _I32_CONST, _END = 0x7F, 0x70, 0x41, 0x0B
_SYMBOL_TABLE, _FUNCTION_SYMBOL, _UNDEFINED, _EXPLICIT_NAME = 8, 0, 0x10, 0x40


def module_of(code: bytes, exports: Iterable[str]) -> bytes:
    """The module of an object file.

    It exports the functions, its memory as ``memory``, and as ``heap`` the address of the first byte that it does not use itself.

    Args:
        code: the object file of a library.
        exports: the names of functions to export.

    Raises:
        FluidError: the library calls functions that it does not contain.
    """
    sections, customs = _sections(code)
    missing = [name for kind, name in _imports(_SectionReader(sections[_IMPORTS])) if kind == _FUNCTION]
    if missing:
        raise FluidError(f"WebAssembly has no {', '.join(missing)}, and the program computes with it")
    numbers = dict(_functions(customs["linking"]))
    heap = -(-_data_end(sections[_DATA]) // 16) * 16 + _STACK_BYTES
    slots = _slots(sections.get(_ELEMENTS, b""))
    exported = [(name, _FUNCTION, numbers[name]) for name in exports]
    exported += [("memory", _MEMORY, 0), ("heap", _GLOBAL, 1)]
    sections |= {
        _TABLES: b"\1" + bytes([_FUNCREF, 0]) + _leb(slots),
        _MEMORIES: b"\1\0" + _leb(-(-heap // _PAGE)),
        _GLOBALS: b"\2" + _global(heap, is_mutable=True) + _global(heap, is_mutable=False),
        _EXPORTS: _leb(len(exported)) + b"".join(_text(name) + bytes([kind]) + _leb(number) for name, kind, number in exported),
    }
    parts = {number: sections.get(number) for number in _ORDER}
    return _HEAD + b"".join(bytes([number]) + _leb(len(part)) + part for number, part in parts.items() if part is not None)


class _SectionReader:
    """Reads numbers and texts of a section, one after the other."""

    def __init__(self, data: bytes) -> None:
        self._data, self._at = data, 0

    def __bool__(self) -> bool:
        return self._at < len(self._data)

    def byte(self) -> int:
        self._at += 1
        return self._data[self._at - 1]

    def number(self) -> int:
        """An unsigned number, as LEB128."""
        value = shift = 0
        while True:
            byte = self.byte()
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value

    def signed(self) -> int:
        """A signed number, as LEB128."""
        start = self._at
        value = self.number()
        bits = 7 * (self._at - start)
        return value - (1 << bits) if value >> (bits - 1) else value

    def part(self) -> bytes:
        """Bytes behind their number."""
        size = self.number()
        self._at += size
        return self._data[self._at - size : self._at]

    def text(self) -> str:
        return self.part().decode()

    def remaining(self) -> bytes:
        return self._data[self._at :]


def _leb(number: int) -> bytes:
    """An unsigned number as LEB128."""
    data = bytearray()
    while number >= 0x80:
        data.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*data, number])


def _signed_leb(number: int) -> bytes:
    """A number that is not negative as signed LEB128."""
    return _leb(number) if number.bit_length() % 7 else _leb(number)[:-1] + bytes([_leb(number)[-1] | 0x80, 0])


def _text(text: str) -> bytes:
    return _leb(len(text.encode())) + text.encode()


def _global(value: int, is_mutable: bool) -> bytes:
    return bytes([_I32, is_mutable, _I32_CONST]) + _signed_leb(value) + bytes([_END])


def _sections(code: bytes) -> tuple[dict[int, bytes], dict[str, bytes]]:
    """The sections of a file by number, and the custom ones by name."""
    reader, sections, customs = _SectionReader(code[len(_HEAD) :]), dict[int, bytes](), dict[str, bytes]()
    while reader:
        number, content = reader.byte(), reader.part()
        if number == _CUSTOM:
            custom = _SectionReader(content)
            name = custom.text()
            customs[name] = custom.remaining()
        else:
            sections[number] = content
    return sections, customs


def _imports(reader: _SectionReader) -> Iterator[tuple[int, str]]:
    """Kind and name of each import."""
    for _ in range(reader.number()):
        reader.text()
        name, kind = reader.text(), reader.byte()
        yield kind, name
        if kind in (_TABLE, _GLOBAL):
            reader.byte()
        if kind == _FUNCTION:
            reader.number()
        elif kind == _GLOBAL:
            reader.byte()
        else:
            has_maximum = reader.byte() & 1
            for _ in range(1 + has_maximum):
                reader.number()


def _functions(linking: bytes) -> Iterator[tuple[str, int]]:
    """Name and number of each function that the object defines, from its symbol table."""
    reader = _SectionReader(linking)
    reader.number()  # the version
    while reader:
        kind, content = reader.byte(), _SectionReader(reader.part())
        if kind != _SYMBOL_TABLE:
            continue
        for _ in range(content.number()):
            symbol, flags = content.byte(), content.number()
            is_defined = not flags & _UNDEFINED
            if symbol == 1:  # data: a name, and where it lies
                content.text()
                for _ in range(3 if is_defined else 0):
                    content.number()
                continue
            number = content.number()
            name = content.text() if symbol != 3 and (is_defined or flags & _EXPLICIT_NAME) else ""
            if symbol == _FUNCTION_SYMBOL and is_defined:
                yield name, number


def _data_end(data: bytes) -> int:
    """The address behind all data."""
    reader, end = _SectionReader(data), 0
    for _ in range(reader.number()):
        assert reader.number() == 0 and reader.byte() == _I32_CONST, "data of an object lies at an address that is a number"
        start = reader.signed()
        reader.byte()
        end = max(end, start + len(reader.part()))
    return end


def _slots(elements: bytes) -> int:
    """The number of slots of the table of functions that the elements fill."""
    reader, end = _SectionReader(elements), 1
    for _ in range(reader.number() if elements else 0):
        assert reader.number() == 0 and reader.byte() == _I32_CONST, "elements of an object lie at a place that is a number"
        start = reader.signed()
        reader.byte()
        count = reader.number()
        for _ in range(count):
            reader.number()
        end = max(end, start + count)
    return end
