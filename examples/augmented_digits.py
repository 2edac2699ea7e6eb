"""Recognise handwritten digits by a net that sees each image changed in other ways each time, until it gets no better.

What a loop that trains needs besides the net: a loader whose workers change images, a learning rate that falls, stopping early,
the checkpoint of the best epoch, and a log, which is drawn at the end where matplotlib is installed.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile

import numpy as np

import fluid
from fluid import layers
from fluid.dataset import digits
from fluid.io import transforms


@transforms.random
def brightened(image, generator):
    """The image with more or less contrast."""
    return image * np.float32(generator.uniform(0.8, 1.2))


def network(images, labels):
    """Mean loss and accuracy of a small convolutional net."""
    found = fluid.nets.simple_img_conv_pool(images, 16, 3, 2, 2, conv_padding=1, act="relu")
    scores = layers.fc(layers.fc(found, 64, act="relu"), 10)
    loss = layers.mean(layers.softmax_with_cross_entropy(scores, labels))
    return loss, layers.accuracy(layers.softmax(scores), labels)


def means(executor, program, loader, fetches):
    """Means of the fetches over the batches of a loader, weighted by batch size."""
    runs = [(executor.run(program, feed, fetches), len(feed["label"])) for feed in loader]
    return np.average([np.ravel(values) for values, _ in runs], axis=0, weights=[count for _, count in runs])


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--epochs", type=int, default=40, help="passes over the training images, at most (%(default)s)")
    parser.add_argument("--workers", type=int, default=2, help="processes that change images (%(default)s)")
    parser.add_argument("--seed", type=int, default=1, help="of parameters, parts, order and changes (%(default)s)")
    parser.add_argument("--goal", type=float, default=0.96, help="least accuracy on unseen images to succeed (%(default)s)")
    parser.add_argument("--output", help="folder for checkpoints, the log and its plot (a temporary one)")
    args = parser.parse_args()
    folder = args.output or tempfile.mkdtemp(prefix="digits-")

    # Data: images as [height, width] until ToFloat puts the channel first; a fifth is kept to see when to stop.
    images, labels = digits.arrays("train")
    kept, seen = fluid.io.random_split(fluid.io.TensorDataset(images[:, 0], labels), [0.2, 0.8], args.seed)
    changes = transforms.Compose([transforms.RandomCrop(8, margin=1, value=-1.0), brightened, transforms.ToFloat()])
    image, label = fluid.data("image", [None, 1, 8, 8]), fluid.data("label", [None, 1], "int64")
    fed = {"feed_list": [image, label], "seed": args.seed}
    training = fluid.io.DataLoader(
        seen.map(changes, field=0), 32, shuffle=True, num_workers=args.workers, keep_workers=True, **fed
    )
    validation = fluid.io.DataLoader(kept.map(transforms.ToFloat(), field=0), 128, **fed)

    # The program.
    loss, accuracy = network(image, label)
    program = fluid.default_main_program()
    test_program = program.clone(for_test=True)
    optimizer = fluid.optimizer.Adam(0.005)
    optimizer.minimize(loss)
    fluid.default_startup_program().random_seed = args.seed
    executor = fluid.Executor()
    executor.run(fluid.default_startup_program())

    # The loop.
    plateau = fluid.training.ReduceOnPlateau(optimizer, factor=0.3, patience=3)
    stopping = fluid.training.EarlyStopping(patience=8)
    best = fluid.training.BestCheckpoints(os.path.join(folder, "checkpoints"))
    log_file = os.path.join(folder, "log.csv")
    with fluid.training.CSVLog(log_file) as log, fluid.training.Progress(args.epochs, len(training)) as progress:
        for epoch in range(args.epochs):
            losses = []
            for feed in training:
                losses += executor.run(program, feed, [loss])
                progress.step(len(feed["label"]))
            of_kept, share = means(executor, test_program, validation, [loss, accuracy])
            rate = plateau.update(of_kept)
            log.write(epoch, loss=np.mean(losses), validation=of_kept, accuracy=share, rate=rate)
            progress.epoch(loss=float(np.mean(losses)), validation=of_kept, accuracy=f"{share:.2%}")
            best.offer(epoch + 1, of_kept, lambda path, epoch=epoch: fluid.save_checkpoint(program, path, epoch + 1))
            if stopping.is_over(of_kept):
                break

    # What was best, and how it came to that.
    checkpoint = fluid.load_checkpoint(program, best.path)
    unseen = fluid.io.TensorDataset(*digits.arrays("test"))
    _, reached = means(executor, test_program, fluid.io.DataLoader(unseen, 128, **fed), [loss, accuracy])
    print(f"\nthe best of {epoch + 1} epochs was number {checkpoint.step}; accuracy on unseen images: {reached:.2%}")
    try:
        axes = fluid.plots.curves(log_file, ["loss", "validation"])
        axes.figure.savefig(os.path.join(folder, "losses.png"))
        print(f"the losses are drawn in {os.path.join(folder, 'losses.png')}")
    except fluid.FluidError as error:
        print(f"the losses are in {log_file}; {error}")
    if reached < args.goal:
        sys.exit(f"that is less than the goal of {args.goal:.2%}; more --epochs may reach it")


if __name__ == "__main__":
    main()
