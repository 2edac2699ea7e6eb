"""Reading and writing ``.pdparams`` and ``.pdopt``: pickles of arrays by name, without Python's unpickler.

A pickle is a program for a stack machine that may call anything. The machine here accepts only the names with which numpy
pickles arrays, and calls only functions of this file: the result consists of dicts, lists, tuples, strings, numbers and arrays.
All lengths, references and shapes in a file are checked against its real size.
"""

from __future__ import annotations

import contextlib
import math
import mmap
import os
import pickletools
import re
import struct
from collections.abc import Callable, Mapping, Sequence, Set
from typing import Any, BinaryIO, NoReturn
from zlib import crc32

import numpy as np

from ..errors import FluidError, FluidTypeError, FormatError
from ..ir.checked import checked
from ..values.bfloat16 import BFLOAT16, as_bits
from .commits import open_saved
from .writing import atomic_writer, reason

__all__ = [
    "PickleMachine", "PickleName", "PickleRefusal", "check_numbers", "not_numbers", "read_instructions", "read_pickle",
    "read_stamp", "stamp_of", "write_arrays",
]  # fmt: skip

_DEPTH = 64
"""Most levels of nested containers; state dicts have three."""
_LARGE = 1 << 30
"""Size in bytes of an array above which a file needs protocol 4, since older ones have 32-bit lengths."""


# -------------------------------------------------------------------------------------------------------------- reading
class PickleName:
    """A class or function that a pickle names."""

    def __init__(self, text: str) -> None:
        self.text = text


class _DType:
    """A numpy dtype whose byte order follows later in the pickle."""

    def __init__(self, dtype: np.dtype[Any]) -> None:
        self.dtype = dtype


class _Mark:
    pass


class PickleRefusal(Exception):
    """A fault in the pickle; `_read` adds its position."""


def _raw(value: Any) -> Any:
    """A value as bytes; strings of Python 2 arrive as text with the same code points."""
    if isinstance(value, str):
        try:
            return value.encode("latin-1")
        except UnicodeEncodeError:
            raise PickleRefusal("text stands where bytes should") from None
    if isinstance(value, (bytes, bytearray)):
        return value
    raise PickleRefusal(f"{type(value).__name__} stands where bytes should")


def _shown(value: Any) -> str:
    """A value as text for a message; containers, which may be endless, by their type only."""
    if isinstance(value, str):
        return repr(value[:60])
    return str(value) if type(value) is int and abs(value) < 1 << 64 else f"a {type(value).__name__}"


def _dtype(code: Any, *_: Any) -> _DType:
    if isinstance(code, str) and re.fullmatch(r"[biufc]\d{1,2}", code):
        with contextlib.suppress(TypeError):
            return _DType(np.dtype(code))
    raise PickleRefusal(f"an array's element type is {_shown(code)}, which is not a type of numbers")


def _empty_array(kind: Any, *_: Any) -> Any:
    if not isinstance(kind, PickleName) or kind.text != "numpy.ndarray":
        raise PickleRefusal("something that is not an array is made as one")
    return np.empty(0, np.uint8)


def _shape(value: Any) -> tuple[int, ...]:
    if isinstance(value, tuple) and len(value) <= 32 and all(type(size) is int and 0 <= size < 1 << 63 for size in value):
        return value
    raise PickleRefusal(f"an array's shape is {_shown(value)}, not a tuple of dimensions")


def _filled(shape: Any, dtype: Any, raw: Any, order: str) -> Any:
    shape, raw = _shape(shape), _raw(raw)
    if not isinstance(dtype, _DType):
        raise PickleRefusal("an array has no element type")
    size = math.prod(shape) * dtype.dtype.itemsize
    if size != len(raw):
        raise PickleRefusal(f"an array {dtype.dtype}{list(shape)} should have {size} bytes, but {len(raw)} are there")
    try:
        return np.frombuffer(raw, dtype.dtype).reshape(shape, order=order)  # type: ignore[call-overload]
    except ValueError as error:
        raise PickleRefusal(f"an array {dtype.dtype}{list(shape)} cannot be made: {error}") from None


def _from_buffer(raw: Any, dtype: Any, shape: Any, order: Any) -> Any:
    return _filled(shape, dtype, raw, "F" if order == "F" else "C").astype(dtype.dtype.newbyteorder("="))


