"""A recording engine: kernels run on its arrays, their numpy calls are recorded with buffers, and can be played back.

An array is one of numpy whose values nobody may ask for. What is done with it (ufuncs, functions, methods, indexing) is done,
on whatever values there are, and noted as a function with operands, of which arrays are views of buffers: number, offset,
shape, strides, element type. `Recording.play` does it again with other values in the first buffers.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np

from fluid.executor.kernels.fourier import transforms


class ValueAsked(TypeError):
    """A kernel asks for a value, which only running tells."""


class View(NamedTuple):
    """A part of a buffer."""

    buffer: int
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: Any


class Note(NamedTuple):
    """A recorded call: views in place of arrays, and the buffers of its results (None for results that are no new array)."""

    function: Callable[..., Any]
    args: Any
    kwargs: Any
    results: tuple[int | None, ...]


def address(array: Any) -> int:
    return int(array.__array_interface__["data"][0])


def bounds(array: Any) -> tuple[int, int]:
    low, high = np.lib.array_utils.byte_bounds(array) if array.size else (address(array), address(array))
    return low, max(high, low + 1)


class Recording:
    """The calls on arrays since it began. Buffers stay alive, so addresses are unique."""

    def __init__(self) -> None:
        self.notes: list[Note] = []
        self.constants: dict[int, Any] = {}
        self.inputs: list[int] = []
        self._buffers: list[Any] = []
        self._at: list[tuple[int, int, int]] = []
        """(start, end, number) of each buffer, in order."""

    def add(self, array: Any) -> int:
        """A new buffer, which is this whole array."""
        number = len(self._buffers)
        self._buffers.append(array)
        entry = (*bounds(array), number)
        self._at.insert(bisect_right(self._at, entry), entry)
        return number

    def input(self, array: Any) -> Any:
        """An array that gets other values in a playback."""
        self.inputs.append(self.add(array))
        return array.view(Array)

    def find(self, array: Any) -> int | None:
        """The number of the buffer that an array is part of."""
        low, high = bounds(array)
        place = bisect_right(self._at, (low, np.inf, 0)) - 1
        if place >= 0 and self._at[place][0] <= low and high <= self._at[place][1]:
            return self._at[place][2]
        return None

    def view(self, array: Any) -> View:
        number = self.find(array)
        if number is None:
            number = self.add(array.view(np.ndarray))
            self.constants[number] = array.view(np.ndarray).copy(order="K")
        start = bounds(self._buffers[number])[0]
        return View(number, address(array) - start, array.shape, array.strides, array.dtype)

    def call(self, function: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        """Call it, and note that."""
        noted = mapped(args, np.ndarray, self.view), mapped(kwargs, np.ndarray, self.view)
        found = function(*mapped(args, np.ndarray, plain), **mapped(kwargs, np.ndarray, plain))
        values = [as_array(value) for value in (found if isinstance(found, (tuple, list)) else (found,))]
        results = tuple(
            self.add(value) if isinstance(value, np.ndarray) and self.find(value) is None else None for value in values
        )
        self.notes.append(Note(function, *noted, results))
        seen = [value.view(Array) if isinstance(value, np.ndarray) else value for value in values]
        if hasattr(found, "_fields"):  # a tuple whose parts have names
            return type(found)(*seen)
        return type(found)(seen) if isinstance(found, (tuple, list)) else seen[0]

    def play(self, inputs: Sequence[Any], outputs: Sequence[Any]) -> list[Any]:
        """The arrays that `outputs` of this recording come to, from other inputs."""
        buffers = {number: array.copy(order="K") for number, array in self.constants.items()}
        buffers.update(zip(self.inputs, (array.copy() for array in inputs), strict=True))

        def array(view: View) -> Any:
            interface = {"shape": view.shape, "strides": view.strides, "typestr": view.dtype.str, "version": 3}
            start, end = bounds(buffers[view.buffer])
            reach = sum(max((extent - 1) * stride, 0) for extent, stride in zip(view.shape, view.strides, strict=True))
            if 0 not in view.shape and start + view.offset + reach + view.dtype.itemsize > end:
                raise IndexError("a buffer has another size than when it was recorded")
            interface["data"] = (start + view.offset, False)
            return np.asarray(SimpleNamespace(__array_interface__=interface))

        for function, args, kwargs, results in self.notes:
            found = function(*mapped(args, View, array), **mapped(kwargs, View, array))
            found = found if isinstance(found, (tuple, list)) else (found,)
            buffers.update((number, as_array(value)) for number, value in zip(results, found, strict=True) if number is not None)
        return [array(self.view(output)).copy() for output in outputs]


def mapped(value: Any, kind: Any, fn: Callable[[Any], Any]) -> Any:
    """Apply `fn` to all values of a kind, also within lists, tuples and dicts."""
    if isinstance(value, kind):
        return fn(value)
    if isinstance(value, dict):
        return {key: mapped(item, kind, fn) for key, item in value.items()}
    return type(value)(mapped(item, kind, fn) for item in value) if type(value) in (list, tuple) else value


def plain(array: Any) -> Any:
    return array.view(np.ndarray)


def as_array(value: Any) -> Any:
    return np.asarray(value) if isinstance(value, np.generic) else value


current = Recording()


def recorded(function: Callable[..., Any]) -> Callable[..., Any]:
    return lambda *args, **kwargs: current.call(function, args, kwargs)


def refused(*args: Any, **kwargs: Any) -> Any:
    raise ValueAsked("a value that only running tells is asked for")


class Array(np.ndarray):
    """An array that records the operations on it."""

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **kwargs: Any) -> Any:
        out = kwargs.get("out")
        if isinstance(out, tuple) and len(out) == 1:
            kwargs["out"] = out[0]
        found = current.call(getattr(ufunc, method), inputs, kwargs)
        return out[0] if isinstance(out, tuple) and len(out) == 1 else found  # `a += b` binds it to the name a

    def __array_function__(self, function: Any, types: Any, args: Any, kwargs: Any) -> Any:
        return current.call(function, args, kwargs)

    def __getitem__(self, index: Any) -> Any:
        basic = index if isinstance(index, tuple) else (index,)
        if all(item is None or item is Ellipsis or isinstance(item, (int, slice)) for item in basic):
            return super().__getitem__(index if Ellipsis in basic else (*basic, Ellipsis))  # never a number
        return current.call(np.ndarray.__getitem__, (self, index), {})

    def __setitem__(self, index: Any, value: Any) -> None:
        current.call(np.ndarray.__setitem__, (self, index, value), {})

    def __iter__(self) -> Any:
        return (self[number] for number in range(len(self)))

    def reshape(self, *shape: Any, **kwargs: Any) -> Any:
        found = super().reshape(*shape, **kwargs)
        return found if current.find(found) is not None else current.call(np.ndarray.reshape, (self, *shape), kwargs)


for name in [
    "argmax",
    "argmin",
    "argsort",
    "astype",
    "choose",
    "clip",
    "copy",
    "cumprod",
    "cumsum",
    "dot",
    "fill",
    "flatten",
    "nonzero",
    "partition",
    "ravel",
    "repeat",
    "sort",
    "take",
]:
    setattr(Array, name, (lambda method: lambda self, *a, **k: current.call(method, (self, *a), k))(getattr(np.ndarray, name)))
for name in ["__bool__", "__float__", "__int__", "__index__", "item", "tobytes", "tolist"]:
    setattr(Array, name, refused)


class Namespace:
    """numpy with functions that record their calls."""

    __name__ = "numpy"
    ndarray = Array
    lib = SimpleNamespace(stride_tricks=SimpleNamespace(as_strided=recorded(np.lib.stride_tricks.as_strided)))
    fft = SimpleNamespace(**{name: recorded(getattr(transforms(np), name)) for name in ("fftn", "ifftn", "rfftn", "irfftn")})

    def __getattr__(self, name: str) -> Any:
        found = getattr(np, name)
        return found if isinstance(found, (np.ufunc, type)) or not callable(found) else recorded(found)
