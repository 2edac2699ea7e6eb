"""Compile a click model, for clicks.cpp: embeddings of three ids, and the probability of a click.

python clicks.py            # net.o, net.h
c++ -O2 -pthread clicks.cpp net.o -o clicks && ./clicks
"""

from __future__ import annotations

import argparse
from pathlib import Path

import fluid
from fluid import layers

IDS, FIELDS = 1000, 3


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", type=Path, default=Path(), help="the folder to write to")
    args = parser.parse_args()
    fluid.default_startup_program().random_seed = 1
    ids = fluid.data("ids", [None, FIELDS], "int64")
    clicked = fluid.data("clicked", [None, 1])
    rows = layers.reshape(fluid.embedding(ids, [IDS, 8], is_sparse=True), [-1, FIELDS * 8])
    score = layers.fc(layers.fc(rows, 16, act="relu"), 1)
    loss = layers.mean(layers.sigmoid_cross_entropy_with_logits(score, clicked))
    probability = layers.sigmoid(score)
    fluid.optimizer.Adagrad(0.1).minimize(loss)
    library = fluid.compile_program(
        fluid.default_main_program(),
        fetches={"loss": loss},
        predict={"probability": probability},
        startup=fluid.default_startup_program(),
        batch=[8, 1],
        output=args.output / "net",
    )
    print("\n".join(library.paths))


if __name__ == "__main__":
    main()