def _scalar(dtype: Any, raw: Any) -> Any:
    return _filled((), dtype, raw, "C").astype(dtype.dtype.newbyteorder("="))[()]


def _encoded(text: Any, encoding: Any) -> bytes:
    if not isinstance(encoding, str) or encoding not in ("latin1", "latin-1"):
        raise PickleRefusal(f"bytes are given in the encoding {_shown(encoding)}")
    return bytes(_raw(text))


def _pairs(value: Any = ()) -> dict[Any, Any]:
    result: dict[Any, Any] = {}
    for pair in value if isinstance(value, (list, tuple)) else ():
        if not isinstance(pair, (list, tuple)) or len(pair) != 2:
            raise PickleRefusal("a dict is made of items that are not pairs")
        result[_key(pair[0])] = pair[1]
    return result


def _tuple(value: Any = ()) -> tuple[Any, ...]:
    if not isinstance(value, (list, tuple)):
        raise PickleRefusal(f"a tuple is made of a {type(value).__name__}")
    return tuple(value)


_NUMPY = ("numpy.core", "numpy._core")
_CALLS: dict[str, Callable[..., Any]] = {
    **{f"{core}.multiarray._reconstruct": _empty_array for core in _NUMPY},
    **{f"{core}.multiarray.scalar": _scalar for core in _NUMPY},
    **{f"{core}.numeric._frombuffer": _from_buffer for core in _NUMPY},
    "numpy.dtype": _dtype,
    "_codecs.encode": _encoded,
    "collections.OrderedDict": _pairs,
    "builtins.tuple": _tuple,
    "__builtin__.tuple": _tuple,
    "__builtin__.bytes": lambda: b"",
}
_NAMES = {*_CALLS, "numpy.ndarray"}


def _key(value: Any) -> Any:
    if type(value) in (str, bytes, int, float, bool, type(None)):
        return value
    raise PickleRefusal(f"a {type(value).__name__} is the key of a dict")


