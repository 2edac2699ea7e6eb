"""Arrays over jax that behave like numpy's: kernels run on them, and jax records the operations as a function.

An `Array` is a view of a `Buffer`. Its *shadow* is a numpy array in the buffer's memory with the strides of the view, so shapes,
strides and memory sharing are exactly numpy's. While a buffer has known values only, its memory holds these numbers, and numpy
computes with them at once: axes, counters and lengths stay Python numbers, and kernels may branch on them. After a write of a
traced value, the buffer holds a jax value instead, and reads go through the `ArrayView`s that lead to the array.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from jax import Array as JaxArray
from jax import lax
from jax import numpy as jnp
from jax.extend.core import get_opaque_trace_state
from numpy.lib.mixins import NDArrayOperatorsMixin

from fluid.values.memory import address_of
from fluid.values.types import BFLOAT16

from .views import (
    ArrayView,
    Bits,
    ImaginaryPart,
    Picked,
    RealPart,
    ReshapedView,
    Sliced,
    Spread,
    Transposed,
    Views,
    basic_region,
    followed_by,
    spread,
)

SMALL = 4096
"""The most elements of known values that numpy computes; XLA computes larger ones, to keep big constants out of its code."""

FUNCTIONS: dict[str, Callable[..., Any]] = {}
"""numpy's functions on these arrays, by name; `ufuncs` and `namespace` fill it."""


class ValueAsked(TypeError):
    """Traced code needs a value that is known only at run time."""


class Buffer:
    """Memory shared by arrays.

    Attributes:
        memory: a numpy array of the buffer's size; holds the elements if `is_known`.
        value: the elements as a jax value; None before the first write of a traced value.
        form: the views that lead from the memory to `value`; all of them are complete.
        half: the half-precision floats that `value` was copied from; None otherwise, or after another write.
    """

    __slots__ = ("_seen", "_trace", "form", "half", "is_known", "memory", "value")

    def __init__(self, memory: Any, value: Any = None, is_known: bool = False) -> None:
        self.memory, self.value, self.is_known = memory, value, is_known
        self.half: Any = None
        self.form: Views = ()
        self._seen: dict[Views, Any] = {}
        """Cache: views -> the value that they show, valid in the trace `_trace` only: values of a loop's body cannot be used
        outside of it."""
        self._trace: Any = None

    def read(self, views: Views = ()) -> Any:
        """The elements under views, as a jax value, or as numpy's if known; elements never written are zero."""
        if self.value is None:
            value = self.memory.copy() if self.is_known else lax.full(self.memory.shape, 0, self.memory.dtype)
            for view in views:
                value = view.get(value)
            return value
        if views == self.form:
            return self.value
        trace = get_opaque_trace_state()
        if trace != self._trace:
            self._seen, self._trace = {}, trace
        if views not in self._seen:
            self._seen[views] = views[-1].get(self.read(views[:-1])) if views else self._memory_value()
        return self._seen[views]

    def _memory_value(self) -> Any:
        value = self.value
        for view in reversed(self.form):
            value = view.put(None, value)
        return value

    def write(self, views: Views, value: Any) -> None:
        """Write a jax value through views."""
        if not views:
            self.value, self.form, self._seen = value, views, {}
            return
        seen = {} if any(isinstance(view, Picked) for view in views) else {views: value}
        count = next((count for count, view in enumerate(views) if not view.is_complete), len(views))
        wholes = [self.read(views[:number]) for number in range(count, len(views))]
        for view, base in zip(reversed(views[count:]), reversed(wholes), strict=True):
            value = view.put(base, value)
        while count > 1 and isinstance(views[count - 1], ReshapedView):  # only forms that reorder axes stay
            count -= 1
            value = views[count].put(None, value)
        self.value, self.form = value, views[:count]
        self._seen, self._trace = seen, get_opaque_trace_state()


def _by_name(name: str) -> Callable[..., Any]:
    def method(self: Array, *args: Any, **kwargs: Any) -> Any:
        return FUNCTIONS[name](self, *args, **kwargs)

    return method


