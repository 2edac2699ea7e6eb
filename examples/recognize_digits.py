"""Recognise handwritten digits with a small LeNet, trained on 1,438 real images and tested on 359 others.

A plain program of `paddle.fluid` 1.6 in which only the import is another. Needs no download and no device.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile

import numpy as np

import fluid
from fluid.dataset import digits


def lenet(image):
    """Probabilities [-1, 10] of the digits 0 to 9 for images [-1, 1, 8, 8]."""
    found = fluid.nets.simple_img_conv_pool(
        image, num_filters=20, filter_size=3, conv_padding=1, pool_size=2, pool_stride=2, act="relu"
    )
    found = fluid.nets.simple_img_conv_pool(
        found, num_filters=50, filter_size=3, conv_padding=1, pool_size=2, pool_stride=2, act="relu"
    )
    found = fluid.layers.fc(found, size=128, act="relu")
    return fluid.layers.fc(found, size=10, act="softmax")


def evaluate(executor, program, feeder, reader, fetch_list):
    """Means of loss and accuracy over all the batches of a reader, weighted by their sizes."""
    sizes, results = [], []
    for batch in reader():
        sizes.append(len(batch))
        results.append([float(np.asarray(value).item()) for value in executor.run(program, feeder.feed(batch), fetch_list)])
    return np.average(results, axis=0, weights=sizes)


def draw(images, captions):
    """Images [n, 8, 8] with values from -1 to 1 side by side, each over its caption."""
    shades = " .:-=+*#%@"
    rows = np.rint((images + 1) / 2 * (len(shades) - 1)).astype(int).transpose(1, 0, 2)
    for row in rows:
        print("   ".join("".join(shades[pixel] * 2 for pixel in image) for image in row).rstrip())
    print("   ".join(f"{caption:16}" for caption in captions).rstrip())


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--epochs", type=int, default=15, help="passes over the training images (%(default)s)")
    parser.add_argument("--batch-size", type=int, default=32, help="images per step (%(default)s)")
    parser.add_argument("--learning-rate", type=float, default=0.002, help="of Adam (%(default)s)")
    parser.add_argument("--seed", type=int, default=1, help="of parameters and of the order of images (%(default)s)")
    parser.add_argument("--goal", type=float, default=0.97, help="least accuracy on unseen images to succeed (%(default)s)")
    parser.add_argument("--output", help="folder to save the inference model in (a temporary one)")
    args = parser.parse_args()

    # The program: what to compute, as data.
    image = fluid.layers.data(name="image", shape=[1, 8, 8], dtype="float32")
    label = fluid.layers.data(name="label", shape=[1], dtype="int64")
    prediction = lenet(image)
    loss = fluid.layers.mean(fluid.layers.cross_entropy(input=prediction, label=label))
    accuracy = fluid.layers.accuracy(input=prediction, label=label)
    test_program = fluid.default_main_program().clone(for_test=True)
    fluid.optimizer.Adam(learning_rate=args.learning_rate).minimize(loss)
    print(fluid.default_main_program())

    # The executor: computes it.
    fluid.default_startup_program().random_seed = args.seed
    place = fluid.CPUPlace()
    executor = fluid.Executor(place)
    executor.run(fluid.default_startup_program())
    feeder = fluid.DataFeeder(feed_list=[image, label], place=place)

    random.seed(args.seed)
    train_reader = fluid.io.batch(fluid.io.shuffle(digits.train(), buf_size=2000), args.batch_size)
    test_reader = fluid.io.batch(digits.test(), 128)
    with fluid.training.Progress(args.epochs) as progress:
        for _ in range(args.epochs):
            losses = []
            for batch in train_reader():
                losses += executor.run(feed=feeder.feed(batch), fetch_list=[loss])
                progress.step(len(batch))
            _, reached = evaluate(executor, test_program, feeder, test_reader, [loss, accuracy])
            progress.epoch(loss=float(np.mean(losses)), accuracy=f"{reached:.2%}")

    # What was learned, saved, and loaded into a scope that knows nothing of the training.
    folder = args.output or tempfile.mkdtemp(prefix="digits-")
    fluid.io.save_inference_model(folder, ["image"], [prediction], executor, main_program=test_program)
    print(f"\ninference model saved in {folder}")
    images, labels = digits.arrays("test")
    with fluid.scope_guard(fluid.Scope()):
        program, (feed_name,), targets = fluid.io.load_inference_model(folder, executor)
        (probabilities,) = executor.run(program, feed={feed_name: images}, fetch_list=targets)
    guesses = probabilities.argmax(axis=1)
    wrong = np.flatnonzero(guesses != labels[:, 0])
    print(f"loaded again, it mistakes {len(wrong)} of {len(labels)} unseen images; here are four, and its first mistake:\n")
    shown = np.r_[:4, wrong[:1]]
    draw(images[shown, 0], [f"{guesses[i]}" + ("" if guesses[i] == labels[i, 0] else f", but is {labels[i, 0]}") for i in shown])

    loaded = float(np.mean(guesses == labels[:, 0]))
    print(f"\naccuracy on unseen images: {loaded:.2%}")
    if abs(loaded - reached) > 1e-6:
        sys.exit(f"the loaded model's accuracy, {loaded:.4%}, differs from the trained one's, {reached:.4%}")
    if loaded < args.goal:
        sys.exit(f"that is less than the goal of {args.goal:.2%}; more --epochs may reach it")


if __name__ == "__main__":
    main()
