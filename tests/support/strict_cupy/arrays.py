"""Arrays that are numpy's underneath, with the methods of cupy's and no way to numpy but `get`."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from itertools import zip_longest
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

from .streams import launched, refuse_waiting, upload, waiting

HERE = "cupy"
"""The module that functions and types name as theirs, as cupy's do."""
API = [line.split(" ", 1) for line in (Path(__file__).parent / "api.txt").read_text(encoding="utf-8").splitlines()]
"""(kind, the remaining line) of each function, as tests/support/make_cupy_api.py writes them."""
_TYPES = {"float": float, "int": int, "float64": np.float64, "int64": np.int64}


def signatures(kind: str) -> dict[str, inspect.Signature]:
    """The signatures of all functions of a kind, by name."""
    lines = [text.partition("(") for line_kind, text in API if line_kind == kind]
    return {name: inspect.signature(eval(f"lambda {text[:-1]}: 0", dict(_TYPES))) for name, _, text in lines}


def checked_dtype(dtype: Any) -> np.dtype[Any]:
    """The element type, if cupy computes with it."""
    dtype = np.dtype(dtype)
    if dtype.kind not in "biufc" or dtype.char in "gG":
        raise ValueError(f"Unsupported dtype {dtype}")
    return dtype


def lowered(value: Any, takes_numpy: bool = False) -> Any:
    """A value with the host arrays of arrays in it; numpy's own arrays are refused, as implicit copies to the device."""
    if isinstance(value, ndarray):
        return value._host
    if isinstance(value, np.ndarray) and not takes_numpy:
        raise TypeError(f"Unsupported type {type(value)}")
    if isinstance(value, np.ndarray) and value.ndim:
        upload(value.nbytes)
    if isinstance(value, (list, tuple)):
        return type(value)(lowered(item, takes_numpy) for item in value)
    return value


def lowered_index(array: Any, index: Any) -> Any:
    """An index of numpy for a host array: ids outside wrap around, as in cupy's kernels."""
    index = lowered(index, takes_numpy=True)
    parts = index if isinstance(index, tuple) else (index,)
    around, axis = [], 0
    for number, part in enumerate(parts):
        if part is Ellipsis:
            axis = array.ndim - sum(map(_axes_of, parts[number + 1 :]))
        is_ids = isinstance(part, np.ndarray) and part.dtype.kind in "iu" and part.ndim and array.shape[axis]
        around.append(part.astype("int64") % array.shape[axis] if is_ids else part)
        axis += _axes_of(part)
    return tuple(around) if isinstance(index, tuple) else around[0]


def _axes_of(part: Any) -> int:
    """How many axes a part of an index takes."""
    if part is None or part is Ellipsis:
        return 0
    return part.ndim if isinstance(part, np.ndarray) and part.dtype == bool else 1


def wrapped(value: Any, sources: tuple[Any, ...] = ()) -> Any:
    """Wrap numpy's results as arrays, scalars too; a result that is one of the sources stays that object."""
    if isinstance(value, (list, tuple)):
        items = [wrapped(item, sources) for item in value]
        return items if isinstance(value, list) else tuple(items)
    if not isinstance(value, (np.ndarray, np.generic)):
        return value
    same = next((source for source in sources if source._host is value), None)
    if same is not None:
        return same
    array = ndarray._of(np.asarray(value))
    owner = next(
        (item for item in sources if array._host.base is not None and np.may_share_memory(item._host, array._host)), None
    )
    array._base = owner if owner is None or owner._base is None else owner._base
    return array


def sources_of(values: Any) -> tuple[Any, ...]:
    """The arrays among values, also in lists."""
    found: list[Any] = []
    for value in values:
        found += [value] if isinstance(value, ndarray) else sources_of(value) if isinstance(value, (list, tuple)) else []
    return tuple(found)


