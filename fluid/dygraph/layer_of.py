"""Functions of `fluid.layers` that have parameters, as objects which keep these."""

from __future__ import annotations

import importlib
import inspect
import itertools
import re
from collections.abc import Callable, Iterator
from typing import Any

from .. import layers, nets
from ..building.layer_helper import Keep, ParametersLost, Wanted, region
from ..errors import FluidTypeError, ProgramError
from ..values.types import as_dtype
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
    function asks for them, which has to be the same in each call, as have their shapes and dtypes. One that is asked for again by
    the name that a `ParamAttr` says is shared. Inside branches and loops (`cond`, `while_loop`, the steps of `rnn`) none is made.
    One is shared with another layer by giving it to that, as `param_attr` or as an attribute: ``other.weight = layer.weight``.

    Args:
        function: of `fluid.layers`, `fluid.nets`, or one of yours that calls such.
        fixed: arguments that are the same in each call, by name; those of a call are the others, in order. Where the function
            has an `is_test` that is not among them, it is told whether the object is trained or tested (`train`, `eval`).

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
        known = inspect.signature(function).parameters
        named = not any(item.kind is item.VAR_KEYWORD for item in known.values())
        for argument in fixed:
            if named and argument not in known:
                raise FluidTypeError(f"LayerOf: {name} has no argument {argument!r}; it has {', '.join(known)}")
        self._function, self._said = function, fixed
        self._called: dict[str, str | None] = {}
        """What the function calls the parameters that are kept, by their names here."""
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

    def _keep(self, names: Iterator[str]) -> Keep:
        biases = itertools.chain(["bias"], (f"bias_{number}" for number in itertools.count(1)))
        shared: dict[str, str] = {}  # where parameters are whose names the function has said in this call

        def keep(wanted: Wanted, is_bias: bool) -> Any:
            name = shared.get(wanted.name) if wanted.name is not None and not wanted.given else None
            if name is None:
                where = region()
                if where is not None:
                    if wanted.given:
                        return wanted()
                    raise self._in_region(wanted, where)
                name = next(biases if is_bias else names)
                if wanted.name is not None and not wanted.given:
                    shared[wanted.name] = name
                self._check_called(name, wanted)
            found = super(LayerOf, self)._keep(iter([name]))(wanted, False)
            shape = tuple(int(extent) for extent in wanted.shape)
            if found is not None and (found.shape != shape or found.dtype is not as_dtype(wanted.dtype)):
                raise self._unfit(name, found.describe(), f"{as_dtype(wanted.dtype).text}{list(shape)}", wanted)
            self._called[name] = wanted.name
            return found

        return keep

    def _check_called(self, name: str, wanted: Wanted) -> None:
        """An error where another name was said of the parameter when it was made."""
        called = self._called.get(name, wanted.name)
        if called != wanted.name:
            before, now = (f"called {said!r}" if said is not None else "without a name" for said in (called, wanted.name))
            raise self._unfit(name, f"one {before}", f"one {now}", wanted)

    def _unfit(self, name: str, kept: str, asked: str, wanted: Wanted) -> ProgramError:
        return ProgramError(
            f"{self.full_name()} keeps {kept} as its {name}, but in this call {wanted.layer} asks for {asked} in this place. A "
            "LayerOf asks for the same parameters in each call: make another LayerOf for other ones"
        )

    def _in_region(self, wanted: Wanted, where: str) -> ProgramError:
        return ProgramError(
            f"{self.full_name()}: {wanted.layer} asks for a parameter inside {where}. On tensors, that runs as often as it "
            "happens to, and each time would make another: make the layer outside, once, as an object of its own "
            f"({how_to_keep(wanted.layer)}), and call that inside"
        )

    def __getstate__(self) -> dict[str, Any]:
        name = getattr(self._function, "__name__", "")
        for home in _homes():
            if getattr(home, name, None) is self._function:  # pickle would look where the function was defined
                return {**self.__dict__, "_function": (home.__name__, name)}
        return dict(self.__dict__)

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
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
    """How users write a layer, of this name, that keeps its parameters."""
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
