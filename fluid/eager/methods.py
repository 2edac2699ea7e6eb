"""Ops of one tensor as its methods: ``x.tanh()``, and ``x.tanh_()`` in place."""

from __future__ import annotations

import functools
from collections.abc import Callable
from math import prod
from typing import Any

from .. import layers
from ..errors import FluidTypeError
from ..executor.binding.array_types import CPU
from ..ops.formulas import root
from .dispatch import namespace, simple
from .one_op import one_op
from .tensor import Tensor


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


UNARY = (
    *("abs", "ceil", "cos", "erf", "exp", "floor", "gelu", "leaky_relu", "log", "log1p", "log_softmax", "reciprocal", "relu"),
    *("round", "rsqrt", "sigmoid", "sign", "sin", "softmax", "softplus", "sqrt", "square", "tanh"),
)
"""Ops of one tensor that are methods."""
for _name in UNARY:
    setattr(Tensor, _name, _method(_name))
    setattr(Tensor, _name + "_", _method_in_place(_name))
_SPELLINGS = {"dim": "axis", "keepdims": "keepdim", "start_dim": "start_axis", "end_dim": "stop_axis"}
"""Names of arguments in torch and numpy -> the names here."""


def respelled(method: Callable[..., Any]) -> Callable[..., Any]:
    """A method that also takes its arguments by the names of torch and numpy."""

    @functools.wraps(method)
    def call(*args: Any, **kwargs: Any) -> Any:
        return method(*args, **{_SPELLINGS.get(name, name): value for name, value in kwargs.items()})

    return call


for _name in ["max", "mean", "min", "prod", "sum"]:
    setattr(Tensor, _name, one_op(respelled(getattr(Tensor, _name))))
for _name in ["reshape", "squeeze", "transpose", "unsqueeze"]:
    setattr(Tensor, _name, one_op(getattr(Tensor, _name)))


# ------------------------------------------------------------------------------- methods that numpy's and torch's users type
ATTACHED: list[str] = []
"""The names of these methods."""


def _attach(function: Callable[..., Any], name: str | None = None) -> None:
    """Add a function of a tensor as its method; `UNARY` names and methods of the class are not replaced."""
    name = name or function.__name__
    assert not hasattr(Tensor, name), name
    setattr(Tensor, name, respelled(function))
    ATTACHED.append(name)


def _attach_operator(name: str, sign: str) -> None:
    def method(self: Tensor, operand: Any) -> Tensor:
        return getattr(self, sign)(operand)  # type: ignore[no-any-return]

    method.__doc__ = f"The operator ``{sign}`` with an `operand`."
    _attach(method, name)


for _name, _sign in {
    "add": "__add__",
    "sub": "__sub__",
    "mul": "__mul__",
    "div": "__truediv__",
    "pow": "__pow__",
    "eq": "__eq__",
    "ne": "__ne__",
    "lt": "__lt__",
    "le": "__le__",
    "gt": "__gt__",
    "ge": "__ge__",
    "mm": "__matmul__",
    "bmm": "__matmul__",
    "dot": "__matmul__",
}.items():
    _attach_operator(_name, _sign)


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
    """The standard deviation: the root of `var`. Where it is 0, so is its gradient.

    Args:
        axis, keepdim, unbiased: as of `var`.
    """
    return root(namespace, self.var(axis, keepdim, unbiased))  # type: ignore[attr-defined, no-any-return]


@_attach
def view(self: Tensor, *shape: Any) -> Tensor:
    """`reshape`: the same elements in another shape; one dimension may be -1."""
    return self.reshape(*shape)


@_attach
def permute(self: Tensor, *axes: Any) -> Tensor:
    """`transpose`: the tensor with its dimensions in another order."""
    return self.transpose(*axes)


@_attach
def t(self: Tensor) -> Tensor:
    """`transpose`: the tensor with its dimensions in reverse order."""
    return self.transpose()


@_attach
def swapaxes(self: Tensor, first: int, second: int) -> Tensor:
    """The tensor with the dimensions `first` and `second` exchanged."""
    order = list(range(self.ndim))
    order[first], order[second] = order[second], order[first]
    return self.transpose(order)


@_attach
def ravel(self: Tensor) -> Tensor:
    """All elements in one dimension."""
    return self.reshape(-1)


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
def cpu(self: Tensor) -> Tensor:
    """The tensor itself, if it is on the CPU; ``numpy()`` copies one from a GPU."""
    return self.to("cpu")  # type: ignore[attr-defined, no-any-return]


@_attach
def type_as(self: Tensor, like: Tensor) -> Tensor:
    """The tensor with the element type of `like`."""
    return self.astype(like.dtype)  # type: ignore[no-any-return]


