"""Helpers that layers are built with: names, parameters, temporaries, ops."""

from __future__ import annotations

import contextlib
import copy
import math
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, ClassVar, NamedTuple

import numpy as np

from .. import unique_name
from ..errors import ElementTypeError, FluidTypeError, ProgramError, did_you_mean
from ..initializer import Constant, Initializer, NormInitializer, Xavier
from ..ir.checked import check_variable
from ..ir.program import Block, Operator, Parameter, Program, Variable, default_main_program
from ..opdef import registry
from ..param_attr import AttrLike, GivenParameter, ParamAttr, WeightNormParamAttr
from ..values.types import DTypeLike, VarType, as_dtype, is_floating
from .versions import program_of
from .weight_norm import PARTS, WeightNorm

__all__ = [
    "Keep",
    "LayerHelper",
    "Wanted",
    "apply",
    "apply_many",
    "check_kept",
    "check_variable",
    "extent",
    "extents",
    "in_region",
    "keeping",
    "keeping_itself",
    "listed",
    "not_an_activation",
    "product",
    "refuse_tensor",
    "region",
]


def refuse_tensor(value: Any, construct: str, instead: str) -> None:
    """Raise a `ProgramError` if `value` is an eager tensor, as `construct` builds a block of a program."""
    if isinstance(value, Variable) and value.block.program.eager:
        raise ProgramError(f"{construct} builds a block of a program, and {value.name} is a tensor; on tensors use {instead}")


def extent(var: Variable, axis: int, where: str) -> int:
    """The size of `var` along an axis; `ProgramError` if there is no such axis. `where` names the argument."""
    if not -var.ndim <= axis < var.ndim:
        raise ProgramError(f"{where} {var} has {var.ndim} dimensions; it should have more, there is no axis {axis}")
    return var.shape[axis]


def listed(value: Any) -> list[Any]:
    """A list or tuple as a list; any other value as the only item of a list."""
    return list(value) if isinstance(value, (list, tuple)) else [value]


def extents(value: Any, count: int, where: str) -> list[int]:
    """`value` as a list of two or three (`count`) integers; a single one is repeated."""
    if isinstance(value, (int, np.integer)):
        return [int(value)] * count
    if isinstance(value, (list, tuple)) and len(value) == count:
        return [int(item) for item in value]
    raise ProgramError(f"{where} should be an integer or {('two', 'three')[count - 2]} of them, not {value!r}")


class ParametersLost(ProgramError):
    """A layer with parameters is called on tensors without an object that keeps the parameters."""

    how_to_keep: ClassVar[Callable[[str], str]] = lambda layer: f"layer = fluid.dygraph.LayerOf(fluid.layers.{layer}, ...)"
    """Layer name -> code that makes an object which keeps its parameters; `fluid.dygraph.layer_of` sets a better version."""

    def __init__(self, layer: str) -> None:
        super().__init__(layer)
        self.speak_of(layer)

    def speak_of(self, layer: str) -> None:
        """Set the message for the layer that the user called, with the code to write instead."""
        self.restate(
            f"{layer} would make its parameters anew in each call; in eager mode make, once, an object that keeps them, "
            f"{type(self).how_to_keep(layer)}, and call that with the tensors"
        )


class Wanted(NamedTuple):
    """A parameter that a layer requests; calling it makes the parameter."""

    layer: str
    """The type of the layer."""
    name: str | None
    """The name that the user gave it."""
    shape: Sequence[int]
    dtype: DTypeLike
    create: Callable[[], Any]
    is_supplied: bool = False
    """Whether the user passed the parameter itself, so that none is made."""

    def __call__(self) -> Any:
        return self.create()