class PickleMachine:
    """Runs the instructions of one pickle.

    Attributes:
        calls: name -> the function here that stands for it.
        names: all names that a pickle may refer to.
    """

    calls: Mapping[str, Callable[..., Any]] = _CALLS
    names: Set[str] = _NAMES

    def __init__(self) -> None:
        self.stack: list[Any] = []
        self.memo: dict[Any, Any] = {}

    def pop(self) -> Any:
        if not self.stack or isinstance(self.stack[-1], _Mark):
            raise PickleRefusal("the stack is empty")
        return self.stack.pop()

    def top(self, kind: type) -> Any:
        if not self.stack or not isinstance(self.stack[-1], kind):
            raise PickleRefusal(f"a {kind.__name__} should be on the stack")
        return self.stack[-1]

    def since_mark(self) -> list[Any]:
        position = next((i for i in range(len(self.stack) - 1, -1, -1) if isinstance(self.stack[i], _Mark)), None)
        if position is None:
            raise PickleRefusal("the stack has no mark")
        items = self.stack[position + 1 :]
        del self.stack[position:]
        return items

    def popped(self, count: int) -> tuple[Any, ...]:
        return tuple(reversed([self.pop() for _ in range(count)]))

    def fill(self, items: Sequence[Any]) -> None:
        """Add items, keys and values in turn, to the dict on the stack."""
        target = self.top(dict)
        if len(items) % 2:
            raise PickleRefusal("a dict's key has no value")
        for key, value in zip(items[::2], items[1::2], strict=True):
            target[_key(key)] = value

    def name(self, module: Any, name: Any) -> PickleName:
        if not isinstance(module, str) or not isinstance(name, str):
            raise PickleRefusal("it refers to something without a name")
        text = f"{module}.{name}"
        if text not in self.names:
            raise PickleRefusal(f"it refers to {text[:200]}; only arrays, containers, strings and numbers are read")
        return PickleName(text)

    def recall(self, key: Any) -> Any:
        if key not in self.memo:
            raise PickleRefusal(f"it refers to part {key}, which is not there")
        return self.memo[key]

    def build(self, state: Any) -> None:
        """Complete the array or dtype on the stack."""
        target = self.stack[-1] if self.stack else None
        if isinstance(target, _DType):
            if not (isinstance(state, tuple) and len(state) >= 5 and state[1] in ("<", ">", "|", "=") and not any(state[2:5])):
                raise PickleRefusal("an array's element type has fields")
            target.dtype = np.dtype(state[1] + target.dtype.str[1:])
        elif isinstance(target, np.ndarray):
            if not (isinstance(state, tuple) and len(state) == 5):
                raise PickleRefusal("an array has no shape, type and elements")
            shape, dtype, fortran, raw = state[1:]
            _filled(shape, dtype, raw, "C")  # raises if these do not fit
            # In place, since parts of the result may refer to this array already.
            target.__setstate__((1, shape, dtype.dtype, bool(fortran), bytes(_raw(raw))))  # type: ignore[arg-type]
        else:
            raise PickleRefusal(f"a {type(target).__name__} is given a state")

    def run(self, opcode: str, arg: Any) -> None:
        stack = self.stack
        if opcode in _CONSTANTS:
            stack.append(_CONSTANTS[opcode])
        elif opcode in _VALUES:
            stack.append(arg)
        elif opcode in _CONTAINERS:
            stack.append(_CONTAINERS[opcode]())
        elif opcode in ("BINPUT", "LONG_BINPUT", "PUT", "MEMOIZE"):
            self.memo[len(self.memo) if opcode == "MEMOIZE" else arg] = self.top(object)
        elif opcode in ("BINGET", "LONG_BINGET", "GET"):
            stack.append(self.recall(arg))
        elif opcode in ("TUPLE1", "TUPLE2", "TUPLE3"):
            stack.append(self.popped(int(opcode[-1])))
        elif opcode in ("TUPLE", "LIST"):
            items = self.since_mark()
            stack.append(tuple(items) if opcode == "TUPLE" else items)
        elif opcode in ("APPEND", "APPENDS"):
            items = [self.pop()] if opcode == "APPEND" else self.since_mark()
            self.top(list).extend(items)
        elif opcode in ("SETITEM", "SETITEMS"):
            self.fill(self.popped(2) if opcode == "SETITEM" else self.since_mark())
        elif opcode == "DICT":
            items = self.since_mark()
            stack.append({})
            self.fill(items)
        elif opcode == "GLOBAL":
            stack.append(self.name(*arg.split(" ", 1)))
        elif opcode == "STACK_GLOBAL":
            stack.append(self.name(*self.popped(2)))
        elif opcode == "REDUCE":
            function, arguments = self.popped(2)
            self.call(function, arguments)
        elif opcode == "BUILD":
            self.build(self.pop())
        elif opcode == "POP":
            self.pop()
        elif opcode == "POP_MARK":
            self.since_mark()
        elif opcode == "DUP":
            stack.append(self.top(object))
        elif opcode == "BINPERSID":
            stack.append(self.persistent(self.pop()))
        elif opcode not in ("PROTO", "FRAME"):
            raise PickleRefusal(f"it uses the instruction {opcode}; only arrays, containers, strings and numbers are read")

    def persistent(self, reference: Any) -> Any:
        """A value that lies outside the pickle."""
        raise PickleRefusal("it uses the instruction BINPERSID; only arrays, containers, strings and numbers are read")

    def call(self, function: Any, arguments: Any) -> None:
        call = self.calls.get(function.text) if isinstance(function, PickleName) else None
        if call is None or not isinstance(arguments, tuple):
            raise PickleRefusal("it calls something that is not a function")
        try:
            self.stack.append(call(*arguments))
        except TypeError:
            raise PickleRefusal(f"{function.text} is given {len(arguments)} arguments, which it does not take") from None


_CONSTANTS = {"NONE": None, "NEWTRUE": True, "NEWFALSE": False, "MARK": _Mark()}
_CONTAINERS: dict[str, Callable[[], Any]] = {"EMPTY_DICT": dict, "EMPTY_LIST": list, "EMPTY_TUPLE": tuple}
_VALUES = {
    *("INT", "BININT", "BININT1", "BININT2", "LONG", "LONG1", "LONG4", "FLOAT", "BINFLOAT"),
    *("STRING", "BINSTRING", "SHORT_BINSTRING", "UNICODE", "BINUNICODE", "SHORT_BINUNICODE", "BINUNICODE8"),
    *("BINBYTES", "SHORT_BINBYTES", "BINBYTES8", "BYTEARRAY8"),
}


