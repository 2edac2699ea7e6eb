"""Word vectors from an old song: predict each word from the four before it, with one embedding that all four share.

A plain program of `paddle.fluid` 1.6 in which only the import is another. Words that are used alike, here those of the
twelve days, end up near each other, and the net can sing.
"""

from __future__ import annotations

import argparse
import random
import sys

import numpy as np

import fluid

# "The Twelve Days of Christmas", of unknown author, as printed in London in 1780. Each verse names one gift more.
DAYS = ["first", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth", "ninth", "tenth", "eleventh", "twelfth"]
GIFTS = """
a partridge in a pear-tree
two turtle doves and
three French hens
four colly birds
five gold rings
six geese a laying
seven swans a swimming
eight maids a milking
nine drummers drumming
ten pipers piping
eleven ladies dancing
twelve lords a leaping
"""
CONTEXT = ["first_word", "second_word", "third_word", "fourth_word"]


def song():
    """The words of all twelve verses."""
    gifts = GIFTS.strip().splitlines()
    for number, day in enumerate(DAYS):
        verse = ["the", day, "day of Christmas my true love sent to me", *reversed(gifts[: number + 1]), "."]
        yield from " ".join(verse).split()


def predict_next(words, vocabulary_size, embedding_size=16, hidden_size=64):
    """Probabilities [-1, vocabulary_size] of the next word, from four variables [-1, 1] of word numbers."""
    shared = fluid.ParamAttr(name="shared_w", initializer=fluid.initializer.Normal(scale=0.1))
    vectors = [fluid.layers.embedding(input=word, size=[vocabulary_size, embedding_size], param_attr=shared) for word in words]
    hidden = fluid.layers.fc(input=fluid.layers.concat(vectors, axis=1), size=hidden_size, act="sigmoid")
    return fluid.layers.fc(input=hidden, size=vocabulary_size, act="softmax")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--epochs", type=int, default=20, help="passes over the song (%(default)s)")
    parser.add_argument("--batch-size", type=int, default=16, help="words per step (%(default)s)")
    parser.add_argument("--seed", type=int, default=1, help="of parameters and of the order of words (%(default)s)")
    parser.add_argument("--goal", type=float, default=0.3, help="greatest loss to succeed (%(default)s)")
    args = parser.parse_args()

    text = list(song())
    vocabulary = sorted(set(text))
    number = {word: i for i, word in enumerate(vocabulary)}
    corpus = np.array([number[word] for word in text], np.int64)
    grams = np.lib.stride_tricks.sliding_window_view(corpus, len(CONTEXT) + 1)
    print(f"{len(text)} words, {len(vocabulary)} different ones\n")

    # The program: what to compute, as data.
    words = [fluid.layers.data(name=name, shape=[1], dtype="int64") for name in CONTEXT]
    following = fluid.layers.data(name="following", shape=[1], dtype="int64")
    prediction = predict_next(words, len(vocabulary))
    loss = fluid.layers.mean(fluid.layers.cross_entropy(input=prediction, label=following))
    infer_program = fluid.default_main_program().clone(for_test=True)
    fluid.optimizer.Adam(learning_rate=0.01).minimize(loss)
    print(fluid.default_main_program())

    # The executor: computes it.
    fluid.default_startup_program().random_seed = args.seed
    place = fluid.CPUPlace()
    executor = fluid.Executor(place)
    executor.run(fluid.default_startup_program())
    feeder = fluid.DataFeeder(feed_list=[*words, following], place=place)

    random.seed(args.seed)
    train_reader = fluid.io.batch(fluid.io.shuffle(lambda: map(tuple, grams), buf_size=1000), args.batch_size)
    mean_loss = float("inf")
    with fluid.training.Progress(args.epochs) as progress:
        for _ in range(args.epochs):
            losses = []
            for batch in train_reader():
                losses += executor.run(feed=feeder.feed(batch), fetch_list=[loss])
                progress.step(len(batch))
            mean_loss = float(np.mean(losses))
            progress.epoch(loss=mean_loss)

    print("\nnearest words, by the angle between their vectors:")
    vectors = np.array(fluid.global_scope().find_var("shared_w").get_tensor())
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    for word in ("second", "sixth", "eleventh", "swans", "Christmas"):
        likeness = vectors @ vectors[number[word]]
        nearest = np.argsort(-likeness)[1:5]
        print(f"  {word:10}", "  ".join(f"{vocabulary[i]} {likeness[i]:.2f}".ljust(14) for i in nearest).rstrip())

    sung = ["my", "true", "love", "sent"]
    while sung[-1] != "." and len(sung) < 60:
        feed = {name: np.array([[number[word]]], np.int64) for name, word in zip(CONTEXT, sung[-len(CONTEXT) :], strict=True)}
        (probabilities,) = executor.run(infer_program, feed=feed, fetch_list=[prediction])
        sung.append(vocabulary[int(probabilities.argmax())])
    print("\nmy true love sent ...", *sung[4:])

    print(f"\nloss {mean_loss:.3f} (guessing: {np.log(len(vocabulary)):.3f})")
    if not mean_loss <= args.goal:
        sys.exit(f"that is more than the goal of {args.goal}; more --epochs may reach it")


if __name__ == "__main__":
    main()
