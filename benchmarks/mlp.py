"""One training step of a multilayer perceptron, 784-512-512-10, batches of 64, Adam."""

from __future__ import annotations

import argparse

import numpy as np
import torch
from common import check_losses, header, parameters, race_row
from torch import nn

import fluid

RATE = 0.001


def fluid_step(images, labels):
    image = fluid.layers.data("image", [784])
    label = fluid.layers.data("label", [1], dtype="int64")
    hidden = fluid.layers.fc(fluid.layers.fc(image, 512, act="relu"), 512, act="relu")
    loss = fluid.layers.mean(fluid.layers.softmax_with_cross_entropy(fluid.layers.fc(hidden, 10), label))
    fluid.optimizer.Adam(RATE).minimize(loss)
    fluid.default_startup_program().random_seed = 1
    executor = fluid.Executor(fluid.CPUPlace())
    executor.run(fluid.default_startup_program())
    program = fluid.default_main_program()
    feed = {"image": images, "label": labels[:, None]}
    return lambda: executor.run(program, feed=feed, fetch_list=[loss])[0].item()


def torch_step(images, labels, start, **options):
    model = nn.Sequential(nn.Linear(784, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 10))
    with torch.no_grad():
        for parameter, value in zip(model.parameters(), start.values(), strict=True):
            parameter.copy_(torch.tensor(value.T))
    optimizer = torch.optim.Adam(model.parameters(), lr=RATE, **options)
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
    images = random.standard_normal((64, 784), np.float32)
    labels = random.integers(0, 10, 64)
    ours = fluid_step(images, labels)
    start = parameters(fluid.default_main_program())
    plain, fused = torch_step(images, labels, start), torch_step(images, labels, start, fused=True)
    header("A multilayer perceptron, 784-512-512-10, batches of 64, Adam, one training step")
    check_losses({name: [run() for _ in range(3)] for name, run in (("fluid", ours), ("torch", plain), ("fused", fused))})
    race_row("MLP 784-512-512-10", {"fluid": ours, "torch": plain}, "batch 64, training step, Adam")
    race_row("the same", {"fluid": ours, "torch": fused}, "torch with Adam(fused=True)")


if __name__ == "__main__":
    main()
