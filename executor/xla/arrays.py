"""Arrays over jax that behave as numpy's: kernels that are given them write down what they compute, as a jax function.

An `Array` is a view of a `Buffer`. It has a numpy array of its own, its *shadow*, which lies in the buffer's memory as the view
would: so shapes, strides, and which arrays share memory are exactly numpy's. While all that was ever written to a buffer is
known, its memory holds the very numbers, and numpy computes with them at once: axes, counters and lengths stay numbers of
Python, and kernels may branch by them. As soon as something traced is written, the buffer has a jax value instead, and what is
read of it goes through the `View`s that lead to the array.
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

from fluid.values.types import BFLOAT16

from .views import (
    Bits,
    ImaginaryPart,
    Picked,
    RealPart,
    Reshaped,
    Sliced,
    Spread,
    Transposed,
    View,
    Views,
    basic_region,
    followed_by,
    spread,
)

__all__ = [
    "FUNCTIONS",
    "SMALL",
    "Array",
    "Buffer",
    "ValueAsked",
    "cast",
    "elements_of",
    "empty",
    "for_jax",
    "for_numpy",
    "is_known",
    "is_traced_mask",
    "mask_of",
    "operands",
    "type_of_jax",
    "value_of",
    "wrap",
]

SMALL = 4096
"""Numbers of elements up to which known values are computed by numpy; larger ones are left to XLA, not written into its code."""

FUNCTIONS: dict[str, Callable[..., Any]] = {}
"""numpy's functions on these arrays, by name; `ufuncs` and `namespace` fill it."""


class ValueAsked(TypeError):
    """Code that is traced asks for a value that only running tells."""


class Buffer:
    """Memory that arrays share.

    Attributes:
        memory: as large as the elements; holds them where `is_known`.
        value: the elements as a jax value, as they were last written; None as long as nothing traced was.
        form: the views through which `value` shows the memory; each of them has all of its elements.
        half: what `value` was copied from, if that were floats in half precision, and nothing was written since.
    """

    __slots__ = ("_seen", "_trace", "form", "half", "is_known", "memory", "value")

    def __init__(self, memory: Any, value: Any = None, is_known: bool = False) -> None:
        self.memory, self.value, self.is_known = memory, value, is_known
        self.half: Any = None
        self.form: Views = ()
        self._seen: dict[Views, Any] = {}
        """What views were seen to show, in the function of jax that is traced by `_trace`: values of a loop's body mean nothing
        outside of it."""
        self._trace: Any = None

    def read(self, views: Views = ()) -> Any:
        """The elements that views show, as a jax value, or one of numpy where they are known; what was never written is zero."""
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
            self._seen[views] = views[-1].get(self.read(views[:-1])) if views else self._whole()
        return self._seen[views]

    def _whole(self) -> Any:
        value = self.value
        for view in reversed(self.form):
            value = view.put(None, value)
        return value

    def write(self, views: Views, value: Any) -> None:
        """Let views show a jax value of their shape."""
        if not views:
            self.value, self.form, self._seen = value, views, {}
            return
        seen = {} if any(isinstance(view, Picked) for view in views) else {views: value}
        count = next((count for count, view in enumerate(views) if not view.is_whole), len(views))
        wholes = [self.read(views[:number]) for number in range(count, len(views))]
        for view, whole in zip(reversed(views[count:]), reversed(wholes), strict=True):
            value = view.put(whole, value)
        while count > 1 and isinstance(views[count - 1], Reshaped):  # forms that only say in which order axes lie are shared
            count -= 1
            value = views[count].put(None, value)
        self.value, self.form = value, views[:count]
        self._seen, self._trace = seen, get_opaque_trace_state()


def _by_name(name: str) -> Callable[..., Any]:
    def method(self: Array, *args: Any, **kwargs: Any) -> Any:
        return FUNCTIONS[name](self, *args, **kwargs)

    return method


