"""Attention as one op, as passes for inference and layers of Paddle 2.x write it."""

from __future__ import annotations

from typing import Any

from ..errors import InferenceError
from ..opdef.composition import Composition, composed
from ..opdef.registry import define, required
from . import activation, elementwise, manipulation, matmul, reduction  # noqa: F401  (what the ops are made of)
from .formulas import size_of

_FAR = -1e30
"""Added to the attention weights of masked positions."""


def _attended(f: Any, q: Any, k: Any, v: Any, *, scale: Any, mask: Any = None, causal: bool = False) -> Any:
    """``softmax(scale * q @ k.T + mask) @ v`` of heads [batch, heads, length, width]."""
    weights = f.matmul_v2(q, k, trans_y=True) * scale
    weights = weights if mask is None else f.elementwise_add(weights, mask)
    return f.matmul_v2(f.softmax(_causal(f, weights) if causal else weights, axis=-1), v)


def _causal(f: Any, weights: Any) -> Any:
    far = f.fill_any_like(weights, value=_FAR, dtype=int(weights.dtype))
    return weights + f.tril_triu(far, diagonal=1, lower=False)


def _heads_first(f: Any, value: Any) -> Any:
    """[batch, length, heads, width] as [batch, heads, length, width], and the reverse."""
    return f.transpose2(value, axis=[0, 2, 1, 3])


def _of_three(f: Any, joined: Any, alpha: float, mask: Any = None) -> Any:
    """Attention with q, k and v in one [batch, length, 3, heads, width]; the result is [batch, length, heads, width]."""
    joined = f.transpose2(joined, axis=[2, 0, 3, 1, 4])
    parts = [f.slice(joined, axes=[0], starts=[part], ends=[part + 1], decrease_axis=[0]) for part in range(3)]
    return _heads_first(f, _attended(f, *parts, scale=alpha, mask=mask))


@composed(
    "multihead_matmul(Input: float[B, L, D], W: float, Bias, BiasQK?) -> Out",
    transpose_Q=False,
    transpose_K=True,
    transpose_V=False,
    alpha=1.0,
    head_number=1,
)
def multihead_matmul(f: Any, Input: Any, W: Any, Bias: Any, BiasQK: Any, alpha: float, head_number: int) -> Any:
    """Attention within sequences: ``softmax(alpha * Q @ K.T + BiasQK) @ V`` of each head, of Q, K and V in ``Input @ W + Bias``.

    W is [width, 3, heads, width of a head], also as a matrix, and Bias [3, heads, width of a head].
    """
    product = f.elementwise_add(f.matmul_v2(Input, f.reshape2(W, shape=[0, -1])), f.reshape2(Bias, shape=[-1]))
    heads = _of_three(f, f.reshape2(product, shape=[0, 0, 3, head_number, -1]), alpha, BiasQK)
    return f.reshape2(heads, shape=[0, 0, -1])


@composed("self_dp_attention(X: float) -> Out", alpha=1.0, head_number=1)
def self_dp_attention(f: Any, X: Any, alpha: float, head_number: int) -> Any:
    """Attention of queries, keys and values in one X [batch, length, 3, heads, width]: [batch, length, heads, width]."""
    return _of_three(f, X, alpha)


@composed(
    "flash_attn(q: float[B, L, N, H], k: float[B, M, K, H], v: float[B, M, K, V], fixed_seed_offset?, attn_mask?)"
    " -> out, softmax?, softmax_lse?, seed_offset?",
    wrt=["q", "k", "v"],
    constants=["attn_mask"],
    listed=["out", "softmax_lse", "seed_offset"],
    dropout=0.0,
    causal=False,
    return_softmax=False,
    is_test=False,
    rng_name="",
)
def flash_attn(
    f: Any, q: Any, k: Any, v: Any, attn_mask: Any, dropout: float, causal: bool, return_softmax: bool, is_test: bool
) -> Any:
    """``softmax(q @ k.T / sqrt(width) + attn_mask) @ v`` of each head; `causal` masks later positions."""
    _refuse_dropout("flash_attn", dropout, is_test)
    if return_softmax:
        raise InferenceError("flash_attn does not keep the weights of attention here; set return_softmax=False")
    heads = [_heads_first(f, value) for value in (q, k, v)]
    return _heads_first(f, _attended(f, *heads, scale=_scale(f, q), mask=attn_mask, causal=causal))


@composed(
    "memory_efficient_attention(query: float[B, L, N, H], key: float[B, M, N, H], value: float[B, M, N, V], bias?, "
    "cu_seqlens_q?, cu_seqlens_k?, causal_diagonal?, seqlen_k?, MaxSeqlenQTensor?, MaxSeqlenKTensor?)"
    " -> output, logsumexp?, seed_and_offset?",
    wrt=["query", "key", "value", "bias"],
    listed=["output", "logsumexp", "seed_and_offset"],
    max_seqlen_q=-1.0,
    max_seqlen_k=-1.0,
    causal=required("bool"),
    dropout_p=required("float64"),
    scale=required("float"),
    is_test=required("bool"),
)
def memory_efficient_attention(f: Any, values: Any, attrs: Any) -> Any:
    """``softmax(scale * query @ key.T + bias) @ value`` of each head; without `scale` above zero, it is ``1 / sqrt(width)``."""
    _refuse_dropout("memory_efficient_attention", attrs["dropout_p"], attrs["is_test"])
    for slot in ("cu_seqlens_q", "cu_seqlens_k", "causal_diagonal", "seqlen_k"):
        if values.get(slot) is not None:
            raise InferenceError(f"memory_efficient_attention of rows that {slot} tells apart is not here")
    scale = attrs["scale"] if attrs["scale"] > 0 else _scale(f, values["query"])
    heads = [_heads_first(f, values[slot]) for slot in ("query", "key", "value")]
    return _heads_first(f, _attended(f, *heads, scale=scale, mask=values.get("bias"), causal=attrs["causal"]))


