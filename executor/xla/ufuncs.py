"""numpy's universal functions on traced arrays: numpy resolves the types, and computes results of known values."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache, lru_cache
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from jax import Array as JaxArray
from jax import lax
from jax import numpy as jnp

from ..runtime.products import BLOCK_DEPTH
from .arrays import FUNCTIONS, SMALL, Array, cast, elements_of, empty, is_known, mask_of, value_of, wrap
from .rows import add_to_rows
from .views import spread

_NUMBERS: dict[str, Callable[..., Any]] = {
    "absolute": lax.abs,
    "add": lax.add,
    "equal": lax.eq,
    "greater": lax.gt,
    "greater_equal": lax.ge,
    "less": lax.lt,
    "less_equal": lax.le,
    "maximum": lax.max,
    "minimum": lax.min,
    "multiply": lax.mul,
    "negative": lax.neg,
    "not_equal": lax.ne,
    "sign": lax.sign,
    "square": lax.square,
    "subtract": lax.sub,
}
"""XLA's operations on floats and integers; functions of jax.numpy cost several times as much to trace."""
_FLOATS: dict[str, Callable[..., Any]] = {
    "arctan2": lax.atan2,
    "cbrt": lax.cbrt,
    "ceil": lax.ceil,
    "cos": lax.cos,
    "divide": lax.div,
    "exp": lax.exp,
    "expm1": lax.expm1,
    "floor": lax.floor,
    "isfinite": lax.is_finite,
    "log": lax.log,
    "log1p": lax.log1p,
    "power": lax.pow,
    "rint": lambda x: lax.round(x, lax.RoundingMethod.TO_NEAREST_EVEN),
    "sin": lax.sin,
    "sqrt": lax.sqrt,
    "tan": lax.tan,
    "tanh": lax.tanh,
}
_BOOLS: dict[str, Callable[..., Any]] = {
    **dict.fromkeys(("logical_and", "bitwise_and", "multiply", "minimum"), lax.bitwise_and),
    **dict.fromkeys(("logical_or", "bitwise_or", "add", "maximum"), lax.bitwise_or),
    **dict.fromkeys(("logical_not", "invert"), lax.bitwise_not),
    **dict.fromkeys(("logical_xor", "bitwise_xor", "not_equal"), lax.bitwise_xor),
}
_UNSIGNED = {**_NUMBERS, "absolute": lambda x: x}  # lax.abs refuses what has no sign
_BY_KIND = {"f": {**_NUMBERS, **_FLOATS}, "i": _NUMBERS, "u": _UNSIGNED, "b": _BOOLS}


class _Resolved(NamedTuple):
    """A ufunc resolved for operands of certain types and shapes.

    Attributes:
        types: the types of its operands and results.
        shape: the shape of the result.
        has_full: whether an operand has the shape of the result; single numbers then stay scalars.
    """

    types: tuple[Any, ...]
    shape: tuple[int, ...]
    has_full: bool


@lru_cache(maxsize=4096)
def _resolved(function: Any, dtype: Any, *operands: tuple[Any, tuple[int, ...]]) -> _Resolved:
    """Resolve a ufunc of numpy for operands, each described by type and shape; `dtype` overrides the resolved types."""
    shapes = [shape for _, shape in operands]
    shape = np.broadcast_shapes(*shapes)
    types = function.resolve_dtypes((*(kind for kind, _ in operands), *(None,) * function.nout))
    return _Resolved(types if dtype is None else (np.dtype(dtype),) * len(types), shape, shape in shapes)


def _form(value: Any) -> tuple[Any, tuple[int, ...]]:
    """The type of an operand (a Python type for Python numbers) and its shape."""
    kind = type(value)
    if kind is Array:
        return value.shadow.dtype, value.shadow.shape
    if kind is float or kind is int or kind is complex:
        return kind, ()
    if hasattr(value, "dtype"):
        return np.dtype(value.dtype), value.shape
    value = np.asarray(value)
    return value.dtype, value.shape


