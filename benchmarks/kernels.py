"""Kernels by themselves beside torch's: ops of convolutional, recurrent and attention networks, forward and backward, in one
thread. Fluid's are bound to their arrays once, as a plan does it."""

from __future__ import annotations

import argparse
import contextlib

import numpy as np
import torch
from common import header, milliseconds, race, row
from torch.nn import functional

from fluid.executor.binding.arrays import bind_op
from fluid.executor.binding.compiled import apply_op
from fluid.opdef import registry

ROUNDS, BLOCK = 3, 0.2
_random = np.random.default_rng(0)


def draw(*shape):
    return _random.standard_normal(shape, np.float32)


def fluid_call(op_type, inputs, attrs, wanted=None):
    """A function that runs the op on these arrays, and its outputs by slot."""
    definition = registry.get(op_type)
    outputs = {slot: made for slot, made in apply_op(op_type, inputs, attrs, wanted).items() if wanted is None or slot in wanted}
    full = definition.defaults(definition.check_attrs(attrs))
    steps = bind_op(definition, inputs, outputs, full, {"xp": np, "scratch": np.empty, "rng": None}, np.empty)

    def run():
        for step in steps:
            step()

    return run, outputs


def show(what, op_type, inputs, attrs, out, wrt, run, tensors):
    """Race the op and its gradient, by `wrt`, with `run` of `tensors`; end the process if results differ."""
    tensors = [torch.from_numpy(array).requires_grad_() for array in tensors]
    (call, results), expected = fluid_call(op_type, inputs, attrs), run(*tensors)
    cotangent = draw(*expected.shape)
    grad = registry.get(f"{op_type}_grad")
    given = {slot: value for slot, value in {**inputs, **results}.items() if slot in grad.inputs and value is not None}
    states = [slot for slot, made in results.items() if isinstance(made, list) and f"{slot}@GRAD" in grad.inputs]
    given.update((f"{slot}@GRAD", [np.zeros_like(state) for state in results[slot]]) for slot in states)
    given[f"{out}@GRAD"] = cotangent
    call_back, grads = fluid_call(f"{op_type}_grad", given, attrs, {f"{slot}@GRAD" for slot in wrt})
    d_out = torch.from_numpy(cotangent)

    def forward():
        with torch.no_grad():
            run(*tensors)

    def torch_back():
        return torch.autograd.grad(expected, tensors, d_out, retain_graph=True)

    call()
    call_back()
    found = [array for slot in wrt for array in (lambda g: g if isinstance(g, list) else [g])(grads[f"{slot}@GRAD"])]
    for ours, theirs in zip([results[out], *found], [expected, *torch_back()], strict=True):
        scale = float(theirs.detach().abs().max())
        np.testing.assert_allclose(ours, theirs.detach().numpy(), rtol=1e-3, atol=1e-4 * scale, err_msg=what)
    for name, ours, theirs in (("", call, forward), (", gradient", call_back, torch_back)):
        times = race({"fluid": ours, "torch": theirs}, ROUNDS, BLOCK)
        ratio = f"{times['fluid'] / times['torch']:.2f}"
        row(what + name, milliseconds(times["fluid"]), milliseconds(times["torch"]), "", ratio, "one thread")


def normalizations():
    def layer_norm(x, w, b):
        return functional.layer_norm(x, w.shape, w, b)

    def group_norm(x, w, b):
        return functional.group_norm(x, 8, w, b)

    def instance_norm(x, w, b):
        return functional.instance_norm(x, None, None, w, b)

    def batch_norm(x, w, b):
        return functional.batch_norm(x, *running, w, b, training=True)

    running = [torch.zeros(64), torch.ones(64)]
    statistics = {"Mean": np.zeros(64, np.float32), "Variance": np.ones(64, np.float32)}
    rows, images = (4096, 768), (8, 64, 56, 56)
    for shape, op_type, run, attrs, more in (
        (rows, "layer_norm", layer_norm, {}, {}),
        (images, "group_norm", group_norm, {"groups": 8}, {}),
        (images, "instance_norm", instance_norm, {}, {}),
        (images, "batch_norm", batch_norm, {}, statistics),
    ):
        x, w, b = draw(*shape), draw(shape[1]), draw(shape[1])
        inputs = {"X": x, "Scale": w, "Bias": b, **more}
        show(f"{op_type} {list(shape)}", op_type, inputs, attrs, "Y", ("X", "Scale", "Bias"), run, [x, w, b])


def elementwise():
    x = draw(2048, 3072)
    show("gelu [2048, 3072]", "gelu", {"X": x}, {}, "Out", ("X",), functional.gelu, [x])
    x = draw(96, 128, 128)
    show("softmax [96, 128, 128]", "softmax", {"X": x}, {}, "Out", ("X",), lambda x: functional.softmax(x, -1), [x])
    show("log_softmax [96, 128, 128]", "log_softmax", {"X": x}, {}, "Out", ("X",), lambda x: functional.log_softmax(x, -1), [x])


def images():
    x = draw(8, 64, 112, 112)
    for size, pad in ((3, 1), (2, 0)):
        attrs = {"ksize": [size] * 2, "strides": [2, 2], "paddings": [pad] * 2, "pooling_type": "max"}
        what = f"max pool {size}x{size}, stride 2 [8, 64, 112, 112]"
        show(what, "pool2d", {"X": x}, attrs, "Out", ("X",), lambda x, s=size, p=pad: functional.max_pool2d(x, s, 2, p), [x])
    for shape, stride in (((8, 32, 112, 112), 1), ((8, 64, 112, 112), 2), ((8, 144, 56, 56), 1), ((8, 384, 14, 14), 1)):
        x, w = draw(*shape), draw(shape[1], 1, 3, 3)
        attrs = {"strides": [stride] * 2, "paddings": [1, 1], "groups": shape[1]}
        show(
            f"depthwise 3x3, stride {stride} {list(shape)}",
            "depthwise_conv2d",
            {"Input": x, "Filter": w},
            attrs,
            "Output",
            ("Input", "Filter"),
            lambda x, w, s=stride: functional.conv2d(x, w, None, s, 1, groups=len(w)),
            [x, w],
        )


