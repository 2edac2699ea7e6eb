"""Hundreds of bad values for functions that take arrays: some cannot become arrays, some describe themselves wrongly.

`bad_values` puts every kind by itself into the containers in which users give values: lists, tuples, pairs with lengths, arrays
of objects. No value names an address in memory that is not its own, which nobody can check. Values are made anew each time, by
name, as some change when they are looked at.
"""

from __future__ import annotations

import array
import collections
import ctypes
import datetime
import decimal
import fractions
import io
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

__all__ = ["bad_values"]

Make = Callable[[], Any]


def raising(name: str, error: BaseException) -> Any:
    """An object whose method or property `name` raises `error`."""

    def fail(self: Any, *args: Any, **kwargs: Any) -> Any:
        raise error

    value: Any = property(fail) if name in ("__array_interface__", "dtype", "shape", "ndim", "__array_struct__") else fail
    members: dict[str, Any] = {name: value}
    if name == "__getitem__":
        members["__len__"] = lambda self: 3
    return type(f"Raises_{name}", (), members)()


def returning(name: str, result: Any) -> Any:
    """An object whose method or property `name` gives `result`."""
    is_property = name in ("__array_interface__", "dtype", "shape", "ndim", "__array_struct__")
    member: Any = property(lambda self: result) if is_property else lambda self, *args, **kwargs: result
    members: dict[str, Any] = {name: member}
    if name == "__getitem__":
        members["__len__"] = lambda self: 3
    return type(f"Gives_{name}", (), members)()


def interface(**changes: Any) -> Any:
    """An object with the `__array_interface__` of six floats, changed in some entries; None removes an entry."""
    held = np.arange(6, dtype="float32")
    entries: dict[str, Any] = {"version": 3, "shape": (2, 3), "typestr": "<f4", "data": held.tobytes(), **changes}
    made = returning("__array_interface__", {name: value for name, value in entries.items() if value is not None})
    made.held = held
    return made


def endless(kind: type) -> Any:
    """A container that holds itself."""
    if kind is np.ndarray:
        value: Any = np.empty(2, object)
        value[0] = value[1] = value
        return value
    if kind is tuple:
        inner: list[Any] = []
        value = (inner,)
        inner.append(value)
        return value
    if kind is dict:
        value = {}
        value["x"] = value
        return value
    value = collections.UserList() if kind is collections.UserList else []
    value += [value, value]
    return value


def deep(levels: int) -> Any:
    value: Any = 1.0
    for _ in range(levels):
        value = [value]
    return value


class Changing(list[Any]):
    """A list that is another one each time it is gone through."""

    def __iter__(self) -> Iterator[Any]:
        self.append([1.0])
        return super().__iter__()


class LongList(list[Any]):
    """A list that says that it is longer than memory."""

    def __len__(self) -> int:
        return 1 << 62


class Sub(np.ndarray[Any, Any]):
    """An array that raises where it is looked at."""

    def __array_finalize__(self, other: Any) -> None:
        if getattr(other, "shape", None) == (7,):
            raise RuntimeError("no view of it")


class ShortBuffer(ctypes.Structure):
    _fields_ = [("a", ctypes.c_int), ("b", ctypes.c_char * 3)]


def _error(kind: type[BaseException]) -> BaseException:
    return kind("\x1b[31mfrom the value\x00" + "x" * 30_000)


ERRORS = (ValueError, TypeError, RuntimeError, KeyError, AttributeError, OSError, RecursionError, MemoryError, AssertionError,
          StopIteration, OverflowError, IndexError, NotImplementedError, UnicodeError, ZeroDivisionError)  # fmt: skip
ASKED = ("__array__", "__array_interface__", "__len__", "__getitem__", "__iter__", "__float__", "__int__", "__index__",
         "__bool__", "__repr__", "__str__", "__eq__", "__hash__", "dtype", "shape", "ndim", "__dlpack__", "__array_struct__",
         "__array_ufunc__", "__array_function__", "__getattr__", "__class_getitem__", "__complex__", "__buffer__")  # fmt: skip
NO_RESULTS: tuple[Any, ...] = (None, "text", b"bytes", -1, 1 << 80, 1.5, object(), [None], [[1], [1, 2]], {"a": 1}, float)


