"""What goes wrong at XLAPlaces, mostly on worker 1, as the first argument says."""

from __future__ import annotations

import os
import signal
import sys
import time

import numpy as np

import fluid
from fluid.incubate.fleet.collective import fleet

FAULT = sys.argv[1]

fleet.init()
is_wrong = fleet.worker_index() == 1
x = fluid.data("x", [None, 4], lod_level=1 if FAULT == "sequences" else 0)
hidden = fluid.layers.fc(x, 7 if FAULT == "program" and is_wrong else 5)
if FAULT == "loop":
    limit = fluid.layers.reduce_sum(x)
    (hidden,) = fluid.layers.while_loop(
        lambda value: fluid.layers.less_than(fluid.layers.reduce_sum(value), limit), lambda value: [value + 1.0], [hidden]
    )
loss = fluid.layers.mean(fluid.layers.fc(hidden, 1))
fleet.distributed_optimizer(fluid.optimizer.SGD(0.1)).minimize(loss)
fluid.Executor(fluid.CPUPlace()).run(fluid.default_startup_program())
executor = fluid.Executor(fluid.XLAPlace())
for step in range(3):
    if is_wrong and step == 2 and FAULT == "hangs":
        time.sleep(60)
    if is_wrong and step == 2 and FAULT == "dies":
        os.kill(os.getpid(), signal.SIGKILL)
    batch = np.ones((3 if FAULT == "shape" and is_wrong and step == 2 else 4, 4), "float32")
    rows = fluid.create_lod_tensor(batch, [[1, 3]], fluid.CPUPlace()) if FAULT == "sequences" else batch
    executor.run(feed={"x": rows}, fetch_list=[loss])
