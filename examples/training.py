"""Shared code of the examples from the book: their options, and the training loop."""

from __future__ import annotations

import argparse
import random
import sys
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

import fluid


def parser_of(doc: str, epochs: int, samples: int, goal: float, of: str) -> argparse.ArgumentParser:
    """A parser of the shared options, with defaults; `of` describes the goal."""
    parser = argparse.ArgumentParser(description=doc.splitlines()[0])
    parser.add_argument("--epochs", type=int, default=epochs, help="passes over the training data (%(default)s)")
    parser.add_argument("--samples", type=int, default=samples, help="how many samples to train on (%(default)s)")
    parser.add_argument("--seed", type=int, default=1, help="of data, parameters and the order of samples (%(default)s)")
    parser.add_argument("--goal", type=float, default=goal, help=f"least {of} to succeed (%(default)s)")
    parser.add_argument("--quick", action="store_true", help="a glance: two epochs of 96 samples, and only the loss must fall")
    return parser


def parse(parser: argparse.ArgumentParser) -> argparse.Namespace:
    """Parse the options, and apply `--quick`."""
    args = parser.parse_args()
    if args.quick:
        args.epochs, args.samples = 2, 96
    return args


def start(seed: int) -> fluid.Executor:
    """An executor that has run the default startup program."""
    fluid.default_startup_program().random_seed = seed
    random.seed(seed)
    executor = fluid.Executor(fluid.CPUPlace())
    executor.run(fluid.default_startup_program())
    return executor


def train(
    executor: fluid.Executor,
    samples: Iterable[Any],
    feed_list: list[Any],
    loss: Any,
    epochs: int,
    batch_size: int,
) -> list[float]:
    """Train on `samples`, tuples of feeds for `feed_list`; the mean loss of each epoch."""
    samples = list(samples)
    feeder = fluid.DataFeeder(feed_list, fluid.CPUPlace())
    reader: Callable[[], Iterable[Any]] = fluid.io.batch(fluid.io.shuffle(lambda: iter(samples), len(samples)), batch_size)
    means = []
    with fluid.training.Progress(epochs) as progress:
        for _ in range(epochs):
            losses = []
            for batch in reader():
                losses += executor.run(feed=feeder.feed(batch), fetch_list=[loss])
                progress.step(len(batch))
            means.append(float(np.mean(losses)))
            progress.epoch(loss=means[-1])
    return means


def judge(args: argparse.Namespace, losses: list[float], reached: float, what: str) -> None:
    """Print the result, and exit with an error if it misses the goal."""
    print(f"\n{what}: {reached:.1%}")
    if args.quick:
        if not losses[-1] < losses[0]:
            sys.exit(f"the loss did not fall: {losses}")
    elif not reached >= args.goal:
        sys.exit(f"that is less than the goal of {args.goal:.1%}; more --epochs may reach it")
