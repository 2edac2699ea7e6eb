"""Functions that make arrays. Beside variables of a program, arrays become constants of the program."""

from __future__ import annotations

import builtins
from typing import Any

import numpy as np

from ..eager.graph import leaf_edge
from ..eager.tensor import Tensor, make
from ..eager.tensor import from_dlpack as tensor_from_dlpack
from ..errors import ElementTypeError, FluidTypeError, ProgramError
from ..executor.binding.array_types import array_of
from ..values.memory import allocated
from ..values.operators import ValueOperators
from ..values.place import namespace_on
from ..values.types import DTypeLike, VarType, as_dtype, is_complex, is_integer, real_of
from .array import ARRAYS, NDArray, array_like, device_name
from .dtypes import DEFAULTS
from .operands import EXACT, alike, cast, constant, expanded, new, operand, ops_of, reshaped, shape_of

__all__ = [
    "arange", "asarray", "empty", "empty_like", "eye", "from_dlpack", "full", "full_like", "linspace", "meshgrid", "ones",
    "ones_like", "tril", "triu", "zeros", "zeros_like",
]  # fmt: skip

Shape = int | tuple[int, ...]


def asarray(obj: Any, /, *, dtype: DTypeLike | None = None, device: Any = None, copy: bool | None = None) -> Any:
    """An array of anything like one.

    Args:
        obj: a number, nested lists of numbers or of arrays, an array of this or another library. Gradients flow to tensors.
        dtype: element type; by default the type of `obj`, and float32, int64, complex64 or bool for Python's numbers.
        device: ``"cpu"`` or ``"cuda:0"``, for example.
        copy: True to copy, False for an error where a copy is needed, None to share memory where that is possible.

    Raises:
        ProgramError: a copy is needed under ``copy=False``.

    >>> import fluid.numpy as xp
    >>> xp.asarray([1, 2, 3])
    NDArray([1, 2, 3], dtype=int64)
    """
    wanted = None if dtype is None else as_dtype(dtype)
    if isinstance(obj, ValueOperators):
        return _converted(obj, wanted, device, copy)
    if isinstance(obj, (list, tuple)) and _has_tensors(obj):
        parts = [asarray(item, dtype=dtype, device=device) for item in obj]
        return ops_of(parts[0]).stack(alike(parts), axis=0)
    if copy is False and not hasattr(obj, "__array_interface__") and not hasattr(obj, "__buffer__"):
        raise ProgramError(f"asarray: {type(obj).__name__} has no memory to share; leave copy out")
    array = _array(obj, wanted)
    if copy is False and not np.shares_memory(array, np.asarray(obj)) and array.size:
        raise ProgramError(f"asarray: {type(obj).__name__} has to be copied to become {array.dtype}; leave copy out")
    return new(array.copy() if copy else array, device)


def _array(obj: Any, dtype: VarType | None) -> np.ndarray[Any, Any]:
    """An array of numpy; Python's numbers get the default types."""
    if hasattr(obj, "dtype") or hasattr(obj, "__array_interface__"):
        array: np.ndarray[Any, Any] = array_of(obj)
        return array if dtype is None else array.astype(dtype.numpy, copy=False)
    try:
        array = np.asarray(obj)
    except ValueError as error:
        raise FluidTypeError(f"asarray: the lists do not form an array: {error}") from None
    if array.dtype.kind not in "biufc":
        raise FluidTypeError(f"asarray: {type(obj).__name__} is no number, and not made of numbers")
    if dtype is None:
        kinds = {"b": DEFAULTS[builtins.bool], "i": DEFAULTS[int], "f": DEFAULTS[float], "c": DEFAULTS[complex]}
        dtype = kinds.get(array.dtype.kind)
    if dtype is None:
        raise ProgramError(f"asarray: {obj!r} is outside the numbers of int64; give dtype")
    try:
        with np.errstate(all="ignore"):  # numpy makes floats of lists of integers that int64 does not hold
            return np.asarray(obj, dtype.numpy) if is_integer(dtype) else array.astype(dtype.numpy)
    except OverflowError as error:
        raise ElementTypeError(f"asarray: {dtype.text} does not hold all of the numbers: {error}") from None


