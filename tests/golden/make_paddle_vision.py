"""Makes `paddle_vision.npz`: what Paddle 2.6 gives for ops on images, with gradients. Run it where Paddle is installed.

The file holds, under ``cases``, a JSON list of ``{"op", "attrs", "inputs", "outputs", "grads"}`` and, for the n-th case, arrays
``n.in.Slot`` (``n.in.Slot.i`` for slots of many), ``n.out.Slot``, ``n.cotangent`` (of the first output) and ``n.grad.Slot``:
one after the other in ``float32`` and ``int32``, as ``layout``, a JSON list of name, type and shape, says.

Left out is what Paddle 2.6 does not do right on a CPU: the gradients of spectral_norm, of an interpolation to a size (OutSize,
SizeTensor) that is not `scale` times the input's, and of shuffle_channel where there are not as many groups as channels in
a group (none of these is the derivative); and maxima over adaptive windows by pool2d and pool3d (their windows are not
adaptive; those of max_pool2d_with_index are).
"""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import numpy as np
import paddle

paddle.enable_static()
rng = np.random.default_rng(7)
arrays: dict[str, Any] = {}
cases: list[dict[str, Any]] = []


def data(*shape: int, low: float = -1.0, high: float = 1.0) -> Any:
    return rng.uniform(low, high, shape).astype("float32")


def ints(*values: int) -> Any:
    return np.array(values, "int32")


def case(op: str, inputs: dict[str, Any], outputs: str, attrs: dict[str, Any], wrt: str = "X") -> None:
    """Run an op on Paddle; `outputs` and `wrt` are slots, in `outputs` as ``Slot:dtype`` where not float32."""
    main, startup = paddle.static.Program(), paddle.static.Program()
    exe = paddle.static.Executor(paddle.CPUPlace())
    slots = [item.split(":") for item in outputs.split()]
    with paddle.static.program_guard(main, startup):
        block = main.global_block()
        feed, made = {}, {}
        for slot, value in inputs.items():
            made[slot] = []
            for i, array in enumerate(value if isinstance(value, list) else [value]):
                name = f"{slot}.{i}"
                floats = array.dtype.kind == "f"
                var = block.create_var(
                    name=name,
                    shape=array.shape,
                    dtype=str(array.dtype),
                    stop_gradient=not floats,
                    is_data=True,
                    need_check_feed=False,
                )
                feed[name] = array
                made[slot].append(var)
        out = {slot: [block.create_var(name="out." + slot, dtype=dtype[0] if dtype else "float32")] for slot, *dtype in slots}
        block.append_op(type=op, inputs=made, outputs=out, attrs=dict(attrs))
        fetch = [out[slot][0] for slot, *_ in slots]
        first = exe.run(main, feed=feed, fetch_list=fetch)
        grads: list[Any] = []
        if wrt:
            cotangent = data(*first[0].shape)
            fetch[0].desc.set_shape(cotangent.shape)  # where values decide, it is not inferred
            factor = block.create_var(
                name="cotangent", shape=cotangent.shape, dtype="float32", is_data=True, need_check_feed=False
            )
            names = paddle.static.gradients([fetch[0]], [made[slot][0] for slot in wrt.split()], [factor])
            grads = exe.run(main, feed={**feed, "cotangent": cotangent}, fetch_list=names)
    n = len(cases)
    for slot, value in inputs.items():
        if isinstance(value, list):
            arrays.update((f"{n}.in.{slot}.{i}", item) for i, item in enumerate(value))
        else:
            arrays[f"{n}.in.{slot}"] = value
    arrays.update((f"{n}.out.{slot}", value) for (slot, *_), value in zip(slots, first, strict=True))
    if wrt:
        arrays[f"{n}.cotangent"] = cotangent
        arrays.update((f"{n}.grad.{slot}", value) for slot, value in zip(wrt.split(), grads, strict=True))
    shown = {slot: len(value) if isinstance(value, list) else 0 for slot, value in inputs.items()}
    cases.append({"op": op, "attrs": attrs, "inputs": shown, "outputs": [slot for slot, *_ in slots], "grads": wrt.split()})


