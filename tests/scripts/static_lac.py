"""Marks names in sentences: rows of different lengths, GRUs in both directions, a CRF, and chunks counted."""

from __future__ import print_function

import numpy as np

import fluid

VOCAB, LABELS, BATCH = 30, 5, 8  # labels: B and I of two kinds of names, and O


def nn_define_lex_net(word, target, for_infer=False):
    init_bound = 0.1
    word_embedding = fluid.layers.embedding(
        input=word,
        size=[VOCAB, 16],
        dtype="float32",
        is_sparse=False,
        param_attr=fluid.ParamAttr(
            learning_rate=2, name="word_emb", initializer=fluid.initializer.Uniform(low=-init_bound, high=init_bound)
        ),
    )

    def _bigru_layer(input_feature):
        states = []
        for is_reverse in (False, True):
            pre_gru = fluid.layers.fc(
                input=input_feature,
                size=16 * 3,
                param_attr=fluid.ParamAttr(
                    initializer=fluid.initializer.Uniform(low=-init_bound, high=init_bound),
                    regularizer=fluid.regularizer.L2DecayRegularizer(regularization_coeff=1e-4),
                ),
            )
            states.append(
                fluid.layers.dynamic_gru(
                    input=pre_gru,
                    size=16,
                    is_reverse=is_reverse,
                    param_attr=fluid.ParamAttr(initializer=fluid.initializer.Uniform(low=-init_bound, high=init_bound)),
                )
            )
        return fluid.layers.concat(input=states, axis=1)

    emission = fluid.layers.fc(
        size=LABELS,
        input=_bigru_layer(word_embedding),
        param_attr=fluid.ParamAttr(initializer=fluid.initializer.Uniform(low=-init_bound, high=init_bound)),
    )
    if not for_infer:
        crf_cost = fluid.layers.linear_chain_crf(
            input=emission, label=target, param_attr=fluid.ParamAttr(name="crfw", learning_rate=0.2)
        )
        avg_cost = fluid.layers.mean(x=crf_cost)
        crf_decode = fluid.layers.crf_decoding(input=emission, param_attr=fluid.ParamAttr(name="crfw"))
        return avg_cost, crf_decode
    size = emission.shape[1]
    fluid.layers.create_parameter(shape=[size + 2, size], dtype=emission.dtype, name="crfw")
    return fluid.layers.crf_decoding(input=emission, param_attr=fluid.ParamAttr(name="crfw"))


def sentences(count, seed):
    rng = np.random.RandomState(seed)

    def reader():
        for _ in range(count):
            words, labels = [], []
            while len(words) < rng.randint(3, 9):
                kind = rng.randint(3)
                if kind == 2:
                    words.append(rng.randint(20, VOCAB))
                    labels.append(4)
                else:  # a name: its first word, and perhaps others
                    length = rng.randint(1, 3)
                    words += [kind * 10 + rng.randint(5)] + [kind * 10 + rng.randint(5, 10) for _ in range(length - 1)]
                    labels += [kind * 2] + [kind * 2 + 1] * (length - 1)
            yield words, labels

    return reader


def main(steps=40):
    main_program, startup = fluid.Program(), fluid.Program()
    main_program.random_seed = startup.random_seed = 2
    with fluid.program_guard(main_program, startup):
        word = fluid.layers.data(name="word", shape=[1], dtype="int64", lod_level=1)
        target = fluid.layers.data(name="target", shape=[1], dtype="int64", lod_level=1)
        avg_cost, crf_decode = nn_define_lex_net(word, target)
        precision, recall, f1_score, num_infer_chunks, num_label_chunks, num_correct_chunks = fluid.layers.chunk_eval(
            input=crf_decode, label=target, chunk_scheme="IOB", num_chunk_types=2
        )
        chunk_evaluator = fluid.metrics.ChunkEvaluator()
        chunk_evaluator.reset()
        test_program = main_program.clone(for_test=True)
        fluid.clip.set_gradient_clip(fluid.clip.GradientClipByValue(max=1.0, min=-1.0))
        fluid.optimizer.Adam(learning_rate=0.02).minimize(avg_cost)

    place = fluid.CPUPlace()
    exe = fluid.Executor(place)
    exe.run(startup)
    feeder = fluid.DataFeeder(feed_list=[word, target], place=place)
    train_reader = fluid.io.batch(fluid.io.shuffle(sentences(steps * BATCH, 1), buf_size=200), batch_size=BATCH, drop_last=True)
    losses = []
    counts = [num_infer_chunks, num_label_chunks, num_correct_chunks]
    for data in train_reader():
        outs = exe.run(main_program, fetch_list=[avg_cost] + counts, feed=feeder.feed(data))
        chunk_evaluator.update(*outs[1:])
        losses.append(float(outs[0]))
        if len(losses) % 20 == 1:
            print("loss: %f, P: %f, R: %f, F1: %f" % ((outs[0],) + tuple(map(float, chunk_evaluator.eval()))))
    chunk_evaluator.reset()
    for data in fluid.io.batch(sentences(4 * BATCH, 2), batch_size=BATCH)():
        chunk_evaluator.update(*exe.run(test_program, fetch_list=counts, feed=feeder.feed(data)))
    print("test: P %.3f, R %.3f, F1 %.3f" % chunk_evaluator.eval())

    infer_program = fluid.Program()
    with fluid.program_guard(infer_program, fluid.Program()), fluid.unique_name.guard():
        infer_word = fluid.layers.data(name="word", shape=[1], dtype="int64", lod_level=1)
        decoded = nn_define_lex_net(infer_word, None, for_infer=True)
    words = fluid.create_lod_tensor([[2, 7, 25], [11, 28]], [[3, 2]], place)
    (tags,) = exe.run(infer_program, feed={"word": words}, fetch_list=[decoded], return_numpy=False)
    print(np.array(tags).flatten().tolist(), tags.lod())
    return losses, chunk_evaluator.eval()[2]


if __name__ == "__main__":
    main(200)
