"""Fused ops on sequences, into which Paddle's passes for inference turn recurrent nets and sums of embeddings."""

from __future__ import annotations

from typing import Any

from ..errors import InferenceError
from ..opdef.composition import composed
from ..opdef.registry import NOT_DIFFERENTIABLE, choice, define, get, long, required
from ..values.spec import Spec
from . import manipulation, matmul, recommendation, rnn, sequence  # noqa: F401  (what the ops are made of)
from .fused import activated
from .shapes import fits

_POOLS = choice("SUM", "AVERAGE", "SQRT")


# ------------------------------------------------------------------------------------------------------- recurrent nets
def _gru(f: Any, x: Any, h0: Any, weight: Any, recurrent: Any, bias: Any, attrs: Any, is_reverse: bool) -> Any:
    names = ("activation", "gate_activation", "origin_mode")
    gru_attrs = {name: attrs[name] for name in names}
    return f.gru(f.mul(x, weight), h0, recurrent, bias, is_reverse=is_reverse, **gru_attrs)


@composed(
    "fusion_gru(X: float, H0?, WeightX, WeightH, Bias?) -> ReorderedH0~, XX~, BatchedInput~, BatchedOut~, Hidden",
    lod_aware=True,
    activation="tanh",
    gate_activation="sigmoid",
    is_reverse=False,
    use_seq=True,
    origin_mode=False,
)
def fusion_gru(f: Any, X: Any, H0: Any, WeightX: Any, WeightH: Any, Bias: Any, attrs: Any) -> Any:
    """`gru` of ``X @ WeightX``."""
    return {"Hidden": _gru(f, X, H0, WeightX, WeightH, Bias, attrs, attrs["is_reverse"])}


@composed(
    "multi_gru(X: float, WeightX*, WeightH*, Bias*?, Scale_weights*?) -> Hidden",
    lod_aware=True,
    activation="tanh",
    gate_activation="sigmoid",
    layers=1,
    origin_mode=False,
)
def multi_gru(f: Any, X: Any, WeightX: Any, WeightH: Any, Bias: Any, Scale_weights: Any, attrs: Any) -> Any:
    """Layers of two `gru` each, one over the sequences and one over them in reverse, whose results stand side by side."""
    if Scale_weights:
        raise InferenceError("multi_gru of 8-bit weights, which oneDNN computes, is not here")
    for layer in range(attrs["layers"]):
        both = []
        for place in (2 * layer, 2 * layer + 1):
            bias = Bias[place] if Bias else None
            both.append(_gru(f, X, None, WeightX[place], WeightH[place], bias, attrs, is_reverse=bool(place % 2)))
        X = f.concat(both, axis=1)
    return X


_LSTM: dict[str, Any] = {name: get("lstm").attrs[name] for name in ("use_peepholes", "is_reverse")}
_LSTM |= {name: get("lstm").attrs[name] for name in ("gate_activation", "cell_activation", "candidate_activation")}
_LSTM_OUT = " -> Hidden, Cell, XX~, BatchedInput~, BatchedHidden~, BatchedCell~, ReorderedH0~, ReorderedC0~"


def _lstm(f: Any, x: Any, values: Any, attrs: Any) -> dict[str, Any]:
    inputs = [values.get(slot) for slot in ("H0", "C0", "WeightH", "Bias")]
    hidden, cell = f.lstm(x, *inputs, **{name: attrs[name] for name in _LSTM})
    return {"Hidden": hidden, "Cell": cell}


@composed(
    "fusion_lstm(X: float, WeightX, WeightH, Bias, H0?, C0?)" + _LSTM_OUT + ", CheckedCell~",
    lod_aware=True,
    use_seq=True,
    **_LSTM,
)
def fusion_lstm(f: Any, values: Any, attrs: Any) -> Any:
    """`lstm` of ``X @ WeightX``."""
    return _lstm(f, f.mul(values["X"], values["WeightX"]), values, attrs)


@composed("fused_embedding_fc_lstm(Ids: int, Embeddings: float, WeightH, Bias, H0?, C0?)" + _LSTM_OUT, lod_aware=True, **_LSTM)
def fused_embedding_fc_lstm(f: Any, values: Any, attrs: Any) -> Any:
    """`lstm` of the rows of Embeddings that Ids names, which hold products and biases; of Bias, only the peepholes count."""
    bias = values["Bias"]
    if attrs["use_peepholes"]:
        parts = f.split(bias, num=7, axis=1)
        bias = f.concat([*(f.fill_zeros_like(part) for part in parts[:4]), *parts[4:]], axis=1)
    else:
        bias = f.fill_zeros_like(bias)
    return _lstm(f, f.lookup_table(values["Embeddings"], values["Ids"]), {**values, "Bias": bias}, attrs)


# ----------------------------------------------------------------------------------------------------- sums of sequences
@composed(
    "fused_embedding_seq_pool(W: float, Ids: int) -> Out",
    wrt=["W"],
    listed=[],
    lod_aware=True,
    combiner=choice("sum"),
    padding_idx=long(-1),
    is_sparse=False,
)
def fused_embedding_seq_pool(f: Any, W: Any, Ids: Any, padding_idx: int) -> Any:
    """The sums, by sequence, of the rows of W that Ids [rows, columns] names; of each column of Ids side by side."""
    rows = f.lookup_table_v2(W, Ids, padding_idx=padding_idx)
    return f.sequence_pool(f.flatten2(rows, axis=1), pooltype="SUM")


def _pooled(f: Any, values: Any, pooltype: str) -> list[Any]:
    return [f.sequence_pool(value, pooltype=pooltype) for value in values]


