"""Linear regression: how far diabetes moved in a year, from ten measurements of 354 patients, tested on 88 others.

A plain program of `paddle.fluid` 1.6 in which only the import is another. Needs no download and no device.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile

import numpy as np

import fluid
from fluid.dataset import diabetes


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--epochs", type=int, default=60, help="passes over the training rows (%(default)s)")
    parser.add_argument("--batch-size", type=int, default=32, help="rows per step (%(default)s)")
    parser.add_argument("--learning-rate", type=float, default=0.01, help="of SGD (%(default)s)")
    parser.add_argument("--seed", type=int, default=1, help="of parameters and of the order of rows (%(default)s)")
    parser.add_argument("--goal", type=float, default=0.35, help="least R2 on unseen rows to succeed (%(default)s)")
    parser.add_argument("--output", help="folder to save the inference model in (a temporary one)")
    args = parser.parse_args()

    # The program: what to compute, as data.
    x = fluid.layers.data(name="x", shape=[len(diabetes.FEATURES)], dtype="float32")
    y = fluid.layers.data(name="y", shape=[1], dtype="float32")
    y_predict = fluid.layers.fc(input=x, size=1, act=None, param_attr=fluid.ParamAttr(name="weights"), bias_attr="bias")
    loss = fluid.layers.mean(fluid.layers.square_error_cost(input=y_predict, label=y))
    fluid.optimizer.SGD(learning_rate=args.learning_rate).minimize(loss)
    print(fluid.default_main_program())

    # The executor: computes it.
    fluid.default_startup_program().random_seed = args.seed
    place = fluid.CPUPlace()
    executor = fluid.Executor(place)
    executor.run(fluid.default_startup_program())
    feeder = fluid.DataFeeder(feed_list=[x, y], place=place)

    random.seed(args.seed)
    train_reader = fluid.io.batch(fluid.io.shuffle(diabetes.train(), buf_size=500), args.batch_size)
    with fluid.training.Progress(args.epochs) as progress:
        for _ in range(args.epochs):
            losses = []
            for batch in train_reader():
                losses += executor.run(feed=feeder.feed(batch), fetch_list=[loss])
                progress.step(len(batch))
            progress.epoch(loss=float(np.mean(losses)))

    print("\nwhat each measurement (in standard deviations) adds to the prediction:")
    weights = np.array(fluid.global_scope().find_var("weights").get_tensor())
    for name, weight in sorted(zip(diabetes.FEATURES, weights[:, 0], strict=True), key=lambda pair: -abs(pair[1])):
        print(f"  {name:4} {weight:+7.2f}")

    # What was learned, saved, and loaded into a scope that knows nothing of the training.
    folder = args.output or tempfile.mkdtemp(prefix="diabetes-")
    fluid.io.save_inference_model(folder, ["x"], [y_predict], executor)
    print(f"\ninference model saved in {folder}, and loaded again")
    features, targets = diabetes.arrays("test")
    with fluid.scope_guard(fluid.Scope()):
        program, (feed_name,), fetches = fluid.io.load_inference_model(folder, executor)
        (predicted,) = executor.run(program, feed={feed_name: features}, fetch_list=fetches)
    for guess, truth in zip(predicted[:5, 0], targets[:5, 0], strict=True):
        print(f"  predicted {guess:5.1f}, measured {truth:3.0f}")

    error = float(np.mean((predicted - targets) ** 2))
    of_mean = float(np.mean((diabetes.arrays("train")[1].mean() - targets) ** 2))
    r2 = 1 - error / of_mean
    print(f"\nmean squared error on unseen patients: {error:.1f} (predicting the mean: {of_mean:.1f}), R2 {r2:.3f}")
    if not r2 >= args.goal:
        sys.exit(f"that is less than the goal, an R2 of {args.goal}; more --epochs may reach it")


if __name__ == "__main__":
    main()