def _has_tensors(items: Any) -> bool:
    return any(isinstance(item, ValueOperators) or (isinstance(item, (list, tuple)) and _has_tensors(item)) for item in items)


def _converted(x: Any, dtype: VarType | None, device: Any, copy: bool | None) -> Any:
    """A tensor or variable as an array of an element type, on a device."""
    if not isinstance(x, Tensor):
        return x if dtype is None else cast(x, dtype)
    moved = device is not None and device_name(device) != x.device
    if copy is False and (moved or dtype not in (None, x.dtype)):
        raise ProgramError(f"asarray: {x.describe()} has to be copied for this type or device; leave copy out")
    x = as_array(x)
    if moved:
        x = x.to_device(device)
    if dtype is not None and dtype is not x.dtype:
        return cast(x, dtype)
    return ARRAYS.assign(x) if copy and not moved else x


def as_array(x: Tensor) -> NDArray:
    """A tensor as an array in the same memory, through which gradients flow."""
    if isinstance(x, NDArray):
        return x
    edge = None if x._stop else x._edge or leaf_edge(x)
    view: Any = make(x._array, x._kind, edge, x._version)
    view.__class__ = NDArray
    return view  # type: ignore[no-any-return]


def from_dlpack(x: Any, /, *, device: Any = None, copy: bool | None = None) -> Any:
    """An array in the memory of an array of another library.

    Args:
        x: an object with ``__dlpack__``: an array of numpy, torch, cupy or jax.
        device: the name of the device; by default where `x` is.
        copy: True to copy, False for an error where one is needed, None to share memory where that is possible.

    >>> import fluid.numpy as xp
    >>> xp.from_dlpack(np.array([1.0, 2.0]))
    NDArray([1., 2.], dtype=float64)
    """
    array = as_array(x.detach() if isinstance(x, Tensor) else tensor_from_dlpack(x))
    return _converted(array, None, device, copy)


# ------------------------------------------------------------------------------------------------------ by shape and number
def full(shape: Shape, fill_value: Any, *, dtype: DTypeLike | None = None, device: Any = None) -> Any:
    """An array of one number.

    Args:
        shape: of the array; an integer for one dimension.
        fill_value: the number.
        dtype: element type; by default float32, int64, complex64 or bool, by the number.
        device: as in `asarray`.

    >>> import fluid.numpy as xp
    >>> xp.full((2, 2), 7)
    NDArray([[7, 7],
             [7, 7]], dtype=int64)
    """
    if isinstance(fill_value, ValueOperators):
        return expanded(asarray(fill_value, dtype=dtype, device=device), shape_of(shape))
    element = _array(fill_value, None if dtype is None else as_dtype(dtype))
    return new(allocated(np.full, _sizes(shape), element), device)


def _sizes(shape: Any) -> tuple[int, ...]:
    """A shape of a new array."""
    sizes = shape_of(shape)
    if any(size < 0 for size in sizes):
        raise ProgramError(f"the shape {list(sizes)} of a new array should have no size below 0")
    return sizes


def zeros(shape: Shape, *, dtype: DTypeLike | None = None, device: Any = None) -> Any:
    """An array of zeros.

    Args:
        shape: of the array; an integer for one dimension.
        dtype: element type; float32 by default.
        device: as in `asarray`.

    >>> import fluid.numpy as xp
    >>> xp.zeros(3)
    NDArray([0., 0., 0.], dtype=float32)
    """
    return full(shape, 0.0, dtype=VarType.FP32 if dtype is None else dtype, device=device)


def ones(shape: Shape, *, dtype: DTypeLike | None = None, device: Any = None) -> Any:
    """An array of ones.

    Args:
        shape: of the array; an integer for one dimension.
        dtype: element type; float32 by default.
        device: as in `asarray`.

    >>> import fluid.numpy as xp
    >>> xp.ones(3, dtype=xp.int8)
    NDArray([1, 1, 1], dtype=int8)
    """
    return full(shape, 1.0, dtype=VarType.FP32 if dtype is None else dtype, device=device)


def empty(shape: Shape, *, dtype: DTypeLike | None = None, device: Any = None) -> Any:
    """An array whose elements are to be set; they are zeros.

    Args:
        shape: of the array; an integer for one dimension.
        dtype: element type; float32 by default.
        device: as in `asarray`.

    >>> import fluid.numpy as xp
    >>> xp.empty((2, 3)).shape
    (2, 3)
    """
    return zeros(shape, dtype=dtype, device=device)


