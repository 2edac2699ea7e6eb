"""Recurrent networks; each step computes both directions together.

For each layer, the product of the inputs and their weights is computed for all steps at once, like the gradients of weights; only
the part of the hidden state is computed step by step. Steps are stored in the order of their execution, ``[step, direction,
batch, ...]``, so that the backward direction is one more entry of a batched product.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import accumulate
from math import prod
from typing import Any, NamedTuple

from fluid.ops.rnn import ACTIVATIONS, MODES, Geometry, activation_gradient, drops, gru_step, gru_step_gradient, lstm_step
from fluid.values.lod_array import checked_lod
from fluid.values.spec import Lod

from ..runtime.products import multiply
from .activation import sigmoid_calls
from .engine import engine_of
from .manipulation import flattened
from .packed_rows import packed_rows
from .sums import row_sum
from .table import kernel


@dataclass
class _Layer:
    """Arrays saved by one layer: gates ``[step, direction, batch, kept, hidden]`` and states ``[state, step + 1, direction,
    batch, hidden]``."""

    gates: Any
    states: Any


def _layers(g: Geometry, Reserve: Any, steps: int, batch: int) -> list[_Layer]:
    """Split the buffer saved for the gradient by layers."""
    mode = MODES[g.mode]
    gates = (steps, g.directions, batch, mode.saved, g.hidden)
    states = (mode.states, steps + 1, g.directions, batch, g.hidden)
    layers, start = [], 0
    for _ in range(g.layers):
        middle = start + steps * g.width * batch * mode.saved
        end = middle + mode.states * (steps + 1) * g.width * batch
        layers.append(_Layer(Reserve[start:middle].reshape(gates), Reserve[middle:end].reshape(states)))
        start = end
    return layers


class Loops(NamedTuple):
    """Functions that run the steps of a layer, by mode; and a function that runs packed sequences (see `in_turn`)."""

    forward: Mapping[str, Callable[..., None]]
    backward: Mapping[str, Callable[..., tuple[Any, Any]]]
    in_turn: Callable[..., None]


class StepFormula(NamedTuple):
    """A step as a formula of ops, for loops that compile it.

    Attributes:
        key: all that the formula depends on, but the parameters and values.
        parameters: the arrays that all steps read; None for absent ones.
        inputs: the packed rows that the steps read; None for absent ones.
        compute: ``compute(f, parameters, states, inputs)`` returns the states after the step, and its outputs.
    """

    key: Hashable
    parameters: Sequence[Any]
    inputs: Sequence[Any]
    compute: Callable[..., tuple[Sequence[Any], Sequence[Any]]]


def loops_of(xp: Any) -> Loops:
    """The loops of a namespace; the loops of this module if its engine has none."""
    loops = engine_of(xp).recurrent_loops
    return Loops(FORWARD, BACKWARD, in_turn) if loops is None else loops()


class _Network:
    """A network on its way, forward or backward.

    `weights` are in the order of `rnn`'s WeightList; `Dropped` is 0 where, if at all, something is dropped between layers.
    """

    def __init__(
        self, xp: Any, g: Geometry, Input: Any, weights: Sequence[Any], lengths: Any, Reserve: Any, Dropped: Any, attrs: Any
    ) -> None:
        self.xp, self.g, self.Input, self.weights, self.loops = xp, g, Input, weights, loops_of(xp)
        self.steps, self.batch = Input.shape[:2]
        self.layers = _layers(g, Reserve, self.steps, self.batch)
        self.Dropped = Dropped if drops(attrs) else None
        self.scale = 1.0 / (1.0 - attrs["dropout_prob"]) if drops(attrs) else 1.0
        self.mask: Any = None
        """Mask of the steps that belong to the sequences, ``[step, direction, batch, 1]``; None if all do."""
        if lengths is not None:
            mask = xp.arange(self.steps).reshape(-1, 1) < lengths.reshape(1, -1)
            self.mask = self.turned(mask.reshape(self.steps, self.batch, 1), 1)

    # -- between [time, batch, directions * size] and [step, direction, batch, size]
    def turned(self, x: Any, size: int) -> Any:
        """Arrange values in the order of steps; with one direction only, both directions share them."""
        g, xp = self.g, self.xp
        parts = [x[..., d * size : (d + 1) * size] if x.shape[-1] > size else x for d in range(g.directions)]
        return xp.stack([part[::-1] if d else part for d, part in enumerate(parts)], axis=1)

    def put(self, x: Any, out: Any) -> None:
        """Steps back in the order of time, into `out`."""
        size = x.shape[-1]
        for d in range(self.g.directions):
            out[..., d * size : (d + 1) * size] = x[::-1, d] if d else x[:, d]

    def out_of(self, layer: int, out: Any) -> Any:
        """Copy the outputs of a layer into `out`."""
        self.put(self.layers[layer].states[0, 1:], out)
        if self.mask is not None:
            hidden = self.g.hidden
            for d in range(self.g.directions):
                part = out[..., d * hidden : (d + 1) * hidden]
                part *= self.mask[:, 0]
        return out

    def dropped(self, layer: int) -> Any:
        """The dropout factors for the outputs of a layer, or None."""
        if self.Dropped is None:
            return None
        return self.Dropped[..., layer * self.g.width : (layer + 1) * self.g.width] * self.Input.dtype.type(self.scale)

    def input_of(self, layer: int) -> Any:
        """The input of a layer, ``[time * batch, features]``."""
        if layer == 0:
            x = self.Input
        else:
            x = self.out_of(layer - 1, self.xp.empty((self.steps, self.batch, self.g.width), self.Input.dtype))
            if self.Dropped is not None:
                x *= self.dropped(layer - 1)
        return x.reshape(self.steps * self.batch, x.shape[-1])

    def of_layer(self, layer: int) -> list[tuple[int, int, int, int]]:
        """For each direction: the positions in `weights` of the input and hidden weights, and of their biases."""
        g = self.g
        first = [2 * (layer * g.directions + d) for d in range(g.directions)]
        return [(n, n + 1, 2 * g.passes + n, 2 * g.passes + n + 1) for n in first]

    # -- forward
    def forward(self, first: Sequence[Any]) -> None:
        """Run all layers and fill the saved buffers; `first` are the initial states."""
        xp, g, weights = self.xp, self.g, self.weights
        mode = MODES[g.mode]
        columns = mode.gates * g.hidden
        for index, layer in enumerate(self.layers):
            for stored, state in zip(layer.states, first, strict=True):
                stored[0] = state[index * g.directions : (index + 1) * g.directions]
            x, dtype = self.input_of(index), self.Input.dtype
            factor = FACTORS[g.mode](xp, g.hidden, dtype)  # sigmoid(x) = tanh(x / 2) / 2 + 1 / 2
            pre = xp.empty((self.steps, g.directions, self.batch, columns), dtype)
            hidden = xp.empty((g.directions, g.hidden, columns), dtype)
            hidden_bias = xp.empty((g.directions, 1, columns), dtype)
            for d, (w_x, w_h, b_x, b_h) in enumerate(self.of_layer(index)):
                xp.multiply(weights[w_h].T, factor, out=hidden[d])
                xp.multiply(weights[b_h], factor, out=hidden_bias[d, 0])
                # With one direction the product goes where it is to be: large arrays that are new cost more than their sums.
                product = pre.reshape(-1, columns) if g.directions == 1 else xp.empty((len(x), columns), dtype)
                multiply(xp, x, weights[w_x].T * factor, product)
                product = product.reshape(self.steps, self.batch, columns)
                xp.add(product[::-1] if d else product, weights[b_x] * factor, out=pre[:, d])
            self.loops.forward[g.mode](xp, pre, hidden, hidden_bias, layer, _outside(self.mask, self.steps))

    # -- backward
    def backward(self, d_out: Any, d_last: Sequence[Any], d_input: Any, d_first: Sequence[Any], d_weights: Sequence[Any]) -> None:
        """Compute the gradients into `d_input`, `d_first` and `d_weights`; any of them may be None."""
        xp, g, weights = self.xp, self.g, self.weights
        rows = MODES[g.mode].gates * g.hidden
        for index in range(g.layers - 1, -1, -1):
            layer, places = self.layers[index], self.of_layer(index)
            here = slice(index * g.directions, (index + 1) * g.directions)
            grads = [state[here].copy() for state in d_last]
            coming = self.turned(d_out, g.hidden)
            hidden = xp.stack([weights[w_h] for _, w_h, _, _ in places])
            if self.mask is not None:
                coming *= self.mask
            d_x, d_h = self.loops.backward[g.mode](xp, coming, grads, hidden, layer, self.mask)
            for target, grad in zip(d_first, grads, strict=True):
                if target is not None:
                    target[here] = grad
            x = None
            below: Any = None
            for d, (w_x, w_h, b_x, b_h) in enumerate(places):
                of_hidden = d_h[:, d].reshape(-1, rows)
                if d_weights[w_h] is not None:
                    multiply(xp, of_hidden.T, layer.states[0, :-1, d].reshape(-1, g.hidden), d_weights[w_h])
                if d_weights[b_h] is not None:
                    xp.copyto(d_weights[b_h], row_sum(xp, of_hidden))
                in_time = xp.ascontiguousarray(d_x[::-1, d] if d else d_x[:, d]).reshape(-1, rows)
                if d_weights[w_x] is not None:
                    x = self.input_of(index) if x is None else x
                    multiply(xp, in_time.T, x, d_weights[w_x])
                if d_weights[b_x] is not None:
                    xp.copyto(d_weights[b_x], row_sum(xp, in_time))
                if index or d_input is not None:
                    part = multiply(xp, in_time, weights[w_x])
                    below = part if below is None else xp.add(below, part, out=below)
            if index:
                d_out = below.reshape(self.steps, self.batch, below.shape[-1])
                if self.Dropped is not None:
                    d_out *= self.dropped(index - 1)
            elif d_input is not None:
                xp.copyto(d_input, below.reshape(d_input.shape))


def _outside(mask: Any, steps: int) -> Any:
    """For each step, the mask of rows outside of their sequence, or None."""
    return [None] * steps if mask is None else ~mask


# ------------------------------------------------------------------------------------------------------------- forward
# Each function runs the steps of one layer. `pre` holds the inputs times their weights, `outside` the mask of padding steps.
def _stay(xp: Any, outside: Any, after: Sequence[Any], before: Sequence[Any]) -> None:
    if outside is not None:
        for new, old in zip(after, before, strict=True):
            xp.copyto(new, old, where=outside)


def _lstm(xp: Any, pre: Any, weight: Any, bias: Any, layer: _Layer, outside: Any) -> None:
    pre += bias
    hs, cs = layer.states
    product, part, scale = xp.empty(pre.shape[1:], pre.dtype), xp.empty_like(cs[0]), xp.empty(pre.shape[1:], pre.dtype)
    scale[...] = FACTORS["LSTM"](xp, hs.shape[-1], pre.dtype)  # of the full shape, since broadcasting takes as long as the sums
    shift = 1 - scale
    for t, gates in enumerate(layer.gates.reshape(pre.shape)):
        h, c = hs[t + 1], cs[t + 1]
        xp.matmul(hs[t], weight, out=product)
        xp.add(product, pre[t], out=product)
        xp.tanh(product, out=product)
        xp.multiply(product, scale, out=product)
        xp.add(product, shift, out=gates)
        i, f, g, o = (layer.gates[t, :, :, k] for k in range(4))
        xp.multiply(f, cs[t], out=c)
        xp.multiply(i, g, out=part)
        xp.add(c, part, out=c)
        xp.tanh(c, out=part)
        xp.multiply(o, part, out=h)
        _stay(xp, outside[t], (h, c), (hs[t], cs[t]))


def _gru(xp: Any, pre: Any, weight: Any, bias: Any, layer: _Layer, outside: Any) -> None:
    (hs,) = layer.states
    size = hs.shape[-1]
    half = pre.dtype.type(0.5)
    pre[..., : 2 * size] += bias[..., : 2 * size]
    product, both = xp.empty(pre.shape[1:], pre.dtype), flattened(layer.gates, 3)[..., : 2 * size]
    for t, x in enumerate(pre):
        h, n, of_h = hs[t + 1], layer.gates[t, :, :, 2], layer.gates[t, :, :, 3]
        xp.matmul(hs[t], weight, out=product)
        gates = product[..., : 2 * size]
        xp.add(gates, x[..., : 2 * size], out=gates)
        xp.tanh(gates, out=gates)
        xp.multiply(gates, half, out=gates)
        xp.add(gates, half, out=both[t])
        xp.add(product[..., 2 * size :], bias[..., 2 * size :], out=of_h)
        xp.multiply(of_h, layer.gates[t, :, :, 0], out=n)
        xp.add(n, x[..., 2 * size :], out=n)
        xp.tanh(n, out=n)
        xp.subtract(hs[t], n, out=h)
        xp.multiply(h, layer.gates[t, :, :, 1], out=h)
        xp.add(h, n, out=h)
        _stay(xp, outside[t], (h,), (hs[t],))


def _simple(activate: str) -> Any:
    def run(xp: Any, pre: Any, weight: Any, bias: Any, layer: _Layer, outside: Any) -> None:
        (hs,) = layer.states
        pre += bias
        for t, x in enumerate(pre):
            h = hs[t + 1]
            xp.matmul(hs[t], weight, out=h)
            xp.add(h, x, out=h)
            if activate == "tanh":
                xp.tanh(h, out=h)
            else:
                xp.maximum(h, 0, out=h)
            _stay(xp, outside[t], (h,), (hs[t],))

    return run


def _repeated(*blocks: float) -> Any:
    def make(xp: Any, hidden: int, dtype: Any) -> Any:
        return xp.concatenate([xp.full(hidden, block, dtype) for block in blocks])

    return make


FACTORS = {
    "LSTM": _repeated(0.5, 0.5, 1, 0.5),
    "GRU": _repeated(0.5, 0.5, 1),
    "RNN_TANH": _repeated(1),
    "RNN_RELU": _repeated(1),
}
"""Mode -> factors for the arguments of the gates, so that tanh computes all gates."""
FORWARD = {"LSTM": _lstm, "GRU": _gru, "RNN_TANH": _simple("tanh"), "RNN_RELU": _simple("relu")}


# ------------------------------------------------------------------------------------------------------------ backward
# Each function returns the gradients of two products for all steps: inputs by their weights, and hidden state by its weights.
# It leaves the gradients of the initial states in `grads`. Only the recurrence is computed step by step.
def masked(values: Any, mask: Any) -> Any:
    """Set values to 0, in place, at steps outside of the sequences."""
    if mask is not None:
        values *= mask.reshape(mask.shape + (1,) * (values.ndim - mask.ndim))
    return values


def _lstm_back(xp: Any, coming: Any, grads: Sequence[Any], weight: Any, layer: _Layer, mask: Any) -> tuple[Any, Any]:
    dh, dc = grads
    i, f, g, o = (layer.gates[:, :, :, k] for k in range(4))
    tanh_c = xp.tanh(layer.states[1, 1:])
    factors = xp.empty_like(layer.gates)
    xp.multiply(g, i * (1 - i), out=factors[:, :, :, 0])
    xp.multiply(layer.states[1, :-1], f * (1 - f), out=factors[:, :, :, 1])
    xp.multiply(i, 1 - g * g, out=factors[:, :, :, 2])
    xp.multiply(tanh_c, o * (1 - o), out=factors[:, :, :, 3])
    to_cell = masked(o * (1 - tanh_c * tanh_c), mask)
    masked(factors, mask)
    forget = f if mask is None else xp.where(mask, f, f.dtype.type(1))
    d_gates = xp.empty(layer.gates.shape, dh.dtype)
    wide = flattened(d_gates, 3)
    part, outside = xp.empty_like(dh), _outside(mask, len(coming))
    for t in range(len(d_gates) - 1, -1, -1):
        xp.add(dh, coming[t], out=dh)
        xp.multiply(dh, to_cell[t], out=part)
        xp.add(dc, part, out=dc)
        xp.multiply(factors[t, :, :, :3], dc[:, :, None], out=d_gates[t, :, :, :3])
        xp.multiply(factors[t, :, :, 3], dh, out=d_gates[t, :, :, 3])
        xp.multiply(dc, forget[t], out=dc)
        _through(xp, wide[t], weight, dh, part, outside[t])
    return wide, wide


def _through(xp: Any, d_gates: Any, weight: Any, dh: Any, part: Any, outside: Any) -> None:
    """Update `dh` to the gradient of the former hidden state: through the weights, or unchanged where the state stays."""
    if outside is None:
        xp.matmul(d_gates, weight, out=dh)
    else:
        xp.matmul(d_gates, weight, out=part)
        xp.multiply(dh, outside, out=dh)
        xp.add(dh, part, out=dh)


def _gru_back(xp: Any, coming: Any, grads: Sequence[Any], weight: Any, layer: _Layer, mask: Any) -> tuple[Any, Any]:
    (dh,) = grads
    r, z, n, of_h = (layer.gates[:, :, :, k] for k in range(4))
    # Of r, z, the hidden part of the candidate, and the candidate's argument.
    factors = xp.empty_like(layer.gates)
    xp.multiply(1 - z, 1 - n * n, out=factors[:, :, :, 3])
    xp.multiply(factors[:, :, :, 3], r, out=factors[:, :, :, 2])
    xp.multiply(factors[:, :, :, 2], of_h * (1 - r), out=factors[:, :, :, 0])
    xp.multiply(layer.states[0, :-1] - n, z * (1 - z), out=factors[:, :, :, 1])
    masked(factors, mask)
    stay = z if mask is None else xp.where(mask, z, z.dtype.type(1))
    d_gates = xp.empty(layer.gates.shape, dh.dtype)
    part = xp.empty_like(dh)
    size = dh.shape[-1]
    hidden = flattened(d_gates, 3)[..., : 3 * size]
    for t in range(len(d_gates) - 1, -1, -1):
        xp.add(dh, coming[t], out=dh)
        xp.multiply(factors[t], dh[:, :, None], out=d_gates[t])
        xp.matmul(hidden[t], weight, out=part)
        xp.multiply(dh, stay[t], out=dh)
        xp.add(dh, part, out=dh)
    return gru_products(xp, d_gates)


def gru_products(xp: Any, d_gates: Any) -> tuple[Any, Any]:
    """The gradients of the products of the inputs and of the hidden state, from the gradients of its gates."""
    wide, size = flattened(d_gates, 3), d_gates.shape[-1]
    return xp.concatenate([wide[..., : 2 * size], wide[..., 3 * size :]], axis=-1), wide[..., : 3 * size]


def _simple_back(slope: Callable[[Any], Any]) -> Any:
    def run(xp: Any, coming: Any, grads: Sequence[Any], weight: Any, layer: _Layer, mask: Any) -> tuple[Any, Any]:
        (dh,) = grads
        factors, outside = masked(slope(layer.states[0, 1:]), mask), _outside(mask, len(coming))
        d_sums, part = xp.empty_like(coming), xp.empty_like(dh)
        for t in range(len(d_sums) - 1, -1, -1):
            xp.add(dh, coming[t], out=dh)
            xp.multiply(factors[t], dh, out=d_sums[t])
            _through(xp, d_sums[t], weight, dh, part, outside[t])
        return d_sums, d_sums

    return run


SLOPES: dict[str, Callable[[Any], Any]] = {"RNN_TANH": lambda h: 1 - h * h, "RNN_RELU": lambda h: (h > 0).astype(h.dtype)}
"""Activation -> its derivative, as a function of its result."""
BACKWARD = {"LSTM": _lstm_back, "GRU": _gru_back, **{mode: _simple_back(slope) for mode, slope in SLOPES.items()}}


# ------------------------------------------------------------------------------------------------------- whole networks
@kernel("rnn")
def rnn(
    xp: Any,
    rng: Any,
    Input: Any,
    PreState: Any,
    WeightList: Any,
    SequenceLength: Any,
    attrs: dict[str, Any],
    Out: Any,
    DropoutState: Any,
    State: Any,
    Reserve: Any,
) -> None:
    g = Geometry.of(attrs, attrs.get("mode", "LSTM"))
    steps, batch = Input.shape[:2]
    if Reserve is None:
        Reserve = xp.empty(g.reserve_size(steps, batch), Input.dtype)
    if drops(attrs):
        if DropoutState is None:
            DropoutState = xp.empty((steps, batch, (g.layers - 1) * g.width), "uint8")
        xp.greater_equal(rng().random(DropoutState.shape, dtype=xp.float32), attrs["dropout_prob"], out=DropoutState)
    elif DropoutState is not None:
        DropoutState.fill(1)
    network = _Network(xp, g, Input, WeightList, SequenceLength, Reserve, DropoutState, attrs)
    network.forward(PreState)
    if Out is not None:
        network.out_of(g.layers - 1, Out)
    for number, state in enumerate(State or ()):
        if state is not None:
            for index, layer in enumerate(network.layers):
                state[index * g.directions : (index + 1) * g.directions] = layer.states[number, -1]


@kernel("rnn_grad")
def rnn_grad(
    xp: Any,
    Input: Any,
    PreState: Any,
    WeightList: Any,
    SequenceLength: Any,
    DropoutState: Any,
    Reserve: Any,
    dOut: Any,
    dState: Any,
    attrs: dict[str, Any],
    dInput: Any,
    dPreState: Any,
    dWeightList: Any,
) -> None:
    g = Geometry.of(attrs, attrs.get("mode", "LSTM"))
    network = _Network(xp, g, Input, WeightList, SequenceLength, Reserve, DropoutState, attrs)
    network.backward(dOut, dState, dInput, dPreState or [None] * len(PreState), dWeightList or [None] * len(WeightList))


def _cut(attrs: dict[str, Any], W: Any) -> list[Any]:
    """The weights that lie one after the other in the W of `cudnn_lstm`."""
    shapes = Geometry.of(attrs, "LSTM").weight_shapes()
    starts = accumulate(map(prod, shapes), initial=0)
    return [W.reshape(-1)[start : start + prod(shape)].reshape(shape) for start, shape in zip(starts, shapes, strict=False)]


@kernel("cudnn_lstm")
def cudnn_lstm(
    xp: Any,
    rng: Any,
    Input: Any,
    InitH: Any,
    InitC: Any,
    W: Any,
    WeightList: Any,
    SequenceLength: Any,
    attrs: dict[str, Any],
    Reserve: Any,
    StateOut: Any,
    Out: Any,
    LastH: Any,
    LastC: Any,
) -> None:
    weights = WeightList if W is None else _cut(attrs, W)
    rnn(xp, rng, Input, (InitH, InitC), weights, SequenceLength, attrs, Out, StateOut, (LastH, LastC), Reserve)


@kernel("cudnn_lstm_grad")
def cudnn_lstm_grad(
    xp: Any,
    Input: Any,
    W: Any,
    WeightList: Any,
    SequenceLength: Any,
    StateOut: Any,
    Reserve: Any,
    dOut: Any,
    dLastH: Any,
    dLastC: Any,
    attrs: dict[str, Any],
    dInput: Any,
    dInitH: Any,
    dInitC: Any,
    dW: Any,
    dWeightList: Any,
) -> None:
    weights, d_weights = (
        parts if packed is None else _cut(attrs, packed) for packed, parts in ((W, WeightList), (dW, dWeightList))
    )
    states = SequenceLength, StateOut, Reserve, dOut, (dLastH, dLastC)
    rnn_grad(xp, Input, (None, None), weights, *states, attrs, dInput, (dInitH, dInitC), d_weights)


# --------------------------------------------------------------------------------------------------------- single steps
def activate(xp: Any, activation: str, x: Any, out: Any) -> Any:
    """`x` through an activation, into `out`."""
    if activation == "tanh":
        return xp.tanh(x, out=out)
    if activation == "sigmoid":
        for call in sigmoid_calls(xp, x, out):
            call()
        return out
    if activation == "relu":
        return xp.maximum(x, 0, out=out)
    xp.copyto(out, x)
    return out


def _slope(xp: Any, activation: str, y: Any) -> Any:
    """The derivative of an activation, from its result `y`."""
    if activation == "sigmoid":
        return y * (1 - y)
    if activation == "tanh":
        return 1 - y * y
    return (y > 0).astype(y.dtype) if activation == "relu" else xp.ones_like(y)


def _columns(x: Any, count: int) -> list[Any]:
    size = x.shape[1] // count
    return [x[:, n * size : (n + 1) * size] for n in range(count)]


def _gru_weights(weight: Any) -> tuple[Any, Any]:
    """Split the weights into those for the gates and for the candidate, which are consecutive."""
    size, flat = weight.shape[0], weight.reshape(-1)
    return flat[: 2 * size * size].reshape(size, 2 * size), flat[2 * size * size :].reshape(size, size)


def _gru_step(
    xp: Any,
    gates: Any,
    before: Any,
    w_gates: Any,
    w_candidate: Any,
    gate: str,
    activation: str,
    origin_mode: bool,
    reset: Any,
    out: Any,
) -> None:
    """Compute one step: `gates` holds the inputs and gets u, r and the candidate; `reset` gets ``r * before``."""
    size = before.shape[1]
    both, candidate = gates[:, : 2 * size], gates[:, 2 * size :]
    both += xp.matmul(before, w_gates)
    activate(xp, gate, both, both)
    candidate += xp.matmul(xp.multiply(both[:, size:], before, out=reset), w_candidate)
    activate(xp, activation, candidate, candidate)
    if out is not None:
        start, mixed = (candidate, before) if origin_mode else (before, candidate)
        xp.subtract(mixed, start, out=out)
        xp.multiply(out, both[:, :size], out=out)
        xp.add(out, start, out=out)


def _gru_factors(xp: Any, gates: Any, before: Any, gate: str, activation: str, origin_mode: bool) -> tuple[Any, Any]:
    """Factors of the backward step: from the gradient of the state to u and to the candidate, and from the gradient of
    ``r * before`` to r; and the share of the former state in the new one."""
    size = before.shape[1]
    update, _, candidate = _columns(gates, 3)
    share = 1 - update if origin_mode else update
    factors = xp.empty_like(gates)
    slope = _slope(xp, gate, gates[:, : 2 * size])
    difference = before - candidate if origin_mode else candidate - before
    xp.multiply(difference, slope[:, :size], out=factors[:, :size])
    xp.multiply(before, slope[:, size:], out=factors[:, size : 2 * size])
    xp.multiply(share, _slope(xp, activation, candidate), out=factors[:, 2 * size :])
    return factors, share


def _gru_step_back(
    xp: Any, grad: Any, factors: Any, stay: Any, reset: Any, w_gates: Any, w_candidate: Any, d_gates: Any, out: Any
) -> None:
    """Compute the gradients of a step's gates into `d_gates`, and of its former state into `out` (if wanted), from `grad`."""
    size = grad.shape[1]
    xp.multiply(grad, factors[:, :size], out=d_gates[:, :size])
    xp.multiply(grad, factors[:, 2 * size :], out=d_gates[:, 2 * size :])
    d_reset = xp.matmul(d_gates[:, 2 * size :], w_candidate.T)
    xp.multiply(d_reset, factors[:, size : 2 * size], out=d_gates[:, size : 2 * size])
    if out is not None:
        xp.multiply(grad, stay, out=out)
        out += d_reset * reset
        out += xp.matmul(d_gates[:, : 2 * size], w_gates.T)


