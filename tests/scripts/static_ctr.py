"""Will it be clicked: sparse tables of ids in sequences beside dense numbers, an area under the curve, and a saved model."""

from __future__ import print_function

import os
import tempfile

import numpy as np

import fluid

DENSE, SPARSE, BUCKETS, EMBEDDING = 5, 6, 101, 8
BATCH = 32


def ctr_dnn_model(embedding_size, sparse_feature_dim):
    dense_input = fluid.layers.data(name="dense_input", shape=[DENSE], dtype="float32")
    sparse_input_ids = [fluid.layers.data(name="C" + str(i), shape=[1], lod_level=1, dtype="int64") for i in range(1, 1 + SPARSE)]
    label = fluid.layers.data(name="label", shape=[1], dtype="int64")
    datas = [dense_input] + sparse_input_ids + [label]

    def embedding_layer(input):
        emb = fluid.layers.embedding(
            input=input,
            is_sparse=True,
            is_distributed=False,
            size=[sparse_feature_dim, embedding_size],
            param_attr=fluid.ParamAttr(name="SparseFeatFactors", initializer=fluid.initializer.Uniform()),
        )
        return fluid.layers.sequence_pool(input=emb, pool_type="average")

    sparse_embed_seq = list(map(embedding_layer, sparse_input_ids))
    concated = fluid.layers.concat(sparse_embed_seq + [dense_input], axis=1)

    hidden = concated
    for size in (32, 16):
        hidden = fluid.layers.fc(
            input=hidden,
            size=size,
            act="relu",
            param_attr=fluid.ParamAttr(initializer=fluid.initializer.Normal(scale=1 / np.sqrt(hidden.shape[1]))),
        )
    # the wide part: a weight for each id
    wide = []
    for ids in sparse_input_ids:
        weight = fluid.layers.embedding(
            ids,
            size=[sparse_feature_dim, 1],
            is_sparse=True,
            param_attr=fluid.ParamAttr(name="wide", initializer=fluid.initializer.TruncatedNormal(scale=0.01)),
        )
        wide.append(fluid.layers.sequence_pool(weight, "sum"))
    logits = fluid.layers.fc(input=hidden, size=2, act=None)
    zeros = fluid.layers.fill_constant_batch_size_like(logits, shape=[-1, 1], dtype="float32", value=0.0)
    predict = fluid.layers.softmax(logits + fluid.layers.concat([zeros, fluid.layers.sums(wide)], axis=1))

    cost = fluid.layers.cross_entropy(input=predict, label=label)
    avg_cost = fluid.layers.reduce_sum(cost)
    accuracy = fluid.layers.accuracy(input=predict, label=label)
    auc_var, batch_auc_var, auc_states = fluid.layers.auc(input=predict, label=label, num_thresholds=2**12, slide_steps=20)
    return avg_cost, auc_var, batch_auc_var, accuracy, datas, predict, auc_states


class CriteoDataset(object):
    """Samples as lists of fields: dense numbers, then lists of ids, then the label."""

    def __init__(self, sparse_feature_dim, seed):
        rng = np.random.RandomState(0)
        self.preference = rng.normal(0, 1, sparse_feature_dim)
        self.rng = np.random.RandomState(seed)

    def train(self, count):
        def reader():
            for _ in range(count):
                dense = self.rng.uniform(0, 1, DENSE)
                sparse = [self.rng.randint(1, BUCKETS, self.rng.randint(1, 3)) for _ in range(SPARSE)]
                score = dense[0] - dense[1] + np.mean([self.preference[ids].mean() for ids in sparse]) * 4
                yield [dense.tolist()] + [ids.tolist() for ids in sparse] + [int(score > 0)]

        return reader


def main(steps=60):
    fluid.default_startup_program().random_seed = fluid.default_main_program().random_seed = 11
    loss, auc_var, batch_auc_var, accuracy, data_list, predict, auc_states = ctr_dnn_model(EMBEDDING, BUCKETS)
    optimizer = fluid.optimizer.Adam(learning_rate=1e-2, lazy_mode=True)
    optimizer.minimize(loss)

    place = fluid.CPUPlace()
    exe = fluid.Executor(place)
    exe.run(fluid.default_startup_program())
    dataset = CriteoDataset(BUCKETS, 1)
    py_reader = fluid.io.PyReader(feed_list=data_list, capacity=8, iterable=True, use_double_buffer=False)
    py_reader.decorate_sample_list_generator(fluid.io.batch(dataset.train(steps * BATCH), BATCH, drop_last=True), places=place)

    losses, aucs = [], []
    for batch_id, data in enumerate(py_reader()):
        loss_val, auc_val, batch_auc_val, acc = exe.run(
            fluid.default_main_program(), feed=data, fetch_list=[loss, auc_var, batch_auc_var, accuracy]
        )
        losses.append(float(loss_val) / BATCH)
        aucs.append(float(batch_auc_val))
        if batch_id % 20 == 0:
            print(
                "TRAIN --> batch: {} loss: {} auc: {}, batch_auc: {}, acc: {:.2f}".format(
                    batch_id, loss_val / BATCH, auc_val, batch_auc_val, acc[0]
                )
            )
    for state in auc_states:  # a new epoch counts from nothing
        tensor = fluid.global_scope().find_var(state.name).get_tensor()
        tensor.set(np.zeros(tensor._get_dims()).astype("int64"), place)

    with tempfile.TemporaryDirectory() as folder:
        model_dir = os.path.join(folder, "batch-%d" % steps)
        names = [var.name for var in data_list[:-1]] + ["label"]
        fluid.io.save_inference_model(model_dir, names, [loss, predict, auc_var], exe)
        inference_scope = fluid.Scope()
        with fluid.scope_guard(inference_scope):
            infer_exe = fluid.Executor(place)
            program, feed_names, fetch_targets = fluid.io.load_inference_model(model_dir, infer_exe)
            block = program.global_block()
            feeder = fluid.DataFeeder(feed_list=feed_names, place=place, program=program)
            test_reader = fluid.io.batch(CriteoDataset(BUCKETS, 2).train(4 * BATCH), BATCH)
            correct, total = 0, 0
            auc = fluid.metrics.Auc("auc")
            for data in test_reader():
                _, probability, _ = infer_exe.run(program, feed=feeder.feed(data), fetch_list=fetch_targets)
                labels = np.array([sample[-1] for sample in data])
                auc.update(preds=probability, labels=labels.reshape(-1, 1))
                correct += int((probability.argmax(1) == labels).sum())
                total += len(data)
            assert block.has_var("SparseFeatFactors")
    print("TEST --> right: %.3f, auc: %.3f" % (float(correct) / total, auc.eval()))
    return losses, auc.eval()


if __name__ == "__main__":
    main(400)