# ---------------------------------------------------------------------------------------------------------- by another array
def full_like(x: Any, /, fill_value: Any, *, dtype: DTypeLike | None = None, device: Any = None) -> Any:
    """An array of one number in the shape of another array.

    Args:
        x: the array whose shape and element type are taken.
        fill_value: the number.
        dtype: element type; by default the type of `x`.
        device: as in `asarray`; by default the device of `x`.

    >>> import fluid.numpy as xp
    >>> xp.full_like(xp.zeros(2), 7)
    NDArray([7., 7.], dtype=float32)
    """
    x = operand(x)
    element = _array(fill_value, x.dtype if dtype is None else as_dtype(dtype))
    kind = as_dtype(element.dtype)
    moved = device is not None and isinstance(x, Tensor) and device_name(device) != x.device
    if not is_complex(kind) and not moved and (not is_integer(kind) or abs(element.item()) <= EXACT):
        return ops_of(x).fill_any_like(x, value=float(element), dtype=int(kind))
    if not isinstance(x, Tensor):
        f, part = ops_of(x), real_of(kind) if is_complex(kind) else kind
        return f.elementwise_add(cast(f.fill_any_like(x, value=0.0, dtype=int(part)), kind), constant(element.item(), kind, x))
    make = namespace_on(device_name(x.device if device is None else device)).full
    return array_like(allocated(make, x.shape, element))


def zeros_like(x: Any, /, *, dtype: DTypeLike | None = None, device: Any = None) -> Any:
    """An array of zeros in the shape of another array.

    Args:
        x: the array whose shape and element type are taken.
        dtype: element type; by default the type of `x`.
        device: as in `asarray`; by default the device of `x`.

    >>> import fluid.numpy as xp
    >>> xp.zeros_like(xp.asarray([1, 2]))
    NDArray([0, 0], dtype=int64)
    """
    return full_like(x, 0, dtype=dtype, device=device)


def ones_like(x: Any, /, *, dtype: DTypeLike | None = None, device: Any = None) -> Any:
    """An array of ones in the shape of another array.

    Args:
        x: the array whose shape and element type are taken.
        dtype: element type; by default the type of `x`.
        device: as in `asarray`; by default the device of `x`.

    >>> import fluid.numpy as xp
    >>> xp.ones_like(xp.asarray([5, 2]))
    NDArray([1, 1], dtype=int64)
    """
    return full_like(x, 1, dtype=dtype, device=device)


def empty_like(x: Any, /, *, dtype: DTypeLike | None = None, device: Any = None) -> Any:
    """An array in the shape of another one, whose elements are to be set; they are zeros.

    Args:
        x: the array whose shape and element type are taken.
        dtype: element type; by default the type of `x`.
        device: as in `asarray`; by default the device of `x`.

    >>> import fluid.numpy as xp
    >>> xp.empty_like(xp.asarray([5, 2])).shape
    (2,)
    """
    return full_like(x, 0, dtype=dtype, device=device)


# -------------------------------------------------------------------------------------------------------------- series, grids
def arange(
    start: float, /, stop: float | None = None, step: float = 1, *, dtype: DTypeLike | None = None, device: Any = None
) -> Any:
    """Numbers in steps, up to an end that is not among them.

    Args:
        start: the first number; the end, where `stop` is left out.
        stop: the end.
        step: the distance.
        dtype: element type; by default int64 for integers, and float32.
        device: as in `asarray`.

    >>> import fluid.numpy as xp
    >>> xp.arange(2, 8, 3)
    NDArray([2, 5], dtype=int64)
    """
    first, end = (0, start) if stop is None else (start, stop)
    integral = all(isinstance(number, int) for number in (first, end, step))
    element = as_dtype(dtype) if dtype is not None else DEFAULTS[int if integral else float]
    return new(allocated(np.arange, first, end, step, dtype=element.numpy), device)


