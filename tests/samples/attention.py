"""Samples of `fluid.ops.attention`: attention in plain numpy, head by head."""

from __future__ import annotations

from typing import Any

import numpy as np

from .base import Data, Sample, add

data = Data("attention")


def softmax(x: Any) -> Any:
    x = np.exp(x - x.max(-1, keepdims=True))
    return x / x.sum(-1, keepdims=True)


def attended(q: Any, k: Any, v: Any, scale: float, mask: Any = 0, causal: bool = False) -> Any:
    """Of [batch, length, heads, width]."""
    out = np.zeros((*q.shape[:3], v.shape[-1]), q.dtype)
    mask = np.broadcast_to(mask, (q.shape[0], q.shape[2], q.shape[1], k.shape[1]))
    for batch, head in np.ndindex(q.shape[0], q.shape[2]):
        weights = scale * q[batch, :, head] @ k[batch, :, head].T + mask[batch, head]
        weights = np.where(np.triu(np.ones_like(weights), 1) > 0, -np.inf, weights) if causal else weights
        out[batch, :, head] = softmax(weights) @ v[batch, :, head]
    return out


def of_heads(Input: Any, W: Any, Bias: Any, BiasQK: Any = 0, alpha: float = 1.0, head_number: int = 1) -> Any:
    joined = (Input @ W.reshape(W.shape[0], -1) + Bias.reshape(-1)).reshape(*Input.shape[:2], 3, head_number, -1)
    return attended(*np.moveaxis(joined, 2, 0), alpha, BiasQK).reshape(*Input.shape[:2], -1)


HEADS = {"Input": data(2, 3, 4), "W": data(4, 3, 2, 2), "Bias": data(3, 2, 2)}
add(
    "multihead_matmul",
    Sample(HEADS, {"head_number": 2, "alpha": 0.5}, of_heads),
    Sample({**HEADS, "BiasQK": data(2, 1, 3, 3)}, {"head_number": 2}, of_heads),
    Sample({**HEADS, "W": data(4, 12), "BiasQK": data(2, 2, 3, 3)}, {"head_number": 2}, of_heads),
)
add(
    "self_dp_attention",
    Sample(
        {"X": data(2, 3, 3, 2, 2)},
        {"alpha": 0.5, "head_number": 2},
        lambda X, alpha, head_number: attended(*np.moveaxis(X, 2, 0), alpha),
    ),
)
QKV = {"q": data(2, 3, 2, 4), "k": data(2, 3, 2, 4), "v": data(2, 3, 2, 5)}


def flash(q: Any, k: Any, v: Any, attn_mask: Any = 0, causal: bool = False) -> Any:
    return {"out": attended(q, k, v, q.shape[-1] ** -0.5, attn_mask, causal)}


add(
    "flash_attn",
    Sample(QKV, {}, flash),
    Sample({**QKV, "attn_mask": data(2, 1, 3, 3)}, {}, flash),
    Sample(QKV, {"causal": True}, flash),
)
EFFICIENT = {"query": QKV["q"], "key": QKV["k"], "value": QKV["v"]}


def efficient(query: Any, key: Any, value: Any, scale: float, causal: bool, bias: Any = 0, **_: Any) -> Any:
    return {"output": attended(query, key, value, scale if scale > 0 else query.shape[-1] ** -0.5, bias, causal)}


add(
    "memory_efficient_attention",
    Sample(EFFICIENT, {"scale": -1.0, "causal": False, "dropout_p": 0.0, "is_test": True}, efficient),
    Sample({**EFFICIENT, "bias": data(2, 2, 3, 3)}, {"scale": 0.7, "causal": True, "dropout_p": 0.3, "is_test": True}, efficient),
)

# ---------------------------------------------------------------------------------------------------- softmax and rotation
add(
    "fused_softmax_mask",
    Sample({"X": data(2, 2, 3, 3), "Mask": data(2, 1, 3, 3)}, {}, lambda X, Mask: softmax(X + Mask), wrt=["X"]),
)
add(
    "fused_softmax_mask_upper_triangle",
    Sample({"X": data(2, 2, 3, 3)}, {}, lambda X: softmax(np.where(np.triu(np.ones_like(X), 1) > 0, -np.inf, X))),
)


def partners(x: Any, neox: bool) -> Any:
    """The other column of each pair, the second one negative."""
    parts = (x[..., ::2], x[..., 1::2]) if neox else np.split(x, 2, -1)
    return np.stack([-parts[1], parts[0]], -1).reshape(x.shape) if neox else np.concatenate([-parts[1], parts[0]], -1)


def rotated(q: Any, sin: Any, cos: Any, use_neox_rotary_style: bool = True, position_ids: Any = None, **others: Any) -> Any:
    rows = np.arange(q.shape[1])[None] if position_ids is None else position_ids
    sin, cos = (table.reshape(-1, table.shape[-1])[rows][:, :, None] for table in (sin, cos))
    return {f"out_{slot}": x * cos + partners(x, use_neox_rotary_style) * sin for slot, x in {"q": q, **others}.items()}


ANGLES = data(3, 2)
for neox in (True, False):
    whole = np.repeat(ANGLES, 2, 1) if neox else np.concatenate([ANGLES] * 2, 1)
    tables = {"sin": np.sin(whole).reshape(1, 3, 1, 4), "cos": np.cos(whole).reshape(1, 3, 1, 4)}
    rotary = {"use_neox_rotary_style": neox}
    one, two = {"q": data(2, 3, 2, 4)}, {"k": data(2, 3, 2, 4), "v": data(2, 3, 2, 4)}
    places = {"position_ids": data.ints(2, 3, high=3)}
    add(
        "fused_rotary_position_embedding",
        Sample({**one, **tables}, rotary, rotated, wrt=["q"]),
        Sample({**one, **two, **tables}, rotary, rotated, wrt=["q", "k", "v"]),
        Sample({**one, **tables, **places}, rotary, rotated, wrt=["q"]),
    )