def recurrent():
    steps, batch, features, hidden = 20, 32, 64, 128
    x, h, c = draw(steps, batch, features), draw(1, batch, hidden), draw(1, batch, hidden)
    weights = [draw(4 * hidden, size) * 0.1 for size in (features, hidden)] + [draw(4 * hidden) for _ in range(2)]
    start = tuple(map(torch.from_numpy, (h, c)))
    attrs = {
        "mode": "LSTM",
        "input_size": features,
        "hidden_size": hidden,
        "num_layers": 1,
        "is_test": False,
        "dropout_prob": 0.0,
    }

    def run(x, *weights):
        return torch.lstm(x, start, weights, True, 1, 0.0, True, False, False)[0]

    inputs = {"Input": x, "PreState": [h, c], "WeightList": weights}
    what = f"LSTM {features}-{hidden}, batch {batch}, {steps} steps"
    show(what, "rnn", inputs, attrs, "Out", ("Input", "WeightList"), run, [x, *weights])


def proposals():
    """The regions of one image of 800 by 1,088, on a feature map of a sixteenth, with 15 anchors at each place."""
    height, width, anchors = 50, 68, 15
    middles = np.stack(np.meshgrid(np.arange(width), np.arange(height)), -1)[:, :, None].astype(np.float32) * 16
    halves = np.abs(draw(anchors, 2)) * 64 + 8
    inputs = {
        "Scores": draw(1, anchors, height, width),
        "BboxDeltas": draw(1, 4 * anchors, height, width) * 0.2,
        "ImInfo": np.array([[800, 1088, 1]], np.float32),
        "Anchors": np.concatenate([middles - halves, middles + halves], -1),
        "Variances": np.ones((height, width, anchors, 4), np.float32),
    }
    attrs = {"pre_nms_topN": 6000, "post_nms_topN": 1000, "nms_thresh": 0.7, "min_size": 0.1, "eta": 1.0}
    alone("generate_proposals, 1,000 of 51,000", lambda: apply_op("generate_proposals", inputs, attrs))


def quantization():
    x = torch.from_numpy(draw(64, 64, 56, 56))

    def rounded():
        scale = float(x.abs().max())
        return torch.fake_quantize_per_tensor_affine(x, scale / 127, 0, -127, 127)

    call, _ = fluid_call("fake_quantize_dequantize_abs_max", {"X": x.numpy()}, {})
    times = race({"fluid": call, "torch": rounded}, ROUNDS, BLOCK)
    ratio = f"{times['fluid'] / times['torch']:.2f}"
    what = "fake_quantize_dequantize_abs_max [64, 64, 56, 56]"
    row(what, milliseconds(times["fluid"]), milliseconds(times["torch"]), "", ratio, "one thread")


def detection():
    """Cases without a counterpart in torch: detections of an SSD of 300 x 300 pixels, and YOLOv3's middle feature map."""
    priors, classes = 8732, 21
    first = 0.7 * _random.random((8, priors, 2), np.float32)
    boxes = np.concatenate([first, first + 0.3 * _random.random(first.shape, np.float32)], 2)
    scores = np.exp(2 * draw(8, classes, priors))
    inputs = {"BBoxes": boxes, "Scores": scores / scores.sum(1, keepdims=True)}
    attrs = {"score_threshold": 0.01, "nms_top_k": 400, "keep_top_k": 200, "nms_threshold": 0.45}
    alone(f"multiclass_nms of {priors} boxes, {classes} classes, 8 images", lambda: apply_op("multiclass_nms", inputs, attrs))
    for count, what in ((26, "yolov3_loss of 26 x 26 places, 80 classes, 8 images"), (52, "the same of 52 x 52 places")):
        truth = 0.2 + 0.5 * _random.random((8, 50, 4), np.float32)
        truth[:, 10:] = 0
        labels = _random.integers(0, 80, (8, 50)).astype("int32")
        inputs = {"X": draw(8, 3 * 85, count, count), "GTBox": truth, "GTLabel": labels}
        anchors = [10, 13, 16, 30, 33, 23, 30, 61, 62, 45, 59, 119, 116, 90, 156, 198, 373, 326]
        attrs = {"anchors": anchors, "anchor_mask": [3, 4, 5], "class_num": 80, "downsample_ratio": 416 // count}
        call, results = fluid_call("yolov3_loss", inputs, attrs)
        grads = {**inputs, "Loss@GRAD": np.ones(8, "float32")}
        grads.update((slot, results[slot]) for slot in ("ObjectnessMask", "GTMatchMask"))
        alone(what, call)
        alone(f"{what}, gradient", fluid_call("yolov3_loss_grad", grads, attrs)[0])


def alone(what, call):
    """Time a call that has no rival."""
    call()
    row(what, milliseconds(race({"fluid": call}, ROUNDS, BLOCK)["fluid"]), "", "", "", "one thread")


def main():
    argparse.ArgumentParser(description=__doc__.splitlines()[0]).parse_args()
    torch.set_num_threads(1)
    with contextlib.suppress(ImportError):
        from threadpoolctl import threadpool_limits

        threadpool_limits(1)
    header("Kernels, forward and backward")
    for part in (normalizations, elementwise, images, recurrent, detection, proposals, quantization):
        part()


if __name__ == "__main__":
    main()
