"""What layers are made with: names, parameters, temporaries, ops."""

from __future__ import annotations

import contextlib
import math
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, ClassVar, NamedTuple

import numpy as np

from .. import unique_name
from ..errors import FluidTypeError, ProgramError
from ..initializer import Constant, Initializer, NormInitializer, Xavier
from ..ir.checked import check_variable
from ..ir.program import Block, Operator, Parameter, Program, Variable, default_main_program
from ..opdef import registry
from ..param_attr import AttrLike, GivenParameter, ParamAttr, WeightNormParamAttr
from ..values.types import DTypeLike, VarType, as_dtype, is_floating
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
    "inside",
    "keeping",
    "keeping_itself",
    "listed",
    "product",
    "refuse_tensor",
    "region",
]


def refuse_tensor(value: Any, what: str, instead: str) -> None:
    """A `ProgramError` if `value` is a tensor of eager mode, where `what` builds a block of a program."""
    if isinstance(value, Variable) and value.block.program.eager:
        raise ProgramError(f"{what} builds a block of a program, and {value.name} is a tensor; on tensors use {instead}")


def extent(var: Variable, axis: int, where: str) -> int:
    """The extent of `var` at an axis; `ProgramError` if it has none there. `where` names the argument."""
    if not -var.ndim <= axis < var.ndim:
        raise ProgramError(f"{where} {var} has {var.ndim} dimensions; it should have more, there is no axis {axis}")
    return var.shape[axis]


def listed(value: Any) -> list[Any]:
    """A list or tuple of variables as a list, anything else as a list of that one."""
    return list(value) if isinstance(value, (list, tuple)) else [value]


def extents(value: Any, count: int, where: str) -> list[int]:
    """`value` as a list of two or three (`count`) whole numbers: a single number stands for all."""
    if isinstance(value, (int, np.integer)):
        return [int(value)] * count
    if isinstance(value, (list, tuple)) and len(value) == count:
        return [int(item) for item in value]
    raise ProgramError(f"{where} should be a whole number or {('two', 'three')[count - 2]} of them, not {value!r}")


class ParametersLost(ProgramError):
    """A layer is called on tensors, and nobody would keep the parameters that it makes."""

    how_to_keep: ClassVar[Callable[[str], str]] = lambda layer: f"layer = fluid.dygraph.LayerOf(fluid.layers.{layer}, ...)"
    """How users write an object that keeps the parameters of the layer of this name; `fluid.dygraph.layer_of` says it better."""

    def __init__(self, layer: str) -> None:
        super().__init__(layer)
        self.speak_of(layer)

    def speak_of(self, layer: str) -> None:
        """Let this be about the layer that the user called: what to write instead depends on its name."""
        self.args = (
            f"{layer} would make its parameters anew in each call; in eager mode make, once, an object that keeps them, "
            f"{type(self).how_to_keep(layer)}, and call that with the tensors",
        )


class Wanted(NamedTuple):
    """A parameter that a layer asks for; called, it is made."""

    layer: str
    """The type of the layer."""
    name: str | None
    """What the user calls it."""
    shape: Sequence[int]
    dtype: DTypeLike
    create: Callable[[], Any]
    given: bool = False
    """Whether the user gives it: nothing is to be made."""

    def __call__(self) -> Any:
        return self.create()


