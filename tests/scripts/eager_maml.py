"""Model-agnostic meta-learning: learn first values that one step fits to a sine, by the gradient through that step."""

from __future__ import print_function

import numpy as np

import fluid
from fluid.dygraph import to_variable

HIDDEN, INNER_RATE, POINTS, TASKS = 24, 0.05, 10, 4


class Regressor(fluid.dygraph.Layer):
    def __init__(self):
        super(Regressor, self).__init__()
        shapes = [[1, HIDDEN], [HIDDEN], [HIDDEN, HIDDEN], [HIDDEN], [HIDDEN, 1], [1]]
        for number, shape in enumerate(shapes):
            self.add_parameter("p%d" % number, self.create_parameter(shape=shape, dtype="float32", is_bias=len(shape) == 1))

    def forward(self, x, weights=None):
        w1, b1, w2, b2, w3, b3 = self.parameters() if weights is None else weights
        h = fluid.layers.tanh(fluid.layers.matmul(x, w1) + b1)
        h = fluid.layers.tanh(fluid.layers.matmul(h, w2) + b2)
        return fluid.layers.matmul(h, w3) + b3


def task_of(random):
    """Points of a sine to fit, and others to judge the fit by."""
    amplitude, phase = random.uniform(0.5, 2.0), random.uniform(0, np.pi)
    x = random.uniform(-3, 3, (2, POINTS, 1)).astype("float32")
    y = (amplitude * np.sin(x - phase)).astype("float32")
    return [to_variable(part) for part in (x[0], y[0], x[1], y[1])]


def loss_after_a_step(net, task):
    x, y, other_x, other_y = task
    weights = net.parameters()
    loss = fluid.layers.reduce_mean(fluid.layers.square_error_cost(net(x), y))
    grads = fluid.dygraph.grad(loss, weights, create_graph=True)
    adapted = [weight - INNER_RATE * grad for weight, grad in zip(weights, grads)]
    return fluid.layers.reduce_mean(fluid.layers.square_error_cost(net(other_x, adapted), other_y))


def main(steps=60):
    """The losses after the step, and how well the gradient of the first bias follows from differences."""
    random = np.random.RandomState(5)
    with fluid.dygraph.guard():
        fluid.default_main_program().random_seed = 5
        net = Regressor()
        slopes = slope_both_ways(net, task_of(random))
        optimizer = fluid.optimizer.Adam(learning_rate=0.01, parameter_list=net.parameters())
        losses = []
        for _ in range(steps):
            loss = sum([loss_after_a_step(net, task_of(random)) for _ in range(TASKS)]) / float(TASKS)
            loss.backward()
            optimizer.minimize(loss)
            net.clear_gradients()
            losses.append(float(loss.numpy()))
    return losses, slopes


def slope_both_ways(net, task, step=1e-2):
    """The gradient of the last bias by backward, and by a difference."""
    loss_after_a_step(net, task).backward()
    bias = net.parameters()[-1]
    slope = float(bias.gradient()[0])
    net.clear_gradients()
    first, losses = bias.numpy(), []
    for change in (step, -step):
        bias.set_value(first + np.float32(change))
        losses.append(float(loss_after_a_step(net, task).numpy()))
    bias.set_value(first)
    return slope, (losses[0] - losses[1]) / (2 * step)
