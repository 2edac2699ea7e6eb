"""A transformer that learns to turn sentences around; then a beam search in a while loop, with caches, writes them."""

from __future__ import print_function

import numpy as np

import fluid
import fluid.layers as layers


class ModelConfig(object):
    src_vocab_size = 12
    trg_vocab_size = 12
    max_length = 8
    d_model = 32
    d_inner_hid = 64
    n_head = 2
    n_layer = 1
    dropout = 0.1
    label_smooth_eps = 0.1
    bos_idx, eos_idx = 0, 1
    batch_size = 16
    beam_size = 3
    max_out_len = 8


word_emb_names = ("src_word_emb_table", "trg_word_emb_table")
pos_enc_names = ("src_pos_enc_table", "trg_pos_enc_table")


def position_encoding_init(n_position, d_pos_vec):
    position = np.arange(n_position)
    num_timescales = d_pos_vec // 2
    increment = np.log(float(1e4)) / (num_timescales - 1)
    inv_timescales = np.exp(np.arange(num_timescales) * -increment)
    scaled_time = np.expand_dims(position, 1) * np.expand_dims(inv_timescales, 0)
    signal = np.concatenate([np.sin(scaled_time), np.cos(scaled_time)], axis=1)
    return signal.astype("float32")


def multi_head_attention(queries, keys, values, attn_bias, d_key, d_value, d_model, n_head, dropout_rate=0.0, cache=None):
    keys = queries if keys is None else keys
    values = keys if values is None else values
    if not (len(queries.shape) == len(keys.shape) == len(values.shape) == 3):
        raise ValueError("Inputs: queries, keys and values should all be 3-D tensors.")

    q = layers.fc(input=queries, size=d_key * n_head, bias_attr=False, num_flatten_dims=2)
    k = layers.fc(input=keys, size=d_key * n_head, bias_attr=False, num_flatten_dims=2)
    v = layers.fc(input=values, size=d_value * n_head, bias_attr=False, num_flatten_dims=2)

    def split_heads(x, size):
        x = layers.reshape(x=x, shape=[0, 0, n_head, size], inplace=True)
        return layers.transpose(x=x, perm=[0, 2, 1, 3])

    q, k, v = split_heads(q, d_key), split_heads(k, d_key), split_heads(v, d_value)
    if cache is not None:
        k = cache["k"] = layers.concat([cache["k"], k], axis=2)
        v = cache["v"] = layers.concat([cache["v"], v], axis=2)

    product = layers.matmul(x=q, y=k, transpose_y=True, alpha=d_key**-0.5)
    if attn_bias:
        product += attn_bias
    weights = layers.softmax(product)
    if dropout_rate:
        weights = layers.dropout(weights, dropout_prob=dropout_rate, is_test=False)
    out = layers.matmul(weights, v)
    out = layers.transpose(out, perm=[0, 2, 1, 3])
    out = layers.reshape(x=out, shape=[0, 0, out.shape[2] * out.shape[3]], inplace=True)
    return layers.fc(input=out, size=d_model, bias_attr=False, num_flatten_dims=2)


def pre_post_process_layer(prev_out, out, process_cmd, dropout_rate=0.0):
    for cmd in process_cmd:
        if cmd == "a":
            out = out + prev_out if prev_out else out
        elif cmd == "n":
            out = layers.layer_norm(
                out,
                begin_norm_axis=len(out.shape) - 1,
                param_attr=fluid.initializer.Constant(1.0),
                bias_attr=fluid.initializer.Constant(0.0),
            )
        elif cmd == "d" and dropout_rate:
            out = layers.dropout(out, dropout_prob=dropout_rate, is_test=False)
    return out


def feed_forward(x, cfg):
    hidden = layers.fc(input=x, size=cfg.d_inner_hid, num_flatten_dims=2, act="relu")
    return layers.fc(input=hidden, size=cfg.d_model, num_flatten_dims=2)


