"""An encoder that guesses hidden words, trained as that was done: a warmup by a switch, and decay after the updates."""

from __future__ import print_function

import os
import tempfile

import numpy as np

import fluid

VOCAB, LENGTH, HIDDEN, HEADS, BATCH = 16, 8, 16, 2, 16
MASK = 1


def linear_warmup_decay(learning_rate, warmup_steps, num_train_steps):
    """Applies linear warmup of learning rate from 0 and decay to 0."""
    with fluid.default_main_program()._lr_schedule_guard():
        lr = fluid.layers.tensor.create_global_var(
            shape=[1], value=0.0, dtype="float32", persistable=True, name="scheduled_learning_rate"
        )
        global_step = fluid.layers.learning_rate_scheduler._decay_step_counter()
        with fluid.layers.control_flow.Switch() as switch:
            with switch.case(global_step < warmup_steps):
                warmup_lr = learning_rate * (global_step / warmup_steps)
                fluid.layers.tensor.assign(warmup_lr, lr)
            with switch.default():
                decayed_lr = fluid.layers.learning_rate_scheduler.polynomial_decay(
                    learning_rate=learning_rate, decay_steps=num_train_steps, end_learning_rate=0.0, power=1.0, cycle=False
                )
                fluid.layers.tensor.assign(decayed_lr, lr)
        return lr


def optimization(loss, warmup_steps, num_train_steps, learning_rate, train_program, startup_prog, weight_decay):
    scheduled_lr = linear_warmup_decay(learning_rate, warmup_steps, num_train_steps)
    optimizer = fluid.optimizer.Adam(learning_rate=scheduled_lr)
    fluid.clip.set_gradient_clip(clip=fluid.clip.GradientClipByGlobalNorm(clip_norm=1.0))

    def exclude_from_weight_decay(param):
        name = param.name.rstrip(".master")
        return name.find("layer_norm") > -1 or any(name.endswith(suffix) for suffix in ("_bias", "_b", ".b_0"))

    param_list = dict()
    for param in train_program.global_block().all_parameters():
        param_list[param.name] = param * 1.0
        param_list[param.name].stop_gradient = True

    _, param_grads = optimizer.minimize(loss)
    if weight_decay > 0:
        for param, grad in param_grads:
            if exclude_from_weight_decay(param):
                continue
            with param.block.program._optimized_guard([param, grad]), fluid.framework.name_scope("weight_decay"):
                updated_param = param - param_list[param.name] * weight_decay * scheduled_lr
                fluid.layers.assign(output=param, input=updated_param)
    return scheduled_lr


