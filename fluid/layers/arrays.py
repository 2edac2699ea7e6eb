"""Layers of Fluid 1.8 with the names and arguments that libraries of arrays have."""

from __future__ import annotations

from collections.abc import Sequence

from ..building.layer_helper import apply, apply_many, listed
from ..errors import ProgramError
from ..ir.checked import check_variable
from ..ir.program import Variable
from ..values.types import DTypeLike, as_dtype
from .nn import transpose
from .tensor import cast, constant, fill_constant, random_numbers
from .tensor import range as range_of
from .vision import image_resize

__all__ = [
    "addcmul",
    "addmm",
    "allclose",
    "arange",
    "bmm",
    "clamp",
    "cross",
    "diag_embed",
    "dist",
    "dot",
    "elementwise_equal",
    "flip",
    "full",
    "full_like",
    "index_sample",
    "index_select",
    "interpolate",
    "kron",
    "log_softmax",
    "logsumexp",
    "meshgrid",
    "nonzero",
    "randint",
    "randn",
    "randperm",
    "roll",
    "t",
    "trace",
]


# ------------------------------------------------------------------------------------------------------------- arithmetic
def addcmul(
    input: Variable,
    tensor1: Variable,
    tensor2: Variable,
    value: float = 1.0,
    out: Variable | None = None,
    name: str | None = None,
) -> Variable:
    """``input + value * tensor1 * tensor2``.

    Args:
        input, tensor1, tensor2: tensors of one element type, of shapes that broadcast.
        value: a factor.
        out: a variable to write to; by default a new one.

    >>> x = fluid.dygraph.to_variable([1.0, 2.0])
    >>> layers.addcmul(x, x, x, value=0.5)
    Tensor([1.5, 4. ], shape=[2], dtype=float32)
    """
    products = apply("elementwise_mul", {"X": tensor1, "Y": tensor2}, layer="addcmul")
    scaled = products if value == 1.0 else apply("scale", {"X": products}, {"scale": value}, layer="addcmul")
    return apply("elementwise_add", {"X": input, "Y": scaled}, layer="addcmul", name=name, outputs={"Out": out})


def addmm(input: Variable, x: Variable, y: Variable, alpha: float = 1.0, beta: float = 1.0, name: str | None = None) -> Variable:
    """``beta * input + alpha * x @ y``.

    Args:
        input: a matrix, or what broadcasts to one.
        x, y: matrices ``[N, K]`` and ``[K, M]``.
        alpha, beta: factors.

    >>> x = fluid.dygraph.to_variable([[1.0, 2.0], [3.0, 4.0]])
    >>> layers.addmm(x, x, x, alpha=0.5)
    Tensor([[ 4.5,  7. ],
            [10.5, 15. ]], shape=[2, 2], dtype=float32)
    """
    return apply("addmm", {"Input": input, "X": x, "Y": y}, {"Alpha": alpha, "Beta": beta}, name=name)


def bmm(x: Variable, y: Variable, name: str | None = None) -> Variable:
    """The products of matrices ``[B, N, K]`` and ``[B, K, M]``.

    Args:
        x, y: stacks of matrices of one element type.

    >>> x = fluid.dygraph.to_variable([[[1.0, 2.0]], [[3.0, 4.0]]])
    >>> layers.bmm(x, layers.transpose(x, [0, 2, 1])).numpy().tolist()
    [[[5.0]], [[25.0]]]
    """
    return apply("bmm", {"X": x, "Y": y}, name=name)


def dot(x: Variable, y: Variable, name: str | None = None) -> Variable:
    """The inner products of vectors, or of the rows of matrices: ``[1]`` or ``[N, 1]``.

    Args:
        x, y: of one shape and element type.

    >>> x = fluid.dygraph.to_variable([[1.0, 2.0], [3.0, 4.0]])
    >>> layers.dot(x, x)
    Tensor([[ 5.],
            [25.]], shape=[2, 1], dtype=float32)
    """
    products = apply("elementwise_mul", {"X": x, "Y": y}, layer="dot")
    return apply("reduce_sum", {"X": products}, {"dim": [-1], "keep_dim": True}, layer="dot", name=name)


def cross(input: Variable, other: Variable, dim: int | None = None) -> Variable:
    """The cross products of vectors of three elements.

    Args:
        input, other: of one shape and element type.
        dim: the dimension of the vectors; by default the first one of size 3.

    >>> x, y = fluid.dygraph.to_variable([1.0, 0.0, 0.0]), fluid.dygraph.to_variable([0.0, 1.0, 0.0])
    >>> layers.cross(x, y)
    Tensor([0., 0., 1.], shape=[3], dtype=float32)
    """
    return apply("cross", {"X": input, "Y": other}, {} if dim is None else {"dim": dim})


