"""Recurrent networks.

Networks of torch, Keras and similar, with the usual activations, become Fluid's op `rnn`; all others become a recurrence, step by
step.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from ...errors import FormatError
from ...ir.scan import scan
from ...values.types import VarType
from ..builder import Builder
from ..node import OnnxNode
from ..table import imports
from .indexing import reversed_within
from .shapes import filled

_GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}
_ORDER = {"LSTM": [0, 2, 3, 1], "GRU": [1, 0, 2], "RNN": [0]}
"""Places of the gates of Fluid's op in ONNX's order: LSTM i, f, c, o in i, o, f, c; GRU r, z, h in z, r, h."""
_ACTIVATIONS = {"LSTM": ["Sigmoid", "Tanh", "Tanh"], "GRU": ["Sigmoid", "Tanh"], "RNN": ["Tanh"]}

Activation = Callable[[Any, Any], Any]
Product = Callable[[Any, Any], Any]
"""``product(f, x)``: the product of x with weights, by the ops of `f`."""
Products = Callable[[int], tuple[Product, list[Product]]]
"""``products(number)``: of a direction, the product of the inputs, and the products of the hidden state (see `_cell`)."""


def _activation(name: str, alpha: float | None, beta: float | None) -> Activation:
    """An activation as a function of the ops and a value."""
    activations: dict[str, Activation] = {
        "Sigmoid": lambda f, x: f.sigmoid(x),
        "Tanh": lambda f, x: f.tanh(x),
        "Relu": lambda f, x: f.relu(x),
        "Affine": lambda f, x: f.scale(x, scale=1.0 if alpha is None else alpha, bias=beta or 0.0),
        "LeakyRelu": lambda f, x: f.leaky_relu(x, alpha=0.01 if alpha is None else alpha),
        "ThresholdedRelu": lambda f, x: f.thresholded_relu(x, threshold=1.0 if alpha is None else alpha),
        "ScaledTanh": lambda f, x: f.stanh(x, scale_a=1.0 if beta is None else beta, scale_b=1.0 if alpha is None else alpha),
        "HardSigmoid": lambda f, x: f.hard_sigmoid(
            x, slope=0.2 if alpha is None else alpha, offset=0.5 if beta is None else beta
        ),
        "Elu": lambda f, x: f.elu(x, alpha=1.0 if alpha is None else alpha),
        "Softsign": lambda f, x: f.softsign(x),
        "Softplus": lambda f, x: f.softplus(x),
    }
    for key, function in activations.items():
        if key.lower() == name.lower():
            return function
    raise FormatError(f"its activation {name!r} should be one of {', '.join(activations)}")


def _activations(node: OnnxNode, kind: str, directions: int) -> tuple[bool, list[list[Activation]]]:
    """Whether all activations are the usual ones, and the activations of each direction."""
    usual = _ACTIVATIONS[kind] * directions
    names = node.strings("activations", usual) or usual
    alphas, betas = node.floats("activation_alpha", []), node.floats("activation_beta", [])
    if len(names) != len(usual):
        raise FormatError(f"its activations {names} should be {len(usual)}")
    functions = []
    for name in names:
        takes_alpha = name.lower() in ("affine", "leakyrelu", "thresholdedrelu", "scaledtanh", "hardsigmoid", "elu")
        takes_beta = name.lower() in ("affine", "scaledtanh", "hardsigmoid")
        alpha = alphas.pop(0) if takes_alpha and alphas else None
        beta = betas.pop(0) if takes_beta and betas else None
        functions.append(_activation(name, alpha, beta))
    per = len(_ACTIVATIONS[kind])
    is_usual = [name.lower() for name in names] == [name.lower() for name in usual]
    return is_usual, [functions[n * per : (n + 1) * per] for n in range(directions)]


def _reordered(b: Builder, weight: Any, kind: str) -> Any:
    """Reorder rows of weights to the gate order of Fluid's op."""
    if kind == "RNN":
        return weight
    parts = b.f.split(weight, num=_GATES[kind], axis=0)
    return b.f.concat([parts[n] for n in _ORDER[kind]], axis=0)