def _scale(f: Any, q: Any) -> Any:
    """``1 / sqrt(width)``."""
    width = size_of(f, q, -1)
    return width**-0.5 if isinstance(width, float) else f.rsqrt(width)


def _refuse_dropout(op: str, probability: float, is_test: bool) -> None:
    if probability and not is_test:
        raise InferenceError(f"{op} with dropout in training draws on a GPU what is dropped; set dropout to 0, or is_test")


# ------------------------------------------------------------------------------------------------- with gradients of Paddle
def _masked(f: Any, values: Any, attrs: Any, wanted: set[str]) -> dict[str, Any]:
    return {"Out": f.softmax(f.elementwise_add(values["X"], values["Mask"]), axis=-1)}


@define("fused_softmax_mask(X: float, Mask) -> Out", composition=Composition(_masked), wrt=["X"], constants=["Mask"])
def fused_softmax_mask(f: Any, Out: Any, dOut: Any) -> Any:
    """``softmax(X + Mask)`` along the last axis."""
    return {"X": (dOut - f.reduce_sum(dOut * Out, dim=[-1], keep_dim=True)) * Out}


def _triangle(f: Any, values: Any, attrs: Any, wanted: set[str]) -> dict[str, Any]:
    return {"Out": f.softmax(_causal(f, values["X"]), axis=-1)}


@define("fused_softmax_mask_upper_triangle(X: float) -> Out", composition=Composition(_triangle))
def fused_softmax_mask_upper_triangle(f: Any, Out: Any, dOut: Any) -> Any:
    """`softmax` along the last axis over the elements up to the diagonal of the last two axes; zeros above it."""
    return {"X": (dOut - f.reduce_sum(dOut * Out, dim=[-1], keep_dim=True)) * Out}


def _partners(f: Any, x: Any, neox: bool) -> Any:
    """The other column of each pair, the second one negative; pairs are neighbours if `neox`, else columns of two halves."""
    first, second = f.unbind(f.reshape2(x, shape=[0, 0, 0, -1, 2]), axis=4) if neox else f.split(x, num=2, axis=3)
    return f.reshape_like(f.stack([-second, first], axis=4), x) if neox else f.concat([-second, first], axis=3)


def _turned(f: Any, x: Any, sin: Any, cos: Any, neox: bool) -> Any:
    """x turned by angles, pair by pair."""
    return f.elementwise_add(f.elementwise_mul(x, cos), f.elementwise_mul(_partners(f, x, neox), sin))


def _turned_back(f: Any, gradient: Any, sin: Any, cos: Any, neox: bool) -> Any:
    """The transpose of `_turned`."""
    return f.elementwise_sub(f.elementwise_mul(gradient, cos), _partners(f, f.elementwise_mul(gradient, sin), neox))


def _angles(f: Any, sin: Any, cos: Any, position_ids: Any) -> tuple[Any, Any]:
    """Sines and cosines, each [1 or batch, length, 1, width]; of a table, by positions."""
    if sin is None or cos is None:
        raise InferenceError("fused_rotary_position_embedding needs sin and cos, which Paddle would compute itself")
    tables = [table if table.ndim == 2 else f.squeeze2(table, axes=[0, 2]) for table in (sin, cos)]
    if position_ids is None:
        tables = [f.unsqueeze2(table, axes=[0, 2]) for table in tables]
    else:
        tables = [f.unsqueeze2(f.lookup_table_v2(table, position_ids), axes=[2]) for table in tables]
    return tables[0], tables[1]


def _rotated(f: Any, values: Any, attrs: Any, wanted: set[str]) -> dict[str, Any]:
    angles = _angles(f, *(values.get(slot) for slot in ("sin", "cos", "position_ids")))
    neox = attrs["use_neox_rotary_style"]
    return {f"out_{slot}": _turned(f, values[slot], *angles, neox) for slot in ("q", "k", "v") if values.get(slot) is not None}


@define(
    "fused_rotary_position_embedding(q: float, k?, v?, sin?, cos?, position_ids?) -> out_q, out_k?, out_v?",
    composition=Composition(_rotated),
    wrt=["q", "k", "v"],
    constants=["sin", "cos"],
    use_neox_rotary_style=True,
)
def fused_rotary_position_embedding(
    f: Any,
    sin: Any,
    cos: Any,
    position_ids: Any,
    dout_q: Any = None,
    dout_k: Any = None,
    dout_v: Any = None,
    use_neox_rotary_style: bool = True,
) -> Any:
    """Turns pairs of columns of q, k and v [batch, length, heads, width] by angles: ``x * cos + other(x) * sin``.

    Pairs are neighbours, or with `use_neox_rotary_style` off, columns of the first half and of the second. `position_ids`
    [batch, length] says which row of the tables sin and cos, [1, length, 1, width] or [length, width], is for which place.
    """
    angles = _angles(f, sin, cos, position_ids)
    cotangents = {"q": dout_q, "k": dout_k, "v": dout_v}
    return {slot: _turned_back(f, back, *angles, use_neox_rotary_style) for slot, back in cotangents.items() if back is not None}
