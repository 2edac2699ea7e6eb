"""`Layer`: named parameters, buffers and other layers, and a function of tensors that uses them."""

from __future__ import annotations

import contextlib
import inspect
import re
import warnings
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np

from .. import core, unique_name
from ..building.layer_helper import Keep, LayerHelper, Wanted, keeping
from ..building.weight_norm import PARTS, WeightNorm, normalized
from ..eager.graph import Hooks, RemovableHandle
from ..eager.mode import state, tracing
from ..eager.program import EAGER, Parameter
from ..eager.tensor import Tensor
from ..errors import FluidTypeError, MissingAttributeError, MissingMethodError, ProgramError, did_you_mean
from ..executor.runtime.random import RANDOM
from ..initializer import Initializer
from ..ir.program import program_guard
from ..layers.rnn import CellParameters, CellUnit, RNNCell
from ..param_attr import AttrLike
from ..training.states import check_state, renamed, some
from ..values.types import DTypeLike, VarType, as_dtype
from .backward_hooks import called_between
from .twins import appending, drawing_for_program, expect_parameters, is_appending, program_among, twin_of

__all__ = ["Layer"]

_Self = TypeVar("_Self", bound="Layer")
_ON_GPU = "with dygraph.guard(fluid.CUDAPlace(0)):, in which layers make their parameters on a GPU"
_ELSEWHERE = {
    "children": "net.sublayers(include_sublayers=False)",
    "compile": "dygraph.declarative(net), or fluid.training.LayerTrainer(net, loss_function, optimizer)",
    "cuda": _ON_GPU,
    "device": "net.parameters()[0].device",
    "fit": "fluid.training.fit(fluid.training.LayerTrainer(net, loss_function, optimizer), batches)",
    "half": "dygraph.amp_guard(), in which ops compute in float16",
    "load_state_dict": "net.set_dict(state)",
    "modules": "net.sublayers(include_self=True)",
    "named_modules": "net.named_sublayers(include_self=True)",
    "predict": "net(x), inside dygraph.no_grad()",
    "requires_grad_": "parameter.stop_gradient = True for each of net.parameters()",
    "summary": "fluid.summary(net, [shape])",
    "to": _ON_GPU,
    "zero_grad": "net.clear_gradients()",
}
"""Methods of layers in other frameworks -> what to write here."""
_OWN_TABLES = frozenset({"_arguments", "_buffers", "_given", "_norms", "_parameters", "_sub_layers"})
"""Attributes that each layer has: lists and dicts that no user has made."""


class _Incomplete(list[Any]):
    """Parameters of layers, some not made yet; `unmade` names the layers that still have to make theirs."""

    def __init__(self, parameters: list[Any], unmade: str) -> None:
        super().__init__(parameters)
        self.unmade = unmade


def _snake(name: str) -> str:
    """A class's name in the small letters of Paddle 1.8's names: ``conv2d_transpose`` for ``Conv2DTranspose``."""
    return re.sub(r"(?<=[a-z])(?=[A-Z])|(?<=[A-Z0-9])(?=[A-Z][a-z])", "_", name).lower()