def assign(host: np.ndarray[Any, Any], index: Any, value: Any) -> None:
    """``host[index] = value``, but of several values for one element the first stays: on a device any of them may."""
    parts = index if isinstance(index, tuple) else (index,)
    if not any(isinstance(part, list) or (isinstance(part, np.ndarray) and part.dtype.kind != "b") for part in parts):
        host[index] = value
        return
    places = np.arange(host.size).reshape(host.shape)[index]
    values = np.broadcast_to(value, places.shape).reshape(-1)
    unique, first = np.unique(places.reshape(-1), return_index=True)
    host[np.unravel_index(unique, host.shape)] = values[first]


def check_index(index: Any) -> None:
    """A list in an index is copied to the device; a mask is counted, which waits for it."""
    for part in index if isinstance(index, tuple) else (index,):
        if isinstance(part, list):
            upload(len(part))
        if str(getattr(part, "dtype", "")) == "bool":
            refuse_waiting()


class ndarray:
    """An array of the device. Views share memory as in cupy, also views of single elements."""

    __slots__ = ("_base", "_host")
    __module__ = HERE
    __hash__ = None  # type: ignore[assignment]
    _host: np.ndarray[Any, Any]
    _base: Any

    def __init__(self, shape: Any, dtype: Any = float) -> None:
        self._host, self._base = np.empty(shape, checked_dtype(dtype)), None

    @classmethod
    def _of(cls, host: np.ndarray[Any, Any]) -> ndarray:
        checked_dtype(host.dtype)
        array = cls.__new__(cls)
        array._host, array._base = host, None
        return array

    # -- what it says of itself
    dtype = property(lambda self: self._host.dtype)
    ndim = property(lambda self: self._host.ndim)
    size = property(lambda self: self._host.size)
    nbytes = property(lambda self: self._host.nbytes)
    itemsize = property(lambda self: self._host.itemsize)
    strides = property(lambda self: self._host.strides)
    base = property(lambda self: self._base)
    T = property(lambda self: self.transpose())
    mT = property(lambda self: self.swapaxes(-1, -2))
    device = property(lambda self: SimpleNamespace(id=0))

    @property
    def shape(self) -> tuple[int, ...]:
        return self._host.shape

    @property
    def flags(self) -> Any:
        flags = self._host.flags
        return SimpleNamespace(c_contiguous=flags.c_contiguous, f_contiguous=flags.f_contiguous, owndata=flags.owndata)

    @property
    def data(self) -> Any:
        return SimpleNamespace(ptr=self._host.__array_interface__["data"][0])

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        found = self._host.__array_interface__
        return {**{name: found[name] for name in ("shape", "typestr", "strides")}, "data": (self.data.ptr, False), "version": 3}

    @property
    def real(self) -> Any:
        return wrapped(self._host.real, (self,))

    @real.setter
    def real(self, value: Any) -> None:
        self._host.real = lowered(value)

    @property
    def imag(self) -> Any:
        return wrapped(self._host.imag, (self,))

    @imag.setter
    def imag(self, value: Any) -> None:
        self._host.imag = lowered(value)

    def __len__(self) -> int:
        return len(self._host)

    def __repr__(self) -> str:
        return repr(self._host)

    # -- to the host, by name or as one number
    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        raise TypeError(
            "Implicit conversion to a NumPy array is not allowed. Please use `.get()` to construct a NumPy array explicitly."
        )

    def __bool__(self) -> bool:
        return bool(self._host)

    def __int__(self) -> int:
        return int(self._host)

    def __float__(self) -> float:
        return float(self._host)

    def __complex__(self) -> complex:
        return complex(self._host)

    def __format__(self, spec: str) -> str:
        return format(self._host, spec)

    def __dlpack_device__(self) -> tuple[int, int]:
        return (2, 0)

    def __dlpack__(self, *, stream: Any = None, max_version: Any = None, dl_device: Any = None, copy: Any = None) -> Any:
        if dl_device != (1, 0):
            raise BufferError("the array is on a device")
        return self.get().__dlpack__()

    # -- elements
    def __getitem__(self, index: Any) -> Any:
        check_index(index)
        index = lowered_index(self._host, index)
        parts = index if isinstance(index, tuple) else (index,)
        if all(part is None or part is Ellipsis or isinstance(part, (int, np.integer, slice)) for part in parts):
            index = (*parts, Ellipsis) if Ellipsis not in parts else parts  # numpy would copy single elements
        return wrapped(self._host[index], (self,))

    def __setitem__(self, index: Any, value: Any) -> None:
        if isinstance(value, (list, tuple)) or (isinstance(value, np.ndarray) and value.size != 1):
            raise ValueError(f"non-scalar {type(value)} cannot be used for fill")
        check_index(index)
        assign(self._host, lowered_index(self._host, index), lowered(value, takes_numpy=True))

    def __iter__(self) -> Any:
        if not self.ndim:
            raise TypeError("iteration over a 0-d array")
        return (self[number] for number in range(len(self)))

    # -- numpy's functions, which cupy's stand in for
    def __array_ufunc__(self, function: np.ufunc, method: str, *inputs: Any, **keywords: Any) -> Any:
        from .namespace import cupy

        if "out" in keywords:
            keywords["out"] = keywords["out"][0]
        stand_in = getattr(cupy, function.__name__, None)
        if stand_in is None or function.signature is not None:
            return NotImplemented
        if any(isinstance(item, np.ndarray) for item in (*inputs, keywords.get("out"))):
            return NotImplemented
        return (stand_in if method == "__call__" else getattr(stand_in, method))(*inputs, **keywords)

    def __array_function__(self, function: Any, types: Any, args: Any, keywords: Any) -> Any:
        from .namespace import cupy

        home: Any = cupy
        for name in function.__module__.split(".")[1:]:
            home = getattr(home, name, None)
        known = getattr(home, function.__name__, None)
        if known is None or known is function or any(kind is not ndarray for kind in types):
            return NotImplemented
        return known(*args, **keywords)

    # -- methods that differ from numpy's in more than their parameters
    def get(self, stream: Any = None, order: str = "C", out: Any = None, blocking: bool = True) -> Any:
        if out is None:
            return self._host.copy(order)
        out[...] = self._host
        return out

    def set(self, arr: Any, stream: Any = None) -> None:
        if not isinstance(arr, np.ndarray):
            raise TypeError("Only numpy.ndarray can be set to cupy.ndarray")
        if arr.shape != self.shape or arr.dtype != self.dtype:
            raise ValueError(f"{arr.dtype}{arr.shape} cannot be set to {self.dtype}{self.shape}")
        self._host[...] = arr

    def item(self) -> Any:
        return self._host.item()

    def fill(self, value: Any) -> None:
        if isinstance(value, np.ndarray) and value.size != 1:
            raise ValueError("non-scalar numpy.ndarray cannot be used for fill")
        self._host.fill(lowered(value, takes_numpy=True))

    def astype(self, dtype: Any, order: str = "K", casting: Any = None, subok: Any = None, copy: bool = True) -> Any:
        if casting is not None or subok is not None:
            raise TypeError("casting is not supported yet" if subok is None else "subok is not supported yet")
        return wrapped(self._host.astype(checked_dtype(dtype), order=order, copy=copy), (self,))

    def min(self, axis: Any = None, out: Any = None, keepdims: bool = False) -> Any:
        if out is not None:  # cupy 14.2 takes it for the element type
            raise TypeError(f"Cannot interpret {out!r} as a data type")
        return wrapped(self._host.min(axis, keepdims=keepdims))

    def take(self, indices: Any, axis: Any = None, out: Any = None) -> Any:
        """Ids outside wrap around."""
        places = lowered(indices, takes_numpy=True)
        return wrapped(self._host.take(places, axis, lowered(out), mode="wrap"), sources_of([out]))

    def put(self, indices: Any, values: Any, mode: str = "wrap") -> None:
        if mode not in ("wrap", "clip"):
            raise TypeError("clipmode not understood")
        places = np.asarray(lowered(indices, takes_numpy=True)).reshape(-1)
        values = np.resize(lowered(values, takes_numpy=True), places.size)
        unique, first = np.unique(places, return_index=True)
        self._host.put(unique, values[first], mode)

    def view(self, dtype: Any = None, type: Any = None) -> Any:
        if type is not None:
            raise NotImplementedError("type is not supported")
        return wrapped(self._host.view() if dtype is None else self._host.view(checked_dtype(dtype)), (self,))

    def prod(self, axis: Any = None, dtype: Any = None, out: Any = None, keepdims: Any = None) -> Any:
        return wrapped(self._host.prod(axis, dtype, lowered(out), bool(keepdims)), sources_of([out]))

    def argmax(self, axis: Any = None, out: Any = None, dtype: Any = None, keepdims: bool = False) -> Any:
        return wrapped(self._host.argmax(axis, lowered(out), keepdims=keepdims), sources_of([out]))

    def argmin(self, axis: Any = None, out: Any = None, dtype: Any = None, keepdims: bool = False) -> Any:
        return wrapped(self._host.argmin(axis, lowered(out), keepdims=keepdims), sources_of([out]))

    def scatter_add(self, slices: Any, value: Any) -> None:
        np.add.at(self._host, lowered_index(self._host, slices), lowered(value))

    def scatter_max(self, slices: Any, value: Any) -> None:
        np.maximum.at(self._host, lowered_index(self._host, slices), lowered(value))

    def scatter_min(self, slices: Any, value: Any) -> None:
        np.minimum.at(self._host, lowered_index(self._host, slices), lowered(value))


