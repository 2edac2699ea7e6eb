"""Ops on half-precision floats (float16, bfloat16) on numpy and XLA: they compute in float32, and round once, when stored.

Kernels are written for float32: numpy has no bfloat16, and adds up float16 in float16 when it reduces a leading axis. So an op
with a half among its arrays is bound to exact float32 copies. Products and sums of any kind accumulate in float32, and each
result is rounded to the nearest half, ties to even. Ops that only move elements stay on halves.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np

from fluid.opdef.registry import OpDef
from fluid.values.bfloat16 import to_bfloat16, to_float32
from fluid.values.types import BFLOAT16, VarType, as_dtype

from ..runtime.calls import Call, OutArray

_HALVES = (np.dtype("float16"), BFLOAT16)
DTYPE_ATTRS = ("dtype", "in_dtype", "out_dtype", "data_type")
"""Attributes that name element types."""
_MOVE_ELEMENTS = frozenset(
    {
        "assign", "reshape", "reshape2", "squeeze", "squeeze2", "unsqueeze", "unsqueeze2", "flatten", "flatten2",
        "flatten_contiguous_range", "transpose", "transpose2", "concat", "split", "stack", "unstack", "slice",
        "strided_slice", "expand", "expand_as", "tile", "shape", "size", "gather"
    }
)  # fmt: skip
"""Ops whose kernels only copy elements or make views, independent of the element type."""


def widened_attrs(attrs: Mapping[str, Any]) -> dict[str, Any]:
    """The attributes of an op that computes in float32 in place of halves."""
    halves = [name for name in DTYPE_ATTRS if attrs.get(name) in (VarType.FP16, VarType.BF16)]
    return {**attrs, **dict.fromkeys(halves, int(VarType.FP32))}


def is_half(array: Any) -> bool:
    """Whether this is an array of float16 or bfloat16."""
    dtype = getattr(array, "dtype", None)
    return dtype is not None and dtype.itemsize == 2 and (dtype in _HALVES or dtype.name == "bfloat16")


class Widened:
    """The arrays of an op, with halves replaced by float32 copies.

    Attributes:
        inputs, outputs, attrs: arrays and attributes to bind the op to; attributes that name element types are widened, too.
        loads: calls that convert the inputs to float32.
        stores: calls that round the outputs to halves.
    """

    def __init__(
        self,
        xp: Any,
        inputs: Mapping[str, Any],
        outputs: Mapping[str, Any],
        attrs: Mapping[str, Any],
        definition: OpDef,
        allocate: Callable[..., Any],
    ) -> None:
        self._xp, self._allocate = xp, allocate
        self._wide: dict[int, tuple[Any, Any]] = {}
        self.loads: list[Call] = []
        self.stores: list[Call] = []
        self.inputs = {slot: self._apply(self._read, value) for slot, value in inputs.items()}
        updated = {slot for slot, declared in definition.outputs.items() if declared.updated}
        self.outputs = {
            slot: self._apply(self._updated if slot in updated else self._output, value) for slot, value in outputs.items()
        }
        self.attrs = widened_attrs(attrs)

    def wrap_calls(self, calls: list[Call], returns: bool) -> list[Call]:
        """The calls of the op between loads and stores; if its last call `returns` a result, the last of all calls returns it."""
        if not self.stores or not returns:
            return [*self.loads, *calls, *self.stores]
        return [*self.loads, *calls[:-1], partial(_with_stores, calls[-1], self.stores)]

    @staticmethod
    def _apply(fn: Callable[[Any], Any], value: Any) -> Any:
        if isinstance(value, list):
            return [fn(item) if is_half(item) else item for item in value]
        return fn(value) if is_half(value) else value

    def _float32_copy(self, half: Any) -> Any:
        pair = self._wide.get(id(half))
        if pair is None:
            pair = self._wide[id(half)] = half, self._allocate(half.shape, np.dtype("float32"))
        return pair[1]

    def _read(self, half: Any) -> Any:
        is_new = id(half) not in self._wide
        wide = self._float32_copy(half)
        if is_new:
            self.loads.append(self._convert(half, wide))
        return wide

    def _updated(self, half: Any) -> Any:
        self._read(half)
        return self._output(half)

    def _output(self, half: Any) -> Any:
        wide = self._float32_copy(half)
        self.stores.append(self._convert(wide, half))
        return wide

    def _convert(self, source: Any, target: Any) -> Call:
        if source.dtype == BFLOAT16:
            return partial(_widen, source.view("<u2"), target.view("<u4"))
        if target.dtype == BFLOAT16:
            return partial(_round, source, target.view("<u2"))
        return partial(self._xp.copyto, target, source, "same_kind")


def widened(
    xp: Any,
    definition: OpDef,
    inputs: Mapping[str, Any],
    outputs: Mapping[str, Any],
    attrs: Mapping[str, Any],
    allocate: Callable[..., Any],
) -> Widened | None:
    """Replace the halves among an op's arrays by float32 copies; None if there are none, or the op only moves elements."""
    if definition.type in _MOVE_ELEMENTS or not (_any_half(inputs) or _any_half(outputs)):
        return None
    return Widened(xp, inputs, outputs, attrs, definition, allocate)


def _any_half(values: Mapping[str, Any]) -> bool:
    for value in values.values():
        if type(value) is list:
            if any(map(is_half, value)):
                return True
        elif getattr(value, "itemsize", 0) == 2 and is_half(value):
            return True
    return False


def added(left: Any, right: Any, out: Any = None) -> Any:
    """Add two numpy arrays of the same element type, possibly bfloat16, into `out` or a new array."""
    if left.dtype != BFLOAT16:
        return np.add(left, right, out)
    total = to_bfloat16(to_float32(left) + to_float32(right))
    if out is None:
        return total
    out[...] = total
    return out


def _with_stores(call: Call, stores: list[Call]) -> Any:
    result = call()
    for store in stores:
        store()
    return result


def _widen(bits: Any, wide: OutArray) -> None:
    np.left_shift(bits, np.uint32(16), out=wide, dtype=np.uint32)


def _round(source: Any, bits: OutArray) -> None:
    np.copyto(bits, to_bfloat16(source).view("<u2"))


def in_dtype_of(array: Any, dtype: VarType) -> Any:
    """Round a kernel's result to this element type, if it is half precision and the kernel computed in float32."""
    if dtype not in (VarType.FP16, VarType.BF16) or as_dtype(array.dtype) is dtype:
        return array
    return to_bfloat16(array) if dtype is VarType.BF16 else array.astype(np.float16)
