"""The steps of recurrent layers as loops of XLA: unrolled, they take long to trace, compile and run.

Each function computes the same as its counterpart for that mode in `fluid.executor.kernels.rnn`. Work for all steps at once uses
arrays; work in the loop uses XLA's operations.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from jax import lax

from ..kernels.rnn import FACTORS, SLOPES, Loops, StepFormula, masked
from .arrays import Array, empty, wrap
from .rows import rows_at
from .views import spread

States = tuple[Any, ...]
Step = Callable[[States, Any], tuple[Any, States]]
"""(states before a step, inputs of the step) -> (values to save for the gradient, states after the step)."""


def _multiply(rows: Any, matrices: Any) -> Any:
    """Multiply by one matrix for each direction."""
    return lax.dot_general(rows, matrices, (((2,), (1,)), ((0,), (0,))))


def _blocks(values: Any, count: int) -> list[Any]:
    """Split the last axis into parts of the hidden size."""
    size = values.shape[-1] // count
    return [lax.slice_in_dim(values, number * size, (number + 1) * size, axis=values.ndim - 1) for number in range(count)]


def _go_forward(layer: Any, step: Step, coming: Array, outside: Any) -> None:
    """Run the steps and fill the gates and states of a layer. Where `outside` is true, states do not change."""

    def of_step(before: States, now: Any) -> Any:
        sums, is_outside = now
        saved, after = step(before, sums)
        if is_outside is not None:
            stays = spread(is_outside, after[0].shape)
            after = tuple(lax.select(stays, old, new) for old, new in zip(before, after, strict=True))
        return after, (saved, after)

    steps = (coming.read(), outside.read() if isinstance(outside, Array) else None)
    _, (saved, states) = lax.scan(of_step, tuple(state[0].read() for state in layer.states), steps)
    if saved is not None:
        layer.gates.write(lax.reshape(saved, layer.gates.shape))
    for state, values in zip(layer.states, states, strict=True):
        state[1:] = wrap(values)


def _lstm(xp: Any, pre: Array, weight: Array, bias: Array, layer: Any, outside: Any) -> None:
    by, shape = weight.read(), pre.shape[1:]
    scale = FACTORS["LSTM"](xp, shape[-1] // 4, pre.dtype)
    factor, shift = scale.read_as(shape), (1 - scale).read_as(shape)

    def step(before: States, sums: Any) -> tuple[Any, States]:
        h, c = before
        gates = lax.add(lax.mul(lax.tanh(lax.add(_multiply(h, by), sums)), factor), shift)
        i, f, g, o = _blocks(gates, 4)
        c = lax.add(lax.mul(f, c), lax.mul(i, g))
        return gates, (lax.mul(o, lax.tanh(c)), c)

    _go_forward(layer, step, pre + bias, outside)


def _gru(xp: Any, pre: Array, weight: Array, bias: Array, layer: Any, outside: Any) -> None:
    by, size = weight.read(), pre.shape[-1] // 3
    half = pre.dtype.type(0.5)
    of_gates = xp.where(xp.arange(3 * size) < 2 * size, bias, pre.dtype.type(0))
    of_hidden = bias[..., 2 * size :].read_as((*pre.shape[1:-1], size))

    def step(before: States, sums: Any) -> tuple[Any, States]:
        (h,) = before
        both, n = lax.split(sums, (2 * size, size), 2)
        hidden_both, hidden_n = lax.split(_multiply(h, by), (2 * size, size), 2)
        both = lax.add(lax.mul(lax.tanh(lax.add(hidden_both, both)), half), half)
        r, z = _blocks(both, 2)
        of_h = lax.add(hidden_n, of_hidden)
        n = lax.tanh(lax.add(lax.mul(of_h, r), n))
        return lax.concatenate([both, n, of_h], 2), (lax.add(lax.mul(lax.sub(h, n), z), n),)

    _go_forward(layer, step, pre + of_gates, outside)


def _simple(activate: Callable[[Any], Any]) -> Callable[..., None]:
    def run(xp: Any, pre: Array, weight: Array, bias: Array, layer: Any, outside: Any) -> None:
        by = weight.read()

        def step(before: States, sums: Any) -> tuple[Any, States]:
            return None, (activate(lax.add(_multiply(before[0], by), sums)),)

        _go_forward(layer, step, pre + bias, outside)

    return run


def _relu(x: Any) -> Any:
    return lax.max(x, np.zeros((), x.dtype))


# ------------------------------------------------------------------------------------------------------------ backward
def _go_back(step: Step, grads: Sequence[Array], steps: Sequence[Any]) -> Array:
    """Run the steps backwards: writes the gradients of the initial states into `grads`, and returns the saved value of each step.
    `steps` holds the inputs of the steps, None for absent ones."""
    inputs = tuple(None if array is None else array.read() for array in steps)
    firsts = tuple(grad.read() for grad in grads)
    lasts, saved = lax.scan(lambda after, now: step(after, now)[::-1], firsts, inputs, reverse=True)
    for grad, last in zip(grads, lasts, strict=True):
        grad.write(last)
    result: Array = wrap(saved)
    return result


def _stays(xp: Any, mask: Any, like: Array) -> Any:
    """1 where a state does not change, 0 elsewhere, in the shape of a state; None if states always change."""
    return None if mask is None else xp.broadcast_to((~mask).astype(like.dtype), like.shape)


def _step_gradient(d_sums: Any, by: Any, dh: Any, stay: Any) -> Any:
    """The gradient of the hidden state before a step: through the weights, or unchanged where the state does not change."""
    through = _multiply(d_sums, by)
    return through if stay is None else lax.add(lax.mul(dh, stay), through)


def _lstm_back(xp: Any, coming: Array, grads: Sequence[Array], weight: Array, layer: Any, mask: Any) -> tuple[Any, Any]:
    by, cells = weight.read(), layer.states[1]
    i, f, g, o = (layer.gates[:, :, :, number] for number in range(4))
    tanh_c = xp.tanh(cells[1:])
    factors = xp.stack([g * i * (1 - i), cells[:-1] * f * (1 - f), i * (1 - g * g), tanh_c * o * (1 - o)], 3)
    to_cell = masked(o * (1 - tanh_c * tanh_c), mask)
    forget = f if mask is None else xp.where(mask, f, f.dtype.type(1))
    *outer, size = coming.shape[1:]

    def step(after: States, now: Any) -> tuple[Any, States]:
        dh, dc = after
        d_out, to_c, factor, f, stay = now
        dh = lax.add(dh, d_out)
        dc = lax.add(dc, lax.mul(dh, to_c))
        by_state = [
            lax.broadcast_in_dim(dc, (*outer, 3, size), (0, 1, 3)),
            lax.broadcast_in_dim(dh, (*outer, 1, size), (0, 1, 3)),
        ]
        wide = lax.reshape(lax.mul(factor, lax.concatenate(by_state, 2)), (*outer, 4 * size))
        return wide, (_step_gradient(wide, by, dh, stay), lax.mul(dc, f))

    wide = _go_back(step, grads, (coming, to_cell, masked(factors, mask), forget, _stays(xp, mask, coming)))
    return wide, wide


def _gru_back(xp: Any, coming: Array, grads: Sequence[Array], weight: Array, layer: Any, mask: Any) -> tuple[Any, Any]:
    by = weight.read()
    r, z, n, of_h = (layer.gates[:, :, :, number] for number in range(4))
    to_n = (1 - z) * (1 - n * n)
    of_hidden = to_n * r
    # Of r, z, the hidden part of the candidate, and the candidate's argument.
    factors = xp.stack([of_hidden * of_h * (1 - r), (layer.states[0, :-1] - n) * z * (1 - z), of_hidden, to_n], 3)
    stay = z if mask is None else xp.where(mask, z, z.dtype.type(1))
    *outer, size = coming.shape[1:]

    def step(after: States, now: Any) -> tuple[Any, States]:
        d_out, factor, stay = now
        dh = lax.add(after[0], d_out)
        d_gates = lax.reshape(lax.mul(factor, lax.broadcast_in_dim(dh, factor.shape, (0, 1, 3))), (*outer, 4 * size))
        hidden = lax.slice_in_dim(d_gates, 0, 3 * size, axis=2)
        return d_gates, (_step_gradient(hidden, by, dh, stay),)

    d_gates = _go_back(step, grads, (coming, masked(factors, mask), stay))
    of_x = xp.concatenate([d_gates[..., : 2 * size], d_gates[..., 3 * size :]], -1)
    return of_x, d_gates[..., : 3 * size]


def _simple_back(slope: Callable[[Any], Any]) -> Callable[..., tuple[Any, Any]]:
    def run(xp: Any, coming: Array, grads: Sequence[Array], weight: Array, layer: Any, mask: Any) -> tuple[Any, Any]:
        by = weight.read()

        def step(after: States, now: Any) -> tuple[Any, States]:
            d_out, factor, stay = now
            dh = lax.add(after[0], d_out)
            d_sums = lax.mul(factor, dh)
            return d_sums, (_step_gradient(d_sums, by, dh, stay),)

        d_sums = _go_back(step, grads, (coming, masked(slope(layer.states[0, 1:]), mask), _stays(xp, mask, coming)))
        return d_sums, d_sums

    return run


# ------------------------------------------------------------------------------------------- sequences of different lengths
def _in_turn(
    steps: Sequence[tuple[int, int]],
    states: Sequence[Array],
    outputs: Sequence[Any],
    prepare: Callable[[], tuple[Callable[..., None], Sequence[Any]]],
    formula: StepFormula,
    backwards: bool = False,
) -> None:
    """Run the steps of packed sequences as one loop. Each step is padded to the rows of the first one; missing rows read 0."""
    if not steps:
        return
    step, inputs = prepare()
    most = steps[0][1]
    total = sum(count for _, count in steps)
    starts, counts = (np.array(column, np.int64).reshape(-1, 1) for column in zip(*steps, strict=True))
    rows = np.arange(most)
    padded = np.where(rows < counts, starts + rows, total)  # index of a row of zeros behind the last row
    packed = np.flatnonzero(rows < counts)  # in the order of steps, as packed rows are

    def spread_out(array: Any) -> Any:
        if array is None:
            return None
        value = array.read()
        return rows_at(lax.concatenate([value, lax.full_like(value, 0, shape=(1, *value.shape[1:]))], 0), padded)

    def of_step(before: States, now: Any) -> tuple[States, Any]:
        after = [wrap(state) for state in before]
        new = [empty((most, *array.shape[1:]), array.dtype) for array in outputs]
        step(after, [None if rows is None else wrap(rows) for rows in now], new)
        return tuple(state.read() for state in after), [array.read() for array in new]

    first = tuple(state[:most].read() for state in states)
    last, results = lax.scan(of_step, first, [spread_out(array) for array in inputs], reverse=backwards)
    for state, value in zip(states, last, strict=True):
        state[:most] = wrap(value)
    for array, value in zip(outputs, results, strict=True):
        flat = lax.reshape(value, (len(steps) * most, *value.shape[2:]))
        array.write(rows_at(flat, packed))


LOOPS = Loops(
    {"LSTM": _lstm, "GRU": _gru, "RNN_TANH": _simple(lax.tanh), "RNN_RELU": _simple(_relu)},
    {"LSTM": _lstm_back, "GRU": _gru_back, **{mode: _simple_back(slope) for mode, slope in SLOPES.items()}},
    _in_turn,
)
