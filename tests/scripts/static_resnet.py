"""A small residual net on images of four textures: momentum with a piecewise rate and L2 decay, and a test program by clone."""

from __future__ import print_function

import os
import tempfile

import numpy as np

import fluid
from fluid.param_attr import ParamAttr

BATCH, CLASSES, SIZE = 16, 4, 12


class ResNet(object):
    def __init__(self, depth=(1, 1)):
        self.depth = depth

    def net(self, input, class_dim=1000):
        conv = self.conv_bn_layer(input, 8, 3, act="relu", name="conv1")
        conv = fluid.layers.pool2d(input=conv, pool_size=3, pool_stride=2, pool_padding=1, pool_type="max")
        for block, count in enumerate(self.depth):
            for i in range(count):
                conv = self.bottleneck_block(
                    conv, 8 * 2**block, 2 if i == 0 and block != 0 else 1, "res%d%s" % (block, chr(97 + i))
                )
        pool = fluid.layers.pool2d(input=conv, pool_type="avg", global_pooling=True)
        stdv = 1.0 / np.sqrt(pool.shape[1] * 1.0)
        return fluid.layers.fc(
            input=pool, size=class_dim, param_attr=ParamAttr(initializer=fluid.initializer.Uniform(-stdv, stdv))
        )

    def conv_bn_layer(self, input, num_filters, filter_size, stride=1, groups=1, act=None, name=None):
        conv = fluid.layers.conv2d(
            input=input,
            num_filters=num_filters,
            filter_size=filter_size,
            stride=stride,
            padding=(filter_size - 1) // 2,
            groups=groups,
            act=None,
            param_attr=ParamAttr(name=name + "_weights"),
            bias_attr=False,
            name=name + ".conv2d.output.1",
        )
        bn_name = "bn_" + name
        return fluid.layers.batch_norm(
            input=conv,
            act=act,
            name=bn_name + ".output.1",
            param_attr=ParamAttr(name=bn_name + "_scale"),
            bias_attr=ParamAttr(bn_name + "_offset"),
            moving_mean_name=bn_name + "_mean",
            moving_variance_name=bn_name + "_variance",
        )

    def shortcut(self, input, ch_out, stride, name):
        if input.shape[1] != ch_out or stride != 1:
            return self.conv_bn_layer(input, ch_out, 1, stride, name=name)
        return input

    def bottleneck_block(self, input, num_filters, stride, name):
        conv = self.conv_bn_layer(input, num_filters, 1, act="relu", name=name + "_branch2a")
        conv = self.conv_bn_layer(conv, num_filters, 3, stride=stride, act="relu", name=name + "_branch2b")
        conv = self.conv_bn_layer(conv, num_filters * 2, 1, act=None, name=name + "_branch2c")
        short = self.shortcut(input, num_filters * 2, stride, name=name + "_branch1")
        return fluid.layers.elementwise_add(x=short, y=conv, act="relu", name=name + ".add.output.5")


def reader_creator(count, seed):
    def reader():
        rng = np.random.RandomState(seed)
        across, down = np.meshgrid(np.arange(SIZE), np.arange(SIZE))
        textures = [across % 4 < 2, down % 4 < 2, (across + down) % 4 < 2, across + down < SIZE]
        for _ in range(count):
            label = rng.randint(CLASSES)
            image = textures[label].astype("float32") + rng.normal(0, 0.3, (3, SIZE, SIZE))
            yield image.astype("float32").flatten(), int(label)

    return reader


def optimizer_setting(steps):
    boundaries = [steps // 2, steps * 3 // 4]
    values = [0.1, 0.01, 0.001]
    return fluid.optimizer.Momentum(
        learning_rate=fluid.layers.piecewise_decay(boundaries=boundaries, values=values),
        momentum=0.9,
        regularization=fluid.regularizer.L2Decay(1e-4),
    )


def main(steps=30):
    image = fluid.layers.data(name="image", shape=[3, SIZE, SIZE], dtype="float32")
    label = fluid.layers.data(name="label", shape=[1], dtype="int64")
    fluid.default_startup_program().random_seed = fluid.default_main_program().random_seed = 90

    out = ResNet().net(input=image, class_dim=CLASSES)
    cost, pred = fluid.layers.softmax_with_cross_entropy(out, label, return_softmax=True)
    avg_cost = fluid.layers.mean(x=cost)
    acc_top1 = fluid.layers.accuracy(input=pred, label=label, k=1)
    acc_top2 = fluid.layers.accuracy(input=pred, label=label, k=2)

    test_program = fluid.default_main_program().clone(for_test=True)
    optimizer_setting(steps).minimize(avg_cost)
    lr = fluid.default_main_program().global_block().var("learning_rate")

    place = fluid.CUDAPlace(0) if fluid.core.is_compiled_with_cuda() and False else fluid.CPUPlace()
    exe = fluid.Executor(place)
    exe.run(fluid.default_startup_program())

    train_reader = fluid.io.batch(fluid.io.shuffle(reader_creator(steps * BATCH, 1), buf_size=100), batch_size=BATCH)
    test_reader = fluid.io.batch(reader_creator(4 * BATCH, 2), batch_size=BATCH)
    feeder = fluid.DataFeeder(place=place, feed_list=[image, label])
    train_exe = fluid.ParallelExecutor(use_cuda=False, loss_name=avg_cost.name)

    losses = []
    for batch_id, data in enumerate(train_reader()):
        loss, acc1, acc2, rate = train_exe.run(
            fetch_list=[avg_cost.name, acc_top1.name, acc_top2.name, lr.name], feed=feeder.feed(data)
        )
        loss, acc1, acc2 = np.mean(np.array(loss)), np.mean(np.array(acc1)), np.mean(np.array(acc2))
        losses.append(float(loss))
        if batch_id % 10 == 0:
            print("trainbatch {0}, loss {1}, acc1 {2}, acc2 {3}, lr {4}".format(batch_id, loss, acc1, acc2, "%.5f" % rate))

    test_info = [[], []]
    for data in test_reader():
        fetched = exe.run(test_program, fetch_list=[avg_cost.name, acc_top1.name], feed=feeder.feed(data))
        for info, value in zip(test_info, fetched):
            info.append(value)
    test_loss, test_acc = [np.array(info).mean() for info in test_info]
    print("End, test_loss {0:.3f}, test_acc1 {1:.3f}".format(test_loss, test_acc))

    with tempfile.TemporaryDirectory() as model_path:
        fluid.io.save_persistables(exe, os.path.join(model_path, "persistables"), main_program=fluid.default_main_program())
        with fluid.scope_guard(fluid.Scope()):
            exe.run(fluid.default_startup_program())

            def if_exist(var):
                return os.path.exists(os.path.join(model_path, "persistables", var.name))

            fluid.io.load_vars(exe, os.path.join(model_path, "persistables"), fluid.default_main_program(), predicate=if_exist)
            again = [exe.run(test_program, fetch_list=[avg_cost], feed=feeder.feed(data))[0] for data in test_reader()]
        assert abs(np.mean(again) - test_loss) < 1e-5
    return losses, float(test_acc)


if __name__ == "__main__":
    main(200)