def _gru_deliver(xp: Any, before: Any, reset: Any, d_gates: Any, d_weight: Any, d_bias: Any) -> None:
    """Compute the gradients of the parameters from the gradients of all gates."""
    size = before.shape[1]
    if d_bias is not None:
        xp.copyto(d_bias.reshape(-1), row_sum(xp, d_gates))
    if d_weight is not None:
        into_gates, into_candidate = _gru_weights(d_weight)
        multiply(xp, before.T, d_gates[:, : 2 * size], into_gates)
        multiply(xp, reset.T, d_gates[:, 2 * size :], into_candidate)


@kernel("gru_unit_grad")
def gru_unit_grad(
    xp: Any,
    HiddenPrev: Any,
    Weight: Any,
    Gate: Any,
    ResetHiddenPrev: Any,
    dHidden: Any,
    activation: int,
    gate_activation: int,
    origin_mode: bool,
    dInput: Any,
    dHiddenPrev: Any,
    dWeight: Any,
    dBias: Any,
) -> None:
    size = HiddenPrev.shape[1]
    names = ACTIVATIONS[gate_activation], ACTIVATIONS[activation]
    factors, share = _gru_factors(xp, Gate, HiddenPrev, *names, origin_mode)
    d_gates = dInput if dInput is not None else xp.empty_like(Gate)
    reset = Gate[:, size : 2 * size]
    _gru_step_back(xp, dHidden, factors, 1 - share, reset, *_gru_weights(Weight), d_gates, dHiddenPrev)
    _gru_deliver(xp, HiddenPrev, ResetHiddenPrev, d_gates, dWeight, dBias)


