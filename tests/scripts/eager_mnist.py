"""LeNet in eager mode on small pictures of digits; the parameters are saved and loaded, and a test is run by `eval`."""

from __future__ import print_function

import os
import tempfile

import numpy as np

import fluid
from fluid.dygraph.base import to_variable
from fluid.dygraph.nn import FC, Conv2D, Pool2D
from fluid.optimizer import AdamOptimizer

SIZE, CLASSES, BATCH = 14, 4, 16


class SimpleImgConvPool(fluid.dygraph.Layer):
    def __init__(self, name_scope, num_filters, filter_size, pool_size, pool_stride, pool_type="max", act=None, use_cudnn=False):
        super(SimpleImgConvPool, self).__init__(name_scope)
        self._conv2d = Conv2D(
            self.full_name(), num_filters=num_filters, filter_size=filter_size, stride=1, padding=0, dilation=1, groups=1,
            param_attr=None, bias_attr=None, act=act, use_cudnn=use_cudnn,
        )  # fmt: skip
        self._pool2d = Pool2D(
            self.full_name(), pool_size=pool_size, pool_type=pool_type, pool_stride=pool_stride, pool_padding=0,
            global_pooling=False, use_cudnn=use_cudnn,
        )  # fmt: skip

    def forward(self, inputs):
        x = self._conv2d(inputs)
        x = self._pool2d(x)
        return x


class MNIST(fluid.dygraph.Layer):
    def __init__(self, name_scope):
        super(MNIST, self).__init__(name_scope)
        self._simple_img_conv_pool_1 = SimpleImgConvPool(self.full_name(), 8, 3, 2, 2, act="relu")
        self._simple_img_conv_pool_2 = SimpleImgConvPool(self.full_name(), 16, 3, 2, 2, act="relu")
        pool_2_shape = 16 * 2 * 2
        scale = (2.0 / (pool_2_shape**2 * CLASSES)) ** 0.5
        self._fc = FC(
            self.full_name(),
            CLASSES,
            param_attr=fluid.param_attr.ParamAttr(initializer=fluid.initializer.NormalInitializer(loc=0.0, scale=scale)),
            act="softmax",
        )

    def forward(self, inputs, label=None):
        x = self._simple_img_conv_pool_1(inputs)
        x = self._simple_img_conv_pool_2(x)
        x = self._fc(x)
        if label is not None:
            acc = fluid.layers.accuracy(input=x, label=label)
            return x, acc
        else:
            return x


def reader_creator(count, seed):
    def reader():
        rng = np.random.RandomState(seed)
        for _ in range(count):
            label = rng.randint(CLASSES)
            image = rng.normal(0, 0.3, (SIZE, SIZE))
            row, column = divmod(label, 2)
            image[row * 7 + 1 : row * 7 + 6, column * 7 + 1 : column * 7 + 6] += 1
            yield image.astype("float32").flatten(), int(label)

    return reader


def test_mnist(reader, model):
    acc_set, avg_loss_set = [], []
    for data in reader():
        dy_x_data = np.array([x[0].reshape(1, SIZE, SIZE) for x in data]).astype("float32")
        y_data = np.array([x[1] for x in data]).astype("int64").reshape(-1, 1)
        img, label = to_variable(dy_x_data), to_variable(y_data)
        label.stop_gradient = True
        prediction, acc = model(img, label)
        loss = fluid.layers.cross_entropy(input=prediction, label=label)
        avg_loss = fluid.layers.mean(loss)
        acc_set.append(float(acc.numpy()))
        avg_loss_set.append(float(avg_loss.numpy()))
    return np.array(avg_loss_set).mean(), np.array(acc_set).mean()


def main(steps=30):
    place = fluid.CPUPlace()
    with fluid.dygraph.guard(place):
        fluid.default_startup_program().random_seed = fluid.default_main_program().random_seed = 90
        mnist = MNIST("mnist")
        adam = AdamOptimizer(learning_rate=0.01)
        strategy = fluid.dygraph.parallel.prepare_context()
        model = fluid.dygraph.parallel.DataParallel(mnist, strategy)
        train_reader = fluid.io.batch(reader_creator(steps * BATCH, 1), batch_size=BATCH, drop_last=True)
        test_reader = fluid.io.batch(reader_creator(3 * BATCH, 2), batch_size=BATCH, drop_last=True)

        losses = []
        for batch_id, data in enumerate(train_reader()):
            dy_x_data = np.array([x[0].reshape(1, SIZE, SIZE) for x in data]).astype("float32")
            y_data = np.array([x[1] for x in data]).astype("int64").reshape(-1, 1)
            img = to_variable(dy_x_data)
            label = to_variable(y_data)
            label.stop_gradient = True

            cost, acc = model(img, label)
            loss = fluid.layers.cross_entropy(cost, label)
            avg_loss = fluid.layers.mean(loss)
            avg_loss = model.scale_loss(avg_loss)
            avg_loss.backward()
            model.apply_collective_grads()
            adam.minimize(avg_loss)
            model.clear_gradients()
            losses.append(float(avg_loss.numpy()))
            if batch_id % 10 == 0:
                print("Loss at step {}: {:}, acc {:}".format(batch_id, avg_loss.numpy(), acc.numpy()))

        mnist.eval()
        test_cost, test_acc = test_mnist(test_reader, mnist)
        with tempfile.TemporaryDirectory() as folder:
            fluid.save_dygraph(mnist.state_dict(), os.path.join(folder, "save_temp"))
            fluid.save_dygraph(adam.state_dict(), os.path.join(folder, "save_temp"))
            again = MNIST("mnist_again")
            model_dict, opti_dict = fluid.load_dygraph(os.path.join(folder, "save_temp"))
            again.set_dict(model_dict)
            other = AdamOptimizer(learning_rate=0.01)
            other.set_dict(opti_dict)
            again.eval()
            assert np.allclose(test_mnist(test_reader, again), (test_cost, test_acc))
        print("Loss at the end, Test avg_loss is: {:.4f}, acc is: {:.4f}".format(test_cost, test_acc))
    return losses, float(test_acc)


if __name__ == "__main__":
    main(100)
