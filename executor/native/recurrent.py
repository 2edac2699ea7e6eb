"""Lowers recurrent networks: LSTMs, GRUs and plain ones, of any number of layers and both directions.

Products that do not depend on the state are computed for all steps at once. The remaining products go step by step, with a matrix
that is packed once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

from fluid.ops.rnn import ACTIVATIONS, CELL_GRADIENTS, CELLS, MODES, Geometry, drops, gru_step_gradient, gru_weights

from .emitter import BOOL
from .graph import (
    GraphNode,
    Joined,
    PackedMatrix,
    Position,
    Product,
    broadcast_to,
    constant,
    contiguous,
    joined,
    mapped,
    packed_matrix,
    plain,
    product,
    put_within,
    reduced,
    reshaped,
    sliced,
    transposed,
    viewed,
)  # fmt: skip
from .lowering import NAMESPACE, GraphTensor, NotLowered, lowers

_MOST_STEPS = 256
"""Maximal number of steps of all layers and directions: each step adds nodes to the graph."""
_Place = tuple[int, tuple[int, int]]
"""A matrix within the reserve: the offset of its first element, and the strides of rows and columns."""


def _turned(matrix: GraphNode) -> GraphNode:
    return transposed(matrix, (1, 0))


@dataclass(frozen=True)
class _ReserveLayout:
    """The layout of the array that a network saves for its gradient. Per layer: the gates [step, direction, batch, gate, hidden],
    then the states [state, step + 1, direction, batch, hidden]; steps lie as they run."""

    g: Geometry
    steps: int
    batch: int

    @property
    def _layer(self) -> int:
        return self.g.reserve_size(self.steps, self.batch) // self.g.layers

    @property
    def _saved(self) -> int:
        return MODES[self.g.mode].saved

    def gate(self, layer: int, direction: int, step: int, number: int) -> _Place:
        hidden = self.g.hidden
        row = (step * self.g.directions + direction) * self.batch * self._saved + number
        return layer * self._layer + row * hidden, (self._saved * hidden, 1)

    def state(self, layer: int, direction: int, step: int, number: int) -> _Place:
        hidden = self.g.hidden
        before = self.steps * self.g.directions * self.batch * self._saved
        row = ((number * (self.steps + 1) + step) * self.g.directions + direction) * self.batch
        return layer * self._layer + (before + row) * hidden, (hidden, 1)

    def hidden_states(self, reserve: GraphNode, layer: int, direction: int, first: int) -> GraphNode:
        """The hidden states [steps, batch, hidden] from step `first` on."""
        offset, _ = self.state(layer, direction, first, 0)
        hidden = self.g.hidden
        return viewed(reserve, (self.steps, self.batch, hidden), offset, (self.g.width * self.batch, hidden, 1))


@dataclass(frozen=True)
class _Weights:
    """The weights of one direction of a layer: for the input, for the hidden state, and the biases."""

    input: GraphNode
    hidden: GraphNode
    biases: tuple[GraphNode, GraphNode]


def _weights_of(g: Geometry, W: GraphTensor | None, WeightList: Sequence[GraphTensor] | None) -> list[GraphNode]:
    shapes = g.weight_shapes()
    if W is None:
        return [tensor.node for tensor in WeightList or ()]
    flat, start, parts = reshaped(plain(W.node), (W.node.size,)), 0, []
    for shape in shapes:
        parts.append(viewed(flat, shape, start, contiguous(shape)))
        start += prod(shape)
    return parts


def _places_of_weights(g: Geometry, layer: int, direction: int) -> tuple[int, int, int, int]:
    """The numbers of the weights of the input and of the hidden state, and of their biases."""
    first = 2 * (layer * g.directions + direction)
    return first, first + 1, 2 * g.passes + first, 2 * g.passes + first + 1


def _weights_of_pass(g: Geometry, weights: Sequence[GraphNode], layer: int, direction: int) -> _Weights:
    of_input, of_hidden, *biases = (weights[place] for place in _places_of_weights(g, layer, direction))
    return _Weights(of_input, of_hidden, (biases[0], biases[1]))


def _check(g: Geometry, Input: GraphTensor, attrs: dict[str, Any]) -> None:
    if drops(attrs) or Input.shape[0] * g.passes > _MOST_STEPS:
        raise NotLowered("dropout, or very many steps")
    if not Input.node.size:
        raise NotLowered("nothing to compute")


def _product_with(left: GraphNode, right: GraphNode, packed: PackedMatrix) -> Product:
    return Product((left.shape[0], right.shape[1]), left.element, left, right, packed)


def _step_of(array: GraphNode, step: int, columns: tuple[int, int]) -> GraphNode:
    """A view [batch, size] of some columns of one step of an array [time, batch, features]."""
    _, batch, features = array.shape
    dense = reshaped(plain(array), array.shape)
    return viewed(dense, (batch, columns[1]), step * batch * features + columns[0], (features, 1))


def _state_of(tensor: GraphTensor, number: int) -> GraphNode:
    """The state [batch, hidden] of one direction of a layer."""
    _, batch, hidden = tensor.shape
    return reshaped(sliced(plain(tensor.node), 0, number, 1), (batch, hidden))


def _in_time(array: GraphNode, direction: int) -> GraphNode:
    """Turn an array [steps, ...] of the backward direction from the order of execution to time, or back."""
    if not direction:
        return array
    return plain(mapped("copy", sliced(array, 0, array.shape[0] - 1, array.shape[0], -1)))


@dataclass(frozen=True)
class _Mask:
    """Which steps belong to sequences of different lengths; all, if there are no lengths."""

    lengths: GraphNode | None
    """The lengths, [batch, 1]."""

    @classmethod
    def of(cls, tensor: GraphTensor | None) -> _Mask:
        return cls(None if tensor is None else reshaped(plain(tensor.node), (tensor.node.size, 1)))

    def choose(self, time: int, within: GraphNode, beyond: GraphNode | None = None) -> GraphNode:
        """Select values [batch, size] of a step within the sequences, and others beyond them: zeros by default."""
        if self.lengths is None:
            return within
        mask = mapped("ogt", self.lengths, constant(time, self.lengths.element), element=BOOL)
        zeros = constant(0.0, within.element) if beyond is None else beyond
        return mapped("select", mask, within, zeros, element=within.element)

    def of_all_steps(self, array: GraphNode) -> GraphNode:
        """Set the elements of an array [steps, batch, size] beyond the sequences to zero."""
        if self.lengths is None:
            return array
        element, (steps, batch, _) = self.lengths.element, array.shape
        times = reshaped(mapped("copy", Position((steps,), element)), (steps, 1, 1))
        mask = mapped("ogt", reshaped(self.lengths, (1, batch, 1)), times, element=BOOL)
        return mapped("select", mask, array, constant(0.0, array.element), element=array.element)


def _first_columns(matrix: GraphNode, count: int) -> GraphNode:
    return matrix if matrix.shape[1] == count else sliced(matrix, 1, 0, count)


def _sum(first: GraphNode, second: GraphNode | None) -> GraphNode:
    return first if second is None else mapped("add", first, second)


def _tensors(nodes: Sequence[GraphNode]) -> list[GraphTensor]:
    return [GraphTensor(node) for node in nodes]


# --------------------------------------------------------------------------------------------------------------- forward
def _network(
    g: Geometry, Input: GraphTensor, states: Sequence[GraphTensor], weights: Sequence[GraphNode], mask: _Mask, saves: bool
) -> tuple[GraphNode, list[GraphNode], GraphNode | None]:
    """The output, the last states and the reserve (None if nothing is saved) of a network."""
    steps, batch, _ = Input.shape
    layout, hidden, cell = _ReserveLayout(g, steps, batch), g.hidden, CELLS[g.mode]
    reserve = Joined((g.reserve_size(steps, batch),), Input.node.element, ())
    parts: list[GraphNode] = []

    def keep(node: GraphNode, place: _Place) -> None:
        if saves:
            parts.append(put_within(node, reserve, *place))

    x = plain(Input.node)
    lasts: list[list[GraphNode]] = [[] for _ in states]
    for layer in range(g.layers):
        flat = reshaped(x, (steps * batch, x.shape[-1]))
        outs: list[list[GraphNode]] = []
        for direction in range(g.directions):
            w = _weights_of_pass(g, weights, layer, direction)
            of_input, of_hidden = (reshaped(bias, (1, bias.size)) for bias in w.biases)
            bias = of_input if MODES[g.mode].splits_gates else mapped("add", of_input, of_hidden)
            coming = mapped("add", product(flat, _turned(w.input)), bias)
            right = _turned(w.hidden)
            packed = packed_matrix(right)
            number = layer * g.directions + direction
            now = [mapped("copy", _state_of(state, number)) for state in states]
            for index, state in enumerate(now):
                keep(state, layout.state(layer, direction, 0, index))
            by_step = []
            for step in range(steps):
                time = steps - 1 - step if direction else step
                here = sliced(coming, 0, time * batch, batch)
                through: GraphNode = _product_with(now[0], right, packed)
                if MODES[g.mode].splits_gates:
                    through = mapped("add", through, of_hidden)
                saved, after = cell(NAMESPACE, *_tensors([here, through]), _tensors(now), NAMESPACE.sigmoid)
                now = [mask.choose(time, new.node, old) for new, old in zip(after, now, strict=True)]
                for index, gate in enumerate(saved):
                    keep(gate.node, layout.gate(layer, direction, step, index))
                for index, state in enumerate(now):
                    keep(state, layout.state(layer, direction, step + 1, index))
                by_step.append(mask.choose(time, now[0]))
            outs.append(by_step[::-1] if direction else by_step)
            for last, state in zip(lasts, now, strict=True):
                last.append(reshaped(state, (1, batch, hidden)))
        of_steps = [
            reshaped(joined(pair, 1) if len(pair) > 1 else pair[0], (1, batch, g.width)) for pair in zip(*outs, strict=True)
        ]
        x = joined(of_steps, 0)
    reserve.parts = tuple(parts)
    return x, [joined(last, 0) for last in lasts], reserve if saves else None


def _nothing_dropped(g: Geometry, Input: GraphTensor) -> GraphTensor:
    """A mask of dropout between layers that drops nothing."""
    steps, batch, _ = Input.shape
    return GraphTensor(broadcast_to(constant(1, BOOL), (steps, batch, (g.layers - 1) * g.width)))


@lowers("cudnn_lstm")
def cudnn_lstm(
    Input: GraphTensor, InitH: GraphTensor, InitC: GraphTensor, W: GraphTensor | None, WeightList: list[GraphTensor] | None,
    SequenceLength: Any, attrs: dict[str, Any], wanted: set[str],
) -> dict[str, Any]:  # fmt: skip
    g = Geometry.of(attrs, "LSTM")
    _check(g, Input, attrs)
    weights, mask = _weights_of(g, W, WeightList), _Mask.of(SequenceLength)
    out, (h, c), reserve = _network(g, Input, (InitH, InitC), weights, mask, "Reserve" in wanted)
    results = {"Out": GraphTensor(out), "LastH": GraphTensor(h), "LastC": GraphTensor(c), "StateOut": _nothing_dropped(g, Input)}
    return results if reserve is None else {**results, "Reserve": GraphTensor(reserve)}


@lowers("rnn")
def rnn(
    Input: GraphTensor, PreState: list[GraphTensor], WeightList: list[GraphTensor], SequenceLength: Any,
    attrs: dict[str, Any], wanted: set[str],
) -> dict[str, Any]:  # fmt: skip
    g = Geometry.of(attrs, attrs["mode"])
    _check(g, Input, attrs)
    weights, mask = [tensor.node for tensor in WeightList], _Mask.of(SequenceLength)
    out, lasts, reserve = _network(g, Input, PreState, weights, mask, "Reserve" in wanted)
    results = {
        "Out": GraphTensor(out),
        "State": [GraphTensor(last) for last in lasts],
        "DropoutState": _nothing_dropped(g, Input),
    }
    return results if reserve is None else {**results, "Reserve": GraphTensor(reserve)}


# -------------------------------------------------------------------------------------------------------------- gradient
class _Gradients:
    """The gradients of a network, layer by layer.

    Attributes:
        states: of the states before the first step, by state and pass.
        weights: in the order of `Geometry.weight_shapes`.
    """

    def __init__(self, g: Geometry, Input: GraphTensor, weights: Sequence[GraphNode], mask: _Mask, reserve: GraphNode) -> None:
        self._g, self._weights, self._mask, self._reserve = g, weights, mask, reserve
        self._steps, self._batch, _ = Input.shape
        self._element = Input.node.element
        self._layout = _ReserveLayout(g, self._steps, self._batch)
        self._x = plain(Input.node)
        self.states: list[list[GraphNode]] = [[] for _ in range(MODES[g.mode].states)]
        self.weights: list[GraphNode] = list(weights)

    def compute(self, d_out: GraphNode | None, d_lasts: Sequence[GraphTensor | None]) -> GraphNode:
        """Compute the gradients of all layers, last first; returns the gradient of the input, [steps, batch, features]."""
        g = self._g
        below: GraphNode | None = d_out
        for layer in reversed(range(g.layers)):
            x = self._x if not layer else self._output_of(layer - 1)
            parts = []
            for direction in reversed(range(g.directions)):
                number = layer * g.directions + direction
                grads = [None if last is None else _state_of(last, number) for last in d_lasts]
                parts.append(self._go_back(layer, direction, below, grads, x))
            below = parts[0]
            for part in parts[1:]:
                below = mapped("add", below, part)
        assert below is not None
        return below

    def _output_of(self, layer: int) -> GraphNode:
        """The output of a layer in the order of time, [steps, batch, width]."""
        pair = [
            _in_time(self._layout.hidden_states(self._reserve, layer, direction, 1), direction)
            for direction in range(self._g.directions)
        ]
        output = plain(joined([mapped("copy", node) for node in pair], 2) if len(pair) > 1 else mapped("copy", pair[0]))
        return plain(self._mask.of_all_steps(output))

    def _matrix(self, place: _Place) -> GraphNode:
        return viewed(self._reserve, (self._batch, self._g.hidden), *place)

    def _go_back(
        self, layer: int, direction: int, d_out: GraphNode | None, d_lasts: Sequence[GraphNode | None], x: GraphNode
    ) -> GraphNode:
        """Go back through the steps of one direction of a layer; returns its input's gradient, and notes the others."""
        g, layout, steps, batch = self._g, self._layout, self._steps, self._batch
        hidden, mode = g.hidden, MODES[g.mode]
        w = _weights_of_pass(g, self._weights, layer, direction)
        packed = packed_matrix(w.hidden)
        zeros = mapped("copy", constant(0.0, self._element))
        grads: list[GraphNode] = [zeros if grad is None else grad for grad in d_lasts]
        wide = (mode.gates + mode.splits_gates) * hidden
        all_gates = Joined((steps * batch, wide), self._element, ())
        parts: list[GraphNode] = []
        for step in reversed(range(steps)):
            time = steps - 1 - step if direction else step
            if d_out is not None:
                coming = self._mask.choose(time, _step_of(d_out, time, (direction * hidden, hidden)))
                grads[0] = mapped("add", grads[0], coming)
            saved = [self._matrix(layout.gate(layer, direction, step, gate)) for gate in range(mode.saved)]
            before, after = (
                [self._matrix(layout.state(layer, direction, at, state)) for state in range(mode.states)]
                for at in (step, step + 1)
            )
            slopes, direct = self._step_back(time, saved, before, after, grads)
            of_step = Joined((batch, wide), self._element, tuple(slopes))
            for gate, slope in enumerate(slopes):
                put_within(slope, of_step, gate * hidden, (wide, 1))
            put_within(of_step, all_gates, step * batch * wide, (wide, 1))
            parts.append(of_step)
            through = _product_with(_first_columns(of_step, mode.gates * hidden), w.hidden, packed)
            grads = [_sum(through, direct[0]), *(grad for grad in direct[1:] if grad is not None)]
        all_gates.parts = tuple(parts)
        for state, grad in zip(self.states, grads, strict=True):
            state.insert(0, reshaped(grad, (1, batch, hidden)))
        return self._note_weights(layer, direction, all_gates, x)

    def _step_back(
        self,
        time: int,
        saved: Sequence[GraphNode],
        before: Sequence[GraphNode],
        after: Sequence[GraphNode],
        grads: Sequence[GraphNode],
    ) -> tuple[list[GraphNode], list[GraphNode | None]]:
        """The gradients of a step (`CELL_GRADIENTS`); beyond its sequence a step passes the gradients of states on."""
        arrays = (_tensors(nodes) for nodes in (grads, saved, before, after))
        gates, states = CELL_GRADIENTS[self._g.mode](NAMESPACE, *arrays)
        slopes, direct = [gate.node for gate in gates], [None if state is None else state.node for state in states]
        if self._mask.lengths is None:
            return slopes, direct
        zeros = mapped("copy", constant(0.0, self._element))
        passed = [self._mask.choose(time, zeros if new is None else new, old) for new, old in zip(direct, grads, strict=True)]
        return [self._mask.choose(time, slope) for slope in slopes], [*passed]

    def _note_weights(self, layer: int, direction: int, all_gates: GraphNode, x: GraphNode) -> GraphNode:
        """Note the gradients of a direction's weights, from the gradients of its gates; returns the gradient of its input."""
        g, steps, batch, hidden = self._g, self._steps, self._batch, self._g.hidden
        rows, features = MODES[g.mode].gates * hidden, x.shape[-1]
        w = _weights_of_pass(g, self._weights, layer, direction)
        inputs = reshaped(_in_time(x, direction), (steps * batch, features))
        states = reshaped(self._layout.hidden_states(self._reserve, layer, direction, 0), (steps * batch, hidden))
        d_bias = reshaped(reduced("sum", all_gates, [0]), (all_gates.shape[1],))
        if all_gates.shape[1] == rows:
            d_x, d_w_x, d_b_x = product(all_gates, w.input), product(_turned(all_gates), inputs), mapped("copy", d_bias)
            d_b_h = d_bias
        else:  # the input's part of the last gate has a block of its own, behind the hidden state's
            last = rows - hidden
            early, new = sliced(all_gates, 1, 0, last), sliced(all_gates, 1, rows, hidden)
            d_x = mapped("add", product(early, sliced(w.input, 0, 0, last)), product(new, sliced(w.input, 0, last, hidden)))
            d_w_x = joined([product(_turned(early), inputs), product(_turned(new), inputs)], 0)
            d_b_x = joined([mapped("copy", sliced(d_bias, 0, start, count)) for start, count in ((0, last), (rows, hidden))], 0)
            d_b_h = mapped("copy", sliced(d_bias, 0, 0, rows))
        gradients = (d_w_x, product(_turned(_first_columns(all_gates, rows)), states), d_b_x, d_b_h)
        for place, gradient in zip(_places_of_weights(g, layer, direction), gradients, strict=True):
            self.weights[place] = gradient
        return _in_time(reshaped(d_x, (steps, batch, features)), direction)