def encoder_layer(x, attn_bias, name):
    initializer = fluid.initializer.TruncatedNormal(scale=0.3)

    def dense(value, size, act, part):
        return fluid.layers.fc(
            input=value,
            size=size,
            act=act,
            num_flatten_dims=2,
            param_attr=fluid.ParamAttr(name=name + part + ".w_0", initializer=initializer),
            bias_attr=name + part + ".b_0",
        )

    def heads(value):
        value = fluid.layers.reshape(x=value, shape=[0, 0, HEADS, HIDDEN // HEADS], inplace=True)
        return fluid.layers.transpose(x=value, perm=[0, 2, 1, 3])

    def norm(value, part):
        return fluid.layers.layer_norm(
            value,
            begin_norm_axis=len(value.shape) - 1,
            param_attr=fluid.ParamAttr(name=name + part + "_layer_norm_scale", initializer=fluid.initializer.Constant(1.0)),
            bias_attr=fluid.ParamAttr(name=name + part + "_layer_norm_bias", initializer=fluid.initializer.Constant(0.0)),
        )

    q, k, v = [heads(dense(x, HIDDEN, None, part)) for part in ("_query_fc", "_key_fc", "_value_fc")]
    product = fluid.layers.matmul(x=q, y=k, transpose_y=True, alpha=(HIDDEN // HEADS) ** -0.5)
    if attn_bias:
        product += attn_bias
    weights = fluid.layers.dropout(
        fluid.layers.softmax(product), dropout_prob=0.1, dropout_implementation="upscale_in_train", is_test=False
    )
    out = fluid.layers.transpose(fluid.layers.matmul(weights, v), perm=[0, 2, 1, 3])
    out = fluid.layers.reshape(x=out, shape=[0, 0, HIDDEN], inplace=True)
    x = norm(x + dense(out, HIDDEN, None, "_output_fc"), "_post_att")
    return norm(x + dense(dense(x, HIDDEN * 2, "gelu", "_ffn_fc_0"), HIDDEN, None, "_ffn_fc_1"), "_post_ffn")


def create_model(pyreader_name):
    pyreader = fluid.layers.py_reader(
        capacity=8,
        shapes=[[-1, LENGTH, 1], [-1, LENGTH, 1], [-1, LENGTH, 1], [-1, 1], [-1, 1]],
        dtypes=["int64", "int64", "float32", "int64", "int64"],
        lod_levels=[0, 0, 0, 0, 0],
        name=pyreader_name,
        use_double_buffer=True,
    )
    src_ids, pos_ids, input_mask, mask_label, mask_pos = fluid.layers.read_file(pyreader)
    table = fluid.ParamAttr(name="word_embedding", initializer=fluid.initializer.TruncatedNormal(scale=0.3))
    emb_out = fluid.layers.embedding(input=src_ids, size=[VOCAB, HIDDEN], dtype="float32", param_attr=table, is_sparse=False)
    emb_out = emb_out + fluid.layers.embedding(input=pos_ids, size=[LENGTH, HIDDEN], param_attr="pos_embedding")

    self_attn_mask = fluid.layers.matmul(x=input_mask, y=input_mask, transpose_y=True)
    self_attn_mask = fluid.layers.scale(x=self_attn_mask, scale=10000.0, bias=-1.0, bias_after_scale=False)
    n_head_self_attn_mask = fluid.layers.stack(x=[self_attn_mask] * HEADS, axis=1)
    n_head_self_attn_mask.stop_gradient = True

    enc_out = encoder_layer(emb_out, n_head_self_attn_mask, "encoder_layer_0")
    mask_pos = fluid.layers.cast(x=mask_pos, dtype="int32")
    reshaped_emb_out = fluid.layers.reshape(x=enc_out, shape=[-1, HIDDEN])
    mask_feat = fluid.layers.gather(input=reshaped_emb_out, index=mask_pos)
    mask_trans_feat = fluid.layers.fc(input=mask_feat, size=HIDDEN, act="gelu", param_attr="mask_lm_trans_fc.w_0")
    fc_out = fluid.layers.matmul(
        x=mask_trans_feat, y=fluid.default_main_program().global_block().var("word_embedding"), transpose_y=True
    )
    fc_out += fluid.layers.create_parameter(
        shape=[VOCAB],
        dtype="float32",
        attr=fluid.ParamAttr(name="mask_lm_out_fc.b_0", initializer=fluid.initializer.Constant(value=0.0)),
        is_bias=True,
    )
    mask_lm_loss, probs = fluid.layers.softmax_with_cross_entropy(logits=fc_out, label=mask_label, return_softmax=True)
    accuracy = fluid.layers.accuracy(input=probs, label=mask_label)
    mean_mask_lm_loss = fluid.layers.mean(mask_lm_loss)
    return pyreader, mean_mask_lm_loss, accuracy


def batches(count, seed):
    def generator():
        rng = np.random.RandomState(seed)
        for _ in range(count):
            start = rng.randint(2, VOCAB, (BATCH, 1))
            ids = np.where(rng.uniform(size=(BATCH, LENGTH)) < 0.7, start, rng.randint(2, VOCAB, (BATCH, LENGTH)))
            hidden = rng.randint(0, LENGTH, BATCH)
            ids[np.arange(BATCH), hidden] = MASK
            pos = np.tile(np.arange(LENGTH), [BATCH, 1])
            yield [
                ids.reshape(BATCH, LENGTH, 1).astype("int64"),
                pos.reshape(BATCH, LENGTH, 1).astype("int64"),
                np.ones((BATCH, LENGTH, 1), "float32"),
                start.astype("int64"),
                (np.arange(BATCH) * LENGTH + hidden).reshape(-1, 1).astype("int64"),
            ]

    return generator


def main(steps=60):
    place = fluid.CPUPlace()
    exe = fluid.Executor(place)
    train_program, startup_prog, test_prog = fluid.Program(), fluid.Program(), fluid.Program()
    train_program.random_seed = startup_prog.random_seed = 3
    with fluid.program_guard(train_program, startup_prog):
        with fluid.unique_name.guard():
            train_pyreader, loss, accuracy = create_model("train_reader")
            scheduled_lr = optimization(loss, steps // 10, steps, 0.01, train_program, startup_prog, 0.01)
            fluid.memory_optimize(input_program=train_program, skip_opt_set=[loss.name, accuracy.name])
    with fluid.program_guard(test_prog, startup_prog):
        with fluid.unique_name.guard():
            test_pyreader, _, test_accuracy = create_model("test_reader")
    test_prog = test_prog.clone(for_test=True)
    exe.run(startup_prog)

    exec_strategy = fluid.ExecutionStrategy()
    exec_strategy.use_experimental_executor = False
    exec_strategy.num_threads = 1
    exec_strategy.num_iteration_per_drop_scope = 10
    train_exe = fluid.ParallelExecutor(
        use_cuda=False, loss_name=loss.name, exec_strategy=exec_strategy, main_program=train_program
    )
    train_pyreader.decorate_tensor_provider(batches(steps, 1))
    train_pyreader.start()
    losses, rates = [], []
    while True:
        try:
            np_loss, np_acc, np_lr = train_exe.run(fetch_list=[loss.name, accuracy.name, scheduled_lr.name])
            losses.append(float(np.mean(np_loss)))
            rates.append(float(np_lr[0]))
            if len(losses) % 20 == 1:
                print("current learning_rate: %f, loss: %f, acc: %f" % (np_lr[0], np.mean(np_loss), np.mean(np_acc)))
        except fluid.core.EOFException:
            train_pyreader.reset()
            break
    assert rates[0] == 0.0 and steps // 10 - rates.index(max(rates)) in (0, 1) and rates[-1] < rates[steps // 2]

    def test():
        test_pyreader.decorate_tensor_provider(batches(4, 2))
        test_pyreader.start()
        accuracies = []
        while True:
            try:
                accuracies.append(exe.run(test_prog, fetch_list=[test_accuracy.name])[0])
            except fluid.core.EOFException:
                test_pyreader.reset()
                return float(np.mean(accuracies))

    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "step_%d" % steps)
        fluid.io.save_params(exe, path, train_program)
        acc = test()

        def existed_params(var):
            if not isinstance(var, fluid.framework.Parameter):
                return False
            return os.path.exists(os.path.join(path, var.name))

        with fluid.scope_guard(fluid.Scope()):
            exe.run(startup_prog)
            fluid.io.load_vars(exe, path, main_program=test_prog, predicate=existed_params)
            assert test() == acc
    print("of the hidden words, %.2f are right" % acc)
    return losses, acc


if __name__ == "__main__":
    main(200)
