"""The time that `import fluid` adds to `import numpy`, beside `import torch`, and the size of the wheel.

Measured on the wheel as pip installs it, with compiled bytecode. Needs setuptools, to build it.
"""

from __future__ import annotations

import argparse
import compileall
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

from common import header, milliseconds, row

ROOT = Path(__file__).resolve().parent.parent


def build_wheel(folder):
    """The wheel of this tree, built in a folder, without a network."""
    source = folder / "source"
    shutil.copytree(ROOT, source, ignore=shutil.ignore_patterns(".*", "build", "*.egg-info", "__pycache__"))
    options = ["--quiet", "--no-deps", "--no-build-isolation", "--no-index", "--wheel-dir", str(folder)]
    if subprocess.run([sys.executable, "-m", "pip", "wheel", *options, str(source)]).returncode:
        sys.exit("the wheel could not be built; pip install setuptools")
    return next(folder.glob("*.whl"))


def seconds(site, first, then):
    """Time to import `then` in a new process that has imported `first` and finds the wheel in the folder `site`."""
    code = f"import {first}, time; start = time.perf_counter(); import {then}; print(time.perf_counter() - start)"
    environment = {**os.environ, "PYTHONPATH": str(site)}
    command = [sys.executable, "-c", code]
    return float(subprocess.run(command, cwd=site, env=environment, capture_output=True, text=True, check=True).stdout)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=11, help="processes for each (%(default)s)")
    rounds = parser.parse_args().rounds
    header("Import and size")
    pairs = {"numpy": ("sys", "numpy"), "fluid": ("numpy", "fluid"), "torch": ("numpy", "torch")}
    times = {name: [] for name in pairs}
    with tempfile.TemporaryDirectory() as folder:
        wheel, site = build_wheel(Path(folder)), Path(folder, "site")
        size = wheel.stat().st_size
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(site)
        compileall.compile_dir(site, quiet=1)
        for number in range(rounds + 1):
            for name, pair in pairs.items():
                value = seconds(site, *pair)
                if number:  # in the first round, files are read from disk
                    times[name].append(value)
    found = {name: statistics.median(values) for name, values in times.items()}
    row(
        "import, beyond numpy's own",
        milliseconds(found["fluid"]),
        milliseconds(found["torch"]),
        milliseconds(found["numpy"]),
        f"{found['fluid'] / found['torch']:.2f}",
        "the numpy column is `import numpy` itself",
    )
    row("wheel, with its data", f"{size / 1e6:.2f} MB")


if __name__ == "__main__":
    main()
