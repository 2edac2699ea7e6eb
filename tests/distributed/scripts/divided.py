"""Trains with a table, and with an optimizer's state, that may be divided among the workers; worker 0 prints losses and
the shapes of parts, as JSON. With a folder, training goes on from the checkpoint there, and saves one at the end."""

from __future__ import annotations

import json
import os
import sys

import numpy as np

import fluid
from fluid.distributed import communicator
from fluid.incubate.fleet.collective import DistributedStrategy, fleet

OPTIMIZERS = {
    "sgd": lambda: fluid.optimizer.SGD(0.1),
    "momentum": lambda: fluid.optimizer.Momentum(0.1, 0.9),
    "adam": lambda: fluid.optimizer.Adam(0.01),
    "adagrad": lambda: fluid.optimizer.Adagrad(0.1),
    "rmsprop": lambda: fluid.optimizer.RMSProp(0.01),
    "lamb": lambda: fluid.optimizer.Lamb(0.01),
    "clipped": lambda: fluid.optimizer.SGD(0.1, grad_clip=fluid.clip.GradientClipByGlobalNorm(0.5)),
}
ROWS, ID_COUNT, BATCH = 31, 6, 12


def main(optimizer, divides, sparse, steps, folder="", save="", padding=None):
    fleet.init()
    rank, size = fleet.worker_index(), fleet.worker_num()
    fluid.default_startup_program().random_seed = fluid.default_main_program().random_seed = 7
    ids = fluid.data("ids", [None, ID_COUNT], "int64")
    table = "table" in divides
    rows = fluid.embedding(ids, [ROWS, 4], is_sparse=sparse, is_distributed=table, padding_idx=padding)
    old_rows = fluid.layers.embedding(
        fluid.layers.reshape(ids, [-1, ID_COUNT, 1]), [ROWS, 4], is_sparse=sparse, is_distributed=table
    )
    both = fluid.layers.reshape(rows + old_rows, [-1, 4 * ID_COUNT])
    prediction = fluid.layers.fc(fluid.layers.fc(both, 5, act="tanh"), 1)
    loss = fluid.layers.mean(fluid.layers.square_error_cost(prediction, fluid.data("y", [None, 1])))
    strategy = DistributedStrategy()
    strategy.fuse_grad_size_in_MB = 0.0001
    strategy.shard_optimizer_state = "state" in divides
    strategy.gradients_sent_as = "bfloat16" if "bfloat16" in divides else None
    fleet.distributed_optimizer(OPTIMIZERS[optimizer](), strategy).minimize(loss)
    executor, program = fluid.Executor(), fluid.default_main_program()
    executor.run(fluid.default_startup_program())
    start = fleet.load_checkpoint(os.path.join(folder, "ck"), executor).step if folder else 0
    losses = []
    for step in range(start, start + steps):
        draw = np.random.default_rng(step)
        all_ids, y = draw.integers(0, ROWS, (BATCH, ID_COUNT)), draw.uniform(-1, 1, (BATCH, 1)).astype("float32")
        part = slice(rank * BATCH // size, (rank + 1) * BATCH // size)
        (own,) = executor.run(program, feed={"ids": all_ids[part], "y": y[part]}, fetch_list=[loss])
        losses.append(float(np.mean(communicator().exchange(float(np.mean(own))))))
    if save:
        fleet.save_checkpoint(os.path.join(save, "ck"), start + steps, shards="shards" in divides)
    parts = {
        var.name: list(var.shape) for var in program.list_vars() if var.persistable and getattr(var, "division", None) is not None
    }
    if rank == 0:
        print(json.dumps({"losses": losses, "parts": parts}))


main(sys.argv[1], sys.argv[2].split(","), sys.argv[3] == "sparse", int(sys.argv[4]), *sys.argv[5:7], *map(int, sys.argv[7:]))
