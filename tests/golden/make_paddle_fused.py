"""Writes paddle_fused.npz: ops of Paddle's passes for inference that Paddle 2.6.2 runs on a CPU.

Runs in an environment of its own that has paddlepaddle==2.6.2 and numpy<2.
"""

from pathlib import Path

import numpy as np
from paddle_ops import write

rng = np.random.RandomState(5)
LOD = [[0, 2, 3, 6]]
F = "float32"


def data(*shape):
    return rng.uniform(-1, 1, shape).astype(F)


X = (data(6, 4), LOD)
GRU = {"X": X, "WeightX": data(4, 9), "WeightH": data(3, 9), "Bias": data(1, 9)}
GRU_OUT = {"Hidden": F, "ReorderedH0": F, "XX": F, "BatchedInput": F, "BatchedOut": F}
LSTM = {"X": X, "WeightX": data(4, 12), "WeightH": data(3, 12)}
LSTM_OUT = dict.fromkeys(("Hidden", "Cell", "XX", "BatchedInput", "BatchedHidden", "BatchedCell"), F)
LSTM_OUT |= dict.fromkeys(("ReorderedH0", "ReorderedC0", "CheckedCell"), F)
FIRST = {"H0": data(3, 3), "C0": data(3, 3)}
POOLED = {"X": [(data(6, 4) + 1.5, LOD), (data(6, 4) + 1.5, LOD)]}
CONV = {"contextLength": 3, "contextStart": -1, "contextStride": 1}
CASES = [
    ("fc", {"Input": data(3, 4), "W": data(4, 5), "Bias": data(1, 5)}, {"in_num_col_dims": 1}, {"Out": F}, []),
    (
        "fc",
        {"Input": data(2, 3, 4), "W": data(4, 5), "Bias": data(5)},
        {"in_num_col_dims": 2, "activation_type": "relu"},
        {"Out": F},
        [],
    ),
    ("fc", {"Input": data(3, 4), "W": data(8, 9), "Bias": data(1, 5)}, {"padding_weights": True}, {"Out": F}, []),
    (
        "fusion_repeated_fc_relu",
        {"X": data(3, 4), "W": [data(4, 5), data(5, 2)], "Bias": [data(1, 5), data(1, 2)]},
        {},
        {"Out": F, "ReluOut": [F]},
        [],
    ),
    (
        "fusion_squared_mat_sub",
        {"X": data(3, 4), "Y": data(4, 2)},
        {"scalar": 0.5},
        {"Out": F, "SquaredX": F, "SquaredY": F, "SquaredXY": F},
        [],
    ),
    ("fusion_gru", GRU, {}, GRU_OUT, []),
    ("fusion_gru", {**GRU, "H0": data(3, 3)}, {"is_reverse": True}, GRU_OUT, []),
    ("fusion_gru", GRU, {"use_seq": False}, GRU_OUT, []),
    ("fusion_lstm", {**LSTM, "Bias": data(1, 12)}, {"use_peepholes": False}, LSTM_OUT, []),
    ("fusion_lstm", {**LSTM, **FIRST, "Bias": data(1, 21)}, {"use_peepholes": True, "is_reverse": True}, LSTM_OUT, []),
    ("fused_embedding_seq_pool", {"W": data(7, 3), "Ids": (rng.randint(0, 7, (6, 1)), LOD)}, {"combiner": "sum"}, {"Out": F}, []),
    *[("fusion_seqpool_concat", POOLED, {"pooltype": kind, "axis": 1}, {"Out": F}, []) for kind in ("SUM", "AVERAGE", "SQRT")],
    (
        "fusion_seqpool_cvm_concat",
        {**POOLED, "CVM": np.abs(data(3, 2))},
        {"pooltype": "SUM", "use_cvm": True, "axis": 1},
        {"Out": F},
        [],
    ),
    ("fusion_seqconv_eltadd_relu", {"X": X, "Filter": data(12, 5), "Bias": data(1, 5)}, CONV, {"Out": F, "ColMat": F}, []),
    (
        "fusion_seqexpand_concat_fc",
        {"X": [X, (data(3, 2), [[0, 1, 2, 3]])], "FCWeight": data(6, 5), "FCBias": data(1, 5)},
        {"fc_activation": "tanh"},
        {"Out": F, "FCOut": F},
        [],
    ),
    *[
        (
            name,
            {"X": data(2, 3), "Y": data(2, 3)},
            {"functor_list": functors, "axis": -1, "scale": 1.5, "save_intermediate_out": True},
            {"Out": F, "IntermediateOut": F},
            [],
        )
        for name in ("fused_elemwise_activation", "fused_elemwise_add_activation")
        for functors in (["elementwise_add", "relu"], ["relu", "elementwise_add"], ["scale", "elementwise_add"])
    ],
]
write(str(Path(__file__).with_name("paddle_fused.npz")), CASES)