# ------------------------------------------------------------------------------------- over sequences of different lengths
class _PackedArrays:
    """Rows in the order of the steps: `PackedRows` with arrays of a namespace."""

    def __init__(self, xp: Any, lod: Lod, reverse: bool, where: str) -> None:
        order = packed_rows(tuple(checked_lod(lod, f"{where}: Input")[-1] or ()), reverse)
        self.xp, self.steps = xp, order.steps
        self.sequences, self.rows, self.before = (xp.asarray(part) for part in (order.sequences, order.rows, order.before))

    def first(self, state: Any, size: int, dtype: Any) -> Any:
        """The initial states in the order of the packed sequences; zeros for None."""
        return self.xp.zeros((len(self.sequences), size), dtype) if state is None else state[self.sequences]

    def previous(self, first: Any, packed: Any) -> Any:
        """For each packed row, the state before that step."""
        return self.xp.concatenate([first[: len(packed) - len(self.before)], packed[self.before]])

    def unpack(self, packed: Any, out: Any) -> None:
        if out is not None:
            out[self.rows] = packed

    def give(self, grad: Any, out: Any) -> None:
        """Store the gradient of the initial states, in the order of the sequences, if it is wanted."""
        if out is not None:
            out[self.sequences] = grad


def in_turn(
    steps: Sequence[tuple[int, int]],
    states: Sequence[Any],
    outputs: Sequence[Any],
    prepare: Callable[[], tuple[Callable[..., None], Sequence[Any]]],
    formula: StepFormula,
    backwards: bool = False,
) -> None:
    """Run the steps of packed sequences: ``step(states, inputs, outputs)``, with the rows of each step.

    Args:
        steps: the steps of a `_PackedArrays`.
        states: one row for each sequence. Backwards, they are zeros, and end as the states before the first step.
        outputs: packed rows.
        prepare: returns the step and the packed rows that it reads (None for absent ones). The step updates the states, and fills
            the outputs; it may also run on padding rows, where all inputs are 0.
        formula: the same step as a formula, with inputs of its own.
        backwards: from the last step to the first; then the step must leave states of 0 unchanged if all inputs are 0.
    """
    step, inputs = prepare()
    for start, count in reversed(steps) if backwards else steps:
        here = slice(start, start + count)
        of_step = ([None if rows is None else rows[here] for rows in rows_of_all] for rows_of_all in (inputs, outputs))
        step([state[:count] for state in states], *of_step)