def kron(x: Variable, y: Variable, out: Variable | None = None, name: str | None = None) -> Variable:
    """The Kronecker product.

    Args:
        x, y: tensors of one element type.
        out: a variable to write to; by default a new one.

    >>> x = fluid.dygraph.to_variable([1.0, 2.0])
    >>> layers.kron(x, x)
    Tensor([1., 2., 2., 4.], shape=[4], dtype=float32)
    """
    return apply("kron", {"X": x, "Y": y}, name=name, outputs={"Out": out})


def dist(x: Variable, y: Variable, p: float = 2) -> Variable:
    """The p-norm of ``x - y``, of shape [1].

    Args:
        x, y: of one element type, and of shapes that broadcast.
        p: the order of the norm: 0 counts differences, infinity is their maximum.

    >>> x, y = fluid.dygraph.to_variable([1.0, 5.0]), fluid.dygraph.to_variable([4.0, 1.0])
    >>> layers.dist(x, y)
    Tensor([5.], shape=[1], dtype=float32)
    """
    return apply("dist", {"X": x, "Y": y}, {"p": float(p)})


def log_softmax(input: Variable, axis: int | None = None, dtype: DTypeLike | None = None, name: str | None = None) -> Variable:
    """The logarithm of `softmax`.

    Args:
        input: float scores.
        axis: along which the probabilities sum to 1, by default the last one.
        dtype: a float type to compute with, by default the type of `input`.

    >>> layers.log_softmax(fluid.dygraph.to_variable([[0.0, 0.0]]))
    Tensor([[-0.6931, -0.6931]], shape=[1, 2], dtype=float32)
    """
    scores = input if dtype is None else cast(input, dtype)
    return apply("log_softmax", {"X": scores}, {"axis": -1 if axis is None else axis}, name=name)


def logsumexp(
    x: Variable,
    dim: int | Sequence[int] | None = None,
    keepdim: bool = False,
    out: Variable | None = None,
    name: str | None = None,
) -> Variable:
    """The logarithm of the sum of exponentials, without overflow.

    Args:
        x: a float tensor.
        dim: the dimensions to sum over, by default all.
        keepdim: leave the summed dimensions, with size 1.
        out: a variable to write to; by default a new one.

    >>> layers.logsumexp(fluid.dygraph.to_variable([0.0, 0.0]))
    Tensor([0.6931], shape=[1], dtype=float32)
    """
    attrs = {"reduce_all": True} if dim is None else {"axis": listed(dim)}
    return apply("logsumexp", {"X": x}, {"keepdim": keepdim, **attrs}, name=name, outputs={"Out": out})


def clamp(
    input: Variable,
    min: float | None = None,
    max: float | None = None,
    output: Variable | None = None,
    name: str | None = None,
) -> Variable:
    """`input` with its elements limited to the range from `min` to `max`.

    Args:
        input: a tensor of numbers.
        min, max: the limits; None for none, but not both.
        output: a variable to write to; by default a new one.

    >>> layers.clamp(fluid.dygraph.to_variable([-2.0, 0.5, 2.0]), max=1.0)
    Tensor([-2. ,  0.5,  1. ], shape=[3], dtype=float32)
    """
    check_variable(input, "clamp: input")
    if min is None and max is None:
        raise ProgramError("clamp: give min, max, or both")
    last = input
    for op_type, limit in (("elementwise_max", min), ("elementwise_min", max)):
        if limit is not None:
            is_end = op_type == "elementwise_min" or max is None
            limits = fill_constant([1], input.dtype, limit)
            out = {"Out": output if is_end else None}
            last = apply(op_type, {"X": last, "Y": limits}, layer="clamp", name=name if is_end else None, outputs=out)
    return last


# ---------------------------------------------------------------------------------------------------------- comparisons
def allclose(
    input: Variable, other: Variable, rtol: float = 1e-05, atol: float = 1e-08, equal_nan: bool = False, name: str | None = None
) -> Variable:
    """Whether all elements of `input` differ by at most ``atol + rtol * |other|`` from `other`: bool of shape [1].

    Args:
        input, other: of one shape and element type.
        rtol, atol: the tolerances.
        equal_nan: whether NaN equals NaN.

    >>> x = fluid.dygraph.to_variable([1.0, 2.0])
    >>> layers.allclose(x, x + 0.1, atol=0.2)
    Tensor([ True], shape=[1], dtype=bool)
    """
    attrs = {"rtol": str(rtol), "atol": str(atol), "equal_nan": equal_nan}
    is_close = apply("allclose", {"Input": input, "Other": other}, attrs)
    return constant(apply("reshape2", {"X": is_close}, {"shape": [1]}, layer="allclose", name=name))


