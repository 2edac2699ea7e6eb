"""The array namespace of traced arrays: numpy's functions under the names that kernels call."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from functools import partial
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
from jax import lax
from jax import numpy as jnp

from ..binding.halves import is_half
from ..runtime.products import BLOCK_DEPTH
from .arrays import (
    FUNCTIONS,
    SMALL,
    Array,
    ValueAsked,
    cast,
    elements_of,
    empty,
    is_known,
    is_traced_mask,
    mask_of,
    operands,
    value_of,
    wrap,
)
from .random import Generator, key_of_seed
from .rows import add_to_rows, rows_at
from .ufuncs import stored, ufunc
from .views import spread


def _function(fn: Callable[..., Any]) -> Callable[..., Any]:
    """Register a function in the namespace, without the trailing underscore that avoids Python's builtin names."""
    FUNCTIONS[fn.__name__.rstrip("_")] = fn
    return fn


# ------------------------------------------------------------------------------------------------------------ elements
@_function
def copyto(dst: Array, src: Any, casting: str = "same_kind", where: Any = True) -> None:
    if where is not True:
        if is_known([dst, src, where]):
            np.copyto(dst.shadow, elements_of(src), "unsafe", elements_of(where))
            return
        value = spread(cast(value_of(src), dst.dtype), dst.shape)
        dst.write(lax.select(spread(value_of(where), dst.shape), value, jnp.asarray(dst.read())))
        return
    if is_known(src):
        elements = np.asarray(elements_of(src))
        if not elements.ndim or elements.size == 1:
            dst.fill(elements.reshape(()))
            return
        if dst.buffer.value is not None or dst.size > max(SMALL, elements.size):
            elements = spread(elements.astype(dst.dtype), dst.shape)
        dst.write(elements)
        return
    if isinstance(src, Array) and src.axes is not None and src.shape == dst.shape and not dst.views:
        dst, src = dst.transpose(src.axes), src.transpose(src.axes)  # keep the memory order of the source
    value = value_of(src)
    if value.ndim > dst.ndim:  # as numpy does for leading axes of size 1
        value = lax.reshape(value, value.shape[value.ndim - dst.ndim :])
    dst.write(value)
    if dst.dtype == np.float32 and is_half(value) and dst.views == dst.buffer.form and value.shape == dst.shape:
        dst.buffer.half = value


@_function
def take_elements(array: Array, index: Any) -> Any:
    """``array[index]`` for an index with arrays in it."""
    parts = index if isinstance(index, tuple) else (index,)
    if array.is_known and all(map(is_known, parts)):
        return wrap(np.array(array.shadow[_numpy_index(index)]))
    if any(map(is_traced_mask, parts)):
        raise ValueAsked("how many elements a mask picks is known only when the compiled program runs")
    value = jnp.asarray(array.read())
    if len(parts) == 1 and parts[0].dtype.kind in "iu" and len(array):
        return wrap(rows_at(value, jnp.asarray(value_of(parts[0]))))
    return wrap(value.at[_jax_index(index)].get(mode="clip"))


@_function
def put_elements(array: Array, index: Any, value: Any) -> None:
    """``array[index] = value`` for an index with arrays in it."""
    parts = index if isinstance(index, tuple) else (index,)
    if array.is_known and all(map(is_known, parts)) and is_known(value):
        array.shadow[_numpy_index(index)] = elements_of(value)
        return
    value = cast(value_of(value), array.dtype)
    elements, mask = jnp.asarray(array.read()), mask_of(parts, value, array.shape)
    if mask is None:
        array.write(elements.at[_jax_index(index)].set(value))
    else:
        array.write(lax.select(mask, spread(value.reshape(()), array.shape), elements))


def _numpy_index(index: Any) -> Any:
    return tuple(map(elements_of, index)) if isinstance(index, tuple) else elements_of(index)


def _jax_index(index: Any) -> Any:
    if isinstance(index, tuple):
        return tuple(map(_jax_index, index))
    if not isinstance(index, Array):
        return index
    places = index.read()
    return (
        places.astype(np.int64) if places.dtype.kind in "iu" and places.dtype.itemsize < 4 else places
    )  # jax adds extents to them


