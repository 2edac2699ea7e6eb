"""Translates by attention, in the style of Fluid 1.8: teacher forcing by a TrainingHelper, greedy decoding, and a beam search."""

from __future__ import print_function

import numpy as np

import fluid
from fluid import layers

WORDS, SIZE, BATCH, START, END = 14, 32, 32, 0, 1


def named(name):
    return fluid.ParamAttr(name=name, initializer=fluid.initializer.Uniform(-0.15, 0.15))


class AttentiveCell(layers.RNNCell):
    """A GRU that looks at the encoder's outputs before each step."""

    def __init__(self):
        self.cell = layers.GRUCell(SIZE, param_attr=named("decoder.w"), bias_attr=named("decoder.b"))

    def attention(self, state, memory, mask):
        query = layers.unsqueeze(layers.fc(state, SIZE, bias_attr=False, param_attr=named("query.w")), axes=[1])
        scores = layers.matmul(query, memory, transpose_y=True, alpha=SIZE**-0.5)
        weights = layers.softmax(layers.elementwise_add(scores, layers.unsqueeze(mask, axes=[1])))
        return layers.squeeze(layers.matmul(weights, memory), axes=[1])

    def call(self, inputs, states, memory=None, mask=None):
        context = self.attention(states, memory, mask)
        return self.cell(layers.concat([inputs, context], axis=1), states)


def embed(ids):
    return fluid.embedding(ids, size=[WORDS, SIZE], param_attr=named("target.table"))


def project(hidden):
    return layers.fc(hidden, size=WORDS, num_flatten_dims=len(hidden.shape) - 1, bias_attr=False, param_attr=named("out.w"))


def encoder():
    source = fluid.data(name="source", shape=[None, None], dtype="int64")
    lengths = fluid.data(name="source_length", shape=[None], dtype="int64")
    embedded = fluid.embedding(source, size=[WORDS, SIZE], param_attr=named("source.table"))
    cell = layers.GRUCell(SIZE, param_attr=named("encoder.w"), bias_attr=named("encoder.b"))
    memory, last = layers.rnn(cell, embedded, sequence_length=lengths)
    mask = layers.sequence_mask(lengths, maxlen=layers.shape(source)[1], dtype="float32")
    return memory, layers.scale(mask, scale=1e9, bias=-1.0, bias_after_scale=False), last


def training():
    memory, mask, first = encoder()
    target = fluid.data(name="target", shape=[None, None], dtype="int64")
    lengths = fluid.data(name="target_length", shape=[None], dtype="int64")
    label = fluid.data(name="label", shape=[None, None], dtype="int64")
    decoder = layers.BasicDecoder(AttentiveCell(), layers.TrainingHelper(embed(target), lengths), output_fn=project)
    outputs, _, _ = layers.dynamic_decode(
        decoder, inits=first, impute_finished=True, is_test=False, return_length=True, memory=memory, mask=mask
    )
    cost = layers.softmax_with_cross_entropy(outputs.cell_outputs, layers.unsqueeze(label, axes=[2]))
    weights = layers.sequence_mask(lengths, maxlen=layers.shape(label)[1], dtype="float32")
    loss = layers.reduce_sum(layers.squeeze(cost, axes=[2]) * weights) / layers.reduce_sum(weights)
    fluid.optimizer.Adam(learning_rate=0.01, grad_clip=fluid.clip.GradientClipByGlobalNorm(clip_norm=5.0)).minimize(loss)
    return loss


def greedy():
    memory, mask, first = encoder()
    start = layers.fill_constant_batch_size_like(first, shape=[-1], dtype="int64", value=START)
    decoder = layers.BasicDecoder(AttentiveCell(), layers.GreedyEmbeddingHelper(embed, start, END), output_fn=project)
    outputs, _ = layers.dynamic_decode(decoder, inits=first, max_step_num=6, is_test=True, memory=memory, mask=mask)
    return outputs.sample_ids


def beam_search(beam_size=3):
    memory, mask, first = encoder()
    tile = layers.BeamSearchDecoder.tile_beam_merge_with_batch
    decoder = layers.BeamSearchDecoder(AttentiveCell(), START, END, beam_size, embedding_fn=embed, output_fn=project)
    ids, _ = layers.dynamic_decode(
        decoder, inits=first, max_step_num=6, memory=tile(memory, beam_size), mask=tile(mask, beam_size)
    )
    return ids


def batch(rng):
    """The translation of a sentence is its words in reverse, each the next one of the vocabulary."""
    lengths = rng.randint(2, 6, BATCH)
    source, target, label = (np.full((BATCH, 6), END, "int64") for _ in range(3))
    for row, length in enumerate(lengths):
        words = rng.randint(2, WORDS - 1, length)
        source[row, :length] = words
        label[row, :length] = words[::-1] + 1
        target[row, 0], target[row, 1 : length + 1] = START, label[row, :length]
    return {
        "source": source,
        "source_length": lengths.astype("int64"),
        "target": target[:, : lengths.max() + 1],
        "target_length": lengths.astype("int64") + 1,
        "label": label[:, : lengths.max() + 1],
    }


def program_of(build):
    program, startup = fluid.Program(), fluid.Program()
    program.random_seed = startup.random_seed = 1
    with fluid.program_guard(program, startup), fluid.unique_name.guard():
        result = build()
    return program, startup, result


def main(steps=150):
    train, startup, loss = program_of(training)
    exe = fluid.Executor(fluid.CPUPlace())
    exe.run(startup)
    rng = np.random.RandomState(0)
    losses = [float(exe.run(train, feed=batch(rng), fetch_list=[loss])[0]) for _ in range(steps)]
    feed = batch(rng)
    sources = {name: feed[name] for name in ("source", "source_length")}
    sentences = []
    for build in (greedy, beam_search):
        program, _, ids = program_of(build)
        (words,) = exe.run(program, feed=sources, fetch_list=[ids])
        best = words if words.ndim == 2 else words[:, :, 0]
        rows = [
            best[row, :length].tolist() == feed["label"][row, :length].tolist()
            for row, length in enumerate(feed["source_length"] + 1)
        ]
        sentences.append(float(np.mean(rows)))
    print("sentences without a mistake: %.2f greedily, %.2f by a beam search" % tuple(sentences))
    return losses, sentences


if __name__ == "__main__":
    main(400)