def prepare(word, pos, which, vocab_size, cfg, dropout_rate):
    word_emb = layers.embedding(
        word,
        size=[vocab_size, cfg.d_model],
        padding_idx=cfg.bos_idx,
        param_attr=fluid.ParamAttr(name=word_emb_names[which], initializer=fluid.initializer.Normal(0.0, cfg.d_model**-0.5)),
    )
    word_emb = layers.scale(x=word_emb, scale=cfg.d_model**0.5)
    pos_enc = layers.embedding(
        pos,
        size=[cfg.max_length + 1, cfg.d_model],
        param_attr=fluid.ParamAttr(name=pos_enc_names[which], trainable=False),
    )
    pos_enc.stop_gradient = True
    enc_input = word_emb + pos_enc
    return layers.dropout(enc_input, dropout_prob=dropout_rate, is_test=False) if dropout_rate else enc_input


def encoder(src_word, src_pos, src_slf_attn_bias, cfg, dropout_rate):
    x = prepare(src_word, src_pos, 0, cfg.src_vocab_size, cfg, dropout_rate)
    d_key = cfg.d_model // cfg.n_head
    for _ in range(cfg.n_layer):
        normed = pre_post_process_layer(None, x, "n")
        attn = multi_head_attention(normed, None, None, src_slf_attn_bias, d_key, d_key, cfg.d_model, cfg.n_head, dropout_rate)
        x = pre_post_process_layer(x, attn, "da", dropout_rate)
        x = pre_post_process_layer(x, feed_forward(pre_post_process_layer(None, x, "n"), cfg), "da", dropout_rate)
    return pre_post_process_layer(None, x, "n")


def decoder(trg_word, trg_pos, slf_bias, src_bias, enc_output, cfg, dropout_rate, caches=None):
    x = prepare(trg_word, trg_pos, 1, cfg.trg_vocab_size, cfg, dropout_rate)
    d_key = cfg.d_model // cfg.n_head
    for i in range(cfg.n_layer):
        normed = pre_post_process_layer(None, x, "n")
        attn = multi_head_attention(
            normed,
            None,
            None,
            slf_bias,
            d_key,
            d_key,
            cfg.d_model,
            cfg.n_head,
            dropout_rate,
            cache=caches[i] if caches else None,
        )
        x = pre_post_process_layer(x, attn, "da", dropout_rate)
        normed = pre_post_process_layer(None, x, "n")
        attn = multi_head_attention(normed, enc_output, enc_output, src_bias, d_key, d_key, cfg.d_model, cfg.n_head, dropout_rate)
        x = pre_post_process_layer(x, attn, "da", dropout_rate)
        x = pre_post_process_layer(x, feed_forward(pre_post_process_layer(None, x, "n"), cfg), "da", dropout_rate)
    x = pre_post_process_layer(None, x, "n")
    predict = layers.fc(input=x, size=cfg.trg_vocab_size, num_flatten_dims=2, bias_attr=False)
    return layers.reshape(predict, shape=[-1, cfg.trg_vocab_size], inplace=True)


def make_inputs(names, cfg):
    seq = cfg.max_length
    descs = {
        "src_word": ([None, seq, 1], "int64", 0),
        "src_pos": ([None, seq, 1], "int64", 0),
        "src_slf_attn_bias": ([None, cfg.n_head, seq, seq], "float32", 0),
        "trg_word": ([None, seq, 1], "int64", 0),
        "trg_pos": ([None, seq, 1], "int64", 0),
        "trg_slf_attn_bias": ([None, cfg.n_head, seq, seq], "float32", 0),
        "trg_src_attn_bias": ([None, cfg.n_head, seq, seq], "float32", 0),
        "lbl_word": ([None, 1], "int64", 0),
        "lbl_weight": ([None, 1], "float32", 0),
        "start_word": ([None, 1], "int64", 2),
        "init_score": ([None, 1], "float32", 2),
        "init_idx": ([None], "int32", 0),
        "search_src_attn_bias": ([None, cfg.n_head, 1, seq], "float32", 0),
    }
    return [fluid.data(name=name, shape=descs[name][0], dtype=descs[name][1], lod_level=descs[name][2]) for name in names]


