"""A small residual net in eager mode: train() and eval(), L2 decay, a piecewise rate, and training that goes on from a file."""

from __future__ import print_function

import os
import tempfile

import numpy as np

import fluid
from fluid.dygraph.nn import FC, BatchNorm, Conv2D, Pool2D

CLASSES, SIZE, BATCH = 3, 12, 12


class ConvBNLayer(fluid.dygraph.Layer):
    def __init__(self, name_scope, num_channels, num_filters, filter_size, stride=1, groups=1, act=None):
        super(ConvBNLayer, self).__init__(name_scope)
        self._conv = Conv2D(
            self.full_name(),
            num_filters=num_filters,
            filter_size=filter_size,
            stride=stride,
            padding=(filter_size - 1) // 2,
            groups=groups,
            act=None,
            bias_attr=None,
        )
        self._batch_norm = BatchNorm(self.full_name(), num_filters, act=act)

    def forward(self, inputs):
        y = self._conv(inputs)
        y = self._batch_norm(y)
        return y


class BottleneckBlock(fluid.dygraph.Layer):
    def __init__(self, name_scope, num_channels, num_filters, stride, shortcut=True):
        super(BottleneckBlock, self).__init__(name_scope)
        self.conv0 = ConvBNLayer(self.full_name(), num_channels, num_filters, 1, act="relu")
        self.conv1 = ConvBNLayer(self.full_name(), num_filters, num_filters, 3, stride=stride, act="relu")
        self.conv2 = ConvBNLayer(self.full_name(), num_filters, num_filters * 2, 1, act=None)
        if not shortcut:
            self.short = ConvBNLayer(self.full_name(), num_channels, num_filters * 2, 1, stride=stride)
        self.shortcut = shortcut

    def forward(self, inputs):
        y = self.conv2(self.conv1(self.conv0(inputs)))
        short = inputs if self.shortcut else self.short(inputs)
        y = fluid.layers.elementwise_add(x=short, y=y)
        layer_helper = fluid.layer_helper.LayerHelper(self.full_name(), act="relu")
        return layer_helper.append_activation(y)


class ResNet(fluid.dygraph.Layer):
    def __init__(self, name_scope, class_dim=CLASSES):
        super(ResNet, self).__init__(name_scope)
        self.conv = ConvBNLayer(self.full_name(), 3, 8, 3, act="relu")
        self.pool2d_max = Pool2D(self.full_name(), pool_size=3, pool_stride=2, pool_padding=1, pool_type="max")
        self.bottleneck_block_list = []
        num_channels = 8
        for block, num_filters in enumerate([4, 8]):
            shortcut = False
            for i in range(2):
                bottleneck_block = self.add_sublayer(
                    "bb_%d_%d" % (block, i),
                    BottleneckBlock(
                        self.full_name(), num_channels, num_filters, stride=2 if i == 0 and block else 1, shortcut=shortcut
                    ),
                )
                num_channels = num_filters * 2
                self.bottleneck_block_list.append(bottleneck_block)
                shortcut = True
        self.pool2d_avg = Pool2D(self.full_name(), pool_size=7, pool_type="avg", global_pooling=True)
        stdv = 1.0 / np.sqrt(num_channels)
        self.out = FC(
            self.full_name(),
            size=class_dim,
            act="softmax",
            param_attr=fluid.param_attr.ParamAttr(initializer=fluid.initializer.Uniform(-stdv, stdv)),
        )

    def forward(self, inputs):
        y = self.conv(inputs)
        y = self.pool2d_max(y)
        for bottleneck_block in self.bottleneck_block_list:
            y = bottleneck_block(y)
        y = self.pool2d_avg(y)
        return self.out(y)


def reader_creator(count, seed):
    def reader():
        rng = np.random.RandomState(seed)
        for _ in range(count):
            label = rng.randint(CLASSES)
            image = rng.normal(0, 0.5, (3, SIZE, SIZE))
            image[label] += 1.0
            yield image.astype("float32"), np.array([label]).astype("int64")

    return reader


def optimizer_setting(steps):
    return fluid.optimizer.Momentum(
        learning_rate=fluid.layers.piecewise_decay(boundaries=[steps // 2, steps], values=[0.1, 0.05, 0.01]),
        momentum=0.9,
        regularization=fluid.regularizer.L2Decay(1e-4),
    )


def run(model, data, optimizer=None):
    img, label = data
    label.stop_gradient = True
    out = model(img)
    loss = fluid.layers.cross_entropy(input=out, label=label)
    avg_loss = fluid.layers.mean(x=loss)
    acc = fluid.layers.accuracy(input=out, label=label, k=1)
    if optimizer is not None:
        avg_loss.backward()
        optimizer.minimize(avg_loss)
        model.clear_gradients()
    return float(avg_loss.numpy()), float(acc.numpy())


def main(steps=20):
    with fluid.dygraph.guard(fluid.CPUPlace()):
        fluid.default_startup_program().random_seed = fluid.default_main_program().random_seed = 90
        resnet = ResNet("resnet")
        optimizer = optimizer_setting(steps)
        py_reader = fluid.io.PyReader(capacity=4)
        py_reader.decorate_sample_list_generator(
            fluid.io.batch(reader_creator(steps // 2 * BATCH, 1), batch_size=BATCH), places=fluid.CPUPlace()
        )
        losses = []
        resnet.train()
        for data in py_reader():
            losses.append(run(resnet, data, optimizer)[0])
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "resnet")
            fluid.dygraph.save_dygraph(resnet.state_dict(), path)
            fluid.dygraph.save_dygraph(optimizer.state_dict(), path)
            before = [run(resnet, data, optimizer)[0] for data in py_reader()]
            params, states = fluid.dygraph.load_dygraph(path)
            resnet.set_dict(params)
            optimizer.set_dict(states)
            losses += [run(resnet, data, optimizer)[0] for data in py_reader()]
        assert np.allclose(before, losses[len(before) :], rtol=1e-5), "training goes on as it would have"

        resnet.eval()
        test_reader = fluid.io.PyReader(capacity=4)
        test_reader.decorate_batch_generator(
            lambda: iter([[np.stack(column) for column in zip(*reader_creator(36, 2)())]]), places=fluid.CPUPlace()
        )
        test_loss, test_acc = [run(resnet, data) for data in test_reader()][0]
        print("loss %.4f to %.4f, test loss %.4f, acc %.3f" % (losses[0], losses[-1], test_loss, test_acc))
    return losses, test_acc


if __name__ == "__main__":
    main(60)