def _singles() -> dict[str, Make]:
    """Kinds of values by themselves."""
    kinds: dict[str, Make] = {
        "None": lambda: None,
        "text": lambda: "12",
        "empty text": lambda: "",
        "bytes": lambda: b"\0\1\2\3",
        "object": object,
        "class": lambda: np.ndarray,
        "module": lambda: np,
        "function": lambda: len,
        "lambda": lambda: lambda: 1.0,
        "ellipsis": lambda: ...,
        "slice": lambda: slice(3),
        "generator": lambda: (number for number in range(3)),
        "iterator": lambda: iter([1.0, 2.0]),
        "map": lambda: map(float, "123"),
        "set": lambda: {1.0, 2.0},
        "frozen set": lambda: frozenset([1]),
        "dict": lambda: {"a": 1.0},
        "dict of numbers": lambda: {0: 1.0, 1: 2.0},
        "dict views": lambda: {0: 1.0}.values(),
        "file": lambda: io.BytesIO(b"1234"),
        "exception": lambda: ValueError("1"),
        "date": lambda: datetime.date(2020, 1, 1),
        "datetime64": lambda: np.datetime64("2020-01-01"),
        "timedelta": lambda: np.timedelta64(3, "s"),
        "decimal": lambda: decimal.Decimal("1.5"),
        "fraction": lambda: fractions.Fraction(1, 3),
        "large int": lambda: 1 << 70,
        "negative large int": lambda: -(1 << 70),
        "huge int": lambda: 10**5000,
        "complex": lambda: 1 + 2j,
        "nan": lambda: float("nan"),
        "inf": lambda: -float("inf"),
        "bool": lambda: True,
        "range": lambda: range(1 << 30, 1 << 31, 1 << 20),
        "memoryview of text": lambda: memoryview(b"abc").cast("c"),
        "released memoryview": lambda: (lambda view: (view.release(), view)[1])(memoryview(b"abcd")),
        "array of characters": lambda: array.array("u", "ab"),
        "structure of C": lambda: ShortBuffer(1, b"ab"),
        "null pointer": lambda: ctypes.POINTER(ctypes.c_float)(),
        "void array": lambda: np.zeros(2, "V8"),
        "record array": lambda: np.zeros(2, [("a", "f4"), ("b", "i4")]),
        "array of texts": lambda: np.array(["a", "b"]),
        "array of bytes": lambda: np.array([b"a"]),
        "array of dates": lambda: np.array(["2020-01-01"], "M8[D]"),
        "array of objects": lambda: np.array([1, None, "x"], object),
        "array of arrays": lambda: np.array([np.zeros(2), np.zeros(3)], object),
        "array of long doubles": lambda: np.zeros(2, np.longdouble),
        "array of complex": lambda: np.zeros(2, "complex128"),
        "array of halves": lambda: np.zeros((2, 3), "float16"),
        "array of swapped bytes": lambda: np.zeros((2, 3), ">f4"),
        "array of nothing": lambda: np.zeros((0, 3), "float32"),
        "array without dimensions": lambda: np.float32(3),
        "array of 33 dimensions": lambda: np.zeros((1,) * 33, "float32"),
        "array that is not there": lambda: np.broadcast_to(np.float32(0), (1 << 30, 1 << 30)),
        "masked array": lambda: np.ma.masked_array([1.0, 2.0], [True, False]),
        "masked": lambda: np.ma.masked,
        "matrix": lambda: np.ones((2, 3), "float32").view(np.matrix),
        "subclass": lambda: np.zeros(7, "float32").view(np.ndarray),
        "subclass that raises": lambda: np.zeros(6, "float32").view(Sub),
        "chararray": lambda: np.char.array(["a"]),
        "recarray": lambda: np.rec.array([(1, 2.0)], dtype=[("a", "i4"), ("b", "f4")]),
        "poly": lambda: np.poly1d([1, 2]),
        "named tuple": lambda: collections.namedtuple("P", "x y")(1.0, None),
        "deque": lambda: collections.deque([1.0, "x"]),
        "counter": lambda: collections.Counter("aab"),
        "user list": lambda: collections.UserList([1.0, None]),
        "user text": lambda: collections.UserString("12"),
        "list that changes": lambda: Changing([1.0]),
        "list that lies": lambda: LongList([1.0]),
        "deep list": lambda: deep(40),
        "deeper list": lambda: deep(900),
        "deepest list": lambda: deep(200_000),
        "uneven list": lambda: [[1.0], [1.0, 2.0]],
        "uneven depths": lambda: [1.0, [1.0]],
        "list and array": lambda: [np.zeros((2, 2)), [1.0]],
        "list of many kinds": lambda: [1, 2.0, True, None, "x", b"y", {}, []],
        "surrogates": lambda: "\udc80\ud800",
        "wrong dtype": lambda: np.dtype("float32"),
        "type": lambda: float,
        "tensor without a value": lambda: __import__("fluid").LoDTensor(),
        "empty place": lambda: __import__("fluid").CPUPlace(),
    }
    for kind in (list, tuple, dict, np.ndarray, collections.UserList):
        kinds[f"{kind.__name__} in itself"] = lambda kind=kind: endless(kind)  # type: ignore[misc]
    for name in ASKED:
        for error in (ValueError, KeyError) if name not in ("__array__", "__array_interface__") else ERRORS:
            kinds[f"{name} raises {error.__name__}"] = lambda name=name, error=error: raising(name, _error(error))  # type: ignore[misc]
        for place, result in enumerate(NO_RESULTS):
            if name in ("__array__", "__array_interface__", "__array_struct__", "__len__", "dtype", "shape", "__float__"):
                kinds[f"{name} gives {place}"] = lambda name=name, result=result: returning(name, result)  # type: ignore[misc]
    lies: dict[str, dict[str, Any]] = {
        "shape": {"shape": (2, 3 << 40)}, "negative shape": {"shape": (-2, -3)}, "long shape": {"shape": (1,) * 70},
        "shape of floats": {"shape": (2.0, 3.0)}, "shape of text": {"shape": "23"}, "no shape": {"shape": None},
        "shape of one number": {"shape": 6}, "overflowing shape": {"shape": (1 << 62, 4)}, "endless shape": {"shape": (1 << 80,)},
        "type of objects": {"typestr": "|O8"}, "no type": {"typestr": None}, "unknown type": {"typestr": "<q9"},
        "type that is a number": {"typestr": 4}, "long type": {"typestr": "<f4" * 1000}, "type of text": {"typestr": "<U40"},
        "type of records": {"typestr": "|V24", "descr": [("a", "<f4")] * 6}, "empty type": {"typestr": ""},
        "wider type": {"typestr": "<f8"}, "widest type": {"typestr": "|V9999999999"},
        "data that are text": {"data": "abc"}, "short data": {"data": b"abc"}, "data of numbers": {"data": 3},
        "data of three": {"data": (1, 2, 3)}, "data at a text": {"data": ("a", False)},
        "data at 2**80": {"data": (1 << 80, False)}, "no data": {"data": None},
        "strides": {"strides": (1 << 40, 1 << 40)}, "negative strides": {"strides": (-12, -4)}, "one stride": {"strides": (4,)},
        "strides of text": {"strides": "ab"}, "offset": {"offset": 1 << 40}, "negative offset": {"offset": -4},
        "offset of text": {"offset": "a"}, "mask": {"mask": [1]}, "version": {"version": 99}, "no version": {"version": None},
    }  # fmt: skip
    for name, changes in lies.items():
        kinds[f"interface: {name}"] = lambda changes=changes: interface(**changes)  # type: ignore[misc]
    return kinds


def _object_array(value: Any) -> Any:
    array = np.empty(1, object)
    array[0] = value
    return array


CONTAINERS: dict[str, Callable[[Make], Any]] = {
    "": lambda make: make(),
    "a list of ": lambda make: [make()],
    "numbers and ": lambda make: [1.0, make()],
    "a tuple of ": lambda make: (make(), make()),
    "nested ": lambda make: [[1.0], [make()]],
    "lengths beside ": lambda make: (make(), [[1, 1]]),
    "lengths that are ": lambda make: (np.zeros((2, 3), "float32"), [make()]),
    "an array of ": lambda make: _object_array(make()),
}


def bad_values(every: int = 1) -> dict[str, Make]:
    """By name, what makes each value; with `every`, of those in containers only each so manieth."""
    kinds = list(_singles().items())
    found: dict[str, Make] = {}
    for place, (container, wrap) in enumerate(CONTAINERS.items()):
        for number, (name, make) in enumerate(kinds):
            if not container or (number + place) % every == 0:
                found[container + name] = lambda wrap=wrap, make=make: wrap(make)  # type: ignore[misc]
    return found
