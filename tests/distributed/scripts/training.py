"""Trains a network by all workers; worker 0 prints the losses and what parameters came to, as JSON."""

from __future__ import annotations

import json
import sys

import numpy as np

import fluid
from fluid.distributed import communicator
from fluid.incubate.fleet.collective import DistributedStrategy, fleet


def layers():
    x = fluid.data("x", [None, 16])
    hidden = fluid.layers.fc(x, 32, act="tanh")
    return fluid.layers.fc(fluid.layers.fc(hidden, 32, act="relu"), 1)


def images():
    x = fluid.layers.reshape(fluid.data("x", [None, 16]), [-1, 1, 4, 4])
    x = fluid.layers.conv2d(x, 8, 3, padding=1, act="relu")
    x = fluid.layers.elementwise_add(x, fluid.layers.conv2d(x, 8, 3, padding=1, act="relu"))
    return fluid.layers.fc(fluid.layers.pool2d(x, 2, "avg", 2), 1)


def table():
    ids = fluid.layers.cast(fluid.data("x", [None, 16]) * 4.0 + 15.0, "int64")
    rows = fluid.embedding(fluid.layers.clip(ids, 0, 30), [31, 4], is_sparse=True)
    return fluid.layers.fc(fluid.layers.reshape(rows, [-1, 64]), 1)


def normalized():
    x = fluid.layers.reshape(fluid.data("x", [None, 16]), [-1, 1, 4, 4])
    for _ in range(3):
        x = fluid.layers.batch_norm(fluid.layers.conv2d(x, 8, 3, padding=1, bias_attr=False), act="relu")
    return fluid.layers.fc(fluid.layers.pool2d(x, 2, "avg", 2), 1)


NETWORKS = {"layers": layers, "images": images, "table": table, "normalized": normalized}
OPTIMIZERS = {
    "sgd": lambda: fluid.optimizer.SGD(0.1),
    "adam": lambda: fluid.optimizer.Adam(0.01),
    "clipped": lambda: fluid.optimizer.Momentum(
        0.05, 0.9, regularization=fluid.regularizer.L2Decay(0.01), grad_clip=fluid.clip.GradientClipByGlobalNorm(0.5)
    ),
}


def main(network, optimizer, bucket, place="CPUPlace", local_steps=0, parts=1):
    """Each batch is divided among the workers, and by each into so many parts, whose gradients are accumulated."""
    fleet.init()
    rank, size = fleet.worker_index(), fleet.worker_num()
    prediction = NETWORKS[network]()
    loss = fluid.layers.mean(fluid.layers.square_error_cost(prediction, fluid.data("y", [None, 1])))
    strategy = DistributedStrategy()
    strategy.sync_batch_norm = True
    strategy.fuse_grad_size_in_MB = float(bucket)
    strategy.use_local_sgd, strategy.local_sgd_steps = local_steps > 0, max(local_steps, 1)
    made = OPTIMIZERS[optimizer]()
    made = fluid.training.GradientAccumulation(made, parts) if parts > 1 else made
    fleet.distributed_optimizer(made, strategy).minimize(loss)
    fluid.default_startup_program().random_seed = 1 + rank  # worker 0's parameters count
    executor = fluid.Executor(getattr(fluid, place)())
    fluid.Executor(fluid.CPUPlace()).run(fluid.default_startup_program())  # the same first values, whatever computes then
    draw = np.random.RandomState(0)
    losses = []
    for _ in range(8):
        x = draw.uniform(-1, 1, (16, 16)).astype("float32")
        own = []
        for part in np.array_split(x, size * parts)[rank * parts : (rank + 1) * parts]:
            own += executor.run(feed={"x": part, "y": part[:, :1] * part[:, 1:2]}, fetch_list=[loss])
        losses.append(float(np.mean(communicator().exchange(float(np.mean(own))))))
    sums = {
        p.name: float(np.abs(np.asarray(fluid.global_scope().find_var(p.name).get_tensor())).sum())
        for p in loss.block.program.all_parameters()
    }
    same = len({json.dumps(each) for each in communicator().exchange(sums)}) == 1
    assert same or 8 % max(local_steps, 1), "all workers have the same parameters"
    if rank == 0:
        print(json.dumps({"losses": losses, "sums": sums}))


main(*sys.argv[1:5], *map(int, sys.argv[5:]))
