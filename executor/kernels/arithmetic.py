"""Kernels of `fluid.ops.arithmetic`."""

from __future__ import annotations

from functools import partial
from typing import Any

from fluid.opdef import registry

from .table import Call, Slots, kernel, prepared

_UFUNCS = {
    **{name: name for name in ("bitwise_and", "bitwise_or", "bitwise_xor", "nextafter", "signbit", "trunc")},
    **{f"elementwise_{name}": name for name in ("fmax", "fmin", "heaviside")},
    "atan2": "arctan2",
    "bitwise_left_shift": "left_shift",
    "bitwise_not": "invert",
    "bitwise_right_shift": "right_shift",
}
"""Op type -> the function of numpy that computes it."""


def _ufunc(op_type: str, name: str) -> None:
    slots = tuple(registry.get(op_type).inputs)

    @prepared(op_type)
    def bind(xp: Any, inputs: Slots, outputs: Slots) -> Call:
        return partial(getattr(xp, name), *(inputs[slot] for slot in slots), *outputs.values())


for _op, _name in _UFUNCS.items():
    _ufunc(_op, _name)


@kernel("equal_all")
def equal_all(xp: Any, X: Any, Y: Any, Out: Any) -> None:
    Out[...] = X.shape == Y.shape and (X == Y).all()


@kernel("partial_concat")
def partial_concat(xp: Any, X: list[Any], start_index: int, length: int, Out: Any) -> None:
    start = start_index % X[0].shape[1] if X[0].shape[1] else 0
    xp.copyto(Out, xp.concatenate([array[:, start : start + length if length >= 0 else None] for array in X], 1))
