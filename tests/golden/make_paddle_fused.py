"""Writes paddle_fused.npz: fused ops, and others of Paddle 2.x, that Paddle 2.6.2 runs on a CPU.

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
ROW_LSTM = {"Ids": (rng.randint(0, 7, (6, 1)), LOD), "Embeddings": data(7, 12), "WeightH": data(3, 12)}
ROW_LSTM_OUT = {name: kind for name, kind in LSTM_OUT.items() if name != "CheckedCell"}
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
    ("fused_embedding_fc_lstm", {**ROW_LSTM, "Bias": data(1, 12)}, {"use_peepholes": False}, ROW_LSTM_OUT, []),
    ("fused_embedding_fc_lstm", {**ROW_LSTM, **FIRST, "Bias": data(1, 21)}, {"use_peepholes": True}, ROW_LSTM_OUT, []),
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
            ["X", "Y"],
        )
        for name in ("fused_elemwise_activation", "fused_elemwise_add_activation")
        for functors in (["elementwise_add", "relu"], ["relu", "elementwise_add"], ["scale", "elementwise_add"])
    ],
]
CORNERS = rng.uniform(0, 5, (30, 2)).astype(F)
BOXES = np.concatenate([CORNERS, CORNERS + rng.uniform(1, 3, (30, 2)).astype(F)], 1)
BYTES = rng.randint(-128, 127, (3, 4)).astype("int8")
PACKED = np.concatenate([np.sort(data(5, 2), 1), rng.randint(0, 256, (5, 8)).astype("uint8").view(F)], 1)
SPARSE = {"Param": data(4, 3), "Grad": data(2, 3), "Velocity": data(4, 3), "Index": np.array([3, 1])}
DECAY = {"mu": 0.9, "axis": 0, "use_nesterov": False, "regularization_method": "l2_decay", "regularization_coeff": 0.2}
IMAGE = {"Input": data(1, 2, 4, 4), "Filter": data(3, 2, 3, 3), "Bias": data(3)}
CASES += [
    *[("nms", {"Boxes": BOXES}, {"iou_threshold": threshold}, {"KeepBoxesIdxs": "int64"}, []) for threshold in (0.1, 0.3, 0.7)],
    ("quantize", {"Input": data(3, 4)}, {"Scale": 40.0, "Shift": 100.0}, {"Output": "uint8"}, []),
    ("dequantize", {"Input": BYTES.astype("uint8")}, {"Scale": 40.0, "Shift": 100.0}, {"Output": F}, []),
    ("dequantize_abs_max", {"X": BYTES, "Scale": data(1)}, {"max_range": 127.0}, {"Out": F}, []),
    ("dequantize_log", {"X": BYTES, "Dict": data(128)}, {}, {"Out": F}, []),
    ("lookup_table_dequant", {"W": PACKED, "Ids": np.array([[3], [0], [4]])}, {"padding_idx": -1}, {"Out": F}, []),
    ("sparse_momentum", {**SPARSE, "LearningRate": data(1)}, DECAY, {"ParamOut": F, "VelocityOut": F}, []),
    *[("identity_loss", {"X": data(3, 4)}, {"reduction": kind}, {"Out": F}, []) for kind in (0, 1, 2)],
    ("fused_softmax_mask", {"X": data(2, 2, 3, 8), "Mask": data(2, 1, 3, 8)}, {}, {"Out": F}, []),
    ("self_dp_attention", {"X": data(2, 3, 3, 2, 2)}, {"alpha": 0.5, "head_number": 2}, {"Out": F}, []),
    ("fused_conv2d", IMAGE, {"fuse_activation": "relu", "use_mkldnn": True}, {"Output": F}, []),
    ("memcpy", {"X": data(2, 3)}, {"dst_place_type": 0}, {"Out": F}, []),
]
LODS = [[0, 24, 36]], [[0, 3, 5]], [[0, 4, 7]]  # two images of two channels, 3 by 4 and 2 by 3
IMAGES = {name: (data(lod[0][-1], 1), lod) for name, lod in zip(("X", "ROW", "COLUMN"), LODS, strict=True)}
WINDOW = {"InputChannel": 2, "OutputChannel": 3, "KernelH": 3, "KernelW": 2, "StrideH": 2, "StrideW": 1}
LARGER = {**WINDOW, "KernelH": 2, "KernelW": 4, "StrideH": 1, "StrideW": 2}
CASES += [
    ("var_conv_2d", {**IMAGES, "W": data(3, 12)}, WINDOW, {"Out": F, "Col": F}, ["X", "W"]),
    ("var_conv_2d", {**IMAGES, "W": data(3, 16)}, LARGER, {"Out": F, "Col": F}, ["X", "W"]),
]
write(str(Path(__file__).with_name("paddle_fused.npz")), CASES)
