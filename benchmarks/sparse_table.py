"""One training step on a table of 1,000,000 x 64: with a sparse gradient only the rows that were looked up are touched.

Lazy Adam against torch's `Embedding(sparse=True)` with SparseAdam, and SGD with a dense gradient; native.py has sparse SGD.
Memory is what numpy allocates during a step at its peak, by tracemalloc; the table itself takes 244 MiB.
"""

from __future__ import annotations

import argparse
import tracemalloc

import numpy as np
import torch
from common import check_losses, header, milliseconds, race, row
from torch import nn

import fluid

ROWS, WIDTH, LOOKUPS = 1_000_000, 64, 1024
RATE = 0.1


def fluid_step(ids, goals, table, optimizer, is_sparse):
    main, startup = fluid.Program(), fluid.Program()
    with fluid.unique_name.guard(), fluid.program_guard(main, startup):
        words = fluid.data("ids", [None], "int64")
        targets = fluid.data("targets", [None, WIDTH])
        rows = fluid.embedding(words, [ROWS, WIDTH], is_sparse, param_attr="table")
        loss = fluid.layers.reduce_sum(fluid.layers.square(rows - targets))
        optimizer().minimize(loss)
    executor, scope = fluid.Executor(fluid.CPUPlace()), fluid.Scope()
    executor.run(startup, scope=scope)
    scope.find_var("table").get_tensor().set(table)
    feed = {"ids": ids, "targets": goals}
    return lambda: executor.run(main, feed, [loss], scope=scope)[0].item()


def torch_step(ids, goals, table, optimizer):
    embedding = nn.Embedding(ROWS, WIDTH, sparse=True, _weight=torch.tensor(table))
    update = optimizer(embedding.parameters())
    index, targets = torch.tensor(ids), torch.tensor(goals)

    def step():
        loss = (embedding(index) - targets).square().sum()
        update.zero_grad()
        loss.backward()
        update.step()
        return loss.item()

    return step


def peak(step):
    """The peak of bytes that numpy allocates in a step, beyond the memory before it."""
    step()
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    tracemalloc.reset_peak()
    step()
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return most - before


def main():
    argparse.ArgumentParser(description=__doc__.splitlines()[0]).parse_args()
    random = np.random.default_rng(0)
    table = random.standard_normal((ROWS, WIDTH), np.float32)
    ids = random.integers(0, ROWS, LOOKUPS)
    goals = random.standard_normal((LOOKUPS, WIDTH), np.float32)
    header(f"A table of {ROWS:,} x {WIDTH}, {LOOKUPS} rows looked up, one training step")
    sparse = fluid_step(ids, goals, table, lambda: fluid.optimizer.Adam(RATE, lazy_mode=True), True)
    competitor = torch_step(ids, goals, table, lambda parameters: torch.optim.SparseAdam(parameters, RATE))
    check_losses({"fluid": [sparse() for _ in range(3)], "torch": [competitor() for _ in range(3)]})
    medians = race({"fluid": sparse, "torch": competitor})
    row(
        "table 1M x 64, lazy Adam",
        milliseconds(medians["fluid"]),
        milliseconds(medians["torch"]),
        ratio=f"{medians['fluid'] / medians['torch']:.2f}",
        remark=f"sparse gradient of {LOOKUPS} rows; {peak(sparse) / 2**20:.1f} MiB in a step",
    )
    del sparse, competitor
    dense = fluid_step(ids, goals, table, lambda: fluid.optimizer.SGD(RATE), False)
    medians = race({"fluid": dense}, rounds=2)
    row("the same, SGD", milliseconds(medians["fluid"]), remark=f"dense gradient; {peak(dense) / 2**20:.1f} MiB in a step")


if __name__ == "__main__":
    main()
