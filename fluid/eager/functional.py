"""Derivatives of functions: products with vectors, whole matrices, and checks by central differences.

A call inside a function that another call differentiates is recorded, as with ``create_graph=True``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from ..errors import BackwardError, FluidTypeError, ProgramError
from ..executor.binding.array_types import array_of, ones_like
from ..values.types import VarType
from .batched import batched_gradients
from .dispatch import namespace
from .engine import grad
from .mode import enable_grad, no_grad, state
from .tensor import Tensor, make

_Function = Callable[..., Any]


def _tensor_list(value: Any, label: str) -> list[Tensor]:
    tensors = list(value) if isinstance(value, (tuple, list)) else [value]
    for item in tensors:
        if not isinstance(item, Tensor):
            raise FluidTypeError(f"{label} should be a Tensor or several, not {type(item).__name__}")
    return tensors


def _shaped_like(values: Sequence[Any], like: Any) -> Any:
    """A tuple if `like` is a sequence, else the only value."""
    return tuple(values) if isinstance(like, (tuple, list)) else values[0]


def _points(inputs: Any, label: str, nested: bool) -> list[Tensor]:
    """The inputs as tensors to differentiate by; with `nested`, still connected to their graphs."""
    points = []
    for tensor in _tensor_list(inputs, f"{label}: inputs"):
        part = tensor.clone() if nested and not tensor._stop else tensor.detach()
        if part._stop:
            part.stop_gradient = False
        points.append(part)
    return points


@contextmanager
def _differentiating() -> Iterator[None]:
    """Inside the ``with``, derivatives are computed so that they can be differentiated."""
    before, state.differentiating = state.differentiating, True
    try:
        yield
    finally:
        state.differentiating = before


def _outputs_of(func: _Function, inputs: Sequence[Any]) -> Any:
    """Call a function in order to differentiate it by its inputs."""
    with enable_grad(), _differentiating():
        return func(*inputs)


def _zeros(tensor: Tensor) -> Tensor:
    kind = tensor._kind
    return make(kind.xp.zeros(kind.shape, kind.numpy_dtype), kind)


def _ones(tensor: Tensor) -> Tensor:
    kind = tensor._kind
    return make(ones_like(kind), kind)


def _gradients(
    outputs: Sequence[Tensor], inputs: Sequence[Tensor], weights: Sequence[Any], create_graph: bool, retain: bool = True
) -> list[Tensor]:
    """Like `grad`, with zeros where no output depends on an input."""
    pairs = [(output, weight) for output, weight in zip(outputs, weights, strict=True) if not output._stop]
    if not pairs:
        return [_zeros(tensor) for tensor in inputs]
    gradients = grad([p[0] for p in pairs], list(inputs), [p[1] for p in pairs], retain, create_graph, allow_unused=True)
    return [_zeros(tensor) if part is None else part for part, tensor in zip(gradients, inputs, strict=True)]


def _check_like(vectors: Sequence[Tensor], tensors: Sequence[Tensor], label: str) -> None:
    if [(v.shape, v.dtype) for v in vectors] != [(t.shape, t.dtype) for t in tensors]:
        raise ProgramError(
            f"{label}: v is {', '.join(v.describe() for v in vectors)}, but should be {', '.join(t.describe() for t in tensors)}"
        )


def _scalar_output(output: Any, label: str) -> Tensor:
    if not isinstance(output, Tensor) or output.size != 1:
        description = output.describe() if isinstance(output, Tensor) else type(output).__name__
        raise ProgramError(f"{label}: the function should give a tensor of one element, not {description}")
    return output


def vjp(func: _Function, inputs: Any, v: Any = None, create_graph: bool = False) -> tuple[Any, Any]:
    """The function's outputs, and the product of `v` with its Jacobian matrix: shaped like `inputs`.

    Args:
        func: takes the inputs, returns a tensor or several.
        inputs: a tensor, or several.
        v: shaped like the outputs; ones by default.
        create_graph: record the computation, so that the product can be differentiated.

    >>> outputs, product = dygraph.vjp(lambda x: x * x, dygraph.Tensor([1.0, 2.0]))
    >>> product.numpy()
    array([2., 4.], dtype=float32)
    """
    create_graph = create_graph or state.differentiating
    with enable_grad():
        points = _points(inputs, "vjp", create_graph)
        outputs = _outputs_of(func, points)
    listed = _tensor_list(outputs, "vjp: outputs")
    weights = [_ones(output) for output in listed] if v is None else _tensor_list(v, "vjp: v")
    _check_like(weights, listed, "vjp")
    products = _gradients(listed, points, weights, create_graph)
    return _plain(outputs, create_graph), _shaped_like(products, inputs)


def jvp(func: _Function, inputs: Any, v: Any = None, create_graph: bool = False) -> tuple[Any, Any]:
    """The function's outputs, and the product of its Jacobian matrix with `v`: how they change as inputs move along `v`.

    The gradient is linear in the weights of the outputs, and its derivative by these is this product, so the rules of `vjp`
    suffice. It can be differentiated again under ``create_graph=True``, and be nested in reverse mode.

    Args:
        func: takes the inputs, returns a tensor or several.
        inputs: a tensor, or several.
        v: shaped like the inputs; ones by default.
        create_graph: record the computation, so that the product can be differentiated.

    >>> outputs, product = dygraph.jvp(lambda x: x * x, dygraph.Tensor([1.0, 2.0]), dygraph.Tensor([1.0, 0.0]))
    >>> product.numpy()
    array([2., 0.], dtype=float32)
    """
    create_graph = create_graph or state.differentiating
    with enable_grad():
        points = _points(inputs, "jvp", create_graph)
        outputs = _outputs_of(func, points)
        listed = _tensor_list(outputs, "jvp: outputs")
        directions = [_ones(point) for point in points] if v is None else _tensor_list(v, "jvp: v")
        _check_like(directions, points, "jvp")
        weights = []
        for output in listed:
            weight = _zeros(output)
            weight.stop_gradient = False
            weights.append(weight)
        moved = _gradients(listed, points, weights, True)
        products = _gradients(moved, weights, directions, create_graph)
    return _plain(outputs, create_graph), _shaped_like(products, outputs)


def jacobian(func: _Function, inputs: Any, create_graph: bool = False, vectorize: bool = False) -> Any:
    """The derivatives of each output element by each input element, of shape ``[*output, *input]``.

    One tensor for one input and one output; else a tuple over inputs, over outputs, or over outputs of tuples over inputs.

    Args:
        func: takes the inputs, returns a tensor or several.
        inputs: a tensor, or several.
        create_graph: record the computation, so that the matrix can be differentiated.
        vectorize: go back through the function once for all elements of an output, and not once for each. This takes much less
            time, and as much memory as the gradients of all elements together; results may differ in rounding. What cannot be
            computed of all at once (a `PyLayer`, hooks, ops whose gradient says nothing of batches) is computed of one after
            another, and so is all of it while a function is traced.

    >>> dygraph.jacobian(lambda x: x * x, dygraph.Tensor([1.0, 2.0])).numpy()
    array([[2., 0.],
           [0., 4.]], dtype=float32)
    """
    create_graph = create_graph or state.differentiating
    with enable_grad():
        points = _points(inputs, "jacobian", create_graph)
        outputs = _outputs_of(func, points)
    of_output = _rows_at_once if vectorize and state.tracer is None else _row_by_row
    rows = []
    for output in _tensor_list(outputs, "jacobian: outputs"):
        if not output.size:
            raise ProgramError("jacobian: the output has no elements")
        rows.append(_shaped_like(of_output(output, points, create_graph), inputs))
    return _shaped_like(rows, outputs)


def _row_by_row(output: Tensor, points: Sequence[Tensor], create_graph: bool) -> list[Tensor]:
    """The derivatives of each element of an output by the elements of each point."""
    parts: list[list[Tensor]] = [[] for _ in points]
    for number in range(output.size):
        weight = _zeros(output)
        weight._array.reshape(-1)[number] = 1
        for part, gradient in zip(parts, _gradients([output], points, [weight], create_graph), strict=True):
            part.append(gradient)
    with _recording(create_graph):
        return [_stacked(part, output.shape) for part in parts]


def _rows_at_once(output: Tensor, points: Sequence[Tensor], create_graph: bool) -> list[Tensor]:
    """Like `_row_by_row`, in one pass."""
    xp, size = output._kind.xp, output.size
    gradients: list[Tensor | None] = [None] * len(points)
    if not output._stop:
        weights = Tensor._of(array_of(xp.eye(size).reshape(size, *output.shape), output.dtype))
        gradients = batched_gradients(output, points, weights, create_graph)
    shapes = [(*output.shape, *point.shape) for point in points]
    with _recording(create_graph):
        return [
            Tensor._of(xp.zeros(shape, point._kind.numpy_dtype)) if gradient is None else gradient.reshape(shape)
            for shape, point, gradient in zip(shapes, points, gradients, strict=True)
        ]


def hessian(func: _Function, inputs: Any, create_graph: bool = False, vectorize: bool = False) -> Any:
    """The second derivatives of a function with one output element, ``[*input, *input]``; for several inputs, a tuple of rows.

    Args:
        func: takes the inputs, returns a tensor of one element.
        inputs: a tensor, or several.
        create_graph, vectorize: as in `jacobian`, of the gradient.

    >>> dygraph.hessian(lambda x: (x * x * x).sum(), dygraph.Tensor([1.0, 2.0])).numpy()
    array([[ 6.,  0.],
           [ 0., 12.]], dtype=float32)
    """

    def slope(*points: Tensor) -> Any:
        value = _scalar_output(func(*points), "hessian")
        return tuple(_gradients([value], points, [None], True))

    rows = jacobian(slope, inputs if isinstance(inputs, (tuple, list)) else [inputs], create_graph, vectorize)
    return rows if isinstance(inputs, (tuple, list)) else rows[0][0]


def hvp(func: _Function, inputs: Any, v: Any = None, create_graph: bool = False) -> tuple[Any, Any]:
    """The output of a function with one output element, and the product of its Hessian matrix with `v`: shaped like `inputs`.

    Args:
        func: takes the inputs, returns a tensor of one element.
        inputs: a tensor, or several.
        v: shaped like the inputs; ones by default.
        create_graph: record the computation, so that the product can be differentiated.

    >>> output, product = dygraph.hvp(lambda x: (x * x * x).sum(), dygraph.Tensor([1.0, 2.0]))
    >>> product.numpy()
    array([ 6., 12.], dtype=float32)
    """
    create_graph = create_graph or state.differentiating
    with enable_grad():
        points = _points(inputs, "hvp", create_graph)
        output = _scalar_output(_outputs_of(func, points), "hvp")
        directions = [_ones(point) for point in points] if v is None else _tensor_list(v, "hvp: v")
        _check_like(directions, points, "hvp")
        slopes = _gradients([output], points, [None], True)
    products = _gradients(slopes, points, directions, create_graph)
    return _plain(output, create_graph), _shaped_like(products, inputs)


vhp = hvp
"""The matrix is its own transpose."""


def _recording(create_graph: bool) -> Any:
    return enable_grad() if create_graph else no_grad()


def _plain(outputs: Any, connected: bool) -> Any:
    """The outputs, detached from the graph unless their gradients are wanted."""
    if connected:
        return outputs
    return tuple(output.detach() for output in outputs) if isinstance(outputs, (tuple, list)) else outputs.detach()


def _stacked(parts: Sequence[Tensor], shape: Sequence[int]) -> Tensor:
    return namespace.stack(list(parts), axis=0).reshape([*shape, *parts[0].shape])  # type: ignore[no-any-return]


# -------------------------------------------------------------------------------------------------------------- checks
def gradcheck(
    func: _Function, inputs: Any, eps: float = 1e-6, atol: float = 1e-5, rtol: float = 1e-3, raise_exception: bool = True
) -> bool:
    """Compare gradients of a function with central differences, element by element.

    Args:
        func: takes the inputs, returns a tensor or several.
        inputs: float64 tensors that require a gradient, and other arguments of the function.
        eps: by how much an element is changed.
        atol, rtol: tolerances, absolute and relative to the difference quotient.
        raise_exception: raise an error that says where they differ, instead of returning False.

    >>> dygraph.gradcheck(lambda x: x * x * x, [dygraph.Tensor([1.0, 2.0], "float64", stop_gradient=False)])
    True
    """
    args = list(inputs) if isinstance(inputs, (tuple, list)) else [inputs]
    points = [arg for arg in args if isinstance(arg, Tensor) and not arg._stop]
    if not points:
        raise ProgramError("gradcheck: no input requires a gradient; set stop_gradient=False on one")
    for point in points:
        if point.dtype is not VarType.FP64:
            raise FluidTypeError(f"gradcheck: {point.describe()} is not precise enough for differences; use float64")
    outputs = [output for output in _tensor_list(_outputs_of(func, args), "gradcheck: outputs") if output._kind.differentiable]
    for position, output in enumerate(outputs):
        expected = [np.zeros((output.size, point.size)) for point in points]
        for index, point in enumerate(points):
            flat = point._array.reshape(-1)
            for number in range(point.size):
                ahead, behind = (_moved(func, args, flat, number, by, position) for by in (eps, -eps))
                expected[index][:, number] = (ahead - behind) / (2 * eps)
        for row in range(output.size):
            weight = _zeros(output)
            weight._array.reshape(-1)[row] = 1
            gradients = _gradients([output], points, [weight], False)
            for index, part in enumerate(gradients):
                values = part.numpy().reshape(-1)
                if np.allclose(values, expected[index][row], rtol, atol, equal_nan=True):
                    continue
                if not raise_exception:
                    return False
                worst = int(np.abs(values - expected[index][row]).argmax())
                raise BackwardError(
                    f"gradcheck: the derivative of element {row} of output {position} by element {worst} of input {index} is "
                    f"{values[worst]:.6g}, but central differences give {expected[index][row][worst]:.6g}"
                )
    return True


def _moved(func: _Function, args: list[Any], flat: Any, number: int, by: float, position: int) -> Any:
    before = flat[number].item()
    flat[number] = before + by
    try:
        with no_grad():
            outputs = [output for output in _tensor_list(func(*args), "gradcheck: outputs") if output._kind.differentiable]
        return outputs[position].numpy().reshape(-1)
    finally:
        flat[number] = before


def gradgradcheck(func: _Function, inputs: Any, grad_outputs: Any = None, **kwargs: Any) -> bool:
    """Like `gradcheck`, for the gradients of the function's gradients.

    Args:
        func, inputs: see `gradcheck`.
        grad_outputs: weights of the outputs' elements; random by default.
        kwargs: further arguments of `gradcheck`.

    >>> dygraph.gradgradcheck(lambda x: x * x * x, [dygraph.Tensor([1.0, 2.0], "float64", stop_gradient=False)])
    True
    """
    args = list(inputs) if isinstance(inputs, (tuple, list)) else [inputs]
    with enable_grad():
        outputs = [output for output in _tensor_list(func(*args), "gradgradcheck: outputs") if not output._stop]
    if grad_outputs is None:
        rng = np.random.default_rng(0)
        weights = [Tensor(rng.standard_normal(output.shape), "float64", stop_gradient=False) for output in outputs]
    else:
        weights = _tensor_list(grad_outputs, "gradgradcheck: grad_outputs")
    count = len(weights)

    def slope(*values: Any) -> Any:
        with enable_grad():
            points = [v for v in values[count:] if isinstance(v, Tensor) and not v._stop]
            results = [output for output in _tensor_list(func(*values[count:]), "gradgradcheck: outputs") if not output._stop]
            return tuple(_gradients(results, points, values[:count], True))

    return gradcheck(slope, [*weights, *args], **kwargs)
