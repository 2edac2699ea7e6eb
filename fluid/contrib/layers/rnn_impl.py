"""Layers of recurrent cells, in one direction or both."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

from ...building.layer_helper import check_kept
from ...errors import ProgramError
from ...ir.program import Variable
from ...layers import GRUCell, LSTMCell, RNNCell, concat, dropout, fill_constant_batch_size_like, rnn
from ...layers import slice as slice_
from ...layers.rnn import CellUnit, held, step_mask
from ...param_attr import AttrLike, ParamAttr
from ...values.types import DTypeLike, as_dtype

__all__ = ["BasicGRUUnit", "BasicLSTMUnit", "basic_gru", "basic_lstm"]


class BasicGRUUnit(CellUnit):
    """One step of a GRU.

    Args:
        name_scope: the start of the parameters' names.
        hidden_size, param_attr, bias_attr, gate_activation, activation, dtype: see `fluid.layers.GRUCell`.

    >>> x, state = fluid.data("x", [None, 8]), fluid.data("state", [None, 16])
    >>> fluid.contrib.BasicGRUUnit("gru", hidden_size=16)(x, state).shape
    (-1, 16)
    """

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
        self.cell = GRUCell(hidden_size, param_attr, bias_attr, gate_activation, activation, dtype, name_scope)

    def forward(self, input: Variable, pre_hidden: Variable) -> Variable:
        """The new state, ``[batch, hidden_size]``, for an `input` ``[batch, features]`` and the state before, `pre_hidden`."""
        return self.cell(input, pre_hidden)[0]  # type: ignore[no-any-return]

    __call__ = forward


class BasicLSTMUnit(CellUnit):
    """One step of an LSTM.

    Args:
        name_scope: the start of the parameters' names.
        hidden_size, param_attr, bias_attr, gate_activation, activation, forget_bias, dtype: see `fluid.layers.LSTMCell`.

    >>> x, hidden, cell = fluid.data("x", [None, 8]), fluid.data("hidden", [None, 16]), fluid.data("cell", [None, 16])
    >>> [state.shape for state in fluid.contrib.BasicLSTMUnit("lstm", hidden_size=16)(x, hidden, cell)]
    [(-1, 16), (-1, 16)]
    """

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
        self.cell = LSTMCell(hidden_size, param_attr, bias_attr, gate_activation, activation, forget_bias, dtype, name_scope)

    def forward(self, input: Variable, pre_hidden: Variable, pre_cell: Variable) -> tuple[Variable, Variable]:
        """The new states, ``[batch, hidden_size]``, hidden and cell.

        Args:
            input: ``[batch, features]``.
            pre_hidden, pre_cell: the states before.
        """
        hidden, cell = self.cell(input, [pre_hidden, pre_cell])[1]
        return hidden, cell

    __call__ = forward


class _CellStack(RNNCell):
    """A stack of cells with dropout after each.

    Its input may be a list of the input and a mask: where that is 0, a cell keeps its states, and the hidden one is its output.
    """

    def __init__(self, cells: Sequence[RNNCell], dropout_prob: float) -> None:
        self.cells, self.dropout_prob = cells, dropout_prob

    def call(self, inputs: Any, states: Any, **kwargs: Any) -> tuple[Any, Any]:
        inputs, mask = inputs if isinstance(inputs, list) else (inputs, None)
        after = []
        for cell, before in zip(self.cells, states, strict=True):
            inputs, state = cell(inputs, before)
            if mask is not None:
                state = held(before, state, mask)
                inputs = state[0] if isinstance(state, list) else state
            after.append(state)
            if self.dropout_prob > 0:
                inputs = dropout(inputs, self.dropout_prob, dropout_implementation="upscale_in_train")
        return inputs, after


_PATHS = {"_fw": "_layers_", "_bw": "_reverse_layers_"}
"""Direction -> the part of parameter names between the network's name and the unit's, as in Fluid 1.6."""


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
    """The output, and the last states, each ``[num_layers * directions, batch, hidden_size]``."""
    if any(state is None for state in first) != all(state is None for state in first):
        raise ProgramError("basic_lstm: give both init_hidden and init_cell, or neither")
    check_kept(f"basic_{'gru' if states == 1 else 'lstm'}", input)
    sequences: Any = input
    if sequence_length is not None:
        mask = step_mask(input, sequence_length, as_dtype(dtype), axis=1 if batch_first else 0)
        sequences = [input, mask if batch_first else mask._ops().transpose2(mask, axis=[1, 0])]
    directions = 1 + bool(bidirectional)
    outs: list[Variable] = []
    last: dict[tuple[int, int, int], Variable] = {}
    for direction in range(directions):

        def before(layer: int, number: int, direction: int = direction) -> Variable:
            state, row = first[number], layer * directions + direction
            if state is None:
                index = 0 if batch_first else 1
                return fill_constant_batch_size_like(input, [-1, hidden_size], dtype, 0.0, input_dim_idx=index)
            state = slice_(state, axes=[0], starts=[row], ends=[row + 1])
            return state._ops().squeeze2(state, axes=[0])  # type: ignore[no-any-return]

        cells = [make("_bw" if direction else "_fw", layer) for layer in range(num_layers)]
        inits: list[Any] = [[before(layer, number) for number in range(states)] for layer in range(num_layers)]
        inits = inits if states > 1 else [state for (state,) in inits]
        stack = _CellStack(cells, dropout_prob)
        out, finals = rnn(stack, sequences, inits, time_major=not batch_first, is_reverse=direction == 1)
        outs.append(out)
        for layer, state in enumerate(finals):
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
    """A GRU of several layers of `fluid.layers.GRUCell`: returns the output and the last states.

    Args:
        input: ``[batch, time, features]``, or ``[time, batch, features]`` if `batch_first` is False; the output alike.
        init_hidden: the first states, ``[num_layers * directions, batch, hidden_size]``; zeros if None.
        hidden_size: number of features of a state.
        num_layers: number of layers.
        sequence_length: the lengths of the sequences, ``[batch]``; after its end, a sequence keeps its states, and the last
            hidden one is its output.
        dropout_prob: the dropout probability after each layer.
        bidirectional: whether a second GRU goes backward; the outputs of the two are concatenated.
        batch_first: whether the first dimension is the batch.
        param_attr, bias_attr: a name is followed by direction, layer and part.
        gate_activation, activation, dtype: see `fluid.layers.GRUCell`.
        name: the start of the parameters' names.

    >>> out, last = fluid.contrib.basic_gru(fluid.data("x", [None, 10, 8]), None, hidden_size=16, bidirectional=True)
    >>> out.shape, last.shape
    ((-1, 10, 32), (2, -1, 16))
    """

    def make(direction: str, layer: int) -> GRUCell:
        weight, bias = (_named(ParamAttr._to_attr(attr), f"{direction}_{layer}") for attr in (param_attr, bias_attr))
        unit = f"{name}{_PATHS[direction]}{layer}"
        return GRUCell(hidden_size, weight, bias, gate_activation, activation, dtype, unit)

    settings = (hidden_size, num_layers, sequence_length, dropout_prob, bidirectional, batch_first, dtype)
    out, hidden = _run(make, 1, input, [init_hidden], *settings)
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
    """An LSTM of several layers of `fluid.layers.LSTMCell`: returns the output, the last hidden states and the last cells.

    Args:
        input, hidden_size, num_layers, sequence_length, dropout_prob, bidirectional, batch_first, param_attr, bias_attr: see
            `basic_gru`.
        init_hidden, init_cell: the first states, ``[num_layers * directions, batch, hidden_size]``; zeros if both are None.
        gate_activation, activation, forget_bias, dtype: see `fluid.layers.LSTMCell`.
        name: the start of the parameters' names.

    >>> out, hidden, cell = fluid.contrib.basic_lstm(fluid.data("x", [None, 10, 8]), None, None, hidden_size=16, num_layers=2)
    >>> out.shape, hidden.shape
    ((-1, 10, 16), (2, -1, 16))
    """

    def make(direction: str, layer: int) -> LSTMCell:
        weight, bias = (_named(ParamAttr._to_attr(attr), f"{direction}_{layer}") for attr in (param_attr, bias_attr))
        unit = f"{name}{_PATHS[direction]}{layer}"
        return LSTMCell(hidden_size, weight, bias, gate_activation, activation, forget_bias, dtype, unit)

    settings = (hidden_size, num_layers, sequence_length, dropout_prob, bidirectional, batch_first, dtype)
    out, hidden, cell = _run(make, 2, input, [init_hidden, init_cell], *settings)
    return out, hidden, cell
