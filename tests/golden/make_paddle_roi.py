"""Writes paddle_roi.npz: ops on regions of interest, and deformable convolutions, run by Paddle 2.6.2, with gradients.

Runs in an environment of its own that has paddlepaddle==2.6.2 and numpy<2.
"""

import json
import sys

import numpy as np
import paddle

paddle.enable_static()
rng = np.random.RandomState(11)


def x(*shape):
    return rng.standard_normal(shape).astype("float32")


ROIS = np.array(
    [[0, 0, 7, 6], [2.3, 1.6, 9.7, 11.2], [-3, -2.5, 4.5, 20], [5, 5, 4, 3], [8.5, 2.5, 30.5, 3.5]], "float32"
)  # fmt: skip
LOD = [[0, 2, 5]]
PARTS = {"pooled_height": 3, "pooled_width": 2}


def regions(op_type, attrs, channels=3, numbered=False):
    rois = ROIS.copy()
    if attrs.get("aligned"):
        # Of regions less than an element large, Paddle's gradient is not that of what it computes; of none, it divides 0 by 0.
        rois[3:] = [[4, 3, 6.5, 7], [8.5, 2.5, 30.5, 5.5]]
    inputs = {"X": (x(2, channels, 7, 6), []), "ROIs": (rois, [] if numbered else LOD)}
    if numbered:
        inputs["RoisNum"] = (np.array([2, 3], "int32"), [])
    return op_type, inputs, attrs, ["Out"], ["X"]


def deformed(groups, parts, kernel, modulated=True, **attrs):
    height, width = kernel
    full = {"strides": [1, 1], "paddings": [0, 0], "dilations": [1, 1], **attrs}
    place = [
        (extent + 2 * pad - (dilation * (size - 1) + 1)) // stride + 1
        for extent, size, stride, pad, dilation in zip(
            (5, 6), kernel, full["strides"], full["paddings"], full["dilations"], strict=True
        )
    ]
    inputs = {
        "Input": (x(2, 4, 5, 6), []),
        "Offset": (2 * x(2, 2 * parts * height * width, *place), []),
        "Filter": (x(4, 4 // groups, height, width), []),
    }
    if modulated:
        inputs["Mask"] = (x(2, parts * height * width, *place), [])
    full.update(groups=groups, deformable_groups=parts, im2col_step=1)
    return "deformable_conv" if modulated else "deformable_conv_v1", inputs, full, ["Output"], list(inputs)


CASES = [
    regions("roi_align", {**PARTS, "spatial_scale": 0.5}),
    regions("roi_align", {**PARTS, "spatial_scale": 0.5, "aligned": True}, numbered=True),
    regions("roi_align", {**PARTS, "spatial_scale": 0.75, "sampling_ratio": 2}),
    regions("roi_align", {"pooled_height": 1, "pooled_width": 1, "spatial_scale": 1.0}),
    regions("roi_pool", {**PARTS, "spatial_scale": 0.5}),
    regions("roi_pool", {"pooled_height": 7, "pooled_width": 4, "spatial_scale": 0.75}, numbered=True),
    regions("psroi_pool", {**PARTS, "spatial_scale": 0.5, "output_channels": 2}, 12),
    regions("psroi_pool", {"pooled_height": 2, "pooled_width": 2, "spatial_scale": 0.75, "output_channels": 2}, 8, True),
    deformed(1, 1, (3, 3)),
    deformed(2, 2, (2, 3), strides=[2, 1], paddings=[1, 2], dilations=[2, 1]),
    deformed(1, 4, (1, 2), paddings=[0, 1]),
    deformed(1, 1, (3, 3), modulated=False, paddings=[1, 1]),
    deformed(2, 2, (2, 2), modulated=False, strides=[1, 2]),
]


def tensor(array, lod):
    found = paddle.base.core.LoDTensor()
    found.set(array, paddle.CPUPlace())
    if lod:
        found.set_lod(lod)
    return found


def run(number, op_type, inputs, attrs, outputs, wrt, arrays):
    main = paddle.static.Program()
    with paddle.static.program_guard(main):
        block = main.global_block()
        feed, slots = {}, {}
        for slot, (array, lod) in inputs.items():
            var = block.create_var(name=slot, shape=array.shape, dtype=str(array.dtype), lod_level=len(lod))
            var.stop_gradient = slot not in wrt
            var.is_data = True
            feed[slot] = tensor(array, lod)
            slots[slot] = [var]
            arrays[f"{number}.in.{slot}"] = array
        made = {name: [block.create_var(name=name, dtype="float32")] for name in outputs}
        extra = {"Argmax": [block.create_var(name="Argmax", dtype="int64")]} if op_type == "roi_pool" else {}
        block.append_op(type=op_type, inputs=slots, outputs={**made, **extra}, attrs=dict(attrs))
        fetch = [var for many in (made, extra) for variables in many.values() for var in variables]
        exe = paddle.static.Executor(paddle.CPUPlace())
        values = exe.run(main, feed=feed, fetch_list=fetch, return_numpy=False)
        for var, value in zip(fetch, values, strict=True):
            arrays[f"{number}.out.{var.name}"] = np.asarray(value)
        shape = np.asarray(values[0]).shape
        arrays[f"{number}.seed"] = np.cos(np.arange(np.prod(shape))).astype("float32").reshape(shape)
        seed = block.create_var(name="seed", shape=shape, dtype="float32")
        seed.is_data = True
        feed["seed"] = arrays[f"{number}.seed"]
        grads = paddle.static.gradients(made[outputs[0]], [slots[slot][0] for slot in wrt], [seed])
        for slot, value in zip(wrt, exe.run(main, feed=feed, fetch_list=grads), strict=True):
            arrays[f"{number}.grad.{slot}"] = value
    lods = {slot: lod for slot, (_, lod) in inputs.items() if lod}
    return {"type": op_type, "attrs": attrs, "inputs": list(inputs), "lods": lods, "output_lod": values[0].lod()}


def main(path):
    arrays = {}
    records = [run(number, *case, arrays) for number, case in enumerate(CASES)]
    for record in records:
        print(record["type"], record["output_lod"])
    arrays["records"] = np.array(json.dumps(records))
    np.savez_compressed(path, **arrays)


main(sys.argv[1])