def elementwise_equal(x: Variable, y: Variable, name: str | None = None) -> Variable:
    """Where `x` equals `y`: bool.

    Args:
        x, y: of one element type, and of shapes that broadcast.

    >>> x, y = fluid.dygraph.to_variable([1, 2]), fluid.dygraph.to_variable([1, 3])
    >>> layers.elementwise_equal(x, y)
    Tensor([ True, False], shape=[2], dtype=bool)
    """
    return constant(apply("equal", {"X": x, "Y": y}, layer="elementwise_equal", name=name))


# ------------------------------------------------------------------------------------------------------------- creation
def arange(
    start: float | Variable,
    end: float | Variable,
    step: float | Variable = 1,
    dtype: DTypeLike | None = None,
    name: str | None = None,
) -> Variable:
    """The vector ``start, start + step, ...`` up to but excluding `end`; see `range`.

    Args:
        start, end, step: numbers, or variables of one element.
        dtype: the element type, by default float32.

    >>> with fluid.dygraph.guard():
    ...     layers.arange(0, 10, 3, "int64")
    Tensor([0, 3, 6, 9], shape=[4], dtype=int64)
    """
    return range_of(start, end, step, "float32" if dtype is None else dtype)


def full(
    shape: Sequence[int | Variable] | Variable,
    fill_value: float | Variable,
    out: Variable | None = None,
    dtype: DTypeLike | None = None,
    device: str | None = None,
    stop_gradient: bool = True,
    name: str | None = None,
) -> Variable:
    """A tensor of `shape` filled with `fill_value`; see `fill_constant`.

    Args:
        shape: the sizes; it may be, or contain, int32 variables.
        fill_value: a number, or a variable of one element.
        out: a variable to write to; by default a new one.
        dtype: the element type, by default float32.
        device: accepted; where the tensor lies, the place of the executor says.
        stop_gradient: whether no gradient flows into the result.

    >>> with fluid.dygraph.guard():
    ...     layers.full([2], 0.5)
    Tensor([0.5, 0.5], shape=[2], dtype=float32)
    """
    return _stopped(fill_constant(shape, "float32" if dtype is None else dtype, fill_value, out=out, name=name), stop_gradient)


def full_like(
    input: Variable,
    fill_value: float,
    out: Variable | None = None,
    dtype: DTypeLike | None = None,
    device: str | None = None,
    stop_gradient: bool = True,
    name: str | None = None,
) -> Variable:
    """A tensor of the shape of `input`, filled with `fill_value`.

    Args:
        input: a tensor.
        fill_value: a number.
        out: a variable to write to; by default a new one.
        dtype: the element type, by default the type of `input`.
        device: accepted; where the tensor lies, the place of the executor says.
        stop_gradient: whether no gradient flows into the result.

    >>> layers.full_like(fluid.dygraph.to_variable([[1, 2]]), 7)
    Tensor([[7, 7]], shape=[1, 2], dtype=int64)
    """
    check_variable(input, "full_like: input")
    attrs = {"value": float(fill_value), "dtype": int(input.dtype if dtype is None else as_dtype(dtype))}
    return _stopped(
        apply("fill_any_like", {"X": input}, attrs, layer="full_like", name=name, outputs={"Out": out}), stop_gradient
    )


def _stopped(result: Variable, stop_gradient: bool) -> Variable:
    result.stop_gradient = stop_gradient
    return result


def randn(
    shape: Sequence[int | Variable] | Variable,
    out: Variable | None = None,
    dtype: DTypeLike | None = None,
    device: str | None = None,
    stop_gradient: bool = True,
    name: str | None = None,
) -> Variable:
    """Random numbers of the standard normal distribution.

    Args:
        shape: the sizes; it may be, or contain, int32 variables.
        out: a variable to write to; by default a new one.
        dtype: a float type, by default float32.
        device: accepted; where the tensor lies, the place of the executor says.
        stop_gradient: whether no gradient flows into the result.

    >>> layers.randn([2, 3]).shape
    (2, 3)
    """
    drawn = random_numbers("gaussian_random", shape, "float32" if dtype is None else dtype, 0, out, mean=0.0, std=1.0)
    return _stopped(drawn, stop_gradient)


