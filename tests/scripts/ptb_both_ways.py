"""One language model, eagerly and as a program: the same losses. States go on from batch to batch, and gradients end there."""

from __future__ import print_function

import numpy as np

import fluid
from fluid.dygraph import Embedding, Linear, to_variable

VOCAB, HIDDEN, STEPS, BATCH, RATE = 6, 16, 4, 8, 2.0


class Ptb(fluid.dygraph.Layer):
    def __init__(self):
        super(Ptb, self).__init__()
        uniform = fluid.initializer.UniformInitializer(low=-0.3, high=0.3, seed=4)
        self.embedding = Embedding(size=[VOCAB, HIDDEN], param_attr=fluid.ParamAttr(initializer=uniform))
        self.gates = Linear(2 * HIDDEN, 4 * HIDDEN, param_attr=fluid.ParamAttr(initializer=uniform))
        self.out = Linear(HIDDEN, VOCAB, param_attr=fluid.ParamAttr(initializer=uniform))

    def forward(self, words, labels, hidden, cell):
        embedded = fluid.layers.reshape(self.embedding(words), [BATCH, STEPS, HIDDEN])
        outputs = []
        for step in range(STEPS):
            now = fluid.layers.reshape(fluid.layers.slice(embedded, axes=[1], starts=[step], ends=[step + 1]), [BATCH, HIDDEN])
            i, j, f, o = fluid.layers.split(self.gates(fluid.layers.concat([now, hidden], 1)), num_or_sections=4, dim=-1)
            cell = cell * fluid.layers.sigmoid(f) + fluid.layers.sigmoid(i) * fluid.layers.tanh(j)
            hidden = fluid.layers.tanh(cell) * fluid.layers.sigmoid(o)
            outputs.append(fluid.layers.reshape(hidden, [BATCH, 1, HIDDEN]))
        logits = self.out(fluid.layers.reshape(fluid.layers.concat(outputs, 1), [-1, HIDDEN]))
        loss = fluid.layers.softmax_with_cross_entropy(logits=logits, label=labels)
        return fluid.layers.reduce_mean(loss), hidden, cell


def batches(count):
    words = np.cumsum(np.random.RandomState(1).randint(1, 3, BATCH * (STEPS * count + 1))) % VOCAB
    words = words.reshape(BATCH, -1).astype("int64")
    for start in range(0, STEPS * count, STEPS):
        yield words[:, start : start + STEPS, None], words[:, start + 1 : start + STEPS + 1].reshape(-1, 1)


def eager(net, steps):
    sgd = fluid.optimizer.SGDOptimizer(learning_rate=RATE, parameter_list=net.parameters())
    hidden = cell = to_variable(np.zeros((BATCH, HIDDEN), "float32"))
    losses = []
    for words, labels in batches(steps):
        loss, hidden, cell = net(to_variable(words), to_variable(labels), hidden, cell)
        loss.backward()
        sgd.minimize(loss)
        net.clear_gradients()
        losses.append(float(loss.numpy()))
    return losses


def static(net, steps):
    words = fluid.data("words", [BATCH, STEPS, 1], "int64")
    labels = fluid.data("labels", [BATCH * STEPS, 1], "int64")
    hidden, cell = fluid.data("hidden", [BATCH, HIDDEN]), fluid.data("cell", [BATCH, HIDDEN])
    fetches = list(net(words, labels, hidden, cell))
    fluid.optimizer.SGDOptimizer(learning_rate=RATE).minimize(fetches[0])
    exe = fluid.Executor(fluid.CPUPlace())
    exe.run(fluid.default_startup_program())
    states, losses = [np.zeros((BATCH, HIDDEN), "float32")] * 2, []
    for words, labels in batches(steps):
        feed = {"words": words, "labels": labels, "hidden": states[0], "cell": states[1]}
        loss, *states = exe.run(feed=feed, fetch_list=fetches)
        losses.append(float(loss))
    return losses


def main(steps=30):
    """The losses in eager mode, and as a program, which starts from the same values."""
    with fluid.dygraph.guard():
        net = Ptb()
        for_program = Ptb()
        for_program.set_dict(net.state_dict())
        losses = eager(net, steps)
    return losses, static(for_program, steps)