class Array(NDArrayOperatorsMixin):
    """An array whose values may be known only when the traced function runs."""

    __slots__ = ("__weakref__", "buffer", "shadow", "views")

    def __init__(self, buffer: Buffer, shadow: Any, views: Views = ()) -> None:
        self.buffer, self.shadow, self.views = buffer, shadow, views

    # -- attributes of numpy's arrays
    shape = property(lambda self: self.shadow.shape)
    strides = property(lambda self: self.shadow.strides)
    dtype = property(lambda self: self.shadow.dtype)
    ndim = property(lambda self: self.shadow.ndim)
    size = property(lambda self: self.shadow.size)
    itemsize = property(lambda self: self.shadow.itemsize)
    nbytes = property(lambda self: self.shadow.nbytes)
    flags = property(lambda self: self.shadow.flags)
    __hash__ = object.__hash__

    def __len__(self) -> int:
        return len(self.shadow)

    @property
    def is_known(self) -> bool:
        """Whether the elements are known while tracing."""
        return self.buffer.is_known and self.buffer.value is None

    def __repr__(self) -> str:
        return f"<{'known' if self.is_known else 'traced'} {self.dtype}{list(self.shape)}>"

    # -- reading and writing
    def read(self) -> Any:
        """The elements as a jax value, or as numpy's if known."""
        if self.is_known:
            return np.array(self.shadow, order="C")
        return self.buffer.read(self.views)

    def read_as(self, shape: tuple[int, ...]) -> Any:
        """The elements, broadcast to a shape."""
        if shape == self.shape or self.is_known:
            return spread(self.read(), shape)
        axes = tuple(range(len(shape) - self.ndim, len(shape)))
        return self.buffer.read(followed_by(self.views, Spread(shape, axes)))

    def read_number(self) -> Any:
        """The single element, as a value without dimensions."""
        if not self.ndim or self.is_known:
            return self.read().reshape(())
        return self.buffer.read(followed_by(self.views, ReshapedView(self.shape, ())))

    @property
    def axes(self) -> tuple[int, ...] | None:
        """The permutation of the axes in the buffer's value; None for the standard order."""
        form = self.buffer.form
        one = form[0] if len(form) == 1 and not self.views and self.buffer.value is not None else None
        return one.axes if isinstance(one, Transposed) else None

    def half(self) -> Any:
        """The elements as a jax value in half precision if that is exact, otherwise None."""
        value: Any = self.buffer.half
        if value is not None and self.views != self.buffer.form:
            for view in reversed(self.buffer.form):
                value = view.put(None, value)
            for view in self.views:
                value = view.get(value)
        return value

    def numpy(self) -> Any:
        """The elements as numpy's; raises `ValueAsked` if they are not known."""
        if not self.is_known:
            raise ValueAsked(
                "it asks for a value, which is known only when the compiled program runs; "
                "have the program compute it from constants, or run it at a CPUPlace()"
            )
        return self.shadow

    def write(self, value: Any) -> None:
        """Set all elements to a value of numpy or jax, broadcast to this shape."""
        buffer = self.buffer
        if isinstance(value, np.ndarray) and buffer.value is None and (buffer.is_known or not self.views):
            np.copyto(self.shadow, value, casting="unsafe")
            buffer.is_known = True
            return
        value = spread(cast(value, self.dtype), self.shape)
        self.put(value if isinstance(value, JaxArray) else jnp.asarray(value))

    def put(self, value: Any) -> None:
        """Set all elements to a jax value of this shape and element type."""
        self.buffer.half = None
        self.buffer.write(self.views, value)

    def fill(self, number: Any) -> None:
        if isinstance(number, Array):
            FUNCTIONS["copyto"](self, number, "unsafe")
            return
        constant = np.asarray(number).astype(self.dtype)
        if self.size <= SMALL and self.buffer.value is None and (self.is_known or not self.views):
            self.write(np.broadcast_to(constant, self.shape))
        else:
            self.write(lax.full(self.shape, constant[()], self.dtype))

    # -- views
    def _view_as(self, shadow: Any, view: ArrayView) -> Array:
        return Array(self.buffer, shadow, followed_by(self.views, view))

    def reshape(self, *shape: Any, order: str = "C", copy: bool | None = None) -> Any:
        sizes = shape[0] if len(shape) == 1 and isinstance(shape[0], (tuple, list)) else shape
        sizes = tuple(operator.index(size) for size in sizes)
        if sizes == self.shape:
            return Array(self.buffer, self.shadow, self.views)
        try:
            shadow = np.reshape(self.shadow, sizes, copy=False)
        except ValueError:
            sizes = np.reshape(np.broadcast_to(np.int8(0), self.shape), sizes).shape
            return wrap(self.shadow.reshape(sizes) if self.is_known else lax.reshape(self.read(), sizes))
        return self._view_as(shadow, ReshapedView(self.shape, shadow.shape))

    def ravel(self, order: str = "C") -> Any:
        return self.reshape(-1)

    def flatten(self, order: str = "C") -> Any:
        return self.reshape(-1).copy()

    def transpose(self, *axes: Any) -> Array:
        if len(axes) == 1 and (axes[0] is None or isinstance(axes[0], (tuple, list))):
            axes = tuple(axes[0] or ())
        order = tuple(axis % self.ndim for axis in axes) if axes else tuple(range(self.ndim))[::-1]
        if order == tuple(range(self.ndim)):
            return Array(self.buffer, self.shadow, self.views)
        return self._view_as(self.shadow.transpose(order), Transposed(order))

    T = property(transpose)

    def swapaxes(self, first: int, second: int) -> Array:
        axes = list(range(self.ndim))
        axes[first], axes[second] = axes[second], axes[first]
        return self.transpose(axes)

    def squeeze(self, axis: Any = None) -> Any:
        return self.reshape(self.shadow.squeeze(axis).shape)

    def view(self, dtype: Any = None) -> Array:
        """The same bytes as elements of another type."""
        kind = self.dtype if dtype is None else np.dtype(dtype)
        if kind == self.dtype:
            return Array(self.buffer, self.shadow, self.views)
        return self._view_as(self.shadow.view(kind), Bits(self.dtype, kind))

    def spread(self, shape: tuple[int, ...]) -> Array:
        """A view broadcast to a shape, for reading only."""
        axes = tuple(range(len(shape) - self.ndim, len(shape)))
        return self._view_as(np.broadcast_to(self.shadow, shape), Spread(shape, axes))

    def picked(self, shadow: Any) -> Array:
        """The view of a shadow with arbitrary strides in this array's memory."""
        base = self.buffer.memory
        start = (address_of(shadow) - address_of(base)) // base.itemsize if shadow.size else 0
        numbers = np.full(shadow.shape, start, np.int64)
        for axis, (extent, stride) in enumerate(zip(shadow.shape, shadow.strides, strict=True)):
            steps = np.arange(extent) * (stride // base.itemsize)
            numbers += steps.reshape([-1 if dim == axis else 1 for dim in range(shadow.ndim)])
        return Array(self.buffer, shadow, (Picked(base.shape, numbers),))

    # -- indexing
    def __getitem__(self, index: Any) -> Any:
        index = _plain(index)
        region = basic_region(index, self.shape)
        if region is None:
            return FUNCTIONS["take_elements"](self, index)
        items = index if isinstance(index, tuple) else (index,)
        shadow = self.shadow[items if Ellipsis in items else (*items, ...)]
        if region.extents != self.shape or any(step != 1 for step in region.steps):
            if any(isinstance(view, Picked) for view in self.views):
                return self.picked(shadow)  # its elements may overlap, so write parts back directly
            return self._view_as(shadow, Sliced(self.shape, region))
        if shadow.shape == self.shape:
            return Array(self.buffer, shadow, self.views)
        return self._view_as(shadow, ReshapedView(self.shape, shadow.shape))

    def __setitem__(self, index: Any, value: Any) -> None:
        index = _plain(index)
        if basic_region(index, self.shape) is not None:
            FUNCTIONS["copyto"](self[index], value, "unsafe")
        else:
            FUNCTIONS["put_elements"](self, index, value)

    def __iter__(self) -> Iterator[Array]:
        return (self[number] for number in range(len(self)))

    # -- numbers
    def __bool__(self) -> bool:
        return bool(self.numpy())

    def __int__(self) -> int:
        return int(self.numpy())

    def __float__(self) -> float:
        return float(self.numpy())

    def __index__(self) -> int:
        return operator.index(self.numpy()[()])

    def item(self, *args: Any) -> Any:
        return self.numpy().item(*args)

    def tolist(self) -> Any:
        return self.numpy().tolist()

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        return np.array(self.numpy(), dtype)

    # -- numpy's functions
    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **kwargs: Any) -> Any:
        if "out" in kwargs:
            kwargs["out"] = kwargs["out"][0]
        function = FUNCTIONS[ufunc.__name__]
        return (function if method == "__call__" else getattr(function, method))(*inputs, **kwargs)

    def __array_function__(self, function: Any, types: Any, args: Any, kwargs: Any) -> Any:
        return FUNCTIONS[function.__name__](*args, **kwargs)

    def copy(self, order: str = "C") -> Any:
        if self.buffer.value is None and not self.is_known:
            return empty(self.shape, self.dtype)
        return wrap(self.read())

    def astype(self, dtype: Any, order: str = "K", casting: str = "unsafe", copy: bool = True) -> Any:
        kind = np.dtype(dtype)
        if kind == self.dtype and not copy:
            return self
        return wrap(cast(self.read(), kind))

    def sort(self, axis: int = -1, kind: Any = None) -> None:
        self.write(FUNCTIONS["sort"](self, axis).read())

    all, any, argmax, argmin, argsort, choose, clip = map(
        _by_name, ["all", "any", "argmax", "argmin", "argsort", "choose", "clip"]
    )
    cumprod, cumsum, diagonal, dot, max, mean, min = map(_by_name, ["cumprod", "cumsum", "diagonal", "dot", "max", "mean", "min"])
    nonzero, prod, repeat, round, std, sum, take = map(_by_name, ["nonzero", "prod", "repeat", "round", "std", "sum", "take"])
    trace, var = map(_by_name, ["trace", "var"])

    def conj(self) -> Any:
        return FUNCTIONS["conjugate"](self) if self.dtype.kind == "c" else self

    @property
    def real(self) -> Any:
        return self._view_as(self.shadow.real, RealPart()) if self.dtype.kind == "c" else self

    @property
    def imag(self) -> Any:
        return self._view_as(self.shadow.imag, ImaginaryPart()) if self.dtype.kind == "c" else wrap(np.zeros_like(self.shadow))


