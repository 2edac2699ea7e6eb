"""Train a LeNet on handwritten digits by onnxruntime alone, from programs that Fluid wrote as ONNX files.

Fluid builds two programs, one that trains and one that tests, and writes each to a file. From then on everything is done by
onnxruntime's plain inference session: the weights and Adam's state go into each run, and come out of it for the next one.
Needs `pip install ".[onnx]" onnxruntime`, no download and no device.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile

import numpy as np

import fluid
from fluid.dataset import digits


def lenet(image):
    """Probabilities [-1, 10] of the digits 0 to 9 for images [-1, 1, 8, 8]."""
    hidden = fluid.nets.simple_img_conv_pool(
        image, num_filters=20, filter_size=3, conv_padding=1, pool_size=2, pool_stride=2, act="relu"
    )
    hidden = fluid.layers.batch_norm(hidden)
    hidden = fluid.nets.simple_img_conv_pool(
        hidden, num_filters=50, filter_size=3, conv_padding=1, pool_size=2, pool_stride=2, act="relu"
    )
    return fluid.layers.fc(fluid.layers.fc(hidden, size=128, act="relu"), size=10, act="softmax")


def write_programs(folder, seed, learning_rate):
    """Write train.onnx and test.onnx; returns their paths and the name of the loss and of the accuracy."""
    fluid.default_startup_program().random_seed = seed
    image = fluid.data("image", [None, 1, 8, 8])
    label = fluid.data("label", [None, 1], "int64")
    prediction = lenet(image)
    loss = fluid.layers.mean(fluid.layers.cross_entropy(prediction, label))
    accuracy = fluid.layers.accuracy(prediction, label)
    test = fluid.default_main_program().clone(for_test=True)
    fluid.optimizer.Adam(learning_rate).minimize(loss)
    fluid.Executor().run(fluid.default_startup_program())
    paths = [os.path.join(folder, name) for name in ("train.onnx", "test.onnx")]
    for path, program in zip(paths, (fluid.default_main_program(), test), strict=True):
        fluid.save_model(path, program)
    return *paths, loss.name, accuracy.name


class Model:
    """A model of onnxruntime, with the state that it is given in each run."""

    def __init__(self, path):
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.log_severity_level = 3  # no warning for each weight that is an input
        self.session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
        self.outputs = [each.name for each in self.session.get_outputs()]
        self.state_inputs = {each.name for each in self.session.get_overridable_initializers()}
        self.updated = json.loads(self.session.get_modelmeta().custom_metadata_map.get("fluid.updated", "{}"))

    def run(self, feed, state):
        """The outputs by name, and the next state; what `state` lacks has its value in the file."""
        given = {name: value for name, value in state.items() if name in self.state_inputs}
        results = dict(zip(self.outputs, self.session.run(None, {**feed, **given}), strict=True))
        return results, {**state, **{name: results[output] for name, output in self.updated.items()}}


def batches(part, size, **order):
    """A loader of the images of a part, as feeds."""
    data = fluid.io.TensorDataset(*digits.arrays(part))
    return fluid.io.DataLoader(data, size, feed_list=["image", "label"], **order)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--epochs", type=int, default=8, help="passes over the training images (%(default)s)")
    parser.add_argument("--batch-size", type=int, default=32, help="images per step (%(default)s)")
    parser.add_argument("--learning-rate", type=float, default=0.002, help="of Adam (%(default)s)")
    parser.add_argument("--seed", type=int, default=1, help="of parameters and of the order of images (%(default)s)")
    parser.add_argument("--goal", type=float, default=0.95, help="least accuracy on unseen images to succeed (%(default)s)")
    parser.add_argument("--output", help="folder for the two files (a temporary one)")
    args = parser.parse_args()

    with tempfile.TemporaryDirectory() as temporary:
        folder = args.output or temporary
        train_path, test_path, loss, accuracy = write_programs(folder, args.seed, args.learning_rate)
        train, test = Model(train_path), Model(test_path)
        print(f"train.onnx: {os.path.getsize(train_path):,} bytes, state: {len(train.updated)} tensors that each run updates")
        seen, unseen, state = batches("train", args.batch_size, shuffle=True, seed=args.seed), batches("test", 128), {}
        for epoch in range(1, args.epochs + 1):
            losses = []
            for feed in seen:
                results, state = train.run(feed, state)
                losses.append(results[loss].item())
            hits = [(test.run(feed, state)[0][accuracy].item(), len(feed["label"])) for feed in unseen]
            share = np.average([hit for hit, _ in hits], weights=[count for _, count in hits])
            print(f"epoch {epoch}/{args.epochs}  loss {np.mean(losses):.4f}  accuracy on unseen images {share:.2%}")
    if share < args.goal:
        sys.exit(f"that is less than the goal of {args.goal:.2%}; more --epochs may reach it")


if __name__ == "__main__":
    main()
