"""Recurrent networks: over padded sequences, over sequences of a LoD, and single steps of a cell.

The gradients of most of these ops are not short formulas. They have a decomposition into ordinary ops (with a recurrence over
time), and kernels for the op and its gradient.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from math import prod
from typing import Any

from ..errors import InferenceError
from ..ir.scan import scan
from ..opdef.composition import means
from ..opdef.registry import ShapeOnly, at_most, define, least
from ..values.spec import Spec
from ..values.types import VarType
from .sequence import offsets_of
from .shapes import fits, may_equal

ACTIVATIONS = ("", "sigmoid", "tanh", "relu")
"""The activations by their numbers in `gru_unit`; the first means none."""
_END = 2**31 - 1
_MOST_LAYERS = 256
"""The most layers of a network; inference and gradients do work for each of them, which no input bounds."""


@dataclass(frozen=True)
class RnnMode:
    """A type of recurrent network, in numbers of blocks of the size of the hidden state.

    Attributes:
        gates: blocks of rows in the weights.
        saved: blocks that a step saves for the gradient besides the states.
        states: states of a cell: 2 if it has more than the hidden state.
        splits_gates: the last gate has a gradient for the hidden state's part and another one for the input's part.
    """

    gates: int
    saved: int
    states: int = 1
    splits_gates: bool = False


MODES = {"LSTM": RnnMode(4, 4, 2), "GRU": RnnMode(3, 4, splits_gates=True), "RNN_TANH": RnnMode(1, 0), "RNN_RELU": RnnMode(1, 0)}


@dataclass(frozen=True)
class Geometry:
    """The sizes of a recurrent network."""

    mode: str
    layers: int
    directions: int
    features: int
    hidden: int

    @staticmethod
    def of(attrs: Mapping[str, Any], mode: str) -> Geometry:
        return Geometry(mode, attrs["num_layers"], 1 + attrs["is_bidirec"], attrs["input_size"], attrs["hidden_size"])

    @property
    def width(self) -> int:
        """The number of output features of a layer."""
        return self.directions * self.hidden

    @property
    def passes(self) -> int:
        """The number of directions of all layers."""
        return self.layers * self.directions

    def weight_shapes(self) -> list[tuple[int, ...]]:
        """For all layers and directions, the weights of the input and of the hidden state; then their biases."""
        rows = MODES[self.mode].gates * self.hidden
        shapes: list[tuple[int, ...]] = []
        for layer in range(self.layers):
            shapes += [(rows, self.features if layer == 0 else self.width), (rows, self.hidden)] * self.directions
        return shapes + [(rows,)] * (2 * self.passes)

    def reserve_size(self, steps: int, batch: int) -> int:
        """The number of elements kept for the gradient: for each layer, what its steps keep, and all states."""
        mode = MODES[self.mode]
        return self.layers * self.width * batch * (mode.saved * steps + mode.states * (steps + 1))


def drops(attrs: Mapping[str, Any]) -> bool:
    """Whether there is dropout between the layers."""
    return bool(attrs["dropout_prob"]) and not attrs["is_test"] and attrs["num_layers"] > 1


# ------------------------------------------------------------------------------------------------------- whole networks
def _infer_network(
    op_type: str,
    g: Geometry,
    Input: Spec,
    states: Sequence[Spec],
    weights: Sequence[Spec],
    SequenceLength: Spec | None,
    dropout_prob: float,
) -> tuple[Spec, list[Spec], Spec, Spec]:
    """Specs of the output, of the last states, of the dropout mask, and of the values saved for the gradient."""
    if not 0 <= dropout_prob < 1:
        raise InferenceError(f"{op_type}: dropout_prob {dropout_prob} should be in [0, 1)")
    if Input.ndim != 3:
        raise InferenceError(f"{op_type}: Input should be [time, batch, features], not {Input}")
    steps, batch, features = Input.shape
    if not fits(features, g.features):
        raise InferenceError(f"{op_type}: Input {Input} has {features} features, but input_size is {g.features}")
    count = MODES[g.mode].states
    if len(states) != count:
        raise InferenceError(f"{op_type}: mode {g.mode} has {count} states before the first step, not {len(states)}")
    for state in states:
        if not may_equal(state.shape, (g.passes, batch, g.hidden)):
            raise InferenceError(
                f"{op_type}: a state before the first step should be [num_layers * directions, batch, hidden_size], here "
                f"{[g.passes, batch, g.hidden]}, not {state}"
            )
        batch = max(batch, state.shape[1])
    shapes = g.weight_shapes()
    if weights and len(weights) != len(shapes):
        raise InferenceError(f"{op_type}: {g.passes} passes over the input have {len(shapes)} weights, not {len(weights)}")
    for index, (weight, shape) in enumerate(zip(weights, shapes, strict=False)):
        if not may_equal(weight.shape, shape):
            raise InferenceError(f"{op_type}: weight {index} should be {list(shape)}, not {weight}")
    if SequenceLength is not None and not may_equal(SequenceLength.shape, (batch,)):
        text = f"SequenceLength should have one length for each of {batch} sequences, not be {SequenceLength}"
        raise InferenceError(f"{op_type}: {text}")
    unknown = -1 in (steps, batch)
    return (
        Input.with_shape((steps, batch, g.width)),
        [Input.with_shape((g.passes, batch, g.hidden))] * count,
        Spec((steps, batch, (g.layers - 1) * g.width), VarType.UINT8),
        Input.with_shape((-1 if unknown else g.reserve_size(steps, batch),)),
    )


def _lstm(f: Any, x: Any, h: Any, states: Sequence[Any], sigmoid: Any) -> tuple[list[Any], list[Any]]:
    i, forget, g, o = f.split(x + h, num=4, axis=-1)
    i, forget, g, o = sigmoid(i), sigmoid(forget), f.tanh(g), sigmoid(o)
    cell = forget * states[1] + i * g
    return [i, forget, g, o], [o * f.tanh(cell), cell]


def _gru(f: Any, x: Any, h: Any, states: Sequence[Any], sigmoid: Any) -> tuple[list[Any], list[Any]]:
    (x_r, x_z, x_n), (h_r, h_z, h_n) = f.split(x, num=3, axis=-1), f.split(h, num=3, axis=-1)
    r, z = sigmoid(x_r + h_r), sigmoid(x_z + h_z)
    new = f.tanh(x_n + r * h_n)
    return [r, z, new, h_n], [new + z * (states[0] - new)]


CELLS: dict[str, Callable[..., tuple[list[Any], list[Any]]]] = {
    "LSTM": _lstm,
    "GRU": _gru,
    "RNN_TANH": lambda f, x, h, states, sigmoid: ([], [f.tanh(x + h)]),
    "RNN_RELU": lambda f, x, h, states, sigmoid: ([], [f.relu(x + h)]),
}
"""Mode -> a step, ``(f, x, h, states, sigmoid)``: the values that its gradient reads, and the states after it. The arguments of
its gates are sums of a part `x` of the input and a part `h` of the hidden state, biases included."""


def _lstm_back(f: Any, grads: Any, gates: Any, before: Any, after: Any) -> tuple[list[Any], list[Any]]:
    (dh, dc), (i, forget, candidate, o), cell = grads, gates, f.tanh(after[1])
    dc = dc + activation_gradient(f, "tanh", cell, dh * o)
    d_gates = [
        activation_gradient(f, "sigmoid", i, dc * candidate),
        activation_gradient(f, "sigmoid", forget, dc * before[1]),
        activation_gradient(f, "tanh", candidate, dc * i),
        activation_gradient(f, "sigmoid", o, dh * cell),
    ]
    return d_gates, [None, dc * forget]


def _gru_back(f: Any, grads: Any, gates: Any, before: Any, after: Any) -> tuple[list[Any], list[Any]]:
    (dh,), (r, z, new, of_h) = grads, gates
    d_new = activation_gradient(f, "tanh", new, dh * (1.0 - z))
    d_r = activation_gradient(f, "sigmoid", r, d_new * of_h)
    d_z = activation_gradient(f, "sigmoid", z, dh * (before[0] - new))
    return [d_r, d_z, d_new * r, d_new], [dh * z]


def _simple_back(activation: str, f: Any, grads: Any, gates: Any, before: Any, after: Any) -> tuple[list[Any], list[Any]]:
    return [activation_gradient(f, activation, after[0], grads[0])], [None]


CELL_GRADIENTS: dict[str, Callable[..., tuple[list[Any], list[Any]]]] = {
    "LSTM": _lstm_back,
    "GRU": _gru_back,
    "RNN_TANH": partial(_simple_back, "tanh"),
    "RNN_RELU": partial(_simple_back, "relu"),
}
"""Mode -> the gradients of a step, ``(f, grads, gates, before, after)``: of the gates' arguments, the product of the hidden state
first; and of the states before the step, without the part through that product (None for none). `gates` are the values that the
step of `CELLS` saves; `before` and `after` are the states."""


def step_mask(f: Any, Input: Any, SequenceLength: Any) -> Any:
    """1 where a step belongs to the sequence, 0 after its end: ``[time, batch, 1]``."""
    number = f.cumsum(f.fill_any_like(f.slice(Input, axes=[2], starts=[0], ends=[1]), value=1.0), axis=0)
    lengths = f.reshape2(f.cast(SequenceLength, in_dtype=int(SequenceLength.dtype), out_dtype=int(Input.dtype)), shape=[-1, 1])
    return f.less_equal(number, lengths).astype(Input.dtype)


def _network(
    f: Any, g: Geometry, Input: Any, states: Sequence[Any], weights: Sequence[Any], lengths: Any, dropped: Any, scale: float
) -> tuple[Any, list[Any]]:
    """The output and the last states, in ordinary ops; `dropped` is the mask of dropout between layers, 0 where it dropped."""
    cell = CELLS[g.mode]
    masks = [] if lengths is None else [step_mask(f, Input, lengths)]
    dropout_masks = []
    if dropped is not None:
        dropout_masks = f.split(f.scale(dropped.astype(Input.dtype), scale=scale), num=g.layers - 1, axis=2)
    last: list[list[Any]] = [[] for _ in states]
    x = Input
    for layer in range(g.layers):
        if layer and dropout_masks:
            x = x * dropout_masks[layer - 1]
        outs = []
        for number in range(layer * g.directions, (layer + 1) * g.directions):
            (w_x, w_h), (b_x, b_h) = weights[2 * number :][:2], weights[2 * (g.passes + number) :][:2]

            def step(f: Any, before: list[Any], slices: list[Any], w_h: Any = w_h, b_h: Any = b_h) -> tuple[list[Any], list[Any]]:
                _, after = cell(f, slices[0], f.matmul_v2(before[0], w_h, trans_y=True) + b_h, before, f.sigmoid)
                out = after[0]
                for mask in slices[1:]:
                    out = out * mask
                    after = [old + (new - old) * mask for old, new in zip(before, after, strict=True)]
                return after, [out, *after]

            reverse = number % g.directions == 1
            first = [f.slice(state, axes=[0], starts=[number], ends=[number + 1], decrease_axis=[0]) for state in states]
            out, *sequences = scan(step, first, [f.matmul_v2(x, w_x, trans_y=True) + b_x, *masks], reverse)
            outs.append(out)
            for parts, sequence in zip(last, sequences, strict=True):
                parts.append(f.slice(sequence, axes=[0], starts=[0 if reverse else -1], ends=[1 if reverse else _END]))
        x = outs[0] if g.directions == 1 else f.concat(outs, axis=2)
    return x, [f.concat(parts, axis=0) for parts in last]


def _infer_rnn(
    Input: Spec, PreState: list[Spec], WeightList: list[Spec], SequenceLength: Spec | None, attrs: dict[str, Any]
) -> dict[str, Any]:
    if attrs["mode"] not in MODES:
        raise InferenceError(f"rnn: mode should be one of {', '.join(MODES)}, not {attrs['mode']!r}")
    g = Geometry.of(attrs, attrs["mode"])
    specs = _infer_network("rnn", g, Input, PreState, WeightList, SequenceLength, attrs["dropout_prob"])
    return dict(zip(("Out", "State", "DropoutState", "Reserve"), specs, strict=True))


def _rnn_decomposed(f: Any, values: Mapping[str, Any], attrs: Mapping[str, Any]) -> dict[str, Any]:
    dropped = values["DropoutState"] if drops(attrs) else None
    scale = 1.0 / (1.0 - attrs["dropout_prob"]) if dropped is not None else 1.0
    inputs = values["Input"], values["PreState"], values["WeightList"], values.get("SequenceLength")
    out, states = _network(f, Geometry.of(attrs, attrs["mode"]), *inputs, dropped, scale)
    return {"Out": out, "State": states}


@define(
    "rnn(Input: float, PreState*, WeightList*, SequenceLength?: int) -> Out, DropoutState, State*, Reserve~",
    infer=_infer_rnn,
    wrt=("Input", "PreState", "WeightList"),
    decomposition=_rnn_decomposed,
    dropout_prob=0.0,
    is_bidirec=False,
    input_size=10,
    hidden_size=least(1, 100),
    num_layers=at_most(_MOST_LAYERS, least(1, 1)),
    mode="RNN_TANH",
    seed=0,
    is_test=False,
)
def rnn(f, Input, PreState, WeightList, SequenceLength, Out: ShapeOnly, DropoutState, Reserve, dOut, dState):  # type: ignore[no-untyped-def]
    """Layers of recurrent networks over ``Input [time, batch, input_size]``, ``Out [time, batch, directions * hidden_size]``.

    `mode` is LSTM (states h and c; gates i, f, candidate, o), GRU (gates r, z, candidate; ``h = z h + (1 - z) n`` where ``n =
    tanh(x_n + r h_n)``), RNN_TANH or RNN_RELU. Each of PreState and State is ``[num_layers * directions, batch, hidden_size]``.
    WeightList has, for each layer and direction, the weights of the input, ``[gates * hidden_size, features]``, and of the hidden
    state, ``[gates * hidden_size, hidden_size]``; then, in the same order, their biases. Past the end of a sequence, given by
    SequenceLength (int32 or int64, ``[batch]``), Out is 0 and the states do not change. Unless `is_test`, there is dropout
    between layers with probability `dropout_prob`, which scales kept elements up; DropoutState (uint8) is 0 where it dropped.
    """


# ----------------------------------------------------------------------------------------------------------- cudnn_lstm
def _infer_cudnn_lstm(
    Input: Spec,
    InitH: Spec,
    InitC: Spec,
    W: Spec | None,
    WeightList: list[Spec] | None,
    SequenceLength: Spec | None,
    attrs: dict[str, Any],
) -> dict[str, Any]:
    g = Geometry.of(attrs, "LSTM")
    if (W is None) == (not WeightList):
        raise InferenceError("cudnn_lstm: give either all weights in one tensor, W, or a WeightList")
    size = sum(prod(shape) for shape in g.weight_shapes())
    if W is not None and not fits(W.size, size):
        raise InferenceError(f"cudnn_lstm: W should have {size} elements, not be {W}")
    states, weights = (InitH, InitC), WeightList or ()
    specs = _infer_network("cudnn_lstm", g, Input, states, weights, SequenceLength, attrs["dropout_prob"])
    out, (h, c), state, reserve = specs
    return {"Out": out, "LastH": h, "LastC": c, "StateOut": state, "Reserve": reserve}


def _cudnn_lstm_decomposed(f: Any, values: Mapping[str, Any], attrs: Mapping[str, Any]) -> dict[str, Any]:
    g = Geometry.of(attrs, "LSTM")
    weights = values.get("WeightList")
    if not weights:
        flat, start, weights = f.reshape2(values["W"], shape=[-1]), 0, []
        for shape in g.weight_shapes():
            part = f.slice(flat, axes=[0], starts=[start], ends=[start + prod(shape)])
            weights.append(f.reshape2(part, shape=list(shape)))
            start += prod(shape)
    dropped = values["StateOut"] if drops(attrs) else None
    states = [values["InitH"], values["InitC"]]
    scale = 1.0 / (1.0 - attrs["dropout_prob"]) if dropped is not None else 1.0
    out, (h, c) = _network(f, g, values["Input"], states, weights, values.get("SequenceLength"), dropped, scale)
    return {"Out": out, "LastH": h, "LastC": c}


@define(
    "cudnn_lstm(Input: float, InitH, InitC, W?, WeightList*?, SequenceLength?: int) -> Reserve~, StateOut, Out, LastH, LastC",
    infer=_infer_cudnn_lstm,
    wrt=("Input", "InitH", "InitC", "W", "WeightList"),
    decomposition=_cudnn_lstm_decomposed,
    dropout_prob=0.0,
    is_bidirec=False,
    input_size=10,
    hidden_size=least(1, 100),
    num_layers=at_most(_MOST_LAYERS, least(1, 1)),
    is_test=False,
    seed=0,
)
def cudnn_lstm(  # type: ignore[no-untyped-def]
    f, Input, InitH, InitC, W, WeightList, SequenceLength, Out: ShapeOnly, StateOut, Reserve, dOut, dLastH, dLastC
):
    """Layers of LSTMs, as `rnn` with the mode LSTM; StateOut is its DropoutState.

    The weights are in WeightList, or all in W: flattened and joined in WeightList's order.
    """


# --------------------------------------------------------------------------------------------------------- single steps
def _infer_lstm_unit(X: Spec, C_prev: Spec) -> tuple[Spec, Spec]:
    if X.ndim != 2 or C_prev.ndim != 2 or (-1 not in (X.shape[1], C_prev.shape[1]) and X.shape[1] != 4 * C_prev.shape[1]):
        raise InferenceError(f"lstm_unit: X should be [batch, 4 * size] for C_prev [batch, size], not {X} for {C_prev}")
    if not fits(X.shape[0], C_prev.shape[0]):
        raise InferenceError(f"lstm_unit: X {X} and C_prev {C_prev} differ in their first dimension")
    size = max(C_prev.shape[1], X.shape[1] // 4 if X.shape[1] > 0 else -1)
    state = C_prev.with_shape((max(X.shape[0], C_prev.shape[0]), size))
    return state, state


def _lstm_unit_formula(f: Any, X: Any, C_prev: Any, forget_bias: float) -> dict[str, Any]:
    x_i, x_f, x_o, x_g = f.split(X, num=4, axis=1)
    cell = f.sigmoid(x_f + forget_bias) * C_prev + f.sigmoid(x_i) * f.tanh(x_g)
    return {"C": cell, "H": f.sigmoid(x_o) * f.tanh(cell)}


@define(
    "lstm_unit(X: float, C_prev: float) -> C, H",
    infer=_infer_lstm_unit,
    forget_bias=0.0,
    meaning=means(_lstm_unit_formula),
)
def lstm_unit(f: Any, X: Any, C_prev: Any, C: Any, dC: Any, dH: Any, forget_bias: float) -> Any:
    """One step of an LSTM: ``C = sigmoid(X_f + forget_bias) C_prev + sigmoid(X_i) tanh(X_g)``, ``H = sigmoid(X_o) tanh(C)``.

    The columns of X belong to i, f, o and g.
    """

    def tanh_slope(x: Any) -> Any:
        return f.sigmoid(x * 2.0) * f.sigmoid(x * -2.0) * 4.0  # 1 - tanh(x) ** 2 would round small slopes to 0

    x_i, x_f, x_o, x_g = f.split(X, num=4, axis=1)
    x_f = x_f + forget_bias
    i, forget, o = f.sigmoid(x_i), f.sigmoid(x_f), f.sigmoid(x_o)
    inner = dC + dH * o * tanh_slope(C)
    parts = [
        inner * f.tanh(x_g) * i * f.sigmoid(-x_i),
        inner * C_prev * forget * f.sigmoid(-x_f),
        dH * f.tanh(C) * o * f.sigmoid(-x_o),
        inner * i * tanh_slope(x_g),
    ]
    return {"X": lambda: f.concat(parts, axis=1), "C_prev": lambda: inner * forget}


def _infer_gru_unit(
    Input: Spec, HiddenPrev: Spec, Weight: Spec, Bias: Spec | None, activation: int, gate_activation: int
) -> dict[str, Spec]:
    if Input.ndim != 2 or HiddenPrev.ndim != 2 or Weight.ndim != 2:
        raise InferenceError(f"gru_unit: Input {Input}, HiddenPrev {HiddenPrev} and Weight {Weight} should be matrices")
    size = max(HiddenPrev.shape[1], Weight.shape[0], *(size // 3 for size in (Input.shape[1], Weight.shape[1]) if size > 0), -1)
    rows = max(Input.shape[0], HiddenPrev.shape[0])
    wide = 3 * size if size > 0 else -1
    slots = {"Input": (Input, (rows, wide)), "HiddenPrev": (HiddenPrev, (rows, size)), "Weight": (Weight, (size, wide))}
    _check_shapes("gru_unit", **slots)
    if Bias is not None and not fits(Bias.size, wide):
        raise InferenceError(f"gru_unit: Bias should have {wide} elements, not be {Bias}")
    for name, number in (("activation", activation), ("gate_activation", gate_activation)):
        if not 0 <= number < len(ACTIVATIONS):
            raise InferenceError(f"gru_unit: {name} should be 0 (none), 1 (sigmoid), 2 (tanh) or 3 (relu), not {number}")
    hidden = HiddenPrev.with_shape((rows, size)).with_lod(())  # the rows of a step do not form sequences
    return {"Gate": hidden.with_shape((rows, wide)), "ResetHiddenPrev": hidden, "Hidden": hidden}


def activated(f: Any, activation: str, x: Any) -> Any:
    """The activation of this name of `x`; `x` itself for the empty name."""
    return getattr(f, activation)(x) if activation else x


def activation_gradient(f: Any, activation: str, y: Any, grad: Any) -> Any:
    """The gradient of the argument of an activation, from its result `y` and the gradient of `y`; see `activated`."""
    if activation == "sigmoid":
        return grad * (y * (1.0 - y))
    if activation == "tanh":
        return grad * (1.0 - y * y)
    return grad * (y > 0.0).astype(y.dtype) if activation == "relu" else grad


def gru_weights(f: Any, weight: Any, size: int) -> tuple[Any, Any]:
    """The weights ``[size, 2 * size]`` of the gates and ``[size, size]`` of the candidate, which are stored in a row."""
    flat = f.reshape2(weight, shape=[-1])
    gates = f.slice(flat, axes=[0], starts=[0], ends=[2 * size * size])
    candidate = f.slice(flat, axes=[0], starts=[2 * size * size], ends=[3 * size * size])
    return f.reshape2(gates, shape=[size, 2 * size]), f.reshape2(candidate, shape=[size, size])


def gru_step(
    f: Any, x: Any, hidden: Any, weights: tuple[Any, Any], gate: str, activation: str, origin_mode: bool
) -> tuple[list[Any], Any, Any]:
    """A step of a GRU in Fluid's older form: its gates (update, reset, candidate), the reset state and the next state, for an
    input ``[batch, 3 * size]`` and a state ``[batch, size]``."""
    x_u, x_r, x_c = f.split(x, num=3, axis=1)
    h_u, h_r = f.split(hidden @ weights[0], num=2, axis=1)
    update, reset = activated(f, gate, x_u + h_u), activated(f, gate, x_r + h_r)
    reset_hidden = reset * hidden
    candidate = activated(f, activation, x_c + reset_hidden @ weights[1])
    after = candidate + update * (hidden - candidate) if origin_mode else hidden + update * (candidate - hidden)
    return [update, reset, candidate], reset_hidden, after


def gru_step_gradient(
    f: Any, grad: Any, gates: Any, before: Any, weights: tuple[Any, Any], gate: str, activation: str, origin_mode: bool
) -> tuple[Any, Any, Any]:
    """The gradients of a `gru_step`: of the arguments of update and reset, side by side; of the candidate's argument; and of the
    state before it.

    Args:
        grad: the gradient of the state after it.
        gates: update, reset and candidate, side by side.
    """
    update, reset, candidate = f.split(gates, num=3, axis=1)
    new, old = (1.0 - update, update) if origin_mode else (update, 1.0 - update)
    difference = before - candidate if origin_mode else candidate - before
    d_candidate = activation_gradient(f, activation, candidate, grad * new)
    d_reset = f.matmul_v2(d_candidate, weights[1], trans_y=True)
    both = activation_gradient(f, gate, update, grad * difference), activation_gradient(f, gate, reset, d_reset * before)
    d_both = f.concat(both, axis=1)
    d_before = grad * old + d_reset * reset + f.matmul_v2(d_both, weights[0], trans_y=True)
    return d_both, d_candidate, d_before


def _gru_unit_step(f: Any, values: Mapping[str, Any], attrs: Mapping[str, Any]) -> tuple[list[Any], Any, Any]:
    x, bias = values["Input"], values.get("Bias")
    if bias is not None:
        x = x + f.reshape2(bias, shape=[-1])
    weights = gru_weights(f, values["Weight"], values["Weight"].shape[0])
    gate, activation = ACTIVATIONS[attrs["gate_activation"]], ACTIVATIONS[attrs["activation"]]
    return gru_step(f, x, values["HiddenPrev"], weights, gate, activation, attrs["origin_mode"])


def _gru_unit_formula(f: Any, values: Mapping[str, Any], attrs: Mapping[str, Any]) -> dict[str, Any]:
    gates, reset_hidden, hidden = _gru_unit_step(f, values, attrs)
    return {"Gate": f.concat(gates, axis=1), "ResetHiddenPrev": reset_hidden, "Hidden": hidden}


@define(
    "gru_unit(Input, HiddenPrev: float, Weight, Bias?) -> Gate~, ResetHiddenPrev~, Hidden",
    infer=_infer_gru_unit,
    decomposition=lambda f, values, attrs: {"Hidden": _gru_unit_step(f, values, attrs)[-1]},
    meaning=means(_gru_unit_formula),
    lod_aware=True,
    activation=2,
    gate_activation=1,
    origin_mode=False,
)
def gru_unit(f, Input, HiddenPrev, Weight, Bias, Gate, ResetHiddenPrev, dHidden):  # type: ignore[no-untyped-def]
    """One step of a GRU: ``u, r = gate(x_u + h W_u), gate(x_r + h W_r)``, ``c = activation(x_c + (r h) W_c)``, and then
    ``u c + (1 - u) h``, or ``u h + (1 - u) c`` in `origin_mode`.

    Input, with Bias added, holds x_u, x_r and x_c side by side. Weight, ``[size, 3 * size]``, stores ``W_u, W_r`` as
    ``[size, 2 * size]``, followed by ``W_c`` as ``[size, size]``. Activations are 0 (none), 1 (sigmoid), 2 (tanh), 3 (relu).
    """


# ------------------------------------------------------------------------------------- over sequences of different lengths
_NAMES = ("identity", "sigmoid", "tanh", "relu")


def _check_activations(op_type: str, attrs: Mapping[str, Any]) -> None:
    for name, value in attrs.items():
        if name.endswith("activation") and value not in _NAMES:
            raise InferenceError(f"{op_type}: {name} should be one of {', '.join(_NAMES)}, not {value!r}")


def _named(f: Any, activation: str, x: Any) -> Any:
    return activated(f, "" if activation == "identity" else activation, x)


def _check_shapes(op_type: str, **expected: tuple[Spec | None, tuple[int, ...]]) -> None:
    for slot, (spec, shape) in expected.items():
        if spec is not None and not may_equal(spec.shape, shape):
            raise InferenceError(f"{op_type}: {slot} should be {list(shape)}, not {spec}")


def _infer_lstm(
    op_type: str,
    Input: Spec,
    H0: Spec | None,
    C0: Spec | None,
    Weight: Spec,
    ProjWeight: Spec | None,
    Bias: Spec,
    attrs: Mapping[str, Any],
) -> dict[str, Spec]:
    """Specs of all outputs, by the names of `lstmp`."""
    offsets = offsets_of(Input, f"{op_type}: Input")
    _check_activations(op_type, attrs)
    count = -1 if offsets is None else len(offsets) - 1
    if Input.ndim != 2 or Weight.ndim != 2:
        raise InferenceError(f"{op_type}: Input {Input} and Weight {Weight} should be matrices")
    wide = max(Input.shape[1], Weight.shape[1])
    if wide >= 0 and wide % 4:
        raise InferenceError(f"{op_type}: Input {Input} should have the four gates side by side")
    size = wide // 4 if wide >= 0 else -1
    width = size if ProjWeight is None else Weight.shape[0]
    _check_shapes(
        op_type,
        Input=(Input, (-1, wide)),
        Weight=(Weight, (width, wide)),
        ProjWeight=(ProjWeight, (size, width)),
        Bias=(Bias, (1, -1 if size < 0 else (7 if attrs["use_peepholes"] else 4) * size)),
        H0=(H0, (count, width)),
        C0=(C0, (count, size)),
    )
    if (H0 is None) != (C0 is None):
        raise InferenceError(f"{op_type}: give both H0 and C0, or neither")
    rows, plain = Input.shape[0], Input.with_lod(())
    return {
        "Projection": Input.with_shape((rows, width)),
        "Cell": Input.with_shape((rows, size)),
        "BatchGate": plain.with_shape((rows, wide)),
        "BatchCellPreAct": plain.with_shape((rows, size)),
        "BatchHidden": plain.with_shape((rows, size)),
    }


def _over_sequences(f: Any, x: Any, states: Sequence[Any], sizes: Sequence[int], step: Any, reverse: bool) -> list[Any]:
    """The states after each row of x by ``step(f, states, slice) -> states``; sequences start from `states` (None: zeros)."""
    rows = f.transpose2(f.sequence_positions(x), axis=[1, 0])
    mask = f.unsqueeze2((rows >= 0).astype(x.dtype), axes=[2])
    padded = f.take_rows(x, rows)
    zeros = {"value": 0.0, "input_dim_idx": 1, "output_dim_idx": 0, "dtype": int(x.dtype)}
    first = [
        f.fill_constant_batch_size_like(padded, shape=[-1, size], **zeros) if state is None else state
        for state, size in zip(states, sizes, strict=True)
    ]

    def masked(f: Any, before: list[Any], slices: list[Any]) -> tuple[list[Any], list[Any]]:
        after = [old + (new - old) * slices[1] for old, new in zip(before, step(f, before, slices[0]), strict=True)]
        return after, after

    outs = scan(masked, first, [padded, mask], reverse)
    likes = [f.slice(x, axes=[1], starts=[0], ends=[size]) for size in sizes]
    return [f.add_rows(out * mask, rows, like) for out, like in zip(outs, likes, strict=True)]


def _clipped(f: Any, x: Any, limit: float) -> Any:
    return f.clip(x, min=-limit, max=limit) if limit > 0 else x


def lstm_step(
    f: Any, x: Any, before: Sequence[Any], weights: tuple[Any, Sequence[Any] | None, Any], attrs: Mapping[str, Any]
) -> tuple[list[Any], list[Any], Any, Any]:
    """A step of `lstmp` (without projection: of `lstm`) for an input ``[batch, 4 * size]`` and the states, hidden and cell.

    Args:
        weights: of the hidden state; the three peepholes, ``[size]``, or None; of the projection, or None.

    Returns:
        The states after the step; the gates (candidate, i, f, o); the activated cell; and the hidden state before its projection.
    """
    (output, old), (weight, peepholes, projection), gate = before, weights, attrs["gate_activation"]
    g, i, forget, o = f.split(x + output @ weight, num=4, axis=1)
    if peepholes is not None:
        i, forget = i + old * peepholes[0], forget + old * peepholes[1]
    g, i, forget = _named(f, attrs["candidate_activation"], g), _named(f, gate, i), _named(f, gate, forget)
    cell = _clipped(f, forget * old + i * g, attrs.get("cell_clip", 0.0))
    o = _named(f, gate, o if peepholes is None else o + cell * peepholes[2])
    active = _named(f, attrs["cell_activation"], cell)
    hidden = handed = o * active
    if projection is not None:
        handed = _clipped(f, _named(f, attrs["proj_activation"], hidden @ projection), attrs["proj_clip"])
    return [handed, cell], [g, i, forget, o], active, hidden


def _lstmp_decomposed(f: Any, values: Mapping[str, Any], attrs: Mapping[str, Any]) -> dict[str, Any]:
    x, weight, bias, projection = values["Input"], values["Weight"], values["Bias"], values.get("ProjWeight")
    size = weight.shape[1] // 4

    def columns(first: int, last: int) -> Any:
        return f.reshape2(f.slice(bias, axes=[1], starts=[first * size], ends=[last * size]), shape=[-1])

    weights = weight, [columns(n, n + 1) for n in (4, 5, 6)] if attrs["use_peepholes"] else None, projection

    def step(f: Any, before: list[Any], x: Any) -> list[Any]:
        return lstm_step(f, x, before, weights, attrs)[0]

    states, sizes = [values.get("H0"), values.get("C0")], [weight.shape[0], size]
    hidden, cell = _over_sequences(f, x + columns(0, 4), states, sizes, step, attrs["is_reverse"])
    return {"Hidden" if projection is None else "Projection": hidden, "Cell": cell}


def _infer_dynamic_lstm(
    Input: Spec, H0: Spec | None, C0: Spec | None, Weight: Spec, Bias: Spec, attrs: dict[str, Any]
) -> dict[str, Spec]:
    specs = _infer_lstm("lstm", Input, H0, C0, Weight, None, Bias, attrs)
    return {"Hidden": specs["Projection"], **{slot: specs[slot] for slot in ("Cell", "BatchGate", "BatchCellPreAct")}}


_LSTM_ATTRS: dict[str, Any] = {
    "use_peepholes": True,
    "is_reverse": False,
    "is_test": False,
    "gate_activation": "sigmoid",
    "cell_activation": "tanh",
    "candidate_activation": "tanh",
}


@define(
    "lstm(Input: float, H0?, C0?, Weight, Bias) -> Hidden, Cell, BatchGate~, BatchCellPreAct~",
    infer=_infer_dynamic_lstm,
    decomposition=_lstmp_decomposed,
    lod_aware=True,
    **_LSTM_ATTRS,
)
def lstm(  # type: ignore[no-untyped-def]
    f, Input, H0, C0, Weight, Bias, Hidden, Cell, BatchGate, BatchCellPreAct, dHidden, dCell=None
):
    """An LSTM over the sequences of the rows of ``Input [rows, 4 * size]``; Hidden and Cell are ``[rows, size]``.

    The columns belong to the candidate and to the gates i, f and o, to which the product of the previous hidden state and
    ``Weight [size, 4 * size]`` is added. Bias holds their biases and, if `use_peepholes` (then it is ``[1, 7 * size]``), the
    factors of the previous cell in i and f and of the new cell in o. H0 and C0, ``[sequences, size]``, are the first states, by
    default zeros.
    """


@define(
    "lstmp(Input: float, H0?, C0?, Weight, ProjWeight, Bias) -> Projection, Cell, BatchGate~, BatchCellPreAct~, BatchHidden~",
    infer=lambda Input, H0, C0, Weight, ProjWeight, Bias, attrs: _infer_lstm(
        "lstmp", Input, H0, C0, Weight, ProjWeight, Bias, attrs
    ),
    decomposition=_lstmp_decomposed,
    lod_aware=True,
    cell_clip=0.0,
    proj_clip=0.0,
    proj_activation="tanh",
    **_LSTM_ATTRS,
)
def lstmp(  # type: ignore[no-untyped-def]
    f, Input, H0, C0, Weight, ProjWeight, Bias, Projection, Cell, BatchGate, BatchCellPreAct, BatchHidden, dProjection, dCell=None
):
    """An LSTM over sequences, as `lstm`, with ``Projection = activation(hidden @ ProjWeight)`` in place of the hidden state:
    ProjWeight is ``[size, width]``, Weight ``[width, 4 * size]``, H0 ``[sequences, width]``.

    If `cell_clip` or `proj_clip` is above 0, cells or projections are clipped to that absolute value.
    """


def _infer_gru(Input: Spec, H0: Spec | None, Weight: Spec, Bias: Spec | None, attrs: dict[str, Any]) -> dict[str, Spec]:
    offsets = offsets_of(Input, "gru: Input")
    _check_activations("gru", attrs)
    if Input.ndim != 2 or Weight.ndim != 2:
        raise InferenceError(f"gru: Input {Input} and Weight {Weight} should be matrices")
    wide = max(Input.shape[1], Weight.shape[1])
    if wide >= 0 and wide % 3:
        raise InferenceError(f"gru: Input {Input} should have two gates and the candidate side by side")
    size = wide // 3 if wide >= 0 else Weight.shape[0]
    count = -1 if offsets is None else len(offsets) - 1
    _check_shapes("gru", Input=(Input, (-1, wide)), Weight=(Weight, (size, wide)), Bias=(Bias, (1, wide)), H0=(H0, (count, size)))
    rows, plain = Input.shape[0], Input.with_lod(())
    narrow = plain.with_shape((rows, size))
    return {
        "BatchGate": plain.with_shape((rows, 3 * size if size > 0 else -1)),
        "BatchResetHiddenPrev": narrow,
        "BatchHidden": narrow,
        "Hidden": Input.with_shape((rows, size)),
    }


def _gru_decomposed(f: Any, values: Mapping[str, Any], attrs: Mapping[str, Any]) -> dict[str, Any]:
    x, weight, bias = values["Input"], values["Weight"], values.get("Bias")
    size = weight.shape[0]
    if bias is not None:
        x = x + f.reshape2(bias, shape=[-1])
    weights = gru_weights(f, weight, size)
    gate, activation = ("" if attrs[name] == "identity" else attrs[name] for name in ("gate_activation", "activation"))

    def step(f: Any, before: list[Any], x: Any) -> list[Any]:
        return [gru_step(f, x, before[0], weights, gate, activation, attrs["origin_mode"])[-1]]

    (hidden,) = _over_sequences(f, x, [values.get("H0")], [size], step, attrs["is_reverse"])
    return {"Hidden": hidden}


@define(
    "gru(Input: float, H0?, Weight, Bias?) -> BatchGate~, BatchResetHiddenPrev~, BatchHidden~, Hidden",
    infer=_infer_gru,
    decomposition=_gru_decomposed,
    lod_aware=True,
    activation="tanh",
    gate_activation="sigmoid",
    is_reverse=False,
    origin_mode=False,
)
def gru(  # type: ignore[no-untyped-def]
    f, Input, H0, Weight, Bias, Hidden: ShapeOnly, BatchGate, BatchResetHiddenPrev, BatchHidden, dHidden
):
    """A GRU with the steps of `gru_unit` over the sequences of rows of ``Input [rows, 3 * size]``; Hidden is ``[rows, size]``.

    H0, ``[sequences, size]``, holds the first states; zeros by default.
    """