@_function
def take(array: Any, indices: Any, axis: Any = None, out: Any = None, mode: str = "raise") -> Any:
    if is_known([array, indices]):
        return stored(np.take(elements_of(array), elements_of(indices), axis), out)
    value = jnp.asarray(value_of(array))
    value, axis = (value.reshape(-1), 0) if axis is None else (value, axis % value.ndim)
    places = jnp.asarray(value_of(indices))
    if mode != "wrap" and value.shape[axis]:
        return stored(rows_at(value, places, axis), out)
    return stored(value.at[(slice(None),) * axis + (places,)].get(mode="wrap" if mode == "wrap" else "clip"), out)


@_function
def take_along_axis(array: Any, indices: Any, axis: Any = -1) -> Any:
    if is_known([array, indices]):
        return wrap(np.take_along_axis(elements_of(array), elements_of(indices), axis))
    return wrap(jnp.take_along_axis(value_of(array), jnp.asarray(value_of(indices)), axis, mode="clip"))


@_function
def put_along_axis(array: Array, indices: Any, values: Any, axis: Any) -> None:
    values = cast(value_of(values), array.dtype)
    array.write(jnp.put_along_axis(jnp.asarray(array.read()), jnp.asarray(value_of(indices)), values, axis, inplace=False))


@_function
def where(condition: Any, *pair: Any) -> Any:
    if not pair:
        return _call_known("where", condition)
    if is_known([condition, *pair]):
        return wrap(np.where(elements_of(condition), *map(elements_of, pair)))
    kind = np.result_type(*(np.dtype(operand.dtype) if hasattr(operand, "dtype") else operand for operand in pair))
    values = [cast(value_of(condition), np.dtype(bool)), *(cast(value_of(operand), kind) for operand in pair)]
    shape = np.broadcast_shapes(*(value.shape for value in values))
    return wrap(lax.select(*(spread(value, shape) for value in values)))


def _call_known(name: str, *args: Any, **kwargs: Any) -> Any:
    """Call a function of numpy whose result shape depends on values; they must be known."""
    if not is_known(args):
        raise ValueAsked(f"numpy.{name} gives as many elements as it finds, which is known only when the compiled program runs")
    return wrap(getattr(np, name)(*map(elements_of, args), **kwargs))


for _name in ("argwhere", "nonzero", "flatnonzero", "unique"):
    FUNCTIONS[_name] = partial(_call_known, _name)


# -------------------------------------------------------------------------------------------------------------- making
FUNCTIONS["empty"] = empty


@_function
def full(shape: Any, value: Any, dtype: Any = None, order: str = "C") -> Any:
    kind = dtype if dtype is not None else np.asarray(value).dtype if not isinstance(value, Array) else value.dtype
    array = empty(shape, kind)
    array.fill(value)
    return array


@_function
def zeros(shape: Any, dtype: Any = float, order: str = "C") -> Any:
    return full(shape, 0, dtype)


@_function
def ones(shape: Any, dtype: Any = float, order: str = "C") -> Any:
    return full(shape, 1, dtype)


@_function
def empty_like(array: Any, dtype: Any = None, order: str = "K") -> Any:
    return empty(array.shape, array.dtype if dtype is None else dtype)


@_function
def zeros_like(array: Any, dtype: Any = None, order: str = "K") -> Any:
    return full(array.shape, 0, array.dtype if dtype is None else dtype)


@_function
def ones_like(array: Any, dtype: Any = None, order: str = "K") -> Any:
    return full(array.shape, 1, array.dtype if dtype is None else dtype)


@_function
def full_like(array: Any, value: Any, dtype: Any = None, order: str = "K") -> Any:
    return full(array.shape, value, array.dtype if dtype is None else dtype)


@_function
def asarray(value: Any, dtype: Any = None, order: Any = None) -> Any:
    if isinstance(value, (list, tuple)) and not is_known(value):
        value = stack([asarray(item) for item in value])
    if not is_known(value) or isinstance(value, Array):
        array = wrap(value)
        return array if dtype is None else array.astype(dtype, copy=False)
    return wrap(np.array(elements_of(value), dtype, order="C"))


@_function
def array(value: Any, dtype: Any = None, copy: bool = True, order: Any = None) -> Any:
    result = asarray(value, dtype)
    return result.copy() if result is value and copy else result


FUNCTIONS["ascontiguousarray"] = asarray