class Array(NDArrayOperatorsMixin):
    """An array of which the values may be known only when the traced function runs."""

    __slots__ = ("__weakref__", "buffer", "shadow", "views")

    def __init__(self, buffer: Buffer, shadow: Any, views: Views = ()) -> None:
        self.buffer, self.shadow, self.views = buffer, shadow, views

    # -- what it is
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
        """The elements as a jax value, or one of numpy where they are known."""
        if self.is_known:
            return np.array(self.shadow, order="C")
        return self.buffer.read(self.views)

    def read_as(self, shape: tuple[int, ...]) -> Any:
        """The same, broadcast to a shape."""
        if shape == self.shape or self.is_known:
            return spread(self.read(), shape)
        axes = tuple(range(len(shape) - self.ndim, len(shape)))
        return self.buffer.read(followed_by(self.views, Spread(shape, axes)))

    def read_number(self) -> Any:
        """The same of a single element, as a value without dimensions."""
        if not self.ndim or self.is_known:
            return self.read().reshape(())
        return self.buffer.read(followed_by(self.views, Reshaped(self.shape, ())))

    @property
    def axes(self) -> tuple[int, ...] | None:
        """In which order the axes of a traced array lie in its value, if another than their own."""
        form = self.buffer.form
        one = form[0] if len(form) == 1 and not self.views and self.buffer.value is not None else None
        return one.axes if isinstance(one, Transposed) else None

    def half(self) -> Any:
        """The elements as a jax value in half precision, where that holds them exactly; otherwise None."""
        value: Any = self.buffer.half
        if value is not None and self.views != self.buffer.form:
            for view in reversed(self.buffer.form):
                value = view.put(None, value)
            for view in self.views:
                value = view.get(value)
        return value

    def numpy(self) -> Any:
        """The elements, which have to be known."""
        if not self.is_known:
            raise ValueAsked(
                "it asks for a value, which is known only when the compiled program runs; "
                "have the program compute it from constants, or run it at a CPUPlace()"
            )
        return self.shadow

    def write(self, value: Any) -> None:
        """Set all elements to a value, of numpy or jax, that has this shape or broadcasts to it."""
        buffer = self.buffer
        if isinstance(value, np.ndarray) and buffer.value is None and (buffer.is_known or not self.views):
            np.copyto(self.shadow, value, casting="unsafe")
            buffer.is_known = True
            return
        value = spread(cast(value, self.dtype), self.shape)
        self.put(value if isinstance(value, JaxArray) else jnp.asarray(value))

    def put(self, value: Any) -> None:
        """The same with a value of jax that has this shape and element type."""
        self.buffer.half = None
        self.buffer.write(self.views, value)

    def fill(self, number: Any) -> None:
        if isinstance(number, Array):
            FUNCTIONS["copyto"](self, number, "unsafe")
            return
        known = np.asarray(number).astype(self.dtype)
        if self.size <= SMALL and self.buffer.value is None and (self.is_known or not self.views):
            self.write(np.broadcast_to(known, self.shape))
        else:
            self.write(lax.full(self.shape, known[()], self.dtype))

    # -- views
    def _seen_by(self, shadow: Any, view: View) -> Array:
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
        return self._seen_by(shadow, Reshaped(self.shape, shadow.shape))

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
        return self._seen_by(self.shadow.transpose(order), Transposed(order))

    T = property(transpose)

    def swapaxes(self, one: int, other: int) -> Array:
        axes = list(range(self.ndim))
        axes[one], axes[other] = axes[other], axes[one]
        return self.transpose(axes)

    def squeeze(self, axis: Any = None) -> Any:
        return self.reshape(self.shadow.squeeze(axis).shape)

    def view(self, dtype: Any = None) -> Array:
        """The same bytes as elements of another type."""
        kind = self.dtype if dtype is None else np.dtype(dtype)
        if kind == self.dtype:
            return Array(self.buffer, self.shadow, self.views)
        return self._seen_by(self.shadow.view(kind), Bits(self.dtype, kind))

    def spread(self, shape: tuple[int, ...]) -> Array:
        """Broadcast to a shape, for reading."""
        axes = tuple(range(len(shape) - self.ndim, len(shape)))
        return self._seen_by(np.broadcast_to(self.shadow, shape), Spread(shape, axes))

    def picked(self, shadow: Any) -> Array:
        """The view that a shadow in this array's memory describes, whatever its strides."""
        base = self.buffer.memory
        start = (_address(shadow) - _address(base)) // base.itemsize if shadow.size else 0
        numbers = np.full(shadow.shape, start, np.int64)
        for axis, (extent, stride) in enumerate(zip(shadow.shape, shadow.strides, strict=True)):
            steps = np.arange(extent) * (stride // base.itemsize)
            numbers += steps.reshape([-1 if other == axis else 1 for other in range(shadow.ndim)])
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
                return self.picked(shadow)  # elements may lie in it twice: a part is put back by itself
            return self._seen_by(shadow, Sliced(self.shape, region))
        if shadow.shape == self.shape:
            return Array(self.buffer, shadow, self.views)
        return self._seen_by(shadow, Reshaped(self.shape, shadow.shape))

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
        return self._seen_by(self.shadow.real, RealPart()) if self.dtype.kind == "c" else self

    @property
    def imag(self) -> Any:
        return self._seen_by(self.shadow.imag, ImaginaryPart()) if self.dtype.kind == "c" else wrap(np.zeros_like(self.shadow))


def _address(array: Any) -> int:
    return int(array.__array_interface__["data"][0])


def _plain(index: Any) -> Any:
    """An index in which single numbers that are known are numbers of Python, and lists are arrays."""
    if isinstance(index, tuple):
        return tuple(map(_plain, index))
    if isinstance(index, list):
        return np.asarray(index)
    is_number = isinstance(index, Array) and not index.ndim and index.is_known and index.dtype != bool
    return int(index) if is_number else index


# ------------------------------------------------------------------------------------------------- between the worlds
def empty(shape: Any, dtype: Any = float, order: str = "C") -> Array:
    """An array of which nothing was written yet."""
    memory = np.empty(shape if isinstance(shape, (tuple, list)) else (operator.index(shape),), type_of_jax(dtype))
    return Array(Buffer(memory), memory)


def wrap(value: Any) -> Any:
    """A value of numpy or jax as an array of its own; each of a tuple or list."""
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
    """Whether a value, or all of a list, is known while tracing."""
    if isinstance(value, Array):
        return value.is_known
    if isinstance(value, (list, tuple)):
        return all(map(is_known, value))
    return not isinstance(value, JaxArray)


def elements_of(value: Any) -> Any:
    """A known value, or each of a list, for numpy."""
    if isinstance(value, (list, tuple)):
        return type(value)(map(elements_of, value))
    return value.numpy() if isinstance(value, Array) else value


def value_of(value: Any) -> Any:
    """A value, or each of a list, for jax."""
    if isinstance(value, Array):
        return value.read()
    if isinstance(value, (list, tuple)):
        return type(value)(map(value_of, value))
    return value if isinstance(value, JaxArray) else np.asarray(value)


_OF_JAX = np.dtype(jnp.bfloat16)


def type_of_jax(dtype: Any) -> Any:
    """An element type as jax knows it: its bfloat16 for bits that numpy holds; any other unchanged."""
    return _OF_JAX if dtype == BFLOAT16 else dtype


def for_jax(array: Any) -> Any:
    """An array of numpy with element types of jax; the bytes are the same."""
    return array.view(type_of_jax(array.dtype)) if array.dtype == BFLOAT16 else array


def for_numpy(array: Any) -> Any:
    """An array as jax gives it with element types of numpy; the bytes are the same."""
    return array.view(BFLOAT16) if array.dtype == _OF_JAX else array


def operands(one: Array, other: Array) -> tuple[Any, Any]:
    """The values that a product multiplies: in half precision if both are floats that were copied from there."""
    halves = one.half(), other.half()
    if halves[0] is not None and halves[1] is not None and halves[0].dtype == halves[1].dtype:
        return halves
    return one.read(), other.read()


def cast(value: Any, dtype: Any) -> Any:
    """A value of jax or numpy as elements of another type, as numpy casts."""
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
    """Whether an index is a mask of which only running tells what it picks."""
    return isinstance(index, Array) and index.dtype.kind == "b" and not index.is_known


def mask_of(parts: Sequence[Any], value: Any, shape: tuple[int, ...]) -> Any:
    """The traced mask that an index of an array of this shape consists of, broadcast to it; None if it has none.

    Raises:
        ValueAsked: it decides how many elements `value` should have, or what the other indices pick.
    """
    if not any(map(is_traced_mask, parts)):
        return None
    if len(parts) > 1 or value.size != 1:
        raise ValueAsked("how many elements a mask picks is known only when the compiled program runs")
    mask = value_of(parts[0])
    return spread(lax.reshape(mask, (*mask.shape, *(1,) * (len(shape) - mask.ndim))), shape)
