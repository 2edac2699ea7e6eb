"""Who did what to whom: label the parts of sentences with stacked LSTMs of both directions and a conditional random field.

A plain program of `paddle.fluid` 1.6 in which only the import is another. The sentences are made up, from a small grammar
in which the same words play other roles in the passive voice. A label says that a part begins (B) or goes on (I) with this
word, or that the word is in none (O).
"""

from __future__ import annotations

import random

import numpy as np
from training import judge, parse, parser_of, start, train

import fluid
from fluid import layers

SIZES, BEINGS = ["big", "small", "old", "young"], ["dog", "cat", "child", "teacher", "farmer", "horse"]
DONE = ["chased", "seen", "followed", "helped", "found", "painted"]
WHEN = ["yesterday", "at noon", "on a sunny day", "last night"]
WORDS = sorted({"the", "a", "was", "by", ".", *SIZES, *BEINGS, *DONE, *" ".join(WHEN).split()})
ROLES = ["who", "did", "whom", "when"]
LABELS = [begin + role for role in ROLES for begin in ("B-", "I-")] + ["O"]
CONTEXT = (-2, -1, 0, 1, 2)


def sentences(count, seed):
    """`count` tuples of sequences as long as the sentence: its words, those in the context of its verb (each as often as there
    are words), the verb, whether a word is in that context, and the labels."""
    rng = random.Random(seed)

    def being():
        return [rng.choice(["the", "a"]), *rng.sample(SIZES, rng.choice([0, 1, 1, 2])), rng.choice(BEINGS)]

    for _ in range(count):
        verb = rng.choice(DONE)
        parts = [("who", being()), ("did", [verb]), ("whom", being())]
        if rng.random() < 0.5:
            parts = [("whom", being()), ("", ["was"]), ("did", [verb]), ("", ["by"]), ("who", being())]
        if rng.random() < 0.6:
            parts.insert(rng.choice([0, len(parts)]), ("when", rng.choice(WHEN).split()))
        text = [word for _, part in parts for word in part] + ["."]
        labels = [f"{'I' if i else 'B'}-{role}" if role else "O" for role, part in parts for i in range(len(part))] + ["O"]
        at = text.index(verb)
        numbers = [WORDS.index(word) for word in text]
        context = [[numbers[min(max(at + offset, 0), len(text) - 1)]] * len(text) for offset in CONTEXT]
        mark = [int(i - at in CONTEXT) for i in range(len(text))]
        yield numbers, *context, [DONE.index(verb)] * len(text), mark, [LABELS.index(label) for label in labels]


def inputs():
    """The variables that a sentence is fed to, in the order of `sentences`."""
    names = ["words", *(f"context_{i}" for i in range(len(CONTEXT))), "verb", "mark", "labels"]
    return [layers.data(name=name, shape=[1], dtype="int64", lod_level=1) for name in names]


def scores(words, *rest, size=16, depth=4):
    """How well each label fits each word, ``[words, labels]``: `depth` LSTMs, each over the one before and what that one read."""
    *context, verb, mark = rest
    shared = fluid.ParamAttr(name="word_vectors")
    vectors = [layers.embedding(word, size=[len(WORDS), size], param_attr=shared) for word in (words, *context)]
    vectors.append(layers.embedding(verb, size=[len(DONE), size], param_attr=fluid.ParamAttr(name="verb_vectors")))
    vectors.append(layers.embedding(mark, size=[2, size // 4]))
    dense = layers.sums([layers.fc(vector, size=4 * size, act="tanh") for vector in vectors])
    below = []
    for level in range(depth):
        if level:
            dense = layers.sums([layers.fc(value, size=4 * size, act="tanh") for value in below])
        hidden, _ = layers.dynamic_lstm(
            dense,
            size=4 * size,
            is_reverse=level % 2 == 1,
            candidate_activation="relu",
            gate_activation="sigmoid",
            cell_activation="sigmoid",
        )
        below = [dense, hidden]
    return layers.sums([layers.fc(value, size=len(LABELS), act="tanh") for value in below])


def semantic_roles(*variables, size=16, depth=4):
    """The mean negative log-likelihood of the labels, and the most likely labels.

    The field's parameter says what follows what, and what begins and ends sentences; training and decoding share it by name.
    """
    *words, labels = variables
    found = scores(*words, size=size, depth=depth)
    crf = fluid.ParamAttr(name="crf")
    loss = layers.mean(layers.linear_chain_crf(input=found, label=labels, param_attr=crf))
    return loss, layers.crf_decoding(input=found, param_attr=crf)


def main():
    args = parse(parser_of(__doc__, epochs=6, samples=600, goal=0.9, of="F1 of parts in unseen sentences"))

    # The program: what to compute, as data.
    feed_list = inputs()
    loss, decoded = semantic_roles(*feed_list)
    *_, found, true, right = layers.chunk_eval(input=decoded, label=feed_list[-1], chunk_scheme="IOB", num_chunk_types=len(ROLES))
    test_program = fluid.default_main_program().clone(for_test=True)
    rate = layers.exponential_decay(learning_rate=0.02, decay_steps=50, decay_rate=0.8)
    fluid.optimizer.Adam(learning_rate=rate).minimize(loss)

    # The executor: computes it.
    executor = start(args.seed)
    losses = train(executor, sentences(args.samples, args.seed), feed_list, loss, args.epochs, batch_size=16)

    metric = fluid.metrics.ChunkEvaluator()
    unseen = list(sentences(200, args.seed + 1))
    feeder = fluid.DataFeeder(feed_list, fluid.CPUPlace())
    for start_at in range(0, len(unseen), 50):
        feed = feeder.feed(unseen[start_at : start_at + 50])
        labels, *counts = executor.run(test_program, feed=feed, fetch_list=[decoded, found, true, right], return_numpy=False)
        metric.update(*counts)
    end = labels.recursive_sequence_lengths()[0][0]
    print()
    for word, label in zip(unseen[-50][0], np.array(labels)[:end, 0], strict=True):
        print(f"  {WORDS[word]:10} {LABELS[label]}")
    _, _, f1 = metric.eval()
    judge(args, losses, f1, "F1 of parts in unseen sentences")


if __name__ == "__main__":
    main()