class LayerHelper:
    """Makes the parts of one layer, named after it: ``fc_0.w_0``, ``fc_0.b_0``, ``fc_0.tmp_0``.

    Args:
        layer_type: such as ``"fc"``; the layer is called ``fc_0`` unless `name` is given.
        name: of the layer.
        param_attr, bias_attr: what the user says of the weights and of the bias; False for none.
        act: activation op to append.
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
        self.name = name or _keepers.name or unique_name.generate(layer_type)
        self.param_attr: Any = ParamAttr._to_attr(param_attr)
        self.bias_attr: Any = ParamAttr._to_attr(bias_attr)
        self.act = act
        self.kwargs = kwargs

    @property
    def main_program(self) -> Program:
        return default_main_program()

    @property
    def startup_program(self) -> Program:
        """Where first values are set."""
        return self.main_program.startup

    @property
    def block(self) -> Block:
        """The block that ops are appended to."""
        return self.main_program.current_block()

    # -- variables
    def create_variable_for_type_inference(self, dtype: DTypeLike | None = None, stop_gradient: bool = False) -> Variable:
        """A temporary; what is not given is inferred by the op that writes it."""
        return self.block.create_var(name=unique_name.generate(self.name + ".tmp"), dtype=dtype, stop_gradient=stop_gradient)

    def create_variable(self, **kwargs: Any) -> Variable:
        """A variable of the current block; arguments as of `Variable`."""
        return self.block.create_var(**kwargs)

    def create_global_variable(self, persistable: bool = False, **kwargs: Any) -> Variable:
        """A variable of the root block; arguments as of `Variable`."""
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
        """A parameter, and in the startup program the op that sets its first value.

        Without a name it is called ``fc_0.w_0``, or ``fc_0.b_0`` where `is_bias`. A parameter whose name the startup
        program knows already is shared and keeps its first value.

        In eager mode parameters are kept by the objects of `fluid.dygraph` that call the layer, or given as `attr`.
        """
        keep = _keepers.keep
        attr = ParamAttr._to_attr(attr)
        if isinstance(attr, GivenParameter):
            given = self._given(attr.tensor, shape, dtype)
            wanted = Wanted(self.layer_type, given.name, shape, dtype, lambda: given, given=True)
            found: Parameter = keep(wanted, is_bias) if keep is not None and isinstance(given, Parameter) else given
            return found

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

    def _given(self, tensor: Any, shape: Sequence[int], dtype: DTypeLike) -> Any:
        wanted = tuple(int(extent) for extent in shape)
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
        shape = [int(extent) for extent in shape]
        if any(extent < 1 for extent in shape):
            raise ProgramError(
                f"{self.name}: a parameter cannot have the shape {shape}; extents of the layer's input that it is made from "
                "must be known, not -1"
            )
        initializer = attr.initializer or default_initializer
        if initializer is None:
            initializer = Constant(0.0) if is_bias else Xavier()
        if not callable(initializer):
            raise FluidTypeError(f"{self.name}: initializer should be one of fluid.initializer, not {initializer!r}")
        if not is_floating(dtype) and attr.initializer is None and default_initializer is None:
            raise ProgramError(f"{self.name}: a parameter of {dtype.text} needs an initializer")
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
        """``g * v / norm(v)`` of two parameters, in place of one."""
        if attr.dim is not None and not -len(shape) <= attr.dim < len(shape):
            raise ProgramError(f"{self.name}: WeightNormParamAttr has dim={attr.dim}, but the parameter has the shape {shape}")
        kept = None if attr.dim is None else attr.dim % len(shape)
        axes = [axis for axis in range(len(shape)) if axis != kept]
        lengths = [1 if axis in axes else extent for axis, extent in enumerate(shape)]

        def part(suffix: str, extents: list[int], first: Initializer) -> Parameter:
            said = {"name": kwargs["name"] + suffix, "initializer": first, "learning_rate": attr.learning_rate}
            said |= {name: getattr(attr, name) for name in ("regularizer", "trainable", "gradient_clip", "do_model_average")}
            return self._create_parameter(ParamAttr(**said), extents, dtype, False, None)

        v = part(PARTS[0], shape, initializer)
        g = part(PARTS[1], lengths, NormInitializer(v, axes))
        return self.block.derive(WeightNorm(kwargs["name"], v, g, axes))  # type: ignore[no-any-return]

    def set_variable_initializer(self, var: Variable, initializer: Initializer) -> Variable:
        """Let the startup program set the first value of a persistable variable; gives the variable there."""
        return self.startup_program.global_block().initialize(var, initializer)

    # -- ops
    def append_op(self, type: str, **kwargs: Any) -> Operator:
        """Append an op to the current block; arguments as of `Block.append_op`."""
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
        """Append an op; its outputs, but for those given, are temporaries of this layer.

        Inputs that are None are left out, and optional outputs are made only if given. `count` is the number of
        variables made for an output of many. Returns slot -> variable (list, for outputs of many).

        On tensors of eager mode the op runs at once; of the outputs that only its gradient reads, those in `also` are returned.
        """
        definition = registry.get(op_type)
        home: Program | None = None
        for where, value in inputs.items():
            for item in value if isinstance(value, (list, tuple)) else (value,):
                if item is None:
                    continue
                check_variable(item, f"{self.layer_type}: {where}")
                program = item.block.program
                if home is not None and program.eager != home.eager:
                    raise _mixed(self.layer_type, inputs)
                home = program
        program = home if home is not None and home.eager else self.main_program
        return program.current_block().apply(
            definition, inputs, attrs or {}, outputs or {}, self.create_variable_for_type_inference, count, also
        )

    def append_bias_op(self, input_var: Variable, dim_start: int = 1, dim_end: int | None = None) -> Variable:
        """Add a bias, one number for each element of dimensions `dim_start` to `dim_end`; `input_var` if there is none."""
        if not self.bias_attr:
            return input_var
        bias = self.create_parameter(self.bias_attr, input_var.shape[dim_start:dim_end], input_var.dtype, is_bias=True)
        made: Variable = self.apply("elementwise_add", {"X": input_var, "Y": bias}, {"axis": dim_start})["Out"]
        return made

    def append_activation(self, input_var: Variable) -> Variable:
        """Apply the activation that the user named, if any: an op's type, or a dict of ``type`` and attributes."""
        if not self.act:
            return input_var
        attrs = {"type": self.act} if isinstance(self.act, str) else dict(self.act)
        op_type = attrs.pop("type")
        definition = registry.find(op_type)
        needed = [slot.name for slot in definition.inputs.values() if not slot.optional] if definition is not None else []
        if definition is None or needed != ["X"] or "Out" not in definition.outputs:
            raise ProgramError(f"{self.layer_type}: {op_type!r} is no activation; act names an op of one tensor such as 'relu'")
        made: Variable = self.apply(op_type, {"X": input_var}, attrs)["Out"]
        return made


