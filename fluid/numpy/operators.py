"""Operators, indices and conversions of arrays."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

from ..eager.methods import ATTACHED, UNARY, respelled
from ..eager.tensor import Tensor, of_class_of
from ..values.operators import ValueOperators
from . import elementwise, products, statistics
from .array import AUGMENTED, NDArray
from .indexing import assign_item, getitem

_BINARY = {
    "add": (elementwise.add, "+="),
    "sub": (elementwise.subtract, "-="),
    "mul": (elementwise.multiply, "*="),
    "truediv": (elementwise.divide, "/="),
    "floordiv": (elementwise.floor_divide, "//="),
    "mod": (elementwise.remainder, "%="),
    "pow": (elementwise.pow, "**="),
    "matmul": (products.matmul, "@="),
    "and": (elementwise.bitwise_and, "&="),
    "or": (elementwise.bitwise_or, "|="),
    "xor": (elementwise.bitwise_xor, "^="),
    "lshift": (elementwise.bitwise_left_shift, "<<="),
    "rshift": (elementwise.bitwise_right_shift, ">>="),
}
"""Operator -> its function, and the operator in place."""
_COMPARISONS = {
    "eq": elementwise.equal,
    "ne": elementwise.not_equal,
    "lt": elementwise.less,
    "le": elementwise.less_equal,
    "gt": elementwise.greater,
    "ge": elementwise.greater_equal,
}
_UNARY = {
    "abs": elementwise.abs,
    "neg": elementwise.negative,
    "pos": elementwise.positive,
    "invert": elementwise.bitwise_invert,
}


_OPERANDS = frozenset((NDArray, bool, int, float, complex))
"""The commonest types of operands."""


def _is_operand(value: Any) -> bool:
    """Whether an operator takes this on its other side: arrays, variables, numbers and arrays of numpy."""
    return (
        value.__class__ in _OPERANDS
        or isinstance(value, (ValueOperators, bool, int, float, complex))
        or hasattr(value, "__array_interface__")
    )


def _operator(name: str, function: Callable[[Any, Any], Any]) -> None:
    def method(self: NDArray, operand: Any, /) -> Any:
        return function(self, operand) if _is_operand(operand) else NotImplemented

    method.__name__ = f"__{name}__"
    setattr(NDArray, method.__name__, method)


def _reflected(name: str, function: Callable[[Any, Any], Any]) -> None:
    def method(self: NDArray, operand: Any, /) -> Any:
        return function(operand, self) if _is_operand(operand) else NotImplemented

    method.__name__ = f"__r{name}__"
    setattr(NDArray, method.__name__, method)


def _unary(name: str, function: Callable[[Any], Any]) -> None:
    def method(self: NDArray, /) -> Any:
        return function(self)

    method.__name__ = f"__{name}__"
    setattr(NDArray, method.__name__, method)


for _name, (_function, _sign) in _BINARY.items():
    _operator(_name, _function)
    _reflected(_name, _function)
    AUGMENTED[_sign] = _function
for _name, _compare in _COMPARISONS.items():
    _operator(_name, _compare)
for _name, _alone in _UNARY.items():
    _unary(_name, _alone)


for _name, _special in {"__getitem__": getitem, "__setitem__": assign_item, "__hash__": object.__hash__}.items():
    setattr(NDArray, _name, _special)


# ------------------------------------------------------------------------------------------------------- methods of tensors
def _returning_array(name: str) -> None:
    """Have a method of tensors return an array."""
    inherited = getattr(Tensor, name)

    @wraps(inherited)
    def method(self: NDArray, *args: Any, **kwargs: Any) -> Any:
        result = inherited(self, *args, **kwargs)
        if isinstance(result, (tuple, list)):
            return type(result)(_as_array(self, item) for item in result)
        return _as_array(self, result)

    setattr(NDArray, name, method)


def _as_array(like: NDArray, result: Any) -> Any:
    return of_class_of(like, result) if result.__class__ is Tensor else result


for _name in (*UNARY, *ATTACHED, "astype", "reshape", "squeeze", "transpose", "unsqueeze"):
    _returning_array(_name)


def _reduction(name: str, function: Callable[..., Any]) -> None:
    """Have a reduction of all elements give the shape ``()``."""

    @wraps(getattr(Tensor, name))
    def method(self: NDArray, axis: Any = None, keepdim: bool = False) -> Any:
        return function(self, axis=tuple(axis) if isinstance(axis, list) else axis, keepdims=keepdim)

    setattr(NDArray, name, respelled(method))


for _name in ("max", "mean", "min", "prod", "sum"):
    _reduction(_name, getattr(statistics, _name))
