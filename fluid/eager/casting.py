"""Mixed precision of ops on tensors: inputs are cast to the precision of the op."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ..opdef import registry
from ..training.precision import ANY_PRECISION, FLOAT32_SLOTS, AutoMixedPrecisionLists
from ..values.types import VarType
from .dispatch import TensorOp, op_on
from .mode import intercepting, state
from .program import Parameter
from .tensor import Tensor

_ALL_FLOAT32: frozenset[str] = frozenset()


class Caster:
    """Casts the inputs of each op of a thread, by lists of ops, while it intercepts them.

    The cast of a parameter is cached until the parameter changes.

    Args:
        lists: which ops are computed in half precision.
        half: `VarType.FP16` or `VarType.BF16`.
        around: the next interceptor of ops.
    """

    def __init__(self, lists: AutoMixedPrecisionLists, half: VarType, around: Any) -> None:
        self._lists, self._half, self.around = lists, half, around
        self._casts = {half: _cast(VarType.FP32, half), VarType.FP32: _cast(half, VarType.FP32)}
        self._cached_casts: dict[tuple[int, bool], tuple[Tensor, int, Tensor]] = {}

    def for_repeat(self, around: Any) -> Caster:
        """A caster for a repeated call, with its own casts, since the gradients of the call flow back to the parameters."""
        return Caster(self._lists, self._half, around)

    def call(self, op: Callable[..., Any], tensors: Sequence[Tensor]) -> Any:
        """Cast the tensors to the op's precision and run it."""
        with intercepting(self.around):
            if isinstance(op, TensorOp) and op.definition.type not in ANY_PRECISION:
                tensors = self._cast_inputs(op, tensors)
            return op(*tensors)

    def _cast_inputs(self, op: TensorOp, tensors: Sequence[Tensor]) -> Sequence[Tensor]:
        op_type = op.definition.type
        is_half = op_type in self._lists.white_list
        stays = FLOAT32_SLOTS.get(op_type, _ALL_FLOAT32)
        positions = op.positions()
        if op_type in self._lists.gray_list:
            dtypes = [
                tensor.dtype
                for (slot, _), tensor in zip(positions, tensors, strict=True)
                if slot not in stays and not isinstance(tensor, Parameter)
            ]
            is_half = self._half in dtypes and VarType.FP32 not in dtypes
        pairs = zip(positions, tensors, strict=True)
        return [
            self._cast_to(tensor, self._half if is_half and slot not in stays else VarType.FP32) for (slot, _), tensor in pairs
        ]

    def _cast_to(self, tensor: Tensor, dtype: VarType) -> Tensor:
        """Cast a tensor between float32 and half precision; tensors of other types stay."""
        if tensor.dtype is dtype or tensor.dtype not in self._casts or tensor.type is not VarType.LOD_TENSOR:
            return tensor
        cast = self._casts[dtype]
        if not isinstance(tensor, Parameter):
            return cast(tensor)  # type: ignore[no-any-return]
        key = id(tensor), state.recording
        entry = self._cached_casts.get(key)
        if entry is None or entry[1] != tensor._version[0]:
            entry = self._cached_casts[key] = tensor, tensor._version[0], cast(tensor)
        return entry[2]


def _cast(source: VarType, dtype: VarType) -> TensorOp:
    """The op that casts from one element type to another."""
    return op_on(registry.get("cast"), {"in_dtype": int(source), "out_dtype": int(dtype)}, (("X", None),))
