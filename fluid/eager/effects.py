"""Ops with side effects, on tensors: printing, calling Python functions, loading."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from ..building.layer_helper import listed
from ..errors import BackwardError
from ..executor.binding.array_types import array_type_of
from ..executor.stepwise.debug import called, check_count, fitted, gradients_of, show
from ..executor.stepwise.files import read
from ..opdef.registry import OpDef
from ..values.lod_array import with_lod
from .dispatch import TensorOp
from .function import PyLayer
from .graph import user_line
from .mode import state
from .program import EFFECTS, Unset, write
from .tensor import Tensor, make

Inputs = Mapping[str, Any]


def _refuse_tracing(call: str) -> None:
    if state.tracer is not None:
        state.tracer.refuse_call(call, "call it before, and pass its result to the function")


# ------------------------------------------------------------------------------------------------------------ printing
_printed: dict[Any, int] = {}
"""How often each line of the user's code has printed values, and their gradients."""


class _Print(PyLayer):
    """Copies a tensor and prints it, and prints its gradient in backward."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, attrs: dict[str, Any], name: str, line: Any) -> Any:
        ctx.attrs, ctx.name, ctx.line = attrs, name, line
        show(attrs, name, with_lod(x._array, x._kind.lod), _printed, (line, attrs["is_forward"]))
        return make(x._array.copy(), x._kind)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        return _Print.apply(grads[0], {**ctx.attrs, "is_forward": False}, ctx.name + "@GRAD", ctx.line)


class _PrintOp(TensorOp):
    """`_Print` as an op, so that it can be traced."""

    __slots__ = ()

    def __call__(self, *tensors: Tensor) -> Any:
        if state.interceptor is not None:
            return state.interceptor.call(self, tensors)
        return _Print.apply(tensors[0], self.attrs, tensors[0].name, user_line())


def _print(definition: OpDef, inputs: Inputs, attrs: Inputs, outputs: Inputs) -> dict[str, Any]:
    return {"Out": _PrintOp(definition, attrs, (("In", None),))(inputs["In"])}


# ---------------------------------------------------------------------------------------------------- Python functions
class _PythonCall(PyLayer):
    """Calls a Python function with tensors; another function computes the gradient."""

    @staticmethod
    def forward(ctx: Any, attrs: Inputs, targets: list[Any], *inputs: Tensor) -> Any:
        values = called(attrs["forward_callable_id"], [tensor._array for tensor in inputs])
        check_count(values, targets)
        results = []
        for value, target in zip(values, targets, strict=True):
            shape = np.shape(value) if isinstance(target, Unset) else target.shape
            results.append(Tensor(target._kind.xp.asarray(fitted(value, target, shape))))
        ctx.attrs, ctx.names = attrs, [tensor.name for tensor in (*inputs, *targets)]
        ctx.save_for_backward(*inputs, *results)
        if attrs["backward_callable_id"] < 0:
            ctx.mark_non_differentiable(*results)
        return tuple(results)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        saved = ctx.saved_tensor()
        inputs, skipped = saved[: len(saved) - len(grads)], ctx.attrs["backward_skip_vars"]
        unskipped = [tensor for tensor, name in zip(saved, ctx.names, strict=True) if name not in skipped]
        return _CallBackward.apply(ctx.attrs["backward_callable_id"], inputs, ctx.names, *unskipped, *grads)


class _CallBackward(PyLayer):
    """Calls the Python function that computes the gradient."""

    @staticmethod
    def forward(ctx: Any, number: int, inputs: Any, names: list[str], *values: Tensor) -> Any:
        gradients = called(number, [tensor._array for tensor in values])
        gradients = gradients_of(gradients, [tensor._array for tensor in inputs], names[: len(inputs)])
        return tuple(Tensor(tensor._kind.xp.asarray(array)) for array, tensor in zip(gradients, inputs, strict=True))

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        raise BackwardError("the gradient of py_func is computed by backward_func, and cannot be differentiated again")


def _py_func(definition: OpDef, inputs: Inputs, attrs: Inputs, outputs: Inputs) -> dict[str, Any]:
    _refuse_tracing("py_func")
    targets = listed(outputs["Out"])
    results = _PythonCall.apply(definition.defaults(definition.check_attrs(attrs)), targets, *listed(inputs.get("X", [])))
    for target, value in zip(targets, results, strict=True):
        if isinstance(target, Unset):
            write(target, value, "py_func", False)
        else:
            target._check_modifiable("py_func")
            target._take_over(value, "py_func")  # with the edge for gradients
    return {"Out": targets}


# ------------------------------------------------------------------------------------------------------------- loading
def _load(definition: OpDef, inputs: Inputs, attrs: Inputs, outputs: Inputs) -> dict[str, Any]:
    _refuse_tracing("load")
    target = outputs["Out"]
    ((array, lod),) = read(str(attrs["file_path"]), [target.name], bool(attrs.get("load_as_fp16")))
    array = target._kind.xp.array(array)
    write(target, make(array, array_type_of(array, lod)), "load", False)
    if lod:
        target._kind = array_type_of(target._array, lod)
    return {"Out": target}


_Effect = Callable[[OpDef, Inputs, Inputs, Inputs], dict[str, Any]]
_ALL: dict[str, _Effect] = {"print": _print, "py_func": _py_func, "load": _load}
EFFECTS.update(_ALL)
