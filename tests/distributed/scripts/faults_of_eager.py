"""Eager workers that differ, as the first argument says."""

from __future__ import annotations

import sys

import numpy as np

from fluid import dygraph
from fluid.layers import collective

with dygraph.guard():
    rank = dygraph.prepare_context().local_rank
    if sys.argv[1] == "layers":
        dygraph.DataParallel(dygraph.Linear(4, 5 + rank))
    if sys.argv[1] == "lazy":
        dygraph.DataParallel(dygraph.FC("fc", 5 + rank))(dygraph.to_variable(np.ones((2, 4), "float32")))
    if sys.argv[1] == "op":
        collective._allreduce(dygraph.to_variable(np.ones((4 - rank, 4), "float32")))
