"""Sums in the shared memory of one machine and of several, and what happens without it."""

from __future__ import annotations

import numpy as np
import pytest
from workers import failing, needs_mpi, together

from fluid.distributed.parcel import combine, parcel_of
from fluid.values.bfloat16 import BFLOAT16, to_bfloat16, to_float32

pytestmark = needs_mpi

TWO_MACHINES = {"MPIR_CVAR_NUM_CLIQUES": "2"}
"""Makes MPICH treat half of the workers as if they ran on another machine."""


@pytest.mark.parametrize("workers", [1, 2, 3])
def test_sums_have_the_bits_of_the_order_of_ranks(workers: int) -> None:
    assert together("sums.py", "exact", workers=workers) == f"workers {workers}\n"


@pytest.mark.parametrize("workers", [2, 3])
def test_sums_between_machines(workers: int) -> None:
    """With three workers, the machines have one and two."""
    assert together("sums.py", workers=workers, **TWO_MACHINES) == f"workers {workers}\n"


@pytest.mark.slow
def test_sums_of_five_workers_on_two_machines() -> None:
    assert together("sums.py", workers=5, **TWO_MACHINES) == "workers 5\n"


@pytest.mark.parametrize("fault", ["full", "read-only", "refused"])
def test_without_memory_to_share_mpi_sums_after_one_warning(fault: str) -> None:
    printed = together("sums_without_memory.py", fault, workers=2)
    assert printed.startswith("workers 2 the workers cannot share 4 bytes of memory each") and printed.count("cannot share") == 1


def test_a_worker_that_hangs_is_named() -> None:
    errors = failing("sums_that_wait.py", workers=3, FLUID_DISTRIBUTED_TIMEOUT="1")
    assert "CommunicationError: worker 0 of 3 has waited 1 s for worker 1 in the all-reduce" in errors, errors


@pytest.mark.parametrize("count", [1, 2, 3])
def test_halves_are_added_in_float32(count: int) -> None:
    parts = [np.linspace(-3, 70000, 40_000, dtype=np.float32) * (rank + 1) for rank in range(count)]
    halves = [to_bfloat16(part) for part in parts]
    out = np.empty(40_000, BFLOAT16)
    combine(parcel_of(parts[:1], "sum", BFLOAT16), halves, out)
    expected = to_float32(halves[0])
    for half in halves[1:]:
        expected = expected + to_float32(half)
    np.testing.assert_array_equal(to_float32(out), to_float32(to_bfloat16(expected)))
