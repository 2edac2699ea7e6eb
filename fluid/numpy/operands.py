"""Operands of functions: promoted to one element type, arrays or variables alike."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import reduce
from math import prod
from typing import Any

import numpy as np

from ..eager.mode import state
from ..eager.tensor import Tensor
from ..errors import ElementTypeError, FluidTypeError, IndexRangeError, ProgramError
from ..executor.binding.array_types import array_of
from ..initializer import VALUES, constant_attrs, value_attrs
from ..opdef.inference import OpNamespace
from ..ops.shapes import broadcast
from ..values.cache import Cache
from ..values.operators import ValueOperators
from ..values.place import namespace_on
from ..values.types import VarType, is_complex, is_integer, real_of
from .array import ARRAYS, NDArray, array_like, device_name
from .dtypes import beside, promoted, result_type

__all__ = ["EXACT", "ops_of"]

EXACT = 2**24
"""float32, the type of attributes, represents each whole number up to this one."""


def ops_of(value: Any) -> OpNamespace:
    """The ops over a value: they run at once on arrays, and are appended to the program of a variable."""
    return ARRAYS if isinstance(value, Tensor) else value._ops()


def operand(value: Any) -> Any:
    """An array or variable; arrays of numpy are converted, and anything else is an error."""
    if isinstance(value, ValueOperators):
        return value
    if isinstance(value, (np.ndarray, np.generic)):
        return array_like(array_of(value, copy=True))
    raise FluidTypeError(f"a function of arrays was given {type(value).__name__}; asarray makes an array of it")


def cast(value: Any, dtype: VarType) -> Any:
    """A value of another element type; itself if it has it."""
    if value.dtype is dtype:
        return value
    return ops_of(value).cast(value, in_dtype=int(value.dtype), out_dtype=int(dtype))


_constants: Cache[Any, Tensor] = Cache()


def constant(number: Any, dtype: VarType, like: Any) -> Any:
    """A number as a value of shape ``()``, beside `like`."""
    if isinstance(like, Tensor) and state.interceptor is None:
        key = dtype, like._kind.device, number.__class__, number if number else repr(number)
        value = _constants.get(key)
        if value is None:
            value = _constants.keep(key, array_like(namespace_on(like.device).asarray(_converted(number, dtype))))
        return value
    f = ops_of(like)
    if is_complex(dtype):
        part = real_of(dtype)
        return f.complex(*[constant(float(half), part, like) for half in (complex(number).real, complex(number).imag)])
    element = _converted(number, dtype).item()
    attrs = constant_attrs((), dtype, float(element))
    return f.fill_constant(**attrs | {"str_value": str(element)} if is_integer(dtype) else attrs)


def _converted(number: Any, dtype: VarType) -> Any:
    """A number as an array without dimensions; an error if the element type cannot hold it."""
    try:
        return np.asarray(number, dtype.numpy)
    except OverflowError:
        raise ElementTypeError(f"{number} is outside the numbers of {dtype.text}") from None


def new(array: Any, device: Any = None) -> NDArray:
    """An array of numpy as an array here."""
    return array_like(namespace_on(device_name(device)).asarray(array))


def program_constant(array: Any, f: OpNamespace) -> Any:
    """An array of numpy as a constant of a program."""
    dtype = array_like(array).dtype
    if is_complex(dtype):
        return f.complex(program_constant(np.real(array), f), program_constant(np.imag(array), f))
    if dtype in VALUES:
        return f.assign_value(**value_attrs(array, dtype))
    wide = VarType.INT64 if is_integer(dtype) else VarType.FP32
    value = f.assign_value(**value_attrs(array.astype(wide.numpy), wide))
    return f.cast(value, in_dtype=int(wide), out_dtype=int(dtype))


def placed(array: np.ndarray[Any, Any], like: Any) -> Any:
    """An array of numpy as a constant beside `like`: on its device, or in its program."""
    if isinstance(like, Tensor):
        return array_like(like._kind.xp.asarray(array))
    return program_constant(array, ops_of(like))


def together(values: Sequence[Any]) -> list[Any]:
    """Arrays and variables that one op takes: arrays beside variables become constants of the program."""
    operands = [operand(value) for value in values]
    variables = [value for value in operands if not isinstance(value, Tensor)]
    if not variables or len(variables) == len(operands):
        return operands
    for value in operands:
        if isinstance(value, Tensor) and not value._stop:
            raise ProgramError(f"{value.describe()} requires a gradient, which a program cannot give it: trace the function")
    f = ops_of(variables[0])
    return [program_constant(value.numpy(), f) if isinstance(value, Tensor) else value for value in operands]


def pair(x1: Any, x2: Any) -> tuple[OpNamespace, Any, Any]:
    """The ops for two operands, and the operands in one element type; one may be a number."""
    if x1.__class__ is NDArray:
        if x2.__class__ is NDArray and x1._kind.dtype is x2._kind.dtype:
            return ARRAYS, x1, x2
        if x2.__class__ is float and x1._kind.differentiable:
            return ARRAYS, x1, constant(x2, x1._kind.dtype, x1)
    if isinstance(x1, np.generic):
        x1 = x1.item()
    if isinstance(x2, np.generic):
        x2 = x2.item()
    if isinstance(x1, Tensor) and isinstance(x2, Tensor):
        if x1.dtype is x2.dtype:
            return ARRAYS, x1, x2
    elif not isinstance(x2, (ValueOperators, np.ndarray)):
        x1 = operand(x1)
        dtype = beside(x2, x1.dtype)
        return ops_of(x1), cast(x1, dtype), constant(x2, dtype, x1)
    elif not isinstance(x1, (ValueOperators, np.ndarray)):
        x2 = operand(x2)
        dtype = beside(x1, x2.dtype)
        return ops_of(x2), constant(x1, dtype, x2), cast(x2, dtype)
    x1, x2 = together((x1, x2))
    dtype = promoted(x1.dtype, x2.dtype)
    return ops_of(x1), cast(x1, dtype), cast(x2, dtype)


def alike(values: Iterable[Any]) -> list[Any]:
    """Several operands in one element type."""
    operands = together(list(values))
    if not operands:
        raise ProgramError("no arrays were given; give one at least")
    dtype = result_type(*operands)
    return [cast(value, dtype) for value in operands]


def shape_of(shape: Any) -> tuple[int, ...]:
    """A shape that may be operands as one size."""
    return tuple(int(size) for size in shape) if isinstance(shape, (tuple, list)) else (int(shape),)


def axis_of(axis: Any, ndim: int) -> int:
    """An axis as a number from 0; an `IndexRangeError` if there is none."""
    if not -ndim <= axis < ndim:
        raise IndexRangeError(f"axis {axis} does not exist: there are {ndim} dimensions")
    return int(axis) % ndim


def axes_of(axis: Any, ndim: int) -> list[int]:
    """One axis, several, or for None all, as numbers from 0."""
    if axis is None:
        return list(range(ndim))
    axes = [axis_of(number, ndim) for number in (axis if isinstance(axis, (tuple, list)) else (axis,))]
    if len(set(axes)) != len(axes):
        raise ProgramError(f"axis {axis} names a dimension twice")
    return axes


def reshaped(x: Any, shape: Sequence[int]) -> Any:
    """The elements in another shape; one size may be -1."""
    f, sizes = ops_of(x), tuple(shape)
    if not isinstance(x, Tensor):
        return f.reshape2(x, shape=list(sizes))
    if -1 in sizes:
        fixed = prod(size for size in sizes if size != -1)
        if sizes.count(-1) > 1 or not fixed or x.size % fixed:
            raise ProgramError(f"{x.describe()} cannot have the shape {sizes}: it has {x.size} elements")
        sizes = tuple(x.size // fixed if size == -1 else size for size in sizes)
    if prod(sizes) != x.size:
        raise ProgramError(f"{x.describe()} cannot have the shape {sizes}: it has {x.size} elements")
    if all(sizes):
        return f.reshape2(x, shape=sizes)
    return f.reshape_like(x, blank(x, sizes))  # reshape2 copies a size where it reads 0


def blank(like: Tensor, shape: Sequence[int]) -> Tensor:
    """An array of a shape, whose elements are not read."""
    return array_like(like._kind.xp.empty(shape, like._kind.numpy_dtype))


def flat(x: Any) -> Any:
    """All elements in one dimension."""
    return x if x.ndim == 1 else reshaped(x, (-1,) if not isinstance(x, Tensor) or x.size else (0,))


def expanded(x: Any, shape: Sequence[int]) -> Any:
    """The elements, repeated along axes of size 1 and along new first axes, in a shape."""
    sizes = tuple(shape)
    if tuple(x.shape) == sizes:
        return x
    if isinstance(x, Tensor) and 0 in sizes:
        return ARRAYS.expand_to(x, blank(x, sizes))
    before = (*[1] * (len(sizes) - x.ndim), *x.shape)
    if any(size == -1 != now for size, now in zip(sizes, before, strict=True)):
        raise ProgramError(f"{x.describe()} does not broadcast to {list(sizes)}: a size is known only when the program runs")
    return ops_of(x).expand_v2(x, shape=list(sizes))


def spread(values: Sequence[Any]) -> list[Any]:
    """Operands broadcast to their common shape, also where a program knows a size only when it runs."""
    shape = reduce(broadcast, [tuple(value.shape) for value in values])
    if -1 not in shape:
        return [expanded(value, shape) for value in values]
    f = ops_of(values[0])
    full = next((value for value in values if tuple(value.shape) == shape), None)
    if full is None:
        full = reduce(f.elementwise_add, [f.fill_any_like(value, value=0.0, dtype=int(VarType.FP32)) for value in values])
    return [value if tuple(value.shape) == shape else f.expand_to(value, full) for value in values]


def known_size(x: Any, axis: int, caller: str) -> int:
    """The size of an axis; an error where a program knows it only when it runs."""
    size: int = x.shape[axis]
    if size < 0:
        raise ProgramError(f"{caller}: the size of axis {axis} of {list(x.shape)} is known only when the program runs")
    return size


def scalar(x: Any) -> Any:
    """The only element, in the shape ``()``: ops of Fluid 1.6 give it in ``[1]``."""
    return x if not x.shape else ops_of(x).squeeze2(x, axes=tuple(range(len(x.shape))))
