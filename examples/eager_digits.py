"""Recognise handwritten digits in eager mode: layers are objects, ops run at once, and `loss.backward()` finds the gradients.

The net is that of `recognize_digits.py`, which builds a program instead.
"""

from __future__ import annotations

import numpy as np
from training import judge, parse, parser_of

import fluid
from fluid import dygraph
from fluid.dataset import digits


class LeNet(dygraph.Layer):
    """Scores [N, 10] of the digits 0 to 9 for images [N, 1, 8, 8]."""

    def __init__(self):
        super().__init__("lenet")
        self.features = dygraph.Sequential(
            dygraph.Conv2D("conv", 20, 3, padding=1, act="relu"),
            dygraph.Pool2D("pool", 2, "max", 2),
            dygraph.Conv2D("conv", 50, 3, padding=1, act="relu"),
            dygraph.Pool2D("pool", 2, "max", 2),
        )
        self.hidden = dygraph.FC("fc", 128, act="relu")
        self.drop = dygraph.Dropout(0.25)
        self.out = dygraph.FC("fc", 10)

    def forward(self, images):
        return self.out(self.drop(self.hidden(self.features(images))))


def accuracy(net, images, labels):
    """The part of the images that the net knows."""
    net.eval()
    with dygraph.no_grad():
        guesses = net(dygraph.to_variable(images)).numpy().argmax(axis=1)
    net.train()
    return float(np.mean(guesses == labels[:, 0]))


def main():
    args = parse(parser_of(__doc__, epochs=12, samples=1438, goal=0.97, of="accuracy on unseen images"))
    images, labels = (values[: args.samples] for values in digits.arrays("train"))
    unseen = digits.arrays("test")
    loader = fluid.io.DataLoader(fluid.io.TensorDataset(images, labels), 32, shuffle=True, seed=args.seed)
    with dygraph.guard():
        dygraph.seed(args.seed)
        net = LeNet()
        optimizer = fluid.optimizer.Adam(dygraph.CosineDecay(0.003, len(loader), args.epochs))
        means = []
        with fluid.training.Progress(args.epochs) as progress:
            for _ in range(args.epochs):
                losses = []
                for x, y in loader:
                    loss = fluid.layers.mean(fluid.layers.softmax_with_cross_entropy(net(x), y))
                    loss.backward()
                    optimizer.minimize(loss)
                    net.clear_gradients()
                    losses.append(loss.item())
                    progress.step(len(x))
                means.append(float(np.mean(losses)))
                progress.epoch(loss=means[-1])
        print(f"\n{net}\n\nthe ops that the last loss was computed by:\n{loss.program()}")
        judge(args, means, accuracy(net, *unseen), "accuracy on unseen images")


if __name__ == "__main__":
    main()