# ------------------------------------------------------------------------------------------------------------ resizing
for aligned, mode in itertools.product((True, False), (0, 1)):
    how = {"align_corners": aligned, "align_mode": mode, "data_layout": "NCHW"}
    for method, size, scale in (
        ("linear", {"out_w": 7}, [1.6]),
        ("bilinear", {"out_h": 5, "out_w": 2}, [1.5, 2.0]),
        ("nearest", {"out_h": 5, "out_w": 7}, [1.5, 0.6]),
        ("bicubic", {"out_h": 5, "out_w": 7}, [1.5, 2.0]),
        ("trilinear", {"out_d": 3, "out_h": 1, "out_w": 7}, [1.5, 2.0, 1.2]),
    ):
        X = data(1, 2, 3, 2, 4)[:, :, : (1 if method == "trilinear" else 3)]
        X = {"linear": X[:, :, 0, 0], "trilinear": X}.get(method, X[:, :, :, 0])
        X = np.ascontiguousarray(X)
        for version in ("", "_v2"):
            case(f"{method}_interp{version}", {"X": X}, "Out", {**how, "interp_method": method, **size})
            by = scale if version else 1.6
            case(f"{method}_interp{version}", {"X": X}, "Out", {**how, "interp_method": method, "scale": by})
plain = {"align_corners": False, "align_mode": 1, "data_layout": "NCHW", "interp_method": "bilinear"}
X = data(1, 1, 3, 5)
case("bilinear_interp_v2", {"X": X, "OutSize": ints(3, 7)}, "Out", {**plain, "scale": [1.0, 1.5]}, "")
case("bilinear_interp_v2", {"X": X, "SizeTensor": [ints(3), ints(7)]}, "Out", {**plain, "scale": [1.0, 1.5]}, "")
case("bilinear_interp_v2", {"X": X, "Scale": np.array([1.0, 1.5], "float32")}, "Out", {**plain, "scale": []})
case("bilinear_interp_v2", {"X": data(1, 3, 4, 2)}, "Out", {**plain, "data_layout": "NHWC", "out_h": 5, "out_w": 3})
case(
    "nearest_interp_v2",
    {"X": data(1, 1, 2, 3, 2)},
    "Out",
    {**plain, "interp_method": "nearest", "out_d": 3, "out_h": 2, "out_w": 5},
)

# ------------------------------------------------------------------------------------------------------ sampling by grid
for aligned, mode, padding in itertools.product((True, False), ("bilinear", "nearest"), ("zeros", "border", "reflection")):
    how = {"align_corners": aligned, "mode": mode, "padding_mode": padding}
    inputs = {"X": data(2, 2, 3, 4), "Grid": data(2, 3, 3, 2, low=-2.5, high=2.5)}
    case("grid_sampler", inputs, "Output", how, "X Grid")
for aligned, shape in itertools.product((True, False), ([2, 1, 3, 4], [2, 3, 2, 5])):
    case("affine_grid", {"Theta": data(2, 2, 3)}, "Output", {"align_corners": aligned, "output_shape": shape}, "Theta")

# ------------------------------------------------------------------------------------------------------------- patches
patch = {"kernel_sizes": [3, 2], "strides": [2, 1], "paddings": [1, 0, 2, 1], "dilations": [1, 2]}
case("unfold", {"X": data(2, 2, 5, 6)}, "Y", patch)
case("fold", {"X": data(1, 12, 12)}, "Y", {**patch, "output_sizes": [5, 6], "paddings": [1, 0, 1, 0]})