Keep = Callable[[Wanted, bool], Parameter]
"""Gives a layer a parameter that it wants, a bias or not."""


class _Keepers(threading.local):
    keep: Keep | None = None
    name: str | None = None
    region: str | None = None
    """The branch or loop of the function whose parameters are kept, while it is in one."""


_keepers = _Keepers()


@contextlib.contextmanager
def keeping(keep: Keep, name: str | None = None) -> Iterator[None]:
    """Inside the ``with``, a layer that needs a parameter gets what ``keep(wanted, is_bias)`` gives it; it goes by this name."""
    old = _keepers.keep, _keepers.name, _keepers.region
    _keepers.keep, _keepers.name, _keepers.region = keep, name, None
    try:
        yield
    finally:
        _keepers.keep, _keepers.name, _keepers.region = old


@contextlib.contextmanager
def inside(region: str | None) -> Iterator[None]:
    """Inside the ``with``, functions run of which not each does in each call, or once: those of ``"cond"``, say."""
    old, _keepers.region = _keepers.region, region
    try:
        yield
    finally:
        _keepers.region = old


def region() -> str | None:
    """Where functions run that `inside` speaks of, None elsewhere, and inside what keeps parameters of its own."""
    return _keepers.region


@contextlib.contextmanager
def keeping_itself() -> Iterator[None]:
    """Inside the ``with``, parameters are made for who keeps them where no layer does; they outlive what is traced."""
    if _keepers.keep is not None:
        with inside(None):  # who keeps them asks once
            yield
        return
    with default_main_program().apart(), keeping(lambda create, is_bias: create()):
        yield


def check_kept(layer: str, input: Variable) -> None:
    """An error, where this layer would make objects that keep parameters, and nobody would keep these."""
    if _keepers.keep is None and input.block.program.eager:
        raise ParametersLost(layer)


def _mixed(layer: str, inputs: Mapping[str, Any]) -> FluidTypeError:
    items = [item for value in inputs.values() for item in listed(value) if item is not None]
    tensor = next(item for item in items if item.block.program.eager)
    variable = next(item for item in items if not item.block.program.eager)
    what = f"the parameter {variable.name}" if isinstance(variable, Parameter) else f"{variable.name}, a Variable of a program"
    return FluidTypeError(
        f"{layer} is given {tensor.name}, a tensor, and {what}. On tensors, layers without parameters run at once; those with "
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
    """A layer of one op with several outputs: those to be seen, in order; lists for outputs of many."""
    made = LayerHelper(layer or op_type, name).apply(op_type, inputs, attrs, count=count)
    slots = registry.get(op_type).outputs
    return [value for slot, value in made.items() if not slots[slot].intermediate]


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
    """A layer of one op with one output to be seen, and perhaps an activation."""
    helper = LayerHelper(layer or op_type, name, act=act)
    made = helper.apply(op_type, inputs, attrs, outputs)
    slots = registry.get(op_type).outputs
    (seen,) = (value for slot, value in made.items() if not slots[slot].intermediate)
    return helper.append_activation(seen)


def product(extents: Sequence[int]) -> int:
    """The product of these extents, or -1 where one of them is unknown."""
    return -1 if any(extent < 0 for extent in extents) else math.prod(extents)
