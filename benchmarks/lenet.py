"""One training step of LeNet on images of 28 x 28, batches of 64, SGD."""

from __future__ import annotations

import argparse

import numpy as np
import torch
from common import check_losses, header, parameters, race_row
from torch import nn

import fluid

RATE = 0.01


def fluid_step(images, labels):
    image = fluid.layers.data("image", [1, 28, 28])
    label = fluid.layers.data("label", [1], dtype="int64")
    found = fluid.nets.simple_img_conv_pool(image, num_filters=20, filter_size=5, pool_size=2, pool_stride=2, act="relu")
    found = fluid.nets.simple_img_conv_pool(found, num_filters=50, filter_size=5, pool_size=2, pool_stride=2, act="relu")
    found = fluid.layers.fc(fluid.layers.fc(found, 500, act="relu"), 10)
    loss = fluid.layers.mean(fluid.layers.softmax_with_cross_entropy(found, label))
    fluid.optimizer.SGD(RATE).minimize(loss)
    fluid.default_startup_program().random_seed = 1
    executor = fluid.Executor(fluid.CPUPlace())
    executor.run(fluid.default_startup_program())
    program = fluid.default_main_program()
    feed = {"image": images, "label": labels[:, None]}
    return lambda: executor.run(program, feed=feed, fetch_list=[loss])[0].item()


def torch_step(images, labels, start):
    convolutions = [nn.Conv2d(1, 20, 5), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(20, 50, 5), nn.ReLU(), nn.MaxPool2d(2)]
    model = nn.Sequential(*convolutions, nn.Flatten(), nn.Linear(800, 500), nn.ReLU(), nn.Linear(500, 10))
    with torch.no_grad():
        for parameter, value in zip(model.parameters(), start.values(), strict=True):
            parameter.copy_(torch.tensor(value.T if value.ndim == 2 else value))
    optimizer = torch.optim.SGD(model.parameters(), lr=RATE)
    x, y = torch.tensor(images), torch.tensor(labels)

    def step():
        loss = nn.functional.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.item()

    return step


def main():
    argparse.ArgumentParser(description=__doc__.splitlines()[0]).parse_args()
    random = np.random.default_rng(0)
    images = random.standard_normal((64, 1, 28, 28), np.float32)
    labels = random.integers(0, 10, 64)
    ours = fluid_step(images, labels)
    runs = {"fluid": ours, "torch": torch_step(images, labels, parameters(fluid.default_main_program()))}
    header("LeNet on 28 x 28, batches of 64, SGD, one training step")
    check_losses({name: [run() for _ in range(3)] for name, run in runs.items()})
    race_row("LeNet on 28 x 28", runs, "batch 64, training step, SGD")


if __name__ == "__main__":
    main()
