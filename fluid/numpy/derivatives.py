"""Derivatives of plain functions of arrays, and functions of one row made functions of many.

An argument that is differentiated is an array, a number, or lists, tuples and dicts of them, such as the weights of a net. The
functions that these return can be differentiated again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any

from ..eager.functional import _gradients, _points
from ..eager.functional import jacobian as jacobian_of
from ..eager.functional import jvp as jvp_of
from ..eager.mode import enable_grad, state
from ..eager.tensor import Tensor
from ..errors import FluidTypeError, IndexRangeError, ProgramError
from ..values.types import VarType, is_complex, is_floating
from .array import NDArray
from .creation import as_array, asarray
from .manipulation import moveaxis, stack

__all__ = ["grad", "hessian", "jacobian", "jvp", "value_and_grad", "vjp", "vmap"]

_Function = Callable[..., Any]


# --------------------------------------------------------------------------------------------------------- nested arguments
def leaves_of(value: Any) -> list[Any]:
    """The numbers and arrays in nested lists, tuples and dicts, in order."""
    if isinstance(value, dict):
        return [leaf for item in value.values() for leaf in leaves_of(item)]
    if isinstance(value, (list, tuple)):
        return [leaf for item in value for leaf in leaves_of(item)]
    return [value]


def nested_like(value: Any, leaves: list[Any]) -> Any:
    """The same nested lists, tuples and dicts with other leaves, which are taken from the front of a list."""
    if isinstance(value, dict):
        return {key: nested_like(item, leaves) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        items = [nested_like(item, leaves) for item in value]
        return type(value)(*items) if hasattr(value, "_fields") else type(value)(items)
    return leaves.pop(0)


def _float_type(tensor: Tensor, caller: str) -> VarType:
    """The element type of an argument; an error if it holds no floats."""
    if not is_floating(tensor.dtype):
        raise FluidTypeError(f"{caller}: an argument is {tensor.describe()}; only floats have gradients: cast it")
    return tensor.dtype


def _inputs(values: Sequence[Any], caller: str) -> list[Tensor]:
    """Leaves as new points to differentiate by; still connected to their graphs inside another derivative."""
    tensors: list[Tensor] = []
    for value in values:
        tensor = value if isinstance(value, Tensor) else asarray(value)
        _float_type(tensor, caller)
        tensors.append(tensor)
    points = _points(tensors, caller, state.differentiating)
    for point in points:
        if point.__class__ is Tensor:
            point.__class__ = NDArray
    return points


def _arrays(values: Sequence[Any]) -> list[Any]:
    return [as_array(value) if isinstance(value, Tensor) else value for value in values]


def _numbers_of(argnum: int | Sequence[int], args: Sequence[Any], caller: str) -> list[int]:
    """The numbers of arguments from 0; an `IndexRangeError` for one that was not given by position."""
    numbers = [argnum] if isinstance(argnum, int) else list(argnum)
    for number in numbers:
        if not -len(args) <= number < len(args):
            raise IndexRangeError(
                f"{caller}: argument {number} was not given by position: there are {len(args)} positional arguments"
            )
    return [number % len(args) for number in numbers]


def _flattened(function: _Function, structure: list[Any]) -> _Function:
    """A function that returns the leaves of another's outputs as arrays, and keeps the outputs in `structure`."""

    def call(*args: Any) -> list[Any]:
        structure[:] = [function(*args)]
        return [asarray(leaf) for leaf in leaves_of(structure[0])]

    return call


def _value_of(output: Any, caller: str) -> Tensor:
    """The only output of a function, with one element."""
    if not isinstance(output, Tensor) or output.size != 1 or is_complex(output.dtype):
        described = output.describe() if isinstance(output, Tensor) else type(output).__name__
        raise ProgramError(f"{caller}: the function should give one real number, not {described}")
    return output


def _result(outputs: Any) -> Any:
    """Outputs without their graphs, except inside another derivative."""
    if state.differentiating:
        return outputs
    detached = [leaf.detach() if isinstance(leaf, Tensor) else leaf for leaf in leaves_of(outputs)]
    return nested_like(outputs, _arrays(detached))


