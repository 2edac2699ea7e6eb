"""Layers of `fluid.layers` as objects that keep their parameters.

Most call the function of the same name, which requests its parameters in each call: the first call makes them, when the input's
shape is known, and the object keeps them.

Constructors take two forms. In Fluid 1.6 they begin with a name, or None: ``Conv2D("conv", 8, 3)``. In Fluid 1.7 and 1.8 they
begin with the sizes of the input: ``Conv2D(3, 8, 3)``, which makes the parameters at once.
"""

from __future__ import annotations

import functools
import inspect
import itertools
import math
import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NoReturn

import numpy as np

from .. import layers
from ..building.layer_helper import extents, keeping, listed, not_an_activation
from ..building.weight_norm import PARTS
from ..eager.dispatch import namespace
from ..eager.mode import no_grad, state, tracing
from ..eager.program import EAGER
from ..eager.tensor import Tensor
from ..errors import FluidTypeError, ProgramError, arguments_text, type_name
from ..initializer import Uniform
from ..ir.program import Variable, program_guard
from ..layers import nn as functional
from ..opdef import registry
from ..ops.rnn import MODES, Geometry
from ..param_attr import AttrLike, ParamAttr
from ..values.types import DTypeLike, VarType, accumulated
from .container import LayerList
from .layers import Layer
from .twins import appending, drawing_for_program, expect_parameters

__all__ = [
    "FC",
    "GRU",
    "LSTM",
    "NCE",
    "BatchNorm",
    "BilinearTensorProduct",
    "Conv2D",
    "Conv2DTranspose",
    "Conv3D",
    "Conv3DTranspose",
    "Dropout",
    "Embedding",
    "GRUUnit",
    "GroupNorm",
    "InstanceNorm",
    "LayerNorm",
    "Linear",
    "MultiHeadAttention",
    "PRelu",
    "Pool2D",
    "RowConv",
    "SequenceConv",
    "SpectralNorm",
    "TransformerEncoder",
    "TransformerEncoderLayer",
]


def _layer_arguments(arguments: dict[str, Any], *left_out: str) -> dict[str, Any]:
    """Select the constructor arguments that the layer function takes too."""
    excluded = ("self", "__class__", "name_scope", "name", "dtype", *left_out)
    return {name: value for name, value in arguments.items() if name not in excluded}


def _refuse(layer: Layer, value: Any) -> NoReturn:
    description = f"{value.name}, a Variable of a program" if hasattr(value, "block") else f"a {type_name(value)}"
    raise FluidTypeError(f"{layer.full_name()} takes tensors, not {description}; dygraph.to_variable makes one of an array")


def _attrs_in(arguments: Any) -> list[Any]:
    """The attributes of weights and bias among the arguments of a layer's function."""
    return [ParamAttr._to_attr(attr) for key in ("param_attr", "bias_attr") for attr in listed(arguments.get(key))]


