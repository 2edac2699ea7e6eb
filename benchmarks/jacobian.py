"""Jacobian matrices in eager mode, of all outputs at once and of one after another: of an MLP and of small convolutional nets."""

from __future__ import annotations

import numpy as np
import torch
from common import header, milliseconds, race, row
from torch.nn import functional as F

from fluid import dygraph, layers


def mlp(draw):
    """A function of ``[1, 128]`` with 64 outputs, ours and torch's, and its input."""
    weights = [draw(128, 256), draw(256, 256), draw(256, 64)]

    def ours(x):
        first, second, third = mine
        return layers.tanh(layers.tanh(x @ first) @ second) @ third

    def torchs(t):
        first, second, third = others
        return torch.tanh(torch.tanh(t @ first) @ second) @ third

    mine, others = [dygraph.Tensor(weight) for weight in weights], [torch.tensor(weight) for weight in weights]
    return ours, torchs, draw(1, 128)


def convolutional(size, outputs):
    """A maker of a function of an image, with two convolutions and poolings."""

    def make(draw):
        weights = [draw(8, 1, 3, 3), draw(16, 8, 3, 3), draw(size * size, outputs)]
        mine, others = [dygraph.Tensor(weight) for weight in weights], [torch.tensor(weight) for weight in weights]

        def ours(x):
            for filters, kind in zip(mine[:2], ("max", "avg"), strict=True):
                x = layers.relu(dygraph.ops.conv2d(x, filters, paddings=[1, 1]))
                x = dygraph.ops.pool2d(x, pooling_type=kind, ksize=[2, 2], strides=[2, 2])
            return x.reshape(1, -1) @ mine[2]

        def torchs(t):
            for filters, pool in zip(others[:2], (F.max_pool2d, F.avg_pool2d), strict=True):
                t = pool(torch.relu(F.conv2d(t, filters, padding=1)), 2)
            return t.reshape(1, -1) @ others[2]

        return ours, torchs, draw(1, 1, size, size)

    return make


NETS = {
    "jacobian of an MLP 128-256-256-64": mlp,
    "jacobian of a small CNN, 8 x 8, 64 outputs": convolutional(8, 64),
    "jacobian of a small CNN, 28 x 28, 10 outputs": convolutional(28, 10),
}


def main():
    torch.set_num_threads(1)
    header("Jacobian matrices in eager mode")
    for name, make in NETS.items():
        random = np.random.default_rng(0)
        ours, torchs, x = make(lambda *shape: (0.1 * random.standard_normal(shape)).astype("float32"))  # noqa: B023
        mine, other = dygraph.Tensor(x), torch.tensor(x)
        runs = {
            "fluid": lambda: dygraph.jacobian(ours, mine, vectorize=True),  # noqa: B023
            "fluid by rows": lambda: dygraph.jacobian(ours, mine),  # noqa: B023
            "torch": lambda: torch.autograd.functional.jacobian(torchs, other, vectorize=True),  # noqa: B023
            "torch by rows": lambda: torch.autograd.functional.jacobian(torchs, other),  # noqa: B023
        }
        expected = runs["torch by rows"]().numpy()
        for run in runs.values():
            np.testing.assert_allclose(run().numpy(), expected, 1e-3, 1e-5)
        times = race(runs)
        gains = [times[f"{side} by rows"] / times[side] for side in ("fluid", "torch")]
        remark = "{:.1f} times as fast as row by row, torch {:.1f} times".format(*gains)
        row(
            name, milliseconds(times["fluid"]), milliseconds(times["torch"]), "", f"{times['fluid'] / times['torch']:.2f}", remark
        )


if __name__ == "__main__":
    main()