def transformer(cfg):
    names = ("src_word", "src_pos", "src_slf_attn_bias", "trg_word", "trg_pos", "trg_slf_attn_bias", "trg_src_attn_bias")
    names += ("lbl_word", "lbl_weight")
    inputs = make_inputs(names, cfg)
    reader = fluid.io.PyReader(feed_list=inputs, capacity=4, iterable=False, use_double_buffer=True)
    src_word, src_pos, src_bias, trg_word, trg_pos, slf_bias, cross_bias, label, weights = inputs

    enc_output = encoder(src_word, src_pos, src_bias, cfg, cfg.dropout)
    predict = decoder(trg_word, trg_pos, slf_bias, cross_bias, enc_output, cfg, cfg.dropout)
    if cfg.label_smooth_eps:
        label = layers.label_smooth(label=layers.one_hot(input=label, depth=cfg.trg_vocab_size), epsilon=cfg.label_smooth_eps)
    cost = layers.softmax_with_cross_entropy(logits=predict, label=label, soft_label=True if cfg.label_smooth_eps else False)
    sum_cost = layers.reduce_sum(cost * weights)
    token_num = layers.reduce_sum(weights)
    token_num.stop_gradient = True
    avg_cost = sum_cost / token_num
    return sum_cost, avg_cost, token_num, reader


def fast_decode(cfg):
    src_word, src_pos, src_bias, start_tokens, init_scores, parent_idx, cross_bias = make_inputs(
        ("src_word", "src_pos", "src_slf_attn_bias", "start_word", "init_score", "init_idx", "search_src_attn_bias"), cfg
    )
    enc_output = encoder(src_word, src_pos, src_bias, cfg, 0.0)
    d_key = cfg.d_model // cfg.n_head

    max_len = layers.fill_constant(shape=[1], dtype=start_tokens.dtype, value=cfg.max_out_len, force_cpu=True)
    step_idx = layers.fill_constant(shape=[1], dtype=start_tokens.dtype, value=0, force_cpu=True)
    cond = layers.less_than(x=step_idx, y=max_len)
    while_op = layers.While(cond)
    ids = layers.array_write(layers.reshape(start_tokens, (-1, 1)), step_idx)
    scores = layers.array_write(init_scores, step_idx)
    caches = [
        {
            name: layers.fill_constant_batch_size_like(
                input=start_tokens, shape=[-1, cfg.n_head, 0, d_key], dtype=enc_output.dtype, value=0
            )
            for name in ("k", "v")
        }
        for _ in range(cfg.n_layer)
    ]
    with while_op.block():
        pre_ids = layers.array_read(array=ids, i=step_idx)
        pre_scores = layers.array_read(array=scores, i=step_idx)
        pre_bias = layers.gather(cross_bias, index=parent_idx)
        pre_enc_output = layers.gather(enc_output, index=parent_idx)
        pre_caches = [{name: layers.gather(value, index=parent_idx) for name, value in cache.items()} for cache in caches]
        pre_pos = layers.elementwise_mul(
            x=layers.fill_constant_batch_size_like(input=pre_enc_output, value=1, shape=[-1, 1, 1], dtype=pre_ids.dtype),
            y=step_idx,
            axis=0,
        )
        words = layers.reshape(pre_ids, (-1, 1, 1))
        logits = decoder(words, pre_pos, None, pre_bias, pre_enc_output, cfg, 0.0, caches=pre_caches)

        topk_scores, topk_indices = layers.topk(input=layers.softmax(logits), k=cfg.beam_size)
        accu_scores = layers.elementwise_add(x=layers.log(topk_scores), y=pre_scores, axis=0)
        accu_scores = layers.lod_reset(accu_scores, pre_ids)
        selected_ids, selected_scores, gather_idx = layers.beam_search(
            pre_ids=pre_ids,
            pre_scores=pre_scores,
            ids=topk_indices,
            scores=accu_scores,
            beam_size=cfg.beam_size,
            end_id=cfg.eos_idx,
            return_parent_idx=True,
        )
        layers.increment(x=step_idx, value=1.0, in_place=True)
        layers.array_write(selected_ids, i=step_idx, array=ids)
        layers.array_write(selected_scores, i=step_idx, array=scores)
        layers.assign(gather_idx, parent_idx)
        layers.assign(pre_enc_output, enc_output)
        layers.assign(pre_bias, cross_bias)
        for cache, pre_cache in zip(caches, pre_caches):
            for name in cache:
                layers.assign(pre_cache[name], cache[name])
        length_cond = layers.less_than(x=step_idx, y=max_len)
        finish_cond = layers.logical_not(layers.is_empty(x=selected_ids))
        layers.logical_and(x=length_cond, y=finish_cond, out=cond)

    return layers.beam_search_decode(ids, scores, beam_size=cfg.beam_size, end_id=cfg.eos_idx)


