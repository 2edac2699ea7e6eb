"""Each collective op on two workers: what it computes, and its gradient against central differences of all workers' losses."""

from __future__ import annotations

import sys

import numpy as np

import fluid
from fluid.distributed import communicator
from fluid.extend import ops

GROUP = communicator()
RANK, SIZE = GROUP.rank, GROUP.size
DRAWN = np.random.RandomState(3).uniform(0.5, 1.5, (SIZE, 4, 3)) * np.array([1.0, -1.0]).reshape(-1, 1, 1)[:SIZE]
EXECUTOR = fluid.Executor(fluid.XLAPlace() if "xla" in sys.argv else fluid.CPUPlace())

CASES = {
    "c_allreduce_sum": ({}, lambda all_x, rank: all_x.sum(0)),
    "c_allreduce_max": ({}, lambda all_x, rank: all_x.max(0)),
    "c_allreduce_min": ({}, lambda all_x, rank: all_x.min(0)),
    "c_allreduce_prod": ({}, lambda all_x, rank: all_x.prod(0)),
    "c_reduce_sum": ({"root_id": 1}, lambda all_x, rank: all_x.sum(0) * (rank == 1)),
    "c_broadcast": ({"root": 1}, lambda all_x, rank: all_x[1]),
    "c_allgather": ({"nranks": SIZE}, lambda all_x, rank: all_x.reshape(-1, 3)),
    "c_reducescatter": ({"nranks": SIZE}, lambda all_x, rank: all_x.sum(0)[2 * rank : 2 * rank + 2]),
    "allreduce": ({"reduce_type": 2}, lambda all_x, rank: all_x.max(0)),
    "c_sync_calc_stream": ({}, lambda all_x, rank: all_x[rank]),
    "barrier": ({}, lambda all_x, rank: all_x[rank]),
}


def total(number):
    return float(np.sum(GROUP.exchange(float(number))))


for op_type, (attrs, expected) in CASES.items():
    for order in (1, 2):
        main = fluid.Program()
        with fluid.program_guard(main, fluid.Program()):
            x = fluid.data("x", [4, 3], "float64")
            x.stop_gradient = False
            y = getattr(ops(), op_type)(x, **attrs)
            weights = fluid.data("weights", y.shape, "float64")
            loss = fluid.layers.reduce_sum(y * y * y * weights)
            (gradient,) = fluid.gradients(loss, x)
            if order == 2:
                loss = fluid.layers.reduce_sum(gradient * gradient * 0.1)
                (gradient,) = fluid.gradients(loss, x)

        feed = {"weights": np.random.RandomState(RANK).randn(*y.shape)}

        def run(step, fetches, main=main, feed=feed, how=EXECUTOR.run):
            return how(main, {**feed, "x": DRAWN[RANK] + step}, fetches)

        result, slope = run(0.0, [y, gradient])
        np.testing.assert_allclose(result, expected(DRAWN, RANK), rtol=1e-12, err_msg=op_type)
        interpreted = run(0.0, [y, gradient], how=EXECUTOR.interpret)
        assert np.array_equal(interpreted[0], result) and np.allclose(interpreted[1], slope, rtol=1e-5), op_type
        direction = np.random.RandomState(10 + RANK).randn(4, 3)
        high, low = (total(run(step * direction, [loss])[0].item()) for step in (1e-6, -1e-6))
        np.testing.assert_allclose(total((slope * direction).sum()), (high - low) / 2e-6, rtol=2e-5, err_msg=f"{op_type} {order}")
    if RANK == 0:
        print(op_type)

half = fluid.data("half", [5], "float16")
(result,) = EXECUTOR.run(feed={"half": np.full(5, RANK + 0.5, "float16")}, fetch_list=[ops().c_allreduce_sum(half)])
assert result.dtype == np.float16 and (result == 0.5 * SIZE + SIZE * (SIZE - 1) / 2).all()
rows, other = GROUP.gather_rows(np.full((RANK + 1, 2), RANK, np.int32), np.full(RANK + 1, 7))
assert other.tolist() == [7] * len(rows)
assert rows.shape == (SIZE * (SIZE + 1) // 2, 2) and (np.diff(rows[:, 0]) >= 0).all()
