"""Is a review kind? A net with convolutions, one of stacked LSTMs, and one whose LSTM is written out, step by step.

A plain program of `paddle.fluid` 1.6 in which only the import is another. The reviews are made up, and of different
lengths: they are sequences, which are fed one after the other, with their lengths. After "not" a word means its
contrary, and who says "but" means what follows, so that counting words does not do.
"""

from __future__ import annotations

import random

import numpy as np
from training import judge, parse, parser_of, start, train

import fluid
from fluid import layers

KIND = ["lovely", "brilliant", "moving", "funny", "clever", "charming"]
UNKIND = ["dull", "clumsy", "noisy", "tired", "shallow", "awful"]
THINGS = ["plot", "cast", "music", "ending", "dialogue", "camera"]
WORDS = ["the", "was", "not", "but", "and", *KIND, *UNKIND, *THINGS]


def reviews(count, seed):
    """`count` tuples (words as numbers, whether the review is kind)."""
    rng = random.Random(seed)

    def clause(kind):
        negated = rng.random() < 0.3
        word = rng.choice(KIND if kind != negated else UNKIND)
        return ["the", rng.choice(THINGS), "was", *(["not"] if negated else []), word]

    for _ in range(count):
        kind = rng.random() < 0.5
        text = clause(kind)
        for _ in range(rng.randrange(3)):
            text += ["and", *clause(kind)]
        if rng.random() < 0.3:
            text = [*clause(not kind), "but", *text]
        yield [WORDS.index(word) for word in text], [int(kind)]


def conv_net(words, size=24):
    """Convolutions that see three and four words at a time, and the greatest that each of their filters finds."""
    vectors = layers.embedding(words, size=[len(WORDS), size], is_sparse=True)
    found = [
        fluid.nets.sequence_conv_pool(vectors, num_filters=size, filter_size=length, act="tanh", pool_type="max")
        for length in (3, 4)
    ]
    return layers.fc(found, size=2, act="softmax")


def stacked_lstm(words, size=24, stacked=3):
    """Stacked LSTMs, every second one from end to start; class probabilities from the maxima of the last layer over time."""
    vectors = layers.embedding(words, size=[len(WORDS), size], is_sparse=True)
    below = [layers.fc(vectors, size=4 * size)]
    for depth in range(stacked):
        dense = layers.fc(below, size=4 * size) if depth else below[0]
        hidden, _ = layers.dynamic_lstm(dense, size=4 * size, is_reverse=depth % 2 == 1)
        below = [dense, hidden]
    return layers.fc([layers.sequence_pool(value, pool_type="max") for value in below], size=2, act="softmax")


def dynamic_rnn(words, size=24):
    """An LSTM of ordinary layers in a block that is run for each word; its last state."""
    vectors = layers.embedding(words, size=[len(WORDS), size], is_sparse=True)
    sentence = layers.fc(vectors, size=size, act="tanh")
    rnn = layers.DynamicRNN()
    with rnn.block():
        word = rnn.step_input(sentence)
        hidden, cell = rnn.memory(value=0.0, shape=[size]), rnn.memory(value=0.0, shape=[size])
        forget, write, read = (layers.fc([word, hidden], size=size, act="sigmoid") for _ in range(3))
        new_cell = layers.sums([forget * cell, write * layers.fc([word, hidden], size=size, act="tanh")])
        new_hidden = read * layers.tanh(new_cell)
        rnn.update_memory(cell, new_cell)
        rnn.update_memory(hidden, new_hidden)
        rnn.output(new_hidden)
    return layers.fc(layers.sequence_last_step(rnn()), size=2, act="softmax")


def sentiment(net, words, label):
    """Mean loss and accuracy of `net` on reviews with labels."""
    prediction = net(words)
    return layers.mean(layers.cross_entropy(prediction, label)), layers.accuracy(prediction, label)


def main():
    parser = parser_of(__doc__, epochs=4, samples=2000, goal=0.9, of="accuracy on unseen reviews")
    nets = {"conv": conv_net, "stacked_lstm": stacked_lstm, "dynamic_rnn": dynamic_rnn}
    parser.add_argument("net", nargs="?", choices=nets, default="stacked_lstm", help="(%(default)s)")
    args = parse(parser)

    # The program: what to compute, as data.
    words = layers.data(name="words", shape=[1], dtype="int64", lod_level=1)
    label = layers.data(name="label", shape=[1], dtype="int64")
    loss, accuracy = sentiment(nets[args.net], words, label)
    test_program = fluid.default_main_program().clone(for_test=True)
    fluid.optimizer.Adam(learning_rate=0.01).minimize(loss)

    # The executor: computes it.
    executor = start(args.seed)
    losses = train(executor, reviews(args.samples, args.seed), [words, label], loss, args.epochs, batch_size=32)

    unseen = fluid.DataFeeder([words, label], fluid.CPUPlace()).feed(reviews(300, args.seed + 1))
    (reached,) = executor.run(test_program, feed=unseen, fetch_list=[accuracy])
    judge(args, losses, np.asarray(reached).item(), "accuracy on unseen reviews")


if __name__ == "__main__":
    main()
