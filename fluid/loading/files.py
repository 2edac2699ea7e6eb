"""Data sets of files: pictures in a folder per class, tables of text."""

from __future__ import annotations

import csv
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from ..errors import DataError, FluidError, FluidTypeError, FormatError, ProgramError, did_you_mean
from .datasets import Dataset

_PICTURES = (".bmp", ".gif", ".jpeg", ".jpg", ".npy", ".pgm", ".png", ".ppm", ".tif", ".tiff", ".webp")


def read_image(path: str) -> Any:
    """A picture as an array of pixels, uint8 ``[height, width, 3]``; an array of numpy, ``.npy``, as it is.

    Args:
        path: the file; all formats but ``.npy`` are read by Pillow (``pip install pillow``).

    Raises:
        DataError: the file is damaged, or Pillow is not installed.

    >>> np.save("picture.npy", np.zeros([2, 2, 3], "uint8"))
    >>> fluid.io.read_image("picture.npy").shape
    (2, 2, 3)
    """
    where = os.fspath(path)
    try:
        if where.endswith(".npy"):
            return np.load(where, allow_pickle=False)
        try:
            from PIL import Image
        except ImportError:
            raise DataError(f"{where}: pictures are read by Pillow, which is not installed: pip install pillow") from None
        with Image.open(where) as picture:
            return np.asarray(picture.convert("RGB"))
    except FluidError:
        raise
    except Exception as error:  # Pillow raises errors of many kinds
        raise DataError(f"{where}: the picture cannot be read: {error}") from None


class ImageFolder(Dataset):
    """Pictures that lie in a folder per class: ``folder/cat/1.png``, ``folder/dog/7.jpg``. A sample is a picture and its class.

    Args:
        folder: the folder of folders.
        transform: a function of the array that `read` returns, such as a `fluid.io.transforms.Compose`.
        read: a function of a path that returns an array; `fluid.io.read_image` by default.

    Attributes:
        classes: names of the classes, sorted; the label of a class is its place here.
        files: paths, and labels.

    Raises:
        FormatError: there are no such folders, or no pictures in them.

    >>> for name, value in (("cat", 0), ("dog", 9)):
    ...     os.makedirs(f"pets/{name}")
    ...     np.save(f"pets/{name}/1.npy", np.full([4, 4, 3], value, "uint8"))
    >>> pets = fluid.io.ImageFolder("pets", fluid.io.transforms.ToFloat())
    >>> image, label = pets[1]
    >>> pets.classes, image.shape, label
    (['cat', 'dog'], (3, 4, 4), array([1]))
    """

    def __init__(
        self,
        folder: str | os.PathLike[str],
        transform: Callable[..., Any] | None = None,
        read: Callable[[str], Any] = read_image,
    ) -> None:
        where = os.fspath(folder)
        if not os.path.isdir(where):
            raise FormatError(f"ImageFolder: there is no folder {where!r}")
        self.classes = sorted(entry.name for entry in os.scandir(where) if entry.is_dir())
        self.files = [
            (os.path.join(root, name), label)
            for label, kind in enumerate(self.classes)
            for root, _, names in sorted(os.walk(os.path.join(where, kind)))
            for name in sorted(names)
            if name.lower().endswith(_PICTURES)
        ]
        if not self.files:
            raise FormatError(
                f"ImageFolder: {where} should have a folder for each class, with pictures in it; it has {_listed(where)}"
            )
        self._transform, self._read = transform, read

    def __len__(self) -> int:
        return len(self.files)

    @property
    def draws(self) -> bool:
        return bool(getattr(self._transform, "is_random", False))

    def sample(self, index: int, generator: np.random.Generator) -> tuple[Any, Any]:
        """The picture of the number `index` and its label, int64 ``[1]``, with random numbers from `generator`."""
        path, label = self.files[index]
        image = self._read(path)
        if self._transform is not None:
            image = self._transform(image, generator) if self.draws else self._transform(image)
        return image, np.array([label], np.int64)


def _listed(folder: str) -> str:
    names = sorted(os.listdir(folder))
    return ", ".join(names[:5]) + (", ..." if len(names) > 5 else "") or "nothing"


_MISSING = ("", "na", "n/a", "nan", "null", "none", "?")