def linspace(
    start: complex, stop: complex, /, num: int, *, dtype: DTypeLike | None = None, device: Any = None, endpoint: bool = True
) -> Any:
    """Evenly spaced numbers.

    Args:
        start, stop: the first number, and the last one.
        num: how many.
        dtype: element type; by default float32, and complex64 for complex numbers.
        device: as in `asarray`.
        endpoint: whether `stop` is the last number, or would follow it.

    >>> import fluid.numpy as xp
    >>> xp.linspace(0, 1, 5)
    NDArray([0.  , 0.25, 0.5 , 0.75, 1.  ], dtype=float32)
    """
    kind = complex if any(type(number) is complex for number in (start, stop)) else float
    element = as_dtype(dtype) if dtype is not None else DEFAULTS[kind]
    if num < 0:
        raise ProgramError(f"linspace: num {num} should not be below 0")
    with np.errstate(all="ignore"):
        return new(allocated(np.linspace, start, stop, num, endpoint=endpoint, dtype=element.numpy), device)


def eye(n_rows: int, n_cols: int | None = None, /, *, k: int = 0, dtype: DTypeLike | None = None, device: Any = None) -> Any:
    """A matrix with ones on a diagonal, and zeros elsewhere.

    Args:
        n_rows, n_cols: how many rows, and columns; a square by default.
        k: how far above the main diagonal the ones stand.
        dtype: element type; float32 by default.
        device: as in `asarray`.

    >>> import fluid.numpy as xp
    >>> xp.eye(2, 3, k=1)
    NDArray([[0., 1., 0.],
             [0., 0., 1.]], dtype=float32)
    """
    element = VarType.FP32 if dtype is None else as_dtype(dtype)
    sizes = _sizes((n_rows, n_rows if n_cols is None else n_cols))
    return new(allocated(np.eye, *sizes, k, dtype=element.numpy), device)


def meshgrid(*arrays: Any, indexing: str = "xy") -> tuple[Any, ...]:
    """The coordinates of the points of a grid, one array for each axis.

    Args:
        arrays: the coordinates along each axis, of one dimension.
        indexing: ``"ij"`` for axes in the order of the arrays, ``"xy"`` to swap the first two.

    >>> import fluid.numpy as xp
    >>> x, y = xp.meshgrid(xp.asarray([1, 2]), xp.asarray([3, 4, 5]))
    >>> x
    NDArray([[1, 2],
             [1, 2],
             [1, 2]], dtype=int64)
    """
    if indexing not in ("xy", "ij"):
        raise ProgramError(f"meshgrid: indexing should be 'xy' or 'ij', not {indexing!r}")
    axes = [reshaped(operand(x), (-1,)) if operand(x).ndim != 1 else operand(x) for x in arrays]
    order = list(range(len(axes)))
    if indexing == "xy" and len(axes) > 1:
        order[:2] = 1, 0
    shape = [axes[number].shape[0] for number in order]
    places = {number: place for place, number in enumerate(order)}
    return tuple(
        expanded(reshaped(x, [x.shape[0] if places[number] == axis else 1 for axis in range(len(axes))]), shape)
        for number, x in enumerate(axes)
    )


def tril(x: Any, /, *, k: int = 0) -> Any:
    """The lower triangles of matrices, with zeros above a diagonal.

    Args:
        x: matrices of the last two dimensions.
        k: how far above the main diagonal the last one stands that stays.

    >>> import fluid.numpy as xp
    >>> xp.tril(xp.ones((2, 3)))
    NDArray([[1., 0., 0.],
             [1., 1., 0.]], dtype=float32)
    """
    return _triangle(x, k, True)


def triu(x: Any, /, *, k: int = 0) -> Any:
    """The upper triangles of matrices, with zeros below a diagonal.

    Args:
        x: matrices of the last two dimensions.
        k: how far above the main diagonal the first one stands that stays.

    >>> import fluid.numpy as xp
    >>> xp.triu(xp.ones((2, 3)))
    NDArray([[1., 1., 1.],
             [0., 1., 1.]], dtype=float32)
    """
    return _triangle(x, k, False)


def _triangle(x: Any, k: int, lower: bool) -> Any:
    x = operand(x)
    if x.ndim < 2:
        raise ProgramError(f"a triangle is taken of matrices, of two dimensions at least, not of {x.ndim}")
    return ops_of(x).tril_triu(x, diagonal=int(np.clip(k, -(2**31), 2**31 - 1)), lower=lower)
