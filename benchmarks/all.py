"""Runs all the benchmarks, one after the other, each in a process of its own, and prints their tables for the README."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from pathlib import Path

from common import machine, table_head

NAMES = (
    "building",
    "recurrent",
    "kernels",
    "eager",
    "eager_ops",
    "jacobian",
    "sparse_table",
    "import_time",
    "memory",
    "native",
)
TABLES_OF_THEIR_OWN = ("native",)
if "FLUID_PADDLE_PYTHON" in os.environ:  # a Python with PaddlePaddle 2.6.2
    NAMES += ("loading",)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", default=NAMES, help=f"which to run (all of {', '.join(NAMES)})")
    names = parser.parse_args().names
    described = machine()
    print(described)
    rows, tables, failed = [], [], []
    for name in names:
        script = Path(__file__).with_name(f"{name}.py")
        environment = {**os.environ, "BENCHMARK_HEADER": "once"}
        with subprocess.Popen([sys.executable, str(script)], env=environment, stdout=subprocess.PIPE, text=True) as process:
            for line in process.stdout:
                print(line, end="", flush=True)
                if line.startswith("|"):
                    (tables if name in TABLES_OF_THEIR_OWN else rows).append(line.rstrip())
        if process.returncode:
            failed.append(name)
    print("\n" + table_head(), *rows, "", *tables, "", *(f"{line}  " for line in described.splitlines()), sep="\n")
    if failed:
        sys.exit(f"failed: {', '.join(failed)}")


if __name__ == "__main__":
    main()
