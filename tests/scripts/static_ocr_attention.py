"""Reads digits from a strip by attention: columns of a convolution as a sequence, a DynamicRNN, and a beam search in a While."""

from __future__ import print_function

import numpy as np

import fluid

CLASSES, HEIGHT, WIDTH, HIDDEN, BATCH = 4, 8, 24, 24, 16
START, END = CLASSES, CLASSES + 1
WORDS = CLASSES + 2


def encoder_net(images):
    features = fluid.layers.conv2d(
        input=images, num_filters=8, filter_size=3, padding=1, act=None, param_attr="conv.w", bias_attr=False
    )
    features = fluid.layers.batch_norm(
        features, act="relu", param_attr="bn.w", bias_attr="bn.b", moving_mean_name="bn.m", moving_variance_name="bn.v"
    )
    features = fluid.layers.pool2d(input=features, pool_size=2, pool_type="max", pool_stride=2)
    columns = fluid.layers.im2sequence(input=features, stride=[1, 1], filter_size=[features.shape[2], 1])
    forward = fluid.layers.fc(input=columns, size=HIDDEN * 3, param_attr="forward.w", bias_attr="forward.b")
    backward = fluid.layers.fc(input=columns, size=HIDDEN * 3, param_attr="backward.w", bias_attr="backward.b")
    gru_forward = fluid.layers.dynamic_gru(input=forward, size=HIDDEN, param_attr="gru_f.w", bias_attr="gru_f.b")
    gru_backward = fluid.layers.dynamic_gru(
        input=backward, size=HIDDEN, is_reverse=True, param_attr="gru_b.w", bias_attr="gru_b.b"
    )
    encoded = fluid.layers.concat(input=[gru_forward, gru_backward], axis=1)
    projected = fluid.layers.fc(input=encoded, size=HIDDEN, bias_attr=False, param_attr="key.w")
    boot = fluid.layers.fc(
        input=fluid.layers.sequence_pool(input=gru_backward, pool_type="first"),
        size=HIDDEN,
        act="tanh",
        param_attr="boot.w",
        bias_attr=False,
    )
    return boot, encoded, projected


def attention(encoded, projected, state):
    query = fluid.layers.fc(input=state, size=HIDDEN, bias_attr=False, param_attr="query.w")
    query = fluid.layers.sequence_expand(x=query, y=projected)
    mixed = fluid.layers.elementwise_add(x=query, y=projected, act="tanh")
    scores = fluid.layers.fc(input=mixed, size=1, act=None, bias_attr=False, param_attr="score.w")
    weights = fluid.layers.reshape(x=fluid.layers.sequence_softmax(input=scores), shape=[-1])
    return fluid.layers.sequence_pool(input=fluid.layers.elementwise_mul(x=encoded, y=weights, axis=0), pool_type="sum")


def decoder_step(context, word, state):
    inputs = fluid.layers.fc(input=[context, word], size=HIDDEN * 3, bias_attr=False, param_attr=["context.w", "word.w"])
    state, _, _ = fluid.layers.gru_unit(input=inputs, hidden=state, size=HIDDEN * 3, param_attr="unit.w", bias_attr="unit.b")
    return state


def words_of(ids):
    return fluid.layers.embedding(input=ids, size=[WORDS, HIDDEN], dtype="float32", param_attr="table")


def probabilities(state):
    return fluid.layers.fc(input=state, size=WORDS, act="softmax", param_attr="out.w", bias_attr="out.b")


def attention_train_net():
    images = fluid.layers.data(name="pixel", shape=[1, HEIGHT, WIDTH], dtype="float32")
    label_in = fluid.layers.data(name="label_in", shape=[1], dtype="int64", lod_level=1)
    label_out = fluid.layers.data(name="label_out", shape=[1], dtype="int64", lod_level=1)
    boot, encoded, projected = encoder_net(images)
    words = words_of(label_in)
    rnn = fluid.layers.DynamicRNN()
    with rnn.block():
        word = rnn.step_input(words)
        vectors, keys = rnn.static_input(encoded), rnn.static_input(projected)
        memory = rnn.memory(init=boot, need_reorder=True)
        state = decoder_step(attention(vectors, keys, memory), word, memory)
        rnn.update_memory(memory, state)
        rnn.output(probabilities(state))
    cost = fluid.layers.cross_entropy(input=rnn(), label=label_out)
    loss = fluid.layers.mean(cost)
    fluid.clip.set_gradient_clip(fluid.clip.GradientClipByGlobalNorm(5.0))
    fluid.optimizer.Adam(learning_rate=0.01, regularization=fluid.regularizer.L2Decay(1e-5)).minimize(loss)
    return loss


