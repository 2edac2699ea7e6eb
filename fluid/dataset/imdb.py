"""Film reviews of IMDB (the Large Movie Review Dataset) from its folder on your disk; nothing is downloaded."""

from __future__ import annotations

import os
from typing import Any, Literal

import numpy as np

from ..errors import FormatError
from ..not_here import names_here

__all__ = ["texts"]

__dir__ = names_here(__name__)


def texts(folder: str | os.PathLike[str], part: Literal["train", "test"] = "train") -> tuple[list[str], Any]:
    """The reviews of a part, and labels: int64 ``[n, 1]``, 1 for praise; these come last.

    Args:
        folder: ``aclImdb``, with ``train/neg``, ``train/pos``, ``test/neg`` and ``test/pos``.
        part: ``"train"`` or ``"test"``.

    Raises:
        FormatError: a folder is missing or empty, or a file is no text.

    `fluid.io.transforms.Tokenize` and `fluid.io.transforms.Vocabulary` make numbers of them.

    >>> for kind, text in (("neg", "dull"), ("pos", "what a film")):
    ...     os.makedirs(f"aclImdb/test/{kind}")
    ...     with open(f"aclImdb/test/{kind}/0_9.txt", "w") as file:
    ...         _ = file.write(text)
    >>> fluid.dataset.imdb.texts("aclImdb", "test")
    (['dull', 'what a film'], array([[0],
           [1]]))
    """
    if part not in ("train", "test"):
        raise ValueError(f"a part of IMDB is 'train' or 'test', not {part!r}")
    reviews: list[str] = []
    labels: list[int] = []
    for label, kind in enumerate(("neg", "pos")):
        where = os.path.join(os.fspath(folder), part, kind)
        names = sorted(name for name in os.listdir(where) if name.endswith(".txt")) if os.path.isdir(where) else []
        if not names:
            raise FormatError(f"there are no reviews in {where}")
        for name in names:
            path = os.path.join(where, name)
            try:
                with open(path, encoding="utf-8") as file:
                    reviews.append(file.read())
            except (OSError, UnicodeDecodeError) as error:
                raise FormatError(f"{path} cannot be read: {error}") from None
        labels += [label] * len(names)
    return reviews, np.array(labels, np.int64)[:, None]
