"""Words that are near, by noise contrast and by a tree, from a shared table: py_reader, start and reset."""

from __future__ import print_function

import numpy as np

import fluid

DICT_SIZE, EMBEDDING, WINDOW, BATCH = 40, 12, 2, 64


def skip_gram_word2vec(dict_size, embedding_size, neg_num, with_hsigmoid, with_nce, is_sparse):
    datas = [[-1, 1], [-1, 1]]
    py_reader = fluid.layers.py_reader(
        capacity=16, shapes=datas, dtypes=["int64", "int64"], lod_levels=[0, 0], name="py_reader", use_double_buffer=True
    )
    input_word, predict_word = fluid.layers.read_file(py_reader)

    emb = fluid.layers.embedding(
        input=input_word,
        is_sparse=is_sparse,
        size=[dict_size, embedding_size],
        param_attr=fluid.ParamAttr(
            name="embeding", initializer=fluid.initializer.Uniform(-0.5 / embedding_size, 0.5 / embedding_size)
        ),
    )
    cost = None
    if with_nce:
        cost = fluid.layers.nce(
            input=emb,
            label=predict_word,
            num_total_classes=dict_size,
            num_neg_samples=neg_num,
            sampler="custom_dist",
            custom_dist=(np.ones(dict_size) / dict_size).tolist(),
            param_attr=fluid.ParamAttr(name="nce_w", initializer=fluid.initializer.Constant(0.0)),
            bias_attr=fluid.ParamAttr(name="nce_b", initializer=fluid.initializer.Constant(0.0)),
            is_sparse=is_sparse,
        )
    if with_hsigmoid:
        hs_cost = fluid.layers.hsigmoid(
            input=emb,
            label=predict_word,
            num_classes=dict_size,
            param_attr=fluid.ParamAttr(name="hs_w", initializer=fluid.initializer.Constant(value=0.0)),
            bias_attr="hs_b",
            is_sparse=is_sparse,
        )
        cost = fluid.layers.elementwise_add(cost, hs_cost) if cost else hs_cost
    avg_cost = fluid.layers.reduce_mean(cost)
    return avg_cost, py_reader


def neighbours(seed, count):
    """Pairs of a word and one that follows it: words of one decade stand together."""
    rng = np.random.RandomState(seed)

    def reader():
        for _ in range(count):
            decade = rng.randint(4) * 10
            yield decade + rng.randint(10), decade + rng.randint(10)

    return reader


def main(steps=60):
    fluid.default_main_program().random_seed = fluid.default_startup_program().random_seed = 5
    loss, py_reader = skip_gram_word2vec(DICT_SIZE, EMBEDDING, 5, with_hsigmoid=True, with_nce=True, is_sparse=True)
    optimizer = fluid.optimizer.Adagrad(learning_rate=fluid.layers.exponential_decay(0.5, 100, 0.9, staircase=True))
    optimizer.minimize(loss)

    exe = fluid.Executor(fluid.CPUPlace())
    exe.run(fluid.default_startup_program())

    def as_arrays():
        for rows in fluid.io.batch(neighbours(3, steps // 2 * BATCH), BATCH, drop_last=True)():
            yield [np.array(column).astype("int64").reshape(-1, 1) for column in zip(*rows)]

    py_reader.decorate_tensor_provider(as_arrays)
    exec_strategy = fluid.ExecutionStrategy()
    exec_strategy.use_experimental_executor = True
    exec_strategy.num_threads = 1
    train_exe = fluid.ParallelExecutor(
        use_cuda=False,
        loss_name=loss.name,
        main_program=fluid.default_main_program(),
        build_strategy=fluid.BuildStrategy(),
        exec_strategy=exec_strategy,
    )
    losses = []
    for pass_id in range(2):
        py_reader.start()
        batch_id = 0
        try:
            while True:
                loss_val = train_exe.run(fetch_list=[loss.name])
                loss_val = np.mean(loss_val)
                losses.append(float(loss_val))
                if batch_id % 20 == 0:
                    print("TRAIN --> pass: %d batch: %d loss: %.4f" % (pass_id, batch_id, loss_val))
                batch_id += 1
        except fluid.core.EOFException:
            py_reader.reset()

    table = np.array(fluid.global_scope().find_var("embeding").get_tensor())
    normed = table / np.linalg.norm(table, axis=1, keepdims=True)
    near = np.argsort(-normed.dot(normed.T), axis=1)[:, 1:4]
    together = float(np.mean(near // 10 == np.arange(DICT_SIZE).reshape(-1, 1) // 10))
    print("of the nearest three words, %.2f are of the same decade" % together)
    return losses, together


if __name__ == "__main__":
    main(400)
