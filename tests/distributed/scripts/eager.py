"""Trains eager layers by all workers; worker 0 prints the losses as JSON."""

from __future__ import annotations

import json

import numpy as np

import fluid
from fluid import dygraph
from fluid.distributed import communicator


class Net(dygraph.Layer):
    """An embedding with sparse gradients, a layer that makes its parameters when it is called, and one that has them."""

    def __init__(self):
        super().__init__("net")
        self.table = dygraph.Embedding("table", size=[20, 4], is_sparse=True)
        self.first = dygraph.FC("first", 32, act="tanh")
        self.last = dygraph.Linear(32, 1)

    def forward(self, ids, x):
        rows = fluid.layers.reshape(self.table(ids), [-1, 8])
        return self.last(self.first(fluid.layers.concat([rows, x], axis=1)))


with dygraph.guard():
    strategy = dygraph.prepare_context()
    rank, size = strategy.local_rank, strategy.nranks
    fluid.seed(1 + rank)
    net = dygraph.DataParallel(Net(), strategy)
    optimizer = fluid.optimizer.Adam(0.01, parameter_list=net.parameters)
    draw = np.random.RandomState(0)
    losses = []
    for _ in range(6):
        x, ids = draw.randn(8, 8).astype("float32"), draw.randint(0, 20, (8, 2))
        part = slice(rank * 8 // size, (rank + 1) * 8 // size)
        off = net(dygraph.to_variable(ids[part]), dygraph.to_variable(x[part])) - dygraph.to_variable(x[part, :1])
        loss = fluid.layers.mean(off * off)
        net.scale_loss(loss).backward()
        net.apply_collective_grads()
        optimizer.minimize(loss)
        net.clear_gradients()
        losses.append(float(np.mean(communicator().exchange(float(loss.numpy())))))
    if rank == 0:
        print(json.dumps(losses))