def _check_tree(value: Any, limit: int) -> None:
    """Refuse containers that contain themselves, are nested too deeply, or share parts so often that a walk would not end."""
    sizes: dict[int, int] = {}
    path: set[int] = set()
    stack: list[tuple[Any, bool]] = [(value, False)]
    while stack:
        item, done = stack.pop()
        inner = list(item.values()) if isinstance(item, dict) else item if isinstance(item, (list, tuple)) else None
        if inner is None:
            if isinstance(item, (PickleName, _DType, _Mark)):
                raise PickleRefusal("it holds a type, not a value")
        elif done:
            path.discard(id(item))
            sizes[id(item)] = 1 + sum(sizes.get(id(part), 1) for part in inner)
            if sizes[id(item)] > limit:
                raise PickleRefusal(
                    "its containers share parts so often that it stands for more than a file of its size could hold"
                )
        elif id(item) in path:
            raise PickleRefusal("a container holds itself")
        elif id(item) not in sizes:
            path.add(id(item))
            if len(path) > _DEPTH:
                raise PickleRefusal(f"containers are more than {_DEPTH} deep in each other")
            stack.append((item, True))
            stack.extend((part, False) for part in inner if isinstance(part, (dict, list, tuple, PickleName, _DType, _Mark)))


@checked
def read_pickle(path: str) -> Any:
    """The value in a pickle of arrays, dicts, lists, tuples, strings, bytes, numbers, bools and None. No code in it runs.

    Raises:
        FormatError: the file cannot be read, is damaged, or contains anything else; names the file, the byte and, if it
            refers to a class or function, that name.
    """
    try:
        with open_saved(path) as file:
            if not file.read(1):
                raise FormatError(f"{path}: the file is empty; it should be a pickle of arrays by name")
            with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:  # reads past its end are short
                return read_instructions(path, data, PickleMachine())
    except (OSError, ValueError) as error:
        if isinstance(error, FluidError):
            raise
        raise FormatError(f"{path}: the file cannot be read: {reason(error)}") from None


_MOST_PARTS = 300_000
"""How many small parts any file may have; a large one may have more."""


def read_instructions(path: str, data: Any, machine: PickleMachine) -> Any:
    """Run a machine over the bytes of a pickle, and return its value; a `FormatError` names the byte of a fault."""

    def fail(message: object, at: int) -> NoReturn:
        raise FormatError(f"{path}, at byte {at}: {message}") from None

    size = len(data)
    left = _MOST_PARTS + size // 12  # bounds time and memory by the size of the file
    at = 0
    try:
        for opcode, arg, position in pickletools.genops(data):
            at = position or 0
            left -= 1
            if left < 0:
                raise PickleRefusal("it has more small parts than files of parameters have")
            if opcode.name == "STOP":
                value = machine.pop()
                if machine.stack:
                    raise PickleRefusal("values are left when the pickle ends")
                _check_tree(value, 100_000 + 16 * size)
                return value
            machine.run(opcode.name, arg)
    except PickleRefusal as error:
        fail(error, at)
    except (ValueError, OverflowError, MemoryError) as error:
        fail(f"this is not a pickle, or it is damaged or cut off: {str(error)[:200]}", at)
    fail("the pickle does not end", at)


# -------------------------------------------------------------------------------------------------------------- writing
def _length(size: int, count: int = 4) -> bytes:
    return size.to_bytes(count, "little")


def _text(text: str) -> bytes:
    data = text.encode("utf-8", "surrogatepass")
    return b"X" + _length(len(data)) + data


def _integer(number: int) -> bytes:
    if 0 <= number < 256:
        return b"K" + bytes([number])
    if number < 1 << 31:
        return b"J" + _length(number)
    return b"\x8a\x08" + _length(number, 8)


def _table(table: Mapping[str, Any]) -> bytes:
    return b"}(" + b"".join(_text(key) + _plain(value) for key, value in table.items()) + b"u"


def _plain(value: Any) -> bytes:
    """A text, a number, None or a dict of these."""
    if value is None:
        return b"N"
    if isinstance(value, Mapping):
        return _table(value)
    if isinstance(value, float):
        return b"G" + struct.pack(">d", value)
    return _integer(value) if isinstance(value, int) else _text(value)


