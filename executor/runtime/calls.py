"""Calls as data: a named function and its operands.

A prepared kernel returns a list of calls. A call is a `functools.partial`, the fastest to call, of a ufunc, a function of the
array namespace, a method of its arrays (``xp.ndarray.fill``), or a function defined at the top of a module. It is never a lambda,
a nested function or a bound method, because these hide their operands. Operands are arrays, numbers, strings, element types,
slices, the namespace, the source of random numbers, such functions, and lists, tuples and dicts of these; a list may also hold
calls, which the function makes or skips. So a call can be printed, written as source code, or executed by another engine.

A function of a module annotates the parameters that it writes to with `OutArray`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from enum import Enum
from functools import partial
from types import BuiltinFunctionType, FunctionType, MethodDescriptorType, ModuleType
from typing import Any, TypeAlias

import numpy as np

Call = partial[Any]
"""The function is ``call.func``, its operands are ``call.args`` and ``call.keywords``; ``call()`` makes the call."""

OutArray: TypeAlias = Any
"""An array that a function writes to."""

KERNEL_FUNCTIONS: dict[Callable[..., Any], tuple[str, frozenset[str]]] = {}
"""Function of a kernel -> its op type (the name of generated functions), and the parameters that it writes to."""


class Source:
    """Returns the random generator for the next draw of an op."""

    __slots__ = ()

    def __call__(self) -> Any:
        raise NotImplementedError


_SCALARS = (bool, int, float, complex, str, np.generic, np.dtype, Enum)
PLAIN: tuple[Any, ...] = (*_SCALARS, slice, range, ModuleType, type, type(Ellipsis), Source)
"""Types of constant operands, besides None."""


def fill(xp: Any, array: Any, number: Any) -> Call:
    """The call that sets all elements of an array to a number."""
    return partial(xp.ndarray.fill, array, number)


def is_named(function: Any) -> bool:
    """Whether a function can be looked up by name, so that it hides no operands."""
    if isinstance(function, np.ufunc) or _is_ufunc_of_cupy(getattr(function, "__self__", None)):
        return True
    if isinstance(function, FunctionType):
        return "<" not in function.__qualname__ or function in KERNEL_FUNCTIONS  # as in "<lambda>" and "<locals>"
    if isinstance(function, (BuiltinFunctionType, MethodDescriptorType)):
        return isinstance(getattr(function, "__self__", None), (type(None), ModuleType, np.ufunc))
    # For example numpy's functions that dispatch on the types of their arguments, and compiled functions of cupy.
    homes = (str(home).partition(".")[0] for home in (type(function).__module__, getattr(function, "__module__", "")))
    return callable(function) and getattr(function, "__self__", None) is None and not {"numpy", "cupy"}.isdisjoint(homes)


def _is_ufunc_of_cupy(value: Any) -> bool:
    return type(value).__name__ == "ufunc" and type(value).__module__.partition(".")[0] == "cupy"


def name_of(function: Any) -> str:
    """The name of a function: ``add``, ``add.reduce``, ``ndarray.fill``, ``kernels.loss._get``, or a kernel's op."""
    if isinstance(function, FunctionType) and function in KERNEL_FUNCTIONS:
        return KERNEL_FUNCTIONS[function][0]
    owner = getattr(function, "__self__", None)
    if isinstance(owner, np.ufunc):
        return f"{owner.__name__}.{function.__name__}"
    if isinstance(function, MethodDescriptorType):
        return f"{function.__objclass__.__name__}.{function.__name__}"
    name = getattr(function, "__qualname__", None) or function.__name__
    module = function.__module__ if isinstance(function, FunctionType) else ""
    return f"{module.removeprefix('fluid.executor.')}.{name}" if module.startswith("fluid.") else str(name)


# ------------------------------------------------------------------------------------------------------------- outputs
_OUT_AT = {"copyto": 0, "fill": 0, "concatenate": 2, "dot": 2, "clip": 3}
_OUT_AT |= {"sum": 3, "prod": 3, "cumsum": 3, "max": 2, "min": 2, "all": 2, "any": 2}
"""Function of arrays -> position of its output array; for ``add.reduce``, the position is 3."""


def destinations(call: Call) -> list[Any]:
    """The arrays that a call writes to, also those in lists."""
    function, args, keywords = call.func, call.args, call.keywords
    if isinstance(function, FunctionType) and (function.__module__ or "").partition(".")[0] not in ("numpy", "cupy"):
        code = function.__code__
        named = {**dict(zip(code.co_varnames[: code.co_argcount], args, strict=False)), **keywords}
        outputs = [array for name in _written_parameters(function) for array in _arrays(named.get(name))]
        return outputs + [array for value in named.values() for inner in _calls(value) for array in destinations(inner)]
    if keywords.get("out") is not None:
        return [keywords["out"]]
    if isinstance(function, np.ufunc):
        return list(args[function.nin :])
    at = 3 if isinstance(getattr(function, "__self__", None), np.ufunc) else _OUT_AT.get(function.__name__)
    return [args[at]] if at is not None and len(args) > at and args[at] is not None else []


def _written_parameters(function: FunctionType) -> Collection[str]:
    if function in KERNEL_FUNCTIONS:
        return KERNEL_FUNCTIONS[function][1]
    return [name for name, annotation in function.__annotations__.items() if "OutArray" in str(annotation)]


def _arrays(value: Any) -> Iterator[Any]:
    if isinstance(value, (list, tuple)):
        for item in value:
            yield from _arrays(item)
    elif value is not None:
        yield value


def _calls(value: Any) -> Iterator[Call]:
    if isinstance(value, partial):
        yield value
    elif isinstance(value, list):
        for item in value:
            yield from _calls(item)


# ------------------------------------------------------------------------------------------------------------ validity
def fault_of(call: Any, array_type: Any = np.ndarray) -> str:
    """Describe the part of a call that is not data; empty if there is none."""
    if not isinstance(call, partial):
        return f"{call!r} is not a partial"
    if not is_named(call.func):
        return f"{call.func!r} has no name"
    return next(filter(None, (_fault_of_operand(value, array_type) for value in (*call.args, *call.keywords.values()))), "")


def _fault_of_operand(value: Any, array_type: Any) -> str:
    if value is None or isinstance(value, (array_type, *PLAIN)):
        return ""
    if isinstance(value, partial):
        return fault_of(value, array_type)
    if isinstance(value, (list, tuple, dict)):
        items = value.values() if isinstance(value, dict) else value
        return next(filter(None, (_fault_of_operand(item, array_type) for item in items)), "")
    return "" if callable(value) and is_named(value) else f"{value!r} is not data"
