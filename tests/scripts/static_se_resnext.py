"""Squeeze and excitation: groups of convolutions whose channels are weighted, and a cosine rate with a warmup."""

from __future__ import print_function

import math

import numpy as np

import fluid

BATCH, CLASSES, SIZE = 8, 3, 16


class SE_ResNeXt(object):
    def __init__(self, cardinality=4, reduction_ratio=4):
        self.cardinality = cardinality
        self.reduction_ratio = reduction_ratio

    def net(self, input, class_dim):
        conv = self.conv_bn_layer(input=input, num_filters=8, filter_size=3, stride=2, act="relu")
        conv = fluid.layers.pool2d(
            input=conv, pool_size=3, pool_stride=2, pool_padding=1, pool_type="max", ceil_mode=False, exclusive=True
        )
        for num_filters, stride in ((8, 1), (16, 2)):
            conv = self.bottleneck_block(conv, num_filters, stride)
        pool = fluid.layers.pool2d(input=conv, pool_size=7, pool_type="avg", global_pooling=True)
        drop = fluid.layers.dropout(x=pool, dropout_prob=0.2, seed=1)
        stdv = 1.0 / math.sqrt(drop.shape[1] * 1.0)
        return fluid.layers.fc(
            input=drop,
            size=class_dim,
            act="softmax",
            param_attr=fluid.ParamAttr(initializer=fluid.initializer.Uniform(-stdv, stdv)),
        )

    def shortcut(self, input, ch_out, stride):
        if input.shape[1] != ch_out or stride != 1:
            return self.conv_bn_layer(input, ch_out, 1 if stride == 1 else 3, stride)
        else:
            return input

    def bottleneck_block(self, input, num_filters, stride):
        conv0 = self.conv_bn_layer(input=input, num_filters=num_filters, filter_size=1, act="relu")
        conv1 = self.conv_bn_layer(conv0, num_filters, 3, stride=stride, groups=self.cardinality, act="relu")
        conv2 = self.conv_bn_layer(input=conv1, num_filters=num_filters * 2, filter_size=1, act=None)
        scale = self.squeeze_excitation(conv2, num_filters * 2)
        short = self.shortcut(input, num_filters * 2, stride)
        return fluid.layers.elementwise_add(x=short, y=scale, act="relu")

    def conv_bn_layer(self, input, num_filters, filter_size, stride=1, groups=1, act=None):
        conv = fluid.layers.conv2d(
            input=input,
            num_filters=num_filters,
            filter_size=filter_size,
            stride=stride,
            padding=(filter_size - 1) // 2,
            groups=groups,
            act=None,
            bias_attr=False,
            use_cudnn=True,
        )
        return fluid.layers.batch_norm(input=conv, act=act)

    def squeeze_excitation(self, input, num_channels):
        pool = fluid.layers.pool2d(input=input, pool_size=0, pool_type="avg", global_pooling=True)
        squeeze = fluid.layers.fc(input=pool, size=num_channels // self.reduction_ratio, act="relu")
        excitation = fluid.layers.fc(input=squeeze, size=num_channels, act="sigmoid")
        return fluid.layers.elementwise_mul(x=input, y=excitation, axis=0)


def cosine_decay_with_warmup(learning_rate, warmup_steps, total_steps):
    """A rate that is computed by ops from the number of the step."""
    global_step = fluid.layers.learning_rate_scheduler._decay_step_counter()
    lr = fluid.layers.create_global_var(shape=[1], value=0.0, dtype="float32", persistable=True, name="learning_rate")
    warmup = fluid.layers.fill_constant(shape=[1], dtype="float32", value=float(warmup_steps), force_cpu=True)
    with fluid.layers.control_flow.Switch() as switch:
        with switch.case(global_step < warmup):
            fluid.layers.tensor.assign(input=learning_rate * (global_step / warmup), output=lr)
        with switch.default():
            ratio = (global_step - warmup) * (math.pi / (total_steps - warmup_steps))
            fluid.layers.tensor.assign(input=learning_rate * (fluid.layers.ops.cos(ratio) + 1) / 2, output=lr)
    return lr


def batch(rng):
    label = rng.randint(0, CLASSES, BATCH)
    image = rng.normal(0, 0.5, (BATCH, 3, SIZE, SIZE))
    image[np.arange(BATCH), label] += 1.0
    return image.astype("float32"), label.reshape(-1, 1).astype("int64")


def main(steps=20):
    train_prog, test_prog, startup_prog = fluid.Program(), fluid.Program(), fluid.Program()
    train_prog.random_seed = startup_prog.random_seed = 7

    def build(program, is_train):
        with fluid.program_guard(program, startup_prog), fluid.unique_name.guard():
            image = fluid.layers.data(name="image", shape=[3, SIZE, SIZE], dtype="float32")
            label = fluid.layers.data(name="label", shape=[1], dtype="int64")
            out = SE_ResNeXt().net(image, CLASSES)
            cost = fluid.layers.cross_entropy(input=out, label=label)
            avg_cost = fluid.layers.mean(cost)
            acc = fluid.layers.accuracy(input=out, label=label)
            fetches = [avg_cost, acc]
            if is_train:
                lr = cosine_decay_with_warmup(0.1, 5, steps)
                params_grads = fluid.optimizer.Momentum(
                    lr, momentum=0.9, regularization=fluid.regularizer.L2DecayRegularizer(1.2e-4)
                ).minimize(avg_cost)[1]
                assert all(grad is not None for _, grad in params_grads)
                fetches.append(lr)
            for var in fetches:
                var.persistable = True
            return fetches

    train_fetches = build(train_prog, True)
    test_fetches = build(test_prog, False)
    test_prog = test_prog.clone(for_test=True)

    exe = fluid.Executor(fluid.CPUPlace())
    exe.run(startup_prog)
    compiled = fluid.compiler.CompiledProgram(train_prog).with_data_parallel(loss_name=train_fetches[0].name)
    rng = np.random.RandomState(0)
    losses = []
    for step in range(steps):
        image, label = batch(rng)
        loss, acc, lr = exe.run(compiled, feed={"image": image, "label": label}, fetch_list=[var.name for var in train_fetches])
        losses.append(np.mean(loss).item())
        if step % 10 == 0:
            print("Pass {0}, loss {1:.3f}, acc {2:.3f}, lr {3:.4f}".format(step, np.mean(loss), np.mean(acc), float(np.mean(lr))))
    image, label = batch(rng)
    test_loss, test_acc = exe.run(test_prog, feed={"image": image, "label": label}, fetch_list=test_fetches)
    print("test loss %.3f, acc %.3f" % (test_loss, test_acc))
    return losses, float(test_acc)


if __name__ == "__main__":
    main(60)