def _plain(index: Any) -> Any:
    """Convert known scalars of an index to Python numbers, and lists to arrays."""
    if isinstance(index, tuple):
        return tuple(map(_plain, index))
    if isinstance(index, list):
        return np.asarray(index)
    is_number = isinstance(index, Array) and not index.ndim and index.is_known and index.dtype != bool
    return int(index) if is_number else index


# -------------------------------------------------------------------------------------------------------- conversions
def empty(shape: Any, dtype: Any = float, order: str = "C") -> Array:
    """An array without written elements."""
    memory = np.empty(shape if isinstance(shape, (tuple, list)) else (operator.index(shape),), type_of_jax(dtype))
    return Array(Buffer(memory), memory)


def wrap(value: Any) -> Any:
    """Wrap a value of numpy or jax as an array; items of tuples and lists one by one."""
    if isinstance(value, (tuple, list)):
        return tuple(map(wrap, value)) if isinstance(value, tuple) else list(map(wrap, value))
    if isinstance(value, Array):
        return value
    if isinstance(value, JaxArray):
        memory = np.empty(value.shape, value.dtype)
        return Array(Buffer(memory, value), memory)
    memory = np.asarray(value)
    if not memory.flags.c_contiguous or not memory.flags.writeable:
        memory = np.array(memory, order="C")
    return Array(Buffer(memory, is_known=True), memory)