@_function
def arange(*bounds: Any, dtype: Any = None) -> Any:
    if len(bounds) == 4:
        *bounds, dtype = bounds  # type: ignore[assignment]
    if len(bounds) == 1 and is_known(bounds) and operator.index(bounds[0]) > SMALL:
        kind = np.dtype(np.int64 if dtype is None else dtype)
        return wrap(lax.iota(kind, operator.index(bounds[0])))
    if not is_known(bounds):
        raise ValueAsked("numpy.arange is given a bound that is known only when the compiled program runs")
    return wrap(np.arange(*map(elements_of, bounds), dtype=dtype))


# --------------------------------------------------------------------------------------------------------------- views
@_function
def reshape(array: Any, shape: Any, order: str = "C") -> Any:
    return asarray(array).reshape(shape)


@_function
def transpose(array: Any, axes: Any = None) -> Any:
    return asarray(array).transpose(axes)


@_function
def swapaxes(array: Any, first: int, second: int) -> Any:
    return asarray(array).swapaxes(first, second)


@_function
def moveaxis(array: Any, source: Any, destination: Any) -> Any:
    ndim = array.ndim
    numbers = np.moveaxis(np.empty(range(ndim)), source, destination).shape  # the sizes number the axes
    return asarray(array).transpose([int(axis) for axis in numbers])


@_function
def expand_dims(array: Any, axis: Any) -> Any:
    array = asarray(array)
    return array.reshape(np.expand_dims(array.shadow, axis).shape)


@_function
def squeeze(array: Any, axis: Any = None) -> Any:
    return asarray(array).squeeze(axis)


@_function
def ravel(array: Any, order: str = "C") -> Any:
    return asarray(array).reshape(-1)


@_function
def broadcast_to(array: Any, shape: Any) -> Any:
    return asarray(array).spread(tuple(map(operator.index, shape)) if isinstance(shape, (tuple, list)) else (shape,))


@_function
def broadcast_arrays(*arrays: Any) -> list[Any]:
    shape = np.broadcast_shapes(*map(np.shape, arrays))
    return [broadcast_to(array, shape) for array in arrays]


@_function
def flip(array: Any, axis: Any = None) -> Any:
    axes = {number % array.ndim for number in (range(array.ndim) if axis is None else np.atleast_1d(axis).tolist())}
    return array[tuple(slice(None, None, -1 if number in axes else None) for number in range(array.ndim))]


@_function
def diagonal(array: Array, offset: int = 0, axis1: int = 0, axis2: int = 1) -> Any:
    return array.picked(np.diagonal(array.shadow, offset, axis1, axis2))


@_function
def as_strided(array: Array, shape: Any = None, strides: Any = None, **kwargs: Any) -> Any:
    return array.picked(np.lib.stride_tricks.as_strided(array.shadow, shape, strides))


@_function
def may_share_memory(a: Any, b: Any, max_work: Any = None) -> bool:
    both = isinstance(a, Array) and isinstance(b, Array)
    return both and a.buffer is b.buffer and bool(np.may_share_memory(a.shadow, b.shadow))


FUNCTIONS["shares_memory"] = may_share_memory
FUNCTIONS["atleast_1d"] = lambda array: array.reshape(1) if not array.ndim else array
FUNCTIONS["real"] = lambda array: array.real
FUNCTIONS["imag"] = lambda array: array.imag
FUNCTIONS["shape"] = lambda array: array.shape
FUNCTIONS["ndim"] = lambda array: array.ndim
FUNCTIONS["size"] = lambda array: array.size


# ------------------------------------------------------------------------------------------------------------- joining
@_function
def concatenate(arrays: Sequence[Any], axis: Any = 0, out: Any = None, dtype: Any = None) -> Any:
    arrays = list(arrays)
    if is_known(arrays):
        return stored(np.concatenate(elements_of(arrays), axis, dtype=dtype), out)
    kind = np.result_type(*(item.dtype for item in arrays)) if dtype is None else np.dtype(dtype)
    values = [cast(value_of(item), kind) for item in arrays]
    if axis is None:
        values, axis = [lax.reshape(value, (value.size,)) for value in values], 0
    return stored(lax.concatenate(values, axis % values[0].ndim), out)


