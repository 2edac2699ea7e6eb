"""A generator and its critic, each with an optimizer for its own parameters."""

from __future__ import print_function

import numpy as np

import fluid

NOISE, BATCH = 4, 32


class Discriminator(fluid.Layer):
    def __init__(self, name_scope):
        super(Discriminator, self).__init__(name_scope)
        self._fc1 = fluid.dygraph.FC(self.full_name(), size=32, act="elu", num_flatten_dims=1)
        self._fc2 = fluid.FC(self.full_name(), size=1)

    def forward(self, inputs):
        x = self._fc1(inputs)
        return self._fc2(x)


class Generator(fluid.Layer):
    def __init__(self, name_scope):
        super(Generator, self).__init__(name_scope)
        self._fc1 = fluid.FC(self.full_name(), size=32)
        self._bn = fluid.BatchNorm(self.full_name(), num_channels=32, act="leaky_relu")
        self._fc2 = fluid.FC(self.full_name(), size=2)

    def forward(self, inputs):
        x = self._fc1(inputs)
        x = self._bn(x)
        return self._fc2(x)


def real_batch(rng):
    angle = rng.uniform(0, 2 * np.pi, BATCH)
    return np.stack([2 + np.cos(angle), np.sin(angle)], axis=1).astype("float32")


def main(steps=40):
    rng = np.random.RandomState(0)
    with fluid.dygraph.guard():
        fluid.default_startup_program().random_seed = 1
        fluid.default_main_program().random_seed = 1
        discriminator, generator = Discriminator("d"), Generator("g")
        d_opt = fluid.optimizer.AdamOptimizer(
            learning_rate=fluid.layers.piecewise_decay(boundaries=[steps // 2], values=[0.01, 0.005]), beta1=0.5
        )
        g_opt = fluid.optimizer.RMSPropOptimizer(learning_rate=0.01)
        losses, distances = [], []
        for step in range(steps):
            img = fluid.dygraph.to_variable(real_batch(rng))
            noise = fluid.dygraph.to_variable(rng.normal(0, 1, (BATCH, NOISE)).astype("float32"))
            ones = fluid.layers.fill_constant([BATCH, 1], "float32", 1.0)
            zeros = fluid.layers.fill_constant(shape=[BATCH, 1], dtype="float32", value=0.0)

            d_loss_real = fluid.layers.reduce_mean(
                fluid.layers.sigmoid_cross_entropy_with_logits(x=discriminator(img), label=ones)
            )
            fake = generator(noise)
            fake.stop_gradient = True
            d_loss_fake = fluid.layers.reduce_mean(
                fluid.layers.sigmoid_cross_entropy_with_logits(x=discriminator(fake), label=zeros)
            )
            d_loss = d_loss_real + d_loss_fake
            d_loss.backward()
            d_opt.minimize(d_loss, parameter_list=discriminator.parameters())
            discriminator.clear_gradients()
            generator.clear_gradients()

            noise = fluid.dygraph.to_variable(rng.normal(0, 1, (BATCH, NOISE)).astype("float32"))
            fake = generator(noise)
            g_loss = fluid.layers.reduce_mean(fluid.layers.sigmoid_cross_entropy_with_logits(x=discriminator(fake), label=ones))
            g_loss.backward()
            g_opt.minimize(g_loss, parameter_list=generator.parameters())
            generator.clear_gradients()
            discriminator.clear_gradients()

            losses.append(float(d_loss.numpy()))
            distances.append(float(np.linalg.norm(fake.numpy().mean(0) - [2.0, 0.0])))
            if step % 10 == 0:
                print("step %d, d_loss %f, g_loss %f, off by %.3f" % (step, d_loss.numpy(), g_loss.numpy(), distances[-1]))
    return losses, distances


if __name__ == "__main__":
    main(300)