def _gradients(
    g: Geometry,
    Input: GraphTensor,
    weights: Sequence[GraphNode],
    mask: _Mask,
    Reserve: GraphTensor,
    dOut: GraphTensor | None,
    d_lasts: Sequence[GraphTensor | None],
) -> tuple[GraphTensor, list[GraphTensor], list[GraphTensor]]:
    """The gradients of the input, of the states before the first step, and of the weights."""
    gradients = _Gradients(g, Input, weights, mask, plain(Reserve.node))
    d_input = gradients.compute(None if dOut is None else plain(dOut.node), d_lasts)
    d_states = [GraphTensor(joined(state, 0)) for state in gradients.states]
    return GraphTensor(mapped("copy", d_input)), d_states, [GraphTensor(weight) for weight in gradients.weights]


@lowers("cudnn_lstm_grad")
def cudnn_lstm_grad(
    Input: GraphTensor, W: GraphTensor | None, WeightList: list[GraphTensor] | None, SequenceLength: Any,
    Reserve: GraphTensor, dOut: GraphTensor | None,
    dLastH: GraphTensor | None, dLastC: GraphTensor | None, attrs: dict[str, Any], wanted: set[str],
) -> dict[str, Any]:  # fmt: skip
    g = Geometry.of(attrs, "LSTM")
    _check(g, Input, attrs)
    nodes, mask = _weights_of(g, W, WeightList), _Mask.of(SequenceLength)
    d_input, states, weights = _gradients(g, Input, nodes, mask, Reserve, dOut, (dLastH, dLastC))
    results: dict[str, Any] = {"Input@GRAD": d_input, "InitH@GRAD": states[0], "InitC@GRAD": states[1]}
    if "W@GRAD" in wanted:
        results["W@GRAD"] = GraphTensor(joined([reshaped(weight.node, (weight.node.size,)) for weight in weights], 0))
    if "WeightList@GRAD" in wanted:
        results["WeightList@GRAD"] = weights
    return {slot: value for slot, value in results.items() if slot in wanted}


