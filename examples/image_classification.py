"""Classify images with a deep net, built like VGG or like ResNet but small enough for digits of 8 x 8 pixels.

A plain program of `paddle.fluid` 1.6 in which only the import is another. Both nets normalize over the batch, so that
the program that tests is another one than the program that trains.
"""

from __future__ import annotations

import numpy as np
from training import judge, parse, parser_of, start, train

import fluid
from fluid import layers
from fluid.dataset import digits


def vgg(image, classes=10, filters=(16, 32), hidden=64, drop=0.2):
    """Groups of two convolutions of 3 x 3 and a pooling, then two dense layers; dropout nearly everywhere."""
    found = image
    for number in filters:
        found = fluid.nets.img_conv_group(
            found,
            conv_num_filter=[number, number],
            pool_size=2,
            pool_stride=2,
            conv_act="relu",
            conv_with_batchnorm=True,
            conv_batchnorm_drop_rate=[drop, 0.0],
        )
    found = layers.dropout(found, dropout_prob=drop)
    found = layers.fc(found, size=hidden, act=None)
    found = layers.dropout(layers.batch_norm(found, act="relu"), dropout_prob=drop)
    found = layers.fc(found, size=hidden, act="relu")
    return layers.fc(found, size=classes, act="softmax")


def conv_bn(x, filters, size, stride, act="relu"):
    """A convolution that keeps the extents (but for the stride), normalized over the batch."""
    found = layers.conv2d(x, filters, size, stride=stride, padding=(size - 1) // 2, bias_attr=False)
    return layers.batch_norm(found, act=act)


def residual(x, filters, stride):
    """Two convolutions, to which their input is added: as it is, or through a convolution of 1 x 1 where shapes differ."""
    found = conv_bn(conv_bn(x, filters, 3, stride), filters, 3, 1, act=None)
    short = x if x.shape[1] == filters and stride == 1 else conv_bn(x, filters, 1, stride, act=None)
    return layers.elementwise_add(found, short, act="relu")


def resnet(image, classes=10, filters=(16, 32), blocks=2):
    """A convolution, then a stage of residual blocks for each number of `filters`; the first block of a stage halves the
    extents."""
    found = conv_bn(image, filters[0], 3, 1)
    for depth, number in enumerate(filters):
        for block in range(blocks):
            found = residual(found, number, stride=2 if depth and not block else 1)
    found = layers.pool2d(found, pool_type="avg", global_pooling=True)
    return layers.fc(found, size=classes, act="softmax")


def classification(net, image, label):
    """Mean loss and accuracy of `net` on images with labels."""
    prediction = net(image)
    return layers.mean(layers.cross_entropy(prediction, label)), layers.accuracy(prediction, label)


def main():
    parser = parser_of(__doc__, epochs=6, samples=1438, goal=0.96, of="accuracy on unseen images")
    parser.add_argument("net", nargs="?", choices=["vgg", "resnet"], default="resnet", help="(%(default)s)")
    args = parse(parser)

    # The program: what to compute, as data.
    image = layers.data(name="image", shape=[1, 8, 8], dtype="float32")
    label = layers.data(name="label", shape=[1], dtype="int64")
    loss, accuracy = classification({"vgg": vgg, "resnet": resnet}[args.net], image, label)
    test_program = fluid.default_main_program().clone(for_test=True)
    fluid.optimizer.Adam(learning_rate=0.002).minimize(loss)

    # The executor: computes it.
    executor = start(args.seed)
    images, labels = digits.arrays("train")
    samples = list(zip(images[: args.samples], labels, strict=False))
    losses = train(executor, samples, [image, label], loss, args.epochs, batch_size=32)

    images, labels = digits.arrays("test")
    (reached,) = executor.run(test_program, feed={"image": images, "label": labels}, fetch_list=[accuracy])
    judge(args, losses, np.asarray(reached).item(), "accuracy on unseen images")


if __name__ == "__main__":
    main()
