"""Lowers recurrent networks.

Products that do not depend on the state are computed for all steps at once. The remaining products go step by step, with a matrix
that is packed once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

from fluid.ops.rnn import MODES, Geometry, drops

from .graph import (
    Joined,
    Node,
    PackedMatrix,
    Product,
    constant,
    contiguous,
    joined,
    mapped,
    plain,
    product,
    put_within,
    reduced,
    reshaped,
    sliced,
    transposed,
    viewed,
)  # fmt: skip
from .lowering import GraphTensor, NotLowered, lowers

_MOST_STEPS = 256
"""Maximal number of steps: each step adds nodes to the graph."""


def _turned(matrix: Node) -> Node:
    return transposed(matrix, (1, 0))


@dataclass(frozen=True)
class _ReserveLayout:
    """The layout of the array that `cudnn_lstm` saves for its gradient. Per layer: the gates [step, direction, batch, gate,
    hidden], then the states [state, step + 1, direction, batch, hidden]."""

    g: Geometry
    steps: int
    batch: int

    @property
    def _layer(self) -> int:
        return self.g.reserve_size(self.steps, self.batch) // self.g.layers

    def gate(self, layer: int, direction: int, step: int, number: int) -> tuple[int, tuple[int, int]]:
        """The place of a gate of a step: offset of its first element, and strides of rows and columns."""
        hidden = self.g.hidden
        row = (step * self.g.directions + direction) * self.batch * 4 + number
        return layer * self._layer + row * hidden, (4 * hidden, 1)

    def state(self, layer: int, direction: int, step: int, number: int) -> tuple[int, tuple[int, int]]:
        hidden = self.g.hidden
        before = self.steps * self.g.directions * self.batch * 4
        row = ((number * (self.steps + 1) + step) * self.g.directions + direction) * self.batch
        return layer * self._layer + (before + row) * hidden, (hidden, 1)


@dataclass(frozen=True)
class _Weights:
    """The weights of one direction of a layer: for the input, for the hidden state, and the biases."""

    input: Node
    hidden: Node
    biases: tuple[Node, Node]


def _weights_of(g: Geometry, W: GraphTensor | None, WeightList: Sequence[GraphTensor] | None) -> list[Node]:
    shapes = g.weight_shapes()
    if W is None:
        return [tensor.node for tensor in WeightList or ()]
    flat, start, parts = reshaped(plain(W.node), (W.node.size,)), 0, []
    for shape in shapes:
        parts.append(viewed(flat, shape, start, contiguous(shape)))
        start += prod(shape)
    return parts


def _of_pass(g: Geometry, weights: Sequence[Node], layer: int, direction: int) -> _Weights:
    first = 2 * (layer * g.directions + direction)
    biases = 2 * g.passes + first
    return _Weights(weights[first], weights[first + 1], (weights[biases], weights[biases + 1]))


def _geometry(Input: GraphTensor, SequenceLength: Any, attrs: dict[str, Any]) -> Geometry:
    if SequenceLength is not None or drops(attrs) or Input.shape[0] * attrs["num_layers"] > _MOST_STEPS:
        raise NotLowered("sequences of different lengths, dropout, or very many steps")
    return Geometry.of(attrs, "LSTM")


def _packed(matrix: Node, rows: int) -> PackedMatrix:
    return PackedMatrix((0,), matrix.element, matrix, rows)


def _product_with(left: Node, right: Node, packed: PackedMatrix) -> Product:
    return Product((left.shape[0], right.shape[1]), left.element, left, right, packed)


def _step_of(array: Node, step: int, columns: tuple[int, int]) -> Node:
    """A view [batch, size] of some columns of one step of an array [time, batch, features]."""
    _, batch, features = array.shape
    dense = reshaped(plain(array), array.shape)
    return viewed(dense, (batch, columns[1]), step * batch * features + columns[0], (features, 1))


@lowers("cudnn_lstm")
def cudnn_lstm(
    Input: GraphTensor, InitH: GraphTensor, InitC: GraphTensor, W: GraphTensor | None, WeightList: list[GraphTensor] | None,
    SequenceLength: Any,
    attrs: dict[str, Any], specs: dict[str, Any],
) -> dict[str, GraphTensor]:  # fmt: skip
    g = _geometry(Input, SequenceLength, attrs)
    weights = _weights_of(g, W, WeightList)
    steps, batch, _ = Input.shape
    layout, hidden = _ReserveLayout(g, steps, batch), g.hidden
    reserve = Joined((g.reserve_size(steps, batch),), Input.node.element, ())
    parts: list[Node] = []

    def keep(node: Node, place: tuple[int, tuple[int, int]]) -> Node:
        parts.append(put_within(node, reserve, *place))
        return node

    x = plain(Input.node)
    lasts: tuple[list[Node], list[Node]] = [], []
    for layer in range(g.layers):
        flat = reshaped(x, (steps * batch, x.shape[-1]))
        outs: list[list[Node]] = []
        for direction in range(g.directions):
            w = _of_pass(g, weights, layer, direction)
            bias = reshaped(mapped("add", *w.biases), (1, 4 * hidden))
            coming = mapped("add", product(flat, _turned(w.input)), bias)
            right = _turned(w.hidden)
            packed = _packed(right, batch)
            number = layer * g.directions + direction
            h, c = (
                keep(
                    mapped("copy", reshaped(sliced(plain(state.node), 0, number, 1), (batch, hidden))),
                    layout.state(layer, direction, 0, state_index),
                )
                for state_index, state in enumerate((InitH, InitC))
            )
            by_step = []
            for step in range(steps):
                time = steps - 1 - step if direction else step
                z = mapped("add", _product_with(h, right, packed), sliced(coming, 0, time * batch, batch))
                pieces = [sliced(z, 1, gate * hidden, hidden) for gate in range(4)]
                i, forget, candidate, out = (
                    keep(mapped("tanh" if gate == 2 else "sigmoid", piece), layout.gate(layer, direction, step, gate))
                    for gate, piece in enumerate(pieces)
                )
                c = keep(
                    mapped("add", mapped("mul", forget, c), mapped("mul", i, candidate)),
                    layout.state(layer, direction, step + 1, 1),
                )
                h = keep(mapped("mul", out, mapped("tanh", c)), layout.state(layer, direction, step + 1, 0))
                by_step.append(h)
            outs.append(by_step[::-1] if direction else by_step)
            for last, state in zip(lasts, (h, c), strict=True):
                last.append(reshaped(state, (1, batch, hidden)))
        in_time = [
            reshaped(joined(states, 1) if len(states) > 1 else states[0], (1, batch, g.width))
            for states in zip(*outs, strict=True)
        ]
        x = joined(in_time, 0)
    reserve.parts = tuple(parts)
    results = {"Out": GraphTensor(x), "LastH": GraphTensor(joined(lasts[0], 0)), "LastC": GraphTensor(joined(lasts[1], 0))}
    if specs.get("Reserve") is not None:
        results["Reserve"] = GraphTensor(reserve)
    return results


@lowers("cudnn_lstm_grad")
def cudnn_lstm_grad(
    Input: GraphTensor, W: GraphTensor | None, WeightList: list[GraphTensor] | None, SequenceLength: Any,
    Reserve: GraphTensor, dOut: GraphTensor | None,
    dLastH: GraphTensor | None, dLastC: GraphTensor | None, attrs: dict[str, Any], wanted: set[str],
) -> dict[str, Any]:  # fmt: skip
    g = _geometry(Input, SequenceLength, attrs)
    if g.layers > 1 or g.directions > 1:
        raise NotLowered("gradients of several layers or directions")
    weights = _weights_of(g, W, WeightList)
    steps, batch, features = Input.shape
    layout, hidden, element = _ReserveLayout(g, steps, batch), g.hidden, Input.node.element
    reserve = plain(Reserve.node)

    def of_step(place: tuple[int, tuple[int, int]]) -> Node:
        return viewed(reserve, (batch, hidden), *place)

    w = _of_pass(g, weights, 0, 0)
    packed = _packed(w.hidden, batch)
    d_out = None if dOut is None else plain(dOut.node)
    zeros = mapped("copy", constant(0.0, element))
    d_h, d_c = (zeros if tensor is None else reshaped(plain(tensor.node), (batch, hidden)) for tensor in (dLastH, dLastC))
    all_gates = Joined((steps * batch, 4 * hidden), element, ())
    parts: list[Node] = []
    wide = 4 * hidden
    for step in reversed(range(steps)):
        i, forget, candidate, out = (of_step(layout.gate(0, 0, step, gate)) for gate in range(4))
        before, cell = of_step(layout.state(0, 0, step, 1)), mapped("tanh", of_step(layout.state(0, 0, step + 1, 1)))
        if d_out is not None:
            d_h = mapped("add", d_h, _step_of(d_out, step, (0, hidden)))
        d_c = mapped("add", d_c, mapped("mul", mapped("mul", d_h, out), _one_minus_square(cell)))
        slopes = [
            mapped("mul", mapped("mul", d_c, candidate), _sigmoid_slope(i)),
            mapped("mul", mapped("mul", d_c, before), _sigmoid_slope(forget)),
            mapped("mul", mapped("mul", d_c, i), _one_minus_square(candidate)),
            mapped("mul", mapped("mul", d_h, cell), _sigmoid_slope(out)),
        ]
        d_gates = Joined((batch, wide), element, tuple(slopes))
        for gate, slope in enumerate(slopes):
            put_within(slope, d_gates, gate * hidden, (wide, 1))
        put_within(d_gates, all_gates, step * batch * wide, (wide, 1))
        parts.append(d_gates)
        d_h, d_c = _product_with(d_gates, w.hidden, packed), mapped("mul", d_c, forget)
    all_gates.parts = tuple(parts)
    results: dict[str, Any] = {}
    turned = _turned(all_gates)
    if "Input@GRAD" in wanted:
        results["Input@GRAD"] = GraphTensor(reshaped(product(all_gates, w.input), Input.shape))
    for slot, node in (("InitH@GRAD", d_h), ("InitC@GRAD", d_c)):
        if slot in wanted:
            results[slot] = GraphTensor(reshaped(node, (1, batch, hidden)))
    hidden_states = viewed(reserve, (steps * batch, hidden), layout.state(0, 0, 0, 0)[0], (hidden, 1))
    d_bias = reshaped(reduced("sum", all_gates, [0]), (wide,))
    gradients = [
        product(turned, reshaped(plain(Input.node), (steps * batch, features))),
        product(turned, hidden_states),
        d_bias,
        mapped("copy", d_bias),
    ]
    if "W@GRAD" in wanted:
        results["W@GRAD"] = GraphTensor(joined([reshaped(node, (node.size,)) for node in gradients], 0))
    if "WeightList@GRAD" in wanted:
        results["WeightList@GRAD"] = [GraphTensor(node) for node in gradients]
    return results


def _one_minus_square(node: Node) -> Node:
    return mapped("sub", constant(1.0, node.element), mapped("square", node))


def _sigmoid_slope(node: Node) -> Node:
    return mapped("mul", node, mapped("sub", constant(1.0, node.element), node))


assert MODES["LSTM"].saved == 4
