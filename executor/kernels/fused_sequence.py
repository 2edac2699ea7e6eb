"""Kernels of `fluid.ops.fused_sequence`, for the ops that are not compositions."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

from fluid.values.lod_array import last_offsets
from fluid.values.spec import Lod

from .manipulation import write_wanted
from .rnn import activate
from .table import Slots, kernel


@kernel("attention_lstm")
def attention_lstm(xp: Any, X: Any, X_lod: Lod, inputs: Slots, attrs: Slots, Hidden: Any, Cell: Any) -> None:
    width, size = X.shape[1], inputs["C0"].shape[1]
    by_row, by_cell = inputs["AttentionWeight"][:width, 0], inputs["AttentionWeight"][width:, 0]
    bias, factor, term = (inputs.get(name) for name in ("AttentionBias", "AttentionScalar", "AttentionScalarBias"))
    rows = X @ by_row + (0 if bias is None else bias.reshape(()))
    by_hidden, by_input = inputs["LSTMWeight"][:size], inputs["LSTMWeight"][size:]
    gate, cell_name, candidate = (attrs[f"{name}_activation"] for name in ("gate", "cell", "candidate"))
    hidden_states, cells = xp.zeros((len(X), size), X.dtype), xp.zeros((len(X), size), X.dtype)
    for number, (start, end) in enumerate(pairwise(last_offsets(X_lod).tolist())):
        cell = inputs["C0"][number]
        hidden = xp.zeros_like(cell) if inputs.get("H0") is None else inputs["H0"][number]
        for step in range(start, end):
            scores = xp.maximum(rows[start:end] + cell @ by_cell, 0)
            if factor is not None:
                scores = scores * factor.reshape(())
                scores = xp.maximum(scores + (0 if term is None else term.reshape(())), 0)
            powers = xp.exp(scores - scores.max())
            mean = (powers / powers.sum()) @ X[start:end]
            gates = hidden @ by_hidden + mean @ by_input + inputs["LSTMBias"].reshape(-1)
            activate(xp, gate, gates[: 3 * size], gates[: 3 * size])
            activate(xp, candidate, gates[3 * size :], gates[3 * size :])
            forget, into, out, new = (gates[place * size : (place + 1) * size] for place in range(4))
            cell = forget * cell + into * new
            hidden = out * activate(xp, cell_name, cell, xp.empty_like(cell))
            hidden_states[step], cells[step] = hidden, cell
    write_wanted((Hidden, hidden_states), (Cell, cells))
