"""Functions of `fluid.layers` that have parameters, as objects that keep them."""

from __future__ import annotations

import importlib
import inspect
import itertools
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from .. import layers, nets
from ..building.layer_helper import Keep, ParametersLost, Wanted, region
from ..errors import FluidTypeError, ProgramError
from ..values.types import as_dtype
from . import nn
from .layers import Layer

__all__ = ["LayerOf", "how_to_keep"]


class LayerOf(nn._Functional):
    """A function that calls layers of `fluid.layers`, as an object that keeps their parameters::

        crf = dygraph.LayerOf(layers.linear_chain_crf)
        cost = crf(emission, label)
        decode = dygraph.LayerOf(layers.crf_decoding, param_attr=crf.weight)
        path = decode(emission)

    The first call makes the parameters: ``weight``, ``weight_1``, ... and ``bias``, ``bias_1``, ... in the order of the
    function's requests. This order, the shapes and the dtypes must be the same in each call. Requests with the same name in
    `ParamAttr` share a parameter. Branches and loops (`cond`, `while_loop`, the steps of `rnn`) cannot make any. To share a
    parameter with another layer, pass it as `param_attr` or assign it: ``other.weight = layer.weight``.

    Args:
        function: of `fluid.layers` or `fluid.nets`, or your own function that calls these.
        fixed: keyword arguments that are the same in each call; a call passes the others, in order. An `is_test` argument that is
            not among them follows the mode of the object (`train`, `eval`).

    >>> fc = dygraph.LayerOf(layers.fc, size=3)
    >>> fc(dygraph.Tensor(np.ones([2, 4], "float32"))).shape
    (2, 3)
    >>> fc.weight.shape
    (4, 3)
    """

    def __init__(self, function: Callable[..., Any], **fixed: Any) -> None:
        if not callable(function) or isinstance(function, (type, Layer)):
            raise FluidTypeError(f"LayerOf takes a function, such as fluid.layers.hsigmoid, not {function!r}")
        name = getattr(function, "__name__", "")
        super().__init__(name if name.isidentifier() else "layer_of")
        parameters = inspect.signature(function).parameters
        named = not any(item.kind is item.VAR_KEYWORD for item in parameters.values())
        for argument in fixed:
            if named and argument not in parameters:
                raise FluidTypeError(f"LayerOf: {name} has no argument {argument!r}; it has {', '.join(parameters)}")
        self._function = function
        self._make_later(fixed)
        self._called: dict[str, str | None] = {}
        """Parameter names here -> the names that the function gives them."""
        self._tells_test = "is_test" in parameters and "is_test" not in fixed
        kinds = {item.kind for item in parameters.values()}
        open_ = [key for key, item in parameters.items() if item.kind is item.POSITIONAL_OR_KEYWORD and key not in fixed]
        self._open = None if kinds & {inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.VAR_POSITIONAL} else open_

    def _kind_of_name(self, name_scope: str | None) -> str:
        return name_scope or super()._kind_of_name(None)  # the function's name takes the place of a class

    def forward(self, *inputs: Any, **others: Any) -> Any:
        arguments = {**self._arguments, **others}
        if self._open is not None:
            if len(inputs) > len(self._open):
                raise FluidTypeError(f"{self.full_name()} takes {', '.join(self._open) or 'nothing'}, but is given {len(inputs)}")
            arguments.update(zip(self._open, inputs, strict=False))
            inputs = ()
        if self._tells_test:
            arguments.setdefault("is_test", not self.training)
        return self._call(lambda: self._function(*inputs, **arguments))

    def _keep(self, names: Iterator[str]) -> Keep:
        biases = itertools.chain(["bias"], (f"bias_{number}" for number in itertools.count(1)))
        shared: dict[str, str] = {}  # names that the function has given in this call -> names here

        def keep(wanted: Wanted, is_bias: bool) -> Any:
            name = shared.get(wanted.name) if wanted.name is not None and not wanted.is_supplied else None
            if name is None:
                where = region()
                if where is not None:
                    if wanted.is_supplied:
                        return wanted()
                    raise self._in_region(wanted, where)
                name = next(biases if is_bias else names)
                if wanted.name is not None and not wanted.is_supplied:
                    shared[wanted.name] = name
                self._check_called(name, wanted)
            parameter = super(LayerOf, self)._keep(iter([name]))(wanted, False)
            shape = tuple(map(int, wanted.shape))
            if parameter is not None and (parameter.shape != shape or parameter.dtype is not as_dtype(wanted.dtype)):
                raise self._unfit(name, parameter.describe(), f"{as_dtype(wanted.dtype).text}{list(shape)}", wanted)
            self._called[name] = wanted.name
            return parameter

        return keep

    def _check_called(self, name: str, wanted: Wanted) -> None:
        """Raise an error if the parameter had another name when it was made."""
        called = self._called.get(name, wanted.name)
        if called != wanted.name:
            before, now = ("without a name" if item is None else f"called {item!r}" for item in (called, wanted.name))
            raise self._unfit(name, f"one {before}", f"one {now}", wanted)

    def _unfit(self, name: str, stored: str, requested: str, wanted: Wanted) -> ProgramError:
        return ProgramError(
            f"{self.full_name()} keeps {stored} as its {name}, but in this call {wanted.layer} asks for {requested} in this "
            "place. A LayerOf asks for the same parameters in each call: make another LayerOf for other ones"
        )

    def _in_region(self, wanted: Wanted, where: str) -> ProgramError:
        return ProgramError(
            f"{self.full_name()}: {wanted.layer} asks for a parameter inside {where}. On tensors, each run of that would make "
            "another: make the layer outside, once, as an object of its own "
            f"({how_to_keep(wanted.layer)}), and call that inside"
        )

    def __getstate__(self) -> dict[str, Any]:
        name = getattr(self._function, "__name__", "")
        for home in _homes():
            if getattr(home, name, None) is self._function:  # pickle would look where the function was defined
                return {**self.__dict__, "_function": (home.__name__, name)}
        return dict(self.__dict__)

    def __setstate__(self, state: Mapping[str, Any]) -> None:
        super().__setstate__(state)
        if isinstance(state["_function"], tuple):
            module, name = state["_function"]
            self.__dict__["_function"] = getattr(importlib.import_module(module), name)

    def _may_make(self, name: str) -> bool:
        return super()._may_make(re.sub(r"^bias_\d+", "bias", name))

    def extra_repr(self) -> str:
        return ", ".join(filter(None, [getattr(self._function, "__name__", repr(self._function)), super().extra_repr()]))


def _class_of(layer: str) -> Any:
    """The class that calls the layer of this name."""
    wanted = layer.replace("_", "")
    classes = (getattr(nn, name) for name in nn.__all__)
    return next((kind for kind in classes if kind.__name__.lower() == wanted and issubclass(kind, nn._Functional)), None)


def _homes() -> list[Any]:
    """The modules whose functions have parameters."""
    from .. import contrib  # loaded when used, as by `import fluid`

    return [layers, contrib.layers, nets]


def how_to_keep(layer: str) -> str:
    """Code, for messages, that creates an object which keeps the parameters of this layer."""
    kind = _class_of(layer)
    if kind is not None:
        return f"layer = fluid.dygraph.{kind.__name__}(...)"
    home = next((module for module in _homes() if hasattr(module, layer)), None)
    if home is None:
        return "layer = fluid.dygraph.LayerOf(function, ...)"
    needed = [
        name
        for name, item in inspect.signature(getattr(home, layer)).parameters.items()
        if item.default is item.empty and "Variable" not in str(item.annotation)
    ]
    return f"layer = fluid.dygraph.LayerOf({', '.join([f'{home.__name__}.{layer}', *(f'{name}=...' for name in needed)])})"


ParametersLost.how_to_keep = how_to_keep
