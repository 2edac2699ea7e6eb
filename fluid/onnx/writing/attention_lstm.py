"""Write an LSTM with attention: its input at each step is a weighted mean of all rows of its sequence."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from .exporting import exports
from .graph import OnnxGraph, OnnxTensor
from .making import zeros_like
from .rounds import in_rounds
from .sequence_rows import ids_of, lengths_of_rows, like_rows, longest_of, padded_rows, taken_rows, within

_ACTIVATIONS = {"sigmoid": "Sigmoid", "tanh": "Tanh", "relu": "Relu", "identity": "Identity"}


@exports("attention_lstm")
def attention_lstm(g: OnnxGraph, X: OnnxTensor, inputs: dict[str, Any], attrs: dict[str, Any]) -> dict[str, OnnxTensor]:
    """All sequences step together; nothing reads the states of a sequence after its end."""
    lengths, first = lengths_of_rows(X), inputs["C0"]
    size = g.size(first, 1)
    index = padded_rows(g, lengths, longest_of(g, lengths))
    rows = taken_rows(g, X, index)  # [B, T, M]
    outside = g.binary("Less", index, g.ints(0))

    def below(weights: OnnxTensor, count: Any) -> tuple[OnnxTensor, OnnxTensor]:
        """Split weights into the first `count` rows and the remaining rows."""
        end, last = g.as_size(count), g.ints(2**62)
        sizes = (count if isinstance(count, int) else -1, weights.sizes[1])
        return (
            g.sized_node("Slice", [weights, g.ints(0), end, g.ints(0)], weights.dtype, sizes),
            g.sized_node("Slice", [weights, end, last, g.ints(0)], weights.dtype, (-1, weights.sizes[1])),
        )

    by_row, by_cell = below(inputs["AttentionWeight"], g.size(X, 1))
    by_hidden, by_input = below(inputs["LSTMWeight"], size)
    bias, factor, term = (
        None if inputs.get(name) is None else g.reshape(inputs[name], [])
        for name in ("AttentionBias", "AttentionScalar", "AttentionScalarBias")
    )
    row_scores = g.squeeze(g.matmul(rows, by_row), 2)
    row_scores = row_scores if bias is None else g.binary("Add", row_scores, bias)

    def activated(name: str, x: OnnxTensor) -> OnnxTensor:
        return g.unary(_ACTIVATIONS[attrs[f"{name}_activation"]], x)

    def gate(gates: OnnxTensor, place: int) -> OnnxTensor:
        starts, ends = (g.as_size(g.product_of([size, number])) for number in (place, place + 1))
        return g.sized_node("Slice", [gates, starts, ends, g.ints(1)], gates.dtype, first.sizes)

    def body(number: OnnxTensor, states: Sequence[OnnxTensor]) -> list[OnnxTensor]:
        hidden, cell = states
        scores = g.unary("Relu", g.binary("Add", row_scores, g.matmul(cell, by_cell)))
        if factor is not None:
            scores = g.binary("Mul", scores, factor)
            scores = g.unary("Relu", scores if term is None else g.binary("Add", scores, term))
        shares = g.unary("Softmax", g.where(outside, g.number(-np.inf, scores), scores), axis=1)
        mean = g.squeeze(g.matmul(g.unsqueeze(shares, 1), rows), 1)
        gates = g.binary("Add", g.matmul(hidden, by_hidden), g.matmul(mean, by_input))
        gates = g.binary("Add", gates, inputs["LSTMBias"])
        forget, into, out = (activated("gate", gate(gates, place)) for place in range(3))
        new = activated("candidate", gate(gates, 3))
        cell = g.binary("Add", g.binary("Mul", forget, cell), g.binary("Mul", into, new))
        hidden = g.binary("Mul", out, activated("cell", cell))
        cell.sizes = hidden.sizes = first.sizes
        return [hidden, cell, hidden, cell]

    hidden = zeros_like(g, first) if inputs.get("H0") is None else inputs["H0"]
    stacked = in_rounds(g, longest_of(g, lengths), [hidden, first], body)[2:]  # each [T, B, D]
    number = ids_of(g, lengths, g.size(X, 0))
    places = [g.unsqueeze(places_part, 1) for places_part in (within(g, lengths, g.size(X, 0), number), number)]
    place = g.concat(places, 1)
    states = [g.sized_node("GatherND", [state, place], X.dtype, (X.sizes[0], first.sizes[1])) for state in stacked]
    return {slot: like_rows(state, X) for slot, state in zip(("Hidden", "Cell"), states, strict=True)}