# The steps below as formulas.
def _biased(x: Any, bias: Any) -> Any:
    return x if bias is None else x + bias


def _step_key(attrs: Mapping[str, Any]) -> Hashable:
    """The attributes that a step depends on."""
    return tuple([(name, value) for name, value in sorted(attrs.items()) if name.endswith(("activation", "clip"))])


def _lstm_formula(attrs: Mapping[str, Any], f: Any, parameters: Any, states: Any, inputs: Any) -> tuple[list[Any], list[Any]]:
    weight, *peepholes, projection, bias = parameters
    weights = weight, None if peepholes[0] is None else peepholes, projection
    after, gates, active, hidden = lstm_step(f, _biased(inputs[0], bias), states, weights, attrs)
    return after, [f.concat(gates, axis=1), after[1], active, hidden, *after[: projection is not None]]


def _lstm_grad_formula(
    attrs: Mapping[str, Any], f: Any, parameters: Any, states: Any, inputs: Any
) -> tuple[list[Any], list[Any]]:
    (weight, *peepholes, projection), (d_handed, d_cell) = parameters, states
    coming, coming_cell, gates, active, before, cell, handed = inputs
    (g, i, forget, o), gate = f.split(gates, num=4, axis=1), attrs["gate_activation"]
    d_handed = d_hidden = d_handed + coming
    outputs = []
    if projection is not None:
        d_projected = _within(f, handed, attrs["proj_clip"], activation_gradient(f, attrs["proj_activation"], handed, d_handed))
        outputs, d_hidden = [d_projected], f.matmul_v2(d_projected, projection, trans_y=True)
    if coming_cell is not None:
        d_cell = d_cell + coming_cell
    d_output = activation_gradient(f, gate, o, d_hidden * active)
    d_cell = d_cell + activation_gradient(f, attrs["cell_activation"], active, d_hidden * o)
    if peepholes[2] is not None:
        d_cell = d_cell + d_output * peepholes[2]
    d_cell = _within(f, cell, attrs.get("cell_clip", 0.0), d_cell)
    d_input, d_forget = activation_gradient(f, gate, i, d_cell * g), activation_gradient(f, gate, forget, d_cell * before)
    d_gates = f.concat(
        [activation_gradient(f, attrs["candidate_activation"], g, d_cell * i), d_input, d_forget, d_output], axis=1
    )
    d_before = d_cell * forget
    if peepholes[0] is not None:
        d_before = d_before + d_input * peepholes[0] + d_forget * peepholes[1]
    return [f.matmul_v2(d_gates, weight, trans_y=True), d_before], [d_gates, *outputs]