# ----------------------------------------------------------------------------------------------------------------- gradients
def value_and_grad(function: _Function, argnum: int | Sequence[int] = 0) -> _Function:
    """A function that returns the value of a function and its gradient.

    Args:
        function: takes arrays, returns one number.
        argnum: the number of the argument to differentiate by, or several.

    Raises:
        ProgramError: when it is called, if the function gives another thing than one number.

    >>> import fluid.numpy as xp
    >>> value, slope = xp.value_and_grad(lambda x: x**2)(3.0)
    >>> float(value), float(slope)
    (9.0, 6.0)
    """

    @wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        chosen = _numbers_of(argnum, args, "grad")
        parts = [args[number] for number in chosen]
        with enable_grad():
            points = _inputs(leaves_of(parts), "grad")
            left = list(points)
            arguments = list(args)
            for number, part in zip(chosen, parts, strict=True):
                arguments[number] = nested_like(part, left)
            with _differentiating_here() as nested:
                output = _value_of(function(*arguments, **kwargs), "grad")
            gradients = _arrays(_gradients([output], points, [None], nested, retain=nested))
        slopes = [nested_like(part, gradients) for part in parts]
        return _result(output), slopes[0] if isinstance(argnum, int) else tuple(slopes)

    return call


class _differentiating_here:
    """Inside the ``with`` a function is differentiated; gives whether that is inside another derivative."""

    def __enter__(self) -> bool:
        self._before = state.differentiating
        state.differentiating = True
        return self._before

    def __exit__(self, *_: object) -> None:
        state.differentiating = self._before


def grad(function: _Function, argnum: int | Sequence[int] = 0) -> _Function:
    """The gradient of a function, as a function.

    Args:
        function: takes arrays, returns one number.
        argnum: the number of the argument to differentiate by, or several.

    Raises:
        ProgramError: when it is called, if the function gives another thing than one number.

    >>> import fluid.numpy as xp
    >>> slope = xp.grad(xp.tanh)
    >>> float(slope(0.0)), abs(float(xp.grad(slope)(0.0)))
    (1.0, 0.0)
    """
    both = value_and_grad(function, argnum)

    @wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        return both(*args, **kwargs)[1]

    return call


def vjp(function: _Function, *primals: Any) -> tuple[Any, _Function]:
    """The value of a function, and a function that multiplies a vector with its Jacobian matrix.

    Args:
        function: takes the primals, returns an array.
        primals: its arguments: arrays, numbers, or nested lists, tuples and dicts of them.

    >>> import fluid.numpy as xp
    >>> value, pull = xp.vjp(lambda x, y: x * y, 3.0, 4.0)
    >>> [float(part) for part in pull(xp.asarray(1.0))]
    [4.0, 3.0]
    """
    with enable_grad():
        points = _inputs(leaves_of(primals), "vjp")
        with _differentiating_here():
            outputs = function(*nested_like(primals, list(points)))
    listed = [asarray(leaf) for leaf in leaves_of(outputs)]

    def pull(cotangents: Any) -> Any:
        vectors = leaves_of(cotangents)
        if len(vectors) != len(listed):
            raise ProgramError(f"vjp: the function gave {len(listed)} arrays, which {len(vectors)} vectors cannot multiply")
        weights = [asarray(weight, dtype=output.dtype) for weight, output in zip(vectors, listed, strict=True)]
        return nested_like(primals, _arrays(_gradients(listed, points, weights, state.differentiating)))

    return _result(outputs), pull


def jvp(function: _Function, primals: Sequence[Any], tangents: Sequence[Any]) -> tuple[Any, Any]:
    """The value of a function, and how it changes as its arguments move.

    Args:
        function: takes the primals, returns an array, or nested lists, tuples and dicts of them.
        primals: its arguments, in a list: arrays, numbers, or nested lists, tuples and dicts of them.
        tangents: the direction of each argument, in its shape.

    >>> import fluid.numpy as xp
    >>> value, change = xp.jvp(lambda x: x**2, [3.0], [1.0])
    >>> float(value), float(change)
    (9.0, 6.0)
    """
    if not isinstance(primals, (list, tuple)):
        raise FluidTypeError(f"jvp: primals should be a list of all arguments, not {type(primals).__name__}")
    points, moves = [as_array(asarray(value)) for value in leaves_of(primals)], leaves_of(tangents)
    if len(points) != len(moves):
        raise ProgramError(f"jvp: {len(points)} arrays cannot move in {len(moves)} directions")
    directions = [asarray(move, dtype=_float_type(point, "jvp")) for move, point in zip(moves, points, strict=True)]
    structure: list[Any] = []
    flat = _flattened(lambda *args: function(*nested_like(primals, _arrays(args))), structure)
    outputs, products = jvp_of(flat, points, directions)
    return nested_like(structure[0], _arrays(outputs)), nested_like(structure[0], _arrays(products))


