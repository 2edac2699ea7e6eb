"""Compile a small LeNet for handwritten digits, for digits.c and page.html, and write the digits beside it.

python digits.py            # net.o, net.h, digits.bin
cc -O2 digits.c net.o -o digits && ./digits
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np

import fluid
from fluid import layers
from fluid.dataset import digits

ROWS = 32


def network() -> tuple[fluid.Variable, fluid.Variable]:
    """The loss and the probabilities of the digits."""
    image = fluid.data("image", [None, 1, 8, 8])
    label = fluid.data("label", [None, 1], "int64")
    h = fluid.nets.simple_img_conv_pool(image, 16, filter_size=3, conv_padding=1, pool_size=2, pool_stride=2, act="relu")
    h = fluid.nets.simple_img_conv_pool(h, 32, filter_size=3, conv_padding=1, pool_size=2, pool_stride=2, act="relu")
    logits = layers.fc(h, 10)
    loss = layers.mean(layers.softmax_with_cross_entropy(logits, label))
    prediction = layers.softmax(logits)
    fluid.optimizer.Adam(0.001).minimize(loss)
    return loss, prediction


def write_digits(path: Path) -> None:
    """Each image as 64 float32 and its label as int32: 1,438 to train with, then 359 to test with."""
    samples = [*digits.train()(), *digits.test()()]
    images = np.array([image for image, _ in samples], "float32").reshape(len(samples), 64)
    labels = np.array([label for _, label in samples], "int32").reshape(-1, 1)
    path.write_bytes(b"".join(image.tobytes() + label.tobytes() for image, label in zip(images, labels, strict=True)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--target", default="host", help="the processor (%(default)s); wasm32 for page.html")
    parser.add_argument("--output", type=Path, default=Path(), help="the folder to write to")
    args = parser.parse_args()
    fluid.default_startup_program().random_seed = 1
    loss, prediction = network()
    library = fluid.compile_program(
        fluid.default_main_program(),
        fetches={"loss": loss},
        predict={"prediction": prediction},
        startup=fluid.default_startup_program(),
        batch=[ROWS, 1],
        target=args.target,
        output=args.output / "net",
    )
    write_digits(args.output / "digits.bin")
    print("\n".join(library.paths))


if __name__ == "__main__":
    main()
