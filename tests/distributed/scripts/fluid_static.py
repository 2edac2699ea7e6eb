"""Trains an image classifier as Fluid 1.6's examples of `fleet` do, from files of which each worker has some.

python fluid_static.py FOLDER
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import numpy as np

import fluid
from fluid.incubate.fleet.base import role_maker
from fluid.incubate.fleet.collective import DistributedStrategy, fleet

FOLDER = sys.argv[1]
FILES = [os.path.join(FOLDER, f"part-{number}") for number in range(4)]
BATCH = 4


def samples(files):
    for name in files:
        for line in Path(name).read_text().splitlines():
            label, *pixels = line.split()
            yield np.array(pixels, "float32").reshape(1, 4, 4), [int(label)]


def batches(lists):
    """Batches of a few samples from each list of files."""
    for parts in zip(*(fluid.io.batch(lambda files=files: samples(files), BATCH)() for files in lists), strict=True):
        yield [sample for part in parts for sample in part]


def main():
    role = role_maker.PaddleCloudRoleMaker(is_collective=True)
    fleet.init(role)
    trainer_id, trainers = int(os.getenv("PADDLE_TRAINER_ID", "0")), int(os.getenv("PADDLE_TRAINERS_NUM", "1"))
    assert (trainer_id, trainers) == (fleet.worker_index(), fleet.worker_num())
    assert trainers == 1 or len(fleet.worker_endpoints()) == len(os.getenv("PADDLE_TRAINER_ENDPOINTS").split(",")) == trainers

    main_program, startup_program = fluid.Program(), fluid.Program()
    startup_program.random_seed = 7
    with fluid.program_guard(main_program, startup_program), fluid.unique_name.guard():
        image = fluid.layers.data("image", shape=[1, 4, 4], dtype="float32")
        label = fluid.layers.data("label", shape=[1], dtype="int64")
        conv = fluid.layers.conv2d(image, num_filters=4, filter_size=3, padding=1, act="relu")
        predict = fluid.layers.fc(fluid.layers.pool2d(conv, 2, "max", 2), size=3, act="softmax")
        loss = fluid.layers.mean(fluid.layers.cross_entropy(predict, label))
        accuracy = fluid.layers.accuracy(predict, label)
        test_program = main_program.clone(for_test=True)

        dist_strategy = DistributedStrategy()
        exec_strategy = fluid.ExecutionStrategy()
        exec_strategy.num_threads = 2
        dist_strategy.exec_strategy = exec_strategy
        dist_strategy.nccl_comm_num = 2
        dist_strategy.fuse_all_reduce_ops = True
        rate = fluid.layers.piecewise_decay(boundaries=[4, 8], values=[0.1, 0.05, 0.01])
        optimizer = fluid.optimizer.Momentum(rate, momentum=0.9, regularization=fluid.regularizer.L2Decay(1e-3))
        optimizer = fleet.distributed_optimizer(optimizer, strategy=dist_strategy)
        optimizer.minimize(loss, startup_program)

    exe = fluid.Executor(fluid.CPUPlace())
    exe.run(fleet.startup_program)
    build_strategy = fluid.BuildStrategy()
    build_strategy.memory_optimize = False
    train_program = fluid.CompiledProgram(fleet.main_program).with_data_parallel(
        loss_name=loss.name, build_strategy=build_strategy, exec_strategy=exec_strategy
    )
    feeder = fluid.DataFeeder(feed_list=[image, label], place=fluid.CPUPlace(), program=main_program)
    lists = [fleet.split_files(FILES)] if trainers > 1 else [FILES[:2], FILES[2:]]
    losses = []
    for _ in range(2):
        for batch in batches(lists):
            (value,) = exe.run(train_program, feed=feeder.feed(batch), fetch_list=[loss.name])
            losses.append(float(np.mean(value)))
    right = exe.run(test_program, feed=feeder.feed(list(samples(FILES))), fetch_list=[accuracy])
    fleet.save_persistables(exe, os.path.join(FOLDER, "persistables"), main_program=fleet._origin_program)
    fleet.save_inference_model(exe, os.path.join(FOLDER, "model"), ["image"], [predict])
    losses = np.mean(fluid.distributed.communicator().exchange(losses), axis=0).tolist()  # worker 0 has saved
    [program, feeds, targets] = fluid.io.load_inference_model(os.path.join(FOLDER, "model"), exe)
    given = np.stack([image for image, _ in samples(FILES)])
    (scores,) = exe.run(program, feed={feeds[0]: given}, fetch_list=targets)
    trained = [fluid.global_scope().find_var(each.name).get_tensor() for each in main_program.all_parameters()]
    sums = [float(np.abs(np.array(tensor)).sum()) for tensor in trained]
    if fleet.is_first_worker():
        print(json.dumps({"losses": losses, "accuracy": float(right[0].item()), "scores": scores.tolist(), "sums": sums}))


if __name__ == "__main__":
    main()