@_function
def stack(arrays: Sequence[Any], axis: int = 0, out: Any = None) -> Any:
    return concatenate([expand_dims(item, axis) for item in map(asarray, arrays)], axis, out)


# ------------------------------------------------------------------------------------------------------------ reducing
def _reduction(name: str, function: str) -> None:
    def reduce(array: Any, axis: Any = None, out: Any = None, keepdims: bool = False, **kwargs: Any) -> Any:
        return ufunc(function).reduce(asarray(array), axis, None, out, keepdims)

    FUNCTIONS[name] = reduce


for _name, _of in {"max": "maximum", "min": "minimum", "all": "logical_and", "any": "logical_or"}.items():
    _reduction(_name, _of)
    _reduction({"max": "amax", "min": "amin"}.get(_name, _name), _of)


@_function
def sum_(array: Any, axis: Any = None, dtype: Any = None, out: Any = None, keepdims: bool = False) -> Any:
    return ufunc("add").reduce(asarray(array), axis, dtype, out, keepdims)


@_function
def prod(array: Any, axis: Any = None, dtype: Any = None, out: Any = None, keepdims: bool = False) -> Any:
    return ufunc("multiply").reduce(asarray(array), axis, dtype, out, keepdims)


@_function
def mean(array: Any, axis: Any = None, dtype: Any = None, out: Any = None, keepdims: bool = False) -> Any:
    array = asarray(array)
    kind = np.dtype(dtype) if dtype is not None else array.dtype if array.dtype.kind in "fc" else np.dtype(np.float64)
    total = ufunc("add").reduce(array, axis, kind, None, keepdims)
    return stored(total / kind.type(max(array.size // max(total.size, 1), 1)), out)


@_function
def var(array: Any, axis: Any = None, dtype: Any = None, out: Any = None, ddof: int = 0, keepdims: bool = False) -> Any:
    array = asarray(array)
    apart = array - mean(array, axis, dtype, None, True)
    total = sum_(apart * apart, axis, None, None, keepdims)
    return stored(total / total.dtype.type(array.size // max(total.size, 1) - ddof), out)


@_function
def std(array: Any, axis: Any = None, dtype: Any = None, out: Any = None, ddof: int = 0, keepdims: bool = False) -> Any:
    return stored(ufunc("sqrt")(var(array, axis, dtype, None, ddof, keepdims)), out)


@_function
def cumsum(array: Any, axis: Any = None, dtype: Any = None, out: Any = None) -> Any:
    array, axis = (ravel(array), 0) if axis is None else (array, axis)
    return ufunc("add").accumulate(array, axis, dtype, out)


@_function
def cumprod(array: Any, axis: Any = None, dtype: Any = None, out: Any = None) -> Any:
    array, axis = (ravel(array), 0) if axis is None else (array, axis)
    return ufunc("multiply").accumulate(array, axis, dtype, out)


@_function
def clip(array: Any, low: Any = None, high: Any = None, out: Any = None) -> Any:
    if low is not None and not _is_all(low, -np.inf):
        array = ufunc("maximum")(array, low)
    return stored(array if high is None or _is_all(high, np.inf) else ufunc("minimum")(array, high), out)


def _is_all(bound: Any, number: float) -> bool:
    """Whether a bound is known, and equals this number everywhere."""
    return is_known(bound) and bool(np.all(elements_of(bound) == number))


@_function
def abs_(array: Any, out: Any = None) -> Any:
    return ufunc("absolute")(array, out=out)


def round_(array: Any, decimals: int = 0, out: Any = None) -> Any:
    if decimals or array.dtype.kind not in "f":
        return _call_jax("round", array, decimals, out=out)
    return ufunc("rint")(array, out=out)


FUNCTIONS["round"] = FUNCTIONS["around"] = round_


# ------------------------------------------------------------------------------------------------------------ products
@_function
def dot(left: Any, right: Any, out: Any = None) -> Any:
    if is_known([left, right]):
        return stored(np.dot(elements_of(left), elements_of(right)), out)
    left, right = asarray(left), asarray(right)
    if not left.ndim or not right.ndim:
        return stored(left * right, out)
    if _is_deep(left, right):
        return stored(_sums_of_products(left, right), out)
    left_value, right_value = operands(left, right)
    kind = np.result_type(left.dtype, right.dtype)
    contracted = ((left.ndim - 1,), (max(right.ndim - 2, 0),))
    if is_half(left_value) and kind == np.float32:
        return stored(lax.dot_general(left_value, right_value, (contracted, ((), ())), preferred_element_type=np.float32), out)
    return stored(lax.dot_general(cast(left_value, kind), cast(right_value, kind), (contracted, ((), ()))), out)


def _is_deep(left: Any, right: Any) -> bool:
    """Whether a factor of a product is a vector, and sums are long: XLA adds the terms of a product one by one on CPUs."""
    has_vector = 1 in (left.ndim, right.ndim, left.shape[0], right.shape[-1])
    return has_vector and left.shape[-1] > BLOCK_DEPTH and left.ndim < 3 and right.ndim < 3 and left.dtype == right.dtype


def _sums_of_products(left: Any, right: Any) -> Any:
    """``dot(left, right)`` with a vector, computed as sums, which XLA rounds less."""
    shape = (*left.shape[:-1], *right.shape[1:])
    if right.ndim == 1 or right.shape[1] == 1:
        return sum_(left * right.reshape(-1), -1).reshape(shape)
    return sum_(left.reshape(-1, 1) * right, 0).reshape(shape)


@_function
def matmul(left: Any, right: Any, out: Any = None) -> Any:
    if is_known([left, right]):
        return stored(np.matmul(elements_of(left), elements_of(right)), out)
    left, right = asarray(left), asarray(right)
    if right.ndim <= 2 and left.ndim:
        return dot(left, right, out)
    left_value, right_value = operands(left, right)
    kind = np.result_type(left.dtype, right.dtype)
    if is_half(left_value) and kind == np.float32:
        return stored(jnp.matmul(left_value, right_value, preferred_element_type=np.float32), out)
    return stored(jnp.matmul(cast(left_value, kind), cast(right_value, kind)), out)


FUNCTIONS["vecdot"] = lambda left, right, out=None: sum_(left * right, -1, None, out)


@_function
def einsum(subscripts: str, *operands: Any, out: Any = None) -> Any:
    """Like numpy's; operands with equal labels are multiplied elementwise, which traces faster than a matrix product."""
    terms, arrow, result_labels = subscripts.partition("->")
    labels = terms.split(",")
    letters = labels[0].replace("...", "")
    is_matching = arrow and len(labels) == 2 and labels[0] == labels[1] and len(set(letters)) == len(letters)
    summed = len(labels[0]) - len(result_labels)
    if is_matching and (labels[0].startswith(result_labels) or (letters == labels[0] and letters.endswith(result_labels))):
        product = operands[0] * operands[1]
        axes = range(-summed, 0) if labels[0].startswith(result_labels) else range(summed)
        return sum_(product, tuple(axes), product.dtype, out)
    return _call_jax("einsum", subscripts, *operands, out=out)


# -------------------------------------------------------------------------------------------------------------- by jax
_OUT_AT = {"argmax": 2, "argmin": 2}
_INT64 = ("argmax", "argmin", "argsort", "searchsorted", "argpartition")


def _call_jax(name: str, *args: Any, out: Any = None, **kwargs: Any) -> Any:
    """Call a function of numpy if all arguments are known, otherwise its namesake in jax."""
    at = _OUT_AT.get(name)
    if at is not None and len(args) > at:
        out, args = args[at], (*args[:at], *args[at + 1 :])
    if is_known(args) and is_known([*kwargs.values()]):
        return stored(
            getattr(np, name)(*map(elements_of, args), **{key: elements_of(value) for key, value in kwargs.items()}), out
        )
    if kwargs.pop("kind", None) == "stable":
        kwargs["stable"] = True
    operands = [_operand(arg) for arg in args]
    value = getattr(jnp, name)(*operands, **{key: _operand(value) for key, value in kwargs.items()})
    return stored(cast(value, np.dtype(np.int64)) if name in _INT64 else value, out)


def _operand(value: Any) -> Any:
    """Convert an argument for a function of jax: arrays to jax's, anything else unchanged."""
    if isinstance(value, (list, tuple)):
        return type(value)(map(_operand, value))
    return jnp.asarray(value.read()) if isinstance(value, Array) else value


class _Ogrid:
    def __getitem__(self, key: Any) -> Any:
        return wrap(np.ogrid[key])


for _name in ("argmax", "argmin", "argsort", "choose", "repeat", "sort", "trace"):
    FUNCTIONS[_name] = partial(_call_jax, _name)


# --------------------------------------------------------------------------------------------------------- sparse rows
@_function
def choose_rows(index: Any, value: Any, is_chosen: Any, height: int) -> tuple[Any, Any]:
    """See `SelectedRows.chosen`."""
    return where(is_chosen, index, height), where(is_chosen.reshape(-1, *[1] * (value.ndim - 1)), value, value.dtype.type(0))


@_function
def merge_rows(index: Any, value: Any, height: int) -> tuple[Any, Any]:
    """Sum rows with equal indices and sort them. The number of rows stays; surplus ones get the index `height`."""
    index, rows = jnp.asarray(index.read()), jnp.asarray(value.read())
    merged, place = jnp.unique(index, return_inverse=True, size=index.size, fill_value=height)
    total = add_to_rows(jnp.zeros(rows.shape, rows.dtype), place.reshape(-1), rows)
    is_row = lax.reshape(merged < height, (merged.size, *[1] * (rows.ndim - 1)))
    return wrap(merged), wrap(jnp.where(is_row, total, 0))


_PLAIN = {
    "add_docstring": lambda *args: None,
    "setbufsize": lambda *args: None,
    "broadcast_shapes": np.broadcast_shapes,
    "errstate": np.errstate,
    "result_type": np.result_type,
    "finfo": np.finfo,
    "iinfo": np.iinfo,
    "ogrid": _Ogrid(),
}


def _module(functions: ModuleType, *names: str, **more: Any) -> SimpleNamespace:
    """Wrap functions of a jax module, and the functions `more`, for `Array`s; several results become a tuple."""

    def on_arrays(function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            result = function(*(value_of(arg) if isinstance(arg, Array) else arg for arg in args), **kwargs)
            return tuple(map(wrap, result)) if isinstance(result, tuple) else wrap(result)

        return call

    return SimpleNamespace(
        **{name: on_arrays(getattr(functions, name)) for name in names},
        **{name: on_arrays(function) for name, function in more.items()},
    )


class TracedNamespace:
    """The `xp` of kernels. Missing functions fall back to numpy for known values, otherwise to their namesakes in jax."""

    __name__ = "fluid.executor.xla"
    ndarray = Array
    lib = SimpleNamespace(stride_tricks=SimpleNamespace(as_strided=as_strided))
    fft = _module(jnp.fft, "fftn", "ifftn", "rfftn", "irfftn")
    linalg = _module(
        jnp.linalg,
        *("det", "eig", "eigvals", "inv", "matrix_power", "qr", "slogdet", "solve", "svd"),
        cholesky=partial(jnp.linalg.cholesky, symmetrize_input=False),  # reads one triangle of the matrix
        eigh=partial(jnp.linalg.eigh, symmetrize_input=False),
        eigvalsh=partial(jnp.linalg.eigvalsh, symmetrize_input=False),
    )
    random = SimpleNamespace(Generator=Generator, default_rng=lambda seed: Generator(key_of_seed(value_of(seed))))

    def __getattr__(self, name: str) -> Any:
        member = FUNCTIONS.get(name) or _PLAIN.get(name)
        if member is None:
            original = getattr(np, name)
            is_function = callable(original) and not isinstance(original, type)
            member = FUNCTIONS.setdefault(name, partial(_call_jax, name)) if is_function else original
        setattr(self, name, member)
        return member


class FusingNamespace(TracedNamespace):
    """The namespace for GPUs and the like, where XLA calls a library (cuBLAS) for products and cannot fuse them with other
    ops."""

    def dot(self, left: Any, right: Any, out: Any = None) -> Any:
        """Like `dot`; a product of a matrix and a vector, or of two vectors, becomes a sum, which XLA fuses."""
        left, right = asarray(left), asarray(right)
        if min(left.ndim, right.ndim) != 1 or max(left.ndim, right.ndim) > 2 or is_known([left, right]):
            return dot(left, right, out)
        return stored(_sums_of_products(left, right), out)


XP = TracedNamespace()
FUSING_XP = FusingNamespace()


def namespace_for(device: str) -> TracedNamespace:
    """The namespace for programs that run on a kind of device."""
    return XP if device == "cpu" else FUSING_XP