def _write_bytes(file: BinaryIO, raw: Any, protocol: int) -> None:
    """Write bytes; before protocol 3, as text that is encoded when it is read."""
    if protocol >= 4:
        file.write(b"\x8e" + _length(len(raw), 8))
        file.write(raw)
    elif len(raw):
        text = bytes(raw).decode("latin-1").encode()
        file.write(b"c_codecs\nencode\nX" + _length(len(text)))
        file.write(text)
        file.write(_text("latin1") + b"\x86R")
    else:
        file.write(b"c__builtin__\nbytes\n)R")


def not_numbers(dtype: np.dtype[Any]) -> str:
    """A description of this element type if it is not numeric, otherwise ""."""
    if (dtype.kind in "biufc" and dtype.subdtype is None) or dtype == BFLOAT16:
        return ""
    names = {"U": "text", "S": "bytes", "M": "dates", "m": "spans of time", "O": "Python objects", "V": "records"}
    return f"{names.get(dtype.kind, 'of a kind of their own')} ({dtype})"


def check_numbers(path: str, arrays: Mapping[str, Any]) -> None:
    """Raise `FluidTypeError` if the elements of an array are not numbers, which no file of parameters can store."""
    for name, array in arrays.items():
        if elements := not_numbers(array.dtype):
            raise FluidTypeError(f"{path}: the elements of {name!r} are {elements}, not numbers")


_STAMP = re.compile(rb"\n# saved together: ([0-9a-f]{8})\n")
_STAMP_LENGTH = len(b"\n# saved together: 01234567\n")


@checked
def stamp_of(arrays: Mapping[str, Any]) -> str:
    """A stamp for the files of one save: the checksum of all arrays in them, so that the same values give the same files."""
    checksum = 0
    for name, array in arrays.items():
        checksum = crc32(name.encode("utf-8", "surrogatepass"), checksum)
        if not array.dtype.hasobject:  # which no file can hold, as writing says
            data: Any = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
            checksum = crc32(data, checksum)
    return f"{checksum:08x}"


@checked
def read_stamp(path: str) -> str:
    """The stamp of a file that `write_arrays` wrote with one; "" if it has none, or cannot be read."""
    try:
        with open_saved(path) as file:
            file.seek(-_STAMP_LENGTH, os.SEEK_END)
            match = _STAMP.fullmatch(file.read(_STAMP_LENGTH))
    except OSError:  # it is shorter
        return ""
    return match[1].decode() if match else ""


@checked
def write_arrays(
    path: str, arrays: Mapping[str, Any], tables: Mapping[str, Mapping[str, Any]] | None = None, stamp: str = ""
) -> None:
    """Write arrays by name atomically, as ``pickle.dump(dict, protocol=2)`` would, in a form that every version of numpy reads.

    If an array is larger than 1 GiB, the file has protocol 4, since protocol 2 cannot express its length.

    Args:
        path: the file.
        arrays: arrays by name.
        tables: dicts of texts, numbers, None and such dicts by name, which follow the arrays.
        stamp: what `read_stamp` returns; it follows the pickle, where readers of pickles do not look.

    Raises:
        FluidTypeError: the elements of an array are not numbers.
    """
    check_numbers(path, arrays)
    protocol = 4 if any(array.nbytes > _LARGE for array in arrays.values()) else 2
    with atomic_writer(path) as file:
        file.write(b"\x80" + bytes([protocol]) + b"}(")
        for name, array in arrays.items():
            array = as_bits(np.asarray(array, order="C"))
            array = array.astype(array.dtype.newbyteorder("<"), copy=False)
            file.write(_text(name) + b"cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\n" + _integer(0) + b"\x85")
            _write_bytes(file, b"b", protocol)
            file.write(b"\x87R(" + _integer(1) + b"(" + b"".join(map(_integer, array.shape)) + b"t")
            order = array.dtype.str[0].encode()
            file.write(b"cnumpy\ndtype\n" + _text(array.dtype.str[1:]) + b"\x89\x88\x87R(" + _integer(3))
            file.write(_text(order.decode()) + b"NNN" + b"J\xff\xff\xff\xff" * 2 + _integer(0) + b"tb\x89")
            _write_bytes(file, array.reshape(-1).view(np.uint8).data, protocol)
            file.write(b"tb")
        for name, table in (tables or {}).items():
            file.write(_text(name) + _table(table))
        file.write(b"u.")
        if stamp:
            file.write(b"\n# saved together: " + stamp.encode() + b"\n")
