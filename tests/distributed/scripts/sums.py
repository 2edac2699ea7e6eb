"""Reductions of arrays of each kind and size, against sums in the order of ranks; worker 0 prints the bytes and the warnings."""

from __future__ import annotations

import sys
import warnings

import numpy as np

from fluid.distributed import communicator
from fluid.values.bfloat16 import BFLOAT16, to_bfloat16, to_float32

SIZES = ((1,), (0, 3), (7,), (64,), (65, 3), (1000, 37), ())
KINDS = {"sum": np.add, "max": np.maximum, "min": np.minimum, "prod": np.multiply}
WORK = {"float16": "float32"}


def drawn(rank, number, shape, dtype):
    return np.asarray(np.random.default_rng([rank, number]).uniform(-3, 3, shape)).astype(dtype)


def in_order_of_ranks(parts, kind="sum"):
    total = parts[0].copy()
    for part in parts[1:]:
        total = KINDS[kind](total, part)
    return total


def check(shapes, dtype, kind="sum", sent_as=None):
    arrays = [drawn(group.rank, number, shape, dtype) for number, shape in enumerate(shapes)]
    group.start_allreduce(arrays, kind, sent_as)
    yield
    group.finish(arrays)
    for number, (array, shape) in enumerate(zip(arrays, shapes, strict=True)):
        parts = [drawn(rank, number, shape, dtype).astype(WORK.get(dtype, dtype)) for rank in range(group.size)]
        if sent_as is not None and group.size > 1:
            parts = [to_float32(to_bfloat16(part)) for part in parts]
        total = in_order_of_ranks(parts, kind)
        if sent_as is not None and group.size > 1:
            total = to_float32(to_bfloat16(total))
        if exact:
            np.testing.assert_array_equal(array, total.astype(dtype), f"{shape} {dtype} {kind}")
        else:  # machines and MPI add in orders of their own
            tolerance = 2**-4 if sent_as is not None else 1e-2 if dtype == "float16" else 1e-5
            np.testing.assert_allclose(array, total.astype(dtype), rtol=tolerance, atol=tolerance, err_msg=f"{shape} {dtype}")
        assert len(set(group.exchange(array.tobytes().hex()[:4096]))) == 1, "all workers have the same bits"


def run(*checks):
    """Begin all, then finish all."""
    for steps in checks:
        next(steps)
    for steps in checks:
        next(steps, None)


with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    group = communicator()
    exact = "exact" in sys.argv
    for dtype in ("float32", "float64", "float16", "int32", "int64"):
        for shape in SIZES:
            run(check([shape], dtype))
        run(check(SIZES, dtype))
    for kind in KINDS:
        run(check(SIZES, "float64", kind))
    for shapes in (SIZES, [(1,)], [(0,)], [(1001,)]):
        run(check(shapes, "float32", sent_as=BFLOAT16))
    for _ in range(3):  # several in flight, of growing and shrinking sizes
        run(check([(9,)], "float32"), check(SIZES, "float64"), check([(100_000,)], "float32"), check([(3,)], "float32"))
if group.rank == 0:
    print("workers", group.size, *(str(warning.message) for warning in caught))