def pad(sentences, cfg):
    """Words, positions and the bias that hides the padding, of a batch."""
    word = np.array([words + [cfg.eos_idx] * (cfg.max_length - len(words)) for words in sentences]).astype("int64")
    pos = np.array([list(range(len(words))) + [0] * (cfg.max_length - len(words)) for words in sentences]).astype("int64")
    bias = np.array([[0.0] * len(words) + [-1e9] * (cfg.max_length - len(words)) for words in sentences]).astype("float32")
    return word[:, :, np.newaxis], pos[:, :, np.newaxis], bias


def batches(cfg, count, rng):
    def sentence():
        return [int(word) for word in rng.randint(2, cfg.src_vocab_size, rng.randint(2, 5))]

    def generator():
        for _ in range(count):
            src = [sentence() for _ in range(cfg.batch_size)]
            word, pos, bias = pad(src, cfg)
            trg_word, trg_pos, _ = pad([[cfg.bos_idx] + words[::-1] for words in src], cfg)
            label, _, hidden = pad([words[::-1] + [cfg.eos_idx] for words in src], cfg)
            seq = cfg.max_length
            cross = np.tile(bias[:, np.newaxis, np.newaxis, :], [1, cfg.n_head, seq, 1])
            future = np.triu(np.full((seq, seq), -1e9, "float32"), 1)
            slf = np.tile(future[np.newaxis, np.newaxis], [len(src), cfg.n_head, 1, 1])
            yield [
                word, pos, cross, trg_word, trg_pos, slf, cross,
                label.reshape(-1, 1), (hidden == 0).astype("float32").reshape(-1, 1),
            ]  # fmt: skip

    return generator


def search_feed(cfg, src, place):
    word, pos, bias = pad(src, cfg)
    count = len(src)
    lod = [range(count + 1)] * 2
    start = fluid.core.LoDTensor()
    start.set(np.full((count, 1), cfg.bos_idx, "int64"), place)
    start.set_lod([list(level) for level in lod])
    score = fluid.create_lod_tensor(np.zeros((count, 1), "float32"), [[1] * count, [1] * count], place)
    return {
        "src_word": word,
        "src_pos": pos,
        "src_slf_attn_bias": np.tile(bias[:, np.newaxis, np.newaxis, :], [1, cfg.n_head, cfg.max_length, 1]),
        "start_word": start,
        "init_score": score,
        "init_idx": np.arange(count).astype("int32"),
        "search_src_attn_bias": np.tile(bias[:, np.newaxis, np.newaxis, :], [1, cfg.n_head, 1, 1]),
    }


