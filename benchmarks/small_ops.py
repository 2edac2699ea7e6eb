"""One training step of a chain of 1,000 small ops: what an op costs beside its arithmetic.

On [16, 32]: tanh, add one shared bias, multiply by a constant, tanh, multiply by a [32, 32] matrix of its own; 200 times.
Then the mean of squares, its gradient, and SGD.
"""

from __future__ import annotations

import argparse

import numpy as np
import torch
from common import check_losses, header, parameters, race_row

import fluid

CONSTANT, RATE = 0.9, 0.05


def fluid_step(repeats, x):
    data = fluid.layers.data("x", [32])
    bias = fluid.layers.create_parameter([32], "float32", "bias", default_initializer=fluid.initializer.Uniform(-0.1, 0.1))
    h = data
    for i in range(repeats):
        h = fluid.layers.elementwise_add(fluid.layers.tanh(h), bias)
        weight = fluid.layers.create_parameter([32, 32], "float32", f"weight_{i}")
        h = fluid.layers.matmul(fluid.layers.tanh(h * CONSTANT), weight)
    loss = fluid.layers.mean(fluid.layers.square(h))
    fluid.optimizer.SGD(RATE).minimize(loss)
    fluid.default_startup_program().random_seed = 1
    executor = fluid.Executor(fluid.CPUPlace())
    executor.run(fluid.default_startup_program())
    program = fluid.default_main_program()
    feed = {"x": x}
    return lambda: executor.run(program, feed=feed, fetch_list=[loss])[0].item()


def torch_step(repeats, x, start):
    bias = torch.tensor(start["bias"], requires_grad=True)
    weights = [torch.tensor(start[f"weight_{i}"], requires_grad=True) for i in range(repeats)]
    optimizer = torch.optim.SGD([bias, *weights], lr=RATE)
    data = torch.tensor(x)

    def step():
        h = data
        for weight in weights:
            h = torch.tanh((torch.tanh(h) + bias) * CONSTANT) @ weight
        loss = (h * h).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.item()

    return step


def numpy_step(repeats, x, start):
    """The same by hand: arrays made once, each op into its own, backward written out."""
    bias = start["bias"].copy()
    weights = [start[f"weight_{i}"].copy() for i in range(repeats)]
    first, second, out = (np.empty((repeats, *x.shape), np.float32) for _ in range(3))
    sums, grad, slope = (np.empty_like(x) for _ in range(3))
    of_weights = np.empty((repeats, 32, 32), np.float32)
    of_bias, part = np.empty_like(bias), np.empty_like(bias)
    ones, constant, rate = np.ones(len(x), np.float32), np.float32(CONSTANT), np.float32(RATE)

    def step():
        h = x
        for a, b, c, weight in zip(first, second, out, weights, strict=True):
            np.tanh(h, a)
            np.add(a, bias, sums)
            np.multiply(sums, constant, sums)
            np.tanh(sums, b)
            h = np.dot(b, weight, c)
        loss = np.square(h, sums).mean().item()
        np.multiply(h, np.float32(2 / h.size), grad)
        of_bias.fill(0)
        for a, b, weight, of_weight in reversed(list(zip(first, second, weights, of_weights, strict=True))):
            np.dot(b.T, grad, of_weight)
            np.dot(grad, weight.T, sums)
            np.square(b, slope)
            np.subtract(1, slope, slope)
            np.multiply(sums, slope, sums)
            np.multiply(sums, constant, sums)
            np.add(of_bias, np.dot(ones, sums, part), of_bias)
            np.square(a, slope)
            np.subtract(1, slope, slope)
            np.multiply(sums, slope, grad)
        for weight, of_weight in zip(weights, of_weights, strict=True):
            np.multiply(of_weight, rate, of_weight)
            np.subtract(weight, of_weight, weight)
        np.subtract(bias, of_bias * rate, bias)
        return loss

    return step


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--ops", type=int, default=1000, help="length of the chain (%(default)s)")
    repeats = parser.parse_args().ops // 5
    x = np.random.default_rng(0).standard_normal((16, 32), np.float32)
    ours = fluid_step(repeats, x)
    start = parameters(fluid.default_main_program())
    runs = {"fluid": ours, "torch": torch_step(repeats, x, start), "numpy": numpy_step(repeats, x, start)}
    header(f"A chain of {repeats * 5:,} small ops on [16, 32], one training step")
    check_losses({name: [run() for _ in range(3)] for name, run in runs.items()})
    race_row(f"{repeats * 5:,} small ops", runs, "training step, SGD")
    torch.set_num_threads(1)  # ops so small are quicker in torch without its threads, above all on a busy machine
    race_row("the same", runs, "torch with one thread")


if __name__ == "__main__":
    main()