# ------------------------------------------------------------------------------------------------------------- pooling
window: dict[str, Any] = {
    "ksize": [3, 2],
    "strides": [2, 2],
    "paddings": [1, 0],
    "ceil_mode": False,
    "exclusive": True,
    "adaptive": False,
    "global_pooling": False,
    "padding_algorithm": "EXPLICIT",
    "data_format": "NCHW",
}
volume = {**window, "ksize": [2, 3, 2], "strides": [2, 2, 1], "paddings": [1, 1, 0], "data_format": "NCDHW"}
for kind, ceil, exclusive in itertools.product(("max", "avg"), (False, True), (False, True)):
    more = {"pooling_type": kind, "ceil_mode": ceil, "exclusive": exclusive}
    case("pool2d", {"X": data(1, 2, 6, 7)}, "Out", {**window, **more})
    case("pool3d", {"X": data(1, 1, 4, 5, 4)}, "Out", {**volume, **more})
for kind in ("max", "avg"):
    same = {"pooling_type": kind, "padding_algorithm": "SAME", "data_format": "NDHWC", "paddings": [0, 0, 0]}
    case("pool3d", {"X": data(1, 3, 5, 4, 2)}, "Out", {**volume, **same})
    case("pool3d", {"X": data(1, 2, 3, 2, 2)}, "Out", {**volume, "pooling_type": kind, "global_pooling": True})
adaptive = {"pooling_type": "avg", "adaptive": True}
case("pool2d", {"X": data(1, 2, 5, 7)}, "Out", {**window, **adaptive, "paddings": [0, 0]})
case("pool3d", {"X": data(1, 1, 3, 5, 4)}, "Out", {**volume, **adaptive, "paddings": [0, 0, 0]})
index = {"ksize": [3, 2], "strides": [2, 1], "paddings": [1, 0], "adaptive": False, "global_pooling": False}
case("max_pool2d_with_index", {"X": data(1, 2, 5, 4)}, "Out Mask:int32", index)
case("max_pool2d_with_index", {"X": data(1, 2, 5, 4)}, "Out Mask:int32", {**index, "adaptive": True})
index = {"ksize": [3, 2, 2], "strides": [2, 1, 2], "paddings": [1, 0, 1], "adaptive": False, "global_pooling": False}
case("max_pool3d_with_index", {"X": data(1, 2, 3, 3, 4)}, "Out Mask:int32", index)
back = {"ksize": [2, 2], "strides": [2, 2], "paddings": [0, 0], "output_size": [4, 6], "data_format": "NCHW"}
places = np.array([[[[1, 3, 10], [13, 20, 16]]]], "int32")
case("unpool", {"X": data(1, 1, 2, 3), "Indices": places}, "Out", {**back, "unpooling_type": "max"})

# -------------------------------------------------------------------------------------------------------- convolutions
conv = {"strides": [2, 1, 1], "paddings": [1, 0, 1], "dilations": [1, 2, 1], "groups": 2, "padding_algorithm": "EXPLICIT"}
conv["data_format"] = "NCDHW"
case("conv3d", {"Input": data(1, 2, 4, 5, 3), "Filter": data(4, 1, 2, 2, 3)}, "Output", conv, "Input Filter")
sizes = {"output_size": [], "output_padding": []}
inputs = {"Input": data(1, 4, 2, 3, 2), "Filter": data(4, 1, 2, 2, 3)}
case("conv3d_transpose", inputs, "Output", {**conv, **sizes, "data_format": "NCHW"}, "Input Filter")
conv = {
    "strides": [2, 1],
    "paddings": [1, 0],
    "dilations": [1, 1],
    "groups": 3,
    "padding_algorithm": "EXPLICIT",
    "data_format": "NCHW",
}
inputs = {"Input": data(1, 3, 3, 4), "Filter": data(3, 1, 3, 2)}
case("depthwise_conv2d_transpose", inputs, "Output", {**conv, "output_padding": [1, 0], "output_size": []}, "Input Filter")