def _within(f: Any, value: Any, limit: float, grad: Any) -> Any:
    """The gradient through a value that was clipped to a limit."""
    return f.where(f.abs(value) < limit, grad, f.fill_zeros_like(grad)) if limit > 0 else grad


def _gru_formula(key: tuple[str, str, bool], f: Any, parameters: Any, states: Any, inputs: Any) -> tuple[list[Any], list[Any]]:
    *weights, bias = parameters
    gates, reset, after = gru_step(f, _biased(inputs[0], bias), states[0], weights, *key)
    return [after], [f.concat(gates, axis=1), reset, after]


def _gru_grad_formula(
    key: tuple[str, str, bool], f: Any, parameters: Any, states: Any, inputs: Any
) -> tuple[list[Any], list[Any]]:
    coming, gates, before = inputs
    *d_gates, d_before = gru_step_gradient(f, states[0] + coming, gates, before, parameters, *key)
    return [d_before], [f.concat(d_gates, axis=1)]


def _name(activation: str) -> str:
    return "" if activation == "identity" else activation


def _into(xp: Any, shape: tuple[int, ...], out: Any, like: Any) -> Any:
    return xp.empty(shape, like.dtype) if out is None else out


def _peepholes(Bias: Any, size: int, attrs: dict[str, Any]) -> Any:
    return Bias.reshape(-1)[4 * size :].reshape(3, size) if attrs["use_peepholes"] else None


