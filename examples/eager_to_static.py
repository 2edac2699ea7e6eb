"""Train in eager mode, trace the net into a program, save that, and load it where nothing is known of the net's code.

What to predict is how far diabetes has come in a year, from ten measurements.
"""

from __future__ import annotations

import sys
import tempfile

import numpy as np
from training import judge, parse, parser_of

import fluid
from fluid import dygraph
from fluid.dataset import diabetes


class Net(dygraph.Layer):
    """A prediction [N, 1] from measurements [N, 10]; where it is large, half of what is above 3 is believed."""

    def __init__(self):
        super().__init__("net")
        self.first, self.second = dygraph.Linear(10, 16, act="tanh"), dygraph.Linear(16, 1)

    def forward(self, measured):
        found = self.second(self.first(measured))
        # The program holds both branches. Python's own if would be decided once, while the net is traced: tracing refuses that.
        return fluid.layers.cond(found.max() > 3.0, lambda: found - (found - 3.0).relu() * 0.5, lambda: found)


def main():
    args = parse(parser_of(__doc__, epochs=120, samples=400, goal=0.35, of="R2 on unseen patients"))
    x, y = (np.asarray(part, "float32") for part in zip(*diabetes.train()(), strict=True))
    x, y = x[: args.samples], y[: args.samples].reshape(-1, 1)
    unseen, truth = (np.asarray(part, "float32") for part in zip(*diabetes.test()(), strict=True))
    center, scale = y.mean(), y.std()

    # Eagerly: train.
    with dygraph.guard():
        dygraph.seed(args.seed)
        net = Net()
        optimizer = fluid.optimizer.Adam(0.01, regularization=fluid.regularizer.L2Decay(0.02), parameter_list=net.parameters())
        inputs, targets = dygraph.to_variable(x), dygraph.to_variable((y - center) / scale)
        losses = []
        for _ in range(args.epochs * 4):
            loss = fluid.layers.mse_loss(net(inputs), targets)
            loss.backward()
            optimizer.step()
            optimizer.clear_grad()
            losses.append(loss.item())
        print(f"loss {losses[0]:.3f} at first, {losses[-1]:.3f} at last")

        # Traced: the same computation as data, with the parameters in the same memory.
        traced = dygraph.trace(net, dygraph.to_variable(unseen))
        print(f"\n{traced.program}")
        eager = net(dygraph.to_variable(unseen)).numpy()
        if not np.allclose(traced(unseen).numpy(), eager, atol=1e-6):  # native code rounds otherwise than numpy
            sys.exit("the program computes something else than the net")
        folder = tempfile.mkdtemp(prefix="diabetes-")
        traced.save_inference_model(folder)

    # Loaded: a program of any origin.
    executor = fluid.Executor(fluid.CPUPlace())
    with fluid.scope_guard(fluid.Scope()):
        program, (name,), fetches = fluid.io.load_inference_model(folder, executor)
        (loaded,) = executor.run(program, {name: unseen}, fetches)
    is_same = np.allclose(loaded, eager, atol=1e-6)
    print(f"saved in {folder} and loaded again, it predicts", "the same" if is_same else "something else")
    if not is_same:
        sys.exit("the loaded program computes something else than the net")
    truth = truth.reshape(-1, 1)
    error = np.mean((loaded * scale + center - truth) ** 2)
    judge(args, losses, float(1 - error / truth.var()), "R2 on unseen patients")


if __name__ == "__main__":
    main()