def _recurrent(kind: str) -> Any:
    def build(b: Builder, node: OnnxNode) -> Any:
        direction = node.string("direction", "forward")
        directions = 2 if direction == "bidirectional" else 1
        size = node.int("hidden_size") or node[2].shape[-1]
        batch_first = bool(node.int("layout", 0))
        x = b.transpose(node[0], [1, 0, 2]) if batch_first else node[0]
        states = _first_states(b, node, kind, x, directions, size, batch_first)
        is_usual, functions = _activations(node, kind, directions)
        plain = (
            is_usual
            and _has_usual_cell(node, kind)
            and (kind != "GRU" or node.int("linear_before_reset", 0) == 1)
            and not (direction == "reverse" and node.value(4) is not None)
        )
        if plain:
            y, lasts = _by_op(b, node, kind, x, states, direction, directions, size)
        else:
            products = partial(_products, b, node, kind, size)
            y, lasts = _by_steps(b, node, kind, x, states, direction, directions, size, functions, products)
        if batch_first:
            return (b.transpose(y, [1, 0, 2, 3]), *(b.transpose(last, [1, 0, 2]) for last in lasts))
        return (b.transpose(y, [0, 2, 1, 3]), *lasts)

    return build


def _has_usual_cell(node: OnnxNode, kind: str) -> bool:
    """Whether the cell has neither a clip, nor peepholes, nor a joint gate."""
    return not (node.has("clip") or node.int("input_forget", 0) or (kind == "LSTM" and node.value(7) is not None))


def _first_states(
    b: Builder, node: OnnxNode, kind: str, x: Any, directions: int, size: int, batch_first: bool = False
) -> list[Any]:
    """The states before the first step, [directions, batch, size]."""
    states = []
    for index in (5, 6) if kind == "LSTM" else (5,):
        if node.value(index) is not None:
            states.append(b.transpose(node[index], [1, 0, 2]) if batch_first else node[index])
        else:
            states.append(filled(b, [directions, b.size_of(x, 1), size], np.zeros((), x.dtype.numpy)))
    return states


def lstm(b: Builder, node: OnnxNode, size: int, products: Products, by_op: Callable[..., Sequence[Any]]) -> Any:
    """Build an LSTM that is no node of ONNX.

    Args:
        products: the products with its weights.
        by_op: builds one direction with the usual cell: ``by_op(number, x, states, is_reverse)`` returns the output [time, batch,
            size] and the last states.
    """
    direction = node.string("direction", "forward")
    directions = 2 if direction == "bidirectional" else 1
    x = node[0]
    states = _first_states(b, node, "LSTM", x, directions, size)
    is_usual, functions = _activations(node, "LSTM", directions)
    if not is_usual or not _has_usual_cell(node, "LSTM"):
        y, lasts = _by_steps(b, node, "LSTM", x, states, direction, directions, size, functions, products)
        return (b.transpose(y, [0, 2, 1, 3]), *lasts)
    results: list[Sequence[Any]] = []
    for number in range(directions):
        first = [b.squeeze(b.slice(state, 0, number, number + 1), [0]) for state in states]
        is_reverse, lengths = direction == "reverse" or number == 1, node.get(4)
        if is_reverse and lengths is not None:  # all sequences begin in the first step, with their last elements
            out, *last = by_op(number, reversed_within(b, x, lengths), first, False)
            results.append((reversed_within(b, out, lengths), *last))
        else:
            results.append(by_op(number, x, first, is_reverse))
    outs, *lasts = zip(*results, strict=True)
    return b.f.stack(list(outs), axis=1), *(b.f.stack(list(last), axis=0) for last in lasts)


