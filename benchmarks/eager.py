"""Training steps in eager mode: the chain of small ops, the perceptron and LeNet of the other benchmarks."""

from __future__ import annotations

import argparse

import torch
from common import check_losses, header, milliseconds, race, race_row, row
from peers import Unfit, fluid_step, torch_step
from workloads import CONSTANT, WORKLOADS

import fluid
from fluid import dygraph

OPTIMIZERS = {"sgd": fluid.optimizer.SGD, "adam": fluid.optimizer.Adam}


def eager_step(loss_of, parameters, workload):
    """A step of `loss_of()` and the workload's optimizer, from its first values, which gives the loss; and `loss_of` itself."""
    for parameter, value in zip(parameters, workload.first().values(), strict=True):
        parameter.set_value(value)
    kind, rate = workload.optimizer
    optimizer = OPTIMIZERS[kind](rate, parameter_list=parameters)

    def step():
        loss = loss_of()
        loss.backward()
        optimizer.step()
        optimizer.clear_grad()
        return loss

    return step, loss_of


def chain(workload):
    data = dygraph.Tensor(workload.batch()["x"])
    bias, *weights = parameters = [dygraph.Tensor(value, stop_gradient=False) for value in workload.first().values()]

    def loss_of():
        h = data
        for weight in weights:
            h = ((h.tanh() + bias) * CONSTANT).tanh() @ weight
        return (h * h).mean()

    return eager_step(loss_of, parameters, workload)


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


def classifier(net, workload):
    x, y = map(dygraph.Tensor, workload.batch().values())
    net(x)  # makes its parameters
    return eager_step(lambda: fluid.layers.mean(fluid.layers.softmax_with_cross_entropy(net(x), y)), net.parameters(), workload)


def traced(net, images):
    """A traced layer, and the program that it is, run by an executor."""
    x = dygraph.Tensor(images)
    net.eval()
    found = dygraph.trace(net, x)
    executor = fluid.Executor(fluid.CPUPlace())

    def program():
        return executor.run(found.program, {found.feed_names[0]: images}, found.fetch_names, scope=found.scope)

    return {"fluid": lambda: found(x), "program": program}


def show(workload, eager):
    """Race eager mode against torch, and say how it compares with the same step as a program, and what part recording is."""
    step, forward = eager
    runs, program = {"fluid": lambda: step().item(), "torch": torch_step(workload)}, fluid_step(workload)
    check_losses({name: [run() for _ in range(3)] for name, run in {**runs, "program": program}.items()})
    found = race({"fluid": runs["fluid"], "program": program, "forward": forward, "unrecorded": dygraph.no_grad(forward)})
    times = found["fluid"] / found["program"]
    recording = (found["forward"] - found["unrecorded"]) / found["program"]
    remark = f"{workload.remark}, eager; {times:.2f} times the program's time, recording {recording:.2f} of it"
    race_row(workload.what, runs, remark)


def show_compiled(workload, eager):
    """Race a compiled step against torch in eager mode, torch.compile, and the step as a program."""
    step = dygraph.compile(eager[0])
    runs, program = {"fluid": lambda: step().item(), "torch": torch_step(workload)}, fluid_step(workload)
    check_losses({name: [run() for _ in range(3)] for name, run in {**runs, "program": program}.items()})
    found = race({"fluid": runs["fluid"], "program": program})
    remark = f"{workload.remark}, compiled; {found['fluid'] / found['program']:.2f} of the time as a program"
    try:
        by_torch = torch_step(workload, compiled=True)
    except Unfit as error:
        remark += f"; torch.compile: {error}"
    else:
        remark += f"; torch.compile takes {milliseconds(race({'torch': by_torch})['torch'])}"
    race_row(workload.what, runs, remark)


def show_traced(workload, net):
    """Race a traced layer against its program, run by an executor."""
    found = race(traced(net, workload.batch()["x"]))
    row(
        workload.what,
        milliseconds(found["fluid"]),
        remark=f"batch 64, traced, forward; {found['fluid'] / found['program']:.2f} of the program's time",
    )


def main():
    argparse.ArgumentParser(description=__doc__.splitlines()[0]).parse_args()
    header("Eager mode: training steps")
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # ops so small are quicker in torch without its threads
    show(WORKLOADS["small_ops"], chain(WORKLOADS["small_ops"]))
    torch.set_num_threads(threads)
    for name, net in (("mlp", perceptron), ("lenet", convolutions)):
        show(WORKLOADS[name], classifier(net(), WORKLOADS[name]))
        show_compiled(WORKLOADS[name], classifier(net(), WORKLOADS[name]))
        show_traced(WORKLOADS[name], net())


if __name__ == "__main__":
    main()
