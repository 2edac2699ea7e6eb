"""A generative adversarial net that learns a ring of eight heaps of points, by Wasserstein's distance with a gradient penalty.

The critic's slope between real and made points should be 1 (Gulrajani et al., 2017): the loss holds the norm of a gradient, so
that training differentiates a gradient. `create_graph=True` records how it is computed.
"""

from __future__ import annotations

import argparse
import sys

import numpy as np

import fluid
from fluid import dygraph


def ring(random, count):
    """Points [count, 2] around eight places on a circle of radius 2."""
    angles = random.integers(0, 8, count) * np.pi / 4
    points = 2 * np.stack([np.cos(angles), np.sin(angles)], axis=1) + 0.05 * random.standard_normal((count, 2))
    return points.astype("float32")


def net(inputs, outputs, width=96):
    return dygraph.Sequential(
        dygraph.Linear(inputs, width, act="relu"), dygraph.Linear(width, width, act="relu"), dygraph.Linear(width, outputs)
    )


def penalty(critic, real, made, random):
    """The mean of ``(norm of the critic's gradient - 1) ** 2`` at points between real and made ones."""
    part = dygraph.to_variable(random.random((real.shape[0], 1), "float32"))
    between = (real * part + made * (1.0 - part)).detach()
    between.stop_gradient = False
    (slope,) = dygraph.grad(critic(between).sum(), between, create_graph=True)
    norm = ((slope * slope).sum(1) + 1e-12).sqrt()
    return ((norm - 1.0) ** 2.0).mean()


def draw(points, size=21):
    """The points as a picture of characters."""
    cells = np.rint((points / 3 + 1) / 2 * (size - 1)).astype(int)
    counts = np.zeros((size, size), int)
    for x, y in cells[((cells >= 0) & (cells < size)).all(axis=1)]:
        counts[size - 1 - y, x] += 1
    shades = " .:*#@"
    scale = max(counts.max(), 1) / (len(shades) - 1)
    for row in counts:
        print("  " + "".join(shades[int(np.ceil(count / scale))] * 2 for count in row).rstrip())


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=1500, help="of the generator (%(default)s)")
    parser.add_argument("--seed", type=int, default=1, help="of points and parameters (%(default)s)")
    parser.add_argument("--goal", type=float, default=0.6, help="least part of the made points near a heap (%(default)s)")
    parser.add_argument("--quick", action="store_true", help="a glance: 20 steps, without a goal")
    args = parser.parse_args()
    if args.quick:
        args.steps, args.goal = 20, 0.0
    random = np.random.default_rng(args.seed)

    with dygraph.guard():
        dygraph.seed(args.seed)
        generator, critic = net(4, 2), net(2, 1)
        of_generator, of_critic = (
            fluid.optimizer.Adam(5e-4, beta1=0.5, beta2=0.9, parameter_list=part.parameters()) for part in (generator, critic)
        )

        def made(count):
            return generator(dygraph.to_variable(random.standard_normal((count, 4)).astype("float32")))

        for step in range(1, args.steps + 1):
            for _ in range(3):
                real, fake = dygraph.to_variable(ring(random, 128)), made(128).detach()
                distance = critic(real).mean() - critic(fake).mean()
                slope = penalty(critic, real, fake, random)
                (slope * 1.0 - distance).backward()
                of_critic.step()
                of_critic.clear_grad()
            (-critic(made(128)).mean()).backward()
            of_generator.step()
            of_generator.clear_grad()
            critic.clear_gradients()
            if step % max(args.steps // 10, 1) == 0:
                print(f"step {step:5}  distance {distance.item():.3f}  penalty {slope.item():.4f}", flush=True)

        with dygraph.no_grad():
            points = made(2000).numpy()
    print()
    draw(points)
    places = 2 * np.stack([np.cos(np.arange(8) * np.pi / 4), np.sin(np.arange(8) * np.pi / 4)], axis=1)
    distances = np.linalg.norm(points[:, None] - places, axis=2)
    near = float(np.mean(distances.min(axis=1) < 0.5))
    heaps = len(np.unique(distances.argmin(axis=1)[distances.min(axis=1) < 0.5]))
    print(f"\n{near:.1%} of the made points are near a heap; they are near {heaps} of 8 heaps")
    if near < args.goal:
        sys.exit(f"that is less than the goal of {args.goal:.0%}; more --steps may reach it")


if __name__ == "__main__":
    main()
