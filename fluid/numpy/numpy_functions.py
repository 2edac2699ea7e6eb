"""Functions of numpy that are called with tensors: `np.exp(x)`, `np.sum(x, axis=0)`, `np.concatenate([x, y])`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from inspect import Parameter, Signature, signature
from typing import Any

import numpy as np

import fluid.numpy as namespace

from ..eager.tensor import Tensor
from ..errors import FluidTypeError

__all__ = ["call_function"]

_NAMES = {
    "absolute": "abs",
    "amax": "max",
    "amin": "min",
    "arctan2": "atan2",
    "concatenate": "concat",
    "conjugate": "conj",
    "invert": "bitwise_invert",
    "left_shift": "bitwise_left_shift",
    "power": "pow",
    "right_shift": "bitwise_right_shift",
    "transpose": "permute_dims",
} | {f"arc{name}": f"a{name}" for name in ("cos", "cosh", "sin", "sinh", "tan", "tanh")}
"""Functions of numpy -> the names in the array API standard, where these differ."""
_KEYWORDS = {"a_max": "max", "a_min": "min", "ddof": "correction"}
"""Arguments of numpy's functions -> the names in the array API standard, where these differ."""


def call_function(function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """Call a function of numpy with tensors among its arguments.

    The function of `fluid.numpy` with the same name computes the result, an array with gradients. Without one, or with arguments
    that it does not take, numpy computes on the values.

    Raises:
        FluidTypeError: numpy would compute numbers from a tensor that needs a gradient, which would be lost.

    >>> np.maximum(dygraph.Tensor([-1.0, 2.0]), 0.0), np.median(dygraph.Tensor([1.0, 2.0, 6.0]))
    (NDArray([0., 2.], dtype=float32), np.float32(2.0))
    """
    ours = _counterpart(function)
    arguments = None if ours is None else _arguments(function, ours, args, kwargs)
    if ours is not None and arguments is not None:
        return ours(*arguments[0], **arguments[1])
    tensors: list[Tensor] = []
    result = function(*_with_values(list(args), tensors), **_with_values(dict(kwargs), tensors))
    trained = next((tensor for tensor in tensors if not tensor.stop_gradient), None)
    if trained is not None and _has_floats(result):
        raise FluidTypeError(
            f"np.{_name(function)}: {trained.describe()} needs a gradient, which numpy does not compute; use fluid.numpy or "
            "fluid.layers, or give numpy the values, x.numpy()"
        )
    return result


@cache
def _counterpart(function: Callable[..., Any]) -> Callable[..., Any] | None:
    """The function of `fluid.numpy` that computes the same."""
    name = function.__name__
    for theirs, ours in ((np, namespace), (np.linalg, namespace.linalg), (np.fft, namespace.fft)):
        if getattr(theirs, name, None) is function:
            counterpart = getattr(ours, _NAMES.get(name, name), None)
            return counterpart if callable(counterpart) else None
    return None


@cache
def _signature(function: Callable[..., Any]) -> Signature:
    return signature(function)


def _arguments(
    function: Callable[..., Any], ours: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]
) -> tuple[list[Any], dict[str, Any]] | None:
    """The arguments of numpy's function for ours; None if ours does not take them."""
    try:
        theirs: Mapping[str, Parameter] = _signature(function).parameters
        named = _signature(function).bind(*args, **kwargs).arguments
    except (TypeError, ValueError):  # numpy's compiled functions do not tell their parameters
        theirs, named = {}, {f"{number}": value for number, value in enumerate(args)} | dict(kwargs)
    values = {_KEYWORDS.get(name, name): value for name, value in named.items() if value is not _default(theirs.get(name))}
    count = sum(parameter.kind is Parameter.POSITIONAL_ONLY for parameter in _signature(ours).parameters.values())
    names = list(values)
    positional, keywords = [values[name] for name in names[:count]], {name: values[name] for name in names[count:]}
    try:
        _signature(ours).bind(*positional, **keywords)
    except TypeError:
        return None
    return positional, keywords


def _name(function: Callable[..., Any]) -> str:
    """The name of a function, or of a method of a ufunc, such as ``add.reduce``."""
    owner = getattr(function, "__self__", None)
    return f"{owner.__name__}.{function.__name__}" if isinstance(owner, np.ufunc) else function.__name__


_NO_DEFAULT = object()


def _default(parameter: Parameter | None) -> Any:
    return _NO_DEFAULT if parameter is None else parameter.default


def _with_values(value: Any, tensors: list[Tensor]) -> Any:
    """Arguments with arrays in place of tensors, which are added to the list."""
    if isinstance(value, Tensor):
        tensors.append(value)
        return np.asarray(value)
    if type(value) in (list, tuple):
        return type(value)(_with_values(item, tensors) for item in value)
    if type(value) is dict:
        return {key: _with_values(item, tensors) for key, item in value.items()}
    return value


def _has_floats(result: Any) -> bool:
    """Whether a result of numpy has real or complex numbers."""
    if isinstance(result, (list, tuple)):
        return any(map(_has_floats, result))
    return isinstance(result, (np.ndarray, np.generic, float)) and np.asarray(result).dtype.kind in "fc"
