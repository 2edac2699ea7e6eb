"""Stacks of recurrent cells, one for each direction."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

from ...building.layer_helper import check_kept
from ...errors import ProgramError
from ...ir.program import Variable
from ...layers import GRUCell, LSTMCell, RNNCell, concat, dropout, fill_constant_batch_size_like, rnn
from ...layers import slice as slice_
from ...param_attr import AttrLike, ParamAttr
from ...values.types import DTypeLike

__all__ = ["BasicGRUUnit", "BasicLSTMUnit", "basic_gru", "basic_lstm"]


class BasicGRUUnit:
    """One step of a GRU, as `fluid.layers.GRUCell`; arguments as there."""

    def __init__(
        self,
        name_scope: str,
        hidden_size: int,
        param_attr: AttrLike = None,
        bias_attr: AttrLike = None,
        gate_activation: Any = None,
        activation: Any = None,
        dtype: DTypeLike = "float32",
    ) -> None:
        self._cell = GRUCell(hidden_size, param_attr, bias_attr, gate_activation, activation, dtype, name_scope)

    def forward(self, input: Variable, pre_hidden: Variable) -> Variable:
        """``[batch, features]`` and ``[batch, hidden_size]`` give the new state."""
        return self._cell(input, pre_hidden)[0]  # type: ignore[no-any-return]

    __call__ = forward


class BasicLSTMUnit:
    """One step of an LSTM, as `fluid.layers.LSTMCell`; arguments as there."""

    def __init__(
        self,
        name_scope: str,
        hidden_size: int,
        param_attr: AttrLike = None,
        bias_attr: AttrLike = None,
        gate_activation: Any = None,
        activation: Any = None,
        forget_bias: float = 1.0,
        dtype: DTypeLike = "float32",
    ) -> None:
        self._cell = LSTMCell(hidden_size, param_attr, bias_attr, gate_activation, activation, forget_bias, dtype, name_scope)

    def forward(self, input: Variable, pre_hidden: Variable, pre_cell: Variable) -> tuple[Variable, Variable]:
        """``[batch, features]`` and states ``[batch, hidden_size]`` give the new states."""
        hidden, cell = self._cell(input, [pre_hidden, pre_cell])[1]
        return hidden, cell

    __call__ = forward


class _Stack(RNNCell):
    """Cells on top of each other, with dropout behind each."""

    def __init__(self, cells: Sequence[RNNCell], dropout_prob: float) -> None:
        self.cells, self.dropout_prob = cells, dropout_prob

    def call(self, inputs: Any, states: Any, **kwargs: Any) -> tuple[Any, Any]:
        after = []
        for cell, state in zip(self.cells, states, strict=True):
            inputs, state = cell(inputs, state)
            after.append(state)
            if self.dropout_prob > 0:
                inputs = dropout(inputs, self.dropout_prob, dropout_implementation="upscale_in_train")
        return inputs, after


def _named(attr: Any, suffix: str) -> Any:
    if isinstance(attr, ParamAttr) and attr.name:
        attr = copy.copy(attr)
        attr.name += suffix
    return attr


def _run(
    make: Any,
    states: int,
    input: Variable,
    first: Sequence[Variable | None],
    hidden_size: int,
    num_layers: int,
    sequence_length: Variable | None,
    dropout_prob: float,
    bidirectional: bool,
    batch_first: bool,
    dtype: DTypeLike,
) -> tuple[Any, ...]:
    """What comes out, and the last states, each ``[num_layers * directions, batch, hidden_size]``."""
    if any(state is None for state in first) != all(state is None for state in first):
        raise ProgramError("basic_lstm: give both init_hidden and init_cell, or neither")
    check_kept(f"basic_{'gru' if states == 1 else 'lstm'}", input)
    directions = 1 + bool(bidirectional)
    outs: list[Variable] = []
    last: dict[tuple[int, int, int], Variable] = {}
    for direction in range(directions):

        def before(layer: int, number: int, direction: int = direction) -> Variable:
            given, row = first[number], layer * directions + direction
            if given is None:
                index = 0 if batch_first else 1
                return fill_constant_batch_size_like(input, [-1, hidden_size], dtype, 0.0, input_dim_idx=index)
            picked = slice_(given, axes=[0], starts=[row], ends=[row + 1])
            return picked._ops().squeeze2(picked, axes=[0])  # type: ignore[no-any-return]

        cells = [make("_bw" if direction else "_fw", layer) for layer in range(num_layers)]
        inits: list[Any] = [[before(layer, number) for number in range(states)] for layer in range(num_layers)]
        inits = inits if states > 1 else [state for (state,) in inits]
        stack = _Stack(cells, dropout_prob)
        out, found = rnn(stack, input, inits, sequence_length, time_major=not batch_first, is_reverse=direction == 1)
        outs.append(out)
        for layer, state in enumerate(found):
            for number, value in enumerate(state if states > 1 else [state]):
                last[number, layer, direction] = value
    ops = outs[0]._ops()
    results = [
        ops.stack([last[n, layer, d] for layer in range(num_layers) for d in range(directions)], axis=0) for n in range(states)
    ]
    return concat(outs, axis=2) if bidirectional else outs[0], *results


def basic_gru(
    input: Variable,
    init_hidden: Variable | None,
    hidden_size: int,
    num_layers: int = 1,
    sequence_length: Variable | None = None,
    dropout_prob: float = 0.0,
    bidirectional: bool = False,
    batch_first: bool = True,
    param_attr: AttrLike = None,
    bias_attr: AttrLike = None,
    gate_activation: Any = None,
    activation: Any = None,
    dtype: DTypeLike = "float32",
    name: str = "basic_gru",
) -> tuple[Variable, Variable]:
    """A stack of `fluid.layers.GRUCell`, and another one backward if `bidirectional`: what comes out and the last states.

    Args:
        input: ``[batch, time, features]``, or ``[time, batch, features]`` unless `batch_first`; so is what comes out.
        init_hidden: ``[num_layers * directions, batch, hidden_size]``; zeros if None.
        sequence_length: ``[batch]``; after the end of a sequence its states stay.
        dropout_prob: of what each layer puts out.
        param_attr, bias_attr: a name gets direction, layer and part behind it.
    """

    def make(direction: str, layer: int) -> GRUCell:
        weight, bias = (_named(ParamAttr._to_attr(attr), f"{direction}_{layer}") for attr in (param_attr, bias_attr))
        return GRUCell(hidden_size, weight, bias, gate_activation, activation, dtype, name)

    rest = (hidden_size, num_layers, sequence_length, dropout_prob, bidirectional, batch_first, dtype)
    out, hidden = _run(make, 1, input, [init_hidden], *rest)
    return out, hidden


def basic_lstm(
    input: Variable,
    init_hidden: Variable | None,
    init_cell: Variable | None,
    hidden_size: int,
    num_layers: int = 1,
    sequence_length: Variable | None = None,
    dropout_prob: float = 0.0,
    bidirectional: bool = False,
    batch_first: bool = True,
    param_attr: AttrLike = None,
    bias_attr: AttrLike = None,
    gate_activation: Any = None,
    activation: Any = None,
    forget_bias: float = 1.0,
    dtype: DTypeLike = "float32",
    name: str = "basic_lstm",
) -> tuple[Variable, Variable, Variable]:
    """A stack of `fluid.layers.LSTMCell`, otherwise as `basic_gru`: what comes out, the last hidden states and cells."""

    def make(direction: str, layer: int) -> LSTMCell:
        weight, bias = (_named(ParamAttr._to_attr(attr), f"{direction}_{layer}") for attr in (param_attr, bias_attr))
        return LSTMCell(hidden_size, weight, bias, gate_activation, activation, forget_bias, dtype, name)

    rest = (hidden_size, num_layers, sequence_length, dropout_prob, bidirectional, batch_first, dtype)
    out, hidden, cell = _run(make, 2, input, [init_hidden, init_cell], *rest)
    return out, hidden, cell
