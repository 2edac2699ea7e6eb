"""Tracing, under the module name of Fluid 1.6 and in its form; see `fluid.dygraph.trace`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..building.layer_helper import listed
from ..eager.nested import tensors_in as extract_vars
from ..ir.program import Program
from ..not_here import names_here
from .layers import Layer
from .open_traces import InputSpec, TracedLayer, traced_for_any_size
from .program_translator import dygraph_to_static_func
from .static_function import declarative, to_static
from .tracing import check_layer, traced_call
from .translated import TranslatedLayer, load, save

__all__ = [
    "TracedLayer", "TranslatedLayer", "declarative", "dygraph_to_static_func", "extract_vars", "load", "save", "to_static",
    "trace",
]  # fmt: skip

__dir__ = names_here(__name__)


def trace(
    layer: Layer, inputs: Any, feed_names: Sequence[str] | None = None, fetch_names: Sequence[str] | None = None
) -> tuple[Any, Program]:
    """Call a layer as usual, and write its ops to a program: the layer's output, and the program.

    Parameters and buffers have the same names in the program as in ``layer.state_dict()``: an executor runs it in a scope that
    holds them under these names.

    Args:
        layer: the layer.
        inputs: the tensor, or a list of tensors, to call the layer with; the program has their sizes. An `InputSpec` in their
            place leaves sizes open, and then the call changes no state.
        feed_names, fetch_names: as of `fluid.dygraph.trace`.

    >>> linear, x = dygraph.Linear(4, 3), dygraph.Tensor(np.ones([2, 4], "float32"))
    >>> out, program = dygraph.jit.trace(linear, x, feed_names=["x"], fetch_names=["out"])
    >>> print(program)
    block 0 {
      data x: float32[2, 4]
      param weight: float32[4, 3]
      param bias: float32[3]
      mul_0.tmp_0: float32[2, 3] = mul(X=x, Y=weight)
      elementwise_add_0.tmp_0: float32[2, 3] = elementwise_add(X=mul_0.tmp_0, Y=bias)
      out: float32[2, 3] = assign(X=elementwise_add_0.tmp_0)
    }
    """
    check_layer("jit.trace", layer)
    examples = listed(inputs)
    if any(isinstance(item, InputSpec) for item in examples):
        result, traced = traced_for_any_size(layer, examples, {}, feed_names, fetch_names)
    else:
        result, traced, _ = traced_call(layer, examples, {}, feed_names, fetch_names, keep=True)
    names = {id(tensor): name for name, tensor in reversed(layer.state_dict().items())}
    traced.program.rename({name: names[id(tensor)] for name, tensor in traced.captured.items() if id(tensor) in names})
    return result, traced.program
