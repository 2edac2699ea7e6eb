"""Small real data sets: `digits` and `diabetes` are part of the package, as reader creators and as whole arrays.

A data set is a module, imported at its first use (or by ``import fluid.dataset.digits``)::

    train_reader = fluid.io.batch(fluid.dataset.digits.train(), batch_size=32)
    images, labels = fluid.dataset.digits.arrays("test")

`mnist`, `cifar` and `imdb` are read from the files of their authors, which are on your disk.

Beside each ``.npz`` file, a text file of the same name names its source, authors and licence.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

from ..loading.slot_files import DatasetFactory, InMemoryDataset, QueueDataset
from ..not_here import names_here, names_not_here

_MODULES = ["cifar", "diabetes", "digits", "imdb", "mnist"]
__all__ = [*_MODULES, "DatasetFactory", "InMemoryDataset", "QueueDataset"]

__dir__ = names_here(__name__)

_not_here = names_not_here(__name__, f"; the data sets are {', '.join(_MODULES)}")


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return import_module(f"{__name__}.{name}")
    return _not_here(name)
