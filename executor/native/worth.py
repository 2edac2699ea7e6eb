"""Decides which single ops, outside of plans, run natively: the ones that are faster than numpy.

A single op takes and returns arrays in numpy's layout, so the gain must pay for converting images to channels last and back. At
these bounds, native code was as fast as numpy, both with one thread; more threads are an extra gain.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import prod, sqrt
from typing import Any

from fluid.values.spec import Spec

__all__ = ["is_worth_it"]

_ELEMENTS = {
    **dict.fromkeys(
        ("adam", "gelu", "gelu_grad", "layer_norm", "layer_norm_grad", "sigmoid", "softmax", "softmax_grad"), 1 << 15
    ),
    **dict.fromkeys(("exp", "momentum", "pool2d", "pool2d_grad", "sgd"), 1 << 17),
    **dict.fromkeys(("sigmoid_grad", "tanh", "tanh_grad"), 1 << 18),
}
"""Op -> the minimal number of elements of its largest array."""
_PRODUCTS = frozenset({"matmul", "matmul_grad", "matmul_v2", "matmul_v2_grad", "mul", "mul_grad"})
_CONVOLUTIONS = frozenset({"conv2d", "conv2d_grad"})
_MULTIPLICATIONS = 1 << 23
"""Minimal number of multiplications of a product or a convolution, about."""
_PER_ELEMENT = 40
"""Minimal number of multiplications of a convolution per element of its images."""


def is_worth_it(op_type: str, attrs: Mapping[str, Any], specs: Mapping[str, Spec]) -> bool:
    """Whether to compute an op natively; `specs` are the specs of its inputs and outputs, by slot."""
    if op_type in _PRODUCTS:
        sizes = [specs[slot].size if slot in specs else specs["Out@GRAD"].size for slot in ("X", "Y", "Out")]
        return sqrt(prod(sizes)) >= _MULTIPLICATIONS  # of [m, k], [k, n] and [m, n]: m k n
    if op_type in _CONVOLUTIONS:
        output = specs.get("Output") or specs["Output@GRAD"]
        multiplications = output.size * prod(specs["Filter"].shape[1:])
        return multiplications >= max(_MULTIPLICATIONS, _PER_ELEMENT * (specs["Input"].size + output.size))
    if op_type in ("pool2d", "pool2d_grad") and attrs["pooling_type"] != "max":
        return False
    return op_type in _ELEMENTS and max(spec.size for spec in specs.values()) >= _ELEMENTS[op_type]