@kernel("lstmp")
def dynamic_lstmp(
    xp: Any,
    Input: Any,
    Input_lod: Lod,
    H0: Any,
    C0: Any,
    Weight: Any,
    ProjWeight: Any,
    Bias: Any,
    attrs: dict[str, Any],
    Projection: Any,
    Cell: Any,
    BatchGate: Any,
    BatchCellPreAct: Any,
    BatchHidden: Any,
) -> None:
    packed = _PackedArrays(xp, Input_lod, attrs["is_reverse"], "lstm")
    size, rows = Weight.shape[1] // 4, len(Input)
    peepholes = _peepholes(Bias, size, attrs)
    gate, candidate, activation = (_name(attrs[name + "_activation"]) for name in ("gate", "candidate", "cell"))
    cell_clip, proj_clip = attrs.get("cell_clip", 0.0), attrs.get("proj_clip", 0.0)
    coming, bias = Input[packed.rows], Bias.reshape(-1)[: 4 * size]
    gates = _into(xp, (rows, 4 * size), BatchGate, Input)
    active = _into(xp, (rows, size), BatchCellPreAct, Input)
    hidden = _into(xp, (rows, size), BatchHidden, Input)
    handed = hidden if ProjWeight is None else xp.empty((rows, Weight.shape[0]), Input.dtype)
    cells = xp.empty((rows, size), Input.dtype)
    states = packed.first(H0, Weight.shape[0], Input.dtype), packed.first(C0, size, Input.dtype)
    project = ProjWeight is not None

    def step(states: Any, inputs: Any, outputs: Any) -> None:
        h, before = states
        now, c, active, hidden, *projected = outputs
        xp.add(inputs[0], bias, out=now)
        now += h @ Weight
        both, out = now[:, size : 3 * size], now[:, 3 * size :]
        if peepholes is not None:
            both[:, :size] += before * peepholes[0]
            both[:, size:] += before * peepholes[1]
        activate(xp, candidate, now[:, :size], now[:, :size])
        activate(xp, gate, both, both)
        xp.multiply(both[:, size:], before, out=c)
        c += xp.multiply(both[:, :size], now[:, :size], out=active)
        if cell_clip > 0:
            xp.clip(c, -cell_clip, cell_clip, out=c)
        if peepholes is not None:
            out += c * peepholes[2]
        activate(xp, gate, out, out)
        xp.multiply(activate(xp, activation, c, active), out, out=hidden)
        xp.copyto(before, c)
        if not project:
            xp.copyto(h, hidden)
            return
        activate(xp, _name(attrs["proj_activation"]), xp.matmul(hidden, ProjWeight, out=h), h)
        if proj_clip > 0:
            xp.clip(h, -proj_clip, proj_clip, out=h)
        xp.copyto(projected[0], h)

    outputs = [gates, cells, active, hidden, *[handed] * project]
    weights = [Weight, *([None] * 3 if peepholes is None else peepholes), ProjWeight, bias]
    formula = StepFormula(("lstmp", _step_key(attrs)), weights, [coming], partial(_lstm_formula, attrs))
    loops_of(xp).in_turn(packed.steps, states, outputs, lambda: (step, [coming]), formula)
    packed.unpack(handed, Projection)
    packed.unpack(cells, Cell)


