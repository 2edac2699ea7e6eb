"""Making, copying, joining and indexing tensors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from .. import unique_name
from ..building.layer_helper import LayerHelper, apply, listed
from ..errors import FluidTypeError, ProgramError
from ..initializer import WIDER, Constant, Initializer, constant_attrs, value_attrs
from ..ir.checked import check_variable
from ..ir.program import Parameter, Variable
from ..param_attr import AttrLike, ParamAttr
from ..values.types import DTypeLike, as_dtype

__all__ = [
    "argmax",
    "argmin",
    "assign",
    "cast",
    "concat",
    "create_global_var",
    "create_parameter",
    "create_tensor",
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
    "uniform_random",
    "zeros",
    "zeros_like",
]


def create_tensor(dtype: DTypeLike, name: str | None = None, persistable: bool = False) -> Variable:
    """A variable without a value yet, to be written by `assign` and the like."""
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
    """A parameter of its own: Xavier by default, zeros where `is_bias`."""
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
    """A variable of the root block that the startup program fills with `value`."""
    helper = LayerHelper("global_var")
    name = name if name is not None else unique_name.generate(helper.name)
    var = helper.create_global_variable(name=name, shape=shape, dtype=dtype, persistable=persistable, stop_gradient=True)
    helper.set_variable_initializer(var, Constant(value, force_cpu))
    return var


def cast(x: Variable, dtype: DTypeLike) -> Variable:
    """`x` with elements of another type."""
    check_variable(x, "cast: x")
    return apply("cast", {"X": x}, {"in_dtype": int(x.dtype), "out_dtype": int(as_dtype(dtype))})


def concat(input: Variable | Sequence[Variable], axis: int | Variable = 0, name: str | None = None) -> Variable:
    """Tensors joined along `axis`, in which alone their shapes may differ."""
    inputs: dict[str, Any] = {"X": listed(input)}
    attrs = {}
    if isinstance(axis, Variable):
        inputs["AxisTensor"] = axis
    else:
        attrs["axis"] = axis
    return apply("concat", inputs, attrs, name=name)


def sums(input: Variable | Sequence[Variable], out: Variable | None = None) -> Variable:
    """The sum of tensors of one shape, written to `out` if that is given."""
    return apply("sum", {"X": listed(input)}, outputs={"Out": out})


def assign(input: Any, output: Variable | None = None) -> Variable:
    """A copy of `input`, a variable, a numpy array, or numbers, written to `output` if that is given.

    An array is written into the program. float64 arrays, numpy's default, become float64 tensors, lists of floats
    float32.
    """
    if isinstance(input, Variable):
        return apply("assign", {"X": input}, outputs={"Out": output})
    if not isinstance(input, (np.ndarray, np.generic, bool, int, float, list, tuple)):
        raise FluidTypeError(f"assign: input should be a Variable, an array or numbers, not {type(input).__name__}")
    array = np.asarray(input)
    if not isinstance(input, (np.ndarray, np.generic)) and array.dtype == np.float64:
        array = array.astype(np.float32)
    dtype = output.dtype if output is not None and output.has_dtype else as_dtype(array.dtype)
    held = WIDER.get(dtype, dtype)
    if held is dtype:
        return apply("assign_value", {}, value_attrs(array, dtype), layer="assign", outputs={"Out": output})
    wide = apply("assign_value", {}, value_attrs(array.astype(dtype.numpy), held), layer="assign")
    attrs = {"in_dtype": int(held), "out_dtype": int(dtype)}
    return apply("cast", {"X": wide}, attrs, layer="assign", outputs={"Out": output})


def _shape_inputs(shape: Any) -> tuple[list[int], dict[str, Any]]:
    """A shape that may be, or hold, variables, as an attribute and input slots."""
    if isinstance(shape, Variable):
        return [], {"ShapeTensor": shape}
    extents = [-1 if isinstance(extent, Variable) else int(extent) for extent in shape]
    if not any(isinstance(extent, Variable) for extent in shape):
        return extents, {}
    known = [extent if isinstance(extent, Variable) else fill_constant([1], "int32", extent) for extent in shape]
    return extents, {"ShapeTensorList": known}


def fill_constant(
    shape: Sequence[int | Variable] | Variable,
    dtype: DTypeLike,
    value: float,
    force_cpu: bool = False,
    out: Variable | None = None,
) -> Variable:
    """A tensor whose every element is `value`; written to `out` if that is given.

    The result is an ordinary variable: a loop may overwrite it and gradients then flow through the new value. Set its
    ``stop_gradient`` if they should not.
    """
    extents, inputs = _shape_inputs(shape)
    attrs = constant_attrs(extents, as_dtype(dtype), value)
    if force_cpu:
        attrs["force_cpu"] = True
    return apply("fill_constant", inputs, attrs, outputs={"Out": out})


def fill_constant_batch_size_like(
    input: Variable,
    shape: Sequence[int],
    dtype: DTypeLike,
    value: float,
    input_dim_idx: int = 0,
    output_dim_idx: int = 0,
    force_cpu: bool = False,
) -> Variable:
    """Like `fill_constant`, but extent `output_dim_idx` of `shape` is extent `input_dim_idx` of `input`."""
    attrs = constant_attrs(shape, as_dtype(dtype), value)
    attrs.update(input_dim_idx=input_dim_idx, output_dim_idx=output_dim_idx)
    if force_cpu:
        attrs["force_cpu"] = True
    return apply("fill_constant_batch_size_like", {"Input": input}, attrs)


def ones(shape: Sequence[int], dtype: DTypeLike, force_cpu: bool = False) -> Variable:
    """A tensor of ones."""
    return fill_constant(shape, dtype, 1.0, force_cpu)


def zeros(shape: Sequence[int], dtype: DTypeLike, force_cpu: bool = False) -> Variable:
    """A tensor of zeros."""
    return fill_constant(shape, dtype, 0.0, force_cpu)


def zeros_like(x: Variable, out: Variable | None = None) -> Variable:
    """Zeros of the shape and type of `x`."""
    return apply("fill_zeros_like", {"X": x}, layer="zeros_like", outputs={"Out": out})


def ones_like(x: Variable, out: Variable | None = None) -> Variable:
    """Ones of the shape and type of `x`."""
    return apply("fill_any_like", {"X": x}, {"value": 1.0}, layer="ones_like", outputs={"Out": out})


def argmax(x: Variable, axis: int = 0) -> Variable:
    """int64 positions of the greatest elements along `axis`, which goes away."""
    return _arg("arg_max", x, axis)


def argmin(x: Variable, axis: int = 0) -> Variable:
    """int64 positions of the least elements along `axis`, which goes away."""
    return _arg("arg_min", x, axis)


def _arg(op_type: str, x: Variable, axis: int) -> Variable:
    found = apply(op_type, {"X": x}, {"axis": axis})
    found.stop_gradient = True
    return found


def range(start: float | Variable, end: float | Variable, step: float | Variable, dtype: DTypeLike) -> Variable:
    """``start, start + step, ...`` up to, without, `end`: numbers or variables of one element."""
    if not isinstance(step, Variable) and step == 0:
        raise ProgramError(f"range: step should not be 0, between start {start} and end {end}")
    values = {}
    for slot, value in (("Start", start), ("End", end), ("Step", step)):
        values[slot] = value if isinstance(value, Variable) else fill_constant([1], dtype, value)
    found = apply("range", values)
    found.stop_gradient = True
    return found


def uniform_random(
    shape: Sequence[int | Variable] | Variable, dtype: DTypeLike = "float32", min: float = -1.0, max: float = 1.0, seed: int = 0
) -> Variable:
    """Uniform random numbers in ``[min, max)``."""
    return _random("uniform_random", shape, dtype, seed, min=float(min), max=float(max))


def gaussian_random(
    shape: Sequence[int | Variable] | Variable,
    mean: float = 0.0,
    std: float = 1.0,
    seed: int = 0,
    dtype: DTypeLike = "float32",
) -> Variable:
    """Normal random numbers of this mean and standard deviation."""
    return _random("gaussian_random", shape, dtype, seed, mean=float(mean), std=float(std))


def _random(op_type: str, shape: Any, dtype: DTypeLike, seed: int, **attrs: float) -> Variable:
    extents, inputs = _shape_inputs(shape)
    return apply(op_type, inputs, {"shape": extents, "dtype": int(as_dtype(dtype)), "seed": seed, **attrs})


def linspace(start: float | Variable, stop: float | Variable, num: int | Variable, dtype: DTypeLike) -> Variable:
    """`num` numbers at equal distances from `start` to `stop`, both included: numbers or variables of one element."""
    if not isinstance(num, Variable) and num < 1:
        raise ProgramError(f"linspace: num should be at least 1, not {num}")
    values = {}
    for slot, value, kind in (("Start", start, dtype), ("Stop", stop, dtype), ("Num", num, "int32")):
        values[slot] = value if isinstance(value, Variable) else fill_constant([1], kind, value)
    found = apply("linspace", values, {"dtype": int(as_dtype(dtype))})
    found.stop_gradient = True
    return found


def eye(
    num_rows: int, num_columns: int | None = None, batch_shape: Sequence[int] | None = None, dtype: DTypeLike = "float32"
) -> Variable:
    """Ones on the diagonal of ``[num_rows, num_columns]`` (square by default), as often as `batch_shape` says."""
    if batch_shape is not None and any(extent < 1 for extent in batch_shape):
        raise ProgramError(f"eye: batch_shape {list(batch_shape)} should have no extent below 1")
    attrs = {"num_rows": num_rows, "num_columns": num_rows if num_columns is None else num_columns, "dtype": int(as_dtype(dtype))}
    found = apply("eye", {}, attrs)
    if batch_shape is not None:
        for _ in batch_shape:
            found = apply("unsqueeze2", {"X": found}, {"axes": [0]}, layer="eye")
        found = apply("expand", {"X": found}, {"expand_times": [*batch_shape, 1, 1]}, layer="eye")
    found.stop_gradient = True
    return found


def reverse(x: Variable, axis: int | Sequence[int]) -> Variable:
    """`x` with the order of its elements reversed along `axis`, or along each of several."""
    return apply("reverse", {"X": x}, {"axis": [axis] if isinstance(axis, int) else list(axis)})


def is_empty(x: Variable, cond: Variable | None = None) -> Variable:
    """Whether `x` has no elements: a bool of shape [1], written to `cond` if that is given."""
    found = apply("is_empty", {"X": x}, outputs={"Out": cond})
    found.stop_gradient = True
    return found


def sequence_mask(
    x: Variable, maxlen: int | Variable | None = None, dtype: DTypeLike = "int64", name: str | None = None
) -> Variable:
    """``[j < x[...] for j in range(maxlen)]`` as the last dimension: which elements of padded sequences of lengths `x` count.

    `maxlen` may be a variable; by default it is the greatest of `x`.
    """
    inputs: dict[str, Any] = {"X": x}
    attrs: dict[str, Any] = {"out_dtype": int(as_dtype(dtype))}
    if isinstance(maxlen, Variable):
        inputs["MaxLenTensor"] = maxlen
    elif maxlen is not None:
        attrs["maxlen"] = maxlen
    found = apply("sequence_mask", inputs, attrs, name=name)
    found.stop_gradient = True
    return found
