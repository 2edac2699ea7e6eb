"""Reductions, positions of extrema, cumulative sums and products."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...errors import FormatError
from ...values.types import VarType, is_floating
from ..builder import Builder
from ..node import OnnxNode
from ..table import imports
from .shapes import _known_axes


def axes_of(node: OnnxNode, since_input: int) -> list[int] | None:
    """The axes that a node reduces: an attribute, or an input from opset `since_input` on; None for all."""
    axes = node.ints("axes") if node.opset < since_input else _known_axes(node, 1)
    return axes or None


def _reduction(since_input: int, compute: Any) -> Any:
    def build(b: Builder, node: OnnxNode) -> Any:
        axes = axes_of(node, since_input)
        x = node[0]
        if axes is None and node.int("noop_with_empty_axes", 0):
            return compute(b, x, [], True)
        return compute(b, x, axes, bool(node.int("keepdims", 1)))

    return build


def _plain(op: str) -> Any:
    def compute(b: Builder, x: Any, axes: list[int] | None, keep: bool) -> Any:
        return x if axes == [] else b.reduce(op, x, axes, keep)

    return compute


def _extreme(op: str) -> Any:
    def compute(b: Builder, x: Any, axes: list[int] | None, keep: bool) -> Any:
        if axes == []:
            return x
        every = range(x.ndim) if axes is None else [axis % x.ndim for axis in axes]
        if any(x.shape[axis] == 0 for axis in every):
            return _extreme_of_nothing(b, x, list(every), keep, op)
        if x.dtype is VarType.BOOL:
            return b.reduce("reduce_any" if op == "reduce_amax" else "reduce_all", x, axes, keep)
        return b.reduce(op, x, axes, keep)

    return compute


def _extreme_of_nothing(b: Builder, x: Any, axes: list[int], keep: bool, op: str) -> Any:
    shape = [1 if axis in axes else size for axis, size in enumerate(x.shape) if keep or axis not in axes]
    if is_floating(x.dtype):
        return b.f.fill_constant(shape=shape, dtype=int(x.dtype), value=float("-inf" if op == "reduce_amax" else "inf"))
    if x.dtype is VarType.BOOL:
        return b.f.fill_constant(shape=shape, dtype=int(x.dtype), value=float(op != "reduce_amax"))
    limits = np.iinfo(x.dtype.numpy)
    return b.f.fill_constant(shape=shape, dtype=int(x.dtype), str_value=str(limits.min if op == "reduce_amax" else limits.max))


def _sum_of(before: str, after: str = "") -> Any:
    """A reduction: apply `before` to the elements, sum, then apply `after`."""

    def compute(b: Builder, x: Any, axes: list[int] | None, keep: bool) -> Any:
        inner = getattr(b.f, before)(x) if before else x
        out = inner if axes == [] else b.reduce("reduce_sum", inner, axes, keep)
        if not after:
            return out
        if is_floating(out.dtype):
            return getattr(b.f, after)(out)
        return b.cast(getattr(b.f, after)(b.cast(out, VarType.FP64)), out.dtype)

    return compute


def _log_sum_exp(b: Builder, x: Any, axes: list[int] | None, keep: bool) -> Any:
    if axes == []:
        return x
    every = list(range(x.ndim)) if axes is None else axes
    if any(x.shape[axis] == 0 for axis in every):
        return b.f.log(b.reduce("reduce_sum", b.f.exp(x), axes, keep))
    reduce_all = axes is None or len({axis % x.ndim for axis in axes}) == x.ndim
    attrs: dict[str, Any] = {"axis": [0] if reduce_all else list(axes or ()), "keepdim": keep, "reduce_all": reduce_all}
    wide = x if is_floating(x.dtype) else b.cast(x, VarType.FP64)
    out = (b.scalar if reduce_all and not keep else b.f).logsumexp(wide, **attrs)
    return b.cast(out, x.dtype)


for _onnx, _compute in {
    "ReduceMean": _plain("reduce_mean"),
    "ReduceProd": _plain("reduce_prod"),
    "ReduceL1": _sum_of("abs"),
    "ReduceL2": _sum_of("square", "sqrt"),
    "ReduceSumSquare": _sum_of("square"),
    "ReduceLogSum": _sum_of("", "log"),
    "ReduceLogSumExp": _log_sum_exp,
    "ReduceMax": _extreme("reduce_amax"),
    "ReduceMin": _extreme("reduce_amin"),
}.items():
    imports(_onnx)(_reduction(18, _compute))
imports("ReduceSum")(_reduction(13, _plain("reduce_sum")))


def _position(op: str) -> Any:
    def build(b: Builder, node: OnnxNode) -> Any:
        x = node[0]
        axis = node.int("axis", 0) % max(x.ndim, 1)
        keep = bool(node.int("keepdims", 1))
        if node.int("select_last_index", 0):
            size = x.shape[axis]
            if size < 0:
                raise FormatError("select_last_index=1 is not supported along a dimension whose size is known only at run time")
            place = b.f.scale(
                getattr(b.f, op)(b.f.flip(x, axis=[axis]), axis=axis, keepdims=True), scale=-1.0, bias=float(size - 1)
            )
            return place if keep else b.squeeze(place, [axis])
        if x.ndim == 1 and not keep:
            return getattr(b.scalar, op)(x, axis=0)
        return getattr(b.f, op)(x, axis=axis, keepdims=keep)

    return build


imports("ArgMax", trains=False)(_position("arg_max"))
imports("ArgMin", trains=False)(_position("arg_min"))


@imports("CumSum")
def cumsum(b: Builder, node: OnnxNode) -> Any:
    axis = int(node.constant_input(1, "its axis").reshape(()))
    return b.f.cumsum(node[0], axis=axis, exclusive=bool(node.int("exclusive", 0)), reverse=bool(node.int("reverse", 0)))


@imports("CumProd")
def cumprod(b: Builder, node: OnnxNode) -> Any:
    x = node[0]
    axis = int(node.constant_input(1, "its axis").reshape(())) % x.ndim
    reverse = bool(node.int("reverse", 0))
    if reverse:
        x = b.f.flip(x, axis=[axis])
    if node.int("exclusive", 0):
        first = b.f.fill_any_like(b.slice(x, axis, 0, 1), value=1.0)
        x = b.f.concat([first, b.slice(x, axis, 0, -1)], axis=axis)
    out = b.f.cumprod(x, dim=axis)
    return b.f.flip(out, axis=[axis]) if reverse else out