@kernel("lstm")
def dynamic_lstm(
    xp: Any,
    Input: Any,
    Input_lod: Lod,
    H0: Any,
    C0: Any,
    Weight: Any,
    Bias: Any,
    attrs: dict[str, Any],
    Hidden: Any,
    Cell: Any,
    BatchGate: Any,
    BatchCellPreAct: Any,
) -> None:
    intermediates = (BatchGate, BatchCellPreAct, None)
    dynamic_lstmp(xp, Input, Input_lod, H0, C0, Weight, None, Bias, attrs, Hidden, Cell, *intermediates)


def _lstm_step_back(
    xp: Any, values: Sequence[Any], Weight: Any, peepholes: Any, ProjWeight: Any, attrs: dict[str, Any]
) -> tuple[Callable[..., None], Sequence[Any]]:
    """Prepare a step of the gradient: it computes a few products, whose factors are computed here for all steps at once."""
    coming, coming_cell, gates, active, before, cells, handed = values
    gate, candidate, activation = (_name(attrs[name + "_activation"]) for name in ("gate", "candidate", "cell"))
    cell_clip, proj_clip = attrs.get("cell_clip", 0.0), attrs.get("proj_clip", 0.0)
    g, i, f, o = _columns(gates, 4)
    size = active.shape[1]
    factors = xp.empty_like(gates)  # for g, i and f, of the cell's gradient; for o, of the state's gradient
    xp.multiply(i, _slope(xp, candidate, g), out=factors[:, :size])
    xp.multiply(g, _slope(xp, gate, i), out=factors[:, size : 2 * size])
    xp.multiply(before, _slope(xp, gate, f), out=factors[:, 2 * size : 3 * size])
    xp.multiply(active, _slope(xp, gate, o), out=factors[:, 3 * size :])
    to_cell, to_before = o * _slope(xp, activation, active), f.copy()
    if peepholes is not None:
        to_cell += factors[:, 3 * size :] * peepholes[2]
        to_before += factors[:, size : 2 * size] * peepholes[0] + factors[:, 2 * size : 3 * size] * peepholes[1]
    free = abs(cells) < cell_clip if cell_clip > 0 else None
    projected = None
    if ProjWeight is not None:
        projected = _slope(xp, _name(attrs["proj_activation"]), handed)
        if proj_clip > 0:
            projected *= abs(handed) < proj_clip

    def step(states: Any, inputs: Any, outputs: Any) -> None:
        d_state, d_cell = states
        coming, coming_cell, projected, to_cell, free, factors, to_before = inputs
        now, *d_projected = outputs
        d_state += coming
        d_hidden = d_state if projected is None else xp.multiply(d_state, projected, out=d_projected[0]) @ ProjWeight.T
        if coming_cell is not None:
            d_cell += coming_cell
        d_cell += d_hidden * to_cell
        if free is not None:
            d_cell *= free
        by_cell = now[:, : 3 * size].reshape(len(now), 3, size)
        xp.multiply(factors[:, : 3 * size].reshape(by_cell.shape), d_cell[:, None], out=by_cell)
        xp.multiply(factors[:, 3 * size :], d_hidden, out=now[:, 3 * size :])
        d_cell *= to_before
        xp.matmul(now, Weight.T, out=d_state)

    return step, [coming, coming_cell, projected, to_cell, free, factors, to_before]


