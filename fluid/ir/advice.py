"""Advice for code that treats a variable of a program as an array: asks for its values or calls methods of arrays."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ..errors import EagerOnlyError, FluidTypeError, MissingAttributeError, did_you_mean
from ..opdef import registry

if TYPE_CHECKING:
    from .program import Variable


_LAYERS = {
    "T": "transpose({}, perm=[1, 0])",
    "all": "reduce_all({})",
    "any": "reduce_any({})",
    "dot": "matmul({}, ...)",
    "flatten": "flatten({})",
    "max": "reduce_max({})",
    "mean": "reduce_mean({})",
    "min": "reduce_min({})",
    "prod": "reduce_prod({})",
    "reshape": "reshape({}, shape=[...])",
    "size": "size({})",
    "sum": "reduce_sum({})",
    "transpose": "transpose({}, perm=[...])",
    "view": "reshape({}, shape=[...])",
}
"""Attributes of arrays and tensors -> the layers to call."""
_VALUES = {"cpu", "cuda", "data", "item", "numpy", "tolist"}
_OF_TENSORS = {
    "backward": "call optimizer.minimize({0}), or fluid.append_backward({0})",
    "clear_gradient": "gradients are computed anew in each run",
    "grad": "fluid.gradients(loss, {0}) adds its gradient to the program, as a variable to fetch",
    "gradient": "fluid.gradients(loss, {0}) adds its gradient to the program, as a variable to fetch",
    "set_value": "scope.find_var({0!r}).get_tensor().set(array, place) sets it for the next runs",
}
"""Methods of the tensors of eager mode -> what to do in a program."""


def _nature(var: Variable) -> str:
    return (
        f"{var.name} is a Variable of a program, {var.describe()}, and has no value until that runs: "
        f"exe.run(program, feed, fetch_list=[{var.name}]) returns it"
    )


def without_value(var: Variable, wanted: str) -> FluidTypeError:
    """The error of code that asks for the elements of a variable; `wanted` names the use."""
    return FluidTypeError(f"{wanted}: {_nature(var)}; to compute with it in the program, use fluid.layers, such as reduce_mean")


_REFLECTED = {
    "add": "__radd__",
    "divide": "__rtruediv__",
    "equal": "__eq__",
    "floor_divide": "__rfloordiv__",
    "greater": "__lt__",
    "greater_equal": "__le__",
    "less": "__gt__",
    "less_equal": "__ge__",
    "matmul": "__rmatmul__",
    "multiply": "__rmul__",
    "not_equal": "__ne__",
    "power": "__rpow__",
    "remainder": "__rmod__",
    "subtract": "__rsub__",
}
"""Functions by which numpy computes operators of an array and a variable -> the methods of the variable."""


def reflected_method(value: Any, ufunc: Any, method: str, inputs: Sequence[Any], kwargs: Mapping[str, Any]) -> str | None:
    """The method of a value that computes an operator of numpy, with an array on its left; None for any other call."""
    is_operator = method == "__call__" and len(inputs) == 2 and inputs[1] is value and not kwargs
    return _REFLECTED.get(ufunc.__name__) if is_operator else None


_LAYER_OF_NUMPY = {"absolute": "abs", "maximum": "elementwise_max", "minimum": "elementwise_min", "power": "pow"}
"""Functions of numpy -> layers with another name."""


def of_numpy(var: Variable, function: str) -> FluidTypeError:
    """The error of a function of numpy that is called with a variable."""
    layer = _LAYER_OF_NUMPY.get(function, function)
    is_layer = registry.find(layer) is not None
    instead = f"write fluid.layers.{layer}({var.name})" if is_layer else "to compute with it in the program, use fluid.layers"
    return FluidTypeError(f"np.{function}: {_nature(var)}; {instead}")


def of_other_program(var: Variable) -> str:
    """Text that says that a variable belongs to another program, or is a tensor of eager mode."""
    if var.block.program.eager:
        return f"{var.name} is a tensor of eager mode, which no program has; .numpy() gives its value"
    line = ""
    op = var.op
    frame = None if op is None else op.user_frame
    if frame is not None:
        line = f", made at {frame[0]}:{frame[1]} in {frame[2]}"
    return (
        f"{var.name} ({var.describe()}{line}) belongs to another program; build both in one program_guard, or run its own program"
    )


def missing_attribute(var: Variable, name: str) -> AttributeError:
    """The error of an attribute that a variable does not have, with the code to write instead if it is known."""
    text = f"{type(var).__name__!r} object has no attribute {name!r}"
    if name.startswith("__"):
        return AttributeError(text)
    if name in _VALUES:
        text += f"; {_nature(var)}"
    elif name in _OF_TENSORS:
        text += f"; {var.name} is a Variable of a program; " + _OF_TENSORS[name].format(var.name)
    elif layer := _LAYERS.get(name) or (f"{name}({{}}, ...)" if registry.find(name) is not None else ""):
        text += f"; write fluid.layers.{layer.format(var.name)}"
    else:
        text += did_you_mean(name, [public for public in dir(type(var)) if public[:1] != "_"])
    kind = EagerOnlyError if name == "numpy" or name in _OF_TENSORS else MissingAttributeError
    return kind(text)
