"""Functions that the data sets share: reading an array file of the package, and splitting its rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Literal

import numpy as np

Part = Literal["train", "test", "all"]
Reader = Callable[[], Iterator[Any]]


def load(name: str) -> dict[str, Any]:
    """The arrays of ``<name>.npz`` in this folder, by name."""
    with np.load(Path(__file__).with_name(f"{name}.npz"), allow_pickle=False) as file:
        return {key: file[key] for key in file.files}


def in_part(size: int, part: Part) -> Any:
    """Boolean mask of the rows of a part: every fifth row, starting with the fifth, is for testing."""
    if part == "all":
        return np.ones(size, bool)
    if part not in ("train", "test"):
        raise ValueError(f"a part of a data set is 'train', 'test' or 'all', not {part!r}")
    return (np.arange(size) % 5 == 4) == (part == "test")
