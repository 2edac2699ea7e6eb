"""Learns points on a circle: a Wasserstein GAN, whose critic trains n times for each step of the generator, in branches."""

from __future__ import print_function

import numpy as np

import fluid

NOISE, HIDDEN, BATCH, CRITIC_STEPS, LIMIT = 4, 32, 64, 4, 0.1


def generator(noise):
    hidden = fluid.layers.fc(noise, size=HIDDEN, act="relu", param_attr="g_w0", bias_attr="g_b0")
    return fluid.layers.fc(hidden, size=2, param_attr="g_w1", bias_attr="g_b1")


def critic(points):
    hidden = fluid.layers.fc(points, size=HIDDEN, param_attr="c_w0", bias_attr="c_b0")
    hidden = fluid.layers.leaky_relu(hidden, alpha=0.2)
    return fluid.layers.fc(hidden, size=1, param_attr="c_w1", bias_attr=False)


def parameters_of(program, prefix):
    return [parameter for parameter in program.all_parameters() if parameter.name.startswith(prefix)]


def build():
    noise = fluid.data(name="noise", shape=[None, NOISE], dtype="float32")
    real = fluid.data(name="real", shape=[None, 2], dtype="float32")
    fake = generator(noise)
    of_fake = fluid.layers.reduce_mean(critic(fake))
    distance = fluid.layers.reduce_mean(critic(real)) - of_fake
    program = fluid.default_main_program()
    ours, theirs = parameters_of(program, "g_"), parameters_of(program, "c_")

    def train_critic():
        loss = fluid.layers.scale(distance, scale=-1.0)
        fluid.optimizer.RMSPropOptimizer(learning_rate=2e-3).minimize(loss, parameter_list=[p.name for p in theirs])
        for parameter in theirs:
            fluid.layers.assign(fluid.layers.clip(parameter, min=-LIMIT, max=LIMIT), output=parameter)
        return loss

    def train_generator():
        loss = fluid.layers.scale(of_fake, scale=-1.0)
        fluid.optimizer.RMSPropOptimizer(learning_rate=2e-3).minimize(loss, parameter_list=ours)
        return loss

    step = fluid.layers.autoincreased_step_counter(counter_name="step", begin=1)
    turn = fluid.layers.fill_constant(shape=[1], dtype="int64", value=CRITIC_STEPS + 1)
    is_generators = fluid.layers.equal(fluid.layers.elementwise_mod(step, turn), fluid.layers.zeros([1], "int64"))
    fluid.layers.cond(is_generators, train_generator, train_critic)
    return fake, distance, is_generators


def main(steps=200):
    fluid.default_startup_program().random_seed = fluid.default_main_program().random_seed = 5
    fake, distance, is_generators = build()
    exe = fluid.Executor(fluid.CPUPlace())
    exe.run(fluid.default_startup_program())
    rng = np.random.RandomState(0)
    scope = fluid.global_scope()

    def value(name):
        return np.array(scope.find_var(name).get_tensor())

    radii, turns = [], []
    for _ in range(steps):
        before = value("g_w1"), value("c_w1")
        angles = rng.uniform(0, 2 * np.pi, BATCH)
        feed = {
            "noise": rng.normal(size=(BATCH, NOISE)).astype("float32"),
            "real": np.stack([2 + np.cos(angles), np.sin(angles)], axis=1).astype("float32"),
        }
        points, whose, _ = exe.run(feed=feed, fetch_list=[fake, is_generators, distance])
        moved = [not np.array_equal(old, value(name)) for old, name in zip(before, ("g_w1", "c_w1"))]
        turns.append((bool(whose[0]), moved))
        radii.append(float(np.abs(np.hypot(points[:, 0] - 2, points[:, 1]) - 1).mean()))
    print("distance of the points from the circle: %.3f, then %.3f" % (radii[0], radii[-1]))
    return radii, (turns, float(np.abs(value("c_w0")).max()))


if __name__ == "__main__":
    main(2000)
