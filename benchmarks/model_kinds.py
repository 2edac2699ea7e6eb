"""Predictions of ONNX models of each kind that packages ship, beside onnxruntime, in turns: the processor's time of one thread,
or the clock of the quickest runs of several. Further arguments are files of models whose inputs are floats; a size that is open
becomes 1."""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper
from onnxruntime.quantization import CalibrationDataReader, QuantType, quantize_dynamic, quantize_static

import fluid

RANDOM = np.random.default_rng(0)


def floats(*shape, size=1.0):
    return (RANDOM.standard_normal(shape) * size).astype(np.float32)


def saved(path, nodes, arrays, x, number=TensorProto.FLOAT):
    dtype = helper.tensor_dtype_to_np_dtype(number)
    graph = helper.make_graph(
        nodes,
        "kind",
        [helper.make_tensor_value_info("x", number, x.shape)],
        [helper.make_tensor_value_info(nodes[-1].output[0], number, None)],
        [numpy_helper.from_array(value.astype(dtype), name) for name, value in arrays.items()],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), path)
    return path, {"x": x.astype(dtype)}


def network(path, shape, layers, number=TensorProto.FLOAT):
    """Convolutions of (filters, size, stride, groups) with relu, or products with so many columns."""
    nodes, arrays, value, channels = [], {}, "x", shape[1]
    for place, layer in enumerate(layers):
        names = [value, f"w{place}", f"b{place}"]
        if isinstance(layer, tuple):
            filters, size, stride, groups = layer
            arrays[names[1]] = floats(filters, channels // groups, size, size, size=(2 / (channels // groups * size**2)) ** 0.5)
            how = {"pads": [size // 2] * 4, "strides": [stride] * 2, "group": groups}
            nodes.append(helper.make_node("Conv", names, [f"c{place}"], **how))
        else:
            filters = layer
            arrays[names[1]] = floats(channels, filters, size=(2 / channels) ** 0.5)
            nodes += [
                helper.make_node("MatMul", names[:2], [f"m{place}"]),
                helper.make_node("Add", [f"m{place}", names[2]], [f"c{place}"]),
            ]
        arrays[names[2]] = floats(filters, size=0.1)
        value, channels = f"r{place}", filters
        nodes.append(helper.make_node("Relu", [f"c{place}"], [value]))
    return saved(path, nodes, arrays, floats(*shape), number)


class Readings(CalibrationDataReader):
    def __init__(self, feed):
        self._feeds = iter([feed])

    def get_next(self):
        return next(self._feeds, None)


def quantized(made, is_static, weight_type=QuantType.QInt8):
    path, feed = made
    out = Path(path).with_suffix(".quantized.onnx")
    if is_static:
        quantize_static(path, out, Readings(feed), per_channel=True, weight_type=weight_type)
    else:
        quantize_dynamic(path, out, weight_type=weight_type)
    return out, feed


def recurrent(path, kind, gates, steps, batch, **how):
    rows = gates * 128
    arrays = {"w": floats(1, rows, 64, size=0.1), "r": floats(1, rows, 128, size=0.1), "b": floats(1, 2 * rows)}
    node = helper.make_node(kind, ["x", *arrays], ["y"], hidden_size=128, **how)
    return saved(path, [node], arrays, floats(steps, batch, 64))


def quantized_recurrent(path, steps, batch):
    return quantized(recurrent(path, "LSTM", 4, steps, batch), False)


IMAGE, ROWS = (1, 3, 64, 64), (32, 512)
CNN = [(32, 3, 1, 1), (64, 3, 2, 1), (64, 3, 1, 1), (128, 3, 2, 1), (128, 3, 1, 1)]
MOBILE = [(32, 3, 2, 1), *[layer for n, m in ((32, 64), (64, 128), (128, 256)) for layer in ((n, 3, 2, n), (m, 1, 1, 1))]]
KINDS = {
    "CNN of float16, 64 x 64": lambda path: network(path, IMAGE, CNN, TensorProto.FLOAT16),
    "CNN, pairs of QuantizeLinear": lambda path: quantized(network(path, IMAGE, CNN), True),
    "CNN, quantized dynamically (ConvInteger)": lambda path: quantized(network(path, IMAGE, CNN), False, QuantType.QUInt8),
    "separable CNN, 96 x 96, pairs": lambda path: quantized(network(path, (1, 3, 96, 96), MOBILE), True),
    "separable CNN, dynamically": lambda path: quantized(network(path, (1, 3, 96, 96), MOBILE), False, QuantType.QUInt8),
    "MLP 512, batch 16": lambda path: network(path, (16, 512), [512] * 3),
    "MLP 512, batch 32": lambda path: network(path, ROWS, [512] * 3),
    "two depthwise 5 x 5, 256 channels of 28 x 28": lambda path: network(path, (1, 256, 28, 28), [(256, 5, 1, 256)] * 2),
    "MLP 512, batch 32, pairs": lambda path: quantized(network(path, ROWS, [512] * 3), True),
    "MLP 512, batch 32, dynamically": lambda path: quantized(network(path, ROWS, [512] * 3), False),
    "LSTM of 128, 50 steps": lambda path: recurrent(path, "LSTM", 4, 50, 1),
    "LSTM of 128, one step": lambda path: recurrent(path, "LSTM", 4, 1, 1),
    "LSTM of 128, 50 steps, quantized dynamically": lambda path: quantized_recurrent(path, 50, 1),
    "LSTM of 128, 50 steps, batch 32, dynamically": lambda path: quantized_recurrent(path, 50, 32),
    "GRU of 128, 50 steps, linear before reset": lambda path: recurrent(path, "GRU", 3, 50, 1, linear_before_reset=1),
    "GRU of 128, 50 steps": lambda path: recurrent(path, "GRU", 3, 50, 1),
    "GRU of 128, 50 steps, batch 32": lambda path: recurrent(path, "GRU", 3, 50, 32),
}


def timed(run, seconds=0.25):
    start, count = time.process_time(), 0
    while time.process_time() - start < seconds:
        run()
        count += 1
    return (time.process_time() - start) / count


def quickest(run, seconds=0.05):
    """The clock of the quickest run; other jobs may hold a core during slower ones."""
    start, times = time.perf_counter(), []
    while time.perf_counter() - start < seconds:
        before = time.perf_counter()
        run()
        times.append(time.perf_counter() - before)
    return min(times)


def measure(what, path, feed):
    model, executor = fluid.load_model(str(path), scope=fluid.Scope()), fluid.Executor()
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = fluid.get_num_threads(), 4
    session = onnxruntime.InferenceSession(str(path), options)
    sides = (
        lambda: executor.run(model.program, feed, model.fetches, scope=model.scope),
        lambda: session.run(None, feed),
    )
    for run in sides:
        run(), run()
    if fluid.get_num_threads() == 1:
        times = np.median([[timed(run) for run in sides] for _ in range(5)], axis=0)
    else:
        times = np.min([[quickest(run) for run in sides] for _ in range(40)], axis=0)
    ours, theirs = 1e3 * times
    print(f"| {what} | {ours:.3f} ms | {theirs:.3f} ms | {ours / theirs:.2f} |", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("files", nargs="*")
    parser.add_argument("--threads", type=int, default=1)
    arguments = parser.parse_args()
    fluid.set_num_threads(arguments.threads)
    print("| what | Fluid | onnxruntime | Fluid / onnxruntime |\n|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        for place, (what, make) in enumerate(KINDS.items()):
            measure(what, *make(f"{folder}/{place}.onnx"))
    for path in arguments.files:
        inputs = onnxruntime.InferenceSession(path).get_inputs()
        measure(Path(path).stem, path, {i.name: floats(*[n if isinstance(n, int) else 1 for n in i.shape]) for i in inputs})


if __name__ == "__main__":
    main()
