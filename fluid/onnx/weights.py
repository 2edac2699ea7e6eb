"""Find the values of an ONNX graph that its nodes use as weights."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

_INPUTS = {
    "BatchNormalization": (1, 2, 3, 4),
    "Conv": (1, 2),
    "ConvTranspose": (1, 2),
    "DeformConv": (1, 3),
    "GRU": (1, 2, 3),
    "Gather": (0,),
    "Gemm": (0, 1, 2),
    "GroupNormalization": (1, 2),
    "InstanceNormalization": (1, 2),
    "LSTM": (1, 2, 3, 7),
    "LayerNormalization": (1, 2),
    "MatMul": (0, 1),
    "PRelu": (1,),
    "RMSNormalization": (1,),
    "RNN": (1, 2, 3),
}
"""Op type -> inputs that hold trained values, running statistics included, which training updates."""

_PRODUCTS = frozenset({"Conv", "ConvTranspose", "MatMul"})


def names_of_weights(nodes: Iterable[Any]) -> set[str]:
    """The values that nodes read as weights, or add to products as biases, by name.

    Files that hold weights in Constant nodes do not tell them from other constants.
    """
    weights: set[str] = set()
    products: set[str] = set()
    for node in nodes:
        weights.update(node.input[place] for place in _INPUTS.get(node.op_type, ()) if place < len(node.input))
        if node.op_type in _PRODUCTS:
            products.update(node.output)
        if node.op_type == "Add" and products.intersection(node.input):
            weights.update(node.input)
    return weights - {""}
