"""Trains a language model as Fluid 1.6's examples do: a reader that is started and reset, a schedule, clipping, sparse rows; then
goes on from what was saved.

python fluid_words.py FOLDER
"""

from __future__ import annotations

import json
import os
import sys

import numpy as np

import fluid
from fluid.incubate.fleet.base.role_maker import UserDefinedCollectiveRoleMaker
from fluid.incubate.fleet.collective import DistributedStrategy, fleet

FOLDER = sys.argv[1]
WORDS = 40


def build():
    words = fluid.layers.data("words", shape=[6], dtype="int64")
    following = fluid.layers.data("following", shape=[1], dtype="int64")
    reader = fluid.io.PyReader(feed_list=[words, following], capacity=4, use_double_buffer=False, iterable=False)
    table = fluid.embedding(words, size=[WORDS, 8], is_sparse=True, param_attr=fluid.ParamAttr("table"))
    hidden = fluid.layers.fc(fluid.layers.reshape(table, [-1, 48]), 16, act="tanh")
    loss = fluid.layers.mean(fluid.layers.softmax_with_cross_entropy(fluid.layers.fc(hidden, WORDS), following))
    return reader, loss


def batches(part):
    """This worker's part of each batch."""
    draw = np.random.RandomState(3)
    for _ in range(4):
        ids = draw.randint(0, WORDS, (8, 7))
        own = ids[part]
        yield [(row[:6], row[6:]) for row in own]


def train(epochs, is_first):
    with fluid.program_guard(fluid.Program(), fluid.Program()), fluid.unique_name.guard(), fluid.scope_guard(fluid.Scope()):
        fluid.default_startup_program().random_seed = 1 + fleet.worker_index()
        reader, loss = build()
        fluid.clip.set_gradient_clip(fluid.clip.GradientClipByGlobalNorm(0.5))
        rate = fluid.layers.learning_rate_scheduler.noam_decay(16, 8)
        fleet.distributed_optimizer(fluid.optimizer.Adam(rate), DistributedStrategy()).minimize(loss)
        exe = fluid.Executor(fluid.CPUPlace())
        exe.run(fleet.startup_program)
        if not is_first:
            fluid.io.load_persistables(exe, FOLDER, fleet.main_program)
        index, number = fleet.worker_index(), fleet.worker_num()
        reader.decorate_sample_list_generator(lambda: batches(slice(index * 8 // number, (index + 1) * 8 // number)))
        losses = []
        for _ in range(epochs):
            reader.start()
            try:
                while True:
                    (value,) = exe.run(fleet.main_program, fetch_list=[loss.name])
                    losses.append(float(np.mean(value)))
            except fluid.core.EOFException:
                reader.reset()
        fleet.save_persistables(exe, FOLDER)
    return np.mean(fluid.distributed.communicator().exchange(losses), axis=0).tolist()  # worker 0 has saved


endpoints = os.getenv("PADDLE_TRAINER_ENDPOINTS", "127.0.0.1:6170").split(",")
fleet.init(UserDefinedCollectiveRoleMaker(int(os.getenv("PADDLE_TRAINER_ID", "0")), endpoints))
told = train(2, is_first=True) + train(1, is_first=False)
if fleet.worker_index() == 0:
    print(json.dumps(told))
