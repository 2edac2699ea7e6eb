"""Samples of `fluid.ops.fused_sequence`, by the samples' statements of the ops that they are made of."""

from __future__ import annotations

from typing import Any

import numpy as np

from .base import Data, Sample, add
from .fused import ACTIVATIONS, relu
from .rnn import gru, lods, lstmp
from .sequence import convolved, parts

data = Data("fused_sequence")
LOD = lods["Input"]
ROWS = {"X": LOD}

GRU = {"X": data(6, 3), "WeightX": data(3, 6), "WeightH": data(2, 6)}


def joined_gru(X: Any, WeightX: Any, WeightH: Any, H0: Any = None, Bias: Any = None, **attrs: Any) -> Any:
    return {"Hidden": gru(X @ WeightX, WeightH, H0, Bias, **attrs)["Hidden"]}


add(
    "fusion_gru",
    Sample(GRU, {}, joined_gru, lods=ROWS),
    Sample({**GRU, "H0": data(4, 2), "Bias": data(1, 6)}, {"is_reverse": True, "origin_mode": True}, joined_gru, lods=ROWS),
)


def many_grus(X: Any, WeightX: Any, WeightH: Any, Bias: Any = None, layers: int = 1) -> Any:
    for layer in range(layers):
        both = []
        for place in (2 * layer, 2 * layer + 1):
            bias = Bias[place] if Bias else None
            both.append(gru(X @ WeightX[place], WeightH[place], None, bias, is_reverse=place % 2 == 1)["Hidden"])
        X = np.concatenate(both, 1)
    return X


add(
    "multi_gru",
    Sample({"X": data(6, 3), "WeightX": [data(3, 6), data(3, 6)], "WeightH": [data(2, 6), data(2, 6)]}, {}, many_grus, lods=ROWS),
    Sample(
        {
            "X": data(6, 3),
            "WeightX": [data(3, 6), data(3, 6), data(4, 6), data(4, 6)],
            "WeightH": [data(2, 6) for _ in range(4)],
            "Bias": [data(1, 6) for _ in range(4)],
        },
        {"layers": 2},
        many_grus,
        lods=ROWS,
    ),
)


def joined_lstm(X: Any, WeightX: Any, WeightH: Any, Bias: Any, **more: Any) -> Any:
    made = lstmp(Input=X @ WeightX, Weight=WeightH, Bias=Bias, **more)
    return {"Hidden": made["Hidden"], "Cell": made["Cell"]}


LSTM = {"X": data(6, 3), "WeightX": data(3, 8), "WeightH": data(2, 8), "Bias": data(1, 14)}
FIRST = {"H0": data(4, 2), "C0": data(4, 2)}
add(
    "fusion_lstm",
    Sample(LSTM, {}, joined_lstm, lods=ROWS),
    Sample({**LSTM, **FIRST, "Bias": data(1, 8)}, {"use_peepholes": False, "is_reverse": True}, joined_lstm, lods=ROWS),
)


# ----------------------------------------------------------------------------------------------------- sums of sequences
def summed_rows(W: Any, Ids: Any, padding_idx: int = -1) -> Any:
    rows = W[Ids] * (Ids != padding_idx)[..., None]
    return np.stack([part.sum(0).reshape(-1) for part in parts(rows, LOD)])


TABLE = {"W": data(5, 3), "Ids": data.ints(6, 2, high=5)}
for attrs in ({}, {"padding_idx": 2}):
    add("fused_embedding_seq_pool", Sample(TABLE, attrs, summed_rows, lods={"Ids": LOD}))

POOLS = {
    "SUM": lambda x: x.sum(0),
    "AVERAGE": lambda x: x.mean(0) if len(x) else x.sum(0),
    "SQRT": lambda x: x.sum(0) / np.sqrt(max(len(x), 1)).astype(x.dtype),
}


def pooled(X: Any, pooltype: str = "SUM") -> Any:
    return np.concatenate([np.stack([POOLS[pooltype](part) for part in parts(x, LOD)]) for x in X], 1)


for pooltype in POOLS:
    add(
        "fusion_seqpool_concat",
        Sample({"X": [data(6, 2), data(6, 3)]}, {"pooltype": pooltype}, pooled, lods={"X": [LOD, LOD]}),
    )


def pooled_and_counted(X: Any, CVM: Any, use_cvm: bool = True) -> Any:
    made = []
    for x in X:
        one = pooled([x])
        show = np.log(one[:, :1] + 1)
        made.append(np.concatenate([show, np.log(one[:, 1:2] + 1) - show, one[:, 2:]], 1) if use_cvm else one[:, 2:])
    return np.concatenate(made, 1)


for use_cvm in (True, False):
    inputs = {"X": [data(6, 4) + 1.5, data(6, 3) + 1.5], "CVM": data(4, 2)}
    sample = Sample(inputs, {"use_cvm": use_cvm}, pooled_and_counted, lods={"X": [LOD, LOD]}, orders=0)
    add("fusion_seqpool_cvm_concat", sample)