class CSVDataset(Dataset):
    """Rows of a table of text. A sample is a tuple: the features, float32 ``[n]``, and the label.

    A column whose cells all are numbers is one feature. A column with texts is a category: one feature for each of its texts, 1
    for the row's text and 0 elsewhere. An empty cell of numbers is NaN.

    Args:
        path: the file; its first row has the names of the columns.
        label: the column to predict; None for none, and samples of one field.
        types: column -> ``"number"``, ``"category"``, or ``"leave out"``, where it should not be guessed. A label that is a
            category is an int64 number, the place of its text in ``categories[label]``; one that is a number is float32.
        delimiter: between cells.

    Attributes:
        columns: names of the features, such as ``"age"`` and ``"city=Rome"``.
        categories: column -> its texts, sorted.
        features, labels: all rows as arrays, ``[rows, n]`` and ``[rows, 1]``.

    Raises:
        FormatError: the file is missing or empty, rows have different lengths, or a cell of a column of numbers is none.
        ProgramError: a column is not there.

    >>> with open("people.csv", "w") as file:
    ...     _ = file.write("age,city,rich\\n31,Rome,no\\n,Oslo,yes\\n")
    >>> people = fluid.io.CSVDataset("people.csv", label="rich")
    >>> people.columns, people.categories["rich"]
    (['age', 'city=Oslo', 'city=Rome'], ['no', 'yes'])
    >>> features, label = people[0]
    >>> features, label
    (array([31.,  0.,  1.], dtype=float32), array([0]))
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        label: str | None = None,
        types: Mapping[str, str] | None = None,
        delimiter: str = ",",
    ) -> None:
        where = os.fspath(path)
        names, rows = _rows_of(where, delimiter)
        types = dict(types or {})
        for name in [*types, *([] if label is None else [label])]:
            if name not in names:
                hint = did_you_mean(name, names)
                raise ProgramError(f"CSVDataset: {where} has no column {name!r}{hint}; it has {', '.join(names)}")
        self.columns: list[str] = []
        self.categories: dict[str, list[str]] = {}
        self.labels: Any = None
        parts = []
        for place, name in enumerate(names):
            cells = [row[place].strip() for row in rows]
            kind = types.get(name) or ("number" if all(_is_number(cell) for cell in cells) else "category")
            if kind not in ("number", "category", "leave out"):
                raise ProgramError(f"CSVDataset: the type of {name} should be 'number', 'category' or 'leave out', not {kind!r}")
            if kind == "number":
                values = _numbers(where, name, cells)
            elif kind == "category":
                texts = self.categories[name] = sorted(set(cells))
                values = np.array([[texts.index(cell)] for cell in cells], np.int64).reshape(-1, 1)
            if kind == "leave out":
                continue
            if name == label:
                self.labels = values
            elif kind == "number":
                self.columns.append(name)
                parts.append(values)
            else:
                self.columns += [f"{name}={text}" for text in texts]
                parts.append((values == np.arange(len(texts))).astype(np.float32))
        self.features = np.concatenate(parts, axis=1) if parts else np.zeros([len(rows), 0], np.float32)

    def __len__(self) -> int:
        return len(self.features)

    def __getitem__(self, index: int) -> tuple[Any, ...]:
        return (self.features[index],) if self.labels is None else (self.features[index], self.labels[index])


def _rows_of(path: str, delimiter: str) -> tuple[list[str], list[list[str]]]:
    """The names of the columns of a table, and its rows."""
    try:
        with open(path, newline="", encoding="utf-8-sig") as file:
            rows: list[Sequence[str]] = [row for row in csv.reader(file, delimiter=delimiter) if row]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise FormatError(f"CSVDataset: {path} cannot be read: {error}") from None
    except TypeError:
        raise FluidTypeError(f"CSVDataset: delimiter should be one character, not {delimiter!r}") from None
    if len(rows) < 2:
        raise FormatError(f"CSVDataset: {path} should have a row of names, and rows below it; it has {len(rows)} in all")
    names = [name.strip() for name in rows[0]]
    wrong = next((number for number, row in enumerate(rows) if len(row) != len(names)), None)
    if wrong is not None:
        raise FormatError(f"CSVDataset: row {wrong + 1} of {path} has {len(rows[wrong])} cells, and the first has {len(names)}")
    if len(set(names)) < len(names):
        raise FormatError(f"CSVDataset: {path} has two columns of one name, in {', '.join(names)}")
    return names, [list(row) for row in rows[1:]]


def _is_number(cell: str) -> bool:
    if cell.lower() in _MISSING:
        return True
    try:
        float(cell)
    except ValueError:
        return False
    return True


def _numbers(path: str, name: str, cells: Sequence[str]) -> Any:
    """A column of numbers, float32 ``[rows, 1]``."""
    for number, cell in enumerate(cells):
        if not _is_number(cell):
            raise FormatError(f"CSVDataset: {path}: row {number + 2} of the column {name} holds {cell!r}, which is no number")
    return np.array([[np.nan if cell.lower() in _MISSING else float(cell)] for cell in cells], np.float32)
