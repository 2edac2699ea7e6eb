"""Fine-tune a loaded model: a LeNet that has only seen the digits 0 to 4 learns all ten from a few images of each.

The pretrained model is made here first; what is loaded is a folder with an inference model, such as Paddle writes, too. Its
convolutions stay as they are, the layer after them is trained again, and a new one takes the place of the old output.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile

import numpy as np
from recognize_digits import lenet

import fluid
from fluid import layers
from fluid.dataset import digits


def batches(images, labels, size, seed):
    """A loader of shuffled batches as feeds."""
    return fluid.io.DataLoader(
        fluid.io.TensorDataset(images, labels), size, shuffle=True, seed=seed, feed_list=["image", "label"]
    )


def pretrain(folder, epochs, seed):
    """Train a LeNet on the digits 0 to 4 and save it as an inference model."""
    images, labels = digits.arrays("train")
    few = labels[:, 0] < 5
    main, startup = fluid.Program(), fluid.Program()
    startup.random_seed = seed
    with fluid.program_guard(main, startup), fluid.unique_name.guard(), fluid.scope_guard(fluid.Scope()):
        image = fluid.data("image", [None, 1, 8, 8])
        label = fluid.data("label", [None, 1], "int64")
        prediction = lenet(image)
        loss = layers.mean(layers.cross_entropy(prediction, label))
        fluid.optimizer.Adam(0.002).minimize(loss)
        executor = fluid.Executor(fluid.CPUPlace())
        executor.run(startup)
        loader = batches(images[few], labels[few], 32, seed)
        for _ in range(epochs):
            for feed in loader:
                executor.run(feed=feed)
        fluid.save_model(folder, feeds=[image], fetches=[prediction])


def accuracy(executor, program, output, images, labels):
    """The share of images whose digit is the most probable one."""
    (scores,) = executor.run(program, {"image": images}, [output])
    return float(np.mean(scores.argmax(axis=1) == labels[:, 0]))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--epochs", type=int, default=15, help="passes over the few images (%(default)s)")
    parser.add_argument("--images", type=int, default=40, help="images of each digit to learn from (%(default)s)")
    parser.add_argument("--learning-rate", type=float, default=0.002, help="of Adam (%(default)s)")
    parser.add_argument("--train", default="fc_0.*", help="which loaded weights to train again (%(default)s)")
    parser.add_argument("--seed", type=int, default=1, help="of parameters and of the order of images (%(default)s)")
    parser.add_argument("--goal", type=float, default=0.88, help="least accuracy on unseen images to succeed (%(default)s)")
    args = parser.parse_args()

    folder = os.path.join(tempfile.mkdtemp(prefix="fine-tune-"), "pretrained")
    pretrain(folder, 6, args.seed)

    # An inference model from a file: its program, and its weights in the scope.
    model = fluid.load_model(folder)
    program = model.program
    executor = fluid.Executor(fluid.CPUPlace())
    test_images, test_labels = digits.arrays("test")
    before = accuracy(executor, program, model.fetches[0], test_images, test_labels)
    print(f"the loaded model's accuracy on all ten digits: {before:.2%}\n")

    # Back to training: its weights become parameters, of which those that match are trained.
    print(program.make_trainable(args.train))

    # A new last layer, which has not ruled out the digits 5 to 9, and a loss. New names must not be those of the file.
    hidden = [op for op in program.global_block().ops if op.type == "relu"][-1].output("Out")[0]
    startup = fluid.Program()
    startup.random_seed = args.seed
    with fluid.program_guard(program, startup), fluid.unique_name.guard(fluid.unique_name.unused_in(program)):
        label = fluid.data("label", [None, 1], "int64")
        scores = layers.fc(program.global_block().var(hidden), 10)
        loss = layers.mean(layers.softmax_with_cross_entropy(scores, label))
        test_program = program.clone(for_test=True)
        fluid.optimizer.Adam(args.learning_rate).minimize(loss)
    executor.run(startup)
    print(f"\n{test_program.prune(['image'], scores)}\n")

    images, labels = digits.arrays("train")
    few = np.concatenate([np.flatnonzero(labels[:, 0] == digit)[: args.images] for digit in range(10)])
    loader = batches(images[few], labels[few], 16, args.seed)
    with fluid.training.Progress(args.epochs) as progress:
        for _ in range(args.epochs):
            losses = []
            for feed in loader:
                losses += executor.run(program, feed, [loss])
                progress.step(len(feed["label"]))
            after = accuracy(executor, test_program, scores, test_images, test_labels)
            progress.epoch(loss=float(np.mean(losses)), accuracy=f"{after:.2%}")

    print(f"\naccuracy on unseen images: {before:.2%} before, {after:.2%} after {len(few)} images")
    if after < args.goal:
        sys.exit(f"that is less than the goal of {args.goal:.2%}; more --epochs or --images may reach it")


if __name__ == "__main__":
    main()
