"""Worker 1 does not come to a sum."""

from __future__ import annotations

import time

import numpy as np

from fluid.distributed import communicator

group = communicator()
group.allreduce(np.ones(3), "sum")
if group.rank == 1:
    time.sleep(30)
group.allreduce(np.ones(3), "sum")
