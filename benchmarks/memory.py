"""Memory of one training step of a 64-layer perceptron: temporaries against the least that backward needs, and with checkpoints.

The least, for ops in the program's order and gradients that are kept until SGD reads them: when the gradient of layer k
is computed, the outputs of the layers up to k are alive (each serves its own relu and the next layer's matrix), the
gradients of the parameters above k, and the gradient that flows, twice while a matrix multiplication makes one from the
other. With checkpoints, outputs between them are computed again for backward: only those of one segment are alive then.
Parameters and the fed array are not counted. For Fluid, growth of the process is counted, and what later steps allocate, by
tracemalloc; for torch, what its allocator does, by its profiler.
"""

from __future__ import annotations

import argparse
import ctypes
import gc
import resource
import tracemalloc
from pathlib import Path

import numpy as np
import torch
from common import check_losses, header, parameters, row
from torch import nn
from torch.utils.checkpoint import checkpoint_sequential

import fluid

RATE = 0.1


def fluid_step(layers, x, checkpoints=0):
    program, startup = fluid.Program(), fluid.Program()
    startup.random_seed = 1
    with fluid.program_guard(program, startup), fluid.unique_name.guard():
        h = fluid.layers.data("x", [x.shape[1]])
        outputs = []
        for _ in range(layers):
            h = fluid.layers.fc(h, x.shape[1], act="relu", param_attr=fluid.ParamAttr(initializer=fluid.initializer.MSRA()))
            outputs.append(h)
        loss = fluid.layers.mean(h)
        optimizer = fluid.optimizer.SGD(RATE)
        if checkpoints:
            optimizer = fluid.optimizer.RecomputeOptimizer(optimizer)
            optimizer._set_checkpoints(outputs[layers // checkpoints - 1 :: layers // checkpoints])
        optimizer.minimize(loss)
    executor = fluid.Executor(fluid.CPUPlace())
    executor.run(startup)
    start = parameters(program)
    feed = {"x": x}
    plan = executor.plan(program, feed=feed, fetch_list=[loss])
    return executor, plan, start, lambda: executor.run(program, feed=feed, fetch_list=[loss])[0].item()


def resident_bytes():
    """Bytes of the process in memory now (Linux)."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


def fluid_peak(executor, step):
    """Bytes in memory that the plan's arrays take, and most bytes that a later step allocates beside them.

    Pages that nothing has touched take no memory: native code reserves workspace for more threads than there are.
    """
    executor.close()  # forget the plan, so that the first step makes it and its arrays again
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)  # give freed pages back
    before = resident_bytes()
    step()
    arrays = resident_bytes() - before
    tracemalloc.start()
    step()
    before = tracemalloc.get_traced_memory()[0]
    tracemalloc.reset_peak()
    step()
    beside = tracemalloc.get_traced_memory()[1] - before
    tracemalloc.stop()
    return arrays, beside


def torch_step(layers, x, start, checkpoints=0):
    model = nn.Sequential(*(part for _ in range(layers) for part in (nn.Linear(x.shape[1], x.shape[1]), nn.ReLU())))
    with torch.no_grad():
        for parameter, value in zip(model.parameters(), start.values(), strict=True):
            parameter.copy_(torch.tensor(value.T))
    optimizer = torch.optim.SGD(model.parameters(), lr=RATE)
    data = torch.tensor(x)

    def step():
        optimizer.zero_grad()
        out = checkpoint_sequential(model, checkpoints, data, use_reentrant=False) if checkpoints else model(data)
        loss = out.mean()
        loss.backward()
        optimizer.step()
        return loss.item()

    return optimizer, step


def torch_peak(optimizer, step):
    """Most bytes that a step has allocated at one time, its gradients among them."""
    optimizer.zero_grad(set_to_none=True)
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True) as profile:
        step()
    events = [event for event in profile.profiler.kineto_results.events() if event.name() == "[memory]"]
    events.sort(key=lambda event: event.start_ns())
    return int(np.cumsum([event.nbytes() for event in events]).max())


def least(layers, batch, width):
    """Bytes, by the module's text."""
    output, gradients = batch * width * 4, (width * width + width) * 4
    of_relu = [k * output + output + (layers - k) * gradients for k in range(1, layers + 1)]
    of_matrix = [(k - 1) * output + output * (2 if k > 1 else 1) + (layers - k + 1) * gradients for k in range(1, layers + 1)]
    return max(of_relu + of_matrix)


def compare(args, x, checkpoints, remark):
    """Measure both, check that they train alike, and print a row."""
    executor, plan, start, ours = fluid_step(args.layers, x, checkpoints)
    optimizer, theirs = torch_step(args.layers, x, start, checkpoints)
    check_losses({name: [step() for _ in range(3)] for name, step in (("fluid", ours), ("torch", theirs))})
    print(str(plan).splitlines()[0])
    arrays, beside = fluid_peak(executor, ours)
    peak = torch_peak(optimizer, theirs)
    print(f"arrays of the plan {arrays / 2**20:.2f} MiB, at most {beside / 2**20:.2f} MiB beside them in a step\n")
    row(
        f"memory, {args.layers} layers" + (f", {checkpoints} checkpoints" if checkpoints else ""),
        f"{(arrays + beside) / 2**20:.1f} MiB",
        f"{peak / 2**20:.1f} MiB",
        ratio=f"{(arrays + beside) / peak:.2f}",
        remark=remark,
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--layers", type=int, default=64, help="(%(default)s)")
    parser.add_argument("--width", type=int, default=256, help="(%(default)s)")
    parser.add_argument("--batch", type=int, default=512, help="(%(default)s)")
    parser.add_argument("--checkpoints", type=int, default=8, help="(%(default)s)")
    args = parser.parse_args()
    x = np.random.default_rng(0).standard_normal((args.batch, args.width), np.float32)
    header(f"Memory: one training step of {args.layers} layers of {args.width}, batch {args.batch}, SGD")
    needed = least(args.layers, args.batch, args.width)
    compare(args, x, 0, f"temporaries of a step at their peak; backward needs {needed / 2**20:.1f} MiB at least")
    compare(args, x, args.checkpoints, "the same step, outputs between the checkpoints computed again for backward")


if __name__ == "__main__":
    main()
