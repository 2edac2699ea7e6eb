"""Ops of one tensor as its methods: ``x.tanh()``, and ``x.tanh_()`` in place."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .dispatch import namespace, simple
from .one_op import one_op
from .tensor import Tensor

__all__: list[str] = []


def _method(op_type: str) -> Callable[..., Any]:
    op = simple(op_type, "X")

    def method(self: Tensor, **attrs: Any) -> Tensor:
        return getattr(namespace, op_type)(self, **attrs) if attrs else op(self)  # type: ignore[no-any-return]

    method.__name__, method.__doc__ = op_type, op.definition.doc
    return method


def _method_in_place(op_type: str) -> Callable[..., Any]:
    def method(self: Tensor, **attrs: Any) -> Tensor:
        return self._in_place(op_type, **attrs)

    method.__name__, method.__doc__ = op_type + "_", f"`{op_type}` in place."
    return method


_UNARY = (
    "abs ceil cos exp erf floor gelu leaky_relu log log1p log_softmax reciprocal relu round rsqrt sigmoid sign sin softmax "
    "softplus sqrt square tanh"
)
for _name in _UNARY.split():
    setattr(Tensor, _name, _method(_name))
    setattr(Tensor, _name + "_", _method_in_place(_name))
for _name in ["max", "mean", "min", "prod", "reshape", "squeeze", "sum", "transpose", "unsqueeze"]:
    setattr(Tensor, _name, one_op(getattr(Tensor, _name)))