class Layer(core.Layer):
    """A part of a network: a call with tensors returns the result of its `forward`::

        class Perceptron(dygraph.Layer):
            def __init__(self):
                super().__init__()
                self.hidden = dygraph.Linear(784, 128, act="relu")
                self.out = dygraph.Linear(128, 10)

            def forward(self, x):
                return self.out(self.hidden(x))

    A `Parameter` or `Layer` that is assigned to an attribute becomes a part of the layer. A class may also define
    ``_build_once(self, x)`` to make parts: it is called with the arguments of the first call, before `forward`.

    Args:
        name_scope: start of the layer's name, as in Fluid 1.6, and so of its parameters' names: ``FC("net", 10)`` is
            ``net/FC_0``, and has a parameter ``net/FC_0.w_0``; by default the class alone, ``fc_0``.
        dtype: element type of the parameters.

    Attributes:
        training: False after `eval`, for layers that behave differently in tests.

    >>> class Scale(dygraph.Layer):
    ...     def forward(self, x):
    ...         return x * 2.0
    ...
    >>> Scale()(dygraph.Tensor([1.0, 2.0])).numpy()
    array([2., 4.], dtype=float32)
    """

    training: bool
    _default_name: str | None = None
    """The name of a layer without a scope; None for the class's name in small letters."""
    _made = True
    """False while a layer that makes its parameters in its first call has not been called."""
    _builds = _to_build = False
    """Whether the class makes parts in `_build_once`, and whether the object has not done so yet."""
    _in_backward: Hooks | None = None
    """Hooks that backward calls; None while there have been none, as in files of earlier versions."""
    _given: dict[str, Any] | None = None
    """Values from `set_dict` for parameters still to be made, by names in the layer or their own; None without `set_dict`."""

    def __init__(self, name_scope: str | None = None, dtype: DTypeLike = VarType.FP32) -> None:
        attributes, kind = self.__dict__, self._kind_of_name(name_scope)
        attributes["_full_name"] = unique_name.generate(kind)
        RANDOM.add_object(kind)
        attributes["_dtype"] = as_dtype(dtype)
        attributes["_parameters"], attributes["_buffers"], attributes["_sub_layers"] = {}, {}, {}
        attributes["_unsaved"], attributes["_norms"], attributes["_taken_away"] = set(), {}, set()
        attributes["_before"], attributes["_after"] = Hooks(), Hooks()
        attributes["training"] = True
        if self._builds:
            attributes["_made"], attributes["_to_build"] = False, True
            expect_parameters(self._full_name)
        attributes["_helper"] = LayerHelper(self._full_name, self._full_name)

    def __setstate__(self, state: Mapping[str, Any]) -> None:
        self.__dict__.update(renamed(state, {"_said": "_arguments"}))

    def _kind_of_name(self, name_scope: str | None) -> str:
        """The layer's name without its number: in Fluid 1.6, the scope and the class."""
        kind = type(self).__name__
        return f"{name_scope}/{kind}" if name_scope is not None else self._default_name or _snake(kind)

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        build = cls.__dict__.get("_build_once")
        if build is not None:  # without inputs, the class calls it itself
            cls._builds = len(inspect.signature(build).parameters) > 1

    # -- calling
    def _build_once(self, *inputs: Any, **kwargs: Any) -> None:
        """Make the parts that depend on the inputs of the first call; defined by classes that have such parts."""

    def _build(self, inputs: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Call `_build_once`, and set its parts to the values from `set_dict`."""
        attributes, before = self.__dict__, set(self._state(None, True))
        parts = {kind: dict(attributes[kind]) for kind in ("_parameters", "_buffers", "_sub_layers", "_norms")}
        try:
            with RANDOM.apart(), drawing_for_program(), program_guard(EAGER, EAGER), tracing(None):
                self._build_once(*inputs, **kwargs)
            attributes["_made"] = True
            if self._given is not None:
                self._set(self._given, before)
        except BaseException:  # it is built again in the next call
            attributes["_made"] = False
            for kind, entries in parts.items():
                attributes[kind].clear()
                attributes[kind].update(entries)
            raise
        attributes["_given"], attributes["_to_build"] = None, False

    def forward(self, *inputs: Any, **kwargs: Any) -> Any:
        """The layer's computation; defined by each class.

        Args:
            inputs, kwargs: the arguments of the call.
        """
        methods = [name for name, value in vars(type(self)).items() if inspect.isfunction(value) and name[:1] != "_"]
        hint = f"; it defines {', '.join(methods)}" if methods else ""
        raise MissingMethodError(f"{type(self).__name__} should define forward(...){hint}")

    def __call__(self, *inputs: Any, **kwargs: Any) -> Any:
        if state.tracer is not None:
            state.tracer.note_layer(self)
        program = program_among((*inputs, *kwargs.values()))
        if program is not None and not is_appending(program):
            with appending(program):
                return self(*inputs, **kwargs)
        if self._before:
            for hook in list(self._before.values()):
                changed = hook(self, inputs)
                if changed is not None:
                    inputs = changed if isinstance(changed, tuple) else (changed,)
        if self._to_build:
            self._build(inputs, kwargs)
        if self._in_backward and state.recording and state.tracer is None:
            result = called_between(self, self._in_backward, lambda *behind: self._forward_or_again(behind, kwargs), inputs)
        else:
            result = self._forward_or_again(inputs, kwargs)
        if self._after:
            for hook in list(self._after.values()):
                changed = hook(self, inputs, result)
                if changed is not None:
                    result = changed
        return result

    def _forward_or_again(self, inputs: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return self._forward_again(inputs, kwargs) if state.again else self.forward(*inputs, **kwargs)

    def _forward_again(self, inputs: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Call `forward` again as it was called before, without changing buffers and moving statistics."""
        saved = [
            (tensor, tensor._version[0], tensor._array.copy())
            for tensor in (*self._parameters.values(), *self._buffers.values())
            if tensor is not None and tensor._stop
        ]
        buffers = dict(self._buffers)
        try:
            return self.forward(*inputs, **kwargs)
        finally:
            self._buffers.update(buffers)
            for tensor, version, array in saved:
                if tensor._version[0] != version:
                    tensor.set_value(array)

    def backward(self, *inputs: Any) -> None:
        """An error: `backward` is a method of tensors, as in ``loss.backward()``."""
        raise ProgramError("a Layer has no backward; call that of the loss")

    def register_forward_pre_hook(self, hook: Callable[[Layer, tuple[Any, ...]], Any]) -> RemovableHandle:
        """Call ``hook(layer, inputs)`` before each call; a result other than None replaces the inputs."""
        return RemovableHandle(self._before, hook)

    def register_forward_post_hook(self, hook: Callable[[Layer, tuple[Any, ...], Any], Any]) -> RemovableHandle:
        """Call ``hook(layer, inputs, outputs)`` after each call; a result other than None replaces the outputs."""
        return RemovableHandle(self._after, hook)

    def register_backward_hook(self, hook: Callable[[Layer, tuple[Any, ...], tuple[Any, ...]], Any]) -> RemovableHandle:
        """Call ``hook(layer, input_gradients, output_gradients)`` when backward has come through a call of the layer.

        The hook gets gradients of the positional inputs and of the outputs, one for each tensor that requires a gradient, and
        None for other ones. A result other than None replaces the gradients of the inputs. Calls while tracing have no such
        hooks.
        """
        hooks = self.__dict__.setdefault("_in_backward", Hooks())
        return RemovableHandle(hooks, hook)

    def train(self: _Self) -> _Self:
        """Switch the layer and all layers inside it to training."""
        return self._set_training(True)

    def eval(self: _Self) -> _Self:
        """Switch the layer and all layers inside it to tests: dropout drops nothing, batch norms use moving statistics."""
        return self._set_training(False)

    def _set_training(self: _Self, training: bool) -> _Self:
        for layer in self.sublayers(include_self=True):
            if state.tracer is not None:
                state.tracer.note_layer(layer)
            layer.__dict__["training"] = training
        return self

    # -- parts
    def full_name(self) -> str:
        """The layer's name with its number; names of its parameters begin with it."""
        return self._full_name  # type: ignore[no-any-return]

    def create_parameter(
        self,
        attr: AttrLike = None,
        shape: Sequence[int] = (1,),
        dtype: DTypeLike | None = None,
        is_bias: bool = False,
        default_initializer: Initializer | None = None,
    ) -> Any:
        """A new initialized parameter; assign it to an attribute to make it part of the layer. None for ``attr=False``.

        A `WeightNormParamAttr` makes two parameters; the attribute that the result is assigned to is computed from them.

        Args:
            attr: a `ParamAttr`, or a value that stands for one.
            shape: its dimensions.
            dtype: its element type; the layer's by default.
            is_bias: initialized with zeros by default; others by `Xavier`.
            default_initializer: initializes it where `attr` says nothing.
        """
        if attr is False:
            return None
        kind = self._dtype if dtype is None else dtype
        keep = keeping(lambda wanted, is_bias: wanted())
        with drawing_for_program(), program_guard(EAGER, EAGER), tracing(None), keep:
            return self._helper.create_parameter(attr, shape, kind, is_bias, default_initializer)

    def create_variable(
        self,
        name: str | None = None,
        persistable: bool | None = None,
        dtype: DTypeLike | None = None,
        type: VarType = VarType.LOD_TENSOR,
    ) -> Any:
        """A tensor without elements yet, for an op to write to; a variable where the layer appends to a program.

        Args:
            name: its name; generated if None.
            dtype: its element type; the layer's by default.
            persistable, type: accepted as in Fluid, without effect.
        """
        name = name if name is not None else unique_name.generate(self._full_name + ".tmp")
        return (state.target or EAGER).current_block().create_var(name=name, dtype=self._dtype if dtype is None else dtype)

    def _keep(self, names: Iterator[str]) -> Keep:
        """Return a function that provides parameters for a functional layer: under these names, in order, and ``bias``; it makes
        missing ones."""

        def keep(wanted: Wanted, is_bias: bool) -> Any:
            name = "bias" if is_bias else next(names)
            parameter = self._parameters.get(name)
            if parameter is None and name not in self._norms:
                if name in self._taken_away:
                    raise ProgramError(
                        f"{self._full_name} needs its {name}, which was taken away: assign a Parameter to it, or make the layer "
                        f"without it, if it needs none ({'bias' if is_bias else 'param'}_attr=False)"
                    )
                with RANDOM.apart(), drawing_for_program(), program_guard(EAGER, EAGER), tracing(None):
                    created = wanted()
                    self._take_given(name, created)
                self._put(name, created)
            return self._parameter(name) if parameter is None else twin_of(parameter)

        return keep

    def _take_given(self, name: str, created: Any) -> None:
        """Set a new parameter to its value from `set_dict`."""
        if self._given is None:
            return
        parts = {name + part: one for part, one in created.parts.items()} if isinstance(created, WeightNorm) else {name: created}
        for part, parameter in parts.items():
            key = part if part in self._given else parameter.name
            if key in self._given:
                self._check_fits(part, parameter, self._given[key])
            elif not self._made:
                raise self._missing(part, parameter, self._given)
        for part, parameter in parts.items():
            value = self._given.pop(part if part in self._given else parameter.name, None)
            if value is not None:
                parameter.set_value(value)

    def _may_make(self, name: str) -> bool:
        """Whether the first call may still make a parameter of this name."""
        return self._to_build and name.partition(".")[0] not in self._sub_layers

    def _names_its(self, name: str) -> bool:
        """Whether the first call may still make a parameter whose own name is this one."""
        return self._to_build and name.startswith(f"{self._full_name}.")

    def _unmade(self, include_sublayers: bool = True) -> list[tuple[str, Layer]]:
        """(prefix of its parameter names, layer) for layers whose first call has still to make parameters."""
        layers = self.named_sublayers(include_self=True) if include_sublayers else [("", self)]
        return [(f"{name}." if name else "", layer) for name, layer in layers if not layer._made]

    def _parameter(self, name: str) -> Any:
        """The parameter of this name, computed if weight-normalized; None if there is none."""
        axes = self._norms.get(name)
        if axes is None:
            return twin_of(self._parameters.get(name))
        v, g = (twin_of(self._parameters.get(name + part)) for part in PARTS)
        if v is None or g is None:
            raise ProgramError(f"{name} of {self._full_name} is computed of {_parts_of(name)}, but one of them is gone")
        return normalized(v._ops(), v, g, axes)

    def _put(self, name: str, parameter: Any) -> None:
        """Store a parameter, or the two of a `WeightNorm`, under a name, in place of any part of that name."""
        self._drop(name)
        self._taken_away.discard(name)
        if isinstance(parameter, WeightNorm):
            for part, one in parameter.parts.items():
                self._put(name + part, one)
            self._norms[name] = parameter.axes
        else:
            self._parameters[name] = parameter

    def _drop(self, name: str) -> None:
        """Remove the part or attribute with this name."""
        attributes = self.__dict__
        for parts in (attributes["_parameters"], attributes["_sub_layers"], attributes["_buffers"], attributes):
            parts.pop(name, None)
        if attributes["_norms"].pop(name, None) is not None:
            for part in PARTS:
                attributes["_parameters"].pop(name + part, None)

    def add_parameter(self, name: str, parameter: Any) -> Any:
        """Add `parameter` to the layer under this `name`."""
        if not isinstance(parameter, (Parameter, WeightNorm)):
            raise FluidTypeError(
                f"add_parameter({name!r}) takes a Parameter, such as of create_parameter, not {_type_text(parameter)}"
            )
        self._check_free(name, self._parameters)
        if isinstance(parameter, WeightNorm):
            for part in PARTS:
                self._check_free(name + part, self._parameters)
        self._put(name, parameter)
        return parameter

    def add_sublayer(self, name: str, sublayer: Layer) -> Layer:
        """Add the layer `sublayer` to this one under this `name`."""
        if not isinstance(sublayer, Layer):
            raise FluidTypeError(f"add_sublayer({name!r}) takes a Layer, not {_type_text(sublayer)}")
        self._check_free(name, self._sub_layers)
        self._sub_layers[name] = sublayer
        return sublayer

    def register_buffer(self, name: str, tensor: Any, persistable: bool = True) -> None:
        """Add a tensor that is not trained to the layer.

        Args:
            name: the attribute that it becomes.
            tensor: the tensor.
            persistable: whether it is part of the `state_dict`.
        """
        if tensor is not None and not isinstance(tensor, Tensor):
            raise FluidTypeError(f"register_buffer({name!r}) takes a Tensor, not {_type_text(tensor)}")
        self._check_free(name, self._buffers)
        self._buffers[name] = tensor
        (self._unsaved.discard if persistable else self._unsaved.add)(name)

    def _check_free(self, name: str, target: Mapping[str, Any]) -> None:
        if not isinstance(name, str) or not name:
            raise FluidTypeError(f"parts of a layer have names, not {name!r}")
        is_used = name in self.__dict__ or any(
            name in parts for parts in (self._parameters, self._buffers, self._sub_layers, self._norms) if parts is not target
        )
        if is_used or ("." in name and target is not self._sub_layers):
            raise ProgramError(
                f"{self._full_name} cannot have a part called {name!r}; {'it has a point' if not is_used else 'it is taken'}"
            )

    def __setattr__(self, name: str, value: Any) -> None:
        attributes = self.__dict__
        if "_parameters" not in attributes:
            if isinstance(value, (Parameter, WeightNorm, Layer)):
                raise ProgramError(f"{type(self).__name__}: call super().__init__() before assigning {name}")
            attributes[name] = value
            return
        if isinstance(value, (Parameter, WeightNorm)):
            self._put(name, value)
            return
        if isinstance(value, Layer):
            self._drop(name)
            attributes["_sub_layers"][name] = value
            return
        if isinstance(value, (RNNCell, CellUnit)):
            self._drop(name)
            attributes[name], attributes["_sub_layers"][name] = value, _layer_of_cell(value)
            return
        if name in attributes["_norms"]:
            if value is not None:
                raise FluidTypeError(
                    f"{name} of {self._full_name} is computed of {_parts_of(name)}, and cannot become {_type_text(value)}; "
                    "give these other values, or delete it first"
                )
            self._put(name, None)
            return
        for parts in ("_parameters", "_sub_layers", "_buffers"):
            if name in attributes[parts]:
                if value is None:
                    attributes[parts][name] = None
                    attributes.pop(name, None)
                    return
                if parts == "_buffers" and isinstance(value, Tensor):
                    attributes[parts][name] = value
                    return
                raise FluidTypeError(
                    f"{name} of {self._full_name} is {_type_text(attributes[parts][name])}, and cannot become {_type_text(value)}"
                    "; use set_value, or delete it first"
                )
        object.__setattr__(self, name, value)

    def __getattr__(self, name: str) -> Any:
        attributes = self.__dict__
        if name in attributes.get("_sub_layers", ()):
            return attributes["_sub_layers"][name]
        for parts in ("_parameters", "_buffers"):
            if parts in attributes and name in attributes[parts]:
                return twin_of(attributes[parts][name])
        if name in attributes.get("_norms", ()):
            return self._parameter(name)
        message = f"{type(self).__name__} has no attribute {name!r}"
        if name in attributes.get("_taken_away", ()):
            message += f", which was deleted; if {self._full_name} is to do without, assign None to it"
        elif name in _ELSEWHERE:
            message += f"; write {_ELSEWHERE[name]}"
        elif name[:1] != "_":
            message += did_you_mean(name, [public for public in dir(self) if public[:1] != "_"])
        raise MissingAttributeError(message)

    def __delattr__(self, name: str) -> None:
        for parts in (self._parameters, self._sub_layers, self._buffers, self._norms):
            if name in parts:
                self._drop(name)
                self._taken_away.add(name)
                return
        object.__delattr__(self, name)

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *self._parameters, *self._sub_layers, *self._buffers, *self._norms})

    # -- traversal
    def named_sublayers(
        self,
        prefix: str = "",
        include_sublayers: bool = True,
        include_self: bool = False,
        layers_set: Collection[Layer] | None = None,
    ) -> Iterator[tuple[str, Layer]]:
        """(name, layer) of all layers inside it, each once; names are joined by dots.

        Args:
            prefix: the start of the names.
            include_sublayers: also those inside of these.
            include_self: begin with this layer itself.
            layers_set: layers to leave out, with their parts.
        """
        seen = {id(layer) for layer in layers_set or ()}
        stack: list[tuple[str, Layer]] = [(prefix, self)]
        while stack:
            name, layer = stack.pop()
            if id(layer) in seen:
                continue
            seen.add(id(layer))
            if layer is not self or include_self:
                yield name, layer
            if layer is not self and not include_sublayers:
                continue
            inner = [(f"{name}.{part}" if name else part, sub) for part, sub in layer._sub_layers.items() if sub is not None]
            stack += reversed(inner)

    def sublayers(self, include_sublayers: bool = True, include_self: bool = False) -> list[Layer]:
        """The layers inside it.

        Args:
            include_sublayers: also those inside of these.
            include_self: begin with this layer itself.
        """
        if not include_sublayers:
            return [layer for layer in self._sub_layers.values() if layer is not None]
        return [layer for _, layer in self.named_sublayers(include_self=include_self)]

    def _named(self, parts: str, prefix: str, include_sublayers: bool) -> Iterator[tuple[str, Layer, str, Any]]:
        seen: set[int] = set()
        for where, layer in self.named_sublayers(prefix, include_self=True) if include_sublayers else [(prefix, self)]:
            for name, tensor in layer.__dict__[parts].items():
                if tensor is not None and id(tensor) not in seen:
                    seen.add(id(tensor))
                    yield f"{where}.{name}" if where else name, layer, name, tensor

    def named_parameters(self, prefix: str = "", include_sublayers: bool = True) -> Iterator[tuple[str, Any]]:
        """(name, parameter) of all parameters, each once; names are joined by dots.

        Args:
            prefix: the start of the names.
            include_sublayers: include nested layers.
        """
        return ((full, tensor) for full, _, _, tensor in self._named("_parameters", prefix, include_sublayers))

    def parameters(self, include_sublayers: bool = True) -> list[Any]:
        """All parameters, each once; warns of layers that make theirs in a first call still to come."""
        tensors = [tensor for _, tensor in self.named_parameters(include_sublayers=include_sublayers)]
        self._warn_of_hidden_parts(include_sublayers)
        layers = self._unmade(include_sublayers)
        if not layers:
            return tensors
        unmade = some(layer._full_name for _, layer in layers)
        warnings.warn(
            f"{self._full_name}: the parameters of {unmade} are not among these: they are made in the first call of each. Call "
            "the network once before, or give an optimizer the layer itself, which it asks in each step: parameter_list=net",
            stacklevel=2,
        )
        return _Incomplete(tensors, unmade)

    def _warn_of_hidden_parts(self, include_sublayers: bool) -> None:
        """Warn of layers, cells and parameters in plain lists, tuples and dicts, unless they are attributes, too."""
        layers = self.sublayers(include_self=True) if include_sublayers else [self]
        attribute_ids = {id(part) for layer in layers for part in (layer, *layer._parameters.values(), *layer.__dict__.values())}
        for layer in layers:
            for name, value in layer.__dict__.items():
                if name in _OWN_TABLES or not isinstance(value, (list, tuple, dict)):
                    continue
                if any(_is_part(item) and id(item) not in attribute_ids for _, item in _items("", value)):
                    warnings.warn(
                        f"{name} of {layer._full_name} is a {type(value).__name__}: the layers and parameters in it are neither "
                        "trained nor saved. Make it a fluid.dygraph.LayerList or ParameterList, or make each of them an "
                        "attribute",
                        stacklevel=3,
                    )

    def named_buffers(self, prefix: str = "", include_sublayers: bool = True) -> Iterator[tuple[str, Any]]:
        """(name, buffer) of all buffers, each once; names are joined by dots.

        Args:
            prefix: the start of the names.
            include_sublayers: include nested layers.
        """
        return ((full, tensor) for full, _, _, tensor in self._named("_buffers", prefix, include_sublayers))

    def buffers(self, include_sublayers: bool = True) -> list[Any]:
        """All buffers, each once."""
        return [tensor for _, tensor in self.named_buffers(include_sublayers=include_sublayers)]

    def clear_gradients(self) -> None:
        """Clear the gradients of all parameters."""
        for _, parameter in self.named_parameters():
            parameter.clear_gradient()

    def apply(self: _Self, function: Callable[[Layer], Any]) -> _Self:
        """Call a function with this layer and each layer inside it."""
        for layer in self.sublayers(include_self=True):
            function(layer)
        return self

    # -- state
    def state_dict(
        self, destination: dict[str, Any] | None = None, include_sublayers: bool = True, structured_name_prefix: str = ""
    ) -> dict[str, Any]:
        """Parameters and buffers by name: the tensors themselves.

        For layers that make their parameters in a first call still to come, these are the values from `set_dict`, or a warning.

        Args:
            destination: a dict to add them to; a new one if None.
            include_sublayers: include nested layers.
            structured_name_prefix: the start of all names.
        """
        tensors = self._state(None, include_sublayers)
        self._warn_of_hidden_parts(include_sublayers)
        unmade = self._unmade(include_sublayers)
        for start, layer in unmade:
            tensors.update(
                (start + name if layer._may_make(name) else name, tensor) for name, tensor in (layer._given or {}).items()
            )
        without = [layer._full_name for _, layer in unmade if layer._given is None]
        if without:
            warnings.warn(
                f"{self._full_name}: the parameters of {some(without)} are not in the state: they are made in the first call of "
                "each; call the network once before",
                stacklevel=2,
            )
        result = destination if destination is not None else {}
        result.update((structured_name_prefix + name, tensor) for name, tensor in tensors.items())
        return result

    def _state(self, destination: dict[str, Any] | None, include_sublayers: bool) -> dict[str, Any]:
        """Existing parameters and persistable buffers by name."""
        tensors = destination if destination is not None else {}
        for name, layer in self.named_sublayers(include_self=True) if include_sublayers else [("", self)]:
            start = f"{name}." if name else ""
            for parts, left_out in ((layer._parameters, ()), (layer._buffers, layer._unsaved)):
                tensors.update(
                    (start + part, tensor) for part, tensor in parts.items() if tensor is not None and part not in left_out
                )
        return tensors

    def set_dict(self, stat_dict: Mapping[str, Any], include_sublayers: bool = True, use_structured_name: bool = True) -> None:
        """Set parameters and buffers to the values of a `state_dict`.

        Nothing changes unless all are there and fit; a warning lists names that the layer does not have. Layers that make their
        parameters in a first call still to come take their values then.

        Args:
            stat_dict: tensors or arrays, by the names in the layer or their own.
            include_sublayers: also of the layers inside it.
            use_structured_name: which name counts where the state has both: the one in the layer, or the tensor's own.

        Raises:
            ProgramError: a value is missing, or has another shape.
        """
        check_state(f"{self._full_name}.set_dict", stat_dict)
        self._set(stat_dict, None, include_sublayers, use_structured_name)

    def _set(
        self,
        stat_dict: Mapping[str, Any],
        done: Collection[str] | None,
        include_sublayers: bool = True,
        use_structured_name: bool = True,
    ) -> None:
        """`set_dict`, except for the names in `done`, which an earlier call has set."""
        chosen: list[tuple[Tensor, Any]] = []
        used = set()
        for name, tensor in self._state(None, include_sublayers).items():
            if done is not None and name in done:
                continue
            keys = (name, tensor.name) if use_structured_name else (tensor.name, name)
            key = next((key for key in keys if key in stat_dict), None)
            if key is None:
                raise self._missing(name, tensor, stat_dict)
            used.add(key)
            self._check_fits(name, tensor, stat_dict[key])
            chosen.append((tensor, stat_dict[key]))
        later: list[tuple[Layer, dict[str, Any]]] = []
        # Last the layers with `_build_once`, which may make parts of any name.
        for start, layer in sorted(self._unmade(include_sublayers), key=lambda item: item[1]._to_build):
            if done is not None and layer._given is not None:
                continue
            left = [key for key in stat_dict if key not in used]
            local_names = {key: key.removeprefix(start) for key in left if key.startswith(start)}
            used_keys = {key: name for key, name in local_names.items() if layer._may_make(name)}
            used_keys |= {key: key for key in left if key not in used_keys and layer._names_its(key)}
            used.update(used_keys)
            later.append((layer, {name: _copied(stat_dict[key]) for key, name in used_keys.items()}))
        unused = [name for name in stat_dict if name not in used]
        if unused:
            self._tell_unused(unused, stacklevel=4 if done is None else 5)
        for tensor, value in chosen:
            tensor.set_value(value)
        for layer, values in later:
            layer.__dict__["_given"] = values

    load_dict = set_dict

    def _missing(self, name: str, tensor: Tensor, state: Mapping[str, Any]) -> ProgramError:
        return ProgramError(f"{self._full_name}: the state has no {name!r} ({tensor.describe()}); it has {some(state)}")

    def _check_fits(self, name: str, tensor: Tensor, value: Any) -> None:
        if tuple(np.shape(value)) != tensor.shape:
            raise ProgramError(
                f"{self._full_name}: {name} is {tensor.describe()}, but the state's has the shape {list(np.shape(value))}"
            )

    def _tell_unused(self, names: list[str], stacklevel: int = 3) -> None:
        warnings.warn(f"{self._full_name} has nothing under these names of the state: {some(names)}", stacklevel=stacklevel)

    def __repr__(self) -> str:
        start = type(self).__name__ + "(" + self.extra_repr()
        inner = "".join(f"\n  ({name}): " + repr(layer).replace("\n", "\n  ") for name, layer in self._sub_layers.items())
        return start + inner + ("\n)" if inner else ")")

    def extra_repr(self) -> str:
        """Text in the `repr` of the layer, for settings of the class."""
        return ", ".join(f"{name}={list(tensor.shape)}" for name, tensor in self._parameters.items() if tensor is not None)


