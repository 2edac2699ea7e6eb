"""The steps of recurrent layers as loops of XLA: written out one after the other, they take long to compile and to run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from jax import lax
from jax import numpy as jnp

from ..kernels.rnn import BACKWARD, FACTORS, FORWARD, Loops
from .arrays import Array, wrap

__all__ = ["LOOPS"]


def _value(array: Any) -> Any:
    return jnp.asarray(array.read())


def _lstm(xp: Any, pre: Any, weight: Any, bias: Any, layer: Any, outside: Any) -> None:
    """As `fluid.executor.kernels.rnn._lstm`."""
    hs, cs = layer.states
    scale = _value(FACTORS["LSTM"](xp, hs.shape[-1], pre.dtype))
    by, shift = _value(weight), 1 - scale

    def step(state: Any, now: Any) -> Any:
        h, c = state
        sums, is_outside = now
        gates = jnp.tanh(jnp.matmul(h, by) + sums) * scale + shift
        i, f, g, o = jnp.split(gates, 4, -1)
        new_c = f * c + i * g
        new_h = o * jnp.tanh(new_c)
        if is_outside is not None:
            new_h, new_c = jnp.where(is_outside, h, new_h), jnp.where(is_outside, c, new_c)
        return (new_h, new_c), (gates, new_h, new_c)

    skipped = _value(outside) if isinstance(outside, Array) else None
    _, (gates, h, c) = lax.scan(step, (_value(hs[0]), _value(cs[0])), (_value(pre) + _value(bias), skipped))
    layer.gates.write(gates.reshape(layer.gates.shape))
    hs[1:] = wrap(h)
    cs[1:] = wrap(c)


def _lstm_back(xp: Any, coming: Any, grads: Sequence[Any], weight: Any, layer: Any, inside: Any) -> tuple[Any, Any]:
    """As `fluid.executor.kernels.rnn._lstm_back`."""
    gates, cells, by = _value(layer.gates), _value(layer.states[1]), _value(weight)
    i, f, g, o = (gates[:, :, :, number] for number in range(4))
    tanh_c = jnp.tanh(cells[1:])
    factors = jnp.stack([g * i * (1 - i), cells[:-1] * f * (1 - f), i * (1 - g * g), tanh_c * o * (1 - o)], 3)
    to_cell, stays = o * (1 - tanh_c * tanh_c), None
    if inside is not None:
        within = _value(inside)
        factors, to_cell, f = factors * within[:, :, :, None], to_cell * within, jnp.where(within, f, 1)
        stays = (~within).astype(gates.dtype)

    def step(state: Any, now: Any) -> Any:
        dh, dc = state
        d_out, to_c, factor, forget, stay = now
        dh = dh + d_out
        dc = dc + dh * to_c
        wide = jnp.concatenate([factor[:, :, :3] * dc[:, :, None], factor[:, :, 3:] * dh[:, :, None]], 2)
        wide = wide.reshape(*dh.shape[:-1], -1)
        through = jnp.matmul(wide, by)
        return (through if stay is None else dh * stay + through, dc * forget), wide

    steps = (_value(coming), to_cell, factors, f, stays)
    (dh, dc), wide = lax.scan(step, tuple(map(_value, grads)), steps, reverse=True)
    grads[0].write(dh)
    grads[1].write(dc)
    return wrap(wide), wrap(wide)


LOOPS = Loops({**FORWARD, "LSTM": _lstm}, {**BACKWARD, "LSTM": _lstm_back})
