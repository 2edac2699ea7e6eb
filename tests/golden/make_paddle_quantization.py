"""Writes paddle_quantization.npz: quantization-aware ops run by Paddle 2.6.2, with gradients.

Runs in an environment of its own that has paddlepaddle==2.6.2 and numpy<2.
"""

import sys

import numpy as np
from paddle_ops import write

rng = np.random.RandomState(3)
X = rng.standard_normal((3, 4, 2)).astype("float32")
HALVES = np.array([[254, 1, 3, 5], [7, -1, -3, 127]], "float32") / 2
OUT = {"Out": "float32", "OutScale": "float32"}
STATES = {"OutState": "float32", "OutAccum": "float32"}


def number(value, dtype="float32"):
    return np.array([value], dtype)


AVERAGE = {"X": X, "InScale": number(1.6), "InAccum": number(1.5), "InState": number(1.25)}
ONE = {"Scale": number(1.2), "ZeroPoint": number(0)}
EACH = {"Scale": np.array([1.0, 1.2, 0.5, 3.0], "float32"), "ZeroPoint": np.zeros(4, "float32")}
CASES = []
for away in (0, 1):
    for x in (X, HALVES, 0 * X):
        CASES.append(("fake_quantize_abs_max", {"X": x}, {"bit_length": 8, "round_type": away}, OUT, []))
        CASES.append(("fake_quantize_dequantize_abs_max", {"X": x}, {"bit_length": 4, "round_type": away}, OUT, ["X"]))
    for axis in (0, 1):
        attrs = {"bit_length": 8, "quant_axis": axis, "round_type": away}
        CASES.append(("fake_channel_wise_quantize_abs_max", {"X": X}, attrs, OUT, []))
        CASES.append(("fake_channel_wise_quantize_dequantize_abs_max", {"X": X}, attrs, OUT, ["X"]))
    for back in (False, True):
        name = f"fake_quantize{'_dequantize' * back}_moving_average_abs_max"
        for moving in (0.9, 0.5):
            attrs = {"bit_length": 8, "moving_rate": moving, "round_type": away}
            CASES.append((name, AVERAGE, attrs, {**OUT, **STATES}, ["X"] * back))
        CASES.append((name, AVERAGE, {"bit_length": 8, "is_test": True, "round_type": away}, OUT, ["X"] * back))
        for scale in (1e-5, 0.0):
            inputs = {"X": X, "InScale": number(scale)}
            CASES.append((name, inputs, {"is_test": True, "round_type": 1}, OUT, []))
    for inputs, axis in ((ONE, -1), (EACH, 1)):
        attrs = {"bit_length": 8, "quant_axis": axis, "round_type": away}
        CASES.append(("quantize_linear", {"X": X, **inputs}, attrs, {"Y": "float32"}, []))
CASES.append(("moving_average_abs_max_scale", AVERAGE | {}, {"moving_rate": 0.9}, {**OUT, **STATES}, ["X"]))
CASES[-1][1].pop("InScale")
moving = {"X": X, **ONE, "InAccum": number(1.5), "InState": number(1.25)}
whole = {"Y": "float32", "OutScale": "float32", **STATES}
CASES.append(("quantize_linear", moving, {"quant_axis": -1, "is_test": False}, whole, []))
CASES.append(
    ("quantize_linear", {"X": X, **EACH}, {"quant_axis": 1, "is_test": False}, {"Y": "float32", "OutScale": "float32"}, [])
)
CASES.append(("quantize_linear", {"X": X, **ONE}, {"quant_axis": -1, "only_observer": True}, {"Y": "float32"}, []))
BYTES = rng.randint(-128, 128, (3, 4, 2))
for dtype in ("int8", "float32"):
    for inputs, axis in ((ONE, -1), (EACH, 1)):
        CASES.append(("dequantize_linear", {"X": BYTES.astype(dtype), **inputs}, {"quant_axis": axis}, {"Y": "float32"}, []))
INTEGERS = BYTES.astype("float32")
CASES.append(("fake_dequantize_max_abs", {"X": INTEGERS, "Scale": number(2.0)}, {"max_range": 127.0}, {"Out": "float32"}, []))
for scales, attrs in (
    ([3], {"quant_bits": [8]}),
    ([4], {"quant_bits": [5], "quant_axis": 1}),
    ([4, 1], {"quant_bits": [8, 8]}),
    ([2, 1], {"quant_bits": [8, 4], "x_num_col_dims": 2}),
):
    inputs = {"X": INTEGERS, "Scales": [rng.uniform(0.5, 2, size).astype("float32") for size in scales]}
    CASES.append(("fake_channel_wise_dequantize_max_abs", inputs, attrs, {"Out": "float32"}, []))
for batch, former in ((3, 1.6), (5, 3.6)):
    inputs = {"X": X, "InScale": number(former), "Iter": number(batch, "int64")}
    CASES.append(("fake_quantize_range_abs_max", inputs, {"window_size": 1}, {**OUT, "OutScales": "float32"}, []))
write(sys.argv[1], CASES)