def jacobian(function: _Function, argnum: int = 0) -> _Function:
    """The derivatives of each element of a function's value by each element of an argument, as a function.

    Args:
        function: takes arrays, returns an array, or nested lists, tuples and dicts of them; the result is nested likewise.
        argnum: the number of the argument to differentiate by.

    >>> import fluid.numpy as xp
    >>> xp.jacobian(lambda x: x**2)(xp.asarray([1.0, 3.0]))
    NDArray([[2., 0.],
             [0., 6.]], dtype=float32)
    """

    @wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        (number,) = _numbers_of(argnum, args, "jacobian")
        point, structure = asarray(args[number]), []  # type: ignore[var-annotated]
        _float_type(point, "jacobian")
        flat = _flattened(lambda x: function(*args[:number], as_array(x), *args[number + 1 :], **kwargs), structure)
        matrices = jacobian_of(flat, point, vectorize=not state.differentiating)
        return nested_like(structure[0], _arrays(matrices))

    return call


def hessian(function: _Function, argnum: int = 0) -> _Function:
    """The second derivatives of a function of one value by each pair of elements of an argument, as a function.

    Args:
        function: takes arrays, returns one number.
        argnum: the number of the argument to differentiate by.

    >>> import fluid.numpy as xp
    >>> xp.hessian(lambda x: xp.sum(x**3))(xp.asarray([1.0, 2.0]))
    NDArray([[ 6.,  0.],
             [ 0., 12.]], dtype=float32)
    """
    return jacobian(grad(function, argnum), argnum)


# -------------------------------------------------------------------------------------------------------------- many at once
def vmap(function: _Function, in_axes: int | Sequence[int | None] = 0, out_axes: int = 0) -> _Function:
    """A function of one example as a function of many.

    It calls the function for one example after the other and stacks the results, so the time grows with their number. Its results
    have gradients, and it can be traced.

    Args:
        function: takes arrays of one example, returns an array, or a list, tuple or dict of them.
        in_axes: the axis of the examples in all arguments, or for each argument; None for an argument that all share.
        out_axes: the axis of the examples in the results.

    Raises:
        ProgramError: when it is called, if the arguments hold different numbers of examples, or none.

    >>> import fluid.numpy as xp
    >>> xp.vmap(lambda row: xp.sum(row**2))(xp.asarray([[1.0, 2.0], [3.0, 4.0]]))
    NDArray([ 5., 25.], dtype=float32)
    """

    @wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        axes = [in_axes] * len(args) if isinstance(in_axes, int) else list(in_axes)
        if len(axes) != len(args):
            raise ProgramError(f"vmap: in_axes has {len(axes)} entries for {len(args)} arguments")
        moved = [
            arg if axis is None else nested_like(arg, [moveaxis(asarray(leaf), axis, 0) for leaf in leaves_of(arg)])
            for arg, axis in zip(args, axes, strict=True)
        ]
        sizes = {leaf.shape[0] for arg, axis in zip(moved, axes, strict=True) if axis is not None for leaf in leaves_of(arg)}
        if len(sizes) != 1 or not max(sizes):
            raise ProgramError(f"vmap: the arguments hold {sorted(sizes)} examples; they should hold one number of them, not 0")
        results = []
        for number in range(sizes.pop()):
            rows = [
                arg if axis is None else nested_like(arg, [leaf[number] for leaf in leaves_of(arg)])
                for arg, axis in zip(moved, axes, strict=True)
            ]
            results.append(function(*rows, **kwargs))
        columns = zip(*[leaves_of(result) for result in results], strict=True)
        return nested_like(results[0], [moveaxis(stack([asarray(x) for x in column]), 0, out_axes) for column in columns])

    return call