def _operand(value: Any, kind: Any, resolved: _Resolved) -> Any:
    """Cast an operand, and broadcast it to the shape of the result unless a scalar suffices."""
    shape = resolved.shape
    if isinstance(value, Array):
        if value.shadow.shape == shape:
            return cast(value.read(), kind)
        is_number = value.size == 1 and resolved.has_full
        if value.dtype == kind:
            return value.read_number() if is_number else value.read_as(shape)
        value = cast(value.read_number() if is_number else value.read(), kind)
    else:
        value = cast(value if isinstance(value, JaxArray) else np.asarray(value), kind)
    return value if not value.shape and resolved.has_full else spread(value, shape)


def stored(value: Any, out: Array | None) -> Any:
    """Store a result in `out`, or wrap it if there is no `out`."""
    if out is None:
        return wrap(value)
    if isinstance(value, JaxArray) and value.shape == out.shape and value.dtype == out.dtype:
        out.put(value)
    else:
        FUNCTIONS["copyto"](out, value, "unsafe")
    return out


def sum_type(kind: Any, dtype: Any) -> Any:
    """The type that numpy uses to add up elements of type `kind`."""
    if dtype is not None:
        return np.dtype(dtype)
    return np.dtype({"b": np.int64, "i": np.int64, "u": np.uint64}.get(kind.kind, kind))


def _axes(axis: Any, ndim: int) -> tuple[int, ...]:
    if axis is None:
        return tuple(range(ndim))
    return tuple(int(number) % max(ndim, 1) for number in (axis if isinstance(axis, (tuple, list)) else (axis,)))


def _shared_axes(args: Sequence[Any], shape: tuple[int, ...], out: Any) -> tuple[int, ...] | None:
    """The axis order for a result: copied from an operand of the same shape; None for the standard order."""
    if len(shape) < 3 or (out is not None and (out.views or out.shape != shape)):
        return None
    return next((arg.axes for arg in args if type(arg) is Array and arg.axes is not None and arg.shape == shape), None)


def _permuted(arg: Any, shape: tuple[int, ...], axes: tuple[int, ...]) -> Any:
    """Broadcast an operand to the shape of the result and reorder its axes; single numbers become scalars."""
    if np.size(arg) == 1:
        return arg.reshape(()) if isinstance(arg, Array) else arg
    arg = wrap(arg)
    return (arg if arg.shape == shape else arg.spread(shape)).transpose(axes)


_COMPARISONS = ("equal", "not_equal", "less", "less_equal", "greater", "greater_equal")


def _comparable(args: Sequence[Any]) -> Sequence[Any]:
    """Make numbers int64 that the integers beside them have no room for: XLA would wrap them."""
    kinds = [np.iinfo(arg.dtype) for arg in args if isinstance(arg, Array) and arg.dtype.kind in "iu"]
    return [np.int64(arg) if type(arg) is int and any(not kind.min <= arg <= kind.max for kind in kinds) else arg for arg in args]