class CellParts(Layer):
    """The layers and cells among the attributes of a cell, which is an attribute of a layer."""

    def __init__(self, cell: RNNCell) -> None:
        self.__dict__["_cell"] = type(cell).__name__
        super().__init__()
        for name, value in vars(cell).items():
            for part, item in _items(name, value):
                if isinstance(item, (Layer, RNNCell, CellUnit)):
                    self.add_sublayer(part, item if isinstance(item, Layer) else _layer_of_cell(item))

    def _kind_of_name(self, name_scope: str | None) -> str:
        return _snake(self._cell)

    def forward(self, *inputs: Any, **kwargs: Any) -> Any:
        raise ProgramError(f"{self._full_name} keeps the parameters of a {self._cell}: call that, not this")

    def extra_repr(self) -> str:
        return ", ".join(filter(None, [self._cell, super().extra_repr()]))


class CellLayer(CellParts):
    """Keeps the parameters of a cell, with the names of Paddle 1.8: ``_weight``, ``_gate_bias``. The first call makes them."""

    def __init__(self, cell: RNNCell, parameters: CellParameters) -> None:
        super().__init__(cell)
        attributes, helper = self.__dict__, parameters.helper
        kinds = ("weight",) if helper.bias_attr is False else ("weight", "bias")
        attributes["_names"] = [_name_in_cell(part, kind) for part in parameters.parts for kind in kinds]
        attributes["_helper"] = helper
        parameters.keeper = self
        for part, pair in parameters.pairs.items():
            for kind, parameter in zip(kinds, pair, strict=False):
                if isinstance(parameter, Parameter):
                    self._put(_name_in_cell(part, kind), parameter)
        self._note_made()
        if not self._made:
            expect_parameters(helper.name)

    @contextlib.contextmanager
    def keeping(self, part: str, input: Any) -> Iterator[None]:
        """Inside the ``with``, use this layer's parameters for a part of the cell; `input` is what the cell is called with."""

        def keep(wanted: Wanted, is_bias: bool) -> Any:
            return self._keep(iter([_name_in_cell(part, "bias" if is_bias else "weight")]))(wanted, False)

        program = program_among([input])
        target = contextlib.nullcontext() if program is None or is_appending(program) else appending(program)
        with target, keeping(keep, self._helper.name):
            yield
        if not self._made:
            self._note_made()

    def _note_made(self) -> None:
        self.__dict__["_made"] = all(name in self._parameters for name in self._names)
        if self._made:
            if self._given:
                self._tell_unused(list(self._given), stacklevel=6)
            self.__dict__["_given"] = None

    def _may_make(self, name: str) -> bool:
        return name in self._names

    def _names_its(self, name: str) -> bool:
        return name.startswith((f"{self._helper.name}.w_", f"{self._helper.name}.b_"))