# ------------------------------------------------------------------------------------------------------------- products
def convolved_and_cut(X: Any, Filter: Any, Bias: Any, contextLength: int, contextStart: int, contextStride: int) -> Any:
    return {"Out": relu(convolved(X, Filter, contextStart, contextLength, LOD) + Bias.reshape(-1))}


add(
    "fusion_seqconv_eltadd_relu",
    Sample(
        {"X": data(6, 2), "Filter": data(6, 3), "Bias": data(1, 3) + 2},
        {"contextLength": 3, "contextStart": -1, "contextStride": 1},
        convolved_and_cut,
        lods=ROWS,
    ),
)


def beside(X: Any, FCWeight: Any, FCBias: Any = 0, fc_activation: str = "identity") -> Any:
    lengths = np.diff(LOD[-1])
    rows = np.concatenate([X[0], *(np.repeat(x, lengths, 0) for x in X[1:])], 1)
    return {"Out": {**ACTIVATIONS, "identity": lambda x: x}[fc_activation](rows @ FCWeight + FCBias)}


for attrs in ({}, {"fc_activation": "tanh"}):
    inputs = {"X": [data(6, 2), data(4, 3), data(4, 1)], "FCWeight": data(6, 3), "FCBias": data(1, 3)}
    add("fusion_seqexpand_concat_fc", Sample(inputs, attrs, beside, lods={"X": [LOD, (), ()]}))


def rows_lstm(Ids: Any, Embeddings: Any, WeightH: Any, Bias: Any, use_peepholes: bool = True, **more: Any) -> Any:
    bias = np.concatenate([np.zeros((1, 8)), Bias[:, 8:]], 1).astype(Bias.dtype)
    made = lstmp(Input=Embeddings[Ids[:, 0]], Weight=WeightH, Bias=bias, use_peepholes=use_peepholes, **more)
    return {"Hidden": made["Hidden"], "Cell": made["Cell"]}


ROW_LSTM = {"Ids": data.ints(6, 1, high=5), "Embeddings": data(5, 8), "WeightH": data(2, 8)}
add(
    "fused_embedding_fc_lstm",
    Sample({**ROW_LSTM, "Bias": data(1, 14)}, {}, rows_lstm, lods={"Ids": LOD}),
    Sample({**ROW_LSTM, **FIRST, "Bias": data(1, 8)}, {"use_peepholes": False}, rows_lstm, lods={"Ids": LOD}),
)


# ------------------------------------------------------------------------------------------------------------ attention
def attended(
    X: Any, C0: Any, AttentionWeight: Any, LSTMWeight: Any, LSTMBias: Any, H0: Any = None, AttentionBias: Any = 0,
    AttentionScalar: Any = None, AttentionScalarBias: Any = 0, gate_activation: str = "sigmoid",
) -> Any:  # fmt: skip
    gate, size, states = {**ACTIVATIONS, "identity": lambda x: x}[gate_activation], C0.shape[1], []
    for number, rows in enumerate(parts(X, LOD)):
        h, c = np.zeros(size, X.dtype) if H0 is None else H0[number], C0[number]
        for _ in rows:
            beside = np.concatenate([rows, np.tile(c, (len(rows), 1))], 1)
            scores = relu(beside @ AttentionWeight + AttentionBias)
            scores = scores if AttentionScalar is None else relu(scores * AttentionScalar + AttentionScalarBias)
            mean = (np.exp(scores) / np.exp(scores).sum() * rows).sum(0)
            gates = np.concatenate([h, mean]) @ LSTMWeight + LSTMBias[0]
            f, i, o, new = *(gate(part) for part in np.split(gates[: 3 * size], 3)), np.tanh(gates[3 * size :])
            c = f * c + i * new
            h = o * np.tanh(c)
            states.append((h, c))
    hidden, cells = (np.array(each, X.dtype) for each in zip(*states, strict=True))
    return {"Hidden": hidden, "Cell": cells}


NET = {"X": data(6, 3), "C0": data(4, 2), "AttentionWeight": data(5, 1), "LSTMWeight": data(5, 8), "LSTMBias": data(1, 8)}
SCALED = {"H0": data(4, 2), "AttentionBias": data(1, 1), "AttentionScalar": data(1, 1) + 2, "AttentionScalarBias": data(1, 1)}
add(
    "attention_lstm",
    Sample(NET, {}, attended, lods=ROWS),
    Sample({**NET, **SCALED}, {"gate_activation": "tanh"}, attended, lods=ROWS),
)

for use_cvm in (True, False):
    inputs = {"X": [data(6, 4) + 1.5, data(6, 3) + 1.5], "CVM": data(4, 2)}

    def separate(X: Any, CVM: Any, use_cvm: bool = True) -> Any:
        return {"Out": [pooled_and_counted([x], CVM, use_cvm) for x in X]}

    add("fused_seqpool_cvm", Sample(inputs, {"use_cvm": use_cvm}, separate, lods={"X": [LOD, LOD]}, orders=0))