class Ufunc:
    """One of numpy's universal functions."""

    def __init__(self, name: str) -> None:
        self.__name__ = name
        self._numpy = getattr(np, name)
        self._jax = getattr(jnp, self._numpy.__name__, None)
        self.nin, self.nout = self._numpy.nin, self._numpy.nout

    def __call__(self, *args: Any, out: Any = None, where: Any = True, casting: str = "same_kind", dtype: Any = None) -> Any:
        if len(args) > self.nin:
            out, args = args[self.nin], args[: self.nin]
        if isinstance(out, tuple) and len(out) == 1:
            out = out[0]
        if self.__name__ in _COMPARISONS:
            args = tuple(_comparable(args))
        if where is True and is_known(args) and self.nout == 1:
            shape = np.broadcast_shapes(*(getattr(arg, "shape", ()) for arg in args))
            if np.prod(shape, dtype=int) <= SMALL:
                return stored(self._numpy(*map(elements_of, args), dtype=dtype), out)
        resolved = _resolved(self._numpy, dtype, *map(_form, args))
        axes = _shared_axes(args, resolved.shape, out) if where is True and self.nout == 1 else None
        if axes is not None:  # compute in the operands' memory order; the result has it too
            turned = [_permuted(arg, resolved.shape, axes) for arg in args]
            result = empty(resolved.shape, resolved.types[-1]) if out is None else out
            self(*turned, out=result.transpose(axes), dtype=dtype)
            return result
        types = resolved.types
        function = self._function(types[0].kind)
        result = function(*[_operand(arg, kind, resolved) for arg, kind in zip(args, types, strict=False)])
        if self.nout > 1:
            return tuple(stored(cast(value, kind), None) for value, kind in zip(result, types[self.nin :], strict=True))
        result = cast(result, types[-1])
        if where is not True:
            mask = spread(value_of(where), out.shape)
            result = lax.select(mask, spread(cast(result, out.dtype), out.shape), out.read())
        return stored(result, out)

    def _function(self, kind: str) -> Callable[..., Any]:
        name = self._numpy.__name__  # true_divide is divide
        function = _BY_KIND.get(kind, {}).get(name) or self._jax
        if function is None:
            raise TypeError(f"numpy.{name} has no counterpart in jax")
        return function

    # -- methods
    def reduce(
        self,
        array: Any,
        axis: Any = 0,
        dtype: Any = None,
        out: Any = None,
        keepdims: bool = False,
        initial: Any = None,
        where: Any = None,
    ) -> Any:
        if is_known(array) and (out is None or out.buffer.value is None) and array.size <= SMALL:
            return stored(self._numpy.reduce(elements_of(array), axis, dtype, None, keepdims), out)
        value = value_of(array)
        axes = _axes(axis, value.ndim)
        element_type, name = value.dtype, self._numpy.__name__
        if name in ("add", "multiply"):
            kind = out.dtype if dtype is None and out is not None and element_type.kind != "b" else sum_type(element_type, dtype)
            value = cast(value, np.dtype(np.float32) if kind == np.float16 else kind)
        else:
            kind = np.dtype(bool) if name.startswith("logical") else element_type
            value = cast(value, kind)
        result = cast(_REDUCTIONS[name](value, axes), kind)
        if keepdims:
            result = lax.reshape(result, [1 if axis in axes else size for axis, size in enumerate(value.shape)])
        return stored(result, out)

    def accumulate(self, array: Any, axis: int = 0, dtype: Any = None, out: Any = None) -> Any:
        if is_known(array):
            return stored(self._numpy.accumulate(elements_of(array), axis, dtype), out)
        value = value_of(array)
        if self._numpy.__name__ in ("add", "multiply"):
            value = cast(value, sum_type(value.dtype, dtype))
        return stored(_ACCUMULATIONS[self._numpy.__name__](value, axis % value.ndim), out)

    def at(self, array: Array, indices: Any, values: Any = None) -> None:
        """Like numpy's `ufunc.at`: repeated indices apply repeatedly."""
        if is_known([array, values]) and _all_known(indices):
            self._numpy.at(array.numpy(), _index(indices, elements_of), elements_of(values))
            return
        elements, values = jnp.asarray(array.read()), cast(value_of(values), array.dtype)
        mask = mask_of(indices if isinstance(indices, tuple) else (indices,), values, array.shape)
        if mask is not None:
            array.write(jnp.where(mask, value_of(self(wrap(elements), wrap(values.reshape(())))), elements))
            return
        name = {"subtract": "add", "maximum": "max", "minimum": "min"}.get(self.__name__, self.__name__)
        if self.__name__ == "subtract":
            values = -values
        if name == "add" and isinstance(indices, Array) and values.shape == (*indices.shape, *array.shape[1:]):
            array.write(add_to_rows(elements, jnp.asarray(indices.read()), jnp.asarray(values)))
        else:
            array.write(getattr(elements.at[_index(indices, value_of)], name)(values))

    def outer(self, left: Any, right: Any, out: Any = None) -> Any:
        left, right = wrap(left), wrap(right)
        return self(left.reshape(*left.shape, *(1,) * right.ndim), right, out=out)

    def reduceat(self, array: Any, indices: Any, axis: int = 0, dtype: Any = None, out: Any = None) -> Any:
        """Reduce between known bounds, such as offsets of sequences."""
        bounds = [*map(int, elements_of(indices)), array.shape[axis]]
        parts = []
        for start, end in pairwise(bounds):
            part = array[(slice(None),) * axis + (slice(start, max(end, start + 1)),)]
            parts.append(self.reduce(part, axis, dtype, None, True))
        return stored(FUNCTIONS["concatenate"](parts, axis), out)


