"""Translate with attention, and search for the best translation with a beam: numbers, from English to German, and backwards.

A plain program of `paddle.fluid` 1.6 in which only the import is another. Two programs share their parameters by name: in the one
that trains, a `DynamicRNN` is told the right words; in the one that translates, a `While` feeds its own best words on, until all
end. The language is made up: it says the numbers in the opposite order.
"""

from __future__ import annotations

import random

import numpy as np
from training import judge, parse, parser_of, start, train

import fluid
from fluid import layers

place = fluid.CPUPlace()
START, END = 0, 1
ENGLISH = ["<s>", "<e>", "zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"]
GERMAN = ["<s>", "<e>", "null", "eins", "zwei", "drei", "vier", "fuenf", "sechs", "sieben", "acht", "neun"]


def pairs(count, seed, longest=6):
    """`count` tuples (source, target after the start sign, target before the end sign) of numbers of words."""
    rng = random.Random(seed)
    for _ in range(count):
        source = [rng.randrange(2, len(ENGLISH)) for _ in range(rng.randint(1, longest))]
        target = source[::-1]
        yield source, [START, *target], [*target, END]


def dense(value, size, name, act=None):
    """A dense layer whose parameters are shared under `name`."""
    return layers.fc(value, size=size, act=act, param_attr=f"{name}_w", bias_attr=f"{name}_b")


def encode(source, size):
    """Both directions' states at each word, what attention compares of them, and the state that decoding begins with."""
    vectors = layers.embedding(source, size=[len(ENGLISH), size], param_attr="source_vectors")
    states = []
    for name in ("forward", "backward"):
        gates = dense(vectors, 3 * size, f"{name}_gates")
        is_reverse = name == "backward"
        states.append(layers.dynamic_gru(gates, size, param_attr=f"{name}_w", bias_attr=f"{name}_b", is_reverse=is_reverse))
    encoded = layers.concat(states, axis=1)
    return encoded, dense(encoded, size, "compared"), dense(layers.sequence_first_step(states[1]), size, "boot", act="tanh")


def step(word, state, encoded, compared, *, size):
    """The state after a word, and the probabilities of the next: from what attention finds in the source."""
    asked = layers.sequence_expand(dense(state, size, "asked"), compared)
    fitting = layers.sequence_softmax(dense(layers.tanh(compared + asked), 1, "fitting"))
    found = layers.elementwise_mul(encoded, layers.reshape(fitting, [-1]), axis=0)
    found = layers.sequence_pool(found, pool_type="sum")
    vector = layers.embedding(word, size=[len(GERMAN), size], param_attr="target_vectors")
    gates = layers.elementwise_add(dense(found, 3 * size, "found"), dense(vector, 3 * size, "said"))
    state, _, _ = layers.gru_unit(gates, state, 3 * size, param_attr="decoder_w", bias_attr="decoder_b")
    return state, dense(state, len(GERMAN), "next", act="softmax")


def training(source, said, following, size=32):
    """The mean loss of predicting each word of the target from those before it."""
    encoded, compared, boot = encode(source, size)
    rnn = layers.DynamicRNN()
    with rnn.block():
        word = rnn.step_input(said)
        state = rnn.memory(init=boot, need_reorder=True)
        new_state, probabilities = step(word, state, rnn.static_input(encoded), rnn.static_input(compared), size=size)
        rnn.update_memory(state, new_state)
        rnn.output(probabilities)
    return layers.mean(layers.cross_entropy(rnn(), following))


def translation(source, first_ids, first_scores, size=32, beam_size=3, longest=10):
    """The `beam_size` best targets for each source, and their scores."""
    encoded, compared, boot = encode(source, size)
    count = layers.zeros([1], "int64")
    ids, scores = layers.array_write(first_ids, count), layers.array_write(first_scores, count)
    carried = [layers.array_write(value, count) for value in (boot, encoded, compared)]
    limit = layers.fill_constant([1], "int64", longest)
    more = layers.less_than(count, limit)
    loop = layers.While(more)
    with loop.block():
        last_ids, last_scores = layers.array_read(ids, count), layers.array_read(scores, count)
        # A prefix is there once for each word that it was continued with.
        prefixes = [layers.sequence_expand(layers.array_read(array, count), last_scores) for array in carried]
        state, probabilities = step(last_ids, *prefixes, size=size)
        best, words = layers.topk(probabilities, k=beam_size)
        total = layers.elementwise_add(layers.log(best), layers.reshape(last_scores, [-1]), axis=0)
        total = layers.lod_reset(total, y=last_scores)
        new_ids, new_scores = layers.beam_search(last_ids, last_scores, words, total, beam_size, end_id=END)
        layers.increment(count, 1)
        for value, array in zip([new_ids, new_scores, state, *prefixes[1:]], [ids, scores, *carried], strict=True):
            layers.array_write(value, count, array)
        layers.less_than(count, limit, cond=more)
        layers.logical_and(more, layers.logical_not(layers.is_empty(new_ids)), out=more)
    return layers.beam_search_decode(ids, scores, beam_size, end_id=END)


def beginnings(count):
    """The feeds for the first words and scores of `count` sources: each has one prefix, the start sign alone."""
    levels = [[1] * count, [1] * count]
    return {
        "first_ids": fluid.create_lod_tensor(np.full([count, 1], START, np.int64), levels, place),
        "first_scores": fluid.create_lod_tensor(np.zeros([count, 1], np.float32), levels, place),
    }


def sequences(*names):
    """Variables that are fed words, each a sequence for each pair."""
    return [layers.data(name=name, shape=[1], dtype="int64", lod_level=1) for name in names]


def main():
    args = parse(parser_of(__doc__, epochs=8, samples=2000, goal=0.9, of="share of unseen sources translated without an error"))

    # The programs: what to compute, as data.
    feed_list = sequences("source", "said", "following")
    loss = training(*feed_list)
    fluid.optimizer.Adam(learning_rate=0.01).minimize(loss)
    translate = fluid.Program()
    with fluid.program_guard(translate, fluid.Program()):
        (source,) = sequences("source")
        first_ids = layers.data(name="first_ids", shape=[1], dtype="int64", lod_level=2)
        first_scores = layers.data(name="first_scores", shape=[1], dtype="float32", lod_level=2)
        best, _ = translation(source, first_ids, first_scores)

    # The executor: computes them.
    executor = start(args.seed)
    losses = train(executor, pairs(args.samples, args.seed), feed_list, loss, args.epochs, batch_size=32)

    unseen = list(pairs(100, args.seed + 1))
    feed = {**beginnings(len(unseen)), **fluid.DataFeeder(source, place, translate).feed([pair[:1] for pair in unseen])}
    (found,) = executor.run(translate, feed=feed, fetch_list=[best], return_numpy=False)
    of_source, of_target = found.lod()
    words = np.array(found).ravel()
    right = 0
    for number, (spoken, _, expected) in enumerate(unseen):
        targets = [words[of_target[i] : of_target[i + 1]] for i in range(*of_source[number : number + 2])]
        right += [*targets[0]] == [START, *expected]
        if number < 4:
            found_words = [" ".join(GERMAN[word] for word in target) for target in targets]
            print("", " ".join(ENGLISH[word] for word in spoken), *found_words, sep="\n      ")
    judge(args, losses, right / len(unseen), "unseen sources translated without an error")


if __name__ == "__main__":
    main()