def _method(name: str, signature: inspect.Signature) -> Callable[..., Any]:
    def method(self: ndarray, *args: Any, **keywords: Any) -> Any:
        bound = signature.bind(self, *args, **keywords).arguments
        if isinstance(bound.get("dtype"), ndarray):
            raise TypeError(f"Cannot interpret {bound['dtype']!r} as a data type")
        if bound.get("kind") not in (None, "stable"):
            raise ValueError("kind can only be None or 'stable'")
        keywords = {key: lowered(value) for key, value in keywords.items() if (key, value) != ("copy", None)}
        found = getattr(self._host, name)(*lowered(args), **keywords)
        return wrapped(found, (self, *sources_of((*args, *keywords.values(), bound.get("out")))))

    method.__name__, method.__qualname__, method.__module__ = name, f"ndarray.{name}", HERE
    return method


for _name, _signature in signatures("method").items():
    if _name in vars(ndarray):
        vars(ndarray)[_name].__module__ = HERE
        theirs = [(item.name, item.default) for item in _signature.parameters.values()]
        ours = [(item.name, item.default) for item in inspect.signature(vars(ndarray)[_name]).parameters.values()]
        for their, our in zip_longest(theirs, ours):
            assert their == our, f"ndarray.{_name}: cupy has {their}, the stand-in {our}"
    elif hasattr(np.ndarray, _name):
        setattr(ndarray, _name, _method(_name, _signature))

_WAITING = (
    "get",
    "item",
    "__bool__",
    "__int__",
    "__float__",
    "__complex__",
    "__format__",
    "nonzero",
    "sort",
    "argsort",
    "partition",
)
for _name in _WAITING:
    setattr(ndarray, _name, waiting(getattr(ndarray, _name)))
for _name in {*signatures("method"), "__getitem__", "__setitem__"} - {*_WAITING, "set", "tolist", "tobytes", "dump", "dumps"}:
    if hasattr(ndarray, _name):
        setattr(ndarray, _name, launched(getattr(ndarray, _name)))