@composed("fusion_seqpool_concat(X*: float) -> Out", lod_aware=True, pooltype=_POOLS, axis=1)
def fusion_seqpool_concat(f: Any, X: Any, pooltype: str, axis: int) -> Any:
    """`sequence_pool` of each X, side by side."""
    return f.concat(_pooled(f, X, pooltype), axis=axis)


@composed(
    "fusion_seqpool_cvm_concat(X*: float, CVM) -> Out",
    grad=NOT_DIFFERENTIABLE,
    lod_aware=True,
    pooltype=_POOLS,
    use_cvm=True,
    axis=1,
)
def fusion_seqpool_cvm_concat(f: Any, X: Any, CVM: Any, pooltype: str, use_cvm: bool, axis: int) -> Any:
    """`sequence_pool` of each X, then `cvm`, side by side."""
    return f.concat([f.cvm(value, CVM, use_cvm=use_cvm) for value in _pooled(f, X, pooltype)], axis=axis)


# ------------------------------------------------------------------------------------------------------------- products
@composed(
    "fusion_seqconv_eltadd_relu(X: float, Filter, Bias) -> Out, ColMat~",
    lod_aware=True,
    contextLength=required("int"),
    contextStart=required("int"),
    contextStride=required("int"),
)
def fusion_seqconv_eltadd_relu(f: Any, X: Any, Filter: Any, Bias: Any, attrs: Any) -> Any:
    """``relu(sequence_conv(X, Filter) + Bias)``."""
    out = f.sequence_conv(X, None, Filter, **attrs)
    return {"Out": f.relu(f.elementwise_add(out, f.reshape2(Bias, shape=[-1])))}


@composed("fusion_seqexpand_concat_fc(X*: float, FCWeight, FCBias?) -> Out, FCOut~", lod_aware=True, fc_activation="identity")
def fusion_seqexpand_concat_fc(f: Any, X: Any, FCWeight: Any, FCBias: Any, fc_activation: str) -> Any:
    """A product of the rows of the first X, which form sequences, each beside the row of its sequence in the other X."""
    first, *sequences = X
    rows = f.concat([first, *(f.sequence_expand_as(sequence, first) for sequence in sequences)], axis=1)
    out = f.mul(rows, FCWeight)
    return {"Out": activated(f, out if FCBias is None else f.elementwise_add(out, FCBias), fc_activation)}


# ------------------------------------------------------------------------------------------------------------ attention
_GATES = choice("sigmoid", "tanh", "relu", "identity")


def _attention_lstm(
    X: Spec, C0: Spec, H0: Spec | None, AttentionWeight: Spec, LSTMWeight: Spec, LSTMBias: Spec
) -> dict[str, Spec]:
    width, size = X.shape[1], C0.shape[1]
    for name, spec, rows, columns in (
        ("AttentionWeight", AttentionWeight, width + size, 1),
        ("LSTMWeight", LSTMWeight, width + size, 4 * size),
        ("LSTMBias", LSTMBias, 1, 4 * size),
    ):
        if -1 not in (width, size) and not (spec.ndim == 2 and fits(spec.shape[0], rows) and fits(spec.shape[1], columns)):
            raise InferenceError(f"{name} is {spec}; for X {X} and C0 {C0} it should be [{rows}, {columns}]")
    offsets = sequence.offsets_of(X, "X")
    for name, first in (("C0", C0), ("H0", H0)):
        if first is not None and offsets is not None and not (fits(first.shape[0], len(offsets) - 1) and first.ndim == 2):
            raise InferenceError(f"{name} is {first}; it should have a row for each of the {len(offsets) - 1} sequences of X")
    states = X.with_shape((X.shape[0], size))
    return {"Hidden": states, "Cell": states}


@define(
    "attention_lstm(X: float[N, M], C0: float[B, D], H0?: float[B, D], AttentionWeight: float, AttentionBias?: float[one],"
    " AttentionScalar?: float[one], AttentionScalarBias?: float[one], LSTMWeight: float, LSTMBias: float)"
    " -> Hidden, Cell, AttentionedX~, AttentionFCOut~, LSTMX~, LSTMOUT~",
    infer=_attention_lstm,
    grad=NOT_DIFFERENTIABLE,
    lod_aware=True,
    gate_activation=_GATES,
    cell_activation=choice("tanh", "sigmoid", "relu", "identity"),
    candidate_activation=choice("tanh", "sigmoid", "relu", "identity"),
)
def attention_lstm() -> None:
    """An LSTM over sequences X whose input at each step is a mean of all rows of the sequence.

    The weights of the mean are the softmax of ``relu([x, cell] @ AttentionWeight + AttentionBias)``, of each row x beside the
    cell of the step before, then times AttentionScalar, plus AttentionScalarBias and through relu again, where these are given.
    LSTMWeight has first rows for the hidden state, then for the input; its columns are forget, input and output gate, and
    candidate.
    """


@composed(
    "fused_seqpool_cvm(X*: float, CVM) -> Out*",
    wrt=["X", "CVM"],
    listed=[],
    lod_aware=True,
    pooltype=choice("SUM"),
    pad_value=0.0,
    use_cvm=True,
    cvm_offset=choice(2),
)
def fused_seqpool_cvm(f: Any, X: Any, CVM: Any, use_cvm: bool, pad_value: float) -> Any:
    """`sequence_pool` of each X to sums, `pad_value` where a sequence is empty, then `cvm`."""
    return {"Out": [f.cvm(f.sequence_pool(x, pooltype="SUM", pad_value=pad_value), CVM, use_cvm=use_cvm) for x in X]}
