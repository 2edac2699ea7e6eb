"""Training steps in eager mode: the chain of small ops, the perceptron and LeNet of the other benchmarks."""

from __future__ import annotations

import argparse

import lenet
import mlp
import numpy as np
import small_ops
import torch
from common import check_losses, header, parameters, race, race_row

import fluid
from fluid import dygraph
from fluid.dygraph import ops
from fluid.dygraph.recipe import UpdateOp


class SGD:
    """The update op of programs, on tensors."""

    def __init__(self, params, rate):
        self._params, self._rate = params, dygraph.Tensor([rate])
        self._update = UpdateOp("sgd", {}, ("Param", "Grad", "LearningRate"), {"ParamOut": "Param"})

    def step(self):
        for param in self._params:
            self._update(param, param.grad, self._rate)
            param.clear_gradient()


class Adam:
    """The update op of programs, on tensors."""

    _SLOTS = ("Param", "Grad", "LearningRate", "Moment1", "Moment2", "Beta1Pow", "Beta2Pow")

    def __init__(self, params, rate):
        self._rate = dygraph.Tensor([rate])
        self._update = UpdateOp(
            "adam", {}, self._SLOTS, {f"{slot}Out": slot for slot in self._SLOTS if slot not in ("Grad", "LearningRate")}
        )
        self._params = [
            (param, [self._zeros(param), self._zeros(param), dygraph.Tensor([0.9]), dygraph.Tensor([0.999])]) for param in params
        ]

    def _zeros(self, param):
        return dygraph.Tensor(np.zeros(param.shape, np.float32))

    def step(self):
        for param, state in self._params:
            self._update(param, param.grad, self._rate, *state)
            param.clear_gradient()


def eager_step(model, start, make_optimizer):
    params = [dygraph.Tensor(value, stop_gradient=False) for value in start.values()]
    optimizer = make_optimizer(params)

    def step():
        loss = model(*params)
        loss.backward()
        optimizer.step()
        return loss.item()

    return step


def chain(x):
    data = dygraph.Tensor(x)

    def model(bias, *weights):
        h = data
        for weight in weights:
            h = ((h.tanh() + bias) * small_ops.CONSTANT).tanh() @ weight
        return (h * h).mean()

    return model


def cross_entropy(logits, labels):
    _, loss = ops.softmax_with_cross_entropy(logits, labels)
    return ops.mean(loss)


def perceptron(images, labels):
    x, y = dygraph.Tensor(images), dygraph.Tensor(labels[:, None])

    def model(w1, b1, w2, b2, w3, b3):
        h = ops.relu(ops.mul(x, w1) + b1)
        h = ops.relu(ops.mul(h, w2) + b2)
        return cross_entropy(ops.mul(h, w3) + b3, y)

    return model


def convolutions(images, labels):
    x, y = dygraph.Tensor(images), dygraph.Tensor(labels[:, None])

    def pooled(h, weight, bias):
        h = ops.relu(ops.elementwise_add(ops.conv2d(h, weight), bias, axis=1))
        return ops.pool2d(h, ksize=[2, 2], strides=[2, 2], pooling_type="max")

    def model(c1, d1, c2, d2, w1, b1, w2, b2):
        h = pooled(pooled(x, c1, d1), c2, d2)
        return cross_entropy(ops.mul(ops.relu(ops.mul(h, w1) + b1), w2) + b2, y)

    return model


def show(what, runs, remark):
    """Race eager mode against torch, and say how it compares with the same step as a program."""
    check_losses({name: [run() for _ in range(3)] for name, run in runs.items()})
    program = runs.pop("program")
    found = race({"fluid": runs["fluid"], "program": program})
    race_row(what, runs, f"{remark}, eager; {found['fluid'] / found['program']:.2f} of the time as a program")


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
    ours = eager_step(chain(x), start, lambda params: SGD(params, small_ops.RATE))
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # ops so small are quicker in torch without its threads
    runs = {"fluid": ours, "torch": small_ops.torch_step(repeats, x, start), "program": program}
    show(f"{repeats * 5:,} small ops", runs, "training step, SGD, torch with one thread")
    torch.set_num_threads(threads)

    images, labels = random.standard_normal((64, 784), np.float32), random.integers(0, 10, 64)
    program, start = fresh(mlp.fluid_step, images, labels)
    ours = eager_step(perceptron(images, labels), start, lambda params: Adam(params, mlp.RATE))
    show(
        "MLP 784-512-512-10",
        {"fluid": ours, "torch": mlp.torch_step(images, labels, start), "program": program},
        "batch 64, Adam",
    )

    images = random.standard_normal((64, 1, 28, 28), np.float32)
    program, start = fresh(lenet.fluid_step, images, labels)
    ours = eager_step(convolutions(images, labels), start, lambda params: SGD(params, lenet.RATE))
    show(
        "LeNet on 28 x 28", {"fluid": ours, "torch": lenet.torch_step(images, labels, start), "program": program}, "batch 64, SGD"
    )


if __name__ == "__main__":
    main()