@lowers("rnn_grad")
def rnn_grad(
    Input: GraphTensor, WeightList: list[GraphTensor], SequenceLength: Any, Reserve: GraphTensor, dOut: GraphTensor | None,
    dState: list[GraphTensor] | None, attrs: dict[str, Any], wanted: set[str],
) -> dict[str, Any]:  # fmt: skip
    g = Geometry.of(attrs, attrs["mode"])
    _check(g, Input, attrs)
    lasts: Sequence[GraphTensor | None] = dState or [None] * MODES[g.mode].states
    nodes, mask = [tensor.node for tensor in WeightList], _Mask.of(SequenceLength)
    d_input, states, weights = _gradients(g, Input, nodes, mask, Reserve, dOut, lasts)
    results = {"Input@GRAD": d_input, "PreState@GRAD": states, "WeightList@GRAD": weights}
    return {slot: value for slot, value in results.items() if slot in wanted}


# ------------------------------------------------------------------------------------------------------- single steps
@lowers("gru_unit_grad")
def gru_unit_grad(
    HiddenPrev: GraphTensor, Weight: GraphTensor, Bias: GraphTensor | None, Gate: GraphTensor, ResetHiddenPrev: GraphTensor,
    dHidden: GraphTensor, activation: int, gate_activation: int, origin_mode: bool, wanted: set[str],
) -> dict[str, Any]:  # fmt: skip
    f: Any = NAMESPACE
    weights, names = gru_weights(f, Weight, Weight.shape[0]), (ACTIVATIONS[gate_activation], ACTIVATIONS[activation])
    d_gates, d_candidate, d_before = gru_step_gradient(f, dHidden, Gate, HiddenPrev, weights, *names, origin_mode)
    d_input = f.concat([d_gates, d_candidate], axis=1)
    d_weights = f.matmul(HiddenPrev, d_gates, transpose_X=True), f.matmul(ResetHiddenPrev, d_candidate, transpose_X=True)
    d_weight = f.concat([f.reshape2(part, shape=[-1]) for part in d_weights], axis=0)
    results = {"Input@GRAD": d_input, "HiddenPrev@GRAD": d_before, "Weight@GRAD": f.reshape_like(d_weight, Weight)}
    if Bias is not None:
        results["Bias@GRAD"] = f.reshape_like(f.reduce_sum(d_input, dim=[0]), Bias)
    return {slot: value for slot, value in results.items() if slot in wanted}
