"""Train one network on real handwritten digits in one process, or in several that each have a part of every batch: equal losses.

    python examples/distributed.py
    python -m fluid.distributed.launch -n 2 examples/distributed.py     (after pip install ".[mpi]")
    python examples/distributed.py --on xla                             (after pip install ".[xla]")
    XLA_FLAGS=--xla_force_host_platform_device_count=2 python examples/distributed.py --on xla-2

The script is the same for any number of workers. With --checkpoint it goes on where it stopped, also with another number of them.
"""

from __future__ import annotations

import argparse
import itertools
import os

import numpy as np

import fluid
from fluid.dataset import digits
from fluid.incubate.fleet.base.role_maker import PaddleCloudRoleMaker
from fluid.incubate.fleet.collective import fleet


def network():
    """The mean loss of a small convolutional network over the images that it is fed."""
    image = fluid.data("image", [None, 1, 8, 8])
    label = fluid.data("label", [None, 1], "int64")
    hidden = fluid.nets.simple_img_conv_pool(image, num_filters=16, filter_size=3, pool_size=2, pool_stride=2, act="relu")
    logits = fluid.layers.fc(fluid.layers.fc(hidden, 64, act="relu"), 10)
    return fluid.layers.mean(fluid.layers.softmax_with_cross_entropy(logits, label))


def batches(size, first):
    """This worker's part of each batch, to be fed, from number `first` on. The order of images depends on the epoch alone."""
    images, labels = digits.arrays("train")
    data = fluid.io.TensorDataset(images.reshape(-1, 1, 8, 8), labels)
    parts = fluid.io.DistributedBatchSampler(data, size, shuffle=True)
    loader = fluid.io.DataLoader(data, batch_sampler=parts, feed_list=["image", "label"])
    loader.start_at(first)
    return itertools.chain.from_iterable(itertools.repeat(loader))  # epoch after epoch


def placed(where, loss):
    """The place and the program that run `where` says: ``numpy``, ``xla``, or ``xla-2`` for two devices in this process."""
    program = fluid.default_main_program()
    if where == "numpy":
        return fluid.CPUPlace(), program
    if not hasattr(fluid, "XLAPlace"):
        raise SystemExit("this version of Fluid has no XLAPlace")
    if where == "xla":
        return fluid.XLAPlace(), program
    places = [fluid.XLAPlace(index=0), fluid.XLAPlace(index=1)]
    return places[0], fluid.CompiledProgram(program).with_data_parallel(loss_name=loss.name, places=places)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--on", choices=("numpy", "xla", "xla-2"), default="numpy", help="what computes (%(default)s)")
    parser.add_argument("--steps", type=int, default=40, help="batches to train on, from the first on (%(default)s)")
    parser.add_argument("--batch-size", type=int, default=32, help="images in a batch of all workers (%(default)s)")
    parser.add_argument("--checkpoint", help="a file to go on from, and to save to at the end")
    parser.add_argument("--shards", action="store_true", help="let each worker write a part of the checkpoint")
    args = parser.parse_args()

    fleet.init(PaddleCloudRoleMaker(is_collective=True))
    fluid.default_startup_program().random_seed = 1
    loss = network()
    fleet.distributed_optimizer(fluid.optimizer.Adam(0.005)).minimize(loss)
    place, program = placed(args.on, loss)
    executor = fluid.Executor(place)
    fluid.Executor(fluid.CPUPlace()).run(fluid.default_startup_program())  # the same first values, whatever computes then
    first = 0
    if args.checkpoint and os.path.exists(args.checkpoint):
        first = fleet.load_checkpoint(args.checkpoint, executor).step

    for step, feed in zip(range(first, args.steps), batches(args.batch_size, first), strict=False):
        (value,) = executor.run(program, feed, [loss])
        mean = np.mean(fluid.distributed.communicator().exchange(float(np.mean(value))))
        if fleet.is_first_worker():
            print(f"step {step}: loss {mean:.5f}")
    if args.checkpoint:
        fleet.save_checkpoint(args.checkpoint, args.steps, shards=args.shards)


if __name__ == "__main__":
    main()
