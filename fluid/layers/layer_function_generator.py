"""Makes layer functions from ops, and documents functions from the op's definition."""

from __future__ import annotations

import functools
import re
import warnings
from collections.abc import Callable
from typing import Any, TypeVar

from ..building.layer_helper import LayerHelper
from ..errors import ProgramError
from ..ir.program import Variable
from ..opdef import registry
from ..opdef.registry import OpDef

__all__ = ["autodoc", "deprecated", "generate_activation_fn", "generate_layer_fn", "templatedoc"]

F = TypeVar("F", bound=Callable[..., Any])


def _argument(slot: str) -> str:
    """The name of a slot as an argument: ``X`` -> ``x``, ``InScale`` -> ``in_scale``."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", slot).lower()


def generate_layer_fn(op_type: str) -> Callable[..., Any]:
    """A layer that appends this op. It takes ``name``, ``act``, attributes, and input slots in lower case, also by position.

    It returns the output, or a list of outputs without intermediate ones.

    Args:
        op_type: the name of an op, as in the reference of ops.

    Raises:
        ProgramError: if there is no such op.

    >>> relu6 = layers.generate_layer_fn("relu6")
    >>> relu6(fluid.dygraph.to_variable([-1.0, 2.0, 8.0]), threshold=5.0)
    Tensor([0., 2., 5.], shape=[3], dtype=float32)
    """
    definition = registry.get(op_type)
    slots = {_argument(slot): slot for slot in definition.inputs}
    outputs = [slot for slot in definition.outputs.values() if not slot.intermediate and not slot.optional]

    def layer(*args: Any, **kwargs: Any) -> Any:
        name, act = kwargs.pop("name", None), kwargs.pop("act", None)
        if len(args) > len(slots):
            raise ProgramError(f"{op_type} takes {len(slots)} inputs ({', '.join(slots)}), not {len(args)}")
        arguments = {**dict(zip(slots, args, strict=False)), **kwargs}
        for argument in arguments:
            if argument not in slots and argument not in definition.attrs:
                raise ProgramError(f"{op_type} takes no {argument!r}; it takes {', '.join([*slots, *definition.attrs])}")
        inputs, attrs = {}, {}
        for argument, value in arguments.items():
            numbers = argument in definition.attrs and not isinstance(value, Variable)  # top_k has a slot K and an attribute k
            if argument in slots and not numbers:
                inputs[slots[argument]] = value
            elif value is not None:
                attrs[argument] = value
        helper = LayerHelper(op_type, name, act=act)
        by_slot = helper.apply(op_type, inputs, attrs)
        results = [by_slot[slot.name] for slot in outputs]
        return helper.append_activation(results[0]) if len(results) == 1 and not outputs[0].many else results

    layer.__name__ = layer.__qualname__ = op_type
    layer.__doc__ = _document(definition)
    return layer


def generate_activation_fn(op_type: str) -> Callable[..., Any]:
    """A layer ``f(x, name=None)`` that is this op of one tensor.

    Args:
        op_type: the name of an op of one tensor X.

    Raises:
        ProgramError: if there is no such op, or it is not of one tensor X.

    >>> layers.generate_activation_fn("relu")(fluid.dygraph.to_variable([-1.0, 2.0]))
    Tensor([0., 2.], shape=[2], dtype=float32)
    """
    definition = registry.get(op_type)
    if [slot.name for slot in definition.inputs.values() if not slot.optional] != ["X"]:
        raise ProgramError(f"{op_type} is not an op of one tensor X; use generate_layer_fn")
    layer_of_slots = generate_layer_fn(op_type)

    def layer(x: Any, name: str | None = None) -> Any:
        return layer_of_slots(x, name=name)

    layer.__name__ = layer.__qualname__ = op_type
    layer.__doc__ = layer_of_slots.__doc__
    return layer


def _document(definition: OpDef) -> str:
    inputs = ", ".join(_argument(slot) for slot in definition.inputs)
    attrs = ", ".join(f"{name}={attr.default!r}" for name, attr in definition.attrs.items())
    return f"{definition.doc or definition.type}\n\nInputs: {inputs or 'none'}. Attributes: {attrs or 'none'}."


def deprecated(func_or_class: F) -> F:
    """Decorates a function or class so that each call warns that it is deprecated."""

    @functools.wraps(func_or_class)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        warnings.warn(f"{func_or_class.__name__} is deprecated", DeprecationWarning, stacklevel=2)
        return func_or_class(*args, **kwargs)

    return wrapper  # type: ignore[return-value]


def autodoc(comment: str = "") -> Callable[[F], F]:
    """Replaces a function's docstring by `comment` and the documentation of the op that the function is named after."""

    def document(func: F) -> F:
        func.__doc__ = comment + _document(registry.get(func.__name__))
        return func

    return document


def templatedoc(op_type: str | None = None) -> Callable[[F], F]:
    """Fills in a docstring: ``${comment}`` with the op's doc, ``${x_comment}`` with a remark on its slot or attribute ``x``."""

    def document(func: F) -> F:
        definition = registry.get(op_type or func.__name__)
        words = {"comment": definition.doc.partition("\n\nArgs:")[0], "type_comment": definition.type}
        words.update((f"{_argument(slot)}_comment", f"the op's {slot}") for slot in (*definition.inputs, *definition.outputs))
        words.update((f"{name}_comment", f"{attr.kind}, by default {attr.default!r}") for name, attr in definition.attrs.items())
        func.__doc__ = re.sub(r"\$\{(\w+)\}", lambda match: words.get(match.group(1), match.group(0)), func.__doc__ or "")
        return func

    return document