def main(steps=150):
    cfg = ModelConfig
    place = fluid.CPUPlace()
    exe = fluid.Executor(place)
    rng = np.random.RandomState(1)

    train_prog, startup_prog = fluid.Program(), fluid.Program()
    train_prog.random_seed = startup_prog.random_seed = 1000
    with fluid.program_guard(train_prog, startup_prog):
        with fluid.unique_name.guard():
            sum_cost, avg_cost, token_num, reader = transformer(cfg)
            lr = layers.learning_rate_scheduler.noam_decay(cfg.d_model, 40)
            optimizer = fluid.optimizer.Adam(learning_rate=lr, beta1=0.9, beta2=0.997, epsilon=1e-9)
            optimizer.minimize(avg_cost)
    infer_prog = fluid.Program()
    with fluid.program_guard(infer_prog, fluid.Program()):
        with fluid.unique_name.guard():
            out_ids, out_scores = fast_decode(cfg)
    infer_prog = infer_prog.clone(for_test=True)

    exe.run(startup_prog)
    for name in pos_enc_names:
        tensor = fluid.global_scope().find_var(name).get_tensor()
        tensor.set(position_encoding_init(cfg.max_length + 1, cfg.d_model), place)

    exec_strategy = fluid.ExecutionStrategy()
    exec_strategy.num_iteration_per_drop_scope = 1
    build_strategy = fluid.BuildStrategy()
    build_strategy.enable_inplace = True
    compiled = fluid.CompiledProgram(train_prog).with_data_parallel(
        loss_name=avg_cost.name, build_strategy=build_strategy, exec_strategy=exec_strategy
    )

    loss_normalizer = -(
        (1.0 - cfg.label_smooth_eps) * np.log(1.0 - cfg.label_smooth_eps)
        + cfg.label_smooth_eps * np.log(cfg.label_smooth_eps / (cfg.trg_vocab_size - 1) + 1e-20)
    )
    losses = []
    for pass_id in range(2):
        reader.decorate_batch_generator(batches(cfg, steps // 2, rng), places=place)
        reader.start()
        batch_id = 0
        try:
            while True:
                sum_cost_val, token_num_val = exe.run(compiled, fetch_list=[sum_cost.name, token_num.name])
                total_avg_cost = np.array(sum_cost_val).sum() / np.array(token_num_val).sum()
                losses.append(float(total_avg_cost))
                if batch_id % 50 == 0:
                    print(
                        "epoch: %d, batch: %d, avg loss: %f, normalized loss: %f, ppl: %f"
                        % (pass_id, batch_id, total_avg_cost, total_avg_cost - loss_normalizer, np.exp(min(total_avg_cost, 100)))
                    )
                batch_id += 1
        except fluid.core.EOFException:
            reader.reset()

    src = [[2, 3, 4], [7, 6], [5, 9, 8, 10]]
    seq_ids, seq_scores = exe.run(
        infer_prog, feed=search_feed(cfg, src, place), fetch_list=[out_ids, out_scores], return_numpy=False
    )
    seq_ids_list, seq_scores_list = [seq_ids], [seq_scores]
    hyps = []
    for ids, scores in zip(seq_ids_list, seq_scores_list):
        lod = ids.lod()
        for i in range(len(lod[0]) - 1):
            start, end = lod[0][i], lod[0][i + 1]
            for j in range(end - start):
                sub_start, sub_end = lod[1][start + j], lod[1][start + j + 1]
                words = [int(word) for word in np.array(ids)[sub_start:sub_end]]
                score = np.array(scores)[sub_end - 1]
                print("%s -> %s: %.3f" % (src[i], words, score))
                if j == 0:
                    hyps.append(words)
    right = [words[1:-1] == source[::-1] for words, source in zip(hyps, src)]
    print("%d of %d are right" % (sum(right), len(right)))
    return losses, right


if __name__ == "__main__":
    main(600)
