"""Sums the gradients of several small batches, and updates once for all of them, in a branch of the program."""

from __future__ import print_function

import numpy as np

import fluid

FEATURES, EVERY = 13, 4


def network():
    x = fluid.data(name="x", shape=[None, FEATURES], dtype="float32")
    y = fluid.data(name="y", shape=[None, 1], dtype="float32")
    hidden = fluid.layers.fc(input=x, size=16, act="tanh")
    prediction = fluid.layers.fc(input=hidden, size=1)
    return fluid.layers.mean(fluid.layers.square_error_cost(input=prediction, label=y))


def accumulating(loss):
    pairs = fluid.backward.append_backward(loss)
    step = fluid.layers.autoincreased_step_counter(begin=1)
    every = fluid.layers.fill_constant(shape=[1], dtype="int64", value=EVERY)
    sums = []
    for parameter, gradient in pairs:
        total = fluid.layers.create_global_var(
            shape=parameter.shape, value=0.0, dtype="float32", persistable=True, name=parameter.name + "_sum"
        )
        fluid.layers.assign(fluid.layers.elementwise_add(total, gradient), output=total)
        sums.append(total)

    def update():
        optimizer = fluid.optimizer.Momentum(learning_rate=0.05, momentum=0.9)
        optimizer.apply_gradients([(parameter, total / float(EVERY)) for (parameter, _), total in zip(pairs, sums)])
        for total in sums:
            fluid.layers.assign(fluid.layers.zeros_like(total), output=total)

    is_due = fluid.layers.equal(fluid.layers.elementwise_mod(step, every), fluid.layers.zeros([1], "int64"))
    fluid.layers.cond(is_due, update)


def at_once(loss):
    fluid.optimizer.Momentum(learning_rate=0.05, momentum=0.9).minimize(loss)


def trained(prepare, batches):
    """The losses of a new program over these batches, and its parameters."""
    main, startup = fluid.Program(), fluid.Program()
    main.random_seed = startup.random_seed = 1
    with fluid.program_guard(main, startup), fluid.unique_name.guard(), fluid.scope_guard(fluid.Scope()):
        loss = network()
        prepare(loss)
        exe = fluid.Executor(fluid.CPUPlace())
        exe.run(startup)
        losses = [float(exe.run(main, feed=feed, fetch_list=[loss])[0]) for feed in batches]
        scope = fluid.global_scope()
        return losses, {p.name: np.array(scope.find_var(p.name).get_tensor()) for p in main.all_parameters()}


def main(steps=40):
    rng = np.random.RandomState(0)
    weights = rng.normal(size=(FEATURES, 1))
    x = rng.normal(size=(steps, 8, FEATURES)).astype("float32")
    y = np.tanh(x.dot(weights)).astype("float32")
    losses, small = trained(accumulating, [{"x": x[i], "y": y[i]} for i in range(steps)])
    joined = [{"x": x[i : i + EVERY].reshape(-1, FEATURES), "y": y[i : i + EVERY].reshape(-1, 1)} for i in range(0, steps, EVERY)]
    _, large = trained(at_once, joined)
    difference = max(float(np.abs(small[name] - large[name]).max()) for name in large)
    print("the largest difference from updates with batches of %d rows: %g" % (8 * EVERY, difference))
    return losses, difference


if __name__ == "__main__":
    main(400)