# ------------------------------------------------------------------------------------------------------- normalization
for n, data_format in ((5, "NCHW"), (3, "NHWC")):
    how = {"n": n, "k": 1.5, "alpha": 0.3, "beta": 0.75, "data_format": data_format}
    case("lrn", {"X": data(2, 6, 2, 3)}, "Out MidOut", how)
statistics = {"BatchSize": data(3, low=5, high=9), "BatchSum": data(3), "BatchSquareSum": data(3, low=2, high=4)}
how = {"epsilon": 1e-4, "slot_dim": -1, "summary_decay_rate": 0.9999999, "enable_scale_and_shift": False, "data_layout": "NCHW"}
case("data_norm", {"X": data(4, 3), **statistics}, "Y Means Scales", {**how, "sync_stats": False})
for dim, rounds in ((0, 1), (1, 3), (0, 0)):
    Weight = data(3, 4, 2)
    inputs = {"Weight": Weight, "U": data(Weight.shape[dim]), "V": data(24 // Weight.shape[dim])}
    case("spectral_norm", inputs, "Out", {"dim": dim, "power_iters": rounds, "eps": 1e-12}, "")
inputs = {"X": data(2, 4, 3, 2), "Scale": data(4), "Bias": data(4)}
case("group_norm", inputs, "Y Mean Variance", {"groups": 2, "epsilon": 1e-3, "data_layout": "NCHW"}, "X Scale Bias")
case("instance_norm", inputs, "Y SavedMean SavedVariance", {"epsilon": 1e-3}, "X Scale Bias")
case("affine_channel", inputs, "Out", {"data_layout": "NCHW"}, "X Scale Bias")
for mode, size in (("all", (1,)), ("channel", (1, 4, 1, 1)), ("element", (1, 4, 3, 2))):
    case("prelu", {"X": data(2, 4, 3, 2), "Alpha": data(*size)}, "Out", {"mode": mode, "data_format": "NCHW"}, "X Alpha")

# ------------------------------------------------------------------------------------------------- channels and places
X = data(2, 8, 2, 4)
case("maxout", {"X": X}, "Out", {"groups": 4, "axis": 1})
case("pixel_shuffle", {"X": X}, "Out", {"upscale_factor": 2, "data_format": "NCHW"})
case("pixel_unshuffle", {"X": X}, "Out", {"downscale_factor": 2, "data_format": "NCHW"})
case("pixel_shuffle", {"X": X}, "Out", {"upscale_factor": 2, "data_format": "NHWC"})
case("shuffle_channel", {"X": X}, "Out", {"group": 2}, "")
case("shuffle_channel", {"X": data(2, 4, 2, 1)}, "Out", {"group": 2})
case("channel_shuffle", {"X": X}, "Out", {"groups": 2, "data_format": "NHWC"})
case("temporal_shift", {"X": data(4, 5, 1, 2)}, "Out", {"seg_num": 2, "shift_ratio": 0.3, "data_format": "NCHW"})
case("fsp", {"X": X, "Y": data(2, 3, 2, 4)}, "Out", {}, "X Y")
case("similarity_focus", {"X": data(2, 3, 2, 4)}, "Out", {"axis": 1, "indexes": [0, 2]}, "")
case("crop", {"X": data(4, 5)}, "Out", {"shape": [2, 3], "offsets": [1, 2]})
case("crop_tensor", {"X": data(4, 5), "Offsets": ints(2, 1)}, "Out", {"shape": [2, -1], "offsets": []})

if __name__ == "__main__":
    layout = [[name, str(array.dtype), array.shape] for name, array in arrays.items()]
    flat = {
        dtype: np.concatenate([array.reshape(-1) for array in arrays.values() if array.dtype == dtype])
        for dtype in ("float32", "int32")
    }
    target = Path(__file__).parent / "paddle_vision.npz"
    np.savez_compressed(target, cases=json.dumps(cases), layout=json.dumps(layout), **flat)
    print(len(cases), "cases")