@kernel("lstmp_grad")
def dynamic_lstmp_grad(
    xp: Any,
    Input: Any,
    Input_lod: Lod,
    H0: Any,
    C0: Any,
    Weight: Any,
    ProjWeight: Any,
    Bias: Any,
    Projection: Any,
    Cell: Any,
    BatchGate: Any,
    BatchCellPreAct: Any,
    BatchHidden: Any,
    dProjection: Any,
    dCell: Any,
    attrs: dict[str, Any],
    dInput: Any,
    dH0: Any,
    dC0: Any,
    dWeight: Any,
    dProjWeight: Any,
    dBias: Any,
) -> None:
    packed = _PackedArrays(xp, Input_lod, attrs["is_reverse"], "lstm")
    size = Weight.shape[1] // 4
    peepholes = _peepholes(Bias, size, attrs)
    first_h, first_c = packed.first(H0, Weight.shape[0], Input.dtype), packed.first(C0, size, Input.dtype)
    cells, handed = Cell[packed.rows], Projection[packed.rows]
    before = packed.previous(first_c, cells)
    coming = dProjection[packed.rows]
    coming_cell = None if dCell is None else dCell[packed.rows]
    states, d_gates = (xp.zeros_like(first_h), xp.zeros_like(first_c)), xp.empty_like(BatchGate)
    outputs = [d_gates] if ProjWeight is None else [d_gates, xp.empty_like(handed)]
    values = coming, coming_cell, BatchGate, BatchCellPreAct, before, cells, handed
    parameters = [Weight, *([None] * 3 if peepholes is None else peepholes), ProjWeight]
    formula = StepFormula(("lstmp_grad", _step_key(attrs)), parameters, values, partial(_lstm_grad_formula, attrs))
    prepare = partial(_lstm_step_back, xp, values, Weight, peepholes, ProjWeight, attrs)
    loops_of(xp).in_turn(packed.steps, states, outputs, prepare, formula, backwards=True)
    dh, dc = states
    packed.unpack(d_gates, dInput)
    packed.give(dh, dH0)
    packed.give(dc, dC0)
    if dWeight is not None:
        multiply(xp, packed.previous(first_h, handed).T, d_gates, dWeight)
    if dProjWeight is not None:
        multiply(xp, BatchHidden.T, outputs[1], dProjWeight)
    if dBias is not None:
        parts = [row_sum(xp, d_gates)]
        if peepholes is not None:
            of_gates = ((1, before), (2, before), (3, cells))
            parts += [row_sum(xp, d_gates[:, n * size : (n + 1) * size] * c) for n, c in of_gates]
        xp.copyto(dBias, xp.concatenate(parts).reshape(dBias.shape))


@kernel("lstm_grad")
def dynamic_lstm_grad(
    xp: Any,
    Input: Any,
    Input_lod: Lod,
    H0: Any,
    C0: Any,
    Weight: Any,
    Bias: Any,
    Hidden: Any,
    Cell: Any,
    BatchGate: Any,
    BatchCellPreAct: Any,
    dHidden: Any,
    dCell: Any,
    attrs: dict[str, Any],
    dInput: Any,
    dH0: Any,
    dC0: Any,
    dWeight: Any,
    dBias: Any,
) -> None:
    inputs = (Input, Input_lod, H0, C0, Weight, None, Bias, Hidden, Cell, BatchGate, BatchCellPreAct, None, dHidden, dCell)
    dynamic_lstmp_grad(xp, *inputs, attrs, dInput, dH0, dC0, dWeight, None, dBias)


@kernel("gru")
def dynamic_gru(
    xp: Any,
    Input: Any,
    Input_lod: Lod,
    H0: Any,
    Weight: Any,
    Bias: Any,
    attrs: dict[str, Any],
    BatchGate: Any,
    BatchResetHiddenPrev: Any,
    BatchHidden: Any,
    Hidden: Any,
) -> None:
    packed = _PackedArrays(xp, Input_lod, attrs["is_reverse"], "gru")
    size, rows = Weight.shape[0], len(Input)
    w_gates, w_candidate = _gru_weights(Weight)
    gate, activation = _name(attrs["gate_activation"]), _name(attrs["activation"])
    coming, bias = Input[packed.rows], None if Bias is None else Bias.reshape(-1)
    gates = _into(xp, (rows, 3 * size), BatchGate, Input)
    resets = _into(xp, (rows, size), BatchResetHiddenPrev, Input)
    hidden = _into(xp, (rows, size), BatchHidden, Input)

    def step(states: Any, inputs: Any, outputs: Any) -> None:
        (h,), (now, reset, after) = states, outputs
        xp.copyto(now, inputs[0]) if bias is None else xp.add(inputs[0], bias, out=now)
        _gru_step(xp, now, h, w_gates, w_candidate, gate, activation, attrs["origin_mode"], reset, after)
        xp.copyto(h, after)

    states = [packed.first(H0, size, Input.dtype)]
    key = gate, activation, attrs["origin_mode"]
    formula = StepFormula(("gru", key), [w_gates, w_candidate, bias], [coming], partial(_gru_formula, key))
    loops_of(xp).in_turn(packed.steps, states, [gates, resets, hidden], lambda: (step, [coming]), formula)
    packed.unpack(hidden, Hidden)


@kernel("gru_grad")
def dynamic_gru_grad(
    xp: Any,
    Input: Any,
    Input_lod: Lod,
    H0: Any,
    Weight: Any,
    BatchGate: Any,
    BatchResetHiddenPrev: Any,
    BatchHidden: Any,
    dHidden: Any,
    attrs: dict[str, Any],
    dInput: Any,
    dH0: Any,
    dWeight: Any,
    dBias: Any,
) -> None:
    packed = _PackedArrays(xp, Input_lod, attrs["is_reverse"], "gru")
    size = Weight.shape[0]
    w_gates, w_candidate = _gru_weights(Weight)
    before = packed.previous(packed.first(H0, size, Input.dtype), BatchHidden)
    key = _name(attrs["gate_activation"]), _name(attrs["activation"]), attrs["origin_mode"]
    coming, d_gates = dHidden[packed.rows], xp.empty_like(BatchGate)
    dh = xp.zeros((len(packed.sequences), size), Input.dtype)

    def prepare() -> tuple[Callable[..., None], Sequence[Any]]:
        factors, share = _gru_factors(xp, BatchGate, before, *key)
        return step, [coming, factors, 1 - share, BatchGate[:, size : 2 * size]]

    def step(states: Any, inputs: Any, outputs: Any) -> None:
        (grad,), (now,) = states, outputs
        coming, factors, stay, reset = inputs
        grad += coming
        _gru_step_back(xp, grad, factors, stay, reset, w_gates, w_candidate, now, grad)

    formula = StepFormula(("gru_grad", key), [w_gates, w_candidate], [coming, BatchGate, before], partial(_gru_grad_formula, key))
    loops_of(xp).in_turn(packed.steps, [dh], [d_gates], prepare, formula, backwards=True)
    _gru_deliver(xp, before, BatchResetHiddenPrev, d_gates, dWeight, dBias)
    packed.unpack(d_gates, dInput)
    packed.give(dh, dH0)