def randint(
    low: int,
    high: int | None = None,
    shape: Sequence[int | Variable] | Variable | None = None,
    out: Variable | None = None,
    dtype: DTypeLike | None = None,
    device: str | None = None,
    stop_gradient: bool = False,
    seed: int = 0,
    name: str | None = None,
) -> Variable:
    """Random integers from `low` up to but excluding `high`, or from 0 up to but excluding `low`.

    Args:
        low, high: the range.
        shape: the sizes, by default [1]; it may be, or contain, int32 variables.
        out: a variable to write to; by default a new one.
        dtype: int64 or int32, by default int64.
        device: accepted; where the tensor lies, the place of the executor says.
        stop_gradient: accepted; no gradient flows into integers.
        seed: of the random numbers; see `uniform_random`.

    >>> layers.randint(0, 5, [2, 3]).shape
    (2, 3)
    """
    bounds = (0, low) if high is None else (low, high)
    kind = "int64" if dtype is None else dtype
    return random_numbers("randint", [1] if shape is None else shape, kind, seed, out, low=bounds[0], high=bounds[1])


def randperm(
    n: int,
    out: Variable | None = None,
    dtype: DTypeLike = "int64",
    device: str | None = None,
    stop_gradient: bool = True,
    seed: int = 0,
) -> Variable:
    """The integers from 0 to ``n - 1`` in a random order.

    Args:
        n: how many.
        out: a variable to write to; by default a new one.
        dtype: the element type.
        device: accepted; where the tensor lies, the place of the executor says.
        stop_gradient: accepted; no gradient flows into integers.
        seed: of the random numbers; see `uniform_random`.

    >>> with fluid.dygraph.guard():
    ...     sorted(layers.randperm(4).numpy().tolist())
    [0, 1, 2, 3]
    """
    attrs = {"n": n, "dtype": int(as_dtype(dtype)), "seed": seed}
    return constant(apply("randperm", {}, attrs, outputs={"Out": out}))


# ----------------------------------------------------------------------------------------------------- parts and orders
def diag_embed(input: Variable, offset: int = 0, dim1: int = -2, dim2: int = -1) -> Variable:
    """Matrices with the vectors of `input`, along its last dimension, on a diagonal, and zeros elsewhere.

    Args:
        input: a tensor.
        offset: 0 for the main diagonal, above 0 for one above it, below 0 for one below it.
        dim1, dim2: the dimensions of the matrices in the result.

    >>> layers.diag_embed(fluid.dygraph.to_variable([1, 2]))
    Tensor([[1, 0],
            [0, 2]], shape=[2, 2], dtype=int64)
    """
    return apply("diag_embed", {"Input": input}, {"offset": offset, "dim1": dim1, "dim2": dim2})


def flip(input: Variable, dims: int | Sequence[int], name: str | None = None) -> Variable:
    """`input` with its elements in reverse order along some dimensions.

    Args:
        input: a tensor.
        dims: one dimension, or several.

    >>> layers.flip(fluid.dygraph.to_variable([[1, 2], [3, 4]]), dims=[1])
    Tensor([[2, 1],
            [4, 3]], shape=[2, 2], dtype=int64)
    """
    return apply("flip", {"X": input}, {"axis": listed(dims)}, name=name)


def index_sample(x: Variable, index: Variable) -> Variable:
    """The elements of each row of `x` at the positions in the same row of `index`.

    Args:
        x: a matrix.
        index: int32 or int64, with a row for each of `x`.

    >>> x, index = fluid.dygraph.to_variable([[1, 2, 3], [4, 5, 6]]), fluid.dygraph.to_variable([[2], [0]])
    >>> layers.index_sample(x, index)
    Tensor([[3],
            [4]], shape=[2, 1], dtype=int64)
    """
    return apply("index_sample", {"X": x, "Index": index})


def index_select(input: Variable, index: Variable, dim: int = 0) -> Variable:
    """The slices of `input` along `dim` at some positions.

    Args:
        input: a tensor.
        index: int32 or int64 ``[N]``.
        dim: the dimension.

    >>> x = fluid.dygraph.to_variable([[1, 2, 3], [4, 5, 6]])
    >>> layers.index_select(x, fluid.dygraph.to_variable([2, 0]), dim=1)
    Tensor([[3, 1],
            [6, 4]], shape=[2, 2], dtype=int64)
    """
    return apply("index_select", {"X": input, "Index": index}, {"dim": dim})