def attention_infer_net(max_length=6, beam_size=3):
    """Beams of one image, so that every beam looks at the same columns."""
    images = fluid.layers.data(name="pixel", shape=[1, HEIGHT, WIDTH], dtype="float32")
    init_ids = fluid.layers.data(name="init_ids", shape=[1], dtype="int64", lod_level=2)
    init_scores = fluid.layers.data(name="init_scores", shape=[1], dtype="float32", lod_level=2)
    boot, encoded, projected = encoder_net(images)
    length = fluid.layers.fill_constant(shape=[1], dtype="int64", value=max_length)
    counter = fluid.layers.zeros(shape=[1], dtype="int64", force_cpu=True)
    states, ids, scores = [fluid.layers.create_array(dtype) for dtype in ("float32", "int64", "float32")]
    fluid.layers.array_write(boot, array=states, i=counter)
    fluid.layers.array_write(init_ids, array=ids, i=counter)
    fluid.layers.array_write(init_scores, array=scores, i=counter)
    cond = fluid.layers.less_than(x=counter, y=length)
    while_op = fluid.layers.While(cond=cond)
    with while_op.block():
        pre_ids = fluid.layers.array_read(array=ids, i=counter)
        pre_state = fluid.layers.array_read(array=states, i=counter)
        pre_score = fluid.layers.array_read(array=scores, i=counter)
        context = attention_of_beams(encoded, projected, pre_state)
        state = decoder_step(
            fluid.layers.sequence_expand(context, pre_score),
            words_of(pre_ids),
            fluid.layers.sequence_expand(pre_state, pre_score),
        )
        current = probabilities(fluid.layers.lod_reset(x=state, y=pre_score))
        top_scores, top_ids = fluid.layers.topk(current, k=beam_size)
        sums = fluid.layers.elementwise_add(x=fluid.layers.log(top_scores), y=fluid.layers.reshape(pre_score, shape=[-1]), axis=0)
        chosen_ids, chosen_scores = fluid.layers.beam_search(
            pre_ids, pre_score, top_ids, sums, beam_size=beam_size, end_id=END, level=0
        )
        fluid.layers.increment(x=counter, value=1, in_place=True)
        fluid.layers.array_write(state, array=states, i=counter)
        fluid.layers.array_write(chosen_ids, array=ids, i=counter)
        fluid.layers.array_write(chosen_scores, array=scores, i=counter)
        goes_on = fluid.layers.logical_not(fluid.layers.is_empty(x=chosen_ids))
        fluid.layers.logical_and(x=fluid.layers.less_than(x=counter, y=length), y=goes_on, out=cond)
    return fluid.layers.beam_search_decode(ids, scores, beam_size=beam_size, end_id=END)


def attention_of_beams(encoded, projected, state):
    """`attention` of several states over the columns of one image."""
    query = fluid.layers.unsqueeze(fluid.layers.fc(input=state, size=HIDDEN, bias_attr=False, param_attr="query.w"), axes=[1])
    mixed = fluid.layers.tanh(fluid.layers.elementwise_add(query, fluid.layers.unsqueeze(projected, axes=[0])))
    scores = fluid.layers.fc(input=mixed, size=1, num_flatten_dims=2, bias_attr=False, param_attr="score.w")
    weights = fluid.layers.softmax(fluid.layers.squeeze(scores, axes=[2]))
    return fluid.layers.matmul(weights, encoded)


def images_of(rng, count):
    pixels, digits = [], []
    for _ in range(count):
        digits.append(rng.randint(0, CLASSES, rng.randint(1, 4)))
        image = rng.normal(0, 0.1, (1, HEIGHT, WIDTH))
        for place, digit in enumerate(digits[-1]):
            image[0, digit * 2 : digit * 2 + 2, place * 8 + 1 : place * 8 + 6] += 1.0
        pixels.append(image.astype("float32"))
    return np.stack(pixels), [row.tolist() for row in digits]


def sequences(rows, place):
    return fluid.create_lod_tensor(np.concatenate(rows).reshape(-1, 1).astype("int64"), [[len(row) for row in rows]], place)


def main(steps=120):
    place = fluid.CPUPlace()
    train, startup = fluid.Program(), fluid.Program()
    train.random_seed = startup.random_seed = 6
    with fluid.program_guard(train, startup):
        loss = attention_train_net()
    exe = fluid.Executor(place)
    exe.run(startup)
    rng, losses = np.random.RandomState(0), []
    for _ in range(steps):
        pixels, digits = images_of(rng, BATCH)
        feed = {
            "pixel": pixels,
            "label_in": sequences([[START] + row for row in digits], place),
            "label_out": sequences([row + [END] for row in digits], place),
        }
        losses.append(float(exe.run(train, feed=feed, fetch_list=[loss])[0]))

    infer = fluid.Program()
    with fluid.program_guard(infer, fluid.Program()):
        outputs = attention_infer_net()
    infer = infer.clone(for_test=True)
    pixels, digits = images_of(rng, 10)
    right = []
    for image, wanted in zip(pixels, digits):
        feed = {
            "pixel": image[None],
            "init_ids": fluid.create_lod_tensor(np.array([[START]], "int64"), [[1], [1]], place),
            "init_scores": fluid.create_lod_tensor(np.zeros((1, 1), "float32"), [[1], [1]], place),
        }
        result = exe.run(infer, feed=feed, fetch_list=list(outputs), return_numpy=False)[0]
        best = np.array(result)[: result.lod()[1][1]].tolist()
        right.append([word for word in best if word not in (START, END)] == wanted)
    print("strips read without a mistake: %.2f" % np.mean(right))
    return losses, float(np.mean(right))


if __name__ == "__main__":
    main(400)