def _name_in_cell(part: str, kind: str) -> str:
    """The name of the weight or bias of a part of a cell."""
    return f"_{part}_{kind}" if part else f"_{kind}"


def _layer_of_cell(value: RNNCell | CellUnit) -> Any:
    """The layer that keeps the parameters of a cell, and of the cells and layers in its attributes."""
    cell = value.cell if isinstance(value, CellUnit) else value
    parameters = next((item for item in vars(cell).values() if isinstance(item, CellParameters)), None)
    if parameters is None:
        return CellParts(cell)
    return parameters.keeper or CellLayer(cell, parameters)


def _is_part(value: Any) -> bool:
    """Whether a value has parameters, or is one."""
    return isinstance(value, (Layer, Parameter, RNNCell, CellUnit))


def _items(name: str, value: Any, seen: set[int] | None = None) -> Iterator[tuple[str, Any]]:
    """(name, item) of each item of a list, tuple or dict, also of nested ones; another value itself.

    Args:
        seen: ids of lists, tuples and dicts that have been visited: some hold themselves.
    """
    if not isinstance(value, (list, tuple, dict)):
        yield name, value
        return
    seen = set() if seen is None else seen
    if id(value) not in seen:
        seen.add(id(value))
        for key, item in value.items() if isinstance(value, dict) else enumerate(value):
            yield from _items(f"{name}.{key}", item, seen)


def _parts_of(name: str) -> str:
    return " and ".join(name + part for part in PARTS)


def _type_text(value: Any) -> str:
    return f"a {type(value).__name__}"


def _copied(value: Any) -> Tensor:
    """A copy as a tensor."""
    return Tensor(value.numpy() if isinstance(value, Tensor) else value)
