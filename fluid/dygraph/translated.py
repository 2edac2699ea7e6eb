"""Saved models as layers of eager mode, and layers as saved models, as in Fluid 1.8."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from ..building.layer_helper import listed
from ..eager.program import EAGER, Parameter
from ..eager.tensor import Tensor
from ..errors import FluidTypeError, ProgramError
from ..executor.runtime.scope import Scope
from ..ir.program import Operator
from ..opdef import registry
from ..saving.models import Model, load_model
from .layers import Layer
from .open_traces import InputSpec, trace
from .static_function import BoundStatic, StaticFunction
from .tracing import check_layer

__all__ = ["StaticModelRunner", "TranslatedLayer", "load", "save"]


class TranslatedLayer(Layer):
    """A saved model as a layer; `load` makes it.

    Its parameters can be trained further; points in their names are underscores in ``state_dict``. It begins in `eval`
    mode: dropout and batch normalization follow `train` and `eval` as of any layer.

    Args:
        model: the model, with its values in ``model.scope``.

    Raises:
        ProgramError: the model has no program, or loops or branches, which `fluid.Executor` runs.

    >>> dygraph.jit.save(dygraph.Linear(4, 3), "linear", [dygraph.InputSpec([None, 4])])
    >>> layer = dygraph.TranslatedLayer(fluid.load_model("linear", scope=fluid.Scope()))
    >>> layer(dygraph.Tensor(np.ones([2, 4], "float32"))).shape
    (2, 3)
    """

    def __init__(self, model: Model) -> None:
        super().__init__()
        if model.program is None:
            raise ProgramError(
                f"{model.path} has parameters alone, and no program: fluid.load_weights sets the parameters of a layer"
            )
        block = model.program.global_block()
        nested = next((op for op in block.ops if op.sub_blocks), None)
        if nested is not None:
            raise ProgramError(
                f"{model.path} has a {nested.type}, which cannot be a part of a layer: run the model by fluid.load_model and "
                "fluid.Executor"
            )
        self._ops = [op for op in block.ops if op.type not in ("feed", "fetch")]
        self._feeds, self._fetches = list(model.feeds), [variable.name for variable in model.fetches]
        outputs = {name for op in self._ops for name in op.output_arg_names}
        self._values = {name: self._add(name, np.array(model.scope.array(name)), name in outputs) for name in model.parameters}
        self.eval()

    def _add(self, name: str, array: np.ndarray[Any, Any], is_written: bool) -> Tensor:
        """Add a value of the model: a parameter, or a buffer if the program writes it or it has no gradient."""
        part = name.replace(".", "_")
        if is_written or array.dtype.kind != "f":
            buffer = Tensor(array, name=name)
            self.register_buffer(part, buffer)
            return buffer
        parameter: Tensor = self.add_parameter(part, Parameter(array, name=name))
        return parameter

    def forward(self, *inputs: Any) -> Any:
        """The outputs of the model: a tensor, or a list of several.

        Args:
            inputs: a tensor or array for each of its inputs, in order.
        """
        if len(inputs) != len(self._feeds):
            raise ProgramError(f"the model has the inputs {', '.join(self._feeds)}, and gets {len(inputs)} values")
        tensors = [value if isinstance(value, Tensor) else Tensor(value) for value in inputs]
        values = {**self._values, **dict(zip(self._feeds, tensors, strict=True))}
        for op in self._ops:
            self._run(op, values)
        outputs = [values[name] for name in self._fetches]
        return outputs[0] if len(outputs) == 1 else outputs

    def _run(self, op: Operator, values: dict[str, Any]) -> None:
        block = EAGER.global_block()
        attrs = dict(op.attrs)
        if "is_test" in registry.get(op.type).attrs:
            attrs["is_test"] = not self.training
        for name in op.output_arg_names:
            if name not in self._values:
                values[name] = block.create_var()
        inputs, outputs = (
            {slot: [values[name] for name in names] for slot, names in slots.items() if names}
            for slots in (op.inputs, op.outputs)
        )
        block.append_op(op.type, inputs, outputs, attrs)


class StaticModelRunner(TranslatedLayer):
    """A folder of an inference model as a layer, in the mode for training, as in Fluid 1.8; see `TranslatedLayer`.

    Args:
        model_dir: the folder.
        model_filename: the file of the program, if it has another name than ``__model__``.
        params_filename: the file of all parameters, if they are in one.

    >>> dygraph.jit.save(dygraph.Linear(4, 3), "linear", [dygraph.InputSpec([None, 4])])
    >>> len(dygraph.StaticModelRunner("linear").parameters())
    2
    """

    def __init__(
        self, model_dir: str | os.PathLike[str], model_filename: str | None = None, params_filename: str | None = None
    ) -> None:
        folder = os.fspath(model_dir)
        path = folder if model_filename is None else os.path.join(folder, model_filename)
        params = None if params_filename is None else os.path.join(folder, params_filename)
        super().__init__(load_model(path, params=params, scope=Scope()))
        self.train()


def save(layer: Layer, model_path: str | os.PathLike[str], input_spec: Sequence[InputSpec | Tensor] | None = None) -> None:
    """Save a layer, as it is in tests, as a folder with an inference model.

    Args:
        layer: the layer.
        model_path: the folder, which `load`, `fluid.load_model` and ``fluid.io.load_inference_model`` read.
        input_spec: shapes and element types of the inputs, or examples. A layer with a ``declarative`` `forward` needs none
            after a call: it takes the inputs of its last call.

    Raises:
        ProgramError: there is no `input_spec`, and no such call.

    >>> linear = dygraph.Linear(4, 3)
    >>> dygraph.jit.save(linear, "linear", [dygraph.InputSpec([None, 4])])
    >>> x = np.ones([2, 4], "float32")
    >>> bool((dygraph.jit.load("linear")(x).numpy() == linear(dygraph.Tensor(x)).numpy()).all())
    True
    """
    check_layer("jit.save", layer)
    specs = _last_inputs(layer) if input_spec is None else listed(input_spec)
    with _testing(layer):
        trace(layer, *specs).save_inference_model(os.fspath(model_path))


def _last_inputs(layer: Layer) -> list[InputSpec]:
    """The inputs of the last call of a layer whose `forward` is traced."""
    forward = layer.forward
    inputs: tuple[Any, ...] = ()
    if isinstance(forward, (BoundStatic, StaticFunction)):
        inputs = (forward._programs if isinstance(forward, BoundStatic) else forward._known).last_inputs
    if not inputs or not all(hasattr(item, "shape") for item in inputs):
        raise ProgramError(
            "jit.save: give input_spec, such as [InputSpec([None, 8])], or call the layer with tensors before, with a "
            "declarative forward"
        )
    return [InputSpec([None, *item.shape[1:]], item.dtype) for item in inputs]


@contextmanager
def _testing(layer: Layer) -> Iterator[None]:
    """Inside the ``with``, a layer and its parts are in the mode for tests."""
    before = [(part, part.training) for part in layer.sublayers(include_self=True)]
    layer.eval()
    try:
        yield
    finally:
        for part, training in before:
            part.training = training


def load(model_path: str | os.PathLike[str]) -> TranslatedLayer:
    """Load a saved model as a layer.

    Args:
        model_path: a folder of `save`, or any model that `fluid.load_model` reads.

    >>> dygraph.jit.save(dygraph.Linear(4, 3), "linear", [dygraph.InputSpec([None, 4])])
    >>> [parameter.shape for parameter in dygraph.jit.load("linear").parameters()]
    [(3,), (4, 3)]
    """
    if not isinstance(model_path, (str, os.PathLike)):
        raise FluidTypeError(f"jit.load takes the path of a model, not a {type(model_path).__name__}")
    return TranslatedLayer(load_model(model_path, scope=Scope()))
