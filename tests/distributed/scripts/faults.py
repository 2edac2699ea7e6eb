"""What goes wrong on worker 1, as the first argument says; the others do what is right."""

from __future__ import annotations

import os
import signal
import sys
import time

import numpy as np

import fluid
from fluid.incubate.fleet.collective import fleet

FAULT = sys.argv[1]
print(os.getpid(), flush=True)

fleet.init()
is_wrong = fleet.worker_index() == 1
x = fluid.data("x", [None, 4])
hidden = fluid.layers.fc(x, 7 if FAULT == "program" and is_wrong else 5)
loss = fluid.layers.mean(fluid.layers.fc(hidden, 1))
fleet.distributed_optimizer(fluid.optimizer.SGD(0.1)).minimize(loss)
executor = fluid.Executor()
executor.run(fluid.default_startup_program())
if is_wrong and FAULT == "hangs":
    time.sleep(60)
if is_wrong and FAULT == "killed":
    os.kill(os.getpid(), signal.SIGKILL)
if is_wrong and FAULT == "raises":
    raise ValueError("a fault of worker 1")
if is_wrong and FAULT == "leaves":
    os._exit(0)
if is_wrong and FAULT == "exits":
    sys.exit(3)
if is_wrong and FAULT == "saves":
    fleet.save_checkpoint("nowhere")  # which all have to call
for step in range(3):
    rows = 3 if FAULT == "shape" and is_wrong and step == 2 else 4
    executor.run(feed={"x": np.ones((rows, 4), "float32")}, fetch_list=[loss])