class LayerHelper:
    """Makes the parameters, temporaries and ops of one layer, named after it: ``fc_0.w_0``, ``fc_0.b_0``, ``fc_0.tmp_0``.

    Args:
        layer_type: such as ``"fc"``; the layer is called ``fc_0`` unless `name` is given.
        name: of the layer.
        param_attr, bias_attr: attributes of the weights and of the bias; False for none.
        act: activation op to append.
        kwargs: further arguments of a layer, which `input` and its like read.

    >>> def scaled(x, name=None):
    ...     helper = fluid.layer_helper.LayerHelper("scaled", name)
    ...     scale = helper.create_parameter(None, [1], default_initializer=fluid.initializer.Constant(2.0))
    ...     return helper.apply("elementwise_mul", {"X": x, "Y": scale})["Out"]
    >>> scaled(fluid.data("x", [None, 3])).shape
    (-1, 3)
    """

    def __init__(
        self,
        layer_type: str,
        name: str | None = None,
        param_attr: Any = None,
        bias_attr: Any = None,
        act: str | Mapping[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        self.layer_type = layer_type
        self._given_name = name or _keepers.name
        self.name = self._given_name or unique_name.generate(layer_type)
        self.param_attr: Any = ParamAttr._to_attr(param_attr)
        self.bias_attr: Any = ParamAttr._to_attr(bias_attr)
        self.act = act
        self.kwargs = kwargs

    @property
    def main_program(self) -> Program:
        """The default main program."""
        return default_main_program()

    @property
    def startup_program(self) -> Program:
        """The program that initializes variables."""
        return self.main_program.startup

    @property
    def block(self) -> Block:
        """The block that ops are appended to."""
        return self.main_program.current_block()

    # -- arguments of a layer that gives all of them, by ``LayerHelper("fc", **locals())``
    def multiple_input(self, input_param_name: str = "input") -> list[Variable]:
        """The variables in an argument of the layer, which is one or a list.

        Args:
            input_param_name: the argument's name.
        """
        if input_param_name not in self.kwargs:
            names = ", ".join(sorted(self.kwargs)) or "none"
            raise ProgramError(f"{self.layer_type} gave its helper no argument {input_param_name}; it gave {names}")
        variables = listed(self.kwargs[input_param_name])
        for var in variables:
            check_variable(var, f"{self.layer_type}: {input_param_name}")
        return variables

    def input(self, input_param_name: str = "input") -> Variable:
        """The variable in an argument of the layer.

        Args:
            input_param_name: the argument's name.

        Raises:
            ProgramError: there are several.
        """
        variables = self.multiple_input(input_param_name)
        if len(variables) != 1:
            raise ProgramError(f"{self.layer_type}: {input_param_name} should be one Variable, not {len(variables)}")
        return variables[0]

    def input_dtype(self, input_param_name: str = "input") -> VarType:
        """The common element type of the variables in an argument of the layer.

        Args:
            input_param_name: the argument's name.

        Raises:
            ElementTypeError: they have several.
        """
        dtypes = list(dict.fromkeys(var.dtype for var in self.multiple_input(input_param_name)))
        if len(dtypes) > 1:
            names = " and ".join(dtype.text for dtype in dtypes)
            raise ElementTypeError(f"{self.layer_type}: {input_param_name} should have one element type, not {names}")
        return dtypes[0]

    def multiple_param_attr(self, length: int) -> list[Any]:
        """The attributes of `length` weights: the entries of a list, or copies of a single one.

        Args:
            length: the number of weights.
        """
        attrs = self.param_attr if isinstance(self.param_attr, list) else [self.param_attr]
        if len(attrs) == 1:
            return [copy.deepcopy(attrs[0]) for _ in range(length)]
        if len(attrs) != length:
            raise ProgramError(f"{self.layer_type}: param_attr should be one, or {length}, one for each input, not {len(attrs)}")
        return attrs

    def iter_inputs_and_params(self, input_param_name: str = "input") -> Iterator[tuple[Variable, Any]]:
        """Each variable in an argument of the layer, with the attributes of its weight.

        Args:
            input_param_name: the argument's name.
        """
        variables = self.multiple_input(input_param_name)
        yield from zip(variables, self.multiple_param_attr(len(variables)), strict=True)

    def get_parameter(self, name: str) -> Parameter:
        """The parameter of this name.

        Args:
            name: its name.

        Raises:
            ProgramError: the variable of this name is no parameter.
        """
        var = self.main_program.global_block().var(name)
        if not isinstance(var, Parameter):
            raise ProgramError(f"{self.layer_type}: {name} is not a parameter")
        return var

    def create_or_get_global_variable(self, name: str, **kwargs: Any) -> Variable:
        """The variable of block 0 of this name, which is made if there is none.

        Args:
            name: its name.
            kwargs: arguments of `create_global_variable`.
        """
        var = self.main_program.global_block().vars.get(name)
        return self.create_global_variable(name=name, **kwargs) if var is None else var

    # -- variables
    def create_variable_for_type_inference(self, dtype: DTypeLike | None = None, stop_gradient: bool = False) -> Variable:
        """A temporary; its shape, and its element type if `dtype` is None, are inferred from the op that writes it.

        Args:
            dtype: its element type.
            stop_gradient: whether no gradient flows through it.
        """
        block = default_main_program().current_block()
        return block.create_var(name=unique_name.generate(self.name + ".tmp"), dtype=dtype, stop_gradient=stop_gradient)

    def create_variable(self, **kwargs: Any) -> Variable:
        """A variable of the current block; arguments as of `Variable`."""
        return self.block.create_var(**kwargs)

    def create_global_variable(self, persistable: bool = False, **kwargs: Any) -> Variable:
        """A variable of the root block: `persistable` or not, `kwargs` are arguments of `Variable`."""
        kwargs.setdefault("name", unique_name.generate(self.name + ".tmp"))
        return self.main_program.global_block().create_var(persistable=persistable, **kwargs)

    def create_parameter(
        self,
        attr: AttrLike,
        shape: Sequence[int],
        dtype: DTypeLike = VarType.FP32,
        is_bias: bool = False,
        default_initializer: Initializer | None = None,
    ) -> Parameter:
        """A parameter, and in the startup program the op that initializes it.

        Without a name it is called ``fc_0.w_0``, or ``fc_0.b_0`` if `is_bias`. A parameter whose name the startup program has
        already is shared, and keeps its initializer.

        In eager mode parameters are kept by the objects of `fluid.dygraph` that call the layer, or passed as `attr`.

        Args:
            attr: a `ParamAttr`, or a value that stands for one.
            shape: its dimensions, all known.
            dtype: its element type.
            is_bias: initialized with zeros by default; others by `Xavier`.
            default_initializer: initializes it where `attr` says nothing.

        Raises:
            ProgramError: the shape is not known, or `attr` is False.
        """
        keep = _keepers.keep
        attr = ParamAttr._to_attr(attr)
        if isinstance(attr, GivenParameter):
            tensor = self._checked_tensor(attr.tensor, shape, dtype)
            wanted = Wanted(self.layer_type, tensor.name, shape, dtype, lambda: tensor, is_supplied=True)
            parameter: Parameter = keep(wanted, is_bias) if keep is not None and isinstance(tensor, Parameter) else tensor
            return parameter

        def create() -> Parameter:
            return self._create_parameter(attr, shape, dtype, is_bias, default_initializer)

        if keep is not None:
            return keep(Wanted(self.layer_type, getattr(attr, "name", None), shape, dtype, create), is_bias)
        if self.main_program.eager and self.layer_type != "create_parameter":
            raise ParametersLost(self.layer_type)
        if self.main_program.eager and isinstance(attr, WeightNormParamAttr):
            raise ProgramError(
                "create_parameter gives one tensor, but a WeightNormParamAttr makes two, of which the weight is computed in each "
                "step; in eager mode let a Layer keep them: self.weight = self.create_parameter(attr, shape)"
            )
        return create()

    def _checked_tensor(self, tensor: Any, shape: Sequence[int], dtype: DTypeLike) -> Any:
        wanted = tuple(map(int, shape))
        if tuple(tensor.shape) != wanted or tensor.dtype is not as_dtype(dtype):
            raise ProgramError(
                f"{self.layer_type} is given {tensor.name} ({tensor.describe()}) in place of a parameter that should be "
                f"{as_dtype(dtype).text}{list(wanted)}"
            )
        return tensor

    def _create_parameter(
        self, attr: Any, shape: Sequence[int], dtype: DTypeLike, is_bias: bool, default_initializer: Initializer | None
    ) -> Parameter:
        if not isinstance(attr, ParamAttr):
            raise ProgramError(f"{self.name} needs this parameter; its attribute cannot be {attr!r}")
        dtype = as_dtype(dtype)
        shape = [*map(int, shape)]
        if any(size < 1 for size in shape):
            raise ProgramError(
                f"{self.name}: a parameter cannot have the shape {shape}; dimensions of the layer's input that it depends on "
                "must be known, not -1"
            )
        initializer = attr.initializer or default_initializer
        if initializer is None:
            initializer = Constant(0.0) if is_bias else Xavier()
        if not callable(initializer):
            raise FluidTypeError(f"{self.name}: initializer should be one of fluid.initializer, not {initializer!r}")
        if not is_floating(dtype) and attr.initializer is None and default_initializer is None:
            advice = "if that is the type of the layer's input, cast it to float32"
            raise ElementTypeError(f"{self.name}: a parameter of {dtype.text} needs an initializer; {advice}")
        kwargs = attr._to_kwargs()
        if kwargs["name"] is None:
            kwargs["name"] = unique_name.generate(f"{self.name}.{'b' if is_bias else 'w'}")
        if isinstance(attr, WeightNormParamAttr):
            return self._normalized(attr, kwargs, shape, dtype, initializer)
        kwargs.update(shape=shape, dtype=dtype)
        parameter = self.main_program.global_block().create_parameter(**kwargs)
        self.set_variable_initializer(parameter, initializer)
        return parameter

    def _normalized(
        self, attr: WeightNormParamAttr, kwargs: Mapping[str, Any], shape: list[int], dtype: VarType, initializer: Initializer
    ) -> Parameter:
        """``g * v / norm(v)`` of two parameters."""
        if attr.dim is not None and not -len(shape) <= attr.dim < len(shape):
            raise ProgramError(f"{self.name}: WeightNormParamAttr has dim={attr.dim}, but the parameter has the shape {shape}")
        kept_axis = None if attr.dim is None else attr.dim % len(shape)
        axes = [axis for axis in range(len(shape)) if axis != kept_axis]
        lengths = [1 if axis in axes else size for axis, size in enumerate(shape)]

        def part(suffix: str, shape: list[int], first: Initializer) -> Parameter:
            settings = {"name": kwargs["name"] + suffix, "initializer": first, "learning_rate": attr.learning_rate}
            settings |= {name: getattr(attr, name) for name in ("regularizer", "trainable", "gradient_clip", "do_model_average")}
            return self._create_parameter(ParamAttr(**settings), shape, dtype, False, None)

        v = part(PARTS[0], shape, initializer)
        g = part(PARTS[1], lengths, NormInitializer(v, axes))
        return self.block.derive(WeightNorm(kwargs["name"], v, g, axes))  # type: ignore[no-any-return]

    def set_variable_initializer(self, var: Variable, initializer: Initializer) -> Variable:
        """Initialize the persistable variable `var` in the startup program by `initializer`; return that program's variable."""
        return self.startup_program.global_block().initialize(var, initializer)

    # -- ops
    def append_op(self, type: str, **kwargs: Any) -> Operator:
        """Append an op of this `type` to the current block; `kwargs` are arguments of `Block.append_op`.

        Where a layer of `fluid.dygraph` appends to a program, variables stand for parameters among the inputs.
        """
        inputs = kwargs.get("inputs") or {}
        program = program_of(inputs.values())
        if program is not None and (stand_ins := program.standing_in((), inputs)) is not None:
            kwargs["inputs"] = stand_ins[1]
        return self.block.append_op(type, **kwargs)

    def apply(
        self,
        op_type: str,
        inputs: Mapping[str, Any],
        attrs: Mapping[str, Any] | None = None,
        outputs: Mapping[str, Any] | None = None,
        count: int = 1,
        also: Sequence[str] = (),
    ) -> dict[str, Any]:
        """Append an op; its outputs are temporaries of this layer, except for `outputs`.

        On eager tensors the op runs at once.

        Args:
            op_type: the type of op.
            inputs: slot -> variable, or a list of them; None leaves a slot out.
            attrs: name -> value.
            outputs: slot -> variable to write to; optional outputs are only made if they are here.
            count: the number of variables made for an output slot of several.
            also: outputs that only the gradient reads and that eager mode still returns.

        Returns:
            Slot -> variable, or list of them.
        """
        definition = registry.get(op_type)
        home: Program | None = None
        for where, value in inputs.items():
            for item in value if isinstance(value, (list, tuple)) else (value,):
                if item is None:
                    continue
                if item.__class__ is not Variable:
                    check_variable(item, f"{self.layer_type}: {where}")
                program = item.block.program
                if home is not None and program.eager != home.eager:
                    raise _mixed(self.layer_type, inputs)
                home = program
        program = home if home is not None and home.eager else self.main_program
        with program.drawing(self.layer_type, self._given_name, definition, outputs or {}, count):
            return program.current_block().apply(
                definition, inputs, attrs or {}, outputs or {}, self.create_variable_for_type_inference, count, also
            )

    def append_bias_op(self, input_var: Variable, dim_start: int = 1, dim_end: int | None = None) -> Variable:
        """Add a bias of the layer; `input_var` itself if the layer has none.

        Args:
            input_var: the input.
            dim_start, dim_end: the bias has the shape of these dimensions of it.
        """
        if not self.bias_attr:
            return input_var
        bias = self.create_parameter(self.bias_attr, input_var.shape[dim_start:dim_end], input_var.dtype, is_bias=True)
        return self.apply("elementwise_add", {"X": input_var, "Y": bias}, {"axis": dim_start})["Out"]  # type: ignore[no-any-return]

    def append_activation(self, input_var: Variable, act: Any = None) -> Variable:
        """Apply an activation to `input_var`: `act`, by default the layer's, if any, an op type, or a dict of ``type`` and
        attributes.

        Raises:
            ProgramError: `act` names no op of one tensor.
        """
        act = act or self.act
        if not act:
            return input_var
        attrs = {"type": act} if isinstance(act, str) else dict(act)
        op_type = attrs.pop("type")
        definition = registry.find(op_type)
        needed = [slot.name for slot in definition.inputs.values() if not slot.optional] if definition is not None else []
        if definition is None or needed != ["X"] or "Out" not in definition.outputs:
            raise ProgramError(f"{self.layer_type}: {not_an_activation(op_type)}")
        return self.apply(op_type, {"X": input_var}, attrs)["Out"]  # type: ignore[no-any-return]


_USUAL_ACTIVATIONS = ("elu", "gelu", "leaky_relu", "relu", "relu6", "sigmoid", "softmax", "softplus", "swish", "tanh")


def not_an_activation(act: object) -> str:
    """The message about an `act` that names no activation."""
    hint = did_you_mean(act, _USUAL_ACTIVATIONS) or f", such as {', '.join(_USUAL_ACTIVATIONS)}"
    return f"{act!r} is not an activation; act names an op of one tensor{hint}"


Keep = Callable[[Wanted, bool], Parameter]
"""``keep(wanted, is_bias)`` provides a parameter for a layer."""


class _Keepers(threading.local):
    keep: Keep | None = None
    name: str | None = None
    region: str | None = None
    """The branch or loop around the function whose parameters are kept."""


_keepers = _Keepers()


@contextlib.contextmanager
def keeping(keep: Keep, name: str | None = None) -> Iterator[None]:
    """Inside the ``with``, ``keep(wanted, is_bias)`` provides the parameters of layers, whose name is `name`."""
    old = _keepers.keep, _keepers.name, _keepers.region
    _keepers.keep, _keepers.name, _keepers.region = keep, name, None
    try:
        yield
    finally:
        _keepers.keep, _keepers.name, _keepers.region = old


def is_keeping() -> bool:
    """Whether this is inside a `keeping`, so that layers may have parameters."""
    return _keepers.keep is not None


@contextlib.contextmanager
def in_region(region: str | None) -> Iterator[None]:
    """Inside the ``with``, functions of `region`, a branch or loop, run: perhaps never, perhaps several times."""
    old, _keepers.region = _keepers.region, region
    try:
        yield
    finally:
        _keepers.region = old


def region() -> str | None:
    """The argument of the innermost `in_region`; None outside one, and in a `keeping` within it."""
    return _keepers.region


@contextlib.contextmanager
def keeping_itself() -> Iterator[None]:
    """Inside the ``with``, parameters are made for an object that keeps them itself, unless a layer keeps them."""
    if _keepers.keep is not None:
        with in_region(None):  # the object requests them once
            yield
        return
    with default_main_program().apart(), keeping(lambda create, is_bias: create()):
        yield


def check_kept(layer: str, input: Variable) -> None:
    """Raise an error if this layer makes objects with parameters on tensors, and nothing keeps these objects."""
    if _keepers.keep is None and input.block.program.eager:
        raise ParametersLost(layer)


def _mixed(layer: str, inputs: Mapping[str, Any]) -> FluidTypeError:
    items = [item for value in inputs.values() for item in listed(value) if item is not None]
    tensor = next(item for item in items if item.block.program.eager)
    variable = next(item for item in items if not item.block.program.eager)
    static = f"the parameter {variable.name}" if isinstance(variable, Parameter) else f"{variable.name}, a Variable of a program"
    return FluidTypeError(
        f"{layer} is given {tensor.name}, a tensor, and {static}. On tensors, layers without parameters run at once; those with "
        "parameters are objects of fluid.dygraph (Linear, Conv2D, ..., LayerOf of any other); constants are made inside "
        "`with fluid.dygraph.guard():`"
    )


def apply_many(
    op_type: str,
    inputs: Mapping[str, Any],
    attrs: Mapping[str, Any] | None = None,
    *,
    layer: str | None = None,
    name: str | None = None,
    count: int = 1,
) -> list[Any]:
    """A layer of one op: its visible outputs, in order; lists for slots of several."""
    outputs = LayerHelper(layer or op_type, name, False, False).apply(op_type, inputs, attrs, count=count)
    return [outputs[slot] for slot in registry.get(op_type).visible if slot in outputs]


def apply(
    op_type: str,
    inputs: Mapping[str, Any],
    attrs: Mapping[str, Any] | None = None,
    *,
    layer: str | None = None,
    name: str | None = None,
    act: str | None = None,
    outputs: Mapping[str, Any] | None = None,
) -> Variable:
    """A layer of one op with one visible output, and an optional activation."""
    helper = LayerHelper(layer or op_type, name, False, False, act)
    results = helper.apply(op_type, inputs, attrs, outputs)
    (seen,) = [results[slot] for slot in registry.get(op_type).visible if slot in results]
    return helper.append_activation(seen)


def product(sizes: Sequence[int]) -> int:
    """The product of dimensions, or -1 if one of them is unknown."""
    return -1 if any(size < 0 for size in sizes) else math.prod(sizes)
