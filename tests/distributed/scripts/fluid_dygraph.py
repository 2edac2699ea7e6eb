"""Trains eager layers as Fluid 1.6's examples of `DataParallel` do: each worker has every n-th batch of a reader.

python fluid_dygraph.py FOLDER
"""

from __future__ import annotations

import json
import os
import sys

import numpy as np

import fluid
from fluid.dygraph.nn import FC, Conv2D, Pool2D

FOLDER = sys.argv[1]


class Net(fluid.dygraph.Layer):
    def __init__(self, name_scope):
        super().__init__(name_scope)
        self._conv = Conv2D(self.full_name(), num_filters=4, filter_size=3, padding=1, act="relu")
        self._pool = Pool2D(self.full_name(), pool_size=2, pool_stride=2, pool_type="max")
        self._fc = FC(self.full_name(), 3, act="softmax")

    def forward(self, inputs):
        return self._fc(self._pool(self._conv(inputs)))


def reader():
    draw = np.random.RandomState(5)
    for _ in range(8):
        yield [(draw.randn(1, 4, 4).astype("float32"), draw.randint(0, 3, 1)) for _ in range(4)]


def in_pairs():
    """What two workers have at a time, as one batch."""
    batches = list(reader())
    return [one + other for one, other in zip(batches[::2], batches[1::2], strict=True)]


place = fluid.CPUPlace()
with fluid.dygraph.guard(place):
    strategy = fluid.dygraph.parallel.prepare_context()
    env = fluid.dygraph.parallel.Env()
    assert (env.nranks, env.local_rank) == (strategy.nranks, strategy.local_rank)
    fluid.default_startup_program().random_seed = 3
    fluid.default_main_program().random_seed = 3
    net = fluid.dygraph.parallel.DataParallel(Net("net"), strategy)
    adam = fluid.optimizer.AdamOptimizer(learning_rate=0.02)
    train_reader = fluid.contrib.reader.distributed_batch_reader(reader) if env.nranks > 1 else in_pairs
    losses = []
    for _ in range(2):
        for data in train_reader():
            img = fluid.dygraph.to_variable(np.stack([each[0] for each in data]))
            label = fluid.dygraph.to_variable(np.stack([each[1] for each in data]).astype("int64"))
            label.stop_gradient = True
            avg_loss = fluid.layers.mean(fluid.layers.cross_entropy(net(img), label))
            losses.append(float(avg_loss.numpy()))
            avg_loss = net.scale_loss(avg_loss)
            avg_loss.backward()
            net.apply_collective_grads()
            adam.minimize(avg_loss)
            net.clear_gradients()
    if env.local_rank == 0:
        fluid.save_dygraph(net.state_dict(), os.path.join(FOLDER, "net"))
    losses = np.mean(fluid.distributed.communicator().exchange(losses), axis=0).tolist()
    saved, _ = fluid.load_dygraph(os.path.join(FOLDER, "net"))
    net.set_dict(saved)
    net.eval()
    scores = net(fluid.dygraph.to_variable(np.stack([each[0] for each in next(reader())]))).numpy()
    if env.local_rank == 0:
        print(json.dumps({"losses": losses, "scores": scores.tolist()}))