def meshgrid(input: Sequence[Variable], name: str | None = None) -> list[Variable]:
    """The coordinates of the points of a grid, from those along each axis: a tensor ``[N1, N2, ...]`` for each vector.

    Args:
        input: vectors of one element type.

    >>> x, y = fluid.dygraph.to_variable([1, 2]), fluid.dygraph.to_variable([3, 4, 5])
    >>> [grid.numpy().tolist() for grid in layers.meshgrid([x, y])]
    [[[1, 1, 1], [2, 2, 2]], [[3, 4, 5], [3, 4, 5]]]
    """
    (grids,) = apply_many("meshgrid", {"X": list(input)}, name=name, count=len(input))
    return list(grids)


def nonzero(input: Variable, as_tuple: bool = False) -> Variable | tuple[Variable, ...]:
    """The positions of the elements that are not 0: int64 ``[count, dimensions]``.

    Args:
        input: a tensor.
        as_tuple: give the positions along each dimension apart, as ``[count, 1]``.

    >>> layers.nonzero(fluid.dygraph.to_variable([[1, 0], [0, 1]]))
    Tensor([[0, 0],
            [1, 1]], shape=[2, 2], dtype=int64)
    """
    check_variable(input, "nonzero: input")
    places = constant(apply("where_index", {"Condition": input}, layer="nonzero"))
    if not as_tuple:
        return places
    cuts = [{"axes": [1], "starts": [axis], "ends": [axis + 1]} for axis in range(input.ndim)]
    return tuple(constant(apply("slice", {"Input": places}, cut, layer="nonzero")) for cut in cuts)


def interpolate(
    input: Variable,
    out_shape: Variable | Sequence[int | Variable] | None = None,
    scale: float | Variable | None = None,
    name: str | None = None,
    resample: str = "BILINEAR",
    actual_shape: Variable | None = None,
    align_corners: bool = True,
    align_mode: int = 1,
    data_format: str = "NCHW",
) -> Variable:
    """`image_resize` by its later name.

    Args:
        input, out_shape, scale, resample, actual_shape, align_corners, align_mode, data_format: see `image_resize`.

    >>> layers.interpolate(fluid.data("x", [None, 3, 8, 8]), scale=2.0).shape
    (-1, 3, 16, 16)
    """
    sizes = (out_shape, scale, name, resample, actual_shape, align_corners, align_mode, data_format)
    return image_resize(input, *sizes)


def roll(input: Variable, shifts: int | Sequence[int], dims: int | Sequence[int] | None = None) -> Variable:
    """`input` with its elements shifted along some dimensions, around the ends.

    Args:
        input: a tensor.
        shifts: by how many places, one number for each dimension.
        dims: the dimensions; by default all elements are shifted as one vector.

    >>> layers.roll(fluid.dygraph.to_variable([[1, 2], [3, 4]]), 1)
    Tensor([[4, 1],
            [2, 3]], shape=[2, 2], dtype=int64)
    """
    return apply("roll", {"X": input}, {"shifts": listed(shifts), "axis": [] if dims is None else listed(dims)})


def t(input: Variable, name: str | None = None) -> Variable:
    """The transpose of a matrix; a vector or a number unchanged.

    Args:
        input: a tensor of at most two dimensions.

    >>> layers.t(fluid.dygraph.to_variable([[1, 2], [3, 4]]))
    Tensor([[1, 3],
            [2, 4]], shape=[2, 2], dtype=int64)
    """
    check_variable(input, "t: input")
    if input.ndim > 2:
        raise ProgramError(f"t: {input.name} is {input.describe()}; transpose takes more than two dimensions")
    return input if input.ndim < 2 else transpose(input, [1, 0], name=name)


def trace(
    input: Variable, offset: int = 0, dim1: int = 0, dim2: int = 1, out: Variable | None = None, name: str | None = None
) -> Variable:
    """The sums of the elements on a diagonal of matrices.

    Args:
        input: a tensor of at least two dimensions.
        offset: 0 for the main diagonal, above 0 for one above it, below 0 for one below it.
        dim1, dim2: the dimensions of the matrices.
        out: a variable to write to; by default a new one.

    >>> layers.trace(fluid.dygraph.to_variable([[1, 2], [3, 4]]))
    Tensor([5], shape=[1], dtype=int64)
    """
    attrs = {"offset": offset, "axis1": dim1, "axis2": dim2}
    return apply("trace", {"Input": input}, attrs, name=name, outputs={"Out": out})
