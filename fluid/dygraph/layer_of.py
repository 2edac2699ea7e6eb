"""Functions of `fluid.layers` that have parameters, as objects which keep these."""

from __future__ import annotations

import inspect
import itertools
import re
from collections.abc import Callable, Iterator
from typing import Any

from .. import layers
from ..errors import FluidTypeError
from . import nn
from .layers import Layer

__all__ = ["LayerOf", "how_to_keep"]


class LayerOf(nn._Functional):
    """A function that calls layers of `fluid.layers`, as an object which keeps their parameters::

        crf = dygraph.LayerOf(layers.linear_chain_crf)
        cost = crf(emission, label)
        decode = dygraph.LayerOf(layers.crf_decoding, param_attr=crf.weight)
        path = decode(emission)

    The first call makes the parameters: ``weight``, ``weight_1``, ... and ``bias``, ``bias_1``, ... in the order in which the
    function asks for them, which has to be the same in each call. One is shared by giving it to another layer, as `param_attr` or
    as an attribute: ``other.weight = layer.weight``.

    Args:
        function: of `fluid.layers`, `fluid.nets`, or one of yours that calls such.
        fixed: arguments that are the same in each call, by name; those of a call are the others, in order. Where the function
            has an `is_test` that is not among them, it is told whether the object is trained or tested (`train`, `eval`).
    """

    def __init__(self, function: Callable[..., Any], **fixed: Any) -> None:
        if not callable(function) or isinstance(function, (type, Layer)):
            raise FluidTypeError(f"LayerOf takes a function, such as fluid.layers.hsigmoid, not {function!r}")
        name = getattr(function, "__name__", "")
        super().__init__(name if name.isidentifier() else "layer_of")
        known = inspect.signature(function).parameters
        named = not any(item.kind is item.VAR_KEYWORD for item in known.values())
        for argument in fixed:
            if named and argument not in known:
                raise FluidTypeError(f"LayerOf: {name} has no argument {argument!r}; it has {', '.join(known)}")
        self._function, self._said = function, fixed
        self._tells_test = "is_test" in known and "is_test" not in fixed
        by_name = all(item.kind in (item.POSITIONAL_OR_KEYWORD, item.KEYWORD_ONLY, item.VAR_KEYWORD) for item in known.values())
        open_ = [key for key, item in known.items() if item.kind is item.POSITIONAL_OR_KEYWORD and key not in fixed]
        self._open = open_ if by_name else None

    def forward(self, *inputs: Any, **others: Any) -> Any:
        given = {**self._said, **others}
        if self._open is not None:
            if len(inputs) > len(self._open):
                raise FluidTypeError(f"{self.full_name()} takes {', '.join(self._open) or 'nothing'}, but is given {len(inputs)}")
            given.update(zip(self._open, inputs, strict=False))
            inputs = ()
        if self._tells_test:
            given.setdefault("is_test", not self.training)
        return self._call(lambda: self._function(*inputs, **given))

    def _keep(self, names: Iterator[str]) -> Callable[[Callable[[], Any], bool], Any]:
        biases = itertools.chain(["bias"], (f"bias_{number}" for number in itertools.count(1)))

        def keep(create: Callable[[], Any], is_bias: bool) -> Any:
            of_one = super(LayerOf, self)._keep(iter([next(biases if is_bias else names)]))
            return of_one(create, False)

        return keep

    def _may_make(self, name: str) -> bool:
        return super()._may_make(re.sub(r"^bias_\d+", "bias", name))

    def extra_repr(self) -> str:
        return ", ".join(filter(None, [getattr(self._function, "__name__", repr(self._function)), super().extra_repr()]))


def _class_of(layer: str) -> Any:
    """The class that calls the layer of this name."""
    wanted = layer.replace("_", "")
    classes = (getattr(nn, name) for name in nn.__all__)
    return next((kind for kind in classes if kind.__name__.lower() == wanted and issubclass(kind, nn._Functional)), None)


def how_to_keep(layer: str) -> str:
    """How users write a layer, of this name, that keeps its parameters."""
    from .. import contrib

    kind = _class_of(layer)
    if kind is not None:
        return f"layer = fluid.dygraph.{kind.__name__}(...)"
    home = next((module for module in (layers, contrib.layers) if hasattr(module, layer)), None)
    if home is None:
        return "layer = fluid.dygraph.LayerOf(function, ...)"
    needed = [
        name
        for name, item in inspect.signature(getattr(home, layer)).parameters.items()
        if item.default is item.empty and "Variable" not in str(item.annotation)
    ]
    return f"layer = fluid.dygraph.LayerOf({', '.join([f'{home.__name__}.{layer}', *(f'{name}=...' for name in needed)])})"
