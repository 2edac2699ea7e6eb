"""Finds squares and bars in small images: boxes at several scales, their loss, what is detected, and its mean precision."""

from __future__ import print_function

import numpy as np

import fluid
from fluid.param_attr import ParamAttr

CLASSES, SIZE, BATCH = 3, 32, 4  # the first class is the background


class MobileNetSSD(object):
    def __init__(self, img, num_classes, img_shape):
        self.img = img
        self.num_classes = num_classes
        self.img_shape = img_shape

    def conv_bn(self, input, filter_size, num_filters, stride, padding, num_groups=1, act="relu", use_cudnn=True):
        conv = fluid.layers.conv2d(
            input=input,
            num_filters=num_filters,
            filter_size=filter_size,
            stride=stride,
            padding=padding,
            groups=num_groups,
            act=None,
            use_cudnn=use_cudnn,
            param_attr=ParamAttr(learning_rate=1.0, initializer=fluid.initializer.MSRA()),
            bias_attr=False,
        )
        return fluid.layers.batch_norm(input=conv, act=act)

    def depthwise_separable(self, input, num_filters, stride):
        depthwise = self.conv_bn(input, 3, input.shape[1], stride, 1, num_groups=input.shape[1], use_cudnn=False)
        return self.conv_bn(depthwise, 1, num_filters, 1, 0)

    def net(self):
        tmp = self.conv_bn(self.img, 3, 8, 2, 1)
        tmp = self.depthwise_separable(tmp, 16, 2)
        module1 = self.depthwise_separable(tmp, 16, 1)
        module2 = self.depthwise_separable(module1, 24, 2)
        mbox_locs, mbox_confs, box, box_var = fluid.layers.multi_box_head(
            inputs=[module1, module2],
            image=self.img,
            num_classes=self.num_classes,
            min_ratio=20,
            max_ratio=90,
            min_sizes=[8.0, 14.0],
            max_sizes=[14.0, 24.0],
            aspect_ratios=[[2.0], [2.0]],
            base_size=self.img_shape[2],
            offset=0.5,
            flip=True,
        )
        return mbox_locs, mbox_confs, box, box_var


def build_program(main_prog, startup_prog, is_train):
    with fluid.program_guard(main_prog, startup_prog), fluid.unique_name.guard():
        image = fluid.layers.data(name="image", shape=[3, SIZE, SIZE], dtype="float32")
        gt_box = fluid.layers.data(name="gt_box", shape=[4], dtype="float32", lod_level=1)
        gt_label = fluid.layers.data(name="gt_label", shape=[1], dtype="int32", lod_level=1)
        py_reader = fluid.io.PyReader(feed_list=[image, gt_box, gt_label], capacity=4, iterable=False)
        locs, confs, box, box_var = MobileNetSSD(image, CLASSES, [3, SIZE, SIZE]).net()
        if is_train:
            loss = fluid.layers.ssd_loss(locs, confs, gt_box, gt_label, box, box_var)
            loss = fluid.layers.reduce_sum(loss)
            optimizer = fluid.optimizer.RMSProp(
                learning_rate=fluid.layers.piecewise_decay([200, 300], [0.003, 0.001, 0.0003]),
                regularization=fluid.regularizer.L2Decay(0.00005),
            )
            optimizer.minimize(loss)
            return py_reader, loss
        nmsed_out = fluid.layers.detection_output(locs, confs, box, box_var, nms_threshold=0.45)
        return py_reader, nmsed_out, image


def samples(count, seed):
    rng = np.random.RandomState(seed)

    def reader():
        for _ in range(count):
            image = rng.normal(0, 0.1, (3, SIZE, SIZE))
            label = rng.randint(1, CLASSES)
            height, width = (10, 10) if label == 1 else (6, 18)
            top, left = rng.randint(0, SIZE - height), rng.randint(0, SIZE - width)
            image[:, top : top + height, left : left + width] += 1.0
            box = np.array([[left, top, left + width, top + height]], "float32") / SIZE
            yield image.astype("float32"), box, np.array([[label]], "int32")

    return reader


def overlap(one, other):
    left, top = np.maximum(one[:2], other[:2])
    right, bottom = np.minimum(one[2:], other[2:])
    common = max(right - left, 0) * max(bottom - top, 0)
    return common / ((one[2] - one[0]) * (one[3] - one[1]) + (other[2] - other[0]) * (other[3] - other[1]) - common)


def main(steps=40):
    place = fluid.CPUPlace()
    exe = fluid.Executor(place)
    startup_prog, train_prog, test_prog = fluid.Program(), fluid.Program(), fluid.Program()
    startup_prog.random_seed = train_prog.random_seed = 9
    train_py_reader, loss = build_program(train_prog, startup_prog, is_train=True)
    _, nmsed_out, image = build_program(test_prog, startup_prog, is_train=False)
    test_prog = test_prog.clone(for_test=True)
    exe.run(startup_prog)

    compiled = fluid.CompiledProgram(train_prog).with_data_parallel(loss_name=loss.name)
    train_py_reader.decorate_paddle_reader(fluid.io.batch(samples(steps * BATCH, 1), BATCH))
    train_py_reader.start()
    losses = []
    try:
        while True:
            (loss_v,) = exe.run(compiled, fetch_list=[loss.name])
            losses.append(float(np.mean(np.array(loss_v))))
            if len(losses) % 20 == 1:
                print("Batch {0}, loss {1}".format(len(losses), losses[-1]))
    except fluid.core.EOFException:
        train_py_reader.reset()

    found = 0
    tests = list(samples(16, 2)())
    for pixels, box, label in tests:
        (boxes,) = exe.run(test_prog, feed={image.name: pixels[np.newaxis]}, fetch_list=[nmsed_out], return_numpy=False)
        rows = np.array(boxes)
        if rows.shape[1] == 6 and len(rows):
            best = rows[rows[:, 1].argmax()]
            found += int(best[0] == label[0, 0] and overlap(best[2:], box[0]) > 0.5)
    print("%d of %d are found" % (found, len(tests)))
    return losses, float(found) / len(tests)


if __name__ == "__main__":
    main(300)
