"""Other versions of Paddle as oracles, each in an environment of its own that is made once."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

Paddle = Callable[..., dict[str, Any]]
"""Runs code in Paddle's Python: `given` are arrays for it, `found` are those that it returns."""


def environment(config: pytest.Config, folders: pytest.TempPathFactory, version: str, variable: str, *packages: str) -> str:
    """The Python of a version of Paddle: what an environment variable names, or one that is installed, once, for it."""
    given = os.environ.get(variable)
    if given:
        return given
    cache = getattr(config, "cache", None)
    folder = cache.mkdir(f"paddle-{version}") if cache is not None else folders.mktemp("paddle")
    python = folder / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
    if not (folder / "complete").exists():
        subprocess.run([sys.executable, "-m", "venv", "--clear", str(folder)], check=True)
        wanted = [f"paddlepaddle=={version}", *packages]
        if subprocess.run([str(python), "-m", "pip", "install", "--quiet", *wanted], check=False).returncode:
            pytest.skip(f"paddlepaddle {version} could not be installed")
        (folder / "complete").touch()
    return str(python)


def runner(python: str, folder: Path, prelude: str) -> Paddle:
    """A function that runs code by a Python with Paddle, in a folder."""

    def run(code: str, **given: Any) -> dict[str, Any]:
        np.savez(folder / "given.npz", **given)
        script = prelude + textwrap.dedent(code) + '\nnp.savez("found.npz", **found)\n'
        done = subprocess.run([python, "-c", script], cwd=folder, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr[-3000:]
        with np.load(folder / "found.npz") as found:
            return dict(found)

    return run
