"""The module `cupy`, put together from the names that cupy has."""

from __future__ import annotations

from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np

from . import functions, streams
from .arrays import API, HERE, ndarray, signatures

_PLAIN = (
    "bool", "bool_", "byte", "complex128", "complex64", "complexfloating", "csingle", "cdouble", "dtype", "e",
    "euler_gamma", "finfo", "float16", "float32", "float64", "floating", "generic", "half", "iinfo", "inf", "inexact",
    "int16", "int32", "int64", "int8", "intc", "integer", "intp", "long", "longlong", "nan", "newaxis", "number", "pi",
    "s_", "short", "signedinteger", "single", "ubyte", "uint", "uint16", "uint32", "uint64", "uint8", "uintc", "uintp",
    "ulong", "ulonglong", "unsignedinteger", "ushort",
)  # fmt: skip
"""Names of numpy that are cupy's too."""


class Device:
    """A device; the only one."""

    def __init__(self, id: int = 0) -> None:
        self.id = id

    def __enter__(self) -> Device:
        return self

    def __exit__(self, *_: Any) -> None: ...

    compute_capability = "90"

    def synchronize(self) -> None:
        streams.refuse_waiting()


_BINARY = {
    "add": "add", "sub": "subtract", "mul": "multiply", "truediv": "true_divide", "floordiv": "floor_divide", "mod": "remainder",
    "pow": "power", "and": "bitwise_and", "or": "bitwise_or", "xor": "bitwise_xor", "lshift": "left_shift",
    "rshift": "right_shift", "matmul": "matmul",
}  # fmt: skip
"""Operator of two arrays -> its function."""
_COMPARISONS = {"lt": "less", "le": "less_equal", "gt": "greater", "ge": "greater_equal", "eq": "equal", "ne": "not_equal"}
_UNARY = {"neg": "negative", "pos": "positive", "abs": "absolute", "invert": "invert"}


def _add_operators(module: Any) -> None:
    """Give arrays their operators."""
    for operator, name in {**_BINARY, **_COMPARISONS, **_UNARY}.items():
        _set_method(f"__{operator}__", getattr(module, name))
    for operator, name in _BINARY.items():
        _set_method(f"__r{operator}__", getattr(module, name), lambda by, self, value: by(value, self))
        if operator != "matmul":
            _set_method(f"__i{operator}__", getattr(module, name), lambda by, self, value: by(self, value, self))


def _set_method(name: str, by: Any, call: Any = lambda by, *operands: by(*operands)) -> None:
    setattr(ndarray, name, lambda *operands: call(by, *operands))


def _module(name: str, **members: Any) -> ModuleType:
    module = ModuleType(name)
    vars(module).update(members)
    return module


def _cupy() -> ModuleType:
    """cupy 14.2, as far as numpy computes it. A name that numpy lacks is missing."""
    module = _module(HERE, __version__="14.2.0", ndarray=ndarray, ufunc=functions.ufunc, RawKernel=functions.RawKernel)
    homes = {"": module}
    for path in ("linalg", "fft", "random", "lib", "lib.stride_tricks", "cuda"):
        homes[path] = _module(f"{HERE}.{path}")
        parent, _, name = path.rpartition(".")
        setattr(homes[parent], name, homes[path])
    for name in _PLAIN:
        setattr(module, name, getattr(np, name))
    module.ogrid, module.mgrid = functions.Grid(np.ogrid), functions.Grid(np.mgrid)  # type: ignore[attr-defined]
    for kind, text in API:
        if kind == "ufunc" and hasattr(np, text.split(" ")[0]):
            item = functions.ufunc(*text.split(" "))
            setattr(module, item.__name__, item)
    for name, signature in signatures("function").items():
        path, _, short = name.rpartition(".")
        computed_by = np
        for part in name.split("."):
            computed_by = getattr(computed_by, part, None)  # type: ignore[assignment]
        if computed_by is None:
            continue
        special = getattr(functions, short, None) if path in ("", "linalg") else None
        if special is not None:
            stand_in = functions.kind_of(name)(functions.named(special, name))
        else:
            stand_in = functions.function(name, signature, computed_by)
        setattr(homes[path], short, stand_in)
    for name in ("asnumpy", "from_dlpack"):
        setattr(module, name, functions.named(getattr(functions, name), name))
    module.get_default_pinned_memory_pool = streams.get_default_pinned_memory_pool  # type: ignore[attr-defined]
    homes["linalg"].LinAlgError = np.linalg.LinAlgError  # type: ignore[attr-defined]
    for name, signature in signatures("draw").items():
        setattr(functions.Generator, name, functions.draw(name, signature))
    vars(homes["random"]).update(Generator=functions.Generator, Philox4x3210=functions.philox, default_rng=functions.default_rng)
    _add_operators(module)
    runtime = SimpleNamespace(getDeviceCount=lambda: 1, runtimeGetVersion=lambda: 13000)
    vars(homes["cuda"]).update(
        Device=Device,
        runtime=runtime,
        Stream=streams.Stream,
        MemoryPool=streams.MemoryPool,
        using_allocator=streams.using_allocator,
        set_pinned_memory_allocator=streams.set_pinned_memory_allocator,
        get_current_stream=streams.current_stream,
    )
    return module


cupy = _cupy()
"""The namespace."""