def _products(b: Builder, node: OnnxNode, kind: str, size: int, number: int) -> tuple[Product, list[Product]]:
    """The products with the weights of a direction, cut before the first step."""
    w, r = (b.squeeze(b.slice(node[index], 0, number, number + 1), [0]) for index in (1, 2))
    weights = b.transpose(r, [1, 0])
    parts = [weights]
    if kind == "GRU":
        parts = [b.slice(weights, 1, 0, 2 * size), b.slice(weights, 1, 2 * size, 3 * size)]
    return (lambda f, x: f.matmul_v2(x, w, trans_y=True)), [partial(_product, part) for part in parts]


def _product(weights: Any, f: Any, h: Any) -> Any:
    return f.matmul_v2(h, weights)


def _by_op(b: Builder, node: OnnxNode, kind: str, x: Any, states: list[Any], direction: str, directions: int, size: int) -> Any:
    """Build the network as Fluid's op `rnn`: [time, batch, directions, size] and the last states."""
    weights: list[Any] = []
    biases: list[Any] = []
    for number in range(directions):
        parts = [b.squeeze(b.slice(node[index], 0, number, number + 1), [0]) for index in (1, 2)]
        weights += [_reordered(b, part, kind) for part in parts]
        rows = _GATES[kind] * size
        for half in (0, 1):
            if node.value(3) is None:
                biases.append(b.f.fill_constant(shape=[rows], dtype=int(x.dtype), value=0.0))
            else:
                part = b.f.slice(node[3], axes=[0, 1], starts=[number, half * rows], ends=[number + 1, (half + 1) * rows])
                biases.append(_reordered(b, b.squeeze(part, [0]), kind))
    source = b.f.flip(x, axis=[0]) if direction == "reverse" else x
    mode = {"LSTM": "LSTM", "GRU": "GRU", "RNN": "RNN_TANH"}[kind]
    lengths = None if node.value(4) is None else b.cast(node[4], VarType.INT64)
    y, _, lasts = b.f.rnn(
        source,
        states,
        [*weights, *biases],
        lengths,
        is_bidirec=directions == 2,
        input_size=x.shape[2],
        hidden_size=size,
        mode=mode,
        is_test=True,
    )
    y = b.f.flip(y, axis=[0]) if direction == "reverse" else y
    return b.f.reshape2(y, shape=[0, 0, directions, size]), lasts


def _by_steps(
    b: Builder,
    node: OnnxNode,
    kind: str,
    x: Any,
    states: list[Any],
    direction: str,
    directions: int,
    size: int,
    functions: list[list[Activation]],
    products: Products,
) -> Any:
    """Build the network as recurrences, step by step; without the last states that the node leaves out at the end."""
    outs: list[Any] = []
    named = [number for number, name in enumerate(node.proto.output) if name]
    lasts: list[list[Any]] = [[] for _ in states[: max(named, default=0)]]
    has_lengths = node.value(4) is not None
    stacked = range(not has_lengths, len(lasts))  # without lengths, the output is the first state
    for number in range(directions):
        reverse = direction == "reverse" or number == 1
        of_input, of_hidden_state = products(number)
        rows = _GATES[kind] * size
        inputs = of_input(b.f, x)
        bias_of_candidate = None  # a bias that the reset gate scales; all others are added to the inputs of all steps
        if node.value(3) is not None:
            bias = b.squeeze(b.slice(node[3], 0, number, number + 1), [0])
            of_hidden = b.slice(bias, 0, rows, 2 * rows)
            if kind == "GRU" and node.int("linear_before_reset", 0):
                bias_of_candidate = b.slice(of_hidden, 0, 2 * size, rows)
                of_hidden = b.f.concat([b.slice(of_hidden, 0, 0, 2 * size), b.f.fill_any_like(bias_of_candidate)], axis=0)
            inputs = b.f.elementwise_add(inputs, b.slice(bias, 0, 0, rows) + of_hidden)
        peepholes = None
        if kind == "LSTM" and node.value(7) is not None:
            row = b.squeeze(b.slice(node[7], 0, number, number + 1), [0])
            peepholes = b.f.split(row, num=3, axis=0)
        first = [b.squeeze(b.slice(state, 0, number, number + 1), [0]) for state in states]
        sequences = [inputs]
        if has_lengths:
            sequences.append(_step_mask(b, x, node[4]))
        cell = _cell(kind, node, functions[number], of_hidden_state, bias_of_candidate, peepholes, size)

        def step(f: Any, before: list[Any], slices: list[Any], cell: Any = cell) -> tuple[list[Any], list[Any]]:
            after = cell(f, slices[0], before)
            out = after[0]
            for mask in slices[1:]:
                out = out * mask
                after = [old + (new - old) * mask for old, new in zip(before, after, strict=True)]
            return after, [out, *(after[number] for number in stacked)]

        out, *state_sequences = scan(step, first, sequences, reverse)
        outs.append(b.unsqueeze(out, [2]))
        for column, sequence in zip(lasts, state_sequences if has_lengths else [out, *state_sequences], strict=False):
            column.append(b.slice(sequence, 0, *((0, 1) if reverse else (-1, 2**31 - 1))))
    y = outs[0] if directions == 1 else b.f.concat(outs, axis=2)
    return y, [column[0] if directions == 1 else b.f.concat(column, axis=0) for column in lasts]


