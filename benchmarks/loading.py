"""Parsing and loading a model of 100 MB, beside Paddle's own loader in the same run.

Needs a Python with PaddlePaddle 2.6.2: ``--paddle PYTHON`` or ``FLUID_PADDLE_PYTHON``. Both load the same file, in turns, in
processes that have imported everything; it is in the system's cache. Fluid maps the weights into memory and copies them when they
are first needed; the second row has every value copied, as Paddle does while it loads.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from common import header, milliseconds, row

PADDLE = """
import sys, time
import paddle
from paddle import static
paddle.enable_static()
executor = static.Executor(paddle.CPUPlace())
print("ready", flush=True)
for line in sys.stdin:
    with static.scope_guard(static.Scope()):
        start = time.perf_counter()
        program, feeds, fetches = static.load_inference_model(line.strip(), executor)
        print("seconds", time.perf_counter() - start, flush=True)
"""


def make_model(prefix):
    """Layers of 1024 x 1024 up to 100 MB."""
    import fluid
    from fluid import layers

    with fluid.program_guard(fluid.Program(), fluid.Program()), fluid.scope_guard(fluid.Scope()):
        hidden = fluid.data("x", [None, 1024])
        for _ in range(25):
            hidden = layers.fc(hidden, 1024, act="relu")
        fluid.Executor().run(fluid.default_startup_program())
        fluid.save_model(prefix + ".pdmodel", feeds="x", fetches=hidden)


def load(prefix, copy):
    """Seconds that Fluid takes."""
    import numpy

    import fluid

    scope = fluid.Scope()
    with fluid.scope_guard(scope):
        start = time.perf_counter()
        fluid.io.load_inference_model(prefix, fluid.Executor())
        if copy:
            for name in scope.local_var_names():
                scope.put(name, numpy.array(scope.array(name)))
        return time.perf_counter() - start


def line_of(process, word):
    """The rest of the next line that begins with a word; other lines are Paddle's messages."""
    for line in process.stdout:
        if line.startswith(word):
            return line.removeprefix(word).strip()
    sys.exit("Paddle's process has ended")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--paddle", default=os.environ.get("FLUID_PADDLE_PYTHON"), help="a Python with PaddlePaddle 2.6.2")
    parser.add_argument("--rounds", type=int, default=15)
    options = parser.parse_args()
    if not options.paddle:
        parser.error("--paddle PYTHON, or FLUID_PADDLE_PYTHON, should name a Python with PaddlePaddle 2.6.2")
    header("Loading", torch=False)
    times = {"mapped": [], "copied": [], "paddle": []}
    with tempfile.TemporaryDirectory() as folder:
        prefix = str(Path(folder, "net"))
        make_model(prefix)
        size = sum(file.stat().st_size for file in Path(folder).iterdir())
        pipe = subprocess.PIPE
        with subprocess.Popen(
            [options.paddle, "-c", PADDLE], stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL, text=True, cwd=folder
        ) as process:
            line_of(process, "ready")
            for number in range(options.rounds + 2):
                print(prefix, file=process.stdin, flush=True)
                found = {
                    "paddle": float(line_of(process, "seconds")),
                    "mapped": load(prefix, False),
                    "copied": load(prefix, True),
                }
                for name, seconds in found.items() if number > 1 else ():
                    times[name].append(seconds)
            process.stdin.close()
    medians = {name: statistics.median(values) for name, values in times.items()}
    for name, what in (("mapped", f"load a model of {size / 1e6:.0f} MB"), ("copied", "the same, and copy every weight")):
        remark = f"Paddle 2.6.2: {milliseconds(medians['paddle'])}; Fluid / Paddle {medians[name] / medians['paddle']:.2f}"
        row(what, milliseconds(medians[name]), remark=remark)


if __name__ == "__main__":
    main()
