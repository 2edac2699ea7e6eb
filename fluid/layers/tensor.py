"""Making, copying, joining and indexing tensors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from .. import unique_name
from ..building.layer_helper import LayerHelper, apply, apply_many, listed
from ..errors import FluidTypeError, ProgramError
from ..initializer import WIDER, Constant, Initializer, constant_attrs, value_attrs
from ..ir.checked import check_variable
from ..ir.program import Parameter, Variable
from ..param_attr import AttrLike, ParamAttr
from ..values.bfloat16 import computable, converted
from ..values.numeric import numeric_array
from ..values.types import DTypeLike, VarType, as_dtype, is_floating

__all__ = [
    "argmax",
    "argmin",
    "assign",
    "cast",
    "concat",
    "create_global_var",
    "create_parameter",
    "create_tensor",
    "diag",
    "eye",
    "fill_constant",
    "fill_constant_batch_size_like",
    "gaussian_random",
    "is_empty",
    "linspace",
    "ones",
    "ones_like",
    "range",
    "reverse",
    "sequence_mask",
    "sums",
    "tril",
    "triu",
    "uniform_random",
    "zeros",
    "zeros_like",
]


def constant(var: Variable) -> Variable:
    """`var` itself, marked as a value that no gradient flows through."""
    var.stop_gradient = True
    return var


def constants_of(op_type: str, inputs: dict[str, Any], attrs: dict[str, Any], name: str | None = None, layer: str = "") -> Any:
    """The outputs of an op that no gradient flows through: one, or a tuple."""
    outputs = [constant(output) for output in apply_many(op_type, inputs, attrs, layer=layer or None, name=name)]
    return outputs[0] if len(outputs) == 1 else tuple(outputs)


def create_tensor(dtype: DTypeLike, name: str | None = None, persistable: bool = False) -> Variable:
    """A variable without a shape and a value, which `assign` and other layers can give it.

    Args:
        dtype: its element type.
        name: of the variable; by default ``create_tensor`` and a number.
        persistable: whether it keeps its value from run to run.

    >>> copy = layers.create_tensor("float32")
    >>> layers.assign(fluid.data("x", [2, 3]), copy).shape
    (2, 3)
    """
    helper = LayerHelper("create_tensor", name)
    return helper.create_variable(name=helper.name, dtype=dtype, persistable=persistable)


def create_parameter(
    shape: Sequence[int],
    dtype: DTypeLike,
    name: str | None = None,
    attr: AttrLike = None,
    is_bias: bool = False,
    default_initializer: Initializer | None = None,
) -> Parameter:
    """A parameter that belongs to no layer.

    Args:
        shape: all sizes known, above 0.
        dtype: element type, a float one unless an initializer is given.
        name: of the parameter.
        attr: a `ParamAttr`, or a name or an initializer; with it, `name` is ignored.
        is_bias: whether it is called ``.b_0`` rather than ``.w_0``, and first 0.
        default_initializer: used where `attr` has none; if None, Xavier, or zeros if `is_bias`.

    >>> weight = layers.create_parameter([784, 10], "float32", name="weight")
    >>> weight.shape, weight.trainable
    ((784, 10), True)
    """
    if attr is None:
        attr = ParamAttr(name=name)
    return LayerHelper("create_parameter").create_parameter(attr, shape, dtype, is_bias, default_initializer)


def create_global_var(
    shape: Sequence[int],
    value: float,
    dtype: DTypeLike,
    persistable: bool = False,
    force_cpu: bool = False,
    name: str | None = None,
) -> Variable:
    """A variable of the root block, filled with `value` by the startup program.

    Args:
        shape: all sizes known.
        value: a number.
        dtype: the element type.
        persistable: whether it keeps its value from run to run.
        name: of the variable.

    >>> counter = layers.create_global_var([1], value=0.0, dtype="int64", persistable=True)
    >>> print(fluid.default_startup_program())
    block 0 {
      var global_var_0_0: int64[1] persistable
      global_var_0_0 = fill_constant() {shape=[1], dtype=3}
    }
    """
    helper = LayerHelper("global_var")
    name = name if name is not None else unique_name.generate(helper.name)
    var = helper.create_global_variable(name=name, shape=shape, dtype=dtype, persistable=persistable, stop_gradient=True)
    helper.set_variable_initializer(var, Constant(value, force_cpu))
    return var


def cast(x: Variable, dtype: DTypeLike) -> Variable:
    """`x` converted to another element type.

    Args:
        x: a tensor of any shape.
        dtype: a name such as ``"int32"``, a numpy type, or a `VarType`. Floats are rounded towards zero to become integers;
            numbers other than 0 become True.

    >>> layers.cast(fluid.dygraph.to_variable([1.7, -1.7]), "int32")
    Tensor([ 1, -1], shape=[2], dtype=int32)
    """
    check_variable(x, "cast: x")
    return apply("cast", {"X": x}, {"in_dtype": int(x.dtype), "out_dtype": int(as_dtype(dtype))})


def concat(input: Variable | Sequence[Variable], axis: int | Variable = 0, name: str | None = None) -> Variable:
    """The tensors `input` joined along `axis`; in all other dimensions they must agree.

    Args:
        input: tensors of one type.
        axis: a number, negative ones counted from the end, or an int32 variable of one element.

    Raises:
        InferenceError: if the other dimensions differ.

    >>> x, y = fluid.data("x", [None, 3]), fluid.data("y", [None, 5])
    >>> layers.concat([x, y], axis=1).shape
    (-1, 8)
    """
    inputs: dict[str, Any] = {"X": listed(input)}
    attrs = {}
    if isinstance(axis, Variable):
        if is_floating(axis.dtype):
            raise FluidTypeError(f"concat: axis is {axis.describe()}; the tensors to join come in a list: concat([x, y], axis=0)")
        inputs["AxisTensor"] = axis
    else:
        attrs["axis"] = axis
    return apply("concat", inputs, attrs, name=name)


def sums(input: Variable | Sequence[Variable], out: Variable | None = None) -> Variable:
    """The sum of tensors of the same shape, written to `out` if given.

    Args:
        input: a tensor, or several of the same shape and type.
        out: a variable to write to; by default a new one.

    >>> x = fluid.dygraph.to_variable([1.0, 2.0])
    >>> layers.sums([x, x, x])
    Tensor([3., 6.], shape=[2], dtype=float32)
    """
    return apply("sum", {"X": listed(input)}, outputs={"Out": out})


def assign(input: Any, output: Variable | None = None) -> Variable:
    """A copy of `input` (a variable, a numpy array, or numbers), written to `output` if given.

    Args:
        input: a variable, a numpy array, a number or nested lists. All but variables become part of the program. Arrays keep
            their element type, float64 too; a list of floats becomes float32.
        output: a variable to write to; by default a new one.

    Raises:
        FluidTypeError: for any other `input`.

    >>> with fluid.dygraph.guard():
    ...     layers.assign(np.array([[1, 2, 3]], "int32"))
    Tensor([[1, 2, 3]], shape=[1, 3], dtype=int32)
    """
    if isinstance(input, Variable):
        return apply("assign", {"X": input}, outputs={"Out": output})
    if not isinstance(input, (np.ndarray, np.generic, bool, int, float, list, tuple)):
        raise FluidTypeError(f"assign: input should be a Variable, an array or numbers, not {type(input).__name__}")
    array = input if isinstance(input, (np.ndarray, np.generic)) else numeric_array(input, "assign: input is not an array")
    array = np.asarray(array)
    if not isinstance(input, (np.ndarray, np.generic)) and array.dtype == np.float64:
        array = array.astype(np.float32)
    dtype = output.dtype if output is not None and output.has_dtype else as_dtype(array.dtype)
    stored = WIDER.get(dtype, dtype)
    if stored is dtype:
        return apply("assign_value", {}, value_attrs(array, dtype), layer="assign", outputs={"Out": output})
    wide = apply("assign_value", {}, value_attrs(computable(converted(array, dtype.array_dtype)), stored), layer="assign")
    return apply("cast", {"X": wide}, {"in_dtype": int(stored), "out_dtype": int(dtype)}, layer="assign", outputs={"Out": output})


def _shape_inputs(shape: Any) -> tuple[list[int], dict[str, Any]]:
    """Attribute ``shape`` and input slots for a shape that may be, or contain, variables."""
    if isinstance(shape, Variable):
        return [], {"ShapeTensor": shape}
    sizes = [-1 if isinstance(size, Variable) else int(size) for size in shape]
    if not any(isinstance(size, Variable) for size in shape):
        return sizes, {}
    return sizes, {"ShapeTensorList": one_each(shape)}


def one_each(items: Sequence[int | Variable]) -> list[Variable]:
    """`items` as variables: integers become int32 constants of shape [1]."""
    return [item if isinstance(item, Variable) else fill_constant([1], "int32", item) for item in items]


def fill_constant(
    shape: Sequence[int | Variable] | Variable,
    dtype: DTypeLike,
    value: float | Variable,
    force_cpu: bool = False,
    out: Variable | None = None,
    name: str | None = None,
) -> Variable:
    """A tensor of `shape` filled with `value`, written to `out` if given.

    A loop may overwrite the result; gradients then flow through the new value unless you set its ``stop_gradient``.

    Args:
        shape: the sizes; it may be, or contain, int32 variables.
        dtype: the element type.
        value: a number, or a variable of one element.
        force_cpu: accepted; where the tensor lies, the place of the executor says.
        out: a variable to write to; by default a new one.

    >>> with fluid.dygraph.guard():
    ...     layers.fill_constant([2, 3], "float32", value=0.5)
    Tensor([[0.5, 0.5, 0.5],
            [0.5, 0.5, 0.5]], shape=[2, 3], dtype=float32)
    """
    if isinstance(value, Variable):
        return _filled(shape, as_dtype(dtype), value, out)
    sizes, inputs = _shape_inputs(shape)
    attrs = constant_attrs(sizes, as_dtype(dtype), value)
    if force_cpu:
        attrs["force_cpu"] = True
    return apply("fill_constant", inputs, attrs, outputs={"Out": out}, name=name)


def _filled(shape: Any, dtype: VarType, value: Variable, out: Variable | None) -> Variable:
    """`fill_constant` with a value that a run tells."""
    computed = VarType.INT32 if dtype is VarType.BOOL else dtype
    filled = fill_constant(shape, computed, 1.0) * cast(value, computed)
    filled = filled if dtype is computed else cast(filled, dtype)
    return filled if out is None else assign(filled, out)


def fill_constant_batch_size_like(
    input: Variable,
    shape: Sequence[int],
    dtype: DTypeLike,
    value: float,
    input_dim_idx: int = 0,
    output_dim_idx: int = 0,
    force_cpu: bool = False,
) -> Variable:
    """`fill_constant`, with the size of dimension `output_dim_idx` taken from dimension `input_dim_idx` of `input`.

    Args:
        input: a tensor; only its size is read.
        shape: the sizes; the one at `output_dim_idx` is replaced.
        dtype: the element type.
        value: a number.
        input_dim_idx: the dimension of `input` that the size is taken from.
        output_dim_idx: the dimension of the result that gets it.

    >>> batch = fluid.data("batch", [None, 3])
    >>> layers.fill_constant_batch_size_like(batch, [-1, 8], "float32", value=0.0).shape
    (-1, 8)
    """
    attrs = constant_attrs(shape, as_dtype(dtype), value)
    attrs.update(input_dim_idx=input_dim_idx, output_dim_idx=output_dim_idx)
    if force_cpu:
        attrs["force_cpu"] = True
    return apply("fill_constant_batch_size_like", {"Input": input}, attrs)


def ones(shape: Sequence[int | Variable] | Variable, dtype: DTypeLike, force_cpu: bool = False) -> Variable:
    """A tensor of ones.

    Args:
        shape: the sizes; it may be, or contain, int32 variables.
        dtype: the element type.

    >>> layers.ones([2, 3], "int64").shape
    (2, 3)
    """
    return fill_constant(shape, dtype, 1.0, force_cpu)


def zeros(shape: Sequence[int | Variable] | Variable, dtype: DTypeLike, force_cpu: bool = False) -> Variable:
    """A tensor of zeros.

    Args:
        shape: the sizes; it may be, or contain, int32 variables.
        dtype: the element type.

    >>> layers.zeros([2, 3], "int64").shape
    (2, 3)
    """
    return fill_constant(shape, dtype, 0.0, force_cpu)


def zeros_like(x: Variable, out: Variable | None = None) -> Variable:
    """Zeros with the shape and element type of `x`.

    Args:
        x: a tensor of any shape.
        out: a variable to write to; by default a new one.

    >>> layers.zeros_like(fluid.dygraph.to_variable([1.0, 2.0]))
    Tensor([0., 0.], shape=[2], dtype=float32)
    """
    return apply("fill_zeros_like", {"X": x}, layer="zeros_like", outputs={"Out": out})


def ones_like(x: Variable, out: Variable | None = None) -> Variable:
    """Ones with the shape and element type of `x`.

    Args:
        x: a tensor of any shape.
        out: a variable to write to; by default a new one.

    >>> layers.ones_like(fluid.dygraph.to_variable([1.0, 2.0]))
    Tensor([1., 1.], shape=[2], dtype=float32)
    """
    return apply("fill_any_like", {"X": x}, {"value": 1.0}, layer="ones_like", outputs={"Out": out})


def argmax(x: Variable, axis: int = 0) -> Variable:
    """The int64 indices of the largest elements along `axis`; the result lacks that dimension.

    Args:
        x: a tensor; of equal elements, the first counts.
        axis: the dimension; negative ones count from the end.

    >>> layers.argmax(fluid.dygraph.to_variable([[3, 1, 2], [4, 6, 5]]), axis=1)
    Tensor([0, 1], shape=[2], dtype=int64)
    """
    return constant(apply("arg_max", {"X": x}, {"axis": axis}))


def argmin(x: Variable, axis: int = 0) -> Variable:
    """The int64 indices of the smallest elements along `axis`; the result lacks that dimension.

    Args:
        x: a tensor; of equal elements, the first counts.
        axis: the dimension; negative ones count from the end.

    >>> layers.argmin(fluid.dygraph.to_variable([[3, 1, 2], [4, 6, 5]]), axis=1)
    Tensor([1, 0], shape=[2], dtype=int64)
    """
    return constant(apply("arg_min", {"X": x}, {"axis": axis}))


def range(start: float | Variable, end: float | Variable, step: float | Variable, dtype: DTypeLike) -> Variable:
    """The vector ``start, start + step, ...`` up to but excluding `end`; each bound is a number or a variable of one element.

    Args:
        start, end, step: numbers, or variables of one element and the type `dtype`; `step` may be negative, and is not 0.
        dtype: the element type.

    Returns:
        The vector; in a program its size, which only a run tells, is -1.

    Raises:
        ProgramError: if `step` is 0.

    >>> with fluid.dygraph.guard():
    ...     layers.range(0, 10, 3, "int64")
    Tensor([0, 3, 6, 9], shape=[4], dtype=int64)
    """
    if not isinstance(step, Variable) and step == 0:
        raise ProgramError(f"range: step should not be 0, between start {start} and end {end}")
    bounds = {"Start": start, "End": end, "Step": step}
    return constant(apply("range", {slot: _scalar(value, dtype) for slot, value in bounds.items()}))


def _scalar(value: float | Variable, dtype: DTypeLike) -> Variable:
    if not isinstance(value, Variable):
        return fill_constant([1], dtype, value)
    return value if value.dtype is as_dtype(dtype) else cast(value, dtype)


def uniform_random(
    shape: Sequence[int | Variable] | Variable, dtype: DTypeLike = "float32", min: float = -1.0, max: float = 1.0, seed: int = 0
) -> Variable:
    """Random numbers, uniform in ``[min, max)``.

    Args:
        shape: the sizes; it may be, or contain, int32 variables.
        dtype: a float type.
        min, max: the bounds.
        seed: of the random numbers, the same in every run; 0 draws new ones, which follow from ``program.random_seed`` if that is
            set.

    >>> layers.uniform_random([2, 3], min=0.0, max=1.0).shape
    (2, 3)
    """
    return random_numbers("uniform_random", shape, dtype, seed, min=float(min), max=float(max))


def gaussian_random(
    shape: Sequence[int | Variable] | Variable, mean: float = 0.0, std: float = 1.0, seed: int = 0, dtype: DTypeLike = "float32"
) -> Variable:
    """Normally distributed random numbers with this mean and standard deviation.

    Args:
        shape: the sizes; it may be, or contain, int32 variables.
        mean: the mean.
        std: the standard deviation, at least 0.
        seed: of the random numbers, the same in every run; 0 draws new ones, which follow from ``program.random_seed`` if that is
            set.
        dtype: a float type.

    >>> layers.gaussian_random([2, 3], std=0.1).shape
    (2, 3)
    """
    return random_numbers("gaussian_random", shape, dtype, seed, mean=float(mean), std=float(std))


def random_numbers(
    op_type: str, shape: Any, dtype: DTypeLike, seed: int, out: Variable | None = None, **attrs: float
) -> Variable:
    """The layer of an op that draws numbers."""
    sizes, inputs = _shape_inputs(shape)
    settings = {"shape": sizes, "dtype": int(as_dtype(dtype)), "seed": seed, **attrs}
    return apply(op_type, inputs, settings, outputs={"Out": out})


def linspace(start: float | Variable, stop: float | Variable, num: int | Variable, dtype: DTypeLike = "float32") -> Variable:
    """`num` evenly spaced numbers from `start` to `stop`, both included; arguments are numbers or variables of one element.

    Args:
        start, stop: numbers, or variables of one element and the type `dtype`.
        num: how many, at least 1; a number or an int32 variable of one element.
        dtype: the element type.

    Raises:
        ProgramError: if `num` is below 1.

    >>> with fluid.dygraph.guard():
    ...     layers.linspace(0.0, 1.0, 5, "float32")
    Tensor([0.  , 0.25, 0.5 , 0.75, 1.  ], shape=[5], dtype=float32)
    """
    if not isinstance(num, Variable) and num < 1:
        raise ProgramError(f"linspace: num should be at least 1, not {num}")
    inputs = {"Start": _scalar(start, dtype), "Stop": _scalar(stop, dtype), "Num": _scalar(num, "int32")}
    return constant(apply("linspace", inputs, {"dtype": int(as_dtype(dtype))}))


def diag(diagonal: Any) -> Variable:
    """The square matrix with the vector `diagonal` on its diagonal and zeros elsewhere.

    Args:
        diagonal: ``[N]``, a Variable or an array of numpy.

    >>> layers.diag(fluid.dygraph.to_variable([1, 2]))
    Tensor([[1, 0],
            [0, 2]], shape=[2, 2], dtype=int64)
    """
    return apply("diag", {"Diagonal": assign(diagonal) if isinstance(diagonal, np.ndarray) else diagonal})


def eye(
    num_rows: int, num_columns: int | None = None, batch_shape: Sequence[int] | None = None, dtype: DTypeLike = "float32"
) -> Variable:
    """The identity matrix ``[num_rows, num_columns]`` (square by default), repeated to ``[*batch_shape, rows, columns]``.

    Args:
        num_rows: number of rows.
        num_columns: number of columns; by default `num_rows`.
        batch_shape: sizes of the dimensions before it, above 0; by default none.
        dtype: the element type.

    Raises:
        ProgramError: if a size of `batch_shape` is below 1.

    >>> with fluid.dygraph.guard():
    ...     layers.eye(2, 3)
    Tensor([[1., 0., 0.],
            [0., 1., 0.]], shape=[2, 3], dtype=float32)
    """
    if batch_shape is not None and any(size < 1 for size in batch_shape):
        raise ProgramError(f"eye: batch_shape {list(batch_shape)} should have no size below 1")
    attrs = {"num_rows": num_rows, "num_columns": num_rows if num_columns is None else num_columns, "dtype": int(as_dtype(dtype))}
    matrix = apply("eye", {}, attrs)
    if batch_shape is not None:
        for _ in batch_shape:
            matrix = apply("unsqueeze2", {"X": matrix}, {"axes": [0]}, layer="eye")
        matrix = apply("expand", {"X": matrix}, {"expand_times": [*batch_shape, 1, 1]}, layer="eye")
    return constant(matrix)


def tril(input: Variable, diagonal: int = 0, name: str | None = None) -> Variable:
    """`input` with zeros above a diagonal of its matrices.

    Args:
        input: matrices ``[..., rows, columns]``.
        diagonal: 0 for the main diagonal, above 0 for one above it, below 0 for one below it.

    >>> layers.tril(fluid.dygraph.to_variable([[1, 2], [3, 4]]))
    Tensor([[1, 0],
            [3, 4]], shape=[2, 2], dtype=int64)
    """
    return apply("tril_triu", {"X": input}, {"diagonal": diagonal, "lower": True}, name=name, layer="tril")


def triu(input: Variable, diagonal: int = 0, name: str | None = None) -> Variable:
    """`input` with zeros below a diagonal of its matrices.

    Args:
        input: matrices ``[..., rows, columns]``.
        diagonal: 0 for the main diagonal, above 0 for one above it, below 0 for one below it.

    >>> layers.triu(fluid.dygraph.to_variable([[1, 2], [3, 4]]), diagonal=1)
    Tensor([[0, 2],
            [0, 0]], shape=[2, 2], dtype=int64)
    """
    return apply("tril_triu", {"X": input}, {"diagonal": diagonal, "lower": False}, name=name, layer="triu")


def reverse(x: Variable, axis: int | Sequence[int]) -> Variable:
    """`x` with its elements in reverse order along one axis or several.

    Args:
        x: a tensor.
        axis: one dimension, or several.

    >>> layers.reverse(fluid.dygraph.to_variable([[1, 2], [3, 4]]), axis=0)
    Tensor([[3, 4],
            [1, 2]], shape=[2, 2], dtype=int64)
    """
    return apply("reverse", {"X": x}, {"axis": [axis] if isinstance(axis, int) else list(axis)})


def is_empty(x: Variable, cond: Variable | None = None) -> Variable:
    """Whether `x` has no elements: a bool of shape [1], written to `cond` if given.

    Args:
        x: a tensor of any shape.
        cond: a bool variable to write to; by default a new one.

    >>> layers.is_empty(fluid.dygraph.to_variable([1.0, 2.0]))
    Tensor([False], shape=[1], dtype=bool)
    """
    return constant(apply("is_empty", {"X": x}, outputs={"Out": cond}))


def sequence_mask(
    x: Variable, maxlen: int | Variable | None = None, dtype: DTypeLike = "int64", name: str | None = None
) -> Variable:
    """Marks the valid steps of padded sequences of lengths `x`: ``mask[..., j] = j < x[...]`` for j below `maxlen`.

    Args:
        x: int lengths, of any shape.
        maxlen: a number or an int variable of one element; by default the largest length in `x`.
        dtype: element type of the mask.

    >>> layers.sequence_mask(fluid.dygraph.to_variable([1, 3]), maxlen=4)
    Tensor([[1, 0, 0, 0],
            [1, 1, 1, 0]], shape=[2, 4], dtype=int64)
    """
    inputs: dict[str, Any] = {"X": x}
    attrs: dict[str, Any] = {"out_dtype": int(as_dtype(dtype))}
    if isinstance(maxlen, Variable):
        inputs["MaxLenTensor"] = maxlen
    elif maxlen is not None:
        attrs["maxlen"] = maxlen
    return constant(apply("sequence_mask", inputs, attrs, name=name))
