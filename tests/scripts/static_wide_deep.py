"""Will it be bought: a wide linear part over crossed ids with FTRL, and a deep part over embeddings with Adam, in one program."""

from __future__ import print_function

import numpy as np

import fluid

FIELDS, BUCKETS, SIZE, CROSSED, BATCH = 3, 20, 4, 997, 64


def wide_part(fields):
    """A weight for each pair of values of two fields."""
    crossed = []
    for i in range(FIELDS):
        for j in range(i + 1, FIELDS):
            pair = fluid.layers.elementwise_add(fluid.layers.scale(fields[i], scale=float(BUCKETS)), fields[j])
            pair = fluid.layers.scale(pair, scale=1.0, bias=float(i * 7 + j) * BUCKETS**2)
            crossed.append(fluid.layers.elementwise_mod(pair, fluid.layers.fill_constant([1], "int64", CROSSED)))
    ids = fluid.layers.concat(crossed, axis=1)
    weights = fluid.embedding(ids, size=[CROSSED, 1], is_sparse=True, param_attr=fluid.ParamAttr(name="wide.w"))
    return fluid.layers.reduce_sum(fluid.layers.squeeze(weights, axes=[2]), dim=1, keep_dim=True)


def deep_part(fields, dense):
    embedded = [
        fluid.embedding(
            fluid.layers.squeeze(field, axes=[1]), size=[BUCKETS, SIZE], is_sparse=True, param_attr="deep.table_%d" % i
        )
        for i, field in enumerate(fields)
    ]
    hidden = fluid.layers.concat(embedded + [dense], axis=1)
    for number, size in enumerate((32, 16)):
        hidden = fluid.layers.fc(hidden, size=size, act="relu", param_attr="deep.w_%d" % number, bias_attr="deep.b_%d" % number)
    return fluid.layers.fc(hidden, size=1, param_attr="deep.w_2", bias_attr="deep.b_2")


def build():
    fields = [fluid.data(name="field_%d" % i, shape=[None, 1], dtype="int64") for i in range(FIELDS)]
    dense = fluid.data(name="dense", shape=[None, 4], dtype="float32")
    label = fluid.data(name="label", shape=[None, 1], dtype="int64")
    logit = fluid.layers.elementwise_add(wide_part(fields), deep_part(fields, dense))
    probability = fluid.layers.sigmoid(logit)
    loss = fluid.layers.reduce_mean(fluid.layers.sigmoid_cross_entropy_with_logits(logit, fluid.layers.cast(label, "float32")))
    both = fluid.layers.concat([1.0 - probability, probability], axis=1)
    auc, _, states = fluid.layers.auc(input=both, label=label)
    inference = fluid.default_main_program().clone(for_test=True)
    deep = [p for p in fluid.default_main_program().all_parameters() if p.name.startswith("deep.")]
    fluid.optimizer.Adam(learning_rate=0.01, lazy_mode=True).minimize(loss, parameter_list=[p.name for p in deep])
    fluid.optimizer.Ftrl(learning_rate=0.2, l1=1e-4, l2=1e-4).minimize(loss, parameter_list=["wide.w"])
    return fields + [dense, label], loss, auc, states, inference


def samples(count, seed):
    """What two fields have in common, and a number, decide."""
    rng = np.random.RandomState(seed)

    def reader():
        for _ in range(count * BATCH):
            ids, dense = rng.randint(0, BUCKETS, FIELDS), rng.normal(size=4)
            score = 3.0 * ((ids[0] + ids[1]) % 2) - 1.5 + dense[0]
            yield [[number] for number in ids.tolist()] + [dense.astype("float32"), [int(score + rng.normal() * 0.5 > 0)]]

    return reader


def main(steps=60):
    fluid.default_startup_program().random_seed = 3
    feeds, loss, auc, states, inference = build()
    exe = fluid.Executor(fluid.CPUPlace())
    exe.run(fluid.default_startup_program())
    loader = fluid.io.DataLoader.from_generator(feed_list=feeds, capacity=4, iterable=True)
    loader.set_sample_list_generator(fluid.io.batch(samples(steps, 0), batch_size=BATCH), places=fluid.cpu_places(1))
    losses = [float(exe.run(feed=data, fetch_list=[loss])[0]) for data in loader()]
    for state in states[0] if isinstance(states[0], list) else states:
        tensor = fluid.global_scope().find_var(state.name).get_tensor()
        tensor.set(np.zeros(tensor.shape(), "int64"), fluid.CPUPlace())
    feeder = fluid.DataFeeder(feed_list=feeds, place=fluid.CPUPlace())
    for rows in fluid.io.batch(samples(4, 1), batch_size=BATCH)():
        (value,) = exe.run(inference, feed=feeder.feed(rows), fetch_list=[auc])
    print("area under the curve: %.3f" % value)
    return losses, float(value)


if __name__ == "__main__":
    main(300)