def _step_mask(b: Builder, x: Any, lengths: Any) -> Any:
    """A mask, 1 where a step belongs to its sequence: [time, batch, 1]."""
    steps = b.f.cumsum(b.f.fill_any_like(b.slice(x, 2, 0, 1), value=1.0), axis=0)
    return b.cast(b.f.less_equal(steps, b.unsqueeze(b.cast(lengths, x.dtype), [1])), x.dtype)


def _cell(
    kind: str, node: OnnxNode, act: list[Activation], products: list[Product], bias_of_candidate: Any, peepholes: Any, size: int
) -> Any:
    """A step of a recurrence. `products` multiply the hidden state; a GRU has one for the gates and one for the candidate."""
    limit = node.float("clip", 0.0) if node.has("clip") else 0.0

    def clipped(f: Any, value: Any) -> Any:
        return f.clip(value, min=-limit, max=limit) if limit else value

    def lstm(f: Any, x: Any, before: list[Any]) -> list[Any]:
        h, c = before
        i, o, forget, g = f.split(x + products[0](f, h), num=4, axis=1)
        if peepholes is not None:
            i, forget = i + c * peepholes[0], forget + c * peepholes[2]
        i = act[0](f, clipped(f, i))
        forget = 1.0 - i if node.int("input_forget", 0) else act[0](f, clipped(f, forget))
        cell = forget * c + i * act[1](f, clipped(f, g))
        if peepholes is not None:
            o = o + cell * peepholes[1]
        return [act[0](f, clipped(f, o)) * act[2](f, cell), cell]

    def gru(f: Any, x: Any, before: list[Any]) -> list[Any]:
        h = before[0]
        of_x, x_h = f.split(x, sections=[2 * size, size], axis=1)
        z, reset = f.split(act[0](f, clipped(f, of_x + products[0](f, h))), num=2, axis=1)
        if node.int("linear_before_reset", 0):
            of_h = products[1](f, h)
            new = x_h + reset * (of_h if bias_of_candidate is None else of_h + bias_of_candidate)
        else:
            new = x_h + products[1](f, reset * h)
        new = act[1](f, clipped(f, new))
        return [new + z * (h - new)]

    def rnn(f: Any, x: Any, before: list[Any]) -> list[Any]:
        return [act[0](f, clipped(f, x + products[0](f, before[0])))]

    return {"LSTM": lstm, "GRU": gru, "RNN": rnn}[kind]


for _kind in _GATES:
    imports(_kind)(_recurrent(_kind))