def is_known(value: Any) -> bool:
    """Whether a value, or every item of a list, is known at trace time."""
    if isinstance(value, Array):
        return value.is_known
    if isinstance(value, (list, tuple)):
        return all(map(is_known, value))
    return not isinstance(value, JaxArray)


def elements_of(value: Any) -> Any:
    """Convert a known value, or each item of a list, for numpy."""
    if isinstance(value, (list, tuple)):
        return type(value)(map(elements_of, value))
    return value.numpy() if isinstance(value, Array) else value


def value_of(value: Any) -> Any:
    """Convert a value, or each item of a list, for jax."""
    if isinstance(value, Array):
        return value.read()
    if isinstance(value, (list, tuple)):
        return type(value)(map(value_of, value))
    return value if isinstance(value, JaxArray) else np.asarray(value)


_OF_JAX = np.dtype(jnp.bfloat16)


def type_of_jax(dtype: Any) -> Any:
    """The element type in jax: bfloat16 for the 16-bit integers that hold it in numpy; any other unchanged."""
    return _OF_JAX if dtype == BFLOAT16 else dtype


def for_jax(array: Any) -> Any:
    """View a numpy array with jax's element type; the bytes stay the same."""
    return array.view(type_of_jax(array.dtype)) if array.dtype == BFLOAT16 else array


def for_numpy(array: Any) -> Any:
    """View an array from jax with numpy's element type; the bytes stay the same."""
    return array.view(BFLOAT16) if array.dtype == _OF_JAX else array


def operands(left: Array, right: Array) -> tuple[Any, Any]:
    """The operands of a product: in half precision if both were copied from it."""
    halves = left.half(), right.half()
    if halves[0] is not None and halves[1] is not None and halves[0].dtype == halves[1].dtype:
        return halves
    return left.read(), right.read()


def cast(value: Any, dtype: Any) -> Any:
    """Cast a value of jax or numpy to another element type, by numpy's rules."""
    if value.dtype == dtype:
        return value
    if isinstance(value, (np.ndarray, np.generic)):
        return value.astype(dtype)
    kind = np.dtype(dtype).kind
    if kind == "b":
        return lax.ne(value, np.zeros((), value.dtype))
    if kind in "iu" and value.dtype.kind == "c":
        value = lax.real(value)
    return lax.convert_element_type(value, dtype)


def is_traced_mask(index: Any) -> bool:
    """Whether an index is a mask with traced values."""
    return isinstance(index, Array) and index.dtype.kind == "b" and not index.is_known


def mask_of(parts: Sequence[Any], value: Any, shape: tuple[int, ...]) -> Any:
    """The traced mask of an index, broadcast to the shape of the array; None if the index has no traced mask.

    Raises:
        ValueAsked: the mask is one of several indices, or `value` has several elements.
    """
    if not any(map(is_traced_mask, parts)):
        return None
    if len(parts) > 1 or value.size != 1:
        raise ValueAsked("how many elements a mask picks is known only when the compiled program runs")
    mask = value_of(parts[0])
    return spread(lax.reshape(mask, (*mask.shape, *(1,) * (len(shape) - mask.ndim))), shape)
