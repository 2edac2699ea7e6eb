"""Ranks titles for queries: two towers over bags of words, a shared sparse table, and pairs of a clicked and another title."""

from __future__ import print_function

import numpy as np

import fluid

WORDS, SIZE, BATCH = 60, 16, 16


def tower(words, name):
    embedded = fluid.layers.embedding(
        input=words,
        size=[WORDS, SIZE],
        is_sparse=True,
        param_attr=fluid.ParamAttr(name="table", initializer=fluid.initializer.UniformInitializer(-0.1, 0.1)),
    )
    bag = fluid.layers.softsign(fluid.layers.sequence_pool(input=embedded, pool_type="sum"))
    return fluid.layers.fc(input=bag, size=SIZE, act="tanh", param_attr=name + ".w", bias_attr=name + ".b")


def build():
    query, clicked, ignored = [
        fluid.layers.data(name=name, shape=[1], dtype="int64", lod_level=1) for name in ("query", "clicked", "other")
    ]
    of_query = tower(query, "query")
    good = fluid.layers.cos_sim(of_query, tower(clicked, "title"))
    bad = fluid.layers.cos_sim(of_query, tower(ignored, "title"))
    ones = fluid.layers.fill_constant_batch_size_like(input=good, shape=[-1, 1], dtype="float32", value=1.0)
    margin = fluid.layers.mean(fluid.layers.margin_rank_loss(label=ones, left=good, right=bad, margin=0.4))
    soft = fluid.layers.mean(fluid.layers.rank_loss(label=fluid.layers.reshape(ones, [-1]), left=good, right=bad))
    loss = margin + 0.1 * soft
    right = fluid.layers.reduce_mean(fluid.layers.cast(fluid.layers.greater_than(good, bad), "float32"))
    inference = fluid.default_main_program().clone(for_test=True)
    fluid.optimizer.Adam(learning_rate=0.01, lazy_mode=True, grad_clip=fluid.clip.GradientClipByGlobalNorm(5.0)).minimize(loss)
    return loss, right, inference


def batches(count, seed):
    """The words of a query and of the clicked title belong to one of six topics."""
    rng = np.random.RandomState(seed)

    def text(topic):
        return (topic * 10 + rng.randint(0, 10, rng.randint(1, 5))).reshape(-1, 1).tolist()

    def reader():
        for _ in range(count):
            rows = []
            for _ in range(BATCH):
                topic = rng.randint(6)
                rows.append((text(topic), text(topic), text((topic + rng.randint(1, 6)) % 6)))
            yield rows

    return reader


def main(steps=60):
    fluid.default_startup_program().random_seed = 2
    loss, right, inference = build()
    place = fluid.CPUPlace()
    exe = fluid.Executor(place)
    feeder = fluid.DataFeeder(feed_list=["query", "clicked", "other"], place=place)
    exe.run(fluid.default_startup_program())
    losses = [float(exe.run(feed=feeder.feed(rows), fetch_list=[loss])[0]) for rows in batches(steps, 0)()]
    rights = [exe.run(inference, feed=feeder.feed(rows), fetch_list=[right])[0] for rows in batches(5, 1)()]
    print("pairs in the right order: %.3f" % np.mean(rights))
    return losses, float(np.mean(rights))


if __name__ == "__main__":
    main(300)
