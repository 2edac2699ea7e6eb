"""Puts the page that trains in the browser together: ``python docs/try_it/build.py FOLDER``.

FOLDER then holds the page, the wheel of Fluid, and settings.json; any server of files can show it, such as
``python -m http.server -d FOLDER``. Pyodide comes from its CDN, or from a folder or an address of your own.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
PYODIDE = "0.29.5"
"""The version of Pyodide with which the page and the tests run."""
FILES = ("index.html", "page.js", "train.py", "worker.js")


def build(folder: Path, pyodide: str | None = None, numpy: Path | None = None, wheel: Path | None = None) -> None:
    """Write the page into a folder.

    Args:
        folder: where to; it is made.
        pyodide: a folder of Pyodide to copy, such as ``node_modules/pyodide``, or an address; by default, Pyodide's CDN.
        numpy: a wheel of numpy for Pyodide, where Pyodide's own cannot be had.
        wheel: of Fluid; by default, it is built.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for name in FILES:
        shutil.copy(HERE / name, folder)
    if wheel is None:
        command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", str(folder), str(HERE.parents[1])]
        subprocess.run(command, check=True)
        wheel = next(folder.glob("fluid_graph-*.whl"))
    else:
        shutil.copy(wheel, folder)
    address = pyodide or f"https://cdn.jsdelivr.net/pyodide/v{PYODIDE}/full/"
    if Path(address).is_dir():
        shutil.copytree(address, folder / "pyodide", dirs_exist_ok=True)
        address = "pyodide/"
    if numpy is not None:
        shutil.copy(numpy, folder)
    settings = {"pyodide": address, "numpy": None if numpy is None else numpy.name, "fluid": wheel.name}
    (folder / "settings.json").write_text(json.dumps(settings, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--pyodide", help="a folder or an address of Pyodide (its CDN)")
    parser.add_argument("--numpy", type=Path, help="a wheel of numpy for Pyodide (Pyodide's own)")
    parser.add_argument("--wheel", type=Path, help="of Fluid (built here)")
    options = parser.parse_args()
    build(options.folder, options.pyodide, options.numpy, options.wheel)
