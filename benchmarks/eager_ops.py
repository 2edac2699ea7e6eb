"""Single small ops in eager mode, recorded and not, and the geometric mean of their times beside torch's."""

from __future__ import annotations

import math
import time

import numpy as np
import torch
from common import header, row

from fluid import dygraph, layers

ROUNDS, CALLS = 30, 200


def ops(x, y, w, t, u, v):
    """Name -> the same op on our tensors and on torch's."""
    return {
        "x[1]": (lambda: x[1], lambda: t[1]),
        "x[1:3]": (lambda: x[1:3], lambda: t[1:3]),
        "x[[0, 2]]": (lambda: x[[0, 2]], lambda: t[[0, 2]]),
        "reshape": (lambda: layers.reshape(x, [8, 4]), lambda: t.reshape(8, 4)),
        "transpose": (lambda: layers.transpose(x, [1, 0]), lambda: t.permute(1, 0)),
        "concat": (lambda: layers.concat([x, y]), lambda: torch.cat([t, u])),
        "softmax": (lambda: layers.softmax(x), lambda: torch.softmax(t, -1)),
        "add": (lambda: x + y, lambda: t + u),
        "mul by number": (lambda: x * 2.0, lambda: t * 2.0),
        "tanh": (lambda: x.tanh(), lambda: t.tanh()),
        "relu": (lambda: layers.relu(x), lambda: torch.relu(t)),
        "matmul": (lambda: x @ w, lambda: t @ v),
        "sum": (lambda: x.sum(), lambda: t.sum()),
    }


def assignments(x, t):
    """``y[1] = v`` of a copy that is recorded, and the copy alone."""
    part, other = dygraph.to_tensor(x.numpy()[1]), t.detach()[1].clone()

    def ours():
        y = x * 1.0
        y[1] = part

    def torchs():
        y = t * 1.0
        y[1] = other

    return {"y = x * 1; y[1] = v": (ours, torchs)}


def least(run):
    """Seconds of one call, the least of some rounds: ops so short are disturbed often."""
    run()
    times = []
    for _ in range(ROUNDS):
        start = time.perf_counter()
        for _ in range(CALLS):
            run()
        times.append((time.perf_counter() - start) / CALLS)
    return min(times)


def main():
    torch.set_num_threads(1)
    header("Eager mode: single ops on 4 x 8 elements")
    random = np.random.default_rng(0)
    arrays = (
        random.standard_normal((4, 8), np.float32),
        random.standard_normal((4, 8), np.float32),
        random.standard_normal((8, 4), np.float32),
    )
    for recorded in (False, True):
        mine = [dygraph.to_tensor(array, stop_gradient=not recorded) for array in arrays]
        others = [torch.tensor(array, requires_grad=recorded) for array in arrays]
        if recorded:  # most inputs of ops are results of others
            mine, others = [tensor * 1.0 for tensor in mine], [tensor * 1.0 for tensor in others]
        logs = []
        table = ops(*mine, *others)
        for name, (ours, torchs) in {**table, **(assignments(mine[0], others[0]) if recorded else {})}.items():
            one, other = least(ours), least(torchs)
            print(f"  {name:20} {one * 1e6:6.2f} us  {other * 1e6:6.2f} us  {one / other:5.2f}", flush=True)
            if name in table:
                logs.append(math.log(one / other))
        mean = math.exp(sum(logs) / len(logs))
        how = "recorded" if recorded else "not recorded"
        row(f"{len(table)} small ops, {how}", "", "", "", f"{mean:.2f}", "geometric mean of least times, torch with one thread")


if __name__ == "__main__":
    main()