def _index(index: Any, convert: Callable[[Any], Any]) -> Any:
    """Convert the arrays of an index; slices and numbers stay."""
    if isinstance(index, tuple):
        return tuple(_index(part, convert) for part in index)
    return convert(index) if isinstance(index, (Array, list)) else index


def _all_known(index: Any) -> bool:
    return all(map(is_known, index)) if isinstance(index, tuple) else is_known(index)


def _sum(value: Any, axes: Sequence[int]) -> Any:
    """Sum along axes. On CPUs, XLA adds the terms of a long axis to a few sums, one by one, so blocks of it are summed first."""
    axis = max(axes, key=value.shape.__getitem__, default=0)
    if not axes or value.dtype.kind != "f" or value.shape[axis] <= _LONG_AXIS:
        return lax.reduce_sum(value, axes)
    count, remaining = divmod(value.shape[axis], BLOCK_DEPTH)
    end = count * BLOCK_DEPTH
    blocks = lax.slice_in_dim(value, 0, end, axis=axis)
    blocks = lax.reshape(blocks, (*value.shape[:axis], count, BLOCK_DEPTH, *value.shape[axis + 1 :]))
    sums = lax.optimization_barrier(lax.reduce_sum(blocks, (axis + 1,)))  # XLA would make one sum of both
    total = lax.reduce_sum(sums, axes)
    return total + lax.reduce_sum(lax.slice_in_dim(value, end, end + remaining, axis=axis), axes) if remaining else total


def _extreme(of_numbers: Callable[..., Any]) -> Callable[..., Any]:
    """Make a reduction to maxima or minima keep NaNs: on CPUs, XLA's own loses them in vectors."""

    def reduce(value: Any, axes: Sequence[int]) -> Any:
        result = of_numbers(value, axes)
        if not jnp.issubdtype(value.dtype, jnp.floating):
            return result
        return lax.select(lax.reduce_or(lax.ne(value, value), axes), lax.full_like(result, np.nan), result)

    return reduce


_LONG_AXIS = 16 * BLOCK_DEPTH
"""The longest axis that XLA sums as it likes."""

_REDUCTIONS: dict[str, Callable[..., Any]] = {
    "add": _sum,
    "multiply": lax.reduce_prod,
    "maximum": _extreme(lax.reduce_max),
    "minimum": _extreme(lax.reduce_min),
    "fmax": lax.reduce_max,
    "logical_and": lax.reduce_and,
    "logical_or": lax.reduce_or,
}
_ACCUMULATIONS: dict[str, Callable[..., Any]] = {
    "add": lax.cumsum,
    "multiply": lax.cumprod,
    "maximum": lax.cummax,
    "minimum": lax.cummin,
}


@cache
def ufunc(name: str) -> Ufunc:
    """numpy's universal function of this name."""
    return Ufunc(name)


FUNCTIONS.update((name, ufunc(name)) for name in dir(np) if isinstance(getattr(np, name), np.ufunc))
