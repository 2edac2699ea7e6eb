"""Training steps in eager mode: the chain of small ops, the perceptron and LeNet of the other benchmarks."""

from __future__ import annotations

import argparse
from functools import partial

import lenet
import mlp
import numpy as np
import small_ops
import torch
from common import check_losses, header, milliseconds, parameters, race, race_row, row

import fluid
from fluid import dygraph


def eager_step(loss_of, parameters, start, optimizer):
    """A step of `loss_of()` and an optimizer, from these first values; and `loss_of` itself."""
    for parameter, value in zip(parameters, start.values(), strict=True):
        parameter.set_value(value)
    optimizer = optimizer(parameter_list=parameters)

    def step():
        loss = loss_of()
        loss.backward()
        optimizer.step()
        optimizer.clear_grad()
        return loss.item()

    return step, loss_of


def chain(x, start):
    data = dygraph.Tensor(x)
    bias, *weights = parameters = [dygraph.Tensor(value, stop_gradient=False) for value in start.values()]

    def loss_of():
        h = data
        for weight in weights:
            h = ((h.tanh() + bias) * small_ops.CONSTANT).tanh() @ weight
        return (h * h).mean()

    return eager_step(loss_of, parameters, start, partial(fluid.optimizer.SGD, small_ops.RATE))


def perceptron():
    return dygraph.Sequential(dygraph.Linear(784, 512, act="relu"), dygraph.Linear(512, 512, act="relu"), dygraph.Linear(512, 10))


def convolutions():
    return dygraph.Sequential(
        dygraph.Conv2D(None, 20, 5, act="relu"),
        dygraph.Pool2D(None, 2, "max", 2),
        dygraph.Conv2D(None, 50, 5, act="relu"),
        dygraph.Pool2D(None, 2, "max", 2),
        dygraph.FC(None, 500, act="relu"),
        dygraph.FC(None, 10),
    )


def classifier(net, images, labels, start, optimizer):
    x, y = dygraph.Tensor(images), dygraph.Tensor(labels[:, None])
    net(x)  # makes its parameters
    return eager_step(
        lambda: fluid.layers.mean(fluid.layers.softmax_with_cross_entropy(net(x), y)), net.parameters(), start, optimizer
    )


def traced(net, images):
    """A traced layer, and the program that it is, run by an executor."""
    x = dygraph.Tensor(images)
    net.eval()
    found = dygraph.trace(net, x)
    executor = fluid.Executor(fluid.CPUPlace())

    def program():
        return executor.run(found.program, {found.feed_names[0]: images}, found.fetch_names, scope=found.scope)

    return {"fluid": lambda: found(x), "program": program}


def show(what, eager, torch_step, program, remark):
    """Race eager mode against torch, and say how it compares with the same step as a program, and what part recording is."""
    step, forward = eager
    runs = {"fluid": step, "torch": torch_step}
    check_losses({name: [run() for _ in range(3)] for name, run in {**runs, "program": program}.items()})
    found = race({"fluid": step, "program": program, "forward": forward, "unrecorded": dygraph.no_grad(forward)})
    times = found["fluid"] / found["program"]
    recording = (found["forward"] - found["unrecorded"]) / found["program"]
    race_row(what, runs, f"{remark}, eager; {times:.2f} of the time as a program, of which recording {recording:.2f}")


def show_traced(what, net, images):
    """Race a traced layer against its program, run by an executor."""
    found = race(traced(net, images))
    row(
        what,
        milliseconds(found["fluid"]),
        remark=f"batch 64, traced, forward; {found['fluid'] / found['program']:.2f} of the program's time",
    )


def fresh(build, *args):
    """A step as a program of its own, and its parameters as they are at first."""
    with fluid.program_guard(fluid.Program(), fluid.Program()), fluid.unique_name.guard():
        scope = fluid.Scope()
        with fluid.scope_guard(scope):
            step = build(*args)
            start = parameters(fluid.default_main_program())

    def run():
        with fluid.scope_guard(scope):
            return step()

    return run, start


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--ops", type=int, default=1000, help="length of the chain (%(default)s)")
    repeats = parser.parse_args().ops // 5
    random = np.random.default_rng(0)
    header("Eager mode: training steps")

    x = random.standard_normal((16, 32), np.float32)
    program, start = fresh(small_ops.fluid_step, repeats, x)
    torch.set_num_threads(1)  # ops so small are quicker in torch without its threads
    torch_step = small_ops.torch_step(repeats, x, start)
    show(f"{repeats * 5:,} small ops", chain(x, start), torch_step, program, "training step, SGD, torch with one thread")
    torch.set_num_threads(torch.get_num_interop_threads())

    images, labels = random.standard_normal((64, 784), np.float32), random.integers(0, 10, 64)
    program, start = fresh(mlp.fluid_step, images, labels)
    ours = classifier(perceptron(), images, labels, start, partial(fluid.optimizer.Adam, mlp.RATE))
    show("MLP 784-512-512-10", ours, mlp.torch_step(images, labels, start), program, "batch 64, Adam")
    show_traced("MLP 784-512-512-10", perceptron(), images)

    images = random.standard_normal((64, 1, 28, 28), np.float32)
    program, start = fresh(lenet.fluid_step, images, labels)
    ours = classifier(convolutions(), images, labels, start, partial(fluid.optimizer.SGD, lenet.RATE))
    show("LeNet on 28 x 28", ours, lenet.torch_step(images, labels, start), program, "batch 64, SGD")
    show_traced("LeNet on 28 x 28", convolutions(), images)


if __name__ == "__main__":
    main()