@_attach
def contiguous(self: Tensor) -> Tensor:
    """The tensor itself: every tensor is."""
    return self


@_attach
def copy(self: Tensor) -> Tensor:
    """`clone`: the same elements in memory of its own."""
    return self.clone()


@_attach
def tile(self: Tensor, *times: Any) -> Tensor:
    """The tensor repeated so many `times` along each dimension; torch's ``repeat``."""
    counts = list(times[0]) if len(times) == 1 and isinstance(times[0], (list, tuple)) else list(times)
    return namespace.tile(self, repeat_times=counts)  # type: ignore[no-any-return]


@_attach
def flip(self: Tensor, *axes: Any) -> Tensor:
    """The elements in reverse order along some dimensions, `axes`."""
    return namespace.flip(self, axis=list(axes[0]) if isinstance(axes[0], (list, tuple)) else list(axes))  # type: ignore[no-any-return]


@_attach
def chunk(self: Tensor, chunks: int, axis: int = 0) -> list[Tensor]:
    """The tensor in `chunks` parts along `axis`; the last one may be shorter."""
    size = self._kind.shape[axis]
    step = max(-(-size // chunks), 1)
    return layers.split(self, [min(step, size - start) for start in range(0, max(size, 1), step)], dim=axis)


@_attach
def unbind(self: Tensor, axis: int = 0) -> list[Tensor]:
    """The slices along `axis`."""
    return namespace.unbind(self, axis=axis)  # type: ignore[no-any-return]


@_attach
def index_select(self: Tensor, axis: int, index: Tensor) -> Tensor:
    """The slices along `axis` at the positions in the vector `index`."""
    return namespace.index_select(self, index, dim=axis)  # type: ignore[no-any-return]


@_attach
def masked_select(self: Tensor, mask: Tensor) -> Tensor:
    """The elements where `mask` is True, in one dimension."""
    return namespace.masked_select(self, mask)  # type: ignore[no-any-return]


@_attach
def masked_fill(self: Tensor, mask: Tensor, value: float) -> Tensor:
    """The elements, with `value` where `mask` is True; the mask broadcasts."""
    chosen = mask.expand(*self._kind.shape)  # type: ignore[attr-defined]
    return namespace.where(chosen, namespace.fill_any_like(self, value=float(value), dtype=-1), self)  # type: ignore[no-any-return]


@_attach
def where(self: Tensor, condition: Tensor, y: Any) -> Tensor:
    """The elements where `condition` is True, elements of `y` elsewhere."""
    return layers.where(condition, self, self._operand(y))


@_attach
def sort(self: Tensor, axis: int = -1, descending: bool = False) -> tuple[Tensor, Tensor]:
    """The elements sorted along `axis`, upwards or `descending`, and their int64 indices."""
    return layers.argsort(self, axis=axis, descending=descending)


@_attach
def norm(self: Tensor, p: float = 2.0, axis: int | None = None, keepdim: bool = False) -> Tensor:
    """The norm ``sum(|x|^p)^(1/p)``, over one dimension or over all.

    Args:
        p: the power.
        axis: the dimension.
        keepdim: keep it, with size 1.
    """
    place: dict[str, Any] = {"asvector": True} if axis is None else {"axis": axis}
    return namespace.p_norm(self, porder=float(p), keepdim=keepdim, **place)  # type: ignore[no-any-return]


@_attach
def isnan(self: Tensor) -> Tensor:
    """Which elements are NaN."""
    return namespace.isnan_v2(self)  # type: ignore[no-any-return]


@_attach
def isinf(self: Tensor) -> Tensor:
    """Which elements are infinite."""
    return namespace.isinf_v2(self)  # type: ignore[no-any-return]


@_attach
def isfinite(self: Tensor) -> Tensor:
    """Which elements are neither infinite nor NaN."""
    return namespace.isfinite_v2(self)  # type: ignore[no-any-return]


@_attach
def tril(self: Tensor, diagonal: int = 0) -> Tensor:
    """The lower triangles of matrices, with zeros above a `diagonal`."""
    return layers.tril(self, diagonal)


@_attach
def triu(self: Tensor, diagonal: int = 0) -> Tensor:
    """The upper triangles of matrices, with zeros below a `diagonal`."""
    return layers.triu(self, diagonal)


def _along(op_type: str) -> None:
    """Let an op of one tensor take its axis by position, too."""
    op = getattr(Tensor, op_type)

    def method(self: Tensor, axis: int = -1) -> Tensor:
        return op(self, axis=axis)  # type: ignore[no-any-return]

    method.__name__, method.__doc__ = op_type, op.__doc__
    setattr(Tensor, op_type, respelled(method))


for _name in ("softmax", "log_softmax"):
    _along(_name)
