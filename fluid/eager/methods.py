"""Ops of one tensor as its methods: ``x.tanh()``, and ``x.tanh_()`` in place."""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

from .. import layers
from ..errors import FluidTypeError
from ..executor.binding.array_types import CPU
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


# ------------------------------------------------------------------------------- methods that numpy's and torch's users type
def _attach(function: Callable[..., Any]) -> None:
    """Add a function of a tensor as its method; `_UNARY` names and methods of the class are not replaced."""
    assert not hasattr(Tensor, function.__name__), function.__name__
    setattr(Tensor, function.__name__, function)


@_attach
def argmax(self: Tensor, axis: int | None = None) -> Tensor:
    """The int64 indices of the greatest elements along an axis; by default of all elements, one index ``[1]``."""
    return layers.argmax(self.reshape(-1) if axis is None else self, axis=0 if axis is None else axis)


@_attach
def argmin(self: Tensor, axis: int | None = None) -> Tensor:
    """The int64 indices of the least elements along an axis; by default of all elements, one index ``[1]``."""
    return layers.argmin(self.reshape(-1) if axis is None else self, axis=0 if axis is None else axis)


@_attach
def var(self: Tensor, axis: Any = None, keepdim: bool = False, unbiased: bool = True) -> Tensor:
    """The variance over one dimension, over several, or over all.

    Args:
        axis: the dimensions.
        keepdim: keep them, with size 1.
        unbiased: divide by the number of elements less one, as torch does; numpy divides by the number.
    """
    axes = range(self.ndim) if axis is None else axis if isinstance(axis, (list, tuple)) else (axis,)
    count = prod(self._kind.shape[place] for place in axes)
    distance = self - self.mean(axis, keepdim=True) if axis is not None else self - self.mean()
    return (distance * distance).sum(axis, keepdim) / float(max(count - 1, 0) if unbiased else count)  # type: ignore[no-any-return]


@_attach
def std(self: Tensor, axis: Any = None, keepdim: bool = False, unbiased: bool = True) -> Tensor:
    """The standard deviation: the root of `var`.

    Args:
        axis, keepdim, unbiased: as of `var`.
    """
    return self.var(axis, keepdim, unbiased).sqrt()  # type: ignore[attr-defined, no-any-return]


@_attach
def view(self: Tensor, *shape: Any) -> Tensor:
    """`reshape`: the same elements in another shape; one dimension may be -1."""
    return self.reshape(*shape)


@_attach
def permute(self: Tensor, *axes: Any) -> Tensor:
    """`transpose`: the tensor with its dimensions in another order."""
    return self.transpose(*axes)


@_attach
def flatten(self: Tensor, start_axis: int = 0, stop_axis: int = -1) -> Tensor:
    """The dimensions from `start_axis` to `stop_axis` as one; by default all."""
    start, stop = start_axis % max(self.ndim, 1), stop_axis % max(self.ndim, 1)
    shape = list(self._kind.shape)
    return self.reshape([*shape[:start], prod(shape[start : stop + 1]), *shape[stop + 1 :]])


@_attach
def expand(self: Tensor, *shape: Any) -> Tensor:
    """The tensor repeated to a shape: dimensions of size 1 get another size, -1 keeps a size, new dimensions come first."""
    sizes = list(shape[0]) if len(shape) == 1 and isinstance(shape[0], (list, tuple)) else list(shape)
    return namespace.expand_v2(self, shape=sizes)  # type: ignore[no-any-return]


@_attach
def expand_as(self: Tensor, like: Tensor) -> Tensor:
    """The tensor repeated to the shape of `like`."""
    return self.expand(*like.shape)  # type: ignore[attr-defined, no-any-return]


@_attach
def clip(self: Tensor, min: float | None = None, max: float | None = None) -> Tensor:
    """The elements, limited to `min` and `max`; None is no limit."""
    if min is not None and max is not None and self._kind.numpy_dtype.kind == "f":
        return namespace.clip(self, min=float(min), max=float(max))  # type: ignore[no-any-return]
    limited = namespace.assign(self) if max is None else namespace.elementwise_min(self, self._operand(max))
    return limited if min is None else namespace.elementwise_max(limited, self._operand(min))  # type: ignore[no-any-return]


@_attach
def clamp(self: Tensor, min: float | None = None, max: float | None = None) -> Tensor:
    """`clip`: the elements, limited to `min` and `max`."""
    return self.clip(min, max)  # type: ignore[attr-defined, no-any-return]


@_attach
def to(self: Tensor, target: Any) -> Tensor:
    """The tensor with another element type, ``x.to("float64")``, or where it is already: ``x.to("cpu")``.

    Raises:
        FluidTypeError: `target` is another device: inside ``dygraph.guard(place)``, new tensors lie there.
    """
    if isinstance(target, Tensor):
        target = target.dtype
    if isinstance(target, str) and target.partition(":")[0] in ("cpu", "cuda", "gpu"):
        if target == self.device or (target == "cpu" and self.device == CPU):
            return self
        raise FluidTypeError(
            f"to({target!r}): {self.name} is on {self.device}; inside dygraph.guard(fluid.CUDAPlace(0)), new tensors are on a GPU"
        )
    return self.astype(target)  # type: ignore[no-any-return]


@_attach
def dim(self: Tensor) -> int:
    """The number of dimensions, as `ndim`."""
    return self.ndim


@_attach
def numel(self: Tensor) -> int:
    """The number of elements, as `size`."""
    return self.size


def _as_type(name: str, dtype: str) -> None:
    def method(self: Tensor) -> Tensor:
        return self.astype(dtype)  # type: ignore[no-any-return]

    method.__name__, method.__doc__ = name, f"The tensor as {dtype}."
    _attach(method)


for _name, _dtype in {
    "float": "float32",
    "double": "float64",
    "half": "float16",
    "int": "int32",
    "long": "int64",
    "bool": "bool",
}.items():
    _as_type(_name, _dtype)


@_attach
def cumsum(self: Tensor, axis: int = -1) -> Tensor:
    """The sums of the elements up to each along an axis."""
    return layers.cumsum(self, axis=axis)


@_attach
def argsort(self: Tensor, axis: int = -1) -> Tensor:
    """The int64 indices that sort the elements along an axis."""
    return layers.argsort(self, axis=axis)[1]


@_attach
def topk(self: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """The `k` greatest elements along the last dimension, the greatest first, and their int64 indices."""
    return layers.topk(self, k)


@_attach
def any(self: Tensor, axis: Any = None, keepdim: bool = False) -> Tensor:
    """Whether one of the bools is True, over one dimension `axis`, over several, or over all; `keepdim` keeps them."""
    return layers.reduce_any(self, dim=axis, keep_dim=keepdim)


@_attach
def all(self: Tensor, axis: Any = None, keepdim: bool = False) -> Tensor:
    """Whether all bools are True, over one dimension `axis`, over several, or over all; `keepdim` keeps them."""
    return layers.reduce_all(self, dim=axis, keep_dim=keepdim)


@_attach
def mm(self: Tensor, matrix: Tensor) -> Tensor:
    """The product with a `matrix`, as ``x @ matrix``."""
    return self @ matrix  # type: ignore[no-any-return]


@_attach
def cpu(self: Tensor) -> Tensor:
    """The tensor itself, if it is on the CPU; ``numpy()`` copies one from a GPU."""
    return self.to("cpu")  # type: ignore[attr-defined, no-any-return]
