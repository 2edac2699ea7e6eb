"""What `import fluid` adds to `import numpy`, beside `import torch`, and the size of the wheel."""

from __future__ import annotations

import argparse
import shutil
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from common import header, milliseconds, row

ROOT = Path(__file__).resolve().parent.parent


def seconds(first, then):
    """Time to import `then` in a new process that has imported `first`."""
    code = f"import {first}, time; start = time.perf_counter(); import {then}; print(time.perf_counter() - start)"
    done = subprocess.run([sys.executable, "-c", code], cwd=tempfile.gettempdir(), capture_output=True, text=True, check=True)
    return float(done.stdout)


def wheel_bytes():
    """Size of the wheel of this tree, built without a network; None where setuptools is not installed."""
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder, "source")
        shutil.copytree(ROOT, source, ignore=shutil.ignore_patterns(".*", "build", "*.egg-info", "__pycache__"))
        options = ["--quiet", "--no-deps", "--no-build-isolation", "--no-index", "--wheel-dir", folder]
        if subprocess.run([sys.executable, "-m", "pip", "wheel", *options, str(source)]).returncode:
            return None
        return next(Path(folder).glob("*.whl")).stat().st_size


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=11, help="processes for each (%(default)s)")
    rounds = parser.parse_args().rounds
    header("Import and size")
    pairs = {"numpy": ("sys", "numpy"), "fluid": ("numpy", "fluid"), "torch": ("numpy", "torch")}
    for first, then in pairs.values():
        seconds(first, then)
    times = {name: [] for name in pairs}
    for _ in range(rounds):
        for name, pair in pairs.items():
            times[name].append(seconds(*pair))
    found = {name: statistics.median(values) for name, values in times.items()}
    row(
        "import, beyond numpy's own",
        milliseconds(found["fluid"]),
        milliseconds(found["torch"]),
        milliseconds(found["numpy"]),
        f"{found['fluid'] / found['torch']:.2f}",
        "the numpy column is `import numpy` itself",
    )
    size = wheel_bytes()
    row("wheel, with its data", "not built: needs setuptools" if size is None else f"{size / 1e6:.2f} MB")


if __name__ == "__main__":
    main()