class _Functional(Layer):
    """A layer of `fluid.layers` that keeps its parameters."""

    _names: Sequence[str] = ("weight",)
    """Names of the parameters other than the bias, in the order of the function's requests; empty: it has no parameters."""
    _old_names: Mapping[str, str] = {}
    """Names of parameters in the classes of Fluid 1.6 -> names here."""
    _arguments: Any
    """Arguments of the layer's function."""
    _has_old_form: bool
    """Whether the constructor was called as in Fluid 1.6, with a name first."""

    def __init__(self, name_scope: str | None, dtype: DTypeLike = VarType.FP32) -> None:
        if name_scope is not None and not isinstance(name_scope, str):
            raise FluidTypeError(f"{type(self).__name__}: the first argument is the layer's name, or None, not {name_scope!r}")
        super().__init__(name_scope, dtype)
        self.__dict__["_made"] = not self._names

    def _call(self, layer: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        args = tuple(Tensor(value) if isinstance(value, np.ndarray) else value for value in args)  # as in Fluid 1.6
        for value in args:
            if value is not None and not isinstance(value, Variable):
                _refuse(self, value)
        program = state.target or EAGER
        names = itertools.chain(self._names, (f"weight_{number}" for number in itertools.count(1)))
        with program_guard(program, program.startup), keeping(self._keep(names), self.full_name()):
            result = layer(*args, **kwargs)
        if not self._made:
            self.__dict__["_made"] = True
            if self._given:
                self._tell_unused(list(self._given), stacklevel=5)
            else:
                self.__dict__["_given"] = None
        return result

    def _make_later(self, arguments: Mapping[str, Any]) -> None:
        """Keep the arguments of the layer's function; the first call makes the parameters."""
        self._arguments = arguments
        if any(attr and attr.name is None for attr in _attrs_in(arguments)):
            expect_parameters(self._full_name)

    def _make(self, layer: Callable[..., Any], *shapes: Sequence[int], **kwargs: Any) -> None:
        """Make the parameters in advance, by a call with zeros of these shapes."""
        self._make_by(lambda: [Tensor(np.zeros(shape), self._dtype) for shape in shapes], layer, **kwargs)

    def _make_by(self, inputs: Callable[[], Sequence[Tensor]], layer: Callable[..., Any], **kwargs: Any) -> None:
        """Make the parameters in advance, by a call with these tensors."""
        with drawing_for_program(), appending(None), tracing(None), no_grad():
            self._call(layer, *inputs(), **kwargs)

    def _may_make(self, name: str) -> bool:
        name = re.sub(f"({'|'.join(PARTS)})$", "", name)
        return name == "bias" or name in self._names or re.fullmatch(r"weight_\d+", name) is not None

    def _names_its(self, name: str) -> bool:
        names = [attr.name for attr in _attrs_in(self.__dict__.get("_arguments", {})) if attr and attr.name is not None]
        return name.startswith((f"{self._full_name}.w_", f"{self._full_name}.b_")) or any(
            name in (one, *(one + part for part in PARTS)) for one in names
        )

    @property
    def weight(self) -> Any:
        """The weight; None before the first call, or where there is none."""
        return self._parameter("weight")

    @property
    def bias(self) -> Any:
        """The bias; None before the first call, or where there is none."""
        return self._parameter("bias")

    def __getattr__(self, name: str) -> Any:
        name = self._old_names.get(name, name)
        is_parameter = name == "bias" or name in self._names
        return self._parameter(name) if is_parameter and "_parameters" in self.__dict__ else super().__getattr__(name)

    def __setattr__(self, name: str, value: Any) -> None:
        name = self._old_names.get(name, name)
        if value is None and name in ("bias", *self._names):
            self._drop(name)
            self._taken_away.add(name)
        else:
            super().__setattr__(name, value)

    def __delattr__(self, name: str) -> None:
        super().__delattr__(self._old_names.get(name, name))


def _begins_with_a_name(args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
    """Whether a constructor is called in the form of Fluid 1.6."""
    return "name_scope" in kwargs or (bool(args) and (args[0] is None or isinstance(args[0], str)))


def _name_is_optional(init: Callable[..., None]) -> Callable[..., None]:
    """Let a constructor, which takes a name first, be called without it, as in Fluid 1.7."""

    @functools.wraps(init)
    def call(self: _Functional, *args: Any, **kwargs: Any) -> None:
        self.__dict__["_has_old_form"] = _begins_with_a_name(args, kwargs)
        if self._has_old_form:
            init(self, *args, **kwargs)
        else:
            init(self, None, *args, **kwargs)

    return call


def _takes_width_or_name(init: Callable[..., None]) -> Callable[..., None]:
    """As `_name_is_optional`, for `NCE`: without a name, the second argument is `dim`."""

    @functools.wraps(init)
    def call(self: _Functional, *args: Any, **kwargs: Any) -> None:
        if _begins_with_a_name(args, kwargs):
            init(self, *args, **kwargs)
        elif len(args) > 1:
            init(self, None, args[0], *args[2:], dim=args[1], **kwargs)
        else:
            init(self, None, *args, **kwargs)

    return call


def _parameter(name: str, annotation: str, default: Any = inspect.Parameter.empty) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.POSITIONAL_OR_KEYWORD, default=default, annotation=annotation)


class _OfFunction(_Functional):
    """A layer whose constructor takes the arguments of its function."""

    __signature__: inspect.Signature
    _function: Callable[..., Any]
    _sized_signature: inspect.Signature
    """The arguments in the form of Fluid 1.7."""
    _sizes: frozenset[str]
    """Names of arguments in that form that only tell shapes: the function does not take them."""

    def __init_subclass__(
        cls,
        of: Callable[..., Any] | None = None,
        arguments: str = "",
        inputs: str = "input",
        dtype: DTypeLike = "float32",
        sized: str = "",
        **kwargs: Any,
    ) -> None:
        """Give a class its constructor and `forward`.

        Args:
            of: the layer's function, whose annotations and defaults the arguments have; None for a user's class that inherits.
            arguments: names of the constructor's arguments after `name_scope`, in the order of Fluid 1.6.
            inputs: names of the arguments of `forward`.
            dtype: the default of an argument `dtype`.
            sized: names of the constructor's arguments in Fluid 1.7, by default as in Fluid 1.6; ``=None`` marks an optional one
                that `of` does not take.
        """
        super().__init_subclass__(**kwargs)
        if of is not None:
            parameters = {**inspect.signature(of).parameters, "dtype": _parameter("dtype", "DTypeLike", dtype)}
            name_scope = _parameter("name_scope", "str | None")
            cls.__signature__ = inspect.Signature([name_scope, *(parameters[name] for name in arguments.split())])
            names = [name.removesuffix("=None") for name in (sized or arguments).split()]
            cls._sizes = frozenset(names).difference(parameters)
            parameters |= {
                name: _parameter(name, "int", None if f"{name}=None" in sized else inspect.Parameter.empty) for name in cls._sizes
            }
            cls._sized_signature = inspect.Signature([parameters[name] for name in names])
            cls._function = staticmethod(of)
            if "forward" not in cls.__dict__:
                cls.forward = _forward_of(of, inputs.split())  # type: ignore[method-assign]

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        is_named = self._is_named(args, kwargs)
        signature = self.__signature__ if is_named else self._sized_signature
        try:
            bound = signature.bind(*args, **kwargs)
        except TypeError as error:
            unknown = next((name for name in kwargs if name not in signature.parameters), None)
            problem = str(error) if unknown is None else f"there is no argument {unknown!r}"
            raise FluidTypeError(f"{type(self).__name__}: {problem}{arguments_text(signature.parameters, unknown)}") from None
        bound.apply_defaults()
        options = bound.arguments
        super().__init__(options.get("name_scope"), options.get("dtype", VarType.FP32))
        if is_named:
            self._make_later(_layer_arguments(options))
            return
        self._arguments = self._function_arguments(options)
        if shapes := self._input_shapes(options):
            self._make(self._function, *shapes, **{**self._arguments, **self._arguments_to_make(options)})

    @staticmethod
    def _is_named(args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
        """Whether the arguments have the form of Fluid 1.6."""
        return _begins_with_a_name(args, kwargs)

    def _function_arguments(self, options: dict[str, Any]) -> dict[str, Any]:
        """The arguments of the function, from arguments in the form of Fluid 1.7."""
        return _layer_arguments(options, *self._sizes)

    def _input_shapes(self, options: Mapping[str, Any]) -> list[Sequence[int]]:
        """The shapes of inputs that make the parameters, from arguments in the form of Fluid 1.7; [] if there are none."""
        return []

    def _arguments_to_make(self, options: Mapping[str, Any]) -> dict[str, Any]:
        """Arguments of the function that differ in the call that makes the parameters."""
        return {}


class _OfChannels(_OfFunction):
    """A convolution: in Fluid 1.7's form, `num_channels` is the number of the input's channels."""

    _dims: int

    def __init_subclass__(cls, dims: int = 0, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if dims:
            cls._dims = dims

    def _input_shapes(self, options: Mapping[str, Any]) -> list[Sequence[int]]:
        filters, dilations = (extents(options[name], self._dims, name) for name in ("filter_size", "dilation"))
        windows = [(size - 1) * dilation + 1 for size, dilation in zip(filters, dilations, strict=True)]
        return [[1, options["num_channels"], *windows]]

    def _arguments_to_make(self, options: Mapping[str, Any]) -> dict[str, Any]:
        return {"output_size": None} if "output_size" in options else {}


def _forward_of(function: Callable[..., Any], inputs: Sequence[str]) -> Callable[..., Any]:
    """Make the method that calls a layer's function with tensors."""
    signature = inspect.Signature([_parameter("self", ""), *(_parameter(name, "Tensor") for name in inputs)])

    def forward(self: _Functional, *args: Tensor, **kwargs: Tensor) -> Any:
        if kwargs or len(args) != len(inputs):
            args = signature.bind(self, *args, **kwargs).args[1:]
        return self._call(function, *args, **self._arguments)

    forward.__signature__ = signature  # type: ignore[attr-defined]
    return forward


# ---------------------------------------------------------------------------------------------------- products and tables
class FC(_Functional):
    """`fluid.layers.fc` as an object: ``act(sum_i input_i @ W_i + b)``; the first call makes the parameters.

    Args:
        name_scope, dtype: see `Layer`.
        size, num_flatten_dims, param_attr, bias_attr, act: see `fluid.layers.fc`.
        is_test: accepted as in Fluid, without effect.

    Attributes:
        weight: ``[features, size]``; of further inputs ``weight_1``, ...
        bias: ``[size]``, or None for ``bias_attr=False``.

    >>> fc = dygraph.FC("fc", size=3)
    >>> fc(dygraph.Tensor(np.ones([2, 4, 5], "float32"))).shape
    (2, 3)
    >>> fc.weight.shape
    (20, 3)
    """

    _old_names = {"_w": "weight", "_b": "bias"}

    def __init__(
        self,
        name_scope: str | None,
        size: int,
        num_flatten_dims: int = 1,
        param_attr: Any = None,
        bias_attr: AttrLike = None,
        act: str | None = None,
        is_test: bool = False,
        dtype: DTypeLike = "float32",
    ) -> None:
        super().__init__(name_scope, dtype)
        self._make_later(_layer_arguments(locals(), "is_test"))

    def forward(self, input: Any) -> Any:
        if isinstance(input, (list, tuple)):
            return self._call(lambda: layers.fc(input, **self._arguments))
        return self._call(layers.fc, input, **self._arguments)


class Linear(Layer):
    """``act(x @ weight + bias)`` for ``x [..., input_dim]``: ``[..., output_dim]``.

    Args:
        input_dim, output_dim: the last size of the input, and of the output.
        param_attr, bias_attr: attributes of weight and bias; ``bias_attr=False`` for none.
        act: the name of an activation, such as ``"relu"``, or a function of a tensor; None for none.
        dtype: element type of the parameters.

    Attributes:
        weight: ``[input_dim, output_dim]``.
        bias: ``[output_dim]``, or None for ``bias_attr=False``.

    Raises:
        ProgramError: `act` is no activation; in a call, the input has another last size.

    >>> linear = dygraph.Linear(4, 3, act="relu")
    >>> linear(dygraph.Tensor(np.ones([2, 4], "float32"))).shape
    (2, 3)
    >>> linear.weight.shape, linear.bias.shape
    ((4, 3), (3,))
    """

    def __init__(
        self,
        input_dim: int,
        output_dim: int,
        param_attr: AttrLike = None,
        bias_attr: AttrLike = None,
        act: str | None = None,
        dtype: DTypeLike = "float32",
    ) -> None:
        super().__init__(None, dtype)
        self.weight = self.create_parameter(param_attr, [input_dim, output_dim])
        self.bias = self.create_parameter(bias_attr, [output_dim], is_bias=True)
        self._act = _activation(act)

    def forward(self, input: Variable) -> Any:
        if not isinstance(input, Variable):
            _refuse(self, input)
        ops, weight, bias = input._ops(), self.weight, self.bias
        if input.shape[-1:] != weight.shape[:1]:
            raise ProgramError(f"{self.full_name()} takes [..., {weight.shape[0]}], not {input.describe()}")
        dims = input.ndim - 1
        result = ops.mul(input, weight, x_num_col_dims=dims) if dims != 1 else ops.mul(input, weight)
        if bias is not None:
            result = ops.elementwise_add(result, bias)
        return result if self._act is None else self._act(result)


def _activation(act: Any) -> Any:
    """The activation of this name; a function of a tensor, or None, as it is."""
    if act is None or callable(act):
        return act
    if registry.find(act) is None:
        raise ProgramError(not_an_activation(act))
    return partial(_activated, act)


def _activated(act: str, x: Any) -> Any:
    return getattr(x._ops(), act)(x)


class Embedding(_Functional):
    """Rows of a table: int64 ids of any shape give ``[*ids.shape, size[1]]``.

    Args:
        name_scope: see `Layer`. With it, or None, as the first argument, as in Fluid 1.6, a last dimension of size 1 of the ids
            gives way to the row.
        dtype: see `Layer`.
        size: ``[rows, columns]`` of the table, `weight`.
        is_sparse: the table's gradient holds only the rows that were looked up, and optimizers update only these.
        is_distributed: accepted; has no effect.
        padding_idx: an id whose row reads as zeros and is not trained.
        param_attr: attributes of the table.

    >>> table = dygraph.Embedding("table", size=[10, 3])
    >>> table(dygraph.Tensor(np.array([[1], [7]]))).shape
    (2, 3)
    """

    _old_names = {"_w": "weight"}

    @_name_is_optional
    def __init__(
        self,
        name_scope: str | None,
        size: Sequence[int],
        is_sparse: bool = False,
        is_distributed: bool = False,
        padding_idx: int | None = None,
        param_attr: AttrLike = None,
        dtype: DTypeLike = "float32",
    ) -> None:
        super().__init__(name_scope, dtype)
        if not hasattr(size, "__len__") or len(size) != 2:
            raise FluidTypeError(f"Embedding: size should be [rows, columns] of the table, not {size!r}")
        self._arguments = (list(size), is_sparse, is_distributed, padding_idx, ParamAttr._to_attr(param_attr), dtype)
        self.add_parameter("weight", self.create_parameter(self._arguments[4], self._arguments[0], dtype))
        self.__dict__["_made"] = True

    def forward(self, input: Tensor) -> Any:
        op_type = "lookup_table" if self._has_old_form and input.ndim > 1 and input.shape[-1] == 1 else "lookup_table_v2"
        return self._call(lambda ids: functional.lookup(op_type, ids, *self._arguments), input)


class BilinearTensorProduct(
    _OfFunction,
    of=layers.bilinear_tensor_product,
    arguments="size name act param_attr bias_attr",
    sized="input1_dim input2_dim output_dim name act param_attr bias_attr dtype",
    inputs="x y",
):
    """`fluid.layers.bilinear_tensor_product` as an object: ``act(x @ W[i] @ y + b[i])``.

    Args:
        name_scope: see `Layer`.
        size, act, param_attr, bias_attr: see `fluid.layers.bilinear_tensor_product`.
        name: accepted as in Fluid, without effect.

    >>> product = dygraph.BilinearTensorProduct("product", size=3)
    >>> product(dygraph.Tensor(np.ones([2, 4], "float32")), dygraph.Tensor(np.ones([2, 5], "float32"))).shape
    (2, 3)
    """

    _old_names = {"_w": "weight", "_bias_param": "bias"}

    def _function_arguments(self, options: dict[str, Any]) -> dict[str, Any]:
        return {**super()._function_arguments(options), "size": options["output_dim"]}

    def _input_shapes(self, options: Mapping[str, Any]) -> list[Sequence[int]]:
        return [[1, options["input1_dim"]], [1, options["input2_dim"]]]


class NCE(_Functional):
    """`fluid.layers.nce` as an object: the cost of distinguishing labels from randomly drawn classes.

    Args:
        name_scope, dtype: see `Layer`.
        num_total_classes, param_attr, bias_attr, num_neg_samples, sampler, custom_dist, seed, is_sparse: see `fluid.layers.nce`.
        dim: the number of columns of the input, in the form of Fluid 1.7.
        sample_weight: weights of the rows, where a call gives none.

    >>> nce = dygraph.NCE("nce", num_total_classes=10, num_neg_samples=3)
    >>> nce(dygraph.Tensor(np.ones([2, 4], "float32")), dygraph.Tensor(np.array([[1], [7]]))).shape
    (2, 1)
    """

    _old_names = {"_w": "weight", "_b": "bias"}

    @_takes_width_or_name
    def __init__(
        self,
        name_scope: str | None,
        num_total_classes: int,
        sample_weight: Any = None,
        param_attr: AttrLike = None,
        bias_attr: AttrLike = None,
        num_neg_samples: int | None = None,
        sampler: str = "uniform",
        custom_dist: Sequence[float] | None = None,
        seed: int = 0,
        is_sparse: bool = False,
        dtype: DTypeLike = "float32",
        dim: int | None = None,
    ) -> None:
        super().__init__(name_scope, dtype)
        self._sample_weight = sample_weight
        self._make_later(_layer_arguments(locals(), "sample_weight", "dim"))
        if dim is not None:
            inputs = lambda: [Tensor(np.zeros([1, dim]), dtype), Tensor(np.zeros([1, 1], "int64"))]
            self._make_by(inputs, layers.nce, **self._arguments)

    def forward(self, input: Tensor, label: Tensor, sample_weight: Any = None) -> Any:
        weight = sample_weight if sample_weight is not None else self._sample_weight
        return self._call(layers.nce, input, label, sample_weight=weight, **self._arguments)


class RowConv(_OfFunction, of=layers.row_conv, arguments="future_context_size param_attr act"):
    """`fluid.layers.row_conv` as an object, on tensors whose rows form sequences.

    Args:
        name_scope: see `Layer`.
        future_context_size, param_attr, act: see `fluid.layers.row_conv`.

    >>> x = dygraph.Tensor(np.ones([5, 4], "float32")).with_lod([(0, 3, 5)])
    >>> dygraph.RowConv("row_conv", future_context_size=2)(x).shape
    (5, 4)
    """

    _old_names = {"_filter_param": "weight"}


class SequenceConv(
    _OfFunction, of=layers.sequence_conv, arguments="num_filters filter_size filter_stride padding bias_attr param_attr act"
):
    """`fluid.layers.sequence_conv` as an object, on tensors whose rows form sequences.

    Args:
        name_scope: see `Layer`.
        num_filters, filter_size, filter_stride, padding, bias_attr, param_attr, act: see `fluid.layers.sequence_conv`.

    >>> x = dygraph.Tensor(np.ones([5, 4], "float32")).with_lod([(0, 3, 5)])
    >>> dygraph.SequenceConv("conv", num_filters=8)(x).shape
    (5, 8)
    """

    _old_names = {"_filter_param": "weight", "_bias_param": "bias"}


# ------------------------------------------------------------------------------------------------------ images and volumes
class Conv2D(
    _OfChannels,
    dims=2,
    of=layers.conv2d,
    sized="num_channels num_filters filter_size stride padding dilation groups param_attr bias_attr use_cudnn act dtype",
    arguments="num_filters filter_size stride padding dilation groups param_attr bias_attr use_cudnn act dtype",
):
    """`fluid.layers.conv2d` as an object: images ``[N, C, H, W]`` to ``[N, num_filters, H', W']``.

    Args:
        name_scope, dtype: see `Layer`.
        num_filters, filter_size, stride, padding, dilation, groups: see `fluid.layers.conv2d`.
        param_attr, bias_attr, use_cudnn, act: the same.

    Attributes:
        weight: ``[num_filters, C / groups, height, width]``.
        bias: ``[num_filters]``, or None for ``bias_attr=False``.

    >>> conv = dygraph.Conv2D("conv", num_filters=8, filter_size=3, padding=1)
    >>> conv(dygraph.Tensor(np.ones([2, 3, 16, 16], "float32"))).shape
    (2, 8, 16, 16)
    >>> conv.weight.shape
    (8, 3, 3, 3)
    """

    _old_names = {"_filter_param": "weight", "_bias_param": "bias"}


class Conv3D(
    _OfChannels,
    dims=3,
    of=layers.conv3d,
    sized="num_channels num_filters filter_size stride padding dilation groups param_attr bias_attr use_cudnn act dtype",
    arguments="num_filters filter_size stride padding dilation groups param_attr bias_attr use_cudnn act",
):
    """`fluid.layers.conv3d` as an object: volumes ``[N, C, D, H, W]`` to ``[N, num_filters, D', H', W']``.

    Args:
        name_scope: see `Layer`.
        num_filters, filter_size, stride, padding, dilation, groups: see `fluid.layers.conv3d`.
        param_attr, bias_attr, use_cudnn, act: the same.

    >>> conv = dygraph.Conv3D("conv", num_filters=4, filter_size=3)
    >>> conv(dygraph.Tensor(np.ones([2, 3, 8, 8, 8], "float32"))).shape
    (2, 4, 6, 6, 6)
    """

    _old_names = {"_filter_param": "weight", "_bias_param": "bias"}


class Conv2DTranspose(
    _OfChannels,
    dims=2,
    of=layers.conv2d_transpose,
    sized="num_channels num_filters filter_size output_size padding stride dilation groups param_attr bias_attr use_cudnn act "
    "dtype",
    arguments="num_filters output_size filter_size padding stride dilation groups param_attr bias_attr use_cudnn act",
):
    """`fluid.layers.conv2d_transpose` as an object.

    Args:
        name_scope: see `Layer`.
        num_filters, output_size, filter_size, padding, stride, dilation, groups: see `fluid.layers.conv2d_transpose`.
        param_attr, bias_attr, use_cudnn, act: the same.

    >>> conv = dygraph.Conv2DTranspose("conv", num_filters=4, filter_size=2, stride=2)
    >>> conv(dygraph.Tensor(np.ones([2, 3, 8, 8], "float32"))).shape
    (2, 4, 16, 16)
    """

    _old_names = {"_img_filter": "weight", "_bias_param": "bias"}


class Conv3DTranspose(
    _OfChannels,
    dims=3,
    of=layers.conv3d_transpose,
    sized="num_channels num_filters filter_size padding stride dilation groups param_attr bias_attr use_cudnn act dtype",
    arguments="num_filters output_size filter_size padding stride dilation groups param_attr bias_attr use_cudnn act name",
):
    """`fluid.layers.conv3d_transpose` as an object.

    Args:
        name_scope: see `Layer`.
        num_filters, output_size, filter_size, padding, stride, dilation, groups: see `fluid.layers.conv3d_transpose`.
        param_attr, bias_attr, use_cudnn, act: the same.
        name: accepted as in Fluid, without effect.

    >>> conv = dygraph.Conv3DTranspose("conv", num_filters=4, filter_size=2, stride=2)
    >>> conv(dygraph.Tensor(np.ones([2, 3, 4, 4, 4], "float32"))).shape
    (2, 4, 8, 8, 8)
    """

    _old_names = {"_img_filter": "weight", "_bias_param": "bias"}


class Pool2D(
    _OfFunction,
    of=layers.pool2d,
    arguments="pool_size pool_type pool_stride pool_padding global_pooling use_cudnn ceil_mode exclusive dtype",
    dtype=VarType.FP32,
):
    """`fluid.layers.pool2d` as an object.

    Args:
        name_scope, dtype: see `Layer`.
        pool_size, pool_type, pool_stride, pool_padding, global_pooling: see `fluid.layers.pool2d`.
        use_cudnn, ceil_mode, exclusive: the same.

    >>> pool = dygraph.Pool2D("pool", pool_size=2, pool_stride=2)
    >>> pool(dygraph.Tensor([[[[1.0, 2.0], [3.0, 4.0]]]])).numpy()
    array([[[[4.]]]], dtype=float32)
    """

    _names = ()


# ---------------------------------------------------------------------------------------------------------- normalization
class BatchNorm(_Functional):
    """`fluid.layers.batch_norm` as an object, for ``[N, num_channels, ...]``; uses its moving statistics after `eval`.

    Args:
        name_scope, dtype: see `Layer`.
        num_channels: the number of channels.
        is_test: always use the moving statistics.
        act, momentum, epsilon, param_attr, bias_attr, data_layout, in_place: see `fluid.layers.batch_norm`.
        moving_mean_name, moving_variance_name, do_model_average_for_mean_and_var: the same.
        fuse_with_relu, use_global_stats: the same.
        trainable_statistics: use the batch's statistics after `eval` too.

    Attributes:
        weight, bias: scale and bias, ``[num_channels]``.

    Raises:
        ProgramError: in a call, the input has another number of channels, or another element type than the statistics.

    >>> norm = dygraph.BatchNorm("norm", num_channels=1)
    >>> norm(dygraph.Tensor([[1.0], [3.0]])).numpy().round(2)
    array([[-1.],
           [ 1.]], dtype=float32)
    >>> norm._mean.numpy()
    array([0.2], dtype=float32)
    """

    _old_names = {"_scale": "weight", "_bias": "bias"}

    @_name_is_optional
    def __init__(
        self,
        name_scope: str | None,
        num_channels: int,
        act: str | None = None,
        is_test: bool = False,
        momentum: float = 0.9,
        epsilon: float = 1e-05,
        param_attr: AttrLike = None,
        bias_attr: AttrLike = None,
        dtype: DTypeLike = "float32",
        data_layout: str = "NCHW",
        in_place: bool = False,
        moving_mean_name: str | None = None,
        moving_variance_name: str | None = None,
        do_model_average_for_mean_and_var: bool = True,
        fuse_with_relu: bool = False,
        use_global_stats: bool = False,
        trainable_statistics: bool = False,
    ) -> None:
        super().__init__(name_scope, dtype)
        self._names = ("_mean", "_variance") if param_attr is False else ("weight", "_mean", "_variance")
        self._channels, self._layout = num_channels, data_layout
        self._always_test, self._trainable_statistics = is_test, trainable_statistics
        self._arguments = _layer_arguments(locals(), "num_channels", "is_test", "trainable_statistics")
        self._make(layers.batch_norm, [1, num_channels], is_test=True, **self._arguments)

    def forward(self, input: Variable) -> Any:
        if not isinstance(input, Variable):
            _refuse(self, input)
        channels = input.shape[1 if self._layout == "NCHW" else -1]
        if channels != self._channels:
            raise ProgramError(
                f"{self.full_name()} is for {self._channels} channels; the input is {input.describe()} ({self._layout})"
            )
        mean = self._mean
        if mean is not None and mean.dtype not in (input.dtype, accumulated(input.dtype)):
            raise ProgramError(
                f"{self.full_name()} has statistics of {mean.dtype.text}; the input is {input.describe()}: cast it, or make "
                f"the layer with dtype={input.dtype.text!r}"
            )
        is_test = (self._always_test or not self.training) and not self._trainable_statistics
        return self._call(layers.batch_norm, input, is_test=is_test, **self._arguments)


class LayerNorm(
    _OfFunction,
    of=layers.layer_norm,
    arguments="scale shift begin_norm_axis epsilon param_attr bias_attr act",
    sized="normalized_shape scale shift epsilon param_attr bias_attr act dtype",
):
    """`fluid.layers.layer_norm` as an object.

    Args:
        name_scope: see `Layer`.
        scale, shift, begin_norm_axis, epsilon, param_attr, bias_attr, act: see `fluid.layers.layer_norm`.

    >>> norm = dygraph.LayerNorm("norm")
    >>> norm(dygraph.Tensor([[1.0, 3.0]])).numpy().round(2)
    array([[-1.,  1.]], dtype=float32)
    """

    _old_names = {"_scale_w": "weight", "_bias_w": "bias"}
    _normalized: tuple[int, ...] | None = None

    def _input_shapes(self, options: Mapping[str, Any]) -> list[Sequence[int]]:
        self._normalized = tuple(listed(options["normalized_shape"]))
        return [[1, *self._normalized]]

    def forward(self, input: Tensor) -> Any:
        if self._normalized is None:
            return self._call(layers.layer_norm, input, **self._arguments)
        axis = input.ndim - len(self._normalized)
        if axis < 1 or tuple(input.shape[axis:]) != self._normalized:
            raise ProgramError(f"{self.full_name()} normalizes [..., {str([*self._normalized])[1:]}, not {input.describe()}")
        return self._call(layers.layer_norm, input, **{**self._arguments, "begin_norm_axis": axis})


class GroupNorm(
    _OfFunction,
    of=layers.group_norm,
    arguments="groups epsilon param_attr bias_attr act data_layout",
    sized="channels groups epsilon param_attr bias_attr act data_layout dtype",
):
    """`fluid.layers.group_norm` as an object.

    Args:
        name_scope: see `Layer`.
        groups, epsilon, param_attr, bias_attr, act, data_layout: see `fluid.layers.group_norm`.

    >>> norm = dygraph.GroupNorm("norm", groups=2)
    >>> norm(dygraph.Tensor(np.ones([2, 4, 8, 8], "float32"))).shape
    (2, 4, 8, 8)
    """

    _old_names = {"_scale": "weight", "_bias": "bias"}

    def _input_shapes(self, options: Mapping[str, Any]) -> list[Sequence[int]]:
        channels = options["channels"]
        return [[1, channels, 1, 1] if options["data_layout"] == "NCHW" else [1, 1, 1, channels]]


class InstanceNorm(
    _OfFunction,
    of=layers.instance_norm,
    arguments="epsilon param_attr bias_attr dtype",
    sized="num_channels epsilon param_attr bias_attr dtype",
):
    """`fluid.layers.instance_norm` as an object: each channel of each image is normalized by itself.

    Args:
        name_scope, dtype: see `Layer`.
        epsilon, param_attr, bias_attr: see `fluid.layers.instance_norm`.

    >>> dygraph.InstanceNorm(4)(dygraph.Tensor(np.ones([2, 4, 8, 8], "float32"))).shape
    (2, 4, 8, 8)
    """

    _names = ("scale",)
    _old_names = {"weight": "scale"}

    @property
    def weight(self) -> Any:
        """`scale`, the weight of each channel."""
        return self._parameter("scale")

    def _input_shapes(self, options: Mapping[str, Any]) -> list[Sequence[int]]:
        return [[1, options["num_channels"], 1, 1]]


class SpectralNorm(
    _OfFunction,
    of=layers.spectral_norm,
    arguments="dim power_iters eps name",
    sized="weight_shape dim power_iters eps dtype",
    inputs="weight",
):
    """`fluid.layers.spectral_norm` as an object: a weight divided by its largest singular value.

    Args:
        name_scope: see `Layer`.
        dim, power_iters, eps: see `fluid.layers.spectral_norm`.
        name: accepted as in Fluid, without effect.

    >>> dygraph.SpectralNorm("norm", power_iters=10)(dygraph.Tensor([[2.0, 0.0], [0.0, 1.0]])).numpy().round(2)
    array([[1. , 0. ],
           [0. , 0.5]], dtype=float32)
    """

    _names = ("weight_u", "weight_v")
    _old_names = {"u": "weight_u", "v": "weight_v"}

    def _input_shapes(self, options: Mapping[str, Any]) -> list[Sequence[int]]:
        return [options["weight_shape"]]


class PRelu(
    _OfFunction,
    of=layers.prelu,
    arguments="mode param_attr",
    sized="mode channel=None input_shape=None param_attr dtype",
):
    """`fluid.layers.prelu` as an object: x where it is above 0, else ``weight * x``.

    Args:
        name_scope: see `Layer`.
        mode, param_attr: see `fluid.layers.prelu`.

    >>> prelu = dygraph.PRelu("prelu", mode="all", param_attr=fluid.initializer.Constant(0.25))
    >>> prelu(dygraph.Tensor([-4.0, 2.0])).numpy()
    array([-1.,  2.], dtype=float32)
    """

    _default_name = "prelu"
    _old_names = {"_alpha": "weight"}

    @staticmethod
    def _is_named(args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
        has_mode = "mode" in kwargs or (len(args) > 1 and isinstance(args[1], str))
        return _begins_with_a_name(args, kwargs) and has_mode

    def _input_shapes(self, options: Mapping[str, Any]) -> list[Sequence[int]]:
        needed = {"channel": "channel", "element": "input_shape"}.get(options["mode"])
        if needed is not None and options[needed] is None:
            raise FluidTypeError(f"PRelu: mode={options['mode']!r} needs {needed}, for the shape of the weight")
        return [{"channel": [1, options["channel"], 1, 1], "element": options["input_shape"]}.get(options["mode"], [1, 1])]


class Dropout(Layer):
    """`fluid.layers.dropout` as an object; after `eval` it drops nothing, and by default scales by ``1 - p``.

    Args:
        p: the probability that an element is dropped.
        seed: draws the same elements in each call; None draws from eager mode's random stream.
        dropout_implementation: see `fluid.layers.dropout`.
        is_test: drop nothing, as after `eval`.

    >>> dropout = dygraph.Dropout(0.5)
    >>> dropout.eval()(dygraph.Tensor([2.0, 4.0])).numpy()
    array([1., 2.], dtype=float32)
    """

    def __init__(
        self, p: float = 0.5, seed: int | None = None, dropout_implementation: str = "downgrade_in_infer", is_test: bool = False
    ) -> None:
        super().__init__()
        self._arguments = {"dropout_prob": p, "seed": seed, "dropout_implementation": dropout_implementation}
        self._always_test = is_test

    def forward(self, input: Tensor) -> Any:
        return layers.dropout(input, is_test=self._always_test or not self.training, **self._arguments)  # type: ignore[arg-type]

    def extra_repr(self) -> str:
        return f"p={self._arguments['dropout_prob']}"


# -------------------------------------------------------------------------------------------------------------- recurrence
class GRUUnit(_Functional):
    """`fluid.layers.gru_unit` as an object: one step of a GRU.

    Called with ``input [batch, size]`` and ``hidden [batch, size / 3]``, it returns the new hidden state, ``r * hidden``, and the
    gates.

    Args:
        name_scope, dtype: see `Layer`.
        size, param_attr, bias_attr, activation, gate_activation, origin_mode: see `fluid.layers.gru_unit`.

    >>> unit = dygraph.GRUUnit("unit", size=12)
    >>> hidden, reset, gates = unit(dygraph.Tensor(np.ones([2, 12], "float32")), dygraph.Tensor(np.zeros([2, 4], "float32")))
    >>> hidden.shape
    (2, 4)
    """

    _old_names = {"_weight": "weight", "_bias": "bias"}

    @_name_is_optional
    def __init__(
        self,
        name_scope: str | None,
        size: int,
        param_attr: AttrLike = None,
        bias_attr: AttrLike = None,
        activation: str = "tanh",
        gate_activation: str = "sigmoid",
        origin_mode: bool = False,
        dtype: DTypeLike = "float32",
    ) -> None:
        super().__init__(name_scope, dtype)
        self._arguments = _layer_arguments(locals())
        self._make(layers.gru_unit, [1, size], [1, size // 3], **self._arguments)

    def forward(self, input: Tensor, hidden: Tensor) -> Any:
        return self._call(layers.gru_unit, input, hidden, **self._arguments)


class _Recurrent(Layer):
    """A recurrent network of several layers, by the op `rnn`."""

    _mode = ""

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        direction: str = "forward",
        dropout: float = 0.0,
        time_major: bool = False,
        param_attr: AttrLike = None,
        bias_attr: AttrLike = None,
        dtype: DTypeLike = "float32",
    ) -> None:
        super().__init__(None, dtype)
        if direction not in ("forward", "bidirect", "bidirectional"):
            raise ProgramError(f"{self.full_name()}: direction should be 'forward' or 'bidirect', not {direction!r}")
        directions = 1 + (direction != "forward")
        self._geometry = Geometry(self._mode, num_layers, directions, input_size, hidden_size)
        self._dropout, self._time_major = float(dropout), time_major
        suffixes = [f"l{layer}{end}" for layer in range(num_layers) for end in ("", "_reverse")[:directions]]
        names = [
            f"{kind}_{suffix}" for group in ("weight", "bias") for suffix in suffixes for kind in (f"{group}_ih", f"{group}_hh")
        ]
        limit = 1.0 / math.sqrt(hidden_size)
        self._order = names
        for name, shape in zip(names, self._geometry.weight_shapes(), strict=True):
            attr = bias_attr if name.startswith("bias") else param_attr
            if attr is False:
                raise ProgramError(f"{self.full_name()} needs its parameters; an attribute cannot be False")
            self.add_parameter(name, self.create_parameter(attr, shape, default_initializer=Uniform(-limit, limit)))

    def _run(self, inputs: Tensor, states: Sequence[Any] | None, sequence_length: Any) -> tuple[Any, list[Any]]:
        g = self._geometry
        if not isinstance(inputs, Tensor):
            _refuse(self, inputs)
        if inputs.ndim != 3 or inputs.shape[-1] != g.features:
            order = "time, batch" if self._time_major else "batch, time"
            raise ProgramError(f"{self.full_name()} takes [{order}, {g.features}], not {inputs.describe()}")
        x = inputs if self._time_major else inputs.transpose([1, 0, 2])
        if states is None:
            sizes = {"shape": [g.passes, -1, g.hidden], "input_dim_idx": 1, "output_dim_idx": 1}
            zeros = namespace.fill_constant_batch_size_like(x, dtype=int(x.dtype), value=0.0, **sizes)
            states = [zeros] * MODES[g.mode].states
        out, _, last = namespace.rnn(
            x,
            list(states),
            [self._parameter(name) for name in self._order],
            SequenceLength=sequence_length,
            dropout_prob=self._dropout,
            is_bidirec=g.directions == 2,
            input_size=g.features,
            hidden_size=g.hidden,
            num_layers=g.layers,
            mode=g.mode,
            is_test=not self.training,
        )
        return (out if self._time_major else out.transpose([1, 0, 2])), last


class LSTM(_Recurrent):
    """A stack of LSTM layers over ``[batch, time, input_size]``.

    Called with the inputs, the initial states (``(h, c)``, each ``[num_layers * directions, batch, hidden_size]``; zeros by
    default) and, for padded sequences, their lengths ``[batch]``, it returns ``[batch, time, directions * hidden_size]`` and the
    last states ``(h, c)``.

    Parameters have torch's names: ``weight_ih_l0`` ``[4 * hidden_size, features]`` (gates i, f, candidate, o),
    ``weight_hh_l0``, ``bias_ih_l0``, ``bias_hh_l0``, ``..._reverse``, ``..._l1``.
    Source: Hochreiter and Schmidhuber, Long short-term memory, 1997; forget gates: Gers et al., 2000.

    Args:
        input_size: features of the input.
        hidden_size: features of a state.
        num_layers: number of layers.
        direction: ``"forward"`` or ``"bidirect"``.
        dropout: probability of dropout between layers, in training.
        time_major: time comes before batch.
        param_attr, bias_attr: of all weights and of all biases, which are uniform in ``+-1 / sqrt(hidden_size)`` by default.
        dtype: element type of the parameters.

    >>> lstm = dygraph.LSTM(4, 8, num_layers=2)
    >>> out, (h, c) = lstm(dygraph.Tensor(np.ones([3, 5, 4], "float32")))
    >>> out.shape, h.shape
    ((3, 5, 8), (2, 3, 8))
    """

    _mode = "LSTM"

    def forward(self, inputs: Tensor, initial_states: Any = None, sequence_length: Any = None) -> Any:
        out, (h, c) = self._run(inputs, initial_states, sequence_length)
        return out, (h, c)


class GRU(_Recurrent):
    """A stack of GRU layers; as `LSTM`, but with one state ``h``, and gates r, z, candidate.

    Source: Cho et al., Learning phrase representations using RNN encoder-decoder for statistical machine translation, 2014.

    Args:
        input_size, hidden_size, num_layers, direction, dropout, time_major, param_attr, bias_attr, dtype: see `LSTM`.

    >>> out, h = dygraph.GRU(4, 8)(dygraph.Tensor(np.ones([3, 5, 4], "float32")))
    >>> out.shape, h.shape
    ((3, 5, 8), (1, 3, 8))
    """

    _mode = "GRU"

    def forward(self, inputs: Tensor, initial_states: Any = None, sequence_length: Any = None) -> Any:
        out, (h,) = self._run(inputs, None if initial_states is None else [initial_states], sequence_length)
        return out, h


# --------------------------------------------------------------------------------------------------------------- attention
class MultiHeadAttention(Layer):
    """``softmax(q k^T / sqrt(d)) v`` in several heads, between linear layers.

    Called with ``query [batch, to, embed_dim]``, ``key [batch, from, kdim]`` and ``value [batch, from, vdim]`` (the query by
    default), and optionally a mask that is added to ``[batch, heads, to, from]`` before the softmax (or bools, False for
    positions not to attend to), it returns ``[batch, to, embed_dim]``, and with `need_weights` the weights too.
    Source: Vaswani et al., Attention is all you need, 2017.

    Args:
        embed_dim: features of the query and of the result, a multiple of `num_heads`.
        num_heads: number of heads.
        dropout: probability of dropout of the weights, in training.
        kdim, vdim: features of keys and of values; `embed_dim` by default.
        need_weights: return the weights too.
        param_attr, bias_attr: of all four linear layers.

    >>> attention = dygraph.MultiHeadAttention(8, num_heads=2)
    >>> attention(dygraph.Tensor(np.ones([3, 5, 8], "float32"))).shape
    (3, 5, 8)
    """

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        dropout: float = 0.0,
        kdim: int | None = None,
        vdim: int | None = None,
        need_weights: bool = False,
        param_attr: AttrLike = None,
        bias_attr: AttrLike = None,
    ) -> None:
        super().__init__()
        if num_heads < 1 or embed_dim % num_heads:
            raise ProgramError(f"{self.full_name()}: embed_dim={embed_dim} cannot be dealt out to {num_heads} heads")
        self.num_heads, self.head_dim, self.need_weights = num_heads, embed_dim // num_heads, need_weights
        self.q_proj = Linear(embed_dim, embed_dim, param_attr, bias_attr)
        self.k_proj = Linear(embed_dim if kdim is None else kdim, embed_dim, param_attr, bias_attr)
        self.v_proj = Linear(embed_dim if vdim is None else vdim, embed_dim, param_attr, bias_attr)
        self.out_proj = Linear(embed_dim, embed_dim, param_attr, bias_attr)
        self.dropout = Dropout(dropout, dropout_implementation="upscale_in_train")

    def _heads(self, x: Tensor) -> Any:
        return namespace.reshape2(x, shape=[0, 0, self.num_heads, self.head_dim]).transpose([0, 2, 1, 3])

    def forward(self, query: Tensor, key: Any = None, value: Any = None, attn_mask: Any = None) -> Any:
        key = query if key is None else key
        value = key if value is None else value
        q, k, v = self._heads(self.q_proj(query)), self._heads(self.k_proj(key)), self._heads(self.v_proj(value))
        scores = namespace.matmul(q, k, transpose_Y=True, alpha=self.head_dim**-0.5)
        if attn_mask is not None:
            if attn_mask.dtype is VarType.BOOL:
                attn_mask = (attn_mask.astype(scores.dtype) - 1.0) * 1e9
            scores = scores + attn_mask
        weights = namespace.softmax(scores)
        if self.dropout._arguments["dropout_prob"]:
            weights = self.dropout(weights)
        mixed = namespace.matmul(weights, v).transpose([0, 2, 1, 3])
        result = self.out_proj(namespace.reshape2(mixed, shape=[0, 0, self.num_heads * self.head_dim]))
        return (result, weights) if self.need_weights else result


class TransformerEncoderLayer(Layer):
    """Self-attention, then two linear layers, each with a residual connection and layer normalization.

    Called with ``src [batch, time, d_model]`` and optionally a mask, as `MultiHeadAttention` takes it.
    Source: Vaswani et al., Attention is all you need, 2017; `normalize_before`: Xiong et al., On layer normalization in the
    transformer architecture, 2020.

    Args:
        d_model, nhead: size of the features, and number of heads.
        dim_feedforward: size between the two linear layers.
        dropout: probability of dropout in both parts.
        activation: between the linear layers.
        attn_dropout: probability of dropout of the attention's weights; `dropout` by default.
        act_dropout: probability of dropout after the activation; `dropout` by default.
        normalize_before: normalize the input of each part instead of its output.
        param_attr, bias_attr: of all linear layers.

    >>> layer = dygraph.TransformerEncoderLayer(8, nhead=2, dim_feedforward=16)
    >>> layer(dygraph.Tensor(np.ones([3, 5, 8], "float32"))).shape
    (3, 5, 8)
    """

    def __init__(
        self,
        d_model: int,
        nhead: int,
        dim_feedforward: int,
        dropout: float = 0.1,
        activation: str = "relu",
        attn_dropout: float | None = None,
        act_dropout: float | None = None,
        normalize_before: bool = False,
        param_attr: AttrLike = None,
        bias_attr: AttrLike = None,
    ) -> None:
        super().__init__()
        self._arguments = _layer_arguments(locals())
        self.normalize_before = normalize_before
        self.self_attn = MultiHeadAttention(
            d_model, nhead, dropout if attn_dropout is None else attn_dropout, param_attr=param_attr, bias_attr=bias_attr
        )
        self.linear1 = Linear(d_model, dim_feedforward, param_attr, bias_attr)
        self.linear2 = Linear(dim_feedforward, d_model, param_attr, bias_attr)
        self.norm1 = LayerNorm(None, begin_norm_axis=2)
        self.norm2 = LayerNorm(None, begin_norm_axis=2)
        for norm in (self.norm1, self.norm2):
            norm._make(layers.layer_norm, [1, 1, d_model], **norm._arguments)
        self.act_dropout = _scaled_dropout(dropout if act_dropout is None else act_dropout)
        self.dropout1, self.dropout2 = _scaled_dropout(dropout), _scaled_dropout(dropout)
        self._act = _activation(activation)

    def forward(self, src: Tensor, src_mask: Any = None) -> Any:
        src = self._added(src, self.norm1, self.dropout1, lambda x: self.self_attn(x, attn_mask=src_mask))
        return self._added(src, self.norm2, self.dropout2, lambda x: self.linear2(self.act_dropout(self._act(self.linear1(x)))))

    def _added(self, x: Tensor, norm: Layer, dropout: Layer, part: Callable[[Any], Any]) -> Any:
        if self.normalize_before:
            return x + dropout(part(norm(x)))
        return norm(x + dropout(part(x)))


def _scaled_dropout(p: float) -> Dropout:
    return Dropout(p, dropout_implementation="upscale_in_train")


class TransformerEncoder(Layer):
    """A stack of layers such as `encoder_layer`, and an optional normalization at the end.

    Args:
        encoder_layer: the first layer; the others are new ones like it, with their own parameters.
        num_layers: how many there are.
        norm: applied to the result of the last one, if any.

    >>> encoder = dygraph.TransformerEncoder(dygraph.TransformerEncoderLayer(8, 2, 16), num_layers=2)
    >>> encoder(dygraph.Tensor(np.ones([3, 5, 8], "float32"))).shape
    (3, 5, 8)
    """

    def __init__(self, encoder_layer: TransformerEncoderLayer, num_layers: int, norm: Layer | None = None) -> None:
        super().__init__()
        copies = [type(encoder_layer)(**encoder_layer._arguments) for _ in range(num_layers - 1)]
        self.layers = LayerList([encoder_layer, *copies])
        self.norm = norm

    def forward(self, src: Tensor, src_mask: Any = None) -> Any:
        for layer in self.layers:
            src = layer(src, src_mask)
        return src if self.norm is None else self.norm(src)
